//! Where a file's blocks lie on its device, which `rustix` does not ask.

use super::of_std;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl;

/// Extents that one call is asked for.
const AT_ONCE: usize = 128;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}
const _: () = assert!(size_of::<RawExtent>() == 56);

const NONE: RawExtent =
    RawExtent { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };

/// `struct fiemap`, with room for extents.
#[repr(C)]
struct RawMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; AT_ONCE],
}
/// Bytes of the head alone, by which the call is numbered.
const HEAD: usize = 32;
const _: () = assert!(std::mem::offset_of!(RawMap, extents) == HEAD);

const FIEMAP: ioctl::Opcode = ioctl::opcode::read_write::<[u8; HEAD]>(b'f', 11);

/// What is in the page cache is written first.
const SYNC: u32 = 1;
/// It is the file's last.
const LAST: u32 = 1;
/// What says nothing of where bytes are: unknown, not written yet, encoded, encrypted, not aligned, within metadata, a
/// tail, without content.
const NOWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800;
/// Nobody knows where it is; it is not allocated yet; it is allocated, and holds nothing.
const UNKNOWN: u32 = 0x2;
const DELAYED: u32 = 0x4;
const UNWRITTEN: u32 = 0x800;
/// Other files have it too.
const SHARED: u32 = 0x2000;

/// A run of a file's bytes that lie in a row on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first one in the file.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// The first one on the device.
    pub position: u64,
}

/// The extents in order that a file shares with others, as far as its file system says where they lie; none where it
/// shares no blocks. Where there are any, what has been written to the file is on its device when this returns, though
/// not durable: until then its own bytes may lie elsewhere than it is said. Two files that have bytes at the same place
/// have the same bytes there, as long as nobody writes to either.
///
/// # Errors
/// `EOPNOTSUPP` where the file system does not tell; those of a write-back.
pub fn shared_extents(file: std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<Vec<Extent>> {
    let is_shared = |flags| flags & (NOWHERE | SHARED) == SHARED;
    // Nobody writes a whole file back to hear that it is alone.
    let file = of_std(&file);
    if extents(file, 0, is_shared)?.is_empty() { Ok(Vec::new()) } else { extents(file, SYNC, is_shared) }
}

/// The ranges of bytes, in order, that have space and no data, which `fallocate` has reserved. Some may have data by
/// now that is not written back.
///
/// # Errors
/// `EOPNOTSUPP` where the file system does not tell.
pub fn reserved_extents(file: std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<Vec<(u64, u64)>> {
    reserved_in(of_std(&file))
}

/// The same of a file that is open here.
pub(crate) fn reserved_in(file: BorrowedFd<'_>) -> rustix::io::Result<Vec<(u64, u64)>> {
    let all = extents(file, 0, |flags| flags & (UNKNOWN | DELAYED | UNWRITTEN) == UNWRITTEN)?;
    Ok(all.into_iter().map(|extent| (extent.offset, extent.offset + extent.length)).collect())
}

fn extents(file: BorrowedFd<'_>, flags: u32, is_wanted: impl Fn(u32) -> bool) -> rustix::io::Result<Vec<Extent>> {
    let mut all: Vec<Extent> = Vec::new();
    let mut start = 0;
    loop {
        let mut map = RawMap {
            start,
            length: u64::MAX - start,
            flags,
            mapped: 0,
            count: AT_ONCE as u32,
            reserved: 0,
            extents: [NONE; AT_ONCE],
        };
        // SAFETY: FS_IOC_FIEMAP reads the head and writes at most `count` extents behind it, for which there is room;
        // any bytes are valid ones.
        let asked = unsafe { ioctl::ioctl(file, ioctl::Updater::<FIEMAP, RawMap>::new(&mut map)) };
        match asked {
            Err(Errno::INTR) => continue,
            Err(Errno::NOTTY | Errno::INVAL) => return Err(Errno::OPNOTSUPP),
            asked => asked?,
        }
        let mapped = map.extents.get(..map.mapped as usize).ok_or(Errno::IO)?;
        for raw in mapped {
            if is_wanted(raw.flags) && raw.length > 0 {
                all.push(Extent { offset: raw.logical, length: raw.length, position: raw.physical });
            }
        }
        match mapped.last() {
            Some(raw) if raw.flags & LAST == 0 && raw.logical + raw.length > start => start = raw.logical + raw.length,
            _ => return Ok(all),
        }
    }
}

/// The ranges of bytes, in order, that two files have at the same place.
pub fn shared(one: &[Extent], other: &[Extent]) -> Vec<(u64, u64)> {
    let (mut ranges, mut i, mut j): (Vec<(u64, u64)>, _, _) = (Vec::new(), 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        let (from, to) = (a.offset.max(b.offset), (a.offset + a.length).min(b.offset + b.length));
        if from < to && a.position + (from - a.offset) == b.position + (from - b.offset) {
            match ranges.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => ranges.push((from, to)),
            }
        }
        match a.offset + a.length <= b.offset + b.length {
            true => i += 1,
            false => j += 1,
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_shared_lies_at_the_same_place() {
        let extent = |offset, length, position| Extent { offset, length, position };
        let one = [extent(0, 10, 100), extent(10, 10, 300), extent(30, 5, 400)];
        assert_eq!(shared(&one, &one), [(0, 20), (30, 35)]);
        // Cut otherwise, and partly elsewhere.
        let other = [extent(0, 4, 100), extent(4, 2, 900), extent(6, 20, 106), extent(30, 9, 400)];
        assert_eq!(shared(&one, &other), [(0, 4), (6, 10), (30, 35)]);
        assert_eq!(shared(&one, &[extent(5, 5, 100)]), []);
        assert_eq!(shared(&[], &one), []);
    }

    /// Where files share no blocks there is nothing to tell; where they do, `wholly-overlay` tries it on such a file
    /// system.
    #[test]
    fn a_file_that_is_alone_shares_nothing() {
        let path = std::env::temp_dir().join(format!("wholly-host-extents-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // More than one call tells.
        for n in 0..300 {
            std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], n * (16 << 10)).unwrap();
        }
        match shared_extents(file.as_fd()) {
            Err(Errno::OPNOTSUPP) => println!("skipped: the file system of {} does not tell", path.display()),
            found => assert_eq!(found.unwrap(), []),
        }
    }
}
