//! The engine `hybrid_log`: the scripts of all engines, scripts with many versions of a block, mistakes that are
//! planted, and what a group costs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use wholly_crash::volume::{BYTES, OnVolume, tick};
use wholly_crash::{Limits, Subject, coverage, explore, run};
use wholly_media::Site;
use wholly_posix::Tree;
use wholly_sim::MutationKind::{DelayWrite, DropOrder};
use wholly_sim::{Choice, Event, EventKind, ExploreLimits, Explorer, Image, MutationKind, Pick, Place, Trace, World};
use wholly_vfs::{Fallocate, OFlags, Result};
use wholly_volume::format::head::{HeadSeed, decode};
use wholly_volume::format::{Lba, Seed};
use wholly_volume::{EngineKind, Mistake, Repair, Trial, Volume, VolumeOptions};

use super::costs::Recorded;
use super::groups::{Move, Story, alone, expect};
use super::paged::content;
use super::planted::{expect_seen, once, twice};
use super::programs::{self, Done, large_world, world};
use super::scripts::{SCRIPTS, Script, Step};
use super::survival::{explored, is_long, limits, limits_of_groups, models, some};

/// Blocks of a volume, but for some.
const BLOCKS: u64 = BYTES / 4096;

fn write(t: &Tree<'_>, path: &str, at: u64, data: &[u8]) -> Result<()> {
    t.open(path, OFlags::RDWR)?.write_all(at, data)
}

/// Two files of a few blocks.
fn two(t: &Tree<'_>) -> Result<()> {
    t.file("a", 0o644, &[1; 12_288])?;
    t.file("b", 0o600, &[2; 9000]).map(drop)
}

/// The same, and a file that takes all blocks but ten and those that are kept for calls that make space.
fn nearly_full(t: &Tree<'_>) -> Result<()> {
    two(t)?;
    let filler = t.file("filler", 0o600, b"")?;
    let mut blocks = 0;
    while filler.allocate(Fallocate::Extend, blocks * 4096, 4096).is_ok() {
        blocks += 1;
    }
    filler.truncate((blocks - 10) * 4096).map(drop)
}

