//! What went wrong, told to a person as `what: why; what to do`, and told to a script by the exit code.

use crate::output::name;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::BitOr;
use std::path::Path;
use std::process::ExitCode;
use wholly_host::{HostDir, HostOptions, StoreHome, mount::Served};

/// How the command ends. Up to 32 the numbers are those of fsck(8), so that scripts which know that need to learn
/// nothing; where several hold, their bits are joined. Those from 120 on tell what has become of a group; they end
/// where env(1) has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit(u8);

impl Exit {
    /// Done, and nothing was wrong.
    pub const DONE: Exit = Exit(0);
    /// A crash had left something behind, and it was put right.
    pub const REPAIRED: Exit = Exit(1);
    /// Something is wrong and was left as it is: damage, a conflict, a violation.
    pub const DAMAGED: Exit = Exit(4);
    /// It could not be done: no such store, in use, no space, no permission.
    pub const FAILED: Exit = Exit(8);
    /// As another run of this command ended.
    pub fn of_child(code: u8) -> Exit {
        Exit(code)
    }

    /// The command line makes no sense.
    pub const USAGE: Exit = Exit(16);
    /// `wholly fsck`: cancelled by a signal, with nothing changed, unless with [`Exit::REPAIRED`].
    pub const CANCELLED: Exit = Exit(32);
    /// The write of a commit failed: only recovery finds out whether the group is committed.
    pub const UNKNOWN: Exit = Exit(120);
    /// `wholly run`: the changes are parked, as was asked for.
    pub const PARKED: Exit = Exit(121);
    /// `wholly run`: the changes are discarded, as was asked for.
    pub const DISCARDED: Exit = Exit(122);
    /// The changes could not be committed: others have changed the same, there is no space, the command has undone a
    /// group. They are parked, or gone.
    pub const REFUSED: Exit = Exit(123);
    /// The changes are committed, and not all of them are home.
    pub const NOT_HOME: Exit = Exit(124);
    /// env(1): it could not even try.
    pub const NOT_RUN: Exit = Exit(125);
    /// env(1): the program that was to be run is there and cannot be run.
    pub const CANNOT_RUN: Exit = Exit(126);
    /// env(1): there is no such program.
    pub const NOT_THERE: Exit = Exit(127);
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl BitOr for Exit {
    type Output = Exit;

    fn bitor(self, other: Exit) -> Exit {
        Exit(self.0 | other.0)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.0)
    }
}

/// Where what `wholly run` keeps can be found.
const RAN_IN: &str = "name the directory that the command ran in, or that `--dir` or `--root` named";

/// What helps where a store is damaged.
const SALVAGE: &str =
    "`wholly check` names what is wrong, `wholly salvage DIR OUT` copies the files and all that can be proven to OUT";

/// Why a verb gave up. Printed as `wholly: what: why; what to do`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failure {
    what: String,
    why: String,
    what_to_do: Option<String>,
    /// How the command ends.
    pub exit: Exit,
}

impl Failure {
    /// `what` could not be done, and `why`.
    pub fn new(what: impl Into<String>, why: impl ToString) -> Failure {
        Failure { what: what.into(), why: why.to_string(), what_to_do: None, exit: Exit::FAILED }
    }

    /// What the person can do about it.
    pub fn advice(mut self, what_to_do: impl Into<String>) -> Failure {
        self.what_to_do = Some(what_to_do.into());
        self
    }

    /// Another exit code than [`Exit::FAILED`].
    pub fn exit(mut self, exit: Exit) -> Failure {
        self.exit = exit;
        self
    }

    /// Exits so, unless it was said otherwise.
    pub fn or_exit(self, exit: Exit) -> Failure {
        if self.exit.0 >= Exit::UNKNOWN.0 { self } else { self.exit(exit) }
    }

    /// `verb` was to decide about a group of the store in `dir`, which could be used until then.
    pub fn of_decision(verb: &str, dir: &Path, error: wholly::Error) -> Failure {
        match error {
            wholly::Error::Poisoned(why) => Failure::unknown(format!("{verb} {}", dir.display()), why),
            error => Failure::of_store(verb, dir, error),
        }
    }

    /// It is unknown whether a group is committed.
    pub fn unknown(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure::new(what, format!("it is unknown whether the changes are committed: {why}"))
            .advice(
                "run `wholly recover`: it completes all of them or undoes them, and says whether it found a \
                committed group",
            )
            .exit(Exit::UNKNOWN)
    }

