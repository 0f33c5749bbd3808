//! Volumes on NVMe controllers: each verb that takes a volume takes `nvme-model:DIR` and `qemu:DIR`. The model and
//! QEMU's controller take each other's volumes, and a disk takes their blocks.

use super::common::{is_long, may_mount, wholly};
use super::nvme::has_qemu;
use super::volume::{Rig, described, kill_servers, populate, serve_with};
use std::fs::File;
use std::path::Path;

/// Makes a device in a directory of a rig: as a model, as QEMU's, and the file of its blocks.
fn device(rig: &Rig, name: &str, bytes: u64, region_bytes: u64) -> (String, String, String) {
    let directory = rig.path(name);
    std::fs::create_dir(&directory).unwrap();
    for (file, bytes) in [("image", bytes), ("pmr", region_bytes)] {
        File::create(format!("{directory}/{file}")).unwrap().set_len(bytes).unwrap();
    }
    (format!("nvme-model:{directory}"), format!("qemu:{directory}"), format!("{directory}/image"))
}

#[test]
fn what_is_copied_in_comes_out() {
    let rig = Rig::new("nvme");
    let (from, to) = (rig.path("from"), rig.path("to"));
    let (model, qemu, image) = device(&rig, "dev", 32 << 20, 256 << 10);
    wholly(&["mkfs", &model, "--label", "trial"]).exits(0);
    let stat = wholly(&["--json", "stat", &model]).json();
    assert_eq!(
        (&stat["label"], &stat["engine"], &stat["blocks"]),
        (&"trial".into(), &"multi_queue".into(), &8192.into())
    );
    assert!(stat["medium"].as_str().unwrap().contains("a model") && stat["emulated"] == true, "{stat}");
    populate(Path::new(&from));
    wholly(&["import", &model, &from]).exits(0);
    let before = std::fs::read(&image).unwrap();
    for look in [&["fsck", "-n", &model][..], &["stat", &model], &["dump", &model], &["dump", &model, "a/7"]] {
        wholly(look).exits(0);
        assert!(std::fs::read(&image).unwrap() == before, "{look:?} has changed a byte");
    }
    let mut names = vec![&model, &image];
    names.extend(has_qemu().then_some(&qemu));
    for (nth, name) in names.iter().enumerate() {
        wholly(&["export", name, &to]).exits(0);
        assert_eq!(described(Path::new(&to)), described(Path::new(&from)), "{name}");
        std::fs::remove_dir_all(&to).unwrap();
        wholly(&["tune", name, "--label", &nth.to_string()]).exits(0);
        wholly(&["fsck", "-p", "-f", name]).exits(0);
    }
    wholly(&["tune", &model, "--size", "24M"]).exits(0);
    wholly(&["tune", &model, "--size", "33M"]).exits(8);
    wholly(&["fsck", "-y", &model]).exits(0);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 32 << 20, "the device has one size");
    // The region is lost, or another device's.
    let (other, ..) = device(&rig, "other", 32 << 20, 256 << 10);
    wholly(&["mkfs", &other]).exits(0);
    let region = |name: &str| rig.path(&format!("{name}/pmr"));
    std::fs::copy(region("other"), region("dev")).unwrap();
    wholly(&["tune", &model, "--label", "x"]).exits(0);
    File::create(region("dev")).unwrap().set_len(256 << 10).unwrap();
    wholly(&["export", &model, &to]).exits(0);
    assert_eq!(described(Path::new(&to)), described(Path::new(&from)));
}

/// One process at a time has it, whichever way it is named. `stat` works meanwhile.
#[test]
fn a_mounted_one_is_in_use() {
    if !may_mount() {
        return;
    }
    let rig = Rig::new("nvme-mounted");
    let (model, qemu, image) = device(&rig, "dev", 16 << 20, 256 << 10);
    wholly(&["mkfs", &model]).exits(0);
    let mut names = vec![&model];
    names.extend(has_qemu().then_some(&qemu));
    for mounted in names {
        let mut server = serve_with(mounted, &rig.point(), "rw");
        std::fs::write(rig.point().join("a"), [7; 9000]).unwrap();
        let point = rig.path("point");
        let mut verbs: Vec<Vec<&str>> = Vec::new();
        for name in [&model, &qemu, &image] {
            verbs.extend([vec!["fsck", "-p", name], vec!["mkfs", "--force", name], vec!["import", name, &point]]);
        }
        verbs.extend([&model, &qemu].map(|name| vec!["fsck", "-n", name]));
        // Each waits a while for a server that is ending.
        std::thread::scope(|scope| {
            for verb in &verbs {
                scope.spawn(move || {
                    let run = wholly(verb);
                    run.exits(8);
                    assert!(run.err.contains("has the volume open"), "{verb:?}: {}", run.err);
                });
            }
        });
        for name in [&model, &qemu] {
            let stat = wholly(&["--json", "stat", name]).json();
            assert!(stat["in_use_by"].as_str().is_some(), "{stat}");
        }
        let before = described(&rig.point());
        rig.umount();
        assert!(server.wait().unwrap().success());
        wholly(&["fsck", "-n", mounted]).exits(0);
        wholly(&["mount", mounted, &rig.path("point")]).exits(0);
        assert_eq!(described(&rig.point()), before);
        rig.umount();
    }
}

