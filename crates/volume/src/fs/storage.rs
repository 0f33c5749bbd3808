//! The storage version: where metadata is, and the mutators that change it (invariants 1 and 2).

use sync::{AtomicU64, Mutex, Ordering, RwLock};
use wholly_error::{Error, Result};
use wholly_media::Site;

use super::map;
use crate::engine::{EntryAt, Fields, InoGen, InodeFile, InodeMap, Load, Logged, Mapped, Operation, Replay, Toggled};
use crate::engine::{StorageView, Structure, corrupt, inode_block};
use crate::format::bitmap::{Bitmap, BitmapAt, Bits, Layout, UNITS};
use crate::format::dir::{self, Leaf, NAME_MAX, SLOT};
use crate::format::inode::{self, INODE, LINE, Line, More, Owned, PER_BLOCK, Target, Times, Tree};
use crate::format::pointer::Pointer;
use crate::format::superblock::{Superblock, copies};
use crate::format::{BLOCK, Fault, Lba, Run, Seed, Stream};

pub const INODE_LINE: Site = Site("volume.inode.line");
pub const INODE_BORN: Site = Site("volume.inode.born");
pub const INODE_BLOCK: Site = Site("volume.inode.block");
const ENTRY_BODY: Site = Site("volume.entry.body");
const ENTRY_LIVE: Site = Site("volume.entry.live");
pub const ENTRY_CLEAR: Site = Site("volume.entry.clear");
pub const LEAF: Site = Site("volume.leaf");
const SUPERBLOCK: Site = Site("volume.superblock");
pub const BITMAP: Site = Site("volume.bitmap");
pub const SITES: &[Site] =
    &[INODE_LINE, INODE_BORN, INODE_BLOCK, ENTRY_BODY, ENTRY_LIVE, ENTRY_CLEAR, LEAF, SUPERBLOCK];
/// Of volumes with bitmaps.
pub const BITMAP_SITES: &[Site] = &[BITMAP];

/// Blocks of the inode file whose places are kept.
const PLACES: u64 = 256;
/// The bits of the word of such a place that are the block of the volume. Above them is what tells apart the blocks
/// that would have the same word.
const LBA_BITS: u32 = 40;

/// Where everything begins.
pub struct Storage {
    pub seed: Seed,
    /// Where blocks of the inode file are that were looked up, so that a call takes no lock that all calls take.
    /// Changed with the lock of the map.
    places: Box<[AtomicU64]>,
    /// The map of the inode file. Written with the growth lock held.
    inode_tree: RwLock<Tree>,
    pub superblock: Mutex<Superblock>,
    /// Whether the engine moves blocks.
    pub moves_blocks: bool,
    /// Where the bitmaps are, if the volume has some.
    pub bitmaps: Option<Layout>,
}

/// An inode in memory: all that the storage version has of it, but for the target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    pub owned: Owned,
    pub times: Times,
    pub more: More,
}

impl Storage {
    pub fn new(superblock: Superblock) -> Storage {
        Storage {
            seed: Seed::of(&superblock.volume_id),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            inode_tree: RwLock::new(superblock.inode_tree),
            bitmaps: superblock.bitmaps,
            superblock: Mutex::new(superblock),
            moves_blocks: false,
        }
    }

    pub fn inode_tree(&self) -> Tree {
        *self.inode_tree.read().unwrap()
    }

    /// The seed of the inode file's stream.
    pub fn inode_seed(&self) -> u64 {
        self.seed.stream(inode::INODE_FILE, 0, Stream::Data)
    }

    pub fn data_seed(&self, on: InoGen) -> u64 {
        self.seed.stream(on.ino, on.generation, Stream::Data)
    }

    pub fn xattr_seed(&self, on: InoGen) -> u64 {
        self.seed.stream(on.ino, on.generation, Stream::Xattr)
    }

    /// The block with an inode, and the byte in it.
    pub fn place(&self, load: &(impl Load + ?Sized), ino: u64) -> Result<(Lba, usize)> {
        let at = (ino % PER_BLOCK) as usize * INODE;
        if self.moves_blocks {
            return Ok((inode_block(ino / PER_BLOCK), at));
        }
        let block = ino / PER_BLOCK;
        let known = self.places[(block % PLACES) as usize].load(Ordering::Relaxed);
        if known != 0 && known >> LBA_BITS == block / PLACES {
            return Ok((Lba(known & ((1 << LBA_BITS) - 1)), at));
        }
        Ok((self.find_place(load, ino)?, at))
    }

