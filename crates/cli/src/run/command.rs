//! The command: how it begins.
//!
//! It is started by a process of ours, which has itself killed when its parent dies and then becomes the command.

use super::interrupts::Interrupts;
use crate::args::{ExecArgs, HoldArgs};
use crate::error::{Exit, Failure};
use crate::limits::OpenFiles;
use crate::mounts::over;
use rustix::process::{Pid, Signal, chroot, getpid, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

/// The words to a process of ours that is to be a child of this one.
pub fn helper(verb: &str, files: &str) -> Command {
    // Its path says nothing in another namespace than that in which it was started, where that has a root directory of
    // its own.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("wholly").args([verb, "--parent", &getpid().as_raw_nonzero().to_string(), "--files", files]);
    command
}

/// Has this process killed when `parent` dies; `false` where that is dead already.
pub fn dies_with(parent: i32) -> rustix::io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(getppid().map(|parent| parent.as_raw_nonzero().get()) == Some(parent))
}

/// The exit code of a process, or 128 and the number of the signal.
pub fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX)
}

/// Runs the command to its end; what it has left is there still.
pub fn run(args: &HoldArgs, interrupts: &Interrupts) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| of(&args.command, error);
    let mut command = helper("exec", &args.files);
    // The root directory is covered by itself.
    command.args((args.dir == [Path::new("/")]).then_some("--root"));
    command.arg("--dir").arg(&args.here).arg("--").args(&args.command);
    let mut child = command.spawn().map_err(failed)?;
    interrupts.tell(Some(Pid::from_child(&child)));
    let status = child.wait();
    interrupts.tell(None);
    Ok(code(status.map_err(failed)?))
}

fn of(words: &[OsString], error: std::io::Error) -> Failure {
    Failure::new(format!("run {}", words[0].to_string_lossy()), error)
}

/// `wholly exec`: becomes the command, which does not outlive who started it.
pub fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    let not_run = |error: std::io::Error| of(&args.command, error).exit(Exit::NOT_RUN);
    if !dies_with(args.parent).map_err(|errno| not_run(errno.into()))? {
        return Ok(Exit::NOT_RUN);
    }
    OpenFiles::of_argument(&args.files).set();
    if args.root {
        // What is mounted over the root directory.
        chroot(over(Path::new("/"))).map_err(|errno| not_run(errno.into()))?;
    }
    std::env::set_current_dir(&args.dir).map_err(not_run)?;
    let words = &args.command;
    let error = Command::new(&words[0]).args(&words[1..]).exec();
    let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NOT_THERE } else { Exit::CANNOT_RUN };
    Err(of(words, error).exit(exit))
}
