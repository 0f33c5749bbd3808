//! `wholly undo`: a command that was committed is taken back, or done again.

use crate::apply::within;
use crate::args::UndoArgs;
use crate::diff::{self, Shown, Told};
use crate::error::{Exit, Failure};
use crate::list;
use crate::opening;
use crate::output::{Name, Paint, Ui, count, name, shown, size};
use crate::parts;
use crate::progress::written_back;
use crate::recover;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wholly::{Error, IfChanged, KeepUndo, KeptUndo, ParkedId, Store, UndoFate, Undoing, Undone};

/// A file system is nearly full if less than one part in so many is free.
const NEARLY_FULL: u64 = 20;

/// How long the undo of a command is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Serialize)]
struct Outcome {
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
    /// What is not as the command has left it, or cannot be replaced: then nothing has changed.
    mismatches: Vec<Mismatch>,
    /// What stays because it was changed since.
    left: Vec<Mismatch>,
    /// What is not as it was left, and does not matter.
    notes: Vec<Mismatch>,
    /// Whether something stays undoable under this id.
    is_part: bool,
}

#[derive(Serialize)]
struct Mismatch {
    path: Name,
    what: String,
}

impl From<wholly::Mismatch> for Mismatch {
    fn from(it: wholly::Mismatch) -> Mismatch {
        Mismatch { path: Name::from(&*it.path), what: it.what }
    }
}

/// An undo that is to be done, in its store.
struct One {
    dir: PathBuf,
    store: Store,
    kept: KeptUndo,
    how: Undoing,
}

