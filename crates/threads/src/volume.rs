//! Programs of threads over a volume.
//!
//! The volume is made, and filled, by the ordinary package before the execution begins; who comes after a crash is the
//! crash explorer's own subject, which is the ordinary package too. Each call outside of groups is durable when it
//! returns, but in programs with a policy: there only writes and syncs are called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use scheduled::vfs::Timestamp;
use scheduled_volume::{PolicyVfs, Volume, VolumeCalls, VolumeOptions};
use wholly_crash::volume::{OnVolume, Program, Running, fill, setting};
use wholly_crash::{EXISTING, FILE_MODE, FRESH, NAMES, Op, Setting, Start, State, Subject, served_tree};
use wholly_sim::{SimConfig, World};
use wholly_vfs::{AcrossForks, Calls, File, Group};
use wholly_volume::EngineKind;

use crate::explore::Threaded;
use crate::history::{Look, Seen, Synced};
use crate::program::{A, A_FOO, Act, B, C, D, aborted, append, call, chmod, cut, group, link, look, rename, write};
use crate::stage::{OWN, Performance, Stage, bytes_of, change_names, is_in_the_way, opened_as, served, storing_thread};
use crate::sync::thread;
use crate::{Error, Policy};

/// What threads do to a volume at the same time.
#[derive(Clone, Debug)]
pub struct VolumeProgram {
    /// Its name.
    pub name: &'static str,
    /// The engine.
    pub engine: EngineKind,
    /// Which calls outside of groups are one group.
    pub policy: Policy,
    /// How many threads write back in the background.
    pub checkpointers: usize,
    /// What is there before.
    pub start: Start,
    /// What each thread does: groups, calls and looks.
    pub threads: Vec<Vec<Act>>,
}

