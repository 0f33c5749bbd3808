//! What comes after a crash: recovery, and everything that must still work then. This is the oracle.
//!
//! 1. Recovery succeeds, reports no conflict and serves one of the allowed states: nothing else.
//! 2. Recovering once more serves the same.
//! 3. A new group over old and new files commits.
//! 4. A close takes everything home: every file of the directory is as expected, byte for byte, and there is no other.
//! 5. The log is empty then, and another open serves the same.

use std::borrow::Cow;
use std::sync::Arc;

use wholly::{Error, Store};
use wholly_media::sim::{Image, Place, ReadSet, World};

use crate::run::{Allowed, Operation, open, served};
use crate::setting::Setting;
use crate::workload::{EXISTING, NAMES, Op, Promise, State, Workload, data};

/// How much of a life is lived. Recovery and reading everything always are.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The process dies after recovery, and another one recovers.
    pub twice: bool,
    /// A new group, a close, and an open after it.
    pub go_on: bool,
}

impl Extent {
    /// All of it: what a life is that is crashed again.
    pub const WHOLE: Extent = Extent { twice: true, go_on: true };
}

/// What became of a state.
pub struct Life {
    /// The world in which it was lived.
    pub world: Arc<World>,
    /// What recovery and the reading of all files looked at: states with the same fingerprint are one.
    pub fingerprint: u64,
    /// Which of the allowed states was served; none where no store was made yet.
    pub served: Option<usize>,
    /// What was done, with the points of this life's own trace.
    pub operations: Vec<Operation>,
}

