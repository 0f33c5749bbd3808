//! How a parked group is taken up by one that runs: all that it changes is claimed, all that it relies on compared,
//! then it is done again: names are set as the registers that they are, in no order that matters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use wholly_changes::records::Birth;
use wholly_changes::{
    Base, Content, CurrentObjects, Kind, Known, Name, ParkedFile, ROOT, Set, Summary, Written, xattr_checksum,
};
use wholly_vfs::Fallocate;

use super::attributes::{Mine, Wish};
use super::names::{At, refused};
use super::{Inner, Running};
use crate::error::{Error, Result};
use crate::hostdir::names::{Found, Last, Wanted};
use crate::hostdir::parked::{Finder, Mismatch};
use crate::log::layout::EntryKind;
use sync::Ordering;

/// In words: the bytes of a file are others than `then`.
pub(super) fn content_changed(then: u64, now: u64) -> String {
    match now == then {
        true => "its content has been changed".into(),
        false => format!("its content has been changed: it had {then} bytes and has {now}"),
    }
}

/// A parked group that is being applied.
pub(super) struct Applying<'p> {
    pub summary: &'p Summary,
    /// What its objects are by now.
    pub ids: HashMap<u64, u64>,
    pub wrong: Vec<Mismatch>,
}

impl Applying<'_> {
    pub fn wrong(&mut self, path: Vec<u8>, what: impl Into<String>) {
        self.wrong.push(Self::mismatch(path, what));
    }

    pub fn mismatch(path: Vec<u8>, what: impl Into<String>) -> Mismatch {
        Mismatch { path: OsString::from_vec(path).into(), what: what.into() }
    }

    pub fn path(&self, id: u64) -> Vec<u8> {
        let path = self.summary.path_before(id).or_else(|| self.summary.path_after(id)).unwrap_or_default();
        if path.is_empty() { b".".to_vec() } else { path }
    }

    /// The path of a name: as it was, or is to be in what is new.
    pub fn path_of(&self, name: &Name) -> Vec<u8> {
        self.summary.name_before(name).or_else(|| self.summary.name_after(name)).unwrap_or_else(|| name.1.to_vec())
    }

    /// A name, where its directory is.
    fn last(&self, name: &Name) -> Option<Last> {
        Some(Last { dir: *self.ids.get(&name.0)?, name: name.1.to_vec() })
    }

    /// What is otherwise, each once.
    pub fn mismatches(mut self) -> Vec<Mismatch> {
        self.wrong.sort();
        self.wrong.dedup();
        self.wrong
    }

    pub fn found(&self, id: u64) -> Option<Found> {
        Some(Found { id: *self.ids.get(&id)?, kind: self.summary.kind(id), stat: None })
    }
}

/// Whether space is reserved that a file has had.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserve {
    Must,
    /// Where there is so much.
    IfThere,
    Not,
}

impl Running {
    /// Does what a parked group would do, but for the commit. Gives what that relied on and is otherwise: then the
    /// group is only fit to be aborted.
    pub(in crate::hostdir) fn apply(&mut self, parked: &ParkedFile, finder: &mut Finder) -> Result<Vec<Mismatch>> {
        let mismatches = self.apply_changes(parked, finder)?;
        if mismatches.is_empty() {
            self.is_applied(parked.head.id)?;
            if let Some(id) = parked.summary.applies {
                self.is_applied(id)?;
            }
        }
        Ok(mismatches)
    }

    /// The same, and the parked group stays.
    pub(in crate::hostdir) fn apply_changes(
        &mut self,
        parked: &ParkedFile,
        finder: &mut Finder,
    ) -> Result<Vec<Mismatch>> {
        self.check_open()?;
        let summary = &parked.summary;
        let mut applying = Applying { summary, ids: HashMap::from([(ROOT, ROOT)]), wrong: Vec::new() };
        self.find_all(&mut applying, finder)?;
        self.claim_all(&applying)?;
        let files = self.join_all(&applying)?;
        self.compare_names(&mut applying)?;
        self.compare_bytes(&mut applying, &files)?;
        self.compare_attributes(&mut applying)?;
        let born = self.bear_all(&mut applying)?;
        self.set_names(&mut applying)?;
        self.compare_shape(&mut applying)?;
        if !applying.wrong.is_empty() {
            return Ok(applying.mismatches());
        }
        for (id, content) in &summary.contents {
            let file = files.get(id).or_else(|| born.get(id));
            let written = parked.written(&*self.store.host, *id)?;
            self.set_content(&written, file.expect("it was joined or made"), content, Reserve::Must)?;
        }
        for (id, (set, mtime_ns)) in &summary.sets {
            let birth = matches!(summary.objects.get(id), Some(Known::Born(_)));
            self.set_all(applying.ids[id], &applying.path(*id), (set, *mtime_ns), birth)?;
        }
        Ok(Vec::new())
    }

