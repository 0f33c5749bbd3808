//! The core: the file system over an engine. See the crate's head for terms and invariants.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the core and its parts |
//! | `space.rs` | which blocks and inodes are free |
//! | `map.rs` | from a block of a file to a block of the volume |
//! | `storage.rs` | where metadata is, and the mutators that change it |
//! | `gate.rs` | what an unmount waits for |
//! | `group.rs` | what one call changes, with its space |
//! | `ordered.rs` | groups that are ordered, and durable later |
//! | `explicit.rs` | explicit groups: twins of inodes, claims, commit and abort |
//! | `inode_file.rs` | where inodes are: blocks that it gets and gives back |
//! | `table.rs` | inodes in memory |
//! | `known.rs` | what memory keeps of leaves and maps |
//! | `dir.rs` | finding, entering and removing names in leaves |
//! | `names.rs` | calls that make, move and remove names |
//! | `data.rs` | reading and writing, and the space of files |
//! | `late.rs` | content that gets its place late |
//! | `attributes.rs` | attributes, and who may change them |
//! | `xattrs.rs` | extended attributes and access control lists |
//! | `bitmaps.rs` | what the bitmaps are to say; the allocators from what they say |
//! | `checkpoint.rs` | space that the engine can make free |
//! | `checkpointers.rs` | threads that make some in the background |
//! | `mount.rs` | rebuilding and saving the allocators |
//! | `resize.rs` | growing and shrinking |
//! | `check.rs` | whether everything agrees |
//! | `remedy.rs` | what puts each fault right |
//! | `repair.rs` | carrying that out, all or nothing |
//! | `overlay.rs` | a medium as it would be |
//! | `dump.rs` | what stands on the medium, for people |

pub mod attributes;
mod backing;
pub mod bitmaps;
pub mod check;
pub mod checkpoint;
pub mod checkpointers;
pub mod data;
pub mod dir;
pub mod dump;
pub mod explicit;
pub mod gate;
pub mod group;
pub mod inode_file;
pub mod known;
mod late;
pub mod map;
pub mod mount;
pub mod names;
mod ordered;
pub mod overlay;
pub mod remedy;
pub mod repair;
pub mod resize;
pub mod space;
pub mod storage;
pub mod table;
pub mod xattrs;

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use rustix::time::{ClockId, clock_gettime};
use sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard};
use wholly_error::{Error, Result};
use wholly_media::Site;
use wholly_vfs::Timestamp;
pub use wholly_vfs::rules::{DIRECTORY, PERMISSIONS, REGULAR, SYMLINK, TYPE};

use crate::engine::{Engine, Fields, InoGen, Kind, Load, Logged, Mapped, Operation, corrupt};
use crate::format::Fault;
use crate::format::bitmap::Layout;
use crate::format::inode::{PER_BLOCK, Time, Times};
use crate::format::pointer::FANOUT;
use backing::Backing;
use checkpoint::Swapping;
use checkpointers::Checkpointers;
use explicit::Running;
use gate::Gate;
use group::{Group, Need};
use inode_file::ThreadZones;
use known::Budget;
use ordered::Ordered;
use space::Space;
use storage::{Record, Storage};
use table::{Inode, State, Table};

/// Groups and open files of one mount are numbered in so many bits. The bits above are the mount's: after `fork`, no
/// number that the parent was given means anything in a child that has mounted the volume again.
pub const NUMBER_BITS: u32 = 40;

/// Bytes of the largest file.
pub const LARGEST_FILE: u64 = 1 << 48;

/// Where the core stores, whatever the engine.
pub fn sites() -> Vec<Site> {
    [map::SITES, storage::SITES, mount::SITES, resize::SITES].concat()
}

/// The time of the kernel's last tick, as its own file systems have it.
pub fn clock() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}

/// A mounted volume.
pub struct Core {
    pub engine: Box<dyn Engine>,
    pub storage: Storage,
    pub blocks: Space,
    /// Free blocks that take no space of the host yet.
    pub backing: Backing,
    pub inodes: Space,
    /// Of the inode file: blocks that were given back are free.
    pub holes: Space,
    /// With bitmaps: where threads take inodes.
    zones: ThreadZones,
    pub table: Table,
    /// For what inodes keep of leaves and maps.
    known: Arc<Budget>,
    /// Held while a directory gets another parent.
    rename: Mutex<()>,
    /// Held while the inode file grows, or gives back blocks.
    growth: Mutex<()>,
    /// Held for reading while blocks that the engine makes free are in no account.
    accounts: RwLock<()>,
    swapping: Swapping,
    pub checkpointers: Checkpointers,
    ordered: Ordered,
    /// The running explicit groups.
    groups: Running,
    /// From here on explicit groups and open files are numbered.
    pub first_number: u64,
    /// The next explicit group.
    next_group: CachePadded<AtomicU64>,
    next_late: CachePadded<AtomicU64>,
    failed: AtomicBool,
    /// For the explorer.
    pub keeps_access_times: AtomicBool,
    /// Blocks that ordinary groups leave free.
    pub kept: u64,
    /// Held for reading by each running group, and for writing by an unmount.
    gate: Gate,
    clock: fn() -> Timestamp,
}

