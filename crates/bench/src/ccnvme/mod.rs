//! The suite `ccnvme`: transactions of blocks on a device (ccNVMe, sections 4.3 and 7.2), counted and by the times of a
//! profile. No figure is one of hardware: the device is the model, or QEMU's controller, and each row says which.
//!
//! A transaction has N blocks of 4 KiB and one block that describes them.
//!
//! | system | what it does |
//! |---|---|
//! | `classic` | N + 1 writes, waits, the commit block, waits: a journal as JBD2 has it |
//! | `horae` | N + 2 writes, and one wait: Horae's order |
//! | `ccnvme` | one transaction on a queue in the region, and waits |
//! | `ccnvme_atomic` | the same, and does not wait. The rest of it stands beside: `ccnvme_atomic_rest` |
//!
//! `classic` and `horae` are made of the driver's own queues in memory, with a doorbell for each command and each
//! completion, and are not slowed down. Merging is off.
//!
//! # Counts
//!
//! They are what the device has seen, not what the driver believes. `mmio` takes the tail in the region and its
//! doorbell for one store, as the paper does; `mmio_raw` has both. QEMU coalesces interrupts: there are 1 to N + 1.
//!
//! # Times
//!
//! The profile's, of the paper's SSDs: nothing of a processor is in them but stores, reads over PCIe and interrupts. So
//! the ratios say what follows from counts and from what waits for what; they are the same on each machine.

mod systems;

use std::sync::Arc;

use wholly_blocks::Lba;
use wholly_nvme::model::{Config, InMemory, Medium, Model, Profile};
use wholly_nvme::qtest::{Qemu, QemuOptions};
use wholly_nvme::{Controller, Counts, Life, Options, Transport};

use crate::report::{Bound, RateRow, Report, Skipped, TransferRow};
use crate::stats::median;
use crate::suites::CCNVME;
use crate::{Error, Result};
use systems::{Kind, Worker};

/// Blocks of data in the transactions of table 1.
const TABLE_1: [u64; 6] = [1, 2, 4, 8, 16, 64];

/// The same of figure 10: 4 to 64 KiB.
const FIGURE_10: [u64; 5] = [1, 2, 4, 8, 16];

/// Transactions of a rate, and of them those that warm up.
const TRANSACTIONS: u64 = 1200;
const WARM_UP: u64 = 400;

/// Transactions in flight at saturation.
const IN_FLIGHT: usize = 48;

/// Blocks of the device.
const BLOCKS: u64 = 4096;

/// Runs the suite.
///
/// # Errors
/// An unknown device or case; QEMU's, if it is not installed.
pub fn run(cases: &[String], systems: &[String], device: &str) -> Result<Report> {
    if let Some(unknown) = cases.iter().find(|name| CCNVME.iter().all(|case| case.name != **name)) {
        return Err(format!("no case {unknown:?} in the suite ccnvme").into());
    }
    if let Some(unknown) = systems.iter().find(|name| Kind::named(name).is_none()) {
        return Err(format!("no system {unknown:?} in the suite ccnvme").into());
    }
    let profile = match device {
        "model" | "qemu" => Profile::named("p5800x").expect("it is there"),
        name => Profile::named(name).ok_or_else(|| format!("no device {name:?}: model, qemu, p5800x, 905p or 750"))?,
    };
    let mut report = Report::new(&[]);
    let is_asked = |name: &str| cases.is_empty() || cases.iter().any(|case| case == name);
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| systems.is_empty() || systems.iter().any(|name| name == kind.name()))
        .collect();
    if is_asked("table1") {
        let is_qemu = device == "qemu";
        if is_qemu && kinds.contains(&Kind::CcnvmeAtomic) {
            report.skipped.push(Skipped {
                case: "table1".into(),
                medium: "qemu".into(),
                system: Some(Kind::CcnvmeAtomic.name().into()),
                reason: "QEMU's controller does not stand still until the commit has returned".into(),
            });
        }
        for n in TABLE_1 {
            for kind in kinds.iter().filter(|kind| !is_qemu || **kind != Kind::CcnvmeAtomic) {
                report.transfers.extend(table_1(*kind, n, is_qemu)?);
            }
        }
    }
    if is_asked("tx") && device != "qemu" {
        figure_10(&kinds, profile, &mut report)?;
    }
    if is_asked("pmr") && device != "qemu" {
        figure_5(profile, &mut report)?;
    }
    Ok(report)
}

fn options() -> Options {
    Options { queues: 1, depth: 256, merge: false, ..Options::default() }
}

const LIFE: Life = Life { volume: *b"a measured one..", incarnation: 1 };

