//! Transactions on queues in a device's persistent memory region, as a subject: the driver of the crate `wholly-nvme`
//! on its model, over a simulated device.
//!
//! One file stands for all blocks, and one for the windows. What a crash may leave, where the region is whole:
//!
//! - a transaction that was waited for is there; one whose commit has returned is there, or in the window;
//! - a transaction that is not in the window is there wholly, or nothing of it is;
//! - one that was acknowledged, and whose head was durable after that, is not in the window;
//! - of one that is in the window, each block is anything, unless it was waited for.
//!
//! Where the region was lost, the window is unknown: then what was waited for is there, and of the others each block is
//! anything.
//!
//! The upper layer here does the least that one can: blocks that are torn get zeros, before a new life begins.

mod drawn;
mod programs;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use wholly_blocks::{BLOCK, Lba, Txid};
use wholly_error::Error;
use wholly_media::Site;
use wholly_nvme::model::{Config, Faults, Model};
use wholly_nvme::spec::Status;
use wholly_nvme::{
    Acknowledge, Controller, DmaPage, Lease, Life as Incarnation, Mistake, Options, QueueWindow, Ticket, Unfinished,
    Window, site,
};
use wholly_sim::{DeviceRules, SimConfig, World};

use crate::life::Life;
use crate::run::{Recorder, Run};
use crate::setting::Setting;
use crate::subject::{Beginning, NotOpened, Subject};
use crate::tree::{FILE_MODE, Object, State};
use crate::workload::Promise;
pub use drawn::drawn;
pub use programs::{ALL, BLOCKS, Program, Step};

/// Bytes of the region: a page of words, and a page for each ring.
const REGION: u64 = 5 * 4096;

/// The first transaction of what follows a crash. Those of its own crashes begin beyond that.
const AGAIN: u64 = 1000;

/// Blocks that what follows a crash writes, on the first queue and on the last.
const AGAIN_BLOCKS: [&[u64]; 2] = [&[1, 2], &[3, 4]];

/// The worlds, and what each is.
pub const WORLDS: [(&str, &str); 4] = [
    ("ccnvme", "a device with a write cache, each word of whose region survives by itself"),
    ("ccnvme-plp", "the same without a volatile write cache"),
    ("ccnvme-ordered", "the same with a write cache, and a region that keeps the order of ordered stores"),
    ("ccnvme-lost", "a device that loses what its region had, at each crash"),
];

/// The paper taken literally, where it is not sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// The flush is in the batch of what it is to flush.
    M3,
    /// What makes stores arrive does not.
    M8,
    /// The head is not durable before an acknowledgement, and what the window has is dropped.
    M10,
}

impl Paper {
    /// All of them.
    pub const ALL: [Paper; 3] = [Paper::M3, Paper::M8, Paper::M10];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Paper::M3 => "M3",
            Paper::M8 => "M8",
            Paper::M10 => "M10",
        }
    }
}

/// The world with this name: one of [`WORLDS`], perhaps with something broken: `ccnvme@M8`,
/// `ccnvme@nvme.commit.tail.order=drop-order`.
pub fn setting(name: &str) -> Option<Setting> {
    let (base, broken) = name.split_once('@').map_or((name, None), |(base, broken)| (base, Some(broken)));
    WORLDS.iter().find(|(world, _)| *world == base)?;
    let has_write_cache = base != "ccnvme-plp";
    let rules = DeviceRules { region_len: REGION, in_order: base == "ccnvme-ordered", has_write_cache };
    let mut sim = SimConfig::device(BLOCKS, rules);
    if let Some(broken) = broken.filter(|broken| paper_named(broken).is_none()) {
        sim.mutations.push(crate::setting::parse_mutation(broken)?);
    }
    Some(Setting { name: name.into(), sim: Arc::new(sim) })
}

fn paper_named(name: &str) -> Option<Paper> {
    Paper::ALL.into_iter().find(|paper| paper.name() == name)
}

/// Sites that change what survives.
pub fn sites() -> Vec<Site> {
    let is_one = |site: &Site| ![site::SETUP, site::COMPLETE, site::PLAIN_COMPLETE].contains(site);
    site::ALL.iter().copied().filter(is_one).collect()
}

