//! `wholly recover`: what an open does after a crash, told, and everything taken home.

mod all;

use crate::args::RecoverArgs;
use crate::error::{Exit, Failure};
use crate::init::register;
use crate::output::{Ui, count, name, size};
use crate::survey;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use wholly::{Options, RecoveryReport, Store};
use wholly_media::host::{HostMedium, HostOptions};

#[derive(Serialize)]
struct Recovered {
    dir: String,
    medium: String,
    emulated: bool,
    /// Committed groups that were not home.
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
    home_bytes: u64,
    conflicts: Vec<Conflict>,
    seconds: f64,
}

#[derive(Serialize)]
struct Conflict {
    path: String,
    change: String,
}

/// Recovers a store, or all that are registered.
pub fn run(args: &RecoverArgs, ui: &Ui) -> Result<Exit, Failure> {
    if args.all {
        return all::run(ui);
    }
    let start = Instant::now();
    let recovered = recover(open_as("recover", &args.dir, args.adopt, ui)?, &args.dir, start, ui)?;
    ui.emit("recover", &recovered, text)?;
    if args.register && !register("recover", &args.dir)? {
        return Err(all::no_registry(format!("recover {}", args.dir.display())));
    }
    Ok(recovered.exit())
}

/// Takes everything home of a store in `dir` that was just opened, and closes it.
fn recover(store: Store, dir: &Path, start: Instant, ui: &Ui) -> Result<Recovered, Failure> {
    let failed = |error| Failure::of_store("recover", dir, error);
    let RecoveryReport { scan, files, names, adopted, conflicts } = store.recovery().clone();
    let mut recovered = Recovered {
        dir: dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf()).to_string_lossy().into_owned(),
        medium: store.stat().medium,
        emulated: store.stat().emulated,
        groups: scan.groups,
        files,
        rejected_records: scan.rejected,
        names,
        adopted,
        home_bytes: 0,
        conflicts: conflicts
            .into_iter()
            .map(|(path, change)| Conflict { path: name(path.as_bytes()), change })
            .collect(),
        seconds: 0.0,
    };
    if recovered.conflicts.is_empty() {
        take_home(&store, ui).map_err(failed)?;
        recovered.home_bytes = store.stat().home_bytes_written;
        store.close().map_err(failed)?;
    }
    recovered.seconds = start.elapsed().as_secs_f64();
    Ok(recovered)
}

impl Recovered {
    fn exit(&self) -> Exit {
        match (self.conflicts.is_empty(), self.groups + u64::from(self.rejected_records)) {
            (false, _) => Exit::DAMAGED,
            (true, 0) => Exit::DONE,
            (true, _) => Exit::REPAIRED,
        }
    }
}

/// Opens the store in `dir` for `verb`, which recovers it.
pub fn open(verb: &str, dir: &Path, ui: &Ui) -> Result<Store, Failure> {
    open_as(verb, dir, false, ui)
}

/// The same; a copy is adopted, if that is wanted.
fn open_as(verb: &str, dir: &Path, adopt: bool, ui: &Ui) -> Result<Store, Failure> {
    let medium = survey::medium_of(dir, verb)?;
    open_on(medium, dir, adopt, ui).map_err(|error| Failure::of_store(verb, dir, error))
}

fn open_on(medium: HostMedium, dir: &Path, adopt: bool, ui: &Ui) -> wholly::Result<Store> {
    let spinner = ui.spinner("reading the log");
    let options = Options { background: false, adopt, ..Options::default() };
    let store = Store::open_with(dir, options, HostOptions { medium, ..HostOptions::default() });
    spinner.finish_and_clear();
    store
}

/// Checkpoints, with a bar over the blocks that are not home.
pub fn take_home(store: &Store, ui: &Ui) -> wholly::Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    let all = store.stat().pending_blocks;
    let bar = ui.bar("taking blocks home", all);
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(|| store.checkpoint());
        while !worker.is_finished() {
            bar.set_position(all.saturating_sub(store.stat().pending_blocks));
            std::thread::sleep(if bar.is_hidden() { Duration::from_millis(1) } else { LOOK_EVERY });
        }
        worker.join().expect("a checkpoint returns its errors")
    });
    bar.finish_and_clear();
    done.map(|_| ())
}

fn text(recovered: &Recovered) -> String {
    let dir = name(recovered.dir.as_bytes());
    let mut text = match (recovered.groups, recovered.rejected_records) {
        (0, 0) => format!("{dir}: nothing to recover, everything was home\n"),
        (groups, torn) => format!(
            "{dir}: recovered\n  committed    {} that {} not home, over {}\n  torn         {}\n",
            count(groups, "group"),
            if groups == 1 { "was" } else { "were" },
            count(recovered.files, "file"),
            match torn {
                0 => "nothing".into(),
                torn => format!("{} of groups whose commit had not returned: gone", count(torn.into(), "record")),
            }
        ),
    };
    if recovered.names > 0 {
        text += &format!("  names        {}\n", count(recovered.names, "name"));
    }
    if recovered.adopted {
        text += "  adopted      the copy: its files took the place of those that it was copied from\n";
    }
    if recovered.home_bytes > 0 {
        text += &format!("  taken home   {}\n", size(recovered.home_bytes));
    }
    for conflict in &recovered.conflicts {
        text += &format!("  conflict     {}: {}\n", conflict.path, conflict.change);
    }
    if !recovered.conflicts.is_empty() {
        text += "Another program changed these files while the log held updates of them. Neither version was touched: the files are\n\
                 as that program left them, the store's versions stay in its log (`wholly dump` lists them). Nothing was taken home.\n";
    }
    text
}
