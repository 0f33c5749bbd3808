//! The process that serves one of the mounts: `wholly bench serve WHAT DIR POINT`, which the suite starts.

use super::bare::Bare;
use crate::Result;
use crate::volume::{self, Passthrough};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use wholly::{Options, Store, StoreVfs};
use wholly_fuse::{Mount, MountOptions};
use wholly_host::HostOptions;
use wholly_vfs::Groups;

/// The first argument of `wholly bench` in such a process.
pub const SERVE: &str = "serve";

/// A descriptor for each inode that the kernel knows.
fn raise_open_files() -> Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// Mounts `what` over `point`, says so on stdout by one line, and serves it until it is unmounted, or whoever started
/// this has died.
///
/// # Errors
/// What does not work, in words.
pub fn serve(what: &str, dir: &Path, point: &Path) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match what {
        "bare" => {
            let options = MountOptions::default();
            let (session, _unmounter) = wholly_fuse::mount(Bare::new(options.valid), point, &options)?;
            println!("{what}");
            Ok(session.run()?)
        }
        volume::PASSTHROUGH => {
            raise_open_files()?;
            // As `wholly mount` does: the kernel shares processors out by session.
            let _ = rustix::process::setsid();
            let options = MountOptions::default();
            let (session, _unmounter) = wholly_fuse::mount(Passthrough::new(dir, options.valid)?, point, &options)?;
            println!("{what}");
            Ok(session.run()?)
        }
        volume::VOLUME => {
            let image = volume::image(dir)?;
            let mount = [Path::new("mount"), Path::new("--foreground"), Path::new("--"), &image, point];
            Err(Command::new(std::env::current_exe()?).args(mount).exec().into())
        }
        "store" => {
            Store::init(dir, &Options::default()).map_err(|e| e.to_string())?;
            let mount = [Path::new("mount"), Path::new("--foreground"), Path::new("--"), dir, point];
            Err(Command::new(std::env::current_exe()?).args(mount).exec().into())
        }
        "view" => {
            Store::init(dir, &Options::default()).map_err(|e| e.to_string())?;
            let store = Store::open_with(dir, Options::default(), HostOptions::default()).map_err(|e| e.to_string())?;
            let view = Arc::new(StoreVfs::new(&store));
            let group = view.begin().map_err(|e| e.to_string())?;
            let options = MountOptions { group: Some(group), ..MountOptions::default() };
            let mount = Mount::new(view.clone(), point, &options)?;
            println!("{what}");
            mount.serve()?;
            view.abort(group).map_err(|e| e.to_string())?;
            Ok(store.close().map_err(|e| e.to_string())?)
        }
        other => Err(format!("nothing is called {other}").into()),
    }
}
