//! All that a program can see of a volume.

use std::collections::BTreeMap;
use std::fmt;

use wholly::vfs::{Attr, FileType, Ino};
use wholly_posix::Tree;
use wholly_volume::VolumeVfs;

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub attr: Attr,
    /// Content, or target.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Objects by path.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Seen(BTreeMap<String, Object>);

impl Seen {
    pub fn of(vfs: &VolumeVfs) -> wholly::vfs::Result<Seen> {
        Self::of_tree(&Tree::new(vfs, Ino::ROOT))
    }

    /// What the context of a tree sees.
    pub fn of_tree(tree: &Tree<'_>) -> wholly::vfs::Result<Seen> {
        let mut seen = Seen::default();
        seen.add(tree, String::new())?;
        Ok(seen)
    }

    fn add(&mut self, tree: &Tree<'_>, path: String) -> wholly::vfs::Result<()> {
        let at = if path.is_empty() { "/" } else { &path };
        let mut attr = tree.stat(at)?;
        // Looking renews it.
        attr.atime = attr.mtime;
        if attr.kind == FileType::Directory {
            // Leaves come and go without anybody's change.
            (attr.size, attr.blocks) = (0, 0);
        }
        let mut xattrs = BTreeMap::new();
        for name in tree.xattrs(at)? {
            let value = tree.xattr(at, &name)?;
            xattrs.insert(name, value);
        }
        let content = match attr.kind {
            FileType::RegularFile => tree.content(at)?,
            FileType::Symlink => tree.readlink(at)?,
            _ => Vec::new(),
        };
        self.0.insert(path.clone(), Object { attr, content, xattrs });
        if attr.kind == FileType::Directory {
            for name in tree.names(at)? {
                let name = String::from_utf8(name.name).expect("names of scripts are text");
                self.add(tree, format!("{path}/{name}"))?;
            }
        }
        Ok(())
    }

    /// Where two differ first.
    pub fn difference(&self, other: &Seen) -> String {
        for (path, object) in &self.0 {
            match other.0.get(path) {
                None => return format!("{path:?} is only in one"),
                Some(there) if there != object => return format!("{path:?}: {object} and {there}"),
                Some(_) => {}
            }
        }
        let more = other.0.keys().find(|path| !self.0.contains_key(*path));
        more.map_or("nothing".into(), |path| format!("{path:?} is only in the other"))
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content in runs of equal bytes.
        write!(f, "{:?}, content", self.attr)?;
        for run in self.content.chunk_by(|one, next| one == next).take(12) {
            write!(f, " {}x{:#x}", run.len(), run[0])?;
        }
        write!(f, ", {} attributes", self.xattrs.len())
    }
}
