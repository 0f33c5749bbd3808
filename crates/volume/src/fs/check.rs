//! Whether everything on a volume agrees: invariants 5, 6 and 7. Only reads. Each fault has a [`Remedy`], for
//! `repair.rs`.
//!
//! It takes about 80 bytes of memory an inode in use, and three bits a block. `check/disputes.rs` settles who has a
//! block of several owners, `check/lines.rs` what is below the root.

mod disputes;
mod lines;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use lines::{Below, Lines};
use rustix::fs::FileType;
use rustix::io::Errno;
use wholly_error::{Error, Result};
use wholly_media::Region;

use super::bitmaps::{self, Truth};
use super::mount::{FIRST_INODE_BLOCKS, Plain, read_copy, read_superblock};
use super::remedy::{MapOf, RANKS, Remedy};
use super::{DIRECTORY, REGULAR, SYMLINK, TYPE, map};
use crate::engine::marks::Marks;
use crate::engine::{InoGen, Load};
use crate::format::bitmap::Bits;
use crate::format::dir::{self, Leaf, MAX_TRIE_DEPTH, NAME_MAX, SLOT, SLOTS, TWIN_BITS};
use crate::format::inode::{
    FIRST, INODE, INODE_FILE, LINE, Line, More, Owned, PER_BLOCK, ROOT, SHORT_TARGET, Target, Times, Tree,
};
use crate::format::pointer::Pointer;
use crate::format::superblock::{Superblock, copies};
use crate::format::xattr::{self, TOTAL_MAX};
use crate::format::{BLOCK, Lba, Seed, Stream};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: String,
    /// What.
    pub fault: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

/// What a check has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// What is wrong. Nothing: the volume is consistent.
    pub findings: Vec<Finding>,
    /// Copies of the superblock that are not valid, while another one is: a crash in a mount or an unmount leaves that,
    /// and rot may have. The next mount writes them again.
    pub lost_copies: Vec<Finding>,
    /// Inodes in use, by type.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links and special files.
    pub others: u64,
    /// Removed while they were open; the next mount frees them.
    pub orphans: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks that something uses.
    pub used_blocks: u64,
    /// The last block that something uses, but for the superblock's copy at the end, and for bitmaps.
    pub last_used_block: u64,
    /// Blocks of the inode file without inodes in use, which an unmount gives back.
    pub idle_inode_blocks: u64,
    /// Whether the last mount ended with an unmount.
    pub is_clean: bool,
}

/// How far a check is: each pass counts from 0 to `total` of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// 1: inodes and maps; 2: directories; 3: names.
    pub pass: u8,
    /// So many are done.
    pub done: u64,
    /// Of so many.
    pub total: u64,
}

/// Is told how far a check is, and may end it.
pub type Watch<'w> = dyn FnMut(Progress) -> ControlFlow<()> + 'w;

/// Findings of one rank that are listed: what hides behind them is found once they are put right.
const MOST_FINDINGS: usize = 1 << 17;
/// Nodes, leaves or inodes between two looks at whether to go on.
const OFTEN: u32 = 1 << 10;

/// What is known of an inode.
#[derive(Clone, Copy)]
struct Known {
    kind: u8,
    generation: u32,
    links: u32,
    /// Names that were found.
    names: u32,
    /// Of a directory: what it says, and where its name is.
    parent: u64,
    found_in: u64,
    found_at: (Lba, usize),
}

struct Check<'r, 'w> {
    view: Plain<'r>,
    seed: Seed,
    blocks: u64,
    /// Blocks of superblocks, the engine, and structures.
    marks: Marks,
    /// Blocks of content.
    content: Marks,
    /// Blocks of several owners.
    disputed: Marks,
    is_disputed: bool,
    inodes: HashMap<u64, Known>,
    report: Checked,
    remedies: Vec<Remedy>,
    /// Findings by rank, and how many were not listed.
    counts: [usize; RANKS],
    unlisted: u64,
    last: Progress,
    ticks: u32,
    watch: &'w mut Watch<'w>,
}

/// What a check has found, with a remedy for each finding, and which blocks are in use.
pub struct Examined {
    pub checked: Checked,
    pub remedies: Vec<Remedy>,
    pub marks: Marks,
    /// Whether all findings are listed.
    pub is_complete: bool,
}

