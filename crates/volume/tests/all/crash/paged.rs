//! The engines `page_cache_wal` and `op_log`, on disks, with and without sectors that tear, and on persistent memory:
//! the scripts of all engines, their own with stolen pages, a full log and groups that are larger than it, and mistakes
//! that are planted.

use wholly_crash::volume::OnVolume;
use wholly_crash::{Kind, Limits, Setting, State, coverage, explore};
use wholly_posix::Tree;
use wholly_sim::MutationKind::{self, DelayWrite, DropOrder, DropWrite};
use wholly_vfs::{OFlags, Result};
use wholly_volume::{EngineKind, Mistake, Trial};

use super::groups::{Move, Story};
use super::planted::{expect_seen, once};
use super::programs::{Done, STORIES, large_world, world};
use super::scripts::{SCRIPTS, Script, nothing};
use super::survival::{explored, limits};

/// So many pages that none is stolen: all waits in the log.
const ROOMY: Trial = Trial { pages: Some(256), ..Trial::NONE };
/// The same, and a log that is often full.
const SHORT_LOG: Trial = Trial { ring: Some(10), ..ROOMY };

fn write(t: &Tree<'_>, path: &str, at: u64, data: &[u8]) -> Result<()> {
    t.open(path, OFlags::RDWR)?.write_all(at, data)
}

/// Blocks whose images are in the log get other owners, whose content goes past it, or into it.
static REUSE: Script = Script {
    name: "reuse",
    before: nothing,
    steps: &[
        |t| t.create("a", 0o644).map(drop),
        |t| write(t, "a", 0, &[1; 9000]),
        |t| t.unlink("a"),
        |t| t.create("b", 0o644).map(drop),
        |t| write(t, "b", 0, &[2; 60_000]),
        |t| t.truncate("b", 5000).map(drop),
        |t| write(t, "b", 4000, &[3; 9000]),
        |t| write(t, "b", 100, &[4; 50]),
    ],
};

/// Reserved blocks that had content before.
static RESERVED: Script = Script {
    name: "reserved",
    before: |t| t.file("a", 0o644, &[1; 32_768]).map(drop),
    steps: &[
        |t| write(t, "a", 10, &[2; 5000]),
        |t| t.open("a", OFlags::RDWR)?.allocate(wholly_vfs::Fallocate::ZeroExtend, 0, 32_768),
        |t| write(t, "a", 0, &[3; 32_768]),
        |t| write(t, "a", 5000, &[4; 100]),
    ],
};

/// Enough for the log to be full in a commit.
static FULL: Script = Script {
    name: "full",
    before: |t| t.file("a", 0o644, &[1; 9000]).map(drop),
    steps: &[
        |t| write(t, "a", 0, &[2; 100]),
        |t| t.create("b", 0o644).map(drop),
        |t| write(t, "b", 0, &[3; 5000]),
        |t| t.rename("b", "c"),
        |t| write(t, "a", 4000, &[4; 200]),
        |t| t.unlink("c"),
    ],
};

/// A file that is removed while it is open, and then let go; one without a name that gets one.
static ORPHAN: Script = Script {
    name: "orphans",
    before: |t| t.file("a", 0o644, &[1; 9000]).map(drop),
    steps: &[
        |t| {
            let file = t.open("a", OFlags::RDWR)?;
            t.unlink("a")?;
            file.write_all(100, &[2; 5000])
        },
        |t| t.create("b", 0o644).map(drop),
        |t| write(t, "b", 0, &[3; 100]),
    ],
};

/// Directories with a leaf each.
fn dirs(t: &Tree<'_>) -> Result<()> {
    (0..8).try_for_each(|i| {
        t.mkdir(format!("d{i}"), 0o755)?;
        t.create(format!("d{i}/old"), 0o644).map(drop)
    })
}

/// The bytes of a file.
pub fn content<'s>(state: &'s State, path: &str) -> &'s [u8] {
    let paths = state.paths();
    let (_, number) = paths.iter().find(|(known, _)| known == path).expect("it is there");
    match &state.object(*number).kind {
        Kind::File(bytes) => bytes,
        other => panic!("{path} is {other:?}"),
    }
}

