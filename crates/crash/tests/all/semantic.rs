//! Mutants that lose nothing: a step is left out, two change places, a comparison has nothing to compare. What no
//! medium can break so was broken by hand in the code, and each of these tests was seen to fail then.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use wholly::{Error, Store, site};
use wholly_crash::mutants::{SEMANTIC, SEMANTIC_OF_VOLUMES, semantic, semantic_of_volume};
use wholly_crash::{Extent, Limits, Setting, bystanders, catalogue, live, run};
use wholly_sim::{Explorer, Mutation, MutationKind, SimConfig, World, os_thread};

#[test]
fn every_semantic_mutant_is_noticed() {
    let mut survivors = Vec::new();
    for mutant in SEMANTIC {
        match semantic(*mutant) {
            (name, Some(violation)) => println!("{name}: {violation}"),
            (name, None) => survivors.push(name),
        }
    }
    assert!(survivors.is_empty(), "nobody notices {survivors:#?}");
}

/// With each engine: a step of a commit, of writing back, of an open or of making a volume comes too late, or is two.
#[test]
fn every_semantic_mutant_of_a_volume_is_noticed() {
    let mut survivors = Vec::new();
    for mutant in SEMANTIC_OF_VOLUMES {
        match semantic_of_volume(*mutant) {
            (name, Some(violation)) => println!("{name}: {violation}"),
            (name, None) => survivors.push(name),
        }
    }
    assert!(survivors.is_empty(), "nobody notices {survivors:#?}");
}

/// The host gives the inode number of a removed file to the next one. Where it does not tell when that was born, the
/// two are one to a store, and what a bystander has put there is removed.
#[test]
fn an_inode_number_alone_is_no_identity() {
    for (births, noticed) in [("", false), ("@births=none", true)] {
        let setting = Setting::named(&format!("disk-ext4{births}"));
        let states = Limits::glance().states;
        let wrong: Vec<String> =
            bystanders::ALL.iter().filter_map(|them| them.explore(&setting, &states).err()).collect();
        assert_eq!(!wrong.is_empty(), noticed, "{}: {wrong:#?}", setting.name);
    }
}

/// A parked group was applied, and its file could not be removed. The pass that takes the group home removes it before
/// the tail moves past the entry that tells of it: behind that the file would be a parked group again.
#[test]
fn an_applied_group_is_never_parked_again() {
    let workload = catalogue::find("bare,park.append-A/foo,apply.1,home,append-A/foo").expect("a workload");
    for name in ["disk", "pmem", "disk-ext4"] {
        let setting = Setting::named(name);
        let fail =
            Mutation { nth: Some(0), ..Mutation::new(site::PARK_REMOVE, MutationKind::Fail(rustix::io::Errno::IO)) };
        let run = run(&workload, &setting.broken(fail));
        assert_eq!(run.failure, None, "{name}");
        let removed = run.trace.events.iter().filter(|event| event.site == Some(site::PARK_REMOVE)).count();
        assert_eq!(removed, 1, "{name}: only the pass has removed the file");
        let (mut explorer, mut wrong) = (Explorer::new(&run.trace), None);
        for point in 0..=run.trace.events.len() as u64 {
            explorer.seek(point);
            let allowed = run.allowed(point);
            explorer.for_each_image(&Limits::glance().states, |choice, image| {
                let whole = Extent { twice: false, go_on: false };
                wrong = live(&workload, &setting, image, &allowed, whole)
                    .err()
                    .map(|what| format!("{name}:{choice}: {what}"));
                if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(wrong, None);
        }
    }
}

thread_local! {
    /// The world in which a bystander acts, and before which event.
    static BYSTANDER: RefCell<Option<(Weak<World>, u64)>> = const { RefCell::new(None) };
}

const THEIRS: wholly_media::Site = wholly_media::Site("bystander");

/// Called before each host call: a bystander writes to `a`, once.
fn act_before_a_call() -> u64 {
    let due = BYSTANDER.with(|cell| {
        let mut cell = cell.borrow_mut();
        let world = cell.as_ref().and_then(|(world, event)| world.upgrade().filter(|world| world.now() == *event));
        world.inspect(|_| *cell = None)
    });
    if let Some(world) = due {
        world.host().open(b"a", true).unwrap().write_at(THEIRS, 0, b"theirs").unwrap();
    }
    os_thread()
}

/// A pass looks at a file when it is planned, so that nothing is touched where a bystander was there before, and again
/// right before it writes: the second look could be left out.
#[test]
fn a_pass_looks_at_a_file_right_before_it_writes_to_it() {
    for name in ["disk", "pmem"] {
        let setting = Setting::named(name);
        let sim = Arc::new(SimConfig { thread: act_before_a_call, ..(*setting.sim).clone() });
        let segment_bytes = setting.segment_bytes();
        let options = wholly::Options {
            segment_bytes,
            log_min_bytes: 4 * segment_bytes,
            log_max_bytes: 8 * segment_bytes,
            background: false,
            ..wholly::Options::default()
        };
        let begin = |acts_before: Option<u64>| {
            let world = World::new(sim.clone());
            world.add_file("a", &[1; 100]);
            Store::format_on(&*world.log(), &options, [1; 16]).expect("it can be made");
            let store = Store::open_on(world.log(), world.host(), options.clone(), None).expect("it opens");
            let mut group = store.begin();
            let file = group.open_file("a").expect("it is there");
            group.write_at(&file, 50, b"ours").expect("it can be written");
            group.commit().expect("it commits");
            BYSTANDER.set(acts_before.map(|event| (Arc::downgrade(&world), event)));
            let done = store.checkpoint().map(drop);
            (world, store, done)
        };
        let (world, _store, done) = begin(None);
        done.expect("nobody is in the way");
        let begins = world.trace().events.iter().position(|event| event.site == Some(site::CHECKPOINT_BEGIN));
        let (world, store, done) = begin(Some(begins.expect("a pass tells that it begins") as u64));
        assert!(BYSTANDER.with_borrow(Option::is_none), "{name}: the bystander was there");
        assert!(matches!(done, Err(Error::Conflict { .. })), "{name}: {done:?}");
        let home = world.latest().read(&wholly_sim::Place::file("a")).expect("it is there");
        assert_eq!((&home[..6], &home[50..54]), (&b"theirs"[..], &[1; 4][..]), "{name}");
        drop(store);
    }
}
