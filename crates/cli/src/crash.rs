//! `wholly crash`: the crash explorer, for people.

mod page;
mod panel;
mod picture;
mod svg;
mod timeline;

use crate::args::{CrashArgs, Effort, Piece, SubjectArg};
use crate::error::{Exit, Failure};
use crate::output::{Ui, print, shown};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use wholly_crash::{
    Limits, Outcome, SETTINGS, Seen, Setting, Subject, Workload,
    archive::{self, Archive},
    blocks::{self, OnBlocks},
    catalogue,
    ccnvme::{self, OnQueues},
    explore_into, replay, sequences, subject_of,
    volume::{self, Calls, OnVolume},
};
use wholly_volume::EngineKind;

/// Workloads whose runs are recorded before any of them is explored.
const AT_ONCE: usize = 32;

/// More programs of one name than this are many: less is done to each.
const MANY: usize = 20;

/// Columns of a replayed table.
const WIDTH: usize = 150;

#[derive(Serialize)]
struct Explored {
    piece: Option<PieceDone>,
    jobs: Vec<Job>,
    violations: Vec<Violation>,
    seconds: f64,
}

/// What one piece of the whole has covered. A workload counts once in each world.
#[derive(Serialize)]
struct PieceDone {
    number: usize,
    of: usize,
    workloads: usize,
    whole: usize,
}

#[derive(Serialize)]
struct Job {
    workload: String,
    world: String,
    points: u64,
    images: u64,
    recoveries: u64,
    distinct_states: u64,
    nested_states: u64,
    kills: u64,
    sampled_points: u64,
    violations: usize,
}

#[derive(Serialize)]
struct Violation {
    what: String,
    replay: String,
}

#[derive(Serialize)]
struct Listed {
    workloads: Vec<Named>,
    workloads_on_volumes: Vec<Named>,
    worlds: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    about: String,
}

#[derive(Serialize)]
struct Replayed {
    state: String,
    /// When each crash came, the outermost first.
    crashes: Vec<Crash>,
    violation: Option<String>,
}

#[derive(Serialize)]
struct Crash {
    moment: String,
    choice: String,
    table: String,
}

/// Explores, lists or replays.
pub fn run(args: &CrashArgs, ui: &Ui) -> Result<Exit, Failure> {
    if args.list {
        return list(args.subject(), ui);
    }
    let written = args.html.as_ref().map(|_| "--html").or(args.svg.as_ref().map(|_| "--svg"));
    if let (Some(option), None) = (written, &args.replay) {
        return Err(Failure::new(format!("crash {option}"), format!("{option} needs a state, which --replay names"))
            .advice("`wholly crash` prints the states in which it finds a violation")
            .exit(Exit::USAGE));
    }
    match &args.replay {
        Some(state) => replay_state(args, state, ui),
        None => explore_all(args, ui),
    }
}

/// All workloads that have a name of their own.
fn workloads() -> Vec<Named> {
    let workload = |w: Workload| Named { name: w.name, about: w.about.to_string() };
    catalogue::all()
        .into_iter()
        .chain(sequences::by_hand())
        .chain(sequences::parked())
        .chain(sequences::staged())
        .chain(sequences::adopted())
        .map(workload)
        .chain(Archive::ALL.map(|archive| Named { name: archive.name().into(), about: archive.about().into() }))
        .collect()
}

fn worlds() -> Vec<Named> {
    SETTINGS.iter().map(|&(name, about)| Named { name: name.into(), about: about.into() }).collect()
}

/// Names that may follow `option`, or a workload, in a command line; each with what it stands for.
pub fn names(option: Option<&str>) -> Vec<(String, String)> {
    let named = match option {
        Some("--world") => worlds(),
        Some("--subject") => {
            let volumes = volume::engines().map(SubjectArg::Volume);
            let subjects = std::iter::once(SubjectArg::Store).chain(volumes);
            let subjects = subjects.chain(blocks::Kind::ALL.map(SubjectArg::Blocks)).chain([SubjectArg::Queues]);
            subjects.map(|subject| Named { name: subject.name(), about: "subject".into() }).collect()
        }
        Some("--effort" | "--piece" | "--replay" | "--html" | "--svg") => return Vec::new(),
        _ => {
            let several = ["ones", "pairs", "some-pairs", "by-hand", "parked", "staged", "staged-pairs", "adopted"];
            let several = several.map(|name| Named { name: name.into(), about: "several workloads".into() });
            several.into_iter().chain(workloads()).collect()
        }
    };
    named.into_iter().map(|Named { name, about }| (name, about)).collect()
}

