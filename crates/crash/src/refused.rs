//! A host that refuses what a group asks for, at any of the calls by which the group is written back: contract 10.
//!
//! The store writes groups back as part of their commit ([`Options::at_once`](wholly::Options)). Before one of its
//! calls on the host directory the host begins to refuse: that call only, or all of that kind until the commit has
//! returned. Then
//!
//! 1. The commit succeeds, and the directory has the group; or it fails, and the directory is as it was.
//! 2. The next group commits; where the store has failed, once it is opened again.
//! 3. After a crash at any moment of that, the store opens, and a checkpoint leaves the directory with the group, or as
//!    it was.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use wholly::{Error, Options, Store};
use wholly_host::HostFs;
use wholly_media::Result as Media;
use wholly_sim::{ExploreLimits, Explorer, Image, World};

use crate::bystanders::perform;
use crate::look::at_home;
use crate::script::workload;
use crate::setting::Setting;
use crate::store::format;
use crate::tree::{State, make_in_layer};
use crate::workload::{Op, Step, Workload};

/// What is there, and the group, as [scripts](crate::script).
pub const ALL: &[&str] = &[
    "bare,create-foo+append-foo",
    "bare,mkdir-B+create-B/foo+append-B/foo+symlink-nowhere-B/bar",
    "bare,unlink-A/foo",
    "bare,write-A/foo+append-A/foo",
    "bare,cut-A/foo",
    "bare,grow-A/foo+write-A/foo",
    "bare,punch-A/foo",
    "bare,chmod-A/foo+tag-A/foo+chown-A",
    "bare,chmod-A/foo+note-A/foo+times-A/foo+unlink-A/foo",
    "bare,rename-A/foo-foo+append-foo+mkdir-C",
    "bare,create-foo+append-foo+rename-foo-A/foo",
    "bare,link-A/foo-foo+unlink-A/foo+create-A/foo+fifo-bar",
    "dirs,rmdir-B+create-foo+append-foo",
    "dirs,rename-B-C+create-C/foo+append-C/foo",
    "dirs,unlink-A/foo+rename-B-C+chmod-A",
    "bare,adopt-B+unlink-A/foo",
    "bare,clear-A+create-foo+append-foo",
    "dirs,clear-A+adopt-A",
    "bare,unlink-A/foo+rmdir-A+adopt-A",
    "dirs,clear-B+rename-A-B+chmod-B",
    "bare,take-foo+adopt-C+chmod-A/foo",
    "bare.staged,create-foo+fill-foo+unlink-A/foo",
    "bare.staged,import-foo+append-foo+unlink-A/foo",
    "bare.staged,create-foo+fill-foo+rename-foo-A/foo+mkdir-B",
];

/// What hosts say.
pub const ERRNOS: [Errno; 6] = [Errno::NOSPC, Errno::DQUOT, Errno::MLINK, Errno::PERM, Errno::MFILE, Errno::IO];

/// How many calls and images were judged, and how many groups were refused.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Calls before which the host began to refuse.
    pub calls: u64,
    /// Commits that failed.
    pub refused: u64,
    /// Images of crashes.
    pub images: u64,
    /// Sites of the calls after which there were crashes.
    pub sites: BTreeSet<&'static str>,
}

/// A file of the next group.
const LATE: &str = "late";

/// Tries a host that refuses at each call of the group in `script`, with `errno`. With `lasts` it goes on refusing
/// calls of that kind. With `crashes` there are crashes in one of so many.
///
/// # Errors
/// What is wrong, in words.
pub fn explore(
    script: &str,
    setting: &Setting,
    (errno, lasts): (Errno, bool),
    crashes: Option<(&ExploreLimits, u64)>,
) -> Result<Judged, String> {
    let mut judged = Judged::default();
    for call in 1.. {
        let limits = crashes.filter(|(_, every)| call % every == 0).map(|(limits, _)| limits);
        let one = crate::quiet::catch(|| at(script, setting, (errno, lasts, call), limits)).unwrap_or_else(Err);
        let named = |what| format!("{script}, {errno:?} from call {call}, lasts: {lasts}: {what}");
        let Some(one) = one.map_err(named)? else { break };
        judged.calls += 1;
        judged.refused += one.refused;
        judged.images += one.images;
        judged.sites.extend(one.sites);
        assert!(call < 10_000, "a group makes fewer calls");
    }
    Ok(judged)
}

/// Makes in the layer what these calls adopt.
pub(crate) fn fill_layer(world: &Arc<World>, store: &Store, ops: &[Op]) -> Result<(), String> {
    for (number, op) in ops.iter().enumerate() {
        let Op::Adopt { path, what } = op else { continue };
        if world.host().stat(wholly::LAYER.as_bytes()).is_err() {
            store.make_layer().map_err(|error| format!("the layer: {error}"))?;
        }
        let bytes = op.bytes(number as u64).unwrap_or_default();
        make_in_layer(&*world.host(), path, *what, &bytes).map_err(|error| format!("in the layer: {error}"))?;
    }
    Ok(())
}

