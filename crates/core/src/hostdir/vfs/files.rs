//! Opening regular files, and their content.

use super::open::{Open, OpenFile};
use super::{StoreVfs, Way};
use crate::hostdir::handle::File;
use crate::hostdir::names::{REGULAR, TRIES};
use crate::hostdir::running::{At, Running};
use sync::Ordering;
use wholly_vfs::rules::permit::{SEARCH, WRITE, Who, check_open};
use wholly_vfs::{Attr, Context, Errno, Fallocate, Handle, Ino, Mode, OFlags, Result, Vfs};

/// Bytes that are copied from file to file at a time.
const COPIED: usize = 1 << 20;

/// The range of a call: inside of what an offset can say.
fn range(offset: u64, len: u64) -> Result<u64> {
    let end = offset.checked_add(len).ok_or(Errno::INVAL)?;
    if i64::try_from(end).is_err() { Err(Errno::INVAL) } else { Ok(end) }
}

impl StoreVfs {
    pub(super) fn open_file(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle> {
        let id = self.inodes.id(ino)?;
        self.look(ctx, |running| self.check_open(ctx, running, id, flags))?;
        self.open_object(ctx, id, flags)
    }

    /// That the user may open an object so.
    fn check_open(&self, ctx: &Context, running: &Running, id: u64, flags: OFlags) -> Result<()> {
        let permits = |wanted| self.permits(ctx, running, id, wanted);
        let owns = || Ok(Who::of(ctx).owns(&self.stat(running, id)?));
        check_open(running.object(id)?.kind.bits(), flags, permits, owns)
    }

    /// Opens a regular file that the user may open.
    fn open_object(&self, ctx: &Context, id: u64, flags: OFlags) -> Result<Handle> {
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
        let file = self.look(ctx, |running| Ok(File::of(self.store.clone(), running.open_object(id, writes)?, b"")))?;
        if flags.contains(OFlags::TRUNC) {
            self.drop_privileges(ctx, id)?;
            self.cut(ctx, id, 0)?;
        }
        self.add_open(id, file, flags).ok_or(Errno::STALE)
    }

    /// As long as it is open it is referred to.
    fn add_open(&self, id: u64, file: File, flags: OFlags) -> Option<Handle> {
        let ino = self.inodes.refer(&self.store, id)?;
        Some(self.handles.open(Open::File(OpenFile::new(ino, id, file, flags))))
    }

    pub(super) fn create_file(
        &self,
        ctx: &Context,
        dir: Ino,
        name: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> Result<(Attr, Handle)> {
        for _ in 0..TRIES {
            match self.find(ctx, dir, name) {
                Ok(_) if name == b"." || name == b".." => {
                    return Err(if flags.contains(OFlags::EXCL) { Errno::EXIST } else { Errno::ISDIR });
                }
                Ok(attr) => {
                    let opened = match flags.contains(OFlags::EXCL) {
                        true => Err(Errno::EXIST),
                        false => self.open_file(ctx, attr.ino, flags),
                    };
                    let attr = match flags.contains(OFlags::TRUNC) && opened.is_ok() {
                        true => Attr { size: 0, ..attr },
                        false => attr,
                    };
                    if opened.is_err() {
                        drop(self.inodes.forget(&self.store, attr.ino, 1));
                    }
                    return opened.map(|handle| (attr, handle));
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            match self.make_file(ctx, dir, Ok(name), mode) {
                Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                made => return self.open_born(ctx, made?, flags),
            }
        }
        Err(Errno::BUSY)
    }

    pub(super) fn create_nameless(&self, ctx: &Context, dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
        if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return Err(Errno::INVAL);
        }
        let made = self.make_file(ctx, dir, Err(flags.contains(OFlags::EXCL)), mode)?;
        self.open_born(ctx, made, flags)
    }

    /// Makes a regular file: with a name, or without, perhaps for good.
    fn make_file(&self, ctx: &Context, dir: Ino, name: std::result::Result<&[u8], bool>, mode: Mode) -> Result<File> {
        let dir = self.inodes.id(dir)?;
        let file = |inner| File::of(self.store.clone(), inner, b"");
        self.change(ctx, |running| {
            let birth = self.birth(ctx, running, dir, REGULAR | mode.as_raw_mode() & 0o7777)?;
            let for_good = match name {
                Ok(name) => {
                    let name = self.single(dir, name)?;
                    return Ok(file(running.create_at(At::In(dir, name), birth)?));
                }
                Err(for_good) => for_good,
            };
            if !running.has_name(dir) {
                return Err(Errno::NOENT);
            }
            match self.permits(ctx, running, dir, WRITE | SEARCH)? {
                true => Ok(file(running.create_nameless(dir, birth, !for_good)?)),
                false => Err(Errno::ACCESS),
            }
        })
    }

    /// A file that was just made is open for who made it, however few permissions it has.
    fn open_born(&self, ctx: &Context, file: File, flags: OFlags) -> Result<(Attr, Handle)> {
        let id = file.inner(&self.store)?.id;
        let handle = self.add_open(id, file, flags - OFlags::TRUNC).ok_or(Errno::STALE)?;
        // The caller has a reference of its own, which it gives back: so it gets one only with an answer.
        let answer = self.handles.get::<Open>(&handle).and_then(|open| {
            let attr = self.look(ctx, |running| self.attr(running, open.ino(), id))?;
            self.inodes.refer(&self.store, id).map(|_| attr).ok_or(Errno::STALE)
        });
        match answer {
            Ok(attr) => Ok((attr, handle)),
            Err(errno) => {
                // What could be said of the end of its use is not what the call is about.
                let _ = self.release(ctx, handle);
                Err(errno)
            }
        }
    }

    pub(super) fn close_file(&self, ctx: &Context, file: &OpenFile) -> Result<()> {
        let inner = file.file.inner(&self.store)?;
        if matches!(self.way(ctx), Ok(Way::Policy)) {
            // Where the last close commits, this is what it has to say.
            let is_last = || inner.handles.load(Ordering::Acquire) == 1;
            self.used(|| self.store.epochs.close(&self.store, inner, is_last))?;
        }
        Ok(())
    }

    pub(super) fn read_file(&self, ctx: &Context, file: &OpenFile, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if !file.reads() {
            return Err(Errno::BADF);
        }
        range(offset, buf.len() as u64)?;
        let inner = file.file.inner(&self.store)?;
        self.look_at_file(ctx, |running| {
            let read = running.read(inner, offset, buf)?;
            if !file.flags.contains(OFlags::NOATIME) && file.was_read.swap(1, Ordering::Relaxed) == 0 {
                running.has_read(file.id)?;
            }
            Ok(read)
        })
    }

    /// The content of a file is about to change by a handle: see [`drop_privileges`](Self::drop_privileges).
    fn about_to_change(&self, ctx: &Context, file: &OpenFile) -> Result<()> {
        file.was_read.store(0, Ordering::Relaxed);
        let changes = self.changes.load(Ordering::Acquire);
        if file.plain_at.load(Ordering::Relaxed) != changes {
            let any = self.drop_privileges(ctx, file.id)?;
            file.plain_at.store(if any { 0 } else { changes }, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes at an offset, or at the end. Gives where, and how much.
    pub(super) fn write_file(
        &self,
        ctx: &Context,
        file: &OpenFile,
        at: Option<u64>,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        if !file.writes() {
            return Err(Errno::BADF);
        }
        range(at.unwrap_or(0), data.len() as u64)?;
        if data.is_empty() {
            let size = self.look(ctx, |running| Ok(running.stat_of(file.id)?.size))?;
            return Ok((at.unwrap_or(size), 0));
        }
        self.about_to_change(ctx, file)?;
        let inner = file.file.inner(&self.store)?;
        let write = |running: &mut Running, size: u64| {
            let offset = at.unwrap_or(size);
            running.tell_exact_times();
            let end = offset.saturating_add(data.len() as u64);
            let largest = if end <= size { size } else { self.store.longest(end) };
            let fits = largest.saturating_sub(offset).min(data.len() as u64) as usize;
            running.write(inner, offset, &data[..fits])?;
            Ok((offset, fits))
        };
        let end = at.map(|at| at.saturating_add(data.len() as u64));
        let (offset, written) = match self.way(ctx)? {
            Way::Policy => self.used(|| {
                let grows = |size| end.is_none_or(|end| end > size);
                self.store.implicit(inner, false, grows, write)
            })?,
            Way::Group(_) => self.change(ctx, |running| {
                let size = running.size_of(inner)?;
                Ok(write(running, size)?)
            })?,
        };
        if written == 0 {
            return Err(Errno::FBIG);
        }
        if file.flags.intersects(OFlags::DSYNC | OFlags::SYNC) && matches!(self.way(ctx)?, Way::Policy) {
            self.used(|| self.store.sync_file(inner))?;
        }
        Ok((offset, written))
    }

    /// Makes a file so long.
    pub(super) fn cut(&self, ctx: &Context, id: u64, size: u64) -> Result<()> {
        let inner = self.look(ctx, |running| Ok(running.open_object(id, true)?))?;
        match self.way(ctx)? {
            Way::Policy => {
                let cut = |running: &mut Running, _| {
                    running.tell_exact_times();
                    running.set_len(&inner, size)
                };
                Ok(self.used(|| self.store.implicit(&inner, true, |_| true, cut))?)
            }
            Way::Group(_) => self.change(ctx, |running| Ok(running.set_len(&inner, size)?)),
        }
    }

    pub(super) fn copy(
        &self,
        ctx: &Context,
        (from, from_offset): (&OpenFile, u64),
        (to, to_offset): (&OpenFile, u64),
        len: usize,
    ) -> Result<usize> {
        if !from.reads() || !to.writes() || to.flags.contains(OFlags::APPEND) {
            return Err(Errno::BADF);
        }
        let whole = |offset: u64| offset.checked_add(len as u64).is_some_and(|end| i64::try_from(end).is_ok());
        if !whole(from_offset) || !whole(to_offset) {
            return Err(Errno::OVERFLOW);
        }
        if len > 0 && to_offset >= self.store.longest(to_offset) {
            return Err(Errno::FBIG);
        }
        let size = self.look(ctx, |running| Ok(running.stat_of(from.id)?.size))?;
        let len = size.saturating_sub(from_offset).min(len as u64);
        if from.id == to.id && from_offset < to_offset + len && to_offset < from_offset + len {
            return Err(Errno::INVAL);
        }
        let len = usize::try_from(len).unwrap_or(COPIED);
        let mut buf = vec![0; len.min(COPIED)];
        let read = self.read_file(ctx, from, from_offset, &mut buf)?;
        if read == 0 {
            return Ok(0);
        }
        self.write_file(ctx, to, Some(to_offset), &buf[..read]).map(|(_, written)| written)
    }

    /// Changes what space a range has. Ranges are not taken out, nor put in between: what lies behind would be other
    /// blocks of the log.
    pub(super) fn allocate(&self, ctx: &Context, file: &OpenFile, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        if len == 0 || i64::try_from(offset).is_err() || i64::try_from(len).is_err() {
            return Err(Errno::INVAL);
        }
        if how.moves() {
            return Err(Errno::OPNOTSUPP);
        }
        if !file.writes() {
            return Err(Errno::BADF);
        }
        let reaches = offset.saturating_add(len);
        if reaches > self.store.longest(reaches) {
            return Err(Errno::FBIG);
        }
        self.about_to_change(ctx, file)?;
        let inner = file.file.inner(&self.store)?;
        let call = |running: &mut Running| {
            running.tell_exact_times();
            running.fallocate(inner, how, offset, len)
        };
        match self.way(ctx)? {
            Way::Policy => Ok(self.used(|| self.store.implicit(inner, true, |_| true, |running, _| call(running)))?),
            Way::Group(_) => self.change(ctx, |running| Ok(call(running)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Store};
    use wholly_sim::{SimConfig, World};
    use wholly_vfs::GroupId;

    /// A group may end between the birth of a file and the answer: nothing refers to the file then.
    #[test]
    fn a_file_that_is_born_and_not_answered_is_given_back() {
        let world = World::new(SimConfig::disk());
        let options = Options { background: false, ..Options::default() };
        Store::format_on(&*world.log(), &options, [7; 16]).expect("a store");
        let store = Store::open_on(world.log(), world.host(), options, None).expect("open it");
        let view = StoreVfs::new(&store);
        let ctx = Context::superuser();
        let flags = OFlags::RDWR | OFlags::CREATE;
        let made = view.make_file(&ctx, Ino::ROOT, Ok(b"a"), Mode::from_raw_mode(0o644)).expect("make a file");
        let ended = Context { group: Some(GroupId(99)), ..ctx.clone() };
        let answer = view.open_born(&ended, made, flags);
        assert_eq!((answer.map(drop), view.held()), (Err(Errno::INVAL), (0, 0)));
        let (attr, handle) = view.create(&ctx, Ino::ROOT, b"a", flags, Mode::RUSR).expect("open it");
        assert_eq!(view.held(), (2, 1));
        view.release(&ctx, handle).expect("close it");
        view.forget(attr.ino, 1);
        assert_eq!(view.held(), (0, 0));
    }
}
