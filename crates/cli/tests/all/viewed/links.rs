//! Another user exchanges what is in his directory once a command of the superuser has ended there, while its changes
//! are written back: nothing comes of it outside of that directory.
//!
//! Needs root.

#[path = "../../../../core/tests/all/common/hostile.rs"]
#[allow(dead_code, reason = "what groups do there, the command does here")]
mod hostile;

use super::common::run::Rig;
use super::common::wholly;
use hostile::{SWAPS, exchange, furnish, look_before};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What [`hostile::change_all`] does, and then tells that it has.
const COMMAND: &str = "set -e; cd \"$1\"
    echo written > A/r/f; chmod 666 A/r/g; chown 1001:1001 A/r/g; ln A/r/k etc/k2; mv A/r/x etc/x2; mv A/r/d etc/d2
    rm A/r/y; rmdir A/r/z; mv etc/h A/r/h2; mv etc/h3 A/r/f2
    printf new > A/r/new; mkdir -m 777 A/r/newdir; echo > A/r/newdir/inner; ln -s target A/r/newlink; mkfifo -m 666 A/r/newfifo
    echo > ../ended";

/// Has the command's changes go home, with `during` run beside that from its end on.
fn go_home(rig: &Rig, name: &str, during: impl Fn(&Path, &AtomicBool) + Sync) {
    let place = rig.path(name);
    let (dir, ended) = (place.join("dir"), place.join("ended"));
    std::fs::create_dir_all(&dir).unwrap();
    furnish(&dir);
    let outside = look_before(&dir);
    let is_home = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.exists() && !is_home.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            during(&dir, &is_home);
        });
        // How it ends is another question: its changes must not have gone elsewhere.
        wholly(&["run", "--dir", dir.to_str().unwrap(), "--", "sh", "-c", COMMAND, "sh", dir.to_str().unwrap()]);
        is_home.store(true, Ordering::Relaxed);
    });
    assert!(ended.exists(), "{name}: the command has not ended");
    outside.check(&dir, name);
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn exchanges_after_a_command_lead_nowhere() {
    let Some(rig) = Rig::new("links") else { return };
    for swap in SWAPS {
        let swaps = AtomicU64::new(0);
        for round in 0.. {
            if swaps.load(Ordering::Relaxed) >= 10_000 && round >= 5 {
                break;
            }
            go_home(&rig, &format!("{swap:?}"), |dir, is_home| {
                while !is_home.load(Ordering::Relaxed) {
                    // Until it is as it was.
                    for _ in 0..2 {
                        exchange(dir, swap);
                        swaps.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }
}

/// And one exchange, for as long as its changes go home.
#[test]
fn one_exchange_after_a_command_leads_nowhere() {
    let Some(rig) = Rig::new("one-link") else { return };
    for swap in SWAPS {
        go_home(&rig, &format!("{swap:?}"), |dir, is_home| {
            exchange(dir, swap);
            while !is_home.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            exchange(dir, swap);
        });
    }
}

/// Without any, all of it is home.
#[test]
fn what_is_not_exchanged_goes_home() {
    let Some(rig) = Rig::new("no-link") else { return };
    let dir = rig.path("dir");
    std::fs::create_dir(&dir).unwrap();
    furnish(&dir);
    let outside = look_before(&dir);
    let command = format!("{COMMAND}; touch -d @0.000000005 A/r/g; chmod 666 A/r/new");
    let dir_name = dir.to_str().unwrap();
    wholly(&["run", "--dir", dir_name, "--", "sh", "-c", &command, "sh", dir_name]).exits(0);
    outside.check_home(&dir, "home");
}
