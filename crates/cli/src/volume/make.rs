//! Making volumes, and showing what they are.

use super::{failure, medium, open, patiently};
use crate::args::{MkfsArgs, TuneArgs};
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, size};
use serde::Serialize;
use std::path::Path;
use wholly_volume::{Volume, VolumeOptions, VolumeStat};

#[derive(Serialize)]
struct Shown {
    volume: Name,
    volume_id: String,
    label: String,
    engine: String,
    medium: String,
    emulated: bool,
    block_bytes: u64,
    blocks: u64,
    free_blocks: u64,
    inodes: u64,
    free_inodes: u64,
    /// How often it was mounted.
    incarnation: u64,
}

fn shown(path: &Path, stat: VolumeStat) -> Shown {
    Shown {
        volume: Name::from(path),
        volume_id: stat.volume_id.iter().map(|byte| format!("{byte:02x}")).collect(),
        label: stat.label,
        engine: stat.engine,
        medium: stat.medium,
        emulated: stat.emulated,
        block_bytes: stat.block_bytes,
        blocks: stat.blocks,
        free_blocks: stat.free_blocks,
        inodes: stat.inodes,
        free_inodes: stat.free_inodes,
        incarnation: stat.incarnation,
    }
}

/// Makes a volume.
pub fn mkfs(args: &MkfsArgs, ui: &Ui) -> Result<Exit, Failure> {
    let options = VolumeOptions {
        medium: medium(args.medium),
        label: args.label.clone().unwrap_or_default(),
        force: args.force,
        engine: args.engine,
        ..VolumeOptions::default()
    };
    let failed = |error| failure("mkfs", &args.volume, error);
    if args.size.is_none() && !args.volume.exists() {
        let why = "it does not exist, and no --size says how large it is to be";
        return Err(Failure::new(format!("mkfs {}", args.volume.display()), why).exit(Exit::USAGE));
    }
    let stat = Volume::make(&args.volume, args.size.unwrap_or(0), &options).map_err(failed)?;
    let made = shown(&args.volume, stat);
    ui.emit("mkfs", &made, |made| {
        let bytes = size(made.blocks * made.block_bytes);
        let promise = match (&*made.engine, made.emulated) {
            ("none", _) => "the engine gives no consistency: after a crash, anything may be lost\n",
            (_, true) => "persistence is emulated: the engine keeps what was done over the death of processes only\n",
            (_, false) => "calls and groups are there wholly or not at all after a crash\n",
        };
        format!("{} is a volume of {bytes}, engine {}, on {}\n{promise}", made.volume, made.engine, made.medium)
    })?;
    Ok(Exit::DONE)
}

/// Makes a volume larger or smaller.
pub fn tune(args: &TuneArgs, ui: &Ui) -> Result<Exit, Failure> {
    let options = VolumeOptions::default();
    let failed = |error| failure("tune", &args.volume, error);
    patiently(|| Volume::resize(&args.volume, args.size, &options)).map_err(failed)?;
    let volume = open("tune", &args.volume)?;
    let tuned = shown(&args.volume, volume.stat());
    volume.close().map_err(failed)?;
    ui.emit("tune", &tuned, |tuned| format!("{} has {} now\n", tuned.volume, size(tuned.blocks * tuned.block_bytes)))?;
    Ok(Exit::DONE)
}

/// Shows a volume that is not mounted.
pub fn stat(path: &Path, ui: &Ui) -> Result<Exit, Failure> {
    let volume = open("stat", path)?;
    let stat = shown(path, volume.stat());
    volume.close().map_err(|error| failure("stat", path, error))?;
    ui.emit("stat", &stat, |stat| {
        let (all, free) = (stat.blocks * stat.block_bytes, stat.free_blocks * stat.block_bytes);
        format!(
            "volume       {}\nid           {}\nlabel        {}\nengine       {}\nmedium       {}\n\
             size         {}, {} free\ninodes       {}, {} free\nmounted      {} times\n",
            stat.volume,
            stat.volume_id,
            stat.label,
            stat.engine,
            stat.medium,
            size(all),
            size(free),
            stat.inodes,
            stat.free_inodes,
            stat.incarnation,
        )
    })?;
    Ok(Exit::DONE)
}
