//! The verbs that need no store: crash, bench, completions, man; and what a mistyped command line meets.

use super::common::{Place, wholly};
use std::path::Path;
use std::process::Command;

#[test]
fn crash_explores_and_counts() {
    let found = wholly(&["crash", "--json", "small-commit", "random-1..2", "--world", "disk"]).json();
    let jobs = found["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!((&jobs[0]["workload"], &jobs[0]["world"]), (&"small-commit".into(), &"disk".into()));
    assert!(jobs.iter().all(|job| job["distinct_states"].as_u64().unwrap() > 0));
    assert!(found["violations"].as_array().unwrap().is_empty());
    let list = wholly(&["crash", "--list"]);
    list.exits(0);
    assert!(list.out.contains("two-files") && list.out.contains("pmem-eadr"), "{}", list.out);
    let of_volume = wholly(&["crash", "--list", "--subject", "volume:undo"]).out;
    for (name, is_there) in [("made-again", true), ("pmem-eadr", true), ("log-full", false), ("disk-ext4", false)] {
        assert!(list.out.contains(name) && of_volume.contains(name) == is_there, "{name}: {of_volume}");
    }
    let unknown = wholly(&["crash", "--subject", "volume:nothing"]);
    assert!(unknown.err.contains("page_cache_wal") && unknown.err.contains("shortcut_jfs"), "{}", unknown.err);
}

#[test]
fn pieces_of_an_exploration_are_the_whole_of_it() {
    let explored = |more: &[&str]| {
        let found =
            wholly(&[&["crash", "--json", "small-commit", "random-1..4", "--world", "disk"], more].concat()).json();
        let jobs = found["jobs"].as_array().unwrap().clone();
        (jobs.iter().map(|job| job["workload"].to_string()).collect::<Vec<_>>(), found["piece"].clone())
    };
    let (whole, none) = explored(&[]);
    assert!(none.is_null(), "{none}");
    let ((first, of_first), (second, _)) = (explored(&["--piece", "1/2"]), explored(&["--piece", "2/2"]));
    assert_eq!((first.len(), second.len()), (2, 2));
    assert_eq!((&of_first["workloads"], &of_first["whole"]), (&2.into(), &4.into()));
    let mut together = [first, second].concat();
    together.sort_by_key(|name| whole.iter().position(|of_whole| of_whole == name));
    assert_eq!(together, whole);
    for piece in ["0/2", "3/2", "2", "a/b"] {
        wholly(&["crash", "--piece", piece]).exits(16);
    }
}

/// Before `--`, what begins with a dash is an option, and no command.
#[test]
fn an_unknown_option_of_run_is_no_command() {
    let place = Place::on_disk();
    for words in [&["run", "--reveiw", "true"][..], &["run", "--reveiw", "--", "true"]] {
        let mistyped = super::common::wholly_in(&place.dir, words);
        mistyped.exits(125);
        assert!(mistyped.err.contains("a similar argument exists: '--review'"), "{}", mistyped.err);
    }
}

/// A world in which the sync of the log does nothing: states are lost that had been promised.
#[test]
fn crash_finds_what_is_broken_and_replays_it() {
    let place = Place::on_disk();
    let run = wholly(&["crash", "--json", "small-commit", "--world", "disk@batch.write=drop-order"]);
    run.exits(4);
    let found: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let state = found["violations"][0]["replay"].as_str().unwrap();
    let page = place.dir.join("crash.html");
    let replay = wholly(&["crash", "--replay", state, "--html", page.to_str().unwrap()]);
    replay.exits(4);
    assert!(replay.out.contains("VIOLATION"), "{}", replay.out);
    let page = std::fs::read_to_string(page).unwrap();
    for part in ["class=\"bad\"", "<svg", "broken on purpose", "VIOLATION", "<details>", "batch.write"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let table = wholly(&["crash", "--replay", state]);
    assert!(table.out.contains("batch.write") && table.out.contains("VIOLATION"), "{}", table.out);
}

/// The boxes of a picture, each by its class, and the texts in it.
fn seen(svg: &str) -> (Vec<&str>, Vec<&str>) {
    let between = |from: &'static str, to: &'static str| {
        svg.split(from).skip(1).filter_map(move |rest| rest.split_once(to)).map(|(what, _)| what)
    };
    let texts = between("<text", "</text>").filter_map(|text| text.split_once('>')).map(|(_, text)| text);
    (between("<rect class=\"box ", "\"").collect(), texts.collect())
}

/// One picture of each crash: what was kept and lost of a checkpoint, what recovery reads, and what a reader sees.
#[test]
fn crash_draws_what_was_lost_and_what_is_there() {
    let place = Place::on_disk();
    let (svg, page) = (place.dir.join("crash.svg"), place.dir.join("crash.html"));
    let files = ["--svg", svg.to_str().unwrap(), "--html", page.to_str().unwrap()];
    wholly(&[&["crash", "--replay", "two-files:disk:p40:only:34/p2:all"][..], &files].concat()).exits(0);
    let picture = std::fs::read_to_string(&svg).unwrap();
    let (boxes, texts) = seen(&picture);
    for fate in ["durable", "kept", "lost", "reads"] {
        assert!(boxes.contains(&fate), "{fate}: {boxes:?}");
    }
    for text in
        ["The power fails during checkpoint 2", "The power fails during recovery", "dir/b v0", "not all written back"]
    {
        assert!(texts.contains(&text), "{text}: {texts:?}");
    }
    assert_eq!(texts.iter().filter(|text| **text == "A reader sees after recovery").count(), 2);
    // In the page each picture stands by itself.
    let page = std::fs::read_to_string(&page).unwrap();
    assert_eq!((page.matches("<svg").count(), picture.matches("<svg").count()), (2, 1));
    wholly(&[&["crash", "--replay", "two-files:pmem:p60:kill"][..], &files].concat()).exits(0);
    let killed = std::fs::read_to_string(&svg).unwrap();
    assert!(killed.contains("The process dies") && seen(&killed).0.contains(&"pending"), "{killed}");
}

/// However long a run is, its picture stays as wide as a large screen.
#[test]
fn crash_draws_long_runs_short() {
    let place = Place::on_disk();
    let file = place.dir.join("crash.svg");
    for state in ["lots:pmem:p170:none", "laps:disk:p100:all", "volume:undo:two-files:pmem:p104:none"] {
        wholly(&["crash", "--replay", state, "--svg", file.to_str().unwrap()]).exits(0);
        let svg = std::fs::read_to_string(&file).unwrap();
        let (_, width) = svg.split_once("width=\"").unwrap();
        let width: u32 = width.split('"').next().unwrap().parse().unwrap();
        assert!((600..4000).contains(&width), "{state}: {width}");
        assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"), "{state}");
    }
}

#[test]
fn crash_replays_states_of_the_subject_that_is_named() {
    let state = "volume:undo:two-files:pmem:p20:none";
    wholly(&["crash", "--replay", state, "--subject", "volume:undo"]).exits(0);
    for (state, subject, of) in [
        (state, "store", "volume:undo"),
        (state, "volume:hybrid_log", "volume:undo"),
        ("two-files:pmem:p26:none", "volume:undo", "store"),
    ] {
        let run = wholly(&["crash", "--replay", state, "--subject", subject]);
        run.exits(16);
        let said = format!("{state} is a state of {of}, not of {subject}; leave --subject out");
        assert!(run.err.contains(&said), "{}", run.err);
    }
}

#[test]
fn crash_names_what_it_does_not_know() {
    for arguments in [&["crash", "nonsense"][..], &["crash", "--world", "moon"], &["crash", "--replay", "two-files"]] {
        let run = wholly(arguments);
        run.exits(16);
        assert!(run.err.starts_with("wholly: crash"), "{}", run.err);
    }
}

/// States of another version: the point is not there, or does not have what the choice names.
#[test]
fn crash_refuses_states_that_do_not_exist() {
    let replay = |choice: &str| wholly(&["--json", "crash", "--replay", &format!("two-files:pmem:{choice}")]);
    replay("p26:set:0,3").exits(0);
    for choice in [
        "p99999:none",
        "p26:set:0,3000",
        "p26:not:3000",
        "p26:mix:-:0=3000",
        "p26:num:18446744073709551615",
        "p26:only:99999",
        "p26:but:99999",
        "p26:none/p99999:none",
        "p26:none/p0:set:3000",
    ] {
        let run = replay(choice);
        run.exits(16);
        assert!(run.err.contains("crash --replay: ") && !run.err.contains("panicked"), "{choice}: {}", run.err);
    }
}

#[test]
fn crash_writes_no_page_without_a_state() {
    let place = Place::on_disk();
    let page = place.dir.join("crash.html");
    for (arguments, option) in
        [(&["crash"][..], "--html"), (&["crash", "two-files"], "--html"), (&["crash", "two-files"], "--svg")]
    {
        let run = wholly(&[arguments, &[option, page.to_str().unwrap()]].concat());
        run.exits(16);
        assert!(run.err.contains("--replay"), "{}", run.err);
    }
    assert!(!page.exists());
}

#[test]
fn bench_runs_a_suite_without_root() {
    let place = Place::on_memory();
    let arguments = ["bench", "groups", "--json", "--tiny", "--case", "one_64", "--medium"];
    let dir = place.dir.to_str().unwrap();
    let report = wholly(&[&arguments[..], &[&format!("pmem {dir}"), "--pmem", dir]].concat()).json_of_version(1);
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["system"] == "store" && row["case"] == "one_64"), "{report}");
    assert_eq!(report["machine"]["media"][0]["emulated"], true);
    let help = wholly(&["bench", "help"]);
    help.exits(0);
    assert!(help.out.contains("--turns"), "{}", help.out);
    let unknown = wholly(&["bench", "nonsense"]);
    unknown.exits(16);
    assert!(unknown.err.contains("no suite \"nonsense\""), "{}", unknown.err);
}

