//! Carrying out remedies: one at a time, on a region of which all maps can be walked, or could be but for what it cuts.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use crate::engine::marks::Marks;
use crate::engine::{InodeFile, Load, StorageView, corrupt};
use crate::format::dir::{MAX_TRIE_DEPTH, SLOT, leaf_depth};
use crate::format::inode::{INODE, INODE_FILE, LINE, Line, More, Owned, PER_BLOCK, ROOT, Target, Time, Times, Tree};
use crate::format::pointer::{Pointer, depth_for, nodes_for};
use crate::format::superblock::Superblock;
use crate::format::xattr::{self, TOTAL_MAX};
use crate::format::{BLOCK, Fault, Lba, Seed, Stream, mix};
use crate::fs::mount::Plain;
use crate::fs::remedy::{MapOf, Remedy};
use crate::fs::storage::{BITMAP, ENTRY_CLEAR, INODE_BLOCK, INODE_LINE, LEAF, Storage, write_superblock};
use crate::fs::{DIRECTORY, REGULAR, TYPE, map};

/// Carries out remedies.
pub(super) struct Surgeon<'r> {
    region: &'r dyn Region,
    marks: &'r Marks,
    storage: Storage,
    seed: Seed,
    blocks: u64,
    now: Time,
    /// Free blocks that were found, and where to look on.
    free: VecDeque<Lba>,
    next: u64,
}

impl Load for Surgeon<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        Plain { region: self.region, next: 0 }.load(at, offset, buf)
    }
}

impl StorageView for Surgeon<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.region.write(site, at.byte() + offset as u64, bytes)?)
    }

    fn fresh(&mut self) -> Lba {
        self.free.pop_front().expect("what is taken was found before")
    }

    fn release(&mut self, _at: Lba) {
        // The next round finds it free.
    }
}

