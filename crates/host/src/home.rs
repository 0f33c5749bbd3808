//! The folder in which a store keeps what is its own.

use super::HostDir;
use super::names::timestamps;
use super::owner::{Busy, LOCK, OwnerLock};
use super::resolve::open_beneath;
use super::unfinished;
use crate::HostFs;
use crate::sys::{FileSystem, OrFail, mounts, show};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::mem::MaybeUninit;
use std::sync::Arc;
use wholly_media::{
    Error, Region, Result,
    disk::DiskRegion,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_vfs::Stat;

/// The name of a store's folder in its directory.
pub const HOME: &str = ".wholly";

/// The folder for files that have no name of their own yet, below [`HOME`].
pub const UNNAMED: &str = "unnamed";

/// How the names of folders begin that are being made or unmade. They are nobody's; whoever makes the next one removes
/// them.
pub const UNFINISHED: &str = ".wholly.unfinished-";

/// The file, below [`HOME`], by which git leaves the folder alone: what is parked in it is not deleted by `git clean
/// -fd` or `git stash -u`, nor is its log committed by `git add -A`.
pub const IGNORED: &str = ".gitignore";

/// What it says: all of the folder, the file itself included.
const ALL: &[u8] = b"*\n";

/// How deep the folder's own directories nest at most; what is deeper was not made by a store and is not removed.
pub(super) const DEPTH: u32 = 128;

/// Why a store's folder is not at one's disposal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HomeError {
    /// Another process owns it, or makes it at this moment.
    #[error("the store is {0}")]
    Busy(Busy),
    /// Somebody else can have written what is in it: whoever opens a store does what its log says, with his own rights.
    #[error("{0}")]
    Untrusted(String),
    /// A call failed: `ENOENT` on opening where there is no store, `EEXIST` on creating where there is one.
    #[error(transparent)]
    Media(#[from] Error),
}

/// Of whom it is believed what is in a store's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Trust {
    /// The user of this process, and the superuser: nobody else can have put anything there.
    #[default]
    Own,
    /// These two own it, whoever may write to it. For those who read nothing that is in it.
    Owned,
    /// Everybody: what is in it is done with the rights of this process.
    Anybody,
}

/// The folder `.wholly` of a directory, owned by this process.
///
/// It has mode 0700. A store keeps its log and its catalogue in it as [`Region`]s of the directory's own kind, and
/// whatever else it needs through [`HostFs`] by paths that begin with `.wholly/`. It holds the files `lock` (see
/// [`OwnerLock`]) and [`IGNORED`] and, where the file system has no files without names, the folder `unnamed`.
///
/// # What survives
/// A folder is built under another name, synced, and then renamed: after a crash it is there with all that
/// [`create`](Self::create) was told to put into it, or it is not there. The same holds for [`remove`](Self::remove).
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use wholly_host::{HostDir, HostOptions, StoreHome, Trust};
/// use wholly_media::{Region, Site};
/// # let path = std::env::temp_dir().join(format!("wholly-doc-home-{}", std::process::id()));
/// # std::fs::create_dir(&path).unwrap();
/// let dir = Arc::new(HostDir::open(&path, HostOptions::default())?);
/// let home = StoreHome::create(&dir, |home| {
///     let log = home.create_region("log")?;
///     log.set_len(Site("init.log"), 1 << 20)?;
///     log.write_through(Site("init.head"), 0, &[1; 4096])
/// })?;
/// let log = home.open_region("log")?;
/// assert_eq!(log.len(), 1 << 20);
/// home.remove()?;
/// # drop((dir, log)); std::fs::remove_dir_all(&path).unwrap();
/// # Ok::<(), wholly_host::HomeError>(())
/// ```
#[derive(Debug)]
pub struct StoreHome {
    /// With the folder.
    dir: Arc<HostDir>,
    lock: OwnerLock,
}