fn list(subject: SubjectArg, ui: &Ui) -> Result<Exit, Failure> {
    let named = |(name, about): (&str, &str)| Named { name: name.into(), about: about.into() };
    let on_volumes = volume::BY_HAND.iter().map(|(name, about, _)| named((name, about))).collect();
    let mut listed = Listed { workloads: workloads(), workloads_on_volumes: on_volumes, worlds: worlds() };
    match subject {
        SubjectArg::Store => {}
        SubjectArg::Volume(engine) => {
            listed.workloads.clear();
            listed.worlds.retain(|world| volume::worlds(engine).contains(&&*world.name));
            let others = volume::FLASH.iter().chain(&volume::BLOCKS).chain(&volume::DEVICES);
            let others = others.filter(|name| volume::setting_for(engine, name).is_some());
            listed.worlds.extend(others.map(|name| named((name, blocks::about(name)))));
        }
        SubjectArg::Blocks(kind) => {
            let program = |program: &blocks::Program| (program.name, program.about);
            let worlds = kind.worlds().iter().map(|world| (*world, blocks::about(world)));
            return list_small(blocks::programs_of(kind).map(program), worlds, ui);
        }
        SubjectArg::Queues => {
            let program = |program: &ccnvme::Program| (program.name, program.about);
            return list_small(ccnvme::ALL.iter().map(program), ccnvme::WORLDS.into_iter(), ui);
        }
    }
    ui.emit("crash", &listed, |listed| {
        let lines =
            |named: &[Named]| -> String { named.iter().map(|n| format!("  {:<18} {}\n", n.name, n.about)).collect() };
        let of_stores = match listed.workloads.is_empty() {
            true => String::new(),
            false => format!(
                "workloads (also random-SEED and names-SEED; ones, pairs and some-pairs of all calls on names; \
                 parked, staged-pairs; and scripts):\n{}\n",
                lines(&listed.workloads)
            ),
        };
        format!(
            "{of_stores}workloads on volumes (also ones, pairs, some-pairs and ordered-pairs of all calls; random-SEED, random-0..SEED; \
             and scripts):\n{}\nworlds (for volumes, those of media that the engine takes):\n{}",
            lines(&listed.workloads_on_volumes),
            lines(&listed.worlds)
        )
    })?;
    Ok(Exit::DONE)
}

/// Of subjects whose programs are on blocks.
fn list_small(
    workloads: impl Iterator<Item = (&'static str, &'static str)>,
    worlds: impl Iterator<Item = (&'static str, &'static str)>,
    ui: &Ui,
) -> Result<Exit, Failure> {
    let named = |(name, about): (&str, &str)| Named { name: name.into(), about: about.into() };
    let (workloads, worlds) = (workloads.map(named).collect(), worlds.map(named).collect());
    ui.emit("crash", &Listed { workloads, workloads_on_volumes: Vec::new(), worlds }, |listed| {
        let lines =
            |named: &[Named]| -> String { named.iter().map(|n| format!("  {:<18} {}\n", n.name, n.about)).collect() };
        format!(
            "workloads on transactions of blocks (also by-hand, for all of these; random-SEED, random-0..SEED):\n{}\nworlds:\n{}",
            lines(&listed.workloads),
            lines(&listed.worlds)
        )
    })?;
    Ok(Exit::DONE)
}

/// Workloads on names that are explored where none is asked for, a line each: many small ones, so that less is done to
/// each.
const NAMES: [&str; 8] =
    ["ones", "by-hand", "parked", "staged", "adopted", "names-0..40", "some-pairs", "staged-pairs"];

/// The same where the log is on persistent memory. Names are the host's: what the log is on matters less, and takes
/// longer.
const NAMES_ON_PMEM: [&str; 3] = ["by-hand", "staged", "adopted"];

