//! `wholly import`: copies a directory of the host into a volume.
//!
//! Whoever owns a directory of it may exchange what is in that meanwhile. So each object is found once, below the
//! directory that was listed, and all that is read of it is read by one descriptor ([`wholly_host::Object`]). What it
//! becomes in the volume is the superuser's alone until it has all its attributes.

use super::{failure, open};
use crate::args::CopyArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, shown};
use crate::progress::SoFar;
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use wholly_host::{At, Attributes, HOME, HostDir, HostFile, HostOptions, Object, StoreHome};
use wholly_vfs::Inode;
use wholly_vfs::{Context, Errno, FileType, Handle, Ino, Mode, OFlags, SetAttr, SetTime, SetXattr, Timestamp, Vfs};
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
    let from = HostDir::named(&args.dir, HostOptions::default())
        .map_err(|error| Failure::of_media(format!("import {}", args.dir.display()), error))?;
    let is_store = StoreHome::exists(&from).map_err(|error| told(&args.dir, error))?;
    if is_store {
        refuse_pending(&args.dir)?;
    }
    let volume = open("import", &args.volume)?;
    let vfs = VolumeVfs::new(&volume);
    let so_far = SoFar::default();
    let mut import = Import {
        vfs: &vfs,
        ctx: Context::superuser(),
        from: &from,
        links: HashMap::new(),
        buf: vec![0; PIECE],
        so_far: &so_far,
    };
    import.ctx.umask = Mode::empty();
    let copied = ui.telling("importing", || so_far.text(), || import.all());
    let copied = copied.map_err(|(path, error)| told(&args.dir.join(path), error));
    drop(vfs);
    let close = || volume.close().map_err(|error| failure("import", &args.volume, error));
    ui.telling("unmounting", || so_far.text(), close)?;
    copied?;
    if is_store {
        eprintln!("wholly: import: {}/{HOME} is left out: it is the store's own", shown(&args.dir));
    }
    let imported =
        Imported { volume: Name::from(&*args.volume), dir: Name::from(&*args.dir), objects: so_far.objects() };
    ui.emit("import", &imported, |imported| {
        format!("{} copied from {} to {}\n", count(imported.objects, "object"), imported.dir, imported.volume)
    })?;
    Ok(Exit::DONE)
}

/// Refuses a store whose log holds groups that are not written back: the directory lacks them.
fn refuse_pending(dir: &Path) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(format!("import {}", dir.display()), why);
    match wholly::check(dir) {
        Ok(report) if report.groups == 0 => Ok(()),
        Ok(report) => Err(failed(format!("{} of this store not written back", count(report.groups, "group")))
            .advice("`wholly recover` writes them back")),
        Err(error) => Err(Failure::of_store("import", dir, error)),
    }
}

fn told(path: &Path, error: wholly_media::Error) -> Failure {
    let what = format!("import {}", path.display());
    let copied = "what was copied so far is in the volume";
    match error.errno {
        Errno::XDEV => Failure::new(what, "another file system is mounted there, or it is a subvolume")
            .advice(format!("unmount it, or import a copy of the directory; {copied}")),
        Errno::STALE => Failure::new(what, "another program has changed it meanwhile")
            .advice(format!("import it when nobody does; {copied}")),
        _ => Failure::new(what, error).advice(copied),
    }
}

struct Import<'v> {
    vfs: &'v VolumeVfs,
    ctx: Context,
    from: &'v HostDir,
    /// Host files with several names: where they are in the volume. They have a reference.
    links: HashMap<Inode, Ino>,
    buf: Vec<u8>,
    so_far: &'v SoFar,
}

/// A directory that is being copied.
struct Open {
    inode: Inode,
    names: std::vec::IntoIter<Vec<u8>>,
    attributes: Attributes,
    /// What it is in the volume.
    ino: Ino,
    /// Bytes of its path.
    len: usize,
}

type Copied<T> = Result<T, wholly_media::Error>;

/// An error of the volume, as one of the host.
fn of_volume(errno: Errno) -> wholly_media::Error {
    wholly_media::Error::new("write to", "the volume", errno)
}

