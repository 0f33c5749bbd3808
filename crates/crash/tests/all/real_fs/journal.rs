//! The multi-queue journal in a file: transactions that each write a block of their own, and one that all write, so
//! that each depends on the one before, which is on the other queue.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use wholly_blocks::multi_queue::{DiskQueues, MultiQueue, Options};
use wholly_blocks::{BLOCK, Lba, Page, Placement, Run, Tag, TxBlocks};
use wholly_error::Result;
use wholly_media::Site;
use wholly_media::disk::DiskRegion;

use super::Allowed;

const S: Site = Site("test");
const VOLUME: [u8; 16] = *b"on a file system";
const BLOCKS: u64 = 16;
const QUEUES: u16 = 2;
const LOG: Run = Run { start: Lba(BLOCKS), count: 2 + 12 * QUEUES as u64 };

/// What all write.
const SHARED: u64 = 0;
/// A block of each but these.
const OWN: u64 = BLOCKS - 1;

fn queues(dir: &Path) -> Result<Arc<DiskQueues>, String> {
    let file = File::options().read(true).write(true).open(dir.join("journal")).map_err(|error| error.to_string())?;
    let region = DiskRegion::open(file.into(), "journal").map_err(|error| error.to_string())?;
    Ok(Arc::new(DiskQueues::new(Arc::new(region), QUEUES)))
}

/// Makes one: its file has no blocks yet.
pub fn make(dir: &Path) -> Result<(), String> {
    let made = File::create(dir.join("journal")).and_then(|file| {
        file.set_len((LOG.start.0 + LOG.count) * BLOCK as u64)?;
        file.sync_all()?;
        File::open(dir)?.sync_all()
    });
    made.map_err(|error| error.to_string())?;
    MultiQueue::format(&*queues(dir)?, LOG, VOLUME, &Options::default()).map_err(|error| error.to_string())
}

pub fn open(dir: &Path) -> Result<MultiQueue, String> {
    let options = Options { in_turn: true, ..Options::default() };
    MultiQueue::open(queues(dir)?, (BLOCKS, LOG), VOLUME, options).map_err(|error| error.to_string())
}

/// The transaction after so many.
pub fn commit(journal: &MultiQueue, after: u32) -> Result<()> {
    let number = u64::from(after) + 1;
    let tx = journal.begin()?;
    let mut page = Page::zeros();
    page.put(0, &number.to_le_bytes());
    page.put(BLOCK - 8, &number.to_le_bytes());
    for at in [SHARED, 1 + number % OWN] {
        journal.write(S, tx, Lba(at), page.clone(), Placement::Overwrite, Tag::Data)?;
    }
    let sequence = journal.order(S, &[tx], &[])?;
    journal.wait(S, sequence)?;
    // Some go home while others are in the areas.
    if number.is_multiple_of(5) { journal.bring_home() } else { Ok(()) }
}

fn value(journal: &MultiQueue, at: u64) -> Result<u64, String> {
    let mut bytes = [0; BLOCK];
    journal.read(None, Lba(at), &mut bytes).map_err(|error| error.to_string())?;
    let [first, last] = [0, BLOCK - 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])));
    if first == last { Ok(first) } else { Err(format!("block {at} is torn: {first}, {last}")) }
}

fn check(journal: &MultiQueue, Allowed { least, most, .. }: Allowed) -> Result<u32, String> {
    let newest = value(journal, SHARED)?;
    if !(u64::from(least)..=u64::from(most)).contains(&newest) {
        return Err(format!("{newest} transactions of {least} to {most}"));
    }
    for at in 1..=OWN {
        let last = (1..=newest).rev().find(|number| 1 + number % OWN == at).unwrap_or(0);
        let found = value(journal, at)?;
        if found != last {
            return Err(format!("block {at} of {newest} transactions has {found}, not {last}"));
        }
    }
    Ok(newest as u32)
}

/// Recovers it, and asks whether what it has is what may be there; then a new transaction goes home.
pub fn judge(dir: &Path, allowed: Allowed) -> Result<(), String> {
    if !allowed.is_made {
        make(dir)?;
    }
    let journal = open(dir)?;
    let newest = check(&journal, allowed)?;
    commit(&journal, newest).and_then(|()| journal.close()).map_err(|error| format!("a new one: {error}"))?;
    drop(journal);
    check(&open(dir)?, Allowed { least: newest + 1, most: newest + 1, ..allowed }).map(|_| ())
}
