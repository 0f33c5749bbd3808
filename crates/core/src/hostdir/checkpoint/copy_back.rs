//! What one thread of a pass does: it visits blocks, and copies what is to go home.
//!
//! Blocks are visited in batches. Each step of a batch asks the processor for what the next one needs of all its
//! blocks; and a batch's bytes are copied between its locked instructions, each of which would wait for the copies
//! before it to reach memory.

use std::sync::Arc;

use wholly_changes::records::Baseline;
use wholly_host::{HostFile, host_error};
use wholly_media::Region;

use super::{CheckpointReport, StoreInner};
use crate::error::{Error, Result};
use crate::hostdir::allocate::{Allocation, fallocate};
use crate::hostdir::dirty::DirtyBlock;
use crate::hostdir::file::{File, HomeState};
use crate::hostdir::homes::Homes;
use crate::hostdir::memory::{HOLE, MEMORY, SHADOWS, ZEROS};
use crate::hostdir::names::Object;
use crate::site;
use index::{BLOCK, Claim, NO_VERSION, Piece, RunVersion, Slot, logged_pieces};
use sync::Ordering;

/// Blocks of a batch: enough for the processor to fetch in parallel, few enough that a group that publishes to one of
/// them does not wait long.
const BATCH: usize = 16;

/// The same of a file of which bytes are in shadows: to share blocks takes a call of the host, for many about as long
/// as for a few.
const SHADOWED_BATCH: usize = 256;

/// Bytes of adjacent pieces that go home through a buffer in one write.
const RUN: usize = 64 << 10;

const ALLOCATION: Allocation =
    Allocation { zeroes: site::CHECKPOINT_PUNCH, reserves: site::CHECKPOINT_RESERVE, writes: site::CHECKPOINT_DATA };

/// See the head of this module.
pub(super) struct Hands<'a> {
    store: &'a StoreInner,
    target: u64,
    pub report: CheckpointReport,
    /// Files that it changed.
    pub touched: Vec<Touched>,
    /// Versions that are gone.
    pub freed: Vec<u32>,
    /// Blocks that keep versions, or could not be written.
    pub again: Vec<DirtyBlock>,
    pieces: Vec<Piece>,
    open: Vec<(u16, u16)>,
    runs: Vec<Run>,
    buffer: Vec<u8>,
}

/// A file that the pass changes.
pub(super) struct Touched {
    pub file: Arc<File>,
    /// How it lay before, if the pass wrote to it.
    pub before: Option<Baseline>,
    /// Whether a fence does not make all of the change durable.
    pub needs_sync: bool,
}

/// A block of a batch, in these hands.
struct Visit<'f> {
    block: u64,
    claim: Claim<'f>,
    /// Its pieces are those from here to the next one's.
    pieces: usize,
}

/// Bytes that are adjacent both where they are and where they go.
#[derive(Clone, Copy)]
struct Run {
    offset: u64,
    position: u64,
    length: usize,
}

/// How the file that is being taken home lies there.
struct Home<'f> {
    store: &'f StoreInner,
    file: &'f File,
    host: &'f dyn HostFile,
    target: u64,
    size: u64,
    dense: Option<bool>,
    needs_sync: bool,
    /// Whether it is to be looked at again.
    again: bool,
}