const SCRIPTS_OF_CONTENT: &[(u64, Script)] = &[
    // The home has most lines of a long list, and older versions have lines that newer ones cover.
    (
        BLOCKS,
        Script {
            name: "overlapping",
            before: two,
            steps: &[
                |t| write(t, "a", 4096, &[10; 128]),
                |t| write(t, "a", 4096, &[11; 64]),
                |t| write(t, "a", 4160, &[12; 64]),
                |t| write(t, "a", 4096, &[13; 128]),
                |t| write(t, "a", 4224, &[14; 64]),
                |t| write(t, "a", 4096, &[15; 64]),
                |t| write(t, "b", 0, &[16; 64]),
            ],
        },
    ),
    // The versions of two blocks overlap in many ways. With the sixth, a list is long: the next call writes it back.
    (
        BLOCKS,
        Script {
            name: "versions",
            before: two,
            steps: &[
                |t| write(t, "a", 0, &[10; 4096]),
                |t| write(t, "a", 100, &[11; 50]),
                |t| write(t, "a", 64, &[12; 128]),
                |t| write(t, "a", 4000, &[13; 200]),
                |t| write(t, "a", 0, &[14; 64]),
                |t| {
                    tick();
                    write(t, "a", 128, &[15; 1000])
                },
                |t| write(t, "a", 32, &[16; 100]),
                |t| write(t, "a", 4090, &[17; 4200]),
                |t| write(t, "a", 0, &[18; 12_288]),
            ],
        },
    ),
    // The newest of many versions has most of the latest lines, and becomes the home. Then the old home is another
    // file's.
    (
        BLOCKS,
        Script {
            name: "swapped",
            before: two,
            steps: &[
                |t| write(t, "a", 0, &[70; 4096]),
                |t| write(t, "a", 0, &[71; 64]),
                |t| write(t, "a", 64, &[72; 128]),
                |t| write(t, "a", 128, &[73; 64]),
                |t| write(t, "a", 0, &[74; 70]),
                |t| write(t, "a", 192, &[75; 3904]),
                |t| t.create("c", 0o644).map(drop),
                |t| write(t, "c", 0, &[76; 30_000]),
                |t| write(t, "a", 64, &[77; 64]),
                |t| t.truncate("a", 3000).map(drop),
                |t| t.create("d", 0o644).map(drop),
                |t| write(t, "d", 0, &[78; 9000]),
            ],
        },
    ),
    // Homes with versions become free, are moved, or lose their content.
    (
        BLOCKS,
        Script {
            name: "left",
            before: two,
            steps: &[
                |t| write(t, "a", 4000, &[20; 5000]),
                |t| t.truncate("a", 5000).map(drop),
                |t| t.truncate("a", 9000).map(drop),
                |t| write(t, "b", 0, &[21; 9000]),
                |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::ZeroExtend, 100, 6000),
                |t| write(t, "b", 50, &[22; 8000]),
                |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Insert, 4096, 4096),
                |t| write(t, "b", 8200, &[23; 500]),
                // The only node of the map is changed, then empty; and soon another's.
                |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Collapse, 0, 4096),
                |t| t.create("e", 0o644).map(drop),
                |t| write(t, "e", 0, &[26; 9000]),
                |t| t.unlink("b"),
                |t| write(t, "a", 0, &[24; 4000]),
                |t| t.create("c", 0o644).map(drop),
                |t| write(t, "c", 0, &[25; 9000]),
            ],
        },
    ),
    // A group of which one part is dropped, the other is not; in doubt until then.
    (
        BLOCKS,
        Script {
            name: "in doubt",
            before: two,
            steps: &[
                |t| write(t, "a", 8000, &[30; 400]),
                |t| t.truncate("a", 8150).map(drop),
                |t| write(t, "b", 4000, &[31; 200]),
                |t| t.unlink("b"),
                |t| write(t, "a", 4000, &[32; 200]),
                |t| write(t, "a", 0, &[33; 8000]),
            ],
        },
    ),
    // Space is short: calls write back what they need.
    (
        BLOCKS,
        Script {
            name: "full",
            before: nearly_full,
            steps: &[
                |t| write(t, "a", 0, &[40; 12_288]),
                |t| write(t, "a", 10, &[41; 4096]),
                |t| write(t, "b", 0, &[42; 8192]),
                |t| write(t, "a", 0, &[43; 12_288]),
                |t| write(t, "b", 100, &[44; 8000]),
                |t| write(t, "a", 0, &[47; 12_288]),
                |t| write(t, "b", 0, &[48; 9000]),
                |t| write(t, "a", 5, &[49; 12_000]),
                |t| write(t, "b", 0, &[51; 9000]),
                |t| write(t, "a", 0, &[52; 12_288]),
                |t| write(t, "b", 7, &[53; 8990]),
                |t| t.unlink("filler"),
                |t| t.create("c", 0o644).map(drop),
                |t| write(t, "c", 0, &[45; 5000]),
                |t| write(t, "c", 0, &[46; 4096]),
            ],
        },
    ),
    // So many pointers change that the undo entries go on elsewhere.
    (
        640,
        Script {
            name: "undo links",
            before: |t| {
                let a = t.file("a", 0o644, &[1; 4096])?;
                a.allocate(Fallocate::Keep, 4096, 511 * 4096)
            },
            steps: &[|t| write(t, "a", 5, &[50; 100]), |t| t.truncate("a", 4096).map(drop)],
        },
    ),
];

/// Content of two files, over other content: some of it twice, so that its lines change before the commit.
const TWO_FILES: &[Step] = &[
    |t| write(t, "a", 100, &[80; 5000]),
    |t| write(t, "b", 64, &[81; 64]),
    |t| write(t, "a", 4000, &[82; 200]),
    |t| write(t, "b", 8000, &[83; 1000]),
];

