//! A store over an ordinary directory of an ordinary file system.
//!
//! # Terms
//!
//! - *home*: the ordinary file; where its bytes are when the log is empty.
//! - *explicit group*: what a program does between [`Store::begin`] and its end. *Implicit group*: one call outside of
//!   explicit groups (policy `per-op`), or several calls.
//! - *owner* of a file: the one explicit group that may change it. Implicit calls *share* a file.
//! - *position*: where a version's bytes are. Below `SHADOWS` it is a byte of the log; from there on a byte of a
//!   [shadow file](shadow); from `ZEROS` on nowhere; from [`MEMORY`] on a byte of a buffer in memory. (On disks a
//!   group's bytes stay in memory until they are written back, so the log is not read for them.)
//!
//! # Invariants
//!
//! 1. Nothing of a group is published before its commit record is durable.
//! 2. The versions of a block that groups made are in commit order: by sequence, whichever group publishes first.
//! 3. A checkpoint writes back only versions of groups below its target, all of which are published.
//! 4. For each file that the log has updates for, a group at or above the tail records which host file it is. So a
//!    group that commits after a checkpoint was announced records again the files that were recorded below the
//!    announced tail.
//! 5. Home bytes at or beyond a file's *home limit* do not count. The limit is never beyond the end of the home file,
//!    and
//!    is raised only right after the home file was cut to it.
//! 6. A home file is not changed before the superblock records that a checkpoint has begun. The tail moves only after
//!    all
//!    home files and directories that the checkpoint changed are durable.
//! 7. A change that another program made to a file while the log held updates of it is never overwritten.
//!
//! # States of a group
//!
//! ```text
//!             begin             commit record durable        home durable, tail past it
//!   (nothing) -----> running -------------------> committed ----------------> checkpointed
//!                       `--> aborted (asked for, dropped, process death)
//! ```
//!
//! [`Group`] performs the transitions to `running` and `aborted`, the log the one to `committed`, the checkpoint the
//! one to `checkpointed`.

mod allocate;
mod calls;
mod check;
mod checkpoint;
mod clock;
mod dirty;
mod file;
mod fork;
mod group;
mod guest;
mod handle;
mod homes;
mod implicit;
mod joint;
mod lanes;
mod layer;
mod lengths;
mod mapped_reads;
mod memory;
mod names;
mod overlay;
mod parked;
mod published;
mod recover;
mod room;
mod running;
mod salvage;
mod shadow;
mod space;
mod swap;
mod table;
mod undo_store;
mod vfs;
mod writer;

pub use check::{Finding, FindingKind, Report, check_on, check_region};
#[doc(hidden)]
pub use check::{ReadOnly, is_own_folder, slots_of};
pub use checkpoint::CheckpointReport;
#[doc(hidden)]
pub use fork::Ownership;
pub use group::Group;
pub(crate) use guest::is_temporary;
pub use handle::File;
#[doc(hidden)]
pub use joint::{ByPath, Neighbours, parts_on};
pub use joint::{Decided, Part, PartState, Released};
pub use layer::LAYER;
pub use memory::MEMORY;
#[doc(hidden)]
pub use parked::folder::list as parked_on;
pub use parked::{Mismatch, ParkedId, Review};
pub use recover::RecoveryReport;
pub use salvage::{Fate, Salvaged, SalvagedGroup};
#[doc(hidden)]
pub use salvage::{Made, Original, SALVAGE, salvage_on};
#[doc(hidden)]
pub use undo_store::list as undos_on;
pub use undo_store::{IfChanged, KeepUndo, KeptUndo, UndoFate, Undoing, Undone};
pub use vfs::StoreVfs;
pub use writer::Writer;

use std::sync::{Arc, OnceLock, Weak};

use wholly_changes::Origin;
use wholly_host::{Forked, HostFs, Refused, keep_for_ever};
use wholly_media::Region;
use wholly_vfs::Policy;

