//! Blows to `wholly run` and to what it runs, at random moments, and what may be left then.

use super::run::{recover, traces};
use super::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use wholly_sim::Random;

/// What the processes of a case have in their environment, and all that they start: the name of its directory.
const MARK: &str = "WHOLLY_TEST_CASE";

/// No program here takes anything like it: who needs it does not end.
const FOR_EVER: Duration = Duration::from_secs(300);

/// How often somebody is looked at who is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Who is struck, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL to the command.
    Command,
    /// SIGKILL to `wholly run`.
    Wholly,
    /// SIGTERM to `wholly run`.
    Term,
    /// SIGKILL to both.
    Both,
    /// SIGKILL to `wholly run` when the command has ended.
    Commit,
}

/// All of them.
pub const BLOWS: [Blow; 5] = [Blow::Command, Blow::Wholly, Blow::Term, Blow::Both, Blow::Commit];

/// How long a run took from its begin to the end of the command, and from there to its own end: what moments are drawn
/// from. That they are not those of the next run decides only how many blows hit.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    command: Duration,
    commit: Duration,
}

/// How often a blow hit a run, and what was left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub struck: u32,
    pub hit: u32,
    pub old: u32,
    pub new: u32,
}

/// A run of `wholly` in a directory, with all that it has started. None of that outlives the value.
pub struct Case {
    mark: Vec<u8>,
    child: Child,
    begun: Instant,
}

impl Case {
    /// Begins `command`, which works on `dir`.
    pub fn begin(command: &mut Command, dir: &Path) -> Case {
        let mark = [MARK.as_bytes(), b"=", dir.as_os_str().as_bytes()].concat();
        command.env(MARK, dir).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        Case { mark, child, begun: Instant::now() }
    }

    /// Waits for its end.
    pub fn end(mut self) -> ExitStatus {
        let status = self.wait();
        assert_eq!(self.family().len(), 0, "it has left processes");
        status
    }

    /// Waits for its end, and tells how long that took.
    pub fn measure(mut self) -> (ExitStatus, Spans) {
        self.wait_for_command();
        let command = self.begun.elapsed();
        let status = self.wait();
        (status, Spans { command, commit: self.begun.elapsed() - command })
    }

    /// Strikes, and gives how `wholly run` ended if that did, and whether a process was hit.
    fn strike(mut self, blow: Blow, spans: Spans, random: &mut Random) -> (ExitStatus, bool) {
        let below = |span: Duration, random: &mut Random| span.mul_f64(random.below(1000) as f64 / 1000.0);
        let hit = match blow {
            Blow::Commit => {
                self.wait_for_command();
                std::thread::sleep(below(spans.commit, random));
                self.kill_wholly(Signal::KILL)
            }
            _ => {
                std::thread::sleep(below(spans.command + spans.commit, random));
                match blow {
                    Blow::Command => self.kill_command(),
                    Blow::Term => self.kill_wholly(Signal::TERM),
                    Blow::Both => {
                        let hit = self.kill_command();
                        self.kill_wholly(Signal::KILL) || hit
                    }
                    Blow::Wholly | Blow::Commit => self.kill_wholly(Signal::KILL),
                }
            }
        };
        let status = self.wait();
        if status.signal().is_none() {
            assert_eq!(self.family().len(), 0, "it has left processes after {blow:?}");
        }
        (status, hit)
    }

    /// Whether it was there to be struck. A child that has ended and was not waited for keeps its number, so nobody
    /// else is.
    fn kill_wholly(&mut self, signal: Signal) -> bool {
        let runs = self.child.try_wait().unwrap().is_none();
        if runs {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
        runs
    }

    /// The command is what a process of `wholly` has started and is none itself.
    fn kill_command(&self) -> bool {
        let family = self.family();
        let ours: Vec<i32> = family.iter().filter(|process| process.is_wholly).map(|process| process.pid).collect();
        let commands = family.iter().filter(|process| !process.is_wholly && ours.contains(&process.parent));
        commands.filter(|command| kill(command.pid)).count() > 0
    }

    /// Waits until the command has ended, and all that it has started: until `wholly` is alone again, or has ended
    /// itself.
    fn wait_for_command(&mut self) {
        let me = i32::try_from(self.child.id()).unwrap();
        let mut has_begun = false;
        while self.child.try_wait().unwrap().is_none() {
            let is_alone = self.family().iter().all(|process| process.pid == me);
            if has_begun && is_alone {
                return;
            }
            has_begun |= !is_alone;
            self.is_bounded();
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            self.is_bounded();
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn is_bounded(&self) {
        assert!(self.begun.elapsed() < FOR_EVER, "it does not end: {:?}", self.family());
    }

    /// All processes of the case.
    fn family(&self) -> Vec<Process> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| Process::of(pid, &self.mark)).collect()
    }
}

impl Drop for Case {
    /// Nothing of it outlives this: mounts go with the last process that sees them.
    fn drop(&mut self) {
        let begun = Instant::now();
        loop {
            let family = self.family();
            for process in &family {
                kill(process.pid);
            }
            let _ = self.child.try_wait();
            if family.is_empty() {
                return;
            }
            if begun.elapsed() > FOR_EVER {
                assert!(std::thread::panicking(), "they cannot be killed: {family:?}");
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[derive(Debug)]
struct Process {
    pid: i32,
    parent: i32,
    is_wholly: bool,
}

impl Process {
    /// `None` where it is not of the case, or has ended.
    fn of(pid: i32, mark: &[u8]) -> Option<Process> {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        environment.split(|byte| *byte == 0).find(|word| *word == mark)?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the name, which may hold anything: state, parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        // Where it is seen depends on who has which root directory.
        let is_wholly = program.is_some_and(|program| program.file_name() == Some(OsStr::new("wholly")));
        Some(Process { pid, parent, is_wholly })
    }
}

fn kill(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}

/// That no mount of the directory is seen here, and nothing of Wholly is in it.
pub fn assert_ordinary(dir: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(dir.to_str().unwrap()), "{mounts}");
    assert_eq!(traces(dir), [] as [&Path; 0]);
}

/// Strikes a run on `dir`, which held `old` before, recovers it, and asserts that it holds that or what `is_new` finds
/// nothing to say about.
pub fn strike(
    (command, dir): (&mut Command, &Path),
    old: &Tree,
    is_new: impl Fn(&Tree) -> String,
    (blow, spans): (Blow, Spans),
    random: &mut Random,
    tally: &mut Tally,
) {
    let (status, hit) = Case::begin(command, dir).strike(blow, spans, random);
    if status.signal().is_none() {
        assert_ordinary(dir);
    }
    recover(dir);
    assert_ordinary(dir);
    let now = Tree::of(dir).but_for_its_time();
    let is_old = now == *old;
    let told = if is_old { String::new() } else { is_new(&now) };
    assert!(
        told.is_empty(),
        "{dir:?} after {blow:?} and {status}: neither old nor new: of the old\n{}of the new\n{told}",
        now.difference(old)
    );
    // Who ends by itself says how.
    if let Some(code) = status.code() {
        assert_eq!(code != 0, is_old, "{dir:?} after {blow:?}: {status}");
    }
    tally.struck += 1;
    tally.hit += u32::from(hit);
    *(if is_old { &mut tally.old } else { &mut tally.new }) += 1;
}
