//! Blocks of an image that take no space of the host yet.
//!
//! An image that was copied may have holes. A store to a hole takes space of the host file system, which may have none:
//! a commit must not meet that. So the allocator counts free blocks in holes as used until the host has set space aside
//! for them, piece by piece, when blocks are reserved: the call that needs them gets `ENOSPC`, and another try may find
//! space. An image that [`Volume::format`](crate::Volume::format) has made has its space: to the host's calls it may
//! look like a hole until it is written, and asking again changes nothing.
//!
//! # Invariants
//!
//! 1. A free block in a hole that the host has set nothing aside for is used in the allocator, and in one of the runs.
//! 2. What is saved at an unmount does not know of this: such blocks are free there.
//! 3. Blocks in use have space: the mount takes it for those in holes, and fails without it. A copy may have left out
//!    the log, and content of zeros.
//!
//! As persistent memory an image has space for all of it when it is open: a store to memory cannot be refused.

use std::sync::Arc;

use sync::{AtomicU64, Mutex, Ordering};
use wholly_error::{Error, Result};
use wholly_media::Region;

use super::Core;
use super::space::Space;
use crate::format::{BLOCK, Lba, Run};

/// Blocks that the host is asked for at a time, and if it has not so many.
const PIECES: [u64; 2] = [256, 16];

/// See the module.
#[derive(Default)]
pub struct Backing {
    /// Where the space comes from: nothing is missing without it.
    region: Option<Arc<dyn Region>>,
    /// The first block last.
    runs: Mutex<Vec<Run>>,
    /// All blocks of them.
    count: AtomicU64,
}

impl Backing {
    /// Takes the free blocks in holes out of an allocator, and space for all others.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the host has none for what is in use.
    pub fn find(region: &Arc<dyn Region>, blocks: &Space) -> Result<Backing> {
        let block = BLOCK as u64;
        let (mut runs, mut used) = (Vec::new(), Vec::new());
        for hole in region.holes() {
            let (mut at, end) = (hole.start / block, hole.end.div_ceil(block).min(blocks.units()));
            blocks.withhold(at, end, &mut |first, count| {
                used.push((at, first));
                runs.push(Run { start: Lba(first), count });
                at = first + count;
            });
            used.push((at, end));
        }
        for (first, end) in used.into_iter().filter(|(first, end)| first < end) {
            let bytes = (end - first) * block;
            if !region.allocate(first * block, bytes) {
                let what = format!("{bytes} bytes for what is in use of the volume, on the file system of its image");
                return Err(Error::NoSpace(what));
            }
        }
        runs.reverse();
        let count = AtomicU64::new(runs.iter().map(|run| run.count).sum());
        Ok(Backing { region: Some(region.clone()), runs: Mutex::new(runs), count })
    }

    /// Blocks for which the host has set nothing aside.
    #[inline]
    pub fn missing(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Marks them as free in what an allocator saves.
    pub fn save(&self, bits: &mut [u8]) {
        for run in self.runs.lock().unwrap().iter() {
            for unit in run.start.0..run.start.0 + run.count {
                bits[unit as usize / 8] &= !(1 << (unit % 8));
            }
        }
    }
}

impl Core {
    /// Has the host set space aside for so many blocks more, which become free. Returns whether it did for any.
    pub fn back(&self, wanted: u64) -> bool {
        if self.backing.missing() == 0 {
            return false;
        }
        let Some(region) = &self.backing.region else { return false };
        let mut runs = self.backing.runs.lock().unwrap();
        let mut given = 0;
        while given < wanted
            && let Some(run) = runs.last_mut()
        {
            let pieces = PIECES.iter().map(|piece| run.count.min(*piece));
            let Some(piece) = pieces.into_iter().find(|piece| region.allocate(run.start.byte(), piece * BLOCK as u64))
            else {
                break;
            };
            self.blocks.give(run.start.0, piece);
            self.backing.count.fetch_sub(piece, Ordering::Relaxed);
            *run = Run { start: Lba(run.start.0 + piece), count: run.count - piece };
            if run.count == 0 {
                runs.pop();
            }
            given += piece;
        }
        given > 0
    }
}

#[cfg(test)]
mod tests {
    use wholly_media::disk::DiskRegion;

    use super::*;

    #[test]
    fn what_is_free_in_holes_waits() {
        let file = rustix::fs::memfd_create("sparse", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&file, 1024 * BLOCK as u64).expect("its length");
        let region: Arc<dyn Region> = Arc::new(DiskRegion::open(file, "sparse").expect("a region"));
        let blocks = Space::all_used(1024);
        (100..900).filter(|block| *block != 500).for_each(|block| assert!(blocks.set(block, false)));
        blocks.count();
        let before = blocks.save();
        let backing = Backing::find(&region, &blocks).expect("there is space");
        assert_eq!((blocks.free(), backing.missing()), (0, 799));
        let mut saved = blocks.save();
        backing.save(&mut saved);
        assert!(saved == before, "what is saved knows nothing of it");
    }
}
