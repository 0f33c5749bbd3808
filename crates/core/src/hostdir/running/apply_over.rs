//! A parked group over what others have changed meanwhile: what the group relies on becomes what is there now, so that
//! what it says wins.
//!
//! # Terms
//!
//! - *stand-in*: what has the place of an object that is gone, or of a directory that the group makes. It is of the
//!   same kind, and the group's changes are made to it.
//! - *whole*: a file of which the group holds every byte that it would leave.
//!
//! # Invariants
//!
//! 1. The amended group is applied like any other: whatever it relies on, as amended, is claimed and compared once
//!    more. So what changes after the look is found, and nothing is written here.
//! 2. Only what has a name or a file of the group is replaced. What the group does not know of stays: a directory goes
//!    only if the group takes out all that is in it.
//! 3. A file gets the bytes that the group would have left in it, if the group holds it whole, or if others have
//!    appended to it only. If its length is as it was, it gets those bytes that the group has written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::apply::{Applying, content_changed};
use super::names::At;
use super::{Inner, Running};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::names::Found;
use crate::hostdir::parked::{Finder, Mismatch};
use sync::Ordering;
use wholly_changes::{
    Base, Content, CurrentObjects, Kind, Known, LARGEST_SUM, Name, ROOT, Settled, Summary, xattr_checksum,
};
use wholly_vfs::rules::PERMISSIONS;

/// Whether a group holds every byte of a file that it would leave.
pub(super) fn is_whole(content: &Content) -> bool {
    let zeroed = content.space.iter().filter(|(_, how)| how.zeroes()).map(|(range, _)| (range.start, range.end));
    let mut held: Vec<_> = content.pieces.iter().map(|piece| (piece.offset, piece.end())).chain(zeroed).collect();
    held.sort_unstable();
    let end = held.into_iter().fold(0, |end, (from, to)| if from <= end { end.max(to) } else { end });
    end >= content.limit.min(content.size)
}

/// A summary that is being amended.
struct Amending<'p> {
    looking: Running,
    finder: Finder,
    /// The summary as it was parked, and what is in the way of it still.
    applying: Applying<'p>,
    /// The objects of the summary by their ids in the store.
    own: HashMap<u64, u64>,
    amended: Summary,
    names: BTreeMap<Name, (u64, u64)>,
    /// For an object that the group has not known.
    next: u64,
}

impl StoreInner {
    /// What a parked group would change, over what others have changed meanwhile; and where it cannot be.
    pub(in crate::hostdir) fn amend(self: &Arc<Self>, summary: &Summary) -> Result<(Summary, Vec<Mismatch>)> {
        // So that each object has an inode by which it is found again.
        self.checkpoint()?;
        let mut amending = Amending {
            looking: Running::looking(self.clone()),
            finder: Finder::new(self.clone()),
            applying: Applying::new(summary),
            own: HashMap::from([(ROOT, ROOT)]),
            amended: summary.without_names(),
            names: BTreeMap::new(),
            next: summary.objects.last_key_value().map_or(ROOT, |(id, _)| *id).max(ROOT) + 1,
        };
        amending.find_all()?;
        amending.amend_names()?;
        amending.amend_contents()?;
        amending.amend_attributes()?;
        let Amending { mut amended, names, applying, .. } = amending;
        names.into_iter().for_each(|(name, (before, after))| amended.add_name(name, before, after));
        Ok((amended, applying.mismatches()))
    }
}

