//! Epochs take bounded space: what a program writes between two syncs costs what it writes to, not how often. By
//! counters: the segments of the log that are in use, after each call.
//!
//! `WHOLLY_LONG=1` makes as many calls as a long day, on files of up to 1 GiB.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use wholly::{Error, Fallocate, File, Options, Policy, Store, site};
use wholly_host::{HostMedium, HostOptions};
use wholly_media::{Guarantees, Region, Site};
use wholly_sim::{Mutation, MutationKind, Random, SimConfig, World};

use crate::common::Dir;

const BLOCK: u64 = 4096;

/// What a case may take beyond twice the blocks that it writes to, in bytes of log.
const BESIDE: u64 = 8 << 20;

/// Bytes of the file that most cases write to.
const FILE: u64 = 16 << 20;

#[derive(Clone, Debug)]
enum Call {
    Write(u64, u64),
    SetLen(u64),
    Hole(u64, u64),
    Append(u64),
}

struct Rig {
    medium: HostMedium,
    store: Store,
    file: File,
    dir: Dir,
    model: Vec<u8>,
    /// Blocks that were written to since the last sync.
    touched: Vec<bool>,
    distinct: u64,
    stamp: u8,
    peak: u64,
}

fn open(dir: &Dir, medium: HostMedium, policy: Policy) -> Store {
    let host = HostOptions { medium, ..HostOptions::default() };
    Store::open_with(&**dir, options(policy), host).unwrap()
}

fn options(policy: Policy) -> Options {
    Options { policy, background: false, ..Options::default() }
}

impl Rig {
    fn new(dir: Dir, medium: HostMedium, policy: Policy, bytes: u64) -> Self {
        std::fs::write(dir.join("file"), vec![0; bytes as usize]).unwrap();
        let host = HostOptions { medium, ..HostOptions::default() };
        Store::init_with(&*dir, &options(policy), host).unwrap();
        let store = open(&dir, medium, policy);
        let file = store.open_file("file").unwrap();
        let model = vec![0; bytes as usize];
        Rig { medium, store, file, dir, model, touched: Vec::new(), distinct: 0, stamp: 0, peak: 0 }
    }

    fn touch(&mut self, offset: u64, length: u64) {
        let blocks = offset / BLOCK..(offset + length).div_ceil(BLOCK);
        self.touched.resize(self.touched.len().max(blocks.end as usize), false);
        for touched in &mut self.touched[blocks.start as usize..blocks.end as usize] {
            self.distinct += u64::from(!std::mem::replace(touched, true));
        }
    }

    fn call(&mut self, call: &Call) {
        self.stamp = self.stamp.wrapping_add(1);
        let stamp = self.stamp;
        let data = |length: u64| (0..length).map(|i| stamp ^ i as u8).collect::<Vec<_>>();
        match *call {
            Call::Write(offset, length) => {
                self.file.write_at(offset, &data(length)).unwrap();
                let end = (offset + length) as usize;
                self.model.resize(self.model.len().max(end), 0);
                self.model[offset as usize..end].copy_from_slice(&data(length));
                self.touch(offset, length);
            }
            Call::SetLen(length) => {
                self.file.set_len(length).unwrap();
                self.model.resize(length as usize, 0);
            }
            Call::Hole(offset, length) => {
                self.file.fallocate(Fallocate::Punch, offset, length).unwrap();
                let end = (offset + length).min(self.model.len() as u64);
                if offset < end {
                    self.model[offset as usize..end as usize].fill(0);
                    self.touch(offset, length);
                }
            }
            Call::Append(length) => {
                let offset = self.file.append(&data(length)).unwrap();
                assert_eq!(offset, self.model.len() as u64);
                self.model.extend(data(length));
                self.touch(offset, length);
            }
        }
        let stat = self.store.stat();
        let used = u64::from(stat.segments - stat.free_segments) * stat.segment_bytes;
        let bound = 2 * self.distinct * BLOCK + BESIDE;
        assert!(used <= bound, "{used} bytes of log, {bound} at most for {} blocks: {call:?}", self.distinct);
        self.peak = self.peak.max(used);
    }

    fn compare(&self) {
        let mut bytes = vec![0; self.model.len() + 1];
        assert_eq!(self.file.read_at(0, &mut bytes).unwrap(), self.model.len());
        if let Some(at) = (0..self.model.len()).find(|&at| bytes[at] != self.model[at]) {
            panic!("byte {at} of {}: {} instead of {}", self.model.len(), bytes[at], self.model[at]);
        }
    }

