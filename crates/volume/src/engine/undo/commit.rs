//! The three epochs of a commit.

use wholly_error::Result;

use super::{COMMIT, COMMIT_FENCE, ENTRIES, LOG_FENCE, PLACE_FENCE, UndoLog};
use crate::engine::Part;

impl UndoLog {
    /// Commits a group. Returns its place in commit order.
    pub(super) fn commit_one(&self, part: &mut Part<'_>) -> Result<u64> {
        let draft = &*part.draft;
        if draft.changes().next().is_none() {
            let is_unreached = draft.stored && draft.group.is_none();
            assert!(!is_unreached, "what a group has stored early, one of its changes reaches");
            return Ok(0);
        }
        let region = &*self.base.region;
        let mut cursor = self.base.lanes.take()?;
        let committing = self.base.lanes.commit()?;
        let order = self.base.next_order();
        // 1: old bytes.
        cursor.entries.undo_runs(region, &ENTRIES, part.space, draft)?;
        region.fence(LOG_FENCE)?;
        // 2: new bytes, in place.
        draft.store_in_place(region)?;
        region.fence(PLACE_FENCE)?;
        // 3: the commit point. Nothing is acknowledged after the failure of another commit.
        self.base.lanes.check()?;
        let (at, entry, _) = cursor.commit_entry(order, false);
        region.write(COMMIT, at, &entry)?;
        region.fence(COMMIT_FENCE)?;
        committing.end(&cursor);
        Ok(order)
    }
}
