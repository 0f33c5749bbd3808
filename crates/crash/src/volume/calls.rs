//! Programs of calls on a volume: [workloads](Workload) of calls, groups, kills and closes. Each call and each group is
//! compared with the model before the volume is crashed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use wholly::{DirEntry, Error, Fallocate};
use wholly_vfs::{Committed, Stat};
use wholly_volume::{EngineKind, Mistake, Trial, Volume, VolumeCalls, VolumeFile, VolumeGroup};

use super::{Making, OnVolume, Program, Running};
use crate::apart::go_together;
use crate::look::{FIFO, Names};
use crate::tree::{DIR_MODE, FIFO_MODE, FILE_MODE, Kind, OWNER, Object, State, times};
use crate::workload::{CROWD, Op, Start, Step, Workload, mix, of_crowd};
use crate::{script, sequences, store};

/// A workload whose steps are calls, groups, kills, closes and syncs.
#[derive(Clone, Debug)]
pub struct Calls {
    workload: Workload,
    making: Making,
    trial: Trial,
}

/// Programs with names of their own: name, what it covers, script.
pub const BY_HAND: &[(&str, &str, &str)] = &[
    ("made", "making a volume, and its first unmount", "bare,close"),
    ("made-again", "making a volume in the place of another one", "dirs,close"),
    (
        "orphan",
        "a file without a name, when the process dies",
        "bare,call.fill-A/foo,call.unlink-A/foo,call.write-@A/foo,kill,call.create-foo",
    ),
    (
        "orphan-closed",
        "a file without a name, when the volume is closed",
        "bare,call.more-A/foo,call.unlink-A/foo,call.append-@A/foo,close,call.create-foo",
    ),
    (
        "renamed-over",
        "a file that replaces another, and goes on after an unmount",
        "dirs,call.create-foo,call.fill-@foo,call.rename-foo-A/foo,close,call.append-A/foo",
    ),
    (
        "two-files",
        "groups over two files, committed and aborted",
        "dirs,call.fill-A/foo,call.create-B/foo,call.fill-B/foo,write-A/foo+write-B/foo,abort.write-A/foo+fill-B/foo,\
         fill-B/foo+write-A/foo,call.write-B/foo",
    ),
    (
        "partial-line",
        "two threads write parts of one line in turn",
        "bare,call.fill-A/foo,call.write-A/foo,call.nick-A/foo,call.append-A/foo,call.write-A/foo,call.append-A/foo",
    ),
    (
        "six-versions",
        "more versions of one block than stay",
        "bare,call.more-A/foo,call.fill-A/foo,call.write-A/foo,call.fill-A/foo,call.write-A/foo,call.fill-A/foo,\
         call.write-A/foo,call.append-A/foo,kill,call.write-A/foo",
    ),
    (
        "select-origin",
        "versions of few lines are copied home",
        "bare,call.more-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,\
         call.write-A/foo,call.append-A/foo,kill,call.write-A/foo",
    ),
    (
        "select-pending",
        "a version of a whole block becomes the home, and the old home another file's",
        "bare,call.more-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,\
         fill-A/foo+more-A/foo,call.create-foo,call.fill-foo,call.more-foo,kill,call.write-foo",
    ),
    (
        "swap-and-cut",
        "a group cuts a file of which the home is due to move",
        "bare,call.more-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,call.write-A/foo,\
         fill-A/foo+more-A/foo,cut-A/foo%create-foo+fill-foo,call.more-foo,call.grow-A/foo",
    ),
    (
        "hole-origin",
        "content in holes and in reserved blocks, and versions of it",
        "bare,call.grow-A/foo,call.reserve-A/foo,call.punch-A/foo,call.write-A/foo,call.write-A/foo,call.fill-A/foo,\
         call.append-A/foo,call.blank-A/foo,call.write-A/foo",
    ),
    (
        "zeros-and-content",
        "content that has become zeros in its block, and gets other content there",
        "bare,call.blank-A/foo,call.write-A/foo,kill,call.write-A/foo",
    ),
    (
        "cut-and-grown",
        "a tail with versions is cut, and grows again",
        "bare,call.more-A/foo,call.fill-A/foo,call.write-A/foo,call.cut-A/foo,call.grow-A/foo,call.write-A/foo,kill,\
         call.more-A/foo",
    ),
    (
        "commit-order",
        "groups that commit in the order in which they did not begin",
        "dirs,call.create-B/foo,fill-A/foo+create-A/bar%fill-B/foo+create-B/bar,call.write-A/foo,\
         write-B/foo+write-A/foo%create-foo,call.write-B/foo",
    ),
    (
        "one-name",
        "two groups that want one name: the second one goes, and what it had is free again",
        "dirs,create-foo%create-foo,rename-A/foo-bar%mkdir-bar,unlink-foo%create-B/foo+rename-bar-foo,call.create-B/foo,\
         call.link-bar-foo",
    ),
    (
        "abort-then-other",
        "what an aborted group has touched, others change",
        "bare,call.fill-A/foo,abort.write-A/foo+append-A/foo+create-foo+chmod-A,call.write-A/foo,call.create-foo,\
         call.chmod-A,call.fill-foo",
    ),
    (
        "number-reuse",
        "an inode with versions is removed, and its number another file's",
        "bare,call.fill-A/foo,call.write-A/foo,kill,call.write-A/foo,unlink-A/foo+create-A/foo,call.fill-A/foo,\
         call.write-A/foo,kill,call.unlink-A/foo,call.create-foo,call.fill-foo",
    ),
    (
        "block-reuse",
        "blocks with versions are freed, and another file's",
        "bare,call.more-A/foo,call.fill-A/foo,call.write-A/foo,call.punch-A/foo,call.create-foo,call.fill-foo,\
         call.more-foo,kill,call.write-foo",
    ),
    (
        "undo-thrice",
        "one inode is changed several times in a group",
        "bare,chmod-A/foo+times-A/foo+append-A/foo+cut-A/foo,abort.append-A/foo+chown-A/foo+times-A/foo+grow-A/foo,\
         call.append-A/foo,append-A/foo+tag-A/foo+append-A/foo+untag-A/foo+times-A/foo",
    ),
    (
        "spill",
        "a group of more than a lane",
        "dirs,call.fill-A/foo,create-foo+fill-foo+more-foo+create-bar+fill-bar+more-bar+create-A/bar+fill-A/bar+\
         write-A/foo+note-A/foo+note-foo+more-A/foo+mkdir-B/C+create-B/C/foo+fill-B/C/foo,call.write-A/foo",
    ),
    (
        "log-wrap",
        "each lane is used many times",
        "bare,call.append-A/foo,call.write-A/foo,call.append-A/foo,call.append-A/foo,call.write-A/foo,call.append-A/foo,\
         call.append-A/foo,call.write-A/foo,call.append-A/foo,call.append-A/foo,call.write-A/foo,call.append-A/foo",
    ),
    (
        "given-back",
        "a block of inodes in which none is in use is given back by an unmount, and its numbers come back",
        "crowd,call.unlink-n00,close,call.create-foo,kill,call.create-bar,call.unlink-foo,unlink-bar+create-baz,close,\
         call.write-A/foo",
    ),
    (
        "given-back-when-full",
        "the same by a call that has no space, and another one's content goes there",
        "crowd,call.unlink-n00,full.A/foo,kill,call.cut-A/foo,call.create-foo,call.fill-foo,kill,call.unlink-foo,\
         call.create-bar",
    ),
    (
        "long-names",
        "names of several slots, in a leaf that is there",
        "bare,call.create-long,call.rename-A/foo-longer,call.unlink-long,link-longer-long+unlink-longer,kill,\
         call.rename-long-longer",
    ),
    (
        "ordered-names",
        "names of a file that was made by a group that is ordered",
        "dirs,order.create-foo+fill-foo,order.rename-foo-bar,order.link-bar-A/bar+unlink-bar,order.rename-A/bar-B/foo,\
         call.chmod-A,order.unlink-B/foo,order.create-B/foo+append-B/foo",
    ),
    (
        "ordered-directory",
        "files in a directory that was made by a group that is ordered, and moved",
        "dirs,order.mkdir-C,order.create-C/foo+fill-C/foo,order.rename-C-B/C,order.rename-B/C/foo-A/bar+rmdir-B/C,home,\
         order.chmod-A/C,order.rename-A/C-B/C",
    ),
    (
        "ordered-file",
        "changes of one file, and a sync",
        "bare,order.fill-A/foo,order.more-A/foo+tag-A/foo,order.cut-A/foo,home,order.grow-A/foo,order.punch-A/foo,\
         call.write-A/foo,order.append-A/foo",
    ),
    (
        "ordered-reuse",
        "blocks that a group has freed which is ordered",
        "bare,create-foo+bulk-foo+create-bar+bulk-bar,create-A/bar+huge-A/bar,order.cut-foo,order.cut-bar,\
         order.create-baz+bulk-baz,call.chmod-A",
    ),
    (
        "ordered-aborts",
        "aborts, structure changes and calls between groups that are ordered",
        "dirs,order.create-foo+write-A/foo,abort.fill-A/foo+create-bar+append-foo,order.link-foo-long,\
         order.link-foo-longer+unlink-foo,abort.unlink-long+bulk-A/foo,order.fill-A/foo,\
         write-A/foo+create-baz%mkdir-C,order.rmdir-C",
    ),
    (
        "ordered-death",
        "deaths of the process and an unmount with groups that are ordered",
        "bare,order.fill-A/foo,order.append-A/foo,kill,order.write-A/foo,order.create-foo,close,call.append-A/foo",
    ),
    // The inodes that one move changes are in other blocks than those of the other one.
    (
        "ordered-moves",
        "a directory is moved out of another one, and that one into it",
        "crowd,call.mkdir-baz,call.mkdir-baz/C,call.mkdir-C,create-n01+create-n02+create-n03+create-n04+create-n05+\
         create-n06+create-n07+create-n08+create-n09+create-n10+create-n11+create-n12,call.mkdir-B,call.mkdir-baz/C/foo,\
         call.mkdir-baz/C/foo/bar,call.rename-C-baz/C/foo/bar/C,home,order.rename-baz/C/foo/bar-B/bar,\
         order.rename-baz/C-B/bar/C/C,call.chmod-B/bar/C",
    ),
    (
        "ordered-moves-grown",
        "the same, and between them a group for which the inode file grows",
        "crowd,call.mkdir-baz,call.mkdir-baz/C,call.mkdir-C,create-n01+create-n02+create-n03+create-n04+create-n05+\
         create-n06+create-n07+create-n08+create-n09+create-n10+create-n11+create-n12,\
         unlink-crowd/00+unlink-crowd/01+unlink-crowd/02,call.mkdir-B,call.mkdir-baz/C/foo,call.mkdir-baz/C/foo/bar,\
         call.rename-C-baz/C/foo/bar/C,home,order.rename-baz/C/foo/bar-B/bar,order.create-B/foo+create-baz/foo,\
         order.rename-baz/C-B/bar/C/C,call.chmod-B/bar/C",
    ),
    // Table 4 of MQFS: each call is a group of its own, and what is synced there is durable at its return here.
    (
        "ordered-create-delete",
        "create_delete of MQFS: ten files, each second one synced, each third one removed",
        "bare,order.create-n00,call.create-n01,order.create-n02,call.create-n03,order.create-n04,call.create-n05,\
         order.create-n06,call.create-n07,order.create-n08,call.create-n09,order.unlink-n00,order.unlink-n03,\
         order.unlink-n06,call.unlink-n09",
    ),
    (
        "ordered-generic-035",
        "generic/035 of xfstests: a file over one that is open, a directory over an empty one",
        "dirs,order.create-foo+fill-foo,order.rename-foo-A/foo,order.write-@A/foo,order.mkdir-C,order.mkdir-B/C,\
         order.rename-C-B/C,call.chmod-B",
    ),
    (
        "ordered-generic-106",
        "generic/106 of xfstests: a file loses one of its names, and then the last one with its directory",
        "dirs,order.mkdir-C,order.create-C/foo,order.link-C/foo-C/C,home,order.unlink-C/foo,call.append-C/C,\
         order.unlink-C/C,order.rmdir-C,home",
    ),
    (
        "ordered-generic-321",
        "generic/321 of xfstests: directories that are renamed, and what is new in them",
        "dirs,call.mkdir-C,order.rename-C-A/C,call.chmod-A,order.create-A/C/foo,call.fill-A/C/foo,order.rename-A/C-B/C,\
         call.chmod-B,call.chmod-A,order.mkdir-B/C/C,call.create-B/C/bar",
    ),
    (
        "clean-unmount",
        "unmounts with versions, and calls after them",
        "bare,call.fill-A/foo,call.write-A/foo,close,call.write-A/foo,append-A/foo+write-A/foo,close,call.append-A/foo",
    ),
];