#[test]
fn bench_counts_the_groups_of_fcfs_without_root() {
    let place = Place::on_memory();
    let dir = place.dir.to_str().unwrap();
    let report = wholly(&["bench", "fcfs", "--json", "--tiny", "--case", "size_4k", "--pmem", dir]).json_of_version(1);
    let counts = report["counts"].as_array().unwrap();
    let wal = counts.iter().find(|row| row["system"] == "fine_grained_wal").unwrap();
    assert_eq!((&wal["formula"], &wal["phases"]["checkpoint"]["fences"]), (&"equal to the line".into(), &2.0.into()));
    let bound = |words: &str| {
        let bounds = report["bounds"].as_array().unwrap();
        bounds.iter().find(|bound| bound["what"].as_str().unwrap().contains(words)).unwrap().clone()
    };
    assert!(bound("two_files")["why"].as_str().unwrap().contains("was not counted"));
}

/// As the pages show it, with figures.
#[test]
fn bench_counts_the_records_of_minl2r() {
    let place = Place::on_memory();
    let (dir, figures) = (place.dir.to_str().unwrap(), place.dir.join("figures"));
    let arguments = ["bench", "minl2r", "--json", "--tiny", "--case", "fio", "--system", "undo", "--pmem", dir];
    let report = wholly(&[&arguments[..], &["--figures", figures.to_str().unwrap()]].concat()).json_of_version(1);
    let counts = report["counts"].as_array().unwrap();
    let of_4k = counts.iter().find(|row| row["system"] == "undo" && row["case"] == "fio_4k").unwrap();
    assert_eq!((&of_4k["formula"], &of_4k["phases"]["call"]["lines"]), (&"equal to the line".into(), &70.0.into()));
    assert!(std::fs::read_to_string(figures.join("minl2r-6.csv")).unwrap().contains("undo,2,"));
}

