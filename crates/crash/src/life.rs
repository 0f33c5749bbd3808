//! What comes after a crash: recovery, and everything that must still work then. This is the oracle.
//!
//! 1. A checker finds nothing wrong, and recovery succeeds and serves one of the allowed states: nothing else.
//! 2. Recovering once more serves the same.
//! 3. New groups over old and new files commit; in a store, what is parked can be applied, if all is as it was.
//! 4. After a close all is on the media as expected, and there is nothing else; in a store, byte for byte and link for
//!    link in the directory.
//! 5. There is nothing to recover then, and another open serves the same.

use std::borrow::Cow;
use std::sync::Arc;

use wholly_sim::{Image, ReadSet, World};

use crate::run::{Allowed, Operation};
use crate::setting::Setting;
use crate::subject::{NotOpened, Subject};
use crate::tree::State;
use crate::workload::Promise;

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
pub fn live<S: Subject>(
    subject: &S,
    setting: &Setting,
    image: &Image,
    allowed: &Allowed,
    extent: Extent,
) -> Result<Life, String> {
    crate::quiet::catch(|| {
        let world = World::from_image(image, setting.sim.clone());
        let mut life = Life { world, fingerprint: 0, served: None, operations: Vec::new() };
        life.recover(subject, setting, allowed)?;
        if let Some(state) = life.served {
            let state = allowed.states[state].clone();
            if extent.twice {
                life.recover_again(subject, setting, &state)?;
            }
            if extent.go_on {
                life.go_on(subject, setting, state)?;
            }
        }
        Ok(life)
    })
    .unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

/// What a recovery of this image, and the reading of all files, look at.
pub fn reads_of<S: Subject>(subject: &S, setting: &Setting, image: &Image) -> ReadSet {
    let world = World::from_image(image, setting.sim.clone());
    world.track_reads();
    // Whether it goes well is asked where the image is judged.
    let _ = crate::quiet::catch(|| {
        let open = subject.open(&world, setting).map_err(|error| error.to_string())?;
        subject.observe(&world, &open)
    });
    world.stop_reads()
}

impl Life {
    /// Records an operation, after which there is `state`.
    pub fn operation<T>(
        &mut self,
        label: &'static str,
        state: &Promise,
        body: impl FnOnce(&mut Life) -> Result<T, String>,
    ) -> Result<T, String> {
        let begin = self.world.now() + 1;
        let result = body(self)?;
        let end = self.world.now();
        self.operations.push(Operation {
            label: Cow::Borrowed(label),
            begin,
            end,
            state: state.clone(),
            waits: Vec::new(),
        });
        Ok(result)
    }

    /// What a crash may leave during the last operation and after it: not its state alone.
    pub fn may_leave(&mut self, states: Vec<Promise>) {
        self.operations.last_mut().expect("one was made").waits = states;
    }

    fn recover<S: Subject>(&mut self, subject: &S, setting: &Setting, allowed: &Allowed) -> Result<(), String> {
        if !allowed.unmade {
            subject.check(&self.world).map_err(|what| format!("a check before recovery: {what}"))?;
        }
        self.world.track_reads();
        let open = match subject.open(&self.world, setting) {
            Ok(open) => open,
            Err(NotOpened::Unmade(_)) if allowed.unmade => {
                self.fingerprint = self.world.stop_reads().fingerprint();
                return Ok(());
            }
            Err(error) => return Err(format!("recovery: {error}")),
        };
        let opened = self.world.now();
        let served = subject.observe(&self.world, &open).map_err(|error| format!("after recovery, {error}"))?;
        let end = if S::OBSERVES_IN_RECOVERY { self.world.now() } else { opened };
        self.fingerprint = self.world.stop_reads().fingerprint();
        let Some(which) = allowed.states.iter().position(|state| **state == served) else {
            let differences: Vec<String> =
                allowed.states.iter().map(|state| state.difference(&served).unwrap_or_default()).collect();
            return Err(format!("recovery serves a state that never was: {}", differences.join("; or ")));
        };
        self.served = Some(which);
        let state = allowed.states[which].clone();
        self.operations.push(Operation { label: Cow::Borrowed("recovery"), begin: 1, end, state, waits: Vec::new() });
        Ok(())
    }

    fn recover_again<S: Subject>(&mut self, subject: &S, setting: &Setting, state: &Promise) -> Result<(), String> {
        self.operation("second recovery", state, |life| {
            let open = subject.open(&life.world, setting).map_err(|error| format!("second recovery: {error}"))?;
            life.expect(subject, &open, state, "after a second recovery")
        })
    }

    fn go_on<S: Subject>(&mut self, subject: &S, setting: &Setting, state: Promise) -> Result<(), String> {
        let open = self.operation("open", &state, |life| {
            subject.open(&life.world, setting).map_err(|error| format!("open to go on: {error}"))
        })?;
        let after = subject.go_on(self, &open, state)?;
        self.operation("close", &after, |_| subject.close(open).map_err(|error| format!("close: {error}")))?;
        subject.at_rest(&self.world, &after).map_err(|what| format!("at rest after close, {what}"))?;
        self.operation("open after close", &after, |life| {
            let open = subject.open(&life.world, setting).map_err(|error| format!("open after close: {error}"))?;
            subject.was_closed(&open)?;
            life.expect(subject, &open, &after, "after close and open")
        })
    }

    /// That the subject serves a state.
    ///
    /// # Errors
    /// What it serves otherwise.
    pub fn expect<S: Subject>(&self, subject: &S, open: &S::Open, state: &State, when: &str) -> Result<(), String> {
        let served = subject.observe(&self.world, open).map_err(|error| format!("{when}, {error}"))?;
        match state.difference(&served) {
            None => Ok(()),
            Some(difference) => Err(format!("{when}, {difference}")),
        }
    }
}
