//! The calls, and how they are made.

use wholly_vfs::{Fallocate, FileType, Found, OFlags, Rename, Seek, SetXattr, Vfs};

use super::Said;
use super::caller::{Caller, SHARED_FILE};
use super::tree::runs;
use crate::tree::{File, Tree};

/// A path from few names.
pub type Path = String;

/// One call. Files that are named are opened for it; those in slots stay open, whatever becomes of their names.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "they are the arguments of the calls")]
pub enum Op {
    Mkdir { path: Path, mode: u32, umask: u32 },
    Create { path: Path, mode: u32, umask: u32, flags: OFlags },
    Mknod { path: Path, mode: u32 },
    Symlink { path: Path, target: Path },
    Link { old: Path, new: Path },
    Unlink { path: Path },
    Rmdir { path: Path },
    Rename { old: Path, new: Path, how: Rename },
    Stat { path: Path },
    List { path: Path },
    Chmod { path: Path, mode: u32 },
    Truncate { path: Path, size: u64 },
    SetXattr { path: Path, name: &'static str, value: Vec<u8>, how: SetXattr },
    RemoveXattr { path: Path, name: &'static str },
    Open { slot: usize, path: Path, flags: OFlags },
    Close { slot: usize },
    Write { slot: usize, offset: u64, byte: u8, len: usize },
    Append { slot: usize, byte: u8, len: usize },
    Read { slot: usize, offset: u64, len: usize },
    Allocate { slot: usize, how: Fallocate, offset: u64, len: u64 },
    Seek { slot: usize, seek: Seek },
    Copy { from: usize, from_offset: u64, to: usize, to_offset: u64, len: usize },
    Sync { slot: usize },
}

/// Files of a caller's own that may be open at once.
pub(super) const SLOTS: usize = 3;

/// The slot of the file that callers share.
pub(super) const SHARED_SLOT: usize = SLOTS;

/// Makes calls on one file system.
pub(super) struct Runner<'t, 'v> {
    tree: &'t Tree<'v>,
    caller: Caller,
    slots: [Option<File<'v>>; SLOTS + 1],
    /// The directories that others change meanwhile.
    shared: Vec<Found<'v, dyn Vfs + 'v>>,
}

impl<'t, 'v> Runner<'t, 'v> {
    pub fn new(tree: &'t Tree<'v>, caller: Caller) -> wholly_vfs::Result<Self> {
        let mut slots = [const { None }; SLOTS + 1];
        if caller.has_parts() {
            slots[SHARED_SLOT] = Some(tree.open(SHARED_FILE, OFlags::RDWR)?);
        }
        let shared = caller.shared_dirs().iter().map(|dir| tree.find(dir)).collect::<Result<_, _>>()?;
        Ok(Runner { tree, caller, slots, shared })
    }

    pub fn run(&mut self, op: &Op) -> Said {
        if self.is_about_shared(op) {
            return Ok("a directory that is shared".into());
        }
        self.call(op).map_err(|errno| errno.to_string())
    }

    /// Whether a call is about the attributes of a directory that others change meanwhile: its link count is decided by
    /// who comes first.
    fn is_about_shared(&self, op: &Op) -> bool {
        let found = match op {
            Op::Stat { path } => self.tree.paths().resolve(&self.tree.ctx, self.tree.at, path.as_bytes(), true),
            Op::Chmod { path, .. } | Op::SetXattr { path, .. } | Op::RemoveXattr { path, .. } => self.tree.find(path),
            _ => return false,
        };
        found.is_ok_and(|found| self.shared.iter().any(|dir| dir.ino() == found.ino()))
    }

    fn slot(&self, slot: usize) -> wholly_vfs::Result<&File<'v>> {
        self.slots[slot].as_ref().ok_or(wholly_vfs::Errno::BADF)
    }

    fn call(&mut self, op: &Op) -> wholly_vfs::Result<String> {
        let t = self.tree;
        let done = |()| String::new();
        match op {
            Op::Mkdir { path, mode, umask } => {
                t.umask(*umask).mkdir(path, *mode).map(|attr| format!("{:?}", attr.mode))
            }
            Op::Create { path, mode, umask, flags } => {
                let made = t.umask(*umask).open_with(path, OFlags::RDWR | OFlags::CREATE | *flags, *mode)?;
                Ok(format!("{:?}", made.stat()?.mode))
            }
            Op::Mknod { path, mode } => t.mknod(path, FileType::Fifo, *mode).map(|attr| format!("{:?}", attr.mode)),
            Op::Symlink { path, target } => t.symlink(path, target).map(|attr| attr.size.to_string()),
            Op::Link { old, new } => t.link(old, new).map(|attr| attr.nlink.to_string()),
            Op::Unlink { path } => t.unlink(path).map(done),
            Op::Rmdir { path } => t.rmdir(path).map(done),
            Op::Rename { old, new, how } => t.rename_with(old, new, *how).map(done),
            Op::Stat { path } => {
                t.stat_followed(path).map(|attr| format!("{:?} {:?} {}", attr.kind, attr.mode, attr.nlink))
            }
            Op::List { path } => {
                let names = t.names(path)?.into_iter().filter(|name| self.caller.owns(&name.name));
                Ok(names.map(|name| format!("{} {:?} ", String::from_utf8_lossy(&name.name), name.kind)).collect())
            }
            Op::Chmod { path, mode } => t.chmod(path, *mode).map(|attr| format!("{:?}", attr.mode)),
            Op::Truncate { path, size } => t.truncate(path, *size).map(|attr| attr.size.to_string()),
            Op::SetXattr { path, name, value, how } => t.set_xattr_with(path, name, value, *how).map(done),
            Op::RemoveXattr { path, name } => t.remove_xattr(path, name).map(done),
            Op::Open { slot, path, flags } => {
                let opened = t.open_with(path, *flags, 0o755)?;
                let size = opened.stat()?.size;
                self.slots[*slot] = Some(opened);
                Ok(size.to_string())
            }
            Op::Close { slot } => {
                self.slots[*slot] = None;
                Ok(String::new())
            }
            Op::Write { slot, offset, byte, len } => {
                self.slot(*slot)?.write(*offset, &vec![*byte; *len]).map(|written| written.to_string())
            }
            Op::Append { slot, byte, len } => {
                self.slot(*slot)?.append(&vec![*byte; *len]).map(|(offset, written)| format!("{written} at {offset}"))
            }
            Op::Read { slot, offset, len } => self.slot(*slot)?.read(*offset, *len).map(|bytes| runs(&bytes)),
            Op::Allocate { slot, how, offset, len } => {
                let file = self.slot(*slot)?;
                file.allocate(*how, *offset, *len)?;
                Ok(file.stat()?.size.to_string())
            }
            Op::Seek { slot, seek } => self.slot(*slot)?.seek(*seek).map(|found| found.to_string()),
            Op::Copy { from, from_offset, to, to_offset, len } => self
                .slot(*from)?
                .copy_to(*from_offset, self.slot(*to)?, *to_offset, *len)
                .map(|copied| copied.to_string()),
            Op::Sync { slot } => self.slot(*slot)?.fsync().map(done),
        }
    }
}
