//! How a group that lasts writes over its own bytes, and gives log back that it needs no more. Such groups hold the
//! calls outside of explicit groups between two syncs (policies `per-sync` and `shared`).
//!
//! # Terms
//!
//! - *own bytes*: what the group has written and still sees, each in one place of the log, or in memory.
//! - *dead bytes*: what the group has in the log and does not see any more: they lie beneath later writes, cuts or
//!   holes.
//!
//! # Invariants
//!
//! 1. What a crash right behind the commit would replay for an own byte is that byte in its place. So bytes may be
//!    written over in their place, and may move behind everything else that the group has told.
//! 2. Bytes move from the oldest part to the newest, and the part is given up once all have moved. So what is left of a
//!    dead write lies beneath all that has killed it; but the cuts and zeros in given parts are told again, before all
//!    else, when the group commits: as far as committed bytes go ([`Running::tell_first`]).
//! 3. A call that finds no room for all that it adds has written over nothing.
//! 4. A block with many small pieces of own bytes becomes one piece: at most [`MOST_PIECES`] pieces lie in a block, but
//!    for those of calls that cover them whole.
//!
//! # Bounds
//!
//! A group has at most half as many dead bytes in the log as own ones, entries and padding included, and a segment
//! more, and what its last calls have added.

use std::collections::BTreeSet;
use std::sync::Arc;

use wholly_changes::records::Space;
use wholly_vfs::Fallocate;

use super::space::OWN;
use super::{Inner, Joined, Running};
use crate::error::{Error, Result};
use crate::hostdir::clock::Mtime;
use crate::hostdir::overlay::{Place, PrivateWrite};
use crate::hostdir::space::Wishes;
use crate::log::Gathered;
use crate::log::layout::{ENTRY, EntryKind, LINE};
use index::BLOCK;

/// See invariant 4.
const MOST_PIECES: usize = 8;

/// Bytes of a segment that the commit of a group of one file takes, but for what it tells of holes.
const FOR_COMMIT: u64 = 2 << 10;

/// Bytes of parts that a call gives up, beside twice as many as the call before it has added.
const AT_ONCE: u64 = 64 << 10;

/// Bytes that a call appends: the group has none there, or none that can be written over.
struct Gap {
    from: u64,
    to: u64,
}

impl Running {
    /// Makes it a group that lasts.
    pub(in crate::hostdir) fn into_lasting(mut self) -> Self {
        self.lasts = true;
        if self.in_lane {
            self.seat_mut().lane.open_to_overwrite();
            self.keep_room_for_commit();
        }
        self
    }

    /// Sees to it that what a commit tells besides finds room in the segment that the group fills: a sync is to work
    /// where the log is full.
    pub(super) fn keep_room_for_commit(&mut self) {
        let most = self.store.log.record_capacity() / 4;
        if self.seat().lane.kept_free() >= most {
            return;
        }
        let wishes = self.seat().files.iter().filter_map(|file| file.wishes.as_deref());
        let wishes: usize = wishes.map(|wishes| wishes.in_range(0..u64::MAX).count()).sum();
        let bytes = FOR_COMMIT + wishes as u64 * (LINE + ENTRY as u64);
        self.seat_mut().lane.keep_free(bytes.min(most));
    }

