//! Directories that a group removes with everything in them, by one change of a name.
//!
//! # Terms
//!
//! - *whole*: a directory that goes with everything in it: the group changes no name in it. So does a directory that a
//!   group had adopted, when that group is undone.
//! - *since*: a time, before which everything that is in a whole directory has last been changed.
//!
//! # Invariants
//!
//! 1. A group removes a directory whole only if everything in it has its one name there, has gone home, and is not in
//!    use: no file is open, and no group has changed anything.
//! 2. Until the group ends, nobody else changes a name in it, at any depth: the group has claimed its directories, and
//!    what else of it the store knows.
//! 3. Before anything in it goes, it moves to where nobody finds it by a path, and is looked at there: what has changed
//!    since is another program's, and the group is undone.
//! 4. What goes is not removed before the group is final, and while its undo is kept not at all.
//!
//! The cost is a look at everything that is in it when the group removes it, and one when the group goes home.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::{Kind, Name};
use wholly_host::host_error;
use wholly_vfs::Stat;

use super::Running;
use super::names::At;
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::file::File;
use crate::hostdir::names::{Found, Object, Private, Wanted, Whole};
use crate::hostdir::table::is_taken_away;
use sync::Ordering;

/// As [since](self), where it does not matter when something was changed: it all goes back to where it was.
pub(super) const ANY_TIME: i64 = i64::MAX;

