//! What a command has left in the upper layer of an overlay, as calls on a group of a store.
//!
//! # Terms
//!
//! - *below*: the store's directory as it is on the host, the lower layer of the overlay.
//! - *layer*: what the command has made and changed, the upper layer ([`wholly::LAYER`]), and the *index* of files with
//!   several names.
//! - *view*: what the command has seen: both, merged.
//! - *whiteout*: an entry of the layer that says that a name of below is gone. *Opaque*: a directory of the layer that
//!   is merged with nothing. *Redirected*: one that is merged with a directory of below that had another path.
//! - *hidden*: a name below that in the view is gone, or names something else.
//! - *set aside*: to have a name of no meaning until the place is there.
//! - *bystander*: who changes what is below while the command runs.
//!
//! # Invariants
//!
//! 1. For the group, the store's directory is at the end what the view was.
//! 2. What was there before stays what it is: its inode gets other names, attributes and blocks, and no others take its
//!    place.
//! 3. All is read and compared before anything is changed. Where a bystander has changed what the group builds on, that
//!    is noted of the group first, which then never gets home by itself; and nothing in the layer is changed. Behind
//!    the last call it is looked once more: whatever comes after that the group itself notices. It also looks by itself
//!    at what is in a directory that it removes with everything in it.
//! 4. Names below are freed before names are given, deeper ones first: each path means what it meant in the plan until
//!    it is its turn.
//! 5. Attributes come after content, those of directories after all that is in them, times last.
//! 6. An error leaves a group with some of the changes: it is to be aborted.
//!
//! Not covered are the flags of inodes (`chattr`).
//!
//! | file | idea |
//! |---|---|
//! | `host.rs` | reading trees of the host |
//! | `marks.rs` | what overlayfs writes on its entries |
//! | `paths.rs` | sets of very many names |
//! | `plan.rs` | what is to be done |
//! | `walk.rs` | from the layer to the plan |
//! | `find.rs` | where below is what has another name in the layer |
//! | `bystanders.rs` | what others have changed |
//! | `group.rs` | calls on the group |
//! | `apply.rs` | from the plan to calls |
//! | `attributes.rs` | owners, modes, extended attributes |
//! | `content.rs` | bytes |
//! | `undo.rs` | how the layer becomes what it was |
//! | `error.rs` | what can go wrong |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod apply;
mod attributes;
mod bystanders;
mod content;
mod error;
mod find;
mod group;
mod host;
mod marks;
mod paths;
mod plan;
mod undo;
mod walk;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use wholly::{Mismatch, StoreVfs};
use wholly_vfs::GroupId;

use apply::Apply;
use bystanders::Look;
use error::OnHost;
use group::Group;
use host::{Path, Tree};
use marks::Reader;
use plan::Plan;
use undo::Undo;

pub use error::{Error, Result};

/// The directory of the layer that is mounted as `upperdir`, below the store's directory.
pub const UPPER: &str = ".wholly/layer/upper";
/// The one that is mounted as `workdir`.
pub const WORK: &str = ".wholly/layer/work";

/// How what is new comes into the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By one rename each, a new directory with all that is in it ([`StoreVfs::import`]). The layer is used up. A
    /// directory that is gone goes in the same way ([`StoreVfs::remove_tree`]).
    Adopt,
    /// By calls that make it and write it. Only the bytes of large new files are moved
    /// ([`StoreVfs::import_content`]): the layer is used up.
    Copy,
}

/// The layers of an overlay that nobody has mounted any more, and the group that they are to become.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    /// The store.
    pub vfs: &'a StoreVfs,
    /// A group of it that has no changes yet, and that nobody else makes calls on.
    pub group: GroupId,
    /// The store's directory itself, not seen through the overlay. `O_PATH` is enough.
    pub dir: BorrowedFd<'a>,
    /// The store's layer ([`Store::open_layer`](wholly::Store::open_layer)).
    pub layer: BorrowedFd<'a>,
    /// Whatever is changed in the store's directory after the layer was made has a later `ctime` than this, in ns since
    /// 1970; whatever was changed before has none.
    pub since_ns: i64,
    /// Where overlayfs keeps its attributes: `trusted`, or `user` where it was mounted with `userxattr`.
    pub namespace: &'a str,
}

/// What became of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// What others have changed of what the group builds on: it was noted of the group.
    pub overtaken: Vec<Mismatch>,
    /// How many names were given to what was taken over as it was, or taken from directories with everything in them. 0
    /// with [`How::Copy`], and where something was overtaken before.
    pub adopted: usize,
    /// Whether the command has made something named `.wholly` at the top of the directory. That is left out.
    pub left_out: bool,
    undo: Undo,
}

