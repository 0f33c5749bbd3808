//! `wholly recover`: what an open does after a crash, reported, and everything written back.

mod all;

use crate::args::RecoverArgs;
use crate::error::{Exit, Failure};
use crate::init::register;
use crate::opening;
use crate::output::{Name, Ui, count, name, size};
use crate::progress::beside;
use crate::survey;
use crate::undo::KEPT_FOR;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use wholly::{KeepUndo, Options, RecoveryReport, Store};
use wholly_host::{HostDir, HostMedium, HostOptions, StoreHome};

#[derive(Serialize)]
struct Recovered {
    dir: Name,
    medium: String,
    emulated: bool,
    /// Committed groups that were not written back.
    groups: u64,
    /// Files that they changed.
    files: u64,
    /// Records that were torn by the crash: groups whose commit had not returned.
    rejected_records: u32,
    /// Names that they set.
    names: u64,
    /// Whether it was a copy, whose files took the place of those that were copied.
    adopted: bool,
    /// Bytes written to the files.
    written_back_bytes: u64,
    /// Whether it was a store only for a command that was killed, and is none any more.
    removed: bool,
    /// Folders that were removed of stores which were half made, or half removed.
    leftovers: u64,
    conflicts: Vec<Conflict>,
    joint: Joint,
    seconds: f64,
}

/// What has become of groups of joint commits that a crash had cut short, by their ids.
#[derive(Serialize)]
struct Joint {
    /// Decided, and committed now.
    committed: Vec<String>,
    /// Not decided, and gone.
    undone: Vec<String>,
    /// Parked now.
    released: Vec<Released>,
    /// Not decided, and committed all the same.
    kept: Vec<Kept>,
}

#[derive(Serialize)]
struct Kept {
    id: String,
    /// Why it could not be undone.
    why: String,
}

#[derive(Serialize)]
struct Released {
    id: String,
    /// Where the store was that knows what was decided.
    coordinator: Name,
    /// Why it could not be committed though that was decided; empty where nobody could be asked.
    mismatches: Vec<String>,
}

