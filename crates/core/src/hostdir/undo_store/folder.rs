//! The folder of undo that is kept: `.wholly/undo`. It has all of it, with what it holds, and a tag by which backups
//! leave it out.
//!
//! What is held lies on an anchor as long as a pass may need it there, and is put away here then, under the same name.
//! Nothing relies on that: what is held is looked for in both. A group that gives it a name takes it out again before
//! it commits, durably: only what is on an anchor does an open find for the log.
//!
//! Versions before had undo beside the parked groups. There it is found, too.

use rustix::io::Errno;
use wholly_changes::{FOLDER, Ids, Kind, id_name, id_of, join};
use wholly_host::{HostFs, host_error};
use wholly_media::Site;
use wholly_vfs::{Rename, Stat};

use super::{DROPPED, KEPT, LINE, MADE, named};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::names::{ANCHOR_FOLDER, ANCHORS, HELD, OWN_FOLDER, UNDO_FOLDER, names_in};
use crate::hostdir::parked::path_of_kind;
use crate::site;
use sync::Ordering;

/// By this file programs know a folder that they may leave out.
const TAG: &[u8] = b".wholly/undo/CACHEDIR.TAG";
const TAGGED: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
    # Undo that `wholly` keeps for commands that have run here. A backup needs none of it.\n\
    # https://bford.info/cachedir/\n";

/// Space that is set aside.
pub(super) const RESERVE: &[u8] = b".wholly/undo/reserve";

/// Where a file of kept undo is, or is to be, by the end of its name.
fn place(host: &dyn HostFs, id: u64, end: &[u8]) -> Vec<u8> {
    let (here, before) = (join(UNDO_FOLDER, &[&id_name(id), end].concat()), path_of_kind(id, end));
    let is_there = |path: &[u8]| host.stat(path).is_ok();
    if !is_there(&here) && is_there(&before) { before } else { here }
}

pub(in crate::hostdir) fn kept_path(host: &dyn HostFs, id: u64) -> Vec<u8> {
    place(host, id, KEPT)
}

pub(in crate::hostdir) fn made_path(host: &dyn HostFs, id: u64) -> Vec<u8> {
    place(host, id, MADE)
}

pub(super) fn taken_path(host: &dyn HostFs, id: u64) -> Vec<u8> {
    place(host, id, super::TAKEN)
}

/// A line is about what is not kept, and is no undo: it lies beside the parked groups.
pub(super) fn line_path(id: u64) -> Vec<u8> {
    path_of_kind(id, LINE)
}

/// So does what is being removed: an open goes on with it whatever a backup has left out.
pub(super) fn dropped_path(id: u64) -> Vec<u8> {
    path_of_kind(id, DROPPED)
}

/// Where something held lies once it is put away.
pub(in crate::hostdir) fn held_path(id: u64) -> Vec<u8> {
    join(UNDO_FOLDER, &id_name(id))
}

/// And before.
pub(in crate::hostdir) fn anchor_path(id: u64) -> Vec<u8> {
    join(ANCHOR_FOLDER, &id_name(id))
}

/// Where something held lies: its folder, its path, and what it is. `None` if it is gone.
pub(in crate::hostdir) fn find_held(host: &dyn HostFs, id: u64) -> Result<Option<(u64, Vec<u8>, Stat)>> {
    for (folder, path) in [(HELD, held_path(id)), (ANCHORS, anchor_path(id))] {
        match host.stat(&path) {
            Ok(stat) => return Ok(Some((folder, path, stat))),
            Err(error) if error.errno == Errno::NOENT => {}
            Err(error) => return Err(host_error(error, &path)),
        }
    }
    Ok(None)
}

/// Files about kept undo, by their names without a folder.
pub(super) fn files(host: &dyn HostFs) -> Result<Vec<Vec<u8>>> {
    Ok([names_in(host, UNDO_FOLDER)?, names_in(host, FOLDER)?].concat())
}