    fn find_place(&self, load: &(impl Load + ?Sized), ino: u64) -> Result<Lba> {
        // Kept as long as its nodes are read: those that it no longer needs are given up.
        let tree = self.inode_tree.read().unwrap();
        let block = ino / PER_BLOCK;
        let Some(found) = map::get(load, self.inode_seed(), &tree, block)? else {
            return Err(corrupt(format!("inode {ino}"), Fault("the inode file has no block for it")));
        };
        if found.block.0 >> LBA_BITS == 0 && (block / PLACES) >> (u64::BITS - LBA_BITS) == 0 {
            let word = ((block / PLACES) << LBA_BITS) | found.block.0;
            self.places[(block % PLACES) as usize].store(word, Ordering::Relaxed);
        }
        Ok(found.block)
    }

    /// The inode file has another map.
    fn set_inode_tree(&self, tree: Tree) {
        // Waits for those who read nodes of the former map. They are given up when the group ends.
        let mut now = self.inode_tree.write().unwrap();
        *now = tree;
        self.places.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    }

    fn line<L: Line>(&self, ino: u64, raw: &[u8]) -> Result<L> {
        let raw = raw[L::NUMBER * LINE..][..LINE].try_into().expect("a line");
        L::decode(self.seed, ino, raw).map_err(|fault| corrupt(format!("inode {ino}"), fault))
    }

    /// What the storage version has of an inode in use.
    pub fn read(&self, load: &(impl Load + ?Sized), ino: u64) -> Result<Record> {
        let (lba, at) = self.place(load, ino)?;
        let mut raw = [0; INODE];
        load.load(lba, at, &mut raw)?;
        let owned: Owned = self.line(ino, &raw)?;
        if owned.mode == 0 {
            return Err(corrupt(format!("inode {ino}"), Fault("it is not in use, and something names it")));
        }
        Ok(Record { owned, times: self.line(ino, &raw)?, more: self.line(ino, &raw)? })
    }

    /// The number of names of an inode. Reads one line of it: damage of the others does not matter here.
    pub fn links(&self, load: &(impl Load + ?Sized), on: InoGen) -> Result<u32> {
        let (lba, at) = self.place(load, on.ino)?;
        Ok(self.owned_at(load, on, lba, at)?.links)
    }

    /// The generation for the next life of an inode that is not in use.
    pub fn next_generation(&self, load: &(impl Load + ?Sized), ino: u64) -> Result<u32> {
        let (lba, at) = self.place(load, ino)?;
        let mut raw = [0; LINE];
        load.load(lba, at, &mut raw)?;
        let owned: Owned = self.line(ino, &raw)?;
        if owned.mode != 0 {
            return Err(corrupt(format!("inode {ino}"), Fault("it is in use, and counted as free")));
        }
        // A record of zeros: perhaps the inode file gave back the block that had one.
        let last = match owned.generation {
            0 => self.superblock.lock().unwrap().generation_floor,
            generation => generation,
        };
        Ok(last.wrapping_add(1).max(1))
    }

    fn owned_at(&self, load: &(impl Load + ?Sized), on: InoGen, lba: Lba, at: usize) -> Result<Owned> {
        let mut raw = [0; LINE];
        load.load(lba, at, &mut raw)?;
        let owned: Owned = self.line(on.ino, &raw)?;
        if owned.generation != on.generation {
            return Err(corrupt(format!("inode {}", on.ino), Fault("it is in another life")));
        }
        Ok(owned)
    }

    pub fn target(&self, load: &(impl Load + ?Sized), ino: u64) -> Result<Target> {
        let (lba, at) = self.place(load, ino)?;
        let mut raw = [0; INODE];
        load.load(lba, at, &mut raw)?;
        self.line(ino, &raw)
    }

