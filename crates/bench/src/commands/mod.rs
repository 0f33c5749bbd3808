//! The suite `run`: whole commands, by `wholly run` and by themselves.
//!
//! | system | what it is |
//! |---|---|
//! | `plain`, the base | the command |
//! | `overlayfs` | the command in the kernel's overlayfs alone, whose changes nobody takes home: what of `wholly_run` is not ours |
//! | `wholly_run` | `wholly run`, with the view that it chooses: an overlay, where the superuser runs it |
//! | `wholly_run_fuse` | `wholly run --view fuse` |
//! | `wholly_run_kept` | `wholly run --keep-undo 1G`, as by default, where undo counts; the others keep no undo |
//! | `wholly_undo` | `wholly undo` of what that has changed |
//!
//! All run the same command in the same directory, in turns; the figure is the ratio to the median of `plain`, in the
//! same run. The table also has by how much a row's time exceeds that of `plain`: two bounds are of that kind.
//!
//! # What is inside the clock, and what is durable when it stops
//!
//! - `plain`: from the start of the command until it has ended and one `syncfs` of its file system has returned.
//!   Without the latter in `true_100k`, which changes nothing, and in `dpkg_5k`, since `dpkg` waits for what it
//!   installs by itself.
//! - `overlayfs`: the same, with its unmount before the `syncfs`. It is mounted outside of the clock, and nothing that
//!   it holds is in the directory then.
//! - The others: from the start of `wholly run` (or `wholly undo`) until it has ended. The directory was no store
//!   before and is none afterwards, unless an undo is kept in it; all of it is home, durably.
//! - What the directory holds when a turn begins is the same in each, is made outside of the clock, and is synced. What
//!   the command reads (the archive, the repository, the package) lies beside the directory, in the page cache.
//! - `cpu_ns_per_group` is the processor time of what was started, in the kernel's ticks of ten milliseconds.

pub(crate) mod jobs;
mod overlay;

use crate::harness::{Plan, Whose, ticks_ns};
use crate::place::{Place, path_str};
use crate::report::{Report, Skipped};
use crate::tasks::{Figures, Sample, add, rows, sync_file_system};
use crate::{Error, Result};
use jobs::Job;
use overlay::Overlay;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The base, the kernel's own, and ours, with what is said to them.
const PLAIN: &str = "plain";
const OVERLAYFS: &str = "overlayfs";
const OURS: [(&str, &[&str]); 2] =
    [("wholly_run", &["--keep-undo", "no"]), ("wholly_run_fuse", &["--keep-undo", "no", "--view", "fuse"])];

/// Where undo is measured: what runs the command and keeps its undo, and what takes it back.
const KEPT: (&str, &[&str]) = ("wholly_run_kept", &["--keep-undo", "1G"]);
const UNDO: &str = "wholly_undo";

/// Runs the cases of `plan` with the command `program`, with those systems that `chosen` names or all of them.
///
/// # Errors
/// The first failure of a system. What cannot be measured here is no failure; the report says it under `skipped`.
pub fn run(
    plan: &Plan,
    chosen: &[String],
    program: &Path,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let is_wanted = |name: &&str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    let has_overlays = rustix::process::geteuid().is_root();
    let others = [OVERLAYFS].into_iter().filter(|_| has_overlays).chain(OURS.map(|ours| ours.0));
    let systems: Vec<&str> = [PLAIN].into_iter().chain(others.filter(is_wanted)).collect();
    for case in &plan.cases {
        for medium in &plan.media {
            let label = format!("{}/{} on {}", case.suite, case.name, medium.name());
            progress(&label);
            // The place is larger than what lies in it at the same time: what one system leaves, and what the next one
            // makes.
            let made = missing(case.name, program).map_or_else(|| medium.make(case, 3), |why| Err(why.into()));
            let place = match made {
                Ok(place) => place,
                Err(e) => {
                    let (case, medium) = (case.name.to_owned(), medium.name());
                    report.skipped.push(Skipped { case, medium, system: None, reason: e.to_string() });
                    continue;
                }
            };
            if !has_overlays && is_wanted(&OVERLAYFS) {
                let (case, medium, system) = (case.name.to_owned(), medium.name(), Some(OVERLAYFS.to_owned()));
                report.skipped.push(Skipped { case, medium, system, reason: "mounting needs root".into() });
            }
            let job = jobs::job(case, &place.dir, &place.dir.join("turn"))?;
            let undo = [(KEPT.0, job.is_kept), (UNDO, job.undone.is_some())].into_iter().filter(|(_, is)| *is);
            let undo = undo.map(|(name, _)| name).filter(is_wanted);
            let systems: Vec<&str> = systems.iter().copied().chain(undo).collect();
            let mut figures = Figures::of(&systems);
            take_turns(plan, &job, program, &place, &mut figures).map_err(|e| format!("{label}: {e}"))?;
            report.rows.extend(rows(case, medium, PLAIN, &figures));
        }
    }
    Ok(())
}

