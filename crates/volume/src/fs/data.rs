//! Reading and writing, and the space of files. Bytes of a mapped block beyond the end of its file are zeros.

use std::collections::BTreeSet;

use wholly_error::Error;
use wholly_vfs::{Context, Errno, Fallocate, Result, Seek};

use super::explicit::What;
use super::group::{Group, Need};
use super::known::PIECE;
use super::table::{Inode, State};
use super::{Core, LARGEST_FILE, map};
use crate::engine::{DataAt, Fields, Kind, Load, Logged, Mapped, Operation, Placed, View, is_late};
use crate::format::bitmap::UNITS;
use crate::format::pointer::{FANOUT, Pointer, depth_for, nodes_for, reach};
use crate::format::{BLOCK, Run};

const B: u64 = BLOCK as u64;
/// Bytes that one group writes at most: what it reserves is bounded. A write of no more is one group.
const AT_ONCE: usize = 1 << 20;

/// A piece of a range, inside of consecutive blocks: its blocks, and its bytes.
struct Piece {
    block: u64,
    offset: usize,
    len: usize,
    pointer: Option<Pointer>,
    /// Whether the explicit group that runs took the blocks itself.
    own: bool,
}

impl Piece {
    fn at(&self, inode: &Inode) -> DataAt {
        let valid = self.pointer.is_some_and(|pointer| !pointer.reserved);
        let home = self.pointer.map(|pointer| pointer.block);
        DataAt { file: inode.id, block: self.block, home, valid, own: self.own, late: inode.twin.is_some() }
    }

    fn blocks(&self) -> u64 {
        ((self.offset + self.len) as u64).div_ceil(B)
    }

    /// As much of it as a group owns, or does not.
    fn cut(mut self, group: &Group<'_>) -> Piece {
        if let Some(pointer) = self.pointer.filter(|pointer| !pointer.reserved) {
            let (own, count) = group.owns(pointer.block, self.blocks());
            self.own = own;
            self.len = self.len.min((count * B) as usize - self.offset);
        }
        self
    }
}

/// The end of a range.
fn end_of(offset: u64, len: u64) -> Result<u64> {
    let end = offset.checked_add(len).ok_or(Errno::INVAL)?;
    if i64::try_from(end).is_err() { Err(Errno::INVAL) } else { Ok(end) }
}

impl Core {
    /// What is at `at`, up to `len` bytes.
    #[inline]
    fn piece(&self, load: &(impl Load + ?Sized), inode: &Inode, state: &State, at: u64, len: usize) -> Result<Piece> {
        let (block, offset) = (at / B, (at % B) as usize);
        let most = ((offset + len) as u64).div_ceil(B);
        let (pointer, count) = match state.pieces.get(block, most) {
            Some((lba, count)) => (Some(Pointer::to(lba)), count),
            None => self.look(load, inode, state, block, most)?,
        };
        Ok(Piece { block, offset, len: len.min((count * B) as usize - offset), pointer, own: false })
    }

    /// What the map has at a block, and for how many of up to `most` blocks it goes on.
    fn look(
        &self,
        load: &(impl Load + ?Sized),
        inode: &Inode,
        state: &State,
        block: u64,
        most: u64,
    ) -> Result<(Option<Pointer>, u64)> {
        let seed = self.storage.data_seed(inode.id);
        let tree = &state.record.owned.tree;
        let (pointer, count) = map::run(load, seed, tree, block, most)?;
        if let Some(Pointer { block: lba, reserved: false }) = pointer {
            let blocks = state.record.owned.size.div_ceil(B);
            state.pieces.looked(&self.known, (block, count), lba, blocks, |first| {
                // Damage of other blocks is told to those who want them.
                let (found, count) = map::run(load, seed, tree, first, PIECE).ok()?;
                found.filter(|found| !found.reserved && count == PIECE).map(|found| found.block)
            });
        }
        Ok((pointer, count))
    }

