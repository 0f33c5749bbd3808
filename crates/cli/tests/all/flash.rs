//! `wholly flash`: making, showing and checking simulated flash disks.

use super::common::{Place, may_run, skipped, wholly};
use super::made::Device;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

#[test]
fn a_flash_disk_is_made_shown_and_checked() {
    let place = Place::on_disk();
    let path = place.dir.join("f.img");
    let file = path.to_str().unwrap();
    let run = wholly(&["flash", "init", file, "--profile", "commercial", "--bytes", "4M"]);
    run.exits(0);
    assert!(run.out.contains("commercial, a model") && run.out.contains("4.0 MiB"), "{}", run.out);
    let before = std::fs::read(&path).unwrap();
    let stat = wholly(&["--json", "flash", "stat", file]);
    stat.exits(0);
    let stat = stat.json();
    assert_eq!((&stat["bytes"], &stat["model"]), (&(4 << 20).into(), &true.into()));
    assert_eq!(
        (&stat["programs"]["map"], &stat["programs"]["data"], &stat["opens"]),
        (&1.into(), &0.into(), &0.into())
    );
    let check = wholly(&["flash", "check", file]);
    check.exits(0);
    assert!(check.out.contains("0 pages right, 0 faults"), "{}", check.out);
    assert!(std::fs::read(&path).unwrap() == before, "looking has changed a byte");
    if may_run(&["file"]) {
        let magic = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/wholly.magic");
        let told = Command::new("file").args(["-b", "-m", magic, file]).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.starts_with("Wholly flash disk (a model), version 1, 16 channels, "), "{told}");
    }
    // It is never overwritten.
    let again = wholly(&["flash", "init", file, "--bytes", "4M"]);
    again.exits(8);
    assert!(again.err.contains("it is there already"), "{}", again.err);
}

#[test]
fn what_is_no_flash_disk_is_refused() {
    let place = Place::on_disk();
    let path = place.dir.join("f.img");
    let file = path.to_str().unwrap();
    wholly(&["flash", "init", file, "--bytes", "1M"]).exits(0);
    let right = std::fs::read(&path).unwrap();
    let with = |bytes: &[u8], says: &str, code: i32| {
        std::fs::write(&path, bytes).unwrap();
        for verb in ["stat", "check"] {
            let run = wholly(&["flash", verb, file]);
            run.exits(code);
            assert!(run.err.contains(says), "{}", run.err);
        }
    };
    with(&[7; 100_000], "this is no flash file", 8);
    with(b"", "no flash file", 8);
    with(&right[..right.len() - 8192], "it is cut", 4);
    with(&right[..8192], "it is cut", 4);
    let mut version = right.clone();
    version[8] = 9;
    with(&version, "version 9", 8);
    let mut rotten = right.clone();
    rotten[8192 + 100] ^= 1;
    rotten[8192 + 5000] ^= 1;
    with(&rotten, "flash page 0", 4);
    let odd = wholly(&["flash", "init", "/nowhere/f.img", "--bytes", "1M"]);
    odd.exits(8);
    wholly(&["flash", "init", file, "--bytes", "1001"]).exits(8);
    wholly(&["flash", "init", file, "--profile", "none", "--bytes", "1M"]).exits(16);
}

/// A device that somebody has claimed is left alone, as a volume on it is.
#[test]
fn a_device_in_use_is_left_alone() {
    let place = Place::on_disk();
    let path = place.dir.join("f.img");
    wholly(&["flash", "init", path.to_str().unwrap(), "--bytes", "1M"]).exits(0);
    let Some(device) = Device::of(&path) else { return skipped("it takes loop devices") };
    let to = place.dir.join("to").to_str().unwrap().to_owned();
    let looks: [&[&str]; 3] =
        [&["flash", "stat", &device.0], &["flash", "check", &device.0], &["flash", "salvage", &device.0, &to]];
    let claimed = OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(&device.0).unwrap();
    for look in looks {
        let run = wholly(look);
        run.exits(8);
        assert!(run.err.contains("has it open") || run.err.contains("has the volume open"), "{look:?}: {}", run.err);
    }
    drop(claimed);
    looks.iter().for_each(|look| wholly(look).exits(0));
    let made = wholly(&["flash", "init", &device.0, "--bytes", "1M"]);
    made.exits(8);
    assert!(made.err.contains("name a file that does not exist") && !made.err.contains("remove"), "{}", made.err);
}

/// What fails leaves no file, and what was there stays.
#[test]
fn what_is_half_made_is_taken_back() {
    let place = Place::on_disk();
    let path = |name: &str| place.dir.join(name).to_str().unwrap().to_owned();
    // No file may be so large. (What a full disk does is not tried: it is everybody's.)
    let limited = "trap '' XFSZ; ulimit -f 100; exec \"$0\" flash init \"$1\" --bytes 1M";
    let mut sh = Command::new("sh");
    let run = sh.args(["-c", limited, env!("CARGO_BIN_EXE_wholly"), &path("f.img")]).output().unwrap();
    assert!(run.status.code() == Some(8) && !place.dir.join("f.img").exists(), "{run:?}");
    std::os::unix::fs::symlink("nothing", path("link")).unwrap();
    std::fs::write(path("other"), "other").unwrap();
    wholly(&["flash", "init", &path("f.img"), "--bytes", "1M"]).exits(0);
    for name in ["link", "other"] {
        wholly(&["flash", "init", &path(name), "--bytes", "1M"]).exits(8);
        wholly(&["flash", "salvage", &path("f.img"), &path(name)]).exits(8);
    }
    assert!(std::fs::read_link(path("link")).is_ok() && !place.dir.join("nothing").exists());
    assert_eq!(std::fs::read(path("other")).unwrap(), b"other");
}
