//! The suite `fcfs` without root, in small. Counts and model time are checked to the line; never a verdict on time.

use wholly_bench::cli::Options;
use wholly_bench::report::{Bound, CountRow};
use wholly_bench::{Report, systems};

/// Runs the suite on the memory of the machine.
fn run(line: &str) -> Report {
    let line = format!("fcfs --pmem /dev/shm {line}");
    let options = Options::parse(line.split_whitespace().map(str::to_owned)).unwrap();
    options.run(systems::all()).unwrap()
}

fn row<'r>(report: &'r Report, case: &str, system: &str) -> &'r CountRow {
    report.counts.iter().find(|row| row.case == case && row.system == system).unwrap()
}

fn bound<'r>(report: &'r Report, words: &str) -> &'r Bound {
    report.bounds.iter().find(|bound| bound.what.contains(words)).unwrap()
}

#[test]
fn each_case_is_counted_and_measured() {
    let report = run("--tiny");
    for case in ["two_files", "size_64", "size_256", "size_1k", "size_4k", "size_16k"] {
        for system in ["none", "fine_grained_wal"] {
            assert_eq!(row(&report, case, system).formula, "equal to the line", "{system} in {case}");
            let measured =
                |row: &&wholly_bench::report::Row| (&*row.case, &*row.system, row.threads) == (case, system, 1);
            assert!(report.rows.iter().find(measured).unwrap().ratio.is_some());
        }
    }
    let threads = report.rows.iter().filter(|row| row.case == "two_files" && row.threads == 2);
    assert!(threads.clone().any(|row| row.system == "fine_grained_wal"));
    assert!(threads.clone().all(|row| row.ratio.is_some()), "the base runs with as many threads");
    assert!(report.machine.emulator.as_ref().unwrap().contains("150 ns"), "the paper's emulator unless it is said");
    let again: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(again.table(), report.table());
    assert!(report.table().contains("\nbounds\n"), "{}", report.table());
}

/// Two lines of data and two of times; and with a log: two heads with a line each, four undo entries, the entry that
/// leads to the chain, two lines of times in place, the commit entry, two lines of data, and the settled word.
#[test]
fn small_groups_cost_what_can_be_counted_by_hand() {
    let report = run("--tiny --case size_64 --emulate paper:100");
    let all = |system: &str| {
        let row = row(&report, "size_64", system);
        (row.all(|count| count.lines), row.all(|count| count.fences), row.all(|count| count.bytes), row.model_ns)
    };
    assert_eq!(all("none"), (4.0, 2.0, 4.0 * 64.0, 400.0 + 2.0 * 20.0));
    let bytes = (4.0 + 4.0 + 1.0) * 64.0 + 2.0 * 56.0 + 64.0 + 2.0 * 64.0 + 8.0;
    assert_eq!(all("fine_grained_wal"), (15.0, 7.0, bytes, 1500.0 + 7.0 * 20.0));
}

/// Files of more than one part, and writes that end a run of blocks of the log; counts do not depend on anything but
/// the seed.
#[test]
fn counts_are_the_same_each_time() {
    let line = "--files 8 --case two_files --turns 1 --turn-ms 1 --emulate none";
    let [one, two] = [run(line), run(line)].map(|report| {
        for system in ["none", "fine_grained_wal", "hybrid_log", "hybrid_log:soc", "hybrid_log:sync"] {
            assert_eq!(row(&report, "two_files", system).formula, "equal to the line", "{system}");
        }
        assert!(bound(&report, "hybrid_log / none, wall time deferred").bound == 1.35);
        assert_eq!(report.machine.emulator, None);
        serde_json::to_string(&report.counts).unwrap()
    });
    assert_eq!(one, two);
    assert_ne!(one, serde_json::to_string(&run(&format!("{line} --seed 2")).counts).unwrap());
}

/// Each pending block goes home at a mount: its lines by one store at least.
#[test]
fn what_recovery_stores_grows_with_the_log() {
    let report = run("--tiny --case recovery --system hybrid_log");
    let recovered: Vec<&CountRow> = report.counts.iter().collect();
    assert_eq!(recovered.len(), 4, "a quarter, a third, a half and all of the log");
    for (row, measured) in recovered.iter().zip(&report.rows) {
        assert!(row.phases["recovery"].lines > 2.0 && row.system == "hybrid_log", "{row:?}");
        assert!(measured.open_ns.is_some() && measured.disk_bytes.unwrap() >= 256 << 10, "{measured:?}");
    }
    assert!(recovered.windows(2).all(|two| two[0].groups < two[1].groups));
    assert_eq!(bound(&report, "correlation").met, Some(true), "{:?}", report.bounds);
    assert_eq!(bound(&report, "5 GiB").met, None);
}

/// What is copied home of a volume that is written to until space is short, several times over: all lines of each
/// pending block by the variant SOC, few by the engine, as the bounds ask. Writing back at once leaves nothing that
/// later writes cover.
#[test]
fn checkpoints_copy_as_little_as_the_bounds_say() {
    let report = run("--files 8 --case two_files --turns 1 --turn-ms 1 --emulate none");
    let [hybrid, soc, sync] =
        ["hybrid_log", "hybrid_log:soc", "hybrid_log:sync"].map(|it| row(&report, "two_files", it));
    let ratio = soc.copied_lines / soc.phases["call"].lines;
    assert!((0.9..1.0).contains(&ratio), "SOC copies {ratio} of the lines");
    assert!(hybrid.copied_lines < sync.copied_lines && sync.copied_lines < soc.copied_lines);
    for words in ["bytes steady", "copied lines", "model time steady, six threads", "model time deferred (150"] {
        assert_eq!(bound(&report, words).met, Some(true), "{:?}", bound(&report, words));
    }
}

#[test]
fn a_bound_is_met_missed_or_not_measured() {
    let met = |bound: Bound| (bound.value, bound.met, bound.why);
    assert_eq!(met(Bound::at_most("x", 1.5, Ok(1.5))), (Some(1.5), Some(true), None));
    assert_eq!(met(Bound::at_most("x", 1.5, Ok(1.6))), (Some(1.6), Some(false), None));
    assert_eq!(met(Bound::at_least("x", 1.5, Ok(1.4))), (Some(1.4), Some(false), None));
    assert_eq!(met(Bound::at_least("x", 1.5, Err("so".into()))), (None, None, Some("so".into())));
}