impl Amending<'_> {
    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<Found>> {
        match self.looking.walk().lookup(dir, name) {
            Err(Error::NotFound(_)) => Ok(None),
            found => found,
        }
    }

    fn now(&self, id: u64) -> Option<u64> {
        self.applying.ids.get(&id).copied()
    }

    fn found(&self, id: u64) -> Option<Found> {
        self.applying.found(id)
    }

    fn is_now(&mut self, id: u64, now: u64) {
        self.applying.ids.insert(id, now);
        self.own.insert(now, id);
    }

    /// What lies there, as the group would have found it.
    fn settled(&self, found: &Found, place: &Name) -> Result<Known> {
        let mut stat = self.looking.stat(&self.applying.path_of(place), found)?;
        let inode = self.looking.store.names.with(|state| state.inode_of(found.id));
        (stat.ino, stat.btime_ns) = inode.unwrap_or_default();
        Ok(Known::Settled(Box::new(Settled { stat, place: place.clone(), base: None })))
    }

    /// Looks for all objects: first for what the group has found itself, then for stand-ins, directories before what is
    /// in them.
    fn find_all(&mut self) -> Result<()> {
        let summary = self.applying.summary;
        let (mut gone, mut made) = (Vec::new(), Vec::new());
        for (&id, known) in &summary.objects {
            match known {
                Known::Settled(settled) => match self.finder.find(summary, id)? {
                    Some(now) => self.is_now(id, now),
                    None => gone.push((id, settled.place.clone())),
                },
                Known::Born(_) if summary.kind(id) == Kind::Directory => {
                    let gained = summary.moved().get(&id).and_then(|moves| moves.gained.first());
                    made.extend(gained.map(|name| (id, name.clone())));
                }
                Known::Born(_) => {}
            }
        }
        for mut todo in [gone, made] {
            // Each round finds those whose directories the one before has found.
            loop {
                let before = todo.len();
                let mut left = Vec::new();
                for (id, place) in todo {
                    match self.now(place.0) {
                        Some(dir) => self.find_stand_in(id, dir, &place)?,
                        None => left.push((id, place)),
                    }
                }
                todo = left;
                if todo.is_empty() || todo.len() == before {
                    break;
                }
            }
        }
        Ok(())
    }

    fn find_stand_in(&mut self, id: u64, dir: u64, place: &Name) -> Result<()> {
        let kind = self.applying.summary.kind(id);
        let found = self.lookup(dir, &place.1)?;
        if let Some(found) = found.filter(|found| found.kind == kind && !self.own.contains_key(&found.id)) {
            let known = self.settled(&found, place)?;
            self.amended.objects.insert(id, known);
            self.is_now(id, found.id);
        }
        Ok(())
    }

    fn amend_names(&mut self) -> Result<()> {
        let summary = self.applying.summary;
        for (name, &(before, after)) in summary.names() {
            self.amend_name(name, before, after)?;
        }
        for (&id, moves) in summary.moved() {
            let stays = |names: &[Name]| names.iter().filter(|name| self.names.contains_key(*name)).count();
            let has_moved = stays(&moves.lost) < moves.lost.len() && self.now(id).is_some();
            if has_moved && stays(&moves.gained) > 0 {
                self.applying.wrong(self.applying.path(id), "it has been moved, and the group moves it elsewhere");
            }
        }
        Ok(())
    }

    /// The group gives a name to `after`, whatever has it now.
    fn amend_name(&mut self, name: &Name, before: u64, after: u64) -> Result<()> {
        let Some(dir) = self.now(name.0) else {
            match self.applying.summary.settled(name.0) {
                // In what the group makes there is nothing else.
                None => _ = self.names.insert(name.clone(), (before, after)),
                Some(_) if after == 0 => {}
                Some(_) => self.applying.wrong(self.applying.path_of(name), "its directory is gone"),
            }
            return Ok(());
        };
        let there = self.lookup(dir, &name.1)?;
        let id = there.as_ref().map(|found| found.id);
        let is_as_was = if before == 0 { id.is_none() } else { id.is_some() && id == self.now(before) };
        if is_as_was {
            self.names.insert(name.clone(), (before, after));
            return Ok(());
        }
        let has_it = if after == 0 { id.is_none() } else { id.is_some() && id == self.now(after) };
        match there {
            _ if has_it => {}
            // What is made again where it was is not whole yet to a reader beside, after a crash and a write.
            None if before != 0 && matches!(self.applying.summary.objects.get(&after), Some(Known::Born(_))) => {
                self.applying.wrong(self.applying.path_of(name), "it is gone");
            }
            None => _ = self.names.insert(name.clone(), (0, after)),
            Some(found) => {
                let path = self.applying.path_of(name);
                let is_full = found.kind == Kind::Directory && !self.looking.walk().list(found.id)?.is_empty();
                if self.own.contains_key(&found.id) {
                    self.applying.wrong(path, "something has been moved there that the group changes, too");
                } else if is_full {
                    self.applying.wrong(path, "a directory that is not empty has its name");
                } else {
                    let known = self.settled(&found, name)?;
                    self.amended.objects.insert(self.next, known);
                    self.names.insert(name.clone(), (self.next, after));
                    self.next += 1;
                }
            }
        }
        Ok(())
    }

    fn amend_contents(&mut self) -> Result<()> {
        let summary = self.applying.summary;
        for &id in summary.contents.keys() {
            if summary.settled(id).is_some() && self.now(id).is_none() {
                self.applying.wrong(self.applying.path(id), "it is gone");
            }
        }
        for &id in summary.objects.keys() {
            self.amend_base(id)?;
        }
        Ok(())
    }

    /// What the bytes of a file are by now, where the group relies on them; and what the group leaves of them.
    fn amend_base(&mut self, id: u64) -> Result<()> {
        let summary = self.applying.summary;
        let Some(then) = summary.settled(id).filter(|settled| settled.base.is_some()) else { return Ok(()) };
        let found = self.found(id);
        let base = match &found {
            Some(found) if found.kind == Kind::Regular => {
                let file = self.looking.store.file_of(&self.applying.path(id), found)?;
                let now = self.looking.store.base_of(&file)?;
                if Some(now) != then.base {
                    self.amend_content(id, then, &file)?;
                }
                Some(now)
            }
            _ => None,
        };
        if let Some(Known::Settled(settled)) = self.amended.objects.get_mut(&id) {
            settled.base = base;
        }
        Ok(())
    }

    /// The bytes of a file are others than `then`.
    fn amend_content(&mut self, id: u64, then: &Settled, file: &Inner) -> Result<()> {
        let Some(content) = self.amended.contents.get_mut(&id) else { return Ok(()) };
        let (then_size, now_size) = (then.stat.size, file.size.load(Ordering::Acquire));
        if is_whole(content) {
            content.limit = 0;
            return Ok(());
        }
        let is_appended_to = then_size < now_size
            && then_size <= LARGEST_SUM
            && then.base == Some(Base::Sum(self.looking.store.sum_of(file, then_size)?));
        if is_appended_to {
            content.limit = content.limit.min(then_size);
        } else if then_size != now_size {
            let what = content_changed(then_size, now_size);
            self.applying.wrong(self.applying.path(id), format!("{what}, and the group holds a part of it only"));
        }
        Ok(())
    }

    /// What attributes are by now, where the group sets them; and what of its objects is gone for good.
    fn amend_attributes(&mut self) -> Result<()> {
        let summary = self.applying.summary;
        let is_made = |amended: &Summary, id: u64| matches!(amended.objects.get(&id), Some(Known::Born(_)));
        let named: Vec<u64> = self.names.values().map(|(_, after)| *after).filter(|id| *id != 0).collect();
        for id in named.into_iter().chain(summary.sets.keys().copied()) {
            if self.now(id).is_none() && !is_made(&self.amended, id) {
                self.applying.wrong(self.applying.path(id), "it is gone");
            }
        }
        for (id, (set, _)) in &mut self.amended.sets {
            let Some(found) = self.applying.found(*id) else { continue };
            let path = self.applying.path(*id);
            let stat = self.looking.stat(&path, &found)?;
            let before = &mut set.before;
            before.attributes.mode = stat.mode & PERMISSIONS;
            before.attributes.uid = stat.uid;
            before.attributes.gid = stat.gid;
            for name in set.xattrs.keys() {
                let now = self.looking.xattr_of(At::Path(&path), &found, name)?;
                before.xattrs.insert(name.clone(), now.as_deref().map(xattr_checksum));
            }
        }
        Ok(())
    }
}
