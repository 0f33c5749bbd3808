//! `read_4k`, `read_64k`: reads of a file that has nothing pending, from the page cache.

use super::{Clock, Figures, Setting, add, failed, new_store, sync_file_system};
use crate::Result;
use std::os::unix::fs::FileExt;
use wholly_sim::Random;

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place } = setting;
    let path = place.dir.join("file");
    std::fs::write(&path, vec![7; case.file_bytes as usize])?;
    sync_file_system(&place.dir)?;
    let store = new_store(&place.dir, 2 << 20, true)?;
    let ours = store.open_file("file").map_err(failed)?;
    let plain = std::fs::File::open(&path)?;
    let length = case.size.mean_bytes();
    let reads = case.file_bytes / length;
    let mut buffer = vec![0; length as usize];
    for turn in 0..plan.turns {
        // Small reads at random, large ones in order.
        let mut random = Random(plan.seed ^ turn as u64);
        let offsets: Vec<u64> = match length {
            4096 => (0..reads).map(|_| random.below(reads) * length).collect(),
            _ => (0..reads).map(|n| n * length).collect(),
        };
        for i in 0..figures.len() {
            let system = figures[(turn + i) % figures.len()].system;
            let clock = Clock::start(place, Some(&store))?;
            if system == "store" {
                for &offset in &offsets {
                    ours.read_at(offset, &mut buffer).map_err(failed)?;
                }
            } else {
                for &offset in &offsets {
                    plain.read_exact_at(&mut buffer, offset)?;
                }
            }
            add(figures, system, clock.stop(Some(&store), reads)?);
        }
    }
    drop(ours);
    store.close().map_err(failed)
}
