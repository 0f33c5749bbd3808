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
use std::path::{Path, PathBuf};
use std::time::Duration;
use wholly::Error;
use wholly_volume::{Kind, Location, Medium, Volume, VolumeOptions};

/// Whether a path is that of a volume, and not of a directory: a file, a block device, a flash disk or a controller.
pub fn is_one(path: &Path) -> bool {
    let Location { file, kind } = Location::of(path);
    kind != Kind::File || std::fs::metadata(file).is_ok_and(|found| !found.is_dir())
}

/// A path of a volume or a directory, with another one of its file, as `find` gives it.
pub fn renamed(path: &Path, find: impl FnOnce(&Path) -> std::io::Result<PathBuf>) -> std::io::Result<PathBuf> {
    let location = Location::of(path);
    find(location.file).map(|file| location.written(&file))
}

/// Opens a volume for a verb.
pub fn open(verb: &str, path: &Path) -> Result<Volume, Failure> {
    open_as(verb, path, &VolumeOptions::default())
}

/// The same with options.
pub fn open_as(verb: &str, path: &Path, options: &VolumeOptions) -> Result<Volume, Failure> {
    patiently(|| Volume::open(path, options)).map_err(|error| failure(verb, path, error))
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
    let location = Location::of(path);
    let (file, is_flash) = (location.file, location.kind == Kind::Flash);
    match error {
        Error::NotFound(missing) if location.is_nvme() => Failure::new(what, missing),
        Error::NotFound(missing) if is_flash => {
            Failure::new(what, format!("{missing} is not there")).advice("`wholly flash init` makes a flash disk")
        }
        // It says itself what to do.
        Error::Corrupt { place, fault } if is_flash && place.contains("flash") => {
            Failure::new(what, format!("{place} is damaged: {fault}"))
                .advice(format!("`wholly flash check {}` lists what is damaged of the flash disk", file.display()))
                .exit(Exit::DAMAGED)
        }
        Error::Invalid(why) => Failure::new(what, why),
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
