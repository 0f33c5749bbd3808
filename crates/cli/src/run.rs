//! `wholly run`: a whole command, with all its children, is one group.
//!
//! The command sees each directory that was named through a mount that nobody else sees: another process of ours, the *holder*, has a mount namespace of its own
//! and runs the command in it. All calls of a mount come to this process, and go into an explicit group of that directory's store. When the command has ended, and all that
//! it has started, the holder takes the mounts away, so that what is in the kernel reaches the groups; then they are committed together, parked or
//! aborted.
//!
//! | file | idea |
//! |---|---|
//! | `run.rs` | from the directories to their groups |
//! | `run/holder.rs`, `run/channel.rs` | the holder, as this process knows it; what the two say |
//! | `run/hold.rs` | the holder itself |
//! | `run/views.rs` | the mounts that only the command sees |
//! | `run/namespace.rs`, `run/user.rs` | where they are: the superuser's and an ordinary user's namespaces |
//! | `run/mounts.rs` | what else is mounted there |
//! | `run/command.rs` | the command: how it begins |
//! | `run/family.rs` | how all of it ends |
//! | `run/interrupts.rs` | signals that want all of it to end |
//! | `run/place.rs` | the directories: stores, or made such for as long as the command runs |
//! | `run/ending.rs` | the groups end as the command did |
//! | `run/review.rs`, `run/pager.rs` | a person looks at it and decides; by what |

mod channel;
mod command;
mod ending;
mod family;
mod hold;
mod holder;
mod interrupts;
mod mounts;
mod namespace;
mod pager;
mod place;
mod review;
mod user;
mod views;

use crate::args::RunArgs;
use crate::error::{Exit, Failure};
use crate::limits;
use crate::named::Identity as Directory;
use crate::output::Ui;
use ending::{Ended, Outcome};
use holder::Holder;
use interrupts::Interrupts;
use namespace::Covered;
use place::Place;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wholly::StoreVfs;
use wholly::vfs::GroupId;
use wholly_fuse::{Doom, Identity, Lost, MountOptions, Server};

pub use command::exec;
pub use hold::hold;

/// A group that a command runs in, in one directory.
struct Running<'p> {
    place: &'p Place,
    covered: &'p Covered,
    view: Arc<StoreVfs>,
    group: GroupId,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // If it is there still.
        let _ = self.view.abort(self.group);
    }
}

/// Runs a command as one group.
pub fn run(args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    attempt(args, ui).map_err(|failure| failure.or_exit(Exit::NOT_RUN))
}

fn attempt(args: &RunArgs, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("run {}", args.command[0].to_string_lossy()), error);
    let here = std::env::current_dir().map_err(failed)?;
    let is_ordinary = user::is_ordinary().map_err(failed)?;
    let dirs = match args.root {
        true if is_ordinary => return Err(user::no_root()),
        true => vec![Covered::root()?],
        false => place::find(&args.dir)?.into_iter().map(Covered::directory).collect::<Result<_, _>>()?,
    };
    if is_ordinary {
        dirs.iter().try_for_each(|covered| user::check(&covered.dir))?;
    }
    // From here on a signal ends all of it in order.
    let interrupts = Interrupts::begin().map_err(failed)?;
    let files = limits::raise_open_files();
    // Before anything is made in the directories: who may not mount there leaves nothing.
    let (holder, devices) = Holder::start((&args.command, &here, files, is_ordinary), &dirs, &interrupts)?;
    let (places, opened) = place::open_all(&dirs);
    let outcome = opened.and_then(|()| in_groups((args, ui), (&places, &dirs), &interrupts, holder, devices));
    // Whatever has happened, what was no store is to be none; the first failure is the one that counts.
    let committed = outcome.as_ref().is_ok_and(|outcome| outcome.outcome == "committed");
    let closed = place::close_all(places);
    let outcome = outcome?;
    // Also where not all of it is home.
    if !ui.json {
        // Nobody may read it.
        let _ = std::io::stderr().write_all(ending::text(&outcome, args).as_bytes());
    } else if let Err(failure) = ui.emit("run", &outcome, |_| String::new()) {
        // The exit code says what has become of the directories.
        eprintln!("wholly: run: {failure}");
    }
    closed.map_err(|failure| if committed { failure.exit(Exit::NOT_HOME) } else { failure })?;
    Ok(Exit::of_child(outcome.status))
}

