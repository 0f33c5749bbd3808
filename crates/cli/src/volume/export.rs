//! `wholly export`: copies what is in a volume into a new directory of the host.
//!
//! The copy is made where nobody else reaches it, and moved to its place as a whole ([`HostDir::fill`]): so paths are
//! safe, also in a directory of another user.

use super::{failure, open};
use crate::args::CopyArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count};
use crate::progress::SoFar;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wholly_host::{Attributes, HostDir, HostNames, HostOptions};
use wholly_media::Site;
use wholly_vfs::Stat;
use wholly_vfs::{Attr, Context, Errno, FileType, Handle, Ino, OFlags, Seek, Timestamp, Vfs};
use wholly_volume::VolumeVfs;

const EXPORT: Site = Site("export");

/// Bytes that are copied at a time.
const PIECE: u64 = 1 << 20;

/// Names that are read at a time: a directory may have millions.
const NAMES: usize = 100;

#[derive(Serialize)]
struct Exported {
    volume: Name,
    dir: Name,
    objects: u64,
}

/// Copies the root of a volume into a directory, which must not exist, or be empty.
pub fn export(args: &CopyArgs, ui: &Ui) -> Result<Exit, Failure> {
    let volume = open("export", &args.volume)?;
    let vfs = VolumeVfs::new(&volume);
    let so_far = SoFar::default();
    let fill = || {
        let dir = HostDir::named_or_made(&args.dir, HostOptions::default())?;
        Arc::new(dir).fill(|tree| {
            let ctx = Context::superuser();
            Export { vfs: &vfs, ctx, tree, links: HashMap::new(), so_far: &so_far }.all()
        })
    };
    let exported = ui.telling("exporting", || so_far.text(), fill);
    drop(vfs);
    volume.close().map_err(|error| failure("export", &args.volume, error))?;
    exported.map_err(|fault: Fault| fault.told(&args.dir))?;
    let (volume, dir) = (Name::from(&*args.volume), Name::from(&*args.dir));
    let exported = Exported { volume, dir, objects: so_far.objects() };
    ui.emit("export", &exported, |exported| {
        format!("{} copied from {} to {}\n", count(exported.objects, "object"), exported.volume, exported.dir)
    })?;
    Ok(Exit::DONE)
}

/// What went wrong, and at which path of the volume.
struct Fault {
    path: Option<PathBuf>,
    why: wholly_media::Error,
}

impl From<wholly_media::Error> for Fault {
    fn from(why: wholly_media::Error) -> Fault {
        Fault { path: None, why }
    }
}

impl Fault {
    fn told(self, dir: &Path) -> Failure {
        let Some(path) = self.path else {
            let what = format!("export to {}", dir.display());
            return match self.why.errno {
                Errno::NOTEMPTY => Failure::new(what, "the directory is not empty"),
                _ => Failure::of_media(what, self.why),
            };
        };
        Failure::of_media(format!("export {}", dir.join(path).display()), self.why)
            .advice("nothing was copied; put that right and export again")
    }
}

struct Export<'v> {
    vfs: &'v VolumeVfs,
    ctx: Context,
    tree: &'v HostDir,
    /// Files with several names: where the first one is.
    links: HashMap<Ino, Vec<u8>>,
    so_far: &'v SoFar,
}

/// A directory that is being copied.
struct Open {
    ino: Ino,
    handle: Handle,
    /// Where to go on reading its names.
    next: u64,
    names: VecDeque<Vec<u8>>,
    /// Bytes of its path.
    len: usize,
}

type Copied<T> = Result<T, wholly_media::Error>;

/// An error of the volume, as one of the host.
fn of_volume(errno: Errno) -> wholly_media::Error {
    wholly_media::Error::new("read", "the volume", errno)
}

