//! Another user exchanges what is in his directory while a group of the superuser's goes home: nothing comes of it
//! outside of that directory, whenever he does. (Whether he finds the moment within a call depends on luck here; the
//! moments between two calls `exchanged.rs` tries one by one.)
//!
//! Needs root.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::hostile::{SWAPS, change_all, exchange, furnish, look_before, make_new};
use crate::common::{Dir, small};
use wholly::{Group, Options, Store};
use wholly_host::{HostMedium, HostOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Checkpoint,
    Recover,
    Apply,
}

fn store(dir: &Path) -> wholly::Result<Store> {
    let host = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
    Store::open_with(dir, Options { background: false, ..small() }, host)
}

/// Has a group go home, with `during` run beside that.
fn go_home(name: &str, how: How, does: fn(&mut Group<'static>), during: impl FnOnce(&Path, &mut dyn FnMut())) {
    let dir = Dir::new(Path::new("/dev/shm"), name);
    furnish(&dir);
    let host = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
    Store::init_with(&*dir, &small(), host).unwrap();
    let outside = look_before(&dir);
    let open = store(&dir).unwrap();
    let mut group = open.begin();
    does(&mut group);
    let mut parked = None;
    match how {
        How::Apply => parked = Some(group.park("", None).unwrap()),
        _ => group.commit().unwrap(),
    }
    let mut open = Some(open);
    if how == How::Recover {
        open = None;
    }
    let mut home = || {
        // What it says is another question: it must not have gone elsewhere.
        match &open {
            None => drop(store(&dir).map(|store| store.checkpoint())),
            Some(store) => {
                let applied = parked.map(|id| store.apply(id));
                let _ = applied.is_none_or(|applied| applied.is_ok()).then(|| store.checkpoint());
            }
        }
    };
    during(&dir, &mut home);
    outside.check(&dir, name);
}

#[test]
fn one_exchange_after_the_commit_leads_nowhere() {
    for how in [How::Checkpoint, How::Recover, How::Apply] {
        for swap in SWAPS {
            // New names are in nobody's way, wherever they lead.
            for (what, does) in [("new", make_new as fn(&mut Group<'static>)), ("all", change_all)] {
                go_home(&format!("{how:?}-{swap:?}-{what}"), how, does, |dir, home| {
                    exchange(dir, swap);
                    home();
                    exchange(dir, swap);
                });
            }
        }
    }
}

/// Ten thousand of each kind of exchange, at the least, for each way home.
fn race(how: How) {
    for swap in SWAPS {
        let swaps = AtomicU64::new(0);
        for round in 0.. {
            if swaps.load(Ordering::Relaxed) >= 10_000 && round >= 20 {
                break;
            }
            go_home(&format!("race-{how:?}-{swap:?}"), how, change_all, |dir, home| {
                let ends = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        // Until it is as it was.
                        while !ends.load(Ordering::Relaxed) {
                            for _ in 0..2 {
                                exchange(dir, swap);
                                swaps.fetch_add(1, Ordering::Relaxed);
                                (0..swaps.load(Ordering::Relaxed) % 64).for_each(|_| std::hint::spin_loop());
                            }
                        }
                    });
                    home();
                    ends.store(true, Ordering::Relaxed);
                });
            });
        }
    }
}

#[test]
fn exchanges_beside_a_checkpoint_lead_nowhere() {
    race(How::Checkpoint);
}

#[test]
fn exchanges_beside_a_recovery_lead_nowhere() {
    race(How::Recover);
}

#[test]
fn exchanges_beside_an_apply_lead_nowhere() {
    race(How::Apply);
}

/// And without any the group is home.
#[test]
fn what_is_not_exchanged_goes_home() {
    let dir = Dir::new(Path::new("/dev/shm"), "links-home");
    furnish(&dir);
    Store::init_with(&*dir, &small(), HostOptions { medium: HostMedium::Disk, ..HostOptions::default() }).unwrap();
    let outside = look_before(&dir);
    let store = store(&dir).unwrap();
    let mut group = store.begin();
    change_all(&mut group);
    group.commit().unwrap();
    store.checkpoint().unwrap();
    outside.check_home(&dir, "home");
}
