//! What comes after a crash: recovery, and everything that must still work then. This is the oracle.
//!
//! 1. Recovery succeeds, reports no conflict and serves one of the allowed states: nothing else.
//! 2. Recovering once more serves the same.
//! 3. What is parked can be applied, if all is as it was; a new group over old and new files commits.
//! 4. A close takes everything home: all in the directory is as expected, byte for byte, link for link, and there is
//!    nothing else.
//! 5. The log is empty then, and another open serves the same.

use std::borrow::Cow;
use std::sync::Arc;

use wholly::{Error, Rename, Store};
use wholly_host::SetXattr;
use wholly_sim::{Image, ReadSet, World};

use crate::look::{at_home, served};
use crate::run::{Allowed, Operation, in_group, open};
use crate::script::{PATHS, XATTRS};
use crate::setting::Setting;
use crate::tree::State;
use crate::workload::{FRESH, NAMES, Op, Promise, Start, Workload};

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
        served(&world, &store, workload)
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
        no_conflict(&store)?;
        let served = served(&self.world, &store, workload).map_err(|error| format!("after recovery, {error}"))?;
        // Only now: who is told that a store is no guest has it made so.
        let end = self.world.now();
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
        let state = self.apply_all(workload, &store, state)?;
        let mut after = (*state).clone();
        let mut group = store.begin();
        let mut made = None;
        for (i, op) in ops_after(workload, &state).iter().enumerate() {
            let bytes = op.bytes(u64::from(u32::MAX) + i as u64).unwrap_or_default();
            if after.apply(op, &bytes).is_err() {
                continue;
            }
            let file = if op.is_of_bytes() && op.file() == FRESH { made.clone() } else { None };
            let done = in_group(&mut group, file, op, &bytes);
            made = done.map_err(|error| format!("in a new group: {op:?}: {error}"))?.or(made);
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

    /// Applies what is parked: it must be possible where all is as it was then.
    fn apply_all(&mut self, workload: &Workload, store: &Store, mut state: Promise) -> Result<Promise, String> {
        for parked in store.parked().map_err(|error| format!("what is parked: {error}"))? {
            let number = parked.note.parse().unwrap_or_default();
            let begin = self.world.now() + 1;
            let done = store.apply(parked.id);
            let mut after = (*state).clone();
            match (&done, after.apply_parked(number)) {
                (Ok(()), Ok(())) => {}
                (Err(Error::ChangedMeanwhile(..)), _) if !state.is_as_when_parked(number) => continue,
                (done, model) => return Err(format!("apply of {number}: {done:?}, and should be {model:?}")),
            }
            let (end, label) = (self.world.now(), Cow::Borrowed("apply"));
            state = Promise::new(after);
            self.operations.push(Operation { label, begin, end, state: state.clone() });
            self.expect(workload, store, &state, "after a parked group was applied")?;
        }
        Ok(state)
    }

    fn expect(&self, workload: &Workload, store: &Store, state: &State, when: &str) -> Result<(), String> {
        let served = served(&self.world, store, workload).map_err(|error| format!("{when}, {error}"))?;
        match state.difference(&served) {
            None => Ok(()),
            Some(difference) => Err(format!("{when}, {difference}")),
        }
    }

    /// The directory holds this and nothing else.
    fn expect_home(&self, state: &State) -> Result<(), String> {
        let home = at_home(&self.world.latest()).map_err(|error| format!("at home after close, {error}"))?;
        match state.difference(&home) {
            None => Ok(()),
            Some(difference) => Err(format!("at home after close, {difference}")),
        }
    }
}

/// What a new group does after a recovery: to what is there, and to what it makes. What cannot be done is left out.
fn ops_after(workload: &Workload, state: &State) -> Vec<Op> {
    let files: Vec<&'static str> = match workload.start {
        Start::Files => NAMES[..2].to_vec(),
        _ => PATHS.iter().copied().filter(|path| state.content(path).is_some() && state.find(path).is_ok()).collect(),
    };
    let mut ops = vec![Op::Create(FRESH), Op::Append { file: FRESH, length: 11 }];
    if let (Some(first), Some(last)) = (files.first(), files.get(1).or(files.first())) {
        ops.push(Op::Write { file: first, offset: 5, length: 24 });
        ops.push(Op::Append { file: last, length: 9 });
        if workload.start != Start::Files {
            // The file moves by its new name, and by its old one another comes.
            ops.push(Op::Mkdir(NEW_DIR));
            ops.push(Op::Link { from: first, to: NEW_LINK });
            ops.push(Op::Rename { from: last, to: NEW_NAME, how: Rename::Replace });
            ops.push(Op::Rename { from: FRESH, to: last, how: Rename::NoReplace });
            // What it had of attributes, what is new has them too, and what both lie in.
            ops.extend(ATTRIBUTES_AFTER);
        }
    }
    ops
}

/// The first of them after a write to that file, the others after names in that directory came.
const ATTRIBUTES_AFTER: [Op; 5] = [
    Op::SetTimes { path: NEW_LINK, atime: false, mtime: true },
    Op::SetXattr { path: NEW_NAME, name: XATTRS[0], length: 30, how: SetXattr::Any },
    Op::RemoveXattr { path: NEW_LINK, name: XATTRS[0] },
    Op::SetMode { path: NEW_NAME, mode: 0o640 },
    Op::SetTimes { path: NEW_DIR, atime: true, mtime: true },
];

const NEW_DIR: &str = "new";
const NEW_LINK: &str = "new/link";
const NEW_NAME: &str = "new/name";

fn no_conflict(store: &Store) -> Result<(), String> {
    match store.recovery().conflicts.first() {
        None => Ok(()),
        Some((path, change)) => {
            Err(format!("recovery reports a conflict where nobody interfered: {}: {change}", path.display()))
        }
    }
}