use crate::error::{Error, Result};
use crate::log::layout::StorePart;
use crate::log::{BatchLane, Geometry, Log};
use checkpoint::Checkpointer;
use clock::Clock;
use epochs::Policies;
use joint::JointCommits;
use lanes::Seats;
use mapped_reads::MappedReads;
use memory::{Memory, SHADOWS, ZEROS};
use names::Names;
use parked::ParkedGroups;
use published::Published;
use room::Room;
use shadow::Shadows;
use swap::Swap;
use sync::{AtomicU8, AtomicU64, Mutex, Ordering};
use table::FileTable;
use undo_store::KeptUndos;

/// How a store is made and opened.
///
/// # Example
/// ```
/// let options = wholly::Options { policy: wholly::Policy::PerSync, log_max_bytes: 256 << 20, ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Which calls outside of explicit groups are committed together, and when. [`Policy::PerOp`] by default.
    pub policy: Policy,
    /// Bytes of a segment of the log: a power of two from 4 KiB to 2 MiB; 1 MiB by default. It is set when the store is
    /// made, and limits the size of a group to 65,535 segments.
    pub segment_bytes: u64,
    /// Bytes of log that the store is made with, and always keeps; 2 MiB by default.
    pub log_min_bytes: u64,
    /// Bytes up to which the log grows before groups wait for a checkpoint; 64 MiB by default. A single group that
    /// needs more gets it.
    pub log_max_bytes: u64,
    /// Whether a thread writes back committed data in the background; true by default. Without it, committed data is
    /// written back only when the log is full, by [`Store::checkpoint`] and by [`Store::close`].
    pub background: bool,
    /// The number of threads that write back a large amount together; 2 by default. On persistent memory one thread
    /// copies more slowly than a program writes.
    pub checkpoint_threads: usize,
    /// Bytes of a group that are gathered in memory before the group goes to the log early; 512 KiB by default. On
    /// persistent memory most groups go to the log at once.
    pub gather_bytes: u64,
    /// Bytes from which a group's writes to one file bypass the log; 512 KiB by default. Such bytes go to the host file
    /// system at once and are written once. It applies to a file that the group has created, and to writes in a row to
    /// an existing file if the host's files can share blocks.
    pub stage_bytes: u64,
    /// The number of host files that the store keeps open although no program has them open; 256 by default.
    pub open_files: usize,
    /// Bytes that the store keeps from the host file system, so that files can be removed when that is full; 2 MiB by
    /// default. Not kept where less than sixteen times as much is free when the store is opened, nor by a
    /// [temporary store](Store::init_temporary).
    pub spare_bytes: u64,
    /// Whether an explicit group is written back as part of its commit; false by default. The commit then returns when
    /// the group is in the directory. If the host refuses that, the commit fails, nothing has changed, and the store
    /// goes on. For one user at a time: no other thread makes calls while a group commits, nor until a joint commit of
    /// the store has returned. If groups of such stores [commit together](Store::commit_together) and one is refused,
    /// nothing has changed in any.
    pub at_once: bool,
    /// How the undo is kept of each parked group that is applied, as by [`Group::keep_undo`]; none by default. Its note
    /// is that of the parked group. Has no effect without [`at_once`](Self::at_once).
    pub keep_undo_of_applied: Option<KeepUndo>,
    /// Whether to accept a copy of a store ([`Error::Copied`]); false by default. The updates in its log are then for
    /// the files at the paths of the copied ones, whatever inodes they are, and its parked groups and kept undo are
    /// this store's. Has no effect on a store that is not a copy.
    pub accept_copy: bool,
    /// Whether to open a store that waits for the decision of a joint commit ([`Store::commit_together`]) although that
    /// cannot be found; false by default. The waiting group becomes a parked group, and so does a group that was
    /// decided and cannot be committed. What is written back of a group that was not decided is undone; a group that
    /// cannot be undone stays committed. Decisions of this store are forgotten if only stores that cannot be found
    /// could ask for them.
    ///
    /// Do not set this for every open. If the coordinator is only late, the group is committed in one store and parked
    /// in another.
    pub release: bool,
    /// Whether to open a store that another user than the caller or the superuser can have written to
    /// ([`Error::Untrusted`]); false by default. What is written in the store's folder is then executed with the rights
    /// of the calling process: files of any owner and mode are made and changed in the directory.
    pub trust_owner: bool,
    /// Whether a group of writes to existing files may commit on the straight path, with the same effect; true by
    /// default. For tests that compare it with the general path.
    #[doc(hidden)]
    pub straight: bool,
    /// How many files may have calls that are not committed under [`Policy::PerSync`]: for tests.
    #[doc(hidden)]
    pub most_dirty: u64,
    /// Bytes that calls outside of explicit groups have gathered in memory together, beyond which they wait in a file
    /// without a name; 32 MiB by default. For tests.
    #[doc(hidden)]
    pub pending_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            policy: Policy::PerOp,
            segment_bytes: 1 << 20,
            log_min_bytes: 2 << 20,
            log_max_bytes: 64 << 20,
            background: true,
            checkpoint_threads: 2,
            gather_bytes: 512 << 10,
            pending_bytes: 32 << 20,
            stage_bytes: 512 << 10,
            open_files: 256,
            spare_bytes: 2 << 20,
            at_once: false,
            keep_undo_of_applied: None,
            accept_copy: false,
            release: false,
            trust_owner: false,
            straight: true,
            most_dirty: epochs::MOST_DIRTY,
        }
    }
}

