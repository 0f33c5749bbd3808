//! `make demo`: updates of several files, interrupted by crashes, wholly there or not at all.
//!
//! | module | holds |
//! |---|---|
//! | `scene` | a copy of a real tree, a directory that vanishes, Ctrl-C |
//! | `work` | the groups of the program, and what every file must hold after each |
//! | `kills` | the program on real files, killed at random |
//! | `power` | the program on simulated media, power failures at random |
//! | `clock` | the time of a group, beside what people use today |
//! | `command` | first of all: `wholly run`, a whole command as one group, killed in the middle |
//! | `volume` | then: tar on a volume, killed, and the power fails |

mod clock;
mod command;
mod kills;
mod power;
mod scene;
mod volume;
mod work;

use clock::{Times, WAYS};
use command::Stage;
use indicatif::{ProgressBar, ProgressStyle};
use kills::Killed;
use power::Failures;
use scene::{Scratch, Stop, Tree};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use wholly_bench::{Error, Result};
use wholly_media::FileSystem;
use wholly_sim::SimConfig;

const USAGE: &str = "\
usage: make demo [ARGS=\"OPTIONS\"]

  --seconds N   about how long it takes (default 40)
  --tree DIR    the tree that is copied (default: the first of some that every system has)
  --disk DIR    where the copy on a disk is made (default /var/tmp)
  --memory DIR  where the copy in memory is made (default /dev/shm)
  --wholly FILE the command `wholly`, for the act that it plays in (`make demo` names it)
  --seed N      what the groups, the kills and the power failures are drawn by (default 1)
";

/// What of the time the first act takes.
const COMMAND_SHARE: f64 = 0.15;
/// What the act on a volume takes.
const VOLUME_SHARE: f64 = 0.1;

struct Options {
    seconds: f64,
    tree: Option<PathBuf>,
    disk: PathBuf,
    memory: PathBuf,
    wholly: Option<PathBuf>,
    seed: u64,
}

/// One place, and all that happened there.
struct Place {
    name: String,
    dir: PathBuf,
    memory: bool,
    killed: Killed,
    /// Kills of the same program without Wholly, and how many left an update half-done.
    plain: (u64, u64),
    failures: Failures,
    times: Times,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((verb, rest)) if verb == "child" => kills::child(false, rest),
        Some((verb, rest)) if verb == "child-plain" => kills::child(true, rest),
        Some((help, _)) if help == "--help" => {
            print!("{USAGE}");
            Ok(())
        }
        _ => parse(&arguments).and_then(|options| demo(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        seconds: 40.0,
        tree: None,
        disk: "/var/tmp".into(),
        memory: "/dev/shm".into(),
        wholly: None,
        seed: 1,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument}: what is that?\n{USAGE}"))?;
        match argument.as_str() {
            "--seconds" => options.seconds = value.parse()?,
            "--tree" => options.tree = Some(value.into()),
            "--disk" => options.disk = value.into(),
            "--memory" => options.memory = value.into(),
            "--wholly" => {
                options.wholly = Some(Path::new(value).canonicalize().map_err(|error| format!("{value}: {error}"))?)
            }
            "--seed" => options.seed = value.parse()?,
            _ => return Err(format!("{argument}: what is that?\n{USAGE}").into()),
        }
    }
    Ok(options)
}

fn demo(options: &Options) -> Result<()> {
    let stop = Stop::watch()?;
    let tree = Tree::find(options.tree.as_deref())?;
    whole_command(options, &tree, &stop)?;
    on_a_volume(options, &tree, &stop)?;
    println!(
        "A program updates 3 to 6 files at once, again and again, in a copy of {}\n\
         ({} files, {:.1} MiB). It must never be seen half-done: each update is there wholly or not at all.\n",
        tree.from.display(),
        tree.files.0.len(),
        tree.bytes() as f64 / f64::from(1 << 20)
    );
    let mut scratches = Vec::new();
    let mut places = Vec::new();
    for (parent, memory) in [(&options.disk, false), (&options.memory, true)] {
        match place(parent, memory) {
            Ok((scratch, place)) => {
                scratches.push(scratch);
                places.push(place);
            }
            Err(why) => println!("Left out: {why}"),
        }
    }
    if places.is_empty() {
        return Err("no place to work in; name some with --disk and --memory".into());
    }
    // Shares of the time: kills, power failures, clocks.
    let seconds = options.seconds * (1.0 - COMMAND_SHARE - VOLUME_SHARE) / places.len() as f64;
    let share = |part: f64| Duration::from_secs_f64(seconds * part);
    for place in &mut places {
        let name = place.name.clone();
        place.killed = phase(&format!("killing it, {name}"), share(0.3), |bar| {
            let dir = place.dir.join("kills");
            std::fs::create_dir(&dir)?;
            kills::run(&tree, &dir, options.seed, share(0.3), bar, &stop)
        })?;
        place.plain = phase(&format!("killing it without Wholly, {name}"), share(0.1), |bar| {
            kills::run_plainly(&tree, &place.dir.join("kills"), options.seed, share(0.1), bar, &stop)
        })?;
        let config = if place.memory { SimConfig::pmem() } else { SimConfig::disk() };
        let media = if place.memory { "simulated memory" } else { "a simulated disk" };
        place.failures = phase(&format!("power failures, {media}"), share(0.3), |bar| {
            power::run(&tree, config, options.seed, share(0.3), bar, &stop)
        })?;
        place.times = phase(&format!("the clock, {name}"), share(0.3), |bar| {
            let dir = place.dir.join("clock");
            std::fs::create_dir(&dir)?;
            clock::run(&tree, &dir, options.seed, share(0.3), bar, &stop)
        })?;
    }
    report(&places);
    Ok(())
}

