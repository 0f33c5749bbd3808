//! Opening and checking volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use sync::{AtomicBool, Ordering, thread};
use wholly_blocks::TxBlocks;
use wholly_blocks::multi_queue::{Queues, region_of};
use wholly_error::{Error, Result};
use wholly_host::Forked;
use wholly_media::{Error as MediaError, Guarantees, Region, Site};
use wholly_nvme::model::WANTED;
use wholly_vfs::Timestamp;

use crate::engine::fine_grained_wal;
use crate::engine::hybrid_log::WriteBack;
use crate::engine::kind::{DataMode, Description, EngineKind, Has, Left, Logs, Opening, Tuning};
use crate::engine::none::NoneEngine;
use crate::engine::patch::{self, Patch};
use crate::engine::{DurableAt, Engine, InoGen, InodeMap, Moved, Reached, Trial};
use crate::fork::{Opened, Owned};
use crate::format::inode::{PER_BLOCK, Time};
use crate::format::superblock::{Superblock, copies};
use crate::format::{BLOCK, Lba, Seed};
use crate::fs::check::{self, Checked, Finding, Progress};
use crate::fs::checkpoint::A_LITTLE;
use crate::fs::checkpointers::{Checkpointers, Why};
use crate::fs::dump::{self, DumpedInode, SuperblockCopy};
use crate::fs::overlay::{self, Overlay};
use crate::fs::remedy::Remedy;
use crate::fs::repair::{self, Mended, Outcome, Repair};
use crate::fs::storage::slot_of;
use crate::fs::{Core, NUMBER_BITS, mount, resize};
use crate::medium::{self, Location, Medium, opened_volume, region_of_volume, region_to_read};
use crate::{VolumeVfs, owner};

pub(crate) const LENGTH: Site = Site("volume.length");

/// How a volume is made and opened.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// How the file or device is used.
    pub medium: Medium,
    /// The most bytes of memory for cached inodes, and for cached blocks of a disk. At least 1 MiB is used.
    pub cache_bytes: usize,
    /// The engine of a new volume. `None`: the one for its medium, see [`EngineKind::for_medium`].
    pub engine: Option<EngineKind>,
    /// The name of a new volume: at most 64 bytes.
    pub label: String,
    /// How many queues a new volume has a journal for, with the engine `multi_queue`. `None`: 4, or fewer on a small
    /// one.
    pub queues: Option<u16>,
    /// What the engine `multi_queue` does with content. A new volume has this mode, `None`: `Ordered`; one that is
    /// opened was made with this one, `None`: with any.
    pub data: Option<DataMode>,
    /// Whether a new volume may replace what is in the file or device.
    pub force: bool,
    /// The clock that times of files are taken from.
    pub clock: fn() -> Timestamp,
    /// Whether a mount after a crash writes back at once what waits for that. For comparison (FCFS-IR in the paper).
    pub instant_recovery: bool,
    /// How many threads write content back in the background, with the engine `hybrid_log`: while the volume is idle,
    /// and when less than a tenth of it is free. `None`: half as many as there are processors, but at least one; on a
    /// region ([`Volume::open_region`]) none. Without any, calls do it, a little at a time.
    pub checkpointers: Option<usize>,
    /// How the engine `hybrid_log` writes content back. For measurement: no other value serves a user.
    pub write_back: WriteBack,
    /// Of how many bytes on a change moves a block, with the engines `undo` and `shortcut_jfs`: half of a block if it
    /// is not said. For measurement: half is best.
    pub move_from: Option<usize>,
    /// The clock by which threads in the background see that the volume is idle: for tests.
    #[doc(hidden)]
    pub idle_clock: fn() -> Duration,
    /// For tests.
    #[doc(hidden)]
    pub trial: Trial,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        VolumeOptions {
            medium: Medium::Auto,
            cache_bytes: 64 << 20,
            engine: None,
            label: String::new(),
            queues: None,
            data: None,
            force: false,
            clock: crate::fs::clock,
            instant_recovery: false,
            checkpointers: None,
            write_back: WriteBack::default(),
            move_from: None,
            idle_clock: sync::now,
            trial: Trial::default(),
        }
    }
}

/// What [`Volume::stat`] tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStat {
    /// The UUID of the volume.
    pub volume_id: [u8; 16],
    /// Its name.
    pub label: String,
    /// The engine.
    pub engine: String,
    /// The medium, in words.
    pub medium: String,
    /// Whether persistence is only emulated.
    pub emulated: bool,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Free ones, and those that become free when they are needed.
    pub free_blocks: u64,
    /// Of those, blocks with content that waits to be written back.
    pub pending_blocks: u64,
    /// Of those, blocks that the inode file does not need.
    pub idle_blocks: u64,
    /// Bytes of memory of the index over the pending ones. It keeps the most that it has needed.
    pub index_bytes: u64,
    /// Inodes that there is room for.
    pub inodes: u64,
    /// Free ones.
    pub free_inodes: u64,
    /// How often it was mounted.
    pub incarnation: u64,
}

/// What [`Volume::dump`] shows beside the superblocks.
#[derive(Clone, Copy, Debug)]
pub enum Object<'p> {
    /// What a path names. Symbolic links are not followed.
    Path(&'p [u8]),
    /// The inode with this number; 2 is the inode file.
    Inode(u64),
}

/// What [`Volume::dump`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// The copies of the superblock.
    pub superblocks: Vec<SuperblockCopy>,
    /// The inode that was asked for.
    pub inode: Option<DumpedInode>,
}

/// What [`Volume::repair`] has done.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// What was wrong, and what was done.
    pub done: Vec<Mended>,
    /// What is wrong still. Unless it is for want of space, nothing but the log was repaired then.
    pub left: Vec<Finding>,
    /// What a check says now.
    pub checked: Checked,
    /// Why the repair ended too early: what is in `done` was done before that.
    pub ended: Option<Error>,
}

/// An open volume. Clones are the same one; it is unmounted when the last is dropped, or by [`close`](Self::close).
///
/// After `fork`, parent or child keeps the volume, whichever first makes a call on it or on its files; calls of the
/// other fail with [`Error::Busy`]. If the child keeps it, it recovers the volume from its medium and finds what was
/// committed; groups that were running stay with the parent. A child that makes no call does not disturb the parent,
/// whatever it drops.
#[derive(Clone)]
pub struct Volume {
    opened: Arc<Opened>,
    /// Outside of groups.
    calls: VolumeCalls,
}

