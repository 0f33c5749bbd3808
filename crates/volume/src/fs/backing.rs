//! Blocks of an image that take no space of the host yet.
//!
//! An image on tmpfs, or one that was copied, has holes. A store to a hole takes space of the host file system, which
//! may have none: a commit must not meet that, and in memory it is a `SIGBUS`. So the allocator counts free blocks in
//! holes as used until the host has set space aside for them, piece by piece, when blocks are reserved: the call that
//! needs them gets `ENOSPC`, and another try may find space. An image that [`Volume::format`](crate::Volume::format)
//! has made on a disk has its space: to the host's calls it may look like a hole until it is written, and asking again
//! changes nothing.
//!
//! # Invariants
//!
//! 1. A free block in a hole that the host has set nothing aside for is used in the allocator, and in one of the runs.
//! 2. What is saved at an unmount does not know of this: such blocks are free there.
//! 3. Blocks in use have space: the mount takes it for those in holes, and fails without it. A copy may have left out
//!    the log, and content of zeros.
//! 4. Where a block has space, so has its line in the table of heads. Blocks of the table have none else, and count as
//!    used.

use std::sync::Arc;

use sync::{AtomicU64, Mutex, Ordering};
use wholly_error::{Error, Result};
use wholly_media::Region;

use super::Core;
use super::space::Space;
use crate::format::head::HeadTable;
use crate::format::log::LINE;
use crate::format::{BLOCK, Lba, Run};

/// Blocks that the host is asked for at a time, and if it has not so many.
const PIECES: [u64; 2] = [256, 16];

/// See the module.
#[derive(Default)]
pub struct Backing {
    /// Where the space comes from: nothing is missing without it.
    region: Option<Arc<dyn Region>>,
    heads: Option<HeadTable>,
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
    pub fn find(region: &Arc<dyn Region>, blocks: &Space, heads: Option<HeadTable>) -> Result<Backing> {
        let block = BLOCK as u64;
        let (mut runs, mut used) = (Vec::new(), Vec::new());
        let holes = region.hand_over_holes();
        for hole in &holes {
            let (mut at, end) = (hole.start / block, hole.end.div_ceil(block).min(blocks.units()));
            blocks.withhold(at, end, &mut |first, count| {
                used.push((at, first));
                runs.push(Run { start: Lba(first), count });
                at = first + count;
            });
            used.push((at, end));
        }
        let of_table = heads.map_or((0, 0), |HeadTable(run)| (run.start.0, run.start.0 + run.count));
        let outside = |(first, end): (u64, u64)| [(first, end.min(of_table.0)), (first.max(of_table.1), end)];
        let mut wanted: Vec<_> =
            used.into_iter().flat_map(outside).map(|(from, to)| (from * block, to * block)).collect();
        if let Some(heads) = heads.filter(|_| !holes.is_empty()) {
            let ends = runs.iter().map(|run| run.start.0).chain([blocks.units()]);
            let starts = [0].into_iter().chain(runs.iter().map(|run| run.start.0 + run.count));
            let with_space = starts.zip(ends).filter(|(first, end)| first < end);
            wanted.extend(with_space.map(|(first, end)| (heads.at(Lba(first)), heads.at(Lba(end - 1)) + LINE as u64)));
        }
        for (from, to) in wanted.into_iter().filter(|(from, to)| from < to) {
            if !region.allocate(from, to - from) {
                let bytes = to - from;
                let what = format!("{bytes} bytes for what is in use of the volume, on the file system of its image");
                return Err(Error::NoSpace(what));
            }
        }
        runs.reverse();
        let count = AtomicU64::new(runs.iter().map(|run| run.count).sum());
        Ok(Backing { region: Some(region.clone()), heads, runs: Mutex::new(runs), count })
    }

    /// Has the host set space aside for blocks and their heads.
    fn take(&self, region: &dyn Region, first: Lba, count: u64) -> bool {
        let of_heads = || self.heads.is_none_or(|heads| region.allocate(heads.at(first), count * LINE as u64));
        region.allocate(first.byte(), count * BLOCK as u64) && of_heads()
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
            let Some(piece) = pieces.into_iter().find(|piece| self.backing.take(&**region, run.start, *piece)) else {
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
        let backing = Backing::find(&region, &blocks, None).expect("there is space");
        assert_eq!((blocks.free(), backing.missing()), (0, 799));
        let mut saved = blocks.save();
        backing.save(&mut saved);
        assert!(saved == before, "what is saved knows nothing of it");
    }
}
