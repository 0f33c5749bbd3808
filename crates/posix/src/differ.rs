//! Random calls on two file systems that must do the same.
//!
//! A sequence of calls is made on both; each call must say the same, and the trees that are left must be the same: names, types, modes,
//! sizes, contents, links, extended attributes. Times are not compared: clocks differ. Calls choose from few names, so that they meet.

mod ops;
mod tree;

pub use ops::{Op, Path, sequence};

use wholly::vfs::{Ino, Vfs};

use crate::tree::Tree;
use ops::Runner;

/// What one call said: all that it told, or its error number.
pub type Said = Result<String, String>;

/// A difference that is no mistake of either.
#[derive(Clone, Copy)]
pub struct Permitted {
    /// Why.
    pub reason: &'static str,
    /// Whether this is it: the calls so far, and what the last one said on the one and on the other.
    pub is: fn(&[Op], &Said, &Said) -> bool,
}

impl std::fmt::Debug for Permitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason)
    }
}

/// Empties both file systems, makes the calls on both, and compares. A difference that is permitted ends the sequence: from there on the
/// two may go apart.
///
/// # Errors
/// What differs, in words.
pub fn compare(one: &dyn Vfs, other: &dyn Vfs, ops: &[Op], permitted: &[Permitted]) -> Result<(), String> {
    clear(one)?;
    clear(other)?;
    let trees = [one, other].map(|vfs| Tree::new(vfs, Ino::ROOT));
    let [mut first, mut second] = [Runner::new(&trees[0]), Runner::new(&trees[1])];
    for (number, op) in ops.iter().enumerate() {
        let said = (first.run(op), second.run(op));
        if said.0 == said.1 {
            continue;
        }
        if permitted.iter().any(|permitted| (permitted.is)(&ops[..=number], &said.0, &said.1)) {
            return Ok(());
        }
        return Err(format!("call {number}, {op:?}: one says {:?}, the other {:?}", said.0, said.1));
    }
    // What was removed while it was open is gone from here on.
    drop((first, second));
    same_trees(one, other)
}

/// Compares all that is in two file systems, but for times.
///
/// # Errors
/// What differs, in words.
pub fn same_trees(one: &dyn Vfs, other: &dyn Vfs) -> Result<(), String> {
    let [first, second] = [one, other].map(|vfs| tree::describe(&Tree::new(vfs, Ino::ROOT)));
    if first == second { Ok(()) } else { Err(tree::difference(&first, &second)) }
}

/// Empties a file system.
///
/// # Errors
/// What cannot be removed, in words.
pub fn clear(vfs: &dyn Vfs) -> Result<(), String> {
    let tree = Tree::new(vfs, Ino::ROOT);
    let failed = |what: &str, errno| format!("cannot be emptied: {what}: {errno}");
    for name in tree.names("/").map_err(|errno| failed("/", errno))? {
        tree.remove(&name.name).map_err(|errno| failed(&String::from_utf8_lossy(&name.name), errno))?;
    }
    let rest = || {
        tree.xattrs("/")?.iter().try_for_each(|name| tree.remove_xattr("/", name))?;
        tree.chmod("/", 0o755).map(drop)
    };
    rest().map_err(|errno| failed("attributes of /", errno))
}
