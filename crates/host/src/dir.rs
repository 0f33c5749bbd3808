//! The directory itself.

use super::file::{BLOCK, Device, OrdinaryFile, Unnamed, device, not_a_file, stat, stat_in};
use super::home::{HOME, UNNAMED};
use super::names::touch;
use super::resolve::{open_beneath, open_beneath_with, split};
use crate::mount::{self, Served};
use crate::sys::{self, FileSystem, OrFail, show};
use crate::{At, HostFile, HostFs, Space};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, IFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use wholly_media::{
    Error, Guarantees, Kind, PersistenceDomain, Region, Result, Site,
    pmem::{EmulatedRegion, Emulation, Emulator, PmemOptions, PmemRegion, is_dax},
};
use wholly_vfs::{Inode, Stat};

/// What the files of a directory are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HostMedium {
    /// Persistent memory where the file system accepts `MAP_SYNC`, and, emulated, on tmpfs, ramfs and hugetlbfs; else a
    /// disk.
    #[default]
    Auto,
    /// Persistent memory; emulated where it is none.
    Pmem,
    /// A disk.
    Disk,
}

/// How a directory is opened.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// What its files are taken for.
    pub medium: HostMedium,
    /// Slows all mapped files and regions of the directory down. Shared by what lies on the same memory.
    pub emulator: Option<Arc<Emulator>>,
    /// Whether the machine keeps its caches at a power failure (eADR); see [`PmemOptions::caches_persist`].
    pub caches_persist: bool,
    /// Bytes of address space for each region of the store's own that may grow.
    pub reserve: u64,
    /// What tells the time of changes, as [`coarse_clock`] does.
    pub clock: fn() -> i64,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions {
            medium: HostMedium::Auto,
            emulator: None,
            caches_persist: false,
            reserve: PmemOptions::default().reserve,
            clock: coarse_clock,
        }
    }
}

/// The time in ns since the epoch as file systems give it to changes: that of the kernel's last tick.
pub fn coarse_clock() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec * 1_000_000_000 + i64::from(now.tv_nsec as i32)
}

/// How files of a directory on persistent memory are mapped.
#[derive(Debug)]
pub(super) struct Pmem {
    pub options: PmemOptions,
    pub emulator: Option<Arc<Emulator>>,
}

impl Pmem {
    /// The region at the speed that was asked for.
    pub fn slow_down(&self, region: PmemRegion) -> Arc<dyn Region> {
        match &self.emulator {
            Some(emulator) => Arc::new(EmulatedRegion::new(region, emulator.clone())),
            None => Arc::new(region),
        }
    }
}

/// A directory of an ordinary file system.
///
/// The directory is opened once; all paths are resolved beneath that descriptor by the kernel in one step and through
/// directories alone (`resolve.rs`), so a symbolic link or a rename by somebody else cannot lead out of it. A directory
/// that is *moved out* while a call works in it stays the place of that call.
///
/// A store's folder is opened once, too: what [`StoreHome::dir`](super::StoreHome::dir) gives resolves paths below
/// `.wholly` beneath the descriptor that was checked, whatever has that name by then.
///
/// [`sync_all`](HostFs::sync_all) uses the descriptor too. Linux (5.8) reports to it every write-back error of the file
/// system since it was opened: none from between the first write and the sync is missed.
///
/// # Example
/// ```
/// use wholly_host::{HostFile, HostFs, HostDir, HostOptions};
/// use wholly_media::Site;
/// # let path = std::env::temp_dir().join(format!("wholly-doc-{}", std::process::id()));
/// # std::fs::create_dir(&path).unwrap();
/// let dir = HostDir::open(&path, HostOptions::default())?;
/// let file = dir.create_unnamed(Site("example.create"), b"", 0o644)?;
/// file.write_at(Site("example.write"), 0, b"hello")?;
/// file.sync(Site("example.sync"))?;
/// dir.link(Site("example.link"), &*file, b"greeting")?;
/// dir.sync_dir(Site("example.sync-dir"), b"")?;
/// # drop(dir); std::fs::remove_dir_all(&path).unwrap();
/// # Ok::<(), wholly_media::Error>(())
/// ```
#[derive(Debug)]
pub struct HostDir {
    root: OwnedFd,
    /// The store's folder, once somebody has opened it: what paths below [`HOME`] lead into.
    home: Option<OwnedFd>,
    file_system: FileSystem,
    pmem: Option<Arc<Pmem>>,
    guarantees: Guarantees,
    clock: fn() -> i64,
    /// The device that it lies on.
    device: Device,
    /// Its number, where directories below may be other volumes of the same mount.
    volume: Option<u64>,
    /// Whether the file system once refused a file without a name; it will again.
    no_unnamed: AtomicBool,
    /// See [`HostFs::shares_blocks`], once somebody has asked.
    shares_blocks: AtomicU8,
    /// See [`HostFs::largest_file`], once somebody has asked.
    largest_file: Mutex<Option<LargestFile>>,
    /// Bytes of the longest target of a symbolic link, once somebody has asked for one that is not short; else 0.
    longest_target: AtomicUsize,
}

