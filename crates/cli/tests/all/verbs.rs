//! Each verb as a user meets it: the binary is run, on a disk and on emulated persistent memory.

use super::common::{Place, places, wholly};
use serde_json::Value;
use std::process::Command;

#[test]
fn init_says_what_the_file_system_offers() {
    for place in places() {
        let dry = place.run(&["init", "--dry-run"]);
        dry.exits(0);
        assert!(dry.out.contains("can become a store"), "{}", dry.out);
        assert!(!place.dir.join(".wholly").exists());

        let made = place.run(&["--json", "init", "--log-size", "256K"]).json();
        assert_eq!(made["made"], true);
        assert_eq!(made["log_bytes"], 256 << 10);
        assert_eq!(made["emulated"], place.emulated);
        let support = made["support"].as_str().unwrap();
        assert!(["supported", "degraded"].contains(&support));
        assert_eq!(made["reasons"].as_array().unwrap().is_empty(), support == "supported", "{made}");
        assert!(place.dir.join(".wholly").exists());
        let stat = place.run(&["--json", "stat"]).json();
        assert_eq!(stat["file_system"], made["file_system"]);
        // Nothing is tried by a verb that only reads.
        let reasons = made["reasons"].as_array().unwrap();
        assert!(stat["reasons"].as_array().unwrap().iter().all(|reason| reasons.contains(reason)), "{stat}");

        let again = place.run(&["init"]);
        again.exits(8);
        assert!(again.err.starts_with("wholly: init "), "{}", again.err);
        assert!(again.err.contains("already a store here; nothing was changed"), "{}", again.err);
    }
}

#[test]
fn emulated_media_are_called_that() {
    let place = Place::on_memory();
    for arguments in [&["init"][..], &["stat"], &["dump"]] {
        let run = place.run(arguments);
        run.exits(0);
        assert!(run.out.contains("emulated"), "{arguments:?}: {}", run.out);
    }
}

#[test]
fn stat_shows_what_is_not_home_and_changes_nothing() {
    for place in places() {
        place.run(&["init"]).exits(0);
        let before = place.run(&["--json", "stat"]).json();
        assert_eq!(before["pending"]["groups"], 0);
        assert_eq!(before["opens"], 0);
        place.crash_after_groups(3);
        for _ in 0..2 {
            let stat = place.run(&["stat", "--json"]).json();
            assert_eq!(stat["verb"], "stat");
            assert_eq!(stat["in_use"], false);
            assert_eq!(stat["opens"], 1);
            assert_eq!(stat["pending"]["groups"], 3);
            assert_eq!(stat["pending"]["files"], 2);
            assert_eq!(stat["pending"]["bytes"], 3 * 200);
            assert_eq!(stat["pending"]["blocks"], 2);
            assert_eq!(
                (&stat["pending"]["paths"][1]["path"], &stat["pending"]["paths"][1]["bytes"]),
                (&"b".into(), &300.into())
            );
            assert!(stat["last_opened"].as_i64() >= stat["made"].as_i64());
            assert_eq!(stat["log"]["segments_in_use"], 1);
        }
        let text = place.run(&["stat"]);
        text.exits(0);
        assert!(text.out.contains("3 committed groups: 600 B in 2 blocks of 2 files"), "{}", text.out);
        assert!(text.out.contains("opened       1 time, last less than a minute ago"), "{}", text.out);
        assert!(text.out.contains(" a: 300 B in 1 block\n"), "{}", text.out);
    }
}

#[test]
fn dump_prints_every_record_with_names() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(2);
        let dump = place.run(&["dump", "--json"]).json();
        assert_eq!(dump["superblocks"].as_array().unwrap().len(), 2);
        assert_eq!(dump["superblocks"].as_array().unwrap().iter().filter(|slot| slot["current"] == true).count(), 1);
        let records = dump["segments"][0]["records"].as_array().unwrap();
        assert_eq!(records.len(), 2);
        assert!(records.iter().all(|record| record["kind"] == "commit" && record["fate"] == "pending"));
        let writes: Vec<&Value> = entries(&records[1]).filter(|entry| entry["kind"] == "write").collect();
        assert_eq!(writes.len(), 2);
        assert_eq!(writes[0]["path"], "a");
        assert_eq!(
            (&writes[1]["path"], &writes[1]["offset"], &writes[1]["length"]),
            (&"b".into(), &100.into(), &100.into())
        );
        assert!(writes.iter().all(|entry| entry["payload"] == "good"));

        place.run(&["recover"]).exits(1);
        let home = place.run(&["dump", "--json"]).json();
        assert!(home["segments"].as_array().unwrap().is_empty(), "nothing is needed any more: {home}");
        let all = place.run(&["dump", "--all"]);
        all.exits(0);
        place.run(&["dump", "--segment", "999"]).exits(16);
    }
}

