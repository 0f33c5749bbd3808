//! What `wholly mkfs` overwrites without `--force`, and what it leaves if it fails.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use super::common::{Place, Run, may_mount, places, skipped, unique, wholly};

fn mkfs(path: &Path, more: &[&str]) -> Run {
    wholly(&[&["mkfs", path.to_str().expect("UTF-8")], more].concat())
}

/// Nothing of it has changed, and the message says what is there.
fn is_refused(path: &Path, what: &str) {
    let before = std::fs::read(path).expect("read it");
    let refused = mkfs(path, &["--size", "16M"]);
    refused.exits(8);
    assert!(refused.err.contains(what) && refused.err.contains("--force"), "{}", refused.err);
    assert!(std::fs::read(path).expect("read it") == before, "{what}: it has changed");
}

#[test]
fn what_has_data_is_overwritten_by_force_only() {
    for Place { dir, .. } in &places() {
        let path = dir.join("v.img");
        for length in [1, 25, 100, 4096, 200_000] {
            std::fs::write(&path, vec![b'x'; length]).expect("write");
            is_refused(&path, "it holds data: byte 0 is not zero");
        }
        std::fs::write(&path, vec![0; 100_000]).expect("write");
        is_refused(&path, "it holds zeros, and not holes");
        // Behind 64 KiB of zeros, and behind a hole.
        std::fs::write(&path, [vec![0; 70_000], vec![1]].concat()).expect("write");
        is_refused(&path, "byte 70000 is not zero");
        let mut file = File::create(&path).expect("make it");
        file.seek(SeekFrom::Start(20 << 20)).and_then(|_| file.write_all(b"text")).expect("write");
        is_refused(&path, "is not zero");
        for (at, magic, what) in [
            (0x438, &[0x53, 0xef][..], "an ext2, ext3 or ext4 file system"),
            (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
            (4086, b"SWAPSPACE2", "swap space"),
            (0, b"SQLite format 3\0", "an SQLite database"),
        ] {
            let mut file = File::create(&path).expect("make it");
            file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(magic)).expect("write");
            is_refused(&path, what);
        }
        std::fs::write(&path, [b'x'; 100]).expect("write");
        mkfs(&path, &["--size", "16M", "--force"]).exits(0);
        is_refused(&path, "a volume of Wholly");
    }
}

#[test]
fn what_has_no_data_is_taken() {
    for Place { dir, .. } in &places() {
        let path = dir.join("v.img");
        mkfs(&path, &["--size", "16M"]).exits(0);
        File::create(&path).expect("make it empty");
        mkfs(&path, &["--size", "16M"]).exits(0);
        File::create(&path).and_then(|file| file.set_len(32 << 20)).expect("a hole");
        mkfs(&path, &[]).exits(0);
        assert_eq!(path.metadata().expect("it is there").len(), 32 << 20);
        wholly(&["fsck", "-n", path.to_str().expect("UTF-8")]).exits(0);
    }
}

#[test]
fn what_it_made_goes_if_it_fails() {
    for Place { dir, .. } in &places() {
        let path = dir.join("v.img");
        for failing in [&["--size", "8K"][..], &["--size", "0"], &["--size", "3E"]] {
            let failed = mkfs(&path, failing);
            assert!(failed.code.is_some_and(|code| code != 0), "{failing:?}: {}", failed.out);
            assert!(!path.exists(), "{failing:?}: {}", failed.err);
        }
        // What was there stays, as it was.
        File::create(&path).and_then(|file| file.set_len(40_000)).expect("a hole");
        for failing in [&[][..], &["--size", "8K"], &["--size", "3E"]] {
            assert!(mkfs(&path, failing).code.is_some_and(|code| code != 0), "{failing:?}");
            assert_eq!(path.metadata().expect("it is there").len(), 40_000, "{failing:?}");
            assert_eq!(path.metadata().expect("it is there").blocks(), 0, "{failing:?}: it had no data");
        }
        std::fs::write(&path, "text").expect("write");
        assert_ne!(mkfs(&path, &["--size", "8K", "--force"]).code, Some(0));
        assert_eq!(std::fs::read(&path).expect("read"), b"text", "there is no room for a volume anyway");
        std::fs::remove_file(&path).expect("remove it");
        symlink(dir.join("nowhere"), &path).expect("a link");
        let failed = mkfs(&path, &["--size", "16M"]);
        failed.exits(8);
        assert!(failed.err.contains("symbolic link") && !dir.join("nowhere").exists(), "{}", failed.err);
    }
}

