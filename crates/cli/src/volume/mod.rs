//! Volumes: `wholly mkfs`, `tune`, `fsck`, `import` and `export`; `stat`, `dump` and `mount` of a volume.
//!
//! | file | idea |
//! |---|---|
//! | `make.rs` | making, changing size and label |
//! | `stat.rs` | showing |
//! | `fsck.rs` | checking, repairing |
//! | `dump.rs` | printing what stands on the medium |
//! | `import.rs` | copying a directory into a volume |
//! | `export.rs` | copying a volume into a directory |

mod dump;
mod export;
mod fsck;
mod import;
mod make;
mod stat;

pub use dump::dump;
pub use export::export;
pub use fsck::fsck;
pub use import::import;
pub use make::{mkfs, tune};
pub use stat::{stat, udev};

use crate::args;
use crate::error::{Exit, Failure};
use std::path::Path;
use std::time::Duration;
use wholly::Error;
use wholly_volume::{Medium, Volume, VolumeOptions};

/// Whether a path is that of a volume, and not of a directory: a file or a block device.
pub fn is_one(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_dir())
}

/// Opens a volume for a verb.
pub fn open(verb: &str, path: &Path) -> Result<Volume, Failure> {
    patiently(|| Volume::open(path, &VolumeOptions::default())).map_err(|error| failure(verb, path, error))
}

/// Waits for a volume whose server is ending: `umount` returns before that has closed it.
fn patiently<T>(call: impl Fn() -> wholly::Result<T>) -> wholly::Result<T> {
    const PAUSE: Duration = Duration::from_millis(20);
    const TRIES: u32 = 150;
    for _ in 0..TRIES {
        match call() {
            Err(Error::Busy(..)) => std::thread::sleep(PAUSE),
            answer => return answer,
        }
    }
    call()
}

fn medium(medium: args::Medium) -> Medium {
    match medium {
        args::Medium::Auto => Medium::Auto,
        args::Medium::Pmem => Medium::Pmem,
        args::Medium::Disk => Medium::Disk,
    }
}

/// `verb` failed on the volume at `path`.
pub fn failure(verb: &str, path: &Path, error: Error) -> Failure {
    let what = format!("{verb} {}", path.display());
    match error {
        Error::Busy(_, why) => Failure::new(what, why).advice("unmount it first"),
        Error::Exists(found) => {
            let found = found.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned).unwrap_or(found);
            Failure::new(what, found).advice("--force overwrites what is there")
        }
        Error::Unsupported(why) => Failure::new(what, why),
        Error::Corrupt { place, fault } => Failure::new(what, format!("the volume is damaged at {place}: {fault}"))
            .advice("`wholly fsck -n` lists all damage, `wholly fsck -y` repairs it")
            .exit(Exit::DAMAGED),
        error => Failure::new(what, error),
    }
}
