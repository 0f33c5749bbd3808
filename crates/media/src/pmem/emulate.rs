//! Slowing memory down to what persistent memory costs, for benchmarks.
//!
//! Memory modules of persistent memory write more slowly than DRAM. Figures that compare mechanisms by the bytes they
//! write need that cost, so an [`Emulator`] adds it by waiting. One emulator stands for the modules of one machine: all
//! regions that are slowed by it share its bandwidth.
//!
//! The delay of a line is shorter than what it takes to measure it. So where lines have one, a thread owes the delays
//! of what it writes, and pays them at its next fence, in one: what it waits longer than it owes, it owes less then.
//! What a payment itself takes counts as waiting. The part of it that no clock sees is measured when an emulator is
//! made.

use crate::pmem::PmemRegion;
use crate::{Guarantees, Region, Result, Site};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What persistent memory costs more than DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Emulation {
    /// Nothing: the speed of the memory itself.
    #[default]
    None,
    /// All threads together write at most so many bytes in a second, counted in whole lines of 64 bytes.
    Bandwidth {
        /// Bytes in a second, such as 4e9.
        bytes_per_s: f64,
    },
    /// The emulator of FCFS (section VI-A): a delay for each line that is flushed; at most `bandwidth` x `latency` /
    /// 64 B threads wait for theirs at once, others queue.
    Paper {
        /// Delay after each line, in ns; the paper has 150.
        latency_ns: u64,
        /// Bytes in a second; the paper has 4e9.
        bandwidth: f64,
    },
}

impl Emulation {
    /// The settings of FCFS: 150 ns after each line, 4 GB/s.
    pub const PAPER: Emulation = Emulation::Paper { latency_ns: 150, bandwidth: 4e9 };

    /// A part of a description: `"slowed to 4 GB/s shared by all threads"`; `None` where nothing is slowed.
    pub fn describe(&self) -> Option<String> {
        match *self {
            Emulation::None => None,
            Emulation::Bandwidth { bytes_per_s } => {
                Some(format!("slowed to {} GB/s shared by all threads", bytes_per_s / 1e9))
            }
            Emulation::Paper { latency_ns, bandwidth } => Some(format!(
                "slowed by {latency_ns} ns after each line, at most {} threads writing at once ({} GB/s)",
                writers(latency_ns, bandwidth),
                bandwidth / 1e9,
            )),
        }
    }
}

/// How many threads may write at once: bandwidth x latency / line, at least one.
fn writers(latency_ns: u64, bandwidth: f64) -> u64 {
    ((bandwidth * latency_ns as f64 / 1e9 / LINE as f64) as u64).max(1)
}

/// Bytes of a line.
const LINE: u64 = 64;

/// A wait that is longer leaves the processor to others, if more threads wait than there are processors. Else it does
/// not: a system call makes the code after it slow, and the memory that is emulated would not.
const LONG_NS: i64 = 2_000;

thread_local! {
    /// What this thread owes, in ns, by the number of the emulator; less than nothing where it has waited too long.
    static OWED: RefCell<Vec<(u64, i64)>> = const { RefCell::new(Vec::new()) };
}

/// Numbers of emulators.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The cost of one machine's persistent memory, shared by all regions on it.
#[derive(Debug)]
pub struct Emulator {
    number: u64,
    emulation: Emulation,
    /// What all times are counted from.
    start: Instant,
    /// When the bandwidth is free again, in ns since `start`.
    free_at_ns: AtomicU64,
    /// The next queue number to be given out; numbers below `admitted` may write.
    tickets: AtomicU64,
    admitted: AtomicU64,
    /// How many may write at once.
    writers: u64,
    processors: u64,
    /// What a payment takes besides what it measures, in ns.
    unmeasured_ns: i64,
}

