//! What has become of a group is told apart by the exit code, and with `--json` by one object, whatever has happened.

use super::common::run::{Rig, as_group, has_store, recover, run};
use super::common::{self, Place, may_run, wholly};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const DISCARDED: i32 = 122;
const PARKED: i32 = 121;
const REFUSED: i32 = 123;
const UNKNOWN: i32 = 120;

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

/// The one object on a line.
fn object(out: &[u8]) -> Value {
    let out = std::str::from_utf8(out).expect("UTF-8");
    assert_eq!(out.lines().count(), 1, "{out:?}");
    let value: Value = serde_json::from_str(out).expect("JSON");
    assert_eq!(value["output_version"], 7, "{out}");
    value
}

fn reviewed(dir: &Path, options: &[&str], answer: &str) -> Output {
    let mut command = as_group(dir, &[&["--review"], options].concat(), "echo new > new");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn each_end_of_a_run_has_its_code() {
    let Some(rig) = Rig::new("outcomes") else { return };
    let dir = rig.dir("dir", "echo old > file");
    let told = |output: &Output| {
        let told = object(&output.stdout);
        (told["outcome"].as_str().unwrap().to_owned(), told["status"].as_i64(), told["exit"].as_i64())
    };
    let is = |outcome: &str, status: i64, exit: i32| (outcome.to_string(), Some(status), Some(exit.into()));

    let committed = run(&dir, &["--json"], "echo committed > file");
    assert_eq!((code(&committed), told(&committed)), (0, is("committed", 0, 0)));
    let failed = run(&dir, &["--json"], "exit 9");
    assert_eq!((code(&failed), told(&failed)), (9, is("aborted", 9, 9)));
    assert_eq!(code(&reviewed(&dir, &[], "d\n")), DISCARDED);
    assert!(!dir.join("new").exists() && !has_store(&dir));
    let discarded = reviewed(&dir, &["--json"], "d\n");
    assert_eq!((code(&discarded), told(&discarded)), (DISCARDED, is("discarded", 0, DISCARDED)));
    assert_eq!(code(&reviewed(&dir, &[], "a\n")), 0);
    std::fs::remove_file(dir.join("new")).unwrap();

    for parked in [reviewed(&dir, &["--json"], "p\n"), reviewed(&dir, &["--json"], "")] {
        assert_eq!((code(&parked), told(&parked)), (PARKED, is("parked", 0, PARKED)));
    }
    let parked = run(&dir, &["--park", "--json"], "echo parked > file");
    assert_eq!((code(&parked), told(&parked)), (PARKED, is("parked", 0, PARKED)));
    let refused =
        while_it_runs(&dir, &["--json"], "echo mine > file", || std::fs::write(dir.join("file"), "theirs").unwrap());
    assert_eq!((code(&refused), told(&refused)), (REFUSED, is("parked", 0, REFUSED)), "{refused:?}");
    let told = object(&refused.stdout);
    assert_eq!(told["dirs"][0]["mismatches"][0]["path"], "file", "{told}");

    // What is in a parked group's way refuses it, and is no damage.
    let id = told["dirs"][0]["id"].as_str().unwrap();
    let place = dir.to_str().unwrap();
    let apply = wholly(&["apply", place, id]);
    apply.exits(REFUSED);
    let apply = wholly(&["--json", "apply", place, id]);
    apply.exits(REFUSED);
    assert_eq!(object(apply.out.as_bytes())["mismatches"][0]["path"], "file");
    // What is not there is none of these.
    let apply = wholly(&["--json", "apply", place, "77-77"]);
    apply.exits(8);
    let told = object(apply.out.as_bytes());
    assert_eq!((&told["verb"], &told["error"]["exit"]), (&"apply".into(), &8.into()), "{told}");
    wholly(&["deinit", "--discard-parked", place]).exits(0);
}

/// Runs a script that then waits, and meanwhile `between`.
fn while_it_runs(dir: &Path, options: &[&str], script: &str, between: impl FnOnce()) -> Output {
    let mut command = as_group(dir, options, &format!("{script}; echo ready; read line"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    between();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child.wait_with_output().unwrap()
}

/// Its parent and the parent of that, of the command: by them `wholly` itself is found.
const WHOLLY: &str = "wholly=$(awk '{ print $4 }' /proc/$PPID/stat)";

/// The write of the commit fails when the command has ended: the limit of a file's size stands for a medium that has
/// failed.
#[test]
fn an_unknown_outcome_is_called_so() {
    let Some(rig) = Rig::new("unknown") else { return };
    if !may_run(&["prlimit", "awk"]) {
        return;
    }
    // Not in memory, where a log is not written by calls. What undoes the group is written, the log not.
    let place = Place::on_disk();
    let script = format!("echo new > a; {WHOLLY}; prlimit --pid $wholly --fsize=8192:");
    for (options, is_json) in [(&[][..], false), (&["--json"], true)] {
        let output = run(&place.dir, options, &script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), UNKNOWN, "{said}");
        assert!(said.contains("it is unknown whether the changes are committed: "), "{said}");
        assert!(said.contains("run `wholly recover`"), "{said}");
        if is_json {
            assert_eq!(object(&output.stdout)["error"]["exit"], UNKNOWN);
        }
        // The folder stays, and tells.
        assert!(has_store(&place.dir));
        recover(&place.dir);
        let content = std::fs::read(place.dir.join("a")).unwrap();
        assert!(content == [0; 1000] || content == b"new\n", "{content:?}");
        std::fs::write(place.dir.join("a"), [0; 1000]).unwrap();
    }

    drop(rig);
}

/// A limit that is met before the commit leaves no doubt, and `wholly` does not die of it.
#[test]
fn the_limit_of_a_files_size_is_an_error() {
    let place = Place::on_disk();
    let dir = place.dir.to_str().unwrap();
    let limited = |arguments: &str| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -f 4 && exec \"$0\" {arguments}");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_wholly"), dir]).env("WHOLLY_REGISTRY", "").output().unwrap()
    };
    let init = limited("init \"$1\"");
    assert_eq!(code(&init), 8, "{init:?}");
    assert!(String::from_utf8_lossy(&init.stderr).contains("File too large"), "{init:?}");
    assert!(!has_store(&place.dir));
    place.run(&["init"]).exits(0);
    place.crash_after_groups(3);
    let recover = limited("--json recover \"$1\"");
    assert_eq!(code(&recover), 8, "{recover:?}");
    assert!(object(&recover.stdout)["error"]["why"].as_str().unwrap().contains("File too large"), "{recover:?}");
    place.run(&["recover"]).exits(1);
}

