//! The commit: what groups change becomes images, and one thread writes the record of all that wait.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet};

use wholly_blocks::log::{Entry, head_blocks, image_sum};
use wholly_error::Result;
use wholly_media::disk::AlignedBuf;

use super::pages::Bytes;
use super::{COMMIT, FRESH, FRESH_FENCE, Mistake, PageCacheWal, SPILL, SPILL_FENCE};
use crate::engine::Part;
use crate::format::log::LINE;
use crate::format::{BLOCK, Lba, Run};

/// Images, at most, in the record of several groups.
const MOST_IMAGES: u64 = 256;

/// What a group changes.
#[derive(Default)]
pub(super) struct Change {
    /// Lines of metadata, by the byte of the volume at which each begins.
    lines: Vec<(u64, [u8; LINE])>,
    /// Blocks of content.
    pages: BTreeMap<u64, Bytes>,
    /// Blocks that it took, and that are not at home.
    fresh: Vec<u64>,
    /// Blocks that it frees.
    freed: Vec<Run>,
    /// Others of which earlier images are void.
    void: BTreeSet<u64>,
}

impl Change {
    /// Blocks that the record has images of, at most.
    fn images(&self) -> u64 {
        let mut of_lines = self.lines.chunk_by(|(one, _), (other, _)| one / BLOCK as u64 == other / BLOCK as u64);
        (self.pages.len() + self.fresh.len()) as u64 + (&mut of_lines).count() as u64
    }
}

impl PageCacheWal {
    /// Commits a group. Returns its place in commit order.
    pub(super) fn commit_one(&self, part: &mut Part<'_>) -> Result<u64> {
        self.check()?;
        let change = self.change_of(part)?;
        if change.lines.is_empty() && change.pages.is_empty() {
            // What it took, nobody can reach.
            change.fresh.iter().for_each(|block| self.pages.discard(*block));
            return Ok(0);
        }
        if self.log.ring.fits(change.images()) {
            self.commit_in_turn(change)
        } else {
            let leading = self.committers.lead_alone()?;
            self.commit_large(part, change)?;
            leading.end(0);
            Ok(self.log.next())
        }
    }

    /// Takes from a group what it changes. If it has taken much, that is at home, durably.
    fn change_of(&self, part: &mut Part<'_>) -> Result<Change> {
        let lines = part.draft.changes().map(|(at, line)| (at, line.new)).collect();
        let paged = &mut part.draft.paged;
        let mut fresh: Vec<u64> = std::mem::take(&mut paged.fresh).into_iter().collect();
        let (pages, freed) = (std::mem::take(&mut paged.pages), std::mem::take(&mut paged.freed));
        let change = Change { lines, pages, freed, void: std::mem::take(&mut paged.void), ..Change::default() };
        let is_small = !paged.is_stored && fresh.len() as u64 <= self.small;
        if !is_small || !fresh.iter().all(|block| self.pages.is_fresh(*block)) {
            self.failing(self.pages.write_fresh(FRESH, &fresh))?;
            self.failing(self.region.fence(FRESH_FENCE))?;
            fresh.clear();
        }
        Ok(Change { fresh, ..change })
    }

    fn commit_in_turn(&self, change: Change) -> Result<u64> {
        let ring = self.log.ring;
        let fits = |images| images <= MOST_IMAGES && ring.fits(images);
        self.committers.commit(change, Change::images, fits, |batch| self.lead(batch))?;
        Ok(self.log.next())
    }

    /// Commits some groups by one record.
    fn lead(&self, mut batch: Vec<Change>) -> Result<()> {
        let (mut images, mut void) = (BTreeMap::<u64, Bytes>::new(), Vec::new());
        for change in &mut batch {
            images.append(&mut change.pages);
            for block in &change.fresh {
                if let Place::Vacant(image) = images.entry(*block) {
                    image.insert(self.pages.copy(*block)?);
                }
            }
            self.put_lines(&change.lines, &mut images)?;
            self.log.imaged(&change.freed, &mut void);
            void.extend(&change.void);
        }
        if self.mistake == Some(Mistake::OthersLines) {
            let mut others = self.planted.lock().unwrap().clone();
            others.retain(|(at, _)| images.contains_key(&(at / BLOCK as u64)));
            self.put_lines(&others, &mut images)?;
        }
        let head = head_blocks((images.len() + void.len()) as u64);
        let blocks = head + images.len() as u64;
        let at = self.place(blocks)?;
        let write = |bytes: &mut [u8]| -> Result<u64> {
            let of = images.iter().map(|(home, image)| (Lba(*home), &**image));
            let sequence = self.log.fill(of, self.voided(void), at, bytes);
            if self.mistake == Some(Mistake::HomeBeforeLog) {
                self.publish_home(&images, sequence)?;
            }
            self.region.write_through(COMMIT, self.log.ring.block(at).byte(), bytes)?;
            Ok(sequence)
        };
        let sequence = self.record.with(blocks as usize * BLOCK, write)?;
        let homes: Vec<u64> = images.keys().copied().collect();
        images.into_iter().for_each(|(block, image)| self.pages.publish(block, image, sequence));
        self.log.append(at, blocks, homes.into_iter());
        let freed = batch.iter().flat_map(|change| &change.freed);
        freed.flat_map(|run| run.start.0..run.start.0 + run.count).for_each(|block| self.pages.discard(block));
        Ok(())
    }

