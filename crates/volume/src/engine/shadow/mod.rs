//! The engine `shadow`: short-circuit shadow paging, as in BPFS, on persistent memory. It is the baseline SCSP of FCFS
//! (section VI-A) and BPFS of MinL2R (section 4.1). A block that a group changes is copied, and so is each node on the
//! way from the root of the volume to it. One record commits the group: it has the new root. Nothing is logged, and
//! nothing is copied home.
//!
//! # Terms
//!
//! - *tree of the volume*: the root record leads to the map of the inode file, that to the blocks with inodes, an inode
//!   to its maps, a map to content, directory leaves and extended attributes. Each pointer proves itself.
//! - *fresh*: a block that the running group took. Nobody else can reach it before the commit.
//! - *shadow* of a block: a fresh block with the same content, in which the group makes its changes.
//! - *root record*: a log entry (`format/log.rs`) with the map of the inode file. It stands twice, in two blocks.
//! - *inode block*: a block of the inode file. The core refers to it by a number that stays ([`super::inode_block`]);
//!   the engine knows its place.
//! - *draft* (`engine/draft.rs`): here, changed lines of inode blocks, and *images*: fresh blocks of metadata that are
//!   not stored yet.
//!
//! # Where the circuit is short
//!
//! - A block is copied once in a group. From then on it is changed in place.
//! - Content for a hole, behind the end of a file or in a reserved block is stored in place: nobody reads it before the
//!   pointer, or the inode, says that it is there.
//! - The copies of map nodes and leaves are made in memory, and stored once, in the commit; earlier those of a group
//!   with more than 1 MiB of them.
//! - Inode blocks and the map above them are copied in the commit: groups share them.
//!
//! # The commit
//!
//! | epoch | what is stored | fence at its end |
//! |---|---|---|
//! | 1 | at the calls: content; in the commit: leaves, inode blocks, map nodes | `paging.shadow.fence` |
//! | 2 | the root record, twice | `paging.commit.fence`: the *commit point* |
//!
//! What a crash leaves, one instruction before each fence:
//! - 1: any part of blocks that no root record leads to: they are free.
//! - 2: one of the records whole, or both: the group is committed, as all that it leads to is durable. Neither: the
//!   root record of the group before it counts.
//!
//! **Commits are serialised.** There is one root, so one group commits at a time: the engine has one lane, which is its
//! lock. Calls of other groups go on meanwhile. An abort stores nothing: what the group took is free.
//!
//! # Recovery
//!
//! Of the root records of this incarnation, the one with the highest sequence counts; without any, the map in the
//! superblock. The mount writes it to the superblock, with the next incarnation, which makes all records void. Then it
//! finds out what is free, as after any crash. There is nothing to undo, and nothing to make again.
//!
//! # What a group costs
//!
//! In lines of 64 bytes: 64 for each block of content that it changes, for each changed leaf and inode block, and for
//! each node of the maps above them, once; 2 for the root record. Fences: 2, and one for each call of an explicit group
//! that stores content. So a write to one block of a file of up to 2 MiB on a small volume costs 4 blocks and the root,
//! 258 lines, whether it is of 1 byte or of 4 KiB.
//!
//! # Invariants
//!
//! 1. No byte that a root record leads to is ever changed, but for reserved blocks, which read as zeros until a pointer
//!    says that they have content.
//! 2. A root record is stored after all that it leads to is durable.
//! 3. The blocks of which a group has made shadows are free when its commit has returned (rule 3 of the trait), so when
//!    its root record is durable: only an older root leads to them.
//! 4. A root record is valid by its check alone, which is seeded with volume, incarnation and place. Two groups in turn
//!    use two halves of the lane: a record that is being stored never stands over the one that counts. Rot of one of
//!    the two copies is no loss.
//! 5. Sequences grow by one with each commit. Once a commit has failed, none follows until the next mount.
//! 6. Lines of inode blocks in a draft are changed by their group alone (rule 8 of the trait). The commit puts them
//!    over the block as it is committed then: lines of other groups in the same block stay.
//! 7. A reader of an inode block holds the lock of the places (`Shadow::places`) as long as it reads. A commit
//!    changes places with that lock, before it returns: so nobody reads an inode block that is free. Map nodes, leaves
//!    and content are kept by the core's locks of the inode.
//! 8. All blocks that a group may copy are reserved at its calls: a commit never meets `ENOSPC`.
//! 9. Threads: a call of an explicit group hands over what it has stored (`paging.call.hand_over`), as another thread
//!    may commit. An implicit group is of one thread.
//!
//! # What is not the paper's
//!
//! - *The root is a record, not a pointer of 8 bytes.* BPFS commits by an atomic store at the lowest node above all
//!   changes. A group here also changes times or a size, and the line of an inode has a check over all of it, so no
//!   store of 8 bytes is a commit below the root of the volume. The record costs 2 lines, and a fence like the pointer.
//! - *No epoch barriers.* Fences order the two epochs, as in MinL2R's own prototype.
//! - *Appends* copy a last block that is partly in use: bytes behind the end of a file are zeros on this format, so
//!   that they cannot be stored before the size.
//! - *Groups of many calls*, private until their commit; BPFS makes single calls atomic.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the engine |
//! | `view.rs` | the view that moves blocks |
//! | `commit.rs` | the two epochs |
//! | `recover.rs` | which root counts |

