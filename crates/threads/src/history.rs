//! What threads did and saw, and what a crash may leave of it: durable linearizability.
//!
//! # Terms
//!
//! - *operation*: a commit of a group, or a call outside of groups: what changes the state, at once and wholly, some
//!   time between its begin and its return.
//! - *look*: a read. Blocks are read by themselves, so a look is at one block, and what others do to other blocks does
//!   not order it.
//! - *order*: operations one after the other, none before one that had returned when it began.
//! - *time*: a crash point of the trace.
//!
//! # The oracle
//!
//! What is there after a crash is the state after a prefix of some order of the operations that had begun, such that
//!
//! 1. all that had returned are in the prefix (under policies that let calls survive later: all that had returned when
//!    a sync began that has returned; and then operations on different files may go in any order under `per-sync`).
//!    Under those policies calls survive by epochs: the prefix, of each file or of all, is what something that ends
//!    epochs found, which are all calls that had returned when it began, and none that began when it had returned;
//! 2. each operation got what it would have got in that order: the offset of an append, what a group saw of the files
//!    that it owned;
//! 3. each look that had returned saw operations of the prefix, applied in their order: all that had returned when it
//!    began, none that began after it, and all that an earlier look at the block saw.
//!
//! A cut is seen in two steps: a look that overlaps it may find that its bytes are zeros, while the file is as long as
//! before.
//!
//! The third is less than that looks have a place in the order: of two calls on the same bytes at the same time, the
//! one that took its sequence later may be seen first. The other one appears below it then.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use wholly_crash::{Op, State};

use crate::Policy;

/// Something seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// In which file.
    pub file: &'static str,
    /// From where on, in bytes.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What it is, for people.
    pub label: String,
    /// The time from which on it may have had an effect.
    pub begin: u64,
    /// The time from which on it has returned; `u64::MAX` if it never did.
    pub end: u64,
    /// What it changes, with the bytes.
    pub changes: Vec<(Op, Vec<u8>)>,
    /// What its group saw of its own files before it changed them.
    pub own: Vec<Seen>,
    /// Where an append was told to stand.
    pub offset: Option<u64>,
}

/// A look.
#[derive(Clone, Debug)]
pub struct Look {
    /// When it began.
    pub begin: u64,
    /// When it had returned.
    pub end: u64,
    /// What it saw.
    pub seen: Seen,
}

/// A sync: of a file, or of all.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    /// When it began.
    pub begin: u64,
    /// When it had returned.
    pub end: u64,
    /// Of which file.
    pub file: &'static str,
}

/// What may end epochs: a sync, a checkpoint, the last close of a file or of the store.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// When it began.
    pub begin: u64,
    /// When it had returned; `u64::MAX` if it never did.
    pub end: u64,
    /// Of which file; `None`: of all.
    pub file: Option<&'static str>,
}

/// All that was done.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In no order.
    pub operations: Vec<Operation>,
    /// In no order.
    pub looks: Vec<Look>,
    /// In no order.
    pub syncs: Vec<Synced>,
    /// In no order.
    pub endings: Vec<Ending>,
}

impl Operation {
    fn touches(&self, file: &str) -> bool {
        self.changes.iter().any(|(op, _)| op.file() == file)
    }

    /// Applies it; false where it would have got something else than it did.
    fn apply(&self, state: &mut State) -> bool {
        if !self.own.iter().all(|seen| seen.is_in(state)) {
            return false;
        }
        self.changes.iter().all(|(op, bytes)| {
            let length = state.content(op.file()).map_or(0, |content| content.len() as u64);
            self.offset.is_none_or(|offset| offset == length) && state.apply(op, bytes).is_ok()
        })
    }
}

impl Seen {
    fn is_in(&self, state: &State) -> bool {
        let Some(content) = state.content(self.file) else { return false };
        let from = (self.offset as usize).min(content.len());
        content[from..].starts_with(&self.bytes)
    }
}

