//! Calls as somebody else: credentials belong to a thread in Linux, and so does the umask of a thread that asks for one
//! of its own.

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use wholly_vfs::{Context, Errno, Result};

/// While it lives, this thread's calls are those of a context's user. Credentials come back when it is dropped, also by
/// a panic.
pub(super) struct Acting {
    /// The group of users of the process and its other ones, where they are to come back.
    before: Option<(Gid, Vec<Gid>)>,
}

impl Acting {
    /// # Errors
    /// `EPERM` where the process may not act as that user.
    pub fn new(ctx: &Context) -> Result<Acting> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid != 0 {
            return if uid == ctx.uid { Ok(Acting { before: None }) } else { Err(Errno::PERM) };
        }
        if (ctx.uid, ctx.gid) == (uid, gid) && ctx.groups.is_empty() {
            return Ok(Acting { before: None });
        }
        let acting = Acting { before: Some((Gid::from_raw(gid), rustix::process::getgroups()?)) };
        let groups: Vec<Gid> = ctx.groups.iter().map(|&group| Gid::from_raw(group)).collect();
        set_thread_groups(&groups)?;
        // The saved ids stay, by which it comes back. The kernel takes the effective capabilities away with user 0, and
        // gives them back with it.
        set_thread_res_gid(None, Gid::from_raw(ctx.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(ctx.uid), None)?;
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if let Some((gid, groups)) = &self.before {
            let restored = set_thread_res_uid(None, Uid::ROOT, None)
                .and_then(|()| set_thread_res_gid(None, *gid, None))
                .and_then(|()| set_thread_groups(groups));
            // Going on as somebody else would make every later verdict worthless.
            restored.expect("who was the superuser can be it again");
        }
    }
}

/// Makes something under the umask of a context. From then on the umask of this thread is its own, as its working
/// directory is: other tests of the process never see this one.
pub(super) fn with_umask<T>(ctx: &Context, make: impl FnOnce() -> Result<T>) -> Result<T> {
    unshare(CloneFlags::CLONE_FS).map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    let before = rustix::process::umask(ctx.umask);
    let made = make();
    rustix::process::umask(before);
    made
}