mod commit;
mod recover;
mod view;

use std::sync::Arc;

use sync::RwLock;
use wholly_error::Result;
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use super::draft::{Draft, InodeFileChange};
use super::logging::{Logging, ZEROS, commit_each};
use super::{
    CommitSequence, DataAt, Durability, Engine, InodeMap, Kind, Later, Load, Logged, Operation, Part, Placed, Replay,
    Structure, View, check_within, corrupt, inode_index,
};
use crate::format::log::LogArea;
use crate::format::pointer::{FANOUT, MAX_DEPTH};
use crate::format::{BLOCK, Fault, Lba, Seed};
use view::Shadowing;

use super::kind::{Description, Left, Opening};
use recover::newest_root;

const FRESH: Site = Site("paging.fresh");
const COPY: Site = Site("paging.copy");
const NODE: Site = Site("paging.node");
const INODES: Site = Site("paging.inodes");
const HAND_OVER: Site = Site("paging.call.hand_over");
const SHADOW_FENCE: Site = Site("paging.shadow.fence");
const ROOT: Site = Site("paging.root");
const COMMIT_FENCE: Site = Site("paging.commit.fence");

/// Where this engine stores.
const SITES: &[Site] = &[FRESH, COPY, NODE, INODES, HAND_OVER, SHADOW_FENCE, ROOT, COMMIT_FENCE];

/// What is to be known of the engine.
pub const DESCRIPTION: Description = Description {
    name: "shadow",
    number: 4,
    about: "The same promise; a copy of each block that changes and of all above it, one commit at a time",
    promises: true,
    takes_disks: false,
    log: Some(|start, _| LogArea::of_roots(start)),
    zeroes_log: false,
    make_log: None,
    has_heads: false,
    keeps_bitmaps: false,
    sites: &[SITES],
    open: |Opening { region, log, volume, incarnation, .. }| {
        Some(Box::new(Shadow::new(region, log?, volume, incarnation)))
    },
    left: |region, logs| match recover::newest_root(region, logs.area, logs.seed()) {
        Ok(inode_map) => Left { inode_map, ..Left::default() },
        Err(error) => Left { damage: vec![error], ..Left::default() },
    },
};

/// Blocks of a range that a write does not cover, and of which a group may make a part zeros.
const ENDS: u64 = 2;
/// Ways from the root of a map to a block, at most, that a call changes, besides those to consecutive blocks: to the
/// leaves of two directories, or to both ends of a range and to where it goes.
const WAYS: u64 = 3;
/// Leaves that a call changes, at most.
const LEAVES: u64 = 2;
/// Inodes that an implicit group changes, at most.
const INODES_OF_CALL: u64 = 4;

/// Blocks, at most, to which so many bytes go that are written over others.
fn most_copied(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.div_ceil(BLOCK as u64) + 1 }
}

/// Leaves, and nodes of the maps of files, at most, that a call copies which changes so many pointers.
fn most_nodes(pointers: u64) -> u64 {
    LEAVES + WAYS * u64::from(MAX_DEPTH) + pointers.div_ceil(FANOUT - 1)
}

/// The inode file as it is committed.
struct Places {
    map: InodeMap,
    /// `None`: given back.
    blocks: Vec<Option<Lba>>,
    /// Blocks that are there.
    present: u64,
}

/// See the module.
pub struct Shadow {
    base: Logging,
    places: RwLock<Places>,
}

impl Shadow {
    /// Over a region on persistent memory, with the area for root records that its superblock names.
    pub fn new(region: Arc<dyn Region>, area: LogArea, volume: Seed, incarnation: u64) -> Self {
        let places = RwLock::new(Places { map: InodeMap::default(), blocks: Vec::new(), present: 0 });
        Shadow { base: Logging::new(region, area, (volume, incarnation), FRESH), places }
    }

    /// Blocks that a commit copies for changes of so many inodes: theirs, and the nodes above. The map may get deeper
    /// before the commit, by nodes that all of them have in common.
    fn most_of_inode_file(&self, inodes: u64) -> u64 {
        let places = self.places.read().unwrap();
        let depth = u64::from(places.map.tree.depth);
        let nodes = places.map.tree.blocks.saturating_sub(places.present);
        inodes + nodes.min(inodes * depth) + u64::from(MAX_DEPTH) - depth
    }