/// Checks a volume that is not mounted.
///
/// # Errors
/// If there is no volume, or the medium cannot be read; [`Error::Refused`] if `watch` ends it. Damage is reported, not
/// returned.
pub fn check<'w>(region: &dyn Region, watch: &'w mut Watch<'w>) -> Result<Checked> {
    match read_superblock(region) {
        Ok(superblock) => Ok(examine(region, &superblock, watch)?.checked),
        Err(Error::Corrupt { place, fault }) => {
            Ok(Checked { findings: vec![Finding { place, fault }], ..Checked::default() })
        }
        Err(error) => Err(error),
    }
}

/// The same, of a volume with this superblock.
///
/// # Errors
/// As [`check`].
pub fn examine<'w>(region: &dyn Region, superblock: &Superblock, watch: &'w mut Watch<'w>) -> Result<Examined> {
    let mut check = Check {
        view: Plain { region, next: 0 },
        seed: Seed::of(&superblock.volume_id),
        blocks: superblock.blocks,
        marks: Marks::new(superblock.blocks),
        content: Marks::new(superblock.blocks),
        disputed: Marks::new(superblock.blocks),
        is_disputed: false,
        inodes: HashMap::new(),
        report: Checked { blocks: superblock.blocks, is_clean: superblock.is_clean, ..Checked::default() },
        remedies: Vec::new(),
        counts: [0; RANKS],
        unlisted: 0,
        last: Progress { pass: 1, done: 0, total: 0 },
        ticks: 0,
        watch,
    };
    check.superblocks(superblock)?;
    superblock.fixed().for_each(|run| check.marks.mark_run(run));
    let leaves = check.all_inodes(superblock)?;
    check.disputes(superblock, &leaves)?;
    check.all_directories(superblock)?;
    check.names()?;
    // Anything else that is wrong makes bitmaps wrong, too.
    if check.report.findings.is_empty() {
        check.bitmaps(superblock, &leaves)?;
    }
    if check.unlisted > 0 {
        check.find("the volume", format!("{} more faults", check.unlisted), Remedy::Other);
    }
    check.report.used_blocks = (0..check.blocks).filter(|block| check.marks.is_marked(Lba(*block))).count() as u64;
    // A section goes with its bitmap blocks.
    let is_bitmap = |block| superblock.bitmaps.is_some_and(|layout| layout.has(block));
    let is_last = |block: &u64| check.marks.is_marked(Lba(*block)) && !is_bitmap(*block);
    let last_used = (0..check.blocks.saturating_sub(1)).rev().find(is_last);
    check.report.last_used_block = last_used.unwrap_or_default();
    let is_complete = check.unlisted == 0;
    Ok(Examined { checked: check.report, remedies: check.remedies, marks: check.marks, is_complete })
}

impl Check<'_, '_> {
    fn find(&mut self, place: impl Into<String>, fault: impl Into<String>, remedy: Remedy) {
        let count = &mut self.counts[remedy.rank()];
        *count += 1;
        if *count > MOST_FINDINGS {
            self.unlisted += 1;
            return;
        }
        self.report.findings.push(Finding { place: place.into(), fault: fault.into() });
        self.remedies.push(remedy);
    }

    fn progress(&mut self, pass: u8, done: usize, total: usize) -> Result<()> {
        self.last = Progress { pass, done: done as u64, total: total as u64 };
        go_on(self.watch, self.last)
    }

    /// In what takes long: looks whether to go on.
    fn tick(&mut self) -> Result<()> {
        self.ticks += 1;
        if self.ticks.is_multiple_of(OFTEN) { go_on(self.watch, self.last) } else { Ok(()) }
    }