/// Calls by path on a volume.
pub type VolumeCalls = wholly_vfs::Calls<VolumeVfs>;

/// An open regular file of a volume.
pub type VolumeFile = wholly_vfs::File<VolumeVfs>;

/// An explicit group of a volume. What it writes takes free space, and no memory but for an index.
///
/// # Example
/// ```
/// # fn main() -> wholly_error::Result<()> {
/// # let path = std::path::PathBuf::from(format!("/dev/shm/wholly-doc-group-{}", std::process::id()));
/// use wholly_volume::{EngineKind, Volume, VolumeOptions};
///
/// let options = VolumeOptions { engine: Some(EngineKind::FineGrainedWal), ..VolumeOptions::default() };
/// Volume::format(&path, 1 << 20, &options)?;
/// let volume = Volume::open(&path, &options)?;
/// let mut group = volume.begin();
/// group.mkdir("accounts", 0o755)?;
/// let file = group.create("accounts/alice", 0o644)?;
/// group.write_at(&file, 0, b"70")?;
/// assert!(volume.metadata("accounts").is_err());
/// group.commit()?; // durable
/// assert_eq!(volume.metadata("accounts/alice")?.size, 2);
/// # drop(file);
/// # volume.close()?;
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
pub type VolumeGroup = wholly_vfs::Group<VolumeVfs>;

impl std::ops::Deref for Volume {
    type Target = VolumeCalls;

    fn deref(&self) -> &VolumeCalls {
        &self.calls
    }
}

/// A volume in the memory of the process that opened it.
pub(crate) struct Mounted {
    pub core: Core,
    region: Arc<dyn Region>,
    closed: AtomicBool,
    /// What keeps other processes out, given back last.
    pub forked: Forked<Owned>,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("medium", &self.opened.mounted.region.guarantees().description)
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// Makes an empty volume on a region, whose whole blocks it takes.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if it is too small.
    pub fn format_region(region: &dyn Region, options: &VolumeOptions) -> Result<()> {
        Self::format_as(region, options, new_id()?, &|_, _| (), Has::default())
    }

    /// The same on a medium, telling how far it is.
    pub(crate) fn format_watched(
        medium: &medium::Opened,
        options: &VolumeOptions,
        watch: &dyn Fn(u64, u64),
    ) -> Result<()> {
        Self::format_as(&*medium.region, options, new_id()?, watch, medium.has())
    }

    /// [`format_region_as`](Self::format_region_as) on a medium that has transactions of its own.
    ///
    /// # Errors
    /// As `format_region`.
    #[doc(hidden)]
    pub fn format_blocks_as(blocks: &dyn TxBlocks, options: &VolumeOptions, volume_id: [u8; 16]) -> Result<()> {
        let has = Has { transactions: true, ..Has::default() };
        Self::format_as(&*blocks.plain(), options, volume_id, &|_, _| (), has)
    }

    /// [`format_region_as`](Self::format_region_as) on the queues of a device.
    ///
    /// # Errors
    /// As `format_region`.
    #[doc(hidden)]
    pub fn format_queues_as(queues: Arc<dyn Queues>, options: &VolumeOptions, volume_id: [u8; 16]) -> Result<()> {
        let medium = on_queues(queues);
        Self::format_as(&*medium.region, options, volume_id, &|_, _| (), medium.has())
    }

    /// [`format_region`](Self::format_region) with an id that no other volume has.
    ///
    /// # Errors
    /// As `format_region`.
    #[doc(hidden)]
    pub fn format_region_as(region: &dyn Region, options: &VolumeOptions, volume_id: [u8; 16]) -> Result<()> {
        Self::format_as(region, options, volume_id, &|_, _| (), Has::default())
    }

    fn format_as(
        region: &dyn Region,
        options: &VolumeOptions,
        volume_id: [u8; 16],
        watch: &dyn Fn(u64, u64),
        has: Has,
    ) -> Result<()> {
        let engine = options.engine.unwrap_or_else(|| EngineKind::chosen(region.guarantees(), has));
        engine.check_medium(region)?;
        engine.check_transactions(has.transactions)?;
        engine.check_data(options.data)?;
        let Timestamp { sec, nsec } = (options.clock)();
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let Description { number, zeroes_log, make_log, has_heads, keeps_bitmaps, .. } = *engine.description();
        let making = mount::Making {
            volume_id,
            label: &options.label,
            owner,
            now: Time { sec, nsec },
            engine: number,
            log: engine.log_on(has.transactions),
            queues: has.queues_for(options.queues)?,
            journals_content: options.data == Some(DataMode::Journal),
            zeroes_log,
            make_log,
            has_heads,
            has_bitmaps: keeps_bitmaps,
            watch,
        };
        mount::format(region, &making)
    }

    /// Opens a volume in a file or on a device. No other process can open it meanwhile.
    ///
    /// # Errors
    /// [`Error::Busy`]; [`Error::Unsupported`] if it is no volume; [`Error::Corrupt`].
    pub fn open(path: &Path, options: &VolumeOptions) -> Result<Volume> {
        let (file, lock) = own(path, Access::Use)?;
        let copy = fcntl_dupfd_cloexec(&file, 0).map_err(|errno| failed("dup", path, errno))?;
        Self::open_owned(opened_volume(file, path, options)?, Some((lock, copy, path.to_path_buf())), options.clone())
    }

    /// The engine of the volume in a file or on a device. It may be mounted: this only reads its superblock.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is no volume, or the engine is not known; [`Error::Corrupt`].
    pub fn engine_of(path: &Path) -> Result<EngineKind> {
        medium::engine_in(open_file(path, flags_of(Access::Read))?, path)
    }

