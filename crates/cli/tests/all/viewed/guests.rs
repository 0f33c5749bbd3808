//! Directories that are stores only for as long as a command runs: what is left of one whose command was killed, and
//! who makes it one for good.

use super::common::{self, Place, may_mount, places, wholly};
use wholly::{Options, Store};

/// Leaves what `wholly run` leaves that was killed when its group had committed, and perhaps another group that is
/// parked.
fn left_behind(place: &Place, is_parked: bool) {
    let options = Options { background: false, ..Options::default() };
    Store::init_temporary(&place.dir, &options).unwrap();
    let store = Store::open_with(&place.dir, options, Default::default()).unwrap();
    store.mkdir("made", 0o700).unwrap();
    if is_parked {
        let mut group = store.begin();
        group.mkdir("parked", 0o700).unwrap();
        group.park("", None).unwrap();
        store.mkdir("more", 0o700).unwrap();
    }
}

fn has_store(place: &Place) -> bool {
    place.dir.join(".wholly").exists()
}

#[test]
fn recover_removes_what_a_killed_command_has_left() {
    for place in places() {
        left_behind(&place, false);
        let run = place.run(&["recover"]);
        run.exits(1);
        assert!(run.out.contains("removed      the folder .wholly"), "{}", run.out);
        assert!(!has_store(&place) && place.dir.join("made").exists());
        // With something parked in it, it stays what it is.
        let below = Place { dir: place.dir.join("made"), emulated: place.emulated };
        left_behind(&below, true);
        assert_eq!(below.run(&["--json", "list"]).json()["groups"].as_array().map(Vec::len), Some(1));
        assert!(has_store(&below));
        below.run(&["recover"]).exits(1);
        assert!(has_store(&below) && Store::is_temporary_in(&below.dir).unwrap() && below.dir.join("more").exists());
    }
}

#[test]
fn init_makes_it_one_for_good() {
    for place in places() {
        left_behind(&place, false);
        // It keeps the log that it has.
        let refused = place.run(&["init", "--log-size", "256K"]);
        refused.exits(8);
        assert!(refused.err.contains("the size of its log cannot be changed"), "{}", refused.err);
        assert!(Store::is_temporary_in(&place.dir).unwrap());
        let made = place.run(&["--json", "init"]).json();
        assert_eq!(made["made"], true);
        let log = std::fs::metadata(place.dir.join(".wholly/log")).unwrap().len();
        assert!(made["log_bytes"].as_u64().unwrap() > 256 << 10 && log > 256 << 10);
        assert!(!Store::is_temporary_in(&place.dir).unwrap());
        place.run(&["recover"]).exits(1);
        assert!(has_store(&place) && place.dir.join("made").exists());
        place.run(&["init"]).exits(8);
    }
}

#[test]
fn the_next_command_removes_it() {
    if !may_mount() {
        return;
    }
    let run = |place: &Place, command: &str| {
        let dir = place.dir.to_str().unwrap();
        wholly(&["run", "--dir", dir, "--", "sh", "-c", command])
    };
    for place in places() {
        // Whatever becomes of the next command, what the killed one had committed is there.
        left_behind(&place, false);
        run(&place, "exit 3").exits(3);
        assert!(!has_store(&place) && place.dir.join("made").exists());

        std::fs::remove_dir(place.dir.join("made")).unwrap();
        left_behind(&place, false);
        run(&place, "true").exits(0);
        assert!(!has_store(&place) && place.dir.join("made").exists());
    }
}

#[test]
fn a_mount_makes_it_one_for_good() {
    if !may_mount() {
        return;
    }
    for place in places() {
        left_behind(&place, false);
        let dir = place.dir.to_str().unwrap();
        wholly(&["mount", dir]).exits(0);
        common::umount(&place.dir);
        common::wait_until_unused(&place.dir);
        assert!(has_store(&place) && !Store::is_temporary_in(&place.dir).unwrap() && place.dir.join("made").exists());
    }
}

/// A crash in the middle of making or removing a store leaves a folder of another name. `recover` removes it, whether
/// there is a store or not; one that somebody works on stays.
#[test]
fn what_was_half_made_or_half_removed_is_removed() {
    for place in places() {
        let half = |name: &str| {
            let folder = place.dir.join(format!(".wholly.unfinished-{name}"));
            std::fs::create_dir(&folder).unwrap();
            for file in ["lock", "log"] {
                std::fs::write(folder.join(file), "half").unwrap();
            }
            folder
        };
        place.run(&["recover"]).exits(8);
        let (one, drawn) = (half("1"), half("5eed"));
        let recovered = place.run(&["recover"]);
        recovered.exits(1);
        assert!(recovered.out.contains("there is no store\n  removed      2 folders"), "{}", recovered.out);
        assert!(!one.exists() && !drawn.exists());
        place.run(&["recover"]).exits(8);

        place.run(&["init"]).exits(0);
        let (one, mine) = (half("1"), half("2"));
        let locked = std::fs::File::open(mine.join("lock")).unwrap();
        rustix::fs::fcntl_lock(&locked, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
        let recovered = place.run(&["--json", "recover"]);
        recovered.exits(1);
        let told: serde_json::Value = serde_json::from_str(&recovered.out).unwrap();
        assert_eq!((&told["leftovers"], &told["groups"]), (&1.into(), &0.into()), "{told}");
        assert!(!one.exists() && mine.exists());
        drop(locked);
        place.run(&["recover"]).exits(1);
        place.run(&["recover"]).exits(0);
        place.run(&["deinit"]).exits(0);
    }
}
