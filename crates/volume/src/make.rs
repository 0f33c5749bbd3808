//! Making a volume in a file or on a device: what may be overwritten, and what is left if it fails.
//!
//! The file or device is opened once: what is looked at by that descriptor is what is written.

use std::cell::Cell;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, fstat, openat, statat, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use wholly_error::{Error, Result};
use wholly_media::{Region, disk::DiskRegion};

use crate::EngineKind;
use crate::engine::kind::Description;
use crate::format::BLOCK;
use crate::format::bitmap::{Layout, fitting};
use crate::format::log::ForLog;
use crate::fs::mount;
use crate::medium::{Kind, Location, Opened, is_whole, opened, region_to_read};
use crate::open::{Access, LENGTH, Volume, VolumeOptions, failed, lock, own};
use crate::owner::Lock;

/// Bytes at the start and at the end of a device that are looked at. The signatures of file systems, swap, partition
/// tables, RAID, LVM and encryption all begin within these: the farthest from the start is VMFS, at 2 MiB; of those at
/// the end, an old RAID's is the farthest, within 128 KiB.
const HEAD: u64 = 4 << 20;
const TAIL: u64 = 1 << 20;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

impl Volume {
    /// Makes an empty volume of `bytes` bytes in a file, which is made if it does not exist (0: as long as the file
    /// is), or on a block device or a flash disk ([`Location`]), all of which it takes. The volume is durable on
    /// return; the name of a new file is not. A file on tmpfs takes memory as the volume is filled; any other file has
    /// all its space. If this fails, a file that it has made is removed.
    ///
    /// # Errors
    /// [`Error::Exists`] if something is in the file or device and `force` is not set; the text says what. A file has
    /// nothing in it if it is empty or consists of holes (`truncate -s`); a device, if its first 4 MiB and its last
    /// 1 MiB are zeros. [`Error::Busy`] if another process has it open; [`Error::NoSpace`] if it is too small.
    pub fn format(path: &Path, bytes: u64, options: &VolumeOptions) -> Result<()> {
        Target::open(path)?.fill(|target| target.format(bytes, options, &|_, _| ()).map(drop))
    }

    /// The same. It is opened once to see that it can be, without letting go of the file. `watch` is told how many
    /// bytes of how many are written.
    ///
    /// # Errors
    /// Those of `format`, and of [`open`](Self::open).
    pub fn make(path: &Path, bytes: u64, options: &VolumeOptions, watch: &dyn Fn(u64, u64)) -> Result<()> {
        Target::open(path)?
            .fill(|target| Volume::open_owned(target.format(bytes, options, watch)?, None, options.clone())?.close())
    }
}

/// Where a volume is to be.
struct Target<'p> {
    path: &'p Path,
    file: OwnedFd,
    /// Bytes of a file that was there.
    len: u64,
    /// It is taken as a whole: a block device or a flash disk.
    is_whole: bool,
    /// It is a file without data: so it is to be again if this fails.
    has_none: Cell<bool>,
    made: Option<Made>,
    _lock: Lock,
}

/// Where a file was made.
struct Made {
    dir: OwnedFd,
    name: Vec<u8>,
}

