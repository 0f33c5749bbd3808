//! Transactions of blocks, as a subject: the contract in the simulator, the log of whole blocks, and a flash disk.
//!
//! A file stands for each block. Programs are of steps ([`Step`]), with the rules T1 to T12 of the crate
//! `wholly-blocks` for a model. What a crash may leave:
//!
//! - of what is ordered and not durable: any prefix, or any set that is closed under dependency, as the guarantees say
//!   (T1);
//! - of what runs: nothing (T5), but what a fresh write goes to is unspecified until the transaction is durable, and so
//!   is a block that was discarded, where discarded blocks are not zeros (T11). Then any version of the block may be
//!   there that was ever written, zeros, or a torn one.
//! - of plain writes that are not flushed: each block by itself one of the new versions, or the one before (T12).
//!
//! Nothing of a run comes from the machine. Each write puts another page.

mod drawn;
pub(crate) mod journal;
mod programs;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use wholly_blocks::batch::Batch;
use wholly_blocks::log::{self, LogDevice, LogOptions, RingSeed};
use wholly_blocks::multi_queue::{self, GoingHome, MultiQueue};
use wholly_blocks::xftl::{self, Device, Flash, Geometry, OverRegion, SLOT, Times};
use wholly_blocks::{BLOCK, Lba, Order, Page, Placement, Run as Blocks, Sequence, Tag, TxBlocks, TxDevice, Txid};
use wholly_error::Error;
use wholly_media::Site;
use wholly_nvme::model::Model as Controller;
use wholly_sim::{BlockRules, Medium, SimConfig, World};

use crate::life::Life;
use crate::run::{Recorder, Run};
use crate::setting::Setting;
use crate::subject::{Beginning, NotOpened, Subject};
use crate::tree::{FILE_MODE, Object, State};
use crate::workload::Promise;
pub use drawn::drawn;
pub use journal::PAPER;
pub use programs::{ALL, Program, Step};

/// Where programs write, order and wait.
const PROGRAM: Site = Site("blocks.program");
const ORDER: Site = Site("blocks.order");
const OPEN: Site = Site("blocks.open");
const RAISE: Site = Site("blocks.raise");

/// Pages that a program may admit.
const ROOM: u64 = 8;

/// Blocks of the log's ring, and of its header.
const LOG: u64 = 40;

/// Which flash disk it is.
const FLASH_ID: [u8; 16] = *b"explored flash..";

/// What is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the contract allows.
    Contract,
    /// The log of whole blocks.
    Log,
    /// The simulated flash disk.
    Xftl,
    /// The multi-queue journal.
    MultiQueue,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Contract, Kind::Log, Kind::Xftl, Kind::MultiQueue];

    /// The one with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name, behind `blocks:`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Contract => "contract",
            Kind::Log => "log",
            Kind::Xftl => "xftl",
            Kind::MultiQueue => "multi_queue",
        }
    }

    /// The worlds in which it is explored.
    pub fn worlds(self) -> &'static [&'static str] {
        match self {
            Kind::Contract => &["blocks", "blocks-dependent"],
            Kind::Log => &["disk", "disk-torn", "pmem"],
            Kind::Xftl => &["flash", "flash-torn"],
            Kind::MultiQueue => &const { names(&journal::WORLDS) },
        }
    }

    /// Whether a crash keeps of what is ordered a set that is closed under dependency.
    fn is_dependent(self) -> bool {
        matches!(self, Kind::Contract | Kind::MultiQueue)
    }

    /// Whether blocks at home are written without more than the medium promises: what is discarded is unspecified, and
    /// plain writes tear.
    fn is_bare(self) -> bool {
        matches!(self, Kind::Log | Kind::MultiQueue)
    }

    /// The world with this name.
    pub fn setting(self, name: &str) -> Option<Setting> {
        let rules = |order| BlockRules { order, most_overwrites: None, room: ROOM };
        let flash = |tearing| SimConfig { log: Medium::Disk { sector: SLOT as u32 }, tearing, ..SimConfig::disk() };
        let (base, broken) = name.split_once('@').map_or((name, None), |(base, broken)| (base, Some(broken)));
        let mut sim = match (self, base) {
            (Kind::Contract, "blocks") => SimConfig::blocks(1, rules(Order::Total)),
            (Kind::Contract, "blocks-dependent") => SimConfig::blocks(1, rules(Order::Dependent)),
            (Kind::Log, _) => return Setting::find(name),
            (Kind::MultiQueue, _) => return journal::setting(name),
            (Kind::Xftl, "flash") => flash(false),
            (Kind::Xftl, "flash-torn") => flash(true),
            _ => return None,
        };
        if let Some(broken) = broken {
            sim.mutations.push(crate::setting::parse_mutation(broken)?);
        }
        Some(Setting { name: name.into(), sim: Arc::new(sim) })
    }

    /// The sites that it passes.
    pub fn sites(self) -> Vec<Site> {
        match self {
            Kind::Contract => Vec::new(),
            Kind::Log => log::SITES.to_vec(),
            Kind::Xftl => xftl::site::ALL.iter().copied().filter(|site| !site.0.starts_with("xftl.format")).collect(),
            Kind::MultiQueue => {
                // Where nothing is stored by itself.
                let is_call = |site: &Site| ["mq.room", "mq.start", "mq.close"].contains(&site.0);
                multi_queue::SITES.iter().copied().filter(|site| !is_call(site)).collect()
            }
        }
    }
}

