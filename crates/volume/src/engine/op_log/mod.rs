//! The engine `op_log`: CFS. Any number of groups change one directory, one inode block, one bitmap at the same time,
//! and end in any order, each as one transaction of blocks. (Min and others, CFS, sections 4 and 5.)
//!
//! # Terms
//!
//! - *page engine*: what the engine shares with `page_cache_wal` ([`super::page_engine`]): pages, drafts, the commit.
//! - *bitmap block*, *orphan*: of the format (`format/bitmap.rs`).
//! - *operation*: here, what a group changes of data that other running groups may change, too. It is made on the
//!   newest page, in commit order, and never before. Names and times of directories that were there before are recorded
//!   inside of the commit, with the directory locked (`fs/explicit`); changes of bitmaps are kept, and made on the
//!   page.
//!
//! # How the rows of the paper's table 1 are done
//!
//! | row | here |
//! |---|---|
//! | `add`, `sub` | the count of zeros in the head of a bitmap block; totals are summed at the mount, and the number of directories in a directory is counted when it is asked for |
//! | `assign` | fields of an inode: lines of the draft of the group that has the inode alone. Times of a directory: registers, of which the latest valid value holds, at undo and at redo (`fs/explicit.rs`, `ChangedTime`) |
//! | `toggle_bit` | [`Operation::Toggle`](super::Operation::Toggle): the old value is compared |
//! | `x_op`: dentries | names in old directories, with room that is kept from the call on |
//! | `x_op`: caches | twins of inodes, which an abort drops |
//! | `x_op`: delayed deallocation | toggled in the commit; given out when that is durable |
//! | (section 4.3) delayed allocation | late numbers (rule 12 of the trait, `fs/late.rs`) |
//!
//! # Invariants
//!
//! Those of the page engine, and:
//!
//! 1. A call changes no bit. What a group has taken and freed, on the whole, is recorded as the last thing before its
//!    commit; an abort changes no bit either.
//! 2. A bit is changed on the newest page, under the lock that orders. It must have the other value: else the volume is
//!    damaged, and fails.
//! 3. No block has a total: two groups that share no bitmap block share no block for what they take.
//! 4. A bit that a group makes 0 is taken by others when the group is durable. The allocators in memory know that.
//! 5. An inode without a name that somebody has open is an orphan: its bit is set by the group that takes its last
//!    name, and cleared by the one that frees it or gives it a name.
//! 6. A mount reads the bitmaps, and of inodes only the root and the orphans. It reads no map, unless the superblock
//!    says that the bitmaps may be wrong: then it writes them anew.
//! 7. No late number is ever on the medium: the core gives the content its place before the commit, and a late page is
//!    never handed over.
//!
//! The engine has no recovery of its own: the transactions below it are whole or not there. On a medium with
//! transactions they are the medium's. On any other they are made of the volume's log; a volume that has moved to a
//! medium with transactions has its log applied at the next mount.

use super::kind::{Description, Opening};
use super::page_cache_wal;
use super::page_engine::{Of, OnMedium, PageEngine};
use crate::format::BLOCK;
use crate::format::log::LogSeed;

const OF: Of = Of { name: "op_log", keeps_bitmaps: true, places_late: true, journals_content: false };

/// What is to be known of the engine.
pub const DESCRIPTION: Description = Description {
    name: "op_log",
    number: 7,
    about: "The same promise on any medium: bitmaps, and one transaction for each group",
    keeps_bitmaps: true,
    open: |Opening { region, transactions, log, bitmaps, blocks, volume, incarnation, cache_bytes, tuning, .. }| {
        bitmaps?;
        if let Some(transactions) = transactions {
            let pages = tuning.trial.pages.unwrap_or(cache_bytes / BLOCK);
            let former = log.map(|area| (area, LogSeed::of(volume, incarnation).ring()));
            let below = Box::new(OnMedium { region: region.clone(), former });
            return Some(Box::new(PageEngine::new(region, transactions, below, (pages, tuning.trial), OF)));
        }
        let (log, cache) = ((log?, blocks), (cache_bytes, tuning.trial));
        Some(Box::new(PageEngine::on_disk(region, log, (volume, incarnation), cache, OF)))
    },
    ..page_cache_wal::DESCRIPTION
};
