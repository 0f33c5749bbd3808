//! SQLite in WAL mode with `synchronous=FULL`: what most programs use when an update must be atomic.
//!
//! Files are rows: each row holds the next 4,040 bytes of a file and fills one page of the database, so that an update
//! dirties as few pages as SQLite can do with. A group is one transaction; each update is an incremental blob write
//! into the rows that it touches, which is what SQLite's documentation recommends for overwriting a part of a value. No
//! SQL is parsed inside the clock but for opening the blob once a transaction, which SQLite asks for.
//!
//! Settings in favour of SQLite: the connection is exclusive, as a store of Wholly is (no locks, no shared memory); the
//! page cache holds 64 MiB; checkpoints come when SQLite wants them, inside the clock.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wholly_bench::place::Place;
use wholly_bench::system::{Counters, Prepared, Ready, System};
use wholly_bench::workload::{Payload, Update};
use wholly_bench::{Case, Error, Result};

/// Bytes of a file in a row: with its header it just fits a page of 4 KiB.
pub const ROW_BYTES: u64 = 4040;

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

/// A database whose table holds blocks of bytes, overwritten in place by transactions.
pub struct Database {
    peer: *mut Peer,
}

impl Database {
    /// Makes the database `path` with the settings above and rows 1 to `rows` of [`ROW_BYTES`] zeros.
    ///
    /// # Errors
    /// SQLite's message, as for all calls.
    pub fn create(path: &Path, rows: u64) -> Result<Database> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut database = Database { peer: std::ptr::null_mut() };
        // SAFETY: both strings end with 0, and the pointer can be written to.
        let code = unsafe {
            wholly_sqlite_open(path.as_ptr(), PRAGMAS.as_ptr(), rows as i64, ROW_BYTES as c_int, &mut database.peer)
        };
        database.check("open", code)?;
        Ok(database)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// SQLite's message.
    pub fn begin(&mut self) -> Result<()> {
        // SAFETY: `peer` is open since `create`, and `self` is borrowed by this call alone.
        self.check("begin", unsafe { wholly_sqlite_begin(self.peer) })
    }

    /// Writes `data` at byte `at` of what the rows from `first_row` on hold together.
    ///
    /// # Errors
    /// SQLite's message.
    pub fn update(&mut self, first_row: u64, mut at: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let within = at % ROW_BYTES;
            let (now, later) = data.split_at(data.len().min((ROW_BYTES - within) as usize));
            let id = first_row + at / ROW_BYTES;
            // SAFETY: as above; `now` can be read.
            let code = unsafe {
                let (data, len) = (now.as_ptr().cast(), now.len() as c_int);
                wholly_sqlite_update(self.peer, id as i64, within as c_int, data, len)
            };
            self.check("update", code)?;
            (at, data) = (at + now.len() as u64, later);
        }
        Ok(())
    }

    /// Commits the transaction: it survives when this returns.
    ///
    /// # Errors
    /// SQLite's message.
    pub fn commit(&mut self) -> Result<()> {
        // SAFETY: as above.
        self.check("commit", unsafe { wholly_sqlite_commit(self.peer) })
    }

    /// Copies what the log holds into the database.
    ///
    /// # Errors
    /// SQLite's message.
    pub fn checkpoint(&mut self) -> Result<()> {
        // SAFETY: as above.
        self.check("checkpoint", unsafe { wholly_sqlite_checkpoint(self.peer) })
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: null or open; the string lives until the next call on the same connection.
        let message = unsafe { CStr::from_ptr(wholly_sqlite_error(self.peer)) }.to_string_lossy();
        Err(Error::from(format!("{call}: {message}")))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: null or opened by `create`, and not used again.
        unsafe { wholly_sqlite_close(self.peer) };
    }
}

/// The version of the library.
pub fn version() -> String {
    // SAFETY: a constant string of the library.
    unsafe { CStr::from_ptr(wholly_sqlite_version()) }.to_string_lossy().into_owned()
}

/// The peer.
#[derive(Default)]
pub struct SqliteWal {
    database: Option<Database>,
    rows_per_file: u64,
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
        self.database = Some(Database::create(&place.dir.join("db"), self.rows_per_file * u64::from(case.files))?);
        Ok(Prepared::Ready(Ready {
            groups_per_log: PAGES_PER_LOG.div_ceil(case.updates as u64 * case.size.mean_bytes().div_ceil(ROW_BYTES)),
            settings: vec![
                ("version".into(), version()),
                ("settings".into(), PRAGMAS.to_string_lossy().replace("PRAGMA ", "")),
                ("rows".into(), format!("{ROW_BYTES} B each, overwritten by sqlite3_blob_write")),
            ],
            ..Ready::default()
        }))
    }

    fn run_group(&mut self, group: &[Update], payload: &Payload) -> Result<()> {
        let database = self.database.as_mut().expect("prepared");
        database.begin()?;
        for update in group {
            let first_row = u64::from(update.file) * self.rows_per_file + 1;
            database.update(first_row, update.offset, payload.of(update))?;
        }
        database.commit()
    }

    /// What the log still holds goes into the database: less than one log, of the three or more that a turn fills.
    fn settle(&mut self) -> Result<()> {
        self.database.as_mut().expect("prepared").checkpoint()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn finish(&mut self) -> Result<()> {
        self.database = None;
        Ok(())
    }
}
