//! The suite `volume`: a volume in process beside bounds, and its mount beside a file system that passes a directory
//! through. Its engine is `none`, but where it is said: no figure of it is one of a volume that survives crashes.
//!
//! | cases | base | the other |
//! |---|---|---|
//! | `read`, `overwrite` of 4 KiB at random | `raw`: a copy from or to the same persistent memory, and a fence | `volume`: calls of the trait, in process |
//! | `create`, `unlink` in a directory of 100,000 | `tmpfs`: system calls | the same |
//! | `tar_10k`, `git_clone`, `rm_rf`, `read_4k_uncached`, `write_4k` | `passthrough`: the same FUSE crate, the same options, over a directory of the host: `passthrough.rs` | `volume`: `wholly mount` of a volume, in a file on the same file system |
//! | `group_8k`: 4 KiB at random in each of two files, one group | `raw`: one synchronous direct write of 4 KiB to a file of the same file system; `raw_16k`: of 16 KiB | `volume`, by `page_cache_wal`, in process; `op_log`: by that engine |
//! | `block_4k`: one block at random | `raw`: one synchronous direct write of 8 KiB, as many bytes as the record has | `log`: a transaction of the log of blocks, in process, of which nothing is written back; `log_home`: with a ring of 4 MiB, of which all is |
//! | `fsync_4k`: 4 KiB at random and an `fsync` | `ext4_journal`: ext4 with `data=journal` on a loop device over a file of the same file system; `ext4_ordered`, `ext4_none`: with `data=ordered`, and without a journal | `volume`: a mount of a volume, by `page_cache_wal`; `op_log`, `multi_queue`: by these engines; `multi_queue_fatomic`: with `fatomic` in place of `fsync` |
//! | `writers_4k`: 4 KiB at random, each durable, by eight threads with a file each | `ext4_1`: one thread and `fsync` on ext4, `data=ordered`, on a loop device over a file of the same file system; `ext4_8`: eight | `volume_1`, `volume_8`: calls of `page_cache_wal` in process; `locked_8`: where commits wait for the medium with their locks held; `mount_1`, `mount_8`: `fsync` on a mount |
//! | `open_1m` | `clean`: `wholly mount` of a volume with 10^6 files and 8 GiB in use, that was unmounted | `crashed`: the same after the death of its server |
//! | `open_1m_disk` | `page_cache_wal`: such a volume on a disk is opened after the death of the process that had it, with a log to be stored | `op_log`: the same by that engine |
//!
//! # What is inside the clock
//!
//! - In process: the calls, by one thread. What a turn of `create` makes is removed after it, and what `unlink` removes
//!   is made after it.
//! - The commands: from their start until they have ended. What they unpack, clone or remove is made before, on the
//!   mount or beside it. Nothing is synced: on persistent memory a volume's calls are durable when they return, on a
//!   disk both keep what is written in caches.
//! - `open_1m_disk`: the call that opens the volume. Nothing of it is in the kernel's cache.
//! - `open_1m`: from the start of the command until programs can use the mount. Half of the files have one block, half
//!   have three, reserved but not written. The base's ratio says nothing here; the times do.
//! - `cpu_ns_per_group` is the processor time of this process, of the commands and of the server; that of others than
//!   this process in the kernel's ticks of ten milliseconds.
//!
//! The other cases in process and `open_1m` run on persistent memory only, `group_8k`, `block_4k`, `fsync_4k`,
//! `writers_4k` and `open_1m_disk` on disks only.

mod calls;
mod mounted;
mod opening;
mod passthrough;
mod synced;
mod writers;

use crate::harness::Plan;
use crate::place::{Medium, Place};
use crate::report::{Report, Skipped};
use crate::tasks::{Figures, rows};
use crate::workload::Case;
use crate::{Error, Result};
pub(crate) use passthrough::Passthrough;
use std::path::{Path, PathBuf};
use wholly_volume::{Volume, VolumeOptions};

/// The system that is measured, and the base of mounts.
pub(crate) const VOLUME: &str = "volume";
pub(crate) const PASSTHROUGH: &str = "passthrough";

/// The file of a volume, in the directory of its system.
const IMAGE: &str = "volume.img";
/// Bytes of one whose case does not say how many.
const IMAGE_BYTES: u64 = 512 << 20;

