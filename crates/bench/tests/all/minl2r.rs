//! The suite `minl2r`, in small: counts are checked to the line, never a verdict on time. The ext4 needs the superuser.

use wholly_bench::cli::Options;
use wholly_bench::report::CountRow;
use wholly_bench::{Report, systems};

/// Runs the suite on the memory of the machine.
fn run(line: &str) -> Report {
    let line = format!("minl2r --pmem /dev/shm --turns 1 --turn-ms 1 {line}");
    let options = Options::parse(line.split_whitespace().map(str::to_owned)).unwrap();
    options.run(systems::all()).unwrap()
}

fn row<'r>(report: &'r Report, case: &str, system: &str) -> &'r CountRow {
    let found = report.counts.iter().find(|row| row.case == case && row.system == system);
    found.unwrap_or_else(|| panic!("{system} in {case}"))
}

fn lines(report: &Report, case: &str, system: &str) -> f64 {
    row(report, case, system).all(|count| count.lines)
}

#[test]
fn records_cost_what_is_said() {
    let report = run("--tiny");
    for counted in &report.counts {
        match &*counted.system {
            "undo:shared" => assert!(counted.formula.contains("not durable") || counted.formula.contains("nothing is")),
            system if system.starts_with("ext4") => assert!(counted.formula.contains("device")),
            _ => assert_eq!(counted.formula, "equal to the line", "{} in {}", counted.system, counted.case),
        }
    }
    // By hand: the tables of the engines' pages.
    let of_undo = [("1k", 37.0), ("2k", 70.0), ("4k", 70.0), ("8k", 134.0), ("32k", 519.0)];
    of_undo.iter().for_each(|(size, wanted)| assert_eq!(lines(&report, &format!("fio_{size}"), "undo"), *wanted));
    let of_shortcut = [("1k", 38.0), ("2k", 70.0), ("4k", 70.0)];
    of_shortcut
        .iter()
        .for_each(|(size, wanted)| assert_eq!(lines(&report, &format!("fio_{size}"), "shortcut_jfs"), *wanted));
    assert_eq!(lines(&report, "fio_1k", "none"), 17.0);
    // Four records of 1 KiB through the buffer are one write of a block.
    assert_eq!(lines(&report, "iozone_fwrite_1k", "undo"), 70.0 / 4.0);
    // Old bytes, the head of them, and times; old content of a moved block is not logged.
    let backup = |case: &str, system: &str| row(&report, case, system).phases["backup"].bytes;
    assert_eq!(backup("backup_1k", "undo"), (64 + 1024 + 64 + 56) as f64);
    assert_eq!(backup("backup_4k", "undo"), (64 + 64 + 56) as f64);
    assert!(backup("backup_4k", "shadow") >= 2.0 * 4096.0);
    // Deferred, nothing is stored twice.
    assert!(lines(&report, "fio_4k", "undo:shared") <= lines(&report, "fio_4k", "undo"));
    let case = |name: &str| report.rows.iter().find(|row| row.case == name && row.system == "undo").unwrap();
    assert!(case("fio_4k").ratio.is_some() && case("iozone_random_512k").ratio.is_some());
}

/// Counts do not depend on anything but the seed.
#[test]
fn counts_are_the_same_each_time() {
    let counted = || serde_json::to_string(&run("--tiny --case fio --system undo").counts).unwrap();
    assert_eq!(counted(), counted());
}

/// The threshold with the fewest bytes is half of a block, and every bound on counts is met.
#[test]
fn half_of_a_block_is_best() {
    let report = run("--case threshold --system undo");
    let bytes = |percent: u32| row(&report, &format!("threshold_{percent}"), "undo").all(|count| count.bytes);
    for percent in [10, 20, 30, 40, 60, 70, 80, 90] {
        assert!(bytes(percent) > bytes(50), "{percent}");
    }
    let bound = report.bounds.iter().find(|bound| bound.what.contains("threshold")).unwrap();
    assert_eq!((bound.value, bound.met), (Some(0.0), Some(true)));
    let of_ratio = run("--tiny --case fio").bounds;
    let of_volumes = of_ratio.iter().filter(|bound| bound.what.contains("shadow") || bound.what.contains("shortcut"));
    assert_eq!(of_volumes.clone().count(), 12);
    of_volumes.for_each(|bound| assert_eq!(bound.met, Some(true), "{bound:?}"));
}

/// A real ext4 in both modes beside the volumes, in the same run.
#[test]
fn ext4_is_measured_beside() {
    let report = run("--tiny --case fio");
    let measured = |system: &str| report.rows.iter().any(|row| row.system == system);
    let is_promised = std::env::var_os("CI").is_some_and(|value| value == "true");
    for system in ["ext4:journal", "ext4:ordered"] {
        match report.skipped.iter().find(|skipped| skipped.system.as_deref() == Some(system)) {
            Some(skipped) if !is_promised => eprintln!("skipped {system}: {}", skipped.reason),
            Some(skipped) => panic!("{system}: {}", skipped.reason),
            None => assert!(measured(system) && lines(&report, "fio_1k", system) >= 16.0, "{system}"),
        }
    }
}

/// The paper's figures: a line of CSV for each point, a picture, and its claims beside what was counted.
#[test]
fn figures_are_written() {
    let dir = std::env::temp_dir().join(format!("wholly-minl2r-{}", std::process::id()));
    let report = run(&format!("--tiny --figures {}", dir.display()));
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let point = |figure: &str, begin: &str| {
        let csv = read(&format!("minl2r-{figure}.csv"));
        let line = csv.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin} in {csv}"));
        line.rsplit(',').next().unwrap().parse::<f64>().unwrap()
    };
    let is = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 1e-9, "{one} is not {other}");
    let model = |case: &str, system: &str, bytes: f64| bytes * 1e3 / row(&report, case, system).model_ns;
    is(point("6", "undo,4,"), model("fio_4k", "undo", 4096.0));
    is(point("7b", "shadow,512,"), model("iozone_random_512k", "shadow", 524_288.0));
    is(point("8", "undo,1,"), row(&report, "backup_1k", "undo").phases["backup"].bytes);
    assert!(point("5", "undo,50,") > 0.0 && point("6-wall", "undo,4,") > 0.0);
    for figure in ["5", "6", "6-wall", "7a", "7b", "7c", "7b-wall", "8"] {
        let picture = read(&format!("minl2r-{figure}.svg"));
        assert!(picture.starts_with("<svg") && picture.contains("undo"), "{figure}: {picture}");
    }
    let claims = read("minl2r-claims.csv");
    let ratio = |kib: u32| {
        let case = format!("fio_{kib}k");
        row(&report, &case, "shadow").model_ns / row(&report, &case, "undo").model_ns
    };
    let best = [1, 2, 4, 8, 16, 32].map(ratio).into_iter().fold(0.0, f64::max);
    let line = format!(
        "6,\"undo / shadow (copies up to the root; by count 1.83 at best), best size\",2.86,\"{best:.3}\",held,"
    );
    assert!(claims.contains(&line), "{line} in {claims}");
    std::fs::remove_dir_all(&dir).unwrap();
}
