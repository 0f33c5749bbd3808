//! A store by inode and handle: the trait [`Vfs`] over it.
//!
//! # Terms
//!
//! - *reference*: see [`Vfs`]. An object that somebody refers to is *pinned*: it stays in the store's table of objects,
//!   so that its id, and the number that stands for it, go on meaning it.
//! - *kept*: what is left here of an object that lost its last name while somebody refers to it: the host may give its
//!   inode up.
//! - *user*: on whose behalf a call is made. The process that has the store needs the permissions to do all that its
//!   users may.
//! - *where a call goes*: into the explicit group that its context names, if any. Else changes of names and attributes
//!   are a group of their own, and changes of content go where the store's policy says.
//!
//! # Invariants
//!
//! 1. A number means the same object from its first reference to its last, and is nobody else's meanwhile.
//! 2. Whatever a user may not do is refused before the call claims or logs anything.
//! 3. A regular file that is about to lose its last name while it is referred to is opened before: its content is in
//!    its host file, which lives as long as a descriptor does.
//! 4. A call that fails leaves nothing, in a group of its own and in an explicit one.
//! 5. Open files are dropped outside of uses of the store, since the last close of a file is a use itself.
//!
//! All calls of processes may go to one group: their contexts name it (a private mount does that). [`Groups::begin`]
//! begins one, and it is committed or aborted by its name. Calls in one group wait for each other, but for those that
//! only look.
//!
//! | file | idea |
//! |---|---|
//! | `inodes.rs` | which inodes somebody refers to, by which numbers |
//! | `open.rs` | open files and directories |
//! | `names.rs` | making, finding and taking away names |
//! | `files.rs` | opening files, and their content |
//! | `directories.rs` | reading directories |
//! | `attributes.rs` | attributes, and who may change them |

mod attributes;
mod directories;
mod files;
mod inodes;
mod names;
mod open;

use std::collections::HashMap;
use std::sync::Arc;

use super::running::{Running, Sharing};
use super::{Store, StoreInner};
use crate::error::Error;
use inodes::Inodes;
pub(super) use names::single;
use open::Open;
use sync::{AtomicU8, AtomicU64, Ordering, RwLock};
use wholly_changes::Kind;
use wholly_vfs::groups::{only, only_private};
use wholly_vfs::rules::permit::Who;
use wholly_vfs::{
    Access, AcrossForks, Attr, Committed, Context, Errno, Fallocate, FileType, GroupId, Groups, Handle, Handles, Ino,
    Listed, Mode, OFlags, Pending, Rename, Result, Seek, Seen, SetAttr, SetXattr, StatFs, Ticket, Vfs,
};

/// A running explicit group that calls are made into; gone when it has ended.
type Explicit = RwLock<Option<Running>>;

/// A [`Store`] as a [`Vfs`]. The folder `.wholly` is not visible through it.
pub struct StoreVfs {
    store: Arc<StoreInner>,
    inodes: Inodes,
    handles: Handles,
    groups: RwLock<HashMap<u64, Arc<Explicit>>>,
    /// Counts changes of attributes, from 1: what was found of a file's attributes holds until the next.
    changes: AtomicU64,
    /// 1 if what has the name of the store's folder is data of a group ([`Self::leave_out`]).
    leaves_out: AtomicU8,
    /// Keeps the store open.
    _open: Store,
}

/// Where a call goes.
enum Way {
    /// By the store's policy.
    Policy,
    Group(Arc<Explicit>),
}

impl StoreVfs {
    /// Makes a `Vfs` over a store. A store may have several, and other users at the same time.
    pub fn new(store: &Store) -> Self {
        StoreVfs {
            store: store.inner.clone(),
            inodes: Inodes::default(),
            handles: Handles::from(1),
            groups: RwLock::default(),
            changes: AtomicU64::new(1),
            leaves_out: AtomicU8::new(0),
            _open: store.clone(),
        }
    }

