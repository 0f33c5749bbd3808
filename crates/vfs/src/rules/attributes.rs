//! Who may change mode, owner and times, in the order of `fs/attr.c`, and what the mode is then.

use crate::Stat;
use rustix::io::Errno;

use super::permit::Who;
use super::set_id::{SET_GROUP_ID, may_set_group_id, without_set_id};
use super::{DIRECTORY, PERMISSIONS, SYMLINK, TYPE};

/// What a call asks for.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    /// Permission bits.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Times are set: whether both to that of the call, which whoever may write may do, too.
    pub times: Option<bool>,
    /// It is a call of chown(2), which takes set-id bits and capabilities also where it gives no new owner.
    pub chown: bool,
}

impl Asked {
    /// Whether it costs a file its privileges.
    pub fn drops_privileges(&self) -> bool {
        self.chown || self.uid.is_some() || self.gid.is_some()
    }

    /// Whether `who` may have it of what looks like `stat`. `may_write` checks the permission to write.
    pub fn check(&self, who: &Who, stat: &Stat, may_write: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let owns = who.owns(stat);
        let gives = |uid: u32| who.is_superuser() || (owns && uid == stat.uid);
        let shares = |gid: u32| who.is_superuser() || (owns && (gid == stat.gid || who.is_in(gid)));
        if !self.uid.is_none_or(gives) || !self.gid.is_none_or(shares) {
            return Err(Errno::PERM);
        }
        match self.mode {
            Some(_) if stat.mode & TYPE == SYMLINK => return Err(Errno::OPNOTSUPP),
            Some(_) if !owns => return Err(Errno::PERM),
            _ => {}
        }
        match self.times.filter(|_| !owns) {
            Some(false) => Err(Errno::PERM),
            Some(true) => may_write(),
            None => Ok(()),
        }
    }

    /// The permission bits that are set: those asked for, or others that are left.
    pub fn mode(&self, who: &Who, stat: &Stat) -> Option<u32> {
        let before = stat.mode & PERMISSIONS;
        let mut mode = self.mode.unwrap_or(before);
        if self.drops_privileges() && !matches!(stat.mode & TYPE, DIRECTORY | SYMLINK) {
            mode = without_set_id(mode, stat.gid, who);
        }
        if self.mode.is_some() && !may_set_group_id(who, self.gid.unwrap_or(stat.gid)) {
            mode &= !SET_GROUP_ID;
        }
        Some(mode).filter(|mode| self.mode.is_some() || *mode != before)
    }
}
