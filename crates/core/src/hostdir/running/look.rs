//! What a running group sees of the directory.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::records::Birth;
use wholly_changes::{Kind, ROOT, Set};
use wholly_host::host_error;
use wholly_vfs::{DirEntry, Stat};

use super::names::{At, refused};
use super::{Inner, Running};
use crate::error::{Error, Result};
use crate::hostdir::names::{Found, State, TRIES, show};

impl Running {
    /// Opens a regular file, as the group sees the directory.
    pub(in crate::hostdir) fn open_file(&self, path: &[u8]) -> Result<Arc<Inner>> {
        self.store.check_usable()?;
        self.store.open_target(&self.walk(), path)
    }

    pub(in crate::hostdir) fn metadata(&self, path: &[u8]) -> Result<Stat> {
        self.store.check_usable()?;
        self.look_at(path.into(), |found| self.stat(path, found))
    }

    /// Looks at what is there; again where that was taken away meanwhile, so that nobody sees one half of a thing.
    pub(super) fn look_at<T>(&self, at: At<'_>, look: impl Fn(&Found) -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            let found = self.object_at(at)?;
            let seen = look(&found);
            match seen {
                _ if matches!(at, At::Object(_)) => return seen,
                Err(Error::NotFound(_)) => {}
                _ if !self.walk().is_named(found.id) => {}
                seen => return seen,
            }
        }
        Err(Error::NotFound(at.show()))
    }

    /// What is there; a symbolic link at the end of a path is meant itself.
    pub(super) fn object_at(&self, at: At<'_>) -> Result<Found> {
        match at {
            At::Path(b"") => return Ok(Found { id: ROOT, kind: Kind::Directory, stat: None }),
            At::Object(id) => return self.object(id),
            _ => {}
        }
        let last = self.last(at)?;
        self.walk().lookup(last.dir, &last.name)?.ok_or_else(|| Error::NotFound(at.show()))
    }

    /// What is known of an object that was found at `path`.
    pub(super) fn stat(&self, path: &[u8], found: &Found) -> Result<Stat> {
        let still = self.store.names.keep_homes();
        let Some(known) = self.store.names.with(|state| Known::of(state, found.id)) else {
            return Err(Error::NotFound(show(path)));
        };
        let Known { place, birth, unsure, links, shown, file, set, mtime_ns, ctime_ns, read_ns } = known;
        let nameless = || Some(file.as_ref()?.home()?.stat());
        // A pass may be about to set the time at home: it is known here, or there, or in both.
        let mtime_before = file.as_ref().and_then(|file| file.mtime());
        let checkpoints = self.store.checkpointer.is_running();
        let host = place.map_or_else(nameless, |place| Some(self.stat_at_home(found.id, &place)));
        let mut host = host.transpose().map_err(|error| host_error(error, path))?;
        drop(still);
        if let Some(host) = host.as_mut().filter(|_| self.store.checkpointer.keeps_ctimes()) {
            let changed = ctime_ns.max(file.as_ref().and_then(|file| file.ctime()));
            let is_changing = checkpoints || self.store.checkpointer.is_running();
            let kept = self.store.names.with(|state| state.kept_ctime(host)).or(changed.filter(|_| is_changing));
            host.ctime_ns = kept.unwrap_or(host.ctime_ns);
        }
        let is_dir = found.kind == Kind::Directory;
        let mut stat = match (host, birth) {
            (Some(stat), Some(birth)) if unsure => Stat { mode: birth.mode, uid: birth.uid, gid: birth.gid, ..stat },
            (Some(stat), _) => stat,
            (None, Some(birth)) => Stat {
                mode: birth.mode,
                uid: birth.uid,
                gid: birth.gid,
                rdev: birth.rdev,
                nlink: if is_dir { 2 } else { 0 },
                size: birth.target.len() as u64,
                btime_ns: birth.btime_ns,
                atime_ns: birth.atime_ns,
                mtime_ns: birth.mtime_ns,
                ctime_ns: birth.btime_ns,
                ..Stat::default()
            },
            (None, None) => return Err(Error::NotFound(show(path))),
        };
        let private = self.names.as_deref().map_or(0, |private| match is_dir {
            true => private.directories(found.id),
            false => private.links(found.id),
        });
        stat.nlink = u32::try_from(i64::from(stat.nlink) + links + private).unwrap_or(0);
        stat.ino = shown;
        let private = self.names.as_deref();
        set.show(&mut stat);
        if let Some(set) = private.and_then(|private| private.set_of(found.id)) {
            set.show(&mut stat);
        }
        let mut mtime = private.and_then(|private| private.mtime_of(found.id).seen()).or(mtime_ns);
        if let Some(file) = file {
            let joined = self.find(&file).map(|i| &self.seat().files[i]);
            // What calls outside of groups do to a joined file is this group's own, which holds the lock of it.
            (stat.size, mtime) = match joined {
                Some(joined) => (joined.size, joined.mtime.seen().or(file.mtime()).or(mtime_before)),
                None => (self.store.visible_len(&file), self.store.visible_mtime(&file).or(mtime_before)),
            };
            stat.ctime_ns = stat.ctime_ns.max(file.ctime().unwrap_or(i64::MIN));
        }
        if let Some(mtime_ns) = mtime {
            // Whoever set it to a time in the future did so before now.
            stat.ctime_ns = stat.ctime_ns.max(mtime_ns.min(self.store.host.now_ns()));
            stat.mtime_ns = mtime_ns;
        }
        let own = private.and_then(|private| private.ctime_of(found.id));
        stat.ctime_ns = stat.ctime_ns.max(own.max(ctime_ns).unwrap_or(i64::MIN));
        stat.atime_ns = stat.atime_ns.max(read_ns.unwrap_or(i64::MIN));
        Ok(stat)
    }

    pub(in crate::hostdir) fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.store.check_usable()?;
        self.look_at(path.into(), |found| match found.kind {
            Kind::Symlink => self.walk().read_link(found),
            _ => refused(path.into(), Errno::INVAL),
        })
    }

    pub(in crate::hostdir) fn read_dir(&self, path: &[u8]) -> Result<Vec<DirEntry>> {
        self.store.check_usable()?;
        for _ in 0..TRIES {
            match self.list_of(self.walk().directory(path)?) {
                Err(Error::NotFound(_)) => {}
                list => return list,
            }
        }
        Err(Error::NotFound(show(path)))
    }
}

/// What the table knows of an object that somebody asks about.
struct Known {
    place: Option<Vec<u8>>,
    birth: Option<Birth>,
    unsure: bool,
    links: i64,
    shown: u64,
    file: Option<Arc<Inner>>,
    set: Set,
    mtime_ns: Option<i64>,
    ctime_ns: Option<i64>,
    read_ns: Option<i64>,
}

impl Known {
    fn of(state: &mut State, id: u64) -> Option<Known> {
        let (place, shown) = (state.host_path(id), state.shown(id));
        let object = state.objects.get(&id)?;
        Some(Known {
            place,
            birth: object.birth(),
            unsure: object.unsure,
            links: object.links.into(),
            shown,
            file: object.file.upgrade(),
            set: object.sets.as_of(u64::MAX),
            mtime_ns: object.mtime.ns(),
            ctime_ns: object.ctime.ns(),
            read_ns: object.read.ns(),
        })
    }
}
