//! What a running group sees of objects, and does with them, where they are known already and no path leads to them:
//! see [`StoreVfs`](crate::StoreVfs). With no group at all, it sees what everybody sees.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::records::Birth;
use wholly_changes::{Kind, ROOT};
use wholly_host::host_error;
use wholly_vfs::{DirEntry, Stat};

use super::names::At;
use super::{Inner, Running, Sharing};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::clock::EXACT_NS;
use crate::hostdir::names::{Entry, Found, Last, State, TYPE, Wanted};
use index::BLOCK;
use sync::Ordering;
use wholly_vfs::rules::acl;
use wholly_vfs::rules::permit::Who;

impl Running {
    /// Nobody's group, by which everybody's view is looked at.
    pub(in crate::hostdir) fn looking(store: Arc<StoreInner>) -> Self {
        Self::ended(store, Sharing::Own, None)
    }

    /// From here on its calls on names are made on somebody's behalf.
    pub(in crate::hostdir) fn act_as(&mut self, who: Who) {
        self.who = who;
    }

    /// From here on the times of its changes are as exact as the host's.
    pub(in crate::hostdir) fn tell_exact_times(&mut self) {
        self.grain_ns = EXACT_NS;
    }

    /// What `name` names in a directory.
    pub(in crate::hostdir) fn look_up(&self, dir: u64, name: &[u8]) -> Result<Option<Found>> {
        self.store.check_usable()?;
        let turns = self.store.checkpointer.turns();
        let found = self.walk().lookup(dir, name)?;
        if let Some(Found { id, stat: Some((stat, passes)), .. }) = found {
            self.note_seen(id, stat, turns, passes);
        }
        Ok(found)
    }

    /// An object by its id.
    pub(in crate::hostdir) fn object(&self, id: u64) -> Result<Found> {
        let kind = self.store.names.with(|state| state.objects.get(&id).map(|object| object.kind));
        match kind {
            Some(kind) => Ok(Found { id, kind, stat: self.glanced(id) }),
            None => Err(Error::Refused(format!("object {id:#x}"), Errno::STALE)),
        }
    }

    /// What is known of an object. It takes the space that it has at home, and that of what waits to be taken there.
    pub(in crate::hostdir) fn stat_of(&self, id: u64) -> Result<Stat> {
        self.store.check_usable()?;
        let found = self.object(id)?;
        let mut stat = self.stat(b"", &found)?;
        if found.kind == Kind::Directory && !self.is_there(id) {
            stat.nlink = 0;
        }
        // Where the host counts directories, it counts one that nobody sees.
        if id == ROOT && stat.nlink > 2 {
            stat.nlink -= 1;
        }
        if let Some(file) = self.store.names.with(|state| state.file(id)) {
            if let Some(taken) = self.space_taken(&file)? {
                stat.allocated = taken;
                return Ok(stat);
            }
            let written = self.find(&file).map_or_else(|| self.store.visible_written(&file), |i| self.written_to(i));
            let waiting = (file.pending.count() * BLOCK).saturating_add(written.next_multiple_of(BLOCK));
            // What is overwritten counts twice so. Behind the end is what home has reserved there, unless it is to be
            // cut.
            let is_cut = stat.size.min(file.home_limit.load(Ordering::Acquire)) < file.home_state.lock().unwrap().size;
            let most = stat.size.next_multiple_of(BLOCK).max(if is_cut { 0 } else { stat.allocated });
            stat.allocated = stat.allocated.saturating_add(waiting).min(most);
        }
        Ok(stat)
    }

    /// Bytes that the group wrote to one of its files.
    pub(in crate::hostdir) fn written_to(&self, i: usize) -> u64 {
        self.seat().files[i].written
    }

    /// The target of a symbolic link.
    pub(in crate::hostdir) fn read_link_of(&self, id: u64) -> Result<Vec<u8>> {
        self.store.check_usable()?;
        let found = self.object(id)?;
        if found.kind != Kind::Symlink {
            return Err(Error::Refused(format!("object {id:#x}"), Errno::INVAL));
        }
        self.walk().read_link(&found)
    }