/// What a world is.
pub fn about(world: &str) -> &'static str {
    match world {
        "blocks" => "transactions of blocks, of which a crash keeps a prefix",
        "blocks-dependent" => "transactions of blocks, of which a crash keeps a set that is closed under dependency",
        "flash" => "a flash file, whose slots of 8 KiB are programmed wholly or not at all",
        "flash-torn" => "the same, and slots tear",
        world if journal::WORLDS.iter().any(|(name, _)| *name == world) => {
            journal::WORLDS.iter().find(|(name, _)| *name == world).map_or("", |(_, about)| about)
        }
        other => crate::setting::ALL.iter().find(|(name, _)| *name == other).map_or("", |(_, about)| about),
    }
}

/// A program on such blocks.
#[derive(Clone, Debug)]
pub struct OnBlocks {
    /// On which.
    pub kind: Kind,
    /// The program.
    pub program: &'static Program,
}

/// The programs of a kind with these names: one, `by-hand` for all that are written by hand, or `random-3..9` for those
/// that are drawn from these seeds.
pub fn several(kind: Kind, name: &str) -> Option<Vec<OnBlocks>> {
    let on = |program| OnBlocks { kind, program };
    if let Some((from, to)) = name.strip_prefix("random-").and_then(|seeds| seeds.split_once("..")) {
        let seeds = from.parse().ok()?..to.parse().ok()?;
        return Some(seeds.map(|seed| on(drawn(kind, seed))).collect());
    }
    match name {
        "by-hand" => Some(programs_of(kind).map(on).collect()),
        name => named(kind, name).map(|program| vec![on(program)]),
    }
}

/// The program with this name: one that is written by hand, or `random-SEED`.
pub fn named(kind: Kind, name: &str) -> Option<&'static Program> {
    match name.strip_prefix("random-") {
        Some(seed) => seed.parse().ok().map(|seed| drawn(kind, seed)),
        None => programs_of(kind).find(|program| program.name == name),
    }
}

/// The programs of a kind that are written by hand.
pub fn programs_of(kind: Kind) -> impl Iterator<Item = &'static Program> {
    ALL.iter().filter(move |program| program.on.contains(&kind))
}

/// Blocks that are open. If they are dropped, the process dies.
pub struct OpenBlocks {
    blocks: Arc<dyn TxBlocks>,
    /// The same, if it is the journal.
    journal: Option<Arc<MultiQueue>>,
    model: Option<Arc<Controller>>,
    program: &'static Program,
}