/// The command finds the signal of that limit as it would without Wholly.
#[test]
fn a_command_meets_its_own_limit_as_ever() {
    let Some(rig) = Rig::new("limit") else { return };
    let dir = rig.dir("dir", "");
    let ended = run(&dir, &[], "ulimit -f 1; exec head -c 4096 /dev/zero > big");
    assert_eq!(code(&ended), 128 + 25, "{ended:?}");
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" run --dir \"$1\" -- grep SigIgn /proc/self/status"])
        .arg(env!("CARGO_BIN_EXE_wholly"))
        .arg(&dir)
        .output()
        .unwrap();
    let mask = String::from_utf8(output.stdout).unwrap();
    let mask = u64::from_str_radix(mask.split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert_ne!(mask & (1 << 24), 0);
}

/// Whatever a verb fails of, its JSON says so.
#[test]
fn failures_are_json() {
    let place = Place::on_disk();
    let dir = place.dir.to_str().unwrap();
    let verbs: [(&[&str], i32); 20] = [
        (&["stat", dir], 8),
        (&["dump", dir], 8),
        (&["check", dir], 8),
        (&["recover", dir], 8),
        (&["recover", "/nowhere"], 8),
        (&["recover", "--all"], 8),
        (&["deinit", dir], 8),
        (&["list", dir], 8),
        (&["diff", dir, "1-1"], 8),
        (&["apply", dir, "1-1"], 8),
        (&["discard", dir, "1-1"], 8),
        (&["init", "/nowhere"], 8),
        (&["mount", dir], 8),
        (&["mount", "-o", "policy=none", dir], 16),
        (&["crash", "nonsense"], 16),
        (&["bench", "nonsense"], 16),
        (&["run", "--dir", "/nowhere", "--", "true"], 125),
        (&["run"], 125),
        (&["nonsense"], 16),
        (&["init", "--log-size", "much"], 16),
    ];
    for (arguments, code) in verbs {
        for arguments in [[&["--json"], arguments].concat(), [&arguments[..1], &["--json"], &arguments[1..]].concat()] {
            let run = wholly(&arguments);
            run.exits(code);
            let told = object(run.out.as_bytes());
            let verb = arguments.iter().find(|word| **word != "--json").unwrap();
            assert_eq!((&told["verb"], &told["error"]["exit"]), (&(*verb).into(), &code.into()), "{told}");
            assert!(!told["error"]["why"].as_str().unwrap().is_empty() && !run.err.is_empty(), "{told}");
        }
    }
}

