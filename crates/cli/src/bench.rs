//! `wholly bench`: the benchmarks of the crate `wholly-bench`, alone or, by the program `wholly-bench-peers`, beside
//! what people use today.

use crate::args::BenchArgs;
use crate::error::{Exit, Failure};
use crate::output::{Ui, print};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use wholly_bench::{cli, mounts, place, systems};

const PEERS: &str = "wholly-bench-peers";

/// Runs a suite.
pub fn run(args: BenchArgs, ui: &Ui) -> Result<Exit, Failure> {
    let mut arguments = args.arguments;
    let asked_for = |arguments: &[String], flag: &str| arguments.iter().any(|argument| argument == flag);
    if arguments.first().is_some_and(|suite| suite == "help") || asked_for(&arguments, "--help") {
        print(cli::USAGE.replace("usage: bench", "usage: wholly bench [--peers]").as_bytes())?;
        return Ok(Exit::DONE);
    }
    if let [serve, what, dir, point] = &arguments[..]
        && serve == mounts::SERVE
    {
        let (dir, point) = (Path::new(dir), Path::new(point));
        return mounts::serve(what, dir, point).map(|()| Exit::DONE).map_err(|error| Failure::new("bench", error));
    }
    let peers = args.peers || asked_for(&arguments, "--peers");
    arguments.retain(|argument| argument != "--peers");
    if ui.json && !asked_for(&arguments, "--json") {
        arguments.push("--json".into());
    }
    let unclear =
        |error| Failure::new("bench", error).advice("`wholly bench help` lists what there is").exit(Exit::USAGE);
    cli::Options::parse(arguments.iter().cloned()).and_then(|options| options.plan()).map_err(unclear)?;
    if !asked_for(&arguments, "--program") {
        let program = std::env::current_exe().map_err(|error| Failure::new("bench", error))?;
        arguments.extend(["--program".into(), program.to_string_lossy().into_owned()]);
    }
    if peers {
        return Err(run_peers(&arguments));
    }
    let failed = |error| Failure::new("bench", error);
    // Mounts die with the process in a namespace of its own; that needs root, as the mounts themselves do.
    place::isolate(&[]).map_err(failed)?;
    cli::main(arguments, systems::all()).map_err(failed)?;
    Ok(Exit::DONE)
}

/// Becomes the program that links the peers. Returns only if that fails.
fn run_peers(arguments: &[String]) -> Failure {
    let beside = std::env::current_exe().map(|program| program.with_file_name(PEERS));
    let program = match beside {
        Ok(program) => program,
        Err(error) => return Failure::new("bench --peers", error),
    };
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let directory = program.parent().unwrap_or(&program).display();
        return Failure::new("bench --peers", format!("the program {PEERS} is not in {directory}"))
            .advice(format!("build it with `cargo build --release -p {PEERS}`, or leave --peers out"))
            .exit(Exit::NOT_THERE);
    }
    Failure::new(format!("run {}", program.display()), error).exit(Exit::CANNOT_RUN)
}
