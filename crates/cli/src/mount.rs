//! `wholly mount`: a store or a volume as a file system, for programs that share it. Under the name `mount.wholly` it
//! is what mount(8) calls.

use crate::args::MountArgs;
use crate::error::{Exit, Failure};
use crate::limits;
use crate::named::{self, Named};
use crate::opening;
use crate::output::{Name, Ui, print, shown};
use crate::recover;
use crate::volume;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use wholly::{Options, StoreVfs};
use wholly_fuse::{Mount, MountOptions, Unmounter};
use wholly_vfs::{Errno, Groups, Policy};
use wholly_volume::{DataMode, EngineKind, PolicyVfs, Volume, VolumeOptions, VolumeVfs};

/// What the process in the background says once programs can use the mount.
const READY: &str = "ready";

#[derive(Serialize)]
struct Mounted {
    dir: Name,
    point: Name,
    policy: String,
}

/// Everything that the arguments say.
struct Plan {
    dir: PathBuf,
    point: PathBuf,
    mount: MountOptions,
    policy: Policy,
    /// The policy is not that of every mount.
    has_policy: bool,
    /// Threads of a volume that write back in the background, if it was said.
    checkpointers: Option<usize>,
    data: Option<DataMode>,
    /// Change the flags of a mount that is there.
    remount: bool,
}

/// Mounts a store, and stays until it is unmounted: in the background, unless it is told not to.
pub fn run(args: &MountArgs, ui: &Ui) -> Result<Exit, Failure> {
    let plan = plan(args)?;
    let mounted = Mounted {
        dir: Name::from(&*plan.dir),
        point: Name::from(&*plan.point),
        policy: match plan.policy {
            Policy::PerOp => "per-op".into(),
            Policy::PerSync => "per-sync".into(),
            Policy::Shared { interval } => format!("shared={}", interval.as_secs_f64()),
        },
    };
    let told = || ui.emit("mount", &mounted, |mounted| format!("{} is mounted on {}\n", mounted.dir, mounted.point));
    match (args.background, args.foreground) {
        _ if args.fake => Ok(Exit::DONE),
        _ if plan.remount => {
            wholly_fuse::remount(&plan.point, &plan.mount).map_err(|error| failed(&plan, error))?;
            Ok(Exit::DONE)
        }
        (true, _) => serve(&plan, ui, || {
            // Whoever started it goes on when it has read this, and takes the terminal along.
            let failed = |error: std::io::Error| failed(&plan, error);
            let mut out = std::io::stdout();
            writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(failed)?;
            let null = std::fs::File::options().read(true).write(true).open("/dev/null").map_err(failed)?;
            let all = rustix::stdio::dup2_stdout(&null).and_then(|()| rustix::stdio::dup2_stderr(&null));
            all.map_err(|errno| failed(errno.into()))
        }),
        (false, true) => serve(&plan, ui, || told().and_then(|()| ui.flush())),
        (false, false) => {
            let exit = start(args, &plan, ui)?;
            if exit == Exit::DONE && (!args.helper || args.verbose) {
                told()?;
            }
            Ok(exit)
        }
    }
}

fn failed(plan: &Plan, error: std::io::Error) -> Failure {
    let what = format!("mount {} on {}", plan.dir.display(), plan.point.display());
    let advice = match error.kind() {
        std::io::ErrorKind::NotFound => "both directories must exist, and /dev/fuse (`modprobe fuse`)",
        std::io::ErrorKind::PermissionDenied => {
            "mounting needs root, or fusermount3 (Debian: the package fuse3) and a /dev/fuse that you may open"
        }
        _ => return Failure::new(what, error),
    };
    Failure::new(what, error).advice(advice)
}

