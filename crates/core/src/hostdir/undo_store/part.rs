//! A part of a group is taken back: some of its changes, with those that they need. The rest stays kept under the id of
//! the group.
//!
//! # Terms
//!
//! - *taken*: the names and objects of a group that were taken back already: `<id>.taken`. It has no bytes, so that
//!   what is kept need not be written once more.
//! - *part*: what is taken once another group has committed: `<id>.<part>.part`, under an id of its own. It has what
//!   was taken before, too.
//! - *spread out*: a directory that the group has adopted, as if the group had made everything in it one by one.
//!
//! # Invariants
//!
//! 1. A part survives before the group commits that takes it. That one has an Applied entry of the part's id.
//! 2. Once that group is final, a part becomes what is taken, by one rename. Until that is durable the log tells of it,
//!    and a part that the log tells of counts as taken. An open removes all other parts.
//! 3. What is taken goes after the undo that it is of, durably: nobody takes for held what has its name again.
//! 4. The objects of a directory that is spread out have the same ids each time: they go by the order of the notes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wholly_changes::records::Birth;
use wholly_changes::{
    Choice, FOLDER, Head, Ids, Kind, Known, Left, Name, Outline, ParkedFile, ROOT, Set, Settled, Summary, id_name,
    id_of, join,
};
use wholly_host::{HostFs, host_error, is_there};
use wholly_vfs::{Rename, Stat};

use super::folder::{dropped_path, taken_path};
use super::{DROPPED, KEPT, files, ids, kept_path, lost};
use crate::error::Result;
use crate::hostdir::StoreInner;
use crate::hostdir::names::UNDO_FOLDER;
use crate::site;

/// After the id in the name of what is taken.
pub(super) const TAKEN: &[u8] = b".taken";
/// After both ids in the name of a part.
pub(super) const PART: &[u8] = b".part";

/// Names and objects of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub names: BTreeSet<Name>,
    pub objects: BTreeSet<u64>,
}

impl Taken {
    fn of(summary: &Summary) -> Taken {
        Taken { names: summary.names().keys().cloned().collect(), objects: summary.sets.keys().copied().collect() }
    }

    fn is_not_in(&self, outline: &mut Outline) {
        outline.forget(self.names.len() as u64, self.objects.iter().copied());
    }

    /// What `chosen` has besides.
    pub fn and(&self, chosen: &Choice<'_>) -> Taken {
        let mut all = self.clone();
        all.names.extend(chosen.names.iter().map(|name| (*name).clone()));
        all.objects.extend(&chosen.objects);
        all
    }

    /// As it is written: the names as the group has changed them, and for each object that nothing is set of it.
    fn summary(&self, of: &Summary) -> Summary {
        let mut summary = Summary::default();
        for (name, (before, after)) in of.names().iter().filter(|(name, _)| self.names.contains(*name)) {
            summary.add_name(name.clone(), *before, *after);
        }
        summary.sets = self.objects.iter().map(|id| (*id, (Set::default(), None))).collect();
        let mut todo: Vec<u64> = summary.names().iter().flat_map(|((dir, _), (from, to))| [*dir, *from, *to]).collect();
        todo.extend(&self.objects);
        while let Some(id) = todo.pop() {
            if let Some(known) = of.objects.get(&id).filter(|_| !summary.objects.contains_key(&id)) {
                todo.extend(of.settled(id).map(|settled| settled.place.0));
                summary.objects.insert(id, known.clone());
            }
        }
        summary.sets.retain(|id, _| summary.objects.contains_key(id));
        summary
    }
}

/// A kept undo, read.
pub(in crate::hostdir) struct ReadUndo {
    pub undo: ParkedFile,
    pub made: ParkedFile,
    /// What of it is taken, and not in the others.
    pub taken: Taken,
    /// All that the undo speaks of, but for bytes.
    whole: Summary,
    /// What is in adopted directories, each with the id that it has when it is spread out.
    inside: BTreeMap<(u64, Vec<u8>), u64>,
}

impl ReadUndo {
    fn new(undo: ParkedFile, made: ParkedFile, taken: Taken) -> ReadUndo {
        let last = [&undo.summary, &made.summary].map(|summary| summary.objects.keys().next_back().copied());
        let first = last.into_iter().flatten().max().unwrap_or(ROOT) + 1;
        let notes = undo.summary.left.keys().filter(|(_, path)| !path.is_empty());
        let inside: BTreeMap<_, _> = notes.cloned().zip(first..).collect();
        let is_taken = |(_, id): &(_, &u64)| taken.objects.contains(*id);
        let dirs: BTreeSet<u64> = inside.iter().filter(is_taken).map(|(at, _)| at.0).collect();
        let whole = all_but_bytes(&undo.summary);
        let mut read = ReadUndo { undo, made, taken, whole, inside };
        read.spread_out(&dirs);
        read.forget_taken();
        read
    }