/// All programs.
pub fn all() -> Vec<VolumeProgram> {
    let (engine, policy) = (EngineKind::FineGrainedWal, Policy::PerOp);
    let program = |name, start, threads| VolumeProgram { name, engine, policy, checkpointers: 0, start, threads };
    let pending =
        |name, threads| VolumeProgram { engine: EngineKind::HybridLog, ..program(name, Start::Files, threads) };
    let undoing = |name, threads| VolumeProgram { engine: EngineKind::Undo, ..program(name, Start::Files, threads) };
    let policed = |name, policy, threads| VolumeProgram { policy, ..program(name, Start::Files, threads) };
    let ordered = |name, policy, start, threads| VolumeProgram {
        engine: EngineKind::PageCacheWal,
        policy,
        ..program(name, start, threads)
    };
    let shared_dir = |name, threads| VolumeProgram {
        engine: EngineKind::OpLog,
        ..ordered(name, Policy::PerOp, Start::Dirs, threads)
    };
    let queued = |name, policy, threads| VolumeProgram {
        engine: EngineKind::MultiQueue,
        ..ordered(name, policy, Start::Dirs, threads)
    };
    // The timer never commits.
    let shared = Policy::Shared { interval: Duration::MAX };
    vec![
        program(
            "volume-one-block",
            Start::Files,
            vec![
                vec![call(write(A, 100, 40)), call(write(A, 96, 64))],
                vec![call(write(A, 120, 40)), call(write(A, 4090, 12)), look(96, 80)],
            ],
        ),
        program(
            "volume-own-files",
            Start::Files,
            vec![
                vec![call(write(A, 4000, 200)), call(cut(A, 100)), call(append(A, 9))],
                vec![call(append(B, 30)), call(append(B, 5000)), call(cut(B, 4100))],
            ],
        ),
        program(
            "volume-appends",
            Start::Files,
            vec![vec![call(append(B, 30)), call(append(B, 4080))], vec![call(append(B, 50)), call(append(B, 7))]],
        ),
        program(
            "volume-created",
            Start::Files,
            vec![
                vec![call(Op::Create(C)), call(append(C, 20)), call(append(C, 5000))],
                vec![call(Op::Create(D)), call(append(D, 30)), call(Op::Unlink(D))],
            ],
        ),
        program(
            "volume-group-beside-calls",
            Start::Files,
            vec![
                vec![group(&[write(A, 8, 40), append(B, 4090), Op::Create(C), append(C, 20)])],
                vec![call(append(B, 9)), call(Op::Create(D)), call(append(D, 30)), call(write(A, 0, 16))],
            ],
        ),
        program(
            "volume-two-groups",
            Start::Files,
            vec![
                vec![group(&[write(A, 4000, 200), Op::Create(D), append(D, 20)])],
                vec![group(&[append(B, 30), Op::Create(C), append(C, 9)]), aborted(&[write(A, 0, 80)])],
            ],
        ),
        program(
            "volume-names",
            Start::Dirs,
            vec![
                vec![call(rename("A/foo", "B/foo")), call(rename("B", "A/C"))],
                vec![call(Op::Create("B/bar")), call(chmod("A", 0o705)), call(Op::Unlink("B/bar"))],
            ],
        ),
        program(
            "volume-names-in-groups",
            Start::Dirs,
            vec![
                vec![group(&[Op::Create("A/bar"), append("A/bar", 20), rename("A/C", "B/C")])],
                vec![group(&[link("A/foo", "B/foo"), Op::Unlink("A/foo")]), call(Op::Mkdir("A/foo"))],
            ],
        ),
        // Two threads write versions of several blocks, of which some become homes. Two others write them back.
        pending(
            "pending-two-checkpoints",
            vec![
                vec![call(write(A, 0, 4096)), call(write(A, 100, 40)), look(90, 80), call(write(A, 4096, 200))],
                vec![call(append(B, 9000)), call(write(B, 0, 4096)), call(write(B, 4096, 4000))],
                vec![Act::Checkpoint, Act::Checkpoint],
                vec![Act::Checkpoint, Act::Checkpoint],
            ],
        ),
        // The same in the background: whenever no call has ended for a while, or space is short.
        VolumeProgram {
            checkpointers: 2,
            ..pending(
                "pending-checkpointers",
                vec![
                    vec![call(write(A, 0, 4096)), call(write(A, 100, 40)), look(90, 80), call(write(A, 4096, 200))],
                    vec![call(append(B, 9000)), call(write(B, 0, 4096)), call(write(B, 4096, 4000)), call(cut(B, 50))],
                ],
            )
        },
        // Homes become free, and others', while they are written back.
        pending(
            "pending-dropped",
            vec![
                vec![call(write(A, 4000, 1000)), call(cut(A, 100)), call(append(A, 5000)), call(write(A, 0, 5000))],
                vec![group(&[Op::Create(C), append(C, 5000)]), call(write(C, 0, 4096)), call(Op::Unlink(C))],
                vec![Act::Checkpoint, Act::Checkpoint],
                vec![Act::Checkpoint],
            ],
        ),
        // Two groups log the old content of blocks, or move them, and blocks that one has left are the other's.
        undoing(
            "undo-own-files",
            vec![
                vec![call(write(A, 4000, 200)), call(write(A, 0, 3000)), call(cut(A, 100))],
                vec![call(append(B, 30)), call(append(B, 5000)), call(write(B, 96, 2000)), call(write(B, 0, 4096))],
            ],
        ),
        undoing(
            "undo-two-groups",
            vec![
                vec![group(&[write(A, 4000, 200), Op::Create(D), append(D, 20)]), call(write(B, 10, 50))],
                vec![group(&[append(B, 30), Op::Create(C), append(C, 9)]), aborted(&[write(A, 0, 3000)])],
            ],
        ),
        // A write of two blocks is in one epoch, wherever the sync comes.
        policed(
            "policy-sync-of-the-file",
            Policy::PerSync,
            vec![
                vec![call(write(A, 4000, 200)), call(write(A, 4090, 12)), look(4080, 32)],
                vec![call(write(A, 4010, 150)), Act::Sync(A), look(4000, 90)],
            ],
        ),
        policed(
            "policy-two-syncs",
            Policy::PerSync,
            vec![
                vec![call(append(B, 5000)), Act::Sync(B), call(append(B, 9))],
                vec![call(append(B, 30)), Act::Sync(B)],
            ],
        ),
        policed(
            "policy-own-files",
            Policy::PerSync,
            vec![
                vec![call(write(A, 4000, 200)), call(write(A, 0, 80)), Act::Sync(A), call(cut(A, 100))],
                vec![call(append(B, 30)), Act::Sync(B), call(append(B, 5000)), look(0, 16)],
            ],
        ),
        policed(
            "policy-shared",
            shared,
            vec![
                vec![call(write(A, 4000, 200)), call(append(B, 20)), Act::Sync(A)],
                vec![call(append(B, 30)), Act::Sync(B), call(write(A, 4090, 12))],
            ],
        ),
        // Their commits return at the order. No thread reads, since a crash may undo what it has read. The group
        // changes nothing in the directory that another thread moves: the model knows files by whole paths.
        ordered(
            "ordered-names",
            Policy::PerOp,
            Start::Dirs,
            vec![
                vec![call(Op::Create("A/bar")), call(rename("A/bar", "B/bar"))],
                vec![call(Op::Mkdir("A/C/foo")), group(&[link("A/foo", "A/baz"), Op::Create("A/C/bar")])],
                vec![call(append("A/foo", 5000)), Act::Sync("A/foo"), call(rename("B", "A/C/B"))],
            ],
        ),
        ordered(
            "ordered-syncs",
            Policy::PerSync,
            Start::Files,
            vec![
                vec![call(write(A, 4000, 200)), Act::Sync(A), call(append(B, 20))],
                vec![call(append(B, 30)), Act::Sync(B), Act::Sync(A)],
                vec![call(write(A, 10, 50)), Act::Sync(A)],
            ],
        ),
        // Groups and calls change names of one directory, and so one block of inodes and of each bitmap. None names a
        // file that another one moves: the model knows files by whole paths.
        shared_dir(
            "bitmaps-names",
            vec![
                vec![group(&[Op::Create("A/one"), append("A/one", 20)]), call(Op::Unlink("A/one"))],
                vec![group(&[Op::Create("A/two"), append("A/two", 5000), link("A/foo", "A/three")])],
                vec![call(Op::Mkdir("A/four")), group(&[Op::Rmdir("A/four"), rename("A/C", "A/moved")])],
            ],
        ),
        // The same of four threads, each with a queue of its own or with one that it shares, and a checkpoint.
        queued(
            "queues-names",
            Policy::PerOp,
            vec![
                vec![group(&[Op::Create("A/one"), append("A/one", 20)]), call(Op::Unlink("A/one"))],
                vec![group(&[Op::Create("A/two"), append("A/two", 5000), link("A/foo", "A/three")])],
                vec![call(Op::Mkdir("A/four")), Act::Checkpoint, call(Op::Rmdir("A/four"))],
                vec![call(rename("A/C", "A/moved")), Act::Checkpoint],
            ],
        ),
        queued(
            "queues-syncs",
            Policy::PerSync,
            vec![
                vec![call(write("A/foo", 0, 200)), Act::Sync("A/foo")],
                vec![call(append("A/foo", 5000)), Act::Sync("A/foo"), call(write("A/foo", 4096, 50))],
                vec![call(write("A/foo", 10, 50)), Act::Sync("A/foo"), Act::Checkpoint],
            ],
        ),
        // A commit beside an abort, two commits and two aborts, whichever comes first. The two commits are in different
        // directories, so that neither waits for the other's locks: they share blocks alone.
        shared_dir(
            "bitmaps-two-ends",
            vec![
                vec![
                    group(&[Op::Create("A/one"), append("A/one", 5000), Op::Unlink("A/foo")]),
                    aborted(&[Op::Create("A/two"), append("A/two", 20)]),
                ],
                vec![
                    aborted(&[Op::Mkdir("A/three"), Op::Create("A/four"), append("A/four", 5000)]),
                    group(&[Op::Create("B/five"), append("B/five", 20), chmod("A/C", 0o705)]),
                ],
            ],
        ),
    ]
}

