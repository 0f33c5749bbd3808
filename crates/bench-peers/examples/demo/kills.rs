//! A real program on real files, killed at random moments.
//!
//! The program is this one, run again as a child. It commits group after group and tells the number of each over a pipe
//! as soon as its commit has returned. The parent kills it (SIGKILL: nothing of it runs any more), opens the store,
//! which recovers it, and compares every file.

use crate::scene::{Stop, Tree};
use crate::work::{self, Contents, Program, Work, read};
use indicatif::ProgressBar;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wholly::{Options, Store};
use wholly_bench::{Error, Result};
use wholly_sim::Random;

/// What was gone through.
#[derive(Default)]
pub struct Killed {
    /// Groups that were committed.
    pub groups: u64,
    /// Times the program was killed.
    pub kills: u64,
    /// Of these, how often the group in flight was there all the same.
    pub there: u64,
    /// Time that recovery took, the longest.
    pub slowest_recovery: Duration,
}

/// A log small enough that data go home, and segments are used again, all the time.
fn options(background: bool) -> Options {
    Options {
        segment_bytes: 64 << 10,
        log_min_bytes: 512 << 10,
        log_max_bytes: 2 << 20,
        background,
        ..Options::default()
    }
}

/// Kills the program for as long as `duration`, on a copy of the tree in `dir`.
pub fn run(tree: &Tree, dir: &Path, seed: u64, duration: Duration, bar: &ProgressBar, stop: &Stop) -> Result<Killed> {
    let store = dir.join("files");
    std::fs::create_dir(&store)?;
    tree.copy(&store)?;
    let names: Vec<String> = tree.files.0.keys().cloned().collect();
    let list = dir.join("names");
    std::fs::write(&list, names.join("\n"))?;
    Store::init(&store, &options(false)).map_err(text)?;
    let work = Work::new(names, seed);
    let mut committed = tree.files.clone();
    let mut random = Random(seed);
    let mut done = Killed::default();
    let start = Instant::now();
    while start.elapsed() < duration {
        stop.check()?;
        let mut child = spawn("child", &store, &list, seed, done.groups)?;
        wait(&mut random);
        let returned = kill(&mut child, stop)?;
        for number in done.groups..done.groups + returned {
            committed.0.extend(committed.after(&work, number));
        }
        done.groups += returned;
        done.kills += 1;
        let recovered = Instant::now();
        let opened = Store::open_with(&store, options(false), Default::default()).map_err(text)?;
        done.slowest_recovery = done.slowest_recovery.max(recovered.elapsed());
        if judge(&work, &mut committed, &opened, &store, done.groups, random.below(2) == 0)
            .map_err(|wrong| format!("after kill {} (seed {seed}): {wrong}", done.kills))?
        {
            done.groups += 1;
            done.there += 1;
        }
        bar.set_position(start.elapsed().min(duration).as_millis() as u64);
    }
    Ok(done)
}

/// Waits from before the program has opened anything to after many groups.
fn wait(random: &mut Random) {
    let longest_us = if random.below(4) == 0 { 8_000 } else { 60_000 };
    std::thread::sleep(Duration::from_micros(random.below(longest_us)));
}

/// The same program without Wholly, which writes each file and syncs it: how often it was killed, and how often that
/// left an update half-done.
pub fn run_plainly(
    tree: &Tree,
    dir: &Path,
    seed: u64,
    duration: Duration,
    bar: &ProgressBar,
    stop: &Stop,
) -> Result<(u64, u64)> {
    let (files, list) = (dir.join("plain"), dir.join("plain-names"));
    std::fs::create_dir(&files)?;
    tree.copy(&files)?;
    let names: Vec<String> = tree.files.0.keys().cloned().collect();
    std::fs::write(&list, names.join("\n"))?;
    let work = Work::new(names, seed);
    let mut committed = tree.files.clone();
    let mut random = Random(seed);
    let (mut groups, mut kills, mut half_done) = (0, 0, 0);
    let start = Instant::now();
    while start.elapsed() < duration {
        stop.check()?;
        let mut child = spawn("child-plain", &files, &list, seed, groups)?;
        wait(&mut random);
        let returned = kill(&mut child, stop)?;
        for number in groups..groups + returned {
            committed.0.extend(committed.after(&work, number));
        }
        groups += returned;
        kills += 1;
        let changed = committed.after(&work, groups);
        match committed.judge(&changed, |name| ordinary(&files, name)) {
            Ok(true) => {
                committed.0.extend(changed);
                groups += 1;
            }
            Ok(false) => {}
            Err(_) => {
                half_done += 1;
                // Put right by hand, which nobody could who does not know what was going on.
                for name in changed.keys() {
                    match committed.0.get(name) {
                        Some(content) => std::fs::write(files.join(name), content)?,
                        None => std::fs::remove_file(files.join(name)).or_else(|error| match error.kind() {
                            std::io::ErrorKind::NotFound => Ok(()),
                            _ => Err(error),
                        })?,
                    }
                }
            }
        }
        bar.set_position(start.elapsed().min(duration).as_millis() as u64);
    }
    Ok((kills, half_done))
}

