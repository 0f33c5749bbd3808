//! Performing a program: its threads run in the scheduler, in a recording world.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use wholly_crash::{DIR_MODE, FILE_MODE, Names, Op, Setting, Start, State, served_tree};
use wholly_host::{DirEntry, Stat};
use wholly_sim::{Mark, SimConfig, Trace, World};

use crate::history::{Ending, History, Look, Operation, Seen, Synced};
use crate::program::{Act, Program};
use crate::sync::thread;
use crate::{Error, File, Group, Store, Writer};

/// What identifies the store of every program.
const VOLUME_ID: [u8; 16] = *b"wholly threads..";

/// Bytes that a group looks at where it is going to write.
const OWN: usize = 16;

/// What happened.
pub struct Performance {
    /// What reached the media.
    pub trace: Trace,
    /// Who did what.
    pub history: History,
    /// The trace's time from which on there is a store.
    pub made: u64,
    /// What the store served in the end; none if it did not come so far.
    pub served: Option<State>,
    /// What went wrong on the way.
    pub failure: Option<String>,
}

/// What all threads of a performance share.
struct Stage {
    program: Program,
    world: Arc<World>,
    /// Never held where others may go on.
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    history: History,
    marks: u64,
    failure: Option<String>,
}

/// A thread of the program, with its open files.
struct Actor {
    stage: Arc<Stage>,
    store: Store,
    /// Where its groups begin, where that is not the store.
    writer: Option<Writer>,
    files: BTreeMap<&'static str, File>,
    /// The number of its next write: no other thread has the same.
    write: u64,
}

/// What an act came to.
type Done = Result<(), String>;

/// Who stores, for the world: the thread of the scheduler. Others may go on before the store.
fn storing_thread() -> u64 {
    crate::sync::switch();
    usize::from(shuttle::current::me()) as u64
}

/// Performs `program`. To be called in an execution of the scheduler.
pub fn perform(program: &Program, setting: &Setting) -> Performance {
    let initial = program.initial();
    let world = World::new(SimConfig { thread: storing_thread, ..(*setting.sim).clone() });
    initial.put_into(&world);
    let stage = Arc::new(Stage { program: program.clone(), world, notes: Mutex::default() });
    let (made, served) = match stage.perform(setting) {
        Ok((made, served)) => (made, Some(served)),
        Err(failure) => {
            stage.fail(failure);
            (u64::MAX, None)
        }
    };
    let mut notes = stage.notes();
    Performance {
        trace: stage.world.trace(),
        history: std::mem::take(&mut notes.history),
        made,
        served,
        failure: notes.failure.take(),
    }
}

impl Stage {
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first failure counts.
    fn fail(&self, failure: String) {
        self.notes().failure.get_or_insert(failure);
    }