    /// The group is one that was set aside: once it has committed, that is gone.
    pub(super) fn is_applied(&mut self, id: u64) -> Result<()> {
        self.entry(EntryKind::Applied, 0, id, &[])?;
        self.names_mut().applied.push(id);
        Ok(())
    }

    /// Looks for the objects that the group has found once. What it only needed on the way to others may be gone.
    fn find_all(&self, applying: &mut Applying<'_>, finder: &mut Finder) -> Result<()> {
        let summary = applying.summary;
        let dirs = summary.names().iter().map(|((dir, _), _)| *dir);
        let afters = summary.names().values().map(|value| value.1);
        let others = summary.contents.keys().chain(summary.sets.keys()).copied();
        let needed: HashSet<u64> = dirs.chain(afters).chain(others).collect();
        for (&id, known) in &summary.objects {
            let Known::Settled(settled) = known else { continue };
            match finder.find(summary, id)? {
                Some(now) => _ = applying.ids.insert(id, now),
                None if needed.contains(&id) => applying.wrong(applying.path(id), "it is gone"),
                None => {}
            }
            if settled.base == Some(Base::Lost) {
                applying.wrong(applying.path(id), "another program changed it while the group was running");
            }
        }
        Ok(())
    }

    pub(super) fn claim_all(&mut self, applying: &Applying<'_>) -> Result<()> {
        let summary = applying.summary;
        let mut wanted = Wanted::default();
        for name in summary.names().keys() {
            wanted.names.extend(applying.ids.get(&name.0).map(|dir| (*dir, name.1.clone())));
        }
        for (&id, moves) in summary.moved() {
            let Some(found) = applying.found(id) else { continue };
            let Wanted { alone, shared, .. } = Self::of_object(&found);
            wanted.alone.extend(alone);
            wanted.shared.extend(shared);
            if found.kind == Kind::Directory {
                // The shape of the tree that no circle comes of.
                for (dir, _) in &moves.gained {
                    let mut at = *dir;
                    while let (Some(Known::Born(_)), Some((above, _))) =
                        (summary.objects.get(&at), summary.moved().get(&at).and_then(|moves| moves.gained.first()))
                    {
                        at = *above;
                    }
                    wanted.shared.extend(applying.ids.get(&at).into_iter().flat_map(|dir| self.all_above(*dir)));
                }
            }
        }
        let alone: HashSet<u64> = wanted.alone.iter().copied().collect();
        wanted.shared.retain(|id| !alone.contains(id));
        let others = summary.sets.keys().filter(|id| summary.kind(**id) != Kind::Regular);
        wanted.attributes.extend(others.filter_map(|id| applying.ids.get(id)));
        self.claim(&wanted)
    }

    /// Makes the regular files that the group changes its own. Gives those whose bytes count.
    fn join_all(&mut self, applying: &Applying<'_>) -> Result<BTreeMap<u64, Arc<Inner>>> {
        let summary = applying.summary;
        let mut files = BTreeMap::new();
        for (&id, known) in &summary.objects {
            let Known::Settled(settled) = known else { continue };
            let Some(found) = applying.found(id).filter(|found| found.kind == Kind::Regular) else { continue };
            if summary.contents.contains_key(&id) {
                let file = self.open_object(found.id, true)?;
                self.join(&file)?;
                files.insert(id, file);
            } else if settled.base.is_some() {
                self.join_named(&applying.path(id), &found)?;
                files.insert(id, self.store.file_of(b"", &found)?);
            } else if summary.moved().contains_key(&id) || summary.sets.contains_key(&id) {
                self.join_named(&applying.path(id), &found)?;
            }
        }
        Ok(files)
    }

