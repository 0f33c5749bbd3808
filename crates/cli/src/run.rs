//! `wholly run`: a whole command, with all its children, is one group.
//!
//! The command sees the directory through a mount that nobody else sees: another process of ours, the *holder*, has a mount namespace of its own
//! and runs the command in it. All calls of the mount come to this process, and go into one explicit group. When the command has ended, and all that
//! it has started, the holder takes the mount away, so that what is in the kernel reaches the group; then the group is committed, parked or
//! aborted.
//!
//! | file | idea |
//! |---|---|
//! | `run.rs` | from the directory to the verdict |
//! | `run/holder.rs`, `run/channel.rs` | the holder, as this process knows it; what the two say |
//! | `run/hold.rs` | the holder itself |
//! | `run/views.rs` | the mounts that only the command sees |
//! | `run/namespace.rs`, `run/user.rs` | where they are: the superuser's and an ordinary user's namespaces |
//! | `run/command.rs` | the command: how it begins |
//! | `run/family.rs` | how all of it ends |
//! | `run/interrupts.rs` | signals that want all of it to end |
//! | `run/place.rs` | the directory: a store, or made one for as long as the command runs |
//! | `run/review.rs` | a person looks at it and decides |

mod channel;
mod command;
mod family;
mod hold;
mod holder;
mod interrupts;
mod namespace;
mod place;
mod review;
mod user;
mod views;

use crate::args::RunArgs;
use crate::diff;
use crate::error::{Exit, Failure};
use crate::limits;
use crate::output::{Ui, count};
use holder::Holder;
use interrupts::Interrupts;
use place::Place;
use review::Verdict;
use serde::Serialize;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use wholly::StoreVfs;
use wholly::vfs::GroupId;
use wholly_fuse::{Identity, MountOptions, Server};

pub use command::exec;
pub use hold::hold;

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
    attempt(args, ui).map_err(|failure| failure.or_exit(Exit::NOT_RUN))
}

fn attempt(args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("run {}", args.command[0].to_string_lossy()), error);
    let here = std::env::current_dir().map_err(failed)?;
    let dir = args.dir.canonicalize().map_err(|error| {
        Failure::new(format!("run in {}", args.dir.display()), error).advice("the directory must exist")
    })?;
    namespace::check(&dir)?;
    let is_ordinary = user::is_ordinary().map_err(failed)?;
    if is_ordinary {
        user::check(&dir)?;
    }
    // From here on a signal ends all of it in order.
    let interrupts = Interrupts::begin().map_err(failed)?;
    let files = limits::raise_open_files();
    // Before anything is made in the directory: who may not mount there leaves nothing.
    let (holder, devices) =
        Holder::start((&args.command, &here, files, is_ordinary), std::slice::from_ref(&dir), &interrupts)?;
    let place = Place::open(&dir)?;
    let outcome = in_group(args, &place, &interrupts, holder, devices);
    // Whatever has happened, what was no store is to be none; the first failure is the one that counts.
    let committed = outcome.as_ref().is_ok_and(|outcome| outcome.outcome == "committed");
    let closed = place.close();
    let outcome = outcome?;
    closed.map_err(|failure| if committed { failure.exit(Exit::NOT_HOME) } else { failure })?;
    if ui.json {
        ui.emit("run", &outcome, |_| String::new())?;
    } else {
        // Nobody may read it.
        let _ = std::io::stderr().write_all(text(&outcome, args).as_bytes());
    }
    Ok(Exit::of_child(outcome.status))
}

/// Runs the command in a group, and ends that as the command did.
fn in_group(
    args: &RunArgs,
    place: &Place,
    interrupts: &Interrupts,
    holder: Holder<'_>,
    devices: Vec<OwnedFd>,
) -> Result<Outcome, Failure> {
    let view = Arc::new(StoreVfs::new(place.store()));
    let group = view.begin().map_err(|error| place.failed(error))?;
    let ended = in_view(place, (&view, group), holder, devices);
    let ended = ended.and_then(|status| finish(args, place, interrupts, &view, (group, status)));
    if ended.is_err() {
        // If it is there still.
        let _ = view.abort(group);
    }
    ended
}

/// Serves the group's view while the command runs. On return nobody uses that any more.
fn in_view(
    place: &Place,
    (view, group): (&Arc<StoreVfs>, GroupId),
    holder: Holder<'_>,
    devices: Vec<OwnedFd>,
) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("run in {}", place.dir().display()), error);
    let identity = match user::is_ordinary().map_err(failed)? {
        true => Identity::of_process().map_err(failed)?,
        false => Identity::Shared,
    };
    let options = namespace::options(place.dir()).map_err(failed)?;
    let options = MountOptions { group: Some(group), identity, ..options };
    let mut servers = Vec::new();
    for device in devices {
        let server = Server::new(view.clone(), device, &options).map_err(failed)?;
        servers.push(std::thread::spawn(move || server.serve()));
    }
    // Where that fails the mount may be in use still, and its server would not return.
    let status = holder.run()?;
    for server in servers {
        server.join().expect("it returns its errors").map_err(failed)?;
    }
    Ok(status)
}

/// The group ends as the command did.
fn finish(
    args: &RunArgs,
    place: &Place,
    interrupts: &Interrupts,
    view: &StoreVfs,
    (group, status): (GroupId, u8),
) -> Result<Outcome, Failure> {
    let failed = |error| place.failed(error);
    let mut outcome = Outcome { dir: place.dir().into(), outcome: "aborted", status, id: None, changes: Vec::new() };
    let is_success = || status == 0 && interrupts.first().is_none();
    let mut verdict = Verdict::Discard;
    if is_success() {
        let told = view.review(group, diff::all).map_err(failed)?;
        outcome.changes = told.map_err(failed)?;
        verdict = match () {
            () if outcome.changes.is_empty() => Verdict::Apply,
            () if args.park => Verdict::Park,
            () if args.review => review::ask(place.dir(), &outcome.changes, interrupts)?,
            () => Verdict::Apply,
        };
    }
    if !is_success() {
        verdict = Verdict::Discard;
    }
    outcome.outcome = match verdict {
        Verdict::Apply => {
            view.commit(group).map_err(failed)?;
            "committed"
        }
        Verdict::Park => {
            let note = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
            let note: String = note.chars().filter(|char| *char != '\0').take(250).collect();
            let id = view.park(group, &note, None).map_err(failed)?;
            outcome.id = Some(id.to_string());
            "parked"
        }
        Verdict::Discard => {
            view.abort(group).map_err(failed)?;
            if is_success() { "discarded" } else { "aborted" }
        }
    };
    if let (0, "aborted", Some(signal)) = (outcome.status, outcome.outcome, interrupts.first()) {
        outcome.status = u8::try_from(128 + signal).unwrap_or(u8::MAX);
    }
    Ok(outcome)
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
