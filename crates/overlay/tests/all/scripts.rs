//! Scripts that run in the view of a store, whose layer is then taken up and committed, leave what they leave in an
//! ordinary directory: the same names, kinds, bytes, modes, owners, extended attributes and links, the times that they
//! set; all times that were seen in the view; and what was there before is the same object under whatever name.

use crate::common;
use wholly_overlay::How;

/// What there is at first.
const SETUP: &str = r"
    mkdir -p d/sub/deep e empty x/y/z
    echo f > f; echo a > d/a; echo b > d/b; echo c > d/sub/c; echo g > d/sub/deep/g; echo e > e/e; echo z > x/y/z/z
    : > none
    ln -s f sl; ln -s nowhere d/dangling; ln -s d dirlink
    echo links > l1; ln l1 l2; ln l1 e/l3
    echo pair > d/p1; ln d/p1 d/p2
    mkfifo fifo; mknod null c 1 3
    @socket socket
    @data big 0 3000000 1
    @data sparse 0 5000 2
    @data sparse 1000000 5000 3
    truncate -s 2000000 sparse
    @xattr f user.one 1
    @xattr d/b user.two 2
    @xattr d user.dir 3
    @acl e access 750 1000
    @acl e default 750 1000
    @acl d/b access 640 1001
    printf x > suid; chown 1000:1000 suid; chmod 4755 suid
    mkdir sgid; chown 0:1002 sgid; chmod 2775 sgid
    mkdir private; chmod 700 private; chown 1000 private; echo p > private/p
    find . -exec touch -h -d '2001-02-03 04:05:06' {} +
";

/// Each by a name and what it does.
const SCRIPTS: &[(&str, &str)] = &include!("common/cases.rs");

fn run(parent: usize, how: How) {
    if !common::may_mount() {
        return;
    }
    let only = std::env::var("WHOLLY_CASE").ok();
    for (name, script) in SCRIPTS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)) {
        println!("{name}");
        common::same_as_plain(common::parents()[parent], SETUP, script, how);
    }
}

#[test]
fn on_a_disk_by_adoption() {
    run(0, How::Adopt);
}

#[test]
fn on_a_disk_by_calls() {
    run(0, How::Copy);
}

#[test]
fn in_memory_by_adoption() {
    run(1, How::Adopt);
}

#[test]
fn in_memory_by_calls() {
    run(1, How::Copy);
}
