//! Before names change: what is virtual is made, and what moves gets an anchor.

use rustix::io::Errno;
use wholly_changes::{Ids, Name, ROOT};
use wholly_host::{At, HostFile, HostFs, host_error};
use wholly_vfs::{Rename, Stat};

use std::sync::Arc;

use super::aside::stale;
use super::attributes::is_otherwise;
use super::{ANCHORS, BLANKS, Kind, NamePlan, id_name, is_own};
use crate::error::{Error, Result};
use crate::hostdir::names::{Object, State, TYPE};
use crate::hostdir::running::{Running, Sharing};
use crate::site;
use sync::Ordering;
use wholly_vfs::rules::acl;

/// Identities that one group writes to the log: one of very many would take as much memory again.
const KNOWN_AT_A_TIME: usize = 8192;

impl NamePlan<'_> {
    /// Makes what is virtual, hangs what moves, tells the log of what was made, and makes durable what must be before a
    /// name goes.
    pub fn make(&mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.begun = true;
        for i in std::mem::take(&mut self.stray) {
            let (dir, name) = &self.changes[i].name;
            self.store.remove_stray(&self.path_of(&self.changes[i].name)?, *dir, name)?;
            self.store.names.with(|state| state.set_home(*dir, name, 0));
        }
        match self.make_all() {
            // Removed names free space. What must not be lost with them hangs on an anchor first.
            Err(error @ Error::NoSpace(_)) => {
                self.hang_all()?;
                if !self.barrier_and_make_space()? {
                    return Err(error);
                }
                self.make_all()?;
            }
            made => {
                made?;
                self.hang_all()?;
            }
        }
        self.know()?;
        let store = self.store;
        // What a process that died has done to names is to be seen here, and nobody knows whether it survives.
        let inherited = store.checkpointer.inherited.swap(0, Ordering::Relaxed) != 0;
        // What a group has staged lies nowhere else: the directory that it comes into must not be lost with it.
        if self.hung || inherited || (self.makes_a_directory() && self.places_a_staged_file()) {
            store.host.sync_all(site::NAMES_BARRIER).map_err(|error| store.poison(&Error::Media(error)))?;
            store.log.count_barrier();
        }
        // They are made: of very many there is no list any more.
        self.make = Vec::new();
        Ok(())
    }

    /// Makes all virtual objects that are to be there, unless an earlier try has.
    fn make_all(&mut self) -> Result<()> {
        for i in 0..self.make.len() {
            self.make_object(self.make[i])?;
        }
        for id in self.nameless.clone() {
            self.make_nameless(id)?;
        }
        Ok(())
    }

    /// Hangs on an anchor what moves, and what loses all names that the log knows and is still needed.
    fn hang_all(&mut self) -> Result<()> {
        // Of a name that no group has changed the log only has to be told.
        let nameless = |id: &u64| {
            self.store.names.with(|state| state.objects.get(id).is_some_and(|object| object.place().is_none()))
        };
        let kept: Vec<u64> = self.keep.iter().copied().filter(nameless).collect();
        let moved = self.move_.clone();
        for id in moved.iter().chain(kept) {
            self.hang(id)?;
            self.hung = true;
        }
        Ok(())
    }

    /// Makes the anchors survive, and then removes the names that end. Returns whether there were any.
    #[cold]
    fn barrier_and_make_space(&mut self) -> Result<bool> {
        if self.hung {
            self.store.host.sync_all(site::NAMES_BARRIER).map_err(|error| self.store.poison(&Error::Media(error)))?;
            self.store.log.count_barrier();
        }
        self.make_space()
    }

    fn makes_a_directory(&self) -> bool {
        let is_dir =
            |id: &u64, state: &State| state.objects.get(id).is_some_and(|object| object.kind == Kind::Directory);
        self.store.names.with(|state| self.make.iter().any(|id| is_dir(id, state)))
    }

    fn places_a_staged_file(&self) -> bool {
        let mut hanging: Ids = self.store.names.with(|state| {
            let wanted = self.changes.iter().map(|change| change.want);
            wanted.filter(|id| super::hangs_in(state, *id, BLANKS)).collect()
        });
        for id in &self.make {
            hanging.remove(*id);
        }
        !hanging.is_empty()
    }

    /// Creates a virtual object, empty.
    fn make_object(&mut self, id: u64) -> Result<()> {
        let store = self.store;
        let (birth, inode) = store.names.with(|state| {
            let object = state.objects.get(&id);
            (object.and_then(Object::birth), object.and_then(|object| object.inode()))
        });
        let Some(birth) = birth.filter(|_| inode.is_none()) else { return Ok(()) };
        // At its place, where that is free and its directory there.
        let change = self.first_wanted(id).map(|i| &self.changes[i]).filter(|change| change.home == 0);
        let place = change
            .map(|change| change.name.clone())
            .filter(|(dir, _)| *dir == ROOT || store.names.with(|state| state.host_path(*dir).is_some()));
        let place = match place {
            Some((dir, _)) if self.has_default_acl(dir)? => None,
            place => place,
        };
        let place = match place {
            Some(place) => place,
            None => {
                store.make_folders()?;
                (BLANKS, id_name(id).into())
            }
        };
        let path = self.path_of(&place)?;
        let failed = |error: wholly_media::Error| match error.errno {
            Errno::EXIST => Error::Conflict {
                path: store.names.with(|state| state.path(id)),
                change: "another program has made something there".into(),
            },
            _ => host_error(error, &path),
        };
        let host = &*store.host;
        let kind = Kind::of(birth.mode);
        let mut made: Option<Arc<dyn HostFile>> = None;
        // What was set since is what it is made with: nobody is to open what he may not.
        let set = store.names.with(|state| state.objects.get(&id).map(|object| object.sets.as_of(self.target)));
        let bits = set.and_then(|set| set.mode).unwrap_or(birth.mode & 0o7777);
        let at = store.names.with(|state| state.name_at(place.0, &path));
        let aside = match kind != Kind::Regular && place.0 != BLANKS && self.is_shared(place.0)? {
            true => {
                store.make_folders()?;
                Some(self.path_of(&(BLANKS, id_name(id).into()))?)
            }
            false => None,
        };
        let mut make_at = |at: At<'_>| {
            match kind {
                Kind::Regular => made = Some(host.create_at(site::NAMES_MAKE, at, bits)?),
                Kind::Directory => host.mkdir_at(site::NAMES_MAKE, at, bits)?,
                Kind::Symlink => host.symlink_at(site::NAMES_MAKE, &birth.target, at)?,
                Kind::Special => host.mknod_at(site::NAMES_MAKE, at, birth.mode & TYPE | bits, birth.rdev)?,
            }
            let stat = match &made {
                Some(home) => home.stat(),
                None => host.stat_at(at),
            };
            // What nobody has heard of must not stay.
            stat.inspect_err(|_| {
                _ = match kind {
                    Kind::Directory => host.rmdir_at(site::NAMES_CLEAN, at),
                    _ => host.unlink_at(site::NAMES_CLEAN, at),
                };
            })
        };
        let make = || {
            let stat = match &aside {
                None => make_at(at)?,
                Some(aside) => make_aside(host, &mut make_at, aside, at, kind)?,
            };
            Ok(((stat.ino, stat.btime_ns), is_otherwise(&stat, bits, birth.uid, birth.gid)))
        };
        let made_so = |state: &mut State, &(inode, otherwise): &((u64, i64), bool)| {
            made_as(state, id, inode, &place);
            if let Some(object) = state.objects.get_mut(&id).filter(|_| otherwise) {
                object.unsure = true;
            }
        };
        let (_, otherwise) = store.names.change_home(make, made_so).map_err(failed)?;
        if otherwise {
            self.mend.push(id);
        }
        // Only what somebody has open, or is opening, stays open: a group may make more files than a process may have
        // descriptors.
        let (file, is_being_opened) = store.names.with(|state| (state.file(id), state.is_being_opened(id)));
        if let (Some(file), Some(home)) = (file, made)
            && (is_being_opened || file.handles.load(Ordering::Relaxed) > 0)
        {
            store.attach(&file, home, true, false);
        }
        Ok(())
    }

    /// Whether the host would give what is made in a directory more than it is asked for.
    fn has_default_acl(&mut self, dir: u64) -> Result<bool> {
        if let Some(has) = self.default_acls.get(&dir) {
            return Ok(*has);
        }
        let path = self.store.names.with(|state| state.host_path(dir)).unwrap_or_default();
        let has = match self.store.host.get_xattr(&path, acl::DEFAULT) {
            Err(error) if error.errno == Errno::OPNOTSUPP => false,
            value => value.map_err(|error| host_error(error, &path))?.is_some(),
        };
        self.default_acls.insert(dir, has);
        Ok(has)
    }

    /// Whether others than the superuser and the user of this process may change names in a directory.
    fn is_shared(&mut self, dir: u64) -> Result<bool> {
        if let Some(is) = self.shared.get(&dir) {
            return Ok(*is);
        }
        let (path, inode) = self.store.names.with(|state| (state.host_path(dir), state.inode_of(dir)));
        let path = path.unwrap_or_default();
        let stat = self.store.host.stat(&path).map_err(|error| host_error(error, &path))?;
        let is_own = stat.uid == 0 || stat.uid == rustix::process::geteuid().as_raw();
        // Where it is another one by now, the call that is made for this one is refused.
        let is = !is_own || stat.mode & 0o022 != 0 || inode.is_some_and(|inode| inode != stat.inode());
        self.shared.insert(dir, is);
        Ok(is)
    }

    /// A file without a name gets an inode without one, for as long as somebody has it open.
    fn make_nameless(&mut self, id: u64) -> Result<()> {
        let store = self.store;
        let Some(file) = store.names.with(|state| state.file(id)) else { return Ok(()) };
        if file.home().is_none() {
            let home =
                store.host.create_unnamed(site::NAMES_MAKE, b"", 0o600).map_err(|error| host_error(error, b""))?;
            let stat = home.stat()?;
            // First: who sees that it has an inode, and no name, looks for it here.
            store.attach(&file, home, true, true);
            store.names.with(|state| {
                state.made_as(id, (stat.ino, stat.btime_ns));
                if let Some(object) = state.objects.get_mut(&id) {
                    (object.known, object.unsure) = (true, true);
                }
            });
        }
        Ok(())
    }

    /// Gives an object that is about to lose its names a place in between.
    fn hang(&mut self, id: u64) -> Result<()> {
        self.hang_on_anchor(id)?;
        match self.store.names.with(|state| state.file(id)) {
            Some(file) => file.relinked_by_pass(self.store),
            None => Ok(()),
        }
    }

    fn hang_on_anchor(&mut self, id: u64) -> Result<()> {
        let store = self.store;
        let (home, path, is_dir) = store.names.with(|state| {
            let object = state.objects.get(&id);
            let home = object.and_then(|object| object.home()?.name().cloned());
            let is_dir = object.is_some_and(|object| object.kind == Kind::Directory);
            (home, state.host_path(id), is_dir)
        });
        let (Some((dir, name)), Some(path)) = (home, path) else { return Ok(()) };
        if is_own(dir) {
            return Ok(());
        }
        store.make_folders()?;
        let to = self.path_of(&(ANCHORS, id_name(id).into()))?;
        let at = store.names.with(|state| state.object_at(id, &path));
        if !is_dir {
            let link = || match store.host.hard_link_at(site::NAMES_ANCHOR, at, to[..].into()) {
                // A pass that failed left it.
                Err(error) if error.errno == Errno::EXIST => match store.host.stat(&to)?.inode() {
                    inode if at.inode.is_none_or(|it| it == inode) => Ok(()),
                    _ => Err(stale(&path)),
                },
                linked => linked,
            };
            match store.names.change_home(link, |state, ()| state.hang(id, ANCHORS)) {
                Ok(()) => return Ok(()),
                // The host has no links, or not so many of one file.
                Err(error) if matches!(error.errno, Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {}
                Err(error) => return Err(host_error(error, &path)),
            }
        }
        let moved = store.names.change_home(
            || store.move_to_anchor(at, (&(dir, name.clone()), id), &to),
            |state, ()| {
                state.set_home(dir, &name, 0);
                state.hang(id, ANCHORS);
            },
        );
        moved.map_err(|error| host_error(error, &path))?;
        if let Some(i) = self.place_in_changes(dir, &name) {
            self.changes[i].home = 0;
        }
        if !is_dir || self.wants(id) {
            return Ok(());
        }
        if store.names.with(|state| state.whole.contains_key(&id)) {
            return store.look_at_whole((&(dir, name), id), &to);
        }
        // Until now others could come by it.
        for entry in store.host.read_dir(&to).map_err(|error| host_error(error, &to))? {
            self.must_go(id, &path, &entry.name)?;
        }
        Ok(())
    }

    /// The log learns which inodes were made: what a crash finds of them from here on is the store's own.
    fn know(&mut self) -> Result<()> {
        let made = |state: &State, id: u64| {
            state.objects.get(&id).is_some_and(|object| object.inode().is_some() && !object.known)
        };
        let named = |state: &State, id: u64| state.objects.get(&id).is_some_and(|object| object.place().is_some());
        self.make.chunks(KNOWN_AT_A_TIME).try_for_each(|ids| self.know_of(ids, made))?;
        self.keep.chunks(KNOWN_AT_A_TIME).try_for_each(|ids| self.know_of(ids, named))
    }

    /// The same of those among a few objects that are `unknown`.
    fn know_of(&self, ids: &[u64], unknown: impl Fn(&State, u64) -> bool) -> Result<()> {
        let store = self.store;
        let ids: Vec<u64> = store.names.with(|state| ids.iter().copied().filter(|id| unknown(state, *id)).collect());
        if ids.is_empty() {
            return Ok(());
        }
        store.checkpointer.knew.store(1, Ordering::Relaxed);
        store.know(&ids)?;
        store.names.with(|state| {
            for id in &ids {
                if let Some(object) = state.objects.get_mut(id) {
                    object.known = true;
                }
            }
        });
        Ok(())
    }
}

