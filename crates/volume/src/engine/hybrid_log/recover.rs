//! What a crash has left. Recovery undoes what is not committed, and keeps the heads of what is; content goes home
//! later (invariants 3, 4, 12 and 14).

use std::collections::BTreeSet;

use sync::{AtomicU64, Mutex, Ordering, thread};
use wholly_error::Result;
use wholly_media::Region;

use super::queue::{DUE, Ranked};
use super::{HybridLog, KEEP, KEEP_FENCE, RECOVER, RECOVER_FENCE, RECOVERY, WriteBack};
use crate::engine::kind::{self, Left};
use crate::engine::marks::Marks;
use crate::engine::patch::{self, Patch};
use crate::engine::{InoGen, Moved, Waiting, check_within, corrupt, lanes, read_within};
use crate::format::head::{self, HeadSeed, HeadTable, LineSeed, PendingHead, Signed, runs};
use crate::format::log::{self, ENTRIES, Entry, LINE, LogArea, LogSeed, OLD_MAX, SETTLED};
use crate::format::{BLOCK, Fault, Lba};
use index::{LinesVersion, NO_VERSION};

/// Blocks of the table that a thread takes at a time.
const LOT: u64 = 256;
/// Homes of a share of the versions, which a thread enters at a time.
const SHARE: u64 = 1 << 14;
const MAX_THREADS: usize = 8;

/// Log and table of a volume, with their seeds.
#[derive(Clone, Copy)]
pub(super) struct Logs<'l> {
    pub area: &'l LogArea,
    pub table: &'l HeadTable,
    pub log_seed: LogSeed,
    pub head_seed: HeadSeed,
    pub line_seed: &'l LineSeed,
}

/// A head that counts, as far as memory keeps it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    home: u64,
    at: u64,
    order: u64,
    lines: u64,
}

/// What a thread has entered.
#[derive(Default)]
struct Entered {
    /// All homes, and those with long lists.
    homes: Vec<u64>,
    long: Vec<u64>,
}

/// What a crash has left.
struct Found<T> {
    /// What proves groups whose writers may have died before the fence.
    proof: Vec<Patch>,
    /// Old bytes of metadata, in this order.
    undo: Vec<(u64, Vec<u8>)>,
    /// Heads of committed groups, in any order.
    heads: Vec<Vec<T>>,
}

/// That a pending block has the lines which its head promises.
pub(super) fn check_lines(region: &dyn Region, seed: &LineSeed, at: Lba, head: &PendingHead) -> Result<()> {
    check_within(region, head.home.byte(), BLOCK)?;
    let mut bytes = [0; BLOCK];
    read_within(region, at.byte(), &mut bytes)?;
    match seed.of_block(at, head.lines, &bytes) as u32 == head.sum {
        true => Ok(()),
        false => Err(corrupt(format!("pending block {}", at.0), Fault("its lines have a wrong checksum"))),
    }
}

/// What a repair has to do. Heads whose lines cannot be believed or read are left out: the damage of one is none of the
/// others. Only reads.
pub(super) fn left(region: &dyn Region, logs: &kind::Logs<'_>) -> Left {
    let mut left = Left::default();
    let Some(table) = logs.heads else { return left };
    let head_seed = HeadSeed::of(logs.volume, logs.incarnation);
    let line_seed = &LineSeed::of(logs.volume, logs.version);
    let of_region = Logs { area: logs.area, table, log_seed: logs.seed(), head_seed, line_seed };
    let Found { proof, undo, heads } = match find(region, of_region, &|at, read| (at, read.head)) {
        Ok(found) => found,
        Err(error) => {
            left.damage.push(error);
            return left;
        }
    };
    let mut redo = heads.concat();
    redo.sort_unstable_by_key(|(at, head): &(Lba, PendingHead)| (head.order, *at));
    left.patches = proof;
    left.patches.extend(undo.into_iter().map(|(at, bytes)| Patch::old(at, bytes)));
    for (pending, head) in redo {
        let block = (InoGen { ino: head.ino, generation: head.generation }, head.block);
        left.moved.push(Moved { block, to: pending });
        if let Err(error) = check_lines(region, line_seed, pending, &head) {
            left.content.push((block, error));
            continue;
        }
        left.patches.extend(runs(head.lines).map(|(from, to)| {
            let (at, len) = ((from * LINE) as u64, ((to - from) * LINE) as u64);
            Patch::copied(head.home.byte() + at, len, pending.byte() + at)
        }));
    }
    left
}

