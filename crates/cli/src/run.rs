//! `wholly run`: a whole command, with all its children, is one group.
//!
//! The command sees the directory through a mount that nobody else sees: this process and its children have a mount namespace of their
//! own. All calls of the mount go into one explicit group. When the command has ended, and all that it has started, the mount is taken away,
//! so that what is in the kernel reaches the group; then the group is committed, parked or aborted.
//!
//! | file | idea |
//! |---|---|
//! | `run.rs` | from the namespace to the verdict |
//! | `run/command.rs` | the command: how it begins, and how all of it ends |
//! | `run/place.rs` | the directory: a store, or made one for as long as the command runs |
//! | `run/review.rs` | a person looks at it and decides |

mod command;
mod place;
mod review;

use crate::args::RunArgs;
use crate::diff;
use crate::error::{Exit, Failure};
use crate::output::{Ui, count};
use command::{Command, Ended};
use nix::sched::{CloneFlags, unshare};
use place::Place;
use review::Verdict;
use rustix::mount::{MountPropagationFlags, mount_change};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wholly::StoreVfs;
use wholly::vfs::GroupId;
use wholly_fuse::{Mount, MountOptions, Sharing};

pub use command::exec;

#[derive(Serialize)]
struct Outcome {
    dir: PathBuf,
    /// `committed`, `parked`, `discarded` or `aborted`.
    outcome: &'static str,
    /// How the command ended.
    status: u8,
    /// The parked group.
    id: Option<String>,
    /// What the group would have changed, or has; not told where it was aborted.
    changes: Vec<diff::Told>,
}

/// Runs a command as one group.
pub fn run(args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    attempt(args, ui).map_err(|failure| failure.exit(Exit::NOT_RUN))
}

fn attempt(args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    let what = || format!("run {}", args.command[0].to_string_lossy());
    let failed = |error: std::io::Error| Failure::new(what(), error);
    let here = std::env::current_dir().map_err(failed)?;
    let dir = args.dir.canonicalize().map_err(|error| {
        Failure::new(format!("run in {}", args.dir.display()), error).advice("the directory must exist")
    })?;
    leave_namespace().map_err(|error| {
        let advice = "it takes the superuser: a mount of the directory that only the command sees";
        Failure::new(what(), error).advice(advice)
    })?;
    // Nothing of ours stays in use where the mount will be.
    std::env::set_current_dir("/").map_err(failed)?;

    let place = Place::open(&dir)?;
    let view = Arc::new(StoreVfs::new(place.store()));
    let group = view.begin().map_err(|error| place.failed(error))?;
    let ended = in_view(args, &here, &dir, &view, group).inspect_err(|_| {
        let _ = view.abort(group);
    });
    let ended = match ended {
        Ok(ended) => ended,
        Err(failure) => {
            drop(view);
            place.close()?;
            return Err(failure);
        }
    };
    finish(args, ui, place, view, (group, ended))
}

/// A mount namespace of this process, of which nobody else sees the mounts.
fn leave_namespace() -> std::io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

/// Runs the command, with the group's view in the place of the directory. On return nobody uses that any more.
fn in_view(args: &RunArgs, here: &Path, dir: &Path, view: &Arc<StoreVfs>, group: GroupId) -> Result<Ended, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("run in {}", dir.display()), error);
    let options = MountOptions {
        source: dir.to_string_lossy().into_owned(),
        sharing: Sharing::Everybody,
        suid: true,
        dev: true,
        group: Some(group),
        ..MountOptions::default()
    };
    let mut mount = Mount::new(view.clone(), dir, &options).map_err(|error| {
        failed(error).advice("it takes /dev/fuse: `modprobe fuse`, and the superuser's rights in a container")
    })?;
    let unmounter = mount.unmounter();
    let server = std::thread::spawn(move || mount.serve());
    let ended = Command::start(&args.command, here).and_then(Command::wait);
    // What is dirty in the kernel goes to the group.
    unmounter.unmount().map_err(failed)?;
    server.join().expect("it returns its errors").map_err(failed)?;
    ended
}

/// The group ends as the command did.
fn finish(
    args: &RunArgs,
    ui: &Ui,
    place: Place,
    view: Arc<StoreVfs>,
    (group, ended): (GroupId, Ended),
) -> Result<Exit, Failure> {
    let mut outcome =
        Outcome { dir: place.dir().into(), outcome: "aborted", status: ended.status, id: None, changes: Vec::new() };
    let verdict = match ended.is_success() {
        false => Verdict::Discard,
        true => {
            let told = view.review(group, diff::all).map_err(|error| place.failed(error))?;
            outcome.changes = told.map_err(|error| place.failed(error))?;
            match () {
                () if outcome.changes.is_empty() => Verdict::Discard,
                () if args.park => Verdict::Park,
                () if args.review => review::ask(place.dir(), &outcome.changes)?,
                () => Verdict::Apply,
            }
        }
    };
    match verdict {
        Verdict::Apply => view.commit(group).map_err(|error| place.failed(error))?,
        Verdict::Park => {
            let note = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
            let note: String = note.chars().filter(|char| *char != '\0').take(250).collect();
            let id = view.park(group, &note, None).map_err(|error| place.failed(error))?;
            outcome.id = Some(id.to_string());
        }
        Verdict::Discard => view.abort(group).map_err(|error| place.failed(error))?,
    }
    outcome.outcome = match verdict {
        Verdict::Apply => "committed",
        Verdict::Park => "parked",
        Verdict::Discard if !ended.is_success() => "aborted",
        Verdict::Discard if outcome.changes.is_empty() => "committed",
        Verdict::Discard => "discarded",
    };
    drop(view);
    place.close()?;
    if ui.json {
        ui.emit("run", &outcome, |_| String::new())?;
    } else {
        eprint!("{}", text(&outcome, args));
    }
    Ok(Exit::of_child(ended.status))
}

/// What a person is told, on stderr: nothing, where all is as it was asked for.
fn text(outcome: &Outcome, args: &RunArgs) -> String {
    let dir = outcome.dir.display();
    let changes = || count(outcome.changes.len() as u64, "change");
    match (outcome.outcome, &outcome.id) {
        ("aborted", _) => format!("wholly: run: it ended with {}: nothing has changed in {dir}\n", outcome.status),
        ("discarded", _) => format!("wholly: run: discarded: nothing has changed in {dir}\n"),
        ("parked", Some(id)) => format!(
            "wholly: run: parked as {id}: {} in {dir}; see `wholly diff {dir} {id}`, then apply it or discard it\n",
            changes()
        ),
        _ if args.verbose || args.review => {
            format!("wholly: run: committed: {} in {dir}; what it wrote elsewhere is as with any command\n", changes())
        }
        _ => String::new(),
    }
}
