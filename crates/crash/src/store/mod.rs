//! A store over a directory, as a subject: a [`Workload`] is its program.

mod go_on;
mod program;

use std::sync::Arc;

use wholly::{Error, Store};
use wholly_sim::World;

use crate::life::Life;
use crate::look::{at_home, served};
use crate::reader::read_along;
use crate::run::{Recorder, Run};
use crate::setting::Setting;
use crate::subject::{Beginning, NotOpened, Subject};
use crate::tree::State;
use crate::workload::{Promise, Start, Workload};

pub(crate) use go_on::ops_after;
pub(crate) use program::{format, in_group, open};

impl Subject for Workload {
    type Open = Store;

    /// A guest that is asked whether it is one is made one.
    const OBSERVES_IN_RECOVERY: bool = true;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn rules(&self) -> String {
        let Workload { start, min_segments, max_segments, gather_bytes, stage_bytes, open_files, policy, .. } = self;
        // Where only files change, those that the workload speaks of are looked at.
        let files = if *start == Start::Files { self.files() } else { Vec::new() };
        format!(
            "{start:?} {files:?} {min_segments} {max_segments} {gather_bytes} {stage_bytes} {open_files} {policy:?}"
        )
    }

    fn begin(&self, setting: &Setting) -> Beginning {
        let world = World::new(setting.sim.clone());
        let state = self.initial();
        state.put_into(&world);
        Beginning { world, state, is_made: false }
    }

    fn perform(&self, setting: &Setting, recorder: &mut Recorder) -> Result<(), String> {
        program::perform(self, setting, recorder)
    }

    /// What a crash leaves is no damage. Whether there is a store at all the open tells.
    fn check(&self, world: &Arc<World>) -> Result<(), String> {
        let report = wholly::check_region(world.log(), world.host()).map_err(|error| format!("check: {error}"))?;
        let superblocks =
            report.findings.iter().filter(|found| found.place.as_encoded_bytes().starts_with(b"superblock"));
        let is_made = superblocks.clone().count() < 2 && superblocks.clone().all(|found| found.place != "superblock");
        // In a copy it says that it is one.
        let is_fault = |found: &&wholly::Finding| found.is_fault() && found.kind != wholly::FindingKind::Copy;
        match report.findings.iter().find(is_fault) {
            Some(fault) if is_made => Err(format!("check: {}: {}", fault.place.display(), fault.what)),
            _ => Ok(()),
        }
    }

    fn open(&self, world: &Arc<World>, setting: &Setting) -> Result<Store, NotOpened> {
        let store = open(world, self, setting).map_err(|error| match error {
            Error::NotAStore(_) | Error::Corrupt { .. } => NotOpened::Unmade(error.to_string()),
            error => NotOpened::Failed(error.to_string()),
        })?;
        go_on::no_conflict(&store).map_err(NotOpened::Failed)?;
        Ok(store)
    }

    fn observe(&self, world: &Arc<World>, store: &Store) -> Result<State, String> {
        served(world, store, self)
    }

    fn go_on(&self, life: &mut Life, store: &Store, state: Promise) -> Result<Promise, String> {
        go_on::go_on(life, self, store, state)
    }

    fn close(&self, store: Store) -> Result<(), String> {
        store.close().map_err(|error| error.to_string())
    }

    /// The directory holds this and nothing else.
    fn at_rest(&self, world: &Arc<World>, state: &State) -> Result<(), String> {
        match state.difference(&at_home(&world.latest())?) {
            None => Ok(()),
            Some(difference) => Err(format!("the directory is not as it should be: {difference}")),
        }
    }

    fn was_closed(&self, store: &Store) -> Result<(), String> {
        let recovery = store.recovery();
        match (recovery.scan.groups, recovery.files) {
            (0, 0) => Ok(()),
            _ => Err(format!("the log is not empty after close: {recovery:?}")),
        }
    }

    fn seen_beside(&self, run: &Run) -> Option<(u64, String)> {
        read_along(run)
    }
}
