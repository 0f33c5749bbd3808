//! Volumes as a user meets them: made, filled, mounted, checked, copied out.

use super::common::{self, is_long, may_mount, skipped, unique, wholly};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wholly_volume::{Volume, VolumeOptions};

/// A directory for an image and what goes with it, removed on drop.
pub struct Rig(PathBuf);

impl Rig {
    pub fn new(name: &str) -> Rig {
        let dir = std::env::temp_dir().join(unique(name));
        std::fs::create_dir_all(dir.join("point")).unwrap();
        Rig(dir)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    pub fn point(&self) -> PathBuf {
        self.0.join("point")
    }

    pub fn umount(&self) {
        common::umount(&self.point());
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
pub fn described(dir: &Path) -> BTreeMap<PathBuf, String> {
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
                let mut hash = DefaultHasher::new();
                std::fs::read(&path).unwrap().hash(&mut hash);
                text += &format!(" {} B {:x}", found.len(), hash.finish());
            } else if found.is_symlink() {
                text += &format!(" {:?}", std::fs::read_link(&path).unwrap());
            }
            all.insert(path.strip_prefix(dir).unwrap().to_path_buf(), text);
        }
    }
    all
}

pub fn populate(dir: &Path) {
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
    let made = wholly(&["--json", "mkfs", &image, "--size", "64M", "--label", "trial", "--engine", "none"]).json();
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
    let larger = wholly(&["--json", "tune", &image, "--size", "96M"]).json();
    assert_eq!((&larger["blocks"], std::fs::metadata(&image).unwrap().len()), (&(24576.into()), 96 << 20));
    wholly(&["tune", &image, "--size", "64K"]).exits(8);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 96 << 20);
    wholly(&["tune", &image, "--size", "32M"]).exits(0);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 32 << 20);
    wholly(&["fsck", "-n", &image]).exits(0);
    std::fs::remove_dir_all(&to).unwrap();
    wholly(&["export", &image, &to]).exits(0);
    assert_eq!(described(Path::new(&to)), described(Path::new(&from)));
    let stat = wholly(&["stat", &image]);
    stat.exits(0);
    assert!(stat.out.contains("trial") && stat.out.contains("none"), "{}", stat.out);
}

/// A tree that others made: what this system has of Python, or else its documentation.
#[test]
fn a_real_tree_comes_out_as_it_was() {
    let trees = ["/usr/lib/python3", "/usr/share/perl5", "/usr/share/doc", "/etc/alternatives"];
    let Some(from) = trees.iter().map(Path::new).find(|tree| tree.is_dir()) else {
        return skipped("there is no tree that is known to be here");
    };
    let rig = Rig::new("tree");
    let (image, to) = (rig.path("v.img"), rig.path("to"));
    wholly(&["mkfs", &image, "--size", "1G"]).exits(0);
    wholly(&["import", &image, from.to_str().unwrap()]).exits(0);
    wholly(&["fsck", "-n", &image]).exits(0);
    wholly(&["export", &image, &to]).exits(0);
    let before = described(from);
    assert!(before.len() > 5, "{} has only {} objects", from.display(), before.len());
    assert_eq!(described(Path::new(&to)), before);
}

