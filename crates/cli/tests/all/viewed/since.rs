//! What others do between a command and its undo: what does not keep it from being taken back, and how the rest is.

use super::common::run::{Rig, recover, run, shell, succeeds};
use super::common::views::VIEW;
use super::common::{Run, wholly};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the command does, in a git repository with `m1.py`, `m2.py` and `m3.py`.
const COMMAND: &str = "mkdir pkg; echo y=1 > pkg/__init__.py; echo z=1 > pkg/mod.py; echo x=9 >> m1.py; rm m3.py; \
                       git add -A; git commit -qm agent";

/// Git writes its index again if it finds other inode numbers than it has noted, as after a FUSE view, or times that
/// differ in their seconds: that depends on when the command ended.
const LOOKS_OF_GIT: &str = "git status";

const BEFORE: &str = "git init -q .; for i in 1 2 3; do echo x=$i > m$i.py; done; git add .; git commit -qm 0";

fn kept(dir: &Path, script: &str) {
    let output = run(dir, &["--keep-undo", "1G"], script);
    assert!(output.status.success() && output.stderr.is_empty(), "{script}: {output:?}");
}

fn undo(dir: &Path, options: &[&str]) -> Run {
    wholly(&[&["undo", dir.to_str().unwrap()], options].concat())
}

/// Files with their content, links with their targets, and directories, but for the store's folder.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(dir.join(&at)).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (at.join(entry.file_name()), entry.file_type().unwrap());
            if path == Path::new(".wholly") {
                continue;
            }
            let content = match () {
                () if kind.is_dir() => {
                    todo.push(path.clone());
                    Vec::new()
                }
                () if kind.is_symlink() => {
                    std::fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
                }
                () => std::fs::read(entry.path()).unwrap(),
            };
            all.insert(path, content);
        }
    }
    all
}

fn assert_same(now: &BTreeMap<PathBuf, Vec<u8>>, then: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    let differs: Vec<_> = now.keys().chain(then.keys()).filter(|path| now.get(*path) != then.get(*path)).collect();
    assert!(differs.is_empty(), "{what}: {differs:?}");
}

/// The rows of the table in `docs/run.md`: each act, and whether the command can be taken back after it.
#[test]
fn acts_of_others_as_the_manual_tells_them() {
    let Some(rig) = Rig::new("since") else { return };
    let made = rig.dir("model", BEFORE);
    for (act, can_be_undone) in [
        ("ls -lR; cat pkg/mod.py; grep -r x . || true", true),
        ("git log -p; git diff HEAD~1; git show", true),
        (LOOKS_OF_GIT, true),
        ("touch -d @1 m2.py; git status", false),
        ("git --no-optional-locks status", true),
        ("cat m1.py > ../copy; cat ../copy > m1.py", true),
        ("cp pkg/mod.py n; mv n pkg/mod.py; touch -d @1 m1.py pkg/mod.py", true),
        ("tar -cf ../tar .", true),
        ("cp -al . ../links", true),
        ("git clone -q . ../clone", true),
        ("chmod $(stat -c %a m1.py) m1.py; chmod $(stat -c %a pkg) pkg", true),
        ("touch t; rm t; touch pkg/t; rm pkg/t", true),
        ("chmod 600 m2.py; echo mine > mine; mkdir own", true),
        ("touch pkg/mine", false),
        ("echo mine >> pkg/mod.py", false),
        ("chmod 600 pkg/mod.py", false),
        ("setfattr -n user.mine -v 1 pkg/mod.py", false),
        ("rm pkg/mod.py", false),
        ("echo mine > m3.py", false),
        ("git stash -q; echo q >> m2.py; git stash -q; git stash pop -q", false),
    ] {
        let dir = rig.copy("dir", &made);
        let before = tree(&dir);
        kept(&dir, COMMAND);
        let after = tree(&dir);
        succeeds(&mut shell(&dir, &format!("({act}) > /dev/null")));
        let now = tree(&dir);
        let undone = undo(&dir, &[]);
        let index = Path::new(".git/index");
        let is_undone = can_be_undone && (act != LOOKS_OF_GIT || now[index] == after[index]);
        assert_eq!(undone.code, Some(if is_undone { 0 } else { 123 }), "{act}: {}{}", undone.out, undone.err);
        // What others have made besides, or have changed of what the command has not changed, stays.
        let is_others = |path: &&PathBuf| before.get(*path) == after.get(*path);
        let mut expected = if is_undone { before.clone() } else { now.clone() };
        for path in now.keys().chain(before.keys()).filter(is_others) {
            match now.get(path) {
                Some(content) => _ = expected.insert(path.clone(), content.clone()),
                None => _ = expected.remove(path),
            }
        }
        assert_same(&tree(&dir), &expected, act);
        if !is_undone {
            assert!(undone.out.contains("--skip-changed") && undone.out.contains("--over-changes"), "{}", undone.out);
            assert!(undone.out.contains("-- PATH"), "{}", undone.out);
            // It can be finished, and what stood there can be had again.
            undo(&dir, &["--over-changes"]).exits(0);
            let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
            let there = tree(&dir);
            for path in before.keys().chain(after.keys()).filter(differs) {
                assert_eq!(there.get(path), before.get(path), "{act}: {path:?}");
            }
            undo(&dir, &[]).exits(0);
            assert_same(&tree(&dir), &now, act);
        }
        wholly(&["check", dir.to_str().unwrap()]).exits(0);
        recover(&dir);
        for rest in ["dir", "copy", "tar", "links", "clone"].map(|name| rig.path(name)) {
            _ = std::fs::remove_dir_all(&rest).or_else(|_| std::fs::remove_file(&rest));
        }
    }
}

