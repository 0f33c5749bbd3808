//! What is done to a store before it crashes: small deterministic programs, written as data.
//!
//! # Terms
//!
//! - *op*: one change of one file. *Step*: one thing that a program asks of a store; a group with its ops is one step.
//! - *content*: what a file holds; *state*: the content of every file of a workload, by number. A file is named by its place in
//!   [`NAMES`].
//!
//! No two writes of a workload put the same word anywhere, so that bytes of one can never pass for bytes of another.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use wholly::Policy;
use wholly_media::sim::Random;

/// The names of the files of a workload, by number. The first two exist from the start, the second one empty.
pub const NAMES: &[&str] = &[
    "a", "dir/b", "c", "dir/d", "e", "f", "g", "dir/h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u",
];

/// How many of [`NAMES`] exist from the start.
pub const EXISTING: usize = 2;

/// One change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes a file; only inside of a group.
    Create(usize),
    /// Writes bytes at an offset.
    Write {
        /// Which file.
        file: usize,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// Writes bytes at the end.
    Append {
        /// Which file.
        file: usize,
        /// How many bytes.
        length: usize,
    },
    /// Cuts or extends.
    SetLen {
        /// Which file.
        file: usize,
        /// The new length in bytes.
        length: u64,
    },
}

impl Op {
    /// The file that it changes.
    pub fn file(&self) -> usize {
        match self {
            Op::Create(file) | Op::Write { file, .. } | Op::Append { file, .. } | Op::SetLen { file, .. } => *file,
        }
    }
}

/// One thing that a program asks of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An explicit group, committed or aborted.
    Group {
        /// What it does.
        ops: Vec<Op>,
        /// How it ends.
        commit: bool,
    },
    /// An implicit call: a group of its own, or part of one, by policy.
    Call(Op),
    /// The calls on a file so far are to survive.
    Sync(usize),
    /// Everything goes home.
    Checkpoint,
    /// The process ends, without a checkpoint or with one, and another one opens the store.
    Reopen {
        /// Whether the store was closed properly.
        close: bool,
    },
}

/// A program over a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name: `small-commit`, or `random-17` for a drawn one.
    pub name: String,
    /// What it covers, in words.
    pub about: &'static str,
    /// Segments that the log is made with.
    pub min_segments: u32,
    /// Segments up to which the log grows before groups wait for a checkpoint.
    pub max_segments: u32,
    /// Bytes of a group that are gathered in memory before it spills.
    pub gather_bytes: u64,
    /// Which calls outside of groups survive together.
    pub policy: Policy,
    /// What is done.
    pub steps: Vec<Step>,
}

impl Workload {
    /// How the store is opened, with segments of so many bytes.
    pub fn options(&self, segment_bytes: u64) -> wholly::Options {
        wholly::Options {
            segment_bytes,
            log_min_bytes: u64::from(self.min_segments) * segment_bytes,
            log_max_bytes: u64::from(self.max_segments) * segment_bytes,
            background: false,
            policy: self.policy,
            gather_bytes: self.gather_bytes,
            ..wholly::Options::default()
        }
    }

    /// The number of files that it speaks of, from the first of [`NAMES`] on, and one more, which it never makes.
    pub fn files(&self) -> usize {
        let last = |step: &Step| match step {
            Step::Group { ops, .. } => ops.iter().map(Op::file).max(),
            Step::Call(op) => Some(op.file()),
            Step::Sync(file) => Some(*file),
            _ => None,
        };
        self.steps.iter().filter_map(last).max().unwrap_or(0).max(EXISTING - 1) + 2
    }

    /// What is there before anything happens.
    pub fn initial(&self) -> State {
        let mut state = vec![None; self.files()];
        state[0] = Some(Arc::from(initial_content()));
        state[1] = Some(Arc::from([]));
        State(state)
    }
}

/// The content of the first file before anything happens: more than a block, and no whole number of words.
fn initial_content() -> Vec<u8> {
    data(u64::MAX, 5003)
}

