//! How much memory it takes to make a group of a layer with very many names, and to commit it with its undo kept: bytes
//! of the heap for each name.
//!
//! One test: the allocator that counts is the whole program's. `WHOLLY_NAMES` sets another number of names; a million
//! of them have to do with 512 MiB. The layer is made by hand, as overlayfs leaves it.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::{Resource, Rlimit, setrlimit};
use wholly::{Options, Store, StoreVfs};
use wholly_overlay::{How, Layers, UPPER, WORK, take_up};

#[path = "../../core/tests/counted/mod.rs"]
mod counted;

use counted::{Phases, check_undo, for_each_name, keep_undo, most_above, now};
use wholly_vfs::Groups;

/// The most bytes that a group takes that makes so many names, and then one that removes them, in each phase.
fn of_one_layer(names: usize) -> [Phases; 2] {
    // In memory no bytes of the group are gathered, which would count as those of names.
    let dir = Path::new("/dev/shm").join(format!("memory-{names}-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let options = Options { background: false, at_once: true, ..Options::default() };
    Store::init(&dir, &options).unwrap();
    let most = ["creates", "removals"].map(|what| {
        let store = Store::open_with(&dir, options.clone(), Default::default()).unwrap();
        store.make_layer().unwrap();
        [UPPER, WORK].iter().for_each(|path| std::fs::create_dir(dir.join(path)).unwrap());
        for n in 0..names {
            let path = dir.join(UPPER).join(format!("file-{n:07}"));
            match what {
                "creates" => drop(std::fs::File::create(path).unwrap()),
                _ => mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), makedev(0, 0)).unwrap(),
            }
        }
        let open = std::fs::File::open(&dir).unwrap();
        let before = now();
        most_above(before);
        let vfs = StoreVfs::new(&store);
        let group = vfs.begin().unwrap();
        let layer = store.open_layer().unwrap();
        let (dir, layer) = (open.as_fd(), layer.as_fd());
        let layers = Layers { vfs: &vfs, group, dir, layer, since_ns: i64::MAX, namespace: "trusted" };
        let taken = take_up(&layers, How::Adopt).unwrap();
        let taken_up = most_above(before);
        assert_eq!((taken.adopted, &taken.overtaken[..]), (if what == "creates" { names } else { 0 }, &[][..]));
        assert_eq!(vfs.changed_meanwhile(group).unwrap(), []);
        drop(taken);
        keep_undo(&vfs, group);
        vfs.commit(group).unwrap();
        drop(vfs);
        let committed = most_above(before);
        check_undo(&store, names);
        store.remove_layer().unwrap();
        store.checkpoint().unwrap();
        let later = most_above(before);
        let after = now().saturating_sub(before);
        let each = [taken_up, committed, later, after].map(|bytes| bytes / names);
        println!("{names} {what}: bytes a name, taken up, at commit, at the next checkpoint, after it: {each:?}");
        store.close().unwrap();
        [taken_up, committed, later]
    });
    std::fs::remove_dir_all(&dir).unwrap();
    most
}

#[test]
fn a_name_in_a_layer_takes_few_bytes() {
    const MILLION: usize = 1_000_000;
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the test takes the superuser");
        println!("skipped: it takes the superuser to make what overlayfs leaves");
        return;
    }
    let names = std::env::var("WHOLLY_NAMES").ok().map_or(20_000, |names| names.parse().unwrap());
    if names == MILLION {
        let most = Some(512 << 20);
        setrlimit(Resource::Data, Rlimit { current: most, maximum: most }).unwrap();
    }
    let each = for_each_name(names, |names| of_one_layer(names).to_vec());
    assert!(each.iter().all(|each| *each <= 400), "{each:?} bytes a name");
}
