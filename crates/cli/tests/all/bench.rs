//! The suites that measure the command itself, with the smallest sizes. Never a verdict on time.

use super::common::{may_mount, wholly};
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

/// Instructions of a group of `store_deferred` by case, as they were counted: in a release build, and in the test
/// profile, which keeps assertions. `one_4k` with the checksum by AVX-512.
const INSTRUCTIONS: [(&str, f64, f64); 2] = [("one_64", 1908.0, 2569.0), ("one_4k", 2634.0, 4477.0)];

/// Counts do not depend on the speed of the machine. Processors with other instructions for persistent memory, and
/// other compilers, have 5 % room.
#[test]
fn a_group_executes_no_more_instructions_than_it_did() {
    if !cfg!(target_arch = "x86_64") || !may_mount() {
        return;
    }
    // Few groups: each instruction is a stop, which takes the longer the more other tests run.
    let arguments = ["--case", "one_64", "--case", "one_4k", "--system", "store_deferred", "--turns", "3", "--json"];
    let report = wholly(&[&["bench", "groups", "--instructions", "--medium", "pmem"], &arguments[..]].concat());
    let report = report.json_of_version(1);
    let rows = report["instructions"].as_array().unwrap();
    for (case, released, tested) in INSTRUCTIONS {
        let of = |system: &str| {
            let row = rows.iter().find(|row| row["case"] == case && row["system"] == system);
            row.unwrap_or_else(|| panic!("{report}"))["instructions_per_group"].as_f64().unwrap()
        };
        let (raw, store) = (of("raw"), of("store_deferred"));
        let bound = 1.05 * if cfg!(debug_assertions) { tested } else { released };
        println!("{case}: {store}, at most {bound}; raw {raw}");
        assert!(raw > 20.0 && raw < store, "{case}: {store}; raw {raw}");
        assert!(store <= bound || case == "one_4k" && !has_avx512(), "{case}: {store}, at most {bound}");
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[test]
fn whole_commands_are_measured() {
    if may_mount() {
        let systems = ["plain", "overlayfs", "wholly_run", "wholly_run_fuse", "wholly_run_kept", "wholly_undo"];
        tiny("run", (11 * 4 + 7) * 2, &systems);
    }
}

#[test]
fn mounts_are_measured() {
    if may_mount() {
        let systems = ["bare", "store", "view", "direct", "passthrough", "volume"];
        tiny("mount", (5 * 4 + 2 * 2) * 2, &systems);
    }
}

/// Five cases are in process or about opening, on persistent memory; two are of durable writes, on a disk.
#[test]
fn volumes_are_measured() {
    if may_mount() {
        let in_process = ["raw", "raw_16k", "tmpfs", "log", "log_home", "volume"];
        let writers = ["ext4_1", "ext4_8", "volume_1", "volume_8", "locked_8", "mount_1", "mount_8"];
        let systems = [&in_process[..], &["passthrough", "ext4_journal", "clean", "crashed"], &writers].concat();
        let report = tiny("volume", 5 * 2 + 5 * 2 * 2 + 3 + 3 + 2 + writers.len(), &systems);
        for row in report["rows"].as_array().unwrap() {
            let threads = if row["system"].as_str().unwrap().ends_with("_8") { 8 } else { 1 };
            assert_eq!(row["threads"], threads, "{row}");
        }
    }
}
