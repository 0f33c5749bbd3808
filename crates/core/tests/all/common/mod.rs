//! Directories to test in, and small stores.

mod dir;
pub mod hostile;
pub mod mounts;
pub mod pair;
pub mod staging;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub use dir::Dir;
use wholly::{Options, Store};
use wholly_host::{HostMedium, HostOptions};

/// A store with a small log, which goes home when it is told to.
pub fn small() -> Options {
    Options {
        segment_bytes: 16 << 10,
        log_min_bytes: 64 << 10,
        log_max_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

/// How these stores are opened: they go home when they are told to.
pub fn quiet() -> Options {
    Options { background: false, ..Options::default() }
}

/// Opens one.
pub fn open_on(dir: &Path, medium: HostMedium) -> Store {
    Store::open_with(dir, quiet(), HostOptions { medium, ..HostOptions::default() }).unwrap()
}

/// A store on each medium, with the files `a` of 5 bytes and `d/b` of 12,000, and the directory `e`.
pub fn stores_of_files(name: &str) -> Vec<(Dir, HostMedium)> {
    let all = Dir::on_media(name);
    for (dir, medium) in &all {
        std::fs::create_dir(dir.join("d")).unwrap();
        std::fs::create_dir(dir.join("e")).unwrap();
        std::fs::write(dir.join("a"), "hello").unwrap();
        std::fs::write(dir.join("d/b"), [7; 12_000]).unwrap();
        std::fs::set_permissions(dir.join("a"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let host = HostOptions { medium: *medium, ..HostOptions::default() };
        Store::init_with(&**dir, &quiet(), host).unwrap();
    }
    all.into()
}

/// Makes a store in a directory. Gives how it is opened: it goes home when it is told to.
pub fn made_in(dir: &Path, medium: HostMedium) -> impl Fn() -> Store + '_ {
    let options = Options { background: false, ..Options::default() };
    let host = HostOptions { medium, ..HostOptions::default() };
    Store::init_with(dir, &options, host.clone()).unwrap();
    move || Store::open_with(dir, options.clone(), host.clone()).unwrap()
}
