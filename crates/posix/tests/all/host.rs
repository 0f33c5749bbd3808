//! The suite on the host's own file systems: what Linux does is right, so a case that fails here is wrong. And on
//! mistakes, which it must find.

use crate::places::{self, Place};
use wholly_posix::{Case, Exception, Mistake, Needs, Planted, Report};

fn run(place: &Place, exceptions: &[Exception]) -> Report {
    let report = wholly_posix::run(&place.vfs, place.users, exceptions);
    println!("{} passed, {} skipped, {} exceptions", report.passed, report.skipped.len(), exceptions.len());
    report.expect_passed();
    assert_eq!(place.vfs.held(), (0, 0), "references and handles are given back");
    report
}

const fn exception(case: &'static str, reason: &'static str) -> Exception {
    Exception { case, reason }
}

const EXT4: [Exception; 1] = [exception(
    "xattrs::values_of_65536_bytes",
    "all attributes of an inode share one block of 4 KiB, unless the file system was made with ea_inode",
)];

const TMPFS: [Exception; 8] = [
    exception("space::zero_range_makes_zeros", "tmpfs has no ZERO_RANGE"),
    exception("space::zero_range_can_grow", "tmpfs has no ZERO_RANGE"),
    exception("space::zero_range_keep_size", "tmpfs has no ZERO_RANGE"),
    exception("space::collapse_takes_out", "tmpfs has no COLLAPSE_RANGE"),
    exception("space::collapse_to_the_end", "tmpfs has no COLLAPSE_RANGE"),
    exception("space::collapse_wants_whole_blocks", "tmpfs has no COLLAPSE_RANGE"),
    exception("space::insert_makes_room", "tmpfs has no INSERT_RANGE"),
    exception("space::insert_beyond_the_end", "tmpfs has no INSERT_RANGE"),
];

const XFS: [Exception; 9] = [
    exception("names::mknod_makes_devices", "XFS keeps 9 bits of a device's major number and 18 of its minor one"),
    exception("limits::symlink_targets_of_4095_bytes", "XFS keeps 1023 bytes of a target"),
    exception("paths::long_targets_are_walked", "XFS keeps 1023 bytes of a target"),
    exception("rename::refuses_full_directories", "XFS says EEXIST where the others say ENOTEMPTY; POSIX allows both"),
    exception("rename_types::dir", "as rename::refuses_full_directories"),
    exception("rename_types::full_dir", "as rename::refuses_full_directories"),
    exception("times::exchange_changes_all", "XFS changes mtime of a directory with its `..`"),
    exception("times::copy_changes_the_target", "XFS shares the blocks, and reads nothing"),
    exception("acl::an_acl_is_kept", "XFS lists the attribute in which it keeps the ACL too"),
];

#[test]
fn ext4() {
    let Some(place) = places::or_skip(places::ext4()) else { return };
    run(&place, &EXT4);
}

#[test]
fn tmpfs() {
    let Some(place) = places::or_skip(places::own_tmpfs()) else { return };
    run(&place, &TMPFS);
}

#[test]
fn xfs() {
    let Some(place) = places::or_skip(places::xfs()) else { return };
    run(&place, &XFS);
}

/// What needs no superuser and no device runs for everybody.
#[test]
fn a_directory() {
    let Some(place) = places::or_skip(places::directory()) else { return };
    let report = run(&place, &TMPFS);
    assert_eq!(report.skipped.is_empty(), place.users);
}

#[test]
fn mistakes_are_found() {
    let Some(place) = places::or_skip(places::directory()) else { return };
    let excused = |case: &Case| TMPFS.iter().any(|exception| exception.case == case.name);
    let mut cases = wholly_posix::cases();
    cases.retain(|case| !excused(case) && (place.users || case.needs == Needs::Nothing));
    let first = |mistake| {
        let planted = Planted::new(&place.vfs, mistake);
        cases.iter().find(|case| wholly_posix::run_one(&planted, **case).is_err()).map(|case| case.name)
    };
    assert_eq!(first(None), None, "without a mistake nothing fails");
    for mistake in Mistake::ALL.into_iter().filter(|mistake| place.users || !mistake.needs_users()) {
        let found = first(Some(mistake));
        println!("{mistake:?}: {}", found.unwrap_or("not found"));
        assert!(found.is_some(), "{mistake:?} was not found");
    }
}
