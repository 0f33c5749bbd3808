//! The store on real ext4, XFS and btrfs, and a power failure beneath them: is what the model says of host file systems
//! true of them?
//!
//! A loop device stands on a recording file. A program makes a store on the file system there, of files that nobody has
//! synced, commits groups, and tells when each of that begins and has returned. From the record images are made: what
//! was flushed, and a subset of what was not. Each is mounted, so that the file system recovers itself. Where the
//! making had not returned there is a whole store or none, and one can be made; else the store is opened, recovers
//! itself, and must serve every group whose commit had returned, and of the one in flight all or nothing: bytes, names,
//! permission bits and extended attributes. Then a new group commits, everything goes home, and the directory holds it.
//! The same is done with a multi-queue journal in a file there.
//!
//! Needs root, FUSE and loop devices; the long run makes some thousand images. All mounts are in a mount namespace of
//! their own process and go with it.

mod disk;
mod journal;
mod tree;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use disk::{Disks, Event, Pages, Point, Served};
use wholly::{Options, Store};
use wholly_sim::Random;

use tree::{GROUPS, commit};

/// What this program is to do, where it was started by itself.
const ROLE: &str = "WHOLLY_REAL_FS_ROLE";

/// Images that one process mounts.
const MOUNTS: usize = 16;

/// XFS wants 300 MiB; what is zero takes no memory.
const DISK_BYTES: u64 = 320 << 20;

fn open(dir: &Path) -> Result<Store, String> {
    let options = Options { background: false, ..options() };
    Store::open_with(dir, options, Default::default()).map_err(|error| format!("the store does not open: {error}"))
}

/// In which some files are staged, and have shadows where they can.
fn options() -> Options {
    Options {
        segment_bytes: 16 << 10,
        log_min_bytes: 64 << 10,
        log_max_bytes: 512 << 10,
        stage_bytes: 10_000,
        open_files: 0,
        spare_bytes: 0,
        ..Options::default()
    }
}

/// Tells the recorder, and waits until it knows.
fn tell(what: &str) {
    println!("\n@{what}");
    std::io::stdout().flush().expect("the recorder listens");
    std::io::stdin().read_line(&mut String::new()).expect("the recorder answers");
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program} {}: {said}", arguments.join(" "))) }
}

fn mount(kind: &str, scratch: &Path, disk: u64) -> Result<PathBuf, String> {
    let (image, dir) = (scratch.join(format!("disks/{disk}")), scratch.join(format!("mounted/{disk}")));
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let options = if kind == "xfs" { "loop,nouuid" } else { "loop" };
    let (image, at) = (image.to_string_lossy(), dir.to_string_lossy());
    run("mount", &["-t", kind, "-o", options, &image, &at])?;
    Ok(dir.join("store"))
}

/// The program that is recorded.
fn record(kind: &str, subject: &str, scratch: &Path) {
    let dir = mount(kind, scratch, 0).expect("the disk mounts");
    match subject {
        "journal" => record_journal(&dir),
        _ => record_store(&dir),
    }
    tell("end");
}

fn record_journal(dir: &Path) {
    tell("making");
    journal::make(dir).expect("the journal is made");
    tell("made");
    let journal = journal::open(dir).expect("nothing has happened to it");
    for group in 0..GROUPS {
        tell(&format!("begin {group}"));
        journal::commit(&journal, group).expect("it commits");
        tell(&format!("returned {group}"));
    }
}

fn record_store(dir: &Path) {
    for (name, content) in tree::initial_files() {
        std::fs::write(dir.join(name), content).expect("write");
    }
    tell("making");
    Store::init(dir, &options()).expect("the store is made");
    tell("made");
    let store = open(dir).expect("nothing has happened to it");
    for group in 0..GROUPS {
        tell(&format!("begin {group}"));
        commit(&store, group).expect("it commits");
        tell(&format!("returned {group}"));
        if group % 6 == 5 {
            store.checkpoint().expect("it goes home");
        }
    }
}

/// Makes the directory in which a store is to be made.
fn prepare(kind: &str, scratch: &Path) {
    let dir = mount(kind, scratch, 0).expect("the disk mounts");
    std::fs::create_dir_all(dir.join("dir")).expect("mkdir");
    run("sync", &["-f", &dir.to_string_lossy()]).expect("sync");
}

/// What an image may hold.
#[derive(Clone, Copy)]
struct Allowed {
    /// The making of the store has returned.
    is_made: bool,
    /// Groups whose commits have returned.
    least: u32,
    /// Groups whose commits have begun.
    most: u32,
}

