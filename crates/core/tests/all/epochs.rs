//! Epochs take bounded space: what a program writes between two syncs costs what it writes to, not how often. By
//! counters: the segments of the log that are in use, after each call.

use wholly::{Fallocate, File, Options, Policy, Store};
use wholly_host::{HostMedium, HostOptions};
use wholly_sim::Random;

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
/// was replayed.
fn run(name: &str, bytes: u64, calls: impl Fn(&mut Random, usize) -> Option<Call>) {
    for policy in [Policy::PerSync, Policy::Shared { interval: std::time::Duration::from_secs(3600) }] {
        for (dir, medium) in Dir::on_media(name) {
            let mut rig = Rig::new(dir, medium, policy, bytes);
            for round in 0..2 {
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

fn below(random: &mut Random, bound: u64) -> u64 {
    random.below(bound)
}

#[test]
fn one_block_again_and_again() {
    run("epoch-one-block", 3 * BLOCK, |_, n| (n < 20_000).then_some(Call::Write(BLOCK, BLOCK)));
}

#[test]
fn whole_blocks_at_random() {
    run("epoch-blocks", FILE, |random, n| {
        (n < 12_000).then(|| Call::Write(below(random, FILE / BLOCK) * BLOCK, BLOCK))
    });
}

#[test]
fn few_bytes_at_random() {
    run("epoch-bytes", FILE / 4, |random, n| (n < 60_000).then(|| Call::Write(below(random, FILE / 4 - 128), 128)));
}

#[test]
fn ranges_that_overlap_the_last_one_by_half() {
    run("epoch-halves", FILE, |_, n| {
        (n < 3 * FILE as usize / 2048).then(|| Call::Write(n as u64 * 2048 % (FILE - BLOCK), BLOCK))
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
