//! The calls, how they are chosen, and how they are made.

use proptest::prelude::*;
use proptest::sample::select;
use wholly::vfs::{FallocateFlags, FileType, OFlags, RenameFlags, Seek, XattrFlags};

use super::Said;
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
    Rename { old: Path, new: Path, flags: RenameFlags },
    Stat { path: Path },
    List { path: Path },
    Chmod { path: Path, mode: u32 },
    Truncate { path: Path, size: u64 },
    SetXattr { path: Path, name: &'static str, value: Vec<u8>, flags: XattrFlags },
    RemoveXattr { path: Path, name: &'static str },
    Open { slot: usize, path: Path, flags: OFlags },
    Close { slot: usize },
    Write { slot: usize, offset: u64, byte: u8, len: usize },
    Append { slot: usize, byte: u8, len: usize },
    Read { slot: usize, offset: u64, len: usize },
    Allocate { slot: usize, mode: FallocateFlags, offset: u64, len: u64 },
    Seek { slot: usize, seek: Seek },
    Copy { from: usize, from_offset: u64, to: usize, to_offset: u64, len: usize },
    Sync { slot: usize },
}

/// Files that may be open at once.
const SLOTS: usize = 3;

fn path() -> impl Strategy<Value = Path> {
    let name = select(vec!["a", "a", "b", "b", "c", ".", ".."]);
    let path = (prop::bool::weighted(0.1), prop::collection::vec(name, 1..4), prop::bool::weighted(0.05));
    path.prop_map(|(absolute, names, slash)| {
        [if absolute { "/" } else { "" }, &names.join("/"), if slash { "/" } else { "" }].concat()
    })
}

fn mode() -> impl Strategy<Value = u32> {
    // Who owns it keeps all permissions, so that it can be removed again by whoever runs this.
    select(vec![0o700, 0o755, 0o777, 0o1777, 0o2755, 0o4711, 0o6777])
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_000u64, (0..50u64).prop_map(|block| block * 4096), 0..200_000u64]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![0..100usize, 0..10_000usize, (0..8usize).prop_map(|blocks| blocks * 4096)]
}

fn names() -> impl Strategy<Value = Op> {
    let flags = select(vec![OFlags::empty(), OFlags::EXCL, OFlags::TRUNC, OFlags::NOFOLLOW]);
    let rename =
        select(vec![RenameFlags::empty(), RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE]);
    let umask = || select(vec![0, 0o22, 0o77]);
    prop_oneof![
        4 => (path(), mode(), umask()).prop_map(|(path, mode, umask)| Op::Mkdir { path, mode, umask }),
        4 => (path(), mode(), umask(), flags).prop_map(|(path, mode, umask, flags)| Op::Create { path, mode, umask, flags }),
        1 => (path(), mode()).prop_map(|(path, mode)| Op::Mknod { path, mode }),
        2 => (path(), path()).prop_map(|(path, target)| Op::Symlink { path, target }),
        2 => (path(), path()).prop_map(|(old, new)| Op::Link { old, new }),
        2 => path().prop_map(|path| Op::Unlink { path }),
        2 => path().prop_map(|path| Op::Rmdir { path }),
        4 => (path(), path(), rename).prop_map(|(old, new, flags)| Op::Rename { old, new, flags }),
        2 => path().prop_map(|path| Op::Stat { path }),
        1 => path().prop_map(|path| Op::List { path }),
    ]
}

fn attributes() -> impl Strategy<Value = Op> {
    let name = || select(vec!["user.a", "user.b", "trusted.c", "other.d"]);
    let flags = select(vec![XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE]);
    let value = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        2 => (path(), mode()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        2 => (path(), offset()).prop_map(|(path, size)| Op::Truncate { path, size }),
        2 => (path(), name(), value, flags).prop_map(|(path, name, value, flags)| Op::SetXattr { path, name, value, flags }),
        1 => (path(), name()).prop_map(|(path, name)| Op::RemoveXattr { path, name }),
    ]
}

