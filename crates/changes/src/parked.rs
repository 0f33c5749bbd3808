//! What a list of parked groups tells, and the names of their files.

use wholly_error::ParkedId;

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
    /// Why the group cannot be read, if it is damaged. Only `id` and `space` are valid then.
    pub damage: Option<String>,
}
