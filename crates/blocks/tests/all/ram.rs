//! A device in memory, with nothing but the commands, and the layer over it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use wholly_blocks::batch::Batch;
use wholly_blocks::{BLOCK, Counters, DeviceGuarantees, Lba, Page, Placement, Run, Tag, TxBlocks, TxDevice, Txid};
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Site};

use crate::suite::{BLOCKS, FAILS, Opened, ROOM, Subject, holds};

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Of versions in one commit, the first counts.
    FirstCounts,
    /// Numbers begin anew in each life.
    SameNumbers,
}

type Content = BTreeMap<u64, Page>;

/// What a crash at a moment keeps: this, with any of the blocks that were written plainly.
#[derive(Clone, PartialEq)]
struct Moment {
    durable: Content,
    plain: BTreeMap<u64, Option<Page>>,
}

struct State {
    now: Moment,
    active: HashMap<Txid, BTreeMap<u64, Option<Page>>>,
    overwritten: u64,
    begun: u64,
    is_poisoned: bool,
    moments: Vec<Moment>,
    counters: Counters,
}

/// See the head of the file.
pub struct Ram {
    guarantees: DeviceGuarantees,
    fault: Fault,
    incarnation: u64,
    rotten: BTreeSet<u64>,
    state: Mutex<State>,
    /// Called in each commit.
    pub in_commit: Mutex<Option<Box<dyn Fn() + Send>>>,
}

fn change(content: &mut Content, at: u64, page: Option<Page>) {
    match page {
        Some(page) => _ = content.insert(at, page),
        None => _ = content.remove(&at),
    }
}

impl Moment {
    fn content(&self) -> Content {
        let mut content = self.durable.clone();
        self.plain.iter().for_each(|(at, page)| change(&mut content, *at, page.clone()));
        content
    }
}

impl State {
    fn check(&self) -> Result<()> {
        if self.is_poisoned { Err(Error::Poisoned("a commit failed".into())) } else { Ok(()) }
    }

    fn get(&mut self, tx: Txid) -> Result<&mut BTreeMap<u64, Option<Page>>> {
        self.active.get_mut(&tx).ok_or_else(|| Error::Invalid(format!("{tx:?}")))
    }

    fn check_plain(&self, at: u64) -> Result<()> {
        let busy = || Error::Busy(format!("block {at}"), "a transaction has written it".into());
        if self.active.values().any(|of| of.contains_key(&at)) { Err(busy()) } else { Ok(()) }
    }
}

impl Ram {
    pub fn new(durable: Content, incarnation: u64, sure_overwrites: u64, fault: Fault) -> Ram {
        let guarantees = DeviceGuarantees {
            blocks: BLOCKS,
            most_pages: None,
            sure_overwrites,
            free_blocks_help: true,
            lent_by_overwrite: u64::MAX,
            zeroes_discarded: true,
            plain_unit: BLOCK as u32,
            checks_blocks: true,
            emulated: true,
            description: "a device in memory".into(),
        };
        let now = Moment { durable, plain: BTreeMap::new() };
        let state = State {
            moments: vec![now.clone()],
            now,
            active: HashMap::new(),
            overwritten: 0,
            begun: 0,
            is_poisoned: false,
            counters: Counters::default(),
        };
        let (rotten, in_commit) = (BTreeSet::new(), Mutex::default());
        Ram { guarantees, fault, incarnation, rotten, state: Mutex::new(state), in_commit }
    }

    fn change<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock().unwrap();
        state.check()?;
        let done = work(&mut state);
        let now = state.now.clone();
        if state.moments.last() != Some(&now) {
            state.moments.push(now);
        }
        done
    }
}

impl TxDevice for Ram {
    fn guarantees(&self) -> &DeviceGuarantees {
        &self.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        self.change(|state| {
            state.begun += 1;
            let tx = Txid::new(if self.fault == Fault::SameNumbers { 1 } else { self.incarnation }, state.begun);
            state.active.insert(tx, BTreeMap::new());
            Ok(tx)
        })
    }

    fn write(&self, _: Site, tx: Txid, at: Lba, page: &Page, how: Placement, _: Tag) -> Result<()> {
        self.change(|state| {
            if how == Placement::Fresh {
                // Nobody reads it: gone at once.
                state.now.durable.insert(at.0, page.clone());
            }
            let sure = self.guarantees.sure_overwrites;
            let is_new = state.get(tx)?.get(&at.0).is_none_or(Option::is_none);
            if how == Placement::Overwrite && is_new {
                // Blocks that have no version give their pages.
                let free = BLOCKS - state.now.content().len() as u64;
                if state.overwritten >= sure.saturating_add(free) {
                    return Err(Error::NoSpace("a page".into()));
                }
                state.overwritten += 1;
            }
            state.get(tx)?.insert(at.0, Some(page.clone()));
            state.counters.writes += 1;
            Ok(())
        })
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.check()?;
        let own = match tx {
            Some(tx) => state.get(tx)?.get(&at.0).cloned(),
            None => None,
        };
        if own.is_none() && self.rotten.contains(&at.0) && !state.now.durable[&at.0].iter().all(|byte| *byte == 2) {
            return Err(Error::Corrupt { place: format!("block {}", at.0), fault: "its checksum is wrong".into() });
        }
        let page = own.unwrap_or_else(|| state.now.content().get(&at.0).cloned());
        bytes.copy_from_slice(page.as_deref().unwrap_or(&[0; BLOCK]));
        Ok(())
    }

