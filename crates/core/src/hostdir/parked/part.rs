//! Part of a parked group is applied: [`wholly_changes::Choice`] has the terms and invariants.

use std::sync::Arc;

use wholly_changes::{
    Choice, ChoiceFor, ParkedFile, Summary, UNFINISHED, Writing, is_in_the_way, is_readable, lies_in, path_of,
};
use wholly_host::host_error;
use wholly_vfs::Rename;

use super::super::StoreInner;
use super::super::running::{Running, Sharing};
use super::{Finder, Mismatch, ParkedId};
use crate::error::{Error, Result};
use crate::site;

/// How often a group is amended before what is in its way is in its way.
const TRIES: usize = 3;

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
        chosen.settle(&*self.host, &whole, &mut rest)?;
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
