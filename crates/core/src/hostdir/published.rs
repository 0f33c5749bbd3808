//! What all files' indexes share, and how a write becomes visible.

use super::dirty::{Dirty, DirtyBlock};
use super::file::File;
use index::{BLOCK, Garbage, NO_VERSION, Pushed, RunVersion, Slot, VersionArena, prepare_alone};
use sync::{Mutex, Ordering};

/// Versions that are asked of the arena at a time.
const SPARE: usize = 64;

/// Blocks of a group that are prepared while its fence is waited for; two writes of 16 KiB touch ten at most.
const MOST_PREPARED: usize = 12;

/// The versions of all files, and which blocks have any.
pub(crate) struct Published {
    pub arena: VersionArena,
    pub dirty: Dirty,
    /// What has gathered at seats; invariant 5 of the index.
    garbage: Mutex<Vec<Garbage>>,
}

/// What a publisher has at hand, so that it need not take a lock for each version.
#[derive(Default)]
pub(crate) struct Stock {
    /// Unused numbers of versions.
    pub spare: Vec<u32>,
    /// Numbers of versions that were unlinked, and that nobody looks at.
    pub freed: Vec<u32>,
    garbage: Vec<Garbage>,
    /// The place in the pool of the seat that it belongs to, if there is one.
    place: Option<usize>,
}

impl Stock {
    /// Of the seat at `place` in the pool, or of none.
    pub fn new(place: Option<usize>) -> Self {
        Stock { place, ..Stock::default() }
    }
}

/// A committed write and where its bytes are.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Position of the first.
    pub position: u64,
    /// See [`RunVersion::stamp`].
    pub stamp: u64,
}

impl Written {
    /// What is left of it behind its first `bytes`.
    #[inline]
    pub fn behind(self, bytes: u64) -> Self {
        let Written { offset, length, position, stamp } = self;
        Written { offset: offset + bytes, length: length - bytes, position: position + bytes, stamp }
    }
}

/// The first block that a write touches, and the version that it makes of it.
#[inline(always)]
fn first_version(written: Written) -> (u64, RunVersion) {
    let Written { offset, length, position, stamp } = written;
    let start = offset % BLOCK;
    let length = length.min(BLOCK - start);
    let (start, length) = (start as u16, length as u16);
    (offset / BLOCK, RunVersion { position, stamp, start, length, next: NO_VERSION, before_thinning: 0 })
}

/// The versions that a write is made of, block by block.
#[inline]
fn versions(written: Written) -> impl Iterator<Item = (u64, RunVersion)> {
    let mut rest = written;
    std::iter::from_fn(move || {
        let (block, version) = first_version(rest);
        rest = rest.behind(u64::from(version.length));
        (version.length > 0).then_some((block, version))
    })
}

/// Versions that are in place but not visible yet.
#[derive(Default)]
pub(crate) struct Prepared<'f> {
    links: [Option<Link<'f>>; MOST_PREPARED],
    count: usize,
}

/// What is known of a block when its version is in place.
#[derive(Clone, Copy)]
struct Link<'f> {
    file: &'f File,
    slot: &'f Slot,
    block: u64,
    number: u32,
    pushed: Pushed,
}

impl<'f> Prepared<'f> {
    /// Whether there is a place for a version of a block that has none here.
    #[inline]
    fn has_room_for(&self, slot: &Slot) -> bool {
        self.count < MOST_PREPARED
            && !self.links[..self.count].iter().flatten().any(|link| std::ptr::eq(link.slot, slot))
    }

    #[inline]
    fn push(&mut self, link: Link<'f>) {
        self.links[self.count] = Some(link);
        self.count += 1;
    }
}

impl Published {
    pub fn new() -> Self {
        Published { arena: VersionArena::new(), dirty: Dirty::new(), garbage: Mutex::default() }
    }