/// What has one line of the table.
struct Task {
    name: String,
    work: Work,
}

/// What is explored.
enum Work {
    Workloads(Vec<Workload>, Limits),
    Archive(Archive, archive::Limits),
    Volume(Vec<OnVolume<Calls>>, Limits),
    Blocks(Vec<OnBlocks>, Limits),
    Queues(Vec<OnQueues>, Limits),
}

impl Task {
    /// How far the bar goes.
    fn count(&self) -> usize {
        match &self.work {
            Work::Workloads(workloads, _) => workloads.len(),
            Work::Archive(..) => 1,
            Work::Volume(programs, _) => programs.len(),
            Work::Blocks(programs, _) => programs.len(),
            Work::Queues(programs, _) => programs.len(),
        }
    }
}

/// Programs on a volume that are explored where none is asked for, a line each; the last ones on engines that order.
const ON_VOLUME: [&str; 4] = ["by-hand", "ones", "pairs", "ordered-pairs"];

/// What is done to a volume.
fn tasks_on_volume(args: &CrashArgs, engine: EngineKind) -> Result<Vec<Task>, Failure> {
    let (limits, of_many) = match args.effort {
        Effort::Hunt => (Limits::hunt(), Limits::sweep()),
        Effort::Quick => (Limits::quick(), Limits::glance()),
        // Random states inside of recoveries find the most for their time. As there are many, fewer live on.
        Effort::Thorough => (Limits::thorough(), Limits { nested_samples: 12, go_on_one_in: 8, ..Limits::hunt() }),
    };
    let asked = args.workloads.iter().map(|name| &**name);
    let own = ON_VOLUME.iter().copied().filter(|name| volume::orders(engine) || !name.starts_with("ordered"));
    let mut names: Vec<&str> = if args.workloads.is_empty() { own.collect() } else { asked.collect() };
    // A million states, of what two threads write and two others write back.
    if args.workloads.is_empty() && args.effort == Effort::Thorough && engine == EngineKind::HybridLog {
        names.push("random-0..40");
    }
    let task = |name: &str| {
        let programs = volume::several(engine, name).ok_or_else(|| unknown("workload", name))?;
        let limits = if programs.len() > MANY { &of_many } else { &limits };
        Ok(Task { name: name.into(), work: Work::Volume(programs, limits.clone()) })
    };
    names.into_iter().map(task).collect()
}

/// Drawn programs on transactions of blocks that are explored where none is asked for: together half a million states
/// and more.
fn drawn_on(kind: blocks::Kind) -> &'static str {
    match kind {
        blocks::Kind::Contract => "random-0..16000",
        blocks::Kind::Log => "random-0..1200",
        blocks::Kind::Xftl => "random-0..600",
        blocks::Kind::MultiQueue => "random-0..2000",
    }
}

/// How much of programs on blocks is explored, and of each of many.
fn limits_of_small(effort: Effort) -> (Limits, Limits) {
    match effort {
        Effort::Hunt => (Limits::hunt(), Limits::sweep()),
        Effort::Quick => (Limits::quick(), Limits::glance()),
        Effort::Thorough => (Limits::thorough(), Limits { nested_samples: 12, go_on_one_in: 8, ..Limits::hunt() }),
    }
}

/// The programs that are asked for; else those written by hand and, thoroughly, these drawn ones.
fn names_or<'a>(args: &'a CrashArgs, drawn: &'a str) -> Vec<&'a str> {
    match args.effort {
        _ if !args.workloads.is_empty() => args.workloads.iter().map(|name| &**name).collect(),
        Effort::Thorough => vec!["by-hand", drawn],
        Effort::Hunt | Effort::Quick => vec!["by-hand"],
    }
}

/// What is done to transactions of blocks.
fn tasks_on_blocks(args: &CrashArgs, kind: blocks::Kind) -> Result<Vec<Task>, Failure> {
    let (limits, of_many) = limits_of_small(args.effort);
    let names = names_or(args, drawn_on(kind));
    let mut tasks = Vec::new();
    for name in names {
        let found = blocks::several(kind, name).ok_or_else(|| unknown("workload", name))?;
        if found.len() > MANY {
            tasks.push(Task { name: name.into(), work: Work::Blocks(found, of_many.clone()) });
        } else {
            let one =
                |on: OnBlocks| Task { name: on.program.name.into(), work: Work::Blocks(vec![on], limits.clone()) };
            tasks.extend(found.into_iter().map(one));
        }
    }
    Ok(tasks)
}

