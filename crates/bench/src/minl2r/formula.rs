//! What a write stores by each engine, to the line.
//!
//! A write overwrites content that is there, in one call, at a multiple of 64 bytes; its times are new ones. A block of
//! which it covers `m` bytes or more is *moved*, by the engines with that rule: `m` is half of a block, or what the
//! case says. The pointers of a write's moved blocks are `p` consecutive words of a map node, in `l` lines.
//!
//! | engine | lines | fences |
//! |---|---|---|
//! | `none` | those of the write; 1 of times | 1 |
//! | `undo` | of each block that stays, b bytes: 1 + b/64 of log, b/64 in place; of each that moves 64; of pointers, 8p bytes: of log 1, or 1 + 8p/64 beyond 32 bytes; `l` in place; of times, 56 bytes: 2 of log, 1 in place; commit entry | 3 |
//! | `shortcut_jfs` | of each block that stays: 1 + b/64 of log, b/64 at home; of each that moves 64; an undo entry for each 4 pointers of a line, `l` in place; of times 2 undo entries, 1 in place; commit entry; settled word if a block stays | 3, or 5 if one stays |
//! | `shadow` | 64 for each block of content, each map node above, the inode's block and each node above that; root record, twice | 2 |
//!
//! The log has its place: none of these writes needs a link.
//!
//! *Backup* is what is stored so that the write can be taken back, or beside its new bytes, in bytes: of `undo` all of
//! the log but the commit entry, 64 + b for a block that stays, 64 for a few pointers; of `shadow` what is copied
//! around the new bytes, and all that is above.

use crate::Result;
use crate::fcfs::formula::Formula;
use crate::workload::{Case, Update};
use wholly_media::Region;
use wholly_volume::EngineKind;

const LINE: u64 = 64;
const BLOCK: u64 = 4096;
/// Bytes from the first changed word of a line of times to its check.
const TIMES: u64 = 56;
/// Bytes that an entry holds itself.
const HELD: u64 = 32;
/// Pointers in a line.
const POINTERS: u64 = 8;
/// The root record.
const ROOT: u64 = 2 * LINE;

/// What a write stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub lines: u64,
    pub fences: u64,
    /// Bytes of backup, of engines that have some.
    pub backup: Option<u64>,
}

/// Bytes of log for a run of old bytes.
fn logged(run: u64) -> u64 {
    if run <= HELD { LINE } else { LINE + run }
}

/// The formula of an engine on one volume.
pub(super) struct ByWrite {
    engine: EngineKind,
    move_from: u64,
    of_groups: Formula,
}

impl ByWrite {
    /// That of an unmounted volume.
    pub fn of(engine: EngineKind, move_from: Option<usize>, region: &dyn Region, case: &Case) -> Result<ByWrite> {
        let move_from = move_from.map_or(BLOCK / 2, |bytes| bytes as u64);
        Ok(ByWrite { engine, move_from, of_groups: Formula::of(engine, region, case)? })
    }

    /// What a write stores.
    pub fn cost(&self, offset: u64, len: u64) -> Cost {
        let of_groups = || self.of_groups.of_group(&[Update::at(0, offset, len as u32)]).expect("it is stated").lines();
        match self.engine {
            EngineKind::None => Cost { lines: of_groups(), fences: 1, backup: None },
            EngineKind::Shadow => {
                let lines = of_groups();
                Cost { lines, fences: 2, backup: Some(lines * LINE - ROOT - len) }
            }
            engine => self.logging(engine == EngineKind::Undo, offset, len),
        }
    }

    fn logging(&self, undoes: bool, offset: u64, len: u64) -> Cost {
        let (mut at, end) = (offset, offset + len);
        let (mut stays, mut moved) = (None, Vec::new());
        while at < end {
            let block = at / BLOCK;
            let bytes = end.min((block + 1) * BLOCK) - at;
            if bytes == BLOCK || bytes >= self.move_from {
                moved.push(block);
            } else {
                assert!(stays.replace(bytes).is_none(), "a write has one such block");
            }
            at += bytes;
        }
        let count = moved.len() as u64;
        // Times and commit entry.
        let (mut lines, mut backup) = (2 + 1 + 1, logged(TIMES));
        if let Some(bytes) = stays {
            lines += 1 + 2 * bytes / LINE;
            backup += logged(bytes);
        }
        if let Some(first) = moved.first() {
            let words = |line: u64| (first + count).min((line + 1) * POINTERS) - (*first).max(line * POINTERS);
            let of_pointers = || first / POINTERS..(first + count).div_ceil(POINTERS);
            let entries = if undoes {
                logged(8 * count).div_ceil(LINE)
            } else {
                of_pointers().map(|line| words(line).div_ceil(HELD / 8)).sum()
            };
            lines += count * (BLOCK / LINE) + entries + of_pointers().count() as u64;
            backup += logged(8 * count);
        }
        if undoes {
            return Cost { lines, fences: 3, backup: Some(backup) };
        }
        let settles = u64::from(stays.is_some());
        Cost { lines: lines + settles, fences: 3 + 2 * settles, backup: None }
    }
}
