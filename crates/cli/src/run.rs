//! `wholly run`: a whole command, with all its children, is one group.
//!
//! The command sees each directory that was named through a mount that nobody else sees: another process of ours, the
//! *holder*, has a mount namespace of its own and runs the command in it. The mounts are of one of two kinds. All calls
//! of a FUSE mount come to this process, and go into an explicit group of that directory's store. An overlay is the
//! kernel's alone, and writes what is changed to a *layer* in the store's folder, of which calls of the group are made
//! in the end. When the command has ended, and all that it has started, the holder takes the mounts away, so that what
//! is in the kernel reaches the groups; then they are committed together, parked or aborted.
//!
//! | file | idea |
//! |---|---|
//! | `run.rs` | from the directories to their groups |
//! | `run/holder.rs`, `run/channel.rs` | the holder, as this process knows it; what the two say |
//! | `run/hold.rs` | the holder itself |
//! | `run/views.rs`, `run/overlay.rs` | the mounts that only the command sees, and those of them that are overlays |
//! | `run/large.rs` | which of the two kinds suits a directory |
//! | `run/layer.rs` | what an overlay writes to, and what becomes of it |
//! | `run/joining.rs` | programs that begin groups in an overlay |
//! | `run/namespace.rs`, `run/user.rs` | where they are: the superuser's and an ordinary user's namespaces |
//! | `run/command.rs` | the command: how it begins |
//! | `run/family.rs` | how all of it ends |
//! | `run/interrupts.rs` | signals that want all of it to end |
//! | `run/place.rs` | the directories: stores, or made such for as long as the command runs |
//! | `run/ending.rs` | the groups end as the command did |
//! | `run/space.rs` | kept undo gives way to what the command writes |
//! | `run/review.rs`, `run/pager.rs` | a person looks at it and decides; by what |

mod ahead;
mod channel;
mod command;
mod ending;
mod family;
mod hold;
mod holder;
mod interrupts;
mod joining;
mod large;
mod layer;
mod namespace;
mod overlay;
mod pager;
mod place;
mod review;
mod space;
mod uncovered;
mod user;
mod views;

use crate::args::{RunArgs, View};
use crate::error::{Exit, Failure};
use crate::limits;
use crate::output::Ui;
use channel::Mounted;
use ending::{Ended, Outcome};
use holder::Holder;
use interrupts::Interrupts;
use joining::Listening;
use large::has_large_file;
use layer::Layer;
use namespace::Covered;
use place::Place;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wholly::StoreVfs;
use wholly_fuse::{Doom, Identity, Lost, MountOptions, Server};
use wholly_vfs::{GroupId, Groups};

pub use command::exec;
pub use hold::hold;

/// A group that a command runs in, in one directory.
struct Running<'p> {
    place: &'p Place,
    covered: &'p Covered,
    /// Where what the command changes is so far, if it sees the directory by an overlay.
    layer: Option<Layer>,
    view: Arc<StoreVfs>,
    group: GroupId,
    /// Whether the group has taken over what lies in the layer: then it is neither looked at nor parked.
    has_adopted: bool,
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
    if !args.root {
        uncovered::tell(&here, &dirs.iter().map(|covered| &*covered.dir).collect::<Vec<_>>());
    }
    // From here on a signal ends all of it in order.
    let interrupts = Interrupts::begin().map_err(failed)?;
    let files = limits::raise_open_files();
    let command = (&args.command[..], &*here, files, is_ordinary);
    let fuse = || {
        let mut holder = Holder::start(command, (&dirs, &[]), &interrupts)?;
        let (mounted, devices) = holder.mount(false)?;
        Ok(Views { holder, mounted, by: By::Fuse(devices) })
    };
    // Before anything is made in the directories: who may not mount there leaves nothing. An overlay takes stores
    // first, which are none any more where it cannot be had; its holder starts meanwhile.
    let overlays = || Overlays::begin(command, &dirs, &interrupts).map(Begun::Overlays);
    let begun = match wants_overlay(args.view, is_ordinary)? {
        true if args.view == View::Auto && !args.root && dirs.iter().any(|dir| has_large_file(&dir.dir)) => {
            match fuse() {
                Err(_) if interrupts.first().is_none() => overlays()?,
                views => Begun::Mounted(views?),
            }
        }
        true => overlays()?,
        false => Begun::Mounted(fuse()?),
    };
    if args.park
        && let Some(covered) = dirs.iter().find(|covered| place::is_view(&covered.dir).unwrap_or(false))
    {
        let what = format!("run --park in {}", covered.dir.display());
        return Err(Failure::new(
            what,
            "the directory is the view of another `wholly run`, which keeps nothing parked",
        )
        .advice("use `--park` with the outer one"));
    }
    let (places, opened) = place::open_all(&dirs);
    let outcome = opened.and_then(|()| {
        let views = match begun {
            Begun::Mounted(views) => views,
            Begun::Overlays(overlays) => match overlays.mount(&places) {
                Err(_) if args.view == View::Auto && interrupts.first().is_none() => fuse()?,
                views => views?,
            },
        };
        in_groups((args, ui), (&places, &dirs), &interrupts, views)
    });
    // Whatever has happened, what was no store is to be none; the first failure is the one that counts.
    let committed = outcome.as_ref().is_ok_and(|outcome| outcome.outcome == "committed");
    let closed = place::close_all(places);
    let outcome = outcome?;
    // Also where not all of it is home.
    if !ui.json {
        // Nobody may read it.
        let _ = std::io::stderr().write_all(ending::text(&outcome, args).as_bytes());
    } else {
        ui.emit("run", &outcome, |_| String::new())?;
    }
    closed.map_err(|failure| if committed { failure.exit(Exit::NOT_HOME) } else { failure })?;
    Ok(outcome.exit)
}

