//! Attributes, and who may see and change them.

use wholly_changes::Kind;
use wholly_vfs::Stat;

use super::open::{Open, OpenFile};
use super::{StoreVfs, file_type};
use crate::error::Error;
use crate::hostdir::running::{At, Running, Wish};
use sync::Ordering;
use wholly_vfs::rules::permit::{WRITE, Who, check_access};
use wholly_vfs::{Access, Attr, Context, Errno, Handle, Ino, Mode, Result, SetAttr, SetTime, SetXattr, Timestamp};

/// The times that records can tell.
const EARLIEST_NS: i64 = i64::MIN + 1;
const LATEST_NS: i64 = i64::MAX;

/// Bytes of a block, as programs are told.
const BLOCK: u64 = 4096;

fn timestamp(ns: i64) -> Timestamp {
    let second = 1_000_000_000;
    Timestamp { sec: ns.div_euclid(second), nsec: ns.rem_euclid(second) as u32 }
}

impl StoreVfs {
    /// What is known of an object, as everybody or a group sees it.
    pub(super) fn attr(&self, running: &Running, ino: Ino, id: u64) -> Result<Attr> {
        let stat = self.stat(running, id)?;
        Ok(Attr {
            ino,
            kind: file_type(Kind::of(stat.mode), stat.mode),
            mode: Mode::from_raw_mode(stat.mode & 0o7777),
            nlink: stat.nlink.into(),
            uid: stat.uid,
            gid: stat.gid,
            rdev: stat.rdev,
            size: stat.size,
            blocks: stat.allocated.div_ceil(512),
            blksize: BLOCK as u32,
            atime: timestamp(stat.atime_ns),
            mtime: timestamp(stat.mtime_ns),
            ctime: timestamp(stat.ctime_ns),
        })
    }

    /// What is known of an object; of one that nobody can ask the host for any more, what was kept.
    pub(super) fn stat(&self, running: &Running, id: u64) -> Result<Stat> {
        match running.stat_of(id) {
            Err(error @ Error::NotFound(_)) => self.inodes.kept(id, |kept| kept.stat).ok_or_else(|| error.into()),
            stat => Ok(stat?),
        }
    }

    /// Whether the permissions of an object allow all of `wanted`.
    pub(super) fn permits(&self, ctx: &Context, running: &Running, id: u64, wanted: u32) -> Result<bool> {
        let who = Who::of(ctx);
        Ok(who.is_superuser() || running.allows(&who, &running.object(id)?, &self.stat(running, id)?, wanted))
    }

    pub(super) fn check_access(&self, ctx: &Context, ino: Ino, access: Access) -> Result<()> {
        let id = self.inodes.id(ino)?;
        self.look(ctx, |running| {
            let mode = self.stat(running, id)?.mode;
            check_access(access, mode, |wanted| self.permits(ctx, running, id, wanted))
        })
    }

    pub(super) fn set_attributes(
        &self,
        ctx: &Context,
        ino: Ino,
        handle: Option<&Handle>,
        change: &SetAttr,
    ) -> Result<Attr> {
        let id = self.inodes.id(ino)?;
        let open = handle.map(|handle| self.handles.get::<Open>(handle)).transpose()?;
        let file = open.map(|open| open.file()).transpose()?;
        if let Some(size) = change.size {
            self.check_size(ctx, id, file, size)?;
        }
        let wish = self.wish(change)?;
        if wish.is_any() {
            self.change(ctx, |running| Ok(running.set_attributes(At::Object(id), wish)?))?;
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(size) = change.size {
            self.drop_privileges(ctx, id)?;
            self.cut(ctx, id, size)?;
        }
        self.look(ctx, |running| self.attr(running, ino, id))
    }

    fn check_size(&self, ctx: &Context, id: u64, file: Option<&OpenFile>, size: u64) -> Result<()> {
        if i64::try_from(size).is_err() {
            return Err(Errno::INVAL);
        }
        self.look(ctx, |running| {
            match running.object(id)?.kind {
                Kind::Regular => {}
                Kind::Directory => return Err(Errno::ISDIR),
                _ => return Err(Errno::INVAL),
            }
            match file {
                Some(file) if file.id != id || !file.writes() => Err(Errno::INVAL),
                None if !self.permits(ctx, running, id, WRITE)? => Err(Errno::ACCESS),
                _ if size > self.store.longest(size) => Err(Errno::FBIG),
                _ => Ok(()),
            }
        })
    }

    /// What of a change is not the size.
    fn wish(&self, change: &SetAttr) -> Result<Wish> {
        let now = self.store.host.now_ns();
        let ns = |time: SetTime| match time {
            SetTime::Omit => Ok(None),
            SetTime::Now => Ok(Some(now)),
            SetTime::At(Timestamp { nsec, .. }) if nsec >= 1_000_000_000 => Err(Errno::INVAL),
            SetTime::At(Timestamp { sec, nsec }) => {
                // Beyond 2262 and before 1677 no record reaches.
                let ns = sec.saturating_mul(1_000_000_000).saturating_add(i64::from(nsec));
                Ok(Some(ns.clamp(EARLIEST_NS, LATEST_NS)))
            }
        };
        Ok(Wish {
            mode: change.mode.map(|mode| mode.as_raw_mode() & 0o7777),
            uid: change.uid,
            gid: change.gid,
            atime_ns: ns(change.atime)?,
            mtime_ns: ns(change.mtime)?,
            now: (change.atime, change.mtime) == (SetTime::Now, SetTime::Now),
            chown: false,
        })
    }

    /// The content of a file is about to change: see [`Running::drop_privileges`]. Gives whether the file has
    /// privileges.
    pub(super) fn drop_privileges(&self, ctx: &Context, id: u64) -> Result<bool> {
        let who = Who::of(ctx);
        let (any, some_go) = self.look(ctx, |running| Ok(running.has_privileges(id, &who)?))?;
        if some_go {
            self.change(ctx, |running| Ok(running.drop_privileges(At::Object(id))?))?;
        }
        Ok(any)
    }

    pub(super) fn set_xattr(
        &self,
        ctx: &Context,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetXattr,
    ) -> Result<()> {
        let id = self.inodes.id(ino)?;
        self.change(ctx, |running| match value {
            Some(value) => Ok(running.set_xattr(At::Object(id), name, value, how)?),
            None => Ok(running.remove_xattr(At::Object(id), name)?),
        })?;
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    pub(super) fn xattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let id = self.inodes.id(ino)?;
        self.look_as(ctx, |running| running.xattr(At::Object(id), name)?.ok_or(Errno::NODATA))
    }

    pub(super) fn xattrs(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>> {
        let id = self.inodes.id(ino)?;
        let names = self.look_as(ctx, |running| Ok(running.xattrs(At::Object(id))?))?;
        Ok(names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect())
    }
}
