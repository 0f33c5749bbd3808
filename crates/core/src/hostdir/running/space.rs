//! Space of a file's blocks, as a running group changes and sees it: `fallocate`, holes and data.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::records::Space;
use wholly_vfs::Fallocate;

use super::{Inner, Running};
use crate::error::{Error, Result};
use crate::hostdir::clock::Mtime;
use crate::hostdir::memory::{HOLE, MEMORY, ZEROS};
use crate::hostdir::overlay::{Place, PrivateWrite};
use crate::hostdir::room::Promise;
use crate::hostdir::space::{Shape, Wishes, entries};
use crate::log::layout::{ENTRY, EntryKind, LINE};
use index::{BLOCK, RunVersion};
use sync::Ordering;

/// In the place of a sequence: a wish of the group itself, which is above those of all others.
pub(super) const OWN: u64 = u64::MAX;

/// What a group wants of the space of one of its files, and has not published.
pub(in crate::hostdir) type OwnWishes = Option<Box<Wishes>>;

/// A run of bytes of a file: whether they are data, and where that may end.
struct Extent {
    is_data: bool,
    end: u64,
}

impl Running {
    /// Changes what space the bytes from `offset` on have.
    pub(in crate::hostdir) fn fallocate(
        &mut self,
        inner: &Arc<Inner>,
        how: Fallocate,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        if length == 0 || i64::try_from(offset).is_err() || i64::try_from(length).is_err() {
            return Err(Error::invalid("an empty range, or one beyond 2^63 bytes"));
        }
        if how.moves() {
            return Err(Error::Refused("a store moves no bytes of a file; a volume can".into(), Errno::OPNOTSUPP));
        }
        let end = offset.saturating_add(length);
        self.store.check_length(inner, end)?;
        self.check_whole()?;
        let i = self.join(inner)?;
        if how.reserves() {
            self.promise_space(inner, offset, end)?;
        }
        if how.zeroes() {
            inner.set_sparse();
        }
        if inner.may_have_privileges() {
            self.content_changes(inner)?;
        }
        if self.seat().files[i].staged.is_some() {
            return self.allocate_staged(i, how, offset, end);
        }
        self.make_room_for(2 * (LINE as usize + ENTRY))?;
        for (how, range) in entries(how, offset, end, self.seat().files[i].size) {
            let space = Space { length: range.end - range.start, how };
            self.entry(EntryKind::Space, inner.id, range.start, &space.to_bytes())
                .map_err(|error| self.break_off(error))?;
            self.take_space(i, how, range);
        }
        if self.lasts {
            self.keep_room_for_commit();
        }
        let now = self.store.host.now_ns();
        let file = &mut self.seat_mut().files[i];
        file.touched = true;
        file.mtime = Mtime::Changed(now);
        Ok(())
    }

    /// Space for those of the bytes that lie in holes at home. What has space there and was never written may count as
    /// a hole.
    fn promise_space(&mut self, inner: &Inner, offset: u64, end: u64) -> Result<()> {
        /// How many runs of data are looked for: what lies after them counts as a hole.
        const MOST: usize = 1024;
        let (mut missing, mut at) = (end - offset, offset);
        if let Some(home) = inner.home() {
            for _ in 0..MOST {
                let Some(data) = home.next_data(at)?.filter(|data| *data < end) else { break };
                at = home.next_hole(data)?.unwrap_or(end).min(end);
                missing -= at - data;
            }
        }
        self.promise(Promise::bytes(missing), &inner.path)
    }

    /// What an entry says, for the group's own view.
    fn take_space(&mut self, i: usize, how: Fallocate, range: Range<u64>) {
        let shape = Shape::new(how, range.start, range.end);
        let seat = self.seat_mut();
        if !shape.zeroed.is_empty() {
            seat.writes.clear_range(i as u32, shape.zeroed.start * BLOCK, shape.zeroed.end * BLOCK);
        }
        for edge in shape.edges() {
            let length = (edge.end - edge.start) as u32;
            seat.writes.push(PrivateWrite { file: i as u32, length, offset: edge.start, place: Place::Zeros });
        }
        let file = &mut seat.files[i];
        shape.wish(file.wishes.get_or_insert_default(), OWN);
        if how.extends() {
            file.size = file.size.max(range.end);
        }
    }

    /// The first byte at or behind `offset` that is in no hole.
    pub(in crate::hostdir) fn next_data(&self, inner: &Arc<Inner>, offset: u64) -> Result<Option<u64>> {
        self.next_extent(inner, offset, true)
    }

    /// The first byte at or behind `offset` that is in a hole, as which the end of the file counts.
    pub(in crate::hostdir) fn next_hole(&self, inner: &Arc<Inner>, offset: u64) -> Result<Option<u64>> {
        self.next_extent(inner, offset, false)
    }

    fn next_extent(&self, inner: &Arc<Inner>, offset: u64, is_data: bool) -> Result<Option<u64>> {
        self.seen(inner, |running, i| {
            let size = running.size_seen(inner, i);
            if let Some(i) = i.filter(|&i| running.seat().files[i].staged.is_some()) {
                return if offset < size { running.next_staged(i, offset, is_data) } else { Ok(None) };
            }
            let mut at = offset;
            while at < size {
                let extent = running.extent(inner, i, at)?;
                if extent.is_data == is_data {
                    return Ok(Some(at));
                }
                at = extent.end;
            }
            Ok((!is_data && offset < size).then_some(size))
        })
    }