/// Everything that a path has is shown where it stands, for people and for programs.
#[test]
fn what_stands_on_a_volume_is_shown() {
    let rig = Rig::new("dump");
    let (image, from) = (rig.path("v.img"), rig.path("from"));
    wholly(&["mkfs", &image, "--size", "16M", "--label", "trial"]).exits(0);
    populate(Path::new(&from));
    wholly(&["import", &image, &from]).exits(0);

    let all = wholly(&["--json", "dump", &image]).json();
    let slots = all["superblocks"].as_array().unwrap();
    assert_eq!(slots.iter().map(|slot| slot["block"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 4095]);
    assert!(slots.iter().any(|slot| slot["current"] == true && slot["label"] == "trial" && slot["clean"] == true));
    assert!(all["inode"].is_null());

    // A name's entry, its inode, and the blocks of its content hold what they say.
    let dir = wholly(&["--json", "dump", &image, "a"]).json();
    let entries = dir["inode"]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 102);
    let ino = entries.iter().find(|entry| entry["name"] == "7").unwrap()["inode"].as_u64().unwrap();
    let file = wholly(&["--json", "dump", &image, "--inode", &ino.to_string()]).json();
    assert_eq!(wholly(&["--json", "dump", &image, "/a/b/seven"]).json()["inode"], file["inode"]);
    let file = &file["inode"];
    assert_eq!((&file["type"], &file["links"], &file["size"]), (&"file".into(), &2.into(), &7000.into()));
    let bytes = std::fs::read(&image).unwrap();
    let mut content = Vec::new();
    for extent in file["content"]["extents"].as_array().unwrap() {
        let field = |name: &str| extent[name].as_u64().unwrap() as usize;
        assert_eq!(field("first") * 4096, content.len());
        content.extend_from_slice(&bytes[field("block") * 4096..][..field("count") * 4096]);
    }
    assert_eq!(content[..7000], [7; 7000]);
    let long = wholly(&["dump", &image, "a/long"]);
    long.exits(0);
    assert!(long.out.contains("symlink 0777") && long.out.contains("-> x/x/x/"), "{}", long.out);
    let inodes = wholly(&["--json", "dump", &image, "--inode", "2"]).json();
    let (block, nodes) = (file["block"].as_u64().unwrap(), &inodes["inode"]["content"]["extents"]);
    let holds = |it: &serde_json::Value| {
        (it["block"].as_u64().unwrap()..).take(it["count"].as_u64().unwrap() as usize).any(|it| it == block)
    };
    assert!(nodes.as_array().unwrap().iter().any(holds), "{nodes}");

    wholly(&["dump", &image, "a/none"]).exits(8);
    wholly(&["dump", &image, "--inode", "1000000"]).exits(8);
    wholly(&["dump", &image, "--all"]).exits(16);
    wholly(&["dump", &from, "a"]).exits(16);

    // Damage is shown beside what is sound.
    let mut damaged = bytes.clone();
    damaged[block as usize * 4096 + file["offset"].as_u64().unwrap() as usize + 64] ^= 1;
    damaged[4096 + 100] ^= 1;
    std::fs::write(&image, &damaged).unwrap();
    let shown = wholly(&["dump", &image, "a/7"]);
    shown.exits(4);
    for part in ["superblock in block 1: ", "damaged: line 1 of an inode", "size 7000"] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
}

/// Engines that log by the byte need persistent memory: a file in memory stands for that, and gets such an engine by
/// default. A disk gets one that logs blocks.
#[test]
fn the_engine_is_chosen() {
    let rig = Rig::new("engine");
    let on_disk = rig.path("v.img");
    let refused = wholly(&["mkfs", &on_disk, "--size", "16M", "--engine", "fine_grained_wal", "--medium", "disk"]);
    assert!(refused.err.contains("persistent memory"), "{}", refused.err);
    let default = wholly(&["mkfs", &on_disk, "--size", "16M", "--medium", "disk", "--force"]);
    default.exits(0);
    let is_default = default.out.contains("engine op_log") && !default.out.contains("anything may be lost");
    assert!(is_default, "{}", default.out);
    let none = wholly(&["mkfs", &on_disk, "--size", "16M", "--medium", "disk", "--force", "--engine", "none"]);
    assert!(none.out.contains("engine none") && none.out.contains("anything may be lost"), "{}", none.out);
    let named = ["fine_grained_wal", "hybrid_log", "undo", "shadow", "page_cache_wal", "shortcut_jfs"];
    let choices = named.map(|engine| (vec!["--engine", engine], engine)).into_iter().chain([(vec![], "hybrid_log")]);
    for (choice, engine) in choices {
        let image = format!("/dev/shm/{}", unique("engine"));
        let made = wholly(&[&["mkfs", &image, "--size", "16M"], &choice[..]].concat());
        let (stat, checked) = (wholly(&["stat", &image]), wholly(&["fsck", "-n", &image]));
        std::fs::remove_file(&image).unwrap();
        made.exits(0);
        assert!(made.out.contains("emulated") && !made.out.contains("anything may be lost"), "{}", made.out);
        stat.exits(0);
        assert!(stat.out.contains(engine), "{}", stat.out);
        checked.exits(0);
    }
}

