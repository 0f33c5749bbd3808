//! What a running group does to names: each call claims what it changes, looks whether it may, and logs what the names
//! are to be.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::Kind;
use wholly_changes::records::{Birth, Value};
use wholly_vfs::Rename;

use super::{Inner, Running};
use crate::error::{Error, Result};
use crate::hostdir::clock::Mtime;
use crate::hostdir::names::{DIRECTORY, Found, Last, Object, REGULAR, SYMLINK, TRIES, TYPE, Wanted, show};
use crate::hostdir::room::Promise;
use crate::log::layout::EntryKind;
use wholly_vfs::FileType;
use wholly_vfs::rules::names::{WHITEOUT, check_kind, check_node, check_rename, check_target};
use wholly_vfs::rules::permit;

/// The bits of a mode that make a program run as its owner or group.
const SET_ID: u32 = 0o6000;

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

impl Running {
    /// Whether who calls may move a directory to another one, which changes what is in it: the name `..`.
    fn check_may_leave(&self, at: At<'_>, old: &Last, new: &Last, moved: &Found) -> Result<()> {
        let moves = moved.kind == Kind::Directory && old.dir != new.dir;
        match moves && !self.allows(&self.who, moved, &self.stat(at.bytes(), moved)?, permit::WRITE) {
            true => refused(at, Errno::ACCESS),
            false => Ok(()),
        }
    }

    /// Sets a name, for the group and in the log.
    pub(super) fn set_name(&mut self, last: &Last, before: u64, after: u64) -> Result<()> {
        let now = self.store.host.now_ns();
        self.name(last, before, after, now)?;
        self.names_mut().set_ctime(after, now);
        Ok(())
    }

    /// The same, where `after` is not changed by it: it is made with this name.
    fn name(&mut self, last: &Last, before: u64, after: u64, now: i64) -> Result<()> {
        let value = Value { before, after, name: last.name.clone() };
        self.log_entry(EntryKind::Name, last.dir, &value.to_bytes())?;
        let store = self.store.clone();
        let (builds_on, name, loses, gains) = store.names.with(|state| {
            let objects = [before, after].into_iter().filter_map(|id| state.objects.get(&id)).map(|object| object.last);
            let register = state.register(last.dir, &last.name).map(|register| register.last());
            // Of the directory, only that it was made: what else others do to it commutes with what is done in it.
            let made = state.objects.get(&last.dir).map(|dir| dir.made);
            let builds_on = objects.chain(register).chain(made).max();
            let is_dir = |id: u64| state.objects.get(&id).is_some_and(|object| object.kind == Kind::Directory);
            // What is taken away brings its name with it.
            let place = state.objects.get(&before).and_then(Object::place);
            let place = place.filter(|(dir, name)| *dir == last.dir && **name == *last.name).cloned();
            let name = place.unwrap_or_else(|| (last.dir, last.name[..].into()));
            (builds_on.unwrap_or(0), name, is_dir(before), is_dir(after))
        });
        let private = self.names_mut();
        private.after = private.after.max(builds_on);
        private.set(name, before, (after, gains));
        private.count_directories(last.dir, i64::from(gains) - i64::from(loses));
        private.set_mtime(last.dir, Mtime::Changed(now));
        private.set_ctime(last.dir, now);
        private.set_ctime(before, now);
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
        self.check_target(at, &birth.target)?;
        let (last, _) = self.claim_last(at, exists)?;
        self.promise_name(&last.name)?;
        let (birth, lists) = self.inherited(last.dir, birth)?;
        let id = self.bear_nameless(birth)?;
        self.hand_down(id, lists)?;
        self.name(&last, 0, id, self.store.host.now_ns())?;
        Ok(id)
    }

    /// Refuses a symbolic link whose target is longer than the host takes.
    pub(super) fn check_target(&self, at: At<'_>, target: &[u8]) -> Result<()> {
        match self.store.host.takes_target(target.len()) {
            true => Ok(()),
            false => refused(at, Errno::NAMETOOLONG),
        }
    }

    /// Makes an object that has no name.
    pub(super) fn bear_nameless(&mut self, birth: Birth) -> Result<u64> {
        self.promise(Promise::object(Kind::of(birth.mode), &birth.target), b"a new file or directory")?;
        let id = self.store.names.with(|state| state.bear(&birth));
        self.claim(&Wanted { alone: vec![id], ..Wanted::default() })?;
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
        self.check_open()?;
        self.let_go_of_unused();
        let born = (birth.mtime_ns, birth.mode);
        let id = self.bear(at, birth)?;
        self.take_born(at.bytes(), id, born)
    }

    /// The file that the group has just made belongs to it.
    pub(super) fn take_born(&mut self, path: &[u8], id: u64, (born_ns, mode): (i64, u32)) -> Result<Arc<Inner>> {
        let inner = self.store.file_of(path, &Found { id, kind: Kind::Regular, stat: None })?;
        self.own(&inner)?;
        self.add(inner.clone(), Some(born_ns));
        inner.set_privileges(mode & SET_ID != 0);
        Ok(inner)
    }

    pub(in crate::hostdir) fn mkdir(&mut self, path: &[u8], mode: u32) -> Result<()> {
        check_bits(mode)?;
        self.bear(path.into(), birth(DIRECTORY | mode, self.store.host.now_ns())).map(drop)
    }