/// Two files are two, whatever their names are, and nothing of a name is read as something else.
#[test]
fn names_are_exact_for_programs_and_safe_for_people() {
    let Some(rig) = Rig::new("names") else { return };
    let above = rig.dir("above", "mkdir \"$(printf 'di\\377r')\"");
    let dir = above.join(OsStr::from_bytes(b"di\xffr"));
    std::fs::write(dir.join("file"), "old").unwrap();
    let names: [&[u8]; 7] = [
        b"a\xfe",
        b"a\xff",
        b"esc\x1b[2K",
        b"nl\ncreated   harmless",
        "\u{202e}gpj.exe".as_bytes(),
        "z\u{200b}w".as_bytes(),
        b"plain",
    ];
    let script = "printf x > \"$(printf 'a\\376')\"; printf x > \"$(printf 'a\\377')\"; printf x > \"$(printf 'esc\\033[2K')\"; printf x > \"$(printf 'nl\\ncreated   harmless')\";
        printf x > \"$(printf '\\342\\200\\256gpj.exe')\"; printf x > \"$(printf 'z\\342\\200\\213w')\"; printf x > plain; echo new > file";
    let parked = run(&dir, &["--park", "--json"], script);
    assert_eq!(code(&parked), PARKED, "{parked:?}");
    let exact = |told: &Value, field: &str| match told.get(format!("{field}_hex")) {
        Some(hex) => {
            let hex = hex.as_str().unwrap();
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        }
        None => told[field].as_str().unwrap().as_bytes().to_vec(),
    };
    let changed = |told: &Value| -> Vec<Vec<u8>> {
        let created = told.as_array().unwrap().iter().filter(|change| change["what"] == "created");
        created.map(|change| exact(change, "path")).collect()
    };
    let mut wanted = names.map(<[u8]>::to_vec);
    wanted.sort();
    let told = object(&parked.stdout);
    assert_eq!(exact(&told["dirs"][0], "dir"), dir.as_os_str().as_bytes());
    let mut all = changed(&told["dirs"][0]["changes"]);
    all.sort();
    assert_eq!(all, wanted);
    let id = told["dirs"][0]["id"].as_str().unwrap();

    let of = |arguments: &[&str], last: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wholly"));
        command.args(arguments).arg(&dir).args(last).env("WHOLLY_REGISTRY", "").output().unwrap()
    };
    let diff = object(&of(&["--json", "diff"], &[id]).stdout);
    let mut all = changed(&diff["changes"]);
    all.sort();
    assert_eq!((exact(&diff, "dir"), &*all), (dir.as_os_str().as_bytes().to_vec(), &wanted[..]));
    for verb in ["list", "stat", "check", "dump"] {
        let told = object(&of(&["--json", verb], &[]).stdout);
        assert_eq!(exact(&told, "dir"), dir.as_os_str().as_bytes(), "{verb}");
    }

    let review = of(&["diff"], &[id]);
    let shown = "\n".to_string() + std::str::from_utf8(&review.stdout).unwrap();
    for name in [
        "a\\xfe ",
        "a\\xff ",
        "esc\\u{1b}[2K ",
        "nl\\ncreated   harmless ",
        "\\u{202e}gpj.exe ",
        "z\\u{200b}w ",
        "plain ",
    ] {
        assert!(shown.contains(&format!("\ncreated   {name}")), "{name}: {shown}");
    }
    let safe = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap_or_else(|_| panic!("{bytes:?}"));
        assert!(!text.contains(['\u{202e}', '\u{200b}', '\x1b', '\u{fffd}']), "{text:?}");
    };
    safe(shown.as_bytes());
    // What is in the way, and what fails, has names in it.
    for name in ["\u{202e}gpj.exe", "esc\x1b[2K"] {
        std::fs::write(dir.join(name), "theirs").unwrap();
    }
    let apply = of(&["apply"], &[id]);
    assert_eq!(code(&apply), REFUSED);
    assert!(String::from_utf8_lossy(&apply.stdout).contains("\n  \\u{202e}gpj.exe: "), "{apply:?}");
    let missing = above.join("\u{202e}\x1b");
    for verb in ["init", "stat", "check", "list", "recover", "deinit", "mount"] {
        let failed = Command::new(env!("CARGO_BIN_EXE_wholly")).arg(verb).arg(&missing).output().unwrap();
        safe(&failed.stderr);
        assert!(String::from_utf8_lossy(&failed.stderr).contains("\\u{202e}\\u{1b}"), "{failed:?}");
    }
    for output in [&parked, &apply, &of(&["list"], &[]), &of(&["stat"], &[]), &of(&["check"], &[])] {
        safe(&output.stderr);
    }
    assert_eq!(code(&of(&["deinit", "--discard-parked"], &[])), 0);
}

