//! Undo that is kept: what takes back a group after it has become final.
//!
//! A group that is written back as part of its commit has an undo anyway (`running/undo.rs`), which goes once the group
//! is final. Of a group that asks for it ([`KeepUndo`]), the undo stays instead.
//!
//! # Terms
//!
//! - *kept undo*: two files in a [folder] of their own. `<id>.kept` is the undo of group `id` as it was. `<id>.made`
//!   has the objects that the group left, as they lie on the host.
//! - *held*: an object that a kept undo gives a name again. It lies on an anchor or in that folder, under the id that
//!   it had in the group, which no other object of the store ever has.
//! - *take back*: commit a group that does the contrary of the one whose undo is kept (`running/taken_back.rs`).
//! - *dropped*: a kept undo that is being removed: `<id>.dropped`.
//! - *reserve*: a file that holds the space that it takes to take a group back, until that is done.
//! - *line*: what is left of a group that cannot be taken back, so that nobody takes an older one for the last:
//!   `<id>.line`, a head without changes. Its note is that of the group, a zero byte, and why.
//!
//! # Invariants
//!
//! 1. One rename, of `<id>.undo` to `<id>.kept`, makes the group final and its undo kept. What else that needs is
//!    durable before: `<id>.made`, and what is held. A crash leaves a group that is to be undone, or a final one with
//!    all of its undo. Of a part of a joint commit all that is durable before the decision, and a recovery that finds
//!    it decided does the rename.
//! 2. Keeping an undo is no part of the group: where it cannot be kept, for want of space or by its bound, the group is
//!    final all the same, without one.
//! 3. What is held no checkpoint and no open removes; and what loses all its names while it is held goes back to its
//!    anchor: a group that takes back and is undone leaves the kept undo as it was.
//! 4. A group, or a [part] of it, is taken back wholly or not at all, and unless the caller wants it otherwise only if
//!    all that it left is as it left it. That is known by what was noted before it commits (`running/left.rs`): by
//!    content, attributes and names. Of what is not noted, identity, size and times tell; there a state that an older
//!    group left and that taking back a younger one has restored counts as the same: the `.made` of that one tells so.
//!    Whatever else another program has done is not touched. Where the caller wants it replaced, it is kept for the
//!    redo, or the group is undone.
//! 5. A group that takes back another has its own undo kept: to take it back is to do the first one again. The kept
//!    undo that it has used goes with an Applied entry, as a parked group does.
//! 6. Nothing that is held is removed before its kept undo has the name of a dropped one, durably. An open goes on with
//!    what is dropped. What the host does not remove stays held, and a later pass or open tries again.
//! 7. A group that is final with its undo kept is never written back again: that would give its objects other times of
//!    change. Its `.made` tells how far the log is in the directory, and an open does not replay what is below that.
//!    The tail follows once `.kept` is durable.
//! 8. A group that is undone gives its objects other times of change, too. While any undo is kept, that is written back
//!    alone, and then the `.made` of the undone group, without a `.kept`, tells which states are the same. It survives
//!    before the undone group's `.undo` goes, and stays as long as any undo is kept.
//! 9. Kept undo goes only by [`discard`](crate::Store::discard), or with a group that commits: what has expired; the
//!    oldest, where something meets the end of the space or a quota; and the oldest but for the newest, while less than
//!    a twentieth of the file system is free. What is being taken back stays, and so does all that is newer, which the
//!    comparison needs. To look at a store, or to open it, drops nothing.
//! 10. To take a group back takes no space that nobody has set aside, unless the group has written over bytes in place:
//!     the reserve goes before the commit. Where the host had no space for a reserve, there is none.
//! 11. A line is no part of a group: where the host refuses it, there is none, and the group ends all the same. Lines
//!     alone keep no folder.
//!
//! ```text
//!  running ──commit──► provisional ──written back──► final, undo kept ──taken back──► gone, in its place that of the
//!                          │                             │                            group that took it back
//!                          `──refused, crash──► undone   `──expired, no space, discarded──► dropped ──► a line
//! ```
//!
//! The cost is that of what the group has changed: a `stat` and some 250 bytes for each object, what is read for the
//! checksums, three syncs. In memory are
//! ids, and a part of the objects at a time. To take back a group takes memory for all of it: of one that changes more
//! than [`MOST_NAMES`] names no undo is kept.

mod dropped;
mod folder;
mod part;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use wholly_changes::records::Baseline;
use wholly_changes::{
    Base, Head, Ids, Kind, Known, LONGEST_NOTE, Neighbour, Outline, ParkedFile, ROOT, Settled, Summary, UNFINISHED,
    Unreadable, Writing, id_name, id_of, join,
};
use wholly_host::{HostFs, host_error, is_there};
use wholly_vfs::{Inode, Rename, Stat};

