//! Who may begin a group. The kernel checks nothing before a request of `ioctl`, so this is decided here, by what the
//! calling thread is at that moment: not by how its descriptor was opened, since that may have come from anybody.

use wholly_vfs::Stat;
use wholly_vfs::rules::acl::{self, Acl};
use wholly_vfs::rules::permit;
use wholly_vfs::{Attr, Context, Errno, Ino, Result, Vfs};

/// `CAP_DAC_OVERRIDE`, whom no permissions stop, as a bit of a set of capabilities.
const DAC_OVERRIDE: u64 = 1 << 1;

/// The credentials of a thread that waits for an answer, and so keeps them meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Caller {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    /// Whether no permissions stop it.
    overrides: bool,
}

impl Caller {
    /// The kernel names the thread, and the user and group with which it accesses files.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the kernel does not say which thread that is.
    pub fn of(thread: u32, user: u32, group: u32) -> Result<Caller> {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).map_err(|_| Errno::OPNOTSUPP)?;
        let caller = Caller::told(&status, user, group).ok_or(Errno::OPNOTSUPP)?;
        let overrides = caller.overrides && has_capabilities_here(thread, user);
        Ok(Caller { overrides, ..caller })
    }

    /// By what `/proc` tells of a thread.
    fn told(status: &str, user: u32, group: u32) -> Option<Caller> {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let groups = line("Groups:")?.split_whitespace().map(|group| group.parse().ok()).collect::<Option<_>>()?;
        let capabilities = u64::from_str_radix(line("CapEff:")?, 16).ok()?;
        Some(Caller { user, group, groups, overrides: capabilities & DAC_OVERRIDE != 0 })
    }

    /// Whether it may write to an object.
    ///
    /// # Errors
    /// `EACCES` if it may not; those of the calls that tell.
    pub fn check_write(&self, vfs: &dyn Vfs, ino: Ino) -> Result<()> {
        if self.overrides {
            return Ok(());
        }
        let ctx = Context::superuser();
        let attr = vfs.getattr(&ctx, ino)?;
        let list = match vfs.getxattr(&ctx, ino, acl::ACCESS) {
            Ok(value) => Acl::read(&value)?,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
            Err(error) => return Err(error),
        };
        if self.may_write(&attr, list.as_ref()) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    fn may_write(&self, attr: &Attr, list: Option<&Acl>) -> bool {
        let mode = attr.mode.as_raw_mode();
        let stat = Stat { uid: attr.uid, gid: attr.gid, mode, ..Stat::default() };
        let is_member = |group| self.group == group || self.groups.contains(&group);
        match list {
            Some(list) => list.allows(&stat, self.user, is_member, permit::WRITE),
            None => permit::allows(&stat, self.user, is_member, permit::WRITE),
        }
    }
}

/// Whether a thread has its capabilities where this process serves, and not only in a user namespace of its own, in
/// which everybody can have all of them. A namespace at which this process may not look is another user's: there only
/// what is the superuser here counts, since nobody but the superuser can give that number to a namespace.
fn has_capabilities_here(thread: u32, user: u32) -> bool {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user"));
    match (namespace("self"), namespace(&thread.to_string())) {
        (Ok(own), Ok(its)) => own == its,
        _ => user == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wholly_vfs::{FileType, Mode, Timestamp};

    const ROOT: &str = "Name:\ta\nUid:\t0\t0\t0\t0\nGroups:\t \nCapEff:\t000001ffffffffff\n";
    const BARE: &str = "Name:\tb\nGroups:\t4 24 100 \nCapEff:\t0000000000000000\n";

    fn of(user: u32, group: u32, mode: u32) -> Attr {
        let at = Timestamp::default();
        let (kind, mode) = (FileType::Directory, Mode::from_raw_mode(mode));
        let (ino, nlink, rdev, size, blocks, blksize) = (Ino::ROOT, 2, 0, 0, 0, 4096);
        Attr {
            ino,
            kind,
            mode,
            nlink,
            uid: user,
            gid: group,
            rdev,
            size,
            blocks,
            blksize,
            atime: at,
            mtime: at,
            ctime: at,
        }
    }

    #[test]
    fn what_the_kernel_tells_of_a_thread() {
        let root = Caller::told(ROOT, 0, 0).unwrap();
        assert_eq!(root, Caller { user: 0, group: 0, groups: vec![], overrides: true });
        let bare = Caller::told(BARE, 7, 8).unwrap();
        assert_eq!(bare, Caller { user: 7, group: 8, groups: vec![4, 24, 100], overrides: false });
        assert_eq!(Caller::told("Groups:\t4\n", 7, 8), None);
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(Caller::of(me, 7, 8).unwrap().user, 7);
        assert_eq!(Caller::of(0, 7, 8), Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn who_may_write_to_the_root_directory() {
        let may =
            |status: &str, user, group, attr: Attr| Caller::told(status, user, group).unwrap().may_write(&attr, None);
        // The superuser without his capability is a user like others.
        assert!(may(BARE, 0, 0, of(0, 0, 0o755)) && !may(BARE, 0, 0, of(1, 1, 0o755)));
        assert!(may(BARE, 7, 8, of(7, 0, 0o700)) && !may(BARE, 7, 8, of(7, 8, 0o577)), "the owner's bits alone");
        assert!(may(BARE, 7, 8, of(0, 8, 0o775)) && !may(BARE, 7, 8, of(0, 9, 0o775)), "the first group");
        assert!(may(BARE, 7, 8, of(0, 24, 0o775)) && !may(BARE, 7, 8, of(0, 24, 0o757)), "another group");
        assert!(may(BARE, 7, 8, of(0, 0, 0o1777)) && !may(BARE, 7, 8, of(0, 0, 0o755)), "others");
    }
}
