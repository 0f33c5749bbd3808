//! Durable writes on a disk, by the engine `page_cache_wal`: a group in process beside one synchronous direct write of
//! the same host file system, and writes with `fsync` on a mount beside ext4 with `data=journal`, on a loop device over
//! a file of the same host file system. And one block by the log below the engine, beside a synchronous direct write of
//! as many bytes.

use super::{IMAGE, Setting, VOLUME, failed};
use crate::Result;
use crate::harness::{Plan, cpu_ns};
use crate::mounts::Server;
use crate::place::{Medium, Place};
use crate::report::{Bound, Row};
use crate::tasks::{Figures, Sample, add, sync_file_system};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use wholly_blocks::log::{LogDevice, LogOptions, RingSeed};
use wholly_blocks::{Lba, Page, Placement, Run, Tag, TxDevice};
use wholly_media::Site;
use wholly_media::disk::DiskRegion;
use wholly_sim::Random;
use wholly_vfs::{Context, Groups, Handle, Ino, Vfs};
use wholly_volume::{EngineKind, Medium as Kind, Volume, VolumeOptions, VolumeVfs};

/// The bases, and the synchronous write of as many bytes as the volume's log gets for a group.
pub(super) const RAW: &str = "raw";
pub(super) const RAW_16K: &str = "raw_16k";
pub(super) const EXT4: &str = "ext4_journal";
/// Groups by that engine.
pub(super) const OP_LOG: &str = "op_log";

/// The log of blocks: with so large a ring that nothing is written back inside of the clock, and with one of 4 MiB.
pub(super) const LOG: &str = "log";
pub(super) const LOG_HOME: &str = "log_home";

pub(super) const BLOCK: usize = 4096;
pub(super) const VOLUME_BYTES: u64 = 256 << 20;
/// Bytes that are drawn, from which writes take theirs.
const DRAWN: usize = 1 << 20;
const TINY_CALLS: u64 = 8;

pub(super) fn options() -> VolumeOptions {
    VolumeOptions { engine: Some(EngineKind::PageCacheWal), medium: Kind::Disk, ..VolumeOptions::default() }
}

/// Bytes to write, aligned for direct calls. Each write gets others than the one before.
pub(super) struct Bytes(Vec<u8>, usize);

impl Bytes {
    pub(super) fn new(seed: u64) -> Bytes {
        let mut random = Random(seed);
        let drawn: Vec<u8> = (0..(DRAWN + BLOCK) / 8).flat_map(|_| random.draw().to_le_bytes()).collect();
        let aligned = drawn.as_ptr().align_offset(BLOCK);
        Bytes(drawn, aligned)
    }

    pub(super) fn of(&self, number: u64, len: usize) -> &[u8] {
        &self.0[self.1 + number as usize * BLOCK % (DRAWN - 4 * BLOCK)..][..len]
    }
}

/// Writes a file of so many bytes.
pub(super) fn fill(path: &Path, bytes: u64, drawn: &Bytes) -> Result<()> {
    let file = File::create_new(path)?;
    (0..bytes).step_by(BLOCK).try_for_each(|at| file.write_all_at(drawn.of(at / 4096, BLOCK), at))?;
    Ok(file.sync_all()?)
}

/// A system, and what it does in a part of a turn: so many calls by each of its threads, numbered from the first
/// argument on. Returns how many calls that were.
pub(super) type Entrant<'a> = (&'static str, Box<dyn FnMut(u64, u64) -> Result<u64> + 'a>);

/// One thread calls.
fn alone<'a>(mut call: impl FnMut(u64) -> Result<()> + 'a) -> Box<dyn FnMut(u64, u64) -> Result<u64> + 'a> {
    Box::new(move |from, count| (from..from + count).try_for_each(&mut call).map(|()| count))
}

/// Lets them take turns of about the same length.
pub(super) fn take_turns(
    plan: &Plan,
    place: &Place,
    entrants: &mut [Entrant<'_>],
    figures: &mut [Figures],
) -> Result<()> {
    let mut number = 0;
    let mut run = |entrant: &mut Entrant<'_>, count: u64| -> Result<(Duration, u64)> {
        let start = Instant::now();
        let calls = entrant.1(number, count)?;
        number += count;
        Ok((start.elapsed(), calls))
    };
    let mut counts = Vec::new();
    for entrant in entrants.iter_mut() {
        let (elapsed, _) = run(entrant, TINY_CALLS)?;
        let wanted = TINY_CALLS as f64 * plan.turn.as_secs_f64() / elapsed.as_secs_f64();
        counts.push(if plan.tiny { TINY_CALLS } else { wanted as u64 + 1 });
    }
    for turn in 0..plan.turns {
        for i in 0..entrants.len() {
            let at = (turn + i) % entrants.len();
            let (cpu, device) = (cpu_ns(), place.device_bytes_written());
            let (elapsed, groups) = run(&mut entrants[at], counts[at])?;
            let device_bytes = place.device_bytes_written().zip(device).map(|(now, then)| now - then);
            let (ns, cpu_ns) = (elapsed.as_nanos() as f64, (cpu_ns() - cpu) as f64);
            add(figures, entrants[at].0, Sample { ns, cpu_ns, device_bytes, groups, ..Sample::default() });
        }
    }
    Ok(())
}

