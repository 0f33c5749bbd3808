//! Another user exchanges what is in his directory before a call on the host, before each of them in turn, while a
//! group of the superuser's goes home: nothing comes of it outside of that directory, and once it is as it was, the
//! group goes home.
//!
//! Needs root.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::hostile::{SWAPS, Swap, change_all, exchange, furnish, look_before};
use crate::common::{Dir, small};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use wholly::{Error, KeepUndo, Options, ParkedId, Store};
use wholly_host::{HostDir, HostMedium, HostOptions, StoreHome, Trust};

/// A directory at each call of which something happens first.
struct Watched {
    dir: Arc<HostDir>,
    calls: AtomicU64,
    before: Mutex<Box<dyn FnMut(u64) + Send>>,
}

impl Watched {
    fn call(&self) -> &HostDir {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        (self.before.lock().unwrap())(call);
        &self.dir
    }
}

wholly_host::pass_on! {
    Watched;
    ask |this| &*this.dir;
    call |this, _name| this.call();
    HostFs {
        fn space(&self) -> Result<Space> {
            self.dir.space()
        }
    }
    HostNames {}
}

/// Opens the store in a directory, with this at each call on that.
fn open_watched(
    dir: &Path,
    before: impl FnMut(u64) + Send + 'static,
) -> wholly::Result<(Store, Arc<Watched>, StoreHome)> {
    open_with(dir, small(), before)
}

fn open_with(
    dir: &Path,
    options: Options,
    before: impl FnMut(u64) + Send + 'static,
) -> wholly::Result<(Store, Arc<Watched>, StoreHome)> {
    let host = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
    let host = Arc::new(HostDir::open(dir, host)?);
    let home = StoreHome::open(&host, Trust::Own).expect("the folder");
    let region = home.open_region("log")?;
    let dir = home.dir().clone();
    let watched = Arc::new(Watched { dir, calls: AtomicU64::new(0), before: Mutex::new(Box::new(before)) });
    let store = Store::open_on(region, watched.clone(), options, None)?;
    Ok((store, watched, home))
}

