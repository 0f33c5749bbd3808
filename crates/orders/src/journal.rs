//! Small programs over the multi-queue journal: its trees, and blocks that go home (`chp`) while others read, write and
//! free them. Two queues, over a disk in memory.

use std::ops::Range;
use std::sync::Arc;

use blocks::multi_queue::{DiskQueues, Mistake, MultiQueue, Options};
use blocks::{BLOCK, Lba, Page, Placement, Run, Sequence, Tag, TxBlocks};
use loom::sync::Mutex;
use loom::thread;
use wholly_media::{Guarantees, Kind, PersistenceDomain, Region, Result, Site};

use crate::models::Model;

const S: Site = Site("model");
const VOLUME: [u8; 16] = [5; 16];
const BLOCKS: u64 = 2;
const LOG: Run = Run { start: Lba(BLOCKS), count: 2 + 2 * 8 };

/// A disk: what is written is there. A block is read and written in two halves.
struct Disk {
    bytes: Mutex<Vec<u8>>,
    guarantees: Guarantees,
}

impl Disk {
    fn new() -> Arc<Disk> {
        let guarantees = Guarantees {
            kind: Kind::Disk,
            block: BLOCK as u32,
            atomic_unit: BLOCK as u32,
            domain: PersistenceDomain::Device,
            emulated: true,
            description: "in memory".into(),
        };
        Arc::new(Disk { bytes: Mutex::new(vec![0; (LOG.start.0 + LOG.count) as usize * BLOCK]), guarantees })
    }

    fn value(&self, at: u64) -> u64 {
        word(&self.bytes.lock().unwrap()[at as usize * BLOCK..])
    }
}

impl Region for Disk {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        for (at, half) in halves(offset, bytes.len()) {
            bytes[half.clone()].copy_from_slice(&self.bytes.lock().unwrap()[at..][..half.len()]);
        }
        Ok(())
    }
    fn write(&self, _: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        for (at, half) in halves(offset, bytes.len()) {
            self.bytes.lock().unwrap()[at..][..half.len()].copy_from_slice(&bytes[half]);
        }
        Ok(())
    }
    fn fence(&self, _: Site) -> Result<()> {
        Ok(())
    }
    fn write_through(&self, site: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(site, offset, bytes)
    }
    fn set_len(&self, _: Site, _: u64) -> Result<()> {
        unreachable!("it keeps its length")
    }
}

