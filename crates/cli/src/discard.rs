//! `wholly discard`: a parked group is removed.

use crate::args::ParkedArgs;
use crate::error::{Exit, Failure};
use crate::output::Ui;
use crate::recover;
use serde::Serialize;

#[derive(Serialize)]
struct Discarded {
    id: String,
}

/// Discards a parked group.
pub fn run(args: &ParkedArgs, ui: &Ui) -> Result<Exit, Failure> {
    let store = recover::open("discard", &args.dir, ui)?;
    store.discard(args.id).map_err(|error| Failure::of_decision("discard", &args.dir, error))?;
    let discarded = Discarded { id: args.id.to_string() };
    ui.emit("discard", &discarded, |discarded| format!("{}: discarded\n", discarded.id))?;
    Ok(Exit::DONE)
}
