//! A store after a real `fork`: whichever of parent and child uses it first keeps it, the other is told who has it, and
//! a child that does not use it disturbs nobody.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::Duration;

use wholly::{Error, File, Options, Policy, Store};
use wholly_host::{HostMedium, HostOptions};

#[path = "all/common/dir.rs"]
mod dir;

use dir::Dir;

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(code: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// In a child: the value that the parent has too, as the child's own. Only its last use may be this.
fn own<T>(value: &T) -> T {
    // SAFETY: the process ends by `_exit`, so that the original is not dropped as well; and it is not used any more.
    unsafe { std::ptr::read(value) }
}

/// A forked process.
struct Child(i32);

impl Child {
    /// `work` runs in the child, which says on standard error what went wrong, and ends without dropping what it did
    /// not make.
    fn fork(work: impl FnOnce() -> Result<(), Error>) -> Child {
        // SAFETY: the parent's threads are not in the child, so that a lock one of them holds is held for ever: glibc
        // sees to its allocator, and that the store's own locks do no harm is what is tested. The child leaves by
        // `_exit`.
        let pid = unsafe { fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let code = match &result {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    let _ = writeln!(&mut std::fs::File::create("/dev/stderr").unwrap(), "in the child: {error}");
                    2
                }
                Err(_) => 3,
            };
            // SAFETY: it does not return.
            unsafe { _exit(code) }
        }
        Child(pid)
    }

    fn join(self) {
        let mut status = 0;
        // SAFETY: the status lives until the call returns.
        assert_eq!(unsafe { waitpid(self.0, &raw mut status, 0) }, self.0);
        assert_eq!(status, 0, "the child failed: {status:#x}");
    }
}

/// A directory with a store.
struct Place {
    dir: Dir,
    medium: HostMedium,
    policy: Policy,
}

impl Place {
    fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> wholly::Result<Store> {
        let options = Options { policy: self.policy, ..Options::default() };
        Store::open_with(&*self.dir, options, HostOptions { medium: self.medium, ..HostOptions::default() })
    }
}

/// A child has the descriptors of all stores that are open in the process, and with them their locks, for as long as it
/// lives: one test at a time, or a child of one keeps what another one's dead owner has left.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test on emulated persistent memory and on the disk that temporary files are on.
fn on_media(name: &str, policy: Policy, test: impl Fn(&Place)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (dir, medium) in Dir::on_media(name) {
        std::fs::write(dir.join("a"), vec![0; 10_000]).unwrap();
        std::fs::write(dir.join("b"), vec![0; 10_000]).unwrap();
        let host = HostOptions { medium, ..HostOptions::default() };
        Store::init_with(&*dir, &Options::default(), host).unwrap();
        test(&Place { dir, medium, policy });
    }
}

fn byte(file: &File, offset: u64) -> u8 {
    let mut byte = [0];
    assert_eq!(file.read_at(offset, &mut byte).unwrap(), 1);
    byte[0]
}

/// Two pipes by which parent and child take turns.
fn turns() -> ((std::io::PipeReader, std::io::PipeWriter), (std::io::PipeReader, std::io::PipeWriter)) {
    (std::io::pipe().unwrap(), std::io::pipe().unwrap())
}

fn tell(mut to: &std::io::PipeWriter) {
    to.write_all(b"x").unwrap();
}