#[test]
fn dump_tells_what_becomes_of_space() {
    for place in places() {
        place.run(&["init"]).exits(0);
        let store = place.open();
        let a = store.open_file("a").expect("a");
        a.fallocate(wholly::Fallocate::ZeroExtend, 100, 10_000).expect("fallocate");
        drop((a, store));
        let dump = place.run(&["dump", "--json"]).json();
        let all = entries(&dump["segments"][0]["records"][0]);
        let spaces: Vec<_> = all.filter(|entry| entry["kind"] == "space").collect();
        let told = |i: usize| (&spaces[i]["path"], &spaces[i]["offset"], &spaces[i]["operands"]["becomes"]);
        // What was there, and what is behind its end.
        assert_eq!(spaces.len(), 2);
        assert_eq!(told(0), (&"a".into(), &100.into(), &"zeros".into()));
        assert_eq!(told(1), (&"a".into(), &100.into(), &"reserved, within the file".into()));
        assert_eq!(spaces[1]["operands"]["bytes"], 10_000);
        let text = place.run(&["dump"]);
        assert!(text.out.contains("10000 B reserved, within the file, from 100 on"), "{}", text.out);
        place.run(&["check"]).exits(0);
    }
}

#[test]
fn dump_tells_rot_by_its_place() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(2);
        // A bit of the payload: the bytes that the first group wrote.
        place.edit_log(|log| {
            let at = log.windows(100).position(|bytes| bytes == [1u8; 100]).expect("the payload of the first group");
            log[at + 50] ^= 4;
        });
        let dump = place.run(&["dump"]);
        dump.exits(4);
        assert!(dump.out.contains("PAYLOAD DOES NOT MATCH"), "{}", dump.out);
        let json: Value = serde_json::from_str(&place.run(&["dump", "--json"]).out).unwrap();
        assert_eq!(json["faults"].as_array().unwrap().len(), 1);
        place.run(&["stat"]).exits(4);
    }
}

#[test]
fn recover_takes_everything_home() {
    for place in places() {
        place.run(&["init"]).exits(0);
        let nothing = place.run(&["recover"]);
        nothing.exits(0);
        assert!(nothing.out.contains("nothing to recover"), "{}", nothing.out);
        place.crash_after_groups(5);
        assert_eq!(std::fs::read(place.dir.join("a")).unwrap(), [0; 1000], "not home yet");
        let run = place.run(&["recover", "--json"]);
        run.exits(1);
        let report: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(report["output_version"], 7);
        assert_eq!(report["groups"], 5);
        assert_eq!(report["files"], 2);
        assert!(report["conflicts"].as_array().unwrap().is_empty());
        assert_eq!(std::fs::read(place.dir.join("a")).unwrap()[..100], [5; 100]);
        assert_eq!(std::fs::read(place.dir.join("b")).unwrap()[100..200], [5; 100]);
        place.run(&["recover"]).exits(0);
    }
}

#[test]
fn recover_leaves_both_versions_of_a_conflict() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(1);
        std::fs::write(place.dir.join("b"), "by an editor").unwrap();
        let run = place.run(&["recover"]);
        run.exits(4);
        assert!(run.out.contains("conflict     b: "), "{}", run.out);
        assert_eq!(std::fs::read(place.dir.join("b")).unwrap(), b"by an editor");
        assert_eq!(std::fs::read(place.dir.join("a")).unwrap(), [0; 1000]);
        assert_eq!(place.run(&["stat", "--json"]).json()["pending"]["groups"], 1);
    }
}

#[test]
fn a_copy_is_recovered_only_where_it_is_to_be_adopted() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(2);
        let copy = place.dir.with_extension("copy");
        assert!(Command::new("cp").arg("-a").args([&place.dir, &copy]).status().expect("cp").success());
        let copied = copy.to_str().expect("UTF-8");
        let refused = wholly(&["recover", copied]);
        refused.exits(8);
        assert!(refused.err.contains("this is a copy: its log holds 2 groups"), "{}", refused.err);
        let checked = wholly(&["check", copied]);
        checked.exits(4);
        assert!(checked.out.starts_with("copy: log: ") && checked.out.contains("--accept-copy"), "{}", checked.out);
        let adopted = wholly(&["recover", "--accept-copy", copied]);
        adopted.exits(1);
        assert!(adopted.out.contains("adopted      the copy"), "{}", adopted.out);
        wholly(&["recover", copied]).exits(0);
        std::fs::remove_dir_all(&copy).expect("remove the copy");
        place.run(&["recover", "--accept-copy"]).exits(1);
    }
}