#[test]
fn damage_is_listed() {
    let rig = Rig::new("damage");
    let (image, from) = (rig.path("v.img"), rig.path("from"));
    // An engine with a log would have copies of the inode there.
    wholly(&["mkfs", &image, "--size", "16M", "--engine", "none"]).exits(0);
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

/// A check takes no right to write: the host's file system may be mounted read-only.
#[test]
fn a_volume_that_can_only_be_read_is_checked() {
    if !rustix::process::geteuid().is_root() {
        return skipped("it takes the superuser");
    }
    let rig = Rig::new("read-only");
    let image = rig.path("v.img");
    wholly(&["mkfs", &image, "--size", "16M"]).exits(0);
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && ! touch \"$1/v.img\" 2>/dev/null &&
        \"$0\" dump \"$1/v.img\" / && exec \"$0\" fsck -n \"$1/v.img\"";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "--propagation", "private", "sh", "-c", script, env!("CARGO_BIN_EXE_wholly")]).arg(&rig.0);
    let checked = shell.output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(String::from_utf8_lossy(&checked.stdout).contains("consistent"), "{checked:?}");
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
    wholly(&["mkfs", &image, "--force", "--engine", "none"]).exits(0);
    wholly(&["mount", &image, &point, "-o", "policy=per-op"]).exits(16);
}

/// `fsck` exits with 1 if all that it does is to give back blocks of the inode file. Where the engine cannot use the
/// medium, they stay.
#[test]
fn what_is_given_back_counts_as_repaired() {
    let rig = Rig::new("given-back");
    let (image, left) = (rig.path("v.img"), rig.path("left.img"));
    wholly(&["mkfs", &image, "--size", "8M", "--engine", "hybrid_log", "--medium", "pmem"]).exits(0);
    let options = wholly_volume::VolumeOptions { medium: wholly_volume::Medium::Pmem, ..Default::default() };
    let volume = wholly_volume::Volume::open(Path::new(&image), &options).unwrap();
    (0..200).for_each(|i| drop(volume.create_file(format!("{i}"), 0o644).unwrap()));
    (0..200).for_each(|i| volume.unlink(format!("{i}")).unwrap());
    // As if the process had died.
    std::fs::copy(&image, &left).unwrap();
    volume.close().unwrap();
    let put_in_order = wholly(&["fsck", "-y", &left, "--medium", "disk"]);
    put_in_order.exits(1);
    assert!(!put_in_order.out.contains("given back"), "{}", put_in_order.out);
    wholly(&["fsck", "-n", &left]).exits(0);
    let given_back = wholly(&["fsck", "-y", &left, "--medium", "pmem"]);
    given_back.exits(1);
    assert!(given_back.out.contains("blocks have no inodes in use: given back"), "{}", given_back.out);
    wholly(&["fsck", "-y", &left, "--medium", "pmem"]).exits(0);
    wholly(&["fsck", "-n", &left]).exits(0);
}

