//! The suites that measure the command itself, with the smallest sizes. Never a verdict on time.

use std::collections::BTreeSet;

use super::common::{Place, may_mount, wholly};
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

/// Instructions of a group by suite, case and system, as they were counted: in a release build, and in the profile of
/// tests, which keeps assertions. Groups of whole blocks with checksums by AVX-512.
const INSTRUCTIONS: [(&str, &str, &str, f64, f64); 10] = [
    ("groups", "one_64", "store_deferred", 1908.0, 2569.0),
    ("groups", "one_4k", "store_deferred", 2634.0, 4477.0),
    ("fcfs", "size_4k", "none", 6069.0, 6940.0),
    ("fcfs", "size_4k", "hybrid_log_deferred", 23371.0, 30250.0),
    ("fcfs", "size_4k", "fine_grained_wal", 25819.0, 45130.0),
    ("fcfs", "size_4k", "undo", 29017.0, 33886.0),
    ("fcfs", "two_files", "none", 6934.0, 8090.0),
    ("fcfs", "two_files", "hybrid_log_deferred", 41167.0, 53376.0),
    ("fcfs", "two_files", "fine_grained_wal", 31519.0, 71968.0),
    ("fcfs", "two_files", "undo", 86103.0, 106_530.0),
];

/// Counts do not depend on the speed of the machine. Processors with other instructions for persistent memory, and
/// other compilers, have 5 % room.
///
/// Each instruction is a stop, so few groups are counted; those of `two_files` only with `WHOLLY_LONG`.
#[test]
fn a_group_executes_no_more_instructions_than_it_did() {
    if !cfg!(target_arch = "x86_64") || !may_mount() {
        return;
    }
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    for (suite, base, turns) in [("groups", "raw", "3"), ("fcfs", "none", "1")] {
        let all = INSTRUCTIONS.iter().filter(|(of, case, ..)| *of == suite && (is_long || *case != "two_files"));
        let mut arguments = vec!["bench", suite, "--instructions", "--medium", "pmem", "--turns", turns, "--json"];
        arguments.extend(if suite == "fcfs" { &["--files", "8"][..] } else { &[] });
        for (_, case, system, ..) in all.clone() {
            arguments.extend(["--case", case, "--system", system]);
        }
        let report = wholly(&arguments).json_of_version(1);
        let rows = report["instructions"].as_array().unwrap();
        for &(_, case, system, released, tested) in all {
            let of = |system: &str| {
                let row = rows.iter().find(|row| row["case"] == case && row["system"] == system);
                row.unwrap_or_else(|| panic!("{report}"))["instructions_per_group"].as_f64().unwrap()
            };
            let (base, executed) = (of(base), of(system));
            let bound = 1.05 * if cfg!(debug_assertions) { tested } else { released };
            println!("{case}, {system}: {executed}, at most {bound}; {base} at the base");
            assert!(base > 20.0 && base <= executed, "{case}, {system}: {executed}; {base} at the base");
            let sums_slowly = case != "one_64" && !has_avx512();
            assert!(executed <= bound || sums_slowly, "{case}, {system}: {executed}, at most {bound}");
        }
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

/// Transactions on queues: what they move is that of the formulas, as the model counts it, and what follows from that
/// by the times of a profile. No clock is asked.
#[test]
fn transactions_on_queues_are_counted() {
    let report = wholly(&["bench", "ccnvme", "--json"]).json_of_version(1);
    let transfers = report["transfers"].as_array().unwrap();
    assert_eq!(transfers.len(), 6 * 5);
    let wrong: Vec<&Value> = transfers.iter().filter(|row| row["is_formula"] != true).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let bounds = report["bounds"].as_array().unwrap();
    // docs/performance.md has the cause.
    let is_known = |bound: &&Value| bound["what"].as_str().unwrap().contains("ccnvme over horae");
    let missed: Vec<&Value> = bounds.iter().filter(|bound| bound["met"] != true && !is_known(bound)).collect();
    assert!(bounds.len() == 7 && missed.is_empty(), "{missed:?}");
}

/// The figures of MQFS: counts are those of the formulas, and of the rest each row says whose time it has.
#[test]
fn figures_of_mqfs_are_written() {
    let place = Place::on_memory();
    let figures = place.dir.join("figures");
    let report = wholly(&["bench", "mqfs", "--json", "--tiny", "--figures", figures.to_str().unwrap()]);
    let report = report.json_of_version(1);
    let transfers = report["transfers"].as_array().unwrap();
    let wrong: Vec<&Value> = transfers.iter().filter(|row| row["is_formula"] != true).collect();
    assert!(transfers.len() == 3 * 5 && wrong.is_empty(), "{wrong:?}");
    let rows = report["queues"].as_array().unwrap();
    let cases: BTreeSet<&str> = rows.iter().map(|row| row["case"].as_str().unwrap()).collect();
    let expected = ["fig11ab_4k", "fig11cd", "fig12a", "fig12b", "fig13", "fig13_beside", "fig13_queues", "fig2"];
    assert_eq!(cases, BTreeSet::from(expected));
    assert!(rows.iter().all(|row| row["clock"] == "model" && row["ns_per_call"].as_f64().unwrap() > 0.0), "{rows:?}");
    let private = |row: &&Value| row["case"] == "fig2" && row["system"] == "mqfs";
    assert!(rows.iter().filter(private).all(|row| row["depending"] == 0), "private files depend on none");
    let stages = report["stages"].as_array().unwrap();
    assert!(stages.len() == 4 && stages.iter().all(|row| row["clock"].as_str().unwrap().contains("real")));
    let names = ["2a", "11a", "11b", "11c", "11d", "12a-905p", "12b-905p", "13a", "13a-beside", "14a"];
    for name in names {
        let csv = std::fs::read_to_string(figures.join(format!("mqfs-{name}.csv"))).unwrap();
        assert!(csv.contains("mqfs,1,") || csv.contains("mqfs,4,"), "{name}: {csv}");
        assert!(std::fs::read_to_string(figures.join(format!("mqfs-{name}.svg"))).unwrap().contains("MQFS, figure"));
    }
    let claims = std::fs::read_to_string(figures.join("mqfs-claims.csv")).unwrap();
    assert!(claims.contains("table 1,\"MMIO of mqfs, each N\",at most 4,\"4.00000\",held"), "{claims}");
}

#[test]
fn journals_are_measured() {
    if may_mount() {
        let report = wholly(&["bench", "journal", "--tiny", "--json"]).json_of_version(1);
        let rows = report["journals"].as_array().unwrap();
        // Four systems with one and four blocks, one thread and two; two of them with sixteen threads.
        assert_eq!(rows.len(), 4 * 4 + 2);
        assert!(rows.iter().all(|row| row["ns_per_transaction"].as_f64().unwrap() > 0.0), "{rows:?}");
        assert!(report["machine"]["media"][0]["emulated"] == true, "{report}");
    }
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

/// Five cases are in process or about opening, on persistent memory; five are of durable writes or of opening, on
/// disks.
#[test]
fn volumes_are_measured() {
    if may_mount() {
        let in_process = ["raw", "raw_16k", "tmpfs", "log", "log_home", "volume"];
        let writers = ["ext4_1", "ext4_8", "volume_1", "volume_8", "locked_8", "mount_1", "mount_8"];
        let synced = ["ext4_journal", "ext4_ordered", "ext4_none", "multi_queue", "multi_queue_fatomic"];
        let mounts = ["passthrough", "clean", "crashed"];
        let systems = [&in_process[..], &mounts, &synced, &["page_cache_wal", "op_log"], &writers].concat();
        let report = tiny("volume", 5 * 2 + 5 * 2 * 2 + 4 + 3 + 7 + 2 + writers.len(), &systems);
        for row in report["rows"].as_array().unwrap() {
            let threads = if row["system"].as_str().unwrap().ends_with("_8") { 8 } else { 1 };
            assert_eq!(row["threads"], threads, "{row}");
        }
    }
}