impl Options {
    fn geometry(&self) -> Result<Geometry> {
        use crate::log::layout::{MAX_SEGMENT, MIN_SEGMENT};
        let bytes = self.segment_bytes;
        if !bytes.is_power_of_two() || !(MIN_SEGMENT..=MAX_SEGMENT).contains(&bytes) {
            return Err(Error::invalid(format!(
                "a segment of {bytes} bytes: the size is a power of two from 4096 to 2097152"
            )));
        }
        let min_segments = self.log_min_bytes.div_ceil(bytes).max(2) as u32;
        let max_segments = (self.log_max_bytes / bytes).max(u64::from(min_segments)) as u32;
        Ok(Geometry { segment_bytes: bytes, min_segments, max_segments })
    }
}

/// An open store. `docs/store.md` describes what it promises; [`Options`] how it can be opened.
///
/// Threads share a store; a clone is the same store. One process has it open at a time. [`close`](Self::close) writes
/// everything back. If the last clone is dropped instead, what is not written back yet stays in the log for the next
/// open; pending calls outside of groups are committed, but a failure is not reported.
///
/// After `fork`, parent or child keeps the store, whichever first makes a call on it or on its files; calls of the
/// other fail with [`Error::Busy`]. If the child keeps it, it recovers the store from its medium and finds what was
/// committed; groups that were running stay with the parent. A child that makes no call does not disturb the parent,
/// whatever it drops.
///
/// # Example
/// ```
/// # fn main() -> wholly::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("wholly-doc-store-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # wholly::Store::init(&dir, &wholly::Options::default())?;
/// let store = wholly::Store::open(&dir)?;
/// let file = store.create_file("settings", 0o644)?;
/// file.write_at(0, b"colour = blue\n")?; // outside of groups: by the default policy it survives when this returns
/// store.close()?; // other programs see the file now
/// # assert_eq!(std::fs::read(dir.join("settings")).unwrap(), b"colour = blue\n");
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Store {
    pub(crate) inner: Arc<StoreInner>,
    /// In a child after `fork`: the store that it took over.
    heir: OnceLock<Box<Store>>,
}

pub(crate) struct StoreInner {
    pub log: Log,
    pub host: Arc<dyn HostFs>,
    pub options: Options,
    pub index: Published,
    pub memory: Memory,
    pub shadows: Shadows,
    pub files: FileTable,
    pub seats: Seats,
    pub swap: Swap,
    pub batch: BatchLane,
    pub checkpointer: Checkpointer,
    pub names: Names,
    pub xattr_spaces: running::Spaces,
    pub clock: Clock,
    pub room: Room,
    pub parked: ParkedGroups,
    pub kept: KeptUndos,
    pub joint: JointCommits,
    /// The groups of calls outside of explicit groups.
    pub epochs: Policies<StoreInner>,
    /// Who reads home files through mappings.
    pub mapped_reads: MappedReads,
    /// Clones of the store that are left.
    handles: AtomicU64,
    /// How often the last handle of a file was dropped.
    closes: AtomicU64,
    pub recovery: RecoveryReport,
    poisoned: AtomicU8,
    poison: Mutex<Option<String>>,
    /// Inodes of the store's own files, to which a symbolic link may lead.
    pub own_inodes: Vec<(u64, i64)>,
    /// What keeps other processes out, given back last.
    pub forked: Forked<dyn Ownership>,
    /// For groups of the store's own.
    pub itself: OnceLock<Weak<StoreInner>>,
}

