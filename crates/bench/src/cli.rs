//! Arguments, for every program that carries the benchmarks.

use crate::harness::{self, Plan};
use crate::place::{LoopFs, Medium};
use crate::system::System;
use crate::{
    Error, Report, Result, ccnvme, commands, fcfs, instructions, journal, minl2r, mounts, mqfs, opening, suites, tasks,
    volume,
};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;
use wholly_media::pmem::Emulation;

/// What `--help` says.
pub const USAGE: &str = "\
usage: bench SUITE [OPTIONS]

Suites: groups, open, store, run, mount, volume, fcfs, minl2r, ccnvme, journal, mqfs

  --json             print the raw rows as one JSON object
  --case NAME        only this case; can be repeated
  --system NAME      only this system and the base; can be repeated
  --medium NAME      only this medium: pmem, ext4-loop, xfs-loop; can be repeated
  --pmem DIR         use DIR as persistent memory: a DAX file system, or /dev/shm
  --disk DIR         use the file system in DIR as a disk, in place of the loop devices
  --scratch DIR      where the files below the loop devices are made (default /var/tmp)
  --emulate WHAT     slow persistent memory down: none (default), bandwidth (4 GB/s for all threads together),
                     paper (150 ns after each line, 4 GB/s; default of fcfs), or paper:NS for another delay; peers
                     that cannot be slowed are skipped
  --turns N          turns of each system (default 15; run 7; volume, fcfs and minl2r 5)
  --turn-ms N        aimed duration of a turn (default 200)
  --files N          at most N files in a case: less memory, smaller working set (fcfs: default 50)
  --seed N           seed of the random sequence (default 1)
  --base NAME        the system that ratios refer to (default raw; fcfs and minl2r: none); cases of the suites store, run, mount
                     and volume have their own
  --device NAME      ccnvme: model (default), qemu, or a profile of the model: p5800x, 905p, 750
  --figures DIR      fcfs, minl2r, mqfs: write the paper's figures into DIR, as CSV and SVG, and its claims beside what was measured
  --log-size BYTES   fcfs: the largest log that is recovered, with K, M or G (default 64M; the paper: 5G)
  --instructions     groups, store and fcfs, on persistent memory: how many instructions a group or a call executes, in
                     place of its time (x86-64 only); the bases, store_deferred, and volumes that write nothing back
  --addresses FILE   with --instructions: write to FILE how often the instruction at each address was executed
  --program FILE     the command `wholly` that is measured by the suites run, mount and volume (default: the one beside this program)
  --tiny             a few groups only, to see that everything works
";

/// The parsed arguments.
#[derive(Clone, Debug)]
pub struct Options {
    suite: String,
    /// Whether the raw rows are wanted.
    pub json: bool,
    cases: Vec<String>,
    systems: Vec<String>,
    media: Vec<String>,
    pmem: Option<PathBuf>,
    disk: Option<PathBuf>,
    scratch: PathBuf,
    turns: Option<usize>,
    turn_ms: Option<u64>,
    files: Option<u32>,
    seed: u64,
    base: Option<String>,
    emulation: Option<Emulation>,
    log_bytes: Option<u64>,
    figures: Option<PathBuf>,
    device: Option<String>,
    program: Option<PathBuf>,
    tiny: bool,
    wanted: instructions::Wanted,
}

