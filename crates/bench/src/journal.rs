//! The suite `journal`: transactions of blocks on a disk, by a journal for each queue, and by the orders of others,
//! made of the same writes. Wall time on a loop device, so the disk is emulated; ratios of one run, in turns.
//!
//! A transaction has N blocks of 4 KiB and one block that describes them. Each thread has an area of its own, and waits
//! for each of its transactions.
//!
//! | system | what it does |
//! |---|---|
//! | `multi_queue` | all of it by one synchronous write (`blocks/multi_queue`, a queue for each thread) |
//! | `classic` | N + 1 blocks by one synchronous write, then the commit block by another: JBD2's order |
//! | `horae` | N + 1 blocks and the commit block by two writes, and one flush: Horae's order |
//! | `log` | one log for all threads, which share its writes (`blocks/log`) |
//!
//! - `tx`: N = 1 and 4, one thread and two.
//! - `writers`: sixteen threads, N = 1, two queues: synchronous writes for each transaction.
//! - `recovery`: of two full areas of 32 MiB, in memory.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use wholly_blocks::batch::Batch;
use wholly_blocks::log::{LogDevice, LogOptions, Ring, RingSeed};
use wholly_blocks::multi_queue::{DiskQueues, MultiQueue, Options};
use wholly_blocks::{BLOCK, Lba, Page, Placement, Run, Tag, TxBlocks};
use wholly_media::disk::DiskRegion;
use wholly_media::{Guarantees, Region, Site};

use crate::harness::Plan;
use crate::place::{LoopFs, Medium};
use crate::report::{Bound, JournalRow, Report};
use crate::stats::median;
use crate::{Error, Result};

const SITE: Site = Site("bench.journal");

/// Blocks that transactions write.
const BLOCKS: u64 = 4096;

/// Blocks of an area.
const AREA: u64 = 8192;

const VOLUME: [u8; 16] = *b"a measured one..";

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    MultiQueue,
    Classic,
    Horae,
    Log,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::MultiQueue, Kind::Classic, Kind::Horae, Kind::Log];

    fn name(self) -> &'static str {
        match self {
            Kind::MultiQueue => "multi_queue",
            Kind::Classic => "classic",
            Kind::Horae => "horae",
            Kind::Log => "log",
        }
    }
}

/// A disk that counts synchronous writes and flushes.
struct Counted {
    inner: DiskRegion,
    writes: AtomicU64,
}

impl Region for Counted {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> wholly_media::Result<()> {
        self.inner.read(offset, bytes)
    }
    fn write(&self, site: Site, offset: u64, bytes: &[u8]) -> wholly_media::Result<()> {
        self.inner.write(site, offset, bytes)
    }
    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.fence(site)
    }
    fn write_through(&self, site: Site, offset: u64, bytes: &[u8]) -> wholly_media::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.write_through(site, offset, bytes)
    }
    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.set_len(site, len)
    }
}

/// One system on a file of its own.
enum System {
    Blocks(Arc<dyn TxBlocks>),
    /// Each thread has an area.
    Plain(Kind, Vec<AtomicU64>),
}

struct Entrant {
    kind: Kind,
    disk: Arc<Counted>,
    system: System,
}

fn log_of(queues: u64) -> Run {
    Run { start: Lba(BLOCKS), count: 2 + queues * AREA }
}

fn disk(directory: &Path, name: &str, blocks: u64) -> Result<Arc<Counted>> {
    let path = directory.join(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK as u64)?;
    // Written once, so that no write meets an extent that was not.
    let zeros = vec![0; 1 << 20];
    for at in (0..blocks * BLOCK as u64).step_by(zeros.len()) {
        let len = zeros.len().min((blocks * BLOCK as u64 - at) as usize);
        rustix::io::pwrite(&file, &zeros[..len], at)?;
    }
    rustix::fs::fsync(&file)?;
    Ok(Arc::new(Counted { inner: DiskRegion::open(file.into(), name)?, writes: AtomicU64::new(0) }))
}

