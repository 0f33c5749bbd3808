//! Attributes, and who may see and change them.

use sync::Ordering;
use wholly_vfs::Stat;
use wholly_vfs::rules::acl;
use wholly_vfs::rules::attributes::Asked;
use wholly_vfs::rules::permit::{WRITE, Who, check_access};
use wholly_vfs::rules::set_id::privileges;
use wholly_vfs::rules::xattr::CAPABILITY;
use wholly_vfs::{Access, Attr, Context, Errno, FileType, Ino, Mode, Result, SetAttr, SetTime, Timestamp};

use super::explicit::What;
use super::group::Need;
use super::table::{Inode, State};
use super::{Core, DIRECTORY, LARGEST_FILE, PERMISSIONS, REGULAR, TYPE};
use crate::engine::{Fields, Kind};
use crate::format::BLOCK;
use crate::format::inode::Time;

/// Whether no permission stops the calls of a context.
pub fn is_superuser(ctx: &Context) -> bool {
    ctx.uid == 0 || ctx.is_permitted
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { sec: time.sec, nsec: time.nsec }
}

impl State {
    /// Whether an access is to be noted: `relatime`.
    #[inline]
    pub fn is_accessed_late(&self) -> bool {
        let times = &self.record.times;
        times.atime <= times.mtime || times.atime <= times.ctime
    }

    /// For the rules.
    pub fn stat(&self) -> Stat {
        let owned = &self.record.owned;
        Stat { mode: owned.mode, uid: owned.uid, gid: owned.gid, ..Stat::default() }
    }
}

impl Core {
    /// The attributes of an inode.
    pub fn attr(&self, inode: &Inode) -> Result<Attr> {
        let state = inode.state.read().unwrap();
        if inode.kind != DIRECTORY {
            return Ok(attr_of(inode, &state, state.record.owned.links.into()));
        }
        if let Some(subdirs) = state.subdirs {
            return Ok(attr_of(inode, &state, dir_links(&state, subdirs)));
        }
        drop(state);
        let mut state = inode.state.write().unwrap();
        let subdirs = self.subdirs(inode, &mut state)?;
        Ok(attr_of(inode, &state, dir_links(&state, subdirs)))
    }

    /// Whether the permissions of an inode allow all of `wanted`.
    pub fn permits(&self, ctx: &Context, inode: &Inode, state: &State, wanted: u32) -> Result<bool> {
        if is_superuser(ctx) {
            return Ok(true);
        }
        let who = Who::of(ctx);
        Ok(match self.acl(inode, state, acl::ACCESS)? {
            Some(acl) => acl.allows(&state.stat(), who.uid(), |group| who.is_in(group), wanted),
            None => who.may(&state.stat(), wanted),
        })
    }

    pub fn check_access(&self, ctx: &Context, inode: &Inode, access: Access) -> Result<()> {
        let state = inode.state.read().unwrap();
        check_access(access, state.record.owned.mode, |wanted| self.permits(ctx, inode, &state, wanted))
    }

    /// `by_handle`: the file is open for writing.
    pub fn set_attributes(&self, ctx: &Context, inode: &Inode, by_handle: bool, change: &SetAttr) -> Result<()> {
        let mut state = inode.state.write().unwrap();
        state.check_free(inode, None, What::Itself)?;
        if let Some(size) = change.size {
            self.check_size(ctx, inode, &state, by_handle, size)?;
        }
        let fields = self.wish(ctx, inode, &state, change)?;
        if let Some(fields) = fields {
            let now = fields.times.map(|times| times.ctime);
            let drops = change.uid.is_some() || change.gid.is_some();
            if drops && inode.kind != DIRECTORY {
                self.remove_capabilities(inode, &mut state)?;
            }
            if let Some(mode) = fields.mode
                && let Some(list) = self.acl(inode, &state, acl::ACCESS)?
            {
                self.set_list(inode, &mut state, acl::ACCESS, Some(list.with_mode(mode)), fields)?;
            } else {
                self.set_fields(inode, &mut state, &fields)?;
            }
            if let (Some(now), Some((_, mut changes))) = (now, inode.changes()) {
                changes.has_set([change.atime, change.mtime].map(|time| matches!(time, SetTime::At(_))), now);
            }
        }
        if let Some(size) = change.size {
            self.drop_privileges(ctx, inode, &mut state)?;
            self.cut(inode, &mut state, size)?;
        }
        Ok(())
    }