impl Options {
    /// Parses arguments, the program's name not among them.
    ///
    /// # Errors
    /// A sentence for the person who typed them.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Options> {
        let mut options = Options {
            suite: String::new(),
            json: false,
            cases: Vec::new(),
            systems: Vec::new(),
            media: Vec::new(),
            pmem: None,
            disk: None,
            scratch: "/var/tmp".into(),
            turns: None,
            turn_ms: None,
            files: None,
            seed: 1,
            base: None,
            emulation: None,
            log_bytes: None,
            figures: None,
            device: None,
            program: None,
            tiny: false,
            wanted: instructions::Wanted::default(),
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| Error::from(format!("{argument} needs a value")));
            match argument.as_str() {
                "--json" => options.json = true,
                "--instructions" => options.wanted.instructions = true,
                instructions::COUNTED => options.wanted.counted = true,
                "--addresses" => options.wanted.addresses = Some(value()?.into()),
                "--tiny" => options.tiny = true,
                "--case" => options.cases.push(value()?),
                "--system" => options.systems.push(value()?),
                "--medium" => options.media.push(value()?),
                "--pmem" => options.pmem = Some(value()?.into()),
                "--disk" => options.disk = Some(value()?.into()),
                "--scratch" => options.scratch = value()?.into(),
                "--emulate" => options.emulation = Some(emulation(&value()?)?),
                "--turns" => options.turns = Some(number(&argument, &value()?)?),
                "--turn-ms" => options.turn_ms = Some(number(&argument, &value()?)?),
                "--files" => options.files = Some(number(&argument, &value()?)?),
                "--seed" => options.seed = number(&argument, &value()?)?,
                "--base" => options.base = Some(value()?),
                "--log-size" => options.log_bytes = Some(bytes(&argument, &value()?)?),
                "--figures" => options.figures = Some(value()?.into()),
                "--device" => options.device = Some(value()?),
                "--program" => options.program = Some(value()?.into()),
                suite if !suite.starts_with('-') && options.suite.is_empty() => options.suite = argument,
                _ => return Err(format!("unknown argument {argument}").into()),
            }
        }
        if suites::by_name(&options.suite).is_none() {
            return Err(format!("no suite {:?}; there are: {}", options.suite, suites::NAMES.join(", ")).into());
        }
        if options.wanted.instructions && !matches!(&*options.suite, "groups" | "store" | "fcfs") {
            return Err("--instructions is an option of the suites groups, store and fcfs".into());
        }
        if options.device.is_some() && options.suite != "ccnvme" {
            return Err("--device is an option of the suite ccnvme".into());
        }
        if options.figures.is_some() && !matches!(&*options.suite, "fcfs" | "minl2r" | "mqfs") {
            return Err("--figures is an option of the suites fcfs, minl2r and mqfs".into());
        }
        Ok(options)
    }

    /// What is to be run, for programs that choose their systems themselves.
    ///
    /// # Errors
    /// If no case or no medium is left.
    pub fn plan(&self) -> Result<Plan> {
        let chosen = |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
        let mut cases: Vec<_> = suites::by_name(&self.suite).unwrap_or_default().to_vec();
        cases.retain(|case| chosen(&self.cases, case.name));
        let of_paper = matches!(&*self.suite, "fcfs" | "minl2r");
        let files = self.files.unwrap_or(if of_paper { fcfs::FILES } else { u32::MAX });
        for case in &mut cases {
            case.files = case.files.min(files).max(case.updates as u32);
            if self.tiny {
                // Six threads have two files each.
                let few = if self.suite == "fcfs" { 12 } else { 4 };
                (case.files, case.file_bytes) = (case.files.min(few), case.file_bytes.min(1 << 20));
            }
        }
        let mut media = vec![self.pmem.clone().map_or(Medium::Tmpfs, Medium::PmemDir)];
        match &self.disk {
            Some(dir) => media.push(Medium::DiskDir(dir.clone())),
            None => media.extend([LoopFs::Ext4, LoopFs::Xfs].map(|fs| Medium::Loop(fs, self.scratch.clone()))),
        }
        media.retain(|medium| chosen(&self.media, &medium.name()) && (self.suite != "run" || !medium.is_pmem()));
        media.retain(|medium| !of_paper || medium.is_pmem());
        if matches!(self.suite.as_str(), "mount" | "volume") && self.media.is_empty() {
            // What the kernel asks of a mount is the same on every disk.
            media.retain(|medium| !matches!(medium, Medium::Loop(LoopFs::Xfs, _)));
        }
        if cases.is_empty() || media.is_empty() {
            return Err("no such case or medium".into());
        }
        let turns = match self.suite.as_str() {
            _ if self.tiny => 2,
            "run" => 7,
            "volume" | "fcfs" | "minl2r" | "journal" => 5,
            _ => 15,
        };
        Ok(Plan {
            cases,
            media,
            turns: self.turns.unwrap_or(turns).max(1),
            turn: Duration::from_millis(self.turn_ms.unwrap_or(200)),
            seed: self.seed,
            base: self.base.clone().unwrap_or_else(|| if of_paper { "none" } else { "raw" }.into()),
            emulation: self.emulation.unwrap_or(if self.suite == "fcfs" { Emulation::PAPER } else { Emulation::None }),
            log_bytes: self.log_bytes.unwrap_or(if self.tiny { 1 << 20 } else { 64 << 20 }),
            tiny: self.tiny,
        })
    }

    /// Runs the suite with those of `systems` that were asked for.
    ///
    /// # Errors
    /// The first failure of a system.
    pub fn run(&self, mut systems: Vec<Box<dyn System>>) -> Result<Report> {
        if self.suite == "ccnvme" {
            return ccnvme::run(&self.cases, &self.systems, self.device.as_deref().unwrap_or("model"));
        }
        let plan = self.plan()?;
        if !self.systems.is_empty() {
            systems.retain(|s| s.name() == plan.base || self.systems.iter().any(|name| name == s.name()));
        }
        let mut progress = Progress { quiet: self.json, shown: false };
        if self.suite == "mqfs" {
            let (mut report, figures) = (Report::new(&[]), self.figures.as_deref());
            mqfs::run(&plan, &self.systems, figures, &mut report, &mut |line| progress.show(line))?;
            return Ok(report);
        }
        if self.suite == "journal" {
            return journal::run(&plan, &self.systems, &mut |line| progress.show(line));
        }
        if self.wanted.instructions && self.suite == "store" {
            return instructions::run_calls(&plan, &mut |line| progress.show(line));
        }
        if self.wanted.instructions {
            if self.suite == "fcfs" {
                systems = fcfs::volumes(&plan, &self.systems);
            }
            return instructions::run(&plan, &mut systems, &mut |line| progress.show(line));
        }
        if self.suite == "open" {
            let mut report = harness::empty_report(&plan);
            opening::run(&plan, &self.systems, &mut report, &mut |line| progress.show(line))?;
            return Ok(report);
        }
        if self.suite == "store" {
            let mut report = harness::empty_report(&plan);
            tasks::run(&plan, &self.systems, &mut report, &mut |line| progress.show(line))?;
            return Ok(report);
        }
        if self.suite == "run" {
            let mut report = harness::empty_report(&plan);
            commands::run(&plan, &self.systems, &self.program()?, &mut report, &mut |line| progress.show(line))?;
            return Ok(report);
        }
        if self.suite == "mount" {
            let mut report = harness::empty_report(&plan);
            mounts::run(&plan, &self.systems, &self.program()?, &mut report, &mut |line| progress.show(line))?;
            return Ok(report);
        }
        if self.suite == "fcfs" {
            let mut report = harness::empty_report(&plan);
            let figures = self.figures.as_deref();
            fcfs::run(&plan, &self.systems, systems, figures, &mut report, &mut |line| progress.show(line))?;
            return Ok(report);
        }
        if self.suite == "minl2r" {
            let mut report = harness::empty_report(&plan);
            let figures = self.figures.as_deref();
            minl2r::run(&plan, &self.systems, figures, &mut report, &mut |line| progress.show(line))?;
            return Ok(report);
        }
        if self.suite == "volume" {
            let mut report = harness::empty_report(&plan);
            volume::run(&plan, &self.systems, &self.program()?, &mut report, &mut |line| progress.show(line))?;
            return Ok(report);
        }
        harness::run(&plan, &mut systems, &mut |line| progress.show(line))
    }

    /// The command that is measured.
    fn program(&self) -> Result<PathBuf> {
        match &self.program {
            Some(program) => Ok(std::path::absolute(program)?),
            None => Ok(std::env::current_exe()?.with_file_name("wholly")),
        }
    }
}

