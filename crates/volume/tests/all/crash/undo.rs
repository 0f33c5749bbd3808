//! The engine `undo`: the scripts of all engines, scripts with small and large changes of a block, mistakes that are
//! planted, what a group costs, and what recovery does in each of its statuses.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use wholly_crash::coverage;
use wholly_crash::volume::{BYTES, OnVolume, Program, tick};
use wholly_media::Site;
use wholly_posix::Tree;
use wholly_sim::MutationKind::{DelayWrite, DropOrder};
use wholly_sim::{Event, EventKind, ExploreLimits, Explorer, MutationKind, World};
use wholly_vfs::{Fallocate, OFlags, Result};
use wholly_volume::EngineKind;
use wholly_volume::engine::undo::lane_patches;
use wholly_volume::format::Lba;
use wholly_volume::format::log::{Entry, LINE, LogArea, decode};

use super::costs::Recorded;
use super::groups::{Story, alone, expect};
use super::hybrid;
use super::planted::{expect_seen, once};
use super::programs::{self, Done, world};
use super::scripts::{SCRIPTS, Script, Step};
use super::survival::{explored, limits, limits_of_groups, models, some};

/// Blocks of a volume.
const BLOCKS: u64 = BYTES / 4096;

fn write(t: &Tree<'_>, path: &str, at: u64, data: &[u8]) -> Result<()> {
    t.open(path, OFlags::RDWR)?.write_all(at, data)
}

/// Two files of a few blocks, and one of one block.
fn three(t: &Tree<'_>) -> Result<()> {
    t.file("a", 0o644, &[1; 12_288])?;
    t.file("b", 0o600, &[2; 9000])?;
    t.file("one", 0o600, &[3; 4000]).map(drop)
}

/// Content of `a` from byte 8 on, of which a word of each line is another.
fn scattered(byte: u8) -> Vec<u8> {
    (8..8184).map(|at| if at % 64 < 8 { byte } else { 1 }).collect()
}

const SCRIPTS_OF_CONTENT: &[Script] = &[
    // On both sides of half a block, at its ends, over two blocks. What was moved leaves blocks that others get.
    Script {
        name: "halves",
        before: three,
        steps: &[
            |t| write(t, "a", 100, &[10; 20]),
            |t| write(t, "a", 0, &[11; 2040]),
            |t| write(t, "a", 2048, &[12; 2048]),
            |t| write(t, "a", 3000, &[13; 2200]),
            |t| {
                tick();
                write(t, "a", 1000, &[14; 9000])
            },
            |t| t.create("c", 0o644).map(drop),
            |t| write(t, "c", 0, &[15; 9000]),
            |t| write(t, "one", 0, &[16; 3000]),
            |t| write(t, "one", 5, &[17; 70]),
            |t| t.open("one", OFlags::RDWR)?.append(&[18; 3000]).map(drop),
            |t| write(t, "a", 0, &[19; 12_288]),
            |t| write(t, "c", 4090, &[20; 12]),
        ],
    },
    // Tails become zeros and get content again; ends of holes.
    Script {
        name: "tails",
        before: three,
        steps: &[
            |t| t.truncate("a", 11_000).map(drop),
            |t| t.open("a", OFlags::RDWR)?.append(&[30; 500]).map(drop),
            |t| t.truncate("a", 8292).map(drop),
            |t| t.open("a", OFlags::RDWR)?.append(&[31; 3000]).map(drop),
            |t| {
                let flags = Fallocate::Punch;
                t.open("a", OFlags::RDWR)?.allocate(flags, 500, 4000)
            },
            |t| write(t, "a", 400, &[32; 200]),
            |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::ZeroExtend, 3000, 5500),
            |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Insert, 4096, 4096),
            |t| write(t, "b", 4000, &[33; 300]),
            |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Collapse, 0, 4096),
            |t| t.unlink("b"),
            |t| write(t, "one", 0, &[34; 4000]),
        ],
    },
    // So many words far from each other change that the log goes on elsewhere, in blocks that another lane has just
    // had.
    Script {
        name: "long logs",
        before: three,
        steps: &[
            |t| write(t, "a", 8, &scattered(40)),
            |t| write(t, "a", 8, &scattered(41)),
            |t| write(t, "b", 10, &[42; 50]),
            |t| write(t, "a", 8, &scattered(43)),
        ],
    },
];

