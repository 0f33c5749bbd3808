//! What others change in the directory while a command runs in the view of it. What the group builds on, they overtake:
//! the group says so, is parked rather than committed, and is never applied; what they have done stays. What the group
//! has nothing to do with is nobody's business.

use std::time::Duration;

use crate::common::{self, OPTIONS, World, script, tree_of};
use wholly::Error;
use wholly_overlay::How;
use wholly_vfs::Groups;

const SETUP: &str = r"
    mkdir -p d/sub e x/y
    echo f > f; echo a > d/a; echo b > d/b; echo c > d/sub/c; echo e > e/e; echo y > x/y/y
    echo links > l1; ln l1 l2
    ln -s f sl
";

/// What the command does, what others do before and after it, and what is noted of that.
struct Case {
    before: &'static str,
    script: &'static str,
    after: &'static str,
    noted: &'static [(&'static str, &'static str)],
}

const MADE: &str = "something has been made there";
const GONE: &str = "it is gone";
const OTHER: &str = "something else has its name";
const CONTENT: &str = "its content has been changed";
const ATTRIBUTES: &str = "its attributes, or its links, have been changed";
const NAMES: &str = "its names, or its attributes, have been changed";
const PUT: &str = "it has been put into a directory that the group removes";
const BITS: &str = "its attributes have been changed";
const MOVED: &str = "the file that it was copied from has another name";
const SOURCE: &str = "the file that it was copied from is gone";

const fn after(script: &'static str, after: &'static str, noted: &'static [(&'static str, &'static str)]) -> Case {
    Case { before: "", script, after, noted }
}

const CASES: &[Case] = &[
    // Content and attributes.
    after("echo 1 >> f", "echo 2 >> f", &[("f", CONTENT)]),
    after("echo 1 >> f", "chmod 600 f", &[("f", ATTRIBUTES)]),
    after("chmod 600 f", "echo 2 >> f", &[("f", CONTENT)]),
    after("chmod 600 d", "chmod 700 d", &[("d", BITS)]),
    after("echo 1 > d/new", "chmod 700 d", &[("d", BITS)]),
    after("@xattr d user.a b", "@xattr d user.a c", &[("d", BITS)]),
    Case { before: "echo 2 >> f", script: "echo 1 >> f", after: "", noted: &[("f", CONTENT)] },
    // Names that go.
    after("rm f", "echo 2 >> f", &[("f", CONTENT)]),
    after("rm f", "rm f", &[("f", GONE)]),
    after("rm f", "rm f; echo 2 > f", &[("f", MADE)]),
    after("rm -r d", "echo 2 > d/new", &[("d", NAMES), ("d/new", PUT)]),
    after("rm -r d", "echo 2 >> d/sub/c", &[("d/sub/c", CONTENT)]),
    after("rm -r d", "rm -r d", &[("d", GONE)]),
    after("rm d/a", "rm -r d", &[("d", GONE)]),
    // What is changed has lost its name, or another has it.
    after("echo 1 >> f", "rm f", &[("f", SOURCE)]),
    after("echo 1 >> f", "mv f g", &[("f", MOVED), ("g", ATTRIBUTES)]),
    after("echo 1 >> f", "cp f t; mv t f", &[("f", MADE), ("f", SOURCE)]),
    after("echo 1 > d/new; echo 2 >> d/a", "rm -r d", &[("d", GONE), ("d/a", SOURCE)]),
    after("echo 1 > d/new", "mv d d2; mkdir d", &[("d", OTHER)]),
    // New names.
    after("echo 1 > new", "echo 2 > new", &[("new", MADE)]),
    after("mkdir new; echo 1 > new/1", "mkdir new; echo 2 > new/2", &[("new", MADE), ("new/2", PUT)]),
    after("mkdir new; echo 1 > new/1", "echo 2 > new", &[("new", MADE)]),
    after("rm f; mkdir f", "echo 2 >> f", &[("f", CONTENT)]),
    after("ln -s x new", "ln -s y new", &[("new", MADE)]),
    // Moves.
    after("mv f g", "echo 2 >> f", &[("f", CONTENT)]),
    after("mv f g", "rm f", &[("f", GONE), ("g", SOURCE)]),
    after("mv f g", "echo 2 > g", &[("g", MADE)]),
    after("mv d d2", "rm -r d", &[("d", GONE)]),
    after("mv d d2", "mv d d3; mkdir d", &[("d", OTHER)]),
    after("mv d d2", "mkdir d2", &[("d2", MADE)]),
    after("mv d d2", "chmod 700 d", &[("d", BITS)]),
    after("mv d/a a; rm -r d", "echo 2 > d/sub/n", &[("d/sub", NAMES), ("d/sub/n", PUT)]),
    // Links.
    after("echo 1 >> l1", "echo 2 >> l2", &[("l1", CONTENT)]),
    after("echo 1 >> l1; rm l1", "chmod 600 l2", &[("l1", ATTRIBUTES), ("l2", ATTRIBUTES)]),
];

/// What others do, and it is in nobody's way.
const INNOCENT: &[(&str, &str)] = &[
    ("echo 1 > d/new", "echo 2 > d/other; rm d/b; echo 3 >> d/a"),
    ("echo 1 >> f", "echo 2 >> e/e; mkdir m; mv sl sm"),
    ("rm -r d", "echo 2 >> f; echo 3 > g"),
    ("mv d d2", "echo 2 > d/other; echo 3 >> d/a"),
    ("mv d d2; echo 1 >> d2/a", "echo 2 >> d/b"),
    ("mkdir n; mv x/y n; echo 1 > n/1", "echo 2 > x/other; touch -a e/e"),
    ("echo 1 > new", "chmod 700 d; chmod 600 f"),
];

