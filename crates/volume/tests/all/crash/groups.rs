//! Explicit groups while the power fails. Calls of a group come from two threads, and two groups run at once, beside
//! calls outside of groups, in any order of their ends.

use wholly_crash::volume::{BYTES, times_as_large};
use wholly_crash::{State, served_tree};
use wholly_posix::Tree;
use wholly_sim::{SimConfig, World};
use wholly_vfs::{Context, Errno, Fallocate, FileType, Groups, Ino, OFlags, Rename, Result, Timestamp};
use wholly_volume::{EngineKind, Volume, VolumeCalls, VolumeGroup, VolumeOptions, VolumeVfs};

use super::scripts::{Step, files, full_leaf, nothing};

/// One thing that is done.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// A call outside of groups.
    Out(Step),
    Begin(usize),
    /// Calls in a group.
    In(usize, Step),
    Commit(usize),
    Abort(usize),
    /// Nothing: that this is what a crash would leave.
    See(fn(&State) -> bool),
}

/// What is done, from a beginning on.
#[derive(Debug)]
pub struct Story {
    pub name: String,
    pub before: Step,
    pub moves: Vec<Move>,
}

use Move::{Abort, Begin, Commit, In, Out};

/// Data over content, twice and in parts; blocks of its own, written again; sizes.
const DATA: &[Step] = &[
    |t| t.open("a", OFlags::RDWR)?.write(100, &[7; 5000]).map(drop),
    |t| t.open("a", OFlags::RDWR)?.write(3000, &[8; 3000]).map(drop),
    |t| t.open("a", OFlags::RDWR)?.append(&[9; 6000]).map(drop),
    |t| t.open("a", OFlags::RDWR)?.write(11_000, &[10; 3000]).map(drop),
    |t| t.file("c", 0o640, &[11; 5000]).map(drop),
    |t| t.open("c", OFlags::RDWR)?.write(4090, &[12; 10]).map(drop),
    |t| t.open("b", OFlags::RDWR)?.write(12 * 4096, &[13; 100]).map(drop),
    |t| t.truncate("b", 8 * 4096 + 10).map(drop),
    |t| t.truncate("b", 9 * 4096).map(drop),
    |t| expect(t.open("a", OFlags::RDONLY)?.content()?[2999..3001] == [7, 8]),
];

const NAMES: &[Step] = &[
    |t| t.mkdir("d", 0o755).map(drop),
    |t| t.rename("a", "d/b"),
    |t| t.link("d/b", "c").map(drop),
    |t| t.symlink("long", "x".repeat(100)).map(drop),
    |t| t.rename_with("long", "d", Rename::Exchange),
    |t| t.mknod("fifo", FileType::Fifo, 0o600).map(drop),
    |t| t.unlink("fifo"),
    |t| t.mknod("fifo", FileType::Fifo, 0o640).map(drop),
    |t| t.unlink("b"),
    |t| t.rename("c", "b"),
    |t| t.mkdir("long/sub", 0o700).map(drop),
    |t| t.create("long/sub/file", 0o600).map(drop),
    |t| t.rename("long/sub", "moved"),
    |t| expect(t.names("/")?.len() == 5 && t.names("moved")?.len() == 1),
];

/// A directory of the group's own, whose leaf gets full.
const BORN: &[Step] = &[
    |t| t.mkdir("d", 0o755).map(drop),
    |t| t.create("d/file", 0o600).map(drop),
    |t| (0..14).try_for_each(|i| t.link("d/file", format!("d/{i}-{}", "n".repeat(240))).map(drop)),
    |t| t.unlink(format!("d/3-{}", "n".repeat(240))),
    |t| expect(t.names("d")?.len() == 14),
];

const ATTRIBUTES: &[Step] = &[
    |t| t.chmod("/", 0o711).map(drop),
    |t| t.set_xattr("/", "user.of", b"the directory"),
    |t| t.set_xattr("a", "user.large", &[5; 6000]),
    |t| t.chown("a", Some(7), Some(8)).map(drop),
    |t| t.set_xattr("a", "user.large", b"small"),
    |t| t.create("e", 0o644).map(drop),
];

const SPACE: &[Step] = &[
    |t| {
        let flags = Fallocate::Punch;
        t.open("a", OFlags::RDWR)?.allocate(flags, 100, 5000)
    },
    |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::ZeroExtend, 60, 9 * 4096),
    |t| t.open("b", OFlags::RDWR)?.write(8 * 4096 + 100, &[6; 100]).map(drop),
    |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Insert, 4096, 8192),
    |t| t.open("b", OFlags::RDWR)?.write(10 * 4096, &[14; 300]).map(drop),
    |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Collapse, 0, 4096),
    |t| t.unlink("a"),
];

