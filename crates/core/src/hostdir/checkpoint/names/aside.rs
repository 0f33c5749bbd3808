//! Names that end, and names that other objects get: no object goes before it was looked at where nobody else can
//! exchange it.
//!
//! # Terms
//!
//! - *aside*: the place `.wholly/anchor/<object>.<mark of the name>` of an object whose name ends; see [`aside_name`].
//! - *strange*: an object of another program in a folder of the store, because it was exchanged for ours at the moment
//!   of a call.
//!
//! # Invariants
//!
//! 1. What has a name that ends moves aside, is compared there, and is removed only then. What is another object goes
//!    back, and that is a conflict.
//! 2. A name that gets another object is exchanged with it, and what comes out is compared before it is removed. (Where
//!    the host cannot, both are compared just before.)
//! 3. What a crash leaves of that, the log explains until the tail moves: an object that it knows is one that was on
//!    its way out. Any other is strange. It goes back to the name that it was taken from; where that is taken, it
//!    stays, nothing is written back, and the conflict names it.

use rustix::io::Errno;
use wholly_changes::{Kind, Name, id_name};
use wholly_host::{At, HostFs, host_error};
use wholly_media::Site;
use wholly_vfs::{Rename, Stat};

use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::names::{ANCHORS, State, Strange, aside_name};
use crate::site;

/// Whether an object is the one that was meant: it lies at this path, so.
pub(super) type IsIt<'a> = dyn Fn(&[u8], &Stat) -> wholly_media::Result<bool> + 'a;

impl StoreInner {
    /// Takes away `name` of object `id`, which lies there if `is_it` says so (invariant 1).
    ///
    /// # Errors
    /// `ESTALE` where another object was there, `ENOTEMPTY` for a directory that is not empty; it has its name still.
    pub(super) fn take_away(
        &self,
        site: Site,
        at: At<'_>,
        (name, id): (&Name, u64),
        is_it: &IsIt<'_>,
    ) -> wholly_media::Result<()> {
        let host = &*self.host;
        let aside = self.names.with(|state| state.host_path_of(ANCHORS, &aside_name(id, name))).unwrap_or_default();
        let moved = match host.copies_up() || self.make_folders().is_err() {
            true => Err(Errno::XDEV),
            false => host.rename_at(site, at, aside[..].into(), Rename::NoReplace).map_err(|error| error.errno),
        };
        match moved {
            Ok(()) => {}
            Err(errno) if is_refused(errno) => {
                let stat = host.stat_at(at)?;
                return if is_it(at.path, &stat)? { remove(host, site, at, &stat) } else { Err(stale(at.path)) };
            }
            Err(errno) => return Err(wholly_media::Error::new("rename", String::from_utf8_lossy(at.path), errno)),
        }
        let look = || {
            let stat = host.stat(&aside)?;
            match is_it(&aside, &stat)? {
                true if self.names.with(|state| state.whole.contains_key(&id)) => {
                    let done = self.look_at_whole((name, id), &aside);
                    let done = done.and_then(|()| self.remove_tree(site::NAMES_CLEAN, &aside));
                    done.map_err(|error| of_host("remove", &aside, error))
                }
                true => remove(host, site::NAMES_CLEAN, aside[..].into(), &stat),
                false => Err(stale(at.path)),
            }
        };
        look().inspect_err(|_| self.give_back(&aside, at, (ANCHORS, aside_name(id, name).into()), name))
    }

    /// Moves `name` of object `id` to `anchor`.
    ///
    /// # Errors
    /// `ESTALE` where another object was there; it has its name still.
    pub(super) fn move_to_anchor(
        &self,
        at: At<'_>,
        (name, id): (&Name, u64),
        anchor: &[u8],
    ) -> wholly_media::Result<()> {
        let host = &*self.host;
        host.rename_at(site::NAMES_ANCHOR, at, anchor.into(), Rename::NoReplace)?;
        let look = || match host.stat(anchor)?.inode() {
            inode if at.inode.is_none_or(|it| it == inode) => Ok(()),
            _ => Err(stale(at.path)),
        };
        look().inspect_err(|_| self.give_back(anchor, at, (ANCHORS, id_name(id).into()), name))
    }

