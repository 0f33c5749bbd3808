//! How many commits of the device groups take, and what they write. The device is held by the test, so no count is a
//! matter of time.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use wholly_blocks::batch::Batch;
use wholly_blocks::log::{LogDevice, LogOptions};
use wholly_blocks::{Lba, Page, Placement, Run, Tag, TxBlocks, TxDevice, Txid};
use wholly_media::Site;
use wholly_posix::Tree;
use wholly_vfs::{Groups, Ino};
use wholly_volume::format::Seed;
use wholly_volume::format::bitmap::UNITS;
use wholly_volume::format::log::LogSeed;
use wholly_volume::{EngineKind, Trial, Volume, VolumeOptions, VolumeVfs};

use super::flash::ticking;
use super::groups::within;
use super::ordered::{bed_of, until};
use super::place::{Place, is_long};
use super::watch::{Watch, Watched};

const BYTES: u64 = 32 << 20;
const COMMITTERS: u64 = 16;
/// How long a commit waits for the others at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// A log as a device with so many blocks.
fn device(blocks: u64) -> Arc<dyn TxDevice> {
    let of_log = 2050;
    let place = Place::of_zeros((blocks + of_log) * 4096, EngineKind::None);
    let run = Run { start: Lba(blocks), count: of_log };
    let seed = LogSeed::of(Seed::of(&[3; 16]), 1).ring();
    Arc::new(LogDevice::new(place.region, blocks, run, (seed, 1), LogOptions::default()))
}

fn options() -> VolumeOptions {
    VolumeOptions { engine: Some(EngineKind::OpLog), clock: ticking, ..VolumeOptions::default() }
}

#[derive(Default)]
struct State {
    is_held: bool,
    /// Commits that wait.
    waits: u64,
    /// Threads that have more groups: a commit waits until as many groups are ordered and not durable.
    committers: u64,
    running: HashMap<Txid, Vec<(u64, Tag)>>,
    /// What each commit has written.
    commits: Vec<Vec<(u64, Tag)>>,
}

/// A device whose commits the test holds, and notes.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    blocks: OnceLock<Arc<dyn TxBlocks>>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    fn hold(&self, is_held: bool) {
        self.state().is_held = is_held;
        self.changed.notify_all();
    }

    /// Groups that are ordered, and not durable.
    fn ordered(&self) -> u64 {
        let blocks = self.blocks.get().expect("it is made");
        blocks.order(Site("test"), &[], &[]).expect("the last place").0 - blocks.durable().0
    }

    fn take(&self) -> Vec<Vec<(u64, Tag)>> {
        std::mem::take(&mut self.state().commits)
    }
}

impl Watch for Gate {
    fn writes(&self, tx: Txid, at: Lba, _: &Page, _: Placement, tag: Tag) {
        self.state().running.entry(tx).or_default().push((at.0, tag));
    }

    fn ends(&self, txs: &[Txid]) {
        let mut state = self.state();
        state.waits += 1;
        state = self.changed.wait_while(state, |state| state.is_held).expect("nobody panics with it");
        let begun = Instant::now();
        // An engine that keeps the others from that is told from one that does not by the count.
        while state.committers > 0 && self.ordered() < state.committers && begun.elapsed() < PATIENCE {
            drop(state);
            std::thread::yield_now();
            state = self.state();
        }
        state.waits -= 1;
        let written = txs.iter().flat_map(|tx| state.running.remove(tx).unwrap_or_default()).collect();
        state.commits.push(written);
    }
}

/// Lets commits go on, also where the test fails.
struct Hold<'g>(&'g Gate);