fn id_of(dir: &Path) -> String {
    let log = wholly(&["log", "--json", dir.to_str().unwrap()]).json();
    log["undos"][0]["id"].as_str().unwrap().into()
}

/// A part, and then the rest under the same id; and each of both again.
#[test]
fn a_part_is_taken_back_and_the_rest_stays_undoable() {
    let Some(rig) = Rig::new("part") else { return };
    let dir = rig.dir("dir", "mkdir -p d/e; echo 1 > a; echo 2 > b; echo 3 > d/e/f; echo 4 > d/g; ln b c");
    let before = tree(&dir);
    kept(&dir, "echo x >> a; rm -r d; mkdir -p n/m; echo 5 > n/m/o; echo 6 > n/p; mv b moved; rm c; chmod 600 a");
    let (after, id) = (tree(&dir), id_of(&dir));
    let missing = undo(&dir, &["--", "elsewhere"]);
    missing.exits(8);
    assert!(missing.err.contains("at these paths"), "{}", missing.err);
    for (path, is) in [
        ("d/e/f", &["d", "d/e", "d/e/f"][..]),
        ("n/m", &["n", "n/p", "d", "d/e", "d/e/f"]),
        ("b", &["n", "n/p", "d", "d/e", "d/e/f", "b", "c"]),
    ] {
        let dry = undo(&dir, &["--dry-run", &id, "--", path]);
        dry.exits(0);
        assert!(dry.out.contains("would take back a part of") && dry.out.contains("the rest stays"), "{}", dry.out);
        let undone = undo(&dir, &[&id, "--", path]);
        undone.exits(0);
        assert!(undone.out.contains("took back a part of"), "{}", undone.out);
        let now = tree(&dir);
        // In an overlay a directory that was removed as a whole comes back so.
        let whole = (VIEW == "overlay").then_some("d/g");
        let is: Vec<PathBuf> = is.iter().copied().chain(whole).map(PathBuf::from).collect();
        assert!(is.iter().all(|path| now.contains_key(path)), "{path}: {:?}", now.keys());
        assert!(now.keys().all(|path| is.contains(path) || after.contains_key(path)), "{path}: {:?}", now.keys());
        wholly(&["check", dir.to_str().unwrap()]).exits(0);
    }
    // What is left of it has the same id, and is all that is left to do.
    undo(&dir, &[&id, "--", "b"]).exits(8);
    undo(&dir, &[&id]).exits(0);
    assert_same(&tree(&dir), &before, "all of it");
    undo(&dir, &[&id]).exits(8);
    // Each undo was kept, the newest first.
    (0..4).for_each(|_| undo(&dir, &[&redo_of(&dir)]).exits(0));
    assert_same(&tree(&dir), &after, "done again");
    wholly(&["check", dir.to_str().unwrap()]).exits(0);
    recover(&dir);
}