const fn names<const N: usize>(worlds: &[(&'static str, &str); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < N {
        names[i] = worlds[i].0;
        i += 1;
    }
    names
}

fn geometry(program: &Program) -> (Geometry, xftl::Config) {
    let (blocks, fills) = (program.blocks as u32, program.steps.iter().any(|step| matches!(step, Step::Fill(_))));
    let pages = if blocks > 64 { 16 } else { 4 };
    let config = xftl::Config {
        logical: blocks,
        // What fills it is to make it collect.
        data_blocks: if fills { blocks.div_ceil(pages) + 3 } else { (3 * blocks).div_ceil(pages) + 4 },
        reserve: 1,
        // Room for some versions more, with a chain each.
        chain_blocks: if fills && blocks > 12 { 2 } else { 1 },
        buffer: 1,
        interval: u32::MAX,
        most_pages: None,
        times: Times { program_ns: 1_000_000, read_ns: 1_000, erase_ns: 1 },
        name: *b"explored\0\0\0\0\0\0\0\0",
    };
    (Geometry { channels: 1, blocks: config.blocks(1, pages), pages }, config)
}

/// The block behind those of the program has the incarnation; behind it is the log.
fn area(blocks: u64) -> Blocks {
    Blocks { start: Lba(blocks + 1), count: LOG }
}

impl OnBlocks {
    fn config(&self, setting: &Setting) -> Arc<SimConfig> {
        let blocks = self.program.blocks;
        let log_len = match self.kind {
            Kind::Contract => blocks * BLOCK as u64,
            Kind::Log => (area(blocks).start.0 + LOG) * BLOCK as u64,
            Kind::Xftl => OverRegion::bytes(&geometry(self.program).0),
            Kind::MultiQueue => {
                let log = journal::log(self.program);
                (log.start.0 + log.count) * BLOCK as u64
            }
        };
        Arc::new(SimConfig { log_len, ..(*setting.sim).clone() })
    }

    fn open_blocks(&self, world: &Arc<World>, setting: &Setting, is_after_crash: bool) -> Result<OpenBlocks, Error> {
        let (program, count) = (self.program, self.program.blocks);
        let device: Arc<dyn TxDevice> = match self.kind {
            Kind::Contract => {
                let blocks = world.blocks();
                // What a process that died has written plainly is served from now on.
                blocks.plain().fence(OPEN)?;
                return Ok(OpenBlocks { blocks, journal: None, model: None, program });
            }
            Kind::MultiQueue => {
                let (journal, model) = journal::open(world, program, setting, is_after_crash)?;
                let journal = Arc::new(journal);
                return Ok(OpenBlocks { blocks: journal.clone(), journal: Some(journal), model, program });
            }
            Kind::Log => Arc::new(open_log(world, count)?),
            Kind::Xftl => {
                let flash: Arc<dyn Flash> = OverRegion::open(world.log())?;
                let device = Device::open(flash)?;
                if let Some(damage) = device.damage().first() {
                    return Err(Error::corrupt("a flash disk", damage.to_string()));
                }
                Arc::new(device)
            }
        };
        let blocks = Arc::new(Batch::new(device, ROOM));
        Ok(OpenBlocks { blocks, journal: None, model: None, program })
    }
}

/// Recovers the log, raises the incarnation, and opens it.
fn open_log(world: &Arc<World>, blocks: u64) -> Result<LogDevice, Error> {
    let (region, at) = (world.log(), Lba(blocks).byte());
    let mut sector = vec![0; region.guarantees().block.max(512) as usize];
    region.read(at, &mut sector)?;
    let read = |sector: &[u8]| u64::from_le_bytes(std::array::from_fn(|i| sector[i]));
    let incarnation = read(&sector);
    log::recover(&*region, area(blocks), RingSeed::new(incarnation))?;
    sector[..8].copy_from_slice(&(incarnation + 1).to_le_bytes());
    // Persistent memory keeps a word whole.
    region.write_through(RAISE, at, &sector[..if region.guarantees().is_pmem() { 8 } else { sector.len() }])?;
    let next = incarnation + 1;
    let options = LogOptions { memory: 16, ..LogOptions::default() };
    Ok(LogDevice::new(region, blocks, area(blocks), (RingSeed::new(next), next), options))
}

/// A page that says what it is; 0 is zeros.
fn page(value: u64) -> Page {
    let mut page = Page::zeros();
    page.put(0, &value.to_le_bytes());
    page.put(BLOCK - 8, &value.rotate_left(17).to_le_bytes());
    page
}

/// What a block has that is no page of a program.
const TORN: u64 = u64::MAX;

fn value_of(bytes: &[u8; BLOCK]) -> u64 {
    let value = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
    if bytes[..] == page(value)[..] { value } else { TORN }
}

fn state(values: &[u64]) -> State {
    let mut state = State::default();
    for (block, value) in values.iter().enumerate() {
        state.put(&format!("{block:03}"), Object::file(value.to_le_bytes(), FILE_MODE));
    }
    state
}

impl OpenBlocks {
    fn values(&self) -> Result<Vec<u64>, String> {
        let value = |block: u64| {
            let mut bytes = [0; BLOCK];
            self.blocks.read(None, Lba(block), &mut bytes).map_err(|error| format!("block {block}: {error}"))?;
            Ok(value_of(&bytes))
        };
        let first = value(0)?;
        let is_shown = |block: &u64| first != 0 || *block < self.program.behind;
        (0..self.program.blocks).map(|block| if is_shown(&block) { value(block) } else { Ok(0) }).collect()
    }

    /// What was done to a device that nobody may do.
    fn reports(&self) -> Result<(), String> {
        let reports = self.model.as_ref().map(|model| model.reports()).unwrap_or_default();
        reports.first().map_or(Ok(()), |report| Err(report.clone()))
    }
}

/// What a block has, as far as that is specified.
type Value = Option<u64>;
type Change = BTreeMap<u64, Value>;

/// A transaction that is ordered.
struct Pending {
    number: u64,
    change: Change,
    /// The number of one that it was told to come after.
    after: Option<u64>,
}

/// What is to be there.
struct Model {
    order: Order,
    zeroes_discarded: bool,
    /// See [`Program::behind`].
    behind: usize,
    durable: Vec<Value>,
    /// What transactions change that are ordered and not durable, in their order.
    pending: Vec<Pending>,
    ordered: u64,
    running: HashMap<u8, (Txid, Change)>,
    /// Fresh blocks of running transactions, and of those that are not durable.
    fresh: BTreeSet<u64>,
    /// Plain writes that are not durable, of each block in their order.
    plain: BTreeMap<u64, Vec<u64>>,
    /// All that was ever written to a block.
    ever: Vec<BTreeSet<u64>>,
}

impl Model {
    fn new(open: &OpenBlocks, values: &[u64]) -> Model {
        let guarantees = open.blocks.guarantees();
        Model {
            order: guarantees.order,
            zeroes_discarded: guarantees.zeroes_discarded,
            behind: usize::try_from(open.program.behind).unwrap_or(usize::MAX),
            durable: values.iter().copied().map(Some).collect(),
            pending: Vec::new(),
            ordered: 0,
            running: HashMap::new(),
            fresh: BTreeSet::new(),
            plain: BTreeMap::new(),
            ever: values.iter().map(|value| BTreeSet::from([*value, 0, TORN])).collect(),
        }
    }

    fn discarded(&self) -> Value {
        self.zeroes_discarded.then_some(0)
    }

    /// The sets of pending transactions that may survive.
    fn survive(&self) -> Vec<Vec<usize>> {
        let all = self.pending.len();
        if self.order == Order::Total {
            return (0..=all).map(|count| (0..count).collect()).collect();
        }
        let depends = |later: usize, on: usize| self.pending[later].depends(&self.pending[on]);
        let is_closed =
            |set: u32| (0..all).all(|i| set >> i & 1 == 0 || (0..i).all(|on| set >> on & 1 == 1 || !depends(i, on)));
        (0..1u32 << all)
            .filter(|set| is_closed(*set))
            .map(|set| (0..all).filter(|i| set >> i & 1 == 1).collect())
            .collect()
    }

    /// What plain writes have made that are not durable.
    fn plainly(&self) -> Change {
        self.plain.iter().map(|(block, values)| (*block, values.last().copied())).collect()
    }

    /// What everybody reads, where it is specified.
    fn latest(&self) -> Vec<Value> {
        let mut latest = self.durable.clone();
        for (block, value) in self.pending.iter().map(|tx| &tx.change).chain([&self.plainly()]).flatten() {
            latest[*block as usize] = *value;
        }
        latest
    }

    /// What a crash may leave.
    fn may_leave(&self) -> Vec<Promise> {
        let mut all: BTreeSet<Vec<u64>> = BTreeSet::new();
        for set in self.survive() {
            let mut values = self.durable.clone();
            set.iter()
                .flat_map(|i| &self.pending[*i].change)
                .for_each(|(block, value)| values[*block as usize] = *value);
            // What a set does not have of fresh blocks is unspecified.
            let kept: BTreeSet<u64> = set.iter().flat_map(|i| self.pending[*i].change.keys().copied()).collect();
            self.fresh.difference(&kept).for_each(|block| values[*block as usize] = None);
            if values[0] == Some(0) {
                values.iter_mut().skip(self.behind).for_each(|value| *value = Some(0));
            }
            self.expand(&values, &mut all);
        }
        all.into_iter().map(|values| Promise::new(state(&values))).collect()
    }

    fn expand(&self, values: &[Value], into: &mut BTreeSet<Vec<u64>>) {
        let mut some: Vec<Vec<u64>> = vec![Vec::new()];
        for (block, value) in values.iter().enumerate() {
            let mut choices: Vec<u64> = match value {
                Some(value) => vec![*value],
                None => self.ever[block].iter().copied().collect(),
            };
            if let (Some(plain), Some(_)) = (self.plain.get(&(block as u64)), value) {
                choices.extend(plain);
            }
            some =
                some.iter().flat_map(|begin| choices.iter().map(|choice| [&begin[..], &[*choice]].concat())).collect();
        }
        into.extend(some);
    }

    /// All that was ordered is durable.
    fn all_is_durable(&mut self) {
        let all: Vec<u64> = self.pending.iter().map(|tx| tx.number).collect();
        all.into_iter().for_each(|number| self.is_durable(number));
    }

    /// What was ordered as this is durable, with all that it depends on, and what was written plainly before.
    fn is_durable(&mut self, number: u64) {
        let (mut needed, mut left): (Vec<Pending>, _) = (Vec::new(), Vec::new());
        let plain = self.plainly();
        self.plain.clear();
        for tx in std::mem::take(&mut self.pending).into_iter().rev() {
            let is_before = tx.number < number && self.order == Order::Total;
            let is_needed = tx.number == number || is_before || needed.iter().any(|later| later.depends(&tx));
            if is_needed { needed.push(tx) } else { left.push(tx) }
        }
        left.reverse();
        self.pending = left;
        let ended = needed.into_iter().rev().map(|tx| tx.change).chain([plain]).collect::<Vec<_>>();
        ended.iter().flatten().for_each(|(block, value)| self.durable[*block as usize] = *value);
        let changes = self.running.values().map(|(_, change)| change).chain(self.pending.iter().map(|tx| &tx.change));
        let held: BTreeSet<u64> = changes.flat_map(|change| change.keys().copied()).collect();
        self.fresh.retain(|block| held.contains(block));
    }
}

impl Pending {
    /// Whether it depends on an earlier one.
    fn depends(&self, on: &Pending) -> bool {
        self.after == Some(on.number) || self.change.keys().any(|block| on.change.contains_key(block))
    }
}

/// A program that runs.
struct Running<'r> {
    recorder: &'r mut Recorder,
    open: OpenBlocks,
    model: Model,
    next: u64,
    last: Sequence,
    /// What was ordered: by letter, its place, and its number in the model.
    ordered: HashMap<u8, (Sequence, u64)>,
    home: Option<GoingHome>,
}