/// A program on such a device.
#[derive(Clone, Debug)]
pub struct OnQueues {
    /// The program.
    pub program: &'static Program,
    /// A mistake.
    pub mistake: Option<Mistake>,
}

/// The programs with this name: one, `by-hand` for all that are written by hand, or `random-3..9` for those that are
/// drawn from these seeds.
pub fn several(name: &str) -> Option<Vec<OnQueues>> {
    let on = |program| OnQueues { program, mistake: None };
    if let Some((from, to)) = name.strip_prefix("random-").and_then(|seeds| seeds.split_once("..")) {
        let seeds = from.parse().ok()?..to.parse().ok()?;
        return Some(seeds.map(|seed| on(drawn(seed))).collect());
    }
    match name {
        "by-hand" => Some(ALL.iter().map(on).collect()),
        name => named(name).map(|program| vec![on(program)]),
    }
}

/// The program with this name: one that is written by hand, or `random-SEED`.
pub fn named(name: &str) -> Option<&'static Program> {
    match name.strip_prefix("random-") {
        Some(seed) => seed.parse().ok().map(drawn),
        None => ALL.iter().find(|program| program.name == name),
    }
}

/// A device that is open. If it is dropped, the process dies.
pub struct OpenDevice {
    controller: Controller,
    model: Arc<Model>,
    setting: Setting,
}

/// What a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    /// What this transaction has written; 0: nothing has.
    Of(u64),
    /// No page of any.
    Torn,
    /// Anything: it is one of a transaction that is not finished.
    Any,
}

/// What a window says of a queue.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Whether there are entries that tell of no transaction.
    is_unreadable: bool,
    /// By number.
    transactions: Vec<SeenTx>,
}

/// A transaction that a window lists.
#[derive(Clone, Copy, Debug)]
struct SeenTx {
    number: u64,
    /// Whether its entries are those that were committed, all of them.
    is_readable: bool,
    /// Whether all its blocks are there.
    is_whole: bool,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tx in &self.transactions {
            let words = match (tx.is_readable, tx.is_whole) {
                (_, true) => "whole",
                (true, false) => "not whole",
                (false, false) => "not all listed",
            };
            write!(f, "{} {words}, ", tx.number)?;
        }
        f.write_str(if self.is_unreadable { "and unreadable entries" } else { "no more" })
    }
}

/// The windows, and the incarnation that they are of; none: unknown.
type Windows = Option<(u64, Vec<Seen>)>;

/// Two files: `blocks`, with a number of 8 bytes for each, and `window`.
fn state(values: &[Value], windows: &Windows) -> State {
    let number = |value: &Value| match value {
        Value::Of(number) => *number,
        Value::Torn => u64::MAX,
        Value::Any => u64::MAX - 1,
    };
    let numbers: Vec<u8> = values.iter().flat_map(|value| number(value).to_le_bytes()).collect();
    let words = match windows {
        None => "unknown".to_string(),
        Some((incarnation, queues)) => {
            let queues: Vec<String> = queues.iter().map(Seen::to_string).collect();
            format!("of life {incarnation}: {}", queues.join("; "))
        }
    };
    let mut state = State::default();
    state.put("blocks", Object::file(numbers, FILE_MODE));
    state.put("window", Object::file(words.into_bytes(), FILE_MODE));
    state
}

fn fill(page: &DmaPage, number: u64) {
    let mut bytes = [0; BLOCK];
    if number > 0 {
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[BLOCK - 8..].copy_from_slice(&number.rotate_left(17).to_le_bytes());
    }
    page.write(0, &bytes);
}

fn value_of(page: &DmaPage) -> Value {
    let mut bytes = [0; BLOCK];
    page.read(0, &mut bytes);
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let number = word(0);
    let is_whole = word(BLOCK - 8) == number.rotate_left(17) && bytes[8..BLOCK - 8].iter().all(|byte| *byte == 0);
    if is_whole { Value::Of(number) } else { Value::Torn }
}

/// A transaction, as the oracle knows it.
#[derive(Clone, Copy, Debug)]
struct Tx {
    number: u64,
    queue: u16,
    blocks: &'static [u64],
}

