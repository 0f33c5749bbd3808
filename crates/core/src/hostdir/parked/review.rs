//! What people see of a group: its changes by path, and the bytes of either side.

use std::sync::Arc;

use wholly_changes::{BytesAt, Change, Kind, ParkedBytes, ParkedFile, Side, Summary, bytes_at, changes_of, copied};

use super::super::StoreInner;
use super::super::running::Running;
use super::Finder;
use crate::error::Result;
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
    Parked(Box<Mutex<(ParkedBytes, Finder)>>),
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
        let changes = changes_of(&file.summary);
        let parked = Mutex::new((ParkedBytes::new(file), Finder::new(store.clone())));
        Review { changes, store: store.clone(), source: Source::Parked(Box::new(parked)) }
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
    /// [`NotFound`](crate::Error::NotFound) if there is no object on that side, or no longer;
    /// [`Invalid`](crate::Error::Invalid) for an object without bytes; [`Corrupt`](crate::Error::Corrupt).
    pub fn read(&self, change: &Change, side: Side, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let used = self.store.enter().map_err(|why| self.store.refused(why))?;
        let result = self.read_side(change, side, offset, buf);
        self.store.leave(used);
        result
    }

    fn read_side(&self, change: &Change, side: Side, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _caller = self.store.names.caller();
        match &self.source {
            Source::Group(running, summary) => match bytes_at(summary, change, side)? {
                BytesAt::Target(target) => Ok(copied(target, offset, buf)),
                BytesAt::Object(id) if side == Side::After && summary.kind(id) == Kind::Regular => {
                    let file = self.store.file_of(b"", &running.object(id)?)?;
                    running.read(&file, offset, buf)
                }
                BytesAt::Object(id) => self.store.read_committed(id, offset, buf),
            },
            Source::Parked(parked) => {
                let (bytes, finder) = &mut *parked.lock().unwrap();
                bytes.read((&*self.store.host, finder), (change, side), offset, buf)
            }
        }
    }
}

impl std::fmt::Debug for Review<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Review").field("changes", &self.changes).finish_non_exhaustive()
    }
}
