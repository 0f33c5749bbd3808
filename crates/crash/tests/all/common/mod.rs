//! What the tests that explore worlds share.

use wholly_crash::{Job, Limits, Outcome, Seen, Setting, Workload, explore_into};

/// Whether to go through more than `make test` does: see `docs/crash-model.md`.
pub fn is_long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

/// Explores workloads in a world, prints what came of it, and fails where anything is wrong. In a short run, one in two
/// of the states that keep all or nothing is crashed inside of its recovery: where all are, these take most of the
/// time.
pub fn explored(seen: &Seen, workloads: &[Workload], setting: &Setting, limits: &Limits) -> Outcome {
    let least = if is_long() { 1 } else { 2 };
    let limits = &Limits { whole_one_in: limits.whole_one_in.max(least), ..limits.clone() };
    let job = |workload: &Workload| Job { subject: workload.clone(), setting: setting.clone() };
    let outcome = explore_into(seen, &workloads.iter().map(job).collect::<Vec<_>>(), limits);
    println!("{}: {} workloads, {outcome}\n", setting.name, workloads.len());
    outcome.assert_clean();
    outcome
}
