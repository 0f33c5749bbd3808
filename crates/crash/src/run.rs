//! Running a workload in a recording world: what happened, and what could be seen after each operation.
//!
//! An *operation* is what has a begin and a return in the trace: making the store, opening it, the body of a group, its
//! commit or abort, a call, a checkpoint, a close. Only commits and calls change the state.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use wholly::{File, Group, Policy, Store};
use wholly_media::sim::{EventKind, Mark, Trace, World};

use crate::setting::Setting;
use crate::workload::{NAMES, Op, Promise, State, Step, Workload, data, mix};

/// What identifies the store of every workload.
const VOLUME_ID: [u8; 16] = *b"crash explorer..";

/// One operation of a run.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What it is, for people.
    pub label: Cow<'static, str>,
    /// The crash point from which on it may have had an effect.
    pub begin: u64,
    /// The crash point from which on it has returned; `u64::MAX` if it never did.
    pub end: u64,
    /// The state after it.
    pub state: Promise,
}

/// A recorded run.
pub struct Run {
    /// What happened.
    pub trace: Trace,
    /// What may be there before the first operation has returned: what was there when the run began.
    pub before: Vec<Promise>,
    /// Whether the store need not be there before the first operation has returned.
    pub unmade: bool,
    /// The operations in order.
    pub operations: Vec<Operation>,
    /// Why the run ended early: an operation failed, or served something else than it should.
    pub failure: Option<String>,
}

/// What a crash at a point may leave.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// The states: what had returned, and with what was in flight.
    pub states: Vec<Promise>,
    /// The store itself was being made and need not be there.
    pub unmade: bool,
}

impl Allowed {
    /// A number that tells apart what is allowed.
    pub fn hash(&self) -> u64 {
        self.states.iter().fold(u64::from(self.unmade), |h, state| mix(h ^ state.hash()))
    }
}

impl Run {
    /// What a crash at `point` may leave.
    pub fn allowed(&self, point: u64) -> Allowed {
        let returned = self.operations.iter().take_while(|operation| operation.end <= point).count();
        let mut states = match returned.checked_sub(1) {
            Some(last) => vec![self.operations[last].state.clone()],
            None => self.before.clone(),
        };
        if let Some(next) = self.operations.get(returned)
            && next.begin <= point
            && !states.contains(&next.state)
        {
            states.push(next.state.clone());
        }
        Allowed { states, unmade: self.unmade && returned == 0 }
    }

    /// The operation during which the crash comes, in words.
    pub fn moment(&self, point: u64) -> String {
        let returned = self.operations.iter().take_while(|operation| operation.end <= point).count();
        match self.operations.get(returned) {
            Some(next) if next.begin <= point => format!("during {}", next.label),
            Some(next) => format!("before {}", next.label),
            None => "at the end".into(),
        }
    }
}

/// Opens the store of a world.
pub fn open(world: &Arc<World>, workload: &Workload, setting: &Setting) -> wholly::Result<Store> {
    Store::open_on(world.log(), world.host(), workload.options(setting.segment_bytes()), None)
}

/// Reads what a store serves of the first files of [`NAMES`].
///
/// # Errors
/// What the store reports.
pub fn served(world: &Arc<World>, store: &Store, files: usize) -> Result<State, String> {
    let mut state = Vec::with_capacity(files);
    for name in &NAMES[..files] {
        state.push(match store.open_file(name) {
            Ok(file) => Some(Arc::from(content(&file).map_err(|error| format!("reading {name}: {error}"))?)),
            Err(wholly::Error::NotFound(_)) => {
                if world.host().stat(name.as_bytes()).is_ok() {
                    return Err(format!("{name} is not found, although the directory holds it"));
                }
                None
            }
            Err(error) => return Err(format!("opening {name}: {error}")),
        });
    }
    Ok(State(state))
}

fn content(file: &File) -> wholly::Result<Vec<u8>> {
    let mut content = vec![0; file.len() as usize];
    let read = file.read_at(0, &mut content)?;
    content.truncate(read);
    Ok(content)
}

