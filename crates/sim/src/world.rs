//! The world that programs run in: it keeps what they see and records what they do.

use super::blocks::{Blocks, SimBlocks};
use super::config::{HostModel, Mutation, MutationKind, SimConfig};
use super::device::SimDevice;
use super::event::{Attribute, Event, EventKind, Fate, Mark, NameChange, Trace};
use super::files::SimHost;
use super::image::Image;
use super::pending::Step;
use super::reads::{ReadSet, question};
use super::region::SimRegion;
use super::state::{Birth, LOG, ObjId, ObjKind, State};
use super::tracker::Tracker;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wholly_blocks::TxBlocks;
use wholly_host::HostFs;
use wholly_media::{Error, Guarantees, Region, Result, Site};

/// Blocks of the host file system, each of 4 KiB.
pub(super) const BLOCKS: u64 = 1 << 30;

/// One store in memory: a log region and a host directory, recorded. See the [module](super).
pub struct World {
    pub(super) config: Arc<SimConfig>,
    pub(super) log_guarantees: Guarantees,
    pub(super) host_guarantees: Guarantees,
    live: Mutex<Live>,
}

/// What changes as a world runs.
pub(super) struct Live {
    /// What a running process sees.
    pub latest: State,
    pub reads: Option<ReadSet>,
    pub faults: Vec<(ObjId, Range<u64>)>,
    initial: Image,
    events: Vec<Event>,
    /// A clock that this world shares with others, and its time at each event.
    shared: Option<(Arc<AtomicU64>, Vec<u64>)>,
    ops: HashMap<u64, u64>,
    calls: HashMap<Site, u64>,
    clock_ns: i64,
    inodes_from: u64,
    /// Whether it is told when objects were born.
    pub tells_births: bool,
    /// How many have an object open.
    open: HashMap<ObjId, usize>,
    /// Inode numbers of objects that are gone.
    free_inodes: BTreeSet<ObjId>,
    /// Blocks that the host says are free.
    pub free_blocks: u64,
    /// Changes that a mutation has put off.
    pub late: Vec<(Call, Change)>,
    /// Transactions of blocks.
    pub blocks: Blocks,
    /// Stores and fences of regions that come later than they were asked for.
    pub late_steps: Vec<(Call, LateStep)>,
    /// What is durable so far; made when somebody asks, and brought up to date then.
    tracker: Option<Tracker>,
}

impl Live {
    /// The number by which programs know an object's inode.
    pub fn inode(&self, id: ObjId) -> u64 {
        self.inodes_from + u64::from(self.latest.obj(id).inode())
    }

    /// The inode number of the log's file.
    pub fn inode_of_log(&self) -> u64 {
        self.inodes_from + u64::from(ObjId::MAX)
    }

    /// Somebody has an object open.
    pub fn opened(&mut self, id: ObjId) {
        *self.open.entry(id).or_default() += 1;
    }

    /// Somebody has it open no more.
    pub fn closed(&mut self, config: &SimConfig, id: ObjId) {
        if let Some(count) = self.open.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&id);
                self.may_be_gone(config, id);
            }
        }
    }

    /// An object may have lost its last name, or who had it open last: its inode number is free from then on. Where
    /// names survive a crash in any order, only the next process may use it: no file system has two inodes of one
    /// number.
    pub fn may_be_gone(&mut self, config: &SimConfig, id: ObjId) {
        let obj = self.latest.obj(id);
        let named = if obj.kind == ObjKind::Dir { self.latest.is_named(id) } else { obj.nlink > 0 };
        if config.host != HostModel::Weak && !named && !self.open.contains_key(&id) {
            self.free_inodes.insert(obj.inode());
        }
    }
}

impl World {
    /// An empty log and an empty directory.
    ///
    /// # Panics
    /// If the configuration contradicts itself.
    pub fn new(config: impl Into<Arc<SimConfig>>) -> Arc<World> {
        let config = config.into();
        let state = State::new(config.log_len, config.device.map(|device| device.region_len));
        World::from_image(&Image::new(state), config)
    }