#[test]
fn what_the_file_system_refuses_changes_nothing() {
    let Some(rig) = Rig::new("refused") else { return };
    for (number, what) in ["rm i", "chmod 600 i", "mv i j"].iter().enumerate() {
        let dir = rig.dir(&format!("dir{number}"), "echo old > f && echo i > i && mkdir d && echo x > d/x");
        let path = dir.join("i");
        let Some(immutable) = common::Flag::immutable(&path) else {
            return common::skipped("chattr +i, which needs root and a file system that has it");
        };
        let script = format!("echo new > new; echo changed > f; mv f g; rm -r d; {what} || exit 77");
        let refused = run(&dir, &["--json"], &script);
        // Some views refuse it at the call: then the command has failed.
        let is_refused = code(&refused) == REFUSED;
        assert!(is_refused || code(&refused) == 77, "{what}: {refused:?}");
        if is_refused {
            let error = object(&refused.stdout);
            assert!(error["error"]["why"].as_str().unwrap().contains("not permitted"), "{error}");
        }
        drop(immutable);
        assert!(!has_store(&dir), "{what}");
        let content = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(
            (content("f"), content("i"), content("d/x")),
            ("old\n".into(), "i\n".into(), "x\n".into()),
            "{what}"
        );
        assert!(!dir.join("g").exists() && !dir.join("new").exists(), "{what}");
    }
}

/// A view takes nothing home by appending, and says so.
#[test]
fn an_append_only_file_cannot_be_appended_to() {
    let Some(rig) = Rig::new("append-only") else { return };
    let dir = rig.dir("dir", "echo old > f && echo log > a");
    let path = dir.join("a");
    let Some(append_only) = common::Flag::new("a", &path) else {
        return common::skipped("chattr +a, which needs root and a file system that has it");
    };
    let refused = run(&dir, &[], "echo new > f; echo more >> a || exit 77");
    assert!([REFUSED, 77].contains(&code(&refused)), "{refused:?}");
    drop(append_only);
    let content = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!((content("f"), content("a")), ("old\n".into(), "log\n".into()));
    assert!(!has_store(&dir));
}