impl<'g> Hold<'g> {
    fn new(gate: &'g Gate) -> Hold<'g> {
        gate.hold(true);
        Hold(gate)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

/// A volume of `op_log` on a device that the test holds.
fn held() -> (Arc<Watched<dyn TxDevice, Gate>>, Volume) {
    let gate = Arc::new(Watched { inner: device(BYTES / 4096), watch: Gate::default() });
    let blocks = Arc::new(Batch::new(gate.clone(), 512));
    Volume::format_blocks_as(&*blocks, &options(), [7; 16]).expect("make a volume");
    let volume = Volume::open_blocks(blocks.clone(), &options()).expect("open it");
    assert!(gate.watch.blocks.set(blocks).is_ok());
    (gate, volume)
}

/// 16 groups have made a file each in one directory. They commit while the commit of the first is at the device: so
/// they share the next one. Each has each block once: the leaf, the inodes, the inode of the directory, the bitmap.
#[test]
fn groups_in_one_directory_write_its_blocks_once() {
    let (gate, volume) = held();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    // The directory has its leaf, and there are inodes for all.
    (0..40).for_each(|i| drop(tree.create(format!("before {i}"), 0o600).expect("make a file")));
    (0..40).for_each(|i| tree.unlink(format!("before {i}")).expect("remove it"));
    drop(tree.create("first", 0o600).expect("make a file"));
    let groups: Vec<_> = (0..COMMITTERS).map(|_| vfs.begin().expect("begin")).collect();
    let name = |i: usize| format!("file {i}");
    let mut inode_blocks = BTreeSet::from([0]);
    for (i, group) in groups.iter().enumerate() {
        let made = within(&tree, *group).create(name(i), 0o600).and_then(|file| file.stat()).expect("make a file");
        inode_blocks.insert(made.ino.0 / 16);
    }
    volume.sync().expect("sync");
    gate.watch.take();
    std::thread::scope(|scope| {
        let hold = Hold::new(&gate.watch);
        let commit = |group| {
            scope.spawn({
                let vfs = &vfs;
                move || vfs.commit(group).expect("it is durable")
            })
        };
        commit(groups[0]);
        until("the first one commits", || gate.watch.state().waits == 1);
        groups[1..].iter().for_each(|group| drop(commit(*group)));
        until("all are ordered", || (0..groups.len()).all(|i| tree.exists(name(i)).expect("look")));
        drop(hold);
    });
    let commits = gate.watch.take();
    assert_eq!(commits.len(), 2, "{commits:?}");
    let all: Vec<BTreeMap<u64, Tag>> = commits.iter().map(|commit| commit.iter().copied().collect()).collect();
    for (commit, blocks) in commits.iter().zip(&all) {
        assert_eq!(commit.len(), blocks.len(), "each block is written once: {commit:?}");
        let count = |tag| blocks.values().filter(|of| **of == tag).count();
        assert_eq!([Tag::Directory, Tag::Bitmap, Tag::Data, Tag::Map].map(count), [1, 1, 0, 0], "{blocks:?}");
    }
    let inodes = |blocks: &BTreeMap<u64, Tag>| blocks.values().filter(|tag| **tag == Tag::Inode).count();
    assert_eq!(inodes(&all[0]), 2, "that of the file, and that of the directory");
    assert_eq!(inodes(&all[1]), inode_blocks.len());
    let shared = all[0].keys().filter(|block| all[1].contains_key(block)).count();
    println!("{commits:?}: {shared} blocks are in both");
    drop(tree);
    drop(vfs);
    volume.close().expect("close it");
}

/// Threads commit groups that make, write and read a file each, in one directory. Returns how many groups.
fn in_one_directory(volume: &Volume, is_done: impl Fn() + Sync) -> u64 {
    let rounds = if is_long() { 100 } else { 8 };
    std::thread::scope(|scope| {
        for thread in 0..COMMITTERS {
            let is_done = &is_done;
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut group = volume.begin();
                    let content = [(16 * round + thread) as u8; 4096];
                    let file = group.create(format!("d/{thread}-{round}"), 0o644).expect("create");
                    group.write_at(&file, 0, &content).expect("write");
                    let mut read = [0; 4096];
                    assert_eq!(group.read_at(&file, 0, &mut read).expect("read"), 4096);
                    assert!(read == content);
                    group.commit().expect("commit");
                }
                is_done();
            });
        }
    });
    COMMITTERS * rounds
}

