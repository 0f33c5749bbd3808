//! Calls in process: the trait over an open volume, beside the least that the hardware or the kernel takes.

use super::{Setting, VOLUME, failed};
use crate::Result;
use crate::harness::cpu_ns;
use crate::place::Place;
use crate::tasks::{Figures, Sample, add};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::sync::Arc;
use std::time::Instant;
use wholly_media::{
    Region, Site,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_sim::Random;
use wholly_vfs::{Context, Ino, Vfs};
use wholly_volume::{Volume, VolumeOptions, VolumeVfs};

const BLOCK: usize = 4096;
const RAW: Site = Site("raw");
/// Calls of a turn on names: an even share of the directory.
const NAMES_OF_TURN: u32 = 50_000;
/// Bytes of a volume for a directory with so many files, beside those of an empty one.
const NAME_BYTES: u64 = 1 << 10;
const EMPTY_BYTES: u64 = 64 << 20;

/// A file of the place as persistent memory.
fn region(place: &Place, name: &str, bytes: u64) -> Result<Arc<dyn Region>> {
    let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(place.dir.join(name), how, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&file, bytes)?;
    let options = PmemOptions { prefault: true, ..PmemOptions::default() };
    Ok(place.slow_down(PmemRegion::open(file, options)?))
}

fn open(place: &Place, bytes: u64) -> Result<(Volume, VolumeVfs)> {
    let region = region(place, super::IMAGE, bytes / BLOCK as u64 * BLOCK as u64)?;
    Volume::format_region(&*region, &VolumeOptions::default()).map_err(failed)?;
    let volume = Volume::open_region(region, &VolumeOptions::default()).map_err(failed)?;
    let vfs = VolumeVfs::new(&volume);
    Ok((volume, vfs))
}

/// A turn of so many calls.
fn turn(groups: u64, mut call: impl FnMut(u64) -> Result<()>) -> Result<Sample> {
    let (cpu, start) = (cpu_ns(), Instant::now());
    (0..groups).try_for_each(&mut call)?;
    let ns = start.elapsed().as_nanos() as f64;
    Ok(Sample { ns, cpu_ns: (cpu_ns() - cpu) as f64, groups, ..Sample::default() })
}

/// `read` and `overwrite`: blocks of one file at random.
pub(super) fn data(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place, .. } = setting;
    let bytes = case.file_bytes;
    let (volume, vfs) = open(place, bytes + bytes / 64 + EMPTY_BYTES)?;
    let ctx = Context::superuser();
    let raw = region(place, "raw", bytes)?;
    let (made, file) = vfs.create(&ctx, Ino::ROOT, b"file", OFlags::RDWR, Mode::RUSR)?;
    let piece = vec![1; 1 << 20];
    for at in (0..bytes).step_by(piece.len()) {
        vfs.write(&ctx, &file, at, &piece)?;
        raw.write(RAW, at, &piece)?;
    }
    let blocks = bytes / BLOCK as u64;
    // As many calls as there are blocks, each about a block of its own.
    let calls = blocks.min(200_000);
    let (mut ours, mut theirs) = ([0; BLOCK], [0; BLOCK]);
    let content = [7; BLOCK];
    for number in 0..plan.turns {
        let mut random = Random(plan.seed ^ number as u64);
        let places: Vec<u64> = (0..calls).map(|_| random.below(blocks) * BLOCK as u64).collect();
        let at = |i: u64| places[i as usize];
        let mut of_volume = || match case.name {
            "read" => turn(calls, |i| Ok(vfs.read(&ctx, &file, at(i), &mut ours).map(drop)?)),
            _ => turn(calls, |i| Ok(vfs.write(&ctx, &file, at(i), &content).map(drop)?)),
        };
        let mut of_raw = || match case.name {
            "read" => turn(calls, |i| Ok(raw.read(at(i), &mut theirs)?)),
            _ => turn(calls, |i| {
                raw.write(RAW, at(i), &content)?;
                Ok(raw.fence(RAW)?)
            }),
        };
        if number % 2 == 0 {
            add(figures, VOLUME, of_volume()?);
            add(figures, "raw", of_raw()?);
        } else {
            add(figures, "raw", of_raw()?);
            add(figures, VOLUME, of_volume()?);
        }
    }
    vfs.release(&ctx, file)?;
    vfs.forget(made.ino, 1);
    drop(vfs);
    volume.close().map_err(failed)
}

/// One of the two that make and remove names.
trait Names {
    fn make(&self, name: &str) -> Result<()>;
    fn remove(&self, name: &str) -> Result<()>;
}

struct InVolume<'v> {
    vfs: &'v VolumeVfs,
    ctx: Context,
    dir: Ino,
}

impl Names for InVolume<'_> {
    fn make(&self, name: &str) -> Result<()> {
        let made = self.vfs.mknod(&self.ctx, self.dir, name.as_bytes(), FileType::RegularFile, Mode::RUSR, 0)?;
        self.vfs.forget(made.ino, 1);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        Ok(self.vfs.unlink(&self.ctx, self.dir, name.as_bytes())?)
    }
}

impl Names for OwnedFd {
    fn make(&self, name: &str) -> Result<()> {
        Ok(rustix::fs::mknodat(self, name, FileType::RegularFile, Mode::RUSR, 0)?)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Ok(rustix::fs::unlinkat(self, name, AtFlags::empty())?)
    }
}

/// `create` and `unlink`.
pub(super) fn names(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place, .. } = setting;
    let (volume, vfs) = open(place, EMPTY_BYTES + 2 * u64::from(case.files) * NAME_BYTES)?;
    let ctx = Context::superuser();
    let dir = vfs.mkdir(&ctx, Ino::ROOT, b"dir", Mode::RWXU)?.ino;
    let ours = InVolume { vfs: &vfs, ctx, dir };
    let theirs = place.child("dir")?.dir;
    let theirs = rustix::fs::open(theirs, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let name = |i: u64| format!("name-{i}");
    let (count, calls) = (u64::from(case.files), u64::from(NAMES_OF_TURN.min(case.files)));
    for i in 0..count {
        ours.make(&name(i))?;
        theirs.make(&name(i))?;
    }
    let take_turn = |names: &dyn Names| {
        let (first, removes) = if case.name == "unlink" { (0, true) } else { (count, false) };
        let sample = turn(calls, |i| if removes { names.remove(&name(i)) } else { names.make(&name(first + i)) })?;
        (0..calls).try_for_each(|i| if removes { names.make(&name(i)) } else { names.remove(&name(first + i)) })?;
        Ok::<_, crate::Error>(sample)
    };
    for number in 0..plan.turns {
        let mut entrants: [(&str, &dyn Names); 2] = [(VOLUME, &ours), ("tmpfs", &theirs)];
        if number % 2 == 1 {
            entrants.reverse();
        }
        for (system, names) in entrants {
            add(figures, system, take_turn(names)?);
        }
    }
    vfs.forget(dir, 1);
    drop(vfs);
    volume.close().map_err(failed)
}
