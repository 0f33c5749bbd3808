//! What stands on a volume that is not mounted, as it stands there: for people who look for damage. Only reads. A fault
//! is told beside what could be read.

use std::collections::HashMap;

use wholly_error::{Error, Result};
use wholly_media::Region;

use super::mount::{Plain, blocks_of, read_copy, read_superblock};
use super::{DIRECTORY, SYMLINK, TYPE, map};
use crate::engine::{Load, corrupt};
use crate::format::dir::{Leaf, NAME_MAX};
use crate::format::inode::{INODE, INODE_FILE, LINE, Line, More, Owned, PER_BLOCK, ROOT, SHORT_TARGET, Target, Times};
use crate::format::pointer::Pointer;
use crate::format::superblock::{Superblock, copies};
use crate::format::xattr::{self, TOTAL_MAX, Xattrs};
use crate::format::{BLOCK, Fault, Lba, Seed, Stream};

/// One of the superblock's three copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockCopy {
    /// Its block.
    pub block: u64,
    /// What it says.
    pub decoded: std::result::Result<Superblock, Fault>,
}

/// Consecutive blocks of a stream that are consecutive on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block of the stream.
    pub first: u64,
    /// Its block of the volume.
    pub block: u64,
    /// How many there are.
    pub count: u64,
    /// Allocated, but never written.
    pub reserved: bool,
}

/// A node of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapNode {
    /// Its level, of at least 1.
    pub level: u8,
    /// The number of its pointer among those of the level.
    pub index: u64,
    /// Its block.
    pub block: u64,
}

/// All that a map has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpedMap {
    /// Nodes, each before what it reaches.
    pub nodes: Vec<MapNode>,
    /// Content, in order.
    pub extents: Vec<Extent>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedEntry {
    /// The number of its leaf.
    pub leaf: u64,
    /// The leaf's block.
    pub block: u64,
    /// Its first slot.
    pub slot: usize,
    /// Its key.
    pub key: u64,
    /// The inode that it names.
    pub ino: u64,
    /// The type of that: bits 12 to 15 of a mode.
    pub kind: u8,
    /// The name.
    pub name: Vec<u8>,
}

/// An inode, with all that hangs on it. What is damaged is `None` or left out, and in `faults`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpedInode {
    /// Its number.
    pub ino: u64,
    /// The block with its record, and the byte in that; not of the inode file.
    pub at: Option<(u64, usize)>,
    /// Line 0.
    pub owned: Option<Owned>,
    /// Line 1.
    pub times: Option<Times>,
    /// Line 2.
    pub more: Option<More>,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// The map of its content.
    pub content: DumpedMap,
    /// The map of its extended attributes.
    pub xattr_map: DumpedMap,
    /// Its extended attributes.
    pub xattrs: Xattrs,
    /// The entries of a directory, by leaf and slot.
    pub entries: Vec<DumpedEntry>,
    /// What is wrong.
    pub faults: Vec<String>,
}

/// The copies of the superblock. The last one is where the volume ends, or the medium, if no other can be read.
///
/// # Errors
/// [`Error::Unsupported`] if the region is shorter than any volume.
pub fn superblocks(region: &dyn Region) -> Result<Vec<SuperblockCopy>> {
    let whole = blocks_of(region)?;
    let blocks = read_superblock(region).map_or(whole, |superblock| superblock.blocks);
    copies(blocks).into_iter().map(|at| Ok(SuperblockCopy { block: at.0, decoded: read_copy(region, at)? })).collect()
}

/// A volume, as it stands on its medium.
pub struct Image<'r> {
    view: Plain<'r>,
    seed: Seed,
    superblock: Superblock,
}

