//! `wholly undo`: a command that was committed is taken back, or done again.

use crate::args::UndoArgs;
use crate::diff::{self, Told};
use crate::error::{Exit, Failure};
use crate::list;
use crate::opening;
use crate::output::{Name, Paint, Ui, count, name};
use crate::parts;
use crate::recover;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use wholly::{Error, KeepUndo, KeptUndo, ParkedId, Store};

/// How long the undo of a command is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Serialize)]
struct Undone {
    /// What it was that is taken back.
    command: String,
    /// Whether it is.
    undone: bool,
    /// The directories that it has changed.
    dirs: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    dir: Name,
    id: String,
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

/// An undo that is to be done, in its store.
struct One {
    dir: PathBuf,
    store: Store,
    kept: KeptUndo,
}

impl One {
    fn open(dir: PathBuf, id: Option<ParkedId>, ui: &Ui) -> Result<One, Failure> {
        let nothing = || {
            Failure::new(format!("undo in {}", dir.display()), "there is nothing to take back")
                .advice("`wholly log` lists what can be taken back")
        };
        if wholly::undos(&dir).is_ok_and(|all| all.is_empty()) {
            return Err(nothing());
        }
        let store = recover::open_at_once("undo", &dir, ui)?;
        let mut all = store.undos().map_err(|error| Failure::of_store("undo", &dir, error))?;
        let kept = match id {
            None => all.pop(),
            Some(id) => all.into_iter().find(|kept| kept.id == id),
        };
        let kept = kept.ok_or_else(nothing)?;
        Ok(One { dir, store, kept })
    }

    fn failed(&self, error: Error) -> Failure {
        Failure::of_decision("undo", &self.dir, error)
    }

    /// Takes it back, or looks only. Gives what changes, and what is in the way.
    fn undo(&self, is_real: bool) -> Result<Part, Failure> {
        let keep = KeepUndo { note: contrary(&self.kept.note), expires: KEPT_FOR, most_bytes: u64::MAX };
        let mut changes = Ok(Vec::new());
        let done = self.store.undo(self.kept.id, &keep, |review| {
            changes = diff::all(review);
            changes.is_ok() && is_real
        });
        let mismatches = match done {
            Ok(_) => Vec::new(),
            Err(Error::ChangedMeanwhile(_, mismatches)) => mismatches.to_vec(),
            Err(error) => return Err(self.failed(error)),
        };
        let told = |it: wholly::Mismatch| Mismatch { path: Name::from(&*it.path), what: it.what };
        Ok(Part {
            dir: Name::of_dir(&self.dir),
            id: self.kept.id.to_string(),
            changes: changes.map_err(|error| self.failed(error))?,
            mismatches: mismatches.into_iter().map(told).collect(),
        })
    }
}

/// Takes a command back.
pub fn run(args: &UndoArgs, ui: &Ui) -> Result<Exit, Failure> {
    let (dir, id) = list::operands(&args.dir, args.id);
    let mut all = vec![One::open(dir.clone(), id, ui)?];
    let first = all[0].kept.id;
    if args.only {
        parts::warn("undo", &dir, first);
    } else {
        for (dir, id) in parts::all("undo", vec![(dir, first)], false)?.into_iter().skip(1) {
            all.push(One::open(dir, Some(id), ui)?);
        }
    }
    // Nothing changes where anything is in the way in any of them.
    let looks = args.dry_run || all.len() > 1;
    let mut dirs = all.iter().map(|one| one.undo(!looks)).collect::<Result<Vec<_>, _>>()?;
    let is_free = |dirs: &[Part]| dirs.iter().all(|part| part.mismatches.is_empty());
    let mut undone = !looks && is_free(&dirs);
    if looks && !args.dry_run && is_free(&dirs) {
        undone = undo_all(&all)?;
        if !undone {
            dirs = all.iter().map(|one| one.undo(false)).collect::<Result<Vec<_>, _>>()?;
        }
    }
    let undone = Undone { command: all[0].kept.note.clone(), undone, dirs };
    let mut closed = Ok(());
    for One { dir, store, .. } in all {
        let exit = if undone.undone { Exit::NOT_HOME } else { Exit::REFUSED };
        let one = opening::close(store).map_err(|error| Failure::of_store("undo", &dir, error).exit(exit));
        closed = closed.and(one.map(drop));
    }
    ui.emit("undo", &undone, |undone| text(undone, args.dry_run, ui.paint()))?;
    closed?;
    Ok(if undone.undone || (args.dry_run && is_free(&undone.dirs)) { Exit::DONE } else { Exit::REFUSED })
}

/// In all directories, or in none.
fn undo_all(all: &[One]) -> Result<bool, Failure> {
    let keep = KeepUndo { note: contrary(&all[0].kept.note), expires: KEPT_FOR, most_bytes: u64::MAX };
    match Store::undo_together(all.iter().map(|one| (&one.store, one.kept.id)), &keep) {
        Ok(()) => Ok(true),
        Err(Error::ChangedMeanwhile(..)) => Ok(false),
        Err(error) => Err(all[0].failed(error)),
    }
}

/// What the contrary of a command is called.
fn contrary(note: &str) -> String {
    match (note.strip_prefix("undo of: "), note.strip_prefix("redo of: ")) {
        (Some(command), _) => format!("redo of: {command}"),
        (_, Some(command)) => format!("undo of: {command}"),
        _ => format!("undo of: {note}"),
    }
}

fn text(undone: &Undone, is_dry: bool, paint: Paint) -> String {
    let command = name(undone.command.as_bytes());
    let ids: Vec<_> = undone.dirs.iter().map(|part| part.id.as_str()).collect();
    let ids = ids.join(", ");
    let is_possible = is_dry && undone.dirs.iter().all(|part| part.mismatches.is_empty());
    if !undone.undone && !is_possible {
        let mut text = format!("{ids}: not taken back, nothing was changed. Changed since `{command}`:\n");
        for part in &undone.dirs {
            for Mismatch { path, what } in &part.mismatches {
                let path = if undone.dirs.len() > 1 { &part.dir.join(path) } else { path };
                text += &format!("  {path}: {}\n", name(what.as_bytes()));
            }
        }
        return text;
    }
    let one = |part: &Part| match &undone.dirs[..] {
        [_] => diff::names(&part.changes, paint),
        _ => format!("{}:\n{}", part.dir, diff::names(&part.changes, paint)),
    };
    let changes = count(undone.dirs.iter().map(|part| part.changes.len() as u64).sum(), "change");
    let end = match is_dry {
        true => format!("{ids}: would take back `{command}`: {changes}\n"),
        false => format!("{ids}: took back `{command}`: {changes}; `wholly undo` again does it again\n"),
    };
    undone.dirs.iter().map(one).collect::<String>() + &end
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
