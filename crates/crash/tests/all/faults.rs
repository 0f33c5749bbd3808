//! Faults of media beyond a crash: each is reported, or has no effect, or destroyed the end of a lane; see
//! `wholly_crash::faults`.

use wholly_crash::faults::{FaultOutcome, faults, lost_flushes};
use wholly_crash::{Setting, catalogue};

fn tried(setting: &str) -> FaultOutcome {
    let setting = Setting::named(setting);
    let mut all = FaultOutcome::default();
    for workload in &catalogue::all() {
        all.merge(faults(workload, &setting, 40));
        all.merge(lost_flushes(workload, &setting));
    }
    println!("{}: {all}", setting.name);
    all
}

/// Whatever rots, cannot be read or goes astray in the log, and whatever flush is lost: nothing is served that never
/// was, and nothing is gone without a word that something behind it tells of.
fn nothing_is_lost_without_a_word(setting: &str) {
    let all = tried(setting);
    let violations = all.violations.iter().map(ToString::to_string);
    let foul: Vec<String> = violations.chain(all.stale.iter().cloned()).collect();
    assert!(foul.is_empty(), "{} faults, such as\n{}", foul.len(), foul[..foul.len().min(20)].join("\n"));
    assert!(all.reported > all.tried / 5, "{all}");
}

#[test]
fn on_a_disk() {
    nothing_is_lost_without_a_word("disk");
}

#[test]
fn on_persistent_memory() {
    nothing_is_lost_without_a_word("pmem");
}
