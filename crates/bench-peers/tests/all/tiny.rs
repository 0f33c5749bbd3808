//! The program with all peers and the smallest sizes. Never a verdict on time.

use std::process::{Command, Stdio};
use std::time::Duration;
use wholly_bench::Report;

fn all_capabilities_promised() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

#[test]
fn every_peer_has_its_rows_in_the_same_run() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_wholly-bench-peers")).args(["groups", "--tiny", "--json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();

    if all_capabilities_promised() {
        assert_eq!(wholly_bench_peers::MISSING, [""; 0], "scripts/setup installs what peers need");
        let only_pmem =
            |s: &wholly_bench::report::Skipped| s.system.as_deref() == Some("libpmemobj") && s.medium != "pmem";
        assert!(report.skipped.iter().all(only_pmem), "{:?}", report.skipped);
    }
    for skipped in &report.skipped {
        eprintln!("skipped {skipped:?}");
    }
    let media: std::collections::BTreeSet<_> = report.rows.iter().map(|row| row.medium.as_str()).collect();
    for medium in media {
        for peer in wholly_bench_peers::all() {
            let here = |row: &&wholly_bench::report::Row| row.medium == medium && row.system == peer.name();
            let rows: Vec<_> = report.rows.iter().filter(here).collect();
            if peer.name() == "libpmemobj" && medium != "pmem" {
                assert!(rows.is_empty());
                continue;
            }
            assert!(!rows.is_empty(), "{} on {medium}", peer.name());
            for row in rows {
                assert!(row.ns_per_group > 0.0 && row.ratio.is_some() && row.p99_ns.is_some(), "{row:?}");
            }
        }
    }
}

#[test]
fn wrong_arguments_are_refused_in_words() {
    let output = Command::new(env!("CARGO_BIN_EXE_wholly-bench-peers")).args(["groups", "--bogus"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--bogus"));
}

/// Whether some loop device stands on a file that process `pid` made.
fn has_loop_device(pid: u32) -> bool {
    let name = format!("/wholly-bench-{pid}-");
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.into_iter().any(|file| file.contains(&name))
}

/// This is the death of a process, no power failure: what it mounted must go with it, even if it can do nothing more.
#[test]
fn nothing_stays_mounted_when_the_program_is_killed() {
    if !rustix::process::geteuid().is_root() {
        assert!(!all_capabilities_promised(), "loop devices need root");
        eprintln!("skipped: loop devices need root");
        return;
    }
    let scratch = std::env::temp_dir().join(format!("wholly-bench-peers-test-{}", std::process::id()));
    std::fs::create_dir(&scratch).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_wholly-bench-peers"))
        .args(["groups", "--case", "one_4k", "--medium", "ext4-loop", "--turns", "200", "--scratch"])
        .arg(&scratch)
        .env("TMPDIR", &scratch)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !has_loop_device(child.id()) {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended without a loop device: {ended:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel lets go of it when it comes to it. The bound only keeps a failure from waiting for ever.
    for _ in 0..60_000 {
        if !has_loop_device(child.id()) {
            // Killed between making the image and mounting it, its name would be left: all of it is in one directory.
            return std::fs::remove_dir_all(&scratch).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("ten minutes later the loop device is still there");
}
