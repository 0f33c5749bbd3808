//! The layer that makes ordered transactions of a device, over a scheduler: threads that write one block, with too
//! little room for all, and with enough. Nothing hangs; what a thread has ordered is read by it or overwritten by a
//! later one; and the device has what was ordered last.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use scheduled_blocks::batch::Batch;
use scheduled_blocks::{
    BLOCK, Counters, DeviceGuarantees, Lba, Page, Placement, Run, Sequence, Tag, TxBlocks, TxDevice, Txid,
};
use sync::thread;
use wholly_error::{Error, Result};
use wholly_media::Site;

const S: Site = Site("test");

#[derive(Default)]
struct State {
    committed: BTreeMap<u64, Page>,
    active: HashMap<Txid, BTreeMap<u64, Option<Page>>>,
    begun: u64,
    commits: u64,
}

/// Lets others go on in each command.
struct Device {
    guarantees: DeviceGuarantees,
    state: Mutex<State>,
}

impl Device {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        thread::yield_now();
        let done = work(&mut self.state.lock().unwrap());
        thread::yield_now();
        done
    }

    fn of<T>(&self, tx: Txid, work: impl FnOnce(&mut BTreeMap<u64, Option<Page>>) -> T) -> Result<T> {
        let missing = || Error::Invalid(format!("{tx:?}"));
        self.with(|state| state.active.get_mut(&tx).map(work).ok_or_else(missing))
    }
}

impl TxDevice for Device {
    fn guarantees(&self) -> &DeviceGuarantees {
        &self.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        self.with(|state| {
            state.begun += 1;
            let tx = Txid::new(1, state.begun);
            state.active.insert(tx, BTreeMap::new());
            Ok(tx)
        })
    }

    fn write(&self, _: Site, tx: Txid, at: Lba, page: &Page, _: Placement, _: Tag) -> Result<()> {
        self.of(tx, |own| own.insert(at.0, Some(page.clone()))).map(drop)
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        let own = tx.map(|tx| self.of(tx, |own| own.get(&at.0).cloned())).transpose()?.flatten();
        let page = own.unwrap_or_else(|| self.with(|state| state.committed.get(&at.0).cloned()));
        bytes.copy_from_slice(page.as_deref().unwrap_or(&[0; BLOCK]));
        Ok(())
    }

    fn discard(&self, _: Site, tx: Txid, run: Run) -> Result<()> {
        self.of(tx, |own| run.blocks().for_each(|at| _ = own.insert(at.0, None)))
    }

    fn abort(&self, _: Site, tx: Txid) -> Result<()> {
        self.with(|state| state.active.remove(&tx).map(drop).ok_or_else(|| Error::Invalid(format!("{tx:?}"))))
    }

    fn commit(&self, _: Site, txs: &[Txid]) -> Result<()> {
        self.with(|state| {
            for tx in txs {
                let own = state.active.remove(tx).ok_or_else(|| Error::Invalid(format!("{tx:?}")))?;
                for (at, page) in own {
                    match page {
                        Some(page) => _ = state.committed.insert(at, page),
                        None => _ = state.committed.remove(&at),
                    }
                }
            }
            state.commits += 1;
            Ok(())
        })
    }

    fn plain_write(&self, _: Site, at: Lba, page: &Page) -> Result<()> {
        self.with(|state| _ = state.committed.insert(at.0, page.clone()));
        Ok(())
    }

    fn flush(&self, _: Site) -> Result<()> {
        Ok(())
    }

    fn trim(&self, _: Site, run: Run) -> Result<()> {
        self.with(|state| run.blocks().for_each(|at| _ = state.committed.remove(&at.0)));
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters { commits: self.state.lock().unwrap().commits, ..Counters::default() }
    }
}

fn get(blocks: &Batch, tx: Option<Txid>, at: u64) -> u8 {
    let mut bytes = [0; BLOCK];
    blocks.read(tx, Lba(at), &mut bytes).expect("a read");
    bytes[0]
}

/// What one thread does, and the places and values of what it has ordered of block 0.
fn committer(blocks: &Batch, number: u8, turns: u8) -> Vec<(Sequence, u8)> {
    let mut ordered = Vec::new();
    for turn in 0..turns {
        let fill = 1 + number * turns + turn;
        loop {
            let tx = blocks.begin().expect("a transaction");
            // The second page of some goes to the device at once.
            blocks.admit(tx, 1 + u64::from(turn % 2)).expect("room");
            let write = |at| blocks.write(S, tx, Lba(at), Page::new(&[fill; BLOCK]), Placement::Overwrite, Tag::Data);
            match write(0) {
                Ok(()) => {}
                Err(Error::Busy(..)) => {
                    blocks.abort(S, tx).expect("an abort");
                    thread::yield_now();
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            write(1 + u64::from(number)).expect("its own block");
            let place = blocks.order(S, &[tx], &[]).expect("an order");
            ordered.push((place, fill));
            assert_eq!(get(blocks, None, 1 + u64::from(number)), fill, "it is read, wherever it is");
            if turn == 0 {
                blocks.send(S, place).expect("a start");
            }
            assert_eq!(get(blocks, None, 1 + u64::from(number)), fill);
            blocks.wait(S, place).expect("a commit");
            assert!(blocks.durable() >= place);
            break;
        }
    }
    ordered
}

fn run(room: u64) {
    const THREADS: u8 = 3;
    const TURNS: u8 = 2;
    let guarantees = DeviceGuarantees {
        blocks: 16,
        most_pages: None,
        sure_overwrites: 8,
        free_blocks_help: true,
        lent_by_overwrite: u64::MAX,
        zeroes_discarded: true,
        plain_unit: BLOCK as u32,
        checks_blocks: false,
        emulated: true,
        description: "a device in memory".into(),
    };
    let device = Arc::new(Device { guarantees, state: Mutex::default() });
    let blocks = Arc::new(Batch::new(device.clone(), room));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let blocks = blocks.clone();
            thread::spawn(move || committer(&blocks, number, TURNS))
        })
        .collect();
    // A plain write beside them takes its turn.
    blocks.plain().write(S, Lba(9).byte(), &[7; BLOCK]).expect("a plain write");
    let mut ordered: Vec<(Sequence, u8)> =
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect();
    ordered.sort();
    let places: Vec<u64> = ordered.iter().map(|(place, _)| place.0).collect();
    assert_eq!(places, (1..=u64::from(THREADS * TURNS)).collect::<Vec<_>>(), "each place once");
    let (last, fill) = ordered[ordered.len() - 1];
    assert_eq!((blocks.durable(), get(&blocks, None, 0), get(&blocks, None, 9)), (last, fill, 7));
    let state = device.state.lock().unwrap();
    assert_eq!((state.committed[&0][0], state.active.len()), (fill, 0), "the device has it, and nothing runs");
    assert!(state.commits <= u64::from(THREADS * TURNS));
}

/// With room for one at a time, threads commit because they wait for room. With room for all, they wait for commits
/// only.
#[test]
fn committers_in_many_schedules() {
    let count = if std::env::var_os("WHOLLY_LONG").is_some() { 50_000 } else { 1_500 };
    for room in [2, 16] {
        shuttle::check_random(move || run(room), count);
        shuttle::check_pct(move || run(room), count, 3);
    }
}
