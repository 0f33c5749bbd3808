//! Doing a workload on a store.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use wholly::{Error, File, Group, Options, ParkedId, Store};
use wholly_sim::World;
use wholly_vfs::Policy;

use crate::apart::go_together;
use crate::look::{FIFO, served, tree};
use crate::run::Recorder;
use crate::setting::Setting;
use crate::tree::{DIR_MODE, FIFO_MODE, FILE_MODE, OWNER, State, in_layer, make_in_layer, times};
use crate::workload::{Adopted, Op, Start, Step, Workload};

/// What identifies the store of every workload.
const VOLUME_ID: [u8; 16] = *b"crash explorer..";

/// Makes the store of a world.
pub(crate) fn format(world: &Arc<World>, workload: &Workload, setting: &Setting) -> wholly::Result<()> {
    Store::format_on(&*world.log(), &workload.options(setting.segment_bytes()), VOLUME_ID)
}

/// Opens the store of a world. Where persistent memory is that of x86, groups that could commit on the straight path
/// take the general one: so the same groups are explored on both.
pub(crate) fn open(world: &Arc<World>, workload: &Workload, setting: &Setting) -> wholly::Result<Store> {
    let options =
        Options { straight: !setting.name.starts_with("pmem-x86"), ..workload.options(setting.segment_bytes()) };
    Store::open_on(world.log(), world.host(), options, None)
}

struct Runner<'w> {
    workload: &'w Workload,
    setting: &'w Setting,
    recorder: &'w mut Recorder,
    store: Option<Store>,
    /// What is open, by the path by which it was opened.
    files: BTreeMap<String, File>,
    /// What has committed.
    state: State,
    /// What everybody sees: under other policies than `per-op` that runs ahead of what has committed.
    visible: State,
    writes: u64,
    parks: u32,
}

type Failed = String;

fn failed(what: &str) -> impl Fn(wholly::Error) -> Failed + '_ {
    move |error| format!("{what}: {error}")
}

/// Does a workload on a store.
pub(crate) fn perform(workload: &Workload, setting: &Setting, recorder: &mut Recorder) -> Result<(), Failed> {
    let initial = workload.initial();
    // What a panic left may not be fit to be dropped.
    let mut runner = ManuallyDrop::new(Runner {
        workload,
        setting,
        recorder,
        store: None,
        files: BTreeMap::new(),
        state: initial.clone(),
        visible: initial,
        writes: 0,
        parks: 0,
    });
    runner.all()?;
    drop(ManuallyDrop::into_inner(runner));
    Ok(())
}