/// Does what may be much by several threads.
fn by_threads<T: Send>(is_much: bool, work: impl Fn() -> Result<T> + Sync) -> Result<Vec<T>> {
    let threads = if is_much { thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS) } else { 1 };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mine = work();
        let theirs = others.into_iter().map(|other| other.join().expect("a thread of recovery"));
        std::iter::once(mine).chain(theirs).collect()
    })
}

/// The last commit entry of a lane.
struct LastCommit {
    sequence: u64,
    order: u64,
    /// Where it stands.
    at: u64,
    entries: u32,
    sum: u64,
    /// Whether it may have become durable without the rest of its group.
    in_doubt: bool,
    /// Whether its commit has returned.
    is_durable: bool,
}

impl LastCommit {
    /// Whether the sum tells if the group is committed.
    fn is_open(&self) -> bool {
        self.in_doubt && !self.is_durable
    }
}

/// Reads all that the log has. Only reads.
fn find<T: Send>(
    region: &dyn Region,
    logs: Logs<'_>,
    brief: &(impl Fn(Lba, &head::Read) -> T + Sync),
) -> Result<Found<T>> {
    let Logs { area, log_seed, .. } = logs;
    let lasts = (0..area.lanes).map(|lane| last_commit(region, logs, lane)).collect::<Result<Vec<_>>>()?;
    let mut heads = Vec::new();
    let mut open: Vec<(Lba, head::Read)> = Vec::new();
    for (counted, in_doubt) in scan(region, logs, &lasts, brief)? {
        heads.push(counted);
        open.extend(in_doubt);
    }
    let (mut proof, mut undo, mut proven) = (Vec::new(), Vec::new(), Vec::new());
    for (lane, last) in (0..).zip(&lasts) {
        let mut committed = 0;
        if let Some(last) = last {
            let own: Vec<_> = open.iter().filter(|(_, read)| read.head.lane == lane).copied().collect();
            let is_committed = is_committed(region, logs, (lane, last), &own, &mut proof)?;
            committed = last.sequence - u64::from(!is_committed);
            proven.extend(own.iter().filter(|_| is_committed).map(|(at, read)| brief(*at, read)));
        }
        let (mut old, running) = (Vec::new(), committed + 1);
        lanes::walk(region, (log_seed.lane(lane), first(area, lane, running), running), &mut |_, read| {
            if let Entry::Undo { at, len, old: bytes } = read.entry {
                check_within(region, at, len.into())?;
                old.push((at, bytes[..usize::from(len)].to_vec()));
            }
            Ok(true)
        })?;
        undo.extend(old.into_iter().rev());
    }
    heads.push(proven);
    Ok(Found { proof, undo, heads })
}

/// The byte at which the entries of a group begin.
fn first(area: &LogArea, lane: u32, sequence: u64) -> u64 {
    area.half(lane, sequence).start.byte() + ENTRIES
}

fn last_commit(region: &dyn Region, logs: Logs<'_>, lane: u32) -> Result<Option<LastCommit>> {
    let (area, seed) = (logs.area, logs.log_seed.lane(lane));
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
    let Some((read, at)) = last else { return Ok(None) };
    let Entry::Commit { entries, sum, redo: in_doubt, order } = read.entry else { return Ok(None) };
    let sequence = read.sequence;
    let mut is_durable = line(at + SETTLED)?[..8] == read.check.to_le_bytes();
    if !is_durable {
        // If the next group has begun, this one's commit had returned.
        lanes::walk(region, (seed, first(area, lane, sequence + 1), sequence + 1), &mut |_, _| {
            is_durable = true;
            Ok(false)
        })?;
    }
    Ok(Some(LastCommit { sequence, order, at, entries, sum, in_doubt, is_durable }))
}

