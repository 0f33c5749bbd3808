//! Mistakes on purpose, and mutants: each program, erase and wait left out, put off or exchanged. Each is caught, or
//! the reason why it cannot be is told.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::crash::{Depth, SUBJECTS, Subject, explore};
use super::histories::history;
use super::*;
use wholly_blocks::xftl::{Mistake, Ppn, Read, SPARE, Trial, check_trial, site, stat};
use wholly_sim::{Mutation, MutationKind};

const QUICK: Depth = Depth::of(4, 6, 2000);

fn is_long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

/// The subjects to look at: the one that is known to show it, or all.
fn subjects(shown_by: &str) -> impl Iterator<Item = &'static Subject> {
    let is_it = move |subject: &&Subject| subject.name == shown_by;
    let first = SUBJECTS.iter().filter(is_it);
    let others = SUBJECTS.iter().filter(move |subject| is_long() && !is_it(subject));
    first.chain(others)
}

/// What catches it, or nothing.
fn caught(mistake: Mistake, shown_by: &str) -> Option<String> {
    let trial = Trial { mistake: Some(mistake) };
    for seed in 0..30 {
        for is_exact in [true, false] {
            let run = catch_unwind(AssertUnwindSafe(|| history(seed, is_exact, trial)));
            if run.is_err() {
                return Some(format!("history {seed}"));
            }
        }
    }
    subjects(shown_by).find_map(|subject| explore(subject, trial, &[], QUICK).err())
}

#[test]
fn every_mistake_is_caught() {
    use Mistake::*;
    let all = [
        (TableInPlace, "history"),
        (EraseBeforeRoot, "history"),
        (ChainForgotten, "history"),
        (MapBeforeChain, "overlaps"),
        (ChainBeforeData, "overlaps"),
        (IncarnationKept, "history"),
        (NumbersAgain, "history"),
        (OneByOne, "history"),
        (AbortPrograms, "history"),
        (RunningAdopted, "history"),
        (HalfChain, "chains"),
        (RunningIsGarbage, "long"),
        (TableOfTransaction, "long"),
        (PlainLast, "history"),
        (FirstCounts, "history"),
        (LostIsZeros, "rot"),
    ];
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let results: Vec<(Mistake, Option<String>)> =
        all.into_iter().map(|(mistake, by)| (mistake, caught(mistake, by))).collect();
    std::panic::set_hook(hook);
    for (mistake, by) in &results {
        let by: String = by.as_deref().unwrap_or("NOTHING").chars().take(160).collect();
        println!("{mistake:?}: {by}");
    }
    let missed: Vec<Mistake> = results.iter().filter(|(_, by)| by.is_none()).map(|(mistake, _)| *mistake).collect();
    assert!(missed.is_empty(), "nothing catches {missed:?}");
}

/// A chip that reads another page than it was asked for.
struct Misdirected {
    flash: Arc<dyn Flash>,
    wrong: std::sync::Mutex<Option<(Ppn, Ppn)>>,
}

impl Flash for Misdirected {
    fn geometry(&self) -> Geometry {
        self.flash.geometry()
    }

    fn read(&self, at: Ppn) -> Result<Read<Page>> {
        match *self.wrong.lock().unwrap() {
            Some((from, to)) if from == at => self.flash.read(to),
            _ => self.flash.read(at),
        }
    }

    fn look(&self, at: Ppn) -> Result<Read<()>> {
        self.flash.look(at)
    }