pub(super) use folder::{anchor_path, find_held, held_path, is_held_or_tag, kept_path, made_path};
use folder::{files, ids, line_path};
pub(super) use part::{ReadUndo, Taken};
use part::{TAKEN, outline_of, part_named};

use super::StoreInner;
use super::names::{ANCHOR_FOLDER, ANCHORS, Object, UNDO_FOLDER, names_in};
use super::parked::undo_path;
use super::parked::{Mismatch, ParkedId};
use crate::error::{Error, Result};
use crate::site;
use sync::{AtomicU8, Mutex, Ordering};

/// After the id in the name of an undo that is kept.
const KEPT: &[u8] = b".kept";
/// The same, of what the group left.
const MADE: &[u8] = b".made";
/// The same, of what is being removed.
const DROPPED: &[u8] = b".dropped";
/// The same, of a line.
const LINE: &[u8] = b".line";

/// The most names of a group whose undo is kept: all of it is in memory when it is taken back, some 600 bytes each. A
/// directory that it has adopted with all that is in it is one name, but for as many notes of what is in such ones.
pub(super) const MOST_NAMES: u32 = 1 << 17;

/// The objects that a group left that are in memory at a time, besides the directories that they are in.
const AT_A_TIME: usize = 1024;

/// How many states of one object are taken for the same, one after the other.
const LONGEST_CHAIN: usize = 1024;

/// Asks for the undo of a group to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepUndo {
    /// What the group was for, in up to [`LONGEST_NOTE`](crate::LONGEST_NOTE) bytes.
    pub note: String,
    /// After this time it is dropped.
    pub expires: Duration,
    /// The most bytes of disk space that it may take. Where it would take more, it is not kept. With 0 none is kept,
    /// and the list of undos says so.
    pub most_bytes: u64,
}

/// A group whose undo is kept, or was to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptUndo {
    /// The id of the group.
    pub id: ParkedId,
    /// The note with which it is kept.
    pub note: String,
    /// When the group was committed, in nanoseconds since 1970.
    pub committed_ns: i64,
    /// When it expires, in nanoseconds since 1970: the next group that commits drops it then.
    pub expires_ns: i64,
    /// How many names and objects the group has changed.
    pub changes: u64,
    /// Bytes of disk space that it takes.
    pub bytes: u64,
    /// Why the group cannot be taken back, where its undo is not kept, or no longer. `changes` and `bytes` are 0 then.
    pub gone: Option<String>,
    /// Why it cannot be read. Only `id` is valid then.
    pub unreadable: Option<Unreadable>,
}

/// What has become of the undo of the group that was committed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoFate {
    /// It is kept, under this id.
    Kept(ParkedId),
    /// It is not, because of this.
    NotKept(String),
}

/// What of a group is taken back, and what becomes of what others have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undoing {
    /// Takes back what is at these paths, or below, and what that needs: the directories that it is in, the other names
    /// of the same objects. All of the group where none are given.
    pub paths: Vec<PathBuf>,
    /// What becomes of what has been changed since.
    pub changed: IfChanged,
}

/// What becomes of what was changed since the group that is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfChanged {
    /// Nothing is taken back.
    #[default]
    Refuse,
    /// It stays, with all its names, and so does what would need these names, and each directory that has something of
    /// others in it. The rest is taken back.
    Skip,
    /// It is replaced, and the undo of this undo has it: where that cannot be kept, nothing is taken back.
    Replace,
}

/// What was taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Whether anything was: `false` where the caller has decided against it.
    pub is_done: bool,
    /// Whether only a part is: the rest stays kept under the group's id.
    pub is_part: bool,
    /// What stays because it was changed since.
    pub left: Vec<Mismatch>,
    /// What is not as the group left it, and does not matter: files that were written again with the same content, or
    /// have got another name.
    pub notes: Vec<Mismatch>,
}

/// A group that asks for its undo to be kept.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    pub keep: KeepUndo,
    /// Of objects, by their ids in the store, the state before that is restored.
    pub restores: HashMap<u64, Baseline>,
    /// The same for the group that does this one again, once it is taken back.
    pub restored: HashMap<u64, Baseline>,
    /// The other groups of the joint commit that it is part of.
    pub parts: Vec<Neighbour>,
    /// Whether it takes back another group.
    pub takes_back: bool,
    /// Whether it is refused where its undo cannot be kept: it replaces what others have made.
    pub must_keep: bool,
}

impl Keeping {
    /// # Errors
    /// [`Error::Invalid`] for a note that is too long.
    pub fn new(keep: KeepUndo) -> Result<Keeping> {
        if keep.note.len() > LONGEST_NOTE || keep.note.contains('\0') {
            return Err(Error::invalid(format!("a note has at most {LONGEST_NOTE} bytes, none of them zero")));
        }
        let (restores, restored) = Default::default();
        Ok(Keeping { keep, restores, restored, parts: Vec::new(), takes_back: false, must_keep: false })
    }