/// Parses `arguments`, runs them with `systems` and prints the report. What a `main` returns.
///
/// # Errors
/// Wrong arguments, or the first failure of a system.
pub fn main(arguments: impl IntoIterator<Item = String>, systems: Vec<Box<dyn System>>) -> Result<()> {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let mut out = std::io::stdout().lock();
    if arguments.iter().any(|argument| argument == "--help") {
        out.write_all(USAGE.as_bytes())?;
        return Ok(());
    }
    let options = Options::parse(arguments)?;
    if options.wanted.instructions && !options.wanted.counted {
        return instructions::step(options.wanted.addresses.as_deref());
    }
    let report = options.run(systems)?;
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        out.write_all(report.table().as_bytes())?;
    }
    Ok(())
}

fn number<T: std::str::FromStr>(argument: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| format!("{argument} needs a number, not {value:?}").into())
}

/// A number of bytes, of KiB, MiB or GiB.
fn bytes(argument: &str, value: &str) -> Result<u64> {
    let (digits, shift) = match value.char_indices().last() {
        Some((at, 'K')) => (&value[..at], 10),
        Some((at, 'M')) => (&value[..at], 20),
        Some((at, 'G')) => (&value[..at], 30),
        _ => (value, 0),
    };
    let count: u64 = number(argument, digits)?;
    count.checked_mul(1 << shift).ok_or_else(|| format!("{argument}: {value} is too large").into())
}

