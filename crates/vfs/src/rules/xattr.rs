//! Names of extended attributes, and who may see them.

use crate::{NAME_MAX, Stat};
use rustix::io::Errno;

use super::permit::{STICKY, Who};
use super::{DIRECTORY, REGULAR, SYMLINK, TYPE, acl};

pub const USER: &[u8] = b"user.";
pub const TRUSTED: &[u8] = b"trusted.";
pub const SECURITY: &[u8] = b"security.";

/// The capabilities of a program, which go when its owner or content changes.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Checks a name as the kernel does.
pub fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::RANGE);
    }
    if name.contains(&0) {
        return Err(Errno::INVAL);
    }
    if acl::is_acl(name) {
        return Ok(());
    }
    match [USER, TRUSTED, SECURITY].into_iter().find(|space| name.starts_with(space)) {
        None => Err(Errno::OPNOTSUPP),
        Some(space) if space.len() == name.len() => Err(Errno::INVAL),
        Some(_) => Ok(()),
    }
}

/// Whether objects of a type have attributes of this name.
pub fn may_have(name: &[u8], kind: u32) -> bool {
    !name.starts_with(USER) || matches!(kind & TYPE, REGULAR | DIRECTORY)
}

/// Whether `who` may set or remove an attribute of what looks like `stat`. `may_write` checks the permission to write.
pub fn check_set(
    who: &Who,
    stat: &Stat,
    name: &[u8],
    may_write: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let sticks = stat.mode & TYPE == DIRECTORY && stat.mode & STICKY != 0 && !who.owns(stat);
    match name.starts_with(USER) {
        false if who.is_superuser() => Ok(()),
        true if !sticks && may_have(name, stat.mode) => may_write(),
        _ => Err(Errno::PERM),
    }
}

/// Whether `who` sees an attribute of an object of a type. `may_read` checks the permission to read.
pub fn check_get(
    who: &Who,
    kind: u32,
    name: &[u8],
    may_read: impl FnOnce() -> Result<(), Errno>,
) -> Result<bool, Errno> {
    match () {
        () if !may_see(who, name) || !may_have(name, kind) => Ok(false),
        () if acl::is_acl(name) && kind & TYPE == SYMLINK => Err(Errno::OPNOTSUPP),
        () if name.starts_with(USER) => may_read().map(|()| true),
        () => Ok(true),
    }
}

/// Whether `who` sees attributes of this name at all.
pub fn may_see(who: &Who, name: &[u8]) -> bool {
    !name.starts_with(TRUSTED) || who.is_superuser()
}

/// Whether the kernel takes a value for capabilities of a program, of the second version or the third
/// (`linux/capability.h`).
pub fn are_capabilities(value: &[u8]) -> bool {
    match value.first_chunk::<4>().map(|head| u32::from_le_bytes(*head) >> 24) {
        Some(2) => value.len() == 20,
        Some(3) => value.len() == 24,
        _ => false,
    }
}