/// The newest undo of an undo.
fn redo_of(dir: &Path) -> String {
    let log = wholly(&["log", "--json", dir.to_str().unwrap()]).json();
    let undos = log["undos"].as_array().unwrap().iter();
    let mut redos = undos.filter(|undo| undo["command"].as_str().is_some_and(|note| note.starts_with("undo of")));
    redos.next().unwrap()["id"].as_str().unwrap().into()
}

#[test]
fn what_was_changed_is_left_and_the_rest_taken_back() {
    let Some(rig) = Rig::new("skip") else { return };
    let dir = rig.dir("dir", "echo 1 > a; echo 2 > b; mkdir d; echo 3 > d/f; echo 4 > d/g; mkdir r; echo 5 > r/s");
    kept(&dir, "echo x >> a; echo y >> b; rm -r d; mkdir -p n/m; echo 6 > n/m/o; echo 7 > n/p; mv r t");
    let id = id_of(&dir);
    succeeds(&mut shell(&dir, "echo mine >> b; echo mine > n/m/mine; echo mine > t/mine; echo mine > d"));
    let now = tree(&dir);
    let dry = undo(&dir, &["--skip-changed", "--dry-run"]);
    dry.exits(0);
    assert_same(&tree(&dir), &now, "a dry run");
    let undone = undo(&dir, &["--skip-changed"]);
    undone.exits(0);
    assert!(dry.out.contains("a  (4 B -> 2 B"), "{}", dry.out);
    assert!(undone.out.contains("Left as it is") && undone.out.contains("  b: "), "{}", undone.out);
    let expected = ["a", "b", "d", "n", "n/m", "n/m/mine", "r", "r/mine", "r/s"].map(PathBuf::from);
    let left = tree(&dir);
    assert_eq!(left.keys().cloned().collect::<Vec<_>>(), expected);
    assert_eq!((&left[Path::new("a")][..], &left[Path::new("b")][..]), (&b"1\n"[..], &b"2\ny\nmine\n"[..]));
    // The rest waits until nothing is in its way, and goes by parts, too.
    undo(&dir, &[&id, "--skip-changed"]).exits(123);
    succeeds(&mut shell(&dir, "rm d; rm n/m/mine; rm -r r/mine"));
    undo(&dir, &[&id, "--skip-changed"]).exits(0);
    let left = tree(&dir);
    assert!(left.contains_key(Path::new("d/g")) && !left.contains_key(Path::new("n")), "{:?}", left.keys());
    undo(&dir, &[&id, "--over-changes"]).exits(0);
    assert_eq!(tree(&dir)[Path::new("b")], b"2\n");
    recover(&dir);
}

#[test]
fn what_stands_there_goes_and_can_be_had_again() {
    let Some(rig) = Rig::new("over") else { return };
    let dir = rig.dir("dir", "echo 1 > a; seq 100 > b; mkdir d; echo 3 > d/f; echo 5 > e; echo 6 > h");
    let before = tree(&dir);
    kept(&dir, "echo x >> a; sed -i s/1/x/ b; rm -r d; mkdir -p n/m; echo 6 > n/m/o; echo 7 > n/p; mv e e2; rm h");
    succeeds(&mut shell(
        &dir,
        "echo mine >> a; echo mine > b; mkdir d; echo mine > d/f; mkdir -p n/q/r; echo mine > n/q/r/s; rm n/p; mkdir n/p; \
         echo mine >> e2; ln -s x h",
    ));
    let now = tree(&dir);
    undo(&dir, &[]).exits(123);
    undo(&dir, &["--over-changes"]).exits(0);
    let mut expected = before.clone();
    // The command has only moved it.
    expected.insert("e".into(), b"5\nmine\n".into());
    assert_same(&tree(&dir), &expected, "all of it");
    undo(&dir, &[]).exits(0);
    assert_same(&tree(&dir), &now, "what stood there");
    // What the undo has not cannot be restored.
    succeeds(&mut shell(&dir, "rm e2; printf m > a"));
    let refused = undo(&dir, &["--over-changes", &last_command(&dir)]);
    refused.exits(123);
    assert!(refused.out.contains("What cannot be replaced"), "{}", refused.out);
    recover(&dir);
}

