//! Guests: stores that were made only for as long as something runs, as an empty file in the store's folder says. It is
//! made with the folder and goes with it, or alone when the store is kept.

use rustix::io::Errno;
use wholly_host::{HostFs, host_error};

use super::names::OWN_FOLDER;
use super::{Store, StoreInner};
use crate::error::{Error, Result};
use crate::site;

/// The host path of the file.
const MARK: &[u8] = b".wholly/guest";

/// Whether the store in a directory, if there is one, is a guest.
pub(crate) fn is_temporary(host: &dyn HostFs) -> Result<bool> {
    match host.stat(MARK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(host_error(error, MARK)),
    }
}

impl Store {
    /// Whether the store is a [temporary store](Self::init_temporary). If this returns false, that survives a power
    /// failure.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed; errors of the host file system.
    pub fn is_temporary(&self) -> Result<bool> {
        self.used(|inner| {
            let is_temporary = is_temporary(&*inner.host)?;
            if !is_temporary {
                // A process that died may have removed the mark, and not come to this.
                inner.stays_kept()?;
            }
            Ok(is_temporary)
        })
    }

    /// Makes a [temporary store](Self::init_temporary) a permanent one; has no effect on a permanent one. When this
    /// returns, the store stays permanent after a power failure.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed: it is then unknown which of both it is after a crash.
    pub fn keep(&self) -> Result<()> {
        self.used(|inner| {
            inner.check_usable()?;
            match inner.host.unlink(site::GUEST_KEEP, MARK) {
                Err(error) if error.errno != Errno::NOENT => return Err(host_error(error, MARK)),
                _ => {}
            }
            inner.stays_kept()
        })
    }
}

impl StoreInner {
    /// Makes what the folder does not hold any more stay away after a crash.
    fn stays_kept(&self) -> Result<()> {
        let synced = self.host.sync_dir(site::GUEST_KEEP_SYNC, OWN_FOLDER);
        synced.map_err(|error| self.poison(&Error::Media(error)))?;
        self.log.count_barrier();
        Ok(())
    }
}
