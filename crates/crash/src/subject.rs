//! The border between the driver and what it explores.
//!
//! A *subject* keeps files on simulated media, and does a program: a store, a volume with one of its engines, or, in
//! the tests of `log`, a log with a client of its own. The *driver* knows none of them. It records the program once
//! ([`run`](crate::run())), makes what a crash at each point may leave, lives on from there ([`live`](crate::live)),
//! crashes recovery again inside, counts distinct states and sites, and names each state so that it can be replayed.
//!
//! | the driver | the subject |
//! |---|---|
//! | worlds, crash points, images, samples | the world in which its program begins |
//! | operations with their begin and return, what may be there at a point | the program, an operation at a time |
//! | recovery, and recovery again; a close; one more open | `open`, `close` |
//! | the served state is one of those allowed | `observe`: everything, as a [`State`] |
//! | nested crashes, seeds, replay strings, mutants | `go_on`: what a program does after a recovery |
//! | distinct states, coverage of sites | `check` and `at_rest`: what stands on the media is sound, and no more than that |

use std::fmt;
use std::sync::Arc;

use wholly_sim::World;

use crate::life::Life;
use crate::run::{Recorder, Run};
use crate::setting::Setting;
use crate::tree::State;
use crate::workload::Promise;

/// What a program finds.
pub struct Beginning {
    /// In which world it runs.
    pub world: Arc<World>,
    /// What is there.
    pub state: State,
    /// Whether there is something to open, or the program makes it.
    pub is_made: bool,
}

/// Why an open fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// There is nothing whole to open. It was being made, or this is damage.
    Unmade(String),
    /// Anything else.
    Failed(String),
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (NotOpened::Unmade(what) | NotOpened::Failed(what)) = self;
        f.write_str(what)
    }
}

/// Something that keeps files, with a program over it. Errors are in words: what is wrong.
pub trait Subject: Sync {
    /// An open one. If it is dropped, the process dies.
    type Open;

    /// Whether [`observe`](Self::observe) may change what a crash leaves, as a part of recovery.
    const OBSERVES_IN_RECOVERY: bool;

    /// Its name and its program's: together with a world's name, that of a run.
    fn name(&self) -> String;

    /// All that decides what follows a crash, but the world, the image and what is allowed. Equal images under equal
    /// rules are judged once, whatever the program.
    fn rules(&self) -> String;

    /// The world in which the program begins.
    fn begin(&self, setting: &Setting) -> Beginning;

    /// Does the program, from making or opening it to the end of the process. With a mutation it may fail on the way.
    fn perform(&self, setting: &Setting, recorder: &mut Recorder) -> Result<(), String>;

    /// What a checker finds wrong, before it is opened.
    fn check(&self, world: &Arc<World>) -> Result<(), String>;

    /// Opens it, which recovers it.
    fn open(&self, world: &Arc<World>, setting: &Setting) -> Result<Self::Open, NotOpened>;

    /// Everything that it serves.
    fn observe(&self, world: &Arc<World>, open: &Self::Open) -> Result<State, String>;

    /// What a program does after a recovery that has served `state`, an operation of `life` at a time. Returns what is
    /// there after it.
    fn go_on(&self, life: &mut Life, open: &Self::Open, state: Promise) -> Result<Promise, String>;

    /// Closes it: all of it is durable, and nothing is left to recover.
    fn close(&self, open: Self::Open) -> Result<(), String>;

    /// Whether this, and nothing else, stands on the media after a close.
    fn at_rest(&self, world: &Arc<World>, state: &State) -> Result<(), String>;

    /// Whether an open after a close had nothing to recover.
    fn was_closed(&self, open: &Self::Open) -> Result<(), String>;

    /// What another program has seen that looked at the media beside a run, and should not have: after how many events,
    /// and what.
    fn seen_beside(&self, run: &Run) -> Option<(u64, String)>;
}