    /// Reads up to `buf.len()` bytes. Returns how many, and whether the time of access is to be renewed.
    pub fn read(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<(usize, bool)> {
        end_of(offset, buf.len() as u64)?;
        let state = inode.state.read().unwrap();
        let left = state.record.owned.size.saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let buf = &mut buf[..len];
        match Self::resolved(inode, &state, offset, len) {
            Some(at) => self.engine.read(View::Committed, &at, (offset % B) as usize, buf)?,
            None => self.read_pieces(inode, &state, offset, buf)?,
        }
        Ok((len, state.is_accessed_late()))
    }

    /// Where a range is, if the inode knows that all of it is in consecutive blocks with content.
    #[inline]
    fn resolved(inode: &Inode, state: &State, at: u64, len: usize) -> Option<DataAt> {
        let (block, count) = (at / B, (at % B + len as u64).div_ceil(B));
        let (home, known) = state.pieces.get(block, count).filter(|_| len > 0 && inode.twin.is_none())?;
        (known == count).then_some(DataAt {
            file: inode.id,
            block,
            home: Some(home),
            valid: true,
            own: false,
            late: false,
        })
    }

    /// Reads any range inside of a file.
    fn read_pieces(&self, inode: &Inode, state: &State, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        let sight = self.sight(inode);
        while done < buf.len() {
            let piece = self.piece(&sight, inode, state, offset + done as u64, buf.len() - done)?;
            let part = &mut buf[done..done + piece.len];
            let at = piece.at(inode);
            match at.valid {
                true => self.engine.read(sight.view(), &at, piece.offset, part)?,
                false => part.fill(0),
            }
            done += piece.len;
        }
        Ok(())
    }

    /// Writes at `offset`, or at the end. Returns where, and how much.
    pub fn write(&self, ctx: &Context, inode: &Inode, offset: Option<u64>, data: &[u8]) -> Result<(u64, usize)> {
        self.make_space(data.len())?;
        let mut state = inode.state.write().unwrap();
        let offset = offset.unwrap_or(state.record.owned.size);
        if data.is_empty() {
            return Ok((offset, 0));
        }
        end_of(offset, data.len() as u64)?;
        if offset >= LARGEST_FILE {
            return Err(Errno::FBIG);
        }
        let data = &data[..data.len().min((LARGEST_FILE - offset) as usize)];
        state.check_free(inode, None, What::Itself)?;
        self.drop_privileges(ctx, inode, &mut state)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let left = data.len() - done;
            let part = if left <= AT_ONCE { left } else { AT_ONCE - at as usize % AT_ONCE };
            // Where space ends, as much as fits.
            let mut written = self.write_part(inode, &mut state, at, &data[done..done + part]);
            let first = (BLOCK - at as usize % BLOCK).min(part);
            if matches!(written, Err(Errno::NOSPC)) && part > first {
                written = self.write_part(inode, &mut state, at, &data[done..done + first]);
            }
            match written {
                Ok(len) => done += len,
                Err(Errno::NOSPC) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok((offset, done))
    }

    /// Writes a part in a group of its own.
    fn write_part(&self, inode: &Inode, state: &mut State, at: u64, data: &[u8]) -> Result<usize> {
        let (first, last) = (at / B, (at + data.len() as u64 - 1) / B);
        let piece = self.piece(&self.sight(inode), inode, state, at, data.len())?;
        let is_there = piece.len == data.len() && piece.at(inode).valid;
        let mut group = if is_there && inode.twin.is_none() {
            let logged = Logged { bytes: data.len() as u64, ..Logged::default() };
            Group::begin_logging(self, Kind::Implicit, 0, Need::Vital, logged)?
        } else {
            let blocks = last + 1 - first;
            let (missing, valid) = if is_there { (0, blocks) } else { self.missing(inode, state, first, last + 1)? };
            let bytes = (valid * B).min(data.len() as u64);
            let logged = Logged { pointers: blocks, bytes, ..Logged::default() };
            // What is there already can be written over on a full volume.
            let need = if missing > 0 { Need::Ordinary } else { Need::Vital };
            self.begin_logging(inode, Kind::Implicit, missing, need, logged)?
        };
        let (mut done, mut next) = (0, Some(piece));
        while done < data.len() {
            let piece = match next.take() {
                Some(piece) => piece,
                None => self.piece(&group, inode, state, at + done as u64, data.len() - done)?,
            };
            let piece = piece.cut(&group);
            let placed = group.write(&piece.at(inode), piece.offset, &data[done..done + piece.len])?;
            done += self.record_placed(&mut group, inode, state, &piece, placed)?;
        }
        let size = Some(at + data.len() as u64).filter(|end| *end > state.record.owned.size);
        self.content_changed(&mut group, inode, state, size)?;
        group.commit()?;
        if let Some(explicit) = inode.group().filter(|explicit| explicit.body().is_crowded(self)) {
            self.place_late(explicit, Some((inode, state)))?;
        }
        Ok(data.len())
    }

    /// Records where content of a piece has been placed. Returns how many bytes.
    fn record_placed(
        &self,
        group: &mut Group<'_>,
        inode: &Inode,
        state: &mut State,
        piece: &Piece,
        placed: Placed,
    ) -> Result<usize> {
        let (run, len) = match (placed, piece.pointer) {
            (Placed::Elsewhere(run), _) => (run, piece.len.min((run.count * B) as usize - piece.offset)),
            (Placed::Home(len), Some(pointer)) if pointer.reserved => {
                (Run { start: pointer.block, count: ((piece.offset + len) as u64).div_ceil(B) }, len)
            }
            (Placed::Home(len), _) => return Ok(len),
        };
        let to = Mapped::Written(run.start);
        group.record(&Operation::Map { on: inode.id, first: piece.block, count: run.count, to })?;
        self.reload(&*group, inode, state)?;
        Ok(len)
    }

    /// The blocks that it takes to map all of `first..end`: 0 if all are. And how many have content.
    fn missing(&self, inode: &Inode, state: &State, first: u64, end: u64) -> Result<(u64, u64)> {
        let tree = &state.record.owned.tree;
        let seed = self.storage.data_seed(inode.id);
        let (mut missing, mut nodes, mut valid, mut block) = (0, 0, 0, first);
        let depth = depth_for(end - 1).max(tree.depth);
        while block < end {
            let (found, count) = map::run(&self.sight(inode), seed, tree, block, end - block)?;
            match found {
                None => {
                    missing += count;
                    nodes += nodes_for(depth, depth, block, block + count - 1);
                }
                Some(pointer) if !pointer.reserved => valid += count,
                Some(_) => {}
            }
            block += count;
        }
        Ok((if missing == 0 { 0 } else { missing + nodes + u64::from(depth - tree.depth) }, valid))
    }

    /// Pointers that change at the ends of so many ranges of a map that become holes: those of one node a level.
    fn at_ends(state: &State, ends: u64) -> Logged {
        let tree = &state.record.owned.tree;
        let pointers = ends * (u64::from(tree.depth) * FANOUT).min(4 * tree.blocks);
        Logged { pointers, zeros: ends, freed: tree.blocks, ..Logged::default() }
    }

    /// Begins a group that makes holes of ranges with so many ends.
    fn begin_clearing<'c>(
        &'c self,
        inode: &'c Inode,
        state: &State,
        ends: u64,
        blocks: u64,
        need: Need,
    ) -> wholly_error::Result<Group<'c>> {
        let logged = Self::at_ends(state, ends);
        match self.begin_logging(inode, Kind::Implicit, blocks, need, logged) {
            // All blocks of a large file could be far from each other. Are they?
            Err(Error::NoSpace(_)) if self.bitmaps().is_some() => {
                let (mut sections, tree) = (BTreeSet::new(), state.record.owned.tree);
                let mut see = |_, _, pointer: Pointer| {
                    sections.insert(pointer.block.0 / UNITS);
                    true
                };
                let (mut damage, seed) = (None, self.storage.data_seed(inode.id));
                map::walk(&self.sight(inode), seed, &tree, &mut see, &mut |_, _, error| damage = Some(error))?;
                damage.map_or(Ok(()), Err)?;
                let logged = Logged { freed: sections.len() as u64, ..logged };
                self.begin_logging(inode, Kind::Implicit, blocks, need, logged)
            }
            group => group,
        }
    }

