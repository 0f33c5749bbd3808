//! The contract of transactions of blocks, as a medium: all that it allows at a crash, and nothing besides.
//!
//! The log of a world is their home. A running transaction is in memory; what it has written is in the latest state
//! from its order on, and pending until a commit (invariant 16 of the crate).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wholly_blocks::{
    BLOCK, BlockGuarantees, Counters, Lba, Order, Page, Placement, Run, Sequence, Tag, TxBlocks, Txid,
};
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Guarantees, Region, Site};

use super::event::EventKind;
use super::hash::Random;
use super::region::SimRegion;
use super::state::LOG;
use super::world::{Call, Live, World};
use rustix::io::Errno;

/// A running transaction.
#[derive(Default)]
struct Running {
    /// What it has written: pages, or zeros.
    images: BTreeMap<u64, Option<Page>>,
    /// Blocks that it writes over.
    overwrites: BTreeSet<u64>,
    lent: u64,
}

/// What runs, and what is ordered.
#[derive(Default)]
pub(super) struct Blocks {
    running: BTreeMap<u64, Running>,
    /// How many have begun.
    begun: u64,
    last: u64,
    /// What is ordered and not durable: the blocks, and what each needs.
    pending: BTreeMap<u64, (BTreeSet<u64>, Arc<[u64]>)>,
    poisoned: bool,
    counters: Counters,
}

impl Blocks {
    fn check(&self) -> Result<()> {
        match self.poisoned {
            false => Ok(()),
            true => Err(Error::Poisoned("a commit failed".into())),
        }
    }

    fn get(&mut self, tx: Txid) -> Result<&mut Running> {
        self.running.get_mut(&tx.0).ok_or_else(|| Error::Invalid(format!("transaction {:#x} does not run", tx.0)))
    }

    /// That no running transaction but this one has written a block (T4).
    fn check_free(&self, tx: Option<Txid>, blocks: std::ops::Range<u64>) -> Result<()> {
        let others = self.running.iter().filter(|(of, _)| tx.is_none_or(|tx| tx.0 != **of));
        let found = others.filter_map(|(_, running)| running.images.range(blocks.clone()).next()).next();
        match found {
            None => Ok(()),
            Some((at, _)) => Err(Error::Busy(format!("block {at}"), "a running transaction has written it".into())),
        }
    }

