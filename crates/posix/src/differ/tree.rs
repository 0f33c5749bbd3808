//! All that is in a file system, but for times.

use std::collections::BTreeMap;

use wholly::vfs::{FileType, Ino, OFlags, Result};

use crate::tree::Tree;

/// The folder of a store in its directory.
const OWN_FOLDER: &[u8] = b".wholly";

/// What each path names, in words.
pub(super) type Described = BTreeMap<String, String>;

pub(super) fn describe(tree: &Tree<'_>) -> Described {
    let mut found = (Described::new(), BTreeMap::new());
    if let Err(errno) = below(tree, "/", &mut found) {
        found.0.insert("(the whole)".into(), format!("cannot be read: {errno}"));
    }
    found.0
}

fn below(tree: &Tree<'_>, path: &str, found: &mut (Described, BTreeMap<Ino, String>)) -> Result<()> {
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

/// Where two differ.
pub(super) fn difference(one: &Described, other: &Described) -> String {
    let mut text = String::from("the trees differ:");
    for path in one.keys().chain(other.keys().filter(|path| !one.contains_key(*path))) {
        let (first, second) = (one.get(path), other.get(path));
        if first != second {
            text += &format!("\n{path}\n  one: {first:?}\n  other: {second:?}");
        }
    }
    text
}