    /// What the next process finds after a crash. The length of the log is the image's.
    pub fn from_image(image: &Image, config: impl Into<Arc<SimConfig>>) -> Arc<World> {
        let config = config.into();
        config.check();
        let mut image = image.clone();
        image.state.lives += 1;
        let latest = image.seen();
        Arc::new(World {
            log_guarantees: config.log_guarantees(),
            host_guarantees: config.host_guarantees(),
            live: Mutex::new(Live {
                free_inodes: latest.free_inodes(),
                free_blocks: BLOCKS,
                latest,
                reads: None,
                faults: image.faults.clone(),
                initial: image,
                events: Vec::new(),
                shared: None,
                ops: HashMap::new(),
                calls: HashMap::new(),
                clock_ns: 0,
                inodes_from: config.inodes_from,
                tells_births: config.births,
                open: HashMap::new(),
                late: Vec::new(),
                blocks: Blocks::default(),
                late_steps: Vec::new(),
                tracker: None,
            }),
            config,
        })
    }

    /// The log region.
    pub fn log(self: &Arc<Self>) -> Arc<dyn Region> {
        Arc::new(SimRegion::log(self.clone()))
    }

    /// Transactions of the log's blocks, as [`SimConfig::blocks`] says.
    ///
    /// # Panics
    /// If the log is not a disk with sectors of a whole block ([`Medium::BLOCKS`](super::Medium::BLOCKS)).
    pub fn blocks(self: &Arc<Self>) -> Arc<dyn TxBlocks> {
        Arc::new(SimBlocks::new(self.clone()))
    }

    /// The blocks of a device, and its persistent memory region, below a model of its controller.
    ///
    /// # Panics
    /// If the world has no device.
    pub fn device(self: &Arc<Self>) -> Arc<dyn wholly_nvme::model::Medium> {
        Arc::new(SimDevice::new(self.clone()))
    }

    /// The host directory.
    pub fn host(self: &Arc<Self>) -> Arc<dyn HostFs> {
        Arc::new(SimHost::new(self.clone()))
    }

    /// The rules of this world.
    pub fn config(&self) -> &Arc<SimConfig> {
        &self.config
    }

    /// From now on the host says that so many blocks of 4 KiB are free. It takes what is written all the same.
    ///
    /// # Panics
    /// If it has not that many.
    pub fn has_free(&self, blocks: u64) {
        assert!(blocks <= BLOCKS, "the host has fewer blocks");
        self.live().free_blocks = blocks;
    }

    /// Puts a directory into the initial, durable state.
    ///
    /// # Panics
    /// If something has happened in this world already, the name is taken or its parent does not exist.
    pub fn add_dir(&self, path: impl AsRef<[u8]>) {
        self.add(path.as_ref(), &[], 0o040_755);
    }

    /// Puts a file into the initial, durable state, its blocks allocated.
    ///
    /// # Panics
    /// As [`add_dir`](Self::add_dir).
    pub fn add_file(&self, path: impl AsRef<[u8]>, content: &[u8]) {
        self.add(path.as_ref(), content, 0o100_644);
    }

    fn add(&self, path: &[u8], content: &[u8], mode: u32) {
        let mut live = self.live();
        assert!(live.events.is_empty(), "the initial state is made before anything happens");
        assert!(live.initial.pending.is_none(), "a process died here: nothing can be put in beside what it left");
        let (dir, name) = live.latest.resolve_parent(path).expect("parent of an initial path");
        assert!(!live.latest.obj(dir).entries.contains_key(name), "initial name is taken");
        let state = &mut live.latest;
        let id = state.create(&Birth::plain(mode, 0));
        state.set_len(id, content.len() as u64);
        state.allocate(id, 0, content.len() as u64);
        state.put(id, 0, content);
        state.set_name(dir, &Arc::from(name), Some(id));
        live.initial.state = live.latest.clone();
    }

