//! What a crash has left, and how it is repaired: what is not committed is undone, and the lines of committed heads are
//! copied home, in commit order (invariants 3, 4 and 12).

use wholly::Result;
use wholly_media::Region;

use super::{RECOVER, RECOVER_FENCE, RECOVERY};
use crate::engine::patch::{self, Patch};
use crate::engine::{InoGen, Moved, check_within, corrupt, lanes, read_within};
use crate::format::head::{self, HeadSeed, HeadTable, PendingHead, runs};
use crate::format::log::{self, ENTRIES, Entry, LINE, LogArea, LogSeed, OLD_MAX, SETTLED};
use crate::format::{BLOCK, Fault, Lba};

/// A head that was found: its block, what it says, and its check.
type FoundHead = (Lba, PendingHead, u64);

/// What a crash has left.
pub struct Survey {
    /// What proves groups whose writers may have died before the fence.
    proof: Vec<Patch>,
    /// Old bytes of metadata, in this order.
    undo: Vec<(u64, Vec<u8>)>,
    /// Heads of committed groups, in commit order.
    redo: Vec<FoundHead>,
}

impl Survey {
    /// The bytes that recovery stores, in this order. Only reads.
    ///
    /// # Errors
    /// If a pending block is damaged; the medium's.
    pub fn patches(self, region: &dyn Region, seed: HeadSeed) -> Result<Vec<Patch>> {
        let Survey { proof: mut patches, undo, redo } = self;
        patches.extend(undo.into_iter().map(|(at, bytes)| Patch::old(at, bytes)));
        for found in redo {
            read_lines(region, seed, &found)?;
            let (pending, head, _) = found;
            patches.extend(runs(head.lines).map(|(from, to)| {
                let (at, len) = ((from * LINE) as u64, ((to - from) * LINE) as u64);
                Patch::copied(head.home.byte() + at, len, pending.byte() + at)
            }));
        }
        Ok(patches)
    }

    /// Blocks of files to which a pointer may lead that is not durable (invariant 12).
    pub fn moved(&self) -> Vec<Moved> {
        let of_head = |(at, head, _): &FoundHead| {
            let file = InoGen { ino: head.ino, generation: head.generation };
            Moved { block: (file, head.block), to: *at }
        };
        self.redo.iter().map(of_head).collect()
    }
}

/// Repairs the volume. What is stored is durable on return. Returns what may have moved.
pub(super) fn recover(
    region: &dyn Region,
    area: &LogArea,
    table: &HeadTable,
    seeds: (LogSeed, HeadSeed),
) -> Result<Vec<Moved>> {
    let found = survey(region, area, table, seeds)?;
    let moved = found.moved();
    let Survey { proof, undo, redo } = found;
    patch::store_proof(region, &RECOVERY, &proof)?;
    if undo.is_empty() && redo.is_empty() {
        return Ok(moved);
    }
    for (at, bytes) in undo {
        region.write(RECOVER, at, &bytes)?;
    }
    for found in redo {
        let (head, bytes) = (found.1, read_lines(region, seeds.1, &found)?);
        for (from, to) in runs(head.lines) {
            region.write(RECOVER, head.home.byte() + (from * LINE) as u64, &bytes[from * LINE..to * LINE])?;
        }
    }
    region.fence(RECOVER_FENCE)?;
    Ok(moved)
}

/// The block with the lines of a head that counts.
fn read_lines(region: &dyn Region, seed: HeadSeed, (at, head, _): &FoundHead) -> Result<[u8; BLOCK]> {
    check_within(region, head.home.byte(), BLOCK)?;
    let mut bytes = [0; BLOCK];
    read_within(region, at.byte(), &mut bytes)?;
    match seed.lines_sum(*at, head.lines, &bytes) as u32 == head.sum {
        true => Ok(bytes),
        false => Err(corrupt(format!("pending block {}", at.0), Fault("its lines have a wrong checksum"))),
    }
}

/// Finds out what recovery has to do. Only reads.
///
/// # Errors
/// If the log is damaged; the medium's.
pub fn survey(region: &dyn Region, area: &LogArea, table: &HeadTable, seeds: (LogSeed, HeadSeed)) -> Result<Survey> {
    let heads = read_table(region, table, seeds.1)?;
    let (mut proof, mut undo, mut committed) = (Vec::new(), Vec::new(), Vec::new());
    for lane in 0..area.lanes {
        let seed = seeds.0.lane(lane);
        let last = last_commit(region, (area, table), lane, seeds, (&heads, &mut proof))?;
        committed.push(last);
        let (mut old, running) = (Vec::new(), last + 1);
        lanes::walk(region, (seed, first(area, lane, running), running), &mut |_, read| {
            if let Entry::Undo { at, len, old: bytes } = read.entry {
                check_within(region, at, len.into())?;
                old.push((at, bytes[..usize::from(len)].to_vec()));
            }
            Ok(true)
        })?;
        undo.extend(old.into_iter().rev());
    }
    let counts = |head: &PendingHead| committed.get(head.lane as usize).is_some_and(|last| head.sequence <= *last);
    let mut redo: Vec<FoundHead> = heads.into_iter().filter(|(_, head, _)| counts(head)).collect();
    redo.sort_unstable_by_key(|(at, head, _)| (head.order, *at));
    Ok(Survey { proof, undo, redo })
}