/// Has a group go home, beside whatever is done before each call; afterwards all is as it was. Gives how many calls
/// that took.
fn go_home(
    what: &str,
    (recovers, changes_files): (bool, bool),
    before: impl Fn(&Path, u64) + Send + 'static,
    after: impl Fn(&Path),
) -> u64 {
    let thread = std::thread::current();
    let dir = Dir::new(Path::new("/dev/shm"), thread.name().unwrap_or("exchanged"));
    furnish(&dir);
    Store::init_with(&*dir, &small(), HostOptions { medium: HostMedium::Disk, ..HostOptions::default() }).unwrap();
    let outside = look_before(&dir);
    let path = dir.to_path_buf();
    let (store, watched, folder) = open_watched(&dir, |_| {}).unwrap();
    let mut group = store.begin();
    change_all(&mut group);
    group.commit().unwrap();
    let calls = if recovers {
        drop((store, watched, folder));
        match open_watched(&dir, move |call| before(&path, call)) {
            Ok((store, watched, _folder)) => {
                let _ = store.checkpoint();
                watched.calls.load(Ordering::Relaxed)
            }
            Err(_) => 0,
        }
    } else {
        watched.calls.store(0, Ordering::Relaxed);
        *watched.before.lock().unwrap() = Box::new(move |call| before(&path, call));
        let _ = store.checkpoint();
        *watched.before.lock().unwrap() = Box::new(|_| {});
        drop((store, folder));
        watched.calls.load(Ordering::Relaxed)
    };
    after(&dir);
    outside.check(&dir, what);
    let (store, _, _folder) = open_watched(&dir, |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
    match store.checkpoint() {
        Ok(_) => outside.check_home(&dir, what),
        // To be exchanged changes the file, too.
        Err(Error::Conflict { path, .. }) if changes_files => outside.check(&dir, &format!("{what}, {path}")),
        Err(error) => panic!("{what}: {error}"),
    }
    calls
}

/// Exchanged before a call, and back before the next one.
fn blink(swap: Swap, recovers: bool) {
    let calls = go_home("nothing is exchanged", (recovers, false), |_, _| {}, |_| {});
    assert!(calls > 50, "{calls} calls");
    for at in 0..calls {
        let is_over = Arc::new(AtomicU64::new(0));
        let (over, ended) = (is_over.clone(), is_over.clone());
        let before = move |dir: &Path, call: u64| {
            if call == at || call == at + 1 {
                exchange(dir, swap);
                over.fetch_add(1, Ordering::Relaxed);
            }
        };
        let after = move |dir: &Path| {
            if ended.load(Ordering::Relaxed) == 1 {
                exchange(dir, swap);
            }
        };
        go_home(
            &format!("{swap:?} at call {at}, recovers: {recovers}"),
            (recovers, swap == Swap::Objects),
            before,
            after,
        );
    }
}

/// Exchanged before a call, for good.
fn stay(swap: Swap, recovers: bool) {
    let calls = go_home("nothing is exchanged", (recovers, false), |_, _| {}, |_| {});
    for at in 0..calls {
        let before = move |dir: &Path, call: u64| {
            if call == at {
                exchange(dir, swap);
            }
        };
        let after = move |dir: &Path| exchange(dir, swap);
        go_home(
            &format!("{swap:?} from call {at}, recovers: {recovers}"),
            (recovers, swap == Swap::Objects),
            before,
            after,
        );
    }
}

#[test]
fn an_exchange_for_one_call_leads_nowhere() {
    SWAPS.iter().for_each(|swap| blink(*swap, false));
}

#[test]
fn an_exchange_from_a_call_on_leads_nowhere() {
    SWAPS.iter().for_each(|swap| stay(*swap, false));
}

#[test]
fn an_exchange_for_one_call_of_a_recovery_leads_nowhere() {
    SWAPS.iter().for_each(|swap| blink(*swap, true));
}

#[test]
fn an_exchange_from_a_call_of_a_recovery_on_leads_nowhere() {
    SWAPS.iter().for_each(|swap| stay(*swap, true));
}

/// What another program exchanges for an object of its own: files that a group removes, replaces and moves, and such
/// directories.
const TAKEN: [&str; 5] = ["f", "g", "d", "e", "k"];

/// The inode of what lies at a path, if there is anything.
fn inode(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|stat| stat.ino())
}

