//! Every command that README, docs and `--help` show is run as it stands there, in directories made for it. What cannot
//! be run here is listed with its reason in [`not_run`]; then its words at least are those that the command line takes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What `wholly run` runs in place of the command that is shown.
const STAND_IN: &str = "echo new > made";

/// Why a command is not run.
fn not_run(words: &[String]) -> Option<&'static str> {
    let has = |word: &str| words.iter().any(|it| it == word);
    match words[0].as_str() {
        "run" if has("--root") => Some("it would change this system; viewed/root.rs runs such commands"),
        "dump" if has("v.img") => Some("it takes a volume; volume.rs does that"),
        "tune" | "fsck" | "import" | "export" => Some("it takes a volume; volume.rs does that"),
        "mkfs" if has("flash:f.img") => Some("it takes a flash file; flash_volumes.rs does that"),
        "flash" => Some("it takes a flash file; flash.rs does that"),
        "nvme" => Some("it takes a device; nvme.rs does that"),
        "mount" => Some("its server outlives it; mount.rs mounts stores"),
        "crash" if !has("--list") && !has("--replay") => Some("it takes minutes; tools.rs explores something small"),
        "bench" => Some("it takes minutes; crates/bench-peers/tests/all/tiny.rs runs each suite"),
        _ => None,
    }
}

/// Shown commands of other programs, by their first word, and why they are not run.
const OTHERS: [(&str, &str); 4] = [
    ("cargo", "it builds; the Makefile's targets do the same"),
    ("cc", "crates/capi/tests/all/c_programs.rs runs it"),
    ("mount", "it takes /sbin/mount.wholly; mount.rs calls that"),
    ("umount", "it takes a mount"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// How a line begins that is typed.
const PROMPT: &str = "    $ ";

/// The pages for users.
fn pages() -> Vec<(String, String)> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = docs.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    paths.sort();
    paths.insert(0, root().join("README.md"));
    paths.into_iter().map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap())).collect()
}

fn wholly(words: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wholly"));
    command.args(words).env("WHOLLY_REGISTRY", "").env("WHOLLY_KEEP_UNDO", "no").stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The command of a line: without what explains it, and what its output goes to.
fn command(line: &str) -> &str {
    let ends = [line.find("  "), line.find(" #"), line.find(" | ")];
    line[..ends.into_iter().flatten().min().unwrap_or(line.len())].trim_end()
}

/// The lines of a page that are commands.
fn shown(page: &str) -> Vec<&str> {
    let commands = page.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let is_prompt = line.starts_with("$ ");
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let first = line.split(' ').next().unwrap_or_default();
        let is_command = ["wholly", "make"].contains(&first)
            || first.starts_with("WHOLLY_")
            || OTHERS.iter().any(|(other, _)| *other == first);
        (is_prompt || is_command).then(|| command(line))
    });
    commands.collect()
}

/// Directories for one command, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(number: usize) -> Scratch {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("documented-{}-{number}", std::process::id()));
        std::fs::create_dir_all(dir.join("here")).unwrap();
        std::fs::write(dir.join("here/file"), "old\n").unwrap();
        Scratch(dir)
    }

    /// The directory that stands for one that is shown.
    fn dir(&self, shown: &str) -> PathBuf {
        let dir = match shown {
            "." => self.0.join("here"),
            shown => self.0.join(shown.trim_start_matches(['/', '~']).replace('/', "-")),
        };
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(a, b)| a.parse::<u64>().is_ok() && b.parse::<u64>().is_ok())
}

/// Makes a store in `dir`, and in it what the verb takes: a parked group, or a command that can be undone. Gives its
/// id.
fn make_store(dir: &Path, verb: &str) -> Option<String> {
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|word| word.to_string()).collect() };
    let place = dir.to_str().unwrap();
    let made = output(&mut wholly(&words(&["init", place])));
    assert!(made.status.success(), "{made:?}");
    let (options, code, list) = match verb {
        "undo" => (&["--keep-undo", "1G"][..], 0, "log"),
        verb if takes_group(verb) => (&["--park"][..], 121, "list"),
        _ => return None,
    };
    let run = words(&[&["run"], options, &["--", "sh", "-c", STAND_IN]].concat());
    let run = output(wholly(&run).current_dir(dir));
    assert_eq!(run.status.code(), Some(code), "{run:?}");
    let listed = output(&mut wholly(&words(&[list, place])));
    let text = String::from_utf8(listed.stdout).unwrap();
    Some(text.split(' ').next().unwrap().to_string())
}