    /// The store is left as it is, and opened again: the log is replayed.
    fn again(self, policy: Policy) -> Self {
        let Rig { medium, dir, model, stamp, .. } = self;
        drop((self.file, self.store));
        let store = open(&dir, medium, policy);
        assert!(store.recovery().scan.groups > 0, "the log tells what the epoch did");
        let file = store.open_file("file").unwrap();
        Rig { medium, store, file, dir, model, touched: Vec::new(), distinct: 0, stamp, peak: 0 }
    }
}

/// Makes the calls twice, with a sync behind each, and looks at the bytes before the sync, behind it, and once the log
/// was replayed. A long run makes them once, under one policy.
fn run(name: &str, bytes: u64, calls: impl Fn(&mut Random, usize) -> Option<Call>) {
    let policies = [Policy::PerSync, Policy::Shared { interval: std::time::Duration::from_secs(3600) }];
    let (policies, rounds) = long(((&policies[..], 2), (&policies[..1], 1)));
    for policy in policies.iter().copied() {
        for (dir, medium) in Dir::on_media(name) {
            let mut rig = Rig::new(dir, medium, policy, bytes);
            for round in 0..rounds {
                let mut random = Random(round);
                for n in 0.. {
                    let Some(call) = calls(&mut random, n) else { break };
                    rig.call(&call);
                }
                rig.compare();
                println!("{name} {policy:?} {medium:?}: {} blocks, {} bytes of log", rig.distinct, rig.peak);
                rig.file.sync().unwrap();
                rig.compare();
                rig = rig.again(policy);
                rig.compare();
                rig.store.checkpoint().unwrap();
            }
        }
    }
}

/// One of two: the second in a long run.
fn long<T>((short, long): (T, T)) -> T {
    if std::env::var_os("WHOLLY_LONG").is_some() { long } else { short }
}

fn below(random: &mut Random, bound: u64) -> u64 {
    random.below(bound)
}

#[test]
fn one_block_again_and_again() {
    let calls = long((20_000, 10_000_000));
    run("epoch-one-block", 3 * BLOCK, |_, n| (n < calls).then_some(Call::Write(BLOCK, BLOCK)));
}

#[test]
fn whole_blocks_at_random() {
    let (bytes, calls) = long(((FILE, 12_000), (1 << 30, 1 << 19)));
    run("epoch-blocks", bytes, |random, n| {
        (n < calls).then(|| Call::Write(below(random, bytes / BLOCK) * BLOCK, BLOCK))
    });
}

#[test]
fn few_bytes_at_random() {
    let (bytes, calls) = long(((FILE / 4, 60_000), (64 << 20, 2_000_000)));
    run("epoch-bytes", bytes, |random, n| (n < calls).then(|| Call::Write(below(random, bytes - 128), 128)));
}

#[test]
fn ranges_that_overlap_the_last_one_by_half() {
    let bytes = long((FILE, 64 << 20));
    run("epoch-halves", bytes, |_, n| {
        (n < 3 * bytes as usize / 2048).then(|| Call::Write(n as u64 * 2048 % (bytes - BLOCK), BLOCK))
    });
}

#[test]
fn with_cuts_holes_and_appends() {
    run("epoch-mixed", FILE / 8, |random, n| {
        let offset = below(random, FILE / 8);
        (n < 20_000).then(|| match below(random, 12) {
            0 => Call::SetLen(offset),
            1 => Call::Hole(offset, 1 + below(random, 40_000)),
            2 => Call::Append(1 + below(random, 9000)),
            3 => Call::Write(offset, 1 + below(random, 100_000)),
            4..=6 => Call::Write(offset, 1 + below(random, 9000)),
            _ => Call::Write(offset / 8, 1 + below(random, 500)),
        })
    });
}

/// A cut takes back what was written, so that nothing is written over.
#[test]
fn a_block_that_is_cut_off_again_and_again() {
    run("epoch-cut", 3 * BLOCK, |_, n| {
        let step = [Call::Write(BLOCK, BLOCK), Call::SetLen(BLOCK)];
        (n < 20_000).then(|| step[n % 2].clone())
    });
}