/// The byte at which the entries of a group begin.
fn first(area: &LogArea, lane: u32, sequence: u64) -> u64 {
    area.half(lane, sequence).start.byte() + ENTRIES
}

/// All valid heads.
fn read_table(region: &dyn Region, table: &HeadTable, seed: HeadSeed) -> Result<Vec<FoundHead>> {
    let mut heads = Vec::new();
    for block in 0..table.0.count {
        let mut lines = [0; BLOCK];
        read_within(region, table.0.start.byte() + block * BLOCK as u64, &mut lines)?;
        for (i, line) in lines.chunks_exact(LINE).enumerate() {
            let at = Lba(block * head::LINES as u64 + i as u64);
            let line = line.try_into().expect("a line");
            heads.extend(head::decode(seed, at, line).map(|(head, check)| (at, head, check)));
        }
    }
    Ok(heads)
}

/// The sequence of the last committed group of a lane. What proves it is added to `proof`, unless it is durable.
fn last_commit(
    region: &dyn Region,
    (area, table): (&LogArea, &HeadTable),
    lane: u32,
    (log_seed, head_seed): (LogSeed, HeadSeed),
    (heads, proof): (&[FoundHead], &mut Vec<Patch>),
) -> Result<u64> {
    let seed = log_seed.lane(lane);
    let line = |at: u64| -> Result<[u8; LINE]> {
        let mut line = [0; LINE];
        read_within(region, at, &mut line)?;
        Ok(line)
    };
    let mut last: Option<(log::Read, u64)> = None;
    for parity in 0..2 {
        let at = area.half(lane, parity).start.byte();
        let read = log::decode(seed, at, &line(at)?);
        let is_commit = |read: &log::Read| matches!(read.entry, Entry::Commit { .. }) && read.sequence % 2 == parity;
        if let Some(read) = read.filter(is_commit)
            && last.is_none_or(|(last, _)| read.sequence > last.sequence)
        {
            last = Some((read, at));
        }
    }
    let Some((read, at)) = last else { return Ok(0) };
    let Entry::Commit { entries, sum, redo: in_doubt, .. } = read.entry else { return Ok(0) };
    if line(at + SETTLED)?[..8] == read.check.to_le_bytes() {
        return Ok(read.sequence);
    }
    // The next group has begun: this one's commit had returned.
    let sequence = read.sequence;
    let mut next = false;
    lanes::walk(region, (seed, first(area, lane, sequence + 1), sequence + 1), &mut |_, _| {
        next = true;
        Ok(false)
    })?;
    if next {
        return Ok(sequence);
    }
    let of_line = |at: u64| Patch::there(at, LINE as u64);
    let mut proves = vec![of_line(at)];
    if !in_doubt {
        proof.append(&mut proves);
        return Ok(sequence);
    }
    let (mut count, mut total) = (0, 0u64);
    for (at, head, check) in heads.iter().filter(|(_, head, _)| (head.lane, head.sequence) == (lane, sequence)) {
        let mut bytes = [0; BLOCK];
        read_within(region, at.byte(), &mut bytes)?;
        count += 1;
        total = total.wrapping_add(*check).wrapping_add(head_seed.lines_sum(*at, head.lines, &bytes));
        proves.push(of_line(table.at(*at)));
        proves.extend(
            runs(head.lines)
                .map(|(from, to)| Patch::there(at.byte() + (from * LINE) as u64, ((to - from) * LINE) as u64)),
        );
    }
    lanes::walk(region, (seed, first(area, lane, sequence), sequence), &mut |stands, read| {
        count += 1;
        total = total.wrapping_add(read.check);
        proves.push(of_line(stands));
        if let Entry::Undo { at, len, .. } = read.entry {
            let mut bytes = [0; OLD_MAX];
            let bytes = &mut bytes[..usize::from(len)];
            read_within(region, at, bytes)?;
            total = total.wrapping_add(log_seed.in_place_sum(at, bytes));
            proves.push(Patch::there(at, len.into()));
        }
        Ok(true)
    })?;
    if (count, total) != (entries, sum) {
        return Ok(sequence - 1);
    }
    proof.append(&mut proves);
    Ok(sequence)
}
