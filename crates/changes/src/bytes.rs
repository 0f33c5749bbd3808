//! The bytes of either side of a change.

use wholly_error::{Error, Result};
use wholly_host::HostFs;

use crate::{Change, Kind, Known, ParkedFile, Piece, Side, Summary};

/// The objects that a change-set has found, as they are by now.
pub trait CurrentObjects {
    /// The object that the change-set knows as `id`, by the id that it has by now; `None` where it has no name any
    /// more.
    ///
    /// # Errors
    /// Those of looking for it.
    fn find(&mut self, summary: &Summary, id: u64) -> Result<Option<u64>>;

    /// Reads what everybody sees of a file, or of the target of a symbolic link, from `offset` on. `now` is an id that
    /// [`find`](Self::find) has given. Gives how many bytes; fewer than asked only at the end.
    ///
    /// # Errors
    /// [`Error::NotFound`] where it is gone.
    fn read(&mut self, now: u64, offset: u64, buf: &mut [u8]) -> Result<usize>;
}

/// Where the bytes of an object are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesAt<'s> {
    /// They are these: the target of a symbolic link that the group makes.
    Target(&'s [u8]),
    /// They are those of the object with this id in the change-set.
    Object(u64),
}

/// Where the bytes are of one side of a change.
///
/// # Errors
/// [`Error::NotFound`] if there is no object on that side; [`Error::Invalid`] for an object without bytes.
pub fn bytes_at<'s>(summary: &'s Summary, change: &Change, side: Side) -> Result<BytesAt<'s>> {
    let id = change.id_on(side);
    let nothing = || Error::NotFound(change.path.display().to_string());
    let known = summary.objects.get(&id).ok_or_else(nothing)?;
    match (summary.kind(id), known, side) {
        (Kind::Symlink, Known::Born(birth), Side::After) => Ok(BytesAt::Target(&birth.target)),
        (Kind::Regular | Kind::Symlink, Known::Settled(_), _) | (Kind::Regular, _, Side::After) => {
            Ok(BytesAt::Object(id))
        }
        (_, Known::Born(_), Side::Before) => Err(nothing()),
        _ => Err(Error::invalid(format!("{} holds no bytes", change.path.display()))),
    }
}

/// The bytes of both sides of a parked group. The piece that was read last is kept, since most read in order.
pub struct ParkedBytes {
    file: ParkedFile,
    /// That piece, with the object that it is of.
    last: Option<(u64, Piece, Vec<u8>)>,
}

impl ParkedBytes {
    /// Those of a parked group.
    pub fn new(file: ParkedFile) -> Self {
        ParkedBytes { file, last: None }
    }

    /// Reads up to `buf.len()` bytes of one side of a change, from `offset` on. What the group has found is read as it
    /// is by now. Gives how many bytes; fewer than asked only at the end.
    ///
    /// # Errors
    /// Those of [`bytes_at`]; [`Error::NotFound`] where an object is gone by now; [`Error::Corrupt`].
    pub fn read(
        &mut self,
        (host, objects): (&dyn HostFs, &mut dyn CurrentObjects),
        (change, side): (&Change, Side),
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let summary = &self.file.summary;
        match (bytes_at(summary, change, side)?, side) {
            (BytesAt::Target(target), _) => Ok(copied(target, offset, buf)),
            (BytesAt::Object(id), Side::After) => self.left(host, objects, id, offset, buf),
            (BytesAt::Object(id), Side::Before) => {
                let gone = || Error::NotFound(change.path.display().to_string());
                let now = objects.find(summary, id)?.ok_or_else(gone)?;
                objects.read(now, offset, buf)
            }
        }
    }

