//! Random histories against a model, with collection and checkpoints between.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use wholly_blocks::xftl::{CHAIN_ENTRIES, Programs, Trial, check};
use wholly_error::Error;

/// What a device is to show, and what it is to have programmed.
#[derive(Default)]
struct Model {
    committed: Vec<u64>,
    running: BTreeMap<Txid, BTreeMap<u32, u64>>,
    /// The volatile buffer, oldest first.
    buffer: Vec<(Option<Txid>, u32)>,
    room: usize,
    data: u64,
    plain: u64,
    chain: u64,
}

const LOGICAL: u32 = 60;

impl Model {
    fn of(&self, tx: Option<Txid>, lpn: u32) -> u64 {
        let own = tx.and_then(|tx| self.running[&tx].get(&lpn).copied());
        own.unwrap_or(self.committed[lpn as usize])
    }

    /// The entries of a chain of this transaction: its pages, and its runs of zeros.
    fn entries(&self, tx: Txid) -> u64 {
        let writes = &self.running[&tx];
        let pages = writes.values().filter(|value| **value != 0).count();
        let is_zero = |lpn: u32| writes.get(&lpn) == Some(&0);
        let runs = writes.keys().filter(|lpn| is_zero(**lpn) && (**lpn == 0 || !is_zero(**lpn - 1))).count();
        (pages + runs) as u64
    }

    fn hold(&mut self, tx: Option<Txid>, lpn: u32) {
        if !self.buffer.contains(&(tx, lpn)) {
            self.buffer.push((tx, lpn));
        }
        while self.buffer.len() > self.room {
            let (tx, _) = self.buffer.remove(0);
            self.count(tx);
        }
    }

    fn count(&mut self, tx: Option<Txid>) {
        match tx {
            Some(_) => self.data += 1,
            None => self.plain += 1,
        }
    }

    /// These are programmed.
    fn program(&mut self, is: impl Fn(Option<Txid>) -> bool) {
        let out: Vec<Option<Txid>> = self.buffer.iter().map(|(tx, _)| *tx).filter(|tx| is(*tx)).collect();
        out.into_iter().for_each(|tx| self.count(tx));
        self.buffer.retain(|(tx, _)| !is(*tx));
    }
}

fn compare(device: &Device, model: &Model) {
    for lpn in 0..LOGICAL {
        assert_eq!(value(device, None, lpn).unwrap(), model.of(None, lpn), "committed version of {lpn}");
    }
    for tx in model.running.keys() {
        let lpns = model.running[tx].keys().copied();
        lpns.for_each(|lpn| assert_eq!(value(device, Some(*tx), lpn).unwrap(), model.of(Some(*tx), lpn), "own {lpn}"));
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::NoSpace(_))
}

