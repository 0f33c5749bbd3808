//! The multi-queue journal as an implementation: over a disk, and over a device whose queues stand in its persistent
//! memory region.

use std::sync::Arc;

use wholly_blocks::multi_queue::{DiskQueues, Mistake, MultiQueue, Options, Proof, Queues};
use wholly_blocks::{Lba, Run};
use wholly_error::Error;
use wholly_nvme::model::{Config, Faults, Model};
use wholly_nvme::{Acknowledge, Controller, DeviceQueues, Options as DriverOptions};
use wholly_sim::World;

use super::{Program, ROOM};
use crate::ccnvme;
use crate::setting::Setting;

/// Blocks of a queue's area.
const AREA: u64 = 12;

const VOLUME: [u8; 16] = *b"explored volume.";

/// The worlds, and what each is.
pub const WORLDS: [(&str, &str); 7] = [
    ("queues", "a disk, whose queues are synchronous writes"),
    ("queues-torn", "the same, and sectors tear"),
    ("ccnvme", "a device with a write cache and queues in its region, each word of which survives by itself"),
    ("ccnvme-plp", "the same without a volatile write cache"),
    ("ccnvme-ordered", "the same with a write cache, and a region that keeps the order of ordered stores"),
    ("ccnvme-lost", "a device that loses what its region had, at each crash"),
    ("ccnvme-window", "a device with a write cache, and a journal that believes the window of its queues"),
];

/// The rules of the paper that do not hold, by the name of the mend. M10 is for the world `ccnvme-window`: the head of
/// a queue need not be durable before an acknowledgement.
pub const PAPER: &[(&str, Option<Mistake>)] = &[
    ("M1", Some(Mistake::NoDependencies)),
    ("M2", Some(Mistake::SameIncarnation)),
    ("M4", Some(Mistake::SupersededEarly)),
    ("M5", Some(Mistake::OlderOutlives)),
    ("M6", Some(Mistake::NumberEarly)),
    ("M7", Some(Mistake::ReusedEarly)),
    ("M10", None),
    ("M17", Some(Mistake::NoProof)),
    ("after", Some(Mistake::NoAfter)),
];

/// The mistake that a world is with: `queues@M4`, or `queues@NoRevocation`.
fn mistake(setting: &Setting) -> Option<Mistake> {
    setting.name.split_once('@').and_then(|(_, broken)| mistake_named(broken))
}

/// The mistake with this name.
pub fn mistake_named(name: &str) -> Option<Mistake> {
    use Mistake::{ClosureOnce, DirectOverGoing, DirectUnchecked, NoRevocation, NoVerdict};
    let more = [DirectOverGoing, DirectUnchecked, NoRevocation, NoVerdict, ClosureOnce];
    let of_paper = PAPER.iter().find(|(rule, _)| *rule == name).and_then(|(_, mistake)| *mistake);
    of_paper.or_else(|| more.into_iter().find(|mistake| format!("{mistake:?}") == name))
}

/// The world with this name.
pub fn setting(name: &str) -> Option<Setting> {
    let (base, broken) = name.split_once('@').map_or((name, None), |(base, broken)| (base, Some(broken)));
    WORLDS.iter().find(|(world, _)| *world == base)?;
    let below = match base {
        "queues" => "disk",
        "queues-torn" => "disk-torn",
        "ccnvme-window" => "ccnvme",
        base => base,
    };
    let site = broken.filter(|broken| mistake_named(broken).is_none() && *broken != "M10");
    let below = site.map_or(below.to_owned(), |site| format!("{below}@{site}"));
    let setting = if base.starts_with("queues") { Setting::find(&below) } else { ccnvme::setting(&below) };
    setting.map(|setting| Setting { name: name.into(), ..setting })
}

/// Behind the blocks of a program.
pub fn log(program: &Program) -> Run {
    Run { start: Lba(program.blocks), count: 2 + AREA * u64::from(program.queues) }
}

fn options(setting: &Setting) -> Options {
    let proof = if believes_window(&setting.name) { Proof::Window } else { Proof::Checksum };
    let mistake = mistake(setting);
    Options { proof, room: Some(ROOM), held_fresh: 2, in_turn: true, mistake, ..Options::default() }
}

/// Makes an empty one, in a world without a crash.
pub fn format(world: &Arc<World>, program: &Program, setting: &Setting) -> Result<(), Error> {
    // Whatever it is going to believe.
    let options = Options { proof: Proof::Checksum, ..options(setting) };
    MultiQueue::format(&DiskQueues::new(world.log(), program.queues), log(program), VOLUME, &options)
}

/// Opens it. Returns the device, too, if that is a model.
pub fn open(
    world: &Arc<World>,
    program: &Program,
    setting: &Setting,
    is_after_crash: bool,
) -> Result<(MultiQueue, Option<Arc<Model>>), Error> {
    let (queues, model): (Arc<dyn Queues>, _) = match setting.name.starts_with("queues") {
        true => (Arc::new(DiskQueues::new(world.log(), program.queues)), None),
        false => {
            let seed = program.steps.len() as u64;
            let (queues, model) = device_queues(world, (program.queues, seed), &setting.name, is_after_crash)?;
            (Arc::new(queues), Some(model))
        }
    };
    Ok((MultiQueue::open(queues, (program.blocks, log(program)), VOLUME, options(setting))?, model))
}

/// So many queues of a device in a world with this name, as a new process finds them. The device goes on when the
/// process dies.
pub fn device_queues(
    world: &Arc<World>,
    (queues, seed): (u16, u64),
    name: &str,
    is_after_crash: bool,
) -> Result<(DeviceQueues, Arc<Model>), Error> {
    let config = Config {
        lba_bytes: 4096,
        has_write_cache: world.config().device.is_some_and(|device| device.has_write_cache),
        queues: queues + 1,
        interrupts: 0,
        seed: world.now() + seed,
        ..Config::default()
    };
    let model = Model::new("device", world.device(), config)?;
    if name.starts_with("ccnvme-lost") && is_after_crash {
        match world.now() % 2 {
            0 => model.set_faults(Faults { region: 1, ..Faults::default() }),
            _ => model.lose_region(),
        }
    }
    // The head is durable before anybody is told, where what the window names is dropped.
    let waits = believes_window(name) && !name.ends_with("@M10");
    let acknowledge = if waits { Acknowledge::HeadDurable } else { Acknowledge::Finished };
    let options = DriverOptions { queues, depth: 8, acknowledge, ..DriverOptions::default() };
    let controller = Controller::open(model.clone(), options)?;
    controller.abandon();
    Ok((DeviceQueues::new(controller)?, model))
}

/// Whether a journal in the world with this name believes the window of its queues.
pub fn believes_window(name: &str) -> bool {
    name.starts_with("ccnvme-window")
}
