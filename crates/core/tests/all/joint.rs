//! Groups of several stores that commit together, on real directories.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use std::sync::Arc;

use crate::common::Dir;
use crate::common::mounts::this_program;
use crate::common::pair::{Memory, change, options, releasing};
use wholly::{Error, Store, StoreVfs};
use wholly_media::Site;
use wholly_sim::World;
use wholly_vfs::{Context, Groups, Ino, Mode, OFlags, Vfs};

fn open(dir: &Path) -> wholly::Result<Store> {
    Store::open_with(dir, options(), wholly_host::HostOptions::default())
}

/// A directory with a store in each of these directories, which have the file `a`.
fn stores(test: &str, names: &[&str]) -> (Dir, Vec<PathBuf>) {
    let dir = Dir::new(&std::env::temp_dir(), test);
    let all: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
    for store in &all {
        fs::create_dir(store).unwrap();
        fs::write(store.join("a"), "old").unwrap();
        Store::init(store, &options()).unwrap();
    }
    (dir, all)
}

fn is_new(dir: &Path) -> bool {
    let (a, b) = (fs::read_to_string(dir.join("a")).unwrap(), fs::read(dir.join("b")).ok());
    match (a.as_str(), b) {
        ("new", Some(b)) => b == [7; 10_000],
        ("old", None) => false,
        other => panic!("{}: {other:?}", dir.display()),
    }
}

