//! The two epochs of a commit. One group at a time has the lane.

use std::collections::BTreeSet;

use wholly_error::Result;

use super::view::Shadowing;
use super::{COMMIT_FENCE, INODES, Places, ROOT, SHADOW_FENCE, Shadow};
use crate::engine::draft::InodeFileChange;
use crate::engine::{Load, Part, Replay, inode_block, inode_index};
use crate::format::inode::PER_BLOCK;
use crate::format::log::{Entry, encode};
use crate::format::{BLOCK, Lba};

impl Shadow {
    /// Commits a group. Returns its place in commit order.
    pub(super) fn commit_one(&self, part: &mut Part<'_>, replay: &dyn Replay) -> Result<u64> {
        let draft = &mut *part.draft;
        let block = |at: u64| inode_index(Lba(at / BLOCK as u64)).expect("a draft has lines of inodes only");
        let changed: BTreeSet<u64> = draft.changes().map(|(at, _)| block(at)).collect();
        if changed.is_empty() && draft.inode_file.is_none() {
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
        let (mut map, mut placed) = (inode_file.map(), Vec::new());
        for index in changed {
            let mut bytes = [0; BLOCK];
            let at = inode_block(index);
            self.load(at, 0, &mut bytes)?;
            draft.overlay(at.byte(), &mut bytes);
            let to = part.space.take(1).start;
            region.write(INODES, to.byte(), &bytes)?;
            placed.push((index, Some(to)));
        }
        let change = draft.inode_file.take();
        let mut view = Shadowing { engine: self, draft, space: part.space };
        for (index, to) in &placed {
            let to = to.expect("a block that moves is there");
            inode_file.place(&mut view, &mut map, *index, to)?;
        }
        match &change {
            Some(InodeFileChange::Grow(first, blocks)) => {
                let grown = inode_file.grow(&mut view, &mut map, *first, *blocks)?;
                placed.extend((*first..).zip(grown.into_iter().map(Some)));
            }
            Some(InodeFileChange::GiveBack(blocks, generation_floor)) => {
                inode_file.give_back(&mut view, &mut map, blocks, *generation_floor)?;
                let given = blocks.iter().flat_map(|(first, count)| *first..first + count);
                placed.extend(given.map(|index| (index, None)));
            }
            None => {}
        }
        self.store_images(draft)?;
        region.fence(SHADOW_FENCE)?;
        // 2: the commit point. Nothing is acknowledged after the failure of another commit.
        self.base.lanes.check()?;
        let (lane, sequence) = cursor.group();
        let (seed, entry) = (self.base.lanes.seed().lane(lane), Entry::Root(map));
        for (at, number) in self.base.lanes.area.roots(sequence) {
            region.write(ROOT, at, &encode(seed, at, (sequence, number), &entry).0)?;
        }
        region.fence(COMMIT_FENCE)?;
        let mut places = self.places.write().unwrap();
        let Places { map: known, blocks, present } = &mut *places;
        *known = map;
        blocks.resize((map.inodes / PER_BLOCK) as usize, None);
        for (index, to) in placed {
            let was = std::mem::replace(&mut blocks[index as usize], to);
            *present = *present + u64::from(to.is_some()) - u64::from(was.is_some());
        }
        inode_file.publish(map);
        drop(places);
        committing.end(&cursor);
        Ok(order)
    }
}
