//! The page cache: blocks in memory, up to a number (invariants 5 to 8 of the engine).
//!
//! Shards have a lock each, which is never held while the medium reads or writes. A page that the medium reads or
//! writes is *busy*. Who wants one that is being read waits for it; one that is being written can be read and changed,
//! and is only not written a second time meanwhile.
//!
//! As a [`Region`] the cache is what mutators see: they read through it, and what they write to blocks of a running
//! group becomes fresh pages.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use wholly_media::disk::AlignedBuf;
use wholly_media::{Guarantees, Region, Result, Site};

use super::{STEAL, STEAL_FENCE};
use crate::format::{BLOCK, Lba};

/// Bytes of a block.
pub type Bytes = Box<[u8; BLOCK]>;

const SHARDS: usize = 64;
/// The fewest pages of a shard.
const FEWEST: usize = 4;
/// Larger reads do not fill the cache.
const LARGE: usize = 16 * BLOCK;
/// Blocks that are written at once.
const AT_ONCE: usize = 256;
/// Buffers of pages that nobody uses, at most, and how many are made together.
const MOST_UNUSED: usize = 256;
const MORE: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// As it is at home, or of a block that nobody reads.
    Clean,
    /// Of a block that a running group took.
    Fresh,
    /// Committed, and not at home.
    Dirty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    No,
    Read,
    Written,
}

struct Page {
    bytes: Bytes,
    state: State,
    /// Of a dirty page: the first record with content that is not at home. [`u64::MAX`]: that is being written.
    since: u64,
    busy: Busy,
    /// Raised by each change.
    version: u64,
    /// Whether it was used since the hand of the clock came by.
    used: bool,
}

#[derive(Default)]
struct Held {
    pages: HashMap<u64, Page>,
    /// Every page is in it once.
    clock: VecDeque<u64>,
}

impl Held {
    fn insert(&mut self, block: u64, bytes: Bytes, busy: Busy) -> &mut Page {
        self.clock.push_back(block);
        let page = Page { bytes, state: State::Clean, since: 0, busy, version: 0, used: true };
        self.pages.entry(block).or_insert(page)
    }
}

#[derive(Default)]
struct Shard {
    held: Mutex<Held>,
    /// A page is not busy any more.
    changed: Condvar,
}

/// See the module.
pub struct Pages {
    region: Arc<dyn Region>,
    shards: Vec<Shard>,
    /// The most pages of a shard.
    most: usize,
    /// Pages that are dirty.
    dirty: AtomicU64,
    /// Blocks with copies of the superblock.
    roots: [Lba; 3],
    /// What pages are copied to while they are written.
    spare: Spare,
    /// Of pages that are not used any more.
    unused: Unused,
}

/// Buffers of pages that are kept for the next ones, up to [`MOST_UNUSED`].
#[derive(Default)]
struct Unused(Mutex<Vec<Bytes>>);

impl Unused {
    /// What it holds is of an earlier page.
    fn take(&self) -> Bytes {
        let mut kept = self.0.lock().unwrap();
        kept.pop().unwrap_or_else(|| {
            // The allocator gets the memory of all by one call of the kernel, and keeps it. Else it makes a call
            // (`mprotect`) for each page by which a thread's heap grows.
            drop(std::hint::black_box(Vec::<u8>::with_capacity(MORE * (BLOCK + 64))));
            kept.extend((1..MORE).map(|_| Bytes::new([0; BLOCK])));
            Bytes::new([0; BLOCK])
        })
    }

    fn give(&self, bytes: Bytes) {
        let mut kept = self.0.lock().unwrap();
        if kept.len() < MOST_UNUSED {
            kept.push(bytes);
        }
    }
}

/// A buffer that is kept for the next write: new memory is slow.
#[derive(Default)]
pub struct Spare(Mutex<Option<AlignedBuf>>);

impl Spare {
    /// Calls `work` with so many bytes. What they hold is of an earlier write.
    pub fn with<T>(&self, len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let spare = self.0.lock().unwrap().take().filter(|spare| spare.len() >= len);
        let mut bytes = spare.unwrap_or_else(|| AlignedBuf::zeroed(len));
        let done = work(&mut bytes[..len]);
        *self.0.lock().unwrap() = Some(bytes);
        done
    }
}

/// What became of a page that is to be written.
enum Marked {
    No,
    Busy,
    /// Its bytes were copied; its version.
    Yes(u64),
}