impl Trust {
    /// That those alone who are trusted can have written what is in the folder.
    fn check(self, dir: &HostDir) -> Result<(), HomeError> {
        if self == Trust::Anybody {
            return Ok(());
        }
        if let Some(server) = served_by_another(dir).or_fail("read", || "/proc/self/mountinfo")? {
            let why = format!("a process of user {server} serves its file system, and can tell anything of owners");
            return Err(HomeError::Untrusted(why));
        }
        let folder = dir.home();
        self.check_one(super::file::stat(folder).or_fail("statx", || HOME)?, "its folder .wholly")?;
        let mut names = Vec::new();
        each_entry(folder, |name, _| names.push(name.to_vec())).or_fail("read directory", || HOME)?;
        for name in names {
            let shown = || in_home(&show(&name));
            let entry = open_beneath(folder, &name, OFlags::PATH | OFlags::NOFOLLOW);
            let stat = entry.and_then(|entry| super::file::stat(entry.as_fd()));
            match stat {
                // Its last owner is just removing it.
                Err(Errno::NOENT) => {}
                stat => self.check_one(stat.or_fail("statx", shown)?, &shown())?,
            }
        }
        Ok(())
    }

    fn check_one(self, stat: Stat, what: &str) -> Result<(), HomeError> {
        if stat.uid != 0 && stat.uid != geteuid().as_raw() {
            return Err(HomeError::Untrusted(format!("{what} belongs to user {}", stat.uid)));
        }
        if self == Trust::Own && stat.mode & 0o022 != 0 {
            return Err(HomeError::Untrusted(format!("others may write to {what}")));
        }
        Ok(())
    }
}

