//! Whose numbers a mount speaks of.
//!
//! The kernel takes the numbers of users and groups that a server tells for those of the user namespace to which the
//! mount belongs. One that an ordinary user makes has his own number and that of his first group, and no others. The
//! kernel shows all others as nobody's, and changes nothing of a file of which it does not know *both* whose it is and
//! which group's: it could not write that back. So a file of the user's is shown as his first group's, whatever group
//! it has, which says nothing else of what he may do with it, and so is a file of somebody else's that has one of his
//! groups, by which he may read it. Files of others stay nobody's: they can be read as far as their permissions let
//! him, and not be changed.

use rustix::process::{getegid, geteuid, getgroups};
use wholly_vfs::rules::acl::{Acl, is_acl};
use wholly_vfs::{Attr, Errno};

/// See the head of this module.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Identity {
    /// The mount belongs to the user namespace of its server: all numbers mean the same to both.
    #[default]
    Shared,
    /// It belongs to one that has the server's user and first group alone.
    Alone(User),
}

/// An ordinary user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// His number.
    pub uid: u32,
    /// That of his first group.
    pub gid: u32,
    /// Those of the others.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Of a mount that belongs to a user namespace with the user of this process alone.
    ///
    /// # Errors
    /// Those of `getgroups(2)`.
    pub fn of_process() -> std::io::Result<Identity> {
        let groups = getgroups()?.into_iter().map(|gid| gid.as_raw()).collect();
        Ok(Identity::Alone(User { uid: geteuid().as_raw(), gid: getegid().as_raw(), groups }))
    }

    /// What the kernel is to be told.
    pub(crate) fn shown(&self, attr: &Attr) -> Attr {
        match self {
            Identity::Alone(user) if attr.uid == user.uid || user.groups.contains(&attr.gid) => {
                Attr { gid: user.gid, ..*attr }
            }
            _ => *attr,
        }
    }

    /// The value of an attribute, as the kernel is to be told it. A list that names somebody whom the mount's namespace
    /// does not have cannot be told: the kernel itself would say `EINVAL`, which programs that copy lists take for a
    /// file system without any.
    ///
    /// # Errors
    /// `EOVERFLOW`.
    pub(crate) fn told(&self, name: &[u8], value: Vec<u8>) -> Result<Vec<u8>, Errno> {
        match (self, Acl::read(&value)) {
            (Identity::Alone(user), Ok(Some(acl))) if is_acl(name) && !acl.names_only(user.uid, user.gid) => {
                Err(Errno::OVERFLOW)
            }
            _ => Ok(value),
        }
    }

    /// The groups that a caller is in beside the one that the kernel names.
    pub(crate) fn groups(&self) -> Vec<u32> {
        match self {
            Identity::Shared => Vec::new(),
            Identity::Alone(user) => user.groups.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wholly_vfs::{FileType, Ino, Mode, Timestamp};

    #[test]
    fn groups_that_the_kernel_cannot_know_are_shown_as_the_first() {
        let me = Identity::Alone(User { uid: 1000, gid: 100, groups: vec![100, 27] });
        let of = |uid, gid| {
            let at = Timestamp { sec: 0, nsec: 0 };
            Attr {
                ino: Ino(1),
                kind: FileType::RegularFile,
                mode: Mode::RUSR,
                nlink: 1,
                uid,
                gid,
                rdev: 0,
                size: 0,
                blocks: 0,
                blksize: 4096,
                atime: at,
                mtime: at,
                ctime: at,
            }
        };
        let shown = |uid, gid| {
            let shown = me.shown(&of(uid, gid));
            (shown.uid, shown.gid)
        };
        assert_eq!(shown(1000, 100), (1000, 100));
        assert_eq!(shown(1000, 27), (1000, 100));
        assert_eq!(shown(1000, 4), (1000, 100));
        assert_eq!(shown(0, 27), (0, 100));
        assert_eq!(shown(0, 4), (0, 4));
        assert_eq!(Identity::Shared.shown(&of(0, 27)), of(0, 27));
    }
}
