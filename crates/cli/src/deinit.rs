//! `wholly deinit`: everything is taken home, and the directory is an ordinary one again.

use crate::args::DeinitArgs;
use crate::error::{Exit, Failure};
use crate::output::{Ui, size};
use crate::recover;
use crate::registry::Registry;
use crate::survey;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Removed {
    dir: PathBuf,
    /// Committed groups that were not home.
    groups: u64,
    /// Bytes written to the files.
    home_bytes: u64,
}

/// Removes a store.
pub fn run(args: &DeinitArgs, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |error| Failure::of_store("deinit", &args.dir, error);
    let dir = args.dir.canonicalize().unwrap_or_else(|_| args.dir.clone());
    let volume_id = survey::volume_id_of(&dir, "deinit")?;
    let store = recover::open("deinit", &args.dir, ui)?;
    let groups = store.recovery().scan.groups;
    recover::take_home(&store, ui).map_err(failed)?;
    let home_bytes = store.stat().home_bytes_written;
    store.remove().map_err(failed)?;
    if let (Some(registry), Some(volume_id)) = (Registry::of_user(), volume_id)
        && let Err(error) = registry.remove(&volume_id, &dir)
    {
        let registry = registry.dir().display();
        eprintln!("wholly: deinit {}: `wholly recover --all` still asks for it: {registry}: {error}", dir.display());
    }
    ui.emit("deinit", &Removed { dir, groups, home_bytes }, |removed| {
        let home = match removed.home_bytes {
            0 => "everything was home".into(),
            bytes => format!("{} taken home", size(bytes)),
        };
        format!("{} is an ordinary directory again: {home}\n", removed.dir.display())
    })?;
    Ok(Exit::DONE)
}