/// The program that links the peers is looked for beside this one; a copy of this one has nothing beside it.
#[test]
fn bench_says_which_program_is_missing() {
    let place = Place::on_disk();
    let copy = place.dir.join("wholly");
    std::fs::copy(env!("CARGO_BIN_EXE_wholly"), &copy).unwrap();
    let output = Command::new(&copy).args(["bench", "--peers", "groups"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("wholly-bench-peers is not in") && error.contains("build it with"), "{error}");
}

#[test]
fn packagers_get_completions_and_pages() {
    let place = Place::on_disk();
    for shell in ["bash", "zsh", "fish"] {
        let script = wholly(&["completions", shell]);
        script.exits(0);
        assert!(script.out.contains("recover"), "{shell}");
        let file = place.dir.join(shell);
        std::fs::write(&file, &script.out).unwrap();
        // A shell that is not there has nobody to complete for.
        if let Ok(parsed) = Command::new(shell).arg("-n").arg(&file).output() {
            assert!(parsed.status.success(), "{shell}: {}", String::from_utf8_lossy(&parsed.stderr));
        }
    }
    let load = format!("source {} && complete -p wholly", place.dir.join("bash").display());
    let loaded = Command::new("bash").args(["--norc", "-c", &load]).output().unwrap();
    assert!(String::from_utf8_lossy(&loaded.stdout).starts_with("complete "), "{loaded:?}");
    let dir = place.dir.join("man");
    std::fs::create_dir(&dir).unwrap();
    wholly(&["man", dir.to_str().unwrap()]).exits(0);
    assert!(std::fs::read_to_string(dir.join("wholly-init.1")).unwrap().contains("dry\\-run"));
    assert!(!dir.join("wholly-man.1").exists(), "hidden verbs have no page");
}

/// SEE ALSO names pages that exist, the page of `wholly mkfs` among them.
fn refers_to_pages(dir: &Path, page: &Path, text: &str) {
    let (_, others) = text.split_once(".SH \"SEE ALSO\"\n").unwrap_or_else(|| panic!("{}: no others", page.display()));
    let others: Vec<String> = others.lines().map(|line| line.trim_end_matches(',').replace('\\', "")).collect();
    let is_of_volumes = page.ends_with("wholly-mkfs.1") || others.iter().any(|other| other == "wholly-mkfs(1)");
    assert!(is_of_volumes, "{}: {others:?}", page.display());
    for other in others.iter().filter_map(|other| other.strip_suffix("(1)")) {
        assert!(dir.join(format!("{other}.1")).exists(), "{} names {other}", page.display());
        assert_ne!(dir.join(format!("{other}.1")), page, "it names itself");
    }
}

/// Every verb that people see has a page, with an example, that groff has nothing to say against.
#[test]
fn pages_render_without_warnings() {
    let place = Place::on_disk();
    wholly(&["man", place.dir.to_str().unwrap()]).exits(0);
    let mut pages = 0;
    for page in std::fs::read_dir(&place.dir).unwrap().map(|entry| entry.unwrap().path()) {
        if page.extension().is_none_or(|extension| extension != "1") {
            continue;
        }
        pages += 1;
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("Examples:"), "{}", page.display());
        refers_to_pages(&place.dir, &page, &text);
        let Ok(rendered) = Command::new("groff").args(["-man", "-ww", "-z", "-Tutf8"]).arg(&page).output() else {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "there is no groff");
            eprintln!("skipped: there is no groff");
            return;
        };
        assert!(
            rendered.status.success() && rendered.stderr.is_empty(),
            "{}: {}",
            page.display(),
            String::from_utf8_lossy(&rendered.stderr)
        );
    }
    assert_eq!(pages, 32, "one for the command, one for each verb, and one for each verb of `flash` and `nvme`");
}

#[test]
fn a_mistyped_line_is_told_from_a_failure() {
    for arguments in [&["frobnicate"][..], &["stat", "--frobnicate"], &[], &["init", "--log-size", "much", "."]] {
        let run = wholly(arguments);
        run.exits(16);
        assert!(!run.err.is_empty() && run.out.is_empty());
    }
    for arguments in [&["--help"][..], &["help", "recover"], &["--version"]] {
        let run = wholly(arguments);
        run.exits(0);
        assert!(run.err.is_empty() && !run.out.is_empty());
    }
    assert!(wholly(&["recover", "--help"]).out.contains("Examples:"));
}
