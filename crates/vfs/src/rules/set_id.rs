//! When set-user-id and set-group-id go.

use crate::Stat;

use super::permit::Who;
use super::{DIRECTORY, PERMISSIONS, TYPE};

pub const SET_USER_ID: u32 = 0o4000;
pub const SET_GROUP_ID: u32 = 0o2000;
pub const GROUP_EXECUTES: u32 = 0o10;

/// Whether `who` may set set-group-id on an object of the group `gid`.
pub fn may_set_group_id(who: &Who, gid: u32) -> bool {
    who.is_superuser() || who.is_in(gid)
}

/// The permission bits of an object that gets another owner or other content.
pub fn without_set_id(mode: u32, gid: u32, who: &Who) -> u32 {
    let mode = mode & !SET_USER_ID;
    let keeps = mode & GROUP_EXECUTES == 0 && may_set_group_id(who, gid);
    if keeps { mode } else { mode & !SET_GROUP_ID }
}

/// The permission bits that are left when `who` changes the content of a file, if they are others.
pub fn privileges(stat: &Stat, who: &Who) -> Option<u32> {
    let mode = stat.mode & PERMISSIONS;
    let left = if who.is_superuser() { mode } else { without_set_id(mode, stat.gid, who) };
    (left != mode).then_some(left)
}

/// Mode and group of what `who` makes in a directory, asked for with these: a directory that has the bit for it hands
/// down its group.
pub fn in_directory(who: &Who, dir: &Stat, mode: u32, gid: u32) -> (u32, u32) {
    let runs = mode & (SET_GROUP_ID | GROUP_EXECUTES) == SET_GROUP_ID | GROUP_EXECUTES;
    match mode & TYPE {
        _ if dir.mode & SET_GROUP_ID == 0 => (mode, gid),
        DIRECTORY => (mode | SET_GROUP_ID, dir.gid),
        _ if runs && !may_set_group_id(who, dir.gid) => (mode & !SET_GROUP_ID, dir.gid),
        _ => (mode, dir.gid),
    }
}
