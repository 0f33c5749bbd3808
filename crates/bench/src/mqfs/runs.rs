//! Workloads in virtual time. Each thread has a processor of its own, and what it does there takes no time but what it
//! does over PCIe: stores, reads and interrupts. Threads wait for the device, and for each other's locks.
//!
//! All that was written before is home when the clock begins, and nothing goes home while it runs: the areas have room,
//! so the time of checkpoints is in no row. A run in which that is not so is refused; and so is one in which the device
//! has not seen what transactions wrote by the journal's counters, what the system writes beside, and what was read, to
//! the block.

use std::time::Duration;

use nvme_events::model::Profile;
use nvme_events::{Counts, Transport};
use rustix::fs::{Mode, OFlags};
use sync_events::{AtomicU64, Condvar, Mutex, Ordering, now, thread};
use volume_events::{Holds, PolicyVfs, Volume};
use wholly_sim::Random;
use wholly_vfs::{Context, Handle, Ino, Policy, Vfs};

use super::counts::{BLOCK, steps};
use super::device::Timed;
use super::systems::{System, Use};
use super::watched::{Watch, Watched};
use crate::Result;
use crate::fcfs::subject::failed;
use crate::report::QueueRow;

/// Bytes of the device: the largest journal is 64 MiB. And of one for a few calls.
const BYTES: u64 = 4 << 30;
pub(super) const FEW_BYTES: u64 = 128 << 20;

/// What threads do again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Appends so many bytes to a private file, and syncs it.
    Append(u64),
    /// Writes a block of a private file over, and syncs it.
    Overwrite,
    /// The same, but one thread has made all files: their inodes are in one block.
    OverwriteBeside,
    /// Filebench's default mix of varmail, each thread with files of its own in one directory: removes a file; makes
    /// one, appends up to 16 KiB, syncs it; reads a file, appends up to 16 KiB, syncs it; reads a file.
    Varmail,
    /// RocksDB's `fillsync`: appends 16 B and 1 KiB with a head of 12 B to a log, and makes them durable as data; all
    /// 64 KiB the records become a table in a file of its own, and a new log begins.
    KeyValue,
    /// Makes a file, writes 4 KiB, syncs it.
    Create,
}

/// A run.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub case: &'static str,
    pub load: Load,
    pub profile: Profile,
    pub threads: u16,
    /// Of each thread.
    pub calls: u64,
    /// Bytes of the device.
    bytes: u64,
    /// Files of a thread of varmail, at first.
    files: u64,
}

impl Setting {
    /// With as many calls as the areas have room for, or a few.
    pub fn new(case: &'static str, load: Load, profile: Profile, threads: u16, is_tiny: bool) -> Setting {
        // Blocks of the areas that a call takes.
        let blocks = match load {
            Load::Append(_) => 6,
            Load::Overwrite | Load::OverwriteBeside | Load::KeyValue => 4,
            Load::Varmail => 36,
            Load::Create => 13,
        };
        let calls = (10_000 / blocks / u64::from(threads)).min(1000);
        let (calls, bytes, files) = if is_tiny { (3, FEW_BYTES, 3) } else { (calls, BYTES, FILES) };
        Setting { case, load, profile, threads, calls, bytes, files }
    }
}

/// See [`Setting`].
const FILES: u64 = 100;
/// What varmail appends at most.
const MOST_APPENDED: u64 = 16 << 10;
/// A record of a log, and those of a table.
const RECORD: usize = 12 + 16 + 1024;
const RECORDS: u64 = (64 << 10) / RECORD as u64;
/// A piece of a table that is written at once.
const PIECE: usize = 64 << 10;

/// All threads are there.
pub(super) struct Gate {
    missing: Mutex<u32>,
    all: Condvar,
}

impl Gate {
    pub fn new(threads: u32) -> Gate {
        Gate { missing: Mutex::new(threads), all: Condvar::new() }
    }