/// One in so many of the pairs is `some-pairs`.
const ONE_IN: usize = 20;
/// Few pages, so that content is stored before its commit.
const FEW_PAGES: Trial = Trial { pages: Some(16), ..Trial::NONE };

/// The script of a seed: two threads write to two files, in calls and groups, and two others write back, a block at a
/// time. Now and then a file is cut or removed, or the process dies.
fn drawn(seed: u64) -> String {
    const FILES: [&str; 2] = ["A/foo", "foo"];
    let mut number = mix(seed ^ 0x0f1e << 32);
    let mut below = |limit: u64| {
        number = mix(number);
        ((u128::from(number) * u128::from(limit)) >> 64) as u64
    };
    let mut script = String::from("bare,create-foo+fill-A/foo+more-A/foo");
    for _ in 0..10 {
        let (file, other) = if below(2) == 0 { (FILES[0], FILES[1]) } else { (FILES[1], FILES[0]) };
        let content = ["write", "fill", "more", "append", "blank", "nick"];
        let (one, two) = (content[below(4) as usize], content[below(6) as usize]);
        let step = match below(32) {
            0..12 => format!("call.{one}-{file}"),
            12..23 => "pass".into(),
            23 | 24 => format!("{one}-{file}+{two}-{other}"),
            25 => format!("{one}-{file}+{two}-{file}%chmod-A+{one}-{other}"),
            26 => format!("abort.{one}-{file}+{two}-{other}"),
            27 => format!("call.cut-{file}"),
            28 => format!("call.punch-{file}"),
            29 => format!("unlink-{file}+create-{file}+fill-{file}"),
            30 => format!("rename-{file}-bar+rename-{other}-{file}+rename-bar-{other}"),
            _ => "kill".into(),
        };
        script = script + "," + &step;
    }
    script
}

