//! `wholly stat` names the process that has a mount's only group: of a store, over itself and elsewhere, and of a
//! volume.

use std::fs::File;
use std::path::Path;

use super::common::{self, Place, Run, may_mount, umount, wholly};
use wholly::MountGroup;

fn shown(path: &Path, json: bool) -> Run {
    let path = path.to_str().expect("UTF-8");
    match json {
        true => wholly(&["--json", "stat", path]),
        false => wholly(&["stat", path]),
    }
}

/// Each of these paths leads to the mount at `point`, on which this process begins a group.
fn names_the_holder(point: &Path, paths: &[&Path]) {
    // A volume tells of its mount.
    let group = |path: &Path| {
        let stat = shown(path, true).json();
        stat["mount"].get("group").unwrap_or(&stat["group"]).clone()
    };
    for path in paths {
        assert_eq!(group(path), serde_json::Value::Null, "{}", path.display());
    }
    let begun = MountGroup::begin(File::open(point).expect("open it")).expect("nobody has one");
    for path in paths {
        let found = group(path);
        assert_eq!((&found["pid"], &found["user"]), (&std::process::id().into(), &0.into()), "{}", path.display());
        assert_eq!((&found["mount"], &found["timeout_seconds"]), (&point.to_str().into(), &60.0.into()));
        assert!(found["held_seconds"].as_f64() >= found["idle_seconds"].as_f64(), "{found}");
        let text = shown(path, false);
        text.exits(0);
        let expected = format!("group        of process {} (", std::process::id());
        assert!(text.out.contains(&expected) && text.out.contains("aborted after 60 seconds"), "{}", text.out);
    }
    begun.abort().expect("abort");
}

#[test]
fn the_holder_of_a_mounts_group_is_shown() {
    if !may_mount() {
        return;
    }
    let place = Place::on_disk();
    let (store, point, image) = (place.dir.join("store"), place.dir.join("point"), place.dir.join("v.img"));
    for dir in [&store, &point] {
        std::fs::create_dir(dir).expect("mkdir");
    }
    let words = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (s, p, v) = (words(&store), words(&point), words(&image));
    wholly(&["init", "--no-register", &s]).exits(0);
    wholly(&["mount", &s, &p, "-o", "group_timeout=0"]).exits(16);
    wholly(&["mount", &s, &p, "-o", "group_timeout=60"]).exits(0);
    names_the_holder(&point, &[&store, &point]);
    umount(&point);
    common::wait_until_unused(&store);
    wholly(&["mount", &s, "-o", "group_timeout=60"]).exits(0);
    names_the_holder(&store, &[&store]);
    umount(&store);
    common::wait_until_unused(&store);
    wholly(&["mkfs", &v, "--size", "16M", "--engine", "page_cache_wal", "--medium", "disk"]).exits(0);
    wholly(&["mount", &v, &p, "-o", "group_timeout=60"]).exits(0);
    names_the_holder(&point, &[&image, &point]);
    umount(&point);
    // It waits for the end of the server.
    assert!(shown(&image, false).out.contains("engine       page_cache_wal"));
}
