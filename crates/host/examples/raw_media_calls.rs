//! Takes every real medium through its calls, and, when run under the interposer of `tests/no_libc`, sees that none of
//! them went through libc. `tests/all/no_libc_file_calls.rs` runs it so.

#[path = "../tests/no_libc/watch.rs"]
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use wholly_host::{HostDir, HostFs, HostMedium, HostOptions, StoreHome, Trust};
use wholly_media::{
    Region, Site,
    pmem::{Emulation, Emulator},
};

const SITE: Site = Site("example");

fn main() {
    let places = [std::env::temp_dir(), PathBuf::from("/dev/shm")].into_iter().filter(|place| place.is_dir());
    let media = [HostMedium::Auto, HostMedium::Pmem, HostMedium::Disk];
    watch::run("raw-calls", places.flat_map(|place| media.map(|medium| (place.clone(), medium))), |_| {}, work);
}

/// A store's folder, regions, files, paths that fail.
fn work(path: &Path, medium: HostMedium) {
    let emulator = Some(Emulator::new(Emulation::Bandwidth { bytes_per_s: 40e9 }));
    for emulator in [None, emulator] {
        let dir = HostDir::open(path, HostOptions { medium, emulator, ..HostOptions::default() });
        let dir = Arc::new(dir.expect("open the directory"));
        let home = StoreHome::create(&dir, |home| {
            let log = home.create_region("log")?;
            log.set_len(SITE, 1 << 20)?;
            log.write_through(SITE, 4096, &[3; 4096])?;
            log.fence(SITE)
        });
        drop(home.expect("make a store's folder"));
        let home = StoreHome::open(&dir, Trust::Own).expect("open the store's folder");
        StoreHome::open(&dir, Trust::Own).expect_err("owned");
        home.clear_unnamed().expect("nothing without a name");
        region(&*home.open_region("log").expect("open the log"));
        files(&dir);
        home.remove().expect("remove the store's folder");
    }
}

fn region(region: &dyn Region) {
    region.write(SITE, 3, &[1; 10_000]).expect("write");
    region.fence(SITE).expect("fence");
    region.write_through(SITE, 4096, &[2; 4096]).expect("write through");
    region.set_len(SITE, 3 << 20).expect("grow");
    region.set_len(SITE, 1 << 19).expect("shrink");
    region.set_len(SITE, u64::MAX - 4095).expect_err("too long");
    let mut buf = [0; 5000];
    region.read(4000, &mut buf).expect("read");
    region.read_uncached(4000, &mut buf).expect("read uncached");
    region.prefetch(0);
}

fn files(dir: &HostDir) {
    let file = dir.create_unnamed(SITE, b"", 0o644).expect("create");
    file.write_at(SITE, 100, b"bytes").expect("write");
    file.set_len(SITE, 4096).expect("set the length");
    file.allocate(SITE, 0, 4096).expect("allocate");
    file.sync(SITE).expect("sync");
    file.stat().expect("stat");
    dir.link(SITE, &*file, b"name").expect("link");
    dir.link(SITE, &*file, b"name").expect_err("taken");
    dir.sync_dir(SITE, b"").expect("sync the directory");
    dir.sync_all(SITE).expect("sync all");
    if let Some(map) = file.map(4096).expect("map") {
        map.write_through(SITE, 1, b"mapped").expect("write");
    }
    let mut buf = [0; 10];
    dir.open(b"name", false).expect("open").read_at(0, &mut buf).expect("read");
    dir.open(b"../name", false).err().expect("outside");
    dir.stat(b"none").expect_err("no such file");
    let (parent, name) = dir.open_parent(b"name").expect("the directory");
    rustix::fs::unlinkat(parent, name, rustix::fs::AtFlags::empty()).expect("unlink");
}
