//! The change-set of a group: all that the group would change, on media, summed up, listed for people, and in parts.
//!
//! It names no store: a store fills a [`Summary`] from a group that runs, writes it into a file, and applies what it
//! reads from one. What is there by now the store tells through [`CurrentObjects`].
//!
//! # Terms
//!
//! - *change-set*: what a group would change, net ([`Summary`]). Objects have ids, which mean something in this
//!   change-set only; [`ROOT`] is the directory of all names.
//! - *parked group*: a change-set in a file of the folder [`FOLDER`], named by the id of the group that it was.
//! - *piece*: a run of bytes that the group writes to a file. *Content file*: a file beside the parked group that has
//!   all bytes of a file that the group makes.
//! - *base*: what the change-set relies on: names and objects as they were, bytes as they were.
//! - *catalogue*: the end of the file, with all of the change-set but the bytes of its pieces; the *head* is its
//!   beginning.
//! - *payload*: operands of an entry, in a catalogue as in the log of a store ([`records`]).
//! - *part*: some changes, with those that they need ([`Choice`]).
//!
//! # Invariants
//!
//! 1. A head and a catalogue are believed only if their checksums hold and a `checked` function takes them. What is
//!    taken would be written the same: no file has two readings. Bytes of pieces are checked when they are read; a
//!    content file is known again by its size and its time of modification.
//! 2. What a writer writes, its reader takes: [`is_readable`] says so before anything is written.
//! 3. [`Writing::finish`] makes a file durable before it gets the name of a parked group, which its caller gives it.
//! 4. A group is written in the first version of the format that has all its kinds of entries.
//!
//! | file | idea |
//! |---|---|
//! | `summary.rs` | [`Summary`]: what a group would change |
//! | `format.rs`, `format/` | the same as it stands on media; [`Outline`]: its ids only |
//! | `list.rs` | [`Change`]: the same for people, by path |
//! | `bytes.rs` | the bytes of either side of a change; [`CurrentObjects`]: what a store tells for that |
//! | `choice.rs` | [`Choice`]: a part of it |
//! | `parked.rs` | [`Parked`]: what a list of parked groups tells; the names of their files |
//! | `records/` | payloads of entries, which the log of a store has too |
//! | `neighbour.rs` | [`Neighbour`]: something in another store |
//! | `origin.rs` | [`Origin`]: the folder that a file was written in |
//! | `name.rs` | [`Name`]: a directory and one part of a path |
//! | `kind.rs`, `set.rs` | [`Kind`] of an object; [`Set`]: attributes that a group sets |
//! | `ids.rs` | [`Ids`]: sets of ids |
//! | `site.rs` | what changes or orders persistent bytes, by name |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bytes;
mod choice;
mod format;
mod ids;
mod kind;
mod list;
mod name;
mod neighbour;
mod origin;
mod parked;
pub mod records;
mod set;
pub mod site;
mod summary;

pub use bytes::{BytesAt, CurrentObjects, ParkedBytes, bytes_at, copied};
pub use choice::{Choice, ChoiceFor, is_in_the_way, lies_in};
pub use format::{
    Head, Outline, ParkedFile, Writing, Written, content_files, content_path, copy_marked, is_readable, named_content,
    path_of,
};
pub use ids::Ids;
pub use kind::Kind;
pub use list::{Change, Side, What, XattrChange, changes_of};
pub use name::{Name, NameBytes, ROOT, id_name, id_of, join};
pub use neighbour::Neighbour;
pub use origin::{Origin, origin_of};
pub use parked::{FOLDER, LONGEST_NOTE, Parked, UNDO, UNFINISHED, Unreadable};
pub use set::{Before, Set, XattrValue, xattr_checksum};
pub use summary::{
    Base, Content, ContentFile, Known, LARGEST_SUM, Left, LeftContent, Moves, Piece, Settled, Summary, merged, runs,
};
