//! Random calls on two file systems that must do the same.
//!
//! A sequence of calls is made on both; each call must say the same, and the trees that are left must be the same:
//! names, types, modes, sizes, contents, links, extended attributes. Times are not compared: clocks differ. Calls
//! choose from few names, so that they meet.
//!
//! Several callers may make calls at the same time, each a sequence of its own: see [`Caller`].
//!
//! | file | idea |
//! |---|---|
//! | `caller.rs` | who makes calls, and which names are its own |
//! | `choose.rs` | how calls are chosen |
//! | `ops.rs` | the calls, and how they are made |
//! | `tree.rs` | all that is in a file system |

mod caller;
mod choose;
mod ops;
mod tree;

pub use caller::{CALLERS, Caller, make_shared};
pub use choose::sequence;
pub use ops::{Op, Path};
pub use tree::{Described, describe};

use wholly_vfs::{Ino, Vfs};

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
    /// Whether nothing is compared from there on, because the two may have gone apart.
    pub ends: bool,
}

impl std::fmt::Debug for Permitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason)
    }
}

/// Empties both file systems, makes the calls on both, and compares.
///
/// # Errors
/// What differs, in words.
pub fn compare(one: &dyn Vfs, other: &dyn Vfs, ops: &[Op], permitted: &[Permitted]) -> Result<(), String> {
    clear(one)?;
    clear(other)?;
    let first = call(one, Caller::Alone, ops)?;
    let second = call(other, Caller::Alone, ops)?;
    match agree(ops, (&first, &second), permitted)? {
        true => same_trees(one, other),
        false => Ok(()),
    }
}

/// Makes calls on a file system. What was removed while it was open is gone when this returns.
///
/// # Errors
/// What the caller does not find of what is shared, in words.
pub fn call(vfs: &dyn Vfs, caller: Caller, ops: &[Op]) -> Result<Vec<Said>, String> {
    let tree = Tree::new(vfs, Ino::ROOT);
    let runner = Runner::new(&tree, caller);
    let mut runner = runner.map_err(|errno| format!("what is shared cannot be opened: {errno}"))?;
    Ok(ops.iter().map(|op| runner.run(op)).collect())
}

/// Compares what the last of these calls said on the one and on the other. Gives whether the two must still be the
/// same.
///
/// # Errors
/// What differs, in words.
pub fn agree(ops: &[Op], (one, other): (&[Said], &[Said]), permitted: &[Permitted]) -> Result<bool, String> {
    let before = ops.len() - one.len();
    for (number, (one, other)) in (before..).zip(one.iter().zip(other)) {
        if one == other {
            continue;
        }
        match permitted.iter().find(|permitted| (permitted.is)(&ops[..=number], one, other)) {
            Some(permitted) if permitted.ends => return Ok(false),
            Some(_) => {}
            None => return Err(format!("call {number}, {:?}: one says {one:?}, the other {other:?}", ops[number])),
        }
    }
    Ok(true)
}

/// Compares all that is in two file systems, but for times.
///
/// # Errors
/// What differs, in words.
pub fn same_trees(one: &dyn Vfs, other: &dyn Vfs) -> Result<(), String> {
    describe(one, Caller::Alone).same_as(&describe(other, Caller::Alone))
}

/// Empties a file system.
///
/// # Errors
/// What cannot be removed, in words.
pub fn clear(vfs: &dyn Vfs) -> Result<(), String> {
    clear_own(vfs, Caller::Alone)?;
    let tree = Tree::new(vfs, Ino::ROOT);
    let rest = || {
        tree.xattrs("/")?.iter().try_for_each(|name| tree.remove_xattr("/", name))?;
        tree.chmod("/", 0o755).map(drop)
    };
    rest().map_err(|errno| format!("cannot be emptied: attributes of /: {errno}"))
}

/// Removes all that is a caller's own.
///
/// # Errors
/// What cannot be removed, in words.
pub fn clear_own(vfs: &dyn Vfs, caller: Caller) -> Result<(), String> {
    let tree = Tree::new(vfs, Ino::ROOT);
    let failed = |what: &str, errno| format!("cannot be emptied: {what}: {errno}");
    for path in caller.tops(&tree).map_err(|errno| failed("/", errno))? {
        tree.remove(path.as_bytes()).map_err(|errno| failed(&path, errno))?;
    }
    Ok(())
}
