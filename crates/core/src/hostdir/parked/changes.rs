//! What a group would change, for people: a list by paths, and the bytes of either side.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use wholly_vfs::Stat;

use super::super::StoreInner;
use super::super::names::{Kind, Name, show};
use super::super::running::Running;
use super::{Finder, Known, ParkedFile, Piece, Summary};
use crate::error::{Error, Result};
use sync::Mutex;

/// What happens to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A new object gets the name.
    Created,
    /// The name is removed, and so is the object, unless it has other names.
    Removed,
    /// A new object gets the name from the object that has it.
    Replaced,
    /// An object loses another name and gets this one.
    Renamed,
    /// An object gets this name in addition to another one.
    Linked,
    /// The object keeps the name, and its bytes or attributes change.
    Changed,
}

/// One change of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happens to the name.
    pub what: What,
    /// The new name, relative to the store's directory; for [`What::Removed`] the removed one.
    pub path: PathBuf,
    /// The name that a renamed object had, or another name of a linked one; else `None`.
    pub from: Option<PathBuf>,
    /// The attributes of the object that is removed, replaced, renamed or changed, as they are. `None` if there is no
    /// object.
    pub before: Option<Stat>,
    /// The attributes of the object as they will be. Times that the group has not set are those of `before`. `None` if
    /// there will be no object.
    pub after: Option<Stat>,
    /// The object that loses its name to the renamed or linked one.
    pub replaced: Option<Stat>,
    /// Whether the bytes of a file change, or may change.
    pub content: bool,
    /// Extended attributes that the group sets or removes.
    pub xattrs: Vec<XattrChange>,
    /// Whether a directory is removed, or comes back, with everything in it. No other change tells of that.
    pub whole: bool,
    before_id: u64,
    after_id: u64,
}

/// An extended attribute that a group sets or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrChange {
    /// The name of the attribute.
    pub name: OsString,
    /// The value that it gets; `None` if it is removed.
    pub value: Option<Vec<u8>>,
}

/// The state before a change or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The committed state, which all groups see.
    Before,
    /// The state in the group.
    After,
}

fn path(bytes: Vec<u8>) -> PathBuf {
    match bytes.is_empty() {
        true => ".".into(),
        false => OsString::from_vec(bytes).into(),
    }
}

/// All changes, by path.
fn changes_of(summary: &Summary) -> Vec<Change> {
    let mut all = Vec::new();
    // A name of a directory that is gone has no path after.
    let before = |name: &Name| summary.name_before(name).map(path);
    let after = |name: &Name| summary.name_after(name).map(path);
    let has_moved = |id: u64| summary.moved().get(&id).is_some_and(|moves| !moves.gained.is_empty());
    let victim = |name: &Name| Some(summary.names().get(name)?.0).filter(|&id| id != 0 && !has_moved(id));
    for (&id, moves) in summary.moved() {
        let born = matches!(summary.objects.get(&id), Some(Known::Born(_)));
        let old = moves.lost.first().and_then(before);
        for (i, name) in moves.gained.iter().enumerate() {
            let Some(path) = after(name) else { continue };
            let victim = victim(name);
            let mut change = Change { path, before_id: id, after_id: id, ..summary.change(id) };
            match (born, i) {
                (true, 0) => {
                    change.what = if victim.is_some() { What::Replaced } else { What::Created };
                    change.before_id = victim.unwrap_or(0);
                    change.before = victim.and_then(|victim| summary.before(victim));
                    change.content = summary.kind(id) == Kind::Regular;
                }
                (false, i) if i < moves.lost.len() => {
                    change.what = What::Renamed;
                    change.from = before(&moves.lost[i]);
                    change.replaced = victim.and_then(|victim| summary.before(victim));
                }
                _ => {
                    change.what = What::Linked;
                    change.from = match born {
                        true => moves.gained.first().and_then(after),
                        false => old.clone().or_else(|| summary.path_before(id).map(self::path)),
                    };
                    change.replaced = victim.and_then(|victim| summary.before(victim));
                }
            }
            if i > 0 {
                change = change.without_content();
            }
            all.push(change);
        }
        let removed = moves.lost.iter().skip(moves.gained.len());
        // Where something else has the name, that is told there.
        for name in removed.filter(|name| summary.names()[*name].1 == 0) {
            let Some(path) = before(name) else { continue };
            let change =
                Change { path, what: What::Removed, before_id: id, after: None, after_id: 0, ..summary.change(id) };
            all.push(change.without_content());
        }
    }
    let changed = summary.contents.keys().chain(summary.sets.keys().filter(|id| !summary.contents.contains_key(id)));
    for &id in changed {
        let told = summary.moved().get(&id).is_some_and(|moves| !moves.lost.is_empty());
        if let (false, Some(Known::Settled(_)), Some(found)) = (told, summary.objects.get(&id), summary.path_before(id))
        {
            let now = summary.settled(id).and_then(|settled| summary.name_after(&settled.place));
            all.push(Change { path: path(now.unwrap_or(found)), before_id: id, after_id: id, ..summary.change(id) });
        }
    }
    all.sort_by(|a, b| (&a.path, a.what as u8).cmp(&(&b.path, b.what as u8)));
    all
}

impl Change {
    /// That is told at another name of it.
    fn without_content(self) -> Change {
        Change { content: false, xattrs: Vec::new(), ..self }
    }
}

impl Summary {
    /// What becomes of an object, but for its names.
    fn change(&self, id: u64) -> Change {
        let xattrs = self.sets.get(&id).into_iter().flat_map(|(set, _)| &set.xattrs);
        let xattr = |(name, value): (&Vec<u8>, &Option<Arc<[u8]>>)| XattrChange {
            name: OsString::from_vec(name.clone()),
            value: value.as_ref().map(|value| value.to_vec()),
        };
        Change {
            what: What::Changed,
            path: PathBuf::new(),
            from: None,
            before: self.before(id),
            after: self.after(id),
            replaced: None,
            content: self.contents.contains_key(&id),
            xattrs: xattrs.map(xattr).collect(),
            whole: false,
            before_id: 0,
            after_id: 0,
        }
    }
}

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
            change.whole = [change.before_id, change.after_id].into_iter().any(|id| running.is_whole(id));
            // What was held has its bytes already.
            let id = change.after_id;
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
        let id = if side == Side::Before { change.before_id } else { change.after_id };
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
