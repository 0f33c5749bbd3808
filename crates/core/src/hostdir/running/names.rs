//! What a running group does to names: each call claims what it changes, looks whether it may, and logs what the names are to be.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_media::{DirEntry, Rename, Stat};

use super::patience::Patience;
use super::{Inner, Running};
use crate::error::{Error, Result};
use crate::hostdir::clock::Mtime;
use crate::hostdir::file::IMPLICIT;
use crate::hostdir::names::permit;
use crate::hostdir::names::{
    DIRECTORY, Found, Kind, Last, Private, REGULAR, ROOT, SYMLINK, Set, State, TYPE, Walk, Wanted, show,
};
use crate::hostdir::records::{Birth, Value};
use crate::hostdir::table::host_error;
use crate::log::layout::EntryKind;
use crate::sync::Backoff;

/// Times that a call looks again because what it had seen was gone when it claimed it.
pub(super) const TRIES: usize = 100;

/// The bits of a mode that make a program run as its owner or group.
const SET_ID: u32 = 0o6000;

/// Bytes of a symbolic link's target.
const TARGET_MAX: usize = 4095;

pub(super) fn refused<T>(at: At<'_>, errno: Errno) -> Result<T> {
    Err(Error::Refused(at.show(), errno))
}

/// Where a call finds the name that it is about.
#[derive(Clone, Copy)]
pub(in crate::hostdir) enum At<'a> {
    /// Where this path leads to.
    Path(&'a [u8]),
    /// In this directory, which somebody has looked up.
    In(u64, &'a [u8]),
    /// No name, but this object.
    Object(u64),
}

impl<'a> From<&'a [u8]> for At<'a> {
    fn from(path: &'a [u8]) -> Self {
        At::Path(path)
    }
}

impl<'a> At<'a> {
    /// The path, or what of it is known, for messages.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            At::Path(path) => path,
            At::In(_, name) => name,
            At::Object(_) => b"(an open file)",
        }
    }

    pub fn show(self) -> String {
        show(self.bytes())
    }
}

/// Whether the table has forgotten an object since it was found, as it does when passes go by: it is to be looked for again.
fn was_forgotten(checked: Result<()>) -> Result<bool> {
    match checked {
        Err(Error::NotFound(_)) => Ok(true),
        checked => checked.map(|()| false),
    }
}

/// What became of a claim.
pub(super) enum Claimed {
    Yes,
    /// An object is not in the table any more: it is to be looked for again.
    Forgotten,
}