impl<'r> Image<'r> {
    /// # Errors
    /// If there is no volume; [`Error::Corrupt`] if no copy of the superblock can be read.
    pub fn new(region: &'r dyn Region) -> Result<Image<'r>> {
        let superblock = read_superblock(region)?;
        Ok(Image { view: Plain { region, next: 0 }, seed: Seed::of(&superblock.volume_id), superblock })
    }

    /// The inode of a path. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn find(&self, path: &[u8]) -> Result<u64> {
        let mut ino = ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            let dir = self.inode(ino)?;
            let entry = dir.entries.iter().find(|entry| entry.name == name);
            ino = entry.ok_or_else(|| Error::NotFound(String::from_utf8_lossy(path).into_owned()))?.ino;
        }
        Ok(ino)
    }

    /// # Errors
    /// [`Error::NotFound`] if no inode has this number. Damage is in the result.
    pub fn inode(&self, ino: u64) -> Result<DumpedInode> {
        let mut dumped = DumpedInode { ino, ..DumpedInode::default() };
        if ino == INODE_FILE {
            let seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
            dumped.content = self.map(seed, &self.superblock.inode_tree, &mut dumped.faults)?;
            return Ok(dumped);
        }
        let seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
        if ino >= self.superblock.inodes {
            return Err(Error::NotFound(format!("inode {ino}: there are {}", self.superblock.inodes)));
        }
        let Some(pointer) = map::get(&self.view, seed, &self.superblock.inode_tree, ino / PER_BLOCK)? else {
            if self.superblock.generation_floor > 0 {
                return Err(Error::NotFound(format!("inode {ino}: it is not in use")));
            }
            return Err(corrupt(format!("inode {ino}"), Fault("the inode file has no block for it")));
        };
        let at = (ino % PER_BLOCK) as usize * INODE;
        dumped.at = Some((pointer.block.0, at));
        let mut raw = [0; INODE];
        self.view.load(pointer.block, at, &mut raw)?;
        dumped.owned = self.line(&mut dumped.faults, ino, &raw);
        dumped.times = self.line(&mut dumped.faults, ino, &raw);
        dumped.more = self.line(&mut dumped.faults, ino, &raw);
        let target: Option<Target> = self.line(&mut dumped.faults, ino, &raw);
        let Some(owned) = dumped.owned.filter(|owned| owned.mode != 0) else { return Ok(dumped) };
        let seed = self.seed.stream(ino, owned.generation, Stream::Data);
        dumped.content = self.map(seed, &owned.tree, &mut dumped.faults)?;
        match owned.mode & TYPE {
            DIRECTORY => self.entries(seed, &mut dumped)?,
            SYMLINK => dumped.target = self.target(ino, &owned, target, &mut dumped)?,
            _ => {}
        }
        if let Some(more) = dumped.more {
            self.xattrs(&owned, &more, &mut dumped)?;
        }
        Ok(dumped)
    }

    fn line<L: Line>(&self, faults: &mut Vec<String>, ino: u64, raw: &[u8; INODE]) -> Option<L> {
        let raw = raw[L::NUMBER * LINE..][..LINE].try_into().expect("a line");
        L::decode(self.seed, ino, raw).map_err(|fault| faults.push(fault.0.into())).ok()
    }

    fn map(&self, seed: u64, tree: &crate::format::inode::Tree, faults: &mut Vec<String>) -> Result<DumpedMap> {
        let mut dumped = DumpedMap::default();
        let (end, mut beyond) = (self.superblock.blocks, Vec::new());
        map::walk(
            &self.view,
            seed,
            tree,
            &mut |level, index, pointer| {
                if pointer.block.0 >= end {
                    beyond.push(format!("block {} is beyond the end of the volume", pointer.block.0));
                    return false;
                }
                match level {
                    0 => extend(&mut dumped.extents, index, pointer),
                    _ => dumped.nodes.push(MapNode { level, index, block: pointer.block.0 }),
                }
                true
            },
            &mut |_, _, error| faults.push(error.to_string()),
        )?;
        faults.extend(beyond);
        Ok(dumped)
    }

    fn entries(&self, seed: u64, dumped: &mut DumpedInode) -> Result<()> {
        for extent in &dumped.content.extents {
            for i in 0..extent.count {
                let (number, block) = (extent.first + i, extent.block + i);
                let mut bytes = [0; BLOCK];
                self.view.load(Lba(block), 0, &mut bytes)?;
                let leaf = Leaf::new(seed, &bytes);
                let (entries, mut faults) = (&mut dumped.entries, Vec::new());
                let scanned = leaf.scan(|found| {
                    let mut buf = [0; NAME_MAX];
                    let name = leaf.name(found, &mut buf);
                    faults.extend(leaf.check_name(found, name).err());
                    entries.push(DumpedEntry {
                        leaf: number,
                        block,
                        slot: found.slot,
                        key: found.head.key,
                        ino: found.head.ino,
                        kind: found.head.kind,
                        name: name.to_vec(),
                    });
                    true
                });
                faults.extend(scanned.err());
                dumped.faults.extend(faults.iter().map(|fault| format!("leaf {number:#x}: {}", fault.0)));
            }
        }
        Ok(())
    }

    fn target(
        &self,
        ino: u64,
        owned: &Owned,
        line: Option<Target>,
        dumped: &mut DumpedInode,
    ) -> Result<Option<Vec<u8>>> {
        let Some(line) = line else { return Ok(None) };
        let len = owned.size as usize;
        if len <= SHORT_TARGET {
            return Ok(Some(line.short[..len].to_vec()));
        }
        let Some(extent) = dumped.content.extents.first().filter(|extent| extent.first == 0 && len < BLOCK) else {
            dumped.faults.push("a symbolic link without its target".into());
            return Ok(None);
        };
        let mut bytes = vec![0; len];
        self.view.load(Lba(extent.block), 0, &mut bytes)?;
        if self.seed.target_sum(ino, owned.generation, &bytes) != line.sum {
            dumped.faults.push("its target has a wrong checksum".into());
        }
        Ok(Some(bytes))
    }

    fn xattrs(&self, owned: &Owned, more: &More, dumped: &mut DumpedInode) -> Result<()> {
        let (ino, len) = (dumped.ino, more.xattr_bytes as usize);
        let seed = self.seed.stream(ino, owned.generation, Stream::Xattr);
        dumped.xattr_map = self.map(seed, &more.xattrs, &mut dumped.faults)?;
        let extents = &dumped.xattr_map.extents;
        let blocks: HashMap<u64, u64> =
            extents.iter().flat_map(|extent| (0..extent.count).map(|i| (extent.first + i, extent.block + i))).collect();
        let all_there = (0..len.div_ceil(BLOCK) as u64).all(|i| blocks.contains_key(&i));
        if len > TOTAL_MAX || !all_there {
            dumped.faults.push(format!("{len} bytes of extended attributes in {} blocks", blocks.len()));
            return Ok(());
        }
        let mut bytes = vec![0; len];
        for (i, part) in bytes.chunks_mut(BLOCK).enumerate() {
            self.view.load(Lba(blocks[&(i as u64)]), 0, part)?;
        }
        if len > 0 && self.seed.xattr_sum(ino, owned.generation, &bytes) != more.xattr_sum {
            dumped.faults.push("extended attributes have a wrong checksum".into());
        }
        match xattr::decode(&bytes) {
            Ok(xattrs) => dumped.xattrs = xattrs,
            Err(fault) => dumped.faults.push(fault.0.into()),
        }
        Ok(())
    }
}

fn extend(extents: &mut Vec<Extent>, index: u64, pointer: Pointer) {
    let Pointer { block: Lba(block), reserved } = pointer;
    match extents.last_mut() {
        Some(last)
            if last.first + last.count == index && last.block + last.count == block && last.reserved == reserved =>
        {
            last.count += 1;
        }
        _ => extents.push(Extent { first: index, block, count: 1, reserved }),
    }
}
