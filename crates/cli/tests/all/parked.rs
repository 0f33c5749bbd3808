//! `wholly list`, `diff`, `apply` and `discard`: groups that a program has parked.

use super::common::run::{Rig, shell, succeeds};
use super::common::{self, Place, may_run};
use wholly::{ParkedId, Store};
use wholly_vfs::Rename;

/// Parks a group that changes a text, moves a file and makes a directory with a file in it.
fn park(store: &Store) -> ParkedId {
    let mut group = store.begin();
    let text = group.open_file("text").expect("text");
    group.set_len(&text, 4).expect("cut");
    group.append(&text, b"zwei\ndrei\n").expect("append");
    group.rename("b", "moved", Rename::NoReplace).expect("rename");
    group.set_mode("moved", 0o600).expect("chmod");
    let a = group.open_file("a").expect("a");
    group.write_at(&a, 10, b"\x01").expect("write");
    group.mkdir("new", 0o755).expect("mkdir");
    let file = group.create("new/\u{1b}file", 0o644).expect("create");
    group.append(&file, b"bell \x07\n").expect("append");
    group.park("upgrade", None).expect("park")
}

fn stores() -> [Place; 2] {
    let places = common::places();
    for place in &places {
        std::fs::write(place.dir.join("text"), "one\ntwo\nthree\n").expect("write");
        place.run(&["init"]).exits(0);
    }
    places
}

/// Runs a verb on a parked group.
fn on(place: &Place, verb: &[&str], id: ParkedId) -> common::Run {
    let (dir, id) = (place.dir.to_str().expect("UTF-8"), id.to_string());
    common::wholly(&[verb, &[dir, &id]].concat())
}

#[test]
fn a_parked_group_is_listed_shown_and_applied() {
    for place in stores() {
        assert!(place.run(&["list"]).out.ends_with(": nothing is parked\n"));
        let id = park(&place.open());
        let list = place.run(&["list"]);
        list.exits(0);
        assert!(list.out.starts_with(&format!("{id} ")) && list.out.ends_with("  upgrade\n"), "{}", list.out);
        let json = place.run(&["list", "--json"]).json();
        let group = &json["groups"][0];
        assert_eq!((group["id"].as_str(), group["note"].as_str()), (Some(&*id.to_string()), Some("upgrade")));
        assert_eq!(
            (group["names"].as_u64(), group["files"].as_u64(), &group["expires"]),
            (Some(4), Some(3), &().into())
        );
        let stat = place.run(&["stat"]);
        assert!(stat.out.contains("  parked       1 group, "), "{}", stat.out);
        assert_eq!(place.run(&["stat", "--json"]).json()["parked"][0]["id"], id.to_string());

        let diff = on(&place, &["diff"], id);
        diff.exits(0);
        let (head, lines) = diff.out.split_once("\n\n").expect("an empty line");
        let head: Vec<&str> = head.lines().collect();
        assert_eq!(
            head,
            [
                "changed   a  (1000 B -> 1000 B)",
                "renamed   b -> moved  (mode 644 -> 600)",
                "created   new  (directory)",
                "created   new/\\u{1b}file  (7 B)",
                "changed   text  (14 B -> 14 B)",
            ]
        );
        for text in [
            "Binary files a/a and b/a differ\n",
            "--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+zwei\n+drei\n",
            "+bell \\u{7}\n",
        ] {
            assert!(lines.contains(text), "{text}{}", diff.out);
        }
        assert!(!on(&place, &["diff", "--names-only"], id).out.contains("zwei"));
        let json = on(&place, &["diff", "--json"], id).json();
        let renamed = &json["changes"][1];
        assert_eq!((renamed["what"].as_str(), renamed["from"].as_str()), (Some("renamed"), Some("b")));
        assert_eq!((renamed["before"]["mode"].as_u64(), renamed["after"]["mode"].as_u64()), (Some(0o644), Some(0o600)));
        assert!(json["changes"][4]["diff"].as_str().expect("a text").contains("+drei"));
        assert_eq!((&json["changes"][0]["diff"], json["changes"][0]["content"].as_bool()), (&().into(), Some(true)));

        let applied = on(&place, &["apply"], id);
        applied.exits(0);
        assert_eq!(std::fs::read_to_string(place.dir.join("text")).expect("read"), "one\nzwei\ndrei\n");
        assert!(place.dir.join("moved").exists() && !place.dir.join("b").exists());
        for verb in ["apply", "discard", "diff"] {
            on(&place, &[verb], id).exits(8);
        }
        place.run(&["deinit"]).exits(0);
    }
}

