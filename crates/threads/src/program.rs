//! What threads do to a store: small programs, written as data.

use std::time::Duration;

use wholly_crash::{EXISTING, NAMES, Op, Start, State, Step, Workload};
use wholly_vfs::{Fallocate, Rename};

use crate::{Options, Policy};

/// One thing that a thread does.
#[derive(Clone, Debug)]
pub enum Act {
    /// An explicit group: it takes its files, looks at what it is going to overwrite, and ends. Where it meets another
    /// group it gives up.
    Group {
        /// What it changes.
        ops: Vec<Op>,
        /// Whether it commits.
        commit: bool,
    },
    /// A group that opens a file, or makes it where there is none, and appends to it.
    OpenOrCreate(&'static str),
    /// A call outside of groups. Of files that had another name before, `@` and the path by which the program found or
    /// made it.
    Call(Op),
    /// A read of bytes of one block.
    Look {
        /// Of which file.
        file: &'static str,
        /// From where, in bytes.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// The calls on a file so far are to survive.
    Sync(&'static str),
    /// Everything goes home.
    Checkpoint,
}

/// What threads do at the same time, after what one of them did before.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// What is there before.
    pub start: Start,
    /// Which calls outside of groups survive together.
    pub policy: Policy,
    /// Whether there is a thread more, for checkpoints in the background.
    pub background: bool,
    /// Segments that the log is made with, and up to which it grows before groups wait for room.
    pub segments: (u32, u32),
    /// Bytes of a group that are gathered in memory before it spills.
    pub gather_bytes: u64,
    /// What is done before.
    pub before: Vec<Act>,
    /// What each thread does.
    pub threads: Vec<Vec<Act>>,
    /// Whether each thread begins its groups from a writer.
    pub writers: bool,
    /// Whether the store is closed at the end, or only dropped.
    pub close: bool,
    /// How many host files the store keeps open. Where it is none, they are closed and opened again all the time, and
    /// no group commits on the straight path.
    pub open_files: usize,
}

impl Program {
    /// How its store is opened.
    pub fn options(&self, segment_bytes: u64) -> Options {
        Options {
            policy: self.policy,
            segment_bytes,
            log_min_bytes: u64::from(self.segments.0) * segment_bytes,
            log_max_bytes: u64::from(self.segments.1) * segment_bytes,
            background: self.background,
            gather_bytes: self.gather_bytes,
            pending_bytes: 100,
            stage_bytes: u64::MAX,
            open_files: self.open_files,
            straight: self.open_files > 0,
            spare_bytes: 0,
            ..Options::default()
        }
    }

    /// What is there before.
    pub fn initial(&self) -> State {
        let mut state = self.start.state();
        state.reopen();
        state
    }

    /// The files that are open from the start.
    pub fn opened(&self) -> &'static [&'static str] {
        match self.start {
            Start::Files => &NAMES[..EXISTING],
            Start::Bare | Start::Dirs | Start::Guest | Start::Crowd => &[A_FOO],
        }
    }

    /// The same for who comes after a crash, and lives there alone.
    pub fn workload(&self) -> Workload {
        let acts = self.before.iter().chain(self.threads.iter().flatten());
        let steps = acts.filter_map(|act| match act {
            Act::Group { ops, commit } => Some(Step::Group { ops: ops.clone(), commit: *commit }),
            Act::Call(op) => Some(Step::Call(op.clone())),
            Act::OpenOrCreate(path) => {
                Some(Step::Group { ops: vec![Op::Create(path), append(path, OPENED)], commit: true })
            }
            _ => None,
        });
        Workload {
            name: self.name.into(),
            about: "threads",
            start: self.start,
            min_segments: self.segments.0,
            max_segments: self.segments.1,
            gather_bytes: self.gather_bytes,
            stage_bytes: u64::MAX,
            open_files: 0,
            policy: match self.policy {
                Policy::PerOp => wholly::Policy::PerOp,
                Policy::PerSync => wholly::Policy::PerSync,
                Policy::Shared { interval } => wholly::Policy::Shared { interval },
            },
            steps: steps.collect(),
        }
    }
}

/// The files: two that are there from the start, more that programs make.
pub(crate) const A: &str = NAMES[0];
pub(crate) const B: &str = NAMES[1];
pub(crate) const C: &str = NAMES[2];
pub(crate) const D: &str = NAMES[3];
/// The file of programs in which names change.
pub(crate) const A_FOO: &str = "A/foo";

pub(crate) fn write(file: &'static str, offset: u64, length: usize) -> Op {
    Op::Write { file, offset, length }
}

pub(crate) fn append(file: &'static str, length: usize) -> Op {
    Op::Append { file, length }
}

pub(crate) fn cut(file: &'static str, length: u64) -> Op {
    Op::SetLen { file, length }
}

fn punch(file: &'static str, offset: u64, length: u64) -> Op {
    Op::Fallocate { file, how: Fallocate::Punch, offset, length }
}

pub(crate) fn group(ops: &[Op]) -> Act {
    Act::Group { ops: ops.to_vec(), commit: true }
}

pub(crate) fn aborted(ops: &[Op]) -> Act {
    Act::Group { ops: ops.to_vec(), commit: false }
}

pub(crate) fn call(op: Op) -> Act {
    Act::Call(op)
}

pub(crate) fn look(offset: u64, length: usize) -> Act {
    Act::Look { file: A, offset, length }
}

/// Bytes that a group appends to what it has opened or made.
pub(crate) const OPENED: usize = 8;

fn program(name: &'static str, threads: Vec<Vec<Act>>) -> Program {
    Program {
        name,
        start: Start::Files,
        policy: Policy::PerOp,
        background: false,
        segments: (6, 6),
        gather_bytes: 512,
        before: Vec::new(),
        threads,
        writers: false,
        close: false,
        open_files: 256,
    }
}

/// A program in which names change, `before` and while threads run.
fn names(name: &'static str, start: Start, before: Vec<Act>, threads: Vec<Vec<Act>>) -> Program {
    Program { start, before, ..program(name, threads) }
}

pub(crate) fn rename(from: &'static str, to: &'static str) -> Op {
    Op::Rename { from, to, how: Rename::Replace }
}

pub(crate) fn link(from: &'static str, to: &'static str) -> Op {
    Op::Link { from, to }
}

pub(crate) fn chmod(path: &'static str, mode: u32) -> Op {
    Op::SetMode { path, mode }
}

/// All programs.
pub fn all() -> Vec<Program> {
    use Act::{Checkpoint, Sync};
    let shared = Policy::Shared { interval: Duration::from_secs(3600) };
    let two_files = |offset| group(&[write(A, offset, 40), append(B, 20)]);
    vec![
        program(
            "same-files",
            vec![
                vec![two_files(0), two_files(4080)],
                vec![group(&[append(B, 30), write(A, 4000, 200)])],
                vec![look(0, 48), look(4072, 24)],
            ],
        ),
        program(
            "own-files",
            vec![
                vec![group(&[write(A, 0, 40)]), group(&[write(A, 16, 16)])],
                vec![group(&[append(B, 20)]), group(&[append(B, 20)])],
                vec![Checkpoint],
            ],
        ),
        program(
            "calls-on-one-block",
            vec![
                vec![call(write(A, 100, 40)), call(write(A, 96, 64))],
                vec![call(write(A, 120, 40)), call(write(A, 110, 8))],
                vec![look(96, 80), look(96, 80)],
            ],
        ),
        program(
            "appends",
            vec![
                vec![call(append(B, 30)), call(append(B, 30))],
                vec![call(append(B, 50)), call(append(B, 7))],
                vec![Checkpoint],
            ],
        ),
        program(
            "calls-and-groups",
            vec![
                vec![call(write(A, 0, 24)), call(append(B, 24))],
                vec![group(&[write(A, 8, 24), append(B, 10)]), call(write(A, 16, 8))],
                vec![Checkpoint, look(0, 40)],
            ],
        ),
        program(
            "cuts",
            vec![
                vec![call(cut(A, 100)), call(write(A, 4090, 20))],
                vec![group(&[write(A, 4000, 200), cut(A, 4100)]), call(append(A, 9))],
                vec![Checkpoint],
            ],
        ),
        program(
            "holes",
            vec![
                vec![call(punch(A, 0, 4096)), call(write(A, 48, 24))],
                vec![group(&[write(A, 0, 40), punch(A, 0, 5000), write(A, 4096, 24)])],
                vec![Checkpoint, Checkpoint],
            ],
        ),
        program(
            "readers-of-holes",
            vec![
                vec![call(write(A, 8, 40)), call(punch(A, 0, 4096)), call(write(A, 32, 16))],
                vec![Checkpoint, Checkpoint],
                vec![look(0, 104), look(0, 104), look(0, 104)],
            ],
        ),
        program(
            "readers-and-checkpoints",
            vec![
                vec![call(write(A, 0, 64)), call(write(A, 32, 64)), call(write(A, 0, 16))],
                vec![Checkpoint, Checkpoint],
                vec![look(0, 104), look(0, 104), look(0, 104)],
            ],
        ),
        // Home bytes are read without a look at the index while nothing is pending; two pieces go home one by one.
        program(
            "readers-of-a-clean-file",
            vec![
                vec![
                    call(write(A, 0, 16)),
                    call(write(A, 64, 16)),
                    Checkpoint,
                    call(write(A, 8, 80)),
                    Checkpoint,
                    call(write(A, 0, 16)),
                ],
                vec![look(0, 104), look(0, 104), look(0, 104), look(0, 104)],
                vec![look(0, 104), look(0, 104)],
            ],
        ),
        program(
            "cuts-of-a-clean-file",
            vec![
                vec![call(cut(A, 8)), Checkpoint, call(write(A, 64, 16)), Checkpoint, call(cut(A, 4)), Checkpoint],
                vec![look(0, 104), look(0, 104), look(0, 104), look(0, 104)],
                vec![Checkpoint, look(0, 104)],
            ],
        ),
        program(
            "holes-of-a-clean-file",
            vec![
                vec![call(punch(A, 0, 4096)), Checkpoint, call(write(A, 32, 16)), Checkpoint],
                vec![look(0, 104), look(0, 104), look(0, 104), look(0, 104)],
                vec![Checkpoint, look(0, 104)],
            ],
        ),
        program(
            "blocks-that-stay",
            vec![
                vec![call(write(A, 0, 4096)), call(write(A, 8, 8))],
                vec![call(write(A, 4096, 900)), call(write(A, 16, 8))],
                vec![Checkpoint, Checkpoint],
            ],
        ),
        Program {
            segments: (3, 3),
            background: true,
            ..program(
                "full-log",
                vec![
                    vec![group(&[write(A, 0, 2900)]), group(&[write(A, 100, 2900)])],
                    vec![group(&[append(B, 2900)]), group(&[append(B, 2900)])],
                ],
            )
        },
        Program {
            segments: (3, 3),
            ..program(
                "full-log-alone",
                vec![
                    vec![group(&[write(A, 0, 2900)]), group(&[write(A, 100, 2900)])],
                    vec![group(&[append(B, 2900)]), call(append(B, 2900))],
                ],
            )
        },
        Program {
            background: true,
            segments: (4, 8),
            close: true,
            ..program(
                "background",
                vec![
                    vec![call(write(A, 0, 1900)), call(write(A, 40, 1900))],
                    vec![call(write(A, 20, 1900)), call(append(B, 1900))],
                    vec![look(0, 64), look(0, 64)],
                ],
            )
        },
        Program {
            writers: true,
            ..program(
                "writers",
                vec![
                    vec![group(&[write(A, 0, 40)]), group(&[write(A, 0, 40)]), group(&[write(A, 8, 4096)])],
                    vec![group(&[append(B, 20)]), group(&[append(B, 20), write(B, 0, 8)])],
                    vec![Checkpoint, look(0, 48), Checkpoint],
                ],
            )
        },
        Program {
            writers: true,
            background: true,
            segments: (4, 4),
            ..program(
                "writers-in-a-full-log",
                vec![
                    vec![group(&[write(A, 0, 1500)]), group(&[write(A, 0, 1500)]), group(&[write(A, 8, 1500)])],
                    vec![group(&[append(B, 1500)]), group(&[write(A, 700, 1500)]), call(write(A, 20, 1000))],
                    vec![look(0, 24), look(0, 24)],
                ],
            )
        },
        program(
            "created",
            vec![
                vec![group(&[Op::Create(C), append(C, 20), write(A, 0, 8)])],
                vec![group(&[Op::Create(C), append(C, 30)]), group(&[Op::Create(D), append(D, 3)])],
                vec![Checkpoint],
            ],
        ),
        Program {
            before: vec![group(&[Op::Create(C), append(C, 20)])],
            ..program("made-meanwhile", vec![vec![call(write(C, 4, 8))], vec![Checkpoint]])
        },
        program(
            "spills",
            vec![
                vec![group(&[write(A, 0, 3000), append(B, 3000), write(A, 3000, 1500)])],
                vec![call(write(A, 900, 3000)), call(append(B, 11))],
                vec![Checkpoint],
            ],
        ),
        program(
            "aborted",
            vec![
                vec![aborted(&[write(A, 0, 3000), append(B, 3000), write(A, 1000, 1500)]), call(write(A, 0, 8))],
                vec![group(&[append(B, 20)]), aborted(&[write(A, 0, 80)])],
                vec![Checkpoint, look(0, 16)],
            ],
        ),
        Program {
            before: vec![call(write(A, 0, 300)), call(append(B, 300)), Checkpoint, call(write(A, 100, 300))],
            ..program(
                "after-a-checkpoint",
                vec![
                    vec![call(write(A, 150, 20)), group(&[write(A, 0, 40), write(B, 0, 40)])],
                    vec![Checkpoint],
                    vec![call(write(B, 100, 40)), look(96, 80)],
                ],
            )
        },
        Program {
            policy: shared,
            ..program(
                "shared-group",
                vec![
                    vec![call(write(A, 0, 40)), Sync(A)],
                    vec![call(append(B, 40)), call(write(A, 4080, 40))],
                    vec![call(write(A, 20, 40)), Sync(B)],
                ],
            )
        },
        Program {
            policy: Policy::PerSync,
            close: true,
            ..program(
                "epochs",
                vec![
                    vec![call(write(A, 0, 40)), Sync(A), call(write(A, 8, 8))],
                    vec![call(append(B, 40)), call(write(A, 4080, 40)), Sync(B)],
                    vec![Checkpoint],
                ],
            )
        },
        // Names beside a pass, and beside each other: a group builds on what another lane has just committed.
        names(
            "unlinked-beside-a-pass",
            Start::Bare,
            vec![group(&[Op::Create("foo"), Op::Create("bar"), Op::Create("baz"), Op::Create("A/bar")])],
            vec![
                vec![call(Op::Unlink("foo")), call(Op::Unlink("A/bar"))],
                vec![call(Op::Unlink("bar")), call(Op::Unlink("baz"))],
                vec![Checkpoint],
            ],
        ),
        names(
            "moved-beside-a-pass",
            Start::Bare,
            vec![call(Op::Create("A/bar")), call(Op::Mkdir("B"))],
            vec![
                vec![call(rename("A/bar", "B/bar")), call(rename("B", "C"))],
                vec![Checkpoint, call(Op::Create("A/bar"))],
            ],
        ),
        names(
            "modes-beside-names",
            Start::Bare,
            Vec::new(),
            vec![
                vec![call(chmod("A", 0o705)), call(chmod("A", 0o750))],
                vec![call(Op::Create("A/bar")), call(Op::Unlink("A/foo"))],
            ],
        ),
        names(
            "moves-beside-names-below",
            Start::Dirs,
            Vec::new(),
            vec![vec![call(rename("B", "C")), call(rename("A", "B"))], vec![call(Op::Create("A/C/foo"))]],
        ),
        names(
            "names-in-what-others-made",
            Start::Bare,
            Vec::new(),
            vec![
                vec![call(Op::Mkdir("B")), call(Op::Mkdir("B/C"))],
                vec![call(Op::Create("B/bar")), call(Op::Create("B/C/bar"))],
                vec![Checkpoint],
            ],
        ),
        names(
            "names-beside-a-pass",
            Start::Dirs,
            vec![call(Op::Create("A/bar")), call(Op::Mkdir("A/C/foo"))],
            vec![
                vec![call(rename("A/bar", "A/foo")), call(Op::Unlink("A/foo"))],
                vec![call(chmod("A", 0o705)), group(&[Op::Create("B/foo"), append("B/foo", 20), rename("A/C", "B/C")])],
                vec![Checkpoint, call(Op::Create("A/bar"))],
            ],
        ),
        names(
            "links-beside-a-pass",
            Start::Bare,
            vec![group(&[Op::Create("bar"), append("bar", 20)])],
            vec![
                vec![call(link("bar", "A/bar")), call(Op::Unlink("bar"))],
                vec![call(write("@bar", 4, 8)), call(chmod("A/foo", 0o705))],
                vec![Checkpoint],
            ],
        ),
        names(
            "open-or-create",
            Start::Bare,
            Vec::new(),
            vec![vec![Act::OpenOrCreate("bar")], vec![Act::OpenOrCreate("bar")], vec![call(Op::Mkdir("B"))]],
        ),
        program(
            "four-threads",
            vec![
                vec![call(write(A, 0, 24))],
                vec![group(&[write(A, 8, 24), append(B, 8)])],
                vec![call(append(B, 16))],
                vec![Checkpoint],
            ],
        ),
    ]
}

/// The program with this name.
pub fn find(name: &str) -> Option<Program> {
    all().into_iter().find(|program| program.name == name)
}