/// What is done to queues in a region.
fn tasks_on_queues(args: &CrashArgs) -> Result<Vec<Task>, Failure> {
    let (limits, of_many) = limits_of_small(args.effort);
    // Half a million states and more.
    let names = names_or(args, "random-0..400");
    let task = |name: &str| {
        let found = ccnvme::several(name).ok_or_else(|| unknown("workload", name))?;
        let limits = if found.len() > MANY { &of_many } else { &limits };
        Ok(Task { name: name.into(), work: Work::Queues(found, limits.clone()) })
    };
    names.into_iter().map(task).collect()
}

/// What is done in a world.
fn tasks(args: &CrashArgs, world: &Setting) -> Result<Vec<Task>, Failure> {
    match args.subject() {
        SubjectArg::Store => {}
        SubjectArg::Volume(engine) => return tasks_on_volume(args, engine),
        SubjectArg::Blocks(kind) => return tasks_on_blocks(args, kind),
        SubjectArg::Queues => return tasks_on_queues(args),
    }
    let (limits, of_names, of_archive) = match args.effort {
        Effort::Hunt => (Limits::hunt(), Limits::glance(), archive::Limits::hunt()),
        Effort::Quick => (Limits::quick(), Limits::hunt(), archive::Limits::quick()),
        Effort::Thorough => (Limits::thorough(), Limits::hunt(), archive::Limits::thorough()),
    };
    let archive = |archive: Archive| Task { name: archive.name().into(), work: Work::Archive(archive, of_archive) };
    let (names, of_names) =
        if world.sim.log.is_pmem() { (&NAMES_ON_PMEM[..], Limits::glance()) } else { (&NAMES[..], of_names) };
    let several = |name: &str| catalogue::several(name).ok_or_else(|| unknown("workload", name));
    let one = |w: Workload| Task { name: w.name.clone(), work: Work::Workloads(vec![w], limits.clone()) };
    if !args.workloads.is_empty() {
        let found = args.workloads.iter().map(|name| match Archive::named(name) {
            Some(named) => Ok(vec![archive(named)]),
            None => Ok(several(name)?.into_iter().map(one).collect()),
        });
        return Ok(found.collect::<Result<Vec<_>, Failure>>()?.into_iter().flatten().collect());
    }
    let mut tasks: Vec<Task> = catalogue::all().into_iter().map(one).collect();
    for name in names {
        tasks.push(Task { name: name.to_string(), work: Work::Workloads(several(name)?, of_names.clone()) });
    }
    tasks.extend(Archive::ALL.map(archive));
    Ok(tasks)
}

/// Leaves the workloads of one piece. They are dealt out one by one, so that the pieces take about the same time.
fn keep_piece(tasks: &mut [Vec<Task>], piece: Piece) {
    let mut next = 0;
    let mut is_ours = || {
        next += 1;
        (next - 1) % piece.of == piece.number - 1
    };
    for tasks in tasks {
        tasks.retain_mut(|task| match &mut task.work {
            Work::Workloads(workloads, _) => {
                workloads.retain(|_| is_ours());
                !workloads.is_empty()
            }
            Work::Volume(programs, _) => {
                programs.retain(|_| is_ours());
                !programs.is_empty()
            }
            Work::Blocks(programs, _) => {
                programs.retain(|_| is_ours());
                !programs.is_empty()
            }
            Work::Queues(programs, _) => {
                programs.retain(|_| is_ours());
                !programs.is_empty()
            }
            Work::Archive(..) => is_ours(),
        });
    }
}

fn unknown(what: &str, name: &str) -> Failure {
    Failure::new("crash", format!("there is no {what} {name:?}"))
        .advice("`wholly crash --list` lists all")
        .exit(Exit::USAGE)
}