/// Runs a command, with others before and after it.
fn world(case: &Case, parent: usize) -> World {
    let mut world = World::with_options(common::parents()[parent], SETUP, OPTIONS);
    let pause = || std::thread::sleep(Duration::from_millis(11));
    script::run(&world.dir, case.before);
    pause();
    world.run(case.script);
    pause();
    // The kernel's dentries are not to see it.
    world.unmount();
    script::run(&world.dir, case.after);
    world
}

#[test]
fn what_others_change_is_noted() {
    if !common::may_mount() {
        return;
    }
    for (number, case) in CASES.iter().enumerate() {
        for how in [How::Adopt, How::Copy] {
            let mut world = world(case, number % 2);
            let told = format!("{how:?}: {:?}{:?}{:?}", case.before, case.script, case.after);
            let left = tree_of(&world.dir);
            let upper = world.dir.join(wholly_overlay::UPPER);
            let layer = tree_of(&upper);
            let vfs = world.vfs();
            let group = vfs.begin().expect("begin");
            let taken = world.take_up(&vfs, group, how).unwrap_or_else(|error| panic!("{told}\n{error}"));
            let noted: Vec<_> =
                taken.overtaken.iter().map(|it| (it.path.to_str().unwrap(), it.what.as_str())).collect();
            assert_eq!(noted, case.noted, "{told}");
            assert_eq!(taken.adopted, 0, "{told}");
            let differs = tree_of(&upper).difference(&layer);
            assert!(differs.is_empty(), "the layer was changed: {told}\n{differs}");
            let id = match vfs.commit_or_park(group, "", None) {
                Err(Error::ChangedMeanwhile(id, mismatches)) => {
                    assert!(taken.overtaken.iter().all(|it| mismatches.contains(it)), "{told}\n{mismatches:?}");
                    Some(id)
                }
                // Others have done the same: nothing is left to be done.
                Ok(()) if case.script == case.after => None,
                other => panic!("{told}\n{other:?}"),
            };
            drop(vfs);
            let store = world.store.as_ref().expect("open");
            if let Some(id) = id {
                assert!(store.apply(id).is_err(), "{told}");
                store.discard(id).unwrap_or_else(|error| panic!("{told}\n{error}"));
            }
            world.remove_store();
            let differs = tree_of(&world.dir).difference(&left);
            assert!(differs.is_empty(), "{told}\n{differs}");
        }
    }
}

#[test]
fn what_the_group_does_not_build_on_may_change() {
    if !common::may_mount() {
        return;
    }
    for (number, (command, others)) in INNOCENT.iter().enumerate() {
        for how in [How::Adopt, How::Copy] {
            let case = after(command, others, &[]);
            let mut world = world(&case, number % 2);
            let vfs = world.vfs();
            let group = vfs.begin().expect("begin");
            let taken = world.take_up(&vfs, group, how).expect("take up");
            assert_eq!(taken.overtaken, [], "{command:?} {others:?}");
            vfs.commit_or_park(group, "", None).unwrap_or_else(|error| panic!("{command:?} {others:?}\n{error}"));
            drop(vfs);
            world.remove_store();
            // One after the other it is the same.
            script::run(&world.plain, others);
            script::run(&world.plain, command);
            let (is, wanted) = (tree_of(&world.dir).of_any_run(&[]), tree_of(&world.plain).of_any_run(&[]));
            let differs = is.difference(&wanted);
            assert!(differs.is_empty(), "{how:?}: {command:?} {others:?}\n{differs}");
        }
    }
}

/// What the command has done is in the group all the same, over what others have: for people to look at.
#[test]
fn the_group_shows_what_the_command_has_done() {
    use wholly_vfs::{Context, Ino, OFlags, Vfs};
    if !common::may_mount() {
        return;
    }
    let case = after(
        "echo one > new; echo 1 >> d/sub/c; mkdir -p n/m; echo 2 > n/m/2; mv f g",
        "echo other > new; rm -r d; mkdir n; rm f",
        &[],
    );
    for parent in 0..2 {
        let world = world(&case, parent);
        let vfs = world.vfs();
        let group = vfs.begin().expect("begin");
        let taken = world.take_up(&vfs, group, How::Adopt).expect("take up");
        assert!(taken.overtaken.len() >= 5, "{:?}", taken.overtaken);
        let ctx = Context { group: Some(group), ..Context::superuser() };
        for (path, content) in [("new", "one\n"), ("d/sub/c", "c\n1\n"), ("n/m/2", "2\n")] {
            let mut at = Ino::ROOT;
            for name in path.split('/') {
                let found = vfs.lookup(&ctx, at, name.as_bytes());
                at = found.unwrap_or_else(|errno| panic!("{path}: {errno}")).ino;
            }
            let handle = vfs.open(&ctx, at, OFlags::RDONLY).expect("open");
            let mut buf = [0; 100];
            let read = vfs.read(&ctx, &handle, 0, &mut buf).expect("read");
            assert_eq!(&buf[..read], content.as_bytes(), "{path}");
            vfs.release(&ctx, handle).expect("release");
        }
        // Its bytes were never copied: they are gone with what others have removed.
        assert_eq!(vfs.lookup(&ctx, Ino::ROOT, b"g").expect("lookup").size, 2);
        vfs.abort(group).expect("abort");
    }
}
