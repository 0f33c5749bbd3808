//! Figure 14: a file is made, 4 KiB are written, and it is synced. The stages of the paper, of which four are the
//! processor's, by the real clock of this machine, and the wait is the model's.
//!
//! | stage | here |
//! |---|---|
//! | S-pM | the call that makes the file, without handing over and waiting: a name's call is a transaction of its own |
//! | S-iD | the write, and the sync up to where pages of metadata are changed: content gets its blocks and pages |
//! | S-iM | pages of metadata are changed, copied and ordered, under their lock |
//! | S-JH | both transactions are handed over: checksums, the description, a copy into pages that the device reads, entries and doorbells. The model's own work is in it |
//! | W-x | what the same calls take by the model's clock: what goes over PCIe, and the device |

use std::sync::Arc;
use std::time::Duration;

use nvme_events::Transport;
use nvme_events::model::Profile;
use rustix::fs::{Mode, OFlags};
use sync_events::now;
use volume_events::{Holds, PolicyVfs};
use wholly_vfs::{Context, Ino, Policy, Vfs};

use super::counts::BLOCK;
use super::device::model;
use super::runs::{FEW_BYTES, Load, Setting, run};
use super::systems::{System, Use};
use super::watched::{Watch, Watched};
use crate::Result;
use crate::fcfs::subject::failed;
use crate::report::StageRow;
use crate::stats::median;

/// Bytes of the device.
const BYTES: u64 = 1 << 30;
/// Files; of them, those that warm up.
const FILES: usize = 600;
const WARM_UP: usize = 100;
const FEW: usize = 4;

/// Nanoseconds of one file.
#[derive(Default)]
struct Stages {
    parent: Vec<f64>,
    data: Vec<f64>,
    metadata: Vec<f64>,
    description: Vec<f64>,
    told: Vec<f64>,
}

fn ns(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// The row of a system.
pub(super) fn row(system: &System, profile: Profile, is_tiny: bool) -> Result<StageRow> {
    let (files, warm_up, bytes) = if is_tiny { (FEW, 1, FEW_BYTES) } else { (FILES, WARM_UP, BYTES) };
    let holds: &'static Holds = Box::leak(Box::default());
    let device: Arc<dyn Transport> = model(bytes, None)?;
    let of = Use { holds: Some(holds), ..Use::with(1) };
    let queues = Watched::new(system.queues(device, &of)?);
    let volume = system.volume(queues.clone(), &of)?;
    let (vfs, ctx) = (PolicyVfs::new(&volume, Policy::PerSync)?, Context::superuser());
    let held = || Duration::from_nanos(holds.ns.load(std::sync::atomic::Ordering::Relaxed));
    let bytes = vec![7; BLOCK as usize];
    let mut stages = Stages::default();
    // What a call takes without handing over and waiting, and what handing over takes.
    let call = |work: &mut dyn FnMut() -> Result<()>| -> Result<(Duration, Duration, Duration)> {
        let (before, hold, begun) = (queues.seen(), held(), now());
        work()?;
        let (took, after) = (now() - begun, queues.seen());
        let (commit, wait) = (of_both(after, before, |seen| seen.commit), of_both(after, before, |seen| seen.wait));
        Ok((took.saturating_sub(commit + wait), commit, held() - hold))
    };
    for number in 0..files {
        let mut file = None;
        let (parent, first, _) = call(&mut || {
            let (name, mode) = (format!("file-{number}"), Mode::RUSR | Mode::WUSR);
            let (made, handle) = vfs.create(&ctx, Ino::ROOT, name.as_bytes(), OFlags::RDWR, mode)?;
            vfs.forget(made.ino, 1);
            file = Some(handle);
            Ok(())
        })?;
        let file = file.expect("it was made");
        let (write, ..) = call(&mut || Ok(vfs.write(&ctx, &file, 0, &bytes).map(drop)?))?;
        let (sync, second, metadata) = call(&mut || match system.is_atomic {
            true => Ok(vfs.fatomic(&ctx, &file, false)?),
            false => Ok(vfs.fsync(&ctx, &file)?),
        })?;
        vfs.release(&ctx, file)?;
        if number >= warm_up {
            stages.parent.push(ns(parent));
            stages.data.push(ns(write + sync.saturating_sub(metadata)));
            stages.metadata.push(ns(metadata));
            stages.description.push(ns(first + second));
            stages.told.push(ns(sync + second));
        }
    }
    drop(vfs);
    volume.close().map_err(failed)?;
    let of = |all: &[f64]| median(all).ok_or_else(|| crate::Error::from("no file was made"));
    let waits = run(&Setting::new("fig14", Load::Create, profile, 1, is_tiny), system, None)?;
    let (parent, data, metadata) = (of(&stages.parent)?, of(&stages.data)?, of(&stages.metadata)?);
    let description = of(&stages.description)?;
    Ok(StageRow {
        suite: "mqfs".into(),
        case: "fig14".into(),
        system: system.name.into(),
        profile: profile.name.into(),
        clock: "real, but for W-x: model".into(),
        data_ns: data,
        metadata_ns: metadata,
        parent_ns: parent,
        description_ns: description,
        wait_ns: waits.latency_ns,
        all_ns: data + metadata + parent + description + waits.latency_ns,
        told_ns: system.is_atomic.then(|| of(&stages.told)).transpose()?,
    })
}

fn of_both(after: Watch, before: Watch, of: fn(&Watch) -> Duration) -> Duration {
    of(&after) - of(&before)
}