/// Content that the group writes, and that is gone before its commit: of blocks with versions, and of others.
const GONE: &[Step] = &[
    |t| write(t, "a", 10, &[84; 12_000]),
    |t| t.truncate("a", 5000).map(drop),
    |t| t.open("a", OFlags::RDWR)?.append(&[85; 9000]).map(drop),
    |t| write(t, "a", 6000, &[86; 5000]),
    |t| write(t, "b", 0, &[87; 9000]),
    |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::ZeroExtend, 50, 8000),
    |t| write(t, "b", 4000, &[88; 300]),
    |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Collapse, 0, 4096),
    |t| write(t, "c", 100, &[89; 4000]),
    |t| t.unlink("c"),
];

/// Three files with versions of most blocks.
fn with_versions(t: &Tree<'_>) -> Result<()> {
    two(t)?;
    t.file("c", 0o644, &[3; 5000])?;
    write(t, "a", 4096, &[90; 4096])?;
    write(t, "a", 8000, &[91; 300])?;
    write(t, "b", 0, &[92; 4096])?;
    write(t, "c", 0, &[93; 4500])
}

/// Explicit groups, besides those of all engines.
pub fn stories() -> Vec<Story> {
    let after: &[Step] =
        &[|t| write(t, "a", 50, &[94; 4000]), |t| t.create("d", 0o644).map(drop), |t| write(t, "d", 0, &[95; 20_000])];
    let mut all = Vec::new();
    all.extend(alone("two files", two, TWO_FILES, after));
    // With their versions still there: what is there before is unmounted.
    let mut gone: Vec<Move> = [
        (|t| write(t, "a", 4096, &[96; 4096])) as Step,
        |t| write(t, "a", 8000, &[97; 300]),
        |t| write(t, "b", 100, &[98; 4096]),
        |t| write(t, "c", 0, &[99; 4500]),
    ]
    .map(Move::Out)
    .to_vec();
    gone.push(Move::Begin(0));
    gone.extend(GONE.iter().map(|step| Move::In(0, *step)));
    for end in [Move::Commit(0), Move::Abort(0)] {
        let how = if matches!(end, Move::Commit(_)) { "committed" } else { "aborted" };
        let after = after.iter().map(|step| Move::Out(*step));
        let moves = gone.iter().copied().chain([end]).chain(after).collect();
        all.push(Story { name: format!("content that goes, {how}"), before: with_versions, moves });
    }
    // While a group runs, the versions of its file are due, and the newest has all lines: it would become the home, but
    // what the group has made is about the old one, which another file gets soon. (Making zeros writes nothing back.)
    let mut due: Vec<Move> = [
        (|t| write(t, "a", 0, &[100; 64])) as Step,
        |t| write(t, "a", 64, &[101; 64]),
        |t| write(t, "a", 128, &[102; 64]),
        |t| write(t, "a", 192, &[103; 64]),
        |t| write(t, "a", 256, &[104; 64]),
        |t| write(t, "a", 0, &[105; 4096]),
    ]
    .map(Move::Out)
    .to_vec();
    due.extend([
        Move::Begin(0),
        Move::In(0, |t| {
            let flags = Fallocate::Punch;
            t.open("a", OFlags::RDWR)?.allocate(flags, 100, 200)
        }),
        Move::Out(|t| write(t, "b", 0, &[106; 100])),
        Move::Out(|t| t.create("c", 0o644).map(drop)),
        Move::Out(|t| write(t, "c", 0, &[107; 9000])),
        Move::In(0, |t| expect(t.content("a")?[100..300] == [0; 200])),
        Move::In(0, |t| write(t, "a", 4000, &[108; 200])),
        Move::Commit(0),
        Move::Out(|t| {
            expect(t.content("a")?[100..300] == [0; 200] && t.content("c")? == [107; 9000])?;
            write(t, "a", 4000, &[109; 200])
        }),
    ]);
    all.push(Story { name: "homes stay".into(), before: two, moves: due });
    all
}

static STORIES: LazyLock<Vec<Story>> = LazyLock::new(stories);

fn on_volume(program: Done) -> OnVolume<Done> {
    OnVolume { engine: EngineKind::HybridLog, program }
}