impl Entrant {
    fn new(kind: Kind, directory: &Path, queues: u16) -> Result<Entrant> {
        let log = log_of(queues.into());
        let disk = disk(directory, kind.name(), log.start.0 + log.count)?;
        let system = match kind {
            Kind::MultiQueue => {
                let queues = Arc::new(DiskQueues::new(disk.clone(), queues));
                let options = Options::default();
                MultiQueue::format(&*queues, log, VOLUME, &options)?;
                System::Blocks(Arc::new(MultiQueue::open(queues, (BLOCKS, log), VOLUME, options)?))
            }
            Kind::Log => {
                let area = Run { start: log.start, count: Ring::area_of(BLOCKS).max(AREA) };
                let device = LogDevice::new(disk.clone(), BLOCKS, area, (RingSeed::new(1), 1), LogOptions::default());
                System::Blocks(Arc::new(Batch::new(Arc::new(device), 256)))
            }
            kind => System::Plain(kind, (0..queues).map(|_| AtomicU64::new(0)).collect()),
        };
        Ok(Entrant { kind, disk, system })
    }

    /// One transaction of a thread.
    fn transaction(&self, thread: u64, number: u64, n: u64, page: &Page) -> Result<()> {
        match &self.system {
            System::Blocks(blocks) => {
                let tx = blocks.begin()?;
                blocks.admit(tx, n)?;
                for i in 0..n {
                    let at = thread * 256 + (number * 7 + 3 * i) % 256;
                    blocks.write(SITE, tx, Lba(at), page.clone(), Placement::Overwrite, Tag::Data)?;
                }
                let sequence = blocks.order(SITE, &[tx], &[])?;
                blocks.wait(SITE, sequence)?;
            }
            System::Plain(kind, heads) => {
                let (all, head) = (n + 2, &heads[thread as usize % heads.len()]);
                let mut at = head.fetch_add(all, Ordering::Relaxed) % AREA;
                if at + all > AREA {
                    head.store(all, Ordering::Relaxed);
                    at = 0;
                }
                let place = |i: u64| (BLOCKS + 2 + thread * AREA + at + i) * BLOCK as u64;
                let bytes = page[..].repeat(n as usize + 1);
                if *kind == Kind::Classic {
                    self.disk.write_through(SITE, place(0), &bytes)?;
                    self.disk.write_through(SITE, place(n + 1), &page[..])?;
                } else {
                    self.disk.write(SITE, place(0), &bytes)?;
                    self.disk.write(SITE, place(n + 1), &page[..])?;
                    self.disk.fence(SITE)?;
                }
            }
        }
        Ok(())
    }

    /// Transactions of some threads for so long: ns for each, and synchronous writes for each.
    fn turn(&self, threads: u64, n: u64, turn: Duration) -> Result<(f64, f64)> {
        let (before, begun) = (self.disk.writes.load(Ordering::Relaxed), Instant::now());
        let work = |thread: u64| -> Result<u64> {
            let (page, mut done) = (Page::new(&[thread as u8 + 1; BLOCK]), 0);
            while done < 4 || begun.elapsed() < turn {
                self.transaction(thread, done, n, &page)?;
                done += 1;
            }
            Ok(done)
        };
        let done: Result<Vec<u64>> = std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || work(thread).map_err(|e| e.to_string()))).collect();
            all.into_iter().map(|one| Ok(one.join().expect("a thread of a turn")?)).collect()
        });
        let done = done?.iter().sum::<u64>() as f64;
        let writes = self.disk.writes.load(Ordering::Relaxed) - before;
        Ok((begun.elapsed().as_nanos() as f64 / done, writes as f64 / done))
    }
}

