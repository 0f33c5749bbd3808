//! The commit: a group's pages, and copies of the newest ones with its lines over them, become a transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sync::MutexGuard;
use wholly_blocks::{Page, Placement, Sequence, Tag, Txid};
use wholly_error::Result;
use wholly_media::Site;
use wholly_vfs::GroupId;

use super::replay::{List, check_same};
use super::{COMMIT, FRESH, Mistake, PageEngine, Paged, Toggle};
use crate::engine::draft::Lines;
use crate::engine::{Engine, Load, Operation, Part, Replay, StorageView, corrupt};
use crate::format::log::LINE;
use crate::format::{BLOCK, Fault, Lba, Run};

/// What the blocks are that some code changes. For counts only.
fn tag_of(site: Site) -> Tag {
    let is = |part: &str| site.0.starts_with(part);
    match site {
        _ if is("volume.map") => Tag::Map,
        _ if is("volume.bitmap") => Tag::Bitmap,
        _ if is("volume.entry") || is("volume.leaf") || is("volume.dir") => Tag::Directory,
        _ => Tag::Inode,
    }
}

impl PageEngine {
    /// Orders a group. Returns its place in commit order.
    pub(super) fn commit_one(&self, part: &mut Part<'_>, replay: &dyn Replay) -> Result<u64> {
        self.check()?;
        let lines = part.draft.take_changes();
        let paged = &part.draft.paged;
        if lines.is_empty() && paged.pages.is_empty() && paged.toggles.is_empty() {
            // What it took, nobody can reach.
            self.failing(self.give_up(&mut part.draft.paged))?;
            return Ok(0);
        }
        let toggles = std::mem::take(&mut part.draft.paged.toggles);
        let list = part.draft.paged.list.take().map(|list| (list, std::mem::take(&mut part.draft.fresh)));
        let changes = Changes { group: part.group, lines, toggles: &toggles, list: list.as_ref(), replay };
        let committed = self.commit_lines(part, changes);
        Ok(self.failing(committed)?.0)
    }

    /// Drops what a group has.
    pub(super) fn give_up(&self, paged: &mut Paged) -> Result<()> {
        let paged = std::mem::take(paged);
        paged.fresh.iter().for_each(|block| self.pages.discard(*block..block + 1));
        self.end_stolen(&paged);
        paged.stolen.iter().for_each(|(run, ())| self.pages.discard(run));
        // Some of them may be fresh.
        paged.freed.iter().for_each(|Run { start, count }| self.pages.discard(start.0..start.0 + count));
        paged.tx.map_or(Ok(()), |tx| self.blocks.abort(COMMIT, tx))
    }

    /// Hands all fresh pages to the transaction, if they are many.
    pub(super) fn hand_over_many(&self, paged: &mut Paged) -> Result<()> {
        match !paged.stolen.is_empty() || paged.fresh.len() as u64 > self.small {
            true => self.hand_over(FRESH, paged),
            false => Ok(()),
        }
    }

    fn end_stolen(&self, paged: &Paged) {
        paged.stolen.iter().for_each(|(run, ())| self.pages.ordered(run));
    }

