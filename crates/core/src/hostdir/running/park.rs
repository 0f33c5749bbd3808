//! What a running group would change, and how it is parked.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use wholly_changes::records::{Baseline, Birth, LARGEST_FILE};
use wholly_changes::{
    Base, Content, FOLDER, Ids, Kind, Known, LARGEST_SUM, LONGEST_NOTE, Name, Neighbour, ROOT, Set, Settled, Summary,
    UNFINISHED, Writing, is_readable, named_content, path_of, runs,
};
use wholly_host::host_error;
use wholly_media::Site;
use wholly_vfs::{Rename, Stat};

use super::overtaken::AtHome;
use super::{Inner, Running};
use crate::error::{Error, Result};
use crate::hostdir::clock::Mtime;
use crate::hostdir::joint::folder::prepared_path;
use crate::hostdir::names::{Change, Found, Object, names_in};
use crate::hostdir::parked::ParkedId;
use crate::hostdir::table::{is_taken_away, look_steadily};
use crate::hostdir::undo_store::{is_any_kept, only_tells};
use crate::log::checksum::checksum;
use crate::site;
use sync::Ordering;

/// What a summary of a running group is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// To be looked at.
    Review,
    /// To be parked: that takes names for all that it speaks of.
    Parking,
    /// To undo it once it is written back: also what it changes of objects that it removes.
    Undo,
}

/// The most names of a [part](Parts) of a summary.
const NAMES_OF_PART: usize = 1024;

/// What a group would change, in parts: of very many names only some are in memory at a time. Content and attributes
/// are in the first part. Each part has the objects that it speaks of. An object's other names may be in other parts.
struct Parts<'r, N> {
    running: &'r Running,
    what_for: For,
    names: N,
    is_first: bool,
}

impl<'r, N: Iterator<Item = (&'r Name, &'r Change)>> Iterator for Parts<'r, N> {
    type Item = Result<Summary>;

    fn next(&mut self) -> Option<Result<Summary>> {
        let mut names = self.names.by_ref().take(NAMES_OF_PART).peekable();
        let is_first = std::mem::take(&mut self.is_first);
        (is_first || names.peek().is_some()).then(|| self.running.summarize_part(self.what_for, names, is_first))
    }
}

/// Bytes that are read at a time: a whole number of what checksums go by.
const BUFFER: usize = 1 << 20;

impl Running {
    /// See [`Group::park`](crate::Group::park).
    pub(in crate::hostdir) fn park(&mut self, note: &str, keep: Option<Duration>) -> Result<ParkedId> {
        self.park_with(note, keep, &[])
    }

    /// The same, as one part of several.
    pub(in crate::hostdir) fn park_with(
        &mut self,
        note: &str,
        keep: Option<Duration>,
        others: &[Neighbour],
    ) -> Result<ParkedId> {
        self.set_aside_as_parked(note, keep, others).or_else(|error| match error {
            // Nothing goes home before that is settled, and until then the log keeps the group, too.
            Error::Conflict { .. } => self.commit_to_log().and(Err(error)),
            error => Err(error),
        })
    }