    fn put<L: Line>(&self, view: &mut dyn StorageView, ino: u64, (lba, at): (Lba, usize), line: &L) -> Result<()> {
        view.update(INODE_LINE, lba, at + L::NUMBER * LINE, &line.encode(self.seed, ino))
    }

    fn assign(&self, view: &mut dyn StorageView, on: InoGen, fields: &Fields) -> Result<()> {
        let (lba, at) = self.place(view, on.ino)?;
        if fields.born {
            return self.bear(view, on, fields, (lba, at));
        }
        let owns = fields.mode.is_some()
            || fields.uid.is_some()
            || fields.gid.is_some()
            || fields.links.is_some()
            || fields.size.is_some();
        if owns {
            let mut owned = self.owned_at(view, on, lba, at)?;
            set_owned(&mut owned, fields);
            self.put(view, on.ino, (lba, at), &owned)?;
        }
        if let Some(times) = &fields.times {
            self.put(view, on.ino, (lba, at), times)?;
        }
        if fields.parent.is_some() || fields.rdev.is_some() {
            let mut raw = [0; INODE];
            view.load(lba, at, &mut raw)?;
            let mut more: More = self.line(on.ino, &raw)?;
            set_more(&mut more, fields);
            self.put(view, on.ino, (lba, at), &more)?;
        }
        Ok(())
    }

    fn bear(&self, view: &mut dyn StorageView, on: InoGen, fields: &Fields, place: (Lba, usize)) -> Result<()> {
        let mut owned = Owned { generation: on.generation, ..Owned::default() };
        let (mut more, mut target) = (More::default(), Target::default());
        set_owned(&mut owned, fields);
        set_more(&mut more, fields);
        if let Some(short) = &fields.target {
            target.short[..short.len()].copy_from_slice(short);
        }
        target.sum = fields.target_sum.unwrap_or(0);
        let mut raw = [0; INODE];
        raw[..LINE].copy_from_slice(&owned.encode(self.seed, on.ino));
        raw[LINE..2 * LINE].copy_from_slice(&fields.times.unwrap_or_default().encode(self.seed, on.ino));
        raw[2 * LINE..3 * LINE].copy_from_slice(&more.encode(self.seed, on.ino));
        raw[3 * LINE..].copy_from_slice(&target.encode(self.seed, on.ino));
        view.update(INODE_BORN, place.0, place.1, &raw)
    }

    /// Changes the map of an inode's content.
    fn with_tree(
        &self,
        view: &mut dyn StorageView,
        on: InoGen,
        change: impl FnOnce(&mut dyn StorageView, u64, &mut Tree) -> Result<()>,
    ) -> Result<()> {
        let (lba, at) = self.place(view, on.ino)?;
        let mut owned = self.owned_at(view, on, lba, at)?;
        let before = owned.tree;
        change(view, self.data_seed(on), &mut owned.tree)?;
        if owned.tree != before { self.put(view, on.ino, (lba, at), &owned) } else { Ok(()) }
    }

    fn free_tree(&self, view: &mut dyn StorageView, of: InoGen, stream: Stream, mut tree: Tree) -> Result<()> {
        map::clear(view, self.seed.stream(of.ino, of.generation, stream), &mut tree, 0, u64::MAX)
    }

    fn set_xattrs(&self, view: &mut dyn StorageView, on: InoGen, runs: &[Run], (bytes, sum): (u32, u32)) -> Result<()> {
        let (lba, at) = self.place(view, on.ino)?;
        let mut raw = [0; INODE];
        view.load(lba, at, &mut raw)?;
        let mut more: More = self.line(on.ino, &raw)?;
        let before = more.xattrs;
        let (mut tree, mut first) = (Tree::default(), 0);
        for run in runs {
            let to = |i: u64| Pointer::to(Lba(run.start.0 + i));
            map::assign(view, self.xattr_seed(on), &mut tree, (first, run.count), to)?;
            first += run.count;
        }
        (more.xattrs, more.xattr_bytes, more.xattr_sum) = (tree, bytes, sum);
        self.put(view, on.ino, (lba, at), &more)?;
        self.free_tree(view, on, Stream::Xattr, before)
    }

