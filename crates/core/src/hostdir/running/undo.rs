//! Groups that are written back as part of their commit: when that returns, the group is in the directory, or nothing
//! has changed.
//!
//! The host may refuse what a committed group asks for: it has no room for a name or an attribute, a file is immutable,
//! a quota is exceeded. Then the group is undone, by another group.
//!
//! # Terms
//!
//! - *undo*: a file beside the parked groups, `<id>.undo`. It has the names that group `id` changes, with the objects
//!   before and after, and of files and attributes that it changes what was there before.
//! - *provisional*: a group that is committed and whose undo survives. It is final once that is gone.
//!
//! # Invariants
//!
//! 1. An undo survives before the record of its group.
//! 2. A checkpoint removes the undo, durably, once all of the group is durable in the directory, and before the tail
//!    passes it. Whatever fails after that neither undoes the group nor takes its kept undo: a later pass does it
//!    again.
//! 3. While a group is provisional no other group of its store commits, but those of its checkpoint and the one that
//!    undoes it. That is the caller's: nobody else uses the store meanwhile.
//! 4. What the group removes keeps a place, on an anchor, until it is final. The parked group that it applies stays,
//!    too.
//! 5. A recovery that finds a provisional group undoes it before it serves anything. One that finds an undo without its
//!    group removes it. Where the undo is gone, or another program's change is in its way, the group is final, and that
//!    survives before anything is served. A part of a joint commit that was not decided and cannot be undone is final
//!    only in a store that is [released](crate::Options::release); else the open fails.
//! 6. A provisional group that is part of a [joint commit](super::super::joint) waits for its decision: no checkpoint
//!    removes its undo or moves the tail past it before that, and a recovery asks for the decision. One that is to be
//!    undone waits in the same way until the group that undoes it has committed.
//!
//! ```text
//!  running ──undo survives──► running ──commit──► provisional ──written back, and decided──► final
//!     `──crash──► gone                               `──refused, or a crash──► undone
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use wholly_changes::records::Birth;
use wholly_changes::{
    Base, Content, Ids, Kind, Known, ParkedFile, ROOT, Set, Settled, Summary, UNFINISHED, Writing, is_readable, merged,
    runs,
};
use wholly_host::host_error;
use wholly_vfs::{Fallocate, Rename};

use super::apply::{Applying, Reserve};
use super::left::Noting;
use super::park::For;
use super::remove_tree::ANY_TIME;
use super::{Inner, Running, Sharing};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::joint::cannot_be_undone;
use crate::hostdir::names::{Found, Last};
use crate::hostdir::parked::{Provisional, undo_path};
use crate::hostdir::undo_store::{anchor_path, lost};
use crate::log::layout::EntryKind;
use crate::site;
use index::BLOCK;
use sync::Ordering;

/// Bytes that are looked at a time for holes.
const STEP: u64 = 64 << 10;

impl Running {
    /// Commits the group and writes it back, or undoes it.
    ///
    /// # Errors
    /// Why it was refused: nothing has changed. [`Error::Poisoned`] where it could not be undone either: the next open
    /// does that.
    pub(super) fn commit_at_once(&mut self) -> Result<()> {
        self.check_unused()?;
        self.by_the_reserve(|running| match running.write_undo_with_space()? {
            Some(lost) => running.commit_provisionally(&lost, false),
            None => {
                running.commit_to_log()?;
                running.store.checkpoint().map(drop)
            }
        })
    }

    /// A group that takes another back has the reserve's space. Where it is refused, that is set aside again.
    fn by_the_reserve(&mut self, commit: impl FnOnce(&mut Running) -> Result<()>) -> Result<()> {
        if !self.takes_back() {
            return commit(self);
        }
        let store = self.store.clone();
        store.release_reserve();
        commit(self).inspect_err(|_| _ = store.keep_reserve())
    }

    /// The same for the part of a joint commit that is the prepared group `id`. When this returns it is in the
    /// directory, and waits for the decision: for [`StoreInner::finish_joint`] or [`StoreInner::take_back`].
    pub(in crate::hostdir) fn commit_prepared_at_once(&mut self, id: u64) -> Result<()> {
        self.by_the_reserve(|running| {
            let lost = running.write_undo_with_space()?.expect("what was prepared changes something");
            let (store, own) = (running.store.clone(), running.id);
            running.is_applied(id).or_else(|error| store.remove_undo(own).and(Err(error)))?;
            running.commit_provisionally(&lost, true)
        })
    }

