//! `wholly discard`: a parked group is removed, with the other parts of what was parked together.

use crate::args::ParkedArgs;
use crate::error::{Exit, Failure};
use crate::list;
use crate::opening;
use crate::output::{Name, Ui};
use crate::parts;
use crate::recover;
use serde::Serialize;

#[derive(Serialize)]
struct Discarded {
    id: String,
    /// All of them, in their directories.
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    dir: Name,
    id: String,
}

/// Discards a parked group.
pub fn run(args: &ParkedArgs, ui: &Ui) -> Result<Exit, Failure> {
    let (dir, id) = list::group("discard", &args.dir, args.id)?;
    let mut all = vec![(dir.clone(), id)];
    if args.only {
        parts::warn("discard", &dir, id);
    } else {
        all = parts::all("discard", all, true)?;
    }
    // All are opened before any is discarded: what cannot be had keeps the others.
    let mut stores = Vec::new();
    for (dir, _) in &all {
        stores.push(recover::open("discard", dir, ui)?);
    }
    let mut discarded = Discarded { id: id.to_string(), groups: Vec::new() };
    // What is named goes last: where this is interrupted, it names the rest.
    for (store, (dir, id)) in stores.iter().zip(&all).rev() {
        store.discard(*id).map_err(|error| Failure::of_decision("discard", dir, error))?;
        discarded.groups.push(Group { dir: dir.clone().into(), id: id.to_string() });
    }
    discarded.groups.reverse();
    for (store, (dir, _)) in stores.into_iter().zip(all) {
        let failed = |error| Failure::of_store("discard", &dir, error);
        if store.is_temporary().map_err(failed)? {
            opening::close(store).map_err(failed)?;
        }
    }
    ui.emit("discard", &discarded, |discarded| {
        let one = |group: &Group| match &discarded.groups[..] {
            [_] => format!("{}: discarded\n", group.id),
            _ => format!("{} in {}: discarded\n", group.id, group.dir),
        };
        discarded.groups.iter().map(one).collect()
    })?;
    Ok(Exit::DONE)
}
