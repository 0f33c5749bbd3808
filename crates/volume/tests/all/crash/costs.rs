//! What a group costs, from the records of all scripts: fences and bytes by the formulas of the engine's page, equal to
//! the byte; and that undo entries are for exactly what is stored in place (its invariant 6).

use std::collections::BTreeMap;
use std::sync::Mutex;

use wholly_crash::volume::{BYTES, OnVolume, Program, Running, VOLUME_ID};
use wholly_crash::{Op, Run, State, run};
use wholly_media::Site;
use wholly_sim::{Count, Counts, Event, EventKind, Trace};
use wholly_volume::format::log::{Entry, LINE, LogArea, LogSeed, decode};
use wholly_volume::format::{Lba, Seed};
use wholly_volume::{EngineKind, Volume};

use super::programs::{Done, groups, world};
use super::scripts::SCRIPTS;

/// A program of which it is counted what it does to the medium.
struct Counted {
    program: Done,
    /// That, and how often the volume was mounted.
    counted: Mutex<(Counts, u64)>,
}

impl Program for Counted {
    fn name(&self) -> String {
        self.program.name()
    }

    fn time_passes(&self) -> bool {
        self.program.time_passes()
    }

    fn prepare(&self, volume: &Volume) -> Result<(), String> {
        self.program.prepare(volume)
    }

    fn perform(&self, running: &mut Running<'_>) -> Result<(), String> {
        // What the open stores is no group.
        running.take_counts();
        self.program.perform(running)?;
        *self.counted.lock().unwrap() = (running.take_counts(), running.volume().stat().incarnation);
        Ok(())
    }

    fn ops_after(&self, state: &State) -> Vec<Op> {
        self.program.ops_after(state)
    }

    fn rules(&self) -> String {
        self.program.rules()
    }
}

/// What a program did, once it had an open volume.
pub struct Recorded {
    run: Run,
    counts: Counts,
    incarnation: u64,
}

impl Recorded {
    pub fn of(engine: EngineKind, program: Done) -> Recorded {
        let subject = OnVolume { engine, program: Counted { program, counted: Mutex::default() } };
        let run = run(&subject, &world("pmem"));
        assert_eq!(run.failure, None, "{}", program.name());
        let (counts, incarnation) = subject.program.counted.into_inner().unwrap();
        Recorded { run, counts, incarnation }
    }

    pub fn steps(&self) -> &[Event] {
        &self.trace().events[self.first()..]
    }

    pub fn trace(&self) -> &Trace {
        &self.run.trace
    }

    /// The first event of the steps.
    pub fn first(&self) -> usize {
        self.run.operations[0].end as usize
    }

    pub fn seed(&self) -> LogSeed {
        LogSeed::of(Seed::of(&VOLUME_ID), self.incarnation)
    }
}

/// What one group stored.
#[derive(Default)]
struct Group {
    fences: Vec<&'static str>,
    /// Bytes by site.
    bytes: BTreeMap<&'static str, u64>,
    /// Undo entries: from, to.
    undone: Vec<(u64, u64)>,
    /// Stores between the first and the second fence.
    in_place: Vec<(u64, u64)>,
    /// Bytes of data and zero entries.
    redone: u64,
    /// Where they belong: from, to.
    redone_at: Vec<(u64, u64)>,
    /// Whole lines of payloads.
    payload_lines: u64,
}

impl Group {
    fn add(&mut self, seed: LogSeed, event: &Event) {
        let Some(site) = event.site else { return };
        match &event.kind {
            EventKind::Fence { .. } => self.fences.push(site.0),
            EventKind::Store { offset, data, .. } => {
                *self.bytes.entry(site.0).or_default() += data.len() as u64;
                let end = offset + data.len() as u64;
                if self.fences.last() == Some(&"wal.log.fence") && site.0.starts_with("volume.") {
                    self.in_place.push((*offset, end));
                }
                let lanes = 0..LogArea::for_volume(Lba(2), BYTES / 4096).lanes;
                let read = <&[u8; LINE]>::try_from(&data[..]).ok();
                let seeds = || lanes.clone().map(|lane| seed.lane(lane)).chain([seed.chains()]);
                let read = read.and_then(|line| seeds().find_map(|seed| decode(seed, *offset, line)));
                match read.map(|read| read.entry) {
                    Some(Entry::Undo { at, len, .. }) => self.undone.push((at, at + u64::from(len))),
                    Some(Entry::Data { at, len, .. } | Entry::Zero { at, len }) => {
                        self.redone += len;
                        self.redone_at.push((at, at + len));
                    }
                    _ => {}
                }
                if site.0 == "wal.payload" {
                    self.payload_lines += (data.len() as u64).div_ceil(LINE as u64);
                }
            }
            _ => {}
        }
    }