impl<'a> Hands<'a> {
    pub fn new(store: &'a StoreInner, target: u64) -> Self {
        Hands {
            store,
            target,
            report: CheckpointReport::default(),
            touched: Vec::new(),
            freed: Vec::new(),
            again: Vec::new(),
            pieces: Vec::new(),
            open: Vec::new(),
            runs: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Takes blocks home, while owners of their files publish by claims, as all others do (invariant 5 of the index).
    /// `between` is called now and then, with nothing claimed.
    pub fn visit(&mut self, blocks: &[DirtyBlock], between: &mut dyn FnMut()) -> Result<()> {
        let store = self.store;
        let files: Vec<_> = blocks
            .chunk_by(|a, b| a.file() == b.file())
            .filter_map(|blocks| Some((store.files.get(blocks[0].file())?, blocks)))
            .filter(|(file, _)| file.has_something())
            .collect();
        for (file, _) in &files {
            file.visited.fetch_add(1, Ordering::AcqRel);
        }
        store.log.in_flight().wait_for_current();
        let result = files.iter().try_for_each(|(file, blocks)| self.take_file_home(file.clone(), blocks, between));
        for (file, _) in &files {
            file.visited.fetch_sub(1, Ordering::AcqRel);
        }
        result
    }

    /// Takes over what other hands have, except for their work in progress.
    pub fn take_over(&mut self, other: &mut Hands<'_>) {
        self.report.files += other.report.files;
        self.report.blocks += other.report.blocks;
        self.report.bytes += other.report.bytes;
        self.touched.append(&mut other.touched);
        self.freed.append(&mut other.freed);
        self.again.append(&mut other.again);
    }

    fn take_file_home(&mut self, file: Arc<File>, blocks: &[DirtyBlock], between: &mut dyn FnMut()) -> Result<()> {
        let Some(home) = self.home_of(&file)? else {
            self.let_be(&file, blocks);
            return Ok(());
        };
        let before = check_bystanders(&file, &*home)?;
        self.report.files += 1;
        let (target, size, dense) = (self.target, 0, Some(false));
        let mut home =
            Home { store: self.store, file: &file, host: &*home, target, size, dense, needs_sync: false, again: false };
        let result = self.take_blocks_home(&mut home, blocks, between);
        if home.again {
            self.again.push(DirtyBlock::of_size(file.number));
        }
        let needs_sync = home.needs_sync;
        self.touched.push(Touched { file, before, needs_sync });
        result
    }

    /// The host file: what nobody has open is open for as long as it is written to.
    fn home_of(&self, file: &File) -> Result<Option<Arc<dyn HostFile>>> {
        if let Some(home) = file.full_home() {
            return Ok(Some(home));
        }
        let store = self.store;
        let _still = store.names.keep_homes();
        let found = store.names.with(|state| Some((state.host_path(file.id)?, state.inode_of(file.id))));
        let Some((path, inode)) = found else { return Ok(None) };
        let (home, _) = Homes::open(&store.host, &path).map_err(|error| host_error(error, &path))?;
        // Whoever owns its directory may exchange it at any time.
        if inode.is_some_and(|inode| home.stat().is_ok_and(|stat| stat.inode() != inode)) {
            return Err(Error::Conflict { path: file.name(), change: "another file has taken its name".into() });
        }
        Ok(Some(home))
    }

    /// A file that the host has not: it is younger than the target; or nobody has it open and it has no name, so that
    /// what was written to it goes as if it had never been.
    fn let_be(&mut self, file: &File, blocks: &[DirtyBlock]) {
        let store = self.store;
        let stays = |object: &Object| object.place().is_some() || object.made >= self.target;
        if store.names.with(|state| state.objects.get(&file.id).is_some_and(stays)) {
            self.again.extend_from_slice(blocks);
            return;
        }
        let (arena, target) = (&store.index.arena, self.target);
        let goes = |version: &RunVersion| version.stamp < target;
        let mut clean = 0;
        for dirty in blocks {
            let Some(block) = dirty.block() else {
                if file.space.change(|wishes| wishes.done(0..u64::MAX, target)) {
                    self.again.push(*dirty);
                } else {
                    clean += u64::from(file.resized.swap(0, Ordering::AcqRel));
                }
                continue;
            };
            let Some(slot) = file.index.get(block) else { continue };
            let claim = slot.claim();
            let had = claim.newest() != NO_VERSION;
            claim.drain_readers();
            let newest = claim.change_last(|newest| arena.drop_tail(newest, goes, &mut self.freed));
            if newest == NO_VERSION {
                clean += u64::from(had);
            } else {
                self.again.push(*dirty);
            }
        }
        file.pending.lower(clean);
    }

    fn take_blocks_home<'f>(
        &mut self,
        home: &mut Home<'f>,
        blocks: &[DirtyBlock],
        between: &mut dyn FnMut(),
    ) -> Result<()> {
        home.bring_size_home(0, blocks.len() as u64)?;
        let file = home.file;
        let is_shadowed = file.shadowed.load(Ordering::Acquire) >= self.store.log.tail();
        let most = if is_shadowed { SHADOWED_BATCH } else { BATCH };
        let mut slots: Vec<(u64, &'f Slot)> = Vec::with_capacity(most.min(blocks.len()));
        let mut visits: Vec<Visit<'f>> = Vec::with_capacity(most.min(blocks.len()));
        for batch in blocks.chunks(most) {
            for block in batch.iter().filter_map(|dirty| dirty.block()) {
                if let Some(slot) = file.index.get(block) {
                    slot.prefetch();
                    slots.push((block, slot));
                }
            }
            for (_, slot) in &slots {
                slot.prefetch_newest(&self.store.index.arena);
            }
            visits.extend(slots.drain(..).map(|(block, slot)| Visit { block, claim: slot.claim(), pieces: 0 }));
            visits.chunks(BATCH).for_each(|visits| self.prefetch_lists(visits));
            self.list_pieces(file, &mut visits);
            self.copy(home, &visits)?;
            self.release(file, &mut visits);
            between();
        }
        Ok(())
    }

    /// Asks for the versions of claimed blocks, of all lists at once: one list alone would be waited for version by
    /// version.
    fn prefetch_lists(&self, visits: &[Visit<'_>]) {
        /// Longer lists are waited for.
        const DEEPEST: usize = 16;
        let arena = &self.store.index.arena;
        let mut at = [NO_VERSION; BATCH];
        for (at, visit) in at.iter_mut().zip(visits) {
            *at = visit.claim.newest();
        }
        for _ in 0..DEEPEST {
            let mut any = false;
            for at in at.iter_mut().filter(|at| **at != NO_VERSION) {
                *at = arena.get(*at).next;
                arena.prefetch(*at);
                any = true;
            }
            if !any {
                return;
            }
        }
    }

    /// Finds out what of claimed blocks is to go home, and lets go of those of which nothing is.
    fn list_pieces(&mut self, file: &File, visits: &mut Vec<Visit<'_>>) {
        let (arena, target) = (&self.store.index.arena, self.target);
        let goes_home = |version: &RunVersion| version.stamp < target;
        let Hands { pieces, open, again, .. } = self;
        pieces.clear();
        visits.retain_mut(|visit| {
            visit.pieces = pieces.len();
            let mut versions = arena.list(visit.claim.newest()).filter(goes_home);
            match versions.next() {
                None => {}
                Some(newest) if newest.next == NO_VERSION || u64::from(newest.length) == BLOCK => {
                    let position = Some(newest.position);
                    pieces.push(Piece { start: newest.start, end: newest.end(), position });
                }
                Some(newest) => {
                    let all = std::iter::once(newest).chain(versions);
                    logged_pieces(all, 0, BLOCK as u16, open, pieces);
                    pieces[visit.pieces..].sort_unstable_by_key(|piece| piece.start);
                }
            }
            let found = pieces.len();
            // Of a block that became a hole nothing is to be written: home is zeros there by now, or is not yet to be.
            if pieces[visit.pieces..].iter().any(is_hole) {
                let rest = pieces.split_off(visit.pieces);
                pieces.extend(rest.into_iter().filter(|piece| !is_hole(piece)));
            }
            // Who sees the list as it was before may be reading home bytes that are about to change, or garbage.
            visit.claim.drain_readers();
            if found > visit.pieces {
                return true;
            }
            if visit.claim.newest() != NO_VERSION {
                again.push(DirtyBlock::new(file.number, visit.block));
            }
            false
        });
    }

    /// Copies the pieces of claimed blocks home.
    fn copy(&mut self, home: &mut Home<'_>, visits: &[Visit<'_>]) -> Result<()> {
        // Not of all visits there are bytes.
        let ends = visits.iter().skip(1).map(|visit| visit.pieces).chain([self.pieces.len()]);
        let visits: Vec<(u64, &[Piece])> = visits
            .iter()
            .zip(ends)
            .filter(|(visit, end)| visit.pieces < *end)
            .map(|(visit, end)| (visit.block, &self.pieces[visit.pieces..end]))
            .collect();
        let Some((last, pieces)) = visits.last() else { return Ok(()) };
        let end = last * BLOCK + u64::from(pieces[pieces.len() - 1].end);
        if end > home.size {
            home.bring_size_home(end, visits.len() as u64)?;
        }
        let mapping = home.file.mapping(end)?;
        if mapping.is_some() && !home.is_dense()? {
            home.allocate(&visits)?;
        }
        self.runs.clear();
        for (block, pieces) in visits {
            for piece in pieces {
                let position = piece.position.expect("pieces in the log only");
                let (offset, length) = (block * BLOCK + u64::from(piece.start), usize::from(piece.end - piece.start));
                match self.runs.last_mut() {
                    Some(run) if run.follows(offset, position) => run.length += length,
                    _ => self.runs.push(Run { offset, position, length }),
                }
            }
        }
        home.file.pending.before_home_changes();
        self.share_with_shadows(home)?;
        let bytes = self.runs.iter().map(|run| run.length as u64).sum::<u64>();
        self.report.bytes += bytes;
        self.store.checkpointer.home_bytes.fetch_add(bytes, Ordering::Relaxed);
        match mapping {
            Some(mapping) => self.copy_to_mapping(home, &**mapping),
            None => {
                home.needs_sync = true;
                self.copy_to_file(home)
            }
        }
    }

    /// Survives by a fence of the thread that made the stores, for no other thread's covers them: a helper's when
    /// nothing is left to share, that of the [pass](super::pass)'s own thread when the pass is made durable. Newly
    /// allocated blocks need the file's sync besides; so does everything where the log is on a disk, whose fence is
    /// none for mappings.
    fn copy_to_mapping(&mut self, home: &Home<'_>, mapping: &dyn Region) -> Result<()> {
        let log = self.store.log.region();
        for (i, run) in self.runs.iter().enumerate() {
            if let Some(next) = self.runs.get(i + 1).filter(|next| next.position < ZEROS) {
                // The processor finds out by itself where a run goes on, not where one begins.
                log.prefetch_range(next.position, next.length.min(1024));
            }
            let written = if run.position < ZEROS {
                self.store.log.check_payload(run.position, run.length)?;
                mapping.write_from(site::CHECKPOINT_DATA, run.offset, log, run.position, run.length)
            } else {
                self.buffer.resize(run.length, 0);
                self.store.read_position(run.position, &mut self.buffer)?;
                mapping.write(site::CHECKPOINT_DATA, run.offset, &self.buffer)
            };
            written.map_err(|error| host_error(error, &home.file.path))?;
        }
        Ok(())
    }

    /// Shares the blocks that lie in shadows. Survives by the syncs at the end of the [pass](super::pass).
    fn share_with_shadows(&mut self, home: &mut Home<'_>) -> Result<()> {
        let store = self.store;
        let in_shadow = |run: &mut Run| (SHADOWS..ZEROS).contains(&run.position);
        for run in self.runs.extract_if(.., in_shadow) {
            home.needs_sync = true;
            let (shadow, from) = store.shadows.file(&*store.host, run.position)?;
            home.host
                .write_from(site::SHADOW_HOME, run.offset, &*shadow, from, run.length as u64)
                .map_err(|error| host_error(error, &home.file.path))?;
        }
        Ok(())
    }

    /// Survives by the syncs at the end of the [pass](super::pass).
    fn copy_to_file(&mut self, home: &Home<'_>) -> Result<()> {
        let mut runs = self.runs.iter().peekable();
        while let Some(first) = runs.next() {
            self.buffer.resize(first.length, 0);
            self.store.read_position(first.position, &mut self.buffer)?;
            while let Some(next) = runs.next_if(|next| {
                let end = self.buffer.len();
                next.offset == first.offset + end as u64 && end + next.length <= RUN
            }) {
                let at = self.buffer.len();
                self.buffer.resize(at + next.length, 0);
                self.store.read_position(next.position, &mut self.buffer[at..])?;
            }
            home.host
                .write_at(site::CHECKPOINT_DATA, first.offset, &self.buffer)
                .map_err(|error| host_error(error, &home.file.path))?;
        }
        Ok(())
    }

    /// Drops what went home from the blocks' lists.
    fn release(&mut self, file: &File, visits: &mut Vec<Visit<'_>>) {
        let (arena, target) = (&self.store.index.arena, self.target);
        let mut clean = 0;
        for visit in visits.drain(..) {
            let goes = |version: &RunVersion| version.stamp < target;
            let newest = visit.claim.change_last(|newest| arena.drop_tail(newest, goes, &mut self.freed));
            self.report.blocks += 1;
            if newest == NO_VERSION {
                clean += 1;
            } else {
                self.again.push(DirtyBlock::new(file.number, visit.block));
            }
        }
        file.pending.lower(clean);
    }
}

impl Run {
    fn follows(&self, offset: u64, position: u64) -> bool {
        self.offset + self.length as u64 == offset && self.position + self.length as u64 == position && position < ZEROS
    }
}

fn is_hole(piece: &Piece) -> bool {
    piece.position.is_some_and(|position| (HOLE..MEMORY).contains(&position))
}

/// Invariant 7 of the store. Returns how the file lies.
fn check_bystanders(file: &File, home: &dyn HostFile) -> Result<Option<Baseline>> {
    let mut state = file.home_state.lock().unwrap();
    let now = file.look_for_bystanders(&mut state, || Ok(Some(home.stat()?)))?;
    // From here on it is us who change it.
    state.baseline = None;
    Ok(now)
}

impl Home<'_> {
    /// Makes the home file as long as it is to be, and at least `end` bytes; cut first, where it was cut (invariant 5
    /// of the store). `blocks` are about to be written.
    fn bring_size_home(&mut self, end: u64, blocks: u64) -> Result<()> {
        let file = self.file;
        let mut state = file.home_state.lock().unwrap();
        if file.resized.swap(0, Ordering::AcqRel) != 0 {
            file.pending.lower(1);
            // Also where home is as it should be: after a recovery a dead process may have made it so, and not have
            // synced it.
            self.needs_sync = true;
        }
        let failed = |error| {
            if file.resized.swap(1, Ordering::AcqRel) == 0 {
                file.pending.raise(1);
            }
            host_error(error, &file.path)
        };
        let size = file.size.load(Ordering::Acquire);
        let limit = file.home_limit.fetch_min(size, Ordering::AcqRel).min(size);
        if limit < state.size {
            self.needs_sync = true;
            file.without_mapped_reads(self.store, || self.host.set_len(site::CHECKPOINT_CUT, limit)).map_err(failed)?;
            state.size = limit;
        }
        let size = size.max(end);
        if size > state.size {
            self.needs_sync = true;
            self.host.set_len(site::CHECKPOINT_SIZE, size).map_err(failed)?;
            // Until all of it has its blocks.
            file.set_sparse();
            let grown = size - state.size;
            if grown <= 2 * blocks * BLOCK && file.mapping(size)?.is_some() && is_dense(&mut state, self.host)? {
                // About all of it is going to be written: allocated by one call rather than block by block.
                self.host.allocate(site::CHECKPOINT_ALLOCATE, state.size, grown).map_err(failed)?;
            } else {
                state.dense = Some(false);
            }
            state.size = size;
            // If a group cut the file meanwhile, its limit stays.
            let _ = file.home_limit.compare_exchange(limit, size, Ordering::AcqRel, Ordering::Acquire);
        }
        if file.space.any() {
            self.bring_space_home(&mut state).map_err(failed)?;
        }
        (self.size, self.dense) = (state.size, state.dense);
        Ok(())
    }

    /// Whether every block of the file is allocated.
    fn is_dense(&mut self) -> Result<bool> {
        if self.dense.is_none() {
            self.dense = Some(is_dense(&mut self.file.home_state.lock().unwrap(), self.host)?);
        }
        Ok(self.dense == Some(true))
    }

    /// Allocates blocks, adjacent ones by one call: a store into a mapping could fail for want of space.
    fn allocate(&mut self, visits: &[(u64, &[Piece])]) -> Result<()> {
        self.needs_sync = true;
        for run in visits.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
            let first = run[0].0 * BLOCK;
            let length = (run.len() as u64 * BLOCK).min(self.size - first);
            self.host
                .allocate(site::CHECKPOINT_ALLOCATE, first, length)
                .map_err(|error| host_error(error, &self.file.path))?;
        }
        Ok(())
    }