/// What is left of joint commits in a store that nobody has open.
fn left(dir: &Path) -> Vec<String> {
    let names = |folder: &str| fs::read_dir(dir.join(".wholly").join(folder)).into_iter().flatten().flatten();
    names("joint").chain(names("parked")).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn groups_of_three_stores_commit_together() {
    let (_dir, all) = stores("joint-three", &["one", "two", "three"]);
    let stores: Vec<Store> = all.iter().map(|dir| open(dir).unwrap()).collect();
    Store::commit_together(stores.iter().map(change)).unwrap();
    for (store, dir) in stores.into_iter().zip(&all) {
        assert_eq!(store.open_file("b").unwrap().len(), 10_000);
        assert!(store.parked().unwrap().is_empty());
        store.close().unwrap();
        assert!(is_new(dir));
        assert!(left(dir).is_empty(), "{:?}", left(dir));
        assert!(wholly::check(dir).unwrap().is_sound());
    }
}

#[test]
fn what_changes_nothing_takes_no_part() {
    let (_dir, all) = stores("joint-nothing", &["one", "two"]);
    let stores: Vec<Store> = all.iter().map(|dir| open(dir).unwrap()).collect();
    Store::commit_together([stores[0].begin(), change(&stores[1])]).unwrap();
    Store::commit_together([stores[0].begin(), stores[1].begin()]).unwrap();
    stores.into_iter().for_each(|store| store.close().unwrap());
    assert!(!is_new(&all[0]) && is_new(&all[1]));
    assert!(!all[0].join(".wholly/joint").exists() && !all[1].join(".wholly/joint").exists());
}

#[test]
fn groups_of_one_store_are_refused_and_aborted() {
    let (_dir, all) = stores("joint-same", &["one"]);
    let store = open(&all[0]).unwrap();
    let mut other = store.begin();
    other.mkdir("d", 0o755).unwrap();
    assert!(matches!(Store::commit_together([change(&store), other]), Err(Error::Invalid(_))));
    assert!(matches!(Store::commit_together([]), Err(Error::Invalid(_))));
    // Both have given up what they had claimed.
    change(&store).commit().unwrap();
    store.close().unwrap();
    assert!(is_new(&all[0]));
}

#[test]
fn views_of_stores_commit_together() {
    let (_dir, all) = stores("joint-views", &["one", "two"]);
    let stores: Vec<Store> = all.iter().map(|dir| open(dir).unwrap()).collect();
    let views: Vec<StoreVfs> = stores.iter().map(StoreVfs::new).collect();
    let groups: Vec<_> = views.iter().map(|view| view.begin().unwrap()).collect();
    for (view, group) in views.iter().zip(&groups) {
        let ctx = Context { group: Some(*group), ..Context::superuser() };
        let (_, made) = view.create(&ctx, Ino::ROOT, b"b", OFlags::RDWR, Mode::from_raw_mode(0o644)).unwrap();
        view.write(&ctx, &made, 0, &[7; 10_000]).unwrap();
        view.release(&ctx, made).unwrap();
    }
    let both: Vec<_> = views.iter().zip(groups.iter().copied()).collect();
    StoreVfs::commit_together(&both).unwrap();
    assert!(matches!(StoreVfs::commit_together(&both), Err(Error::Invalid(_))));
    drop(views);
    stores.into_iter().for_each(|store| store.close().unwrap());
    assert!(all.iter().all(|dir| fs::read(dir.join("b")).unwrap() == [7; 10_000]));
}

/// What the death of the process leaves of a joint commit, as soon as something has happened here in that world.
fn killed_at(which: usize, site: Site) -> Memory {
    Memory::killed_in(|stores| Store::commit_together(stores.iter().map(change)).unwrap(), which, site)
}

#[test]
fn a_store_waits_for_a_decision_that_it_cannot_find() {
    for (site, is_decided) in [(wholly::site::JOINT_BEGIN_SYNC, false), (wholly::site::JOINT_DECIDE_SYNC, true)] {
        // In the first case only the coordinator has come so far.
        let memory = killed_at(0, site);
        let found = memory.open(1, options(), [false, true]);
        match found {
            Ok(store) if !is_decided => assert!(!memory.is_new(1, &store)),
            Err(Error::Busy(_, why)) if is_decided => assert!(why.contains("/0") && why.contains("--release"), "{why}"),
            other => panic!("{other:?}"),
        }
        // It is found again, and says what it did say.
        let store = memory.open(1, options(), [true; 2]).unwrap();
        assert_eq!(memory.is_new(1, &store), is_decided);
        assert_eq!(store.decided().committed.len(), usize::from(is_decided));
        let coordinator = memory.open(0, options(), [true; 2]).unwrap();
        assert_eq!(memory.is_new(0, &coordinator), is_decided);
    }
}

#[test]
fn what_was_not_decided_is_undone_and_told() {
    let memory = killed_at(1, wholly::site::JOINT_PREPARE_SYNC);
    for which in [1, 0] {
        let store = memory.open(which, options(), [true; 2]).unwrap();
        assert!(!memory.is_new(which, &store));
        assert_eq!(store.decided().undone.len(), 1);
        assert!(store.parked().unwrap().is_empty());
        store.close().unwrap();
    }
    // Nobody will ask the coordinator again.
    let store = memory.open(0, options(), [true; 2]).unwrap();
    assert!(store.decided().undone.is_empty());
    store.remove().unwrap();
}

#[test]
fn who_waits_in_vain_can_be_released() {
    let memory = killed_at(0, wholly::site::JOINT_DECIDE_SYNC);
    let store = memory.open(1, releasing(), [false, true]).unwrap();
    assert!(!memory.is_new(1, &store));
    let released = store.decided().released;
    assert_eq!((released.len(), released[0].coordinator.as_str()), (1, "/0"));
    assert!(released[0].mismatches.is_empty());
    // Somebody who knows better applies it, or does not.
    assert_eq!(store.parked().unwrap()[0].id, released[0].id);
    store.apply(released[0].id).unwrap();
    assert!(memory.is_new(1, &store));
    store.close().unwrap();
}

#[test]
fn a_coordinator_stays_while_somebody_may_ask_it() {
    let memory = killed_at(0, wholly::site::JOINT_DECIDE_SYNC);
    let coordinator = memory.open(0, options(), [true; 2]).unwrap();
    assert!(memory.is_new(0, &coordinator));
    let refused = coordinator.remove();
    assert!(matches!(&refused, Err(Error::Busy(_, why)) if why.contains("joint commit")), "{refused:?}");
    // Nor does it go while the other one cannot be found.
    let coordinator = memory.open(0, options(), [true, false]).unwrap();
    assert!(matches!(coordinator.remove(), Err(Error::Busy(..))));
    memory.open(1, options(), [true; 2]).unwrap().close().unwrap();
    memory.open(0, options(), [true; 2]).unwrap().remove().unwrap();
}

/// Gives a file of a world other bytes.
fn rot(world: &Arc<World>, folder: &[u8], end: &[u8]) {
    let host = world.host();
    let name = host.read_dir(folder).unwrap().into_iter().map(|entry| entry.name).find(|name| name.ends_with(end));
    let path = [folder, b"/", &name.unwrap()].concat();
    host.open(&path, true).unwrap().write_at(wholly::site::JOINT_WRITE, 40, &[0xff; 8]).unwrap();
}

#[test]
fn a_record_that_has_rotted_decides_nothing() {
    let memory = killed_at(0, wholly::site::JOINT_DECIDE_SYNC);
    rot(&memory.worlds[0], b".wholly/joint", b".decided");
    for which in [0, 1] {
        let refused = memory.open(which, options(), [true; 2]);
        assert!(matches!(&refused, Err(Error::Busy(_, why)) if why.contains("checksum")), "{refused:?}");
    }
    for which in [1, 0] {
        let store = memory.open(which, releasing(), [true; 2]).unwrap();
        assert!(!memory.is_new(which, &store));
        assert_eq!((store.decided().released.len(), store.parked().unwrap().len()), (1, 1));
    }
    // Nobody asks for it any more.
    assert!(!memory.open(0, options(), [true; 2]).unwrap().may_be_asked().unwrap());
}

#[test]
fn a_prepared_group_that_has_rotted_is_released_as_damaged() {
    let memory = killed_at(0, wholly::site::JOINT_DECIDE_SYNC);
    rot(&memory.worlds[1], b".wholly/parked", b".prepared");
    assert!(matches!(memory.open(1, options(), [true; 2]), Err(Error::Corrupt { .. })));
    let store = memory.open(1, releasing(), [true; 2]).unwrap();
    let parked = store.parked().unwrap();
    assert!(parked[0].unreadable.is_some(), "{parked:?}");
    store.discard(parked[0].id).unwrap();
    assert!(!memory.is_new(1, &store));
}

#[test]
fn stores_that_could_be_taken_for_each_other_are_refused() {
    let (_dir, all) = stores("joint-nested", &["outer"]);
    let inner = all[0].join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("a"), "old").unwrap();
    Store::init(&inner, &options()).unwrap();
    let [outer, inner] = [&all[0], &inner].map(|dir| open(dir).unwrap());
    let refused = Store::commit_together([change(&outer), change(&inner)]);
    assert!(matches!(&refused, Err(Error::Unsupported(why)) if why.contains("one inside the other")), "{refused:?}");
    // Nothing is left of it.
    [outer, inner].into_iter().for_each(|store| store.remove().unwrap());
    assert!(!is_new(&all[0]) && !is_new(&all[0].join("inner")));

    let (dir, all) = stores("joint-copied", &["one"]);
    open(&all[0]).unwrap().close().unwrap();
    let copy = dir.join("copy");
    assert!(Command::new("cp").arg("-a").args([&all[0], &copy]).status().unwrap().success());
    let [one, copy] = [&all[0], &copy].map(|dir| open(dir).unwrap());
    let refused = Store::commit_together([change(&one), change(&copy)]);
    assert!(matches!(&refused, Err(Error::Unsupported(why)) if why.contains("its copy")), "{refused:?}");
}

