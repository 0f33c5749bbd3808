//! The layer: a directory in the store's folder, in which others make what groups [adopt](crate::Group::import). It
//! lies on the file system of the store's directory, so that a rename takes it out of there.
//!
//! The store knows nothing of what is in it, and looks at nothing there but what is adopted. It has no use after the
//! process that made it: the next open removes it, and so do the end of a store and its close.

mod calls;

use rustix::io::Errno;
use wholly_changes::join;
use wholly_host::host_error;
use wholly_media::Site;
use wholly_vfs::Rename;

use super::StoreInner;
use super::names::{DIRECTORY, TYPE};
use crate::error::Result;
use crate::site;
use wholly_vfs::rules::acl;

/// The path of the [layer](crate::Store::make_layer), relative to the store's directory.
pub const LAYER: &str = ".wholly/layer";

/// The same, as the host has it.
pub(super) const FOLDER: &[u8] = LAYER.as_bytes();

/// Whether a host path leads to something in the layer.
pub(super) fn is_in(path: &[u8]) -> bool {
    let parts = path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix(b"/"));
    parts.is_some_and(|parts| parts.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b"..")))
}

impl StoreInner {
    fn make_layer(&self) -> Result<()> {
        self.check_usable()?;
        self.make_folders()?;
        self.remove_layer()?;
        let failed = |error| host_error(error, FOLDER);
        self.host.mkdir(site::LAYER_MAKE, FOLDER, 0o700).map_err(failed)?;
        // What is made there is to inherit nothing.
        match self.host.remove_xattr(site::LAYER_MAKE, FOLDER, acl::DEFAULT) {
            Err(error) if !matches!(error.errno, Errno::NODATA | Errno::OPNOTSUPP) => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Removes the layer, where there is one. It may come back after a crash: then the next open removes it.
    pub(super) fn remove_layer(&self) -> Result<()> {
        match self.host.stat(FOLDER) {
            Err(error) if error.errno == Errno::NOENT => Ok(()),
            Err(error) => Err(host_error(error, FOLDER)),
            Ok(_) => self.remove_tree(site::LAYER_REMOVE, FOLDER),
        }
    }

    /// Removes a directory of the store's own with all that is in it, however deep that is: what is in the directories
    /// in it comes up a level, again and again, so that no path is long.
    pub(super) fn remove_tree(&self, site: Site, path: &[u8]) -> Result<()> {
        let host = &*self.host;
        let is_dir = |path: &[u8]| host.stat(path).map(|stat| stat.mode & TYPE == DIRECTORY);
        let mut raised: u64 = 0;
        let empty = |dir: &[u8], raised: &mut u64| -> wholly_media::Result<bool> {
            let mut is_empty = true;
            for entry in host.read_dir(dir)? {
                let at = join(dir, &entry.name);
                // Some file systems do not tell types.
                if entry.kind != DIRECTORY && (entry.kind != 0 || !is_dir(&at)?) {
                    host.unlink(site, &at)?;
                    continue;
                }
                is_empty = false;
                if dir != path {
                    loop {
                        *raised += 1;
                        let up = join(path, format!("{raised:x}").as_bytes());
                        match host.rename(site, &at, &up, Rename::NoReplace) {
                            Err(error) if error.errno == Errno::EXIST => {}
                            renamed => break renamed?,
                        }
                    }
                }
            }
            Ok(is_empty)
        };
        let mut remove = || {
            while !empty(path, &mut raised)? {
                for entry in host.read_dir(path)? {
                    let dir = join(path, &entry.name);
                    empty(&dir, &mut raised)?;
                    host.rmdir(site, &dir)?;
                }
            }
            host.rmdir(site, path)
        };
        remove().map_err(|error| host_error(error, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_the_layer_is_in_it() {
        for path in [&b".wholly/layer/a"[..], b".wholly/layer/a/b.."] {
            assert!(is_in(path));
        }
        for path in [
            &b".wholly/layer"[..],
            b".wholly/layer/",
            b".wholly/layers/a",
            b"a",
            b".wholly/layer/../log",
            b".wholly/layer//a",
        ] {
            assert!(!is_in(path));
        }
    }
}