/// The views of a command, which are mounted, and their holder.
struct Views<'a> {
    holder: Holder<'a>,
    mounted: Vec<Mounted>,
    by: By,
}

/// What is behind them, for each of the directories.
enum By {
    /// The device by which the kernel asks.
    Fuse(Vec<OwnedFd>),
    Overlay(Vec<(Layer, Listening)>),
}

/// Whether overlays are tried.
fn wants_overlay(view: View, is_ordinary: bool) -> Result<bool, Failure> {
    match view {
        View::Fuse => Ok(false),
        View::Auto => Ok(!is_ordinary),
        View::Overlay if is_ordinary => Err(user::no_overlay()),
        View::Overlay => Ok(true),
    }
}

/// Views on their way.
enum Begun<'a> {
    Mounted(Views<'a>),
    Overlays(Overlays<'a>),
}

/// Overlays that are to be mounted: their holder waits for the layers.
struct Overlays<'a> {
    holder: Holder<'a>,
    listening: Vec<Listening>,
}

impl<'a> Overlays<'a> {
    fn begin(command: holder::Command<'a>, dirs: &[Covered], interrupts: &'a Interrupts) -> Result<Self, Failure> {
        let failed = |errno: rustix::io::Errno| Failure::new("run", format!("groups of programs: {errno}"));
        let listening: Vec<_> = dirs.iter().map(|_| Listening::new()).collect::<Result<_, _>>().map_err(failed)?;
        let names: Vec<_> = listening.iter().map(Listening::name).collect();
        let holder = Holder::start(command, (dirs, &names), interrupts)?;
        Ok(Overlays { holder, listening })
    }

    /// Has them mounted. Where that cannot be, the stores have no layers any more.
    fn mount(mut self, places: &[Place]) -> Result<Views<'a>, Failure> {
        let layers = places.iter().map(Layer::make).collect::<Result<Vec<_>, Failure>>();
        let mounted = layers.and_then(|layers| Ok((layers, self.holder.mount(true)?.0)));
        let (layers, mounted) = mounted.inspect_err(|_| {
            // What it was that failed is what counts.
            places.iter().for_each(|place| _ = place.store().remove_layer());
        })?;
        let by = By::Overlay(layers.into_iter().zip(self.listening).collect());
        Ok(Views { holder: self.holder, mounted, by })
    }
}

/// Runs the command in a group of each directory, and ends these as the command did.
fn in_groups(
    (args, ui): (&RunArgs, &Ui),
    (places, dirs): (&[Place], &[Covered]),
    interrupts: &Interrupts,
    Views { holder, mounted, by }: Views<'_>,
) -> Result<Outcome, Failure> {
    let begin = |(place, covered)| {
        let view = Arc::new(StoreVfs::new(Place::store(place)));
        let group = view.begin().map_err(|error| place.failed(error))?;
        view.leave_out().map_err(|error| place.failed(error))?;
        Ok(Running { place, covered, layer: None, view, group, has_adopted: false })
    };
    let mut running = places.iter().zip(dirs).map(begin).collect::<Result<Vec<_>, Failure>>()?;
    for (one, mounted) in running.iter().zip(&mounted) {
        if one.place.identity() != mounted.over {
            return Err(another_directory(one.place));
        }
    }
    let ended = match by {
        By::Fuse(devices) => in_served_views(&running, holder, devices)?,
        By::Overlay(layers) => in_overlays(&mut running, holder, &mounted, layers, !ending::is_looked_at(args, ui))?,
    };
    // The command has run. What fails from here on is no failure to run it.
    ending::end(args, ui, &mut running, interrupts, ended).map_err(|failure| failure.or_exit(Exit::REFUSED))
}