impl OnQueues {
    /// All transactions that anybody makes, by number.
    fn transactions(&self) -> Vec<Tx> {
        let commits = self.program.steps.iter().filter_map(|step| match step {
            Step::Commit(queue, blocks) => Some((*queue, *blocks)),
            _ => None,
        });
        let own = (1..).zip(commits).map(|(number, (queue, blocks))| Tx { number, queue, blocks });
        let again = (AGAIN..).zip(AGAIN_BLOCKS.iter().cycle().take(2 * LIVES as usize));
        let queue = |number: u64| if number.is_multiple_of(2) { 0 } else { self.program.queues - 1 };
        own.chain(again.map(|(number, blocks)| Tx { number, queue: queue(number), blocks })).collect()
    }

    fn paper(&self, setting: &Setting) -> Option<Paper> {
        setting.name.split_once('@').and_then(|(_, broken)| paper_named(broken))
    }

    /// A device without a process.
    fn device(&self, world: &Arc<World>, setting: &Setting) -> Result<Arc<Model>, Error> {
        let config = Config {
            lba_bytes: 4096,
            has_write_cache: setting.sim.device.is_some_and(|device| device.has_write_cache),
            queues: self.program.queues + 1,
            interrupts: 0,
            seed: world.now() + self.program.steps.len() as u64,
            ..Config::default()
        };
        Model::new("device", world.device(), config)
    }

    /// Opens it, as it is. The controller is not disabled when it is dropped: then the process has died.
    fn open_device(&self, model: Arc<Model>, setting: &Setting) -> Result<OpenDevice, Error> {
        let mistake = match self.paper(setting) {
            Some(Paper::M3) => Some(Mistake::FlushInBatch),
            Some(Paper::M8) => Some(Mistake::NoBarrier),
            Some(Paper::M10) | None => self.mistake,
        };
        let Program { queues, depth, merge, waits_for_head, most_forced, first_count, .. } = *self.program;
        let acknowledge = if waits_for_head { Acknowledge::HeadDurable } else { Acknowledge::Finished };
        let options =
            Options { queues, depth, merge, acknowledge, most_forced, first_count, mistake, ..Options::default() };
        let controller = Controller::open(model.clone(), options)?;
        controller.abandon();
        Ok(OpenDevice { controller, model, setting: setting.clone() })
    }

    /// What is there: the blocks as far as they are specified, and the windows.
    fn look(&self, open: &OpenDevice) -> Result<(Vec<Value>, Windows), String> {
        let (values, listed) = (open.values()?, self.listed(open)?);
        let all = self.transactions();
        for number in listed.iter().flat_map(|(_, queues)| queues).flat_map(|queue| &queue.transactions) {
            let blocks = all.iter().find(|tx| tx.number == number.number).map_or(&[][..], |tx| tx.blocks);
            for block in blocks {
                // Whatever an unfinished transaction has done: a block has what somebody has written there, or is torn.
                let is_one = |number: u64| all.iter().any(|tx| tx.number == number && tx.blocks.contains(block));
                if matches!(values[*block as usize], Value::Of(number) if number > 0 && !is_one(number)) {
                    return Err(format!("block {block} has {:?}, of another block", values[*block as usize]));
                }
            }
        }
        Ok(self.specified(values, listed.as_ref(), self.paper(&open.setting) == Some(Paper::M10)))
    }