    /// New times, and perhaps another size.
    fn content_changed(
        &self,
        group: &mut Group<'_>,
        inode: &Inode,
        state: &mut State,
        size: Option<u64>,
    ) -> Result<()> {
        let now = self.now();
        let mut times = state.record.times;
        (times.mtime, times.ctime) = (now, now);
        if size.is_none() && times == state.record.times {
            return Ok(());
        }
        Ok(self.assign(group, inode, state, &Fields { size, times: Some(times), ..Fields::default() })?)
    }

    /// Makes zeros of a part of a block, if it has content.
    fn zero_part(&self, group: &mut Group<'_>, inode: &Inode, state: &mut State, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let piece = self.piece(&*group, inode, state, from, (to - from) as usize)?.cut(group);
        let at = piece.at(inode);
        if at.valid {
            let placed = group.zero(&at, piece.offset, piece.len)?;
            self.record_placed(group, inode, state, &piece, placed)?;
        }
        Ok(())
    }

    /// Makes zeros of the parts of blocks at the ends of a range. Returns the whole blocks in between.
    fn zero_ends(
        &self,
        group: &mut Group<'_>,
        inode: &Inode,
        state: &mut State,
        from: u64,
        to: u64,
    ) -> Result<(u64, u64)> {
        let (first, last) = (from.div_ceil(B), to / B);
        if first > last {
            self.zero_part(group, inode, state, from, to)?;
            return Ok((first, first));
        }
        self.zero_part(group, inode, state, from, first * B)?;
        self.zero_part(group, inode, state, last * B, to)?;
        Ok((first, last))
    }

