//! The folder of parked groups: what is in it, what expires, what is removed.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;
use wholly_changes::{
    FOLDER, Head, Origin, Parked, ParkedFile, Summary, UNDO, UNFINISHED, Unreadable, content_files, content_path,
    copy_marked, id_name, id_of, join, named_content, origin_of, path_of,
};
use wholly_host::{HostFs, host_error, is_there};
use wholly_media::Site;
use wholly_vfs::Rename;

use super::super::StoreInner;
use super::super::check::{Finding, FindingKind};
use super::super::joint::folder::{prepared_id, prepared_path};
use super::super::names::{OWN_FOLDER, UNDO_FOLDER, names_in};
use super::super::undo_store::{is_held_or_tag, of_kept};
use super::{NEVER, ParkedId};
use crate::error::{Error, Result};
use crate::site;
use sync::{AtomicU8, Ordering};

/// The id that a file in the folder is named by; none where it has no such name.
fn named(name: &[u8]) -> Option<u64> {
    Some(id_of(name)).filter(|&id| id != 0 && id_name(id) == name)
}

/// The group that a file in the folder tells of, by its name; content files tell of none.
fn known_id(name: &[u8]) -> Option<u64> {
    named(name).or_else(|| prepared_id(name)).or_else(|| undoes(name)).or_else(|| of_kept(name))
}

/// The path of the file that undoes a group.
pub(in crate::hostdir) fn undo_path(id: u64) -> Vec<u8> {
    path_of_kind(id, UNDO)
}

/// The path of a file about a group whose name ends so.
pub(in crate::hostdir) fn path_of_kind(id: u64, end: &[u8]) -> Vec<u8> {
    join(FOLDER, &[&id_name(id), end].concat())
}

/// The group that a file in the folder undoes, by its name.
fn undoes(name: &[u8]) -> Option<u64> {
    name.strip_suffix(UNDO).map(id_of).filter(|&id| id != 0 && [&id_name(id), UNDO].concat() == name)
}

/// What is parked, by id.
pub fn list(host: &dyn HostFs) -> Result<Vec<Parked>> {
    let mut ids: Vec<u64> = names_in(host, FOLDER)?.iter().filter_map(|name| named(name)).collect();
    ids.sort_unstable();
    let mut all = Vec::new();
    for id in ids {
        match ParkedFile::head_of(host, &path_of(id)) {
            Ok((head, space)) => all.push(described(id, &head, space)),
            Err(Error::NotFound(_)) => {}
            Err(error) => {
                let unreadable = Some(Unreadable::of(error)?);
                let space = host.stat(&path_of(id)).map_or(0, |stat| stat.size);
                all.push(Parked { unreadable, ..nothing(id, space) });
            }
        }
    }
    Ok(all)
}

fn nothing(id: u64, space: u64) -> Parked {
    let note = String::new();
    let (id, parked_ns, expires_ns, unreadable) = (ParkedId(id), 0, None, None);
    Parked { id, note, parked_ns, expires_ns, bytes: 0, files: 0, names: 0, space, unreadable }
}

fn described(id: u64, head: &Head, space: u64) -> Parked {
    Parked {
        note: head.note.clone(),
        parked_ns: head.parked_ns,
        expires_ns: Some(head.expires_ns).filter(|&ns| ns != 0),
        bytes: head.bytes,
        files: head.files,
        names: head.names,
        ..nothing(id, space + head.content_bytes)
    }
}

