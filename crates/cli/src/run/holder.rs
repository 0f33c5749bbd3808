//! The server's side of the process that holds its mounts and runs the command; see [`hold`](super::hold).

use super::channel::{Channel, MOST, Mounted, Said};
use super::command;
use super::family::Family;
use super::interrupts::Interrupts;
use super::namespace::Covered;
use crate::error::{Exit, Failure};
use crate::limits::OpenFiles;
use rustix::process::Pid;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Stdio};

/// The command's words, the directory in which it begins, how many files it may have open, and whether it has an
/// ordinary user's rights.
pub type Command<'a> = (&'a [OsString], &'a Path, OpenFiles, bool);

/// The holder. Dropped before its command has ended, it ends, and all that it has started.
pub struct Holder<'a> {
    words: &'a [OsString],
    child: Child,
    channel: Channel,
    family: Family,
    interrupts: &'a Interrupts,
    has_ended: bool,
}

impl<'a> Holder<'a> {
    /// Starts one for the views of these directories: overlays that are called so, where names are given. The command
    /// is to begin in the directory `here`, as that is then, with that limit of open files, and with an ordinary user's
    /// rights.
    pub fn start(
        (words, here, files, is_ordinary): Command<'a>,
        (dirs, overlays): (&[Covered], &[&str]),
        interrupts: &'a Interrupts,
    ) -> Result<Holder<'a>, Failure> {
        let failed = |error: io::Error| failed(words, error);
        if dirs.len() > MOST {
            return Err(Failure::new("run", format!("more than {MOST} directories")));
        }
        let family = Family::begin()?;
        let (channel, theirs) = Channel::pair().map_err(failed)?;
        let mut command = command::helper("hold", &files.to_argument());
        command.args(is_ordinary.then_some("--ordinary")).arg("--here").arg(here);
        for dir in dirs {
            command.arg("--dir").arg(&dir.dir);
            for other in &dir.others {
                command.arg("--other").arg(&other.path);
            }
        }
        overlays.iter().for_each(|name| _ = command.arg("--overlay").arg(name));
        command.arg("--").args(words).stdin(Stdio::from(theirs));
        channel.say(&Said::Begin, &[io::stdin().as_fd()]).map_err(failed)?;
        let child = command.spawn().map_err(failed)?;
        // Or its own copy of the other end would keep that open.
        drop(command);
        interrupts.tell(Some(Pid::from_child(&child)));
        Ok(Holder { words, child, channel, family, interrupts, has_ended: false })
    }

    /// Has it mount the views where only the command will see them: overlays only when all directories have layers.
    /// Gives over which directories they are, and the devices of those that have such.
    pub fn mount(&mut self, are_overlays: bool) -> Result<(Vec<Mounted>, Vec<OwnedFd>), Failure> {
        if are_overlays {
            self.channel.say(&Said::Mount, &[]).map_err(|error| failed(self.words, error))?;
        }
        match self.hear()? {
            (Said::Mounted(mounted), devices) if devices.len() == if are_overlays { 0 } else { mounted.len() } => {
                Ok((mounted, devices))
            }
            (said, _) => Err(self.unexpected(&said)),
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The views are served: runs the command. On return all that it has started has ended, and the views are gone.
    /// Between the two it calls `when_quiet`, with whether the command has succeeded. Gives its exit code, or 128 and
    /// the number of the signal.
    pub fn run(mut self, when_quiet: impl FnOnce(bool)) -> Result<u8, Failure> {
        self.channel.say(&Said::Serve, &[]).map_err(|error| failed(self.words, error))?;
        match self.hear()?.0 {
            Said::Quiet { is_success } => when_quiet(is_success),
            said => return Err(self.unexpected(&said)),
        }
        self.channel.say(&Said::TakeAway, &[]).map_err(|error| failed(self.words, error))?;
        match self.hear()?.0 {
            Said::Ended { status, interrupt } => {
                self.has_ended = true;
                if let Some(signal) = interrupt {
                    self.interrupts.note(signal);
                }
                let _ = self.child.wait();
                Ok(status)
            }
            said => Err(self.unexpected(&said)),
        }
    }

    fn hear(&mut self) -> Result<(Said, Vec<OwnedFd>), Failure> {
        match self.channel.hear() {
            Ok((Said::Failed(failure), _)) => Err(failure),
            Ok(heard) => Ok(heard),
            // It has been killed; the command with it.
            Err(_) => {
                let status = self.child.wait().map_err(|error| failed(self.words, error))?;
                let code = command::code(status);
                let exit = if code > 128 { Exit::of_child(code) } else { Exit::NOT_RUN };
                Err(Failure::new(
                    "run",
                    format!("the process that holds the command's mounts has exited with status {code}"),
                )
                .advice("nothing has changed")
                .exit(exit))
            }
        }
    }

    fn unexpected(&self, said: &Said) -> Failure {
        failed(self.words, io::Error::other(format!("unexpected message from the holder of its mounts: {said:?}")))
    }
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        self.interrupts.tell(None);
        if !self.has_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = self.family.end();
        }
    }
}

fn failed(words: &[OsString], error: io::Error) -> Failure {
    Failure::new(format!("run {}", words[0].to_string_lossy()), error)
}
