//! `wholly undo`: a command that was committed is taken back, or done again.

use crate::args::UndoArgs;
use crate::diff::{self, Told};
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, name};
use crate::recover;
use serde::Serialize;
use std::time::Duration;
use wholly::{Error, KeepUndo};

/// How long the undo of a command is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Serialize)]
struct Undone {
    dir: Name,
    id: String,
    /// What it was that is taken back.
    command: String,
    /// Whether it is.
    undone: bool,
    /// What changes, or would.
    changes: Vec<Told>,
    /// What is not as the command has left it: then nothing has changed.
    mismatches: Vec<Mismatch>,
}

#[derive(Serialize)]
struct Mismatch {
    path: Name,
    what: String,
}

/// Takes a command back.
pub fn run(args: &UndoArgs, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |error| Failure::of_store("undo", &args.dir, error);
    let nothing = || {
        Failure::new(format!("undo in {}", args.dir.display()), "there is nothing to take back")
            .advice("`wholly run --keep-undo SIZE` keeps what that takes; `wholly log` lists what is kept")
    };
    if wholly::undos(&args.dir).is_ok_and(|all| all.is_empty()) {
        return Err(nothing());
    }
    let store = recover::open_at_once("undo", &args.dir, ui)?;
    let all = store.undos().map_err(failed)?;
    let kept = match args.id {
        None => all.last(),
        Some(id) => all.iter().find(|kept| kept.id == id),
    };
    let kept = kept.ok_or_else(nothing)?;
    let keep = KeepUndo { note: contrary(&kept.note), expires: KEPT_FOR, most_bytes: u64::MAX };
    let mut changes = Ok(Vec::new());
    let done = store.undo(kept.id, &keep, |review| {
        changes = diff::all(review);
        changes.is_ok() && !args.dry_run
    });
    let (is_undone, mismatches) = match done {
        Ok(is_undone) => (is_undone, Vec::new()),
        Err(Error::ChangedMeanwhile(_, mismatches)) => (false, mismatches.to_vec()),
        Err(error) => return Err(Failure::of_decision("undo", &args.dir, error)),
    };
    let told = |it: wholly::Mismatch| Mismatch { path: Name::from(&*it.path), what: it.what };
    let undone = Undone {
        dir: Name::of_dir(&args.dir),
        id: kept.id.to_string(),
        command: kept.note.clone(),
        undone: is_undone,
        changes: changes.map_err(failed)?,
        mismatches: mismatches.into_iter().map(told).collect(),
    };
    let closed = store.close();
    ui.emit("undo", &undone, |undone| text(undone, args.dry_run))?;
    closed.map_err(|error| failed(error).exit(if is_undone { Exit::NOT_HOME } else { Exit::REFUSED }))?;
    Ok(if undone.mismatches.is_empty() { Exit::DONE } else { Exit::REFUSED })
}

/// What the contrary of a command is called.
fn contrary(note: &str) -> String {
    match (note.strip_prefix("undo of: "), note.strip_prefix("redo of: ")) {
        (Some(command), _) => format!("redo of: {command}"),
        (_, Some(command)) => format!("undo of: {command}"),
        _ => format!("undo of: {note}"),
    }
}

fn text(undone: &Undone, is_dry: bool) -> String {
    let (id, command) = (&undone.id, name(undone.command.as_bytes()));
    if !undone.mismatches.is_empty() {
        let mut text = format!("{id}: not taken back, nothing was changed. Changed since `{command}`:\n");
        for Mismatch { path, what } in &undone.mismatches {
            text += &format!("  {path}: {}\n", name(what.as_bytes()));
        }
        return text;
    }
    let changes = count(undone.changes.len() as u64, "change");
    let end = match is_dry {
        true => format!("{id}: would take back `{command}`: {changes}\n"),
        false => format!("{id}: took back `{command}`: {changes}; `wholly undo` again does it again\n"),
    };
    diff::text(&undone.changes, true) + &end
}

#[cfg(test)]
mod tests {
    use super::contrary;

    #[test]
    fn the_contrary_of_an_undo_is_a_redo() {
        let undo = contrary("make install");
        let redo = contrary(&undo);
        assert_eq!((&*undo, &*redo, &*contrary(&redo)), ("undo of: make install", "redo of: make install", &*undo));
    }
}