/// Another program puts an object of its own in the place of `taken` before call `at` of a checkpoint; the process dies
/// at the call `dies`. Whether there were so many calls.
fn take(taken: &str, at: u64, dies: Option<u64>) -> bool {
    let what = format!("{taken} before call {at}, death at {dies:?}");
    let thread = std::thread::current();
    let dir = Dir::new(Path::new("/dev/shm"), thread.name().unwrap_or("taken"));
    for name in ["f", "g", "h", "k"] {
        std::fs::write(dir.join(name), name).unwrap();
    }
    for name in ["d", "e", "theirs"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    let is_dir = matches!(taken, "d" | "e");
    let theirs = dir.join("theirs").join(taken);
    if is_dir {
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(theirs.join("inner"), "theirs").unwrap();
    } else {
        std::fs::write(&theirs, "theirs").unwrap();
    }
    let their_inode = inode(&theirs);
    Store::init_with(&*dir, &small(), HostOptions { medium: HostMedium::Disk, ..HostOptions::default() }).unwrap();
    let (store, watched, folder) = open_watched(&dir, |_| {}).unwrap();
    let mut group = store.begin();
    group.unlink("f").unwrap();
    group.rename("h", "g", wholly::Rename::Replace).unwrap();
    group.rmdir("d").unwrap();
    group.rename("e", "e2", wholly::Rename::NoReplace).unwrap();
    group.rename("k", "k2", wholly::Rename::NoReplace).unwrap();
    group.commit().unwrap();
    let path = dir.to_path_buf();
    let name = taken.to_owned();
    watched.calls.store(0, Ordering::Relaxed);
    *watched.before.lock().unwrap() = Box::new(move |call| {
        if call == at {
            let flags = if is_dir { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
            let paths = [path.join("theirs").join(&name), path.join(&name)];
            let [from, to] = paths.map(|path| path.into_os_string().into_vec());
            // Where it is gone already, theirs is a new one.
            let _ = renameat_with(CWD, &from[..], CWD, &to[..], flags);
        }
        if dies.is_some_and(|dies| call >= dies) {
            std::panic::resume_unwind(Box::new("death"));
        }
    });
    let checkpoint = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.checkpoint().map(drop)));
    let calls = watched.calls.load(Ordering::Relaxed);
    match &checkpoint {
        Ok(done) => {
            assert!(!matches!(done, Err(Error::Poisoned(_))), "{what}: {done:?}");
            *watched.before.lock().unwrap() = Box::new(|_| {});
            drop((store, folder));
        }
        Err(_) => {
            std::mem::forget(store);
            drop(folder);
        }
    }
    let (store, _, _folder) = open_watched(&dir, |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
    match store.checkpoint() {
        Ok(_) | Err(Error::Conflict { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
    }
    let places = [dir.join(taken), theirs.clone(), dir.join("e2"), dir.join("k2")];
    let lies = places.iter().find(|place| inode(place) == their_inode);
    let Some(lies) = lies else { panic!("{what}: theirs is gone, {checkpoint:?}") };
    let content = std::fs::read(if is_dir { lies.join("inner") } else { lies.clone() }).unwrap();
    assert_eq!(content, b"theirs", "{what}");
    assert!(!lies.ends_with("e2") && !lies.ends_with("k2"), "{what}: theirs was moved");
    calls > at
}

#[test]
fn what_another_program_puts_there_is_not_lost() {
    for taken in TAKEN {
        let mut at = 0;
        while take(taken, at, None) {
            for after in 0..6 {
                take(taken, at, Some(at + after));
            }
            at += 1;
        }
        assert!(at > 20, "{taken}: {at} calls");
    }
}

/// What another folder would make, if anybody did what is written in it: a program that runs as the superuser.
const TRAP: &str = "rootshell";

/// Inode, mode, time of change and content of an object.
type Described = (u64, u32, (i64, i64), Option<Vec<u8>>);

/// All that is in a directory.
fn all_of(dir: &Path) -> BTreeMap<PathBuf, Described> {
    let (mut all, mut todo) = (BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(dir) = todo.pop() {
        for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let stat = std::fs::symlink_metadata(&path).unwrap();
            if stat.is_dir() {
                todo.push(path.clone());
            }
            let content = stat.is_file().then(|| std::fs::read(&path).unwrap());
            all.insert(path, (stat.ino(), stat.mode(), (stat.ctime(), stat.ctime_nsec()), content));
        }
    }
    all
}

/// What a store does while its folder is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Apply,
    Undo,
    Park,
    Commit,
    Recover,
}

/// Makes what the work is about: in the folder that is put in the place of the store's own, about the trap.
fn prepare(dir: &Path, work: Work, is_trap: bool) -> ParkedId {
    let keep = KeepUndo { note: "kept".into(), expires: Duration::from_secs(1000), most_bytes: 1 << 30 };
    let (store, _, _folder) = open_with(dir, Options { at_once: true, ..small() }, |_| {}).unwrap();
    let name = if is_trap { TRAP } else { "file" };
    let mut group = store.begin();
    let id = match work {
        Work::Apply => {
            group.create(name, 0o4755).unwrap();
            group.park("parked", None).unwrap()
        }
        Work::Undo => {
            group.unlink(name).unwrap();
            group.keep_undo(&keep).unwrap();
            group.commit().unwrap();
            store.undos().unwrap()[0].id
        }
        Work::Park | Work::Commit | Work::Recover => {
            group.create(name, 0o4755).unwrap();
            group.park("parked", None).unwrap()
        }
    };
    if work != Work::Recover {
        store.close().unwrap();
    }
    id
}

/// Does the work, with the folder exchanged for another one before call `at`, and back before the call after it unless
/// it `stays`. Gives how many calls there were.
fn in_another_folder(work: Work, at: u64, stays: bool) -> u64 {
    let what = format!("{work:?}, exchanged at call {at}, stays: {stays}");
    let thread = std::thread::current();
    let above = Dir::new(Path::new("/dev/shm"), thread.name().unwrap_or("folder"));
    let (dir, other) = (above.join("dir"), above.join("other"));
    let is_undo = work == Work::Undo;
    let options = Options { at_once: work != Work::Recover, ..small() };
    std::fs::create_dir(&dir).unwrap();
    for name in ["a", "file"] {
        std::fs::write(dir.join(name), name).unwrap();
    }
    if is_undo {
        std::fs::write(dir.join(TRAP), "#!").unwrap();
    }
    Store::init_with(&dir, &small(), HostOptions { medium: HostMedium::Disk, ..HostOptions::default() }).unwrap();
    assert!(Command::new("cp").arg("-a").args([&dir, &other]).status().unwrap().success());
    if is_undo {
        std::fs::remove_file(dir.join(TRAP)).unwrap();
    } else {
        std::fs::remove_file(dir.join("file")).unwrap();
    }
    let evil = prepare(&other, work, true);
    let id = prepare(&dir, work, false);
    assert_eq!(evil, id, "{what}");
    std::fs::rename(other.join(".wholly"), dir.join("evil")).unwrap();
    let before = all_of(&dir.join("evil"));

    let exchange = {
        let [a, b] = [".wholly", "evil"].map(|name| dir.join(name).into_os_string().into_vec());
        move || renameat_with(CWD, &a[..], CWD, &b[..], RenameFlags::EXCHANGE).unwrap()
    };
    let swaps = Arc::new(AtomicU64::new(0));
    let hook = {
        let (exchange, swaps) = (exchange.clone(), swaps.clone());
        move |call: u64| {
            if call == at || call == at + 1 && !stays {
                exchange();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let keep = KeepUndo { note: "again".into(), expires: Duration::from_secs(1000), most_bytes: 1 << 30 };
    let mut calls = 0;
    if let Ok((store, watched, _folder)) = open_with(&dir, options, hook) {
        // How it ends is another question.
        let _ = match work {
            Work::Apply => store.apply(id),
            Work::Undo => store.undo(id, &keep, |_| true).map(drop),
            Work::Park => {
                let mut group = store.begin();
                let a = group.open_file("a").unwrap();
                group.write_at(&a, 0, b"parked").and_then(|()| group.park("more", None)).map(drop)
            }
            Work::Commit | Work::Recover => {
                let mut group = store.begin();
                let a = group.open_file("a").unwrap();
                group.write_at(&a, 0, b"written").and_then(|()| group.commit())
            }
        };
        let _ = store.checkpoint();
        calls = watched.calls.load(Ordering::Relaxed);
        *watched.before.lock().unwrap() = Box::new(|_| {});
    }
    if swaps.load(Ordering::Relaxed) % 2 == 1 {
        exchange();
    }
    assert!(!dir.join(TRAP).exists(), "{what}");
    assert!(all_of(&dir.join("evil")) == before, "{what}: something was changed in the other folder");
    let (store, ..) = open_watched(&dir, |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
    store.checkpoint().unwrap_or_else(|error| panic!("{what}: {error}"));
    calls
}

#[test]
fn an_exchange_of_the_folder_itself_leads_nowhere() {
    for work in [Work::Apply, Work::Undo, Work::Park, Work::Commit, Work::Recover] {
        let calls = in_another_folder(work, u64::MAX - 1, false);
        assert!(calls > 15, "{work:?}: {calls} calls");
        // Beside the long run, each of the two ways at every fifth call.
        let step = if std::env::var_os("WHOLLY_LONG").is_some() { 1 } else { 5 };
        for (from, stays) in [(0, false), (2, true)] {
            (from..calls).step_by(step).for_each(|at| _ = in_another_folder(work, at, stays));
        }
    }
}
