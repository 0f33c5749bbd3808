//! A volume with an engine, as a subject.
//!
//! What a call does is a group, and durable when the engine says so ([`DurableAt`]); explicit groups are durable when
//! their commit returns. The states between which a crash may choose are looked at, not foretold: without a crash, the
//! volume is opened in a copy of the world after each operation. So all that `lstat` says is compared, inode numbers
//! and times too; and the volume that is open must say the same from memory. A program that has a model of its own
//! compares that as well ([`Calls`]).
//!
//! With an engine that is not durable at a return, the open volume is looked at, too. A crash may leave:
//!
//! | [`DurableAt`] | between two operations |
//! |---|---|
//! | `Return` | what the last one has left |
//! | `Series` | what had been made when the last series ended: the engine tells how many groups that are |
//! | `Sync` | what was there at the last sync, or after any operation since |
//!
//! and in an operation, what it may leave before and after it, and what calls saw when it began.
//!
//! Nothing in a run comes from the machine: the volume's id and its clock are given, and operations are made by two
//! threads in turn, so that no fence covers what the operation before it has stored; what threads in the background do,
//! by two others. Opens are made by the thread that does not make the first operation.
//!
//! The engine `none` promises nothing after a crash, and is no subject.

mod calls;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use wholly::Error;
use wholly_blocks::batch::Batch;
use wholly_blocks::xftl::{Config, Device, Flash, Geometry, OverRegion, SLOT, Times};
use wholly_blocks::{Sequence, TxBlocks};
use wholly_media::{Region, Site};
use wholly_sim::{CountingRegion, Counts, Medium, SimConfig, World};
use wholly_vfs::{Stat, Timestamp};
use wholly_volume::{DurableAt, EngineKind, Mistake, Reached, Trial, Volume, VolumeCalls, VolumeOptions};

use crate::blocks::{Kind, journal};
use crate::life::Life;
use crate::look::{exact, tree};
use crate::run::{Recorder, Run};
use crate::setting::Setting;
use crate::subject::{Beginning, NotOpened, Subject};
use crate::tree::State;
use crate::workload::{Op, Promise};
use calls::call;
pub use calls::{BY_HAND, Calls, fill, orders, several};

/// Bytes of a volume: 128 blocks.
pub const BYTES: u64 = 128 * 4096;

/// How many times as large a volume with such an engine is: some reserve whole blocks for what others need lines for.
pub fn times_as_large(engine: EngineKind) -> u64 {
    if matches!(engine, EngineKind::Shadow | EngineKind::OpLog | EngineKind::MultiQueue) { 2 } else { 1 }
}

/// Which volume it is.
pub const VOLUME_ID: [u8; 16] = *b"explored volume.";

/// The one that was there before a program makes this one in its place.
const OTHER_ID: [u8; 16] = *b"the other volume";

/// The engines that promise something after a crash.
pub fn engines() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.iter().copied().filter(|engine| engine.promises_groups())
}

/// The worlds in which an engine is explored.
pub fn worlds(engine: EngineKind) -> [&'static str; 3] {
    match engine.takes_disks() {
        true => ["disk", "disk-torn", "pmem"],
        false => ["pmem", "pmem-x86", "pmem-eadr"],
    }
}

/// The worlds in which a flash disk is the medium of an engine that takes disks.
pub const FLASH: [&str; 2] = ["flash", "flash-torn"];

/// The worlds in which the medium of `page_cache_wal` is what transactions of blocks promise, and nothing besides.
pub const BLOCKS: [&str; 2] = ["blocks", "blocks-dependent"];

/// The worlds in which the medium of `multi_queue` is a device with queues in its region.
pub const DEVICES: [&str; 4] = ["ccnvme", "ccnvme-ordered", "ccnvme-lost", "ccnvme-window"];

/// The worlds in which `multi_queue` journals new content, too: in half of them.
const JOURNALED: [&str; 3] = ["disk-torn", "ccnvme-ordered", "ccnvme-window"];