    /// Records what the program under test does.
    pub fn mark(&self, mark: Mark) {
        let thread = self.thread();
        let mut live = self.live();
        let begun = match &mark {
            Mark::Begin { op, .. } => live.ops.insert(thread, *op),
            Mark::Return { .. } | Mark::Note { .. } => live.ops.get(&thread).copied(),
        };
        let op = match &mark {
            Mark::Begin { op, .. } | Mark::Return { op } => Some(*op),
            Mark::Note { .. } => begun,
        };
        if matches!(mark, Mark::Return { .. }) {
            live.ops.remove(&thread);
        }
        live.push(Event { thread, site: None, op, fate: Fate::Normal, kind: EventKind::Mark(mark) });
    }

    /// The number of events so far: the time.
    pub fn now(&self) -> u64 {
        self.live().events.len() as u64
    }

    /// Has this world go by a clock that others go by, too: each event of any of them takes one tick. Before anything
    /// happens.
    ///
    /// # Panics
    /// If something has.
    pub fn share(&self, clock: Arc<AtomicU64>) {
        let mut live = self.live();
        assert!(live.events.is_empty(), "the clock is shared from the first event on");
        live.shared = Some((clock, Vec::new()));
    }

    /// The tick of each event, from 1 on; none where no clock is [shared](Self::share).
    pub fn ticks(&self) -> Vec<u64> {
        self.live().shared.as_ref().map_or_else(Vec::new, |(_, ticks)| ticks.clone())
    }

    /// What has happened until now.
    pub fn trace(&self) -> Trace {
        let live = self.live();
        Trace { config: self.config.clone(), initial: live.initial.clone(), events: live.events.clone() }
    }

    /// What a process sees at this moment, as if all of it were durable.
    pub fn latest(&self) -> Image {
        let live = self.live();
        Image { state: live.latest.clone(), pending: None, faults: live.faults.clone() }
    }

    /// The process dies: everything that it wrote stays, files that no name reaches are gone, memory is gone. What was
    /// pending remains so, by [`DEAD`](super::DEAD): a power failure in the world made from this image may still lose
    /// it.
    ///
    /// Whoever still holds a region or a file of this world must not use it any more.
    pub fn kill(&self) -> Image {
        let mut live = self.live();
        let faults = live.faults.clone();
        let mut image = live.tracked(&self.config).kill();
        image.faults = faults;
        image
    }

    /// Starts to note what is read, forgetting what was noted before.
    pub fn track_reads(&self) {
        self.live().reads = Some(ReadSet::default());
    }

    /// What was read since [`track_reads`](Self::track_reads); empty if that was never called.
    pub fn reads(&self) -> ReadSet {
        self.live().reads.clone().unwrap_or_default()
    }

    /// Notes no more what is read, and gives what was.
    pub fn stop_reads(&self) -> ReadSet {
        self.live().reads.take().unwrap_or_default()
    }

    /// The hash of every place that was read since [`track_reads`](Self::track_reads) and what was first seen there.
    pub fn read_fingerprint(&self) -> u64 {
        self.live().reads.as_ref().map_or(0, ReadSet::fingerprint)
    }

    pub(super) fn thread(&self) -> u64 {
        (self.config.thread)()
    }

    /// The lock is never held across a call to anything outside of the simulator.
    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        // A panic under the lock is a report to the test (a store into a hole): the state itself is whole.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of the host directory that can be made later than it was asked for.
pub(super) enum Change {
    Names(&'static str, Arc<[NameChange]>),
    Attribute(ObjId, Attribute),
    Bytes(ObjId, u64, Arc<[u8]>),
}

/// What is done to a region later than it was asked for.
pub(super) enum LateStep {
    Store(ObjId, u64, Arc<[u8]>),
    /// A store into the log that is durable when it returns.
    Through(u64, Arc<[u8]>),
    /// A fence, or what hands over.
    Order(EventKind),
}

/// The parts of a call that all calls share: who calls, from where, and what is broken on purpose.
#[derive(Clone, Copy)]
pub(super) struct Call {
    thread: u64,
    site: Site,
    pub mutation: Option<MutationKind>,
}

impl Call {
    /// Whether the call is to do nothing at all.
    pub fn is_dropped(&self) -> bool {
        self.mutation == Some(MutationKind::DropWrite)
    }

