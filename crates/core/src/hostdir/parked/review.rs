//! What people see of a group: its changes by path, and the bytes of either side.

use std::sync::Arc;

use wholly_changes::{Change, Kind, Known, ParkedFile, Piece, Side, Summary, changes_of};

use super::super::StoreInner;
use super::super::names::show;
use super::super::running::Running;
use super::Finder;
use crate::error::{Error, Result};
use sync::Mutex;

/// What a group would change: a running group as of now ([`Group::review`](crate::Group::review)), or a parked group
/// ([`Store::review`](crate::Store::review)). It keeps the store open, as a file does.
pub struct Review<'g> {
    changes: Vec<Change>,
    store: Arc<StoreInner>,
    source: Source<'g>,
}

/// Where the bytes are that a group writes.
enum Source<'g> {
    Group(&'g Running, Box<Summary>),
    Parked(Box<ParkedFile>, Box<Mutex<Looked>>),
}

/// What was looked for, and the piece that was read last, with the object that it is of.
struct Looked {
    finder: Finder,
    last: Option<(u64, Piece, Vec<u8>)>,
}

impl<'g> Review<'g> {
    pub(in crate::hostdir) fn of_group(running: &'g Running, summary: Summary) -> Self {
        let store = running.store.clone();
        let mut changes = changes_of(&summary);
        for change in &mut changes {
            change.whole =
                [Side::Before, Side::After].into_iter().map(|side| change.id_on(side)).any(|id| running.is_whole(id));
            // What was held has its bytes already.
            let id = change.id_on(Side::After);
            if let Some(after) = change.after.as_mut().filter(|_| !running.is_made(id) && summary.settled(id).is_none())
                && let Ok(stat) = running.stat_of(id)
            {
                after.size = stat.size;
            }
        }
        Review { changes, store, source: Source::Group(running, Box::new(summary)) }
    }

    pub(in crate::hostdir) fn of_parked(store: &Arc<StoreInner>, file: ParkedFile) -> Self {
        let looked = Looked { finder: Finder::new(store.clone()), last: None };
        Review {
            changes: changes_of(&file.summary),
            store: store.clone(),
            source: Source::Parked(Box::new(file), Box::new(Mutex::new(looked))),
        }
    }

    /// Returns the changes, sorted by path.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Reads up to `buf.len()` bytes of a file, or of the target of a symbolic link, on one side of a change. Returns
    /// how many; fewer only at the end.
    ///
    /// For a parked group, [`Side::Before`] is today's committed state. It is the state from when the group was parked,
    /// unless [`changed_meanwhile`](crate::Store::changed_meanwhile) reports a difference.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no object on that side, or no longer; [`Error::Invalid`] for an object without
    /// bytes; [`Error::Corrupt`].
    pub fn read(&self, change: &Change, side: Side, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let used = self.store.enter().map_err(|why| self.store.refused(why))?;
        let result = self.read_side(change, side, offset, buf);
        self.store.leave(used);
        result
    }

    fn read_side(&self, change: &Change, side: Side, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _caller = self.store.names.caller();
        let id = change.id_on(side);
        let summary = match &self.source {
            Source::Group(_, summary) => summary,
            Source::Parked(file, _) => &file.summary,
        };
        let nothing = || Error::NotFound(change.path.display().to_string());
        let known = summary.objects.get(&id).ok_or_else(nothing)?;
        match (summary.kind(id), known, side) {
            (Kind::Symlink, Known::Born(birth), Side::After) => return Ok(copied(&birth.target, offset, buf)),
            (Kind::Regular | Kind::Symlink, Known::Settled(_), _) | (Kind::Regular, _, Side::After) => {}
            (_, Known::Born(_), Side::Before) => return Err(nothing()),
            _ => return Err(Error::invalid(format!("{} holds no bytes", change.path.display()))),
        }
        match (&self.source, side) {
            (Source::Group(running, _), Side::After) if summary.kind(id) == Kind::Regular => {
                let file = self.store.file_of(b"", &running.object(id)?)?;
                running.read(&file, offset, buf)
            }
            (Source::Group(..), _) => self.committed(id, offset, buf),
            (Source::Parked(file, looked), Side::After) => {
                self.parked_bytes(file, &mut looked.lock().unwrap(), id, offset, buf)
            }
            (Source::Parked(file, looked), Side::Before) => {
                let now = looked.lock().unwrap().finder.find(&file.summary, id)?.ok_or_else(nothing)?;
                self.committed(now, offset, buf)
            }
        }
    }

    /// What everybody sees of an object.
    fn committed(&self, id: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let looking = Running::looking(self.store.clone());
        let found = looking.object(id)?;
        if found.kind == Kind::Symlink {
            return Ok(copied(&looking.read_link_of(id)?, offset, buf));
        }
        let file = looking.open_object(id, false)?;
        self.store.read_visible(&file, offset, buf)
    }

    /// The bytes that a parked group leaves in a file.
    fn parked_bytes(
        &self,
        file: &ParkedFile,
        looked: &mut Looked,
        id: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let settled = match file.summary.objects.get(&id) {
            Some(Known::Settled(_)) => {
                let gone = || Error::NotFound(show(&file.summary.path_before(id).unwrap_or_default()));
                Some(looked.finder.find(&file.summary, id)?.ok_or_else(gone)?)
            }
            _ => None,
        };
        let Some(content) = file.summary.contents.get(&id) else {
            return settled.map_or(Ok(0), |now| self.committed(now, offset, buf));
        };
        let length = (buf.len() as u64).min(content.size.saturating_sub(offset)) as usize;
        let buf = &mut buf[..length];
        buf.fill(0);
        let kept = content.limit.saturating_sub(offset).min(length as u64) as usize;
        if let Some(now) = settled.filter(|_| kept > 0) {
            self.committed(now, offset, &mut buf[..kept])?;
        }
        let end = offset + length as u64;
        for (range, _) in content.space.iter().filter(|(_, how)| how.zeroes()) {
            let (from, to) = (range.start.clamp(offset, end), range.end.clamp(offset, end));
            buf[(from - offset) as usize..(to - offset) as usize].fill(0);
        }
        for piece in content.in_range(offset, end) {
            if looked.last.as_ref().is_none_or(|(of, last, _)| (*of, last) != (id, piece)) {
                looked.last = Some((id, *piece, file.written(&*self.store.host, id)?.piece(piece)?));
            }
            let bytes = &looked.last.as_ref().expect("it was just read").2;
            let (from, to) = (piece.offset.max(offset), piece.end().min(end));
            let part = &bytes[(from - piece.offset) as usize..(to - piece.offset) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        Ok(length)
    }
}

impl std::fmt::Debug for Review<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Review").field("changes", &self.changes).finish_non_exhaustive()
    }
}

/// Copies what lies from `offset` on.
fn copied(bytes: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let from = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
    let length = buf.len().min(bytes.len() - from);
    buf[..length].copy_from_slice(&bytes[from..from + length]);
    length
}
