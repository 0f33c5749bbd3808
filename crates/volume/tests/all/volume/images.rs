//! What the pages have that transactions write. Groups run at the same time in one directory and in one block of
//! inodes, with few pages in memory. What each of them makes bears its mark: names, owners, content, attributes.
//!
//! A page has no mark of another group that runs. If others can reach it, it has no mark of its own group before that
//! commits. A bitmap has no bit that another group has taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use wholly_blocks::batch::Batch;
use wholly_blocks::log::{LogDevice, LogOptions};
use wholly_blocks::{Lba, Page, Placement, Run, Tag, TxBlocks, Txid};
use wholly_posix::Tree;
use wholly_sim::{BlockRules, SimConfig, World};
use wholly_vfs::{Errno, GroupId, Groups, Ino, OFlags, Result};
use wholly_volume::format::Seed;
use wholly_volume::format::bitmap::{Bitmap, BitmapAt, Layout};
use wholly_volume::format::log::LogSeed;
use wholly_volume::{EngineKind, Mistake, Trial, Volume, VolumeOptions, VolumeVfs};

use super::groups::within;
use super::place::Place;
use super::watch::{Watch, Watched};

const BLOCKS: u64 = 2048;
const GROUPS: usize = 3;
/// So few that content is stolen.
const PAGES: usize = 64;
/// The bits of a bitmap block begin here.
const BITS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Committing,
    Committed,
    Aborted,
}

/// What a group is known by.
fn mark(group: usize) -> String {
    format!("<<mark {group}>>")
}

/// As an inode has them, one behind the other.
fn owners(group: usize) -> [u32; 2] {
    [0x6b72_616d ^ group as u32, 0x3c3c_3e3e ^ group as u32]
}

/// The groups whose marks some bytes have.
fn marks_in(bytes: &[u8]) -> Vec<usize> {
    let has = |bytes: &[u8], mark: &[u8]| bytes.windows(mark.len()).any(|window| window == mark);
    let of = |group: &usize| {
        let [uid, gid] = owners(*group).map(u32::to_le_bytes);
        has(bytes, mark(*group).as_bytes()) || has(bytes, &[uid, gid].concat())
    };
    (0..GROUPS).filter(of).collect()
}

struct State {
    phases: [Phase; GROUPS],
    /// The group whose call runs.
    calling: Option<usize>,
    of: BTreeMap<Txid, Option<usize>>,
    /// Blocks that a group has taken, and inodes.
    blocks: [BTreeSet<u64>; GROUPS],
    inodes: [BTreeSet<u64>; GROUPS],
    /// Bitmap blocks that were written, and which groups ran then.
    bitmaps: Vec<(BitmapAt, Page, Vec<usize>)>,
    /// Pages that were stolen, and all that were written.
    stolen: u64,
    pages: u64,
    /// What had marks.
    marked: BTreeSet<Tag>,
    findings: Vec<String>,
}

/// Looks at each page that is written.
struct Marks {
    layout: Layout,
    state: Mutex<State>,
}

