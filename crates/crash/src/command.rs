//! The command `wholly crash`.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::explore::{Job, Limits, Outcome, explore_all};
use crate::faults::{FaultOutcome, faults, lost_flushes};
use crate::setting::{ALL, Setting};
use crate::workload::Workload;
use crate::{catalogue, coverage, html, mutants, replay};

/// What `wholly crash --help` prints.
pub const HELP: &str = "\
Crashes a store at every store, fence and sync of many workloads, recovers every state that may be left, and judges it.

    wholly crash [OPTIONS]                  all workloads in all worlds
    wholly crash --replay STATE             rebuild one state and show what led to it
    wholly crash --html FILE [--replay STATE]   draw it; without a state, a commit that nothing befalls

    --workload NAME[,NAME]   only these; random-17 is drawn by seed, random-17..40 are many
    --world NAME[,NAME]      only these; pmem@lane.commit-fence=drop-order is one with something broken
    --list                   name workloads and worlds
    --limits hunt|quick|thorough   how many states of a point (thorough)
    --mutants                break each site of the code in turn: something must notice
    --faults                 rot, read errors, misdirected writes, lost flushes

Exit codes: 0 nothing is wrong, 1 something is, 2 the call made no sense.
";

#[derive(Default)]
struct Call {
    workloads: Vec<Workload>,
    settings: Vec<Setting>,
    limits: Option<Limits>,
    replay: Option<String>,
    html: Option<String>,
    list: bool,
    mutants: bool,
    faults: bool,
    help: bool,
}

/// Does what the arguments ask for.
pub fn command(arguments: &[String], out: &mut dyn Write) -> ExitCode {
    let call = match parse(arguments) {
        Ok(call) => call,
        Err(why) => {
            eprintln!("wholly crash: {why}; see wholly crash --help");
            return ExitCode::from(2);
        }
    };
    match run(&call, out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("wholly crash: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Call, String> {
    let mut call = Call::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} takes a value"));
        match argument.as_str() {
            "--help" | "-h" => call.help = true,
            "--list" => call.list = true,
            "--mutants" => call.mutants = true,
            "--faults" => call.faults = true,
            "--replay" => call.replay = Some(value()?.clone()),
            "--html" => call.html = Some(value()?.clone()),
            "--limits" => {
                call.limits = Some(match value()?.as_str() {
                    "hunt" => Limits::hunt(),
                    "quick" => Limits::quick(),
                    "thorough" => Limits::thorough(),
                    other => return Err(format!("no limits are called {other}")),
                });
            }
            "--workload" => {
                for name in value()?.split(',') {
                    call.workloads.extend(workloads(name)?);
                }
            }
            "--world" => {
                for name in value()?.split(',') {
                    call.settings.push(Setting::find(name).ok_or(format!("no world is called {name}"))?);
                }
            }
            other => return Err(format!("no option is called {other}")),
        }
    }
    if call.workloads.is_empty() {
        call.workloads = catalogue::all();
        call.workloads.extend((0..40).chain(1000..1030).map(catalogue::random));
    }
    if call.settings.is_empty() {
        let names: Vec<&str> = if call.mutants || call.faults {
            vec!["pmem", "disk"]
        } else {
            ALL.iter().map(|(name, _)| *name).collect()
        };
        call.settings = names.into_iter().map(Setting::named).collect();
    }
    Ok(call)
}

fn workloads(name: &str) -> Result<Vec<Workload>, String> {
    let unknown = || format!("no workload is called {name}");
    if let Some((from, to)) = name.strip_prefix("random-").and_then(|range| range.split_once("..")) {
        let (from, to): (u64, u64) = (from.parse().map_err(|_| unknown())?, to.parse().map_err(|_| unknown())?);
        return Ok((from..to).map(catalogue::random).collect());
    }
    catalogue::find(name).map(|workload| vec![workload]).ok_or_else(unknown)
}