fn story(name: &str, before: fn(&Tree<'_>) -> Result<()>, moves: Vec<Move>) -> Story {
    Story { name: name.into(), before, moves }
}

static LARGE: std::sync::LazyLock<Story> = std::sync::LazyLock::new(|| {
    let moves = vec![
        Move::Begin(0),
        Move::In(0, |t| (0..8).try_for_each(|i| t.create(format!("d{i}/new"), 0o644).map(drop))),
        Move::In(0, |t| write(t, "d0/old", 0, &[7; 5000])),
        Move::Out(|t| write(t, "d1/old", 0, &[8; 100])),
        Move::See(|state| content(state, "d0/old").is_empty()),
        Move::Commit(0),
        Move::Out(|t| write(t, "d0/old", 10, &[9; 100])),
    ];
    story("larger than the log", dirs, moves)
});

static STOLEN: std::sync::LazyLock<Story> = std::sync::LazyLock::new(|| {
    let moves = vec![
        Move::Begin(0),
        Move::In(0, |t| t.file("new", 0o644, &[5; 40_000]).map(drop)),
        Move::In(0, |t| write(t, "new", 100, &[6; 9000])),
        Move::In(0, |t| write(t, "d0/old", 0, &[7; 20_000])),
        Move::Out(|t| t.unlink("d1/old")),
        Move::Commit(0),
        Move::See(|state| content(state, "new") == [&[5; 100][..], &[6; 9000], &[5; 30_900]].concat()),
        Move::Begin(1),
        Move::In(1, |t| write(t, "d0/old", 0, &[8; 20_000])),
        Move::In(1, |t| t.truncate("new", 10).map(drop)),
        Move::Abort(1),
        Move::Out(|t| write(t, "d0/old", 1, &[9; 100])),
    ];
    story("stolen", dirs, moves)
});

fn on_volume(engine: EngineKind) -> impl Fn(Done) -> OnVolume<Done> + Copy {
    move |program| OnVolume { engine, program }
}

pub fn own(engine: EngineKind) -> Vec<OnVolume<Done>> {
    let own = [
        Done::Trial(&REUSE, ROOMY),
        Done::Trial(&RESERVED, ROOMY),
        Done::Trial(&FULL, SHORT_LOG),
        Done::Script(&ORPHAN),
        Done::TrialStory(&LARGE, SHORT_LOG),
        Done::Story(&STOLEN),
    ];
    own.map(on_volume(engine)).to_vec()
}

/// Volumes with room for groups that are larger than a short log.
pub fn roomy_world(name: &str) -> Setting {
    large_world(name, 256)
}

/// Those of all engines.
pub fn of_all(engine: EngineKind) -> Vec<OnVolume<Done>> {
    SCRIPTS.iter().map(Done::Script).chain([Done::Resizing]).map(on_volume(engine)).collect()
}

#[test]
fn calls_and_groups_survive_wholly_or_not_at_all_with_pages() {
    survive(EngineKind::PageCacheWal);
}

#[test]
fn calls_and_groups_survive_wholly_or_not_at_all_with_bitmaps() {
    survive(EngineKind::OpLog);
}

fn survive(engine: EngineKind) {
    let mut outcome = explored(&["disk", "disk-torn", "pmem"].map(roomy_world), &own(engine), &limits());
    let more_nested = Limits { nested_one_in: 40, whole_one_in: 60, ..limits() };
    outcome.merge(explored(&["disk-torn"].map(world), &of_all(engine), &more_nested));
    let groups: Vec<_> = STORIES.iter().map(Done::Story).map(on_volume(engine)).collect();
    // Bitmaps take space, and so does what a group keeps for them.
    outcome.merge(explored(&["disk"].map(roomy_world), &groups, &more_nested));
    let mut sites = wholly_volume::sites();
    sites.retain(|site| site.0.starts_with("pages."));
    assert_eq!(coverage::uncovered(&sites, &outcome), [], "these were no crash points");
}

/// Not what recovery stores: the mount fences once more, before it says that it has recovered. Not `pages.steal.fence`
/// either: no program here lets one thread steal and another commit, so that none misses that fence.
const MISTAKES: &[(&str, MutationKind)] = &[
    ("pages.commit", DropOrder),
    ("pages.fresh", DelayWrite),
    ("pages.fresh.fence", DropOrder),
    ("pages.spill", DelayWrite),
    ("pages.spill.fence", DropOrder),
    ("pages.home", DropWrite),
    ("pages.home.fence", DropOrder),
    ("pages.tail", DropOrder),
];

#[test]
fn mistakes_with_pages_are_seen() {
    expect_seen(&own(EngineKind::PageCacheWal), &roomy_world("disk"), MISTAKES, &once());
}

#[test]
fn planted_mistakes_with_pages_are_seen() {
    let with = |trial: Trial, mistake| Trial { mistake: Some(mistake), ..trial };
    let (wal, op_log) = (EngineKind::PageCacheWal, EngineKind::OpLog);
    for (engine, program, trial, mistake) in [
        (wal, Done::Story(&LARGE), ROOMY, Mistake::MetadataStolen),
        (wal, Done::Story(&LARGE), ROOMY, Mistake::OthersLines),
        (wal, Done::Script(&FULL), ROOMY, Mistake::HomeBeforeLog),
        (wal, Done::Script(&REUSE), ROOMY, Mistake::NoVoid),
        (op_log, Done::Story(&LARGE), ROOMY, Mistake::MetadataStolen),
        (op_log, Done::Story(&LARGE), ROOMY, Mistake::OthersLines),
        (op_log, Done::Story(&LARGE), ROOMY, Mistake::RedoOutOfOrder),
        (op_log, Done::Script(&FULL), ROOMY, Mistake::HomeBeforeLog),
        (op_log, Done::Story(&STOLEN), ROOMY, Mistake::PlacedNowhere),
        (op_log, Done::Script(&FULL), ROOMY, Mistake::RemoveForgotten),
        (op_log, Done::Script(&REUSE), ROOMY, Mistake::BitsKept),
        (op_log, Done::Script(&REUSE), ROOMY, Mistake::InodeKept),
        (op_log, Done::Script(&ORPHAN), ROOMY, Mistake::OrphanKept),
        (op_log, Done::Script(&ORPHAN), ROOMY, Mistake::OrphanForgotten),
    ] {
        let on_volume = on_volume(engine);
        let paged = |trial| match program {
            Done::Story(story) => on_volume(Done::TrialStory(story, trial)),
            Done::Script(script) => on_volume(Done::Trial(script, trial)),
            program => on_volume(program),
        };
        let limits = Limits { violations: 1, ..once() };
        let outcome = explore(&paged(with(trial, mistake)), &roomy_world("disk"), &limits);
        assert!(!outcome.violations.is_empty(), "{mistake:?} is not seen");
        println!("{mistake:?}: {}", outcome.violations[0].what);
        assert!(explore(&paged(trial), &roomy_world("disk"), &limits).violations.is_empty(), "{mistake:?}");
    }
}
