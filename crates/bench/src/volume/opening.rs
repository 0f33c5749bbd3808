//! How long it takes to mount a large volume, after an unmount and after the death of its server. The latter is no
//! power failure: all stores of the dead process are there.

use super::{IMAGE, Setting, VOLUME, failed};
use crate::Result;
use crate::harness::{Whose, cpu_ns, ticks_ns};
use crate::mounts::Server;
use crate::tasks::{Figures, Sample, add};
use rustix::fs::OFlags;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_vfs::{Context, Fallocate, Ino, Mode, Vfs};
use wholly_volume::{Volume, VolumeOptions, VolumeVfs};

pub(super) const CLEAN: &str = "clean";
pub(super) const CRASHED: &str = "crashed";

const BLOCK: u64 = 4096;
/// Files of a directory.
const FILES_OF_DIRECTORY: u64 = 1000;

/// Makes a volume with the case's files: of `file_bytes` on average, half of them with one block.
fn populate(path: &Path, files: u64, file_bytes: u64) -> Result<()> {
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path)?;
    // A quarter for maps, and a KiB a file for inodes and names.
    file.set_len((files * (file_bytes * 5 / 4 + 1024) + (64 << 20)).next_multiple_of(BLOCK))?;
    let region = Arc::new(PmemRegion::open(file.into(), PmemOptions::default())?);
    Volume::format_region(&*region, &VolumeOptions::default()).map_err(failed)?;
    let volume = Volume::open_region(region, &VolumeOptions::default()).map_err(failed)?;
    let vfs = VolumeVfs::new(&volume);
    let ctx = Context::superuser();
    let mut dir = Ino::ROOT;
    for i in 0..files {
        if i % FILES_OF_DIRECTORY == 0 {
            if dir != Ino::ROOT {
                vfs.forget(dir, 1);
            }
            dir = vfs.mkdir(&ctx, Ino::ROOT, format!("dir-{}", i / FILES_OF_DIRECTORY).as_bytes(), Mode::RWXU)?.ino;
        }
        let (made, handle) = vfs.create(&ctx, dir, format!("file-{i}").as_bytes(), OFlags::WRONLY, Mode::RUSR)?;
        let bytes = if i % 2 == 0 { BLOCK } else { 2 * file_bytes - BLOCK };
        vfs.fallocate(&ctx, &handle, Fallocate::Extend, 0, bytes)?;
        vfs.release(&ctx, handle)?;
        vfs.forget(made.ino, 1);
    }
    vfs.forget(dir, 1);
    drop(vfs);
    volume.close().map_err(failed)
}

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place, program } = setting;
    let (own, point) = (place.child(VOLUME)?.dir, place.child("point")?.dir);
    populate(&own.join(IMAGE), case.files.into(), case.file_bytes)?;
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
