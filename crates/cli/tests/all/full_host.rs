//! An image with holes on a file system that becomes full: calls that need space get `ENOSPC`, all others go on.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::common::{may_mount, may_run, umount, unique, wholly};

const MIB: usize = 1 << 20;

fn sh(dir: &Path, line: &str) {
    let status = Command::new("sh").args(["-ec", line]).current_dir(dir).status().expect("run sh");
    assert!(status.success(), "{line}");
}

/// Writes a file of one MiB and syncs it.
fn write(path: &Path, byte: u8) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&vec![byte; MIB])?;
    file.sync_all()
}

/// The same, once the kernel has told the server that nobody uses what was removed.
fn write_in_the_end(path: &Path, byte: u8) {
    while write(path, byte).is_err() {
        std::thread::yield_now();
    }
}

/// An image on a file system with less space than that; `make` mounts it at `host`, and `image` makes `host/v.img`.
fn becomes_full(parent: &Path, make: &str, image: impl FnOnce(&Path)) {
    let dir = parent.join(unique("full-host"));
    for name in ["host", "point"] {
        std::fs::create_dir_all(dir.join(name)).expect("mkdir");
    }
    let path = |name: &str| dir.join(name).to_str().expect("UTF-8").to_owned();
    sh(&dir, make);
    image(&dir);
    wholly(&["mount", &path("host/v.img"), &path("point")]).exits(0);
    let file = |n: u8| dir.join("point").join(n.to_string());
    let is_full = |result: std::io::Result<()>| assert_eq!(result.expect_err("no space").raw_os_error(), Some(28));

    let mut made = 0;
    let refused = loop {
        match write(&file(made), made) {
            Ok(()) => made += 1,
            refused => break refused,
        }
    };
    is_full(refused);
    assert!((2..30).contains(&made), "{made} files");
    std::fs::remove_file(file(made)).expect("remove");
    let look = |from: u8, to: u8| {
        assert!(std::fs::read_dir(dir.join("point")).expect("list").count() >= usize::from(to - from));
        (from..to).for_each(|n| assert!(std::fs::read(file(n)).expect("read") == vec![n; MIB], "{n}"));
    };
    look(0, made);
    is_full(write(&file(made), made));
    let _ = std::fs::remove_file(file(made));

    // What was written once has its space.
    std::fs::remove_file(file(0)).expect("remove");
    write_in_the_end(&file(made), made);
    look(1, made + 1);

    // Space of the host is found when there is some.
    sh(&dir, "rm host/other");
    write_in_the_end(&file(made + 1), made + 1);
    look(1, made + 2);

    umount(&dir.join("point"));
    wholly(&["fsck", "-n", &path("host/v.img")]).exits(0);
    wholly(&["mount", &path("host/v.img"), &path("point")]).exits(0);
    look(1, made + 2);
    umount(&dir.join("point"));
    umount(&dir.join("host"));
    std::fs::remove_dir_all(&dir).expect("remove");
}

fn mkfs(image: &Path, size: &str) {
    wholly(&["mkfs", image.to_str().expect("UTF-8"), "--size", size]).exits(0);
}

/// Persistent memory, emulated: a store in a hole would be a `SIGBUS`.
#[test]
fn in_memory_a_full_host_is_met_at_the_call() {
    if !may_mount() {
        return;
    }
    let make = "mount -t tmpfs -o size=20M none host; head -c 4M /dev/zero | tr '\\0' x >host/other";
    becomes_full(Path::new("/dev/shm"), make, |dir| {
        mkfs(&dir.join("host/v.img"), "1G");
        let stat = std::fs::metadata(dir.join("host/v.img")).expect("stat");
        let (len, taken) = (stat.len(), stat.blocks() * 512);
        assert!(len == 1 << 30 && taken < 4 << 20, "{taken} bytes of {len}");
    });
}

#[test]
fn on_a_disk_a_full_host_is_met_at_the_call() {
    if may_mount() && may_run(&["mkfs.ext4"]) {
        let make = "truncate -s 16M disk; mkfs.ext4 -q -m 0 -O ^has_journal disk; mount -o loop disk host; \
                    head -c 4M /dev/zero | tr '\\0' x >host/other";
        becomes_full(&std::env::temp_dir(), make, |dir| {
            mkfs(&dir.join("v.img"), "32M");
            sh(dir, "cp --sparse=always v.img host/v.img");
        });
    }
}