/// Whether groups of an engine can return at the order.
pub fn orders(engine: EngineKind) -> bool {
    matches!(engine, EngineKind::PageCacheWal | EngineKind::OpLog | EngineKind::MultiQueue)
}

/// The programs that a name stands for: `by-hand`, `ones`, `pairs`, `some-pairs`, `ordered-pairs`, `random-3..9` for
/// those that are drawn from these seeds, that of one, or a script.
pub fn several(engine: EngineKind, name: &str) -> Option<Vec<OnVolume<Calls>>> {
    let on_volume = |program| OnVolume { engine, program };
    if let Some((from, to)) = name.strip_prefix("random-").and_then(|seeds| seeds.split_once("..")) {
        let seeds = from.parse::<u64>().ok()?..to.parse().ok()?;
        return (seeds).map(|seed| Calls::named(&format!("random-{seed}")).map(on_volume)).collect();
    }
    let workloads = match name {
        "by-hand" => {
            let is_of = |name: &str| orders(engine) || !name.starts_with("ordered");
            let names = BY_HAND.iter().map(|(name, ..)| *name).filter(|name| is_of(name));
            return names.map(|name| Calls::named(name).map(on_volume)).collect();
        }
        "ones" => sequences::ones_on_volumes(),
        "pairs" => sequences::pairs_on_volumes(),
        "some-pairs" => sequences::pairs_on_volumes().into_iter().step_by(ONE_IN).collect(),
        "ordered-pairs" => sequences::ordered_pairs(),
        _ => return Calls::named(name).map(|program| vec![on_volume(program)]),
    };
    Some(
        workloads
            .into_iter()
            .map(|workload| on_volume(Calls { workload, making: Making::Before, trial: FEW_PAGES }))
            .collect(),
    )
}

