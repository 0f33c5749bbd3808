//! Whose a store is.

use crate::error::Failure;
use rustix::process::geteuid;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// That nobody else has written what the calling user would do by opening the store: recovery does what its log says, with the rights of who
/// recovers it.
pub fn check_owner(dir: &Path, verb: &str) -> Result<(), Failure> {
    let what = || format!("{verb} {}", dir.display());
    let folder = dir.join(".wholly");
    let Ok(stat) = std::fs::symlink_metadata(&folder) else { return Err(Failure::not_a_store(what())) };
    let (uid, me) = (stat.uid(), geteuid().as_raw());
    if uid != 0 && uid != me {
        return Err(Failure::new(what(), format!("its folder .wholly belongs to user {uid}")).advice(
            "opening it does what that user has written to it: let that user do it, or make the folder yours",
        ));
    }
    if stat.mode() & 0o022 != 0 {
        return Err(Failure::new(what(), "others may write to its folder .wholly")
            .advice("opening it does what they have written to it: look at it with `wholly dump`, then take the permission away"));
    }
    Ok(())
}