/// Names in a directory whose leaf gets full by them.
const CROWD: [&[Step]; 2] = [
    &[
        |t| t.file(format!("d/one-{}", "m".repeat(240)), 0o644, b"1").map(drop),
        |t| t.unlink(format!("d/0-{}", "n".repeat(240))),
        |t| t.rename(format!("d/1-{}", "n".repeat(240)), format!("d/{}", "r".repeat(250))),
    ],
    &[
        |t| t.file(format!("d/two-{}", "m".repeat(240)), 0o644, b"2").map(drop),
        |t| t.file(format!("d/three-{}", "m".repeat(240)), 0o644, b"3").map(drop),
        |t| t.unlink(format!("d/2-{}", "n".repeat(240))),
        |t| t.file(format!("d/2-{}", "n".repeat(240)), 0o600, b"again").map(drop),
        |t| t.mkdir("d/sub", 0o755).map(drop),
    ],
];

pub fn expect(is: bool) -> Result<()> {
    if is { Ok(()) } else { Err(Errno::BADMSG) }
}

/// Two directories, and a file in each.
fn two_dirs(t: &Tree<'_>) -> Result<()> {
    files(t)?;
    t.mkdir("d", 0o755)?;
    t.mkdir("e", 0o755)?;
    t.file("d/x", 0o644, &[1; 100])?;
    t.file("e/y", 0o644, &[2; 100]).map(drop)
}

fn all_in(group: usize, steps: &[Step]) -> Vec<Move> {
    steps.iter().map(|step| In(group, *step)).collect()
}

/// One group, committed or aborted, and what comes after it.
pub fn alone(name: &str, before: Step, steps: &[Step], after: &[Step]) -> [Story; 2] {
    [Commit(0), Abort(0)].map(|end| {
        let how = if matches!(end, Commit(_)) { "committed" } else { "aborted" };
        let after: Vec<Move> = after.iter().map(|step| Out(*step)).collect();
        let moves = [&[Begin(0)][..], &all_in(0, steps), &[end], &after].concat();
        Story { name: format!("{name}, {how}"), before, moves }
    })
}

pub fn stories() -> Vec<Story> {
    // It gets what an abort has given back, or a commit has freed.
    let again: &[Step] =
        &[|t| t.create("later", 0o644).map(drop), |t| t.open("later", OFlags::RDWR)?.write(0, &[3; 20_000]).map(drop)];
    let mut all = Vec::new();
    all.extend(alone("data", files, DATA, &[|t| t.open("a", OFlags::RDWR)?.write(50, &[1; 9000]).map(drop)]));
    all.extend(alone("names", files, NAMES, again));
    all.extend(alone("a directory of its own", nothing, BORN, again));
    all.extend(alone("attributes", files, ATTRIBUTES, again));
    all.extend(alone("space", files, SPACE, again));
    // Two groups in one directory, in all orders of their ends.
    for (first, second) in [(Commit(0), Commit(1)), (Commit(0), Abort(1)), (Abort(0), Commit(1)), (Abort(0), Abort(1))]
    {
        for ends in [[first, second], [second, first]] {
            let mut moves = vec![Begin(0), Begin(1)];
            let [mut one, mut other] = CROWD.map(|steps| steps.iter());
            loop {
                let next = [one.next().map(|step| In(0, *step)), other.next().map(|step| In(1, *step))];
                if next.iter().all(Option::is_none) {
                    break;
                }
                moves.extend(next.into_iter().flatten());
            }
            moves.push(Out(|t| t.create(format!("d/out-{}", "m".repeat(240)), 0o644).map(drop)));
            moves.extend(ends);
            moves.push(Out(|t| t.unlink(format!("d/out-{}", "m".repeat(240)))));
            let show = |end: Move| if matches!(end, Commit(_)) { "c" } else { "a" };
            let number = |end: Move| if matches!(end, Commit(0) | Abort(0)) { 0 } else { 1 };
            let show = |end: Move| format!("{}{}", show(end), number(end));
            let name = format!("two in one directory, {} {}", show(ends[0]), show(ends[1]));
            all.push(Story { name, before: full_leaf, moves });
        }
    }
    // Two groups with data, committed in the order in which they did not begin, and calls between.
    all.push(Story {
        name: "two with data".into(),
        before: two_dirs,
        moves: vec![
            Begin(0),
            In(0, |t| t.open("a", OFlags::RDWR)?.write(10, &[4; 4000]).map(drop)),
            Begin(1),
            In(1, |t| t.open("b", OFlags::RDWR)?.write(0, &[5; 9000]).map(drop)),
            Out(|t| t.open("d/x", OFlags::RDWR)?.write(5, &[6; 10]).map(drop)),
            In(0, |t| t.rename("d/x", "e/x")),
            In(1, |t| t.create("d/z", 0o644).map(drop)),
            Out(|t| {
                expect(t.open("a", OFlags::RDWR)?.write(0, b"x") == Err(Errno::BUSY))?;
                expect(t.unlink("e/x") == Err(Errno::NOENT) && t.create("e/x", 0o600).err() == Some(Errno::BUSY))?;
                expect(t.rmdir("e") == Err(Errno::NOTEMPTY) && t.rename("e", "f") == Err(Errno::BUSY))?;
                t.create("done", 0o644).map(drop)
            }),
            Commit(1),
            In(0, |t| t.open("a", OFlags::RDWR)?.write(0, &[7; 20]).map(drop)),
            Commit(0),
            Out(|t| t.open("b", OFlags::RDWR)?.write(0, &[8; 5000]).map(drop)),
        ],
    });
    // Nothing is done.
    all.push(Story { name: "nothing".into(), before: nothing, moves: vec![Begin(0), Commit(0), Begin(1), Abort(1)] });
    all
}

