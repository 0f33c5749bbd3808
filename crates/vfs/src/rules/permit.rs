//! What who makes a call may do, as the kernel would decide it: asked where a call is made, since its pass comes later
//! and for everybody.

use std::sync::Arc;

use crate::Stat;
use rustix::process::{getegid, geteuid, getgroups};

use super::{DIRECTORY, REGULAR, SYMLINK, TYPE};
use crate::{Access, Context, Errno, OFlags, Result};

/// To read, to write, and to search a directory.
pub const READ: u32 = 4;
pub const WRITE: u32 = 2;
pub const SEARCH: u32 = 1;

pub const STICKY: u32 = 0o1000;

/// Checks an access as access(2) does. `permits` tells whether the permissions of an object with this mode allow all
/// that it is asked for.
pub fn check_access(access: Access, mode: u32, permits: impl FnOnce(u32) -> Result<bool>) -> Result<()> {
    let bits = [(Access::READ_OK, READ), (Access::WRITE_OK, WRITE), (Access::EXEC_OK, SEARCH)];
    let wanted = bits.iter().filter(|(flag, _)| access.contains(*flag)).fold(0, |wanted, (_, bit)| wanted | bit);
    // Not even the superuser executes a file that nobody may execute.
    let executable = mode & 0o111 != 0 || mode & TYPE == DIRECTORY;
    match permits(wanted)? && (wanted & SEARCH == 0 || executable) {
        true => Ok(()),
        false => Err(Errno::ACCESS),
    }
}

/// Checks an open of the content of an object of this type.
pub fn check_open(
    kind: u32,
    flags: OFlags,
    permits: impl FnOnce(u32) -> Result<bool>,
    owns: impl FnOnce() -> Result<bool>,
) -> Result<()> {
    let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
    match kind & TYPE {
        SYMLINK => return Err(Errno::LOOP),
        REGULAR if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
        DIRECTORY if writes => return Err(Errno::ISDIR),
        REGULAR | DIRECTORY => {}
        _ => return Err(Errno::NXIO),
    }
    let reads = !flags.contains(OFlags::WRONLY);
    match permits(if reads { READ } else { 0 } | if writes { WRITE } else { 0 })? {
        false => Err(Errno::ACCESS),
        true if flags.contains(OFlags::NOATIME) && !owns()? => Err(Errno::PERM),
        true if kind & TYPE == DIRECTORY => Err(Errno::ISDIR),
        true => Ok(()),
    }
}

/// Whether the permission bits of what looks like `stat` allow all of `wanted` to a user without capabilities, who is
/// in these groups.
pub fn allows(stat: &Stat, uid: u32, is_member: impl Fn(u32) -> bool, wanted: u32) -> bool {
    let bits = match () {
        () if uid == stat.uid => stat.mode >> 6,
        () if is_member(stat.gid) => stat.mode >> 3,
        () => stat.mode,
    };
    bits & wanted == wanted
}

/// Who makes a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// The calling process.
    #[default]
    Process,
    /// Somebody on whose behalf it calls.
    User {
        uid: u32,
        gid: u32,
        /// The other groups of users that the user is in.
        groups: Arc<[u32]>,
    },
}

impl Who {
    /// The user of a context.
    pub fn of(ctx: &Context) -> Who {
        let uid = if ctx.is_permitted { 0 } else { ctx.uid };
        Who::User { uid, gid: ctx.gid, groups: ctx.groups.as_slice().into() }
    }

    pub fn uid(&self) -> u32 {
        match self {
            Who::Process => geteuid().as_raw(),
            Who::User { uid, .. } => *uid,
        }
    }

    /// The group of users that new files get.
    pub fn gid(&self) -> u32 {
        match self {
            Who::Process => getegid().as_raw(),
            Who::User { gid, .. } => *gid,
        }
    }

    /// Whom no permission bits stop.
    pub fn is_superuser(&self) -> bool {
        self.uid() == 0
    }

    /// Whether the user is in a group of users.
    pub fn is_in(&self, group: u32) -> bool {
        self.gid() == group
            || match self {
                Who::Process => getgroups().is_ok_and(|groups| groups.iter().any(|other| other.as_raw() == group)),
                Who::User { groups, .. } => groups.contains(&group),
            }
    }

    /// Whether the permission bits of what looks like `stat` allow all of `wanted`.
    pub fn may(&self, stat: &Stat, wanted: u32) -> bool {
        if self.is_superuser() {
            return true;
        }
        allows(stat, self.uid(), |group| self.is_in(group), wanted)
    }

    /// Whether the user may do what only the owner may.
    pub fn owns(&self, stat: &Stat) -> bool {
        self.is_superuser() || self.uid() == stat.uid
    }

    /// Whether a sticky directory keeps the user from taking the name of `victim` away.
    pub fn is_kept_from(&self, dir: &Stat, victim: &Stat) -> bool {
        let me = self.uid();
        dir.mode & STICKY != 0 && !self.is_superuser() && me != dir.uid && me != victim.uid
    }
}