    fn discard(&self, _: Site, tx: Txid, run: Run) -> Result<()> {
        self.change(|state| {
            let own = state.get(tx)?;
            run.blocks().for_each(|at| _ = own.insert(at.0, None));
            Ok(())
        })
    }

    fn abort(&self, _: Site, tx: Txid) -> Result<()> {
        self.change(|state| {
            state.get(tx)?;
            state.active.remove(&tx);
            if state.active.is_empty() {
                state.overwritten = 0;
            }
            Ok(())
        })
    }

    fn commit(&self, site: Site, txs: &[Txid]) -> Result<()> {
        if let Some(hook) = &*self.in_commit.lock().unwrap() {
            hook();
        }
        self.change(|state| {
            txs.iter().try_for_each(|tx| state.get(*tx).map(drop))?;
            let mut txs = txs.to_vec();
            if self.fault == Fault::FirstCounts {
                txs.reverse();
            }
            let mut content = state.now.content();
            for tx in &txs {
                let own = state.active.remove(tx).expect("it runs");
                own.into_iter().for_each(|(at, page)| change(&mut content, at, page));
            }
            let done = Moment { durable: content, plain: BTreeMap::new() };
            if site == FAILS {
                // It may have happened.
                state.moments.push(done);
                state.is_poisoned = true;
                return Err(MediaError::new("commit", "the device", Errno::IO).into());
            }
            state.now = done;
            if state.active.is_empty() {
                state.overwritten = 0;
            }
            state.counters.commits += 1;
            Ok(())
        })
    }

    fn plain_write(&self, _: Site, at: Lba, page: &Page) -> Result<()> {
        self.change(|state| {
            state.check_plain(at.0)?;
            state.now.plain.insert(at.0, Some(page.clone()));
            Ok(())
        })
    }

    fn flush(&self, _: Site) -> Result<()> {
        self.change(|state| {
            state.now = Moment { durable: state.now.content(), plain: BTreeMap::new() };
            Ok(())
        })
    }

    fn trim(&self, _: Site, run: Run) -> Result<()> {
        self.change(|state| {
            run.blocks().try_for_each(|at| state.check_plain(at.0))?;
            run.blocks().for_each(|at| _ = state.now.plain.insert(at.0, None));
            Ok(())
        })
    }

    fn counters(&self) -> Counters {
        self.state.lock().unwrap().counters
    }
}

/// The layer over such a device.
pub struct Batched(pub Fault);

struct Life {
    device: Arc<Ram>,
    blocks: Arc<dyn TxBlocks>,
}

fn life(device: Ram) -> Box<dyn Opened> {
    let device = Arc::new(device);
    Box::new(Life { blocks: Arc::new(Batch::new(device.clone(), ROOM)), device })
}

impl Life {
    fn next(&self, content: Content) -> Ram {
        let of = &self.device;
        Ram::new(content, of.incarnation + 1, of.guarantees.sure_overwrites, of.fault)
    }
}

impl Subject for Batched {
    fn make(&self, most_overwrites: Option<u64>) -> Box<dyn Opened> {
        life(Ram::new(Content::new(), 1, most_overwrites.unwrap_or(u64::MAX), self.0))
    }
}

impl Opened for Life {
    fn blocks(&self) -> Arc<dyn TxBlocks> {
        self.blocks.clone()
    }

    fn during(&self, work: &mut dyn FnMut(&dyn TxBlocks)) -> Vec<Box<dyn Opened>> {
        let now = |state: &State| vec![state.now.clone()];
        {
            let mut state = self.device.state.lock().unwrap();
            state.moments = now(&state);
        }
        work(&*self.blocks);
        let moments = std::mem::take(&mut self.device.state.lock().unwrap().moments);
        let mut lives = Vec::new();
        for moment in moments {
            let plain: Vec<_> = moment.plain.into_iter().collect();
            for kept in 0..1 << plain.len() {
                let mut content = moment.durable.clone();
                let kept = plain.iter().enumerate().filter(|(i, _)| kept >> i & 1 == 1);
                kept.for_each(|(_, (at, page))| change(&mut content, *at, page.clone()));
                lives.push(life(self.next(content)));
            }
        }
        lives
    }

    fn rotten(&self, at: u64) -> Box<dyn Opened> {
        let mut next = self.next(self.device.state.lock().unwrap().now.durable.clone());
        next.rotten.insert(at);
        life(next)
    }
}

#[test]
fn the_layer_over_a_device() {
    holds(&Batched(Fault::None));
}