    /// Sets the size of a file.
    pub fn cut(&self, inode: &Inode, state: &mut State, size: u64) -> Result<()> {
        let mut group = self.begin_clearing(inode, state, 1, 0, Need::Vital)?;
        let before = state.record.owned.size;
        let end = size.div_ceil(B);
        let has_more = end < reach(state.record.owned.tree.depth) && state.record.owned.tree.root != 0;
        if size < before || size == before && has_more {
            self.zero_part(&mut group, inode, state, size, end * B)?;
            group.record(&Operation::Map { on: inode.id, first: end, count: u64::MAX, to: Mapped::Nothing })?;
            self.reload(&group, inode, state)?;
        }
        let now = self.now();
        let mut times = state.record.times;
        (times.mtime, times.ctime) = (now, now);
        let fields =
            Fields { size: Some(size).filter(|size| *size != before), times: Some(times), ..Fields::default() };
        self.assign(&mut group, inode, state, &fields)?;
        Ok(group.commit()?)
    }

    /// Changes the space of a range.
    pub fn allocate(&self, ctx: &Context, inode: &Inode, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        if len == 0 || i64::try_from(offset).is_err() || i64::try_from(len).is_err() {
            return Err(Errno::INVAL);
        }
        if offset.checked_add(len).is_none_or(|end| end > LARGEST_FILE) {
            return Err(Errno::FBIG);
        }
        let end = offset + len;
        let mut state = inode.state.write().unwrap();
        let state = &mut *state;
        if how.moves() && !(offset.is_multiple_of(B) && len.is_multiple_of(B)) {
            return Err(Errno::INVAL);
        }
        let size = state.record.owned.size;
        match how {
            Fallocate::Collapse if end >= size => return Err(Errno::INVAL),
            Fallocate::Insert if offset >= size => return Err(Errno::INVAL),
            Fallocate::Insert if size + len > LARGEST_FILE => return Err(Errno::FBIG),
            _ => {}
        }
        state.check_free(inode, None, What::Itself)?;
        self.drop_privileges(ctx, inode, state)?;
        let grown = Some(end).filter(|end| how.extends() && *end > size);
        match how {
            Fallocate::Punch => {
                let mut group = self.begin_clearing(inode, state, 2, 0, Need::Vital)?;
                let (first, last) = self.zero_ends(&mut group, inode, state, offset, end)?;
                let (count, to) = (last - first, Mapped::Nothing);
                if count > 0 {
                    group.record(&Operation::Map { on: inode.id, first, count, to })?;
                    self.reload(&group, inode, state)?;
                }
                self.content_changed(&mut group, inode, state, None)?;
                Ok(group.commit()?)
            }
            Fallocate::Collapse => self.shift(inode, state, end / B, -((len / B) as i64), size - len),
            Fallocate::Insert => self.shift(inode, state, offset / B, (len / B) as i64, size + len),
            _ => self.reserve(inode, state, (offset, end), how.zeroes(), grown),
        }
    }