impl Core {
    fn new(engine: Box<dyn Engine>, mut storage: Storage, cache_bytes: usize, clock: fn() -> Timestamp) -> Core {
        storage.moves_blocks = engine.moves_blocks();
        let (blocks, inodes, first_number) = {
            let superblock = storage.superblock.lock().unwrap();
            (superblock.blocks, superblock.inodes, (superblock.incarnation << NUMBER_BITS) + 1)
        };
        Core {
            kept: group::kept_by(&*engine, storage.bitmaps.filter(|_| engine.keeps_bitmaps()).map(|it| (it, blocks))),
            ordered: Ordered::new(engine.orders()),
            engine,
            storage,
            blocks: Space::all_used(blocks),
            backing: Backing::default(),
            inodes: Space::all_used(inodes),
            holes: Space::all_used(inodes / PER_BLOCK),
            zones: ThreadZones::default(),
            table: Table::new(cache_bytes),
            known: Budget::new(cache_bytes),
            rename: Mutex::default(),
            growth: Mutex::default(),
            accounts: RwLock::default(),
            swapping: Swapping::default(),
            checkpointers: Checkpointers::new(sync::now),
            groups: Running::default(),
            first_number,
            next_group: CachePadded::new(AtomicU64::new(first_number)),
            next_late: CachePadded::default(),
            failed: AtomicBool::new(false),
            keeps_access_times: AtomicBool::new(false),
            clock,
            gate: Gate::default(),
        }
    }

    /// Where the bitmaps are, if groups keep them in step.
    pub(super) fn bitmaps(&self) -> Option<Layout> {
        self.storage.bitmaps.filter(|_| self.engine.keeps_bitmaps())
    }

    /// The same, and how many blocks the volume has.
    pub fn bitmaps_of(&self) -> Option<(Layout, u64)> {
        self.bitmaps().map(|layout| (layout, self.blocks.units()))
    }

    /// Whether an earlier write has failed: then nothing is known of what is on the medium. Or whether the medium
    /// contradicts itself: then it is not known what is free.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        if self.blocks.is_contradicted() || self.inodes.is_contradicted() || self.holes.is_contradicted() {
            return Err(corrupt("allocators", Fault("a block or inode is used twice")));
        }
        match self.failed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Poisoned("an earlier change of the volume failed".into())),
        }
    }

    /// Keeps an unmount waiting. A thread may be admitted more than once: it never waits here.
    ///
    /// # Errors
    /// If the volume has failed, or is being unmounted.
    pub fn admit(&self) -> Result<RwLockReadGuard<'_, ()>> {
        self.check_usable()?;
        self.gate.try_read().ok_or_else(|| Error::Poisoned("the volume is being closed".into()))
    }

    /// Waits for all running groups. Until the guards are dropped, only groups of an unmount begin: what it saves of
    /// the allocators stays true.
    pub fn shut(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.gate.write()
    }

    /// No call changes anything from here on.
    pub fn end(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    fn fail(&self, _error: &Error) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// The time of a change.
    pub fn now(&self) -> Time {
        let Timestamp { sec, nsec } = (self.clock)();
        Time { sec, nsec }
    }

    /// Frees an inode that nothing names or refers to. The caller is admitted, or has shut the gate; it may have the
    /// lock for growth.
    fn free_inode(&self, inode: &Inode) -> Result<()> {
        let record = inode.state.read().unwrap().record;
        self.free(inode.id, &record)
    }

    /// The same, given what it has.
    fn free(&self, id: InoGen, record: &Record) -> Result<()> {
        let begin = |logged| Group::begin_of_free(self, Kind::Implicit, 0, Need::Admitted, logged);
        let mut group = match begin(record.goes()) {
            Err(Error::NoSpace(_)) => {
                self.empty(id, begin)?;
                begin(record.xattrs_go())?
            }
            group => group?,
        };
        group.record(&Operation::Free { what: id })?;
        group.release_inode(id.ino);
        group.commit()
    }

    /// Gives up the content of an inode that nothing names or refers to, from its end, in many groups: each frees so
    /// little that there is always space for it.
    fn empty<'c>(&self, id: InoGen, begin: impl Fn(Logged) -> Result<Group<'c>>) -> Result<()> {
        loop {
            let tree = self.storage.read(&*self.engine, id.ino)?.owned.tree;
            let Some(last) = map::last(&*self.engine, self.storage.data_seed(id), &tree)? else { return Ok(()) };
            let depth = u64::from(tree.depth);
            let mut group = begin(Logged { pointers: depth * FANOUT, freed: FANOUT + depth, ..Logged::default() })?;
            let (first, count) = (last / FANOUT * FANOUT, u64::MAX);
            group.record(&Operation::Map { on: id, first, count, to: Mapped::Nothing })?;
            group.commit()?;
        }
    }

    /// Refreshes what memory has of the maps after a mutator has changed them, as a group or everybody sees them.
    fn reload(&self, load: &(impl Load + ?Sized), inode: &Inode, state: &mut State) -> Result<()> {
        // Of a directory that others change, too, it is read with that locked.
        let _shared = inode.changed().map(|shared| shared.state.read().unwrap());
        let record = self.storage.read(load, inode.id.ino).inspect_err(|error| self.fail(error))?;
        state.record.owned.tree = record.owned.tree;
        state.pieces.clear();
        state.record.more = record.more;
        Ok(())
    }

    /// Sets fields of an inode, on the medium and in memory.
    fn assign(&self, group: &mut Group<'_>, inode: &Inode, state: &mut State, fields: &Fields) -> Result<()> {
        match inode.changes() {
            Some((_, mut changes)) => changes.assign(group, &state.record.times, fields),
            None => group.record(&Operation::Assign { on: inode.id, fields })?,
        }
        if inode.twin.is_none() && fields.times.is_some() {
            inode.keeps_times.store(false, Ordering::Relaxed);
        }
        state.record.set(fields);
        Ok(())
    }

    /// Sets times of an inode.
    fn touch(
        &self,
        group: &mut Group<'_>,
        inode: &Inode,
        state: &mut State,
        set: impl FnOnce(&mut Times),
    ) -> Result<()> {
        let mut times = state.record.times;
        set(&mut times);
        if times == state.record.times {
            return Ok(());
        }
        self.assign(group, inode, state, &Fields { times: Some(times), ..Fields::default() })
    }
}

