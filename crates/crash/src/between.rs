//! A bystander who acts between any two calls of a store on its host directory, while a group commits, is parked or
//! goes home: contract 9 at its closest.
//!
//! However it meets the store, afterwards:
//!
//! 1. The group is committed or parked. A checkpoint succeeds, or reports a conflict.
//! 2. The store goes on: the next group commits, now and when it is opened again.
//! 3. What is parked is all there: it can be looked at, and is applied, or said to be overtaken.
//! 4. Once the bystander's change is out of the way, where that can be, everything that is committed goes home.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wholly::{Error, ParkedId, Side, Store, What};
use wholly_host::HostFs;
use wholly_media::Result as Media;
use wholly_sim::World;

use crate::bystanders::perform;
use crate::look::at_home;
use crate::script::{op, workload};
use crate::setting::Setting;
use crate::store::format;
use crate::tree::{Kind, State, on_host};
use crate::workload::{Step, Workload};

/// What a group does, and what somebody does meanwhile behind the store's back.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// What is there, and the group, as a [script](crate::script).
    pub group: &'static str,
    /// What the bystander does.
    pub acts: &'static [&'static str],
    /// What puts it out of the way; nothing where that cannot be.
    pub undo: &'static [&'static str],
}

const fn scene(group: &'static str, acts: &'static [&'static str], undo: &'static [&'static str]) -> Scene {
    Scene { group, acts, undo }
}

/// The group writes to a file in a directory, and makes another one there.
const IN_A: &str = "bare,write-A/foo+create-A/bar+append-A/bar";

/// All that are tried.
pub const ALL: &[Scene] = &[
    scene(IN_A, &["rename-A-baz", "symlink-nowhere-A"], &["unlink-A", "rename-baz-A"]),
    scene(IN_A, &["rename-A-baz", "create-A"], &["unlink-A", "rename-baz-A"]),
    scene(IN_A, &["rename-A-baz", "mkdir-A"], &["rmdir-A", "rename-baz-A"]),
    scene(IN_A, &["rename-A-baz"], &["rename-baz-A"]),
    scene(IN_A, &["rename-A/foo-baz", "symlink-nowhere-A/foo"], &[]),
    scene(IN_A, &["unlink-A/foo"], &[]),
    scene(IN_A, &["unlink-A/foo", "create-A/foo", "append-A/foo"], &[]),
    scene(IN_A, &["chmod-A/foo"], &[]),
    scene(IN_A, &["append-A/foo"], &[]),
    scene("bare,unlink-A/foo", &["rename-A-baz", "symlink-nowhere-A"], &["unlink-A", "rename-baz-A"]),
    scene("bare,unlink-A/foo+create-A/foo+append-A/foo", &["append-A/foo"], &[]),
    scene("bare,rename-A/foo-foo+append-foo", &["rename-A-baz", "symlink-nowhere-A"], &["unlink-A", "rename-baz-A"]),
    scene("bare,rename-A/foo-foo+append-foo", &["create-foo", "append-foo"], &["unlink-foo"]),
    scene("bare,chmod-A/foo+tag-A", &["rename-A-baz", "symlink-nowhere-A"], &["unlink-A", "rename-baz-A"]),
    scene("bare,chmod-A/foo+tag-A", &["shut-A"], &[]),
    scene("dirs,rmdir-B+create-foo+append-foo", &["create-B/foo"], &["unlink-B/foo"]),
    scene("dirs,rename-B-C+create-C/foo+append-C/foo", &["create-C"], &["unlink-C"]),
    scene("dirs,rename-B-C+create-C/foo+append-C/foo", &["create-B/foo"], &[]),
    scene("dirs,rename-B-C+create-C/foo+append-C/foo", &["rename-B-baz", "symlink-A-B"], &["unlink-B", "rename-baz-B"]),
];

/// How the group ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It commits, unless it was overtaken, and goes home.
    Commit,
    /// It is parked.
    Park,
}

/// What has become of it.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Committed,
    Parked(ParkedId),
}

/// The number of the first write of the bystander.
const THEIRS: u64 = 1 << 20;

/// A file of the group after that.
const LATE: &str = "late";