/// Queues of a volume on such a device.
const QUEUES: u16 = 2;

/// A process ends on such a medium.
const DEATH: Site = Site("volume.death");

/// When a volume is made; when the first operation of a run happens; when what follows a crash does: in s since 1970.
const MADE: i64 = 1_000;
const RUNS: i64 = 2_000;
const LATER: i64 = 1_000_000;

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
    static NOW: Cell<i64> = const { Cell::new(MADE) };
}

fn clock() -> Timestamp {
    Timestamp { sec: NOW.get(), nsec: 0 }
}

/// From here on calls are made by this thread, at this time.
fn turn_to(thread: u64, now: i64) {
    THREAD.set(thread);
    NOW.set(now);
}

/// A second passes: for programs whose clock stands still otherwise.
pub fn tick() {
    NOW.set(NOW.get() + 1);
}

/// The world with this name, for volumes.
pub fn setting(name: &str) -> Option<Setting> {
    let kinds = [Kind::Xftl, Kind::Contract, Kind::MultiQueue];
    let of_blocks = || kinds.into_iter().find_map(|kind| kind.setting(name));
    let setting = Setting::find(name).or_else(of_blocks)?;
    let log_len = if is_flash(&setting.sim) { OverRegion::bytes(&flash_disk().0) } else { BYTES };
    let sim = SimConfig { thread: || THREAD.get(), log_len, ..(*setting.sim).clone() };
    Some(Setting { sim: Arc::new(sim), ..setting })
}

fn is_flash(sim: &SimConfig) -> bool {
    sim.log == Medium::Disk { sector: SLOT as u32 }
}

/// Whether the medium has transactions of its own.
fn has_blocks(sim: &SimConfig) -> bool {
    sim.log == Medium::BLOCKS && sim.device.is_none()
}

/// Blocks of transactions on a flash disk that may wait together.
const ROOM: u64 = 64;

/// A flash disk for a volume.
fn flash_disk() -> (Geometry, Config) {
    let config = Config {
        logical: (BYTES / 4096 * 5 / 4) as u32,
        data_blocks: 15,
        reserve: 1,
        chain_blocks: 1,
        buffer: 8,
        interval: 200,
        most_pages: None,
        times: Times { program_ns: 1, read_ns: 1, erase_ns: 1 },
        name: *b"explored\0\0\0\0\0\0\0\0",
    };
    (Geometry { channels: 2, blocks: config.blocks(2, 16), pages: 16 }, config)
}

/// What a volume is on in a world: what the world has, or a flash disk over that, which is opened as a new process
/// does.
fn medium(world: &Arc<World>) -> wholly::Result<Arc<dyn Region>> {
    match is_flash(world.config()) {
        false if has_blocks(world.config()) => Ok(world.blocks().plain()),
        false => Ok(world.log()),
        true => Ok(transactions(world)?.plain()),
    }
}

/// The transactions of a flash disk, opened as a new process does.
fn transactions(world: &Arc<World>) -> wholly::Result<Arc<dyn TxBlocks>> {
    Ok(Arc::new(Batch::new(Arc::new(Device::open(OverRegion::open(world.log())?)?), ROOM)))
}

/// A world where nothing was yet, but for a flash disk.
fn blank(sim: Arc<SimConfig>) -> Arc<World> {
    if !is_flash(&sim) {
        return World::new(sim);
    }
    let made = World::new(SimConfig { mutations: Vec::new(), ..(*sim).clone() });
    let (geometry, config) = flash_disk();
    let chip: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, VOLUME_ID).expect("a chip");
    Device::format(&chip, &config, VOLUME_ID).expect("a flash disk");
    World::from_image(&made.latest(), sim)
}

/// The same, if the engine takes such a medium.
pub fn setting_for(engine: EngineKind, name: &str) -> Option<Setting> {
    setting(name).filter(|setting| match &setting.sim {
        sim if has_blocks(sim) => engine == EngineKind::OpLog,
        sim if sim.device.is_some() => engine == EngineKind::MultiQueue,
        sim => sim.log.is_pmem() || engine.takes_disks(),
    })
}