    fn free(&self, view: &mut dyn StorageView, what: InoGen) -> Result<()> {
        let (lba, at) = self.place(view, what.ino)?;
        let record = self.read(view, what.ino)?;
        self.free_tree(view, what, Stream::Data, record.owned.tree)?;
        self.free_tree(view, what, Stream::Xattr, record.more.xattrs)?;
        let owned = Owned { generation: what.generation, ..Owned::default() };
        self.put(view, what.ino, (lba, at), &owned)
    }

    /// The block of a leaf, ready to be changed.
    fn leaf(&self, view: &mut dyn StorageView, dir: InoGen, at: EntryAt) -> Result<Lba> {
        if !view.moves_blocks() {
            return Ok(at.lba);
        }
        let (lba, place) = self.place(view, dir.ino)?;
        let tree = self.owned_at(view, dir, lba, place)?.tree;
        let Some(old) = map::get(view, self.data_seed(dir), &tree, at.leaf)? else {
            return Err(corrupt("a directory", Fault("a leaf is not there")));
        };
        let leaf = view.shadow(old.block)?;
        if leaf != old.block {
            let to = |_| Pointer::to(leaf);
            self.with_tree(view, dir, |view, seed, tree| map::assign(view, seed, tree, (at.leaf, 1), to))?;
        }
        Ok(leaf)
    }

    /// Checks that a leaf has room at a slot.
    fn insert(
        &self,
        view: &mut dyn StorageView,
        on: InoGen,
        (head, name): (dir::Head, &[u8]),
        at: EntryAt,
    ) -> Result<()> {
        let (lba, slot) = (self.leaf(view, on, at)?, at.slot);
        let (live, raw) = dir::encode(self.data_seed(on), head, name);
        let at = slot * SLOT;
        view.update(ENTRY_BODY, lba, at + 8, &raw[8..dir::slots_for(name.len()) * SLOT])?;
        view.update(ENTRY_LIVE, lba, at, &live.to_le_bytes())
    }

    fn structure(&self, view: &mut dyn StorageView, change: Structure) -> Result<()> {
        match change {
            Structure::FirstLeaf { dir } => self.with_tree(view, dir, |view, seed, tree| {
                let leaf = view.fresh();
                view.update(LEAF, leaf, 0, &[0; BLOCK])?;
                map::assign(view, seed, tree, (1, 1), |_| Pointer::to(leaf))
            }),
            Structure::Split { dir, leaf } => {
                self.with_tree(view, dir, |view, seed, tree| split(view, seed, tree, leaf))
            }
            Structure::Merge { dir, leaf } => self.with_tree(view, dir, |view, seed, tree| {
                // The parent gets the block of one of the two: it takes no new one.
                let kept = map::get(view, seed, tree, leaf)?;
                let Some(kept) = kept else { return Err(corrupt("a directory", Fault("a leaf is not there"))) };
                map::assign(view, seed, tree, (leaf / 2, 1), |_| kept)?;
                let sibling = leaf ^ 1;
                map::clear(view, seed, tree, sibling, sibling + 1)?;
                map::forget(view, seed, tree, leaf)?;
                map::flatten(view, seed, tree)
            }),
            Structure::GrowInodes { first, blocks } => {
                let mut map = self.map();
                let before = map.inodes;
                self.grow(view, &mut map, first, blocks)?;
                self.bear_bitmaps(view, before, map.inodes)?;
                self.set_inode_file(view, map)
            }
        }
    }

    /// Makes the bitmap blocks for inodes that an inode file needs which has grown: none of the numbers is an inode.
    fn bear_bitmaps(&self, view: &mut dyn StorageView, before: u64, inodes: u64) -> Result<()> {
        let Some(layout) = self.bitmaps else { return Ok(()) };
        for index in before.div_ceil(UNITS)..inodes.div_ceil(UNITS) {
            for (of, value) in [(Bitmap::Inodes, false), (Bitmap::Orphans, true)] {
                let at = BitmapAt { of, index };
                view.update(BITMAP, layout.place(at), 0, &Bits::all(value).encode(self.seed, at))?;
            }
        }
        Ok(())
    }