    /// Writes over bytes that the group has. Returns whether it did; else it has changed nothing.
    #[inline]
    pub(super) fn write_own(&mut self, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<bool> {
        let Some(i) = self.find(inner) else { return Ok(false) };
        let Some(seat) = &mut self.seat else { return Ok(false) };
        let end = offset.saturating_add(data.len() as u64);
        let file = &mut seat.files[i];
        if self.broken.is_some() || data.is_empty() || file.staged.is_some() || inner.may_have_privileges() {
            return Ok(false);
        }
        let Some(piece) = seat.writes.last_in(i as u32, offset, end) else {
            return self.write_beside(i, inner, offset, data);
        };
        if piece.offset <= offset
            && end <= piece.end()
            && let Place::Log(position, entry) = piece.place
        {
            match seat.lane.write_over(&self.store.log, position + (offset - piece.offset), entry, data) {
                Ok(true) => {
                    file.mtime = Mtime::Changed(self.store.host.now_ns());
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) => return Err(self.fail(error)),
            }
        }
        self.write_among(i, inner, offset, data)
    }

    /// Writes where the group has no bytes yet, if a block has too many pieces. Returns whether it did.
    fn write_beside(&mut self, i: usize, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<bool> {
        let length = data.len() as u64;
        match self.is_crowded(i, offset, length) {
            true => self.write_among(i, inner, offset, data),
            false => Ok(false),
        }
    }

    /// Whether no more pieces fit into a block of a range, which is no longer than a block.
    fn is_crowded(&self, i: usize, offset: u64, length: u64) -> bool {
        let writes = &self.seat().writes;
        let full = |block| writes.in_range(i as u32, block * BLOCK, (block + 1) * BLOCK).nth(MOST_PIECES - 1).is_some();
        length <= BLOCK && writes.len() >= MOST_PIECES && (offset / BLOCK..(offset + length).div_ceil(BLOCK)).any(full)
    }

    /// Stores bytes over own ones, if they can be. They survive as the group does.
    fn store_over(&mut self, place: Place, data: &[u8]) -> Result<bool> {
        let seat = self.seat.as_mut().expect("the group has not ended");
        match place {
            Place::Log(position, entry) => match seat.lane.write_over(&self.store.log, position, entry, data) {
                Ok(written) => Ok(written),
                Err(error) => Err(self.fail(error)),
            },
            Place::Gathered(entry, at) => {
                if let Some(swapped) = seat.swapped.get(&entry) {
                    return Ok(self.store.swap.write(&*self.store.host, *swapped, at, data).is_ok());
                }
                // While it is being committed somebody else has it, too.
                let Some(bytes) = Arc::get_mut(&mut seat.gathered[entry].data) else { return Ok(false) };
                bytes[at as usize..][..data.len()].copy_from_slice(data);
                Ok(true)
            }
            Place::Shadow(_) | Place::Zeros => Ok(false),
        }
    }

    /// Writes where the group has some of the bytes, or a block has too many pieces. Returns whether it did.
    #[inline(never)]
    fn write_among(&mut self, i: usize, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<bool> {
        let (end, length) = (offset + data.len() as u64, data.len() as u64);
        self.seat_mut().writes.sort();
        let may_be_shadowed = length >= self.store.options.stage_bytes && self.store.host.shares_blocks();
        if i64::try_from(end).is_err() || may_be_shadowed {
            return Ok(false);
        }
        self.store.check_length(inner, end)?;
        self.end_run()?;
        let pieces: Vec<PrivateWrite> = self.seat().writes.in_range(i as u32, offset, end).collect();
        let is_in_place = |piece: &PrivateWrite| match piece.place {
            Place::Log(position, _) => self.seat().lane.can_write_over(position),
            Place::Gathered(..) => true,
            Place::Shadow(_) | Place::Zeros => false,
        };
        let (mut gaps, mut over): (Vec<Gap>, Vec<PrivateWrite>) = (Vec::new(), Vec::new());
        let mut at = offset;
        for piece in pieces.into_iter().filter(is_in_place) {
            if at < piece.offset {
                gaps.push(Gap { from: at, to: piece.offset });
            }
            at = piece.end();
            over.push(piece);
        }
        if at < end {
            gaps.push(Gap { from: at, to: end });
        }
        let image = !gaps.is_empty() && self.is_crowded(i, offset, length);
        let missing: u64 = gaps.iter().map(|gap| gap.to - gap.from).sum();
        // On a disk what is appended may end the segment that holds the rest.
        let added = match (image, gaps.is_empty() || self.store.log.is_pmem()) {
            (true, _) => 2 * BLOCK,
            (false, true) => missing,
            (false, false) => length,
        };
        self.promise_blocks(i, offset, length)?;
        self.make_room_for(added as usize + gaps.len() * LINE as usize)?;
        if image {
            self.write_image(i, inner, offset, data)?;
        } else {
            for (n, Gap { from, to }) in gaps.into_iter().enumerate() {
                let part = &data[(from - offset) as usize..(to - offset) as usize];
                let written = self.write_to_log(i, inner, from, part);
                written.map_err(|error| if n > 0 { self.break_off(error) } else { error })?;
            }
            for piece in over {
                let part = &data[(piece.offset - offset) as usize..][..piece.length as usize];
                // Of a block with a few bytes of room the log may have closed the part meanwhile; of memory, spilled.
                let place = self.seat().writes.last_in(i as u32, piece.offset, piece.end()).map(|now| {
                    debug_assert!(now.offset <= piece.offset && piece.end() <= now.end(), "nobody else writes");
                    now.place.after(piece.offset - now.offset)
                });
                let stored = place.map_or(Ok(false), |place| self.store_over(place, part));
                if !stored.map_err(|error| self.break_off(error))? {
                    self.write_to_log(i, inner, piece.offset, part).map_err(|error| self.break_off(error))?;
                }
            }
        }
        let now = self.store.host.now_ns();
        let file = &mut self.seat_mut().files[i];
        file.touched = true;
        file.written += missing;
        file.mtime = Mtime::Changed(now);
        file.size = file.size.max(end);
        self.keep_to_memory();
        Ok(true)
    }

    /// Writes the blocks of a write as a whole, as the group sees them then: one piece.
    fn write_image(&mut self, i: usize, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<()> {
        let (start, end) = (offset / BLOCK * BLOCK, offset + data.len() as u64);
        let length = self.seat().files[i].size.max(end).min(end.next_multiple_of(BLOCK)) - start;
        let mut block = vec![0; length as usize];
        self.read(inner, start, &mut block)?;
        block[(offset - start) as usize..][..data.len()].copy_from_slice(data);
        self.write_to_log(i, inner, start, &block)
    }

    /// Gives log back where the group has many dead bytes.
    #[inline]
    pub(in crate::hostdir) fn reclaim(&mut self) {
        if self.in_lane {
            if self.seat().lane.parts() > 0 {
                self.reclaim_parts();
            }
        } else if self.seat().gathered_bytes > self.store.gather_limit() {
            // Of cuts and holes, which are gathered without a look at the limit.
            self.leave_memory();
        }
    }

    #[cold]
    fn leave_memory(&mut self) {
        // Where there is no room now nothing is lost: the group goes on as it is.
        if matches!(self.compact_gathered(), Ok(false)) && self.broken.is_none() {
            let _ = self.spill();
        }
    }

    /// Whether nothing is in the log of what only its order tells: names, attributes, shadows.
    fn tells_content_only(&self) -> bool {
        let names = self.names.as_ref().is_none_or(|private| private.only_speaks());
        names && self.brought.is_none() && self.shadows.is_none()
    }

    #[inline(never)]
    fn reclaim_parts(&mut self) {
        self.seat_mut().writes.sort();
        let before = self.seat().lane.bytes();
        let mut left = 2 * before.saturating_sub(self.reclaimed) + AT_ONCE;
        let mut freed = false;
        while left > 0 && self.tells_content_only() {
            let (own, bytes) = (self.seat().writes.bytes(), self.seat().lane.bytes());
            if bytes <= own + own / 2 + self.store.log.segment_bytes() {
                break;
            }
            let Some((start, end)) = self.seat().lane.oldest().map(|oldest| oldest.bytes) else { break };
            // Where there is no room now nothing is lost: the group goes on as it is.
            if self.give_up_oldest().is_err() {
                break;
            }
            freed = true;
            left = left.saturating_sub(end - start);
        }
        self.reclaimed = self.seat().lane.bytes();
        if freed {
            self.store.log.release_unused();
        }
    }

    /// Moves the own bytes of the oldest part, and gives it up.
    fn give_up_oldest(&mut self) -> Result<()> {
        let store = self.store.clone();
        let Some(oldest) = self.seat().lane.oldest() else { return Ok(()) };
        let mut own = Vec::new();
        let mut with_zeros = BTreeSet::new();
        for entry in oldest.entries {
            if !matches!(entry.kind, EntryKind::Write | EntryKind::Space) {
                continue;
            }
            let Some(i) = self.number_of(entry.file) else {
                return Err(Error::invalid("an entry of a file that the group does not have"));
            };
            let begin = oldest.bytes.0 + u64::from(entry.line) * LINE;
            let (from, to) = match entry.kind {
                EntryKind::Write => (entry.offset, entry.offset + u64::from(entry.length)),
                // The zeros at the ends of its range are told by nothing else.
                EntryKind::Space if with_zeros.insert(i) => (0, u64::MAX),
                _ => continue,
            };
            let is_its = |place| match place {
                Place::Log(position, _) => {
                    entry.kind == EntryKind::Write && (begin..begin + to - from).contains(&position)
                }
                Place::Zeros => entry.kind == EntryKind::Space,
                Place::Gathered(..) | Place::Shadow(_) => false,
            };
            own.extend(self.seat().writes.in_range(i as u32, from, to).filter(|piece| is_its(piece.place)));
        }
        let mut bytes = Vec::new();
        for piece in own {
            bytes.clear();
            bytes.resize(piece.length as usize, 0);
            if let Place::Log(position, _) = piece.place {
                self.seat().lane.read(&store.log, position, &mut bytes)?;
            }
            self.make_room_for(bytes.len())?;
            self.append_own(piece.file, piece.offset, &bytes)?;
        }
        self.seat_mut().lane.give_up_oldest(&store.log).map_err(|error| self.fail(error))?;
        self.forget_told();
        Ok(())
    }

    /// Appends bytes that the group has elsewhere. If that fails half-way, each byte is in one of the two places.
    fn append_own(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        let id = self.seat().files[file as usize].inner.id;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let take = self.fit(at, bytes.len() - done)?;
            let place = self.append_entry(EntryKind::Write, id, at, &bytes[done..done + take])?;
            self.seat_mut().writes.push(PrivateWrite { file, length: take as u32, offset: at, place });
            done += take;
        }
        Ok(())
    }

    /// The group's number for the file with this id.
    fn number_of(&self, id: u64) -> Option<usize> {
        match &self.by_number {
            None => self.seat().files.iter().position(|file| file.inner.id == id),
            Some(by_number) => by_number.get(&self.store.names.with(|state| state.file(id))?.number).copied(),
        }
    }

    /// Parts are gone that may have told more than content: it is told again at the commit.
    fn forget_told(&mut self) {
        self.plain = false;
        // It has spoken of directories, and does so again.
        self.names = None;
        for file in &mut self.seat_mut().files {
            file.identified_for = 0;
            if let Mtime::Told(ns) = file.mtime {
                file.mtime = Mtime::Changed(ns);
            }
        }
    }

    /// Right before the commit of a group that has given parts up: tells what it does to committed bytes, before all
    /// else that it has told, and how long its files are, behind that.
    #[cold]
    pub(super) fn tell_first(&mut self) -> Result<()> {
        if let Err(error) = self.try_to_tell_first() {
            let store = self.store.clone();
            self.seat_mut().lane.cancel_first_part(&store.log).map_err(|error| self.fail(error))?;
            return Err(error);
        }
        self.tell_sizes()
    }

    fn try_to_tell_first(&mut self) -> Result<()> {
        let store = self.store.clone();
        self.seat_mut().lane.begin_first_part(&store.log).map_err(|error| self.fail(error))?;
        let first: Vec<_> = self.seat().files.iter().flat_map(first_entries).collect();
        for (kind, file, offset, data) in &first {
            self.append_entry(*kind, *file, *offset, data)?;
        }
        self.seat_mut().lane.end_first_part(&store.log).map_err(|error| self.fail(error))
    }

    /// Tells how long files are whose sizes are not told by what is written to them, and what is to have space behind
    /// their ends.
    fn tell_sizes(&mut self) -> Result<()> {
        for i in 0..self.seat().files.len() {
            let file = &self.seat().files[i];
            if file.limit == u64::MAX && file.wishes.is_none() && !file.has_holes {
                continue;
            }
            let (id, size) = (file.inner.id, file.size);
            let behind = size.div_ceil(BLOCK)..u64::MAX;
            let mut reserved = Wishes::default();
            let mut reserve = |wishes: &Wishes| {
                for (blocks, _) in wishes.in_range(behind.clone()).filter(|(_, wish)| wish.reserves()) {
                    reserved.reserve(blocks, OWN);
                }
            };
            if file.limit == u64::MAX {
                file.inner.space.with(&mut reserve);
            }
            file.wishes.iter().for_each(|wishes| reserve(wishes));
            self.append_entry(EntryKind::Truncate, id, size, &[])?;
            for (kind, file, offset, data) in space_entries(id, &reserved) {
                self.append_entry(kind, file, offset, &data)?;
            }
        }
        Ok(())
    }

    /// Leaves dead bytes out of what was gathered. Returns whether at most half of what memory is for is left.
    pub(super) fn compact_gathered(&mut self) -> Result<bool> {
        if !self.lasts || !self.tells_content_only() {
            return Ok(false);
        }
        self.swap_in()?;
        self.seat_mut().writes.sort();
        // Zeros of a hole had no entry that was short enough for a segment.
        let longest = self.store.gather_limit();
        let short = |piece: &PrivateWrite| {
            let (piece, length) = (*piece, u64::from(piece.length));
            (0..length).step_by(longest as usize).map(move |at| PrivateWrite {
                offset: piece.offset + at,
                length: (length - at).min(longest) as u32,
                place: piece.place.after(at),
                ..piece
            })
        };
        let pieces: Vec<PrivateWrite> = self.seat().writes.iter().flat_map(short).collect();
        let mut gathered: Vec<Gathered> = Vec::new();
        let mut bytes = 0;
        let mut gather = |kind, file, offset, data: Vec<u8>| {
            bytes += data.len() as u64 + LINE;
            gathered.push(Gathered { kind, file, offset, data: data.into() });
            gathered.len() - 1
        };
        for (kind, file, offset, data) in self.seat().files.iter().flat_map(first_entries) {
            gather(kind, file, offset, data);
        }
        let mut places = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let data = match piece.place {
                Place::Gathered(entry, at) => {
                    self.seat().gathered[entry].data[at as usize..][..piece.length as usize].to_vec()
                }
                Place::Zeros => vec![0; piece.length as usize],
                Place::Log(..) | Place::Shadow(_) => {
                    debug_assert!(false, "what is not in a lane is in memory");
                    return Ok(false);
                }
            };
            let file = self.seat().files[piece.file as usize].inner.id;
            places.push(gather(EntryKind::Write, file, piece.offset, data));
        }
        let seat = self.seat_mut();
        seat.writes.clear();
        seat.looked_at = 0;
        for (piece, entry) in pieces.into_iter().zip(places) {
            seat.writes.push(PrivateWrite { place: Place::Gathered(entry, 0), ..piece });
        }
        (seat.gathered, seat.gathered_bytes) = (gathered, bytes);
        self.forget_told();
        self.tell_sizes()?;
        Ok(self.seat().gathered_bytes <= self.store.gather_limit() / 2)
    }
}

/// What a group does to the committed bytes of a file, as entries.
fn first_entries(file: &Joined) -> Vec<(EntryKind, u64, u64, Vec<u8>)> {
    let id = file.inner.id;
    let cut = (file.limit != u64::MAX).then(|| (EntryKind::Truncate, id, file.limit, Vec::new()));
    let space = file.wishes.iter().flat_map(|wishes| space_entries(id, wishes));
    cut.into_iter().chain(space).collect()
}

fn space_entries(id: u64, wishes: &Wishes) -> impl Iterator<Item = (EntryKind, u64, u64, Vec<u8>)> {
    wishes.in_range(0..u64::MAX).map(move |(blocks, wish)| {
        let how = match (wish.zeroes(), wish.reserves()) {
            (true, true) => Fallocate::Zero,
            (true, false) => Fallocate::Punch,
            (false, _) => Fallocate::Keep,
        };
        let (start, length) = (blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK);
        (EntryKind::Space, id, start, Space { length, how }.to_bytes().to_vec())
    })
}
