//! The directories in which a command runs: stores, or made such for as long as that takes.

use super::namespace::Covered;
use crate::error::Failure;
use crate::named::{Identity, Named, whole};
use crate::opening;
use crate::output::{name, shown};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatfs, openat, statx};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use wholly::{Decided, Error, Options, Store};
use wholly_host::mount::{Served, VIEW};
use wholly_host::mounts::{Mounted, all};
use wholly_host::{HostDir, HostOptions, Level, StoreHome, Support};

/// See the head of this module.
pub struct Place {
    dir: PathBuf,
    found: Named,
    identity: Identity,
    store: Store,
    /// Whether it is the view of another run: then nothing of this one is to stay but what it commits.
    in_view: bool,
}

/// The directories with these names, none of them in another one.
pub fn find(names: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for name in names {
        let failed = |why: String| Failure::new(format!("run in {}", name.display()), why);
        let dir = whole(name).map_err(|error| failed(error.to_string()).advice("the directory must exist"))?;
        if let Some(other) = dirs.iter().find(|other| dir.starts_with(other) || other.starts_with(&dir)) {
            let why = format!("it and {} are the same, or one contains the other", other.display());
            return Err(failed(why).advice("name only the outer one"));
        }
        refuse_unfit(&dir)?;
        dirs.push(dir);
    }
    Ok(dirs)
}

