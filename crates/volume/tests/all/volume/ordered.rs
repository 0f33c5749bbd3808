//! A lock ends at the order, not at the device: while a commit is on the medium, others order theirs, and share the
//! next one. The medium is held by the test, so nothing here is a matter of time.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno as HostErrno;
use wholly_blocks::Order;
use wholly_media::{Guarantees, Region, Site};
use wholly_posix::Tree;
use wholly_sim::{BlockRules, ExploreLimits, Explorer, SimConfig, World};
use wholly_vfs::{
    Committed, Context, Errno, Fallocate, FileType, Groups, Ino, Mode, OFlags, Policy, Result, Ticket, Vfs,
};
use wholly_volume::{EngineKind, Mistake, PolicyVfs, Trial, Volume, VolumeOptions, VolumeVfs};

use super::place::Place;

const COMMIT: Site = Site("pages.commit");
/// Of what a thread has stored past the log. Only persistent memory needs it; a disk is not flushed there.
const OWN_FENCE: Site = Site("pages.steal.fence");
const CALLS: u8 = 16;
/// Bytes that do not fit into the page cache.
const LARGE: usize = 400 << 10;
const BLOCK: usize = 4096;
/// More pages than wait for the medium: of groups, and of each of them.
const GROUPS: usize = 64;
const PAGES: usize = 32;

#[derive(Default)]
struct State {
    is_held: bool,
    waits: u64,
    commits: u64,
    fences: u64,
    /// Commits that come after these fail.
    fail_after: Option<u64>,
}

/// A medium whose commits the test holds, counts, and lets fail.
pub struct Held {
    inner: Arc<dyn Region>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Held {
    fn set(&self, is_held: bool) {
        self.state.lock().expect("nobody panics with it").is_held = is_held;
        self.changed.notify_all();
    }

    pub fn commits(&self) -> u64 {
        self.state.lock().expect("nobody panics with it").commits
    }

    /// How many commits wait for the medium.
    fn waits(&self) -> u64 {
        self.state.lock().expect("nobody panics with it").waits
    }

    /// How often the medium was waited for.
    fn steps(&self) -> (u64, u64) {
        let state = self.state.lock().expect("nobody panics with it");
        (state.commits, state.fences)
    }

    /// Waits until a commit waits.
    fn is_reached(&self) {
        let state = self.state.lock().expect("nobody panics with it");
        drop(self.changed.wait_while(state, |state| state.waits == 0).expect("nobody panics with it"));
    }
}

impl Region for Held {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.inner.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.inner.write(site, offset, data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        if site != OWN_FENCE {
            self.state.lock().expect("nobody panics with it").fences += 1;
        }
        self.inner.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        if site == COMMIT {
            let mut state = self.state.lock().expect("nobody panics with it");
            state.waits += 1;
            self.changed.notify_all();
            state = self.changed.wait_while(state, |state| state.is_held).expect("nobody panics with it");
            state.waits -= 1;
            state.commits += 1;
            if state.fail_after.is_some_and(|after| state.commits > after) {
                return Err(wholly_media::Error::new("write", "the test's medium", HostErrno::IO));
            }
        }
        self.inner.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.set_len(site, len)
    }

    fn extend(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.extend(site, len)
    }
}

pub struct Bed {
    place: Place,
    pub region: Arc<Held>,
    pub volume: Volume,
}

fn bed() -> Bed {
    bed_with(EngineKind::PageCacheWal)
}

/// Does it with both engines that order in memory.
fn with_both(test: fn(Bed)) {
    [EngineKind::PageCacheWal, EngineKind::OpLog].into_iter().for_each(|engine| test(bed_with(engine)));
}

fn bed_with(engine: EngineKind) -> Bed {
    // So few pages that content is stored before its commit. A group of `op_log` writes a bitmap, too: so the log has
    // room for more.
    let bytes = if engine == EngineKind::OpLog { 32 << 20 } else { 8 << 20 };
    bed_of(engine, bytes, Trial { pages: Some(64), ..Trial::default() })
}

pub fn bed_of(engine: EngineKind, bytes: u64, trial: Trial) -> Bed {
    let place = Place::of_zeros(bytes, engine);
    let region = Arc::new(Held { inner: place.region.clone(), state: Mutex::default(), changed: Condvar::new() });
    let options = VolumeOptions { trial, ..VolumeOptions::default() };
    let volume = Volume::open_region(region.clone(), &options).expect("open it");
    Bed { place, region, volume }
}

/// Lets commits go on, also where the test fails.
struct Hold<'r>(&'r Held);

