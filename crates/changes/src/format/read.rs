//! Reading a parked group: its catalogue is checked before anybody believes it, its bytes when they are wanted.

use std::sync::Arc;

use log::checksum::{checksum, payload_checksum};
use rustix::io::Errno;
use wholly_error::{Error, Result};
use wholly_host::{HostFile, HostFs, host_error, open_own};
use wholly_vfs::{Fallocate, Stat};
use zerocopy::FromBytes;

use super::{
    APPLIES, BASE, CONTENT, COORDINATOR, HEAD, Head, LATER, LEFT, PART, RawContent, RawEntry, base_of, content_path,
    left, version_of,
};
use crate::records::kind::{ATTRIBUTES, CREATE, IDENTIFY, NAME, SPACE, TRUNCATE, WRITE, XATTR};
use crate::records::{Attributes, BLOCK, Baseline, Birth, Identity, LARGEST_FILE, Space, Value, Xattr};
use crate::summary::LONGEST_PIECE;
use crate::{Content, ContentFile, Kind, Known, Name, Neighbour, Piece, ROOT, Set, Settled, Summary};

/// A parked group, all of it known but the bytes that it writes.
pub struct ParkedFile {
    /// Its first bytes.
    pub head: Head,
    /// What it would change.
    pub summary: Summary,
    file: Arc<dyn HostFile>,
    path: String,
}

impl ParkedFile {
    /// Reads the head only.
    pub fn head_of(host: &dyn HostFs, path: &[u8]) -> Result<(Head, u64)> {
        Self::open(host, path).map(|(head, _, len)| (head, len))
    }

    pub(super) fn open(host: &dyn HostFs, path: &[u8]) -> Result<(Head, Arc<dyn HostFile>, u64)> {
        let (file, Stat { size: len, .. }) = open_own(host, path)?;
        let mut bytes = vec![0; HEAD];
        let read = file.read_at(0, &mut bytes)?;
        bytes.truncate(read);
        let place = || String::from_utf8_lossy(path);
        let head = Head::checked(&bytes, len).map_err(|what| match what {
            LATER => Error::Unsupported(format!("{}: {LATER}", place())),
            what => Error::corrupt(place(), what),
        })?;
        Ok((head, file, len))
    }

    /// The same file with another summary, such as that of a part of its changes.
    pub fn with(&self, summary: Summary) -> ParkedFile {
        ParkedFile { head: self.head.clone(), summary, file: self.file.clone(), path: self.path.clone() }
    }

    /// Reads what has this name.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Corrupt`] where it is not what was written; [`Error::Unsupported`] where a later
    /// version of Wholly wrote it.
    pub fn read(host: &dyn HostFs, path: &[u8]) -> Result<ParkedFile> {
        let (head, file, _) = Self::open(host, path)?;
        let path = String::from_utf8_lossy(path).into_owned();
        let mut bytes = vec![0; head.catalogue_length as usize];
        let read = read_all(&*file, head.catalogue, &mut bytes)?;
        if read < bytes.len() || checksum(head.seed(), &bytes) != head.catalogue_checksum {
            return Err(Error::corrupt(path, "its catalogue does not match its checksum"));
        }
        let impossible = || Error::corrupt(&*path, "its catalogue is invalid");
        let summary = Reading { bytes: &bytes, end: Some(head.catalogue), summary: Summary::default(), open: None };
        let summary = summary.all().filter(|summary| head.version == version_of(summary)).ok_or_else(impossible)?;
        let files = summary.contents.values().filter_map(|content| content.file);
        let (number, bytes) =
            files.fold((0, 0), |(n, sum): (u32, u64), file| (n + 1, sum.saturating_add(file.allocated)));
        if (number, bytes) != (head.content_files, head.content_bytes) {
            return Err(impossible());
        }
        Ok(ParkedFile { head, summary, file, path })
    }