    /// The places that a commit up to this one makes durable.
    fn closure(&self, order: Order, upto: u64) -> Arc<[u64]> {
        if order == Order::Total {
            return self.pending.range(..=upto).map(|(sequence, _)| *sequence).collect();
        }
        let (mut all, mut todo) = (BTreeSet::new(), vec![upto]);
        while let Some(sequence) = todo.pop() {
            let Some((_, needs)) = self.pending.get(&sequence) else { continue };
            if all.insert(sequence) {
                todo.extend(needs.iter());
            }
        }
        all.into_iter().collect()
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct SimBlocks {
    world: Arc<World>,
    guarantees: Arc<BlockGuarantees>,
}

impl SimBlocks {
    /// # Panics
    /// If the log is on something else.
    pub fn new(world: Arc<World>) -> SimBlocks {
        let block = u64::from(world.log_guarantees.atomic_unit);
        assert_eq!(block, BLOCK as u64, "transactions of blocks take a log on Medium::BLOCKS");
        let rules = world.config.blocks;
        let guarantees = BlockGuarantees {
            blocks: world.live().log_len() / block,
            order: rules.order,
            steals_overwrites: true,
            most_overwrites: rules.most_overwrites,
            room: rules.room,
            lent_by_overwrite: u64::MAX,
            takes_lent: true,
            zeroes_discarded: true,
            checks_blocks: true,
            emulated: true,
            description: format!("transactions of blocks, simulated ({:?})", rules.order),
        };
        SimBlocks { world, guarantees: Arc::new(guarantees) }
    }

    fn check_run(&self, run: Run) -> Result<std::ops::Range<u64>> {
        match run.start.0.checked_add(run.count) {
            Some(end) if end <= self.guarantees.blocks => Ok(run.start.0..end),
            _ => Err(Error::Invalid(format!("blocks {}+{} of {}", run.start.0, run.count, self.guarantees.blocks))),
        }
    }

    /// A call that is recorded, of the calling thread.
    fn call(&self, live: &mut Live, thread: u64, site: Site, operation: &'static str) -> Result<Call> {
        live.blocks.check()?;
        Ok(live.call(&self.world.config, thread, site, operation, || "blocks".into())?)
    }

    /// Writes pages, or zeros, in a transaction.
    fn put(
        &self,
        call: &Call,
        live: &mut Live,
        tx: Txid,
        blocks: std::ops::Range<u64>,
        page: Option<&Page>,
    ) -> Result<()> {
        let images = &mut live.blocks.get(tx)?.images;
        if !call.is_dropped() {
            blocks.for_each(|at| _ = images.insert(at, page.cloned()));
        }
        Ok(())
    }

    /// Makes places durable.
    fn commit(&self, live: &mut Live, thread: u64, site: Site, sequences: Arc<[u64]>) -> Result<()> {
        if sequences.is_empty() {
            return Ok(());
        }
        let call = self.call(live, thread, site, "commit");
        let call = call.inspect_err(|_| live.blocks.poisoned = true)?;
        live.record(&call, EventKind::BlockCommit { sequences: sequences.clone() });
        live.record(&call, EventKind::BlockCommitted { sequences: sequences.clone() });
        let blocks = &mut live.blocks;
        sequences.iter().for_each(|sequence| _ = blocks.pending.remove(sequence));
        blocks.counters.commits += 1;
        blocks.counters.committed += sequences.len() as u64;
        Ok(())
    }
}

impl TxBlocks for SimBlocks {
    fn guarantees(&self) -> &BlockGuarantees {
        &self.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        let mut live = self.world.live();
        live.blocks.check()?;
        live.blocks.begun += 1;
        let tx = Txid::new(live.latest.lives.into(), live.blocks.begun);
        live.blocks.running.insert(tx.0, Running::default());
        Ok(tx)
    }

    fn admit(&self, tx: Txid, pages: u64) -> Result<()> {
        let mut live = self.world.live();
        live.blocks.check()?;
        live.blocks.get(tx)?;
        match pages <= self.guarantees.room {
            true => Ok(()),
            false => Err(Error::NoSpace(format!("{pages} pages at once"))),
        }
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: Page, how: Placement, _: Tag) -> Result<()> {
        let blocks = self.check_run(Run { start: at, count: 1 })?;
        let thread = self.world.thread();
        let live = &mut *self.world.live();
        live.blocks.get(tx)?;
        live.blocks.check_free(Some(tx), blocks.clone())?;
        let running = live.blocks.get(tx)?;
        let is_over = how == Placement::Overwrite && running.images.get(&at.0).is_none_or(Option::is_none);
        if is_over && !running.overwrites.contains(&at.0) {
            let most = self.guarantees.most_overwrites.map(|most| most + running.lent);
            if most.is_some_and(|most| running.overwrites.len() as u64 >= most) {
                return Err(Error::NoSpace(format!("the transaction writes over {} blocks", running.overwrites.len())));
            }
        }
        let call = self.call(live, thread, site, "write block")?;
        if is_over {
            live.blocks.get(tx)?.overwrites.insert(at.0);
        } else if how == Placement::Fresh && !call.is_dropped() {
            live.write(LOG, at.byte(), &page[..]);
        }
        self.put(&call, live, tx, blocks, Some(&page))?;
        live.blocks.counters.writes += 1;
        live.record(&call, EventKind::BlockWrite { tx: tx.0, at: at.0, page, fresh: how == Placement::Fresh });
        Ok(())
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.check_run(Run { start: at, count: 1 })?;
        let live = &mut *self.world.live();
        live.blocks.check()?;
        live.blocks.counters.reads += 1;
        if let Some(tx) = tx
            && let Some(own) = live.blocks.get(tx)?.images.get(&at.0)
        {
            bytes.copy_from_slice(own.as_deref().unwrap_or(&[0; BLOCK]));
            return Ok(());
        }
        live.read(LOG, at.byte(), bytes).map_err(|_| Error::Corrupt {
            place: format!("block {}", at.0),
            fault: "it reads otherwise than it was written".into(),
        })
    }

    fn discard(&self, site: Site, tx: Txid, run: Run) -> Result<()> {
        let blocks = self.check_run(run)?;
        let thread = self.world.thread();
        let live = &mut *self.world.live();
        live.blocks.get(tx)?;
        live.blocks.check_free(Some(tx), blocks.clone())?;
        let call = self.call(live, thread, site, "discard")?;
        self.put(&call, live, tx, blocks, None)?;
        live.blocks.counters.discards += run.count;
        live.record(&call, EventKind::BlockDiscard { tx: tx.0, at: run.start.0, count: run.count });
        Ok(())
    }

    fn lend(&self, tx: Txid, run: Run) -> Result<()> {
        let blocks = self.check_run(run)?;
        let thread = self.world.thread();
        let live = &mut *self.world.live();
        live.blocks.get(tx)?;
        live.blocks.check_free(None, blocks.clone())?;
        let call = self.call(live, thread, Site("contract.lend"), "lend")?;
        live.blocks.get(tx)?.lent += run.count;
        // What they hold is anything from now on, and durable or not.
        for at in blocks {
            let mut random = Random(at ^ tx.0);
            let mut garbage = [0; BLOCK];
            garbage.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.draw().to_le_bytes()));
            live.store(&call, LOG, Lba(at).byte(), garbage.into());
        }
        Ok(())
    }

    fn abort(&self, site: Site, tx: Txid) -> Result<()> {
        let thread = self.world.thread();
        let live = &mut *self.world.live();
        live.blocks.get(tx)?;
        let call = self.call(live, thread, site, "abort")?;
        if !call.is_dropped() {
            live.blocks.running.remove(&tx.0);
        }
        live.blocks.counters.aborts += 1;
        live.record(&call, EventKind::BlockAbort { tx: tx.0 });
        Ok(())
    }

