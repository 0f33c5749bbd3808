//! The suites that measure the command itself, with the smallest sizes. Never a verdict on time.

mod common;

use common::{may_mount, wholly};
use serde_json::Value;

/// The rows of a suite, by case and system, once each has been on its media: so many.
fn tiny(suite: &str, all: usize, systems: &[&str]) -> Value {
    let report = wholly(&["bench", suite, "--tiny", "--json"]).json_of_version(1);
    let skipped = report["skipped"].as_array().unwrap();
    for skipped in skipped {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{skipped}");
        println!("skipped {skipped}");
    }
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() == all || !skipped.is_empty(), "{report}");
    for row in rows {
        assert!(systems.contains(&row["system"].as_str().unwrap()) && row["suite"] == suite, "{row}");
        assert!(row["ns_per_group"].as_f64().unwrap() > 0.0 && row["ratio"].as_f64().unwrap() > 0.0, "{row}");
    }
    report
}

#[test]
fn whole_commands_are_measured() {
    if may_mount() {
        let systems = ["plain", "overlayfs", "wholly_run", "wholly_run_fuse", "wholly_run_kept", "wholly_undo"];
        tiny("run", (7 * 4 + 2) * 2, &systems);
    }
}

#[test]
fn mounts_are_measured() {
    if may_mount() {
        tiny("mount", 5 * 4 * 2, &["bare", "store", "view", "direct"]);
    }
}

/// Five cases are in process or about opening, on one medium.
#[test]
fn volumes_are_measured() {
    if may_mount() {
        let systems = ["raw", "tmpfs", "passthrough", "volume", "clean", "crashed"];
        tiny("volume", 5 * 2 + 5 * 2 * 2, &systems);
    }
}
