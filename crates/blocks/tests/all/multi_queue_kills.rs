//! The multi-queue journal on a disk, whose owner is killed: the next one, at once, finds what was acknowledged, and a
//! set that is closed under dependency. `WHOLLY_LONG=1`: 500 times.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use wholly_blocks::multi_queue::{DiskQueues, MultiQueue, Options};
use wholly_blocks::{BLOCK, Lba, Page, Placement, Run, Tag, TxBlocks};
use wholly_media::Site;
use wholly_media::disk::DiskRegion;
use wholly_scratch::TestDir;
use wholly_sim::Random;

const S: Site = Site("test");
const BLOCKS: u64 = 64;
const QUEUES: u16 = 2;
const LOG: Run = Run { start: Lba(BLOCKS), count: 2 + 24 * QUEUES as u64 };
const VOLUME: [u8; 16] = *b"a volume of test";

/// The file, for the program that is killed.
const FILE: &str = "WHOLLY_MULTI_QUEUE_FILE";

/// What all transactions write.
const SHARED: u64 = 0;
/// A block of each but these.
const OWN: u64 = BLOCKS - 1;

fn queues(path: &Path) -> Arc<DiskQueues> {
    let file = rustix::fs::open(path.as_os_str().as_bytes(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let region = DiskRegion::open(file.expect("the file"), "test").expect("a region");
    Arc::new(DiskQueues::new(Arc::new(region), QUEUES))
}

fn open(path: &Path) -> MultiQueue {
    let options = Options { in_turn: true, ..Options::default() };
    MultiQueue::open(queues(path), (BLOCKS, LOG), VOLUME, options).expect("a journal that a kill has left")
}

fn value(blocks: &dyn TxBlocks, at: u64) -> u64 {
    let mut bytes = [0; BLOCK];
    blocks.read(None, Lba(at), &mut bytes).expect("a read");
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    assert_eq!(word(0), word(BLOCK - 8), "block {at} is torn");
    word(0)
}

/// The program that is killed: two threads write transactions, each over a block that all share, and tell which ones
/// are durable. It does nothing unless it is asked.
#[test]
fn worker() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let blocks = open(Path::new(&path));
    let newest = Mutex::new(value(&blocks, SHARED));
    let work = || loop {
        let tx = blocks.begin().expect("a transaction");
        blocks.admit(tx, 2).expect("room");
        let (number, sequence) = {
            let newest = &mut *newest.lock().unwrap();
            *newest += 1;
            let mut page = Page::zeros();
            page.put(0, &newest.to_le_bytes());
            page.put(BLOCK - 8, &newest.to_le_bytes());
            for at in [SHARED, 1 + *newest % OWN] {
                blocks.write(S, tx, Lba(at), page.clone(), Placement::Overwrite, Tag::Data).expect("a write");
            }
            (*newest, blocks.order(S, &[tx], &[]).expect("an order"))
        };
        blocks.wait(S, sequence).expect("a commit");
        let mut out = std::io::stdout().lock();
        writeln!(out, "\ndurable {number}").and_then(|()| out.flush()).expect("somebody listens");
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
}

#[test]
fn the_owner_is_killed() {
    let directory = TestDir::on_disk();
    let path = directory.path().join("disk");
    let file = File::create(&path).expect("a file");
    file.set_len((LOG.start.0 + LOG.count) * BLOCK as u64).expect("its length");
    MultiQueue::format(&*queues(&path), LOG, VOLUME, &Options::default()).expect("a journal");
    let rounds = if std::env::var_os("WHOLLY_LONG").is_some() { 500 } else { 12 };
    let (mut random, mut last) = (Random(5), 0);
    for round in 0..rounds {
        let program = std::env::current_exe().expect("this program");
        let arguments = ["--exact", "multi_queue_kills::worker", "--nocapture", "--test-threads", "1"];
        let mut worker = Command::new(program);
        worker.args(arguments).env(FILE, &path).stdout(Stdio::piped());
        let mut worker = worker.spawn().expect("a worker");
        let mut lines = BufReader::new(worker.stdout.take().expect("it was piped")).lines();
        let is_durable = |line: String| line.strip_prefix("durable ").and_then(|number| number.parse::<u64>().ok());
        let mut acknowledged = last;
        for _ in 0..1 + random.below(40) {
            let next = lines.by_ref().map_while(Result::ok).find_map(is_durable);
            acknowledged = acknowledged.max(next.expect("it goes on until it is killed"));
        }
        worker.kill().expect("a kill");
        let later = lines.map_while(Result::ok).filter_map(is_durable).max();
        acknowledged = acknowledged.max(later.unwrap_or(0));
        // It ends once the writes that it is in have ended: a volume's lock is free then.
        worker.wait().expect("its end");
        let blocks = open(&path);
        let newest = value(&blocks, SHARED);
        assert!(newest >= acknowledged, "round {round}: {newest} of {acknowledged}");
        for at in 1..=OWN {
            // The last one that has written it.
            let last = (0..=newest).rev().take(OWN as usize).find(|number| *number > 0 && 1 + number % OWN == at);
            assert_eq!(value(&blocks, at), last.unwrap_or(0), "round {round}: block {at} of {newest}");
        }
        last = newest;
    }
    println!("{rounds} kills, {last} transactions");
}
