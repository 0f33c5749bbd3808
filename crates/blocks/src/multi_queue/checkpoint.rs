//! Bringing home (5.2): by the thread that needs room, while all log.

use std::sync::Arc;

use sync::Ordering;
use wholly_error::Result;

use super::layout::{Header, Mark, Seed, State};
use super::tree::{Content, Progress};
use super::{HEADER, HEADER_FLUSH, HOME, HOME_FLUSH, Mistake, ROOM, Shared};
use crate::{BLOCK, Lba, Page};

/// Blocks of a write home.
const PIECE: usize = 256;

/// What goes home: a checkpoint that has begun.
#[doc(hidden)]
pub struct GoingHome {
    header: Header,
    going: Vec<Going>,
    upto: u64,
}

/// A version that goes home.
struct Going {
    block: u64,
    content: Content,
    sequence: u64,
}

impl Shared {
    /// Brings home all that was ordered before the call, and gives its room back. If another thread has just done so,
    /// that is enough, unless `all` is asked for.
    pub(super) fn checkpoint(&self, all: bool) -> Result<()> {
        let before = self.tail.load(Ordering::Acquire);
        let header = self.take_header()?;
        if !all && self.tail.load(Ordering::Acquire) > before {
            self.put_header(header);
            return Ok(());
        }
        let begun = self.begin_checkpoint(header, all)?;
        self.end_checkpoint(begun)
    }

    /// Takes the newest header. Only the thread that has it brings blocks home.
    pub(super) fn take_header(&self) -> Result<Header> {
        let mut header = self.homing.lock().unwrap();
        loop {
            self.check()?;
            match header.take() {
                Some(header) => return Ok(header),
                None => header = self.homed.wait(header).unwrap(),
            }
        }
    }

    fn put_header(&self, header: Header) {
        *self.homing.lock().unwrap() = Some(header);
        self.homed.notify_all();
    }

    /// Marks what goes home: all that is settled. If that is nothing new, or with `all`, what was ordered is waited
    /// for.
    pub(super) fn begin_checkpoint(&self, header: Header, all: bool) -> Result<GoingHome> {
        let upto = self.durable().0;
        if !all && upto > self.tail.load(Ordering::Acquire) {
            return Ok(GoingHome { header, going: self.begin_home(), upto });
        }
        let upto = self.last.load(Ordering::Acquire);
        let settled = (0..self.areas.queues).try_for_each(|number| {
            let last = self.queue(number).state.lock().unwrap().last();
            self.settle(ROOM, (number, last))
        });
        match settled {
            Ok(()) => Ok(GoingHome { header, going: self.begin_home(), upto }),
            Err(error) => {
                self.put_header(header);
                Err(error)
            }
        }
    }

    /// Brings it home, and gives the room back.
    pub(super) fn end_checkpoint(&self, begun: GoingHome) -> Result<()> {
        let GoingHome { mut header, going, upto } = begun;
        let done = self.failing(self.bring_home(&mut header, &going, upto));
        self.put_header(header);
        done
    }

    /// Marks what goes home: of each block the newest version that is settled, if that is an image.
    fn begin_home(&self) -> Vec<Going> {
        let mut going = Vec::new();
        for mut tree in self.trees.all() {
            tree.prune_all(self);
            let before = going.len();
            for (block, entry) in &mut tree.entries {
                let newest = match self.makes(Mistake::SupersededEarly) {
                    true => entry.versions.len().checked_sub(1),
                    false => entry.newest_settled(self),
                };
                let Some(version) = newest.map(|at| &entry.versions[at]) else { continue };
                let content = &version.content;
                if matches!(content, Content::Journaled(_) | Content::Spilled(_)) && self.is_settled(version.place) {
                    let (content, sequence) = (content.clone(), version.place.sequence);
                    going.push(Going { block: *block, content, sequence });
                    entry.is_going = true;
                }
            }
            tree.homes += u64::from(going.len() > before);
        }
        going.sort_by_key(|going| going.block);
        going
    }

