//! Which view the commands of a test have: an overlay below the module `overlay`, else FUSE. What differs between them
//! is all here.

use nix::sys::signal::{SigHandler, Signal, signal};
use std::ffi::OsStr;
use std::process::Command;
use std::sync::Once;

/// As `--view` has it.
pub const VIEW: &str = match module_path!().as_bytes() {
    b"all::overlay::common::views" => "overlay",
    _ => "fuse",
};

/// A program by which `wholly run` may be run. It begins as from a terminal, also where the tests were begun by `nohup`
/// or in the background of a script.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
            // SAFETY: the tests have no handler of these, so that none is lost.
            unsafe { signal(ignored, SigHandler::SigDfl) }.expect("a signal's default");
        }
    });
    let mut command = Command::new(program);
    // Directories are to be as the command leaves them; `undo.rs` keeps what it needs.
    command.env("WHOLLY_VIEW", VIEW).env("WHOLLY_KEEP_UNDO", "no");
    command
}

/// What is otherwise in an overlay.
#[derive(Clone, Copy)]
pub enum Difference {
    /// A file is copied when it is first opened for writing: that takes as much space as it is long, who has mapped it
    /// before sees the old one, and a program that runs outside may be written to, which else is `ETXTBSY`: there it is
    /// when the command has ended, and nothing is committed.
    FilesAreCopied,
    /// Where something else was mounted, and the command has unmounted that, it sees what lies beneath: the names of an
    /// overlay are those of the directory itself, which nobody can take out of it. What the command changes there
    /// cannot be committed.
    UnmountedIsSeen,
}

impl Difference {
    /// Whether the views of these tests differ so from FUSE.
    pub fn is(self) -> bool {
        VIEW == "overlay"
    }
}