/// What is wrong with the parked groups of a store. All of each is read, but for its content files.
pub(in crate::hostdir) fn check(host: &dyn HostFs, volume_id: &[u8; 16]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let names: BTreeSet<Vec<u8>> = names_in(host, FOLDER)?.into_iter().collect();
    let mut undo = names_in(host, UNDO_FOLDER)?;
    undo.retain(|name| !is_held_or_tag(name));
    for (folder, name) in names.iter().map(|name| (FOLDER, name)).chain(undo.iter().map(|name| (UNDO_FOLDER, name))) {
        let path = join(folder, name);
        let place = String::from_utf8_lossy(&path).into_owned();
        if let Some((id, _)) = named_content(name) {
            // If its group is there, the check of the group looks at it.
            if !names.contains(&id_name(id)) {
                findings.push(Finding::new(FindingKind::Torn, place, "of a group that was being parked, or is gone"));
            }
            continue;
        }
        let Some(id) = known_id(name) else {
            findings.push(match name.ends_with(UNFINISHED) {
                true => Finding::new(FindingKind::Torn, place, "a group that was being parked"),
                false => Finding::new(FindingKind::Stranger, place, "it does not belong to a store"),
            });
            continue;
        };
        let read = || ParkedFile::read(host, &path).and_then(|file| file.verify(host).map(|()| file));
        // Where a part is applied meanwhile, what is left has its new file before content files go.
        let read = read().or_else(|_| read());
        let what = match read {
            Ok(file) if file.head.volume_id != *volume_id => "it is a parked group of another store".into(),
            Ok(file) if file.head.id != id => "it is another parked group, under its name".into(),
            Ok(file) if prepared_id(name).is_some() && file.summary.coordinator.is_none() => {
                "not a prepared group, under the name of one".into()
            }
            Ok(_) | Err(Error::NotFound(_) | Error::Unsupported(_)) => continue,
            // It was discarded or applied meanwhile.
            Err(_) if !is_there(host, &path)? => continue,
            Err(Error::Corrupt { place: at, fault }) if at == place => fault,
            Err(error @ Error::Corrupt { .. }) => error.to_string(),
            Err(error) => return Err(error),
        };
        let is_parked = named(name).is_some() || of_kept(name).is_some();
        let kind = if is_parked { FindingKind::Parked } else { FindingKind::Joint };
        findings.push(Finding::new(kind, place, what));
    }
    Ok(findings)
}

/// Marks what is parked and does not tell its folder as of `origin`. On return that survives.
pub(in crate::hostdir) fn mark_parked(host: &dyn HostFs, origin: Origin) -> Result<()> {
    mark(host, origin, |head| head.origin.is_none())
}

/// Marks parked groups, and undo, of which `is_due` holds.
fn mark(host: &dyn HostFs, origin: Origin, is_due: impl Fn(&Head) -> bool) -> Result<()> {
    for folder in [FOLDER, UNDO_FOLDER] {
        mark_in(host, folder, origin, &is_due)?;
    }
    Ok(())
}

fn mark_in(host: &dyn HostFs, folder: &[u8], origin: Origin, is_due: &impl Fn(&Head) -> bool) -> Result<()> {
    let mut marked = false;
    let is_head = |name: &&Vec<u8>| known_id(name).is_some() && !(folder == UNDO_FOLDER && is_held_or_tag(name));
    for name in names_in(host, folder)?.iter().filter(is_head) {
        let path = join(folder, name);
        match ParkedFile::head_of(host, &path) {
            Ok((head, _)) if is_due(&head) => {}
            // What cannot be read cannot be applied.
            Ok(_) | Err(Error::Corrupt { .. } | Error::Unsupported(_)) => continue,
            Err(error) => return Err(error),
        }
        let unfinished = [&path, UNFINISHED].concat();
        copy_marked(host, &path, &unfinished, origin)?;
        host.rename(site::PARK_RENAME, &unfinished, &path, Rename::Replace)
            .map_err(|error| host_error(error, &path))?;
        marked = true;
    }
    match marked {
        true => host.sync_dir(site::PARK_SYNC_DIR, folder).map_err(|error| host_error(error, folder)),
        false => Ok(()),
    }
}

/// A parked group that somebody works on, until this is dropped.
pub(crate) struct AtWork<'s> {
    store: &'s StoreInner,
    id: u64,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.store.parked.at_work.lock().unwrap().retain(|id| *id != self.id);
    }
}

impl StoreInner {
    /// The time by which parked groups expire.
    fn parked_now(&self) -> i64 {
        self.host.now_ns()
    }

    /// Makes the folder, where it is not there. It survives when this returns.
    pub fn make_parked_folder(&self) -> Result<()> {
        self.make_own_folder(FOLDER, &self.parked.has_folder, (site::PARK_FOLDER, site::PARK_FOLDER_SYNC))
    }