/// What is not here of what the case takes.
fn missing(case: &str, program: &Path) -> Option<String> {
    if !program.exists() {
        return Some(format!("{} is not there: build it, or name it with --program", program.display()));
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse: `modprobe fuse`".into());
    }
    jobs::missing(case)
}

fn take_turns(plan: &Plan, job: &Job, program: &Path, place: &Place, figures: &mut [Figures]) -> Result<()> {
    let dir = path_str(&job.dir)?;
    let program = path_str(program)?;
    let ours = |options: &[&'static str]| [&[program, "run", "--dir", dir], options, &["--"], &job.words()].concat();
    for turn in 0..plan.turns {
        for i in 0..figures.len() {
            let system = figures[(turn + i) % figures.len()].system;
            let kept = job.dir.join(wholly_host::HOME);
            if kept.exists() {
                std::fs::remove_dir_all(kept)?;
            }
            (job.prepare)()?;
            if system == UNDO {
                run_in(&job.dir, &ours(KEPT.1))?;
            }
            sync_file_system(&place.dir)?;
            let mut overlay = if system == OVERLAYFS { Some(Overlay::mount(&job.dir)?) } else { None };
            let device = place.device_bytes_written();
            let (cpu, start) = (ticks_ns("self", Whose::Children)?, Instant::now());
            match OURS.iter().chain([&KEPT]).find(|ours| ours.0 == system) {
                Some((_, options)) => run_in(&job.dir, &ours(options))?,
                None if system == UNDO => run_in(&job.dir, &[program, "undo", dir])?,
                None => {
                    run_in(&job.dir, &job.words())?;
                    overlay.as_mut().map_or(Ok(()), Overlay::unmount)?;
                    // What `dpkg` syncs by itself an overlay of this kind does not.
                    if job.needs_sync || overlay.is_some() {
                        sync_file_system(&place.dir)?;
                    }
                }
            }
            let ns = start.elapsed().as_nanos() as f64;
            let cpu_ns = (ticks_ns("self", Whose::Children)? - cpu) as f64;
            let device_bytes = place.device_bytes_written().zip(device).map(|(now, then)| now - then);
            add(figures, system, Sample { ns, cpu_ns, device_bytes, groups: 1, ..Sample::default() });
            let judged = match overlay {
                Some(overlay) => overlay.show_to(&job.judge),
                None if system == UNDO => job.undone.as_ref().map_or(Ok(()), |undone| undone()),
                None => (job.judge)(),
            };
            judged.map_err(|why| format!("{system}: {why}"))?;
        }
    }
    Ok(())
}

/// Runs a command, which succeeds.
pub(crate) fn run_in(dir: &Path, words: &[&str]) -> Result<()> {
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(dir)
        // Nobody's own settings.
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", words[0]))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::from(format!(
            "{}: {}: {}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