    /// Parks the group; where it fails, the group is not parked.
    pub(super) fn set_aside_as_parked(
        &mut self,
        note: &str,
        keep: Option<Duration>,
        others: &[Neighbour],
    ) -> Result<ParkedId> {
        if note.len() > LONGEST_NOTE || note.contains('\0') {
            return Err(Error::invalid(format!("a note has at most {LONGEST_NOTE} bytes, none of them zero")));
        }
        let Some(mut summary) = self.summarize_to_set_aside()? else {
            return Err(Error::invalid("a group that has changed nothing cannot be parked"));
        };
        summary.parts = others.to_vec();
        let (store, id) = (self.store.clone(), ParkedId(self.id));
        store.make_parked_folder()?;
        let now = store.host.now_ns();
        let keep = keep.map(|keep| i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX));
        let expires = keep.map_or(0, |keep| now.saturating_add(keep).max(1));
        let path = path_of(id.0);
        self.keep_staged(id.0, &mut summary)
            .and_then(|()| self.set_aside(&mut summary, (id.0, note), (now, expires), (&path, site::PARK_RENAME)))
            .inspect_err(|_| store.remove_unused_contents(id.0))
            .map_err(|error| match error {
                // It is about the store's own folder, not about a file that others have changed.
                Error::Conflict { path, .. } => Error::Refused(path, Errno::STALE),
                error => error,
            })?;
        store.sync_parked(site::PARK_SYNC_DIR)?;
        if expires != 0 {
            store.expires_at(expires);
        }
        self.abort();
        Ok(id)
    }

    /// Prepares the group for a joint commit: what it would change survives by itself, as the prepared group `id`, when
    /// this returns. It goes on.
    pub(in crate::hostdir) fn prepare(&mut self, id: u64, summary: &mut Summary) -> Result<()> {
        let now = self.store.host.now_ns();
        let place = summary.coordinator.as_ref().map_or_else(String::new, Neighbour::place);
        let note: String =
            format!("part of a joint commit that {place} decides").chars().take(LONGEST_NOTE / 4).collect();
        summary.applies = self.names.as_ref().and_then(|names| names.applied.first().copied());
        self.set_aside(summary, (id, &note), (now, 0), (&prepared_path(id), site::JOINT_PREPARE))?;
        self.store.sync_parked(site::JOINT_PREPARE_SYNC)
    }

    /// Commits a group that was prepared as `id`: its record says that it is that one.
    pub(in crate::hostdir) fn commit_prepared(&mut self, id: u64) -> Result<()> {
        self.is_applied(id)?;
        self.commit_to_log()
    }

    /// What the group would change, with all by which that is known again; none where it changes nothing.
    pub(in crate::hostdir) fn summarize_to_set_aside(&mut self) -> Result<Option<Summary>> {
        self.check_open()?;
        if self.takes_back() {
            // What it gives names again has none by which another process would find it. In a joint commit it is
            // written back before the decision; where that is given up, its kept undo is there still.
            return Ok(Some(Summary::default()));
        }
        let summarize = || {
            look_steadily(|| {
                let mut summary = self.summarize(For::Parking)?;
                let lasts = self.lasts(&summary)?;
                if lasts && !summary.is_empty() {
                    self.find_bases(&mut summary)?;
                    // What was looked at one by one, others may have changed meanwhile, so that it fits together no
                    // more.
                    if !is_readable(&summary) {
                        return Err(Error::NotFound("what the group builds on, as it was a moment ago".into()));
                    }
                }
                Ok((summary, lasts))
            })
        };
        let (mut summary, mut lasts) = summarize()?;
        if !lasts && !summary.is_empty() {
            self.store.checkpoint()?;
            (summary, lasts) = summarize()?;
            if !lasts {
                return Err(Error::Busy("what the group builds on".into(), "it is being written back".into()));
            }
        }
        Ok(Some(summary).filter(|summary| !summary.is_empty()))
    }

    /// Writes the file of a group that is set aside. It survives when this returns, but for its name.
    fn set_aside(
        &self,
        summary: &mut Summary,
        (id, note): (u64, &str),
        times: (i64, i64),
        (path, rename): (&[u8], Site),
    ) -> Result<()> {
        let store = &self.store;
        let unfinished = [path, UNFINISHED].concat();
        let head = (store.log.volume_id(), id, note);
        let written =
            Writing::new(&*store.host, &unfinished, head, times).and_then(|writing| self.write_out(writing, summary));
        let named = written.and_then(|()| {
            let renamed = store.host.rename(rename, &unfinished, path, Rename::Replace);
            renamed.map_err(|error| host_error(error, path))
        });
        // What stays of it the next open removes.
        named.inspect_err(|_| _ = store.host.unlink(site::PARK_REMOVE, &unfinished))
    }

    /// Copies the bytes that the group wrote, unless they are in content files, and all else.
    fn write_out(&self, mut writing: Writing, summary: &mut Summary) -> Result<()> {
        let mut buffer = Vec::new();
        for file in &self.seat().files {
            let content = summary.contents.get_mut(&file.inner.id).filter(|content| content.file.is_none());
            let Some(content) = content else { continue };
            for piece in &mut content.pieces {
                buffer.resize(piece.length as usize, 0);
                // Not what lies beneath: a bystander may have taken that away.
                self.read_own(&file.inner, piece.offset, &mut buffer)?;
                writing.write(piece, &buffer)?;
            }
        }
        writing.add(summary)?;
        writing.finish()
    }

    /// Whether nothing would be parked.
    pub(in crate::hostdir) fn changes_nothing(&self) -> Result<bool> {
        self.check_open()?;
        look_steadily(|| self.summarize(For::Review)).map(|summary| summary.is_empty())
    }

    /// What the group would change, to be looked at.
    pub(in crate::hostdir) fn review(&self) -> Result<Summary> {
        self.check_open()?;
        self.check_shown()?;
        self.summarize(For::Review)
    }

    /// What the group would change, net.
    pub(super) fn summarize(&self, what_for: For) -> Result<Summary> {
        self.summarize_part(what_for, self.changed_names(), true)
    }

    /// What [`summarize`](Self::summarize) returns, in parts, so that only one of them is in memory at a time.
    pub(super) fn summarize_in_parts(&self, what_for: For) -> impl Iterator<Item = Result<Summary>> {
        Parts { running: self, what_for, names: self.changed_names(), is_first: true }
    }

    /// The names that are otherwise, in order.
    fn changed_names(&self) -> impl Iterator<Item = (&Name, &Change)> + Clone {
        let changes = self.names.iter().flat_map(|private| private.changes());
        changes.filter(|(_, change)| change.committed != change.after)
    }

    /// The objects that get names, and those that lose names.
    fn moved(&self) -> (Ids, Ids) {
        let changes = self.changed_names().map(|(_, change)| *change);
        let gained = changes.clone().map(|change| change.after).filter(|&id| id != 0).collect();
        (gained, changes.map(|change| change.committed).filter(|&id| id != 0).collect())
    }

    /// The objects that the group takes all names from.
    pub(super) fn unnamed(&self) -> Ids {
        let (gained, lost) = self.moved();
        lost.iter().filter(|id| !gained.contains(*id)).collect()
    }

    /// What becomes of these names, and, in the part that has the rest, of content and attributes.
    fn summarize_part<'r>(
        &self,
        what_for: For,
        names: impl Iterator<Item = (&'r Name, &'r Change)>,
        has_rest: bool,
    ) -> Result<Summary> {
        let to_park = what_for == For::Parking;
        if to_park {
            self.check_shown()?;
        }
        let mut summary = Summary::default();
        let everybody = self.everybody();
        let told: BTreeSet<u64> = self.told().iter().filter(|_| has_rest).map(|(id, _)| *id).collect();
        let mut speaks_of: Vec<u64> = told.iter().copied().collect();
        let is_born = |id: u64| self.names.as_ref().is_some_and(|private| private.is_born(id));
        let mut dir = 0;
        for (name, change) in names {
            let Change { committed, after } = *change;
            match what_for == For::Undo && committed == 0 && is_born(after) {
                true => summary.add_new(name.clone(), after),
                false => summary.add_name(name.clone(), committed, after),
            }
            if std::mem::replace(&mut dir, name.0) != name.0 {
                speaks_of.push(dir);
            }
            speaks_of.extend([committed, after].into_iter().filter(|id| *id != 0));
        }
        if has_rest && what_for == For::Undo {
            // Names that came and went are no change, but of its time.
            let mtimes = self.names.iter().flat_map(|private| private.mtimes());
            speaks_of.extend(mtimes.map(|(id, _)| *id).filter(|id| !is_born(*id)));
        }
        // What the group made and gave no name is gone with it, and so is what nobody else has a name of any more.
        let (gained, lost) = if has_rest { self.moved() } else { Default::default() };
        let stays = |id: u64| -> Result<bool> {
            let (gains, loses) = (gained.contains(id), lost.contains(id));
            if what_for == For::Undo {
                return Ok(!is_born(id));
            }
            match is_born(id) {
                true => Ok(gains),
                false if gains || !loses => Ok(gains || self.has_place(id)),
                false => Ok(!self.has_lost_all(id)?),
            }
        };
        for (i, file) in self.seat().files.iter().enumerate().filter(|_| has_rest) {
            let id = file.inner.id;
            let before = if is_born(id) { 0 } else { file.inner.size.load(Ordering::Acquire) };
            let ranges = match file.staged {
                Some(_) => self.staged_runs(i)?,
                None => self
                    .seat()
                    .writes
                    .in_range(i as u32, 0, u64::MAX)
                    .map(|write| (write.offset, write.end()))
                    .collect(),
            };
            let space: Vec<_> = match &file.staged {
                // What is zeroed there is found as holes.
                Some(staged) => staged.space.as_calls().filter(|(_, how)| how.reserves()).collect(),
                None => file.wishes.iter().flat_map(|wishes| wishes.as_calls()).collect(),
            };
            let is_same = ranges.is_empty() && space.is_empty() && file.limit >= before && file.size == before;
            if !is_same && stays(id)? {
                let limit = if is_born(id) { 0 } else { file.limit.min(LARGEST_FILE) };
                summary
                    .contents
                    .insert(id, Content { limit, size: file.size, space, pieces: runs(ranges), file: None });
                speaks_of.push(id);
            } else if let Some(ns) = file.mtime.seen().filter(|_| !is_born(id))
                && stays(id)?
            {
                // An empty file was emptied: it has another time by that.
                summary.sets.insert(id, (Set::default(), Some(ns)));
                speaks_of.push(id);
            }
        }
        let of_files: HashMap<u64, Mtime> =
            self.seat().files.iter().filter(|_| has_rest).map(|file| (file.inner.id, file.mtime)).collect();
        for (id, set) in self.names.iter().flat_map(|private| private.sets()).filter(|_| has_rest) {
            if stays(*id)? {
                let told = self.told_mtime(*id, is_born(*id), &of_files);
                let told = told.or_else(|| summary.sets.get(id)?.1);
                summary.sets.insert(*id, (set.clone(), told));
                speaks_of.push(*id);
            }
        }
        let mut todo = speaks_of;
        while let Some(id) = todo.pop() {
            let is_silent = id == ROOT && !summary.sets.contains_key(&ROOT) && !told.contains(&ROOT);
            if summary.objects.contains_key(&id) || is_silent {
                continue;
            }
            let known = self.known(&everybody, id, is_born(id))?;
            match known {
                Some(Known::Settled(settled)) => {
                    todo.extend((settled.place.0 != 0).then_some(settled.place.0));
                    summary.objects.insert(id, Known::Settled(settled));
                }
                Some(birth) => _ = summary.objects.insert(id, birth),
                None if what_for == For::Review => summary.objects.extend(self.held(id)?.map(|held| (id, held))),
                None if to_park => {
                    return Err(Error::invalid("a file that had no name before the group cannot be parked"));
                }
                None => {}
            }
        }
        Ok(summary)
    }

    fn has_place(&self, id: u64) -> bool {
        id == ROOT
            || self.store.names.with(|state| state.objects.get(&id).is_some_and(|object| object.place().is_some()))
    }

    /// The time of the last change of an object, where the group has set that.
    fn told_mtime(&self, id: u64, born: bool, of_files: &HashMap<u64, Mtime>) -> Option<i64> {
        let birth = || self.store.names.with(|state| state.born_at(id));
        let mtime = of_files.get(&id).copied().or_else(|| Some(self.names.as_ref()?.mtime_of(id)))?;
        match mtime {
            Mtime::Told(ns) if !born || birth() != Some(ns) => Some(ns),
            _ => None,
        }
    }

    /// What everybody knows of an object. None of what has no name for anybody else.
    fn known(&self, everybody: &Running, id: u64, born: bool) -> Result<Option<Known>> {
        let (birth, place) = self.store.names.with(|state| {
            let object = state.objects.get(&id);
            (object.and_then(Object::birth), object.and_then(|object| object.place().cloned()))
        });
        if born {
            return Ok(birth.map(|birth| Known::Born(Arc::new(birth))));
        }
        let place = if id == ROOT { Some((0, [].into())) } else { place };
        let Some(place) = place else { return Ok(None) };
        let inode = self.inode(id)?;
        let mut stat = match self.at_home(id)? {
            AtHome::Otherwise(_) => self.remembered(id),
            _ => {
                let stat = everybody.stat_of(id)?;
                // Something else has come to its name since.
                let is_other = inode.0 != 0 && stat.btime_ns != inode.1;
                let is_it = !is_other && Kind::of(stat.mode) == Kind::of(self.remembered(id).mode);
                if is_it { stat } else { self.remembered(id) }
            }
        };
        (stat.ino, stat.btime_ns) = inode;
        Ok(Some(Known::Settled(Box::new(Settled { stat, place, base: None }))))
    }

    /// What is held for a kept undo counts as made by the group that gives it a name.
    fn held(&self, id: u64) -> Result<Option<Known>> {
        let path = self.store.names.with(|state| state.host_path(id).filter(|_| state.held.contains(id)));
        let Some(path) = path else { return Ok(None) };
        let Stat { mode, uid, gid, rdev, btime_ns, atime_ns, mtime_ns, .. } =
            self.store.host.stat(&path).map_err(|error| host_error(error, &path))?;
        let target = match Kind::of(mode) {
            Kind::Symlink => self.store.host.read_link(&path).map_err(|error| host_error(error, &path))?,
            _ => Vec::new(),
        };
        let birth = Birth { mode, uid, gid, rdev, btime_ns, atime_ns, mtime_ns, target };
        Ok(Some(Known::Born(Arc::new(birth))))
    }

    /// What the table knows of an object that a bystander has taken away.
    fn remembered(&self, id: u64) -> Stat {
        let (mode, file, left) = self
            .store
            .names
            .with(|state| (state.objects.get(&id).map_or(0, |object| object.mode()), state.file(id), state.left(id)));
        let left = file.map_or(left, |file| file.baseline());
        let (size, mtime_ns, ctime_ns) = left.map_or((0, 0, 0), |left| (left.size, left.mtime_ns, left.ctime_ns));
        Stat { mode, size, mtime_ns, ctime_ns, nlink: 1, ..Stat::default() }
    }

    /// Whether nobody has a name of an object once the group has committed, as far as anybody knows.
    fn has_lost_all(&self, id: u64) -> Result<bool> {
        match self.stat_of(id) {
            Err(error) if is_taken_away(&error) => Ok(true),
            stat => Ok(stat?.nlink == 0),
        }
    }

    /// The host's inode of an object that lies there for good; 0 where it is not so far.
    fn inode(&self, id: u64) -> Result<(u64, i64)> {
        if id == ROOT {
            let stat = self.store.host.stat(b"").map_err(|error| host_error(error, b""))?;
            return Ok((stat.ino, stat.btime_ns));
        }
        self.store.settle(id)?;
        let tail = self.store.log.tail();
        Ok(self
            .store
            .names
            .with(|state| {
                let object = state.objects.get(&id)?;
                // What a pass is making, a crash may unmake.
                object.inode().filter(|_| object.made < tail && object.known)
            })
            .unwrap_or((0, 0)))
    }

    /// Whether all that a group speaks of can be found again without the log.
    fn lasts(&self, summary: &Summary) -> Result<bool> {
        for (id, known) in &summary.objects {
            let Known::Settled(settled) = known else { continue };
            let file = self.store.names.with(|state| state.file(*id));
            let is_large = settled.stat.size > LARGEST_SUM && self.relies_on_bytes(summary, *id)?;
            // A pass would change its times.
            let is_waiting = is_large && file.is_some_and(|file| !file.is_clean() || file.mtime().is_some());
            if settled.stat.ino == 0 || is_waiting {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the group changes the bytes of a file, or takes its last name.
    pub(super) fn relies_on_bytes(&self, summary: &Summary, id: u64) -> Result<bool> {
        if summary.kind(id) != Kind::Regular || summary.settled(id).is_none() {
            return Ok(false);
        }
        let loses = summary.moved().get(&id).is_some_and(|moves| !moves.lost.is_empty() && moves.gained.is_empty());
        Ok(summary.contents.contains_key(&id) || (loses && self.has_lost_all(id)?))
    }

    /// What the bytes of a file are.
    fn base(&self, id: u64) -> Result<Base> {
        let file = self.store.file_of(b"", &Found { id, kind: Kind::Regular, stat: None })?;
        if self.store.lies_as_left(&file)? { self.store.base_of(&file) } else { Ok(Base::Lost) }
    }

    /// Finds out what the bytes are that the group relies on.
    fn find_bases(&self, summary: &mut Summary) -> Result<()> {
        let ids: Vec<u64> = summary.objects.keys().copied().collect();
        for id in ids {
            let is_told = self.told().iter().any(|(told, _)| *told == id);
            if !is_told && !self.relies_on_bytes(summary, id)? {
                continue;
            }
            let base = match self.base(id) {
                _ if is_told => Base::Lost,
                // A bystander has taken it away.
                Err(error) if is_taken_away(&error) => Base::Lost,
                base => base?,
            };
            if let Some(Known::Settled(settled)) = summary.objects.get_mut(&id) {
                settled.base = Some(base);
            }
        }
        Ok(())
    }
}

impl crate::hostdir::StoreInner {
    /// Whether home has the bytes that the store has left there, as far as its size and its time of modification tell.
    fn lies_as_left(&self, file: &Inner) -> Result<bool> {
        let state = file.home_state.lock().unwrap();
        let (None, Some(then)) = (&state.conflict, state.baseline) else { return Ok(state.conflict.is_none()) };
        let now = self.stat_at_home(file)?;
        Ok(now.is_none_or(|now| (now.size, now.mtime_ns) == (then.size, then.mtime_ns)))
    }

    /// By what the committed bytes of a file are known again.
    pub(in crate::hostdir) fn base_of(&self, file: &Inner) -> Result<Base> {
        let size = file.size.load(Ordering::Acquire);
        if size > LARGEST_SUM {
            return self.home_of(file);
        }
        match self.home_to_read(file) {
            // Whoever may not read a file may remove it all the same.
            Err(error) if error.errno() == Errno::ACCESS.raw_os_error() => return self.home_of(file),
            opened => opened?,
        };
        self.sum_of(file, size).map(Base::Sum)
    }

    /// The checksum of the first `size` committed bytes of a file, as if there were no others.
    pub(super) fn sum_of(&self, file: &Inner, size: u64) -> Result<u64> {
        self.home_to_read(file)?;
        let mut buffer = vec![0; BUFFER.min(size as usize)];
        let (mut sum, mut at) = (0, 0);
        while at < size {
            let length = (size - at).min(BUFFER as u64) as usize;
            file.read_within(self, at, &mut buffer[..length], u64::MAX)?;
            sum = checksum(sum, &buffer[..length]);
            at += length as u64;
        }
        Ok(checksum(sum, &size.to_le_bytes()))
    }

    /// How a file lies at home.
    fn home_of(&self, file: &Inner) -> Result<Base> {
        let _still = self.names.keep_homes();
        let path = self.names.with(|state| state.host_path(file.id)).ok_or_else(|| Error::NotFound(file.name()))?;
        let stat = self.host.stat(&path).map_err(|error| host_error(error, &path))?;
        Ok(Base::Stat(Baseline::of(&stat)))
    }

    /// Whether anything may be parked, or its undo kept.
    pub(in crate::hostdir) fn has_parked(&self) -> Result<bool> {
        let host = &*self.host;
        let is_group = |name: &Vec<u8>| !only_tells(name) && named_content(name).is_none();
        Ok(is_any_kept(host)? || names_in(host, FOLDER)?.iter().any(is_group))
    }
}
