//! What a list of parked groups tells, and the names of their files.

use std::fmt;

use wholly_error::{Error, ParkedId};

/// The folder of parked groups, below the store's directory.
pub const FOLDER: &[u8] = b".wholly/parked";

/// After the id in the name of a file that undoes a group.
pub const UNDO: &[u8] = b".undo";

/// After the name of a file that is being written.
pub const UNFINISHED: &[u8] = b".new";

/// The most bytes that the note of a parked group can have.
pub const LONGEST_NOTE: usize = 1024;

/// What is known of a parked group without reading all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The id of the group.
    pub id: ParkedId,
    /// The note with which it was parked.
    pub note: String,
    /// When it was parked, in nanoseconds since 1970.
    pub parked_ns: i64,
    /// When it will be discarded, in nanoseconds since 1970; `None` if it does not expire.
    pub expires_ns: Option<i64>,
    /// Bytes that it writes to files.
    pub bytes: u64,
    /// The number of files whose bytes it changes.
    pub files: u32,
    /// The number of names that it sets or removes.
    pub names: u32,
    /// Bytes of disk space that it takes.
    pub space: u64,
    /// Why the group cannot be read. Only `id` and `space` are valid then.
    pub unreadable: Option<Unreadable>,
}

/// Why a parked group, or an undo, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is damaged, as the text says.
    Damaged(String),
    /// A later version of Wholly wrote it, and can read it.
    Later,
}

impl Unreadable {
    /// Tells it by the error of a read.
    ///
    /// # Errors
    /// Any other error.
    pub fn of(error: Error) -> Result<Unreadable, Error> {
        match error {
            Error::Unsupported(_) => Ok(Unreadable::Later),
            Error::Corrupt { .. } | Error::NotFound(_) => Ok(Unreadable::Damaged(error.to_string())),
            error => Err(error),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Damaged(why) => write!(f, "damaged: {why}"),
            Unreadable::Later => f.write_str("written by a later version of Wholly, which can read it"),
        }
    }
}
