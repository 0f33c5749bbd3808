//! Mounting and unmounting: by the kernel's calls for the superuser, for others by `fusermount3`.
//!
//! A mount is taken away only while it is what lies at its place: another one may cover it, or have come after it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::SessionUnmounter;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{getegid, geteuid};
use wholly_host::mounts::{self, Mounted};

use crate::options::{MountOptions, Sharing};

/// As what a store is mounted: the kernel's type, and ours.
pub const TYPE: &str = "fuse.wholly";

/// Takes a mount away, from any thread.
#[derive(Clone)]
pub struct Unmounter(Way);

#[derive(Clone)]
enum Way {
    /// What lies there, by the number that the kernel gives each mount.
    Call {
        point: PathBuf,
        kind: &'static str,
        mount: Identity,
    },
    Helper(Arc<Mutex<SessionUnmounter>>),
}

/// By which a mount is known, beside its type. The kernel gives numbers of mounts that are gone to others, but not,
/// where it has such, the *unique* ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    unique: Option<u64>,
    number: u64,
    device: (u32, u32),
}

/// The path by which what is mounted over a directory is found. The root directory's own leads beneath all that is
/// mounted over it; `..` there leads to the uppermost.
fn uppermost(point: PathBuf) -> PathBuf {
    if point == Path::new("/") { "/..".into() } else { point }
}

/// Mounts at the directory `point` what a [`Server`](crate::Server) will answer for by the device that is given, in
/// this process or in another one: programs see it when this returns, and wait. Over the root directory it is seen as
/// `/..` only, by who then makes that its root directory. It takes the right to mount, and a `/dev/fuse` that the
/// process may open.
///
/// # Errors
/// `ENOENT` and `ENOTDIR` for `point`, `EACCES` and `EPERM` where the process may not mount there.
pub fn open_mount(point: &Path, options: &MountOptions) -> io::Result<(OwnedFd, Unmounter)> {
    // Whatever comes to its name meanwhile.
    let dir = openat(CWD, point, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let point = std::fs::read_link(&itself)?;
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let (data, flags) = (data(&device, options), flags(options));
    rustix::mount::mount(options.source.as_str(), itself, TYPE, flags, Some(data.as_c_str()))?;
    Ok((device.into(), Unmounter::of(point, TYPE)?))
}

/// Gives the mount that lies at `point` the flags of `options`, as `mount -o remount` does: `ro`, `suid`, `dev`,
/// `noexec`, `noatime`, `sync` and `dirsync`. All other options stay as they were.
///
/// # Errors
/// `EINVAL` if no mount of ours lies at `point`; `EBUSY` for `ro` while a file is open for writing; `EPERM` without the
/// right to mount.
pub fn remount(point: &Path, options: &MountOptions) -> io::Result<()> {
    if !is_mounted(&mount_at(point)?, TYPE)? {
        return Err(rustix::io::Errno::INVAL.into());
    }
    Ok(rustix::mount::mount_remount(point, flags(options), "")?)
}

fn data(device: &File, options: &MountOptions) -> std::ffi::CString {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let device = device.as_raw_fd();
    let others = if options.sharing == Sharing::Owner { "" } else { ",allow_other" };
    let data = format!("fd={device},rootmode=40000,user_id={user},group_id={group},default_permissions{others}");
    std::ffi::CString::new(data).expect("numbers and words")
}

fn flags(options: &MountOptions) -> MountFlags {
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (!options.suid, MountFlags::NOSUID),
        (!options.dev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.noatime, MountFlags::NOATIME),
        (options.sync.0, MountFlags::SYNCHRONOUS),
        (options.sync.1, MountFlags::DIRSYNC),
    ];
    flags.into_iter().filter(|(is, _)| *is).fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

/// The mount that lies at `point`. The server is not asked.
fn mount_at(point: &Path) -> io::Result<Identity> {
    // Linux 6.8.
    let unique = StatxFlags::from_bits_retain(0x4000);
    let looked = |flags| statx(CWD, point, AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC, flags);
    let stat = looked(StatxFlags::MNT_ID)?;
    let (number, device) = (stat.stx_mnt_id, (stat.stx_dev_major, stat.stx_dev_minor));
    let stat = looked(unique)?;
    let unique = (stat.stx_mask & unique.bits() != 0).then_some(stat.stx_mnt_id);
    Ok(Identity { unique, number, device })
}

impl Unmounter {
    pub(crate) fn of_helper(session: SessionUnmounter) -> Unmounter {
        Unmounter(Way::Helper(Arc::new(Mutex::new(session))))
    }

    /// Of what this process has just mounted at `point`, which is an absolute path without symbolic links; the kernel
    /// calls such a file system `kind`. It need not be one of ours.
    ///
    /// # Errors
    /// Of `statx`.
    pub fn of(point: PathBuf, kind: &'static str) -> io::Result<Unmounter> {
        let point = uppermost(point);
        let mount = mount_at(&point)?;
        Ok(Unmounter(Way::Call { point, kind, mount }))
    }

    /// Takes the mount away from where it is; [`Mount::serve`](crate::Mount::serve) returns once nobody uses it any
    /// more. Does nothing where that is done already.
    ///
    /// # Errors
    /// `EBUSY` where a program has a file of it open, or its current directory there, or something is mounted over it.
    pub fn unmount(&self) -> io::Result<()> {
        self.unmount_by(UnmountFlags::empty())
    }

    /// The same, also where programs use it: nobody comes by it any more, and it ends with the last of them.
    ///
    /// # Errors
    /// Those of [`unmount`](Self::unmount), but `EBUSY` only where something is mounted over it.
    pub fn detach(&self) -> io::Result<()> {
        self.unmount_by(UnmountFlags::DETACH)
    }

    /// Whether it lies where it was mounted; where `fusermount3` has mounted it that is not known, and taken for so.
    ///
    /// # Errors
    /// Of `statx`.
    pub fn is_there(&self) -> io::Result<bool> {
        match &self.0 {
            Way::Helper(_) => Ok(true),
            Way::Call { point, mount, .. } => Ok(mount_at(point)? == *mount),
        }
    }

    /// Whether the file system can only be read now: a remount changes that. `None` where it is not known.
    pub(crate) fn is_read_only(&self) -> Option<bool> {
        let Way::Call { mount, kind, .. } = &self.0 else { return None };
        let mounts = mounts::all().ok()?;
        mounts.iter().find(|other| mount.is(other, kind)).map(|mount| mount.has("ro"))
    }

    fn unmount_by(&self, flags: UnmountFlags) -> io::Result<()> {
        match &self.0 {
            Way::Helper(session) => session.lock().unwrap_or_else(PoisonError::into_inner).unmount(),
            Way::Call { point, mount, .. } if mount_at(point)? == *mount => Ok(rustix::mount::unmount(point, flags)?),
            Way::Call { kind, mount, .. } => match is_mounted(mount, kind)? {
                true => Err(rustix::io::Errno::BUSY.into()),
                false => Ok(()),
            },
        }
    }
}

/// Whether this process sees the mount anywhere.
fn is_mounted(mount: &Identity, kind: &str) -> io::Result<bool> {
    Ok(mounts::all()?.iter().any(|other| mount.is(other, kind)))
}

impl Identity {
    /// Another mount may have taken over the numbers; that it has the same type as well is unlikely.
    fn is(&self, other: &Mounted, kind: &str) -> bool {
        other.id == self.number && other.device == self.device && other.kind == kind
    }
}

impl std::fmt::Debug for Unmounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unmounter").finish_non_exhaustive()
    }
}