    /// Stores the content of a block in another one, with these bytes over it.
    fn store_copy(&self, part: &mut Part<'_>, (home, to): (Lba, Lba), offset: usize, bytes: &[u8]) -> Result<()> {
        if bytes.len() == BLOCK {
            return self.base.store(part, COPY, to.byte(), bytes);
        }
        let mut block = [0; BLOCK];
        self.base.load(home, 0, &mut block)?;
        block[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.base.store(part, COPY, to.byte(), &block)
    }

    /// Stores the images of a draft.
    fn store_images(&self, draft: &mut Draft) -> Result<()> {
        for (at, image) in std::mem::take(&mut draft.images) {
            draft.stored = true;
            self.base.region.write(NODE, at.byte(), &image[..])?;
        }
        Ok(())
    }
}

impl Load for Shadow {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        let Some(index) = inode_index(at) else { return self.base.load(at, offset, buf) };
        let places = self.places.read().unwrap();
        match places.blocks.get(index as usize) {
            Some(Some(at)) => self.base.load(*at, offset, buf),
            _ => Err(corrupt("inode file", Fault("it has no such block"))),
        }
    }
}

impl Engine for Shadow {
    fn name(&self) -> &'static str {
        "shadow"
    }

    fn moves_blocks(&self) -> bool {
        true
    }

    fn inode_map(&self) -> Result<Option<InodeMap>> {
        newest_root(&*self.base.region, &self.base.lanes.area, self.base.lanes.seed())
    }

    fn set_inode_file(&self, map: InodeMap, blocks: Vec<Option<Lba>>) {
        let present = blocks.iter().flatten().count() as u64;
        *self.places.write().unwrap() = Places { map, blocks, present };
    }

    fn start(&self, incarnation: u64) -> Result<()> {
        self.base.start(incarnation);
        Ok(())
    }

    fn log_blocks(&self, logged: Logged) -> u64 {
        let copied = if logged.bytes > 0 { most_copied(logged.bytes) } else { ENDS };
        copied + most_nodes(logged.pointers.saturating_add(copied)) + self.most_of_inode_file(INODES_OF_CALL)
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn blocks_for_call(&self, logged: Logged) -> u64 {
        let copied = most_copied(logged.bytes) + logged.zeros;
        copied + most_nodes(logged.pointers.saturating_add(copied))
    }

    fn blocks_for_commit(&self, draft: &Draft, later: Later) -> u64 {
        let of_names = later.names * (1 + u64::from(MAX_DEPTH));
        of_names + self.most_of_inode_file(draft.inode_blocks.len() as u64 + later.dirs + later.inodes)
    }

    fn end_call(&self, part: &mut Part<'_>) -> Result<()> {
        self.base.end_call(part, HAND_OVER)
    }

    fn begin(&self, _kind: Kind) -> GroupId {
        self.base.begin()
    }

    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> Result<()> {
        // In the commit: it changes the root.
        let change = match *operation {
            Operation::Structure(Structure::GrowInodes { first, blocks }) => InodeFileChange::Grow(first, blocks),
            Operation::GiveBack { blocks, generation_floor } => {
                InodeFileChange::GiveBack(blocks.to_vec(), generation_floor)
            }
            _ => return replay.redo(operation, &mut Shadowing { engine: self, draft: part.draft, space: part.space }),
        };
        assert!(part.draft.inode_file.replace(change).is_none(), "a structure change is a group of its own");
        Ok(())
    }

    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        if let Some(placed) = self.base.write_unseen(part, at, offset, data)? {
            return Ok(placed);
        }
        let home = at.home.expect("else nobody sees it");
        let blocks = (offset + data.len()).div_ceil(BLOCK);
        check_within(&*self.base.region, home.byte(), blocks * BLOCK)?;
        let run = part.space.take(blocks as u64);
        let (mut done, mut offset) = (0, offset);
        for i in 0..run.count {
            let piece = &data[done..data.len().min(done + BLOCK - offset)];
            self.store_copy(part, (Lba(home.0 + i), Lba(run.start.0 + i)), offset, piece)?;
            (done, offset) = (done + piece.len(), 0);
        }
        Ok(Placed::Elsewhere(run))
    }

    fn zero(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> Result<Placed> {
        self.write(part, at, offset, &ZEROS[..len])
    }

    fn read(&self, _view: View<'_>, at: &DataAt, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.base.load(at.home.expect("only what has a home is read"), offset, buf)
    }

    fn commit(&self, parts: &mut [Part<'_>], _how: Durability, replay: &dyn Replay) -> Result<CommitSequence> {
        commit_each(parts, |part| self.commit_one(part, replay))
    }

    fn wait(&self, _upto: CommitSequence) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        // Each commit is durable.
        Ok(())
    }
}