    pub(in crate::hostdir) fn mknod(&mut self, path: &[u8], mode: u32, rdev: u64) -> Result<()> {
        check_bits(mode & !TYPE)?;
        let kind = if mode & TYPE == 0 { FileType::RegularFile } else { FileType::from_raw_mode(mode) };
        let rdev = check_node(&self.who, kind, rdev).or_else(|errno| refused(path.into(), errno))?;
        match kind {
            FileType::RegularFile => self.create(path, mode & !TYPE).map(drop),
            _ => self.bear(path.into(), Birth { rdev, ..birth(mode, self.store.host.now_ns()) }).map(drop),
        }
    }

    pub(in crate::hostdir) fn symlink(&mut self, target: &[u8], path: &[u8]) -> Result<()> {
        check_target(target).or_else(|errno| refused(path.into(), errno))?;
        let birth = Birth { target: target.to_vec(), ..birth(SYMLINK | 0o777, self.store.host.now_ns()) };
        self.bear(path.into(), birth).map(drop)
    }

    pub(in crate::hostdir) fn link(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        self.check_open()?;
        self.let_go_of_unused();
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
            self.check_links(from.into(), &found)?;
            self.promise_name(&last.name)?;
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

    /// Refuses one name more than the host has of a file.
    pub(super) fn check_links(&self, at: At<'_>, found: &Found) -> Result<()> {
        self.check_not_fixed(at, found.id)?;
        match self.store.host.most_links() {
            u32::MAX => Ok(()),
            most if self.stat(at.bytes(), found)?.nlink < most => Ok(()),
            _ => refused(at, Errno::MLINK),
        }
    }

    pub(in crate::hostdir) fn unlink<'a>(&mut self, at: impl Into<At<'a>>) -> Result<()> {
        let at = at.into();
        self.check_open()?;
        self.let_go_of_unused();
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

    /// Claims a directory that is to lose its name, and the name.
    pub(super) fn claim_directory(&mut self, at: At<'_>) -> Result<(Last, Found)> {
        let (last, found) = self.claim_last(at, |_, found| match found {
            None => Err(Error::NotFound(at.show())),
            Some(found) if found.kind != Kind::Directory => refused(at, Errno::NOTDIR),
            Some(found) => Ok(Self::of_object(found)),
        })?;
        Ok((last, found.expect("it was just found")))
    }

    pub(in crate::hostdir) fn rmdir<'a>(&mut self, at: impl Into<At<'a>>) -> Result<()> {
        let at = at.into();
        self.check_open()?;
        let (last, found) = self.claim_directory(at)?;
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
        let (how, leaves) = how.parts();
        let whiteout = leaves.then(|| birth(WHITEOUT, self.store.host.now_ns()));
        self.rename_leaving(from.into(), to.into(), how, whiteout)
    }

    /// The same. What is born so gets the old name.
    pub(in crate::hostdir) fn rename_leaving(
        &mut self,
        from: At<'_>,
        to: At<'_>,
        how: Rename,
        mut leaves: Option<Birth>,
    ) -> Result<()> {
        self.check_open()?;
        self.let_go_of_unused();
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
            wanted.names.extend([(old.dir, old.name[..].into()), (new.dir, new.name[..].into())]);
            self.claim(&wanted)?;
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
            self.check_may_change(from, old.dir, Some(&moved))?;
            self.check_may_change(to, new.dir, taken.as_ref())?;
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
            let left = match leaves.take() {
                Some(birth) => {
                    let (birth, lists) = self.inherited(old.dir, birth)?;
                    let id = self.bear_nameless(birth)?;
                    self.hand_down(id, lists)?;
                    id
                }
                None if how == Rename::Exchange => taken,
                None => 0,
            };
            self.make_room_for(2 * Value::LARGEST)?;
            self.set_name(&old, moved.id, left)?;
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

    /// Whether a rename that makes sense has anything to do.
    fn has_to_rename(
        &self,
        (from, old, moved): (At<'_>, &Last, &Found),
        (to, new, taken): (At<'_>, &Last, Option<&Found>),
        how: Rename,
    ) -> Result<bool> {
        let is_in =
            |dir: &Found, last: &Last| dir.kind == Kind::Directory && self.all_above(last.dir).contains(&dir.id);
        let is_above = (is_in(moved, new), taken.is_some_and(|taken| is_in(taken, old)));
        check_rename(how, taken.map(|taken| taken.id == moved.id), is_above).or_else(|errno| match errno {
            Errno::EXIST => Err(Error::Exists(to.show())),
            Errno::NOENT => Err(Error::NotFound(to.show())),
            errno => refused(if is_above.0 { from } else { to }, errno),
        })
    }

    /// Whether what moves may take the place of what is there.
    fn check_replaces(&self, to: At<'_>, moved: &Found, taken: &Found) -> Result<()> {
        let is_dir = |found: &Found| found.kind == Kind::Directory;
        check_kind(is_dir(moved), is_dir(taken)).or_else(|errno| refused(to, errno))?;
        match is_dir(taken) && !self.walk().list(taken.id)?.is_empty() {
            true => refused(to, Errno::NOTEMPTY),
            false => Ok(()),
        }
    }
}

pub(super) fn check_bits(mode: u32) -> Result<()> {
    match mode & !0o7777 {
        0 => Ok(()),
        _ => Err(Error::invalid(format!("mode {mode:o}: only permission bits are allowed"))),
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
