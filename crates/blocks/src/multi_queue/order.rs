//! The order: what a transaction depends on, its place, and its versions.

use std::sync::Arc;

use sync::{Mutex, Ordering, thread_token};
use wholly_error::{Error, Result};
use wholly_media::Site;

use super::queue::{Ordered, Payload};
use super::running::Running;
use super::tree::{Content, Place, Progress, Version};
use super::{Mistake, Shared, count};
use crate::{Lba, Placement, Run, Sequence, Txid};

impl Shared {
    /// The queues and places that a sequence is at, or comes after; none if all that is settled.
    pub(super) fn find(&self, sequence: u64) -> Vec<(u16, u64)> {
        let found = |number: u16| Some((number, self.queue(number).state.lock().unwrap().find(sequence)?));
        // First in the queue of the thread, so that threads do not meet at each other's.
        let (count, own) = (u64::from(self.areas.queues), thread_token());
        let one = (0..count).map(|i| ((own + i) % count) as u16).find_map(found);
        let nothing = || self.empty.lock().unwrap().get(&sequence).cloned().unwrap_or_default();
        one.map_or_else(nothing, |found| vec![found])
    }

    /// Orders what was written as one transaction.
    pub(super) fn order(
        &self,
        site: Site,
        txs: &[(Txid, Arc<Mutex<Running>>)],
        after: &[Sequence],
    ) -> Result<Sequence> {
        let mut depends = vec![0; self.queues.len()];
        let depend = |depends: &mut [u64], on: Place| {
            let depends = &mut depends[usize::from(on.queue)];
            *depends = on.place.max(*depends);
        };
        for sequence in after.iter().filter(|_| !self.makes(Mistake::NoAfter)) {
            for (queue, place) in self.find(sequence.0) {
                depend(&mut depends, Place { queue, place, sequence: sequence.0 });
            }
        }
        for (_, running) in txs {
            // Only what was never admitted, and has content that is stored alone, may lack it.
            self.secure(&mut running.lock().unwrap(), (0, 0), true)?;
        }
        let mut all: Vec<Running> =
            txs.iter().map(|(_, running)| std::mem::take(&mut *running.lock().unwrap())).collect();
        // Which fresh blocks go home directly is decided before the transaction has a place: who has claimed a block is
        // the only one that changes its versions, but for what goes home, which does not begin on them any more.
        let mut directly = Vec::new();
        for (block, (_, how)) in all.iter().flat_map(|running| &running.pages) {
            let last = self.trees.of(*block).last(*block).filter(|last| !self.is_settled(*last));
            last.into_iter().for_each(|last| depend(&mut depends, last));
            directly.push(*how == Placement::Fresh && self.goes_directly(*block));
        }
        for run in all.iter().flat_map(|running| running.discarded.iter().map(|(run, ())| run)) {
            for (part, tree) in self.trees.parts(run) {
                let of_zeros = tree.zeros.within(part.clone()).map(|(_, last)| last);
                let known = tree.known(part).into_iter().map(|block| tree.entries[&block].last);
                let lasts = of_zeros.chain(known).filter(|last| !self.is_settled(*last));
                lasts.for_each(|last| depend(&mut depends, last));
            }
        }
        let stored = |running: &Running| running.stored.iter().flat_map(|(run, ())| run).collect::<Vec<_>>();
        let elsewhere = all.iter().flat_map(|running| running.spilled.keys().copied().chain(stored(running)));
        for block in elsewhere {
            let last = self.trees.of(block).last(block).filter(|last| !self.is_settled(*last));
            last.into_iter().for_each(|last| depend(&mut depends, last));
        }
        let number = all.iter().filter(|running| !running.is_empty()).find_map(|running| running.rooms.first());
        let Some((number, _)) = number.copied() else {
            // It has written nothing, and is as durable as what it comes after.
            for running in &all {
                self.give_back(running);
                running.lent.iter().for_each(|(run, ())| self.trees.unclaim(run));
            }
            txs.iter().for_each(|(tx, _)| self.running.end(*tx));
            return Ok(self.order_nothing(&depends));
        };
        let place = self.place(site, number, &mut all, &directly, &depends)?;
        for ((tx, _), running) in txs.iter().zip(&all) {
            running.blocks().for_each(|block| self.trees.unclaim(block..block + 1));
            running.discarded.iter().for_each(|(run, ())| self.trees.unclaim(run));
            self.running.end(*tx);
        }
        count(&self.counters.committed, txs.len() as u64);
        Ok(Sequence(place.sequence))
    }

    /// A place in the order for what has written nothing.
    pub(super) fn order_nothing(&self, depends: &[u64]) -> Sequence {
        let after: Vec<(u16, u64)> = (0..).zip(depends.iter().copied()).filter(|(_, place)| *place > 0).collect();
        let empty = &mut *self.empty.lock().unwrap();
        let is_open = |(queue, place): &(u16, u64)| *place > self.queue(*queue).settled.load(Ordering::Acquire);
        empty.retain(|_, after| after.iter().any(is_open));
        let sequence = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        empty.insert(sequence, after);
        Sequence(sequence)
    }