impl Calls {
    /// The program with this name, or of this script.
    pub fn named(name: &str) -> Option<Calls> {
        let drawn = name.strip_prefix("random-").and_then(|seed| seed.parse().ok()).map(drawn);
        let by_hand = BY_HAND.iter().find(|(known, ..)| *known == name).map(|(.., script)| (*script).to_owned());
        let script = drawn.or(by_hand).unwrap_or_else(|| name.into());
        let workload = Workload { name: name.into(), ..script::workload(&script)? };
        use Step::{Across, Call, Checkpoint, Full, Group, Order, Pass, Reopen};
        let is_known = |step: &Step| {
            matches!(step, Call(_) | Group { .. } | Order(_) | Across { .. } | Reopen { .. } | Full(_))
                || matches!(step, Checkpoint | Pass)
        };
        let making = match name {
            "made" => Making::New,
            "made-again" => Making::Over,
            _ => Making::Before,
        };
        workload.steps.iter().all(is_known).then_some(Calls { workload, making, trial: FEW_PAGES })
    }
}

impl Calls {
    /// The same on an engine with a mistake.
    pub fn with(self, mistake: Mistake) -> Calls {
        Calls { trial: Trial { mistake: Some(mistake), ..self.trial }, ..self }
    }

    /// The same with a mistake of the journal that the engine is over.
    pub fn with_journal(self, mistake: wholly_blocks::multi_queue::Mistake) -> Calls {
        Calls { trial: Trial { journal: Some(mistake), ..self.trial }, ..self }
    }
}