/// The sites that a volume with such an engine passes.
pub fn sites(engine: EngineKind) -> Vec<Site> {
    [wholly_volume::sites_of_core(engine), engine.sites()].concat()
}

/// Where a program's volume comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// It was made before, and nothing of that is recorded.
    Before,
    /// The program makes it, where nothing was.
    New,
    /// The program makes it in the place of another one.
    Over,
}

/// When an operation is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    /// When the engine says so.
    ByEngine,
    /// When it returns, with all before it.
    Return,
    /// When it returns, with all before it, but for times of files.
    ButTimes,
    /// Later: it returns at the order, if the engine orders.
    Later,
    /// It changes nothing by itself.
    Nothing,
}

/// What is done to a volume.
pub trait Program: Sync {
    /// What it is called.
    fn name(&self) -> String;

    /// Where its volume comes from.
    fn making(&self) -> Making {
        Making::Before
    }

    /// Whether a second passes with every other operation. If not, the clock stands still from the making of the volume
    /// on, but for [`tick`]: then calls change content without any metadata.
    fn time_passes(&self) -> bool {
        true
    }

    /// Whether some of its groups return at the order.
    fn orders(&self) -> bool {
        false
    }

    /// What is changed of the engine: one with a page cache has so few pages that they are stolen.
    fn trial(&self) -> Trial {
        Trial { pages: Some(16), ..Trial::default() }
    }

    /// Opens the volume, also after a crash. Programs that differ in this differ in their [`rules`](Self::rules).
    ///
    /// # Errors
    /// Those of [`Volume::open_region`].
    fn open(&self, region: Arc<dyn Region>, options: &VolumeOptions) -> wholly::Result<Volume> {
        Volume::open_region(region, options)
    }

    /// Fills the volume that is there before anything is recorded.
    ///
    /// # Errors
    /// In words.
    fn prepare(&self, volume: &Volume) -> Result<(), String>;

    /// Does it.
    ///
    /// # Errors
    /// In words: what is not as it should be.
    fn perform(&self, running: &mut Running<'_>) -> Result<(), String>;

    /// What is done after a recovery that has served `state`. What cannot be done is left out. Programs that differ in
    /// this differ in their [`rules`](Self::rules).
    fn ops_after(&self, state: &State) -> Vec<Op>;

    /// What of it decides what follows a crash.
    fn rules(&self) -> String;
}

/// A program on a volume.
#[derive(Clone, Debug)]
pub struct OnVolume<P> {
    /// The engine.
    pub engine: EngineKind,
    /// The program.
    pub program: P,
}

/// A volume that is open. If it is dropped, the process dies.
pub struct OpenVolume(Option<Volume>);

impl Deref for OpenVolume {
    type Target = Volume;
    fn deref(&self) -> &Volume {
        self.0.as_ref().expect("it is open")
    }
}

impl Drop for OpenVolume {
    fn drop(&mut self) {
        if let Some(volume) = self.0.take() {
            volume.abandon();
        }
    }
}

fn options(engine: EngineKind) -> VolumeOptions {
    let queues = (engine == EngineKind::MultiQueue).then_some(QUEUES);
    VolumeOptions { cache_bytes: 1 << 20, engine: Some(engine), queues, clock, ..VolumeOptions::default() }
}

fn format(world: &Arc<World>, engine: EngineKind, volume_id: [u8; 16]) -> Result<(), String> {
    let made = match engine {
        EngineKind::OpLog if has_blocks(world.config()) => {
            Volume::format_blocks_as(&*world.blocks(), &options(engine), volume_id)
        }
        EngineKind::OpLog if is_flash(world.config()) => {
            transactions(world).and_then(|blocks| Volume::format_blocks_as(&*blocks, &options(engine), volume_id))
        }
        EngineKind::MultiQueue if world.config().device.is_some() => {
            let queues = journal::device_queues(world, (QUEUES, 0), "", false).map(|(queues, _)| Arc::new(queues));
            queues.and_then(|queues| Volume::format_queues_as(queues, &options(engine), volume_id))
        }
        _ => medium(world).and_then(|medium| Volume::format_region_as(&*medium, &options(engine), volume_id)),
    };
    made.map_err(|error| format!("making it: {error}"))
}

fn has_bitmaps(region: &dyn Region) -> wholly::Result<bool> {
    let copies = Volume::dump_region(region, None)?.superblocks;
    Ok(copies.iter().any(|copy| copy.decoded.as_ref().is_ok_and(|superblock| superblock.bitmaps.is_some())))
}

/// By whom a volume is opened.
#[derive(Clone, Copy)]
enum By<'b> {
    /// The program, in the world with this name.
    Program(&'b dyn Program, &'b str),
    /// The same after a crash.
    AfterCrash(&'b dyn Program, &'b str),
    /// Somebody else.
    Other,
}