    /// The names in a directory.
    pub(in crate::hostdir) fn list_of(&self, dir: u64) -> Result<Vec<DirEntry>> {
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

    /// The directory that a directory is in; `None` where it has been removed.
    pub(in crate::hostdir) fn above(&self, dir: u64) -> Option<u64> {
        if dir == ROOT { Some(ROOT) } else { self.walk().above(dir) }
    }

    /// Whether a directory has a name.
    pub(in crate::hostdir) fn has_name(&self, dir: u64) -> bool {
        self.is_there(dir)
    }

    /// Opens a regular file, whatever its permission bits say, for reading or also for writing.
    pub(in crate::hostdir) fn open_object(&self, id: u64, writes: bool) -> Result<Arc<Inner>> {
        self.store.check_usable()?;
        let found = self.object(id)?;
        let path = self.store.names.with(|state| state.path(id));
        let file = self.store.file_of(path.as_bytes(), &found)?;
        self.store.names.with(|state| state.begin_open(id));
        let is_open = || if writes { file.full_home().is_some() } else { file.home().is_some() };
        match self.store.open_home(&file, writes) {
            // While nothing of it is pending a new time of change is nobody's conflict.
            Err(error) if error.errno() == Errno::ACCESS.raw_os_error() && file.is_clean() => {
                let _still = self.store.names.keep_homes();
                let place = self.store.names.with(|state| state.host_path(id)).filter(|_| !is_open());
                if let Some(place) = place {
                    let host = &self.store.host;
                    let home = match host.open_own(&place) {
                        // Somebody else's, of which the store may at most know what is in it.
                        Err(error) if error.errno == Errno::ACCESS => host.open(&place, false),
                        opened => opened,
                    };
                    let home = home.map_err(|error| host_error(error, path.as_bytes()))?;
                    if !self.store.is_home_of(&file, home.stat()?.inode()) {
                        return Err(Error::NotFound(path));
                    }
                    self.store.attach(&file, home.clone(), true, true);
                    // Somebody may have changed it since: the new time of change is ours all the same.
                    file.relinked_by_pass(&self.store)?;
                    file.refresh_if_unused(&self.store, Some(&*home))?;
                }
            }
            opened => drop(opened?),
        }
        let had_home = |state: &mut State| {
            state.objects.get(&id).is_some_and(|object| object.inode().is_some()) && state.host_path(id).is_none()
        };
        if file.home().is_none() && self.store.names.with(had_home) && file.home().is_none() {
            return Err(Error::NotFound(path));
        }
        // It was opened for reading, and has no name any more by which to open it otherwise.
        if file.home().is_some() && !is_open() {
            return Err(Error::Refused(path, Errno::TXTBSY));
        }
        Ok(file)
    }

    /// The size of a file, which belongs to the group from here on.
    pub(in crate::hostdir) fn size_of(&mut self, inner: &Arc<Inner>) -> Result<u64> {
        let i = self.join(inner)?;
        Ok(self.seat().files[i].size)
    }

    /// Gives an object one more name; its first only where it was made to get one.
    pub(in crate::hostdir) fn link_object(&mut self, id: u64, to: At<'_>) -> Result<()> {
        self.check_open()?;
        self.let_go_of_unused();
        let found = self.object(id)?;
        let exists = |_: &Last, taken: Option<&Found>| match taken {
            Some(_) => Err(Error::Exists(to.show())),
            None if found.kind == Kind::Directory => Err(Error::Refused(to.show(), Errno::PERM)),
            // What has no name yet goes with its last user, unless somebody has claimed it.
            None => Ok(Wanted { shared: vec![id], ..Self::of_object(&found) }),
        };
        let (last, _): (Last, _) = self.claim_last(to, exists)?;
        let file = self.join_named(to.bytes(), &found)?;
        self.check_links(to, &found)?;
        let is_first = self.stat_of(id)?.nlink == 0;
        let nameable = || self.store.names.with(|state| state.objects.get(&id).is_some_and(|object| object.nameable));
        if is_first && (!nameable() || self.names_mut().first_named.contains(id)) {
            return Err(Error::NotFound(to.show()));
        }
        self.promise_name(&last.name)?;
        self.set_name(&last, 0, id)?;
        if is_first {
            self.names_mut().first_named.insert(id);
        }
        self.touch(file);
        Ok(())
    }

    /// Whether a directory has a list of permissions for what is made in it: then no umask counts.
    pub(in crate::hostdir) fn has_default_list(&self, dir: u64) -> Result<bool> {
        let found = self.object(dir)?;
        Ok(self.acl_of(At::Object(dir), &found, acl::DEFAULT).is_some())
    }

    /// Makes a regular file without a name, which is the group's and inherits what is made in `dir`. It may get a name
    /// where it is `nameable`.
    pub(in crate::hostdir) fn create_nameless(&mut self, dir: u64, birth: Birth, nameable: bool) -> Result<Arc<Inner>> {
        self.check_open()?;
        let (birth, lists) = self.inherited(dir, birth)?;
        let born = (birth.mtime_ns, birth.mode);
        let id = self.bear_nameless(birth)?;
        self.hand_down(id, lists)?;
        self.store.names.with(|state| {
            if let Some(object) = state.objects.get_mut(&id) {
                object.nameable = nameable;
            }
        });
        self.take_born(b"(a file without a name)", id, born)
    }

    /// Somebody has read an object: its time of access is that of now, if it was not above its other times (as
    /// `relatime` has it).
    pub(in crate::hostdir) fn has_read(&self, id: u64) -> Result<()> {
        let stat = self.stat_of(id)?;
        if stat.atime_ns <= stat.mtime_ns.max(stat.ctime_ns) {
            let now = self.store.host.now_ns();
            self.store.names.with(|state| {
                if let Some(object) = state.objects.get_mut(&id) {
                    object.read = Some(now).into();
                }
            });
        }
        Ok(())
    }
}