    /// What the window of each queue has. Nothing is known to be whole yet.
    fn listed(&self, open: &OpenDevice) -> Result<Option<(u64, Vec<Seen>)>, String> {
        let Window::Known { life, queues } = open.controller.window() else { return Ok(None) };
        if open.setting.name.starts_with("ccnvme-ordered") && queues.iter().any(|queue| queue.unreadable > 0) {
            return Err(format!("the tail is there before its entries: {queues:?}"));
        }
        let all = self.transactions();
        let seen = |found: &Unfinished| {
            let blocks: BTreeSet<u64> = found.runs.iter().flat_map(|run| run.blocks().map(|at| at.0)).collect();
            let is_it = |tx: &Tx| tx.number == found.txid.0 && tx.blocks.iter().copied().eq(blocks.iter().copied());
            let is_readable = found.is_committed && all.iter().any(is_it);
            if open.setting.name.starts_with("ccnvme-ordered") && found.is_committed && !is_readable {
                return Err(format!("the window lists what nobody has committed: {found:?}"));
            }
            Ok(SeenTx { number: found.txid.0, is_readable, is_whole: false })
        };
        let of_queue = |queue: &QueueWindow| {
            let transactions = queue.transactions.iter().map(seen).collect::<Result<_, String>>()?;
            Ok::<_, String>(Seen { is_unreadable: queue.unreadable > 0, transactions })
        };
        Ok(Some((life.incarnation, queues.iter().map(of_queue).collect::<Result<_, _>>()?)))
    }

    /// The content of all blocks, as far as it is specified. Blocks of an unfinished transaction are unspecified unless
    /// all of them are there. If the window is unknown, every transaction counts as unfinished. With `drops`, the upper
    /// layer drops unfinished transactions even if they are whole.
    fn specified(
        &self,
        mut values: Vec<Value>,
        listed: Option<&(u64, Vec<Seen>)>,
        drops: bool,
    ) -> (Vec<Value>, Windows) {
        let all = self.transactions();
        let has = |queue: &Seen, number: u64| queue.transactions.iter().any(|tx| tx.number == number);
        let is_listed = |number: u64| listed.is_none_or(|(_, queues)| queues.iter().any(|queue| has(queue, number)));
        // A later transaction has the block, or may have a part of it.
        let is_over = |tx: &Tx, block: u64, value: Value| {
            let mut later = all.iter().filter(|later| later.number > tx.number && later.blocks.contains(&block));
            later.any(|later| value == Value::Of(later.number) || (value == Value::Torn && is_listed(later.number)))
        };
        let is_there = |tx: &Tx, block: u64| {
            let value = values[block as usize];
            value == Value::Of(tx.number) || is_over(tx, block, value)
        };
        let is_whole = |tx: &&Tx| !drops && tx.blocks.iter().all(|block| is_there(tx, *block));
        let whole: BTreeSet<u64> = all.iter().filter(is_whole).map(|tx| tx.number).collect();
        let Some((incarnation, queues)) = listed else {
            for value in &mut values {
                if matches!(value, Value::Of(number) if *number > 0 && !whole.contains(number)) || *value == Value::Torn
                {
                    *value = Value::Any;
                }
            }
            return (values, None);
        };
        for tx in all.iter().filter(|tx| is_listed(tx.number) && !whole.contains(&tx.number)) {
            tx.blocks.iter().for_each(|block| values[*block as usize] = Value::Any);
        }
        let mut queues = queues.clone();
        for tx in queues.iter_mut().flat_map(|queue| &mut queue.transactions) {
            tx.is_whole = whole.contains(&tx.number);
        }
        (values, Some((*incarnation, queues)))
    }
}

impl OpenDevice {
    fn values(&self) -> Result<Vec<Value>, String> {
        let read = || {
            let pages: Vec<DmaPage> = (0..BLOCKS).map(|_| self.controller.page()).collect::<Result<_, Error>>()?;
            self.controller.read(Lba(0), &pages)?;
            Ok::<_, Error>(pages.iter().map(value_of).collect())
        };
        read().map_err(|error| format!("the blocks: {error}"))
    }

    fn lease(&self, queue: u16) -> Result<Lease, String> {
        let lease = self.controller.try_lease(queue).map_err(|error| error.to_string())?;
        lease.ok_or_else(|| format!("queue {queue} is leased"))
    }

    fn start(&self, incarnation: u64) -> Result<(), Error> {
        self.controller.start(Incarnation { volume: [7; 16], incarnation })
    }

    fn commit(&self, lease: &mut Lease, tx: Tx) -> Result<Ticket, Error> {
        let (last, others) = tx.blocks.split_last().expect("a transaction has blocks");
        let page = self.controller.page()?;
        fill(&page, tx.number);
        for block in others {
            lease.write(Lba(*block), std::slice::from_ref(&page))?;
        }
        lease.commit(Txid(tx.number), Lba(*last), &[page])
    }