#[test]
fn what_is_otherwise_is_listed_and_exit_codes_say_so() {
    for place in stores() {
        let store = place.open();
        let id = park(&store);
        let busy = on(&place, &["apply"], id);
        busy.exits(8);
        store.mkdir("new", 0o700).expect("mkdir");
        drop(store);
        place.run(&["recover"]).exits(1);
        std::fs::write(place.dir.join("text"), "one\n").expect("write");
        let refused = on(&place, &["apply"], id);
        refused.exits(123);
        assert!(refused.out.contains("\n  new: something has been made there\n"), "{}", refused.out);
        assert!(refused.out.contains("\n  text: its content has been changed"), "{}", refused.out);
        let json = on(&place, &["apply", "--json"], id);
        json.exits(123);
        assert!(json.out.contains(r#""applied":false"#) && json.out.contains(r#""path":"text""#), "{}", json.out);

        let refused = place.run(&["deinit"]);
        refused.exits(8);
        assert!(refused.err.contains("1 parked group in it"), "{}", refused.err);
        on(&place, &["discard"], id).exits(0);
        let other = park_one(&place);
        place.run(&["deinit", "--discard-parked"]).exits(0);
        assert!(!place.dir.join(".wholly").exists() && place.dir.join("b").exists(), "{other}");
    }
}

/// What others have changed meanwhile stays, or what was parked replaces it; the undo brings that back.
#[test]
fn one_side_wins_where_others_have_changed_something() {
    for place in stores() {
        let dir = place.dir.to_str().expect("UTF-8");
        let id = park(&place.open());
        let text = place.dir.join("text");
        std::fs::write(&text, "one\nchanged, and longer\n").expect("write");
        let refused = on(&place, &["apply"], id);
        refused.exits(123);
        assert!(refused.out.contains("`wholly apply --ours`") && refused.out.contains("`wholly apply --theirs`"));

        // It has the end of the text only, and others have changed more than that.
        let refused = on(&place, &["apply", "--theirs", "--keep-undo", "1G"], id);
        refused.exits(123);
        assert!(refused.out.contains("cannot be replaced:\n  text: its content has been changed"), "{}", refused.out);
        assert!(refused.out.contains("the group holds a part of it only") && refused.out.contains("--ours"));
        std::fs::write(&text, "one\nother\nTHREE").expect("write");
        let words = ["apply", "--json", "--theirs", "--keep-undo", "no", dir, &id.to_string(), "--", "new"];
        let part = common::wholly(&words).json();
        assert_eq!(
            (&part["is_left"], &part["undo"], part["winner"].as_str()),
            (&true.into(), &().into(), Some("theirs"))
        );
        assert!(place.dir.join("new").is_dir() && place.dir.join("b").exists());

        std::fs::write(&text, "one\ntwo\nthree\nfour, by another program\n").expect("write");
        let applied = on(&place, &["apply", "--theirs", "--keep-undo", "1G"], id);
        applied.exits(0);
        assert!(applied.out.contains(&format!("{id}: applied over what was changed since it was parked:\n  text: ")));
        assert!(applied.out.ends_with("`wholly undo` takes it back\n"), "{}", applied.out);
        assert_eq!(std::fs::read_to_string(&text).expect("read"), "one\nzwei\ndrei\n");
        place.run(&["undo"]).exits(0);
        assert_eq!(std::fs::read_to_string(&text).expect("read"), "one\ntwo\nthree\nfour, by another program\n");
        assert!(place.dir.join("b").exists() && place.dir.join("new").exists());
        common::wholly(&["apply", "--ours", "--theirs", dir]).exits(16);
    }
}

/// The side of the directory wins.
#[test]
fn what_others_have_changed_stays() {
    for place in stores() {
        let id = park(&place.open());
        std::fs::write(place.dir.join("text"), "one\n").expect("write");
        let applied = on(&place, &["apply", "--ours"], id);
        applied.exits(0);
        assert!(
            applied.out.contains("applied but for what was changed since it was parked:\n  text: "),
            "{}",
            applied.out
        );
        assert_eq!(std::fs::read_to_string(place.dir.join("text")).expect("read"), "one\n");
        assert!(place.dir.join("moved").exists() && place.dir.join("new").exists());
        on(&place, &["diff"], id).exits(8);
    }
}

fn park_one(place: &Place) -> ParkedId {
    let store = place.open();
    let mut group = store.begin();
    group.unlink("b").expect("unlink");
    group.park("", None).expect("park")
}

#[test]
fn damage_is_found_and_can_be_discarded() {
    for place in stores() {
        let id = park_one(&place);
        let path = place.dir.join(format!(".wholly/parked/{:x}", id.0));
        let mut bytes = std::fs::read(&path).expect("read");
        bytes[300] ^= 1;
        std::fs::write(&path, bytes).expect("write");
        let list = place.run(&["list"]);
        list.exits(4);
        assert!(list.out.contains("damaged"), "{}", list.out);
        let check = place.run(&["check"]);
        check.exits(4);
        assert!(check.out.starts_with("parked: .wholly/parked/"), "{}", check.out);
        on(&place, &["apply"], id).exits(4);
        on(&place, &["discard"], id).exits(0);
        place.run(&["check"]).exits(0);
        for wrong in ["5", "x-1"] {
            common::wholly(&["diff", place.dir.to_str().expect("UTF-8"), wrong]).exits(16);
        }
    }
}

/// What a command has done and nobody has applied survives the git commands of every day, which neither delete it nor
/// take it for the work tree's own.
#[test]
fn parked_work_survives_git() {
    let Some(rig) = Rig::new("parked-git") else { return };
    let commands = [
        ("add", "git add -A && git commit -qm all && test -z \"$(git ls-files .wholly)\""),
        ("checkout", "git add -A && git commit -qm all --allow-empty && git checkout -q HEAD~1"),
        ("clean", "git clean -fdq"),
        ("stash", "git stash -uq"),
    ];
    for (name, script) in commands {
        let dir = rig.dir(name, "git init -q . && echo first >a && git add a && git commit -qm first && echo more >b");
        let run = common::run::run(&dir, &["--park"], "echo hours >work");
        let told = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(121), "{told}");
        assert!(told.contains(&format!("it is in {}/.wholly", dir.display())), "{told}");
        assert_eq!(succeeds(&mut shell(&dir, "git status --porcelain")), b"?? b\n", "git sees nothing of it");
        succeeds(&mut shell(&dir, script));
        let place = dir.to_str().unwrap();
        common::wholly(&["apply", place, "1-1"]).exits(0);
        assert_eq!(std::fs::read(dir.join("work")).unwrap(), b"hours\n", "{name}");
    }
}

/// What may follow in a command line, of the names that only this machine has.
#[test]
fn candidates_are_parked_groups_and_workloads() {
    let candidates = |words: &[&str]| {
        let run = common::wholly(&[&["candidates", "--"], words].concat());
        run.exits(0);
        run.out
    };
    for place in stores() {
        let (dir, id) = (place.dir.to_str().unwrap(), park(&place.open()).to_string());
        let group = format!("{id}\tupgrade\n");
        for words in [&["discard", dir][..], &["diff", "--names-only", dir], &["--json", "apply", dir]] {
            assert_eq!(candidates(words), group, "{words:?}");
        }
        assert_eq!(candidates(&["apply", dir, &id, dir]), group, "another store with a group");
        for words in [
            &["apply", dir, &id][..],
            &["discard"],
            &["discard", dir, &id],
            &["discard", "/nowhere"],
            &["list", dir],
            &["run", "discard", dir],
            &[],
        ] {
            assert_eq!(candidates(words), "", "{words:?}");
        }
    }
    assert!(candidates(&["crash"]).contains("\ntwo-files\ta group over two files"), "{}", candidates(&["crash"]));
    assert!(candidates(&["crash", "two-files", "--world"]).contains("pmem-eadr\t"));
    assert_eq!(candidates(&["crash", "--effort"]), "");
}

/// In each shell that is there, the completion of a line that lacks the id of a parked group.
#[test]
fn shells_complete_parked_groups() {
    let place = &stores()[0];
    let spaced = place.dir.join("a store");
    std::fs::create_dir(&spaced).unwrap();
    std::fs::write(spaced.join("file"), "old").unwrap();
    common::wholly(&["init", spaced.to_str().unwrap()]).exits(0);
    let store = Store::open(&spaced).unwrap();
    let mut group = store.begin();
    group.unlink("file").unwrap();
    let id = group.park("a note: with a colon", None).unwrap().to_string();
    store.close().unwrap();

    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_wholly")).parent().unwrap().display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let typed = format!("{}/a\\ store", place.dir.display());
    let scripts = [
        (
            "bash",
            format!(
                r#"source ./bash; COMP_WORDS=(wholly discard '{typed}' ''); COMP_CWORD=3; _wholly wholly '' '';
                   echo "${{COMPREPLY[@]}}"; COMP_WORDS=(wholly disc); COMP_CWORD=1; _wholly wholly disc wholly;
                   echo "${{COMPREPLY[@]}}""#
            ),
        ),
        // Zsh completes on a terminal only: what it would describe is printed in its place.
        (
            "zsh",
            format!(
                r#"compdef() {{ echo $2 }}; source ./zsh; _describe() {{ print -rl -- ${{(P)2}} }};
                   words=(wholly discard '{typed}' ''); CURRENT=4; _wholly"#
            ),
        ),
        ("fish", format!("source ./fish; complete -C 'wholly discard {typed} '")),
    ];
    let wanted = [
        format!("{id}\ndiscard\n"),
        format!("wholly\n{id}:a note\\: with a colon\n"),
        format!("{id}\ta note: with a colon\n"),
    ];
    for ((shell, script), wanted) in scripts.iter().zip(wanted) {
        let completions = common::wholly(&["completions", shell]);
        std::fs::write(place.dir.join(shell), completions.out).unwrap();
        let mut command = std::process::Command::new(shell);
        command.args(["-c", script]).current_dir(&place.dir).env("PATH", &path).env("HOME", &place.dir);
        // A shell that is not there has nothing to complete.
        let Ok(output) = command.output() else { continue };
        let said = String::from_utf8_lossy(&output.stdout);
        // Fish names files, too.
        assert!(said == wanted || *shell == "fish" && said.contains(&wanted), "{shell}: {output:?}");
    }
}

/// Without a directory and an id, the verbs take the newest group of the current one; when nothing is parked any more,
/// nothing of Wholly is left.
#[test]
fn the_newest_is_meant_where_none_is_named() {
    let Some(rig) = Rig::new("parked-newest") else { return };
    let dir = rig.dir("dir", "echo one > a; mkdir d d/e; echo x > d/e/f");
    let here = |words: &[&str]| common::wholly_in(&dir, words);
    here(&["diff"]).exits(8);
    for script in ["echo two >> a", "rm d/e/f; echo new > new"] {
        assert_eq!(common::run::run(&dir, &["--park"], script).status.code(), Some(121));
    }
    let ids: Vec<String> = common::wholly(&["list", "--json", dir.to_str().unwrap()]).json()["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["id"].as_str().unwrap().into())
        .collect();
    let newest = here(&["diff", "--names-only"]);
    newest.exits(0);
    assert!(newest.out.contains("removed   d/e/f") && !newest.out.contains("  a"), "{}", newest.out);
    let older = here(&["diff", &ids[0]]);
    older.exits(0);
    assert!(older.out.contains("+two"), "{}", older.out);
    let stat = here(&["diff", "--stat", &ids[0]]);
    assert_eq!(stat.out, "a      1 +     0 -\n1 change: 1 +, 0 -\n");
    here(&["apply"]).exits(0);
    assert!(!dir.join("d/e/f").exists() && dir.join("new").exists() && dir.join(".wholly").exists());
    here(&["discard"]).exits(0);
    here(&["discard"]).exits(8);
    assert_eq!(std::fs::read(dir.join("a")).unwrap(), b"one\n");
    assert_eq!(common::run::traces(&dir), [] as [&std::path::Path; 0]);
}

/// The patch of a parked group is what git and `patch` read, for new, removed, renamed and changed files with names of
/// any kind.
#[test]
fn what_is_parked_can_be_patched_elsewhere() {
    let Some(rig) = Rig::new("parked-patch") else { return };
    if !common::may_run(&["git", "patch"]) {
        return;
    }
    let before = "seq 100 > a; seq 100 > 'b c'; echo gone > gone; seq 50 > old; echo x > keep; printf 'no end' > n; \
                  seq 9 > tab\\\"; chmod 644 *";
    let script = "sed -i 's/^90$/ninety/' a; sed -i 's/^90$/ninety/' 'b c'; rm gone; mv old new; chmod 755 keep; \
                  printf 'still no end' > n; mkdir d; echo made > d/made; : > empty; echo ten >> tab\\\"";
    let dir = rig.dir("dir", before);
    let wanted = rig.dir("wanted", &format!("{before}; {script}; sed -i 1d a"));
    let copies = ["patched", "applied"].map(|name| rig.copy(name, &dir));
    assert_eq!(common::run::run(&dir, &["--park"], script).status.code(), Some(121));
    let patch = common::wholly_in(&dir, &["diff", "--patch"]);
    patch.exits(0);
    assert_eq!(patch.err, "", "all of it is in the patch");
    std::fs::write(rig.path("patch"), &patch.out).unwrap();
    for (tool, copy) in ["patch -p1 --no-backup-if-mismatch", "git apply --whitespace=nowarn"].into_iter().zip(copies) {
        // The same lines in a file that is another one by now.
        succeeds(&mut shell(&copy, &format!("sed -i 1d a; {tool} < ../patch")));
        succeeds(std::process::Command::new("diff").arg("-r").args([&copy, &wanted]));
        assert_eq!(succeeds(&mut shell(&copy, "stat -c %a keep")), b"755\n");
    }
    // What has been changed since is not told of as if it had been so; nor what a patch has no words for.
    succeeds(&mut shell(&dir, "echo mine >> a"));
    let patch = common::wholly_in(&dir, &["diff", "--patch"]);
    assert!(patch.err.contains("not in the patch: ") && patch.err.contains("  a  ("), "{}", patch.err);
    assert!(!patch.out.contains("a/a") && patch.out.contains("+made"), "{}", patch.out);
    common::wholly_in(&dir, &["discard"]).exits(0);
    assert_eq!(common::run::run(&dir, &["--park"], "ln -s a l; head -c 9 /dev/zero > zeros").status.code(), Some(121));
    let patch = common::wholly_in(&dir, &["diff", "--patch"]);
    assert_eq!(patch.out, "");
    assert!(patch.err.contains("created   l -> a  (link)") && patch.err.contains("created   zeros"), "{}", patch.err);
}

/// A part is applied with what it needs, and the rest can follow; and where others have changed the same, what they
/// have changed stays.
#[test]
fn a_part_is_applied_and_the_rest_follows() {
    let Some(rig) = Rig::new("parked-part") else { return };
    let before = "mkdir d e; echo one > a; echo two > b; echo three > d/c; echo four > e/x; echo five > f; ln f e/link; echo old > v";
    let script = "echo more >> a; mkdir -p n/m; echo 1 > n/m/f; echo 2 > n/g; mv b d/b2; rm -r e; mv d moved; \
                  echo in > moved/new; chmod 600 moved/c; mv v w; echo fresh > v";
    let after = rig.dir("after", &format!("{before}; {script}"));
    let parked = |name: &str| {
        let dir = rig.dir(name, before);
        assert_eq!(common::run::run(&dir, &["--park"], script).status.code(), Some(121));
        dir
    };
    let is_after = |dir: &std::path::Path, what: &str| {
        let seen = common::tree::Tree::of(dir).but_for_a_store();
        let names = |dir: &std::path::Path| {
            let find = "find . -path ./.wholly -prune -o -printf '%P %m %n %l\\n' | sort; cat $(find . -type f -not -path './.wholly/*' | sort)";
            String::from_utf8(succeeds(&mut shell(dir, find))).unwrap()
        };
        assert_eq!(names(dir), names(&after), "{what}: {seen:?}");
    };
    let orders: [&[&str]; 6] =
        [&["a"], &["n/m/f", "n"], &["moved", "n/g"], &["e", "a", "v"], &["w", "moved/b2"], &["d", "b", "e/x", "n/m"]];
    for (i, order) in orders.iter().enumerate() {
        let dir = parked(&format!("dir{i}"));
        for path in *order {
            let part = common::wholly_in(&dir, &["apply", "--", &format!("./{path}/")]);
            assert!(matches!(part.code, Some(0 | 8)), "{order:?}, {path}: {}{}", part.out, part.err);
            common::wholly_in(&dir, &["check"]).exits(0);
        }
        common::wholly_in(&dir, &["apply"]).exits(0);
        is_after(&dir, &format!("{order:?}"));
        assert_eq!(common::run::traces(&dir), [] as [&std::path::Path; 0]);
    }
    let dir = parked("ours");
    succeeds(&mut shell(&dir, "echo mine >> a; mkdir n; echo mine > n/own; echo mine > e/own"));
    let refused = common::wholly_in(&dir, &["apply", "--", "a"]);
    refused.exits(123);
    let applied = common::wholly_in(&dir, &["apply", "--ours"]);
    applied.exits(0);
    for path in ["a", "n", "e/own"] {
        assert!(applied.out.contains(&format!("\n  {path}: ")), "{path}: {}", applied.out);
    }
    let all = "cat a n/own e/own moved/b2 moved/new w v; ls n e; stat -c %a moved/c";
    let all = String::from_utf8(succeeds(&mut shell(&dir, all))).unwrap();
    assert_eq!(all, "one\nmine\nmine\nmine\ntwo\nin\nold\nfresh\ne:\nown\n\nn:\nown\n600\n");
    assert_eq!(common::run::traces(&dir), [] as [&std::path::Path; 0]);
}

/// Parking takes no second copy of a large file, however the command has written it.
#[test]
fn a_file_of_40_mb_is_parked_where_49_are_free() {
    let Some(rig) = Rig::new("parked-full").filter(|_| may_run(&["unshare"])) else { return };
    let dir = rig.dir("small", "mkdir at");
    for view in ["overlay", "fuse"] {
        let script = format!(
            "set -e; mount -t tmpfs -o size=160M none at; cd at; $W init >/dev/null; \
             free=$(stat -f -c %a .); head -c $(((free - 49 * 256) * 4096)) /dev/zero > fill; \
             code=0; $W run --view {view} --park -- sh -c 'head -c 40M /dev/urandom > new' || code=$?; \
             test $code = 121; test ! -e new; rm fill; $W apply >/dev/null; test $(stat -c %s-%h new) = 41943040-1; \
             $W deinit; test $(ls -A) = new"
        );
        let mut command = shell(&dir, "exec unshare -m sh -c \"$SCRIPT\"");
        succeeds(command.env("SCRIPT", script).env("W", env!("CARGO_BIN_EXE_wholly")));
    }
}
