//! For each rule an implementation that breaks it, and the case that says so.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use wholly_blocks::{
    BLOCK, BlockGuarantees, Counters, Lba, Order, Page, Placement, Run, Sequence, Tag, TxBlocks, Txid,
};
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Guarantees, Region, Site};

use crate::contract::Contract;
use crate::ram::{Batched, Fault};
use crate::suite::{CASES, FAILS, Opened, Subject};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// T1: `wait` returns at once.
    WaitsNot,
    /// T1: it says that it keeps a prefix.
    SaysTotal,
    /// T2: others read what runs.
    ShowsRunning,
    /// T2: what is ordered is read as its old version until it is durable.
    HidesOrdered,
    /// T3: an abort commits.
    AbortCommits,
    /// T4: a second writer is not refused.
    TwoWriters,
    /// T5: what runs is committed as it is written.
    CommitsEarly,
    /// T6: one after the other.
    OneByOne,
    /// T7: a write that finds no space says that it is done.
    HidesFull,
    /// T8: after an error it goes on.
    GoesOn,
    /// T9: a rotten block reads as zeros.
    ServesRot,
    /// T10: a transaction has at most 16 blocks, and nobody was told.
    Bounded,
    /// T11: discarded blocks keep their content.
    KeepsDiscarded,
    /// T12: a plain write to what runs is not refused.
    PlainOverRunning,
    /// T12: a plain write waits for no live version.
    PlainUnder,
}

struct Wrong {
    inner: Arc<dyn TxBlocks>,
    guarantees: BlockGuarantees,
    broken: Break,
    /// Pages of running transactions, by block.
    pages: Mutex<BTreeMap<u64, (Txid, Page)>>,
    counts: Mutex<BTreeMap<Txid, u64>>,
    /// What ordered blocks had before.
    before: Mutex<BTreeMap<u64, Page>>,
}

fn wrong(inner: Arc<dyn TxBlocks>, broken: Break) -> Arc<dyn TxBlocks> {
    let mut guarantees = inner.guarantees().clone();
    if broken == Break::SaysTotal {
        guarantees.order = Order::Total;
    }
    let (pages, counts, before) = (Mutex::default(), Mutex::default(), Mutex::default());
    Arc::new(Wrong { inner, guarantees, broken, pages, counts, before })
}

impl TxBlocks for Wrong {
    fn guarantees(&self) -> &BlockGuarantees {
        &self.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        self.inner.begin()
    }

    fn admit(&self, tx: Txid, pages: u64) -> Result<()> {
        self.inner.admit(tx, pages)
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: Page, how: Placement, tag: Tag) -> Result<()> {
        if self.broken == Break::CommitsEarly {
            let early = self.inner.begin()?;
            self.inner.write(site, early, at, page.clone(), how, tag)?;
            let sequence = self.inner.order(site, &[early], &[])?;
            self.inner.wait(site, sequence)?;
        }
        let count = *self.counts.lock().unwrap().entry(tx).and_modify(|count| *count += 1).or_insert(1);
        if self.broken == Break::Bounded && count > 16 {
            return Err(Error::NoSpace("more than 16 blocks".into()));
        }
        let written = self.inner.write(site, tx, at, page.clone(), how, tag);
        if written.is_ok() {
            self.pages.lock().unwrap().insert(at.0, (tx, page));
        }
        match written {
            Err(Error::Busy(..)) if self.broken == Break::TwoWriters => Ok(()),
            Err(Error::NoSpace(_)) if self.broken == Break::HidesFull => Ok(()),
            written => written,
        }
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        if self.broken == Break::ShowsRunning
            && let Some((_, page)) = self.pages.lock().unwrap().get(&at.0)
        {
            bytes.copy_from_slice(&page[..]);
            return Ok(());
        }
        if self.broken == Break::HidesOrdered
            && let Some(page) = self.before.lock().unwrap().get(&at.0)
        {
            bytes.copy_from_slice(&page[..]);
            return Ok(());
        }
        match self.inner.read(tx, at, bytes) {
            Err(Error::Corrupt { .. }) if self.broken == Break::ServesRot => {
                bytes.fill(0);
                Ok(())
            }
            read => read,
        }
    }

    fn discard(&self, site: Site, tx: Txid, run: Run) -> Result<()> {
        if self.broken == Break::KeepsDiscarded { Ok(()) } else { self.inner.discard(site, tx, run) }
    }

    fn lend(&self, tx: Txid, run: Run) -> Result<()> {
        self.inner.lend(tx, run)
    }

    fn abort(&self, site: Site, tx: Txid) -> Result<()> {
        match self.broken {
            Break::AbortCommits => self.inner.order(site, &[tx], &[]).map(drop),
            _ => self.inner.abort(site, tx),
        }
    }