impl StoreHome {
    /// Whether the directory has a store's folder. The answer may be out of date when it is given.
    ///
    /// # Errors
    /// Those of `openat2(2)`.
    pub fn exists(dir: &HostDir) -> Result<bool> {
        match dir.stat(HOME.as_bytes()) {
            Ok(_) => Ok(true),
            Err(error) if error.errno == Errno::NOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Refuses a store's folder that others than those who are trusted can have written to. For tools that only look,
    /// and do what is written there elsewhere.
    ///
    /// # Errors
    /// [`HomeError::Untrusted`]; `ENOENT` where there is no store.
    pub fn check_trust(dir: &HostDir, trust: Trust) -> Result<(), HomeError> {
        trust.check(&Self::look(dir)?)
    }

    /// Who owns the store in the directory at this moment, for tools that only look: it asks for no ownership, so it
    /// never keeps anybody from it. The answer may be out of date when it is given.
    ///
    /// # Errors
    /// `ENOENT` where there is no store.
    pub fn holder(dir: &HostDir) -> Result<Option<Busy>> {
        OwnerLock::holder(dir.open_fd(HOME.as_bytes(), FOLDER)?.as_fd())
    }

    /// Opens the folder of an existing store and takes ownership of it.
    ///
    /// # Errors
    /// [`HomeError::Busy`] names the owner. [`HomeError::Untrusted`]; `ENOTDIR` or `ELOOP` where it is a symbolic link.
    /// `ENOENT` where there is no store.
    pub fn open(dir: &Arc<HostDir>, trust: Trust) -> Result<StoreHome, HomeError> {
        let dir = Arc::new(Self::look(dir)?);
        // Before anything in it is opened. What is in it nobody who is not trusted can change afterwards.
        trust.check(&dir)?;
        let lock = OwnerLock::take(dir.home(), false)?.map_err(HomeError::Busy)?;
        let home = StoreHome { dir, lock }.in_place()?;
        // Older stores have no such file. A store that cannot have it, because its disk is full, opens all the same.
        if let Ok(Some(made)) = home.ignore() {
            let _ = rustix::fs::fsync(made).and_then(|()| rustix::fs::fsync(home.as_fd()));
        }
        Ok(home)
    }

    /// The directory with the folder of its store, which is the same in all calls, whatever somebody puts in its place
    /// meanwhile. For tools that only look: it asks for no ownership.
    ///
    /// # Errors
    /// `ENOENT` where there is no store; `ENOTDIR` or `ELOOP` where its folder is a symbolic link.
    pub fn look(dir: &HostDir) -> Result<HostDir> {
        dir.with_home(dir.open_fd(HOME.as_bytes(), FOLDER)?)
    }

    /// Takes over the folder that the calling process has by `fork`; see [`Claim`](super::Claim). One thread at a time.
    ///
    /// # Errors
    /// [`HomeError::Busy`] names who came first.
    pub fn inherit(&self) -> Result<StoreHome, HomeError> {
        let lock = self.lock.inherit()?.map_err(HomeError::Busy)?;
        StoreHome { dir: self.dir.clone(), lock }.in_place()
    }

    /// The folder may have been removed, and another made, before the lock was taken.
    fn in_place(self) -> Result<StoreHome, HomeError> {
        match self.is_named(HOME)? {
            true => Ok(self),
            false => Err(HomeError::Busy(Busy { pid: None })),
        }
    }

    /// Whether the folder has this name.
    fn is_named(&self, name: &str) -> Result<bool> {
        let named = open_beneath(self.dir.as_fd(), name.as_bytes(), OFlags::PATH | OFlags::NOFOLLOW);
        match named.and_then(|named| super::file::stat(named.as_fd())) {
            Err(Errno::NOENT) => Ok(false),
            named => {
                let ours = super::file::stat(self.as_fd()).or_fail("statx", || HOME)?;
                Ok(named.or_fail("statx", || name)?.inode() == ours.inode())
            }
        }
    }

    /// Refuses a new folder that is not the one that this process has made: somebody who may change the directory can
    /// have exchanged it. It has its lock, and nothing else.
    fn check_new(&self) -> Result<(), HomeError> {
        Trust::Own.check(&self.dir)?;
        let mut others = 0;
        each_entry(self.as_fd(), |name, _| others += u32::from(name != LOCK.as_bytes()))
            .or_fail("read directory", || HOME)?;
        match others {
            0 => Ok(()),
            _ => Err(HomeError::Untrusted("somebody has exchanged its folder while it was made".into())),
        }
    }

    /// Makes the folder, with what `fill` puts into it, and owns it. On return it survives a crash, and so does what
    /// was in the directory before.
    ///
    /// `fill` works on the folder under its unfinished name: it uses [`create_region`](Self::create_region) and
    /// [`as_fd`](Self::as_fd), not paths below `.wholly`.
    ///
    /// # Errors
    /// `EEXIST` where there is a store; what `fill` returns, after the unfinished folder was removed.
    pub fn create(dir: &Arc<HostDir>, fill: impl FnOnce(&StoreHome) -> Result<()>) -> Result<StoreHome, HomeError> {
        if Self::exists(dir)? {
            return Err(Error::new("create", HOME, Errno::EXIST).into());
        }
        let before = super::file::stat(dir.as_fd());
        let (home, name) = Self::create_unfinished(dir)?;
        // All that is in it is durable before it has its name: else a crash could leave a store that cannot be opened.
        home.check_new()?;
        let named = home
            .ignore()
            .or_fail("create", || in_home(IGNORED))
            .and_then(|_| fill(&home))
            .and_then(|()| rustix::fs::syncfs(dir.as_fd()).or_fail("syncfs", || HOME))
            // Not every file system hears of the other (FUSE).
            .and_then(|()| sync_each(home.as_fd()).or_fail("fsync", || HOME))
            .and_then(|()| rename_new(dir.as_fd(), &name, HOME).or_fail("rename to", || HOME));
        if let Err(error) = named {
            let _ = remove_folder(dir.as_fd(), name.as_bytes(), home.as_fd(), DEPTH);
            return Err(error.into());
        }
        keep_time(dir, before);
        // Where that fails nothing is known of what survives, and the folder stays.
        rustix::fs::fsync(dir.as_fd()).or_fail("fsync the directory of", || HOME)?;
        home.in_place()
    }

    /// Runs `work` on an empty folder under an unfinished name, and removes that with all that is in it. `None` where
    /// the file system has no locks, by which such a folder is owned.
    pub(super) fn with_scratch<T>(dir: &Arc<HostDir>, work: impl FnOnce(&StoreHome) -> Result<T>) -> Result<Option<T>> {
        let before = super::file::stat(dir.as_fd());
        let (home, name) = match Self::create_unfinished(dir) {
            Ok(made) => made,
            Err(HomeError::Media(error)) if error.operation == "lock" => return Ok(None),
            Err(HomeError::Media(error)) => return Err(error),
            Err(HomeError::Busy(_) | HomeError::Untrusted(_)) => {
                return Err(Error::new("create", UNFINISHED, Errno::BUSY));
            }
        };
        let done = work(&home);
        let removed = home.discard(&name).or_fail("remove", || name);
        keep_time(dir, before);
        done.and_then(|value| removed.map(|()| Some(value)))
    }

    /// Removes the folder, which has this unfinished name, and all that is in it.
    fn discard(self, name: &str) -> rustix::io::Result<()> {
        let StoreHome { dir, lock } = self;
        match remove_folder(dir.as_fd(), name.as_bytes(), dir.home(), DEPTH) {
            // What is removed while it is open keeps a name on some file systems (FUSE): the lock's goes when that is
            // closed.
            Err(Errno::NOTEMPTY) => {
                drop(lock);
                // As anybody else would: somebody may have done so already, and make another one.
                unfinished::clear_one(&dir, name.as_bytes()).map_err(|error| error.errno)
            }
            // Somebody else who clears such folders was faster.
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    /// An empty folder under an unfinished name, locked.
    fn create_unfinished(dir: &Arc<HostDir>) -> Result<(StoreHome, String), HomeError> {
        unfinished::clear(dir)?;
        // Somebody who clears unfinished folders may take this one between two of the calls below, and make his own.
        for name in unfinished::names()? {
            match rustix::fs::mkdirat(dir.as_fd(), name.as_str(), Mode::RWXU) {
                Err(Errno::EXIST) => continue,
                made => made.or_fail("mkdir", || name.as_str())?,
            }
            let folder = match dir.open_fd(name.as_bytes(), FOLDER) {
                Err(error) if error.errno == Errno::NOENT => continue,
                folder => folder?,
            };
            // Exact, whatever the umask and a default ACL made of it.
            rustix::fs::fchmod(&folder, Mode::RWXU).or_fail("fchmod", || name.as_str())?;
            match OwnerLock::take(folder.as_fd(), true) {
                Err(error) if matches!(error.errno, Errno::NOENT | Errno::EXIST) => {}
                Err(error) => {
                    let _ = remove_folder(dir.as_fd(), name.as_bytes(), folder.as_fd(), DEPTH);
                    return Err(error.into());
                }
                Ok(Err(_)) => {}
                Ok(Ok(lock)) => return Ok((StoreHome { dir: Arc::new(dir.with_home(folder)?), lock }, name)),
            }
        }
        Err(HomeError::Busy(Busy { pid: None }))
    }

    /// The directory that the store cares for. Paths below `.wholly` lead into this folder, whatever has that name.
    pub fn dir(&self) -> &Arc<HostDir> {
        &self.dir
    }

    /// The ownership of the store.
    pub fn owner(&self) -> &OwnerLock {
        &self.lock
    }

    /// The descriptor of the folder, for calls that are not offered here. Changes through it are seen by no recorder.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.home()
    }

    /// Makes an empty file in the folder as a region that is to be filled. Nothing of it survives a crash before
    /// [`create`](Self::create) has returned, to which alone that is left: it syncs all of it at once.
    ///
    /// # Errors
    /// `EEXIST` where it exists.
    pub fn create_region(&self, name: &str) -> Result<Arc<dyn Region>> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let fd = self.open_file(name, flags).or_fail("create", || in_home(name))?;
        // Exact, whatever a default ACL made of it.
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).or_fail("fchmod", || in_home(name))?;
        let region = self.region(fd, name, DiskRegion::fill);
        if region.is_err() {
            let _ = rustix::fs::unlinkat(self.as_fd(), name, AtFlags::empty());
        }
        region
    }

    /// Makes an empty file in the folder. It survives as soon as the folder's names do.
    ///
    /// # Errors
    /// `EEXIST` where it exists.
    pub fn create_mark(&self, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let fd = self.open_file(name, flags).or_fail("create", || in_home(name))?;
        // Exact, whatever a default ACL made of it.
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).or_fail("fchmod", || in_home(name))
    }

