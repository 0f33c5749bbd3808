//! Stores that are remembered, and `wholly recover --all`.

use super::common::{Place, Run, places, wholly, wholly_with};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A registry that goes with the value, beside the store that it is named after.
struct Registry(PathBuf);

impl Registry {
    fn beside(place: &Place) -> Registry {
        Registry(place.dir.with_extension("registry"))
    }

    fn run(&self, arguments: &[&str]) -> Run {
        wholly_with(self.0.to_str().expect("UTF-8"), arguments)
    }

    /// `wholly VERB.. DIR`.
    fn on(&self, dir: &Path, verb: &[&str]) -> Run {
        self.run(&[verb, &[dir.to_str().expect("UTF-8")]].concat())
    }

    fn init(&self, place: &Place) {
        let made = self.on(&place.dir, &["--json", "init"]).json();
        assert_eq!(made["registered"], true);
        // It tells which stores there are.
        assert_eq!(fs::metadata(&self.0).expect("stat").permissions().mode() & 0o777, 0o700);
    }

    /// What `recover --all` says, with this exit code, of each store: its outcome by its directory.
    fn recover_all(&self, code: i32) -> Vec<(PathBuf, String)> {
        let run = self.run(&["recover", "--all", "--json"]);
        run.exits(code);
        let all: Value = serde_json::from_str(&run.out).expect("JSON");
        assert_eq!((&all["output_version"], &all["verb"]), (&7.into(), &"recover".into()));
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let stores = all["stores"].as_array().expect("an array");
        for store in stores {
            let done = ["current", "recovered", "conflict"].contains(&store["outcome"].as_str().unwrap());
            assert_eq!((store["recovered"].is_object(), store["why"].is_null()), (done, done), "{store}");
        }
        stores.iter().map(|store| (text(&store["dir"]).into(), text(&store["outcome"]))).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).expect("list").map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn outcomes<const N: usize>(expected: [(&Place, &str); N]) -> Vec<(PathBuf, String)> {
    let mut all: Vec<_> = expected.iter().map(|(place, outcome)| (place.dir.clone(), (*outcome).to_owned())).collect();
    all.sort();
    all
}

#[test]
fn every_store_is_recovered_and_told() {
    let [one, two] = places();
    let (three, four) = (Place::on_disk(), Place::on_memory());
    let registry = Registry::beside(&one);
    assert_eq!(registry.recover_all(0), [], "there is no registry yet");
    assert!(registry.run(&["recover", "--all"]).out.starts_with("no store is registered in "));
    for place in [&one, &two, &three, &four] {
        registry.init(place);
    }
    one.crash_after_groups(3);
    two.crash_after_groups(1);
    let expected = [(&one, "recovered"), (&two, "recovered"), (&three, "current"), (&four, "current")];
    assert_eq!(registry.recover_all(1), outcomes(expected));
    for (place, groups) in [(&one, 3), (&two, 1)] {
        assert_eq!(fs::read(place.dir.join("b")).unwrap()[100..200], [groups; 100]);
        assert_eq!(place.run(&["--json", "stat"]).json()["pending"]["groups"], 0);
    }
    let text = registry.run(&["recover", "--all"]);
    text.exits(0);
    assert!(text.out.contains(&format!("{}: nothing to recover", one.dir.display())), "{}", text.out);
    assert!(text.out.ends_with("4 stores: 4 current\n"), "{}", text.out);
}

/// What is wrong with one store keeps nobody from the others, and the exit code has the bits of all.
#[test]
fn each_kind_of_trouble_is_told_and_adds_its_bit() {
    let [fine, busy] = places();
    let [damaged, conflict] = places();
    let registry = Registry::beside(&fine);
    for place in [&fine, &busy, &damaged, &conflict] {
        registry.init(place);
    }
    let store = busy.open();
    let expected = [(&fine, "current"), (&busy, "busy"), (&damaged, "current"), (&conflict, "current")];
    assert_eq!(registry.recover_all(8), outcomes(expected));

    damaged.open().close().unwrap();
    damaged.edit_log(|log| {
        log[40] ^= 1;
        log[4096 + 40] ^= 1;
    });
    fine.crash_after_groups(2);
    conflict.crash_after_groups(1);
    fs::write(conflict.dir.join("b"), "by an editor").unwrap();
    let expected = [(&fine, "recovered"), (&busy, "busy"), (&damaged, "failed"), (&conflict, "conflict")];
    assert_eq!(registry.recover_all(1 | 4 | 8), outcomes(expected));
    store.close().unwrap();
    let text = registry.run(&["recover", "--all"]);
    text.exits(4);
    assert!(text.out.ends_with("4 stores: 2 current, 1 with a conflict, 1 failed\n"), "{}", text.out);
    assert!(text.out.contains(": failed: the store is damaged at superblock"), "{}", text.out);
}

#[test]
fn what_is_not_there_is_skipped() {
    let [moved, gone] = places();
    let emptied = Place::on_disk();
    let registry = Registry::beside(&moved);
    for place in [&moved, &gone, &emptied] {
        registry.init(place);
    }
    fs::remove_dir_all(&gone.dir).unwrap();
    // As a mount point is, when nothing is mounted there.
    fs::remove_dir_all(emptied.dir.join(".wholly")).unwrap();
    let there = moved.dir.with_extension("moved");
    fs::rename(&moved.dir, &there).unwrap();
    let skipped = outcomes([(&moved, "skipped"), (&gone, "skipped"), (&emptied, "skipped")]);
    assert_eq!(registry.recover_all(0), skipped);
    let text = registry.run(&["recover", "--all"]);
    assert!(text.out.contains("no such directory, or not mounted; when it is back, "), "{}", text.out);
    assert!(text.out.contains("there is no store in it"), "{}", text.out);

    // It is found again where it is now.
    registry.on(&there, &["recover", "--register"]).exits(0);
    let now = registry.recover_all(0);
    assert!(now.contains(&(there.clone(), "current".into())) && now.len() == 3, "{now:?}");
    fs::rename(&there, &moved.dir).unwrap();
}

/// A volume id tells a store from another that has taken its place, and from its copy.
#[test]
fn another_store_is_not_taken_for_the_one_that_was_there() {
    let [one, two] = places();
    let registry = Registry::beside(&one);
    registry.init(&one);
    registry.init(&two);
    one.crash_after_groups(1);
    fs::remove_dir_all(two.dir.join(".wholly")).unwrap();
    two.run(&["init"]).exits(0);
    two.crash_after_groups(1);
    assert_eq!(registry.recover_all(1), outcomes([(&one, "recovered"), (&two, "skipped")]));
    assert!(registry.run(&["recover", "--all"]).out.contains("another store is there now"));
    assert_eq!(two.run(&["--json", "stat"]).json()["pending"]["groups"], 1, "nobody asked for that one");
    // Once that is registered too, the one that is gone is forgotten.
    registry.on(&two.dir, &["recover", "--register"]).exits(1);
    assert_eq!(registry.recover_all(0), outcomes([(&one, "current"), (&two, "current")]));

    let copy = Place::on_disk();
    let copied = Command::new("cp").arg("-a").arg(one.dir.join(".wholly")).arg(&copy.dir).status().unwrap();
    assert!(copied.success());
    registry.on(&copy.dir, &["deinit"]).exits(0);
    assert_eq!(
        registry.recover_all(0),
        outcomes([(&one, "current"), (&two, "current")]),
        "the copy was not registered"
    );
}

#[test]
fn init_registers_and_deinit_forgets() {
    for place in places() {
        let registry = Registry::beside(&place);
        assert_eq!(registry.on(&place.dir, &["--json", "init", "--dry-run"]).json()["registered"], false);
        assert_eq!(registry.on(&place.dir, &["--json", "init", "--no-register"]).json()["registered"], false);
        assert!(!registry.0.exists());
        registry.on(&place.dir, &["deinit"]).exits(0);
        registry.init(&place);
        let stat = place.run(&["--json", "stat"]).json();
        assert_eq!(registry.files(), [registry.0.join(stat["volume_id"].as_str().unwrap())]);
        assert_eq!(fs::read(&registry.files()[0]).unwrap(), format!("{}\n", place.dir.display()).as_bytes());
        registry.on(&place.dir, &["deinit"]).exits(0);
        assert!(registry.files().is_empty());
    }
}

#[test]
fn a_registry_that_cannot_be_is_said_and_the_store_is_made() {
    let place = Place::on_disk();
    let file = place.dir.join("a");
    let made = wholly_with(file.to_str().unwrap(), &["--json", "init", place.dir.to_str().unwrap()]);
    assert!(made.err.contains("not registered for `wholly recover --all`"), "{}", made.err);
    assert_eq!(made.json()["registered"], false);
    for arguments in [&["recover", "--all"][..], &["recover", "--register", place.dir.to_str().unwrap()]] {
        let run = wholly(arguments);
        run.exits(8);
        assert!(
            run.err.contains("there is no registry of stores; set WHOLLY_REGISTRY to its directory"),
            "{}",
            run.err
        );
    }
    wholly(&["recover", "--all", "."]).exits(16);
    wholly(&["recover", "--all", "--register"]).exits(16);
}
