//! Several threads make random calls on one file, while everything is written back again and again.
//!
//! Each write stamps its *units* of half a block with a number of its own, and each call is noted with the ticks of a
//! common counter at which it began and had returned. Afterwards, whatever order the threads came in:
//!
//! - a unit that was read is one write's, or zeros, in all of its words; and it is of a call that had begun when the
//!   read ended, and that no other call had replaced for certain when the read began (contract 4.1);
//! - a block that one call wrote wholly is seen wholly: its two units are never of two such calls. Blocks of one call
//!   may be seen apart;
//! - the file is at the end as after some order of all calls in which none comes before one that had returned when it
//!   began; and the same after a sync, once all is home, and once the medium was opened again.
//!
//! What is drawn depends on the seed alone, and so does no verdict on time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use wholly::Options;
use wholly_media::{
    Region,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_vfs::{Context, Fallocate, Handle, Ino, Mode, OFlags, Policy, SetAttr, Vfs};
use wholly_volume::{EngineKind, PolicyVfs, Volume, VolumeOptions, VolumeVfs};

use crate::places::{self, Stored};

const THREADS: u64 = 4;
/// Calls of a thread on a file, and files.
const CALLS: u64 = 120;
const FILES: u64 = 4;
/// Checkpoints beside the calls, at least.
const CHECKPOINTS: usize = 8;

const BLOCK: u64 = 4096;
const UNIT: u64 = BLOCK / 2;
/// Calls begin below as many blocks. Appends come behind.
const BLOCKS: u64 = 6;

const NAME: &[u8] = b"file";

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

/// A call that changes the file: the units that it changes, and what it puts there.
#[derive(Clone, Debug)]
struct Change {
    begin: u64,
    end: u64,
    units: Range<u64>,
    /// 0 for zeros.
    stamp: u64,
    /// Whether it wrote whole blocks.
    is_aligned: bool,
}

impl Change {
    /// Whether the other one has certainly replaced what this one made of a unit that both change.
    fn is_replaced_by(&self, other: &Change) -> bool {
        self.end < other.begin
    }
}

/// A read: the stamps of the units that it saw from `first` on.
#[derive(Debug)]
struct Look {
    begin: u64,
    end: u64,
    first: u64,
    stamps: Vec<u64>,
}

#[derive(Default)]
struct History {
    changes: Vec<Change>,
    looks: Vec<Look>,
}

/// The stamps of a file's units.
fn stamps(bytes: &[u8]) -> Vec<u64> {
    let stamp = |unit: &[u8]| {
        let words: Vec<u64> = unit.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("words"))).collect();
        assert!(words.iter().all(|word| *word == words[0]), "a unit of two calls: {words:x?}");
        words[0]
    };
    bytes.chunks(UNIT as usize).map(stamp).collect()
}

struct File<'v> {
    vfs: &'v dyn Vfs,
    ino: Ino,
    handle: Handle,
    ticks: &'v AtomicU64,
}

