//! The engine `shadow`: the scripts of all engines, mistakes that are planted, what a group costs, and which root
//! counts if one is damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use wholly_crash::coverage;
use wholly_crash::volume::{BYTES, OnVolume, Program, tick};
use wholly_media::Site;
use wholly_posix::Tree;
use wholly_sim::MutationKind::{self, DelayWrite, DropOrder};
use wholly_sim::{EventKind, SimConfig, World};
use wholly_vfs::{Ino, OFlags, Rename, Result};
use wholly_volume::format::Lba;
use wholly_volume::format::log::{LINE, LogArea};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

use super::costs::Recorded;
use super::groups::{Story, alone, expect};
use super::planted::{expect_seen, once};
use super::programs::{self, Done, world};
use super::scripts::{SCRIPTS, Script, Step};
use super::survival::{explored, is_long, limits, limits_of_groups, models};

/// Lines of a block.
const BLOCK: u64 = 64;

fn write(t: &Tree<'_>, path: &str, at: u64, data: &[u8]) -> Result<()> {
    t.open(path, OFlags::RDWR)?.write_all(at, data)
}

const OWN: &[Script] = &[
    // Each group gets blocks that the one before has just given up, of content and of maps.
    Script {
        name: "in turns",
        before: |t| {
            t.file("a", 0o644, &[1; 12_288])?;
            t.file("b", 0o644, &[2; 9000]).map(drop)
        },
        steps: &[
            |t| write(t, "a", 0, &[10; 4096]),
            |t| write(t, "b", 100, &[11; 5000]),
            |t| t.rename("a", "c"),
            |t| write(t, "c", 4000, &[12; 200]),
            |t| t.truncate("b", 4100).map(drop),
            |t| t.chmod("c", 0o600).map(drop),
            |t| write(t, "b", 4000, &[13; 100]),
            |t| t.unlink("c"),
            |t| write(t, "b", 0, &[14; 4096]),
        ],
    },
];

/// Leaves of a directory that was there, twice in one group, and a leaf of its own.
const LEAVES: &[Step] = &[
    |t| t.create("d/one", 0o644).map(drop),
    |t| t.rename("d/one", "d/two"),
    |t| t.rename_with("d/two", "d/x", Rename::Exchange),
    |t| t.mkdir("d/e", 0o755).map(drop),
    |t| t.rename("d/x", "d/e/x"),
    |t| t.file("d/e/y", 0o644, &[5; 5000]).map(drop),
    |t| write(t, "d/e/y", 10, &[6; 100]),
    |t| write(t, "d/two", 0, &[7; 100]),
    |t| expect(t.names("d")?.len() == 2 && t.names("d/e")?.len() == 2),
];

fn dir(t: &Tree<'_>) -> Result<()> {
    t.mkdir("d", 0o755)?;
    t.file("d/x", 0o644, &[1; 100]).map(drop)
}

/// Explicit groups, besides those of other engines.
pub fn stories() -> Vec<Story> {
    alone("leaves", dir, LEAVES, &[|t| t.create("d/later", 0o644).map(drop), |t| write(t, "d/later", 0, &[8; 20_000])])
        .into()
}

static STORIES: std::sync::LazyLock<Vec<Story>> = std::sync::LazyLock::new(stories);

fn on_volume(program: Done) -> OnVolume<Done> {
    OnVolume { engine: EngineKind::Shadow, program }
}

/// Calls outside of groups: while the clock stands still, while it goes on, with deaths of the process.
pub fn calls() -> Vec<OnVolume<Done>> {
    let still = OWN.iter().chain(SCRIPTS).map(Done::Still);
    let mortal = OWN.iter().chain(&SCRIPTS[1..2]).map(Done::Mortal);
    still.chain(mortal).chain([Done::Resizing]).map(on_volume).collect()
}

pub fn groups() -> Vec<OnVolume<Done>> {
    STORIES.iter().chain(programs::STORIES.iter()).map(Done::Story).map(on_volume).collect()
}

/// Only explicit groups pass it.
const OF_GROUPS: Site = Site("paging.call.hand_over");