impl<'p> Target<'p> {
    /// Opens what is there, or makes a file.
    fn open(path: &'p Path) -> Result<Target<'p>> {
        /// Others may make and remove it at the same time.
        const TRIES: u32 = 20;
        for _ in 0..TRIES {
            let (file, lock, made) = match (own(path, Access::Use), path.file_name()) {
                (Err(Error::NotFound(_)), Some(name)) if Location::of(path).kind == Kind::File => {
                    match make(path, name)? {
                        Some((file, made)) => {
                            let (file, lock) = lock(file, path, Access::Use)?;
                            (file, lock, Some(made))
                        }
                        None => continue,
                    }
                }
                (opened, _) => {
                    let (file, lock) = opened?;
                    (file, lock, None)
                }
            };
            let stat = fstat(&file).map_err(|errno| failed("fstat", path, errno))?;
            let (is_whole, has_none) = (is_whole(&file, path)?, Cell::new(false));
            return Ok(Target { path, file, len: stat.st_size as u64, is_whole, has_none, made, _lock: lock });
        }
        Err(Error::Exists(format!("{}: it is a symbolic link to a file that does not exist", path.display())))
    }

    /// Does it, or leaves things as they were.
    fn fill<T>(self, fill: impl FnOnce(&Target<'_>) -> Result<T>) -> Result<T> {
        let filled = fill(&self);
        if filled.is_err() && self.has_none.get() {
            let _ = rustix::fs::ftruncate(&self.file, 0).and_then(|()| rustix::fs::ftruncate(&self.file, self.len));
        }
        if let (Err(_), Some(Made { dir, name })) = (&filled, &self.made)
            && let (Ok(mine), Ok(there)) = (fstat(&self.file), statat(dir, &name[..], AtFlags::SYMLINK_NOFOLLOW))
            && (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
        {
            let _ = unlinkat(dir, &name[..], AtFlags::empty());
        }
        filled
    }

    /// Makes an empty volume. What was in the file or device stays if it is refused, or has no room for a volume.
    fn format(&self, bytes: u64, options: &VolumeOptions, watch: &dyn Fn(u64, u64)) -> Result<Opened> {
        let Target { path, file, is_whole, .. } = self;
        mount::encode_label(&options.label)?;
        let copy = || fcntl_dupfd_cloexec(file, 0).map_err(|errno| failed("dup", path, errno));
        if !options.force {
            // Before the region is opened, which may write to it.
            let found = match *is_whole {
                true if Location::of(path).kind != Kind::File => found_on(&*region_to_read(copy()?, path)?)?,
                true => found_on(&DiskRegion::open_read_only(copy()?, path.display().to_string())?)?,
                false => found(file.as_fd()).map_err(|errno| failed("read", path, errno))?,
            };
            if let Some(found) = found {
                return Err(Error::Exists(format!("{}: {found}", path.display())));
            }
            self.has_none.set(!is_whole);
        }
        let medium = opened(copy()?, path, (options.medium, options.queues))?;
        let (region, has) = (&medium.region, medium.has());
        let block = BLOCK as u64;
        let engine = options.engine.unwrap_or_else(|| EngineKind::chosen(region.guarantees(), has));
        let len = if *is_whole || bytes == 0 { region.len() } else { bytes } / block * block;
        engine.check_medium(&**region)?;
        engine.check_data(options.data)?;
        let Description { keeps_bitmaps, .. } = *engine.description();
        let blocks = if keeps_bitmaps { fitting(len / block) } else { len / block };
        let log = engine.log_on(has.transactions);
        let wanted = ForLog { blocks, queues: has.queues_for(options.queues)? };
        mount::log_area(log, keeps_bitmaps.then(|| Layout::of_new(blocks)), wanted)?;
        if *is_whole {
            Volume::format_watched(&medium, options, watch)?;
            return Ok(medium);
        }
        // What was there is gone: an old superblock at the end must not be found.
        region.set_len(LENGTH, 0)?;
        region.extend(LENGTH, len)?;
        Volume::format_watched(&medium, options, watch)?;
        Ok(medium)
    }
}

/// Makes a file. `None`: its name is taken, perhaps by a symbolic link to nothing.
fn make(path: &Path, name: &OsStr) -> Result<Option<(OwnedFd, Made)>> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, above.as_os_str().as_bytes(), flags, Mode::empty());
    let dir = dir.map_err(|errno| failed("open", above, errno))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match openat(&dir, name.as_bytes(), flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Some((file, Made { dir, name: name.as_bytes().to_vec() }))),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(failed("open", path, errno)),
    }
}

/// What is in a file, in words, if anything is.
fn found(file: BorrowedFd<'_>) -> std::result::Result<Option<String>, Errno> {
    let len = rustix::fs::seek(file, SeekFrom::End(0))?;
    let start = match rustix::fs::seek(file, SeekFrom::Data(0)) {
        Err(Errno::NXIO) => return Ok(None),
        Ok(at) => at,
        // The file system knows nothing of holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    // Nobody reads all of a large file of zeros.
    let read = |at, bytes: &mut [u8]| rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *bytes, at));
    let found = in_words(&read, len, start..len.min(start.saturating_add(HEAD)))?;
    let zeros = || format!("it holds zeros, and not holes, from byte {start} on");
    Ok(found.or_else(|| (len > 0).then(zeros)))
}