    /// Opens an existing file of the folder as a region: of persistent memory, or of a disk, as the directory is taken
    /// for.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub fn open_region(&self, name: &str) -> Result<Arc<dyn Region>> {
        let fd = self.open_file(name, OFlags::RDWR).or_fail("open", || in_home(name))?;
        self.region(fd, name, DiskRegion::open)
    }

    /// Removes what earlier owners left of files that never got their name. For recovery, before new ones are made.
    ///
    /// # Errors
    /// Those of `getdents` and `unlinkat`.
    pub fn clear_unnamed(&self) -> Result<()> {
        let folder = match open_beneath(self.as_fd(), UNNAMED.as_bytes(), FOLDER) {
            Err(Errno::NOENT) => return Ok(()),
            folder => folder.or_fail("open", || in_home(UNNAMED))?,
        };
        empty_tree(folder.as_fd(), DEPTH).or_fail("empty", || in_home(UNNAMED))
    }

    /// Removes what makings and unmakings of stores in `dir` that were interrupted have left, whether there is a store
    /// or not. Returns how many folders these were; on return that survives a crash.
    ///
    /// # Errors
    /// Those of `getdents`, `unlinkat` and `fsync`.
    pub fn clear_unfinished(dir: &HostDir) -> Result<u64> {
        let cleared = unfinished::clear_all(dir)?;
        if cleared > 0 {
            rustix::fs::fsync(dir.as_fd()).or_fail("fsync the directory of", || HOME)?;
        }
        Ok(cleared)
    }

    /// Gives the folder its mode. On return that survives a crash.
    ///
    /// # Errors
    /// Those of `fchmod` and `fsync`.
    pub fn make_private(&self) -> Result<()> {
        rustix::fs::fchmod(self.as_fd(), Mode::RWXU).or_fail("fchmod", || HOME)?;
        rustix::fs::fsync(self.as_fd()).or_fail("fsync", || HOME)
    }

    /// Gives the folder its mode, and removes what earlier owners, and makings and unmakings that were interrupted,
    /// have left. On return that survives a crash.
    ///
    /// # Errors
    /// Those of `fchmod`, `getdents`, `unlinkat` and `fsync`.
    pub fn tidy(&self) -> Result<()> {
        self.clear_unnamed()?;
        self.make_private()?;
        unfinished::clear_all(&self.dir)?;
        rustix::fs::fsync(self.dir.as_fd()).or_fail("fsync the directory of", || HOME)
    }

    /// Removes the folder and all that is in it. On return its absence survives a crash; the ownership is given up.
    ///
    /// # Errors
    /// Those of `renameat2` and `fsync`: then the folder may be there or not. What is left under an unfinished name
    /// because it could not be deleted is no error: it is removed when a store is made here again.
    pub fn remove(self) -> Result<(), HomeError> {
        // Until the rename there is a whole store, after it there is none. The rename is durable before anything in the
        // folder goes: were the log's unlink to survive a crash and the rename not, there would be a store that cannot
        // be opened. The lock goes last, so that what an interruption leaves is known to be nobody's and is removed by
        // whoever makes a store here, or tidies one. What others have left is in nobody's way.
        let (dir, before) = (self.dir.clone(), super::file::stat(self.dir.as_fd()));
        let _ = unfinished::clear(&self.dir);
        let free = unfinished::names()?.find_map(|name| match rename_new(self.dir.as_fd(), HOME, &name) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => None,
            renamed => Some(renamed.map(|()| name)),
        });
        let name = free.ok_or(HomeError::Busy(Busy { pid: None }))?.or_fail("rename", || HOME)?;
        if !self.is_named(&name)? {
            // Somebody has put another folder in its place.
            let _ = rename_new(self.dir.as_fd(), &name, HOME);
            return Err(Error::new("remove", HOME, Errno::STALE).into());
        }
        rustix::fs::fsync(self.dir.as_fd()).or_fail("fsync the directory of", || HOME)?;
        let _ = self.discard(&name);
        keep_time(&dir, before);
        Ok(())
    }

    /// Makes the file [`IGNORED`] where it is missing, or empty after a crash, and gives it if so. It does not survive
    /// before it is synced.
    fn ignore(&self) -> rustix::io::Result<Option<OwnedFd>> {
        let now = rustix::fs::statat(self.as_fd(), IGNORED, AtFlags::SYMLINK_NOFOLLOW);
        if now.is_ok_and(|stat| stat.st_size > 0) {
            return Ok(None);
        }
        let fd = self.open_file(IGNORED, OFlags::CREATE | OFlags::WRONLY)?;
        // The owner of the folder can read it also where the superuser makes it. Exact, whatever a default ACL made of
        // it.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o644))?;
        rustix::io::pwrite(&fd, ALL, 0)?;
        Ok(Some(fd))
    }

    fn open_file(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open_beneath(self.as_fd(), name.as_bytes(), flags | OFlags::NOFOLLOW)
    }

    /// Persistent memory, or what `disk` makes of it.
    fn region(
        &self,
        fd: OwnedFd,
        name: &str,
        disk: impl FnOnce(OwnedFd, String) -> Result<DiskRegion>,
    ) -> Result<Arc<dyn Region>> {
        match self.dir.pmem() {
            Some(pmem) => {
                let options = PmemOptions { name: in_home(name), ..pmem.options.clone() };
                Ok(pmem.slow_down(PmemRegion::open(fd, options)?))
            }
            None => Ok(Arc::new(disk(fd, in_home(name))?)),
        }
    }
}