impl<'r> Hold<'r> {
    fn new(region: &'r Held) -> Hold<'r> {
        region.set(true);
        Hold(region)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Waits until something is so, which other threads bring about. That it takes minutes is a failure.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "not in two minutes: {what}");
        std::thread::yield_now();
    }
}

fn name(number: u8) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

fn is_there(vfs: &impl Vfs, ctx: &Context, dir: Ino, number: u8) -> bool {
    match vfs.lookup(ctx, dir, &name(number)) {
        Ok(found) => {
            vfs.forget(found.ino, 1);
            true
        }
        Err(Errno::NOENT) => false,
        Err(errno) => panic!("{errno}"),
    }
}

/// Runs a call of each of 16 threads while the first commit is held; `seen` says whether a call is seen by others.
/// Returns how many commits that took.
fn beside_each_other(
    bed: &Bed,
    call: impl Fn(u8) -> Result<()> + Sync,
    mut seen: impl FnMut(u8) -> bool,
    meanwhile: impl FnOnce(),
) -> u64 {
    let before = bed.region.commits();
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let call = &call;
        let mut threads = vec![scope.spawn(move || call(0))];
        bed.region.is_reached();
        threads.extend((1..CALLS).map(|number| scope.spawn(move || call(number))));
        until("all calls are ordered", || (0..CALLS).all(&mut seen));
        meanwhile();
        assert!(threads.iter().all(|thread| !thread.is_finished()), "a call returned before it was durable");
        drop(hold);
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic").expect("it is durable"));
    });
    bed.region.commits() - before
}

/// Looks and writes that have nothing to do with what is being committed.
fn others_return(tree: &Tree<'_>) {
    assert_eq!(tree.stat("other").expect("stat").size, 9000);
    tree.vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs");
    let names = tree.names("/").expect("list");
    assert!(names.iter().any(|found| found.name == b"other"), "{names:?}");
}

/// Orders a group of what `change` does. Nobody waits for it.
fn order(vfs: &VolumeVfs, change: impl FnOnce(&Tree<'_>)) -> Ticket {
    let group = vfs.begin().expect("begin");
    let ctx = Context { group: Some(group), ..Context::superuser() };
    change(&Tree { vfs, at: Ino::ROOT, ctx });
    vfs.commit_all(&[group], Committed::Ordered).expect("order it")
}

/// A call that finds nothing of its own to commit waits for what others have ordered.
fn waits_for_others(bed: &Bed, order: impl FnOnce() -> Result<()> + Send, call: impl FnOnce() -> Result<()> + Send) {
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let first = scope.spawn(order);
        bed.region.is_reached();
        let second = scope.spawn(call);
        // A call that does not wait is over by then; one that waits never is.
        std::thread::sleep(Duration::from_millis(200));
        assert!(!second.is_finished(), "it returned before what it relies on was durable");
        drop(hold);
        first.join().expect("it does not panic").expect("it is durable");
        second.join().expect("it does not panic").expect("it is durable");
    });
}

