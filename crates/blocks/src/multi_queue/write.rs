//! What a running transaction writes: room for it, and where it goes.

use sync::{Ordering, thread_token};
use wholly_error::{Error, Result};
use wholly_media::Site;

use super::layout::entries_of;
use super::running::Running;
use super::tree::Progress;
use super::{Form, Mistake, SPARE, Shared, busy};
use crate::runs::Runs;
use crate::{Lba, Page, Placement, Txid};

impl Shared {
    /// Takes room for a transaction in the area of its queue. `admits`: other running ones, which have the room, are
    /// waited for.
    pub(super) fn reserve(&self, running: &mut Running, blocks: u64, admits: bool) -> Result<()> {
        let count = self.queues.len() as u64;
        let number = running.rooms.first().map_or_else(
            || {
                let by = if self.options.in_turn { self.turns.fetch_add(1, Ordering::Relaxed) } else { thread_token() };
                (by % count) as u16
            },
            |(number, _)| *number,
        );
        let queue = self.queue(number);
        loop {
            // In its own area, or in any other.
            let mut is_used = false;
            for i in 0..count {
                let number = ((u64::from(number) + i) % count) as u16;
                let mut state = self.queue(number).state.lock().unwrap();
                self.check()?;
                is_used |= state.head > state.tail;
                if state.head - state.tail + state.reserved + blocks <= self.areas.len() {
                    state.reserved += blocks;
                    running.has_room(number, blocks);
                    return Ok(());
                }
            }
            if is_used {
                self.checkpoint(false)?;
                continue;
            }
            // Others that run have the room, and are about to end.
            let state = queue.state.lock().unwrap();
            let is_free = state.head - state.tail + state.reserved + blocks <= self.areas.len();
            if is_free || state.head > state.tail {
                continue;
            }
            // Two transactions that have room and wait for more could wait for each other.
            if !admits || !running.rooms.is_empty() || state.reserved == 0 {
                let what = "images of blocks that running transactions write over; commit or abort some";
                return Err(Error::NoSpace(what.into()));
            }
            drop(queue.changed.wait(state).unwrap());
        }
    }

    pub(super) fn give_back(&self, running: &Running) {
        for (number, blocks) in &running.rooms {
            let queue = self.queue(*number);
            queue.state.lock().unwrap().reserved -= blocks;
            queue.changed.notify_all();
        }
    }

    /// How many descriptions so many entries take.
    pub(super) fn descriptions(&self, entries: u64) -> u64 {
        entries.div_ceil(entries_of(self.areas.queues) as u64)
    }

    /// Blocks of an area that transactions of so many entries take beside descriptions and images.
    pub(super) fn commit_blocks(&self, entries: u64) -> u64 {
        u64::from(self.options.form == Form::CommitBlock && entries > 0)
    }

    /// Room for all that a transaction has, and for so many entries and images more.
    pub(super) fn secure(&self, running: &mut Running, (entries, images): (u64, u64), admits: bool) -> Result<()> {
        let entries = running.entries() + running.admitted + entries;
        let described = self.descriptions(entries) + self.commit_blocks(entries);
        let wanted = described + running.pages.len() as u64 + running.admitted + images;
        let has = running.rooms.iter().map(|(_, blocks)| blocks).sum::<u64>();
        if wanted > has { self.reserve(running, wanted - has, admits) } else { Ok(()) }
    }

    /// Whether a fresh block can be written directly (invariant 5). A running transaction has claimed it. If so, its
    /// older versions leave the tree, so that none of them is brought home any more.
    pub(super) fn goes_directly(&self, block: u64) -> bool {
        let mut tree = self.trees.of(block);
        let is_freed = tree.last(block).is_none_or(|last| self.is_settled(last)) || self.makes(Mistake::ReusedEarly);
        let entry = tree.entries.get(&block);
        let is_going = entry.is_some_and(|entry| entry.is_going) && !self.makes(Mistake::DirectOverGoing);
        let is_unproven = entry.and_then(|entry| entry.direct).is_some_and(|direct| !self.is_proven(direct));
        let is_direct = is_freed && !is_going && (!is_unproven || self.makes(Mistake::NoProof));
        if is_direct && let Some(entry) = tree.entries.get_mut(&block) {
            entry.versions.clear();
        }
        is_direct
    }