    fn check_size(&self, ctx: &Context, inode: &Inode, state: &State, by_handle: bool, size: u64) -> Result<()> {
        if i64::try_from(size).is_err() {
            return Err(Errno::INVAL);
        }
        match inode.kind {
            REGULAR => {}
            DIRECTORY => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        if !by_handle {
            self.check_permits(ctx, inode, state, WRITE)?;
        }
        if size > LARGEST_FILE { Err(Errno::FBIG) } else { Ok(()) }
    }

    /// Checks a change but for its size. `None`: it asks for nothing.
    fn wish(&self, ctx: &Context, inode: &Inode, state: &State, change: &SetAttr) -> Result<Option<Fields>> {
        let now = self.now();
        let time = |time: SetTime| match time {
            SetTime::Omit => Ok(None),
            SetTime::Now => Ok(Some(now)),
            SetTime::At(Timestamp { nsec, .. }) if nsec >= 1_000_000_000 => Err(Errno::INVAL),
            SetTime::At(Timestamp { sec, nsec }) => Ok(Some(Time { sec, nsec })),
        };
        let (atime, mtime) = (time(change.atime)?, time(change.mtime)?);
        let asked = Asked {
            mode: change.mode.map(|mode| mode.as_raw_mode() & PERMISSIONS),
            uid: change.uid,
            gid: change.gid,
            times: atime.or(mtime).map(|_| (change.atime, change.mtime) == (SetTime::Now, SetTime::Now)),
            chown: false,
        };
        if asked.mode.is_none() && !asked.drops_privileges() && asked.times.is_none() {
            return Ok(None);
        }
        let (who, stat) = (Who::of(ctx), state.stat());
        asked.check(&who, &stat, || self.check_permits(ctx, inode, state, WRITE))?;
        let mut times = state.record.times;
        times.atime = atime.unwrap_or(times.atime);
        times.mtime = mtime.unwrap_or(times.mtime);
        times.ctime = now;
        Ok(Some(Fields {
            mode: asked.mode(&who, &stat).map(|mode| stat.mode & TYPE | mode),
            uid: change.uid,
            gid: change.gid,
            times: Some(times),
            ..Fields::default()
        }))
    }

    /// The content of a file is about to change: it loses what lets it run with other rights.
    pub fn drop_privileges(&self, ctx: &Context, inode: &Inode, state: &mut State) -> Result<()> {
        self.remove_capabilities(inode, state)?;
        if state.record.owned.mode & 0o6000 == 0 || is_superuser(ctx) {
            return Ok(());
        }
        let Some(mode) = privileges(&state.stat(), &Who::of(ctx)) else { return Ok(()) };
        let fields = Fields { mode: Some(state.record.owned.mode & TYPE | mode), ..Fields::default() };
        self.set_fields(inode, state, &fields)
    }

    fn remove_capabilities(&self, inode: &Inode, state: &mut State) -> Result<()> {
        if state.record.more.xattr_bytes == 0 {
            return Ok(());
        }
        let mut xattrs = self.load_xattrs(inode, state)?;
        let before = xattrs.len();
        xattrs.retain(|(name, _)| name != CAPABILITY);
        if xattrs.len() == before {
            return Ok(());
        }
        self.store_xattrs(inode, state, &xattrs, Fields::default(), Need::Vital)
    }

    /// A file or directory was read: its time of access is renewed, as `relatime` has it.
    pub fn has_read(&self, inode: &Inode) -> Result<()> {
        if !inode.state.read().unwrap().is_accessed_late() || self.keeps_access_times.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut state = inode.state.write().unwrap();
        // What a group has alone, nobody else changes anything of.
        if !state.is_accessed_late() || state.is_claimed() {
            return Ok(());
        }
        let now = self.now();
        let mut group = match self.begin(inode, Kind::Implicit, 0, Need::Vital) {
            Ok(group) => group,
            // A read does not fail because its time cannot be stored, also on a volume that has failed.
            Err(wholly_error::Error::NoSpace(_) | wholly_error::Error::Poisoned(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.touch(&mut group, inode, &mut state, |times| times.atime = now)?;
        Ok(self.unawaited(|| group.commit())?)
    }

    /// Stores the times of a file that a sync of its data kept back: they are in memory alone, until something else
    /// changes the inode. That is so for a file that is open, or that a running group has; the end of that group asks
    /// once more.
    ///
    /// # Errors
    /// The medium's: the volume has failed then.
    pub fn store_times(&self, inode: &Inode) -> wholly_error::Result<()> {
        if !inode.keeps_times.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut state = inode.state.write().unwrap();
        if state.is_claimed() || !inode.keeps_times.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut group = self.begin(inode, Kind::Implicit, 0, Need::Vital)?;
        let fields = Fields { times: Some(state.record.times), ..Fields::default() };
        self.assign(&mut group, inode, &mut state, &fields)?;
        group.commit()
    }
}

fn dir_links(state: &State, subdirs: u64) -> u64 {
    if state.record.owned.links == 0 { 0 } else { 2 + subdirs }
}

fn attr_of(inode: &Inode, state: &State, nlink: u64) -> Attr {
    let record = &state.record;
    let blocks = record.owned.tree.blocks + record.more.xattrs.blocks;
    let per_block = BLOCK as u64 / 512;
    Attr {
        ino: Ino(inode.id.ino),
        kind: FileType::from_raw_mode(record.owned.mode),
        mode: Mode::from_raw_mode(record.owned.mode & PERMISSIONS),
        nlink,
        uid: record.owned.uid,
        gid: record.owned.gid,
        rdev: record.more.rdev,
        size: if inode.kind == DIRECTORY { record.owned.tree.blocks.max(1) * BLOCK as u64 } else { record.owned.size },
        blocks: blocks * per_block,
        blksize: BLOCK as u32,
        atime: timestamp(record.times.atime),
        mtime: timestamp(record.times.mtime),
        ctime: timestamp(record.times.ctime),
    }
}