    /// That of an explicit group: each byte goes home once.
    fn expect_explicit(&mut self, what: &str) {
        self.redone_at.sort_unstable();
        let (mut end, mut distinct) = (0, 0);
        for (from, to) in &self.redone_at {
            distinct += to.saturating_sub(end.max(*from));
            end = end.max(*to);
        }
        assert!(distinct < self.redone, "{what}: some data is written over");
        self.redone = distinct;
        self.bytes.remove("wal.payload");
        self.expect_formula(what);
    }

    fn expect_formula(&mut self, what: &str) {
        let of = |site: &str| self.bytes.get(site).copied().unwrap_or(0);
        let (changes, has_data) = (!self.undone.is_empty(), self.redone > 0);
        let mut fences = vec!["wal.log.fence"];
        fences.extend(changes.then_some("wal.place.fence"));
        fences.push("wal.commit.fence");
        fences.extend(has_data.then_some(["wal.home.fence", "wal.settle.fence"]).into_iter().flatten());
        assert_eq!(self.fences, fences, "{what}");
        let line = LINE as u64;
        assert_eq!(of("wal.commit"), line, "{what}");
        assert_eq!(of("wal.settle"), if has_data { 8 } else { 0 }, "{what}");
        assert_eq!(of("wal.undo"), line * self.undone.len() as u64, "{what}");
        assert_eq!(of("wal.home"), self.redone, "{what}: data goes home once");
        assert!(of("wal.payload") <= self.redone, "{what}: zeros are not logged");

        self.undone.sort_unstable();
        self.in_place.sort_unstable();
        assert!(self.undone.windows(2).all(|two| two[0].1 <= two[1].0), "{what}: undo entries overlap");
        let covered = |from: u64, to: u64| {
            let inside = self.undone.iter().filter(|(at, end)| from <= *at && *end <= to);
            let first = inside.clone().next().is_some_and(|(at, _)| *at == from);
            first && inside.clone().next_back().is_some_and(|(_, end)| *end == to)
        };
        for (from, to) in &self.in_place {
            assert!(covered(*from, *to), "{what}: {from}..{to} is stored in place, and not undone to its ends");
            assert!(to - from <= line && from / line == (to - 1) / line, "{what}: a store is in one line");
        }
        let lines = |ranges: &[(u64, u64)]| {
            let mut lines: Vec<u64> = ranges.iter().map(|(from, _)| from / line).collect();
            lines.dedup();
            lines
        };
        assert_eq!(lines(&self.undone), lines(&self.in_place), "{what}: what is undone is stored");
    }
}

#[test]
fn groups_cost_what_is_said() {
    let (mut groups, mut with_data) = (0, 0);
    for script in SCRIPTS {
        let recorded = Recorded::of(EngineKind::FineGrainedWal, Done::Script(script));
        let mut group = Group::default();
        let (before, mut fences, mut undo_lines) = (groups, 0, 0);
        for event in recorded.steps() {
            group.add(recorded.seed(), event);
            // The lane is given back after the last fence: that of the settled word, or of the commit entry.
            let ended = match group.fences.last() {
                Some(&"wal.settle.fence") => true,
                Some(&"wal.commit.fence") => group.redone == 0,
                _ => false,
            };
            if ended {
                groups += 1;
                with_data += u64::from(group.redone > 0);
                fences += group.fences.len() as u64;
                undo_lines += group.undone.len() as u64;
                std::mem::take(&mut group).expect_formula(script.name);
            }
        }
        assert!(group.bytes.is_empty(), "{}: something was stored after the last commit", script.name);
        // The same, as the medium has seen it.
        let lines = |site| recorded.counts.get(&Site(site)).map_or(0, |count: &Count| count.lines);
        assert_eq!(lines("wal.commit"), groups - before, "{}", script.name);
        assert_eq!(lines("wal.undo"), undo_lines, "{}", script.name);
        assert_eq!(recorded.counts.values().map(|count| count.fences).sum::<u64>(), fences, "{}", script.name);
    }
    println!("{groups} groups, {with_data} with data");
    assert!(groups > 50 && with_data > 10, "{groups} {with_data}");
}

#[test]
fn explicit_groups_cost_what_is_said() {
    let subject = groups().into_iter().find(|subject| subject.program.name() == "data, committed");
    let program = subject.expect("it is one of them").program;
    let recorded = Recorded::of(EngineKind::FineGrainedWal, program);
    let mut group = Group::default();
    for event in recorded.steps() {
        group.add(recorded.seed(), event);
        if group.fences.last() == Some(&"wal.settle.fence") {
            return group.expect_explicit(&program.name());
        }
    }
    panic!("it is settled");
}