#[test]
fn each_call_survives_wholly_or_not_at_all_with_shadows() {
    let outcome = explored(&models(), &calls(), &limits());
    let mut sites = wholly_volume::sites();
    sites.retain(|site| site.0.starts_with("paging.") && *site != OF_GROUPS);
    assert_eq!(coverage::uncovered(&sites, &outcome), [], "these were no crash points");
}

/// Explicit groups are there wholly once they are committed, and not at all before.
#[test]
fn groups_survive_wholly_or_not_at_all_with_shadows() {
    // With two groups, in a short run one order of their ends.
    let orders = ["a1 c0", "c1 c0", "c0 a1", "a0 a1", "a1 a0", "a0 c1", "c1 a0"];
    let is_one = |group: &OnVolume<Done>| !orders.iter().any(|order| group.program.name().ends_with(order));
    let groups: Vec<_> = groups().into_iter().filter(|group| is_long() || is_one(group)).collect();
    let outcome = explored(&[world("pmem")], &groups, &limits_of_groups());
    assert_eq!(coverage::uncovered(&[OF_GROUPS], &outcome), [], "these were no crash points");
}

/// The first fence: a root that is stored before what it leads to. The second one: blocks of the root before it are
/// used again before the new one is durable. Stores that the next fence must cover; of a mount, too.
const MISTAKES: &[(&str, MutationKind)] = &[
    ("paging.shadow.fence", DropOrder),
    ("paging.commit.fence", DropOrder),
    ("paging.fresh", DelayWrite),
    ("paging.copy", DelayWrite),
    ("paging.node", DelayWrite),
    ("paging.inodes", DelayWrite),
    ("paging.root", DelayWrite),
    ("volume.fence", DropOrder),
    ("volume.superblock", DelayWrite),
];

/// The same of calls of explicit groups: what they store is ordered by each of them.
const OF_CALLS: &[(&str, MutationKind)] =
    &[("paging.call.hand_over", DropOrder), ("paging.copy", DelayWrite), ("paging.node", DelayWrite)];

#[test]
fn mistakes_with_shadows_are_seen() {
    expect_seen(&calls(), &world("pmem"), MISTAKES, &once());
    expect_seen(&groups(), &world("pmem"), OF_CALLS, &once());
}

/// What a group has stored.
#[derive(Default)]
struct Group {
    fences: Vec<&'static str>,
    /// Lines by site: of each store, those that it is in.
    lines: BTreeMap<&'static str, u64>,
    /// Blocks that were stored to, by number, and how often.
    blocks: BTreeMap<u64, u64>,
}

/// The groups of a program, in the order of their commits.
fn groups_of(recorded: &Recorded) -> Vec<Group> {
    let (mut groups, mut group) = (Vec::new(), Group::default());
    for event in recorded.steps() {
        let Some(Site(site)) = event.site else { continue };
        match &event.kind {
            EventKind::Fence { .. } => group.fences.push(site),
            EventKind::Store { offset, data, .. } => {
                let (line, end) = (LINE as u64, offset + data.len() as u64);
                *group.lines.entry(site).or_default() += end.div_ceil(line) - offset / line;
                *group.blocks.entry(offset / 4096).or_default() += 1;
            }
            _ => {}
        }
        if site == "paging.commit.fence" {
            groups.push(std::mem::take(&mut group));
        }
    }
    assert!(group.lines.is_empty(), "something was stored after the last commit");
    groups
}

impl Group {
    fn lines(&self, site: &str) -> u64 {
        self.lines.get(site).copied().unwrap_or(0)
    }

    /// Two fences; a root that stands twice; whole blocks, each of metadata once.
    fn expect_formula(&mut self, what: &str) {
        assert_eq!(self.fences, ["paging.shadow.fence", "paging.commit.fence"], "{what}");
        assert_eq!(self.lines("paging.root"), 2, "{what}");
        let whole = ["paging.copy", "paging.node", "paging.inodes"].map(|site| self.lines(site));
        assert!(whole.iter().all(|lines| lines % BLOCK == 0), "{what}: {whole:?}");
        let all: u64 = self.lines.values().sum();
        assert_eq!(all, 2 + self.lines("paging.fresh") + whole.iter().sum::<u64>(), "{what}: by other sites");
    }
}