impl Running {
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { names: &self.store.names, host: &*self.store.host, private: self.names.as_deref() }
    }

    pub(super) fn names_mut(&mut self) -> &mut Private {
        self.names.get_or_insert_default()
    }

    /// The directory that a name is in, and the name.
    fn last(&self, at: At<'_>) -> Result<Last> {
        match at {
            At::Path(path) => self.walk().parent(path),
            At::In(dir, name) => Ok(Last { dir, name: name.to_vec() }),
            At::Object(_) => Err(Error::invalid("it takes a name")),
        }
    }

    /// As it claims names.
    fn claimer(&self) -> u64 {
        if self.single { self.id | IMPLICIT } else { self.id }
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.store.check_usable()?;
        self.check_whole()
    }

    /// Claims names and objects until the group ends. Calls outside of groups wait for each other.
    pub(super) fn claim(&mut self, wanted: &Wanted) -> Result<Claimed> {
        let (mut backoff, mut patience) = (Backoff::new(), Patience::new(self.busy_timeout));
        loop {
            let (claimer, store) = (self.claimer(), self.store.clone());
            let private = self.names_mut();
            let taken: Result<Option<u64>, u64> = store.names.with(|state| {
                let names = wanted.names.iter().map(|name| name.0);
                let objects = [&wanted.alone, &wanted.shared, &wanted.attributes].into_iter().flatten().copied();
                if names.chain(objects).any(|id| !state.objects.contains_key(&id)) {
                    return Ok(None);
                }
                let mut all = wanted.clone();
                all.shared.extend(wanted.names.iter().map(|name| name.0));
                state.claims.take(claimer, all, &mut private.held)?;
                let names = wanted.names.iter().filter_map(|(dir, name)| state.register(*dir, name));
                let objects = wanted.alone.iter().chain(&wanted.attributes).filter_map(|id| state.objects.get(id));
                let last = names.map(|register| register.last()).chain(objects.map(|object| object.last)).max();
                Ok(Some(last.unwrap_or(0)))
            });
            match taken {
                Ok(None) => return Ok(Claimed::Forgotten),
                Ok(Some(last)) => {
                    if last > self.sequence {
                        self.sequence = self.store.log.take_sequence();
                    }
                    return Ok(Claimed::Yes);
                }
                Err(other) if self.single && other & IMPLICIT != 0 => backoff.wait(),
                Err(_) if patience.wait() => {}
                Err(other) => {
                    let what = self.store.names.with(|state| match (wanted.names.first(), wanted.attributes.first()) {
                        (Some((dir, name)), _) => state.path_of(*dir, name),
                        (None, Some(id)) => state.path(*id),
                        (None, None) => "an object".into(),
                    });
                    return Err(Error::Busy(what, format!("group {} has not ended", other & 0xff_ffff_ffff)));
                }
            }
        }
    }

    /// The group has ended: its claims are gone.
    #[cold]
    pub(super) fn release_names(&mut self) {
        let claimer = self.claimer();
        if let Some(private) = self.names.take() {
            self.store.names.with(|state| state.claims.release(claimer, &private.held));
        }
    }

    /// Claims the last part of a path, and `more` that depends on what is there; gives what it names once nobody else can change that.
    pub(super) fn claim_last(
        &mut self,
        at: At<'_>,
        more: impl Fn(&Last, Option<&Found>) -> Result<Wanted>,
    ) -> Result<(Last, Option<Found>)> {
        for _ in 0..TRIES {
            let last = self.last(at)?;
            let found = self.walk().lookup(last.dir, &last.name)?;
            let wanted = match more(&last, found.as_ref()) {
                // What is there, or is not, comes before who asks.
                Err(error @ (Error::Exists(_) | Error::NotFound(_))) => return Err(error),
                wanted => wanted,
            };
            if found.is_none() && !self.is_there(last.dir) {
                return Err(Error::NotFound(at.show()));
            }
            if was_forgotten(self.check_may_change(at, last.dir, found.as_ref()))? {
                continue;
            }
            let mut wanted = wanted?;
            wanted.names.push((last.dir, last.name.clone()));
            if let Claimed::Forgotten = self.claim(&wanted)? {
                continue;
            }
            let now = self.walk().lookup(last.dir, &last.name)?;
            if self.is_there(last.dir) && now.as_ref().map(|found| found.id) == found.map(|found| found.id) {
                return Ok((last, now));
            }
        }
        Err(Error::Busy(at.show(), "others change it all the time".into()))
    }

    /// Whether who calls may change names in a directory, and take one away from `victim`.
    pub(super) fn check_may_change(&self, at: At<'_>, dir: u64, victim: Option<&Found>) -> Result<()> {
        if self.who.is_superuser() {
            return Ok(());
        }
        let found = Found { id: dir, kind: Kind::Directory, stat: None };
        let dir = self.stat(at.bytes(), &found)?;
        if !self.allows(&self.who, &found, &dir, permit::WRITE | permit::SEARCH) {
            return refused(at, Errno::ACCESS);
        }
        match victim {
            Some(victim) if self.who.is_kept_from(&dir, &self.stat(at.bytes(), victim)?) => refused(at, Errno::PERM),
            _ => Ok(()),
        }
    }

    /// Whether who calls may move a directory to another one, which changes what is in it: the name `..`.
    fn check_may_leave(&self, at: At<'_>, old: &Last, new: &Last, moved: &Found) -> Result<()> {
        let moves = moved.kind == Kind::Directory && old.dir != new.dir;
        match moves && !self.allows(&self.who, moved, &self.stat(at.bytes(), moved)?, permit::WRITE) {
            true => refused(at, Errno::ACCESS),
            false => Ok(()),
        }
    }

    /// Whether a directory has a name for the group.
    pub(super) fn is_there(&self, dir: u64) -> bool {
        dir == ROOT || self.walk().above(dir).is_some()
    }

    /// Sets a name, for the group and in the log.
    pub(super) fn set_name(&mut self, last: &Last, before: u64, after: u64) -> Result<()> {
        self.set_name_at(last, before, after, self.store.host.now_ns())
    }

    fn set_name_at(&mut self, last: &Last, before: u64, after: u64, now: i64) -> Result<()> {
        let value = Value { before, after, name: last.name.clone() };
        self.log_entry(EntryKind::Name, last.dir, &value.to_bytes())?;
        let store = self.store.clone();
        let (builds_on, directories) = store.names.with(|state| {
            let objects = [before, after].into_iter().filter_map(|id| state.objects.get(&id)).map(|object| object.last);
            let builds_on = objects.chain(state.register(last.dir, &last.name).map(|register| register.last())).max();
            let is_dir = |id: u64| state.objects.get(&id).is_some_and(|object| object.kind == Kind::Directory);
            (builds_on.unwrap_or(0), i64::from(is_dir(after)) - i64::from(is_dir(before)))
        });
        let private = self.names_mut();
        private.after = private.after.max(builds_on);
        private.set(last.dir, &last.name, before, after);
        private.count_directories(last.dir, directories);
        private.set_mtime(last.dir, Mtime::Changed(now));
        for id in [last.dir, before, after] {
            private.set_ctime(id, now);
        }
        Ok(())
    }

    pub(super) fn log_entry(&mut self, kind: EntryKind, object: u64, payload: &[u8]) -> Result<()> {
        self.make_room_for(payload.len())?;
        if !self.in_lane && self.seat().gathered_bytes + payload.len() as u64 > self.store.gather_limit() {
            self.spill().map_err(|error| self.break_off(error))?;
        }
        self.entry(kind, object, 0, payload).map(drop).map_err(|error| self.break_off(error))
    }

    /// Makes an object where nothing may be.
    pub(in crate::hostdir) fn bear(&mut self, at: At<'_>, birth: Birth) -> Result<u64> {
        self.check_open()?;
        let exists = |_: &Last, found: Option<&Found>| match found {
            Some(_) => Err(Error::Exists(at.show())),
            None => Ok(Wanted::default()),
        };
        let (last, _) = self.claim_last(at, exists)?;
        let (birth, lists) = self.inherited(last.dir, birth)?;
        let id = self.bear_nameless(birth)?;
        self.hand_down(id, lists)?;
        self.set_name(&last, 0, id)?;
        Ok(id)
    }

    /// Makes an object that has no name.
    pub(super) fn bear_nameless(&mut self, birth: Birth) -> Result<u64> {
        let birth = Arc::new(birth);
        let id = loop {
            let id = self.store.names.with(|state| state.bear(birth.clone()));
            // So that it stays in the table; where passes came between it does not.
            if let Claimed::Yes = self.claim(&Wanted { alone: vec![id], ..Wanted::default() })? {
                break id;
            }
        };
        self.names_mut().add_born(id);
        self.log_entry(EntryKind::Create, id, &birth.to_bytes())?;
        Ok(id)
    }

    pub(in crate::hostdir) fn create(&mut self, path: &[u8], mode: u32) -> Result<Arc<Inner>> {
        check_bits(mode)?;
        self.create_at(path.into(), birth(REGULAR | mode, self.store.host.now_ns()))
    }

    /// Makes a regular file, which is the group's.
    pub(in crate::hostdir) fn create_at(&mut self, at: At<'_>, birth: Birth) -> Result<Arc<Inner>> {
        let born = (birth.mtime_ns, birth.mode);
        let id = self.bear(at, birth)?;
        self.take_born(at.bytes(), id, born)
    }

    /// The file that the group has just made belongs to it.
    pub(super) fn take_born(&mut self, path: &[u8], id: u64, (born_ns, mode): (i64, u32)) -> Result<Arc<Inner>> {
        let inner = self.store.file_of(path, &Found { id, kind: Kind::Regular, stat: None })?;
        self.own(&inner)?;
        let i = self.add(inner.clone(), true);
        inner.set_privileges(mode & SET_ID != 0);
        self.seat_mut().files[i].mtime = Mtime::Told(born_ns);
        Ok(inner)
    }

    pub(in crate::hostdir) fn mkdir(&mut self, path: &[u8], mode: u32) -> Result<()> {
        check_bits(mode)?;
        self.bear(path.into(), birth(DIRECTORY | mode, self.store.host.now_ns())).map(drop)
    }

    pub(in crate::hostdir) fn mknod(&mut self, path: &[u8], mode: u32, rdev: u64) -> Result<()> {
        check_bits(mode & !TYPE)?;
        const FIFO: u32 = 0o010_000;
        const SOCKET: u32 = 0o140_000;
        match mode & TYPE {
            0 | REGULAR => self.create(path, mode & !TYPE).map(drop),
            FIFO | SOCKET => self.bear(path.into(), birth(mode, self.store.host.now_ns())).map(drop),
            0o020_000 | 0o060_000 if !self.who.is_superuser() => refused(path.into(), Errno::PERM),
            0o020_000 | 0o060_000 => {
                self.bear(path.into(), Birth { rdev, ..birth(mode, self.store.host.now_ns()) }).map(drop)
            }
            _ => refused(path.into(), Errno::INVAL),
        }
    }

    pub(in crate::hostdir) fn symlink(&mut self, target: &[u8], path: &[u8]) -> Result<()> {
        match target.len() {
            0 => refused(path.into(), Errno::NOENT),
            length if length > TARGET_MAX => refused(path.into(), Errno::NAMETOOLONG),
            _ if target.contains(&0) => Err(Error::invalid("the target of a symbolic link cannot hold a zero byte")),
            _ => self
                .bear(
                    path.into(),
                    Birth { target: target.to_vec(), ..birth(SYMLINK | 0o777, self.store.host.now_ns()) },
                )
                .map(drop),
        }
    }

    /// What has to be claimed of an object that is linked, unlinked or moved: of files only that they stay in the table until they are
    /// [joined](Self::join_named).
    pub(super) fn of_object(found: &Found) -> Wanted {
        match found.kind {
            Kind::Regular => Wanted { shared: vec![found.id], ..Wanted::default() },
            _ => Wanted { alone: vec![found.id], ..Wanted::default() },
        }
    }

    /// A regular file whose names the group changes belongs to it as if it wrote to it. Gives its number, for [`touch`](Self::touch).
    pub(super) fn join_named(&mut self, path: &[u8], found: &Found) -> Result<Option<usize>> {
        if found.kind != Kind::Regular {
            return Ok(None);
        }
        let inner = self.store.file_of(path, found)?;
        if let Some(i) = self.find(&inner) {
            return Ok(Some(i));
        }
        self.store.sync_file(&inner)?;
        self.own(&inner)?;
        Ok(Some(self.add(inner, false)))
    }

    /// An entry about one of the group's files has been logged. Not before: of a call that is refused replay sees nothing.
    pub(super) fn touch(&mut self, file: Option<usize>) {
        if let Some(i) = file {
            self.seat_mut().files[i].touched = true;
        }
    }

    pub(in crate::hostdir) fn link(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        self.check_open()?;
        for _ in 0..TRIES {
            let old = self.walk().parent(from)?;
            let Some(found) = self.walk().lookup(old.dir, &old.name)? else {
                return Err(Error::NotFound(show(from)));
            };
            let exists = |_: &Last, taken: Option<&Found>| match taken {
                Some(_) => Err(Error::Exists(show(to))),
                None if found.kind == Kind::Directory => refused(from.into(), Errno::PERM),
                None => Ok(Self::of_object(&found)),
            };
            let (last, _) = self.claim_last(to.into(), exists)?;
            let file = self.join_named(from, &found)?;
            // Whoever unlinked it meanwhile had it before this group did.
            let now = self.walk().lookup(old.dir, &old.name)?;
            if now.is_some_and(|now| now.id == found.id) {
                self.set_name(&last, 0, found.id)?;
                self.touch(file);
                return Ok(());
            }
        }
        Err(Error::Busy(show(from), "others change it all the time".into()))
    }

    pub(in crate::hostdir) fn unlink<'a>(&mut self, at: impl Into<At<'a>>) -> Result<()> {
        let at = at.into();
        self.check_open()?;
        let (last, found) = self.claim_last(at, |_, found| match found {
            None => Err(Error::NotFound(at.show())),
            Some(found) if found.kind == Kind::Directory => refused(at, Errno::ISDIR),
            Some(found) => Ok(Self::of_object(found)),
        })?;
        let found = found.expect("it was just found");
        let file = self.join_named(at.bytes(), &found)?;
        self.set_name(&last, found.id, 0)?;
        self.touch(file);
        Ok(())
    }

    pub(in crate::hostdir) fn rmdir<'a>(&mut self, at: impl Into<At<'a>>) -> Result<()> {
        let at = at.into();
        self.check_open()?;
        let (last, found) = self.claim_last(at, |_, found| match found {
            None => Err(Error::NotFound(at.show())),
            Some(found) if found.kind != Kind::Directory => refused(at, Errno::NOTDIR),
            Some(found) => Ok(Self::of_object(found)),
        })?;
        let found = found.expect("it was just found");
        if !self.walk().list(found.id)?.is_empty() {
            return refused(at, Errno::NOTEMPTY);
        }
        self.set_name(&last, found.id, 0)
    }

    pub(in crate::hostdir) fn rename<'a>(
        &mut self,
        from: impl Into<At<'a>>,
        to: impl Into<At<'a>>,
        how: Rename,
    ) -> Result<()> {
        let (from, to) = (from.into(), to.into());
        self.check_open()?;
        for _ in 0..TRIES {
            let (old, new) = (self.last(from)?, self.last(to)?);
            let Some(moved) = self.walk().lookup(old.dir, &old.name)? else {
                return Err(Error::NotFound(from.show()));
            };
            let taken = self.walk().lookup(new.dir, &new.name)?;
            if taken.is_none() && !self.is_there(new.dir) {
                return Err(Error::NotFound(to.show()));
            }
            let mut wanted = self.what_a_rename_claims(&old, &new, &moved, taken.as_ref(), how);
            wanted.names.extend([(old.dir, old.name.clone()), (new.dir, new.name.clone())]);
            if let Claimed::Forgotten = self.claim(&wanted)? {
                continue;
            }
            let id = |found: Option<Found>| found.map(|found| found.id);
            let same = self.is_there(old.dir)
                && self.is_there(new.dir)
                && id(self.walk().lookup(old.dir, &old.name)?) == Some(moved.id)
                && id(self.walk().lookup(new.dir, &new.name)?) == id(taken.clone());
            if !same {
                continue;
            }
            if !self.has_to_rename((from, &old, &moved), (to, &new, taken.as_ref()), how)? {
                return Ok(());
            }
            if was_forgotten(self.check_may_change(from, old.dir, Some(&moved)))?
                || was_forgotten(self.check_may_change(to, new.dir, taken.as_ref()))?
            {
                continue;
            }
            self.check_may_leave(from, &old, &new, &moved)?;
            if let Some(taken) = taken.as_ref().filter(|_| how == Rename::Exchange) {
                self.check_may_leave(to, &new, &old, taken)?;
            }
            if let Some(taken) = taken.as_ref().filter(|_| how == Rename::Replace) {
                self.check_replaces(to, &moved, taken)?;
            }
            let moved_file = self.join_named(from.bytes(), &moved)?;
            let taken_file = taken.as_ref().map(|taken| self.join_named(to.bytes(), taken)).transpose()?.flatten();
            let taken = id(taken).unwrap_or(0);
            self.make_room_for(2 * Value::LARGEST)?;
            self.set_name(&old, moved.id, if how == Rename::Exchange { taken } else { 0 })?;
            self.set_name(&new, taken, moved.id).map_err(|error| self.break_off(error))?;
            self.touch(moved_file);
            self.touch(taken_file);
            return Ok(());
        }
        Err(Error::Busy(from.show(), "others change it all the time".into()))
    }

    fn what_a_rename_claims(
        &self,
        old: &Last,
        new: &Last,
        moved: &Found,
        taken: Option<&Found>,
        how: Rename,
    ) -> Wanted {
        let mut wanted = Wanted::default();
        for found in [Some(moved), taken].into_iter().flatten() {
            let Wanted { alone, shared, .. } = Self::of_object(found);
            wanted.alone.extend(alone);
            wanted.shared.extend(shared);
        }
        // The shape of the tree that no circle comes of.
        let is_dir = |found: Option<&Found>| found.is_some_and(|found| found.kind == Kind::Directory);
        if old.dir != new.dir && is_dir(Some(moved)) {
            wanted.shared.extend(self.all_above(new.dir));
        }
        if old.dir != new.dir && how == Rename::Exchange && is_dir(taken) {
            wanted.shared.extend(self.all_above(old.dir));
        }
        // What moves into itself is refused later: nobody can have both claims.
        wanted.shared.retain(|id| !wanted.alone.contains(id));
        wanted
    }

    /// A directory and those that it is in, as the group sees them.
    pub(super) fn all_above(&self, dir: u64) -> Vec<u64> {
        let mut all = vec![dir];
        while let Some(above) = self.walk().above(*all.last().expect("it has one")) {
            all.push(above);
        }
        all
    }

    /// Whether a rename that makes sense has anything to do.
    fn has_to_rename(
        &self,
        (from, old, moved): (At<'_>, &Last, &Found),
        (to, new, taken): (At<'_>, &Last, Option<&Found>),
        how: Rename,
    ) -> Result<bool> {
        let is_in =
            |dir: &Found, last: &Last| dir.kind == Kind::Directory && self.all_above(last.dir).contains(&dir.id);
        match (taken, how) {
            (Some(_), Rename::NoReplace) => Err(Error::Exists(to.show())),
            (None, Rename::Exchange) => Err(Error::NotFound(to.show())),
            _ if is_in(moved, new) => refused(from, Errno::INVAL),
            (Some(taken), Rename::Exchange) if is_in(taken, old) => refused(to, Errno::INVAL),
            (Some(taken), _) if is_in(taken, old) => refused(to, Errno::NOTEMPTY),
            (Some(taken), _) => Ok(taken.id != moved.id),
            _ => Ok(true),
        }
    }

    /// Whether what moves may take the place of what is there.
    fn check_replaces(&self, to: At<'_>, moved: &Found, taken: &Found) -> Result<()> {
        let is_dir = |found: &Found| found.kind == Kind::Directory;
        match (is_dir(moved), is_dir(taken)) {
            (true, false) => refused(to, Errno::NOTDIR),
            (false, true) => refused(to, Errno::ISDIR),
            (true, true) if !self.walk().list(taken.id)?.is_empty() => refused(to, Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Opens a regular file, as the group sees the directory.
    pub(in crate::hostdir) fn open_file(&self, path: &[u8]) -> Result<Arc<Inner>> {
        self.store.check_usable()?;
        self.store.open_target(&self.walk(), path)
    }

    pub(in crate::hostdir) fn metadata(&self, path: &[u8]) -> Result<Stat> {
        self.store.check_usable()?;
        for _ in 0..TRIES {
            match self.stat(path, &self.object_at(path.into())?) {
                // As in `was_forgotten`.
                Err(Error::NotFound(_)) => {}
                stat => return stat,
            }
        }
        Err(Error::NotFound(show(path)))
    }

    /// What is there; a symbolic link at the end of a path is meant itself.
    pub(super) fn object_at(&self, at: At<'_>) -> Result<Found> {
        match at {
            At::Path(b"") => return Ok(Found { id: ROOT, kind: Kind::Directory, stat: None }),
            At::Object(id) => return self.object(id),
            _ => {}
        }
        let last = self.last(at)?;
        self.walk().lookup(last.dir, &last.name)?.ok_or_else(|| Error::NotFound(at.show()))
    }

    /// What is known of an object that was found at `path`.
    pub(super) fn stat(&self, path: &[u8], found: &Found) -> Result<Stat> {
        let still = self.store.names.keep_homes();
        let Some(known) = self.store.names.with(|state| Known::of(state, found.id)) else {
            return Err(Error::NotFound(show(path)));
        };
        let Known { place, birth, unsure, links, shown, file, set, mtime_ns, ctime_ns, read_ns } = known;
        let nameless = || Some(file.as_ref()?.home()?.stat());
        let host = place.map_or_else(nameless, |place| Some(self.store.host.stat(&place)));
        let host = host.transpose().map_err(|error| host_error(error, path))?;
        drop(still);
        let is_dir = found.kind == Kind::Directory;
        let mut stat = match (host, birth) {
            (Some(stat), Some(birth)) if unsure => Stat { mode: birth.mode, uid: birth.uid, gid: birth.gid, ..stat },
            (Some(stat), _) => stat,
            (None, Some(birth)) => Stat {
                mode: birth.mode,
                uid: birth.uid,
                gid: birth.gid,
                rdev: birth.rdev,
                nlink: if is_dir { 2 } else { 0 },
                size: birth.target.len() as u64,
                btime_ns: birth.btime_ns,
                atime_ns: birth.atime_ns,
                mtime_ns: birth.mtime_ns,
                ctime_ns: birth.btime_ns,
                ..Stat::default()
            },
            (None, None) => return Err(Error::NotFound(show(path))),
        };
        let private = self.names.as_deref().map_or(0, |private| match is_dir {
            true => private.directories(found.id),
            false => private.links(found.id),
        });
        stat.nlink = u32::try_from(i64::from(stat.nlink) + links + private).unwrap_or(0);
        stat.ino = shown;
        let private = self.names.as_deref();
        set.show(&mut stat);
        if let Some(set) = private.and_then(|private| private.set_of(found.id)) {
            set.show(&mut stat);
        }
        let mut mtime = private.and_then(|private| private.mtime_of(found.id).seen()).or(mtime_ns);
        if let Some(file) = file {
            let joined = self.find(&file).map(|i| &self.seat().files[i]);
            // What calls outside of groups do to a joined file is this group's own, which holds the lock of it.
            (stat.size, mtime) = match joined {
                Some(joined) => (joined.size, joined.mtime.seen().or(file.mtime())),
                None => (self.store.visible_len(&file), self.store.visible_mtime(&file)),
            };
            stat.ctime_ns = stat.ctime_ns.max(file.ctime().unwrap_or(i64::MIN));
        }
        if let Some(mtime_ns) = mtime {
            // Whoever set it to a time in the future did so before now.
            stat.ctime_ns = stat.ctime_ns.max(mtime_ns.min(self.store.host.now_ns()));
            stat.mtime_ns = mtime_ns;
        }
        let own = private.and_then(|private| private.ctime_of(found.id));
        stat.ctime_ns = stat.ctime_ns.max(own.max(ctime_ns).unwrap_or(i64::MIN));
        stat.atime_ns = stat.atime_ns.max(read_ns.unwrap_or(i64::MIN));
        Ok(stat)
    }

    pub(in crate::hostdir) fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.store.check_usable()?;
        let last = self.walk().parent(path)?;
        match self.walk().lookup(last.dir, &last.name)? {
            Some(found) if found.kind == Kind::Symlink => self.walk().read_link(last.dir, &last.name, &found),
            Some(_) => refused(path.into(), Errno::INVAL),
            None => Err(Error::NotFound(show(path))),
        }
    }

    pub(in crate::hostdir) fn read_dir(&self, path: &[u8]) -> Result<Vec<DirEntry>> {
        self.store.check_usable()?;
        self.list_of(self.walk().directory(path)?)
    }
}

/// What the table knows of an object that somebody asks about.
struct Known {
    place: Option<Vec<u8>>,
    birth: Option<Arc<Birth>>,
    unsure: bool,
    links: i64,
    shown: u64,
    file: Option<Arc<Inner>>,
    set: Set,
    mtime_ns: Option<i64>,
    ctime_ns: Option<i64>,
    read_ns: Option<i64>,
}

impl Known {
    fn of(state: &mut State, id: u64) -> Option<Known> {
        let (place, shown) = (state.host_path(id), state.shown(id));
        let object = state.objects.get(&id)?;
        Some(Known {
            place,
            birth: object.birth.clone(),
            unsure: object.unsure,
            links: object.links,
            shown,
            file: object.file.upgrade(),
            set: object.sets.as_of(u64::MAX),
            mtime_ns: object.mtime_ns,
            ctime_ns: object.ctime_ns,
            read_ns: object.read_ns,
        })
    }
}

pub(super) fn check_bits(mode: u32) -> Result<()> {
    match mode & !0o7777 {
        0 => Ok(()),
        _ => Err(Error::invalid(format!("mode {mode:o}: it takes permission bits"))),
    }
}

/// Of what the calling user makes `now`.
fn birth(mode: u32, now: i64) -> Birth {
    Birth {
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        btime_ns: now,
        atime_ns: now,
        mtime_ns: now,
        target: Vec::new(),
    }
}