#[test]
fn creates_in_one_directory_share_a_commit() {
    with_both(|bed| {
        let vfs = VolumeVfs::new(&bed.volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("other", 0o644, &[1; 9000]).expect("make a file");
        let ctx = &tree.ctx;
        let create = |number| {
            let (made, file) = vfs.create(ctx, Ino::ROOT, &name(number), OFlags::RDWR, Mode::from_raw_mode(0o600))?;
            vfs.forget(made.ino, 1);
            vfs.release(ctx, file)
        };
        let seen = |number| is_there(&vfs, ctx, Ino::ROOT, number);
        assert_eq!(beside_each_other(&bed, create, seen, || others_return(&tree)), 2);
        drop(tree);
        drop(vfs);
        bed.volume.close().expect("close it");
        bed.place.expect_sound();
    });
}

/// With a journal for each queue, commits of four threads are all on their way to the medium while it holds the first,
/// also those of names in one directory, which share its blocks and a block of inodes. Looks go on.
#[test]
fn commits_on_queues_do_not_wait_for_each_other() {
    let trial = Trial { queues_in_turn: true, ..Trial::default() };
    // So large that it has four queues.
    let bed = bed_of(EngineKind::MultiQueue, 128 << 20, trial);
    let vfs = VolumeVfs::new(&bed.volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.file("other", 0o644, &[1; 9000]).expect("make a file");
    (0..4).for_each(|number| drop(tree.file(format!("old {number}"), 0o644, b"").expect("make a file")));
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let rename = |number| tree.rename(format!("old {number}"), name(number));
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || rename(number))).collect();
        until("four commits are on their way", || bed.region.waits() == 4);
        assert!((0..4).all(|number| is_there(&vfs, &tree.ctx, Ino::ROOT, number)), "others see what is ordered");
        others_return(&tree);
        assert!(threads.iter().all(|thread| !thread.is_finished()), "a call returned before it was durable");
        drop(hold);
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic").expect("it is durable"));
    });
    drop(tree);
    drop(vfs);
    bed.volume.close().expect("close it");
    bed.place.expect_sound();
}

#[test]
fn groups_in_one_directory_share_a_commit() {
    with_both(|bed| {
        let vfs = VolumeVfs::new(&bed.volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("other", 0o644, &[1; 9000]).expect("make a file");
        let groups: Vec<Context> = (0..CALLS)
            .map(|number| {
                let ctx = Context { group: Some(vfs.begin().expect("begin")), ..tree.ctx.clone() };
                let made =
                    vfs.mknod(&ctx, Ino::ROOT, &name(number), FileType::RegularFile, Mode::from_raw_mode(0o600), 0);
                vfs.forget(made.expect("make a file").ino, 1);
                ctx
            })
            .collect();
        let commit = |number: u8| Ok(Groups::commit(&vfs, groups[usize::from(number)].group.expect("it has one"))?);
        let seen = |number| is_there(&vfs, &tree.ctx, Ino::ROOT, number);
        assert_eq!(beside_each_other(&bed, commit, seen, || others_return(&tree)), 2);
        drop(tree);
        drop(vfs);
        bed.volume.close().expect("close it");
        bed.place.expect_sound();
    });
}

/// An ordered commit returns while the medium is held; its ticket is what waits.
#[test]
fn an_ordered_commit_waits_for_no_medium() {
    let bed = bed();
    let vfs = VolumeVfs::new(&bed.volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let group = vfs.begin().expect("begin");
        let ctx = Context { group: Some(group), ..tree.ctx.clone() };
        let made = vfs.mkdir(&ctx, Ino::ROOT, b"dir", Mode::from_raw_mode(0o700)).expect("make a directory");
        vfs.forget(made.ino, 1);
        let ticket = vfs.commit_all(&[group], Committed::Ordered).expect("order it");
        assert!(tree.names("/").expect("list").iter().any(|found| found.name == b"dir"));
        let vfs = &vfs;
        let waits = scope.spawn(move || vfs.wait(ticket));
        bed.region.is_reached();
        assert!(!waits.is_finished());
        drop(hold);
        waits.join().expect("it does not panic").expect("it is durable");
    });
    assert_eq!(bed.region.commits(), 1);
}

#[test]
fn syncs_of_files_share_a_commit() {
    with_both(|bed| {
        let vfs = PolicyVfs::new(&bed.volume, Policy::PerSync).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("other", 0o644, &[1; 9000]).expect("make a file").fsync().expect("sync");
        let files: Vec<_> = (0..CALLS)
            .map(|number| {
                // Its close is a sync.
                drop(tree.file(format!("file {number}"), 0o644, &[1; 5000]).expect("make a file"));
                let open = tree.open(format!("file {number}"), OFlags::RDWR | OFlags::NOATIME).expect("open");
                open.write_all(0, &[2; 5000]).expect("write");
                open
            })
            .collect();
        let handles: Vec<_> = files.iter().map(|file| file.handle.clone()).collect();
        let sync = |number: u8| vfs.fsync(&tree.ctx, &handles[usize::from(number)]);
        let pending = |_| vfs.pending().expect("look").files == 0;
        let others = || {
            others_return(&tree);
            // Also a write to a file that is being synced.
            files[0].write_all(100, &[3; 10]).expect("write");
            assert!(files[0].read(0, 100).expect("read") == [2; 100]);
        };
        assert_eq!(beside_each_other(&bed, sync, pending, others), 2);
    });
}