    /// `lost` is what the group takes all names from.
    fn commit_provisionally(&mut self, lost: &Ids, waits: bool) -> Result<()> {
        let (store, id) = (self.store.clone(), self.id);
        store.names.with(|state| state.kept.extend(lost.iter()));
        self.names_mut().provisional = Some((id, waits));
        store.kept.is_to_keep(self.keep.take().map(|keep| (id, *keep)));
        let committed = self.entry(EntryKind::Provisional, 0, id, &[]).and_then(|_| self.commit_to_log());
        let write_back = || match store.checkpoint() {
            // It is final. What is left to do, such as to remove what it has applied, a later pass does.
            Err(error) if !matches!(error, Error::Poisoned(_)) && !store.parked.may_be_undone(id) => Ok(()),
            done => done.map(drop),
        };
        let go_home = || store.with_space_of_undo(write_back);
        let get_ready = || if waits { store.with_space_of_undo(|| store.make_undo_ready(id)) } else { Ok(()) };
        let done = match committed {
            Err(error @ Error::Poisoned(_)) => Err(error),
            Err(error) => store.remove_undo(id).and(Err(error)),
            Ok(()) => match go_home().and_then(|()| get_ready()) {
                Ok(()) => Ok(()),
                Err(error @ Error::Poisoned(_)) => Err(error),
                Err(error) => Err(store.take_back(id, error)),
            },
        };
        if !waits || done.is_err() {
            store.kept.is_to_keep(None);
            store.names.with(|state| state.kept = Ids::default());
        }
        done
    }

    /// The same once more where there is no space, as long as there is older undo to drop.
    fn write_undo_with_space(&mut self) -> Result<Option<Ids>> {
        self.store.clone().with_space_of_undo(|| {
            self.take_out()?;
            self.write_undo()
        })
    }

    /// Writes the group's undo, a part at a time. It survives when this returns. Gives what the group takes all names
    /// from; none where it changes nothing.
    fn write_undo(&mut self) -> Result<Option<Ids>> {
        let store = self.store.clone();
        let _caller = store.names.caller();
        let _glancing = self.glancing();
        let mut parts = self.summarize_in_parts(For::Undo);
        let first = parts.next().expect("there is a first part")?;
        if first.is_empty() {
            return Ok(None);
        }
        match self.keep {
            Some(_) => store.make_undo_folder()?,
            None => store.make_parked_folder()?,
        }
        let path = undo_path(self.id);
        let unfinished = [&path, UNFINISHED].concat();
        let now = store.host.now_ns();
        let keep = self.keep.as_deref();
        let note = keep.map_or("what undoes a group that is written back", |keeping| &keeping.keep.note);
        let head = (store.log.volume_id(), self.id, note);
        let times = (now, keep.map_or(0, |keeping| keeping.expires_ns(now)));
        let private = self.names.iter();
        let adopted: Ids =
            private.flat_map(|names| names.adopted.iter().chain(names.given_whole.iter().copied())).collect();
        let (mut noting, lost) = (keep.map(|keeping| Noting::new(keeping.takes_back)), self.unnamed());
        let write = || {
            let mut writing = Writing::new(&*store.host, &unfinished, head, times)?;
            writing.is_as_old_as_its_file()?;
            let mut buffer = Vec::new();
            for part in std::iter::once(Ok(first)).chain(&mut parts) {
                let mut part = part?;
                if let Some(noting) = &mut noting {
                    part.left = self.note_left(noting, &part, &lost)?;
                }
                self.turn_back(&mut part, &adopted)?;
                for (id, state) in keep.iter().flat_map(|keeping| &keeping.restored) {
                    if let Some(Known::Settled(settled)) = part.objects.get_mut(id) {
                        settled.base = Some(Base::Stat(*state));
                    }
                }
                for (id, content) in &mut part.contents {
                    let file = store.file_of(b"", &found(*id, Kind::Regular))?;
                    let looking = Running::looking(store.clone());
                    for piece in &mut content.pieces {
                        buffer.resize(piece.length as usize, 0);
                        looking.read(&file, piece.offset, &mut buffer)?;
                        writing.write(piece, &buffer)?;
                    }
                }
                let is_whole = |(id, _): &(u64, Vec<u8>)| adopted.contains(*id) && part.kind(*id) == Kind::Directory;
                let dirs: Vec<_> = part.left.keys().filter(|at| is_whole(at)).cloned().collect();
                let dirs: Vec<_> = dirs.into_iter().filter_map(|at| part.left.remove_entry(&at)).collect();
                writing.add(&part)?;
                for ((id, _), left) in dirs {
                    self.note_inside(noting.as_mut().expect("it has noted that"), (id, left), &mut writing)?;
                }
                self.look_anew();
            }
            writing.finish()?;
            store
                .host
                .rename(site::UNDO_RENAME, &unfinished, &path, Rename::Replace)
                .map_err(|error| host_error(error, &path))?;
            store.sync_parked(site::UNDO_SYNC)
        };
        write().inspect_err(|_| _ = store.host.unlink(site::PARK_REMOVE, &unfinished))?;
        drop(parts);
        Ok(Some(lost))
    }