    /// The bytes that the group writes to a file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if their content file is not what it was.
    pub fn written(&self, host: &dyn HostFs, id: u64) -> Result<Written<'_>> {
        let content = self.summary.contents.get(&id);
        let expected = content.and_then(|content| Some((content.size, content.file?.mtime_ns)));
        let open = |expected| {
            let path = content_path(self.head.id, id);
            let corrupt = |what| Error::corrupt(String::from_utf8_lossy(&path), what);
            match host.stat(&path) {
                Err(error) if error.errno == Errno::NOENT => {
                    return Err(corrupt("bytes that a parked group writes are gone"));
                }
                Ok(stat) if !stat.is_file() => return Err(corrupt("bytes that a parked group writes are replaced")),
                stat => stat.map_err(|error| host_error(error, &path))?,
            };
            let file = host.open(&path, false).map_err(|error| host_error(error, &path))?;
            let stat = file.stat()?;
            match is_as_parked(&stat, expected) {
                true => Ok((file, path)),
                false => Err(corrupt("bytes that a parked group writes have been changed")),
            }
        };
        Ok(Written { parked: self, apart: expected.map(open).transpose()? })
    }

    /// Reads the bytes of a piece that are in this file.
    fn piece(&self, piece: &Piece) -> Result<Vec<u8>> {
        let mut bytes = vec![0; piece.length as usize];
        let read = read_all(&*self.file, piece.position, &mut bytes)?;
        if read < bytes.len() || payload_checksum(self.head.seed(), piece.position, &bytes) != piece.checksum {
            let place = format!("{}, byte {}", self.path, piece.position);
            return Err(Error::corrupt(place, "bytes that the group writes do not match their checksum"));
        }
        Ok(bytes)
    }

    /// Reads all of it, and looks at its content files.
    ///
    /// # Errors
    /// As [`written`](Self::written), and [`piece`](Written::piece).
    pub fn verify(&self, host: &dyn HostFs) -> Result<()> {
        for (id, content) in &self.summary.contents {
            let written = self.written(host, *id)?;
            if content.file.is_none() {
                content.pieces.iter().try_for_each(|piece| written.piece(piece).map(drop))?;
            }
        }
        Ok(())
    }
}

/// Whether a content file is as it was when its group was parked, by its size and its mtime. What a backup brings back
/// may have whole seconds only.
fn is_as_parked(stat: &Stat, (size, mtime_ns): (u64, i64)) -> bool {
    const NS: i64 = 1_000_000_000;
    let is_whole = stat.mtime_ns.rem_euclid(NS) == 0;
    stat.size == size && (stat.mtime_ns == mtime_ns || is_whole && stat.mtime_ns == mtime_ns - mtime_ns.rem_euclid(NS))
}

/// The bytes that a parked group writes to one file.
pub struct Written<'p> {
    parked: &'p ParkedFile,
    /// The content file that they are in, and its path.
    apart: Option<(Arc<dyn HostFile>, Vec<u8>)>,
}

impl Written<'_> {
    /// Reads the bytes of a piece.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where they do not match their checksum, or are not there.
    pub fn piece(&self, piece: &Piece) -> Result<Vec<u8>> {
        let Some((file, path)) = &self.apart else { return self.parked.piece(piece) };
        let mut bytes = vec![0; piece.length as usize];
        if read_all(&**file, piece.offset, &mut bytes)? < bytes.len() {
            return Err(Error::corrupt(String::from_utf8_lossy(path), "it is not as long as it was"));
        }
        Ok(bytes)
    }
}

pub(super) fn read_all(file: &dyn HostFile, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(offset + done as u64, &mut buf[done..])? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

/// A catalogue that is being read. Its checksum holds; it may be impossible all the same.
pub(super) struct Reading<'b> {
    pub bytes: &'b [u8],
    /// Where the bytes end that the group writes; `None` before they have a place.
    pub end: Option<u64>,
    pub summary: Summary,
    /// The file of which a first Truncate was read, and no last one.
    pub open: Option<u64>,
}

