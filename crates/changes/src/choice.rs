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
//! 2. If the part goes first, the rest can follow ([`Choice::settle`]): what the part has made is then an object like
//!    others.
//! 3. If the part stays away for good, the rest has nothing that needs a change of the part.

use std::collections::HashSet;

use wholly_error::{Mismatch, Result};
use wholly_host::{HostFs, host_error};

use crate::{Kind, Known, Name, ROOT, Settled, Summary};

/// Changes of a group.
#[derive(Default)]
pub struct Choice<'s> {
    /// Names that are otherwise.
    pub names: HashSet<&'s Name>,
    /// Objects whose bytes or attributes, or names, are.
    pub objects: HashSet<u64>,
}

/// What the choice is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ChoiceFor {
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

    /// Whether nothing is chosen.
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

    /// The part is in the directory now: what the rest has of its objects is as they lie there (invariant 2).
    ///
    /// # Errors
    /// [`Error::NotFound`](wholly_error::Error::NotFound) where one does not lie there; those of the host.
    pub fn settle(&self, host: &dyn HostFs, whole: &Summary, rest: &mut Summary) -> Result<()> {
        let mut todo: Vec<u64> = rest.objects.keys().copied().filter(|id| self.objects.contains(id)).collect();
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
}

/// Whether a path is another one or lies in that.
pub fn lies_in(path: &[u8], above: &[u8]) -> bool {
    above == b"." || path.strip_prefix(above).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

/// Whether a change at a path is what something is in the way of: that is told of this path, or of something in a
/// directory that the group removes.
pub fn is_in_the_way(it: &Mismatch, summary: &Summary, path: &[u8]) -> bool {
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
