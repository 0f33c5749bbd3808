//! The suite over a store: what it does otherwise than the host's ext4 stands here, each with its reason.

use std::sync::Mutex;

use crate::places::{self, Stored};
use wholly::Options;
use wholly_posix::{Exception, Through, Tree};
use wholly_vfs::Policy;
use wholly_vfs::{Context, Errno, Fallocate, FileType, Groups, Ino, OFlags, Rename, Result, Vfs};

const fn exception(case: &'static str, reason: &'static str) -> Exception {
    Exception { case, reason }
}

const NO_MOVES: &str = "nothing is taken out of a file, nor put in between: what lies behind would have to be logged";

const STORE: &[Exception] = &[
    exception("space::collapse_takes_out", NO_MOVES),
    exception("space::collapse_to_the_end", NO_MOVES),
    exception("space::collapse_wants_whole_blocks", NO_MOVES),
    exception("space::insert_makes_room", NO_MOVES),
    exception("space::insert_beyond_the_end", NO_MOVES),
    exception("set_times::utimes_beyond_2038", "records tell times in ns: up to the year 2262"),
];

const CTIME: &str = "what went home has the time at which that was as time of the last change of anything";
const OWN_READS: &str = "what the store itself reads at home has a new time of access";
const SIZE: &str = "a directory's size is another once it is made, and CTIME";

/// Where everything goes home between the calls.
const AT_HOME: &[Exception] = &[
    exception("rename::refuses_full_directories", SIZE),
    exception("rename_types::dir", SIZE),
    exception("rename_types::full_dir", SIZE),
    exception("times::create_sets_all", CTIME),
    exception("times::create_changes_the_directory", CTIME),
    exception("times::write_changes_the_content", CTIME),
    exception("times::chmod_changes_the_inode", CTIME),
    exception("times::chown_changes_the_inode", CTIME),
    exception("times::copy_changes_the_target", OWN_READS),
    exception("times::noatime_leaves_atime", OWN_READS),
    exception("times::failed_calls_change_nothing", OWN_READS),
    exception("set_times::utimes_of_now", CTIME),
];

fn place(options: Options) -> Option<Stored> {
    places::or_skip(Stored::new(options))
}

fn run(vfs: &dyn Vfs, users: bool, more: &[Exception]) {
    let exceptions = [STORE, more].concat();
    let report = wholly_posix::run(vfs, users, &exceptions);
    println!("{} passed, {} skipped, {} exceptions", report.passed, report.skipped.len(), exceptions.len());
    report.expect_passed();
}

/// Runs the suite by a policy. Nothing goes home but where the log is full: when that is would be luck.
fn by_policy(policy: Policy) {
    let Some(place) = place(Options { policy, background: false, ..Options::default() }) else { return };
    let vfs = place.vfs();
    run(&vfs, place.users, &[]);
    assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
}

#[test]
fn each_call_by_itself() {
    by_policy(Policy::PerOp);
}

#[test]
fn from_sync_to_sync() {
    by_policy(Policy::PerSync);
}

#[test]
fn all_calls_together() {
    by_policy(Policy::Shared { interval: std::time::Duration::from_millis(20) });
}

/// All is home before each call: nothing is served from the log.
#[test]
fn everything_at_home() {
    let Some(place) = place(Options { background: false, ..Options::default() }) else { return };
    let vfs = place.vfs();
    let failed = Mutex::new(None);
    let at_home = Through::new(&vfs, |ctx| {
        if let Err(error) = place.store().checkpoint() {
            failed.lock().unwrap().get_or_insert(error);
        }
        ctx.clone()
    });
    run(&at_home, place.users, AT_HOME);
    let failed = failed.lock().unwrap().take();
    assert!(failed.is_none(), "taking everything home: {failed:?}");
    assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
}

