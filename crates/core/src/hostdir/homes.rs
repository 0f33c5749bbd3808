//! How recovery comes to home files: to serve them, or only to look at them.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_host::{HostFile, HostFs};
use wholly_media::Result;

/// Where home files come from.
pub(super) trait Homes {
    /// Opens the file `path`. Also tells whether its permission bits forbid that: then its time of change is a new one.
    ///
    /// # Errors
    /// Those of [`HostFs::open`].
    fn open(&self, path: &[u8]) -> Result<(Arc<dyn HostFile>, bool)>;

    /// The directory, to look at.
    fn host(&self) -> &dyn HostFs;
}

impl Homes for Arc<dyn HostFs> {
    fn open(&self, path: &[u8]) -> Result<(Arc<dyn HostFile>, bool)> {
        let opened = HostFs::open(&**self, path, true);
        // The store's own file may forbid it: a group may create one that nobody may write to, and goes on writing to
        // it.
        if opened.as_ref().is_err_and(|error| error.errno == Errno::ACCESS)
            && let Ok(home) = self.open_own(path)
        {
            return Ok((home, true));
        }
        opened.map(|home| (home, false))
    }

    fn host(&self) -> &dyn HostFs {
        &**self
    }
}

/// Home files, for looking at only.
pub(super) struct Looking(pub Arc<dyn HostFs>);

impl Homes for Looking {
    fn open(&self, path: &[u8]) -> Result<(Arc<dyn HostFile>, bool)> {
        Ok((HostFs::open(&*self.0, path, false)?, false))
    }

    fn host(&self) -> &dyn HostFs {
        &*self.0
    }
}