/// The first act: a command as one group, where that can be.
fn whole_command(options: &Options, tree: &Tree, stop: &Stop) -> Result<()> {
    let duration = Duration::from_secs_f64(options.seconds * COMMAND_SHARE);
    let parent = if options.disk.is_dir() { &options.disk } else { &options.memory };
    let scratch = Scratch::new(parent)?;
    match Stage::new(options.wholly.as_deref(), scratch.dir("command")?, stop) {
        Ok(stage) => {
            let told = phase("killing a command", duration, |bar| stage.play(tree, options.seed, duration, bar))?;
            told.report(tree);
        }
        Err(why) => println!("Left out: a command as one group: {why}\n"),
    }
    Ok(())
}

/// The second act, in memory, where volumes can be mounted.
fn on_a_volume(options: &Options, tree: &Tree, stop: &Stop) -> Result<()> {
    let duration = Duration::from_secs_f64(options.seconds * VOLUME_SHARE);
    let scratch = Scratch::new(&options.memory);
    let stage = match &scratch {
        Ok(scratch) => volume::Stage::new(options.wholly.as_deref(), scratch.dir("volume")?, stop),
        Err(why) => Err(why.to_string().into()),
    };
    match stage {
        Ok(stage) => {
            let told = phase("crashing a volume", duration, |bar| stage.play(tree, options.seed, duration, bar))?;
            told.report(tree);
        }
        Err(why) => println!("Left out: a volume: {why}\n"),
    }
    Ok(())
}

/// Runs one phase behind a bar.
fn phase<T>(name: &str, duration: Duration, run: impl FnOnce(&ProgressBar) -> Result<T>) -> Result<T> {
    let bar = if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{msg:44} [{bar:30.green}] {percent:>3} %")?.progress_chars("=> ");
        ProgressBar::new(duration.as_millis() as u64).with_style(style).with_message(name.to_owned())
    } else {
        ProgressBar::hidden()
    };
    let done = run(&bar);
    bar.finish_and_clear();
    done.map_err(|error| Error::from(format!("{name}: {error}")))
}

fn place(parent: &Path, memory: bool) -> Result<(Scratch, Place)> {
    let file_system = std::fs::File::open(parent)
        .map_err(Error::from)
        .and_then(|dir| Ok(FileSystem::of(dir)?))
        .map_err(|error| format!("{}: {error}", parent.display()))?;
    if memory != file_system.is_memory() {
        let (option, wanted) = if memory { ("--memory", "a tmpfs") } else { ("--disk", "a file system on a disk") };
        return Err(format!("{} is on {file_system}; name {wanted} with {option}", parent.display()).into());
    }
    let scratch = Scratch::new(parent)?;
    let name = if memory { format!("pmem, emulated: {file_system}") } else { format!("disk: {file_system}") };
    let dir = scratch.dir("demo")?;
    let (killed, failures) = (Killed::default(), Failures::default());
    Ok((scratch, Place { name, dir, memory, killed, plain: (0, 0), failures, times: [None; WAYS.len()] }))
}

fn report(places: &[Place]) {
    let bold = |text: &str| match std::io::stdout().is_terminal() {
        true => format!("\x1b[1m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let line = |name: &str, cells: Vec<String>, last: &str| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>23}")).collect();
        println!("  {name:<28}{cells}  {last}");
    };
    let each = |cell: fn(&Place) -> String| places.iter().map(cell).collect::<Vec<_>>();

    println!("{}", bold("Crashes. After each, all files were compared with what had been committed: no difference."));
    line("", each(|p| p.name.clone()), "");
    line("groups committed", each(|p| p.killed.groups.to_string()), "");
    line("killed (SIGKILL)", each(|p| p.killed.kills.to_string()), "the real program, on real files");
    line("  update was there", each(|p| p.killed.there.to_string()), "the one in flight; else wholly absent");
    line("power failures", each(|p| p.failures.failures.to_string()), "simulated: the same program, recorded");
    line("  update was there", each(|p| p.failures.there.to_string()), "");
    line(
        "without Wholly: half-done",
        each(|p| format!("{} of {} kills", p.plain.1, p.plain.0)),
        "the same program with write and fsync",
    );
    line("slowest recovery", each(|p| format!("{:.1} ms", p.killed.slowest_recovery.as_secs_f64() * 1e3)), "");

    let title = format!(
        "\nTime of one update of {} files, {} bytes in each, durable when it returns.",
        clock::FILES,
        clock::BYTES
    );
    println!("{}", bold(&title));
    line("", each(|p| p.name.clone()), "what survives a crash");
    for (i, (name, gives)) in WAYS.iter().enumerate() {
        let cell = |place: &Place| match (place.times[i], place.times[0]) {
            (Some(ns), Some(ours)) => format!("{}  {:>5.1}x", time(ns), ns / ours),
            _ => "not built".into(),
        };
        line(name, places.iter().map(cell).collect(), gives);
    }
    println!(
        "\nPower failures are simulated: the program ran over a medium that records each write and flush; at a random point all\n\
         that was flushed is kept, and a random part of the rest. Persistent memory (pmem) is emulated by ordinary memory, and\n\
         so are its figures. Measured in turns on this machine, now; the copying of data from the log to the files is in the clock."
    );
    if places.iter().any(|p| p.times[1].is_none()) {
        println!("SQLite's library was not there when this was built; `scripts/setup` installs it.");
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e4 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}
