//! The rules, and that a run is the same each time.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex as StdMutex};

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// What threads did, and when.
#[derive(Default)]
struct Noted(StdMutex<Vec<(u64, &'static str)>>);

impl Noted {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push((now().as_micros() as u64, what));
    }

    fn take(self) -> Vec<(u64, &'static str)> {
        self.0.into_inner().unwrap()
    }
}

#[test]
fn only_waiting_takes_time() {
    let ended = run(|| {
        (0..1000).for_each(|_| std::hint::spin_loop());
        assert_eq!(now(), Duration::ZERO);
        thread::sleep(us(7));
        thread::scope(|scope| {
            scope.spawn(|| thread::sleep(us(5)));
            scope.spawn(|| thread::sleep(us(3)));
        });
        now()
    });
    assert_eq!(ended, us(12));
}

/// The first that waits is the first that gets it, at the moment of the release; the one that releases it comes last.
#[test]
fn a_lock_is_handed_over_in_order() {
    let noted = Noted::default();
    run(|| {
        let lock = Mutex::new(());
        let of = |name: &'static str, begin: u64| {
            thread::sleep(us(begin));
            let held = lock.lock().unwrap();
            noted.note(name);
            thread::sleep(us(10));
            drop(held);
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                of("a", 1);
                of("a again", 0);
            });
            scope.spawn(|| of("b", 3));
            scope.spawn(|| of("c", 2));
        });
        assert!(lock.try_lock().is_ok());
    });
    assert_eq!(noted.take(), [(1, "a"), (11, "c"), (21, "b"), (31, "a again")]);
}

#[test]
fn readers_share_and_a_writer_waits_for_all() {
    let noted = Noted::default();
    run(|| {
        let lock = RwLock::new(0);
        let read = |name: &'static str, begin: u64| {
            thread::sleep(us(begin));
            let _held = lock.read().unwrap();
            noted.note(name);
            thread::sleep(us(10));
        };
        thread::scope(|scope| {
            scope.spawn(|| read("one", 0));
            scope.spawn(|| read("two", 5));
            scope.spawn(|| {
                thread::sleep(us(7));
                assert!(lock.try_write().is_err() && lock.try_read().is_ok());
                *lock.write().unwrap() += 1;
                noted.note("writer");
            });
            // Behind the writer.
            scope.spawn(|| read("three", 8));
        });
        assert_eq!(lock.into_inner().unwrap(), 1);
    });
    assert_eq!(noted.take(), [(0, "one"), (5, "two"), (15, "writer"), (15, "three")]);
}

#[test]
fn a_condition_is_notified_or_its_time_is_over() {
    run(|| {
        let (lock, condvar) = (Mutex::new(false), Condvar::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let held = lock.lock().unwrap();
                let (held, result) = condvar.wait_timeout(held, us(4)).unwrap();
                assert_eq!((*held, result.timed_out(), now()), (false, true, us(4)));
                let (held, result) = condvar.wait_timeout(held, us(40)).unwrap();
                assert_eq!((*held, result.timed_out(), now()), (true, false, us(20)));
                drop(held);
                // A wait that was notified has no timeout any more: it wakes nobody.
                thread::sleep(us(100));
                assert_eq!(now(), us(120));
            });
            scope.spawn(|| {
                let held = condvar.wait_while(lock.lock().unwrap(), |is_set| !*is_set).unwrap();
                assert_eq!((*held, now()), (true, us(20)));
            });
            scope.spawn(|| {
                thread::sleep(us(20));
                *lock.lock().unwrap() = true;
                condvar.notify_all();
            });
        });
    });
}

/// Two threads that poll for what a third does after a while neither stop the clock nor let it run far.
#[test]
fn polling_waits_for_events() {
    run(|| {
        let is_set = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut backoff = Backoff::new();
                    while !is_set.load(Ordering::Relaxed) {
                        backoff.wait();
                    }
                    assert_eq!(now(), us(50));
                });
            }
            scope.spawn(|| {
                thread::sleep(us(50));
                is_set.store(true, Ordering::Relaxed);
            });
        });
    });
}