#[test]
fn a_store_in_use_is_shown_but_not_recovered() {
    for place in places() {
        place.run(&["init"]).exits(0);
        let store = place.open();
        let busy = place.run(&["recover"]);
        busy.exits(8);
        let owner = format!("process {} has the store open", std::process::id());
        assert!(busy.err.contains(&owner), "{}", busy.err);
        assert!(busy.err.contains("; wait until"), "{}", busy.err);
        let stat = place.run(&["stat", "--json"]).json();
        assert_eq!((&stat["in_use"], &stat["owner_pid"]), (&true.into(), &std::process::id().into()));
        let text = place.run(&["stat"]);
        assert!(text.out.contains(&format!("in use by    process {}", std::process::id())), "{}", text.out);
        place.run(&["dump"]).exits(0);
        store.close().unwrap();
        assert_eq!(place.run(&["stat", "--json"]).json()["in_use"], false, "the number in the lock is an old one");
    }
}

/// The log is read while it is written, freed and used again: that is never taken for damage.
#[test]
fn a_busy_store_is_not_called_damaged() {
    for place in places() {
        place.run(&["init", "--log-size", "64K"]).exits(0);
        let store = wholly::Store::open(&place.dir).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = store.open_file("a").unwrap();
                for number in 0u32.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    file.write_at(u64::from(number % 900), &number.to_le_bytes().repeat(25)).unwrap();
                }
            });
            for _ in 0..40 {
                for verb in ["stat", "dump"] {
                    let run = place.run(&[verb, "--json"]);
                    if run.code != Some(0) {
                        stop.store(true, std::sync::atomic::Ordering::Relaxed);
                    }
                    run.exits(0);
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        store.close().unwrap();
    }
}

#[test]
fn what_is_no_store_is_called_that() {
    for place in places() {
        for verb in ["stat", "dump", "recover", "check", "deinit"] {
            let run = place.run(&[verb]);
            run.exits(8);
            assert!(run.err.contains("there is no store in this directory; `wholly init"), "{}", run.err);
            assert!(run.out.is_empty());
        }
    }
    for (verb, why) in
        [("undo", "nothing can be taken back"), ("diff", "nothing is parked"), ("list", "nothing is parked")]
    {
        for place in places() {
            let run = place.run(&[verb]);
            run.exits(8);
            assert!(
                run.err.contains(&format!("{why} here; name the directory that the command ran in")),
                "{}",
                run.err
            );
        }
    }
    let nowhere = wholly(&["stat", "/nonexistent/directory"]);
    nowhere.exits(8);
    assert!(nowhere.err.starts_with("wholly: stat /nonexistent/directory: "), "{}", nowhere.err);
    let nowhere = wholly(&["init", "/nonexistent/directory"]);
    nowhere.exits(8);
    assert!(nowhere.err.contains("no such directory; create it with mkdir"), "{}", nowhere.err);
}

#[test]
fn a_corrupt_superblock_is_damage() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.open().close().unwrap();
        place.edit_log(|log| {
            log[40] ^= 1;
            log[4096 + 40] ^= 1;
        });
        let recover = place.run(&["recover"]);
        recover.exits(4);
        assert!(recover.err.contains("the store is damaged at superblock"), "{}", recover.err);
        let stat = place.run(&["stat"]);
        stat.exits(4);
        assert!(stat.out.contains("damaged      superblock"), "{}", stat.out);
        let dump = place.run(&["dump", "--json"]);
        dump.exits(4);
        let dump: Value = serde_json::from_str(&dump.out).unwrap();
        assert!(dump["superblocks"][0]["fault"].as_str().unwrap().contains("checksum"));
    }
}

/// A store made for one medium is opened for that by every verb, whatever the directory would be taken for by itself.
#[test]
fn the_medium_of_init_is_kept() {
    for (place, medium) in [(Place::on_memory(), "disk"), (Place::on_disk(), "pmem")] {
        place.run(&["init", "--medium", medium]).exits(0);
        place.run(&["recover"]).exits(0);
        let stat = place.run(&["stat", "--json"]).json();
        let words = if medium == "disk" { "disk" } else { "persistent memory" };
        assert!(stat["medium"].as_str().unwrap().contains(words), "{stat}");
        assert_eq!(stat["emulated"], true);
    }
}

fn entries(record: &Value) -> impl Iterator<Item = &Value> {
    record["entries"].as_array().unwrap().iter()
}