    /// What a bitmap block has.
    pub fn bits(&self, load: &(impl Load + ?Sized), bitmap: BitmapAt, at: Lba) -> Result<Bits> {
        let mut block = [0; BLOCK];
        load.load(at, 0, &mut block)?;
        Bits::decode(self.seed, bitmap, &block).map_err(|fault| corrupt(bitmap.to_string(), fault))
    }

    fn set_inode_file(&self, view: &mut dyn StorageView, map: InodeMap) -> Result<()> {
        let mut superblock = self.superblock.lock().unwrap();
        superblock.set_inode_file(map);
        write_superblock(view, &mut superblock)?;
        self.set_inode_tree(map.tree);
        Ok(())
    }
}

impl InodeFile for Storage {
    fn map(&self) -> InodeMap {
        self.superblock.lock().unwrap().inode_file()
    }

    fn place(&self, view: &mut dyn StorageView, map: &mut InodeMap, block: u64, at: Lba) -> Result<()> {
        map::assign(view, self.inode_seed(), &mut map.tree, (block, 1), |_| Pointer::to(at))
    }

    fn grow(&self, view: &mut dyn StorageView, map: &mut InodeMap, first: u64, blocks: u64) -> Result<Vec<Lba>> {
        let mut all = Vec::new();
        for block in first..first + blocks {
            let lba = view.fresh();
            view.update(INODE_BLOCK, lba, 0, &[0; BLOCK])?;
            InodeFile::place(self, view, map, block, lba)?;
            all.push(lba);
        }
        map.inodes = map.inodes.max((first + blocks) * PER_BLOCK);
        Ok(all)
    }

    fn give_back(
        &self,
        view: &mut dyn StorageView,
        map: &mut InodeMap,
        blocks: &[(u64, u64)],
        generation_floor: u32,
    ) -> Result<()> {
        for &(first, count) in blocks {
            map::clear(view, self.inode_seed(), &mut map.tree, first, first + count)?;
        }
        map.generation_floor = generation_floor;
        map::flatten(view, self.inode_seed(), &mut map.tree)
    }

    fn publish(&self, map: InodeMap) {
        self.superblock.lock().unwrap().set_inode_file(map);
        self.set_inode_tree(map.tree);
    }
}

/// The slot of a superblock.
pub fn slot_of(superblock: &Superblock) -> Lba {
    let [first, second, _] = copies(superblock.blocks);
    if superblock.generation.is_multiple_of(2) { first } else { second }
}

/// Writes the next generation of the superblock: to one of the slots, then to the copy.
pub fn write_superblock(view: &mut dyn StorageView, superblock: &mut Superblock) -> Result<()> {
    superblock.generation += 1;
    write_slot(view, superblock)?;
    let [_, _, last] = copies(superblock.blocks);
    view.update(SUPERBLOCK, last, 0, &superblock.encode(last))
}

/// Writes a superblock to its slot.
pub fn write_slot(view: &mut dyn StorageView, superblock: &Superblock) -> Result<()> {
    let slot = slot_of(superblock);
    view.update(SUPERBLOCK, slot, 0, &superblock.encode(slot))
}

fn set_owned(owned: &mut Owned, fields: &Fields) {
    owned.mode = fields.mode.unwrap_or(owned.mode);
    owned.uid = fields.uid.unwrap_or(owned.uid);
    owned.gid = fields.gid.unwrap_or(owned.gid);
    owned.links = fields.links.unwrap_or(owned.links);
    owned.size = fields.size.unwrap_or(owned.size);
}

fn set_more(more: &mut More, fields: &Fields) {
    more.parent = fields.parent.unwrap_or(more.parent);
    more.rdev = fields.rdev.unwrap_or(more.rdev);
}

impl Record {
    /// What goes with the inode.
    pub fn goes(&self) -> Logged {
        Logged { freed: self.owned.tree.blocks + self.more.xattrs.blocks, ..Logged::default() }
    }

    /// What goes with its extended attributes.
    pub fn xattrs_go(&self) -> Logged {
        Logged { freed: self.more.xattrs.blocks, ..Logged::default() }
    }

    /// The same change in memory. The map is the mutators' business.
    pub fn set(&mut self, fields: &Fields) {
        set_owned(&mut self.owned, fields);
        set_more(&mut self.more, fields);
        self.times = fields.times.unwrap_or(self.times);
    }
}

