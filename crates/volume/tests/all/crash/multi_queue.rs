//! The engine `multi_queue`, with two queues that groups take in turn, on disks, with and without sectors that tear,
//! and on persistent memory: the programs of all engines and those of pages, and mistakes that are planted in the order
//! and in the journal.

use wholly_blocks::multi_queue::Mistake as OfJournal;
use wholly_crash::volume::{Calls, DEVICES, OnVolume};
use wholly_crash::{Limits, Outcome, Setting, Subject, coverage, explore};
use wholly_media::Site;
use wholly_volume::{EngineKind, Mistake, Trial};

use super::paged::{of_all, own, roomy_world};
use super::policies::{CONTENT_IN_ORDER, TIMES_LATER};
use super::programs::{Done, FEW_PAGES, STORIES, world};
use super::survival::{explored, is_long, limits};

const ENGINE: EngineKind = EngineKind::MultiQueue;

const START: Site = Site("nvme.start.head");
const COMMIT: Site = Site("nvme.commit.tail");

#[test]
fn calls_and_groups_survive_wholly_or_not_at_all_on_queues() {
    let mut outcome = explored(&["disk", "disk-torn", "pmem"].map(roomy_world), &own(ENGINE), &limits());
    let more_nested = Limits { nested_one_in: 40, whole_one_in: 60, ..limits() };
    // Its log takes what the others shrink by.
    let mut all = of_all(ENGINE);
    all.retain(|of_all| !matches!(of_all.program, Done::Resizing));
    outcome.merge(explored(&["disk-torn"].map(roomy_world), &all, &more_nested));
    let policed = [&CONTENT_IN_ORDER, &TIMES_LATER]
        .map(|policed| OnVolume { engine: ENGINE, program: Done::Policed(policed, FEW_PAGES) });
    outcome.merge(explored(&["disk", "pmem"].map(roomy_world), &policed, &more_nested));
    let groups = STORIES.iter().map(|story| OnVolume { engine: ENGINE, program: Done::Story(story) });
    outcome.merge(explored(&["disk"].map(roomy_world), &groups.collect::<Vec<_>>(), &more_nested));
    let mut sites = ENGINE.sites();
    // A disk stores nothing at the begin and the end of a life. Room that only unawaited groups have is explored by
    // blocks.
    let of_devices = ["mq.start", "mq.close", "mq.room"];
    sites.retain(|site| site.0.starts_with("mq.") && !of_devices.contains(&site.0));
    assert_eq!(coverage::uncovered(&sites, &outcome), [], "these were no crash points");
}

/// The same on the queues of a device, with each of what it may keep, by checksums and by the window.
#[test]
fn calls_and_groups_survive_wholly_or_not_at_all_on_a_device() {
    let few = Limits { whole_one_in: 100, ..limits() };
    let mut outcome = Outcome::default();
    for (number, world) in DEVICES.map(roomy_world).into_iter().enumerate() {
        let mut programs = own(ENGINE);
        if !is_long() {
            // Another one in each world, and the one with the most states.
            programs.swap(0, number + 1);
            programs.truncate(2 - usize::from(number > 0));
        }
        outcome.merge(explored(&[world], &programs, &few));
    }
    assert_eq!(coverage::uncovered(&[START, COMMIT], &outcome), [], "these were no crash points");
}

/// The programs of the paper's table 4, each call a group of its own. Without `WHOLLY_LONG` in one world, and few
/// states.
#[test]
fn the_programs_of_table_4_survive() {
    let (worlds, limits) = match is_long() {
        true => ([&["disk", "disk-torn"], &DEVICES[..]].concat(), Limits::thorough()),
        false => (vec!["ccnvme"], Limits::sweep()),
    };
    for name in ["create-delete", "generic-035", "generic-106", "generic-321"] {
        let program = Calls::named(&format!("ordered-{name}")).expect("a program");
        for world in &worlds {
            let outcome = explore(&OnVolume { engine: ENGINE, program: program.clone() }, &roomy_world(world), &limits);
            println!("{name} {world}: {outcome}");
            outcome.assert_clean();
            assert!(outcome.distinct >= if is_long() { 1000 } else { 400 }, "{name} in {world}: {outcome}");
        }
    }
}

/// The explorer runs the same programs without them, in all worlds. Mistakes of the journal by itself are seen by
/// blocks (`crates/crash/tests/all/multi_queue.rs`).
#[test]
fn mistakes_on_queues_are_seen() {
    fn seen<S: Subject + Clone>(subject: &S, world: &Setting, mistake: &str) {
        let limits = Limits { violations: 1, ..Limits::hunt() };
        let outcome = explore(subject, world, &limits);
        let violation = outcome.violations.first().unwrap_or_else(|| panic!("{mistake} is not seen"));
        println!("{mistake}: {}", violation.what);
    }
    let named = |name| Calls::named(name).expect("a program");
    for (program, mistake) in [
        (named("ordered-reuse").with(Mistake::FreeAtOrder), "FreeAtOrder"),
        (named("ordered-directory").with_journal(OfJournal::NoDependencies), "NoDependencies"),
    ] {
        seen(&OnVolume { engine: ENGINE, program }, &world("disk"), mistake);
    }
    let journal = |mistake| Trial { journal: Some(mistake), ..FEW_PAGES };
    let engine = |mistake| Trial { mistake: Some(mistake), ..FEW_PAGES };
    for (policed, trial) in [
        (&CONTENT_IN_ORDER, journal(OfJournal::NoAfter)),
        (&CONTENT_IN_ORDER, engine(Mistake::AfterNothing)),
        (&CONTENT_IN_ORDER, engine(Mistake::ContentInPlace)),
        (&TIMES_LATER, engine(Mistake::SizeForgotten)),
    ] {
        let program = Done::Policed(policed, trial);
        seen(
            &OnVolume { engine: ENGINE, program },
            &roomy_world("disk"),
            &format!("{:?} {:?}", trial.journal, trial.mistake),
        );
    }
}