    /// Reserves the space of a range; `zero`: and makes it read as zeros.
    fn reserve(
        &self,
        inode: &Inode,
        state: &mut State,
        (from, to): (u64, u64),
        zero: bool,
        size: Option<u64>,
    ) -> Result<()> {
        let (first, end) = (from / B, to.div_ceil(B));
        let (missing, valid) = self.missing(inode, state, first, end)?;
        let (pointers, zeros) = if zero { (end - first, 2) } else { (0, 0) };
        let logged = Logged { pointers, zeros, ..Logged::default() };
        // Others are taken for blocks with content that others see, or that a crash brings back: who writes next may
        // store past the log.
        let takes_others = inode.twin.is_some() || self.engine.orders();
        let blocks = if zero && takes_others { missing + valid } else { missing };
        let mut group = self.begin_logging(inode, Kind::Implicit, blocks, Need::Ordinary, logged)?;
        let whole = if zero { self.zero_ends(&mut group, inode, state, from, to)? } else { (0, 0) };
        let mut block = first;
        while block < end {
            let seed = self.storage.data_seed(inode.id);
            // The blocks at the ends keep their content.
            let limit = if block < whole.0 && whole.0 < whole.1 {
                whole.0
            } else if block < whole.1 {
                whole.1
            } else {
                end
            };
            let limit = limit.min(end);
            let (found, count) = map::run(&group, seed, &state.record.owned.tree, block, limit - block)?;
            let (run, count) = match found {
                None => (Some(group.take(count)), count),
                Some(pointer) if !pointer.reserved && (whole.0..whole.1).contains(&block) => {
                    let (own, count) = match takes_others {
                        // Space is reserved in blocks.
                        _ if is_late(pointer.block) => (false, count),
                        true => group.owns(pointer.block, count),
                        false => (true, count),
                    };
                    (Some(if own { Run { start: pointer.block, count } } else { group.take(count) }), count)
                }
                Some(_) => (None, count),
            };
            if let Some(Run { start, count }) = run {
                let to = Mapped::Reserved(start);
                group.record(&Operation::Map { on: inode.id, first: block, count, to })?;
                self.reload(&group, inode, state)?;
                block += count;
            } else {
                block += count;
            }
        }
        self.content_changed(&mut group, inode, state, size)?;
        Ok(group.commit()?)
    }