    /// What it changes that was held, and has names that the store does not know: by those its bytes are seen.
    fn shared(&self, summary: &Summary) -> Result<HashSet<u64>> {
        let mut shared = HashSet::new();
        for &id in summary.contents.keys().chain(summary.sets.keys()).filter(|id| summary.settled(**id).is_none()) {
            let path = self.store.names.with(|state| state.host_path(id).filter(|_| state.held.contains(id)));
            if let Some(path) = path {
                let stat = self.store.host.stat(&path).map_err(|error| host_error(error, &path))?;
                shared.extend((Kind::of(stat.mode) != Kind::Directory && stat.nlink > 1).then_some(id));
            }
        }
        Ok(shared)
    }

    /// From what the group changes to what there was before. Names stay as they are. It has adopted these objects.
    fn turn_back(&self, summary: &mut Summary, adopted: &Ids) -> Result<()> {
        let looking = self.everybody();
        let shared = self.shared(summary)?;
        let is_made = |summary: &Summary, id: u64| summary.settled(id).is_none() && !shared.contains(&id);
        let changed: Vec<u64> = summary.contents.keys().copied().collect();
        for id in changed {
            if is_made(summary, id) {
                summary.contents.remove(&id);
                continue;
            }
            let file = looking.open_object(id, false)?;
            let content = summary.contents.get_mut(&id).expect("it was just listed");
            *content = looking.content_before(&file, content)?;
        }
        let sets: Vec<u64> = summary.sets.keys().copied().collect();
        for id in sets {
            if is_made(summary, id) {
                summary.sets.remove(&id);
                continue;
            }
            let stat = looking.stat_of(id)?;
            let found = looking.object(id)?;
            let (set, mtime) = summary.sets.get_mut(&id).expect("it was just listed");
            let mut before = Set {
                mode: set.mode.map(|_| stat.mode & 0o7777),
                uid: set.uid.map(|_| stat.uid),
                gid: set.gid.map(|_| stat.gid),
                atime_ns: set.atime_ns.map(|_| stat.atime_ns),
                ..Set::default()
            };
            for name in set.xattrs.keys() {
                let path = self.store.names.with(|state| state.path(id)).into_bytes();
                let value = looking.xattr_of(super::At::Path(&path), &found, name)?;
                before.xattrs.insert(name.clone(), value);
            }
            (*set, *mtime) = (before, Some(stat.mtime_ns));
        }
        // Of what changes otherwise, the time.
        let named = summary.names().keys().map(|(dir, _)| *dir);
        let mtimes = self.names.iter().flat_map(|private| private.mtimes()).map(|(id, _)| *id);
        let known = mtimes.filter(|id| *id == ROOT || summary.objects.contains_key(id));
        let changed: BTreeSet<u64> = named.chain(known).chain(summary.contents.keys().copied()).collect();
        for id in changed {
            if id == ROOT || !is_made(summary, id) {
                let stat = looking.stat_of(id)?;
                summary.sets.entry(id).or_insert_with(|| (Set::default(), Some(stat.mtime_ns)));
                let root = || Known::Settled(Box::new(Settled { stat, place: (0, [].into()), base: None }));
                if id == ROOT {
                    summary.objects.entry(id).or_insert_with(root);
                }
            }
        }
        // What the group has made is only taken away: what it was made as does not matter.
        let names: Vec<u64> = summary.names().values().flat_map(|(before, after)| [*before, *after]).collect();
        let mut placeholders = HashMap::new();
        for id in names {
            if id != 0 && !summary.objects.contains_key(&id) {
                let kind = self.store.names.with(|state| state.objects.get(&id).map_or(0, |object| object.mode()));
                let looks = (kind, adopted.contains(id));
                let birth = placeholders.entry(looks).or_insert_with(|| Arc::new(Birth::placeholder(looks.0, looks.1)));
                summary.objects.insert(id, Known::Born(birth.clone()));
            }
        }
        debug_assert!(is_readable(summary), "an undo is read as it is written");
        Ok(())
    }

