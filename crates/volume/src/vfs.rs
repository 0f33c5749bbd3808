//! The trait [`Vfs`] over a volume: references, handles, and what is checked at an open.

use std::sync::Arc;

use sync::{Mutex, Ordering};
use wholly_error::Error;
use wholly_vfs::groups::{only, only_private};
use wholly_vfs::rules::names::{check_node, check_target};
use wholly_vfs::rules::permit::{Who, check_open};
use wholly_vfs::{
    Access, Attr, Committed, Context, Errno, Fallocate, FileType, GroupId, Groups, Handle, Handles, Ino, Listed, Mode,
    OFlags, Rename, Result, Seek, Seen, SetAttr, SetXattr, StatFs, Ticket, Vfs,
};

use crate::Volume;
use crate::engine::{CommitSequence, DurableAt};
use crate::fork::{Guarded, Opened, OverVolume, guard};
use crate::format::BLOCK;
use crate::format::by_number::ByNumber;
use crate::format::inode::{PER_BLOCK, ROOT};
use crate::fs::explicit::What;
use crate::fs::names::Birth;
use crate::fs::table::{Held, Inode};
use crate::fs::{Core, DIRECTORY, PERMISSIONS, REGULAR, SYMLINK};
use crate::open::Mounted;

/// Bytes that are copied from file to file at a time.
pub(crate) const COPIED: usize = 1 << 20;
/// Offsets in a listing below this one are those of `.` and `..`; then keys follow.
const FIRST_NAME: u64 = 2;

/// An open file or directory: it has a reference to its inode.
struct Open {
    inode: Arc<Inode>,
    flags: OFlags,
}

impl Open {
    fn reads(&self) -> bool {
        !self.flags.contains(OFlags::WRONLY)
    }

    fn writes(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    }

    fn is_dir(&self) -> bool {
        self.inode.kind == DIRECTORY
    }
}

/// A [`Volume`] as a [`Vfs`].
///
/// A child that is forked has the `Vfs` too. If it takes the volume over, it makes its calls by names from the root
/// directory on: it has no references, open files and groups from before the fork.
pub struct VolumeVfs(Guarded<UnguardedVfs>);

impl std::fmt::Debug for VolumeVfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeVfs").finish_non_exhaustive()
    }
}

impl VolumeVfs {
    /// Makes a `Vfs` over a volume, which stays open as long as this does.
    pub fn new(volume: &Volume) -> Self {
        Self::over(volume.opened().clone())
    }

    pub(crate) fn over(opened: Arc<Opened>) -> Self {
        VolumeVfs(Guarded::new(UnguardedVfs::over(opened.mounted.clone()), opened))
    }

    /// The number of references to inodes, and of open files and directories: for tests that look for leaks.
    #[doc(hidden)]
    pub fn held(&self) -> (u64, usize) {
        self.0.used(None, |vfs| Ok::<_, Errno>(vfs.held())).unwrap_or_default()
    }
}

guard!(VolumeVfs);

/// The same, without regard to forks.
pub(crate) struct UnguardedVfs {
    volume: Arc<Mounted>,
    handles: Handles,
    /// The inodes that are open, by the numbers of the handles.
    open: Mutex<ByNumber<Arc<Inode>>>,
}

impl OverVolume for UnguardedVfs {
    #[inline]
    fn settle(&self) -> wholly_error::Result<()> {
        let core = self.core();
        core.checkpointers.tell(core);
        core.settle()
    }

    fn again(&self, volume: &Arc<Mounted>) -> Result<Self> {
        Ok(Self::over(volume.clone()))
    }

    fn end(&self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap());
        open.values().for_each(|inode| _ = self.core().store_times(inode));
        let _ = self.core().settle();
        self.core().unawaited(|| open.into_values().for_each(|inode| self.core().forget(&inode, 1)));
    }
}

impl UnguardedVfs {
    /// Commits a group; with `data_only` perhaps without times. The thread owes the wait.
    pub fn commit_ordered(&self, group: GroupId, data_only: bool) -> wholly_error::Result<()> {
        self.core().commit_group(group, data_only).map_err(of_group)
    }