impl VolumeProgram {
    /// The world in which it is explored first.
    pub fn world(&self) -> &'static str {
        if self.engine.takes_disks() { "disk" } else { "pmem" }
    }
}

/// The program with this name.
pub fn find(name: &str) -> Option<VolumeProgram> {
    all().into_iter().find(|program| program.name == name)
}

fn clock() -> Timestamp {
    Timestamp { sec: 2_000, nsec: 0 }
}

impl VolumeProgram {
    fn opened(&self) -> &'static [&'static str] {
        match self.start {
            Start::Files => &NAMES[..EXISTING],
            Start::Bare | Start::Dirs | Start::Guest | Start::Crowd => &[A_FOO],
        }
    }
}

impl Threaded for VolumeProgram {
    type After = OnVolume<VolumeProgram>;

    fn name(&self) -> &str {
        self.name
    }

    fn setting(name: &str) -> Option<Setting> {
        setting(name)
    }

    fn in_row(&self, _seed: u64) -> VolumeProgram {
        self.clone()
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn initial(&self, setting: &Setting) -> State {
        let mut state = self.after().begin(setting).state;
        state.reopen();
        state
    }

    fn after(&self) -> OnVolume<VolumeProgram> {
        OnVolume { engine: self.engine, program: self.clone() }
    }

    fn perform(&self, setting: &Setting) -> Performance {
        let made = self.after().begin(setting).world.latest();
        let world = World::from_image(&made, SimConfig { thread: storing_thread, ..(*setting.sim).clone() });
        Stage::new(world).perform(|stage| on_stage(self, stage))
    }
}

/// What is common to those who come after a crash.
impl Program for VolumeProgram {
    fn name(&self) -> String {
        self.name.into()
    }

