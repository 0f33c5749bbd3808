//! The benchmarks with the peers in the same run, in turns: `cargo run --release -p wholly-bench-peers -- groups`.
//!
//! Arguments are those of `wholly bench`. `--peers` is accepted and changes nothing: `wholly bench --peers` runs this
//! program.

use std::process::ExitCode;
use wholly_bench::{Result, cli, place, systems};

fn run() -> Result<()> {
    place::isolate(wholly_bench_peers::ENVIRONMENT)?;
    for peer in wholly_bench_peers::MISSING {
        eprintln!("without {peer}: its library was not there when this was built (scripts/setup installs it)");
    }
    let mut all = systems::all();
    all.extend(wholly_bench_peers::all());
    cli::main(std::env::args().skip(1).filter(|argument| argument != "--peers"), all)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e}");
            ExitCode::FAILURE
        }
    }
}