fn run(call: &Call, out: &mut dyn Write) -> io::Result<bool> {
    if call.help {
        write!(out, "{HELP}")?;
        return Ok(true);
    }
    if call.list {
        for workload in &call.workloads {
            writeln!(out, "{:<18} {}", workload.name, workload.about)?;
        }
        for (name, about) in ALL {
            writeln!(out, "{name:<18} {about}")?;
        }
        return Ok(true);
    }
    if call.replay.is_some() || call.html.is_some() {
        return show(call, out);
    }
    if call.mutants {
        return mutants_of(call, out);
    }
    if call.faults {
        return faults_of(call, out);
    }
    let limits = call.limits.clone().unwrap_or_else(Limits::thorough);
    let mut all = Outcome::default();
    for setting in &call.settings {
        let jobs: Vec<Job> =
            call.workloads.iter().map(|w| Job { workload: w.clone(), setting: setting.clone() }).collect();
        let outcome = explore_all(&jobs, &limits);
        writeln!(out, "{}: {outcome}", setting.name)?;
        for violation in &outcome.violations {
            writeln!(out, "  {violation}")?;
        }
        out.flush()?;
        all.merge(outcome);
    }
    writeln!(out, "\nall: {all}\n\n{}", coverage::table(&all))?;
    Ok(all.violations.is_empty())
}

/// A commit that nothing befalls: the end of the shortest workload.
fn healthy() -> String {
    let (workload, setting) = (catalogue::find("small-commit").expect("it exists"), Setting::named("pmem"));
    let run = crate::run::run(&workload, &setting);
    format!("small-commit:pmem:p{}:all", run.trace.events.len())
}

fn show(call: &Call, out: &mut dyn Write) -> io::Result<bool> {
    let name = call.replay.clone().unwrap_or_else(healthy);
    let replayed = replay(&name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    match &call.html {
        Some(file) => {
            std::fs::write(file, html::page(&replayed))?;
            writeln!(out, "{file}")?;
        }
        None => writeln!(out, "{replayed}")?,
    }
    Ok(replayed.violation.is_none())
}

fn mutants_of(call: &Call, out: &mut dyn Write) -> io::Result<bool> {
    let limits = call.limits.clone().unwrap_or_else(Limits::hunt);
    let (mut caught, mut equivalent, mut survivors) = (0, 0, 0);
    for setting in &call.settings {
        let mut workloads: Vec<Workload> = call.workloads.clone();
        mutants::cheap_first(&mut workloads, setting);
        for mutation in mutants::mutations(&workloads, setting) {
            let mutant = mutants::hunt(mutation, &workloads, setting, &limits);
            writeln!(out, "{mutant}")?;
            out.flush()?;
            caught += u64::from(mutant.caught.is_some());
            equivalent += u64::from(mutant.caught.is_none() && mutant.proof.is_some());
            survivors += u64::from(mutant.is_survivor());
        }
    }
    writeln!(out, "{caught} mutants caught, {equivalent} equivalent, {survivors} survive")?;
    Ok(survivors == 0)
}

fn faults_of(call: &Call, out: &mut dyn Write) -> io::Result<bool> {
    let mut all = FaultOutcome::default();
    for setting in &call.settings {
        for workload in &call.workloads {
            let mut outcome = faults(workload, setting, 200);
            outcome.merge(lost_flushes(workload, setting));
            for violation in &outcome.violations {
                writeln!(out, "  {}: {}", violation.replay, violation.what)?;
            }
            all.merge(outcome);
        }
        writeln!(out, "{}: {all}", setting.name)?;
    }
    Ok(all.violations.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(arguments: &str) -> (String, bool) {
        let call = parse(&arguments.split_whitespace().map(String::from).collect::<Vec<_>>()).expect("it makes sense");
        let mut out = Vec::new();
        let fine = run(&call, &mut out).expect("it can be written");
        (String::from_utf8(out).expect("text"), fine)
    }

    #[test]
    fn a_state_is_shown_and_what_makes_no_sense_is_refused() {
        let (text, fine) = called("--replay small-commit:pmem:p20:none");
        assert!(fine && text.contains("recovered as it should"), "{text}");
        let (text, fine) = called("--workload small-commit --world disk --limits hunt");
        assert!(fine && text.contains("0 violations"), "{text}");
        assert!(called("--list").0.contains("multi-part"));
        for wrong in ["--workload nonsense", "--world disk@x=y", "--limits", "--nonsense"] {
            assert!(parse(&wrong.split_whitespace().map(String::from).collect::<Vec<_>>()).is_err(), "{wrong}");
        }
    }
}