    fn prepare(&self, volume: &wholly_volume::Volume) -> Result<(), String> {
        fill(volume, &self.start.state())
    }

    fn perform(&self, _running: &mut Running<'_>) -> Result<(), String> {
        Err("it takes threads".into())
    }

    fn ops_after(&self, _state: &State) -> Vec<Op> {
        vec![Op::Create(FRESH), write(FRESH, 0, 5000), write(FRESH, 10, 3000), Op::Unlink(FRESH)]
    }

    fn rules(&self) -> String {
        String::new()
    }
}

served!(VolumeCalls);

fn on_stage(program: &VolumeProgram, stage: &Arc<Stage>) -> Result<(u64, State), String> {
    let failed = |what: &'static str| move |error: Error| format!("{what}: {error}");
    let checkpointers = Some(program.checkpointers);
    let options = VolumeOptions { cache_bytes: 1 << 20, clock, checkpointers, ..VolumeOptions::default() };
    let volume = Volume::open_region(stage.world.log(), &options).map_err(failed("open"))?;
    let made = match program.policy {
        Policy::PerOp => play(program, stage, &volume, Calls::clone(&volume))?,
        policy => {
            let vfs = PolicyVfs::new(&volume, policy).map_err(|errno| format!("a policy: {errno}"))?;
            play(program, stage, &volume, Calls::new(Arc::new(vfs)))?
        }
    };
    let served = served_tree(&mut Served(&volume), &mut |path, error| Err(format!("{path} in the end: {error}")))?;
    volume.close().map_err(failed("close"))?;
    Ok((made, served))
}

/// Returns since when all is made. What is pending in the end is committed.
fn play<V: AcrossForks + 'static>(
    program: &VolumeProgram,
    stage: &Arc<Stage>,
    volume: &Volume,
    calls: Calls<V>,
) -> Result<u64, String> {
    let mut files = BTreeMap::new();
    for file in program.opened() {
        let opened = calls.open_file(file).map_err(|error| format!("open a file: {error}"))?;
        files.insert(*file, Arc::new(opened));
    }
    let made = stage.world.now();
    let actor = |write| Actor {
        stage: stage.clone(),
        volume: volume.clone(),
        calls: calls.clone(),
        files: files.clone(),
        write,
    };
    let threads: Vec<_> = (1..)
        .zip(program.threads.clone())
        .map(|(n, acts)| {
            let mut actor = actor(n * 100);
            thread::spawn(move || actor.act_all(&acts))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked".to_string())?;
    }
    // The last closes are syncs.
    let (op, begin) = stage.begin("end".into());
    let ending = stage.ends_epochs(begin, None);
    drop((files, calls));
    stage.notes().history.endings[ending].end = stage.end(op);
    Ok(made)
}

/// A thread of the program, with its open files.
struct Actor<V: AcrossForks> {
    stage: Arc<Stage>,
    volume: Volume,
    calls: Calls<V>,
    files: BTreeMap<&'static str, Arc<File<V>>>,
    /// The number of its next write: no other thread has the same.
    write: u64,
}

/// Whether somebody else was in the way, or has moved what a path leads through.
fn may_be(error: &Error) -> bool {
    is_in_the_way(error) || matches!(error, Error::Refused(_, Errno::STALE))
}

impl<V: AcrossForks> Actor<V> {
    fn act_all(&mut self, acts: &[Act]) {
        for act in acts {
            if let Err(error) = self.act(act) {
                return self.stage.fail(format!("{act:?}: {error}"));
            }
        }
    }

    fn act(&mut self, act: &Act) -> crate::Result<()> {
        match act {
            Act::Group { ops, commit } => match self.in_group(self.calls.begin(), ops, *commit) {
                Err(error) if may_be(&error) => Ok(()),
                done => done,
            },
            Act::Call(op) => self.call(op),
            Act::Look { file, offset, length } => {
                let mut bytes = vec![0; *length];
                let (op, begin) = self.stage.begin("look".into());
                let read = self.files[file].read_at(*offset, &mut bytes)?;
                bytes.truncate(read);
                let end = self.stage.end(op);
                let seen = Seen { file, offset: *offset, bytes };
                self.stage.notes().history.looks.push(Look { begin, end, seen });
                Ok(())
            }
            Act::Checkpoint => self.volume.checkpoint(),
            Act::Sync(file) => {
                let (op, begin) = self.stage.begin("sync".into());
                let ending = self.stage.ends_epochs(begin, Some(*file));
                self.files[file].sync()?;
                let end = self.stage.end(op);
                let history = &mut self.stage.notes().history;
                history.endings[ending].end = end;
                history.syncs.push(Synced { begin, end, file });
                Ok(())
            }
            Act::OpenOrCreate(_) => Err(Error::Unsupported("a call of stores only, here".into())),
        }
    }

    fn in_group(&mut self, mut group: Group<V>, ops: &[Op], commit: bool) -> crate::Result<()> {
        let (mut own, mut changes, mut made) = (Vec::new(), Vec::<(Op, Vec<u8>)>::new(), BTreeMap::new());
        for op in ops {
            let bytes = bytes_of(op, &mut self.write);
            if !op.is_of_bytes() {
                match op {
                    Op::Create(file) => drop(made.insert(*file, Arc::new(group.create(file, FILE_MODE)?))),
                    op => change_names!(group, op)?,
                }
                changes.push((op.clone(), bytes));
                continue;
            }
            let path = opened_as(op.file());
            let file = made.get(path).unwrap_or_else(|| &self.files[path]);
            match op {
                Op::Write { file: number, offset, .. } => {
                    if !changes.iter().any(|(done, _)| done.file() == op.file()) {
                        group.add(file)?;
                        let mut bytes = vec![0; OWN];
                        let read = group.read_at(file, *offset, &mut bytes)?;
                        bytes.truncate(read);
                        own.push(Seen { file: number, offset: *offset, bytes });
                    }
                    group.write_at(file, *offset, &bytes)?;
                }
                Op::Append { .. } => drop(group.append(file, &bytes)?),
                Op::SetLen { length, .. } => group.set_len(file, *length)?,
                op => return Err(Error::Unsupported(format!("{op:?} by threads"))),
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
        let bytes = bytes_of(op, &mut self.write);
        // Where making it has failed, there is nothing to be done to it.
        if op.is_of_bytes() && !self.files.contains_key(opened_as(op.file())) {
            return Ok(());
        }
        let noted = self.stage.note("call", vec![(op.clone(), bytes.clone())], Vec::new());
        let file = || &self.files[opened_as(op.file())];
        let done = match op {
            Op::Create(path) => match self.calls.create_file(path, FILE_MODE) {
                Ok(file) => {
                    self.files.insert(path, Arc::new(file));
                    Ok(None)
                }
                Err(error) => Err(error),
            },
            Op::Write { offset, .. } => file().write_at(*offset, &bytes).map(|()| None),
            Op::Append { .. } => file().append(&bytes).map(Some),
            Op::SetLen { length, .. } => file().set_len(*length).map(|()| None),
            op => change_names!(self.calls, op).map(|()| None),
        };
        match done {
            Ok(offset) => self.stage.returned(noted, offset),
            Err(error) if may_be(&error) => self.stage.refused(noted),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