/// What is left of a repair is what the damage has not hit; the exit codes are those of fsck(8).
#[test]
fn damage_is_repaired() {
    let rig = Rig::new("repair");
    let (image, from, to) = (rig.path("v.img"), rig.path("from"), rig.path("to"));
    wholly(&["mkfs", &image, "--size", "16M"]).exits(0);
    populate(Path::new(&from));
    wholly(&["import", &image, &from]).exits(0);
    for arguments in [&["-n", "-p"][..], &["-p", "-y"], &["-n", "-y"]] {
        wholly(&[&["fsck"], arguments, &[&image]].concat()).exits(16);
    }
    for arguments in [&["-p"][..], &["-y"], &["-p", "-f"], &["-n"], &[], &["-C"], &["-C0", "-y"]] {
        wholly(&[&["fsck"], arguments, &[&image]].concat()).exits(0);
    }
    let passed = wholly(&["fsck", "-p", &image]);
    assert!(passed.out.contains("not checked"), "{}", passed.out);

    let sound = std::fs::read(&image).unwrap();
    let file = wholly(&["--json", "dump", &image, "a/9"]).json();
    let at = file["inode"]["block"].as_u64().unwrap() * 4096 + file["inode"]["offset"].as_u64().unwrap();
    let mut bytes = sound.clone();
    bytes[at as usize + 9] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    wholly(&["fsck", "-n", &image]).exits(4);
    wholly(&["fsck", "-p", &image]).exits(0);
    let refused = wholly(&["fsck", "-p", "-f", &image]);
    refused.exits(4);
    assert!(refused.err.contains("fsck -y"), "{}", refused.err);
    assert_eq!(std::fs::read(&image).unwrap(), bytes, "nothing was changed");
    // Lines for a program that shows them.
    let mut repair = Command::new("sh");
    repair.args(["-c", "exec \"$0\" fsck -y -C3 \"$1\" 3>\"$2\"", env!("CARGO_BIN_EXE_wholly"), &image]);
    let done = repair.arg(rig.path("progress")).output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.contains("are lost") && said.contains("removed") && said.contains("consistent"), "{said}");
    let lines = std::fs::read_to_string(rig.path("progress")).unwrap();
    assert!(lines.lines().any(|line| line.starts_with("1 ") && line.ends_with(&image)), "{lines}");
    wholly(&["fsck", "-n", &image]).exits(0);
    wholly(&["export", &image, &to]).exits(0);
    let mut wanted = described(Path::new(&from));
    assert!(wanted.remove(Path::new("a/9")).is_some());
    let got = described(Path::new(&to));
    assert_eq!(got.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());

    // As programs read it.
    std::fs::write(&image, &bytes).unwrap();
    let told = wholly(&["--json", "fsck", "-y", &image]);
    told.exits(1);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert!(
        told["findings"].as_array().unwrap().is_empty() && told["repaired"].as_array().unwrap().len() > 1,
        "{told}"
    );
    // No superblock is left.
    let mut bytes = sound;
    let last = bytes.len() - 4096;
    [0, 4096, last].into_iter().for_each(|at| bytes[at + 20] ^= 1);
    std::fs::write(&image, &bytes).unwrap();
    wholly(&["fsck", "-y", &image]).exits(4);
    assert_eq!(std::fs::read(&image).unwrap(), bytes);
}

/// The server of a mount, in the foreground.
fn serve(image: &str, point: &Path) -> Child {
    serve_with(image, point, "rw")
}

pub fn serve_with(image: &str, point: &Path, options: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wholly"));
    command.args(["mount", "--foreground", "-o", options, image]).arg(point).env("WHOLLY_REGISTRY", "");
    command.stdout(Stdio::null());
    let mut server = command.spawn().unwrap();
    let parent = std::fs::metadata(point.parent().unwrap()).unwrap().dev();
    while std::fs::metadata(point).map_or(true, |found| found.dev() == parent) {
        assert!(server.try_wait().unwrap().is_none(), "the server of {image} has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    server
}

/// Makes, changes and removes what has names in a directory.
struct Worker {
    dir: PathBuf,
    random: u64,
    /// What may be there: what was before the call in flight, and what is to be after it.
    allowed: Vec<BTreeSet<String>>,
}

impl Worker {
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    /// One call.
    fn step(&mut self) -> std::io::Result<()> {
        let mut next = self.allowed[0].clone();
        let (one, other) = (format!("{}", self.below(12)), format!("{}", self.below(12)));
        let (path, to) = (self.dir.join(&one), self.dir.join(&other));
        let what = if next.contains(&one) { self.below(8) } else { 8 };
        match what {
            0 => {
                next.remove(&one);
            }
            1 => {
                next.remove(&one);
                next.insert(other);
            }
            8 => {
                next.insert(one);
            }
            _ => {}
        }
        self.allowed.push(next);
        match what {
            0 => std::fs::remove_file(&path)?,
            1 => std::fs::rename(&path, &to)?,
            2 => std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600 + self.below(64) as u32))?,
            3 => std::fs::File::options().write(true).open(&path)?.set_len(self.below(100_000))?,
            8 => drop(std::fs::File::create_new(&path)?),
            _ => {
                let at = self.below(60_000);
                std::fs::File::options().write(true).open(&path)?.write_all_at(&[7; 5000], at)?;
            }
        }
        self.allowed.remove(0);
        Ok(())
    }
}