/// Calls outside of groups. A call that writes content over other content changes times, and so metadata, or not: the
/// clock stands still.
pub fn calls() -> Vec<OnVolume<Done>> {
    let own = SCRIPTS_OF_CONTENT.iter().filter(|(blocks, _)| *blocks == BLOCKS).map(|(_, script)| script);
    let mortal = own.clone().map(Done::Mortal);
    own.chain(SCRIPTS).map(Done::Still).chain(mortal).chain([Done::Resizing]).map(on_volume).collect()
}

/// Those that need a larger volume, and how many blocks it has.
fn large_calls() -> impl Iterator<Item = (u64, OnVolume<Done>)> {
    let own = SCRIPTS_OF_CONTENT.iter().filter(|(blocks, _)| *blocks != BLOCKS);
    own.map(|(blocks, script)| (*blocks, on_volume(Done::Still(script))))
}

fn groups_of(stories: &'static [Story]) -> Vec<OnVolume<Done>> {
    stories.iter().map(Done::StillStory).map(on_volume).collect()
}

/// Explicit groups: those of this engine alone, and those of all engines.
pub fn groups() -> Vec<OnVolume<Done>> {
    [groups_of(&STORIES), groups_of(&programs::STORIES)].concat()
}

/// As of the other engine.
#[test]
fn each_call_survives_wholly_or_not_at_all_with_pending_blocks() {
    let mut outcome = explored(&models(), &calls(), &limits());
    // A state of a larger volume takes longer.
    let states = ExploreLimits { exhaustive_bits: 1, samples: 2, single_units: 1, ..limits().states };
    let few = Limits { states, nested_one_in: 4000, ..limits() };
    for (blocks, program) in large_calls() {
        let large = models().iter().map(|model| large_world(&model.name, blocks)).collect::<Vec<_>>();
        outcome.merge(explored(&large, &[program], &few));
    }
    let mut sites = wholly_volume::sites();
    sites.retain(|site| site.0.starts_with("hybrid.") && *site != OF_GROUPS);
    assert_eq!(coverage::uncovered(&sites, &outcome), [], "these were no crash points");
}

/// Only explicit groups pass it.
const OF_GROUPS: Site = Site("hybrid.call.hand_over");

/// Explicit groups are there wholly once they are committed, and not at all before.
#[test]
fn groups_survive_wholly_or_not_at_all_with_pending_blocks() {
    let outcome = explored(&models(), &some(groups()), &limits_of_groups());
    assert_eq!(coverage::uncovered(&[OF_GROUPS], &outcome), [], "these were no crash points");
}

/// Fences, and stores that the next fence must cover. Not fresh blocks: any fence before the commit entry will do for
/// them.
const MISTAKES: &[(&str, MutationKind)] = &[
    ("hybrid.log.fence", DropOrder),
    ("hybrid.commit.fence", DropOrder),
    ("hybrid.home.fence", DropOrder),
    ("hybrid.swap.fence", DropOrder),
    ("hybrid.wipe.fence", DropOrder),
    ("hybrid.keep.fence", DropOrder),
    ("hybrid.undo", DelayWrite),
    ("hybrid.head", DelayWrite),
    ("hybrid.pending", DelayWrite),
    ("hybrid.commit", DelayWrite),
    ("hybrid.home", DelayWrite),
    ("hybrid.settle", DelayWrite),
    ("hybrid.swap", DelayWrite),
    ("hybrid.wipe", DelayWrite),
    ("hybrid.keep", DelayWrite),
    ("volume.inode.line", DelayWrite),
    ("volume.map.pointer", DelayWrite),
];

/// The same of recovery.
const IN_RECOVERY: &[(&str, MutationKind)] = &[("hybrid.recover.fence", DropOrder), ("hybrid.recover", DelayWrite)];

/// The same of groups that need more than a lane.
const LARGE_MISTAKES: &[(&str, MutationKind)] = &[("hybrid.place.fence", DropOrder), ("hybrid.link", DelayWrite)];