impl File<'_> {
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn look(&self, first: u64, units: u64) -> Look {
        let mut bytes = vec![0; (units * UNIT) as usize];
        let begin = self.tick();
        let read = self.vfs.read(&Context::superuser(), &self.handle, first * UNIT, &mut bytes).expect("read");
        Look { begin, end: self.tick(), first, stamps: stamps(&bytes[..read]) }
    }

    fn write(&self, blocks: Range<u64>, stamp: u64) -> Change {
        let bytes = stamp.to_le_bytes().repeat(((blocks.end - blocks.start) * BLOCK / 8) as usize);
        let begin = self.tick();
        let written = self.vfs.write(&Context::superuser(), &self.handle, blocks.start * BLOCK, &bytes).expect("write");
        assert_eq!(written, bytes.len());
        Change { begin, end: self.tick(), units: blocks.start * 2..blocks.end * 2, stamp, is_aligned: true }
    }

    fn append(&self, stamp: u64) -> Change {
        let bytes = stamp.to_le_bytes().repeat((BLOCK / 8) as usize);
        let begin = self.tick();
        let (at, written) = self.vfs.append(&Context::superuser(), &self.handle, &bytes).expect("append");
        assert_eq!((at % UNIT, written), (0, bytes.len()), "the end is where a call left it");
        let first = at / UNIT;
        Change { begin, end: self.tick(), units: first..first + 2, stamp, is_aligned: first.is_multiple_of(2) }
    }

    fn cut(&self, units: u64) -> Change {
        let change = SetAttr { size: Some(units * UNIT), ..SetAttr::default() };
        let begin = self.tick();
        self.vfs.setattr(&Context::superuser(), self.ino, Some(&self.handle), &change).expect("set the size");
        Change { begin, end: self.tick(), units: units..u64::MAX, stamp: 0, is_aligned: false }
    }

    fn punch(&self, blocks: Range<u64>) -> Change {
        let (offset, length) = (blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK);
        let begin = self.tick();
        let ctx = Context::superuser();
        self.vfs.fallocate(&ctx, &self.handle, Fallocate::Punch, offset, length).expect("make a hole");
        Change { begin, end: self.tick(), units: blocks.start * 2..blocks.end * 2, stamp: 0, is_aligned: false }
    }

    /// What one thread does.
    fn calls(&self, thread: u64, seed: u64) -> History {
        let mut random = Random(seed << 8 | thread);
        let mut history = History::default();
        for call in 0..CALLS {
            let stamp = 1 + thread * CALLS + call;
            let first = random.below(BLOCKS);
            let blocks = first..first + 1 + random.below(2);
            match random.below(16) {
                0..5 => history.changes.push(self.write(blocks, stamp)),
                5 => history.changes.push(self.append(stamp)),
                6 => history.changes.push(self.cut(random.below(2 * BLOCKS))),
                7 => history.changes.push(self.punch(blocks)),
                8 => self.vfs.fsync(&Context::superuser(), &self.handle).expect("sync"),
                _ => history.looks.push(self.look(blocks.start * 2, 2 * (blocks.end - blocks.start))),
            }
        }
        history
    }
}

impl History {
    /// Judges a look, and whether it saw blocks of one call.
    fn judge(&self, look: &Look) {
        for (&stamp, unit) in look.stamps.iter().zip(look.first..) {
            let of_unit = || self.changes.iter().filter(|change| change.units.contains(&unit));
            // Before all, the file was empty.
            let empty = Change { begin: 0, end: 0, units: 0..u64::MAX, stamp: 0, is_aligned: false };
            let sources = of_unit().chain([&empty]).filter(|change| change.stamp == stamp && change.begin < look.end);
            let is_replaced =
                |source: &Change| of_unit().any(|other| source.is_replaced_by(other) && other.end < look.begin);
            assert!({ sources }.any(|source| !is_replaced(source)), "unit {unit} is not to be {stamp}: {look:?}");
        }
        let wrote = |stamp: u64| self.changes.iter().find(|change| change.stamp == stamp && change.is_aligned);
        let skipped = look.first % 2;
        for block in look.stamps[(skipped as usize).min(look.stamps.len())..].chunks_exact(2) {
            let both = block[0] != 0 && block[1] != 0 && wrote(block[0]).is_some() && wrote(block[1]).is_some();
            assert!(!both || block[0] == block[1], "a block of two calls: {look:?}");
        }
    }

