//! Running a program in a recording world: what happened, and what could be seen after each operation.
//!
//! An *operation* is what has a begin and a return in the trace: making the store, opening it, the body of a group, its
//! commit or abort, a call, a checkpoint, a close. Only commits and calls change the state.

use std::borrow::Cow;
use std::sync::Arc;

use wholly_sim::{EventKind, Mark, Trace, World};

use crate::setting::Setting;
use crate::subject::{Beginning, Subject};
use crate::tree::State;
use crate::workload::{Promise, mix};

/// One operation of a run.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What it is, for people.
    pub label: Cow<'static, str>,
    /// The crash point from which on it may have had an effect.
    pub begin: u64,
    /// The crash point from which on it has returned; `u64::MAX` if it never did.
    pub end: u64,
    /// The state after it.
    pub state: Promise,
    /// What a crash may leave once it has returned, where that is not `state` alone: it is not durable yet.
    pub waits: Vec<Promise>,
}

impl Operation {
    /// What a crash may leave once it has returned.
    fn leaves(&self) -> &[Promise] {
        if self.waits.is_empty() { std::slice::from_ref(&self.state) } else { &self.waits }
    }
}

/// A recorded run.
pub struct Run {
    /// What happened.
    pub trace: Trace,
    /// What may be there before the first operation has returned: what was there when the run began.
    pub before: Vec<Promise>,
    /// Whether the store need not be there before the first operation has returned.
    pub unmade: bool,
    /// The operations in order.
    pub operations: Vec<Operation>,
    /// Groups that were given up because another one was in the way.
    pub busy: u64,
    /// Why the run ended early: an operation failed, or served something else than it should.
    pub failure: Option<String>,
}

/// What a crash at a point may leave.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// The states: what had returned, and with what was in flight.
    pub states: Vec<Promise>,
    /// The store itself was being made and need not be there.
    pub unmade: bool,
}

impl Allowed {
    /// A number that tells apart what is allowed.
    pub fn hash(&self) -> u64 {
        self.states.iter().fold(u64::from(self.unmade), |h, state| mix(h ^ state.hash()))
    }
}

impl Run {
    /// What is wrong although nothing crashed: the run itself, or what a program has seen beside it.
    pub(crate) fn wrong(&self, subject: &impl Subject) -> Option<String> {
        if let Some(failure) = &self.failure {
            return Some(format!("without a crash: {failure}"));
        }
        subject.seen_beside(self).map(|(point, what)| format!("{what} (after event {point})"))
    }

    /// What a crash at `point` may leave.
    pub fn allowed(&self, point: u64) -> Allowed {
        let returned = self.operations.iter().take_while(|operation| operation.end <= point).count();
        let last = returned.checked_sub(1).map(|last| &self.operations[last]);
        let mut states = last.map_or(&self.before[..], Operation::leaves).to_vec();
        if let Some(next) = self.operations.get(returned).filter(|next| next.begin <= point) {
            // What waited may have become durable before anything of the next one has.
            for state in last.iter().map(|last| &last.state).chain(next.leaves()) {
                if !states.contains(state) {
                    states.push(state.clone());
                }
            }
        }
        Allowed { states, unmade: self.unmade && returned == 0 }
    }

    /// The operation during which the crash comes, in words.
    pub fn moment(&self, point: u64) -> String {
        let returned = self.operations.iter().take_while(|operation| operation.end <= point).count();
        match self.operations.get(returned) {
            Some(next) if next.begin <= point => format!("during {}", next.label),
            Some(next) => format!("before {}", next.label),
            None => "at the end".into(),
        }
    }
}

/// Runs a program, recorded. With a mutation it may fail on the way; that is no panic but part of the result.
pub fn run<S: Subject>(subject: &S, setting: &Setting) -> Run {
    let Beginning { world, state, is_made } = subject.begin(setting);
    let mut recorder = Recorder { world, operations: Vec::new(), busy: 0 };
    let failure = match crate::quiet::catch(|| subject.perform(setting, &mut recorder)) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => Some(format!("panic: {panic}")),
    };
    let Recorder { world, operations, busy } = recorder;
    let before = vec![Promise::new(state)];
    let mut run = Run { trace: world.trace(), before, unmade: !is_made, operations, busy, failure };
    run.place_operations();
    run
}

/// Records a program.
pub struct Recorder {
    /// Where it runs.
    pub world: Arc<World>,
    operations: Vec<Operation>,
    /// Groups that were given up because another one was in the way.
    pub busy: u64,
}

impl Recorder {
    /// An operation begins, whose effect, once it has returned, is `after`. Returns its number.
    pub fn begin(&mut self, label: impl Into<String>, after: &State) -> u64 {
        let (op, label): (u64, String) = (self.operations.len() as u64, label.into());
        let state = match self.operations.last() {
            Some(last) if last.state.is_same(after) => last.state.clone(),
            _ => Promise::new(after.clone()),
        };
        let named = Cow::from(label.clone());
        self.operations.push(Operation { label: named, begin: u64::MAX, end: u64::MAX, state, waits: Vec::new() });
        self.world.mark(Mark::Begin { op, label });
        op
    }

    /// It has returned.
    pub fn end(&mut self, op: u64) {
        self.world.mark(Mark::Return { op });
    }

    /// What an operation has left, where that was not known when it began.
    pub fn leaves(&mut self, op: u64, state: &State) -> Promise {
        let (before, from) = self.operations.split_at_mut(op as usize);
        from[0].state = match before.last() {
            Some(last) if last.state.is_same(state) => last.state.clone(),
            _ => Promise::new(state.clone()),
        };
        from[0].state.clone()
    }

    /// What a crash may leave once the last operation has returned: not its state alone.
    pub fn may_leave(&mut self, states: Vec<Promise>) {
        self.operations.last_mut().expect("one was recorded").waits = states;
    }
}

impl Run {
    /// Takes the begin and the end of operations from the marks in the trace.
    fn place_operations(&mut self) {
        for (time, event) in (0u64..).zip(&self.trace.events) {
            match &event.kind {
                EventKind::Mark(Mark::Begin { op, .. }) => self.operations[*op as usize].begin = time + 1,
                EventKind::Mark(Mark::Return { op }) => self.operations[*op as usize].end = time + 1,
                _ => {}
            }
        }
    }
}
