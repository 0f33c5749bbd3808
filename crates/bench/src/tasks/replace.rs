//! `replace`: a file gets new content at once, as editors and package managers save theirs. `overwrite`: a group
//! changes the file in place.

use super::{Clock, Figures, Setting, add, failed, new_store, sync_file_system, with_syncs};
use crate::Result;
use crate::workload::{Payload, Sequence};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use wholly::Store;
use wholly_vfs::Rename;

/// Bytes of log of the steady state, and where the checkpoint waits for the end of the turn.
const LOG_BYTES: u64 = 2 << 20;
const DEFERRED_LOG_BYTES: u64 = 64 << 20;
/// Groups of a deferred turn, and replacements of a turn of the peer.
const DEFERRED_GROUPS: u64 = 500;
const PEER_REPLACEMENTS: u64 = 100;
/// Groups of a turn in a tiny run.
const TINY_GROUPS: u64 = 4;

/// What is changed, and the file that is renamed over it.
const NAME: &str = "file";
const NEW: &str = "file.new";

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place } = setting;
    let overwrites = case.name == "overwrite";
    let payload = Payload::new(plan.seed);
    let systems: Vec<&'static str> = figures.iter().map(|figures| figures.system).collect();
    let mut stores: Vec<Option<Store>> = Vec::new();
    for system in &systems {
        let dir = place.child(system)?.dir;
        std::fs::write(dir.join(NAME), vec![0; case.file_bytes as usize])?;
        sync_file_system(&dir)?;
        stores.push(match *system {
            "store" => Some(new_store(&dir, if plan.tiny { 2 << 20 } else { LOG_BYTES }, true)?),
            "store_deferred" => Some(new_store(&dir, if plan.tiny { 2 << 20 } else { DEFERRED_LOG_BYTES }, false)?),
            _ => None,
        });
    }
    for turn in 0..plan.turns {
        for i in 0..systems.len() {
            let at = (turn + i) % systems.len();
            let groups = match systems[at] {
                _ if plan.tiny => TINY_GROUPS,
                // A record is at least one block more than the bytes.
                "store" => 3 * LOG_BYTES / (case.size.mean_bytes() + 4096),
                "store_deferred" => DEFERRED_GROUPS,
                _ => PEER_REPLACEMENTS,
            };
            let sequence = Sequence::new(case, plan.seed, turn as u64, groups as usize);
            let changes = sequence.groups(groups as usize).map(|group| payload.of(&group[0]));
            let Some(store) = &stores[at] else {
                let dir = place.dir.join(systems[at]);
                let clock = Clock::start(place, None)?;
                changes.into_iter().try_for_each(|bytes| by_rename(&dir, bytes))?;
                add(figures, systems[at], with_syncs(clock.stop(None, groups)?, 2 * groups));
                continue;
            };
            let clock = Clock::start(place, Some(store))?;
            match overwrites {
                true => overwrite(store, changes),
                false => replace(store, changes),
            }
            .map_err(failed)?;
            if systems[at] == "store" {
                store.checkpoint().map_err(failed)?;
            }
            add(figures, systems[at], clock.stop(Some(store), groups)?);
            store.checkpoint().map_err(failed)?;
        }
    }
    stores.into_iter().flatten().try_for_each(|store| store.close().map_err(failed))
}

fn replace<'b>(store: &Store, mut changes: impl Iterator<Item = &'b [u8]>) -> wholly::Result<()> {
    changes.try_for_each(|bytes| {
        let mut group = store.begin();
        let file = group.create(NEW, 0o644)?;
        group.write_at(&file, 0, bytes)?;
        group.rename(NEW, NAME, Rename::Replace)?;
        group.commit()
    })
}

fn overwrite<'b>(store: &Store, mut changes: impl Iterator<Item = &'b [u8]>) -> wholly::Result<()> {
    let file = store.open_file(NAME)?;
    changes.try_for_each(|bytes| {
        let mut group = store.begin();
        group.write_at(&file, 0, bytes)?;
        group.commit()
    })
}

fn by_rename(dir: &Path, bytes: &[u8]) -> Result<()> {
    let new = dir.join(NEW);
    let mut file = File::create_new(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, dir.join(NAME))?;
    Ok(File::open(dir)?.sync_all()?)
}
