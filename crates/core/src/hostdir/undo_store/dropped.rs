//! How kept undo goes, and what stays of it: see invariants 6 and 9 to 11 of [`undo_store`](super).

use wholly_changes::{FOLDER, Head, LONGEST_NOTE, ParkedFile, id_name};
use wholly_host::{host_error, is_there};
use wholly_vfs::Rename;

use super::folder::{RESERVE, dropped_path};
use super::{KEPT, KeptUndo, LINE, described, ids, kept_path, line_path, made_path};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::guest::is_temporary;
use crate::hostdir::names::names_in;
use crate::hostdir::parked::undo_path;
use crate::site;

/// Bytes of a reserve for records and folders.
const RESERVED: u64 = 256 << 10;

/// The most bytes of a kept undo that a reserve is made for.
const MOST_RESERVED: u64 = 16 << 20;

/// The most lines that a store has.
const MOST_LINES: usize = 100;

/// Why undo went that something else needed the space of.
const FOR_SPACE: &str = "its space was needed";

/// Undo is dropped for others while less than one part in so many of a file system is free.
const LEFT_FREE: u64 = 20;

/// What fits into so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

impl StoreInner {
    /// Makes a group final whose undo is not kept.
    pub(super) fn end_undo(&self, id: u64) -> Result<()> {
        match self.takes_whole(id)? {
            true => self.drop_undo(id),
            false => self.remove_undo(id),
        }
    }

    /// Makes a group final whose undo is not kept. What hangs on an anchor for it goes now, or later.
    pub(in crate::hostdir) fn drop_undo(&self, id: u64) -> Result<()> {
        self.drop_file(&undo_path(id), id)?;
        self.drop_what_can_go(id)
    }

    /// Whether there is a line of a group.
    pub(in crate::hostdir) fn has_line(&self, id: u64) -> Result<bool> {
        is_there(&*self.host, &line_path(id))
    }

    /// Removes the line of a group.
    pub(in crate::hostdir) fn unlink_line(&self, id: u64) -> Result<()> {
        self.unlink_parked(&line_path(id))
    }

    /// Writes a line of a group, by the head of its undo, unless the folder has nothing else and goes, or the host does
    /// not let it be written.
    pub(super) fn write_line(&self, head: &Head, why: &str) -> Result<()> {
        let write = || {
            let names = names_in(&*self.host, FOLDER)?;
            let own = id_name(head.id);
            let is_other = |name: &Vec<u8>| !name.starts_with(&own) && !name.ends_with(LINE);
            let is_kept = ids(&*self.host, KEPT)?.iter().any(|id| *id != head.id);
            if is_temporary(&*self.host)? && !is_kept && !names.iter().any(is_other) {
                return Ok(());
            }
            // An error may name a long path.
            let why = cut(why, LONGEST_NOTE / 2);
            let note = format!("{}\0{why}", cut(&head.note, LONGEST_NOTE - why.len() - 1));
            self.write_beside(&line_path(head.id), head, &note, head.parked_ns, |_| Ok(true)).map(drop)?;
            let lines = ids(&*self.host, LINE)?;
            lines[..lines.len().saturating_sub(MOST_LINES)]
                .iter()
                .try_for_each(|id| self.unlink_parked(&line_path(*id)))
        };
        match write() {
            Err(error @ Error::Poisoned(_)) => Err(error),
            // Invariant 11.
            _ => Ok(()),
        }
    }

    /// Removes a kept undo, and writes a line that says why. When this returns, the undo does not come back after a
    /// crash.
    pub(in crate::hostdir) fn drop_kept(&self, id: u64, why: &str) -> Result<()> {
        let head = ParkedFile::head_of(&*self.host, &kept_path(&*self.host, id)).ok().map(|(head, _)| head);
        let write = || head.as_ref().map_or(Ok(()), |head| self.write_line(head, why));
        write()?;
        self.drop_file(&kept_path(&*self.host, id), id)?;
        self.drop_what_can_go(id)?;
        // There may have been no space before.
        if self.has_line(id)? { Ok(()) } else { write() }
    }

    /// Invariant 6.
    fn drop_file(&self, path: &[u8], id: u64) -> Result<()> {
        let dropped = dropped_path(id);
        self.host
            .rename(site::UNDO_RENAME, path, &dropped, Rename::Replace)
            .map_err(|error| host_error(error, path))?;
        self.sync_parked(site::UNDO_END)
    }