/// Lives on after a crash.
///
/// # Errors
/// What is wrong, in words.
pub fn live(
    workload: &Workload,
    setting: &Setting,
    image: &Image,
    allowed: &Allowed,
    extent: Extent,
) -> Result<Life, String> {
    crate::quiet::catch(|| {
        let world = World::from_image(image, setting.sim.clone());
        let mut life = Life { world, fingerprint: 0, served: None, operations: Vec::new() };
        life.recover(workload, setting, allowed)?;
        if let Some(state) = life.served {
            let state = allowed.states[state].clone();
            if extent.twice {
                life.recover_again(workload, setting, &state)?;
            }
            if extent.go_on {
                life.go_on(workload, setting, state)?;
            }
        }
        Ok(life)
    })
    .unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

/// What a recovery of this image, and the reading of all files, look at.
pub fn reads_of(workload: &Workload, setting: &Setting, image: &Image) -> ReadSet {
    let world = World::from_image(image, setting.sim.clone());
    world.track_reads();
    // Whether it goes well is asked where the image is judged.
    let _ = crate::quiet::catch(|| {
        let store = open(&world, workload, setting).map_err(|error| error.to_string())?;
        served(&world, &store, workload.files())
    });
    world.stop_reads()
}

impl Life {
    fn operation<T>(
        &mut self,
        label: &'static str,
        state: &Promise,
        body: impl FnOnce(&mut Life) -> Result<T, String>,
    ) -> Result<T, String> {
        let begin = self.world.now() + 1;
        let result = body(self)?;
        let end = self.world.now();
        self.operations.push(Operation { label: Cow::Borrowed(label), begin, end, state: state.clone() });
        Ok(result)
    }

    fn recover(&mut self, workload: &Workload, setting: &Setting, allowed: &Allowed) -> Result<(), String> {
        self.world.track_reads();
        let store = match open(&self.world, workload, setting) {
            Ok(store) => store,
            Err(Error::NotAStore(_) | Error::Corrupt { .. }) if allowed.unmade => {
                self.fingerprint = self.world.stop_reads().fingerprint();
                return Ok(());
            }
            Err(error) => return Err(format!("recovery: {error}")),
        };
        let end = self.world.now();
        no_conflict(&store)?;
        let served =
            served(&self.world, &store, workload.files()).map_err(|error| format!("after recovery, {error}"))?;
        self.fingerprint = self.world.stop_reads().fingerprint();
        let Some(which) = allowed.states.iter().position(|state| **state == served) else {
            let differences: Vec<String> =
                allowed.states.iter().map(|state| state.difference(&served).unwrap_or_default()).collect();
            return Err(format!("recovery serves a state that never was: {}", differences.join("; or ")));
        };
        self.served = Some(which);
        let state = allowed.states[which].clone();
        self.operations.push(Operation { label: Cow::Borrowed("recovery"), begin: 1, end, state });
        Ok(())
    }

    fn recover_again(&mut self, workload: &Workload, setting: &Setting, state: &Promise) -> Result<(), String> {
        self.operation("second recovery", state, |life| {
            let store = open(&life.world, workload, setting).map_err(|error| format!("second recovery: {error}"))?;
            no_conflict(&store)?;
            life.expect(workload, &store, state, "after a second recovery")
        })
    }

    fn go_on(&mut self, workload: &Workload, setting: &Setting, state: Promise) -> Result<(), String> {
        let store = self.operation("open", &state, |life| {
            open(&life.world, workload, setting).map_err(|error| format!("open to go on: {error}"))
        })?;
        let ops = [
            Op::Write { file: 0, offset: 5, length: 24 },
            Op::Append { file: 1, length: 9 },
            Op::Create(workload.files() - 1),
            Op::Append { file: workload.files() - 1, length: 11 },
        ];
        let mut after = (*state).clone();
        let mut group = store.begin();
        let mut created = None;
        for (i, op) in ops.iter().enumerate() {
            let bytes = match op {
                Op::Write { length, .. } | Op::Append { length, .. } => data(u64::from(u32::MAX) + i as u64, *length),
                _ => Vec::new(),
            };
            if !after.apply(op, &bytes) {
                continue;
            }
            let done = match op {
                Op::Create(file) => group.create(NAMES[*file], 0o600).map(|file| created = Some(file)),
                Op::Write { file, offset, .. } => {
                    store.open_file(NAMES[*file]).and_then(|file| group.write_at(&file, *offset, &bytes))
                }
                Op::Append { file, .. } if *file < EXISTING => {
                    store.open_file(NAMES[*file]).and_then(|file| group.append(&file, &bytes).map(drop))
                }
                Op::Append { file, .. } => created
                    .take()
                    .map_or_else(|| store.open_file(NAMES[*file]), Ok)
                    .and_then(|file| group.append(&file, &bytes).map(drop)),
                Op::SetLen { .. } => Ok(()),
            };
            done.map_err(|error| format!("in a new group: {error}"))?;
        }
        let after = Promise::new(after);
        self.operation("a new commit", &after, |life| {
            group.commit().map_err(|error| format!("a new group does not commit: {error}"))?;
            life.expect(workload, &store, &after, "after a new group")
        })?;
        self.operation("close", &after, |_| store.close().map_err(|error| format!("close: {error}")))?;
        self.expect_home(&after)?;
        self.operation("open after close", &after, |life| {
            let store = open(&life.world, workload, setting).map_err(|error| format!("open after close: {error}"))?;
            no_conflict(&store)?;
            if store.recovery().scan.groups != 0 || store.recovery().files != 0 {
                return Err(format!("the log is not empty after close: {:?}", store.recovery()));
            }
            life.expect(workload, &store, &after, "after close and open")
        })
    }

    fn expect(&self, workload: &Workload, store: &Store, state: &State, when: &str) -> Result<(), String> {
        let served = served(&self.world, store, workload.files()).map_err(|error| format!("{when}, {error}"))?;
        match state.difference(&served) {
            None => Ok(()),
            Some(difference) => Err(format!("{when}, {difference}")),
        }
    }

    /// The directory holds these files and no other.
    fn expect_home(&self, state: &State) -> Result<(), String> {
        let image = self.world.latest();
        let mut home = State(vec![None; state.0.len()]);
        for (path, is_dir) in image.paths() {
            if is_dir {
                continue;
            }
            let Some(number) = NAMES[..state.0.len()].iter().position(|name| name.as_bytes() == path) else {
                return Err(format!("a file that nobody made is at home: {}", String::from_utf8_lossy(&path)));
            };
            home.0[number] = image.read(&Place::File(path)).map(Arc::from);
        }
        match state.difference(&home) {
            None => Ok(()),
            Some(difference) => Err(format!("at home after close, {difference}")),
        }
    }
}

fn no_conflict(store: &Store) -> Result<(), String> {
    match store.recovery().conflicts.first() {
        None => Ok(()),
        Some((path, change)) => Err(format!("recovery reports a conflict where nobody interfered: {path}: {change}")),
    }
}