impl Running<'_> {
    /// Records a call. Afterwards the open blocks serve what the model says.
    fn operation(
        &mut self,
        label: String,
        call: impl FnOnce(&dyn TxBlocks) -> Result<(), Error>,
        after: impl FnOnce(&mut Model),
    ) -> Result<(), String> {
        let before = self.model.may_leave();
        let served = state(&self.open.values()?);
        let op = self.recorder.begin(&*label, &served);
        self.recorder.may_leave(before);
        call(&*self.open.blocks).map_err(|error| format!("{label}: {error}"))?;
        after(&mut self.model);
        self.recorder.end(op);
        let values = self.open.values()?;
        let latest = self.model.latest();
        let wrong = (0..values.len()).find(|i| latest[*i].is_some_and(|value| value != values[*i]));
        if let Some(block) = wrong.filter(|block| !self.model.fresh.contains(&(*block as u64))) {
            return Err(format!("{label}: block {block} has {} instead of {:?}", values[block], latest[block]));
        }
        self.recorder.leaves(op, &state(&values));
        let leaves = self.model.may_leave();
        self.recorder.may_leave(leaves);
        Ok(())
    }

    /// `is_loose`: what the block has from now on is unspecified, until the transaction is durable.
    fn put(&mut self, tx: u8, block: u64, how: Placement, is_loose: bool) -> Result<(), String> {
        self.next += 1;
        let value = self.next;
        let txid = self.model.running[&tx].0;
        // Whatever becomes of the call, it may be on the medium.
        self.model.ever[block as usize].insert(value);
        if is_loose {
            self.model.fresh.insert(block);
        }
        let label = format!("{} writes block {block}", tx as char);
        let write = |blocks: &dyn TxBlocks| blocks.write(PROGRAM, txid, Lba(block), page(value), how, Tag::Data);
        self.operation(label, write, |model| {
            model.running.get_mut(&tx).expect("it runs").1.insert(block, Some(value));
        })
    }

    /// Orders transactions as one, perhaps after another one that they do not share a block with.
    fn order(&mut self, txs: &'static [u8], after: Option<u8>) -> Result<(), String> {
        let numbers: Vec<Txid> = txs.iter().map(|tx| self.model.running[tx].0).collect();
        let (mut sequence, label) = (Sequence::default(), format!("{} are ordered", letters(txs)));
        let after = after.map(|other| self.ordered[&other]);
        let named: Vec<Sequence> = after.iter().map(|(sequence, _)| *sequence).collect();
        let order = |blocks: &dyn TxBlocks| {
            sequence = blocks.order(ORDER, &numbers, &named)?;
            Ok(())
        };
        self.operation(label, order, |model| {
            let mut change = Change::new();
            txs.iter().for_each(|tx| change.extend(model.running.remove(tx).expect("it runs").1));
            model.ordered += 1;
            model.pending.push(Pending { number: model.ordered, change, after: after.map(|(_, number)| number) });
        })?;
        self.last = sequence;
        txs.iter().for_each(|tx| _ = self.ordered.insert(*tx, (sequence, self.model.ordered)));
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Begin(tx) => {
                let txid = self.open.blocks.begin().map_err(|error| error.to_string())?;
                self.model.running.insert(tx, (txid, Change::new()));
                Ok(())
            }
            Step::Write(tx, block) => self.put(tx, block, Placement::Overwrite, false),
            Step::Fresh(tx, block) => self.put(tx, block, Placement::Fresh, true),
            Step::Reuse(tx, block) => self.put(tx, block, Placement::Fresh, false),
            Step::Freshes(tx, from, count) => {
                (from..from + count).try_for_each(|block| self.put(tx, block, Placement::Fresh, true))
            }
            Step::Writes(tx, from, count) => {
                (from..from + count).try_for_each(|block| self.put(tx, block, Placement::Overwrite, false))
            }
            Step::Discard(tx, from, count) => {
                let txid = self.model.running[&tx].0;
                let run = Blocks { start: Lba(from), count };
                let discard = |blocks: &dyn TxBlocks| blocks.discard(PROGRAM, txid, run);
                self.operation(format!("{} discards {from}+{count}", tx as char), discard, |model| {
                    let value = model.discarded();
                    let change = &mut model.running.get_mut(&tx).expect("it runs").1;
                    change.extend((from..from + count).map(|block| (block, value)));
                })
            }
            Step::DiscardEach(tx, from, count) => {
                (0..count).try_for_each(|i| self.step(&Step::Discard(tx, from + 2 * i, 1)))
            }
            Step::Admit(tx, pages) => {
                let txid = self.model.running[&tx].0;
                self.operation(format!("{} is admitted", tx as char), |blocks| blocks.admit(txid, pages), |_| ())
            }
            Step::Lend(tx, from, count) => {
                if !self.open.blocks.guarantees().takes_lent {
                    return Ok(());
                }
                let txid = self.model.running[&tx].0;
                let run = Blocks { start: Lba(from), count };
                self.model.fresh.extend(from..from + count);
                self.operation(
                    format!("{} is lent {from}+{count}", tx as char),
                    |blocks| blocks.lend(txid, run),
                    |model| {
                        (from..from + count).for_each(|block| model.durable[block as usize] = None);
                    },
                )
            }
            Step::Abort(tx) => {
                let (txid, change) = self.model.running.remove(&tx).expect("it runs");
                for block in change.keys().filter(|block| self.model.fresh.contains(block)) {
                    self.model.durable[*block as usize] = None;
                }
                self.operation(format!("{} is aborted", tx as char), |blocks| blocks.abort(PROGRAM, txid), |_| ())
            }
            Step::After(txs, other) => self.order(txs, Some(other)),
            Step::Order(txs) => self.order(txs, None),
            Step::WaitFor(tx) => {
                let (sequence, number) = self.ordered[&tx];
                let label = format!("wait for {}", tx as char);
                self.operation(label, |blocks| blocks.wait(PROGRAM, sequence), |model| model.is_durable(number))
            }
            Step::Home => {
                let journal = self.open.journal.clone();
                let ordered: Vec<Sequence> = self.ordered.values().map(|(sequence, _)| *sequence).collect();
                let home = |blocks: &dyn TxBlocks| match journal {
                    Some(journal) => journal.bring_home(),
                    None => ordered.into_iter().try_for_each(|sequence| blocks.wait(PROGRAM, sequence)),
                };
                self.operation("all goes home".into(), home, Model::all_is_durable)
            }
            Step::BeginHome => {
                let (journal, mut begun) = (self.open.journal.clone(), None);
                let begin = |_: &dyn TxBlocks| {
                    begun = journal.map(|journal| journal.begin_to_bring_home()).transpose()?;
                    Ok(())
                };
                self.operation("what is durable begins to go home".into(), begin, |_| ())?;
                self.home = begun;
                Ok(())
            }
            Step::EndHome => {
                let (journal, begun) = (self.open.journal.clone(), self.home.take());
                let end = |_: &dyn TxBlocks| match (journal, begun) {
                    (Some(journal), Some(begun)) => journal.end_to_bring_home(begun),
                    _ => Ok(()),
                };
                self.operation("it is home".into(), end, |_| ())
            }
            Step::Send => {
                let last = self.last;
                self.operation("what is ordered is sent".into(), |blocks| blocks.send(PROGRAM, last), |_| ())
            }
            Step::Wait => {
                let last = self.last;
                let number = self.model.ordered;
                self.operation("wait".into(), |blocks| blocks.wait(PROGRAM, last), |model| model.is_durable(number))
            }
            Step::Commit(txs) => {
                self.step(&Step::Order(txs))?;
                self.step(&Step::Wait)
            }
            Step::Pairs(pairs) => pairs.iter().try_for_each(|&(one, other)| {
                let steps = [Step::Begin(b'z'), Step::Write(b'z', one), Step::Write(b'z', other), Step::Commit(b"z")];
                steps.iter().try_for_each(|step| self.step(step))
            }),
            Step::Plain(block) => {
                self.next += 1;
                let value = self.next;
                self.model.ever[block as usize].insert(value);
                self.model.plain.entry(block).or_default().push(value);
                let write =
                    |blocks: &dyn TxBlocks| Ok(blocks.plain().write(PROGRAM, Lba(block).byte(), &page(value)[..])?);
                self.operation(format!("block {block} is written plainly"), write, |_| ())
            }
            Step::Flush => {
                let flush = |blocks: &dyn TxBlocks| Ok(blocks.plain().fence(PROGRAM)?);
                self.operation("flush".into(), flush, |model| {
                    let plain = model.plainly();
                    model.plain.clear();
                    plain.iter().for_each(|(block, value)| model.durable[*block as usize] = *value);
                })
            }
            Step::Fill(tx) => {
                let blocks = self.open.program.blocks;
                for block in 0..blocks {
                    let (txid, value) = (self.model.running[&tx].0, self.next + 1);
                    self.model.ever[block as usize].insert(value);
                    self.next += 1;
                    let mut is_full = false;
                    let write = |blocks: &dyn TxBlocks| {
                        let how = Placement::Overwrite;
                        match blocks.write(PROGRAM, txid, Lba(block), page(value), how, Tag::Data) {
                            Err(Error::NoSpace(_)) => is_full = true,
                            done => done?,
                        }
                        Ok(())
                    };
                    self.operation(format!("{} writes block {block}, if it can", tx as char), write, |_| ())?;
                    if is_full {
                        break;
                    }
                    self.model.running.get_mut(&tx).expect("it runs").1.insert(block, Some(value));
                }
                Ok(())
            }
        }
    }
}