#[test]
fn bad_input_says_what_to_do() {
    let rig = Rig::new("nvme-wrong");
    let (model, _, image) = device(&rig, "dev", 8 << 20, 256 << 10);
    let is_refused = |arguments: &[&str], says: &str| {
        let before = std::fs::read(&image).unwrap();
        let run = wholly(arguments);
        run.exits(8);
        assert!(run.err.contains(says), "{arguments:?}: {}", run.err);
        assert!(std::fs::read(&image).unwrap() == before, "{arguments:?}");
    };
    let missing = format!("nvme-model:{}", rig.path("none"));
    for verb in
        [&["mkfs", &missing][..], &["mkfs", &missing, "--size", "16M"], &["fsck", &missing], &["stat", &missing]]
    {
        is_refused(verb, "`truncate --size`");
    }
    is_refused(&["fsck", &model], "it is not a volume");
    is_refused(&["mkfs", &model, "--queues", "9"], "the device has 7");
    is_refused(&["mkfs", &model, "--medium", "pmem"], "an NVMe controller is a disk");
    is_refused(&["mkfs", &model, "--engine", "hybrid_log"], "on a disk");
    is_refused(&["mkfs", &model, "--engine", "op_log", "--data", "journal"], "only multi_queue has one");
    wholly(&["mkfs", &model, "--queues", "7", "--data", "journal"]).exits(0);
    assert_eq!(wholly(&["--json", "stat", &model]).json()["data"], "journal");
    let point = rig.path("point");
    is_refused(&["mount", "-o", "data=ordered", &model, &point], "made with journal");
    let unknown = wholly(&["mount", "-o", "data=writeback", &model, &point]);
    unknown.exits(16);
    assert!(unknown.err.contains("`ordered` or `journal`"), "{}", unknown.err);
    is_refused(&["mkfs", &model], "it holds a volume of Wholly");
    // With a region for fewer queues, it goes on with those. Without queues, a new volume has the engine for disks.
    let region = rig.path("dev/pmr");
    let short = |bytes| File::create(&region).unwrap().set_len(bytes).unwrap();
    short(16 << 10);
    wholly(&["tune", &model, "--label", "x"]).exits(0);
    short(64);
    wholly(&["tune", &model, "--label", "y"]).exits(0);
    wholly(&["mkfs", "--force", &model]).exits(0);
    assert_eq!(wholly(&["--json", "stat", &model]).json()["engine"], "op_log");
    // A link in place of a file is not followed.
    std::fs::remove_file(&region).unwrap();
    std::os::unix::fs::symlink(rig.path("dev/image"), &region).unwrap();
    is_refused(&["tune", &model, "--label", "z"], "symbolic links");
    std::fs::remove_file(&region).unwrap();
    short(64 << 10);
    std::fs::rename(&image, rig.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(rig.path("elsewhere"), &image).unwrap();
    is_refused(&["tune", &model, "--label", "z"], "symbolic links");
}

/// The server is killed under load: what had returned is there.
#[test]
fn a_killed_server_leaves_a_sound_volume() {
    if !may_mount() {
        return;
    }
    let rounds = if is_long() { 50 } else { 3 };
    let kinds: &[bool] = if has_qemu() { &[false, true] } else { &[false] };
    for is_qemu in kinds {
        let rig = Rig::new("nvme-killed");
        let (model, qemu, image) = device(&rig, "dev", 32 << 20, 256 << 10);
        let volume = if *is_qemu { qemu } else { model };
        wholly(&["mkfs", &volume]).exits(0);
        kill_servers(&rig, &volume, rounds, |round| 20 + 37 * round);
        wholly(&["fsck", "-n", &image]).exits(0);
    }
}
