//! What a running group does to names: each call claims what it changes, looks whether it may, and logs what the names are to be.

use std::collections::HashSet;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_media::{DirEntry, Rename, Stat};

use super::{Inner, Running};
use crate::error::{Error, Result};
use crate::hostdir::file::IMPLICIT;
use crate::hostdir::names::permit;
use crate::hostdir::names::{
    DIRECTORY, Entry, Found, Kind, Last, Private, REGULAR, ROOT, SYMLINK, TYPE, Walk, Wanted, show,
};
use crate::hostdir::records::{Birth, Identity, Value};
use crate::hostdir::table::host_error;
use crate::log::layout::EntryKind;
use crate::sync::Backoff;

/// Times that a call looks again because what it had seen was gone when it claimed it.
const TRIES: usize = 100;

/// Bytes of a symbolic link's target.
const TARGET_MAX: usize = 4095;

fn refused<T>(path: &[u8], errno: Errno) -> Result<T> {
    Err(Error::Refused(show(path), errno))
}

/// What became of a claim.
enum Claimed {
    Yes,
    /// An object is not in the table any more: it is to be looked for again.
    Forgotten,
}

impl Running {
    fn walk(&self) -> Walk<'_> {
        Walk { names: &self.store.names, host: &*self.store.host, private: self.names.as_deref() }
    }

    fn names_mut(&mut self) -> &mut Private {
        self.names.get_or_insert_default()
    }

    /// As it claims names.
    fn claimer(&self) -> u64 {
        if self.single { self.id | IMPLICIT } else { self.id }
    }

    fn check_open(&self) -> Result<()> {
        self.store.check_usable()?;
        self.check_whole()
    }

    /// Claims names and objects until the group ends. Calls outside of groups wait for each other.
    fn claim(&mut self, wanted: &Wanted) -> Result<Claimed> {
        let mut backoff = Backoff::new();
        loop {
            let (claimer, store) = (self.claimer(), self.store.clone());
            let private = self.names_mut();
            let taken: Result<Option<u64>, u64> = store.names.with(|state| {
                let names = wanted.names.iter().map(|name| name.0);
                let mut ids = names.chain(wanted.alone.iter().copied()).chain(wanted.shared.iter().copied());
                if ids.any(|id| !state.objects.contains_key(&id)) {
                    return Ok(None);
                }
                let mut all = wanted.clone();
                all.shared.extend(wanted.names.iter().map(|name| name.0));
                state.claims.take(claimer, all, &mut private.held)?;
                let names = wanted.names.iter().filter_map(|(dir, name)| state.register(*dir, name));
                let objects = wanted.alone.iter().filter_map(|id| state.objects.get(id));
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
                Err(other) => {
                    let what = match wanted.names.first() {
                        Some((dir, name)) => self.store.names.with(|state| state.path_of(*dir, name)),
                        None => "an object".into(),
                    };
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
    fn claim_last(
        &mut self,
        path: &[u8],
        more: impl Fn(&Last, Option<&Found>) -> Result<Wanted>,
    ) -> Result<(Last, Option<Found>)> {
        for _ in 0..TRIES {
            let last = self.walk().parent(path)?;
            let found = self.walk().lookup(last.dir, &last.name)?;
            let mut wanted = more(&last, found.as_ref())?;
            self.check_may_change(path, last.dir, found.as_ref())?;
            wanted.names.push((last.dir, last.name.clone()));
            if let Claimed::Forgotten = self.claim(&wanted)? {
                continue;
            }
            let now = self.walk().lookup(last.dir, &last.name)?;
            if self.is_there(last.dir) && now.as_ref().map(|found| found.id) == found.map(|found| found.id) {
                return Ok((last, now));
            }
        }
        Err(Error::Busy(show(path), "others change it all the time".into()))
    }

    /// Whether the process may change names in a directory, and take one away from `victim`.
    fn check_may_change(&self, path: &[u8], dir: u64, victim: Option<&Found>) -> Result<()> {
        if permit::is_superuser() {
            return Ok(());
        }
        let dir = self.stat(path, &Found { id: dir, kind: Kind::Directory, stat: None })?;
        if !permit::may(&dir, permit::WRITE | permit::SEARCH) {
            return refused(path, Errno::ACCESS);
        }
        match victim {
            Some(victim) if permit::sticks(&dir, &self.stat(path, victim)?) => refused(path, Errno::PERM),
            _ => Ok(()),
        }
    }

    /// Whether the process may move a directory to another one, which changes what is in it: the name `..`.
    fn check_may_leave(&self, path: &[u8], old: &Last, new: &Last, moved: &Found) -> Result<()> {
        let moves = moved.kind == Kind::Directory && old.dir != new.dir;
        match moves && !permit::may(&self.stat(path, moved)?, permit::WRITE) {
            true => refused(path, Errno::ACCESS),
            false => Ok(()),
        }
    }

    /// Whether a directory has a name for the group.
    fn is_there(&self, dir: u64) -> bool {
        dir == ROOT || self.walk().above(dir).is_some()
    }

    /// Sets a name, for the group and in the log.
    fn set_name(&mut self, last: &Last, before: u64, after: u64) -> Result<()> {
        let value = Value { before, after, name: last.name.clone() };
        self.log_entry(EntryKind::Name, last.dir, &value.to_bytes())?;
        let store = self.store.clone();
        let builds_on = store.names.with(|state| {
            let objects = [before, after].into_iter().filter_map(|id| state.objects.get(&id)).map(|object| object.last);
            objects.chain(state.register(last.dir, &last.name).map(|register| register.last())).max().unwrap_or(0)
        });
        let private = self.names_mut();
        private.after = private.after.max(builds_on);
        private.set(last.dir, &last.name, before, after);
        Ok(())
    }

    fn log_entry(&mut self, kind: EntryKind, object: u64, payload: &[u8]) -> Result<()> {
        self.make_room_for(payload.len())?;
        if !self.in_lane && self.seat().gathered_bytes + payload.len() as u64 > self.store.gather_limit() {
            self.spill().map_err(|error| self.break_off(error))?;
        }
        self.entry(kind, object, 0, payload).map(drop).map_err(|error| self.break_off(error))
    }

    /// Makes an object at `path`, where nothing may be.
    fn bear(&mut self, path: &[u8], birth: Birth) -> Result<u64> {
        self.check_open()?;
        let exists = |_: &Last, found: Option<&Found>| match found {
            Some(_) => Err(Error::Exists(show(path))),
            None => Ok(Wanted::default()),
        };
        let (last, _) = self.claim_last(path, exists)?;
        let store = self.store.clone();
        let birth = Arc::new(birth);
        let id = store.names.with(|state| state.bear(birth.clone()));
        // So that it stays in the table.
        self.claim(&Wanted { alone: vec![id], ..Wanted::default() })?;
        self.names_mut().add_born(id);
        self.log_entry(EntryKind::Create, id, &birth.to_bytes())?;
        self.set_name(&last, 0, id)?;
        Ok(id)
    }

    pub(in crate::hostdir) fn create(&mut self, path: &[u8], mode: u32) -> Result<Arc<Inner>> {
        check_bits(mode)?;
        let id = self.bear(path, birth(REGULAR | mode, self.store.host.now_ns()))?;
        let inner = self.store.file_of(path, &Found { id, kind: Kind::Regular, stat: None })?;
        self.own(&inner)?;
        self.add(inner.clone(), true);
        Ok(inner)
    }

    pub(in crate::hostdir) fn mkdir(&mut self, path: &[u8], mode: u32) -> Result<()> {
        check_bits(mode)?;
        self.bear(path, birth(DIRECTORY | mode, self.store.host.now_ns())).map(drop)
    }

    pub(in crate::hostdir) fn mknod(&mut self, path: &[u8], mode: u32, rdev: u64) -> Result<()> {
        check_bits(mode & !TYPE)?;
        const FIFO: u32 = 0o010_000;
        const SOCKET: u32 = 0o140_000;
        match mode & TYPE {
            0 | REGULAR => self.create(path, mode & !TYPE).map(drop),
            FIFO | SOCKET => self.bear(path, birth(mode, self.store.host.now_ns())).map(drop),
            0o020_000 | 0o060_000 if !rustix::process::geteuid().is_root() => refused(path, Errno::PERM),
            0o020_000 | 0o060_000 => self.bear(path, Birth { rdev, ..birth(mode, self.store.host.now_ns()) }).map(drop),
            _ => refused(path, Errno::INVAL),
        }
    }

    pub(in crate::hostdir) fn symlink(&mut self, target: &[u8], path: &[u8]) -> Result<()> {
        match target.len() {
            0 => refused(path, Errno::NOENT),
            length if length > TARGET_MAX => refused(path, Errno::NAMETOOLONG),
            _ if target.contains(&0) => Err(Error::invalid("the target of a symbolic link cannot hold a zero byte")),
            _ => self
                .bear(path, Birth { target: target.to_vec(), ..birth(SYMLINK | 0o777, self.store.host.now_ns()) })
                .map(drop),
        }
    }

    /// What has to be claimed of an object that is linked, unlinked or moved: of files see [`join_named`](Self::join_named).
    fn of_object(found: &Found) -> Wanted {
        let alone = if found.kind == Kind::Regular { Vec::new() } else { vec![found.id] };
        Wanted { alone, ..Wanted::default() }
    }

    /// A regular file whose names the group changes belongs to it as if it wrote to it. Gives its number, for [`touch`](Self::touch).
    fn join_named(&mut self, path: &[u8], found: &Found) -> Result<Option<usize>> {
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
    fn touch(&mut self, file: Option<usize>) {
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
                None if found.kind == Kind::Directory => refused(from, Errno::PERM),
                None => Ok(Self::of_object(&found)),
            };
            let (last, _) = self.claim_last(to, exists)?;
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

    pub(in crate::hostdir) fn unlink(&mut self, path: &[u8]) -> Result<()> {
        self.check_open()?;
        let (last, found) = self.claim_last(path, |_, found| match found {
            None => Err(Error::NotFound(show(path))),
            Some(found) if found.kind == Kind::Directory => refused(path, Errno::ISDIR),
            Some(found) => Ok(Self::of_object(found)),
        })?;
        let found = found.expect("it was just found");
        let file = self.join_named(path, &found)?;
        self.set_name(&last, found.id, 0)?;
        self.touch(file);
        Ok(())
    }

    pub(in crate::hostdir) fn rmdir(&mut self, path: &[u8]) -> Result<()> {
        self.check_open()?;
        let (last, found) = self.claim_last(path, |_, found| match found {
            None => Err(Error::NotFound(show(path))),
            Some(found) if found.kind != Kind::Directory => refused(path, Errno::NOTDIR),
            Some(found) => Ok(Self::of_object(found)),
        })?;
        let found = found.expect("it was just found");
        if !self.walk().list(found.id)?.is_empty() {
            return refused(path, Errno::NOTEMPTY);
        }
        self.set_name(&last, found.id, 0)
    }

    pub(in crate::hostdir) fn rename(&mut self, from: &[u8], to: &[u8], how: Rename) -> Result<()> {
        self.check_open()?;
        for _ in 0..TRIES {
            let (old, new) = (self.walk().parent(from)?, self.walk().parent(to)?);
            let Some(moved) = self.walk().lookup(old.dir, &old.name)? else {
                return Err(Error::NotFound(show(from)));
            };
            let taken = self.walk().lookup(new.dir, &new.name)?;
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
            self.check_may_change(from, old.dir, Some(&moved))?;
            self.check_may_change(to, new.dir, taken.as_ref())?;
            self.check_may_leave(from, &old, &new, &moved)?;
            if let Some(taken) = taken.as_ref().filter(|_| how == Rename::Exchange) {
                self.check_may_leave(to, &new, &old, taken)?;
            }
            if !self.may_rename((from, &old, &moved), (to, &new, taken.as_ref()), how)? {
                return Ok(());
            }
            let moved_file = self.join_named(from, &moved)?;
            let taken_file = taken.as_ref().map(|taken| self.join_named(to, taken)).transpose()?.flatten();
            let taken = id(taken).unwrap_or(0);
            self.make_room_for(2 * Value::LARGEST)?;
            self.set_name(&old, moved.id, if how == Rename::Exchange { taken } else { 0 })?;
            self.set_name(&new, taken, moved.id).map_err(|error| self.break_off(error))?;
            self.touch(moved_file);
            self.touch(taken_file);
            return Ok(());
        }
        Err(Error::Busy(show(from), "others change it all the time".into()))
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
            wanted.alone.extend(Self::of_object(found).alone);
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
    fn all_above(&self, dir: u64) -> Vec<u64> {
        let mut all = vec![dir];
        while let Some(above) = self.walk().above(*all.last().expect("it has one")) {
            all.push(above);
        }
        all
    }

    /// Whether a rename that makes sense has anything to do.
    fn may_rename(
        &self,
        (from, old, moved): (&[u8], &Last, &Found),
        (to, new, taken): (&[u8], &Last, Option<&Found>),
        how: Rename,
    ) -> Result<bool> {
        let is_dir = |found: &Found| found.kind == Kind::Directory;
        match (taken, how) {
            (Some(_), Rename::NoReplace) => return Err(Error::Exists(show(to))),
            (None, Rename::Exchange) => return Err(Error::NotFound(show(to))),
            (Some(taken), _) if taken.id == moved.id => return Ok(false),
            _ => {}
        }
        if is_dir(moved) && self.all_above(new.dir).contains(&moved.id) {
            return refused(from, Errno::INVAL);
        }
        if let Some(taken) = taken {
            let above = is_dir(taken) && self.all_above(old.dir).contains(&taken.id);
            match how {
                Rename::Exchange if above => return refused(to, Errno::INVAL),
                Rename::Exchange => {}
                _ if above => return refused(to, Errno::NOTEMPTY),
                _ if is_dir(moved) && !is_dir(taken) => return refused(to, Errno::NOTDIR),
                _ if !is_dir(moved) && is_dir(taken) => return refused(to, Errno::ISDIR),
                _ if is_dir(taken) && !self.walk().list(taken.id)?.is_empty() => return refused(to, Errno::NOTEMPTY),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Opens a regular file, as the group sees the directory.
    pub(in crate::hostdir) fn open_file(&self, path: &[u8]) -> Result<Arc<Inner>> {
        self.store.check_usable()?;
        self.store.open_found(path, &self.walk().target(path)?)
    }

    pub(in crate::hostdir) fn metadata(&self, path: &[u8]) -> Result<Stat> {
        self.store.check_usable()?;
        let last = self.walk().parent(path)?;
        match self.walk().lookup(last.dir, &last.name)? {
            Some(found) => self.stat(path, &found),
            None => Err(Error::NotFound(show(path))),
        }
    }

    /// What is known of an object that was found at `path`.
    fn stat(&self, path: &[u8], found: &Found) -> Result<Stat> {
        let still = self.store.names.keep_homes();
        let (place, birth, unsure, links, shown, file) = self.store.names.with(|state| {
            let place = state.host_path(found.id);
            let shown = state.shown(found.id);
            let Some(object) = state.objects.get(&found.id) else { return (place, None, false, 0, shown, None) };
            (place, object.birth.clone(), object.unsure, object.links, shown, object.file.upgrade())
        });
        let host =
            place.map(|place| self.store.host.stat(&place)).transpose().map_err(|error| host_error(error, path))?;
        drop(still);
        let is_dir = found.kind == Kind::Directory;
        let mut stat = match (host, birth) {
            (Some(stat), Some(birth)) if unsure => Stat { mode: birth.mode, ..stat },
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
            true => self.store.names.with(|state| private.directories(found.id, state)),
            false => private.links(found.id),
        });
        stat.nlink = u32::try_from(i64::from(stat.nlink) + links + private).unwrap_or(0);
        stat.ino = shown;
        if let Some(file) = file {
            stat.size = match self.find(&file) {
                Some(i) => self.seat().files[i].size,
                None => self.store.visible_len(&file),
            };
        }
        Ok(stat)
    }

    pub(in crate::hostdir) fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.store.check_usable()?;
        let last = self.walk().parent(path)?;
        match self.walk().lookup(last.dir, &last.name)? {
            Some(found) if found.kind == Kind::Symlink => self.walk().read_link(last.dir, &last.name, &found),
            Some(_) => refused(path, Errno::INVAL),
            None => Err(Error::NotFound(show(path))),
        }
    }

    pub(in crate::hostdir) fn read_dir(&self, path: &[u8]) -> Result<Vec<DirEntry>> {
        self.store.check_usable()?;
        let dir = self.walk().directory(path)?;
        let mut all = Vec::new();
        for (name, entry) in self.walk().list(dir)? {
            let (ino, kind) = match entry {
                Entry::Host { ino, kind } => (self.store.names.with(|state| state.shown_number(ino)), kind),
                Entry::Object(id) => self
                    .store
                    .names
                    .with(|state| (state.shown(id), state.objects.get(&id).map_or(0, |object| object.mode() & TYPE))),
            };
            all.push(DirEntry { name, ino, kind });
        }
        Ok(all)
    }
}

/// What groups tell the log of objects (invariant 4 of the store).
impl Running {
    /// Tells which host file the number of a joined file stands for.
    #[cold]
    pub(super) fn identify_file(&mut self, i: usize, announced: u64) -> Result<()> {
        let store = self.store.clone();
        store.log.wait_for_groups_below(announced);
        let inner = self.seat().files[i].inner.clone();
        let identity =
            store.names.with(|state| state.identity(inner.id)).unwrap_or_else(|| Identity::of_nothing(REGULAR));
        let baseline = inner.baseline().filter(|_| !store.checkpointer.is_running());
        self.entry(EntryKind::Identify, inner.id, 0, &Identity { baseline, ..identity }.to_bytes())?;
        let parent = identity.parent;
        let file = &mut self.seat_mut().files[i];
        (file.identified_for, file.touched) = (announced, true);
        if parent != 0 {
            self.names_mut().speak_of(parent);
        }
        Ok(())
    }

    /// Tells what and where the objects are that the group's records speak of, and the directories that they are in.
    #[cold]
    pub(super) fn identify_objects(&mut self, announced: u64) -> Result<()> {
        let store = self.store.clone();
        store.log.wait_for_groups_below(announced);
        let joined: HashSet<u64> = self.seat().files.iter().map(|file| file.inner.id).collect();
        let born: HashSet<u64> = self.names_mut().born().iter().copied().collect();
        loop {
            let todo = self.names_mut().unidentified(announced);
            if todo.is_empty() {
                return Ok(());
            }
            for id in todo {
                let identity = store.names.with(|state| {
                    let object = state.objects.get(&id)?;
                    let known = announced <= object.identified && object.identified < self.sequence;
                    state.identity(id).filter(|_| !known)
                });
                let identity = identity.filter(|_| !joined.contains(&id) && !born.contains(&id) && id != ROOT);
                self.names_mut().identified(id, announced, identity.is_some());
                if let Some(identity) = identity {
                    self.entry(EntryKind::Identify, id, 0, &identity.to_bytes())?;
                    if identity.parent != 0 {
                        self.names_mut().speak_of(identity.parent);
                    }
                }
            }
        }
    }

    /// Tells the log which inodes a pass made for objects.
    pub(in crate::hostdir) fn know(&mut self, ids: &[u64]) -> Result<()> {
        for &id in ids {
            if let Some(identity) = self.store.names.with(|state| state.identity(id)) {
                self.log_entry(EntryKind::Identify, id, &identity.to_bytes())?;
                self.names_mut().identified(id, 0, true);
            }
        }
        Ok(())
    }
}

fn check_bits(mode: u32) -> Result<()> {
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