impl Store {
    /// Makes the log of a store in an empty region. When this returns, the log survives a power failure.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `segment_bytes` is not a power of two from 4096 to 2,097,152; errors of the medium.
    pub fn format_on(region: &dyn Region, options: &Options, volume_id: [u8; 16]) -> Result<()> {
        Self::format_in(region, options, volume_id, Origin::default())
    }

    /// The same, in a folder that is there.
    pub(crate) fn format_in(region: &dyn Region, options: &Options, volume_id: [u8; 16], origin: Origin) -> Result<()> {
        Log::format(region, options.geometry()?, volume_id, || StorePart { origin })
    }

    /// Opens a store on the given media: recovers it, and keeps it until it is closed. `ownership` is dropped last. For
    /// tests and tools that bring their own media; others use [`Store::open`](crate::Store::open).
    ///
    /// # Errors
    /// Those of [`Store::open`](crate::Store::open).
    pub fn open_on(
        region: Arc<dyn Region>,
        host: Arc<dyn HostFs>,
        options: Options,
        ownership: Option<Box<dyn Ownership>>,
    ) -> Result<Store> {
        Self::open_among(region, host, options, ownership, None)
    }

    /// Like [`open_on`](Self::open_on), for a store that can find other stores, as joint commits require.
    ///
    /// # Errors
    /// Those of [`Store::open`](crate::Store::open).
    #[doc(hidden)]
    pub fn open_among(
        region: Arc<dyn Region>,
        host: Arc<dyn HostFs>,
        options: Options,
        ownership: Option<Box<dyn Ownership>>,
        neighbours: Option<Arc<dyn Neighbours>>,
    ) -> Result<Store> {
        let region = recover::fitted(region, &host, &options)?;
        Self::open_fitted(region, host, options, ownership, neighbours)
    }

    /// The same, of a log that lies on what it was made for.
    fn open_fitted(
        region: Arc<dyn Region>,
        host: Arc<dyn HostFs>,
        options: Options,
        ownership: Option<Box<dyn Ownership>>,
        neighbours: Option<Arc<dyn Neighbours>>,
    ) -> Result<Store> {
        let inner = recover::open(region, host, options, ownership, neighbours)?;
        let store = Store { inner: Arc::new(inner), heir: OnceLock::new() };
        let _ = store.inner.itself.set(Arc::downgrade(&store.inner));
        store.inner.finish_recovery()?;
        store.inner.settle_joint()?;
        if store.inner.options.background {
            checkpoint::start_worker(&store.inner)?;
        }
        Ok(store)
    }

