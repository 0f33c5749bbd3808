//! From a path to what it names, as a group sees the directory.

use rustix::io::Errno;
use wholly_changes::{Kind, ROOT};
use wholly_host::{HostFs, host_error};
use wholly_vfs::follow::{End, Steps, follow};
use wholly_vfs::{FileType, NAME_MAX, Stat};

use super::object::Object;
use super::packed::Packed;
use super::{Names, OWN_FOLDER, Private, State};
use crate::error::{Error, Result};

/// What a name names.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The object.
    pub id: u64,
    pub kind: Kind,
    /// How it lies on the host, where it was looked at, and how many passes had ended by then.
    pub stat: Option<(Stat, u64)>,
}

/// A directory and the last part of a path.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    pub dir: u64,
    pub name: Vec<u8>,
}

/// Walks paths for one call, which is a [caller](super::forget::Caller): what it finds stays in the table until it
/// ends.
pub(crate) struct Walk<'a> {
    pub names: &'a Names,
    pub host: &'a dyn HostFs,
    /// Of the group on whose behalf it walks.
    pub private: Option<&'a Private>,
}

pub(crate) fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

impl Walk<'_> {
    /// What `name` names in the directory `dir`; `None` for nothing. What is there is entered into the table.
    pub fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<Found>> {
        if name.len() > NAME_MAX {
            return Err(Error::Refused(show(name), Errno::NAMETOOLONG));
        }
        if dir == ROOT && name == OWN_FOLDER {
            return Err(Error::invalid("the folder .wholly belongs to the store"));
        }
        let private = self.private.and_then(|private| private.get(dir, name));
        let known = |state: &mut State| {
            let committed = || state.register(dir, name).map(|register| register.newest());
            let id = private.or_else(committed)?;
            if private.is_none()
                && let Some(object) = state.objects.get_mut(&id).filter(|object| object.place().is_none())
            {
                object.set_place(Some((dir, name.into())));
            }
            let kind = state.see(id).unwrap_or(Kind::Special);
            Some((id != 0).then_some(Found { id, kind, stat: None }))
        };
        let _still = self.names.keep_homes();
        let host = self.names.with(|state| match known(state) {
            Some(found) => Err(found),
            None => state.host_path_of(dir, name).map(|path| (path, state.passes())).ok_or(None),
        });
        let (path, passes) = match host {
            Ok(path) => path,
            Err(found) => return Ok(found),
        };
        let stat = match self.host.stat(&path) {
            Ok(stat) => stat,
            Err(error) if matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(host_error(error, &path)),
        };
        // A group may have set the name meanwhile: what it has there now is not what it is at home.
        Ok(self.names.with(|state| {
            known(state).unwrap_or_else(|| {
                let id = state.object_of(&stat, Some((dir, name.into())));
                Some(Found { id, kind: Kind::of(stat.mode), stat: Some((stat, passes)) })
            })
        }))
    }

    /// Whether a name is still what was found there at home: neither the group nor a committed one has changed it, and
    /// no pass has ended meanwhile.
    pub fn is_as_found(&self, dir: u64, name: &[u8], found: &Found) -> bool {
        let Some((_, passes)) = found.stat else { return false };
        self.private.is_none_or(|private| private.get(dir, name).is_none())
            && self.names.with(|state| state.register(dir, name).is_none() && state.passes() == passes)
    }

    /// The directory of a path, and its last part: symbolic links on the way are followed.
    pub fn parent(&self, path: &[u8]) -> Result<Last> {
        let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        Ok(Last { dir: self.directory(dir)?, name: name.to_vec() })
    }

    /// The directory that a path names, symbolic links at its end followed.
    pub fn directory(&self, path: &[u8]) -> Result<u64> {
        match self.target(path)? {
            Found { id, kind: Kind::Directory, .. } => Ok(id),
            _ => Err(Error::Refused(show(path), Errno::NOTDIR)),
        }
    }

    /// What a path names, symbolic links at its end followed.
    pub fn target(&self, path: &[u8]) -> Result<Found> {
        let root = Found { id: ROOT, kind: Kind::Directory, stat: None };
        follow(&Along { walk: self, path }, &mut 0, root, path, End::Followed)
    }

    /// The directory that a directory is in.
    pub fn above(&self, dir: u64) -> Option<u64> {
        let private = self.private.and_then(|private| private.place(dir)).map(|place| place.0);
        if private.is_none() && self.private.is_some_and(|private| private.links(dir) < 0) {
            return None;
        }
        self.names.with(|state| {
            let above = private.or_else(|| state.objects.get(&dir)?.place().map(|place| place.0))?;
            state.see(above);
            Some(above)
        })
    }

    /// Whether an object has a name.
    pub fn is_named(&self, id: u64) -> bool {
        id == ROOT
            || self.private.is_some_and(|private| private.place(id).is_some() || private.links(id) > 0)
            || self.names.with(|state| state.objects.get(&id).is_some_and(|object| object.place().is_some()))
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, found: &Found) -> Result<Vec<u8>> {
        let _still = self.names.keep_homes();
        let (birth, path) = self.names.with(|state| {
            let object = state.objects.get(&found.id);
            let birth = object.and_then(Object::birth);
            (birth, state.host_path(found.id))
        });
        if let Some(birth) = birth {
            return Ok(birth.target);
        }
        let path = path.ok_or_else(|| Error::NotFound(format!("object {:#x}", found.id)))?;
        self.host.read_link(&path).map_err(|error| host_error(error, &path))
    }

    /// The names in a directory, with what has them; those of the host with its inode number and type bits.
    pub fn list(&self, dir: u64) -> Result<Vec<(Vec<u8>, Entry)>> {
        let _still = self.names.keep_homes();
        let path = self.names.with(|state| state.host_path(dir));
        let host = match path {
            Some(path) => self.host.read_dir(&path).map_err(|error| host_error(error, &path))?,
            None => Vec::new(),
        };
        let is_private = |name: &[u8]| self.private.is_some_and(|private| private.get(dir, name).is_some());
        // In one look: what a pass forgets, or a group changes, between two would be in neither, or in both.
        let mut all = self.names.with(|state| {
            let hidden = |name: &[u8]| {
                state.register(dir, name).is_some() || is_private(name) || (dir == ROOT && name == OWN_FOLDER)
            };
            let host = host.into_iter().filter(|entry| !hidden(&entry.name));
            let mut all: Vec<_> =
                host.map(|entry| (entry.name, Entry::Host { ino: entry.ino, kind: entry.kind })).collect();
            for (name, register) in state.registers.get(&dir).into_iter().flat_map(Packed::iter) {
                if register.newest() != 0 && !is_private(name) {
                    all.push((name.to_vec(), Entry::Object(register.newest())));
                }
            }
            all.iter().for_each(|(_, entry)| {
                if let Entry::Object(id) = entry {
                    state.see(*id);
                }
            });
            all
        });
        for (name, change) in self.private.into_iter().flat_map(|private| private.changes_in(dir)) {
            if change.after != 0 {
                all.push((name.to_vec(), Entry::Object(change.after)));
            }
        }
        Ok(all)
    }
}

