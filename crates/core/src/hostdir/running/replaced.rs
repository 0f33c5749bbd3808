//! A group is taken back over what others have changed since: what takes it back replaces that too, and its own undo
//! has it.
//!
//! # Invariants
//!
//! 1. The contrary of the group, as amended, is compared and claimed like any other: nothing is written here.
//! 2. What stands where the group takes something back goes, with everything in it. So does what others have put into a
//!    directory that the group has made.
//! 3. A file gets the bytes that it had before the group, if the undo holds all of them, if others have only appended
//!    to it, or if its length is as the group left it. Else nothing is changed.

use std::collections::{BTreeMap, HashMap, HashSet};

use wholly_changes::{Kind, Known, Name, ROOT, Set, Settled, Summary};

use super::Running;
use super::apply::{Applying, content_changed};
use super::apply_over::is_whole;
use crate::error::{Error, Result};
use crate::hostdir::names::Found;
use crate::hostdir::parked::Mismatch;
use crate::hostdir::undo_store::{MOST_NAMES, ReadUndo};

/// The contrary of a group over what is there.
pub(super) struct Amended {
    pub summary: Summary,
    /// What its objects are by now.
    pub ids: HashMap<u64, u64>,
    /// What cannot be replaced.
    pub wrong: Vec<Mismatch>,
}

struct Replacing<'r, 'p> {
    running: &'r Running,
    applying: Applying<'p>,
    names: BTreeMap<Name, (u64, u64)>,
    /// What the contrary has not known.
    others: BTreeMap<u64, Known>,
    /// The same by their ids in the store.
    by_id: HashMap<u64, u64>,
    /// What is found by now.
    own: HashSet<u64>,
    next: u64,
}

impl Running {
    /// `ids` are the objects that were found. Directories that are `whole` go with everything in them.
    pub(super) fn replace_others(
        &self,
        contrary: &Summary,
        ids: HashMap<u64, u64>,
        kept: &ReadUndo,
        whole: &BTreeMap<u64, i64>,
    ) -> Result<Amended> {
        let own = ids.values().copied().collect();
        let next = contrary.objects.keys().next_back().copied().unwrap_or(ROOT).max(ROOT) + 1;
        let applying = Applying { ids, ..Applying::new(contrary) };
        let (names, others, by_id) = Default::default();
        let mut replacing = Replacing { running: self, applying, names, others, by_id, own, next };
        for (name, &(before, after)) in contrary.names() {
            replacing.replace_name(name, before, after)?;
        }
        for (&id, moves) in contrary.moved() {
            let is_removed = moves.gained.is_empty() && contrary.kind(id) == Kind::Directory;
            if is_removed && !whole.contains_key(&id) {
                replacing.remove_inside(id)?;
            }
        }
        let Replacing { mut applying, names, others, .. } = replacing;
        let mut summary = contrary.without_names();
        summary.objects.extend(others);
        names.into_iter().for_each(|(name, (before, after))| summary.add_name(name, before, after));
        summary.sets.retain(|id, (set, _)| applying.ids.contains_key(id) || *set != Set::default());
        let needed = summary.names().values().map(|(_, after)| *after).filter(|id| *id != 0);
        let needed = needed.chain(summary.contents.keys().copied()).chain(summary.sets.keys().copied());
        for id in needed.filter(|id| !applying.ids.contains_key(id)).collect::<HashSet<_>>() {
            applying.wrong(applying.path(id), "it is gone");
        }
        for (&id, content) in &mut summary.contents {
            let left = kept.left(id);
            // What is held is not among what the group has left, but noted.
            let size = left.map(|left| left.size).or_else(|| Some(kept.made.summary.before(id)?.size));
            let (Some(&now), Some(size)) = (applying.ids.get(&id), size) else { continue };
            let (path, stat) = self.host_stat(now)?;
            if stat.size == size || is_whole(content) {
                continue;
            }
            match left.map_or(Ok(false), |left| self.store.is_appended_to(&path, stat.size, left))? {
                true => content.limit = content.limit.min(size),
                false => {
                    let what = content_changed(size, stat.size);
                    applying.wrong(applying.path(id), format!("{what}, and the undo holds a part of it only"));
                }
            }
        }
        let (ids, wrong) = (applying.ids.clone(), applying.mismatches());
        Ok(Amended { summary, ids, wrong })
    }
}

impl Replacing<'_, '_> {
    /// The contrary gives a name to `after`, whatever has it now.
    fn replace_name(&mut self, name: &Name, before: u64, after: u64) -> Result<()> {
        let Some(&dir) = self.applying.ids.get(&name.0) else {
            if after != 0 {
                self.applying.wrong(self.applying.path_of(name), "its directory is gone");
            }
            return Ok(());
        };
        let there = match self.running.walk().lookup(dir, &name.1) {
            Err(Error::NotFound(_)) => None,
            there => there?,
        };
        let is_it = |found: &Found| before != 0 && self.applying.ids.get(&before) == Some(&found.id);
        match there {
            Some(found) if is_it(&found) => _ = self.names.insert(name.clone(), (before, after)),
            Some(found) => self.replace(name, &found, after)?,
            None if after != 0 => _ = self.names.insert(name.clone(), (0, after)),
            None => {}
        }
        Ok(())
    }

    /// Something else has a name: it goes.
    fn replace(&mut self, name: &Name, found: &Found, after: u64) -> Result<()> {
        if self.own.contains(&found.id) {
            let what = "something has been moved there that the command has changed, too";
            self.applying.wrong(self.applying.path_of(name), what);
            return Ok(());
        }
        let mut stat = self.running.stat(&name.1, found)?;
        let inode = self.running.store.names.with(|state| state.inode_of(found.id));
        (stat.ino, stat.btime_ns) = inode.unwrap_or_default();
        // A file may have several names.
        let known = self.by_id.get(&found.id).copied();
        let id = known.unwrap_or(self.next);
        if self.names.len() >= MOST_NAMES as usize {
            let what =
                format!("it would replace more than {MOST_NAMES} names, and so many cannot be kept for the redo");
            return Err(Error::unsupported(what));
        }
        if known.is_none() {
            self.next += 1;
            self.by_id.insert(found.id, id);
            self.others.insert(id, Known::Settled(Box::new(Settled { stat, place: name.clone(), base: None })));
            self.applying.ids.insert(id, found.id);
        }
        self.names.insert(name.clone(), (id, after));
        if found.kind == Kind::Directory { self.remove_inside(id) } else { Ok(()) }
    }

    /// Everything in a directory goes, but for what the contrary has a say about.
    fn remove_inside(&mut self, id: u64) -> Result<()> {
        let Some(&dir) = self.applying.ids.get(&id) else { return Ok(()) };
        for (entry, _) in self.running.walk().list(dir)? {
            let name: Name = (id, entry.into());
            if self.names.contains_key(&name) {
                continue;
            }
            if let Some(found) = self.running.walk().lookup(dir, &name.1)? {
                self.replace(&name, &found, 0)?;
            }
        }
        Ok(())
    }
}