    /// Keeps times of change: from now on, `getattr` reports the same `ctime` of an object after a checkpoint as before
    /// it, as long as no program changes the object. Without this, the `ctime` becomes that of the checkpoint. It is
    /// kept for up to 262,144 objects, and as long as the store is open.
    pub fn keep_ctimes(&self) {
        self.store.checkpointer.keep_ctimes();
    }

    /// Ends the calls of a group: those that run are waited for, later ones are refused.
    pub(super) fn take_group(&self, group: GroupId) -> crate::Result<Running> {
        let gone = || Error::invalid(format!("there is no running group {:#x}", group.0));
        let group = self.groups.write().unwrap().remove(&group.0).ok_or_else(gone)?;
        let running = group.write().unwrap().take();
        running.ok_or_else(gone)
    }

    /// Looks at a group that runs, which is kept as it is meanwhile.
    pub(super) fn with_group<T>(
        &self,
        group: GroupId,
        look: impl FnOnce(&Running) -> crate::Result<T>,
    ) -> crate::Result<T> {
        let gone = || Error::invalid(format!("there is no running group {:#x}", group.0));
        let group = self.groups.read().unwrap().get(&group.0).cloned().ok_or_else(gone)?;
        let running = group.read().unwrap();
        look(running.as_ref().ok_or_else(gone)?)
    }

    /// Changes a group that runs, on behalf of whoever has it.
    pub(super) fn change_group<T>(
        &self,
        group: GroupId,
        change: impl FnOnce(&mut Running) -> crate::Result<T>,
    ) -> crate::Result<T> {
        let gone = || Error::invalid(format!("there is no running group {:#x}", group.0));
        let group = self.groups.read().unwrap().get(&group.0).cloned().ok_or_else(gone)?;
        let mut running = group.write().unwrap();
        self.used_by_name(|| {
            let running = running.as_mut().ok_or_else(gone)?;
            running.act_as(Who::of(&Context::superuser()));
            change(running)
        })
    }

    /// The file that a handle stands for, in a call that is none of the trait's.
    pub(super) fn file_of(&self, handle: &Handle) -> crate::Result<Arc<super::file::File>> {
        let find =
            || self.handles.get::<Open>(handle)?.file()?.file.inner(&self.store).map_err(|_| Errno::BADF).cloned();
        find().map_err(|errno: Errno| Error::Refused("an open file".into(), errno))
    }

    /// The object that a number stands for, in a call that is none of the trait's.
    pub(super) fn object_of(&self, ino: Ino) -> crate::Result<u64> {
        self.inodes.id(ino).map_err(|errno| Error::Refused(format!("inode {}", ino.0), errno))
    }

    /// Drops all references to inodes, for a caller whose kernel has taken the mount away: it does not give back each.
    pub fn forget_all(&self) {
        self.inodes.forget_all(&self.store);
    }

    /// Returns the number of references to inodes, and the number of open files and directories. For callers that wait
    /// until everything is closed, and for tests that look for leaks.
    #[doc(hidden)]
    pub fn held(&self) -> (u64, usize) {
        (self.inodes.references(), self.handles.count())
    }

    /// A use of the store.
    pub(super) fn used<T, E: From<Error>>(&self, call: impl FnOnce() -> crate::Result<T, E>) -> crate::Result<T, E> {
        let used = self.store.enter().map_err(|why| self.store.refused(why))?;
        let result = call();
        self.store.leave(used);
        result
    }

    /// The same, of a call that looks for objects.
    pub(super) fn used_by_name<T>(&self, call: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
        self.used(|| {
            let _caller = self.store.names.caller();
            call()
        })
    }

    fn way(&self, ctx: &Context) -> Result<Way> {
        match ctx.group {
            None => Ok(Way::Policy),
            Some(group) => {
                let group = self.groups.read().unwrap().get(&group.0).cloned();
                group.map(Way::Group).ok_or(Errno::INVAL)
            }
        }
    }

    /// A call that changes nothing, and looks for nothing.
    fn look_at_file<T>(&self, ctx: &Context, call: impl FnOnce(&Running) -> Result<T>) -> Result<T> {
        match self.way(ctx)? {
            Way::Policy => self.used(|| call(&Running::looking(self.store.clone()))),
            Way::Group(group) => {
                let group = group.read().unwrap();
                self.used(|| call(group.as_ref().ok_or(Errno::INVAL)?))
            }
        }
    }

