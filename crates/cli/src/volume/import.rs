//! `wholly import`: copies a directory of the host into a volume.

use super::{failure, open};
use crate::args::CopyArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use wholly::vfs::{Context, FileType, Ino, Mode, OFlags, SetAttr, SetTime, Timestamp, Vfs, XattrFlags};
use wholly_volume::VolumeVfs;

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

#[derive(Serialize)]
struct Imported {
    volume: Name,
    dir: Name,
    objects: u64,
}

/// Copies a directory into the root of a volume.
pub fn import(args: &CopyArgs, ui: &Ui) -> Result<Exit, Failure> {
    let volume = open("import", &args.volume)?;
    let vfs = VolumeVfs::new(&volume);
    let bar = ui.spinner("importing");
    let mut import = Import { vfs: &vfs, ctx: Context::superuser(), links: HashMap::new(), objects: 0 };
    import.ctx.umask = Mode::empty();
    let copied = import.directory(&args.dir, Ino::ROOT).map_err(|(path, error)| {
        Failure::new(format!("import {}", path.display()), error).advice("what was copied so far is in the volume")
    });
    let objects = import.objects;
    bar.finish_and_clear();
    drop(vfs);
    volume.close().map_err(|error| failure("import", &args.volume, error))?;
    copied?;
    let imported = Imported { volume: Name::from(&*args.volume), dir: Name::from(&*args.dir), objects };
    ui.emit("import", &imported, |imported| {
        format!("{} copied from {} to {}\n", count(imported.objects, "object"), imported.dir, imported.volume)
    })?;
    Ok(Exit::DONE)
}

struct Import<'v> {
    vfs: &'v VolumeVfs,
    ctx: Context,
    /// Host files with several names: where they are in the volume. They have a reference.
    links: HashMap<(u64, u64), Ino>,
    objects: u64,
}

type Copied<T> = Result<T, (std::path::PathBuf, io::Error)>;

impl Import<'_> {
    fn directory(&mut self, dir: &Path, ino: Ino) -> Copied<()> {
        let at = |error| (dir.to_path_buf(), error);
        for entry in std::fs::read_dir(dir).map_err(at)? {
            self.object(&entry.map_err(at)?.path(), ino)?;
        }
        self.attributes(dir, ino).map_err(at)
    }

    fn object(&mut self, path: &Path, dir: Ino) -> Copied<()> {
        let at = |error| (path.to_path_buf(), error);
        let found = path.symlink_metadata().map_err(at)?;
        let name = path.file_name().expect("an entry has a name").as_bytes();
        let id = (found.dev(), found.ino());
        self.objects += 1;
        if let Some(known) = self.links.get(&id).copied() {
            let linked = self.vfs.link(&self.ctx, known, dir, name).map_err(|errno| at(errno.into()))?;
            self.vfs.forget(linked.ino, 1);
            return Ok(());
        }
        let ino = self.make(path, &found, dir, name).map_err(at)?;
        if found.is_dir() {
            self.directory(path, ino)?;
        } else {
            self.attributes(path, ino).map_err(at)?;
        }
        if found.nlink() > 1 && !found.is_dir() {
            self.links.insert(id, ino);
        } else {
            self.vfs.forget(ino, 1);
        }
        Ok(())
    }

    fn make(&mut self, path: &Path, found: &std::fs::Metadata, dir: Ino, name: &[u8]) -> io::Result<Ino> {
        let (vfs, ctx) = (self.vfs, &self.ctx);
        let mode = Mode::from_raw_mode(found.mode() & 0o7777);
        let kind = found.file_type();
        if kind.is_file() {
            let flags = OFlags::WRONLY | OFlags::EXCL;
            let (attr, handle) = vfs.create(ctx, dir, name, flags, mode)?;
            let copied = self.content(path, found.len(), handle);
            vfs.release(ctx, handle)?;
            return copied.map(|()| attr.ino);
        }
        Ok(if kind.is_dir() {
            vfs.mkdir(ctx, dir, name, mode)?.ino
        } else if kind.is_symlink() {
            vfs.symlink(ctx, dir, name, std::fs::read_link(path)?.as_os_str().as_bytes())?.ino
        } else {
            let kind = match kind {
                kind if kind.is_fifo() => FileType::Fifo,
                kind if kind.is_socket() => FileType::Socket,
                kind if kind.is_block_device() => FileType::BlockDevice,
                _ => FileType::CharacterDevice,
            };
            vfs.mknod(ctx, dir, name, kind, mode, found.rdev())?.ino
        })
    }

    /// Zeros become holes.
    fn content(&self, path: &Path, len: u64, handle: wholly::vfs::Handle) -> io::Result<()> {
        let mut file = std::fs::File::open(path)?;
        let mut buf = vec![0; PIECE];
        let mut at = 0;
        loop {
            let read = file.read(&mut buf)?;
            if read == 0 {
                break;
            }
            let mut part = &buf[..read];
            if part.iter().all(|byte| *byte == 0) {
                part = &[];
            }
            let mut to = at;
            while !part.is_empty() {
                let written = self.vfs.write(&self.ctx, handle, to, part)?;
                (part, to) = (&part[written..], to + written as u64);
            }
            at += read as u64;
        }
        if at < len || at > 0 {
            // The end may be a hole.
            self.vfs.fallocate(
                &self.ctx,
                handle,
                wholly::vfs::FallocateFlags::PUNCH_HOLE | wholly::vfs::FallocateFlags::KEEP_SIZE,
                at,
                PIECE as u64,
            )?;
        }
        Ok(())
    }

    fn attributes(&self, path: &Path, ino: Ino) -> io::Result<()> {
        for (name, value) in xattrs(path)? {
            self.vfs.setxattr(&self.ctx, ino, &name, &value, XattrFlags::empty())?;
        }
        let found = path.symlink_metadata()?;
        let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        let time = |sec, nsec| SetTime::At(Timestamp { sec, nsec });
        let kind = found.file_type();
        let owner = SetAttr { uid: Some(found.uid()), gid: Some(found.gid()), ..SetAttr::default() };
        self.vfs.setattr(&self.ctx, ino, None, &owner)?;
        let change = SetAttr {
            mode: (!kind.is_symlink()).then(|| Mode::from_raw_mode(found.mode() & 0o7777)),
            size: kind.is_file().then_some(found.len()),
            ..SetAttr::default()
        };
        self.vfs.setattr(&self.ctx, ino, None, &change)?;
        let times = SetAttr {
            atime: time(stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec),
            mtime: time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ..SetAttr::default()
        };
        self.vfs.setattr(&self.ctx, ino, None, &times)?;
        Ok(())
    }
}

/// The extended attributes of a host object.
fn xattrs(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut names) {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        len => len?,
    };
    let mut all = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        match rustix::fs::lgetxattr(path, name, &mut value) {
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {}
            len => {
                value.truncate(len?);
                all.push((name.to_vec(), value));
            }
        }
    }
    Ok(all)
}