impl Program for Calls {
    fn name(&self) -> String {
        self.workload.name.clone()
    }

    fn trial(&self) -> Trial {
        self.trial
    }

    fn making(&self) -> Making {
        self.making
    }

    fn orders(&self) -> bool {
        self.workload.steps.iter().any(|step| matches!(step, Step::Order(_)))
    }

    fn prepare(&self, volume: &Volume) -> Result<(), String> {
        let state = self.workload.initial();
        if self.workload.start == Start::Crowd { crowd(volume, &state) } else { fill(volume, &state) }
    }

    fn perform(&self, running: &mut Running<'_>) -> Result<(), String> {
        let made_before = self.making == Making::Before;
        let model = if made_before { self.workload.initial() } else { State::default() };
        let mut caller = Caller { running, past: vec![model.clone()], model, files: BTreeMap::new(), writes: 0 };
        caller.has_opened()?;
        for (i, step) in self.workload.steps.iter().enumerate() {
            caller.step(i, step)?;
            caller.past.push(caller.model.clone());
            if let Some(difference) = caller.model.difference(caller.running.state()) {
                return Err(format!("after step {i}: {difference}"));
            }
        }
        // A process that has died closes no files.
        caller.running.die();
        Ok(())
    }

    fn ops_after(&self, state: &State) -> Vec<Op> {
        store::ops_after(&self.workload, state)
    }

    fn rules(&self) -> String {
        format!("{:?}", self.workload.start)
    }
}

/// Makes all of a state in an empty volume: directories and files.
///
/// # Errors
/// In words.
///
/// # Panics
/// If there is anything else in the state.
pub fn fill(volume: &VolumeCalls, state: &State) -> Result<(), String> {
    state.paths().iter().try_for_each(|(path, number)| make(volume, path, state.object(*number)))
}

fn make(volume: &VolumeCalls, path: &str, object: &Object) -> Result<(), String> {
    match &object.kind {
        Kind::Dir(_) => volume.mkdir(path, object.mode),
        Kind::File(content) => volume.create_file(path, object.mode).and_then(|file| file.write_at(0, content)),
        kind => panic!("{path} cannot be there at first: {kind:?}"),
    }
    .map_err(|error| format!("{path}: {error}"))
}

/// The same of a [crowd](Start::Crowd): numbers are given out in order, 16 to a block. The inode file has given back
/// its last blocks.
fn crowd(volume: &VolumeCalls, state: &State) -> Result<(), String> {
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for (path, number) in state.paths() {
        let is_behind = (CROWD[0]..CROWD[0] + CROWD[1]).any(|number| path == of_crowd(number));
        (if is_behind { &mut behind } else { &mut before }).push((path, number));
    }
    // It is the last one of these.
    before.sort_by_key(|(path, _)| path == "n00");
    let all =
        |paths: &[(String, _)]| paths.iter().try_for_each(|(path, number)| make(volume, path, state.object(*number)));
    let passing = |number: usize| format!("passing-{number}");
    all(&before)?;
    let fail = |error| format!("a crowd: {error}");
    (0..15).try_for_each(|i| volume.create_file(passing(i), FILE_MODE).map(drop)).map_err(fail)?;
    all(&behind)?;
    (0..15).try_for_each(|i| volume.unlink(passing(i))).map_err(fail)?;
    let number = volume.metadata("n00").map_err(fail)?.ino;
    if number == 64 { Ok(()) } else { Err(format!("a crowd: n00 has the number {number}")) }
}

