//! The five epochs of a commit.

use wholly_error::Result;

use super::{
    COMMIT, COMMIT_FENCE, ENTRIES, FineGrainedWal, HOME, HOME_FENCE, LOG_FENCE, PLACE_FENCE, SETTLE, SETTLE_FENCE,
};
use crate::engine::draft::Draft;
use crate::engine::lanes::{Cursor, Redo};
use crate::engine::logging::ZEROS;
use crate::engine::{Allocate, Part};
use crate::format::log::SETTLED;

impl FineGrainedWal {
    /// Commits a group. Returns its place in commit order.
    pub(super) fn commit_one(&self, part: &mut Part<'_>) -> Result<u64> {
        let cursor = part.draft.cursor.take();
        if cursor.is_none() && part.draft.chain.is_none() && part.draft.changes().next().is_none() {
            let is_unreached = part.draft.stored && part.draft.group.is_none();
            assert!(!is_unreached, "what a group has stored early, one of its changes reaches");
            return Ok(0);
        }
        let mut cursor = cursor.map_or_else(|| self.base.lanes.take(), Ok)?;
        let committing = self.base.lanes.commit()?;
        let order = self.base.next_order();
        self.epochs(&mut cursor, part.draft, part.space, order)?;
        committing.end(&cursor);
        Ok(order)
    }

    fn epochs(&self, cursor: &mut Cursor, draft: &Draft, space: &mut dyn Allocate, order: u64) -> Result<()> {
        let region = &*self.base.region;
        // The data of an implicit group is in its lane, that of an explicit one in its chain.
        let in_lane = std::mem::take(&mut cursor.entries.redo);
        let redo = || in_lane.iter().chain(draft.data());
        let has_data = redo().next().is_some();
        let entries = &mut cursor.entries;
        // 1: where the data is, and old bytes.
        if let Some(chain) = &draft.chain {
            entries.chain(region, &ENTRIES, chain)?;
        }
        let is_changed = entries.undo_all(region, &ENTRIES, space, draft)?;
        region.fence(LOG_FENCE)?;
        // 2: new bytes, in place.
        draft.store_in_place(region)?;
        if is_changed {
            region.fence(PLACE_FENCE)?;
        }
        // 3: the commit point. Nothing is acknowledged after the failure of another commit.
        self.base.lanes.check()?;
        let (half, entry, check) = cursor.commit_entry(order, has_data);
        region.write(COMMIT, half, &entry)?;
        region.fence(COMMIT_FENCE)?;
        if !has_data {
            return Ok(());
        }
        // 4: data, at home.
        for Redo { from, at, len } in redo() {
            match from {
                Some(from) => region.write_from(HOME, *at, region, *from, *len as usize)?,
                None => region.write(HOME, *at, &ZEROS[..*len as usize])?,
            }
        }
        region.fence(HOME_FENCE)?;
        // 5: before anybody can write over it.
        region.write(SETTLE, half + SETTLED, &check.to_le_bytes())?;
        Ok(region.fence(SETTLE_FENCE)?)
    }
}