impl Pages {
    /// Of a medium, with so many pages.
    pub fn new(region: Arc<dyn Region>, pages: usize, roots: [Lba; 3]) -> Pages {
        let shards = (pages / FEWEST).clamp(1, SHARDS);
        let most = (pages / shards).max(FEWEST);
        let shards = (0..shards).map(|_| Shard::default()).collect();
        Pages {
            region,
            shards,
            most,
            dirty: AtomicU64::new(0),
            roots,
            spare: Spare::default(),
            unused: Unused::default(),
        }
    }

    /// How many pages there may be.
    pub fn total(&self) -> u64 {
        (self.shards.len() * self.most) as u64
    }

    /// Pages that are dirty.
    pub fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Blocks with copies of the superblock.
    pub fn roots(&self) -> [Lba; 3] {
        self.roots
    }

    fn shard(&self, block: u64) -> &Shard {
        &self.shards[(block % self.shards.len() as u64) as usize]
    }

    fn set_state(&self, page: &mut Page, state: State) {
        match (page.state == State::Dirty, state == State::Dirty) {
            (false, true) => _ = self.dirty.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.dirty.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        page.state = state;
    }

    /// Begins to write a page: copies what it has.
    fn begin_write(page: &mut Page, to: &mut [u8]) -> u64 {
        to.copy_from_slice(&page.bytes[..]);
        (page.busy, page.since) = (Busy::Written, u64::MAX);
        page.version
    }

    /// It is written, unless that has failed. What changed meanwhile is not.
    fn end_write(&self, block: u64, version: u64, is_written: bool) {
        let shard = self.shard(block);
        let mut held = shard.held.lock().unwrap();
        let page = held.pages.get_mut(&block).expect("a page that is being written stays");
        page.busy = Busy::No;
        if is_written && page.version == version {
            self.set_state(page, State::Clean);
        }
        drop(held);
        shard.changed.notify_all();
    }

    /// Makes room for one more page, if one can be spared. The lock is given up where a page is written before.
    fn evict<'s>(&'s self, shard: &'s Shard, mut held: MutexGuard<'s, Held>) -> Result<MutexGuard<'s, Held>> {
        for _ in 0..3 * held.clock.len() {
            if held.pages.len() < self.most {
                break;
            }
            let Some(block) = held.clock.pop_front() else { break };
            let Some(page) = held.pages.get_mut(&block) else { continue };
            let was_used = std::mem::take(&mut page.used);
            if !was_used && page.busy == Busy::No && page.state == State::Clean {
                held.pages.remove(&block).into_iter().for_each(|page| self.unused.give(page.bytes));
                continue;
            }
            // Copies of the superblock are written in an order.
            let is_stolen =
                !was_used && page.busy == Busy::No && (page.state == State::Fresh || !self.roots.contains(&Lba(block)));
            let begun = is_stolen.then(|| {
                let mut bytes = AlignedBuf::zeroed(BLOCK);
                (Self::begin_write(page, &mut bytes), bytes)
            });
            held.clock.push_back(block);
            if let Some((version, bytes)) = begun {
                drop(held);
                let written = self.region.write(STEAL, Lba(block).byte(), &bytes);
                let written = written.and_then(|()| self.fence_own(STEAL_FENCE));
                self.end_write(block, version, written.is_ok());
                written?;
                held = shard.held.lock().unwrap();
            }
        }
        Ok(held)
    }

    /// On persistent memory the fence of another thread does not cover what this one has stored.
    pub fn fence_own(&self, site: Site) -> Result<()> {
        if self.region.guarantees().is_pmem() { self.region.fence(site) } else { Ok(()) }
    }

    /// Gives `work` the page of a block, which is read first unless it is going to be overwritten as a `whole`.
    fn with<T>(&self, block: u64, whole: bool, work: impl FnOnce(&mut Page) -> T) -> Result<T> {
        let shard = self.shard(block);
        let mut held = shard.held.lock().unwrap();
        let mut has_room = false;
        loop {
            match held.pages.get_mut(&block) {
                Some(page) if page.busy == Busy::Read => held = shard.changed.wait(held).unwrap(),
                Some(page) => {
                    page.used = true;
                    return Ok(work(page));
                }
                None if !has_room => {
                    held = self.evict(shard, held)?;
                    has_room = true;
                }
                None if whole => return Ok(work(held.insert(block, self.unused.take(), Busy::No))),
                None => {
                    held.insert(block, self.unused.take(), Busy::Read);
                    drop(held);
                    let mut bytes = self.unused.take();
                    let read = self.region.read(Lba(block).byte(), &mut bytes[..]);
                    held = shard.held.lock().unwrap();
                    let page = held.pages.get_mut(&block).expect("a page that is being read stays");
                    page.busy = Busy::No;
                    self.unused.give(std::mem::replace(&mut page.bytes, bytes));
                    if read.is_err() {
                        held.pages.remove(&block);
                    }
                    shard.changed.notify_all();
                    read?;
                }
            }
        }
    }

    /// A copy of a block that nobody else changes: committed, or of the running group that took it. It makes no room
    /// for a page: that could wait for others to be written.
    ///
    /// # Errors
    /// The medium's.
    pub fn copy(&self, block: u64) -> Result<Bytes> {
        let held = self.shard(block).held.lock().unwrap();
        if let Some(page) = held.pages.get(&block).filter(|page| page.busy != Busy::Read) {
            let mut bytes = self.unused.take();
            bytes.copy_from_slice(&page.bytes[..]);
            return Ok(bytes);
        }
        drop(held);
        let mut bytes = self.unused.take();
        self.region.read(Lba(block).byte(), &mut bytes[..])?;
        Ok(bytes)
    }

    /// Whether a block has a fresh page: it was not stolen.
    pub fn is_fresh(&self, block: u64) -> bool {
        self.shard(block).held.lock().unwrap().pages.get(&block).is_some_and(|page| page.state == State::Fresh)
    }

    /// A block has these bytes from now on: those of a committed record. Waits for no write.
    pub fn publish(&self, block: u64, bytes: Bytes, sequence: u64) {
        let shard = self.shard(block);
        let mut held = shard.held.lock().unwrap();
        while held.pages.get(&block).is_some_and(|page| page.busy == Busy::Read) {
            held = shard.changed.wait(held).unwrap();
        }
        let page = match held.pages.get_mut(&block) {
            Some(page) => {
                self.unused.give(std::mem::replace(&mut page.bytes, bytes));
                page
            }
            None => held.insert(block, bytes, Busy::No),
        };
        page.version += 1;
        page.since = if page.state == State::Dirty { page.since.min(sequence) } else { sequence };
        self.set_state(page, State::Dirty);
    }

    /// Nobody reads a block any more: what its page has is not written.
    pub fn discard(&self, block: u64) {
        let mut held = self.shard(block).held.lock().unwrap();
        if let Some(page) = held.pages.get_mut(&block) {
            page.version += 1;
            self.set_state(page, State::Clean);
        }
    }

    /// Blocks whose pages are dirty, with content of a record before this one, or are being written.
    pub fn dirty_before(&self, sequence: u64) -> Vec<u64> {
        let mut blocks = Vec::new();
        for shard in &self.shards {
            let held = shard.held.lock().unwrap();
            let is_due = |page: &Page| page.state == State::Dirty && page.since < sequence;
            let due = held.pages.iter().filter(|(_, page)| is_due(page) || page.busy == Busy::Written);
            blocks.extend(due.map(|(block, _)| *block));
        }
        blocks.sort_unstable();
        blocks
    }

    /// Writes dirty pages with content of a record before this one; `blocks` ascend. Pages that are being written are
    /// waited for.
    ///
    /// # Errors
    /// The medium's.
    pub fn write_dirty(&self, site: Site, blocks: &[u64], before: u64) -> Result<()> {
        self.write_selected(site, blocks, |page| page.state == State::Dirty && page.since < before)
    }

    /// Writes fresh pages; `blocks` ascend. Pages that are being written are waited for.
    ///
    /// # Errors
    /// The medium's.
    pub fn write_fresh(&self, site: Site, blocks: &[u64]) -> Result<()> {
        self.write_selected(site, blocks, |page| page.state == State::Fresh)
    }

    fn write_selected(&self, site: Site, blocks: &[u64], select: impl Fn(&Page) -> bool) -> Result<()> {
        self.spare.with(blocks.len().min(AT_ONCE) * BLOCK, |bytes| self.write_selected_by(site, blocks, select, bytes))
    }

    /// The same. Pages are copied to `bytes` first.
    fn write_selected_by(
        &self,
        site: Site,
        blocks: &[u64],
        select: impl Fn(&Page) -> bool,
        bytes: &mut [u8],
    ) -> Result<()> {
        let mut run: Vec<(u64, u64)> = Vec::new();
        for &block in blocks {
            if run.last().is_some_and(|(last, _)| last + 1 != block) || run.len() == AT_ONCE {
                self.write_run(site, &mut run, bytes)?;
            }
            loop {
                let to = run.len() * BLOCK..(run.len() + 1) * BLOCK;
                // Who waits keeps no other page busy: no two wait for each other.
                match self.mark(block, &select, &mut bytes[to], run.is_empty()) {
                    Marked::Yes(version) => run.push((block, version)),
                    Marked::No => {}
                    Marked::Busy => {
                        self.write_run(site, &mut run, bytes)?;
                        continue;
                    }
                }
                break;
            }
        }
        self.write_run(site, &mut run, bytes)
    }

    fn mark(&self, block: u64, select: &impl Fn(&Page) -> bool, to: &mut [u8], waits: bool) -> Marked {
        let shard = self.shard(block);
        let mut held = shard.held.lock().unwrap();
        loop {
            match held.pages.get_mut(&block) {
                Some(page) if page.busy == Busy::Written && waits => held = shard.changed.wait(held).unwrap(),
                Some(page) if page.busy == Busy::Written => return Marked::Busy,
                Some(page) if page.busy == Busy::No && select(page) => {
                    return Marked::Yes(Self::begin_write(page, to));
                }
                _ => return Marked::No,
            }
        }
    }

    fn write_run(&self, site: Site, run: &mut Vec<(u64, u64)>, bytes: &[u8]) -> Result<()> {
        let Some((first, _)) = run.first() else { return Ok(()) };
        let written = self.region.write(site, Lba(*first).byte(), &bytes[..run.len() * BLOCK]);
        run.drain(..).for_each(|(block, version)| self.end_write(block, version, written.is_ok()));
        written
    }
}

