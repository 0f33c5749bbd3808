//! The two epochs of a commit. One group at a time has the lane.

use std::collections::BTreeSet;

use wholly::Result;

use super::view::Shadowing;
use super::{COMMIT_FENCE, INODES, Places, ROOT, SHADOW_FENCE, Shadow};
use crate::engine::{Load, Part, Replay, inode_block, inode_index};
use crate::format::log::{Entry, encode};
use crate::format::{BLOCK, Lba};

impl Shadow {
    /// Commits a group. Returns its place in commit order.
    pub(super) fn commit_one(&self, part: &mut Part<'_>, replay: &dyn Replay) -> Result<u64> {
        let draft = &mut *part.draft;
        let block = |at: u64| inode_index(Lba(at / BLOCK as u64)).expect("a draft has lines of inodes only");
        let changed: BTreeSet<u64> = draft.changes().map(|(at, _)| block(at)).collect();
        if changed.is_empty() && draft.grows == 0 {
            let is_unreached = (draft.stored || !draft.images.is_empty()) && draft.group.is_none();
            assert!(!is_unreached, "what a group has stored early, one of its changes reaches");
            return Ok(0);
        }
        let inode_file = replay.inode_file().expect("the core has an inode file");
        let region = &*self.base.region;
        let cursor = self.base.lanes.take()?;
        let committing = self.base.lanes.commit()?;
        let order = self.base.next_order();
        // 1: all that the new root leads to. The blocks are as other groups have committed them.
        let (mut map, mut moved) = (inode_file.map(), Vec::new());
        for index in changed {
            let mut bytes = [0; BLOCK];
            let at = inode_block(index);
            self.load(at, 0, &mut bytes)?;
            draft.overlay(at.byte(), &mut bytes);
            let to = part.space.take(1).start;
            region.write(INODES, to.byte(), &bytes)?;
            moved.push((index, to));
        }
        let grows = std::mem::take(&mut draft.grows);
        let mut view = Shadowing { engine: self, draft, space: part.space };
        for (index, to) in &moved {
            inode_file.place(&mut view, &mut map, *index, *to)?;
        }
        let more = inode_file.grow(&mut view, &mut map, grows)?;
        self.store_images(draft)?;
        region.fence(SHADOW_FENCE)?;
        // 2: the commit point. Nothing is acknowledged after the failure of another commit.
        self.base.lanes.check()?;
        let (lane, sequence) = cursor.group();
        let (seed, entry) = (self.base.lanes.seed().lane(lane), Entry::Root { tree: map.tree, inodes: map.inodes });
        for (at, number) in self.base.lanes.area.roots(sequence) {
            region.write(ROOT, at, &encode(seed, at, (sequence, number), &entry).0)?;
        }
        region.fence(COMMIT_FENCE)?;
        let mut places = self.places.write().unwrap();
        let Places { map: known, blocks } = &mut *places;
        *known = map;
        moved.into_iter().for_each(|(index, to)| blocks[index as usize] = to);
        blocks.extend(more);
        inode_file.publish(map);
        drop(places);
        committing.end(&cursor);
        Ok(order)
    }
}
