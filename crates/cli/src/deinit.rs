//! `wholly deinit`: everything is written back, and the directory is an ordinary one again.

use crate::args::DeinitArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, shown, size};
use crate::recover;
use crate::registry::Registry;
use crate::survey;
use serde::Serialize;

#[derive(Serialize)]
struct Removed {
    dir: Name,
    /// Committed groups that were not written back.
    groups: u64,
    /// Bytes written to the files.
    written_back_bytes: u64,
    /// Parked groups that were discarded.
    discarded: u64,
}

/// Removes a store.
pub fn run(args: &DeinitArgs, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |error| Failure::of_store("deinit", &args.dir, error);
    let dir = args.dir.canonicalize().unwrap_or_else(|_| args.dir.clone());
    let volume_id = survey::volume_id_of(&dir, "deinit")?;
    let store = recover::open("deinit", &args.dir, ui)?;
    let parked = store.parked().map_err(failed)?;
    if !args.discard_parked && !parked.is_empty() {
        let why = format!("{} in it", count(parked.len() as u64, "parked group"));
        return Err(Failure::new(format!("deinit {}", dir.display()), why)
            .advice("`wholly list` names them; apply or discard them, or use --discard-parked"));
    }
    let groups = store.recovery().scan.groups;
    recover::write_back(&store, ui).map_err(failed)?;
    let written_back_bytes = store.stat().home_bytes_written;
    let undos = store.undos().map_err(failed)?;
    for id in parked.iter().map(|parked| parked.id).chain(undos.iter().map(|undo| undo.id)) {
        store.discard(id).map_err(failed)?;
    }
    store.remove().map_err(failed)?;
    if let (Some(registry), Some(volume_id)) = (Registry::of_user(), volume_id)
        && let Err(error) = registry.remove(&volume_id, &dir)
    {
        let registry = shown(registry.dir());
        eprintln!(
            "wholly: deinit {}: it stays registered for `wholly recover --all`: {registry}: {error}",
            shown(&dir)
        );
    }
    let removed = Removed { dir: dir.into(), groups, written_back_bytes, discarded: parked.len() as u64 };
    ui.emit("deinit", &removed, |removed| {
        let written = match removed.written_back_bytes {
            0 => "everything was written back".into(),
            bytes => format!("{} written back", size(bytes)),
        };
        format!("{} is an ordinary directory again: {written}\n", removed.dir)
    })?;
    Ok(Exit::DONE)
}
