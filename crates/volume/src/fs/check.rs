//! Whether everything on a volume agrees: invariants 5, 6 and 7. Only reads. Each fault has a [`Remedy`], for
//! `repair.rs`.
//!
//! It takes about 80 bytes of memory an inode in use, and one bit a block.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use rustix::fs::FileType;
use rustix::io::Errno;
use wholly::{Error, Result};
use wholly_media::Region;

use super::mount::{Marks, Plain, read_superblock};
use super::remedy::{MapOf, Remedy};
use super::{DIRECTORY, REGULAR, SYMLINK, TYPE, map};
use crate::engine::{InoGen, Load};
use crate::format::dir::{self, Leaf, MAX_TRIE_DEPTH, NAME_MAX, SLOT, SLOTS, TWIN_BITS};
use crate::format::inode::{
    FIRST, INODE, INODE_FILE, LINE, Line, More, Owned, PER_BLOCK, ROOT, SHORT_TARGET, Target, Times,
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
    /// The last block that something uses, but for the superblock's copy at the end.
    pub last_used_block: u64,
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

/// What is known of an inode.
#[derive(Clone, Copy)]
struct Known {
    kind: u8,
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
    marks: Marks,
    inodes: HashMap<u64, Known>,
    report: Checked,
    remedies: Vec<Remedy>,
    watch: &'w mut Watch<'w>,
}

/// What a check has found, with a remedy for each finding, and which blocks are in use.
pub struct Examined {
    pub checked: Checked,
    pub remedies: Vec<Remedy>,
    pub marks: Marks,
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
        inodes: HashMap::new(),
        report: Checked { blocks: superblock.blocks, is_clean: superblock.is_clean, ..Checked::default() },
        remedies: Vec::new(),
        watch,
    };
    check.superblocks(superblock)?;
    if let Some(log) = superblock.log {
        check.marks.mark_run(log.run());
    }
    check.all_inodes(superblock)?;
    check.all_directories(superblock)?;
    check.names()?;
    check.report.used_blocks = (0..check.blocks).filter(|block| check.marks.is_marked(Lba(*block))).count() as u64;
    let last_used = (0..check.blocks.saturating_sub(1)).rev().find(|block| check.marks.is_marked(Lba(*block)));
    check.report.last_used_block = last_used.unwrap_or_default();
    Ok(Examined { checked: check.report, remedies: check.remedies, marks: check.marks })
}

impl Check<'_, '_> {
    fn find(&mut self, place: impl Into<String>, fault: impl Into<String>, remedy: Remedy) {
        self.report.findings.push(Finding { place: place.into(), fault: fault.into() });
        self.remedies.push(remedy);
    }

