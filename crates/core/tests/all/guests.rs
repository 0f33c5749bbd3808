//! Guests: stores that were made for as long as something runs.

use std::fs;

use crate::common::Dir;
use wholly::{Error, Options, Store};

fn options() -> Options {
    Options { background: false, ..Options::default() }
}

/// Leaves something in the log.
fn commit(store: &Store, name: &str) {
    let mut group = store.begin();
    let file = group.create(name, 0o600).unwrap();
    group.append(&file, b"committed").unwrap();
    group.commit().unwrap();
}

fn open(dir: &std::path::Path) -> Store {
    Store::open_with(dir, options(), Default::default()).unwrap()
}

#[test]
fn a_guest_is_one_until_it_is_kept() {
    for (dir, _) in Dir::on_media("guests-kept") {
        assert!(!Store::is_temporary_in(&*dir).unwrap());
        Store::init_temporary(&*dir, &options()).unwrap();
        assert!(matches!(Store::init_temporary(&*dir, &options()), Err(Error::AlreadyAStore(_))));
        let store = open(&dir);
        commit(&store, "a");
        assert!(store.is_temporary().unwrap());
        assert!(matches!(Store::init(&*dir, &options()), Err(Error::Busy(..))));
        drop(store);
        assert!(Store::is_temporary_in(&*dir).unwrap());
        assert!(wholly::check(&*dir).unwrap().is_sound());

        let store = open(&dir);
        store.keep().unwrap();
        assert!(!store.is_temporary().unwrap());
        store.keep().unwrap();
        drop(store);
        let store = open(&dir);
        assert!(!store.is_temporary().unwrap() && !Store::is_temporary_in(&*dir).unwrap());
        store.close().unwrap();
        assert!(matches!(Store::init(&*dir, &options()), Err(Error::AlreadyAStore(_))));
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"committed");
    }
}

#[test]
fn to_make_a_store_of_a_guest_keeps_it() {
    for (dir, _) in Dir::on_media("guests-init") {
        Store::init_temporary(&*dir, &options()).unwrap();
        let store = open(&dir);
        commit(&store, "a");
        let mut group = store.begin();
        group.mkdir("b", 0o700).unwrap();
        let id = group.park("", None).unwrap();
        assert!(store.is_temporary().unwrap(), "to park something changes nothing of that");
        commit(&store, "c");
        drop(store);
        Store::init(&*dir, &options()).unwrap();
        let store = open(&dir);
        assert!(!store.is_temporary().unwrap());
        store.apply(id).unwrap();
        store.close().unwrap();
        assert!(dir.join("a").exists() && dir.join("b").exists() && dir.join("c").exists());
    }
}

#[test]
fn a_guest_goes_without_a_trace() {
    for (dir, _) in Dir::on_media("guests-gone") {
        Store::init_temporary(&*dir, &options()).unwrap();
        let store = open(&dir);
        commit(&store, "a");
        drop(store);
        open(&dir).remove().unwrap();
        assert_eq!(fs::read_dir(&*dir).unwrap().count(), 1);
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"committed");
        // What is made a store after that is one for good.
        Store::init(&*dir, &options()).unwrap();
        assert!(!open(&dir).is_temporary().unwrap());
    }
}
