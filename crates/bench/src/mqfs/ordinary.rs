//! Queues of the journal made of a controller's ordinary ones, in memory, with a doorbell for each command and for each
//! completion: how other systems hand the same blocks over. They are not slowed down.
//!
//! | how | a transaction's writes | commands | waits |
//! |---|---|---|---|
//! | `Classic` | all but the commit block; then that: JBD2's order, by the thread that waits | W + 1 | 2 |
//! | `ClassicThread` | the same, by one thread for all queues | W + 1 | 2, and the thread's |
//! | `Horae` | all at once: Horae's order | W + 1; W where the commit block is merged | 1 |
//! | `Parallel` | all at once, without a description or a commit block | W | 1 |
//! | `Serial` | each when the one before is complete: ext4 without a journal | W | W |
//!
//! W is how many writes are left when neighbours are merged, which are those of the same transaction on queues in the
//! region; with `Parallel` and `Serial` they go straight home. A command costs two doorbells (MMIO), two entries by
//! DMA, and an interrupt. The device has no volatile write cache, so no flush is needed.
//!
//! A transaction that is handed over and not waited for goes on when somebody waits for it, or for a later one.
//! Recovery of `Classic` and `Horae` is not built: descriptions alone decide. `Parallel` and `Serial` promise nothing
//! after a crash.

use std::collections::VecDeque;
use std::sync::Arc;

use blocks_events::multi_queue::{Life, QueueGuarantees, Queues, Unfinished, Write};
use blocks_events::{BLOCK, Lba, Page, Txid};
use nvme_events::spec::{Command, IO_WRITE};
use nvme_events::{Controller, DmaPage, Options, PlainQueue, Transport};
use sync_events::{AtomicBool, Condvar, Mutex, Ordering, Spawned, spawn};
use wholly_media::Site;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Classic,
    ClassicThread,
    Horae,
    Parallel,
    Serial,
}

type Done<T> = wholly::Result<T>;

/// A write that a command makes.
struct Ready {
    at: Lba,
    pages: Vec<DmaPage>,
}

/// A transaction that is handed over.
struct Flow {
    line: usize,
    /// The journal's thread is done with it.
    is_done: AtomicBool,
    state: Mutex<Stages>,
}

#[derive(Default)]
struct Stages {
    /// Commands that are in flight.
    waits: Vec<u16>,
    /// What is handed over when these are complete, step by step.
    then: VecDeque<Vec<Ready>>,
    failed: Option<wholly::Error>,
}

/// A queue.
struct Line {
    queue: Arc<PlainQueue>,
    /// Transactions that are not known to be on the medium, in their order.
    flows: Mutex<Flows>,
}

#[derive(Default)]
struct Flows {
    given: u64,
    open: VecDeque<(u64, Arc<Flow>)>,
}

/// What the journal's thread has to do.
#[derive(Default)]
struct Tasks {
    flows: Vec<Arc<Flow>>,
    is_over: bool,
}

struct Shared {
    controller: Controller,
    how: How,
    merges: bool,
    lines: Vec<Line>,
    tasks: Mutex<Tasks>,
    came: Condvar,
}

/// See the module.
pub(super) struct Ordinary {
    shared: Arc<Shared>,
    guarantees: QueueGuarantees,
    worker: Option<Spawned>,
}

impl Ordinary {
    /// Over a controller on which no life has begun.
    pub fn new(transport: Arc<dyn Transport>, how: How, options: Options) -> Done<Ordinary> {
        let (queues, merges) = (options.queues, options.merge);
        let controller = Controller::open(transport, options)?;
        let line = |_| Ok(Line { queue: controller.plain_queue()?, flows: Mutex::default() });
        let lines = (0..queues).map(line).collect::<Done<Vec<_>>>()?;
        let info = controller.info();
        assert!(!info.controller.has_write_cache, "nothing is flushed");
        let guarantees = QueueGuarantees {
            blocks: info.blocks,
            queues,
            most_writes: usize::MAX,
            most_pages: if merges { info.most_transfer as usize / BLOCK } else { 1 },
            tells_unfinished: false,
            flushes_own_writes: false,
            plain_unit: 8,
            emulated: true,
            description: format!("{queues} ordinary queues of a controller, {how:?}"),
        };
        let (tasks, came) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { controller, how, merges, lines, tasks, came });
        let worker = match how {
            How::ClassicThread => {
                let of_worker = shared.clone();
                Some(spawn(move || of_worker.work()).map_err(|errno| wholly::Error::of("a thread", errno))?)
            }
            _ => None,
        };
        Ok(Ordinary { shared, guarantees, worker })
    }
}