    /// The adopted directories with something in them at whose paths this holds.
    pub fn adopted_at(&self, is_wanted: impl Fn(&[u8]) -> bool) -> BTreeSet<u64> {
        let dirs: BTreeSet<u64> = self.inside.keys().map(|at| at.0).collect();
        let undo = &self.undo.summary;
        // Of each other one not everything is noted.
        let is_adopted =
            |id: &u64| matches!(undo.objects.get(id), Some(Known::Born(birth)) if birth.is_adopted_directory());
        let is_whole = |id: &u64| is_adopted(id) && self.left(*id).is_some();
        let is_at = |id: &u64| is_whole(id) && undo.path_after(*id).is_some_and(|path| is_wanted(&path));
        dirs.into_iter().filter(is_at).collect()
    }

    /// Speaks of everything in these directories.
    pub fn spread_out(&mut self, dirs: &BTreeSet<u64>) {
        let (undo, made, whole) = (&mut self.undo.summary, &mut self.made.summary, &mut self.whole);
        let born = |mode: u32| Known::Born(Arc::new(Birth::placeholder(mode, false)));
        for &dir in dirs {
            undo.objects.insert(dir, born(DIRECTORY_MODE));
            whole.objects.insert(dir, born(DIRECTORY_MODE));
        }
        for ((dir, path), id) in self.inside.iter().filter(|((dir, _), _)| dirs.contains(dir)) {
            let cut = path.iter().rposition(|byte| *byte == b'/');
            let (above, name) = cut.map_or((&[][..], &path[..]), |at| (&path[..at], &path[at + 1..]));
            let parent = if above.is_empty() { Some(dir) } else { self.inside.get(&(*dir, above.to_vec())) };
            let (Some(parent), Some(left)) = (parent, undo.left.remove(&(*dir, path.clone()))) else { continue };
            let Left { mode, uid, gid, rdev, size, .. } = left;
            let stat = Stat { mode, uid, gid, rdev, size, ..Stat::default() };
            let place: Name = (*parent, name.into());
            for summary in [&mut *undo, &mut *whole] {
                summary.objects.insert(*id, born(mode));
                summary.add_name(place.clone(), 0, *id);
            }
            undo.left.insert((*id, Vec::new()), left);
            made.objects.insert(*id, Known::Settled(Box::new(Settled { stat, place, base: None })));
        }
    }

    /// Speaks of what is not taken only. What is taken is where it was before the group, if it was there.
    fn forget_taken(&mut self) {
        if self.taken == Taken::default() {
            return;
        }
        let (undo, made) = (&mut self.undo.summary, &mut self.made.summary);
        let Taken { names, objects } = &self.taken;
        let rest = some_of(undo, |name| !names.contains(name), |id| !objects.contains(&id));
        for id in &self.taken.objects {
            match self.whole.settled(*id) {
                Some(settled) => {
                    let mut now = settled.clone();
                    if let Some(Known::Settled(made)) = made.objects.get(id) {
                        now.stat = made.stat;
                    }
                    made.objects.insert(*id, Known::Settled(Box::new(now)));
                }
                None => _ = made.objects.remove(id),
            }
        }
        *undo = rest;
        self.keep_needed();
    }

    /// Only the chosen changes.
    pub fn only(&self, chosen: &Choice<'_>) -> ReadUndo {
        let Choice { names, objects } = chosen;
        let part = some_of(&self.undo.summary, |name| names.contains(name), |id| objects.contains(&id));
        let mut only = ReadUndo {
            undo: self.undo.with(part),
            made: self.made.with(self.made.summary.without_names()),
            taken: self.taken.clone(),
            whole: Summary::default(),
            inside: BTreeMap::new(),
        };
        only.keep_needed();
        only
    }

    /// Of what the group has left, keeps only what the changes are about, and the directories above that.
    fn keep_needed(&mut self) {
        let (undo, made) = (&self.undo.summary, &mut self.made.summary);
        let names = undo.names().iter().flat_map(|((dir, _), (before, after))| [*dir, *before, *after]);
        let mut todo: Vec<u64> = names.chain(undo.contents.keys().copied()).chain(undo.sets.keys().copied()).collect();
        let mut needed = Ids::default();
        while let Some(id) = todo.pop() {
            if id != 0 && needed.insert(id) {
                todo.extend(made.settled(id).map(|settled| settled.place.0));
            }
        }
        made.objects.retain(|id, _| needed.contains(*id));
    }

