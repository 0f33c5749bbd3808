//! `write_64k` to `write_1g`: new files, a group for each. What goes to the file system at once is written once; what
//! goes to the log, twice. The same of files that are there: `over_256k` to `over_16m`.

use wholly::{Error, Options, Store};

use super::rewrite::write_file;
use super::{Clock, Figures, Setting, add, failed, new_store_with, sync_file_system, with_syncs};
use crate::Result;
use crate::workload::Case;

pub(super) const SYSTEMS: [&str; 4] = ["staged_deferred", "staged", "logged_deferred", "logged"];

/// Bytes of log: what is logged fits more than once where files are small, and makes it grow where they are large.
const LOG_BYTES: u64 = 16 << 20;

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place } = setting;
    let store = |name: &str, stage_bytes| {
        let options = Options {
            log_min_bytes: LOG_BYTES,
            log_max_bytes: LOG_BYTES,
            background: false,
            stage_bytes,
            ..Options::default()
        };
        new_store_with(&place.child(name)?.dir, options)
    };
    let (staged, logged) = (store("staged", 1)?, store("logged", u64::MAX)?);
    let mut data = vec![1; case.size.mean_bytes() as usize];
    if are_there(case) {
        for store in [&staged, &logged] {
            (0..case.files).try_for_each(|n| write(store, case, n, &data)).map_err(failed)?;
            store.checkpoint().map_err(failed)?;
        }
    }
    for turn in 0..plan.turns {
        data.fill(turn as u8 + 2);
        for i in 0..figures.len() {
            match figures[(turn + i) % figures.len()].system {
                "new_file" => {
                    let clock = Clock::start_with_memory(place, None)?;
                    for n in 0..case.files {
                        write_file(&place.dir.join(format!("new{n}")), case.file_bytes, &data)?;
                        std::fs::File::open(&place.dir)?.sync_all()?;
                    }
                    add(
                        figures,
                        "new_file",
                        with_syncs(clock.stop(None, case.files.into())?, 2 * u64::from(case.files)),
                    );
                    (0..case.files).try_for_each(|n| std::fs::remove_file(place.dir.join(format!("new{n}"))))?;
                }
                "staged" => timed(&staged, setting, &data, figures, ["staged_deferred", "staged"])?,
                "logged" => timed(&logged, setting, &data, figures, ["logged_deferred", "logged"])?,
                // The other stop of the same clock.
                _ => continue,
            }
            sync_file_system(&place.dir)?;
        }
    }
    staged.close().map_err(failed)?;
    logged.close().map_err(failed)
}

/// Whether the files are, before they are written to.
fn are_there(case: &Case) -> bool {
    case.name.starts_with("over_")
}

fn timed(
    store: &Store,
    Setting { case, place, .. }: &Setting<'_>,
    data: &[u8],
    figures: &mut [Figures],
    [deferred, home]: [&str; 2],
) -> Result<()> {
    let clock = Clock::start_with_memory(place, Some(store))?;
    (0..case.files).try_for_each(|n| write(store, case, n, data)).map_err(failed)?;
    let committed = clock.stop(Some(store), case.files.into())?;
    store.checkpoint().map_err(failed)?;
    add(figures, home, clock.stop(Some(store), case.files.into())?);
    add(figures, deferred, committed);
    for n in (0..case.files).filter(|_| !are_there(case)) {
        store.unlink(format!("new{n}")).map_err(failed)?;
    }
    store.checkpoint().map_err(failed).map(drop)
}

fn write(store: &Store, case: &Case, n: u32, data: &[u8]) -> wholly::Result<()> {
    let mut group = store.begin();
    let name = format!("new{n}");
    let file = match group.open_file(&name) {
        Err(Error::NotFound(_)) => group.create(name, 0o600)?,
        file => file?,
    };
    for offset in (0..case.file_bytes).step_by(data.len()) {
        group.write_at(&file, offset, data)?;
    }
    group.commit()
}