#[test]
fn a_participant_that_is_away_may_ask_and_one_that_has_settled_does_not() {
    let memory = killed_at(0, wholly::site::JOINT_DECIDE_SYNC);
    let second = memory.open(1, options(), [true; 2]).unwrap();
    assert!(memory.is_new(1, &second));
    second.close().unwrap();
    let coordinator = memory.open(0, options(), [true, false]).unwrap();
    assert!(coordinator.may_be_asked().unwrap(), "it may only be away");
    drop(coordinator);
    assert!(!memory.open(0, options(), [true; 2]).unwrap().may_be_asked().unwrap());
}

#[test]
fn what_a_bystander_has_overtaken_is_parked() {
    let memory = killed_at(0, wholly::site::JOINT_DECIDE_SYNC);
    let site = wholly::site::CHECKPOINT_DATA;
    memory.worlds[1].host().create(site, b"b", 0o644).unwrap().write_at(site, 0, b"mine").unwrap();
    let store = memory.open(1, options(), [true; 2]).unwrap();
    let released = store.decided().released;
    assert_eq!(released.len(), 1);
    assert_eq!(released[0].mismatches.iter().map(|wrong| wrong.path.to_str().unwrap()).collect::<Vec<_>>(), ["b"]);
    assert!(matches!(store.apply(released[0].id), Err(Error::ChangedMeanwhile(..))));
    let mut mine = [0; 4];
    store.open_file("b").unwrap().read_at(0, &mut mine).unwrap();
    assert_eq!(&mine, b"mine");
    // The other one has it: nobody can have both.
    assert!(memory.is_new(0, &memory.open(0, options(), [true; 2]).unwrap()));
}

