//! `wholly export`: copies what is in a volume into a new directory of the host.

use super::{failure, open};
use crate::args::CopyArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count};
use rustix::fs::{AtFlags, CWD, Gid, Timestamps, Uid, XattrFlags};
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use wholly::vfs::{Attr, Context, FileType, Ino, OFlags, Seek, Timestamp, Vfs};
use wholly_volume::VolumeVfs;

/// Bytes that are copied at a time.
const PIECE: u64 = 1 << 20;

#[derive(Serialize)]
struct Exported {
    volume: Name,
    dir: Name,
    objects: u64,
}

/// Copies the root of a volume into a directory, which must not exist, or be empty.
pub fn export(args: &CopyArgs, ui: &Ui) -> Result<Exit, Failure> {
    let what = || format!("export to {}", args.dir.display());
    match std::fs::read_dir(&args.dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(Failure::new(what(), "the directory is not empty")),
        Ok(false) => {}
        Err(_) => std::fs::create_dir(&args.dir).map_err(|error| Failure::new(what(), error))?,
    }
    let volume = open("export", &args.volume)?;
    let vfs = VolumeVfs::new(&volume);
    let bar = ui.spinner("exporting");
    let mut export = Export { vfs: &vfs, ctx: Context::superuser(), links: HashMap::new(), objects: 0 };
    let copied = export.directory(Ino::ROOT, &args.dir);
    let objects = export.objects;
    bar.finish_and_clear();
    drop(vfs);
    volume.close().map_err(|error| failure("export", &args.volume, error))?;
    copied.map_err(|(path, error)| Failure::new(format!("export {}", path.display()), error))?;
    let exported = Exported { volume: Name::from(&*args.volume), dir: Name::from(&*args.dir), objects };
    ui.emit("export", &exported, |exported| {
        format!("{} copied from {} to {}\n", count(exported.objects, "object"), exported.volume, exported.dir)
    })?;
    Ok(Exit::DONE)
}

struct Export<'v> {
    vfs: &'v VolumeVfs,
    ctx: Context,
    /// Files with several names: where the first one is.
    links: HashMap<Ino, PathBuf>,
    objects: u64,
}

type Copied<T> = Result<T, (PathBuf, io::Error)>;

impl Export<'_> {
    fn directory(&mut self, ino: Ino, dir: &Path) -> Copied<()> {
        let at = |error| (dir.to_path_buf(), error);
        let handle = self.vfs.opendir(&self.ctx, ino).map_err(|errno| at(errno.into()))?;
        let mut next = 0;
        loop {
            // Some names at a time: a directory may have millions.
            let mut names = Vec::new();
            let listed = self.vfs.readdir(&self.ctx, handle, next, &mut |entry| {
                if names.len() == 1000 {
                    return false;
                }
                names.push(entry.name.to_vec());
                next = entry.next;
                true
            });
            listed.map_err(|errno| at(errno.into()))?;
            if names.is_empty() {
                break;
            }
            for name in names.iter().filter(|name| !matches!(&name[..], b"." | b"..")) {
                let attr = self.vfs.lookup(&self.ctx, ino, name).map_err(|errno| at(errno.into()))?;
                let copied = self.object(&attr, &dir.join(OsStr::from_bytes(name)));
                self.vfs.forget(attr.ino, 1);
                copied?;
            }
        }
        self.vfs.releasedir(&self.ctx, handle).map_err(|errno| at(errno.into()))?;
        let attr = self.vfs.getattr(&self.ctx, ino).map_err(|errno| at(errno.into()))?;
        self.attributes(&attr, dir).map_err(at)
    }

    fn object(&mut self, attr: &Attr, path: &Path) -> Copied<()> {
        let at = |error| (path.to_path_buf(), error);
        self.objects += 1;
        if let Some(first) = self.links.get(&attr.ino) {
            return std::fs::hard_link(first, path).map_err(at);
        }
        if attr.nlink > 1 && attr.kind != FileType::Directory {
            self.links.insert(attr.ino, path.to_path_buf());
        }
        if attr.kind == FileType::Directory {
            std::fs::create_dir(path).map_err(at)?;
            return self.directory(attr.ino, path);
        }
        self.make(attr, path).and_then(|()| self.attributes(attr, path)).map_err(at)
    }

    fn make(&self, attr: &Attr, path: &Path) -> io::Result<()> {
        match attr.kind {
            FileType::RegularFile => {
                let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                file.set_len(attr.size)?;
                self.content(attr, &file)
            }
            FileType::Symlink => {
                let target = self.vfs.readlink(&self.ctx, attr.ino)?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&target), path)
            }
            kind => Ok(rustix::fs::mknodat(CWD, path, kind, attr.mode, attr.rdev)?),
        }
    }

    /// Holes stay holes.
    fn content(&self, attr: &Attr, file: &std::fs::File) -> io::Result<()> {
        let handle = self.vfs.open(&self.ctx, attr.ino, OFlags::RDONLY)?;
        let mut buf = vec![0; PIECE as usize];
        let mut at = 0;
        while let Ok(from) = self.vfs.seek(&self.ctx, handle, Seek::Data(at)) {
            let end = self.vfs.seek(&self.ctx, handle, Seek::Hole(from))?;
            at = from;
            while at < end {
                let part = (end - at).min(PIECE) as usize;
                let read = self.vfs.read(&self.ctx, handle, at, &mut buf[..part])?;
                file.write_all_at(&buf[..read], at)?;
                at += read as u64;
            }
        }
        Ok(self.vfs.release(&self.ctx, handle)?)
    }

    fn attributes(&self, attr: &Attr, path: &Path) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        if attr.kind != FileType::Symlink {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(attr.mode.as_raw_mode()))?;
        }
        for name in self.vfs.listxattr(&self.ctx, attr.ino)?.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let value = self.vfs.getxattr(&self.ctx, attr.ino, name)?;
            rustix::fs::lsetxattr(path, name, &value, XattrFlags::empty())?;
        }
        let time = |time: Timestamp| rustix::fs::Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
        let times = Timestamps { last_access: time(attr.atime), last_modification: time(attr.mtime) };
        Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}