/// Mounts an image, recovers what was recorded, and asks whether what it serves is what may be there.
fn judge(kind: &str, subject: &str, scratch: &Path, disk: u64, allowed: Allowed) -> Result<(), String> {
    let dir = mount(kind, scratch, disk)?;
    if subject == "journal" {
        return journal::judge(&dir, allowed);
    }
    let Allowed { is_made, least, most } = allowed;
    if !is_made && !dir.join(".wholly").exists() {
        Store::init(&dir, &options()).map_err(|error| format!("no store can be made: {error}"))?;
        return open(&dir)?.close().map_err(|error| format!("close: {error}"));
    }
    let store = open(&dir)?;
    if let Some((path, change)) = store.recovery().conflicts.first() {
        return Err(format!("a conflict where nobody interfered: {}: {change}", path.display()));
    }
    let found = tree::served(&store).map_err(|error| error.to_string())?;
    let Some(groups) = (least..=most).find(|groups| tree::after(*groups) == found) else {
        let what = tree::difference(&tree::after(most), &found).unwrap_or_default();
        return Err(format!("after {least} to {most} groups: {what}"));
    };
    // Groups draw on nothing but their number.
    tree::commit(&store, groups).map_err(|error| format!("a new group: {error}"))?;
    store.close().map_err(|error| format!("close: {error}"))?;
    let home = tree::at_home(&dir).map_err(|error| error.to_string())?;
    if let Some(what) = tree::difference(&tree::after(groups + 1), &home) {
        return Err(format!("at home: {what}"));
    }
    Ok(())
}

/// This program again, in a mount namespace of its own.
fn again(role: &str, scratch: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(std::env::current_exe().expect("a program"));
    command.args(["--exact", "real_fs::real_file_systems_recover_as_the_model_says", "--nocapture"]);
    command.env(ROLE, role).env("WHOLLY_REAL_FS_SCRATCH", scratch);
    command
}

/// Runs a role to its end and gives it what it says; each line is answered once `said` returns.
fn talk(mut command: Command, mut said: impl FnMut(&str)) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare");
    let mut answer = child.stdin.take().expect("a pipe");
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        if let Some(what) = line.expect("text").strip_prefix('@') {
            said(what);
            let _ = answer.write_all(b"\n");
        }
    }
    assert!(child.wait().expect("it ends").success(), "{command:?} failed");
}

/// Records, makes images and has them judged: in a namespace of its own. Returns how many, and what is wrong.
fn explore(kind: &str, subject: &str, scratch: &Path, wanted: usize) -> (usize, Vec<String>) {
    let image = scratch.join("made");
    std::fs::File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).expect("a file");
    let path = image.to_string_lossy().into_owned();
    let arguments: &[&str] = match kind {
        "xfs" | "btrfs" => &["-q", "-f", &path],
        _ => &["-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0", &path],
    };
    run(&format!("mkfs.{kind}"), arguments).expect("it is made");
    let disks = Arc::new(Disks::default());
    disks.put(0, Pages::of(&std::fs::read(&image).expect("it was made")));
    std::fs::remove_file(&image).expect("it was made");
    std::fs::create_dir_all(scratch.join("disks")).expect("mkdir");
    let served = Served { disks: disks.clone(), disk_bytes: DISK_BYTES };
    // Never unmounted: it goes with the namespace.
    std::mem::forget(fuser::spawn_mount(served, scratch.join("disks"), &fuser::Config::default()).expect("FUSE"));
    talk(again(&format!("prepare {kind}"), scratch), |_| {});
    let base = disks.take(0);
    disks.put(0, base.clone());
    drop(disks.recorded());
    talk(again(&format!("record {kind} {subject}"), scratch), |what| disks.mark(what));
    let mut events = disks.recorded();
    let end = events.iter().position(|event| matches!(event, Event::Mark(what) if what == "end")).expect("it ended");
    events.truncate(end);

    let writes = events.iter().filter(|event| matches!(event, Event::Write { .. })).count();
    let flushes = events.iter().filter(|event| matches!(event, Event::Flush)).count();
    // The rig can see: a disk that forgets everything is noticed.
    let all = Allowed { is_made: true, least: GROUPS, most: GROUPS };
    let mut images = vec![(base.clone(), all, "a disk that forgets".to_owned())];
    assert_eq!(
        judged(kind, subject, scratch, &disks, &mut images).len(),
        1,
        "a disk that forgot everything was not noticed"
    );
    let place = |mark: &str| {
        let is_it = |event: &Event| matches!(event, Event::Mark(what) if what == mark);
        events.iter().position(is_it).expect("it was told")
    };
    let (making, returned) = (place("making"), place("made") + 1);
    let (mut made, mut wrong, mut most_units) = (0, Vec::new(), 0);
    for n in 0..wanted {
        if made + images.len() >= wanted {
            break;
        }
        // One in three while the store is made; half of the points right before a flush, where most is pending; and
        // first of all when it is just made.
        let among = if n % 3 == 2 { making..returned + 1 } else { 0..events.len() + 1 };
        let mut point = among.start + Random(n as u64).below(among.len() as u64) as usize;
        if n % 2 == 1 {
            point += events[point..].iter().position(|event| matches!(event, Event::Flush)).unwrap_or(0);
        }
        if n == 0 {
            point = returned;
        }
        let marks = |what: &str| {
            let mark = |event: &&Event| matches!(event, Event::Mark(said) if said.starts_with(what));
            events[..point].iter().filter(mark).count() as u32
        };
        let allowed = Allowed { is_made: marks("made") == 1, least: marks("returned"), most: marks("begin") };
        let at = Point::after(&base, &events[..point]);
        most_units = most_units.max(at.units());
        const OF_8: [u64; 8] = [0, 8, 1, 2, 4, 4, 6, 7];
        for (k, of_8) in OF_8.into_iter().enumerate().take(if at.units() == 0 { 1 } else { OF_8.len() }) {
            let mut random = Random((n * OF_8.len() + k) as u64);
            let pages = at.image(|| random.below(8) < of_8);
            images.push((pages, allowed, format!("{subject} on {kind}, after event {point}, draw {k}")));
        }
        if images.len() >= MOUNTS {
            made += images.len();
            wrong.extend(judged(kind, subject, scratch, &disks, &mut images));
        }
    }
    made += images.len();
    wrong.extend(judged(kind, subject, scratch, &disks, &mut images));
    println!(
        "{subject} on {kind}: {made} images of {writes} writes and {flushes} flushes, at most {most_units} pages pending; {} wrong",
        wrong.len()
    );
    (made, wrong)
}

