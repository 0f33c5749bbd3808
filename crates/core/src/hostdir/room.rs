//! Space on the host for what is written back later. A call that needs more than the host has is refused before it
//! changes anything, as the host would refuse it.
//!
//! # Terms
//!
//! - *promise*: bytes and inodes that a running or committed group takes from the host when it is written back.
//! - *allowance*: what may be promised before the store asks the host again how much is free.
//! - *spare space*: a file of the store's own that gives the host 2 MiB back when the host has no more.
//!
//! # Invariants
//!
//! 1. All promises together are at most what was free when the host was last asked. (If other programs use the space
//!    meanwhile, the log keeps its groups until there is space again.)
//! 2. Before a call is refused, a checkpoint runs: removed files free their space. So does undo that is kept, which is
//!    dropped then, the oldest first. How much a quota leaves the host does not say: where it refuses something, undo
//!    is dropped before that is tried again.

use rustix::io::Errno;
use wholly_changes::Kind;
use wholly_host::HostFs;

use super::StoreInner;
use super::names::State;
use super::table::FileTable;
use crate::error::{Error, Result};
use crate::site;
use index::BLOCK;
use sync::{AtomicU8, AtomicU64, Ordering};

/// Bytes of a directory entry besides the name.
const NAME_BYTES: u64 = 16;

/// The longest target of a symbolic link that is stored in the inode.
const SHORT_TARGET: usize = 59;

/// Bytes of extended attributes that are stored in the inode.
const IN_INODE: usize = 80;

/// One part in so many of the free space is left to the host's own metadata: block maps, directory blocks.
const METADATA_PART: u64 = 32;

/// One part in so many of the free space is allowed before the host is asked again, because other programs use it too.
const PART: u64 = 4;

/// Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promise {
    pub bytes: u64,
    pub inodes: u64,
}

impl Promise {
    pub fn bytes(bytes: u64) -> Promise {
        Promise { bytes, inodes: 0 }
    }

    /// Of a new name.
    pub fn name(name: &[u8]) -> Promise {
        Promise::bytes(name.len() as u64 + NAME_BYTES)
    }

    /// Of a new object.
    pub fn object(kind: Kind, target: &[u8]) -> Promise {
        let has_block = kind == Kind::Directory || target.len() > SHORT_TARGET;
        Promise { bytes: if has_block { BLOCK } else { 0 }, inodes: 1 }
    }

    /// Of the extended attributes of an object, which come to so many bytes: few fit into the inode.
    pub fn xattrs(bytes: usize) -> Promise {
        let blocks = if bytes <= IN_INODE { 0 } else { (bytes as u64).div_ceil(BLOCK) };
        Promise::bytes(blocks * BLOCK)
    }

    pub fn is_none(self) -> bool {
        self == Promise::default()
    }

    pub fn plus(self, more: Promise) -> Promise {
        Promise { bytes: self.bytes.saturating_add(more.bytes), inodes: self.inodes.saturating_add(more.inodes) }
    }
}

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Room {
    allowed_bytes: AtomicU64,
    allowed_inodes: AtomicU64,
    /// Promises of running groups.
    running_bytes: AtomicU64,
    running_inodes: AtomicU64,
    /// State of the spare space: one of the constants below.
    spare: AtomicU8,
}

fn take(from: &AtomicU64, much: u64) -> bool {
    let mut left = from.load(Ordering::Acquire);
    while let Some(rest) = left.checked_sub(much).filter(|_| much > 0) {
        match from.compare_exchange_weak(left, rest, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(now) => left = now,
        }
    }
    much == 0
}

impl Room {
    fn take(&self, promise: Promise) -> bool {
        if !take(&self.allowed_inodes, promise.inodes) {
            return false;
        }
        let taken = take(&self.allowed_bytes, promise.bytes);
        if !taken {
            self.allowed_inodes.fetch_add(promise.inodes, Ordering::AcqRel);
        }
        taken
    }

    fn running(&self) -> Promise {
        Promise {
            bytes: self.running_bytes.load(Ordering::Acquire),
            inodes: self.running_inodes.load(Ordering::Acquire),
        }
    }

    /// Other programs have used free space: the host must be asked before more is promised.
    pub fn forget(&self) {
        self.allowed_bytes.store(0, Ordering::Release);
        self.allowed_inodes.store(0, Ordering::Release);
    }