/// A device without a volatile write cache, as the paper's SSDs are.
fn model(profile: Option<Profile>) -> Result<Arc<Model>> {
    let medium: Arc<dyn Medium> = Arc::new(InMemory::new(BLOCKS * 4096, 1 << 20));
    let config = Config { has_write_cache: false, lba_bytes: 4096, profile, ..Config::default() };
    Ok(Model::new("nvme-model", medium, config)?)
}

fn of_formula(kind: Kind, n: u64, rest: bool) -> [u64; 4] {
    match (kind, rest) {
        (Kind::Classic | Kind::Horae, _) => [2 * (n + 2), 2 * (n + 2), n + 2, n + 2],
        (Kind::Ccnvme, _) => [4, n + 1, n + 1, n + 1],
        (Kind::CcnvmeAtomic, false) => [2, 0, 0, 0],
        (Kind::CcnvmeAtomic, true) => [2, n + 1, n + 1, n + 1],
    }
}

fn transfer_row(kind: Kind, name: &str, n: u64, rest: bool, counts: Counts, is_qemu: bool) -> TransferRow {
    // The doorbell of a queue whose tail stands in the region is the second store of one step.
    let doubled = if kind.is_in_region() { counts.sq_doorbells } else { 0 };
    let formula = of_formula(kind, n, rest);
    let found = [counts.mmio_raw() - doubled, counts.dma_queue(), counts.block_ios, counts.interrupts];
    let is_right = |at: usize| match at {
        3 if is_qemu => found[3] <= formula[3] && (found[3] > 0 || formula[3] == 0),
        at => found[at] == formula[at],
    };
    TransferRow {
        case: "table1".into(),
        system: name.into(),
        device: if is_qemu { "QEMU" } else { "the model" }.into(),
        n,
        mmio: found[0],
        mmio_raw: counts.mmio_raw(),
        barriers: counts.barriers,
        region_bytes: counts.region_bytes,
        dma_queue: found[1],
        block_ios: found[2],
        interrupts: found[3],
        formula,
        is_formula: (0..4).all(is_right),
    }
}

/// What one transaction moves.
fn table_1(kind: Kind, n: u64, is_qemu: bool) -> Result<Vec<TransferRow>> {
    let directory = tempfile::tempdir()?;
    let transport: Arc<dyn Transport> = match is_qemu {
        true => {
            for (name, len) in [("image", BLOCKS * 4096), ("pmr", 1 << 20)] {
                std::fs::File::create(directory.path().join(name))?.set_len(len)?;
            }
            Qemu::start(directory.path(), &QemuOptions::default())?
        }
        false => model(None)?,
    };
    let controller = Controller::open(transport.clone(), options())?;
    let mut worker = Worker::new(kind, &controller)?;
    // The first one takes memory, and a flush of QEMU's cache is not counted.
    worker.transaction(n, 0)?;
    worker.settle()?;
    let before = transport.counts();
    worker.transaction(n, 1)?;
    let committed = transport.counts();
    worker.settle()?;
    let after = transport.counts();
    Ok(match kind {
        Kind::CcnvmeAtomic => vec![
            transfer_row(kind, kind.name(), n, false, committed - before, is_qemu),
            transfer_row(kind, "ccnvme_atomic_rest", n, true, after - committed, is_qemu),
        ],
        _ => vec![transfer_row(kind, kind.name(), n, false, after - before, is_qemu)],
    })
}

/// Time from one transaction to the next, of one thread, and the part of the bandwidth that is used.
fn rate(kind: Kind, n: u64, profile: Profile, in_flight: usize) -> Result<(f64, f64)> {
    let model = model(Some(profile))?;
    let controller = Controller::open(model.clone(), options())?;
    let mut worker = Worker::new(kind, &controller)?;
    let (mut begun, mut blocks) = (model.now(), 0);
    let mut warm = WARM_UP;
    let mut done = 0;
    while done < TRANSACTIONS {
        if in_flight > 1 {
            worker.keep_in_flight(n, in_flight)?;
        } else {
            worker.transaction(n, done)?;
        }
        done = worker.finished();
        if done >= warm {
            (begun, blocks, warm) = (model.now(), model.counts().blocks, u64::MAX);
        }
    }
    let (spent, moved) = (model.now() - begun, model.counts().blocks - blocks);
    let ns = spent.as_nanos() as f64;
    let used = moved as f64 * 4096.0 / profile.bytes_per_s as f64 / (ns / 1e9);
    Ok((ns / (done - WARM_UP) as f64, used))
}

