//! Parked groups of several stores that are applied together.

use std::time::Duration;

use crate::common::pair::{Memory, at_once, change, loss, options, releasing};
use rustix::io::Errno;
use wholly::{Error, ParkedId, Store, site};
use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind, SimConfig};

fn park_both(stores: &[Store; 2]) -> [ParkedId; 2] {
    stores.each_ref().map(|store| change(store).park("", None).unwrap())
}

fn apply_both(stores: &[Store; 2], ids: [ParkedId; 2]) -> wholly::Result<()> {
    Store::apply_together(stores.iter().zip(ids))
}

/// What the death of the process leaves of it, as soon as something has happened here in that world.
fn killed_at(which: usize, site: Site) -> Memory {
    Memory::killed_in(|stores| apply_both(stores, park_both(stores)).unwrap(), which, site)
}

fn open_both(memory: &Memory) -> [Store; 2] {
    [0, 1].map(|which| memory.open(which, options(), [true; 2]).unwrap())
}

/// Names of what is in the folder of parked groups of a world.
fn set_aside(memory: &Memory, which: usize) -> usize {
    memory.worlds[which].host().read_dir(b".wholly/parked").unwrap().len()
}

#[test]
fn both_are_committed_and_parked_no_more() {
    let memory = Memory::new();
    let stores = open_both(&memory);
    let ids = park_both(&stores);
    apply_both(&stores, ids).unwrap();
    for (which, store) in stores.into_iter().enumerate() {
        assert!(memory.is_new(which, &store) && store.parked().unwrap().is_empty());
        assert!(matches!(store.apply(ids[which]), Err(Error::NotFound(_))));
        store.close().unwrap();
        assert_eq!(set_aside(&memory, which), 0);
    }
}

