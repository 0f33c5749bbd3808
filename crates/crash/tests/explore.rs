//! The crash explorer over the store: hand-written and drawn workloads, every world, no violation, every site a crash point.
//!
//! `WHOLLY_LONG=1` goes through more workloads and more states. No verdict depends on time.

use wholly_crash::{Job, Limits, Outcome, Setting, Workload, catalogue, coverage, explore_all};

fn long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

fn jobs(workloads: &[Workload], settings: &[&str]) -> Vec<Job> {
    let pairs = settings.iter().flat_map(|setting| workloads.iter().map(move |workload| (workload, setting)));
    pairs.map(|(workload, setting)| Job { workload: workload.clone(), setting: Setting::named(setting) }).collect()
}

fn random(from: u64, few: u64, many: u64) -> Vec<Workload> {
    (from..from + if long() { many } else { few }).map(catalogue::random).collect()
}

fn explored(what: &str, jobs: &[Job], limits: &Limits) -> Outcome {
    let outcome = explore_all(jobs, limits);
    println!("{what}: {outcome}");
    outcome.assert_clean();
    outcome
}

/// One test, so that its two workers are all there are, and one count of states.
#[test]
fn nothing_is_torn_lost_or_invented() {
    let limits = if long() { Limits::thorough() } else { Limits::quick() };
    let light = if long() { limits.clone() } else { Limits::hunt() };
    let hand_written = catalogue::all();
    let mut all = explored("pmem", &jobs(&hand_written, &["pmem"]), &limits);
    all.merge(explored("disk", &jobs(&hand_written, &["disk"]), &limits));
    let others: Vec<&str> =
        wholly_crash::SETTINGS.iter().map(|(name, _)| *name).filter(|name| !["pmem", "disk"].contains(name)).collect();
    all.merge(explored("other worlds", &jobs(&hand_written, &others), &light));
    all.merge(explored("drawn, pmem", &jobs(&random(0, 20, 200), &["pmem"]), &light));
    all.merge(explored("drawn, disk", &jobs(&random(200, 40, 600), &["disk", "disk-ext4"]), &light));
    all.merge(explored("drawn, policies", &jobs(&random(1000, 30, 400), &["disk", "pmem-over-disk"]), &light));
    println!("all: {all}\n{}", coverage::table(&all));
    assert_eq!(coverage::uncovered(&all), [], "sites that were no crash point");
}
