//! The user's pager. It has the terminal to itself, as a shell gives it to what it runs: what is typed there, Ctrl-C
//! too, is the pager's and not ours.

use nix::sys::signal::{SigSet, Signal::SIGTTOU};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpgrp, kill_current_process_group, kill_process_group, waitpid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Shows a text, by the pager where this process has the terminal.
pub fn view(text: &str) -> io::Result<()> {
    match File::options().read(true).write(true).open("/dev/tty") {
        Ok(terminal) if io::stderr().is_terminal() && tcgetpgrp(&terminal) == Ok(getpgrp()) => page(text, &terminal),
        _ => io::stderr().write_all(text.as_bytes()),
    }
}

fn page(text: &str, terminal: &File) -> io::Result<()> {
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.is_empty()).unwrap_or_else(|| "less".into());
    // It begins when it has the terminal, by the first line that it is given. A shell that dies of Ctrl-C would leave a
    // pager behind that does not.
    let script = format!("trap : INT\nread -r _\n{pager}");
    let pager = Command::new("sh").args(["-c", &script]).process_group(0).stdin(Stdio::piped()).spawn();
    let Ok(mut pager) = pager else { return io::stderr().write_all(text.as_bytes()) };
    let mut input = pager.stdin.take().expect("it was piped");
    // Or who gives and takes the terminal from behind would be stopped.
    let before = SigSet::from(SIGTTOU).thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let shown = std::thread::scope(|scope| {
        let group = Pid::from_child(&pager);
        let given = tcsetpgrp(terminal, group);
        // Who reads no further is done.
        scope.spawn(move || input.write_all(&[b"\n", text.as_bytes()].concat()));
        given.and_then(|()| wait(group, terminal))
    });
    let taken = tcsetpgrp(terminal, getpgrp());
    before.thread_set_mask()?;
    Ok(shown.and(taken)?)
}

/// Waits until the pager has ended. Where somebody stops it, so is this process, and both go on together.
fn wait(group: Pid, terminal: &File) -> rustix::io::Result<()> {
    loop {
        let status = match waitpid(Some(group), WaitOptions::UNTRACED) {
            Err(Errno::INTR) => continue,
            Ok(Some((_, status))) => status,
            Ok(None) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if !status.stopped() {
            return Ok(());
        }
        tcsetpgrp(terminal, getpgrp())?;
        kill_current_process_group(Signal::TSTP)?;
        tcsetpgrp(terminal, group)?;
        kill_process_group(group, Signal::CONT)?;
    }
}