    /// Bytes of blocks that hold data or are reserved, where something is wished of the file's blocks that is not home.
    pub(in crate::hostdir) fn space_taken(&self, inner: &Arc<Inner>) -> Result<Option<u64>> {
        self.seen(inner, |running, i| {
            let own = i.and_then(|i| running.seat().files[i].wishes.as_deref());
            if own.is_none() && !inner.space.any() {
                return Ok(None);
            }
            let mut all = inner.space.with(Wishes::clone);
            if let Some(own) = own {
                all.take_in(own, OWN);
            }
            let reserved = |blocks: Range<u64>| {
                let parts = all.in_range(blocks).filter(|(_, wish)| wish.reserves());
                parts.map(|(blocks, _)| blocks.end - blocks.start).sum::<u64>()
            };
            let mut taken = reserved(0..u64::MAX);
            let (mut at, size) = (0, running.size_seen(inner, i));
            while at < size {
                let extent = running.extent(inner, i, at)?;
                let (first, end) = (at / BLOCK, extent.end.min(size).div_ceil(BLOCK));
                if extent.is_data {
                    taken += end - first - reserved(first..end);
                }
                at = end * BLOCK;
            }
            Ok(Some(taken * BLOCK))
        })
    }

    /// Who sees the file as this group's user does: the group itself, or the one of calls outside of groups that the
    /// file belongs to, with its number there; or everybody.
    fn seen<T>(&self, inner: &Arc<Inner>, look: impl FnOnce(&Running, Option<usize>) -> Result<T>) -> Result<T> {
        match self.find(inner) {
            Some(i) => look(self, Some(i)),
            None => self.store.with_epoch(inner, |epoch| match epoch {
                Some((running, i)) => look(running, Some(i)),
                None => look(self, None),
            }),
        }
    }

    fn size_seen(&self, inner: &Inner, i: Option<usize>) -> u64 {
        i.map_or_else(|| inner.size.load(Ordering::Acquire), |i| self.seat().files[i].size)
    }

    /// What stands at a byte of a file.
    fn extent(&self, inner: &Inner, i: Option<usize>, at: u64) -> Result<Extent> {
        let (block, block_end) = (at / BLOCK, (at / BLOCK + 1) * BLOCK);
        // What the group wrote lies above all; its ends are those of the hole beneath.
        let mut next = u64::MAX;
        if let Some(i) = i {
            let writes = &self.seat().writes;
            let mut here = writes.in_range(i as u32, block * BLOCK, block_end);
            if here.any(|write| write.place != Place::Zeros) {
                return Ok(Extent { is_data: true, end: block_end });
            }
            next = writes.next_written(i as u32, block_end).unwrap_or(u64::MAX) / BLOCK * BLOCK;
        }
        let file = i.map(|i| &self.seat().files[i]);
        let own = file.and_then(|file| file.wishes.as_deref()?.next_zeroed(block));
        let limit = file.map_or(u64::MAX, |file| file.limit).min(u64::MAX - BLOCK).next_multiple_of(BLOCK);
        if at >= limit {
            return Ok(Extent { is_data: false, end: next });
        }
        if let Some(blocks) = own.clone().filter(|blocks| blocks.contains(&block)) {
            return Ok(Extent { is_data: false, end: next.min(blocks.end.saturating_mul(BLOCK)) });
        }
        // What is masked from here on ends all that lies beneath.
        let mut masked = limit.min(own.map_or(u64::MAX, |blocks| blocks.start * BLOCK));
        match inner.index.get(block).filter(|slot| !slot.is_empty()) {
            Some(slot) => {
                let guard = slot.read();
                let mut versions = self.store.index.arena.list(guard.newest());
                let is_in = |version: &RunVersion, places: Range<u64>| places.contains(&version.position);
                let mut hole = false;
                for version in versions.by_ref() {
                    if !is_in(&version, ZEROS..MEMORY) {
                        return Ok(Extent { is_data: true, end: block_end });
                    }
                    if is_in(&version, HOLE..MEMORY) && u64::from(version.length) == BLOCK {
                        hole = true;
                        break;
                    }
                }
                if hole {
                    return Ok(Extent { is_data: false, end: block_end });
                }
                masked = masked.min(block_end);
            }
            None => {
                let versions = inner.index.first_from(block + 1, &|slot| !slot.is_empty());
                next = next.min(versions.map_or(u64::MAX, |block| block * BLOCK));
            }
        }
        let home_limit = inner.home_limit.load(Ordering::Acquire);
        if block * BLOCK >= home_limit {
            return Ok(Extent { is_data: false, end: next.min(masked) });
        }
        if let Some(blocks) = inner.space.with(|wishes| wishes.next_zeroed(block)) {
            if blocks.contains(&block) {
                return Ok(Extent { is_data: false, end: next.min(masked).min(blocks.end.saturating_mul(BLOCK)) });
            }
            masked = masked.min(blocks.start * BLOCK);
        }
        masked = masked.min(home_limit.next_multiple_of(BLOCK));
        let Some(home) = self.store.home_to_read(inner)? else {
            return Ok(Extent { is_data: false, end: next.min(masked) });
        };
        // By blocks: where home ends the store's file may go on.
        Ok(match home.next_data(block * BLOCK)? {
            Some(data) if data < block_end => {
                let end = home.next_hole(data)?.unwrap_or(block_end);
                Extent { is_data: true, end: end.max(at + 1).next_multiple_of(BLOCK).min(masked) }
            }
            data => Extent { is_data: false, end: next.min(masked).min(data.unwrap_or(u64::MAX)) },
        })
    }
}