/// The user in whose name a process serves the file system (FUSE), if that is neither the caller nor the superuser.
fn served_by_another(dir: &HostDir) -> rustix::io::Result<Option<u32>> {
    if dir.file_system() != FileSystem::Fuse {
        return Ok(None);
    }
    let mount = mounts::of(dir.as_fd())?;
    let of_option = |option: &str| option.strip_prefix("user_id=")?.parse().ok();
    let user = mount.and_then(|mount| mount.options.split(',').find_map(of_option));
    Ok(user.filter(|&user: &u32| user != 0 && user != geteuid().as_raw()))
}

/// Gives the directory the time of modification back that it had before the folder came or went: a command that changes
/// nothing in a directory leaves its time. Only the owner of the directory can; others leave the new time.
fn keep_time(dir: &HostDir, before: rustix::io::Result<Stat>) {
    let times = before.and_then(|before| timestamps(dir.as_fd(), None, Some(before.mtime_ns)));
    let _ = times.and_then(|times| rustix::fs::futimens(dir.as_fd(), &times));
}

/// How the store's own directories are opened: never through a symbolic link.
pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

fn in_home(name: &str) -> String {
    format!("{HOME}/{name}")
}

/// Syncs each file of a directory, and the directory.
fn sync_each(folder: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut names = Vec::new();
    each_entry(folder, |name, _| names.push(name.to_vec()))?;
    for name in names {
        rustix::fs::fsync(open_beneath(folder, &name, OFlags::RDONLY | OFlags::NOFOLLOW)?)?;
    }
    rustix::fs::fsync(folder)
}

