//! What can go wrong, by what the caller should do next. One type for all layers above the media.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod parked;

pub use parked::{Mismatch, ParkedId};

use wholly_media::Error as MediaError;

/// The result of most calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Each kind says what the caller can do next. [`errno`](Error::errno) maps every kind to an error
/// number.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another group, process or store is using it: wait, or end the other group. The call has changed nothing.
    #[error("{0} is in use: {1}")]
    Busy(String, String),
    /// The directory is not a store: make it one with `Store::init` or `wholly init`.
    #[error("not a store: {0}; `wholly init` makes one")]
    NotAStore(String),
    /// The directory is a store already: open it.
    #[error("already a store: {0}")]
    AlreadyAStore(String),
    /// The name, or a directory on the way to it, does not exist.
    #[error("no such file: {0}")]
    NotFound(String),
    /// The name exists already.
    #[error("file exists: {0}")]
    Exists(String),
    /// The path, or the user, does not permit the call. The number is the one that the system call of the same name
    /// returns.
    #[error("{path}: {why}", path = .0, why = wholly_media::in_words(*.1))]
    Refused(String, rustix::io::Errno),
    /// An argument or the order of calls is wrong; the text says what to correct.
    #[error("invalid call: {0}")]
    Invalid(String),
    /// There is no space left. Committed groups are not affected. The group that needed the space can still be aborted.
    #[error("no space left for {0}")]
    NoSpace(String),
    /// This version of Wholly cannot do it here: a newer or a much older version wrote the store, or the file system
    /// cannot carry one, or the directory is in a mount of a store.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The medium is damaged at the named place. What is intact can still be read.
    #[error("corrupt {place}: {fault}")]
    Corrupt {
        /// The part of the log, or the file.
        place: String,
        /// What is wrong there.
        fault: String,
    },
    /// Another program changed a file while the log held updates for it. Neither version is overwritten: the directory
    /// has the other program's version, the log keeps the store's. Nothing is written back until the conflict is
    /// resolved.
    #[error("{path} was changed by another program: {change}; the store's version is kept in its log")]
    Conflict {
        /// The file, relative to the store's directory.
        path: String,
        /// What differs.
        change: String,
    },
    /// The store was not made in this directory: it is a copy, or was restored, cloned or unpacked. The text says what
    /// it holds that would be executed here. Open the original, or accept the copy (`Options::accept_copy`). The call
    /// has changed nothing.
    #[error("the store is a copy: {0}; open the original, or accept the copy: `wholly recover --accept-copy`")]
    Copied(String),
    /// Another user than the caller or the superuser can have written to the store's folder. Opening a store executes
    /// what is written there, with the caller's rights. Let the owner of the store open it, or trust the
    /// owner (`Options::trust_owner`). The call has changed nothing.
    #[error("{dir}: {why}; opening the store executes what is written there: let its owner open it")]
    Untrusted {
        /// The store's directory.
        dir: String,
        /// Which part of the folder other users can write to, or own.
        why: String,
    },
    /// Something that the group relies on has changed meanwhile; the list says what. The call has changed no file. The
    /// group stays parked, or was parked by this call (`Group::commit_or_park`).
    #[error("parked group {0} cannot be applied: {list}", list = list(.1))]
    ChangedMeanwhile(ParkedId, std::sync::Arc<[Mismatch]>),
    /// An earlier write or sync failed, and what is left of it is unknown. All calls fail until the store is opened
    /// again, which recovers it.
    #[error("the store has failed and must be reopened: {0}")]
    Poisoned(String),
    /// The medium or the host file system returned an error; the text names the call and the file.
    #[error(transparent)]
    Media(#[from] MediaError),
}