    fn commit_lines(&self, part: &mut Part<'_>, mut changes: Changes<'_>) -> Result<Sequence> {
        let of_toggles = changes.toggles.iter().map(|toggle| toggle.at.0);
        let blocks: BTreeSet<u64> = changes.lines.keys().copied().chain(of_toggles).collect();
        let mut after: Vec<Sequence> = part.draft.after.iter().map(|after| Sequence(after.0)).collect();
        if self.mistake == Some(Mistake::AfterNothing) {
            after.clear();
        }
        let paged = &mut part.draft.paged;
        let tx = self.transaction(paged)?;
        self.hand_over_many(paged)?;
        let images = (blocks.len() + paged.pages.len() + paged.fresh.len()) as u64;
        let of = self.blocks.guarantees();
        let sequence = if images <= of.room {
            // What is read from the medium is read without the locks.
            blocks.iter().try_for_each(|block| self.pages.get(*block).map(drop))?;
            let _turn = self.turn.read().unwrap();
            self.blocks.admit(tx, images)?;
            self.write_own(paged, tx, images)?;
            let newest = self.lock_newest(&blocks)?;
            let is_timed = self.locked.is_some() || self.holds.is_some();
            let begun = if is_timed { sync::now() } else { Duration::ZERO };
            let mut pages = Vec::new();
            self.write_changed(tx, &blocks, &mut changes, |block, page| pages.push((block, page)))?;
            let sequence = self.blocks.order(COMMIT, &[tx], &after)?;
            // Not before: a page could leave the cache, and its old version be read again.
            pages.into_iter().for_each(|(block, page)| self.pages.put(block, page));
            match &self.locked {
                Some(locked) => locked.lock().unwrap().extend(blocks.iter().map(|block| (*block, (sequence, begun)))),
                None => self.holds.iter().for_each(|holds| holds.note(begun)),
            }
            drop(newest);
            sequence
        } else {
            // A write that was not admitted may wait: so nobody else is about to order anything.
            let _turn = self.turn.write().unwrap();
            let lent = of.most_overwrites.is_some_and(|most| images > most);
            let mut left = if lent { images } else { 0 };
            while left > 0 {
                let run = part.space.take(left);
                // Free again when the group has ended: then it is durable.
                part.space.release(run);
                self.blocks.lend(tx, run)?;
                left -= run.count;
            }
            self.write_own(paged, tx, images)?;
            // The transaction has the pages: there may be more than memory takes.
            self.write_changed(tx, &blocks, &mut changes, |_, _| {})?;
            let sequence = self.blocks.order(COMMIT, &[tx], &after)?;
            blocks.iter().for_each(|block| self.pages.forget(*block));
            sequence
        };
        let paged = std::mem::take(&mut *part.draft.paged);
        self.end_stolen(&paged);
        paged.fresh.iter().for_each(|block| self.pages.sent(*block, None));
        paged.pages.into_iter().for_each(|(block, page)| self.pages.put(block, page));
        paged.freed.iter().for_each(|Run { start, count }| self.pages.discard(start.0..start.0 + count));
        Ok(sequence)
    }

