//! All that is in a file system, but for times.

use std::collections::BTreeMap;

use wholly_vfs::{FileType, Ino, OFlags, Result, Vfs};

use super::caller::Caller;
use crate::tree::Tree;

/// The folder of a store in its directory.
const OWN_FOLDER: &[u8] = b".wholly";

type Paths = BTreeMap<String, String>;

/// What each path names, in words.
#[derive(Debug, PartialEq, Eq)]
pub struct Described(Paths);

/// Describes all that is a caller's own: of one who is alone, all.
pub fn describe(vfs: &dyn Vfs, caller: Caller) -> Described {
    let tree = Tree::new(vfs, Ino::ROOT);
    let tops = if caller == Caller::Alone { Ok(vec!["/".into()]) } else { caller.tops(&tree) };
    let mut found = (Paths::new(), BTreeMap::new());
    let described = tops.and_then(|tops| tops.iter().try_for_each(|top| below(&tree, top, &mut found)));
    if let Err(errno) = described {
        found.0.insert("(the whole)".into(), format!("cannot be read: {errno}"));
    }
    Described(found.0)
}

fn below(tree: &Tree<'_>, path: &str, found: &mut (Paths, BTreeMap<Ino, String>)) -> Result<()> {
    let stat = tree.stat(path)?;
    // What a store keeps for itself is seen from outside only.
    let own = path == "/" && tree.exists(OWN_FOLDER)?;
    let links = stat.nlink - u64::from(own && stat.nlink > 2);
    let mut text = format!("{:?}, mode {:o}, {links} links", stat.kind, stat.mode.as_raw_mode());
    for name in tree.xattrs(path)? {
        text += &format!(", {name}={:?}", tree.xattr(path, &name)?);
    }
    match stat.kind {
        FileType::RegularFile => {
            let content = tree.open(path, OFlags::RDONLY)?.content()?;
            text += &format!(", {} bytes: {}", stat.size, runs(&content));
        }
        FileType::Symlink => text += &format!(", to {}", String::from_utf8_lossy(&tree.readlink(path)?)),
        _ => {}
    }
    // Which names are of one inode: numbers differ, the first name of each does not.
    let first = found.1.entry(stat.ino).or_insert_with(|| path.into());
    if first != path {
        text += &format!(", the same as {first}");
    }
    found.0.insert(path.into(), text);
    if stat.kind == FileType::Directory {
        for name in tree.names(path)?.into_iter().filter(|name| !own || name.name != OWN_FOLDER) {
            let child = format!("{}/{}", path.trim_end_matches('/'), String::from_utf8_lossy(&name.name));
            below(tree, &child, found)?;
        }
    }
    Ok(())
}

/// Bytes by runs of equal ones: `0*100 7*3`.
pub(super) fn runs(bytes: &[u8]) -> String {
    bytes.chunk_by(|one, other| one == other).map(|run| format!("{}*{} ", run[0], run.len())).collect()
}

impl Described {
    /// Compares.
    ///
    /// # Errors
    /// What differs, in words.
    pub fn same_as(&self, other: &Described) -> std::result::Result<(), String> {
        let (one, other) = (&self.0, &other.0);
        let mut text = String::new();
        for path in one.keys().chain(other.keys().filter(|path| !one.contains_key(*path))) {
            let (first, second) = (one.get(path), other.get(path));
            if first != second {
                text += &format!("\n{path}\n  one: {first:?}\n  other: {second:?}");
            }
        }
        if text.is_empty() { Ok(()) } else { Err(format!("the trees differ:{text}")) }
    }
}
