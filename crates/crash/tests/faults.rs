//! Faults of media beyond a crash. Rot that lies where a torn group would lie cannot be told from one; see `wholly_crash::faults`.

use wholly_crash::faults::{FaultOutcome, faults, lost_flushes};
use wholly_crash::{Setting, catalogue};

fn tried(setting: &str) -> FaultOutcome {
    let setting = Setting::named(setting);
    let mut all = FaultOutcome::default();
    for workload in catalogue::all().iter().filter(|w| !["log-full", "multi-part", "many-files"].contains(&&*w.name)) {
        all.merge(faults(workload, &setting, 40));
        all.merge(lost_flushes(workload, &setting));
    }
    println!("{}: {all}", setting.name);
    all
}

/// Whatever rots, cannot be read or goes astray in the log: no panic, and what cannot be read is reported.
#[test]
fn nothing_panics_and_what_cannot_be_read_is_reported() {
    for setting in ["disk", "pmem"] {
        let all = tried(setting);
        let foul: Vec<_> = all
            .violations
            .iter()
            .filter(|v| v.what.contains("panic") || v.replay.contains("unreadable"))
            .map(ToString::to_string)
            .collect();
        assert!(foul.is_empty(), "{}", foul.join("\n"));
        assert!(all.stale.iter().all(|name| !name.contains("unreadable")), "{:?}", all.stale);
        assert!(all.reported > all.tried / 5, "{all}");
    }
}