/// A file as any program sees it; none where it does not exist.
fn ordinary(dir: &Path, name: &str) -> Result<Option<Vec<u8>>, String> {
    match std::fs::read(dir.join(name)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        content => content.map(Some).map_err(|error| error.to_string()),
    }
}

/// Compares everything with what was committed; whether the group in flight is there. Half of the time the store is
/// closed, and the ordinary files are compared too, as any program sees them; else the next life finds the log as this
/// one does.
fn judge(
    work: &Work,
    committed: &mut Contents,
    store: &Store,
    dir: &Path,
    groups: u64,
    close: bool,
) -> Result<bool, String> {
    if let Some((path, change)) = store.recovery().conflicts.first() {
        return Err(format!("{} is said to have been changed by another program: {change}", path.display()));
    }
    let changed = committed.after(work, groups);
    let there = committed.judge(&changed, |name| read(store, name))?;
    if there {
        committed.0.extend(changed.clone());
    }
    if close {
        store.clone().close().map_err(|error| error.to_string())?;
        committed.judge(&Default::default(), |name| ordinary(dir, name))?;
        let files = count(dir).map_err(|error| error.to_string())?;
        if files != committed.0.len() {
            return Err(format!("there are {files} files, and there should be {}", committed.0.len()));
        }
    }
    Ok(there)
}

/// Number of files below a directory, the store's own folder left out.
fn count(dir: &Path) -> std::io::Result<usize> {
    let mut n = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == ".wholly" {
            continue;
        }
        n += if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Ok(n)
}

/// The program, from group `first` on.
fn spawn(verb: &str, store: &Path, list: &Path, seed: u64, first: u64) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(verb).arg(store).arg(list).arg(seed.to_string()).arg(first.to_string());
    // In a process group of its own, so that Ctrl-C reaches the parent alone, which ends it.
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn()?)
}

/// Kills the program, and returns how many groups it had told of.
fn kill(child: &mut Child, stop: &Stop) -> Result<u64> {
    child.kill()?;
    let mut told = Vec::new();
    child.stdout.take().expect("it is piped").read_to_end(&mut told)?;
    let status = child.wait()?;
    stop.check()?;
    if status.code().is_some() {
        return Err(Error::from(format!("the program ended by itself: {status}")));
    }
    Ok(told.len() as u64)
}

/// What the child does, until it is killed: `child DIR NAMES SEED FIRST`; plainly, without Wholly.
pub fn child(plain: bool, arguments: &[String]) -> Result<()> {
    // Should the parent die, nobody needs this any more.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let [dir, list, seed, first] = arguments else { return Err("child DIR NAMES SEED FIRST".into()) };
    let names = std::fs::read_to_string(list)?.lines().map(str::to_owned).collect();
    let work = Work::new(names, seed.parse()?);
    let mut program: Box<dyn FnMut(u64) -> Result<()>> = if plain {
        Box::new(|number| Ok(work::run_plainly(&work, Path::new(dir), number)?))
    } else {
        let store = Store::open_with(dir, options(true), Default::default()).map_err(text)?;
        let mut program = Program::new(&work, store);
        Box::new(move |number| program.run(number).map_err(text))
    };
    let mut told = std::io::stdout().lock();
    let first: u64 = first.parse()?;
    for number in first.. {
        program(number)?;
        told.write_all(&[1])?;
        told.flush()?;
    }
    Ok(())
}

/// The words of an error.
pub fn text(error: wholly::Error) -> Error {
    Error::from(error.to_string())
}
