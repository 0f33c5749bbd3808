//! Errors of media: which call failed, where, and why.

use rustix::io::Errno;

/// What a medium returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call on a medium.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {place}: {}", in_words(*.errno))]
pub struct Error {
    /// The call, such as `fdatasync`.
    pub operation: &'static str,
    /// What it was applied to: a path, an offset.
    pub place: String,
    /// The cause.
    pub errno: Errno,
}

/// What the system calls a cause, with its number.
pub fn in_words(errno: Errno) -> impl std::fmt::Display {
    std::io::Error::from_raw_os_error(errno.raw_os_error())
}

impl Error {
    /// An error of `operation` on `place`.
    pub fn new(operation: &'static str, place: impl Into<String>, errno: Errno) -> Self {
        Error { operation, place: place.into(), errno }
    }

    /// The cause as a positive `errno` value.
    pub fn raw_os_error(&self) -> i32 {
        self.errno.raw_os_error()
    }
}