impl Emulator {
    /// An emulator whose memory is idle.
    pub fn new(emulation: Emulation) -> Arc<Emulator> {
        let mut emulator = Emulator {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            emulation,
            start: Instant::now(),
            free_at_ns: AtomicU64::new(0),
            tickets: AtomicU64::new(0),
            admitted: AtomicU64::new(1),
            writers: 1,
            processors: 1,
            unmeasured_ns: 0,
        };
        if let Emulation::Paper { latency_ns, bandwidth } = emulation {
            // Only where it waits: it reads files.
            let processors = std::thread::available_parallelism();
            emulator.processors = processors.map_or(1, |processors| processors.get() as u64);
            emulator.unmeasured_ns = emulator.unmeasured();
            emulator.writers = writers(latency_ns, bandwidth);
            emulator.tickets = AtomicU64::new(0);
            emulator.admitted = AtomicU64::new(emulator.writers);
        }
        Arc::new(emulator)
    }

    /// The median of what payments of 1 ns take besides what they measure, in ns.
    fn unmeasured(&self) -> i64 {
        let mut all = [0; 101];
        for one in &mut all {
            let begun = Instant::now();
            let left = self.wait(1);
            *one = begun.elapsed().as_nanos() as i64 - (1 - left);
        }
        all.sort_unstable();
        all[all.len() / 2]
    }

    /// What it was made with.
    pub fn emulation(&self) -> Emulation {
        self.emulation
    }

    /// Performs `store`, which writes to `lines` lines, in the time that the emulated memory takes.
    fn run<T>(&self, lines: u64, store: impl FnOnce() -> T) -> T {
        match self.emulation {
            Emulation::None => store(),
            Emulation::Bandwidth { bytes_per_s } => {
                let cost_ns = ((lines * LINE) as f64 * 1e9 / bytes_per_s) as u64;
                let now_ns = self.now_ns();
                let mut free_at = self.free_at_ns.load(Ordering::Relaxed);
                let done_at = loop {
                    let done_at = free_at.max(now_ns) + cost_ns;
                    match self.free_at_ns.compare_exchange_weak(free_at, done_at, Ordering::Relaxed, Ordering::Relaxed)
                    {
                        Ok(_) => break done_at,
                        Err(seen) => free_at = seen,
                    }
                };
                let result = store();
                while self.now_ns() < done_at {
                    std::hint::spin_loop();
                }
                result
            }
            Emulation::Paper { latency_ns, .. } => {
                self.owe(|owed| *owed += (lines * latency_ns) as i64);
                store()
            }
        }
    }

    fn owe<T>(&self, change: impl FnOnce(&mut i64) -> T) -> T {
        OWED.with_borrow_mut(|all| {
            let place = all.iter().position(|(number, _)| *number == self.number).unwrap_or_else(|| {
                all.push((self.number, 0));
                all.len() - 1
            });
            change(&mut all[place].1)
        })
    }

    /// Waits for what this thread owes.
    fn pay(&self) {
        let Emulation::Paper { latency_ns, .. } = self.emulation else { return };
        let owed = self.owe(|owed| *owed);
        if owed <= 0 {
            return;
        }
        let left = self.wait(owed);
        // No more than what it takes to measure: not a time in which others had the processor.
        self.owe(|owed| *owed = left.max(-(latency_ns as i64)));
    }

