//! Whether everything on a volume agrees: invariants 5, 6 and 7. Only reads.
//!
//! It takes about 60 bytes of memory an inode in use, and one bit a block.

use std::collections::{HashMap, HashSet};

use wholly::{Error, Result};
use wholly_media::Region;

use super::mount::{Marks, Plain, read_superblock};
use super::{DIRECTORY, REGULAR, SYMLINK, TYPE, map};
use crate::engine::{InoGen, Load};
use crate::format::dir::{self, Leaf, MAX_TRIE_DEPTH, NAME_MAX, TWIN_BITS};
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

/// What is known of an inode.
#[derive(Clone, Copy, Default)]
struct Known {
    kind: u8,
    links: u32,
    /// Names that were found.
    names: u32,
    /// Of a directory: what it says, and where its name is.
    parent: u64,
    found_in: u64,
}

struct Check<'r> {
    view: Plain<'r>,
    seed: Seed,
    blocks: u64,
    marks: Marks,
    inodes: HashMap<u64, Known>,
    report: Checked,
}

/// Checks a volume that is not mounted.
///
/// # Errors
/// If there is no volume, or the medium cannot be read. Damage is reported, not returned.
pub fn check(region: &dyn Region) -> Result<Checked> {
    let superblock = match read_superblock(region) {
        Ok(superblock) => superblock,
        Err(Error::Corrupt { place, fault }) => {
            return Ok(Checked { findings: vec![Finding { place, fault }], ..Checked::default() });
        }
        Err(error) => return Err(error),
    };
    let mut check = Check {
        view: Plain { region, next: 0 },
        seed: Seed::of(&superblock.volume_id),
        blocks: superblock.blocks,
        marks: Marks::new(superblock.blocks),
        inodes: HashMap::new(),
        report: Checked { blocks: superblock.blocks, is_clean: superblock.is_clean, ..Checked::default() },
    };
    check.superblocks(&superblock)?;
    superblock.of_engine().for_each(|run| check.marks.mark_run(run));
    check.all_inodes(&superblock)?;
    check.all_directories(&superblock)?;
    check.names();
    check.report.used_blocks = (0..check.blocks).filter(|block| check.marks.is_marked(Lba(*block))).count() as u64;
    let last_used = (0..check.blocks.saturating_sub(1)).rev().find(|block| check.marks.is_marked(Lba(*block)));
    check.report.last_used_block = last_used.unwrap_or_default();
    Ok(check.report)
}

