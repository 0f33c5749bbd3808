//! libpmemobj: undo-log transactions on persistent memory.
//!
//! A transaction cannot span two pools, so the files of a case are objects of one pool; a group is one transaction over
//! ranges of them (`TX_BEGIN`, `TX_MEMCPY` for each update, `TX_END`). That does less than a file system: objects have
//! no names and never grow.
//!
//! `PMEM_IS_PMEM_FORCE=1` must be in the environment when the process starts: without it the library takes a tmpfs for
//! a page cache and calls `msync` where it flushes on persistent memory. Without it this peer is skipped.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;
use wholly_bench::place::Place;
use wholly_bench::system::{Counters, Prepared, Ready, System};
use wholly_bench::workload::{Payload, Update};
use wholly_bench::{Case, Error, Result};

/// The variable that makes the library flush rather than call `msync`.
pub const FORCE: (&str, &str) = ("PMEM_IS_PMEM_FORCE", "1");

/// `struct peer` of `c/pmemobj.c`.
#[repr(C)]
struct Peer {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn wholly_pmemobj_open(
        path: *const c_char,
        pool_bytes: u64,
        files: u32,
        file_bytes: u64,
        result: *mut *mut Peer,
    ) -> c_int;
    fn wholly_pmemobj_begin(peer: *mut Peer) -> c_int;
    fn wholly_pmemobj_update(peer: *mut Peer, file: u32, offset: u64, data: *const c_void, len: u64) -> c_int;
    fn wholly_pmemobj_end() -> c_int;
    fn wholly_pmemobj_error() -> *const c_char;
    fn wholly_pmemobj_close(peer: *mut Peer);
}

/// The peer.
#[derive(Default)]
pub struct PmemObj {
    peer: Option<NonNull<Peer>>,
    files: u32,
    file_bytes: u64,
}

impl System for PmemObj {
    fn name(&self) -> &'static str {
        "libpmemobj"
    }

    fn prepare(&mut self, case: &Case, place: &Place) -> Result<Prepared> {
        if !place.medium.is_pmem() {
            return Ok(Prepared::Skipped("libpmemobj is for persistent memory".into()));
        }
        if std::env::var_os(FORCE.0).is_none_or(|value| value != FORCE.1) {
            return Ok(Prepared::Skipped(format!("{}={} must be set before the process starts", FORCE.0, FORCE.1)));
        }
        if place.emulator.is_some() {
            return Ok(Prepared::Skipped("the emulator cannot slow it down".into()));
        }
        let path = CString::new(place.dir.join("pool").as_os_str().as_bytes())?;
        // Objects above 256 KiB take whole chunks of that size, one of them partly for a header.
        let pool_bytes = (case.file_bytes + (512 << 10)) * u64::from(case.files) + (64 << 20);
        let mut peer = std::ptr::null_mut();
        // SAFETY: `path` ends with 0, and `peer` can be written to.
        let error = unsafe { wholly_pmemobj_open(path.as_ptr(), pool_bytes, case.files, case.file_bytes, &mut peer) };
        check("create", error)?;
        self.peer = NonNull::new(peer);
        (self.files, self.file_bytes) = (case.files, case.file_bytes);
        Ok(Prepared::Ready(Ready {
            settings: vec![
                ("version".into(), env!("PEER_PMEMOBJ_VERSION").into()),
                ("settings".into(), "PMEM_IS_PMEM_FORCE=1, files are objects of one pool".into()),
            ],
            ..Ready::default()
        }))
    }

    fn run_group(&mut self, group: &[Update], payload: &Payload) -> Result<()> {
        let peer = self.peer.expect("prepared").as_ptr();
        // SAFETY: `peer` is open, and only this thread uses it.
        check("begin", unsafe { wholly_pmemobj_begin(peer) })?;
        for update in group {
            assert!(update.file < self.files && update.offset + u64::from(update.len) <= self.file_bytes);
            let bytes = payload.of(update);
            // SAFETY: a transaction is open, and the range is inside the object by the assertion.
            let error = unsafe {
                wholly_pmemobj_update(peer, update.file, update.offset, bytes.as_ptr().cast(), bytes.len() as u64)
            };
            if error != 0 {
                // The transaction has aborted itself; its end says why.
                break;
            }
        }
        // SAFETY: a transaction was begun by this thread.
        check("commit", unsafe { wholly_pmemobj_end() })
    }

    fn counters(&self) -> Counters {
        Counters { syncs: Some(0), ..Counters::default() }
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(peer) = self.peer.take() {
            // SAFETY: it was opened by `prepare`, and is not used again.
            unsafe { wholly_pmemobj_close(peer.as_ptr()) };
        }
        Ok(())
    }
}

impl Drop for PmemObj {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

fn check(call: &str, error: c_int) -> Result<()> {
    if error == 0 {
        return Ok(());
    }
    // SAFETY: the library returns a string of this thread that lives until its next call.
    let message = unsafe { CStr::from_ptr(wholly_pmemobj_error()) }.to_string_lossy();
    Err(Error::from(format!("{call}: {} ({message})", std::io::Error::from_raw_os_error(error))))
}
