//! `wholly apply`: a parked group is committed, and taken home.

use crate::args::ParkedArgs;
use crate::error::{Exit, Failure};
use crate::output::{Ui, name};
use crate::recover;
use serde::Serialize;
use wholly::Error;

#[derive(Serialize)]
struct Applied {
    id: String,
    applied: bool,
    /// What is not as the group relies on.
    mismatches: Vec<Mismatch>,
}

#[derive(Serialize)]
struct Mismatch {
    path: String,
    what: String,
}

/// Applies a parked group.
pub fn run(args: &ParkedArgs, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |error| Failure::of_store("apply", &args.dir, error);
    let store = recover::open("apply", &args.dir, ui)?;
    let mismatches = match store.apply(args.id) {
        Ok(()) => Vec::new(),
        Err(Error::Overtaken(_, what)) => what.to_vec(),
        Err(error) => return Err(failed(error)),
    };
    let told = |mismatch: wholly::Mismatch| Mismatch { path: name(mismatch.path.as_bytes()), what: mismatch.what };
    let applied = Applied {
        id: args.id.to_string(),
        applied: mismatches.is_empty(),
        mismatches: mismatches.into_iter().map(told).collect(),
    };
    if applied.applied {
        recover::take_home(&store, ui).map_err(failed)?;
        store.close().map_err(failed)?;
    }
    ui.emit("apply", &applied, text)?;
    Ok(if applied.applied { Exit::DONE } else { Exit::DAMAGED })
}

fn text(applied: &Applied) -> String {
    if applied.applied {
        return format!("{}: applied, and all files are current\n", applied.id);
    }
    let mut text = format!("{}: not applied, nothing was changed. Since it was parked:\n", applied.id);
    for mismatch in &applied.mismatches {
        text += &format!("  {}: {}\n", mismatch.path, mismatch.what);
    }
    text + "It stays parked: put that right and apply it again, or discard it.\n"
}
