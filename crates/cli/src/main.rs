//! The command `wholly`: one module for each verb.
//!
//! | module | holds |
//! |---|---|
//! | `args` | the verbs, their arguments and what `--help` says |
//! | `error` | what went wrong, for people, and the exit codes |
//! | `output` | results as text or JSON, sizes, progress |
//! | `survey` | a store's log, read without owning or changing anything |
//! | `opening` | how a store is opened that others may have open still |
//! | `mounts` | what is mounted |
//! | `registry` | which stores there are |
//! | `limits` | what a process may use |
//! | `html` | a replayed crash as a page |
//! | `flash` | the verbs of flash disks: `flash init`, `stat`, `check`, `salvage` |
//! | `nvme` | the verbs of controllers: `nvme probe`, `unfinished`, `tx` |
//! | `volume` | the verbs of volumes: `mkfs`, `tune`, `fsck`, `import`, `export` |
//! | `init`, `stat`, `dump`, `recover`, ... | the verb of that name |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod apply;
mod args;
mod bench;
mod check;
mod crash;
mod deinit;
mod diff;
mod discard;
mod dump;
mod error;
mod flash;
mod init;
mod limits;
mod list;
mod log;
mod mount;
mod mounted;
mod mounts;
mod named;
mod new_file;
mod nvme;
mod opening;
mod output;
mod papers;
mod parts;
mod progress;
mod recover;
mod registry;
mod run;
mod salvage;
mod stat;
mod survey;
mod undo;
mod volume;

use args::{
    ApplyArgs, CheckArgs, Cli, DeinitArgs, DiffArgs, DumpArgs, ListArgs, ParkedArgs, RecoverArgs, StatArgs, UndoArgs,
    Verb,
};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use error::{Exit, Failure};
use output::Ui;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = mount_arguments(std::env::args_os().collect());
    limits::survive_file_size();
    let parsed = Cli::command().try_get_matches_from(&arguments);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (mut cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(answer) => return unclear(&answer, &arguments).into(),
    };
    let ui = Ui::new(cli.json);
    if let Some((verb, given)) = matches.subcommand()
        && let Some(dir) = dir_of(&mut cli.verb)
        && given.value_source("dir") == Some(ValueSource::DefaultValue)
    {
        *dir = opening::nearest(verb);
    }
    let result = run(cli.verb, &ui);
    ui.finish(verb(&arguments), result).into()
}

/// The store that a verb is about. Without one it is the nearest, here or above; what makes a store is about this
/// directory.
fn dir_of(verb: &mut Verb) -> Option<&mut PathBuf> {
    match verb {
        Verb::Stat(StatArgs { dir, .. })
        | Verb::Dump(DumpArgs { dir, .. })
        | Verb::Recover(RecoverArgs { dir, .. })
        | Verb::Check(CheckArgs { dir, .. })
        | Verb::Deinit(DeinitArgs { dir, .. })
        | Verb::List(ListArgs { dir, .. })
        | Verb::Log(ListArgs { dir, .. })
        | Verb::Undo(UndoArgs { dir, .. })
        | Verb::Diff(DiffArgs { dir, .. })
        | Verb::Apply(ApplyArgs { dir, .. })
        | Verb::Discard(ParkedArgs { dir, .. }) => Some(dir),
        _ => None,
    }
}

/// The verb, as it was typed.
fn verb(arguments: &[OsString]) -> Option<&str> {
    arguments.iter().skip(1).filter_map(|word| word.to_str()).find(|word| !word.starts_with('-'))
}

/// The command line makes no sense, or asks for help.
fn unclear(answer: &clap::Error, arguments: &[OsString]) -> Exit {
    // What was asked for (`--help`) goes to stdout, what was mistyped to stderr. A closed pipe is no failure.
    let _ = answer.print();
    if !answer.use_stderr() {
        return Exit::DONE;
    }
    let verb = verb(arguments);
    let exit = if verb == Some("run") { Exit::NOT_RUN } else { Exit::USAGE };
    if arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
        let why = answer.to_string();
        let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let _ = Ui::print_failure(verb, &Failure::new("usage", why).exit(exit));
    }
    exit
}