impl Joint {
    fn of(settled: wholly::Decided) -> Joint {
        let ids = |ids: Vec<wholly::ParkedId>| ids.into_iter().map(|id| id.to_string()).collect();
        let released = |it: wholly::Released| Released {
            id: it.id.to_string(),
            coordinator: Name::from(&*it.coordinator),
            mismatches: it.mismatches.iter().map(ToString::to_string).collect(),
        };
        Joint {
            committed: ids(settled.committed),
            undone: ids(settled.undone),
            released: settled.released.into_iter().map(released).collect(),
            kept: settled.kept.into_iter().map(|(id, why)| Kept { id: id.to_string(), why }).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.committed.is_empty() && self.undone.is_empty() && self.released.is_empty() && self.kept.is_empty()
    }
}

#[derive(Serialize)]
struct Conflict {
    path: Name,
    change: String,
}

/// Recovers a store, or all that are registered.
pub fn run(args: &RecoverArgs, ui: &Ui) -> Result<Exit, Failure> {
    let how =
        How { accept_copy: args.accept_copy, release: args.release, trust_owner: args.trust_owner, ..How::default() };
    if args.all {
        return all::run(how, ui);
    }
    let start = Instant::now();
    let store = match open_as("recover", &args.dir, how, ui) {
        Err(failure) => return clear(&args.dir, failure, ui),
        Ok(store) => store,
    };
    let recovered = recover(store, &args.dir, start, ui)?;
    ui.emit("recover", &recovered, text)?;
    if args.register && !recovered.removed && !register("recover", &args.dir)? {
        return Err(all::no_registry(format!("recover {}", args.dir.display())));
    }
    Ok(recovered.exit())
}

#[derive(Serialize)]
struct Cleared {
    dir: Name,
    leftovers: u64,
}

/// There is no store that opens. Where there is none at all, a crash may still have left one that was half made or half
/// removed.
fn clear(dir: &Path, failure: Failure, ui: &Ui) -> Result<Exit, Failure> {
    let leftovers = HostDir::named(dir, HostOptions::default()).and_then(|host| match StoreHome::exists(&host)? {
        true => Ok(0),
        false => StoreHome::clear_unfinished(&host),
    });
    let leftovers = leftovers.unwrap_or(0);
    if leftovers == 0 {
        return Err(failure);
    }
    ui.emit("recover", &Cleared { dir: Name::of_dir(dir), leftovers }, |Cleared { dir, leftovers }| {
        format!("{dir}: there is no store\n{}", told_leftovers(*leftovers))
    })?;
    Ok(Exit::REPAIRED)
}

fn told_leftovers(leftovers: u64) -> String {
    match leftovers {
        0 => String::new(),
        n => format!("  removed      {} of stores that were half made, or half removed\n", count(n, "folder")),
    }
}

/// Writes everything back of the store in `dir`, which was just opened, and closes it.
fn recover(store: Store, dir: &Path, start: Instant, ui: &Ui) -> Result<Recovered, Failure> {
    let failed = |error| Failure::of_store("recover", dir, error);
    let RecoveryReport { scan, files, names, adopted, conflicts } = store.recovery().clone();
    let mut recovered = Recovered {
        dir: Name::of_dir(dir),
        medium: store.stat().medium,
        emulated: store.stat().emulated,
        groups: scan.groups,
        files,
        rejected_records: scan.rejected,
        names,
        adopted,
        written_back_bytes: 0,
        removed: false,
        leftovers: wholly::clear_unfinished(dir).map_err(failed)?,
        conflicts: conflicts.into_iter().map(|(path, change)| Conflict { path: Name::from(&*path), change }).collect(),
        joint: Joint::of(store.decided()),
        seconds: 0.0,
    };
    if recovered.conflicts.is_empty() {
        write_back(&store, ui).map_err(failed)?;
        recovered.written_back_bytes = store.stat().home_bytes_written;
        recovered.removed = opening::close(store).map_err(failed)?;
    }
    recovered.seconds = start.elapsed().as_secs_f64();
    Ok(recovered)
}

impl Recovered {
    fn exit(&self) -> Exit {
        let found = self.groups + u64::from(self.rejected_records) + self.leftovers;
        match (self.conflicts.is_empty(), found == 0 && self.joint.is_empty()) {
            (false, _) => Exit::DAMAGED,
            (true, true) => Exit::DONE,
            (true, false) => Exit::REPAIRED,
        }
    }
}

/// Opens the store in `dir` for `verb`, which recovers it.
pub fn open(verb: &str, dir: &Path, ui: &Ui) -> Result<Store, Failure> {
    open_as(verb, dir, How::default(), ui)
}

/// The same, to write groups back as part of their commits.
pub fn open_at_once(verb: &str, dir: &Path, ui: &Ui) -> Result<Store, Failure> {
    open_as(verb, dir, How { at_once: true, ..How::default() }, ui)
}

/// The same; of what is applied the undo is kept, in so many bytes at most.
pub fn open_to_apply(verb: &str, dir: &Path, keep_undo: u64, ui: &Ui) -> Result<Store, Failure> {
    open_as(verb, dir, How { at_once: true, keep_undo: Some(keep_undo), ..How::default() }, ui)
}

/// What else is wanted: see [`Options`].
#[derive(Clone, Copy, Default)]
struct How {
    accept_copy: bool,
    release: bool,
    trust_owner: bool,
    at_once: bool,
    keep_undo: Option<u64>,
}

fn open_as(verb: &str, dir: &Path, how: How, ui: &Ui) -> Result<Store, Failure> {
    let medium = survey::medium_of(dir, &format!("{verb} {}", dir.display()))?;
    opening::tell_whose(verb, dir, dir);
    open_on(medium, dir, how, ui).map_err(|error| Failure::of_store(verb, dir, error))
}

fn open_on(medium: HostMedium, dir: &Path, how: How, ui: &Ui) -> wholly::Result<Store> {
    let spinner = ui.spinner("reading the log");
    let How { accept_copy, release, trust_owner, at_once, keep_undo } = how;
    let keep = |most_bytes| KeepUndo { note: String::new(), expires: KEPT_FOR, most_bytes };
    let keep_undo_of_applied = keep_undo.map(keep);
    let base = Options { background: false, ..Options::default() };
    let options = Options { accept_copy, release, trust_owner, at_once, keep_undo_of_applied, ..base };
    let store = opening::open_on(medium, dir, options);
    spinner.finish_and_clear();
    store
}

/// Checkpoints, with a bar over the blocks that are not written back.
pub fn write_back(store: &Store, ui: &Ui) -> wholly::Result<()> {
    let all = store.stat().pending_blocks;
    let bar = ui.bar("writing blocks back", all);
    if bar.is_hidden() {
        return store.checkpoint().map(drop);
    }
    bar.tick();
    let shown = bar.clone();
    let show = move || shown.set_position(all.saturating_sub(store.stat().pending_blocks));
    let done = beside(show, || store.checkpoint());
    bar.finish_and_clear();
    done.map(drop)
}

fn text(recovered: &Recovered) -> String {
    let dir = &recovered.dir;
    let mut text = match (recovered.groups, recovered.rejected_records) {
        (0, 0) if recovered.joint.is_empty() => format!("{dir}: nothing to recover, all files were current\n"),
        (groups, torn) => format!(
            "{dir}: recovered\n  committed    {} {} not written back, in {}\n  torn         {}\n",
            count(groups, "group"),
            if groups == 1 { "that was" } else { "that were" },
            count(recovered.files, "file"),
            match torn {
                0 => "nothing".into(),
                torn => format!("{} of groups whose commit had not returned: removed", count(torn.into(), "record")),
            }
        ),
    };
    if recovered.names > 0 {
        text += &format!("  names        {}\n", count(recovered.names, "name"));
    }
    if recovered.adopted {
        text += "  adopted      the copy: the updates in its log are for the files here\n";
    }
    for id in &recovered.joint.committed {
        text += &format!("  decided      {id}, with the other directories of its joint commit: committed\n");
    }
    for id in &recovered.joint.undone {
        text += &format!("  not decided  {id}, with the other directories of its joint commit: gone\n");
    }
    for Released { id, coordinator, mismatches } in &recovered.joint.released {
        let why = match mismatches.as_slice() {
            [] => format!("only the store in {coordinator} knows whether it is committed"),
            why => format!("it was decided, but cannot be committed: {}", name(why.join("; ").as_bytes())),
        };
        text += &format!("  parked       {id}: {why}; see `wholly diff`, then `wholly apply` or `wholly discard`\n");
    }
    for Kept { id, why } in &recovered.joint.kept {
        let why = name(why.as_bytes());
        text += &format!(
            "  not decided  {id}, with the other directories of its joint commit: committed here all the \
                          same, because it could not be undone: {why}\n"
        );
    }
    if recovered.written_back_bytes > 0 {
        text += &format!("  written back {}\n", size(recovered.written_back_bytes));
    }
    if recovered.removed {
        text += "  removed      the folder .wholly: left by a command that was killed\n";
    }
    text += &told_leftovers(recovered.leftovers);
    for conflict in &recovered.conflicts {
        text += &format!("  conflict     {}: {}\n", conflict.path, conflict.change);
    }
    if !recovered.conflicts.is_empty() {
        text += "Another program changed these files while the log held updates for them. Neither version was\n\
                 overwritten: the files are as that program left them, the store's versions stay in its log\n\
                 (`wholly dump`). Nothing was written back.\n";
    }
    text
}