/// While a commit is at the device, all others order their groups: 16 threads need two commits for each group of
/// theirs. An engine that waits for the device with its locks held needs one for each group.
#[test]
fn threads_in_one_directory_share_commits() {
    let (gate, volume) = held();
    volume.mkdir("d", 0o755).expect("make a directory");
    gate.watch.take();
    gate.watch.state().committers = COMMITTERS;
    let groups = in_one_directory(&volume, || gate.watch.state().committers -= 1);
    let commits = gate.watch.take().len() as u64;
    volume.close().expect("close it");

    let bed = bed_of(EngineKind::PageCacheWal, BYTES, Trial { is_locked: true, ..Trial::default() });
    bed.volume.mkdir("d", 0o755).expect("make a directory");
    let before = bed.region.commits();
    in_one_directory(&bed.volume, || ());
    let locked = bed.region.commits() - before;
    bed.volume.close().expect("close it");
    println!("{groups} groups: {commits} commits, and {locked} with locks held");
    assert!(commits * 10 <= groups * 2, "{commits} for {groups} groups");
    assert!(locked >= groups, "{locked} for {groups} groups");
}

thread_local!(static WHO: Cell<Option<usize>> = const { Cell::new(None) });

/// Notes which blocks of metadata the transactions of each thread write.
struct Noted {
    last: u64,
    running: Mutex<HashMap<Txid, BTreeSet<u64>>>,
    /// By the number that a thread has given itself: how many groups, and their blocks.
    written: Mutex<[(u64, BTreeSet<u64>); 4]>,
}

impl Watch for Noted {
    fn writes(&self, tx: Txid, at: Lba, _: &Page, _: Placement, tag: Tag) {
        if tag != Tag::Data {
            self.running.lock().unwrap().entry(tx).or_default().insert(at.0);
        }
    }

    fn ends(&self, txs: &[Txid]) {
        for tx in txs {
            let blocks = self.running.lock().unwrap().remove(tx).unwrap_or_default();
            // What writes a superblock makes the inode file longer.
            if let Some(who) = WHO.get().filter(|_| !blocks.contains(&0) && !blocks.contains(&self.last)) {
                let (groups, written) = &mut self.written.lock().unwrap()[who];
                *groups += 1;
                written.extend(blocks);
            }
        }
    }
}

/// Four threads make, write and remove files in directories that they have made: no group writes a block of metadata
/// that another thread's writes, but for the growth of the inode file.
#[test]
fn private_files_of_threads_share_no_metadata() {
    let blocks = 6 * UNITS;
    let watch = Noted { last: blocks - 1, running: Mutex::default(), written: Mutex::default() };
    let noted = Arc::new(Watched { inner: Arc::new(Batch::new(device(blocks), 512)) as Arc<dyn TxBlocks>, watch });
    Volume::format_blocks_as(&*noted, &options(), [7; 16]).expect("make a volume");
    let volume = Volume::open_blocks(noted.clone(), &options()).expect("open it");
    let all_begin = Barrier::new(4);
    let groups = if is_long() { 2500 } else { 100 };
    std::thread::scope(|scope| {
        for who in 0..4 {
            let (volume, all_begin) = (&volume, &all_begin);
            scope.spawn(move || {
                volume.mkdir(format!("{who}"), 0o755).expect("make a directory");
                all_begin.wait();
                WHO.set(Some(who));
                for i in 0..groups {
                    let mut group = volume.begin();
                    let file = group.create(format!("{who}/{i}"), 0o644).expect("create");
                    group.write_at(&file, 0, &[1; 5000]).expect("write");
                    if i % 3 > 0 {
                        group.unlink(format!("{who}/{}", i - 1)).expect("remove");
                    }
                    group.commit().expect("commit");
                }
            });
        }
    });
    let written = std::mem::take(&mut *noted.watch.written.lock().unwrap());
    let all: u64 = written.iter().map(|(groups, _)| groups).sum();
    println!("{all} groups write {:?} blocks", written.each_ref().map(|(_, blocks)| blocks.len()));
    assert!(all >= 4 * groups, "{all}");
    for (one, other) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        let shared: Vec<u64> = written[one].1.intersection(&written[other].1).copied().collect();
        assert_eq!(shared, [], "threads {one} and {other}, in {all} groups");
    }
    volume.close().expect("close it");
    assert_eq!(Volume::check_region(&*noted.plain()).expect("check it").findings, []);
}