/// What a group sees before its commit is there afterwards; until then, others see nothing of it, and after an abort
/// nothing is left.
#[test]
fn groups_are_private_and_see_themselves() {
    let with_engines = || {
        let all = EngineKind::ALL.iter().copied();
        let of_all = all.filter(|engine| *engine != EngineKind::None);
        let of_pending = [EngineKind::HybridLog, EngineKind::Undo, EngineKind::Shadow];
        let all = of_all.flat_map(|engine| stories().into_iter().map(move |story| (story, engine)));
        let pending = of_pending
            .into_iter()
            .flat_map(|engine| super::hybrid::stories().into_iter().map(move |story| (story, engine)));
        let undo = super::undo::stories().into_iter().map(|story| (story, EngineKind::Undo));
        let shadow = super::shadow::stories().into_iter().map(|story| (story, EngineKind::Shadow));
        all.chain(pending).chain(undo).chain(shadow)
    };

    for (story, engine) in with_engines() {
        let world = World::new(SimConfig { log_len: BYTES * times_as_large(engine), ..SimConfig::pmem() });
        // Space may not do for more changes: of times, or of the leaves that names of another volume are hashed to.
        let clock = || Timestamp { sec: 1_000_000_000, nsec: 0 };
        let options = VolumeOptions { engine: Some(engine), clock, ..VolumeOptions::default() };
        Volume::format_region_as(&*world.log(), &options, [7; 16]).expect("make a volume");
        let volume = Volume::open_region(world.log(), &options).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        (story.before)(&tree).expect("before");
        let look = |mut calls: &VolumeCalls| {
            served_tree(&mut calls, &mut |path, error| Err(format!("{path}: {error}"))).expect("look")
        };
        let same = |one: &State, other: &State, what: &str| {
            assert_eq!(one.difference(other), None, "{}, {what}", story.name);
        };
        let mut groups: [Option<VolumeGroup>; 2] = [None, None];
        let mut committed = look(&volume);
        let free = volume.stat().free_blocks;
        let mut is_as_before = true;
        for (number, step) in story.moves.iter().enumerate() {
            let name = format!("{} with {}, move {number}", story.name, engine.name());
            match *step {
                Out(step) => {
                    step(&tree).unwrap_or_else(|errno| panic!("{name}: {errno}"));
                    (committed, is_as_before) = (look(&volume), false);
                }
                Begin(group) => groups[group] = Some(volume.begin()),
                In(group, step) => {
                    let group = groups[group].as_ref().expect("it runs").id().expect("it has begun");
                    let tree = Tree { ctx: Context { group: Some(group), ..tree.ctx.clone() }, ..tree.clone() };
                    step(&tree).unwrap_or_else(|errno| panic!("{name}: {errno}"));
                }
                Commit(group) => {
                    let group = groups[group].take().expect("it runs");
                    let (own, id) = (look(&group), group.id().expect("it has begun"));
                    group.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert!(matches!(vfs.commit(id), Err(wholly_error::Error::Invalid(_))), "{name}: it has ended");
                    (committed, is_as_before) = (look(&volume), false);
                    same(&own, &committed, &format!("move {number}"));
                }
                Abort(group) => groups[group].take().expect("it runs").abort(),
                Move::See(_) => {}
            }
            same(&committed, &look(&volume), &format!("move {number}, as others see it"));
            if groups.iter().all(Option::is_none) && is_as_before {
                // Room that was made in directories stays.
                let more = free - volume.stat().free_blocks;
                assert!(more <= 4, "{name}: {more} blocks are missing");
            }
        }
        // None of its inodes is held any more.
        assert_eq!(vfs.held().1, 0, "{}", story.name);
        drop(tree);
        drop(vfs);
        volume.close().expect("close it");
        let checked = Volume::check_region(&*world.log()).expect("check it");
        assert_eq!(checked.findings, [], "{}", story.name);
        assert_eq!(checked.orphans, 0, "{}", story.name);
        // What is free is as a rebuild has it.
        let saved = Volume::open_region(world.log(), &options).expect("open it").stat();
        let volume = Volume::open_region(world.log(), &options).expect("open it");
        let world = World::from_image(&world.latest(), world.config().clone());
        volume.abandon();
        let rebuilt = Volume::open_region(world.log(), &options).expect("open it").stat();
        assert_eq!(
            (saved.free_blocks, saved.free_inodes),
            (rebuilt.free_blocks, rebuilt.free_inodes),
            "{}",
            story.name
        );
    }
}