/// One use takes its time; with twice as many as the medium is made for, each takes twice as long.
#[test]
fn a_medium_is_shared() {
    run(|| {
        let medium = Medium::new(2.0);
        let of = |threads: u64| {
            let begun = now();
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| medium.spend(6_000));
                }
            });
            now() - begun
        };
        assert_eq!([of(1), of(2), of(4), of(3)], [us(6), us(6), us(12), us(9)]);
        // The second comes when the first is half done, the third ends with both.
        let medium = Medium::new(1.0);
        let begun = now();
        thread::scope(|scope| {
            scope.spawn(|| {
                medium.spend(4_000);
                assert_eq!(now() - begun, us(6));
            });
            scope.spawn(|| {
                thread::sleep(us(2));
                medium.spend(4_000);
                assert_eq!(now() - begun, us(8));
            });
        });
    });
}

#[test]
fn a_run_ends_with_its_last_thread() {
    let ended = Arc::new(StdMutex::new(None));
    let by_thread = ended.clone();
    run(|| {
        let thread = spawn(move || {
            thread::sleep(us(30));
            *by_thread.lock().unwrap() = Some((now(), thread_token()));
        });
        assert!(!thread.unwrap().is_current());
        assert_eq!(beside(|| thread::sleep(us(1)), || 5), 5);
    });
    assert_eq!(*ended.lock().unwrap(), Some((us(30), 1)));
}

#[test]
fn threads_that_wait_for_each_other_panic() {
    let deadlock = || {
        run(|| {
            let locks = [Mutex::new(()), Mutex::new(())];
            let take = |first: usize| {
                let _one = locks[first].lock().unwrap();
                thread::sleep(us(1));
                let _other = locks[1 - first].lock().unwrap();
            };
            thread::scope(|scope| {
                scope.spawn(|| take(0));
                scope.spawn(|| take(1));
            });
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(deadlock)).is_err());
}

#[test]
fn a_panic_of_a_thread_goes_on() {
    let panics = || run(|| thread::scope(|scope| drop(scope.spawn(|| panic!("a thread's")))));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(run(|| 3), 3);
}

/// Threads that do what their random numbers say, with every kind of wait, are done at the same time in each run.
#[test]
fn a_run_is_the_same_each_time() {
    let once = |seed: u64| {
        run(|| {
            let (locks, shared, sum) = ([const { Mutex::new(0u64) }; 3], RwLock::new(0u64), AtomicU64::new(0));
            let medium = Medium::new(1.7);
            thread::scope(|scope| {
                for thread in 0..5 {
                    let (locks, shared, sum, medium) = (&locks, &shared, &sum, &medium);
                    scope.spawn(move || {
                        let mut random = seed + thread;
                        for _ in 0..200 {
                            random =
                                random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                            let time = (random >> 40) % 1000;
                            match (random >> 33) % 5 {
                                0 => medium.spend(time),
                                1 => thread::sleep(Duration::from_nanos(time)),
                                2 => thread::yield_now(),
                                3 => {
                                    let mut held = locks[(time % 3) as usize].lock().unwrap();
                                    medium.spend(time);
                                    *held += 1;
                                }
                                _ if time.is_multiple_of(2) => medium.spend(*shared.read().unwrap() % 100 + time),
                                _ => *shared.write().unwrap() += now().as_nanos() as u64,
                            }
                            sum.fetch_add(now().as_nanos() as u64 * thread, Ordering::Relaxed);
                        }
                    });
                }
            });
            (now(), sum.into_inner(), shared.into_inner().unwrap())
        })
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1), once(2));
}

#[test]
fn outside_of_a_run_locks_are_the_standard_ones() {
    let (lock, condvar) = (Mutex::new(0), Condvar::new());
    assert!(thread_token() >= OUTSIDE);
    thread::scope(|scope| {
        scope.spawn(|| {
            *lock.lock().unwrap() = 1;
            condvar.notify_all();
        });
        let held = condvar.wait_while(lock.lock().unwrap(), |value| *value == 0).unwrap();
        assert_eq!(*held, 1);
    });
    assert!(condvar.wait_timeout(lock.lock().unwrap(), us(1)).unwrap().1.timed_out());
}
