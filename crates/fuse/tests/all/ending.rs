//! Groups beside the ends of others, and ends that fail, with a medium that is held.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::gate::What;
use crate::common::or_skip;
use crate::held::{Mounted, another, begin, forgetful, open_to_write, options, read, returns, use_other_files, write};
use wholly_error::Error;
use wholly_fuse::MountOptions;

/// The clock of the one test that needs it, in seconds.
static CLOCK: AtomicU64 = AtomicU64::new(1);

fn now() -> Duration {
    Duration::from_secs(CLOCK.load(Ordering::SeqCst))
}

/// Another process asks: a question of the group's own would be a call of it.
fn has_a_group(mounted: &Mounted) {
    let mut asks = another("busy", mounted.point.path());
    assert!(returns(mounted, "a question of another process", move || asks.wait().unwrap().success()));
}

#[test]
fn a_group_does_not_lapse_while_a_call_of_it_runs_or_may_wait_for_another_group() {
    let options = MountOptions { group_timeout: Duration::from_secs(300), clock: now, ..options() };
    let Some(mounted) = or_skip(Mounted::new(&options)) else { return };
    let long = || _ = CLOCK.fetch_add(1000, Ordering::SeqCst);
    let group = mounted.begin();
    let file = open_to_write(&mounted.at("d/f"));
    for what in [What::Write, What::Read] {
        mounted.gate.hold(what);
        let (its, f) = (file.try_clone().unwrap(), mounted.at("d/f"));
        let calling = std::thread::spawn(move || match what {
            What::Write => its.write_all_at(b"AND", 0).unwrap(),
            _ => assert_eq!(read(f), "ANDore"),
        });
        mounted.gate.reached(what, 1);
        long();
        has_a_group(&mounted);
        mounted.gate.release(what);
        calling.join().unwrap();
        has_a_group(&mounted);
    }
    let committing = mounted.commit_held(group);
    let next = mounted.begin();
    // It waits for the end of the group before.
    let waiting = std::thread::spawn(move || file.write_all_at(b"BEFORE", 0).unwrap());
    long();
    has_a_group(&mounted);
    mounted.gate.release(What::Commit);
    committing.join().unwrap().expect("commit");
    has_a_group(&mounted);
    waiting.join().unwrap();
    next.commit().expect("nothing stands against it");
    assert_eq!(read(mounted.at("d/f")), "BEFORE");
    mounted.end();
}

/// Nothing of what is undone is in the group that begins meanwhile.
#[test]
fn a_group_that_begins_while_a_commit_fails_begins_after_it() {
    let Some(mounted) = or_skip(Mounted::new(&forgetful())) else { return };
    let group = mounted.begin();
    write(mounted.at("d/f"), "and after");
    mounted.gate.fail();
    let committing = mounted.commit_held(group);
    mounted.gate.hold(What::Begin);
    let point = mounted.point.path().to_owned();
    let beginning = std::thread::spawn(move || begin(&point));
    mounted.gate.reached(What::Begin, 1);
    mounted.gate.release(What::Commit);
    let f = mounted.at("d/f");
    assert_eq!(returns(&mounted, "a look at what is undone", move || f.metadata().unwrap().size()), 6);
    mounted.gate.release(What::Begin);
    let group = beginning.join().unwrap();
    assert_eq!(mounted.gate.passed(What::Abort), 1, "the first one that began");
    assert!(matches!(committing.join().unwrap(), Err(Error::Media(_))), "there is no space");
    write(mounted.at("d/f"), "at last");
    group.commit().expect("nothing stands against it");
    assert_eq!(read(mounted.at("d/f")), "at last");
    mounted.end();
}

#[test]
fn an_end_that_panics_stops_nobody() {
    let Some(mounted) = or_skip(Mounted::new(&forgetful())) else { return };
    let group = mounted.begin();
    write(mounted.at("d/f"), "and after");
    mounted.gate.panic(What::Commit);
    returns(&mounted, "the commit", move || group.commit()).unwrap_err();
    let f = mounted.at("d/f");
    assert_eq!(returns(&mounted, "a look at its file", move || f.metadata().unwrap().size()), 6);
    use_other_files(&mounted);
    let group = mounted.begin();
    write(mounted.at("o/f"), "and after");
    mounted.gate.panic(What::Abort);
    returns(&mounted, "the abort", move || group.abort()).unwrap_err();
    let f = mounted.at("o/f");
    assert_eq!(returns(&mounted, "a look at its file", move || read(f)), "before");
    mounted.begin().commit().expect("nothing stands against it");
    mounted.end();
}