/// Calls `each` with the pieces of a range: block, offset in it, and the range of bytes.
fn pieces(at: u64, len: usize, mut each: impl FnMut(u64, usize, Range<usize>) -> Result<()>) -> Result<()> {
    let mut done = 0;
    while done < len {
        let (block, offset) = ((at + done as u64) / BLOCK as u64, ((at + done as u64) % BLOCK as u64) as usize);
        let part = (BLOCK - offset).min(len - done);
        each(block, offset, done..done + part)?;
        done += part;
    }
    Ok(())
}

impl Region for Pages {
    fn guarantees(&self) -> &Guarantees {
        self.region.guarantees()
    }

    fn len(&self) -> u64 {
        self.region.len()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len();
        if len < LARGE {
            return pieces(at, len, |block, offset, range| {
                let part = &mut buf[range];
                self.with(block, false, |page| part.copy_from_slice(&page.bytes[offset..offset + part.len()]))
            });
        }
        // A page that is not here is at home, and nobody changes what is being read: so first those that are here.
        let mut missing: Vec<Range<usize>> = Vec::new();
        pieces(at, len, |block, offset, range| {
            let held = self.shard(block).held.lock().unwrap();
            match (held.pages.get(&block).filter(|page| page.busy != Busy::Read), missing.last_mut()) {
                (Some(page), _) => buf[range.clone()].copy_from_slice(&page.bytes[offset..offset + range.len()]),
                (None, Some(last)) if last.end == range.start => last.end = range.end,
                (None, _) => missing.push(range),
            }
            Ok(())
        })?;
        missing.into_iter().try_for_each(|range| self.region.read(at + range.start as u64, &mut buf[range]))
    }

    /// Of a running group, to blocks that nobody else can reach.
    fn write(&self, _site: Site, at: u64, data: &[u8]) -> Result<()> {
        pieces(at, data.len(), |block, offset, range| {
            let part = &data[range];
            self.with(block, part.len() == BLOCK, |page| {
                page.bytes[offset..offset + part.len()].copy_from_slice(part);
                page.version += 1;
                self.set_state(page, State::Fresh);
            })
        })
    }

    fn fence(&self, _site: Site) -> Result<()> {
        unreachable!("what is written to the cache is ordered by commits")
    }

    fn write_through(&self, _site: Site, _at: u64, _data: &[u8]) -> Result<()> {
        unreachable!("what is written to the cache is ordered by commits")
    }

    fn set_len(&self, _site: Site, _len: u64) -> Result<()> {
        unreachable!("a volume that is mounted keeps its length")
    }
}
