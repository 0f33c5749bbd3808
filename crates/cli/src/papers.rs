//! `wholly completions` and `wholly man`: what packagers ask for.

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::error::{Exit, Failure};
use crate::output::print;
use clap::CommandFactory;

/// Prints the completions for a shell.
pub fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "wholly", &mut script);
    print(&script)?;
    Ok(Exit::DONE)
}

/// Writes `wholly.1` and a page for each verb.
pub fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let what = || format!("man {}", args.dir.display());
    clap_mangen::generate_to(Cli::command(), &args.dir)
        .map_err(|error| Failure::new(what(), error).advice("the directory must exist"))?;
    Ok(Exit::DONE)
}
