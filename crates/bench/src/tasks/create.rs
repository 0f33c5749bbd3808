//! `create_10k`: many small files in new directories, as an unpacked archive has them.

use super::{Clock, Figures, Setting, add, failed, new_store, sync_file_system, with_syncs};
use crate::Result;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Directories that the files are spread over.
const DIRECTORIES: u32 = 20;
/// Turns of the peer that waits for each file, at most: it takes some hundred times as long as the others.
const SLOW_TURNS: usize = 2;
/// Bytes of log: the group's record, with room.
const LOG_BYTES: u64 = 64 << 20;

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place } = setting;
    let data = vec![0x5a; case.file_bytes as usize];
    for turn in 0..plan.turns {
        // Two of them are stops of one clock.
        for i in 0..figures.len() {
            let system = figures[(turn + i) % figures.len()].system;
            if system == "store_deferred" || (system == "fsync_each" && turn >= SLOW_TURNS) {
                continue;
            }
            let dir = place.dir.join("turn");
            std::fs::create_dir(&dir)?;
            match system {
                "store" => {
                    let store = new_store(&dir, if plan.tiny { 4 << 20 } else { LOG_BYTES }, true)?;
                    sync_file_system(&dir)?;
                    let clock = Clock::start_with_memory(place, Some(&store))?;
                    in_a_group(&store, case.files, &data).map_err(failed)?;
                    let committed = clock.stop(Some(&store), 1)?;
                    store.checkpoint().map_err(failed)?;
                    let home = clock.stop(Some(&store), 1)?;
                    add(figures, "store_deferred", committed);
                    add(figures, "store", home);
                    store.close().map_err(failed)?;
                }
                "plain_syncfs" => {
                    sync_file_system(&dir)?;
                    let clock = Clock::start_with_memory(place, None)?;
                    by_plain_calls(&dir, case.files, &data, |_, _| Ok(()))?;
                    sync_file_system(&dir)?;
                    add(figures, system, with_syncs(clock.stop(None, 1)?, 1));
                }
                _ => {
                    sync_file_system(&dir)?;
                    let clock = Clock::start_with_memory(place, None)?;
                    let mut syncs = 0;
                    by_plain_calls(&dir, case.files, &data, |directory, file| {
                        file.map_or(Ok(()), |file| file.sync_all())?;
                        syncs += 1 + u64::from(file.is_some());
                        File::open(directory)?.sync_all()
                    })?;
                    add(figures, system, with_syncs(clock.stop(None, 1)?, syncs));
                }
            }
            std::fs::remove_dir_all(&dir)?;
            sync_file_system(&place.dir)?;
        }
    }
    Ok(())
}

/// The path of a directory, and of a file.
fn directory(n: u32) -> String {
    format!("d{:02}", n % DIRECTORIES)
}

fn file(n: u32) -> String {
    format!("{}/file{n:05}", directory(n))
}

fn in_a_group(store: &wholly::Store, files: u32, data: &[u8]) -> wholly::Result<()> {
    let mut group = store.begin();
    for n in 0..files.min(DIRECTORIES) {
        group.mkdir(directory(n), 0o755)?;
    }
    for n in 0..files {
        let file = group.create(file(n), 0o644)?;
        group.write_at(&file, 0, data)?;
    }
    group.commit()
}

/// The same by plain calls; `made` is told of each directory with the one that it is in, and of each file with its
/// directory.
fn by_plain_calls(
    dir: &Path,
    files: u32,
    data: &[u8],
    mut made: impl FnMut(&Path, Option<&File>) -> std::io::Result<()>,
) -> Result<()> {
    for n in 0..files.min(DIRECTORIES) {
        std::fs::create_dir(dir.join(directory(n)))?;
        made(dir, None)?;
    }
    for n in 0..files {
        let mut new = File::create_new(dir.join(file(n)))?;
        new.write_all(data)?;
        made(&dir.join(directory(n)), Some(&new))?;
    }
    Ok(())
}
