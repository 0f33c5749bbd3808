//! Between the words of the kernel's protocol and those of [`Vfs`](wholly_vfs::Vfs).

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, INodeNo, TimeOrNow};
use wholly_vfs::{Attr, Errno, FileType, Ino, SetTime, Timestamp};

/// Nanoseconds of a second.
const SECOND: u32 = 1_000_000_000;

pub(crate) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

pub(crate) fn ino(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::RegularFile | FileType::Unknown => fuser::FileType::RegularFile,
    }
}

/// A point in time. Before 1970 the nanoseconds count forward all the same.
fn time(at: Timestamp) -> SystemTime {
    let fraction = Duration::from_nanos(at.nsec.into());
    match u64::try_from(at.sec) {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + fraction,
        Err(_) => SystemTime::UNIX_EPOCH - Duration::from_secs(at.sec.unsigned_abs()) + fraction,
    }
}

/// What a call wants of a time. `fuser` 0.18 counts the nanoseconds of a time before 1970 backward from its second;
/// here they are turned round again.
pub(crate) fn set_time(wanted: Option<TimeOrNow>) -> SetTime {
    match wanted {
        None => SetTime::Omit,
        Some(TimeOrNow::Now) => SetTime::Now,
        Some(TimeOrNow::SpecificTime(at)) => SetTime::At(match at.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Timestamp { sec: saturated(since.as_secs()), nsec: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                Timestamp { sec: -saturated(before.as_secs()), nsec: before.subsec_nanos() % SECOND }
            }
        }),
    }
}

fn saturated(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// What the kernel is told of an inode.
pub(crate) fn attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(attr.kind),
        perm: attr.mode.as_raw_mode() as u16,
        nlink: u32::try_from(attr.nlink).unwrap_or(u32::MAX),
        uid: attr.uid,
        gid: attr.gid,
        rdev: kernel_device(attr.rdev),
        blksize: attr.blksize,
        flags: 0,
    }
}

/// What the kernel is told of a name that is not there: an inode without a number.
pub(crate) fn nothing() -> FileAttr {
    const NEVER: SystemTime = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: NEVER,
        mtime: NEVER,
        ctime: NEVER,
        crtime: NEVER,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// What the kernel is told of a name in a list that cannot be looked up. `fuser` 0.18 lists no name without an inode:
/// this one is nobody's, its number is no inode's that the kernel was told of: those of objects that the host has not
/// made have the highest bit, and never the next one.
pub(crate) fn unknown(listed: Ino, of: FileType) -> FileAttr {
    FileAttr { ino: INodeNo(listed.0 | 3 << 62), kind: kind(of), nlink: 1, ..nothing() }
}

/// A device as the kernel numbers it in 32 bits (`new_encode_dev`): 12 bits for the driver, 20 for which of its
/// devices.
fn kernel_device(rdev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// The same the other way round.
pub(crate) fn device(kernel: u32) -> u64 {
    let (major, minor) = ((kernel >> 8) & 0xfff, (kernel & 0xff) | ((kernel >> 12) & 0xf_ff00));
    rustix::fs::makedev(major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_have_their_nanoseconds_after_the_second() {
        let at = Timestamp { sec: -2, nsec: 250_000_000 };
        let shown = time(at);
        assert_eq!(SystemTime::UNIX_EPOCH.duration_since(shown).unwrap(), Duration::from_millis(1750));
    }

    #[test]
    fn devices_come_back_as_they_went() {
        for (major, minor) in [(0, 0), (1, 3), (8, 1), (259, 70_000), (0xfff, 0xf_ffff)] {
            let rdev = rustix::fs::makedev(major, minor);
            assert_eq!(device(kernel_device(rdev)), rdev);
        }
    }
}