    /// The bytes of a file that the group changes, as everybody has them.
    fn content_before(&self, file: &Arc<Inner>, content: &Content) -> Result<Content> {
        let size = file.size.load(Ordering::Acquire);
        // What is beyond comes as zeros.
        let end = content.limit.min(content.size);
        let mut ranges: Vec<(u64, u64)> = content.pieces.iter().map(|piece| (piece.offset, piece.end())).collect();
        ranges.extend(content.space.iter().filter(|(_, how)| how.zeroes()).map(|(range, _)| (range.start, range.end)));
        ranges.push((end, u64::MAX));
        let ranges = merged(ranges);
        let reserved = self.reserved_before(file, &ranges, end)?;
        let (mut there, mut space) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; STEP as usize];
        for (from, to) in ranges.into_iter().map(|(from, to)| (from.min(size), to.min(size))) {
            let mut at = from;
            while at < to {
                let data = self.next_data(file, at)?.map_or(to, |data| data.min(to));
                // What is beyond comes as a hole. Of less than a block there is none.
                let hole = at..data.min(end).max(at);
                let blocks = whole_blocks(&hole);
                if blocks.is_empty() {
                    there.push((hole.start, hole.end));
                } else {
                    there.extend([(hole.start, blocks.start), (blocks.end, hole.end)]);
                    space.push((blocks, Fallocate::Punch));
                }
                let until = if data < to { self.next_hole(file, data)?.map_or(to, |hole| hole.min(to)) } else { to };
                at = data;
                while at < until {
                    let length = (until - at).min(STEP);
                    let part = &mut buffer[..length as usize];
                    self.read(file, at, part)?;
                    if at < end || part.iter().any(|byte| *byte != 0) {
                        there.push((at, at + length));
                    }
                    at += length;
                }
            }
        }
        there.retain(|(from, to)| from < to);
        let space = put_over(space, reserved);
        Ok(Content { limit: content.limit.min(size), size, pieces: runs(there), space, ..Content::default() })
    }

    /// The space that a file has for bytes of these ranges without data in it. The group itself ends it at `end`.
    fn reserved_before(
        &self,
        file: &Arc<Inner>,
        ranges: &[(u64, u64)],
        end: u64,
    ) -> Result<Vec<(Range<u64>, Fallocate)>> {
        let Some(home) = self.store.home_to_read(file)? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for (from, to) in home.reserved()? {
            let parts = ranges.iter().map(|range| whole_blocks(&(range.0.max(from)..range.1.min(to))));
            for range in parts.filter(|range| !range.is_empty()) {
                // Holes in front of the end are made there first.
                let how = if range.start < end { Fallocate::Zero } else { Fallocate::Keep };
                all.push((range, how));
            }
        }
        Ok(all)
    }

    /// Undoes a provisional group, but for the commit.
    fn revert(&mut self, undo: &ParkedFile) -> Result<()> {
        let summary = &undo.summary;
        let ids = summary.objects.keys().chain([&ROOT]).map(|id| (*id, *id)).collect::<HashMap<_, _>>();
        let applying = Applying { summary, ids, wrong: Vec::new() };
        self.claim_all(&applying)?;
        for &id in summary.moved().keys() {
            self.join_named(&applying.path(id), &found(id, summary.kind(id)))?;
        }
        for ((dir, name), (before, after)) in summary.names() {
            self.set_name(&Last { dir: *dir, name: name.to_vec() }, *after, *before)?;
        }
        for &id in summary.moved().keys().filter(|id| summary.kind(**id) == Kind::Regular) {
            let file = self.store.file_of(b"", &found(id, Kind::Regular))?;
            self.touch(self.find(&file));
        }
        for (id, content) in &summary.contents {
            let file = self.open_object(*id, true)?;
            self.join(&file)?;
            self.set_content(&undo.written(&*self.store.host, *id)?, &file, content, Reserve::Not)?;
        }
        for (id, (set, mtime_ns)) in &summary.sets {
            self.set_all(*id, &applying.path(*id), (set, *mtime_ns), true)?;
        }
        self.is_applied(undo.head.id)
    }
}

/// The blocks that lie in a range as a whole.
fn whole_blocks(range: &Range<u64>) -> Range<u64> {
    range.start.next_multiple_of(BLOCK)..range.end - range.end % BLOCK
}

