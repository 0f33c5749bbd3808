//! A store over an ordinary directory of an ordinary file system.
//!
//! # Terms
//!
//! - *home*: the ordinary file, where its bytes are when the log is empty.
//! - *explicit group*: what a program does between [`Store::begin`] and its end. *Implicit group*: one call outside of any (policy
//!   `per-op`).
//! - *owner* of a file: the one explicit group that may change it. Implicit calls *share* a file.
//! - *position*: where a version's bytes are: below `SHADOWS` a byte of the log, from there on of a [shadow](shadow), from `ZEROS` on nowhere,
//!   from [`MEMORY`] on a byte of a buffer in memory (on disks a group's bytes stay there until they are home, so that nobody reads them back
//!   from the log).
//!
//! # Invariants
//!
//! 1. Nothing of a group is published before its commit record is durable.
//! 2. A block's versions of groups are in commit order: by their sequence, whoever publishes first.
//! 3. A checkpoint takes home only versions of groups below its target, all of which are published.
//! 4. The log tells which host file a number stands for in a group at or above the tail: a group that commits after a checkpoint was
//!    announced identifies the files that were identified below the announced tail again.
//! 5. Home bytes at or beyond a file's *home limit* do not count. The limit is never beyond the end of the home file, and is raised only
//!    right after the home file was cut to it.
//! 6. A home file is not touched before the superblock tells that a checkpoint has begun; the tail moves only after all home files and
//!    directories that the checkpoint touched are durable.
//! 7. What a bystander changed while the log held updates of the file is never overwritten.
//!
//! # States of a group
//!
//! ```text
//!             begin             commit record durable        home durable, tail past it
//!   (nothing) -----> running -------------------> committed ----------------> checkpointed
//!                       `--> aborted (asked for, dropped, process death)
//! ```
//!
//! `running` and `aborted` are [`Group`]'s, `committed` is the log's, `checkpointed` the checkpoint's.

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
mod memory;
mod names;
mod overlay;
mod parked;
mod published;
#[doc(hidden)]
pub mod records;
mod recover;
mod running;
mod salvage;
mod shadow;
mod space;
mod table;
mod vfs;
mod writer;

pub use check::{Finding, FindingKind, Report, check_on};
#[doc(hidden)]
pub use check::{is_own_folder, slots_of};
pub use checkpoint::CheckpointReport;
#[doc(hidden)]
pub use fork::Ownership;
pub use group::Group;
pub(crate) use guest::is_guest;
pub use handle::File;
pub use implicit::Policy;
pub(crate) use joint::parts_on;
#[doc(hidden)]
pub use joint::{ByPath, Neighbours};
pub use joint::{Part, PartState, Released, Settled};
pub use layer::LAYER;
pub use memory::MEMORY;
#[doc(hidden)]
pub use parked::folder::list as parked_on;
pub use parked::{Change, LONGEST_NOTE, Mismatch, Parked, ParkedId, Review, Side, What, XattrChange};
#[doc(hidden)]
pub use records::{Baseline, Identity};
pub use recover::RecoveryReport;
pub use salvage::{Fate, Salvaged, SalvagedGroup};
pub(crate) use salvage::{Original, SALVAGE, salvage_on};
pub use vfs::StoreVfs;
pub use writer::Writer;

use std::sync::{Arc, OnceLock, Weak};

use wholly_media::host::Refused;
use wholly_media::{HostFs, Region};

