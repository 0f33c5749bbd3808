//! Groups that run at the same time in one directory, against a model that knows no groups. Whatever they do and
//! however they end, the volume has what the committed ones have done, one after the other, in commit order.
//!
//! `WHOLLY_LONG=1` goes through all cases. `WHOLLY_CASE=NUMBER` runs one of them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use wholly_media::Region;
use wholly_posix::Tree;
use wholly_sim::{BlockRules, Choice, Image, Pick, SimConfig, World};
use wholly_vfs::{Errno, FileType, GroupId, Groups, Ino, Result, Timestamp};
use wholly_volume::{EngineKind, Mistake, Trial, Volume, VolumeOptions, VolumeVfs};

use super::groups::within;
use super::place::{Random, is_long};

const BLOCKS: u64 = 192;
/// What is in the directory before the groups begin.
const BEFORE: [&str; 3] = ["kept", "moved", "old"];

thread_local!(static NOW: Cell<i64> = const { Cell::new(1_000) });

fn now() -> Timestamp {
    Timestamp { sec: NOW.get(), nsec: 0 }
}

/// What a group does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Create,
    Mkdir,
    /// A new file with 4 KiB of content.
    Write,
    /// Of a file that was there before.
    Remove,
    /// Of the newest name that the group has made.
    RemoveOwn,
    Rename,
    Chmod,
    /// A name that other groups make, too.
    CreateSame,
    /// By another file that was there before.
    Replace,
}

/// The calls that the exhaustive cases are made of.
const CALLS: [Call; 7] =
    [Call::Create, Call::Mkdir, Call::Write, Call::Remove, Call::RemoveOwn, Call::Rename, Call::Chmod];

/// A step of a case: a call of a group, or its end.
#[derive(Clone, Copy)]
enum Step {
    Call(usize, Call),
    Commit(usize),
    Abort(usize),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call(group, call) => write!(f, "{group}: {call:?}"),
            Step::Commit(group) => write!(f, "{group}: commit"),
            Step::Abort(group) => write!(f, "{group}: abort"),
        }
    }
}

/// A call with its names.
#[derive(Clone, Debug)]
enum Act {
    Make(String, FileType),
    Write(String, u8),
    Remove(String),
    Rename(String, String),
    Chmod(String, u32),
}

impl Act {
    fn names(&self) -> impl Iterator<Item = &String> {
        let (one, other) = match self {
            Act::Make(name, _) | Act::Write(name, _) | Act::Remove(name) | Act::Chmod(name, _) => (name, None),
            Act::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(one).chain(other)
    }
}

/// A file or directory. Times are those of modification and of change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    kind: FileType,
    mode: u32,
    links: u64,
    /// Bytes, and how many there are of each.
    content: Vec<(u8, usize)>,
    /// What it takes of the volume, with nodes that lead to its content.
    blocks: u64,
    times: [i64; 2],
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    /// The directory itself.
    dir: Option<Entry>,
    names: BTreeMap<String, Entry>,
    free_blocks: u64,
    free_inodes: u64,
}