    fn superblocks(&mut self, current: &Superblock) -> Result<()> {
        for at in copies(self.blocks) {
            self.marks.mark(at);
            match read_copy(self.view.region, at)? {
                Err(fault) => {
                    let (place, fault) = (format!("superblock in block {}", at.0), fault.0.into());
                    self.report.lost_copies.push(Finding { place, fault });
                }
                Ok(other) if other.volume_id != current.volume_id => {
                    let place = format!("superblock in block {}", at.0);
                    self.find(place, "it is another volume's", Remedy::Superblocks);
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Walks a map, and marks what it has. Calls `leaf` with the pointers of level 0.
    fn map(
        &mut self,
        of: MapOf,
        seed: u64,
        tree: &Tree,
        is_content: bool,
        mut leaf: impl FnMut(u64, Pointer),
    ) -> Result<()> {
        let (mut faults, mut count) = (Vec::new(), 0);
        let (mut more, mut failed, mut is_whole) = (Vec::new(), Ok(()), true);
        let (blocks, view, marks, disputed) = (self.blocks, &self.view, &self.marks, &self.disputed);
        let of_leaves = if is_content { &self.content } else { marks };
        let (watch, ticks, last, is_disputed) = (&mut *self.watch, &mut self.ticks, self.last, &mut self.is_disputed);
        let walked = map::walk(
            view,
            seed,
            tree,
            &mut |level, index, pointer| {
                count += 1;
                *ticks += 1;
                if failed.is_ok() && ticks.is_multiple_of(OFTEN) {
                    failed = go_on(watch, last);
                }
                if failed.is_err() {
                    return false;
                }
                let block = pointer.block;
                let cut = Remedy::Cut { of, level, index };
                if block.0 >= blocks - 1 {
                    more.push((format!("block {} is beyond the end of the volume", block.0), cut));
                    return false;
                }
                if level == 0 {
                    if of_leaves.mark(block) {
                        disputed.mark(block);
                        *is_disputed = true;
                    }
                    leaf(index, pointer);
                    return true;
                }
                // Before it is marked: a block that is another's is not to be taken from that one.
                match map::is_node(view, seed, (level, index), block) {
                    Ok(true) => {}
                    Ok(false) => {
                        more.push((format!("corrupt node in block {}: nothing in it is the map's", block.0), cut));
                        return false;
                    }
                    Err(error) => {
                        failed = Err(error);
                        return false;
                    }
                }
                if marks.mark(block) {
                    disputed.mark(block);
                    (*is_disputed, is_whole) = (true, false);
                    return false;
                }
                true
            },
            &mut |level, index, error| faults.push((error.to_string(), Remedy::Cut { of, level, index })),
        );
        failed.and(walked)?;
        if faults.is_empty() && more.is_empty() && is_whole && count != tree.blocks {
            more.push((format!("it has {count} blocks, and says {}", tree.blocks), Remedy::Blocks { of, count }));
        }
        faults.into_iter().chain(more).for_each(|(fault, remedy)| self.find(of.to_string(), fault, remedy));
        Ok(())
    }

    /// Reads all inodes. Returns where they are.
    fn all_inodes(&mut self, superblock: &Superblock) -> Result<Vec<(u64, Lba)>> {
        let mut leaves = Vec::new();
        let seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
        let tree = &superblock.inode_tree;
        self.map(MapOf::InodeFile, seed, tree, false, |index, pointer| leaves.push((index, pointer.block)))?;
        for (index, _) in leaves.iter().filter(|(index, _)| *index >= self.blocks).copied().collect::<Vec<_>>() {
            let cut = Remedy::Cut { of: MapOf::InodeFile, level: 0, index };
            self.find("inode file", format!("there cannot be a block {index}"), cut);
        }
        leaves.retain(|(index, _)| *index < self.blocks);
        let (count, end) = (leaves.len() as u64, leaves.last().map_or(0, |(index, _)| index + 1));
        let is_whole = match superblock.generation_floor {
            0 => end == count && end * PER_BLOCK == superblock.inodes,
            _ => leaves.first().is_some_and(|(index, _)| *index == 0) && end * PER_BLOCK <= superblock.inodes,
        };
        if !is_whole {
            let fault = format!("it has {count} blocks, for {} inodes", superblock.inodes);
            self.find("inode file", fault, Remedy::InodeFile);
        }
        let total = leaves.len();
        let mut kept = Vec::with_capacity(total);
        for (done, (index, lba)) in leaves.into_iter().enumerate() {
            self.progress(1, done, total)?;
            let mut bytes = [0; BLOCK];
            self.view.load(lba, 0, &mut bytes)?;
            if bytes != [0; BLOCK] && !self.has_inodes(index, &bytes) {
                // A pointer to a block that is another's, perhaps: nothing is written there.
                let cut = Remedy::Cut { of: MapOf::InodeFile, level: 0, index };
                self.find("inode file", format!("corrupt block {}: nothing in it is of its inodes", lba.0), cut);
                continue;
            }
            kept.push((index, lba));
            let mut is_idle = index >= FIRST_INODE_BLOCKS;
            for (slot, raw) in bytes.chunks_exact(INODE).enumerate() {
                is_idle &= self.inode(index * PER_BLOCK + slot as u64, raw)?;
            }
            self.report.idle_inode_blocks += u64::from(is_idle);
        }
        Ok(kept)
    }

    /// Whether a line of a block of the inode file proves that it belongs there.
    fn has_inodes(&self, index: u64, bytes: &[u8; BLOCK]) -> bool {
        let proves = |(slot, raw): (usize, &[u8])| {
            let ino = index * PER_BLOCK + slot as u64;
            let line = |number: usize| -> &[u8; LINE] { raw[number * LINE..][..LINE].try_into().expect("a line") };
            let is_used = |number: usize| *line(number) != [0; LINE];
            is_used(Owned::NUMBER) && Owned::decode(self.seed, ino, line(Owned::NUMBER)).is_ok()
                || is_used(Times::NUMBER) && Times::decode(self.seed, ino, line(Times::NUMBER)).is_ok()
                || is_used(More::NUMBER) && More::decode(self.seed, ino, line(More::NUMBER)).is_ok()
                || is_used(Target::NUMBER) && Target::decode(self.seed, ino, line(Target::NUMBER)).is_ok()
        };
        bytes.chunks_exact(INODE).enumerate().any(proves)
    }

    /// Returns whether it is free.
    fn inode(&mut self, ino: u64, raw: &[u8]) -> Result<bool> {
        let line = |number: usize| raw[number * LINE..][..LINE].try_into().expect("a line");
        let name = format!("inode {ino}");
        let owned = match Owned::decode(self.seed, ino, line(0)) {
            Ok(owned) if owned.mode == 0 => return Ok(true),
            Ok(owned) => owned,
            Err(fault) => {
                self.find(name, fault.0, Remedy::Inode(ino));
                return Ok(false);
            }
        };
        if ino < FIRST && ino != ROOT {
            self.find(name, "its number is reserved", Remedy::Inode(ino));
            return Ok(false);
        }
        let kind = owned.mode & TYPE;
        if FileType::from_raw_mode(kind) == FileType::Unknown {
            self.find(name, format!("it has no type, but {kind:#o}"), Remedy::Inode(ino));
            return Ok(false);
        }
        let all = (
            Times::decode(self.seed, ino, line(1)),
            More::decode(self.seed, ino, line(2)),
            Target::decode(self.seed, ino, line(3)),
        );
        let (more, target) = match all {
            (Ok(_), Ok(more), Ok(target)) => (more, target),
            (times, more, target) => {
                let of_more = if is_device(kind) { Remedy::Inode(ino) } else { Remedy::More(ino) };
                let of_target = if kind == SYMLINK { Remedy::Inode(ino) } else { Remedy::Target(ino) };
                let faults = [(times.err(), Remedy::Times(ino)), (more.err(), of_more), (target.err(), of_target)];
                for (fault, remedy) in faults {
                    fault.into_iter().for_each(|fault| self.find(name.clone(), fault.0, remedy.clone()));
                }
                return Ok(false);
            }
        };
        let id = InoGen { ino, generation: owned.generation };
        match kind {
            REGULAR => self.report.files += 1,
            DIRECTORY => self.report.directories += 1,
            _ => self.report.others += 1,
        }
        self.report.orphans += u64::from(owned.links == 0);
        let known = Known {
            kind: (kind >> 12) as u8,
            generation: owned.generation,
            links: owned.links,
            // The root has no name, and is named.
            names: u32::from(ino == ROOT),
            parent: more.parent,
            found_in: 0,
            found_at: (Lba(0), 0),
        };
        self.inodes.insert(ino, known);
        let data = self.seed.stream(ino, owned.generation, Stream::Data);
        let mut first = None;
        self.map(MapOf::Content(ino), data, &owned.tree, kind == REGULAR, |index, pointer| {
            first = first.or((index == 0).then_some(pointer));
        })?;
        if kind == SYMLINK {
            self.target(&name, id, &owned, &target, first)?;
        }
        self.xattrs(id, &more)?;
        Ok(false)
    }

    fn target(&mut self, name: &str, id: InoGen, owned: &Owned, target: &Target, first: Option<Pointer>) -> Result<()> {
        let len = owned.size as usize;
        if len <= SHORT_TARGET {
            if len == 0 || owned.tree.blocks > 0 {
                self.find(name, "a symbolic link with an impossible target", Remedy::Inode(id.ino));
            }
            return Ok(());
        }
        let Some(pointer) = first.filter(|_| len < BLOCK) else {
            self.find(name, "a symbolic link without its target", Remedy::Inode(id.ino));
            return Ok(());
        };
        let mut bytes = vec![0; len];
        self.view.load(pointer.block, 0, &mut bytes)?;
        if self.seed.target_sum(id.ino, id.generation, &bytes) != target.sum {
            self.find(name, "its target has a wrong checksum", Remedy::Inode(id.ino));
        }
        Ok(())
    }

    fn xattrs(&mut self, id: InoGen, more: &More) -> Result<()> {
        let of = MapOf::Xattrs(id.ino);
        let (name, remedy) = (of.to_string(), Remedy::Xattrs(id.ino));
        let seed = self.seed.stream(id.ino, id.generation, Stream::Xattr);
        let mut blocks = Vec::new();
        self.map(of, seed, &more.xattrs, false, |index, pointer| blocks.push((index, pointer.block)))?;
        let len = more.xattr_bytes as usize;
        let wanted = len.div_ceil(BLOCK);
        if len > TOTAL_MAX || blocks.len() != wanted || blocks.iter().zip(0..).any(|((index, _), i)| *index != i) {
            self.find(name, format!("{len} bytes in {} blocks", blocks.len()), remedy);
            return Ok(());
        }
        let mut bytes = vec![0; len];
        for ((_, lba), part) in blocks.iter().zip(bytes.chunks_mut(BLOCK)) {
            self.view.load(*lba, 0, part)?;
        }
        if len > 0 && self.seed.xattr_sum(id.ino, id.generation, &bytes) != more.xattr_sum {
            self.find(name, "they have a wrong checksum", remedy);
        } else if let Err(fault) = xattr::decode(&bytes) {
            self.find(name, fault.0, remedy);
        }
        Ok(())
    }

    /// Reads the leaves of all directories, found again by the inode file.
    fn all_directories(&mut self, superblock: &Superblock) -> Result<()> {
        let mut dirs: Vec<u64> = self
            .inodes
            .iter()
            .filter(|(_, known)| u32::from(known.kind) << 12 == DIRECTORY)
            .map(|(ino, _)| *ino)
            .collect();
        dirs.sort_unstable();
        let inode_seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
        let total = dirs.len();
        for (done, ino) in dirs.into_iter().enumerate() {
            self.progress(2, done, total)?;
            let Ok(Some(pointer)) = map::get(&self.view, inode_seed, &superblock.inode_tree, ino / PER_BLOCK) else {
                continue;
            };
            let mut raw = [0; LINE];
            self.view.load(pointer.block, (ino % PER_BLOCK) as usize * INODE, &mut raw)?;
            let Ok(owned) = Owned::decode(self.seed, ino, &raw) else { continue };
            self.directory(ino, &owned)?;
        }
        Ok(())
    }

    fn directory(&mut self, ino: u64, owned: &Owned) -> Result<()> {
        let place = format!("directory {ino}");
        let seed = self.seed.stream(ino, owned.generation, Stream::Data);
        let mut leaves = Vec::new();
        // Faults of the map were found before.
        let blocks = self.blocks;
        map::walk(
            &self.view,
            seed,
            &owned.tree,
            &mut |level, index, pointer| {
                if level == 0 {
                    leaves.push((index, pointer.block));
                }
                pointer.block.0 < blocks - 1
            },
            &mut |_, _, _| (),
        )?;
        // Leaves of a trie cover each hash once.
        let mut covered = 0u64;
        for (number, lba) in leaves {
            if number == 0 || dir::leaf_depth(number) > MAX_TRIE_DEPTH {
                let cut = Remedy::Cut { of: MapOf::Content(ino), level: 0, index: number };
                self.find(place.clone(), format!("there is no leaf {number:#x}"), cut);
                continue;
            }
            self.tick()?;
            covered += 1 << (MAX_TRIE_DEPTH - dir::leaf_depth(number));
            self.leaf(&place, (ino, seed, owned.links), number, lba)?;
        }
        if covered != 0 && covered != 1 << MAX_TRIE_DEPTH {
            self.find(place, "its leaves do not cover each hash once", Remedy::Leaves(ino));
        }
        Ok(())
    }

    fn leaf(&mut self, place: &str, (ino, seed, links): (u64, u64, u32), number: u64, lba: Lba) -> Result<()> {
        let mut bytes = [0; BLOCK];
        self.view.load(lba, 0, &mut bytes)?;
        let leaf = Leaf::new(seed, &bytes);
        let keys = dir::leaf_keys(number);
        let (mut entries, mut faults) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        let mut slot = 0;
        while slot < SLOTS {
            let entry = match leaf.at(slot) {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    slot += 1;
                    continue;
                }
                Err(fault) => {
                    faults.push((fault.0.to_string(), Remedy::Entry { at: (lba, slot) }));
                    slot += 1;
                    continue;
                }
            };
            let mut buf = [0; NAME_MAX];
            let name = leaf.name(entry, &mut buf);
            let shown = String::from_utf8_lossy(name);
            let count = dir::slots_for(name.len());
            if let Err(fault) = leaf.check_name(entry, name) {
                // It may be stale, and the slots behind it another's by now.
                faults.push((fault.0.to_string(), Remedy::Entry { at: (lba, slot) }));
                slot += 1;
                continue;
            }
            let fault = if name.contains(&0) || name.contains(&b'/') || name == b"." || name == b".." {
                Some(format!("{shown:?} cannot be a name"))
            } else if dir::hash(self.seed, name) != entry.head.key >> TWIN_BITS {
                Some(format!("{shown:?} has a key that is not its hash"))
            } else if !(keys.0..keys.1).contains(&entry.head.key) {
                Some(format!("{shown:?} is in the wrong leaf"))
            } else if !seen.insert(entry.head.key) || entries.iter().any(|(other, _, _)| other == name) {
                Some(format!("{shown:?} is there twice"))
            } else {
                None
            };
            match fault {
                Some(fault) => faults.push((fault, Remedy::Entry { at: (lba, slot) })),
                None => entries.push((name.to_vec(), entry.head, slot)),
            }
            // They must be as if free: the next entry that is removed leaves them so.
            for more in slot + 1..slot + count {
                if bytes[more * SLOT..][..8] != [0; 8] {
                    let fault = format!("slot {more} of {shown:?} does not begin with zeros");
                    faults.push((fault, Remedy::Slot { at: (lba, more) }));
                }
            }
            slot += count;
        }
        if entries.is_empty() {
            // Nothing proves that the block is this directory's.
            let cut = Remedy::Cut { of: MapOf::Content(ino), level: 0, index: number };
            faults.iter_mut().for_each(|(_, remedy)| *remedy = cut.clone());
        }
        let leaf_place = format!("{place}, leaf {number:#x} in block {}", lba.0);
        faults.into_iter().for_each(|(fault, remedy)| self.find(leaf_place.clone(), fault, remedy));
        for (name, head, slot) in entries {
            let shown = String::from_utf8_lossy(&name).into_owned();
            let at = (lba, slot);
            let remove = Remedy::Name { at };
            let known = self.inodes.get_mut(&head.ino);
            let is_dir = u32::from(head.kind) << 12 == DIRECTORY;
            match known {
                _ if links == 0 => {
                    self.find(place, format!("it is removed, and has the name {shown:?}"), Remedy::Stray { at });
                }
                None => self.find(place, format!("{shown:?} names inode {}, which is not in use", head.ino), remove),
                Some(known) if known.kind != head.kind => {
                    self.find(place, format!("{shown:?} names inode {} as another type", head.ino), remove);
                }
                Some(known) if is_dir && known.names > 0 => {
                    let fault = format!("{shown:?} names directory {}, which has another name", head.ino);
                    self.find(place, fault, remove);
                }
                Some(known) => {
                    known.names += 1;
                    (known.found_in, known.found_at) = (ino, at);
                }
            }
        }
        Ok(())
    }

    /// Compares the bitmaps with what was found.
    fn bitmaps(&mut self, superblock: &Superblock, leaves: &[(u64, Lba)]) -> Result<()> {
        let Some(layout) = superblock.bitmaps else { return Ok(()) };
        let present: HashSet<u64> = leaves.iter().map(|(index, _)| *index).collect();
        let mut faults = Vec::new();
        {
            let is_used = |block| self.marks.is_marked(Lba(block));
            let life = |ino| match self.inodes.get(&ino) {
                Some(known) => (true, known.links == 0),
                None if ino < FIRST => (true, false),
                None => (false, !present.contains(&(ino / PER_BLOCK))),
            };
            let truth = Truth { is_used: &is_used, life: &life };
            for at in layout.all(superblock.blocks, superblock.inodes) {
                let mut block = [0; BLOCK];
                self.view.load(layout.place(at), 0, &mut block)?;
                let mut expected = bitmaps::expected(superblock, at, &truth);
                let fault = match Bits::decode(self.seed, at, &block) {
                    Err(fault) => fault.0.to_string(),
                    Ok(bits) => {
                        if let Some(bit) = bitmaps::without_meaning(superblock, at) {
                            expected.set(bit, bits.get(bit));
                        }
                        let ones = |of: &Bits, but: &Bits| {
                            let words = of.words().iter().zip(but.words());
                            words.map(|(of, but)| (of & !but).count_ones()).sum::<u32>()
                        };
                        match (ones(&bits, &expected), ones(&expected, &bits)) {
                            (0, 0) => continue,
                            (ones, zeros) => format!("{ones} bits are 1 that are to be 0, and {zeros} the other way"),
                        }
                    }
                };
                faults.push((at, fault, expected));
            }
        }
        faults.into_iter().for_each(|(at, fault, bits)| self.find(at.to_string(), fault, Remedy::Bitmap { at, bits }));
        Ok(())
    }

    fn names(&mut self) -> Result<()> {
        let mut all: Vec<(u64, Known)> = self.inodes.iter().map(|(ino, known)| (*ino, *known)).collect();
        all.sort_unstable_by_key(|(ino, _)| *ino);
        self.progress(3, 0, all.len())?;
        match self.inodes.get(&ROOT) {
            Some(root) if u32::from(root.kind) << 12 == DIRECTORY => {}
            Some(_) => self.find("inode 1", "there is no root directory", Remedy::Inode(ROOT)),
            None => self.find("inode 1", "there is no root directory", Remedy::Root),
        }
        let mut lines = Lines::new();
        for (ino, known) in all {
            self.tick()?;
            let place = format!("inode {ino}");
            let is_dir = u32::from(known.kind) << 12 == DIRECTORY;
            if known.names != known.links {
                let remedy = match known.names {
                    0 => Remedy::Attach { ino, kind: known.kind },
                    names => Remedy::Links { ino, names },
                };
                self.find(place, format!("it has {} names, and says {}", known.names, known.links), remedy);
                continue;
            }
            if !is_dir || known.links == 0 || ino == ROOT {
                continue;
            }
            if known.parent != known.found_in {
                let remedy = Remedy::Parent { ino, parent: known.found_in };
                self.find(place, format!("its parent is {}, and it says {}", known.found_in, known.parent), remedy);
                continue;
            }
            let parent = |ino: u64| self.inodes.get(&ino).map_or(0, |known| known.parent);
            let remedy = match lines.place_of(ino, parent) {
                Below::Root => continue,
                // One of a circle loses its name.
                Below::ItselfFirst => Remedy::Name { at: known.found_at },
                Below::Nothing => Remedy::Other,
            };
            self.find(place, "it is not below the root", remedy);
        }
        Ok(())
    }
}

fn go_on(watch: &mut Watch<'_>, progress: Progress) -> Result<()> {
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Refused("the check".into(), Errno::INTR)),
    }
}

fn is_device(kind: u32) -> bool {
    matches!(FileType::from_raw_mode(kind), FileType::BlockDevice | FileType::CharacterDevice)
}