/// Small changes of one block that add up to more than half of it, in between and after that others.
const ADDING_UP: &[Step] = &[
    |t| write(t, "a", 4100, &[60; 500]),
    |t| write(t, "a", 4400, &[61; 500]),
    |t| write(t, "b", 0, &[62; 100]),
    |t| write(t, "a", 6000, &[63; 700]),
    |t| expect(t.content("a")?[4096..6700].iter().filter(|byte| **byte == 1).count() == 1104),
    |t| write(t, "a", 7000, &[64; 800]),
    |t| write(t, "a", 7100, &[65; 50]),
    |t| t.truncate("b", 8292).map(drop),
    |t| t.open("b", OFlags::RDWR)?.append(&[66; 300]).map(drop),
    |t| expect(t.content("a")?[7100..7150] == [65; 50] && t.content("b")?[8292..] == [66; 300]),
];

/// Whole blocks, and more than half of some: by both threads, and last before the commit.
const WHOLE: &[Step] =
    &[|t| write(t, "a", 4096, &[90; 4096]), |t| write(t, "b", 100, &[91; 3000]), |t| write(t, "a", 0, &[92; 7000])];

/// Much of small changes: more lines of log than a lane has.
const SPREAD: &[Step] = &[
    |t| (0..32).try_for_each(|i| write(t, "a", i * 128, &[70; 40])),
    |t| (0..32).try_for_each(|i| write(t, "a", 4096 + i * 128 + 5, &[71; 33])),
    |t| (0..32).try_for_each(|i| write(t, "b", i * 128, &[72; 56])),
    |t| (0..30).try_for_each(|i| write(t, "b", 4096 + i * 128, &[73; 48])),
];

/// Explicit groups, besides those of other engines.
pub fn stories() -> Vec<Story> {
    let after: &[Step] =
        &[|t| write(t, "a", 50, &[80; 4000]), |t| t.create("d", 0o644).map(drop), |t| write(t, "d", 0, &[81; 20_000])];
    let own = [("adding up", ADDING_UP), ("spread", SPREAD), ("whole", WHOLE)];
    own.into_iter().flat_map(|(name, steps)| alone(name, three, steps, after)).collect()
}

static STORIES: LazyLock<Vec<Story>> = LazyLock::new(|| stories().into_iter().chain(hybrid::stories()).collect());

/// Calls outside of groups. A call that changes content changes times, and so metadata, or not: the clock stands still.
pub fn calls_on(engine: EngineKind) -> Vec<OnVolume<Done>> {
    let scripts = SCRIPTS_OF_CONTENT.iter().chain(SCRIPTS);
    let all = scripts.map(Done::Still).chain([Done::Resizing]);
    all.map(|program| OnVolume { engine, program }).collect()
}

pub fn calls() -> Vec<OnVolume<Done>> {
    calls_on(EngineKind::Undo)
}

/// Explicit groups, but for those of all engines.
pub fn own_groups_on(engine: EngineKind) -> Vec<OnVolume<Done>> {
    STORIES.iter().map(Done::StillStory).map(|program| OnVolume { engine, program }).collect()
}

fn own_groups() -> Vec<OnVolume<Done>> {
    own_groups_on(EngineKind::Undo)
}

/// The same with those.
pub fn groups_on(engine: EngineKind) -> Vec<OnVolume<Done>> {
    let all = programs::STORIES.iter().map(Done::StillStory).map(|program| OnVolume { engine, program });
    own_groups_on(engine).into_iter().chain(all).collect()
}

pub fn groups() -> Vec<OnVolume<Done>> {
    groups_on(EngineKind::Undo)
}

#[test]
fn each_call_survives_wholly_or_not_at_all_with_undo() {
    let outcome = explored(&models(), &some(calls()), &limits());
    let mut sites = wholly_volume::sites();
    sites.retain(|site| site.0.starts_with("undo.") && *site != OF_GROUPS);
    assert_eq!(coverage::uncovered(&sites, &outcome), [], "these were no crash points");
}

/// Only explicit groups pass it.
const OF_GROUPS: Site = Site("undo.call.hand_over");

/// Explicit groups are there wholly once they are committed, and not at all before.
#[test]
fn groups_survive_wholly_or_not_at_all_with_undo() {
    let outcome = explored(&models(), &some(groups()), &limits_of_groups());
    assert_eq!(coverage::uncovered(&[OF_GROUPS], &outcome), [], "these were no crash points");
}

/// Fences, and stores that the next fence must cover. Not blocks that nobody can reach: any fence before the pointers
/// will do for them. Not what recovery stores: the mount fences once more, before it says that it has recovered.
const MISTAKES: &[(&str, MutationKind)] = &[
    ("undo.log.fence", DropOrder),
    ("undo.place.fence", DropOrder),
    ("undo.commit.fence", DropOrder),
    ("undo.entry", DelayWrite),
    ("undo.head", DelayWrite),
    ("undo.payload", DelayWrite),
    ("undo.link", DelayWrite),
    ("undo.data", DelayWrite),
    ("undo.commit", DelayWrite),
    ("volume.inode.line", DelayWrite),
    ("volume.map.pointer", DelayWrite),
];

