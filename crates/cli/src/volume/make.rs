//! Making volumes, and changing what they are.

use super::stat::Stat;
use super::{failure, medium, patiently};
use crate::args::{MkfsArgs, TuneArgs};
use crate::error::{Exit, Failure};
use crate::output::{Ui, size};
use std::sync::atomic::{AtomicU64, Ordering};
use wholly_volume::{Kind, Location, Volume, VolumeOptions};

/// Makes a volume.
pub fn mkfs(args: &MkfsArgs, ui: &Ui) -> Result<Exit, Failure> {
    let options = VolumeOptions {
        medium: medium(args.medium),
        label: args.label.clone().unwrap_or_default(),
        force: args.force,
        engine: args.engine,
        queues: args.queues,
        data: args.data,
        ..VolumeOptions::default()
    };
    let failed = |error| failure("mkfs", &args.volume, error);
    let Location { file, kind } = Location::of(&args.volume);
    if args.size.is_none() && kind == Kind::File && !file.exists() {
        let why = "it does not exist, and no --size says how large it is to be";
        return Err(Failure::new(format!("mkfs {}", args.volume.display()), why).exit(Exit::USAGE));
    }
    let (done, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let watch = |so_far, bytes| {
        done.store(so_far, Ordering::Relaxed);
        all.store(bytes, Ordering::Relaxed);
    };
    let bytes = |bytes: &AtomicU64| size(bytes.load(Ordering::Relaxed));
    let make = || Volume::make(&args.volume, args.size.unwrap_or(0), &options, &watch);
    ui.telling("making the volume", || format!("{} of {} written", bytes(&done), bytes(&all)), make).map_err(failed)?;
    ui.emit("mkfs", &Stat::of("mkfs", &args.volume)?, |made| {
        let promise = match (made.engine(), made.emulated) {
            ("none", _) => "the engine gives no consistency: after a crash, anything may be lost\n",
            (_, true) => "persistence is emulated: the engine keeps what was done over the death of processes only\n",
            (_, false) => "calls and groups are there wholly or not at all after a crash\n",
        };
        made.made() + promise
    })?;
    Ok(Exit::DONE)
}

/// Makes a volume larger or smaller, or gives it another label.
pub fn tune(args: &TuneArgs, ui: &Ui) -> Result<Exit, Failure> {
    let options = VolumeOptions::default();
    let failed = |error| failure("tune", &args.volume, error);
    if let Some(size) = args.size {
        patiently(|| Volume::resize(&args.volume, size, &options)).map_err(failed)?;
    }
    if let Some(label) = &args.label {
        patiently(|| Volume::set_label(&args.volume, label, &options)).map_err(failed)?;
    }
    ui.emit("tune", &Stat::of("tune", &args.volume)?, Stat::made)?;
    Ok(Exit::DONE)
}