impl History {
    /// What a crash at `time` may leave, of what was `initial`ly there.
    pub fn allowed(&self, policy: Policy, initial: &State, time: u64) -> Vec<Arc<State>> {
        let begun: Vec<&Operation> = self.operations.iter().filter(|operation| operation.begin <= time).collect();
        let survives = |operation: &Operation| match policy {
            Policy::PerOp => operation.end <= time,
            _ => self.syncs.iter().any(|sync| {
                let covered = matches!(policy, Policy::Shared { .. }) || operation.touches(sync.file);
                operation.end <= sync.begin && sync.end <= time && covered
            }),
        };
        // What is seen before it survives is no matter of crashes.
        let looks = self.looks.iter().filter(|look| policy == Policy::PerOp && look.end <= time);
        let mut looks: Vec<&Look> = looks.collect();
        looks.sort_by_key(|look| look.begin);
        let mut search = Search {
            policy,
            endings: self.endings.iter().filter(|ending| ending.begin <= time).collect(),
            must: begun.iter().map(|operation| survives(operation)).collect(),
            begun,
            looks,
            order: Vec::new(),
            states: vec![initial.clone()],
            found: Vec::new(),
        };
        search.go_on();
        search.found
    }

    /// The times at which what is allowed changes.
    pub fn times(&self) -> Vec<u64> {
        let operations = self.operations.iter().flat_map(|operation| [operation.begin, operation.end]);
        let looks = self.looks.iter().map(|look| look.end);
        let syncs = self.syncs.iter().map(|sync| sync.end);
        let endings = self.endings.iter().map(|ending| ending.begin);
        let mut times: Vec<u64> =
            operations.chain(looks).chain(syncs).chain(endings).filter(|time| *time != u64::MAX).collect();
        times.sort_unstable();
        times.dedup();
        times
    }
}

/// With the first bytes of each word of what was written and seen, which tell who wrote it.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = |bytes: &[u8]| -> Vec<String> {
            bytes.chunks(8).map(|chunk| chunk.iter().take(2).map(|byte| format!("{byte:02x}")).collect()).collect()
        };
        for Operation { label, begin, end, changes, .. } in &self.operations {
            writeln!(f, "    {begin}..{end} {label}")?;
            for (op, bytes) in changes {
                writeln!(f, "        {op:?} {}", heads(bytes).join(" "))?;
            }
        }
        for Look { begin, end, seen } in &self.looks {
            let Seen { file, offset, bytes } = seen;
            writeln!(f, "    {begin}..{end} look at {file} from {offset}: {}", heads(bytes).join(" "))?;
        }
        self.endings.iter().try_for_each(|Ending { begin, end, file }| writeln!(f, "    {begin}..{end} ends {file:?}"))
    }
}

struct Search<'h> {
    policy: Policy,
    /// Those that had begun.
    endings: Vec<&'h Ending>,
    begun: Vec<&'h Operation>,
    must: Vec<bool>,
    looks: Vec<&'h Look>,
    order: Vec<usize>,
    /// The state before the first operation, and after each.
    states: Vec<State>,
    found: Vec<Arc<State>>,
}

