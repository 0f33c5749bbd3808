//! What `fsync` and `fatomic` of a group move over PCIe: table 1 through the file system, and the formula of each
//! system.
//!
//! A group overwrites N blocks of a file, which changes its inode, too: so a transaction has N + 1 blocks and those
//! that the system writes beside. Merging is off, as in the paper.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use nvme_events::{Counts, Transport};
use rustix::fs::{Mode, OFlags};
use volume_events::PolicyVfs;
use wholly_vfs::{Context, Handle, Ino, Policy, Timestamp, Vfs};

use super::device::model;
use super::systems::{Commit, System, Use};
use crate::Result;
use crate::fcfs::subject::failed;
use crate::report::TransferRow;

pub(super) const BLOCK: u64 = 4096;

/// Bytes of the device.
const BYTES: u64 = 1 << 30;

/// Blocks that groups overwrite.
pub(super) const TABLE_1: [u64; 6] = [1, 2, 4, 8, 16, 64];

/// What stands in the region is stored, and told by a doorbell: one step, as the paper counts.
pub(super) fn steps(system: &System, counts: Counts) -> u64 {
    counts.mmio_raw() - if system.commit == Commit::Tail { counts.sq_doorbells } else { 0 }
}

/// MMIO, entries of queues by DMA, commands, and interrupts of a transaction that changes so many blocks, each written
/// by a command of its own.
pub(super) fn formula(system: &System, changed: u64) -> [u64; 4] {
    let commands = changed + system.more_blocks();
    match system.commit {
        Commit::Tail => [4, commands, commands, commands],
        Commit::By(_) => [2 * commands, 2 * commands, commands, commands],
    }
}

/// The same of [`Vfs::fatomic`], until it returns, and of the rest.
pub(super) fn formula_atomic(changed: u64) -> [[u64; 4]; 2] {
    [[2, 0, 0, 0], [2, changed + 1, changed + 1, changed + 1]]
}

/// A clock that stands still unless it is told to go on.
static NOW: AtomicI64 = AtomicI64::new(1);

pub(super) fn standing() -> Timestamp {
    Timestamp { sec: NOW.load(Ordering::Relaxed), nsec: 0 }
}

/// Another second begins.
pub(super) fn tick() {
    NOW.fetch_add(1, Ordering::Relaxed);
}

/// A volume on a model whose clock stands still, with a file.
pub(super) struct Counted {
    pub vfs: PolicyVfs,
    pub file: Handle,
    device: Arc<dyn Transport>,
    volume: volume_events::Volume,
}

impl Counted {
    /// With a file of so many blocks.
    pub fn new(system: &System, blocks: u64, merges: bool) -> Result<Counted> {
        let device: Arc<dyn Transport> = model(BYTES, None)?;
        let of = Use { merges, clock: standing, ..Use::with(2) };
        let volume = system.volume(system.queues(device.clone(), &of)?, &of)?;
        let vfs = PolicyVfs::new(&volume, Policy::PerSync)?;
        let ctx = Context::superuser();
        let (_, file) = vfs.create(&ctx, Ino::ROOT, b"file", OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
        let counted = Counted { vfs, file, device, volume };
        // The first ones take memory, and change more.
        for _ in 0..2 {
            counted.put(0, blocks)?;
            counted.vfs.fsync(&ctx, &counted.file)?;
        }
        Ok(counted)
    }

    /// Writes blocks.
    pub fn put(&self, first: u64, count: u64) -> Result<()> {
        tick();
        let bytes = vec![1; (count * BLOCK) as usize];
        let written = self.vfs.write(&Context::superuser(), &self.file, first * BLOCK, &bytes)?;
        if written == bytes.len() { Ok(()) } else { Err("a short write".into()) }
    }

    /// What some work makes the device see.
    pub fn counts(&self, work: impl FnOnce() -> Result<()>) -> Result<Counts> {
        let before = self.device.counts();
        work()?;
        Ok(self.device.counts() - before)
    }

    pub fn close(self) -> Result<()> {
        let Counted { vfs, file, volume, .. } = self;
        vfs.release(&Context::superuser(), file)?;
        drop(vfs);
        volume.close().map_err(failed)
    }
}

fn row(system: &System, name: &str, (n, formula): (u64, [u64; 4]), counts: Counts) -> TransferRow {
    let found = [steps(system, counts), counts.dma_queue(), counts.block_ios, counts.interrupts];
    TransferRow {
        case: "table1, through the file system".into(),
        system: name.into(),
        device: "the model".into(),
        n,
        mmio: found[0],
        mmio_raw: counts.mmio_raw(),
        barriers: counts.barriers,
        region_bytes: counts.region_bytes,
        dma_queue: found[1],
        block_ios: found[2],
        interrupts: found[3],
        formula,
        is_formula: found == formula,
    }
}

/// The rows of a system for a group of N blocks.
pub(super) fn table_1(system: &System, n: u64) -> Result<Vec<TransferRow>> {
    let ctx = Context::superuser();
    let on = Counted::new(system, n, false)?;
    let changed = n + 1;
    let sync = || Ok(on.vfs.fsync(&ctx, &on.file)?);
    let rows = if system.is_atomic {
        let [now, rest] = formula_atomic(changed);
        on.put(0, n)?;
        let told = on.counts(|| Ok(on.vfs.fatomic(&ctx, &on.file, false)?))?;
        let durable = on.counts(sync)?;
        let name = format!("{}_rest", system.name);
        vec![row(system, system.name, (n, now), told), row(system, &name, (n, rest), durable)]
    } else {
        on.put(0, n)?;
        vec![row(system, system.name, (n, formula(system, changed)), on.counts(sync)?)]
    };
    on.close()?;
    Ok(rows)
}