/// Makes the calls, on the volume and on the model.
struct Caller<'c, 'r> {
    running: &'c mut Running<'r>,
    model: State,
    /// The model after each step.
    past: Vec<State>,
    /// What is open, by the path by which it was opened.
    files: BTreeMap<String, Arc<VolumeFile>>,
    writes: u64,
}

impl Caller<'_, '_> {
    /// Another process opens every file.
    fn has_opened(&mut self) -> Result<(), String> {
        self.model.reopen();
        for path in self.model.opened() {
            let file = self.running.volume().open_file(path).map_err(|error| format!("opening {path}: {error}"))?;
            self.files.insert(path.into(), Arc::new(file));
        }
        Ok(())
    }

    fn step(&mut self, i: usize, step: &Step) -> Result<(), String> {
        match step {
            Step::Call(op) => self.call(i, op),
            Step::Group { ops, commit } => {
                let mut open = self.begin(i)?;
                if let Some(busy) = self.ops(i, &mut open, ops)? {
                    return Err(format!("in a group that is alone: {busy}"));
                }
                if *commit { self.commit(i, open, Committed::Durable) } else { self.abort(i, open) }
            }
            Step::Order(ops) => {
                let mut open = self.begin(i)?;
                if let Some(busy) = self.ops(i, &mut open, ops)? {
                    return Err(format!("in a group that is alone: {busy}"));
                }
                self.commit(i, open, Committed::Ordered)
            }
            Step::Across { first, second } => self.across(i, first, second),
            Step::Full(file) => self.full(i, file),
            Step::Checkpoint => self
                .running
                .sync_step(&format!("sync {i}"), |volume| volume.sync())?
                .map_err(|error| format!("sync: {error}")),
            Step::Pass => self
                .running
                .background_step(&format!("pass {i}"), Volume::checkpoint_one)?
                .map(drop)
                .map_err(|error| format!("in the background: {error}")),
            Step::Reopen { close } => {
                if *close {
                    self.files.clear();
                    self.running.close()?;
                } else {
                    self.running.die();
                    self.files.clear();
                }
                self.running.open()?;
                // What was not durable is gone with the process.
                let left = self.past.iter().rev().find(|past| past.difference(self.running.state()).is_none());
                if let Some(left) = left.cloned() {
                    self.model = left;
                }
                self.has_opened()
            }
            step => Err(format!("{step:?} is no step of a volume")),
        }
    }

    fn call(&mut self, i: usize, op: &Op) -> Result<(), String> {
        let bytes = op.bytes(self.writes + 1);
        self.writes += u64::from(bytes.is_some());
        let bytes = bytes.unwrap_or_default();
        let handle = self.model.handle(op.file()).map(String::from);
        let refused = self.model.apply(op, &bytes).err();
        if refused.is_some() && op.is_of_bytes() {
            return Ok(());
        }
        let file = handle.and_then(|path| self.files.get(&path).cloned());
        let done = self.running.step(&format!("call {i}"), |volume| call(volume, file, op, &bytes))?;
        match (done, refused) {
            (Ok(made), None) => self.files.extend(made.map(|file| (op.file().into(), file))),
            (Err(error), Some(refused)) if error.errno() == refused.raw_os_error() => {}
            (Err(error), None) => return Err(format!("call {i}: {op:?}: {error}")),
            (done, Some(refused)) => return Err(format!("call {i}: {op:?}: {:?} instead of {refused}", done.err())),
        }
        Ok(())
    }

