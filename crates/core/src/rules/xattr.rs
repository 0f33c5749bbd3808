//! Names of extended attributes, and who may see them.

use rustix::io::Errno;

use super::acl;
use super::permit::Who;

pub const USER: &[u8] = b"user.";
pub const TRUSTED: &[u8] = b"trusted.";
pub const SECURITY: &[u8] = b"security.";

/// The capabilities of a program, which go when its owner or content changes.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;

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
