//! Files whose blocks the layer shares with the store's: what is shared is not read. On XFS, in a namespace of its own.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use crate::common::{self, same_as_plain};
use wholly_host::{shared, shared_extents};
use wholly_overlay::How;

const SETUP: &str = "@data big 0 40000000 1\n@data other 0 3000000 2";

/// What is done to files that are copied by sharing all of their blocks, all kinds of changes of a few of them.
const SCRIPTS: [&str; 6] = [
    "@data big 20000000 100 3",
    "@data big 0 1 3\n@data big 39999999 1 4",
    "truncate -s 1234567 big",
    "@data big 40000000 5000000 3",
    "@hole big 1000000 30000000",
    "mv big moved\n@data moved 12345678 1234567 3\nchmod 600 other",
];

/// No test, but what the test does where it has a file system.
#[test]
fn on_it() {
    let Some(dir) = std::env::var_os("WHOLLY_SHARED_ON") else { return };
    let dir = Path::new(&dir);
    for script in SCRIPTS {
        for how in [How::Adopt, How::Copy] {
            same_as_plain(dir, SETUP, script, how);
        }
    }
    // That anything is shared at all, and what was changed is not.
    let [one, other] = ["one", "other"].map(|name| dir.join(name));
    std::fs::write(&one, vec![7; 8 << 20]).unwrap();
    assert!(Command::new("cp").arg("--reflink=always").args([&one, &other]).status().unwrap().success());
    let open = |path| std::fs::File::options().read(true).write(true).open(path).unwrap();
    let (one, other) = (open(&one), open(&other));
    std::os::unix::fs::FileExt::write_all_at(&other, &[8], 5 << 20).unwrap();
    let same = shared(&shared_extents(one.as_fd()).unwrap(), &shared_extents(other.as_fd()).unwrap());
    assert_eq!(same, [(0, 5 << 20), ((5 << 20) + 4096, 8 << 20)]);
}

#[test]
fn what_is_shared_need_not_be_read() {
    if !common::may_mount() {
        return;
    }
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wholly-overlay-shared-{}", std::process::id()));
    let script = "mkdir -p $0/on && truncate -s 400M $0/image && mkfs.xfs -q $0/image && mount -o loop $0/image $0/on && WHOLLY_SHARED_ON=$0/on $1 --exact shared::on_it --nocapture";
    let me = std::env::current_exe().unwrap();
    let output = Command::new("unshare").args(["-m", "sh", "-ec", script]).args([&base, &me]).output().unwrap();
    let _ = std::fs::remove_dir_all(&base);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("mkfs.xfs: not found") {
        return common::skipped("it takes mkfs.xfs");
    }
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}
