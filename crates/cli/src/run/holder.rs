//! The server's side of the process that holds its mounts and runs the command; see [`hold`](super::hold).

use super::channel::{Channel, MOST, Said};
use super::command;
use super::family::Family;
use super::interrupts::Interrupts;
use super::namespace::Covered;
use crate::error::{Exit, Failure};
use crate::limits::OpenFiles;
use crate::named::Identity;
use rustix::process::Pid;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Stdio};

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
    /// Has the views of these directories mounted where only the command will see them, and gives which these were, with their devices. The command is to begin in the
    /// directory `here`, as that is then, with that limit of open files, and with an ordinary user's rights.
    pub fn start(
        (words, here, files, is_ordinary): (&'a [OsString], &Path, OpenFiles, bool),
        dirs: &[Covered],
        interrupts: &'a Interrupts,
    ) -> Result<(Holder<'a>, Vec<(Identity, OwnedFd)>), Failure> {
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
        command.arg("--").args(words).stdin(Stdio::from(theirs));
        channel.say(&Said::Begin, &[io::stdin().as_fd()]).map_err(failed)?;
        let child = command.spawn().map_err(failed)?;
        // Or its own copy of the other end would keep that open.
        drop(command);
        interrupts.tell(Some(Pid::from_child(&child)));
        let mut holder = Holder { words, child, channel, family, interrupts, has_ended: false };
        match holder.hear()? {
            (Said::Mounted(covered), devices) if [covered.len(), devices.len()] == [dirs.len(); 2] => {
                Ok((holder, covered.into_iter().zip(devices).collect()))
            }
            (said, _) => Err(holder.unexpected(&said)),
        }
    }

    /// The views are served: runs the command. On return all that it has started has ended, and the views are gone. Before that it waits for what
    /// is on its way from the kernel. Gives its exit code, or 128 and the number of the signal.
    pub fn run(mut self, wait_for_all: impl FnOnce()) -> Result<u8, Failure> {
        self.channel.say(&Said::Serve, &[]).map_err(|error| failed(self.words, error))?;
        match self.hear()?.0 {
            Said::Quiet => {}
            said => return Err(self.unexpected(&said)),
        }
        wait_for_all();
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
                Err(Failure::new("run", format!("the process that holds the command's mounts has ended with {code}"))
                    .advice("nothing has changed")
                    .exit(exit))
            }
        }
    }

    fn unexpected(&self, said: &Said) -> Failure {
        failed(self.words, io::Error::other(format!("the holder of its mounts says {said:?}")))
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