/// Runs a workload, recorded. With a mutation it may fail on the way; that is no panic but part of the result.
pub fn run(workload: &Workload, setting: &Setting) -> Run {
    let world = World::new(setting.sim.clone());
    world.add_dir("dir");
    let initial = workload.initial();
    for (name, content) in NAMES.iter().zip(&initial.0) {
        if let Some(content) = content {
            world.add_file(name, content);
        }
    }
    let mut runner = Runner {
        workload,
        setting,
        world: world.clone(),
        store: None,
        files: BTreeMap::new(),
        state: initial.clone(),
        visible: initial.clone(),
        writes: 0,
        operations: Vec::new(),
    };
    let failure = match crate::quiet::catch(|| runner.all()) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => Some(format!("panic: {panic}")),
    };
    let operations = std::mem::take(&mut runner.operations);
    if failure.is_some() {
        // What a panic left may not be fit to be dropped.
        std::mem::forget(runner);
    }
    let before = vec![Promise::new(initial)];
    let mut run = Run { trace: world.trace(), before, unmade: true, operations, failure };
    run.place_operations();
    run
}

impl Run {
    /// Takes the begin and the end of operations from the marks in the trace.
    fn place_operations(&mut self) {
        for (time, event) in (0u64..).zip(&self.trace.events) {
            match &event.kind {
                EventKind::Mark(Mark::Begin { op, .. }) => self.operations[*op as usize].begin = time + 1,
                EventKind::Mark(Mark::Return { op }) => self.operations[*op as usize].end = time + 1,
                _ => {}
            }
        }
    }
}

struct Runner<'w> {
    workload: &'w Workload,
    setting: &'w Setting,
    world: Arc<World>,
    store: Option<Store>,
    files: BTreeMap<usize, File>,
    /// What has committed.
    state: State,
    /// What everybody sees: under other policies than `per-op` that runs ahead of what has committed.
    visible: State,
    writes: u64,
    operations: Vec<Operation>,
}

type Failed = String;

fn failed(what: &str) -> impl Fn(wholly::Error) -> Failed + '_ {
    move |error| format!("{what}: {error}")
}