    /// Makes a folder of the store's own, where it is not there. It survives when this returns.
    pub fn make_own_folder(&self, folder: &[u8], has_folder: &AtomicU8, sites: (Site, Site)) -> Result<()> {
        if has_folder.load(Ordering::Acquire) == 0 {
            self.make_own_folders(sites, &[OWN_FOLDER, folder])?;
            has_folder.store(1, Ordering::Release);
        }
        Ok(())
    }

    /// What an open does about parked groups: what it finds survives when this returns, and what was to go is gone.
    pub fn settle_parked(&self) -> Result<()> {
        let names = match self.host.read_dir(FOLDER) {
            Ok(names) => names,
            Err(error) if error.errno == Errno::NOENT => {
                if !is_there(&*self.host, UNDO_FOLDER)? {
                    self.parked.applied.lock().unwrap().clear();
                    return Ok(());
                }
                // A copy may leave out folders in which nothing is.
                self.make_parked_folder()?;
                Vec::new()
            }
            Err(error) => return Err(host_error(error, FOLDER)),
        };
        for entry in names.iter().filter(|entry| entry.name.ends_with(UNFINISHED)) {
            self.unlink_parked(&join(FOLDER, &entry.name))?;
        }
        for name in names_in(&*self.host, UNDO_FOLDER)?.iter().filter(|name| name.ends_with(UNFINISHED)) {
            self.unlink_parked(&join(UNDO_FOLDER, name))?;
        }
        // Its group is final, or was never committed.
        let provisional: Vec<u64> = self.parked.provisional.lock().unwrap().iter().map(|group| group.id).collect();
        if !provisional.is_empty() {
            // A process that died may have removed what undoes them, and that may not have survived: what they have
            // applied goes only once it has.
            self.sync_parked(site::UNDO_END)?;
        }
        let applied: Vec<u64> = self.parked.applied.lock().unwrap().iter().map(|(_, id)| *id).collect();
        let is_needed = |id: u64| provisional.contains(&id) || applied.contains(&id);
        for entry in names.iter().filter(|entry| undoes(&entry.name).is_some_and(|id| !is_needed(id))) {
            self.unlink_parked(&join(FOLDER, &entry.name))?;
        }
        let was_applied = std::mem::take(&mut *self.parked.applied.lock().unwrap());
        for applied in was_applied {
            // What undoes a group stays until that is written back.
            if is_there(&*self.host, &undo_path(applied.1))? {
                self.remember_undone(applied.1);
                self.parked.applied.lock().unwrap().push(applied);
            } else {
                self.unlink_applied(applied)?;
            }
        }
        self.settle_kept()?;
        for id in self.expired()? {
            self.unlink_parked(&path_of(id))?;
        }
        // Also where nothing was removed: a process that died may have done so, or parked something.
        self.sync_parked(site::PARK_SETTLE)?;
        self.sync_undo_folder(site::PARK_SETTLE)?;
        // What stays takes space, and no more than that.
        let _ = self.clear_contents();
        Ok(())
    }

    /// Removes content files that no parked group names. What is in the folder survives a crash, and what is not does
    /// not come back.
    fn clear_contents(&self) -> Result<()> {
        let names = names_in(&*self.host, FOLDER)?;
        let mut objects: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (id, object) in names.iter().filter_map(|name| named_content(name)) {
            objects.entry(id).or_default().push(object);
        }
        for (id, objects) in objects {
            // An error with the files of one group does not keep those of the others.
            let _ = match ParkedFile::head_of(&*self.host, &path_of(id)) {
                Err(Error::NotFound(_)) => self.remove_contents(&[id]),
                // The crash came before those were removed whose objects were applied.
                Ok((head, _)) if (head.content_files as usize) < objects.len() => {
                    ParkedFile::read(&*self.host, &path_of(id))
                        .and_then(|file| self.remove_contents_but(id, &file.summary))
                }
                _ => Ok(()),
            };
        }
        Ok(())
    }

    /// Removes the content files of a group that could not be parked. Where that fails, the next open does it.
    pub fn remove_unused_contents(&self, id: u64) {
        // A rename that failed may have its effect all the same.
        if matches!(is_there(&*self.host, &path_of(id)), Ok(false)) {
            let _ = self.remove_contents(&[id]);
        }
    }

    /// Removes the content files of groups that are not parked any more.
    fn remove_contents(&self, ids: &[u64]) -> Result<()> {
        self.remove_content_files(|id, _| ids.contains(&id))
    }