    /// Puts changed lines over copies of committed blocks.
    fn put_lines(&self, lines: &[(u64, [u8; LINE])], images: &mut BTreeMap<u64, Bytes>) -> Result<()> {
        for (at, line) in lines {
            let (block, offset) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let image = match images.entry(block) {
                Place::Occupied(image) => image.into_mut(),
                Place::Vacant(image) => image.insert(self.pages.copy(block)?),
            };
            image[offset..offset + LINE].copy_from_slice(line);
        }
        Ok(())
    }

    /// Blocks of which earlier images are void, but for a mistake that tests plant.
    fn voided(&self, void: Vec<u64>) -> Vec<u64> {
        if self.mistake == Some(Mistake::NoVoid) { Vec::new() } else { void }
    }

    /// Where the next record goes. If the log is full, it is written back first.
    fn place(&self, blocks: u64) -> Result<u64> {
        if let Some(at) = self.log.place(blocks) {
            return Ok(at);
        }
        self.write_back()?;
        Ok(self.log.place(blocks).expect("a record fits into an empty log"))
    }

    /// Commits a group whose images are not in the ring: they are in free space until they are at home.
    fn commit_large(&self, part: &mut Part<'_>, mut change: Change) -> Result<()> {
        let (seed, mut entries, mut void) = (self.log.seed(), Vec::new(), Vec::new());
        self.log.imaged(&change.freed, &mut void);
        void.extend(&change.void);
        let mut blocks: BTreeSet<u64> = change.lines.iter().map(|(at, _)| at / BLOCK as u64).collect();
        blocks.extend(change.pages.keys().chain(&change.fresh));
        let (mut left, mut run) = (blocks.len() as u64, Run { start: Lba(0), count: 0 });
        let mut lines = &change.lines[..];
        for block in &blocks {
            let (of_block, rest) = lines.split_at(lines.partition_point(|(at, _)| at / BLOCK as u64 <= *block));
            lines = rest;
            let mut image = BTreeMap::from([match change.pages.remove(block) {
                Some(page) => (*block, page),
                None => (*block, self.pages.copy(*block)?),
            }]);
            self.put_lines(of_block, &mut image)?;
            if run.count == 0 {
                run = part.space.take(left);
                // Free again when the group has ended: then nothing leads there.
                part.space.release(run);
            }
            let (home, at) = (Lba(*block), run.start);
            self.region.write(SPILL, at.byte(), &image[block][..])?;
            entries.push(Entry::Image { home, at, sum: image_sum(seed, home, &image[block][..]) });
            (run, left) = (Run { start: Lba(at.0 + 1), count: run.count - 1 }, left - 1);
        }
        self.region.fence(SPILL_FENCE)?;
        let blocks = head_blocks((entries.len() + void.len()) as u64);
        let at = self.place(blocks)?;
        let mut bytes = AlignedBuf::zeroed(blocks as usize * BLOCK);
        let sequence = self.log.fill_head(entries.clone(), self.voided(void), (at, blocks), &mut bytes);
        self.region.write_through(COMMIT, self.log.ring.block(at).byte(), &bytes)?;
        let most = (self.pages.total() as usize / 4).max(1);
        for some in entries.chunks(most) {
            for entry in some {
                let Entry::Image { home, at, .. } = entry else { continue };
                let mut image = Box::new([0; BLOCK]);
                self.region.read(at.byte(), &mut image[..])?;
                self.pages.publish(home.0, image, sequence);
            }
            let homes: Vec<u64> = some.iter().map(|entry| entry_home(entry).0).collect();
            self.write_home(&homes, sequence + 1)?;
        }
        self.log.append(at, blocks, entries.iter().map(|entry| entry_home(entry).0));
        let freed = change.freed.iter().flat_map(|run| run.start.0..run.start.0 + run.count);
        freed.for_each(|block| self.pages.discard(block));
        // Its images may be written over once it has returned.
        self.write_back()
    }
}

fn entry_home(entry: &Entry) -> Lba {
    match entry {
        Entry::Image { home, .. } => *home,
        Entry::Void(_) => unreachable!("it has images only"),
    }
}
