//! `writers_4k`: durable writes by one thread and by eight, each to a file of its own. Threads that wait for the device
//! at the same time share its commits, if nothing else keeps them apart.

use super::synced::{BLOCK, Bytes, VOLUME_BYTES, fill, options};
use super::{IMAGE, Setting, VOLUME, failed};
use crate::Result;
use crate::harness::cpu_ns;
use crate::mounts::Server;
use crate::place::Place;
use crate::tasks::{Figures, Sample, add, sync_file_system};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use wholly_sim::Random;
use wholly_vfs::{Context, Handle, Ino, Vfs};
use wholly_volume::{Trial, Volume, VolumeOptions, VolumeVfs};

pub(super) const BASE: &str = "ext4_1";
pub(super) const SYSTEMS: [&str; 7] = [BASE, "ext4_8", "volume_1", "volume_8", "locked_8", "mount_1", "mount_8"];

/// A system, how many threads write, and what one of them does with the number of its write.
type Entrant<'a> = (&'static str, u64, &'a (dyn Fn(u64, u64) -> Result<()> + Sync));

/// Each thread makes so many writes.
fn write_all(entrant: &Entrant<'_>, from: u64, count: u64) -> Result<Duration> {
    let (_, threads, write) = *entrant;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let each = |thread| {
            move || (from..from + count).try_for_each(|number| write(thread, number).map_err(|e| e.to_string()))
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(each(thread))).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a writer panicked".to_string())?)
    })?;
    Ok(start.elapsed())
}

/// A volume in process, with its files.
fn volume(
    dir: &Path,
    files: u64,
    file_bytes: u64,
    bytes: &Bytes,
    trial: Trial,
) -> Result<(Volume, VolumeVfs, Vec<Handle>)> {
    let options = VolumeOptions { trial, ..options() };
    Volume::format(&dir.join(IMAGE), VOLUME_BYTES, &options).map_err(failed)?;
    let volume = Volume::open(&dir.join(IMAGE), &options).map_err(failed)?;
    let (vfs, ctx) = (VolumeVfs::new(&volume), Context::superuser());
    let mut handles = Vec::new();
    for file in 0..files {
        let name = file.to_string();
        let (made, handle) = vfs.create(&ctx, Ino::ROOT, name.as_bytes(), OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
        for at in (0..file_bytes).step_by(64 * BLOCK) {
            let piece: Vec<u8> = (0..64).flat_map(|i| bytes.of(at / BLOCK as u64 + i, BLOCK)).copied().collect();
            vfs.write(&ctx, &handle, at, &piece)?;
        }
        vfs.forget(made.ino, 1);
        handles.push(handle);
    }
    vfs.sync(&ctx)?;
    Ok((volume, vfs, handles))
}

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place, program } = setting;
    let (bytes, files, blocks) = (Bytes::new(plan.seed), u64::from(case.files), case.file_bytes / BLOCK as u64);
    let (bytes, ctx) = (&bytes, &Context::superuser());
    let (own, locked) = (place.child(VOLUME)?, place.child("locked")?);
    let (served, point) = (place.child("served")?, place.child("point")?.dir);
    let own = volume(&own.dir, files, case.file_bytes, bytes, Trial::default())?;
    let locked = volume(&locked.dir, files, case.file_bytes, bytes, Trial { is_locked: true, ..Trial::default() })?;
    Volume::format(&served.dir.join(IMAGE), VOLUME_BYTES, &options()).map_err(failed)?;
    let server = Server::start(program, VOLUME, &served.dir, &point)?;
    let ext4 = Place::ext4(&place.dir, VOLUME_BYTES, "ordered")?;
    let open = |dir: &Path| -> Result<Vec<File>> {
        (0..files)
            .map(|file| {
                let path = dir.join(file.to_string());
                fill(&path, case.file_bytes, bytes)?;
                Ok(File::options().write(true).open(path)?)
            })
            .collect()
    };
    let (on_ext4, mounted) = (open(&ext4.dir)?, open(&point)?);
    sync_file_system(&place.dir)?;
    let at = |thread: u64, number: u64| Random(Random(number << 8 | thread).draw()).below(blocks) * BLOCK as u64;
    let in_process = |(_, vfs, handles): &(Volume, VolumeVfs, Vec<Handle>), thread: u64, number| -> Result<()> {
        let done = vfs.write(ctx, &handles[thread as usize], at(thread, number), bytes.of(number, BLOCK))?;
        if done == BLOCK { Ok(()) } else { Err("a short write".into()) }
    };
    let by_calls = |files: &[File], thread: u64, number| -> Result<()> {
        let file = &files[thread as usize];
        file.write_all_at(bytes.of(number, BLOCK), at(thread, number))?;
        Ok(file.sync_all()?)
    };
    let (ext4_write, mount_write) = (
        |thread: u64, number: u64| by_calls(&on_ext4, thread, number),
        |thread: u64, number: u64| by_calls(&mounted, thread, number),
    );
    let (own_write, locked_write) = (
        |thread: u64, number: u64| in_process(&own, thread, number),
        |thread: u64, number: u64| in_process(&locked, thread, number),
    );
    let entrants: [Entrant<'_>; SYSTEMS.len()] = [
        (SYSTEMS[0], 1, &ext4_write),
        (SYSTEMS[1], files, &ext4_write),
        (SYSTEMS[2], 1, &own_write),
        (SYSTEMS[3], files, &own_write),
        (SYSTEMS[4], files, &locked_write),
        (SYSTEMS[5], 1, &mount_write),
        (SYSTEMS[6], files, &mount_write),
    ];
    let few = if plan.tiny { 2 } else { 20 };
    let (mut number, mut counts) = (0, Vec::new());
    for entrant in &entrants {
        let elapsed = write_all(entrant, number, few)?;
        number += few;
        let wanted = few as f64 * plan.turn.as_secs_f64() / elapsed.as_secs_f64();
        counts.push(if plan.tiny { few } else { wanted as u64 + 1 });
    }
    for turn in 0..plan.turns {
        for i in 0..entrants.len() {
            let which = (turn + i) % entrants.len();
            let (cpu, device) = (cpu_ns(), place.device_bytes_written());
            let elapsed = write_all(&entrants[which], number, counts[which])?;
            number += counts[which];
            let device_bytes = place.device_bytes_written().zip(device).map(|(now, then)| now - then);
            let (ns, cpu_ns) = (elapsed.as_nanos() as f64, (cpu_ns() - cpu) as f64);
            let groups = entrants[which].1 * counts[which];
            add(figures, entrants[which].0, Sample { ns, cpu_ns, device_bytes, groups, ..Sample::default() });
        }
    }
    drop((on_ext4, mounted, server));
    for (volume, vfs, handles) in [own, locked] {
        handles.into_iter().try_for_each(|handle| vfs.release(ctx, handle))?;
        drop(vfs);
        volume.close().map_err(failed)?;
    }
    Ok(())
}
