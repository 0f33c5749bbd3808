//! Handing transactions over, and waiting for them.

use sync::Ordering;
use wholly_error::Result;
use wholly_media::Site;

use super::layout::{Description, Entry, What, entries_of};
use super::queue::{Ordered, Payload};
use super::{Form, Mistake, Proof, QueueGuarantees, Shared, Write, count};
use crate::{BLOCK, Lba, Page, Txid};

/// Puts pages of consecutive blocks together, up to so many. The write that has `last`, if one has, becomes the last
/// one.
fn merged(mut pages: Vec<(Lba, Page)>, last: Lba, most: usize) -> Vec<Write> {
    pages.sort_by_key(|(at, _)| *at);
    let mut writes: Vec<Write> = Vec::new();
    let mut commit = None;
    for (at, page) in pages {
        match writes.last_mut() {
            Some(write) if write.pages.len() < most && write.at.0 + write.pages.len() as u64 == at.0 => {
                write.pages.push(page);
            }
            _ => writes.push(Write { at, pages: vec![page] }),
        }
        if at == last {
            commit = Some(writes.len() - 1);
        }
    }
    if let Some(commit) = commit {
        let commit = writes.remove(commit);
        writes.push(commit);
    }
    writes
}

impl Shared {
    /// Hands over the transactions of a queue up to a place, in their order.
    pub(super) fn send_queue(&self, site: Site, number: u16, upto: u64) -> Result<()> {
        let queue = self.queue(number);
        let is_sent = || queue.state.lock().unwrap().sent >= upto;
        if is_sent() {
            return Ok(());
        }
        let _one = queue.sending.lock().unwrap();
        loop {
            let next = {
                let state = queue.state.lock().unwrap();
                if state.sent >= upto {
                    return Ok(());
                }
                state.get(state.sent + 1).clone()
            };
            self.check()?;
            self.failing(self.hand_over(site, number, &next))?;
            queue.state.lock().unwrap().sent += 1;
            count(&self.counters.commits, 1);
        }
    }

    fn hand_over(&self, site: Site, number: u16, tx: &Ordered) -> Result<()> {
        let payloads = std::mem::take(&mut *tx.payloads.lock().unwrap());
        let mut pages = Vec::with_capacity(payloads.len() + tx.descriptions.len());
        let mut entries = Vec::with_capacity(payloads.len() + tx.discarded.len());
        let is_in_place = self.options.form == Form::InPlace;
        let sum = |home: Lba, page: &Page| match self.options.proof {
            Proof::Checksum => self.seed().sum_of_block(home, page),
            Proof::Window => 0,
        };
        for (home, payload) in payloads {
            let home = Lba(home);
            let what = match payload {
                Payload::Journaled(image, page) => {
                    let what = What::Journaled { image, sum: sum(home, &page) };
                    pages.push((if is_in_place { home } else { image }, page));
                    what
                }
                Payload::Direct(page) => {
                    let what = What::Direct { sum: sum(home, &page) };
                    pages.push((home, page));
                    what
                }
                Payload::Spilled(image, sum) => What::Journaled { image, sum },
            };
            if !(self.makes(Mistake::NoRevocation) && matches!(what, What::Direct { .. })) {
                entries.push(Entry { home, what });
            }
        }
        entries.extend(
            // What is stored was durable before: nothing is asked of it, but that no older image comes home.
            (tx.revoked.iter())
                .chain(&tx.discarded)
                .chain(&tx.lent)
                .map(|run| Entry { home: run.start, what: What::Revoked { count: run.count } }),
        );
        let proven: Vec<u64> = (self.queues.iter())
            .map(|queue| if self.makes(Mistake::NoProof) { 0 } else { queue.complete.load(Ordering::Acquire) })
            .collect();
        let parts = tx.descriptions.len() as u16;
        let mut chunks = entries.chunks(entries_of(self.areas.queues));
        for (part, at) in (0..).zip(&tx.descriptions) {
            let description = Description {
                tx: Txid::new(self.incarnation(), tx.place.sequence),
                queue: number,
                place: tx.place.place,
                part: (part, parts),
                proven: proven.clone(),
                after: tx.after.clone(),
                entries: chunks.next().unwrap_or_default().to_vec(),
            };
            if !is_in_place {
                pages.push((*at, Page::new(&description.encode(self.seed(), *at))));
            }
        }
        *tx.marks.lock().unwrap() = proven;
        let QueueGuarantees { most_writes: most, most_pages, .. } = *self.device.guarantees();
        let mut writes = merged(pages, *tx.descriptions.last().expect("there is one"), most_pages.max(1));
        if let Some(at) = tx.commit_block {
            let mut says = [0; BLOCK];
            says[..8].copy_from_slice(&tx.place.sequence.to_le_bytes());
            writes.push(Write { at, pages: vec![Page::new(&says)] });
        }
        // What a queue has no room for is there before the rest is handed over.
        let early = writes.len().saturating_sub(most.max(1));
        for write in writes.drain(..early) {
            self.write_plainly(tx.site, write.at, &write.pages)?;
        }
        // A commit makes durable what was written before in no transaction.
        self.flush_plain(site)?;
        let tx = Txid::new(self.incarnation(), tx.place.sequence);
        let place = self.device.commit(site, number, tx, writes)?;
        debug_assert_eq!(place, self.queue(number).state.lock().unwrap().sent + 1, "nobody else uses the queue");
        Ok(())
    }