    /// Begins an explicit group. It never fails: if the store cannot be used, as in a child after `fork`, the first
    /// call on the group returns the error.
    pub fn begin(&self) -> Group<'static> {
        if self.inner.forked.is_mine() {
            return Group::explicit(&self.inner);
        }
        // What stands against it the group's calls say.
        match self.used(|inner| Ok(Group::explicit(inner))) {
            Ok(group) => group,
            Err(error) => Group::refused(error),
        }
    }

    /// Begins the group of one call on names.
    fn begin_single(&self) -> Group<'static> {
        self.used(|inner| Ok(Group::single(inner))).unwrap_or_else(Group::refused)
    }

    /// Makes a [`Writer`], which begins one group after the other faster than [`begin`](Self::begin).
    pub fn writer(&self) -> Writer {
        Writer::new(self)
    }

    /// Opens an existing regular file, for calls outside of groups and for use in groups. The path is relative to the
    /// store's directory. A symbolic link at its end is followed.
    ///
    /// # Errors
    /// - [`Error::NotFound`].
    /// - `EISDIR` for a directory; `EXDEV` if the path leaves the store's directory; `EACCES` if the process may not
    ///   both read and write the file.
    /// - [`Error::Invalid`] for any other object that is not a regular file.
    pub fn open_file(&self, path: impl AsRef<std::path::Path>) -> Result<File> {
        let path = table::store_path(path.as_ref())?;
        self.used(|inner| {
            inner.check_usable()?;
            let _caller = inner.names.caller();
            Ok(File::of(inner.clone(), inner.open_path(&path)?, &path))
        })
    }

    /// Creates a regular file with the permission bits `mode`, whatever the umask, in a group of its own. When this
    /// returns, the file survives a power failure.
    ///
    /// # Errors
    /// Those of [`Group::create`] and [`Group::commit`].
    pub fn create_file(&self, path: impl AsRef<std::path::Path>, mode: u32) -> Result<File> {
        let mut group = self.begin_single();
        let file = group.create(path, mode)?;
        group.commit()?;
        Ok(file)
    }

    /// Commits all calls that were made outside of explicit groups. When this returns, they survive a power failure.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed.
    pub fn sync(&self) -> Result<()> {
        self.used(|inner| inner.sync_all())
    }

    /// Announces a checkpoint of what is committed now; it waits in a queue until
    /// [`take_lot_home`](Self::take_lot_home) runs it. The background thread does the same whenever a quarter of the
    /// log has been written. For tests of a store without that thread.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed.
    #[doc(hidden)]
    pub fn announce_lot(&self) -> Result<()> {
        self.used(|inner| inner.announce_lot())
    }

    /// Runs the oldest checkpoint of the queue: writes back what was committed when it was announced. The background
    /// thread does the same when the log fills up.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Self::checkpoint).
    #[doc(hidden)]
    pub fn take_lot_home(&self) -> Result<CheckpointReport> {
        self.used(|inner| inner.take_lot_home())
    }

    /// Writes back everything that is committed. When this returns, it survives without the log, and other programs see
    /// it. If the log has grown, its free end is returned to the file system.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another program changed a file that the log has updates for; errors of the host file
    /// system. The log then keeps what is not written back.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.used(|inner| {
            inner.check_usable()?;
            let report = inner.checkpoint()?;
            inner.log.shrink().map_err(|error| inner.not_resized(error))?;
            Ok(report)
        })
    }

    /// Writes everything back and closes the store. When this returns, the log is empty.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Self::checkpoint). The log then keeps what is not written back, and the next open
    /// continues.
    pub fn close(self) -> Result<()> {
        if self.inner.forked.is_inherited() {
            let heir = self.inner.heir()?;
            drop(self);
            return heir.close();
        }
        self.used(|inner| inner.empty_log())
    }

    /// Writes everything back and removes the folder `.wholly`. When this returns, the directory is an ordinary one,
    /// and stays one after a power failure. A crash before that leaves a store that opens, or none; all files are
    /// current in both cases.
    ///
    /// # Errors
    /// - [`Error::Busy`]: the program holds other handles of the store or its files, or another store may still ask
    ///   this one for a decision ([`commit_together`](Self::commit_together)).
    /// - [`Error::Refused`] with `ENOTEMPTY`: the store has parked groups.
    /// - Those of [`checkpoint`](Self::checkpoint). The store then stays, with everything that is not written back.
    pub fn remove(self) -> Result<()> {
        if self.inner.forked.is_inherited() {
            let heir = self.inner.heir()?;
            drop(self);
            return heir.remove();
        }
        self.used(|inner| {
            if inner.has_parked()? {
                return Err(Error::Refused("the parked groups of the store".into(), rustix::io::Errno::NOTEMPTY));
            }
            inner.checkpointer.stop();
            // Nobody may commit between the checkpoint and the end: there is nobody else who could.
            if Arc::strong_count(inner) > 1 {
                return Err(Error::Busy("the store".into(), "this process has open handles of it".into()));
            }
            // No joint commit is under way either.
            inner.forget_settled()?;
            if inner.has_records()? {
                let why = "another store waits for its decision of a joint commit: open that one, or use \
                           `wholly recover --release` there";
                return Err(Error::Busy("the store".into(), why.into()));
            }
            inner.empty_log()
        })?;
        match self.inner.forked.take_ownership() {
            Some(ownership) => ownership.remove(),
            None => Ok(()),
        }
    }

    /// Runs a call on the store as this process has it.
    fn used<T>(&self, call: impl FnOnce(&Arc<StoreInner>) -> Result<T>) -> Result<T> {
        match self.inner.enter() {
            Ok(used) => {
                let result = call(&self.inner);
                self.inner.leave(used);
                result
            }
            Err(Refused::Inherited) => self.heir()?.used(call),
            Err(why) => Err(self.inner.refused(why)),
        }
    }

    /// In a child: its own store.
    #[cold]
    fn heir(&self) -> Result<&Store> {
        if let Some(heir) = self.heir.get() {
            return Ok(heir);
        }
        let heir = Box::new(self.inner.heir()?);
        Ok(self.heir.get_or_init(|| heir))
    }

    /// Whether the store can still be used: a write to its log that fails ends that.
    ///
    /// # Errors
    /// [`Error::Poisoned`] from then on.
    pub fn check_usable(&self) -> Result<()> {
        self.used(|inner| inner.check_usable())
    }

    /// What the last open found.
    pub fn recovery(&self) -> &RecoveryReport {
        self.heir.get().map_or(&self.inner.recovery, |heir| heir.recovery())
    }

    /// Whether another store may still ask this one for the decision of a joint commit
    /// ([`commit_together`](Self::commit_together)). This store cannot be [removed](Self::remove) until the other one
    /// has been opened.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; errors of the host file system.
    pub fn may_be_asked(&self) -> Result<bool> {
        self.used(|inner| {
            inner.check_usable()?;
            inner.forget_settled()?;
            inner.has_records()
        })
    }

    /// Returns what the last open did about joint commits that a crash had interrupted.
    pub fn decided(&self) -> Decided {
        match self.heir.get() {
            Some(heir) => heir.decided(),
            None if self.inner.forked.is_inherited() => Decided::default(),
            None => self.inner.joint.settled.lock().unwrap().clone(),
        }
    }

    /// Returns the figures that `wholly stat` prints.
    pub fn stat(&self) -> StoreStat {
        if self.inner.forked.is_inherited() {
            // Those of the parent cannot be looked at: their locks may be held.
            return self.heir().map_or_else(|_| StoreStat::default(), Store::stat);
        }
        let (segments, free) = self.inner.log.usable_segments();
        let (files, index_bytes) = self.inner.files.count();
        let (log_bytes_written, fences, syncs) = self.inner.log.totals();
        let parked = parked::folder::list(&*self.inner.host).unwrap_or_default();
        StoreStat {
            medium: self.inner.log.region().guarantees().description.clone(),
            emulated: self.inner.log.region().guarantees().emulated,
            incarnation: self.inner.log.incarnation(),
            segment_bytes: self.inner.log.segment_bytes(),
            segments,
            free_segments: free,
            pending_blocks: self.inner.files.pending(),
            gathered_bytes: self.inner.swap.in_memory(),
            open_files: files,
            index_bytes: index_bytes + self.inner.index.arena.memory_bytes(),
            versions: self.inner.index.arena.in_use(),
            log_bytes_written,
            home_bytes_written: self.inner.checkpointer.home_bytes(),
            home_names_changed: self.inner.checkpointer.home_names(),
            fences,
            syncs,
            parked_groups: parked.len() as u64,
            parked_bytes: parked.iter().fold(0, |sum, parked| sum.saturating_add(parked.space)),
            early_commits: self.inner.epochs.early_commits(),
        }
    }

    /// The log, for tools that read it.
    pub fn log(&self) -> &Log {
        &self.inner.log
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("incarnation", &self.inner.log.incarnation()).finish_non_exhaustive()
    }
}