/// What a path names, for calls that take a descriptor.
pub(super) enum Place<'d> {
    /// The directory itself, which is open.
    Itself(BorrowedFd<'d>),
    Opened(OwnedFd),
}

impl AsFd for Place<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Place::Itself(dir) => *dir,
            Place::Opened(fd) => fd.as_fd(),
        }
    }
}

/// Bytes of targets of symbolic links that all file systems take, and that none exceeds (`PATH_MAX`).
const SHORT_TARGET: usize = 255;
const LONGEST_TARGET: u64 = 4095;

/// Values of [`HostDir::shares_blocks`].
const UNKNOWN: u8 = 0;
const SHARES: u8 = 1;
const COPIES: u8 = 2;

/// The largest file of a file system, in bytes, under a limit of the process.
#[derive(Clone, Copy, Debug)]
struct LargestFile {
    limit: u64,
    bytes: u64,
}

impl HostDir {
    /// Opens the directory `path`, which the user names: symbolic links in it are followed.
    ///
    /// # Errors
    /// Those of `openat` and `fstatfs`; `ENOSYS` before Linux 5.6, which cannot resolve paths beneath a directory.
    pub fn open(path: &Path, options: HostOptions) -> Result<HostDir> {
        let name = path.as_os_str().as_bytes();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::openat(rustix::fs::CWD, name, flags, Mode::empty()).or_fail("open directory", || show(name))?;
        // Says now what every later call would say.
        open_beneath(root.as_fd(), b"", OFlags::PATH).or_fail("openat2", || show(name))?;
        let file_system = FileSystem::of(&root)?;
        let device = device(root.as_fd()).or_fail("statx", || show(name))?;
        let pmem = match options.medium {
            HostMedium::Pmem => true,
            HostMedium::Disk => false,
            HostMedium::Auto => file_system.is_memory() || has_dax(root.as_fd()),
        };
        let guarantees = guarantees(root.as_fd(), file_system, pmem, &options);
        let has_volumes = matches!(file_system, FileSystem::Btrfs | FileSystem::Bcachefs);
        let volume = has_volumes.then(|| rustix::fs::fstat(&root)).transpose().or_fail("fstat", || show(name))?;
        let volume = volume.map(|stat| stat.st_dev);
        let pmem = pmem.then(|| {
            let map = PmemOptions {
                reserve: options.reserve,
                caches_persist: options.caches_persist,
                ..PmemOptions::default()
            };
            Arc::new(Pmem { options: map, emulator: options.emulator })
        });
        Ok(HostDir {
            root,
            home: None,
            file_system,
            pmem,
            guarantees,
            clock: options.clock,
            device,
            volume,
            no_unnamed: AtomicBool::new(false),
            shares_blocks: AtomicU8::new(UNKNOWN),
            largest_file: Mutex::new(None),
            longest_target: AtomicUsize::new(0),
        })
    }

