//! What was changed in the layer for things to be taken over, and is changed back where they were not after all.

use rustix::fs::{AtFlags, linkat};

use crate::error::{Error, OnHost, Result};
use crate::host::{Path, Tree, split};
use crate::marks::Cleared;
use crate::paths::Paths;

/// All of it, in the order in which it was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undo {
    pub marks: Vec<Cleared>,
    /// A name that an inode kept, and one that it lost.
    pub links: Vec<(Path, Path)>,
    /// What was taken over.
    pub adopted: Paths,
}

impl Undo {
    /// Makes the layer what it was. All that was taken over lies there again.
    pub fn undo(&self, upper: &Tree<'_>) -> Result<()> {
        // The group has given it back, if it could.
        for path in self.adopted.iter() {
            if upper.stat(&path)?.is_none() {
                return Err(Error::unsound(&path, "it is not in the layer again"));
            }
        }
        self.marks.iter().rev().try_for_each(|cleared| cleared.restore(upper))?;
        for (kept, lost) in self.links.iter().rev() {
            if let (Some(from), Some(to)) = (upper.above(kept)?, upper.above(lost)?) {
                linkat(from.fd(), split(kept).1, to.fd(), split(lost).1, AtFlags::empty()).on("link", lost)?;
            }
        }
        Ok(())
    }
}