fn letters(txs: &[u8]) -> String {
    txs.iter().map(|tx| char::from(*tx).to_string()).collect::<Vec<_>>().join(", ")
}

impl Subject for OnBlocks {
    type Open = OpenBlocks;

    const OBSERVES_IN_RECOVERY: bool = false;

    fn name(&self) -> String {
        format!("blocks:{}:{}", self.kind.name(), self.program.name)
    }

    fn rules(&self) -> String {
        format!("blocks {} {}", self.kind.name(), self.program.blocks)
    }

    fn begin(&self, setting: &Setting) -> Beginning {
        let sim = self.config(setting);
        let sound = Arc::new(SimConfig { mutations: Vec::new(), ..(*sim).clone() });
        let world = World::new(sound);
        if self.kind == Kind::MultiQueue {
            let made = journal::format(&world, self.program, setting);
            made.unwrap_or_else(|error| panic!("{}: before it begins: {error}", self.name()));
        }
        if self.kind == Kind::Xftl {
            let (geometry, config) = geometry(self.program);
            let made = OverRegion::create(world.log(), geometry, FLASH_ID).and_then(|flash| {
                let flash: Arc<dyn Flash> = flash;
                Device::format(&flash, &config, FLASH_ID)
            });
            made.unwrap_or_else(|error| panic!("{}: before it begins: {error}", self.name()));
        }
        let state = state(&vec![0; self.program.blocks as usize]);
        Beginning { world: World::from_image(&world.latest(), sim), state, is_made: true }
    }