#[test]
fn both_stay_parked_where_one_does_not_fit_any_more() {
    for wrong in [0, 1] {
        let memory = Memory::new();
        let stores = open_both(&memory);
        let ids = park_both(&stores);
        let mut other = stores[wrong].begin();
        let made = other.create("b", 0o644).unwrap();
        other.append(&made, b"mine").unwrap();
        other.commit().unwrap();
        match apply_both(&stores, ids) {
            Err(Error::ChangedMeanwhile(id, why)) => {
                assert_eq!((id, why.len(), why[0].path.to_str().unwrap()), (ids[wrong], 1, "b"))
            }
            other => panic!("{other:?}"),
        }
        let fine = 1 - wrong;
        assert!(!memory.is_new(fine, &stores[fine]));
        // Nothing is claimed: the one that fits can be applied by itself.
        stores[fine].apply(ids[fine]).unwrap();
        assert!(memory.is_new(fine, &stores[fine]));
        stores[wrong].discard(ids[wrong]).unwrap();
        assert_eq!(stores.map(|store| store.parked().unwrap().len()), [0, 0]);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let memory = Memory::new();
    let stores = open_both(&memory);
    let ids = park_both(&stores);
    assert!(matches!(Store::apply_together([]), Err(Error::Invalid(_))));
    let twice = [(&stores[0], ids[0]), (&stores[0], ids[0])];
    assert!(matches!(Store::apply_together(twice), Err(Error::Invalid(_))));
    let absent = ParkedId(ids[1].0 + 77);
    assert!(matches!(apply_both(&stores, [ids[0], absent]), Err(Error::NotFound(_))));
    assert_eq!(stores.each_ref().map(|store| store.parked().unwrap().len()), [1, 1]);
    Store::apply_together([(&stores[1], ids[1])]).unwrap();
    assert!(memory.is_new(1, &stores[1]) && !memory.is_new(0, &stores[0]));
}

#[test]
fn a_crash_before_the_decision_leaves_both_parked() {
    for (which, at) in [(0, site::JOINT_BEGIN_SYNC), (0, site::JOINT_PREPARE_SYNC), (1, site::JOINT_PREPARE_SYNC)] {
        let memory = killed_at(which, at);
        let stores = open_both(&memory);
        for (which, store) in stores.iter().enumerate() {
            assert!(!memory.is_new(which, store), "{at:?}");
            assert_eq!((store.parked().unwrap().len(), set_aside(&memory, which)), (1, 1), "{at:?}");
        }
        let ids = stores.each_ref().map(|store| store.parked().unwrap()[0].id);
        apply_both(&stores, ids).unwrap();
        stores.iter().enumerate().for_each(|(which, store)| assert!(memory.is_new(which, store)));
    }
}

#[test]
fn a_crash_after_the_decision_leaves_none_parked() {
    for order in [[0, 1], [1, 0]] {
        let memory = killed_at(0, site::JOINT_DECIDE_SYNC);
        for which in order {
            let store = memory.open(which, options(), [true; 2]).unwrap();
            assert!(memory.is_new(which, &store) && store.parked().unwrap().is_empty());
            assert_eq!(store.decided().committed.len(), 1);
            store.close().unwrap();
            assert_eq!(set_aside(&memory, which), 0);
        }
    }
}

#[test]
fn who_is_released_has_it_parked_once() {
    let memory = killed_at(0, site::JOINT_DECIDE_SYNC);
    assert_eq!(set_aside(&memory, 1), 2, "the parked one, and the prepared one");
    let store = memory.open(1, releasing(), [false, true]).unwrap();
    let released = store.decided().released;
    let still = store.parked().unwrap();
    assert_eq!((released.len(), still.len(), set_aside(&memory, 1)), (1, 1, 1));
    assert_eq!(released[0].id, still[0].id);
    assert!(!memory.is_new(1, &store));
    store.apply(still[0].id).unwrap();
    assert!(memory.is_new(1, &store) && store.parked().unwrap().is_empty());
}

/// What expires by itself is not what a store that was released may have: others have committed their part.
#[test]
fn who_is_released_has_what_does_not_expire() {
    const KEEP: Option<Duration> = Some(Duration::from_secs(3600));
    let park_and_apply = |stores: &[Store; 2]| {
        let ids = stores.each_ref().map(|store| change(store).park("", KEEP).unwrap());
        apply_both(stores, ids).unwrap();
    };
    let memory = Memory::killed_in(park_and_apply, 0, site::JOINT_DECIDE_SYNC);
    let store = memory.open(1, releasing(), [false, true]).unwrap();
    let still = store.parked().unwrap();
    assert_eq!((still.len(), still[0].expires_ns, set_aside(&memory, 1)), (1, None, 1));
    assert_eq!(store.decided().released[0].id, still[0].id);
    store.apply(still[0].id).unwrap();
    assert!(memory.is_new(1, &store) && store.parked().unwrap().is_empty());
}

/// The same where the stores write groups back as part of their commit.
fn killed_at_once(which: usize, site: Site) -> Memory {
    Memory::killed_with(&at_once(), |stores| apply_both(stores, park_both(stores)).unwrap(), which, site)
}

#[test]
fn a_crash_while_they_are_written_back_leaves_both_parked() {
    // In the last one all of the first part is in the directory.
    for (which, at) in [(0, site::UNDO_SYNC), (1, site::UNDO_RENAME), (1, site::UNDO_SYNC)] {
        for first in [0, 1] {
            let memory = killed_at_once(which, at);
            let stores = [first, 1 - first].map(|which| memory.open(which, at_once(), [true; 2]).unwrap());
            let stores = if first == 0 {
                stores
            } else {
                let [one, zero] = stores;
                [zero, one]
            };
            for (which, store) in stores.iter().enumerate() {
                assert!(!memory.is_new(which, store), "{at:?}");
                assert_eq!(store.parked().unwrap().len(), 1, "{at:?}");
            }
            let ids = stores.each_ref().map(|store| store.parked().unwrap()[0].id);
            apply_both(&stores, ids).unwrap();
            stores.iter().enumerate().for_each(|(which, store)| assert!(memory.is_new(which, store)));
        }
    }
}

#[test]
fn a_crash_once_they_are_written_back_and_decided_leaves_none_parked() {
    for (which, at) in [(0, site::JOINT_DECIDE_SYNC), (0, site::UNDO_END), (1, site::UNDO_END)] {
        for order in [[0, 1], [1, 0]] {
            let memory = killed_at_once(which, at);
            for which in order {
                let store = memory.open(which, at_once(), [true; 2]).unwrap();
                assert!(memory.is_new(which, &store) && store.parked().unwrap().is_empty(), "{at:?}");
                store.close().unwrap();
                assert_eq!(set_aside(&memory, which), 0, "{at:?}");
            }
        }
    }
}

#[test]
fn who_is_released_has_undone_what_was_written_back_and_has_it_parked() {
    let memory = killed_at_once(0, site::JOINT_DECIDE_SYNC);
    assert!(matches!(memory.open(1, at_once(), [false, true]), Err(Error::Busy(..))));
    let store = memory.open(1, releasing(), [false, true]).unwrap();
    let (released, still) = (store.decided().released, store.parked().unwrap());
    assert_eq!((released.len(), still.len(), released[0].id), (1, 1, still[0].id));
    assert!(!memory.is_new(1, &store));
    store.apply(still[0].id).unwrap();
    assert!(memory.is_new(1, &store) && store.parked().unwrap().is_empty());
    store.close().unwrap();
}

#[test]
fn what_the_host_refuses_one_of_them_leaves_both_parked() {
    for refusing in [0, 1] {
        let refused = Mutation::new(site::NAMES_MAKE, MutationKind::Fail(Errno::PERM));
        let mut worlds = [SimConfig::disk(), SimConfig::disk()];
        worlds[refusing].mutations.push(refused);
        let memory = Memory::of(worlds);
        let stores = [0, 1].map(|which| memory.open(which, at_once(), [true; 2]).unwrap());
        let ids = park_both(&stores);
        let error = apply_both(&stores, ids).unwrap_err();
        assert_eq!(Errno::from(error.clone()), Errno::PERM, "{error}");
        assert!(error.to_string().contains(&format!("/{refusing}")), "{error}");
        for (which, store) in stores.into_iter().enumerate() {
            assert!(!memory.is_new(which, &store));
            assert_eq!(store.parked().unwrap().iter().map(|parked| parked.id).collect::<Vec<_>>(), [ids[which]]);
            store.close().unwrap();
            assert!(memory.worlds[which].host().stat(b"b").is_err());
        }
    }
}

/// In the first world a group takes something away: to undo that needs space.
fn apply_loss(stores: &[Store; 2]) -> wholly::Result<()> {
    let ids = [loss(&stores[0]), change(&stores[1])].map(|group| group.park("", None).unwrap());
    apply_both(stores, ids)
}

/// An open of the first store without space fails, and the next one undoes what was taken away.
fn is_undone_once_there_is_space(memory: &Memory) {
    memory.worlds[0].has_free(0);
    let refused = memory.open(0, at_once(), [true; 2]);
    assert!(matches!(&refused, Err(Error::Busy(_, why)) if why.contains("--release")), "{refused:?}");
    memory.worlds[0].has_free(1 << 20);
    let store = memory.open(0, at_once(), [true; 2]).unwrap();
    for (name, expected) in [("a", &b"old"[..]), ("c", b"stays")] {
        let (file, mut bytes) = (store.open_file(name).unwrap(), [0; 9]);
        let read = file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes[..read], expected, "{name}");
    }
    assert_eq!(store.parked().unwrap().len(), 1);
    store.close().unwrap();
}

