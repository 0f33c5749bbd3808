//! Attributes go home: owner, extended attributes and mode before the names, so that nobody finds an object by its name
//! with the attributes of another; times last, for all that a pass does changes them.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::{Ids, ROOT, Set};
use wholly_host::host_error;
use wholly_vfs::{SetXattr, Stat};

use super::{Kind, NamePlan};
use crate::error::{Error, Result};
use crate::hostdir::file::File;
use crate::hostdir::names::{Moment, Object, State};
use crate::site;
use wholly_vfs::rules::acl;

impl NamePlan<'_> {
    /// Finds objects with attributes, or times, that groups below the target have set.
    pub(super) fn find_attributes(&mut self, state: &State) {
        for (id, object) in state.objects.iter().filter(|(_, object)| object.waits()) {
            let is_set = !object.sets.as_of(self.target).is_empty();
            if is_set {
                self.set.push(*id);
            }
            match object.file.upgrade() {
                Some(file) => self.timed_files.push(file),
                None if is_set || object.mtime.ns().is_some() => _ = self.timed.insert(*id),
                None => {}
            }
        }
    }

    /// Looks whether objects are where they should be whose attributes or times are to be set, and compares the
    /// attributes.
    pub(super) fn look_at_objects(&self) -> Result<()> {
        let all: Ids = self.set.iter().copied().chain(self.timed.iter()).collect();
        for id in all.iter() {
            let store = self.store;
            // What a pass has made, and a crash may have undone, is nobody's yet.
            let place = store.names.with(|state| {
                let object = state.objects.get(&id).filter(|object| !object.unsure)?;
                // The store's directory is what it is.
                if object.inode().is_none() && id != ROOT {
                    return None;
                }
                Some((state.host_path(id)?, object.inode(), object.sets.as_of(self.target)))
            });
            let Some((path, inode, set)) = place else { continue };
            if let Some(change) = self.look_at(id, &path, inode, &set)? {
                let path = store.names.with(|state| state.path(id));
                return Err(Error::Conflict { path, change: change.into() });
            }
        }
        Ok(())
    }

    /// What a bystander has done to an object that should be at `path`.
    fn look_at(&self, id: u64, path: &[u8], inode: Option<(u64, i64)>, set: &Set) -> Result<Option<&'static str>> {
        let store = self.store;
        let stat = match store.host.stat(path) {
            Ok(stat) => stat,
            Err(error) if matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => return Ok(Some("it is gone")),
            Err(error) => return Err(host_error(error, path)),
        };
        if inode.is_some_and(|inode| inode != (stat.ino, stat.btime_ns)) {
            return Ok(Some("another file has taken its name"));
        }
        let mut values = Vec::new();
        for name in set.xattrs.keys() {
            let value = store.host.get_xattr(path, name).map_err(|error| host_error(error, path))?;
            values.push((name, value));
        }
        Ok(store.names.with(|state| {
            let sets = &state.objects.get(&id)?.sets;
            let strange = values.iter().any(|(name, value)| !sets.could_be(name, value.as_deref()));
            sets.foreign(&stat).or(strange.then_some("an extended attribute of it has been changed"))
        }))
    }

    /// Gives objects the attributes that they are to have, times excepted.
    pub fn set_attributes(&mut self) -> Result<()> {
        let store = self.store;
        let all: Ids = std::mem::take(&mut self.mend).into_iter().chain(self.set.iter().copied()).collect();
        for id in all.iter() {
            let whole = store.names.with(|state| {
                let object = state.objects.get(&id)?;
                Some((state.host_path(id)?, object.kind, self.wanted_of(object)))
            });
            let Some((path, kind, wanted)) = whole else { continue };
            self.set_one(id, &path, kind, &wanted)?;
            store.names.with(|state| {
                self.timed_files.extend(state.file(id));
                if let Some(object) = state.objects.get_mut(&id) {
                    object.unsure = false;
                }
            });
        }
        Ok(())
    }

    /// All that is to be set of an object: of one that the host may have made otherwise, also what it was born with.
    fn wanted_of(&self, object: &Object) -> Set {
        let mut wanted = match object.birth() {
            Some(birth) if object.unsure => {
                Set { mode: Some(birth.mode & 0o7777), uid: Some(birth.uid), gid: Some(birth.gid), ..Set::default() }
            }
            _ => Set::default(),
        };
        wanted.put(&object.sets.as_of(self.target));
        wanted
    }

    fn set_one(&self, id: u64, path: &[u8], kind: Kind, wanted: &Set) -> Result<()> {
        let (store, failed) = (self.store, |error| host_error(error, path));
        let at = store.names.with(|state| state.object_at(id, path));
        // Once more: writing to it may have taken set-user-id bits away.
        let stat = store.host.stat_at(at).map_err(failed)?;
        let other = |wanted: Option<u32>, is: u32| wanted.filter(|&wanted| wanted != is);
        let (uid, gid) = (other(wanted.uid, stat.uid), other(wanted.gid, stat.gid));
        let mut mode = other(wanted.mode, stat.mode & 0o7777);
        if uid.is_some() || gid.is_some() {
            store.host.set_owner_at(site::ATTRIBUTES_OWNER, at, uid, gid).map_err(failed)?;
            // The host may have taken bits away.
            mode = wanted.mode.or(Some(stat.mode & 0o7777));
        }
        if wanted.xattrs.contains_key(acl::ACCESS) {
            mode = wanted.mode.or(mode);
        }
        // What is removed makes room for what is set, in the order in which it was tried at the call.
        let (removed, set): (Vec<_>, Vec<_>) = wanted.xattrs.iter().partition(|(_, value)| value.is_none());
        for (name, value) in removed.into_iter().chain(set) {
            let set = match value {
                Some(value) => store.host.set_xattr_at(site::ATTRIBUTES_XATTR, at, name, value, SetXattr::Any),
                None => store.host.remove_xattr_at(site::ATTRIBUTES_XATTR, at, name),
            };
            match set {
                Err(error) if value.is_none() && error.errno == Errno::NODATA => {}
                set => set.map_err(failed)?,
            }
        }
        match mode.filter(|_| kind != Kind::Symlink) {
            Some(mode) => store.host.set_mode_at(site::ATTRIBUTES_MODE, at, mode).map_err(failed),
            None => Ok(()),
        }
    }

    /// Files of which more goes home than bytes.
    pub fn files(&mut self) -> Vec<Arc<File>> {
        self.timed_files.sort_unstable_by_key(|file| file.number);
        self.timed_files.dedup_by_key(|file| file.number);
        std::mem::take(&mut self.timed_files)
    }

    /// Gives objects, and these files, the times that they are to have, now that all else is done. Of what a group at
    /// or above the target has changed, a later pass sets the time of the change.
    pub fn set_times<'f>(&mut self, files: impl Iterator<Item = &'f Arc<File>>) -> Result<()> {
        for file in files {
            self.set_times_of_file(file)?;
        }
        let store = self.store;
        for id in self.timed.iter() {
            let whole = store.names.with(|state| {
                let object = state.objects.get(&id)?;
                let mtime_ns = object.mtime.ns().filter(|_| object.mtime_sequence < self.target);
                // A file that somebody has found since the plan was made has taken it over.
                let file = object.file.upgrade();
                let mtime_ns = mtime_ns.or_else(|| file.as_ref()?.mtime_as_of(self.target));
                Some((state.host_path(id), mtime_ns, object.sets.as_of(self.target).atime_ns, file))
            });
            let Some((path, mtime_ns, atime_ns, file)) = whole else { continue };
            if let Some(path) = path.filter(|_| mtime_ns.is_some() || atime_ns.is_some()) {
                let at = store.names.with(|state| state.object_at(id, &path));
                let set = store.host.set_times_at(site::ATTRIBUTES_TIMES, at, atime_ns, mtime_ns);
                forgive(set).map_err(|error| host_error(error, &path))?;
                // A file that was entered since the plan was made has the baseline of before, and may have taken over
                // the time.
                if let Some(file) = store.names.with(|state| state.file(id)) {
                    file.changed_by_pass(store)?;
                    mtime_ns.into_iter().for_each(|ns| file.mtime_is_home(ns));
                }
            }
            if let Some((file, ns)) = file.zip(mtime_ns) {
                file.mtime_is_home(ns);
            }
            store.names.with(|state| {
                if let Some(object) = state.objects.get_mut(&id)
                    && object.mtime.ns() == mtime_ns
                {
                    object.mtime = Moment::default();
                }
            });
        }
        Ok(())
    }

    fn set_times_of_file(&self, file: &File) -> Result<()> {
        let store = self.store;
        let (path, atime_ns) = store.names.with(|state| {
            let atime_ns = state.objects.get(&file.id).and_then(|object| object.sets.as_of(self.target).atime_ns);
            (state.host_path(file.id), atime_ns)
        });
        let mtime_ns = file.mtime_as_of(self.target);
        if mtime_ns != file.mtime() {
            store.names.with(|state| state.waits_for(file.id));
        }
        if mtime_ns.is_some() || atime_ns.is_some() {
            let set = match (file.full_home(), path) {
                (Some(home), _) => home.set_times(site::ATTRIBUTES_TIMES, atime_ns, mtime_ns),
                (None, Some(path)) => {
                    let at = store.names.with(|state| state.object_at(file.id, &path));
                    store.host.set_times_at(site::ATTRIBUTES_TIMES, at, atime_ns, mtime_ns)
                }
                (None, None) => Ok(()),
            };
            forgive(set).map_err(|error| host_error(error, &file.path))?;
        }
        if let Some(ns) = mtime_ns {
            file.mtime_is_home(ns);
        }
        Ok(())
    }
}

/// Only the owner may choose times: what others have written to, or named something in, keeps those of the pass.
fn forgive(set: wholly_media::Result<()>) -> wholly_media::Result<()> {
    match set {
        Err(error) if error.errno == Errno::PERM => Ok(()),
        set => set,
    }
}

/// Whether what was just made looks otherwise than it was born.
pub(super) fn is_otherwise(stat: &Stat, mode: u32, uid: u32, gid: u32) -> bool {
    (stat.mode & 0o7777, stat.uid, stat.gid) != (mode & 0o7777, uid, gid)
}
