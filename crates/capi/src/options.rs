//! How a store is made and opened.

use std::time::Duration;

use wholly::{Error, Options, Result};
use wholly_host::{HostMedium, HostOptions};
use wholly_vfs::Policy;

use crate::sized::{self, Sized};

/// Policy: each call outside of groups is a group of its own, and survives a power failure when it returns.
pub const WHOLLY_POLICY_PER_OP: u32 = 0;
/// Policy: the calls on a file between two syncs are one group. It is committed by wholly_file_sync, wholly_store_sync,
/// the last close of the file, the end of the store, or when a group takes the file. After a crash the file is as at
/// its last commit.
pub const WHOLLY_POLICY_PER_SYNC: u32 = 1;
/// Policy: all calls outside of groups are one group. It is committed by any sync, by the end of the store, when a
/// group takes one of its files, and after shared_interval_ms.
pub const WHOLLY_POLICY_SHARED: u32 = 2;

/// Medium: persistent memory if files can be mapped from it (DAX); on tmpfs emulated persistent memory; else a disk.
pub const WHOLLY_MEDIUM_AUTO: u32 = 0;
/// Medium: persistent memory; emulated if the directory is not on such memory.
pub const WHOLLY_MEDIUM_PMEM: u32 = 1;
/// Medium: a disk.
pub const WHOLLY_MEDIUM_DISK: u32 = 2;

/// How a store is made and opened. Set the whole struct to zero, then set size, then the fields that are to differ:
/// zero means the default. Later versions add fields at the end.
#[repr(C)]
pub struct wholly_options {
    /// sizeof(wholly_options).
    pub size: usize,
    /// Which calls outside of groups survive together: WHOLLY_POLICY_*.
    pub policy: u32,
    /// What the directory is on: WHOLLY_MEDIUM_*. Use the same value to make and to open a store.
    pub medium: u32,
    /// Milliseconds after which WHOLLY_POLICY_SHARED commits. It has no default.
    pub shared_interval_ms: u64,
    /// Bytes of a segment of the log, set when the store is made: a power of two from 4 KiB to 2 MiB. Default 1 MiB.
    pub segment_bytes: u64,
    /// Bytes of log that the store is made with, and always keeps. Default 2 MiB.
    pub log_min_bytes: u64,
    /// Bytes up to which the log grows before groups wait for a checkpoint; a single group that needs more gets it.
    /// Default 64 MiB.
    pub log_max_bytes: u64,
    /// Bytes of a group that are gathered in memory before the group goes to the log early. Default 512 KiB.
    pub gather_bytes: u64,
    /// Bytes from which a group's writes to one file bypass the log: they go to the file system at once, and are
    /// written once. Applies to files that the group has created, and to writes in a row to an existing file if files
    /// can share blocks (XFS, btrfs). UINT64_MAX: never. Default 512 KiB.
    pub stage_bytes: u64,
    /// Bytes of address space for the log on persistent memory. The log cannot grow beyond.
    pub reserve_bytes: u64,
    /// The number of threads that write back a large amount together. Default 2.
    pub checkpoint_threads: u32,
    /// Not zero: no thread writes back committed data in the background. It is then written back when the log is full,
    /// by wholly_store_checkpoint and by wholly_store_close.
    pub no_background: u32,
    /// Not zero: the processor's caches survive a power failure (eADR), so nothing is flushed from them to persistent
    /// memory.
    pub caches_persist: u32,
    /// Not zero: accept a copy of a store whose log holds updates. The store then uses the files at the paths of the
    /// copied ones. Otherwise wholly_store_open fails with -ESTALE for such a copy.
    pub accept_copy: u32,
    /// Not zero: open a store that waits for the decision of wholly_groups_commit_together although the store that has
    /// it cannot be found. The waiting group is parked, to be applied or discarded by someone who knows the outcome.
    /// Otherwise wholly_store_open fails with -EBUSY.
    pub release: u32,
    /// Not zero: a group is written back as part of its commit. wholly_group_commit then returns when the group is in
    /// the directory. If the file system refuses that, the commit fails, nothing has changed, and the store goes on.
    /// Only for one thread at a time.
    pub at_once: u32,
    /// The number of files of the file system that the store keeps open although no program has them open. Default 256.
    pub open_files: u32,
    /// Not zero: the store keeps no spare space. Otherwise it takes 2 MiB of the file system, if that has much more, so
    /// that files can be removed when the file system is full.
    pub no_spare: u32,
}

// SAFETY: integers, each at a multiple of its size without a gap, and words of four bytes, an even number of them, at
// the end.
unsafe impl Sized for wholly_options {
    const FIRST: usize = 88;
    const NAME: &str = "options";
}

const _: () = assert!(size_of::<wholly_options>() == 104);

/// The options that a program gave, or those by default where it gave none.
///
/// # Safety
/// Unless it is null, `options` points to as many bytes as its size says.
pub unsafe fn of(options: *const wholly_options) -> Result<(Options, HostOptions)> {
    if options.is_null() {
        return Ok(Default::default());
    }
    // SAFETY: the caller's promise; null was refused.
    unsafe { sized::check(options) }?;
    // SAFETY: as above.
    parse(&unsafe { sized::read(options) }?)
}

fn parse(given: &wholly_options) -> Result<(Options, HostOptions)> {
    let refuse = |what: &str| Err(Error::Invalid(format!("options: {what}")));
    let policy = match given.policy {
        WHOLLY_POLICY_PER_OP => Policy::PerOp,
        WHOLLY_POLICY_PER_SYNC => Policy::PerSync,
        WHOLLY_POLICY_SHARED if given.shared_interval_ms == 0 => return refuse("the shared policy takes an interval"),
        WHOLLY_POLICY_SHARED => Policy::Shared { interval: Duration::from_millis(given.shared_interval_ms) },
        _ => return refuse("no such policy"),
    };
    let medium = match given.medium {
        WHOLLY_MEDIUM_AUTO => HostMedium::Auto,
        WHOLLY_MEDIUM_PMEM => HostMedium::Pmem,
        WHOLLY_MEDIUM_DISK => HostMedium::Disk,
        _ => return refuse("no such medium"),
    };
    let (default, host) = (Options::default(), HostOptions::default());
    let or = |given: u64, default: u64| if given == 0 { default } else { given };
    let options = Options {
        policy,
        segment_bytes: or(given.segment_bytes, default.segment_bytes),
        log_min_bytes: or(given.log_min_bytes, default.log_min_bytes),
        log_max_bytes: or(given.log_max_bytes, default.log_max_bytes),
        background: given.no_background == 0,
        checkpoint_threads: or(given.checkpoint_threads.into(), default.checkpoint_threads as u64) as usize,
        gather_bytes: or(given.gather_bytes, default.gather_bytes),
        stage_bytes: or(given.stage_bytes, default.stage_bytes),
        open_files: or(given.open_files.into(), default.open_files as u64) as usize,
        spare_bytes: if given.no_spare == 0 { default.spare_bytes } else { 0 },
        at_once: given.at_once != 0,
        keep_undo_of_applied: None,
        accept_copy: given.accept_copy != 0,
        release: given.release != 0,
        trust_owner: false,
        straight: default.straight,
        most_dirty: default.most_dirty,
        pending_bytes: default.pending_bytes,
    };
    let reserve = or(given.reserve_bytes, host.reserve);
    Ok((options, HostOptions { medium, caches_persist: given.caches_persist != 0, reserve, ..host }))
}
