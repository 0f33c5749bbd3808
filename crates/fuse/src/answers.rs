//! What the kernel is answered, and asked for, and what of a request takes more than one look.

use fuser::{InitFlags, KernelConfig, ReplyData, ReplyEmpty, ReplyWrite, ReplyXattr, Request};
use wholly_vfs::{Attr, Errno, FileType, Mode, Result, SetAttr, SetTime};

use crate::convert::errno;

/// The most bytes that one write, or one read, brings.
const LARGEST: u32 = 1 << 20;

/// Bytes that one call may write to a file, at any offset, so that they are one request where
/// [`MountOptions::whole_writes`](crate::MountOptions::whole_writes) asks for that.
pub const LARGEST_WRITE: usize = (LARGEST as usize) - 4096;

pub(crate) fn done(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

pub(crate) fn data(reply: ReplyData, result: Result<Vec<u8>>) {
    match result {
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(errno(error)),
    }
}

pub(crate) fn written(reply: ReplyWrite, result: Result<usize>) {
    match result {
        Ok(bytes) => reply.written(bytes as u32),
        Err(error) => reply.error(errno(error)),
    }
}

/// A value, or how long it is, as was asked.
pub(crate) fn value(reply: ReplyXattr, size: u32, result: Result<Vec<u8>>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Errno::RANGE)),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits & 0o7777)
}

/// Whether a change of attributes costs a file its set-id bits, beside one of its owner, of which the store knows. A
/// new size does, unless it is the superuser's: of the request's flags the crate does not tell the one that says so.
/// And so does a request that asks for nothing: the kernel makes one for a `chown` that gives no new owner, and before
/// a change of content that takes the bits.
pub(crate) fn takes_set_id(req: &Request, change: &SetAttr) -> bool {
    let SetAttr { mode, uid, gid, size, atime, mtime } = change;
    let nothing = (mode, uid, gid, size) == (&None, &None, &None, &None);
    (size.is_some() && req.uid() != 0) || (nothing && [atime, mtime].iter().all(|time| matches!(time, SetTime::Omit)))
}

/// What is left of a file's mode without them, where that is another one.
pub(crate) fn without_set_id(found: &Attr) -> Option<Mode> {
    let group = if found.mode.contains(Mode::XGRP) { Mode::SGID } else { Mode::empty() };
    let left = found.mode - (Mode::SUID | group);
    Some(left).filter(|left| found.kind != FileType::Directory && *left != found.mode)
}

/// Asks the kernel for what a mount wants to have of it. What is measured beside ours asks for the same.
///
/// `content_changes` says whether the content of files changes without the kernel: then it drops all pages of a file
/// when it sees another time of change, also one that its own write has made. `threads` is how many may answer.
#[doc(hidden)]
pub fn ask(config: &mut KernelConfig, threads: usize, content_changes: bool) {
    let wanted = [
        InitFlags::FUSE_ASYNC_READ,
        // Default access lists say what becomes of a mode, and only the store knows them.
        InitFlags::FUSE_DONT_MASK,
        InitFlags::FUSE_POSIX_ACL,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        // Also what is open for writing may be mapped, where whole writes are wanted.
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        // Set-id bits go here when content or owner change ([`takes_set_id`]): else the kernel would ask for a file's
        // attributes before each `chown`, and for its capabilities before each write.
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        // Numbers of inodes mean nothing once nobody refers to them, so `name_to_handle_at` fails at once (EOPNOTSUPP)
        // instead of giving out handles that are stale as soon as the kernel forgets the inode.
        InitFlags::FUSE_NO_EXPORT_SUPPORT,
    ];
    // What a bystander has done to a file is seen once its attributes are asked for again.
    let if_content_changes = content_changes.then_some(InitFlags::FUSE_AUTO_INVAL_DATA);
    for flag in wanted.into_iter().chain(if_content_changes) {
        // What the kernel cannot do it does without.
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(LARGEST);
    let _ = config.set_max_readahead(LARGEST);
    // Reads ahead and page writes are background requests. Some threads are left for other calls. At 3/4 of this number
    // the kernel reads less ahead.
    let background = threads.saturating_sub(threads.div_ceil(8)).max(1);
    let _ = config.set_max_background(u16::try_from(background).unwrap_or(u16::MAX));
}