impl Runner<'_> {
    fn all(&mut self) -> Result<(), Failed> {
        self.operation("making the store", self.state.clone(), |runner| {
            let options = runner.workload.options(runner.setting.segment_bytes());
            Store::format_on(&*runner.world.log(), &*runner.world.host(), &options, VOLUME_ID)
                .map_err(failed("making the store"))
        })?;
        self.open()?;
        for (i, step) in self.workload.steps.iter().enumerate() {
            self.step(i, step)?;
            let served = served(&self.world, self.store.as_ref().expect("it is open"), self.workload.files())?;
            if let Some(difference) = self.visible.difference(&served) {
                return Err(format!("after step {i}: {difference}"));
            }
        }
        // Dropped, not closed: what is in the log stays there.
        self.drop_all()
    }

    /// What is committed once the calls on a file so far have.
    fn synced(&self, file: usize) -> State {
        let mut after = self.state.clone();
        match self.workload.policy {
            Policy::PerOp => {}
            Policy::PerSync => after.0[file] = self.visible.0[file].clone(),
            Policy::Shared { .. } => after = self.visible.clone(),
        }
        after
    }

    /// Gives up every file, which under some policies commits what was done to it.
    fn drop_files(&mut self) -> Result<(), Failed> {
        if self.visible == self.state {
            self.files.clear();
        }
        while let Some((number, file)) = self.files.pop_first() {
            let after = match self.workload.policy {
                Policy::Shared { .. } => self.state.clone(),
                _ => self.synced(number),
            };
            self.operation(format!("close of {}", NAMES[number]), after, |_| {
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
        let (op, label): (u64, String) = (self.operations.len() as u64, label.into());
        let state = match self.operations.last() {
            Some(last) if *last.state == after => last.state.clone(),
            _ => Promise::new(after),
        };
        let named = Cow::from(label.clone());
        self.operations.push(Operation { label: named, begin: u64::MAX, end: u64::MAX, state: state.clone() });
        self.world.mark(Mark::Begin { op, label });
        let result = body(self)?;
        self.world.mark(Mark::Return { op });
        self.state = (*state).clone();
        Ok(result)
    }

    fn open(&mut self) -> Result<(), Failed> {
        self.operation("open", self.state.clone(), |runner| {
            let store = open(&runner.world, runner.workload, runner.setting).map_err(failed("open"))?;
            if let Some(conflict) = store.recovery().conflicts.first() {
                return Err(format!("open reports a conflict: {conflict:?}"));
            }
            runner.store = Some(store);
            Ok(())
        })?;
        let store = self.store.as_ref().expect("just opened");
        for (number, content) in self.state.0.iter().enumerate() {
            if content.is_some() {
                let file = store.open_file(NAMES[number]).map_err(failed("opening a file"))?;
                self.files.insert(number, file);
            }
        }
        Ok(())
    }

    fn bytes(&mut self, op: &Op) -> Vec<u8> {
        match op {
            Op::Write { length, .. } | Op::Append { length, .. } => {
                self.writes += 1;
                data(self.writes, *length)
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, i: usize, step: &Step) -> Result<(), Failed> {
        match step {
            Step::Group { ops, commit } => self.group(i, ops, *commit),
            Step::Call(op) => self.call(i, op),
            Step::Checkpoint => self.operation(format!("checkpoint {i}"), self.state.clone(), |runner| {
                runner.store.as_ref().expect("it is open").checkpoint().map_err(failed("checkpoint"))?;
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
                let Some(handle) = self.files.get(file).cloned() else { return Ok(()) };
                self.operation(format!("sync {i}"), self.synced(*file), |_| handle.sync().map_err(failed("sync")))
            }
        }
    }

    fn group(&mut self, i: usize, ops: &[Op], commit: bool) -> Result<(), Failed> {
        let mut files = self.files.clone();
        let mut group = self.operation(format!("group {i}"), self.state.clone(), |runner| {
            Ok(runner.store.as_ref().expect("it is open").begin())
        })?;
        // As the group sees it.
        let mut private = self.visible.clone();
        let mut touched = Vec::new();
        for op in ops {
            let bytes = self.bytes(op);
            if private.apply(op, &bytes) {
                // A file that a group joins is synced first.
                let changes = !matches!(op, Op::Create(_)) && (!bytes.is_empty() || matches!(op, Op::SetLen { .. }));
                let joins = changes || matches!(op, Op::Append { .. });
                let after = if joins { self.synced(op.file()) } else { self.state.clone() };
                self.operation(format!("in group {i}"), after, |_| {
                    in_group(&mut group, &mut files, op, &bytes).map_err(failed("in a group"))
                })?;
                touched.push(op.file());
            }
        }
        if commit {
            let mut after = self.state.clone();
            touched.into_iter().for_each(|file| after.0[file] = private.0[file].clone());
            self.operation(format!("commit {i}"), after, |_| group.commit().map_err(failed("commit")))?;
            self.files = files;
            self.visible = private;
            Ok(())
        } else {
            drop(files);
            self.operation(format!("abort {i}"), self.state.clone(), |_| {
                group.abort();
                Ok(())
            })
        }
    }

    fn call(&mut self, i: usize, op: &Op) -> Result<(), Failed> {
        let mut visible = self.visible.clone();
        let bytes = self.bytes(op);
        if matches!(op, Op::Create(_)) || !visible.apply(op, &bytes) {
            return Ok(());
        }
        let at_once = self.workload.policy == Policy::PerOp;
        let after = if at_once { visible.clone() } else { self.state.clone() };
        self.operation(format!("call {i}"), after, |runner| {
            let file = |number: &usize| &runner.files[number];
            match op {
                Op::Create(_) => Ok(()),
                Op::Write { file: number, offset, .. } => file(number).write_at(*offset, &bytes),
                Op::Append { file: number, .. } => file(number).append(&bytes).map(drop),
                Op::SetLen { file: number, length } => file(number).set_len(*length),
            }
            .map_err(failed("call"))
        })?;
        self.visible = visible;
        Ok(())
    }
}

fn in_group(group: &mut Group, files: &mut BTreeMap<usize, File>, op: &Op, bytes: &[u8]) -> wholly::Result<()> {
    match op {
        Op::Create(number) => {
            files.insert(*number, group.create(NAMES[*number], 0o644)?);
            Ok(())
        }
        Op::Write { file, offset, .. } => group.write_at(&files[file], *offset, bytes),
        Op::Append { file, .. } => group.append(&files[file], bytes).map(drop),
        Op::SetLen { file, length } => group.set_len(&files[file], *length),
    }
}
