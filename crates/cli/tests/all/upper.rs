//! An overlay whose upper directory is on the mount of a volume, or of a store: what it needs of a file system is
//! there, and is there again after the server was killed.

use super::common::{may_mount, umount, unique, wholly};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};

/// A directory with what is mounted, where, and what lies below. All goes on drop.
struct Rig {
    dir: PathBuf,
    served: PathBuf,
}

impl Rig {
    fn new(kind: &str) -> Rig {
        let dir = Path::new("/dev/shm").join(unique("upper"));
        for name in ["lower/dir", "point", "merged"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        for name in ["kept", "changed", "removed", "renamed", "dir/inside", "dir/other"] {
            fs::write(dir.join("lower").join(name), name).unwrap();
        }
        let served = dir.join(kind);
        let path = served.to_str().unwrap();
        match kind {
            "volume" => wholly(&["mkfs", path, "--size", "64M"]).exits(0),
            _ => {
                fs::create_dir(&served).unwrap();
                wholly(&["init", path]).exits(0);
            }
        }
        Rig { dir, served }
    }

    fn point(&self) -> PathBuf {
        self.dir.join("point")
    }

    fn merged(&self, name: &str) -> PathBuf {
        self.dir.join("merged").join(name)
    }

    fn serve(&self) -> Child {
        let mut server = Command::new(env!("CARGO_BIN_EXE_wholly"))
            .args(["mount", "--foreground", "--"])
            .args([&self.served, &self.point()])
            .env("WHOLLY_REGISTRY", "")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("is mounted on"), "{said}");
        server
    }

    fn mount(&self) {
        for name in ["upper", "work"] {
            fs::create_dir_all(self.point().join(name)).unwrap();
        }
        let [lower, upper, work] = ["lower", "point/upper", "point/work"].map(|name| self.dir.join(name));
        let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let mut mount = Command::new("mount");
        let output = mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(self.merged("")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// All files, and what they hold.
    fn seen(&self) -> BTreeMap<PathBuf, String> {
        let (mut all, mut dirs) = (BTreeMap::new(), vec![self.merged("")]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let path = entry.path();
                match entry.file_type().unwrap().is_dir() {
                    true => dirs.push(path.clone()),
                    false => _ = all.insert(path.clone(), fs::read_to_string(&path).unwrap()),
                }
                all.entry(path).or_default();
            }
        }
        all
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for point in ["merged", "point"] {
            let _ = Command::new("umount").args(["-q", "-l"]).arg(self.dir.join(point)).stderr(Stdio::null()).status();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn is_whiteout(path: &Path) -> bool {
    let found = path.symlink_metadata().unwrap();
    found.file_type().is_char_device() && found.rdev() == 0
}

fn change(rig: &Rig) {
    OpenOptions::new().append(true).open(rig.merged("changed")).unwrap().write_all(b" since").unwrap();
    fs::write(rig.merged("made"), "made").unwrap();
    fs::create_dir(rig.merged("new")).unwrap();
    fs::rename(rig.merged("made"), rig.merged("new/made")).unwrap();
    fs::rename(rig.merged("renamed"), rig.merged("new/renamed")).unwrap();
    fs::remove_file(rig.merged("removed")).unwrap();
    // A directory over one that is gone hides what that has.
    fs::remove_dir_all(rig.merged("dir")).unwrap();
    fs::create_dir(rig.merged("dir")).unwrap();
    fs::write(rig.merged("dir/again"), "again").unwrap();
    let nameless = OpenOptions::new().write(true).custom_flags(OFlags::TMPFILE.bits() as i32).open(rig.merged(""));
    let mut nameless = nameless.unwrap();
    nameless.write_all(b"linked").unwrap();
    let itself = format!("/proc/self/fd/{}", nameless.as_raw_fd());
    linkat(CWD, itself, CWD, rig.merged("linked"), AtFlags::SYMLINK_FOLLOW).unwrap();
}

fn an_overlay_of(kind: &str) {
    if !may_mount() {
        return;
    }
    let rig = Rig::new(kind);
    let mut server = rig.serve();
    rig.mount();
    change(&rig);
    let seen = rig.seen();
    let names: Vec<_> = seen.keys().map(|path| path.strip_prefix(rig.merged("")).unwrap().to_str().unwrap()).collect();
    let all = ["changed", "dir", "dir/again", "kept", "linked", "new", "new/made", "new/renamed"];
    assert_eq!(names, all);
    assert_eq!(seen[&rig.merged("changed")], "changed since");
    assert_eq!((&seen[&rig.merged("new/renamed")][..], &seen[&rig.merged("linked")][..]), ("renamed", "linked"));
    let upper = |name: &str| rig.point().join("upper").join(name);
    assert!(is_whiteout(&upper("removed")) && is_whiteout(&upper("renamed")));
    server.kill().unwrap();
    server.wait().unwrap();
    for point in [rig.merged(""), rig.point()] {
        assert!(Command::new("umount").arg("-l").arg(point).status().unwrap().success());
    }
    if kind == "volume" {
        wholly(&["fsck", "-n", rig.served.to_str().unwrap()]).exits(0);
    }

    let mut server = rig.serve();
    rig.mount();
    assert_eq!(rig.seen(), seen);
    // The names of whiteouts are free.
    fs::write(rig.merged("removed"), "is there again").unwrap();
    fs::rename(rig.merged("new/renamed"), rig.merged("renamed")).unwrap();
    fs::remove_file(rig.merged("kept")).unwrap();
    let seen = rig.seen();
    umount(&rig.merged(""));
    umount(&rig.point());
    assert!(server.wait().unwrap().success());

    let mut server = rig.serve();
    rig.mount();
    assert_eq!(rig.seen(), seen);
    assert_eq!(fs::read_to_string(rig.merged("removed")).unwrap(), "is there again");
    umount(&rig.merged(""));
    umount(&rig.point());
    assert!(server.wait().unwrap().success());
}

#[test]
fn on_a_volume() {
    an_overlay_of("volume");
}

#[test]
fn on_a_store() {
    an_overlay_of("store");
}