    /// Opens a volume on a region, which nobody else uses: no child either that is forked meanwhile.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_region(region: Arc<dyn Region>, options: &VolumeOptions) -> Result<Volume> {
        Self::open_owned(region.into(), None, options.clone())
    }

    /// The same, with another engine than the superblock's, which it is made of: for tests.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_region_with(
        region: Arc<dyn Region>,
        options: &VolumeOptions,
        change: impl FnOnce(Box<dyn Engine>) -> Box<dyn Engine>,
    ) -> Result<Volume> {
        Self::open_changed(region.into(), None, options.clone(), change)
    }

    /// A volume on a medium that has transactions of its own. For the explorer.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_blocks(blocks: Arc<dyn TxBlocks>, options: &VolumeOptions) -> Result<Volume> {
        let medium = medium::Opened { region: blocks.plain(), transactions: Some(blocks), queues: None };
        Self::open_changed(medium, None, options.clone(), |engine| engine)
    }

    /// A volume on the queues of a device. For the explorer.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_queues(queues: Arc<dyn Queues>, options: &VolumeOptions) -> Result<Volume> {
        Self::open_changed(on_queues(queues), None, options.clone(), |engine| engine)
    }

    /// `owned`: the lock of the file or device, a descriptor of it and its path.
    pub(crate) fn open_owned(
        medium: medium::Opened,
        owned: Option<(owner::Lock, OwnedFd, PathBuf)>,
        options: VolumeOptions,
    ) -> Result<Volume> {
        Self::open_changed(medium, owned, options, |engine| engine)
    }

    fn open_changed(
        medium: medium::Opened,
        owned: Option<(owner::Lock, OwnedFd, PathBuf)>,
        options: VolumeOptions,
        change: impl FnOnce(Box<dyn Engine>) -> Box<dyn Engine>,
    ) -> Result<Volume> {
        let region = medium.region.clone();
        repair::finish(&*region)?;
        let cache = options.cache_bytes.max(1 << 20);
        let engine = change(engine(medium, cache, &options)?);
        let mut core = mount::mount(&region, engine, cache / 4, options.clock)?;
        core.checkpointers = Checkpointers::new(options.idle_clock);
        if options.instant_recovery {
            core.checkpoint(&|| u64::MAX, u64::MAX)?;
        }
        let (always, kept_back) = (core.engine.durable_at() != DurableAt::Return, core.kept_back());
        let keeps_back = move || always || kept_back.any();
        let threads = match options.checkpointers {
            _ if !core.engine.writes_back() => 0,
            None if owned.is_none() => 0,
            None => thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2)),
            Some(threads) => threads,
        };
        let owned = owned
            .map(|(lock, file, path)| Box::new(Owned { lock, file, path, options, keeps_back: Box::new(keeps_back) }));
        let (closed, forked) = (AtomicBool::new(false), Forked::new(owned));
        let mounted = Arc::new(Mounted { core, region, closed, forked });
        mounted.start_checkpointers(threads);
        let opened = Arc::new(Opened { mounted });
        let calls = VolumeCalls::new(Arc::new(VolumeVfs::over(opened.clone())));
        Ok(Volume { calls, opened })
    }

    /// Checks a volume that is not mounted. Changes nothing, and needs no right to: the file or device may be one that
    /// is only read.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is mounted; [`Error::Unsupported`] if it is no volume. Damage is in the result.
    pub fn check(path: &Path) -> Result<Checked> {
        Self::check_watched(path, &mut |_| ControlFlow::Continue(()))
    }

    /// [`check`](Self::check), telling how far it is.
    ///
    /// # Errors
    /// Those of `check`; [`Error::Refused`] with `EINTR` if `watch` ends it.
    pub fn check_watched(path: &Path, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Checked> {
        let (region, _lock) = only_read(path)?;
        check_region(&*region, watch)
    }

    /// Checks a volume on a region that is not mounted: as a mount would find it, where a crash has left something to
    /// repair.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn check_region(region: &dyn Region) -> Result<Checked> {
        check_region(region, &mut |_| ControlFlow::Continue(()))
    }

    /// Repairs a volume that is not mounted. With [`Repair::Safe`], one that was unmounted is not looked at further,
    /// unless `forced`. What was done is durable on return; a crash leaves the damage as it was, or a repair that the
    /// next opener finishes.
    ///
    /// # Errors
    /// Those of [`check_watched`](Self::check_watched); [`Error::NoSpace`] if there is no room for the copies of what
    /// changes. Nothing was repaired then: once something was, the error is in the result.
    pub fn repair(
        path: &Path,
        options: &VolumeOptions,
        (how, forced): (Repair, bool),
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Repaired> {
        let (file, _lock) = own(path, Access::Use)?;
        repair_medium(&opened_volume(file, path, options)?, options, (how, forced), watch)
    }

    /// The same on a region.
    ///
    /// # Errors
    /// Those of [`repair`](Self::repair).
    pub fn repair_region(
        region: &Arc<dyn Region>,
        options: &VolumeOptions,
        (how, forced): (Repair, bool),
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Repaired> {
        repair_medium(&region.clone().into(), options, (how, forced), watch)
    }

    /// Makes a volume that is not mounted larger or smaller, as far as no block in use would be cut off; a file becomes
    /// as long as the volume. It is durable on return, and recovered before.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is mounted; [`Error::Corrupt`] if anything is wrong with it; [`Error::NoSpace`] if it
    /// cannot become so small, or so large: then nothing has changed.
    pub fn resize(path: &Path, bytes: u64, options: &VolumeOptions) -> Result<()> {
        Self::open(path, options)?.close()?;
        let (file, _lock) = own(path, Access::Use)?;
        let is_file = !medium::is_whole(&file, path)?;
        let region = region_of_volume(file, path, options)?;
        let (before, len) = (region.len(), bytes / BLOCK as u64 * BLOCK as u64);
        if is_file && len > before {
            region.extend(LENGTH, len)?;
        }
        let resized = Self::resize_region(&*region, len);
        // Also what was added for nothing goes.
        let end = if resized.is_ok() { len } else { before };
        if is_file && region.len() > end {
            region.set_len(LENGTH, end)?;
        }
        resized
    }

    /// The same on a region that is long enough, whose volume was unmounted.
    ///
    /// # Errors
    /// Those of [`resize`](Self::resize).
    pub fn resize_region(region: &dyn Region, bytes: u64) -> Result<()> {
        resize::resize(region, bytes / BLOCK as u64)
    }

    /// Gives a volume that is not mounted another label, of at most 64 bytes. It is durable on return.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is mounted; [`Error::Invalid`] for a label that is too long.
    pub fn set_label(path: &Path, label: &str, options: &VolumeOptions) -> Result<()> {
        Self::open(path, options)?.close()?;
        let (file, _lock) = own(path, Access::Use)?;
        resize::set_label(&*region_of_volume(file, path, options)?, label)
    }

    /// The same on a region whose volume was unmounted.
    ///
    /// # Errors
    /// Those of [`set_label`](Self::set_label).
    pub fn set_label_of_region(region: &dyn Region, label: &str) -> Result<()> {
        resize::set_label(region, label)
    }

    /// What stands on a volume that is not mounted: the copies of its superblock, and one inode, if asked for, as the
    /// next mount finds it.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is mounted; [`Error::NotFound`]; if an inode is asked for, those of a volume whose
    /// superblock or inode file cannot be read. Other damage is in the result.
    pub fn dump(path: &Path, of: Option<Object<'_>>) -> Result<Dumped> {
        let (region, _lock) = only_read(path)?;
        Self::dump_region(&*region, of)
    }

    /// The same of a volume on a region.
    ///
    /// # Errors
    /// Those of [`dump`](Self::dump).
    pub fn dump_region(region: &dyn Region, of: Option<Object<'_>>) -> Result<Dumped> {
        let superblocks = dump::superblocks(region)?;
        let Some(of) = of else { return Ok(Dumped { superblocks, inode: None }) };
        let (inode, _) = recovered(region, |over| {
            let image = dump::Image::new(over)?;
            let ino = match of {
                Object::Path(path) => image.find(path)?,
                Object::Inode(ino) => ino,
            };
            image.inode(ino)
        })?;
        Ok(Dumped { superblocks, inode: Some(inode) })
    }

    /// Makes everything durable, and marks the volume as clean. Later calls on it fail.
    ///
    /// # Errors
    /// Those of the medium: the volume is then not clean. [`Error::Busy`] if another process keeps it after `fork`.
    pub fn close(self) -> Result<()> {
        self.opened.used(Mounted::close)
    }

    /// Ends without an unmount, as the death of the process does: nothing more is written.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.inner().closed.store(true, Ordering::Release);
        self.inner().core.checkpointers.stop();
        self.inner().core.end();
    }

    /// When calls are durable.
    #[doc(hidden)]
    pub fn durable_at(&self) -> DurableAt {
        self.inner().core.engine.durable_at()
    }

    /// How far an engine with series has come.
    #[doc(hidden)]
    pub fn reached(&self) -> Reached {
        self.inner().core.engine.reached()
    }

    /// From here on reads leave times of access as they are: who looks at all that there is commits nothing.
    #[doc(hidden)]
    pub fn keep_access_times(&self) {
        self.inner().core.keeps_access_times.store(true, Ordering::Relaxed);
    }

    /// Makes all changes so far durable.
    ///
    /// # Errors
    /// Those of the medium; [`Error::Busy`] if another process keeps the volume after `fork`.
    pub fn sync(&self) -> Result<()> {
        self.opened.used(|mounted| mounted.core.sync())
    }

    /// Writes back content that the engine keeps elsewhere than at home: all that is committed when this is called.
    /// Other calls go on meanwhile; threads that call this at the same time share the work.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed, or the volume is being closed; [`Error::Busy`] if another process
    /// keeps it after `fork`.
    pub fn checkpoint(&self) -> Result<()> {
        self.opened.used(|mounted| {
            let _admitted = mounted.core.admit()?;
            mounted.core.sync()?;
            mounted.core.checkpoint(&|| u64::MAX, u64::MAX)?;
            mounted.core.await_checkpoints();
            Ok(())
        })
    }

    /// Writes one block of content back, as a thread in the background does: for the explorer.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Self::checkpoint).
    #[doc(hidden)]
    pub fn checkpoint_one(&self) -> Result<bool> {
        self.opened.used(|mounted| mounted.core.checkpoint_a_little(Why::IsIdle, 1))
    }

    /// Begins an explicit group. It never fails: if the volume cannot be used, or its engine has no groups, the calls
    /// on the group say so.
    pub fn begin(&self) -> VolumeGroup {
        self.calls.begin()
    }

    /// What the volume is, and how full. All is zero or empty in a process that cannot use it, since another one keeps
    /// it after `fork`.
    pub fn stat(&self) -> VolumeStat {
        self.opened.used(|mounted| Ok::<_, Error>(mounted.stat())).unwrap_or_default()
    }

    /// What was asked of the transactions of blocks below the engine, if there are some.
    #[doc(hidden)]
    pub fn block_counters(&self) -> Option<wholly_blocks::Counters> {
        self.opened.used(|mounted| Ok::<_, Error>(mounted.core.engine.counters())).ok().flatten()
    }

    pub(crate) fn opened(&self) -> &Arc<Opened> {
        &self.opened
    }

    pub(crate) fn inner(&self) -> &Mounted {
        &self.opened.mounted
    }
}