    /// Excludes others from making pages the newest. Waits for the pages that are locked, if some are.
    fn lock_newest(&self, blocks: &BTreeSet<u64>) -> Result<MutexGuard<'_, ()>> {
        loop {
            let newest = self.newest.lock().unwrap();
            let Some(locked) = &self.locked else { return Ok(newest) };
            let by = blocks.iter().find_map(|block| locked.lock().unwrap().get(block).copied());
            let Some((by, _)) = by else { return Ok(newest) };
            drop(newest);
            self.blocks.wait(COMMIT, by)?;
            self.unlock_pages(by);
        }
    }

    /// What this one has locked, others can change.
    pub(super) fn unlock_pages(&self, by: Sequence) {
        let Some(locked) = &self.locked else { return };
        let mut since = None;
        locked.lock().unwrap().retain(|_, (of, begun)| {
            if *of == by {
                since = Some(*begun);
            }
            *of != by
        });
        self.holds.zip(since).into_iter().for_each(|(holds, since)| holds.note(since));
    }

    /// Writes what only the group has.
    fn write_own(&self, paged: &Paged, tx: Txid, images: u64) -> Result<()> {
        let placement = match self.mistake {
            Some(Mistake::ContentInPlace) => Placement::Fresh,
            _ => Placement::Overwrite,
        };
        for (block, page) in &paged.pages {
            self.blocks.write(COMMIT, tx, Lba(*block), page.clone(), placement, Tag::Data)?;
        }
        for block in &paged.fresh {
            if let Some(page) = self.pages.fresh_page(*block) {
                self.blocks.write(FRESH, tx, Lba(*block), page, Placement::Fresh, Tag::Data)?;
            }
        }
        // Where the order is not total, there is room for one description, of these and of the group's images. What is
        // not discarded goes home for nothing.
        let most = match self.is_total() {
            true => usize::MAX,
            false => (self.blocks.guarantees().lent_by_overwrite / 2).saturating_sub(images) as usize,
        };
        paged.freed.iter().take(most).try_for_each(|run| self.blocks.discard(COMMIT, tx, *run))
    }

    /// Writes the newest pages with the group's lines over them, and its bits changed. When the transaction has its
    /// place, they are the newest.
    fn write_changed(
        &self,
        tx: Txid,
        blocks: &BTreeSet<u64>,
        Changes { group, lines, toggles, list, replay }: &mut Changes<'_>,
        mut written: impl FnMut(u64, Page),
    ) -> Result<()> {
        let others = match self.mistake {
            Some(Mistake::OthersLines) => self.planted.lock().unwrap().clone(),
            _ => Vec::new(),
        };
        let replayed = |(list, own): &(List, _)| self.replayed(list, own, toggles, *replay);
        let mut copies = list.map(replayed).transpose()?;
        for block in blocks {
            // What is written takes no memory here any more.
            let (mut page, of_block) = (self.pages.get(*block)?, lines.remove(block).unwrap_or_default());
            if self.mistake == Some(Mistake::RedoOutOfOrder) {
                let planted = self.planted_pages.lock().unwrap();
                let of_group = planted.iter().find(|(by, of, _)| (*by, of) == (*group, block));
                page = of_group.map_or(page, |(.., page)| page.clone());
            }
            of_block.changes().for_each(|(at, line)| put_line(&mut page, at, &line.new));
            let is_here = |at: u64| at / BLOCK as u64 == *block;
            others.iter().filter(|(at, _)| is_here(*at)).for_each(|(at, line)| put_line(&mut page, *at, line));
            // They come in the order of the blocks.
            if let Ok(of_bits) = toggles.binary_search_by_key(block, |toggle| toggle.at.0) {
                let Toggle { bitmap, at, bits } = &toggles[of_bits];
                let toggle = Operation::Toggle { bitmap: *bitmap, at: *at, bits };
                replay.redo(&toggle, &mut OnPage { page: &mut page, at: *at })?;
            }
            if let Some(copy) = copies.as_mut().and_then(|copies| copies.remove(block)) {
                check_same(Lba(*block), &copy, &page)?;
                page = copy;
            }
            let tag = of_block.changes().next().map_or(Tag::Bitmap, |(_, line)| tag_of(line.site));
            self.blocks.write(COMMIT, tx, Lba(*block), page.clone(), Placement::Overwrite, tag)?;
            written(*block, page);
        }
        // In these, all was taken back.
        let mut rest = copies.unwrap_or_default().into_iter();
        rest.try_for_each(|(block, copy)| check_same(Lba(block), &copy, &self.pages.get(block)?))
    }
}

/// What a group changes of pages that are committed.
struct Changes<'c> {
    group: GroupId,
    lines: BTreeMap<u64, Lines>,
    toggles: &'c [Toggle],
    /// With `op_log:replay`: what it has recorded, and the blocks that it took.
    list: Option<&'c (List, BTreeSet<Lba>)>,
    replay: &'c dyn Replay,
}

/// The view of a mutator that changes one page alone.
struct OnPage<'p> {
    page: &'p mut Page,
    at: Lba,
}

impl OnPage<'_> {
    fn check(&self, at: Lba) -> Result<()> {
        if at == self.at { Ok(()) } else { Err(corrupt(format!("block {}", at.0), Fault("it is no bitmap block"))) }
    }
}

impl Load for OnPage<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.check(at)?;
        buf.copy_from_slice(&self.page[offset..offset + buf.len()]);
        Ok(())
    }
}

impl StorageView for OnPage<'_> {
    fn update(&mut self, _site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(at)?;
        self.page.put(offset, bytes);
        Ok(())
    }

    fn fresh(&mut self) -> Lba {
        unreachable!("a change of bits takes no block")
    }

    fn release(&mut self, _at: Lba) {
        unreachable!("a change of bits gives up no block")
    }
}

fn put_line(page: &mut Page, at: u64, line: &[u8; LINE]) {
    page.put((at % BLOCK as u64) as usize, line);
}