/// Those of recovery and of large groups by `WHOLLY_LONG`: only a crash in few recoveries shows them.
#[test]
fn mistakes_with_pending_blocks_are_seen() {
    expect_seen(&calls(), &world("pmem"), MISTAKES, &once());
    if is_long() {
        expect_seen(&calls(), &world("pmem"), IN_RECOVERY, &twice());
        for (blocks, program) in large_calls() {
            expect_seen(&[program], &large_world("pmem", blocks), LARGE_MISTAKES, &once());
        }
    }
}

/// The group that began first commits last: its content is the latest.
static COMMIT_ORDER: LazyLock<Story> = LazyLock::new(|| Story {
    name: "commit order".into(),
    before: two,
    moves: vec![
        Move::Begin(0),
        Move::In(0, |t| write(t, "b", 0, &[20; 100])),
        Move::Begin(1),
        Move::In(1, |t| write(t, "a", 0, &[21; 4096])),
        Move::Commit(1),
        Move::In(0, |t| write(t, "a", 64, &[22; 200])),
        Move::Commit(0),
        // As after the death of the process.
        Move::See(|state| content(state, "a")[63..66] == [21, 22, 22]),
    ],
});

/// Mistakes that are no store or fence in another place.
#[test]
fn planted_mistakes_with_pending_blocks_are_seen() {
    let programs = |trial| {
        let scripts = SCRIPTS_OF_CONTENT.iter().filter(|(blocks, _)| *blocks == BLOCKS).map(|(_, script)| script);
        scripts.map(move |script| Done::Trial(script, trial)).chain([Done::TrialStory(&COMMIT_ORDER, trial)])
    };
    let limits = Limits { violations: 1, ..once() };
    let wrong = |trial| {
        let mut found = programs(trial).flat_map(|program| {
            let subject = on_volume(program);
            explore(&subject, &world("pmem"), &limits).violations.into_iter().map(move |it| (subject.name(), it))
        });
        found.next().map(|(name, violation)| format!("{name}: {}", violation.what))
    };
    for mistake in [Mistake::OrderOfBegin, Mistake::NewestFirst, Mistake::NeverSettled] {
        let seen = wrong(Trial { mistake: Some(mistake), ..Trial::default() });
        println!("{mistake:?}: {}", seen.unwrap_or_else(|| panic!("{mistake:?} is not seen")));
    }
    assert_eq!(wrong(Trial::default()), None);
}

/// A process dies when all of a group is there, and nothing of that was fenced by a thread that lives. The next mount
/// believes it, and crashes, too: whatever it has made because of the group, the one after it comes to the same.
#[test]
fn what_recovery_believes_is_durable_before_it_is_used() {
    let states = ExploreLimits {
        exhaustive_bits: 2,
        single_units: 0,
        pair_units: 0,
        samples: 1,
        focus_bits: 0,
        ..ExploreLimits::default()
    };
    let limits = Limits {
        states,
        nested_one_in: 0,
        whole_one_in: if is_long() { 1 } else { 3 },
        workers: 1,
        violations: 1,
        ..Limits::quick()
    };
    for name in ["in doubt", "versions", "swapped"] {
        let (_, script) = SCRIPTS_OF_CONTENT.iter().find(|(_, script)| script.name == name).expect("a script");
        let subject = OnVolume { engine: EngineKind::HybridLog, program: Done::Script(script) };
        let outcome = explore(&subject, &world("pmem"), &limits);
        println!("{name}: {outcome}");
        assert!(outcome.violations.is_empty(), "{name}: {}", outcome.violations[0].what);
        assert!(outcome.kills > 20 && outcome.nested > 20, "{name}: {outcome}");
    }
}

