//! Whether what a running group builds on is as it was when the group first touched it. Other groups cannot change
//! that: it is claimed. Programs that bypass the store can, and a group that they have overtaken is parked rather than
//! committed.
//!
//! What is compared is what the host has with what the store has left there, so that neither a pass nor a group that
//! has committed meanwhile counts as a bystander. It takes a look at each object that the group speaks of, and no more.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rustix::io::Errno;
use wholly_changes::records::Baseline;
use wholly_changes::{Known, ROOT, Summary};
use wholly_host::host_error;
use wholly_vfs::Stat;

use super::Running;
use super::apply::{Applying, content_changed};
use super::park::For;
use crate::error::{Error, Result};
use crate::hostdir::parked::Mismatch;
use crate::hostdir::table::look_steadily;

/// What the host has where the table says that an object, or nothing, lies.
pub(super) enum AtHome {
    /// The host need not have it: it is not made yet, or it is open and has lost its names.
    Nowhere,
    /// It lies there, or nothing does, as it should be.
    AsLeft(Option<Stat>),
    /// What is otherwise.
    Otherwise(&'static str),
}

impl Running {
    /// See [`Group::commit_or_park`](crate::Group::commit_or_park).
    pub(in crate::hostdir) fn commit_or_park(&mut self, note: &str, keep: Option<Duration>) -> Result<()> {
        let mismatches = self.changed_meanwhile()?;
        if mismatches.is_empty() {
            return self.commit();
        }
        if look_steadily(|| self.summarize(For::Review))?.is_empty() {
            // Others have done the same: there is nothing to commit, and nothing to park.
            return self.commit();
        }
        match self.set_aside_as_parked(note, keep, &[]) {
            Ok(id) => Err(Error::ChangedMeanwhile(id, mismatches.into())),
            // What is committed, and this group builds on, cannot go home: no pass will touch anything before that is
            // settled, and the log is where both are safe.
            Err(Error::Conflict { .. }) => self.commit_to_log(),
            Err(error) => Err(error),
        }
    }

    /// All that the group builds on and that a bystander has changed, in order.
    pub(in crate::hostdir) fn changed_meanwhile(&self) -> Result<Vec<Mismatch>> {
        self.check_open()?;
        let look_at_all = || {
            let mut wrong = Vec::new();
            let _glancing = self.glancing();
            for part in self.summarize_in_parts(For::Review) {
                wrong.extend(self.look_for_changes(&part?)?);
                self.look_anew();
            }
            Ok(wrong)
        };
        let look = || look_steadily(look_at_all);
        let wrong = look()?;
        // A pass that runs has changed files of which the table does not say so yet.
        let mut wrong = if wrong.is_empty() { wrong } else { self.store.between_passes(look)? };
        wrong.extend(self.told().iter().map(|(_, mismatch)| mismatch.clone()));
        wrong.sort();
        wrong.dedup();
        Ok(wrong)
    }

    /// Notes that something is not what whoever made the group's changes has seen of it, or of what is in it: the group
    /// is not to be committed.
    pub(in crate::hostdir) fn note_overtaken(&mut self, id: u64, mismatch: Mismatch) -> Result<()> {
        self.check_open()?;
        // What the group itself makes is what it is: the directory counts that it comes into.
        let mut known = id;
        while self.names_mut().is_born(known) {
            known = self.walk().above(known).unwrap_or(ROOT);
        }
        self.plain = false;
        self.brought.get_or_insert_default().told.push((known, mismatch));
        Ok(())
    }

    /// Looks at a part of what the group would change.
    fn look_for_changes(&self, summary: &Summary) -> Result<Vec<Mismatch>> {
        let everybody = self.everybody();
        let mut applying = Applying::new(summary);
        let mut seen = BTreeMap::new();
        for (&id, known) in &summary.objects {
            if let Known::Settled(_) = known {
                match self.at_home(id)? {
                    AtHome::Otherwise(what) => applying.wrong(applying.path(id), what),
                    AtHome::AsLeft(Some(stat)) => _ = (applying.ids.insert(id, id), seen.insert(id, stat)),
                    // Of what the host has not made, everybody knows what its group has told.
                    AtHome::AsLeft(None) | AtHome::Nowhere => {}
                }
            }
        }
        for (name, &(before, _)) in summary.names() {
            if let AtHome::Otherwise(what) = self.name_at_home(name.0, &name.1, before)? {
                applying.wrong(applying.path_of(name), what);
            }
        }
        self.look_at_bytes(&mut applying, &seen)?;
        for (&id, stat) in &seen {
            let sets = |state: &mut crate::hostdir::names::State| {
                let object = state.objects.get(&id).filter(|object| !object.unsure)?;
                object.sets.foreign(stat)
            };
            if let Some(what) = self.store.names.with(sets).filter(|_| summary.sets.contains_key(&id)) {
                applying.wrong(applying.path(id), what);
            }
        }
        everybody.compare_attributes(&mut applying)?;
        self.compare_removed(&mut applying)?;
        Ok(applying.mismatches())
    }

