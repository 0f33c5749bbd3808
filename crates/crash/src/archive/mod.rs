//! A large group: 10,000 new files, crashed during the commit and during the pass that takes all of it home. They are
//! made as `tar x` makes them, through the view of the group; or in the layer, by another program, and adopted, as
//! `wholly run` does where the view is an overlay.
//!
//! Of each state is asked what is asked of small ones, as a whole: all files are there, each with its content, mode,
//! owner and times, or none of them; what was there before is as it was; and once it was taken home, nothing is left in
//! the store's own folder.
//!
//! # Which states
//!
//! The commit and its pass are some ten thousand events, and tens of thousands of units are pending at once, so that no
//! point is exhaustive. Crash points are every n-th event, and all around what orders: fences, syncs, both sides of
//! synchronous calls. At each, a choice is made of those below; how many, [`Limits`] says. An image costs a recovery of
//! all files, which is why there are few of them.
//!
//! | choice | why |
//! |---|---|
//! | none, all, the death of the process | the ends |
//! | samples | with few, half and nearly all units |
//! | all but one unit, and one alone, drawn | a single name, attribute, sector or page that is lost, or ahead |
//! | all but what the last event wrote, and only that | the order of neighbours |
//!
//! | file | idea |
//! |---|---|
//! | `unpack.rs` | what is done, and what it leaves |
//! | `judge.rs` | the oracle: recovery, and the life after it |
//! | `walk.rs` | which points, which choices, and what is counted |

mod judge;
mod unpack;
mod walk;

/// How the files come into the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archive {
    /// By the calls of `tar x`.
    Unpacked,
    /// Another program has made them in the layer.
    Adopted,
}

impl Archive {
    /// Both.
    pub const ALL: [Archive; 2] = [Archive::Unpacked, Archive::Adopted];

    /// What states of it are called, before the world and the choice.
    pub fn name(self) -> &'static str {
        match self {
            Archive::Unpacked => "archive",
            Archive::Adopted => "archive-adopted",
        }
    }

    /// What it covers, in words.
    pub fn about(self) -> &'static str {
        match self {
            Archive::Unpacked => "10,000 new files in one group, as `tar x` makes them, its commit and its write-back",
            Archive::Adopted => "10,000 new files in directories that a group adopts, its commit and their write-back",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Archive> {
        Archive::ALL.into_iter().find(|archive| archive.name() == name)
    }
}

pub(crate) use walk::replay;
pub use walk::{Limits, explore};