/// The same of calls of explicit groups: what they store is ordered by each of them.
const OF_CALLS: &[(&str, MutationKind)] = &[("undo.call.hand_over", DropOrder), ("undo.moved", DelayWrite)];

#[test]
fn mistakes_with_undo_are_seen() {
    expect_seen(&calls(), &world("pmem"), MISTAKES, &once());
    expect_seen(&own_groups(), &world("pmem"), OF_CALLS, &once());
}

/// What a group has stored.
#[derive(Default)]
struct Group {
    fences: Vec<&'static str>,
    /// Lines by site: of each store, those that it is in.
    lines: BTreeMap<&'static str, u64>,
    /// Bytes of old content and metadata that were logged: from, to, lines of log.
    undone: Vec<(u64, u64, u64)>,
    /// Stores in place.
    in_place: Vec<(u64, u64)>,
}

/// The groups of a program, in the order of their commits.
fn groups_of(recorded: &Recorded) -> Vec<Group> {
    let (mut groups, mut group) = (Vec::new(), Group::default());
    let lanes = LogArea::for_volume(Lba(2), BLOCKS).lanes;
    for event in recorded.steps() {
        let Some(Site(site)) = event.site else { continue };
        match &event.kind {
            EventKind::Fence { .. } => group.fences.push(site),
            EventKind::Store { offset, data, .. } => {
                let (line, end) = (LINE as u64, offset + data.len() as u64);
                *group.lines.entry(site).or_default() += end.div_ceil(line) - offset / line;
                if group.fences.last() == Some(&"undo.log.fence") {
                    group.in_place.push((*offset, end));
                }
                let entry = <&[u8; LINE]>::try_from(&data[..]).ok();
                let read = entry
                    .and_then(|entry| (0..lanes).find_map(|lane| decode(recorded.seed().lane(lane), *offset, entry)));
                group.undone.extend(match read.map(|read| read.entry) {
                    Some(Entry::Undo { at, len, .. }) => Some((at, at + u64::from(len), 1)),
                    Some(Entry::Old { at, len, .. }) => Some((at, at + len, 1 + len.div_ceil(line))),
                    Some(Entry::OldZeros { at, len }) => Some((at, at + len, 1)),
                    _ => None,
                });
            }
            _ => {}
        }
        if site == "undo.commit.fence" {
            groups.push(std::mem::take(&mut group));
        }
    }
    assert!(group.lines.is_empty(), "something was stored after the last commit");
    groups
}

impl Group {
    fn lines(&self, sites: &[&str]) -> u64 {
        sites.iter().filter_map(|site| self.lines.get(site)).sum()
    }

    /// Three fences; a run of changed words has one entry, and is what is stored in place.
    fn expect_formula(&mut self, what: &str) {
        assert_eq!(self.fences, ["undo.log.fence", "undo.place.fence", "undo.commit.fence"], "{what}");
        assert_eq!(self.lines(&["undo.commit"]), 1, "{what}");
        let logged: u64 = self.undone.iter().map(|(_, _, lines)| lines).sum();
        assert_eq!(self.lines(&["undo.entry", "undo.head", "undo.payload"]), logged, "{what}");
        self.undone.sort_unstable();
        self.in_place.sort_unstable();
        assert!(self.undone.windows(2).all(|two| two[0].1 <= two[1].0), "{what}: entries overlap");
        assert!(self.in_place.windows(2).all(|two| two[0].1 <= two[1].0), "{what}: stores overlap");
        let bytes = |ranges: &mut dyn Iterator<Item = (u64, u64)>| ranges.map(|(from, to)| to - from).sum::<u64>();
        let undone = bytes(&mut self.undone.iter().map(|(from, to, _)| (*from, *to)));
        assert_eq!(undone, bytes(&mut self.in_place.iter().copied()), "{what}: what is undone is stored");
        let is_undone = |(from, to): &(u64, u64)| self.undone.iter().any(|(at, end, _)| at <= from && to <= end);
        assert!(self.in_place.iter().all(is_undone), "{what}: what is stored is undone");
    }
}

#[test]
fn groups_with_undo_cost_what_is_said() {
    let mut count = 0;
    for program in calls().into_iter().chain(own_groups()).map(|subject| subject.program) {
        if matches!(program, Done::Resizing) {
            continue;
        }
        let mut groups = groups_of(&Recorded::of(EngineKind::Undo, program));
        groups.iter_mut().for_each(|group| group.expect_formula(&program.name()));
        count += groups.len();
    }
    assert!(count > 100, "{count}");
}