fn explore_all(args: &CrashArgs, ui: &Ui) -> Result<Exit, Failure> {
    if args.paper.is_some()
        && ![SubjectArg::Queues, SubjectArg::Blocks(blocks::Kind::MultiQueue)].contains(&args.subject())
    {
        return Err(Failure::new("crash", "--paper is for ccnvme and blocks:multi_queue")
            .advice("add --subject ccnvme, or --subject blocks:multi_queue")
            .exit(Exit::USAGE));
    }
    let literally = |name: &str| args.paper.as_ref().map_or(name.to_owned(), |rule| format!("{name}@{rule}"));
    let default = match args.subject() {
        SubjectArg::Volume(engine) => volume::worlds(engine)[..2].to_vec(),
        SubjectArg::Blocks(kind) => kind.worlds()[..2].to_vec(),
        SubjectArg::Queues => ccnvme::WORLDS.map(|(name, _)| name).to_vec(),
        SubjectArg::Store => vec!["pmem", "disk"],
    };
    let named = |name: &str| match args.subject() {
        SubjectArg::Volume(engine) => volume::setting_for(engine, name),
        SubjectArg::Blocks(kind) => kind.setting(&literally(name)),
        SubjectArg::Queues => ccnvme::setting(&literally(name)),
        SubjectArg::Store => Setting::find(name),
    };
    let asked = args.worlds.iter().map(|name| &**name);
    let names: Vec<&str> = if args.worlds.is_empty() { default } else { asked.collect() };
    let worlds = names.into_iter().map(|name| named(name).ok_or_else(|| unknown("world", name)));
    let worlds: Vec<Setting> = worlds.collect::<Result<_, _>>()?;
    let mut tasks = worlds.iter().map(|world| tasks(args, world)).collect::<Result<Vec<_>, _>>()?;
    let count = |tasks: &[Vec<Task>]| -> usize { tasks.iter().flatten().map(Task::count).sum() };
    let whole = count(&tasks);
    if let Some(piece) = args.piece {
        keep_piece(&mut tasks, piece);
    }
    let start = Instant::now();
    let count = count(&tasks);
    let bar = ui.bar("workloads explored", count as u64);
    // A line at a time: all of it takes long.
    let tell = |text: String| if ui.json { Ok(()) } else { bar.suspend(|| print(text.as_bytes())) };
    tell(format!(
        "{:<18} {:<16} {:>8} {:>10} {:>10} {:>8}\n",
        "workload", "world", "points", "states", "recovered", "sampled"
    ))?;
    let piece = args.piece.map(|piece| PieceDone { number: piece.number, of: piece.of, workloads: count, whole });
    let mut explored = Explored { piece, jobs: Vec::new(), violations: Vec::new(), seconds: 0.0 };
    let (seen, mut all) = (Seen::default(), Outcome::default());
    for (world, tasks) in worlds.iter().zip(&tasks) {
        for task in tasks {
            let mut together = Outcome::default();
            let before = (seen.distinct(), seen.nested());
            let done = &mut |some: Outcome, count: usize| {
                together.merge(some);
                bar.set_message(format!("explored; {} states", seen.distinct()));
                bar.inc(count as u64);
            };
            match &task.work {
                Work::Workloads(workloads, limits) => in_lots(workloads, world, (&seen, limits), done),
                Work::Volume(programs, limits) => in_lots(programs, world, (&seen, limits), done),
                Work::Blocks(programs, limits) => in_lots(programs, world, (&seen, limits), done),
                Work::Queues(programs, limits) => in_lots(programs, world, (&seen, limits), done),
                Work::Archive(archive, limits) => done(archive::explore(*archive, world, &seen, limits), 1),
            }
            (together.distinct, together.nested) = (seen.distinct() - before.0, seen.nested().saturating_sub(before.1));
            let job = job(&task.name, world, &together);
            tell(line(&job, &together))?;
            explored.jobs.push(job);
            all.merge(together);
        }
    }
    bar.finish_and_clear();
    let violation = |v: &wholly_crash::Violation| Violation { what: v.what.clone(), replay: v.replay.clone() };
    // A later state may turn out to be one that only a crash inside of a recovery had led to.
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    explored.violations = all.violations.iter().map(violation).collect();
    explored.seconds = start.elapsed().as_secs_f64();
    ui.emit("crash", &explored, |explored| text(explored, &all))?;
    Ok(if explored.violations.is_empty() { Exit::DONE } else { Exit::DAMAGED })
}