impl<'r> Surgeon<'r> {
    pub(super) fn new(region: &'r Arc<dyn Region>, superblock: Superblock, marks: &'r Marks) -> Surgeon<'r> {
        let now = clock_gettime(ClockId::Realtime);
        Surgeon {
            region: &**region,
            marks,
            seed: Seed::of(&superblock.volume_id),
            blocks: superblock.blocks,
            storage: Storage::new(superblock),
            now: Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 },
            free: VecDeque::new(),
            next: 2,
        }
    }

    /// Finds free blocks.
    fn need(&mut self, count: u64) -> Result<()> {
        while (self.free.len() as u64) < count {
            if self.next >= self.blocks - 1 {
                return Err(Error::NoSpace(format!("a repair: it takes {count} more blocks")));
            }
            if !self.marks.is_marked(Lba(self.next)) {
                self.free.push_back(Lba(self.next));
            }
            self.next += 1;
        }
        Ok(())
    }

    /// A line of an inode; `None` if it is damaged.
    fn line<L: Line>(&self, ino: u64) -> Result<Option<L>> {
        let (lba, at) = self.storage.place(self, ino)?;
        let mut raw = [0; LINE];
        self.load(lba, at + L::NUMBER * LINE, &mut raw)?;
        Ok(L::decode(self.seed, ino, &raw).ok())
    }

    fn put<L: Line>(&mut self, ino: u64, line: &L) -> Result<()> {
        let (lba, at) = self.storage.place(self, ino)?;
        self.update(INODE_LINE, lba, at + L::NUMBER * LINE, &line.encode(self.seed, ino))
    }

    /// Line 0 of an inode in use.
    fn owned(&self, ino: u64) -> Result<Option<Owned>> {
        Ok(self.line::<Owned>(ino)?.filter(|owned| owned.mode != 0))
    }

    fn tree(&self, of: MapOf) -> Result<Option<(u64, Tree)>> {
        let ino = match of {
            MapOf::InodeFile => {
                let seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
                return Ok(Some((seed, self.storage.inode_tree())));
            }
            MapOf::Content(ino) | MapOf::Xattrs(ino) => ino,
        };
        let Some(owned) = self.owned(ino)? else { return Ok(None) };
        Ok(match of {
            MapOf::Xattrs(_) => {
                let more: Option<More> = self.line(ino)?;
                more.map(|more| (self.seed.stream(ino, owned.generation, Stream::Xattr), more.xattrs))
            }
            _ => Some((self.seed.stream(ino, owned.generation, Stream::Data), owned.tree)),
        })
    }

    fn set_tree(&mut self, of: MapOf, tree: Tree) -> Result<()> {
        match of {
            MapOf::InodeFile => self.set_inode_file(tree, None),
            MapOf::Content(ino) => match self.owned(ino)? {
                Some(owned) => self.put(ino, &Owned { tree, ..owned }),
                None => Ok(()),
            },
            MapOf::Xattrs(ino) => match self.line::<More>(ino)? {
                Some(more) => self.put(ino, &More { xattrs: tree, ..more }),
                None => Ok(()),
            },
        }
    }

    fn set_inode_file(&mut self, tree: Tree, inodes: Option<u64>) -> Result<()> {
        let mut superblock = self.storage.superblock.lock().unwrap().clone();
        superblock.inode_tree = tree;
        superblock.inodes = inodes.unwrap_or(superblock.inodes);
        write_superblock(self, &mut superblock)?;
        self.storage = Storage::new(superblock);
        Ok(())
    }

    fn with_tree(&mut self, of: MapOf, change: impl FnOnce(&mut Self, u64, &mut Tree) -> Result<()>) -> Result<()> {
        let Some((seed, mut tree)) = self.tree(of)? else { return Ok(()) };
        let changed = change(self, seed, &mut tree);
        match changed {
            Ok(()) | Err(Error::NoSpace(_)) => self.set_tree(of, tree).and(changed),
            Err(error) => Err(error),
        }
    }

    fn cut(&mut self, of: MapOf, level: u8, index: u64) -> Result<()> {
        if of == MapOf::InodeFile && self.storage.map().generation_floor > 0 {
            // What is lost stays a hole.
            self.raise_floor(index)?;
        }
        self.with_tree(of, |it, seed, tree| map::cut(it, seed, tree, (level, index)))
    }

    /// The same of an inode, whose content is not that which it had. A program then runs with its user's rights only.
    fn cut_content(&mut self, of: MapOf, level: u8, index: u64) -> Result<&'static str> {
        self.cut(of, level, index)?;
        match of {
            MapOf::Content(ino) => self.distrust(ino),
            _ => Ok(""),
        }
    }

    /// Takes the set-ID bits and the capabilities from a file. Returns what is to be said of that.
    fn distrust(&mut self, ino: u64) -> Result<&'static str> {
        const SET_IDS: u32 = 0o6000;
        let Some(owned) = self.owned(ino)?.filter(|owned| owned.mode & TYPE == REGULAR) else { return Ok("") };
        if owned.mode & SET_IDS != 0 {
            self.put(ino, &Owned { mode: owned.mode & !SET_IDS, ..owned })?;
        }
        let had_capability = match self.drop_capability(ino) {
            // The attributes are damaged, and go.
            Err(Error::Corrupt { .. }) => false,
            dropped => dropped?,
        };
        let is_changed = owned.mode & SET_IDS != 0 || had_capability;
        Ok(if is_changed { "; its set-ID bits and capabilities are lost" } else { "" })
    }

    fn drop_capability(&mut self, ino: u64) -> Result<bool> {
        let Some((seed, mut tree)) = self.tree(MapOf::Xattrs(ino))? else { return Ok(false) };
        let (Some(owned), Some(more)) = (self.owned(ino)?, self.line::<More>(ino)?) else { return Ok(false) };
        let len = more.xattr_bytes as usize;
        if len > TOTAL_MAX {
            return Ok(false);
        }
        let (mut bytes, mut blocks) = (vec![0; len], Vec::new());
        for (part, index) in bytes.chunks_mut(BLOCK).zip(0..) {
            let Some(pointer) = map::get(self, seed, &tree, index)? else { return Ok(false) };
            self.load(pointer.block, 0, part)?;
            blocks.push(pointer.block);
        }
        if self.seed.xattr_sum(ino, owned.generation, &bytes) != more.xattr_sum {
            return Ok(false);
        }
        let Ok(mut xattrs) = xattr::decode(&bytes) else { return Ok(false) };
        let before = xattrs.len();
        xattrs.retain(|(name, _)| name != b"security.capability");
        if xattrs.len() == before {
            return Ok(false);
        }
        let bytes = xattr::encode(&xattrs);
        for (part, block) in bytes.chunks(BLOCK).zip(&blocks) {
            self.update(LEAF, *block, 0, part)?;
        }
        match bytes.len().div_ceil(BLOCK) {
            0 => tree = Tree::default(),
            count => map::clear(self, seed, &mut tree, count as u64, u64::MAX)?,
        }
        let sum = if bytes.is_empty() { 0 } else { self.seed.xattr_sum(ino, owned.generation, &bytes) };
        self.put(ino, &More { xattrs: tree, xattr_bytes: bytes.len() as u32, xattr_sum: sum, ..more })?;
        Ok(true)
    }

    /// A generation that no life of an inode had, as nearly as can be: what hung on the last one is not valid.
    fn new_generation(&self, ino: u64) -> u32 {
        let superblock = self.storage.superblock.lock().unwrap();
        mix(ino, superblock.generation) as u32 | 1 << 31
    }

    /// Above it are generations that no inode had, as nearly as can be.
    fn raise_floor(&mut self, index: u64) -> Result<()> {
        let mut superblock = self.storage.superblock.lock().unwrap().clone();
        let generation = self.new_generation(index);
        superblock.generation_floor = superblock.generation_floor.max(generation);
        write_superblock(self, &mut superblock)?;
        self.storage = Storage::new(superblock);
        Ok(())
    }

    /// Others than the owner lose their permissions, as lists of what they may do are lost.
    fn close_to_others(&mut self, ino: u64) -> Result<()> {
        match self.owned(ino)? {
            Some(owned) => self.put(ino, &Owned { mode: owned.mode & !0o077, ..owned }),
            None => Ok(()),
        }
    }

    /// Returns what is to be said besides.
    pub(super) fn apply(&mut self, remedy: &Remedy) -> Result<&'static str> {
        match *remedy {
            Remedy::Other | Remedy::Attach { .. } => {}
            Remedy::Bitmap { at, ref bits } => {
                if let Some(layout) = self.storage.bitmaps {
                    self.update(BITMAP, layout.place(at), 0, &bits.encode(self.seed, at))?;
                }
            }
            Remedy::Superblocks => {
                // One after the other.
                let mut superblock = self.storage.superblock.lock().unwrap().clone();
                (0..2).try_for_each(|_| write_superblock(self, &mut superblock))?;
                self.storage = Storage::new(superblock);
            }
            Remedy::Inode(ino) => {
                let generation = self.line::<Owned>(ino)?.map(|owned| owned.generation);
                let generation = generation.unwrap_or_else(|| self.new_generation(ino));
                let (lba, at) = self.storage.place(self, ino)?;
                self.update(INODE_LINE, lba, at, &[0; INODE])?;
                self.put(ino, &Owned { generation, ..Owned::default() })?;
            }
            Remedy::Times(ino) => {
                let now = self.now;
                self.put(ino, &Times { atime: now, mtime: now, ctime: now, btime: now })?;
            }
            Remedy::More(ino) => {
                self.put(ino, &More::default())?;
                self.close_to_others(ino)?;
            }
            Remedy::Target(ino) => self.put(ino, &Target::default())?,
            Remedy::Xattrs(ino) => {
                let more = self.line::<More>(ino)?.unwrap_or_default();
                self.put(ino, &More { xattrs: Tree::default(), xattr_bytes: 0, xattr_sum: 0, ..more })?;
                self.close_to_others(ino)?;
            }
            Remedy::Cut { of, level, index } | Remedy::Twice { of, level, index } => {
                return self.cut_content(of, level, index);
            }
            Remedy::Unowned { ino, index } => return self.cut_content(MapOf::Content(ino), 0, index),
            Remedy::Copy { ino, index } => {
                if self.need(1).is_err() {
                    self.cut_content(MapOf::Content(ino), 0, index)?;
                    return Ok(", but for this file there is no space: they are lost in it");
                }
                self.copy(ino, index)?;
                return self.distrust(ino);
            }
            Remedy::Keep { ino, index } => {
                let of = self.tree(MapOf::Content(ino))?;
                if let (Some((seed, tree)), Some(owned)) = (of, self.owned(ino)?)
                    && let Some(pointer) = map::get(self, seed, &tree, index)?
                    && let Some(rest) = beyond_end(&owned, index)
                {
                    self.update(LEAF, pointer.block, rest, &[0; BLOCK][rest..])?;
                }
                return self.distrust(ino);
            }
            Remedy::Blocks { of, count } => self.with_tree(of, |_, _, tree| {
                tree.blocks = count;
                Ok(())
            })?,
            Remedy::InodeFile => self.fill_inode_file()?,
            Remedy::Entry { at: (lba, slot) }
            | Remedy::Slot { at: (lba, slot) }
            | Remedy::Stray { at: (lba, slot) }
            | Remedy::Name { at: (lba, slot) } => self.update(ENTRY_CLEAR, lba, slot * SLOT, &[0; 8])?,
            Remedy::Root => self.make_root()?,
            Remedy::Leaves(ino) => self.fill_leaves(ino)?,
            Remedy::Links { ino, names } => {
                if let Some(owned) = self.owned(ino)? {
                    self.put(ino, &Owned { links: names, ..owned })?;
                }
            }
            Remedy::Parent { ino, parent } => {
                if let Some(more) = self.line::<More>(ino)? {
                    self.put(ino, &More { parent, ..more })?;
                }
            }
        }
        Ok("")
    }

    /// Gives a block of a file a copy of its own. The block for it was found.
    fn copy(&mut self, ino: u64, index: u64) -> Result<()> {
        let Some(owned) = self.owned(ino)? else { return Ok(()) };
        self.with_tree(MapOf::Content(ino), |it, seed, tree| {
            let Some(pointer) = map::get(it, seed, tree, index)? else { return Ok(()) };
            let (mut bytes, block) = ([0; BLOCK], it.fresh());
            it.load(pointer.block, 0, &mut bytes)?;
            if let Some(rest) = beyond_end(&owned, index) {
                bytes[rest..].fill(0);
            }
            it.update(LEAF, block, 0, &bytes)?;
            map::assign(it, seed, tree, (index, 1), |_| Pointer { block, ..pointer })
        })
    }

    fn level_0(&self, seed: u64, tree: &Tree) -> Result<BTreeSet<u64>> {
        let mut found = BTreeSet::new();
        let end = self.blocks - 1;
        let mut each = |level, index, pointer: Pointer| {
            if level == 0 {
                found.insert(index);
            }
            pointer.block.0 < end
        };
        map::walk(self, seed, tree, &mut each, &mut |_, _, _| ())?;
        Ok(found)
    }

    /// Blocks of inodes that are not in use, up to the last one that is there. Where there may be holes, the first one.
    fn fill_inode_file(&mut self) -> Result<()> {
        let Some((seed, mut tree)) = self.tree(MapOf::InodeFile)? else { return Ok(()) };
        let found = self.level_0(seed, &tree)?;
        let count = found.last().map_or(1, |last| last + 1);
        if count > self.blocks {
            return Err(corrupt("inode file", Fault("it is larger than the volume")));
        }
        let mut filled = Ok(());
        let needed = if self.storage.map().generation_floor > 0 { 1 } else { count };
        for index in (0..needed).filter(|index| !found.contains(index)) {
            filled = self.need(1 + nodes_for(tree.depth, depth_for(index).max(tree.depth), index, index));
            if filled.is_err() {
                break;
            }
            let (block, mut bytes) = (self.fresh(), [0; BLOCK]);
            for (raw, ino) in bytes.chunks_exact_mut(INODE).zip(index * PER_BLOCK..) {
                let owned = Owned { generation: self.new_generation(ino), ..Owned::default() };
                raw[..LINE].copy_from_slice(&owned.encode(self.seed, ino));
            }
            self.update(INODE_BLOCK, block, 0, &bytes)?;
            map::assign(self, seed, &mut tree, (index, 1), |_| Pointer::to(block))?;
        }
        self.set_inode_file(tree, Some(count * PER_BLOCK)).and(filled)
    }

    fn make_root(&mut self) -> Result<()> {
        let generation = match self.line::<Owned>(ROOT)? {
            Some(owned) => owned.generation.wrapping_add(1).max(1),
            None => self.new_generation(ROOT),
        };
        self.apply(&Remedy::Times(ROOT))?;
        self.put(ROOT, &More { parent: ROOT, ..More::default() })?;
        self.put(ROOT, &Target::default())?;
        self.put(ROOT, &Owned { mode: DIRECTORY | 0o755, links: 1, generation, ..Owned::default() })
    }

    /// Makes the leaves of a directory cover each hash once. Of leaves that cover the same, those stay that cover all.
    fn fill_leaves(&mut self, ino: u64) -> Result<()> {
        self.with_tree(MapOf::Content(ino), |it, seed, tree| {
            let mut leaves = it.level_0(seed, tree)?;
            let mut leaving = Vec::new();
            for leaf in leaves.iter().copied().collect::<Vec<_>>() {
                if !leaves.contains(&leaf) {
                    continue;
                }
                let below: Vec<u64> = descendants(&leaves, leaf).collect();
                if below.is_empty() {
                    continue;
                }
                let part = |leaf: u64| 1u64 << (MAX_TRIE_DEPTH - leaf_depth(leaf));
                let covered: u64 = below.iter().map(|leaf| part(*leaf)).sum();
                let goes: BTreeSet<u64> =
                    if covered >= part(leaf) { [leaf].into() } else { below.into_iter().collect() };
                leaves.retain(|leaf| !goes.contains(leaf));
                leaving.extend(goes);
            }
            for leaf in leaving {
                map::clear(it, seed, tree, leaf, leaf + 1)?;
            }
            let mut missing = Vec::new();
            if !leaves.is_empty() {
                gaps(&leaves, 1, &mut missing);
            }
            for leaf in missing {
                it.need(1 + nodes_for(tree.depth, depth_for(leaf).max(tree.depth), leaf, leaf))?;
                let block = it.fresh();
                it.update(LEAF, block, 0, &[0; BLOCK])?;
                map::assign(it, seed, tree, (leaf, 1), |_| Pointer::to(block))?;
            }
            Ok(())
        })
    }
}

/// The byte of a block of a file from which on it is beyond the end of the file.
fn beyond_end(owned: &Owned, index: u64) -> Option<usize> {
    let rest = owned.size.saturating_sub(index.saturating_mul(BLOCK as u64));
    (rest < BLOCK as u64).then_some(rest as usize)
}

/// Leaves that cover a part of what a leaf covers.
fn descendants(leaves: &BTreeSet<u64>, leaf: u64) -> impl Iterator<Item = u64> {
    (1..=MAX_TRIE_DEPTH - leaf_depth(leaf))
        .flat_map(move |depth| leaves.range(leaf << depth..(leaf + 1) << depth).copied())
}

/// The largest leaves that are missing below a place of the trie.
fn gaps(leaves: &BTreeSet<u64>, at: u64, missing: &mut Vec<u64>) {
    if leaves.contains(&at) {
        return;
    }
    if descendants(leaves, at).next().is_none() {
        missing.push(at);
        return;
    }
    gaps(leaves, 2 * at, missing);
    gaps(leaves, 2 * at + 1, missing);
}
