//! A glance at all workloads that are written by hand, for `make check`: a few states of each point. `make test` goes
//! further.

use wholly_crash::{Job, Limits, Outcome, Seen, Setting, Workload, catalogue, explore_into, sequences};

/// One test, so that its two workers are all there are.
#[test]
fn no_workload_is_torn_at_a_glance() {
    let of_names = [sequences::by_hand(), sequences::parked(), sequences::staged(), sequences::adopted()].concat();
    let (seen, mut all) = (Seen::default(), Outcome::default());
    for (world, workloads) in [("pmem", catalogue::all()), ("disk", catalogue::all()), ("disk-ext4", of_names)] {
        let setting = Setting::named(world);
        let job = |workload: Workload| Job { subject: workload, setting: setting.clone() };
        let outcome = explore_into(&seen, &workloads.into_iter().map(job).collect::<Vec<_>>(), &Limits::glance());
        println!("{world}: {outcome}\n");
        outcome.assert_clean();
        all.merge(outcome);
    }
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    println!("all worlds: {all}");
}
