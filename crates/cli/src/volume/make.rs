//! Making volumes, checking them, and showing what they are.

use super::{failure, medium, open, patiently};
use crate::args::{FsckArgs, MkfsArgs, TuneArgs, VolumeEngine};
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, size};
use serde::Serialize;
use std::path::Path;
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeStat};

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
        engine: match args.engine {
            VolumeEngine::None => EngineKind::None,
            VolumeEngine::FineGrainedWal => EngineKind::FineGrainedWal,
            VolumeEngine::HybridLog => EngineKind::HybridLog,
        },
        ..VolumeOptions::default()
    };
    let failed = |error| failure("mkfs", &args.volume, error);
    if args.size.is_none() && !args.volume.exists() {
        let why = "it does not exist, and no --size says how large it is to be";
        return Err(Failure::new(format!("mkfs {}", args.volume.display()), why).exit(Exit::USAGE));
    }
    Volume::format(&args.volume, args.size.unwrap_or(0), &options).map_err(failed)?;
    let volume = Volume::open(&args.volume, &options).map_err(failed)?;
    let made = shown(&args.volume, volume.stat());
    volume.close().map_err(failed)?;
    ui.emit("mkfs", &made, |made| {
        let bytes = size(made.blocks * made.block_bytes);
        let promise = match args.engine {
            VolumeEngine::None => "the engine gives no consistency: after a crash, anything may be lost\n",
            VolumeEngine::FineGrainedWal | VolumeEngine::HybridLog if made.emulated => {
                "persistence is emulated: the engine keeps what was done over the death of processes only\n"
            }
            VolumeEngine::FineGrainedWal | VolumeEngine::HybridLog => "each call is durable when it returns\n",
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

#[derive(Serialize)]
struct Report {
    volume: Name,
    clean: bool,
    findings: Vec<String>,
    lost_copies: Vec<String>,
    files: u64,
    directories: u64,
    others: u64,
    orphans: u64,
    blocks: u64,
    used_blocks: u64,
}

/// Checks a volume that is not mounted.
pub fn fsck(args: &FsckArgs, ui: &Ui) -> Result<Exit, Failure> {
    let options = VolumeOptions { medium: medium(args.medium), ..VolumeOptions::default() };
    let checked =
        patiently(|| Volume::check(&args.volume, &options)).map_err(|error| failure("fsck", &args.volume, error))?;
    let report = Report {
        volume: Name::from(&*args.volume),
        clean: checked.is_clean,
        findings: checked.findings.iter().map(ToString::to_string).collect(),
        lost_copies: checked.lost_copies.iter().map(ToString::to_string).collect(),
        files: checked.files,
        directories: checked.directories,
        others: checked.others,
        orphans: checked.orphans,
        blocks: checked.blocks,
        used_blocks: checked.used_blocks,
    };
    ui.emit("fsck", &report, |report| {
        let mut text: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
        text.extend(report.lost_copies.iter().map(|copy| format!("{copy}; the next mount writes it again\n")));
        let state = if report.clean { "clean" } else { "not unmounted" };
        text += &format!(
            "{}: {state}, {}, {}, {}, {} of {} blocks used\n",
            report.volume,
            count(report.files, "file"),
            if report.directories == 1 { "1 directory".into() } else { format!("{} directories", report.directories) },
            if report.findings.is_empty() { "consistent".into() } else { count(report.findings.len() as u64, "fault") },
            report.used_blocks,
            report.blocks,
        );
        text
    })?;
    if checked.findings.is_empty() {
        return Ok(Exit::DONE);
    }
    if !args.no_changes && !ui.json {
        eprintln!("wholly: fsck does not repair volumes yet; copy out what can be read with `wholly export`");
    }
    Ok(Exit::DAMAGED)
}