/// Blocks that a group has freed are given out when it is durable, and not before: a crash brings back who had them.
#[test]
fn what_is_freed_is_given_out_when_it_is_durable() {
    with_both(|bed| {
        let vfs = VolumeVfs::new(&bed.volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        drop(tree.file("old", 0o644, &vec![1; 1 << 20]).expect("make a file"));
        let before = bed.region.commits();
        let _ = order(&vfs, |tree| tree.unlink("old").expect("remove it"));
        let _ = order(&vfs, |tree| drop(tree.file("new", 0o600, &vec![2; 1 << 20]).expect("make a file")));
        assert_eq!((tree.stat("old").map(drop), tree.stat("new").expect("stat").size), (Err(Errno::NOENT), 1 << 20));
        // Power fails before either is durable.
        assert_eq!(bed.region.commits(), before);
        drop(tree);
        drop(vfs);
        bed.volume.abandon();
        let volume = bed.place.open();
        assert!(volume.read_file("old").expect("it is there") == vec![1; 1 << 20], "another file has its blocks");
        assert!(volume.read_file("new").is_err());
        volume.close().expect("close it");
        bed.place.expect_sound();
    });
}

/// Whoever finds no space waits for what is freed, and not durable yet.
#[test]
fn space_that_is_not_free_yet_is_waited_for() {
    let bed = bed();
    let vfs = VolumeVfs::new(&bed.volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    drop(tree.file("large", 0o644, &vec![1; 4 << 20]).expect("make a file"));
    let _ = order(&vfs, |tree| tree.unlink("large").expect("remove it"));
    // More than was free before.
    drop(tree.file("new", 0o644, &vec![2; 5 << 20]).expect("make a file"));
    assert_eq!(tree.stat("new").expect("stat").size, 5 << 20);
}

/// A commit fails on the medium: all that wait for it, or come later, get `EIO`, and none waits for ever.
#[test]
fn an_error_of_the_medium_is_told_to_all_who_wait() {
    let bed = bed();
    let vfs = VolumeVfs::new(&bed.volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let ctx = &tree.ctx;
    let make = |number: u8| vfs.mkdir(ctx, Ino::ROOT, &name(number), Mode::from_raw_mode(0o700)).map(drop);
    bed.region.state.lock().expect("nobody panics with it").fail_after = Some(0);
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let make = &make;
        let mut threads = vec![scope.spawn(move || make(0))];
        bed.region.is_reached();
        threads.extend((1..5).map(|number| scope.spawn(move || make(number))));
        until("all are ordered", || (0..5).all(|number| is_there(&vfs, ctx, Ino::ROOT, number)));
        drop(hold);
        for thread in threads {
            assert_eq!(thread.join().expect("it does not panic"), Err(Errno::IO));
        }
    });
    assert_eq!(make(9), Err(Errno::IO));
}

/// The same of numbers of inodes, where the inode file cannot grow.
#[test]
fn numbers_that_are_not_free_yet_are_waited_for() {
    let bed = bed();
    let vfs = VolumeVfs::new(&bed.volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let mut made = 0;
    let refused = loop {
        match tree.mkdir(format!("{made}"), 0o700) {
            Ok(_) => made += 1,
            Err(errno) => break errno,
        }
    };
    assert_eq!(refused, Errno::NOSPC);
    for i in 0..3 {
        let _ = order(&vfs, |tree| tree.rmdir(format!("{i}")).expect("remove it"));
    }
    (0..3).for_each(|i| tree.mkdir(format!("{i}"), 0o700).map(drop).expect("make what was removed"));
    assert!(vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs").free_inodes < 64);
    drop(tree);
    drop(vfs);
    bed.volume.close().expect("close it");
    bed.place.expect_sound();
}

/// Zeros that a crash takes back: whoever writes next, past the log, writes elsewhere.
#[test]
fn zeros_keep_what_a_crash_brings_back() {
    let bed = bed();
    let vfs = VolumeVfs::new(&bed.volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    drop(tree.file("file", 0o644, &vec![1; 1 << 20]).expect("make a file"));
    bed.volume.sync().expect("sync");
    let file = tree.open("file", OFlags::RDWR).expect("open");
    let handle = &file.handle;
    bed.region.state.lock().expect("nobody panics with it").fail_after = Some(bed.region.commits());
    let content = vec![2; 1 << 20];
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let zeros = scope.spawn(|| vfs.fallocate(&tree.ctx, handle, Fallocate::Zero, 0, 1 << 20));
        bed.region.is_reached();
        let write = scope.spawn(|| vfs.write(&tree.ctx, handle, 0, &content));
        until("the write is ordered", || tree.content("file").expect("read").ends_with(&[2]));
        // The power fails before either is durable.
        drop(hold);
        assert_eq!(zeros.join().expect("it does not panic"), Err(Errno::IO));
        assert_eq!(write.join().expect("it does not panic"), Err(Errno::IO));
    });
    drop(file);
    drop(tree);
    drop(vfs);
    bed.volume.abandon();
    let volume = bed.place.open();
    assert!(volume.read_file("file").expect("it is there") == vec![1; 1 << 20], "it is stored over");
    volume.close().expect("close it");
    bed.place.expect_sound();
}

/// What has nothing left to sync is durable only when another thread's commit is.
#[test]
fn a_sync_of_a_clean_file_waits_for_others() {
    for policy in [Policy::PerOp, Policy::PerSync] {
        let bed = bed();
        let vfs = PolicyVfs::new(&bed.volume, policy).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let file = tree.file("file", 0o644, &[1; 5000]).expect("make a file");
        file.fsync().expect("sync");
        let handle = &file.handle;
        let change = || {
            vfs.write(&tree.ctx, handle, 0, &[2; 5000])?;
            vfs.fsync(&tree.ctx, handle)
        };
        waits_for_others(&bed, change, || vfs.fsync(&tree.ctx, handle));
        waits_for_others(&bed, change, || vfs.sync(&tree.ctx));
    }
}

/// A close is a sync under `per-sync`.
#[test]
fn a_close_of_a_clean_file_waits_for_others() {
    let bed = bed();
    let vfs = PolicyVfs::new(&bed.volume, Policy::PerSync).expect("it has groups");
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("file", 0o644, &[1; 5000]).expect("make a file");
    let found = tree.stat("file").expect("stat").ino;
    let other = vfs.open(&tree.ctx, found, OFlags::RDWR).expect("open");
    let handle = &file.handle;
    let change = || {
        vfs.write(&tree.ctx, handle, 0, &[2; 5000])?;
        vfs.fsync(&tree.ctx, handle)
    };
    waits_for_others(&bed, change, || vfs.release(&tree.ctx, other));
}

/// A ticket means something to the mount that gave it alone.
#[test]
fn a_ticket_of_another_volume_is_refused() {
    let (bed, other) = (bed(), bed());
    let (vfs, second) = (VolumeVfs::new(&bed.volume), VolumeVfs::new(&other.volume));
    let ticket = order(&vfs, |tree| _ = tree.mkdir("dir", 0o700).expect("make a directory"));
    let error = second.wait(ticket).expect_err("it is another's");
    assert!(matches!(error, wholly_error::Error::Invalid(_)), "{error}");
    // That was no failure of the volume.
    Tree::new(&second, Ino::ROOT).mkdir("dir", 0o700).expect("make a directory");
    vfs.wait(ticket).expect("it is durable");
}

/// Makes calls that return while no commit does.
fn returns_while_held<T: Send>(bed: &Bed, what: &str, calls: impl FnOnce() -> T + Send) -> T {
    let before = bed.region.steps();
    let given = std::thread::scope(|scope| {
        let _hold = Hold::new(&bed.region);
        let calling = scope.spawn(calls);
        until(what, || calling.is_finished());
        calling.join().expect("it does not panic")
    });
    assert_eq!(bed.region.steps(), before, "{what}");
    given
}

/// Makes a call that returns once a commit does, and not before.
fn waits_for_a_commit(bed: &Bed, call: impl FnOnce() -> Result<()> + Send) {
    let before = bed.region.commits();
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let calling = scope.spawn(call);
        bed.region.is_reached();
        assert!(!calling.is_finished());
        drop(hold);
        calling.join().expect("it does not panic").expect("it is durable");
    });
    assert_eq!(bed.region.commits(), before + 1);
}

