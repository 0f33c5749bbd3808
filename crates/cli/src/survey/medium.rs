//! What a store was made for, and which one it is.

use super::{LOG, region_of};
use crate::error::Failure;
use std::path::Path;
use wholly::log::layout::{LINE, Superblock};
use wholly::log::read_slot;
use wholly_changes::Origin;
use wholly_host::{HostDir, HostFs, HostMedium, HostOptions};

/// Whether the store in `dir` was made for persistent memory or for a disk: its superblock tells how records are
/// aligned. What the directory would be taken for by itself, where no superblock is valid; so is a copy of a store that
/// was made for persistent memory: on a disk nothing of it would survive. That is done for `what`.
pub fn medium_of(dir: &Path, what: &str) -> Result<HostMedium, Failure> {
    Ok(match superblock(dir, what)? {
        None => HostMedium::Auto,
        Some(superblock) if u64::from(superblock.block) == LINE => {
            let failed = |error| Failure::of_media(what, error);
            let host = HostDir::open(dir, HostOptions::default()).map_err(failed)?;
            let inode = |path: &[u8]| host.stat(path).map(|stat| stat.inode()).map_err(failed);
            match superblock.client.origin.is_here(Origin { log: inode(LOG)?, dir: inode(b"")? }) {
                true => HostMedium::Pmem,
                false => HostMedium::Auto,
            }
        }
        Some(_) => HostMedium::Disk,
    })
}

/// The volume id of the store in `dir`, as it is told everywhere; `None` where no superblock is valid.
pub fn volume_id_of(dir: &Path, verb: &str) -> Result<Option<String>, Failure> {
    Ok(superblock(dir, &format!("{verb} {}", dir.display()))?.map(|superblock| volume_id(&superblock)))
}

/// The volume id in hexadecimal digits.
pub fn volume_id(superblock: &Superblock) -> String {
    superblock.volume_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The superblock in force.
fn superblock(dir: &Path, what: &str) -> Result<Option<Superblock>, Failure> {
    let failed = |error| Failure::of_media(what, error);
    let host = HostDir::open(dir, HostOptions::default()).map_err(failed)?;
    let file = host.open(LOG, false).map_err(|error| match error.raw_os_error() {
        2 => Failure::not_a_store(what, dir),
        _ => failed(error),
    })?;
    let region = region_of(file).map_err(failed)?;
    Ok([0, 1].into_iter().flat_map(|slot| read_slot(&region, slot)).flatten().max_by_key(|s| s.generation))
}