impl Scene {
    /// Has the bystander act before each call that the store makes. Returns at how many places he came.
    ///
    /// # Errors
    /// What is wrong, in words, and where he came.
    pub fn explore(&self, setting: &Setting) -> Result<u64, String> {
        let (mut places, mut wrong) = (0, Vec::new());
        for end in [End::Commit, End::Park] {
            for place in 1.. {
                let judged = crate::quiet::catch(|| self.at(setting, end, place)).unwrap_or_else(Err);
                match judged {
                    Ok(true) => places += 1,
                    Ok(false) => break,
                    Err(what) => wrong.push(format!("{}, {:?}, {end:?}, call {place}: {what}", self.group, self.acts)),
                }
                assert!(place < 10_000, "a group makes fewer calls");
            }
        }
        if wrong.is_empty() { Ok(places) } else { Err(wrong.join("\n")) }
    }

    /// Whether he came, when he is to come before call `place`.
    fn at(&self, setting: &Setting, end: End, place: u64) -> Result<bool, String> {
        let workload = workload(self.group).expect("it makes sense");
        let [Step::Group { ops, commit: true }] = &workload.steps[..] else { panic!("{} is no group", self.group) };
        let world = World::new(setting.sim.clone());
        let before = workload.initial();
        before.put_into(&world);
        format(&world, &workload, setting).map_err(|error| error.to_string())?;
        let meddled = Arc::new(Meddled {
            host: world.host(),
            left: AtomicU64::new(u64::MAX),
            has_come: AtomicBool::new(false),
            has_acted: AtomicBool::new(false),
            acts: self.acts,
        });
        let store = open(&world, meddled.clone(), &workload, setting)?;
        let mut after = before.clone();
        let mut running = store.begin();
        perform(&mut running, &mut after, ops, 0)?;
        meddled.left.store(place, Ordering::SeqCst);
        let fate = match end {
            End::Commit => match running.commit_or_park("", None) {
                Ok(()) => Fate::Committed,
                Err(Error::ChangedMeanwhile(id, _)) => Fate::Parked(id),
                Err(error) => return Err(format!("commit: {error}")),
            },
            End::Park => Fate::Parked(running.park("", None).map_err(|error| format!("park: {error}"))?),
        };
        went(store.checkpoint().map(drop), "a checkpoint")?;
        meddled.left.store(u64::MAX, Ordering::SeqCst);
        if !meddled.has_come.load(Ordering::SeqCst) {
            return Ok(false);
        }
        late(&store, "in the same process")?;
        drop(store);
        let undo = if meddled.has_acted.load(Ordering::SeqCst) { self.undo } else { &[] };
        let is_undone = !undo.is_empty() || !meddled.has_acted.load(Ordering::SeqCst);
        live(&world, (&workload, setting), (&before, &after), fate, is_undone.then_some(undo))?;
        Ok(true)
    }
}

/// The next process. With `undo` the bystander's change can be put out of the way.
fn live(
    world: &Arc<World>,
    (workload, setting): (&Workload, &Setting),
    (before, after): (&State, &State),
    fate: Fate,
    undo: Option<&[&str]>,
) -> Result<(), String> {
    let world = World::from_image(&world.kill(), setting.sim.clone());
    let store = open(&world, world.host(), workload, setting)?;
    late(&store, "when it is opened again")?;
    let mut is_there = true;
    if let Fate::Parked(id) = fate {
        is_whole(&store, id, before, after)?;
        is_there = is_applied(&store, id)?;
    }
    went(store.checkpoint().map(drop), "a checkpoint when it is opened again")?;
    drop(store);
    let Some(undo) = undo else { return Ok(()) };
    for (number, word) in (2 * THEIRS..).zip(undo) {
        act(&*world.host(), word, number).map_err(|error| format!("{word}: {error}"))?;
    }
    let store = open(&world, world.host(), workload, setting)?;
    if let (Fate::Parked(id), false) = (fate, is_there) {
        is_there = is_applied(&store, id)?;
        if !is_there {
            store.discard(id).map_err(|error| format!("discard: {error}"))?;
        }
    }
    store.close().map_err(|error| format!("a close once he is out of the way: {error}"))?;
    let home = contents(&at_home(&world.latest())?);
    let expected = contents(if is_there { after } else { before });
    match home == expected {
        true => Ok(()),
        false => Err(format!("once he is out of the way, at home are {home:?} instead of {expected:?}")),
    }
}