/// The timer never commits anything.
const SHARED: Policy = Policy::Shared { interval: Duration::MAX };

/// What was written before is ordered, and no longer pending. The next sync waits for it, though nothing is pending.
#[test]
fn fatomic_waits_for_no_medium() {
    for (policy, data_only) in [(Policy::PerSync, false), (Policy::PerSync, true), (SHARED, false), (SHARED, true)] {
        let bed = bed();
        let vfs = PolicyVfs::new(&bed.volume, policy).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let [file, large] = ["file", "large"].map(|name| tree.file(name, 0o644, &[1; 5000]).expect("make a file"));
        vfs.sync(&tree.ctx).expect("sync");
        returns_while_held(&bed, "fatomic", || {
            for byte in [2, 3] {
                file.write_all(0, &[byte; 2000])?;
                file.write_all(2000, &[byte; 3000])?;
                file.fatomic(data_only)?;
            }
            // So much that it is stored past the log.
            large.write_all(0, &[4; LARGE])?;
            large.fatomic(data_only)
        })
        .expect("it is ordered");
        assert_eq!(vfs.pending().expect("look").files, 0);
        assert!(bed.volume.read_file("file").expect("everybody sees it") == [3; 5000]);
        waits_for_a_commit(&bed, || file.fsync());
        drop((file, large));
        drop(tree);
        drop(vfs);
        // Power fails.
        bed.volume.abandon();
        let volume = bed.place.open();
        assert!(volume.read_file("file").expect("read") == [3; 5000]);
        assert!(volume.read_file("large").expect("read") == [4; LARGE]);
    }
}