    /// What the host has where an object is at home.
    pub(super) fn at_home(&self, id: u64) -> Result<AtHome> {
        let _still = self.store.names.keep_homes();
        let (path, inode) = self.store.names.with(|state| {
            let inode = state.objects.get(&id).and_then(|object| object.inode());
            (state.host_path(id), inode)
        });
        match path.filter(|_| inode.is_some() || id == ROOT) {
            Some(path) => self.compare_home(self.stat_at_home(id, &path), &path, inode, id == ROOT),
            None => Ok(AtHome::Nowhere),
        }
    }

    /// What the host has at a name that has been `before` when the group claimed it.
    fn name_at_home(&self, dir: u64, name: &[u8], before: u64) -> Result<AtHome> {
        let _still = self.store.names.keep_homes();
        let (path, inode, is_stray) = self.store.names.with(|state| {
            // The value of a group that is not home is not there yet.
            let register = state.register(dir, name);
            let (home, stray) = register.map_or((before, false), |register| (register.home(), register.is_stray()));
            let inode = state.objects.get(&home).and_then(|object| object.inode());
            (state.host_path_of(dir, name), inode, stray)
        });
        match path.filter(|_| !is_stray) {
            Some(path) => self.compare_home(self.store.host.stat(&path), &path, inode, false),
            None => Ok(AtHome::Nowhere),
        }
    }

    fn compare_home(
        &self,
        found: wholly_media::Result<Stat>,
        path: &[u8],
        inode: Option<(u64, i64)>,
        is_any: bool,
    ) -> Result<AtHome> {
        let now = match found {
            Ok(stat) => Some(stat),
            Err(error) if matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => None,
            Err(error) if matches!(error.errno, Errno::XDEV | Errno::LOOP | Errno::ACCESS) => {
                return Ok(AtHome::Otherwise("its directory leads elsewhere, or nowhere"));
            }
            Err(error) => return Err(host_error(error, path)),
        };
        let is_same = now.map(|stat| (stat.ino, stat.btime_ns)) == inode;
        Ok(match (now, inode) {
            (now, _) if is_same || is_any => AtHome::AsLeft(now),
            (Some(_), None) => AtHome::Otherwise("something has been made there"),
            (None, _) => AtHome::Otherwise("it is gone"),
            _ => AtHome::Otherwise("something else has its name"),
        })
    }

    /// Compares how the files lie whose bytes the group changes, or of which it takes the last name.
    fn look_at_bytes(&self, applying: &mut Applying<'_>, seen: &BTreeMap<u64, Stat>) -> Result<()> {
        let summary = applying.summary;
        for (&id, stat) in seen {
            if !self.relies_on_bytes(summary, id)? {
                continue;
            }
            let (file, left) = self.store.names.with(|state| (state.file(id), state.left(id)));
            let (conflict, left) = match file {
                Some(file) => {
                    let state = file.home_state.lock().unwrap();
                    (state.conflict.clone(), state.baseline)
                }
                None => (None, left),
            };
            let (now, path) = (Baseline::of(stat), applying.path(id));
            match (conflict, left) {
                (Some(change), _) => applying.wrong(path, change),
                (None, Some(then)) if (then.size, then.mtime_ns) != (now.size, now.mtime_ns) => {
                    applying.wrong(path, content_changed(then.size, now.size));
                }
                // A pass that finds that does not write to the file.
                (None, Some(then)) if then != now && summary.contents.contains_key(&id) => {
                    applying.wrong(path, "its attributes, or its links, have been changed");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The objects of a group that runs are what they are.
impl<'p> Applying<'p> {
    pub fn new(summary: &'p Summary) -> Self {
        Applying { summary, ids: HashMap::from([(ROOT, ROOT)]), wrong: Vec::new() }
    }
}
