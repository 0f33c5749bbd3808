//! `wholly undo`: a command that was committed is taken back, or done again.

use crate::args::UndoArgs;
use crate::diff::{self, Told};
use crate::error::{Exit, Failure};
use crate::list;
use crate::opening;
use crate::output::{Name, Paint, Ui, count, name, shown, size};
use crate::parts;
use crate::recover;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wholly::{Error, KeepUndo, KeptUndo, ParkedId, Store, UndoFate};

/// A file system is nearly full if less than one part in so many is free.
const NEARLY_FULL: u64 = 20;

/// How long the undo of a command is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Serialize)]
struct Undone {
    /// What it was that is taken back.
    command: String,
    /// Whether it is.
    undone: bool,
    /// Why this cannot be taken back in turn, in each directory where that is so.
    not_kept: Vec<String>,
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
            let below = below(&dir).map_or_else(
                || "`wholly log` lists what can be taken back".into(),
                |below| format!("a command ran in {0}: `wholly undo {0}`", shown(&below)),
            );
            Failure::new(format!("undo in {}", dir.display()), "there is nothing to take back").advice(below)
        };
        let has_nothing = match wholly::undos(&dir) {
            Err(Error::NotAStore(_)) => below(&dir).is_some(),
            all => all.is_ok_and(|all| all.is_empty()),
        };
        if has_nothing {
            return Err(nothing());
        }
        let store = recover::open_at_once("undo", &dir, ui)?;
        let mut all = store.undos().map_err(|error| Failure::of_store("undo", &dir, error))?;
        // Without an id the last one: that an older one is kept still does not make it the last.
        let at = id.map_or(all.len().checked_sub(1), |id| all.iter().position(|kept| kept.id == id));
        let kept = all.remove(at.ok_or_else(nothing)?);
        let Some(why) = &kept.gone else { return Ok(One { dir, store, kept }) };
        let what = format!("undo of `{}` in {}", name(kept.note.as_bytes()), shown(&dir));
        let older = all.iter().rev().find(|older| older.id < kept.id && older.gone.is_none());
        let advice = older.map_or_else(
            || "`wholly log` lists what can be taken back".into(),
            |older| {
                let (id, command) = (older.id, name(older.note.as_bytes()));
                format!("`wholly undo {} {id}` takes back the one before, `{command}`", shown(&dir))
            },
        );
        Err(Failure::new(what, name(why.as_bytes())).advice(advice).exit(Exit::REFUSED))
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

/// A directory in this one in which something can be taken back.
fn below(dir: &Path) -> Option<PathBuf> {
    let mut names = std::fs::read_dir(dir).ok()?.filter_map(Result::ok).map(|entry| dir.join(entry.file_name()));
    let keeps = |dir: &PathBuf| wholly::undos(dir).is_ok_and(|all| all.iter().any(|undo| undo.gone.is_none()));
    names.find(keeps)
}

/// Says how what is kept is freed, where the file system is nearly full.
pub fn tell_what_is_held(dir: &Path, id: ParkedId) {
    let Ok(space) = rustix::fs::statvfs(dir) else { return };
    let all = wholly::undos(dir).unwrap_or_default();
    let bytes = all.iter().find(|kept| kept.id == id).map_or(0, |kept| kept.bytes);
    if space.f_bavail < space.f_blocks / NEARLY_FULL && bytes > 0 {
        let (dir, bytes) = (shown(dir), size(bytes));
        eprintln!(
            "wholly: {dir}: the disk is nearly full, and `wholly undo` keeps {bytes}: `wholly discard {dir} {id}` frees them"
        );
    }
}

/// A command has failed. Says what could be freed, where that is more than what is free.
pub fn tell_what_could_be_freed(dir: &Path) {
    let Ok(space) = rustix::fs::statvfs(dir) else { return };
    let held: u64 = wholly::undos(dir).unwrap_or_default().iter().map(|kept| kept.bytes).sum();
    if held > space.f_bavail.saturating_mul(space.f_frsize) {
        let (dir, held) = (shown(dir), size(held));
        eprintln!(
            "wholly: {dir}: if the command lacked space: `wholly undo` keeps {held}, and `wholly discard` frees it"
        );
    }
}

/// Takes a command back.
pub fn run(args: &UndoArgs, ui: &Ui) -> Result<Exit, Failure> {
    let (dir, id) = list::operands("undo", &args.dir, args.id);
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
    let not_kept = |one: &One| match one.store.undo_fate() {
        Some(UndoFate::NotKept(why)) => Some(format!("{}: {why}", shown(&one.dir))),
        _ => None,
    };
    let not_kept = all.iter().filter(|_| undone).filter_map(not_kept).collect();
    let undone = Undone { command: all[0].kept.note.clone(), undone, not_kept, dirs };
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
        false if undone.not_kept.is_empty() => {
            format!("{ids}: took back `{command}`: {changes}; `wholly undo` again does it again\n")
        }
        false => {
            let why = name(undone.not_kept.join("; ").as_bytes());
            format!("{ids}: took back `{command}`: {changes}; it cannot be done again: {why}\n")
        }
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