/// Very many files have an epoch each. What they have in memory is bounded: the rest waits in a file without a name, is
/// written over there, and is committed.
#[test]
fn ten_thousand_files_have_an_epoch_each() {
    const PENDING: u64 = 1 << 20;
    let files = long((300, 10_000));
    for (dir, medium) in Dir::on_media("epoch-files") {
        let names: Vec<String> = (0..files).map(|n| format!("f{n}")).collect();
        names.iter().for_each(|name| std::fs::write(dir.join(name), [1; 4 * BLOCK as usize]).unwrap());
        let options = Options { pending_bytes: PENDING, ..options(Policy::PerSync) };
        let host = || HostOptions { medium, ..HostOptions::default() };
        Store::init_with(&*dir, &options, host()).unwrap();
        let store = Store::open_with(&*dir, options.clone(), host()).unwrap();
        let open_files: Vec<File> = names.iter().map(|name| store.open_file(name).unwrap()).collect();
        let mut models = vec![vec![1u8; 4 * BLOCK as usize]; names.len()];
        let (mut random, mut peak) = (Random(1), 0);
        for round in 0..3 {
            for (n, (file, model)) in open_files.iter().zip(&mut models).enumerate() {
                let (offset, length) = (below(&mut random, 2 * BLOCK), 1 + below(&mut random, 2 * BLOCK));
                let data = vec![(n + 7 * round) as u8; length as usize];
                file.write_at(offset, &data).unwrap();
                model.resize(model.len().max((offset + length) as usize), 0);
                model[offset as usize..][..length as usize].copy_from_slice(&data);
                if n % 16 == round {
                    file.set_len(offset).unwrap();
                    model.truncate(offset as usize);
                }
                let stat = store.stat();
                peak = peak.max(stat.gathered_bytes);
                let used = u64::from(stat.segments - stat.free_segments) * stat.segment_bytes;
                let bound = names.len() as u64 * (8 * BLOCK + (8 << 10)) + BESIDE;
                assert!(used <= bound, "{used} bytes of log");
            }
            open_files[7 + round].sync().unwrap();
        }
        println!("{medium:?}: {peak} bytes in memory");
        // What a record takes for an entry stays, and a call more.
        assert!(peak <= PENDING + names.len() as u64 * 3 * 128 + 2 * BLOCK, "{peak} bytes in memory");
        let check = |store: &Store| {
            for (name, model) in names.iter().zip(&models) {
                let mut bytes = vec![0; 4 * BLOCK as usize + 1];
                let length = store.open_file(name).unwrap().read_at(0, &mut bytes).unwrap();
                assert!(bytes[..length] == model[..], "{name}");
            }
        };
        check(&store);
        store.sync().unwrap();
        assert_eq!(store.stat().gathered_bytes, 0);
        check(&store);
        drop((open_files, store));
        check(&Store::open_with(&*dir, options, host()).unwrap());
    }
}

/// A log whose next fence or synchronous write, when armed, tells that it has begun, and waits until it is told to go
/// on; and that cannot grow when it is full.
struct Held {
    region: Arc<dyn Region>,
    is_armed: AtomicBool,
    is_full: AtomicBool,
    begun: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Held {
    fn new(region: Arc<dyn Region>) -> (Arc<Held>, Receiver<()>, Sender<()>) {
        let ((begun, has_begun), (go_on, told)) = (channel(), channel());
        let (is_armed, is_full, go_on_told) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::new(told));
        (Arc::new(Held { region, is_armed, is_full, begun, go_on: go_on_told }), has_begun, go_on)
    }

    fn wait(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.begun.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }
}

impl Region for Held {
    fn guarantees(&self) -> &Guarantees {
        self.region.guarantees()
    }
    fn len(&self) -> u64 {
        self.region.len()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.region.read(offset, buf)
    }
    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.region.write(site, offset, data)
    }
    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.wait();
        self.region.fence(site)
    }
    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.wait();
        self.region.write_through(site, offset, data)
    }
    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        if self.is_full.load(Ordering::SeqCst) && len > self.len() {
            return Err(wholly_media::Error::new("fallocate", "the log", Errno::NOSPC));
        }
        self.region.set_len(site, len)
    }
}

/// The commit of one file's epoch waits for its medium: calls on other files return, also a sync that has nothing to
/// commit.
#[test]
fn a_commit_that_waits_is_in_no_other_files_way() {
    for config in [SimConfig::pmem(), SimConfig::disk()] {
        let world = World::new(SimConfig { log_len: 0, ..config });
        world.add_file("a", &[1; 9000]);
        world.add_file("b", &[2; 9000]);
        let options = options(Policy::PerSync);
        Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
        let (held, has_begun, go_on) = Held::new(world.log());
        let store = Store::open_on(held.clone(), world.host(), options, None).unwrap();
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        a.write_at(0, b"new").unwrap();
        b.write_at(0, b"new").unwrap();
        std::thread::scope(|scope| {
            held.is_armed.store(true, Ordering::SeqCst);
            let syncing = scope.spawn(|| a.sync());
            has_begun.recv().unwrap();
            b.write_at(1, b"newer").unwrap();
            b.set_len(5000).unwrap();
            let mut bytes = [0; 6];
            assert_eq!(b.read_at(0, &mut bytes).unwrap(), 6);
            assert_eq!(&bytes, b"nnewer");
            assert!(!syncing.is_finished(), "it waits");
            go_on.send(()).unwrap();
            syncing.join().unwrap().unwrap();
        });
        b.sync().unwrap();
    }
}