/// A command changes more files than `wholly` may have open.
#[test]
fn a_command_may_change_more_files_than_may_be_open() {
    let Some(rig) = Rig::new("open-files") else { return };
    if !may_run(&["prlimit"]) {
        return;
    }
    let dir = rig.dir("dir", "mkdir d; for i in $(seq 1500); do echo $i > d/$i; done");
    let group = |script: &str| {
        let mut command = common::views::command("prlimit");
        command.args(["--nofile=512:512", env!("CARGO_BIN_EXE_wholly"), "run", "--", "sh", "-c", script]);
        let output = command.current_dir(&dir).stdin(Stdio::null()).output().unwrap();
        assert_eq!(code(&output), 0, "{script}: {output:?}");
    };
    let sum = |script: &str| String::from_utf8(common::run::succeeds(&mut common::run::shell(&dir, script))).unwrap();
    group("for i in d/*; do echo more >> $i; done");
    assert_eq!(sum("cat d/* | grep -c more").trim(), "1500");
    group("cd d; for i in *; do echo new > .t; mv .t $i; done");
    assert_eq!(sum("cat d/* | sort -u").trim(), "new");
    group("cd d; for i in *; do mv $i x$i; done");
    assert_eq!(sum("ls d | grep -c x").trim(), "1500");
    group("rm -rf d");
    assert!(!dir.join("d").exists() && !has_store(&dir));
}

/// What the command does to the directory itself lasts, and its time of modification is the one that the command set:
/// that a store comes and goes leaves none of its own.
#[test]
fn the_directory_has_the_times_that_the_command_set() {
    use std::os::unix::fs::MetadataExt;
    let Some(rig) = Rig::new("times") else { return };
    let dir = rig.dir("dir", "echo a > a; touch -d @1000 .");
    let mtime = || std::fs::metadata(&dir).unwrap().mtime();
    for (script, status, expected) in [
        ("true", 0, 1000),
        ("echo b > a", 0, 1000),
        ("echo b > b; exit 3", 3, 1000),
        ("touch -d @2000 .", 0, 2000),
        ("echo c > c; chmod 2751 .; touch -d @3000 .", 0, 3000),
    ] {
        let output = run(&dir, &[], script);
        assert_eq!((code(&output), mtime()), (status, expected), "{script}: {output:?}");
    }
    assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o7777, 0o2751);
    // Parked, it stays where it is.
    assert_eq!(code(&run(&dir, &["--park"], "touch -d @4000 .")), PARKED);
    assert_eq!(mtime(), 3000);
    wholly(&["deinit", "--discard-parked", dir.to_str().unwrap()]).exits(0);
    assert_eq!(mtime(), 3000);
}

/// Space that the command reserves in a file that was there is reserved when the command has ended.
#[test]
fn space_that_a_command_reserves_is_reserved() {
    use std::os::unix::fs::MetadataExt;
    let Some(rig) = Rig::new("reserved") else { return };
    if !may_run(&["fallocate"]) {
        return;
    }
    let dir = rig.dir("dir", "head -c 20000 /dev/zero | tr '\\0' x > grown; echo x > kept");
    let script = "fallocate -l 3000000 grown; fallocate -n -l 2000000 kept; fallocate -l 1000000 new";
    assert_eq!(code(&run(&dir, &[], script)), 0);
    for (name, size, least) in [("grown", 3_000_000, 3_000_000), ("kept", 2, 2_000_000), ("new", 1_000_000, 1_000_000)]
    {
        let stat = std::fs::metadata(dir.join(name)).unwrap();
        assert!(stat.len() == size && stat.blocks() * 512 >= least, "{name}: {stat:?}");
    }
    assert!(std::fs::read(dir.join("grown")).unwrap()[..20_000].iter().all(|&byte| byte == b'x'));
}