fn another_directory(place: &Place) -> Failure {
    Failure::new(format!("run in {}", place.dir().display()), "the directory was exchanged meanwhile")
}

/// Waits while the command runs in views that are the kernel's alone. On return the layers have what it has changed,
/// and nobody writes to them any more.
fn in_overlays(
    running: &mut [Running<'_>],
    holder: Holder<'_>,
    mounted: &[Mounted],
    layers: Vec<(Layer, Listening)>,
    commits_at_once: bool,
) -> Result<Ended, Failure> {
    let mut joining = Vec::new();
    for ((one, mounted), (layer, listening)) in running.iter_mut().zip(mounted).zip(layers) {
        if mounted.upper != Some(layer.upper()) {
            return Err(another_directory(one.place));
        }
        joining.push(listening.serve(holder.pid())?);
        one.layer = Some(layer);
    }
    let running = &*running;
    let places: Vec<_> = running.iter().map(|one| one.place).collect();
    let write_back = |is_success| {
        if let [Running { layer: Some(layer), .. }] = running
            && is_success
            && commits_at_once
        {
            layer.write_back();
        }
    };
    let status = space::giving_way(&places, || holder.run(write_back))?;
    let dooms: Vec<_> = joining.into_iter().map(joining::Joining::end).collect();
    Ok(Ended { status, doomed: dooms.iter().find_map(|doom| doom.why().map(str::to_owned)) })
}

/// Serves the groups' views while the command runs. On return nobody uses them any more.
fn in_served_views(running: &[Running<'_>], holder: Holder<'_>, devices: Vec<OwnedFd>) -> Result<Ended, Failure> {
    let mut servers = Vec::new();
    let served = running.iter().zip(devices).try_for_each(|(one, device)| {
        servers.push(serve(one, device)?);
        Ok(())
    });
    let status = served.and_then(|()| holder.run(|_| wait_until(|| running.iter().all(|one| one.view.held().1 == 0))));
    if status.is_err() {
        // The mounts went with the holder, and their servers are to have gone before the stores are closed. Of a mount
        // that is in use outside the server does not return.
        wait_until(|| servers.iter().all(|serving| serving.thread.is_finished()));
    }
    let status = status?;
    let mut doomed = None;
    for Serving { dir, lost, doom, thread } in servers {
        let served = thread.join().expect("it returns its errors");
        served.map_err(|error| Failure::new(format!("serve the command's view of {}", dir.display()), error))?;
        if let (0, Some(error)) = (status, lost.why()) {
            let why = format!("data that the command has written to mapped memory is lost: {error}");
            return Err(Failure::new(format!("run in {}", dir.display()), why)
                .advice("nothing has changed")
                .exit(Exit::REFUSED));
        }
        doomed = doomed.or_else(|| doom.why().map(str::to_owned));
    }
    // What the kernel knew it has not given back one by one.
    running.iter().for_each(|one| one.view.forget_all());
    Ok(Ended { status, doomed })
}

/// The server of a view.
struct Serving<'p> {
    dir: &'p Path,
    lost: Lost,
    doom: Doom,
    thread: JoinHandle<std::io::Result<()>>,
}

/// Begins to serve a view by its device.
fn serve<'p>(running: &Running<'p>, device: OwnedFd) -> Result<Serving<'p>, Failure> {
    let Running { place, covered, view, group, .. } = running;
    let failed = |error: std::io::Error| Failure::new(format!("run in {}", place.dir().display()), error);
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

/// Waits until something is so, and not for ever. No file of a view is open: the kernel tells of a last close when all
/// that was written through it has been answered, also what was written to mapped memory; where it is asked to unmount
/// before, it may drop the rest. What somebody outside has open stays so: then the mount is in use, which whoever takes
/// it away finds out.
fn wait_until(is: impl Fn() -> bool) {
    const LONGEST: Duration = Duration::from_secs(20);
    let begin = Instant::now();
    while !is() && begin.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_micros(200));
    }
}