/// Runs the suite.
///
/// # Errors
/// The medium's, and what is missing for it.
pub fn run(plan: &Plan, systems: &[String], show: &mut dyn FnMut(&str)) -> Result<Report> {
    let is_asked = |name: &str| plan.cases.iter().any(|case| case.name == name);
    let medium = plan.media.iter().find(|medium| !medium.is_pmem()).cloned();
    let medium = medium.unwrap_or(Medium::Loop(LoopFs::Ext4, "/var/tmp".into()));
    let mut report = Report::new(std::slice::from_ref(&medium));
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| systems.is_empty() || systems.iter().any(|name| name == kind.name()))
        .collect();
    let mut bounds = Vec::new();
    if is_asked("tx") {
        for (n, threads) in [(1, 1), (1, 2), (4, 1), (4, 2)] {
            show(&format!("tx: {n} blocks, {threads} threads"));
            let rows = measured(plan, &medium, &kinds, "tx", (n, threads, threads as u16))?;
            let of = |kind: Kind| {
                let row = rows.iter().find(|row| row.system == kind.name());
                row.map(|row| row.ns_per_transaction).ok_or_else(|| format!("{} was not measured", kind.name()))
            };
            for (base, bound) in [(Kind::Classic, 1.5), (Kind::Horae, 1.2)] {
                let ratio = of(Kind::MultiQueue).and_then(|own| Ok(of(base)? / own));
                let what = format!("tx, N = {n}, {threads} threads: rate of multi_queue over {}", base.name());
                bounds.push(Bound::at_least(what, bound, ratio));
            }
            report.journals.extend(rows);
        }
    }
    if is_asked("writers") {
        show("writers");
        let kinds: Vec<Kind> =
            kinds.iter().copied().filter(|kind| matches!(kind, Kind::MultiQueue | Kind::Log)).collect();
        let rows = measured(plan, &medium, &kinds, "writers", (1, 16, 2))?;
        if let Some(row) = rows.iter().find(|row| row.system == "multi_queue") {
            let what = "writers: synchronous writes for each of the transactions of 16 threads, 2 queues";
            bounds.push(Bound::at_most(what, 0.25, Ok(row.writes_per_transaction)));
        }
        report.journals.extend(rows);
    }
    if is_asked("recovery") {
        show("recovery");
        let seconds = recovery(plan.tiny)?;
        bounds.push(Bound::at_most("recovery: of two full areas of 32 MiB in memory, s", 0.5, Ok(seconds)));
    }
    // Figures of a tiny run are none.
    report.bounds =
        if plan.tiny { Vec::new() } else { bounds.into_iter().filter(|bound| bound.why.is_none()).collect() };
    Ok(report)
}

/// Systems in turns.
fn measured(
    plan: &Plan,
    medium: &Medium,
    kinds: &[Kind],
    case: &str,
    (n, threads, queues): (u64, u64, u16),
) -> Result<Vec<JournalRow>> {
    let place = medium.make(&plan.cases[0], kinds.len())?;
    let entrants = kinds.iter().map(|kind| Entrant::new(*kind, &place.dir, queues)).collect::<Result<Vec<_>>>()?;
    let mut samples = vec![Vec::new(); entrants.len()];
    let turn = if plan.tiny { Duration::ZERO } else { plan.turn };
    for number in 0..=plan.turns {
        for i in 0..entrants.len() {
            let at = (i + number) % entrants.len();
            let sample = entrants[at].turn(threads, n, turn)?;
            // The first turn warms up.
            if number > 0 {
                samples[at].push(sample);
            }
        }
    }
    let row = |(entrant, samples): (&Entrant, &Vec<(f64, f64)>)| {
        let of = |of: fn(&(f64, f64)) -> f64| {
            median(&samples.iter().map(of).collect::<Vec<_>>()).ok_or_else(|| Error::from("no turn was made"))
        };
        Ok(JournalRow {
            case: case.into(),
            system: entrant.kind.name().into(),
            medium: medium.name(),
            n,
            threads,
            ns_per_transaction: of(|sample| sample.0)?,
            writes_per_transaction: of(|sample| sample.1)?,
        })
    };
    entrants.iter().zip(&samples).map(row).collect()
}

/// How long the recovery of full areas takes, in s.
fn recovery(is_tiny: bool) -> Result<f64> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let log = log_of(2);
    let disk = disk(directory.path(), "full", log.start.0 + log.count)?;
    let queues = || Ok::<_, Error>(Arc::new(DiskQueues::new(disk.clone(), 2)));
    let options = Options { in_turn: true, ..Options::default() };
    MultiQueue::format(&*queues()?, log, VOLUME, &options)?;
    let journal = MultiQueue::open(queues()?, (BLOCKS, log), VOLUME, options.clone())?;
    // 32 images and a description each.
    let (page, transactions) = (Page::new(&[7; BLOCK]), if is_tiny { 8 } else { 2 * (AREA / 33 - 1) });
    for number in 0..transactions {
        let tx = journal.begin()?;
        for i in 0..32 {
            journal.write(SITE, tx, Lba((number * 32 + i) % BLOCKS), page.clone(), Placement::Overwrite, Tag::Data)?;
        }
        let sequence = journal.order(SITE, &[tx], &[])?;
        journal.wait(SITE, sequence)?;
    }
    drop(journal);
    let begun = Instant::now();
    MultiQueue::open(queues()?, (BLOCKS, log), VOLUME, options)?;
    Ok(begun.elapsed().as_secs_f64())
}
