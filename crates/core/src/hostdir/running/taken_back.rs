//! How a group is taken back whose undo was kept: a group that claims all that the first one has changed, compares what
//! that left with what is there, and does the contrary. See [`kept`](crate::hostdir::kept).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use wholly_host::Stat;

use super::Running;
use super::Sharing;
use super::apply::{Applying, content_changed};
use super::undo::adopted;
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::joint::Neighbour;
use crate::hostdir::kept::{KeepUndo, Keeping, ReadUndo, held_path, is_as_left, lost};
use crate::hostdir::names::{Kind, ROOT};
use crate::hostdir::parked::{Base, Known, Mismatch, ParkedId, Review, Summary};
use crate::hostdir::records::Baseline;
use crate::hostdir::table::host_error;

const CHANGED: &str = "it has been changed since";

impl Running {
    /// Asks for the undo of the group to be kept.
    pub(in crate::hostdir) fn keep_undo(&mut self, keep: &KeepUndo) -> Result<()> {
        self.check_open()?;
        self.keep = Some(Box::new(Keeping::new(keep.clone())?));
        Ok(())
    }

    /// Where its undo is kept, that names the other groups of its joint commit.
    pub(in crate::hostdir) fn is_together_with(&mut self, others: impl Iterator<Item = Neighbour>) {
        if let Some(keeping) = &mut self.keep {
            keeping.parts = others.collect();
        }
    }

    /// Whether it takes back another group.
    pub(super) fn takes_back(&self) -> bool {
        self.keep.as_ref().is_some_and(|keeping| keeping.takes_back)
    }

    /// Does the contrary of a group, but for the commit. Gives what is not as that has left it: then this one is only
    /// fit to be aborted.
    fn take_back_kept(&mut self, kept: &ReadUndo) -> Result<Vec<Mismatch>> {
        self.check_open()?;
        let (undo, made) = (&kept.undo.summary, &kept.made.summary);
        let summary = contrary(undo, made);
        // Of each directory that goes with everything in it, when something in it was last changed.
        let mut whole: BTreeMap<u64, i64> = adopted(&kept.undo).map(|id| (id, i64::MIN)).collect();
        let mut applying = Applying::new(&summary);
        for &id in made.objects.keys() {
            self.find_made(&mut applying, made, id)?;
        }
        self.find_held(&mut applying, undo, made)?;
        let times = self.compare_made(&mut applying, kept, &mut whole)?;
        self.claim_all(&applying)?;
        for &id in summary.moved().keys() {
            if let Some(found) = applying.found(id) {
                self.join_named(&applying.path(id), &found)?;
            }
        }
        self.compare_names(&mut applying)?;
        if !applying.wrong.is_empty() {
            return Ok(applying.mismatches());
        }
        self.set_names(&mut applying)?;
        self.compare_ended(&mut applying, &whole)?;
        if !applying.wrong.is_empty() {
            return Ok(applying.mismatches());
        }
        for (id, content) in &summary.contents {
            let file = self.open_object(applying.ids[id], true)?;
            self.join(&file)?;
            self.set_content(&kept.undo.written(&*self.store.host, *id)?, &file, content)?;
        }
        for (id, (set, mtime_ns)) in &summary.sets {
            let mtime_ns = mtime_ns.filter(|_| !times.contains(id));
            self.set_all(applying.ids[id], &applying.path(*id), (set, mtime_ns), true)?;
        }
        self.is_applied(kept.undo.head.id)?;
        self.restores(&applying, kept);
        let ended = whole.iter().filter_map(|(id, changed_ns)| Some((*applying.ids.get(id)?, changed_ns + 1)));
        self.names_mut().taken_whole.extend(ended.map(|(id, since_ns)| (id, since_ns.into())));
        Ok(Vec::new())
    }

    /// Looks for an object where the group has left it.
    fn find_made(&self, applying: &mut Applying<'_>, made: &Summary, id: u64) -> Result<Option<u64>> {
        if let Some(&now) = applying.ids.get(&id) {
            return Ok(Some(now));
        }
        let Some(settled) = made.settled(id) else { return Ok(None) };
        let (dir, name) = &settled.place;
        let Some(dir) = self.find_made(applying, made, *dir)? else { return Ok(None) };
        let found = match self.walk().lookup(dir, name) {
            Err(Error::NotFound(_)) => None,
            found => found?,
        };
        let Some(found) = found else {
            applying.wrong(applying.path(id), "it is gone");
            return Ok(None);
        };
        let is_it = self.store.names.with(|state| state.inode_of(found.id)) == Some(settled.stat.inode());
        if !is_it {
            applying.wrong(applying.path(id), "something else has its name");
            return Ok(None);
        }
        applying.ids.insert(id, found.id);
        Ok(Some(found.id))
    }

