//! Finding names, giving them, and taking them away.

use wholly_changes::records::Birth;
use wholly_changes::{Kind, ROOT};
use wholly_vfs::{Attr, Context, FileType, GroupId, Ino, Mode, Rename, Stat};

use super::inodes::Kept;
use super::{Errno, Result, StoreVfs};
use crate::error::Error;
use crate::hostdir::handle::File;
use crate::hostdir::names::{DIRECTORY, Found, OWN_FOLDER, SYMLINK, TRIES, TYPE};
use crate::hostdir::running::{At, Running};
use sync::Ordering;
use wholly_vfs::rules::names::{WHITEOUT, check_name, check_node, check_target};
use wholly_vfs::rules::permit::{SEARCH, Who};

/// What has the name of the store's folder in a group's view has this one in the group ([`StoreVfs::leave_out`]).
const LEFT_OUT: &[u8] = b".wholly.left-out";

/// A name that a call may be about.
pub(in crate::hostdir) fn single(dir: u64, name: &[u8]) -> Result<()> {
    check_name(name)?;
    // Nobody sees it, and nobody may make it.
    if dir == ROOT && name == OWN_FOLDER { Err(Errno::PERM) } else { Ok(()) }
}

impl StoreVfs {
    /// A name that a call may be about, as it is in the store.
    pub(super) fn single<'n>(&self, dir: u64, name: &'n [u8]) -> Result<&'n [u8]> {
        let leaves_out = dir == ROOT && self.leaves_out.load(Ordering::Relaxed) != 0;
        match name {
            OWN_FOLDER if leaves_out => Ok(LEFT_OUT),
            LEFT_OUT if leaves_out => Err(Errno::PERM),
            _ => single(dir, name).map(|()| name),
        }
    }

    /// The same as it is in the view.
    pub(super) fn shown<'n>(&self, dir: u64, name: &'n [u8]) -> &'n [u8] {
        let is_it = dir == ROOT && name == LEFT_OUT && self.leaves_out.load(Ordering::Relaxed) != 0;
        if is_it { OWN_FOLDER } else { name }
    }

    /// From here on, whatever has the name of the store's folder in the view of a group is data like any other, and
    /// [left out](Self::remove_left_out) in the end. Only where one group at a time is in the view.
    ///
    /// # Errors
    /// Those of a look at the directory.
    pub fn leave_out(&self) -> crate::Result<()> {
        self.used_by_name(|| {
            let running = Running::looking(self.store.clone());
            // It stays forbidden where somebody has something of the other name.
            let is_free = running.look_up(ROOT, LEFT_OUT)?.is_none();
            self.leaves_out.store(is_free.into(), Ordering::Relaxed);
            Ok(())
        })
    }

    /// Removes what a group has made under the name of the store's folder. Gives whether there was anything.
    ///
    /// # Errors
    /// [`Error::Refused`] if something was moved there that was in the directory before: it would be lost. Nothing has
    /// changed then. [`Error::Invalid`] if there is no such running group.
    pub fn remove_left_out(&self, group: GroupId) -> crate::Result<bool> {
        if self.leaves_out.load(Ordering::Relaxed) == 0 {
            return Ok(false);
        }
        self.change_group(group, |running| {
            let Some(root) = running.look_up(ROOT, LEFT_OUT)? else { return Ok(false) };
            // Each before what is in it.
            let mut all = vec![(ROOT, LEFT_OUT.to_vec(), root)];
            let mut at = 0;
            while let Some((_, _, found)) = all.get(at) {
                let dir = found.id;
                if !running.is_made(dir) {
                    let path = [OWN_FOLDER, b"/", &all[at].1[..]].concat();
                    let path = String::from_utf8_lossy(if at == 0 { OWN_FOLDER } else { &path }).into_owned();
                    return Err(Error::Refused(path, Errno::PERM));
                }
                if found.kind == Kind::Directory {
                    for entry in running.list_of(dir)? {
                        let inside = running.look_up(dir, &entry.name)?;
                        all.extend(inside.map(|inside| (dir, entry.name, inside)));
                    }
                }
                at += 1;
            }
            for (dir, name, found) in all.iter().rev() {
                match found.kind {
                    Kind::Directory => running.rmdir(At::In(*dir, name))?,
                    _ => running.unlink(At::In(*dir, name))?,
                }
            }
            Ok(true)
        })
    }

    /// That this is a directory which the user may search.
    pub(super) fn check_search(&self, ctx: &Context, running: &Running, dir: u64) -> Result<()> {
        if running.object(dir)?.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        match self.permits(ctx, running, dir, SEARCH)? {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }

    pub(super) fn find(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr> {
        let dir = self.inodes.id(dir)?;
        self.look(ctx, |running| {
            let _glancing = running.glancing();
            self.check_search(ctx, running, dir)?;
            match name {
                b"." => return self.refer(running, dir),
                b".." => {
                    let above = running.above(dir).ok_or(Errno::NOENT)?;
                    return self.refer(running, above);
                }
                _ => {}
            }
            let name = match self.single(dir, name) {
                Err(Errno::PERM) => return Err(Errno::NOENT),
                name => name?,
            };
            for _ in 0..TRIES {
                let found = running.look_up(dir, name)?.ok_or(Errno::NOENT)?;
                match self.refer(running, found.id) {
                    Err(Errno::NOENT) => {}
                    attr => return attr,
                }
            }
            Err(Errno::BUSY)
        })
    }

    /// One reference to an object, and what is known of it.
    fn refer(&self, running: &Running, id: u64) -> Result<Attr> {
        let ino = self.inodes.refer(&self.store, id).ok_or(Errno::STALE)?;
        let attr = self.attr(running, ino, id);
        if attr.is_err() {
            drop(self.inodes.forget(&self.store, ino, 1));
        }
        attr
    }

    /// How something is born in a directory, on a user's behalf.
    pub(super) fn birth(&self, ctx: &Context, running: &Running, dir: u64, mode: u32) -> Result<Birth> {
        self.check_search(ctx, running, dir)?;
        let now = self.store.host.now_ns();
        let masked = mode & TYPE != SYMLINK && !running.has_default_list(dir)?;
        let mode = if masked { mode & !ctx.umask.as_raw_mode() } else { mode };
        let (uid, gid, target) = (ctx.uid, ctx.gid, Vec::new());
        Ok(Birth { mode, uid, gid, rdev: 0, btime_ns: now, atime_ns: now, mtime_ns: now, target })
    }

    /// Makes an object. One reference.
    fn make(&self, ctx: &Context, dir: Ino, name: &[u8], mode: u32, more: impl FnOnce(&mut Birth)) -> Result<Attr> {
        let dir = self.inodes.id(dir)?;
        self.change(ctx, |running| {
            let mut birth = self.birth(ctx, running, dir, mode)?;
            let name = self.single(dir, name)?;
            more(&mut birth);
            let id = running.bear(At::In(dir, name), birth)?;
            self.refer(running, id)
        })
    }

    pub(super) fn make_node(
        &self,
        ctx: &Context,
        dir: Ino,
        name: &[u8],
        kind: FileType,
        mode: Mode,
        rdev: u64,
    ) -> Result<Attr> {
        let rdev = check_node(&Who::of(ctx), kind, rdev)?;
        let mode = kind.as_raw_mode() | mode.as_raw_mode() & 0o7777;
        self.make(ctx, dir, name, mode, |birth| birth.rdev = rdev)
    }

    pub(super) fn make_directory(&self, ctx: &Context, dir: Ino, name: &[u8], mode: Mode) -> Result<Attr> {
        self.make(ctx, dir, name, DIRECTORY | mode.as_raw_mode() & 0o1777, |_| ())
    }

    pub(super) fn make_link(&self, ctx: &Context, dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
        check_target(target)?;
        self.make(ctx, dir, name, SYMLINK | 0o777, |birth| birth.target = target.to_vec())
    }

    pub(super) fn name(&self, ctx: &Context, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        let (id, dir) = (self.inodes.id(ino)?, self.inodes.id(dir)?);
        self.change(ctx, |running| {
            self.check_search(ctx, running, dir)?;
            let name = self.single(dir, name)?;
            running.link_object(id, At::In(dir, name))?;
            self.refer(running, id)
        })
    }

    pub(super) fn take_name(&self, ctx: &Context, dir: Ino, name: &[u8], is_dir: bool) -> Result<()> {
        let dir = self.inodes.id(dir)?;
        let mut lost = None;
        self.change(ctx, |running| {
            self.check_search(ctx, running, dir)?;
            let name = self.single(dir, name)?;
            let found = running.look_up(dir, name)?.ok_or(Errno::NOENT)?;
            lost = self.before_loss(running, &found)?;
            match is_dir {
                true => Ok(running.rmdir(At::In(dir, name))?),
                false => Ok(running.unlink(At::In(dir, name))?),
            }
        })?;
        self.after_loss(lost);
        Ok(())
    }

    pub(super) fn move_name(
        &self,
        ctx: &Context,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        how: Rename,
    ) -> Result<()> {
        let (how, leaves) = how.parts();
        let (from, to) = (self.inodes.id(from)?, self.inodes.id(to)?);
        let mut lost = None;
        self.change(ctx, |running| {
            self.check_search(ctx, running, from)?;
            self.check_search(ctx, running, to)?;
            let (name, new_name) = (self.single(from, name)?, self.single(to, new_name)?);
            let replaced = if how == Rename::Replace { running.look_up(to, new_name)? } else { None };
            let moved = running.look_up(from, name)?;
            let replaced = replaced.filter(|replaced| moved.is_some_and(|moved| moved.id != replaced.id));
            lost = replaced.map(|replaced| self.before_loss(running, &replaced)).transpose()?.flatten();
            let whiteout = leaves.then(|| self.birth(ctx, running, from, WHITEOUT)).transpose()?;
            Ok(running.rename_leaving(At::In(from, name), At::In(to, new_name), how, whiteout)?)
        })?;
        self.after_loss(lost);
        Ok(())
    }

    /// What has to be kept of an object that is about to lose a name: nothing, unless it is the last one and somebody
    /// refers to it. The caller drops it outside of the use (invariant 5).
    fn before_loss(&self, running: &Running, found: &Found) -> Result<Option<(u64, Kept)>> {
        if !self.inodes.is_referred_to(found.id) {
            return Ok(None);
        }
        let stat = running.stat_of(found.id)?;
        if found.kind != Kind::Directory && stat.nlink > 1 {
            return Ok(None);
        }
        let file = match found.kind {
            Kind::Regular => {
                let mut file = running.open_object(found.id, false)?;
                // What is pending of it goes home by a descriptor once it has no name. (But what nobody writes to
                // others may execute.)
                if !file.is_clean() && file.full_home().is_none() {
                    file = running.open_object(found.id, true)?;
                }
                Some(File::of(self.store.clone(), file, b""))
            }
            _ => None,
        };
        let target = if found.kind == Kind::Symlink { running.read_link_of(found.id)? } else { Vec::new() };
        let stat = Stat { nlink: 0, ctime_ns: self.store.host.now_ns(), ..stat };
        Ok(Some((found.id, Kept::new(stat, target, file))))
    }

    /// It has lost the name.
    fn after_loss(&self, lost: Option<(u64, Kept)>) {
        if let Some((id, kept)) = lost {
            drop(self.inodes.keep(id, kept));
        }
    }
}