fn last_command(dir: &Path) -> String {
    let log = wholly(&["log", "--json", dir.to_str().unwrap()]).json();
    log["undos"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().into()
}

/// What stands in the place of something that the command has made or changed, and is not that.
#[test]
fn what_only_looks_like_the_commands_stays() {
    let Some(rig) = Rig::new("alike") else { return };
    for (before, script, act, is_refused) in [
        // What is moved keeps its times.
        ("mkdir old; echo mine > old/x; echo mine > old/y", "mkdir d; echo new > d/x", "mv d away; mv old d", true),
        ("mkdir old; echo mine > old/x", "mkdir -p d/s; echo new > d/s/x", "mv d/s away; mv old d/s", true),
        ("mkdir old; echo mine > old/x", "mkdir d; echo new > d/x", "mv old d/old", true),
        // It would be changed by its other name.
        ("echo 1 > f; echo 22 > mine", "echo 22 > f", "ln -f mine f", true),
        ("echo 1 > f; mkdir ../bak", "echo 22 > f", "ln f ../bak/f", false),
        ("echo 1 > a", "ln a n", "echo mine > t; mv t n", true),
    ] {
        let dir = rig.dir("dir", before);
        std::thread::sleep(std::time::Duration::from_millis(50));
        kept(&dir, script);
        succeeds(&mut shell(&dir, act));
        let now = tree(&dir);
        let undone = undo(&dir, &[]);
        assert_eq!(undone.code, Some(if is_refused { 123 } else { 0 }), "{act}: {}{}", undone.out, undone.err);
        match is_refused {
            true => assert_same(&tree(&dir), &now, act),
            false => assert!(undone.out.contains("it has another name since"), "{}", undone.out),
        }
        if is_refused {
            let over = undo(&dir, &["--over-changes"]);
            assert!(matches!(over.code, Some(0 | 123)), "{act}: {}{}", over.out, over.err);
        }
        recover(&dir);
        for rest in ["dir", "bak"].map(|name| rig.path(name)) {
            _ = std::fs::remove_dir_all(rest);
        }
    }
}

/// Each refusal can be finished by what it advises.
#[test]
fn what_is_gone_keeps_nothing_from_being_finished() {
    let Some(rig) = Rig::new("gone") else { return };
    for (before, script, act, ways) in [
        ("echo 1 > a", "mkdir D; echo x > D/x; echo 2 > a", "rm -rf D", &["--skip-changed", "--over-changes"][..]),
        ("mkdir d; echo 1 > a", "echo x > d/x; echo 2 > a", "rm -rf d", &["--skip-changed", "--over-changes"]),
        ("mkdir d; echo 1 > a", "echo x > d/x; echo 2 > a", "mv d e", &["--skip-changed", "--over-changes"]),
        ("echo 1 > a", "chmod 700 .; echo 2 > a", "chmod 750 .", &["--skip-changed", "--over-changes"]),
    ] {
        for way in ways {
            let dir = rig.dir("dir", before);
            kept(&dir, script);
            succeeds(&mut shell(&dir, act));
            undo(&dir, &[]).exits(123);
            let undone = undo(&dir, &[way]);
            assert_eq!(undone.code, Some(0), "{act}, {way}: {}{}", undone.out, undone.err);
            assert_eq!(tree(&dir)[Path::new("a")], b"1\n", "{act}, {way}");
            recover(&dir);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}