/// Each call is a group of its own: others may wait for theirs.
#[test]
fn fatomic_under_per_op_waits_for_nobody() {
    let bed = bed();
    let vfs = PolicyVfs::new(&bed.volume, Policy::PerOp).expect("a policy");
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("file", 0o644, &[1; 5000]).expect("make a file");
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let writing = scope.spawn(|| file.write_all(0, &[2; 5000]));
        bed.region.is_reached();
        let calling = scope.spawn(|| file.fatomic(false));
        until("fatomic returns", || calling.is_finished());
        calling.join().expect("it does not panic").expect("all is ordered");
        assert!(!writing.is_finished());
        drop(hold);
        writing.join().expect("it does not panic").expect("it is durable");
    });
}

/// A thread that orders more than there is room for waits, and holds no lock meanwhile: others look, and order theirs.
#[test]
fn who_orders_without_a_wait_leaves_room_for_others() {
    let bed = bed_of(EngineKind::PageCacheWal, 64 << 20, Trial::default());
    let vfs = VolumeVfs::new(&bed.volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.file("other", 0o644, &[1; 9000]).expect("make a file");
    tree.file("written over", 0o644, &[1; GROUPS * PAGES * BLOCK]).expect("make a file");
    let ordering = |number: usize| {
        let mut group = bed.volume.begin();
        let file = bed.volume.open_file("written over")?;
        group.write_at(&file, (number * PAGES * BLOCK) as u64, &[2; PAGES * BLOCK])?;
        group.create(format!("made {number}"), 0o600)?;
        group.commit_atomic()
    };
    let create = |number| {
        let mode = Mode::from_raw_mode(0o600);
        let made = vfs.mknod(&tree.ctx, Ino::ROOT, &name(number), FileType::RegularFile, mode, 0)?;
        vfs.forget(made.ino, 1);
        Ok::<_, Errno>(())
    };
    std::thread::scope(|scope| {
        let hold = Hold::new(&bed.region);
        let all = scope.spawn(|| (0..GROUPS).try_for_each(ordering).expect("they are ordered"));
        bed.region.is_reached();
        let creating: Vec<_> = (0..CALLS).map(|number| scope.spawn(move || create(number))).collect();
        until("all are ordered", || (0..CALLS).all(|number| is_there(&vfs, &tree.ctx, Ino::ROOT, number)));
        others_return(&tree);
        assert!(!all.is_finished() && creating.iter().all(|thread| !thread.is_finished()));
        drop(hold);
        all.join().expect("it does not panic");
        creating.into_iter().for_each(|thread| thread.join().expect("it does not panic").expect("it is durable"));
    });
    drop(tree);
    drop(vfs);
    bed.volume.close().expect("close it");
    bed.place.expect_sound();
}

/// `Volume::sync` makes durable what was ordered, and so does the unmount; before that, a crash takes it away.
#[test]
fn an_atomic_commit_waits_for_no_medium() {
    for (is_synced, is_closed) in [(false, false), (true, false), (false, true)] {
        let bed = bed();
        bed.volume.create_file("file", 0o644).and_then(|file| file.write_at(0, &[1; 5000])).expect("make a file");
        let volume = &bed.volume;
        returns_while_held(&bed, "an atomic commit", || {
            let mut group = volume.begin();
            let file = volume.open_file("file")?;
            group.write_at(&file, 0, &[2; 5000])?;
            group.create("made", 0o600)?;
            group.commit_atomic()?;
            file.fatomic()?;
            file.fdataatomic()
        })
        .expect("it is ordered");
        assert!(bed.volume.read_file("file").expect("everybody sees it") == [2; 5000]);
        if is_synced {
            waits_for_a_commit(&bed, || Ok(volume.sync()?));
        }
        match is_closed {
            true => bed.volume.close().expect("close it"),
            false => bed.volume.abandon(),
        }
        let volume = bed.place.open();
        let found = (volume.read_file("file").expect("read")[0], volume.metadata("made").is_ok());
        assert_eq!(found, if is_synced || is_closed { (2, true) } else { (1, false) });
    }
}

/// The medium fails after `fatomic` has returned: who waits next is told, and all who come later.
#[test]
fn an_error_after_fatomic_is_told_by_the_next_sync() {
    let bed = bed();
    let vfs = PolicyVfs::new(&bed.volume, Policy::PerSync).expect("it has groups");
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("file", 0o644, &[1; 5000]).expect("make a file");
    file.fsync().expect("sync");
    bed.region.state.lock().expect("nobody panics with it").fail_after = Some(bed.region.commits());
    file.write_all(0, &[2; 5000]).expect("write");
    file.fatomic(false).expect("nothing has failed yet");
    assert_eq!(file.fsync(), Err(Errno::IO));
    assert_eq!([file.fatomic(false), file.fatomic(true), file.fsync()], [Err(Errno::IO); 3]);
}

/// Nobody waits for it, and nothing is pending.
#[test]
fn the_timer_makes_durable_what_is_ordered() {
    let bed = bed();
    let vfs = PolicyVfs::new(&bed.volume, Policy::Shared { interval: Duration::from_millis(20) }).expect("a policy");
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.create("file", 0o644).expect("make a file");
    let before = bed.region.commits();
    file.write_all(0, &[2; 5000]).expect("write");
    file.fatomic(false).expect("it is ordered");
    until("it is durable", || bed.region.commits() > before);
}

/// Content that is replaced by a rename, and content that another file tells of: a crash at any moment leaves no new
/// name with old content, and no file that tells of what is not there.
#[test]
fn a_crash_after_fatomic_leaves_no_new_name_with_old_content() {
    // The large one is stored past the log.
    for bytes in [5000, 100 << 10] {
        let config = SimConfig { log_len: 4 << 20, ..SimConfig::disk() };
        let (world, options) = (World::new(config.clone()), VolumeOptions::default());
        Volume::format_region(&*world.log(), &options).expect("make a volume");
        let volume = Volume::open_region(world.log(), &options).expect("open it");
        assert_eq!(volume.stat().engine, EngineKind::OpLog.name());
        let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let [file, new, other] = ["file", "new", "other"].map(|name| {
            let file = tree.file(name, 0o644, &vec![1; bytes]).expect("make a file");
            file.fsync().expect("sync");
            file
        });
        let begun = world.trace().events.len() as u64;
        let write = |file: &wholly_posix::File<'_>| {
            file.write_all(0, &vec![2; bytes / 2])?;
            file.write_all(bytes as u64 / 2, &vec![2; bytes / 2])
        };
        write(&new).and_then(|()| new.fatomic(false)).expect("it is ordered");
        tree.rename("new", "file").expect("rename");
        write(&file).and_then(|()| file.fatomic(true)).expect("it is ordered");
        write(&other).and_then(|()| other.fsync()).expect("sync");
        let replaced = tree.open("file", OFlags::RDWR).expect("open");
        replaced.write_all(0, &vec![3; bytes]).and_then(|()| replaced.fatomic(false)).expect("it is ordered");
        other.write_all(0, &vec![3; bytes]).and_then(|()| other.fsync()).expect("sync");
        let (trace, mut found) = (world.trace(), BTreeSet::new());
        let mut explorer = Explorer::new(&trace);
        for at in begun..=trace.events.len() as u64 {
            explorer.seek(at);
            let limits = ExploreLimits {
                exhaustive_bits: 3,
                single_units: 40,
                pair_units: 0,
                samples: 4,
                ..ExploreLimits::default()
            };
            explorer.for_each_image(&limits, |_, image| {
                let world = World::from_image(image, config.clone());
                let volume = Volume::open_region(world.log(), &options).expect("open it");
                let content = |name: &str| {
                    let content = volume.read_file(name).ok()?;
                    assert!(content.len() == bytes && content.iter().all(|byte| *byte == content[0]), "{name} is torn");
                    Some(content[0])
                };
                found.insert((content("file"), content("new"), content("other")));
                volume.abandon();
                ControlFlow::Continue(())
            });
        }
        let wanted = [
            (Some(1), Some(1), Some(1)),
            (Some(1), Some(2), Some(1)),
            (Some(2), None, Some(1)),
            (Some(2), None, Some(2)),
            (Some(3), None, Some(2)),
            (Some(3), None, Some(3)),
        ];
        assert!(found.iter().all(|state| wanted.contains(state)), "{found:?}");
        assert!([0, 2, 3, 5].iter().all(|i| found.contains(&wanted[*i])), "{found:?}");
        drop((file, new, other, replaced));
    }
}

