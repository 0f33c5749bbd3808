//! A page cache over transactions of blocks. It knows no engine.
//!
//! # Terms
//!
//! - *page*: a block in memory, counted: of one that a transaction has written, there is one in memory, which the cache
//!   and the transaction share. *Newest*: as the last ordered transaction has left it, wherever that is by now.
//!   *Fresh*: of a block that a running group took, and that nobody else can reach. *Sent*: fresh, and the group's
//!   transaction has it.
//!
//! # Invariants
//!
//! 1. A page is the newest version of its block, or fresh, or sent. Whoever orders a transaction puts its pages here
//!    after that, or has the older ones forgotten, and before anybody makes the next version of them. Before that would
//!    be wrong: a page could leave, and its old version be read again.
//! 2. Fresh pages stay. All others can leave at any time: the transactions have them, or the medium does. A page that
//!    was sent and has left is read by its transaction's number until that is ordered.
//! 3. No lock is held while the medium reads. A page that is put here meanwhile is newer than what is read.
//! 4. The cache has a bound; it has more pages only as far as fresh ones, and those that are being read, are more.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use wholly_blocks::{Page, Runs, TxBlocks, Txid};
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Guarantees, Region, Site};

use crate::format::{BLOCK, Lba};

const SHARDS: usize = 64;
/// The fewest pages of a shard.
const FEWEST: usize = 4;
/// Larger reads do not fill the cache.
const LARGE: usize = 16 * BLOCK;

struct Slot {
    page: Page,
    is_fresh: bool,
    /// Who is reading it: then it has no content yet.
    reader: Option<u64>,
    /// Whether it was used since the hand of the clock came by.
    used: bool,
}

#[derive(Default)]
struct Held {
    slots: HashMap<u64, Slot>,
    /// Every block is in it once.
    clock: VecDeque<u64>,
    readers: u64,
}

impl Held {
    fn insert(&mut self, block: u64, page: Page, reader: Option<u64>) -> &mut Slot {
        let slot = Slot { page, is_fresh: false, reader, used: true };
        self.clock.push_back(block);
        self.slots.entry(block).insert_entry(slot).into_mut()
    }

    fn remove(&mut self, block: u64) -> Option<Slot> {
        let slot = self.slots.remove(&block)?;
        self.clock.retain(|other| *other != block);
        Some(slot)
    }

    /// Makes room for one more page, if one can be spared.
    fn evict(&mut self, most: usize) {
        for _ in 0..3 * self.clock.len() {
            if self.slots.len() < most {
                break;
            }
            let Some(block) = self.clock.pop_front() else { break };
            let Some(slot) = self.slots.get_mut(&block) else { continue };
            if std::mem::take(&mut slot.used) || slot.is_fresh || slot.reader.is_some() {
                self.clock.push_back(block);
            } else {
                self.slots.remove(&block);
            }
        }
    }
}

#[derive(Default)]
struct Shard {
    held: Mutex<Held>,
    /// A page was read.
    changed: Condvar,
}

/// See the module.
pub struct PageCache {
    blocks: Arc<dyn TxBlocks>,
    plain: Arc<dyn Region>,
    shards: Vec<Shard>,
    /// The most pages of a shard.
    most: usize,
    fresh: AtomicU64,
    sent: Mutex<Runs<Txid>>,
}

impl PageCache {
    /// With so many pages.
    pub fn new(blocks: Arc<dyn TxBlocks>, pages: usize) -> PageCache {
        let shards = (pages / FEWEST).clamp(1, SHARDS);
        let most = (pages / shards).max(FEWEST);
        let shards = (0..shards).map(|_| Shard::default()).collect();
        let plain = blocks.plain();
        PageCache { blocks, plain, shards, most, fresh: AtomicU64::new(0), sent: Mutex::default() }
    }

    /// How many pages there may be.
    pub fn total(&self) -> u64 {
        (self.shards.len() * self.most) as u64
    }

    /// How many are fresh.
    pub fn fresh(&self) -> u64 {
        self.fresh.load(Ordering::Relaxed)
    }

    fn shard(&self, block: u64) -> &Shard {
        &self.shards[(block % self.shards.len() as u64) as usize]
    }