fn plan(args: &MountArgs) -> Result<Plan, Failure> {
    let what = || format!("mount {}", args.dir.display());
    let missing = |path: &Path, error: std::io::Error| {
        Failure::new(format!("mount {}", path.display()), error).advice("it must exist")
    };
    let dir = volume::renamed(&args.dir, named::whole).map_err(|error| missing(&args.dir, error))?;
    let given = args.point.as_deref().map(|point| named::whole(point).map_err(|error| missing(point, error)));
    let given = given.transpose()?;
    let mut plan = Plan {
        point: given.unwrap_or_else(|| dir.clone()),
        dir,
        mount: MountOptions::default(),
        policy: Policy::PerSync,
        has_policy: false,
        checkpointers: None,
        data: None,
        remount: false,
    };
    let is_volume = volume::is_one(&plan.dir);
    if is_volume && Volume::engine_of(&plan.dir).is_ok_and(|engine| !engine.promises_groups()) {
        plan.policy = Policy::PerOp;
    }
    // mount(8) does not pass on `suid` and `dev`, which are its defaults. It does pass on `nosuid` and `nodev`.
    (plan.mount.suid, plan.mount.dev) = (args.helper, args.helper);
    plan.mount.source = plan.dir.to_string_lossy().into_owned();
    for option in args.options.iter().flat_map(|options| options.split(',')).filter(|option| !option.is_empty()) {
        let set = match option.strip_prefix("policy=") {
            Some(name) => parse_policy(name).map(|policy| (plan.policy, plan.has_policy) = (policy, true)),
            None if option == "remount" => {
                plan.remount = true;
                Ok(())
            }
            None if is_volume && let Some(number) = option.strip_prefix("checkpointers=") => {
                parse_checkpointers(number).map(|number| plan.checkpointers = Some(number))
            }
            None if is_volume && let Some(name) = option.strip_prefix("data=") => {
                let mode = DataMode::named(name).ok_or("data: `ordered` or `journal`");
                mode.map(|mode| plan.data = Some(mode)).map_err(str::to_owned)
            }
            None => plan.mount.set(option).map_err(|error| error.to_string()),
        };
        set.map_err(|why| Failure::new(what(), why).advice("`wholly mount --help` lists them").exit(Exit::USAGE))?;
    }
    if is_volume && args.point.is_none() {
        return Err(Failure::new(what(), "a volume needs a directory to be mounted on").exit(Exit::USAGE));
    }
    plan.mount.owns_content = is_volume;
    plan.mount.syncs_on_close = plan.policy == Policy::PerSync;
    plan.mount.whole_writes = plan.policy == Policy::PerOp && plan.has_policy;
    Ok(plan)
}

/// Threads that write back in the background, as a mount option gives them.
fn parse_checkpointers(number: &str) -> Result<usize, String> {
    let number = number.parse().ok().filter(|number| *number <= 64);
    number.ok_or_else(|| "checkpointers: a number from 0 to 64".into())
}

/// A policy as a mount option gives it.
fn parse_policy(name: &str) -> Result<Policy, String> {
    match name.split_once('=') {
        None if name == "per-op" => Ok(Policy::PerOp),
        None if name == "per-sync" => Ok(Policy::PerSync),
        None if name == "shared" => Ok(Policy::Shared { interval: Duration::from_secs(5) }),
        Some(("shared", seconds)) => {
            let interval = seconds.parse().ok().and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
            interval
                .map(|interval| Policy::Shared { interval })
                .ok_or_else(|| format!("{seconds:?} is not a number of seconds"))
        }
        _ => Err(format!("policy {name:?}: policies are per-op, per-sync and shared[=SECONDS]")),
    }
}

/// Starts a process that serves the mount, and waits until programs can use it.
fn start(args: &MountArgs, plan: &Plan, ui: &Ui) -> Result<Exit, Failure> {
    let me = std::env::current_exe().map_err(|error| failed(plan, error))?;
    let options = args.options.iter().flat_map(|options| ["-o", options]);
    let mut child = Command::new(me)
        .args(["mount", "--background"])
        .args(ui.json.then_some("--json"))
        .args(args.helper.then_some("--helper"))
        .args(options)
        .arg("--")
        .args([&plan.dir, &plan.point])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(plan, error))?;
    let mut said = String::new();
    let out = child.stdout.take().expect("it was piped");
    BufReader::new(out).read_line(&mut said).map_err(|error| failed(plan, error))?;
    if said.trim_end() == READY {
        return Ok(Exit::DONE);
    }
    // It has said itself why.
    if ui.json && !said.is_empty() {
        print(said.as_bytes())?;
        ui.has_printed();
    }
    let code = child.wait().map_err(|error| failed(plan, error))?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(Exit::FAILED, Exit::of_child))
}

