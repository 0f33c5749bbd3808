//! Part of a parked group: some of its changes, with those that they need.
//!
//! # Terms
//!
//! - *chosen*: the names and objects that the part has; *rest*: what the group has besides.
//! - *needs*: an object that moves needs all names that it loses or gets; a name in a new directory needs that; a
//!   directory that is removed needs all that the group takes out of it.
//!
//! # Invariants
//!
//! 1. The part has whatever a chosen change needs, so that it can be applied without the rest.
//! 2. If the part goes first, the rest can follow ([`settle`]): what the part has made is then an object like others.
//! 3. If the part stays away for good, the rest has nothing that needs a change of the part.

use std::collections::HashSet;
use std::sync::Arc;

use wholly_host::{HostFs, host_error};
use wholly_vfs::Rename;

use super::super::StoreInner;
use super::super::names::{Kind, Name, ROOT};
use super::super::running::{Running, Sharing};
use super::{
    Finder, Known, Mismatch, ParkedFile, ParkedId, Settled, Summary, UNFINISHED, Writing, is_readable, path_of,
};
use crate::error::{Error, Result};
use crate::site;

/// How often a group is amended before what is in its way is in its way.
const TRIES: usize = 3;

/// Changes of a group.
#[derive(Default)]
pub(crate) struct Choice<'s> {
    pub names: HashSet<&'s Name>,
    pub objects: HashSet<u64>,
}

/// What the choice is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChoiceFor {
    /// The part is applied, so it has what it needs (invariant 1).
    Applying,
    /// The part is left out, so it has what needs it (invariant 3).
    LeavingOut,
}

