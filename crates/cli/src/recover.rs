//! `wholly recover`: what an open does after a crash, told, and everything taken home.

mod all;

use crate::args::RecoverArgs;
use crate::error::{Exit, Failure};
use crate::init::register;
use crate::opening;
use crate::output::{Ui, count, name, size};
use crate::survey;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use wholly::{Options, RecoveryReport, Store};
use wholly_media::host::HostMedium;

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
    /// Whether it was a store only for a command that was killed, and is none any more.
    removed: bool,
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
}

#[derive(Serialize)]
struct Released {
    id: String,
    /// Where the store was that knows what was decided.
    coordinator: String,
    /// Why it could not be committed though that was decided; empty where nobody could be asked.
    mismatches: Vec<String>,
}

impl Joint {
    fn of(settled: wholly::Settled) -> Joint {
        let ids = |ids: Vec<wholly::ParkedId>| ids.into_iter().map(|id| id.to_string()).collect();
        let released = |it: wholly::Released| Released {
            id: it.id.to_string(),
            coordinator: name(it.coordinator.as_bytes()),
            mismatches: it.mismatches.iter().map(ToString::to_string).collect(),
        };
        Joint {
            committed: ids(settled.committed),
            undone: ids(settled.undone),
            released: settled.released.into_iter().map(released).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.committed.is_empty() && self.undone.is_empty() && self.released.is_empty()
    }
}

#[derive(Serialize)]
struct Conflict {
    path: String,
    change: String,
}

/// Recovers a store, or all that are registered.
pub fn run(args: &RecoverArgs, ui: &Ui) -> Result<Exit, Failure> {
    let how = How { adopt: args.adopt, release: args.release, trust_owner: args.trust_owner };
    if args.all {
        return all::run(how, ui);
    }
    let start = Instant::now();
    let recovered = recover(open_as("recover", &args.dir, how, ui)?, &args.dir, start, ui)?;
    ui.emit("recover", &recovered, text)?;
    if args.register && !recovered.removed && !register("recover", &args.dir)? {
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
        removed: false,
        conflicts: conflicts
            .into_iter()
            .map(|(path, change)| Conflict { path: name(path.as_bytes()), change })
            .collect(),
        joint: Joint::of(store.settled()),
        seconds: 0.0,
    };
    if recovered.conflicts.is_empty() {
        take_home(&store, ui).map_err(failed)?;
        recovered.home_bytes = store.stat().home_bytes_written;
        let is_needed = || Ok(!store.parked()?.is_empty() || store.may_be_asked()?);
        recovered.removed = store.is_guest().map_err(failed)? && !is_needed().map_err(failed)?;
        if recovered.removed { store.remove() } else { store.close() }.map_err(failed)?;
    }
    recovered.seconds = start.elapsed().as_secs_f64();
    Ok(recovered)
}

impl Recovered {
    fn exit(&self) -> Exit {
        let found = self.groups + u64::from(self.rejected_records);
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

/// What else is wanted: see [`Options`].
#[derive(Clone, Copy, Default)]
struct How {
    adopt: bool,
    release: bool,
    trust_owner: bool,
}

fn open_as(verb: &str, dir: &Path, how: How, ui: &Ui) -> Result<Store, Failure> {
    let medium = survey::medium_of(dir, &format!("{verb} {}", dir.display()))?;
    open_on(medium, dir, how, ui).map_err(|error| Failure::of_store(verb, dir, error))
}

fn open_on(medium: HostMedium, dir: &Path, how: How, ui: &Ui) -> wholly::Result<Store> {
    let spinner = ui.spinner("reading the log");
    let How { adopt, release, trust_owner } = how;
    let options = Options { background: false, adopt, release, trust_owner, ..Options::default() };
    let store = opening::open_on(medium, dir, options);
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
        (0, 0) if recovered.joint.is_empty() => format!("{dir}: nothing to recover, everything was home\n"),
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
    for id in &recovered.joint.committed {
        text += &format!("  decided      {id}, with the other directories of its joint commit: committed\n");
    }
    for id in &recovered.joint.undone {
        text += &format!("  not decided  {id}, with the other directories of its joint commit: gone\n");
    }
    for Released { id, coordinator, mismatches } in &recovered.joint.released {
        let why = match mismatches.as_slice() {
            [] => format!("only the store in {coordinator} knows whether it is committed"),
            why => format!("it was decided, and cannot be committed: {}", why.join("; ")),
        };
        text += &format!("  parked       {id}: {why}; see `wholly diff`, then `wholly apply` or `wholly discard`\n");
    }
    if recovered.home_bytes > 0 {
        text += &format!("  taken home   {}\n", size(recovered.home_bytes));
    }
    if recovered.removed {
        text += "  removed      the folder .wholly: it was there for a command that was killed\n";
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
