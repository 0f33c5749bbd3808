//! What Linux does is right, through the kernel too: the suite of `wholly-posix`, by system calls on a mounted store.

use crate::common::{self, Mounted};
use wholly::{Options, Policy};
use wholly_fuse::{MountOptions, Sharing};
use wholly_posix::{Exception, HostVfs};

const fn exception(case: &'static str, reason: &'static str) -> Exception {
    Exception { case, reason }
}

const NO_MOVES: &str = "a store does not move what is in a file";

const EXCEPTIONS: [Exception; 7] = [
    exception("space::collapse_takes_out", NO_MOVES),
    exception("space::collapse_to_the_end", NO_MOVES),
    exception("space::collapse_wants_whole_blocks", NO_MOVES),
    exception("space::insert_makes_room", NO_MOVES),
    exception("space::insert_beyond_the_end", NO_MOVES),
    exception("set_times::utimes_beyond_2038", "a store's times end in 2262"),
    exception(
        "times::copy_changes_the_target",
        "the kernel does not ask again for the attributes of what was copied from",
    ),
];

fn whole_suite(policy: Policy) {
    let options = MountOptions { sharing: Sharing::Everybody, suid: true, dev: true, ..MountOptions::default() };
    let (syncs_on_close, whole_writes) = (policy == Policy::PerSync, policy == Policy::PerOp);
    let options = MountOptions { syncs_on_close, whole_writes, ..options };
    let Some(mounted) = common::or_skip(Mounted::new(Options { policy, ..Options::default() }, &options)) else {
        return;
    };
    let host = HostVfs::open(mounted.point()).unwrap();
    let report = wholly_posix::run(&host, true, &EXCEPTIONS);
    println!("{} passed, {} skipped, {} exceptions", report.passed, report.skipped.len(), EXCEPTIONS.len());
    report.expect_passed();
    assert_eq!(host.held(), (0, 0), "references and handles are given back");
    drop(host);
    mounted.end();
}

#[test]
fn per_op() {
    whole_suite(Policy::PerOp);
}

#[test]
fn per_sync() {
    whole_suite(Policy::PerSync);
}