    fn set_fresh(&self, slot: &mut Slot, is_fresh: bool) {
        match (slot.is_fresh, is_fresh) {
            (false, true) => _ = self.fresh.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.fresh.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        slot.is_fresh = is_fresh;
    }

    /// The transaction that has a block which was sent.
    fn sender(&self, blocks: &Range<u64>) -> Option<Txid> {
        self.sent.lock().unwrap().within(blocks.clone()).next().map(|(_, tx)| tx)
    }

    fn read_block(&self, block: u64) -> Result<Page> {
        let mut bytes = Arc::new([0; BLOCK]);
        let to = Arc::get_mut(&mut bytes).expect("nobody else has it");
        let tx = self.sender(&(block..block + 1));
        match self.blocks.read(tx, Lba(block), to) {
            // It was ordered meanwhile.
            Err(Error::Invalid(_)) if tx.is_some() => self.blocks.read(None, Lba(block), to)?,
            read => read?,
        }
        Ok(Page::from(bytes))
    }

    /// Gives `work` the page of a block, which is read first unless it is going to be overwritten as a `whole`.
    fn with<T>(&self, block: u64, whole: bool, work: impl FnOnce(&mut Slot) -> T) -> Result<T> {
        let shard = self.shard(block);
        let mut held: MutexGuard<'_, Held> = shard.held.lock().unwrap();
        loop {
            match held.slots.get_mut(&block) {
                Some(slot) if slot.reader.is_some() => held = shard.changed.wait(held).unwrap(),
                Some(slot) => {
                    slot.used = true;
                    return Ok(work(slot));
                }
                None => {
                    held.evict(self.most);
                    if whole {
                        return Ok(work(held.insert(block, Page::zeros(), None)));
                    }
                    held.readers += 1;
                    let reader = held.readers;
                    held.insert(block, Page::zeros(), Some(reader));
                    drop(held);
                    let read = self.read_block(block);
                    held = shard.held.lock().unwrap();
                    let own = held.slots.get_mut(&block).filter(|slot| slot.reader == Some(reader));
                    match (own, read) {
                        (Some(slot), Ok(page)) => (slot.page, slot.reader) = (page, None),
                        (own, Err(error)) => {
                            if own.is_some() {
                                held.remove(block);
                            }
                            shard.changed.notify_all();
                            return Err(error);
                        }
                        // Somebody has put a newer one there.
                        (None, Ok(_)) => {}
                    }
                    shard.changed.notify_all();
                }
            }
        }
    }

    /// The page of a block.
    ///
    /// # Errors
    /// The medium's.
    pub fn get(&self, block: u64) -> Result<Page> {
        self.with(block, false, |slot| slot.page.clone())
    }

    /// A block has this page from now on. Waits for nothing.
    pub fn put(&self, block: u64, page: Page) {
        let shard = self.shard(block);
        let mut held = shard.held.lock().unwrap();
        if !held.slots.contains_key(&block) {
            held.evict(self.most);
            held.insert(block, page, None);
            return;
        }
        let slot = held.slots.get_mut(&block).expect("it was there just now");
        self.set_fresh(slot, false);
        (slot.page, slot.used) = (page, true);
        if slot.reader.take().is_some() {
            shard.changed.notify_all();
        }
    }

    /// What is here of a block is not the newest version any more, nor is what is being read.
    pub fn forget(&self, block: u64) {
        let shard = self.shard(block);
        let mut held = shard.held.lock().unwrap();
        if let Some(mut slot) = held.remove(block) {
            self.set_fresh(&mut slot, false);
            if slot.reader.is_some() {
                shard.changed.notify_all();
            }
        }
    }

    /// The page of a block that is fresh.
    pub fn fresh_page(&self, block: u64) -> Option<Page> {
        let held = self.shard(block).held.lock().unwrap();
        held.slots.get(&block).filter(|slot| slot.is_fresh).map(|slot| slot.page.clone())
    }

    /// The page of a block that is fresh is another block's.
    pub fn move_fresh(&self, from: u64, to: u64) {
        let mut slot = self.shard(from).held.lock().unwrap().remove(from).expect("fresh pages stay");
        self.set_fresh(&mut slot, false);
        let mut held = self.shard(to).held.lock().unwrap();
        held.remove(to);
        let slot = held.insert(to, slot.page, None);
        self.set_fresh(slot, true);
    }

    /// A block that is fresh is another's to keep: a transaction's, until it is ordered, or, with none named, it is the
    /// newest version.
    pub fn sent(&self, block: u64, tx: Option<Txid>) {
        if let Some(tx) = tx {
            self.sent.lock().unwrap().set(block..block + 1, tx);
        }
        let mut held = self.shard(block).held.lock().unwrap();
        if let Some(slot) = held.slots.get_mut(&block) {
            self.set_fresh(slot, false);
        }
    }

    /// The transaction to which blocks were sent was ordered, or has ended.
    pub fn ordered(&self, blocks: Range<u64>) {
        self.sent.lock().unwrap().clear(blocks);
    }

    /// Nobody reads some blocks any more.
    pub fn discard(&self, blocks: Range<u64>) {
        let drop_one = |block: u64| {
            let mut held = self.shard(block).held.lock().unwrap();
            if let Some(slot) = held.slots.get_mut(&block) {
                self.set_fresh(slot, false);
                slot.used = false;
            }
        };
        if blocks.end - blocks.start <= 2 * self.total() {
            return blocks.for_each(drop_one);
        }
        for shard in &self.shards {
            let found: Vec<u64> =
                shard.held.lock().unwrap().slots.keys().filter(|block| blocks.contains(block)).copied().collect();
            found.into_iter().for_each(drop_one);
        }
    }

    fn read_large(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        // Whole blocks that are not here; nobody changes what is being read.
        let mut missing: Vec<Range<usize>> = Vec::new();
        let whole = |range: &Range<usize>| range.len() == BLOCK;
        pieces(at, buf.len(), |block, offset, range| {
            let held = self.shard(block).held.lock().unwrap();
            match (held.slots.get(&block).filter(|slot| slot.reader.is_none()), missing.last_mut()) {
                (Some(slot), _) => buf[range.clone()].copy_from_slice(&slot.page[offset..offset + range.len()]),
                (None, _) if !whole(&range) => {
                    drop(held);
                    self.with(block, false, |slot| {
                        buf[range.clone()].copy_from_slice(&slot.page[offset..offset + range.len()]);
                    })?;
                }
                (None, Some(last)) if last.end == range.start => last.end = range.end,
                (None, _) => missing.push(range),
            }
            Ok(())
        })?;
        missing.into_iter().try_for_each(|range| {
            let first = (at + range.start as u64) / BLOCK as u64;
            let tx = self.sender(&(first..first + (range.len() / BLOCK) as u64));
            self.blocks.read_run(tx, Lba(first), &mut buf[range])
        })
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

/// A region has the media's errors.
fn in_media(operation: &'static str, error: Error) -> MediaError {
    match error {
        Error::Media(error) => error,
        error => MediaError::new(operation, error.to_string(), Errno::from(error)),
    }
}

/// What mutators see: they read through the cache, and what they write to blocks of a running group becomes fresh.
impl Region for PageCache {
    fn guarantees(&self) -> &Guarantees {
        self.plain.guarantees()
    }

    fn len(&self) -> u64 {
        self.plain.len()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        let len = buf.len();
        let read = if len < LARGE {
            pieces(at, len, |block, offset, range| {
                let part = &mut buf[range];
                self.with(block, false, |slot| part.copy_from_slice(&slot.page[offset..offset + part.len()]))
            })
        } else {
            self.read_large(at, buf)
        };
        read.map_err(|error| in_media("read", error))
    }

    /// Of a running group, to blocks that nobody else can reach.
    fn write(&self, _site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
        let written = pieces(at, data.len(), |block, offset, range| {
            let part = &data[range];
            self.with(block, part.len() == BLOCK, |slot| {
                slot.page.put(offset, part);
                self.set_fresh(slot, true);
            })
        });
        written.map_err(|error| in_media("write", error))
    }

    fn fence(&self, _site: Site) -> wholly_media::Result<()> {
        unreachable!("what is written to the cache is ordered by commits")
    }

    fn write_through(&self, _site: Site, _at: u64, _data: &[u8]) -> wholly_media::Result<()> {
        unreachable!("what is written to the cache is ordered by commits")
    }

    fn set_len(&self, _site: Site, _len: u64) -> wholly_media::Result<()> {
        unreachable!("a volume that is mounted keeps its length")
    }
}