    fn perform(self: &Arc<Self>, setting: &Setting) -> Result<(u64, State), String> {
        let options = self.program.options(setting.segment_bytes());
        let failed = |what: &'static str| move |error: Error| format!("{what}: {error}");
        Store::format_on(&*self.world.log(), &options, VOLUME_ID).map_err(failed("format"))?;
        let store = Store::open_on(self.world.log(), self.world.host(), options, None).map_err(failed("open"))?;
        let made = self.world.now();
        let mut files = BTreeMap::new();
        for file in self.program.opened() {
            files.insert(*file, store.open_file(file).map_err(failed("open a file"))?);
        }
        let actor = |n: u64, files| Actor {
            stage: self.clone(),
            store: store.clone(),
            writer: self.program.writers.then(|| store.writer()),
            files,
            write: n * 100,
        };
        // Each has open what was made before, too.
        let files = {
            let mut first = actor(0, files);
            first.act_all(&self.program.before);
            first.files
        };
        let actors: Vec<Actor> = (1..).zip(&self.program.threads).map(|(n, _)| actor(n, files.clone())).collect();
        drop(files);
        let threads: Vec<_> = actors
            .into_iter()
            .zip(self.program.threads.clone())
            .map(|(mut actor, acts)| {
                thread::spawn(move || {
                    actor.act_all(&acts);
                    actor.leave();
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked".to_string())?;
        }
        // Files are closed again when they were looked at, and the store is.
        self.ends_epochs(self.world.now(), None);
        let served = self.served(&store)?;
        if self.program.close {
            store.close().map_err(failed("close"))?;
        }
        Ok((made, served))
    }

    fn served(&self, store: &Store) -> Result<State, String> {
        if self.program.start != Start::Files {
            return served_tree(&mut Served(store), &mut |path, error| Err(format!("{path} in the end: {error}")));
        }
        self.program.workload().shown(|name| match store.open_file(name) {
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(format!("opening {name} in the end: {error}")),
            Ok(file) => {
                let mut content = vec![0; file.len() as usize];
                file.read_at(0, &mut content).map_err(|error| format!("reading {name} in the end: {error}"))?;
                Ok(Some(content))
            }
        })
    }

    /// Marks the begin of something in the trace. Returns its number and time.
    fn begin(&self, label: String) -> (u64, u64) {
        let op = {
            let mut notes = self.notes();
            notes.marks += 1;
            notes.marks
        };
        self.world.mark(Mark::Begin { op, label });
        (op, self.world.now())
    }

    fn end(&self, op: u64) -> u64 {
        self.world.mark(Mark::Return { op });
        self.world.now()
    }

    /// Notes something that may end epochs. Returns its place.
    fn ends_epochs(&self, begin: u64, file: Option<&'static str>) -> usize {
        let endings = &mut self.notes().history.endings;
        endings.push(Ending { begin, end: u64::MAX, file });
        endings.len() - 1
    }

    /// Notes an operation that begins. It counts as not returned until [`returned`](Self::returned).
    fn note(&self, label: &str, changes: Vec<(Op, Vec<u8>)>, own: Vec<Seen>) -> (u64, usize) {
        let (op, begin) = self.begin(label.into());
        let operations = &mut self.notes().history.operations;
        operations.push(Operation { label: label.into(), begin, end: u64::MAX, changes, own, offset: None });
        (op, operations.len() - 1)
    }

    fn returned(&self, (op, at): (u64, usize), offset: Option<u64>) {
        let end = self.end(op);
        let operation = &mut self.notes().history.operations[at];
        (operation.end, operation.offset) = (end, offset);
    }

    /// It was refused, and did nothing. Its place stays, because others are known by theirs.
    fn refused(&self, (op, at): (u64, usize)) {
        self.end(op);
        let operation = &mut self.notes().history.operations[at];
        (operation.begin, operation.changes) = (u64::MAX, Vec::new());
    }
}

/// Whether somebody else was in the way, as may be, or had been there first.
fn is_in_the_way(error: &Error) -> bool {
    matches!(
        error,
        Error::Busy(..) | Error::Exists(_) | Error::NotFound(_) | Error::Refused(_, Errno::NOTEMPTY | Errno::NOENT)
    )
}

/// The path by which the program has opened or made a file.
fn opened_as(file: &'static str) -> &'static str {
    file.strip_prefix('@').unwrap_or(file)
}

/// Does an op that changes names or attributes, in a group or outside of them.
macro_rules! change_names {
    ($on:expr, $op:expr) => {
        match $op {
            Op::Mkdir(path) => $on.mkdir(path, DIR_MODE),
            Op::Link { from, to } => $on.link(from, to),
            Op::Unlink(path) => $on.unlink(path),
            Op::Rmdir(path) => $on.rmdir(path),
            Op::Rename { from, to, how } => $on.rename(from, to, *how),
            Op::SetMode { path, mode } => $on.set_mode(path, *mode),
            op => Err(Error::Unsupported(format!("{op:?} by threads"))),
        }
    };
}

/// What a store serves, for who looks at all of it.
struct Served<'s>(&'s Store);

impl Names for Served<'_> {
    const NOTES_LOOKS: bool = true;

    fn read_dir(&mut self, path: &str) -> crate::Result<Vec<DirEntry>> {
        self.0.read_dir(path)
    }

    fn metadata(&mut self, path: &str) -> crate::Result<Stat> {
        self.0.metadata(path)
    }

    fn read_link(&mut self, path: &str) -> crate::Result<Vec<u8>> {
        self.0.read_link(path)
    }

    fn xattrs(&mut self, path: &str) -> crate::Result<Vec<Vec<u8>>> {
        self.0.xattrs(path)
    }

    fn xattr(&mut self, path: &str, name: &[u8]) -> crate::Result<Option<Vec<u8>>> {
        self.0.xattr(path, std::ffi::OsStr::from_bytes(name))
    }

    fn content(&mut self, path: &str) -> crate::Result<Vec<u8>> {
        let file = self.0.open_file(path)?;
        let mut content = vec![0; file.len() as usize];
        file.read_at(0, &mut content)?;
        Ok(content)
    }
}

impl Actor {
    /// Gives up its files: whoever is the last to do so closes them.
    fn leave(self) {
        let Actor { stage, files, .. } = self;
        let ending = stage.ends_epochs(stage.world.now(), None);
        drop(files);
        let end = stage.world.now();
        stage.notes().history.endings[ending].end = end;
    }

    fn act_all(&mut self, acts: &[Act]) {
        for act in acts {
            if let Err(failure) = self.act(act) {
                return self.stage.fail(format!("{act:?}: {failure}"));
            }
        }
    }

    fn bytes(&mut self, op: &Op) -> Vec<u8> {
        match op {
            Op::Write { length, .. } | Op::Append { length, .. } => {
                self.write += 1;
                wholly_crash::data(self.write, *length)
            }
            _ => Vec::new(),
        }
    }

    fn act(&mut self, act: &Act) -> Done {
        match act {
            Act::Group { ops, commit } => match self.group(ops, *commit) {
                Err(error) if is_in_the_way(&error) => Ok(()),
                done => done.map_err(|error| error.to_string()),
            },
            Act::Call(op) => self.call(op).map_err(|error| error.to_string()),
            Act::Look { file, offset, length } => {
                let stage = self.stage.clone();
                let mut bytes = vec![0; *length];
                let (op, begin) = stage.begin("look".into());
                let read = self.files[file].read_at(*offset, &mut bytes).map_err(|error| error.to_string())?;
                bytes.truncate(read);
                let end = stage.end(op);
                let seen = Seen { file, offset: *offset, bytes };
                stage.notes().history.looks.push(Look { begin, end, seen });
                Ok(())
            }
            Act::Sync(file) => {
                let stage = self.stage.clone();
                let (op, begin) = stage.begin("sync".into());
                let ending = stage.ends_epochs(begin, Some(*file));
                self.files[file].sync().map_err(|error| error.to_string())?;
                let end = stage.end(op);
                stage.notes().history.endings[ending].end = end;
                stage.notes().history.syncs.push(Synced { begin, end, file });
                Ok(())
            }
            Act::Checkpoint => {
                let (op, begin) = self.stage.begin("checkpoint".into());
                let ending = self.stage.ends_epochs(begin, None);
                self.store.checkpoint().map_err(|error| error.to_string())?;
                let end = self.stage.end(op);
                self.stage.notes().history.endings[ending].end = end;
                Ok(())
            }
        }
    }

    fn group(&mut self, ops: &[Op], commit: bool) -> crate::Result<()> {
        let mut writer = self.writer.take();
        let group = match &mut writer {
            Some(writer) => writer.begin(),
            None => self.store.begin(),
        };
        let done = self.in_group(group, ops, commit);
        self.writer = writer;
        done
    }

    fn in_group(&mut self, mut group: Group<'_>, ops: &[Op], commit: bool) -> crate::Result<()> {
        let mut own = Vec::new();
        let mut changes = Vec::new();
        let mut made = BTreeMap::new();
        for op in ops {
            let bytes = self.bytes(op);
            if !op.is_of_bytes() {
                match op {
                    Op::Create(file) => drop(made.insert(*file, group.create(file, FILE_MODE)?)),
                    op => change_names!(group, op)?,
                }
                changes.push((op.clone(), bytes));
                continue;
            }
            let path = opened_as(op.file());
            let file = made.get(path).unwrap_or_else(|| &self.files[path]).clone();
            let first = !changes.iter().any(|(done, _): &(Op, _)| done.file() == op.file());
            match op {
                Op::Write { file: number, offset, .. } => {
                    if first {
                        group.add(&file)?;
                        let mut bytes = vec![0; OWN];
                        let read = group.read_at(&file, *offset, &mut bytes)?;
                        bytes.truncate(read);
                        own.push(Seen { file: number, offset: *offset, bytes });
                    }
                    group.write_at(&file, *offset, &bytes)?;
                }
                Op::Append { .. } => drop(group.append(&file, &bytes)?),
                Op::SetLen { length, .. } => group.set_len(&file, *length)?,
                Op::Fallocate { how, offset, length, .. } => group.fallocate(&file, *how, *offset, *length)?,
                _ => return Err(Error::Unsupported(format!("{op:?} by threads"))),
            }
            changes.push((op.clone(), bytes));
        }
        if !commit {
            group.abort();
            return Ok(());
        }
        let noted = self.stage.note("commit", changes, own);
        group.commit()?;
        self.stage.returned(noted, None);
        self.files.append(&mut made);
        Ok(())
    }

    fn call(&mut self, op: &Op) -> crate::Result<()> {
        let bytes = self.bytes(op);
        let noted = self.stage.note("call", vec![(op.clone(), bytes.clone())], Vec::new());
        let file = || &self.files[opened_as(op.file())];
        let mut made = None;
        let done = match op {
            Op::Create(path) => self.store.create_file(path, FILE_MODE).map(|file| {
                made = Some((*path, file));
                None
            }),
            Op::Write { offset, .. } => file().write_at(*offset, &bytes).map(|()| None),
            Op::Append { .. } => file().append(&bytes).map(Some),
            Op::SetLen { length, .. } => file().set_len(*length).map(|()| None),
            Op::Fallocate { how, offset, length, .. } => file().fallocate(*how, *offset, *length).map(|()| None),
            op => change_names!(self.store, op).map(|()| None),
        };
        self.files.extend(made);
        match done {
            Ok(offset) => self.stage.returned(noted, offset),
            Err(error) if is_in_the_way(&error) => self.stage.refused(noted),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