    /// Waits its turn, then `owed` ns, and returns what of it is left: nothing, or less.
    fn wait(&self, owed: i64) -> i64 {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        // Threads in front may have been taken off the processor, so the queue gives way.
        while self.admitted.load(Ordering::Acquire) <= ticket {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let left = loop {
            let left = owed - self.unmeasured_ns - begun.elapsed().as_nanos() as i64;
            match left {
                ..=0 => break left,
                LONG_NS.. if self.is_crowded() => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        };
        self.admitted.fetch_add(1, Ordering::Release);
        left
    }

    /// Whether more threads wait than there are processors.
    fn is_crowded(&self) -> bool {
        let admitted = self.admitted.load(Ordering::Relaxed);
        self.tickets.load(Ordering::Relaxed) + self.writers > admitted + self.processors
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// A region of persistent memory that is slowed by an [`Emulator`].
///
/// Writes wait, or the fences after them; reads cost what they cost. The description says with which settings.
#[derive(Debug)]
pub struct EmulatedRegion {
    inner: PmemRegion,
    emulator: Arc<Emulator>,
    guarantees: Guarantees,
}

impl EmulatedRegion {
    /// Slows `inner` down. Whatever the memory is, the region says that it is emulated if the emulator does anything.
    pub fn new(inner: PmemRegion, emulator: Arc<Emulator>) -> EmulatedRegion {
        let mut guarantees = inner.guarantees().clone();
        if let Some(how) = emulator.emulation().describe() {
            guarantees.description = format!("{}, {how}", guarantees.description);
            guarantees.emulated = true;
        }
        EmulatedRegion { inner, emulator, guarantees }
    }
}

impl Region for EmulatedRegion {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        let lines = lines_of(offset, data.len() as u64);
        self.emulator.run(lines, || self.inner.write(site, offset, data))
    }

    fn write_from(&self, site: Site, offset: u64, source: &dyn Region, from: u64, len: usize) -> Result<()> {
        let lines = lines_of(offset, len as u64);
        self.emulator.run(lines, || self.inner.write_from(site, offset, source, from, len))
    }

    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        self.inner.address(offset, len)
    }

    fn fence(&self, site: Site) -> Result<()> {
        self.inner.fence(site)?;
        self.emulator.pay();
        Ok(())
    }

    /// The lock that follows waits for the stores, as a fence does.
    fn hand_over(&self, site: Site) -> Result<()> {
        self.inner.hand_over(site)?;
        self.emulator.pay();
        Ok(())
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.write(site, offset, data)?;
        self.fence(site)
    }

    fn set_len(&self, site: Site, len: u64) -> Result<()> {
        self.inner.set_len(site, len)
    }

    fn prefetch(&self, offset: u64) {
        self.inner.prefetch(offset);
    }

    fn prefetch_range(&self, offset: u64, len: usize) {
        self.inner.prefetch_range(offset, len);
    }
}

/// How many lines the range touches.
fn lines_of(offset: u64, len: u64) -> u64 {
    if len == 0 { 0 } else { (offset + len - 1) / LINE - offset / LINE + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_whole() {
        assert_eq!(lines_of(0, 0), 0);
        assert_eq!(lines_of(5, 0), 0);
        assert_eq!(lines_of(63, 1), 1);
        assert_eq!(lines_of(63, 2), 2);
        assert_eq!(lines_of(64, 64), 1);
        assert_eq!(lines_of(1, 4096), 65);
    }

    #[test]
    fn the_papers_settings_admit_nine_writers() {
        assert_eq!(writers(150, 4e9), 9);
        assert_eq!(writers(1, 1.0), 1);
        assert!(Emulation::PAPER.describe().expect("slows").contains("at most 9 threads"));
        assert_eq!(Emulation::None.describe(), None);
    }

    #[test]
    fn more_threads_than_writers_all_come_through() {
        let emulator = Emulator::new(Emulation::Paper { latency_ns: 64, bandwidth: 1e9 });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        emulator.run(2, || ());
                        emulator.pay();
                        // It has waited no more than one delay too long, as far as that counts.
                        assert!((-64..=0).contains(&emulator.owe(|owed| *owed)));
                    }
                });
            }
        });
        let fences = emulator.tickets.load(Ordering::Relaxed);
        assert_eq!(fences, 200);
        assert_eq!(emulator.admitted.load(Ordering::Relaxed), fences + 1);
    }

    /// A thread owes for what it wrote itself, to the emulator whose memory it was, until its next fence.
    #[test]
    fn what_is_written_is_paid_at_the_next_fence() {
        let [slow, other] =
            [1_000_000, 7].map(|latency_ns| Emulator::new(Emulation::Paper { latency_ns, bandwidth: 4e9 }));
        let owed = |emulator: &Emulator| emulator.owe(|owed| *owed);
        slow.run(1, || ());
        other.run(10, || ());
        assert_eq!((owed(&slow), owed(&other)), (1_000_000, 70));
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(owed(&slow), 0)).join().unwrap());
        let begun = Instant::now();
        slow.pay();
        let waited = begun.elapsed().as_nanos() as i64 + slow.unmeasured_ns;
        assert!(waited >= 1_000_000, "it waits no less than the delay");
        assert!(owed(&slow) <= 0);
        assert_eq!(owed(&other), 70, "of the other nothing was paid");
    }
}