    /// Gives the transaction its place and its blocks, and publishes its versions.
    pub(super) fn place(
        &self,
        site: Site,
        number: u16,
        all: &mut [Running],
        directly: &[bool],
        depends: &[u64],
    ) -> Result<Place> {
        let rooms = all.iter().flat_map(|running| &running.rooms);
        let mut numbers: Vec<u16> = rooms.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut states: Vec<_> = numbers.iter().map(|number| self.queue(*number).state.lock().unwrap()).collect();
        if self.is_ending.load(Ordering::Acquire) {
            return Err(Error::Poisoned("the journal is being closed".into()));
        }
        let main = numbers.iter().position(|one| *one == number).expect("it is one of them");
        let early = all.iter().find_map(|running| running.early);
        let sequence = early.unwrap_or_else(|| self.last.fetch_add(1, Ordering::AcqRel) + 1);
        let place = Place { queue: number, place: states[main].last() + 1, sequence };
        let entries: u64 = all.iter().map(Running::entries).sum();
        let images = directly.iter().filter(|is_direct| !**is_direct).count();
        // The room of each, first for descriptions. What is left is given back.
        let mut wanted = (self.descriptions(entries) + self.commit_blocks(entries)) as usize + images;
        let mut blocks = Vec::with_capacity(wanted);
        for (own, reserved) in all.iter().flat_map(|running| &running.rooms) {
            let state = &mut states[numbers.iter().position(|one| one == own).expect("it is one of them")];
            state.reserved -= reserved;
            let takes = (*reserved as usize).min(wanted);
            blocks.extend((0..takes as u64).map(|i| self.areas.block(*own, state.head + i)));
            state.head += takes as u64;
            wanted -= takes;
        }
        assert_eq!(wanted, 0, "each entry and each image has room");
        let mut given = blocks.split_off(self.descriptions(entries) as usize).into_iter();
        let mut payloads = Vec::with_capacity(entries as usize);
        let mut directly = directly.iter();
        let (mut stored, mut revoked, mut discarded, mut lent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let run_of = |run: std::ops::Range<u64>| Run { start: Lba(run.start), count: run.end - run.start };
        for running in all.iter_mut() {
            for (block, (page, _)) in &running.pages {
                let is_direct = *directly.next().expect("one for each page");
                let mut tree = self.trees.of(*block);
                let entry = tree.written(*block, place);
                let content = match is_direct {
                    true => {
                        entry.direct = Some(place);
                        payloads.push((*block, Payload::Direct(page.clone())));
                        Content::Direct(page.clone())
                    }
                    false => {
                        let image = given.next().expect("one for each image");
                        payloads.push((*block, Payload::Journaled(image, page.clone())));
                        Content::Journaled(page.clone())
                    }
                };
                entry.versions.push(Version { place, content });
            }
            for (run, ()) in running.stored.iter() {
                stored.push(run_of(run.clone()));
                for block in run {
                    let mut tree = self.trees.of(block);
                    let entry = tree.written(block, place);
                    entry.direct = None;
                    entry.versions.clear();
                }
            }
            for (block, (image, sum)) in &running.spilled {
                let mut tree = self.trees.of(*block);
                tree.written(*block, place).versions.push(Version { place, content: Content::Spilled(*image) });
                payloads.push((*block, Payload::Spilled(*image, *sum)));
            }
            lent.extend(running.lent.iter().map(|(run, ())| run_of(run)));
            revoked.extend(running.revoked.iter().map(|(run, ())| run_of(run)));
            for (run, ()) in running.discarded.iter() {
                self.trees.parts(run.clone()).for_each(|(part, mut tree)| tree.discard(part, place));
                discarded.push(run_of(run));
            }
        }
        let after = (0..).zip(depends).filter(|(queue, place)| *queue != number && **place > 0);
        let after: Vec<(u16, u64)> = after.map(|(queue, place)| (queue, *place)).collect();
        count(&self.counters.depending, u64::from(!after.is_empty()));
        let ordered = Ordered {
            place,
            site,
            descriptions: blocks,
            blocks: payloads.iter().map(|(block, _)| *block).collect(),
            payloads: Mutex::new(payloads),
            stored,
            revoked,
            discarded,
            lent,
            after,
            commit_block: given.next(),
            ends: numbers.iter().zip(&states).map(|(number, state)| (*number, state.head)).collect(),
            marks: Mutex::default(),
        };
        if !ordered.lent.is_empty() {
            self.away.lock().unwrap().insert(sequence);
        }
        states[main].txs.push_back(Arc::new(ordered));
        drop(states);
        numbers.iter().for_each(|number| self.queue(*number).changed.notify_all());
        Ok(place)
    }
}
