//! The command: how it begins, and how all of it ends.
//!
//! It is started by a second process of ours, which has itself killed when the first one dies and then becomes the command. Whatever it
//! starts becomes a child of the first process when its own parent ends, so that none is missed.

use super::interrupts::Interrupts;
use crate::args::ExecArgs;
use crate::error::{Exit, Failure};
use crate::limits::OpenFiles;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper, set_parent_process_death_signal,
    waitpid,
};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Child;

/// A command, which runs once it is started.
pub struct Command<'a> {
    words: &'a [OsString],
    interrupts: &'a Interrupts,
    /// Children that this process had before it was what it is: a shell may have left it some.
    others: HashSet<Pid>,
    child: Option<Child>,
}

fn failed(words: &[OsString], error: impl ToString) -> Failure {
    Failure::new(format!("run {}", words[0].to_string_lossy()), error)
}

impl<'a> Command<'a> {
    pub fn of(words: &'a [OsString], interrupts: &'a Interrupts) -> Self {
        Command { words, interrupts, others: HashSet::new(), child: None }
    }

    /// Starts it in the directory `here`, as that is now, with that limit of open files.
    pub fn start(mut self, here: &Path, files: OpenFiles) -> Result<Self, Failure> {
        let words = self.words;
        let as_proc_has_it = std::fs::read_link("/proc/self").ok().and_then(|me| me.to_str()?.parse().ok());
        if as_proc_has_it != Some(pid_of_me()) {
            return Err(
                failed(words, "/proc is not that of this process").advice("mount it: its children are found there")
            );
        }
        self.others = children().into_iter().collect();
        set_child_subreaper(Some(getpid())).map_err(|errno| failed(words, errno))?;
        let me = std::env::current_exe().map_err(|error| failed(words, error))?;
        let mut command = std::process::Command::new(me);
        command.args(["exec", "--parent", &pid_of_me().to_string(), "--files", &files.to_argument(), "--dir"]);
        command.arg(here).arg("--").args(words);
        self.child = Some(command.spawn().map_err(|error| failed(words, error))?);
        Ok(self)
    }

    /// Waits until it has ended, and ends all that it has left. Gives its exit code, or 128 and the number of the signal.
    pub fn wait(self) -> Result<u8, Failure> {
        let mut child = self.child.expect("it was started");
        self.interrupts.tell(Some(Pid::from_child(&child)));
        let status = child.wait();
        self.interrupts.tell(None);
        let status = status.map_err(|error| failed(self.words, error))?;
        end_all(&self.others)
            .map_err(|errno| failed(self.words, format!("what it has started does not end: {errno}")))?;
        let signal = status.signal().map(|signal| 128 + signal);
        Ok(status.code().or(signal).and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX))
    }
}

fn pid_of_me() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Ends all children of this process but these, and what becomes one by that.
fn end_all(others: &HashSet<Pid>) -> rustix::io::Result<()> {
    loop {
        let mine: Vec<Pid> = children().into_iter().filter(|child| !others.contains(child)).collect();
        if mine.is_empty() {
            return Ok(());
        }
        for child in &mine {
            match kill_process(*child, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno),
            }
        }
        for child in mine {
            loop {
                match waitpid(Some(child), WaitOptions::empty()) {
                    Err(Errno::INTR) => {}
                    Ok(_) | Err(Errno::CHILD) => break,
                    Err(errno) => return Err(errno),
                }
            }
        }
    }
}

/// The children of this process, as `/proc` has them.
fn children() -> Vec<Pid> {
    let me = getpid();
    let parent = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the name, which may hold anything: state, parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Pid::from_raw(parent)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid) == Some(me)).filter_map(Pid::from_raw).collect()
}

/// `wholly exec`: becomes the command, which does not outlive who started it.
///
/// It goes to its directory here, and not between `fork` and `exec`: there it would wait for the mount with the mount's own device open, and
/// for ever, if its server died.
pub fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    let words = &args.command;
    let not_run = |error: std::io::Error| failed(words, error).exit(Exit::NOT_RUN);
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| not_run(errno.into()))?;
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent != Some(args.parent) {
        // It has died before that.
        return Ok(Exit::NOT_RUN);
    }
    OpenFiles::of_argument(&args.files).set();
    std::env::set_current_dir(&args.dir).map_err(not_run)?;
    let error = std::process::Command::new(&words[0]).args(&words[1..]).exec();
    let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NOT_THERE } else { Exit::CANNOT_RUN };
    Err(failed(words, error).exit(exit))
}