impl Contents {
    /// As it is seen without a group, or in one.
    fn of(volume: &Volume, group: Option<GroupId>) -> Contents {
        let vfs = VolumeVfs::new(volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let tree = group.map_or(tree.clone(), |group| within(&tree, group));
        let entry = |path: &str| {
            let attr = tree.stat(path).expect("stat");
            let content = match attr.kind {
                FileType::RegularFile => tree.content(path).expect("read"),
                _ => Vec::new(),
            };
            assert!(attr.kind == FileType::Directory || attr.size == content.len() as u64);
            let content = content.chunk_by(|one, next| one == next).map(|run| (run[0], run.len())).collect();
            Entry {
                kind: attr.kind,
                mode: attr.mode.as_raw_mode(),
                links: attr.nlink,
                content,
                blocks: attr.blocks / 8,
                times: [attr.mtime.sec, attr.ctime.sec],
            }
        };
        let names = tree.names("d").expect("list").into_iter().map(|name| String::from_utf8(name.name).expect("text"));
        let names = names.filter(|name| !name.starts_with('.'));
        let names = names.map(|name| (name.clone(), entry(&format!("d/{name}")))).collect();
        let (dir, stat) = (Some(entry("d")), volume.stat());
        Contents { dir, names, free_blocks: stat.free_blocks, free_inodes: stat.free_inodes }
    }

    fn dir(&mut self) -> &mut Entry {
        self.dir.as_mut().expect("it is there")
    }

    /// Without what is free: a group that runs has space of its own.
    fn apart_from_space(&self) -> Contents {
        Contents { free_blocks: 0, free_inodes: 0, ..self.clone() }
    }

    /// Makes a call.
    fn make(&mut self, act: &Act, now: i64) -> Result<()> {
        match act {
            Act::Make(name, kind) => {
                let is_dir = *kind == FileType::Directory;
                let (mode, links) = if is_dir { (0o755, 2) } else { (0o644, 1) };
                let entry = Entry { kind: *kind, mode, links, content: Vec::new(), blocks: 0, times: [now; 2] };
                if self.names.contains_key(name) {
                    return Err(Errno::EXIST);
                }
                self.names.insert(name.clone(), entry);
                self.dir().links += u64::from(is_dir);
                self.free_inodes -= 1;
            }
            Act::Write(name, byte) => {
                self.make(&Act::Make(name.clone(), FileType::RegularFile), now)?;
                let entry = self.names.get_mut(name).expect("it was made");
                (entry.content, entry.blocks) = (vec![(*byte, 4096)], 1);
                self.free_blocks -= 1;
            }
            Act::Remove(name) => {
                let entry = self.names.remove(name).ok_or(Errno::NOENT)?;
                self.dir().links -= u64::from(entry.kind == FileType::Directory);
                self.free_blocks += entry.blocks;
                self.free_inodes += 1;
            }
            Act::Rename(from, to) => {
                let mut entry = self.names.remove(from).ok_or(Errno::NOENT)?;
                entry.times[1] = now;
                if let Some(replaced) = self.names.insert(to.clone(), entry) {
                    self.free_blocks += replaced.blocks;
                    self.free_inodes += 1;
                }
            }
            Act::Chmod(name, mode) => {
                let entry = self.names.get_mut(name).ok_or(Errno::NOENT)?;
                (entry.mode, entry.times[1]) = (*mode, now);
                return Ok(());
            }
        }
        // A register: whoever commits last, it does not go back.
        self.dir().times = self.dir().times.map(|time| time.max(now));
        Ok(())
    }
}

/// Makes a call on the volume.
fn perform(tree: &Tree<'_>, act: &Act) -> Result<()> {
    let path = |name: &String| format!("d/{name}");
    match act {
        Act::Make(name, FileType::Directory) => tree.mkdir(path(name), 0o755).map(drop),
        Act::Make(name, _) => tree.create(path(name), 0o644).map(drop),
        Act::Write(name, byte) => tree.file(path(name), 0o644, &[*byte; 4096]).map(drop),
        Act::Remove(name) if name.starts_with("dir") => tree.rmdir(path(name)),
        Act::Remove(name) => tree.unlink(path(name)),
        Act::Rename(from, to) => tree.rename(path(from), path(to)),
        Act::Chmod(name, mode) => tree.chmod(path(name), *mode).map(drop),
    }
}

/// A group that runs, in the model.
#[derive(Default)]
struct Running {
    done: Vec<(Act, i64)>,
    /// Names that it has made, the newest last.
    own: Vec<String>,
    claims: BTreeSet<String>,
}

impl Running {
    fn act(&self, group: usize, call: Call) -> Act {
        let turn = self.done.len();
        let fresh = |kind: &str| format!("{kind}-{group}-{turn}");
        match call {
            Call::Create => Act::Make(fresh("file"), FileType::RegularFile),
            Call::Mkdir => Act::Make(fresh("dir"), FileType::Directory),
            Call::Write => Act::Write(fresh("written"), (16 * group + turn + 1) as u8),
            Call::Remove => Act::Remove("old".into()),
            Call::RemoveOwn => Act::Remove(self.own.last().cloned().expect("it has made something")),
            Call::Rename => Act::Rename(self.moved().unwrap_or_else(|| "moved".into()), fresh("renamed")),
            Call::CreateSame => Act::Make("same".into(), FileType::RegularFile),
            Call::Replace => {
                let from = self.moved().filter(|name| name != "old");
                Act::Rename(from.unwrap_or_else(|| "moved".into()), "old".into())
            }
            Call::Chmod => Act::Chmod("old".into(), 0o600 + group as u32),
        }
    }

