//! What a group leaves of something, as it stands in an undo.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::records::LARGEST_FILE;
use crate::{Left, LeftContent};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawLeft {
    sum: [u8; 16],
    xattrs: U64,
    size: U64,
    rdev: U64,
    mode: U32,
    uid: U32,
    gid: U32,
    content: U32,
    ranges: U32,
    path_length: U32,
}
const _: () = assert!(size_of::<RawLeft>() == 64);
const _: () = assert!(std::mem::offset_of!(RawLeft, mode) == 40);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawRange {
    from: U64,
    to: U64,
}

/// What is in a directory that the group has adopted has a path there.
pub(super) fn to_bytes(path: &[u8], left: &Left) -> Vec<u8> {
    let (content, sum) = match left.content {
        LeftContent::Untouched => (0, 0),
        LeftContent::Sum(sum) => (1, sum),
        LeftContent::Unread => (2, 0),
    };
    let raw = RawLeft {
        sum: sum.to_le_bytes(),
        xattrs: U64::new(left.xattrs),
        size: U64::new(left.size),
        rdev: U64::new(left.rdev),
        mode: U32::new(left.mode),
        uid: U32::new(left.uid),
        gid: U32::new(left.gid),
        content: U32::new(content),
        ranges: U32::new(left.ranges.len() as u32),
        path_length: U32::new(path.len() as u32),
    };
    let mut bytes = raw.as_bytes().to_vec();
    for &(from, to) in &left.ranges {
        bytes.extend_from_slice(RawRange { from: U64::new(from), to: U64::new(to) }.as_bytes());
    }
    bytes.extend_from_slice(path);
    bytes
}

/// `None` for what no writer writes.
pub(super) fn checked(bytes: &[u8]) -> Option<(Vec<u8>, Left)> {
    let (raw, rest) = RawLeft::read_from_prefix(bytes).ok()?;
    let (ranges, path) = <[RawRange]>::ref_from_prefix_with_elems(rest, raw.ranges.get() as usize).ok()?;
    let ranges: Vec<(u64, u64)> = ranges.iter().map(|range| (range.from.get(), range.to.get())).collect();
    let is_ordered = ranges.windows(2).all(|two| two[0].1 < two[1].0);
    let is_whole = ranges.iter().all(|(from, to)| from < to && *to <= raw.size.get().min(LARGEST_FILE));
    let content = match (raw.content.get(), u128::from_le_bytes(raw.sum)) {
        (0, 0) => LeftContent::Untouched,
        (1, sum) => LeftContent::Sum(sum),
        (2, 0) => LeftContent::Unread,
        _ => return None,
    };
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    let is_path = path.len() == raw.path_length.get() as usize
        && (path.is_empty() || path.split(|byte| *byte == b'/').all(is_name));
    let left = Left {
        mode: raw.mode.get(),
        uid: raw.uid.get(),
        gid: raw.gid.get(),
        rdev: raw.rdev.get(),
        size: raw.size.get(),
        ranges,
        content,
        xattrs: raw.xattrs.get(),
    };
    (is_ordered && is_whole && is_path).then(|| (path.to_vec(), left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_reads_back() {
        let ranges = vec![(0, 5), (7, 9)];
        let content = LeftContent::Sum(u128::MAX - 4);
        let left = Left { mode: 0o100_644, uid: 1, gid: 2, rdev: 3, size: 9, ranges, content, xattrs: 5 };
        let bytes = to_bytes(b"a/b", &left);
        assert_eq!((bytes.len(), &bytes[16..17], &bytes[24..25], &bytes[96..]), (99, &[5][..], &[9][..], &b"a/b"[..]));
        assert_eq!(checked(&bytes), Some((b"a/b".to_vec(), left.clone())));
        assert!((0..bytes.len()).all(|at| checked(&bytes[..at]).is_none()));
        let with = |ranges: &[(u64, u64)]| {
            checked(&to_bytes(b"", &Left { ranges: ranges.to_vec(), size: u64::MAX, ..left.clone() }))
        };
        assert!(with(&[]).is_some() && with(&[(0, 5), (5, 9)]).is_none() && with(&[(3, 3)]).is_none());
        assert!(with(&[(7, 9), (0, 5)]).is_none() && with(&[(0, LARGEST_FILE + 1)]).is_none());
        for content in [LeftContent::Untouched, LeftContent::Unread] {
            let other = Left { content, ..left.clone() };
            assert_eq!(checked(&to_bytes(b"", &other)), Some((Vec::new(), other)));
        }
        assert!(checked(&to_bytes(b"/a", &left)).is_none() && checked(&to_bytes(b"a\0", &left)).is_none());
        assert!(checked(&to_bytes(b"a/../b", &left)).is_none() && checked(&to_bytes(b"a//b", &left)).is_none());
        assert!(checked(&to_bytes(b"", &Left { size: 8, ..left.clone() })).is_none(), "beyond the end");
    }
}
