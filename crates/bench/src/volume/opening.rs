//! How long it takes to mount a large volume, after an unmount and after the death of its server. The latter is no
//! power failure: all stores of the dead process are there. On a disk, after the death of the process alone, by the
//! engines with bitmaps and without: its log is to be stored once more.

use super::{IMAGE, Setting, VOLUME, failed};
use crate::Result;
use crate::harness::{Whose, cpu_ns, ticks_ns};
use crate::mounts::Server;
use crate::tasks::{Figures, Sample, add, sync_file_system};
use rustix::fs::OFlags;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_vfs::{Context, Fallocate, Ino, Mode, Vfs};
use wholly_volume::{EngineKind, Medium, Volume, VolumeOptions, VolumeVfs};

pub(super) const CLEAN: &str = "clean";
pub(super) const CRASHED: &str = "crashed";
/// The engines of `open_1m_disk`.
pub(super) const MAPS: &str = "page_cache_wal";
pub(super) const BITMAPS: &str = "op_log";

const BLOCK: u64 = 4096;
/// Files of a directory.
const FILES_OF_DIRECTORY: u64 = 1000;

/// Bytes of a volume for so many files: a quarter of them for maps, and a KiB a file for inodes and names.
fn bytes_for(files: u64, file_bytes: u64) -> u64 {
    (files * (file_bytes * 5 / 4 + 1024) + (64 << 20)).next_multiple_of(BLOCK)
}

/// Makes the case's files in a volume: of `file_bytes` on average, half of them with one block.
fn populate(volume: &Volume, files: Range<u64>, file_bytes: u64) -> Result<()> {
    let vfs = VolumeVfs::new(volume);
    let ctx = Context::superuser();
    let mut dir = Ino::ROOT;
    for i in files {
        if i % FILES_OF_DIRECTORY == 0 || dir == Ino::ROOT {
            if dir != Ino::ROOT {
                vfs.forget(dir, 1);
            }
            dir = vfs.mkdir(&ctx, Ino::ROOT, format!("dir-{i}").as_bytes(), Mode::RWXU)?.ino;
        }
        let (made, handle) = vfs.create(&ctx, dir, format!("file-{i}").as_bytes(), OFlags::WRONLY, Mode::RUSR)?;
        let bytes = if i % 2 == 0 { BLOCK } else { 2 * file_bytes - BLOCK };
        vfs.fallocate(&ctx, &handle, Fallocate::Extend, 0, bytes)?;
        vfs.release(&ctx, handle)?;
        vfs.forget(made.ino, 1);
    }
    vfs.forget(dir, 1);
    Ok(())
}

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place, program } = setting;
    let (own, point) = (place.child(VOLUME)?.dir, place.child("point")?.dir);
    let file = File::options().read(true).write(true).create_new(true).open(own.join(IMAGE))?;
    file.set_len(bytes_for(case.files.into(), case.file_bytes))?;
    let region = Arc::new(PmemRegion::open(file.into(), PmemOptions::default())?);
    Volume::format_region(&*region, &VolumeOptions::default()).map_err(failed)?;
    let volume = Volume::open_region(region, &VolumeOptions::default()).map_err(failed)?;
    populate(&volume, 0..case.files.into(), case.file_bytes)?;
    volume.close().map_err(failed)?;
    let open = || {
        let (cpu, start) = (cpu_ns(), Instant::now());
        let server = Server::start(program, VOLUME, &own, &point)?;
        let ns = start.elapsed().as_nanos() as f64;
        let cpu_ns = (cpu_ns() - cpu) as f64 + ticks_ns(&server.process.id().to_string(), Whose::Own)? as f64;
        Ok::<_, crate::Error>((server, Sample { ns, cpu_ns, groups: 1, ..Sample::default() }))
    };
    for _ in 0..plan.turns {
        let (server, clean) = open()?;
        add(figures, CLEAN, clean);
        server.kill()?;
        let (server, crashed) = open()?;
        add(figures, CRASHED, crashed);
        // This one unmounts.
        drop(server);
    }
    Ok(())
}

/// Files that a process has made when it dies.
const LAST: u64 = 1000;

/// `open_1m_disk`: the process that has the volume dies with a log that is to be stored once more; nothing of the image
/// is in the kernel's cache.
pub(super) fn on_disk(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place, .. } = setting;
    let path = place.dir.join(IMAGE);
    for engine in [EngineKind::PageCacheWal, EngineKind::OpLog] {
        let options = VolumeOptions { engine: Some(engine), medium: Medium::Disk, ..VolumeOptions::default() };
        let files = u64::from(case.files);
        Volume::format(&path, bytes_for(files, case.file_bytes), &options).map_err(failed)?;
        let mut volume = Volume::open(&path, &options).map_err(failed)?;
        populate(&volume, 0..files, case.file_bytes)?;
        for turn in 1..=plan.turns as u64 {
            volume.checkpoint().map_err(failed)?;
            let last = if plan.tiny { 2 } else { LAST };
            populate(&volume, files * turn..files * turn + last, case.file_bytes)?;
            volume.sync().map_err(failed)?;
            volume.abandon();
            sync_file_system(&place.dir)?;
            std::fs::write("/proc/sys/vm/drop_caches", "3")?;
            let (cpu, start) = (cpu_ns(), Instant::now());
            volume = Volume::open(&path, &options).map_err(failed)?;
            let (ns, cpu_ns) = (start.elapsed().as_nanos() as f64, (cpu_ns() - cpu) as f64);
            add(figures, engine.name(), Sample { ns, cpu_ns, groups: 1, ..Sample::default() });
        }
        volume.close().map_err(failed)?;
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
