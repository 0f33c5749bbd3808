//! What passes leave in the store's own folders, or where a crash ended them.

use rustix::io::Errno;
use wholly_changes::{Kind, id_name, id_of, join};
use wholly_host::host_error;
use wholly_media::Site;
use wholly_vfs::Stat;

use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::names::{
    ANCHOR_FOLDER, ANCHORS, BLANK_FOLDER, BLANKS, Home, OWN_FOLDER, Object, State, is_blank, names_in,
};
use crate::site;
use sync::Ordering;
use wholly_vfs::rules::acl;

impl StoreInner {
    /// Makes the store's own folders, where they are not there. They survive a crash when this returns: a directory
    /// that is moved to one must not be lost with it.
    pub fn make_folders(&self) -> Result<()> {
        if self.checkpointer.has_folders.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let sites = (site::NAMES_FOLDER, site::NAMES_FOLDER_SYNC);
        self.make_own_folders(sites, &[OWN_FOLDER, ANCHOR_FOLDER, BLANK_FOLDER])?;
        // What hangs there goes back to where it was, which may be of another project.
        self.host.admit_all_projects(site::NAMES_FOLDER, ANCHOR_FOLDER);
        self.checkpointer.has_folders.store(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes these folders, in [`OWN_FOLDER`], where they are not there, and has them survive, at these sites.
    pub fn make_own_folders(&self, (make, sync): (Site, Site), folders: &[&[u8]]) -> Result<()> {
        for path in folders {
            match self.host.mkdir(make, path, 0o700) {
                Err(error) if error.errno != Errno::EXIST => return Err(host_error(error, path)),
                _ => {}
            }
            // What is made there is to inherit nothing.
            match self.host.remove_xattr(make, path, acl::DEFAULT) {
                Err(error) if !matches!(error.errno, Errno::NODATA | Errno::OPNOTSUPP) => {
                    return Err(host_error(error, path));
                }
                _ => {}
            }
        }
        // Also where they were there: a process that died may have made them.
        for path in [b"", OWN_FOLDER] {
            self.host.sync_dir(sync, path).map_err(|error| self.poison(&Error::Media(error)))?;
            self.log.count_barrier();
        }
        Ok(())
    }

    /// Removes what hangs in the store's own folders and nobody needs. Where the log is `empty`, that is all but what
    /// running groups have staged, or have committed since.
    pub fn clean_folders(&self, empty: bool) -> Result<()> {
        self.drop_what_was_left()?;
        let tail = self.log.tail();
        for (folder, path) in [(ANCHORS, ANCHOR_FOLDER), (BLANKS, BLANK_FOLDER)] {
            for name in names_in(&*self.host, path)? {
                if self.is_strange(folder, &name) {
                    continue;
                }
                let id = id_of(&name);
                if folder == ANCHORS && id_name(id) == name && self.names.with(|state| state.held.contains(id)) {
                    self.put_away([id], tail);
                    continue;
                }
                let needed = |state: &mut State| {
                    let hangs = |object: &Object| match object.home() {
                        Some(Home::Name(home)) => home.0 == folder && *home.1 == *name,
                        home => home == Some(Home::Folder(folder)) && id_name(id) == name,
                    };
                    let is_wanted =
                        |object: &Object| folder == BLANKS && (object.place().is_some() || state.is_claimed(id));
                    state.objects.get(&id).is_some_and(|object| hangs(object) && (!empty || is_wanted(object)))
                };
                if !self.names.with(needed) {
                    self.remove_hanging(folder, &join(path, &name), id)?;
                }
            }
        }
        Ok(())
    }

    /// Removes what hangs in a folder of the store's own: a directory only if nothing is in it but what a pass made, or
    /// if a group had adopted it.
    fn remove_hanging(&self, folder: u64, path: &[u8], id: u64) -> Result<()> {
        let failed = |error| host_error(error, path);
        let stat = self.host.stat(path).map_err(failed)?;
        if Kind::of(stat.mode) == Kind::Directory
            && self.names.with(|state| state.objects.get(&id).is_none_or(|object| !object.is_born()))
        {
            // A pass has told the log of a directory that it made before anything but blanks came into it; and one on
            // an anchor, which nothing needs, is what was dropped. What cannot be removed, since others have made it,
            // keeps nobody from his store: no other object ever gets its id.
            let _ = self.remove_tree(site::NAMES_CLEAN, path);
            return Ok(());
        }
        if Kind::of(stat.mode) != Kind::Directory {
            let remove = || self.host.unlink(site::NAMES_CLEAN, path);
            self.names.change_home(remove, |state, ()| state.unhang(id, folder)).map_err(failed)?;
            return match self.names.with(|state| state.file(id)) {
                Some(file) => file.relinked_by_pass(self),
                None => Ok(()),
            };
        }
        for entry in self.host.read_dir(path).map_err(failed)? {
            self.remove_stray(&join(path, &entry.name), id, &entry.name)?;
        }
        self.host.rmdir(site::NAMES_CLEAN, path).map_err(failed)
    }

    /// Removes what a pass made at a name for an object of which nobody knew that when the crash came: it is empty.
    pub fn remove_stray(&self, path: &[u8], dir: u64, name: &[u8]) -> Result<()> {
        let host = &*self.host;
        let failed = |error| host_error(error, path);
        let stat = match host.stat(path) {
            Err(error) if error.errno == Errno::NOENT => return Ok(()),
            stat => stat.map_err(failed)?,
        };
        let born = self.names.with(|state| {
            let register = state.register(dir, name)?;
            let born = |id: u64| {
                let object = state.objects.get(&id)?;
                let birth = object.birth().filter(|_| object.kind == Kind::of(stat.mode));
                birth.map(|birth| (id, birth))
            };
            register.values().find_map(|(_, id)| born(id))
        });
        let conflict = || Error::Conflict {
            path: String::from_utf8_lossy(path).into_owned(),
            change: "another file has taken its name".into(),
        };
        let (id, birth) = born.ok_or_else(conflict)?;
        let at = self.names.with(|state| state.name_at(dir, path));
        if !is_blank(host, path, &stat, &birth)? {
            return Err(conflict());
        }
        if Kind::of(stat.mode) == Kind::Directory {
            for entry in host.read_dir(path).map_err(failed)? {
                self.remove_stray(&join(path, &entry.name), id, &entry.name)?;
            }
        }
        let is_it = |path: &[u8], now: &Stat| Ok(now.inode() == stat.inode() && is_blank(host, path, now, &birth)?);
        self.take_away(site::NAMES_CLEAN, at, (&(dir, name.into()), id), &is_it).map_err(failed)
    }
}
