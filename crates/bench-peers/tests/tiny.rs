//! The program with all peers and the smallest sizes. Never a verdict on time.

use std::process::Command;
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