impl Runner<'_> {
    fn all(&mut self) -> Result<(), Failed> {
        self.operation("making the store", self.state.clone(), |runner| {
            format(&runner.recorder.world, runner.workload, runner.setting).map_err(failed("making the store"))
        })?;
        self.open()?;
        for (i, step) in self.workload.steps.iter().enumerate() {
            self.step(i, step)?;
            let served = served(&self.recorder.world, self.store(), self.workload)?;
            if let Some(difference) = self.visible.difference(&served) {
                return Err(format!("after step {i}: {difference}"));
            }
        }
        // Dropped, not closed: what is in the log stays there.
        self.drop_all()
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// What is committed once the calls on a file so far have.
    fn synced(&self, file: &str) -> State {
        let mut after = self.state.clone();
        match self.workload.policy {
            Policy::PerOp => {}
            Policy::PerSync => after.take_content(file, &self.visible),
            Policy::Shared { .. } => after = self.visible.clone(),
        }
        after
    }

    /// Gives up every file, which under some policies commits what was done to it.
    fn drop_files(&mut self) -> Result<(), Failed> {
        if self.visible == self.state {
            self.files.clear();
        }
        while let Some((path, file)) = self.files.pop_first() {
            let after = match self.workload.policy {
                Policy::Shared { .. } => self.state.clone(),
                _ => self.synced(&format!("@{path}")),
            };
            self.operation(format!("close of {path}"), after, |_| {
                drop(file);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn drop_all(&mut self) -> Result<(), Failed> {
        self.drop_files()?;
        let store = self.store.take();
        self.operation("end of the process", self.visible.clone(), |_| {
            drop(store);
            Ok(())
        })
    }

    /// Records an operation whose effect, once it has returned, is `after`.
    fn operation<T>(
        &mut self,
        label: impl Into<String>,
        after: State,
        body: impl FnOnce(&mut Self) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let op = self.recorder.begin(label, &after);
        let result = body(self)?;
        self.recorder.end(op);
        self.state = after;
        Ok(result)
    }

    fn open(&mut self) -> Result<(), Failed> {
        self.operation("open", self.state.clone(), |runner| {
            let store = open(&runner.recorder.world, runner.workload, runner.setting).map_err(failed("open"))?;
            if let Some(conflict) = store.recovery().conflicts.first() {
                return Err(format!("open reports a conflict: {conflict:?}"));
            }
            runner.store = Some(store);
            Ok(())
        })?;
        self.state.reopen();
        self.visible = self.state.clone();
        for path in self.state.opened() {
            let file = self.store().open_file(path).map_err(failed("opening a file"))?;
            self.files.insert(path.into(), file);
        }
        Ok(())
    }

    fn bytes(&mut self, op: &Op) -> Vec<u8> {
        let bytes = op.bytes(self.writes + 1);
        self.writes += u64::from(bytes.is_some());
        bytes.unwrap_or_default()
    }

    fn step(&mut self, i: usize, step: &Step) -> Result<(), Failed> {
        match step {
            Step::Group { ops, commit } => {
                let mut group = self.begin(i)?;
                if let Some(busy) = self.ops(i, &mut group, ops)? {
                    return Err(format!("in a group that is alone: {busy}"));
                }
                if *commit {
                    return self.commit(i, group);
                }
                self.abort(i, group)?;
                self.has_given_back(ops)
            }
            Step::Across { first, second } => self.across(i, first, second),
            Step::Park { ops, stays } => self.park(i, ops, *stays),
            Step::Apply { number, clash } => self.apply(i, *number, *clash),
            Step::ApplyOver { number } => self.apply_over(i, *number),
            Step::Discard { number } => {
                let (mut after, mut visible) = (self.state.clone(), self.visible.clone());
                [&mut after, &mut visible].into_iter().for_each(|state| state.discard(*number));
                let id = self.parked(*number)?;
                self.operation(format!("discard {i}"), after, |runner| {
                    runner.store().discard(id).map_err(failed("discard"))
                })?;
                self.visible = visible;
                Ok(())
            }
            Step::Keep => {
                let (mut after, mut visible) = (self.state.clone(), self.visible.clone());
                [&mut after, &mut visible].into_iter().for_each(|state| state.set_temporary(false));
                self.operation(format!("keep {i}"), after, |runner| runner.store().keep().map_err(failed("keep")))?;
                self.visible = visible;
                Ok(())
            }
            Step::Call(op) => self.call(i, op),
            Step::Full(_) | Step::Order(_) => Err(format!("{step:?} is no step of a store")),
            Step::Checkpoint => self.operation(format!("checkpoint {i}"), self.state.clone(), |runner| {
                runner.store().checkpoint().map_err(failed("checkpoint"))?;
                Ok(())
            }),
            Step::Announce => self.operation(format!("lot {i}"), self.state.clone(), |runner| {
                runner.store().announce_lot().map_err(failed("announcement of a lot"))
            }),
            Step::Pass => self.operation(format!("pass {i}"), self.state.clone(), |runner| {
                runner.store().take_lot_home().map_err(failed("pass"))?;
                Ok(())
            }),
            Step::Reopen { close } => {
                if *close {
                    self.drop_files()?;
                    let store = self.store.take().expect("it is open");
                    self.operation(format!("close {i}"), self.visible.clone(), |_| {
                        store.close().map_err(failed("close"))
                    })?;
                } else {
                    self.drop_all()?;
                }
                self.open()
            }
            Step::Sync(file) => {
                let Some(handle) = self.files.get(*file).cloned() else { return Ok(()) };
                self.operation(format!("sync {i}"), self.synced(file), |_| handle.sync().map_err(failed("sync")))
            }
        }
    }

    fn begin(&mut self, i: usize) -> Result<Open, Failed> {
        let group = self.operation(format!("group {i}"), self.state.clone(), |runner| Ok(runner.store().begin()))?;
        Ok(Open { group, base: self.visible.clone(), private: self.visible.clone(), files: BTreeMap::new() })
    }

    /// Does ops in a group, up to the first that another group is in the way of: what that one says.
    fn ops(&mut self, i: usize, open: &mut Open, ops: &[Op]) -> Result<Option<Error>, Failed> {
        for op in ops {
            let bytes = self.bytes(op);
            // What is written to is found as it was before.
            let handle = open.private.handle(op.file()).map(String::from);
            let refused = open.private.apply(op, &bytes).err();
            if refused.is_some() && op.is_of_bytes() {
                continue;
            }
            let made = handle.as_ref().and_then(|path| open.files.get(path)).cloned();
            let is_made = made.is_some();
            let file = made.or_else(|| self.files.get(&handle?).cloned());
            // A file that a group joins is synced first; what it has made itself it does not join.
            let changes =
                op.is_of_bytes() && (!bytes.is_empty() || matches!(op, Op::SetLen { .. } | Op::Fallocate { .. }));
            let joins = !is_made && (changes || matches!(op, Op::Append { .. }));
            let after = if joins { self.synced(op.file()) } else { self.state.clone() };
            let done = self.operation(format!("in group {i}"), after, |runner| {
                if let Op::Adopt { path, what } = op {
                    runner.bring(path, *what, &bytes)?;
                }
                Ok(open.perform(file, op, &bytes))
            })?;
            match (done, refused) {
                (Ok(()), None) => {}
                (Err(busy @ Error::Busy(..)), _) => return Ok(Some(busy)),
                (Err(error), Some(refused)) if error.errno() == refused.raw_os_error() => {}
                (Err(error), None) => return Err(format!("in a group: {op:?}: {error}")),
                (done, Some(refused)) => return Err(format!("in a group: {op:?}: {done:?} instead of {refused}")),
            }
        }
        Ok(None)
    }

    /// Another program makes in the layer what is to be adopted.
    fn bring(&self, path: &str, what: Adopted, bytes: &[u8]) -> Result<(), Failed> {
        let host = self.recorder.world.host();
        if host.stat(wholly::LAYER.as_bytes()).is_err() {
            self.store().make_layer().map_err(failed("making the layer"))?;
        }
        make_in_layer(&*host, path, what, bytes).map_err(|error| format!("in the layer: {error}"))
    }

    /// What a group had adopted, and did not commit, lies in the layer again.
    fn has_given_back(&self, ops: &[Op]) -> Result<(), Failed> {
        let host = self.recorder.world.host();
        let lost = |path: &&str| host.stat(in_layer(path).as_bytes()).is_err();
        let adopted = ops.iter().filter_map(|op| match op {
            Op::Adopt { path, what: Adopted::File | Adopted::Whole } => Some(*path),
            _ => None,
        });
        match adopted.into_iter().find(lost) {
            Some(path) => Err(format!("what was to be adopted as {path} is not given back")),
            None => Ok(()),
        }
    }

    fn commit(&mut self, i: usize, mut open: Open) -> Result<(), Failed> {
        let (mut after, mut visible) = (self.state.clone(), self.visible.clone());
        for state in [&mut after, &mut visible] {
            let exclude = |what| format!("two groups that exclude each other were let through: {what}");
            state.merge(&open.base, &open.private).map_err(exclude)?;
        }
        if self.workload.start != Start::Files {
            let mut seen = tree(&mut open.group, &mut |path, error| Err(format!("group {i}, {path}: {error}")))?;
            seen.take_parked(&visible);
            if let Some(difference) = visible.difference(&seen) {
                return Err(format!("as group {i} sees it, {difference}"));
            }
        }
        self.operation(format!("commit {i}"), after, |_| open.group.commit().map_err(failed("commit")))?;
        self.files.append(&mut open.files);
        self.visible = visible;
        Ok(())
    }

    fn abort(&mut self, i: usize, open: Open) -> Result<(), Failed> {
        let Open { group, files, .. } = open;
        drop(files);
        self.operation(format!("abort {i}"), self.state.clone(), |_| {
            group.abort();
            Ok(())
        })
    }

    fn park(&mut self, i: usize, ops: &[Op], stays: bool) -> Result<(), Failed> {
        let mut open = self.begin(i)?;
        if let Some(busy) = self.ops(i, &mut open, ops)? {
            return Err(format!("in a group that is alone: {busy}"));
        }
        let Open { group, private, files, .. } = open;
        drop(files);
        let (mut after, mut visible) = (self.state.clone(), self.visible.clone());
        [&mut after, &mut visible].into_iter().for_each(|state| state.park(&private, stays));
        self.parks += 1;
        let note = self.parks.to_string();
        self.operation(format!("park {i}"), after, |_| {
            group.park(&note, (!stays).then_some(Duration::ZERO)).map_err(failed("park"))
        })?;
        self.visible = visible;
        Ok(())
    }

    /// The id of a parked group.
    fn parked(&self, number: u32) -> Result<ParkedId, Failed> {
        let all = self.store().parked().map_err(failed("what is parked"))?;
        let parked = all.iter().find(|parked| parked.note == number.to_string());
        parked.map(|parked| parked.id).ok_or_else(|| format!("group {number} is not parked"))
    }

    fn apply(&mut self, i: usize, number: u32, clash: bool) -> Result<(), Failed> {
        let id = self.parked(number)?;
        let (mut after, mut visible) = (self.state.clone(), self.visible.clone());
        if !clash {
            for state in [&mut after, &mut visible] {
                state
                    .apply_parked(number)
                    .map_err(|what| format!("parked group {number} cannot be applied: {what}"))?;
            }
        }
        let done = self.operation(format!("apply {i}"), after, |runner| Ok(runner.store().apply(id)))?;
        self.visible = visible;
        match (done, clash) {
            (Ok(()), false) | (Err(Error::ChangedMeanwhile(..)), true) => Ok(()),
            (done, _) => Err(format!("apply {i}: {done:?}, and clash is {clash}")),
        }
    }

    fn apply_over(&mut self, i: usize, number: u32) -> Result<(), Failed> {
        let id = self.parked(number)?;
        let (mut after, mut visible) = (self.state.clone(), self.visible.clone());
        for state in [&mut after, &mut visible] {
            state.apply_over(number).map_err(|what| format!("parked group {number} cannot be applied over: {what}"))?;
        }
        let all: [&str; 0] = [];
        let done = self.operation(format!("apply {i}"), after, |runner| {
            runner.store().apply_over(id, &all, &all).map_err(failed("apply over what is there"))
        })?;
        self.visible = visible;
        match done {
            (false, replaced) if !replaced.is_empty() => Ok(()),
            done => Err(format!("apply {i}: {done:?}, and something is in the way of all of it")),
        }
    }

    fn across(&mut self, i: usize, first: &[Op], second: &[Op]) -> Result<(), Failed> {
        let mut one = self.begin(i)?;
        if let Some(busy) = self.ops(i, &mut one, first)? {
            return Err(format!("in a group that is alone: {busy}"));
        }
        let mut other = self.begin(i)?;
        if let Some(busy) = self.ops(i, &mut other, second)? {
            if go_together(&other.base, first, second) {
                return Err(format!("two groups that have nothing to do with each other: {busy}"));
            }
            self.recorder.busy += 1;
            self.abort(i, other)?;
        } else {
            self.commit(i, other)?;
        }
        self.commit(i, one)
    }

    fn call(&mut self, i: usize, op: &Op) -> Result<(), Failed> {
        let mut visible = self.visible.clone();
        let bytes = self.bytes(op);
        let handle = visible.handle(op.file()).map(String::from);
        let refused = visible.apply(op, &bytes).err();
        if refused.is_some() && op.is_of_bytes() {
            return Ok(());
        }
        let file = handle.and_then(|path| self.files.get(&path).cloned());
        let at_once = self.workload.policy == Policy::PerOp || !op.is_of_bytes();
        let after = if at_once { visible.clone() } else { self.state.clone() };
        let done = self.operation(format!("call {i}"), after, |runner| Ok(call(runner.store(), file, op, &bytes)))?;
        match (done, refused) {
            (Ok(made), None) => self.files.extend(made.map(|file| (op.file().into(), file))),
            (Err(error), Some(refused)) if error.errno() == refused.raw_os_error() => {}
            (Err(error), None) => return Err(format!("call {i}: {op:?}: {error}")),
            (done, Some(refused)) => return Err(format!("call {i}: {op:?}: {:?} instead of {refused}", done.err())),
        }
        self.visible = visible;
        Ok(())
    }
}

/// A group that has begun.
struct Open {
    group: Group<'static>,
    /// What everybody saw when it began.
    base: State,
    /// As it sees everything, but for what others have committed since.
    private: State,
    /// Files that it made, by path.
    files: BTreeMap<String, File>,
}

impl Open {
    fn perform(&mut self, file: Option<File>, op: &Op, bytes: &[u8]) -> wholly::Result<()> {
        let made = in_group(&mut self.group, file, op, bytes)?;
        self.files.extend(made.map(|file| (op.file().into(), file)));
        Ok(())
    }
}

/// Does an op in a group; `file`, where it is open, is the one whose bytes it changes. Returns a file that it made.
pub(crate) fn in_group(
    group: &mut Group<'_>,
    file: Option<File>,
    op: &Op,
    bytes: &[u8],
) -> wholly::Result<Option<File>> {
    let mut opened = |path: &str| match &file {
        Some(file) => Ok(file.clone()),
        None => group.open_file(path),
    };
    match op {
        Op::Create(path) => return group.create(path, FILE_MODE).map(Some),
        Op::Mkdir(path) => group.mkdir(path, DIR_MODE),
        Op::Adopt { path, what: Adopted::Content } => {
            let file = group.create(path, FILE_MODE)?;
            group.import_content(in_layer(path), &file).map(|is_moved| assert!(is_moved, "{path}"))
        }
        Op::Adopt { path, .. } => group.import(in_layer(path), path),
        Op::Mknod(path) => group.mknod(path, FIFO | FIFO_MODE, 0),
        Op::Symlink { target, path } => group.symlink(target, path),
        Op::Link { from, to } => group.link(from, to),
        Op::Unlink(path) => group.unlink(path),
        Op::Rmdir(path) => group.rmdir(path),
        Op::RemoveTree(path) => group.remove_tree(path).map(|is_removed| assert!(is_removed, "{path}")),
        Op::Rename { from, to, how } => group.rename(from, to, *how),
        Op::Write { file, offset, .. } => {
            let file = opened(file)?;
            group.write_at(&file, *offset, bytes)
        }
        Op::Append { file, .. } => {
            let file = opened(file)?;
            group.append(&file, bytes).map(drop)
        }
        Op::SetLen { file, length } => {
            let file = opened(file)?;
            group.set_len(&file, *length)
        }
        Op::Fallocate { file, how, offset, length } => {
            let file = opened(file)?;
            group.fallocate(&file, *how, *offset, *length)
        }
        Op::SetMode { path, mode } => group.set_mode(path, *mode),
        Op::SetOwner(path) => group.set_owner(path, Some(OWNER.0), Some(OWNER.1)),
        Op::SetTimes { path, atime, mtime } => {
            let (accessed, changed) = times(bytes);
            group.set_times(path, atime.then_some(accessed), mtime.then_some(changed))
        }
        Op::SetXattr { path, name, how, .. } => group.set_xattr(path, name, bytes, *how),
        Op::RemoveXattr { path, name } => group.remove_xattr(path, name),
    }
    .map(|()| None)
}

/// The same outside of groups.
fn call(store: &Store, file: Option<File>, op: &Op, bytes: &[u8]) -> wholly::Result<Option<File>> {
    let opened = |path: &str| match &file {
        Some(file) => Ok(file.clone()),
        None => store.open_file(path),
    };
    match op {
        Op::Create(path) => return store.create_file(path, FILE_MODE).map(Some),
        Op::Mkdir(path) => store.mkdir(path, DIR_MODE),
        Op::Adopt { .. } | Op::RemoveTree(_) => panic!("only groups do that: {op:?}"),
        Op::Mknod(path) => store.mknod(path, FIFO | FIFO_MODE, 0),
        Op::Symlink { target, path } => store.symlink(target, path),
        Op::Link { from, to } => store.link(from, to),
        Op::Unlink(path) => store.unlink(path),
        Op::Rmdir(path) => store.rmdir(path),
        Op::Rename { from, to, how } => store.rename(from, to, *how),
        Op::Write { file, offset, .. } => opened(file)?.write_at(*offset, bytes),
        Op::Append { file, .. } => opened(file)?.append(bytes).map(drop),
        Op::SetLen { file, length } => opened(file)?.set_len(*length),
        Op::Fallocate { file, how, offset, length } => opened(file)?.fallocate(*how, *offset, *length),
        Op::SetMode { path, mode } => store.set_mode(path, *mode),
        Op::SetOwner(path) => store.set_owner(path, Some(OWNER.0), Some(OWNER.1)),
        Op::SetTimes { path, atime, mtime } => {
            let (accessed, changed) = times(bytes);
            store.set_times(path, atime.then_some(accessed), mtime.then_some(changed))
        }
        Op::SetXattr { path, name, how, .. } => store.set_xattr(path, name, bytes, *how),
        Op::RemoveXattr { path, name } => store.remove_xattr(path, name),
    }
    .map(|()| None)
}
