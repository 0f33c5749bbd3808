//! How many instructions a group executes: `--instructions` of the suites `groups`, `store` and `fcfs`.
//!
//! The program runs itself again as a child, and steps through the child's groups one instruction at a time (`ptrace`):
//! hardware counters are rarely there in a virtual machine. Around each counted piece of work the child stops at two
//! *marks*, which are signals to itself. Between marks, each stop is one instruction. The child reads the number of
//! them from its standard input.
//!
//! # What is counted
//!
//! - The figure is the median over as many groups as the plan has turns, minus the instructions between two marks with
//!   nothing in between.
//! - The instructions of the thread that runs the groups, in user mode: a system call counts as one, a repeated string
//!   instruction once for each repetition.
//! - A step takes microseconds, so a group would last longer than the grain of the store's clock and tell the log the
//!   time. The clock of the child stands still ([`Place::clock`](crate::place::Place::clock)); it is read all the same.
//!   A volume has its usual clock: each of its groups changes the times of its files.
//! - A system whose checkpoint runs beside its groups is left out: it waits as long as the other thread takes.

use crate::harness::{self, Plan};
use crate::place::Medium;
use crate::report::{Bound, InstructionRow, Report, Skipped};
use crate::system::{Prepared, System};
use crate::workload::{Case, Payload, Sequence};
use crate::{Error, Result, tasks};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The argument by which a child knows that it is one.
pub const COUNTED: &str = "--counted";

/// Groups that run before the first one that is counted, unless the system's log holds fewer.
const WARM_UP: usize = 1 << 15;

/// The most instructions of a group, by case and system.
const BOUNDS: [(&str, &str, u64); 7] = [
    ("one_64", "store_deferred", 800),
    ("one_4k", "store_deferred", 2700),
    ("two_files", "store_deferred", 9000),
    ("two_files", "none", 9000),
    ("two_files", "hybrid_log_deferred", 20_000),
    ("two_files", "fine_grained_wal", 25_000),
    ("two_files", "undo", 40_000),
];

/// Runs this program again with the same arguments, and counts what it asks to be counted. `addresses` is a file that
/// gets how often each instruction was executed: lines of a number, and the program or library with the address there.
///
/// # Errors
/// If the processor is another one than x86-64, if `ptrace` is not allowed, or if the child fails, which has said why.
pub fn step(addresses: Option<&Path>) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err("--instructions counts on x86-64 only".into());
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg(COUNTED)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut answers = child.stdin.take().ok_or("the child has no standard input")?;
    let pid = Pid::from_raw(child.id() as i32);
    let mut counted = None;
    let mut executed = BTreeMap::new();
    loop {
        let signal = match waitpid(pid, None)? {
            WaitStatus::Exited(_, 0) => break,
            WaitStatus::Exited(_, status) => return Err(format!("the counted program ended with {status}").into()),
            WaitStatus::Signaled(_, signal, _) => return Err(format!("the counted program died of {signal}").into()),
            WaitStatus::Stopped(_, Signal::SIGSTOP) => {
                counted = match counted {
                    None => {
                        // If this program dies, a child that is stopped would stay so.
                        ptrace::setoptions(pid, ptrace::Options::PTRACE_O_EXITKILL)?;
                        Some(0u64)
                    }
                    Some(count) => {
                        answers.write_all(&count.to_le_bytes())?;
                        None
                    }
                };
                None
            }
            WaitStatus::Stopped(_, Signal::SIGTRAP) if counted.is_some() => {
                counted = counted.map(|count| count + 1);
                if addresses.is_some() {
                    *executed.entry(next_instruction(pid)?).or_insert(0u64) += 1;
                }
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            _ => None,
        };
        match counted {
            Some(_) => ptrace::step(pid, signal)?,
            None => {
                if let Some(path) = addresses.filter(|_| !executed.is_empty()) {
                    // While its mappings can be seen.
                    write_addresses(path, pid, &executed)?;
                }
                ptrace::cont(pid, signal)?;
            }
        }
    }
    Ok(())
}

/// The address of the instruction that comes next.
#[cfg(target_arch = "x86_64")]
fn next_instruction(child: Pid) -> Result<u64> {
    Ok(ptrace::getregs(child)?.rip)
}

#[cfg(not(target_arch = "x86_64"))]
fn next_instruction(_: Pid) -> Result<u64> {
    unreachable!("refused before")
}

fn write_addresses(path: &Path, child: Pid, executed: &BTreeMap<u64, u64>) -> Result<()> {
    let maps = std::fs::read_to_string(format!("/proc/{child}/maps"))?;
    let mut mappings: Vec<(u64, u64, &str)> = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let Some((start, end)) = fields.next().and_then(|range| range.split_once('-')) else { continue };
        let parse = |hex| u64::from_str_radix(hex, 16);
        mappings.push((parse(start)?, parse(end)?, fields.nth(4).unwrap_or("-")));
    }
    let mut text = String::new();
    for (&address, count) in executed {
        let inside = mappings.iter().find(|(start, end, _)| (*start..*end).contains(&address));
        let file = inside.map_or("-", |(.., file)| file);
        // From where the file's first byte is: so its own tables count.
        let base = mappings.iter().find(|(.., name)| *name == file && file != "-").map_or(0, |(start, ..)| *start);
        text += &format!("{count} {file} {:#x}\n", address - base);
    }
    Ok(std::fs::write(path, text)?)
}