impl Drop for Ordinary {
    fn drop(&mut self) {
        self.shared.tasks.lock().unwrap().is_over = true;
        self.shared.came.notify_all();
        self.worker.take().into_iter().for_each(Spawned::join);
    }
}

impl Shared {
    fn filled(&self, pages: &[Page]) -> Done<Vec<DmaPage>> {
        let fill = |page: &Page| {
            let filled = self.controller.page()?;
            filled.write(0, &page[..]);
            Ok(filled)
        };
        pages.iter().map(fill).collect()
    }

    /// What is handed over together, step by step.
    fn stages(&self, mut writes: Vec<Write>) -> Done<VecDeque<Vec<Ready>>> {
        if self.how == How::Horae && self.merges {
            let commit = writes.pop().expect("the commit block is the last one");
            let ends_there = |write: &&mut Write| write.at.0 + write.pages.len() as u64 == commit.at.0;
            match writes.iter_mut().find(ends_there) {
                Some(before) => before.pages.extend(commit.pages),
                None => writes.push(commit),
            }
        }
        let ready = |write: Write| Ok(Ready { at: write.at, pages: self.filled(&write.pages)? });
        let mut ready = writes.into_iter().map(ready).collect::<Done<Vec<_>>>()?;
        Ok(match self.how {
            How::Classic | How::ClassicThread => {
                let commit = ready.split_off(ready.len() - 1);
                [ready, commit].into()
            }
            How::Horae | How::Parallel => [ready].into(),
            How::Serial => ready.into_iter().map(|one| vec![one]).collect(),
        })
    }

    /// Hands the next step of a transaction over. Whether there is one.
    fn go_on(&self, flow: &Flow, stages: &mut Stages) -> Done<bool> {
        let Some(next) = stages.then.pop_front() else { return Ok(false) };
        let ratio = BLOCK as u64 / u64::from(self.controller.info().lba_bytes);
        for Ready { at, pages } in next {
            let command = Command::transfer(IO_WRITE, 1, at.0 * ratio, (pages.len() as u64 * ratio) as u32);
            stages.waits.push(self.lines[flow.line].queue.submit(command, pages)?);
        }
        Ok(true)
    }

    /// Waits until what was handed over of a transaction is complete.
    fn wait_step(&self, flow: &Flow, stages: &mut Stages) -> Done<()> {
        for id in std::mem::take(&mut stages.waits) {
            let status = self.lines[flow.line].queue.wait(id)?.status();
            if !status.is_success() {
                return Err(wholly::Error::Invalid(format!("a write of a transaction: {status}")));
            }
        }
        Ok(())
    }

