//! The systems: each with one thread's queue.

use std::collections::VecDeque;
use std::sync::Arc;

use wholly_blocks::{Lba, Txid};
use wholly_nvme::spec::{Command, IO_WRITE};
use wholly_nvme::{Controller, DmaPage, Lease, PlainQueue, Ticket};

use super::{LIFE, blocks_of};
use crate::Result;

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Classic,
    Horae,
    Ccnvme,
    CcnvmeAtomic,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Classic, Kind::Horae, Kind::Ccnvme, Kind::CcnvmeAtomic];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Classic => "classic",
            Kind::Horae => "horae",
            Kind::Ccnvme => "ccnvme",
            Kind::CcnvmeAtomic => "ccnvme_atomic",
        }
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether its queue stands in the region.
    pub fn is_in_region(self) -> bool {
        matches!(self, Kind::Ccnvme | Kind::CcnvmeAtomic)
    }
}

/// A transaction of the ordinary kind that is in flight.
struct Flow {
    number: u64,
    /// Commands that are not complete.
    waits: Vec<u16>,
    /// Whether its commit block is still to be written.
    lacks_commit: bool,
}

/// One thread of a system.
pub(super) struct Worker<'c> {
    kind: Kind,
    controller: &'c Controller,
    queue: Queue,
    /// Its content does not matter.
    page: DmaPage,
    /// Logical blocks in a block.
    ratio: u64,
    begun: u64,
    finished: u64,
    flows: Vec<Flow>,
    tickets: VecDeque<Ticket>,
}

enum Queue {
    Plain(Arc<PlainQueue>),
    Region(Lease),
}

impl<'c> Worker<'c> {
    pub fn new(kind: Kind, controller: &'c Controller) -> Result<Worker<'c>> {
        let queue = match kind.is_in_region() {
            true => {
                controller.start(LIFE)?;
                Queue::Region(controller.lease()?)
            }
            false => Queue::Plain(controller.plain_queue()?),
        };
        Ok(Worker {
            kind,
            controller,
            queue,
            page: controller.page()?,
            ratio: 4096 / u64::from(controller.info().lba_bytes),
            begun: 0,
            finished: 0,
            flows: Vec::new(),
            tickets: VecDeque::new(),
        })
    }

    fn plain(&self) -> &PlainQueue {
        let Queue::Plain(queue) = &self.queue else { unreachable!("it is of the ordinary kind") };
        queue
    }

    fn write(&self, at: Lba) -> Result<u16> {
        let command = Command::transfer(IO_WRITE, 1, at.0 * self.ratio, self.ratio as u32);
        Ok(self.plain().submit(command, vec![self.page.clone()])?)
    }

    /// Hands over what comes first: the description and the blocks; with Horae's order the commit block, too.
    fn begin(&mut self, n: u64) -> Result<()> {
        let (description, blocks, commit) = blocks_of(n, self.begun);
        let number = self.begun;
        self.begun += 1;
        if let Queue::Region(lease) = &mut self.queue {
            let page = std::slice::from_ref(&self.page);
            blocks.iter().try_for_each(|at| lease.write(*at, page))?;
            self.tickets.push_back(lease.commit(Txid::new(1, number + 1), description, page)?);
            return Ok(());
        }
        let lacks_commit = self.kind == Kind::Classic;
        let mut waits = vec![self.write(description)?];
        for at in &blocks {
            waits.push(self.write(*at)?);
        }
        if !lacks_commit {
            waits.push(self.write(commit)?);
        }
        self.flows.push(Flow { number, waits, lacks_commit });
        Ok(())
    }

    /// A transaction, as the system ends it.
    pub fn transaction(&mut self, n: u64, _number: u64) -> Result<()> {
        self.begin(n)?;
        match self.kind {
            Kind::CcnvmeAtomic => {
                self.finished = self.begun;
                // `settle` waits for the last ticket alone, which covers those before it.
                if self.tickets.len() > 1 {
                    self.tickets.pop_front();
                }
                Ok(())
            }
            _ => self.settle_with(n),
        }
    }

    /// Waits for all that is in flight.
    pub fn settle(&mut self) -> Result<()> {
        let last = self.tickets.back().copied();
        self.tickets.clear();
        last.map_or(Ok(()), |ticket| Ok(self.controller.wait(ticket)?))
    }

    fn settle_with(&mut self, n: u64) -> Result<()> {
        for flow in std::mem::take(&mut self.flows) {
            for id in flow.waits {
                self.plain().wait(id)?;
            }
            if flow.lacks_commit {
                let id = self.write(blocks_of(n, flow.number).2)?;
                self.plain().wait(id)?;
            }
        }
        self.settle()?;
        self.finished = self.begun;
        Ok(())
    }

    /// Begins transactions until so many are in flight, and goes on with those whose commands have completed.
    pub fn keep_in_flight(&mut self, n: u64, in_flight: usize) -> Result<()> {
        if self.kind.is_in_region() {
            while self.tickets.len() < in_flight {
                self.begin(n)?;
            }
            let oldest = self.tickets.pop_front().expect("there are some");
            self.controller.wait(oldest)?;
            self.finished += 1;
            return Ok(());
        }
        while self.flows.len() < in_flight {
            self.begin(n)?;
        }
        // The oldest one is waited for; what has completed meanwhile goes on.
        let first = self.flows[0].waits.pop().expect("it waits for something");
        self.plain().wait(first)?;
        let mut flows = std::mem::take(&mut self.flows);
        for flow in &mut flows {
            let mut left = Vec::new();
            for id in std::mem::take(&mut flow.waits) {
                match self.plain().is_done(id)? {
                    true => _ = self.plain().wait(id)?,
                    false => left.push(id),
                }
            }
            flow.waits = left;
            if flow.waits.is_empty() && std::mem::take(&mut flow.lacks_commit) {
                flow.waits.push(self.write(blocks_of(n, flow.number).2)?);
            }
        }
        let before = flows.len();
        flows.retain(|flow| !flow.waits.is_empty());
        self.finished += (before - flows.len()) as u64;
        self.flows = flows;
        Ok(())
    }

    /// Finished transactions; for `ccnvme_atomic`, committed ones.
    pub fn finished(&self) -> u64 {
        self.finished
    }
}