    /// Takes up what is held: what has lost all names that the store knows.
    fn find_held(&mut self, applying: &mut Applying<'_>, undo: &Summary, made: &Summary) -> Result<()> {
        for id in lost(undo).filter(|id| !made.objects.contains_key(id)) {
            let path = held_path(id);
            let stat = match self.store.host.stat(&path) {
                Err(error) if error.errno == rustix::io::Errno::NOENT => None,
                stat => Some(stat.map_err(|error| host_error(error, &path))?),
            };
            let was = undo.settled(id).map(|settled| settled.stat.inode());
            let Some(stat) = stat.filter(|stat| Some(stat.inode()) == was) else {
                applying.wrong(applying.path(id), "it is no longer kept");
                continue;
            };
            let now = self.store.names.with(|state| state.bring_held(id, &stat));
            if Kind::of(stat.mode) == Kind::Directory {
                let inside = self.store.host.read_dir(&path).map_err(|error| host_error(error, &path))?;
                if !inside.is_empty() {
                    self.names_mut().given_whole.push(now);
                }
            }
            applying.ids.insert(id, now);
        }
        Ok(())
    }

    fn host_stat(&self, id: u64) -> Result<(Vec<u8>, Stat)> {
        let path = self.store.names.with(|state| state.host_path(id)).unwrap_or_default();
        let stat = self.store.host.stat(&path).map_err(|error| host_error(error, &path))?;
        Ok((path, stat))
    }

    /// Compares what the group has left with what is there. Gives the directories whose times are others by now: those
    /// stay.
    fn compare_made(
        &self,
        applying: &mut Applying<'_>,
        kept: &ReadUndo,
        whole: &mut BTreeMap<u64, i64>,
    ) -> Result<HashSet<u64>> {
        let (undo, made) = (&kept.undo.summary, &kept.made.summary);
        let restored = self.store.restored()?;
        let mut times = HashSet::new();
        for (&id, known) in &made.objects {
            let (Known::Settled(then), Some(&now)) = (known, applying.ids.get(&id)) else { continue };
            let (path, stat) = self.host_stat(now)?;
            let is_left =
                |then: Baseline| is_as_left(Baseline::of(&stat), restored.get(&stat.inode()), |state| *state == then);
            let is_dir = Kind::of(stat.mode) == Kind::Directory;
            if (!is_dir || whole.contains_key(&id)) && !is_left(Baseline::of(&then.stat)) {
                let what = match is_dir {
                    false if stat.size != then.stat.size => content_changed(then.stat.size, stat.size),
                    _ => CHANGED.into(),
                };
                applying.wrong(applying.path(id), what);
            }
            if let Some(changed_ns) = whole.get_mut(&id) {
                *changed_ns = self.compare_whole(applying, (id, &path), kept.undo.head.parked_ns)?;
                continue;
            }
            if !is_dir {
                continue;
            }
            if stat.mtime_ns != then.stat.mtime_ns {
                times.insert(id);
            }
            let Some((set, _)) = undo.sets.get(&id) else { continue };
            for (now, then, is_set, what) in [
                (stat.mode, then.stat.mode, set.mode.is_some(), "its mode"),
                (stat.uid, then.stat.uid, set.uid.is_some(), "its owner"),
                (stat.gid, then.stat.gid, set.gid.is_some(), "its group"),
            ] {
                if is_set && now != then {
                    applying.wrong(applying.path(id), format!("{what} has been changed"));
                }
            }
            for (name, then) in made.sets.get(&id).iter().flat_map(|(set, _)| &set.xattrs) {
                let now = self.store.host.get_xattr(&path, name).map_err(|error| host_error(error, &path))?;
                if now.as_deref() != then.as_deref() {
                    let name = String::from_utf8_lossy(name);
                    applying.wrong(applying.path(id), format!("its attribute {name} has been changed"));
                }
            }
        }
        Ok(times)
    }

