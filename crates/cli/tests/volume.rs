//! Volumes as a user meets them: made, filled, mounted, checked, copied out.

mod common;

use common::{skipped, wholly};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory for an image and what goes with it, removed on drop.
struct Rig(PathBuf);

impl Rig {
    fn new(name: &str) -> Rig {
        let dir = std::env::temp_dir().join(format!("wholly-cli-volume-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("point")).unwrap();
        Rig(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    fn point(&self) -> PathBuf {
        self.0.join("point")
    }

    fn umount(&self) {
        assert!(Command::new("umount").arg(self.point()).status().unwrap().success());
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ =
            Command::new("umount").args(["-q", "-l"]).arg(self.point()).stderr(std::process::Stdio::null()).status();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is below a directory, in words.
fn described(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(at) = dirs.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let mut text = format!("{:o} {} {} {}", found.mode(), found.uid(), found.gid(), found.mtime_nsec());
            if found.is_dir() {
                dirs.push(path.clone());
            } else {
                text += &format!(" {} links", found.nlink());
            }
            if found.is_file() {
                text += &format!(" {:?}", std::fs::read(&path).unwrap());
            } else if found.is_symlink() {
                text += &format!(" {:?}", std::fs::read_link(&path).unwrap());
            }
            all.insert(path.strip_prefix(dir).unwrap().to_path_buf(), text);
        }
    }
    all
}

fn populate(dir: &Path) {
    std::fs::create_dir_all(dir.join("a/b")).unwrap();
    for i in 0..100 {
        std::fs::write(dir.join(format!("a/{i}")), vec![i as u8; i * 1000]).unwrap();
    }
    std::fs::write(dir.join("sparse"), b"begin").unwrap();
    std::fs::File::options().write(true).open(dir.join("sparse")).unwrap().set_len(3 << 20).unwrap();
    symlink("a/b", dir.join("link")).unwrap();
    symlink("x/".repeat(100), dir.join("a/long")).unwrap();
    std::fs::hard_link(dir.join("a/7"), dir.join("a/b/seven")).unwrap();
    std::fs::set_permissions(dir.join("a/b"), PermissionsExt::from_mode(0o751)).unwrap();
}

#[test]
fn what_is_copied_in_comes_out() {
    let rig = Rig::new("copy");
    let (image, from, to) = (rig.path("v.img"), rig.path("from"), rig.path("to"));
    wholly(&["mkfs", &image]).exits(16);
    let made = wholly(&["--json", "mkfs", &image, "--size", "64M", "--label", "trial"]).json();
    assert_eq!((&made["blocks"], &made["label"]), (&(16384.into()), &("trial".into())));
    let again = wholly(&["mkfs", &image, "--size", "64M"]);
    again.exits(8);
    assert!(again.err.contains("--force"), "{}", again.err);
    populate(Path::new(&from));
    wholly(&["import", &image, &from]).exits(0);
    let checked = wholly(&["--json", "fsck", "-n", &image]).json();
    assert_eq!((&checked["clean"], checked["findings"].as_array().unwrap().len()), (&true.into(), 0));
    wholly(&["export", &image, &to]).exits(0);
    assert_eq!(described(Path::new(&to)), described(Path::new(&from)));
    wholly(&["export", &image, &to]).exits(8);
    let stat = wholly(&["stat", &image]);
    stat.exits(0);
    assert!(stat.out.contains("trial") && stat.out.contains("none"), "{}", stat.out);
}

/// The engine that logs needs persistent memory: a file in memory stands for that.
#[test]
fn the_engine_is_chosen() {
    let rig = Rig::new("engine");
    let on_disk = rig.path("v.img");
    let refused = wholly(&["mkfs", &on_disk, "--size", "16M", "--engine", "fine_grained_wal", "--medium", "disk"]);
    assert!(refused.err.contains("persistent memory"), "{}", refused.err);
    let image = format!("/dev/shm/wholly-cli-engine-{}", std::process::id());
    let made = wholly(&["mkfs", &image, "--size", "16M", "--engine", "fine_grained_wal"]);
    let (stat, checked) = (wholly(&["stat", &image]), wholly(&["fsck", "-n", &image]));
    std::fs::remove_file(&image).unwrap();
    made.exits(0);
    assert!(made.out.contains("emulated") && !made.out.contains("anything may be lost"), "{}", made.out);
    stat.exits(0);
    assert!(stat.out.contains("fine_grained_wal"), "{}", stat.out);
    checked.exits(0);
}

#[test]
fn damage_is_listed() {
    let rig = Rig::new("damage");
    let (image, from) = (rig.path("v.img"), rig.path("from"));
    wholly(&["mkfs", &image, "--size", "16M"]).exits(0);
    populate(Path::new(&from));
    wholly(&["import", &image, &from]).exits(0);
    // The inode of the root: the first block of the inode file is the first that is given out.
    let mut bytes = std::fs::read(&image).unwrap();
    let root = (0..bytes.len() / 256).find(|i| bytes[i * 256..][..2] == [0xed, 0x41]).unwrap() * 256;
    bytes[root + 5] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    let found = wholly(&["fsck", "-n", &image]);
    found.exits(4);
    assert!(found.out.contains("inode 1: "), "{}", found.out);
    wholly(&["stat", &rig.path("from/sparse")]).exits(8);
}

/// A mounted volume is an ordinary file system, also under the names by which mkfs(8), mount(8) and fsck(8) call.
#[test]
fn a_mounted_volume_is_used_like_any_file_system() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skipped("it takes the superuser and /dev/fuse");
    }
    let rig = Rig::new("mount");
    let image = rig.path("v.img");
    let helper = |name: &str, arguments: &[&str]| {
        let path = rig.0.join(name);
        if !path.exists() {
            symlink(env!("CARGO_BIN_EXE_wholly"), &path).unwrap();
        }
        Command::new(&path).args(arguments).output().unwrap()
    };
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    assert!(helper("mkfs.wholly", &["-f", &image]).status.success());
    let point = rig.path("point");
    let mounted = helper("mount.wholly", &[&image, &point, "-o", "rw"]);
    assert!(mounted.status.success(), "{mounted:?}");
    populate(&rig.point().join("tree"));
    let before = described(&rig.point().join("tree"));
    std::fs::rename(rig.point().join("tree"), rig.point().join("moved")).unwrap();
    assert!(!wholly(&["fsck", "-n", &image]).out.contains("consistent"), "it is in use");
    rig.umount();
    assert!(helper("fsck.wholly", &["-n", &image]).status.success());

    wholly(&["mount", &image, &point]).exits(0);
    assert_eq!(described(&rig.point().join("moved")), before);
    std::fs::remove_dir_all(rig.point().join("moved")).unwrap();
    rig.umount();
    let checked = wholly(&["--json", "fsck", "-n", &image]).json();
    assert_eq!((&checked["files"], &checked["findings"]), (&0.into(), &serde_json::json!([])));
    wholly(&["mount", &image]).exits(16);
    wholly(&["mount", &image, &point, "-o", "policy=per-op"]).exits(16);
}