    /// Whether there is an order of all calls after which the units are these.
    fn judge_order(&self, last: &[u64]) {
        let count = self.changes.len();
        let mut after = vec![Vec::new(); count];
        let mut before = vec![0; count];
        let mut edge = |one: usize, other: usize| {
            after[one].push(other);
            before[other] += 1;
        };
        for (i, one) in self.changes.iter().enumerate() {
            for (j, other) in self.changes.iter().enumerate() {
                // In real time; or the other one is what is left of a unit of both.
                let is_left = |unit: u64| last.get(unit as usize) == Some(&other.stamp);
                let end = one.units.end.min(other.units.end);
                let meets = other.stamp != 0 && (one.units.start.max(other.units.start)..end).any(is_left);
                if i != j && (one.end < other.begin || meets) {
                    edge(i, j);
                }
            }
        }
        let mut next: VecDeque<usize> = (0..count).filter(|i| before[*i] == 0).collect();
        let mut ordered = 0;
        while let Some(i) = next.pop_front() {
            ordered += 1;
            for &other in &after[i] {
                before[other] -= 1;
                if before[other] == 0 {
                    next.push_back(other);
                }
            }
        }
        assert_eq!(ordered, count, "no order of the calls ends with {last:?}");
    }
}

/// Runs threads on one new file after the other. `checkpoint` writes everything back. Returns what is in the last one.
fn run(vfs: &dyn Vfs, checkpoint: &(dyn Fn() + Sync)) -> Vec<u64> {
    let ctx = Context::superuser();
    let mut last = Vec::new();
    for seed in 0..FILES {
        if seed > 0 {
            vfs.unlink(&ctx, Ino::ROOT, NAME).expect("remove the last one");
        }
        let (made, handle) =
            vfs.create(&ctx, Ino::ROOT, NAME, OFlags::RDWR, Mode::RUSR | Mode::WUSR).expect("make a file");
        let ticks = AtomicU64::new(1);
        let file = File { vfs, ino: made.ino, handle: handle.clone(), ticks: &ticks };
        let (start, is_over) = (Barrier::new(THREADS as usize + 1), AtomicBool::new(false));
        let mut all = History::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (file, start) = (&file, &start);
                    scope.spawn(move || {
                        start.wait();
                        file.calls(thread, seed)
                    })
                })
                .collect();
            let pass = scope.spawn(|| {
                start.wait();
                let mut passes = 0;
                while passes < CHECKPOINTS || !is_over.load(Ordering::SeqCst) {
                    checkpoint();
                    passes += 1;
                }
            });
            let done: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            is_over.store(true, Ordering::SeqCst);
            pass.join().expect("checkpoints");
            for history in done {
                let History { changes, looks } = history.expect("a thread's calls");
                all.changes.extend(changes);
                all.looks.extend(looks);
            }
        });
        all.looks.iter().for_each(|look| all.judge(look));
        let size = vfs.getattr(&ctx, made.ino).expect("its size").size;
        let left = || file.look(0, size.div_ceil(UNIT) + 1);
        let end = left();
        assert_eq!(end.stamps.len() as u64 * UNIT, size, "all of it is read");
        all.judge(&end);
        all.judge_order(&end.stamps);
        vfs.fsync(&ctx, &handle).expect("sync");
        assert_eq!(left().stamps, end.stamps, "after a sync");
        checkpoint();
        assert_eq!(left().stamps, end.stamps, "once all is home");
        vfs.release(&ctx, handle).expect("close");
        vfs.forget(made.ino, 1);
        last = end.stamps;
    }
    last
}

/// What is in the file of an opened medium.
fn content(vfs: &dyn Vfs) -> Vec<u64> {
    let ctx = Context::superuser();
    let attr = vfs.lookup(&ctx, Ino::ROOT, NAME).expect("find it");
    let handle = vfs.open(&ctx, attr.ino, OFlags::RDONLY).expect("open it");
    let mut bytes = vec![0; attr.size as usize];
    assert_eq!(vfs.read(&ctx, &handle, 0, &mut bytes).expect("read"), bytes.len());
    vfs.release(&ctx, handle).expect("close");
    vfs.forget(attr.ino, 1);
    stamps(&bytes)
}

const SHARED: Policy = Policy::Shared { interval: Duration::from_secs(3600) };