use crate::error::{Error, Result};
use crate::log::batch::BatchLane;
use crate::log::{Geometry, Log};
use crate::sync::{AtomicU8, AtomicU64, Mutex, Ordering};
use checkpoint::Checkpointer;
use clock::Clock;
use fork::{Forked, keep_for_ever};
use joint::JointCommits;
use lanes::Seats;
use memory::{Memory, SHADOWS, ZEROS};
use names::Names;
use parked::ParkedGroups;
use published::Published;
use shadow::Shadows;
use table::FileTable;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which calls outside of explicit groups survive together.
    pub policy: Policy,
    /// Bytes of a log segment when the store is made: a power of two from 4 KiB to 2 MiB.
    pub segment_bytes: u64,
    /// Bytes of log that the store is made with and keeps.
    pub log_min_bytes: u64,
    /// Bytes up to which the log grows before groups wait for a checkpoint. A single group may need more, and gets it.
    pub log_max_bytes: u64,
    /// Whether a thread takes committed data home in the background. Without it, that happens when the log is full, on
    /// [`Store::checkpoint`] and on [`Store::close`].
    pub background: bool,
    /// Threads that take a large amount home together: on persistent memory one alone copies more slowly than a program writes.
    pub checkpoint_threads: usize,
    /// Bytes of a group that are gathered in memory before it goes to the log early (on persistent memory most groups go there at once).
    pub gather_bytes: u64,
    /// Bytes that a group writes to a file that it makes, or one after the other to another where the host's files can share blocks, before
    /// they go to the host at once, and are written once, rather than to the log.
    pub stage_bytes: u64,
    /// Whether a copy of a store is taken for what it was copied from: its files are found by their places, whatever inodes they are
    /// ([`Error::Copied`]). Of no effect on what is no copy.
    pub adopt: bool,
    /// Whether groups that wait in vain for what the coordinator of a joint commit has decided become parked groups, so that the store opens
    /// ([`Store::commit_together`]), and so do those that were decided and cannot be committed. Records of this store are forgotten that only stores
    /// could ask for which cannot be found. Not for every open: where a coordinator is only late, what is released is committed in one store and
    /// not in another.
    pub release: bool,
    /// Whether a store opens that somebody else than the calling user and the superuser can have written to ([`Error::Untrusted`]). Whatever is written there is
    /// done with the rights of the calling process: files of any owner and mode are made and changed in the directory.
    pub trust_owner: bool,
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
            stage_bytes: 512 << 10,
            adopt: false,
            release: false,
            trust_owner: false,
        }
    }
}

impl Options {
    fn geometry(&self) -> Result<Geometry> {
        use crate::log::layout::{MAX_SEGMENT, MIN_SEGMENT};
        let bytes = self.segment_bytes;
        if !bytes.is_power_of_two() || !(MIN_SEGMENT..=MAX_SEGMENT).contains(&bytes) {
            return Err(Error::invalid(format!(
                "a segment of {bytes} bytes: it takes a power of two from 4096 to 2097152"
            )));
        }
        let min_segments = self.log_min_bytes.div_ceil(bytes).max(2) as u32;
        let max_segments = (self.log_max_bytes / bytes).max(u64::from(min_segments)) as u32;
        Ok(Geometry { segment_bytes: bytes, min_segments, max_segments })
    }
}

/// An open store: see [`Options`] for how, and the crate's documentation for what it guarantees.
///
/// A store is shared by threads; clones are the same store. One process owns it. It is closed by [`close`](Self::close), which takes
/// everything home, or when its last clone is dropped, which leaves the rest to the next open.
///
/// After `fork`, parent or child keeps it, whichever makes a call on it or on its files first; the calls of the other fail with
/// [`Error::Busy`]. A child that does recovers the store from its media: it finds what was committed, and groups that were running stay the
/// parent's. A child that never calls leaves the parent undisturbed, whatever it drops.
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
    pub batch: BatchLane,
    pub checkpointer: Checkpointer,
    pub names: Names,
    pub xattr_spaces: running::Spaces,
    pub clock: Clock,
    pub parked: ParkedGroups,
    pub joint: JointCommits,
    /// The implicit group of the store under the policy `shared`.
    pub shared: implicit::Epoch,
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
    pub forked: Forked,
    /// For groups of the store's own.
    pub itself: OnceLock<Weak<StoreInner>>,
}