/// What is on a device, in words, if anything is.
fn found_on(region: &dyn Region) -> wholly_media::Result<Option<String>> {
    let len = region.len();
    let read = |at: u64, bytes: &mut [u8]| {
        let length = bytes.len().min(len.saturating_sub(at) as usize);
        region.read(at, &mut bytes[..length]).map(|()| length)
    };
    match in_words(&read, len, 0..HEAD.min(len))? {
        None => in_words(&read, len, len.saturating_sub(TAIL)..len),
        found => Ok(found),
    }
}

/// Reads bytes from an offset on, as `pread` does.
type ReadAt<'r, E> = &'r dyn Fn(u64, &mut [u8]) -> std::result::Result<usize, E>;

/// What is in `len` bytes, if some of a range are not zeros.
fn in_words<E>(read: ReadAt<'_, E>, len: u64, range: Range<u64>) -> std::result::Result<Option<String>, E> {
    let mut piece = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        let length = (range.end - at).min(PIECE as u64) as usize;
        let count = read(at, &mut piece[..length])?;
        if let Some(first) = piece[..count].iter().position(|byte| *byte != 0) {
            return Ok(Some(match kind(read, len)? {
                Some(kind) => format!("it holds {kind}"),
                None => format!("it holds data: byte {} is not zero", at + first as u64),
            }));
        }
        if count == 0 {
            break;
        }
        at += count as u64;
    }
    Ok(None)
}

/// What begins with which bytes at which offset; from the end, if that is negative.
const KINDS: &[(&str, i64, &[u8])] = &[
    ("a volume of Wholly", 0, b"WHOLLYVL"),
    ("a volume of Wholly", 4096, b"WHOLLYVL"),
    ("a volume of Wholly", -4096, b"WHOLLYVL"),
    // In the first version of the format.
    ("a volume of Wholly", 8, b"WHOLLYVL"),
    ("a volume of Wholly", 4096 + 8, b"WHOLLYVL"),
    ("a volume of Wholly", -4096 + 8, b"WHOLLYVL"),
    ("a flash disk (`flash:` before the name makes a volume on that)", 0, b"WHOLLYFL"),
    ("an ext2, ext3 or ext4 file system", 0x438, &[0x53, 0xEF]),
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an F2FS file system", 0x400, &[0x10, 0x20, 0xF5, 0xF2]),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 82, b"FAT32   "),
    ("a FAT file system", 54, b"FAT1"),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a squashfs file system", 0, b"hsqs"),
    ("an LVM physical volume", 0x218, b"LVM2 001"),
    ("an encrypted LUKS volume", 0, b"LUKS\xBA\xBE"),
    ("swap space", 4096 - 10, b"SWAPSPACE2"),
    ("swap space", 4096 - 10, b"SWAP-SPACE"),
    ("a RAID member", 4096, &[0xFC, 0x4E, 0x2B, 0xA9]),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("a GPT partition table", -512, b"EFI PART"),
    ("a GPT partition table", -4096, b"EFI PART"),
    ("an SQLite database", 0, b"SQLite format 3\0"),
    ("a qcow2 disk image", 0, b"QFI\xFB"),
    ("a program", 0, b"\x7FELF"),
    ("compressed data", 0, &[0x1F, 0x8B]),
    ("compressed data", 0, &[0x28, 0xB5, 0x2F, 0xFD]),
    ("compressed data", 0, b"\xFD7zXZ\0"),
    // Last: others have it too.
    ("a partition table or a boot sector", 510, &[0x55, 0xAA]),
];

fn kind<E>(read: ReadAt<'_, E>, len: u64) -> std::result::Result<Option<&'static str>, E> {
    for (kind, offset, magic) in KINDS {
        let at = if *offset < 0 { len.checked_add_signed(*offset) } else { Some(*offset as u64) };
        let Some(at) = at else { continue };
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..magic.len()];
        if read(at, bytes)? == magic.len() && bytes == *magic {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}