    /// The contrary of the group, or of what is left of it.
    pub fn contrary(&self) -> Summary {
        let (undo, made) = (&self.undo.summary, &self.made.summary);
        let mut summary = Summary::default();
        for id in lost(undo) {
            summary.objects.extend(undo.objects.get(&id).map(|known| (id, known.clone())));
        }
        for (id, known) in made.objects.iter().filter(|(id, _)| **id != ROOT) {
            summary.objects.insert(*id, known.clone());
        }
        for (name, (before, after)) in undo.names() {
            summary.add_name(name.clone(), *after, *before);
        }
        (summary.contents, summary.sets) = (undo.contents.clone(), undo.sets.clone());
        summary
    }

    /// Whether the group, or what is left of it, has changed something of an object, or a name of it.
    pub fn is_about(&self, id: u64) -> bool {
        let undo = &self.undo.summary;
        undo.moved().contains_key(&id) || undo.contents.contains_key(&id) || undo.sets.contains_key(&id)
    }

    /// Whether the group has left a file that was there before with names that are not those of the undo: what stands
    /// at one of them by now may be another file.
    pub fn has_other_names(&self, id: u64) -> bool {
        let undo = &self.undo.summary;
        let is_only_named = || undo.moved().get(&id).is_some_and(|moves| moves.lost.is_empty());
        let was_shared = || self.made.summary.before(id).is_some_and(|then| then.nlink > 1 && then.ino != 0);
        undo.settled(id).is_some_and(|before| Kind::of(before.stat.mode) != Kind::Directory)
            && (is_only_named() || was_shared())
    }

    /// The directories that were removed with everything in them, by their paths.
    pub fn removed_whole(&self) -> BTreeSet<Vec<u8>> {
        let undo = &self.undo.summary;
        let dirs: BTreeSet<u64> = undo.names().keys().map(|(dir, _)| *dir).collect();
        let whole = lost(undo).filter(|id| undo.kind(*id) == Kind::Directory && !dirs.contains(id));
        whole.filter_map(|id| undo.path_before(id)).collect()
    }

    /// What the group has left of an object; none where an earlier version has kept the undo.
    pub fn left(&self, id: u64) -> Option<&Left> {
        self.undo.summary.left.get(&(id, Vec::new()))
    }
}

/// Of a directory that is spread out only that it is one counts.
const DIRECTORY_MODE: u32 = 0o040_700;

/// The changes of these names, and of the content and attributes of these objects.
fn some_of(summary: &Summary, has_name: impl Fn(&Name) -> bool, has_object: impl Fn(u64) -> bool) -> Summary {
    let mut some = summary.without_names();
    for (name, (before, after)) in summary.names().iter().filter(|(name, _)| has_name(name)) {
        some.add_name(name.clone(), *before, *after);
    }
    some.contents.retain(|id, _| has_object(*id));
    some.sets.retain(|id, _| has_object(*id));
    some
}

fn all_but_bytes(summary: &Summary) -> Summary {
    let mut all = summary.without_names();
    (all.contents, all.left) = (BTreeMap::new(), BTreeMap::new());
    summary.names().iter().for_each(|(name, (before, after))| all.add_name(name.clone(), *before, *after));
    all
}

/// The group and the part that a file is about, by its name.
pub(super) fn part_named(name: &[u8]) -> Option<(u64, u64)> {
    let both = name.strip_suffix(PART)?;
    let (id, part) = both.split_at(both.iter().position(|byte| *byte == b'.')?);
    let (id, part) = (id_of(id), id_of(&part[1..]));
    (id != 0 && part != 0 && part_name(id, part) == name).then_some((id, part))
}

fn part_name(id: u64, part: u64) -> Vec<u8> {
    [&id_name(id), &b"."[..], &id_name(part), PART].concat()
}

fn part_path(host: &dyn HostFs, id: u64, part: u64) -> Vec<u8> {
    let (here, before) = (join(UNDO_FOLDER, &part_name(id, part)), join(FOLDER, &part_name(id, part)));
    if host.stat(&before).is_ok() { before } else { here }
}

fn read_taken(host: &dyn HostFs, path: &[u8]) -> Result<Taken> {
    match is_there(host, path)? {
        true => Ok(Taken::of(&ParkedFile::read(host, path)?.summary)),
        false => Ok(Taken::default()),
    }
}