fn figure_10(kinds: &[Kind], profile: Profile, report: &mut Report) -> Result<()> {
    let mut row = |case: &str, kind: Kind, n, (ns, used): (f64, f64)| {
        report.rates.push(RateRow {
            case: case.into(),
            system: kind.name().into(),
            profile: profile.name.into(),
            n,
            ns_per_transaction: ns,
            bandwidth_used: used,
        });
    };
    for n in FIGURE_10 {
        for kind in kinds {
            row("tx", *kind, n, rate(*kind, n, profile, 1)?);
        }
    }
    // Many processors: they are not what transactions wait for.
    let device_alone = Profile { posted_ns: 0, read_ns: 0, interrupt_ns: 0, ..profile };
    for kind in kinds {
        row("tx_saturated", *kind, 1, rate(*kind, 1, device_alone, IN_FLIGHT)?);
    }
    let found = |case: &str, kind: Kind, n: u64| {
        let mut rows = report.rates.iter();
        let row = rows.find(|row| row.case == case && row.system == kind.name() && row.n == n);
        row.ok_or_else(|| format!("{} was not measured in {case}", kind.name()))
    };
    // As the paper does: the mean over sizes.
    let over = |fast: Kind, slow: Kind| {
        let ratio = |n| Ok(found("tx", slow, n)?.ns_per_transaction / found("tx", fast, n)?.ns_per_transaction);
        let ratios: Result<Vec<f64>, String> = FIGURE_10.into_iter().map(ratio).collect();
        ratios.map(|ratios| ratios.iter().sum::<f64>() / ratios.len() as f64)
    };
    let used = |kind| Ok(found("tx", kind, 16)?.bandwidth_used);
    let saturated = |slow| {
        let fast = found("tx_saturated", Kind::CcnvmeAtomic, 1)?.ns_per_transaction;
        Ok(found("tx_saturated", slow, 1)?.ns_per_transaction / fast)
    };
    let at = |what: &str| format!("tx, times of {}: {what}", profile.name);
    let bounds = [
        Bound::at_least(at("ccnvme_atomic over classic (paper: 3)"), 2.5, over(Kind::CcnvmeAtomic, Kind::Classic)),
        Bound::at_least(at("ccnvme_atomic over horae (paper: 2.2)"), 1.8, over(Kind::CcnvmeAtomic, Kind::Horae)),
        Bound::at_least(at("ccnvme over classic (paper: 1.5)"), 1.4, over(Kind::Ccnvme, Kind::Classic)),
        Bound::at_least(at("ccnvme over horae (paper: 1.2)"), 1.1, over(Kind::Ccnvme, Kind::Horae)),
        Bound::at_least(at("bandwidth used by ccnvme_atomic at 64 KiB (paper: 0.93)"), 0.90, used(Kind::CcnvmeAtomic)),
        Bound::at_least(at("transactions at saturation, over classic (paper: 1.5)"), 1.45, saturated(Kind::Classic)),
        Bound::at_least(at("transactions at saturation, over horae (paper: 1.5)"), 1.45, saturated(Kind::Horae)),
    ];
    // How much the others use depends on the profile alone: their rows say it. Of systems that were not asked for there
    // is none.
    report.bounds.extend(bounds.into_iter().filter(|bound| bound.why.is_none()));
    Ok(())
}

/// Stores to the region, with a barrier behind each and without: parameters of the profile, no measurement.
fn figure_5(profile: Profile, report: &mut Report) -> Result<()> {
    use wholly_media::Site;
    const SITE: Site = Site("bench.pmr");
    let model = model(Some(profile))?;
    let controller = Controller::open(model.clone(), options())?;
    let by = wholly_nvme::spec::ReadBarrier::OfStatus;
    let region = model.region();
    for bytes in [64usize, 128, 256, 512, 1024, 4096] {
        for (system, is_persistent) in [("write", false), ("write+sync", true)] {
            let mut times = Vec::new();
            for _ in 0..64 {
                let begun = model.now();
                region.store(SITE, 64 << 10, &vec![1; bytes])?;
                if is_persistent {
                    region.order(SITE);
                    region.barrier(SITE, by)?;
                }
                times.push((model.now() - begun).as_nanos() as f64);
            }
            report.rates.push(RateRow {
                case: format!("pmr_{bytes}"),
                system: system.into(),
                profile: profile.name.into(),
                n: 0,
                ns_per_transaction: median(&times).ok_or_else(|| Error::from("no time was taken"))?,
                bandwidth_used: 0.0,
            });
        }
    }
    drop(controller);
    Ok(())
}

/// The blocks of the `number`th transaction: its description, its data, and its commit block.
fn blocks_of(n: u64, number: u64) -> (Lba, Vec<Lba>, Lba) {
    // Not next to each other, and far from those of transactions that are in flight.
    let place = |i: u64| Lba((number * 331 + i * 37) % BLOCKS);
    (place(0), (1..=n).map(place).collect(), place(n + 1))
}