/// In one line.
fn list(mismatches: &[Mismatch]) -> String {
    mismatches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Error {
    /// The error of a call on `place`, a path or what else the user calls it, by its number.
    pub fn of(place: impl Into<String>, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let place = place.into();
        match errno {
            Errno::NOENT => Error::NotFound(place),
            Errno::EXIST => Error::Exists(place),
            Errno::NOSPC => Error::NoSpace(place),
            Errno::BUSY => Error::Busy(place, "a running group has claimed it".into()),
            Errno::UCLEAN => Error::Corrupt { place, fault: "its metadata is damaged; `check` tells what".into() },
            errno => Error::Refused(place, errno),
        }
    }

    /// [`Error::Corrupt`].
    #[doc(hidden)]
    pub fn corrupt(place: impl Into<String>, fault: impl Into<String>) -> Self {
        Error::Corrupt { place: place.into(), fault: fault.into() }
    }

    /// [`Error::Unsupported`].
    #[doc(hidden)]
    pub fn unsupported(what: impl Into<String>) -> Self {
        Error::Unsupported(what.into())
    }

    /// [`Error::Invalid`].
    #[doc(hidden)]
    pub fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid(what.into())
    }

    /// Returns the error number of this error, positive. The C library returns it negated.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Error::Busy(..) => Errno::BUSY,
            Error::NotAStore(_) => Errno::NODEV,
            Error::AlreadyAStore(_) | Error::Exists(_) => Errno::EXIST,
            Error::NotFound(_) => Errno::NOENT,
            Error::Refused(_, errno) => *errno,
            Error::Untrusted { .. } => Errno::PERM,
            Error::Invalid(_) => Errno::INVAL,
            Error::NoSpace(_) => Errno::NOSPC,
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            Error::Corrupt { .. } => Errno::UCLEAN,
            Error::Conflict { .. } | Error::Copied(_) | Error::ChangedMeanwhile(..) => Errno::STALE,
            Error::Poisoned(_) => Errno::IO,
            Error::Media(error) => return error.raw_os_error(),
        }
        .raw_os_error()
    }
}

impl From<Error> for rustix::io::Errno {
    /// By [`Error::errno`].
    fn from(error: Error) -> Self {
        Self::from_raw_os_error(error.errno())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn each_kind_has_its_number() {
        let s = String::new;
        let table = [
            (Error::Busy(s(), s()), Errno::BUSY),
            (Error::NotAStore(s()), Errno::NODEV),
            (Error::AlreadyAStore(s()), Errno::EXIST),
            (Error::NotFound(s()), Errno::NOENT),
            (Error::Exists(s()), Errno::EXIST),
            (Error::Refused(s(), Errno::NOTEMPTY), Errno::NOTEMPTY),
            (Error::Invalid(s()), Errno::INVAL),
            (Error::NoSpace(s()), Errno::NOSPC),
            (Error::Unsupported(s()), Errno::OPNOTSUPP),
            (Error::corrupt("", ""), Errno::UCLEAN),
            (Error::Conflict { path: s(), change: s() }, Errno::STALE),
            (Error::Copied(s()), Errno::STALE),
            (Error::Untrusted { dir: s(), why: s() }, Errno::PERM),
            (Error::ChangedMeanwhile(ParkedId(1), [].into()), Errno::STALE),
            (Error::Poisoned(s()), Errno::IO),
            (Error::Media(MediaError::new("write", "", Errno::DQUOT)), Errno::DQUOT),
        ];
        for (error, errno) in table {
            // A kind that is added is to be added above.
            match &error {
                Error::Busy(..) | Error::NotAStore(_) | Error::AlreadyAStore(_) | Error::NotFound(_) => {}
                Error::Exists(_)
                | Error::Refused(..)
                | Error::Invalid(_)
                | Error::NoSpace(_)
                | Error::Unsupported(_) => {}
                Error::Corrupt { .. } | Error::Conflict { .. } | Error::Copied(_) | Error::ChangedMeanwhile(..) => {}
                Error::Untrusted { .. } | Error::Poisoned(_) | Error::Media(_) => {}
            }
            let text = format!("{error:?}");
            assert_eq!(Errno::from(error), errno, "{text}");
        }
    }
}