/// Explores subjects in a world, so many at once, and tells each time what came of it.
fn in_lots<S: Subject + Clone>(
    subjects: &[S],
    world: &Setting,
    (seen, limits): (&Seen, &Limits),
    done: &mut impl FnMut(Outcome, usize),
) {
    for some in subjects.chunks(AT_ONCE) {
        let one = |subject: &S| wholly_crash::Job { subject: subject.clone(), setting: world.clone() };
        done(explore_into(seen, &some.iter().map(one).collect::<Vec<_>>(), limits), some.len());
    }
}

fn job(workload: &str, world: &Setting, outcome: &Outcome) -> Job {
    Job {
        workload: workload.into(),
        world: world.name.clone(),
        points: outcome.tally.points,
        images: outcome.tally.images,
        recoveries: outcome.recoveries,
        distinct_states: outcome.distinct,
        nested_states: outcome.nested,
        kills: outcome.kills,
        sampled_points: outcome.tally.sampled_points,
        violations: outcome.violations.len(),
    }
}

/// The line of a task, and what was wrong.
fn line(job: &Job, outcome: &Outcome) -> String {
    let mut line = format!(
        "{:<18} {:<16} {:>8} {:>10} {:>10} {:>8}{}\n",
        job.workload,
        job.world,
        job.points,
        job.distinct_states,
        job.recoveries,
        job.sampled_points,
        if job.violations > 0 { "  VIOLATED" } else { "" }
    );
    for violation in &outcome.violations {
        line += &format!("\nVIOLATION: {violation}\n\n");
    }
    line
}

fn text(explored: &Explored, all: &Outcome) -> String {
    let mut text =
        format!("\n{all}\nin {:.1} s; \"sampled\" are points of which not all states were made\n", explored.seconds);
    if let Some(PieceDone { number, of, workloads, whole }) = &explored.piece {
        text +=
            &format!("piece {number} of {of}: {workloads} of {whole} workloads, each counted once in every world\n");
    }
    text
}

fn replay_state(args: &CrashArgs, state: &str, ui: &Ui) -> Result<Exit, Failure> {
    let bad_name = |error| {
        Failure::new("crash --replay", error).advice("give the state as a violation names it").exit(Exit::USAGE)
    };
    let subject = subject_of(state).map_err(bad_name)?;
    if let Some(asked) = args.subject.map(SubjectArg::name).filter(|asked| *asked != subject) {
        return Err(Failure::new("crash --replay", format!("{state} is a state of {subject}, not of {asked}"))
            .advice("leave --subject out: a state names its subject")
            .exit(Exit::USAGE));
    }
    let rebuilt = replay(state).map_err(bad_name)?;
    let write = |file: &PathBuf, content: String| {
        std::fs::write(file, content).map_err(|error| Failure::new(format!("write {}", file.display()), error))
    };
    if let Some(file) = &args.html {
        write(file, page::page(&rebuilt))?;
    }
    if let Some(file) = &args.svg {
        write(file, picture::alone(&rebuilt))?;
    }
    let crash = |crash: &wholly_crash::Crash| Crash {
        moment: crash.moment.clone(),
        choice: crash.choice.to_string(),
        table: crash.timeline.table(WIDTH),
    };
    let replayed = Replayed {
        state: rebuilt.name.clone(),
        crashes: rebuilt.crashes.iter().map(crash).collect(),
        violation: rebuilt.violation.clone(),
    };
    let files: Vec<&PathBuf> = args.html.iter().chain(&args.svg).collect();
    ui.emit("crash", &replayed, |_| match &files[..] {
        [] => format!("{rebuilt}\n"),
        files => files.iter().map(|file| format!("{}: {}\n", shown(file), verdict(&rebuilt))).collect(),
    })?;
    Ok(if rebuilt.violation.is_some() { Exit::DAMAGED } else { Exit::DONE })
}

/// What a replayed state turned out to be.
pub fn verdict(replay: &wholly_crash::Replay) -> String {
    match &replay.violation {
        Some(what) => format!("VIOLATION: {what}"),
        None => "recovered correctly".into(),
    }
}