    pub(super) fn compare_names(&mut self, applying: &mut Applying<'_>) -> Result<()> {
        let summary = applying.summary;
        for (name, &(before, _)) in summary.names() {
            let Some(last) = applying.last(name) else { continue };
            let path = applying.path_of(name);
            let now = self.walk().lookup(last.dir, &last.name)?;
            let expected = applying.ids.get(&before).copied();
            match (before, now) {
                (0, None) => self.check_may_change(At::Path(&path), last.dir, None)?,
                (0, Some(_)) => applying.wrong(path, "something has been made there"),
                (_, None) => applying.wrong(path, "it is gone"),
                (_, Some(now)) if Some(now.id) != expected => applying.wrong(path, "something else has its name"),
                (_, Some(now)) => self.check_may_change(At::Path(&path), last.dir, Some(&now))?,
            }
        }
        Ok(())
    }

    fn compare_bytes(&self, applying: &mut Applying<'_>, files: &BTreeMap<u64, Arc<Inner>>) -> Result<()> {
        for (&id, file) in files {
            let base = applying.summary.settled(id).and_then(|settled| settled.base);
            let same = match base {
                None | Some(Base::Lost) => true,
                // Where it has grown beyond what is summed up, it is another one.
                Some(Base::Sum(_)) => Some(self.store.base_of(file)?) == base,
                Some(Base::Stat(_)) => file.is_clean() && Some(self.store.base_of(file)?) == base,
            };
            if !same {
                let size = file.size.load(Ordering::Acquire);
                let then = applying.summary.settled(id).map_or(0, |settled| settled.stat.size);
                applying.wrong(applying.path(id), content_changed(then, size));
            }
        }
        Ok(())
    }

    /// An attribute has the value that it had, or the one that it is to have.
    pub(super) fn compare_attributes(&self, applying: &mut Applying<'_>) -> Result<()> {
        for (&id, (set, _)) in &applying.summary.sets {
            let Some(found) = applying.found(id) else { continue };
            let (path, before) = (applying.path(id), &set.before.attributes);
            let stat = self.stat(&path, &found)?;
            for (now, value, then, what) in [
                (stat.mode & 0o7777, set.mode, before.mode, "its mode"),
                (stat.uid, set.uid, before.uid, "its owner"),
                (stat.gid, set.gid, before.gid, "its group"),
            ] {
                if value.is_some_and(|value| now != then && now != value) {
                    applying.wrong(path.clone(), format!("{what} has been changed"));
                }
            }
            for (name, value) in &set.xattrs {
                let now = self.xattr_of(At::Path(&path), &found, name)?;
                let then = set.before.xattrs.get(name).copied().flatten();
                if now != *value && now.as_deref().map(xattr_checksum) != then {
                    applying.wrong(
                        path.clone(),
                        format!("its attribute {} has been changed", String::from_utf8_lossy(name)),
                    );
                }
            }
        }
        Ok(())
    }

    /// Makes what the group made. Gives the regular files.
    fn bear_all(&mut self, applying: &mut Applying<'_>) -> Result<BTreeMap<u64, Arc<Inner>>> {
        let mut files = BTreeMap::new();
        let now = self.store.host.now_ns();
        for (&id, known) in &applying.summary.objects {
            let Known::Born(birth) = known else { continue };
            let path = applying.path(id);
            // As the call by which somebody else's file would be made.
            if !self.who.is_superuser() && (birth.uid != self.who.uid() || !self.who.is_in(birth.gid)) {
                return refused(At::Path(&path), rustix::io::Errno::PERM);
            }
            self.check_target(At::Path(&path), &birth.target)?;
            let birth = Birth { btime_ns: now, atime_ns: now, mtime_ns: now, ..(**birth).clone() };
            let (kind, mode) = (Kind::of(birth.mode), birth.mode);
            let new = self.bear_nameless(birth)?;
            applying.ids.insert(id, new);
            if kind == Kind::Regular {
                files.insert(id, self.take_born(&path, new, (now, mode))?);
            }
        }
        Ok(files)
    }

