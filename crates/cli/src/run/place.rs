//! The directory in which a command runs: a store, or made one for as long as that takes.

use crate::error::Failure;
use crate::survey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wholly::{Error, Options, Store};
use wholly_media::host::{HostDir, HostOptions, StoreHome};

/// See the head of this module.
pub struct Place {
    dir: PathBuf,
    store: Store,
    /// Whether it was no store before.
    is_guest: bool,
}

impl Place {
    /// Opens the store in `dir`, which is made one where it is none.
    pub fn open(dir: &Path) -> Result<Place, Failure> {
        let failed = |error| Failure::of_store("run in", dir, error);
        let of_media = |error| Failure::of_media(format!("run in {}", dir.display()), error);
        let host = Arc::new(HostDir::open(dir, HostOptions::default()).map_err(of_media)?);
        let is_guest = !StoreHome::exists(&host).map_err(of_media)?;
        drop(host);
        if is_guest {
            Store::init(dir, &Options::default()).map_err(failed)?;
        }
        survey::check_owner(dir, "run in")?;
        let medium = survey::medium_of(dir, "run in")?;
        let host = HostOptions { medium, ..HostOptions::default() };
        let store = Store::open_with(dir, Options::default(), host).map_err(failed)?;
        Ok(Place { dir: dir.into(), store, is_guest })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The store in it.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Something failed in it.
    pub fn failed(&self, error: Error) -> Failure {
        Failure::of_store("run in", &self.dir, error)
    }

    /// Takes everything home. What was no store is none any more, unless something is parked in it.
    pub fn close(self) -> Result<(), Failure> {
        let failed = |error| Failure::of_store("run in", &self.dir, error);
        let leaves_none = self.is_guest && self.store.parked().map_err(failed)?.is_empty();
        let closed = if leaves_none { self.store.remove() } else { self.store.close() };
        closed.map_err(failed)
    }
}