/// Under a policy, content lasts once it is synced, and not before; names last at once.
#[test]
fn a_mounted_volume_has_a_policy() {
    if !may_mount() {
        return;
    }
    let rig = Rig::new("policy");
    let image = format!("/dev/shm/{}", unique("policy"));
    wholly(&["mkfs", &image, "--size", "16M", "--engine", "hybrid_log"]).exits(0);
    wholly(&["mount", &image, &rig.path("point"), "-o", "policy=never"]).exits(16);
    for policy in ["per-sync", "shared=1000"] {
        let mut server = serve_with(&image, &rig.point(), &format!("policy={policy}"));
        let (one, other) = (rig.point().join(format!("one-{policy}")), rig.point().join(format!("other-{policy}")));
        let files = [&one, &other]
            .map(|path| std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap());
        for (file, byte) in files.iter().zip([1, 2]) {
            file.write_all_at(&[byte; 9000], 0).unwrap();
        }
        files[0].sync_all().unwrap();
        for file in &files {
            file.write_all_at(&[3; 5000], 100).unwrap();
        }
        let mut seen = [0; 2];
        files[1].read_exact_at(&mut seen, 5099).unwrap();
        assert_eq!(seen, [3, 2], "it is seen at once");
        // The child closes what it has of the files, which is a sync under `per-sync`.
        if policy != "per-sync" {
            let stat = wholly(&["stat", &rig.path("point")]).out;
            assert!(stat.contains("  not synced   2 files\n"), "{stat}");
        }
        server.kill().unwrap();
        server.wait().unwrap();
        drop(files);
        assert!(Command::new("umount").arg("-l").arg(rig.point()).status().unwrap().success());
        wholly(&["fsck", "-n", &image]).exits(0);

        wholly(&["mount", &image, &rig.path("point")]).exits(0);
        assert_eq!(std::fs::read(&one).unwrap(), [1; 9000], "{policy}");
        let synced = if policy == "per-sync" { vec![] } else { vec![2; 9000] };
        assert_eq!(std::fs::read(&other).unwrap(), synced, "{policy}");
        rig.umount();
    }
    // What no sync has committed, the unmount does.
    let mut server = serve_with(&image, &rig.point(), "policy=shared=1000");
    std::fs::write(rig.point().join("last"), [4; 9000]).unwrap();
    // Where there is no space for a second version of so much, the policy commits before it is asked to.
    let large = rig.point().join("large");
    std::fs::write(&large, vec![5; 9 << 20]).unwrap();
    std::fs::File::open(&large).unwrap().sync_all().unwrap();
    std::fs::File::options().write(true).open(&large).unwrap().write_all_at(&vec![6; 9 << 20], 0).unwrap();
    let stat = wholly(&["stat", &rig.path("point")]).out;
    assert!(stat.contains("committed early"), "{stat}");
    rig.umount();
    assert!(server.wait().unwrap().success());
    wholly(&["mount", &image, &rig.path("point")]).exits(0);
    assert_eq!(std::fs::read(rig.point().join("last")).unwrap(), [4; 9000]);
    assert!(std::fs::read(large).unwrap() == vec![6; 9 << 20]);
    rig.umount();
    std::fs::remove_file(&image).unwrap();
}

/// The server dies after a drawn number of calls: the volume is sound, the next mount has it at once, and each name is
/// as the calls that had returned left it. That is no power failure: persistent memory keeps all that was stored.
#[test]
fn a_killed_server_leaves_a_sound_volume() {
    if !may_mount() {
        return;
    }
    let rig = Rig::new("killed");
    let image = format!("/dev/shm/{}", unique("killed"));
    wholly(&["mkfs", &image, "--size", "32M", "--engine", "fine_grained_wal"]).exits(0);
    kill_servers(&rig, &image, if is_long() { 60 } else { 4 }, |round| 40 + 67 * round);
    let checked = wholly(&["--json", "fsck", "-n", &image]).json();
    std::fs::remove_file(&image).unwrap();
    assert_eq!((&checked["clean"], &checked["findings"]), (&true.into(), &serde_json::json!([])));
}

