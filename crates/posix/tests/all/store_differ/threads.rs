//! Several threads make calls on one store at the same time, in directories and a file that they share. None changes
//! what another one looks at, so that each call must say what it says on ext4, in whatever order the threads come. What
//! fails in one order only may not fail when it is tried again: then the message tells of the last time it did.

use std::sync::Barrier;

use proptest::prelude::*;
use proptest::sample::select;
use wholly_posix::differ::{CALLERS, Described, Said, agree, call, clear_own, describe, make_shared};
use wholly_posix::{HostVfs, Through};
use wholly_vfs::{Context, Groups};

use super::*;

/// Sequences that one thread makes after each other.
const ROUNDS: usize = 8;

/// Where the calls of one sequence go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the store's policy.
    Policy,
    Committed,
    Aborted,
}

/// What one thread does: sequences, and where they go.
type Rounds = Vec<(Way, Vec<Op>)>;

/// What one thread needs.
struct Thread<'c> {
    caller: Caller,
    store: &'c StoreVfs,
    ext4: &'c HostVfs,
    permitted: &'static [Permitted],
}

impl Thread<'_> {
    fn run(&self, rounds: &Rounds) -> Result<(), String> {
        let mut made = Vec::new();
        for (way, ops) in rounds {
            made.extend_from_slice(ops);
            let before = describe(self.store, self.caller);
            let said = self.make(*way, ops)?;
            let expected = call(self.ext4, self.caller, ops)?;
            agree(&made, (&said, &expected), self.permitted)?;
            if *way == Way::Aborted {
                self.own().same_as(&before).map_err(|why| format!("after an abort: {why}"))?;
                // Nothing undoes it on ext4: go on from nothing.
                clear_own(self.store, self.caller)?;
                clear_own(self.ext4, self.caller)?;
            }
            self.own().same_as(&describe(self.ext4, self.caller))?;
        }
        Ok(())
    }

    fn own(&self) -> Described {
        describe(self.store, self.caller)
    }

    /// Makes calls on the store.
    fn make(&self, way: Way, ops: &[Op]) -> Result<Vec<Said>, String> {
        if way == Way::Policy {
            return call(self.store, self.caller, ops);
        }
        let group = self.store.begin().map_err(|error| format!("no group begins: {error}"))?;
        let in_group = Through::new(self.store, |ctx| Context { group: Some(group), ..ctx.clone() });
        let said = call(&in_group, self.caller, ops)?;
        let ended = if way == Way::Committed { self.store.commit(group) } else { self.store.abort(group) };
        ended.map_err(|error| format!("a group does not end: {error}"))?;
        Ok(said)
    }
}

/// What all threads do.
fn threads(ways: &'static [Way]) -> [impl Strategy<Value = Rounds>; CALLERS] {
    std::array::from_fn(|number| {
        // A group has a file to itself: where there are groups, nobody shares one.
        let caller = caller(number, ways);
        vec((select(ways), sequence(caller)), 0..ROUNDS)
    })
}

fn caller(number: usize, ways: &[Way]) -> Caller {
    Caller::Beside { number, parts: *ways == [Way::Policy] }
}

/// Compares by many threads' sequences, on either medium, with passes beside them and without.
fn differ(policy: Policy, ways: &'static [Way]) {
    let Some(ext4) = ext4() else { return };
    let strategy = (select(vec![HostMedium::Disk, HostMedium::Pmem]), any::<bool>(), threads(ways));
    run(&strategy, |(medium, passes, all)| {
        let stored = Stored::on(medium, Options { policy, ..options() })?;
        let vfs = stored.vfs();
        // Both begin with the same attributes.
        clear(&vfs)?;
        clear(&ext4.vfs)?;
        make_shared(&vfs)?;
        make_shared(&ext4.vfs)?;
        let thread = |number| Thread {
            caller: caller(number, ways),
            store: &vfs,
            ext4: &ext4.vfs,
            permitted: permitted(medium),
        };
        let together = || {
            let start = Barrier::new(CALLERS);
            std::thread::scope(|scope| {
                let started = all.iter().enumerate().map(|(number, rounds)| {
                    let (start, thread) = (&start, thread(number));
                    scope.spawn(move || {
                        start.wait();
                        thread.run(rounds).map_err(|why| format!("thread {number}: {why}"))
                    })
                });
                let started: Vec<_> = started.collect();
                started.into_iter().try_for_each(|thread| thread.join().expect("a thread that does not panic"))
            })
        };
        if passes {
            beside_passes(&stored, together)?
        } else {
            together()?
        }
        same_trees(&vfs, &ext4.vfs)?;
        assert_eq!(vfs.held(), (0, 0), "references and handles are given back");

        // The log must tell the same, and what comes home of it be the same.
        drop(vfs);
        let stored = stored.again()?;
        same_trees(&stored.vfs(), &ext4.vfs).map_err(|why| format!("opened again: {why}"))?;
        stored.store().checkpoint().map_err(|error| error.to_string())?;
        let home = HostVfs::open(stored.path()).map_err(|errno| errno.to_string())?;
        same_trees(&home, &ext4.vfs).map_err(|why| format!("at home: {why}"))
    });
}

#[test]
fn each_call_by_itself() {
    differ(Policy::PerOp, &[Way::Policy]);
}

#[test]
fn from_sync_to_sync() {
    differ(Policy::PerSync, &[Way::Policy]);
}

#[test]
fn all_calls_together() {
    differ(Policy::Shared { interval: Duration::from_secs(3600) }, &[Way::Policy]);
}

/// Each thread begins groups and ends them one way or the other, and makes some calls outside of them.
#[test]
fn in_groups() {
    differ(Policy::PerOp, &[Way::Policy, Way::Committed, Way::Aborted]);
}
