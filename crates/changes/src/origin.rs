//! Where the folder of a store is.

use rustix::io::Errno;
use wholly_error::Result;
use wholly_host::{HostFs, host_error};

/// Where a store's folder is: the inodes of its log and of its directory, by number and time of birth in ns; all zero
/// where they are not known. A group names its objects by inodes too. If the log has another inode than is told here,
/// these objects have others as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The log.
    pub log: (u64, i64),
    /// The directory; all zero also where an earlier version wrote it.
    pub dir: (u64, i64),
}

impl Origin {
    /// Whether what was written in a folder there is of the one here.
    pub fn is_here(&self, here: Origin) -> bool {
        let unknown = (0, 0);
        self.log == here.log && (self.dir == here.dir || self.dir == unknown)
    }
}

/// Where the folder of a store is. Overlays may give a directory another inode.
///
/// # Errors
/// Those of the host.
pub fn origin_of(host: &dyn HostFs) -> Result<Origin> {
    let inode = |path: &[u8]| match host.stat(path) {
        Ok(stat) => Ok(stat.inode()),
        Err(error) if error.errno == Errno::NOENT => Ok((0, 0)),
        Err(error) => Err(host_error(error, path)),
    };
    let dir = if host.copies_up() { (0, 0) } else { inode(b"")? };
    Ok(Origin { log: inode(b".wholly/log")?, dir })
}
