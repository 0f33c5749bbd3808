//! `rewrite_1g`: all of a large file, in one group.

use super::{Clock, Figures, Setting, add, failed, new_store, sync_file_system, with_syncs};
use crate::Result;
use std::fs::File;
use std::io::Write;

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of log between groups: this one takes what it needs, and gives it back.
const LOG_BYTES: u64 = 2 << 20;

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place } = setting;
    let home = place.child("home")?.dir;
    let mut data = vec![1; WRITE_BYTES];
    write_file(&home.join("file"), case.file_bytes, &data)?;
    sync_file_system(&home)?;
    let store = new_store(&home, LOG_BYTES, true)?;
    let file = store.open_file("file").map_err(failed)?;
    for turn in 0..plan.turns {
        data.fill(turn as u8 + 2);
        for i in 0..figures.len() {
            match figures[(turn + i) % figures.len()].system {
                "new_file" => {
                    let path = place.dir.join("new");
                    let clock = Clock::start_with_memory(place, None)?;
                    write_file(&path, case.file_bytes, &data)?;
                    File::open(&place.dir)?.sync_all()?;
                    add(figures, "new_file", with_syncs(clock.stop(None, 1)?, 2));
                    std::fs::remove_file(&path)?;
                }
                "store" => {
                    let clock = Clock::start_with_memory(place, Some(&store))?;
                    let mut group = store.begin();
                    for offset in (0..case.file_bytes).step_by(WRITE_BYTES) {
                        group.write_at(&file, offset, &data).map_err(failed)?;
                    }
                    group.commit().map_err(failed)?;
                    let committed = clock.stop(Some(&store), 1)?;
                    store.checkpoint().map_err(failed)?;
                    let home = clock.stop(Some(&store), 1)?;
                    add(figures, "store_deferred", committed);
                    add(figures, "store", home);
                }
                // The other stop of the same clock.
                _ => continue,
            }
            sync_file_system(&place.dir)?;
        }
    }
    drop(file);
    store.close().map_err(failed)
}

pub(super) fn write_file(path: &std::path::Path, bytes: u64, data: &[u8]) -> Result<()> {
    let mut file = File::create_new(path)?;
    for _ in (0..bytes).step_by(data.len()) {
        file.write_all(data)?;
    }
    Ok(file.sync_all()?)
}