    /// A call that changes nothing.
    fn look<T>(&self, ctx: &Context, call: impl FnOnce(&Running) -> Result<T>) -> Result<T> {
        self.look_at_file(ctx, |running| {
            let _caller = self.store.names.caller();
            call(running)
        })
    }

    /// The same, of a call that depends on who makes it.
    fn look_as<T>(&self, ctx: &Context, call: impl FnOnce(&Running) -> Result<T>) -> Result<T> {
        match self.way(ctx)? {
            Way::Policy => self.look(ctx, |_| {
                let mut running = Running::looking(self.store.clone());
                running.act_as(Who::of(ctx));
                call(&running)
            }),
            // Who acts is the group's: others wait.
            Way::Group(_) => self.change(ctx, |running| call(running)),
        }
    }

    /// A call that changes names or attributes.
    fn change<T>(&self, ctx: &Context, call: impl FnOnce(&mut Running) -> Result<T>) -> Result<T> {
        let who = Who::of(ctx);
        match self.way(ctx)? {
            Way::Policy => {
                let (value, committed) = self.used(|| {
                    let mut running = Running::new(self.store.clone(), Sharing::Own).into_single();
                    running.act_as(who);
                    running.tell_exact_times();
                    let _caller = self.store.names.caller();
                    let value = call(&mut running)?;
                    Ok::<_, Errno>((value, running.commit()))
                })?;
                committed?;
                Ok(value)
            }
            Way::Group(group) => {
                let mut group = group.write().unwrap();
                self.used(|| {
                    let running = group.as_mut().ok_or(Errno::INVAL)?;
                    running.act_as(who);
                    let _caller = self.store.names.caller();
                    call(running)
                })
            }
        }
    }

    /// Calls on names and attributes are durable when they return.
    fn sync_names(&self, ctx: &Context) -> Result<()> {
        match self.way(ctx)? {
            Way::Group(_) => Ok(()),
            Way::Policy => {
                Ok(self.used(|| self.store.check_usable().and_then(|()| self.store.epochs.sync(&self.store, None)))?)
            }
        }
    }
}

fn file_type(kind: Kind, mode: u32) -> FileType {
    match kind {
        Kind::Regular => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Special => FileType::from_raw_mode(mode),
    }
}

impl std::fmt::Debug for StoreVfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreVfs").field("held", &self.held()).finish_non_exhaustive()
    }
}

impl Drop for StoreVfs {
    fn drop(&mut self) {
        // What a child has by `fork` it leaves alone.
        if !self.store.forked.is_inherited() {
            self.inodes.forget_all(&self.store);
        }
    }
}

impl Vfs for StoreVfs {
    fn lookup(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.find(ctx, dir, name)
    }

    fn forget(&self, ino: Ino, references: u64) {
        drop(self.inodes.forget(&self.store, ino, references));
    }

    fn getattr(&self, ctx: &Context, ino: Ino) -> Result<Attr> {
        let id = self.inodes.id(ino)?;
        self.look(ctx, |running| self.attr(running, ino, id))
    }

    fn setattr(&self, ctx: &Context, ino: Ino, handle: Option<&Handle>, change: &SetAttr) -> Result<Attr> {
        self.set_attributes(ctx, ino, handle, change)
    }

    fn access(&self, ctx: &Context, ino: Ino, access: Access) -> Result<()> {
        self.check_access(ctx, ino, access)
    }