/// The whole suite in one explicit group, of which nobody else sees anything before it commits.
#[test]
fn in_one_group() {
    let Some(place) = place(Options::default()) else { return };
    let vfs = place.vfs();
    let tree = Tree::new(&vfs, Ino::ROOT);
    for ends_well in [true, false] {
        let group = vfs.begin().expect("begin a group");
        let in_group = Through::new(&vfs, |ctx| Context { group: Some(group), ..ctx.clone() });
        run(&in_group, place.users, &[]);
        Tree::new(&in_group, Ino::ROOT).file("left", 0o640, b"by the group").expect("make a file");
        assert_eq!(tree.names("/").expect("list").len(), 0, "it is the group's");
        assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
        if ends_well {
            vfs.commit(group).expect("commit");
            assert_eq!(tree.content("left").expect("read"), b"by the group");
            tree.unlink("left").expect("remove");
        } else {
            vfs.abort(group).expect("abort");
            assert_eq!(tree.names("/").expect("list").len(), 0, "it has not happened");
        }
        let ctx = Context { group: Some(group), ..Context::superuser() };
        assert_eq!(vfs.getattr(&ctx, Ino::ROOT).unwrap_err(), Errno::INVAL, "it has ended");
    }
}

type Call = fn(&Tree<'_>) -> Result<()>;

/// What one group has done, and what others cannot do then: calls outside of groups, and another group.
#[test]
fn what_a_group_has_is_nobody_elses() {
    let cases: &[(&str, Call, &[Call])] = &[
        (
            "content",
            |t| t.open("file", OFlags::RDWR)?.write(0, b"x").map(drop),
            &[
                |t| t.open("file", OFlags::RDWR)?.write(9, b"x").map(drop),
                |t| t.open("file", OFlags::RDWR | OFlags::TRUNC).map(drop),
                |t| t.truncate("file", 5).map(drop),
                |t| t.open("file", OFlags::RDWR)?.allocate(Fallocate::Extend, 0, 9),
                |t| t.chmod("file", 0o600).map(drop),
                |t| t.set_xattr("file", "user.x", b"y"),
                |t| t.link("file", "another").map(drop),
                |t| t.unlink("file"),
                |t| t.rename("file", "another"),
            ],
        ),
        (
            "a link",
            |t| t.link("file", "another").map(drop),
            &[
                |t| t.open("file", OFlags::RDWR)?.write(9, b"x").map(drop),
                |t| t.unlink("file"),
                |t| t.create("another", 0o600).map(drop),
            ],
        ),
        (
            "a removed name of two",
            |t| t.unlink("two"),
            &[|t| t.open("names", OFlags::RDWR)?.write(9, b"x").map(drop), |t| t.chmod("names", 0o600).map(drop)],
        ),
        (
            "a new name",
            |t| t.create("dir/new", 0o644).map(drop),
            &[
                |t| t.create("dir/new", 0o600).map(drop),
                |t| t.mkdir("dir/new", 0o700).map(drop),
                |t| t.link("file", "dir/new").map(drop),
                |t| t.rename("file", "dir/new"),
                |t| t.rename("dir", "elsewhere"),
                |t| t.rename_with("dir", "file", Rename::Exchange),
            ],
        ),
        ("a removed name", |t| t.unlink("fifo"), &[|t| t.unlink("fifo"), |t| t.rename("file", "fifo")]),
        (
            "a removed directory",
            |t| t.rmdir("empty"),
            &[|t| t.rmdir("empty"), |t| t.create("empty/x", 0o600).map(drop), |t| t.rename("empty", "elsewhere")],
        ),
        (
            "a moved directory",
            |t| t.rename("moved", "dir/moved"),
            &[
                |t| t.create("moved/x", 0o600).map(drop),
                |t| t.rename("dir", "moved/dir"),
                |t| t.rename("file", "moved/file"),
                |t| t.rmdir("moved"),
            ],
        ),
    ];
    for (what, call, refused) in cases {
        let Some(place) = place(Options { background: false, ..Options::default() }) else { return };
        let vfs = place.vfs();
        let tree = Tree::new(&vfs, Ino::ROOT);
        ["dir", "empty", "moved"].iter().try_for_each(|dir| tree.mkdir(dir, 0o755).map(drop)).expect("mkdir");
        tree.file("file", 0o644, b"content").expect("make a file");
        tree.file("names", 0o644, b"content").expect("make a file");
        tree.link("names", "two").expect("link");
        tree.mknod("fifo", FileType::Fifo, 0o644).expect("make a FIFO");
        let within = |group| Tree { ctx: Context { group: Some(group), ..tree.ctx.clone() }, ..tree.clone() };
        let [group, other] = [(); 2].map(|()| vfs.begin().expect("begin"));
        call(&within(group)).unwrap_or_else(|errno| panic!("{what}: {errno}"));
        for (number, refused) in refused.iter().enumerate() {
            assert_eq!(refused(&tree), Err(Errno::BUSY), "{what}: call {number} outside of groups");
            assert_eq!(refused(&within(other)), Err(Errno::BUSY), "{what}: call {number} of another group");
        }
        // What it did not get is free still, and the directory is shared.
        tree.create("dir/free", 0o644).map(drop).unwrap_or_else(|errno| panic!("{what}: {errno}"));
        within(other).create("dir/other", 0o644).map(drop).unwrap_or_else(|errno| panic!("{what}: {errno}"));
        vfs.abort(group).expect("abort");
        vfs.abort(other).expect("abort");
        for (number, refused) in refused.iter().enumerate() {
            assert_ne!(refused(&tree), Err(Errno::BUSY), "{what}: call {number} after the end of both");
        }
    }
}

/// A file was found by one of its names, and that one goes, at home too. The other name is one that only the host knew:
/// whoever found the file goes on using it, and both find the same.
#[test]
fn what_was_found_by_a_name_outlives_it() {
    let makes: [fn(&Tree<'_>) -> Result<()>; 3] = [
        |tree| tree.file("found", 0o644, b"content").map(drop),
        |tree| tree.symlink("found", "target").map(drop),
        |tree| tree.mknod("found", FileType::Fifo, 0o644).map(drop),
    ];
    for make in makes {
        let Some(place) = place(Options { background: false, ..Options::default() }) else { return };
        let (store, vfs) = (place.store(), place.vfs());
        let tree = Tree::new(&vfs, Ino::ROOT);
        // The store forgets what it has no use for.
        let forget = || {
            for i in 0..4 {
                tree.mkdir(format!("pass{i}"), 0o755).expect("give the pass work");
                store.checkpoint().expect("all goes home");
                tree.rmdir(format!("pass{i}")).expect("remove");
            }
            store.checkpoint().expect("all goes home");
        };
        make(&tree).expect("make it");
        tree.link("found", "other").expect("link");
        forget();
        let found = tree.find("found").expect("find");
        let before = tree.stat("found").expect("stat");
        tree.unlink("found").expect("unlink");
        store.checkpoint().expect("the name goes at home");
        for attr in [vfs.getattr(&tree.ctx, found.ino()), tree.stat("other")] {
            let attr = attr.expect("it has a name");
            assert_eq!((attr.ino, attr.size, attr.nlink), (before.ino, before.size, 1));
        }
        match before.kind {
            FileType::RegularFile => {
                let handle = vfs.open(&tree.ctx, found.ino(), OFlags::RDONLY).expect("open");
                let mut content = [0; 7];
                assert_eq!(vfs.read(&tree.ctx, &handle, 0, &mut content), Ok(7));
                assert_eq!(&content, b"content");
                vfs.release(&tree.ctx, handle).expect("close");
            }
            FileType::Symlink => assert_eq!(vfs.readlink(&tree.ctx, found.ino()).expect("read"), b"target"),
            _ => {}
        }
        drop(found);
        forget();
        assert_eq!(tree.stat("other").expect("stat").nlink, 1);
        let anchors = std::fs::read_dir(place.path().join(".wholly/anchor")).expect("list").count();
        assert_eq!(anchors, 0, "nobody needs one any more");
    }
}

/// A name and an attribute go home while they are listed: they are in every list, be it from home or from the log, and
/// once.
#[test]
fn what_goes_home_is_listed_all_the_while() {
    let Some(place) = place(Options { background: false, ..Options::default() }) else { return };
    let vfs = place.vfs();
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.mkdir("dir", 0o755).expect("make a directory");
    // Whoever has looked it up keeps it known.
    let dir = tree.find("dir").expect("find");
    let list = || {
        let tree = Tree { at: dir.ino(), ..tree.clone() };
        for round in 0..1000 {
            tree.mkdir("name", 0o755).expect("make a directory");
            tree.set_xattr(".", "user.a", b"").expect("set an attribute");
            for _ in 0..10 {
                let names: Vec<_> = tree.names(".").expect("list").into_iter().map(|name| name.name).collect();
                assert_eq!(names, [b"name"], "round {round}");
                assert_eq!(tree.xattrs(".").expect("list"), ["user.a"], "round {round}");
            }
            tree.rmdir("name").expect("remove");
            tree.remove_xattr(".", "user.a").expect("remove");
        }
    };
    std::thread::scope(|scope| {
        let listing = scope.spawn(list);
        while !listing.is_finished() {
            place.store().checkpoint().expect("all goes home");
        }
    });
}