/// `group_8k`: 4 KiB at random in each of two files, as one group.
pub(super) fn groups(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place, .. } = setting;
    let (bytes, blocks) = (Bytes::new(plan.seed), case.file_bytes / BLOCK as u64);
    let (ctx, raw) = (Context::superuser(), place.dir.join(RAW));
    fill(&raw, case.file_bytes, &bytes)?;
    let how = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
    let raw = File::options().write(true).custom_flags(how).open(raw)?;
    let open = |engine: EngineKind| -> Result<Grouped> {
        let options = VolumeOptions { engine: Some(engine), ..options() };
        let image = place.dir.join(engine.name());
        Volume::format(&image, VOLUME_BYTES, &options).map_err(failed)?;
        let volume = Volume::open(&image, &options).map_err(failed)?;
        let vfs = VolumeVfs::new(&volume);
        let mut files = Vec::new();
        for name in [b"a", b"b"] {
            let (made, file) = vfs.create(&ctx, Ino::ROOT, name, OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
            for at in (0..case.file_bytes).step_by(BLOCK) {
                vfs.write(&ctx, &file, at, bytes.of(at, BLOCK))?;
            }
            vfs.forget(made.ino, 1);
            files.push(file);
        }
        vfs.sync(&ctx)?;
        Ok(Grouped { volume, vfs, files })
    };
    let volumes = [open(EngineKind::PageCacheWal)?, open(EngineKind::OpLog)?];
    sync_file_system(&place.dir)?;
    let at = |number: u64, blocks: u64| Random(Random(number).draw()).below(blocks) * BLOCK as u64;
    let write = |len: usize| {
        let (raw, bytes) = (&raw, &bytes);
        // At a multiple of its length, inside of the file.
        let pieces = blocks * BLOCK as u64 / len as u64;
        move |number: u64| -> Result<()> {
            let at = at(number, pieces) / BLOCK as u64 * len as u64;
            Ok(raw.write_all_at(bytes.of(number, len), at)?)
        }
    };
    let group = |on: &Grouped, number: u64| -> Result<()> {
        let id = on.vfs.begin()?;
        let ctx = Context { group: Some(id), ..Context::superuser() };
        for (file, shift) in on.files.iter().zip([0, 1 << 32]) {
            on.vfs.add(id, file)?;
            on.vfs.write(&ctx, file, at(number + shift, blocks), bytes.of(number + shift, BLOCK))?;
        }
        Ok(on.vfs.commit(id)?)
    };
    let mut entrants: Vec<Entrant<'_>> = vec![
        (RAW, alone(write(BLOCK))),
        (RAW_16K, alone(write(4 * BLOCK))),
        (VOLUME, alone(|number| group(&volumes[0], number))),
        (OP_LOG, alone(|number| group(&volumes[1], number))),
    ];
    take_turns(plan, place, &mut entrants, figures)?;
    drop(entrants);
    for Grouped { volume, vfs, files } in volumes {
        files.into_iter().try_for_each(|file| vfs.release(&ctx, file))?;
        drop(vfs);
        volume.close().map_err(failed)?;
    }
    Ok(())
}

/// A volume with the files of `group_8k`.
struct Grouped {
    volume: Volume,
    vfs: VolumeVfs,
    files: Vec<Handle>,
}

/// `block_4k`: one block at random in a transaction of the log of blocks: its record is a head and the image.
pub(super) fn block(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    const SITE: Site = Site("bench.block");
    let Setting { plan, case, place, .. } = setting;
    let (bytes, blocks) = (Bytes::new(plan.seed), case.file_bytes / BLOCK as u64);
    let how = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
    let made = |name: &str, all: u64| -> Result<File> {
        let path = place.dir.join(name);
        fill(&path, all * BLOCK as u64, &bytes)?;
        Ok(File::options().read(true).write(true).custom_flags(if name == RAW { how } else { 0 }).open(path)?)
    };
    let log = |name: &str, ring: u64| -> Result<LogDevice> {
        let area = Run { start: Lba(blocks), count: ring };
        let region = DiskRegion::open(made(name, blocks + ring)?.into(), name)?;
        let options = LogOptions { memory: u64::MAX, ..LogOptions::default() };
        Ok(LogDevice::new(std::sync::Arc::new(region), blocks, area, (RingSeed::new(1), 1), options))
    };
    let (raw, deferred, home) = (made(RAW, blocks)?, log(LOG, 3 * blocks)?, log(LOG_HOME, 1024)?);
    sync_file_system(&place.dir)?;
    let commit = |log: &LogDevice, number: u64| -> Result<()> {
        let page = Page::new(bytes.of(number, BLOCK).try_into().expect("a block"));
        let at = Lba(Random(Random(number).draw()).below(blocks));
        let tx = log.begin().map_err(failed)?;
        log.write(SITE, tx, at, &page, Placement::Overwrite, Tag::Data).map_err(failed)?;
        log.commit(SITE, &[tx]).map_err(failed)
    };
    let write = |number: u64| -> Result<()> {
        // One behind the other, as records are.
        let at = number % (blocks / 2) * 2 * BLOCK as u64;
        Ok(raw.write_all_at(bytes.of(number, 2 * BLOCK), at)?)
    };
    let mut entrants: Vec<Entrant<'_>> = vec![
        (RAW, alone(write)),
        (LOG, alone(|number| commit(&deferred, number))),
        (LOG_HOME, alone(|number| commit(&home, number))),
    ];
    take_turns(plan, place, &mut entrants, figures)
}

