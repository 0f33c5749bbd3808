//! How a group is taken back whose undo was kept: a group that claims all that the first one has changed, compares what
//! that left with what is there, and does the contrary. See [`undo_store`](crate::hostdir::undo_store).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use wholly_changes::records::Baseline;
use wholly_changes::{
    Base, Choice, ChoiceFor, Kind, Known, LeftContent, Neighbour, Set, Summary, is_in_the_way, lies_in,
};
use wholly_host::host_error;
use wholly_vfs::{Rename, Stat};

use super::Running;
use super::Sharing;
use super::apply::{Applying, Reserve, content_changed};
use super::left::By;
use super::undo::adopted;
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::names::{ANCHOR_FOLDER, ANCHORS, HELD, Home};
use crate::hostdir::parked::{Mismatch, ParkedId, Review};
use crate::hostdir::undo_store::{
    IfChanged, KeepUndo, Keeping, ReadUndo, Taken, Undoing, Undone, anchor_path, find_held, held_path, is_as_left, lost,
};
use crate::site;

const CHANGED: &str = "it has been changed since";

/// What was changed by then, and not later than so many ns before a group's undo was made, is the group's: the host's
/// clock has ticks.
const TICK_NS: i64 = 20_000_000;

/// A group that takes back another one, or a part of it, but for the commit.
pub(in crate::hostdir) struct TakingBack {
    pub running: Running,
    id: ParkedId,
    kept: ReadUndo,
    /// What is taken then, where something is left.
    taken: Option<Taken>,
    /// What is left because it was changed.
    left: Vec<Mismatch>,
    looked: Looked,
}