    fn program(&self, site: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()> {
        self.flash.program(site, at, page, spare)
    }

    fn erase(&self, site: Site, block: u32) -> Result<()> {
        self.flash.erase(site, block)
    }

    fn wait(&self, site: Site) -> Result<()> {
        self.flash.wait(site)
    }

    fn description(&self) -> String {
        self.flash.description()
    }
}

/// T9: a read checks the logical number, so that a chip which reads elsewhere is found out.
#[test]
fn a_page_of_another_number_is_never_served() {
    let run = |mistake| {
        let (geometry, config) = sizes(1, 8, 20, 8);
        let ram: Arc<dyn Flash> = Ram::new(geometry);
        let flash = Arc::new(Misdirected { flash: ram, wrong: std::sync::Mutex::new(None) });
        let chip: Arc<dyn Flash> = flash.clone();
        Device::format(&chip, &config, ID).unwrap();
        let device = Device::open_trial(chip.clone(), Trial { mistake }).unwrap();
        (0..8).for_each(|lpn| plain(&device, lpn, 1 + u64::from(lpn)).unwrap());
        device.flush(SITE).unwrap();
        // The first data block: its pages are those of 0 to 7, one after the other.
        let first = (0..geometry.all() as u32)
            .map(Ppn)
            .filter(|at| matches!(chip.read(*at), Ok(Read::Programmed(_, found)) if found == page(1)));
        let first: Vec<Ppn> = first.collect();
        *flash.wrong.lock().unwrap() = Some((first[0], Ppn(first[0].0 + 1)));
        value(&device, None, 0)
    };
    assert!(matches!(run(None), Err(wholly_error::Error::Corrupt { .. })));
    assert_eq!(run(Some(Mistake::ReadsAnything)).unwrap(), 2, "the mistake serves it");
}

/// The bytes of a chip, and its incarnation, after a check.
#[test]
fn a_check_that_raises_the_incarnation_is_seen() {
    let run = |mistake| {
        let (geometry, config) = sizes(1, 8, 20, 8);
        let (flash, device) = device(geometry, config);
        plain(&device, 3, 1).unwrap();
        drop(device);
        let before = stat(flash.clone()).unwrap();
        check_trial(flash.clone(), Trial { mistake }).unwrap();
        stat(flash).unwrap() == before
    };
    assert!(run(None));
    assert!(!run(Some(Mistake::LookRaises)));
}

/// Mutants that leave nothing that a crash could show, all for the same reason. An erase is asked for only if nothing
/// durable names the block. What is left of its pages has lower sequences than the last root, or is of no kind that is
/// adopted: it counts for nothing, whenever the erase comes. Programs that follow go to the same slots, so they come
/// after it. The waits are there because a chip asks for them: a block that is being erased is not programmed, which
/// the rules of flash check beside this (`Rules`).
const EQUIVALENT: &[(Site, MutationKind)] = &[
    (site::RING_ERASE, MutationKind::DelayWrite),
    (site::RING_ERASE, MutationKind::Late),
    (site::RING_WAIT, MutationKind::DropOrder),
    (site::RING_WAIT, MutationKind::Late),
    (site::ERASE, MutationKind::DelayWrite),
    (site::ERASE, MutationKind::Late),
    (site::ERASE_WAIT, MutationKind::DropOrder),
    (site::ERASE_WAIT, MutationKind::Late),
];

/// The workload that shows mutants of a site.
fn shown_by(site: Site) -> &'static str {
    match site {
        site::WRITE | site::WRITE_WAIT | site::CHAIN | site::CHAIN_WAIT => "overlaps",
        site::MOVE | site::RING_ERASE => "churn",
        site::TABLE | site::DIRECTORY | site::TABLE_WAIT => "lives",
        site::ERASE => "collection",
        site::OPEN_WAIT => "checkpoints",
        _ => "rewrites",
    }
}

/// `WHOLLY_LONG=1` tries those that are put off, too, and sees that the equivalent ones survive.
#[test]
fn every_mutant_is_caught() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    let is_long = is_long();
    for site in site::ALL.iter().filter(|site| !site.0.starts_with("xftl.format")) {
        let kinds: &[MutationKind] = match (site.0.contains("wait"), is_long) {
            (true, false) => &[MutationKind::DropOrder],
            (true, true) => &[MutationKind::DropOrder, MutationKind::Late],
            (false, false) => &[MutationKind::DropWrite],
            (false, true) => &[MutationKind::DropWrite, MutationKind::DelayWrite, MutationKind::Late],
        };
        for kind in kinds {
            let is_known = EQUIVALENT.contains(&(*site, *kind));
            if is_known && !is_long {
                continue;
            }
            let mutation = [Mutation::new(*site, *kind)];
            let mut subjects = subjects(shown_by(*site));
            let by = subjects.find_map(|subject| explore(subject, Trial::default(), &mutation, QUICK).err());
            let text: String = by.as_deref().unwrap_or("NOTHING").chars().take(120).collect();
            println!("{site:?} {kind:?}: {text}");
            if by.is_none() != is_known {
                missed.push((site.0, *kind));
            }
        }
    }
    std::panic::set_hook(hook);
    assert!(missed.is_empty(), "not as listed: {missed:?}");
}
