//! What a group stores, to the line: the formula of each engine.
//!
//! A write of more than 1 MiB is cut into *parts* at each MiB of the file, until no more is left; a part is a call of
//! the group, and is cut into *pieces* of consecutive blocks. With `lines(p)` for the lines that a piece touches, `P`
//! parts, `F` files and the times of each changed:
//!
//! | engine | lines | fences |
//! |---|---|---|
//! | `none` | sum of `lines(p)`, and a line of times for each part | `P` |
//! | `fine_grained_wal` | data entries: a head, and the bytes, in whole lines; a link where a run of blocks of the log ends; one entry that leads to the chain; two undo entries and a line in place for each file; commit entry; sum of `lines(e)` of the data entries, at home; settled word | 5 |
//!
//! | `hybrid_log` | the sum of `lines(p)` and a head for each block of content; two undo entries and a line in place for each file; commit entry; checkpoints apart | 2 |
//!
//! | `shadow` | 64 for each block that a part changes; 64 for each node of the maps above, each block of the inode file with a changed inode, and each node of the inode file above; the root record, twice | 2 |
//!
//! The last line of each run of blocks in a chain is kept for a link, so a data entry is cut in two where a run ends.
//! The first run has as many blocks as the first entry needs, each further one as many as what is left of the entry
//! needs.

use super::subject::{failed, name};
use crate::Result;
use crate::workload::{Case, Update};
use std::collections::BTreeSet;
use wholly_media::Region;
use wholly_sim::Count;
use wholly_volume::format::inode::PER_BLOCK;
use wholly_volume::format::pointer::FANOUT_BITS;
use wholly_volume::{EngineKind, Object, Volume};

const LINE: u64 = 64;
const BLOCK: u64 = 4096;
const LINES_OF_BLOCK: u64 = BLOCK / LINE;
/// The most bytes of a part.
const AT_ONCE: u64 = 1 << 20;
/// Undo entries, of 32 bytes at most, for the times of a file: from the first changed word of mtime and ctime to the
/// last one, and the check.
const UNDO_OF_TIMES: u64 = 2;
/// Bytes from the first changed word of a line of times to its check.
const BYTES_OF_TIMES: u64 = 56;

/// What a group stores, by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub call: Count,
    pub commit: Count,
    pub checkpoint: Count,
}

/// Consecutive bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    at: u64,
    len: u64,
}

/// The formula of an engine, on one volume.
pub(crate) struct Formula {
    engine: EngineKind,
    /// By file: first block of the file, block of the volume, and how many.
    extents: Vec<Vec<(u64, u64, u64)>>,
    /// By file: its inode, and the depth of its map.
    inodes: Vec<(u64, u8)>,
    /// The depth of the inode file's map.
    inode_depth: u8,
}

impl Cost {
    /// All of it.
    pub fn lines(&self) -> u64 {
        self.call.lines + self.commit.lines + self.checkpoint.lines
    }
}

impl Formula {
    /// That of an unmounted volume, whose groups come one after the other.
    pub fn of(engine: EngineKind, region: &dyn Region, case: &Case) -> Result<Formula> {
        let (mut extents, mut inodes) = (Vec::new(), Vec::new());
        for file in 0..case.files {
            let dumped = Volume::dump_region(region, Some(Object::Path(name(file).as_bytes()))).map_err(failed)?;
            let inode = dumped.inode.ok_or("a file is not there")?;
            let of_file = inode.content.extents.iter();
            extents.push(of_file.map(|extent| (extent.first, extent.block, extent.count)).collect());
            inodes.push((inode.ino, inode.owned.map_or(0, |owned| owned.tree.depth)));
        }
        let superblocks = Volume::dump_region(region, None).map_err(failed)?.superblocks;
        let superblock = superblocks.into_iter().find_map(|copy| copy.decoded.ok()).ok_or("no superblock is valid")?;
        let inode_depth = superblock.inode_tree.depth;
        Ok(Formula { engine, extents, inodes, inode_depth })
    }

    /// What a group stores, if the formula is stated.
    pub fn of_group(&self, group: &[Update]) -> Option<Cost> {
        let parts: Vec<Vec<Piece>> = group.iter().flat_map(|update| self.parts(update)).collect();
        match self.engine {
            EngineKind::None => Some(none(&parts)),
            EngineKind::FineGrainedWal => Some(fine_grained_wal(&parts, group.len() as u64)),
            EngineKind::HybridLog => Some(hybrid_log(&parts, group.len() as u64)),
            EngineKind::Shadow => Some(self.shadow(group)),
            _ => None,
        }
    }

    fn shadow(&self, group: &[Update]) -> Cost {
        let mut cost = Cost::default();
        let mut nodes = BTreeSet::new();
        // Blocks of the inode file count as a file of their own.
        let mut above = |of: Option<u32>, depth: u8, block: u64| {
            nodes.extend((1..=u32::from(depth)).map(|level| (of, level, block >> (FANOUT_BITS * level))));
        };
        let mut inode_blocks = BTreeSet::new();
        for update in group {
            let (ino, depth) = self.inodes[update.file as usize];
            let (mut at, end) = (update.offset, update.offset + u64::from(update.len));
            while at < end {
                let part_end = end_of_part(at, end);
                for block in at / BLOCK..part_end.div_ceil(BLOCK) {
                    cost.call += store(0, BLOCK);
                    above(Some(update.file), depth, block);
                }
                cost.call += HAND_OVER;
                at = part_end;
            }
            inode_blocks.insert(ino / PER_BLOCK);
            above(None, self.inode_depth, ino / PER_BLOCK);
        }
        (0..inode_blocks.len() + nodes.len()).for_each(|_| cost.commit += store(0, BLOCK));
        cost.commit += FENCE;
        cost.commit += entries(2);
        cost.commit += FENCE;
        cost
    }