impl Store {
    /// Makes the log of a store in an empty region; it survives when this returns.
    pub fn format_on(region: &dyn Region, options: &Options, volume_id: [u8; 16]) -> Result<()> {
        Log::format(region, options.geometry()?, volume_id)
    }

    /// Opens a store over given media: recovers it, and owns it until it is closed. `ownership` is dropped last.
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

    /// The same, of a store that can find others.
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
        let inner = recover::open(region, host, options, ownership, neighbours)?;
        let store = Store { inner: Arc::new(inner), heir: OnceLock::new() };
        let _ = store.inner.itself.set(Arc::downgrade(&store.inner));
        store.inner.finish_recovery()?;
        store.inner.settle_joint()?;
        if store.inner.options.background {
            checkpoint::start_worker(&store.inner);
        }
        Ok(store)
    }

    /// Begins an explicit group.
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

    /// A place to begin one group after the other from.
    pub fn writer(&self) -> Writer {
        Writer::new(self)
    }

    /// Opens an existing regular file for calls outside of groups, and for groups to use.
    ///
    /// # Errors
    /// [`Error::NotFound`], `EISDIR` for a directory, [`Error::Invalid`] for what else is no regular file; a path that leaves the store's
    /// directory is refused with `EXDEV`.
    pub fn open_file(&self, path: impl AsRef<std::path::Path>) -> Result<File> {
        let path = table::store_path(path.as_ref())?;
        self.used(|inner| {
            inner.check_usable()?;
            let _caller = inner.names.caller();
            Ok(File::of(inner.clone(), inner.open_path(&path)?, &path))
        })
    }

    /// Creates a regular file with the permission bits `mode`, in a group of its own: it survives when this returns.
    ///
    /// # Errors
    /// Those of [`Group::create`].
    pub fn create_file(&self, path: impl AsRef<std::path::Path>, mode: u32) -> Result<File> {
        let mut group = self.begin_single();
        let file = group.create(path, mode)?;
        group.commit()?;
        Ok(file)
    }

    /// Makes all calls outside of explicit groups so far survive: they do when this returns.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where the medium failed.
    pub fn sync(&self) -> Result<()> {
        self.used(|inner| inner.sync_all())
    }

    /// What the background thread does whenever the log has grown by a quarter: what is committed now becomes a lot, which waits for its
    /// pass. For a store without that thread, as the crash explorer has it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where the medium failed.
    #[doc(hidden)]
    pub fn announce_lot(&self) -> Result<()> {
        self.used(|inner| inner.announce_lot())
    }

    /// What the background thread does when the log fills up: the oldest lot goes home, and what was committed after it stays.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Self::checkpoint).
    #[doc(hidden)]
    pub fn take_lot_home(&self) -> Result<CheckpointReport> {
        self.used(|inner| inner.take_lot_home())
    }

    /// Takes everything that is committed home. On return it survives without the log, and other programs see it; where the log had grown,
    /// its free end is given back.
    ///
    /// # Errors
    /// [`Error::Conflict`] where a bystander changed a file; of the host file system. The log then keeps what is not home.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.used(|inner| {
            inner.check_usable()?;
            let report = inner.checkpoint()?;
            inner.log.shrink().map_err(|error| inner.not_resized(error))?;
            Ok(report)
        })
    }

    /// Takes everything home and gives the store up. On return the log is empty.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Self::checkpoint): then the log keeps what is not home, and the next open goes on.
    pub fn close(self) -> Result<()> {
        if self.inner.forked.is_inherited() {
            let heir = self.inner.heir()?;
            drop(self);
            return heir.close();
        }
        self.used(|inner| inner.empty_log())
    }

    /// Takes everything home and removes the folder `.wholly`: the directory is an ordinary one again. On return that survives a crash; a
    /// crash before leaves a store that opens, or none, and in either case all files are current.
    ///
    /// # Errors
    /// [`Error::Busy`] while other handles of the store, or of its files, are there, or another store may ask what was decided here
    /// ([`commit_together`](Self::commit_together)); `ENOTEMPTY` where groups are parked in it; those of
    /// [`checkpoint`](Self::checkpoint): then the store stays, with all that is not home.
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
                return Err(Error::Busy("the store".into(), "this process has handles of it".into()));
            }
            // No joint commit is under way either.
            inner.forget_settled()?;
            if inner.has_records()? {
                let why = "a store of a joint commit has not asked for the decision yet: open that one, or give it up by `wholly recover --release`";
                return Err(Error::Busy("the store".into(), why.into()));
            }
            inner.empty_log()
        })?;
        match self.inner.take_ownership() {
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

    /// Whether another store may ask this one what was decided ([`commit_together`](Self::commit_together)): then it cannot be
    /// [removed](Self::remove) before that is opened.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; of the host file system.
    pub fn may_be_asked(&self) -> Result<bool> {
        self.used(|inner| {
            inner.check_usable()?;
            inner.forget_settled()?;
            inner.has_records()
        })
    }

    /// What the last open did about joint commits that a crash had cut short.
    pub fn settled(&self) -> Settled {
        match self.heir.get() {
            Some(heir) => heir.settled(),
            None if self.inner.forked.is_inherited() => Settled::default(),
            None => self.inner.joint.settled.lock().unwrap().clone(),
        }
    }

    /// The numbers that `wholly stat` prints.
    pub fn stat(&self) -> StoreStat {
        if self.inner.forked.is_inherited() {
            // Those of the parent cannot be looked at: their locks may be held.
            return self.heir().map_or_else(|_| StoreStat::default(), Store::stat);
        }
        let (segments, free) = self.inner.log.segments();
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
            open_files: files,
            index_bytes: index_bytes + self.inner.index.arena.memory_bytes(),
            versions: self.inner.index.arena.in_use(),
            log_bytes_written,
            home_bytes_written: self.inner.checkpointer.home_bytes(),
            fences,
            syncs,
            parked_groups: parked.len() as u64,
            parked_bytes: parked.iter().map(|parked| parked.space).sum(),
        }
    }

    /// The log, for tools.
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
                self.inner.let_go();
            }
        } else if last {
            self.inner.checkpointer.stop();
            // The shared group is committed as by a sync; where that fails the store is poisoned, and files that are open still say so.
            let synced = self.inner.enter().is_ok_and(|used| {
                let synced = self.inner.sync_all();
                self.inner.leave(used);
                synced.is_ok()
            });
            if !synced {
                self.inner.drop_epochs();
            }
        }
    }
}