    /// Waits until a transaction is settled: what it depends on first.
    pub(super) fn settle(&self, site: Site, wanted: (u16, u64)) -> Result<()> {
        let mut wanted = vec![wanted];
        while let Some((number, place)) = wanted.last().copied() {
            if self.queue(number).settled.load(Ordering::Acquire) >= place {
                wanted.pop();
                continue;
            }
            self.complete(site, number, place)?;
            let missing = {
                let state = self.queue(number).state.lock().unwrap();
                let open = state.first.max(state.settled + 1)..=place;
                let after = open.flat_map(|place| state.get(place).after.clone());
                let is_settled =
                    |(queue, place): &(u16, u64)| *place <= self.queue(*queue).settled.load(Ordering::Acquire);
                after.into_iter().find(|after| !is_settled(after))
            };
            match missing {
                Some(missing) => wanted.push(missing),
                None => self.is_settled_now(number, place),
            }
        }
        Ok(())
    }

    /// Waits until a transaction is complete.
    fn complete(&self, site: Site, number: u16, place: u64) -> Result<()> {
        let queue = self.queue(number);
        if queue.complete.load(Ordering::Acquire) >= place {
            return Ok(());
        }
        self.send_queue(site, number, place)?;
        self.failing(self.device.wait(site, number, place))?;
        let mut state = queue.state.lock().unwrap();
        for at in state.first.max(state.complete + 1)..=place {
            // Its marks are on the medium now.
            let marks = state.get(at).marks.lock().unwrap();
            self.queues.iter().zip(&*marks).for_each(|(queue, mark)| queue.prove(*mark));
        }
        state.complete = state.complete.max(place);
        queue.complete.store(state.complete, Ordering::Release);
        Ok(())
    }

    fn is_settled_now(&self, number: u16, place: u64) {
        let queue = self.queue(number);
        let settled: Vec<_> = {
            let mut state = queue.state.lock().unwrap();
            let new = state.first.max(state.settled + 1)..=place;
            let settled = new.map(|place| state.get(place).clone()).collect();
            state.settled = state.settled.max(place);
            queue.settled.store(state.settled, Ordering::Release);
            settled
        };
        for tx in settled {
            let stored = tx.stored.iter().flat_map(|run| run.start.0..run.start.0 + run.count);
            for block in tx.blocks.iter().copied().chain(stored) {
                self.trees.of(block).prune(block, self);
            }
            for run in &tx.discarded {
                let blocks = run.start.0..run.start.0 + run.count;
                for (part, mut tree) in self.trees.parts(blocks) {
                    let own: Vec<_> = tree.zeros.within(part.clone()).filter(|(_, by)| *by == tx.place).collect();
                    own.into_iter().for_each(|(run, _)| tree.zeros.clear(run));
                    tree.known(part).into_iter().for_each(|block| tree.prune(block, self));
                }
            }
        }
    }
}
