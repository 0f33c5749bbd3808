//! What a group costs, from the records of all scripts: fences and bytes by the formulas of the engine's page, equal to
//! the byte; and that undo entries are for exactly what is stored in place (its invariant 6).

use std::collections::BTreeMap;

use wholly_crash::volume::{BYTES, VOLUME_ID};
use wholly_crash::{Run, run};
use wholly_sim::{Choice, Event, EventKind, Pick, Trace, World};
use wholly_volume::format::log::{Entry, LINE, LogArea, LogSeed, decode};
use wholly_volume::format::{Lba, Seed};
use wholly_volume::{Volume, VolumeOptions};

use crate::programs::{Done, on_volume, world};
use crate::scripts::SCRIPTS;

const BLOCKS: u64 = BYTES / 4096;

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
                if self.fences == ["wal.log.fence"] && site.0.starts_with("volume.") {
                    self.in_place.push((*offset, end));
                }
                let lanes = 0..LogArea::for_volume(Lba(2), BLOCKS).lanes;
                let read = <&[u8; LINE]>::try_from(&data[..]).ok();
                let read =
                    read.and_then(|line| lanes.into_iter().find_map(|lane| decode(seed.lane(lane), *offset, line)));
                match read.map(|read| read.entry) {
                    Some(Entry::Undo { at, len, .. }) => self.undone.push((at, at + u64::from(len))),
                    Some(Entry::Data { len, .. } | Entry::Zero { len, .. }) => self.redone += len,
                    _ => {}
                }
                if site.0 == "wal.payload" {
                    self.payload_lines += (data.len() as u64).div_ceil(LINE as u64);
                }
            }
            _ => {}
        }
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

/// How often the volume was mounted, the run included.
fn incarnation(trace: &Trace) -> u64 {
    let end = Choice { point: trace.events.len() as u64, pick: Pick::All };
    let world = World::from_image(&trace.image_of(&end), trace.config.clone());
    let volume = Volume::open_region(world.log(), &VolumeOptions::default()).expect("it opens");
    volume.stat().incarnation - 1
}

#[test]
fn groups_cost_what_is_said() {
    let (mut groups, mut with_data) = (0, 0);
    for script in SCRIPTS {
        let Run { trace, operations, failure, .. } = run(&on_volume(Done::Script(script)), &world("pmem"));
        assert_eq!(failure, None, "{}", script.name);
        let seed = LogSeed::of(Seed::of(&VOLUME_ID), incarnation(&trace));
        let mut group = Group::default();
        // What the open stores is no group.
        for event in &trace.events[operations[0].end as usize..] {
            group.add(seed, event);
            // The lane is given back after the last fence: that of the settled word, or of the commit entry.
            let ended = match group.fences.last() {
                Some(&"wal.settle.fence") => true,
                Some(&"wal.commit.fence") => group.redone == 0,
                _ => false,
            };
            if ended {
                groups += 1;
                with_data += u64::from(group.redone > 0);
                std::mem::take(&mut group).expect_formula(script.name);
            }
        }
        assert!(group.bytes.is_empty(), "{}: something was stored after the last commit", script.name);
    }
    println!("{groups} groups, {with_data} with data");
    assert!(groups > 50 && with_data > 10, "{groups} {with_data}");
}