    /// Removes the content files of a parked group that what is left of it does not name.
    pub fn remove_contents_but(&self, id: u64, rest: &Summary) -> Result<()> {
        let named: BTreeSet<u64> = content_files(rest).collect();
        self.remove_content_files(|of, object| of == id && !named.contains(&object))
    }

    /// The first error comes back once all others are removed.
    fn remove_content_files(&self, is_due: impl Fn(u64, u64) -> bool) -> Result<()> {
        let mut removed = Ok(());
        for (id, object) in names_in(&*self.host, FOLDER)?.iter().filter_map(|name| named_content(name)) {
            if is_due(id, object) {
                removed = removed.and(self.unlink_own(site::PARK_CONTENT_REMOVE, &content_path(id, object)));
            }
        }
        removed
    }

    /// What is parked, once what has expired is gone.
    pub fn parked_groups(&self) -> Result<Vec<Parked>> {
        self.check_usable()?;
        self.discard_expired()?;
        let applied = self.parked.applied_ids();
        let mut all = list(&*self.host)?;
        all.retain(|parked| !applied.contains(&parked.id.0));
        Ok(all)
    }

    /// Takes what is parked in this copy of a store for its own.
    pub fn accept_parked(&self) -> Result<()> {
        let here = origin_of(&*self.host)?;
        mark(&*self.host, here, |head| !head.is_here(here))
    }

    /// Refuses what was parked in a folder that this one is a copy of.
    ///
    /// # Errors
    /// [`Error::Copied`].
    pub fn refuse_copied(&self, head: &Head) -> Result<()> {
        match head.is_here(origin_of(&*self.host)?) {
            true => Ok(()),
            false => Err(Error::Copied(format!("group {} is of the original's folder", ParkedId(head.id)))),
        }
    }

    /// Reads a parked group, to apply it.
    ///
    /// # Errors
    /// Those of [`read_parked`](Self::read_parked) and [`refuse_copied`](Self::refuse_copied).
    pub fn read_own_parked(&self, id: ParkedId) -> Result<ParkedFile> {
        let file = self.read_parked(id)?;
        self.refuse_copied(&file.head)?;
        Ok(file)
    }

    /// Reads a parked group.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is none; [`Error::Corrupt`].
    pub fn read_parked(&self, id: ParkedId) -> Result<ParkedFile> {
        self.check_usable()?;
        self.discard_expired()?;
        let gone = || Error::NotFound(format!("parked group {id}"));
        if self.parked.applied.lock().unwrap().iter().any(|(_, applied)| *applied == id.0) {
            return Err(gone());
        }
        let path = path_of(id.0);
        let file = match ParkedFile::read(&*self.host, &path) {
            Err(Error::NotFound(_)) => return Err(gone()),
            file => file?,
        };
        if (file.head.volume_id, file.head.id) != (*self.log.volume_id(), id.0) {
            return Err(Error::corrupt(
                String::from_utf8_lossy(&path),
                "it is another parked group, or one of another store",
            ));
        }
        Ok(file)
    }

