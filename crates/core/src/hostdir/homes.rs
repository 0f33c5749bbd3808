//! How recovery comes to home files: to serve them, or only to look at them.

use std::any::Any;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_media::{Error, Fallocate, HostFile, HostFs, Region, Result, Site, Stat};

use crate::site;
use crate::sync::{AtomicU64, Ordering};

/// Where home files come from.
pub(super) trait Homes {
    /// Opens the file `path`. Also tells whether its permission bits forbid that: then its time of change is a new one.
    ///
    /// # Errors
    /// Those of [`HostFs::open`].
    fn open(&self, path: &[u8]) -> Result<(Arc<dyn HostFile>, bool)>;

    /// A file without a name, in place of one that has to be made again in the directory `parent`.
    ///
    /// # Errors
    /// Those of [`HostFs::create_unnamed`].
    fn make_again(&self, parent: &[u8], mode: u32) -> Result<Arc<dyn HostFile>>;
}

impl Homes for Arc<dyn HostFs> {
    fn open(&self, path: &[u8]) -> Result<(Arc<dyn HostFile>, bool)> {
        let opened = HostFs::open(&**self, path, true);
        // The store's own file may forbid it: a group may create one that nobody may write to, and goes on writing to it.
        if opened.as_ref().is_err_and(|error| error.errno == Errno::ACCESS)
            && let Ok(home) = self.open_own(path)
        {
            return Ok((home, true));
        }
        opened.map(|home| (home, false))
    }

    fn make_again(&self, parent: &[u8], mode: u32) -> Result<Arc<dyn HostFile>> {
        self.create_unnamed(site::RECOVER_CREATE, parent, mode)
    }
}

/// Home files, for looking at only.
pub(super) struct Looking {
    host: Arc<dyn HostFs>,
    unmade: AtomicU64,
}

impl Looking {
    pub fn at(host: Arc<dyn HostFs>) -> Self {
        Looking { host, unmade: AtomicU64::new(0) }
    }
}

impl Homes for Looking {
    fn open(&self, path: &[u8]) -> Result<(Arc<dyn HostFile>, bool)> {
        Ok((HostFs::open(&*self.host, path, false)?, false))
    }

    fn make_again(&self, parent: &[u8], mode: u32) -> Result<Arc<dyn HostFile>> {
        const DIRECTORY: u32 = 0o040_000;
        const REGULAR: u32 = 0o100_000;
        if self.host.stat(parent)?.mode & 0o170_000 != DIRECTORY {
            return Err(Error::new("create file in", String::from_utf8_lossy(parent), Errno::NOTDIR));
        }
        // No two are the same file, and none is one that exists.
        let ino = u64::MAX - self.unmade.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Unmade(Stat { ino, mode: REGULAR | mode, ..Stat::default() })))
    }
}

/// An empty file that recovery would make, and that nobody makes here.
struct Unmade(Stat);

impl Unmade {
    fn refused<T>(&self) -> Result<T> {
        Err(Error::new("write", "a file that is only looked at", Errno::ROFS))
    }
}

impl HostFile for Unmade {
    fn stat(&self) -> Result<Stat> {
        Ok(self.0)
    }

    fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn write_at(&self, _site: Site, _offset: u64, _data: &[u8]) -> Result<()> {
        self.refused()
    }

    fn set_len(&self, _site: Site, _len: u64) -> Result<()> {
        self.refused()
    }

    fn fallocate(&self, _site: Site, _how: Fallocate, _offset: u64, _len: u64) -> Result<()> {
        self.refused()
    }

    fn sync(&self, _site: Site) -> Result<()> {
        self.refused()
    }

    fn map(&self, _len: u64) -> Result<Option<Arc<dyn Region>>> {
        Ok(None)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