/// Mounts the store and answers the kernel until the mount is gone. Then everything is taken home.
fn serve(plan: &Plan, ui: &Ui, ready: impl FnOnce() -> Result<(), Failure>) -> Result<Exit, Failure> {
    let _ = rustix::process::setsid();
    let of_store = |error| Failure::of_store("mount", &plan.dir, error);
    limits::raise_open_files();
    rustix::thread::set_name(opening::SERVER).map_err(|errno| failed(plan, errno.into()))?;
    // What is opened is what is mounted, and where it was said.
    let find = |name| Named::find(name).map_err(|error| failed(plan, error));
    let point = find(&plan.point)?;
    if volume::is_one(&plan.dir) {
        let options = VolumeOptions { checkpointers: plan.checkpointers, data: plan.data, ..VolumeOptions::default() };
        let volume = volume::open_as("mount", &plan.dir, &options)?;
        let mount = Mount::new(by_policy(plan, &volume)?, &point.itself(), &plan.mount);
        let mount = mount.map_err(|error| failed(plan, error))?;
        drop(point);
        let served = answer(plan, mount, ready);
        let (pending, watched) = (volume.stat().pending_blocks, volume.clone());
        let so_far = move || {
            let left = watched.stat().pending_blocks;
            format!("{} of {} blocks written back", pending.saturating_sub(left), pending)
        };
        let closed = ui.telling("unmounting", so_far, || volume.close());
        let closed = closed.map_err(|error| volume::failure("mount", &plan.dir, error));
        return served.and(closed.map(|()| Exit::DONE));
    }
    let dir = find(&plan.dir)?;
    let options = Options { policy: plan.policy, ..Options::default() };
    let store = opening::open("mount", &plan.dir, &dir.itself(), options)?;
    let is_temporary = store.is_temporary().map_err(of_store)?;
    let view = Arc::new(StoreVfs::new(&store));
    view.keep_ctimes();
    let mount = Mount::new(view, &point.itself(), &plan.mount).map_err(|error| failed(plan, error))?;
    drop((dir, point));
    let unmounter = mount.unmounter();
    if is_temporary {
        // Whoever mounts it does not want it to go with the next command that runs in it.
        store.keep().map_err(|error| {
            let _ = unmounter.detach();
            of_store(error)
        })?;
    }
    let served = answer(plan, mount, ready);
    // Where it keeps its name it is waited for less long.
    let _ = rustix::thread::set_name(opening::ENDING);
    let closed = recover::write_back(&store, ui).and_then(|()| store.close()).map_err(of_store);
    served?;
    closed.map(|()| Exit::DONE)
}

/// A volume, with the policy that was asked for.
fn by_policy(plan: &Plan, volume: &Volume) -> Result<Arc<dyn Groups>, Failure> {
    let refused = |why: String| Failure::new(format!("mount {}", plan.dir.display()), why).exit(Exit::USAGE);
    let engine = volume.stat().engine;
    if plan.has_policy && engine == EngineKind::None.name() {
        return Err(refused(format!("the volume's engine {engine:?} has no policies")));
    }
    if plan.policy == Policy::PerOp {
        return Ok(Arc::new(VolumeVfs::new(volume)));
    }
    match PolicyVfs::new(volume, plan.policy) {
        Ok(vfs) => Ok(Arc::new(vfs)),
        Err(Errno::OPNOTSUPP) => Err(refused(format!("the volume's engine {engine:?} has only the policy per-op"))),
        Err(errno) => Err(failed(plan, errno.into())),
    }
}

/// Answers the kernel until the mount is gone, or cannot begin.
fn answer(plan: &Plan, mount: Mount, ready: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let unmounter = mount.unmounter();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| failed(plan, error))?;
    let handle = signals.handle();
    // Nothing of the place from where it was started stays in use.
    std::env::set_current_dir("/").map_err(|error| failed(plan, error))?;
    ready()?;
    let served = std::thread::scope(|scope| {
        scope.spawn(|| {
            for (n, signal) in signals.forever().enumerate() {
                end(plan, &unmounter, n, signal);
            }
        });
        let served = mount.serve();
        handle.close();
        served
    });
    served.map_err(|error| failed(plan, error))
}

/// Somebody wants the mount to end. At the first signal it is taken away, at once or, where programs use it, once they
/// do not; at the second the process ends as by that signal: what is committed the next open recovers.
fn end(plan: &Plan, unmounter: &Unmounter, n: usize, signal: i32) {
    if n > 0 {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return;
    }
    if let Err(error) = unmounter.unmount() {
        eprintln!("wholly: mount {}: {error}; it ends when no program uses it", shown(&plan.point));
        let _ = unmounter.detach();
    }
}
