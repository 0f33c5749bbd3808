//! What can go wrong.

use rustix::io::Errno;

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a layer was not taken up. The group has some of its changes then: it is to be aborted.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The layer, or the directory below it, could not be read or changed.
    #[error("{call} {path}: {why}", why = wholly_media::in_words(*.errno))]
    Host {
        /// The system call.
        call: &'static str,
        /// On what, relative to the store's directory.
        path: String,
        /// What it returned.
        errno: Errno,
    },
    /// The store refused a call on the group.
    #[error("{call} {path} in the group: {why}", why = wholly_media::in_words(*.errno))]
    Call {
        /// The call, as [`Vfs`](wholly_vfs::Vfs) names it.
        call: &'static str,
        /// On what, relative to the store's directory.
        path: String,
        /// What it returned.
        errno: Errno,
    },
    /// The store refused to take something over, or to note that something was overtaken.
    #[error("{path}: {error}")]
    Store {
        /// What, relative to the store's directory.
        path: String,
        /// Why.
        error: wholly::Error,
    },
    /// The command has moved something of the directory to the name that belongs to the store, where it would be lost.
    #[error("the command has moved something to .wholly, the name of the store's own folder")]
    OwnFolder,
    /// The layer is not what overlayfs would have left.
    #[error("{path} in the layer: {what}")]
    Unsound {
        /// What, relative to the layer.
        path: String,
        /// What does not fit.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn unsound(path: &[u8], what: &'static str) -> Self {
        Error::Unsound { path: show(path), what }
    }
}

/// A path for messages.
pub(crate) fn show(path: &[u8]) -> String {
    if path.is_empty() { ".".into() } else { String::from_utf8_lossy(path).into_owned() }
}

/// Gives an error number of a system call its place.
pub(crate) trait OnHost<T> {
    /// See the trait.
    fn on(self, call: &'static str, path: &[u8]) -> Result<T>;
}

impl<T> OnHost<T> for rustix::io::Result<T> {
    fn on(self, call: &'static str, path: &[u8]) -> Result<T> {
        self.map_err(|errno| Error::Host { call, path: show(path), errno })
    }
}
