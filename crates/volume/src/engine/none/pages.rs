//! Blocks of a disk in memory, up to a number of bytes. Shards have a lock each, which is held over a read or a write
//! of one block. Callers see to it that nobody writes a range that another reads.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sync::Mutex;
use wholly_error::Result;
use wholly_media::Region;

use super::PAGE;
use crate::format::BLOCK;

const SHARDS: u64 = 64;
/// Larger reads do not fill the cache.
const LARGE: usize = 16 * BLOCK;
/// Blocks that are written back at once.
const BATCH: usize = 256;

struct Page {
    bytes: Box<[u8; BLOCK]>,
    dirty: bool,
    used: bool,
}

#[derive(Default)]
struct Shard {
    pages: HashMap<u64, Page>,
    /// Every page is in it once: the hand of a clock.
    clock: VecDeque<u64>,
}

/// See the module.
pub(super) struct Pages {
    region: Arc<dyn Region>,
    shards: Vec<Mutex<Shard>>,
    /// The most pages of a shard.
    most: usize,
}

impl Pages {
    pub fn new(region: Arc<dyn Region>, bytes: usize) -> Self {
        let most = (bytes / BLOCK / SHARDS as usize).max(4);
        Pages { region, shards: (0..SHARDS).map(|_| Mutex::default()).collect(), most }
    }

    fn shard(&self, block: u64) -> &Mutex<Shard> {
        &self.shards[(block % SHARDS) as usize]
    }

    /// Makes room for one more page.
    fn evict(&self, shard: &mut Shard) -> Result<()> {
        while shard.pages.len() >= self.most {
            let Some(block) = shard.clock.pop_front() else { return Ok(()) };
            let Some(page) = shard.pages.get_mut(&block) else { continue };
            if page.used {
                page.used = false;
                shard.clock.push_back(block);
                continue;
            }
            if page.dirty {
                self.region.write(PAGE, block * BLOCK as u64, &page.bytes[..])?;
            }
            shard.pages.remove(&block);
        }
        Ok(())
    }

    /// Gives `work` the page of a block, which is read first if `whole` is not going to be overwritten.
    fn with<T>(&self, block: u64, whole: bool, work: impl FnOnce(&mut Page) -> T) -> Result<T> {
        let mut shard = self.shard(block).lock().unwrap();
        if !shard.pages.contains_key(&block) {
            self.evict(&mut shard)?;
            let mut bytes = Box::new([0; BLOCK]);
            if !whole {
                self.region.read(block * BLOCK as u64, &mut bytes[..])?;
            }
            shard.pages.insert(block, Page { bytes, dirty: false, used: false });
            shard.clock.push_back(block);
        }
        let page = shard.pages.get_mut(&block).expect("it is there now");
        page.used = true;
        Ok(work(page))
    }

    /// Calls `each` with the pieces of a range: block, offset in it, and the range of bytes.
    fn pieces(
        at: u64,
        len: usize,
        mut each: impl FnMut(u64, usize, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < len {
            let (block, offset) = ((at + done as u64) / BLOCK as u64, ((at + done as u64) % BLOCK as u64) as usize);
            let part = (BLOCK - offset).min(len - done);
            each(block, offset, done..done + part)?;
            done += part;
        }
        Ok(())
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        Self::pieces(at, bytes.len(), |block, offset, range| {
            let part = &bytes[range];
            self.with(block, part.len() == BLOCK, |page| {
                page.bytes[offset..offset + part.len()].copy_from_slice(part);
                page.dirty = true;
            })
        })
    }

    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        if buf.len() < LARGE {
            let len = buf.len();
            return Self::pieces(at, len, |block, offset, range| {
                let part = &mut buf[range];
                self.with(block, false, |page| part.copy_from_slice(&page.bytes[offset..offset + part.len()]))
            });
        }
        // A page that is not here is on the disk, and nobody changes it meanwhile: so first those that are here.
        let len = buf.len();
        let mut missing: Vec<std::ops::Range<usize>> = Vec::new();
        Self::pieces(at, len, |block, offset, range| {
            let shard = self.shard(block).lock().unwrap();
            match (shard.pages.get(&block), missing.last_mut()) {
                (Some(page), _) => buf[range.clone()].copy_from_slice(&page.bytes[offset..offset + range.len()]),
                (None, Some(last)) if last.end == range.start => last.end = range.end,
                (None, _) => missing.push(range),
            }
            Ok(())
        })?;
        missing.into_iter().try_for_each(|range| {
            let from = at + range.start as u64;
            Ok(self.region.read(from, &mut buf[range])?)
        })
    }

    /// Writes all dirty pages, in the order of blocks and in runs.
    pub fn write_back(&self) -> Result<()> {
        let mut dirty: Vec<u64> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap();
            dirty.extend(shard.pages.iter().filter(|(_, page)| page.dirty).map(|(block, _)| *block));
        }
        dirty.sort_unstable();
        for run in dirty.chunk_by(|one, next| one + 1 == *next).flat_map(|run| run.chunks(BATCH)) {
            // In the order of shards, so that two that do this never wait for each other.
            let mut shards: Vec<u64> = run.iter().map(|block| block % SHARDS).collect();
            shards.sort_unstable();
            shards.dedup();
            let mut held: HashMap<u64, _> =
                shards.into_iter().map(|shard| (shard, self.shards[shard as usize].lock().unwrap())).collect();
            let mut bytes = wholly_media::disk::AlignedBuf::zeroed(run.len() * BLOCK);
            let mut all = true;
            for (block, to) in run.iter().zip(bytes.chunks_mut(BLOCK)) {
                match held[&(block % SHARDS)].pages.get(block) {
                    Some(page) => to.copy_from_slice(&page.bytes[..]),
                    // It was evicted, and so written, meanwhile.
                    None => all = false,
                }
            }
            let pages = || run.iter().zip(bytes.chunks(BLOCK));
            if all {
                self.region.write(PAGE, run[0] * BLOCK as u64, &bytes)?;
            }
            for (block, bytes) in pages() {
                if let Some(page) = held.get_mut(&(block % SHARDS)).and_then(|shard| shard.pages.get_mut(block)) {
                    if !all {
                        self.region.write(PAGE, block * BLOCK as u64, bytes)?;
                    }
                    page.dirty = false;
                }
            }
        }
        Ok(())
    }
}