    /// Moves the blocks from `from` on by `by`; what was there before is gone.
    fn shift(&self, inode: &Inode, state: &mut State, from: u64, by: i64, size: u64) -> Result<()> {
        let tree = state.record.owned.tree;
        let seed = self.storage.data_seed(inode.id);
        let depth = depth_for(size.div_ceil(B).max(1)).max(tree.depth);
        let (mut nodes, mut block) = (u64::from(depth - tree.depth), from);
        while block < reach(tree.depth) {
            let (found, count) = map::run(&self.sight(inode), seed, &tree, block, reach(tree.depth) - block)?;
            if found.is_some() {
                let to = block.wrapping_add_signed(by);
                nodes += nodes_for(0, depth, to, to + count - 1);
            }
            block += count;
        }
        let mut group = self.begin_clearing(inode, state, 4, nodes, Need::Ordinary)?;
        if by < 0 {
            let count = by.unsigned_abs();
            let (first, to) = (from - count, Mapped::Nothing);
            group.record(&Operation::Map { on: inode.id, first, count, to })?;
        }
        group.record(&Operation::Shift { on: inode.id, from, by })?;
        self.reload(&group, inode, state)?;
        self.content_changed(&mut group, inode, state, Some(size))?;
        Ok(group.commit()?)
    }

    /// Where data or a hole begins.
    pub fn seek(&self, inode: &Inode, seek: Seek) -> Result<u64> {
        let state = inode.state.read().unwrap();
        let size = state.record.owned.size;
        let (offset, wants_data) = match seek {
            Seek::Data(offset) => (offset, true),
            Seek::Hole(offset) => (offset, false),
        };
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let seed = self.storage.data_seed(inode.id);
        let (mut block, end) = (offset / B, size.div_ceil(B));
        while block < end {
            let (found, count) = map::run(&self.sight(inode), seed, &state.record.owned.tree, block, end - block)?;
            let is_data = found.is_some_and(|pointer| !pointer.reserved);
            if is_data == wants_data {
                return Ok(offset.max(block * B));
            }
            block += count;
        }
        if wants_data { Err(Errno::NXIO) } else { Ok(size) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wholly_sim::{Random, SimConfig, World};
    use wholly_vfs::{Groups, Handle, Ino, Mode, OFlags, SetAttr, Vfs};

    use super::*;
    use crate::{EngineKind, Volume, VolumeOptions, VolumeVfs};

    const MOST: u64 = 300 * B;

    struct Checked<'v> {
        volume: &'v Volume,
        vfs: &'v VolumeVfs,
        file: Handle,
        ino: Ino,
        model: Vec<u8>,
        random: Random,
    }

    impl Checked<'_> {
        fn range(&mut self) -> (u64, usize) {
            let most = [100, B, 5 * B][self.random.below(3) as usize];
            (self.random.below(MOST), 1 + self.random.below(most) as usize)
        }

        fn write(&mut self, ctx: &Context, model: &mut Vec<u8>, (at, len): (u64, usize)) {
            let data = vec![1 + self.random.below(255) as u8; len];
            assert_eq!(self.vfs.write(ctx, &self.file, at, &data), Ok(len));
            model.resize(model.len().max(at as usize + len), 0);
            model[at as usize..at as usize + len].copy_from_slice(&data);
        }

        /// A group changes the file. It sees that, others see nothing of it before its commit.
        fn group(&mut self) {
            let Ok(group) = self.vfs.begin() else { return };
            let (within, mut changed) = (Context { group: Some(group), ..Context::superuser() }, self.model.clone());
            for _ in 0..3 {
                let range = self.range();
                self.write(&within, &mut changed, range);
                let (mut read, at) = ([0; 5000], self.random.below(changed.len() as u64));
                let len = self.vfs.read(&within, &self.file, at, &mut read).expect("read in the group");
                assert_eq!(read[..len], changed[at as usize..][..len]);
                self.read(5);
            }
            if self.random.below(2) == 0 {
                self.vfs.commit(group).expect("commit");
                self.model = changed;
            } else {
                self.vfs.abort(group).expect("abort");
            }
        }

        /// Reads by what the inode knows, by the map, and by the call.
        fn read(&mut self, times: u32) {
            let (core, ctx) = (&self.volume.inner().core, Context::superuser());
            let inode = core.known(self.ino.0).expect("it is open");
            for _ in 0..times {
                let (at, len) = self.range();
                let len = len.min((self.model.len() as u64).saturating_sub(at) as usize);
                let mut read = vec![0; len];
                assert_eq!(self.vfs.read(&ctx, &self.file, at, &mut read), Ok(len));
                assert!(len == 0 || read == self.model[at as usize..at as usize + len], "{at}, {len}");
                let state = inode.state.read().unwrap();
                let plain = State { record: state.record, ..State::default() };
                let mut general = vec![0; len];
                core.read_pieces(&inode, &plain, at, &mut general).expect("read by the map");
                assert_eq!(read, general, "{at}, {len}");
                if let Some(found) = Core::resolved(&inode, &state, at, len) {
                    let count = (at % B + len as u64).div_ceil(B);
                    let by_map = map::run(
                        &*core.engine,
                        core.storage.data_seed(inode.id),
                        &state.record.owned.tree,
                        at / B,
                        count,
                    );
                    assert_eq!(by_map.expect("look"), (Some(Pointer::to(found.home.expect("known"))), count));
                }
            }
        }
    }