/// The heads of the table that count, by thread; apart, those of groups of which only the sum tells.
#[allow(clippy::type_complexity, reason = "it is taken apart at once")]
fn scan<T: Send>(
    region: &dyn Region,
    logs: Logs<'_>,
    lasts: &[Option<LastCommit>],
    brief: &(impl Fn(Lba, &head::Read) -> T + Sync),
) -> Result<Vec<(Vec<T>, Vec<(Lba, head::Read)>)>> {
    let (table, next) = (logs.table.0, AtomicU64::new(0));
    by_threads(table.count > LOT, || {
        let (mut counted, mut open) = (Vec::new(), Vec::new());
        loop {
            let from = next.fetch_add(LOT, Ordering::Relaxed);
            for block in from..table.count.min(from.saturating_add(LOT)) {
                let mut lines = [0; BLOCK];
                read_within(region, table.start.byte() + block * BLOCK as u64, &mut lines)?;
                for (i, line) in lines.chunks_exact(LINE).enumerate() {
                    let at = Lba(block * head::LINES as u64 + i as u64);
                    let Some(read) = head::decode(logs.head_seed, at, line.try_into().expect("a line")) else {
                        continue;
                    };
                    let last = lasts.get(read.head.lane as usize).and_then(Option::as_ref);
                    let of_last =
                        last.filter(|last| (read.head.sequence, read.head.order) == (last.sequence, last.order));
                    match (read.signed, last) {
                        (Signed::Kept, _) => counted.push(brief(at, &read)),
                        _ if of_last.is_some_and(LastCommit::is_open) => open.push((at, read)),
                        (Signed::Next, _) => counted.push(brief(at, &read)),
                        (Signed::Here, Some(last)) if read.head.sequence < last.sequence || of_last.is_some() => {
                            counted.push(brief(at, &read));
                        }
                        (Signed::Here, _) => {}
                    }
                }
            }
            if from >= table.count {
                return Ok((counted, open));
            }
        }
    })
}

/// Whether the last group of a lane is committed, given its heads if it is open. What proves it is added to `proof`,
/// unless it is durable.
fn is_committed(
    region: &dyn Region,
    Logs { area, table, log_seed, line_seed, .. }: Logs<'_>,
    (lane, last): (u32, &LastCommit),
    heads: &[(Lba, head::Read)],
    proof: &mut Vec<Patch>,
) -> Result<bool> {
    if last.is_durable {
        return Ok(true);
    }
    let of_line = |at: u64| Patch::there(at, LINE as u64);
    let mut proves = vec![of_line(last.at)];
    if !last.in_doubt {
        proof.append(&mut proves);
        return Ok(true);
    }
    let (mut count, mut total) = (0, 0u64);
    for (at, head::Read { head, check, .. }) in heads {
        let mut bytes = [0; BLOCK];
        read_within(region, at.byte(), &mut bytes)?;
        count += 1;
        total = total.wrapping_add(*check).wrapping_add(line_seed.of_block(*at, head.lines, &bytes));
        proves.push(of_line(table.at(*at)));
        proves.extend(
            runs(head.lines)
                .map(|(from, to)| Patch::there(at.byte() + (from * LINE) as u64, ((to - from) * LINE) as u64)),
        );
    }
    let (seed, sequence) = (log_seed.lane(lane), last.sequence);
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
    if (count, total) == (last.entries, last.sum) {
        proof.append(&mut proves);
        return Ok(true);
    }
    // A mount has kept some of its heads: it had made the proof durable. What rots after that is damage of content.
    Ok(heads.iter().any(|(_, read)| read.signed == Signed::Next))
}