    /// What was moved is another object, or cannot be removed: it gets its name back.
    fn give_back(&self, from: &[u8], at: At<'_>, place: Name, name: &Name) {
        if self.host.rename_at(site::NAMES_ANCHOR, from.into(), at, Rename::NoReplace).is_err() {
            self.names
                .with(|state| state.strange.push(Strange { place, object: 0, from: Some(name.clone()), instead: 0 }));
        }
    }

    /// Gives object `id`, which lies at `from`, `place` in a folder of the store, the `name` of another object, which
    /// is removed if `is_it` says that it is the one that was meant (invariant 2).
    ///
    /// # Errors
    /// `ESTALE` where it is not; then nothing has changed.
    pub(super) fn replace(
        &self,
        (from, place): (&[u8], Name),
        to: At<'_>,
        (name, id): (&Name, u64),
        is_it: &IsIt<'_>,
    ) -> wholly_media::Result<()> {
        let host = &*self.host;
        let exchanged = match host.copies_up() {
            true => Err(Errno::XDEV),
            false => host.rename_at(site::NAMES_PLACE, from.into(), to, Rename::Exchange).map_err(|error| error.errno),
        };
        match exchanged {
            Ok(()) => {}
            Err(errno) if is_refused(errno) => {
                let stat = host.stat_at(to)?;
                return match is_it(to.path, &stat)? {
                    true => host.rename_at(site::NAMES_PLACE, from.into(), to, Rename::Replace),
                    false => Err(stale(to.path)),
                };
            }
            Err(errno) => return Err(wholly_media::Error::new("rename", String::from_utf8_lossy(to.path), errno)),
        }
        let look = || {
            let stat = host.stat(from)?;
            if is_it(from, &stat)? { remove(host, site::NAMES_CLEAN, from.into(), &stat) } else { Err(stale(to.path)) }
        };
        look().inspect_err(|_| {
            if host.rename_at(site::NAMES_ANCHOR, from.into(), to, Rename::Exchange).is_err() {
                let from = Some(name.clone());
                self.names.with(|state| state.strange.push(Strange { place, object: 0, from, instead: id }));
            }
        })
    }

    /// After a crash: removes what was on its way out, and gives what is strange its name back (invariant 3).
    pub fn clean_asides(&self) -> Result<()> {
        for ((folder, entry), object) in self.names.with(|state| std::mem::take(&mut state.spent)) {
            let path = self.names.with(|state| state.host_path_of(folder, &entry)).unwrap_or_default();
            let stat = self.host.stat(&path).map_err(|error| host_error(error, &path))?;
            match Kind::of(stat.mode) {
                // It is empty, or holds what a pass has made.
                Kind::Directory => self.remove_tree(site::NAMES_CLEAN, &path)?,
                _ => self.host.unlink(site::NAMES_CLEAN, &path).map_err(|error| host_error(error, &path))?,
            }
            if let Some(file) = self.names.with(|state| state.file(object)) {
                file.relinked_by_pass(self)?;
            }
        }
        // What cannot be given back yet is a conflict of the next checkpoint.
        let _ = self.return_strange();
        Ok(())
    }