    pub fn pass(&self) {
        let mut missing = self.missing.lock().unwrap();
        *missing -= 1;
        self.all.notify_all();
        while *missing > 0 {
            missing = self.all.wait(missing).unwrap();
        }
    }
}

/// A thread of a run.
pub(super) struct Worker<'v> {
    pub vfs: &'v PolicyVfs,
    pub is_atomic: bool,
    load: Load,
    number: u64,
    ctx: Context,
    random: Random,
    file: Option<Handle>,
    /// Bytes of the file; the name of the next file; the first file that is there.
    at: u64,
    next: u64,
    first: u64,
    bytes: Vec<u8>,
}

impl<'v> Worker<'v> {
    pub fn new(vfs: &'v PolicyVfs, system: &System, load: Load, number: u64) -> Worker<'v> {
        let (bytes, random) = (vec![number as u8 + 1; 64 << 10], Random(number + 1));
        let (is_atomic, ctx) = (system.is_atomic, Context::superuser());
        Worker { vfs, is_atomic, load, number, ctx, random, file: None, at: 0, next: 0, first: 0, bytes }
    }

    fn name(&self, number: u64) -> String {
        format!("{}-{number}", self.number)
    }

    pub fn create(&self, name: &str) -> Result<Handle> {
        let mode = Mode::RUSR | Mode::WUSR;
        let (made, file) = self.vfs.create(&self.ctx, Ino::ROOT, name.as_bytes(), OFlags::RDWR, mode)?;
        self.vfs.forget(made.ino, 1);
        Ok(file)
    }

    pub fn open(&self, name: &str) -> Result<Handle> {
        let found = self.vfs.lookup(&self.ctx, Ino::ROOT, name.as_bytes())?;
        let file = self.vfs.open(&self.ctx, found.ino, OFlags::RDWR)?;
        self.vfs.forget(found.ino, 1);
        Ok(file)
    }

    pub fn write(&self, file: &Handle, at: u64, len: usize) -> Result<()> {
        match self.vfs.write(&self.ctx, file, at, &self.bytes[..len])? {
            written if written == len => Ok(()),
            written => Err(format!("{written} bytes of {len} were written").into()),
        }
    }

    pub fn sync(&self, file: &Handle) -> Result<()> {
        let done = match (self.is_atomic, self.load) {
            (true, _) => self.vfs.fatomic(&self.ctx, file, true),
            (false, Load::KeyValue) => self.vfs.fdatasync(&self.ctx, file),
            (false, _) => self.vfs.fsync(&self.ctx, file),
        };
        Ok(done?)
    }

    pub fn release(&self, file: Handle) -> Result<()> {
        Ok(self.vfs.release(&self.ctx, file)?)
    }

    /// A file with up to 16 KiB.
    fn make_mail(&mut self) -> Result<()> {
        let name = self.name(self.next);
        self.next += 1;
        let file = self.create(&name)?;
        let len = 1 + self.random.below(MOST_APPENDED);
        self.write(&file, 0, len as usize)?;
        self.sync(&file)?;
        self.release(file)
    }

    fn some_mail(&mut self) -> Result<(Handle, u64)> {
        let number = self.first + self.random.below(self.next - self.first);
        let file = self.open(&self.name(number))?;
        let mut read = vec![0; 64 << 10];
        let mut at = 0;
        loop {
            match self.vfs.read(&self.ctx, &file, at, &mut read)? {
                0 => return Ok((file, at)),
                len => at += len as u64,
            }
        }
    }

    /// A new log. The one before is gone.
    fn begin_log(&mut self) -> Result<()> {
        if let Some(before) = self.file.take() {
            self.release(before)?;
            let name = self.name(self.next - 1);
            self.vfs.unlink(&self.ctx, Ino::ROOT, name.as_bytes())?;
        }
        self.file = Some(self.create(&self.name(self.next))?);
        (self.next, self.at) = (self.next + 1, 0);
        Ok(())
    }

    /// What is made before the clock begins.
    pub fn prepare(&mut self, files: u64) -> Result<()> {
        match self.load {
            Load::Append(_) | Load::Overwrite => {
                let file = self.create(&self.name(0))?;
                // As long as a node of its map is there, and the blocks to be written over.
                for at in 0..64 {
                    self.write(&file, at * BLOCK, BLOCK as usize)?;
                    self.sync(&file)?;
                }
                (self.file, self.at) = (Some(file), 64 * BLOCK);
            }
            Load::OverwriteBeside => {
                let file = self.open(&self.name(0))?;
                (self.file, self.at) = (Some(file), 64 * BLOCK);
            }
            Load::Varmail => (0..files).try_for_each(|_| self.make_mail())?,
            Load::KeyValue => self.begin_log()?,
            Load::Create => {}
        }
        if let Some(file) = &self.file {
            self.vfs.fsync(&self.ctx, file)?;
        }
        Ok(())
    }

    /// One of the thread's calls.
    pub fn call(&mut self, number: u64) -> Result<()> {
        match self.load {
            Load::Append(len) => {
                let file = self.file.as_ref().expect("it was made");
                self.write(file, self.at, len as usize)?;
                self.sync(file)?;
                self.at += len;
            }
            Load::Overwrite | Load::OverwriteBeside => {
                let file = self.file.as_ref().expect("it was made");
                self.write(file, number % 64 * BLOCK, BLOCK as usize)?;
                self.sync(file)?;
            }
            Load::Varmail => {
                let name = self.name(self.first);
                self.vfs.unlink(&self.ctx, Ino::ROOT, name.as_bytes())?;
                self.first += 1;
                self.make_mail()?;
                let (file, end) = self.some_mail()?;
                let len = 1 + self.random.below(MOST_APPENDED);
                self.write(&file, end, len as usize)?;
                self.sync(&file)?;
                self.release(file)?;
                let (file, _) = self.some_mail()?;
                self.release(file)?;
            }
            Load::KeyValue => {
                let file = self.file.as_ref().expect("it was made");
                self.write(file, self.at, RECORD)?;
                self.sync(file)?;
                self.at += RECORD as u64;
                if (number + 1).is_multiple_of(RECORDS) {
                    let table = self.create(&format!("{}-table-{number}", self.number))?;
                    for at in (0..self.at).step_by(PIECE) {
                        self.write(&table, at, PIECE.min((self.at - at) as usize))?;
                    }
                    self.sync(&table)?;
                    self.release(table)?;
                    self.begin_log()?;
                }
            }
            Load::Create => {
                let file = self.create(&self.name(number))?;
                self.write(&file, 0, BLOCK as usize)?;
                self.sync(&file)?;
                self.release(file)?;
            }
        }
        Ok(())
    }

    pub fn end(&mut self) -> Result<()> {
        match self.file.take() {
            Some(file) => {
                self.vfs.fsync(&self.ctx, &file)?;
                self.release(file)
            }
            None => Ok(()),
        }
    }
}

/// Files with 64 blocks, made by one thread.
fn prepare_beside(vfs: &PolicyVfs, system: &System, threads: u16) -> Result<()> {
    for number in 0..threads {
        let mut worker = Worker::new(vfs, system, Load::Overwrite, number.into());
        worker.prepare(0)?;
        worker.end()?;
    }
    Ok(())
}

/// Means over calls.
pub(super) fn run(setting: &Setting, system: &System, holds: Option<&'static Holds>) -> Result<QueueRow> {
    let (setting, system) = (*setting, *system);
    sync_events::run(move || in_time(&setting, &system, holds))
        .map_err(|error| format!("{}: {} with {} threads: {error}", setting.case, system.name, setting.threads).into())
}

fn in_time(setting: &Setting, system: &System, holds: Option<&'static Holds>) -> Result<QueueRow> {
    let device = Timed::new(setting.bytes, setting.profile)?;
    let of = Use { holds, ..Use::with(setting.threads) };
    let queues = Watched::new(system.queues(device.clone(), &of)?);
    let volume = system.volume(queues.clone(), &of)?;
    let vfs = PolicyVfs::new(&volume, Policy::PerSync)?;
    if setting.load == Load::OverwriteBeside {
        // A thread of its own, so that each of the others has a zone.
        prepare_beside(&vfs, system, setting.threads)?;
    }
    let parties = u32::from(setting.threads) + 1;
    let (ready, begin) = (Gate::new(parties), Gate::new(parties));
    let work = |number: u16| -> Result<Duration> {
        let mut worker = Worker::new(&vfs, system, setting.load, number.into());
        let prepared = worker.prepare(setting.files);
        ready.pass();
        begin.pass();
        prepared?;
        let mut latency = Duration::ZERO;
        for call in 0..setting.calls {
            let begun = now();
            worker.call(call)?;
            latency += now() - begun;
        }
        let ended = worker.end();
        ended.map(|()| latency)
    };
    let (before, begun, latency) = thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..setting.threads).map(|number| scope.spawn(move || work(number))).collect();
        ready.pass();
        let home = volume.checkpoint();
        let (before, begun) = (Seen::now(&*device, &queues, &volume), now());
        if let Some(holds) = holds {
            holds.count.store(0, Ordering::Relaxed);
            holds.ns.store(0, Ordering::Relaxed);
        }
        begin.pass();
        let latency: Result<Duration> =
            running.into_iter().map(|thread| thread.join().expect("a thread of the benchmark")).sum();
        home.map_err(failed)?;
        Ok::<_, crate::Error>((before, begun, latency?))
    })?;
    let (elapsed, after) = (now() - begun, Seen::now(&*device, &queues, &volume));
    drop(vfs);
    volume.close().map_err(failed)?;
    let calls = setting.calls * u64::from(setting.threads);
    let mean = |amount: u64| amount as f64 / calls as f64;
    let counts = after.counts - before.counts;
    let writes = after.blocks.writes - before.blocks.writes;
    let commits = after.blocks.commits - before.blocks.commits;
    let expected = writes + commits * system.more_blocks() + after.watch.read - before.watch.read;
    if after.watch.home > before.watch.home {
        return Err("something went home while the clock ran".into());
    }
    if counts.blocks != expected {
        return Err(format!("the device has seen {} blocks, and not {expected}", counts.blocks).into());
    }
    Ok(QueueRow {
        suite: "mqfs".into(),
        case: setting.case.into(),
        system: system.name.into(),
        profile: setting.profile.name.into(),
        clock: "model".into(),
        threads: setting.threads.into(),
        calls,
        ns_per_call: elapsed.as_nanos() as f64 / calls as f64,
        latency_ns: mean(latency.as_nanos() as u64),
        transactions_per_call: mean(commits),
        blocks_per_call: mean(counts.blocks),
        commands_per_call: mean(counts.block_ios),
        mmio_per_call: mean(steps(system, counts)),
        depending: after.blocks.depending - before.blocks.depending,
        held_ns: held(holds),
    })
}

/// For how long a commit has kept others from changing its pages.
fn held(holds: Option<&'static Holds>) -> Option<f64> {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    holds.filter(|holds| get(&holds.count) > 0).map(|holds| get(&holds.ns) as f64 / get(&holds.count) as f64)
}

/// What was done so far.
struct Seen {
    counts: Counts,
    blocks: blocks_events::Counters,
    watch: Watch,
}

impl Seen {
    fn now(device: &dyn Transport, queues: &Watched, volume: &Volume) -> Seen {
        let blocks = volume.block_counters().unwrap_or_default();
        Seen { counts: device.counts(), blocks, watch: queues.seen() }
    }
}