    pub(super) fn set_names(&mut self, applying: &mut Applying<'_>) -> Result<()> {
        for (name, &(before, after)) in applying.summary.names() {
            let ids = |id: &u64| if *id == 0 { Some(0) } else { applying.ids.get(id).copied() };
            if let (Some(last), Some(before), Some(after)) = (applying.last(name), ids(&before), ids(&after)) {
                self.set_name(&last, before, after)?;
            }
        }
        for &id in applying.summary.moved().keys() {
            if let Some(found) = applying.found(id).filter(|found| found.kind == Kind::Regular) {
                let file = self.store.file_of(b"", &found)?;
                self.touch(self.find(&file));
            }
        }
        Ok(())
    }

    /// Each directory that is to have a name lies in the store's, and one that is to have none holds nothing.
    fn compare_shape(&mut self, applying: &mut Applying<'_>) -> Result<()> {
        let summary = applying.summary;
        for (name, &(_, after)) in summary.names() {
            let Some(last) = applying.last(name).filter(|_| after != 0) else { continue };
            if !self.is_in_root(last.dir) {
                applying.wrong(applying.path_of(name), "its directory is gone, or would lie in itself");
            }
        }
        self.compare_removed(applying)
    }

    /// A directory that is to have no name holds nothing.
    pub(super) fn compare_removed(&self, applying: &mut Applying<'_>) -> Result<()> {
        let summary = applying.summary;
        for (&id, moves) in summary.moved() {
            let Some(found) =
                applying.found(id).filter(|found| found.kind == Kind::Directory && moves.gained.is_empty())
            else {
                continue;
            };
            // Another part of the summary may have its other name. In what goes whole are names.
            if self.has_name(found.id) || self.takes_whole(found.id) {
                continue;
            }
            for (name, _) in self.walk().list(found.id)? {
                let path = [applying.path(id).as_slice(), b"/", &name].concat();
                applying.wrong(path, "it has been put into a directory that the group removes");
            }
        }
        Ok(())
    }

    /// Whether a directory lies in the store's directory, for the group.
    fn is_in_root(&self, dir: u64) -> bool {
        let (mut at, mut seen) = (dir, HashSet::new());
        while at != ROOT {
            let is_new = seen.insert(at);
            match self.walk().above(at).filter(|_| is_new) {
                Some(above) => at = above,
                None => return false,
            }
        }
        true
    }

    pub(super) fn set_content(
        &mut self,
        written: &Written<'_>,
        file: &Arc<Inner>,
        content: &Content,
        reserve: Reserve,
    ) -> Result<()> {
        if content.limit < self.size_of(file)? {
            self.set_len(file, content.limit)?;
        }
        if content.size != self.size_of(file)? {
            self.set_len(file, content.size)?;
        }
        for (range, how) in &content.space {
            let (from, length) = (range.start, range.end - range.start);
            let done = match reserve {
                Reserve::Not if how.reserves() => Err(Error::NoSpace(String::new())),
                _ => self.fallocate(file, *how, from, length),
            };
            match done {
                // What reads as zeros reads so without space, too.
                Err(Error::NoSpace(_)) if reserve != Reserve::Must && how.zeroes() => {
                    self.fallocate(file, Fallocate::Punch, from, length)?;
                }
                Err(Error::NoSpace(_)) if reserve != Reserve::Must => {}
                done => done?,
            }
        }
        for piece in &content.pieces {
            self.write(file, piece.offset, &written.piece(piece)?)?;
        }
        Ok(())
    }

    /// Sets attributes as the calls did that set them; of what is new, whatever its directory would have handed down.
    pub(super) fn set_all(
        &mut self,
        id: u64,
        path: &[u8],
        (set, mtime_ns): (&Set, Option<i64>),
        born: bool,
    ) -> Result<()> {
        let (at, found) = (At::Path(path), self.object(id)?);
        let file = self.join_named(path, &found)?;
        let mine = Mine { stat: self.stat(path, &found)?, found, file };
        let Set { mode, uid, gid, atime_ns, .. } = *set;
        let wish = Wish { mode, uid, gid, atime_ns, mtime_ns, now: false, chown: false };
        if !born {
            self.check_may_set(at, &mine, &wish)?;
        }
        if wish.is_any() {
            self.set(&mine, wish)?;
        }
        for (name, value) in &set.xattrs {
            if !born {
                self.check_may_set_xattr(at, name, &mine)?;
            }
            self.put_xattr(at, &mine, name, value.as_deref())?;
        }
        Ok(())
    }
}
