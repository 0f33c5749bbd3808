//! Salvaging stores in real directories.

use std::path::Path;
use std::sync::Arc;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use wholly_changes::origin_of;
use wholly_host::{HOME, HostDir, HostFs, HostNames, HostOptions, StoreHome};

use crate::check::refuse_busy;
use crate::error::{Error, Result};
use crate::hostdir::{Options, Original, SALVAGE, Salvaged, Store, salvage_on, slots_of};
use crate::log::{in_force, refuse_unsupported};
use crate::open::{LOG, home_error, look, trust_of};

/// Copies the directory `dir`, whose store is damaged, to `out`, with each group of the store's log that can be proven.
/// When this returns, the copy survives a power failure, and `out` is an ordinary directory. `dir` stays as it is.
/// `progress` gets the number of bytes copied so far, and of all bytes. Of `options` count [`Options::accept_copy`] and
/// [`Options::trust_owner`]: the groups are executed in the copy.
///
/// A group is proven if its records match their checksums, all groups that it builds on are proven or written back, and
/// its files are as the log says. Other groups are left out as a whole, and named. The files are copied as they are,
/// and proven groups are written over them.
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::Untrusted`]; [`Error::Copied`], also if no superblock says where the log was written;
/// [`Error::Busy`] naming the process that has the store open, or that had
/// it open meanwhile; [`Error::Exists`] if `out` is not empty; [`Error::Invalid`] if it is in `dir`;
/// [`Error::Unsupported`] for what another program wrote; [`Error::Media`]. After an error `out` is empty.
/// Damage is not an error: the result reports it.
///
/// # Example
/// ```
/// # fn main() -> wholly::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("wholly-doc-salvage-{}", std::process::id()));
/// # let out = dir.with_extension("out");
/// # std::fs::create_dir_all(&dir).unwrap();
/// wholly::Store::init(&dir, &wholly::Options::default())?;
/// let salvaged = wholly::salvage(&dir, &out, &wholly::Options::default(), &mut |_, _| ())?;
/// assert!(salvaged.is_whole());
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # std::fs::remove_dir_all(&out).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn salvage(
    dir: impl AsRef<Path>,
    out: impl AsRef<Path>,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Salvaged> {
    let (dir, out) = (dir.as_ref(), out.as_ref());
    let host = look(dir)?;
    // What is written there is done in the copy, with the rights of the calling process.
    StoreHome::check_trust(&host, trust_of(options)).map_err(|error| home_error(error, dir))?;
    refuse_busy(&host, dir)?;
    let log = match host.open(format!("{HOME}/{LOG}").as_bytes(), false) {
        Ok(log) => Some(log),
        Err(error) if error.errno == Errno::NOENT => None,
        Err(error) => return Err(error.into()),
    };
    let before = log.as_ref().map(slots_of).transpose()?;
    before.as_ref().map_or(Ok(()), refuse_unsupported)?;
    let here = origin_of(&*host)?;
    if let Some(slots) = &before
        && !options.accept_copy
        && !in_force(slots).is_some_and(|superblock| superblock.client.origin.is_here(here))
    {
        return Err(Error::Copied("its log does not tell that it was written there".into()));
    }
    // Before it is made there.
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    refuse_inside(&host, &HostDir::named(parent, HostOptions::default())?, out)?;
    let to = Arc::new(HostDir::named_or_made(out, HostOptions::default())?);
    refuse_inside(&host, &to, out)?;

    let original = Original { host: host.clone(), log: log.clone() };
    let mut volume_id = [0u8; 16];
    rustix::rand::getrandom(&mut volume_id[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| wholly_media::Error::new("getrandom", "volume id", errno))?;
    let filled = to.fill(|tree| {
        let mut make_store = || {
            let made = StoreHome::create(tree, |home| home.create_region(LOG).map(drop));
            made.map(drop).map_err(|error| home_error(error, out))
        };
        let copy: Arc<dyn HostFs> = tree.clone();
        let made = salvage_on(&original, &copy, volume_id, &mut make_store, progress)?;
        // Who opened the store meanwhile has raised its incarnation.
        refuse_busy(&host, dir)?;
        if log.as_ref().map(slots_of).transpose()? != before {
            return Err(Error::Busy(dir.display().to_string(), "another process had it open meanwhile".into()));
        }
        if made.has_log {
            take_home(tree)?;
        }
        tree.sync_all(SALVAGE)?;
        Ok(made.report)
    });
    let report = filled.map_err(|error| match error {
        Error::Media(error) if error.errno == Errno::NOTEMPTY => {
            Error::Exists(format!("{} is not empty", out.display()))
        }
        error => error,
    })?;
    to.sync_all(SALVAGE)?;
    // Not every file system hears of the other (FUSE).
    let failed = |errno| wholly_media::Error::new("fsync", out.display().to_string(), errno);
    rustix::fs::fsync(to.as_fd()).map_err(failed)?;
    rustix::fs::fsync(above(to.as_fd(), OFlags::RDONLY).map_err(failed)?).map_err(failed)?;
    Ok(report)
}

/// The copy is a store, with all that was proven in its log, until that is home.
fn take_home(to: &HostDir) -> Result<()> {
    let options = Options { background: false, ..Options::default() };
    let store = Store::open_with(format!("/proc/self/fd/{}", to.as_fd().as_raw_fd()), options, HostOptions::default())?;
    store.checkpoint()?;
    // Neither the store's folder nor its end is a change of the user's.
    let root = to.stat(b"")?;
    store.remove()?;
    Ok(to.set_times(SALVAGE, b"", Some(root.atime_ns), Some(root.mtime_ns))?)
}

/// A copy that is in the original would be copied.
fn refuse_inside(host: &HostDir, to: &HostDir, out: &Path) -> Result<()> {
    let failed = |errno| wholly_media::Error::new("stat", out.display().to_string(), errno);
    let identity = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).map_err(failed);
    let original = identity(host.as_fd())?;
    let mut at = rustix::io::fcntl_dupfd_cloexec(to.as_fd(), 0).map_err(failed)?;
    loop {
        let here = identity(at.as_fd())?;
        if here == original {
            return Err(Error::invalid(format!("{} is in the directory that is salvaged", out.display())));
        }
        at = above(at.as_fd(), OFlags::PATH).map_err(failed)?;
        if identity(at.as_fd())? == here {
            return Ok(());
        }
    }
}

/// The directory in which another one is.
fn above(dir: BorrowedFd<'_>, access: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(dir, "..", access | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