    /// The same directory, in which the folder [`HOME`] is this one, whatever has the name.
    pub(super) fn with_home(&self, home: OwnedFd) -> Result<HostDir> {
        Ok(HostDir {
            root: rustix::io::fcntl_dupfd_cloexec(&self.root, 0).or_fail("dup", || ".")?,
            home: Some(home),
            file_system: self.file_system,
            pmem: self.pmem.clone(),
            guarantees: self.guarantees.clone(),
            clock: self.clock,
            device: self.device,
            volume: self.volume,
            no_unnamed: AtomicBool::new(self.no_unnamed.load(Ordering::Relaxed)),
            shares_blocks: AtomicU8::new(self.shares_blocks.load(Ordering::Relaxed)),
            largest_file: Mutex::new(None),
            longest_target: AtomicUsize::new(self.longest_target.load(Ordering::Relaxed)),
        })
    }

    /// The store's folder. Only of what [`with_home`](Self::with_home) has made.
    pub(super) fn home(&self) -> BorrowedFd<'_> {
        self.home.as_ref().expect("the folder was opened with it").as_fd()
    }

    /// The directory that a path begins at, and the path from there.
    fn start<'p>(&self, path: &'p [u8]) -> (BorrowedFd<'_>, &'p [u8]) {
        let below = path.strip_prefix(HOME.as_bytes());
        match (&self.home, below) {
            (Some(home), Some([])) => (home.as_fd(), b""),
            (Some(home), Some([b'/', below @ ..])) => (home.as_fd(), below),
            _ => (self.root.as_fd(), path),
        }
    }

    /// The device that the directory lies on.
    pub(super) fn device(&self) -> Device {
        self.device
    }

    /// The kind of file system that it lies on.
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Whether it is a mount of ours itself, or below one.
    pub fn served(&self) -> Option<Served> {
        mount::served(self.root.as_fd())
    }

    /// The descriptor of the directory, for calls that the trait does not have. Changes through it are seen by no
    /// recorder.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens what `path` names, of whatever type, beneath the directory; see [`HostFs`] for paths. For calls that the
    /// trait does not have.
    ///
    /// # Errors
    /// Those of `openat2(2)`; `EXDEV` for what lies in a subvolume.
    pub fn open_fd(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let (start, below) = self.start(path);
        let fd = open_beneath(start, below, flags).or_fail("open", || show(path))?;
        self.refuse_other_volume(fd.as_fd(), path)?;
        Ok(fd)
    }

    /// What `path` names, for calls on attributes.
    pub(super) fn place(&self, path: &[u8]) -> Result<Place<'_>> {
        match path {
            b"" => Ok(Place::Itself(self.root.as_fd())),
            path => self.open_fd(path, OFlags::PATH | OFlags::NOFOLLOW).map(Place::Opened),
        }
    }

    /// Opens the directory that holds the last part of `path` and returns it with that part, a plain name: what
    /// `renameat`, `unlinkat` and their like take.
    ///
    /// # Errors
    /// Those of `openat2(2)`; `EXDEV` for a directory in a subvolume; `EINVAL` for a path that ends in `/`, `.` or `..`
    /// or is empty.
    pub fn open_parent<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8])> {
        let (dir, name) = split(path)?;
        let (start, below) = self.start(dir);
        let fd = open_beneath(start, below, OFlags::PATH | OFlags::DIRECTORY);
        let fd = fd.or_fail("open directory of", || show(path))?;
        self.refuse_other_volume(fd.as_fd(), path)?;
        Ok((fd, name))
    }

    /// Opens the directory in which a name is to change, if it is the one that it should be, and gives the name
    /// (invariant 2 of `resolve.rs`).
    pub(super) fn pin<'p>(&self, at: At<'p>) -> Result<(OwnedFd, &'p [u8])> {
        let (fd, name) = self.open_parent(at.path).map_err(|error| match error.errno {
            // Whatever is on the way there: it is not the directory.
            Errno::NOENT | Errno::NOTDIR | Errno::XDEV if at.dir.is_some() => Error { errno: Errno::STALE, ..error },
            _ => error,
        })?;
        compare(fd.as_fd(), at.dir, at.path)?;
        Ok((fd, name))
    }

    /// What a path names, if it is what it should be (invariant 3 of `resolve.rs`).
    pub(super) fn find(&self, at: At<'_>) -> Result<Place<'_>> {
        // What is the right inode is it, in whatever directory.
        if at.inode.is_some()
            && let Ok(place) = self.place(at.path)
            && compare(place.as_fd(), at.inode, at.path).is_ok()
        {
            return Ok(place);
        }
        let place = match at.dir {
            None => self.place(at.path)?,
            Some(_) => {
                let (parent, name) = self.pin(at)?;
                let fd = open_beneath(parent.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW);
                let fd = fd.or_fail("open", || show(at.path))?;
                self.refuse_other_volume(fd.as_fd(), at.path)?;
                Place::Opened(fd)
            }
        };
        compare(place.as_fd(), at.inode, at.path)?;
        Ok(place)
    }

    /// Makes an ordinary file, which must not be there, with the bits of `mode` that are left to it.
    pub(super) fn make_fd(&self, at: At<'_>, mode: Mode) -> Result<OwnedFd> {
        let (path, flags) = (at.path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR);
        let made = match self.volume.is_some() || at.dir.is_some() {
            // In a subvolume it would be there before it is refused.
            true => {
                let (parent, name) = self.pin(at)?;
                open_beneath_with(parent.as_fd(), name, flags, mode)
            }
            false => {
                let (start, below) = self.start(path);
                split(path).map(|_| open_beneath_with(start, below, flags, mode))?
            }
        };
        made.or_fail("create", || show(path))
    }

    /// The absolute path of the directory, as it is now, without symbolic links.
    ///
    /// # Errors
    /// Those of `readlink` in `/proc`; `ENOENT` where the directory was removed.
    pub fn address(&self) -> Result<Vec<u8>> {
        let link = format!("/proc/self/fd/{}", self.root.as_raw_fd());
        let path = rustix::fs::readlinkat(rustix::fs::CWD, link.as_str(), Vec::new()).or_fail("readlink", || link)?;
        match rustix::fs::fstat(&self.root).or_fail("fstat", || ".")?.st_nlink {
            0 => Err(Error::new("readlink", show(path.as_bytes()), Errno::NOENT)),
            _ => Ok(path.into_bytes()),
        }
    }

    /// Whether the directory is mounted read-only.
    ///
    /// # Errors
    /// Those of `fstatvfs`.
    pub fn is_read_only(&self) -> Result<bool> {
        let stat = rustix::fs::fstatvfs(&self.root).or_fail("fstatvfs", || ".")?;
        Ok(stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    }

    pub(super) fn pmem(&self) -> Option<&Arc<Pmem>> {
        self.pmem.as_ref()
    }

    /// Refuses what lies in a subvolume or snapshot below the directory: its inode numbers and times of birth are those
    /// of other files here.
    pub(super) fn refuse_other_volume(&self, fd: BorrowedFd<'_>, path: &[u8]) -> Result<()> {
        let Some(volume) = self.volume else { return Ok(()) };
        match rustix::fs::fstat(fd).or_fail("fstat", || show(path))?.st_dev == volume {
            true => Ok(()),
            false => Err(Error::new("open", show(path), Errno::XDEV)),
        }
    }

    /// A file without a name, or `None` where the file system has none.
    fn open_unnamed(&self, parent: &[u8]) -> Result<Option<OwnedFd>> {
        if self.no_unnamed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let (start, below) = self.start(parent);
        match open_beneath(start, below, flags) {
            Ok(fd) => self.refuse_other_volume(fd.as_fd(), parent).map(|()| Some(fd)),
            // Kernels and file systems without it take the call for an open of the directory for writing.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                self.no_unnamed.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(errno) => Err(Error::new("create file in", show(parent), errno)),
        }
    }

    /// A file with a name that nobody knows, in the store's own folder.
    fn open_in_folder(&self) -> Result<(OwnedFd, Unnamed)> {
        let folder = self.unnamed_folder()?;
        let name = sys::random_name("")?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let shown = || format!("{HOME}/{UNNAMED}/{name}");
        let fd = open_beneath(folder.as_fd(), name.as_bytes(), flags).or_fail("create", shown)?;
        Ok((fd, Unnamed { folder, name, maker: rustix::process::getpid() }))
    }

    /// The folder of such files, which a recovery empties.
    fn unnamed_folder(&self) -> Result<OwnedFd> {
        let path = [HOME, "/", UNNAMED].concat();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        match self.open_fd(path.as_bytes(), flags) {
            Err(error) if error.errno == Errno::NOENT => {
                let home = self.open_fd(HOME.as_bytes(), flags)?;
                match rustix::fs::mkdirat(&home, UNNAMED, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(Error::new("mkdir", path, errno)),
                }
                self.open_fd(path.as_bytes(), flags)
            }
            opened => opened,
        }
    }

    /// Whether the file system makes a symbolic link with a target of so many bytes. What else is in the way of that is
    /// no matter.
    fn makes_link(&self, folder: &OwnedFd, length: usize) -> bool {
        let Ok(name) = sys::random_name("") else { return true };
        match rustix::fs::symlinkat(&vec![b'x'; length][..], folder, name.as_bytes()) {
            // What a crash leaves of it, a recovery removes.
            Ok(()) => rustix::fs::unlinkat(folder, name.as_bytes(), AtFlags::empty()).is_ok(),
            Err(errno) => errno != Errno::NAMETOOLONG,
        }
    }

    #[cfg(test)]
    pub(super) fn pretend_no_unnamed(&self) {
        self.no_unnamed.store(true, Ordering::Relaxed);
    }
}

impl HostFs for HostDir {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn now_ns(&self) -> i64 {
        (self.clock)()
    }

    fn open(&self, path: &[u8], write: bool) -> Result<Arc<dyn HostFile>> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        // What is no regular file must neither block (a FIFO) nor become our terminal before it is refused.
        let fd = self.open_fd(path, access | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = stat(fd.as_fd()).or_fail("statx", || show(path))?;
        if !stat.is_file() {
            return Err(not_a_file(path, stat.mode));
        }
        Ok(Arc::new(OrdinaryFile::new(fd, path, write, self.pmem.clone(), None)))
    }

    fn stat(&self, path: &[u8]) -> Result<Stat> {
        // A name in a directory that is open.
        let (start, name) = self.start(path);
        if !matches!(name, b"" | b"." | b"..")
            && !name.contains(&b'/')
            && let Some(stat) = stat_in(start, self.device, name).or_fail("statx", || show(path))?
        {
            return Ok(stat);
        }
        let fd = self.place(path)?;
        stat(fd.as_fd()).or_fail("statx", || show(path))
    }

    fn open_own(&self, path: &[u8]) -> Result<Arc<dyn HostFile>> {
        HostFs::open(self, path, true)
    }

    /// Linux does not tell: these are constants of its sources.
    fn most_links(&self) -> u32 {
        match self.file_system {
            // ext2 has 32,000, and the same number.
            FileSystem::Ext4 => 65_000,
            FileSystem::Xfs => i32::MAX as u32,
            FileSystem::Btrfs => 65_535,
            _ => u32::MAX,
        }
    }

    /// Linux does not tell, so links are made. What all file systems take is not tried.
    fn takes_target(&self, length: usize) -> bool {
        if length <= SHORT_TARGET {
            return true;
        }
        // No lock: a child that is forked meanwhile would wait for it for ever.
        let mut longest = self.longest_target.load(Ordering::Relaxed);
        if longest == 0 {
            let Ok(folder) = self.unnamed_folder() else { return true };
            longest = largest(LONGEST_TARGET, |length| self.makes_link(&folder, length as usize)) as usize;
            self.longest_target.store(longest, Ordering::Relaxed);
        }
        length <= longest
    }

    /// Only the superuser may set attributes that are not of users. Others stand for them that take as much room: what
    /// comes before the dot is a number on the media.
    fn try_xattrs(&self, steps: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<()> {
        let Some(file) = self.open_unnamed(HOME.as_bytes())? else { return Ok(()) };
        for (name, value) in steps {
            // Names that differ before the first dot only stay apart by its last byte.
            let (space, rest) = name.split_at(name.iter().position(|&byte| byte == b'.').unwrap_or(0));
            let mut stand_in = [b"user", rest].concat();
            if let Some(last) = stand_in.last_mut().filter(|_| space != b"user") {
                *last ^= 0x80;
            }
            let tried = match value {
                Some(value) => rustix::fs::fsetxattr(&file, &*stand_in, value, rustix::fs::XattrFlags::empty()),
                None => rustix::fs::fremovexattr(&file, &*stand_in),
            };
            match tried {
                Err(Errno::NODATA) => {}
                tried => tried.or_fail("setxattr", || show(name))?,
            }
        }
        Ok(())
    }

    fn space(&self) -> Result<Space> {
        let found = rustix::fs::fstatvfs(&self.root).or_fail("fstatvfs", || show(b""))?;
        let usable_blocks = match (rustix::process::geteuid().is_root(), self.file_system) {
            // ext4 keeps two per cent of all its blocks, or 4096, from the superuser too; it does not tell of all.
            (true, FileSystem::Ext4) => {
                found.f_bfree.saturating_sub((found.f_blocks / 25).min(4096)).max(found.f_bavail)
            }
            // btrfs tells of nothing that is available where its metadata is about to need another chunk.
            (_, FileSystem::Btrfs) | (true, _) => found.f_bfree,
            (false, _) => found.f_bavail,
        };
        Ok(Space {
            usable_blocks,
            block_bytes: found.f_frsize,
            blocks: found.f_blocks,
            free_blocks: found.f_bfree,
            available_blocks: found.f_bavail,
            inodes: found.f_files,
            free_inodes: found.f_ffree,
        })
    }

    /// Linux does not tell, so a file without a name is made as long as may be. Where there are none, nothing is known
    /// to be too much.
    fn largest_file(&self) -> u64 {
        // Beyond its limit a process would get a signal.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX);
        let mut known = self.largest_file.lock().unwrap();
        if let Some(LargestFile { bytes, .. }) = known.filter(|known| known.limit == limit) {
            return bytes;
        }
        let bytes = match self.open_unnamed(b"") {
            Ok(Some(fd)) => largest(limit.min(i64::MAX as u64), |len| rustix::fs::ftruncate(&fd, len).is_ok()),
            _ => limit,
        };
        *known = Some(LargestFile { limit, bytes });
        bytes
    }

    /// Linux does not tell, so two files without names are made to share what there is in one. Not where files are
    /// mapped: a store to a block that is shared would have to allocate another, and could fail.
    fn shares_blocks(&self) -> bool {
        if self.pmem.is_some() {
            return false;
        }
        // No lock: a child that is forked meanwhile would wait for it for ever.
        match self.shares_blocks.load(Ordering::Relaxed) {
            UNKNOWN => {}
            known => return known == SHARES,
        }
        let share = || -> rustix::io::Result<()> {
            let unnamed = || self.open_unnamed(HOME.as_bytes()).map_err(|error| error.errno)?.ok_or(Errno::OPNOTSUPP);
            let (source, file) = (unnamed()?, unnamed()?);
            if u64::from(rustix::fs::fstatfs(&file)?.f_bsize as u32) > BLOCK {
                return Err(Errno::OPNOTSUPP);
            }
            sys::write_all_at(&source, &[1; BLOCK as usize], 0)?;
            rustix::fs::ioctl_ficlone(&file, &source)
        };
        let known = match share() {
            Ok(()) => SHARES,
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::XDEV | Errno::NOSYS) => COPIES,
            // There may be another answer another time.
            Err(_) => return false,
        };
        self.shares_blocks.store(known, Ordering::Relaxed);
        known == SHARES
    }

    fn copies_up(&self) -> bool {
        self.file_system == FileSystem::Overlay
    }

    fn settle(&self, at: At<'_>) -> Result<Option<Stat>> {
        if !self.copies_up() {
            return Ok(None);
        }
        let fd = self.find(at)?;
        // The least of changes, to what is so already.
        match touch(fd.as_fd(), None, None) {
            // Only the owner's: then it stays where it is.
            Err(Errno::PERM | Errno::ACCESS) => {}
            set => set.or_fail("utimensat", || show(at.path))?,
        }
        stat(fd.as_fd()).or_fail("statx", || show(at.path)).map(Some)
    }

    fn admit_all_projects(&self, _site: Site, path: &[u8]) {
        let Ok(fd) = self.open_fd(path, OFlags::RDONLY | OFlags::DIRECTORY) else { return };
        if let Ok(flags) = rustix::fs::ioctl_getflags(&fd)
            && flags.contains(IFlags::PROJECT_INHERIT)
        {
            // Where it is refused, so is a move that would need it.
            let _ = rustix::fs::ioctl_setflags(&fd, flags - IFlags::PROJECT_INHERIT);
        }
    }

    fn create_unnamed(&self, _site: Site, parent: &[u8], mode: u32) -> Result<Arc<dyn HostFile>> {
        let (fd, unnamed) = match self.open_unnamed(parent)? {
            Some(fd) => (fd, None),
            None => {
                let (fd, unnamed) = self.open_in_folder()?;
                (fd, Some(unnamed))
            }
        };
        // After the fact, since the umask takes bits from what open is given.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o7777))
            .or_fail("fchmod", || format!("a new file in {}", show(parent)))?;
        let name = [parent, b"/(a file without a name)"].concat();
        Ok(Arc::new(OrdinaryFile::new(fd, &name, true, self.pmem.clone(), unnamed)))
    }

    fn link(&self, _site: Site, file: &dyn HostFile, path: &[u8]) -> Result<()> {
        let file = file.as_any().downcast_ref::<OrdinaryFile>();
        let file = file.ok_or(Errno::XDEV).or_fail("link a file of another medium to", || show(path))?;
        let (parent, name) = self.open_parent(path)?;
        file.link_into(parent.as_fd(), name).or_fail("link", || show(path))
    }

    fn sync_dir(&self, _site: Site, path: &[u8]) -> Result<()> {
        let fd = self.open_fd(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::fsync(fd).or_fail("fsync", || show(path))
    }

    fn sync_all(&self, _site: Site) -> Result<()> {
        rustix::fs::syncfs(&self.root).or_fail("syncfs", || show(b""))
    }
}

/// Refuses what is not the inode that it should be.
fn compare(fd: BorrowedFd<'_>, inode: Option<Inode>, path: &[u8]) -> Result<()> {
    let Some(inode) = inode else { return Ok(()) };
    match stat(fd).or_fail("statx", || show(path))?.inode() == inode {
        true => Ok(()),
        false => Err(Error::new("find", show(path), Errno::STALE)),
    }
}

fn guarantees(root: BorrowedFd<'_>, file_system: FileSystem, pmem: bool, options: &HostOptions) -> Guarantees {
    if !pmem {
        let emulated = file_system.is_memory();
        let disk = if emulated { "directory, emulated disk on" } else { "directory on" };
        return Guarantees {
            kind: Kind::Disk,
            atomic_unit: 512,
            block: rustix::fs::fstat(root).map_or(4096, |stat| stat.st_blksize as u32),
            domain: PersistenceDomain::Device,
            emulated,
            description: format!("{disk} {file_system}"),
        };
    }
    let slowed = options.emulator.as_ref().and_then(|emulator| match emulator.emulation() {
        Emulation::None => None,
        emulation => emulation.describe(),
    });
    let real = has_dax(root);
    let mut description =
        format!("directory in persistent memory{} on {file_system}", if real { " (DAX)" } else { ", emulated" });
    if let Some(how) = &slowed {
        description = format!("{description}, {how}");
    }
    Guarantees {
        kind: Kind::Pmem,
        atomic_unit: 8,
        block: 1,
        domain: if options.caches_persist { PersistenceDomain::CpuCaches } else { PersistenceDomain::MemoryController },
        emulated: !real || slowed.is_some(),
        description,
    }
}

/// The largest length that `fits`, of those up to `most`; a shorter one fits wherever a longer one does, and 0 always.
fn largest(most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    if fits(most) {
        return most;
    }
    let (mut least, mut most) = (0, most);
    while least + 1 < most {
        let middle = least + (most - least) / 2;
        if fits(middle) { least = middle } else { most = middle }
    }
    least
}

/// Whether files in the directory are mapped from persistent memory. One that cannot be written to has no such files
/// for us.
fn has_dax(root: BorrowedFd<'_>) -> bool {
    open_beneath(root, b"", OFlags::TMPFILE | OFlags::RDWR).is_ok_and(|fd| is_dax(fd.as_fd()))
}