    /// What a driver has done that none may do.
    fn reports(&self) -> Result<(), String> {
        self.model.reports().first().map_or(Ok(()), |report| Err(report.clone()))
    }
}

/// What is to be there, in one life.
struct Oracle<'o> {
    on: &'o OnQueues,
    /// Whether crashes lose the region.
    is_lost: bool,
    waits_for_head: bool,
    incarnation: u64,
    /// When the life began.
    values: Vec<Value>,
    queues: Vec<OfQueue>,
}

/// Of a queue: its transactions in their order.
#[derive(Clone, Default)]
struct OfQueue {
    transactions: Vec<Tx>,
    /// How many were waited for.
    acknowledged: usize,
    /// How many the durable head has passed for certain.
    passed: usize,
    /// How many commits have returned: one at most has not.
    returned: usize,
    /// The first that never finishes.
    failed: Option<usize>,
}

/// What a crash may leave of a queue: how many are finished, what the window has of the others.
#[derive(Clone)]
struct Choice {
    finished: usize,
    is_unreadable: bool,
    left: Vec<Option<SeenTx>>,
}

impl<'o> Oracle<'o> {
    fn new(on: &'o OnQueues, setting: &Setting, incarnation: u64, values: Vec<Value>) -> Oracle<'o> {
        Oracle {
            on,
            is_lost: setting.name.starts_with("ccnvme-lost"),
            waits_for_head: on.program.waits_for_head,
            incarnation,
            values,
            queues: vec![OfQueue::default(); on.program.queues.into()],
        }
    }

    /// A commit begins.
    fn commit(&mut self, tx: Tx) {
        let failing = self.on.program.failing.is_some_and(|(_, number)| number == tx.number);
        let queue = &mut self.queues[usize::from(tx.queue)];
        if failing {
            queue.failed = Some(queue.transactions.len());
        }
        queue.transactions.push(tx);
    }

    /// It has returned: its barrier has made durable what was stored of the head before.
    fn is_committed(&mut self, queue: u16) {
        let queue = &mut self.queues[usize::from(queue)];
        queue.passed = queue.passed.max(queue.acknowledged);
        queue.returned = queue.transactions.len();
    }

    fn wait(&mut self, queue: u16) {
        let queue = &mut self.queues[usize::from(queue)];
        queue.acknowledged = queue.transactions.len();
        if self.waits_for_head {
            queue.passed = queue.acknowledged;
        }
    }

    /// What a crash may leave.
    fn may_leave(&self) -> Vec<Promise> {
        if self.is_lost {
            return self.may_leave_without_window();
        }
        let mut all: Vec<Vec<Choice>> = vec![Vec::new()];
        for queue in &self.queues {
            let choices = queue.choices();
            all = all
                .iter()
                .flat_map(|so_far| choices.iter().map(|one| [&so_far[..], std::slice::from_ref(one)].concat()))
                .collect();
        }
        let one = |choice: &Vec<Choice>| {
            let mut windows = Vec::new();
            let mut effects: Vec<(Tx, bool)> = Vec::new();
            for (queue, Choice { finished, is_unreadable, left }) in self.queues.iter().zip(choice) {
                let (done, open) = queue.transactions.split_at(*finished);
                effects.extend(done.iter().map(|tx| (*tx, true)));
                effects.extend(open.iter().zip(left).filter_map(|(tx, seen)| Some((*tx, (*seen)?.is_whole))));
                let transactions = left.iter().flatten().copied().collect();
                windows.push(Seen { is_unreadable: *is_unreadable, transactions });
            }
            effects.sort_by_key(|(tx, _)| tx.number);
            let mut values = self.values.clone();
            for (tx, is_whole) in effects {
                let value = if is_whole { Value::Of(tx.number) } else { Value::Any };
                tx.blocks.iter().for_each(|block| values[*block as usize] = value);
            }
            Promise::new(state(&values, &Some((self.incarnation, windows))))
        };
        all.iter().map(one).collect()
    }

    /// What there is once all of it is finished, and the device closed.
    fn closed(&self) -> Promise {
        let queues = self.queues.iter().map(|queue| OfQueue {
            acknowledged: queue.transactions.len(),
            passed: queue.transactions.len(),
            returned: queue.transactions.len(),
            ..queue.clone()
        });
        let closed = Oracle { queues: queues.collect(), values: self.values.clone(), ..*self };
        closed.may_leave().remove(0)
    }

    fn may_leave_without_window(&self) -> Vec<Promise> {
        let mut certain: Vec<Tx> =
            self.queues.iter().flat_map(|queue| &queue.transactions[..queue.acknowledged]).copied().collect();
        certain.sort_by_key(|tx| tx.number);
        let mut values = self.values.clone();
        for tx in certain {
            tx.blocks.iter().for_each(|block| values[*block as usize] = Value::Of(tx.number));
        }
        let mut all = vec![values];
        for tx in self.queues.iter().flat_map(|queue| &queue.transactions[queue.acknowledged..]) {
            for block in tx.blocks {
                let with = |values: &Vec<Value>, value: Option<Value>| {
                    let mut values = values.clone();
                    values[*block as usize] = value.unwrap_or(values[*block as usize]);
                    values
                };
                let choices = [None, Some(Value::Of(tx.number)), Some(Value::Torn)];
                all = all.iter().flat_map(|values| choices.iter().map(|choice| with(values, *choice))).collect();
            }
        }
        let shown: BTreeSet<Vec<Value>> =
            all.into_iter().map(|values| self.on.specified(values, None, false).0).collect();
        shown.iter().map(|values| Promise::new(state(values, &None))).collect()
    }
}

impl OfQueue {
    fn choices(&self) -> Vec<Choice> {
        let all = self.transactions.len();
        let mut choices = Vec::new();
        for finished in self.passed..=self.failed.unwrap_or(all) {
            let mut some: Vec<Vec<Option<SeenTx>>> = vec![Vec::new()];
            for (at, tx) in self.transactions.iter().enumerate().skip(finished) {
                let seen = |is_readable, is_whole| Some(SeenTx { number: tx.number, is_readable, is_whole });
                let options = match () {
                    () if at < self.acknowledged => vec![seen(true, true)],
                    () if at < self.returned => vec![seen(true, true), seen(true, false)],
                    // Its entries may not all be there, and only then the window need not list it.
                    () => vec![seen(true, true), seen(true, false), seen(false, false), None],
                };
                some = (some.iter())
                    .flat_map(|before| options.iter().map(|one| [&before[..], &[*one]].concat()))
                    .collect();
            }
            for is_unreadable in [false, true].into_iter().take(1 + usize::from(self.returned < all)) {
                choices.extend(some.iter().map(|left| Choice { finished, is_unreadable, left: left.clone() }));
            }
        }
        choices
    }
}

/// So many lives after crashes have transactions of their own.
const LIVES: u64 = 8;

impl Subject for OnQueues {
    type Open = OpenDevice;

