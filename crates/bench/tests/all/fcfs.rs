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

/// A mount stores one line for each block that waits; the variant that writes everything back stores its lines, too.
#[test]
fn what_recovery_stores_grows_with_the_log() {
    let report = run("--tiny --case recovery --system hybrid_log");
    let of = |system: &'static str| report.counts.iter().filter(move |row| row.system == system).collect::<Vec<_>>();
    let (lazy, instant) = (of("hybrid_log"), of("hybrid_log:instant-recovery"));
    assert_eq!((lazy.len(), instant.len()), (4, 4), "a quarter, a third, a half and all of the log");
    for (lazy, instant) in lazy.iter().zip(instant) {
        let lines = |row: &CountRow| row.phases["recovery"].lines;
        assert!(lines(lazy) > 2.0 && lines(instant) > 2.0 * lines(lazy), "{lazy:?} {instant:?}");
    }
    for measured in &report.rows {
        assert!(measured.open_ns.is_some() && measured.disk_bytes.unwrap() >= 256 << 10, "{measured:?}");
    }
    assert!(lazy.windows(2).all(|two| two[0].groups < two[1].groups));
    // Of logs as small as these, most of what is stored proves the last group of each lane.
    let all = |row: &CountRow| row.phases["recovery"].lines * row.groups as f64;
    assert!(all(lazy[0]) < all(lazy[3]), "{lazy:?}");
    assert!(bound(&report, "correlation of lines").met.is_some(), "{:?}", report.bounds);
    assert_eq!(bound(&report, "5 GiB, ms of wall").met, None);
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

/// The paper's figures: a line of CSV for each point, a picture, and its claims beside what was measured.
#[test]
fn figures_are_written() {
    let dir = std::env::temp_dir().join(format!("wholly-figures-{}", std::process::id()));
    let report = run(&format!("--tiny --turns 1 --turn-ms 1 --figures {}", dir.display()));
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let point = |figure: &str, begin: &str| {
        let csv = read(&format!("fcfs-{figure}.csv"));
        let line = csv.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin} in {csv}"));
        line.rsplit(',').next().unwrap().parse::<f64>().unwrap()
    };
    let group = |system: &str| row(&report, "two_files", system);
    let is = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 1e-9, "{one} is not {other}");
    is(point("7a", "shadow,"), group("shadow").model_ns_deferred / 1e3);
    is(point("7b", "hybrid_log,"), group("hybrid_log").all(|c| c.bytes) / group("none").all(|c| c.bytes));
    is(point("7c", "fine_grained_wal,6,"), 6e9 / group("fine_grained_wal").model_ns);
    let of_4k = |system: &str| row(&report, "size_4k", system).model_ns_deferred;
    is(point("8", "fine_grained_wal,12,"), of_4k("none") / of_4k("fine_grained_wal"));
    is(point("9", "none,50,"), 1e9 / (2.0 * group("none").model_ns));
    let at_1600 = |system: &str| group(system).all(|count| count.lines * 1600.0 + count.fences * 20.0);
    is(point("10", "fine_grained_wal,1600,"), at_1600("none") / at_1600("fine_grained_wal"));
    assert!(point("11", "hybrid_log,") > 0.0);
    for figure in ["7a", "7b", "7c", "8", "9", "10", "11"] {
        let picture = read(&format!("fcfs-{figure}.svg"));
        assert!(picture.starts_with("<svg") && picture.contains("hybrid_log"), "{figure}: {picture}");
    }
    let claims = read("fcfs-claims.csv");
    let ratio = group("fine_grained_wal").model_ns_deferred / group("hybrid_log").model_ns_deferred;
    let verdict = if ratio >= 0.9 * 1.96 { "held" } else { "refuted" };
    let line = format!("7a,\"fine_grained_wal / hybrid_log, latency\",1.96,\"{ratio:.3}\",{verdict}\n");
    assert!(claims.contains(&line), "{line} in {claims}");
    assert!(claims.contains("(--log-size 5G)\",not measured\n"), "{claims}");
    std::fs::remove_dir_all(&dir).unwrap();
}