    /// Gives what is strange its name back (invariant 3).
    ///
    /// # Errors
    /// [`Error::Conflict`] where something else has the name of one by now.
    pub fn return_strange(&self) -> Result<()> {
        let strange = self.names.with(|state| std::mem::take(&mut state.strange));
        let mut kept = Vec::new();
        for one in strange {
            if self.names.with(|state| state.whole.contains_key(&one.object)) {
                // It was on its way out, with everything in it.
                let path = self.names.with(|state| state.host_path_of(one.place.0, &one.place.1)).unwrap_or_default();
                self.remove_tree(site::NAMES_CLEAN, &path)?;
                self.names.with(|state| state.objects.get_mut(&one.object).map(|object| object.set_home(None)));
                continue;
            }
            match self.return_one(&one) {
                Err(_) if !self.is_gone(&one) => kept.push(one),
                _ => {}
            }
        }
        let Some(first) = kept.first() else { return Ok(()) };
        let (path, lies) = self.names.with(|state| {
            let lies = state.host_path_of(first.place.0, &first.place.1).unwrap_or_default();
            (
                first.from.as_ref().map(|(dir, name)| state.path_of(*dir, name)),
                String::from_utf8_lossy(&lies).into_owned(),
            )
        });
        self.names.with(|state| state.strange.append(&mut kept));
        let change = format!(
            "another program exchanged it while it was written back, and its own object is kept in {lies}: move that to \
             where it belongs"
        );
        Err(Error::Conflict { path: path.unwrap_or_else(|| lies.clone()), change })
    }

    fn return_one(&self, one: &Strange) -> wholly_media::Result<()> {
        let (folder, entry) = &one.place;
        let paths = self.names.with(|state| {
            let to = one.from.as_ref().and_then(|(dir, name)| state.host_path_of(*dir, name));
            Some((state.host_path_of(*folder, entry)?, to?))
        });
        let Some((from, to)) = paths else { return Err(stale(entry)) };
        let (dir, name) = one.from.as_ref().expect("it has a path");
        let at = self.names.with(|state| state.name_at(*dir, &to));
        let how = if one.instead == 0 { Rename::NoReplace } else { Rename::Exchange };
        if one.instead != 0 {
            let inode = self.names.with(|state| state.inode_of(one.instead));
            if Some(self.host.stat_at(at)?.inode()) != inode {
                return Err(stale(&to));
            }
        }
        let give = || {
            self.host.rename_at(site::NAMES_ANCHOR, from[..].into(), at, how)?;
            self.host.stat_at(at)
        };
        let tell = |state: &mut State, stat: &Stat| {
            if one.instead != 0 {
                state.set_home(*dir, name, 0);
                state.hang(one.instead, *folder);
            } else if let Some(object) = state.objects.get_mut(&one.object) {
                object.set_inode(Some(stat.inode()));
                state.set_home(*dir, name, one.object);
            }
        };
        self.names.change_home(give, tell).map(drop)
    }

    fn is_gone(&self, one: &Strange) -> bool {
        let path = self.names.with(|state| state.host_path_of(one.place.0, &one.place.1)).unwrap_or_default();
        self.host.stat(&path).is_err_and(|error| error.errno == Errno::NOENT)
    }

    /// Whether what lies at this place is strange.
    pub(super) fn is_strange(&self, folder: u64, entry: &[u8]) -> bool {
        self.names.with(|state| state.strange.iter().any(|one| one.place.0 == folder && *one.place.1 == *entry))
    }
}

/// Whether the host cannot move something to the store's own folder, or out of it, although it can remove or replace
/// it.
fn is_refused(errno: Errno) -> bool {
    use Errno as E;
    let quota = [E::NOSPC, E::DQUOT, E::MLINK];
    quota.contains(&errno) || [E::XDEV, E::INVAL, E::NOSYS, E::OPNOTSUPP, E::ACCESS, E::PERM].contains(&errno)
}

fn remove(host: &dyn HostFs, site: Site, at: At<'_>, stat: &Stat) -> wholly_media::Result<()> {
    if Kind::of(stat.mode) == Kind::Directory { host.rmdir_at(site, at) } else { host.unlink_at(site, at) }
}

fn of_host(call: &'static str, path: &[u8], error: Error) -> wholly_media::Error {
    match error {
        Error::Media(error) => error,
        Error::Conflict { .. } => stale(path),
        other => wholly_media::Error::new(call, String::from_utf8_lossy(path), Errno::from(other)),
    }
}

/// What is there is not what was meant.
pub(super) fn stale(path: &[u8]) -> wholly_media::Error {
    wholly_media::Error::new("find", String::from_utf8_lossy(path), Errno::STALE)
}