    /// Makes wishes of groups below the target come true, each by one call. Whoever publishes one meanwhile is above
    /// it.
    fn bring_space_home(&mut self, state: &mut HomeState) -> wholly_media::Result<()> {
        let file = self.file;
        file.pending.before_home_changes();
        for (blocks, how) in file.space.with(|wishes| wishes.due(self.target)) {
            // Behind the end of the file are no bytes, but there may be space.
            let end = if how.reserves() { blocks.end } else { blocks.end.min(state.size.div_ceil(BLOCK)) };
            if blocks.start < end {
                self.needs_sync = true;
                if !how.reserves() {
                    state.dense = Some(false);
                }
                fallocate(self.host, &ALLOCATION, how, blocks.start * BLOCK..end * BLOCK, state.size)?;
            }
            file.space.change(|wishes| wishes.done(blocks, self.target));
        }
        if file.space.any() && file.resized.swap(1, Ordering::AcqRel) == 0 {
            // Of groups above the target: whoever published them may have found that a pass was to come.
            file.pending.raise(1);
            self.again = true;
        }
        Ok(())
    }
}

/// Whether every block of a home file is allocated: the host is asked where nobody knows.
fn is_dense(state: &mut HomeState, host: &dyn HostFile) -> Result<bool> {
    if state.dense.is_none() {
        // Blocks that were not written may count as a hole: they are allocated again.
        state.dense = Some(state.size == 0 || host.next_hole(0)?.is_none_or(|hole| hole >= state.size));
    }
    Ok(state.dense == Some(true))
}