/// Makes something, which is no regular file, where nobody else comes, and gives it its name. How it lies.
fn make_aside(
    host: &dyn HostFs,
    make_at: &mut impl FnMut(At<'_>) -> wholly_media::Result<Stat>,
    aside: &[u8],
    at: At<'_>,
    kind: Kind,
) -> wholly_media::Result<Stat> {
    let stat = make_at(aside.into())?;
    let Err(error) = host.rename_at(site::NAMES_MAKE, aside.into(), at, Rename::NoReplace) else { return Ok(stat) };
    match kind {
        Kind::Directory => host.rmdir(site::NAMES_CLEAN, aside)?,
        _ => host.unlink(site::NAMES_CLEAN, aside)?,
    }
    // What is made there is to belong to a project, which nothing is that comes from elsewhere.
    if error.errno != Errno::XDEV {
        return Err(error);
    }
    let made = make_at(at)?;
    let is_it = (made.mode, made.uid, made.size, made.rdev) == (stat.mode, stat.uid, stat.size, stat.rdev);
    if is_it { Ok(made) } else { Err(stale(at.path)) }
}

/// The host has an object now that was virtual.
fn made_as(state: &mut State, id: u64, inode: (u64, i64), place: &Name) {
    state.made_as(id, inode);
    match place.0 {
        BLANKS => state.hang(id, BLANKS),
        _ => state.set_home(place.0, &place.1, id),
    }
}

impl crate::hostdir::StoreInner {
    /// The log learns which inodes these objects are. Where it is full it grows: nobody may wait for a pass, which
    /// waits for the record.
    pub(in crate::hostdir) fn know(&self, ids: &[u64]) -> Result<()> {
        let store = self.itself.get().and_then(std::sync::Weak::upgrade).expect("an open store is shared");
        let mut group = Running::new(store, Sharing::Own);
        self.let_grow(true);
        let known = group.know(ids).and_then(|()| group.commit_to_log());
        self.let_grow(false);
        known
    }
}