type Spaces = Vec<(Range<u64>, Fallocate)>;

/// Puts `over` on top of `under`. The ranges of each are in order; so are those that come of it, and none overlap.
fn put_over(under: Spaces, over: Spaces) -> Spaces {
    let mut all: Spaces = Vec::new();
    for (range, how) in under {
        let mut at = range.start;
        for (taken, _) in over.iter().filter(|(taken, _)| taken.start < range.end && taken.end > range.start) {
            all.push((at..taken.start.max(at), how));
            at = taken.end.max(at);
        }
        all.push((at..range.end.max(at), how));
    }
    all.extend(over);
    all.retain(|(range, _)| !range.is_empty());
    all.sort_by_key(|(range, _)| range.start);
    all.dedup_by(|next, last| {
        let touches = last.0.end == next.0.start && last.1 == next.1;
        if touches {
            last.0.end = next.0.end;
        }
        touches
    });
    all
}

fn found(id: u64, kind: Kind) -> Found {
    Found { id, kind, stat: None }
}

/// The directories that the group had adopted.
pub(super) fn adopted(undo: &ParkedFile) -> impl Iterator<Item = u64> + '_ {
    let is_adopted = |(id, known): (&u64, &Known)| match known {
        Known::Born(birth) if birth.is_adopted_directory() => Some(*id),
        _ => None,
    };
    undo.summary.objects.iter().filter_map(is_adopted)
}

impl StoreInner {
    /// What a recovery has to know of a group that is undone already, and not written back.
    pub(in crate::hostdir) fn remember_undone(&self, id: u64) {
        // Where it cannot be read, what is in such directories is in the way of a checkpoint, and not of the open.
        if let Ok(undo) = ParkedFile::read(&*self.host, &undo_path(id)) {
            self.names.with(|state| state.whole.extend(adopted(&undo).map(|id| (id, ANY_TIME.into()))));
        }
    }

    /// All below `target` is written back. Provisional groups that are `done` are final, and that survives when this
    /// returns.
    pub(in crate::hostdir) fn finish_provisional(
        &self,
        target: u64,
        done: impl Fn(&Provisional) -> bool,
    ) -> Result<()> {
        let mut provisional = self.parked.provisional.lock().unwrap();
        provisional.iter().filter(|group| done(group)).try_for_each(|group| self.make_final(group.id, target))?;
        provisional.retain(|group| !done(group));
        Ok(())
    }

    /// Removes the undo of a group. It does not come back after a crash when this has returned.
    pub(in crate::hostdir) fn remove_undo(&self, id: u64) -> Result<()> {
        self.unlink_parked(&undo_path(id))?;
        self.sync_parked(site::UNDO_END)
    }

    /// A joint commit is decided: its part here, group `id`, is final, and that survives when this returns.
    pub(in crate::hostdir) fn finish_joint(&self, id: u64) -> Result<()> {
        // The pass that has written it back has done so with all before it.
        let provisional = self.parked.provisional.lock().unwrap().clone();
        let target = provisional.iter().find(|group| group.id == id).map_or(0, |group| group.sequence + 1);
        self.between_passes(|| {
            self.finish_provisional(target, |group| group.id == id)?;
            // What a pass would write once more would get another time of change (`kept`, invariant 7).
            if self.kept.has_kept(id) { self.release_written_back(target).map(drop) } else { Ok(()) }
        })?;
        self.kept.is_to_keep(None);
        self.names.with(|state| state.kept = Ids::default());
        Ok(())
    }

    /// Undoes a provisional group and writes that back, because of `error`. Gives that; [`Error::Poisoned`] where it
    /// was refused too: the next open goes on with it.
    pub(in crate::hostdir) fn take_back(&self, id: u64, error: Error) -> Error {
        self.parked.is_to_be_undone(id);
        self.kept.is_to_keep(None);
        self.is_not_kept(id);
        match self.undo(id).and_then(|()| self.kept.restoring(|| self.checkpoint())) {
            Ok(_) => {
                self.names.with(|state| state.kept = Ids::default());
                error
            }
            Err(other) => self.poison_because(|| format!("{error}; and it could not be undone: {other}")),
        }
    }

