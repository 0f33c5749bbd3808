//! `wholly log`: which commands can be taken back, and which cannot, read from outside.

use crate::args::ListArgs;
use crate::error::{Exit, Failure};
use crate::list::{is_damaged, told_unreadable, unreadable};
use crate::output::{Name, Ui, count, name, size};
use crate::stat::{ago, date};
use serde::Serialize;
use wholly_changes::Unreadable;

#[derive(Serialize)]
struct Logged {
    dir: Name,
    undos: Vec<Undo>,
}

/// A command whose undo is kept, or was to be. It has exited with 0: else nothing would have changed.
#[derive(Serialize)]
struct Undo {
    id: String,
    command: String,
    /// When it was committed, in seconds since 1970.
    committed: i64,
    /// Until when its undo is kept.
    expires: i64,
    /// Names and objects that it has changed.
    changes: u64,
    /// Bytes that its undo takes.
    bytes: u64,
    /// Why it cannot be taken back, where its undo is not kept.
    gone: Option<String>,
    /// Why that cannot be read.
    #[serde(serialize_with = "unreadable")]
    unreadable: Option<Unreadable>,
}

/// Lists the commands, the newest first.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<Exit, Failure> {
    const NS: i64 = 1_000_000_000;
    let all = match wholly::undos(&args.dir) {
        // Where nothing is kept there is no store any more.
        Err(wholly::Error::NotAStore(_)) if args.dir.is_dir() => Vec::new(),
        all => all.map_err(|error| Failure::of_store("log", &args.dir, error))?,
    };
    let one = |undo: wholly::KeptUndo| Undo {
        id: undo.id.to_string(),
        command: undo.note,
        committed: undo.committed_ns / NS,
        expires: undo.expires_ns / NS,
        changes: undo.changes,
        bytes: undo.bytes,
        gone: undo.gone,
        unreadable: undo.unreadable,
    };
    let logged = Logged { dir: Name::of_dir(&args.dir), undos: all.into_iter().rev().map(one).collect() };
    ui.emit("log", &logged, text)?;
    Ok(if logged.undos.iter().any(|undo| is_damaged(&undo.unreadable)) { Exit::DAMAGED } else { Exit::DONE })
}

fn text(logged: &Logged) -> String {
    if logged.undos.is_empty() {
        return format!("{}: nothing can be taken back\n", logged.dir);
    }
    let one = |undo: &Undo| {
        let (id, ago, command) = (&undo.id, ago(undo.committed), name(undo.command.as_bytes()));
        match (&undo.unreadable, &undo.gone) {
            (Some(why), _) => told_unreadable(id, why),
            (None, Some(why)) => format!("{id:8}  {ago}; cannot be undone: {}  {command}\n", name(why.as_bytes())),
            (None, None) => {
                let (changes, bytes) = (count(undo.changes, "change"), size(undo.bytes));
                format!("{id:8}  {ago}; {changes}, {bytes} kept; undoable until {}  {command}\n", date(undo.expires))
            }
        }
    };
    logged.undos.iter().map(one).collect()
}