    /// Removes what is dropped. What the host does not remove stays held.
    pub(super) fn drop_what_can_go(&self, id: u64) -> Result<()> {
        match self.drop_rest(id) {
            Err(error @ Error::Poisoned(_)) => Err(error),
            Err(_) => {
                if let Ok((_, undo)) = self.outline(id, &dropped_path(id)) {
                    self.names.with(|state| state.held.extend(undo.lost()));
                }
                self.kept.left.lock().unwrap().push(id);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Tries again to remove what is dropped, and was left.
    pub(in crate::hostdir) fn drop_what_was_left(&self) -> Result<()> {
        let left = std::mem::take(&mut *self.kept.left.lock().unwrap());
        left.into_iter().try_for_each(|id| self.drop_what_can_go(id))
    }

    fn drop_rest(&self, id: u64) -> Result<()> {
        let dropped = dropped_path(id);
        let undo = match self.outline(id, &dropped) {
            Ok((_, undo)) => Some(undo),
            // What cannot be read holds nothing that could be told; the anchors go at the next open.
            Err(Error::Corrupt { .. } | Error::NotFound(_) | Error::Unsupported(_)) => None,
            Err(error) => return Err(error),
        };
        if let Some(undo) = undo {
            for id in undo.lost() {
                self.names.with(|state| state.held.remove(id));
                self.remove_held(id)?;
                self.names.with(|state| {
                    state.whole.remove(&id);
                    state.fall(id);
                });
            }
        }
        self.unlink_parked(&made_path(&*self.host, id))?;
        self.unlink_parked(&dropped)?;
        if self.has_taken(id)? {
            self.sync_parked(site::UNDO_END)?;
        }
        self.unlink_taken(id)
    }

    /// Invariant 9: a group is final. What the host does not remove stays.
    pub(super) fn drop_what_is_due(&self) -> Result<()> {
        let host = &*self.host;
        let now = host.now_ns();
        // What cannot be read is named where they are listed, and does not go by itself.
        let is_expired = |path: &[u8]| ParkedFile::head_of(host, path).is_ok_and(|(head, _)| head.expires_ns <= now);
        let drop = || {
            // The oldest expire first.
            let mut lines = ids(host, LINE)?.into_iter().take_while(|id| is_expired(&line_path(*id)));
            lines.try_for_each(|id| self.unlink_line(id))?;
            let newest = ids(host, KEPT)?.last().copied();
            for id in self.droppable()? {
                let space = host.space()?;
                if is_expired(&kept_path(&*self.host, id)) {
                    self.drop_kept(id, "it has expired")?;
                } else if space.usable_blocks < space.blocks / LEFT_FREE && newest != Some(id) {
                    self.drop_for_space(id)?;
                }
            }
            Ok(())
        };
        match drop() {
            Err(error @ Error::Poisoned(_)) => Err(error),
            _ => Ok(()),
        }
    }

    /// The kept undo that may go, the oldest first.
    fn droppable(&self) -> Result<Vec<u64>> {
        let applied = self.parked.applied_ids();
        let mut all = ids(&*self.host, KEPT)?;
        let at_work = all.iter().position(|id| self.parked.is_at_work(*id)).unwrap_or(all.len());
        all.truncate(at_work);
        all.retain(|id| !applied.contains(id));
        Ok(all)
    }

    fn drop_for_space(&self, id: u64) -> Result<()> {
        let read = self.outline(id, &kept_path(&*self.host, id)).ok();
        let bytes = ParkedFile::head_of(&*self.host, &made_path(&*self.host, id)).map_or(0, |(head, _)| head.bytes);
        self.drop_kept(id, FOR_SPACE)?;
        if let Some((head, undo)) = read {
            let gone = KeptUndo { changes: undo.changes(), bytes, gone: Some(FOR_SPACE.into()), ..described(&head) };
            self.kept.untold.lock().unwrap().push(gone);
        }
        Ok(())
    }

    /// Drops the oldest undo that is kept, for want of space. Whether it did.
    pub(in crate::hostdir) fn drop_oldest(&self) -> Result<bool> {
        match self.droppable()?.first() {
            Some(&id) => match self.drop_for_space(id) {
                Err(error @ Error::Poisoned(_)) => Err(error),
                // At a quota a host may refuse that, too.
                dropped => Ok(dropped.is_ok()),
            },
            None => Ok(false),
        }
    }

    /// Invariant 10: sets space aside for what takes any of the groups back; what is left of others goes.
    pub(in crate::hostdir) fn keep_reserve(&self) -> Result<()> {
        let host = &*self.host;
        let size = |path: &[u8]| host.stat(path).map_or(0, |stat| stat.allocated);
        let of_one = |id: u64| {
            size(&kept_path(&*self.host, id)).saturating_add(size(&made_path(&*self.host, id))).min(MOST_RESERVED)
        };
        let Some(most) = ids(host, KEPT)?.into_iter().map(of_one).max() else {
            self.release_reserve();
            return Ok(());
        };
        let bytes = RESERVED + 2 * most;
        if size(RESERVE) < bytes {
            self.release_reserve();
            let made = host.create(site::ROOM_SPARE, RESERVE, 0o600);
            if made.and_then(|file| file.allocate(site::ROOM_SPARE, 0, bytes)).is_err() {
                self.release_reserve();
            }
        }
        Ok(())
    }

    /// Removes the reserve. The removal need not be durable: an open removes a reserve where no undo is kept.
    pub(in crate::hostdir) fn release_reserve(&self) {
        _ = self.host.unlink(site::ROOM_RELEASE, RESERVE);
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_between_letters() {
        assert_eq!([cut("aß", 5), cut("aß", 2), cut("aß", 1), cut("", 0)], ["aß", "a", "a", ""]);
    }
}
