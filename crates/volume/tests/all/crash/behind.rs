//! An engine that is not durable at the return of a call: `undo` over a region that keeps all stores and fences in
//! memory until a sync, and makes them in their order then. So a crash leaves what there was after some call since the
//! last sync. The explorer must find nothing wrong with that, and find each way in which it is less.

use std::sync::{Arc, Mutex, MutexGuard};

use wholly_crash::volume::{Calls, OnVolume, Program, Running, setting};
use wholly_crash::{Limits, Op, Outcome, State, explore};
use wholly_media::{Guarantees, Region, Site};
use wholly_vfs::GroupId;
use wholly_volume::engine::draft::Draft;
use wholly_volume::engine::{
    CommitSequence, DataAt, Durability, Engine, Kind, Later, Load, Logged, Maps, Operation, Part, Placed, Reclaim,
    Replay, View, Waiting,
};
use wholly_volume::format::Lba;
use wholly_volume::{DurableAt, EngineKind, Reached, Trial, Volume, VolumeOptions};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// A sync makes nothing durable.
    SyncForgets,
    /// It does not wait for the medium.
    SyncIsEarly,
    /// The last group comes first.
    LastFirst,
    /// The first group does not come at all.
    FirstIsLost,
}

/// What waits.
enum Waits {
    Store(Site, u64, Vec<u8>),
    Fence(Site),
    /// A group was committed.
    Committed,
}

/// See the module.
struct Behind {
    inner: Arc<dyn Region>,
    late: Mutex<Late>,
}

#[derive(Default)]
struct Late {
    /// Stores wait: not before the mount is durable, and not in an unmount.
    is_on: bool,
    waits: Vec<Waits>,
    /// All bytes with what waits.
    latest: Vec<u8>,
}

impl Behind {
    fn late(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap()
    }

    fn begin(&self) -> wholly_media::Result<()> {
        let mut late = self.late();
        if !late.is_on {
            late.is_on = true;
            late.latest.resize(self.inner.len() as usize, 0);
            self.inner.read(0, &mut late.latest)?;
        }
        Ok(())
    }

    /// Makes the stores that wait, group by group.
    fn flush(&self, wrong: Wrong) -> wholly_media::Result<()> {
        let waits = std::mem::take(&mut self.late().waits);
        let mut groups: Vec<&[Waits]> = waits.split(|wait| matches!(wait, Waits::Committed)).collect();
        match wrong {
            Wrong::SyncForgets => groups.clear(),
            Wrong::LastFirst => groups.reverse(),
            Wrong::FirstIsLost if groups.len() > 2 => drop(groups.remove(0)),
            _ => {}
        }
        let last = waits.iter().rposition(|wait| matches!(wait, Waits::Fence(_))).map(|last| &waits[last]);
        for wait in groups.into_iter().flatten() {
            match wait {
                Waits::Store(site, at, data) => self.inner.write(*site, *at, data)?,
                Waits::Fence(_) if wrong == Wrong::SyncIsEarly && last.is_some_and(|last| std::ptr::eq(last, wait)) => {
                }
                Waits::Fence(site) => self.inner.fence(*site)?,
                Waits::Committed => {}
            }
        }
        Ok(())
    }

    fn end(&self, wrong: Wrong) -> wholly_media::Result<()> {
        self.flush(wrong)?;
        self.late().is_on = false;
        Ok(())
    }
}

impl Region for Behind {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        let late = self.late();
        if !late.is_on {
            return self.inner.read(at, buf);
        }
        buf.copy_from_slice(&late.latest[at as usize..][..buf.len()]);
        Ok(())
    }

    fn write(&self, site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
        let mut late = self.late();
        if !late.is_on {
            return self.inner.write(site, at, data);
        }
        late.latest[at as usize..][..data.len()].copy_from_slice(data);
        late.waits.push(Waits::Store(site, at, data.to_vec()));
        Ok(())
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        let mut late = self.late();
        if !late.is_on {
            return self.inner.fence(site);
        }
        late.waits.push(Waits::Fence(site));
        Ok(())
    }

    fn write_through(&self, site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.write(site, at, data)?;
        self.fence(site)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.set_len(site, len)
    }
}

