//! A person looks at what a command would change, and decides.

use crate::diff::{self, Told};
use crate::error::Failure;
use crate::output::count;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

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
pub fn ask(dir: &Path, changes: &[Told]) -> Result<Verdict, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("run in {}", dir.display()), error);
    let mut out = std::io::stderr();
    write!(out, "{}", diff::text(changes, true)).map_err(failed)?;
    let mut input = std::io::stdin().lock();
    loop {
        let all = count(changes.len() as u64, "change");
        write!(out, "{all} in {}: [a]pply, [p]ark, discar[d], or [v]iew the lines? ", dir.display())
            .and_then(|()| out.flush())
            .map_err(failed)?;
        let mut answer = String::new();
        if input.read_line(&mut answer).map_err(failed)? == 0 {
            writeln!(out).map_err(failed)?;
            return Ok(Verdict::Park);
        }
        match answer.trim().to_lowercase().as_str() {
            "a" | "apply" => return Ok(Verdict::Apply),
            "p" | "park" => return Ok(Verdict::Park),
            "d" | "discard" => return Ok(Verdict::Discard),
            "v" | "view" => view(&diff::text(changes, false)).map_err(failed)?,
            _ => {}
        }
    }
}

/// Shows a text by the user's pager, where there is a terminal.
fn view(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stderr();
    if !out.is_terminal() {
        return out.write_all(text.as_bytes());
    }
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.is_empty()).unwrap_or_else(|| "less".into());
    let pager = std::process::Command::new("sh").args(["-c", &pager]).stdin(std::process::Stdio::piped()).spawn();
    match pager {
        Ok(mut pager) => {
            // Who reads no further is done.
            let _ = pager.stdin.take().expect("it was piped").write_all(text.as_bytes());
            pager.wait().map(drop)
        }
        Err(_) => out.write_all(text.as_bytes()),
    }
}