    /// The bytes that the group leaves in a file.
    fn left(
        &mut self,
        host: &dyn HostFs,
        objects: &mut dyn CurrentObjects,
        id: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let ParkedBytes { file, last } = self;
        let settled = match file.summary.objects.get(&id) {
            Some(Known::Settled(_)) => {
                let path = || file.summary.path_before(id).unwrap_or_default();
                let gone = || Error::NotFound(String::from_utf8_lossy(&path()).into_owned());
                Some(objects.find(&file.summary, id)?.ok_or_else(gone)?)
            }
            _ => None,
        };
        let Some(content) = file.summary.contents.get(&id) else {
            return settled.map_or(Ok(0), |now| objects.read(now, offset, buf));
        };
        let length = (buf.len() as u64).min(content.size.saturating_sub(offset)) as usize;
        let buf = &mut buf[..length];
        buf.fill(0);
        let kept = content.limit.saturating_sub(offset).min(length as u64) as usize;
        if let Some(now) = settled.filter(|_| kept > 0) {
            objects.read(now, offset, &mut buf[..kept])?;
        }
        let end = offset + length as u64;
        for (range, _) in content.space.iter().filter(|(_, how)| how.zeroes()) {
            let (from, to) = (range.start.clamp(offset, end), range.end.clamp(offset, end));
            buf[(from - offset) as usize..(to - offset) as usize].fill(0);
        }
        for piece in content.in_range(offset, end) {
            if last.as_ref().is_none_or(|(of, last, _)| (*of, last) != (id, piece)) {
                *last = Some((id, *piece, file.written(host, id)?.piece(piece)?));
            }
            let bytes = &last.as_ref().expect("it was just read").2;
            let (from, to) = (piece.offset.max(offset), piece.end().min(end));
            let part = &bytes[(from - piece.offset) as usize..(to - piece.offset) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        Ok(length)
    }
}

/// Copies what lies from `offset` on. Gives how many bytes these are.
pub fn copied(bytes: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let from = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
    let length = buf.len().min(bytes.len() - from);
    buf[..length].copy_from_slice(&bytes[from..from + length]);
    length
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use wholly_vfs::{Fallocate, Stat};

    use super::*;
    use crate::records::Birth;
    use crate::{Content, ROOT, Settled, Writing, changes_of};

    /// Each object has this many bytes of its own letter, and 22 is gone.
    struct Letters(u64);

    impl CurrentObjects for Letters {
        fn find(&mut self, summary: &Summary, id: u64) -> Result<Option<u64>> {
            assert!(summary.settled(id).is_some());
            Ok(Some(id + 100).filter(|_| id != 22))
        }

        fn read(&mut self, now: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
            let length = buf.len().min(self.0.saturating_sub(offset) as usize);
            buf[..length].fill(b'a' + (now - 120) as u8);
            Ok(length)
        }
    }

    /// What is kept, cut, punched and written, and what lies beyond, come from where they are.
    #[test]
    fn each_byte_comes_from_its_place() {
        let world = wholly_sim::World::new(wholly_sim::SimConfig::disk());
        let host = world.host();
        let mut writing = Writing::new(&*host, b"parked", (&[9; 16], 7, "note"), (1, 2)).unwrap();
        let mut summary = Summary::default();
        for (id, name) in [(20, "a"), (21, "b"), (22, "c")] {
            let stat = Stat { ino: id, mode: 0o100_644, nlink: 1, ..Stat::default() };
            let settled = Settled { stat, place: (ROOT, name.as_bytes().into()), base: None };
            summary.objects.insert(id, Known::Settled(Box::new(settled)));
        }
        let mut piece = Piece { offset: 8, length: 4, ..Piece::default() };
        writing.write(&mut piece, b"wxyz").unwrap();
        summary.contents.insert(20, Content { limit: 6, size: 16, pieces: vec![piece], ..Content::default() });
        let space = vec![(0..4096, Fallocate::Punch)];
        summary.contents.insert(21, Content { limit: 8192, size: 8192, space, ..Content::default() });
        summary.contents.insert(22, Content { limit: 1, size: 1, ..Content::default() });
        let target = b"target".to_vec();
        let (mode, uid, gid, rdev, btime_ns, atime_ns, mtime_ns) = (0o120_777, 0, 0, 0, 1, 1, 1);
        let link = Birth { mode, uid, gid, rdev, btime_ns, atime_ns, mtime_ns, target };
        summary.objects.insert(40, Known::Born(Arc::new(link)));
        summary.add_name((ROOT, b"l"[..].into()), 0, 40);
        writing.add(&summary).unwrap();
        writing.finish().unwrap();

        let changes = changes_of(&summary);
        let mut bytes = ParkedBytes::new(ParkedFile::read(&*host, b"parked").unwrap());
        let mut read = |name: &str, side: Side, offset: u64, length: usize| {
            let change = changes.iter().find(|change| change.path == Path::new(name)).expect("it is changed");
            let mut buf = vec![0xff; length];
            let read = bytes.read((&*host, &mut Letters(10_000)), (change, side), offset, &mut buf)?;
            buf.truncate(read);
            Ok::<_, Error>(buf)
        };
        assert_eq!(read("a", Side::After, 0, 99).unwrap(), b"aaaaaa\0\0wxyz\0\0\0\0");
        assert_eq!(read("a", Side::After, 5, 5).unwrap(), b"a\0\0wx");
        assert_eq!(read("a", Side::After, 11, 2).unwrap(), b"z\0");
        assert_eq!(read("a", Side::After, 16, 2).unwrap(), b"");
        assert_eq!(read("a", Side::Before, 9_998, 9).unwrap(), b"aa");
        assert_eq!(read("b", Side::After, 4094, 4).unwrap(), b"\0\0bb");
        assert_eq!(read("l", Side::After, 3, 9).unwrap(), b"get");
        for (name, side) in [("c", Side::After), ("c", Side::Before), ("l", Side::Before)] {
            assert!(matches!(read(name, side, 0, 1), Err(Error::NotFound(_))), "{name}, {side:?}");
        }
    }
}