/// What a comparison has found.
#[derive(Default)]
struct Looked {
    /// Objects whose times are others by now: those stay.
    times: HashSet<u64>,
    /// How compared files were, by their ids in the store.
    stats: HashMap<u64, Stat>,
    /// What is not as it was left, and does not matter.
    notes: Vec<Mismatch>,
}

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
    /// fit to be aborted. With `replaces` only what cannot be replaced.
    fn take_back_kept(&mut self, kept: &ReadUndo, replaces: bool) -> Result<(Vec<Mismatch>, Looked)> {
        self.check_open()?;
        let summary = kept.contrary();
        // Of each directory that goes with everything in it, when something in it was last changed.
        let mut whole: BTreeMap<u64, i64> = adopted(&kept.undo).map(|id| (id, i64::MIN)).collect();
        let mut applying = Applying::new(&summary);
        for &id in kept.made.summary.objects.keys() {
            self.find_made(&mut applying, kept, id)?;
        }
        self.find_held(&mut applying, kept)?;
        let mut looked = self.compare_made(&mut applying, kept, &mut whole)?;
        let amended;
        if replaces {
            let ids = std::mem::take(&mut applying.ids);
            (amended, applying) = (self.replace_others(&summary, ids, kept, &whole)?, Applying::new(&summary));
            applying.ids = amended.ids;
            applying.wrong = amended.wrong;
            looked.stats.clear();
            if !applying.wrong.is_empty() {
                return Ok((applying.mismatches(), looked));
            }
            applying.summary = &amended.summary;
        }
        let summary = applying.summary;
        self.claim_all(&applying)?;
        for &id in summary.moved().keys() {
            if let Some(found) = applying.found(id) {
                self.join_named(&applying.path(id), &found)?;
            }
        }
        for id in summary.contents.keys().chain(summary.sets.keys()) {
            if let Some(found) = applying.found(*id) {
                self.join_named(&applying.path(*id), &found)?;
            }
        }
        self.compare_again(&mut applying, &looked)?;
        self.compare_names(&mut applying)?;
        if !applying.wrong.is_empty() {
            return Ok((applying.mismatches(), looked));
        }
        self.set_names(&mut applying)?;
        self.compare_ended(&mut applying, &whole)?;
        if !applying.wrong.is_empty() {
            return Ok((applying.mismatches(), looked));
        }
        for (id, content) in &summary.contents {
            let file = self.open_object(applying.ids[id], true)?;
            self.join(&file)?;
            self.set_content(&kept.undo.written(&*self.store.host, *id)?, &file, content, Reserve::IfThere)?;
        }
        for (id, (set, mtime_ns)) in &summary.sets {
            let mtime_ns = mtime_ns.filter(|_| !looked.times.contains(id));
            self.set_all(applying.ids[id], &applying.path(*id), (set, mtime_ns), true)?;
        }
        self.restores(&applying.ids, kept);
        let ended = whole.iter().filter_map(|(id, changed_ns)| Some((*applying.ids.get(id)?, changed_ns + 1)));
        self.names_mut().taken_whole.extend(ended.map(|(id, since_ns)| (id, since_ns.into())));
        Ok((Vec::new(), looked))
    }

    /// Looks for an object where the group has left it.
    fn find_made(&self, applying: &mut Applying<'_>, kept: &ReadUndo, id: u64) -> Result<Option<u64>> {
        if let Some(&now) = applying.ids.get(&id) {
            return Ok(Some(now));
        }
        let Some(settled) = kept.made.summary.settled(id) else { return Ok(None) };
        let (dir, name) = &settled.place;
        let Some(dir) = self.find_made(applying, kept, *dir)? else {
            applying.wrong(applying.path(id), "it is gone");
            return Ok(None);
        };
        let found = match self.walk().lookup(dir, name) {
            Err(Error::NotFound(_)) => None,
            found => found?,
        };
        let Some(found) = found else {
            applying.wrong(applying.path(id), "it is gone");
            return Ok(None);
        };
        let kind = Kind::of(settled.stat.mode);
        // What was noted tells whether it is as it was left; but not by which of several names it goes, and an earlier
        // version has noted nothing.
        let is_known = kept.left(id).is_some() && !kept.has_other_names(id);
        let is_it = match kind == Kind::Directory || is_known {
            true => found.kind == kind,
            false => self.store.names.with(|state| state.inode_of(found.id)) == Some(settled.stat.inode()),
        };
        if !is_it {
            applying.wrong(applying.path(id), "something else has its name");
            return Ok(None);
        }
        applying.ids.insert(id, found.id);
        Ok(Some(found.id))
    }

    /// Takes up what is held: what has lost all names that the store knows.
    fn find_held(&mut self, applying: &mut Applying<'_>, kept: &ReadUndo) -> Result<()> {
        let (undo, made) = (&kept.undo.summary, &kept.made.summary);
        for id in lost(undo).filter(|id| !made.objects.contains_key(id)) {
            let found = find_held(&*self.store.host, id)?;
            // In a copy that was accepted it is another inode.
            let is_it = |stat: &Stat| {
                undo.settled(id).is_some_and(|was| {
                    let looks = |stat: &Stat| (stat.mode, stat.size);
                    // An archive may have lost the rest.
                    let seconds = |ns: i64| ns - ns.rem_euclid(1_000_000_000);
                    let is_time = [was.stat.mtime_ns, seconds(was.stat.mtime_ns)].contains(&stat.mtime_ns);
                    was.stat.inode() == stat.inode() || (looks(&was.stat) == looks(stat) && is_time)
                })
            };
            let Some((folder, path, stat)) = found.filter(|(_, _, stat)| is_it(stat)) else {
                applying.wrong(applying.path(id), "it is no longer kept");
                continue;
            };
            // It may have other names, by which it can be changed.
            if let Some(left) = kept.left(id).filter(|_| stat.nlink > 1)
                && let Some(what) = self.store.difference((&path, &stat), left, Some(set_by(undo, id)), |_| true)?
            {
                applying.wrong(applying.path(id), what);
            }
            let now = self.store.names.with(|state| state.bring_held(id, folder, &stat));
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

    /// Takes out what is held and gets a name from the group. It survives on its anchor when this returns.
    pub(super) fn take_out(&self) -> Result<()> {
        let store = &*self.store;
        let away: BTreeSet<u64> = store.names.with(|state| {
            let lies_away = |id: &u64| state.objects.get(id).and_then(|it| it.home().map(Home::dir)) == Some(HELD);
            let named = self.names.iter().flat_map(|names| names.changes().map(|(_, change)| change.after));
            named.filter(lies_away).collect()
        });
        if away.is_empty() {
            return Ok(());
        }
        store.make_folders()?;
        for id in away {
            let (from, to) = (held_path(id), anchor_path(id));
            let rename = || store.host.rename(site::KEPT_TAKE_OUT, &from, &to, Rename::NoReplace);
            store
                .names
                .change_home(rename, |state, ()| state.hang(id, ANCHORS))
                .map_err(|error| host_error(error, &from))?;
        }
        let synced = store.host.sync_dir(site::KEPT_TAKE_OUT_SYNC, ANCHOR_FOLDER);
        synced.map_err(|error| store.poison(&Error::Media(error)))?;
        store.log.count_barrier();
        Ok(())
    }

    pub(super) fn host_stat(&self, id: u64) -> Result<(Vec<u8>, Stat)> {
        let path = self.store.names.with(|state| state.host_path(id)).unwrap_or_default();
        let stat = self.store.host.stat(&path).map_err(|error| host_error(error, &path))?;
        Ok((path, stat))
    }

    /// Compares what the group has left with what is there.
    fn compare_made(
        &self,
        applying: &mut Applying<'_>,
        kept: &ReadUndo,
        whole: &mut BTreeMap<u64, i64>,
    ) -> Result<Looked> {
        let (undo, made) = (&kept.undo.summary, &kept.made.summary);
        let restored = self.store.restored()?;
        let mut looked = Looked::default();
        for (&id, known) in &made.objects {
            let (Known::Settled(then), Some(&now)) = (known, applying.ids.get(&id)) else { continue };
            let (path, stat) = self.host_stat(now)?;
            let is_left = |then: &Stat, by: By| {
                let is_then = |state: &Baseline| match (then.ino, by) {
                    // It was adopted in a directory.
                    (0, _) => state.ctime_ns <= kept.undo.head.parked_ns,
                    (_, By::AllTimes) => *state == Baseline::of(then),
                    (_, By::Mtime) => (state.size, state.mtime_ns) == (then.size, then.mtime_ns),
                };
                let is_it = then.ino == 0 || then.inode() == stat.inode();
                is_it && is_as_left(Baseline::of(&stat), restored.get(&stat.inode()), is_then)
            };
            let is_dir = Kind::of(stat.mode) == Kind::Directory;
            if stat.mtime_ns != then.stat.mtime_ns && !undo.contents.contains_key(&id) {
                looked.times.insert(id);
            }
            match kept.left(id) {
                // It only leads to what is taken back.
                Some(_) if !kept.is_about(id) => {}
                Some(left) => {
                    let set = undo.settled(id).map(|_| set_by(undo, id));
                    // To take back what the group has made is to remove names.
                    let is_another = set.is_some() && then.stat.ino != 0 && stat.inode() != then.stat.inode();
                    let is_others = is_another && stat.nlink > 1;
                    match self.store.difference((&path, &stat), left, set, |by| is_left(&then.stat, by))? {
                        Some(what) => applying.wrong(applying.path(id), what),
                        // By those it would be changed, too.
                        None if !is_dir && is_others => {
                            applying.wrong(applying.path(id), "it is a file with other names")
                        }
                        None if !is_dir => {
                            let has_more = stat.nlink > then.stat.nlink && undo.settled(id).is_some();
                            if has_more && then.stat.ino != 0 && undo.contents.contains_key(&id) {
                                let (path, what) =
                                    (applying.path(id), "it has another name since, and changes there, too");
                                looked.notes.push(Applying::mismatch(path, what));
                            }
                            let is_again = matches!(left.content, LeftContent::Sum(_)) && then.stat.ino != 0;
                            if is_again && stat.mtime_ns != then.stat.mtime_ns {
                                let (path, what) = (applying.path(id), "it was written again, with the same content");
                                looked.notes.push(Applying::mismatch(path, what));
                            }
                            looked.stats.insert(now, stat);
                        }
                        None => {}
                    }
                }
                None => {
                    let is_left = is_left(&then.stat, By::AllTimes);
                    self.compare_old(applying, kept, (id, &path, &stat), is_left, whole.contains_key(&id))?;
                }
            }
            if let Some(changed_ns) = whole.get_mut(&id) {
                let is_itself = stat.inode() == then.stat.inode() && stat.ctime_ns == then.stat.ctime_ns;
                *changed_ns = self.compare_whole(applying, (id, &path, is_itself), kept)?;
            }
        }
        Ok(looked)
    }

    /// The same of an object without a note: of an undo of an earlier version, or a directory.
    fn compare_old(
        &self,
        applying: &mut Applying<'_>,
        kept: &ReadUndo,
        (id, path, stat): (u64, &[u8], &Stat),
        is_left: bool,
        is_whole: bool,
    ) -> Result<()> {
        let (undo, made) = (&kept.undo.summary, &kept.made.summary);
        let then = made.before(id).expect("it is compared");
        let is_dir = Kind::of(stat.mode) == Kind::Directory;
        if (!is_dir || is_whole) && !is_left {
            let what = match is_dir {
                false if stat.size != then.size => content_changed(then.size, stat.size),
                _ => CHANGED.into(),
            };
            applying.wrong(applying.path(id), what);
        }
        let Some((set, _)) = undo.sets.get(&id).filter(|_| is_dir && !is_whole) else { return Ok(()) };
        for (now, then, is_set, what) in [
            (stat.mode, then.mode, set.mode.is_some(), "its mode"),
            (stat.uid, then.uid, set.uid.is_some(), "its owner"),
            (stat.gid, then.gid, set.gid.is_some(), "its group"),
        ] {
            if is_set && now != then {
                applying.wrong(applying.path(id), format!("{what} has been changed"));
            }
        }
        for (name, then) in made.sets.get(&id).iter().flat_map(|(set, _)| &set.xattrs) {
            let now = self.store.host.get_xattr(path, name).map_err(|error| host_error(error, path))?;
            if now.as_deref() != then.as_deref() {
                let name = String::from_utf8_lossy(name);
                applying.wrong(applying.path(id), format!("its attribute {name} has been changed"));
            }
        }
        Ok(())
    }

    /// Compares what is in a directory that the group has adopted, which is the very directory that the group has left,
    /// or not. Gives when the last of it was changed.
    fn compare_whole(
        &self,
        applying: &mut Applying<'_>,
        (id, root, is_itself): (u64, &[u8], bool),
        kept: &ReadUndo,
    ) -> Result<i64> {
        let restored = self.store.restored()?;
        let since_ns = kept.undo.head.parked_ns;
        let mut changed_ns = i64::MIN;
        // The note of the directory itself comes last.
        let has_notes = kept.left(id).is_some();
        let notes = kept.undo.summary.left.range((id, vec![0])..).take_while(|((of, _), _)| *of == id);
        let mut missing: HashSet<&[u8]> = notes.filter(|_| has_notes).map(|((_, path), _)| &path[..]).collect();
        // In these something may have been exchanged that has kept its own times.
        let mut young: HashSet<Vec<u8>> = HashSet::from_iter((!is_itself).then(Vec::new));
        self.store.look_below(root, &mut |path, stat| {
            if path == root {
                return Ok(());
            }
            let inside = &path[root.len() + 1..];
            let above = &inside[..inside.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
            changed_ns = changed_ns.max(stat.ctime_ns);
            missing.remove(inside);
            let is_old = |by: i64| {
                let is_then = |state: &Baseline| state.ctime_ns <= by;
                is_as_left(Baseline::of(stat), restored.get(&stat.inode()), is_then)
            };
            let is_as_was = !young.contains(above) && is_old(since_ns - TICK_NS);
            if !is_as_was && Kind::of(stat.mode) == Kind::Directory {
                young.insert(inside.to_vec());
            }
            let what = match kept.undo.summary.left.get(&(id, inside.to_vec())) {
                Some(_) if is_as_was => None,
                Some(left) => self.store.difference((path, stat), left, None, |_| is_old(since_ns))?,
                None => (has_notes || !is_old(since_ns)).then(|| CHANGED.into()),
            };
            if let Some(what) = what {
                applying.wrong([&applying.path(id)[..], b"/", inside].concat(), what);
            }
            Ok(())
        })?;
        for path in missing {
            applying.wrong([&applying.path(id)[..], b"/", path].concat(), "it is gone");
        }
        Ok(changed_ns)
    }

    /// What was compared belongs to the group by now, and is as it was then.
    fn compare_again(&self, applying: &mut Applying<'_>, looked: &Looked) -> Result<()> {
        for (id, &now) in &applying.ids.clone() {
            let Some(then) = looked.stats.get(&now) else { continue };
            let is_it = match self.host_stat(now) {
                Ok((path, stat)) => {
                    let is_same = (stat.inode(), stat.size, stat.mtime_ns) == (then.inode(), then.size, then.mtime_ns);
                    // Where its user may not read it, the store's own look has changed the time of change.
                    is_same && (stat.ctime_ns == then.ctime_ns || !self.store.is_readable(&path)?)
                }
                Err(Error::NotFound(_)) => false,
                Err(error) => return Err(error),
            };
            if !is_it {
                applying.wrong(applying.path(*id), CHANGED);
            }
        }
        Ok(())
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
    fn restores(&mut self, ids: &HashMap<u64, u64>, kept: &ReadUndo) {
        let Some(keeping) = &mut self.keep else { return };
        for (id, known) in &kept.undo.summary.objects {
            if let (Known::Settled(before), Some(&now)) = (known, ids.get(id)) {
                let state = match before.base {
                    Some(Base::Stat(state)) => state,
                    _ => Baseline::of(&before.stat),
                };
                keeping.restores.insert(now, state);
            }
        }
        for (id, known) in &kept.made.summary.objects {
            if let (Known::Settled(made), Some(&now)) = (known, ids.get(id))
                && let Some(Base::Stat(state)) = made.base
            {
                keeping.restored.insert(now, state);
            }
        }
    }
}

/// The attributes that a group has set of an object that was there.
fn set_by(undo: &Summary, id: u64) -> &Set {
    static NONE: std::sync::LazyLock<Set> = std::sync::LazyLock::new(Set::default);
    undo.sets.get(&id).map_or_else(|| &*NONE, |(set, _)| set)
}

/// Whether something is changed besides times.
fn has_more_than_times(summary: &Summary) -> bool {
    let is_set = |(set, _): &(Set, Option<i64>)| *set != Set::default();
    !summary.names().is_empty() || !summary.contents.is_empty() || summary.sets.values().any(is_set)
}

impl TakingBack {
    /// Says in the group what it takes. Nothing of that counts before it commits.
    fn is_applied(&mut self) -> Result<Option<u64>> {
        let store = self.running.store.clone();
        let write = |taken: &Taken| {
            // As for the group itself.
            store.release_reserve();
            let written = store.with_space_of_undo(|| store.write_part(&self.kept, taken));
            written.inspect_err(|_| _ = store.keep_reserve())
        };
        let part = self.taken.as_ref().map(write).transpose()?;
        let applied = self.running.is_applied(part.unwrap_or(self.id.0));
        applied.inspect_err(|_| part.iter().for_each(|part| store.withdraw_part(self.id.0, *part)))?;
        Ok(part)
    }

    /// For a joint commit. Gives the part that is withdrawn where that fails.
    pub fn prepare(mut self) -> Result<(Running, Undone, Option<u64>)> {
        let part = self.is_applied()?;
        let (running, undone) = self.done(true);
        Ok((running, undone, part))
    }

    fn done(self, is_done: bool) -> (Running, Undone) {
        let TakingBack { running, left, looked, taken, .. } = self;
        (running, Undone { is_done, left, notes: looked.notes, is_part: taken.is_some() })
    }
}

impl StoreInner {
    /// A group that takes back another one, or a part of it. This thread works on that, and is a caller of the store.
    pub(in crate::hostdir) fn contrary_of(
        self: &Arc<Self>,
        id: ParkedId,
        keep: &KeepUndo,
        how: &Undoing,
    ) -> Result<TakingBack> {
        self.check_usable()?;
        if !self.options.at_once {
            return Err(Error::invalid("a group is taken back in a store that writes groups back at once"));
        }
        let mut kept = self.read_kept(id)?;
        let lies_inside = |path: &[u8], dir: &[u8]| path != dir && lies_in(path, dir);
        let paths: Vec<&[u8]> = how.paths.iter().map(|path| path.as_os_str().as_encoded_bytes()).collect();
        kept.spread_out(&kept.adopted_at(|dir| paths.iter().any(|path| lies_inside(path, dir))));
        // What is in a directory that was removed whole comes back with all of it.
        let whole = kept.removed_whole();
        let is_in = |path: &[u8], above: &[u8]| lies_in(path, above) || (whole.contains(path) && lies_in(above, path));
        let is_wanted = |path: &[u8]| paths.is_empty() || paths.iter().any(|above| is_in(path, above));
        let mut left: Vec<Mismatch> = Vec::new();
        loop {
            let (part, taken) = {
                let contrary = kept.contrary();
                let chosen = Choice::of(&contrary, ChoiceFor::Applying, is_wanted);
                if chosen.is_empty() {
                    return Err(Error::NotFound(format!("a change of {id} at these paths")));
                }
                let (part, _) = chosen.split(&contrary);
                let is_left = |path: &[u8]| left.iter().any(|it| is_in_the_way(it, &part, path));
                let chosen = chosen.without(&Choice::of(&part, ChoiceFor::LeavingOut, is_left));
                let (part, rest) = chosen.split(&contrary);
                if !has_more_than_times(&part) {
                    let nothing = || Error::NotFound(format!("a change of {id} at these paths"));
                    return Err(if left.is_empty() { nothing() } else { Error::ChangedMeanwhile(id, left.into()) });
                }
                match has_more_than_times(&rest) {
                    true => (Some(kept.only(&chosen)), Some(kept.taken.and(&chosen))),
                    false => (None, None),
                }
            };
            let replaces = how.changed == IfChanged::Replace;
            let mut running = Running::new(self.clone(), Sharing::Own);
            running.keep_undo(keep)?;
            running.keep.iter_mut().for_each(|keeping| (keeping.takes_back, keeping.must_keep) = (true, replaces));
            let (mismatches, looked) = running.take_back_kept(part.as_ref().unwrap_or(&kept), replaces)?;
            if mismatches.is_empty() {
                return Ok(TakingBack { running, id, kept, taken, left, looked });
            }
            let before = left.len();
            left.extend(mismatches);
            left.sort();
            left.dedup();
            if how.changed != IfChanged::Skip || left.len() == before {
                return Err(Error::ChangedMeanwhile(id, left.into()));
            }
            drop(running);
            let is_at = |it: &Mismatch, dir: &[u8]| lies_in(it.path.as_os_str().as_encoded_bytes(), dir);
            kept.spread_out(&kept.adopted_at(|dir| left.iter().any(|it| is_at(it, dir))));
        }
    }

    /// See [`Store::undo_some`](crate::Store::undo_some).
    pub(in crate::hostdir) fn undo_kept(
        self: &Arc<Self>,
        id: ParkedId,
        keep: &KeepUndo,
        how: &Undoing,
        decide: impl FnOnce(&Review<'_>) -> bool,
    ) -> Result<Undone> {
        // A group that is claimed before it expires does not expire.
        self.discard_expired()?;
        let _mine = self.work_on_parked(id)?;
        let caller = self.names.caller();
        let mut taking = self.contrary_of(id, keep, how)?;
        let summary = taking.running.review()?;
        if !decide(&Review::of_group(&taking.running, summary)) {
            return Ok(taking.done(false).1);
        }
        let part = taking.is_applied()?;
        let (mut running, undone) = taking.done(true);
        running.commit().inspect_err(|error| {
            if let (Some(part), false) = (part, matches!(error, Error::Poisoned(_))) {
                self.withdraw_part(id.0, part);
            }
        })?;
        drop(caller);
        // It is committed, whatever becomes of the files: the log goes on telling, and the next pass tries again.
        let _ = self.remove_applied(u64::MAX);
        Ok(undone)
    }
}