    /// The group with these promises has ended.
    pub fn end(&self, promised: Promise) {
        if promised.bytes > 0 {
            self.running_bytes.fetch_sub(promised.bytes, Ordering::AcqRel);
        }
        if promised.inodes > 0 {
            self.running_inodes.fetch_sub(promised.inodes, Ordering::AcqRel);
        }
    }
}

/// Values of [`Room::spare`]: taken from the host as soon as it has much space; taken; not wanted, or not to be had.
const WANTED: u8 = 0;
const KEPT: u8 = 1;
const NONE: u8 = 2;

/// The file that holds the spare space.
const SPARE: &[u8] = b".wholly/spare";

impl StoreInner {
    /// Takes the spare space from the host, if the store has none and the host has 16 times as much free. A failure is
    /// no error: the store works without it.
    pub fn keep_spare(&self) {
        let bytes = self.options.spare_bytes;
        if bytes == 0 || self.room.spare.load(Ordering::Relaxed) != WANTED {
            return;
        }
        let is_much = |free: Promise| free.bytes / 16 >= bytes;
        if !free_on(&*self.host).is_ok_and(is_much) {
            return;
        }
        let made = self.host.create(site::ROOM_SPARE, SPARE, 0o600);
        let taken = made.and_then(|file| file.allocate(site::ROOM_SPARE, 0, bytes));
        match taken {
            // It is left of an earlier open.
            Ok(()) | Err(wholly_media::Error { errno: Errno::EXIST, .. }) => {
                self.room.spare.store(KEPT, Ordering::Relaxed);
            }
            Err(_) => {
                let _ = self.host.unlink(site::ROOM_RELEASE, SPARE);
                self.room.spare.store(NONE, Ordering::Relaxed);
            }
        }
    }

    /// Gives the spare space back to the host. Returns whether there was any.
    pub fn release_spare(&self) -> bool {
        let spare = &self.room.spare;
        let had = spare.compare_exchange(KEPT, WANTED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        had && self.host.unlink(site::ROOM_RELEASE, SPARE).is_ok()
    }

    /// The store keeps no spare space: it is a temporary one.
    pub fn keep_no_spare(&self) {
        self.room.spare.store(NONE, Ordering::Relaxed);
    }

    /// Adds a promise of a running group; `what` it is for is shown in the error.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the host has too little free space for all promises.
    #[inline]
    pub fn promise(&self, promise: Promise, what: &[u8]) -> Result<()> {
        if !self.room.take(promise) {
            self.look_for_room(promise, what)?;
        }
        if promise.bytes > 0 {
            self.room.running_bytes.fetch_add(promise.bytes, Ordering::AcqRel);
        }
        if promise.inodes > 0 {
            self.room.running_inodes.fetch_add(promise.inodes, Ordering::AcqRel);
        }
        Ok(())
    }

    #[cold]
    fn look_for_room(&self, promise: Promise, what: &[u8]) -> Result<()> {
        // Invariant 2.
        if self.allow(promise)? || (self.checkpoint().is_ok() && self.allow(promise)?) {
            return Ok(());
        }
        // Nobody goes without space for what can be taken back.
        while self.drop_oldest()? {
            if self.allow(promise)? {
                return Ok(());
            }
        }
        Err(Error::NoSpace(String::from_utf8_lossy(what).into_owned()))
    }

    /// Does something that takes space, and again where the host has none or a quota allows no more: once what has lost
    /// its name is gone, then as long as the oldest kept undo can be dropped.
    pub fn with_space<T>(&self, mut take: impl FnMut() -> Result<T>) -> Result<T> {
        match take() {
            Err(Error::NoSpace(_)) if self.free_removed() => {}
            Err(Error::NoSpace(_)) if self.drop_oldest()? => {}
            done => return done,
        }
        self.with_space_of_undo(take)
    }

    /// The same, but only undo is dropped. A quota shows in no other way than that something is refused.
    pub fn with_space_of_undo<T>(&self, mut take: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match take() {
                Err(Error::NoSpace(_)) if self.drop_oldest()? => {}
                done => return done,
            }
        }
    }

    /// Whether the log may grow by so many bytes and still leave space for all promises.
    pub fn has_room_for_log(&self, bytes: u64) -> bool {
        // If the host cannot tell how much is free, it refuses the growth itself.
        self.room.take(Promise::bytes(bytes)) || self.allow(Promise::bytes(bytes)).unwrap_or(true)
    }