    /// Keeps others from applying or discarding a parked group.
    pub fn work_on_parked(&self, id: ParkedId) -> Result<AtWork<'_>> {
        let mut at_work = self.parked.at_work.lock().unwrap();
        if at_work.contains(&id.0) {
            return Err(Error::Busy(format!("parked group {id}"), "another thread applies or discards it".into()));
        }
        at_work.push(id.0);
        Ok(AtWork { store: self, id: id.0 })
    }

    /// Removes a parked group. It does not come back after a crash when this has returned.
    pub fn discard_parked(&self, id: ParkedId) -> Result<()> {
        self.check_usable()?;
        let _mine = self.work_on_parked(id)?;
        let gone = || Error::NotFound(format!("parked group {id}"));
        if self.parked.applied.lock().unwrap().iter().any(|(_, applied)| *applied == id.0) {
            return Err(gone());
        }
        if self.is_kept(id.0)? {
            return self.drop_kept(id.0, "it was discarded");
        }
        if self.has_line(id.0)? {
            self.unlink_line(id.0)?;
            return self.finish_removal(&[]);
        }
        // What cannot be read can be discarded all the same.
        match self.host.stat(&path_of(id.0)) {
            Err(error) if error.errno == Errno::NOENT => return Err(gone()),
            stat => stat.map_err(|error| host_error(error, FOLDER))?,
        };
        self.unlink_parked(&path_of(id.0))?;
        self.finish_removal(&[id.0])
    }

    /// The files of these groups are removed. They do not come back after a crash when this has returned, and their
    /// content files are removed, too.
    pub fn finish_removal(&self, ids: &[u64]) -> Result<()> {
        self.sync_parked(site::PARK_REMOVE_SYNC)?;
        // Where that fails, the next open does it.
        let _ = self.remove_contents(ids);
        Ok(())
    }

    /// Removes the files of groups that were applied and have a sequence below `target` (invariant 3). What a
    /// provisional group has applied stays.
    pub fn remove_applied(&self, target: u64) -> Result<()> {
        let provisional = self.parked.provisional.lock().unwrap().clone();
        let mut applied = self.parked.applied.lock().unwrap();
        let is_due = |(sequence, _): &(u64, u64)| {
            *sequence < target && provisional.iter().all(|group| group.sequence != *sequence)
        };
        if !applied.iter().any(is_due) {
            return Ok(());
        }
        for (_, id) in applied.iter().filter(|applied| is_due(applied)) {
            self.unlink_applied((target, *id))?;
        }
        let gone: Vec<u64> = applied.iter().filter(|applied| is_due(applied)).map(|(_, id)| *id).collect();
        self.finish_removal(&gone)?;
        applied.retain(|applied| !is_due(applied));
        Ok(())
    }

    /// Discards what has expired. Called in the background, and by who looks at what is parked.
    pub fn discard_expired(&self) -> Result<()> {
        let due = self.parked.next_expiry.load(Ordering::Acquire) as i64 <= self.parked_now();
        let expired = if due { self.expired()? } else { Vec::new() };
        let (mut gone, mut discarded) = (Vec::new(), Ok(()));
        for id in expired {
            // Who applies it was in time.
            if let Ok(_mine) = self.work_on_parked(ParkedId(id)) {
                match self.unlink_parked(&path_of(id)) {
                    Ok(()) => gone.push(id),
                    failed => discarded = discarded.and(failed),
                }
            }
        }
        if gone.is_empty() { discarded } else { self.finish_removal(&gone).and(discarded) }
    }

    /// What has expired; also finds out when the next one does.
    fn expired(&self) -> Result<Vec<u64>> {
        let now = self.parked_now();
        let (mut expired, mut next) = (Vec::new(), NEVER);
        for parked in list(&*self.host)? {
            match parked.expires_ns {
                Some(ns) if ns <= now => expired.push(parked.id.0),
                Some(ns) => next = next.min(ns as u64),
                None => {}
            }
        }
        self.parked.next_expiry.store(next, Ordering::Release);
        Ok(expired)
    }

    /// A group was parked that expires then.
    pub fn expires_at(&self, ns: i64) {
        self.parked.next_expiry.fetch_min(ns as u64, Ordering::AcqRel);
    }

    /// Removes a group that the log has, whether it was parked or prepared. All below `target` is written back, if
    /// something undoes it still.
    fn unlink_applied(&self, (target, id): (u64, u64)) -> Result<()> {
        self.unlink_parked(&path_of(id))?;
        self.unlink_parked(&prepared_path(id))?;
        self.take_part(id)?;
        self.unlink_kept(id)?;
        self.note_restored(id, target)?;
        self.unlink_parked(&undo_path(id))
    }

    pub fn unlink_parked(&self, path: &[u8]) -> Result<()> {
        self.unlink_own(site::PARK_REMOVE, path)
    }

    fn unlink_own(&self, site: Site, path: &[u8]) -> Result<()> {
        match self.host.unlink(site, path) {
            Err(error) if error.errno != Errno::NOENT => Err(host_error(error, path)),
            _ => Ok(()),
        }
    }

    /// Makes what is in the folder, and what is not, survive.
    pub fn sync_parked(&self, site: Site) -> Result<()> {
        self.host.sync_dir(site, FOLDER).map_err(|error| self.poison(&Error::Media(error)))?;
        self.log.count_barrier();
        Ok(())
    }
}
