//! Files of a store's own, and what errors of the host mean for its callers.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_error::{Error, Result};
use wholly_vfs::Stat;

use crate::{HOME, HostFile, HostFs};

/// Errors of the host in terms of the store.
pub fn host_error(error: wholly_media::Error, path: &[u8]) -> Error {
    let name = String::from_utf8_lossy(path).into_owned();
    match error.errno {
        Errno::NOENT => Error::NotFound(name),
        Errno::EXIST => Error::Exists(name),
        Errno::NOSPC | Errno::DQUOT => Error::NoSpace(name),
        Errno::STALE => {
            Error::Conflict { path: name, change: "another program has exchanged it, or its directory".into() }
        }
        _ => Error::Media(error),
    }
}

/// Whether the host has something at a path. Only if it says that there is nothing, there is nothing.
///
/// # Errors
/// Those of the host but `ENOENT`, as [`host_error`] has them.
pub fn is_there(host: &dyn HostFs, path: &[u8]) -> Result<bool> {
    match host.stat(path) {
        Err(error) if error.errno == Errno::NOENT => Ok(false),
        stat => stat.map(|_| true).map_err(|error| host_error(error, path)),
    }
}

/// Opens a file that only the store itself writes, to read it.
///
/// # Errors
/// [`Error::Corrupt`] where somebody else can have written it; those of the host, as [`host_error`] has them.
pub fn open_own(host: &dyn HostFs, path: &[u8]) -> Result<(Arc<dyn HostFile>, Stat)> {
    let file = host.open(path, false).map_err(|error| host_error(error, path))?;
    let stat = file.stat()?;
    let me = rustix::process::geteuid().as_raw();
    let is_own = match host.stat(HOME.as_bytes()) {
        Ok(folder) => [0, me, folder.uid].contains(&stat.uid) && stat.mode & 0o022 == 0,
        Err(error) if error.errno == Errno::NOENT => true,
        Err(error) => return Err(host_error(error, HOME.as_bytes())),
    };
    match is_own {
        true => Ok((file, stat)),
        false => Err(Error::corrupt(String::from_utf8_lossy(path), "another user can have written it")),
    }
}