    /// All promises.
    fn promised(&self) -> Promise {
        let committed = promised_by_files(&self.files).plus(self.names.with(|state| promised_by_names(state)));
        committed.plus(self.room.running())
    }

    /// What calls may still promise, as `statfs` reports it.
    ///
    /// # Errors
    /// Those of the host.
    pub fn left_to_promise(&self) -> Result<Promise> {
        let (free, promised) = (free_on(&*self.host)?, self.promised());
        Ok(Promise {
            bytes: free.bytes.saturating_sub(promised.bytes),
            inodes: free.inodes.saturating_sub(promised.inodes),
        })
    }

    /// Asks the host how much is free, and renews the allowance. Returns whether there is space for `asked`.
    fn allow(&self, asked: Promise) -> Result<bool> {
        let (free, promised) = (free_on(&*self.host)?, self.promised());
        let left = |free: u64, promised: u64, asked: u64| match asked {
            0 => Some(free.saturating_sub(promised)),
            _ => free.checked_sub(promised)?.checked_sub(asked),
        };
        let bytes = left(free.bytes, promised.bytes, asked.bytes);
        let inodes = left(free.inodes, promised.inodes, asked.inodes);
        self.room.allowed_bytes.store(bytes.unwrap_or(0) / PART, Ordering::Release);
        self.room.allowed_inodes.store(inodes.unwrap_or(0) / PART, Ordering::Release);
        Ok(bytes.is_some() && inodes.is_some())
    }
}

/// What a file system has free for this process.
pub(super) fn free_on(host: &dyn HostFs) -> Result<Promise> {
    let space = host.space()?;
    // A file system without a limit reports none.
    let bytes = if space.blocks == 0 { u64::MAX } else { space.usable_blocks.saturating_mul(space.block_bytes) };
    let inodes = if space.inodes == 0 { u64::MAX } else { space.free_inodes };
    Ok(Promise { bytes: bytes - bytes / METADATA_PART, inodes })
}

/// Promises of committed groups by the bytes of files that are not written back. Locks these files one by one, so the
/// caller does not hold the lock on names.
pub(super) fn promised_by_files(files: &FileTable) -> Promise {
    let mut all = Promise::default();
    for file in files.all().into_iter().filter(|file| !file.is_clean()) {
        let (more, full) = match file.is_sparse() {
            true => (file.pending.count(), 0),
            false => {
                let at_home = file.home_state.lock().unwrap().size.div_ceil(BLOCK);
                let size = file.size.load(Ordering::Acquire).div_ceil(BLOCK);
                (size.saturating_sub(at_home), size)
            }
        };
        // Some of it may have space already: only the host knows.
        let reserved = if file.space.any() { file.space.with(|wishes| wishes.reserved_from(full)) } else { 0 };
        all = all.plus(Promise::bytes(more.saturating_add(reserved).saturating_mul(BLOCK)));
    }
    all
}

/// Promises of committed groups by names and objects that are not written back.
pub(super) fn promised_by_names(state: &State) -> Promise {
    let mut all = Promise::default();
    for (name, register) in state.registers.values().flat_map(|names| names.iter()) {
        if register.home() == 0 && register.newest() != 0 {
            all = all.plus(Promise::name(name));
        }
    }
    for object in state.objects.values().filter(|object| object.inode().is_none() && object.made != 0) {
        let target = object.birth().map_or(Vec::new(), |birth| birth.target);
        all = all.plus(Promise::object(object.kind, &target));
    }
    // Beside others, which only the host knows, any may take a block.
    for object in state.objects.values().filter(|object| !object.sets.is_empty()) {
        let xattrs = object.sets.as_of(u64::MAX).xattrs;
        let bytes: usize = xattrs.values().flatten().map(|value| value.len()).sum();
        if bytes > 0 {
            all = all.plus(Promise::xattrs(bytes.max(IN_INODE + 1)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_is_taken_whole_or_not_at_all() {
        let room = Room::default();
        room.allowed_bytes.store(10, Ordering::Relaxed);
        room.allowed_inodes.store(1, Ordering::Relaxed);
        assert!(!room.take(Promise { bytes: 11, inodes: 1 }));
        assert!(room.take(Promise { bytes: 10, inodes: 1 }), "of what was refused nothing is gone");
        assert!(!room.take(Promise { bytes: 0, inodes: 1 }) && !room.take(Promise::bytes(1)));
        assert!(room.take(Promise::default()));
    }
}