    /// Each call is one by itself. Those that are refused change nothing.
    fn full(&mut self, i: usize, file: &'static str) -> Result<(), String> {
        const BLOCK: u64 = 4096;
        let mut offset = 1 << 20;
        let mut blocks = self.running.volume().stat().free_blocks;
        while blocks > 0 {
            let op = Op::Fallocate { file, how: Fallocate::Keep, offset, length: blocks * BLOCK };
            let open = self.model.handle(file).and_then(|path| self.files.get(path)).cloned();
            match self.running.step(&format!("full {i}"), |volume| call(volume, open, &op, &[]))? {
                Ok(_) => {
                    self.model.apply(&op, &[]).map_err(|error| format!("full {i}: {error}"))?;
                    offset += blocks * BLOCK;
                }
                Err(Error::NoSpace(_)) => blocks /= 2,
                Err(error) => return Err(format!("full {i}: {error}")),
            }
        }
        match self.running.volume().stat().idle_blocks {
            0 => Ok(()),
            idle => Err(format!("full {i}: refused, and the inode file does not need {idle} blocks")),
        }
    }

    fn begin(&mut self, i: usize) -> Result<Open, String> {
        let group = self.running.group_step(&format!("group {i}"), Volume::begin)?;
        Ok(Open { group, base: self.model.clone(), private: self.model.clone(), files: BTreeMap::new() })
    }

    /// Makes calls in a group, up to the first that another group is in the way of: what that one says.
    fn ops(&mut self, i: usize, open: &mut Open, ops: &[Op]) -> Result<Option<Error>, String> {
        for op in ops {
            let bytes = op.bytes(self.writes + 1);
            self.writes += u64::from(bytes.is_some());
            let bytes = bytes.unwrap_or_default();
            // What is written to is found as it was before.
            let handle = open.private.handle(op.file()).map(String::from);
            let refused = open.private.apply(op, &bytes).err();
            if refused.is_some() && op.is_of_bytes() {
                continue;
            }
            let file = handle.and_then(|path| open.files.get(&path).or_else(|| self.files.get(&path)).cloned());
            let done =
                self.running.group_step(&format!("in group {i}"), |_| in_group(&mut open.group, file, op, &bytes))?;
            match (done, refused) {
                (Ok(made), None) => open.files.extend(made.map(|file| (op.file().into(), file))),
                (Err(busy @ Error::Busy(..)), _) => return Ok(Some(busy)),
                (Err(error), Some(refused)) if error.errno() == refused.raw_os_error() => {}
                (Err(error), None) => return Err(format!("in group {i}: {op:?}: {error}")),
                (done, Some(refused)) => {
                    return Err(format!("in group {i}: {op:?}: {:?} instead of {refused}", done.err()));
                }
            }
        }
        Ok(None)
    }

    fn commit(&mut self, i: usize, mut open: Open, how: Committed) -> Result<(), String> {
        let exclude = |what| format!("two groups that exclude each other were let through: {what}");
        self.model.merge(&open.base, &open.private).map_err(exclude)?;
        let done = match how {
            Committed::Durable => self.running.sync_step(&format!("commit {i}"), |_| open.group.commit()),
            Committed::Ordered => self.running.order_step(&format!("order {i}"), |_| open.group.commit_atomic()),
        }?;
        self.files.append(&mut open.files);
        done.map_err(|error| format!("commit {i}: {error}"))
    }

    fn abort(&mut self, i: usize, open: Open) -> Result<(), String> {
        let Open { group, files, .. } = open;
        drop(files);
        self.running.group_step(&format!("abort {i}"), |_| group.abort())
    }

    fn across(&mut self, i: usize, first: &[Op], second: &[Op]) -> Result<(), String> {
        let mut one = self.begin(i)?;
        if let Some(busy) = self.ops(i, &mut one, first)? {
            return Err(format!("in a group that is alone: {busy}"));
        }
        let mut other = self.begin(i)?;
        if let Some(busy) = self.ops(i, &mut other, second)? {
            if go_together(&other.base, first, second) {
                return Err(format!("two groups that have nothing to do with each other: {busy}"));
            }
            self.running.is_in_the_way();
            self.abort(i, other)?;
        } else {
            self.commit(i, other, Committed::Durable)?;
        }
        self.commit(i, one, Committed::Durable)
    }
}

/// A group that has begun.
struct Open {
    group: VolumeGroup,
    /// What everybody saw when it began.
    base: State,
    /// As it sees everything, but for what others have committed since.
    private: State,
    /// Files that it made, by path.
    files: BTreeMap<String, Arc<VolumeFile>>,
}