fn open(world: &Arc<World>, region: Arc<dyn Region>, by: By<'_>) -> wholly::Result<OpenVolume> {
    let (program, name) = match by {
        By::Program(program, name) | By::AfterCrash(program, name) => (Some(program), name),
        By::Other => (None, ""),
    };
    // In one world, groups of one thread come in several lanes; elsewhere in one, as users have them.
    let lanes_in_turn = world.config().log == Medium::PMEM;
    let trial = program.map_or_else(Trial::default, Program::trial);
    // Lines and lists of operations come to the same bytes at each commit. No other mistake is to be seen by that.
    let replays = trial.mistake.is_none_or(|mistake| mistake == Mistake::RemoveForgotten);
    let believes_window = journal::believes_window(name);
    let journals_content = JOURNALED.contains(&name);
    let trial = Trial { lanes_in_turn, replays, queues_in_turn: true, believes_window, journals_content, ..trial };
    let options = VolumeOptions { trial, ..options(EngineKind::None) };
    let opened = match program {
        _ if has_blocks(world.config()) => Volume::open_blocks(world.blocks(), &options),
        _ if world.config().device.is_some() => {
            let is_after_crash = matches!(by, By::AfterCrash(..));
            let (queues, _) = journal::device_queues(world, (QUEUES, 0), name, is_after_crash)?;
            Volume::open_queues(Arc::new(queues), &options)
        }
        // The engine with bitmaps uses the transactions of a flash disk.
        _ if is_flash(world.config()) && has_bitmaps(&*region)? => Volume::open_blocks(transactions(world)?, &options),
        Some(program) => program.open(region, &options),
        None => Volume::open_region(region, &options),
    };
    opened.map(|volume| OpenVolume(Some(volume)))
}

/// What a volume serves whose process dies now, without a crash.
fn look(world: &Arc<World>) -> Result<State, String> {
    let sound = SimConfig { mutations: Vec::new(), ..(**world.config()).clone() };
    let world = World::from_image(&world.latest(), sound);
    let volume = medium(&world).and_then(|medium| open(&world, medium, By::Other));
    let volume = volume.map_err(|error| format!("without a crash, open: {error}"))?;
    serves(&volume)
}

fn serves(mut volume: &VolumeCalls) -> Result<State, String> {
    tree(&mut volume, &mut |path, error| Err(format!("{path}: {error}")))
}

impl<P: Program> Subject for OnVolume<P> {
    type Open = OpenVolume;

    /// Looking renews times of access, in groups of their own.
    const OBSERVES_IN_RECOVERY: bool = false;

    fn name(&self) -> String {
        format!("volume:{}:{}", self.engine.name(), self.program.name())
    }

    fn rules(&self) -> String {
        format!("volume {} {}", self.engine.name(), self.program.rules())
    }

