//! What was changed in the layer for things to be taken over, and is changed back where they were not after all.

use rustix::fs::{AtFlags, linkat};

use crate::error::{Error, OnHost, Result};
use crate::host::{Path, Tree, split};
use crate::marks::Cleared;

/// All of it, in the order in which it was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undo {
    pub marks: Vec<Cleared>,
    /// A name that an inode kept, and one that it lost.
    pub links: Vec<(Path, Path)>,
    /// Directories from which things were taken over, with how many names each had: of very many things in one
    /// directory nothing else is kept.
    pub dirs: Vec<(Path, usize)>,
}

impl Undo {
    /// Makes the layer what it was. The group has given back what it could.
    ///
    /// # Errors
    /// Also where not all lies there again.
    pub fn undo(&self, upper: &Tree<'_>) -> Result<()> {
        self.marks.iter().rev().try_for_each(|cleared| cleared.restore(upper))?;
        for (kept, lost) in self.links.iter().rev() {
            if let (Some(from), Some(to)) = (upper.above(kept)?, upper.above(lost)?) {
                linkat(from.fd(), split(kept).1, to.fd(), split(lost).1, AtFlags::empty()).on("link", lost)?;
            }
        }
        for (dir, count) in &self.dirs {
            let names = upper.dir(dir)?.map_or(Ok(Vec::new()), |dir| dir.names())?;
            if names.len() != *count {
                return Err(Error::unsound(dir, "not all that was taken over is in it again"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_was_not_given_back_is_missed() {
        let dir = std::env::temp_dir().join(format!("wholly-undo-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("d")).expect("create a directory");
        ["a", "b", "d/c"].iter().for_each(|name| std::fs::write(dir.join(name), name).expect("write"));
        let open = std::fs::File::open(&dir).expect("open");
        let tree = Tree::new(open.as_fd(), b"layer");
        let (links, dirs) = (vec![(b"a".to_vec(), b"d/a".to_vec())], vec![(Vec::new(), 3), (b"d".to_vec(), 2)]);
        let undo = Undo { links, dirs, ..Undo::default() };
        undo.undo(&tree).expect("all is there again");
        for gone in ["b", "d/c"] {
            std::fs::remove_file(dir.join("d/a")).expect("remove the link");
            std::fs::remove_file(dir.join(gone)).expect("remove a file");
            assert!(undo.undo(&tree).is_err(), "{gone}");
            std::fs::write(dir.join(gone), gone).expect("write");
        }
        std::fs::remove_dir_all(&dir).expect("remove");
    }
}