/// What a store is doing. All is zero in a child that has it by `fork` and cannot have it.
#[derive(Clone, Debug, Default)]
pub struct StoreStat {
    /// What the log is on, in words.
    pub medium: String,
    /// Whether that only stands in for persistent memory.
    pub emulated: bool,
    /// How often the store was opened.
    pub incarnation: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Segments of the log.
    pub segments: u32,
    /// How many of them are free.
    pub free_segments: u32,
    /// Blocks whose latest bytes are not home.
    pub pending_blocks: u64,
    /// Files that are open or have pending blocks.
    pub open_files: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Versions in the index, spare ones included.
    pub versions: u64,
    /// Bytes written to the log since the open.
    pub log_bytes_written: u64,
    /// Bytes written to home files since the open.
    pub home_bytes_written: u64,
    /// Fences since the open.
    pub fences: u64,
    /// Synchronous writes and syncs since the open.
    pub syncs: u64,
    /// Groups that are parked.
    pub parked_groups: u64,
    /// Bytes that they take.
    pub parked_bytes: u64,
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

    /// Records that a write to the log has failed: nothing is known of what survives of it, so nothing more is promised.
    #[cold]
    pub fn poison(&self, error: &Error) -> Error {
        let mut poison = self.poison.lock().unwrap();
        let reason = poison.get_or_insert_with(|| error.to_string()).clone();
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