    const OBSERVES_IN_RECOVERY: bool = false;

    fn name(&self) -> String {
        format!("ccnvme:{}", self.program.name)
    }

    fn rules(&self) -> String {
        format!("ccnvme {} {:?}", self.program.name, self.mistake)
    }

    fn begin(&self, setting: &Setting) -> Beginning {
        let state = state(&[Value::Of(0); BLOCKS as usize], &None);
        Beginning { world: World::new(setting.sim.clone()), state, is_made: true }
    }

    fn perform(&self, setting: &Setting, recorder: &mut Recorder) -> Result<(), String> {
        let zeros = vec![Value::Of(0); BLOCKS as usize];
        let words = |error: Error| error.to_string();
        let mut oracle = Oracle::new(self, setting, 1, zeros);
        let begun = oracle.may_leave();
        let op = recorder.begin("start", &begun[0]);
        let device = self.device(&recorder.world, setting).map_err(words)?;
        let mut open = self.open_device(device.clone(), setting).map_err(words)?;
        open.start(1).map_err(words)?;
        if let Some((nth, _)) = self.program.failing {
            device.set_faults(Faults { fail: Some((nth, Status::WRITE_FAULT)), ..Faults::default() });
        }
        recorder.end(op);
        let all = 0..self.program.queues;
        let lease_all = |open: &OpenDevice| all.clone().map(|queue| open.lease(queue)).collect::<Result<Vec<_>, _>>();
        let mut leases = lease_all(&open)?;
        let mut tickets: Vec<Option<Ticket>> = vec![None; leases.len()];
        let mut transactions = self.transactions().into_iter();
        for step in self.program.steps {
            let before = oracle.may_leave();
            let label = match step {
                Step::Commit(queue, blocks) => format!("a commit of {blocks:?} on queue {queue}"),
                Step::Wait(queue) => format!("a wait for queue {queue}"),
                Step::Poll(queue) => format!("a look at queue {queue}"),
                Step::Fails(queue) => format!("a wait for queue {queue}, which fails"),
                Step::Again => "a new life".into(),
            };
            let op = recorder.begin(label, &before[0]);
            recorder.may_leave(before.clone());
            // What a crash may leave until the operation has returned.
            let mut until = Vec::new();
            match *step {
                Step::Commit(queue, _) => {
                    let tx = transactions.next().expect("one for each commit");
                    let lease = &mut leases[usize::from(queue)];
                    tickets[usize::from(queue)] = Some(open.commit(lease, tx).map_err(words)?);
                    oracle.commit(tx);
                    until = oracle.may_leave();
                    oracle.is_committed(queue);
                }
                Step::Wait(queue) => {
                    let ticket = tickets[usize::from(queue)].expect("something was committed");
                    open.controller.wait(ticket).map_err(words)?;
                    oracle.wait(queue);
                }
                Step::Fails(queue) => {
                    let ticket = tickets[usize::from(queue)].expect("something was committed");
                    if open.controller.wait(ticket).is_ok() {
                        return Err("a transaction is acknowledged behind one that has failed".into());
                    }
                }
                Step::Poll(queue) => _ = leases[usize::from(queue)].poll().map_err(words)?,
                Step::Again => {
                    open.reports()?;
                    leases.clear();
                    // The device goes on with what is in flight, until it is reset. So long its pages stay.
                    let next = self.open_device(device.clone(), setting).map_err(words)?;
                    drop(std::mem::replace(&mut open, next));
                    let (found, windows) = self.look(&open)?;
                    let known = Oracle { is_lost: false, queues: oracle.queues.clone(), ..oracle };
                    if !known.may_leave().contains(&Promise::new(state(&found, &windows))) {
                        return Err(format!("a reset has left {found:?}, and as windows {windows:?}"));
                    }
                    oracle = Oracle { is_lost: oracle.is_lost, ..known };
                    let values = open.values()?;
                    let (unknown, _) = self.specified(values.clone(), None, false);
                    open.start(oracle.incarnation + 1).map_err(words)?;
                    oracle = Oracle::new(self, setting, oracle.incarnation + 1, values);
                    until = [before, vec![Promise::new(state(&unknown, &None))]].concat();
                    leases = lease_all(&open)?;
                }
            }
            recorder.end(op);
            let leaves = oracle.may_leave();
            recorder.leaves(op, &leaves[0]);
            recorder.may_leave([until, leaves.clone()].concat());
            let op = recorder.begin("it has returned", &leaves[0]);
            recorder.end(op);
            recorder.may_leave(leaves);
        }
        open.reports()
    }