impl HybridLog {
    fn logs(&self) -> Logs<'_> {
        let (lanes, head_seed) = (&self.base.lanes, self.head_seed());
        Logs { area: &lanes.area, table: &self.table, log_seed: lanes.seed(), head_seed, line_seed: &self.line_seed }
    }

    /// Undoes what is not committed, and finds out what content waits. What is stored is durable on return.
    pub(super) fn undo_and_find(&self) -> Result<Option<Waiting>> {
        let region = &*self.base.region;
        let brief = |at: Lba, head::Read { head, .. }: &head::Read| {
            let PendingHead { home, order, lines, .. } = *head;
            Counted { home: home.0, at: at.0, order, lines }
        };
        let Found { proof, undo, heads } = find(region, self.logs(), &brief)?;
        patch::store_proof(region, &RECOVERY, &proof)?;
        if !undo.is_empty() {
            for (at, bytes) in undo {
                region.write(RECOVER, at, &bytes)?;
            }
            region.fence(RECOVER_FENCE)?;
        }
        if heads.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let blocks = region.len() / BLOCK as u64;
        let waiting = Waiting { blocks: Marks::new(blocks), homes: Marks::new(blocks) };
        for Counted { home, at, .. } in heads.iter().flatten() {
            if *home >= blocks || waiting.blocks.mark(Lba(*at)) {
                return Err(corrupt(format!("head of block {at}"), Fault("it is beyond the end of the medium")));
            }
            waiting.homes.mark(Lba(*home));
        }
        *self.recovered.lock().unwrap() = heads;
        Ok(Some(waiting))
    }

    /// Signs the heads of `live` homes for the next incarnation. Durable on return.
    pub(super) fn sign(&self, live: &Marks, used: &Marks) -> Result<()> {
        let (region, table, seed) = (&*self.base.region, self.table.0, self.head_seed());
        let mut heads = self.recovered.lock().unwrap();
        // A block that a map has already holds nothing for another: the maps decide.
        let counts = |head: &Counted| live.is_marked(Lba(head.home)) && !used.mark(Lba(head.at));
        heads.iter_mut().for_each(|heads| heads.retain(counts));
        let kept = Marks::new(self.table.blocks());
        for head in heads.iter().flatten() {
            kept.mark(Lba(head.at));
        }
        let next = AtomicU64::new(0);
        by_threads(table.count > LOT, || {
            let mut has_stored = false;
            loop {
                let from = next.fetch_add(LOT, Ordering::Relaxed);
                for block in from..table.count.min(from.saturating_add(LOT)) {
                    let (marked, byte) = (kept.word(block), table.start.byte() + block * BLOCK as u64);
                    if marked == 0 {
                        continue;
                    }
                    let mut lines = [0; BLOCK];
                    read_within(region, byte, &mut lines)?;
                    for line in (0..head::LINES).filter(|line| marked >> line & 1 != 0) {
                        let (at, bytes) = (Lba(block * head::LINES as u64 + line as u64), &mut lines[line * LINE..]);
                        let read = head::decode(seed, at, bytes[..LINE].try_into().expect("a line"));
                        let gone = || corrupt(format!("head of block {}", at.0), Fault("it has changed"));
                        bytes[..8].copy_from_slice(&read.ok_or_else(gone)?.kept.to_le_bytes());
                    }
                    // Whole lines are cheaper than a word of each; the other words stay what they are.
                    for (from, to) in runs(marked) {
                        region.write(KEEP, byte + (from * LINE) as u64, &lines[from * LINE..to * LINE])?;
                    }
                    has_stored = true;
                }
                if from >= table.count {
                    return if has_stored { Ok(region.fence(KEEP_FENCE)?) } else { Ok(()) };
                }
            }
        })?;
        Ok(())
    }

    /// Enters the versions that were kept. Nobody else has the engine yet.
    pub(super) fn enter(&self) {
        let heads = std::mem::take(&mut *self.recovered.lock().unwrap());
        let all = || heads.iter().flatten();
        let (Some(last), count) = (all().map(|head| head.order).max(), all().count()) else { return };
        self.base.go_on_after(last);
        let unverified = Marks::new(self.table.blocks());
        let shares = self.table.blocks().div_ceil(SHARE) as usize;
        let mut by_home: Vec<Vec<Counted>> = (0..shares).map(|_| Vec::with_capacity(count / shares)).collect();
        for head in all() {
            unverified.mark(Lba(head.at));
            by_home[(head.home / SHARE) as usize].push(*head);
        }
        let in_order = match self.how {
            WriteBack::CommitOrder => all().map(|head| (head.order, head.home)).collect(),
            _ => BTreeSet::new(),
        };
        drop(heads);
        let (shares, next) = (by_home.into_iter().map(Mutex::new).collect::<Vec<_>>(), AtomicU64::new(0));
        let entered = by_threads(shares.len() > 1, || {
            let mut entered = Entered::default();
            while let Some(share) = shares.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                let mut share = std::mem::take(&mut *share.lock().unwrap());
                share.sort_unstable_by_key(|head| (head.home, head.order));
                self.enter_share(&share, &mut entered);
            }
            Ok(entered)
        });
        let entered = entered.expect("nothing of it fails");
        let mut lists = self.queue.lists();
        for Entered { homes, long } in entered {
            homes.into_iter().for_each(|home| self.found(home));
            long.into_iter().for_each(|home| self.queue.enter(&mut lists, Ranked::new(DUE, home)));
        }
        lists.in_order = in_order;
        drop(lists);
        self.pending.store(count as u64, Ordering::Release);
        let is_first = self.unverified.set(unverified).is_ok();
        assert!(is_first, "a volume is recovered once");
    }

    /// Enters some versions, which are in the order of their homes, and each home's in commit order.
    fn enter_share(&self, share: &[Counted], entered: &mut Entered) {
        let Ok(most) = u32::try_from(share.len()) else { unreachable!("a share has as many heads as homes") };
        if most == 0 {
            return;
        }
        let mut numbers = self.arena.take_fresh(most);
        let (mut shown, mut hidden, mut freed) = (Vec::new(), Vec::new(), Vec::new());
        for versions in share.chunk_by(|one, other| one.home == other.home) {
            let home = versions[0].home;
            let mut open = u64::MAX;
            for version in versions.iter().rev() {
                let Counted { at, order, lines, .. } = *version;
                let number = numbers.next().expect("one for each");
                let made = LinesVersion { position: at, stamp: order, lines, next: NO_VERSION, before_thinning: 0 };
                match open & lines {
                    0 => {
                        self.arena.set(number, made);
                        hidden.push(number);
                    }
                    _ => shown.push((number, made)),
                }
                open &= !lines;
            }
            let slot = self.index.get_or_make(home);
            while let Some((number, version)) = shown.pop() {
                slot.push_recovered(&self.arena, number, version, &mut freed);
            }
            if !hidden.is_empty() {
                self.queue.cover(&self.arena, home, &hidden);
                hidden.clear();
            }
            entered.homes.push(home);
            if versions.len() > self.how.most_versions() {
                entered.long.push(home);
            }
        }
        debug_assert!(freed.is_empty(), "what shows is covered by nothing");
        let mut rest: Vec<u32> = numbers.collect();
        self.arena.give_back(&mut rest);
    }

    /// That content of an earlier incarnation is what its group has written: looked at once.
    pub(super) fn verify(&self, at: Lba) -> Result<()> {
        let Some(unverified) = self.unverified.get().filter(|unverified| unverified.is_marked(at)) else {
            return Ok(());
        };
        let mut line = [0; LINE];
        self.base.region.read(self.table.at(at), &mut line)?;
        let gone = || corrupt(format!("head of block {}", at.0), Fault("it has changed"));
        let read = head::decode(self.head_seed(), at, &line).ok_or_else(gone)?;
        check_lines(&*self.base.region, &self.line_seed, at, &read.head)?;
        unverified.unmark(at);
        Ok(())
    }
}