    /// Claims an open file for a group.
    pub fn claim(&self, group: GroupId, handle: &Handle) -> Result<()> {
        let open = self.file(handle)?;
        if !open.writes() {
            return Err(Errno::BADF);
        }
        self.core().add_to_group(group, &open.inode)
    }

    pub fn over(volume: Arc<Mounted>) -> Self {
        let handles = Handles::from(volume.core.first_number);
        UnguardedVfs { volume, handles, open: Mutex::default() }
    }

    fn core(&self) -> &Core {
        &self.volume.core
    }

    /// The number of references to inodes, and of open files and directories.
    pub fn held(&self) -> (u64, usize) {
        (self.core().table.references(), self.handles.count())
    }

    /// The inode of an open file or directory, and how it was opened.
    pub fn of_handle(&self, handle: &Handle) -> Result<(Arc<Inode>, OFlags)> {
        self.opened(handle).map(|open| (open.inode.clone(), open.flags))
    }

    /// The same inode, which no other one is after it.
    pub fn identity(&self, handle: &Handle) -> Result<(u64, u64)> {
        self.opened(handle).map(|open| (open.inode.id.ino, open.inode.id.generation.into()))
    }

    pub fn mounted(&self) -> &Mounted {
        &self.volume
    }

    #[inline]
    fn opened<'h>(&self, handle: &'h Handle) -> Result<&'h Open> {
        self.handles.get(handle)
    }

    #[inline]
    fn file<'h>(&self, handle: &'h Handle) -> Result<&'h Open> {
        self.opened(handle).and_then(|open| if open.is_dir() { Err(Errno::BADF) } else { Ok(open) })
    }

    fn directory<'h>(&self, handle: &'h Handle) -> Result<&'h Open> {
        self.opened(handle).and_then(|open| if open.is_dir() { Ok(open) } else { Err(Errno::NOTDIR) })
    }

    fn number(&self, held: Held<'_>, flags: OFlags) -> Handle {
        let inode = held.keep();
        inode.opens.fetch_add(1, Ordering::Relaxed);
        let handle = self.handles.open(Open { inode: inode.clone(), flags });
        self.open.lock().unwrap().insert(handle.number(), inode);
        handle
    }

    fn close(&self, handle: &Handle) -> Result<()> {
        let open: &Open = self.handles.close(handle)?;
        self.open.lock().unwrap().remove(&handle.number());
        let stored = match open.inode.opens.fetch_sub(1, Ordering::Relaxed) {
            1 => self.core().unawaited(|| self.core().store_times(&open.inode)),
            _ => Ok(()),
        };
        self.core().forget(&open.inode, 1);
        Ok(stored?)
    }

    /// The attributes of an inode, with the reference that is given out.
    fn given(&self, held: Held<'_>) -> Result<Attr> {
        let attr = self.core().attr(&held)?;
        held.keep();
        Ok(attr)
    }

    /// What is checked at an open. Returns the inode, as its call sees it then.
    fn open_held<'c>(&'c self, ctx: &Context, held: Held<'c>, flags: OFlags) -> Result<Held<'c>> {
        let state = held.state.read().unwrap();
        let permits = |wanted| self.core().permits(ctx, &held, &state, wanted);
        check_open(held.kind, flags, permits, || Ok(Who::of(ctx).owns(&state.stat())))?;
        drop(state);
        if !flags.contains(OFlags::TRUNC) {
            return Ok(held);
        }
        let held = self.core().take(ctx, held, What::Itself)?;
        let mut state = held.state.write().unwrap();
        state.check_free(&held, None, What::Itself)?;
        self.core().drop_privileges(ctx, &held, &mut state)?;
        self.core().cut(&held, &mut state, 0)?;
        drop(state);
        Ok(held)
    }

    fn make(&self, ctx: &Context, dir: Ino, name: &[u8], birth: &Birth<'_>) -> Result<Attr> {
        let _call = self.core().enter(ctx)?;
        self.given(self.core().make(ctx, dir.0, name, birth)?)
    }

    #[inline]
    fn write_at(&self, ctx: &Context, open: &Open, offset: Option<u64>, data: &[u8]) -> Result<(u64, usize)> {
        if !open.writes() {
            return Err(Errno::BADF);
        }
        let inode = self.core().take_open(ctx, &open.inode)?;
        let written = self.core().write(ctx, &inode, offset, data)?;
        if open.flags.intersects(OFlags::DSYNC | OFlags::SYNC) && self.core().engine.durable_at() != DurableAt::Return {
            self.core().sync_inode(inode.id.ino)?;
        }
        Ok(written)
    }

    #[inline]
    fn read_from(&self, ctx: &Context, open: &Open, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if !open.reads() {
            return Err(Errno::BADF);
        }
        let inode = self.core().view(ctx, &open.inode)?;
        let (read, is_late) = self.core().read(&inode, offset, buf)?;
        if is_late && !buf.is_empty() && !open.flags.contains(OFlags::NOATIME) {
            self.core().has_read(&inode)?;
        }
        Ok(read)
    }

    fn sync_all(&self) -> Result<()> {
        let open: Vec<_> = self.open.lock().unwrap().values().cloned().collect();
        open.iter().try_for_each(|inode| self.core().store_times(inode))?;
        Ok(self.core().sync()?)
    }
}

