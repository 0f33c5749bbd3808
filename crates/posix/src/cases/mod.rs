//! The cases. Each is a function that makes its own files in an empty directory that everybody may write to, and says
//! what it asserts by its name.

mod acl;
mod attributes;
mod before;
mod data;
mod directories;
mod inodes;
mod limits;
mod links;
mod names;
mod owners;
mod path_ends;
mod paths;
mod permissions;
mod rename;
mod rename_types;
mod set_times;
mod space;
mod sticky;
mod syncing;
mod times;
mod xattrs;

use crate::check::Outcome;
use crate::suite::Case;
use crate::tree::Tree;

/// Users who are not the superuser, and groups of users.
const ANN: u32 = 3001;
const BOB: u32 = 3002;
const CREW: u32 = 3100;

/// Makes one of each type: `file`, `dir`, `link` (to nothing), `fifo`, `socket`.
fn one_of_each(t: &Tree<'_>) -> Outcome {
    use wholly_vfs::FileType;
    t.file("file", 0o644, b"content")?;
    t.mkdir("dir", 0o755)?;
    t.symlink("link", "nothing")?;
    t.mknod("fifo", FileType::Fifo, 0o644)?;
    t.mknod("socket", FileType::Socket, 0o644)?;
    Ok(())
}

/// What [`one_of_each`] makes that is no directory.
const NO_DIRECTORIES: [&str; 4] = ["file", "link", "fifo", "socket"];

pub(crate) fn all() -> Vec<Case> {
    [
        names::CASES,
        inodes::CASES,
        links::CASES,
        limits::CASES,
        paths::CASES,
        path_ends::CASES,
        rename::CASES,
        rename_types::CASES,
        directories::CASES,
        data::CASES,
        space::CASES,
        syncing::CASES,
        attributes::CASES,
        owners::CASES,
        times::CASES,
        set_times::CASES,
        permissions::CASES,
        sticky::CASES,
        xattrs::CASES,
        acl::CASES,
    ]
    .concat()
}
