//! The log of a store: the types of [`wholly_log`](::log) with the store as their client.

pub mod layout;

use std::sync::Arc;

use layout::{EntryKind, StorePart};
use wholly_error::Result;
use wholly_media::Region;

pub use ::log::*;

/// The store, by what it brings along.
pub struct StoreClient;

impl Client for StoreClient {
    type Kind = EntryKind;
    type Part = StorePart;
    type Source = Arc<dyn Region>;
}

/// The log of a store.
pub type Log = ::log::Log<StoreClient>;
/// See [`::log::lane::Lane`].
pub type Lane = ::log::lane::Lane<StoreClient>;
/// See [`::log::batch::BatchLane`].
pub type BatchLane = ::log::batch::BatchLane<StoreClient>;
/// See [`::log::batch::Gathered`].
pub type Gathered = ::log::batch::Gathered<EntryKind>;

/// What a superblock slot holds.
pub type Slot = ::log::Slot<StorePart>;

/// See [`::log::read_superblock`].
///
/// # Errors
/// As there.
pub fn read_superblock(region: &dyn Region) -> Result<layout::Superblock> {
    ::log::read_superblock(region)
}

/// Reading a log after a crash.
pub mod scan {
    use super::EntryKind;
    use wholly_error::Result;

    pub use ::log::scan::*;

    /// See [`::log::scan::Record`].
    pub type Record = ::log::scan::Record<EntryKind>;
    /// See [`::log::scan::RecordView`].
    pub type RecordView<'a> = ::log::scan::RecordView<'a, EntryKind>;
    /// See [`::log::scan::Records`].
    pub type Records = ::log::scan::Records<EntryKind>;
    /// See [`::log::scan::CommittedGroup`].
    pub type CommittedGroup<'a> = ::log::scan::CommittedGroup<'a, EntryKind>;

    /// See [`::log::scan::record_at`].
    ///
    /// # Errors
    /// As there.
    pub fn record_at(reader: &mut SegmentReader<'_>, seed: u64, position: u64) -> Result<Option<Record>> {
        ::log::scan::record_at(reader, seed, position)
    }
}