/// The child's side: it marks its work, and reads how many instructions that took.
pub(crate) struct Counter {
    /// Instructions between two marks with nothing in between.
    empty: u64,
}

impl Counter {
    /// # Errors
    /// If no parent steps through this program.
    fn new() -> Result<Counter> {
        ptrace::traceme()?;
        let mut counter = Counter { empty: 0 };
        // The first mark of all goes through code that was never used before.
        counter.count(|| Ok(()))?;
        counter.empty = counter.count(|| Ok(()))?;
        Ok(counter)
    }

    /// Counts the instructions of `work`.
    pub(crate) fn count(&mut self, work: impl FnOnce() -> Result<()>) -> Result<u64> {
        raise(Signal::SIGSTOP)?;
        let done = work();
        raise(Signal::SIGSTOP)?;
        done?;
        let mut count = [0; 8];
        std::io::stdin().read_exact(&mut count)?;
        Ok(u64::from_le_bytes(count).saturating_sub(self.empty))
    }
}

/// Runs `plan` with `systems` in the child.
///
/// # Errors
/// The first failure of a system.
pub fn run(plan: &Plan, systems: &mut [Box<dyn System>], progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut report = harness::empty_report(plan);
    let mut counter = Counter::new()?;
    for case in &plan.cases {
        for medium in plan.media.iter().filter(|medium| medium.is_pmem()) {
            for system in systems.iter_mut().filter(|system| system.threads() == 1) {
                progress(&format!("{}/{}: {}", case.suite, case.name, system.name()));
                if let Some(reason) = count(plan, case, medium, system.as_mut(), &mut counter, &mut report)? {
                    let (case, system) = (case.name.to_owned(), Some(system.name().to_owned()));
                    report.skipped.push(Skipped { case, medium: medium.name(), system, reason });
                }
            }
        }
    }
    let is_asked = |case: &str, system: &str| {
        plan.cases.iter().any(|of| of.name == case) && systems.iter().any(|of| of.name() == system)
    };
    for (case, system, bound) in BOUNDS.into_iter().filter(|(case, system, _)| is_asked(case, system)) {
        let row = report.instructions.iter().find(|row| row.case == case && row.system == system);
        let value = row.map(|row| row.instructions_per_group).ok_or_else(|| "it did not run".to_owned());
        report.bounds.push(Bound::at_most(format!("{case}: instructions of {system}"), bound as f64, value));
    }
    Ok(report)
}

/// Counts the calls of the suite `store` in the child.
///
/// # Errors
/// The first failure of a system.
pub fn run_calls(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut report = harness::empty_report(plan);
    tasks::count(plan, &mut Counter::new()?, &mut report, progress)?;
    Ok(report)
}

/// Counts the groups of one system. Returns why, if it does not.
fn count(
    plan: &Plan,
    case: &Case,
    medium: &Medium,
    system: &mut dyn System,
    counter: &mut Counter,
    report: &mut Report,
) -> Result<Option<String>> {
    let name = system.name();
    let failed = |error: Error| Error::from(format!("{name}, {}: {error}", case.name));
    let place = match medium.make(case, 1) {
        Ok(place) => place.with_still_clock(),
        Err(error) => return Ok(Some(error.to_string())),
    };
    let ready = match system.prepare(case, &place).map_err(failed)? {
        Prepared::Ready(ready) => ready,
        Prepared::Inapplicable => return Ok(Some("it is not meant for this case".into())),
        Prepared::Skipped(reason) => return Ok(Some(reason)),
    };
    if ready.groups_per_log > 0 && !ready.deferred {
        system.finish()?;
        return Ok(Some("its checkpoint runs beside its groups".into()));
    }
    let warm_up = WARM_UP.min(ready.max_groups as usize / 2);
    let sequence = Sequence::new(case, plan.seed, 0, warm_up + plan.turns);
    let payload = Payload::new(plan.seed);
    let mut counts = Vec::new();
    for (i, group) in sequence.groups(warm_up + plan.turns).enumerate() {
        if i < warm_up {
            system.run_group(group, &payload).map_err(failed)?;
        } else {
            counts.push(counter.count(|| system.run_group(group, &payload)).map_err(failed)? as f64);
        }
    }
    system.finish().map_err(failed)?;
    report.instructions.push(InstructionRow::of(case, name, medium.name(), &counts));
    Ok(None)
}

/// What is asked for besides the plan.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Whether instructions are counted, in place of time.
    pub instructions: bool,
    /// Whether this is the child.
    pub counted: bool,
    /// See [`step`].
    pub addresses: Option<PathBuf>,
}