/// What is left of a kept undo, as far as the folder tells.
pub(super) fn outline_of(host: &dyn HostFs, id: u64) -> Result<(Head, Outline)> {
    let (head, mut outline) = Outline::read(host, &kept_path(host, id))?;
    read_taken(host, &taken_path(host, id))?.is_not_in(&mut outline);
    Ok((head, outline))
}

impl StoreInner {
    fn parts(&self) -> Result<Vec<(u64, u64)>> {
        Ok(files(&*self.host)?.iter().filter_map(|name| part_named(name)).collect())
    }

    /// What of a group is taken (invariant 2).
    pub(super) fn taken(&self, id: u64) -> Result<Taken> {
        let applied = self.parked.applied_ids();
        let part = self.parts()?.into_iter().filter(|(of, part)| *of == id && applied.contains(part)).max();
        let host = &*self.host;
        let path = part.map_or_else(|| taken_path(host, id), |(id, part)| part_path(host, id, part));
        read_taken(host, &path)
    }

    /// The outline of a kept undo at a path, without what is taken of it.
    pub(super) fn outline(&self, id: u64, path: &[u8]) -> Result<(Head, Outline)> {
        let (head, mut outline) = Outline::read(&*self.host, path)?;
        self.taken(id)?.is_not_in(&mut outline);
        Ok((head, outline))
    }

    /// Reads what is left of a kept undo.
    pub(super) fn read_left(&self, undo: ParkedFile, made: ParkedFile) -> Result<ReadUndo> {
        let taken = self.taken(undo.head.id)?;
        Ok(ReadUndo::new(undo, made, taken))
    }

    /// Writes that these changes are taken, once the group commits that has an Applied entry of the id that this
    /// returns. It survives when this returns.
    pub(in crate::hostdir) fn write_part(&self, kept: &ReadUndo, taken: &Taken) -> Result<u64> {
        let (head, part) = (&kept.undo.head, self.log.take_sequence());
        let summary = taken.summary(&kept.whole);
        self.write_beside(&part_path(&*self.host, head.id, part), head, &head.note, head.parked_ns, |writing| {
            writing.add(&summary).map(|()| true)
        })?;
        Ok(part)
    }

    /// The group that takes a part has not committed: what says so goes, or the next open removes it.
    pub(in crate::hostdir) fn withdraw_part(&self, id: u64, part: u64) {
        // The log may have it all the same.
        if !self.parked.applied_ids().contains(&part) {
            _ = self.unlink_parked(&part_path(&*self.host, id, part));
        }
    }

    /// Whether an id is that of a part.
    pub(in crate::hostdir) fn is_part(&self, part: u64) -> Result<bool> {
        Ok(self.parts()?.iter().any(|(_, other)| *other == part))
    }

    /// The group that takes a part is final: it is taken, if it was one.
    pub(in crate::hostdir) fn take_part(&self, part: u64) -> Result<()> {
        let Some((id, _)) = self.parts()?.into_iter().find(|(_, other)| *other == part) else { return Ok(()) };
        let host = &*self.host;
        let (from, to) = (part_path(host, id, part), taken_path(host, id));
        match is_there(host, &kept_path(host, id))? || is_there(host, &dropped_path(id))? {
            true => host.rename(site::UNDO_RENAME, &from, &to, Rename::Replace).map_err(|error| host_error(error, &to)),
            // It was dropped meanwhile.
            false => self.unlink_parked(&from),
        }?;
        if let (Ok((_, whole)), Ok((_, rest))) = (Outline::read(host, &kept_path(host, id)), outline_of(host, id)) {
            let rest: Ids = rest.lost().collect();
            let taken = whole.lost().filter(|id| !rest.contains(*id));
            self.names.with(|state| taken.for_each(|id| _ = state.held.remove(id)));
        }
        self.sync_folder_of(&to, site::PARK_REMOVE_SYNC)
    }

    /// Removes parts whose group has not committed, and lists of what was taken of an undo that is gone.
    pub(super) fn settle_parts(&self) -> Result<()> {
        let pending: Vec<u64> =
            self.parked.provisional.lock().unwrap().iter().flat_map(|group| group.applied.clone()).collect();
        for (id, part) in self.parts()?.into_iter().filter(|(_, part)| !pending.contains(part)) {
            self.unlink_parked(&part_path(&*self.host, id, part))?;
        }
        let stays = [ids(&*self.host, KEPT)?, ids(&*self.host, DROPPED)?].concat();
        let orphans: Vec<u64> = ids(&*self.host, TAKEN)?.into_iter().filter(|id| !stays.contains(id)).collect();
        if !orphans.is_empty() {
            self.sync_parked(site::PARK_SETTLE)?;
            self.sync_undo_folder(site::PARK_SETTLE)?;
        }
        orphans.into_iter().try_for_each(|id| self.unlink_parked(&taken_path(&*self.host, id)))
    }