impl<'s> Choice<'s> {
    /// The changes at paths for which `is_wanted`, with what belongs to them.
    pub fn of(summary: &'s Summary, what_for: ChoiceFor, is_wanted: impl Fn(&[u8]) -> bool) -> Choice<'s> {
        let is_at = |paths: [Option<Vec<u8>>; 2]| paths.into_iter().flatten().any(|path| is_wanted(&path));
        let is_name = |name: &&Name| is_at([summary.name_before(name), summary.name_after(name)]);
        let is_object = |id: &u64| is_at([summary.path_before(*id), summary.path_after(*id)]);
        let mut names: Vec<&Name> = summary.names().keys().filter(is_name).collect();
        let mut objects: Vec<u64> =
            summary.contents.keys().chain(summary.sets.keys()).copied().filter(is_object).collect();
        let inside = |dir: u64| {
            let from: Name = (dir, [].into());
            summary.names().range(from..).map(|(name, _)| name).take_while(move |name| name.0 == dir)
        };
        // Of a directory: what takes a group back makes nothing new, and gives names to what has none.
        let is_made =
            |id: u64| summary.moved().get(&id).is_some_and(|moves| moves.lost.is_empty() && !moves.gained.is_empty());
        let is_removed = |id: u64| summary.moved().get(&id).is_some_and(|moves| moves.gained.is_empty());
        let mut chosen = Choice::default();
        loop {
            if let Some(id) = objects.pop() {
                if id == 0 || !chosen.objects.insert(id) {
                    continue;
                }
                names.extend(
                    summary.moved().get(&id).into_iter().flat_map(|moves| moves.lost.iter().chain(&moves.gained)),
                );
                let has_all = match what_for {
                    ChoiceFor::Applying => is_removed(id),
                    ChoiceFor::LeavingOut => is_made(id),
                };
                if has_all && summary.kind(id) == Kind::Directory {
                    names.extend(inside(id));
                }
            } else if let Some(name) = names.pop() {
                if !chosen.names.insert(name) {
                    continue;
                }
                let (before, after) = summary.names()[name];
                objects.extend([before, after]);
                let needs_directory = match what_for {
                    ChoiceFor::Applying => is_made(name.0),
                    ChoiceFor::LeavingOut => is_removed(name.0),
                };
                if needs_directory {
                    objects.push(name.0);
                }
            } else {
                return chosen;
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.objects.is_empty()
    }

    /// The same but for what `others` has.
    pub fn without(mut self, others: &Choice<'_>) -> Choice<'s> {
        self.names.retain(|name| !others.names.contains(*name));
        self.objects.retain(|id| !others.objects.contains(id));
        self
    }

    /// The changes that are chosen, and the others.
    pub fn split(&self, summary: &Summary) -> (Summary, Summary) {
        let one = |is_chosen: bool| {
            let mut part = Summary::default();
            part.parts.clone_from(&summary.parts);
            for (name, (before, after)) in summary.names() {
                if self.names.contains(name) == is_chosen {
                    part.add_name(name.clone(), *before, *after);
                }
            }
            let has = |id: &u64| self.objects.contains(id) == is_chosen;
            let contents = summary.contents.iter().filter(|(id, _)| has(id));
            part.contents = contents.map(|(id, content)| (*id, content.clone())).collect();
            let sets = summary.sets.iter().filter(|(id, _)| has(id));
            part.sets = sets.map(|(id, set)| (*id, set.clone())).collect();
            let named = part.names().iter().flat_map(|((dir, _), (before, after))| [*dir, *before, *after]);
            let mut todo: Vec<u64> =
                named.chain(part.contents.keys().copied()).chain(part.sets.keys().copied()).collect();
            while let Some(id) = todo.pop() {
                let Some(known) = summary.objects.get(&id).filter(|_| !part.objects.contains_key(&id)) else {
                    continue;
                };
                if let Known::Settled(settled) = known {
                    todo.push(settled.place.0);
                }
                part.objects.insert(id, known.clone());
            }
            part
        };
        (one(true), one(false))
    }
}

/// The part is in the directory now: what the rest has of its objects is as they lie there.
fn settle(host: &dyn HostFs, whole: &Summary, chosen: &Choice<'_>, rest: &mut Summary) -> Result<()> {
    let mut todo: Vec<u64> = rest.objects.keys().copied().filter(|id| chosen.objects.contains(id)).collect();
    while let Some(id) = todo.pop() {
        let moves = whole.moved().get(&id).filter(|moves| !moves.gained.is_empty());
        let (Some(moves), Some(path)) = (moves, whole.path_after(id)) else { continue };
        let stat = host.stat(&path).map_err(|error| host_error(error, &path))?;
        let place = moves.gained[0].clone();
        // Its directory may be one that the rest did not need before.
        if let Some(known) = whole.objects.get(&place.0).filter(|_| !rest.objects.contains_key(&place.0)) {
            rest.objects.insert(place.0, known.clone());
            todo.push(place.0);
        }
        rest.objects.insert(id, Known::Settled(Box::new(Settled { stat, place, base: None })));
    }
    Ok(())
}

/// Whether a path is another one or lies in that.
pub(crate) fn lies_in(path: &[u8], above: &[u8]) -> bool {
    above == b"." || path.strip_prefix(above).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

impl StoreInner {
    /// See [`Store::apply_part`](crate::Store::apply_part).
    pub(in crate::hostdir) fn apply_part(
        self: &Arc<Self>,
        id: ParkedId,
        paths: &[&[u8]],
        but: &[&[u8]],
    ) -> Result<bool> {
        let refuse = |_: &Summary, mismatches: Vec<Mismatch>| Err(Error::ChangedMeanwhile(id, mismatches.into()));
        self.apply_some(id, (paths, but), refuse)
    }

    /// See [`Store::apply_over`](crate::Store::apply_over).
    pub(in crate::hostdir) fn apply_over(
        self: &Arc<Self>,
        id: ParkedId,
        paths: &[&[u8]],
        but: &[&[u8]],
    ) -> Result<(bool, Vec<Mismatch>)> {
        let mut replaced: Vec<Mismatch> = Vec::new();
        let mut tries = 0;
        let amend = |summary: &Summary, mismatches: Vec<Mismatch>| {
            tries += 1;
            let (amended, refused) = self.amend(summary)?;
            // What differs from what was just looked at either cannot be amended, or changes again and again.
            let refused = if tries == TRIES { mismatches.clone() } else { refused };
            replaced.extend(mismatches);
            match refused.is_empty() {
                true => Ok(amended),
                false => Err(Error::ChangedMeanwhile(id, refused.into())),
            }
        };
        let is_left = self.apply_some(id, (paths, but), amend)?;
        replaced.sort();
        replaced.dedup();
        Ok((is_left, replaced))
    }

    /// Applies what is at some paths, or all where none are given, without what is at others and what needs that.
    /// Where something is in the way, `amend` says what to apply instead. Gives whether anything is left.
    fn apply_some(
        self: &Arc<Self>,
        id: ParkedId,
        (paths, but): (&[&[u8]], &[&[u8]]),
        mut amend: impl FnMut(&Summary, Vec<Mismatch>) -> Result<Summary>,
    ) -> Result<bool> {
        self.check_usable()?;
        self.discard_expired()?;
        let _mine = self.work_on_parked(id)?;
        let _caller = self.names.caller();
        let mut parked = self.read_own_parked(id)?;
        let whole = std::mem::take(&mut parked.summary);
        let is_wanted = |path: &[u8]| paths.is_empty() || paths.iter().any(|above| lies_in(path, above));
        let is_left_out = |path: &[u8]| but.iter().any(|above| lies_in(path, above));
        let left_out = Choice::of(&whole, ChoiceFor::LeavingOut, is_left_out);
        let chosen = Choice::of(&whole, ChoiceFor::Applying, is_wanted).without(&left_out);
        if chosen.is_empty() {
            return Err(Error::NotFound(format!("a change of parked group {id} at these paths")));
        }
        let (part, mut rest) = chosen.split(&whole);
        parked.summary = part;
        let is_all = rest.is_empty();
        let mut running = loop {
            let mut running = Running::new(self.clone(), Sharing::Own);
            let mismatches = match is_all {
                true => running.apply(&parked, &mut Finder::new(self.clone()))?,
                false => running.apply_changes(&parked, &mut Finder::new(self.clone()))?,
            };
            if mismatches.is_empty() {
                break running;
            }
            drop(running);
            parked.summary = amend(&parked.summary, mismatches)?;
        };
        self.keeps_undo_of(&mut running, &parked.head)?;
        running.commit()?;
        if is_all {
            let _ = self.remove_applied(u64::MAX);
            return Ok(false);
        }
        // The rest needs what is in the directory only.
        self.checkpoint()?;
        settle(&*self.host, &whole, &chosen, &mut rest)?;
        self.park_rest(&parked, &mut rest)?;
        // Where that fails, the next open does it.
        let _ = self.remove_contents_but(id.0, &rest);
        Ok(true)
    }

    /// Replaces a parked group by what is left of it.
    fn park_rest(&self, parked: &ParkedFile, rest: &mut Summary) -> Result<()> {
        let (host, head) = (&*self.host, &parked.head);
        let path = path_of(head.id);
        let unfinished = [&path, UNFINISHED].concat();
        let mut write = || {
            let times = (head.parked_ns, head.expires_ns);
            let mut writing = Writing::new(host, &unfinished, (&head.volume_id, head.id, &head.note), times)?;
            // What is in content files stays there.
            for (id, content) in rest.contents.iter_mut().filter(|(_, content)| content.file.is_none()) {
                let written = parked.written(host, *id)?;
                for piece in &mut content.pieces {
                    let bytes = written.piece(piece)?;
                    writing.write(piece, &bytes)?;
                }
            }
            if !is_readable(rest) {
                return Err(Error::NotFound("what the rest builds on, as it was a moment ago".into()));
            }
            writing.add(rest)?;
            writing.finish()?;
            let renamed = host.rename(site::PARK_RENAME, &unfinished, &path, Rename::Replace);
            renamed.map_err(|error| host_error(error, &path))?;
            self.sync_parked(site::PARK_SYNC_DIR)
        };
        write().inspect_err(|_| _ = host.unlink(site::PARK_REMOVE, &unfinished))
    }

    /// See [`Store::apply_free`](crate::Store::apply_free).
    pub(in crate::hostdir) fn apply_free(self: &Arc<Self>, id: ParkedId) -> Result<Vec<Mismatch>> {
        self.check_usable()?;
        self.discard_expired()?;
        let _mine = self.work_on_parked(id)?;
        let _caller = self.names.caller();
        let mut parked = self.read_own_parked(id)?;
        let whole = std::mem::take(&mut parked.summary);
        let mut left_out: Vec<Mismatch> = Vec::new();
        loop {
            let is_left_out = |path: &[u8]| left_out.iter().any(|it| is_in_the_way(it, &whole, path));
            let (_, free) = Choice::of(&whole, ChoiceFor::LeavingOut, is_left_out).split(&whole);
            let is_none = free.is_empty();
            parked.summary = free;
            let mut running = Running::new(self.clone(), Sharing::Own);
            let mismatches = running.apply(&parked, &mut Finder::new(self.clone()))?;
            if mismatches.is_empty() && !is_none {
                self.keeps_undo_of(&mut running, &parked.head)?;
                running.commit()?;
                let _ = self.remove_applied(u64::MAX);
                return Ok(left_out);
            }
            let before = left_out.len();
            left_out.extend(mismatches);
            left_out.sort();
            left_out.dedup();
            if is_none || left_out.len() == before {
                return Err(Error::ChangedMeanwhile(id, left_out.into()));
            }
        }
    }
}

/// Whether a change at a path is what something is in the way of: that is told of this path, or of something in a
/// directory that the group removes.
pub(crate) fn is_in_the_way(it: &Mismatch, summary: &Summary, path: &[u8]) -> bool {
    let own = it.path.as_os_str().as_encoded_bytes();
    let is_removed = || {
        let mut removed = summary.moved().iter().filter(|(_, moves)| moves.gained.is_empty());
        removed.any(|(id, _)| {
            summary.kind(*id) == Kind::Directory
                && *id != ROOT
                && summary.path_before(*id).is_some_and(|before| before == path)
        })
    };
    own == path || (own == b"." && path.is_empty()) || (lies_in(own, path) && is_removed())
}
