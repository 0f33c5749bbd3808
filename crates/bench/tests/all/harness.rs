//! The harness with a system that only counts, and each suite with the smallest sizes. Never a verdict on time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wholly_bench::cli::Options;
use wholly_bench::harness::{self, Plan};
use wholly_bench::place::{Medium, Place};
use wholly_bench::report::Bound;
use wholly_bench::system::{Counters, Prepared, Ready, System};
use wholly_bench::workload::{Payload, Size, Update};
use wholly_bench::{Case, Report, Result, suites, systems};
use wholly_media::pmem::Emulation;

/// What happened, in order.
#[derive(Default)]
struct Journal {
    turns: Vec<(&'static str, Vec<Update>)>,
    settled: usize,
    finished: usize,
}

/// Writes ten bytes and fences twice a group, by its own account.
struct Counting {
    name: &'static str,
    journal: Rc<RefCell<Journal>>,
    groups: u64,
    pause: Duration,
    this_turn: Vec<Update>,
    ready: Prepared,
}

impl Counting {
    fn boxed(name: &'static str, journal: &Rc<RefCell<Journal>>, ready: Prepared) -> Box<dyn System> {
        Box::new(Counting {
            name,
            journal: journal.clone(),
            groups: 0,
            pause: Duration::ZERO,
            this_turn: Vec::new(),
            ready,
        })
    }
}

impl System for Counting {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&mut self, _: &Case, place: &Place) -> Result<Prepared> {
        assert_eq!(std::fs::read_dir(&place.dir)?.count(), 0, "each system has an empty directory");
        Ok(self.ready.clone())
    }

    fn run_group(&mut self, group: &[Update], _: &Payload) -> Result<()> {
        std::thread::sleep(self.pause);
        self.groups += 1;
        self.this_turn.extend_from_slice(group);
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        let mut journal = self.journal.borrow_mut();
        journal.settled += 1;
        journal.turns.push((self.name, std::mem::take(&mut self.this_turn)));
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters { bytes_written: Some(10 * self.groups), fences: Some(2 * self.groups), syncs: None }
    }

    fn finish(&mut self) -> Result<()> {
        self.journal.borrow_mut().finished += 1;
        Ok(())
    }
}

const CASE: Case =
    Case { suite: "s", name: "c", files: 4, file_bytes: 1 << 20, updates: 2, size: Size::Aligned(64), on_disk: false };

fn plan() -> Plan {
    Plan {
        cases: vec![CASE],
        media: vec![Medium::PmemDir(std::env::temp_dir())],
        turns: 3,
        turn: Duration::from_millis(1),
        seed: 1,
        base: "b".into(),
        emulation: Emulation::None,
        log_bytes: 0,
        tiny: true,
    }
}

#[test]
fn systems_take_turns_with_the_same_groups() {
    let journal = Rc::default();
    let ready = Prepared::Ready(Ready { deferred: true, ..Ready::default() });
    let skipped = Prepared::Skipped("no".into());
    let mut systems = [
        Counting::boxed("a", &journal, ready),
        Counting::boxed("no", &journal, skipped),
        Counting::boxed("b", &journal, Prepared::Ready(Ready::default())),
    ];
    let report = harness::run(&plan(), &mut systems, &mut |_| {}).unwrap();

    let journal = journal.borrow();
    let names: Vec<_> = journal.turns.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["a", "b", "b", "a", "a", "b", "a", "b"], "three turns in rotation, then one for latencies");
    for pair in journal.turns.chunks(2) {
        assert_eq!(pair[0].1, pair[1].1, "the same groups for both");
    }
    assert_ne!(journal.turns[0].1, journal.turns[2].1, "other groups in the next turn");
    assert_eq!((journal.settled, journal.finished), (8, 2));

    let [a, b] = &report.rows[..] else { panic!("{report:?}") };
    assert_eq!((a.system.as_str(), b.system.as_str()), ("a", "b"));
    assert_eq!((a.bytes_written_per_group, a.fences_per_group, a.syncs_per_group), (Some(10.0), Some(2.0), None));
    assert_eq!(a.ratio, Some(a.ns_per_group / b.ns_per_group));
    assert_eq!(b.ratio, Some(1.0));
    assert!(a.deferred && !b.deferred);
    assert_eq!((a.value_bytes, a.groups), (64, 24));
    assert!(a.p99_ns.is_some());
    assert_eq!(report.skipped[0].system.as_deref(), Some("no"));
    assert!(report.machine.media[0].emulated);
}

#[test]
fn latencies_and_turns_measure_the_same_groups() {
    let system = Counting {
        name: "b",
        journal: Rc::default(),
        groups: 0,
        pause: Duration::from_micros(500),
        this_turn: Vec::new(),
        ready: Prepared::Ready(Ready::default()),
    };
    let mut systems: [Box<dyn System>; 1] = [Box::new(system)];
    let report = harness::run(&plan(), &mut systems, &mut |_| {}).unwrap();
    let row = &report.rows[0];
    // A sleep never ends early; how late it ends is no business of this test.
    assert!(row.ns_per_group >= 500_000.0 && row.p99_ns.unwrap() >= 500_000.0, "{row:?}");
}