const DIRECTORY: &str = "WHOLLY_TEST_JOINT_DIRECTORY";
const STORES: [&str; 2] = ["one", "two"];

fn both(dir: &Path) -> [Store; 2] {
    STORES.map(|name| open(&dir.join(name)).unwrap())
}

/// What is killed. As a test of its own it does nothing.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    let stores = both(Path::new(&dir));
    for round in 1u64.. {
        let groups = stores.iter().map(|store| {
            let mut group = store.begin();
            let a = group.open_file("a").unwrap();
            let before = round_of(store);
            group.write_at(&a, 0, &(before + 1).to_le_bytes()).unwrap();
            group
        });
        Store::commit_together(groups).unwrap();
        writeln!(std::io::stdout(), "committed {round}").unwrap();
    }
}

fn round_of(store: &Store) -> u64 {
    let mut bytes = [0; 8];
    store.open_file("a").unwrap().read_at(0, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Killed again and again, and moved each time: the stores find each other by where they lie from each other.
#[test]
fn a_killed_process_leaves_all_or_nothing_wherever_the_stores_move() {
    let dir = Dir::new(&std::env::temp_dir(), "joint-killed");
    let mut here = dir.join("0");
    for name in STORES {
        fs::create_dir_all(here.join(name)).unwrap();
        fs::write(here.join(name).join("a"), [0; 8]).unwrap();
        Store::init(here.join(name), &options()).unwrap();
    }
    let mut last = 0;
    for kill in 1..=12u64 {
        let mut child = this_program(child).env(DIRECTORY, &here).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let committed = lines.map_while(Result::ok).filter(|line| line.starts_with("committed"));
        let acknowledged = committed.take(1 + kill as usize * 7 % 20).count() as u64;
        child.kill().unwrap();
        child.wait().unwrap();
        let moved = dir.join(kill.to_string());
        fs::rename(&here, &moved).unwrap();
        here = moved;
        // Each comes first at times.
        let order = if kill % 2 == 0 { [0, 1] } else { [1, 0] };
        let stores = order.map(|which| open(&here.join(STORES[which])).unwrap());
        let rounds = stores.each_ref().map(round_of);
        assert_eq!(rounds[0], rounds[1], "kill {kill}: one has the last group, and the other has not");
        assert!(rounds[0] >= last + acknowledged, "kill {kill}: {rounds:?}, {last} and {acknowledged} were committed");
        last = rounds[0];
    }
    both(&here).into_iter().for_each(|store| store.close().unwrap());
    both(&here).into_iter().for_each(|store| store.remove().unwrap());
}