/// A loop device on a file.
pub struct Device(pub String);

impl Device {
    pub fn of(file: &Path) -> Option<Device> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        made.status.success().then(|| Device(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Of a device the places are looked at where others have their signatures: it has no holes.
#[test]
fn a_device_has_nothing_where_signatures_are() {
    let place = Place::on_disk();
    let backing = place.dir.join("backing");
    let length: u64 = 32 << 20;
    for (at, bytes, what) in [
        (0x1_0040, &b"_BHRfS_M"[..], "a btrfs file system"),
        (512, b"EFI PART", "a GPT partition table"),
        (length - 512, b"EFI PART", "a GPT partition table"),
        (length - 4096, b"WHOLLYVL", "a volume of Wholly"),
        (length - 4096 + 8, b"WHOLLYVL", "a volume of Wholly"),
        (length - (128 << 10), b"raid", "it holds data"),
        (2 << 20, b"else", "it holds data"),
    ] {
        let mut file = File::create(&backing).expect("make it");
        file.set_len(length).expect("its length");
        file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)).expect("write");
        file.sync_all().expect("sync");
        let Some(device) = Device::of(&backing) else { return skipped("it takes loop devices") };
        let refused = mkfs(Path::new(&device.0), &[]);
        refused.exits(8);
        assert!(refused.err.contains(what), "{at}: {}", refused.err);
        drop(device);
        let left = std::fs::read(&backing).expect("read it");
        assert!(
            left[at as usize..].starts_with(bytes) && left.iter().filter(|byte| **byte != 0).count() == bytes.len()
        );
    }
    let file = File::create(&backing).expect("make it");
    file.set_len(length).expect("its length");
    let Some(device) = Device::of(&backing) else { return skipped("it takes loop devices") };
    mkfs(Path::new(&device.0), &[]).exits(0);
    let again = mkfs(Path::new(&device.0), &[]);
    again.exits(8);
    assert!(again.err.contains("a volume of Wholly"), "{}", again.err);
    mkfs(Path::new(&device.0), &["--force"]).exits(0);
}

/// A volume on a disk whose engine needs persistent memory, which is emulated there: every verb uses it so.
#[test]
fn what_was_made_as_memory_is_used_as_memory() {
    let dir = std::env::temp_dir().join(unique("as-memory"));
    std::fs::create_dir_all(dir.join("from/sub")).expect("mkdir");
    std::fs::create_dir(dir.join("point")).expect("mkdir");
    std::fs::write(dir.join("from/sub/file"), "content").expect("write");
    let path = |name: &str| dir.join(name).to_str().expect("UTF-8").to_owned();
    let image = path("v.img");
    let made = wholly(&["mkfs", &image, "--size", "16M", "--medium", "pmem"]);
    made.exits(0);
    assert!(made.out.contains("hybrid_log") && made.out.contains("emulated"), "{}", made.out);
    let stat = wholly(&["stat", &image]);
    stat.exits(0);
    assert!(stat.out.contains("hybrid_log"), "{}", stat.out);
    wholly(&["import", &image, &path("from")]).exits(0);
    wholly(&["tune", &image, "--size", "12M"]).exits(0);
    wholly(&["fsck", "-n", &image]).exits(0);
    wholly(&["dump", &image]).exits(0);
    wholly(&["export", &image, &path("to")]).exits(0);
    assert_eq!(std::fs::read(dir.join("to/sub/file")).expect("read"), b"content");
    if may_mount() {
        wholly(&["mount", &image, &path("point")]).exits(0);
        assert_eq!(std::fs::read(dir.join("point/sub/file")).expect("read"), b"content");
        assert!(Command::new("umount").arg(dir.join("point")).status().expect("run umount").success());
    }
    // No advice to make one where something else is.
    std::fs::write(dir.join("other"), vec![7; 1 << 20]).expect("write");
    for verb in ["stat", "dump", "fsck", "mount"] {
        let (other, point) = (path("other"), path("point"));
        let words = [verb, &other, &point];
        let refused = wholly(&words[..if verb == "mount" { 3 } else { 2 }]);
        let said = [refused.out, refused.err].concat();
        assert!(
            !said.contains("mkfs") && (said.contains("not a volume") || ["dump", "fsck"].contains(&verb)),
            "{verb}: {said}"
        );
    }
    std::fs::remove_dir_all(&dir).expect("remove");
}
