//! What a group costs goes by what it changes: calls on the host are counted, so that no clock has a say.

use std::sync::Arc;
use std::time::Duration;

use wholly::{KeepUndo, Options, Store, StoreVfs};
use wholly_host::HostFs;
use wholly_sim::{CountingHost, SimConfig, World};
use wholly_vfs::{Context, GroupId, Groups, Ino, Mode, SetAttr, Vfs};

use crate::common::small;

/// Calls on the host for each file whose mode a group changes: one that finds it and one that lists its extended
/// attributes; then one each to see whether others have changed it and for the undo; and four by which it goes home.
const EACH: u64 = 8;

fn options() -> Options {
    Options { at_once: true, segment_bytes: 64 << 10, log_max_bytes: 64 << 20, ..small() }
}

fn store(world: &Arc<World>, host: &Arc<CountingHost>) -> Store {
    Store::open_on(world.log(), host.clone(), options(), None).unwrap()
}

/// What `wholly run -- chmod -R` asks of the store, in directories of 300 files.
fn change_modes(vfs: &StoreVfs, group: GroupId, files: u64) {
    let ctx = Context { group: Some(group), ..Context::superuser() };
    let change = SetAttr { mode: Some(Mode::from_raw_mode(0o600)), ..SetAttr::default() };
    for d in 0..files / 300 {
        let dir = vfs.lookup(&ctx, Ino::ROOT, format!("d{d}").as_bytes()).unwrap().ino;
        for f in 0..300 {
            vfs.look_once(group, true).unwrap();
            let file = vfs.lookup(&ctx, dir, format!("f{f}").as_bytes()).unwrap().ino;
            assert!(vfs.listxattr(&ctx, file).unwrap().is_empty());
            vfs.getattr(&ctx, file).unwrap();
            vfs.setattr(&ctx, file, None, &change).unwrap();
            vfs.getattr(&ctx, file).unwrap();
            vfs.forget(file, 1);
        }
        vfs.forget(dir, 1);
    }
    vfs.look_once(group, false).unwrap();
}

fn modes_of(files: u64) {
    let world = World::new(SimConfig { log_len: 0, ..SimConfig::pmem() });
    let host = CountingHost::new(world.host());
    Store::format_on(&*world.log(), &options(), [7; 16]).unwrap();
    let made = store(&world, &host);
    let mut group = made.begin();
    for d in 0..files / 300 {
        group.mkdir(format!("d{d}"), 0o755).unwrap();
        (0..300).for_each(|f| drop(group.create(format!("d{d}/f{f}"), 0o644).unwrap()));
    }
    group.commit().unwrap();
    made.close().unwrap();

    let store = store(&world, &host);
    let vfs = StoreVfs::new(&store);
    let group = vfs.begin().unwrap();
    host.take();
    change_modes(&vfs, group, files);
    let keep = KeepUndo { note: "modes".into(), expires: Duration::from_secs(1000), most_bytes: 1 << 30 };
    vfs.keep_undo(group, &keep).unwrap();
    vfs.commit_or_park(group, "modes", None).unwrap();
    let calls = host.take();
    assert!(calls <= EACH * files + files / 10 + 500, "{calls} calls for {files} files");
    assert_eq!(host.stat(b"d0/f299").unwrap().mode & 0o7777, 0o600);
}

#[test]
fn a_mode_takes_as_many_calls_in_small_groups_as_in_large_ones() {
    modes_of(3_000);
    modes_of(30_000);
}