/// The group that undoes another one looks for space by a checkpoint, which must not move the tail past the other one.
#[test]
fn what_there_is_no_space_to_undo_the_next_open_undoes() {
    let refused = Mutation::new(site::NAMES_MAKE, MutationKind::Fail(Errno::PERM));
    let memory = Memory::of([SimConfig::disk(), SimConfig { mutations: vec![refused], ..SimConfig::disk() }]);
    let stores = [0, 1].map(|which| memory.open(which, at_once(), [true; 2]).unwrap());
    memory.worlds[0].has_free(0);
    let error = apply_loss(&stores).unwrap_err();
    assert!(matches!(error, Error::Poisoned(_)), "{error}");
    assert!(!memory.is_new(1, &stores[1]));
    drop(stores);
    is_undone_once_there_is_space(&memory);
}

#[test]
fn what_a_recovery_has_no_space_to_undo_the_next_one_undoes() {
    // Before the group is in the directory, and once it is.
    for at in [site::CHECKPOINT_BEGIN, site::CHECKPOINT_SYNC] {
        let memory = Memory::killed_with(&at_once(), |stores| apply_loss(stores).unwrap(), 0, at);
        is_undone_once_there_is_space(&memory);
    }
}

/// Not "decided": the other parts are undone.
#[test]
fn what_was_not_decided_and_cannot_be_undone_is_kept_only_where_it_is_released() {
    let killed = || Memory::killed_with(&at_once(), |stores| apply_loss(stores).unwrap(), 0, site::CHECKPOINT_SYNC);
    let (without_space, with_rot) = (killed(), killed());
    without_space.worlds[0].has_free(0);
    let host = with_rot.worlds[0].host();
    let undo = host.read_dir(b".wholly/parked").unwrap().into_iter().find(|entry| entry.name.ends_with(b".undo"));
    let undo = host.open(&[b".wholly/parked/", &undo.unwrap().name[..]].concat(), true).unwrap();
    undo.write_at(site::PARK_WRITE, 40, &[0xff; 8]).unwrap();
    for memory in [without_space, with_rot] {
        let refused = memory.open(0, at_once(), [true; 2]);
        assert!(matches!(&refused, Err(Error::Busy(_, why)) if why.contains("--release")), "{refused:?}");
        let store = memory.open(0, releasing(), [true; 2]).unwrap();
        let decided = store.decided();
        assert_eq!((decided.committed.len(), decided.kept.len()), (0, 1), "{decided:?}");
        assert!(store.open_file("c").is_err() && store.parked().unwrap().is_empty());
        store.close().unwrap();
        memory.open(0, at_once(), [true; 2]).unwrap().close().unwrap();
        assert!(memory.worlds[0].host().stat(b"c").is_err());
    }
}
