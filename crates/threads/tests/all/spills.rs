//! A log of whole blocks over a scheduler: transactions spill their pages to free blocks while the owner of these
//! writes them. Nobody's page is ever in a block that another one has taken.

use std::sync::Arc;

use scheduled_blocks::log::{LogDevice, LogOptions, RingSeed};
use scheduled_blocks::{BLOCK, Lba, Page, Placement, Run, Tag, TxDevice, Txid};
use sync::thread;
use wholly_error::{Error, Result};
use wholly_media::{Guarantees, Region, Site};
use wholly_sim::{Medium, SimConfig, World};

const S: Site = Site("test");
const BLOCKS: u64 = 64;
/// What the log is lent, and its owner writes now and then.
const TAKEN: Run = Run { start: Lba(30), count: 3 };

/// Lets others go on in each call.
struct Yields(Arc<dyn Region>);

impl Yields {
    fn with<T>(&self, work: impl FnOnce(&dyn Region) -> T) -> T {
        thread::yield_now();
        let done = work(&*self.0);
        thread::yield_now();
        done
    }
}

impl Region for Yields {
    fn guarantees(&self) -> &Guarantees {
        self.0.guarantees()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.with(|region| region.read(offset, buf))
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.with(|region| region.write(site, offset, data))
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.with(|region| region.fence(site))
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.with(|region| region.write_through(site, offset, data))
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.with(|region| region.set_len(site, len))
    }
}

fn get(device: &LogDevice, tx: Option<Txid>, at: u64) -> u8 {
    let mut bytes = [0; BLOCK];
    device.read(tx, Lba(at), &mut bytes).expect("a read");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {at} is whole");
    bytes[0]
}

fn write(device: &LogDevice, tx: Txid, at: u64, fill: u8, how: Placement) -> Result<()> {
    device.write(S, tx, Lba(at), &Page::new(&[fill; BLOCK]), how, Tag::Data)
}

/// Writes more over committed blocks than memory takes. Some of it twice, some of it is dropped again.
fn spiller(device: &LogDevice, first: u64) {
    for turn in 1..=2 {
        let tx = device.begin().expect("a transaction");
        let blocks = first..first + 4;
        blocks.clone().for_each(|at| write(device, tx, at, turn, Placement::Overwrite).expect("a write"));
        write(device, tx, first, 10 + turn, Placement::Overwrite).expect("a write");
        device.discard(S, tx, Run { start: Lba(first + 3), count: 1 }).expect("a discard");
        let own = |tx| [first, first + 1, first + 2].map(|at| get(device, tx, at));
        assert_eq!((own(Some(tx)), get(device, Some(tx), first + 3)), ([10 + turn, turn, turn], 0));
        match turn {
            1 => device.commit(S, &[tx]).expect("a commit"),
            _ => device.abort(S, tx).expect("an abort"),
        }
        assert_eq!(own(None), [11, 1, 1]);
    }
}

/// Writes the blocks that were lent, and gives them back.
fn owner(device: &LogDevice) {
    for turn in 0..2 {
        let (tx, fill) = (device.begin().expect("a transaction"), 100 + turn);
        TAKEN.blocks().for_each(|at| write(device, tx, at.0, fill, Placement::Fresh).expect("a write"));
        let holds = |tx| TAKEN.blocks().all(|at| get(device, tx, at.0) == fill);
        assert!(holds(Some(tx)));
        device.commit(S, &[tx]).expect("a commit");
        assert!(holds(None));
        device.trim(S, TAKEN).expect("a trim");
    }
}

fn run() {
    let area = Run { start: Lba(BLOCKS), count: 32 };
    let world =
        World::new(SimConfig { log_len: (BLOCKS + 32) * BLOCK as u64, log: Medium::BLOCKS, ..SimConfig::disk() });
    let options = LogOptions { overwrites: Some(2), ..LogOptions::default() };
    let region = Arc::new(Yields(world.log()));
    let device = Arc::new(LogDevice::new(region, BLOCKS, area, (RingSeed::new(1), 1), options));
    device.trim(S, TAKEN).expect("a trim");
    // Enough for all that is spilled, whatever the owner has taken.
    device.trim(S, Run { start: Lba(40), count: 8 }).expect("a trim");
    let works: [fn(&LogDevice); 3] = [|device| spiller(device, 0), |device| spiller(device, 10), owner];
    let threads = works.map(|work| {
        let device = device.clone();
        thread::spawn(move || work(&device))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    device.write_back().expect("home");
    assert_eq!([0, 1, 2, 10, 11, 12].map(|at| get(&device, None, at)), [11, 1, 1, 11, 1, 1]);
    let full = device.begin().expect("a transaction");
    // As many blocks as at the begin are free, and no more.
    let written = (16..30).take_while(|at| match write(&device, full, *at, 1, Placement::Overwrite) {
        Ok(()) => true,
        Err(Error::NoSpace(_)) => false,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(written.count(), 2 + 8 + 3);
}

#[test]
fn owners_and_spilled_pages_in_many_schedules() {
    let count = if std::env::var_os("WHOLLY_LONG").is_some() { 20_000 } else { 1_000 };
    shuttle::check_random(run, count);
    shuttle::check_pct(run, count, 3);
}