/// Replaces a leaf by two, each with the entries of its half.
fn split(view: &mut dyn StorageView, seed: u64, tree: &mut Tree, leaf: u64) -> Result<()> {
    let Some(old) = map::get(view, seed, tree, leaf)? else {
        return Err(corrupt("a directory", Fault("a leaf is not there")));
    };
    let mut bytes = Box::new([0; BLOCK]);
    view.load(old.block, 0, &mut bytes[..])?;
    let read = Leaf::new(seed, &bytes);
    let middle = dir::leaf_keys(2 * leaf + 1).0;
    let mut halves = [Box::new([0; BLOCK]), Box::new([0; BLOCK])];
    let mut next = [0, 0];
    read.scan(|found| {
        let half = usize::from(found.head.key >= middle);
        let mut buf = [0; NAME_MAX];
        let name = read.name(found, &mut buf);
        let (live, mut raw) = dir::encode(seed, found.head, name);
        raw[..8].copy_from_slice(&live.to_le_bytes());
        let len = dir::slots_for(name.len()) * SLOT;
        halves[half][next[half]..next[half] + len].copy_from_slice(&raw[..len]);
        next[half] += len;
        true
    })
    .map_err(|fault| corrupt(format!("directory leaf in block {}", old.block.0), fault))?;
    let blocks = [view.fresh(), view.fresh()];
    for (block, half) in blocks.iter().zip(&halves) {
        view.update(LEAF, *block, 0, &half[..])?;
    }
    map::assign(view, seed, tree, (2 * leaf, 2), |i| Pointer::to(blocks[i as usize]))?;
    map::clear(view, seed, tree, leaf, leaf + 1)
}

impl Replay for Storage {
    fn inode_file(&self) -> Option<&dyn InodeFile> {
        Some(self)
    }

    fn redo(&self, operation: &Operation<'_>, view: &mut dyn StorageView) -> Result<()> {
        match *operation {
            Operation::Assign { on, fields } => self.assign(view, on, fields),
            Operation::Map { on, first, count, to } => self.with_tree(view, on, |view, seed, tree| {
                let (start, reserved) = match to {
                    Mapped::Nothing => return map::clear(view, seed, tree, first, first.saturating_add(count)),
                    Mapped::Written(start) => (start, false),
                    Mapped::Reserved(start) => (start, true),
                };
                map::assign(view, seed, tree, (first, count), |i| Pointer { block: Lba(start.0 + i), reserved })
            }),
            Operation::Shift { on, from, by } => {
                self.with_tree(view, on, |view, seed, tree| map::shift(view, seed, tree, from, by))
            }
            Operation::Insert { dir, head, name, at } => self.insert(view, dir, (head, name), at),
            Operation::Remove { dir, key, at } => {
                let (lba, slot) = (self.leaf(view, dir, at)?, at.slot);
                let mut raw = [0; SLOT];
                view.load(lba, slot * SLOT, &mut raw)?;
                if raw[8..16] != key.to_le_bytes() {
                    return Err(Error::Corrupt {
                        place: format!("directory {}", dir.ino),
                        fault: "an entry is not where it was".into(),
                    });
                }
                view.update(ENTRY_CLEAR, lba, slot * SLOT, &[0; 8])
            }
            Operation::Free { what } => self.free(view, what),
            Operation::Toggle { bitmap, at, bits: toggled } => {
                let mut bits = self.bits(view, bitmap, at)?;
                let mut toggled = toggled.iter();
                let done = toggled.try_for_each(|Toggled { first, count, to }| bits.toggle(*first, *count, *to));
                done.map_err(|fault| corrupt(bitmap.to_string(), fault))?;
                view.update(BITMAP, at, 0, &bits.encode(self.seed, bitmap))
            }
            Operation::Xattrs { on, runs, bytes, sum } => self.set_xattrs(view, on, runs, (bytes, sum)),
            Operation::Structure(change) => self.structure(view, change),
            Operation::GiveBack { blocks, generation_floor } => {
                let mut map = self.map();
                self.give_back(view, &mut map, blocks, generation_floor)?;
                self.set_inode_file(view, map)
            }
        }
    }
}