fn hear(mut from: &std::io::PipeReader) {
    from.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_child_that_uses_it_first_keeps_it() {
    on_media("child", Policy::PerOp, |place| {
        let store = place.open();
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        a.write_at(0, &[1]).unwrap();
        let mut running = store.begin();
        running.write_at(&b, 0, &[9]).unwrap();
        let child = Child::fork(|| {
            // By handles from before the fork; what was committed is there, the running group's bytes are not.
            assert_eq!((byte(&a, 0), byte(&b, 0)), (1, 0));
            assert!(matches!(running.write_at(&b, 1, &[9]), Err(Error::Busy(..))), "the group is the parent's");
            b.write_at(5, &[5])?;
            let mut group = store.begin();
            group.write_at(&a, 1, &[2])?;
            group.write_at(&store.open_file("b")?, 1, &[3])?;
            group.commit()?;
            store.checkpoint()?;
            drop((own(&running), own(&a), own(&b)));
            own(&store).close()
        });
        let pid = child.0.to_string();
        child.join();
        for error in [
            a.write_at(0, &[7]).unwrap_err(),
            a.read_at(0, &mut [0]).unwrap_err(),
            running.write_at(&b, 2, &[7]).unwrap_err(),
            running.commit().unwrap_err(),
            store.begin().create("c", 0o600).unwrap_err(),
            store.checkpoint().unwrap_err(),
        ] {
            assert!(matches!(&error, Error::Busy(_, owner) if owner.contains(&pid)), "{error}");
        }
        drop((a, b, store));
        let store = place.open();
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        assert_eq!([byte(&a, 0), byte(&a, 1)], [1, 2]);
        assert_eq!([byte(&b, 0), byte(&b, 1), byte(&b, 2), byte(&b, 5)], [0, 3, 0, 5]);
    });
}

/// An epoch of several segments of the log is the parent's, and the log is the child's: when the parent gives the epoch
/// up, it stores nothing over what the child has committed.
#[test]
fn a_parent_that_lost_it_gives_its_epoch_up() {
    const PIECE: u64 = 64 << 10;
    // Not in a row, so that they go to the log.
    let places = || (0..48).rev().map(|n| n * PIECE);
    on_media("epoch", Policy::PerSync, |place| {
        ["a", "b"].iter().for_each(|name| std::fs::write(place.dir.join(name), vec![0; 48 * PIECE as usize]).unwrap());
        let options = Options { policy: place.policy, background: false, ..Options::default() };
        let host = || HostOptions { medium: place.medium, ..HostOptions::default() };
        let store = Store::open_with(&*place.dir, options.clone(), host()).unwrap();
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        places().for_each(|at| a.write_at(at, &[9; PIECE as usize]).unwrap());
        let child = Child::fork(|| {
            for at in places() {
                b.write_at(at, &[5; PIECE as usize])?;
                b.sync()?;
            }
            Ok(())
        });
        child.join();
        drop((a, b, store));
        let store = Store::open_with(&*place.dir, options, host()).unwrap();
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        for at in places() {
            let mut bytes = [[1; PIECE as usize]; 2];
            for (file, bytes) in [&a, &b].into_iter().zip(&mut bytes) {
                assert_eq!(file.read_at(at, bytes).unwrap(), PIECE as usize);
            }
            assert!(bytes[0] == [0; PIECE as usize] && bytes[1] == [5; PIECE as usize], "at byte {at}");
        }
    });
}

#[test]
fn a_parent_that_uses_it_first_keeps_it() {
    on_media("parent", Policy::PerOp, |place| {
        let store = place.open();
        let a = store.open_file("a").unwrap();
        let (to_child, to_parent) = turns();
        let parent = std::process::id().to_string();
        let child = Child::fork(|| {
            hear(&to_child.0);
            let error = a.write_at(0, &[7]).unwrap_err();
            assert!(matches!(&error, Error::Busy(_, owner) if owner.contains(&parent)), "{error}");
            assert!(matches!(store.begin().add(&a), Err(Error::Busy(..))));
            assert!(matches!(place.try_open(), Err(Error::Busy(..))));
            drop((own(&a), own(&store)));
            tell(&to_parent.1);
            hear(&to_child.0);
            // Its copy of the lock is gone, and the parent's was given up: now it is free for all.
            let store = place.open();
            assert_eq!(byte(&store.open_file("a")?, 0), 2);
            store.close()
        });
        a.write_at(0, &[1]).unwrap();
        tell(&to_child.1);
        hear(&to_parent.0);
        a.write_at(0, &[2]).unwrap();
        assert_eq!(byte(&a, 0), 2);
        drop((a, store));
        tell(&to_child.1);
        child.join();
    });
}

/// Programs fork all the time to run others, by `system` or `popen`, and some children end by `exit` and not by `exec`.
#[test]
fn children_that_do_not_use_it_disturb_nobody() {
    on_media("idle", Policy::PerSync, |place| {
        let store = place.open();
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        for round in 1..=20u8 {
            let mut group = store.begin();
            group.write_at(&b, 0, &[round]).unwrap();
            a.write_at(0, &[round]).unwrap();
            let created = group.create(format!("new-{round}"), 0o600).unwrap();
            group.write_at(&created, 0, &[round]).unwrap();
            let handles = (store.clone(), a.clone(), b.clone(), created.clone());
            let child = Child::fork(|| {
                drop((own(&group), own(&handles), own(&created)));
                drop((own(&store), own(&a), own(&b)));
                Ok(())
            });
            // Meanwhile, and afterwards.
            group.write_at(&b, 1, &[round]).unwrap();
            child.join();
            assert!(std::process::Command::new("true").status().unwrap().success());
            group.commit().unwrap();
            a.sync().unwrap();
            assert!(matches!(place.try_open(), Err(Error::Busy(..))), "the lock is the parent's still");
            assert_eq!([byte(&a, 0), byte(&b, 0), byte(&b, 1)], [round; 3]);
        }
        drop((a, b));
        store.close().unwrap();
        assert_eq!(std::fs::read(place.dir.join("b")).unwrap()[..2], [20, 20]);
        assert_eq!(std::fs::read(place.dir.join("new-20")).unwrap(), [20]);
    });
}

/// A daemon opens its store, forks, and the parent ends without a word. Here the parent is a child itself, so that it
/// can be outlived.
#[test]
fn a_child_outlives_its_parent() {
    on_media("daemon", Policy::PerOp, |place| {
        let (to_child, to_parent) = turns();
        let parent = Child::fork(|| {
            let store = place.open();
            let a = store.open_file("a")?;
            Child::fork(|| {
                hear(&to_child.0);
                a.write_at(1, &[2])?;
                assert_eq!(byte(&a, 0), 1);
                drop(own(&a));
                own(&store).close()?;
                tell(&to_parent.1);
                Ok(())
            });
            // A use after the fork, but the dead hold nothing.
            a.write_at(0, &[1])
        });
        parent.join();
        tell(&to_child.1);
        // A child that fails does not keep us waiting.
        drop(to_parent.1);
        hear(&to_parent.0);
        assert_eq!(std::fs::read(place.dir.join("a")).unwrap()[..2], [1, 2]);
        place.open().close().unwrap();
    });
}

#[test]
fn a_grandchild_takes_over_from_a_child() {
    on_media("grandchild", Policy::PerOp, |place| {
        let store = place.open();
        let a = store.open_file("a").unwrap();
        Child::fork(|| {
            a.write_at(0, &[1])?;
            let other = Child::fork(|| {
                assert_eq!(byte(&a, 0), 1);
                a.write_at(1, &[2])?;
                own(&store).close()
            });
            let pid = other.0.to_string();
            other.join();
            let error = a.write_at(0, &[7]).unwrap_err();
            assert!(matches!(&error, Error::Busy(_, owner) if owner.contains(&pid)), "{error}");
            Ok(())
        })
        .join();
        assert!(a.write_at(0, &[8]).is_err());
        drop((a, store));
        let store = place.open();
        let a = store.open_file("a").unwrap();
        assert_eq!([byte(&a, 0), byte(&a, 1)], [1, 2]);
    });
}

/// Threads of the parent commit and take home at the fork; the child, which has none of them, goes on all the same.
#[test]
fn a_fork_in_the_middle_of_other_threads_calls() {
    on_media("busy", Policy::PerOp, |place| {
        for round in 1..=15u64 {
            let store = place.open();
            let stop = std::sync::atomic::AtomicBool::new(false);
            let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
            std::thread::scope(|scope| {
                for file in [&a, &b] {
                    scope.spawn(|| {
                        let mut at = round;
                        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                            at = at * 31 % 9000;
                            if file.write_at(at, &[1; 900]).is_err() {
                                break;
                            }
                        }
                    });
                }
                std::thread::sleep(Duration::from_millis(round % 4));
                let child = Child::fork(|| match a.write_at(0, &[round as u8]) {
                    // The parent's threads came first, or were in a call.
                    Err(Error::Busy(..)) => Ok(()),
                    Err(error) => Err(error),
                    Ok(()) => {
                        assert_eq!(byte(&a, 0), round as u8);
                        own(&store).close()
                    }
                });
                child.join();
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            drop((a, b, store));
            place.open().close().unwrap();
        }
    });
}

/// Of two that go for it at once exactly one has it, and what either was told is committed is there.
#[test]
fn both_at_once() {
    on_media("race", Policy::PerOp, |place| {
        for round in 1..=30u8 {
            let store = place.open();
            let a = store.open_file("a").unwrap();
            let (to_child, _) = turns();
            let child = Child::fork(|| {
                hear(&to_child.0);
                let theirs = a.write_at(1, &[round]).is_ok();
                std::fs::write(place.dir.join("theirs"), [u8::from(theirs)]).unwrap();
                Ok(())
            });
            tell(&to_child.1);
            std::thread::sleep(Duration::from_micros(u64::from(round) * 5));
            let mine = a.write_at(0, &[round]).is_ok();
            child.join();
            let theirs = std::fs::read(place.dir.join("theirs")).unwrap() == [1];
            assert!(mine != theirs, "round {round}: {mine} and {theirs}");
            drop((a, store));
            let store = place.open();
            let a = store.open_file("a").unwrap();
            assert_eq!((byte(&a, 0) == round, byte(&a, 1) == round), (mine, theirs), "round {round}");
        }
    });
}

/// A writer from before the fork goes on in whichever process keeps the store, and in that one only.
#[test]
fn a_writer_goes_on_where_the_store_does() {
    on_media("writer", Policy::PerOp, |place| {
        let store = place.open();
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        let mut writer = store.writer();
        let mut group = writer.begin();
        group.write_at(&a, 0, &[1]).unwrap();
        group.commit().unwrap();
        let child = Child::fork(|| {
            // In the child a value of its own: the parent's is its own, too.
            let mut writer = own(&writer);
            for n in 2..10 {
                let mut group = writer.begin();
                group.write_at(&a, n, &[n as u8])?;
                group.write_at(&b, n, &[n as u8])?;
                group.commit()?;
            }
            assert_eq!((byte(&a, 0), byte(&a, 9), byte(&b, 9)), (1, 9, 9));
            drop((writer, own(&a), own(&b)));
            own(&store).close()
        });
        child.join();
        let refused = writer.begin().write_at(&a, 0, &[3]);
        assert!(matches!(refused, Err(Error::Busy(..))), "the child had it first: {refused:?}");
        drop((writer, a, b, store));
        let bytes = std::fs::read(place.dir.join("a")).unwrap();
        assert_eq!(bytes[..10], [1, 0, 2, 3, 4, 5, 6, 7, 8, 9]);
    });
}