    fn begin(&self, setting: &Setting) -> Beginning {
        // A flash disk has room for each engine.
        let times = if is_flash(&setting.sim) { 1 } else { times_as_large(self.engine) };
        let log_len = setting.sim.log_len * times;
        let sim = Arc::new(SimConfig { log_len, ..(*setting.sim).clone() });
        let volume_id = match self.program.making() {
            Making::Before => VOLUME_ID,
            Making::Over => OTHER_ID,
            Making::New => {
                return Beginning { world: blank(sim), state: State::default(), is_made: false };
            }
        };
        turn_to(0, MADE);
        let world = blank(Arc::new(SimConfig { mutations: Vec::new(), ..(*sim).clone() }));
        let made = format(&world, self.engine, volume_id).and_then(|()| {
            let opened = medium(&world).and_then(|medium| open(&world, medium, By::Other));
            let mut volume = opened.map_err(|error| error.to_string())?;
            self.program.prepare(&volume)?;
            // Reads after a crash renew the access time of those files only that have changed since this time.
            turn_to(0, MADE + 1);
            serves(&volume)?;
            let volume = volume.0.take().expect("it is open");
            volume.close().map_err(|error| error.to_string())?;
            look(&world)
        });
        let state = made.unwrap_or_else(|what| panic!("{}: before it begins: {what}", self.name()));
        let is_made = self.program.making() == Making::Before;
        Beginning { world: World::from_image(&world.latest(), sim), state, is_made }
    }

    fn perform(&self, setting: &Setting, recorder: &mut Recorder) -> Result<(), String> {
        let time_passes = self.program.time_passes();
        turn_to(0, if time_passes { RUNS } else { MADE });
        let making = self.program.making();
        let state = if making == Making::New { State::default() } else { look(&recorder.world)? };
        let region = CountingRegion::new(recorder.world.log());
        let (engine, program, pending) = (self.engine, &self.program as &dyn Program, Vec::new());
        let by = By::Program(program, &setting.name);
        let late_times = BTreeSet::new();
        let running = Running {
            engine,
            program,
            by,
            recorder,
            region,
            volume: None,
            state,
            pending,
            steps: 0,
            time_passes,
            late_times,
        };
        // What a panic left may not be fit to be dropped.
        let mut running = ManuallyDrop::new(running);
        if making != Making::Before {
            running.make()?;
        }
        running.open()?;
        self.program.perform(&mut running)?;
        drop(ManuallyDrop::into_inner(running));
        THREAD.set(0);
        Ok(())
    }

    fn check(&self, world: &Arc<World>) -> Result<(), String> {
        let checked = match world.config().device {
            None => medium(world).and_then(|medium| Volume::check_region(&*medium)),
            // A look at the blocks alone does not see what the region tells.
            Some(_) => {
                let sound = SimConfig { mutations: Vec::new(), ..(**world.config()).clone() };
                let world = World::from_image(&world.latest(), sound);
                let region = world.log();
                open(&world, region.clone(), By::Other)
                    .and_then(|mut open| open.0.take().expect("it is open").close())
                    .and_then(|()| Volume::check_region(&*region))
            }
        };
        let checked = checked.map_err(|error| error.to_string())?;
        checked.findings.first().map_or(Ok(()), |finding| Err(finding.to_string()))
    }

    fn open(&self, world: &Arc<World>, setting: &Setting) -> Result<OpenVolume, NotOpened> {
        turn_to(0, LATER);
        let by = By::AfterCrash(&self.program, &setting.name);
        medium(world).and_then(|medium| open(world, medium, by)).map_err(|error| match error {
            Error::Unsupported(_) | Error::Corrupt { .. } => NotOpened::Unmade(error.to_string()),
            error => NotOpened::Failed(error.to_string()),
        })
    }

    fn observe(&self, _world: &Arc<World>, volume: &OpenVolume) -> Result<State, String> {
        serves(volume)
    }

