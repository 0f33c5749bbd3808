//! Who makes calls: one alone, or several at the same time, none of whom changes what another one looks at.
//!
//! Several have names of their own, in directories that all of them use, and parts of their own of one file. So what
//! each of their calls says does not depend on what the others do meanwhile. What would is left out: attributes of the
//! shared directories themselves (their link counts and times are those of whoever came last), other callers' names in
//! listings, and of the shared file appends, its size, and where its holes are, as both tell of other parts.

use wholly_vfs::{Ino, OFlags, Result, Vfs};

use super::Path;
use crate::tree::Tree;

/// Callers that there may be at the same time.
pub const CALLERS: usize = 3;

/// Who makes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Nobody else does meanwhile.
    Alone,
    /// One of several.
    Beside {
        /// Which: below [`CALLERS`].
        number: usize,
        /// Whether it uses its parts of the shared file, too.
        parts: bool,
    },
}

/// The directories that callers share, as a path begins with them.
const SHARED_DIRS: [&str; 3] = ["./", "s/", "s/s/"];

/// The file of which each caller has parts.
pub(super) const SHARED_FILE: &str = "f";

/// Bytes of a part: callers meet in the blocks at its ends.
pub(super) const PART_BYTES: u64 = 10_000;

/// Parts of one caller.
const PARTS: usize = 2;

impl Caller {
    /// A name of its own.
    pub(super) fn own(self, name: &str) -> Path {
        match self {
            Caller::Beside { number, .. } if !name.starts_with('.') => format!("{name}{number}"),
            _ => name.into(),
        }
    }

    /// Whether a name is its own.
    pub(super) fn owns(self, name: &[u8]) -> bool {
        match self {
            Caller::Alone => true,
            Caller::Beside { number, .. } => name.ends_with(number.to_string().as_bytes()),
        }
    }

    /// The directories that others change meanwhile.
    pub(super) fn shared_dirs(self) -> &'static [&'static str] {
        match self {
            Caller::Alone => &[],
            Caller::Beside { .. } => &SHARED_DIRS,
        }
    }

    /// Where its parts of the shared file begin.
    pub(super) fn parts(self) -> Vec<u64> {
        match self {
            Caller::Beside { number, parts: true } => {
                (0..PARTS).map(|part| (part * CALLERS + number) as u64 * PART_BYTES).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether it has any.
    pub(super) fn has_parts(self) -> bool {
        !self.parts().is_empty()
    }

    /// The topmost paths at which its own things are.
    pub(super) fn tops(self, tree: &Tree<'_>) -> Result<Vec<Path>> {
        let dirs = if self == Caller::Alone { &["./"] } else { self.shared_dirs() };
        let mut tops = Vec::new();
        for dir in dirs {
            let names = tree.names(dir)?.into_iter().filter(|name| self.owns(&name.name));
            tops.extend(names.map(|name| format!("{dir}{}", String::from_utf8_lossy(&name.name))));
        }
        Ok(tops)
    }
}

/// Makes in an empty file system what callers share.
///
/// # Errors
/// What cannot be made, in words.
pub fn make_shared(vfs: &dyn Vfs) -> std::result::Result<(), String> {
    let tree = Tree::new(vfs, Ino::ROOT);
    let make = || {
        SHARED_DIRS[1..].iter().try_for_each(|dir| tree.mkdir(dir, 0o755).map(drop))?;
        let file = tree.open_with(SHARED_FILE, OFlags::RDWR | OFlags::CREATE, 0o644)?;
        file.truncate((PARTS * CALLERS) as u64 * PART_BYTES).map(drop)
    };
    make().map_err(|errno| format!("what is shared cannot be made: {errno}"))
}
