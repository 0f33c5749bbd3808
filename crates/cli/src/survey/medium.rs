//! What a store was made for.

use super::{LOG, ReadOnly, slot};
use crate::error::Failure;
use std::path::Path;
use wholly::log::layout::LINE;
use wholly_media::HostFs;
use wholly_media::host::{HostDir, HostMedium, HostOptions};

/// Whether the store in `dir` was made for persistent memory or for a disk: its superblock tells how records are aligned. What
/// the directory would be taken for by itself, where no superblock is valid.
pub fn medium_of(dir: &Path, verb: &str) -> Result<HostMedium, Failure> {
    let what = || format!("{verb} {}", dir.display());
    let failed = |error| Failure::of_media(what(), error);
    let host = HostDir::open(dir, HostOptions::default()).map_err(failed)?;
    let file = host.open(LOG, false).map_err(|error| match error.raw_os_error() {
        2 => Failure::not_a_store(what()),
        _ => failed(error),
    })?;
    let region = ReadOnly::new(file).map_err(failed)?;
    let valid = [slot(&region, 0), slot(&region, 1)].into_iter().flatten().flatten().max_by_key(|s| s.generation);
    Ok(match valid {
        None => HostMedium::Auto,
        Some(superblock) if u64::from(superblock.block) == LINE => HostMedium::Pmem,
        Some(_) => HostMedium::Disk,
    })
}
