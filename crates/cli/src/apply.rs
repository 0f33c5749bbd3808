//! `wholly apply`: a parked group is committed, and taken home; or one of each of several stores, together.

use crate::args::ApplyArgs;
use crate::error::{Exit, Failure};
use crate::output::{Ui, name};
use crate::recover;
use serde::Serialize;
use std::path::{Path, PathBuf};
use wholly::{Error, ParkedId, Store};

#[derive(Serialize)]
struct Applied {
    applied: bool,
    groups: Vec<Group>,
    /// What is not as the groups rely on.
    mismatches: Vec<Mismatch>,
}

#[derive(Serialize)]
struct Group {
    dir: PathBuf,
    id: String,
}

#[derive(Serialize)]
struct Mismatch {
    dir: PathBuf,
    path: String,
    what: String,
}

/// Applies parked groups.
pub fn run(args: &ApplyArgs, ui: &Ui) -> Result<Exit, Failure> {
    let groups = groups(args)?;
    let mut stores = Vec::new();
    for (dir, _) in &groups {
        stores.push(recover::open("apply", dir, ui)?);
    }
    let done = match (&stores[..], &groups[..]) {
        ([store], [(_, id)]) => store.apply(*id),
        _ => Store::apply_together(stores.iter().zip(groups.iter().map(|(_, id)| *id))),
    };
    let is_applied = match done {
        Ok(()) => true,
        Err(Error::Overtaken(..)) => false,
        Err(error) => return Err(Failure::of_store("apply", &args.dir, error)),
    };
    let mut applied = Applied { applied: is_applied, groups: Vec::new(), mismatches: Vec::new() };
    for (store, (dir, id)) in stores.into_iter().zip(groups) {
        let failed = |error| Failure::of_store("apply", &dir, error);
        if is_applied {
            recover::take_home(&store, ui).map_err(failed)?;
            store.close().map_err(failed)?;
        } else {
            let told =
                |it: wholly::Mismatch| Mismatch { dir: dir.clone(), path: name(it.path.as_bytes()), what: it.what };
            applied.mismatches.extend(store.overtaken(id).map_err(failed)?.into_iter().map(told));
        }
        applied.groups.push(Group { dir, id: id.to_string() });
    }
    ui.emit("apply", &applied, text)?;
    Ok(if applied.applied { Exit::DONE } else { Exit::DAMAGED })
}

/// The stores that are named, each with its group.
fn groups(args: &ApplyArgs) -> Result<Vec<(PathBuf, ParkedId)>, Failure> {
    let failed = |dir: &Path, why: String| Failure::new(format!("apply in {}", dir.display()), why);
    let mut groups = vec![(args.dir.clone(), args.id)];
    for pair in args.others.chunks(2) {
        let dir = PathBuf::from(&pair[0]);
        let Some(id) = pair.get(1) else {
            return Err(failed(&dir, "no group is named".into()).advice("`wholly list` names those that are parked"));
        };
        let id = id.to_string_lossy().parse().map_err(|error: Error| failed(&dir, error.to_string()))?;
        groups.push((dir, id));
    }
    Ok(groups)
}

fn text(applied: &Applied) -> String {
    let groups: Vec<_> = applied.groups.iter().map(|group| group.id.as_str()).collect();
    let ids = groups.join(", ");
    if applied.applied {
        return format!("{ids}: applied, and all files are current\n");
    }
    let mut text = format!("{ids}: not applied, nothing was changed. Since it was parked:\n");
    for Mismatch { dir, path, what } in &applied.mismatches {
        // One store is known by what was asked.
        let dir = if applied.groups.len() > 1 { format!("{}/", dir.display()) } else { String::new() };
        text += &format!("  {dir}{path}: {what}\n");
    }
    text + "It stays parked: put that right and apply it again, or discard it.\n"
}