    fn check(&self, _world: &Arc<World>) -> Result<(), String> {
        Ok(())
    }

    fn open(&self, world: &Arc<World>, setting: &Setting) -> Result<OpenDevice, NotOpened> {
        let open = || {
            let device = self.device(world, setting)?;
            if setting.name.starts_with("ccnvme-lost") {
                match world.now() % 2 {
                    0 => device.set_faults(Faults { region: 1, ..Faults::default() }),
                    _ => device.lose_region(),
                }
            }
            self.open_device(device, setting)
        };
        open().map_err(|error: Error| NotOpened::Failed(error.to_string()))
    }

    fn observe(&self, _world: &Arc<World>, open: &OpenDevice) -> Result<State, String> {
        let (values, windows) = self.look(open)?;
        Ok(state(&values, &windows))
    }

    /// Blocks that are torn get zeros; a new life begins, with two transactions.
    fn go_on(&self, life: &mut Life, open: &OpenDevice, before: Promise) -> Result<Promise, String> {
        let words = |error: Error| error.to_string();
        let (mut values, listed) = (open.values()?, self.listed(open)?);
        let torn: Vec<usize> = (0..values.len()).filter(|block| values[*block] == Value::Torn).collect();
        // The zeros are not durable before the next life begins.
        let with_zeros = |set: u32, listed: Option<&(u64, Vec<Seen>)>| {
            let mut values = values.clone();
            (torn.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1))
                .for_each(|(_, block)| values[*block] = Value::Of(0));
            let (values, windows) = self.specified(values, listed, false);
            Promise::new(state(&values, &windows))
        };
        let mut mended: Vec<Promise> = vec![before];
        for set in 0..1u32 << torn.len() {
            let promise = with_zeros(set, listed.as_ref());
            if !mended.contains(&promise) {
                mended.push(promise);
            }
        }
        let unknown = with_zeros((1 << torn.len()) - 1, None);
        life.operation("torn blocks get zeros", &mended[0], |_| {
            for block in &torn {
                let page = open.controller.page().map_err(words)?;
                fill(&page, 0);
                open.controller.write(Lba(*block as u64), &[page]).map_err(words)?;
            }
            Ok(())
        })?;
        life.may_leave(mended.clone());
        torn.iter().for_each(|block| values[*block] = Value::Of(0));
        // By now the verdict of the upper layer is durable; this one needs none.
        let newest = values.iter().filter_map(|value| match value {
            Value::Of(number) if *number >= AGAIN => Some(*number),
            _ => None,
        });
        let first = newest.max().map_or(AGAIN, |newest| newest / 2 * 2 + 2);
        let incarnation = listed.as_ref().map_or(100, |(incarnation, _)| incarnation + 1);
        let mut oracle = Oracle::new(self, &open.setting, incarnation, values);
        let begun = oracle.may_leave();
        life.operation("a new life", &begun[0], |_| open.start(incarnation).map_err(words))?;
        life.may_leave([mended, vec![unknown], begun.clone()].concat());
        life.operation("it has begun", &begun[0], |_| Ok(()))?;
        let transactions = self.transactions();
        for tx in transactions.into_iter().filter(|tx| (first..first + 2).contains(&tx.number)) {
            let mut lease = open.lease(tx.queue)?;
            let promise = oracle.may_leave()[0].clone();
            let ticket =
                life.operation("a new transaction", &promise, |_| open.commit(&mut lease, tx).map_err(words))?;
            oracle.commit(tx);
            life.may_leave(oracle.may_leave());
            oracle.is_committed(tx.queue);
            life.operation("it has returned", &oracle.may_leave()[0], |_| Ok(()))?;
            life.may_leave(oracle.may_leave());
            let promise = oracle.may_leave()[0].clone();
            life.operation("a wait for it", &promise, |_| open.controller.wait(ticket).map_err(words))?;
            oracle.wait(tx.queue);
            life.may_leave(oracle.may_leave());
        }
        open.reports()?;
        Ok(oracle.closed())
    }

    fn close(&self, open: OpenDevice) -> Result<(), String> {
        open.controller.close().map_err(|error| error.to_string())
    }

    fn at_rest(&self, _world: &Arc<World>, _state: &State) -> Result<(), String> {
        Ok(())
    }

    fn was_closed(&self, open: &OpenDevice) -> Result<(), String> {
        match open.controller.window() {
            Window::Known { queues, .. } if queues.iter().any(|queue| !queue.transactions.is_empty()) => {
                Err(format!("after a close there are unfinished transactions: {queues:?}"))
            }
            Window::Unknown(why) if !open.setting.name.starts_with("ccnvme-lost") => {
                Err(format!("after a close the window is unknown: {why}"))
            }
            _ => Ok(()),
        }
    }

    fn seen_beside(&self, _run: &Run) -> Option<(u64, String)> {
        None
    }
}
