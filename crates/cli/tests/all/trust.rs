//! Stores that somebody else may have written to, as a user meets them: what does something of what is written in them
//! is refused.

use super::common::{self, Place, may_run, places, wholly};
use std::os::unix::fs::chown;
use std::process::Command;

/// Somebody else, who is not the superuser.
const OTHER: u32 = 12_345;

#[test]
fn verbs_do_nothing_for_others() {
    if !rustix::process::geteuid().is_root() {
        return common::skipped("it takes the superuser");
    }
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(3);
        chown(place.dir.join(".wholly"), Some(OTHER), None).unwrap();
        let before = std::fs::read(place.dir.join(".wholly/log")).unwrap();
        let dir = place.dir.to_str().unwrap();
        let (id, run) = ("1-1", ["run", "--dir", dir, "--", "true"]);
        let verbs: [&[&str]; 6] =
            [&["recover", dir], &["deinit", dir], &["apply", dir, id], &["discard", dir, id], &["mount", dir], &run];
        for verb in verbs {
            let said = common::wholly(verb);
            let code = if verb[0] == "run" { 125 } else { 8 };
            said.exits(code);
            assert!(said.err.contains("belongs to user 12345") && said.err.contains("--trust-owner"), "{}", said.err);
        }
        assert!(std::fs::read(place.dir.join(".wholly/log")).unwrap() == before);
        // Whoever looks does nothing of what is written.
        for verb in ["stat", "check", "dump", "list"] {
            place.run(&[verb]).exits(0);
        }
        place.run(&["recover", "--trust-owner"]).exits(1);
        assert_eq!(std::fs::read(place.dir.join("a")).unwrap()[..100], [3; 100]);
    }
}

/// The process that serves a file system can report any owner, root included.
#[test]
fn a_file_system_that_somebody_else_serves_is_not_believed() {
    if !common::may_mount() || !may_run(&["bindfs", "setpriv"]) {
        return;
    }
    let place = Place::on_disk();
    let point = place.dir.with_extension("point");
    std::fs::create_dir(&point).unwrap();
    place.run(&["init"]).exits(0);
    place.crash_after_groups(3);
    let before = std::fs::read(place.dir.join(".wholly/log")).unwrap();
    let id = OTHER.to_string();
    let caps = ["--inh-caps", "+sys_admin,+dac_override", "--ambient-caps", "+sys_admin,+dac_override"];
    let served = Command::new("setpriv")
        .args(["--reuid", &id, "--clear-groups"])
        .args(caps)
        .args(["bindfs", "-o", "allow_other,force-user=root"])
        .args([&place.dir, &point])
        .status()
        .unwrap();
    assert!(served.success());
    let dir = point.to_str().unwrap();
    for verb in [&["recover", dir][..], &["apply", dir, "1-1"], &["run", "--dir", dir, "--", "true"]] {
        let said = wholly(verb);
        assert!(said.code != Some(0) && said.err.contains("a process of user 12345 serves"), "{verb:?}: {}", said.err);
    }
    assert!(std::fs::read(place.dir.join(".wholly/log")).unwrap() == before);
    common::umount(&point);
    std::fs::remove_dir(&point).unwrap();
    place.run(&["recover"]).exits(1);
}

/// The superuser is told in whose directory a verb works.
#[test]
fn the_superuser_is_told_whose_directory_it_is() {
    if !rustix::process::geteuid().is_root() {
        return common::skipped("it takes the superuser");
    }
    let place = Place::on_disk();
    let dir = place.dir.to_str().unwrap();
    let verbs: [&[&str]; 2] = [&["run", "--dir", dir, "--", "true"], &["recover", dir]];
    for (owner, is_told) in [(0, false), (OTHER, true)] {
        chown(&place.dir, Some(owner), None).unwrap();
        for verb in verbs {
            wholly(&["init", "--no-register", dir]);
            let said = wholly(verb);
            said.exits(0);
            let told = format!("user {owner} owns this directory, and can exchange whatever is in it meanwhile");
            assert_eq!(said.err.contains(&told), is_told, "{verb:?}: {}", said.err);
        }
    }
}