/// An id that no other volume has: a random UUID (RFC 9562, version 4).
fn new_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    let got = rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty());
    got.map_err(|errno| Error::Media(MediaError::new("getrandom", "", errno)))?;
    (id[6], id[8]) = (id[6] & 0x0f | 0x40, id[8] & 0x3f | 0x80);
    Ok(id)
}

fn on_queues(queues: Arc<dyn Queues>) -> medium::Opened {
    medium::Opened { region: region_of(queues.clone()), transactions: None, queues: Some(queues) }
}

/// The engine of a volume.
fn engine(
    medium::Opened { region, transactions, queues }: medium::Opened,
    cache_bytes: usize,
    options: &VolumeOptions,
) -> Result<Box<dyn Engine>> {
    let superblock = mount::read_superblock(&*region)?;
    let kind = EngineKind::of(&superblock)?;
    kind.check_medium(&*region)?;
    kind.check_transactions(transactions.is_some())?;
    let data = DataMode::of(&superblock);
    if let Some(wanted) = options.data.filter(|wanted| *wanted != data) {
        let (wanted, data) = (wanted.name(), data.name());
        return Err(Error::Invalid(format!(
            "data mode {wanted}: the volume was made with {data}; open it with that or with none, or make one with \
             `wholly mkfs --engine multi_queue --data {wanted}` and copy the files"
        )));
    }
    let VolumeOptions { write_back, move_from, trial, .. } = *options;
    kind.open(Opening {
        region,
        transactions,
        queues,
        log: superblock.log,
        heads: superblock.heads,
        bitmaps: superblock.bitmaps,
        blocks: superblock.blocks,
        version: superblock.version,
        volume_id: superblock.volume_id,
        volume: Seed::of(&superblock.volume_id),
        incarnation: superblock.incarnation,
        journals_content: data == DataMode::Journal,
        cache_bytes,
        tuning: Tuning { write_back, move_from, trial },
    })
}