impl One {
    fn open(dir: PathBuf, id: Option<ParkedId>, args: &UndoArgs, ui: &Ui) -> Result<One, Failure> {
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
        let unknown = || match id {
            Some(id) => Failure::new(format!("undo in {}", dir.display()), format!("no command has the id {id}"))
                .advice("`wholly log` lists those that can be taken back"),
            None => nothing(),
        };
        let kept = all.remove(at.ok_or_else(unknown)?);
        let changed = match (args.skip_changed, args.over_changes) {
            (true, _) => IfChanged::Skip,
            (_, true) => IfChanged::Replace,
            _ => IfChanged::Refuse,
        };
        let how = Undoing { paths: within(&dir, &args.paths), changed };
        let Some(why) = &kept.gone else { return Ok(One { dir, store, kept, how }) };
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
        let done = self.store.undo_some(self.kept.id, &keep, &self.how, |review| {
            changes = diff::all(review, &self.dir);
            changes.is_ok() && is_real
        });
        let (mismatches, undone) = match done {
            Ok(undone) => (Vec::new(), undone),
            Err(Error::ChangedMeanwhile(_, mismatches)) => (mismatches.to_vec(), Undone::default()),
            Err(error) => return Err(self.failed(error)),
        };
        let told = |all: Vec<wholly::Mismatch>| all.into_iter().map(Mismatch::from).collect();
        Ok(Part {
            dir: Name::of_dir(&self.dir),
            id: self.kept.id.to_string(),
            changes: changes.map_err(|error| self.failed(error))?,
            mismatches: told(mismatches),
            left: told(undone.left),
            notes: told(undone.notes),
            is_part: undone.is_part,
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
    let mut all = vec![One::open(dir.clone(), id, args, ui)?];
    let first = all[0].kept.id;
    if args.only {
        parts::warn("undo", &dir, first);
    } else {
        for (dir, id) in parts::all("undo", vec![(dir.clone(), first)], false)?.into_iter().skip(1) {
            all.push(One::open(dir, Some(id), args, ui)?);
        }
        if !args.paths.is_empty() && all.len() > 1 {
            // A relative path is one in the directory that is named, an absolute one in that in which it lies.
            let first = all[0].dir.clone();
            all.retain_mut(|one| {
                one.how.paths.retain(|path| path.is_relative());
                let is_here = |path: &&PathBuf| path.is_absolute() || one.dir == first;
                one.how.paths = within(&one.dir, &args.paths.iter().filter(is_here).cloned().collect::<Vec<_>>());
                one.how.paths.retain(|path| path.is_relative());
                !one.how.paths.is_empty()
            });
        }
    }
    let Some(one) = all.first() else {
        let failed = Failure::new(format!("undo in {}", shown(&dir)), "the paths are in none of its directories");
        return Err(failed.advice("`wholly undo --dry-run` lists what it has changed"));
    };
    let command = one.kept.note.clone();
    // Nothing changes where anything is in the way in any of them.
    let looks = args.dry_run || all.len() > 1;
    let so_far = || written_back(all.iter().map(|one| &one.store).collect());
    let undo = || all.iter().map(|one| one.undo(!looks)).collect::<Result<Vec<_>, _>>();
    let mut dirs = ui.telling("taking it back", so_far(), undo)?;
    let is_free = |dirs: &[Part]| dirs.iter().all(|part| part.mismatches.is_empty());
    let mut undone = !looks && is_free(&dirs);
    if looks && !args.dry_run && is_free(&dirs) {
        undone = ui.telling("taking it back", so_far(), || undo_all(&all))?;
        if !undone {
            dirs = all.iter().map(|one| one.undo(false)).collect::<Result<Vec<_>, _>>()?;
        }
    }
    let not_kept = |one: &One| match one.store.undo_fate() {
        Some(UndoFate::NotKept(why)) => Some(format!("{}: {why}", shown(&one.dir))),
        _ => None,
    };
    let not_kept = all.iter().filter(|_| undone).filter_map(not_kept).collect();
    let undone = Outcome { command, undone, not_kept, dirs };
    let mut closed = Ok(());
    for One { dir, store, .. } in all {
        let exit = if undone.undone { Exit::NOT_HOME } else { Exit::REFUSED };
        let one = opening::close(store).map_err(|error| Failure::of_store("undo", &dir, error).exit(exit));
        closed = closed.and(one.map(drop));
    }
    ui.emit("undo", &undone, |undone| text(undone, args, ui.paint()))?;
    closed?;
    Ok(if undone.undone || (args.dry_run && is_free(&undone.dirs)) { Exit::DONE } else { Exit::REFUSED })
}

/// In all directories, or in none.
fn undo_all(all: &[One]) -> Result<bool, Failure> {
    let keep = KeepUndo { note: contrary(&all[0].kept.note), expires: KEPT_FOR, most_bytes: u64::MAX };
    match Store::undo_together(all.iter().map(|one| (&one.store, one.kept.id, one.how.clone())), &keep) {
        Ok(_) => Ok(true),
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

fn text(undone: &Outcome, args: &UndoArgs, paint: Paint) -> String {
    let command = name(undone.command.as_bytes());
    let ids: Vec<_> = undone.dirs.iter().map(|part| part.id.as_str()).collect();
    let ids = ids.join(", ");
    let listed = |of: fn(&Part) -> &[Mismatch]| {
        let line = |part: &Part, Mismatch { path, what }: &Mismatch| {
            let path = if undone.dirs.len() > 1 { &part.dir.join(path) } else { path };
            format!("  {path}: {}\n", name(what.as_bytes()))
        };
        let lines = |part| of(part).iter().map(move |it| line(part, it));
        undone.dirs.iter().flat_map(lines).collect::<String>()
    };
    let is_possible = args.dry_run && undone.dirs.iter().all(|part| part.mismatches.is_empty());
    if !undone.undone && !is_possible {
        let lines = listed(|part| &part.mismatches);
        return match args.over_changes {
            true => format!(
                "{ids}: not taken back, nothing was changed. What cannot be replaced:\n{lines}Restore the listed files, \
                 or undo the rest (`wholly undo --skip-changed`).\n"
            ),
            false => format!(
                "{ids}: not taken back, nothing was changed. Changed since `{command}`:\n{lines}Leave them as they are \
                 and undo the rest (`wholly undo --skip-changed`); undo them, too (`--over-changes`; `wholly undo` \
                 again brings them back); or undo only some paths (`-- PATH`).\n"
            ),
        };
    }
    let one = |part: &Part| match &undone.dirs[..] {
        [_] => diff::names(&part.changes, Shown { paint, all: args.all }),
        _ => format!("{}:\n{}", part.dir, diff::names(&part.changes, Shown { paint, all: args.all })),
    };
    let mut text: String = undone.dirs.iter().map(one).collect();
    for (what, lines) in [
        ("Changed since, and undone all the same", listed(|part| &part.notes)),
        ("Left as it is, because it was changed since", listed(|part| &part.left)),
    ] {
        if !lines.is_empty() {
            text += &format!("{what}:\n{lines}");
        }
    }
    let total: u64 = undone.dirs.iter().map(|part| part.changes.len() as u64).sum();
    let changes = count(total, "change");
    // Where nothing was left to do, nothing can be done again.
    let again = if total > 0 { "; `wholly undo` again does it again" } else { "" };
    let is_part = undone.dirs.iter().any(|part| part.is_part);
    let part = if is_part { "a part of " } else { "" };
    let rest = if is_part { "; the rest stays undoable under the same id" } else { "" };
    text += &match args.dry_run {
        true => format!("{ids}: would take back {part}`{command}`: {changes}{rest}\n"),
        false if undone.not_kept.is_empty() => {
            format!("{ids}: took back {part}`{command}`: {changes}{rest}{again}\n")
        }
        false => {
            let why = name(undone.not_kept.join("; ").as_bytes());
            format!("{ids}: took back {part}`{command}`: {changes}{rest}; it cannot be done again: {why}\n")
        }
    };
    text
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
