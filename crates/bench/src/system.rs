//! The trait that each measured system implements.

use crate::Result;
use crate::place::Place;
use crate::workload::{Case, Payload, Sequence, Update};
use hdrhistogram::Histogram;
use std::time::Instant;

/// What a system has done since it was prepared. `None` where the system cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that it wrote to the medium, logs and checkpoints included. On disks the harness asks the device instead.
    pub bytes_written: Option<u64>,
    /// Fences with stores before them.
    pub fences: Option<u64>,
    /// System calls that wait for a device: `fsync` and its kind, and synchronous writes.
    pub syncs: Option<u64>,
}

/// What the harness must know of a system that is ready.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Groups of the case that fill the log, 0 where there is none: a turn has at least three times as many.
    pub groups_per_log: u64,
    /// The most groups of a turn, where something bounds them.
    pub max_groups: u64,
    /// Whether checkpoints are left for a time outside the clock. Rows say so.
    pub deferred: bool,
    /// Settings that matter to a reader of the figures: name and value.
    pub settings: Vec<(String, String)>,
}

impl Default for Ready {
    fn default() -> Self {
        Ready { groups_per_log: 0, max_groups: u64::MAX, deferred: false, settings: Vec::new() }
    }
}

/// Whether a system can run a case.
#[derive(Clone, Debug)]
pub enum Prepared {
    /// It can.
    Ready(Ready),
    /// It is not meant for this case on this medium: no row, and nothing is missing.
    Inapplicable,
    /// It cannot, and why.
    Skipped(String),
}

/// A system that is measured: ours, a bound, or a peer.
///
/// The harness calls [`prepare`](Self::prepare), then many turns, then [`finish`](Self::finish), for each case on each
/// medium.
pub trait System {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// How many threads make groups at the same time, each on files of its own.
    fn threads(&self) -> u32 {
        1
    }

    /// Makes the files of `case`, filled with zeros, and whatever else the system needs, in the empty directory
    /// `place.dir`. After that no group may pay for something that happens only once (page faults, allocation).
    fn prepare(&mut self, case: &Case, place: &Place) -> Result<Prepared>;

    /// Overwrites the ranges in `group` with their new bytes, atomically and durably by the system's own standard.
    fn run_group(&mut self, group: &[Update], payload: &Payload) -> Result<()>;

    /// Brings the log back to what it held at the start of the turn. Inside the clock.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Does what was left for a time outside the clock. Called before each turn.
    fn rest(&mut self) -> Result<()> {
        Ok(())
    }

    /// What it has done since [`prepare`](Self::prepare).
    fn counters(&self) -> Counters;

    /// Closes everything. The harness removes the directory afterwards.
    fn finish(&mut self) -> Result<()>;

    /// Runs a turn. Compiled for each system, so that [`run_group`](Self::run_group) is no indirect call; systems that
    /// run groups otherwise (many threads, say) have their own.
    fn run_turn(&mut self, turn: &mut Turn<'_>) -> Result<()> {
        run_alone(self, turn)
    }
}

/// Runs a turn on the calling thread.
pub(crate) fn run_alone<S: System + ?Sized>(system: &mut S, turn: &mut Turn<'_>) -> Result<()> {
    if let Some(latencies) = &mut turn.latencies {
        for group in turn.sequence.groups(turn.groups) {
            let start = Instant::now();
            system.run_group(group, turn.payload)?;
            latencies.saturating_record(start.elapsed().as_nanos() as u64);
        }
    } else {
        for group in turn.sequence.groups(turn.groups) {
            system.run_group(group, turn.payload)?;
        }
    }
    system.settle()
}

/// What one turn is to do.
#[derive(Debug)]
pub struct Turn<'a> {
    /// Number of groups.
    pub groups: usize,
    /// The groups; all systems get the same.
    pub sequence: &'a Sequence,
    /// The bytes that they write.
    pub payload: &'a Payload,
    /// Where to record the time of each group in ns; only in turns whose duration is not used.
    pub latencies: Option<&'a mut Histogram<u64>>,
}

impl Turn<'_> {
    /// What one of several threads does of a turn: every so-manieth group, on files of its own.
    ///
    /// # Errors
    /// The first of `run`.
    pub fn run_share(
        &self,
        files: u32,
        thread: u32,
        threads: u32,
        mut run: impl FnMut(&[Update]) -> Result<()>,
    ) -> Result<()> {
        let mine = self.sequence.groups(self.groups).enumerate().filter(|(i, _)| *i as u32 % threads == thread);
        let share = files / threads;
        let mut group: Vec<Update> = Vec::new();
        for (_, shared) in mine {
            group.clear();
            for (i, update) in shared.iter().enumerate() {
                // Different files of a group stay different.
                let nth = (update.file / threads) % share;
                let taken = group.iter().any(|other| other.file / threads == nth);
                let nth = if taken { (nth + i as u32) % share } else { nth };
                group.push(update.in_file(nth * threads + thread));
            }
            run(&group)?;
        }
        Ok(())
    }
}
