//! Performing a program over a store: its threads run in the scheduler, in a recording world.

use std::collections::BTreeMap;
use std::sync::Arc;

use wholly_crash::{FILE_MODE, Op, Setting, Start, State, served_tree};
use wholly_sim::{SimConfig, World};

use crate::history::{Look, Seen, Synced};
use crate::program::{self, Act, OPENED, Program};
use crate::stage::{OWN, Performance, Stage, bytes_of, change_names, is_in_the_way, opened_as, served, storing_thread};
use crate::sync::thread;
use crate::{Error, File, Group, Store, Writer};

/// What identifies the store of every program.
const VOLUME_ID: [u8; 16] = *b"wholly threads..";

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

/// Performs `program`. To be called in an execution of the scheduler.
pub fn perform(program: &Program, setting: &Setting) -> Performance {
    let world = World::new(SimConfig { thread: storing_thread, ..(*setting.sim).clone() });
    program.initial().put_into(&world);
    let stage = Stage::new(world);
    stage.perform(|stage| on_stage(program, setting, stage))
}

fn on_stage(program: &Program, setting: &Setting, stage: &Arc<Stage>) -> Result<(u64, State), String> {
    let options = program.options(setting.segment_bytes());
    let failed = |what: &'static str| move |error: Error| format!("{what}: {error}");
    let world = &stage.world;
    Store::format_on(&*world.log(), &options, VOLUME_ID).map_err(failed("format"))?;
    let store = Store::open_on(world.log(), world.host(), options, None).map_err(failed("open"))?;
    let made = world.now();
    let mut files = BTreeMap::new();
    for file in program.opened() {
        files.insert(*file, store.open_file(file).map_err(failed("open a file"))?);
    }
    let actor = |n: u64, files| Actor {
        stage: stage.clone(),
        store: store.clone(),
        writer: program.writers.then(|| store.writer()),
        files,
        write: n * 100,
    };
    // Each has open what was made before, too.
    let files = {
        let mut first = actor(0, files);
        first.act_all(&program.before);
        first.files
    };
    let actors: Vec<Actor> = (1..).zip(&program.threads).map(|(n, _)| actor(n, files.clone())).collect();
    drop(files);
    let threads: Vec<_> = actors
        .into_iter()
        .zip(program.threads.clone())
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
    stage.ends_epochs(world.now(), None);
    let served = shown(program, &store)?;
    if program.close {
        store.close().map_err(failed("close"))?;
    }
    Ok((made, served))
}

fn shown(program: &Program, store: &Store) -> Result<State, String> {
    if program.start != Start::Files {
        return served_tree(&mut Served(store), &mut |path, error| Err(format!("{path} in the end: {error}")));
    }
    program.workload().shown(|name| match store.open_file(name) {
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(format!("opening {name} in the end: {error}")),
        Ok(file) => {
            let mut content = vec![0; file.len() as usize];
            file.read_at(0, &mut content).map_err(|error| format!("reading {name} in the end: {error}"))?;
            Ok(Some(content))
        }
    })
}

served!(Store);

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

    fn act(&mut self, act: &Act) -> Done {
        match act {
            Act::Group { ops, commit } => match self.group(ops, *commit) {
                Err(error) if is_in_the_way(&error) => Ok(()),
                done => done.map_err(|error| error.to_string()),
            },
            Act::OpenOrCreate(path) => match self.open_or_create(path) {
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
            let bytes = bytes_of(op, &mut self.write);
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

    fn open_or_create(&mut self, path: &'static str) -> crate::Result<()> {
        let mut group = self.store.begin();
        let file = group.open_or_create(path, FILE_MODE)?;
        group.add(&file)?;
        // Others cannot make what this group has claimed.
        let is_new = matches!(self.store.metadata(path), Err(Error::NotFound(_)));
        let mut changes: Vec<_> = is_new.then(|| (Op::Create(path), Vec::new())).into_iter().collect();
        let op = program::append(path, OPENED);
        let bytes = bytes_of(&op, &mut self.write);
        group.append(&file, &bytes)?;
        changes.push((op, bytes));
        let noted = self.stage.note("commit", changes, Vec::new());
        group.commit()?;
        self.stage.returned(noted, None);
        self.files.insert(path, file);
        Ok(())
    }

    fn call(&mut self, op: &Op) -> crate::Result<()> {
        let bytes = bytes_of(op, &mut self.write);
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