impl Running {
    /// Removes a directory with everything in it, by one change of a name, unless something in it was changed after
    /// `since_ns`, or it cannot go so for another reason. Gives whether it did; if not, nothing has changed.
    pub(in crate::hostdir) fn remove_tree<'a>(&mut self, at: impl Into<At<'a>>, since_ns: i64) -> Result<bool> {
        let at = at.into();
        self.check_open()?;
        self.let_go_of_unused();
        if !self.store.options.at_once {
            return Ok(false);
        }
        let (last, found) = self.claim_directory(at)?;
        // What is changed from here on has this time, or a later one.
        let since_ns = self.store.host.now_ns().min(since_ns.saturating_add(1));
        let Some(inside) = self.look_into(&found, since_ns)? else { return Ok(false) };
        self.claim(&Wanted { alone: inside, ..Wanted::default() })?;
        self.set_name(&last, found.id, 0)?;
        self.names_mut().taken_whole.insert(found.id, since_ns.into());
        Ok(true)
    }

    /// Checks that nothing is in use in the directories that the group has removed whole: a file may have been opened
    /// after that.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub(super) fn check_unused(&self) -> Result<()> {
        // What is taken back has just been compared with what the group left.
        let takes = |private: &&Private| !private.taken_whole.is_empty() && !self.takes_back();
        let Some(private) = self.names.as_deref().filter(takes) else { return Ok(()) };
        let in_use = self.store.names.with(|state| {
            let is_taken = |id: u64| {
                let above = |id: &u64| state.objects.get(id)?.place().map(|place| place.0);
                let mut all = std::iter::successors(above(&id), above);
                all.any(|id| private.taken_whole.contains_key(&id))
            };
            let is_used = |object: &Object| {
                let is_others = object.owner().is_some_and(|owner| owner != self.claimer());
                let is_open = |file: Arc<File>| file.handles.load(Ordering::Relaxed) > 0 || !file.is_clean();
                is_others || object.file.upgrade().is_some_and(is_open)
            };
            let found = state.objects.iter().find(|(id, object)| is_used(object) && is_taken(**id));
            found.map(|(id, _)| state.path(*id))
        });
        match in_use {
            None => Ok(()),
            Some(path) => Err(Error::Busy(path, "it is in use, in a directory that the group removes".into())),
        }
    }

    /// Whether a directory goes with everything in it.
    pub(super) fn takes_whole(&self, id: u64) -> bool {
        self.names.as_ref().is_some_and(|private| private.taken_whole.contains_key(&id))
    }

    /// The same, also of one that the group gives a name with everything in it.
    pub(in crate::hostdir) fn is_whole(&self, id: u64) -> bool {
        self.takes_whole(id) || self.names.as_ref().is_some_and(|private| private.given_whole.contains(&id))
    }

    /// What the group has to claim in a directory before it can remove that whole (invariants 1 and 2). `None` if it
    /// cannot do that.
    fn look_into(&self, root: &Found, since_ns: i64) -> Result<Option<Vec<u64>>> {
        let stat = Stat { ctime_ns: i64::MIN, ..self.stat(b"", root)? };
        if !self.may_go(&stat, since_ns) || self.store.host.copies_up() {
            return Ok(None);
        }
        let (mut inside, mut todo) = (Vec::new(), vec![root.id]);
        while let Some(dir) = todo.pop() {
            let looked = self.look_into_one(dir, since_ns, &mut |id, is_dir| {
                inside.push(id);
                if is_dir {
                    todo.push(id);
                }
            });
            match looked {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // Others are at work in it, or something is mounted there.
                Err(error) if is_taken_away(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(inside))
    }

    /// Calls `claim` with what is to be claimed in one directory. Whether everything in it is as it should be.
    fn look_into_one(&self, dir: u64, since_ns: i64, claim: &mut dyn FnMut(u64, bool)) -> Result<bool> {
        let store = &self.store;
        let _still = store.names.keep_homes();
        let is_changed = self.names.as_ref().is_some_and(|private| private.changes_in(dir).next().is_some());
        let path = store.names.with(|state| {
            let object = state.objects.get(&dir)?;
            let is_home = object.inode().is_some() && object.home().is_some_and(|home| home.name() == object.place());
            (is_home && !state.registers.contains_key(&dir)).then(|| state.host_path(dir))?
        });
        let Some(path) = path.filter(|_| !is_changed) else { return Ok(false) };
        let mut is_fit = true;
        let looked = store.host.stat_all(&path, &mut |name, stat| {
            is_fit = is_fit && self.may_go(stat, since_ns) && self.goes(dir, name, stat, claim);
            is_fit
        });
        match looked {
            Err(error) if error.errno == Errno::ACCESS => Ok(false),
            looked => looked.map(|()| is_fit).map_err(|error| host_error(error, &path)),
        }
    }

    /// Whether something in a directory that goes whole may go so, as it lies.
    fn may_go(&self, stat: &Stat, since_ns: i64) -> bool {
        let is_dir = Kind::of(stat.mode) == Kind::Directory;
        // What is in a directory that is not the user's own, or closed to him, he may not be able to remove.
        let is_own = || {
            let user = rustix::process::geteuid().as_raw();
            user == 0 || (stat.uid == user && stat.mode & 0o700 == 0o700)
        };
        let is_fixed = stat.is_immutable || stat.is_append_only;
        stat.ctime_ns < since_ns && !is_fixed && if is_dir { is_own() } else { stat.nlink == 1 }
    }

    /// Whether it may go so, by what the store knows of it. A directory, and a file that the store knows, is claimed.
    fn goes(&self, dir: u64, name: &[u8], stat: &Stat, claim: &mut dyn FnMut(u64, bool)) -> bool {
        let is_dir = Kind::of(stat.mode) == Kind::Directory;
        let is_changed = |id: u64| self.names.as_ref().is_some_and(|private| private.has_changed(id));
        let tail = self.store.log.tail();
        let id = self.store.names.with(|state| {
            let known = state.by_inode.get(&stat.inode()).copied();
            match (known, is_dir) {
                (None, false) => Some(0),
                _ => {
                    let id = state.object_of(stat, Some((dir, name.into())));
                    state.objects.get(&id).filter(|object| !object.is_used(tail) && !object.waits()).map(|_| id)
                }
            }
        });
        match id {
            Some(0) => true,
            Some(id) if !is_changed(id) => {
                claim(id, is_dir);
                true
            }
            _ => false,
        }
    }
}

impl StoreInner {
    /// Looks at what is in a whole directory of this name, which has been moved to `path` (invariant 3), and notes how
    /// much space it takes.
    ///
    /// # Errors
    /// [`Error::Conflict`] where another program has changed something since.
    pub(in crate::hostdir) fn look_at_whole(&self, (name, id): (&Name, u64), path: &[u8]) -> Result<()> {
        let since = self.names.with(|state| state.whole.get(&id).map(|whole| whole.since_ns));
        let Some(since_ns) = since.filter(|since| *since != ANY_TIME) else { return Ok(()) };
        let shown = self.names.with(|state| state.path_of(name.0, &name.1));
        let conflict = |path: String, change: String| Err(Error::Conflict { path, change });
        let mut bytes = 0;
        let looked = self.look_below(path, &mut |at, stat| {
            bytes += stat.allocated;
            match at == path || stat.ctime_ns < since_ns {
                true => Ok(()),
                false => conflict(
                    format!("{shown}{}", String::from_utf8_lossy(&at[path.len()..])),
                    "another program has changed it, or put it into a directory that was removed".into(),
                ),
            }
        });
        match looked {
            // Whatever keeps it from being looked at: no later pass would look again.
            Err(error) if !matches!(error, Error::Conflict { .. }) => {
                conflict(shown, format!("what is in it cannot be looked at: {error}"))?;
            }
            looked => looked?,
        }
        self.names.with(|state| state.whole.insert(id, Whole { since_ns, bytes: Some(bytes) }));
        Ok(())
    }
}
