//! Crashes of a bank of counters, under the explorer of stores and volumes.
//!
//! A counter is a value and a note, in the log and at home: behind the slots of the superblock each has a segment's
//! place. A checkpoint writes all of them home.

use wholly_crash::coverage::uncovered;
use wholly_crash::{
    Beginning, Job, Life, Limits, NotOpened, Outcome, Promise, Recorder, Run, Seen, Setting, State, Subject, explore,
    explore_into,
};

use wholly_sim::{Mutation, MutationKind};

use super::*;

const COUNTERS: usize = 3;
/// Where the counters are at home, and the bytes of one there.
const HOME: u64 = SEGMENT * (PLACES as u64 + 2);
const HOME_BYTES: usize = 512;

const HOME_WRITE: Site = Site("toy.home");
const HOME_FENCE: Site = Site("toy.fence");

/// What this client never asks the medium for: segments that are extents have their length in the superblock.
const OF_FILES: [Site; 2] = [site::LOG_SHRINK, site::RECOVER_LENGTH];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counter {
    value: u64,
    note: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bank([Counter; COUNTERS]);

impl Bank {
    fn apply(&mut self, group: &[Told]) {
        for (kind, counter, value, note) in group {
            let counter = &mut self.0[*counter as usize];
            match kind {
                Kind::Set => counter.value = *value,
                Kind::Note => counter.note = note.clone(),
                Kind::Parts => unreachable!("the log's own"),
            }
        }
    }

    fn state(&self) -> State {
        let mut state = State::default();
        for (i, counter) in self.0.iter().enumerate() {
            let content = [&counter.value.to_le_bytes(), &counter.note[..]].concat();
            state.put(&format!("counter-{i}"), wholly_crash::Object::file(content, 0o644));
        }
        state
    }

    fn home(base: &dyn Region) -> Result<Bank> {
        let mut bank = Bank::default();
        for (counter, at) in bank.0.iter_mut().zip((HOME..).step_by(SEGMENT as usize)) {
            let mut bytes = [0; HOME_BYTES];
            base.read(at, &mut bytes)?;
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            // The length of a note that was torn: the log has the whole one.
            let len = (word(8) as usize).min(HOME_BYTES - 16);
            *counter = Counter { value: word(0), note: bytes[16..16 + len].to_vec() };
        }
        Ok(bank)
    }

    fn write_home(&self, base: &dyn Region) -> Result<()> {
        for (counter, at) in self.0.iter().zip((HOME..).step_by(SEGMENT as usize)) {
            let mut bytes = counter.value.to_le_bytes().to_vec();
            bytes.extend((counter.note.len() as u64).to_le_bytes());
            bytes.extend(&counter.note);
            bytes.resize(HOME_BYTES, 0);
            base.write(HOME_WRITE, at, &bytes)?;
        }
        Ok(base.fence(HOME_FENCE)?)
    }
}

/// A bank that is open.
struct Teller {
    base: Arc<dyn Region>,
    committer: Committer,
    bank: Bank,
    /// Groups that the open found in the log.
    found: u64,
}

impl Teller {
    fn open(world: &Arc<World>) -> Result<Teller> {
        let base = world.log();
        let superblock = read_superblock::<Places>(&*Extents::new(&base, Vec::new()))?;
        let extents = Extents::new(&base, superblock.client.0);
        wholly_log::settle(&*extents)?;
        let mut bank = Bank::home(&*base)?;
        let mut groups = Groups(extents.clone(), Vec::new());
        let (log, report) = scan::open(Source(extents), GEOMETRY, |_, _| Ok(()), &mut groups, &|_| ())?;
        groups.1.iter().for_each(|(_, group)| bank.apply(group));
        Ok(Teller { base, committer: Committer::new(log), bank, found: report.groups })
    }

    fn commit(&mut self, group: &[Told]) {
        self.committer.commit(group);
        self.bank.apply(group);
    }

    fn checkpoint(&mut self) -> Result<()> {
        let Teller { base, committer, bank, .. } = self;
        committer.checkpoint_with(|| bank.write_home(&**base))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Told>),
    Checkpoint,
    /// The process dies, and another one opens the log.
    Die,
}

/// What is done to a bank.
#[derive(Clone, Debug)]
struct Business {
    name: &'static str,
    steps: Vec<Step>,
}

fn set(counter: u64, value: u64) -> Told {
    (Kind::Set, counter, value, Vec::new())
}

fn all() -> Vec<Business> {
    let commit = |group: &[Told]| Step::Commit(group.to_vec());
    let large = (0..12).map(|i| (Kind::Note, i % 3, 0, vec![i as u8 + 1; 480])).collect();
    vec![
        Business {
            name: "groups",
            steps: vec![
                commit(&[set(0, 1)]),
                commit(&[set(1, 2), note(1, 100)]),
                commit(&[set(0, 3), note(2, 70), set(2, 4)]),
                Step::Die,
                commit(&[note(0, 90)]),
                commit(&[set(0, 5)]),
            ],
        },
        Business {
            name: "checkpoints",
            steps: vec![
                commit(&[set(0, 1), note(0, 100)]),
                Step::Checkpoint,
                commit(&[set(0, 2), note(1, 40)]),
                Step::Die,
                Step::Checkpoint,
                commit(&[note(0, 30)]),
                Step::Checkpoint,
            ],
        },
        Business {
            name: "parts",
            steps: vec![
                commit(&[set(1, 1)]),
                Step::Commit(large),
                commit(&[set(1, 2)]),
                Step::Checkpoint,
                commit(&[set(2, 3)]),
            ],
        },
    ]
}

fn in_words(error: Error) -> String {
    error.to_string()
}

fn recorded<T>(
    recorder: &mut Recorder,
    label: &str,
    after: &Bank,
    body: impl FnOnce() -> Result<T>,
) -> std::result::Result<T, String> {
    let op = recorder.begin(label, &after.state());
    let done = body().map_err(|error| format!("{label}: {error}"))?;
    recorder.end(op);
    Ok(done)
}

impl Subject for Business {
    type Open = Mutex<Teller>;

    const OBSERVES_IN_RECOVERY: bool = false;

    fn name(&self) -> String {
        format!("log:{}", self.name)
    }

    fn rules(&self) -> String {
        "log".into()
    }

    fn begin(&self, setting: &Setting) -> Beginning {
        Beginning { world: World::new(setting.sim.clone()), state: Bank::default().state(), is_made: false }
    }

    fn perform(&self, _setting: &Setting, recorder: &mut Recorder) -> std::result::Result<(), String> {
        let (world, mut bank) = (recorder.world.clone(), Bank::default());
        recorded(recorder, "making it", &bank, || {
            format(&world.log());
            Ok(())
        })?;
        let mut teller = recorded(recorder, "open", &bank, || Teller::open(&world))?;
        for step in &self.steps {
            match step {
                Step::Commit(group) => {
                    bank.apply(group);
                    recorded(recorder, "commit", &bank, || {
                        teller.commit(group);
                        Ok(())
                    })?;
                }
                Step::Checkpoint => recorded(recorder, "checkpoint", &bank, || teller.checkpoint())?,
                Step::Die => teller = recorded(recorder, "open", &bank, || Teller::open(&world))?,
            }
            assert_eq!(teller.bank, bank);
        }
        Ok(())
    }

    fn check(&self, _world: &Arc<World>) -> std::result::Result<(), String> {
        Ok(())
    }

    fn open(&self, world: &Arc<World>, _setting: &Setting) -> std::result::Result<Mutex<Teller>, NotOpened> {
        Teller::open(world).map(Mutex::new).map_err(|error| match error {
            Error::Corrupt { .. } => NotOpened::Unmade(error.to_string()),
            error => NotOpened::Failed(error.to_string()),
        })
    }

    fn observe(&self, _world: &Arc<World>, open: &Mutex<Teller>) -> std::result::Result<State, String> {
        Ok(open.lock().unwrap().bank.state())
    }

    fn go_on(&self, life: &mut Life, open: &Mutex<Teller>, _state: Promise) -> std::result::Result<Promise, String> {
        let mut bank = open.lock().unwrap().bank.clone();
        let group = [set(0, u64::MAX), (Kind::Note, 1, 0, vec![0xff; 120])];
        bank.apply(&group);
        let state = Promise::new(bank.state());
        life.operation("a new group", &state, |_| {
            open.lock().unwrap().commit(&group);
            Ok(())
        })?;
        life.expect(self, open, &state, "after a new group")?;
        Ok(state)
    }

    fn close(&self, open: Mutex<Teller>) -> std::result::Result<(), String> {
        open.into_inner().unwrap().checkpoint().map_err(in_words)
    }

    fn at_rest(&self, world: &Arc<World>, state: &State) -> std::result::Result<(), String> {
        let home = Bank::home(&*world.log()).map_err(in_words)?.state();
        state.difference(&home).map_or(Ok(()), Err)
    }

    fn was_closed(&self, open: &Mutex<Teller>) -> std::result::Result<(), String> {
        match open.lock().unwrap().found {
            0 => Ok(()),
            groups => Err(format!("{groups} groups are left in the log")),
        }
    }

    fn seen_beside(&self, _run: &Run) -> Option<(u64, String)> {
        None
    }
}

fn world(name: &str) -> Setting {
    let setting = Setting::named(name);
    let log_len = HOME + COUNTERS as u64 * SEGMENT;
    Setting { sim: Arc::new(SimConfig { log_len, ..(*setting.sim).clone() }), ..setting }
}

/// What is broken on purpose shows: a fence or a synchronous write orders nothing, a store comes too late. (That the
/// superblock counts a new segment is, on persistent memory, made durable by the fence of the group that fills it.)
#[test]
fn a_mistake_is_seen() {
    use MutationKind::{DelayWrite, DropOrder};
    let is_seen = |world_name: &str, site: Site, kind| {
        let setting = world(world_name).broken(Mutation::new(site, kind));
        all().iter().any(|subject| !explore(subject, &setting, &Limits::glance()).violations.is_empty())
    };
    let fences = [site::LANE_COMMIT_FENCE, site::LANE_PARTS_FENCE, site::CHECKPOINT_TAIL];
    let of_pmem = fences.map(|site| (site, DropOrder)).into_iter().chain([(HOME_FENCE, DropOrder)]);
    let stores = [site::SEGMENT_HEADER, site::LANE_PAYLOAD, site::LANE_ENTRIES, site::LANE_PART, site::LANE_COMMIT];
    let of_pmem = of_pmem.chain(stores.map(|site| (site, DelayWrite))).chain([(HOME_WRITE, DelayWrite)]);
    let of_disk = [site::BATCH_WRITE, site::SPILL_SYNC, site::LOG_GROW_COUNT, HOME_FENCE].map(|site| (site, DropOrder));
    let all = of_pmem.map(|(site, kind)| ("pmem", site, kind)).chain(of_disk.map(|(site, kind)| ("disk", site, kind)));
    let unseen: Vec<_> = all.filter(|(world, site, kind)| !is_seen(world, *site, *kind)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

/// A group is there wholly or not at all, and once its commit has returned it is there; every place of the log that
/// stores or orders was a crash point.
#[test]
fn groups_of_another_client_survive() {
    let (seen, mut together) = (Seen::default(), Outcome::default());
    for name in ["pmem", "pmem-x86", "disk"] {
        let setting = world(name);
        let jobs: Vec<_> = all().into_iter().map(|subject| Job { subject, setting: setting.clone() }).collect();
        let outcome = explore_into(&seen, &jobs, &Limits::hunt());
        println!("{name}: {outcome}");
        together.merge(outcome);
    }
    (together.distinct, together.nested) = (seen.distinct(), seen.nested());
    println!("{together}");
    together.assert_clean();
    let mut sites: Vec<Site> = site::ALL.to_vec();
    // No group of this client lasts, so none gives parts up: those of a store do.
    sites.retain(|site| !OF_FILES.contains(site) && *site != site::SPILL_GIVE_UP);
    assert_eq!(uncovered(&sites, &together), [], "these were no crash points");
}
