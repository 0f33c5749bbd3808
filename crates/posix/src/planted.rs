//! Mistakes made on purpose: each must be found by some case, or by comparing. What cannot fail proves nothing.

mod mistake;

pub use mistake::Mistake;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use wholly_vfs::{Attr, Context, Errno, Found, Handle, Ino, Mode, OFlags, Result, Vfs};

/// A file system with a mistake in it, or, without one, as it is.
pub struct Planted<'v> {
    inner: &'v dyn Vfs,
    mistake: Option<Mistake>,
    /// Of inodes whose times were forgotten to be changed: what they were, and what they really are.
    forgotten: Mutex<HashMap<Ino, (Attr, Attr)>>,
    /// What handles are open on.
    open: Mutex<HashMap<u64, Ino>>,
}

/// An inode whose times are to be forgotten, and what keeps it known meanwhile.
type Known<'v> = (Ino, Option<Found<'v, dyn Vfs + 'v>>);

impl<'v> Planted<'v> {
    /// Plants a mistake.
    pub fn new(inner: &'v dyn Vfs, mistake: Option<Mistake>) -> Self {
        Planted { inner, mistake, forgotten: Mutex::default(), open: Mutex::default() }
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Makes a call, after which an inode seems to have its times of before.
    fn forgetting<T>(
        &self,
        mistake: Mistake,
        ctx: &Context,
        known: impl FnOnce() -> Result<Known<'v>>,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some((ino, _found)) = self.has(mistake).then(known).and_then(Result::ok) else { return call() };
        let before = self.getattr(ctx, ino)?;
        let done = call()?;
        let after = self.inner.getattr(ctx, ino)?;
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).insert(ino, (before, after));
        Ok(done)
    }

    fn seen(&self, mut attr: Attr) -> Attr {
        let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, after)) = forgotten.get(&attr.ino)
            && (attr.atime, attr.mtime, attr.ctime) == (after.atime, after.mtime, after.ctime)
        {
            (attr.atime, attr.mtime, attr.ctime) = (before.atime, before.mtime, before.ctime);
        }
        if self.has(Mistake::LinkCountsAreOne) {
            attr.nlink = 1;
        }
        attr
    }

    fn named(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Known<'v>> {
        let attr = self.inner.lookup(ctx, dir, name)?;
        Ok((attr.ino, Some(Found::counted(self.inner, attr))))
    }

    fn opened(&self, handle: &Handle) -> Result<Known<'v>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.number()).map(|&ino| (ino, None)).ok_or(Errno::BADF)
    }

    fn keep(&self, handle: Handle, ino: Ino) -> Handle {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.number(), ino);
        handle
    }

    fn ctx(&self, ctx: &Context, mistake: Mistake) -> Context {
        if self.has(mistake) { Context { umask: ctx.umask, ..Context::superuser() } } else { ctx.clone() }
    }

    fn masked(&self, ctx: &Context) -> Context {
        let umask = if self.has(Mistake::UmaskIsIgnored) { Mode::empty() } else { ctx.umask };
        Context { umask, ..ctx.clone() }
    }

    fn flags(&self, flags: OFlags) -> OFlags {
        let ignored = [
            (Mistake::AppendFlagIsIgnored, OFlags::APPEND),
            (Mistake::TruncFlagIsIgnored, OFlags::TRUNC),
            (Mistake::ExclFlagIsIgnored, OFlags::EXCL),
        ];
        ignored.into_iter().filter(|(mistake, _)| self.has(*mistake)).fold(flags, |flags, (_, flag)| flags - flag)
    }

    fn name<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        if self.has(Mistake::LongNamesAreCut) { &name[..name.len().min(255)] } else { name }
    }
}

