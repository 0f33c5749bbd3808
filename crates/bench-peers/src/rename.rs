//! `rename`: what careful programs do by hand. For each file of a group: write a temporary file, `fsync` it, rename it
//! over the old one, `fsync` the directory.
//!
//! Two concessions, both in its favour. The new file holds only the bytes of the update, as though files were no larger
//! than what changes; a program with larger files copies the rest too. And two files of a group change one after the
//! other: nothing makes the group atomic.

use rustix::fs::{Mode, OFlags, fsync, openat, renameat};
use std::fs::File;
use std::os::fd::OwnedFd;
use wholly_bench::place::Place;
use wholly_bench::system::{Counters, Prepared, Ready, System};
use wholly_bench::workload::{Payload, Update};
use wholly_bench::{Case, Result};

const TEMPORARY: &str = "temporary";

/// The peer.
#[derive(Default)]
pub struct Rename {
    dir: Option<OwnedFd>,
    names: Vec<String>,
    syncs: u64,
    bytes: u64,
}

impl System for Rename {
    fn name(&self) -> &'static str {
        "rename"
    }

    fn prepare(&mut self, case: &Case, place: &Place) -> Result<Prepared> {
        if place.emulator.is_some() {
            return Ok(Prepared::Skipped("the emulator cannot slow it down".into()));
        }
        self.names = (0..case.files).map(|n| n.to_string()).collect();
        for name in &self.names {
            std::fs::write(place.dir.join(name), vec![0; case.size.max_bytes() as usize])?;
        }
        let dir = File::open(&place.dir)?;
        rustix::fs::syncfs(&dir)?;
        self.dir = Some(dir.into());
        (self.syncs, self.bytes) = (0, 0);
        let settings = vec![("settings".into(), "a new file holds only the bytes of the update".into())];
        Ok(Prepared::Ready(Ready { settings, ..Ready::default() }))
    }

    fn run_group(&mut self, group: &[Update], payload: &Payload) -> Result<()> {
        let dir = self.dir.as_ref().expect("prepared");
        for update in group {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = File::from(openat(dir, TEMPORARY, flags, Mode::RUSR | Mode::WUSR)?);
            std::os::unix::fs::FileExt::write_all_at(&file, payload.of(update), 0)?;
            fsync(&file)?;
            renameat(dir, TEMPORARY, dir, &self.names[update.file as usize])?;
            fsync(dir)?;
            self.syncs += 2;
            self.bytes += u64::from(update.len);
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters { bytes_written: Some(self.bytes), fences: None, syncs: Some(self.syncs) }
    }

    fn finish(&mut self) -> Result<()> {
        self.dir = None;
        Ok(())
    }
}