    pub(super) fn has_taken(&self, id: u64) -> Result<bool> {
        is_there(&*self.host, &taken_path(&*self.host, id))
    }

    /// Invariant 3: its undo is gone, durably.
    pub(super) fn unlink_taken(&self, id: u64) -> Result<()> {
        self.unlink_parked(&taken_path(&*self.host, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::hostdir::names::ANCHOR_FOLDER;
    use crate::hostdir::parked::ParkedId;
    use crate::hostdir::undo_store::{KeepUndo, UndoFate, made_path};
    use crate::{Options, Store};
    use std::time::Duration;
    use wholly_changes::{UNFINISHED, Writing};
    use wholly_sim::{SimConfig, World};

    fn keep() -> KeepUndo {
        KeepUndo { note: "a group".into(), expires: Duration::from_secs(1 << 30), most_bytes: u64::MAX }
    }

    /// Writes the undo as the version before did, which noted nothing of what a group leaves.
    fn forget_notes(host: &dyn HostFs, id: u64) {
        let path = kept_path(host, id);
        let (made, held) = (made_path(host, id), host.read_dir(UNDO_FOLDER).unwrap());
        let mut undo = ParkedFile::read(host, &path).unwrap();
        undo.summary.left.clear();
        let (head, unfinished) = (undo.head.clone(), [&path, UNFINISHED].concat());
        let mut contents = std::mem::take(&mut undo.summary.contents);
        let times = (head.parked_ns, head.expires_ns);
        let mut writing = Writing::new(host, &unfinished, (&head.volume_id, id, &head.note), times).unwrap();
        for (id, content) in &mut contents {
            for piece in &mut content.pieces {
                let bytes = undo.written(host, *id).unwrap().piece(piece).unwrap();
                writing.write(piece, &bytes).unwrap();
            }
        }
        undo.summary.contents = contents;
        writing.add(&undo.summary).unwrap();
        writing.finish().unwrap();
        host.rename(site::UNDO_RENAME, &unfinished, &path, Rename::Replace).unwrap();
        let mut version = [0];
        host.open(&path, false).unwrap().read_at(16, &mut version).unwrap();
        assert_eq!(version, [5], "that of the version before");
        // It had all of it elsewhere.
        for file in [path, made] {
            let before = join(FOLDER, file.strip_prefix(&[UNDO_FOLDER, b"/"].concat()[..]).unwrap());
            host.rename(site::UNDO_RENAME, &file, &before, Rename::NoReplace).unwrap();
        }
        for name in held.iter().map(|entry| &entry.name).filter(|name| &id_name(id_of(name)) == *name) {
            let (from, to) = (join(UNDO_FOLDER, name), join(ANCHOR_FOLDER, name));
            host.rename(site::UNDO_RENAME, &from, &to, Rename::NoReplace).unwrap();
        }
    }

    #[test]
    fn undo_of_the_version_before_is_taken_back() {
        for is_touched in [false, true] {
            let world = World::new(SimConfig::disk());
            world.add_file("a", b"before");
            world.add_file("b", b"removed");
            let options = Options { background: false, at_once: true, ..Options::default() };
            Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
            let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
            let mut group = store.begin();
            let a = group.open_file("a").unwrap();
            group.write_at(&a, 2, b"and after").unwrap();
            group.mkdir("d", 0o755).unwrap();
            let new = group.create("d/new", 0o644).unwrap();
            group.append(&new, b"new").unwrap();
            group.unlink("b").unwrap();
            group.keep_undo(&keep()).unwrap();
            group.commit().unwrap();
            let Some(UndoFate::Kept(ParkedId(id))) = store.undo_fate() else { panic!("{:?}", store.undo_fate()) };
            let host = world.host();
            forget_notes(&*host, id);
            if is_touched {
                // It goes by times.
                host.set_times(site::NAMES_CLEAN, b"a", None, Some(1)).unwrap();
                let refused = store.undo(ParkedId(id), &keep(), |_| true);
                assert!(matches!(&refused, Err(Error::ChangedMeanwhile(_, all)) if all.len() == 1), "{refused:?}");
                continue;
            }
            assert!(store.undo(ParkedId(id), &keep(), |_| true).unwrap());
            assert!(host.stat(b"d").is_err() && host.stat(b"b").unwrap().size == 7);
            assert_eq!(host.stat(b"a").unwrap().size, 6);
        }
    }
}
