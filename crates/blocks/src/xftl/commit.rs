//! Commits and flushes: chains.

use wholly_error::Result;

use super::device::{Ftl, Mistake};
use super::layout::{CHAIN_ENTRIES, ChainPlace, Entry, Kind, Spare, encode_chain};
use super::map::Home;
use super::site;
use super::space::Owner;
use super::xl2p::{Place, Writer};

impl Ftl {
    /// Commits running transactions, as one. Durable on return, with every plain write and trim before it.
    pub fn commit(&mut self, slots: &[u32]) -> Result<()> {
        if slots.is_empty() {
            return Ok(());
        }
        self.program_all_held(|of| match of {
            Writer::Plain => true,
            Writer::Tx(slot) => slots.contains(&slot),
        })?;
        match self.makes(Mistake::OneByOne) {
            true => slots.iter().try_for_each(|slot| self.chain_of(std::slice::from_ref(slot)))?,
            false => self.chain_of(slots)?,
        }
        self.counters.commits += 1;
        self.counters.committed += slots.len() as u64;
        self.checkpoint_if_due()
    }

    /// Makes plain writes and trims durable. It programs a chain only if something was trimmed.
    pub fn flush(&mut self) -> Result<()> {
        self.program_all_held(|of| of == Writer::Plain)?;
        self.chain_of(&[])?;
        self.counters.plain_flushes += 1;
        self.checkpoint_if_due()
    }

    /// The chain of these transactions, and of what was trimmed; then the map.
    fn chain_of(&mut self, slots: &[u32]) -> Result<()> {
        let entries: u64 = slots.iter().map(|slot| self.txs.at(*slot).entries()).sum();
        let many_trims = self.trims.runs() > CHAIN_ENTRIES;
        let pages = (entries + self.trims.runs() as u64).div_ceil(CHAIN_ENTRIES as u64);
        if many_trims || self.chain_pages.len() as u64 + pages > self.chain_room(0) {
            // It makes room for the chain, and stores what was trimmed.
            self.checkpoint()?;
        }
        let trims: Vec<Entry> = self.trims.iter().map(|(lpn, count)| Entry::Zeros { tx: 0, lpn, count }).collect();
        if entries + trims.len() as u64 > 0 {
            if self.makes(Mistake::MapBeforeChain) {
                slots.iter().for_each(|slot| self.publish_half(*slot));
                self.checkpoint()?;
            }
            if !self.makes(Mistake::ChainBeforeData) {
                self.wait(site::WRITE_WAIT)?;
            }
            self.program_chain(slots, trims)?;
            self.wait(site::CHAIN_WAIT)?;
            self.chains += 1;
        } else {
            self.wait(site::FLUSH_WAIT)?;
        }
        self.trims.clear();
        if self.makes(Mistake::FirstCounts) {
            slots.iter().rev().for_each(|slot| self.publish(*slot));
        } else {
            slots.iter().for_each(|slot| self.publish(*slot));
        }
        slots.iter().for_each(|slot| self.end(*slot));
        Ok(())
    }

    fn program_chain(&mut self, slots: &[u32], trims: Vec<Entry>) -> Result<()> {
        let entries: usize =
            trims.len() + slots.iter().map(|slot| self.txs.at(*slot).entries() as usize).sum::<usize>();
        let mut place = ChainPlace {
            incarnation: self.incarnation,
            number: self.chains + 1,
            index: 0,
            pages: entries.div_ceil(CHAIN_ENTRIES) as u32,
        };
        // One page of it is in memory at a time, however large the transaction is.
        let mut sum = 0;
        let mut part = trims;
        let mut next = 0;
        let mut last = None;
        while place.index < place.pages {
            while part.len() < CHAIN_ENTRIES && next < slots.len() {
                let running = self.txs.at(slots[next]);
                let more = running.list_after(last).take(CHAIN_ENTRIES - part.len());
                let before = part.len();
                part.extend(more);
                match part.len() == before {
                    true => (next, last) = (next + 1, None),
                    false => last = part.last().copied(),
                }
            }
            let page = encode_chain(&self.id, place, &part, &mut sum);
            let zeros = part.iter().filter(|entry| matches!(entry, Entry::Zeros { .. })).count() as u64;
            part.clear();
            let at = self.place_of_system();
            let spare = Spare { origin: zeros, ..self.spare(Kind::Chain, place.number, place.index) };
            self.program(site::CHAIN, at, &page, spare)?;
            self.clock.program(self.channel(at));
            self.programs.chain += 1;
            self.space.set_owner(at, Owner::Chain);
            self.chain_pages.push(at);
            place.index += 1;
        }
        Ok(())
    }

    /// What a transaction has written becomes what the map says.
    fn publish(&mut self, slot: u32) {
        let (pages, zeros) = self.txs.take_content(slot);
        for (from, count) in zeros.iter() {
            for lpn in from..from + count {
                if self.map.get(lpn) != Home::Zeros {
                    self.set_home(lpn, None);
                }
            }
        }
        for (lpn, place) in &pages {
            match place {
                Place::At(at) => self.set_home(*lpn, Some(*at)),
                Place::Held(_) => unreachable!("the buffer was programmed before"),
            }
        }
        self.txs.put_content(slot, pages, zeros);
    }

    /// For a mistake: half of the pages of a transaction are in the map before its chain.
    fn publish_half(&mut self, slot: u32) {
        let pages: Vec<(u32, Place)> = self.txs.at(slot).pages.iter().map(|(lpn, place)| (*lpn, *place)).collect();
        for (lpn, place) in pages.iter().take(pages.len() / 2) {
            if let Place::At(at) = place {
                self.set_home(*lpn, Some(*at));
            }
        }
    }
}
