//! Takes a store through its life, and, when run under the interposer of the media's tests, sees that none of its calls
//! went through libc's file functions. `tests/all/no_libc_file_calls.rs` runs it so.

#[path = "../../host/tests/no_libc/watch.rs"]
mod watch;

use std::path::{Path, PathBuf};

use wholly::{Options, Policy, Store};
use wholly_host::{HostMedium, HostOptions};

fn main() {
    let places = [(PathBuf::from("/dev/shm"), HostMedium::Pmem), (std::env::temp_dir(), HostMedium::Disk)];
    let prepare = |path: &Path| std::fs::write(path.join("file"), [0; 10_000]).expect("make a file");
    watch::run("raw-store", places, prepare, work);
}

fn work(path: &Path, medium: HostMedium) {
    let host = HostOptions { medium, ..HostOptions::default() };
    let options = Options {
        policy: Policy::PerSync,
        // std maps a signal stack for each thread through libc: memory, not a file, which a preload library passes on.
        background: false,
        segment_bytes: 64 << 10,
        log_min_bytes: 128 << 10,
        log_max_bytes: 256 << 10,
        ..Options::default()
    };
    Store::init_with(path, &options, host.clone()).expect("init");
    Store::init_with(path, &options, host.clone()).expect_err("there is one");
    for round in 0..3u8 {
        let store = Store::open_with(path, options.clone(), host.clone()).expect("open");
        Store::open_with(path, options.clone(), host.clone()).expect_err("owned");
        let file = store.open_file("file").expect("open a file");
        store.open_file("nothing").expect_err("no such file");
        file.write_at(5000, &[round; 100]).expect("write");
        file.sync().expect("sync");
        let mut group = store.begin();
        let created = group.create(format!("created-{round}"), 0o600).expect("create");
        // More than the log holds, so that it grows, is checkpointed and spills.
        for piece in 0..10u64 {
            group.write_at(&created, piece * 100_000, &[round; 100_000]).expect("write in a group");
        }
        group.set_len(&created, 123_456).expect("cut");
        let mut bytes = [0; 10_000];
        group.read_at(&created, 100_000, &mut bytes).expect("read in a group");
        group.commit().expect("commit");
        drop(created);
        file.read_at(0, &mut bytes).expect("read");
        drop(file);
        if round == 1 {
            store.close().expect("close");
        } else {
            store.checkpoint().expect("checkpoint");
        }
    }
}