#[test]
fn a_turn_writes_three_times_the_log() {
    let journal = Rc::default();
    let groups_per_log = 10_000;
    let ready = Prepared::Ready(Ready { groups_per_log, ..Ready::default() });
    let mut systems = [Counting::boxed("b", &journal, ready)];
    let plan = Plan { tiny: false, turn: Duration::from_nanos(1), ..plan() };
    harness::run(&plan, &mut systems, &mut |_| {}).unwrap();
    // The first turn of all is the calibration's.
    for (_, updates) in &journal.borrow().turns[1..] {
        assert!((updates.len() / CASE.updates) as u64 >= 3 * groups_per_log);
    }
}

#[test]
fn an_emulator_slows_raw_down_and_is_named() {
    let line = "groups --case one_4k --turns 1 --turn-ms 2 --emulate paper";
    let options = Options::parse(line.split(' ').map(str::to_owned)).unwrap();
    let plan = Plan { media: vec![Medium::PmemDir("/dev/shm".into())], ..options.plan().unwrap() };
    let mut systems = systems::all();
    let report = harness::run(&plan, &mut systems, &mut |_| {}).unwrap();
    assert!(report.machine.emulator.unwrap().contains("150 ns"));
    // 64 lines of 150 ns each: the emulator waits at least as long, whatever the machine.
    assert!(report.rows[0].ns_per_group >= 64.0 * 150.0, "{:?}", report.rows[0]);
}

#[test]
fn every_suite_runs_with_a_tiny_size() {
    // `fcfs` and `minl2r` have files of their own; the command's tests run the rest.
    let elsewhere = ["run", "mount", "volume", "fcfs", "minl2r", "ccnvme", "journal", "mqfs"];
    for suite in suites::NAMES.into_iter().filter(|suite| !elsewhere.contains(suite)) {
        let options = Options::parse([suite.to_owned(), "--tiny".to_owned()]).unwrap();
        let report = options.run(systems::all()).unwrap();
        let text = serde_json::to_string(&report).unwrap();
        let again: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(again.rows.len(), report.rows.len());
        assert!(report.table().contains("s/group"), "{}", report.table());
        assert_eq!(again.table(), report.table());
        let all_there = std::env::var_os("CI").is_some_and(|v| v == "true");
        if all_there {
            assert!(report.skipped.is_empty(), "{:?}", report.skipped);
        }
        for skipped in &report.skipped {
            eprintln!("skipped {skipped:?}");
        }
        for case in suites::by_name(suite).unwrap() {
            let media = match (suite, case.on_disk) {
                ("store", true) => 2,
                (_, on_disk) => {
                    if on_disk {
                        3
                    } else {
                        1
                    }
                }
            };
            let systems: &[&str] = match (suite, case.name) {
                ("store", "create_10k") => &["plain_syncfs", "store", "store_deferred", "fsync_each"],
                ("store", "replace" | "overwrite") => &["rename", "store", "store_deferred"],
                ("store", "rewrite_1g") => &["new_file", "store", "store_deferred"],
                ("store", name) if name.starts_with("write_") || name.starts_with("over_") => {
                    &["new_file", "staged", "staged_deferred", "logged", "logged_deferred"]
                }
                ("store", name) if name.starts_with("read_clean_") => &["mapping", "store_deferred"],
                ("store", "epoch_1g") => &["raw", "store_deferred"],
                ("store", name) if name.starts_with("epoch_") => &["raw", "store_deferred", "hybrid_log", "none"],
                ("store", _) => &["pread", "store"],
                (_, "idle") => &["store"],
                _ => &["raw", "store"],
            };
            for &system in systems {
                let rows =
                    report.rows.iter().filter(|row| row.case == case.name && row.system == system && row.threads == 1);
                let skipped = report
                    .skipped
                    .iter()
                    .filter(|s| s.case == case.name && s.system.as_deref().is_none_or(|skipped| skipped == system));
                assert_eq!(rows.count() + skipped.count(), media, "{system} in {}", case.name);
            }
        }
        for row in report.rows.iter().filter(|row| row.suite == "open" && row.system == "store") {
            let idle = row.case == "idle";
            assert!(row.open_ns.is_some() && row.close_ns.is_some() == idle && row.memory_bytes.is_some() != idle);
            assert_eq!(row.ns_per_group.is_nan(), idle);
        }
        for row in report.rows.iter().filter(|row| row.suite == "store" && row.system == "store_deferred") {
            let is_epoch = row.case.starts_with("epoch_") && row.case != "epoch_fsync_4k";
            assert_eq!(row.log.is_some(), is_epoch, "{row:?}");
            if let Some(log) = row.log {
                assert!(log.peak_bytes > 0 && log.distinct_bytes > 0 && log.distinct_bytes <= 1 << 20, "{row:?}");
                let bounded = |bound: &&Bound| bound.what.contains(&row.case) && bound.what.contains("MiB of log");
                assert_eq!(report.bounds.iter().filter(bounded).count(), 1, "{row:?}");
            }
        }
        for row in report.rows.iter().filter(|row| row.suite == "groups" && row.system == "raw") {
            let pmem = row.medium == "pmem";
            assert_eq!(row.fences_per_group, pmem.then_some(1.0), "raw fences once a group");
            assert_eq!(row.syncs_per_group, Some(if pmem { 0.0 } else { 1.0 }));
        }
    }
}