/// An engine for what is to be stored in place.
fn in_place(region: &Arc<dyn Region>) -> Box<dyn Engine> {
    Box::new(NoneEngine::new(region.clone(), 1 << 20))
}

/// What the log of a volume has to store yet; damaged lanes apart.
#[derive(Default)]
struct Logged {
    patches: Vec<Patch>,
    /// Blocks of files that may have moved.
    moved: Vec<Moved>,
    /// The map of the inode file that counts, if it is not the superblock's.
    inode_map: Option<InodeMap>,
    damage: Vec<Finding>,
    /// Content of single blocks that waits to be written back, and is damaged.
    content: Vec<Finding>,
    /// Blocks of other structures that cannot be read.
    unreadable: Vec<Finding>,
}

/// What is wrong with a log, if it is damage.
fn of_log(error: Error) -> Result<Finding> {
    match error {
        Error::Corrupt { place, fault } => Ok(Finding { place, fault }),
        Error::Media(error) if overlay::is_lost(&error) => {
            Ok(Finding { place: "the log".into(), fault: error.to_string() })
        }
        error => Err(error),
    }
}

fn logged(region: &dyn Region, superblock: &Superblock) -> Result<Logged> {
    let mut logged = Logged::default();
    let kind = EngineKind::of(superblock)?;
    if let Err(error) = kind.check_log(superblock) {
        logged.damage.push(of_log(error)?);
        return Ok(logged);
    }
    let Superblock { is_clean: false, log: Some(area), heads, volume_id, incarnation, repair: None, .. } = superblock
    else {
        return Ok(logged);
    };
    let (version, volume, incarnation) = (superblock.version, Seed::of(volume_id), *incarnation);
    let logs = Logs { area, heads: heads.as_ref(), version, volume_id: *volume_id, volume, incarnation };
    // Which log it is the engine says, whatever else the superblock names.
    let Left { patches, moved, inode_map, damage, content } = (kind.description().left)(region, &logs);
    let of_content = |((file, block), error): ((InoGen, u64), Error)| {
        let Finding { place, fault } = of_log(error)?;
        Ok(Finding { place: format!("block {block} of inode {}", file.ino), fault: format!("{place}: {fault}") })
    };
    (logged.patches, logged.moved, logged.inode_map) = (patches, moved, inode_map);
    logged.damage = damage.into_iter().map(of_log).collect::<Result<_>>()?;
    logged.content = content.into_iter().map(of_content).collect::<Result<_>>()?;
    Ok(logged)
}

/// A region as it is after the recovery of its log. It is only read.
struct Patched<'r> {
    region: &'r dyn Region,
    patches: &'r [Patch],
    /// Those of each block, in their order.
    by_block: BTreeMap<u64, Vec<u32>>,
}

impl<'r> Patched<'r> {
    fn new(region: &'r dyn Region, patches: &'r [Patch]) -> Patched<'r> {
        let mut by_block: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (patch, i) in patches.iter().zip(0..) {
            let end = (patch.at + patch.len).div_ceil(BLOCK as u64);
            (patch.at / BLOCK as u64..end).for_each(|block| by_block.entry(block).or_default().push(i));
        }
        Patched { region, patches, by_block }
    }

    /// The patches of blocks of which the range has bytes, in their order. No others are looked at: a group may have
    /// left any number of them.
    fn of_range(&self, from: u64, to: u64) -> BTreeSet<u32> {
        let blocks = from / BLOCK as u64..to.div_ceil(BLOCK as u64);
        self.by_block.range(blocks).flat_map(|(_, all)| all.iter().copied()).collect()
    }
}

impl Region for Patched<'_> {
    fn guarantees(&self) -> &Guarantees {
        self.region.guarantees()
    }

    fn len(&self) -> u64 {
        self.region.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.region.read(offset, buf)?;
        let end = offset + buf.len() as u64;
        for patch in self.of_range(offset, end).into_iter().map(|i| &self.patches[i as usize]) {
            let (from, to) = (patch.at.max(offset), (patch.at + patch.len).min(end));
            if from < to {
                let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
                patch.read(self.region, from - patch.at, part)?;
            }
        }
        Ok(())
    }

    fn write(&self, _site: Site, _offset: u64, _data: &[u8]) -> wholly_media::Result<()> {
        unreachable!("a check changes nothing")
    }

    fn fence(&self, _site: Site) -> wholly_media::Result<()> {
        unreachable!("a check changes nothing")
    }

    fn write_through(&self, _site: Site, _offset: u64, _data: &[u8]) -> wholly_media::Result<()> {
        unreachable!("a check changes nothing")
    }

    fn set_len(&self, _site: Site, _len: u64) -> wholly_media::Result<()> {
        unreachable!("a check changes nothing")
    }
}