/// The engine over it.
struct Delayed {
    engine: Box<dyn Engine>,
    behind: Arc<Behind>,
    claim: DurableAt,
    reached: Mutex<Reached>,
    wrong: Wrong,
}

impl Delayed {
    fn make_durable(&self) -> wholly::Result<()> {
        self.behind.flush(self.wrong)?;
        let mut reached = self.reached.lock().unwrap();
        reached.durable = reached.committed;
        Ok(())
    }
}

impl Load for Delayed {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> wholly::Result<()> {
        self.engine.load(at, offset, buf)
    }
}

impl Engine for Delayed {
    fn name(&self) -> &'static str {
        "delayed"
    }

    fn durable_at(&self) -> DurableAt {
        self.claim
    }

    fn reached(&self) -> Reached {
        *self.reached.lock().unwrap()
    }

    fn recover(&self) -> wholly::Result<Option<Waiting>> {
        self.engine.recover()
    }

    fn start(&self, incarnation: u64) -> wholly::Result<()> {
        self.engine.start(incarnation)
    }

    fn close(&self) -> wholly::Result<()> {
        self.engine.close()
    }

    fn log_blocks(&self, logged: Logged) -> u64 {
        self.engine.log_blocks(logged)
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn blocks_for_call(&self, logged: Logged) -> u64 {
        self.engine.blocks_for_call(logged)
    }

    fn blocks_for_commit(&self, draft: &Draft, later: Later) -> u64 {
        self.engine.blocks_for_commit(draft, later)
    }

    fn end_call(&self, part: &mut Part<'_>) -> wholly::Result<()> {
        self.engine.end_call(part)
    }

    fn begin(&self, kind: Kind) -> GroupId {
        self.behind.begin().expect("simulated media can be read");
        self.engine.begin(kind)
    }

    fn abort(&self, part: &mut Part<'_>) {
        self.engine.abort(part);
    }

    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> wholly::Result<()> {
        self.engine.record(part, operation, replay)
    }

    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> wholly::Result<Placed> {
        self.engine.write(part, at, offset, data)
    }

    fn zero(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> wholly::Result<Placed> {
        self.engine.zero(part, at, offset, len)
    }

    fn read(&self, view: View<'_>, at: &DataAt, offset: usize, buf: &mut [u8]) -> wholly::Result<()> {
        self.engine.read(view, at, offset, buf)
    }

    fn commit(&self, parts: &mut [Part<'_>], how: Durability, replay: &dyn Replay) -> wholly::Result<CommitSequence> {
        let sequence = self.engine.commit(parts, how, replay)?;
        self.behind.late().waits.push(Waits::Committed);
        let Reached { committed, durable } = {
            let mut reached = self.reached.lock().unwrap();
            reached.committed += 1;
            *reached
        };
        let is_full = matches!(self.claim, DurableAt::Series(most) if committed - durable == most);
        if how == Durability::Durable || is_full {
            self.make_durable()?;
        }
        Ok(sequence)
    }

    fn wait(&self, _upto: CommitSequence) -> wholly::Result<()> {
        self.make_durable()
    }

    fn sync(&self) -> wholly::Result<()> {
        self.make_durable()
    }

    fn checkpoint(&self, space: &dyn Reclaim, maps: &dyn Maps) -> wholly::Result<()> {
        self.engine.checkpoint(space, maps)?;
        // An unmount goes on with stores of its own.
        if space.wanted() == u64::MAX { Ok(self.behind.end(self.wrong)?) } else { Ok(()) }
    }
}

/// A program on it.
#[derive(Clone, Debug)]
struct OnDelayed {
    calls: Calls,
    claim: DurableAt,
    wrong: Wrong,
}

impl Program for OnDelayed {
    fn name(&self) -> String {
        format!("{}, {:?}, {:?}", self.calls.name(), self.claim, self.wrong)
    }

    fn trial(&self) -> Trial {
        self.calls.trial()
    }

    fn open(&self, region: Arc<dyn Region>, options: &VolumeOptions) -> wholly::Result<Volume> {
        let behind = Arc::new(Behind { inner: region, late: Mutex::default() });
        let OnDelayed { claim, wrong, .. } = *self;
        Volume::open_region_with(behind.clone(), options, |engine| {
            Box::new(Delayed { engine, behind, claim, reached: Mutex::default(), wrong })
        })
    }

    fn prepare(&self, volume: &Volume) -> Result<(), String> {
        self.calls.prepare(volume)
    }

    fn perform(&self, running: &mut Running<'_>) -> Result<(), String> {
        self.calls.perform(running)
    }

    fn ops_after(&self, state: &State) -> Vec<Op> {
        self.calls.ops_after(state)
    }

    fn rules(&self) -> String {
        format!("{} {:?} {:?}", self.calls.rules(), self.claim, self.wrong)
    }
}

/// Calls and groups, syncs, deaths and an unmount; `home` is a sync.
const PROGRAM: &str = "dirs,call.fill-A/foo,call.create-foo,call.write-A/foo,home,call.rename-A/foo-B/bar,call.unlink-foo,\
                       call.create-foo,call.fill-foo,kill,call.create-bar,write-B/bar+create-A/bar,call.append-B/bar,home,\
                       call.chmod-A,call.mkdir-C,kill,call.write-A/foo,call.cut-A/foo,call.unlink-A/foo,close,call.fill-foo,\
                       home,call.mkdir-C";

fn explored(claim: DurableAt, wrong: Wrong) -> Outcome {
    let program = OnDelayed { calls: Calls::named(PROGRAM).expect("a script"), claim, wrong };
    let subject = OnVolume { engine: EngineKind::Undo, program };
    let limits = Limits { whole_one_in: 8, ..Limits::glance() };
    let outcome = explore(&subject, &setting("pmem").expect("a world"), &limits);
    println!("{claim:?}, {wrong:?}: {outcome}");
    outcome.violations.iter().for_each(|violation| println!("{}", violation.what));
    outcome
}

/// Whether one was found that has these words in it.
fn is_found(outcome: &Outcome, words: &str) -> bool {
    outcome.violations.iter().any(|violation| violation.what.contains(words))
}

#[test]
fn what_is_durable_at_a_sync_is_explored() {
    let outcome = explored(DurableAt::Sync, Wrong::Nothing);
    outcome.assert_clean();
    assert!(outcome.distinct > 1000 && outcome.nested * 10 > outcome.distinct, "{outcome}");
}

#[test]
fn less_than_durable_at_a_sync_is_seen() {
    assert!(is_found(&explored(DurableAt::Sync, Wrong::SyncForgets), "sync 3: the death of the process leaves"));
    assert!(is_found(&explored(DurableAt::Sync, Wrong::SyncIsEarly), "a state that never was"));
    assert!(!explored(DurableAt::Sync, Wrong::LastFirst).violations.is_empty());
    assert!(!explored(DurableAt::Sync, Wrong::FirstIsLost).violations.is_empty());
    // It loses each call until the next sync.
    assert!(!explored(DurableAt::Return, Wrong::Nothing).violations.is_empty());
}

/// One that promises series of one group keeps that. A longer series does not last as a whole: its groups become
/// durable one by one.
#[test]
fn series_that_are_torn_are_seen() {
    explored(DurableAt::Series(1), Wrong::Nothing).assert_clean();
    assert!(is_found(&explored(DurableAt::Series(4), Wrong::Nothing), "a state that never was"));
}