impl Vfs for UnguardedVfs {
    fn lookup(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr> {
        let _call = self.core().enter(ctx)?;
        self.given(self.core().lookup(ctx, dir.0, name)?)
    }

    fn forget(&self, ino: Ino, references: u64) {
        if let Some(inode) = self.core().known(ino.0) {
            self.core().unawaited(|| self.core().forget(&inode, references));
        }
    }

    fn getattr(&self, ctx: &Context, ino: Ino) -> Result<Attr> {
        let _call = self.core().enter(ctx)?;
        self.core().attr(&*self.core().held_by(ctx, ino.0)?)
    }

    fn setattr(&self, ctx: &Context, ino: Ino, handle: Option<&Handle>, change: &SetAttr) -> Result<Attr> {
        let _call = self.core().enter(ctx)?;
        let held = self.core().held_by(ctx, ino.0)?;
        let open = handle.map(|handle| self.opened(handle)).transpose()?;
        if change.size.is_some() && open.as_ref().is_some_and(|open| open.inode.id.ino != ino.0 || !open.writes()) {
            return Err(Errno::INVAL);
        }
        let held = self.core().take(ctx, held, What::Itself)?;
        self.core().set_attributes(ctx, &held, open.is_some(), change)?;
        self.core().attr(&held)
    }

    fn access(&self, ctx: &Context, ino: Ino, access: Access) -> Result<()> {
        let _call = self.core().enter(ctx)?;
        self.core().check_access(ctx, &*self.core().held_by(ctx, ino.0)?, access)
    }

    fn readlink(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>> {
        let _call = self.core().enter(ctx)?;
        let held = self.core().held_by(ctx, ino.0)?;
        let target = self.core().target(&held)?;
        self.core().has_read(&held)?;
        Ok(target)
    }

    fn mknod(&self, ctx: &Context, dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr> {
        let rdev = check_node(&Who::of(ctx), kind, rdev)?;
        let mode = Core::mode_of(kind.as_raw_mode(), mode.as_raw_mode());
        self.make(ctx, dir, name, &Birth { mode, rdev, target: b"" })
    }

    fn mkdir(&self, ctx: &Context, dir: Ino, name: &[u8], mode: Mode) -> Result<Attr> {
        let mode = Core::mode_of(DIRECTORY, mode.as_raw_mode());
        self.make(ctx, dir, name, &Birth { mode, rdev: 0, target: b"" })
    }

    fn symlink(&self, ctx: &Context, dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
        check_target(target)?;
        self.make(ctx, dir, name, &Birth { mode: SYMLINK | 0o777, rdev: 0, target })
    }

    fn link(&self, ctx: &Context, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        let _call = self.core().enter(ctx)?;
        self.given(self.core().link(ctx, ino.0, dir.0, name)?)
    }

    fn unlink(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
        let _call = self.core().enter(ctx)?;
        self.core().unlink(ctx, dir.0, name, false)
    }

    fn rmdir(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
        let _call = self.core().enter(ctx)?;
        self.core().unlink(ctx, dir.0, name, true)
    }

    fn rename(&self, ctx: &Context, from: Ino, name: &[u8], to: Ino, new_name: &[u8], how: Rename) -> Result<()> {
        let _call = self.core().enter(ctx)?;
        self.core().rename(ctx, (from.0, name), (to.0, new_name), how)
    }

    fn open(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle> {
        let _call = self.core().enter(ctx)?;
        let held = self.open_held(ctx, self.core().held_by(ctx, ino.0)?, flags)?;
        Ok(self.number(held, flags))
    }

    fn create(&self, ctx: &Context, dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
        let _call = self.core().enter(ctx)?;
        let exclusive = flags.contains(OFlags::EXCL);
        if name == b"." || name == b".." {
            self.core().lookup(ctx, dir.0, name)?;
            return Err(if exclusive { Errno::EXIST } else { Errno::ISDIR });
        }
        let birth = Birth { mode: REGULAR | mode.as_raw_mode() & PERMISSIONS, rdev: 0, target: b"" };
        loop {
            let held = match self.core().make(ctx, dir.0, name, &birth) {
                // A file that was just made is open for its maker, however few permissions it has.
                Err(Errno::EXIST) if !exclusive => match self.core().lookup(ctx, dir.0, name) {
                    Err(Errno::NOENT) => continue,
                    held => self.open_held(ctx, held?, flags)?,
                },
                made => made?,
            };
            let ino = held.id.ino;
            let handle = self.number(held, flags);
            let given = self.core().held_by(ctx, ino).and_then(|held| self.given(held));
            if given.is_err() {
                self.close(&handle)?;
            }
            return given.map(|attr| (attr, handle));
        }
    }

    fn tmpfile(&self, ctx: &Context, dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
        if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return Err(Errno::INVAL);
        }
        let _call = self.core().enter(ctx)?;
        let nameable = !flags.contains(OFlags::EXCL);
        let held = self.core().make_nameless(ctx, dir.0, mode.as_raw_mode() & PERMISSIONS, nameable)?;
        let second = self.core().held_by(ctx, held.id.ino)?;
        let attr = self.given(held)?;
        Ok((attr, self.number(second, flags)))
    }

    fn read(&self, ctx: &Context, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _call = self.core().enter(ctx)?;
        self.read_from(ctx, self.file(handle)?, offset, buf)
    }

    fn write(&self, ctx: &Context, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        let _call = self.core().enter(ctx)?;
        let open = self.file(handle)?;
        let at = (!open.flags.contains(OFlags::APPEND)).then_some(offset);
        self.write_at(ctx, open, at, data).map(|(_, written)| written)
    }

    fn append(&self, ctx: &Context, handle: &Handle, data: &[u8]) -> Result<(u64, usize)> {
        let _call = self.core().enter(ctx)?;
        self.write_at(ctx, self.file(handle)?, None, data)
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
        let _call = self.core().enter(ctx)?;
        let (from, to) = (self.file(from)?, self.file(to)?);
        if !from.reads() || !to.writes() || to.flags.contains(OFlags::APPEND) {
            return Err(Errno::BADF);
        }
        let end = |offset: u64| offset.checked_add(len as u64).filter(|end| i64::try_from(*end).is_ok());
        let (Some(_), Some(_)) = (end(from_offset), end(to_offset)) else { return Err(Errno::OVERFLOW) };
        let size = self.core().view(ctx, &from.inode)?.state.read().unwrap().record.owned.size;
        let len = (len as u64).min(size.saturating_sub(from_offset));
        if len == 0 {
            return Ok(0);
        }
        let same = from.inode.id == to.inode.id;
        if same && from_offset < to_offset + len && to_offset < from_offset + len {
            return Err(Errno::INVAL);
        }
        let mut buf = vec![0; usize::try_from(len).unwrap_or(COPIED).min(COPIED)];
        let read = self.read_from(ctx, from, from_offset, &mut buf)?;
        if read == 0 {
            return Ok(0);
        }
        self.write_at(ctx, to, Some(to_offset), &buf[..read]).map(|(_, written)| written)
    }

    fn fallocate(&self, ctx: &Context, handle: &Handle, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let _call = self.core().enter(ctx)?;
        let open = self.file(handle)?;
        if !open.writes() {
            return Err(Errno::BADF);
        }
        let inode = self.core().take_open(ctx, &open.inode)?;
        self.core().allocate(ctx, &inode, how, offset, len)
    }

    fn seek(&self, ctx: &Context, handle: &Handle, seek: Seek) -> Result<u64> {
        let _call = self.core().enter(ctx)?;
        let open = self.file(handle)?;
        let inode = self.core().view(ctx, &open.inode)?;
        self.core().seek(&inode, seek)
    }

    fn fsync(&self, ctx: &Context, handle: &Handle) -> Result<()> {
        self.core().store_times(&self.file(handle)?.inode)?;
        self.fdatasync(ctx, handle)
    }

    fn fdatasync(&self, _ctx: &Context, handle: &Handle) -> Result<()> {
        Ok(self.core().sync_inode(self.file(handle)?.inode.id.ino)?)
    }

    fn fatomic(&self, ctx: &Context, handle: &Handle, data_only: bool) -> Result<()> {
        if !data_only {
            self.core().store_times(&self.file(handle)?.inode)?;
        }
        if !self.core().engine.orders() {
            return self.fdatasync(ctx, handle);
        }
        // Each call is ordered when it returns.
        self.core().tells_of(self.file(handle)?.inode.id.ino);
        Ok(self.core().check_usable()?)
    }

    fn release(&self, _ctx: &Context, handle: Handle) -> Result<()> {
        self.file(&handle)?;
        self.close(&handle)
    }

    fn opendir(&self, ctx: &Context, dir: Ino) -> Result<Handle> {
        let _call = self.core().enter(ctx)?;
        let held = self.core().held_by(ctx, dir.0)?;
        self.core().check_list(ctx, &held)?;
        Ok(self.number(held, OFlags::RDONLY))
    }

    fn readdir(
        &self,
        ctx: &Context,
        handle: &Handle,
        offset: u64,
        each: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let open = self.directory(handle)?;
        let parent = {
            let _call = self.core().enter(ctx)?;
            let dir = self.core().view(ctx, &open.inode)?;
            let (links, parent) = {
                let state = dir.state.read().unwrap();
                (state.record.owned.links, state.record.more.parent)
            };
            if links == 0 {
                return Err(Errno::NOENT);
            }
            if offset == 0 {
                self.core().has_read(&dir)?;
            }
            if dir.id.ino == ROOT { ROOT } else { parent }
        };
        for (at, ino, name) in [(0, open.inode.id.ino, &b"."[..]), (1, parent, &b".."[..])] {
            let entry = Listed { ino: Ino(ino), next: at + 1, kind: FileType::Directory, name };
            if offset <= at && !each(entry) {
                return Ok(());
            }
        }
        let mut key = offset.saturating_sub(FIRST_NAME);
        loop {
            // `each` may make calls of its own: nothing is locked then.
            let (listed, next) = {
                let _call = self.core().enter(ctx)?;
                let dir = self.core().view(ctx, &open.inode)?;
                let state = dir.state.read().unwrap();
                self.core().list(&dir, &state, key)?
            };
            for entry in &listed {
                let next = entry.key + 1 + FIRST_NAME;
                let kind = FileType::from_raw_mode(entry.kind);
                if !each(Listed { ino: Ino(entry.ino), next, kind, name: &entry.name }) {
                    return Ok(());
                }
            }
            if next <= key {
                return Ok(());
            }
            key = next;
        }
    }

    fn fsyncdir(&self, _ctx: &Context, handle: &Handle) -> Result<()> {
        Ok(self.core().sync_inode(self.directory(handle)?.inode.id.ino)?)
    }

    fn releasedir(&self, _ctx: &Context, handle: Handle) -> Result<()> {
        self.directory(&handle)?;
        self.close(&handle)
    }

    fn setxattr(&self, ctx: &Context, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let _call = self.core().enter(ctx)?;
        let held = self.core().take(ctx, self.core().held_by(ctx, ino.0)?, What::Itself)?;
        self.core().set_xattr(ctx, &held, name, value, how)
    }

    fn getxattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _call = self.core().enter(ctx)?;
        self.core().xattr(ctx, &*self.core().held_by(ctx, ino.0)?, name)
    }

    fn listxattr(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>> {
        let _call = self.core().enter(ctx)?;
        self.core().xattr_names(ctx, &*self.core().held_by(ctx, ino.0)?)
    }

    fn removexattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<()> {
        let _call = self.core().enter(ctx)?;
        let held = self.core().take(ctx, self.core().held_by(ctx, ino.0)?, What::Itself)?;
        self.core().remove_xattr(ctx, &held, name)
    }

    fn statfs(&self, _ctx: &Context, ino: Ino) -> Result<StatFs> {
        let core = self.core();
        core.held(ino.0)?;
        let idle = core.idle();
        let free = core.free_blocks() + core.backing.missing() + idle.total();
        let available = free.saturating_sub(core.kept);
        // Numbers without an inode block, where bitmaps bound them.
        let (numbers, holes) = (core.inodes.units(), core.holes.free() * PER_BLOCK);
        let most = core.bitmaps_of().map_or(u64::MAX, |(layout, blocks)| layout.most_inodes(blocks) - numbers + holes);
        // Idle blocks have room for inodes as they are.
        let room = (available.saturating_sub(idle.blocks) * PER_BLOCK).min(most);
        Ok(StatFs {
            block_size: BLOCK as u64,
            blocks: core.blocks.units(),
            free_blocks: free,
            available_blocks: available,
            inodes: numbers - holes + room,
            free_inodes: core.free_inodes() + room,
            name_max: 255,
        })
    }

    fn sync(&self, _ctx: &Context) -> Result<()> {
        self.sync_all()
    }
}

impl Groups for UnguardedVfs {
    fn begin_as(&self, seen: Seen) -> wholly_error::Result<GroupId> {
        only_private(seen)?;
        self.core().begin_group().map_err(of_group)
    }

    fn add(&self, group: GroupId, handle: &Handle) -> wholly_error::Result<()> {
        self.claim(group, handle).map_err(of_file)
    }

    fn commit_all(&self, groups: &[GroupId], _how: Committed) -> wholly_error::Result<Ticket> {
        let committed = self.commit_ordered(only(groups)?, false);
        let owed = self.core().take_told();
        // Of this mount: after `fork`, it means nothing in a child that has mounted the volume again.
        committed.map(|()| Ticket(owed.map_or(0, |upto| self.core().first_number - 1 + upto.0)))
    }

    fn wait(&self, ticket: Ticket) -> wholly_error::Result<()> {
        match ticket {
            Ticket(0) => Ok(()),
            Ticket(upto) if self.volume.numbers(upto) => {
                self.core().wait(CommitSequence(upto - (self.core().first_number - 1)))
            }
            Ticket(_) => Err(Error::Invalid("a ticket of another volume, or of before a fork".into())),
        }
    }

    fn abort(&self, group: GroupId) -> wholly_error::Result<()> {
        self.core().abort_group(group).map_err(of_group)
    }
}

/// The error of a call on an open file.
fn of_file(errno: Errno) -> Error {
    Error::of("an open file", errno)
}

/// The error of a call on a group.
fn of_group(errno: Errno) -> Error {
    match errno {
        Errno::OPNOTSUPP => Error::Unsupported("groups with this volume's engine".into()),
        Errno::INVAL => Error::Invalid("there is no such running group".into()),
        Errno::IO => Error::Poisoned("the commit of a group failed".into()),
        errno => Error::of("the group", errno),
    }
}