impl Clone for Store {
    fn clone(&self) -> Self {
        self.inner.handles.fetch_add(1, Ordering::Relaxed);
        Store { inner: self.inner.clone(), heir: self.heir.clone() }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let last = self.inner.handles.fetch_sub(1, Ordering::AcqRel) == 1;
        if self.inner.forked.is_inherited() {
            keep_for_ever(&self.inner);
            if last {
                self.inner.forked.let_go();
            }
        } else if last {
            self.inner.checkpointer.stop();
            // All is committed as by a sync; where that fails the store is poisoned, and files that are open still say
            // so.
            self.inner.end(|epochs, store| epochs.end_all(store));
        }
    }
}

/// Figures about an open store. All are zero in a child of `fork` that cannot use the store.
#[derive(Clone, Debug, Default)]
pub struct StoreStat {
    /// What the log is stored on, in words.
    pub medium: String,
    /// Whether the medium only emulates persistent memory: then nothing survives a power failure.
    pub emulated: bool,
    /// How many times the store has been opened.
    pub incarnation: u64,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// The number of segments of the log.
    pub segments: u32,
    /// The number of segments that are free.
    pub free_segments: u32,
    /// The number of 4 KiB blocks whose latest bytes are not written back yet.
    pub pending_blocks: u64,
    /// Bytes in memory of calls outside of groups that no sync has committed yet, where they are not in the log.
    pub gathered_bytes: u64,
    /// The number of files that are open or have pending blocks.
    pub open_files: u64,
    /// Bytes of memory that the index takes.
    pub index_bytes: u64,
    /// The number of versions in the index, spare ones included.
    pub versions: u64,
    /// Bytes written to the log since the store was opened.
    pub log_bytes_written: u64,
    /// Bytes written back to ordinary files since the store was opened.
    pub home_bytes_written: u64,
    /// Names set or removed in the directory since the store was opened; a name that replaces another counts twice.
    pub home_names_changed: u64,
    /// The number of fences since the store was opened.
    pub fences: u64,
    /// The number of synchronous writes and syncs since the store was opened.
    pub syncs: u64,
    /// The number of parked groups.
    pub parked_groups: u64,
    /// Bytes of disk space that the parked groups take.
    pub parked_bytes: u64,
    /// How often calls outside of groups were committed before a sync or the timer, for want of space
    /// ([`Policy::Shared`]).
    pub early_commits: u64,
}

