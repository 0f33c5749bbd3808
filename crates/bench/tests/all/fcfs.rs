//! The suite `fcfs` without root, in small. Counts and model time are checked to the line; never a verdict on time.

use wholly_bench::cli::Options;
use wholly_bench::report::{Bound, CountRow, RunRow};
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

/// A run of a case by so many threads, idle for so many percent, with a delay.
fn timed<'r>(report: &'r Report, (case, system): (&str, &str), by: (u32, u32, f64)) -> &'r RunRow {
    let is_it =
        |row: &&RunRow| (&*row.case, &*row.system, (row.threads, row.idle_percent, row.delay_ns)) == (case, system, by);
    report.runs.iter().find(is_it).unwrap()
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
    assert_eq!(all("fine_grained_wal"), (15.0, 5.0, bytes, 1500.0 + 5.0 * 20.0));
}

/// Files of more than one part, and writes that end a run of blocks of the log; counts and runs in virtual time do not
/// depend on anything but the seed.
#[test]
fn counts_and_runs_are_the_same_each_time() {
    let of = |report: &Report| {
        let counts = report.counts.iter().map(|row| serde_json::to_string(row).unwrap());
        counts.chain(report.runs.iter().map(|row| serde_json::to_string(row).unwrap())).collect::<Vec<_>>()
    };
    let line = "--files 8 --case two_files --turns 1 --turn-ms 1 --emulate none";
    let [one, two] = [run(line), run(line)].map(|report| {
        for system in ["none", "fine_grained_wal", "hybrid_log", "hybrid_log:soc", "hybrid_log:sync"] {
            assert_eq!(row(&report, "two_files", system).formula, "equal to the line", "{system}");
        }
        assert!(bound(&report, "hybrid_log / none, wall time deferred").bound == 2.0);
        assert_eq!(report.machine.emulator, None);
        of(&report)
    });
    assert_eq!(one.len(), two.len());
    one.iter().zip(&two).for_each(|(one, two)| assert_eq!(one, two));
    // The first row is that of `none`.
    assert_ne!(one[0], of(&run(&format!("{line} --seed 2 --system none")))[0]);
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
    // Of fewer files, lists are so short that their content is often copied before it is covered.
    let systems = "--system hybrid_log --system hybrid_log:soc --system hybrid_log:sync";
    let report = run(&format!("--files 24 --case two_files --turns 1 --turn-ms 1 --emulate none {systems}"));
    let [hybrid, soc, sync] =
        ["hybrid_log", "hybrid_log:soc", "hybrid_log:sync"].map(|it| row(&report, "two_files", it));
    let ratio = soc.copied_lines / soc.phases["call"].lines;
    // What was written before the counts began goes home meanwhile, and what is written last does not.
    assert!((0.9..1.05).contains(&ratio), "SOC copies {ratio} of the lines");
    assert!(hybrid.copied_lines < sync.copied_lines && sync.copied_lines < soc.copied_lines);
    for words in ["bytes steady", "copied lines", "model time deferred (150"] {
        assert_eq!(bound(&report, words).met, Some(true), "{:?}", bound(&report, words));
    }
}

/// A run of one thread takes what its lines and fences take; of several, where nothing is in their way, as long each.
/// What stays idle does so for the share of its time that is said.
#[test]
fn runs_take_the_time_of_what_they_store() {
    let report = run("--tiny --case two_files --system fine_grained_wal --system page_cache_wal --turns 1 --turn-ms 1");
    let by = |system: &str, by| timed(&report, ("two_files", system), by);
    for (threads, idle, delay) in [(1, 0, 150.0), (2, 0, 150.0), (6, 0, 150.0), (6, 90, 150.0), (1, 0, 1600.0)] {
        for (system, fences) in [("none", 2.0), ("fine_grained_wal", 5.0)] {
            // In a log as small as this one, threads wait for a lane.
            if threads > 1 && system != "none" {
                continue;
            }
            let row = by(system, (threads, idle, delay));
            let busy = row.lines_per_group * delay + fences * 20.0;
            assert!((row.busy_ns / busy - 1.0).abs() < 1e-9, "{busy} is not {row:?}");
            // Threads that end earlier wait for the last one.
            let all = row.busy_ns / f64::from(threads) / (1.0 - f64::from(idle) / 100.0);
            assert!((1.0 - 1e-9..1.2).contains(&(row.ns_per_group / all)), "{all} is not {row:?}");
        }
    }
    // Its commits are batches, one at a time.
    let [one, six] = [1, 6].map(|threads| by("page_cache_wal", (threads, 0, 150.0)).ns_per_group);
    assert!(one / six < 4.0, "{one} {six}");
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
    let by = |system: &str, by| timed(&report, ("two_files", system), by);
    let is = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 1e-9, "{one} is not {other}");
    let latency = |system: &str| by(system, (1, 0, 150.0)).ns_per_group;
    is(point("7a", "shadow,"), latency("shadow") / 1e3);
    let bytes = |system: &str| by(system, (1, 0, 150.0)).bytes_per_group;
    is(point("7b", "hybrid_log,"), bytes("hybrid_log") / bytes("none"));
    is(point("7c", "fine_grained_wal,6,"), 1e9 / by("fine_grained_wal", (6, 0, 150.0)).ns_per_group);
    let of_4k = |system: &str| timed(&report, ("size_4k", system), (1, 0, 150.0)).ns_per_group;
    is(point("8", "fine_grained_wal,4096,"), of_4k("none") / of_4k("fine_grained_wal"));
    is(point("9", "none,50,"), 1e9 / by("none", (6, 50, 150.0)).ns_per_group);
    let at_1600 = |system: &str| by(system, (1, 0, 1600.0)).ns_per_group;
    is(point("10", "fine_grained_wal,1600,"), at_1600("none") / at_1600("fine_grained_wal"));
    assert!(point("11", "hybrid_log,") > 0.0);
    for figure in ["7a", "7b", "7c", "8", "9", "10", "11"] {
        let picture = read(&format!("fcfs-{figure}.svg"));
        assert!(picture.starts_with("<svg") && picture.contains("hybrid_log"), "{figure}: {picture}");
    }
    let claims = read("fcfs-claims.csv");
    let ratio = latency("fine_grained_wal") / latency("hybrid_log");
    let verdict = if ratio >= 0.9 * 1.96 { "held" } else { "refuted" };
    let line = format!("7a,\"latency, fine_grained_wal / hybrid_log\",1.96,\"{ratio:.3}\",{verdict},");
    assert!(claims.contains(&line), "{line} in {claims}");
    assert!(claims.contains("(--log-size 5G)\",not measured,"), "{claims}");
    std::fs::remove_dir_all(&dir).unwrap();
}