/// Kills the server of a volume under load, so many times, after so many calls; checks after each that it is sound, and
/// at last repairs what the last one has left.
pub fn kill_servers(rig: &Rig, volume: &str, rounds: u64, calls_of: impl Fn(u64) -> u64) {
    let mut allowed = vec![vec![BTreeSet::new()]; 3];
    for round in 0..rounds {
        let mut server = serve(volume, &rig.point());
        let (calls, is_killed) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut workers = Vec::new();
        for (number, allowed) in allowed.iter().enumerate() {
            let dir = rig.point().join(format!("worker-{number}"));
            if round == 0 {
                std::fs::create_dir(&dir).unwrap();
            }
            let now: BTreeSet<String> = std::fs::read_dir(&dir)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            assert!(allowed.contains(&now), "round {round}: {now:?} instead of one of {allowed:?}");
            workers.push(Worker { dir, random: round * 3 + number as u64, allowed: vec![now] });
        }
        std::thread::scope(|scope| {
            let work = |worker: &mut Worker| {
                while worker
                    .step()
                    .inspect_err(|error| {
                        assert!(is_killed.load(Ordering::SeqCst), "{error}, and the server is alive");
                    })
                    .is_ok()
                {
                    calls.fetch_add(1, Ordering::SeqCst);
                }
            };
            let running: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(move || work(worker))).collect();
            while calls.load(Ordering::SeqCst) < calls_of(round) && running.iter().all(|it| !it.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            is_killed.store(true, Ordering::SeqCst);
            server.kill().unwrap();
        });
        server.wait().unwrap();
        assert!(Command::new("umount").arg("-l").arg(rig.point()).status().unwrap().success());
        wholly(&["fsck", "-n", volume]).exits(0);
        allowed = workers.into_iter().map(|worker| worker.allowed).collect();
    }
    wholly(&["fsck", "-p", volume]).exits(1);
}

/// A volume that is in use is refused, and its user named.
#[test]
fn the_process_that_has_a_volume_is_named() {
    if !may_mount() {
        return;
    }
    let rig = Rig::new("named");
    let image = rig.path("v.img");
    wholly(&["mkfs", &image, "--size", "16M"]).exits(0);
    let mut server = serve(&image, &rig.point());
    let refused = wholly(&["fsck", "-y", &image]);
    refused.exits(8);
    let who = format!("process {} (wholly-mount)", server.id());
    assert!(refused.err.contains(&who) && refused.err.contains("unmount it first"), "{}", refused.err);
    // By its file or by its mount, it tells the same of itself, and how full it is.
    let point = rig.point().display().to_string();
    for name in [&image, &point] {
        let shown = wholly(&["stat", name]);
        shown.exits(0);
        for part in [format!("{image}\n"), format!("  in use by    {who}"), format!("  mounted at   {point}\n")] {
            assert!(shown.out.contains(&part), "{part}: {}", shown.out);
        }
        let shown = wholly(&["--json", "stat", name]).json();
        let df = rustix::fs::statvfs(&*point).expect("statvfs").f_bavail;
        assert_eq!((&shown["free_blocks"], &shown["clean"], &shown["opens"]), (&df.into(), &false.into(), &2.into()));
    }
    rig.umount();
    assert!(server.wait().unwrap().success());
    wholly(&["fsck", "-y", &image]).exits(0);
}

/// Of itself, and to programs that look for signatures. Nothing of it changes.
#[test]
fn a_volume_says_what_it_is() {
    let rig = Rig::new("says");
    let image = rig.path("v.img");
    wholly(&["mkfs", &image, "--size", "16M", "--label", "my data"]).exits(0);
    let before = std::fs::read(&image).unwrap();
    let stat = wholly(&["--json", "stat", &image]).json();
    let uuid = stat["volume_id"].as_str().unwrap();
    let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert_eq!((groups, &uuid[14..15], &stat["version"]), (vec![8, 4, 4, 4, 12], "4", &4.into()));
    assert_eq!((&stat["label"], &stat["clean"], &stat["opens"]), (&"my data".into(), &true.into(), &1.into()));
    assert!(stat["free_blocks"].as_u64().unwrap() > 4000 && stat["in_use_by"].is_null(), "{stat}");
    let udev = wholly(&["stat", "--udev", &image]);
    assert_eq!(
        udev.out,
        format!(
            "ID_FS_TYPE=wholly\nID_FS_USAGE=filesystem\nID_FS_VERSION=4\nID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}\n\
             ID_FS_LABEL=my_data\nID_FS_LABEL_ENC=my\\x20data\n"
        )
    );
    if common::may_run(&["file", "blkid"]) {
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).arg(&image).output().unwrap();
            (String::from_utf8(output.stdout).unwrap(), output.status.code())
        };
        let magic = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/wholly.magic");
        let (told, _) = run("file", &["-b", "-m", magic]);
        let wanted = ["Wholly volume, version 4", uuid, "\"my data\"", "4096 blocks of 4096 bytes"];
        assert!(wanted.iter().all(|part| told.contains(part)), "{told}");
        assert_eq!(run("blkid", &["-p"]), (String::new(), Some(2)), "it finds nothing");
        assert_eq!(run("file", &["-b"]).0, "data\n");
    }
    assert!(std::fs::read(&image).unwrap() == before);
    // Free space is unknown while a process has it, and after its death until a mount has recovered it.
    let volume = Volume::open(Path::new(&image), &VolumeOptions::default()).unwrap();
    let stat = wholly(&["stat", &image]).out;
    assert!(stat.contains(&format!("in use by    process {}", std::process::id())), "{stat}");
    assert!(stat.contains("only that process knows"), "{stat}");
    volume.abandon();
    let stat = wholly(&["stat", &image]).out;
    assert!(stat.contains("in use by    no process") && stat.contains("once a mount has recovered it"), "{stat}");
}