/// Whether a verb works on what `wholly run` has left.
fn takes_group(verb: &str) -> bool {
    ["diff", "apply", "discard", "undo"].contains(&verb)
}

/// The words are such as the command line takes: it explains itself only after it has read them.
fn is_understood(words: &[String]) {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let words = [&words[..end], &["--help".to_string()], &words[end..]].concat();
    let help = output(&mut wholly(&words));
    assert!(help.status.success(), "wholly {words:?}: {help:?}");
}

/// Runs what follows `wholly` in a line.
fn run(line: &str, variables: &[(&str, &str)], number: usize, can_run: bool) {
    let words: Vec<String> = line.split_whitespace().map(|word| word.trim_matches('\'').to_string()).collect();
    is_understood(&words);
    let verb = words.iter().find(|word| !word.starts_with('-')).unwrap().clone();
    let ordered: Vec<String> = [verb.clone()].into_iter().chain(words.iter().cloned()).collect();
    if not_run(&ordered).is_some() || ((verb == "run" || takes_group(&verb)) && !can_run) {
        return;
    }
    let scratch = Scratch::new(number);
    let (mut real, mut id, mut is_named) = (Vec::new(), None, false);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--" if verb == "apply" || verb == "undo" => real.push(word),
            "--" => {
                real.extend(["--", "sh", "-c", STAND_IN].map(String::from));
                break;
            }
            "--log-size" | "--view" | "--replay" | "--keep-undo" => real.extend([word, words.next().unwrap()]),
            "--html" | "--svg" => {
                let file = PathBuf::from(words.next().unwrap());
                real.extend([word, scratch.0.join(file.file_name().unwrap()).display().to_string()]);
            }
            word if word.starts_with("--") || word == verb || real.last().is_some_and(|it| it == "--") => {
                real.push(word.into());
            }
            word if is_id(word) => real.push(id.take().expect("a store stands before it")),
            // Where a store is salvaged to is not there yet.
            _ if verb == "salvage" && is_named => real.push(scratch.0.join("salvaged").display().to_string()),
            shown => {
                let dir = scratch.dir(shown);
                if !["init", "run"].contains(&&*verb) {
                    id = make_store(&dir, &verb);
                }
                is_named = true;
                real.push(dir.display().to_string());
            }
        }
    }
    let here = scratch.0.join("here");
    if !is_named && !["init", "run", "crash"].contains(&&*verb) {
        make_store(&here, &verb);
    }
    let mut command = wholly(&real);
    command
        .env("WHOLLY_REGISTRY", scratch.0.join("registry"))
        .current_dir(&here)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // What a person answers to a review, where there is one.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"apply\n");
    let output = child.wait_with_output().unwrap();
    let wanted = if real.iter().any(|word| word == "--park") { 121 } else { 0 };
    assert_eq!(output.status.code(), Some(wanted), "wholly {line}\n{command:?}: {output:?}");
}

fn can_run() -> bool {
    let can = std::fs::metadata("/proc/self").unwrap().uid() == 0 && Path::new("/dev/fuse").exists();
    if !can {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "it takes the superuser and /dev/fuse");
        println!("skipped in part: it takes the superuser and /dev/fuse");
    }
    can
}

#[test]
fn commands_of_the_pages() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let (can_run, mut number) = (can_run(), 0);
    for (page, text) in pages() {
        // The tutorial's commands build on each other.
        let text: String = match page.ends_with("tutorial.md") {
            true => text.lines().filter(|line| !line.starts_with(PROMPT)).map(|line| format!("{line}\n")).collect(),
            false => text,
        };
        for line in shown(&text) {
            number += 1;
            let mut variables = Vec::new();
            let mut rest = line;
            while let Some((word, others)) = rest.split_once(' ')
                && let Some(variable) = word.split_once('=')
            {
                variables.push(variable);
                rest = others;
            }
            match rest.split_once(' ').unwrap_or((rest, "")) {
                ("wholly", line) => run(line, &variables, number, can_run),
                ("make", target) => {
                    let target = target.split(' ').next().unwrap();
                    assert!(makefile.contains(&format!("\n{target}: ")), "{page}: make {target}");
                }
                (other, _) => {
                    assert!(OTHERS.iter().any(|(it, _)| *it == other), "{page}: {line}: run it, or say why not")
                }
            }
        }
    }
    assert!(number > 40, "{number}");
}

