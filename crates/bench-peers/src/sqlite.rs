//! SQLite in WAL mode with `synchronous=FULL`: what most programs use when an update must be atomic.
//!
//! Files are rows: each row holds the next 4,040 bytes of a file and fills one page of the database, so that an update
//! dirties as few pages as SQLite can do with. A group is one transaction; each update is an incremental blob write into the rows
//! that it touches, which is what SQLite's documentation recommends for overwriting a part of a value. No SQL is parsed
//! inside the clock but for opening the blob once a transaction, which SQLite asks for.
//!
//! Settings in favour of SQLite: the connection is exclusive, as a store of Wholly is (no locks, no shared memory); the page cache
//! holds 64 MiB; checkpoints come when SQLite wants them, inside the clock.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use wholly_bench::place::Place;
use wholly_bench::system::{Counters, Prepared, Ready, System};
use wholly_bench::workload::{Payload, Update};
use wholly_bench::{Case, Error, Result};

/// Bytes of a file in a row: with its header it just fits a page of 4 KiB.
const ROW_BYTES: u64 = 4040;

const PRAGMAS: &CStr = c"PRAGMA page_size=4096; PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; \
    PRAGMA synchronous=FULL; PRAGMA cache_size=-65536";

/// `PRAGMA wal_autocheckpoint` is 1,000 pages by default.
const PAGES_PER_LOG: u64 = 1000;

/// `struct peer` of `c/sqlite.c`.
#[repr(C)]
struct Peer {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn wholly_sqlite_open(
        path: *const c_char,
        pragmas: *const c_char,
        rows: i64,
        row_bytes: c_int,
        result: *mut *mut Peer,
    ) -> c_int;
    fn wholly_sqlite_begin(peer: *mut Peer) -> c_int;
    fn wholly_sqlite_update(peer: *mut Peer, id: i64, offset: c_int, data: *const c_void, len: c_int) -> c_int;
    fn wholly_sqlite_commit(peer: *mut Peer) -> c_int;
    fn wholly_sqlite_checkpoint(peer: *mut Peer) -> c_int;
    fn wholly_sqlite_error(peer: *mut Peer) -> *const c_char;
    fn wholly_sqlite_version() -> *const c_char;
    fn wholly_sqlite_close(peer: *mut Peer);
}

/// The peer.
pub struct SqliteWal {
    peer: *mut Peer,
    rows_per_file: u64,
}

impl Default for SqliteWal {
    fn default() -> Self {
        SqliteWal { peer: std::ptr::null_mut(), rows_per_file: 0 }
    }
}

impl System for SqliteWal {
    fn name(&self) -> &'static str {
        "sqlite_wal"
    }

    fn prepare(&mut self, case: &Case, place: &Place) -> Result<Prepared> {
        if place.emulator.is_some() {
            return Ok(Prepared::Skipped("the emulator cannot slow it down".into()));
        }
        self.rows_per_file = case.file_bytes.div_ceil(ROW_BYTES);
        let rows = self.rows_per_file * u64::from(case.files);
        let path = CString::new(place.dir.join("db").as_os_str().as_bytes())?;
        // SAFETY: both strings end with 0, and the pointer can be written to.
        let code = unsafe {
            wholly_sqlite_open(path.as_ptr(), PRAGMAS.as_ptr(), rows as i64, ROW_BYTES as c_int, &mut self.peer)
        };
        self.check("open", code)?;
        // SAFETY: a constant string of the library.
        let version = unsafe { CStr::from_ptr(wholly_sqlite_version()) }.to_string_lossy().into_owned();
        Ok(Prepared::Ready(Ready {
            groups_per_log: PAGES_PER_LOG.div_ceil(case.updates as u64 * case.size.mean_bytes().div_ceil(ROW_BYTES)),
            settings: vec![
                ("version".into(), version),
                ("settings".into(), PRAGMAS.to_string_lossy().replace("PRAGMA ", "")),
                ("rows".into(), format!("{ROW_BYTES} B each, overwritten by sqlite3_blob_write")),
            ],
            ..Ready::default()
        }))
    }

    fn run_group(&mut self, group: &[Update], payload: &Payload) -> Result<()> {
        // SAFETY: `peer` is open since `prepare`, and only this thread uses it.
        self.check("begin", unsafe { wholly_sqlite_begin(self.peer) })?;
        for update in group {
            let (mut at, mut rest) = (update.offset, payload.of(update));
            while !rest.is_empty() {
                let within = at % ROW_BYTES;
                let (now, later) = rest.split_at(rest.len().min((ROW_BYTES - within) as usize));
                let id = u64::from(update.file) * self.rows_per_file + at / ROW_BYTES + 1;
                // SAFETY: as above; `now` can be read.
                let code = unsafe {
                    let (data, len) = (now.as_ptr().cast(), now.len() as c_int);
                    wholly_sqlite_update(self.peer, id as i64, within as c_int, data, len)
                };
                self.check("update", code)?;
                (at, rest) = (at + now.len() as u64, later);
            }
        }
        // SAFETY: as above.
        self.check("commit", unsafe { wholly_sqlite_commit(self.peer) })
    }

    /// What the log still holds goes into the database: less than one log, of the three or more that a turn fills.
    fn settle(&mut self) -> Result<()> {
        // SAFETY: `peer` is open since `prepare`, and only this thread uses it.
        self.check("checkpoint", unsafe { wholly_sqlite_checkpoint(self.peer) })
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn finish(&mut self) -> Result<()> {
        // SAFETY: null or opened by `prepare`, and set to null so that it is not used again.
        unsafe { wholly_sqlite_close(std::mem::replace(&mut self.peer, std::ptr::null_mut())) };
        Ok(())
    }
}

impl Drop for SqliteWal {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl SqliteWal {
    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: null or open; the string lives until the next call on the same connection.
        let message = unsafe { CStr::from_ptr(wholly_sqlite_error(self.peer)) }.to_string_lossy();
        Err(Error::from(format!("{call}: {message}")))
    }
}