/// What a case is run with.
struct Setting<'a> {
    plan: &'a Plan,
    case: &'a Case,
    place: &'a Place,
    /// The command `wholly`.
    program: &'a Path,
}

type Run = fn(&Setting<'_>, &mut [Figures]) -> Result<()>;

/// Runs the cases of `plan` with the command `program`, with those systems that `chosen` names or all of them.
///
/// # Errors
/// The first failure of a system. What cannot be measured here is no failure; the report says it under `skipped`.
pub fn run(
    plan: &Plan,
    chosen: &[String],
    program: &Path,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    for case in &plan.cases {
        let (base, other, mounts, run): (_, _, bool, Run) = match case.name {
            "read" | "overwrite" => ("raw", VOLUME, false, calls::data),
            "create" | "unlink" => ("tmpfs", VOLUME, false, calls::names),
            "group_8k" => (synced::RAW, VOLUME, false, synced::groups),
            "block_4k" => (synced::RAW, synced::LOG, false, synced::block),
            "fsync_4k" => (synced::EXT4, VOLUME, true, synced::mounted),
            "writers_4k" => (writers::BASE, VOLUME, true, writers::run),
            "open_1m" => (opening::CLEAN, opening::CRASHED, true, opening::run),
            "open_1m_disk" => (opening::MAPS, opening::BITMAPS, false, opening::on_disk),
            _ => (PASSTHROUGH, VOLUME, true, mounted::run),
        };
        // How often the files of the case are in a place at the same time.
        let copies = match case.name {
            "open_1m" => 1,
            "open_1m_disk" => 2,
            "fsync_4k" => 7,
            _ => 3,
        };
        let missing = if mounts { mounted::missing(case.name, program) } else { None };
        let is_wanted = chosen.is_empty() || chosen.iter().any(|name| name == other);
        let mut systems: Vec<&'static str> = [base].into_iter().chain(is_wanted.then_some(other)).collect();
        let is_synced = matches!(case.name, "group_8k" | "block_4k" | "fsync_4k" | "writers_4k" | "open_1m_disk");
        match case.name {
            "group_8k" => systems.extend([synced::RAW_16K, synced::OP_LOG]),
            "block_4k" => systems.push(synced::LOG_HOME),
            "fsync_4k" => {
                let is_wanted = |name: &&&str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == **name);
                systems.truncate(1);
                systems.extend(synced::MOUNTED.iter().filter(is_wanted));
            }
            "writers_4k" => systems = writers::SYSTEMS.to_vec(),
            _ => {}
        }
        let is_run = |medium: &&Medium| if medium.is_pmem() { !is_synced } else { case.on_disk };
        for medium in plan.media.iter().filter(is_run) {
            let label = format!("{}/{} on {}", case.suite, case.name, medium.name());
            progress(&label);
            let place = match missing.clone().map_or_else(|| medium.make(case, copies), |why| Err(why.into())) {
                Ok(place) => place.emulating(plan.emulation),
                Err(e) => {
                    let (case, medium) = (case.name.to_owned(), medium.name());
                    report.skipped.push(Skipped { case, medium, system: None, reason: e.to_string() });
                    continue;
                }
            };
            let mut figures = Figures::of(&systems);
            run(&Setting { plan, case, place: &place, program }, &mut figures).map_err(|e| format!("{label}: {e}"))?;
            let mut rows = rows(case, medium, base, &figures);
            if case.name == "writers_4k" {
                rows.iter_mut().for_each(|row| row.threads = writers::threads_of(&row.system));
            }
            if case.name == "fsync_4k" && !plan.tiny {
                let bounds = synced::bounds(medium, &rows).into_iter().filter(|bound| bound.why.is_none());
                report.bounds.extend(bounds);
            }
            report.rows.extend(rows);
        }
    }
    Ok(())
}

/// The file with the volume in a directory: made, if it is not there.
pub(crate) fn image(dir: &Path) -> Result<PathBuf> {
    let image = dir.join(IMAGE);
    if !image.exists() {
        Volume::format(&image, IMAGE_BYTES, &VolumeOptions::default()).map_err(failed)?;
    }
    Ok(image)
}

fn failed(error: wholly::Error) -> Error {
    error.to_string().into()
}