    /// `verb` failed on the store in `dir`.
    pub fn of_store(verb: &str, dir: &Path, error: wholly::Error) -> Failure {
        use wholly::Error;
        let what = format!("{verb} {}", dir.display());
        match error {
            Error::Busy(_, who) => {
                Failure::new(what, who).advice("wait until it ends, or end it; `wholly stat` works meanwhile")
            }
            Error::NotAStore(_) => Failure::not_a_store(what, dir),
            Error::AlreadyAStore(_) => {
                Failure::new(what, "there is already a store here").advice("nothing was changed; see `wholly stat`")
            }
            Error::Corrupt { place, fault } => Failure::new(what, format!("the store is damaged at {place}: {fault}"))
                .advice(format!("nothing was changed; {SALVAGE}"))
                .exit(Exit::DAMAGED),
            Error::Unsupported(why) => Failure::new(what, format!("not supported: {why}")),
            Error::NoSpace(why) => Failure::new(what, format!("no space left for {why}"))
                .advice("free some space; everything committed is safe in the log"),
            Error::Conflict { path, change } => {
                Failure::new(what, format!("{path} was changed by another program: {change}"))
                    .advice("neither version was overwritten: the store's is in its log, see `wholly dump`")
                    .exit(Exit::DAMAGED)
            }
            Error::Copied(holds) => Failure::new(what, format!("this is a copy: {holds}"))
                .advice("open the original, or accept the copy: `wholly recover --accept-copy`"),
            Error::Untrusted { why, .. } if why.ends_with("belongs to user 0") => Failure::new(what, why).advice(
                "the superuser has used it here: `sudo wholly deinit` removes it, with the undo that it keeps; or let \
                 him give it to you (`chown -R`)",
            ),
            Error::Untrusted { why, .. } => Failure::new(what, why).advice(
                "opening a store executes what is written there, with your rights: let its owner open it, or chown the \
                 folder; or use `wholly recover --trust-owner`",
            ),
            Error::Media(error) => Failure::of_media(what, error),
            other => Failure::new(what, other),
        }
    }

    /// A call on the file system failed.
    pub fn of_media(what: impl Into<String>, error: wholly_media::Error) -> Failure {
        if error.operation == "open directory" && error.errno == rustix::io::Errno::LOOP {
            return Failure::new(what, "a symbolic link on the way belongs to another user, or links lead in circles")
                .advice("name the directory without that link: the superuser does not follow it");
        }
        let advice = match std::io::Error::from_raw_os_error(error.raw_os_error()).kind() {
            std::io::ErrorKind::NotFound => "check the name",
            std::io::ErrorKind::PermissionDenied => "run it as the owner of the directory",
            std::io::ErrorKind::NotADirectory => "name a directory",
            std::io::ErrorKind::StorageFull => "free some space",
            std::io::ErrorKind::ReadOnlyFilesystem => "remount the file system for writing",
            _ => return Failure::new(what, error),
        };
        Failure::new(what, error).advice(advice)
    }

    /// Why, and what to do, without what could not be done.
    pub fn why(&self) -> String {
        match &self.what_to_do {
            Some(what_to_do) => format!("{}; {what_to_do}", self.why),
            None => self.why.clone(),
        }
    }

    /// There is no store in `dir`.
    pub fn not_a_store(what: impl Into<String>, dir: &Path) -> Failure {
        let host = HostDir::open(dir, HostOptions::default()).ok();
        match host.as_ref().and_then(HostDir::served) {
            Some(served) => Failure::served(what, served),
            None if host.is_some_and(|host| StoreHome::exists(&host).unwrap_or(false)) => {
                Failure::new(what, "the store is damaged at .wholly: something in it is missing")
                    .advice(format!("nothing was changed; {SALVAGE}"))
                    .exit(Exit::DAMAGED)
            }
            None => {
                let what = what.into();
                let (why, advice) = match what.split(' ').next() {
                    Some("undo") => ("nothing can be taken back here", RAN_IN),
                    Some("list" | "diff" | "apply" | "discard") => ("nothing is parked here", RAN_IN),
                    _ => ("there is no store in this directory", "`wholly init DIR` makes one"),
                };
                Failure::new(what, why).advice(advice)
            }
        }
    }

    /// There is none, and there can be none: a mount of a store shows the directory.
    pub fn served(what: impl Into<String>, served: Served) -> Failure {
        match served {
            Served::Mount => Failure::new(what, "this directory is in a mount of a store, and not a store itself")
                .advice("name the store's own directory; if the mount covers that, `umount` it first"),
            Served::View => Failure::new(what, "this directory is a view of a command of `wholly run`")
                .advice("do it after the command has ended, or outside of it"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its text may hold names that were not escaped before.
        f.write_str(&name(format!("{}: {}", self.what, self.why()).as_bytes()))
    }
}