    /// Returns when a transaction is on the medium. One thread does it, the others wait for it.
    fn finish(&self, flow: &Flow) -> Done<()> {
        let stages = &mut *flow.state.lock().unwrap();
        stages.failed.clone().map_or(Ok(()), Err)?;
        let done = loop {
            match self.wait_step(flow, stages).and_then(|()| self.go_on(flow, stages)) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        done.inspect_err(|error| stages.failed = Some(error.clone()))
    }

    /// Waits for the transactions of a queue up to a place, the last one first: it is the caller's own.
    fn wait(&self, line: usize, place: u64) -> Done<()> {
        self.open(line, place).iter().rev().try_for_each(|flow| self.finish(flow))?;
        self.lines[line].flows.lock().unwrap().open.retain(|(at, _)| *at > place);
        Ok(())
    }

    /// Transactions of a queue up to a place that are not known to be on the medium.
    fn open(&self, line: usize, place: u64) -> Vec<Arc<Flow>> {
        let flows = self.lines[line].flows.lock().unwrap();
        flows.open.iter().filter(|(at, _)| *at <= place).map(|(_, flow)| flow.clone()).collect()
    }

    /// The journal's thread: what has come meanwhile is handed over together, and then the commit blocks.
    fn work(&self) {
        loop {
            let flows = {
                let mut tasks = self.tasks.lock().unwrap();
                while tasks.flows.is_empty() && !tasks.is_over {
                    tasks = self.came.wait(tasks).unwrap();
                }
                std::mem::take(&mut tasks.flows)
            };
            if flows.is_empty() {
                return;
            }
            let step = |flow: &Arc<Flow>| {
                let stages = &mut *flow.state.lock().unwrap();
                let done = self.wait_step(flow, stages).and_then(|()| self.go_on(flow, stages));
                done.unwrap_or_else(|error| {
                    stages.failed = Some(error);
                    false
                })
            };
            // Their blocks, and their commit blocks.
            (0..2).for_each(|_| flows.iter().for_each(|flow| _ = step(flow)));
            flows.iter().for_each(|flow| _ = step(flow));
            let _tasks = self.tasks.lock().unwrap();
            flows.iter().for_each(|flow| flow.is_done.store(true, Ordering::Release));
            self.came.notify_all();
        }
    }
}

impl Queues for Ordinary {
    fn guarantees(&self) -> &QueueGuarantees {
        &self.guarantees
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished::Unknown("ordinary queues do not tell".into())
    }

    fn start(&self, _: Site, _: Life) -> Done<()> {
        Ok(())
    }

    fn commit(&self, _: Site, queue: u16, _: Txid, writes: Vec<Write>) -> Done<u64> {
        let (shared, line) = (&self.shared, usize::from(queue));
        let state = Mutex::new(Stages { then: shared.stages(writes)?, ..Stages::default() });
        let flow = Arc::new(Flow { line, is_done: AtomicBool::new(false), state });
        let place = {
            let mut flows = shared.lines[line].flows.lock().unwrap();
            flows.given += 1;
            let given = flows.given;
            flows.open.push_back((given, flow.clone()));
            given
        };
        match shared.how {
            How::ClassicThread => {
                shared.tasks.lock().unwrap().flows.push(flow);
                shared.came.notify_all();
            }
            _ => _ = shared.go_on(&flow, &mut flow.state.lock().unwrap())?,
        }
        Ok(place)
    }

    fn wait(&self, _: Site, queue: u16, place: u64) -> Done<()> {
        let shared = &self.shared;
        if shared.how == How::ClassicThread {
            let open: Vec<_> = shared.open(queue.into(), place);
            let mut tasks = shared.tasks.lock().unwrap();
            while open.iter().any(|flow| !flow.is_done.load(Ordering::Acquire)) {
                tasks = shared.came.wait(tasks).unwrap();
            }
        }
        shared.wait(queue.into(), place)
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Done<()> {
        let (blocks, _) = bytes.as_chunks_mut::<BLOCK>();
        let pages = blocks.iter().map(|_| self.shared.controller.page()).collect::<Done<Vec<_>>>()?;
        self.shared.controller.read(at, &pages)?;
        blocks.iter_mut().zip(&pages).for_each(|(block, page)| page.read(0, block));
        Ok(())
    }

    fn write(&self, _: Site, at: Lba, pages: &[Page]) -> Done<()> {
        self.shared.controller.write(at, &self.shared.filled(pages)?)
    }

    fn flush(&self, _: Site) -> Done<()> {
        self.shared.controller.flush()
    }

    fn close(&self, site: Site) -> Done<()> {
        (0..self.guarantees.queues).try_for_each(|queue| self.wait(site, queue, u64::MAX))
    }
}
