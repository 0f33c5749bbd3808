//! What a file system owes its programs: a suite of cases over the trait [`Vfs`](wholly_vfs::Vfs).
//!
//! What Linux does is right. So the suite is run over the host's own file systems first ([`HostVfs`],
//! `tests/all/host.rs`): a case that fails there is wrong. Where host file systems differ among themselves, a list of
//! exceptions says so, a reason a line. And it is run over implementations with a mistake made on purpose
//! ([`Planted`]): a case that cannot fail proves nothing.
//!
//! | module | holds |
//! |---|---|
//! | `cases` | the cases, by what they are about |
//! | `suite` | how they are run, and what is expected to fail |
//! | `tree` | what cases make their calls with |
//! | `check` | what cases say |
//! | [`host`] | a directory of the host as a `Vfs` |
//! | [`differ`] | random calls on two implementations that must do the same |
//! | [`planted`] | mistakes, to see that they are found |
//! | `through` | calls with another context |

#![forbid(unsafe_code)]

mod cases;
mod check;
pub mod differ;
pub mod host;
pub mod planted;
mod suite;
mod through;
mod tree;

pub use check::{Failure, Outcome};
pub use host::HostVfs;
pub use planted::{Mistake, Planted};
pub use suite::{Case, Exception, Needs, Report, cases, run, run_one};
pub use through::Through;
pub use tree::{File, Tree};