    fn readlink(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>> {
        let id = self.inodes.id(ino)?;
        self.look(ctx, |running| match running.read_link_of(id) {
            Err(Error::NotFound(_)) => self.inodes.kept(id, |kept| kept.target.clone()).ok_or(Errno::NOENT),
            target => {
                let target = target?;
                running.has_read(id)?;
                Ok(target)
            }
        })
    }

    fn mknod(&self, ctx: &Context, dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr> {
        self.make_node(ctx, dir, name, kind, mode, rdev)
    }

    fn mkdir(&self, ctx: &Context, dir: Ino, name: &[u8], mode: Mode) -> Result<Attr> {
        self.make_directory(ctx, dir, name, mode)
    }

    fn symlink(&self, ctx: &Context, dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
        self.make_link(ctx, dir, name, target)
    }

    fn link(&self, ctx: &Context, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.name(ctx, ino, dir, name)
    }

    fn unlink(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
        self.take_name(ctx, dir, name, false)
    }

    fn rmdir(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
        self.take_name(ctx, dir, name, true)
    }

    fn rename(&self, ctx: &Context, from: Ino, name: &[u8], to: Ino, new_name: &[u8], how: Rename) -> Result<()> {
        self.move_name(ctx, (from, name), (to, new_name), how)
    }

    fn open(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle> {
        self.open_file(ctx, ino, flags)
    }

    fn create(&self, ctx: &Context, dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
        self.create_file(ctx, dir, name, flags, mode)
    }

    fn tmpfile(&self, ctx: &Context, dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
        self.create_nameless(ctx, dir, flags, mode)
    }

    fn read(&self, ctx: &Context, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let open: &Open = self.handles.get(handle)?;
        self.read_file(ctx, open.file()?, offset, buf)
    }

    fn write(&self, ctx: &Context, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        let open: &Open = self.handles.get(handle)?;
        let file = open.file()?;
        let at = (!file.flags.contains(OFlags::APPEND)).then_some(offset);
        self.write_file(ctx, file, at, data).map(|(_, written)| written)
    }

    fn append(&self, ctx: &Context, handle: &Handle, data: &[u8]) -> Result<(u64, usize)> {
        let open: &Open = self.handles.get(handle)?;
        self.write_file(ctx, open.file()?, None, data)
    }

    fn copy_file_range(
        &self,
        ctx: &Context,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        len: usize,
    ) -> Result<usize> {
        let (from, to): (&Open, &Open) = (self.handles.get(from)?, self.handles.get(to)?);
        self.copy(ctx, (from.file()?, from_offset), (to.file()?, to_offset), len)
    }

    fn fallocate(&self, ctx: &Context, handle: &Handle, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let open: &Open = self.handles.get(handle)?;
        self.allocate(ctx, open.file()?, how, offset, len)
    }

    fn seek(&self, ctx: &Context, handle: &Handle, seek: Seek) -> Result<u64> {
        let open: &Open = self.handles.get(handle)?;
        let file = open.file()?.file.inner(&self.store)?;
        let found = self.look_at_file(ctx, |running| match seek {
            Seek::Data(offset) => Ok(running.next_data(file, offset)?),
            Seek::Hole(offset) => Ok(running.next_hole(file, offset)?),
        });
        found?.ok_or(Errno::NXIO)
    }

    fn fsync(&self, ctx: &Context, handle: &Handle) -> Result<()> {
        let open: &Open = self.handles.get(handle)?;
        let inner = open.file()?.file.inner(&self.store)?;
        match self.way(ctx)? {
            Way::Group(_) => Ok(()),
            Way::Policy => Ok(self.used(|| self.store.sync_file(inner))?),
        }
    }

    fn fdatasync(&self, ctx: &Context, handle: &Handle) -> Result<()> {
        self.fsync(ctx, handle)
    }

    fn release(&self, ctx: &Context, handle: Handle) -> Result<()> {
        self.handles.get::<Open>(&handle)?.file()?;
        let open: &Open = self.handles.close(&handle)?;
        let released = self.close_file(ctx, open.file()?);
        self.forget(open.ino(), 1);
        released
    }

    fn opendir(&self, ctx: &Context, dir: Ino) -> Result<Handle> {
        self.open_directory(ctx, dir)
    }

    fn readdir(
        &self,
        ctx: &Context,
        handle: &Handle,
        offset: u64,
        each: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let open: &Open = self.handles.get(handle)?;
        self.read_directory(ctx, open.directory()?, offset, each)
    }

    fn fsyncdir(&self, ctx: &Context, handle: &Handle) -> Result<()> {
        self.handles.get::<Open>(handle)?.directory()?;
        self.sync_names(ctx)
    }

    fn releasedir(&self, _ctx: &Context, handle: Handle) -> Result<()> {
        self.handles.get::<Open>(&handle)?.directory()?;
        let open: &Open = self.handles.close(&handle)?;
        self.forget(open.ino(), 1);
        Ok(())
    }

    fn setxattr(&self, ctx: &Context, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        self.set_xattr(ctx, ino, name, Some(value), how)
    }

    fn getxattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.xattr(ctx, ino, name)
    }

    fn listxattr(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>> {
        self.xattrs(ctx, ino)
    }

    fn removexattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<()> {
        self.set_xattr(ctx, ino, name, None, SetXattr::Any)
    }

    fn statfs(&self, ctx: &Context, ino: Ino) -> Result<StatFs> {
        self.inodes.id(ino)?;
        self.look(ctx, |_| {
            let space = self.store.host.space().map_err(Error::Media)?;
            // Of what is free, what the store does not refuse.
            let left = self.store.left_to_promise()?;
            let blocks = left.bytes / space.block_bytes.max(1);
            Ok(StatFs {
                block_size: space.block_bytes,
                blocks: space.blocks,
                free_blocks: space.free_blocks.min(blocks),
                available_blocks: space.available_blocks.min(blocks),
                inodes: space.inodes,
                free_inodes: space.free_inodes.min(left.inodes),
                name_max: 255,
            })
        })
    }

    fn pending(&self) -> Result<Pending> {
        let epochs = &self.store.epochs;
        Ok(Pending { files: epochs.dirty_files(), early_commits: epochs.early_commits() })
    }

    fn sync(&self, ctx: &Context) -> Result<()> {
        match self.way(ctx)? {
            Way::Group(_) => Ok(()),
            Way::Policy => Ok(self.used(|| self.store.sync_all())?),
        }
    }
}

impl AcrossForks for StoreVfs {
    fn has_given(&self, _number: u64) -> bool {
        !self.store.forked.is_inherited()
    }

    fn identity(&self, handle: &Handle) -> Result<(u64, u64)> {
        let open: &Open = self.handles.get(handle)?;
        Ok((self.inodes.id(open.ino())?, 0))
    }
}

impl Groups for StoreVfs {
    fn begin_as(&self, seen: Seen) -> crate::Result<GroupId> {
        only_private(seen)?;
        let mut running = self.used(|| Ok::<_, Error>(Running::new(self.store.clone(), Sharing::Own)))?;
        running.tell_exact_times();
        let id = running.id;
        self.groups.write().unwrap().insert(id, Arc::new(RwLock::new(Some(running))));
        Ok(GroupId(id))
    }

    fn add(&self, group: GroupId, handle: &Handle) -> crate::Result<()> {
        let refused = |errno| Error::of("an open file", errno);
        let open: &Open = self.handles.get(handle).map_err(refused)?;
        let file = open.file().map_err(refused)?;
        if !file.writes() {
            return Err(refused(Errno::BADF));
        }
        let inner = file.file.inner(&self.store)?;
        self.change_group(group, |running| running.join(inner).map(drop))
    }

    /// A group is durable once it is committed. ([`commit_together`](Self::commit_together) commits groups of several
    /// stores.)
    fn commit_all(&self, groups: &[GroupId], _how: Committed) -> crate::Result<Ticket> {
        let group = only(groups)?;
        let mut running = self.take_group(group)?;
        let committed = self.used(|| running.commit());
        // What was found of attributes outside of it holds no more, or what was found in it never did.
        self.changes.fetch_add(1, Ordering::AcqRel);
        committed.map(|()| Ticket(group.0))
    }

    fn wait(&self, _ticket: Ticket) -> crate::Result<()> {
        Ok(())
    }

    fn abort(&self, group: GroupId) -> crate::Result<()> {
        let undone = self.take_group(group).map(drop);
        // What was found of attributes may have been the group's.
        self.changes.fetch_add(1, Ordering::AcqRel);
        undone
    }
}