    /// Where the group has moved the file that it moves.
    fn moved(&self) -> Option<String> {
        let mut moves = self.done.iter().rev();
        moves.find_map(|(act, _)| if let Act::Rename(_, to) = act { Some(to.clone()) } else { None })
    }

    /// The call has succeeded.
    fn has(&mut self, act: Act, now: i64) {
        self.claims.extend(act.names().cloned());
        match &act {
            Act::Make(name, _) | Act::Write(name, _) => self.own.push(name.clone()),
            Act::Remove(name) => self.own.retain(|own| own != name),
            Act::Rename(..) | Act::Chmod(..) => {}
        }
        self.done.push((act, now));
    }

    /// What the group sees.
    fn view(&self, committed: &Contents) -> Contents {
        let mut view = committed.clone();
        self.done.iter().for_each(|(act, now)| view.make(act, *now).expect("it has succeeded before"));
        view
    }
}

/// A volume with the directory, and what it is on.
struct Bed {
    config: Arc<SimConfig>,
    options: VolumeOptions,
    image: Image,
    before: Contents,
    is_disk: bool,
}

impl Bed {
    /// On a medium with transactions, or on a disk, where they are made of the volume's log.
    fn new(is_disk: bool) -> Bed {
        NOW.set(1_000);
        let config = match is_disk {
            true => SimConfig { log_len: BLOCKS * 4096, ..SimConfig::disk() },
            false => SimConfig::blocks(BLOCKS, BlockRules::default()),
        };
        let options = VolumeOptions {
            engine: Some(EngineKind::OpLog),
            cache_bytes: 1 << 20,
            clock: now,
            ..VolumeOptions::default()
        };
        let world = World::new(config);
        match is_disk {
            true => Volume::format_region(&*world.log(), &options),
            false => Volume::format_blocks_as(&*world.blocks(), &options, [7; 16]),
        }
        .expect("make a volume");
        let (config, before) = (world.config().clone(), Contents::default());
        let mut bed = Bed { config, options, image: world.latest(), before, is_disk };
        let volume = bed.open(&world);
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.mkdir("d", 0o755).expect("make the directory");
        BEFORE.iter().for_each(|name| drop(tree.file(format!("d/{name}"), 0o644, &[9; 5000]).expect("make a file")));
        drop(vfs);
        volume.close().expect("close it");
        bed.image = world.latest();
        let volume = bed.open(&World::from_image(&bed.image, bed.config.clone()));
        bed.before = Contents::of(&volume, None);
        volume.abandon();
        bed
    }

    fn open(&self, world: &Arc<World>) -> Volume {
        let opened = match self.is_disk {
            true => Volume::open_region(world.log(), &self.options),
            false => Volume::open_blocks(world.blocks(), &self.options),
        };
        opened.inspect(Volume::keep_access_times).expect("open it")
    }

    fn expect_sound(&self, world: &Arc<World>, what: &str) {
        let region: Arc<dyn Region> = if self.is_disk { world.log() } else { world.blocks().plain() };
        assert_eq!(Volume::check_region(&*region).expect("check it").findings, [], "{what}");
    }