    fn perform(&self, setting: &Setting, recorder: &mut Recorder) -> Result<(), String> {
        let zeros = vec![0; self.program.blocks as usize];
        let op = recorder.begin("open", &state(&zeros));
        let open = self.open_blocks(&recorder.world, setting, false).map_err(|error| format!("open: {error}"))?;
        recorder.end(op);
        let model = Model::new(&open, &zeros);
        let mut running =
            Running { recorder, open, model, next: 0, last: Sequence::default(), ordered: HashMap::new(), home: None };
        self.program.steps.iter().try_for_each(|step| running.step(step))?;
        running.open.reports()
    }

    fn check(&self, world: &Arc<World>) -> Result<(), String> {
        if self.kind != Kind::Xftl {
            return Ok(());
        }
        let flash: Arc<dyn Flash> = OverRegion::open(world.log()).map_err(|error| error.to_string())?;
        let report = xftl::check(flash).map_err(|error| error.to_string())?;
        report.stat.damage.first().map_or(Ok(()), |damage| Err(damage.to_string()))
    }

    fn open(&self, world: &Arc<World>, setting: &Setting) -> Result<OpenBlocks, NotOpened> {
        self.open_blocks(world, setting, true).map_err(|error| NotOpened::Failed(error.to_string()))
    }

