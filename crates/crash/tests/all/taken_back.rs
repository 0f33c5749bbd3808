//! Groups that are taken back and done again: see the module `taken_back`.

use std::collections::BTreeSet;

use rustix::io::Errno;
use wholly::{IfChanged, site};
use wholly_crash::{Setting, coverage, refused, taken_back};
use wholly_sim::{Mutation, MutationKind};

#[test]
fn a_crash_leaves_the_group_or_what_was_before_and_the_way_to_the_other() {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    for setting in if is_long { &["disk-ext4", "disk", "pmem"][..] } else { &["disk", "pmem"] } {
        let setting = Setting::named(setting);
        let limits = wholly_crash::Limits::glance().states;
        let (mut images, mut undone, mut sites, mut wrong) = (0, 0, BTreeSet::new(), Vec::new());
        // A short run has some of them, of the second medium fewer.
        let step = match setting.name.as_str() {
            _ if is_long => 1,
            "disk" => 3,
            _ => 5,
        };
        for script in refused::ALL.iter().step_by(step) {
            match taken_back::explore(script, &setting, &limits) {
                Ok(judged) => {
                    (images, undone) = (images + judged.images, undone + judged.undone);
                    sites.extend(judged.sites);
                }
                Err(what) => wrong.push(what),
            }
        }
        println!("{}: {images} images, {undone} with an undo", setting.name);
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        for site in coverage::of(&["undo.", "kept."]) {
            assert!(sites.contains(site.0), "{} was no crash point", site.0);
        }
        assert!(undone > images / 2, "only {undone} of {images} had an undo");
    }
}

/// Scripts, each with paths that are taken back one after the other before the rest.
const PARTS: &[(&str, &[&str])] = &[
    ("bare,mkdir-B+create-B/foo+append-B/foo+unlink-A/foo+create-bar", &["A/foo", "B/foo"]),
    ("dirs,clear-A+rename-B-C+create-C/foo+append-C/foo", &["C/foo", "A"]),
    ("bare,adopt-B+chmod-A/foo+create-foo", &["B/C/bar", "foo"]),
    ("bare,unlink-A/foo+rmdir-A+create-foo+append-foo", &["A/foo"]),
];

#[test]
fn what_is_taken_back_in_parts_is_so_after_a_crash() {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    let limits = wholly_crash::Limits::glance().states;
    for setting in if is_long { &["disk-ext4", "disk", "pmem"][..] } else { &["disk"] } {
        let setting = Setting::named(setting);
        for (script, paths) in PARTS {
            let judged = taken_back::explore_parts(script, paths, &setting, &limits);
            let judged = judged.unwrap_or_else(|what| panic!("{}: {what}", setting.name));
            println!("{}: {script}: {} images, {} with a rest", setting.name, judged.images, judged.undone);
            assert!(judged.undone > judged.images / 4, "only {} had a rest", judged.undone);
        }
    }
}

/// It is seen by its other name, which the store does not know.
#[test]
fn a_file_that_was_changed_and_has_lost_a_name_is_taken_back() {
    let script = "bare,link-A/foo-foo,write-foo+chmod-foo+unlink-foo";
    for setting in ["disk", "disk-ext4"].map(Setting::named) {
        let judged = taken_back::explore(script, &setting, &wholly_crash::Limits::glance().states);
        assert!(judged.unwrap_or_else(|what| panic!("{}: {what}", setting.name)).undone > 0);
        taken_back::refuse(script, &setting, Errno::NOSPC, IfChanged::Refuse)
            .unwrap_or_else(|what| panic!("{}: {what}", setting.name));
    }
}

#[test]
fn what_is_refused_can_be_taken_back_later() {
    let setting = Setting::named("disk-ext4");
    let mut refusals = 0;
    for script in refused::ALL {
        let refused = taken_back::refuse(script, &setting, Errno::NOSPC, IfChanged::Refuse);
        refusals += refused.unwrap_or_else(|what| panic!("{what}"));
    }
    println!("{refusals} groups were refused");
    assert!(refusals > 100, "only {refusals} groups were refused");
}

/// What replaces others' work is kept or does not happen, also where an older undo gives way first.
#[test]
fn what_replaces_something_is_kept_for_the_redo() {
    let setting = Setting::named("disk-ext4");
    for script in ["bare,create-foo+append-foo,write-A/foo+create-bar", "bare,mkdir-B+create-B/foo+unlink-A/foo"] {
        for errno in [Errno::NOSPC, Errno::IO] {
            let refused = taken_back::refuse(script, &setting, errno, IfChanged::Replace);
            println!("{} were refused", refused.unwrap_or_else(|what| panic!("{what}")));
        }
    }
}

#[test]
fn what_is_not_made_durable_in_time_is_noticed() {
    let script = "bare,unlink-A/foo+rmdir-A+create-foo+append-foo";
    // What a group has left, before its undo is kept; and what is held, before a group commits that gives it a name.
    for (site, script) in [(site::UNDO_SYNC, refused::ALL[0]), (site::KEPT_TAKE_OUT_SYNC, script)] {
        // The first call of this kind is that of the undo.
        let mistake = Mutation { nth: Some(1), ..Mutation::new(site, MutationKind::DropOrder) };
        let setting = Setting::named("disk").broken(mistake);
        let what = taken_back::explore(script, &setting, &wholly_crash::Limits::glance().states);
        println!("{}: {}", site.0, what.expect_err("nobody notices"));
    }
}
