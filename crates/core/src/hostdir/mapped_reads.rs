//! Who reads home files through mappings, so that no file is cut meanwhile: a load of what was cut off is a `SIGBUS`.
//!
//! # Invariants
//!
//! 1. A thread notes the file in its slot, passes a light fence, and looks whether the file is being cut; who cuts a
//!    file says so, passes a heavy fence, and looks at the slots. One of the two sees the other: the reader then reads
//!    by a call of the host, or the cut waits.
//! 2. A slot belongs to one thread for ever. Threads that came when all slots were given are counted at the file, by
//!    locked instructions; so are all where the kernel makes no fences for us.
//!
//! A read costs stores and loads of a line that its thread has for itself. A locked instruction would cost more than
//! the copy of a small read: it waits for the loads before it, so that reads of a loop do not overlap.

use sync::{
    AtomicU32, AtomicU64, Backoff, Ordering, fences_are_light, heavy_fence, known_thread_token, lightest_fence,
    thread_token,
};

/// Threads that have a slot.
const SLOTS: usize = 64;

/// Set in [`Cuts::word`] while the file is being cut. The rest counts readers without a slot.
const CUTTING: u32 = 1 << 31;

/// A word that shares its cache line with no other.
#[repr(align(64))]
struct Line(AtomicU64);

/// What the threads that use a store read through mappings.
pub(crate) struct MappedReads {
    /// The file that is being read, by its number and 1 more.
    slots: Box<[Line]>,
}

/// A thread that has a slot reads a file through a mapping while this lives. No cut begins meanwhile.
pub(crate) struct Reading<'a>(&'a AtomicU64);

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Whether a file is being cut.
pub(crate) struct Cuts {
    word: AtomicU32,
}

impl Cuts {
    pub fn new() -> Self {
        Cuts { word: AtomicU32::new(0) }
    }
}

impl MappedReads {
    pub fn new() -> Self {
        sync::prepare_fences();
        let slots = if fences_are_light() { SLOTS } else { 0 };
        MappedReads { slots: (0..slots).map(|_| Line(AtomicU64::new(0))).collect() }
    }

    /// The caller is about to read the file with this number through a mapping. `None` if it is being cut, or the
    /// thread has no slot, or has not asked for its [token](thread_token) yet.
    #[inline]
    pub fn begin(&self, number: u32, cuts: &Cuts) -> Option<Reading<'_>> {
        let Line(slot) = self.slots.get(known_thread_token() as usize)?;
        slot.store(u64::from(number) + 1, Ordering::Relaxed);
        let reading = Reading(slot);
        lightest_fence();
        (cuts.word.load(Ordering::Acquire) & CUTTING == 0).then_some(reading)
    }

    /// Runs `read`, which reads the file with this number through a mapping, unless the file is being cut. No cut
    /// begins meanwhile.
    pub fn read<T>(&self, number: u32, cuts: &Cuts, read: impl FnOnce() -> T) -> Option<T> {
        thread_token();
        match self.begin(number, cuts) {
            Some(_reading) => Some(read()),
            None => read_counted(cuts, read),
        }
    }

    /// Runs `cut`, which makes the file with this number shorter, while nobody reads it through a mapping. Of one file
    /// there is one cut at a time.
    pub fn without<T>(&self, number: u32, cuts: &Cuts, cut: impl FnOnce() -> T) -> T {
        cuts.word.fetch_or(CUTTING, Ordering::AcqRel);
        heavy_fence();
        let mut backoff = Backoff::new();
        for Line(slot) in self.slots.iter() {
            while slot.load(Ordering::Acquire) == u64::from(number) + 1 {
                backoff.wait();
            }
        }
        while cuts.word.load(Ordering::Acquire) != CUTTING {
            backoff.wait();
        }
        let result = cut();
        cuts.word.fetch_and(!CUTTING, Ordering::Release);
        result
    }
}

/// The same of a thread without a slot.
#[cold]
fn read_counted<T>(cuts: &Cuts, read: impl FnOnce() -> T) -> Option<T> {
    let entered = cuts.word.fetch_add(1, Ordering::Acquire);
    let result = (entered & CUTTING == 0).then(read);
    cuts.word.fetch_sub(1, Ordering::Release);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_cut_only_while_nobody_reads_it() {
        let (reads, cuts, others) = (MappedReads::new(), Cuts::new(), Cuts::new());
        reads.without(7, &cuts, || {
            assert_eq!(reads.read(7, &cuts, || ()), None, "it is being cut");
            assert_eq!(read_counted(&cuts, || ()), None);
            assert_eq!(reads.read(8, &others, || ()), Some(()), "another file");
        });
        assert_eq!((reads.read(7, &cuts, || ()), read_counted(&cuts, || ())), (Some(()), Some(())));
    }

    /// A cut that is told to begin while a reader is inside begins when the reader has left.
    #[test]
    fn a_cut_waits_for_readers() {
        let (reads, cuts) = (MappedReads::new(), Cuts::new());
        for has_slot in [true, false] {
            let has_left = AtomicU32::new(0);
            std::thread::scope(|scope| {
                let inside = || {
                    scope.spawn(|| reads.without(7, &cuts, || assert_eq!(has_left.load(Ordering::Acquire), 1)));
                    // It has said that it wants to cut: nobody else comes in.
                    while cuts.word.load(Ordering::Acquire) & CUTTING == 0 {
                        std::thread::yield_now();
                    }
                    has_left.store(1, Ordering::Release);
                };
                let entered = if has_slot { reads.read(7, &cuts, inside) } else { read_counted(&cuts, inside) };
                assert_eq!(entered, Some(()));
            });
        }
    }
}
