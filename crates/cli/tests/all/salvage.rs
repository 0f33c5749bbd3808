//! Damaged stores as a user meets them: every verb says so, none says that all is well, and `wholly salvage` is the way
//! out. What it can prove is tested in the core.

use super::common::{Place, Run, places, wholly};
use std::fs::{self, OpenOptions};
use std::path::PathBuf;

/// Runs `wholly salvage` to a directory next to it, which is removed with the value.
struct Out(PathBuf);

impl Drop for Out {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn salvage(place: &Place, options: &[&str]) -> (Run, Out) {
    let out = Out(place.dir.with_extension("out"));
    let paths = [place.dir.to_str().unwrap(), out.0.to_str().unwrap()];
    (wholly(&[&["salvage"], options, &paths].concat()), out)
}

fn cut_off_a_byte(place: &Place) {
    let log = OpenOptions::new().write(true).open(place.dir.join(".wholly/log")).unwrap();
    // Nothing of the groups is lost: they are at the first segment's begin.
    log.set_len(8192 + (1 << 20) - 1).unwrap();
}

/// What was damaged, and how.
type Damage = (&'static str, fn(&Place));

const DAMAGES: [Damage; 4] = [
    ("a byte cut off", cut_off_a_byte),
    ("no log", |place| fs::remove_file(place.dir.join(".wholly/log")).unwrap()),
    ("no superblock", |place| place.edit_log(|log| log[..8192].fill(0))),
    ("a rotten record", |place| {
        place.edit_log(|log| {
            let at = log.windows(100).position(|bytes| bytes == [2u8; 100]).expect("the second group");
            // Its head is somewhere before its payload.
            log[at / 4096 * 4096 - 4096..at].fill(0xff);
        });
    }),
];

#[test]
fn no_verb_says_that_all_is_well_and_each_names_the_way_out() {
    for (damage, inflict) in DAMAGES {
        for place in places() {
            place.run(&["init"]).exits(0);
            place.crash_after_groups(3);
            drop(place.open());
            inflict(&place);
            for verb in ["recover", "deinit", "check", "stat", "init"] {
                let run = place.run(&[verb]);
                let said = format!("{damage}: {verb}: {}{}", run.out, run.err);
                if verb == "init" && damage != "no log" && damage != "no superblock" {
                    run.exits(8);
                    continue;
                }
                run.exits(4);
                for word in [
                    "all files are current",
                    "is empty",
                    "nothing to recover",
                    "everything was written back",
                    "nothing is wrong",
                ] {
                    assert!(!said.contains(word), "{said}");
                }
                assert!(!said.contains("`wholly init"), "{said}");
                let names_it = if verb == "stat" { "`wholly check`" } else { "`wholly salvage DIR OUT`" };
                assert!(said.contains(names_it) || verb == "stat" && damage == "no log", "{said}");
            }
            assert!(place.dir.join(".wholly").exists());
        }
    }
}

#[test]
fn what_is_proven_is_copied_and_the_rest_is_named() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(3);
        cut_off_a_byte(&place);
        let (run, out) = salvage(&place, &[]);
        run.exits(4);
        assert!(run.out.contains("the log was cut off"), "{}", run.out);
        assert!(run.out.contains("group 1.") && run.out.contains("written (a, b)"), "{}", run.out);
        assert_eq!(fs::read(out.0.join("a")).unwrap()[..100], [3; 100]);
        assert_eq!(fs::read(out.0.join("b")).unwrap()[100..200], [3; 100]);
        assert!(!out.0.join(".wholly").exists());
        assert_eq!(fs::read(place.dir.join("a")).unwrap(), [0; 1000], "the original stays as it is");
        let again = salvage(&place, &[]).0;
        again.exits(8);
        assert!(again.err.contains("is not empty; name a directory"), "{}", again.err);
    }
}

#[test]
fn a_sound_store_is_copied_wholly() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(2);
        let (run, out) = salvage(&place, &["--json"]);
        let json = run.json();
        assert_eq!((&json["verb"], &json["whole"], &json["files"]), (&"salvage".into(), &true.into(), &2.into()));
        let groups = json["groups"].as_array().unwrap();
        assert!(groups.len() == 2 && groups.iter().all(|group| group["fate"] == "written"), "{json}");
        assert_eq!(fs::read(out.0.join("a")).unwrap()[..100], [2; 100]);
        let store = place.open();
        salvage(&place, &[]).0.exits(8);
        drop(store);
    }
}
