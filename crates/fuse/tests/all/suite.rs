//! What Linux does is right, through the kernel too: the suite of `wholly-posix`, by system calls on a mounted store,
//! and on a mounted volume.

use std::path::Path;
use std::sync::Arc;

use crate::common::{self, Mounted, Scratch};
use wholly::Options;
use wholly_fuse::{Mount, MountOptions, Sharing};
use wholly_posix::{Exception, HostVfs};
use wholly_vfs::Policy;
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

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
    run(mounted.point(), &EXCEPTIONS);
    mounted.end();
}

fn run(point: &Path, exceptions: &[Exception]) {
    let host = HostVfs::open(point).unwrap();
    let report = wholly_posix::run(&host, true, exceptions);
    println!("{} passed, {} skipped, {} exceptions", report.passed, report.skipped.len(), exceptions.len());
    report.expect_passed();
    assert_eq!(host.held(), (0, 0), "references and handles are given back");
}

#[test]
fn per_op() {
    whole_suite(Policy::PerOp);
}

#[test]
fn per_sync() {
    whole_suite(Policy::PerSync);
}

/// What a store does otherwise by itself, a volume does not.
#[test]
fn of_a_volume() {
    let exceptions: Vec<Exception> =
        EXCEPTIONS.iter().copied().filter(|exception| exception.case != "set_times::utimes_beyond_2038").collect();
    let (home, point) = (Scratch::new(), Scratch::new());
    let image = home.path().join("volume");
    let made = VolumeOptions { engine: Some(EngineKind::HybridLog), ..VolumeOptions::default() };
    Volume::format(&image, 128 << 20, &made).unwrap();
    let volume = Volume::open(&image, &made).unwrap();
    let options = MountOptions { sharing: Sharing::Everybody, suid: true, dev: true, ..MountOptions::default() };
    let mount = Mount::new(Arc::new(VolumeVfs::new(&volume)), point.path(), &options);
    let Some(mount) = common::or_skip(mount.map_err(|error| format!("mount: {error}"))) else { return };
    let unmounter = mount.unmounter();
    let server = std::thread::spawn(move || mount.serve());
    run(point.path(), &exceptions);
    while unmounter.unmount().is_err() {
        // Another test is just starting a program, which has all that is open here until it is executed.
        std::thread::yield_now();
    }
    server.join().expect("no panic").expect("the kernel was answered to the end");
    volume.close().unwrap();
    assert_eq!(Volume::check(&image).unwrap().findings, []);
}