    /// When it is dropped, if it is kept from now on.
    pub fn expires_ns(&self, now: i64) -> i64 {
        let keep = i64::try_from(self.keep.expires.as_nanos()).unwrap_or(i64::MAX);
        now.saturating_add(keep).max(1)
    }
}

/// What an open store knows of undo that is kept.
#[derive(Default)]
pub(crate) struct KeptUndos {
    /// The group that is being committed and asks for its undo to be kept.
    keeping: Mutex<Option<(u64, Keeping)>>,
    last: Mutex<Option<UndoFate>>,
    /// What is held by a group whose undo is ready to be kept, once that is decided; or why it will not be.
    ready: Mutex<Option<(u64, Result<Ids, String>)>>,
    /// What the open has found: the groups of the log below this are in the directory.
    home_below: u64,
    /// What is dropped, and the host has not removed so far.
    left: Mutex<Vec<u64>>,
    /// Undo that was dropped for want of space since the open, and that no caller has asked for yet.
    untold: Mutex<Vec<KeptUndo>>,
    /// 1 while a pass writes back what undoes a group.
    restores: AtomicU8,
    /// 1 once the folder is known to be there, durably.
    has_folder: AtomicU8,
}

impl KeptUndos {
    /// Of a store whose groups below `home_below` are in the directory.
    pub fn new(home_below: u64) -> KeptUndos {
        KeptUndos { home_below, ..KeptUndos::default() }
    }

    /// A pass that writes back what undoes a group, with no other group after that.
    pub fn restoring<T>(&self, pass: impl FnOnce() -> T) -> T {
        self.restores.store(1, Ordering::Relaxed);
        let done = pass();
        self.restores.store(0, Ordering::Relaxed);
        done
    }

    /// The group asks for its undo to be kept once it is final; `None` once it has ended.
    pub fn is_to_keep(&self, keeping: Option<(u64, Keeping)>) {
        *self.keeping.lock().unwrap() = keeping;
    }

    /// Whether the last one that was asked for was that of the group, and is kept.
    pub fn has_kept(&self, id: u64) -> bool {
        *self.last.lock().unwrap() == Some(UndoFate::Kept(ParkedId(id)))
    }

    /// What was dropped for want of space, once.
    pub fn take_untold(&self) -> Vec<KeptUndo> {
        std::mem::take(&mut *self.untold.lock().unwrap())
    }

    /// What has become of the last one that was asked for.
    pub fn last(&self) -> Option<UndoFate> {
        self.last.lock().unwrap().clone()
    }
}

/// The group that a file is about, if its name ends so.
fn named(name: &[u8], end: &[u8]) -> Option<u64> {
    name.strip_suffix(end).map(id_of).filter(|&id| id != 0 && [&id_name(id), end].concat() == name)
}

/// The group to whose kept undo a file belongs, by its name.
pub(super) fn of_kept(name: &[u8]) -> Option<u64> {
    let of_part = || part_named(name).map(|(id, _)| id);
    [KEPT, MADE, DROPPED, LINE, TAKEN].into_iter().find_map(|end| named(name, end)).or_else(of_part)
}

/// Whether a file only tells of a group, and is of no use where no undo is kept.
pub(super) fn only_tells(name: &[u8]) -> bool {
    [MADE, LINE, TAKEN].into_iter().any(|end| named(name, end).is_some()) || part_named(name).is_some()
}

/// Whether any undo is kept.
pub(super) fn is_any_kept(host: &dyn HostFs) -> Result<bool> {
    Ok(files(host)?.iter().any(|name| named(name, KEPT).is_some()))
}

/// What a group takes all names from.
pub(super) fn lost(undo: &Summary) -> impl Iterator<Item = u64> + '_ {
    undo.moved().iter().filter(|(_, moves)| moves.gained.is_empty()).map(|(id, _)| *id)
}

/// The kept undo of a store with its lines, the oldest first.
pub fn list(host: &dyn HostFs) -> Result<Vec<KeptUndo>> {
    let (kept, lines) = (ids(host, KEPT)?, ids(host, LINE)?);
    let mut all = Vec::new();
    for id in kept.iter().copied() {
        let read = outline_of(host, id).and_then(|undo| Ok((undo, ParkedFile::head_of(host, &made_path(host, id))?.0)));
        match read {
            Ok(((head, undo), made)) => {
                all.push(KeptUndo { changes: undo.changes(), bytes: made.bytes, ..described(&head) });
            }
            Err(Error::NotFound(_)) if !is_there(host, &kept_path(host, id))? => {}
            Err(error) => all.push(unreadable(id, error)?),
        }
    }
    // A crash may have left both, before the undo went.
    for id in lines.into_iter().filter(|id| kept.binary_search(id).is_err()) {
        match ParkedFile::head_of(host, &line_path(id)) {
            Ok((head, _)) => {
                let (note, why) = head.note.split_once('\0').unwrap_or((&head.note, ""));
                all.push(KeptUndo { note: note.into(), gone: Some(why.into()), ..described(&head) });
            }
            Err(Error::NotFound(_)) => {}
            Err(error) => all.push(unreadable(id, error)?),
        }
    }
    all.sort_by_key(|undo| undo.id.0);
    Ok(all)
}