    /// Opens what is left, and compares.
    fn expect_left(&self, image: &Image, expected: &Contents, what: &str) {
        let world = World::from_image(image, self.config.clone());
        self.expect_sound(&world, what);
        let volume = self.open(&world);
        assert_eq!(Contents::of(&volume, None), *expected, "{what}");
        volume.abandon();
    }

    /// Runs a case. Returns how many calls were refused for another group's sake.
    fn run(&self, groups: usize, steps: &[Step], case: u64) -> u64 {
        NOW.set(1_000_000);
        let what = format!("WHOLLY_CASE={case}, {steps:?}, on a disk: {}", self.is_disk);
        let world = World::from_image(&self.image, self.config.clone());
        let volume = self.open(&world);
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let ids: Vec<GroupId> = (0..groups).map(|_| vfs.begin().expect("begin")).collect();
        let (mut committed, mut refused) = (self.before.clone(), 0);
        let mut running: BTreeMap<usize, Running> = (0..groups).map(|group| (group, Running::default())).collect();
        for step in steps {
            NOW.set(NOW.get() + 1);
            match *step {
                Step::Call(group, call) => {
                    let act = running[&group].act(group, call);
                    let is_claimed = running
                        .iter()
                        .any(|(of, other)| *of != group && act.names().any(|name| other.claims.contains(name)));
                    let done = perform(&within(&tree, ids[group]), &act);
                    let alone = running[&group].view(&committed).make(&act, NOW.get());
                    if is_claimed && alone.is_ok() {
                        assert!(matches!(done, Err(Errno::BUSY | Errno::STALE)), "{what}: {act:?} is {done:?}");
                        refused += 1;
                        continue;
                    }
                    let is_refused = is_claimed && matches!(done, Err(Errno::BUSY | Errno::STALE));
                    assert!(done == alone || is_refused, "{what}: {act:?} is {done:?}");
                    if done.is_ok() {
                        running.get_mut(&group).expect("it runs").has(act, NOW.get());
                    }
                }
                Step::Commit(group) => {
                    vfs.commit(ids[group]).unwrap_or_else(|errno| panic!("{what}: {errno}"));
                    committed = running.remove(&group).expect("it runs").view(&committed);
                }
                Step::Abort(group) => {
                    vfs.abort(ids[group]).unwrap_or_else(|errno| panic!("{what}: {errno}"));
                    running.remove(&group);
                }
            }
            let seen = Contents::of(&volume, None).apart_from_space();
            assert_eq!(seen, committed.apart_from_space(), "after {step:?} of {what}");
        }
        let trace = world.trace();
        let pick = Choice { point: trace.events.len() as u64, pick: Pick::None };
        self.expect_left(&trace.image_of(&pick), &committed, &format!("after a crash: {what}"));
        assert_eq!(Contents::of(&volume, None), committed, "{what}");
        assert_eq!(vfs.held(), (0, 0), "{what}");
        drop(tree);
        drop(vfs);
        volume.close().expect("close it");
        self.expect_left(&world.latest(), &committed, &format!("after a close: {what}"));
        refused
    }
}

/// Goes through all orders of so many calls of two groups, and their ends. The first step is the first group's: the
/// others are the same with the groups exchanged.
fn each_case(steps: &mut Vec<Step>, left: usize, run: &mut dyn FnMut(&[Step])) {
    let has_ended = |steps: &[Step], group| {
        steps.iter().any(|step| matches!(step, Step::Commit(of) | Step::Abort(of) if *of == group))
    };
    let own = |steps: &[Step], group| {
        let calls =
            steps.iter().filter_map(|step| if let Step::Call(of, call) = step { Some((*of, *call)) } else { None });
        calls.filter(|(of, _)| *of == group).fold(0, |own, (_, call)| match call {
            Call::Create | Call::Mkdir | Call::Write => own + 1,
            Call::RemoveOwn => own - 1,
            _ => own,
        })
    };
    let running: Vec<usize> = (0..2).filter(|group| !has_ended(steps, *group)).collect();
    if running.is_empty() {
        return run(steps);
    }
    let first = steps.is_empty();
    for group in running.into_iter().filter(|group| !first || *group == 0) {
        let has_own = own(steps, group) > 0;
        let calls = CALLS.iter().filter(|call| left > 0 && (has_own || **call != Call::RemoveOwn));
        let calls: Vec<Step> = calls.map(|call| Step::Call(group, *call)).collect();
        let ends = [Step::Commit(group), Step::Abort(group)];
        for step in calls.into_iter().chain(ends) {
            steps.push(step);
            each_case(steps, left - usize::from(matches!(step, Step::Call(..))), run);
            steps.pop();
        }
    }
}

/// Whether a case is to be run.
fn is_wanted(case: u64, one_in: u64) -> bool {
    let wanted = std::env::var("WHOLLY_CASE").ok().map(|wanted| wanted.parse::<u64>().expect("a number"));
    wanted.map_or(is_long() || case.is_multiple_of(one_in), |wanted| wanted == case)
}

#[test]
fn two_groups_are_as_one_after_the_other() {
    for (is_disk, most, one_in) in [(false, 4, 199), (true, 3, 29)] {
        let bed = Bed::new(is_disk);
        let (mut all, mut cases, mut refused) = (0, 0, 0);
        each_case(&mut Vec::new(), most, &mut |steps| {
            if is_wanted(all, one_in) {
                refused += bed.run(2, steps, all);
                cases += 1;
            }
            all += 1;
        });
        println!("on a disk: {is_disk}: {cases} of {all} cases, {refused} calls refused");
    }
}

/// Steps of three groups with six calls, as chance has it.
fn by_chance(random: &mut Random) -> Vec<Step> {
    let (mut steps, mut own, mut running) = (Vec::new(), [0; 3], vec![0, 1, 2]);
    for _ in 0..6 {
        let mut calls = CALLS.iter().chain(&[Call::CreateSame, Call::Replace]).copied();
        let (group, call) = (random.below(3), calls.nth(random.below(CALLS.len() + 2)).expect("a call"));
        match call {
            Call::RemoveOwn if own[group] == 0 => continue,
            Call::RemoveOwn => own[group] -= 1,
            Call::Create | Call::Mkdir | Call::Write => own[group] += 1,
            _ => {}
        }
        steps.push(Step::Call(group, call));
    }
    // An end comes after the last call of its group.
    while !running.is_empty() {
        let group = running.swap_remove(random.below(running.len()));
        let calls = |step: &Step| matches!(step, Step::Call(of, _) if *of == group);
        let from = steps.iter().rposition(calls).map_or(0, |last| last + 1);
        let end = if random.below(3) > 0 { Step::Commit(group) } else { Step::Abort(group) };
        steps.insert(from + random.below(steps.len() + 1 - from), end);
    }
    steps
}

#[test]
fn three_groups_are_as_one_after_the_other() {
    let (bed, mut random, mut cases, mut refused) = (Bed::new(false), Random(11), 0, 0);
    for case in 0..if is_long() { 20_000 } else { 400 } {
        let steps = by_chance(&mut random);
        if is_wanted(case, 1) {
            refused += bed.run(3, &steps, case);
            cases += 1;
        }
    }
    println!("{cases} cases, {refused} calls refused");
}

/// The tests above see mistakes.
#[test]
fn mistakes_are_seen() {
    for mistake in [Mistake::BitsKept, Mistake::OthersLines, Mistake::MetadataStolen] {
        let bed = Bed::new(false);
        let trial = Trial { mistake: Some(mistake), ..Trial::default() };
        let bed = Bed { options: VolumeOptions { trial, ..bed.options.clone() }, ..bed };
        let mut random = Random(11);
        let is_seen = (0..20).any(|case| {
            let steps = by_chance(&mut random);
            catch_unwind(AssertUnwindSafe(|| bed.run(3, &steps, case))).is_err()
        });
        assert!(is_seen, "{mistake:?}");
    }
}