    /// The straight path and the general one read the same, whatever has changed the file or its map, also beside
    /// groups that run and while content is written back.
    #[test]
    fn both_ways_of_reading_agree() {
        for engine in EngineKind::ALL.iter().copied() {
            let world = World::new(Arc::new(SimConfig { log_len: 2048 * 4096, ..SimConfig::pmem() }));
            let options = VolumeOptions { engine: Some(engine), checkpointers: Some(0), ..VolumeOptions::default() };
            Volume::format_region(&*world.log(), &options).expect("make a volume");
            let volume = Volume::open_region(world.log(), &options).expect("open it");
            let (vfs, ctx) = (VolumeVfs::new(&volume), Context::superuser());
            let (made, file) = vfs.create(&ctx, Ino::ROOT, b"file", OFlags::RDWR, Mode::RUSR).expect("create");
            let (vfs, volume, random) = (&vfs, &volume, Random(9));
            let mut checked = Checked { volume, vfs, file, ino: made.ino, model: Vec::new(), random };
            for _ in 0..60 {
                let what = checked.random.below(10);
                let (at, len) = checked.range();
                match what {
                    0 => {
                        vfs.setattr(&ctx, made.ino, None, &SetAttr { size: Some(at), ..SetAttr::default() })
                            .expect("cut");
                        checked.model.resize(at as usize, 0);
                    }
                    1 => {
                        let punched = vfs.fallocate(&ctx, &checked.file, Fallocate::Punch, at, len as u64);
                        punched.expect("punch");
                        let end = checked.model.len().min(at as usize + len);
                        checked.model[end.min(at as usize)..end].fill(0);
                    }
                    2 | 3 => checked.group(),
                    4 => volume.checkpoint().expect("write back"),
                    _ => {}
                }
                // Without holes, writes change the map of no engine that has content in place.
                if what < 8 {
                    let (all, mut model) = ((0, (MOST + 5 * B) as usize), std::mem::take(&mut checked.model));
                    checked.write(&ctx, &mut model, all);
                    checked.model = model;
                }
                // Many reads between two changes: only then the inode keeps where blocks are.
                checked.read(90);
                for _ in 0..4 {
                    let (range, mut model) = (checked.range(), std::mem::take(&mut checked.model));
                    checked.write(&ctx, &mut model, range);
                    checked.model = model;
                    checked.read(5);
                }
                if what > 1 {
                    volume.checkpoint().expect("write back");
                    checked.read(20);
                }
            }
            let Checked { file, .. } = checked;
            vfs.release(&ctx, file).expect("release");
        }
    }
}
