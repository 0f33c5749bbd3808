//! Names become what they are to be.

use rustix::io::Errno;
use wholly_host::host_error;
use wholly_vfs::{Rename, Stat};

use super::{ANCHORS, BLANKS, Change, Home, Kind, NamePlan, Object, State, id_name};
use crate::error::{Error, Result};
use crate::site;

impl NamePlan<'_> {
    /// Removes names that end, and sets those that begin. Durable by the barrier at the end of the pass.
    pub fn place(&mut self) -> Result<()> {
        self.remove()?;
        self.clean_idle_anchors()?;
        self.clean_spent_blanks()?;
        // Directories may lie in what hangs on an anchor yet: their paths are looked up one by one.
        for i in 0..self.changes.len() {
            let change = self.changes[i].clone();
            if change.want != 0 {
                self.set(&change)?;
            }
        }
        Ok(())
    }

    /// Removes names that end before the bytes go home: what only they kept gives its space back. All that is not to be
    /// lost with them hangs on an anchor by now. Whether there were any.
    pub fn make_space(&mut self) -> Result<bool> {
        let before: Vec<u64> = self.changes.iter().map(|change| change.home).collect();
        self.remove()?;
        let now = self.changes.iter().map(|change| change.home);
        let gone: Vec<u64> = before.into_iter().zip(now).filter(|(was, is)| was != is).map(|(was, _)| was).collect();
        for id in &gone {
            // Its bytes may be still to go home, for who has it open.
            if let Some(file) = self.store.names.with(|state| state.file(*id)) {
                file.relinked_by_pass(self.store)?;
            }
        }
        Ok(!gone.is_empty())
    }

    /// Removes anchors of files that are about to be forgotten: the log has nothing for them, and nobody has them.
    fn clean_idle_anchors(&self) -> Result<()> {
        let store = self.store;
        for &id in &self.idle {
            let path = self.path_of(&(ANCHORS, id_name(id).into()))?;
            let remove = || {
                // Who has found it meanwhile may know it by this name only.
                let is_idle = store.names.with(|state| state.is_idle_on_anchor(id, store.log.tail()));
                match is_idle.then(|| store.host.unlink(site::NAMES_CLEAN, &path)) {
                    Some(Err(error)) if error.errno != Errno::NOENT => Err(error),
                    removed => Ok(removed.is_some()),
                }
            };
            let fall = |state: &mut State, gone: &bool| {
                if *gone {
                    state.fall(id);
                }
            };
            store.names.change_home(remove, fall).map_err(|error| host_error(error, &path))?;
        }
        Ok(())
    }

    /// Removes what groups have staged or adopted, and nobody can find any more.
    fn clean_spent_blanks(&self) -> Result<()> {
        let store = self.store;
        for &id in &self.spent {
            let path = self.path_of(&(BLANKS, id_name(id).into()))?;
            let is_dir =
                store.names.with(|state| state.objects.get(&id).is_some_and(|object| object.kind == Kind::Directory));
            let remove = || {
                // Somebody may have come by it meanwhile.
                if !store.names.with(|state| state.is_spent_blank(id, self.target)) {
                    return Ok(false);
                }
                let removed = match is_dir {
                    true => store.host.rmdir(site::NAMES_CLEAN, &path),
                    false => store.host.unlink(site::NAMES_CLEAN, &path),
                };
                match removed {
                    // A later pass takes away what is in it.
                    Err(error) if is_dir && error.errno == Errno::NOTEMPTY => Ok(false),
                    Err(error) if error.errno != Errno::NOENT => Err(error),
                    _ => Ok(true),
                }
            };
            let tell = |state: &mut State, gone: &bool| {
                if *gone {
                    state.unmake(id);
                }
            };
            store.names.change_home(remove, tell).map_err(|error| host_error(error, &path))?;
        }
        Ok(())
    }

    /// Takes away names that end, and those that a rename cannot replace: deepest first.
    fn remove(&mut self) -> Result<()> {
        let store = self.store;
        let ends = self.changes.iter().filter(|change| change.home != 0).count();
        let mut removals = Vec::with_capacity(ends);
        for (i, change) in self.changes.iter().enumerate().filter(|(_, change)| change.home != 0) {
            let (home_is_dir, want_is_dir) = store.names.with(|state| {
                let is_dir = |id| state.objects.get(&id).map(|object| object.kind == Kind::Directory);
                (is_dir(change.home).unwrap_or(false), is_dir(change.want))
            });
            // A directory's names go with it, so it must be empty, and what replaces it comes later.
            if want_is_dir.is_none_or(|want| want != home_is_dir) || home_is_dir {
                let path = self.path_of(&change.name)?;
                let depth = path.iter().filter(|&&byte| byte == b'/').count();
                removals.push((std::cmp::Reverse(depth as u32), i as u32, home_is_dir));
            }
        }
        removals.sort_unstable();
        for (_, i, is_dir) in removals {
            let i = i as usize;
            // What it lies in is removed after it.
            let path = self.path_of(&self.changes[i].name)?;
            let change = &mut self.changes[i];
            let (at, inode) =
                store.names.with(|state| (state.name_at(change.name.0, &path), state.inode_of(change.home)));
            let site = if is_dir { site::NAMES_RMDIR } else { site::NAMES_UNLINK };
            let is_it = |_: &[u8], stat: &Stat| Ok(inode.is_none_or(|inode| inode == stat.inode()));
            let remove = || store.take_away(site, at, (&change.name, change.home), &is_it);
            let removed = store.names.change_home(remove, |state, ()| state.set_home(change.name.0, &change.name.1, 0));
            removed.map_err(|error| match error.errno {
                Errno::NOTEMPTY => Error::Conflict {
                    path: String::from_utf8_lossy(&path).into_owned(),
                    change: "another program has put something into it".into(),
                },
                _ => host_error(error, &path),
            })?;
            let id = std::mem::take(&mut change.home);
            self.names_changed(id)?;
        }
        Ok(())
    }

    /// Gives an object a name.
    fn set(&mut self, change: &Change) -> Result<()> {
        let store = self.store;
        let (dir, name) = &change.name;
        let (is, home, from) = store.names.with(|state| {
            let is = state.register(*dir, name).map_or(0, |register| register.home());
            let home = state.objects.get(&change.want).and_then(Object::home).map(Home::dir);
            (is, home, state.host_path(change.want))
        });
        if is == change.want {
            return Ok(());
        }
        let path = self.path_of(&change.name)?;
        let (Some(home), Some(mut from)) = (home, from) else {
            return Err(Error::Conflict {
                path: String::from_utf8_lossy(&path).into_owned(),
                change: "what was to have that name is gone".into(),
            });
        };
        let failed = |error: wholly_media::Error| match error.errno {
            Errno::EXIST => Error::Conflict {
                path: String::from_utf8_lossy(&path).into_owned(),
                change: "another program has made something there".into(),
            },
            _ => host_error(error, &path),
        };
        let id = change.want;
        let to = store.names.with(|state| state.name_at(*dir, &path));
        if home != ANCHORS && home != BLANKS {
            let itself = store.names.with(|state| state.object_at(id, &from));
            if is == 0 {
                let link = || store.host.hard_link_at(site::NAMES_LINK, itself, to);
                store.names.change_home(link, |state, ()| state.set_home(*dir, name, id)).map_err(failed)?;
                return self.names_changed(id);
            }
            // A link cannot replace what is there.
            store.make_folders()?;
            let anchor = self.path_of(&(ANCHORS, id_name(id).into()))?;
            let link = || store.host.hard_link_at(site::NAMES_LINK, itself, anchor[..].into());
            store.names.change_home(link, |state, ()| state.hang(id, ANCHORS)).map_err(failed)?;
            from = anchor;
        }
        let folder = if home == BLANKS { BLANKS } else { ANCHORS };
        let was = store.names.with(|state| state.inode_of(is));
        let is_it = |_: &[u8], stat: &Stat| Ok(was.is_none_or(|was| was == stat.inode()));
        let rename = || match is {
            0 => store.host.rename_at(site::NAMES_PLACE, from[..].into(), to, Rename::NoReplace),
            _ => store.replace((&from, (folder, id_name(id).into())), to, (&change.name, id), &is_it),
        };
        let renamed = store.names.change_home(rename, |state, ()| {
            state.unhang(id, folder);
            state.set_home(*dir, name, id);
        });
        renamed.map_err(failed)?;
        if is != 0 {
            self.names_changed(is)?;
        }
        self.names_changed(id)
    }

    /// The time of change of an object is another one by that. A file that is open is looked at when the pass ends.
    fn names_changed(&self, id: u64) -> Result<()> {
        self.store.checkpointer.count_name();
        match self.store.names.with(|state| state.file(id)).filter(|file| !file.has_home()) {
            Some(file) => file.relinked_by_pass(self.store),
            None => Ok(()),
        }
    }
}