/// Has images judged in one process, and forgets them.
fn judged(
    kind: &str,
    subject: &str,
    scratch: &Path,
    disks: &Disks,
    images: &mut Vec<(Pages, Allowed, String)>,
) -> Vec<String> {
    let mut role = format!("judge {kind} {subject}");
    for (number, (pages, Allowed { is_made, least, most }, _)) in (1u64..).zip(&*images) {
        disks.put(number, pages.clone());
        role += &format!(" {number}:{}:{least}:{most}", u8::from(*is_made));
    }
    let (mut wrong, mut heard) = (Vec::new(), 0);
    talk(again(&role, scratch), |what| {
        let (number, verdict) = what.split_once(' ').expect("a number and a verdict");
        heard += 1;
        if verdict != "fine" {
            let (.., name) = &images[number.parse::<usize>().expect("a number") - 1];
            wrong.push(format!("{name}: {verdict}"));
        }
    });
    assert_eq!(heard, images.len(), "a verdict for each image");
    (1..=images.len() as u64).for_each(|number| _ = disks.take(number));
    images.clear();
    wrong
}

/// What is missing of what this needs.
fn missing() -> Option<String> {
    if run("mount", &["--version"]).is_err() || run("unshare", &["--mount", "true"]).is_err() {
        return Some("mounting needs root".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(device) {
            return Some(format!("{device}: {error}"));
        }
    }
    ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]
        .into_iter()
        .find(|program| run(program, &["-V"]).is_err())
        .map(|it| format!("no {it}"))
}

#[test]
fn real_file_systems_recover_as_the_model_says() {
    if let Ok(role) = std::env::var(ROLE) {
        let scratch = PathBuf::from(std::env::var_os("WHOLLY_REAL_FS_SCRATCH").expect("set with the role"));
        let words: Vec<&str> = role.split(' ').collect();
        match words[0] {
            "explore" => {
                let (made, wrong) = explore(words[1], words[2], &scratch, words[3].parse().expect("a number"));
                assert!(wrong.is_empty(), "{} of {made} images:\n{}", wrong.len(), wrong.join("\n"));
            }
            "prepare" => prepare(words[1], &scratch),
            "record" => record(words[1], words[2], &scratch),
            "judge" => {
                for image in &words[3..] {
                    let numbers: Vec<u64> = image.split(':').map(|n| n.parse().expect("a number")).collect();
                    let [disk, is_made, least, most] = numbers[..] else { panic!("{image}") };
                    let allowed = Allowed { is_made: is_made == 1, least: least as u32, most: most as u32 };
                    let verdict = judge(words[1], words[2], &scratch, disk, allowed);
                    tell(&format!(
                        "{disk} {}",
                        verdict.map_or_else(|what| what.replace('\n', " "), |()| "fine".into())
                    ));
                }
            }
            other => panic!("no role is called {other}"),
        }
        return;
    }
    if let Some(what) = missing() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{what}");
        println!("skipped: {what}");
        return;
    }
    let images = if std::env::var_os("WHOLLY_LONG").is_some() { 1000 } else { 48 };
    let scratch = std::env::temp_dir().join(format!("wholly-real-fs-{}", std::process::id()));
    std::fs::create_dir(&scratch).expect("mkdir");
    let mut failed = Vec::new();
    let stores = ["ext4", "xfs", "btrfs"].map(|kind| (kind, "store", images));
    let journals = ["ext4", "xfs"].map(|kind| (kind, "journal", images / 2));
    for (kind, subject, images) in stores.into_iter().chain(journals) {
        let scratch = scratch.join(format!("{subject}-{kind}"));
        std::fs::create_dir(&scratch).expect("mkdir");
        if !again(&format!("explore {kind} {subject} {images}"), &scratch).status().expect("unshare").success() {
            failed.push(format!("{subject} on {kind}"));
        }
    }
    std::fs::remove_dir_all(&scratch).expect("nothing is mounted here any more");
    assert!(failed.is_empty(), "see above: {failed:?}");
}