impl Marks {
    fn new() -> Marks {
        let state = State {
            phases: [Phase::Running; GROUPS],
            calling: None,
            of: BTreeMap::new(),
            blocks: Default::default(),
            inodes: Default::default(),
            bitmaps: Vec::new(),
            stolen: 0,
            pages: 0,
            marked: BTreeSet::new(),
            findings: Vec::new(),
        };
        Marks { layout: Layout::of_new(BLOCKS), state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The bits of blocks and inodes that a group had taken when others wrote the bitmap.
    fn check_bits(&self) {
        let state = &mut *self.state();
        for (at, page, running) in &state.bitmaps {
            let is_set = |unit: u64| {
                let bit = (unit % (8 * (4096 - BITS as u64))) as usize;
                page[BITS + bit / 8] >> (bit % 8) & 1 == 1
            };
            for group in running {
                let taken = match at.of {
                    Bitmap::Blocks => &state.blocks[*group],
                    Bitmap::Inodes => &state.inodes[*group],
                    Bitmap::Orphans => continue,
                };
                let set: Vec<u64> = taken.iter().copied().filter(|unit| is_set(*unit)).collect();
                if !set.is_empty() {
                    state.findings.push(format!("{at} has {set:?} of group {group}, which runs"));
                }
            }
        }
    }
}

impl Watch for Marks {
    fn begun(&self, tx: Txid) {
        let mut state = self.state();
        let calling = state.calling;
        state.of.insert(tx, calling);
    }

    fn writes(&self, tx: Txid, at: Lba, page: &Page, how: Placement, tag: Tag) {
        let state = &mut *self.state();
        let own = state.of[&tx];
        state.pages += 1;
        for group in marks_in(&page[..]) {
            let phase = state.phases[group];
            state.marked.insert(tag);
            let is_wrong = match phase {
                Phase::Committed => false,
                Phase::Committing => own != Some(group),
                Phase::Running => own != Some(group) || how == Placement::Overwrite,
                Phase::Aborted => true,
            };
            if is_wrong {
                let what = format!("block {} ({tag:?}, {how:?}), by {own:?}: a mark of {group}, {phase:?}", at.0);
                state.findings.push(what);
            }
        }
        if self.layout.has(at.0) {
            let others = (0..GROUPS).filter(|group| state.phases[*group] == Phase::Running && own != Some(*group));
            let running = others.collect();
            let all = self.layout.all(BLOCKS, self.layout.most_inodes(BLOCKS));
            let of = all.into_iter().find(|of| self.layout.place(*of) == at).expect("it is a bitmap block");
            state.bitmaps.push((of, page.clone(), running));
        } else if let Some(own) = own.filter(|_| how == Placement::Fresh) {
            state.blocks[own].insert(at.0);
            state.stolen += u64::from(state.phases[own] == Phase::Running);
        }
    }
}

type Blocks = Watched<dyn TxBlocks, Marks>;

/// What is in the directory before.
fn prepare(tree: &Tree<'_>) -> Result<()> {
    tree.mkdir("d", 0o755)?;
    for group in 0..GROUPS {
        drop(tree.file(format!("d/old {group}"), 0o644, &[5; 20_000])?);
        drop(tree.file(format!("d/gone {group}"), 0o644, &[5; 9000])?);
    }
    Ok(())
}

/// Calls of a group, in its turn. Returns inodes that it has made.
fn turn(tree: &Tree<'_>, group: usize, turn: usize) -> Result<Vec<u64>> {
    let (mark, [uid, gid]) = (mark(group), owners(group));
    let content = mark.repeat(1000);
    let old = format!("d/old {group}");
    match turn {
        0 => {
            let made = tree.file(format!("d/{mark}"), 0o644, content.as_bytes())?.stat()?.ino.0;
            tree.chown(format!("d/{mark}"), Some(uid), Some(gid))?;
            Ok(vec![made])
        }
        1 => {
            tree.open(&old, OFlags::RDWR)?.write_all(100, content.as_bytes())?;
            tree.chown(&old, Some(uid), Some(gid))?;
            tree.set_xattr(&old, "user.mark", &content.as_bytes()[..3000])?;
            tree.rename(&old, format!("d/moved {mark}"))?;
            Ok(Vec::new())
        }
        2 => {
            let made = tree.mkdir(format!("d/{mark} dir"), 0o755)?.ino.0;
            let inside = tree.file(format!("d/{mark} dir/{mark}"), 0o644, content.as_bytes())?.stat()?.ino.0;
            // Stays in memory as long as there is room.
            let large = tree.file(format!("d/{mark} large"), 0o600, content.repeat(10).as_bytes())?.stat()?.ino.0;
            Ok(vec![made, inside, large])
        }
        _ => {
            tree.unlink(format!("d/gone {group}"))?;
            tree.open(format!("d/{mark} large"), OFlags::RDWR)?.write_all(5000, content.as_bytes())?;
            Ok(Vec::new())
        }
    }
}

/// Runs the groups side by side, and ends them in this order, so.
fn run(inner: Arc<dyn TxBlocks>, order: [usize; GROUPS], commits: usize, mistake: Option<Mistake>) -> Arc<Blocks> {
    let watched = Arc::new(Watched { inner, watch: Marks::new() });
    let trial = Trial { pages: Some(PAGES), mistake, ..Trial::default() };
    let options = VolumeOptions { engine: Some(EngineKind::OpLog), trial, ..VolumeOptions::default() };
    Volume::format_blocks_as(&*watched, &options, [7; 16]).expect("make a volume");
    let volume = Volume::open_blocks(watched.clone(), &options).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    prepare(&tree).expect("prepare");
    let ids: Vec<GroupId> = (0..GROUPS).map(|_| vfs.begin().expect("begin")).collect();
    let mut all = Ok(());
    for (at, group) in (0..4).flat_map(|at| (0..GROUPS).map(move |group| (at, group))) {
        watched.watch.state().calling = Some(group);
        let made = turn(&within(&tree, ids[group]), group, at);
        watched.watch.state().inodes[group].extend(made.iter().flatten());
        all = all.and(made.map(drop));
    }
    for group in order {
        let is_committed = commits >> group & 1 == 1;
        let phases = |phase| watched.watch.state().phases[group] = phase;
        watched.watch.state().calling = Some(group);
        phases(if is_committed { Phase::Committing } else { Phase::Aborted });
        let ended = if is_committed { vfs.commit(ids[group]) } else { vfs.abort(ids[group]) };
        all = all.and(ended.map_err(Errno::from));
        phases(if is_committed { Phase::Committed } else { Phase::Aborted });
    }
    watched.watch.state().calling = None;
    drop(tree);
    drop(vfs);
    watched.watch.check_bits();
    if mistake.is_none() {
        all.expect("all calls succeed");
        volume.close().expect("close it");
        assert_eq!(Volume::check_region(&*watched.plain()).expect("check it").findings, []);
    } else {
        volume.abandon();
    }
    watched
}

/// Transactions of the medium, and those of a log, which gives pages to others to be written together.
fn media() -> [Arc<dyn TxBlocks>; 2] {
    let world = World::new(SimConfig::blocks(BLOCKS, BlockRules::default()));
    let place = Place::of_zeros((BLOCKS + 600) * 4096, EngineKind::None);
    let run = Run { start: Lba(BLOCKS), count: 600 };
    let seed = LogSeed::of(Seed::of(&[3; 16]), 1).ring();
    let log = LogDevice::new(place.region, BLOCKS, run, (seed, 1), LogOptions::default());
    [world.blocks(), Arc::new(Batch::new(Arc::new(log), 512))]
}

const ORDERS: [[usize; GROUPS]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[test]
fn a_page_has_nothing_of_a_group_that_runs() {
    let (mut pages, mut stolen, mut bitmaps) = (0, 0, 0);
    for (order, commits) in ORDERS.into_iter().flat_map(|order| (0..1 << GROUPS).map(move |commits| (order, commits))) {
        for medium in media() {
            let watched = run(medium, order, commits, None);
            let state = watched.watch.state();
            assert_eq!(state.findings, [""; 0], "{order:?}, committed: {commits:b}");
            let marked = [Tag::Data, Tag::Inode, Tag::Directory].iter().filter(|tag| state.marked.contains(tag));
            assert_eq!(marked.count(), if commits > 0 { 3 } else { 1 }, "{:?}", state.marked);
            pages += state.pages;
            stolen += state.stolen;
            bitmaps += state.bitmaps.iter().filter(|(.., running)| !running.is_empty()).count();
        }
    }
    println!("{pages} pages, {stolen} of them stolen, {bitmaps} bitmaps while others ran");
    assert!(stolen > 1000 && bitmaps > 100, "{stolen} {bitmaps}");
}

#[test]
fn pages_with_something_of_a_group_that_runs_are_seen() {
    for mistake in [Mistake::MetadataStolen, Mistake::OthersLines] {
        for medium in media() {
            let watched = run(medium, [0, 1, 2], 0b111, Some(mistake));
            let state = watched.watch.state();
            println!("{mistake:?}: {} findings, such as {:?}", state.findings.len(), state.findings.first());
            assert!(!state.findings.is_empty(), "{mistake:?}");
        }
    }
}