/// A size that cannot be says which can, in words that can be typed.
#[test]
fn tune_says_which_sizes_there_are() {
    let rig = Rig::new("tune");
    let image = rig.path("v.img");
    wholly(&["mkfs", &image, "--size", "16M"]).exits(0);
    let refused = wholly(&["tune", &image, "--size", "1M", "--label", "other"]);
    refused.exits(0);
    assert_eq!(wholly(&["--json", "stat", &image]).json()["label"], "other");
    let refused = wholly(&["tune", &image, "--size", "4K"]);
    refused.exits(8);
    let (_, least) = refused.err.trim_end().split_once("no space left for its content: the smallest size is ").unwrap();
    wholly(&["tune", &image, "--size", least]).exits(0);
    let bytes: u64 = least.strip_suffix('K').unwrap().parse::<u64>().unwrap() << 10;
    assert_eq!(std::fs::metadata(&image).unwrap().len(), bytes);
    wholly(&["fsck", "-n", &image]).exits(0);
    wholly(&["tune", &image]).exits(16);
    let before = std::fs::read(&image).unwrap();
    let long = "l".repeat(65);
    wholly(&["tune", &image, "--size", "16M", "--label", &long]).exits(16);
    wholly(&["mkfs", "--force", &image, "--size", "16M", "--label", &long]).exits(16);
    // Nor by the library, before what was there is gone.
    let options = VolumeOptions { label: long, force: true, ..VolumeOptions::default() };
    let refused = Volume::format(Path::new(&image), 16 << 20, &options).unwrap_err();
    assert!(refused.to_string().contains("at most 64 bytes"), "{refused}");
    assert!(std::fs::read(&image).unwrap() == before);
    for verb in ["fsck", "stat", "dump"] {
        let no_volume = wholly(&[verb, rig.point().to_str().unwrap()]);
        let why = if verb == "fsck" { "no file and no block device" } else { "no store" };
        assert!(no_volume.code == Some(8) && no_volume.err.contains(why), "{}", no_volume.err);
    }
}

/// A store that is imported leaves its own folder behind; one that has not all in its directory is not imported.
#[test]
fn a_store_is_imported_without_its_folder() {
    let rig = Rig::new("import-store");
    let (image, from, out) = (rig.path("image"), rig.path("from"), rig.path("out"));
    std::fs::create_dir_all(Path::new(&from).join("below/.wholly")).unwrap();
    let options = wholly::Options { background: false, ..Default::default() };
    wholly::Store::init(&from, &options).unwrap();
    let store = wholly::Store::open_with(&from, options, Default::default()).unwrap();
    let mut group = store.begin();
    group.create("made", 0o644).unwrap();
    group.commit().unwrap();
    drop(store);
    wholly(&["mkfs", "--size", "32M", &image]).exits(0);
    let refused = wholly(&["import", &image, &from]);
    assert!(refused.code != Some(0) && refused.err.contains("`wholly recover`"), "{}{}", refused.out, refused.err);
    wholly(&["recover", &from]).exits(1);
    let imported = wholly(&["import", &image, &from]);
    imported.exits(0);
    assert!(imported.err.contains("/.wholly is left out"), "{}", imported.err);
    wholly(&["export", &image, &out]).exits(0);
    let out = Path::new(&out);
    assert!(out.join("made").exists() && out.join("below/.wholly").exists() && !out.join(".wholly").exists());
}