/// Under the name `mount.wholly`, `mkfs.wholly` or `fsck.wholly` it is that subcommand, as mount(8), mkfs(8) and
/// fsck(8) call it. To remount, mount(8) calls it `mount.fuse.wholly`, after the type that the kernel shows:
/// `mount.wholly DIR POINT [-sfnv] [-N NS] [-o OPTIONS] [-t TYPE]`.
fn mount_arguments(mut all: Vec<OsString>) -> Vec<OsString> {
    let name = all.first().and_then(|name| Path::new(name).file_name()).and_then(|name| name.to_str());
    let verb: &[&str] = match name {
        Some("mount.wholly" | "mount.fuse.wholly") => &["mount", "--helper"],
        Some("mkfs.wholly") => &["mkfs"],
        Some("fsck.wholly") => &["fsck"],
        _ => &[],
    };
    all.splice(1..1, verb.iter().map(OsString::from));
    if crate::verb(&all) == Some("fsck") {
        // The number may be left out.
        let is_number = |word: Option<&OsString>| {
            word.and_then(|word| word.to_str()).is_some_and(|word| word.parse::<u32>().is_ok())
        };
        for at in (0..all.len()).filter(|at| all[*at] == "-C").collect::<Vec<_>>() {
            if !is_number(all.get(at + 1)) {
                all[at] = "-C0".into();
            }
        }
    }
    all
}

fn run(verb: Verb, ui: &Ui) -> Result<Exit, Failure> {
    if matches!(verb, Verb::Run(_) | Verb::Mount(_)) {
        limits::register_fences();
    }
    match verb {
        Verb::Init(args) => init::run(&args, ui),
        Verb::Stat(args) if args.udev => volume::udev(&args.dir),
        Verb::Stat(args) => match mounted::stat(&args.dir, ui) {
            Some(shown) => shown,
            None if volume::is_one(&args.dir) => volume::stat(&args.dir, ui),
            None => stat::run(&args, ui),
        },
        Verb::Dump(args) if volume::is_one(&args.dir) => volume::dump(&args, ui),
        Verb::Dump(args) => dump::run(&args, ui),
        Verb::Recover(args) => recover::run(&args, ui),
        Verb::Check(args) => check::run(&args, ui),
        Verb::Salvage(args) => salvage::run(&args, ui),
        Verb::Deinit(args) => deinit::run(&args, ui),
        Verb::List(args) => list::run(&args, ui),
        Verb::Log(args) => log::run(&args, ui),
        Verb::Undo(args) => undo::run(&args, ui),
        Verb::Diff(args) => diff::run(&args, ui),
        Verb::Apply(args) => apply::run(&args, ui),
        Verb::Discard(args) => discard::run(&args, ui),
        Verb::Run(args) => run::run(&args, ui),
        Verb::Hold(args) => run::hold(&args),
        Verb::Exec(args) => run::exec(&args),
        Verb::Mount(args) => mount::run(&args, ui),
        Verb::Mkfs(args) => volume::mkfs(&args, ui),
        Verb::Tune(args) => volume::tune(&args, ui),
        Verb::Fsck(args) => volume::fsck(&args, ui),
        Verb::Import(args) => volume::import(&args, ui),
        Verb::Export(args) => volume::export(&args, ui),
        Verb::Flash(args) => flash::run(&args, ui),
        Verb::Nvme(args) => nvme::run(&args, ui),
        Verb::Crash(args) => crash::run(&args, ui),
        Verb::Bench(args) => bench::run(args, ui),
        Verb::Completions(args) => papers::completions(&args),
        Verb::Candidates(args) => papers::candidates(&args),
        Verb::Man(args) => papers::man(&args),
    }
}