/// A log on persistent memory that cannot grow: the write fails that finds no room, what was written before stays, and
/// the sync works. Other epochs are not committed for it.
#[test]
fn a_full_log_fails_the_write_and_not_the_sync() {
    let full = Mutation::new(site::LOG_GROW, MutationKind::Fail(Errno::NOSPC));
    let world = World::new(SimConfig { log_len: 0, mutations: vec![full], ..SimConfig::pmem() });
    let options = Options {
        segment_bytes: 16 << 10,
        log_min_bytes: 128 << 10,
        log_max_bytes: 128 << 10,
        ..options(Policy::PerSync)
    };
    world.add_file("a", &vec![1; 1 << 20]);
    world.add_file("b", &[2; 5000]);
    Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
    let store = Store::open_on(world.log(), world.host(), options.clone(), None).unwrap();
    let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
    b.write_at(0, b"uncommitted").unwrap();
    let mut written = 0;
    let error = loop {
        match a.write_at(written * 3000, &[written as u8; 3000]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    // What it has it may write over, and cut.
    a.write_at(10, &[77; 4000]).unwrap();
    a.set_len(written * 3000 + 1).unwrap();
    a.sync().unwrap();
    let expected = |at: u64| match at {
        10..4010 => 77,
        at if at < written * 3000 => (at / 3000) as u8,
        _ => 1,
    };
    let check = |store: &Store| {
        let a = store.open_file("a").unwrap();
        let mut bytes = vec![0; 1 << 20];
        let length = a.read_at(0, &mut bytes).unwrap() as u64;
        assert_eq!(length, written * 3000 + 1);
        assert!((0..length).all(|at| bytes[at as usize] == expected(at)));
    };
    check(&store);
    let image = world.kill();
    std::mem::forget((a, b, store));
    let world = World::from_image(&image, SimConfig { log_len: 0, ..SimConfig::pmem() });
    let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
    check(&store);
    let mut bytes = [0; 11];
    store.open_file("b").unwrap().read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 11], "nobody has synced it");
}

/// A sync brings back what is in the swap. Where the log has no room for it, that leaves memory again.
#[test]
fn a_sync_that_fails_leaves_memory_to_others() {
    let world = World::new(SimConfig { log_len: 0, ..SimConfig::disk() });
    ["a", "b"].iter().for_each(|name| world.add_file(name, &[1; 100_000]));
    let options = Options {
        segment_bytes: 4096,
        log_min_bytes: 16 << 10,
        log_max_bytes: 16 << 10,
        gather_bytes: 1500,
        pending_bytes: 200,
        ..options(Policy::PerSync)
    };
    Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
    let (log, ..) = Held::new(world.log());
    let store = Store::open_on(log.clone(), world.host(), options, None).unwrap();
    let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
    a.write_at(0, &[2; 1200]).unwrap();
    assert!(store.stat().gathered_bytes <= 200);
    log.is_full.store(true, Ordering::SeqCst);
    let mut group = store.begin();
    while group.append(&b, &[3; 1000]).is_ok() {}
    let refused = a.sync();
    assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
    assert!(store.stat().gathered_bytes < 600, "{} bytes in memory", store.stat().gathered_bytes);
    drop(group);
    a.sync().unwrap();
    let mut bytes = [0; 1201];
    a.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes[..], [&[2; 1200][..], &[1]].concat());
}

/// One more file with calls that are not committed than there may be is refused, and keeps none of the others from
/// anything.
#[test]
fn one_file_more_than_may_be_dirty_is_refused() {
    for config in [SimConfig::pmem(), SimConfig::disk()] {
        let world = World::new(SimConfig { log_len: 0, ..config });
        NAMES.iter().for_each(|name| world.add_file(name, b""));
        let options = Options { most_dirty: 3, ..options(Policy::PerSync) };
        Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
        let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
        let files = NAMES.map(|name| store.open_file(name).unwrap());
        files[..3].iter().for_each(|file| file.write_at(0, b"new").unwrap());
        let refused = files[3].write_at(0, b"new");
        assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
        assert_eq!(files[3].len(), 0);
        files[0].append(b"est").unwrap();
        files[1].sync().unwrap();
        files[3].write_at(0, b"new").unwrap();
        assert!(matches!(files[1].append(b"est"), Err(Error::NoSpace(_))));
        // A group that takes a file commits it, and a last close does.
        store.begin().add(&files[0]).unwrap();
        files[1].append(b"est").unwrap();
        drop(store.open_file(NAMES[1]).unwrap());
        assert!(matches!(files[0].append(b"!"), Err(Error::NoSpace(_))), "it was not the last one");
        store.sync().unwrap();
        assert_eq!(files.map(|file| file.len()), [6, 6, 3, 3]);
    }
}