    /// New calls. Each is durable when it returns, or synced; what an earlier life has logged counts no more.
    fn go_on(&self, life: &mut Life, volume: &OpenVolume, state: Promise) -> Result<Promise, String> {
        let (mut state, mut after) = (state.clone(), (*state).clone());
        for (i, op) in (1..).zip(self.program.ops_after(&state)) {
            let bytes = op.bytes(u64::from(u32::MAX) + i).unwrap_or_default();
            if after.apply(&op, &bytes).is_err() {
                continue;
            }
            NOW.set(LATER + i as i64);
            state = Promise::new(after.clone());
            life.operation("a new call", &state, |_| {
                let done = call(volume, None, &op, &bytes).and_then(|_| match volume.durable_at() {
                    DurableAt::Return => Ok(()),
                    _ => volume.sync(),
                });
                done.map_err(|error| format!("a new call: {op:?}: {error}"))
            })?;
        }
        life.expect(self, volume, &state, "after new calls")?;
        Ok(state)
    }

    fn close(&self, mut volume: OpenVolume) -> Result<(), String> {
        volume.0.take().expect("it is open").close().map_err(|error| error.to_string())
    }

    fn at_rest(&self, world: &Arc<World>, _state: &State) -> Result<(), String> {
        at_rest(world)
    }

    fn was_closed(&self, _volume: &OpenVolume) -> Result<(), String> {
        Ok(())
    }

    fn seen_beside(&self, _run: &Run) -> Option<(u64, String)> {
        None
    }
}

/// That a volume is sound and clean, with all copies of its superblock, and without an inode that nothing names.
fn at_rest(world: &Arc<World>) -> Result<(), String> {
    let checked = medium(world).and_then(|medium| Volume::check_region(&*medium));
    let checked = checked.map_err(|error| error.to_string())?;
    if let Some(finding) = checked.findings.first().or(checked.lost_copies.first()) {
        return Err(finding.to_string());
    }
    match (checked.is_clean, checked.orphans) {
        (true, 0) => Ok(()),
        (is_clean, orphans) => Err(format!("{orphans} orphans, clean {is_clean}")),
    }
}

/// A program that is running, and recorded.
pub struct Running<'r> {
    engine: EngineKind,
    program: &'r dyn Program,
    by: By<'r>,
    recorder: &'r mut Recorder,
    /// What is opened.
    region: Arc<CountingRegion>,
    volume: Option<OpenVolume>,
    /// What is there, as it was looked at last.
    state: State,
    /// What calls have seen since then, if their engine is not durable at their return: the state that is durable
    /// first. With each, how many groups had been committed.
    pending: Vec<(Promise, u64)>,
    steps: u64,
    time_passes: bool,
    /// Files whose times a sync of data has kept in memory.
    late_times: BTreeSet<String>,
}