    fn order(&self, site: Site, txs: &[Txid], after: &[Sequence]) -> Result<Sequence> {
        let thread = self.world.thread();
        let live = &mut *self.world.live();
        for (i, tx) in txs.iter().enumerate() {
            live.blocks.get(*tx)?;
            if txs[..i].contains(tx) {
                return Err(Error::Invalid(format!("transaction {:#x} is named twice", tx.0)));
            }
        }
        if after.iter().any(|after| after.0 > live.blocks.last) {
            return Err(Error::Invalid("a sequence that was not given out".into()));
        }
        let call = self.call(live, thread, site, "order")?;
        if txs.is_empty() {
            return Ok(Sequence(live.blocks.last));
        }
        let mut all = BTreeMap::new();
        txs.iter().filter_map(|tx| live.blocks.running.remove(&tx.0)).for_each(|running| all.extend(running.images));
        for (at, page) in &all {
            live.write(LOG, Lba(*at).byte(), page.as_deref().unwrap_or(&[0; BLOCK]));
        }
        let written: BTreeSet<u64> = all.keys().copied().collect();
        let is_needed = |sequence: &u64, of: &BTreeSet<u64>| {
            !of.is_disjoint(&written) || (!call.drops_order() && after.contains(&Sequence(*sequence)))
        };
        let blocks = &mut live.blocks;
        let pending = blocks.pending.iter();
        let needs: Arc<[u64]> =
            pending.filter(|(sequence, (of, _))| is_needed(sequence, of)).map(|(sequence, _)| *sequence).collect();
        blocks.last += 1;
        let sequence = blocks.last;
        blocks.pending.insert(sequence, (written, needs.clone()));
        live.record(&call, EventKind::BlockOrder { sequence, images: all.into_iter().collect(), needs });
        Ok(Sequence(sequence))
    }

    fn send(&self, _: Site, upto: Sequence) -> Result<()> {
        let live = self.world.live();
        live.blocks.check()?;
        check_given(&live, upto)
    }

    fn wait(&self, site: Site, upto: Sequence) -> Result<()> {
        let thread = self.world.thread();
        let live = &mut *self.world.live();
        live.blocks.check()?;
        check_given(live, upto)?;
        let sequences = live.blocks.closure(self.guarantees.order, upto.0);
        self.commit(live, thread, site, sequences)
    }

    fn durable(&self) -> Sequence {
        let live = self.world.live();
        let pending = live.blocks.pending.keys().next();
        Sequence(pending.map_or(live.blocks.last, |first| first - 1))
    }

    fn plain(&self) -> Arc<dyn Region> {
        Arc::new(SimPlain { blocks: self.clone(), log: SimRegion::log(self.world.clone()) })
    }

    fn counters(&self) -> Counters {
        self.world.live().blocks.counters
    }
}

fn check_given(live: &Live, sequence: Sequence) -> Result<()> {
    match sequence.0 <= live.blocks.last {
        true => Ok(()),
        false => Err(Error::Invalid(format!("nothing was ordered as {}", sequence.0))),
    }
}

/// The committed content as a region (T12): the log, whose blocks are not in the way of transactions.
struct SimPlain {
    blocks: SimBlocks,
    log: SimRegion,
}

impl SimPlain {
    /// Brings versions of these blocks home that are ordered and not durable.
    fn prepare(&self, site: Site, offset: u64, len: usize) -> wholly_media::Result<()> {
        let blocks = offset / BLOCK as u64..(offset + len as u64).div_ceil(BLOCK as u64);
        let thread = self.blocks.world.thread();
        let live = &mut *self.blocks.world.live();
        let done = live.blocks.check().and_then(|()| live.blocks.check_free(None, blocks.clone())).and_then(|()| {
            let last = live.blocks.pending.iter().rfind(|(_, (of, _))| of.range(blocks.clone()).next().is_some());
            let Some(last) = last.map(|(sequence, _)| *sequence) else { return Ok(()) };
            let sequences = live.blocks.closure(self.blocks.guarantees.order, last);
            self.blocks.commit(live, thread, site, sequences)
        });
        live.blocks.counters.plain_writes += if done.is_ok() { blocks.end - blocks.start } else { 0 };
        done.map_err(|error| match error {
            Error::Media(error) => error,
            error => MediaError::new("write", error.to_string(), Errno::from(error)),
        })
    }
}

impl Region for SimPlain {
    fn guarantees(&self) -> &Guarantees {
        self.log.guarantees()
    }

    fn len(&self) -> u64 {
        self.log.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.log.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.prepare(site, offset, data.len())?;
        self.log.write(site, offset, data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.log.fence(site)?;
        self.blocks.world.live().blocks.counters.plain_flushes += 1;
        Ok(())
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.prepare(site, offset, data.len())?;
        self.log.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        match len == self.len() {
            true => self.log.fence(site),
            false => {
                Err(MediaError::new("set_len", format!("{len} bytes: blocks have another size"), Errno::OPNOTSUPP))
            }
        }
    }
}
