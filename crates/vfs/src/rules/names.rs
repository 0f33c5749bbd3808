//! Names, and what may have one.

use super::permit::Who;
use crate::{Errno, FileType, NAME_MAX, PATH_MAX, Rename, Result};

/// Checks a name that a call may be about.
pub fn check_name(name: &[u8]) -> Result<()> {
    match name {
        _ if name.len() > NAME_MAX => Err(Errno::NAMETOOLONG),
        b"" | b"." | b".." => Err(Errno::INVAL),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// Checks the target of a symbolic link.
pub fn check_target(target: &[u8]) -> Result<()> {
    match target.len() {
        0 => Err(Errno::NOENT),
        length if length >= PATH_MAX => Err(Errno::NAMETOOLONG),
        _ if target.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// Checks what `who` makes by mknod(2). Gives its number, which only a device has.
pub fn check_node(who: &Who, kind: FileType, rdev: u64) -> Result<u64> {
    match kind {
        FileType::RegularFile | FileType::Fifo | FileType::Socket => Ok(0),
        FileType::Directory => Err(Errno::PERM),
        FileType::CharacterDevice | FileType::BlockDevice if !who.is_superuser() => Err(Errno::PERM),
        FileType::CharacterDevice | FileType::BlockDevice => Ok(rdev),
        _ => Err(Errno::INVAL),
    }
}

/// Checks that what has a name is what the call is for: a directory, or anything else.
pub fn check_kind(for_dir: bool, is_dir: bool) -> Result<()> {
    match (for_dir, is_dir) {
        (true, false) => Err(Errno::NOTDIR),
        (false, true) => Err(Errno::ISDIR),
        _ => Ok(()),
    }
}

/// Type and permissions of a *whiteout*, a device with the number 0. By it an overlay says of a name that it hides what
/// the layers below have there. It stands for no device, so that Linux lets everybody leave one (since 5.8).
pub const WHITEOUT: u32 = 0o020_000;

/// Checks a rename by how the tree looks; `taken`: whether what has the new name is what moves. `is_above`: the new
/// name is below what moves, or the old one below what has the new one. Gives whether there is anything to do.
pub fn check_rename(how: Rename, taken: Option<bool>, is_above: (bool, bool)) -> Result<bool> {
    match (taken, is_above) {
        (Some(_), _) if how == Rename::NoReplace => Err(Errno::EXIST),
        (None, _) if how == Rename::Exchange => Err(Errno::NOENT),
        (_, (true, _)) => Err(Errno::INVAL),
        (Some(_), (_, true)) => Err(if how == Rename::Exchange { Errno::INVAL } else { Errno::NOTEMPTY }),
        (taken, _) => Ok(taken != Some(true)),
    }
}