/// Looks at a region as the next mount would find it, but for what is damaged of that.
fn recovered<T>(region: &dyn Region, look: impl FnOnce(&Overlay<'_>) -> Result<T>) -> Result<(T, Logged)> {
    let superblock = match mount::read_superblock(region) {
        Ok(superblock) => superblock,
        // The check tells what is wrong.
        Err(Error::Corrupt { .. }) => return Ok((look(&Overlay::over(region))?, Logged::default())),
        Err(error) => return Err(error),
    };
    let mut logged = logged(region, &superblock)?;
    match repair::unfinished(region, &superblock) {
        Ok(moves) => {
            let patch = |(home, copy): (Lba, Lba)| Patch::copied(home.byte(), BLOCK as u64, copy.byte());
            logged.patches.extend(moves.into_iter().map(patch));
        }
        Err(Error::Corrupt { place, fault }) => logged.damage.push(Finding { place, fault }),
        Err(error) => return Err(error),
    }
    let (looked, unreadable) = {
        // Not among what a repair stores: it writes the next superblock.
        let patches = [&logged.patches[..], &of_superblock(&superblock, logged.inode_map)].concat();
        let patched = Patched::new(region, &patches);
        let over = Overlay::over(&patched);
        (look(&over)?, over.unreadable())
    };
    let of_structures = unreadable.into_iter().filter(|(block, _)| !copies(superblock.blocks).contains(&Lba(*block)));
    let finding = |(block, error): (u64, MediaError)| Finding {
        place: format!("block {block}"),
        fault: format!("it cannot be read: {error}"),
    };
    logged.unreadable = of_structures.map(finding).collect();
    Ok((looked, logged))
}

/// The superblock as it is with another map of the inode file.
fn of_superblock(superblock: &Superblock, map: Option<InodeMap>) -> Vec<Patch> {
    let Some(map) = map else { return Vec::new() };
    let mut superblock = superblock.clone();
    superblock.set_inode_file(map);
    let all = [slot_of(&superblock), copies(superblock.blocks)[2]];
    all.map(|at| Patch::old(at.byte(), superblock.encode(at).to_vec())).into()
}

fn check_region(region: &dyn Region, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Checked> {
    // Of an engine that is not known nobody knows what a log may have.
    EngineKind::of(&mount::read_superblock(region)?)?;
    let (mut checked, logged) = recovered(region, |over| check::check(over, watch))?;
    checked.findings.splice(..0, [logged.damage, logged.content, logged.unreadable].concat());
    Ok(checked)
}

fn repair_medium(
    medium: &medium::Opened,
    options: &VolumeOptions,
    (how, forced): (Repair, bool),
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Repaired> {
    let mut repaired = Repaired::default();
    match repair_all(medium, options, (how, forced), watch, &mut repaired) {
        Ok(()) => {}
        Err(Error::Corrupt { place, fault }) => repaired.left.push(Finding { place, fault }),
        Err(error) if repaired.done.is_empty() => return Err(error),
        Err(error) => repaired.ended = Some(error),
    }
    Ok(repaired)
}

/// A repair. What was done so far is in `repaired`, also after an error.
fn repair_all(
    medium: &medium::Opened,
    options: &VolumeOptions,
    (how, forced): (Repair, bool),
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    repaired: &mut Repaired,
) -> Result<()> {
    let region = &medium.region;
    repair_structure(region, (how, forced), watch, repaired)?;
    if repaired.left.is_empty() {
        give_log(medium, watch, repaired)?;
    }
    let idle = repaired.checked.idle_inode_blocks;
    if repaired.done.is_empty() && (idle == 0 || !repaired.left.is_empty()) {
        return Ok(());
    }
    if repaired.left.is_empty() {
        if !repaired.done.is_empty() {
            tidy(medium, options)?;
        }
        give_back(medium, options, idle, repaired)?;
        if repaired.done.is_empty() {
            return Ok(());
        }
    }
    // What was done is told, whoever would end it now.
    let mut show = |progress| {
        let _ = watch(progress);
        ControlFlow::Continue(())
    };
    repaired.checked = check_region(&**region, &mut show)?;
    repaired.left = repaired.checked.findings.clone();
    Ok(())
}

/// A sound volume gets a log if its medium has no transactions, and the one before had.
fn give_log(
    medium: &medium::Opened,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    repaired: &mut Repaired,
) -> Result<()> {
    let region = &*medium.region;
    let superblock = mount::read_superblock(region)?;
    let area = EngineKind::of(&superblock)?.log_on(medium.has().transactions);
    let Some(area) = area.filter(|_| superblock.log.is_none()) else { return Ok(()) };
    let examined = check::examine(region, &superblock, &mut |progress| watch(progress))?;
    let fault = "it has no log: it was made on a flash disk".to_owned();
    let finding = Finding { place: "the volume".into(), fault };
    match repair::give_log(region, area, &|block| examined.marks.is_marked(block)) {
        Ok(()) => repaired.done.push(Mended { finding, done: "it has got one".into() }),
        Err(Error::NoSpace(why)) => {
            repaired
                .left
                .push(Finding { fault: format!("{}, and there is no room for {why}", finding.fault), ..finding });
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What a mount and an unmount put in order.
fn tidy(medium: &medium::Opened, options: &VolumeOptions) -> Result<()> {
    match mount::read_superblock(&*medium.region)?.bitmaps {
        // Its own engine keeps them in step.
        Some(_) => Volume::open_owned(medium.clone(), None, options.clone())?.close(),
        // It has no log any more, and so the medium need not be one for its engine.
        None => repair::tidy(&medium.region, &in_place),
    }
}

/// The inode file gives back blocks, as in each unmount. Where the medium is none for the engine, the next one does.
fn give_back(medium: &medium::Opened, options: &VolumeOptions, idle: u64, repaired: &mut Repaired) -> Result<()> {
    let kind = EngineKind::of(&mount::read_superblock(&*medium.region)?)?;
    if idle > 0 && kind.check_medium(&*medium.region).is_ok() {
        Volume::open_owned(medium.clone(), None, options.clone())?.close()?;
        let finding = Finding { place: "inode file".into(), fault: format!("{idle} blocks have no inodes in use") };
        repaired.done.push(Mended { finding, done: "given back".into() });
    }
    Ok(())
}

/// All of a repair but what a mount does anyway: only said.
fn repair_structure(
    region: &Arc<dyn Region>,
    (how, forced): (Repair, bool),
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    repaired: &mut Repaired,
) -> Result<()> {
    // Of a volume that no engine can mount nothing is repaired either.
    let superblock = mount::read_superblock(&**region)?;
    EngineKind::of(&superblock)?.check_log(&superblock)?;
    let mended = |place: &str, fault: &str, done: &str| Mended {
        finding: Finding { place: place.into(), fault: fault.into() },
        done: done.into(),
    };
    match repair::finish(&**region) {
        Ok(false) => {}
        Ok(true) => repaired.done.push(mended("the volume", "a repair of it was interrupted", "finished")),
        Err(Error::Corrupt { place, fault }) if how == Repair::All => {
            repair::give_up(&**region)?;
            repaired.done.push(mended(&place, &fault, "given up: what it was for is damaged still"));
        }
        Err(error) => return Err(error),
    }
    let superblock = mount::read_superblock(&**region)?;
    let is_ours = |copy: &Superblock| copy.volume_id == superblock.volume_id;
    let is_whole = dump::superblocks(&**region)?.iter().all(|copy| copy.decoded.as_ref().is_ok_and(is_ours));
    if how == Repair::Safe && !forced && superblock.is_clean && is_whole && repaired.done.is_empty() {
        repaired.checked = Checked { is_clean: true, blocks: superblock.blocks, ..Checked::default() };
        return Ok(());
    }
    let (examined, Logged { patches, moved, inode_map, damage, content, unreadable }) = recovered(&**region, |over| {
        check::examine(over, &mount::read_superblock(over)?, &mut |progress| watch(progress))
    })?;
    let is_safe = examined.is_complete && examined.remedies.iter().all(Remedy::is_safe);
    let is_readable = damage.is_empty() && content.is_empty() && unreadable.is_empty();
    if how == Repair::Safe && !(is_readable && is_safe) {
        repaired.left = [damage, content, unreadable, examined.checked.findings.clone()].concat();
        repaired.checked = examined.checked;
        return Ok(());
    }
    if is_readable && examined.checked.findings.is_empty() {
        if !superblock.is_clean {
            patch::store(&**region, &fine_grained_wal::RECOVERY, &patches)?;
            repair::end_log(&**region, &moved, inode_map)?;
            if repaired.done.is_empty() {
                let done = "what the last mount has left is put in order";
                repaired.done.push(mended("the volume", "it was not unmounted", done));
            }
        }
    } else {
        patch::store(&**region, &fine_grained_wal::RECOVERY, &patches)?;
        repair::end_log(&**region, &moved, inode_map)?;
        let lost = |what: &'static str| move |finding: Finding| Mended { finding, done: format!("{what} lost") };
        repaired.done.extend(damage.into_iter().map(lost("its groups are")));
        let older =
            |finding| Mended { finding, done: "what a group has written there is lost: older content is left".into() };
        repaired.done.extend(content.into_iter().map(older));
        // All copies were written just now.
        let all = examined.checked.findings.iter().zip(&examined.remedies);
        let copies = all.filter(|(_, remedy)| **remedy == Remedy::Superblocks);
        let again = |(finding, _): (&Finding, _)| Mended { finding: finding.clone(), done: Remedy::Superblocks.done() };
        repaired.done.extend(copies.map(again));
        let over = Arc::new(Overlay::shared(region.clone()));
        let Outcome { done, left, is_full } = repair::mend(&over, how, &in_place, watch)?;
        if !left.is_empty() && !is_full {
            repaired.left = left;
            return Ok(());
        }
        repair::store(&**region, &over, &examined.marks)?;
        repaired.done.extend(unreadable.into_iter().map(lost("what it had is")));
        repaired.done.extend(done);
        if !left.is_empty() {
            repaired.left = left;
            return Ok(());
        }
    }
    let written = |finding: &Finding| Mended { finding: finding.clone(), done: "written again".into() };
    repaired.done.extend(examined.checked.lost_copies.iter().map(written));
    if examined.checked.orphans > 0 {
        let fault = format!("{} were removed while they were open", examined.checked.orphans);
        repaired.done.push(mended("inodes", &fault, "freed"));
    }
    repaired.checked = examined.checked;
    Ok(())
}

impl Mounted {
    /// Threads that write back in the background. They end when it is closed.
    fn start_checkpointers(self: &Arc<Self>, threads: usize) {
        let mounted = self.clone();
        self.core.checkpointers.start(threads, move || {
            mounted.core.checkpoint_in_background(&|why| {
                let worked = mounted.forked.in_background(|| mounted.core.checkpoint_a_little(why, A_LITTLE));
                // If not, another process has it now.
                worked.map_err(|why| mounted.forked.refused(why))?
            });
        });
    }

    /// Unmounts it, if it is not yet.
    pub fn close(&self) -> Result<()> {
        match self.closed.swap(true, Ordering::AcqRel) {
            true => Ok(()),
            false => {
                self.core.checkpointers.stop();
                let _shut = self.core.shut();
                let unmounted = mount::let_go(&self.core).and_then(|()| mount::unmount(&self.core, &*self.region));
                self.core.end();
                unmounted
            }
        }
    }

    /// Whether a number of a handle or a group was given here, and not in another mount of the volume.
    pub fn numbers(&self, number: u64) -> bool {
        number >> NUMBER_BITS == self.core.first_number >> NUMBER_BITS
    }

    fn stat(&self) -> VolumeStat {
        let core = &self.core;
        let idle = core.idle();
        let superblock = core.storage.superblock.lock().unwrap().clone();
        let label = superblock.label.split(|byte| *byte == 0).next().unwrap_or_default();
        let Guarantees { description, emulated, .. } = self.region.guarantees();
        VolumeStat {
            volume_id: superblock.volume_id,
            label: String::from_utf8_lossy(label).into_owned(),
            engine: core.engine.name().into(),
            medium: description.clone(),
            emulated: *emulated,
            block_bytes: BLOCK as u64,
            blocks: superblock.blocks,
            free_blocks: core.free_blocks() + core.backing.missing() + idle.total(),
            pending_blocks: core.engine.pending_blocks(),
            index_bytes: core.engine.index_bytes(),
            idle_blocks: idle.total(),
            inodes: core.inodes.units() - core.holes.free() * PER_BLOCK,
            free_inodes: core.free_inodes(),
            incarnation: superblock.incarnation,
        }
    }
}

pub(crate) fn failed(what: &'static str, path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::NotFound(path.display().to_string()),
        errno => Error::Media(MediaError::new(what, path.display().to_string(), errno)),
    }
}

/// What a file or device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Use,
}

/// Opens the file of a volume that says who has it.
pub(crate) fn open_file(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let location = Location::of(path);
    // Whoever owns the directory of a device must not lead us elsewhere.
    let flags = if location.is_nvme() { flags | OFlags::NOFOLLOW } else { flags };
    open_named(&location.locked(), flags).map_err(|error| match error {
        Error::NotFound(missing) if location.is_nvme() => Error::NotFound(format!("{missing}; {WANTED}")),
        error => error,
    })
}

/// Opens a file or block device.
pub(crate) fn open_named(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let neither = || Error::Unsupported("it is no file and no block device: name one that has a volume".into());
    let opened = rustix::fs::openat(CWD, path.as_os_str().as_bytes(), flags, Mode::RUSR | Mode::WUSR);
    let file = opened.map_err(|errno| if errno == Errno::ISDIR { neither() } else { failed("open", path, errno) })?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| failed("fstat", path, errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => Ok(file),
        _ => Err(neither()),
    }
}

/// Opens a file or device, and keeps others from it as long as the lock is held. Any number may read it at once. The
/// descriptor is not the locked one ([`owner::Lock`]).
///
/// A file is locked. A device may have several nodes, and the lock of one says nothing to the others: the kernel gives
/// a device to one opener with `O_EXCL`, whichever node that takes. A mount of another file system is one, and so are
/// `mkfs` and `fsck` of others.
pub(crate) fn own(path: &Path, access: Access) -> Result<(OwnedFd, owner::Lock)> {
    let is_device = |stat: &rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let (flags, named) = (flags_of(access), Location::of(path).locked());
    // A child process has a copy of the descriptor from its fork to its exec, and the kernel keeps the device claimed
    // as long: it may be free in a moment.
    const TRIES: u32 = 20;
    let mut tries = 0..TRIES;
    let file = loop {
        let found = rustix::fs::statat(CWD, named.as_os_str().as_bytes(), AtFlags::empty());
        let alone = found.is_ok_and(|stat| is_device(&stat));
        match open_file(path, if alone { flags | OFlags::EXCL } else { flags }) {
            Err(Error::Media(error)) if alone && error.errno == Errno::BUSY => match tries.next() {
                Some(_) => std::thread::sleep(Duration::from_millis(5)),
                None => return Err(busy(path, &open_file(path, OFlags::RDONLY)?)),
            },
            opened => {
                let file = opened?;
                let stat = rustix::fs::fstat(&file).map_err(|errno| failed("fstat", path, errno))?;
                // Something else may have come to the path meanwhile.
                match is_device(&stat) == alone {
                    true => break file,
                    false if tries.next().is_none() => return Err(failed("open", path, Errno::AGAIN)),
                    false => {}
                }
            }
        }
    };
    let locked = lock(file, path, access)?;
    // As another kind of device.
    if access == Access::Use
        && let Some(other) = Location::of(path).other()
        && wholly_media::is_locked(other.as_fd()).map_err(|errno| failed("lock", path, errno))?
    {
        return Err(busy(path, &other));
    }
    Ok(locked)
}

fn busy(path: &Path, file: &OwnedFd) -> Error {
    Error::Busy(path.display().to_string(), owner::of(file))
}

fn flags_of(access: Access) -> OFlags {
    match access {
        Access::Read => OFlags::RDONLY,
        Access::Use => OFlags::RDWR,
    }
}

/// Locks what was opened, if nobody else has. The descriptor that this gives is another one, to read and write by.
pub(crate) fn lock(file: OwnedFd, path: &Path, access: Access) -> Result<(OwnedFd, owner::Lock)> {
    let name = path.display().to_string();
    let again = open_named(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), flags_of(access));
    // Without `/proc`, a child that lets go of the lock keeps it all the same until it ends.
    let again = again.or_else(|_| fcntl_dupfd_cloexec(&file, 0).map_err(|errno| failed("dup", path, errno)))?;
    let lock = match access {
        Access::Read => owner::Lock::take_to_read(file, &name)?,
        Access::Use => owner::Lock::take(file, &name)?,
    };
    match lock {
        Some(lock) => Ok((again, lock)),
        None => Err(busy(path, &again)),
    }
}

/// A volume that is looked at.
fn only_read(path: &Path) -> Result<(Arc<dyn Region>, Vec<owner::Lock>)> {
    let (file, lock) = own(path, Access::Read)?;
    let mut locks = vec![lock];
    if let Some(other) = Location::of(path).other() {
        locks.push(self::lock(other, path, Access::Read)?.1);
    }
    Ok((region_to_read(file, path)?, locks))
}

#[cfg(test)]
mod tests {
    use wholly_media::pmem::{PmemOptions, PmemRegion};

    use super::*;

    /// A read looks at the patches of its own blocks, in their order, and at no others.
    #[test]
    fn a_read_takes_the_patches_of_its_blocks() {
        let file = rustix::fs::memfd_create("patched", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&file, 64 * BLOCK as u64).expect("its length");
        let region = PmemRegion::open(file, PmemOptions::default()).expect("a region");
        let block = BLOCK as u64;
        let mut patches: Vec<Patch> = (0..64).map(|i| Patch::old(i * block + 8, vec![i as u8 + 1; 16])).collect();
        // Of two blocks, and a later one over an earlier one.
        patches.push(Patch::old(6 * block - 4, vec![70; 8]));
        patches.push(Patch::old(5 * block + 16, vec![71; 2]));
        let patched = Patched::new(&region, &patches);
        let of = |from, to| patched.of_range(from, to).into_iter().collect::<Vec<_>>();
        assert_eq!(of(5 * block, 6 * block), [5, 64, 65]);
        assert_eq!(of(6 * block + 100, 8 * block), [6, 7, 64]);
        assert_eq!(of(9 * block, 9 * block + 1), [9]);
        let mut bytes = [0; BLOCK + 8];
        patched.read(5 * block, &mut bytes).expect("read");
        let mut wanted = [0; BLOCK + 8];
        wanted[8..24].fill(6);
        wanted[16..18].fill(71);
        wanted[BLOCK - 4..BLOCK + 4].fill(70);
        assert_eq!(bytes, wanted);
    }
}
