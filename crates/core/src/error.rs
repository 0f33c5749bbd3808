//! What can go wrong, by what the caller should do next.

use wholly_media::Error as MediaError;

use crate::hostdir::{Mismatch, ParkedId};

/// What Wholly returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Each kind tells the caller what to do next; [`errno`](Error::errno) is the one table to error numbers.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else uses it now: wait, or end the other group. Nothing was changed.
    #[error("{0} is in use: {1}")]
    Busy(String, String),
    /// There is no store here: `wholly init` makes one.
    #[error("not a store: {0}; `wholly init` makes one")]
    NotAStore(String),
    /// There is a store here already.
    #[error("already a store: {0}")]
    AlreadyAStore(String),
    /// The name does not exist.
    #[error("no such file: {0}")]
    NotFound(String),
    /// The name exists.
    #[error("file exists: {0}")]
    Exists(String),
    /// What the path names, or who asks, forbids the call: the number is the one that the system call of the same name gives.
    #[error("{path}: {why}", path = .0, why = wholly_media::in_words(*.1))]
    Refused(String, rustix::io::Errno),
    /// The call makes no sense as it was made: change it.
    #[error("invalid call: {0}")]
    Invalid(String),
    /// No space for it; the group can still be aborted, and nothing committed is lost.
    #[error("no space left for {0}")]
    NoSpace(String),
    /// The store was written by a newer program or by one that is too old, or stands on a file system that cannot carry it.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// Media are damaged at the place named. What is intact is still served.
    #[error("corrupt {place}: {fault}")]
    Corrupt {
        /// Where: which part of the log, or which file.
        place: String,
        /// What does not fit.
        fault: String,
    },
    /// A file was changed by a program that bypasses the store while its committed data were in the log. Its data are kept there.
    #[error("{path} was changed by another program: {change}; the store's version is kept in its log")]
    Conflict {
        /// The file, relative to the store's directory.
        path: String,
        /// What differs.
        change: String,
    },
    /// The store is a copy, or was restored from a backup, and its log holds updates of files that are other inodes here. Open what it was
    /// copied from, or [adopt](crate::Options::adopt) it. Nothing was changed.
    #[error(
        "the store is a copy, and its log holds {groups} groups for the files that it was copied from; `wholly recover --adopt` takes \
             them for the files here"
    )]
    Copied {
        /// Committed groups that are not home.
        groups: u64,
    },
    /// Somebody else than the calling user and the superuser can have written what is in the store's folder, and whoever opens a store does what is written
    /// there, with his own rights. Let the store's owner open it, or [trust](crate::Options::trust_owner) him. Nothing was changed.
    #[error("{dir}: {why}; opening the store does what is written there: let its owner do that")]
    Untrusted {
        /// The store's directory.
        dir: String,
        /// Who can have written what.
        why: String,
    },
    /// What a parked group relies on is not so any more. Nothing was changed; it stays parked.
    #[error("parked group {0} cannot be applied: {list}", list = list(.1))]
    Overtaken(ParkedId, std::sync::Arc<[Mismatch]>),
    /// An earlier write-back failed: close the store and open it again, which recovers it.
    #[error("the store has failed and must be reopened: {0}")]
    Poisoned(String),
    /// The medium or the host file system refused.
    #[error(transparent)]
    Media(#[from] MediaError),
}

/// In one line.
fn list(mismatches: &[Mismatch]) -> String {
    mismatches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Error {
    pub(crate) fn corrupt(place: impl Into<String>, fault: impl Into<String>) -> Self {
        Error::Corrupt { place: place.into(), fault: fault.into() }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Error::Unsupported(what.into())
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid(what.into())
    }

    /// The error number that a C program gets for it, positive.
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
            Error::Conflict { .. } | Error::Copied { .. } | Error::Overtaken(..) => Errno::STALE,
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
            (Error::Copied { groups: 1 }, Errno::STALE),
            (Error::Untrusted { dir: s(), why: s() }, Errno::PERM),
            (Error::Overtaken(ParkedId(1), [].into()), Errno::STALE),
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
                Error::Corrupt { .. } | Error::Conflict { .. } | Error::Copied { .. } | Error::Overtaken(..) => {}
                Error::Untrusted { .. } | Error::Poisoned(_) | Error::Media(_) => {}
            }
            let text = format!("{error:?}");
            assert_eq!(Errno::from(error), errno, "{text}");
        }
    }
}