/// Where each half is, and what it is of the bytes that are read or written. Only block 0 is read beside writes.
fn halves(offset: u64, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let middle = if offset == 0 { len.min(BLOCK / 2) } else { len };
    [0..middle, middle..len]
        .into_iter()
        .filter(|half| !half.is_empty())
        .map(move |half| (offset as usize + half.start, half))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

fn opened(disk: &Arc<Disk>, mistake: Option<Mistake>) -> Arc<MultiQueue> {
    let options = Options { in_turn: true, mistake, ..Options::default() };
    let queues = Arc::new(DiskQueues::new(disk.clone(), 2));
    let blocks = MultiQueue::open(queues, (BLOCKS, LOG), VOLUME, options).unwrap();
    // Counts enter the model before threads do.
    blocks.counters();
    Arc::new(blocks)
}

fn made(mistake: Option<Mistake>) -> (Arc<Disk>, Arc<MultiQueue>) {
    let disk = Disk::new();
    MultiQueue::format(&DiskQueues::new(disk.clone(), 2), LOG, VOLUME, &Options::default()).unwrap();
    let blocks = opened(&disk, mistake);
    (disk, blocks)
}

/// A transaction of block 0, ordered. The next one goes to the other queue.
fn ordered(blocks: &MultiQueue, value: u64, how: Placement) -> Sequence {
    let tx = blocks.begin().unwrap();
    let mut page = Page::zeros();
    page.put(0, &value.to_le_bytes());
    page.put(BLOCK - 8, &value.to_le_bytes());
    blocks.write(S, tx, Lba(0), page, how, Tag::Data).unwrap();
    blocks.order(S, &[tx], &[]).unwrap()
}

fn durable(blocks: &MultiQueue, value: u64, how: Placement) {
    let sequence = ordered(blocks, value, how);
    blocks.wait(S, sequence).unwrap();
}

fn freed(blocks: &MultiQueue) {
    let tx = blocks.begin().unwrap();
    blocks.discard(S, tx, Run { start: Lba(0), count: 1 }).unwrap();
    let sequence = blocks.order(S, &[tx], &[]).unwrap();
    blocks.wait(S, sequence).unwrap();
}

fn value(blocks: &MultiQueue) -> u64 {
    let mut bytes = [0; BLOCK];
    blocks.read(None, Lba(0), &mut bytes).unwrap();
    assert_eq!(word(&bytes), word(&bytes[BLOCK - 8..]), "it is torn");
    word(&bytes)
}

/// Everybody reads it, it goes home, and the next owner finds it.
fn is_at_last(disk: &Arc<Disk>, blocks: Arc<MultiQueue>, expected: u64) {
    assert_eq!(value(&blocks), expected, "it is read");
    blocks.bring_home().unwrap();
    assert_eq!(disk.value(0), expected, "it is home");
    drop(blocks);
    assert_eq!(value(&opened(disk, None)), expected, "the next owner finds it");
}

fn beside(blocks: &Arc<MultiQueue>, work: impl FnOnce(&MultiQueue) + 'static) -> thread::JoinHandle<()> {
    let blocks = blocks.clone();
    thread::spawn(move || work(&blocks))
}

/// A commit that meets `chp` appends a version.
fn a_block_is_written_while_it_goes_home() {
    let (disk, blocks) = made(None);
    durable(&blocks, 1, Placement::Overwrite);
    let home = beside(&blocks, |blocks| blocks.bring_home().unwrap());
    durable(&blocks, 2, Placement::Overwrite);
    assert_eq!(value(&blocks), 2);
    home.join().unwrap();
    is_at_last(&disk, blocks, 2);
}

fn a_block_is_read_while_it_goes_home() {
    let (disk, blocks) = made(None);
    durable(&blocks, 1, Placement::Overwrite);
    let home = beside(&blocks, |blocks| blocks.bring_home().unwrap());
    assert_eq!(value(&blocks), 1);
    home.join().unwrap();
    is_at_last(&disk, blocks, 1);
}

/// A fresh block is journaled while an older version of it goes home (5.4, case 1).
fn a_block_is_freed_and_used_again_while_it_goes_home(mistake: Option<Mistake>) {
    let (disk, blocks) = made(mistake);
    durable(&blocks, 1, Placement::Overwrite);
    let home = beside(&blocks, |blocks| blocks.bring_home().unwrap());
    freed(&blocks);
    durable(&blocks, 3, Placement::Fresh);
    assert_eq!(value(&blocks), 3);
    home.join().unwrap();
    is_at_last(&disk, blocks, 3);
}

/// Two queues, of which one depends on the other: who waits for the second one finds both durable.
fn two_wait_where_one_depends_on_the_other() {
    let (disk, blocks) = made(None);
    let one = ordered(&blocks, 1, Placement::Overwrite);
    let two = ordered(&blocks, 2, Placement::Overwrite);
    let waits = beside(&blocks, move |blocks| blocks.wait(S, one).unwrap());
    blocks.wait(S, two).unwrap();
    assert_eq!(blocks.durable(), two);
    waits.join().unwrap();
    is_at_last(&disk, blocks, 2);
}

/// A tree forgets versions while it is read: what a reader finds never goes back.
fn a_block_is_read_beside_commits() {
    let (disk, blocks) = made(None);
    let writes = beside(&blocks, |blocks| {
        durable(blocks, 1, Placement::Overwrite);
        durable(blocks, 2, Placement::Overwrite);
    });
    let first = value(&blocks);
    assert!(value(&blocks) >= first, "it goes back from {first}");
    writes.join().unwrap();
    is_at_last(&disk, blocks, 2);
}

/// What a reader of the medium finds is not torn: if the block has gone home meanwhile, it reads again.
fn a_block_is_read_beside_a_home_write() {
    let (disk, blocks) = made(None);
    durable(&blocks, 1, Placement::Overwrite);
    blocks.bring_home().unwrap();
    let writes = beside(&blocks, |blocks| {
        durable(blocks, 2, Placement::Overwrite);
        blocks.bring_home().unwrap();
    });
    assert!(matches!(value(&blocks), 1 | 2));
    writes.join().unwrap();
    is_at_last(&disk, blocks, 2);
}

/// Two bring home at once.
fn two_bring_home() {
    let (disk, blocks) = made(None);
    durable(&blocks, 1, Placement::Overwrite);
    let home = beside(&blocks, |blocks| blocks.bring_home().unwrap());
    blocks.bring_home().unwrap();
    home.join().unwrap();
    is_at_last(&disk, blocks, 1);
}

/// All of them.
pub fn all() -> [Model; 7] {
    let model = |name, preemptions, body: fn()| Model { kind: "the journal", name, preemptions, body };
    [
        model("a block is written while it goes home", (2, 3), a_block_is_written_while_it_goes_home),
        model("a block is read while it goes home", (4, 6), a_block_is_read_while_it_goes_home),
        model("a block is used again while it goes home", (2, 3), || {
            a_block_is_freed_and_used_again_while_it_goes_home(None)
        }),
        model("two wait, and one depends on the other", (2, 3), two_wait_where_one_depends_on_the_other),
        model("a block is read beside commits", (4, 6), a_block_is_read_beside_commits),
        model("a block is read beside a home write", (3, 4), a_block_is_read_beside_a_home_write),
        model("two bring home", (4, 6), two_bring_home),
    ]
}

/// One with a mistake.
pub fn with_a_mistake() -> Model {
    let body = || a_block_is_freed_and_used_again_while_it_goes_home(Some(Mistake::DirectOverGoing));
    Model { kind: "the journal", name: "a block is written directly while it goes home", preemptions: (2, 2), body }
}