    pub(super) fn write(&self, site: Site, tx: Txid, at: Lba, page: Page, how: Placement) -> Result<()> {
        let running = self.running.get(tx)?;
        let running = &mut *running.lock().unwrap();
        self.trees.claim(tx, at.0..at.0 + 1).map_err(busy)?;
        if let Some(held) = running.pages.get_mut(&at.0) {
            held.0 = page;
            return Ok(());
        }
        if let Some((image, _)) = running.spilled.get(&at.0).copied() {
            return self.spill(site, running, at, image, &page);
        }
        if running.discarded.get(at.0).is_some() {
            // A run may become two.
            self.secure(running, (1, 0), false)?;
            running.discarded.clear(at.0..at.0 + 1);
            return self
                .write_new(site, running, at, page, how)
                .inspect_err(|_| running.discarded.set(at.0..at.0 + 1, ()));
        }
        let is_new = running.stored.get(at.0).is_none();
        self.write_new(site, running, at, page, how).inspect_err(|_| {
            if is_new {
                self.trees.unclaim(at.0..at.0 + 1);
            }
        })
    }

    pub(super) fn write_new(
        &self,
        site: Site,
        running: &mut Running,
        at: Lba,
        page: Page,
        how: Placement,
    ) -> Result<()> {
        let how = match self.options.journals_fresh && running.admitted > 0 {
            true => Placement::Overwrite,
            false => how,
        };
        let is_stored = running.stored.get(at.0).is_some();
        let holds_much = running.admitted == 0 && running.fresh >= self.options.held_fresh;
        if is_stored || (how == Placement::Fresh && holds_much) {
            // What is in its way goes home first.
            let goes_directly = is_stored || self.goes_directly(at.0) || {
                self.checkpoint(false)?;
                self.goes_directly(at.0)
            };
            if goes_directly {
                // What describes it gets its room later: transactions that only store content keep none from others.
                if self.descriptions(running.entries()) > (self.areas.len() / SPARE).max(1) {
                    // Then no block that it has stored has an image above the tail, and none gets one: the transaction
                    // need not revoke any.
                    self.checkpoint(true)?;
                    running.revoked = Runs::default();
                }
                self.write_plainly(site, at, &[page])?;
                if !is_stored {
                    running.stored.set(at.0..at.0 + 1, ());
                    running.revoked.set(at.0..at.0 + 1, ());
                }
                return Ok(());
            }
        }
        let over = u64::from(how == Placement::Overwrite);
        let is_full = running.overwrites + over > self.guarantees.most_overwrites.unwrap_or(u64::MAX);
        let reserved = match (is_full, running.admitted) {
            (true, _) => {
                let most = self.guarantees.most_overwrites.unwrap_or(u64::MAX);
                Err(Error::NoSpace(format!("a transaction that writes over more than {most} blocks")))
            }
            (false, 0) => self.secure(running, (1, 1), false),
            (false, _) => {
                running.admitted -= 1;
                Ok(())
            }
        };
        if let (Err(Error::NoSpace(_)), Some(image)) = (&reserved, running.unused.last().copied())
            && over == 1
        {
            self.secure(running, (1, 0), false)?;
            self.spill(site, running, at, Lba(image), &page)?;
            running.unused.pop();
            return Ok(());
        }
        reserved?;
        running.overwrites += over;
        running.fresh += 1 - over;
        running.pages.insert(at.0, (page, how));
        Ok(())
    }

    /// Writes in no transaction.
    pub(super) fn write_plainly(&self, site: Site, at: Lba, pages: &[Page]) -> Result<()> {
        self.failing(self.device.write(site, at, pages))?;
        self.written.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Makes durable what was written so, unless it is.
    pub(super) fn flush_plain(&self, site: Site) -> Result<()> {
        let upto = self.written.load(Ordering::Acquire);
        if self.flushed.load(Ordering::Acquire) < upto {
            self.device.flush(site)?;
            self.flushed.fetch_max(upto, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Stores the content of a block in a lent one.
    pub(super) fn spill(&self, site: Site, running: &mut Running, at: Lba, image: Lba, page: &Page) -> Result<()> {
        self.write_plainly(site, image, std::slice::from_ref(page))?;
        running.spilled.insert(at.0, (image, self.seed().sum_of_block(at, page)));
        Ok(())
    }
}
