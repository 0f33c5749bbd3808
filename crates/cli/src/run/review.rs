//! A person looks at what a command would change, and decides.

use super::ending::{Changed, not_covered};
use super::interrupts::Interrupts;
use super::pager;
use crate::diff::{self, Shown};
use crate::error::Failure;
use crate::output::{Paint, count};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::Write;

/// What becomes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is committed.
    Apply,
    /// It is set aside.
    Park,
    /// It has never been.
    Discard,
}

/// Shows the changes and asks. Where nobody answers, nothing is lost: they are parked.
pub fn ask(dirs: &[Changed], interrupts: &Interrupts) -> Result<Verdict, Failure> {
    let names: Vec<_> = dirs.iter().map(|dir| dir.dir.to_string()).collect();
    let names = names.join(", ");
    let failed = |error: std::io::Error| Failure::new(format!("run in {names}"), error);
    // Which directory is meant is said where there are several.
    let text = |of: &dyn Fn(&[diff::Told]) -> String| {
        let one = |dir: &Changed| match dirs {
            [_] => of(&dir.changes),
            _ => format!("{}:\n{}", dir.dir, of(&dir.changes)),
        };
        dirs.iter().filter(|dir| dir.count > 0).map(one).collect::<String>()
    };
    let mut out = std::io::stderr();
    let first = text(&|changes| diff::names(changes, Shown { paint: Paint::on(&out), all: false }));
    write!(out, "{first}{}", not_covered(dirs)).map_err(failed)?;
    let mut input = Input::default();
    loop {
        let all = count(dirs.iter().map(|dir| dir.count as u64).sum(), "change");
        write!(out, "{all} in {names}: [a]pply, [p]ark, discar[d], or [v]iew the lines? ")
            .and_then(|()| out.flush())
            .map_err(failed)?;
        let Some(answer) = input.line(interrupts) else {
            let _ = writeln!(out);
            return Ok(if interrupts.first().is_some() { Verdict::Discard } else { Verdict::Park });
        };
        match answer.trim().to_lowercase().as_str() {
            "a" | "apply" => return Ok(Verdict::Apply),
            "p" | "park" => return Ok(Verdict::Park),
            "d" | "discard" => return Ok(Verdict::Discard),
            "v" | "view" => {
                pager::view(&text(&|changes| diff::text(changes, Shown { paint: Paint::none(), all: true })))
                    .map_err(failed)?
            }
            _ => {}
        }
    }
}

/// What a person types, line by line.
#[derive(Default)]
struct Input(Vec<u8>);

impl Input {
    /// The next line; `None` where there is no more, or a signal came.
    fn line(&mut self, interrupts: &Interrupts) -> Option<String> {
        const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let stdin = std::io::stdin();
        while interrupts.first().is_none() {
            if let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.0.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
            let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut ready, Some(&LOOK_EVERY)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => return None,
            }
            let mut bytes = [0; 256];
            match rustix::io::read(&stdin, &mut bytes) {
                Ok(read) if read > 0 => self.0.extend(&bytes[..read]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                _ => return None,
            }
        }
        None
    }
}