/// The same as [`call`], in a group.
fn in_group(
    group: &mut VolumeGroup,
    file: Option<Arc<VolumeFile>>,
    op: &Op,
    bytes: &[u8],
) -> wholly::Result<Option<Arc<VolumeFile>>> {
    if !op.is_of_bytes() {
        return call(group, None, op, bytes);
    }
    let file = match file {
        Some(file) => file,
        None => Arc::new(group.open_file(op.file())?),
    };
    match op {
        Op::Write { offset, .. } => group.write_at(&file, *offset, bytes),
        Op::Append { .. } => group.append(&file, bytes).map(drop),
        Op::SetLen { length, .. } => group.set_len(&file, *length),
        Op::Fallocate { how, offset, length, .. } => group.fallocate(&file, *how, *offset, *length),
        op => unreachable!("{op:?} changes no bytes"),
    }
    .map(|()| None)
}

/// Makes a call; `file`, where it is open, is the one whose bytes it changes. Returns a file that it made.
pub(super) fn call(
    volume: &VolumeCalls,
    file: Option<Arc<VolumeFile>>,
    op: &Op,
    bytes: &[u8],
) -> wholly::Result<Option<Arc<VolumeFile>>> {
    let opened = |path: &str| match &file {
        Some(file) => Ok(file.clone()),
        None => volume.open_file(path).map(Arc::new),
    };
    match op {
        Op::Create(path) => return volume.create_file(path, FILE_MODE).map(Arc::new).map(Some),
        Op::Mkdir(path) => volume.mkdir(path, DIR_MODE),
        Op::Adopt { .. } | Op::RemoveTree(_) => panic!("only stores do that: {op:?}"),
        Op::Mknod(path) => volume.mknod(path, FIFO | FIFO_MODE, 0),
        Op::Symlink { target, path } => volume.symlink(target, path),
        Op::Link { from, to } => volume.link(from, to),
        Op::Unlink(path) => volume.unlink(path),
        Op::Rmdir(path) => volume.rmdir(path),
        Op::Rename { from, to, how } => volume.rename(from, to, *how),
        Op::Write { file, offset, .. } => opened(file)?.write_at(*offset, bytes),
        Op::Append { file, .. } => opened(file)?.append(bytes).map(drop),
        Op::SetLen { file, length } => opened(file)?.set_len(*length),
        Op::Fallocate { file, how, offset, length } => opened(file)?.fallocate(*how, *offset, *length),
        Op::SetMode { path, mode } => volume.set_mode(path, *mode),
        Op::SetOwner(path) => volume.set_owner(path, Some(OWNER.0), Some(OWNER.1)),
        Op::SetTimes { path, atime, mtime } => {
            let (accessed, changed) = times(bytes);
            volume.set_times(path, atime.then_some(accessed), mtime.then_some(changed))
        }
        Op::SetXattr { path, name, how, .. } => volume.set_xattr(path, name, bytes, *how),
        Op::RemoveXattr { path, name } => volume.remove_xattr(path, name),
    }
    .map(|()| None)
}

impl Names for &VolumeCalls {
    const NOTES_LOOKS: bool = true;
    const IS_EXACT: bool = true;

    fn read_dir(&mut self, path: &str) -> wholly::Result<Vec<DirEntry>> {
        VolumeCalls::read_dir(self, path)
    }

    fn metadata(&mut self, path: &str) -> wholly::Result<Stat> {
        VolumeCalls::metadata(self, path)
    }

    fn read_link(&mut self, path: &str) -> wholly::Result<Vec<u8>> {
        VolumeCalls::read_link(self, path)
    }

    fn xattrs(&mut self, path: &str) -> wholly::Result<Vec<Vec<u8>>> {
        VolumeCalls::xattrs(self, path)
    }

    fn xattr(&mut self, path: &str, name: &[u8]) -> wholly::Result<Option<Vec<u8>>> {
        VolumeCalls::xattr(self, path, OsStr::from_bytes(name))
    }

    fn content(&mut self, path: &str) -> wholly::Result<Vec<u8>> {
        VolumeCalls::read_file(self, path)
    }
}