/// From some call on there is no space for the log, until a call fails for that, or a sync. Then there is space: the
/// call may be made again, and so may the sync. What has been synced is there after the death of the process.
#[test]
fn whoever_finds_no_room_may_try_again() {
    let policies = [Policy::PerSync, Policy::Shared { interval: std::time::Duration::from_secs(3600) }];
    for (policy, config) in
        policies.iter().flat_map(|policy| [(policy, SimConfig::pmem()), (policy, SimConfig::disk())])
    {
        let (mut failed_calls, mut failed_syncs, mut early) = (0, 0, 0);
        for full_from in (0..160).step_by(3) {
            let (calls, syncs, commits) = fill(*policy, &config, full_from);
            (failed_calls, failed_syncs, early) = (failed_calls + calls, failed_syncs + syncs, early + commits);
        }
        println!("{policy:?}, {:?}: {failed_calls} calls failed, {failed_syncs} syncs, {early} early", config.log);
        assert!(failed_calls > 9, "{policy:?}");
        assert_eq!(early > 9, *policy != Policy::PerSync);
    }
}

const NAMES: [&str; 4] = ["f0", "f1", "f2", "f3"];

/// How many calls failed for want of space, how many syncs, and how many commits were early.
fn fill(policy: Policy, config: &SimConfig, full_from: usize) -> (u32, u32, u64) {
    let world = World::new(SimConfig { log_len: 0, ..config.clone() });
    let options = Options {
        segment_bytes: 4096,
        log_min_bytes: 16 << 10,
        log_max_bytes: 16 << 10,
        gather_bytes: 1500,
        ..options(policy)
    };
    NAMES.iter().for_each(|name| world.add_file(name, &[1; 30_000]));
    Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
    let (log, ..) = Held::new(world.log());
    let store = Store::open_on(log.clone(), world.host(), options.clone(), None).unwrap();
    let files = NAMES.map(|name| store.open_file(name).unwrap());
    let mut models = NAMES.map(|_| vec![1u8; 30_000]);
    let (mut random, mut done) = (Random(full_from as u64), 0);
    let mut call = |call: &mut dyn FnMut() -> wholly::Result<()>| {
        if done == full_from {
            log.is_full.store(true, Ordering::SeqCst);
        }
        done += 1;
        let Err(error) = call() else { return 0 };
        assert!(matches!(error, Error::NoSpace(_)), "{error}");
        log.is_full.store(false, Ordering::SeqCst);
        call().unwrap();
        1
    };
    let (mut failed_calls, mut failed_syncs) = (0, 0);
    for step in 0..160u32 {
        let n = random.below(NAMES.len() as u64) as usize;
        let (file, model) = (&files[n], &mut models[n]);
        let (offset, length) = (random.below(30_000), 1 + random.below(6000) as usize);
        let end = offset as usize + length;
        failed_calls += match step % 4 {
            0 => {
                model.resize(offset as usize, 0);
                call(&mut || file.set_len(offset))
            }
            1 => {
                let to = end.min(model.len());
                model[to.min(offset as usize)..to].fill(0);
                call(&mut || file.fallocate(Fallocate::Punch, offset, length as u64))
            }
            _ => {
                let data = vec![step as u8; length];
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&data);
                call(&mut || file.write_at(offset, &data))
            }
        };
        // Syncs find the log full.
        if step % 40 == 39 {
            log.is_full.store(true, Ordering::SeqCst);
            failed_syncs += call(&mut || file.sync());
            log.is_full.store(false, Ordering::SeqCst);
        }
    }
    log.is_full.store(true, Ordering::SeqCst);
    failed_syncs += files.iter().map(|file| call(&mut || file.sync())).sum::<u32>();
    let (image, early) = (world.kill(), store.stat().early_commits);
    std::mem::forget((files, store));
    let world = World::from_image(&image, SimConfig { log_len: 0, ..config.clone() });
    let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
    for (name, model) in NAMES.iter().zip(&models) {
        let mut bytes = vec![0; 40_000];
        let length = store.open_file(name).unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes[..length] == model[..], "{name}, {policy:?}, no space from call {full_from} on");
    }
    (failed_calls, failed_syncs, early)
}
