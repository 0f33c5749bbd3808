//! What a group tells the log of the time of its changes: see [`clock`](crate::hostdir::clock).

use super::Running;
use crate::error::Result;
use crate::hostdir::clock::{Mtime, is_near};
use crate::log::layout::EntryKind;
use wholly_changes::records::{Attributes, AttributesBefore};

impl Running {
    /// Finds out the time of the group's changes, and tells the log where no group at or above the announced tail has.
    #[inline]
    pub(super) fn tell_time(&mut self, announced: u64) -> Result<()> {
        let mut last = None;
        for file in &self.seat().files {
            if let Mtime::Changed(ns) = file.mtime {
                last = last.max(Some(ns));
            }
        }
        if let Some(private) = &self.names {
            for (_, mtime) in private.mtimes() {
                if let Mtime::Changed(ns) = *mtime {
                    last = last.max(Some(ns));
                }
            }
        }
        self.time = (0, false);
        let Some(last) = last else { return Ok(()) };
        // On a disk the group takes its sequence later, above all that are published.
        let sequence = if self.store.log.is_pmem() { self.sequence } else { u64::MAX };
        match self.store.clock.at(announced, sequence).filter(|&time| is_near(last, time, self.grain_ns)) {
            Some(time) => self.time = (time, false),
            None => self.tell_clock(last)?,
        }
        self.tell_others()
    }

    /// The group has made its changes of what is in a directory for somebody, who had made the last of them then.
    pub(in crate::hostdir) fn names_changed_at(&mut self, dir: u64, ns: i64) -> Result<()> {
        self.check_open()?;
        if let Mtime::Changed(_) = self.names_mut().mtime_of(dir) {
            self.names_mut().set_mtime(dir, Mtime::Changed(ns));
        }
        Ok(())
    }

    #[cold]
    fn tell_clock(&mut self, time: i64) -> Result<()> {
        self.entry(EntryKind::Clock, 0, time.max(0) as u64, &[])?;
        self.time = (time, true);
        Ok(())
    }

    /// What changed at another time has an entry of its own.
    #[inline]
    fn tell_others(&mut self) -> Result<()> {
        let (time, grain_ns) = (self.time.0, self.grain_ns);
        for i in 0..self.seat().files.len() {
            if let Some(ns) = self.seat().files[i].mtime.far_from(time, grain_ns) {
                let id = self.seat().files[i].inner.id;
                self.tell_mtime(id, ns)?;
                self.seat_mut().files[i].mtime = Mtime::Told(ns);
            }
        }
        let far = self.names.iter().flat_map(|private| private.mtimes());
        let far: Vec<(u64, i64)> = far.filter_map(|(id, mtime)| Some((*id, mtime.far_from(time, grain_ns)?))).collect();
        for (id, ns) in far {
            self.tell_mtime(id, ns)?;
            self.names_mut().set_mtime(id, Mtime::Told(ns));
        }
        Ok(())
    }

    #[cold]
    pub(super) fn tell_mtime(&mut self, id: u64, ns: i64) -> Result<()> {
        let before = AttributesBefore::default();
        let entry = Attributes { mode: None, uid: None, gid: None, atime_ns: None, mtime_ns: Some(ns), before };
        self.entry(EntryKind::Attributes, id, 0, &entry.to_bytes()).map(drop)
    }
}