wholly_vfs::pass_on! {
    impl [] Planted<'_>;
    call |this, ctx, pass| pass(this.inner, ctx);
    bare |this, pass| pass(this.inner);
    {
        fn lookup(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr> {
            let name = if self.has(Mistake::DotDotStays) && name == b".." { b"." } else { self.name(name) };
            self.inner.lookup(ctx, dir, name).map(|attr| self.seen(attr))
        }

        fn getattr(&self, ctx: &Context, ino: Ino) -> Result<Attr> {
            self.inner.getattr(ctx, ino).map(|attr| self.seen(attr))
        }

        fn setattr(&self, ctx: &Context, ino: Ino, handle: Option<&Handle>, change: &SetAttr) -> Result<Attr> {
            let mut change = *change;
            if let Some(size) = change.size.filter(|_| self.has(Mistake::TruncateNeverGrows)) {
                change.size = Some(size.min(self.inner.getattr(ctx, ino)?.size));
            }
            if change.mode.is_none() {
                return self.inner.setattr(ctx, ino, handle, &change).map(|attr| self.seen(attr));
            }
            let chmod = || self.inner.setattr(ctx, ino, handle, &change);
            self.forgetting(Mistake::ChmodForgetsTimes, ctx, || Ok((ino, None)), chmod).map(|attr| self.seen(attr))
        }

        fn access(&self, ctx: &Context, ino: Ino, access: Access) -> Result<()> {
            if self.has(Mistake::AccessIsAlwaysGranted) { Ok(()) } else { self.inner.access(ctx, ino, access) }
        }

        fn mknod(&self, ctx: &Context, dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr> {
            self.inner.mknod(&self.masked(ctx), dir, self.name(name), kind, mode, rdev).map(|attr| self.seen(attr))
        }

        fn mkdir(&self, ctx: &Context, dir: Ino, name: &[u8], mode: Mode) -> Result<Attr> {
            let (ctx, name) = (self.masked(ctx), self.name(name));
            let mkdir = || self.inner.mkdir(&ctx, dir, name, mode);
            let made = self.forgetting(Mistake::MkdirForgetsTimes, &ctx, || Ok((dir, None)), mkdir)?;
            if self.has(Mistake::DirectoriesKeepNoSetgid) {
                let change = SetAttr { mode: Some(made.mode - Mode::SGID), ..SetAttr::default() };
                return self.inner.setattr(&ctx, made.ino, None, &change);
            }
            Ok(self.seen(made))
        }

        fn symlink(&self, ctx: &Context, dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
            self.inner.symlink(ctx, dir, self.name(name), target).map(|attr| self.seen(attr))
        }

        fn link(&self, ctx: &Context, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
            self.inner.link(ctx, ino, dir, self.name(name)).map(|attr| self.seen(attr))
        }

        fn unlink(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
            let ctx = self.ctx(ctx, Mistake::StickyIsIgnored);
            let unlink = || self.inner.unlink(&ctx, dir, self.name(name));
            self.forgetting(Mistake::UnlinkForgetsTimes, &ctx, || self.named(&ctx, dir, name), unlink)
        }

        fn rmdir(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
            match self.inner.rmdir(ctx, dir, self.name(name)) {
                Err(Errno::NOTEMPTY) if self.has(Mistake::FullDirectoriesSeemRemoved) => Ok(()),
                done => done,
            }
        }

        fn rename(
            &self,
            ctx: &Context,
            from: Ino,
            name: &[u8],
            to: Ino,
            new_name: &[u8],
            mut how: Rename,
        ) -> Result<()> {
            if self.has(Mistake::RenameDropsNoReplace) {
                how = if how == Rename::NoReplace { Rename::Replace } else { how };
            }
            if self.has(Mistake::ExchangeOnlyRenames) {
                how = if how == Rename::Exchange { Rename::Replace } else { how };
            }
            let rename = || self.inner.rename(ctx, from, self.name(name), to, self.name(new_name), how);
            self.forgetting(Mistake::RenameForgetsTimes, ctx, || self.named(ctx, from, name), rename)
        }

        fn open(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle> {
            let ctx = self.ctx(ctx, Mistake::EverybodyOpensEverything);
            Ok(self.keep(self.inner.open(&ctx, ino, self.flags(flags))?, ino))
        }

        fn create(&self, ctx: &Context, dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
            let (attr, handle) = self.inner.create(&self.masked(ctx), dir, self.name(name), self.flags(flags), mode)?;
            Ok((self.seen(attr), self.keep(handle, attr.ino)))
        }

        fn tmpfile(&self, ctx: &Context, dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
            let (attr, handle) = self.inner.tmpfile(&self.masked(ctx), dir, self.flags(flags), mode)?;
            Ok((self.seen(attr), self.keep(handle, attr.ino)))
        }

        fn read(&self, ctx: &Context, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
            if self.has(Mistake::RemovedFilesAreEmpty) && self.inner.getattr(ctx, self.opened(handle)?.0)?.nlink == 0 {
                return Ok(0);
            }
            let read = || self.inner.read(ctx, handle, offset, buf);
            self.forgetting(Mistake::ReadForgetsTimes, ctx, || self.opened(handle), read)
        }

        fn write(&self, ctx: &Context, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
            let ctx = self.ctx(ctx, Mistake::WriteKeepsSetIds);
            let write = || self.inner.write(&ctx, handle, offset, data);
            self.forgetting(Mistake::WriteForgetsTimes, &ctx, || self.opened(handle), write)
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
            let from_offset = if self.has(Mistake::CopyStartsAtZero) { 0 } else { from_offset };
            self.inner.copy_file_range(ctx, from, from_offset, to, to_offset, len)
        }

        fn fallocate(&self, ctx: &Context, handle: &Handle, mut how: Fallocate, offset: u64, len: u64) -> Result<()> {
            if self.has(Mistake::PunchDoesNothing) && how == Fallocate::Punch {
                return Ok(());
            }
            if self.has(Mistake::KeepSizeIsIgnored) && how == Fallocate::Keep {
                how = Fallocate::Extend;
            }
            self.inner.fallocate(ctx, handle, how, offset, len)
        }

        fn seek(&self, ctx: &Context, handle: &Handle, seek: Seek) -> Result<u64> {
            let found = self.inner.seek(ctx, handle, seek);
            match seek {
                Seek::Data(offset) if self.has(Mistake::SeekSeesNoHoles) => found.map(|_| offset),
                _ => found,
            }
        }

        fn release(&self, ctx: &Context, handle: Handle) -> Result<()> {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.number());
            self.inner.release(ctx, handle)
        }

        fn readdir(
            &self,
            ctx: &Context,
            handle: &Handle,
            offset: u64,
            each: &mut dyn FnMut(Listed<'_>) -> bool,
        ) -> Result<()> {
            let mut skip = self.has(Mistake::ReaddirSkipsOne) && offset != 0;
            self.inner.readdir(ctx, handle, offset, &mut |entry| std::mem::take(&mut skip) || each(entry))
        }

        fn setxattr(&self, ctx: &Context, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
            let how = if self.has(Mistake::XattrFlagsAreIgnored) { SetXattr::Any } else { how };
            self.inner.setxattr(ctx, ino, name, value, how)
        }

        fn removexattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<()> {
            if self.has(Mistake::XattrsAreNotRemoved) {
                return self.inner.getxattr(ctx, ino, name).map(drop);
            }
            self.inner.removexattr(ctx, ino, name)
        }
    }
}