/// One history. If it is `exact`, the device has room for all that the history writes, and what it programs is counted.
pub fn history(seed: u64, is_exact: bool, trial: Trial) -> Programs {
    let mut random = Random(seed);
    let (channels, pages) = ([1, 2, 3][(seed % 3) as usize], 4 + 4 * (seed / 3 % 3) as u32);
    let data_blocks = if is_exact { 190 / pages + 3 } else { 130 / pages } + channels;
    let (geometry, config) = sizes(channels, pages, LOGICAL, data_blocks);
    let config = Config { buffer: 1 + random.below(9) as u32, reserve: 1 + random.below(4) as u32, ..config };
    let geometry = Geometry { blocks: config.blocks(channels, pages), ..geometry };
    // Of some pages more than of others, so that young blocks are collected as well as old ones.
    let hot = [60, 20, 6][random.below(3) as usize];
    let flash: Arc<dyn Flash> = Rules::new(Ram::new(geometry)).unwrap();
    Device::format(&flash, &config, ID).unwrap();
    let mut device = Device::open_trial(flash.clone(), trial).unwrap();
    let mut model = Model { committed: vec![0; LOGICAL as usize], room: config.buffer as usize, ..Model::default() };
    let (mut known, mut next, mut full) = (BTreeSet::new(), 1, 0);
    for step in 0..1200 {
        let of = if random.below(8) == 0 { LOGICAL.into() } else { hot };
        let lpn = random.below(of) as u32;
        let tx = model.running.keys().nth(random.below(4) as usize).copied();
        let is_taken = model.running.values().any(|writes| writes.contains_key(&lpn));
        next += 1;
        match (random.below(100), tx) {
            (0..12, None) if model.running.len() < if is_exact { 2 } else { 3 } => {
                let tx = device.begin().unwrap();
                assert!(known.insert(tx), "a number used twice (T5)");
                model.running.insert(tx, BTreeMap::new());
            }
            (0..55, Some(tx)) => match write(&device, tx, lpn, next) {
                Ok(()) => {
                    model.running.get_mut(&tx).unwrap().insert(lpn, next);
                    model.hold(Some(tx), lpn);
                    assert_eq!(value(&device, Some(tx), lpn).unwrap(), next);
                    assert_eq!(value(&device, None, lpn).unwrap(), model.of(None, lpn), "others see it (T2)");
                }
                Err(error) => {
                    assert!(is_full(&error) && !is_exact, "{error}");
                    full += 1;
                }
            },
            (55..59, Some(tx)) => {
                let count = 1 + random.below(u64::from((LOGICAL - lpn).min(5))) as u32;
                match device.discard(SITE, tx, run(lpn, count)) {
                    Ok(()) => {
                        (lpn..lpn + count).for_each(|lpn| _ = model.running.get_mut(&tx).unwrap().insert(lpn, 0));
                        model.buffer.retain(|(of, at)| *of != Some(tx) || !(lpn..lpn + count).contains(at));
                    }
                    Err(error) => assert!(is_full(&error) && !is_exact, "{error}"),
                }
            }
            (59..64, Some(tx)) => {
                let before = device.programs();
                device.abort(SITE, tx).unwrap();
                assert_eq!(device.programs(), before, "an abort programs nothing (X6)");
                model.running.remove(&tx);
                model.buffer.retain(|(of, _)| *of != Some(tx));
            }
            (64..75, Some(tx)) => {
                // Several at once, in any order: of one page the last counts.
                let mut txs: Vec<Txid> = model.running.keys().copied().filter(|_| random.below(3) == 0).collect();
                txs.retain(|other| *other != tx);
                txs.push(tx);
                if random.below(2) == 0 {
                    txs.reverse();
                }
                let entries: u64 = txs.iter().map(|tx| model.entries(*tx)).sum();
                device.commit(SITE, &txs).unwrap();
                model.chain += entries.div_ceil(CHAIN_ENTRIES as u64);
                model.program(|of| of.is_none_or(|of| txs.contains(&of)));
                for tx in txs {
                    for (lpn, value) in model.running.remove(&tx).unwrap() {
                        model.committed[lpn as usize] = value;
                    }
                }
            }
            (75..86, _) => match plain(&device, lpn, next) {
                Ok(()) => {
                    assert!(!is_taken, "a plain write to a page of a running transaction (T12)");
                    model.committed[lpn as usize] = next;
                    model.hold(None, lpn);
                }
                Err(error) if is_taken => assert!(matches!(error, Error::Busy(..)), "{error}"),
                Err(error) => assert!(is_full(&error) && !is_exact, "{error}"),
            },
            (86..90, _) if !is_exact => match device.trim(SITE, run(lpn, 1)) {
                Ok(()) => model.committed[lpn as usize] = 0,
                Err(error) => assert!(is_taken && matches!(error, Error::Busy(..)), "{error}"),
            },
            (90..94, _) => {
                device.flush(SITE).unwrap();
                model.program(|of| of.is_none());
            }
            (94..95, _) => {
                // The next life. What ran is gone, the rest is as it was: the chip has lost nothing.
                device.flush(SITE).unwrap();
                model.program(|of| of.is_none());
                model.buffer.clear();
                drop(device);
                let report = check(flash.clone()).unwrap();
                assert!(report.faults.is_empty(), "{:?}", report.faults);
                assert_eq!(report.right, model.committed.iter().filter(|value| **value != 0).count() as u64);
                device = Device::open_trial(flash.clone(), trial).unwrap();
                model.running.clear();
                compare(&device, &model);
            }
            _ => {}
        }
        if step % 25 == 0 {
            compare(&device, &model);
        }
        if is_exact {
            let programs = device.programs();
            assert_eq!((programs.data, programs.plain, programs.chain), (model.data, model.plain, model.chain));
        }
    }
    compare(&device, &model);
    let programs = device.programs();
    assert!(is_exact || full == 0 || programs.collection > 0, "a full device collects");
    programs
}

fn histories(is_exact: bool) -> Programs {
    let mut all = Programs::default();
    for seed in 0..1000 {
        let done = history(seed, is_exact, Trial::default());
        all.collection += done.collection;
        all.map += done.map;
        all.erases += done.erases;
        all.data += done.data;
        all.plain += done.plain;
        all.chain += done.chain;
    }
    println!("{all:?}");
    all
}

/// What transactions, plain writes and chains program is equal to the formula, whatever collection and checkpoints do.
#[test]
fn a_thousand_histories_program_what_the_formula_says() {
    let all = histories(true);
    assert!(all.collection > 500 && all.erases > 10_000 && all.map > 10_000, "{all:?}");
}

/// And on devices that are full again and again, with trims.
#[test]
fn a_thousand_histories_on_full_devices() {
    let all = histories(false);
    assert!(all.collection > 5000 && all.erases > 10_000, "{all:?}");
}