/// A mount dies while it keeps heads for the next incarnation, and then the volume is repaired: all content is home,
/// and none of these heads counts any more. Else what the repair makes of their blocks would be taken for content.
#[test]
fn a_repair_ends_what_an_interrupted_mount_has_kept() {
    let script = SCRIPTS_OF_CONTENT.iter().find(|(_, script)| script.name == "versions").map(|(_, script)| script);
    let (program, setting) = (on_volume(Done::Mortal(script.expect("a script"))), world("pmem"));
    let run = run(&program, &setting);
    let deaths = deaths_behind(&run.trace, "hybrid.keep");
    assert!(deaths.len() >= 2, "only {} stores", deaths.len());
    for (image, _) in deaths {
        let world = World::from_image(&image, setting.sim.clone());
        let kept = || {
            let newest = Volume::dump_region(&*world.log(), None).expect("dump it").superblocks;
            let newest = newest.into_iter().filter_map(|copy| copy.decoded.ok()).max_by_key(|copy| copy.generation);
            let superblock = newest.expect("a superblock");
            let table = superblock.heads.expect("a table of heads");
            let seed = HeadSeed::of(Seed::of(&superblock.volume_id), superblock.incarnation);
            let is_head = |at: &u64| {
                let mut line = [0; 64];
                world.log().read(table.at(Lba(*at)), &mut line).expect("read");
                decode(seed, Lba(*at), &line).is_some()
            };
            (0..table.blocks()).filter(is_head).count()
        };
        assert!(kept() > 0);
        let watch = &mut |_| ControlFlow::Continue(());
        let repaired = Volume::repair_region(&world.log(), &VolumeOptions::default(), (Repair::Safe, false), watch);
        assert_eq!(repaired.expect("repair it").left, []);
        assert_eq!(kept(), 0);
    }
}

/// What the death of the process leaves right after each store of a site, and the store.
fn deaths_behind<'t>(trace: &'t Trace, site: &str) -> Vec<(Image, &'t Event)> {
    let mut explorer = Explorer::new(trace);
    let events = trace.events.iter().zip(1..);
    let stores = events.filter(|(event, _)| event.site.is_some_and(|passed| passed.0 == site));
    let death = |(event, behind)| {
        explorer.seek(behind);
        (explorer.kill_image(), event)
    };
    stores.map(death).collect()
}

/// A process dies between the store of a swapped pointer and its fence. A mount and a repair end the log, and the heads
/// that prove the pointer. Both make it durable first: no power failure brings back the old one.
#[test]
fn a_swapped_pointer_outlives_the_heads_that_prove_it() {
    let options = VolumeOptions::default();
    let (mut swapped, mut lost) = (0, Vec::new());
    for (blocks, program) in calls().into_iter().map(|program| (BLOCKS, program)).chain(large_calls()) {
        let setting = large_world("pmem", blocks);
        let run = run(&program, &setting);
        assert_eq!(run.failure, None, "{}", program.name());
        for (image, store) in deaths_behind(&run.trace, "hybrid.swap") {
            let EventKind::Store { offset, data, .. } = &store.kind else { panic!("no store: {store:?}") };
            for repairs in [false, true] {
                let world = World::from_image(&image, setting.sim.clone());
                if repairs {
                    let watch = &mut |_| ControlFlow::Continue(());
                    let repaired = Volume::repair_region(&world.log(), &options, (Repair::Safe, false), watch);
                    assert_eq!(repaired.expect("repair it").left, []);
                } else {
                    Volume::open_region(world.log(), &options).expect("open it").abandon();
                }
                let trace = world.trace();
                let after = trace.image_of(&Choice { point: trace.events.len() as u64, pick: Pick::None });
                let bytes = after.read(&Place::Log).expect("the medium");
                if bytes[*offset as usize..][..data.len()] != data[..] {
                    lost.push((program.name(), if repairs { "by a repair" } else { "by a mount" }));
                }
            }
            swapped += 1;
        }
    }
    assert_eq!(lost, []);
    assert!(swapped >= 2, "only {swapped} pointers were swapped");
}

/// What the calls of a group store is ordered by each of them, and what its commit stores by the commit.
#[test]
fn a_mistake_in_a_group_is_seen() {
    let mistakes = [
        ("hybrid.call.hand_over", DropOrder),
        ("hybrid.commit.fence", DropOrder),
        ("hybrid.pending", DelayWrite),
        ("hybrid.head", DelayWrite),
    ];
    expect_seen(&groups_of(&STORIES), &world("pmem"), &mistakes, &once());
}