/// The steps along a path. None leads out of the store's directory.
struct Along<'w> {
    walk: &'w Walk<'w>,
    path: &'w [u8],
}

impl Steps for Along<'_> {
    type Object = Found;
    type Error = Error;

    fn kind(&self, object: &Found) -> FileType {
        match object.kind {
            Kind::Directory => FileType::Directory,
            Kind::Symlink => FileType::Symlink,
            // Nothing is behind it, whatever it is.
            Kind::Regular | Kind::Special => FileType::RegularFile,
        }
    }

    fn step(&self, dir: &Found, name: &[u8]) -> Result<Found> {
        let directory = |id| Found { id, kind: Kind::Directory, stat: None };
        match name {
            b"." => Ok(directory(dir.id)),
            b".." => self.walk.above(dir.id).map(directory).ok_or_else(|| self.refused(Errno::XDEV)),
            name => self.walk.lookup(dir.id, name)?.ok_or_else(|| Error::NotFound(show(self.path))),
        }
    }

    fn target(&self, link: &Found) -> Result<Option<Vec<u8>>> {
        match self.walk.read_link(link) {
            // It was taken away meanwhile.
            Err(Error::NotFound(_)) => Ok(None),
            target => target.map(Some),
        }
    }

    fn root(&self) -> Result<Found> {
        Err(self.refused(Errno::XDEV))
    }

    fn refused(&self, errno: Errno) -> Error {
        Error::Refused(show(self.path), errno)
    }
}

/// What a listing knows of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Host { ino: u64, kind: u32 },
    Object(u64),
}