/// Renames a directory to a name that must be free.
fn rename_new(dir: BorrowedFd<'_>, from: &str, to: &str) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        // Not known there. Without the flag a directory replaces an empty directory only, and a store's folder has its
        // lock.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(dir, from, dir, to),
        result => result,
    }
}

/// Removes all that is in the directory `folder`, without following symbolic links, and then its name. The lock goes
/// last, so that what an interruption leaves can be told from what somebody is making.
pub(super) fn remove_folder(
    parent: BorrowedFd<'_>,
    name: &[u8],
    folder: BorrowedFd<'_>,
    depth: u32,
) -> rustix::io::Result<()> {
    empty_tree(folder, depth)?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn remove_tree(parent: BorrowedFd<'_>, name: &[u8], depth: u32) -> rustix::io::Result<()> {
    remove_folder(parent, name, open_beneath(parent, name, FOLDER)?.as_fd(), depth)
}

/// Removes all that is in a directory.
fn empty_tree(folder: BorrowedFd<'_>, depth: u32) -> rustix::io::Result<()> {
    let depth = depth.checked_sub(1).ok_or(Errno::LOOP)?;
    let mut entries = Vec::new();
    each_entry(folder, |name, kind| entries.push((name.to_vec(), kind)))?;
    entries.sort_by_key(|(name, _)| (name == LOCK.as_bytes(), name == IGNORED.as_bytes()));
    for (name, kind) in entries {
        match kind {
            FileType::Directory => remove_tree(folder, &name, depth)?,
            _ => match rustix::fs::unlinkat(folder, &name[..], AtFlags::empty()) {
                // Some file systems do not tell types.
                Err(Errno::ISDIR | Errno::PERM) => remove_tree(folder, &name, depth)?,
                result => result?,
            },
        }
    }
    Ok(())
}

/// Calls `visit` with each name of a directory but `.` and `..`.
pub(super) fn each_entry(folder: BorrowedFd<'_>, mut visit: impl FnMut(&[u8], FileType)) -> rustix::io::Result<()> {
    rustix::fs::seek(folder, rustix::fs::SeekFrom::Start(0))?;
    let mut buf = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(folder, &mut buf);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            visit(name, entry.file_type());
        }
    }
    Ok(())
}