fn at(
    script: &str,
    setting: &Setting,
    (errno, lasts, call): (Errno, bool, u64),
    limits: Option<&ExploreLimits>,
) -> Result<Option<Judged>, String> {
    let workload = workload(script).expect("it makes sense");
    let [Step::Group { ops, commit: true }] = &workload.steps[..] else { panic!("{script} is no group") };
    let world = World::new(setting.sim.clone());
    let before = workload.initial();
    before.put_into(&world);
    format(&world, &workload, setting).map_err(|error| error.to_string())?;
    let host = Refusing::new(world.host(), (errno, lasts));
    let store = open(&world, host.clone(), &workload, setting)?;
    let mut after = before.clone();
    fill_layer(&world, &store, ops)?;
    let mut group = store.begin();
    perform(&mut group, &mut after, ops, 0)?;
    let from = world.now() + 1;
    host.begin(call);
    let committed = group.commit();
    let came = host.end();
    let (expected, what) = match &committed {
        Ok(()) => (&after, "committed"),
        Err(_) => (&before, "refused"),
    };
    let is_failed = matches!(committed, Err(Error::Poisoned(_)));
    let (trace, end) = (world.trace(), world.now());
    if !is_failed {
        goes_on(&store)?;
        store.close().map_err(|error| format!("close: {error}"))?;
        let home = at_home(&world.latest())?;
        if let Some(difference) = expected.difference(&home) {
            return Err(format!("{what} ({committed:?}), but {difference}"));
        }
    } else {
        drop(store);
        let image = world.kill();
        survives(&image, (&workload, setting), &[&before, &after])?;
    }
    let mut judged = Judged { calls: 1, refused: u64::from(committed.is_err()), ..Judged::default() };
    let Some(limits) = limits else { return Ok(came.then_some(judged)) };
    let (mut explorer, mut wrong) = (Explorer::new(&trace), None);
    for point in from..=end.min(trace.events.len() as u64) {
        explorer.seek(point);
        judged.sites.extend(trace.events.get(point as usize - 1).and_then(|event| event.site).map(|site| site.0));
        let mut one = |choice: String, image: &Image| {
            judged.images += 1;
            let both = [&before, &after];
            let what = crate::quiet::catch(|| survives(image, (&workload, setting), &both)).unwrap_or_else(Err);
            wrong = what.err().map(|what| format!("{committed:?}, {choice}: {what}"));
            if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if one(format!("p{point}:kill"), &explorer.kill_image()).is_continue() {
            explorer.for_each_image(limits, |choice, image| one(choice.to_string(), image));
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
    }
    Ok(came.then_some(judged))
}

/// After a crash the group is in the directory, or nothing of it.
fn survives(image: &Image, (workload, setting): (&Workload, &Setting), states: &[&State]) -> Result<(), String> {
    let world = World::from_image(image, setting.sim.clone());
    let store = open(&world, world.host(), workload, setting)?;
    goes_on(&store)?;
    store.close().map_err(|error| format!("close after a crash: {error}"))?;
    let home = at_home(&world.latest())?;
    if states.iter().all(|state| state.difference(&home).is_some()) {
        let differences: Vec<_> = states.iter().filter_map(|state| state.difference(&home)).collect();
        return Err(format!("after a crash the directory is neither: {}", differences.join("; or ")));
    }
    Ok(())
}

/// A group that has nothing to do with it, and one that undoes it.
pub(crate) fn goes_on(store: &Store) -> Result<(), String> {
    let make = || {
        let mut group = store.begin();
        let file = group.create(LATE, 0o600)?;
        group.append(&file, b"later")?;
        group.commit()?;
        let mut group = store.begin();
        group.unlink(LATE)?;
        group.commit()
    };
    make().map_err(|error: Error| format!("the next group: {error}"))
}

fn open(world: &Arc<World>, host: Arc<dyn HostFs>, workload: &Workload, setting: &Setting) -> Result<Store, String> {
    let options = Options { at_once: true, ..workload.options(setting.segment_bytes()) };
    Store::open_on(world.log(), host, options, None).map_err(|error| format!("open: {error}"))
}

/// A host directory that begins to refuse before one of the calls.
pub(crate) struct Refusing {
    host: Arc<dyn HostFs>,
    /// Calls until then.
    left: AtomicU64,
    errno: Errno,
    lasts: bool,
    /// The kind of call that is refused.
    kind: Mutex<Option<&'static str>>,
}

impl Refusing {
    /// One that refuses nothing so far.
    pub fn new(host: Arc<dyn HostFs>, (errno, lasts): (Errno, bool)) -> Arc<Refusing> {
        Arc::new(Refusing { host, left: AtomicU64::new(u64::MAX), errno, lasts, kind: Mutex::new(None) })
    }

    /// From now on it counts: `call` is the first one to be refused.
    pub fn begin(&self, call: u64) {
        self.left.store(call, Ordering::SeqCst);
    }

    /// It refuses nothing any more. Gives whether it has.
    pub fn end(&self) -> bool {
        let came = self.left.swap(u64::MAX, Ordering::SeqCst) > u64::MAX / 2;
        self.kind.lock().unwrap().take().is_some() || came
    }

    fn call(&self, kind: &'static str) -> Media<()> {
        if self.left.load(Ordering::SeqCst) > u64::MAX / 2 && self.kind.lock().unwrap().is_none() {
            return Ok(());
        }
        let mut refused = self.kind.lock().unwrap();
        let is_now = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_now {
            *refused = Some(kind);
        }
        let refuses = is_now || self.lasts && *refused == Some(kind);
        if refuses { Err(wholly_media::Error::new(kind, "", self.errno)) } else { Ok(()) }
    }
}

wholly_host::pass_on! {
    Refusing;
    ask |this| &*this.host;
    call |this, name| {
        this.call(name)?;
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