    /// Does all of [`publish`](Self::publish) but what makes a write visible, while its commit is in flight and not
    /// durable yet; for who owns the file. Returns how many bytes of it were prepared: the first blocks.
    #[inline(always)]
    pub fn prepare<'f>(&self, file: &'f File, written: Written, stock: &mut Stock, prepared: &mut Prepared<'f>) -> u64 {
        // See invariant 5 of the index: a checkpoint that marks it from now on waits for the commit.
        if file.visited.load(Ordering::Acquire) != 0 {
            self.ask_for(file, written);
            return 0;
        }
        let mut rest = written;
        loop {
            let (block, version) = first_version(rest);
            let slot = file.index.get_or_make(block);
            if !prepared.has_room_for(slot) {
                break;
            }
            let number = self.number(stock);
            let newest = slot.newest_alone();
            let is_long = prepare_alone(&self.arena, newest, number, version, &mut stock.garbage);
            let pushed = Pushed { was_empty: newest == NO_VERSION, is_long };
            prepared.push(Link { file, slot, block, number, pushed });
            rest = rest.behind(u64::from(version.length));
            if rest.length == 0 {
                break;
            }
        }
        written.length - rest.length
    }

    /// Asks the processor for the first slots that a write is going to change, and for their newest versions: a
    /// checkpoint has them on another core.
    #[cold]
    fn ask_for(&self, file: &File, written: Written) {
        const MOST: usize = 4;
        for (block, _) in versions(written).take(MOST) {
            if let Some(slot) = file.index.get(block) {
                slot.prefetch_to_push(&self.arena);
            }
        }
    }

    /// Publishes what was prepared.
    #[inline(always)]
    pub fn link(&self, prepared: &Prepared<'_>, stock: &mut Stock) {
        for link in prepared.links[..prepared.count].iter().flatten() {
            link.file.pending.link_alone(link.slot, link.number, link.pushed.was_empty);
            if link.pushed.was_empty {
                self.dirty.push(stock.place, DirtyBlock::new(link.file.number, link.block));
            }
            if link.pushed.is_long {
                self.thin(link.slot, stock);
            }
        }
    }

    #[cold]
    fn thin(&self, slot: &Slot, stock: &mut Stock) {
        slot.claim().thin(&self.arena, &mut stock.freed);
    }

    /// Publishes a write as a version of each block that it touches. `alone` says that nobody else publishes to the
    /// file.
    #[inline]
    pub fn publish(&self, file: &File, written: Written, alone: bool, stock: &mut Stock) {
        // Looked at while the commit is in flight: see invariant 5 of the index.
        let alone = alone && file.visited.load(Ordering::Acquire) == 0;
        for (block, version) in versions(written) {
            let number = self.number(stock);
            let slot = file.index.get_or_make(block);
            let was_empty = if alone {
                let pushed = file.pending.push_alone(slot, &self.arena, number, version, &mut stock.garbage);
                if pushed.is_long {
                    self.thin(slot, stock);
                }
                pushed.was_empty
            } else {
                file.pending.push(&slot.claim(), &self.arena, number, version, &mut stock.freed)
            };
            if was_empty {
                self.dirty.push(stock.place, DirtyBlock::new(file.number, block));
            }
        }
    }

    #[inline(always)]
    fn number(&self, stock: &mut Stock) -> u32 {
        match stock.spare.pop() {
            Some(number) => number,
            None => self.refill(stock),
        }
    }

    #[cold]
    fn refill(&self, stock: &mut Stock) -> u32 {
        self.arena.refill(&mut stock.spare, SPARE);
        stock.spare.pop().expect("the arena has given some")
    }

    /// A group has published all that it wrote: keeps the stock small.
    #[inline(always)]
    pub fn settle(&self, stock: &mut Stock) {
        const MOST_GARBAGE: usize = 256;
        if !stock.freed.is_empty() || stock.garbage.len() >= MOST_GARBAGE {
            self.settle_much(stock, MOST_GARBAGE);
        }
    }

    #[cold]
    fn settle_much(&self, stock: &mut Stock, most_garbage: usize) {
        stock.spare.append(&mut stock.freed);
        if stock.spare.len() > 4 * SPARE {
            self.arena.give_back(&mut stock.spare.split_off(SPARE));
        }
        if stock.garbage.len() >= most_garbage {
            self.garbage.lock().unwrap().append(&mut stock.garbage);
        }
    }

    /// Takes back a stock that is not used any more.
    pub fn take_back(&self, mut stock: Stock) {
        self.garbage.lock().unwrap().append(&mut stock.garbage);
        stock.spare.append(&mut stock.freed);
        self.arena.give_back(&mut stock.spare);
    }

    /// Every block that had a version below `target` was visited, and its readers have left.
    pub fn free_garbage_below(&self, target: u64, freed: &mut Vec<u32>) {
        let mut garbage = self.garbage.lock().unwrap();
        freed.extend(garbage.extract_if(.., |old| old.stamp < target).map(|old| old.number));
    }
}

impl Published {
    /// What [`publish`](Self::publish) does, for recovery: nobody else can reach the index yet, and groups come in
    /// commit order.
    #[inline]
    pub fn publish_recovered(&self, file: &File, written: Written, numbers: &mut Numbers, dirty: &mut Vec<DirtyBlock>) {
        for (block, version) in versions(written) {
            let number = numbers.take(&self.arena);
            if file.index.get_or_make(block).push_recovered(&self.arena, number, version, &mut numbers.freed) {
                file.pending.raise(1);
                dirty.push(DirtyBlock::new(file.number, block));
            }
        }
    }
}

/// Numbers of versions for recovery.
#[derive(Default)]
pub(crate) struct Numbers {
    /// Of versions that were unlinked: used again first.
    pub freed: Vec<u32>,
    fresh: std::ops::Range<u32>,
}

impl Numbers {
    #[inline]
    fn take(&mut self, arena: &VersionArena) -> u32 {
        /// Taken at a time: a row, so that versions which follow each other lie side by side.
        const ROW: u32 = 256;
        if let Some(number) = self.freed.pop() {
            return number;
        }
        if self.fresh.is_empty() {
            self.fresh = arena.take_fresh(ROW);
        }
        let number = self.fresh.start;
        self.fresh.start += 1;
        number
    }

    /// Gives back what is left.
    pub fn give_back(mut self, arena: &VersionArena) {
        self.freed.extend(self.fresh);
        arena.give_back(&mut self.freed);
    }
}