fn emulation(name: &str) -> Result<Emulation> {
    match name {
        "none" => Ok(Emulation::None),
        "bandwidth" => Ok(Emulation::Bandwidth { bytes_per_s: 4e9 }),
        "paper" => Ok(Emulation::PAPER),
        _ => match name.strip_prefix("paper:").map(str::parse) {
            Some(Ok(latency_ns)) => Ok(Emulation::Paper { latency_ns, bandwidth: 4e9 }),
            _ => Err(format!("--emulate needs none, bandwidth, paper or paper:NS, not {name:?}").into()),
        },
    }
}

/// One line on a terminal that is written over and over; nothing elsewhere, or beside JSON.
struct Progress {
    quiet: bool,
    shown: bool,
}

impl Progress {
    fn show(&mut self, line: &str) {
        let mut err = std::io::stderr();
        if !self.quiet && err.is_terminal() {
            let _ = write!(err, "\r\x1b[K{line}");
            let _ = err.flush();
            self.shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_shape_the_plan() {
        let plan =
            parse("groups --case one_4k --medium xfs-loop --turns 3 --files 10 --turn-ms 5").unwrap().plan().unwrap();
        assert_eq!(plan.cases.len(), 1);
        assert_eq!(plan.cases[0].name, "one_4k");
        assert_eq!(plan.media, [Medium::Loop(LoopFs::Xfs, "/var/tmp".into())]);
        assert_eq!((plan.turns, plan.turn), (3, Duration::from_millis(5)));
        let plan = parse("groups --files 1").unwrap().plan().unwrap();
        assert!(plan.cases.iter().all(|case| case.files as usize >= case.updates), "a group needs its files");
        let plan = parse("fcfs --case two_files").unwrap().plan().unwrap();
        assert_eq!((plan.base.as_str(), plan.emulation, plan.media.len()), ("none", Emulation::PAPER, 1));
        assert_eq!(plan.cases[0].files, fcfs::FILES);
        let log_bytes = |line: &str| parse(line).unwrap().plan().unwrap().log_bytes;
        assert_eq!(["fcfs", "fcfs --log-size 5G", "fcfs --log-size 7"].map(log_bytes), [64 << 20, 5 << 30, 7]);
        let plan = parse("fcfs --emulate paper:50 --files 1000 --base raw").unwrap().plan().unwrap();
        assert_eq!(plan.emulation, Emulation::Paper { latency_ns: 50, bandwidth: 4e9 });
        assert_eq!((plan.base.as_str(), plan.cases[0].files), ("raw", 1000));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, expected) in [
            ("", "no suite"),
            ("nonsense", "nonsense"),
            ("groups --turns", "--turns needs a value"),
            ("groups --turns x", "number"),
            ("groups --frobnicate", "--frobnicate"),
            ("groups more", "more"),
            ("minl2r --instructions", "groups"),
            ("groups --figures x", "fcfs"),
            ("groups --emulate slow", "slow"),
            ("groups --emulate paper:slow", "paper:slow"),
            ("fcfs --log-size 5X", "number"),
            ("fcfs --log-size 99999999999G", "too large"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(parse("groups --case x").unwrap().plan().is_err());
    }
}