/// Bytes by site, and fences, of one step.
fn cost(recorded: &Recorded) -> Vec<(BTreeMap<&'static str, u64>, Vec<&'static str>)> {
    let mut steps = vec![Default::default()];
    for event in recorded.steps() {
        let Some(site) = event.site else { continue };
        let last: &mut (BTreeMap<&'static str, u64>, Vec<&'static str>) = steps.last_mut().expect("there is one");
        match &event.kind {
            EventKind::Fence { .. } => last.1.push(site.0),
            EventKind::Store { data, .. } => *last.0.entry(site.0).or_default() += data.len() as u64,
            _ => {}
        }
        if site.0 == "hybrid.commit.fence" {
            steps.push(Default::default());
        }
    }
    steps.pop();
    steps
}

/// Content that is written over other content costs its lines, a line for each block, and a line for the commit, in one
/// fence; with a change of times, an undo entry for each 32 bytes, and the changed words, in two.
#[test]
fn groups_of_content_cost_what_is_said() {
    static SCRIPT: Script = Script {
        name: "costs",
        before: two,
        steps: &[
            |t| write(t, "a", 0, &[60; 4096]),
            |t| write(t, "a", 100, &[61; 20]),
            |t| write(t, "a", 4000, &[62; 5000]),
            |t| {
                tick();
                write(t, "b", 64, &[63; 64])
            },
        ],
    };
    let costs = cost(&Recorded::of(EngineKind::HybridLog, Done::Still(&SCRIPT)));
    assert_eq!(costs.len(), 4);
    for ((bytes, fences), (lines, heads)) in costs.iter().zip([(64, 1), (1, 1), (2 + 64 + 13, 3), (1, 1)]) {
        let of = |site: &str| bytes.get(site).copied().unwrap_or(0);
        assert_eq!((of("hybrid.pending"), of("hybrid.head"), of("hybrid.commit")), (lines * 64, heads * 64, 64));
        let is_changed = of("hybrid.undo") > 0;
        let expected: &[&str] = match is_changed {
            false => &["hybrid.commit.fence"],
            true => &["hybrid.log.fence", "hybrid.commit.fence"],
        };
        assert_eq!(fences, expected);
        if !is_changed {
            assert_eq!(bytes.values().sum::<u64>(), (lines + heads + 1) * 64);
        }
    }
    // Seconds of two times: in two words, and the check in a third: stored from the first to the last.
    let (bytes, _) = &costs[3];
    assert_eq!((bytes.get("hybrid.undo"), bytes.get("volume.inode.line")), (Some(&128), Some(&56)));
}

/// Two files in one group, over other content: one fence, the lines of the calls once, a head for each block, the
/// commit entry. With a change of times, one fence more.
#[test]
fn a_group_over_content_costs_what_is_said() {
    static STORY: LazyLock<Story> = LazyLock::new(|| {
        let mut moves = vec![Move::Begin(0)];
        moves.extend(TWO_FILES.iter().map(|step| Move::In(0, *step)));
        moves.push(Move::Commit(0));
        moves.push(Move::Begin(1));
        moves.push(Move::In(1, |t| {
            tick();
            write(t, "a", 0, &[105; 64])
        }));
        moves.push(Move::Commit(1));
        Story { name: "costs of groups".into(), before: two, moves }
    });
    let costs = cost(&Recorded::of(EngineKind::HybridLog, Done::StillStory(&STORY)));
    assert_eq!(costs.len(), 2);
    // 100..5100: 63 and 16 lines; 64..128: 1; 4000..4200: 2 and 2; 8000..9000: 3 and 13. Five blocks.
    let (bytes, fences) = &costs[0];
    let of = |site: &str| bytes.get(site).copied().unwrap_or(0);
    assert_eq!((of("hybrid.pending"), of("hybrid.head"), of("hybrid.commit")), (100 * 64, 5 * 64, 64));
    assert_eq!(bytes.values().sum::<u64>(), 106 * 64);
    assert_eq!(fences, &["hybrid.commit.fence"]);
    assert_eq!(costs[1].1, ["hybrid.log.fence", "hybrid.commit.fence"]);
}
