//! The engine `page_cache_wal`: a page cache that steals, and a log of whole blocks, on disks. It is the essential part
//! of Valor (the baseline of FCFS, section VI-A): groups in a page cache, logged before they are written home.
//!
//! All of it is the [page engine](super::page_engine), over the volume's log. A mount after a crash finds out from all
//! maps what is free.

use super::kind::{Description, Opening};
use super::page_engine::{self, Of, PageEngine, SITES, area};

/// Without bitmaps.
const OF: Of = Of { name: "page_cache_wal", keeps_bitmaps: false, places_late: false, journals_content: false };

/// What is to be known of the engine.
pub const DESCRIPTION: Description = Description {
    name: "page_cache_wal",
    number: 5,
    about: "The same promise on any medium: a page cache, and a log of whole blocks",
    promises: true,
    takes_disks: true,
    log: Some(area),
    zeroes_log: true,
    make_log: None,
    has_heads: false,
    keeps_bitmaps: false,
    sites: &[SITES],
    open: |Opening { region, log, blocks, volume, incarnation, cache_bytes, tuning, .. }| {
        let (log, cache) = ((log?, blocks), (cache_bytes, tuning.trial));
        Some(Box::new(PageEngine::on_disk(region, log, (volume, incarnation), cache, OF)))
    },
    left: page_engine::left,
};