    /// Undoes what recovery has found to be provisional, unless a joint commit has decided it.
    pub(in crate::hostdir) fn undo_provisional(&self) -> Result<()> {
        let provisional = self.parked.provisional.lock().unwrap().clone();
        for group in provisional {
            let part = self.part_among(&group.applied)?;
            let mut why = None;
            if !part.map_or(Ok(false), |part| self.is_decided(part))? {
                self.unlink_line(group.id)?;
                self.is_not_kept(group.id);
                match self.undo(group.id) {
                    Ok(()) => continue,
                    Err(error @ Error::Poisoned(_)) => return Err(error),
                    // The other parts are undone, and a later open can undo this one.
                    Err(error) if part.is_some() && !self.options.release => return Err(cannot_be_undone(&error)),
                    // Without an undo, which somebody has removed, or where another program is in the way, the group is
                    // final. Others may build on it from here on.
                    Err(error) => {
                        why = Some(error.to_string());
                        self.leave_whole(group.id)?;
                    }
                }
            }
            let is_kept = part.is_some() && why.is_none() && self.keep_ready(group.id)?;
            if let Some(part) = part {
                let settled = &mut *self.joint.settled.lock().unwrap();
                match why {
                    Some(why) => settled.kept.push((part, why)),
                    None => settled.committed.push(part),
                }
            }
            match if is_kept { Ok(()) } else { self.drop_undo(group.id) } {
                Ok(()) => {}
                Err(error @ Error::Poisoned(_)) => return Err(error),
                // There is none; or no space for its other name.
                Err(_) => self.remove_undo(group.id)?,
            }
            self.parked.provisional.lock().unwrap().retain(|other| other.id != group.id);
            group.applied.iter().for_each(|id| self.parked.has_applied(group.sequence, *id));
            self.remove_applied(group.sequence + 1)?;
        }
        self.names.with(|state| state.kept = Ids::default());
        Ok(())
    }

    /// A group that could not be undone is final, but for directories that it has removed with everything in them.
    /// Other programs may have changed something in them, so they stay, each at its name. They are durable there when
    /// this returns.
    fn leave_whole(&self, id: u64) -> Result<()> {
        let Ok(undo) = ParkedFile::read(&*self.host, &undo_path(id)) else { return Ok(()) };
        let named: HashSet<u64> = undo.summary.names().keys().map(|(dir, _)| *dir).collect();
        for id in lost(&undo.summary).filter(|id| undo.summary.kind(*id) == Kind::Directory && !named.contains(id)) {
            let (Some(path), Some(settled)) = (undo.summary.path_before(id), undo.summary.settled(id)) else {
                continue;
            };
            let anchor = anchor_path(id);
            let is_full = |path: &[u8]| self.host.read_dir(path).is_ok_and(|inside| !inside.is_empty());
            let is_it = |path: &[u8]| self.host.stat(path).is_ok_and(|stat| stat.inode() == settled.stat.inode());
            let stays = match is_it(&anchor) {
                // Where something else has its name by now, it goes with the undo.
                true => {
                    is_full(&anchor) && self.host.rename(site::NAMES_ANCHOR, &anchor, &path, Rename::NoReplace).is_ok()
                }
                false => is_it(&path) && is_full(&path),
            };
            if stays {
                self.names.with(|state| {
                    state.fall(id);
                    state.set_home(settled.place.0, &settled.place.1, 0);
                });
            }
        }
        let gone = adopted(&undo).chain(lost(&undo.summary));
        self.names.with(|state| gone.for_each(|id| _ = state.whole.remove(&id)));
        // Before the undo goes, and with it all that is still on an anchor.
        self.host.sync_all(site::NAMES_BARRIER).map_err(|error| self.poison(&Error::Media(error)))
    }

    /// Commits a group that undoes the provisional one. That makes passes, where it looks for space: the tail does not
    /// move past the provisional group before the commit, and what that has removed keeps a place.
    pub(in crate::hostdir) fn undo(&self, id: u64) -> Result<()> {
        let undo = ParkedFile::read(&*self.host, &undo_path(id))?;
        let store = self.itself.get().and_then(std::sync::Weak::upgrade).expect("an open store is shared");
        let _caller = self.names.caller();
        self.names.with(|state| {
            // What the group has taken away whole is wherever it was when that was broken off.
            let whole = adopted(&undo).chain(lost(&undo.summary));
            state.whole.extend(whole.map(|id| (id, ANY_TIME.into())));
            state.kept.extend(lost(&undo.summary));
        });
        let mut group = Running::new(store, Sharing::Own);
        self.let_grow(true);
        let done = group.revert(&undo).and_then(|()| group.commit_to_log());
        self.let_grow(false);
        done?;
        self.parked.is_not_applied(id);
        Ok(())
    }
}