/// The content of every file, by number; none where there is no such file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(pub Vec<Option<Arc<[u8]>>>);

impl State {
    /// Changes the state as `op` does, writing `bytes`. What makes no sense changes nothing, and says so.
    pub fn apply(&mut self, op: &Op, bytes: &[u8]) -> bool {
        match *op {
            Op::Create(file) => {
                let absent = self.0[file].is_none();
                if absent {
                    self.0[file] = Some(Arc::from([]));
                }
                absent
            }
            Op::Write { file, offset, .. } => self.paint(file, Some(offset), bytes),
            Op::Append { file, .. } => self.paint(file, None, bytes),
            Op::SetLen { file, length } => {
                let Some(content) = &self.0[file] else { return false };
                let mut content = content.to_vec();
                content.resize(length as usize, 0);
                self.0[file] = Some(Arc::from(content));
                true
            }
        }
    }

    fn paint(&mut self, file: usize, offset: Option<u64>, bytes: &[u8]) -> bool {
        let Some(content) = &self.0[file] else { return false };
        let mut content = content.to_vec();
        let offset = offset.map_or(content.len(), |offset| offset as usize);
        if !bytes.is_empty() {
            if content.len() < offset + bytes.len() {
                content.resize(offset + bytes.len(), 0);
            }
            content[offset..offset + bytes.len()].copy_from_slice(bytes);
            self.0[file] = Some(Arc::from(content));
        }
        true
    }

    /// Where two states differ, in words; none if they do not.
    pub fn difference(&self, other: &State) -> Option<String> {
        for (file, (mine, theirs)) in self.0.iter().zip(&other.0).enumerate() {
            let name = NAMES[file];
            match (mine, theirs) {
                (None, None) => {}
                (Some(_), None) => return Some(format!("{name} is missing")),
                (None, Some(_)) => return Some(format!("{name} should not exist")),
                (Some(mine), Some(theirs)) if mine == theirs => {}
                (Some(mine), Some(theirs)) => {
                    if mine.len() != theirs.len() {
                        return Some(format!("{name} has {} bytes instead of {}", theirs.len(), mine.len()));
                    }
                    if let Some(at) = mine.iter().zip(theirs.iter()).position(|(a, b)| a != b) {
                        let count = mine.iter().zip(theirs.iter()).filter(|(a, b)| a != b).count();
                        return Some(format!("{count} bytes of {name} differ, the first at {at}"));
                    }
                }
            }
        }
        None
    }
}

/// A state that somebody is promised: shared, with a hash that is computed when first asked for.
#[derive(Clone, Debug)]
pub struct Promise(Arc<(State, OnceLock<u64>)>);

impl Promise {
    /// Promises a state.
    pub fn new(state: State) -> Promise {
        Promise(Arc::new((state, OnceLock::new())))
    }

    /// A hash of the content of all files.
    pub fn hash(&self) -> u64 {
        *self.0.1.get_or_init(|| {
            let file = |h: u64, content: &Option<Arc<[u8]>>| match content {
                None => mix(h),
                Some(content) => content.chunks(8).fold(mix(h ^ (1 + content.len() as u64)), |h, part| {
                    let mut word = [0; 8];
                    word[..part.len()].copy_from_slice(part);
                    mix(h.rotate_left(5) ^ u64::from_le_bytes(word))
                }),
            };
            self.0.0.0.iter().fold(self.0.0.0.len() as u64, file)
        })
    }
}

impl Deref for Promise {
    type Target = State;
    fn deref(&self) -> &State {
        &self.0.0
    }
}

impl PartialEq for Promise {
    fn eq(&self, other: &Promise) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

/// The bytes that the write with this number puts: no two words of all writes are equal.
pub fn data(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut word = number << 32;
    while bytes.len() < length {
        word += 1;
        bytes.extend_from_slice(&mix(word).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Scrambles a number: different numbers give different numbers.
pub(crate) fn mix(number: u64) -> u64 {
    Random(number).draw()
}
