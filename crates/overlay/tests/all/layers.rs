//! What becomes of the layer itself: what is taken over by how many renames, what is left where nothing is, and other
//! ways to mount.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::{self, OPTIONS, World, parents, same_as_plain, tree_of};
use wholly_overlay::{Error, How};
use wholly_vfs::{Context, Groups, Ino, Vfs};

const SETUP: &str = r"
    mkdir -p d/sub e
    echo f > f; echo a > d/a; echo c > d/sub/c; ln d/a e/a
    @data big 0 3000000 1
";

#[test]
fn whole_directories_are_taken_over_by_one_rename() {
    if !common::may_mount() {
        return;
    }
    for (script, adopted) in [
        ("", 0),
        ("echo 1 >> f; rm d/sub/c; mv e g", 0),
        ("echo 1 > 1; echo 2 > d/2; ln -s x d/3; mkfifo 4", 4),
        ("mkdir -p n/m/o; echo 1 > n/1; echo 2 > n/m/o/2; ln n/1 n/m/3", 1),
        ("rm -r d; mkdir -p d/sub; echo 1 > d/sub/1", 1),
        // One name is taken over, the others are links.
        ("echo 1 > 1; ln 1 2; ln 1 d/3", 1),
        // Something old keeps what it is in from being taken over, but not what is beside it.
        ("mkdir -p n/m n/o; echo 1 > n/1; echo 2 > n/m/2; mv f n/o/f", 2),
        ("mkdir -p n/m n/o; echo 1 > n/1; echo 2 > n/m/2; mv d n/o/d", 2),
        ("mkdir -p n/m; ln f n/m/f; echo 1 > n/1", 1),
        // So does a link that leads out.
        ("mkdir -p n/m n/o; echo 1 > n/m/1; echo 2 > n/o/2; ln n/m/1 3", 2),
        // What was moved away again leaves nothing behind.
        ("mkdir n; mv f n/f; mv n/f g; echo 1 > n/1", 1),
    ] {
        for parent in parents() {
            assert_eq!(same_as_plain(parent, SETUP, script, How::Adopt).adopted, adopted, "{script}");
            assert_eq!(same_as_plain(parent, SETUP, script, How::Copy).adopted, 0, "{script}");
        }
    }
}

const CHANGES: &str = "echo 1 > 1; ln 1 d/1; mkdir -p n/m; echo 2 > n/m/2; mv d n/d; rm e/a; mv f g; echo 3 >> big";

#[test]
fn calls_leave_the_layer_as_it_is() {
    if !common::may_mount() {
        return;
    }
    let mut world = World::with_options(parents()[0], SETUP, OPTIONS);
    world.run(CHANGES);
    world.unmount();
    let (dir, upper) = (world.dir.clone(), world.dir.join(wholly_overlay::UPPER));
    let (before, layer) = (tree_of(&dir), tree_of(&upper));
    let vfs = world.vfs();
    for _ in 0..2 {
        let group = vfs.begin().expect("begin");
        world.take_up(&vfs, group, How::Copy).expect("take up");
        vfs.abort(group).expect("abort");
        let differs = [tree_of(&upper).difference(&layer), tree_of(&dir).difference(&before)];
        assert_eq!(differs, ["", ""]);
    }
}

#[test]
fn what_was_taken_over_does_not_outlive_an_abort() {
    if !common::may_mount() {
        return;
    }
    let mut world = World::with_options(parents()[0], SETUP, OPTIONS);
    world.run(CHANGES);
    world.unmount();
    let before = tree_of(&world.dir);
    let vfs = world.vfs();
    let group = vfs.begin().expect("begin");
    let taken = world.take_up(&vfs, group, How::Adopt).expect("take up");
    assert!(taken.adopted > 0);
    // Its two names are those in the store: none is left in the layer.
    let linked = vfs.lookup(&Context { group: Some(group), ..Context::superuser() }, Ino::ROOT, b"1").expect("lookup");
    assert_eq!(linked.nlink, 2);
    vfs.forget(linked.ino, 1);
    vfs.abort(group).expect("abort");
    drop(vfs);
    world.remove_store();
    assert_eq!(tree_of(&world.dir).difference(&before), "");
}

/// A group that cannot be committed after all gives the layer back as it was, marks of the kernel's and names of linked
/// files included: it is taken up again.
#[test]
fn what_was_taken_over_and_given_back_is_taken_up_again() {
    if !common::may_mount() {
        return;
    }
    let script = format!(
        "{CHANGES}; rm -r n/d/sub; mkdir n/d/sub; echo 4 > n/d/sub/4; rm -r e; mkdir e; ln 1 e/1; ln e/1 e/2; setfattr -n trusted.overlay.x -v y 1 2>/dev/null || true"
    );
    for how in [How::Adopt, How::Copy] {
        let mut world = World::with_options(parents()[0], SETUP, OPTIONS);
        world.run(&script);
        let seen = tree_of(&world.view);
        world.unmount();
        let upper = world.dir.join(wholly_overlay::UPPER);
        let layer = tree_of(&upper);
        let vfs = world.vfs();
        let group = vfs.begin().expect("begin");
        let taken = world.take_up(&vfs, group, How::Adopt).expect("take up");
        assert!(taken.adopted > 2);
        assert_ne!(tree_of(&upper).difference(&layer), "");
        vfs.abort(group).expect("abort");
        taken.undo(&world.layers(&vfs, group)).expect("undo");
        // Directories have noted that something came and went.
        assert_eq!(tree_of(&upper).of_any_run(&[]).difference(&layer.of_any_run(&[])), "");
        let group = vfs.begin().expect("begin");
        let taken = world.take_up(&vfs, group, how).expect("take up");
        assert_eq!(taken.adopted > 0, how == How::Adopt);
        vfs.commit(group).expect("commit");
        drop(vfs);
        world.remove_store();
        assert_eq!(tree_of(&world.dir).of_any_run(&[]).difference(&seen.of_any_run(&[])), "");
    }
}