    /// Whether the call is to order nothing.
    pub fn drops_order(&self) -> bool {
        self.mutation == Some(MutationKind::DropOrder)
    }

    /// Whether the call is to do what it does later.
    pub fn is_late(&self) -> bool {
        self.mutation == Some(MutationKind::Late)
    }

    /// Whether the call is to do what it does in two steps.
    pub fn is_split(&self) -> bool {
        self.mutation == Some(MutationKind::Split)
    }
}

impl Live {
    /// Notes a call of `site` and looks up what is broken about it.
    ///
    /// # Errors
    /// The error that a mutation asks for.
    pub fn call(
        &mut self,
        config: &SimConfig,
        thread: u64,
        site: Site,
        operation: &'static str,
        place: impl FnOnce() -> String,
    ) -> Result<Call> {
        if config.mutations.is_empty() {
            return Ok(Call { thread, site, mutation: None });
        }
        let count = self.calls.entry(site).or_insert(0);
        let nth = *count;
        *count += 1;
        let applies = |m: &&Mutation| m.site == site && m.nth.is_none_or(|only| only == nth);
        let mutation = config.mutations.iter().find(applies).map(|m| m.kind);
        match mutation {
            Some(MutationKind::Fail(errno)) => Err(Error::new(operation, place(), errno)),
            _ => Ok(Call { thread, site, mutation }),
        }
    }

    fn push(&mut self, event: Event) {
        self.events.push(event);
        if let Some((clock, ticks)) = &mut self.shared {
            ticks.push(clock.fetch_add(1, Ordering::SeqCst) + 1);
        }
    }

    /// Records what a call did. Returns the event's number.
    pub fn record(&mut self, call: &Call, kind: EventKind) -> u64 {
        let op = if self.ops.is_empty() { None } else { self.ops.get(&call.thread).copied() };
        let fate = call.mutation.map_or(Fate::Normal, Fate::Mutated);
        self.push(Event { thread: call.thread, site: Some(call.site), op, fate, kind });
        self.events.len() as u64 - 1
    }

    /// The time in ns that files are stamped with: later at every call.
    pub fn time_ns(&mut self) -> i64 {
        if self.clock_ns == 0 {
            // Seconds after anything that the image tells of, and more for each process: stamps that the crash lost are
            // not given again, even if it lost all of a process.
            let last = self.latest.objs().map(|(_, obj)| obj.ctime_ns.max(obj.mtime_ns)).max().unwrap_or(0);
            self.clock_ns = last + i64::from(self.latest.lives) * 1_000_000_000;
        }
        self.clock_ns += 1000;
        self.clock_ns
    }

    /// The time in ns that the last stamp had.
    pub fn now_ns(&mut self) -> i64 {
        if self.clock_ns == 0 { self.time_ns() } else { self.clock_ns }
    }

    /// A new object without a name, which has the lowest inode number that is free. It is there whatever is broken
    /// about the call: objects keep their numbers.
    pub fn create(&mut self, call: &Call, birth: Birth) -> ObjId {
        let birth = Birth { inode: self.free_inodes.pop_first(), ..birth };
        let obj = self.latest.create(&birth);
        let Birth { mode, rdev, target, time_ns, inode } = birth;
        self.record(call, EventKind::Create { obj, mode, rdev, target, inode, time_ns });
        obj
    }

    /// Somebody chose this time for a file: the clock is never behind it.
    pub fn clock_reaches(&mut self, time_ns: i64) {
        self.clock_ns = self.clock_ns.max(time_ns);
    }

    /// What is durable now.
    pub fn tracked(&mut self, config: &Arc<SimConfig>) -> &mut Tracker {
        let tracker = self.tracker.get_or_insert_with(|| Tracker::new(config, &self.initial));
        while (tracker.now() as usize) < self.events.len() {
            tracker.step(&self.events[tracker.now() as usize]);
        }
        tracker
    }

