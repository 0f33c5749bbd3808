//! What people use today, as systems of the benchmarks: the only place that links competitors.
//!
//! A peer whose library is not installed is left out when this crate is built; [`MISSING`] names it. `scripts/setup`
//! installs all of them. Peers get their recommended settings, which their rows' settings repeat; nothing is ever done
//! to slow one.
//!
//! | system | what it is |
//! |---|---|
//! | `libpmemobj` | PMDK's transactions over ranges of objects, persistent memory only |
//! | `sqlite_wal` | SQLite, WAL, `synchronous=FULL`, exclusive connection |
//! | `rename` | temporary file, `fsync`, `rename`, `fsync` of the directory |

#![warn(missing_docs)]

#[cfg(peer_pmemobj)]
pub mod pmemobj;
pub mod rename;
#[cfg(peer_sqlite)]
pub mod sqlite;

use wholly_bench::System;

/// Peers that this build is without.
pub const MISSING: &[&str] = &[
    #[cfg(not(peer_pmemobj))]
    "libpmemobj",
    #[cfg(not(peer_sqlite))]
    "sqlite_wal",
];

/// All peers of this build.
pub fn all() -> Vec<Box<dyn System>> {
    vec![
        #[cfg(peer_pmemobj)]
        Box::new(pmemobj::PmemObj::default()),
        #[cfg(peer_sqlite)]
        Box::new(sqlite::SqliteWal::default()),
        Box::new(rename::Rename::default()),
    ]
}

/// What must be in the environment before a process that runs the peers starts.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    #[cfg(peer_pmemobj)]
    pmemobj::FORCE,
];
