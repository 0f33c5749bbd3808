//! Explores workloads and sorts what is wrong by kind; or makes a script that fails as short as it still fails.
//!
//! ```text
//! cargo run --release -p wholly-crash --example hunt -- pairs disk glance
//! cargo run --release -p wholly-crash --example hunt -- \
//!   shorten 'bare,create-foo+append-foo,home,unlink-foo,home' disk hunt
//! ```

use std::collections::BTreeMap;

use wholly_crash::{
    Job, Limits, Outcome, Seen, Setting, Subject, Violation, catalogue, explore, explore_into, sequences, volume,
};

/// Violations after which a workload is given up.
const MOST: usize = 12;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (shortens, args) = match &args[..] {
        [first, rest @ ..] if first == "shorten" => (true, rest),
        all => (false, all),
    };
    let [what, world, effort] = args else {
        eprintln!("usage: hunt [shorten] [volume:ENGINE:]WORKLOADS|some-COUNT|SCRIPT WORLD sweep|glance|hunt|quick");
        std::process::exit(2);
    };
    let on_volume = what.strip_prefix("volume:").and_then(|rest| rest.split_once(':'));
    let setting = if on_volume.is_some() { volume::setting(world).expect("a world") } else { Setting::named(world) };
    let limits = match &**effort {
        "sweep" => Limits::sweep(),
        "glance" => Limits::glance(),
        "hunt" => Limits::hunt(),
        _ => Limits::quick(),
    };
    if shortens {
        shorten(what, &setting, &Limits { violations: 1, ..limits });
        return;
    }
    let limits = Limits { violations: MOST, ..limits };
    if let Some((engine, what)) = on_volume {
        let engine = volume::engines().find(|known| known.name() == engine).expect("an engine");
        return hunt(&volume::several(engine, what).expect("a workload"), &setting, &limits);
    }
    let workloads = match what.strip_prefix("some-").and_then(|count| count.parse().ok()) {
        Some(count) => sequences::some_pairs(7, count),
        None => catalogue::several(what).expect("a workload"),
    };
    hunt(&workloads, &setting, &limits);
}

fn hunt<S: Subject + Clone>(workloads: &[S], setting: &Setting, limits: &Limits) {
    let (seen, mut all, mut failing) = (Seen::default(), Outcome::default(), 0);
    let mut kinds: BTreeMap<String, (u64, Violation)> = BTreeMap::new();
    for workload in workloads {
        let job = Job { subject: workload.clone(), setting: setting.clone() };
        let outcome = explore_into(&seen, &[job], limits);
        failing += u64::from(!outcome.violations.is_empty());
        for violation in &outcome.violations {
            let (count, shortest) = kinds.entry(kind(&violation.what)).or_insert((0, violation.clone()));
            *count += 1;
            if violation.replay.len() < shortest.replay.len() {
                *shortest = violation.clone();
            }
        }
        all.merge(outcome);
    }
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    println!("{} workloads, {failing} fail; {all}", workloads.len());
    for (count, violation) in kinds.values() {
        println!("{count} times such as {violation}");
    }
}

/// What is wrong, without names and numbers.
fn kind(what: &str) -> String {
    let differs = |word: &str| word.contains(|c: char| c.is_ascii_digit() || c == '/') || word.len() < 4;
    let what = what.split(" (").next().unwrap_or_default();
    what.split(' ').map(|word| if differs(word) { "_" } else { word }).collect::<Vec<_>>().join(" ")
}

fn shorten(script: &str, setting: &Setting, limits: &Limits) {
    let fails = |script: &str| {
        let workload = catalogue::find(script)?;
        explore(&workload, setting, limits).violations.into_iter().next()
    };
    let (mut script, Some(mut violation)) = (script.to_string(), fails(script)) else {
        return println!("nothing is wrong with {script}");
    };
    while let Some(shorter) = shorter(&script).into_iter().find_map(|shorter| Some((fails(&shorter)?, shorter))) {
        (violation, script) = shorter;
    }
    println!("{script}\n{violation}");
}

/// The script less one step, or less one op.
fn shorter(script: &str) -> Vec<String> {
    let steps: Vec<&str> = script.split(',').collect();
    let mut found = Vec::new();
    for (i, step) in steps.iter().enumerate().skip(1) {
        let without: Vec<&str> = steps.iter().enumerate().filter(|(n, _)| *n != i).map(|(_, step)| *step).collect();
        found.push(without.join(","));
        for between in ["+", "%"] {
            let ops: Vec<&str> = step.split(between).collect();
            for j in 0..ops.len() * usize::from(ops.len() > 1) {
                let fewer: Vec<&str> = ops.iter().enumerate().filter(|(n, _)| *n != j).map(|(_, op)| *op).collect();
                let (mut steps, fewer) = (steps.clone(), fewer.join(between));
                steps[i] = &fewer;
                found.push(steps.join(","));
            }
        }
    }
    found
}