fn on_a_store(policy: Policy) {
    let options = Options { policy, background: false, ..Options::default() };
    let Some(place) = places::or_skip(Stored::new(options)) else { return };
    let checkpoint = || place.store().checkpoint().map(drop).expect("a checkpoint");
    let left = run(&place.vfs(), &checkpoint);
    let place = place.again().expect("open it again");
    assert_eq!(content(&place.vfs()), left, "once it was opened again");
}

#[test]
fn of_a_store_each_call_by_itself() {
    on_a_store(Policy::PerOp);
}

#[test]
fn of_a_store_from_sync_to_sync() {
    on_a_store(Policy::PerSync);
}

#[test]
fn of_a_store_all_calls_together() {
    on_a_store(SHARED);
}

/// `None`: each call by itself.
fn on_volumes(policy: Option<Policy>) {
    for engine in EngineKind::ALL.iter().filter(|engine| policy.is_none() || engine.promises_groups()) {
        let file = rustix::fs::memfd_create("volume", MemfdFlags::CLOEXEC).expect("a file in memory");
        rustix::fs::ftruncate(&file, 64 << 20).expect("its length");
        let region: Arc<dyn Region> = Arc::new(PmemRegion::open(file, PmemOptions::default()).expect("a region"));
        let options = VolumeOptions { engine: Some(*engine), ..VolumeOptions::default() };
        Volume::format_region(&*region, &options).expect("make a volume");
        let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it");
        println!("{}", engine.name());
        let checkpoint = || volume.checkpoint().expect("a checkpoint");
        let left = match policy {
            None => run(&VolumeVfs::new(&volume), &checkpoint),
            Some(policy) => run(&PolicyVfs::new(&volume, policy).expect("it has groups"), &checkpoint),
        };
        volume.close().expect("close it");
        let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it again");
        let vfs = VolumeVfs::new(&volume);
        assert_eq!(content(&vfs), left, "once it was opened again");
        drop(vfs);
        volume.close().expect("close it");
        assert_eq!(Volume::check_region(&*region).expect("check it").findings, []);
    }
}

#[test]
fn of_a_volume_each_call_by_itself() {
    on_volumes(None);
}

#[test]
fn of_a_volume_from_sync_to_sync() {
    on_volumes(Some(Policy::PerSync));
}

#[test]
fn of_a_volume_all_calls_together() {
    on_volumes(Some(SHARED));
}

/// An oracle that cannot fail proves nothing.
mod oracle {
    use super::*;

    fn change(begin: u64, units: Range<u64>, stamp: u64) -> Change {
        Change { begin, end: begin + 1, units, stamp, is_aligned: true }
    }

    fn fails(judge: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge)).is_err()
    }

    #[test]
    fn sees_what_is_wrong() {
        let looks = |stamps: &[u64]| Look { begin: 100, end: 101, first: 0, stamps: stamps.to_vec() };
        let old_and_new = History { changes: vec![change(1, 0..4, 7), change(3, 0..4, 8)], looks: Vec::new() };
        old_and_new.judge(&looks(&[8, 8, 8, 8]));
        assert!(fails(|| old_and_new.judge(&looks(&[7, 7]))), "replaced long ago");
        assert!(fails(|| old_and_new.judge(&looks(&[0]))), "written long ago");
        assert!(fails(|| old_and_new.judge(&looks(&[9]))), "written by nobody");
        let beside = History {
            changes: vec![Change { end: 10, ..change(1, 0..4, 7) }, Change { end: 10, ..change(1, 0..4, 8) }],
            looks: Vec::new(),
        };
        beside.judge(&looks(&[7, 7, 8, 8]));
        assert!(fails(|| beside.judge(&looks(&[7, 8]))), "a block of two calls");
        beside.judge_order(&[7, 7, 7, 7]);
        assert!(fails(|| beside.judge_order(&[7, 7, 8, 8])), "each of them is the later one");
        assert!(fails(|| stamps(&[[1; 1024], [2; 1024]].concat()).clear()), "a unit of two calls");
    }
}