impl<'b> Reading<'b> {
    pub fn all(mut self) -> Option<Summary> {
        while !self.bytes.is_empty() {
            let (entry, rest) = RawEntry::read_from_prefix(self.bytes).ok()?;
            self.bytes = rest;
            if entry.reserved != [0; 3] {
                return None;
            }
            let (object, offset) = (entry.object.get(), entry.offset.get());
            let piece = Piece {
                offset,
                length: entry.length.get(),
                position: entry.position.get(),
                checksum: entry.checksum.get(),
            };
            match entry.kind {
                WRITE => self.write(object, piece)?,
                _ if piece.position != 0 || piece.checksum != 0 => return None,
                SPACE => {
                    let payload = self.payload(piece.length as usize)?;
                    self.space(object, offset, payload)?;
                }
                TRUNCATE if piece.length == 0 && offset <= LARGEST_FILE => self.truncate(object, offset)?,
                kind if offset == 0 => {
                    let payload = self.payload(piece.length as usize)?;
                    self.object(kind, object, payload)?;
                }
                _ => return None,
            }
        }
        self.is_sound().then_some(self.summary)
    }

    fn payload(&mut self, length: usize) -> Option<&'b [u8]> {
        let (payload, rest) = self.bytes.split_at_checked(length.next_multiple_of(8))?;
        self.bytes = rest;
        payload[length..].iter().all(|&byte| byte == 0).then_some(&payload[..length])
    }

    fn object(&mut self, kind: u8, id: u64, payload: &[u8]) -> Option<()> {
        let summary = &mut self.summary;
        let is_new = id != 0 && id != ROOT && !summary.objects.contains_key(&id);
        match kind {
            IDENTIFY if is_new || (id == ROOT && !summary.objects.contains_key(&ROOT)) => {
                let Identity { ino, btime_ns, baseline, parent, mode, uid, gid, nlink, name, .. } =
                    Identity::checked(payload)?;
                let Baseline { size, mtime_ns, ctime_ns } = baseline?;
                let stat = Stat { ino, btime_ns, size, mtime_ns, ctime_ns, mode, uid, gid, nlink, ..Stat::default() };
                // So none lies in itself.
                let above = if id == ROOT { parent == 0 } else { parent == ROOT || summary.settled(parent).is_some() };
                let settled = Settled { stat, place: (parent, name.into()), base: None };
                above.then(|| summary.objects.insert(id, Known::Settled(Box::new(settled))).is_none())
            }
            BASE => match summary.objects.get_mut(&id)? {
                Known::Settled(settled) if settled.base.is_none() => Some({
                    settled.base = Some(base_of(payload)?);
                    true
                }),
                _ => None,
            },
            COORDINATOR if id == 0 && summary.coordinator.is_none() && summary.objects.is_empty() => {
                summary.coordinator = Some(Neighbour::checked(payload)?);
                Some(true)
            }
            APPLIES if id != 0 && payload.is_empty() && summary.applies.is_none() && summary.objects.is_empty() => {
                summary.applies = Some(id);
                Some(summary.coordinator.is_some())
            }
            PART if id == 0 && summary.objects.is_empty() => {
                summary.parts.push(Neighbour::checked(payload)?);
                Some(true)
            }
            CONTENT if self.open == Some(id) => {
                let is_made = matches!(summary.objects.get(&id), Some(Known::Born(_)));
                let content = summary.contents.get_mut(&id)?;
                let RawContent { mtime_ns, allocated } = RawContent::read_from_bytes(payload).ok()?;
                let file = ContentFile { mtime_ns: mtime_ns.get(), allocated: allocated.get() };
                let is_first = content.space.is_empty() && content.pieces.is_empty();
                Some(is_made && is_first && content.limit == 0 && content.file.replace(file).is_none())
            }
            CREATE if is_new => {
                let birth = Known::Born(Arc::new(Birth::checked(payload)?));
                Some(summary.objects.insert(id, birth).is_none())
            }
            NAME => {
                let Value { before, after, name } = Value::checked(payload)?;
                let name: Name = (id, name.into());
                let follows = summary.names().last_key_value().is_none_or(|(last, _)| *last < name);
                summary.add_name(name, before, after);
                Some(follows)
            }
            ATTRIBUTES => {
                let attributes = Attributes::checked(payload)?;
                let set = (Set::of_attributes(&attributes), attributes.mtime_ns);
                Some(summary.sets.insert(id, set).is_none())
            }
            LEFT => {
                let (path, left) = left::checked(payload)?;
                Some(id != 0 && summary.left.insert((id, path), left).is_none())
            }
            XATTR => {
                let (set, _) = summary.sets.get_mut(&id)?;
                set.put(&Set::of_xattr(Xattr::checked(payload)?));
                Some(true)
            }
            _ => None,
        }
        .filter(|sound| *sound)
        .map(drop)
    }

    fn truncate(&mut self, id: u64, length: u64) -> Option<()> {
        match self.open.take() {
            None => {
                let is_new = self.summary.contents.last_key_value().is_none_or(|(last, _)| *last < id);
                self.summary.contents.insert(id, Content { limit: length, ..Content::default() });
                self.open = Some(id);
                is_new.then_some(())
            }
            Some(open) => {
                self.summary.contents.get_mut(&open)?.size = length;
                (open == id).then_some(())
            }
        }
    }

    fn space(&mut self, id: u64, offset: u64, payload: &[u8]) -> Option<()> {
        let Space { length, how } = Space::checked(payload)?;
        let content = self.summary.contents.get_mut(&self.open.filter(|open| *open == id)?)?;
        let end = offset.checked_add(length).filter(|end| *end <= LARGEST_FILE)?;
        let is_whole = offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
        let is_net = matches!(how, Fallocate::Punch | Fallocate::Zero | Fallocate::Keep) && content.pieces.is_empty();
        // What touches the one before it is something else.
        let follows =
            content.space.last().is_none_or(|(last, other)| last.end < offset || (last.end == offset && *other != how));
        content.space.push((offset..end, how));
        (is_whole && is_net && follows).then_some(())
    }

    fn write(&mut self, id: u64, piece: Piece) -> Option<()> {
        let content = self.summary.contents.get_mut(&self.open.filter(|open| *open == id)?)?;
        let follows = content.pieces.last().is_none_or(|last| last.end() <= piece.offset);
        let has_place = |last: u64| {
            piece.position >= HEAD as u64
                && piece.position.checked_add(u64::from(piece.length)).is_some_and(|end| end <= last)
        };
        let has_place = |last: u64| match content.file {
            Some(_) => (piece.position, piece.checksum) == (0, 0),
            None => has_place(last),
        };
        let fits = piece.offset.checked_add(u64::from(piece.length)).is_some_and(|end| end <= LARGEST_FILE)
            && self.end.is_none_or(has_place);
        content.pieces.push(piece);
        (follows && fits && piece.length > 0 && u64::from(piece.length) <= LONGEST_PIECE).then_some(())
    }

    /// Whether it speaks of nothing that it does not tell of.
    fn is_sound(&self) -> bool {
        let summary = &self.summary;
        if self.open.is_some() {
            return false;
        }
        let is_known = |id: u64| summary.objects.contains_key(&id);
        let names = summary.names().iter().all(|((dir, _), &(before, after))| {
            (*dir == ROOT || is_known(*dir))
                && summary.kind(*dir) == Kind::Directory
                && before != after
                && (before == 0 || summary.settled(before).is_some())
                && (after == 0 || is_known(after))
        });
        let regular = |id: &u64| is_known(*id) && summary.kind(*id) == Kind::Regular;
        let longest = |content: &Content| content.pieces.last().is_none_or(|last| last.end() <= content.size);
        names
            && summary.contents.iter().all(|(id, content)| regular(id) && longest(content))
            && summary.sets.keys().all(|id| is_known(*id))
    }
}
