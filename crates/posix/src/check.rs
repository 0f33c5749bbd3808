//! What a case says: nothing, or where it failed and how.

use std::fmt::Debug;
use std::panic::Location;

use wholly_vfs::Errno;

/// What a case returns.
pub type Outcome = Result<(), Failure>;

/// Where a case found something else than it must, and what.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Failure {
    place: &'static Location<'static>,
    what: String,
}

impl Failure {
    #[track_caller]
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Failure { place: Location::caller(), what: what.into() }
    }
}

impl From<Errno> for Failure {
    /// Of a call that must not fail.
    #[track_caller]
    fn from(errno: Errno) -> Self {
        Failure::new(format!("failed with {errno}"))
    }
}

/// Both are the same.
#[track_caller]
pub(crate) fn same<T: PartialEq + Debug>(got: T, wanted: T) -> Outcome {
    if got == wanted {
        return Ok(());
    }
    let mut what = format!("got {got:?}, wanted {wanted:?}");
    // Contents of files may be long.
    if let Some((end, _)) = what.char_indices().nth(600) {
        what.truncate(end);
    }
    Err(Failure::new(what))
}

/// The call fails with this error.
#[track_caller]
pub(crate) fn fails<T>(got: Result<T, Errno>, wanted: Errno) -> Outcome {
    match got {
        Err(errno) if errno == wanted => Ok(()),
        Err(errno) => Err(Failure::new(format!("failed with {errno}, not with {wanted}"))),
        Ok(_) => Err(Failure::new(format!("did not fail with {wanted}"))),
    }
}

/// It is so.
#[track_caller]
pub(crate) fn holds(is_so: bool, what: &str) -> Outcome {
    if is_so { Ok(()) } else { Err(Failure::new(format!("not so: {what}"))) }
}