impl Running<'_> {
    /// What is there.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The volume that is open.
    ///
    /// # Panics
    /// If it is not.
    pub fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("it is open")
    }

    /// A group is given up because another one is in its way.
    fn is_in_the_way(&mut self) {
        self.recorder.busy += 1;
    }

    /// What volumes that this has opened did to the medium since this was called last.
    pub fn take_counts(&mut self) -> Counts {
        self.region.take()
    }

    /// Records an operation, by the thread whose turn it is.
    fn operation<T>(
        &mut self,
        label: &str,
        lasts: Lasts,
        body: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        self.has_ended_between();
        let op = self.recorder.begin(label, &self.state);
        let done = body(self).map_err(|what| format!("{label}: {what}"))?;
        self.recorder.end(op);
        let left = look(&self.recorder.world).map_err(|what| format!("{label}: {what}"))?;
        let ended = match self.volume.as_ref().map(|volume| volume.durable_at()) {
            Some(DurableAt::Return) if lasts == Lasts::Later || lasts == Lasts::Nothing && !self.pending.is_empty() => {
                if self.pending.is_empty() {
                    self.pending.push((Promise::new(self.state.clone()), 0));
                }
                self.pends(op, left, DurableAt::Sync, lasts)
            }
            None | Some(DurableAt::Return) => {
                self.pending.clear();
                self.state = left;
                self.recorder.leaves(op, &self.state);
                self.is_stored(lasts == Lasts::ButTimes)
            }
            Some(at) => self.pends(op, left, at, lasts),
        };
        ended.map_err(|what| format!("{label}: {what}"))?;
        Ok(done)
    }

    /// A series may have ended since the last operation, by the group that frees an inode when a file is closed.
    fn has_ended_between(&mut self) {
        let (Some(volume), [first, .., last]) = (&self.volume, &self.pending[..]) else { return };
        if matches!(volume.durable_at(), DurableAt::Series(_)) && volume.reached().durable > last.1 {
            self.recorder.may_leave(vec![first.0.clone(), last.0.clone()]);
        }
    }

    /// The end of an operation on an engine that is not durable at its return; `left` is there if the process dies now.
    fn pends(&mut self, op: u64, left: State, at: DurableAt, lasts: Lasts) -> Result<(), String> {
        self.state = serves(self.volume())?;
        let Reached { committed, durable } = self.volume().reached();
        let seen = self.recorder.leaves(op, &self.state);
        if lasts == Lasts::Return {
            self.pending.clear();
        }
        match self.pending.last_mut() {
            Some(last) if last.0 == seen => last.1 = committed,
            _ => self.pending.push((seen, committed)),
        }
        let may = match at {
            DurableAt::Series(most) if committed - durable >= most => {
                return Err(format!("{} groups are not durable, of series of {most}", committed - durable));
            }
            DurableAt::Series(_) => {
                let with = self.pending.iter().position(|(_, committed)| *committed >= durable);
                let with = with.unwrap_or(self.pending.len() - 1);
                // If it ended between two groups of a call, they cannot be told apart.
                let is_inside = self.pending[with].1 > durable;
                with.saturating_sub(usize::from(is_inside))..with + 1
            }
            _ => 0..self.pending.len(),
        };
        let Some(which) = may.clone().rev().find(|which| *self.pending[*which].0 == left) else {
            let difference = self.pending[may.end - 1].0.difference(&left).unwrap_or_default();
            return Err(format!("the death of the process leaves what it should not: {difference}"));
        };
        if let DurableAt::Series(_) = at {
            self.pending.drain(..which);
            self.pending.iter().take(1).for_each(|(state, _)| self.recorder.may_leave(vec![state.clone()]));
        } else {
            self.recorder.may_leave(self.pending.iter().map(|(state, _)| state.clone()).collect());
        }
        Ok(())
    }

    /// That the open volume says of each object what stands on the medium: what is in memory alone, no crash leaves.
    /// Such are times of a file after a sync of its data, until something stores them.
    fn is_stored(&mut self, but_times: bool) -> Result<(), String> {
        let before = std::mem::take(&mut self.late_times);
        let Some(volume) = &self.volume else { return Ok(()) };
        for (path, number) in self.state.paths() {
            let said = volume.metadata(&path).map(exact).map_err(|error| format!("{path}: {error}"))?;
            let Some(stored) = self.state.object(number).exact.filter(|stored| *stored != said) else { continue };
            let is_late = Stat { mtime_ns: said.mtime_ns, ctime_ns: said.ctime_ns, ..stored } == said;
            if !is_late || !(but_times || before.contains(&path)) {
                return Err(format!("{path} is {stored:?} on the medium, and in memory {said:?}"));
            }
            self.late_times.insert(path);
        }
        Ok(())
    }

    fn turn(&mut self) {
        self.steps += 1;
        // Every other group changes no time of what the group before it has changed.
        turn_to(self.steps % 2, if self.time_passes { RUNS + self.steps as i64 / 2 } else { NOW.get() });
    }

    fn make(&mut self) -> Result<(), String> {
        self.operation("making it", Lasts::Return, |running| format(&running.recorder.world, running.engine, VOLUME_ID))
    }

    /// Opens the volume.
    ///
    /// # Errors
    /// In words.
    pub fn open(&mut self) -> Result<(), String> {
        THREAD.set(0);
        self.operation("open", Lasts::Return, |running| {
            let world = &running.recorder.world;
            if is_flash(world.config()) {
                running.region = CountingRegion::new(medium(world).map_err(|error| error.to_string())?);
            }
            let opened = open(world, running.region.clone(), running.by);
            let volume = opened.map_err(|error| error.to_string())?;
            if volume.durable_at() != DurableAt::Return || running.program.orders() {
                volume.keep_access_times();
            }
            running.volume = Some(volume);
            Ok(())
        })
    }

    /// One call, or whatever survives a crash wholly or not at all.
    ///
    /// # Errors
    /// In words: why the volume does not open any more.
    pub fn step<T>(&mut self, label: &str, body: impl FnOnce(&Volume) -> T) -> Result<T, String> {
        self.turn();
        self.operation(label, Lasts::ByEngine, |running| Ok(body(running.volume())))
    }

    /// The same for what is durable when it returns, whatever the engine: a sync, or the commit of a group.
    ///
    /// # Errors
    /// As `step`.
    pub fn sync_step<T>(&mut self, label: &str, body: impl FnOnce(&Volume) -> T) -> Result<T, String> {
        self.turn();
        self.operation(label, Lasts::Return, |running| Ok(body(running.volume())))
    }

    /// The same for a sync of data.
    ///
    /// # Errors
    /// As `step`.
    pub fn data_step<T>(&mut self, label: &str, body: impl FnOnce(&Volume) -> T) -> Result<T, String> {
        self.turn();
        self.operation(label, Lasts::ButTimes, |running| Ok(body(running.volume())))
    }

    /// The same for what a group does before its commit, and for an abort.
    ///
    /// # Errors
    /// As `step`.
    pub fn group_step<T>(&mut self, label: &str, body: impl FnOnce(&Volume) -> T) -> Result<T, String> {
        self.turn();
        self.operation(label, Lasts::Nothing, |running| Ok(body(running.volume())))
    }

    /// What a thread in the background does, of two in turn. It changes nothing that anybody sees.
    ///
    /// # Errors
    /// As `step`.
    pub fn background_step<T>(&mut self, label: &str, body: impl FnOnce(&Volume) -> T) -> Result<T, String> {
        self.turn();
        THREAD.set(2 + THREAD.get());
        self.operation(label, Lasts::Nothing, |running| Ok(body(running.volume())))
    }

    /// The same for a group whose commit returns at the order.
    ///
    /// # Errors
    /// As `step`.
    pub fn order_step<T>(&mut self, label: &str, body: impl FnOnce(&Volume) -> T) -> Result<T, String> {
        self.turn();
        self.operation(label, Lasts::Later, |running| Ok(body(running.volume())))
    }

    /// Unmounts the volume.
    ///
    /// # Errors
    /// In words; if something is left that should not be, or lost.
    pub fn close(&mut self) -> Result<(), String> {
        self.turn();
        let before = self.state.clone();
        self.operation("close", Lasts::Return, |running| {
            let mut volume = running.volume.take().expect("it is open");
            volume.0.take().expect("it is open").close().map_err(|error| error.to_string())?;
            at_rest(&running.recorder.world)
        })?;
        before.difference(&self.state).map_or(Ok(()), |difference| Err(format!("close: {difference}")))
    }

    /// The process dies.
    pub fn die(&mut self) {
        self.volume = None;
        if has_blocks(self.recorder.world.config()) {
            // What it has ordered is the medium's business by then.
            let blocks = self.recorder.world.blocks();
            let first = blocks.durable().0 + 1;
            let last = blocks.order(DEATH, &[], &[]).map_or(0, |last| last.0);
            (first..=last).for_each(|sequence| _ = blocks.wait(DEATH, Sequence(sequence)));
        }
    }

    /// Something that is done to a volume which is not open.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn offline(&mut self, label: &str, body: impl FnOnce(&dyn Region) -> wholly::Result<()>) -> Result<(), String> {
        assert!(self.volume.is_none(), "it is not open");
        self.turn();
        self.operation(label, Lasts::Return, |running| {
            medium(&running.recorder.world).and_then(|medium| body(&*medium)).map_err(|error| error.to_string())
        })
    }
}
