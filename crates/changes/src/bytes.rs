//! The bytes of either side of a change.

use wholly_error::{Error, Result};
use wholly_host::HostFs;

use crate::{Change, Kind, Known, ParkedFile, Piece, Side, Summary};

/// The objects that a change-set has found, as they are by now.
pub trait Objects {
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
pub enum Held<'s> {
    /// They are these: the target of a symbolic link that the group makes.
    Target(&'s [u8]),
    /// They are those of the object with this id in the change-set.
    Object(u64),
}

/// Where the bytes are of one side of a change.
///
/// # Errors
/// [`Error::NotFound`] if there is no object on that side; [`Error::Invalid`] for an object without bytes.
pub fn held<'s>(summary: &'s Summary, change: &Change, side: Side) -> Result<Held<'s>> {
    let id = change.id_on(side);
    let nothing = || Error::NotFound(change.path.display().to_string());
    let known = summary.objects.get(&id).ok_or_else(nothing)?;
    match (summary.kind(id), known, side) {
        (Kind::Symlink, Known::Born(birth), Side::After) => Ok(Held::Target(&birth.target)),
        (Kind::Regular | Kind::Symlink, Known::Settled(_), _) | (Kind::Regular, _, Side::After) => Ok(Held::Object(id)),
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
    /// Those of [`held`]; [`Error::NotFound`] where an object is gone by now; [`Error::Corrupt`].
    pub fn read(
        &mut self,
        (host, objects): (&dyn HostFs, &mut dyn Objects),
        (change, side): (&Change, Side),
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let summary = &self.file.summary;
        match (held(summary, change, side)?, side) {
            (Held::Target(target), _) => Ok(copied(target, offset, buf)),
            (Held::Object(id), Side::After) => self.left(host, objects, id, offset, buf),
            (Held::Object(id), Side::Before) => {
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
        objects: &mut dyn Objects,
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