    /// The parts of an update, and the pieces of each.
    fn parts(&self, update: &Update) -> Vec<Vec<Piece>> {
        let (mut at, end) = (update.offset, update.offset + u64::from(update.len));
        let mut parts = Vec::new();
        while at < end {
            let part_end = end_of_part(at, end);
            let mut pieces: Vec<Piece> = Vec::new();
            while at < part_end {
                let block = at / BLOCK;
                let extents = &self.extents[update.file as usize];
                let (first, home, count) = *extents
                    .iter()
                    .find(|(first, _, count)| (*first..first + count).contains(&block))
                    .expect("all of a file has blocks");
                let len = part_end.min((first + count) * BLOCK) - at;
                let piece = Piece { at: home * BLOCK + (at - first * BLOCK), len };
                match pieces.last_mut() {
                    Some(last) if last.at + last.len == piece.at => last.len += piece.len,
                    _ => pieces.push(piece),
                }
                at += len;
            }
            parts.push(pieces);
        }
        parts
    }
}

/// The end of the part of a write that begins at a byte of the file.
fn end_of_part(at: u64, end: u64) -> u64 {
    if end - at <= AT_ONCE { end } else { (at / AT_ONCE + 1) * AT_ONCE }
}

fn hybrid_log(parts: &[Vec<Piece>], files: u64) -> Cost {
    let mut cost = Cost::default();
    for part in parts {
        for piece in part {
            let end = piece.at + piece.len;
            for block in piece.at / BLOCK..end.div_ceil(BLOCK) {
                cost.call += merged(piece.at.max(block * BLOCK), end.min((block + 1) * BLOCK));
                cost.commit += entries(1);
            }
        }
        cost.call += HAND_OVER;
    }
    cost.commit += in_place(files);
    cost.commit += entries(1);
    cost.commit += FENCE;
    cost
}

/// Whole lines, in one store, and a store for each line at an end that is written in part.
fn merged(from: u64, to: u64) -> Count {
    let (first, last) = (from.div_ceil(LINE) * LINE, to / LINE * LINE);
    if first > last {
        return entries(1);
    }
    let mut count = entries(u64::from(from < first) + u64::from(last < to));
    if first < last {
        count += store(first, last - first);
    }
    count
}

/// One store of bytes.
fn store(at: u64, len: u64) -> Count {
    Count { calls: 1, bytes: len, lines: (at + len - 1) / LINE - at / LINE + 1, fences: 0 }
}

/// Whole lines, each by a call of its own.
fn entries(count: u64) -> Count {
    Count { calls: count, bytes: count * LINE, lines: count, fences: 0 }
}

const FENCE: Count = Count { calls: 1, bytes: 0, lines: 0, fences: 1 };

/// At the end of a part, what it has stored is handed over to the next thread of the group.
const HAND_OVER: Count = Count { calls: 1, bytes: 0, lines: 0, fences: 0 };

/// The times of so many files: old bytes, a fence, and new ones.
fn in_place(files: u64) -> Count {
    let mut count = entries(UNDO_OF_TIMES * files);
    count += FENCE;
    (0..files).for_each(|_| count += store(LINE - BYTES_OF_TIMES, BYTES_OF_TIMES));
    count
}

fn none(parts: &[Vec<Piece>]) -> Cost {
    let mut cost = Cost::default();
    for part in parts {
        part.iter().for_each(|piece| cost.call += store(piece.at, piece.len));
        cost.call += entries(1);
        cost.call += FENCE;
    }
    cost
}

fn fine_grained_wal(parts: &[Vec<Piece>], files: u64) -> Cost {
    let mut cost = Cost::default();
    let mut chain = Chain::default();
    for part in parts {
        part.iter().for_each(|piece| chain.add(*piece, &mut cost));
        cost.call += HAND_OVER;
    }
    // Where the chain is; times; the commit entry.
    cost.commit += entries(1);
    cost.commit += in_place(files);
    cost.commit += FENCE;
    cost.commit += entries(1);
    cost.commit += FENCE;
    cost.checkpoint += FENCE;
    cost.checkpoint += store(LINE, 8);
    cost.checkpoint += FENCE;
    cost
}

/// The chain of an explicit group's data.
#[derive(Default)]
struct Chain {
    /// Lines that are left of a run of blocks, once there is one.
    left: Option<u64>,
}

impl Chain {
    /// Adds the data entries of a piece, with their way home.
    fn add(&mut self, mut piece: Piece, cost: &mut Cost) {
        let needed = |len: u64| 1 + len.div_ceil(LINE);
        let run = |lines: u64| lines.div_ceil(LINES_OF_BLOCK) * LINES_OF_BLOCK;
        let mut left = self.left.unwrap_or_else(|| run(needed(piece.len) + 1));
        while piece.len > 0 {
            // A head, a line of bytes, and a link.
            if left < 3 {
                cost.call += entries(1);
                left = run(needed(piece.len) + 1);
            }
            let len = piece.len.min((left - 2) * LINE);
            cost.call += entries(1);
            cost.call += store(0, len);
            cost.checkpoint += store(piece.at, len);
            left -= needed(len);
            piece = Piece { at: piece.at + len, len: piece.len - len };
        }
        self.left = Some(left);
    }
}