/// Refuses a directory that cannot carry a store, before anything is mounted over it: a view over `/proc` would hide
/// what our own processes need.
fn refuse_unfit(dir: &Path) -> Result<(), Failure> {
    /// That of autofs, with which the kernel stands in for what is mounted once somebody goes there.
    const AUTOFS: i64 = 0x187;
    let what = || format!("run in {}", dir.display());
    let failed = |errno: Errno| Failure::new(what(), errno);
    // Opening it by `O_PATH` alone does not trigger the mount: its daemon may not answer.
    let there = openat(CWD, dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    if fstatfs(&there).map_err(failed)?.f_type == AUTOFS {
        return Err(Failure::new(what(), "it is an automount that is not mounted yet")
            .advice(format!("`ls {}/.` mounts it", dir.display())));
    }
    let host = HostDir::open(dir, HostOptions::default()).map_err(|error| Failure::of_media(what(), error))?;
    let support = Support::look(&host);
    if support.level == Level::Refused {
        return Err(Failure::new(what(), format!("{} is {support}", support.file_system)).advice(Support::advice()));
    }
    Ok(())
}

/// Whether a directory lies in the view of another run.
pub fn is_view(dir: &Path) -> std::io::Result<bool> {
    let id = statx(CWD, dir, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID)?.stx_mnt_id;
    let is_it =
        |mount: &Mounted| mount.id == id && mount.kind == "overlay" && mount.source.to_string_lossy().starts_with(VIEW);
    Ok(all()?.iter().any(is_it))
}

/// Opens the stores in all of these directories. Where one cannot be opened, those before it are given, to be closed.
pub fn open_all(dirs: &[Covered]) -> (Vec<Place>, Result<(), Failure>) {
    let mut places = Vec::new();
    for dir in dirs {
        match Place::open(&dir.dir) {
            Ok(place) => places.push(place),
            Err(failure) => return (places, Err(failure)),
        }
    }
    (places, Ok(()))
}

/// Closes all of them. The first one goes last: where they could not settle what they commit together, the others ask
/// it.
pub fn close_all(places: Vec<Place>) -> Result<(), Failure> {
    let closed: Vec<_> = places.into_iter().rev().map(Place::close).collect();
    closed.into_iter().collect()
}

/// What has become of changes to several directories that an earlier run could not finish: nobody is to find that out
/// by chance.
fn tell_settled(dir: &Path, store: &Store) {
    // Nothing is kept that was not decided, unless that was asked for.
    let Decided { committed, undone, released, kept: _ } = store.decided();
    let say = |what: String| eprintln!("wholly: run: {}: {}", shown(dir), name(what.as_bytes()));
    if !committed.is_empty() {
        say("an earlier run over several directories was killed after its decision: its changes are committed now"
            .into());
    }
    if !undone.is_empty() {
        say("an earlier run over several directories was killed before its decision: nothing of it is left".into());
    }
    for it in released {
        let why: Vec<_> = it.mismatches.iter().map(ToString::to_string).collect();
        say(format!(
            "an earlier run over several directories is committed in the others, and parked here as {}: {}",
            it.id,
            why.join("; ")
        ));
    }
}

impl Place {
    /// Opens the store in `dir`, which is made one where it is none.
    pub fn open(dir: &Path) -> Result<Place, Failure> {
        let failed = |error| Failure::of_store("run in", dir, error);
        let of_media = |error| Failure::of_media(format!("run in {}", dir.display()), error);
        let of_call = |error: std::io::Error| Failure::new(format!("run in {}", dir.display()), error);
        // All that follows is about the same directory, whatever comes to its name.
        let found = Named::find(dir).map_err(of_call)?;
        let identity = found.identity().map_err(of_call)?;
        let itself = found.itself();
        let host = HostDir::open(&itself, HostOptions::default()).map_err(of_media)?;
        if let Some(served @ Served::View) = host.served()
            && !is_view(&itself).map_err(of_call)?
        {
            // In that of a FUSE view whatever it would keep is left out when that command has ended.
            return Err(Failure::served(format!("run in {}", dir.display()), served));
        }
        let is_store = StoreHome::exists(&host).map_err(of_media)?;
        if !is_store {
            // The command waits until all of it is written and read. It grows where more is needed.
            let small = Options { segment_bytes: 256 << 10, log_min_bytes: 512 << 10, ..Options::default() };
            Store::init_temporary(&itself, &small).map_err(|error| match (error, host.served()) {
                (Error::Unsupported(_), Some(served)) => Failure::served(format!("run in {}", dir.display()), served),
                (error, _) => failed(error),
            })?;
        }
        drop(host);
        let store = opening::open("run in", dir, &itself, Options { at_once: true, ..Options::default() })?;
        tell_settled(dir, &store);
        let in_view = is_view(&itself).map_err(of_call)?;
        Ok(Place { dir: dir.into(), found, identity, store, in_view })
    }

    /// Whether it is the view of another run, which leaves out what this one keeps.
    pub fn in_view(&self) -> bool {
        self.in_view
    }

    /// Whether the superuser runs in a directory of another user.
    pub fn is_another_users(&self) -> bool {
        let owner = rustix::fs::fstat(&self.found).map_or(0, |stat| stat.st_uid);
        rustix::process::geteuid().is_root() && owner != 0
    }

    /// Whether undo is kept in it.
    pub fn keeps_undo(&self) -> bool {
        self.store.undos().is_ok_and(|all| all.iter().any(|undo| undo.gone.is_none()))
    }

    /// Bytes that are free on its file system.
    pub fn free_bytes(&self) -> Option<u64> {
        let space = rustix::fs::fstatvfs(&self.found).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory itself, whatever has come to its name.
    pub fn itself(&self) -> &Named {
        &self.found
    }

    /// Which directory that is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The store in it.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Something failed in it.
    pub fn failed(&self, error: Error) -> Failure {
        Failure::of_store("run in", &self.dir, error)
    }

    /// A group in it was to be committed or parked, and that failed.
    pub fn undecided(&self, error: Error) -> Failure {
        Failure::of_decision("run in", &self.dir, error)
    }

    /// Takes everything home. What was no store is none any more, unless something is parked in it, or another one may
    /// ask it what was decided.
    pub fn close(self) -> Result<(), Failure> {
        opening::close(self.store).map(drop).map_err(|error| Failure::of_store("run in", &self.dir, error))
    }
}