/// A sync waits for all that is ordered, also where its medium would let the last ones survive alone.
#[test]
fn a_sync_waits_for_what_the_last_does_not_depend_on() {
    let rules = BlockRules { order: Order::Dependent, most_overwrites: None, room: 64 };
    for (mistake, is_all) in [(None, true), (Some(Mistake::WaitsForOwn), false)] {
        let world = World::new(Arc::new(SimConfig::blocks(2048, rules)));
        let trial = Trial { mistake, ..Trial::default() };
        let options = VolumeOptions { engine: Some(EngineKind::OpLog), trial, ..VolumeOptions::default() };
        Volume::format_region(&*world.blocks().plain(), &options).expect("make a volume");
        let volume = Volume::open_blocks(world.blocks(), &options).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.mkdir("dir", 0o700).expect("make a directory");
        // In blocks of inodes of their own.
        (0..40).for_each(|i| drop(tree.file(format!("{i}"), 0o600, b"").expect("make a file")));
        let _ = order(&vfs, |tree| drop(tree.file("dir/file", 0o600, b"content").expect("make a file")));
        let _ = order(&vfs, |tree| _ = tree.chmod("20", 0o640).expect("chmod"));
        volume.sync().expect("sync");
        let last = world.blocks().order(COMMIT, &[], &[]).expect("the last place");
        assert_eq!(world.blocks().durable() == last, is_all, "{mistake:?}");
        drop(tree);
        drop(vfs);
        volume.abandon();
    }
}