impl Search<'_> {
    fn go_on(&mut self) {
        let missing = (0..self.begun.len()).any(|i| self.must[i] && !self.order.contains(&i));
        if !missing && self.epochs_fit() && self.looks_fit() {
            let state = self.states.last().expect("the initial one");
            if !self.found.iter().any(|found| **found == *state) {
                self.found.push(Arc::new(state.clone()));
            }
        }
        for next in 0..self.begun.len() {
            if self.order.contains(&next) || (0..self.begun.len()).any(|i| self.precedes(i, next)) {
                continue;
            }
            let mut state = self.states.last().expect("the initial one").clone();
            if self.begun[next].apply(&mut state) {
                self.order.push(next);
                self.states.push(state);
                self.go_on();
                self.order.pop();
                self.states.pop();
            }
        }
    }

    /// Whether `first`, which is not in the order yet, had returned when `next` began.
    fn precedes(&self, first: usize, next: usize) -> bool {
        let (first_op, next_op) = (self.begun[first], self.begun[next]);
        let related =
            self.policy != Policy::PerSync || first_op.changes.iter().any(|(op, _)| next_op.touches(op.file()));
        first != next && first_op.end <= next_op.begin && related && !self.order.contains(&first)
    }

    /// Whether the order ends where epochs may have ended.
    fn epochs_fit(&self) -> bool {
        match self.policy {
            Policy::PerOp => true,
            Policy::Shared { .. } => self.is_what_an_ending_found(|_| true, |_| true),
            Policy::PerSync => self.files().into_iter().all(|file| {
                self.is_what_an_ending_found(
                    |operation| operation.touches(file),
                    |ending| ending.file.is_none_or(|of| of == file),
                )
            }),
        }
    }

    /// Those that operations change.
    fn files(&self) -> BTreeSet<&'static str> {
        self.begun.iter().flat_map(|operation| &operation.changes).map(|(op, _)| op.file()).collect()
    }

    /// Of some operations: whether one of some endings may have found those of the order, and no others. None at all
    /// need no ending.
    fn is_what_an_ending_found(
        &self,
        operations: impl Fn(&Operation) -> bool,
        endings: impl Fn(&Ending) -> bool,
    ) -> bool {
        let of = |i: &usize| operations(self.begun[*i]);
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..self.begun.len()).filter(of).partition(|i| self.order.contains(i));
        inside.is_empty()
            || self.endings.iter().filter(|ending| endings(ending)).any(|ending| {
                inside.iter().all(|i| self.begun[*i].begin <= ending.end)
                    && outside.iter().all(|i| self.begun[*i].end > ending.begin)
            })
    }

    /// Whether there is a set of operations for each look that it saw, as the oracle asks.
    fn looks_fit(&self) -> bool {
        let mut seen = Vec::with_capacity(self.looks.len());
        self.looks_fit_from(&mut seen)
    }

    /// `seen` are the sets of the first looks: bit `i` stands for the operation in place `i` of the order.
    fn looks_fit_from(&self, seen: &mut Vec<u32>) -> bool {
        let Some(look) = self.looks.get(seen.len()) else { return true };
        let (mut certain, mut possible) = (0u32, 0u32);
        for (place, operation) in self.order.iter().map(|i| self.begun[*i]).enumerate() {
            if operation.touches(look.seen.file) {
                certain |= u32::from(operation.end <= look.begin) << place;
                possible |= u32::from(operation.begin <= look.end) << place;
            }
        }
        for (earlier, seen) in self.looks.iter().zip(seen.iter()) {
            let same_block =
                (earlier.seen.file, earlier.seen.offset / 4096) == (look.seen.file, look.seen.offset / 4096);
            if same_block && earlier.end <= look.begin {
                certain |= seen;
            }
        }
        let open = possible & !certain;
        // Every subset of what is open.
        let mut chosen = 0u32;
        loop {
            if self.shows(certain | chosen, look) {
                seen.push(certain | chosen);
                if self.looks_fit_from(seen) {
                    return true;
                }
                seen.pop();
            }
            if chosen == open {
                return false;
            }
            chosen = chosen.wrapping_sub(open) & open;
        }
    }

    /// Whether the operations in the places `set`, in their order, leave what was seen.
    fn shows(&self, set: u32, look: &Look) -> bool {
        if set == (1u32 << self.order.len()) - 1 && look.seen.is_in(self.states.last().expect("the initial one")) {
            return true;
        }
        let places: Vec<usize> = (0..self.order.len()).filter(|place| set >> place & 1 != 0).collect();
        let halves = places.iter().copied().filter(|place| {
            let operation = self.begun[self.order[*place]];
            operation.end > look.begin && operation.changes.iter().any(|(op, _)| matches!(op, Op::SetLen { .. }))
        });
        std::iter::once(None).chain(halves.map(Some)).any(|half| self.leaves(&places, half, &look.seen))
    }

    /// The same, where the cut in the place `half` has not changed the size yet.
    fn leaves(&self, places: &[usize], half: Option<usize>, seen: &Seen) -> bool {
        let mut state = self.states[0].clone();
        for place in places {
            let changes = &self.begun[self.order[*place]].changes;
            for (op, bytes) in changes.iter().filter(|(op, _)| op.file() == seen.file) {
                let _ = match op {
                    Op::SetLen { file, length } if half == Some(*place) => {
                        let before = state.content(file).map_or(0, |content| content.len() as u64);
                        let zeros = vec![0; before.saturating_sub(*length) as usize];
                        state.apply(&Op::Write { file, offset: *length, length: zeros.len() }, &zeros)
                    }
                    op => state.apply(op, bytes),
                };
            }
        }
        seen.is_in(&state)
    }
}