fn described(head: &Head) -> KeptUndo {
    KeptUndo {
        id: ParkedId(head.id),
        note: head.note.clone(),
        committed_ns: head.parked_ns,
        expires_ns: head.expires_ns,
        changes: 0,
        bytes: 0,
        gone: None,
        unreadable: None,
    }
}

fn unreadable(id: u64, error: Error) -> Result<KeptUndo> {
    Ok(KeptUndo {
        id: ParkedId(id),
        note: String::new(),
        committed_ns: 0,
        expires_ns: 0,
        changes: 0,
        bytes: 0,
        gone: None,
        unreadable: Some(Unreadable::of(error)?),
    })
}

/// Invariant 7: below which sequence the groups of the log are in the directory. `end` is above all that there can be.
pub(super) fn home_below(host: &dyn HostFs, volume_id: &[u8; 16], end: u64) -> Result<u64> {
    let mut below = 0;
    for id in ids(host, MADE)? {
        // A group that is to be undone still.
        if is_there(host, &undo_path(id))? {
            continue;
        }
        match ParkedFile::head_of(host, &made_path(host, id)) {
            Ok((head, _)) if (head.volume_id, head.id) == (*volume_id, id) && head.home_below < end => {
                below = below.max(head.home_below);
            }
            Ok(_) | Err(Error::Corrupt { .. } | Error::NotFound(_) | Error::Unsupported(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(below)
}

impl StoreInner {
    /// The group is written back, durably, as are all below `target`: makes it final, with its undo kept if it has
    /// asked for that.
    pub(super) fn make_final(&self, id: u64, target: u64) -> Result<()> {
        let keeping = self.kept.keeping.lock().unwrap().take_if(|(group, _)| *group == id);
        let Some((_, keeping)) = keeping else { return self.end_undo(id) };
        let kept = match keeping.keep.most_bytes {
            0 => Ok(Err("none was to be kept".into())),
            _ => self.keep_undo(id, &keeping, target),
        };
        let fate = match kept {
            Ok(Ok(())) => UndoFate::Kept(ParkedId(id)),
            Err(error @ Error::Poisoned(_)) => return Err(error),
            failed if keeping.must_keep => {
                // The group is undone, unless a second try succeeds: that has to know what is to be kept.
                *self.kept.keeping.lock().unwrap() = Some((id, keeping));
                return Err(cannot_be_kept(&failed?.expect_err("what is kept is above")));
            }
            Ok(Err(why)) => UndoFate::NotKept(why),
            Err(error) => UndoFate::NotKept(error.to_string()),
        };
        if let UndoFate::NotKept(why) = &fate {
            // Invariant 2.
            if let Ok((head, _)) = ParkedFile::head_of(&*self.host, &undo_path(id)) {
                self.write_line(&head, why)?;
            }
            self.is_not_kept(id);
            self.end_undo(id)?;
        }
        *self.kept.last.lock().unwrap() = Some(fate);
        self.drop_what_is_due()?;
        self.keep_reserve()
    }

    /// A group that was to keep its undo is undone: what was made ready for that goes.
    pub(super) fn is_not_kept(&self, id: u64) {
        self.kept.ready.lock().unwrap().take_if(|(group, _)| *group == id);
        // A rename that failed may have had its effect: then it is kept.
        if matches!(is_there(&*self.host, &undo_path(id)), Ok(true)) {
            _ = self.unlink_parked(&made_path(&*self.host, id));
        }
    }

    /// Whether a group removes directories with everything in them.
    fn takes_whole(&self, id: u64) -> Result<bool> {
        if self.names.with(|state| state.whole.is_empty()) {
            return Ok(false);
        }
        let (_, undo) = Outline::read(&*self.host, &undo_path(id))?;
        Ok(self.names.with(|state| undo.lost().any(|id| state.whole.contains_key(&id))))
    }

    /// Keeps the undo of a group, which is final when this returns. In words, why it is not kept: nothing is final.
    fn keep_undo(&self, id: u64, keeping: &Keeping, target: u64) -> Result<Result<(), String>> {
        let ready = self.kept.ready.lock().unwrap().take_if(|(group, _)| *group == id);
        match ready.map_or_else(|| self.make_ready(id, keeping, target), |(_, ready)| Ok(ready))? {
            Err(why) => Ok(Err(why)),
            Ok(held) => self.keep_what_is_ready(id, held, target).map(Ok),
        }
    }

    /// The part of a joint commit is written back, and waits for the decision: all that its undo needs to be kept
    /// survives when this returns. So a crash after the decision leaves no part without an undo.
    ///
    /// # Errors
    /// Why it cannot be kept, if the group is refused then.
    pub(super) fn make_undo_ready(&self, id: u64) -> Result<()> {
        let Some((_, keeping)) = self.kept.keeping.lock().unwrap().clone().filter(|(group, _)| *group == id) else {
            return Ok(());
        };
        let provisional = self.parked.provisional.lock().unwrap().clone();
        let target = provisional.iter().find(|group| group.id == id).map_or(0, |group| group.sequence + 1);
        let ready = match keeping.keep.most_bytes {
            0 => return Ok(()),
            _ => self.make_ready(id, &keeping, target),
        };
        let ready = match ready {
            Ok(Ok(held)) => Ok(held),
            Err(error @ Error::Poisoned(_)) => return Err(error),
            failed if keeping.must_keep => return Err(cannot_be_kept(&failed?.expect_err("what is ready is above"))),
            Ok(Err(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        };
        *self.kept.ready.lock().unwrap() = Some((id, ready));
        Ok(())
    }

    /// A recovery has found a part of a joint commit that is decided: keeps its undo, if that was made ready.
    pub(super) fn keep_ready(&self, id: u64) -> Result<bool> {
        let made = made_path(&*self.host, id);
        let is_it = |head: Head| (head.volume_id, head.id) == (*self.log.volume_id(), id);
        let is_ready =
            is_there(&*self.host, &made)? && ParkedFile::head_of(&*self.host, &made).is_ok_and(|(head, _)| is_it(head));
        if is_ready {
            let lost = Outline::read(&*self.host, &undo_path(id))?.1.lost().collect();
            self.keep_what_is_ready(id, lost, 0)?;
        }
        Ok(is_ready)
    }

    /// Invariant 1: all else survives.
    fn keep_what_is_ready(&self, id: u64, held: Ids, target: u64) -> Result<()> {
        let kept = kept_path(&*self.host, id);
        let renamed = self.host.rename(site::UNDO_RENAME, &undo_path(id), &kept, Rename::Replace);
        renamed.map_err(|error| host_error(error, &kept))?;
        self.sync_folder_of(&kept, site::UNDO_END)?;
        self.names.with(|state| state.held.extend(held.iter()));
        self.put_away(held.iter(), target);
        Ok(())
    }

    /// Writes all that an undo needs to be kept, which survives when this returns. Gives what it holds; or in words why
    /// it is not kept.
    fn make_ready(&self, id: u64, keeping: &Keeping, target: u64) -> Result<Result<Ids, String>> {
        let host = &*self.host;
        let failed = |path: &[u8], error| host_error(error, path);
        let (Head { names, .. }, _) = ParkedFile::head_of(host, &undo_path(id))?;
        if names > MOST_NAMES {
            return Ok(Err(format!("it has changed {names} names, and {MOST_NAMES} are allowed")));
        }
        let (head, undo) = Outline::read(host, &undo_path(id))?;
        let stat = |path: &[u8]| host.stat(path).map_err(|error| failed(path, error));
        let mut bytes = stat(&undo_path(id))?.allocated;
        let mut held = Ids::default();
        for id in undo.lost() {
            let path = anchor_path(id);
            let stat = match host.stat(&path) {
                // It has another name, which the store knows.
                Err(error) if error.errno == Errno::NOENT => continue,
                stat => stat.map_err(|error| failed(&path, error))?,
            };
            held.insert(id);
            match Kind::of(stat.mode) {
                Kind::Directory => {
                    let known = self.names.with(|state| state.whole.get(&id)?.bytes);
                    bytes += known.map_or_else(|| self.bytes_below(&path), Ok)?;
                }
                // Another program may change the file by another name. Without a checksum nobody would notice.
                _ if stat.nlink > 1 && undo.is_changed(id) && !undo.is_summed(id) => {
                    return Ok(Err(
                        "it has written very much to a file of which it has removed one of several names".into()
                    ));
                }
                _ => bytes += stat.allocated,
            }
        }
        if bytes > keeping.keep.most_bytes {
            return Ok(Err(format!("it would take {bytes} bytes, and {} are allowed", keeping.keep.most_bytes)));
        }
        let add = |writing: &mut Writing| self.add_made(writing, &undo, &held, keeping);
        match self.write_made(&head, (bytes, target), add)? {
            true => Ok(Ok(held)),
            false => Ok(Err("another program has changed what the group has made".into())),
        }
    }

    /// Writes what a group left, by the head of its undo. It survives when this returns; unless `add` gives `false`:
    /// then nothing is written.
    fn write_made(
        &self,
        of: &Head,
        (bytes, home_below): (u64, u64),
        add: impl FnOnce(&mut Writing) -> Result<bool>,
    ) -> Result<bool> {
        let add = |writing: &mut Writing| {
            writing.is_about(bytes, home_below);
            add(writing)
        };
        self.write_beside(&made_path(&*self.host, of.id), of, &of.note, self.host.now_ns(), add)
    }

    /// Writes a file of a group to `path`. It survives when this returns; unless `add` gives `false`: then nothing is
    /// written.
    fn write_beside(
        &self,
        path: &[u8],
        of: &Head,
        note: &str,
        now_ns: i64,
        add: impl FnOnce(&mut Writing) -> Result<bool>,
    ) -> Result<bool> {
        let host = &*self.host;
        if path.starts_with(UNDO_FOLDER) {
            self.make_undo_folder()?;
        }
        let unfinished = [path, UNFINISHED].concat();
        let write = || {
            let head = (self.log.volume_id(), of.id, note);
            let mut writing = Writing::new(host, &unfinished, head, (now_ns, of.expires_ns))?;
            if !add(&mut writing)? {
                return Ok(false);
            }
            writing.finish()?;
            host.rename(site::UNDO_RENAME, &unfinished, path, Rename::Replace)
                .map_err(|error| host_error(error, path))?;
            self.sync_folder_of(path, site::UNDO_SYNC).map(|()| true)
        };
        let written = write();
        if !matches!(written, Ok(true)) {
            _ = host.unlink(site::PARK_REMOVE, &unfinished);
        }
        written
    }

    /// The groups below `target` are written back, and one that was undone is among them: notes in which state its
    /// objects are again (invariant 8).
    pub(super) fn note_restored(&self, id: u64, target: u64) -> Result<()> {
        let is_alone = self.kept.restores.load(Ordering::Relaxed) != 0;
        if !is_alone || !is_there(&*self.host, &undo_path(id))? || !is_any_kept(&*self.host)? {
            return Ok(());
        }
        match self.write_restored(id, target) {
            Err(error @ Error::Poisoned(_)) => Err(error),
            // Without it they count as changed.
            _ => Ok(()),
        }
    }

    /// Removes the anchors of what has its name again, durably: a later pass would give it another time of change.
    fn clear_anchors(&self, undo: &Summary) -> Result<()> {
        let is_idle = |object: &Object| {
            let is_elsewhere = object.home().is_some_and(|home| home.dir() != ANCHORS);
            object.hangs[0] && object.kind != Kind::Directory && is_elsewhere
        };
        let idle: Vec<u64> = self.names.with(|state| {
            let is_idle = |id: &u64| !state.held.contains(*id) && state.objects.get(id).is_some_and(is_idle);
            undo.objects.keys().copied().filter(is_idle).collect()
        });
        for &id in &idle {
            let path = anchor_path(id);
            let remove = || match self.host.unlink(site::NAMES_CLEAN, &path) {
                Err(error) if error.errno != Errno::NOENT => Err(error),
                _ => Ok(()),
            };
            self.names.change_home(remove, |state, ()| state.fall(id)).map_err(|error| host_error(error, &path))?;
        }
        if idle.is_empty() {
            return Ok(());
        }
        self.host.sync_all(site::CHECKPOINT_SYNC).map_err(|error| self.poison(&Error::Media(error)))
    }

    fn write_restored(&self, id: u64, target: u64) -> Result<()> {
        let undo = ParkedFile::read(&*self.host, &undo_path(id))?;
        self.clear_anchors(&undo.summary)?;
        let mut made = Summary::default();
        for (&object, known) in &undo.summary.objects {
            let (Known::Settled(before), Some(path)) = (known, undo.summary.path_before(object)) else { continue };
            let stat = match self.host.stat(&path) {
                Ok(stat) => stat,
                Err(error) if matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => continue,
                Err(error) => return Err(host_error(error, &path)),
            };
            let (was, now) = (Baseline::of(&before.stat), Baseline::of(&stat));
            let is_dir = Kind::of(stat.mode) == Kind::Directory;
            let is_again =
                stat.inode() == before.stat.inode() && was.mtime_ns == now.mtime_ns && (is_dir || was.size == now.size);
            if object != ROOT && is_again {
                // Where it lies does not matter.
                let (place, base) = ((ROOT, before.place.1.clone()), Some(Base::Stat(was)));
                made.objects.insert(object, Known::Settled(Box::new(Settled { stat, place, base })));
            }
        }
        self.write_made(&undo.head, (0, target), |writing| writing.add(&made).map(|()| true)).map(drop)
    }

    /// Invariant 7: the tail comes to where it was about to be. What says so survives already.
    pub(super) fn catch_up_with_kept(&self) -> Result<()> {
        match self.kept.home_below {
            target if target > self.log.tail() => {
                self.log.release_below(target).map(drop).map_err(|error| self.poison(&error))
            }
            _ => Ok(()),
        }
    }

    /// A recovery has left a group that undoes another one: it is written back before others follow (invariant 8).
    pub(super) fn write_back_undone(&self) -> Result<()> {
        if self.parked.applied_ids().is_empty() || !is_any_kept(&*self.host)? {
            return Ok(());
        }
        match self.kept.restoring(|| self.checkpoint()) {
            Err(error @ Error::Poisoned(_)) => Err(error),
            // A later pass does that.
            _ => Ok(()),
        }
    }

    /// Adds what the group left, as it lies on the host, a part at a time. `false` where that is not there.
    fn add_made(&self, writing: &mut Writing, undo: &Outline, held: &Ids, keeping: &Keeping) -> Result<bool> {
        let (mut part, mut room) = (Summary::default(), AT_A_TIME);
        part.parts.clone_from(&keeping.parts);
        for id in undo.objects().iter().filter(|id| !held.contains(*id)) {
            if !self.find_made_by(&mut part, id, keeping)? {
                return Ok(false);
            }
            room -= 1;
            if room == 0 {
                writing.add(&std::mem::take(&mut part))?;
                room = AT_A_TIME;
            }
        }
        writing.add(&part).map(|()| true)
    }

    /// Adds one object, with the directories that it is in.
    fn find_made_by(&self, made: &mut Summary, id: u64, keeping: &Keeping) -> Result<bool> {
        let mut todo = vec![id];
        while let Some(id) = todo.pop() {
            if made.objects.contains_key(&id) {
                continue;
            }
            let known = self.names.with(|state| match id {
                ROOT => Some((Vec::new(), (0, [].into()), None)),
                _ => Some((state.host_path(id)?, state.objects.get(&id)?.place()?.clone(), state.inode_of(id))),
            });
            let Some((path, place, inode)) = known else { return Ok(false) };
            let stat = match self.host.stat(&path) {
                Ok(stat) if inode.is_none_or(|inode| inode == stat.inode()) => stat,
                Err(error) if !matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => {
                    return Err(host_error(error, &path));
                }
                _ => return Ok(false),
            };
            if place.0 != 0 {
                todo.push(place.0);
            }
            let base = keeping.restores.get(&id).map(|before| Base::Stat(*before));
            made.objects.insert(id, Known::Settled(Box::new(Settled { stat, place, base })));
        }
        Ok(true)
    }

    /// Bytes of all that is in a directory, and of itself.
    fn bytes_below(&self, dir: &[u8]) -> Result<u64> {
        let mut bytes = 0;
        self.look_below(dir, &mut |_, stat| {
            bytes += stat.allocated;
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Calls `look` with everything in a directory, and with itself.
    pub(super) fn look_below(&self, dir: &[u8], look: &mut dyn FnMut(&[u8], &Stat) -> Result<()>) -> Result<()> {
        let stat = self.host.stat(dir).map_err(|error| host_error(error, dir))?;
        look(dir, &stat)?;
        let mut todo = Vec::new();
        if Kind::of(stat.mode) == Kind::Directory {
            todo.push(dir.to_vec());
        }
        while let Some(path) = todo.pop() {
            let mut looked = Ok(());
            let mut look_at = |name: &[u8], stat: &Stat| {
                let at = join(&path, name);
                looked = look(&at, stat);
                if Kind::of(stat.mode) == Kind::Directory {
                    todo.push(at);
                }
                looked.is_ok()
            };
            self.host.stat_all(&path, &mut look_at).map_err(|error| host_error(error, &path))?;
            looked?;
        }
        Ok(())
    }

    /// What is kept, with the lines.
    pub(super) fn kept_undos(&self) -> Result<Vec<KeptUndo>> {
        self.check_usable()?;
        let applied = self.parked.applied_ids();
        let mut all = list(&*self.host)?;
        all.retain(|kept| !applied.contains(&kept.id.0));
        Ok(all)
    }

    /// Reads a kept undo.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is none; [`Error::Corrupt`]; [`Error::Copied`].
    pub(super) fn read_kept(&self, id: ParkedId) -> Result<ReadUndo> {
        let gone = || Error::NotFound(format!("undo of {id}"));
        if self.parked.applied_ids().contains(&id.0) || !is_there(&*self.host, &kept_path(&*self.host, id.0))? {
            return Err(gone());
        }
        let read = |path: &[u8]| {
            let file = ParkedFile::read(&*self.host, path)?;
            match (file.head.volume_id, file.head.id) == (*self.log.volume_id(), id.0) {
                true => self.refuse_copied(&file.head).map(|()| file),
                false => Err(Error::corrupt(String::from_utf8_lossy(path), "it is of another group")),
            }
        };
        self.read_left(read(&kept_path(&*self.host, id.0))?, read(&made_path(&*self.host, id.0))?)
    }

    /// Of each object that was restored, the states that are the same: the later one, and the one before.
    pub(super) fn restored(&self) -> Result<BTreeMap<Inode, Vec<(Baseline, Baseline)>>> {
        let mut all: BTreeMap<Inode, Vec<(Baseline, Baseline)>> = BTreeMap::new();
        for id in ids(&*self.host, MADE)? {
            // Where one cannot be read, more counts as changed.
            let Ok(made) = ParkedFile::read(&*self.host, &made_path(&*self.host, id)) else { continue };
            for known in made.summary.objects.values() {
                if let Known::Settled(settled) = known
                    && let Some(Base::Stat(before)) = settled.base
                {
                    all.entry(settled.stat.inode()).or_default().push((Baseline::of(&settled.stat), before));
                }
            }
        }
        Ok(all)
    }

    /// What an open does about kept undo: goes on with what is dropped, removes what belongs to nothing, and finds out
    /// what is held. Durable with the folder.
    pub(super) fn settle_kept(&self) -> Result<()> {
        let host = &*self.host;
        for id in ids(host, DROPPED)? {
            self.drop_what_can_go(id)?;
        }
        self.settle_parts()?;
        let kept = ids(host, KEPT)?;
        if kept.is_empty() {
            self.release_reserve();
            // What is ready to be kept may be decided.
            let waits: Vec<u64> = self.parked.provisional.lock().unwrap().iter().map(|group| group.id).collect();
            let mut made = ids(host, MADE)?.into_iter().filter(|id| !waits.contains(id));
            made.try_for_each(|id| self.unlink_parked(&made_path(host, id)))?;
        }
        let away = names_in(host, UNDO_FOLDER)?;
        let is_away = away.iter().any(|name| id_of(name) != 0 && id_name(id_of(name)) == *name);
        let hanging = if kept.is_empty() { Vec::new() } else { [names_in(host, ANCHOR_FOLDER)?, away].concat() };
        // A group that is about to be undone may have given names to all that was held.
        let is_back = self.parked.provisional.lock().unwrap().is_empty();
        if !is_away && hanging.is_empty() && (kept.is_empty() || is_back) {
            return Ok(());
        }
        let mut held = Ids::default();
        for id in kept {
            match self.outline(id, &kept_path(host, id)) {
                Ok((_, undo)) => held.extend(undo.lost()),
                // Nobody knows what it holds.
                Err(_) => held.extend(hanging.iter().map(|name| id_of(name))),
            }
        }
        let held = self.names.with(|state| {
            state.held.extend(held.iter());
            // What is dropped and could not be removed is among them.
            state.held.iter().collect()
        });
        self.remove_strays(&held)
    }

    /// Whether undo of a group is kept.
    pub(super) fn is_kept(&self, id: u64) -> Result<bool> {
        is_there(&*self.host, &kept_path(&*self.host, id))
    }

    /// Removes the files of a kept undo that was used: what it held has its name. What a group has left that was undone
    /// stays.
    pub(super) fn unlink_kept(&self, id: u64) -> Result<()> {
        if self.is_kept(id)? {
            let host = &*self.host;
            let kept = kept_path(host, id);
            if let Ok((_, undo)) = Outline::read(host, &kept) {
                self.names.with(|state| undo.lost().for_each(|id| _ = state.held.remove(id)));
            }
            self.unlink_parked(&kept)?;
            self.unlink_parked(&made_path(host, id))?;
            self.unlink_line(id)?;
            self.sync_folder_of(&kept, site::PARK_REMOVE_SYNC)?;
            self.unlink_taken(id)?;
        }
        Ok(())
    }
}

fn cannot_be_kept(why: &str) -> Error {
    Error::unsupported(format!("what it would replace cannot be kept: {why}"))
}

/// Whether an object that is `now` so is as `then`, by what is known to be the same.
pub(super) fn is_as_left(
    now: Baseline,
    restored: Option<&Vec<(Baseline, Baseline)>>,
    is_it: impl Fn(&Baseline) -> bool,
) -> bool {
    let mut state = now;
    for _ in 0..LONGEST_CHAIN {
        if is_it(&state) {
            return true;
        }
        match restored.and_then(|all| all.iter().find(|(later, _)| *later == state)) {
            Some((_, before)) => state = *before,
            None => return false,
        }
    }
    false
}