impl Import<'_> {
    /// However deep a directory is, this takes no more descriptors, nor more of the stack.
    fn all(&mut self) -> Result<(), (PathBuf, wholly_media::Error)> {
        let mut path = Vec::new();
        let copied = self.walk(&mut path);
        copied.map_err(|error| (OsString::from_vec(path).into(), error))
    }

    /// `path` is where it is by now.
    fn walk(&mut self, path: &mut Vec<u8>) -> Copied<()> {
        let root = self.from.object(path.as_slice().into())?;
        let mut dirs = vec![listed(&root, Ino::ROOT, 0)?];
        while let Some(dir) = dirs.last_mut() {
            path.truncate(dir.len);
            let is_top = dir.len == 0;
            let Some(name) = dir.names.find(|name| !is_top || name != HOME.as_bytes()) else {
                let dir = dirs.pop().expect("it is the last one");
                self.give(&dir.attributes, dir.ino)?;
                if dir.ino != Ino::ROOT {
                    self.vfs.forget(dir.ino, 1);
                }
                continue;
            };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(&name);
            let object = self.from.object(At { path, dir: Some(dir.inode), inode: None })?;
            self.so_far.object();
            if kind(&object) == FileType::Directory {
                let ino = self.vfs.mkdir(&self.ctx, dir.ino, &name, Mode::RWXU).map_err(of_volume)?.ino;
                dirs.push(listed(&object, ino, path.len())?);
            } else {
                self.object(&object, dir.ino, &name)?;
            }
        }
        Ok(())
    }

    fn object(&mut self, object: &Object, dir: Ino, name: &[u8]) -> Copied<()> {
        let inode = object.stat().inode();
        if let Some(known) = self.links.get(&inode).copied() {
            let linked = self.vfs.link(&self.ctx, known, dir, name).map_err(of_volume)?;
            self.vfs.forget(linked.ino, 1);
            return Ok(());
        }
        let (vfs, ctx, only_us) = (self.vfs, &self.ctx, Mode::RUSR | Mode::WUSR);
        let ino = match kind(object) {
            FileType::RegularFile => {
                let flags = OFlags::WRONLY | OFlags::EXCL;
                let (attr, handle) = vfs.create(ctx, dir, name, flags, only_us).map_err(of_volume)?;
                let copied = self.content(object, attr.ino, &handle);
                vfs.release(&self.ctx, handle).map_err(of_volume)?;
                copied?;
                attr.ino
            }
            FileType::Symlink => vfs.symlink(ctx, dir, name, &object.target()?).map_err(of_volume)?.ino,
            kind => vfs.mknod(ctx, dir, name, kind, only_us, object.stat().rdev).map_err(of_volume)?.ino,
        };
        self.give(&object.attributes()?, ino)?;
        if object.stat().nlink > 1 {
            self.links.insert(inode, ino);
        } else {
            vfs.forget(ino, 1);
        }
        Ok(())
    }

    /// Holes stay holes, and zeros become some.
    fn content(&mut self, object: &Object, ino: Ino, handle: &Handle) -> Copied<()> {
        let (file, size) = (object.open()?, object.stat().size);
        let (mut at, mut written_to) = (0, 0);
        // Where nobody can tell there are no holes.
        while let Some(begin) = file.next_data(at).unwrap_or(Some(at)).filter(|begin| *begin < size) {
            let end = file.next_hole(begin).unwrap_or(None).unwrap_or(size).min(size);
            let length = (end.saturating_sub(begin)).min(PIECE as u64) as usize;
            let read = file.read_at(begin, &mut self.buf[..length])?;
            if read == 0 {
                break;
            }
            let mut part = &self.buf[..read];
            if part.iter().all(|byte| *byte == 0) {
                part = &[];
            }
            let mut to = begin;
            while !part.is_empty() {
                let written = self.vfs.write(&self.ctx, handle, to, part).map_err(of_volume)?;
                self.so_far.bytes(written as u64);
                (part, to) = (&part[written..], to + written as u64);
                written_to = to;
            }
            at = begin + read as u64;
        }
        if written_to == size {
            return Ok(());
        }
        let size = SetAttr { size: Some(size), ..SetAttr::default() };
        self.vfs.setattr(&self.ctx, ino, Some(handle), &size).map(drop).map_err(of_volume)
    }

    /// The owner first: with the change of it capabilities and set-ID bits go.
    fn give(&self, attributes: &Attributes, ino: Ino) -> Copied<()> {
        let stat = &attributes.stat;
        let set = |change: SetAttr| self.vfs.setattr(&self.ctx, ino, None, &change).map(drop).map_err(of_volume);
        set(SetAttr { uid: Some(stat.uid), gid: Some(stat.gid), ..SetAttr::default() })?;
        for (name, value) in &attributes.xattrs {
            self.vfs.setxattr(&self.ctx, ino, name, value, SetXattr::Any).map_err(of_volume)?;
        }
        let has_mode = FileType::from_raw_mode(stat.mode) != FileType::Symlink;
        let mode = has_mode.then(|| Mode::from_raw_mode(stat.mode & 0o7777));
        let time = |ns: i64| {
            const SECOND: i64 = 1_000_000_000;
            SetTime::At(Timestamp { sec: ns.div_euclid(SECOND), nsec: ns.rem_euclid(SECOND) as u32 })
        };
        set(SetAttr { mode, atime: time(stat.atime_ns), mtime: time(stat.mtime_ns), ..SetAttr::default() })
    }
}

fn kind(object: &Object) -> FileType {
    FileType::from_raw_mode(object.stat().mode)
}

/// A directory whose names are still to be copied.
fn listed(object: &Object, ino: Ino, len: usize) -> Copied<Open> {
    let (names, attributes) = (object.names()?.into_iter(), object.attributes()?);
    Ok(Open { inode: object.stat().inode(), names, attributes, ino, len })
}
