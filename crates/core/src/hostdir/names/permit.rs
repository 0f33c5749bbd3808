//! What the calling process may do, as the kernel would decide it: asked where a call is made, since its pass comes later and for
//! everybody.

use rustix::process::{getegid, geteuid, getgroups};
use wholly_media::Stat;

/// To read, to write, and to search a directory.
pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const SEARCH: u32 = 1;

const STICKY: u32 = 0o1000;

/// Whether the process is the superuser, whom no permission bits stop.
pub(crate) fn is_superuser() -> bool {
    geteuid().is_root()
}

/// Whether the permission bits of what looks like `stat` allow all of `wanted`.
pub(crate) fn may(stat: &Stat, wanted: u32) -> bool {
    if is_superuser() {
        return true;
    }
    let of_group = || {
        getegid().as_raw() == stat.gid
            || getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == stat.gid))
    };
    let bits = match () {
        () if geteuid().as_raw() == stat.uid => stat.mode >> 6,
        () if of_group() => stat.mode >> 3,
        () => stat.mode,
    };
    bits & wanted == wanted
}

/// Whether a sticky directory keeps the process from taking the name of `victim` away.
pub(crate) fn sticks(dir: &Stat, victim: &Stat) -> bool {
    let me = geteuid().as_raw();
    dir.mode & STICKY != 0 && !is_superuser() && me != dir.uid && me != victim.uid
}