/// A group that has nothing to do with it, and one that undoes it.
fn late(store: &Store, when: &str) -> Result<(), String> {
    let make = || {
        let mut group = store.begin();
        let file = group.create(LATE, 0o600)?;
        group.append(&file, b"later")?;
        group.commit()?;
        let mut group = store.begin();
        group.unlink(LATE)?;
        group.commit()
    };
    make().map_err(|error: Error| format!("{when}, the next group: {error}"))
}

fn open(world: &Arc<World>, host: Arc<dyn HostFs>, workload: &Workload, setting: &Setting) -> Result<Store, String> {
    let options = workload.options(setting.segment_bytes());
    Store::open_on(world.log(), host, options, None).map_err(|error| format!("open: {error}"))
}

fn went(done: wholly::Result<()>, what: &str) -> Result<(), String> {
    match done {
        Ok(()) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

fn act(host: &dyn HostFs, word: &str, number: u64) -> Media<()> {
    let op = op(word).expect("a word");
    on_host(host, None, &op, &op.bytes(number).unwrap_or_default()).map(drop)
}

/// Whether a parked group could be applied; else it was overtaken.
fn is_applied(store: &Store, id: ParkedId) -> Result<bool, String> {
    match store.apply(id) {
        Ok(()) => Ok(true),
        Err(Error::ChangedMeanwhile(..)) => Ok(false),
        Err(error) => Err(format!("apply: {error}")),
    }
}

/// Whether a parked group has all that the group has written.
fn is_whole(store: &Store, id: ParkedId, before: &State, after: &State) -> Result<(), String> {
    let review = store.review(id).map_err(|error| format!("review: {error}"))?;
    let mut written = Vec::new();
    for change in review.changes().iter().filter(|change| change.content && change.after.is_some()) {
        let mut bytes = vec![0; 1 << 16];
        // Of a file that was there it has what was written, and the rest is where the bystander has left it.
        if matches!(change.what, What::Created | What::Replaced) {
            let read = review.read(change, Side::After, 0, &mut bytes).map_err(|error| format!("read: {error}"))?;
            bytes.truncate(read);
            written.push(bytes);
        }
    }
    let had: Vec<u32> = before.paths().into_iter().map(|(_, number)| number).collect();
    let made = after.paths().into_iter().filter(|(_, number)| !had.contains(number));
    let mut expected: Vec<Vec<u8>> = made
        .filter_map(|(_, number)| match &after.object(number).kind {
            Kind::File(bytes) => Some(bytes.to_vec()),
            _ => None,
        })
        .collect();
    written.sort();
    expected.sort();
    match review.changes().is_empty() || written != expected {
        false => Ok(()),
        true => Err(format!("parked is not what was written: {:?}", review.changes())),
    }
}

/// What is in the files, and what else there is.
fn contents(state: &State) -> Vec<(String, String)> {
    let shown = |kind: &Kind| match kind {
        Kind::Dir(_) => "a directory".into(),
        other => format!("{other:?}"),
    };
    let one = |(path, number)| (path, shown(&state.object(number).kind));
    state.paths().into_iter().map(one).collect()
}

/// A host directory in which somebody else acts before one of the calls.
struct Meddled {
    host: Arc<dyn HostFs>,
    /// Calls until then.
    left: AtomicU64,
    has_come: AtomicBool,
    /// Whether there was anything for him to do.
    has_acted: AtomicBool,
    acts: &'static [&'static str],
}

impl Meddled {
    fn count(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.has_come.store(true, Ordering::SeqCst);
            for (word, number) in self.acts.iter().zip(THEIRS..) {
                match act(&*self.host, word, number) {
                    Ok(()) => self.has_acted.store(true, Ordering::SeqCst),
                    Err(error) if self.has_acted.load(Ordering::SeqCst) => panic!("{word}: {error}"),
                    Err(_) => return,
                }
            }
        }
    }
}

wholly_host::pass_on! {
    Meddled;
    ask |this| &*this.host;
    call |this, _name| {
        this.count();
        &*this.host
    };
    HostFs {
        // Where inodes last there is nothing to do.
        fn settle(&self, at: At<'_>) -> Result<Option<Stat>> {
            self.host.settle(at)
        }
    }
    HostNames {}
}