fn data() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let access = select(vec![OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR, OFlags::RDWR]);
    let more = select(vec![OFlags::empty(), OFlags::APPEND, OFlags::TRUNC, OFlags::CREATE]);
    let flags = (access, more).prop_map(|(access, more)| access | more);
    let mode = select(vec![
        FallocateFlags::empty(),
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::ZERO_RANGE,
    ]);
    let seek = (any::<bool>(), offset()).prop_map(|(data, at)| if data { Seek::Data(at) } else { Seek::Hole(at) });
    prop_oneof![
        4 => (slot(), path(), flags).prop_map(|(slot, path, flags)| Op::Open { slot, path, flags }),
        1 => slot().prop_map(|slot| Op::Close { slot }),
        5 => (slot(), offset(), 1..255u8, len()).prop_map(|(slot, offset, byte, len)| Op::Write { slot, offset, byte, len }),
        2 => (slot(), 1..255u8, len()).prop_map(|(slot, byte, len)| Op::Append { slot, byte, len }),
        3 => (slot(), offset(), len()).prop_map(|(slot, offset, len)| Op::Read { slot, offset, len }),
        2 => (slot(), mode, offset(), offset()).prop_map(|(slot, mode, offset, len)| Op::Allocate { slot, mode, offset, len }),
        2 => (slot(), seek).prop_map(|(slot, seek)| Op::Seek { slot, seek }),
        2 => (slot(), offset(), slot(), offset(), len()).prop_map(|(from, from_offset, to, to_offset, len)| Op::Copy { from, from_offset, to, to_offset, len }),
        1 => slot().prop_map(|slot| Op::Sync { slot }),
    ]
}

/// Sequences of calls. Most begin with files in the slots, so that there is something to write to.
pub fn sequence() -> impl Strategy<Value = Vec<Op>> {
    let open = prop::collection::vec(prop::bool::weighted(0.8), SLOTS);
    let calls = prop::collection::vec(prop_oneof![4 => names(), 2 => attributes(), 4 => data()], 1..60);
    (open, calls).prop_map(|(open, calls)| {
        let slots = (0..SLOTS).filter(|&slot| open[slot]);
        let flags = OFlags::RDWR | OFlags::CREATE;
        let opened = slots.map(|slot| Op::Open { slot, path: ["c", "b", "c"][slot].into(), flags });
        opened.chain(calls).collect()
    })
}

/// Makes calls on one file system.
pub(super) struct Runner<'t, 'v> {
    tree: &'t Tree<'v>,
    slots: [Option<File<'v>>; SLOTS],
}

impl<'t, 'v> Runner<'t, 'v> {
    pub fn new(tree: &'t Tree<'v>) -> Self {
        Runner { tree, slots: [const { None }; SLOTS] }
    }

    pub fn run(&mut self, op: &Op) -> Said {
        self.call(op).map_err(|errno| errno.to_string())
    }

    fn slot(&self, slot: usize) -> wholly::vfs::Result<&File<'v>> {
        self.slots[slot].as_ref().ok_or(wholly::vfs::Errno::BADF)
    }

    fn call(&mut self, op: &Op) -> wholly::vfs::Result<String> {
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
            Op::Rename { old, new, flags } => t.rename_with(old, new, *flags).map(done),
            Op::Stat { path } => {
                t.stat_followed(path).map(|attr| format!("{:?} {:?} {}", attr.kind, attr.mode, attr.nlink))
            }
            Op::List { path } => {
                let names = t.names(path)?.into_iter();
                Ok(names.map(|name| format!("{} {:?} ", String::from_utf8_lossy(&name.name), name.kind)).collect())
            }
            Op::Chmod { path, mode } => t.chmod(path, *mode).map(|attr| format!("{:?}", attr.mode)),
            Op::Truncate { path, size } => t.truncate(path, *size).map(|attr| attr.size.to_string()),
            Op::SetXattr { path, name, value, flags } => t.set_xattr_with(path, name, value, *flags).map(done),
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
            Op::Allocate { slot, mode, offset, len } => {
                let file = self.slot(*slot)?;
                file.allocate(*mode, *offset, *len)?;
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