#[test]
fn the_name_of_the_store_is_not_the_commands() {
    if !common::may_mount() {
        return;
    }
    for (script, is_left_out) in [
        ("mkdir .wholly", true),
        ("echo x > .wholly", true),
        ("ln -s x .wholly", true),
        ("cp -a d .wholly; mkdir -p .wholly/b/c; echo x > .wholly/b/c/d", true),
        ("mv d .wholly", false),
        ("mkdir -p .wholly/a; mv d .wholly/a", false),
        ("mkdir .wholly; mv d/* .wholly", false),
    ] {
        let mut world = World::with_options(parents()[1], SETUP, OPTIONS);
        world.run(script);
        world.unmount();
        let vfs = world.vfs();
        let group = vfs.begin().expect("begin");
        match world.take_up(&vfs, group, How::Copy) {
            Ok(taken) => assert!(taken.left_out && is_left_out, "{script}: {taken:?}"),
            Err(error) => assert!(matches!(error, Error::OwnFolder) && !is_left_out, "{script}: {error}"),
        }
        assert!(vfs.lookup(&Context::superuser(), Ino::ROOT, b".wholly").is_err(), "{script}");
        vfs.abort(group).expect("abort");
    }
    // Elsewhere it is a name like any other, and nothing comes of one that is gone again.
    same_as_plain(parents()[1], SETUP, "mkdir d/.wholly; echo 1 > d/.wholly/1", How::Copy);
    same_as_plain(parents()[1], SETUP, "mkdir .wholly; rmdir .wholly", How::Adopt);
}

/// Bytes that a file takes on its medium.
fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).expect("stat").blocks() * 512
}

#[test]
fn holes_stay_holes() {
    if !common::may_mount() {
        return;
    }
    for how in [How::Adopt, How::Copy] {
        for parent in parents() {
            let mut world = World::with_options(parent, SETUP, OPTIONS);
            world.run("@hole big 1000000 1900000\ntruncate -s 50000000 new\n@mapped new 30000000 some");
            world.unmount();
            let vfs = world.vfs();
            let group = vfs.begin().expect("begin");
            world.take_up(&vfs, group, how).expect("take up");
            vfs.commit(group).expect("commit");
            drop(vfs);
            world.remove_store();
            let [big, new] = ["big", "new"].map(|name| allocated(&world.dir.join(name)));
            assert!(big < 1_300_000, "{how:?}: {big} bytes");
            assert!(new < 1_000_000, "{how:?}: {new} bytes");
        }
    }
}

/// Where nothing is redirected, programs copy; where there is no index, or only attributes are never copied, the layer
/// says the same otherwise.
#[test]
fn other_ways_to_mount() {
    if !common::may_mount() {
        return;
    }
    let script = "echo 1 > 1; mkdir -p n/m; echo 2 > n/m/2; echo 3 >> f; chmod 600 big; rm d/sub/c; mv d n/d; rm -r e; mkdir e; echo 4 > e/4; mv f g";
    let setup = "mkdir -p d/sub e; echo f > f; echo a > d/a; echo c > d/sub/c; echo e > e/e; echo big > big; ln -s x sl; mkfifo ff";
    for (options, namespace) in [
        ("volatile,redirect_dir=off,index=off,metacopy=off", "trusted"),
        ("volatile,redirect_dir=on,index=off,metacopy=off", "trusted"),
        ("redirect_dir=on,index=on,metacopy=off,xino=off", "trusted"),
        ("volatile,userxattr", "user"),
    ] {
        for parent in parents() {
            for how in [How::Adopt, How::Copy] {
                let mut world = World::with_options(parent, setup, options);
                world.namespace = namespace;
                world.run(script);
                world.run("chown -h 5 sl; chmod 611 ff");
                let seen = tree_of(&world.view);
                world.unmount();
                let vfs = world.vfs();
                let group = vfs.begin().expect("begin");
                let taken = world.take_up(&vfs, group, how).expect("take up");
                assert_eq!(taken.overtaken, [], "{options}");
                vfs.commit(group).expect("commit");
                drop(vfs);
                world.remove_store();
                assert_eq!(tree_of(&world.dir).difference(&seen), "", "{options}, {how:?}, {}", parent.display());
            }
        }
    }
}

#[test]
fn many_files_in_a_new_directory_are_one_name() {
    if !common::may_mount() {
        return;
    }
    let mut world = World::with_options(parents()[0], SETUP, OPTIONS);
    let files: u32 = 10_000;
    for number in 0..files {
        if number % 100 == 0 {
            std::fs::create_dir_all(world.view.join(format!("new/{}", number / 100))).expect("mkdir");
        }
        std::fs::write(world.view.join(format!("new/{}/{number}", number / 100)), number.to_string()).expect("write");
    }
    world.unmount();
    let vfs = world.vfs();
    let group = vfs.begin().expect("begin");
    let begin = std::time::Instant::now();
    let taken = world.take_up(&vfs, group, How::Adopt).expect("take up");
    println!("{files} files: {:?}", begin.elapsed());
    assert_eq!(taken.adopted, 1);
    vfs.commit(group).expect("commit");
    drop(vfs);
    world.remove_store();
    for number in [0, 99, 100, files - 1] {
        let content = std::fs::read_to_string(world.dir.join(format!("new/{}/{number}", number / 100)));
        assert_eq!(content.expect("read"), number.to_string());
    }
}