impl Taken {
    /// Makes the layer what it was before it was taken up, so that it can be once more, in another group. The first one
    /// was aborted.
    ///
    /// # Errors
    /// What a call returned.
    pub fn undo(&self, layers: &Layers<'_>) -> Result<()> {
        let upper = open(layers.layer, UPPER)?;
        self.undo.undo(&Tree::new(upper.as_fd(), UPPER.as_bytes()))
    }
}

/// Makes the layer calls on the group: see the crate's head. The layer's root directory counts, too: who makes the
/// layer gives it the attributes and times of the store's directory after all else is in it.
///
/// Nothing of it is durable before the group is committed.
///
/// # Errors
/// [`Error::OwnFolder`] where the command has moved something to the name `.wholly` at the top; [`Error::Unsound`]
/// where the layer is none of overlayfs; else what a call returned. The group is to be aborted then.
pub fn take_up(layers: &Layers<'_>, how: How) -> Result<Taken> {
    let upper = open(layers.layer, UPPER)?;
    let upper = Tree::new(upper.as_fd(), UPPER.as_bytes());
    let work = open(layers.layer, WORK)?;
    // There is none where the file system below has no file handles, or the overlay was mounted without.
    let index = Tree::new(work.as_fd(), WORK.as_bytes()).dir(b"index")?;
    let lower = Tree::new(layers.dir, b".");
    let reader = Reader::new(layers.namespace);

    let mut plan = walk::read(&upper, &lower, index.as_ref(), &reader)?;
    let left_out = plan.has_own_folder;
    find::resolve(&mut plan, &lower)?;
    let look = Look { upper: &upper, lower: &lower, reader: &reader, since_ns: layers.since_ns };
    look.at(&mut plan, how)?;

    let mut group = Group::new(layers.vfs, layers.group);
    let mut overtaken = note(&mut group, &plan.wrong)?;
    let how = if overtaken.is_empty() { how } else { How::Copy };
    let mut apply = Apply::new(&plan, group, (&upper, &lower, index.as_ref(), &reader), (how, layers.since_ns));
    apply.all()?;
    let Apply { mut group, adopted, gone_whole, undo, .. } = apply;
    let late = look.once_more(&plan, &gone_whole)?;
    overtaken.extend(note(&mut group, &late)?);
    Ok(Taken { overtaken, adopted: adopted + gone_whole.len(), left_out, undo })
}

/// Makes a call that makes one for each directory in a directory, on another stack once there are many of these: a
/// command may make directories in each other by the thousands.
fn deep<T: Send>(call: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    /// Each takes some thousand bytes.
    const CALLS: usize = 128;
    const STACK: usize = 2 << 20;
    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }
    let depth = DEPTH.get();
    if depth < CALLS {
        DEPTH.set(depth + 1);
        let called = call();
        DEPTH.set(depth);
        return called;
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, call);
        let thread = thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)).on("clone", b"")?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn open(layer: BorrowedFd<'_>, path: &str) -> Result<OwnedFd> {
    open_in(layer, path).on("open", path.as_bytes())
}

/// Opens [`UPPER`] or [`WORK`] in a layer that is open (`O_PATH`).
///
/// # Errors
/// Those of `openat2`.
pub fn open_in(layer: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(layer, name_of(path), flags, Mode::empty(), resolve)
}

/// What [`UPPER`] or [`WORK`] is called in the layer.
pub fn name_of(path: &str) -> &str {
    path.strip_prefix(wholly::LAYER).map_or(path, |name| name.trim_start_matches('/'))
}

/// Notes of the group all that others have changed, while paths are what they were.
fn note(group: &mut Group<'_>, wrong: &BTreeSet<(Path, String)>) -> Result<Vec<Mismatch>> {
    let mut overtaken = Vec::new();
    for wrong in wrong {
        let mut concerned = group.at(&wrong.0)?;
        for above in bystanders::above(&wrong.0) {
            if concerned.is_some() {
                break;
            }
            concerned = group.dir(above)?;
        }
        let (ino, mismatch) = (concerned.unwrap_or(wholly_vfs::Ino::ROOT), Plan::mismatch(wrong));
        let noted = group.vfs.note_overtaken(group.id, ino, mismatch.clone());
        noted.map_err(|error| Error::Store { path: mismatch.path.display().to_string(), error })?;
        overtaken.push(mismatch);
    }
    Ok(overtaken)
}