/// Runs the command in a group of each directory, and ends these as the command did.
fn in_groups(
    (args, ui): (&RunArgs, &Ui),
    (places, dirs): (&[Place], &[Covered]),
    interrupts: &Interrupts,
    holder: Holder<'_>,
    devices: Vec<(Directory, OwnedFd)>,
) -> Result<Outcome, Failure> {
    let begin = |(place, covered)| {
        let view = Arc::new(StoreVfs::new(Place::store(place)));
        let group = view.begin().map_err(|error| place.failed(error))?;
        Ok(Running { place, covered, view, group })
    };
    let running = places.iter().zip(dirs).map(begin).collect::<Result<Vec<_>, Failure>>()?;
    let ended = in_views(&running, holder, devices)?;
    ending::end(args, ui, &running, interrupts, ended)
}

/// Serves the groups' views while the command runs. On return nobody uses them any more.
fn in_views(running: &[Running<'_>], holder: Holder<'_>, devices: Vec<(Directory, OwnedFd)>) -> Result<Ended, Failure> {
    let mut servers = Vec::new();
    let served = running.iter().zip(devices).try_for_each(|(one, device)| {
        servers.push(serve(one, device)?);
        Ok(())
    });
    let status = served.and_then(|()| holder.run(|| wait_until(|| running.iter().all(|one| one.view.held().1 == 0))));
    if status.is_err() {
        // The mounts went with the holder, and their servers are to have gone before the stores are closed. Of a mount that is in use outside the
        // server does not return.
        wait_until(|| servers.iter().all(|serving| serving.thread.is_finished()));
    }
    let status = status?;
    let mut doomed = None;
    for Serving { dir, lost, doom, thread } in servers {
        let served = thread.join().expect("it returns its errors");
        served.map_err(|error| Failure::new(format!("serve the command's view of {}", dir.display()), error))?;
        if let (0, Some(error)) = (status, lost.why()) {
            let why = format!("what the command has written to mapped memory is lost: {error}");
            return Err(Failure::new(format!("run in {}", dir.display()), why).advice("nothing has changed"));
        }
        doomed = doomed.or_else(|| doom.why().map(str::to_owned));
    }
    Ok(Ended { status, doomed })
}

/// The server of a view.
struct Serving<'p> {
    dir: &'p Path,
    lost: Lost,
    doom: Doom,
    thread: JoinHandle<std::io::Result<()>>,
}

/// Begins to serve a view, which covers that directory.
fn serve<'p>(running: &Running<'p>, (identity, device): (Directory, OwnedFd)) -> Result<Serving<'p>, Failure> {
    let Running { place, covered, view, group } = running;
    let failed = |error: std::io::Error| Failure::new(format!("run in {}", place.dir().display()), error);
    if place.identity() != identity {
        return Err(failed(std::io::Error::other("another directory came to its place meanwhile")));
    }
    let identity = match user::is_ordinary().map_err(failed)? {
        true => Identity::of_process().map_err(failed)?,
        false => Identity::Shared,
    };
    let options = namespace::options(place.dir()).map_err(failed)?;
    let options = MountOptions { group: Some(*group), identity, points: covered.points(), ..options };
    let server = Server::new(view.clone(), device, &options).map_err(failed)?;
    let (lost, doom) = (server.lost(), server.doom());
    Ok(Serving { dir: place.dir(), lost, doom, thread: std::thread::spawn(move || server.serve()) })
}

/// Waits until something is so, and not for ever. No file of a view is open: the kernel tells of a last close when all that was written through it has been answered, also what was
/// written to mapped memory; where it is asked to unmount before, it may drop the rest. What somebody outside has open stays so: then the
/// mount is in use, which whoever takes it away finds out.
fn wait_until(is: impl Fn() -> bool) {
    const LONGEST: Duration = Duration::from_secs(20);
    let begin = Instant::now();
    while !is() && begin.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_micros(200));
    }
}