impl Check<'_> {
    fn find(&mut self, place: impl Into<String>, fault: impl Into<String>) {
        self.report.findings.push(Finding { place: place.into(), fault: fault.into() });
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
                    self.find(format!("superblock in block {}", at.0), "it is another volume's");
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Walks a map, and marks what it has. Returns the pointers of level 0, if asked for, and the number of blocks.
    fn map(
        &mut self,
        name: &str,
        seed: u64,
        tree: &crate::format::inode::Tree,
        mut leaf: impl FnMut(u64, Pointer),
    ) -> Result<()> {
        let (mut faults, mut count) = (Vec::new(), 0);
        let mut more = Vec::new();
        let (marks, blocks) = (&self.marks, self.blocks);
        let walked = map::walk(
            &self.view,
            seed,
            tree,
            &mut |level, index, pointer| {
                count += 1;
                if pointer.block.0 >= blocks - 1 {
                    more.push(format!("block {} is beyond the end of the volume", pointer.block.0));
                    return false;
                }
                if marks.mark(pointer.block) {
                    more.push(format!("block {} is used twice", pointer.block.0));
                    return false;
                }
                if level == 0 {
                    leaf(index, pointer);
                }
                true
            },
            &mut |error| faults.push(error.to_string()),
        );
        walked?;
        if faults.is_empty() && more.is_empty() && count != tree.blocks {
            more.push(format!("it has {count} blocks, and says {}", tree.blocks));
        }
        faults.into_iter().chain(more).for_each(|fault| self.find(name, fault));
        Ok(())
    }

    fn all_inodes(&mut self, superblock: &Superblock) -> Result<()> {
        let mut leaves = Vec::new();
        let seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
        self.map("inode file", seed, &superblock.inode_tree, |index, pointer| leaves.push((index, pointer.block)))?;
        if leaves.len() as u64 * PER_BLOCK != superblock.inodes {
            self.find("inode file", format!("it has {} blocks, for {} inodes", leaves.len(), superblock.inodes));
        }
        for (index, lba) in leaves {
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
                self.find(name, fault.0);
                return Ok(());
            }
        };
        if ino < FIRST && ino != ROOT {
            self.find(name.clone(), "its number is reserved");
        }
        let all = (
            Times::decode(self.seed, ino, line(1)),
            More::decode(self.seed, ino, line(2)),
            Target::decode(self.seed, ino, line(3)),
        );
        let (more, target) = match all {
            (Ok(_), Ok(more), Ok(target)) => (more, target),
            (times, more, target) => {
                let faults = [times.err(), more.err(), target.err()];
                faults.into_iter().flatten().for_each(|fault| self.find(name.clone(), fault.0));
                return Ok(());
            }
        };
        let id = InoGen { ino, generation: owned.generation };
        let kind = owned.mode & TYPE;
        match kind {
            REGULAR => self.report.files += 1,
            DIRECTORY => self.report.directories += 1,
            _ => self.report.others += 1,
        }
        self.report.orphans += u64::from(owned.links == 0);
        let known = Known { kind: (kind >> 12) as u8, links: owned.links, parent: more.parent, ..Known::default() };
        self.inodes.insert(ino, known);
        let data = self.seed.stream(ino, owned.generation, Stream::Data);
        let mut first = None;
        self.map(&format!("content of inode {ino}"), data, &owned.tree, |index, pointer| {
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
                self.find(name, "a symbolic link with an impossible target");
            }
            return Ok(());
        }
        let Some(pointer) = first.filter(|_| len < BLOCK) else {
            self.find(name, "a symbolic link without its target");
            return Ok(());
        };
        let mut bytes = vec![0; len];
        self.view.load(pointer.block, 0, &mut bytes)?;
        if self.seed.target_sum(id.ino, id.generation, &bytes) != target.sum {
            self.find(name, "its target has a wrong checksum");
        }
        Ok(())
    }

    fn xattrs(&mut self, id: InoGen, more: &More) -> Result<()> {
        let name = format!("extended attributes of inode {}", id.ino);
        let seed = self.seed.stream(id.ino, id.generation, Stream::Xattr);
        let mut blocks = Vec::new();
        self.map(&name, seed, &more.xattrs, |index, pointer| blocks.push((index, pointer.block)))?;
        let len = more.xattr_bytes as usize;
        let wanted = len.div_ceil(BLOCK);
        if len > TOTAL_MAX || blocks.len() != wanted || blocks.iter().zip(0..).any(|((index, _), i)| *index != i) {
            self.find(name, format!("{len} bytes in {} blocks", blocks.len()));
            return Ok(());
        }
        let mut bytes = vec![0; len];
        for ((_, lba), part) in blocks.iter().zip(bytes.chunks_mut(BLOCK)) {
            self.view.load(*lba, 0, part)?;
        }
        if len > 0 && self.seed.xattr_sum(id.ino, id.generation, &bytes) != more.xattr_sum {
            self.find(name, "they have a wrong checksum");
        } else if let Err(fault) = xattr::decode(&bytes) {
            self.find(name, fault.0);
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
        for ino in dirs {
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
            &mut |_| (),
        )?;
        // Leaves of a trie cover each hash once.
        let mut covered = 0u64;
        for (number, lba) in leaves {
            if number == 0 || dir::leaf_depth(number) > MAX_TRIE_DEPTH {
                self.find(place.clone(), format!("there is no leaf {number:#x}"));
                continue;
            }
            covered += 1 << (MAX_TRIE_DEPTH - dir::leaf_depth(number));
            self.leaf(&place, (ino, seed), number, lba)?;
        }
        if covered != 0 && covered != 1 << MAX_TRIE_DEPTH {
            self.find(place, "its leaves do not cover each hash once");
        }
        Ok(())
    }

    fn leaf(&mut self, place: &str, (ino, seed): (u64, u64), number: u64, lba: Lba) -> Result<()> {
        let mut bytes = [0; BLOCK];
        self.view.load(lba, 0, &mut bytes)?;
        let leaf = Leaf::new(seed, &bytes);
        let keys = dir::leaf_keys(number);
        let (mut entries, mut faults) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        let hash_seed = self.seed;
        let scanned = leaf.scan(|entry| {
            let mut buf = [0; NAME_MAX];
            let name = leaf.name(entry, &mut buf);
            let shown = String::from_utf8_lossy(name);
            if let Err(fault) = leaf.check_name(entry, name) {
                faults.push(fault.0.to_string());
            } else if name.contains(&0) || name.contains(&b'/') || name == b"." || name == b".." {
                faults.push(format!("{shown:?} cannot be a name"));
            } else if dir::hash(hash_seed, name) != entry.head.key >> TWIN_BITS {
                faults.push(format!("{shown:?} has a key that is not its hash"));
            } else if !(keys.0..keys.1).contains(&entry.head.key) {
                faults.push(format!("{shown:?} is in the wrong leaf"));
            } else if !seen.insert(entry.head.key) || !seen_name(&mut entries, name, entry.head) {
                faults.push(format!("{shown:?} is there twice"));
            }
            true
        });
        let leaf_place = format!("{place}, leaf {number:#x} in block {}", lba.0);
        faults.extend(scanned.err().map(|fault| fault.0.to_string()));
        faults.into_iter().for_each(|fault| self.find(leaf_place.clone(), fault));
        for (name, head) in entries {
            let shown = String::from_utf8_lossy(&name).into_owned();
            match self.inodes.get_mut(&head.ino) {
                None => self.find(place, format!("{shown:?} names inode {}, which is not in use", head.ino)),
                Some(known) if known.kind != head.kind => {
                    self.find(place, format!("{shown:?} names inode {} as another type", head.ino));
                }
                Some(known) => {
                    known.names += 1;
                    known.found_in = ino;
                }
            }
        }
        Ok(())
    }

    fn names(&mut self) {
        let mut all: Vec<(u64, Known)> = self.inodes.iter().map(|(ino, known)| (*ino, *known)).collect();
        all.sort_unstable_by_key(|(ino, _)| *ino);
        if self.inodes.get(&ROOT).is_none_or(|root| u32::from(root.kind) << 12 != DIRECTORY) {
            self.find("inode 1", "there is no root directory");
        }
        let mut sound = HashSet::from([ROOT]);
        for (ino, known) in all {
            let place = format!("inode {ino}");
            let names = known.names + u32::from(ino == ROOT);
            if names != known.links {
                self.find(place, format!("it has {names} names, and says {}", known.links));
                continue;
            }
            if u32::from(known.kind) << 12 != DIRECTORY || known.links == 0 || ino == ROOT {
                continue;
            }
            if known.parent != known.found_in {
                self.find(place, format!("its parent is {}, and it says {}", known.found_in, known.parent));
                continue;
            }
            // Up to a directory that is known to be below the root, or round in circles.
            let (mut line, mut at) = (vec![ino], known.parent);
            let mut on_line = HashSet::from([ino]);
            while !sound.contains(&at) && on_line.insert(at) {
                line.push(at);
                at = self.inodes.get(&at).map_or(0, |known| known.parent);
            }
            match sound.contains(&at) {
                true => sound.extend(line),
                false => self.find(place, "it is not below the root"),
            }
        }
    }
}

/// Adds an entry, unless its name is there.
fn seen_name(entries: &mut Vec<(Vec<u8>, dir::Head)>, name: &[u8], head: dir::Head) -> bool {
    let is_new = entries.iter().all(|(other, _)| other != name);
    entries.push((name.to_vec(), head));
    is_new
}
