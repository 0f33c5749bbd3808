//! `writers_4k`: durable writes by one thread and by eight, each to a file of its own. Threads that wait for the device
//! at the same time share its commits, if nothing else keeps them apart.

use super::synced::{BLOCK, Bytes, Entrant, VOLUME_BYTES, fill, options, take_turns};
use super::{IMAGE, Setting, VOLUME, failed};
use crate::Result;
use crate::mounts::Server;
use crate::place::Place;
use crate::tasks::{Figures, sync_file_system};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use wholly_sim::Random;
use wholly_vfs::{Context, Handle, Ino, Vfs};
use wholly_volume::{Trial, Volume, VolumeOptions, VolumeVfs};

pub(super) const BASE: &str = "ext4_1";
pub(super) const SYSTEMS: [&str; 7] = [BASE, "ext4_8", "volume_1", "volume_8", "locked_8", "mount_1", "mount_8"];

/// The most threads, and files.
const MOST: u64 = 8;

/// How many threads a system has.
pub(super) fn threads_of(system: &str) -> u32 {
    if system.ends_with("_8") { MOST as u32 } else { 1 }
}

/// So many threads write, each to its own file.
fn together<'a>(
    threads: u64,
    write: &'a (dyn Fn(u64, u64) -> Result<()> + Sync),
) -> Box<dyn FnMut(u64, u64) -> Result<u64> + 'a> {
    Box::new(move |from, count| {
        std::thread::scope(|scope| {
            let each = |thread| {
                move || (from..from + count).try_for_each(|number| write(thread, number).map_err(|e| e.to_string()))
            };
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(each(thread))).collect();
            running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a writer panicked".to_string())?)
        })?;
        Ok(threads * count)
    })
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
    let (bytes, files, blocks) = (Bytes::new(plan.seed), MOST, case.file_bytes / BLOCK as u64);
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
    type Write<'w> = &'w (dyn Fn(u64, u64) -> Result<()> + Sync);
    let writes: [Write<'_>; SYSTEMS.len()] =
        [&ext4_write, &ext4_write, &own_write, &own_write, &locked_write, &mount_write, &mount_write];
    let with_threads = |(system, write)| (system, together(threads_of(system).into(), write));
    let mut entrants: Vec<Entrant<'_>> = SYSTEMS.into_iter().zip(writes).map(with_threads).collect();
    take_turns(plan, place, &mut entrants, figures)?;
    drop(entrants);
    drop((on_ext4, mounted, server));
    for (volume, vfs, handles) in [own, locked] {
        handles.into_iter().try_for_each(|handle| vfs.release(ctx, handle))?;
        drop(vfs);
        volume.close().map_err(failed)?;
    }
    Ok(())
}