/// The picture in the README is what the command makes that [crash-model.md](../../../../docs/crash-model.md) names.
#[test]
fn picture_of_the_readme() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    const PICTURE: &str = "docs/crash.svg";
    assert!(read("README.md").contains(&format!("]({PICTURE})")));
    let page = read("docs/crash-model.md");
    let line = shown(&page).into_iter().find(|line| line.ends_with(PICTURE)).expect("the command");
    let scratch = Scratch::new(3000);
    std::fs::create_dir(scratch.0.join("docs")).unwrap();
    let words: Vec<String> = line.split(' ').skip(1).map(String::from).collect();
    let made = output(wholly(&words).current_dir(&scratch.0));
    assert!(made.status.success(), "{made:?}");
    let made = std::fs::read_to_string(scratch.0.join(PICTURE)).unwrap();
    assert!(made == read(PICTURE), "{PICTURE} is of another version. Make it again, look at it, commit it: {line}");
}

/// Commands of a page, each with what it prints.
fn steps(page: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut is_shown = false;
    for line in page.lines() {
        if let Some(command) = line.strip_prefix(PROMPT) {
            steps.push((command.into(), String::new()));
            is_shown = true;
        } else if let (Some(line), true) = (line.strip_prefix("    "), is_shown) {
            let (_, output) = steps.last_mut().expect("a command");
            *output += line;
            output.push('\n');
        } else {
            is_shown = false;
        }
    }
    steps
}

/// Whether a text is as a page shows it, with `...` in place of any text.
fn is_as_shown(text: &str, shown: &str) -> bool {
    let mut parts = shown.split("...");
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// The commands of the tutorial print what it shows, one after the other in one fresh folder.
#[test]
fn commands_of_the_tutorial() {
    if !can_run() {
        return;
    }
    let page = std::fs::read_to_string(root().join("docs/tutorial.md")).unwrap();
    let scratch = Scratch::new(2000);
    let top = scratch.0.join("tutorial");
    std::fs::create_dir(&top).unwrap();
    let mut here = top.canonicalize().unwrap();
    let shown_top = here.display().to_string();
    let bin = Path::new(env!("CARGO_BIN_EXE_wholly")).parent().unwrap().display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let steps = steps(&page);
    for (line, shown) in &steps {
        if let Some(to) = line.strip_prefix("cd ") {
            here = here.join(to).canonicalize().unwrap();
            continue;
        }
        // What a person types after a question does not come from the command.
        let (shown, answer) = match shown.split_once("? ") {
            Some((before, after)) => {
                let (answer, after) = after.split_once('\n').unwrap();
                (format!("{before}? {after}"), format!("{answer}\n"))
            }
            None => (shown.clone(), String::new()),
        };
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec 2>&1; {line}")]).current_dir(&here);
        command.env("PATH", &path).env("WHOLLY_REGISTRY", scratch.0.join("registry")).env_remove("WHOLLY_VIEW");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), answer.as_bytes());
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let text = text.replace(&shown_top, "/home/ann/tutorial");
        assert!(is_as_shown(&text, &shown), "$ {line}\n{text}instead of\n{shown}");
    }
    assert!(steps.len() > 20, "{}", steps.len());
}

#[test]
fn what_is_shown_is_compared() {
    assert!(is_as_shown("a\nb\n", "a\nb\n") && is_as_shown("a 1 b 2 c\n", "a ... b ...\n"));
    assert!(is_as_shown("anything\n", "...\n") && is_as_shown("", ""));
    assert!(!is_as_shown("a\nb\n", "a\n") && !is_as_shown("a\n", "") && !is_as_shown("a 1\n", "a ... b\n"));
}

#[test]
fn examples_of_the_help() {
    let verbs =
        "run list diff apply discard log undo init mount stat recover check salvage deinit dump flash nvme crash bench"
            .split(' ')
            .map(Some);
    let (can_run, mut number) = (can_run(), 1000);
    for verb in [None].into_iter().chain(verbs) {
        let words: Vec<String> = verb.into_iter().chain(["--help"]).map(String::from).collect();
        let help = String::from_utf8(output(&mut wholly(&words)).stdout).unwrap();
        let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{verb:?} has no examples"));
        let before = number;
        for line in examples.lines().filter_map(|line| line.strip_prefix("  wholly ")) {
            number += 1;
            run(command(line), &[], number, can_run);
        }
        assert!(number > before, "{verb:?}");
    }
}