/// Systems of `fsync_4k` beside the base: mounts of volumes, of the last one by `fatomic`, and real file systems.
pub(super) const MOUNTED: [&str; 6] = [VOLUME, OP_LOG, MULTI_QUEUE, FATOMIC, "ext4_ordered", "ext4_none"];
pub(super) const MULTI_QUEUE: &str = "multi_queue";
pub(super) const FATOMIC: &str = "multi_queue_fatomic";

/// `fsync_4k`: 4 KiB at random and an `fsync`, on a mount. With `fatomic` in place of it, the part of a turn ends with
/// an `fsync`, inside of the clock.
pub(super) fn mounted(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place, program } = setting;
    let (bytes, blocks) = (Bytes::new(plan.seed), case.file_bytes / BLOCK as u64);
    let mut systems = Vec::new();
    for name in figures.iter().map(|figures| figures.system) {
        let (own, point) = (place.child(name)?, place.child(&format!("{name}-point"))?.dir);
        let engine = match name {
            VOLUME => Some(EngineKind::PageCacheWal),
            OP_LOG => Some(EngineKind::OpLog),
            MULTI_QUEUE | FATOMIC => Some(EngineKind::MultiQueue),
            _ => None,
        };
        // What is dropped first uses what is dropped later.
        let (dir, server, ext4) = match engine {
            Some(engine) => {
                let options = VolumeOptions { engine: Some(engine), ..options() };
                Volume::format(&own.dir.join(IMAGE), VOLUME_BYTES, &options).map_err(failed)?;
                (point.clone(), Some(Server::start(program, VOLUME, &own.dir, &point)?), None)
            }
            None => {
                let data = name.strip_prefix("ext4_").expect("it is an ext4");
                let ext4 = Place::ext4(&own.dir, VOLUME_BYTES, data)?;
                (ext4.dir.clone(), None, Some(ext4))
            }
        };
        fill(&dir.join("file"), case.file_bytes, &bytes)?;
        systems.push((name, File::options().write(true).open(dir.join("file"))?, server, ext4));
    }
    sync_file_system(&place.dir)?;
    let (systems_ref, bytes) = (&systems, &bytes);
    let mut entrants: Vec<Entrant<'_>> = Vec::new();
    for (name, file, ..) in systems_ref {
        let write = move |number: u64| -> Result<()> {
            let at = Random(Random(number).draw()).below(blocks) * BLOCK as u64;
            Ok(file.write_all_at(bytes.of(number, BLOCK), at)?)
        };
        let work = move |from: u64, count: u64| -> Result<u64> {
            for number in from..from + count {
                write(number)?;
                match *name {
                    FATOMIC => wholly::fatomic(file).map_err(failed)?,
                    _ => file.sync_all()?,
                }
            }
            file.sync_all()?;
            Ok(count)
        };
        entrants.push((name, Box::new(work)));
    }
    take_turns(plan, place, &mut entrants, figures)
}

/// The bounds of `fsync_4k`, from its rows.
pub(super) fn bounds(medium: &Medium, rows: &[Row]) -> Vec<Bound> {
    let us = |name: &str| {
        let row = rows.iter().find(|row| row.system == name && row.case == "fsync_4k");
        row.map(|row| row.ns_per_group / 1e3).ok_or_else(|| format!("{name} was not measured"))
    };
    let part = |fast: &str, slow: &str| us(fast).and_then(|fast| Ok(fast / us(slow)?));
    let named = |what: &str| format!("fsync_4k on {}, wall time: {what}", medium.name());
    vec![
        Bound::at_most(named("multi_queue over volume, by page_cache_wal"), 1.1, part(MULTI_QUEUE, VOLUME)),
        Bound::at_most(named("fatomic over fsync, by multi_queue"), 0.5, part(FATOMIC, MULTI_QUEUE)),
    ]
}