impl StoreInner {
    /// Refuses every call once a write-back has failed (contract 7).
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Relaxed) != 0 { Err(self.poison_error()) } else { Ok(()) }
    }

    #[cold]
    fn poison_error(&self) -> Error {
        Error::Poisoned(self.poison.lock().unwrap().clone().unwrap_or_default())
    }

    /// Records that a write to the log has failed: nothing is known of what survives of it, so nothing more is
    /// promised.
    #[cold]
    pub fn poison(&self, error: &Error) -> Error {
        self.poison_because(|| error.to_string())
    }

    /// The same, for a reason in words.
    #[cold]
    pub fn poison_because(&self, reason: impl FnOnce() -> String) -> Error {
        let mut poison = self.poison.lock().unwrap();
        let reason = poison.get_or_insert_with(reason).clone();
        self.poisoned.store(1, Ordering::Relaxed);
        Error::Poisoned(reason)
    }

    /// Copies a version's bytes.
    #[inline]
    pub fn read_position(&self, position: u64, buf: &mut [u8]) -> Result<()> {
        if position < SHADOWS {
            self.log.read_payload(position, buf)
        } else if position < ZEROS {
            self.shadows.read(&*self.host, position, buf)
        } else if position < MEMORY {
            buf.fill(0);
            Ok(())
        } else {
            self.memory.read(position, buf);
            Ok(())
        }
    }

    /// Takes everything home for the last time.
    fn empty_log(&self) -> Result<()> {
        self.checkpointer.stop();
        self.sync_all()?;
        self.checkpoint()?;
        self.clean_shadows()?;
        self.clean_folders(true)?;
        self.leave_lanes();
        self.log.release_below(self.log.tail())?;
        self.log.shrink().map_err(|error| self.not_resized(error))?;
        // All is home. What cannot be removed of it the next open tries again.
        let _ = self.remove_layer();
        Ok(())
    }

    fn leave_lanes(&self) {
        self.seats.leave(&self.log);
        if !self.log.is_pmem() {
            self.batch.leave(&self.log);
        }
    }
}