    fn progress(&mut self, pass: u8, done: usize, total: usize) -> Result<()> {
        match (self.watch)(Progress { pass, done: done as u64, total: total as u64 }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Refused("the check".into(), Errno::INTR)),
        }
    }

    fn superblocks(&mut self, current: &Superblock) -> Result<()> {
        for at in copies(self.blocks) {
            self.marks.mark(at);
            let mut bytes = [0; BLOCK];
            self.view.load(at, 0, &mut bytes)?;
            match Superblock::decode(&bytes, at) {
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
        tree: &crate::format::inode::Tree,
        mut leaf: impl FnMut(u64, Pointer),
    ) -> Result<()> {
        let (mut faults, mut count) = (Vec::new(), 0);
        let (mut more, mut failed) = (Vec::new(), Ok(()));
        let (marks, blocks, view) = (&self.marks, self.blocks, &self.view);
        let walked = map::walk(
            view,
            seed,
            tree,
            &mut |level, index, pointer| {
                count += 1;
                let block = pointer.block;
                let cut = Remedy::Cut { of, level, index };
                if block.0 >= blocks - 1 {
                    more.push((format!("block {} is beyond the end of the volume", block.0), cut));
                    return false;
                }
                // Before it is marked: a block that is another's is not to be taken from that one.
                match if level == 0 { Ok(true) } else { map::is_node(view, seed, (level, index), block) } {
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
                    more.push((format!("block {} is used twice", block.0), Remedy::Twice { of, level, index }));
                    return false;
                }
                if level == 0 {
                    leaf(index, pointer);
                }
                true
            },
            &mut |level, index, error| faults.push((error.to_string(), Remedy::Cut { of, level, index })),
        );
        walked.and(failed)?;
        if faults.is_empty() && more.is_empty() && count != tree.blocks {
            more.push((format!("it has {count} blocks, and says {}", tree.blocks), Remedy::Blocks { of, count }));
        }
        faults.into_iter().chain(more).for_each(|(fault, remedy)| self.find(of.to_string(), fault, remedy));
        Ok(())
    }

    fn all_inodes(&mut self, superblock: &Superblock) -> Result<()> {
        let mut leaves = Vec::new();
        let seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
        let tree = &superblock.inode_tree;
        self.map(MapOf::InodeFile, seed, tree, |index, pointer| leaves.push((index, pointer.block)))?;
        if leaves.len() as u64 * PER_BLOCK != superblock.inodes {
            let fault = format!("it has {} blocks, for {} inodes", leaves.len(), superblock.inodes);
            self.find("inode file", fault, Remedy::InodeFile);
        }
        let total = leaves.len();
        for (done, (index, lba)) in leaves.into_iter().enumerate() {
            self.progress(1, done, total)?;
            let mut bytes = [0; BLOCK];
            self.view.load(lba, 0, &mut bytes)?;
            for (slot, raw) in bytes.chunks_exact(INODE).enumerate() {
                self.inode(index * PER_BLOCK + slot as u64, raw)?;
            }
        }
        Ok(())
    }

    fn inode(&mut self, ino: u64, raw: &[u8]) -> Result<()> {
        let line = |number: usize| raw[number * LINE..][..LINE].try_into().expect("a line");
        let name = format!("inode {ino}");
        let owned = match Owned::decode(self.seed, ino, line(0)) {
            Ok(owned) if owned.mode == 0 => return Ok(()),
            Ok(owned) => owned,
            Err(fault) => {
                self.find(name, fault.0, Remedy::Inode(ino));
                return Ok(());
            }
        };
        if ino < FIRST && ino != ROOT {
            self.find(name, "its number is reserved", Remedy::Inode(ino));
            return Ok(());
        }
        let kind = owned.mode & TYPE;
        if FileType::from_raw_mode(kind) == FileType::Unknown {
            self.find(name, format!("it has no type, but {kind:#o}"), Remedy::Inode(ino));
            return Ok(());
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
                return Ok(());
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
        self.map(MapOf::Content(ino), data, &owned.tree, |index, pointer| {
            first = first.or((index == 0).then_some(pointer));
        })?;
        if kind == SYMLINK {
            self.target(&name, id, &owned, &target, first)?;
        }
        self.xattrs(id, &more)
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
        self.map(of, seed, &more.xattrs, |index, pointer| blocks.push((index, pointer.block)))?;
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
            let fault = if let Err(fault) = leaf.check_name(entry, name) {
                Some(fault.0.to_string())
            } else if name.contains(&0) || name.contains(&b'/') || name == b"." || name == b".." {
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
            let remove = Remedy::Name { at: (lba, slot) };
            let known = self.inodes.get_mut(&head.ino);
            let is_dir = u32::from(head.kind) << 12 == DIRECTORY;
            match known {
                _ if links == 0 => self.find(place, format!("it is removed, and has the name {shown:?}"), remove),
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
                    (known.found_in, known.found_at) = (ino, (lba, slot));
                }
            }
        }
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
        let (mut sound, mut parted) = (HashSet::from([ROOT]), HashSet::new());
        for (ino, known) in all {
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
            // Up to a directory that is known to be below the root, or round in circles.
            let (mut line, mut at) = (vec![ino], known.parent);
            let mut on_line = HashSet::from([ino]);
            while !sound.contains(&at) && on_line.insert(at) {
                line.push(at);
                at = self.inodes.get(&at).map_or(0, |known| known.parent);
            }
            if sound.contains(&at) {
                sound.extend(line);
                continue;
            }
            // One of a circle loses its name.
            let is_first = at == ino && line.iter().all(|ino| !parted.contains(ino));
            let remedy = if is_first { Remedy::Name { at: known.found_at } } else { Remedy::Other };
            parted.extend(is_first.then_some(ino));
            self.find(place, "it is not below the root", remedy);
        }
        Ok(())
    }
}

fn is_device(kind: u32) -> bool {
    matches!(FileType::from_raw_mode(kind), FileType::BlockDevice | FileType::CharacterDevice)
}
