//! The command: how it begins, and how all of it ends.
//!
//! It is started by a second process of ours, which has itself killed when the first one dies and then becomes the command. Whatever it
//! starts becomes a child of the first process when its own parent ends, so that none is missed.

use crate::args::ExecArgs;
use crate::error::{Exit, Failure};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper, set_parent_process_death_signal, wait,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};

/// The command, which runs.
pub struct Command {
    child: Child,
    signals: SignalsInfo<WithOrigin>,
}

/// How it ended.
pub struct Ended {
    /// Its exit code, or 128 and the number of the signal.
    pub status: u8,
    /// Somebody wanted it to end before.
    was_interrupted: bool,
}

impl Ended {
    /// Whether what it has done is to happen.
    pub fn is_success(&self) -> bool {
        self.status == 0 && !self.was_interrupted
    }
}

fn failed(words: &[OsString], error: impl ToString) -> Failure {
    Failure::new(format!("run {}", words[0].to_string_lossy()), error)
}

impl Command {
    /// Starts it in the directory `here`, as that is now.
    pub fn start(words: &[OsString], here: &Path) -> Result<Command, Failure> {
        set_child_subreaper(Some(getpid())).map_err(|errno| failed(words, errno))?;
        // Before there is anybody to be told.
        let signals = SignalsInfo::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).map_err(|error| failed(words, error))?;
        let me = std::env::current_exe().map_err(|error| failed(words, error))?;
        let parent = getpid().as_raw_nonzero().to_string();
        let mut command = std::process::Command::new(me);
        command.args(["exec", "--parent", &parent, "--dir"]).arg(here).arg("--").args(words);
        let child = command.spawn().map_err(|error| failed(words, error))?;
        Ok(Command { child, signals })
    }

    /// Waits until it has ended, and ends all that it has left. Signals that come from others than the terminal it gets, too.
    pub fn wait(self) -> Result<Ended, Failure> {
        let Command { mut child, mut signals } = self;
        let pid = Pid::from_child(&child);
        let (handle, interrupted) = (signals.handle(), AtomicBool::new(false));
        let status = std::thread::scope(|scope| {
            scope.spawn(|| {
                for origin in signals.forever() {
                    interrupted.store(true, Ordering::Relaxed);
                    let signal = Signal::from_named_raw(origin.signal);
                    if let (Some(_), Some(signal)) = (origin.process, signal) {
                        let _ = kill_process(pid, signal);
                    }
                }
            });
            let status = child.wait();
            handle.close();
            status
        });
        let status = status.map_err(|error| Failure::new("run", error))?;
        end_all().map_err(|errno| Failure::new("run: to end what the command has started", errno))?;
        let signal = status.signal().map(|signal| 128 + signal);
        let status = status.code().or(signal).and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX);
        Ok(Ended { status, was_interrupted: interrupted.into_inner() })
    }
}

/// Ends all children of this process, and what becomes one by that.
fn end_all() -> rustix::io::Result<()> {
    loop {
        for child in children() {
            match kill_process(child, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno),
            }
        }
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(()),
            Err(errno) => return Err(errno),
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
    std::env::set_current_dir(&args.dir).map_err(not_run)?;
    let error = std::process::Command::new(&words[0]).args(&words[1..]).exec();
    let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NOT_THERE } else { Exit::CANNOT_RUN };
    Err(failed(words, error).exit(exit))
}