    /// Of a directory that the group has made with all that is in it, everything is as old as the group. Gives when the
    /// last of it was changed.
    fn compare_whole(&self, applying: &mut Applying<'_>, (id, root): (u64, &[u8]), since_ns: i64) -> Result<i64> {
        let restored = self.store.restored()?;
        let mut changed_ns = i64::MIN;
        self.store.look_below(root, &mut |path, stat| {
            let is_old = |state: &Baseline| state.ctime_ns <= since_ns;
            if path == root {
                return Ok(());
            }
            changed_ns = changed_ns.max(stat.ctime_ns);
            if !is_as_left(Baseline::of(stat), restored.get(&stat.inode()), is_old) {
                let path = [&applying.path(id)[..], &path[root.len()..]].concat();
                applying.wrong(path, CHANGED);
            }
            Ok(())
        })?;
        Ok(changed_ns)
    }

    /// A directory that the group has made, and that is to have no name, holds nothing else.
    fn compare_ended(&self, applying: &mut Applying<'_>, whole: &BTreeMap<u64, i64>) -> Result<()> {
        let summary = applying.summary;
        for (&id, _) in summary.moved().iter().filter(|(id, moves)| moves.gained.is_empty() && !whole.contains_key(id))
        {
            let Some(found) = applying.found(id).filter(|found| found.kind == Kind::Directory) else { continue };
            for (name, _) in self.walk().list(found.id)? {
                let path = [&applying.path(id)[..], b"/", &name].concat();
                applying.wrong(path, "it has been put there since");
            }
        }
        Ok(())
    }

    /// Notes which states are restored by this group, and by one that takes it back.
    fn restores(&mut self, applying: &Applying<'_>, kept: &ReadUndo) {
        let Some(keeping) = &mut self.keep else { return };
        for (id, known) in &kept.undo.summary.objects {
            if let (Known::Settled(before), Some(&now)) = (known, applying.ids.get(id)) {
                let state = match before.base {
                    Some(Base::Stat(state)) => state,
                    _ => Baseline::of(&before.stat),
                };
                keeping.restores.insert(now, state);
            }
        }
        for (id, known) in &kept.made.summary.objects {
            if let (Known::Settled(made), Some(&now)) = (known, applying.ids.get(id))
                && let Some(Base::Stat(state)) = made.base
            {
                keeping.restored.insert(now, state);
            }
        }
    }
}

/// What the contrary of a group would change.
fn contrary(undo: &Summary, made: &Summary) -> Summary {
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

impl StoreInner {
    /// A group that takes back another one. This thread works on that, and is a caller of the store.
    pub(in crate::hostdir) fn contrary_of(self: &Arc<Self>, id: ParkedId, keep: &KeepUndo) -> Result<Running> {
        self.check_usable()?;
        if !self.options.at_once {
            return Err(Error::invalid("a group is taken back in a store that writes groups back at once"));
        }
        let kept = self.read_kept(id)?;
        let mut running = Running::new(self.clone(), Sharing::Own);
        running.keep_undo(keep)?;
        running.keep.iter_mut().for_each(|keeping| keeping.takes_back = true);
        let mismatches = running.take_back_kept(&kept)?;
        match mismatches.is_empty() {
            true => Ok(running),
            false => Err(Error::ChangedMeanwhile(id, mismatches.into())),
        }
    }

    /// See [`Store::undo`](crate::Store::undo).
    pub(in crate::hostdir) fn undo_kept(
        self: &Arc<Self>,
        id: ParkedId,
        keep: &KeepUndo,
        decide: impl FnOnce(&Review<'_>) -> bool,
    ) -> Result<bool> {
        // A group that is claimed before it expires does not expire.
        self.discard_expired()?;
        let _mine = self.work_on_parked(id)?;
        let caller = self.names.caller();
        let mut running = self.contrary_of(id, keep)?;
        let summary = running.review()?;
        if !decide(&Review::of_group(&running, summary)) {
            return Ok(false);
        }
        running.commit()?;
        drop(caller);
        // It is committed, whatever becomes of the files: the log goes on telling, and the next pass tries again.
        let _ = self.remove_applied(u64::MAX);
        Ok(true)
    }
}