    /// Reads bytes as a process sees them.
    pub fn read(&mut self, id: ObjId, offset: u64, buf: &mut [u8]) -> Result<(), Errno> {
        Image::check_read(&self.faults, id, offset..offset + buf.len() as u64)?;
        let obj = self.latest.obj(id);
        obj.read(offset, buf);
        if let Some(reads) = &mut self.reads {
            reads.range(id, obj, offset, buf.len() as u64);
        }
        Ok(())
    }

    /// Reads bytes that a crash is certain to keep.
    pub fn read_durable(
        &mut self,
        config: &Arc<SimConfig>,
        id: ObjId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), Errno> {
        if self.events.is_empty() && self.initial.pending.is_none() {
            return self.read(id, offset, buf);
        }
        Image::check_read(&self.faults, id, offset..offset + buf.len() as u64)?;
        let mut reads = self.reads.take();
        let obj = self.tracked(config).durable().obj(id);
        obj.read(offset, buf);
        if let Some(reads) = &mut reads {
            reads.range(id, obj, offset, buf.len() as u64);
        }
        self.reads = reads;
        Ok(())
    }

    /// Writes bytes that a process sees at once. What is written again can be read again.
    pub fn write(&mut self, id: ObjId, offset: u64, data: &[u8]) {
        self.latest.put(id, offset, data);
        let end = offset + data.len() as u64;
        self.faults.retain(|(of, bad)| !(*of == id && offset <= bad.start && bad.end <= end));
    }

    /// The length of the log or of a file, noted as read.
    pub fn len(&mut self, id: ObjId) -> u64 {
        let len = self.latest.obj(id).len;
        if let Some(reads) = &mut self.reads {
            reads.answer(question(1, &id.to_le_bytes()), len);
        }
        len
    }

    /// What commands of a device write that an earlier process has left, and is not durable.
    pub fn in_flight(&self) -> Vec<Step> {
        let chains = self.initial.pending.iter().flat_map(|pending| pending.chains.values().flatten());
        chains.filter(|step| step.command != 0).cloned().collect()
    }

    pub fn log_len(&self) -> u64 {
        self.latest.obj(LOG).len
    }

    /// Stores into a region.
    pub fn store(&mut self, call: &Call, id: ObjId, offset: u64, data: Arc<[u8]>) {
        if !call.is_dropped() {
            self.write(id, offset, &data);
        }
        self.record(call, EventKind::Store { obj: id, offset, data });
    }

    /// Stores into the log of a disk; durable on return.
    pub fn store_through(&mut self, call: &Call, offset: u64, data: Arc<[u8]>) {
        if !call.is_dropped() {
            self.write(LOG, offset, &data);
        }
        let begun = self.record(call, EventKind::Through { offset, data });
        self.record(call, EventKind::Done { begun });
    }

    /// Makes the fences of a thread that come after a store that has come by now, in their order.
    pub fn late_fences(&mut self, after: &Call) {
        self.catch_up(after, |step| matches!(step, LateStep::Order(_)));
    }

    /// Makes the stores of a thread that come after a fence that has come by now, in their order.
    pub fn late_stores(&mut self, after: &Call) {
        self.catch_up(after, |step| !matches!(step, LateStep::Order(_)));
    }

    fn catch_up(&mut self, after: &Call, is_due: impl Fn(&LateStep) -> bool) {
        if self.late_steps.is_empty() {
            return;
        }
        let due = self.late_steps.extract_if(.., |(call, step)| call.thread == after.thread && is_due(step));
        for (call, step) in due.collect::<Vec<_>>() {
            match step {
                LateStep::Store(obj, offset, data) => self.store(&call, obj, offset, data),
                LateStep::Through(offset, data) => self.store_through(&call, offset, data),
                LateStep::Order(kind) => _ = self.record(&call, kind),
            }
        }
    }
}
