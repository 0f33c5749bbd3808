//! Devices for tests.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use wholly_nvme::qtest::{PROGRAM, Qemu, QemuOptions};
use wholly_scratch::TestDir;

/// Whether QEMU is there. Without it a test prints that it was left out; in CI it fails.
pub fn has_qemu() -> bool {
    let has = Command::new(PROGRAM).arg("--version").output().is_ok_and(|output| output.status.success());
    if !has {
        assert!(std::env::var_os("CI").is_none(), "{PROGRAM} is missing: scripts/setup installs it");
        eprintln!("left out: {PROGRAM} is not installed (scripts/setup)");
    }
    has
}

/// A directory with the files of a device. In memory where it can be: QEMU syncs the region at each barrier.
pub fn device(image: u64, region: u64) -> TestDir {
    let directory = TestDir::on_tmpfs().unwrap_or_else(TestDir::on_disk);
    for (name, len) in [("image", image), ("pmr", region)] {
        std::fs::File::create(directory.path().join(name)).unwrap().set_len(len).unwrap();
    }
    directory
}

pub fn start(directory: &Path) -> Arc<Qemu> {
    Qemu::start(directory, &QemuOptions::default()).unwrap()
}
