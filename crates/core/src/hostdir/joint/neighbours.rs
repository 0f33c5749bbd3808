//! Where other stores are: a store knows them by the paths of their directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_host::{HomeError, HostDir, HostFs, HostMedium, HostOptions, StoreHome, Trust};

/// Finds the directories of other stores, for joint commits.
pub trait Neighbours: Send + Sync {
    /// Returns the address of this store's own directory: absolute, without `.` and `..`.
    ///
    /// # Errors
    /// Errors of the host.
    fn address(&self) -> wholly_media::Result<Vec<u8>>;

    /// Opens the directory at this address.
    ///
    /// # Errors
    /// `ENOENT` if nothing is there; errors of the host.
    fn at(&self, address: &[u8]) -> wholly_media::Result<Arc<dyn HostFs>>;
}

/// Finds stores by the paths of their directories on the host.
pub struct ByPath {
    dir: Arc<HostDir>,
    trust: Trust,
}

impl ByPath {
    /// Makes one for the store in this directory, which believes other stores that are to be trusted so.
    pub fn of(dir: Arc<HostDir>, trust: Trust) -> ByPath {
        ByPath { dir, trust }
    }
}

impl Neighbours for ByPath {
    fn address(&self) -> wholly_media::Result<Vec<u8>> {
        self.dir.address()
    }

    fn at(&self, address: &[u8]) -> wholly_media::Result<Arc<dyn HostFs>> {
        let path = Path::new(OsStr::from_bytes(address));
        // Nothing is mapped there, and nothing is tried out.
        let dir = HostDir::open(path, HostOptions { medium: HostMedium::Disk, ..HostOptions::default() })?;
        let dir = match StoreHome::look(&dir) {
            Err(error) if error.errno == Errno::NOENT => dir,
            looked => looked?,
        };
        StoreHome::check_trust(&dir, self.trust).or_else(|error| match error {
            HomeError::Media(error) if error.errno == Errno::NOENT => Ok(()),
            HomeError::Media(error) => Err(error),
            _ => Err(wholly_media::Error::new("believe the store in", path.display().to_string(), Errno::PERM)),
        })?;
        match dir.is_read_only()? {
            false => Ok(Arc::new(dir)),
            // What is in the journal of its file system may not have been looked at.
            true => Err(wholly_media::Error::new(
                "ask the read-only file system of",
                path.display().to_string(),
                Errno::ROFS,
            )),
        }
    }
}

/// The address of a directory from another one: as many `..` as it takes, and the rest.
pub(super) fn from(here: &[u8], there: &[u8]) -> Vec<u8> {
    let parts = |path: &[u8]| {
        path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let (here, there) = (parts(here), parts(there));
    let common = here.iter().zip(&there).take_while(|(here, there)| here == there).count();
    let up = std::iter::repeat_n(b"..".to_vec(), here.len() - common);
    up.chain(there[common..].iter().cloned()).collect::<Vec<_>>().join(&b'/')
}

/// The address of what a directory at `here` knows by this one.
pub(super) fn to(here: &[u8], relative: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = here.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    for part in relative.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        match part {
            b".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    [b"/", parts.join(&b'/').as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_again_from_another_one() {
        let cases = [
            ("/a/b", "/a/c", "../c"),
            ("/a", "/a/b/c", "b/c"),
            ("/a/b", "/a", ".."),
            ("/a", "/a", ""),
            ("/", "/x", "x"),
        ];
        for (here, there, relative) in cases {
            assert_eq!(from(here.as_bytes(), there.as_bytes()), relative.as_bytes());
            assert_eq!(to(here.as_bytes(), relative.as_bytes()), there.as_bytes());
        }
        assert_eq!(to(b"/moved/b", b"../c"), b"/moved/c");
    }
}
