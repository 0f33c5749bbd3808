//! What is done to a store before it crashes: small deterministic programs, written as data.
//!
//! # Terms
//!
//! - *op*: one change of names or of a file's bytes. *Step*: one thing that a program asks of a store; a group with its
//!   ops is one step.
//! - *file*, of an op: a path, or `@` and the path by which it was opened or made: that file, whatever became of its
//!   name.
//!
//! No two writes of a workload put the same word anywhere, so that bytes of one can never pass for bytes of another.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use wholly::Fallocate;
use wholly_sim::Random;
use wholly_vfs::{Policy, Rename, SetXattr};

use crate::tree::{FILE_MODE, Object, State};

/// The names of the files of workloads in which only files change, by number. The first two exist from the start, the
/// second one empty.
pub const NAMES: &[&str] = &[
    "a", "dir/b", "c", "dir/d", "e", "f", "g", "dir/h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u",
];

/// How many of [`NAMES`] exist from the start.
pub const EXISTING: usize = 2;

/// A name that no workload makes: who lives on after a crash does.
pub const FRESH: &str = "fresh";

/// One change of names, or of a file's bytes. Paths are as of when it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes a file, and opens it; only inside of a group.
    Create(&'static str),
    /// Makes a directory.
    Mkdir(&'static str),
    /// Adopts what another program has made in the layer, without a sync; only inside of a group.
    Adopt {
        /// Its name.
        path: &'static str,
        /// What there is.
        what: Adopted,
    },
    /// Makes a FIFO.
    Mknod(&'static str),
    /// Makes a symbolic link.
    Symlink {
        /// What it holds.
        target: &'static str,
        /// Its name.
        path: &'static str,
    },
    /// Gives one more name.
    Link {
        /// A name that it has.
        from: &'static str,
        /// The new one.
        to: &'static str,
    },
    /// Takes a name away from what is no directory.
    Unlink(&'static str),
    /// Removes an empty directory.
    Rmdir(&'static str),
    /// Removes a directory with everything in it; only inside of a group that is written back at once.
    RemoveTree(&'static str),
    /// Gives another name instead.
    Rename {
        /// The name that it has.
        from: &'static str,
        /// The new one.
        to: &'static str,
        /// What becomes of what has the new name.
        how: Rename,
    },
    /// Writes bytes at an offset.
    Write {
        /// Which file.
        file: &'static str,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// Writes bytes at the end.
    Append {
        /// Which file.
        file: &'static str,
        /// How many bytes.
        length: usize,
    },
    /// Cuts or extends.
    SetLen {
        /// Which file.
        file: &'static str,
        /// The new length in bytes.
        length: u64,
    },
    /// Changes what space a range has.
    Fallocate {
        /// Which file.
        file: &'static str,
        /// To what.
        how: Fallocate,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// Sets the permission bits.
    SetMode {
        /// Of what.
        path: &'static str,
        /// The bits.
        mode: u32,
    },
    /// Sets owner and group, to some that nobody has otherwise.
    SetOwner(&'static str),
    /// Sets times, to some that no clock shows.
    SetTimes {
        /// Of what.
        path: &'static str,
        /// Whether that of the last access is set.
        atime: bool,
        /// Whether that of the last change is set.
        mtime: bool,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// Of what.
        path: &'static str,
        /// Its name.
        name: &'static str,
        /// Bytes of the value.
        length: usize,
        /// Whether it is there already.
        how: SetXattr,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// Of what.
        path: &'static str,
        /// Its name.
        name: &'static str,
    },
}

/// What an [`Op::Adopt`] takes from the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// A file.
    File,
    /// The bytes of a file, for one that the group makes.
    Content,
    /// A directory with something in it.
    Whole,
}

/// Bytes of all files that an [`Op::Adopt`] brings.
const ADOPTED_BYTES: usize = 60;

/// What lies in a directory that is adopted: path, and which of the bytes that it brings are its own where it is a
/// file.
pub(crate) const ADOPTED: &[(&str, Option<std::ops::Range<usize>>)] =
    &[("foo", Some(0..40)), ("C", None), ("C/bar", Some(40..ADOPTED_BYTES))];

impl Op {
    /// The path of what it changes or makes; of an op on names the name that it gives or takes.
    pub fn file(&self) -> &'static str {
        match self {
            Op::Create(path) | Op::Mkdir(path) | Op::Mknod(path) | Op::Symlink { path, .. } => path,
            Op::Adopt { path, .. } => path,
            Op::Link { to, .. } | Op::Rename { to, .. } => to,
            Op::Unlink(path) | Op::Rmdir(path) | Op::RemoveTree(path) => path,
            Op::Write { file, .. } | Op::Append { file, .. } => file,
            Op::SetLen { file, .. } | Op::Fallocate { file, .. } => file,
            Op::SetMode { path, .. } | Op::SetTimes { path, .. } | Op::SetOwner(path) => path,
            Op::SetXattr { path, .. } | Op::RemoveXattr { path, .. } => path,
        }
    }

    /// Whether it changes the bytes of a file, and no name.
    pub fn is_of_bytes(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::Append { .. } | Op::SetLen { .. } | Op::Fallocate { .. })
    }

    /// Whether it changes attributes, and neither bytes nor names.
    pub fn is_of_attributes(&self) -> bool {
        use Op::{RemoveXattr, SetMode, SetOwner, SetTimes, SetXattr};
        matches!(self, SetMode { .. } | SetOwner(_) | SetTimes { .. } | SetXattr { .. } | RemoveXattr { .. })
    }

    /// The bytes that it takes as the write with this number: what it writes, the value of an attribute, or what times
    /// are made of.
    pub fn bytes(&self, number: u64) -> Option<Vec<u8>> {
        let length = match self {
            Op::Write { length, .. } | Op::Append { length, .. } | Op::SetXattr { length, .. } => *length,
            Op::SetTimes { .. } => 16,
            Op::Adopt { .. } => ADOPTED_BYTES,
            _ => return None,
        };
        Some(data(number, length))
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
    /// An explicit group whose commit returns at the order, on volumes.
    Order(Vec<Op>),
    /// Two explicit groups at once: the first does its ops, then the second does and commits, then the first commits.
    /// If they are in each other's way, the second one is given up.
    Across {
        /// What the group does that begins first and commits last.
        first: Vec<Op>,
        /// What the other one does.
        second: Vec<Op>,
    },
    /// An explicit group that is parked, under the next number from 1 on.
    Park {
        /// What it does.
        ops: Vec<Op>,
        /// Whether it stays parked; else it expires at once.
        stays: bool,
    },
    /// A parked group is applied.
    Apply {
        /// Its number.
        number: u32,
        /// Whether that is refused, because something is otherwise.
        clash: bool,
    },
    /// A parked group is applied over what is otherwise.
    ApplyOver {
        /// Its number.
        number: u32,
    },
    /// A parked group is discarded.
    Discard {
        /// Its number.
        number: u32,
    },
    /// A guest becomes a store for good.
    Keep,
    /// An implicit call: a group of its own, or part of one, by policy.
    Call(Op),
    /// The calls on a file so far are to survive.
    Sync(&'static str),
    /// A file gets space behind its end until there is none. On volumes.
    Full(&'static str),
    /// Everything goes home.
    Checkpoint,
    /// What is committed so far is a lot, which the background thread is to take home later.
    Announce,
    /// The background thread takes the oldest lot home.
    Pass,
    /// The process ends, without a checkpoint or with one, and another one opens the store.
    Reopen {
        /// Whether the store was closed properly.
        close: bool,
    },
}

/// What is there before anything happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The first of [`NAMES`], and a directory `dir` that stays as it is.
    Files,
    /// A directory `A` with a file `foo`.
    Bare,
    /// Also a directory `B`, and one in `A`, `C`.
    Dirs,
    /// What [`Bare`](Self::Bare) has, in a store that is a guest.
    Guest,
    /// What [`Bare`](Self::Bare) has, a file `n00`, and a directory with so many files that each block of inodes behind
    /// the first ones is full, but for one: that has `n00` alone.
    Crowd,
}

/// Files of a crowd that come before `n00`, and behind it.
pub(crate) const CROWD: [usize; 2] = [45, 16];

/// A file of a crowd.
pub(crate) fn of_crowd(number: usize) -> String {
    format!("crowd/{number:02}")
}

/// A program over a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name: `small-commit`, or `random-17` for a drawn one.
    pub name: String,
    /// What it covers, in words.
    pub about: &'static str,
    /// What is there before.
    pub start: Start,
    /// Segments that the log is made with.
    pub min_segments: u32,
    /// Segments up to which the log grows before groups wait for a checkpoint.
    pub max_segments: u32,
    /// Bytes of a group that are gathered in memory before it spills.
    pub gather_bytes: u64,
    /// Bytes that a group writes to a file that it made before it is staged.
    pub stage_bytes: u64,
    /// Host files that the store keeps open although no program has them open.
    pub open_files: usize,
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
            // Most of what an epoch gathers is swapped.
            pending_bytes: 200,
            stage_bytes: self.stage_bytes,
            open_files: self.open_files,
            spare_bytes: 0,
            accept_copy: true,
            ..wholly::Options::default()
        }
    }

    /// What is there before anything happens.
    pub fn initial(&self) -> State {
        self.start.state()
    }

    /// The files that it speaks of, and one that it never makes, in order.
    pub fn files(&self) -> Vec<&'static str> {
        let mut files = NAMES[..EXISTING].to_vec();
        for step in &self.steps {
            match step {
                Step::Group { ops, .. } => files.extend(ops.iter().map(|op| op.file())),
                Step::Call(op) => files.push(op.file()),
                Step::Sync(file) => files.push(file),
                _ => {}
            }
        }
        files.push(FRESH);
        files.sort_unstable();
        files.dedup();
        files
    }

    /// The state of a workload in which nothing but files changes, by what each of them holds.
    ///
    /// # Errors
    /// Those of `content`.
    pub fn shown<E>(&self, mut content: impl FnMut(&'static str) -> Result<Option<Vec<u8>>, E>) -> Result<State, E> {
        let mut state = self.start.dirs();
        for path in self.files() {
            if let Some(content) = content(path)? {
                state.put(path, Object::file(content, FILE_MODE));
            }
        }
        Ok(state)
    }
}

impl Start {
    /// All of it.
    pub fn state(self) -> State {
        let mut state = self.dirs();
        match self {
            Start::Files => {
                state.put(NAMES[0], Object::file(initial_content(5003), 0o644));
                state.put(NAMES[1], Object::file([], 0o644));
            }
            Start::Bare | Start::Dirs | Start::Guest => {
                _ = state.put("A/foo", Object::file(initial_content(300), 0o644))
            }
            Start::Crowd => {
                state.put("A/foo", Object::file(initial_content(300), 0o644));
                let others = (0..CROWD.iter().sum()).map(of_crowd).chain(["n00".into()]);
                others.for_each(|path| _ = state.put(&path, Object::file([], FILE_MODE)));
            }
        }
        state
    }

    /// Its directories.
    pub fn dirs(self) -> State {
        let dirs: &[&str] = match self {
            Start::Files => &["dir"],
            Start::Bare | Start::Guest => &["A"],
            Start::Crowd => &["A", "crowd"],
            Start::Dirs => &["A", "B", "A/C"],
        };
        let mut state = State::default();
        dirs.iter().for_each(|dir| _ = state.put(dir, Object::dir(0o755)));
        state.set_temporary(self == Start::Guest);
        state
    }
}

/// The content of a file before anything happens; more than a block, where it may be, and no whole number of words.
fn initial_content(length: usize) -> Vec<u8> {
    data(u64::MAX, length)
}

/// A state that somebody is promised: shared, with a hash that is computed when first asked for.
#[derive(Clone, Debug)]
pub struct Promise(Arc<(State, OnceLock<u64>)>);

impl Promise {
    /// Promises a state.
    pub fn new(state: State) -> Promise {
        Promise(Arc::new((state, OnceLock::new())))
    }

    /// A hash of all that can be seen.
    pub fn hash(&self) -> u64 {
        *self.0.1.get_or_init(|| self.0.0.hash())
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