#[test]
fn groups_with_shadows_cost_what_is_said() {
    let mut count = 0;
    for program in calls().into_iter().chain(groups()).map(|subject| subject.program) {
        if matches!(program, Done::Resizing | Done::Mortal(_)) {
            continue;
        }
        let mut groups = groups_of(&Recorded::of(EngineKind::Shadow, program));
        groups.iter_mut().for_each(|group| group.expect_formula(&program.name()));
        count += groups.len();
    }
    assert!(count > 100, "{count}");
}

/// A write of each size, with its change of times: blocks of content, a node of the file, its inode block, a node of
/// the inode file, the root. Then a name, one in a directory of its own, and a rename between two directories.
#[test]
fn a_call_with_shadows_costs_what_is_said() {
    static SCRIPT: Script = Script {
        name: "costs",
        before: |t| {
            t.file("a", 0o644, &[1; 36_864])?;
            t.mkdir("d", 0o755)?;
            t.mkdir("e", 0o755)?;
            t.file("d/x", 0o644, b"x")?;
            t.file("e/y", 0o644, b"y").map(drop)
        },
        steps: &[
            |t| overwrite(t, 0, &[2; 8]),
            |t| overwrite(t, 0, &[3; 4096]),
            |t| overwrite(t, 4000, &[4; 4096]),
            |t| overwrite(t, 0, &[5; 32_768]),
            |t| t.create("d/z", 0o644).map(drop),
            |t| t.rename("d/x", "e/x"),
            |t| t.chmod("a", 0o600).map(drop),
        ],
    };
    fn overwrite(t: &Tree<'_>, at: u64, data: &[u8]) -> Result<()> {
        tick();
        write(t, "a", at, data)
    }
    let groups = groups_of(&Recorded::of(EngineKind::Shadow, Done::Still(&SCRIPT)));
    let lines: Vec<u64> = groups.iter().map(|group| group.lines.values().sum()).collect();
    let blocks = [1 + 3, 1 + 3, 2 + 3, 8 + 3, 2 + 2, 4 + 2, 2];
    assert_eq!(lines, blocks.map(|blocks| blocks * BLOCK + 2));
}

/// A volume whose process has died, after three groups.
fn left(options: &VolumeOptions) -> Arc<World> {
    let world = World::new(SimConfig { log_len: BYTES, ..SimConfig::pmem() });
    Volume::format_region(&*world.log(), options).expect("make a volume");
    let volume = Volume::open_region(world.log(), options).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    ["one", "two", "three"].into_iter().for_each(|name| drop(tree.file(name, 0o644, name.as_bytes()).expect("a file")));
    drop(tree);
    drop(vfs);
    volume.abandon();
    world
}

/// The newest root stands twice: whatever happens to one of its copies, a check, a repair and a mount find all groups.
/// If both are damaged, what is found is sound, or said to be damaged.
#[test]
fn one_copy_of_a_root_is_enough() {
    let options = VolumeOptions { engine: Some(EngineKind::Shadow), ..VolumeOptions::default() };
    let names = |world: &Arc<World>| {
        let volume = Volume::open_region(world.log(), &options).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let count = Tree::new(&vfs, Ino::ROOT).names("/").expect("a listing").len();
        drop(vfs);
        volume.close().expect("close it");
        count
    };
    let world = left(&options);
    let image = world.latest();
    let again = || World::from_image(&image, world.config().clone());
    assert_eq!(names(&again()), 3);
    let area = LogArea::of_roots(Lba(2));
    let lines: Vec<u64> = (0..2).flat_map(|parity| area.roots(parity).map(|(at, _)| at)).collect();
    for at in &lines {
        let world = again();
        world.log().write(Site("test"), *at, &[0x55; LINE]).expect("damage it");
        assert_eq!(Volume::check_region(&*world.log()).expect("check it").findings, [], "{at}");
        assert_eq!(names(&world), 3, "{at}");
    }
    let world = again();
    lines.iter().for_each(|at| world.log().write(Site("test"), *at, &[0x55; LINE]).expect("damage it"));
    match Volume::open_region(world.log(), &options) {
        // Blocks of the root before all groups may be others' by now.
        Err(wholly::Error::Corrupt { .. }) => {}
        Err(error) => panic!("{error}"),
        Ok(volume) => volume.abandon(),
    }
}