    fn order(&self, site: Site, txs: &[Txid], after: &[Sequence]) -> Result<Sequence> {
        if self.broken == Break::HidesOrdered {
            for (at, _) in self.pages.lock().unwrap().iter().filter(|(_, (tx, _))| txs.contains(tx)) {
                let mut bytes = [0; BLOCK];
                self.inner.read(None, Lba(*at), &mut bytes)?;
                self.before.lock().unwrap().insert(*at, Page::new(&bytes));
            }
        }
        if self.broken == Break::OneByOne && txs.len() == 3 && txs[0] != txs[2] {
            return txs.iter().try_fold(Sequence(0), |_, tx| self.inner.order(site, &[*tx], after));
        }
        self.inner.order(site, txs, after)
    }

    fn send(&self, site: Site, upto: Sequence) -> Result<()> {
        self.inner.send(site, upto)
    }

    fn wait(&self, site: Site, upto: Sequence) -> Result<()> {
        self.before.lock().unwrap().clear();
        match self.broken {
            Break::WaitsNot => Ok(()),
            Break::GoesOn if site == FAILS => Err(MediaError::new("commit", "the device", Errno::IO).into()),
            _ => self.inner.wait(site, upto),
        }
    }

    fn durable(&self) -> Sequence {
        if self.broken == Break::WaitsNot { Sequence(u64::MAX) } else { self.inner.durable() }
    }

    fn plain(&self) -> Arc<dyn Region> {
        match self.broken {
            Break::PlainOverRunning | Break::PlainUnder => {
                Arc::new(WrongPlain { inner: self.inner.plain(), broken: self.broken, late: Mutex::default() })
            }
            _ => self.inner.plain(),
        }
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

struct WrongPlain {
    inner: Arc<dyn Region>,
    broken: Break,
    late: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Region for WrongPlain {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.inner.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        if self.broken == Break::PlainUnder {
            // As if the live version went over it.
            self.late.lock().unwrap().push((offset, data.to_vec()));
            return Ok(());
        }
        match self.inner.write(site, offset, data) {
            Err(error) if error.errno == Errno::BUSY && self.broken == Break::PlainOverRunning => Ok(()),
            written => written,
        }
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.inner.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.inner.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.set_len(site, len)
    }
}

struct Broken(Break);

struct Life(Box<dyn Opened>, Arc<dyn TxBlocks>, Break);

fn life(opened: Box<dyn Opened>, broken: Break) -> Box<dyn Opened> {
    let blocks = wrong(opened.blocks(), broken);
    Box::new(Life(opened, blocks, broken))
}

impl Subject for Broken {
    fn make(&self, most_overwrites: Option<u64>) -> Box<dyn Opened> {
        let order = if self.0 == Break::SaysTotal { Order::Dependent } else { Order::Total };
        life(Contract(order).make(most_overwrites), self.0)
    }
}

impl Opened for Life {
    fn blocks(&self) -> Arc<dyn TxBlocks> {
        self.1.clone()
    }

    fn during(&self, work: &mut dyn FnMut(&dyn TxBlocks)) -> Vec<Box<dyn Opened>> {
        let lives = self.0.during(&mut |_| work(&*self.1));
        lives.into_iter().map(|opened| life(opened, self.2)).collect()
    }

    fn rotten(&self, at: u64) -> Box<dyn Opened> {
        life(self.0.rotten(at), self.2)
    }
}

/// The cases that a subject fails, by their rules.
fn failed(subject: &dyn Subject) -> Vec<&'static str> {
    let fails = |case: fn(&dyn Subject)| catch_unwind(AssertUnwindSafe(|| case(subject))).is_err();
    CASES.iter().filter(|(_, case)| fails(*case)).map(|(name, _)| *name).collect()
}

#[test]
fn each_rule_that_is_broken_is_found() {
    for (broken, case) in [
        (Break::WaitsNot, "T1 atomic"),
        (Break::SaysTotal, "T1 order"),
        (Break::ShowsRunning, "T2 own"),
        (Break::HidesOrdered, "T2 own"),
        (Break::AbortCommits, "T3 abort"),
        (Break::TwoWriters, "T4 one writer"),
        (Break::CommitsEarly, "T5 crash"),
        (Break::OneByOne, "T6 together"),
        (Break::HidesFull, "T7 no space"),
        (Break::GoesOn, "T8 poison"),
        (Break::ServesRot, "T9 rot"),
        (Break::Bounded, "T10 size"),
        (Break::KeepsDiscarded, "T11 zeros"),
        (Break::PlainOverRunning, "T12 plain"),
        (Break::PlainUnder, "T12 plain"),
    ] {
        let failed = failed(&Broken(broken));
        assert!(failed.contains(&case), "{broken:?} fails {failed:?}");
    }
    for (fault, case) in [(Fault::FirstCounts, "T4 the last counts"), (Fault::SameNumbers, "T5 numbers")] {
        let failed = failed(&Batched(fault));
        assert!(failed.contains(&case), "{fault:?} fails {failed:?}");
    }
}