#[cfg(test)]
mod tests {
    use wholly_sim::{SimConfig, World};
    use wholly_vfs::{Context, Ino, Mode, OFlags, Vfs};

    use super::*;
    use crate::format::BLOCK;
    use crate::{EngineKind, Volume, VolumeOptions, VolumeVfs};

    /// An inode that has no name gives up its content in many groups, where one would take too much space.
    #[test]
    fn content_is_given_up_in_parts() {
        for engine in EngineKind::ALL.iter().copied() {
            let world = World::new(Arc::new(SimConfig { log_len: 4096 * 4096, ..SimConfig::pmem() }));
            let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
            Volume::format_region(&*world.log(), &options).expect("make a volume");
            let volume = Volume::open_region(world.log(), &options).expect("open it");
            let (vfs, ctx, core) = (VolumeVfs::new(&volume), Context::superuser(), &volume.inner().core);
            let free = volume.stat().free_blocks;
            let (made, file) = vfs.create(&ctx, Ino::ROOT, b"file", OFlags::RDWR, Mode::RUSR).expect("create");
            // The content is below three map nodes. The last one is far from the others.
            for (first, count) in [(0, 900), (5 * FANOUT * FANOUT + 7, 3)] {
                let (at, content) = (first * BLOCK as u64, vec![1; count * BLOCK]);
                assert_eq!(vfs.write(&ctx, &file, at, &content), Ok(content.len()));
            }
            vfs.unlink(&ctx, Ino::ROOT, b"file").expect("unlink");
            let id = core.known(made.ino.0).expect("it is open").id;
            let commits = std::cell::Cell::new(0);
            let begin = |logged| {
                commits.set(commits.get() + 1);
                Group::begin_of_free(core, Kind::Implicit, 0, Need::Admitted, logged)
            };
            core.empty(id, begin).expect("give it up");
            assert_eq!(commits.get(), 3, "{engine:?}");
            let tree = core.storage.read(&*core.engine, id.ino).expect("read").owned.tree;
            assert_eq!((tree.root, tree.blocks), (0, 0));
            vfs.release(&ctx, file).expect("release");
            vfs.forget(made.ino, 1);
            drop(vfs);
            volume.sync().expect("sync");
            // The directory keeps its leaf, or the inode file its blocks.
            assert!(free - volume.stat().free_blocks < 8, "{engine:?}");
            volume.close().expect("close");
            assert_eq!(Volume::check_region(&*world.log()).expect("check").findings, []);
        }
    }
}