/// Whether something in the folder is neither a file about undo nor strange there.
pub(in crate::hostdir) fn is_held_or_tag(name: &[u8]) -> bool {
    let is_held = id_of(name) != 0 && id_name(id_of(name)) == name;
    is_held || [TAG, RESERVE].contains(&&*join(UNDO_FOLDER, name))
}

/// The ids of the groups that have a file with this ending, the oldest first.
pub(super) fn ids(host: &dyn HostFs, end: &[u8]) -> Result<Vec<u64>> {
    let mut ids: Vec<u64> = files(host)?.iter().filter_map(|name| named(name, end)).collect();
    // In the order in which they began.
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

impl StoreInner {
    /// Makes the folder, and that of parked groups, where they are not there. They survive when this returns.
    pub(in crate::hostdir) fn make_undo_folder(&self) -> Result<()> {
        if self.kept.has_folder.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let sites = (site::PARK_FOLDER, site::PARK_FOLDER_SYNC);
        self.make_own_folders(sites, &[OWN_FOLDER, FOLDER, UNDO_FOLDER])?;
        // As for anchors.
        self.host.admit_all_projects(site::PARK_FOLDER, UNDO_FOLDER);
        self.kept.has_folder.store(1, Ordering::Release);
        // Undo is kept without it, too. The next process tries again.
        if self.host.stat(TAG).is_err() {
            let tag = self.host.create(site::KEPT_TAG, TAG, 0o600);
            if tag.and_then(|file| file.write_at(site::KEPT_TAG, 0, TAGGED)).is_err() {
                _ = self.host.unlink(site::KEPT_TAG, TAG);
            }
        }
        Ok(())
    }

    /// Makes what is in the folder of a file about undo, and what is not, survive.
    pub(super) fn sync_folder_of(&self, path: &[u8], site: Site) -> Result<()> {
        if path.starts_with(UNDO_FOLDER) { self.sync_undo_folder(site) } else { self.sync_parked(site) }
    }

    /// The same for this folder, if it is there.
    pub(in crate::hostdir) fn sync_undo_folder(&self, site: Site) -> Result<()> {
        match self.host.sync_dir(site, UNDO_FOLDER) {
            Err(error) if error.errno != Errno::NOENT => Err(self.poison(&Error::Media(error))),
            Err(_) => Ok(()),
            Ok(()) => {
                self.log.count_barrier();
                Ok(())
            }
        }
    }

    /// Puts away of these objects what no pass needs on its anchor. What the host does not move stays there.
    pub(in crate::hostdir) fn put_away(&self, held: impl IntoIterator<Item = u64>, below: u64) {
        for id in held {
            if self.names.with(|state| state.may_be_put_away(id, below)) {
                let (from, to) = (anchor_path(id), held_path(id));
                let rename = || self.host.rename(site::KEPT_PUT_AWAY, &from, &to, Rename::NoReplace);
                _ = self.names.change_home(rename, |state, ()| state.put_away(id));
            }
        }
    }

    /// Removes what lies in the folder and nothing holds. What the host does not remove a later open tries again.
    pub(super) fn remove_strays(&self, held: &Ids) -> Result<()> {
        for name in names_in(&*self.host, UNDO_FOLDER)? {
            let id = id_of(&name);
            if id != 0 && id_name(id) == name && !held.contains(id) {
                _ = self.remove_held(id);
            }
        }
        Ok(())
    }

    /// Removes something held, wherever it lies.
    pub(super) fn remove_held(&self, id: u64) -> Result<()> {
        match find_held(&*self.host, id)? {
            Some((_, path, stat)) if Kind::of(stat.mode) == Kind::Directory => {
                self.remove_tree(site::NAMES_CLEAN, &path).map(drop)
            }
            Some((_, path, _)) => self.host.unlink(site::NAMES_CLEAN, &path).map_err(|error| host_error(error, &path)),
            None => Ok(()),
        }
    }
}