impl Export<'_> {
    /// However deep a directory is, this takes no more of the stack.
    fn all(&mut self) -> Result<(), Fault> {
        let mut path = Vec::new();
        let copied = self.walk(&mut path);
        copied.map_err(|why| Fault { path: Some(OsString::from_vec(path).into()), why })
    }

    /// `path` is where it is by now.
    fn walk(&mut self, path: &mut Vec<u8>) -> Copied<()> {
        let mut dirs = vec![self.open(Ino::ROOT, 0)?];
        while let Some(dir) = dirs.last_mut() {
            path.truncate(dir.len);
            let Some(name) = self.next_name(dir)? else {
                let dir = dirs.pop().expect("it is the last one");
                self.vfs.releasedir(&self.ctx, dir.handle).map_err(of_volume)?;
                let attr = self.vfs.getattr(&self.ctx, dir.ino).map_err(of_volume)?;
                self.attributes(&attr, path)?;
                if dir.ino != Ino::ROOT {
                    self.vfs.forget(dir.ino, 1);
                }
                continue;
            };
            let attr = self.vfs.lookup(&self.ctx, dir.ino, &name).map_err(of_volume)?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name);
            self.so_far.object();
            if attr.kind == FileType::Directory {
                self.tree.mkdir(EXPORT, path, 0o700)?;
                dirs.push(self.open(attr.ino, path.len())?);
            } else {
                self.object(&attr, path)?;
                self.vfs.forget(attr.ino, 1);
            }
        }
        Ok(())
    }

    fn open(&self, ino: Ino, len: usize) -> Copied<Open> {
        let handle = self.vfs.opendir(&self.ctx, ino).map_err(of_volume)?;
        Ok(Open { ino, handle, next: 0, names: VecDeque::new(), len })
    }

    fn next_name(&self, dir: &mut Open) -> Copied<Option<Vec<u8>>> {
        if dir.names.is_empty() {
            let (from, names, next) = (dir.next, &mut dir.names, &mut dir.next);
            let listed = self.vfs.readdir(&self.ctx, &dir.handle, from, &mut |entry| {
                if names.len() == NAMES {
                    return false;
                }
                if !matches!(entry.name, b"." | b"..") {
                    names.push_back(entry.name.to_vec());
                }
                *next = entry.next;
                true
            });
            listed.map_err(of_volume)?;
        }
        Ok(dir.names.pop_front())
    }

    fn object(&mut self, attr: &Attr, path: &[u8]) -> Copied<()> {
        if let Some(first) = self.links.get(&attr.ino) {
            return self.tree.hard_link(EXPORT, first, path);
        }
        if attr.nlink > 1 {
            self.links.insert(attr.ino, path.to_vec());
        }
        match attr.kind {
            FileType::RegularFile => self.file(attr, path)?,
            FileType::Symlink => {
                let target = self.vfs.readlink(&self.ctx, attr.ino).map_err(of_volume)?;
                self.tree.symlink(EXPORT, &target, path)?;
            }
            kind => self.tree.mknod(EXPORT, path, kind.as_raw_mode() | 0o600, attr.rdev)?,
        }
        self.attributes(attr, path)
    }

    /// Holes stay holes.
    fn file(&self, attr: &Attr, path: &[u8]) -> Copied<()> {
        let file = self.tree.create(EXPORT, path, 0o600)?;
        file.set_len(EXPORT, attr.size)?;
        let handle = self.vfs.open(&self.ctx, attr.ino, OFlags::RDONLY).map_err(of_volume)?;
        let mut buf = vec![0; PIECE.min(attr.size) as usize];
        let mut at = 0;
        while let Ok(from) = self.vfs.seek(&self.ctx, &handle, Seek::Data(at)) {
            let end = self.vfs.seek(&self.ctx, &handle, Seek::Hole(from)).map_err(of_volume)?;
            at = from;
            while at < end {
                let part = (end - at).min(PIECE) as usize;
                let read = self.vfs.read(&self.ctx, &handle, at, &mut buf[..part]).map_err(of_volume)?;
                file.write_at(EXPORT, at, &buf[..read])?;
                self.so_far.bytes(read as u64);
                at += read as u64;
            }
        }
        self.vfs.release(&self.ctx, handle).map_err(of_volume)
    }

    fn attributes(&self, attr: &Attr, path: &[u8]) -> Copied<()> {
        let names = self.vfs.listxattr(&self.ctx, attr.ino).map_err(of_volume)?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let value = |name: &[u8]| {
            let value = self.vfs.getxattr(&self.ctx, attr.ino, name).map_err(of_volume)?;
            Ok((name.to_vec(), value))
        };
        let ns = |time: Timestamp| time.sec.saturating_mul(1_000_000_000).saturating_add(time.nsec.into());
        let stat = Stat {
            mode: attr.kind.as_raw_mode() | attr.mode.as_raw_mode(),
            uid: attr.uid,
            gid: attr.gid,
            atime_ns: ns(attr.atime),
            mtime_ns: ns(attr.mtime),
            ..Stat::default()
        };
        let attributes = Attributes { stat, xattrs: names.map(value).collect::<Copied<_>>()? };
        attributes.give(EXPORT, self.tree, path, &mut |_, error| Err(error))
    }
}
