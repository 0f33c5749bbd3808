//! `store`: ours, through its public calls: an explicit group for each group of the case, begun by a writer for each
//! thread.
//!
//! Twice: as it is used, with the checkpoint in the background and what it leaves drained inside the clock; and
//! `store_deferred`, whose log holds a whole turn and is taken home between turns, which shows what a commit itself
//! costs.

use crate::place::Place;
use crate::system::{Counters, Prepared, Ready, System, Turn};
use crate::workload::{Case, Payload, Update};
use crate::{Error, Result};
use std::path::PathBuf;
use std::time::Instant;
use wholly::{File, Options, Store, Writer};
use wholly_host::{HostMedium, HostOptions};

/// Bytes of log of the steady state.
const LOG_BYTES: u64 = 64 << 20;
/// Bytes of log that a deferred turn may fill.
const DEFERRED_LOG_BYTES: u64 = 1 << 30;

/// A store in a directory of the place.
pub struct StoreSystem {
    deferred: bool,
    threads: u32,
    open: Option<Open>,
}

struct Open {
    store: Store,
    files: Vec<File>,
    /// One for each thread.
    writers: Vec<Writer>,
}

impl StoreSystem {
    /// With the checkpoint in the clock, or between turns. More than one thread: two on persistent memory, where they
    /// show whether commits meet, and eight on disks, where they show whether commits share a write.
    pub fn new(deferred: bool, threads: u32) -> Self {
        StoreSystem { deferred, threads, open: None }
    }

    fn opened(&mut self) -> &mut Open {
        self.open.as_mut().expect("prepared")
    }
}

/// One explicit group.
#[inline]
fn run_group(writer: &mut Writer, files: &[File], group: &[Update], payload: &Payload) -> Result<()> {
    let mut updates = writer.begin();
    for update in group {
        updates.add(&files[update.file as usize]).map_err(|e| Error::from(e.to_string()))?;
    }
    for update in group {
        updates
            .write_at(&files[update.file as usize], update.offset, payload.of(update))
            .map_err(|e| Error::from(e.to_string()))?;
    }
    updates.commit().map_err(|e| Error::from(e.to_string()))
}

impl System for StoreSystem {
    fn name(&self) -> &'static str {
        if self.deferred { "store_deferred" } else { "store" }
    }

    fn prepare(&mut self, case: &Case, place: &Place) -> Result<Prepared> {
        let pmem = place.medium.is_pmem();
        if (self.threads == 2 && !pmem)
            || (self.threads == 8 && pmem)
            || (self.threads > 1 && case.files < self.threads * 2)
        {
            return Ok(Prepared::Inapplicable);
        }
        let log_bytes = if self.deferred { DEFERRED_LOG_BYTES } else { LOG_BYTES };
        let medium = if pmem { HostMedium::Pmem } else { HostMedium::Disk };
        let host =
            HostOptions { medium, emulator: place.emulator.clone(), clock: place.clock, ..HostOptions::default() };
        let options = Options {
            // All of it from the start, so that no turn pays for growth.
            log_min_bytes: log_bytes,
            log_max_bytes: log_bytes,
            background: !self.deferred,
            ..Options::default()
        };
        let path = |n: u32| -> PathBuf { place.dir.join(n.to_string()) };
        let zeros = vec![0u8; case.file_bytes as usize];
        for n in 0..case.files {
            std::fs::write(path(n), &zeros)?;
        }
        std::fs::File::open(&place.dir)?.sync_all()?;
        let failed = |e: wholly::Error| Error::from(e.to_string());
        Store::init_with(&place.dir, &options, host.clone()).map_err(failed)?;
        let store = Store::open_with(&place.dir, options, host).map_err(failed)?;
        let files = (0..case.files)
            .map(|n| store.open_file(n.to_string()))
            .collect::<wholly::Result<Vec<_>>>()
            .map_err(failed)?;
        // Every page of every mapping is there before the clock runs.
        let mut page = [0u8; 4096];
        for file in &files {
            for offset in (0..case.file_bytes).step_by(page.len()) {
                file.read_at(offset, &mut page).map_err(failed)?;
            }
        }
        let groups_per_log = LOG_BYTES / (case.group_bytes() + 64 * (1 + case.updates as u64));
        let settings = vec![
            ("log".into(), format!("{} MiB", log_bytes >> 20)),
            (
                "checkpoint".into(),
                if self.deferred { "between turns".into() } else { "one thread, in the background".to_string() },
            ),
        ];
        let writers = (0..self.threads).map(|_| store.writer()).collect();
        self.open = Some(Open { store, files, writers });
        Ok(Prepared::Ready(Ready {
            groups_per_log: if self.deferred { 0 } else { groups_per_log },
            max_groups: if self.deferred { DEFERRED_LOG_BYTES * 9 / 10 / (case.group_bytes() + 256) } else { u64::MAX },
            deferred: self.deferred,
            settings,
        }))
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn run_turn(&mut self, turn: &mut Turn<'_>) -> Result<()> {
        let threads = self.threads;
        let Open { files, writers, .. } = self.opened();
        if threads == 1 {
            for group in turn.sequence.groups(turn.groups) {
                let start = turn.latencies.is_some().then(Instant::now);
                run_group(&mut writers[0], files, group, turn.payload)?;
                if let (Some(latencies), Some(start)) = (&mut turn.latencies, start) {
                    latencies.saturating_record(start.elapsed().as_nanos() as u64);
                }
            }
        } else {
            let (turn, files) = (&*turn, &*files);
            std::thread::scope(|scope| {
                let running: Vec<_> = writers
                    .iter_mut()
                    .zip(0..)
                    .map(|(writer, thread)| {
                        let run = move |group: &[Update]| run_group(writer, files, group, turn.payload);
                        scope.spawn(move || turn.run_share(files.len() as u32, thread, threads, run))
                    })
                    .collect();
                running.into_iter().try_for_each(|thread| thread.join().expect("a thread of the benchmark"))
            })?;
        }
        self.settle()
    }

    fn run_group(&mut self, group: &[Update], payload: &Payload) -> Result<()> {
        let Open { files, writers, .. } = self.opened();
        run_group(&mut writers[0], files, group, payload)
    }

    fn settle(&mut self) -> Result<()> {
        if !self.deferred {
            self.opened().store.checkpoint().map_err(|e| Error::from(e.to_string()))?;
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<()> {
        if self.deferred {
            self.opened().store.checkpoint().map_err(|e| Error::from(e.to_string()))?;
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        let stat = self.open.as_ref().expect("prepared").store.stat();
        Counters {
            bytes_written: Some(stat.log_bytes_written + stat.home_bytes_written),
            fences: Some(stat.fences),
            syncs: Some(stat.syncs),
        }
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            drop((open.files, open.writers));
            open.store.close().map_err(|e| Error::from(e.to_string()))?;
        }
        Ok(())
    }
}