    fn bring_home(&self, header: &mut Header, going: &[Going], upto: u64) -> Result<()> {
        // What others wrote directly in these blocks is believed from now on without a look.
        let has_direct = |going: &Going| self.trees.of(going.block).entries[&going.block].direct.is_some();
        if going.iter().any(has_direct) && !self.makes(Mistake::NoProof) {
            self.write_header(header, self.tail.load(Ordering::Acquire), State::Open)?;
        }
        for run in going.chunk_by(|one, next| one.block + 1 == next.block).flat_map(|run| run.chunks(PIECE)) {
            let pages = run.iter().map(|going| self.page_of(&going.content)).collect::<Result<Vec<Page>>>()?;
            self.device.write(HOME, Lba(run[0].block), &pages)?;
        }
        if !going.is_empty() {
            self.device.flush(HOME_FLUSH)?;
        }
        for Going { block, sequence, .. } in going {
            let mut tree = self.trees.of(*block);
            tree.homes += 1;
            let entry = tree.entries.get_mut(block).expect("it is going");
            entry.is_going = false;
            entry.versions.retain(|version| version.place.sequence > *sequence);
            tree.prune(*block, self);
        }
        self.write_header(header, upto, State::Open)?;
        self.give_room_back(upto);
        Ok(())
    }

    fn page_of(&self, content: &Content) -> Result<Page> {
        match content {
            Content::Journaled(page) | Content::Direct(page) => Ok(page.clone()),
            Content::Spilled(at) => {
                let mut bytes = [0; BLOCK];
                self.device.read(*at, &mut bytes)?;
                Ok(Page::new(&bytes))
            }
            Content::Zeros => Ok(Page::zeros()),
        }
    }

    /// Writes the next header, durably. What it says of queues is proven then.
    fn write_header(&self, header: &mut Header, tail: u64, state: State) -> Result<()> {
        let mark = |queue: &super::Queue| {
            let of = queue.state.lock().unwrap();
            let below = of.txs.iter().take_while(|tx| tx.place.sequence <= tail).count() as u64;
            Mark { first: of.first + below, proven: of.complete }
        };
        let marks: Vec<Mark> = self.queues.iter().map(mark).collect();
        let mut next = Header { generation: header.generation + 1, tail, state, marks, ..header.clone() };
        if self.makes(Mistake::NoProof) {
            next.marks.iter_mut().for_each(|mark| mark.proven = 0);
        }
        let at = self.areas.slot(next.generation);
        let page = Page::new(&next.encode(Seed::of_headers(self.volume), at));
        self.device.write(HEADER, at, &[page])?;
        self.device.flush(HEADER_FLUSH)?;
        self.queues.iter().zip(&next.marks).for_each(|(queue, mark)| queue.prove(mark.proven));
        *header = next;
        Ok(())
    }

    /// Room below the tail is free.
    fn give_room_back(&self, tail: u64) {
        self.tail.store(tail, Ordering::Release);
        for number in 0..self.areas.queues {
            let done: Vec<Arc<super::Ordered>> = {
                let mut state = self.queue(number).state.lock().unwrap();
                let below = state.txs.iter().take_while(|tx| tx.place.sequence <= tail).count();
                state.first += below as u64;
                state.txs.drain(..below).collect()
            };
            for (of, end) in done.iter().flat_map(|tx| &tx.ends) {
                let mut state = self.queue(*of).state.lock().unwrap();
                state.tail = state.tail.max(*end);
            }
            for tx in done.iter().filter(|tx| !tx.lent.is_empty()) {
                tx.lent.iter().for_each(|run| self.trees.unclaim(run.start.0..run.start.0 + run.count));
                self.away.lock().unwrap().remove(&tx.place.sequence);
            }
        }
        self.queues.iter().for_each(|queue| queue.changed.notify_all());
    }

    /// The header of a journal that has nothing any more.
    pub(super) fn write_empty(&self) -> Result<()> {
        let mut header = self.take_header()?;
        let written = self.failing(self.write_header(&mut header, self.last.load(Ordering::Acquire), State::Empty));
        self.put_header(header);
        written
    }
}