/// The table of the engine's page: a write of each size, with its change of times; then appends to a last block.
#[test]
fn a_write_with_undo_costs_what_is_said() {
    static SCRIPT: Script = Script {
        name: "costs",
        before: |t| t.file("a", 0o644, &[1; 36_864]).map(drop),
        steps: &[
            |t| overwrite(t, 0, &[2; 1024]),
            |t| overwrite(t, 0, &[3; 2048]),
            |t| overwrite(t, 4096, &[4; 4096]),
            |t| overwrite(t, 0, &[5; 8192]),
            |t| overwrite(t, 0, &[6; 32_768]),
            |t| overwrite(t, 100, &[7; 8]),
            |t| t.truncate("a", 32_968).map(drop),
            |t| overwrite(t, 32_968, &[8; 3000]),
        ],
    };
    fn overwrite(t: &Tree<'_>, at: u64, data: &[u8]) -> Result<()> {
        tick();
        write(t, "a", at, data)
    }
    let groups = groups_of(&Recorded::of(EngineKind::Undo, Done::Still(&SCRIPT)));
    let lines: Vec<u64> = groups.iter().map(|group| group.lines.values().sum()).collect();
    assert_eq!(lines[..6], [37, 70, 70, 134, 519, 6]);
    assert_eq!(groups[4].lines(&["undo.moved"]), 512);
    // Of 3896 bytes that become zeros the old content is not logged: the block is moved.
    assert_eq!((groups[6].lines(&["undo.moved"]), groups[6].lines(&["undo.data"])), (64, 0));
    // Zeros count as nothing: one line of log for 3000 bytes.
    let append = &groups[7];
    assert_eq!((append.lines(&["undo.data"]), append.lines(&["undo.moved", "undo.fresh"])), (47, 0));
    assert!(append.undone.iter().any(|(from, to, lines)| to - from == 3000 && *lines == 1));
}

/// The statuses of the engine's page: nothing, as nothing has changed; then all is undone; then nothing.
#[test]
fn recovery_does_what_the_status_says() {
    let (mut seen, mut undoes) = (BTreeMap::<&str, u64>::new(), 0);
    for subject in calls().into_iter().take(1) {
        let recorded = Recorded::of(EngineKind::Undo, subject.program);
        let setting = world("pmem");
        let area = LogArea::for_volume(Lba(2), BLOCKS);
        let states = ExploreLimits { exhaustive_bits: 2, single_units: 2, samples: 1, ..limits().states };
        let mut explorer = Explorer::new(recorded.trace());
        let mut status = "ended";
        for (event, point) in recorded.trace().events.iter().zip(0..).skip(recorded.first()) {
            // What a crash leaves before the event.
            explorer.seek(point);
            explorer.for_each_image(&states, |choice, image| {
                let region = World::from_image(image, setting.sim.clone()).log();
                let lanes = (0..area.lanes).map(|lane| lane_patches(&*region, &area, recorded.seed(), lane));
                let patches: Vec<_> = lanes.flat_map(|patches| patches.expect("it is sound")).collect();
                let changes = patches.iter().any(|patch| {
                    let (mut old, mut there) = (vec![0; patch.len as usize], vec![0; patch.len as usize]);
                    patch.read(&*region, 0, &mut old).expect("read");
                    region.read(patch.at, &mut there).expect("read");
                    old != there
                });
                match status {
                    "ended" => assert!(patches.is_empty(), "{choice}: a committed group is undone"),
                    "logging" => assert!(!changes, "{choice}: something has changed"),
                    "logged" => assert!(!patches.is_empty(), "{choice}: the log is not complete"),
                    // The group may be committed, or not.
                    _ => {}
                }
                *seen.entry(status).or_default() += 1;
                undoes += u64::from(changes);
                ControlFlow::Continue(())
            });
            status = after(status, event);
        }
    }
    println!("{seen:?}, {undoes} undo something");
    assert!(seen.len() == 4 && undoes > 50, "{seen:?} {undoes}");
}

/// The status of the group that runs once an event has happened.
fn after(status: &'static str, event: &Event) -> &'static str {
    let site = event.site.map_or("", |site| site.0);
    match (status, &event.kind, site) {
        (_, EventKind::Fence { .. }, "undo.log.fence") => "logged",
        (_, EventKind::Fence { .. }, "undo.commit.fence") => "ended",
        ("ended", EventKind::Store { .. }, "undo.entry" | "undo.head") => "logging",
        ("logged", EventKind::Store { .. }, "undo.commit") => "committing",
        _ => status,
    }
}