    fn observe(&self, _world: &Arc<World>, open: &OpenBlocks) -> Result<State, String> {
        open.values().map(|values| state(&values))
    }

    /// Two transactions, the second over what the first has written.
    fn go_on(&self, life: &mut Life, open: &OpenBlocks, before: Promise) -> Result<Promise, String> {
        let mut values = open.values()?;
        let mut last = before;
        for round in 0..2u64 {
            let tx = open.blocks.begin().map_err(|error| format!("a new transaction: {error}"))?;
            // Not block 0: see [`Program::behind`].
            let news: Vec<(u64, u64)> =
                (round + 1..round + 3).map(|block| (block, 1 << 32 | round << 8 | block)).collect();
            news.iter().for_each(|(block, value)| values[*block as usize] = *value);
            let after = Promise::new(state(&values));
            last = life.operation("a new transaction", &after, |_| {
                let write = |(block, value): &(u64, u64)| {
                    open.blocks.write(PROGRAM, tx, Lba(*block), page(*value), Placement::Overwrite, Tag::Data)
                };
                let done = news.iter().try_for_each(write).and_then(|()| {
                    let sequence = open.blocks.order(ORDER, &[tx], &[])?;
                    open.blocks.wait(PROGRAM, sequence)
                });
                done.map_err(|error| format!("a new transaction: {error}"))?;
                Ok(after.clone())
            })?;
        }
        life.expect(self, open, &last, "after new transactions")?;
        open.reports()?;
        Ok(last)
    }

    fn close(&self, open: OpenBlocks) -> Result<(), String> {
        if let Some(journal) = &open.journal {
            return journal.close().map_err(|error| error.to_string());
        }
        open.blocks.plain().fence(PROGRAM).map_err(|error| error.to_string())
    }

    fn at_rest(&self, world: &Arc<World>, _state: &State) -> Result<(), String> {
        self.check(world)
    }

    fn was_closed(&self, _open: &OpenBlocks) -> Result<(), String> {
        Ok(())
    }

    fn seen_beside(&self, _run: &Run) -> Option<(u64, String)> {
        None
    }
}
