//! Groups: what one call changes, or an explicit group, with the space that it has reserved (invariants 2 and 3), and
//! what of the bitmaps changes with it.

mod noted;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};

use sync::{MutexGuard, Ordering, RwLockReadGuard};
use wholly_error::{Error, Result};
use wholly_vfs::GroupId;

use super::Core;
use super::explicit::Explicit;
use crate::engine::draft::Draft;
use crate::engine::{
    Allocate, CommitSequence, DataAt, Durability, Engine, Fields, InoGen, Kind, Later, Load, Logged, Operation, Part,
    Placed, Structure, View, is_late,
};
use crate::format::bitmap::Layout;
use crate::format::inode::{self, LINE, Line};
use crate::format::pointer::{FANOUT, MAX_DEPTH, MAX_VOLUME_BLOCKS};
use crate::format::{BLOCK, Lba, Run};
use noted::{Noted, Runs, Touched};

/// Whether a group may use the blocks that are kept for calls that make space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It takes space.
    Ordinary,
    /// It makes space, or its caller cannot go on without.
    Vital,
    /// The same, and its caller keeps an unmount waiting, or is one.
    Admitted,
}

/// The lines of an inode with its times, and the others, by their first bytes.
const TIMES: u64 = (inode::Times::NUMBER * LINE) as u64;
const OTHERS: [u64; 3] =
    [(inode::Owned::NUMBER * LINE) as u64, (inode::More::NUMBER * LINE) as u64, (inode::Target::NUMBER * LINE) as u64];

/// What a commit does with the changed times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// They are stored.
    Stored,
    /// They stay in memory.
    KeptBack,
}

/// The place of a group that has changed nothing.
const NOTHING: CommitSequence = CommitSequence(0);

/// Blocks that ordinary groups leave free, besides those for what a group may log.
const KEPT: u64 = 8;

/// Blocks that ordinary groups leave free: enough to punch a hole, at least.
pub fn kept_by(engine: &dyn Engine, bitmaps: Option<(Layout, u64)>) -> u64 {
    let pointers = 2 * u64::from(MAX_DEPTH) * FANOUT;
    let logged = Logged { pointers, ..Logged::default() };
    KEPT + engine.log_blocks(Logged { bitmaps: most_bitmaps(bitmaps, Touched::FEW, 0, logged), ..logged })
}

/// The most bitmap blocks that change in a volume of so many blocks: those that an explicit group has touched, and
/// those that more blocks are in.
fn most_bitmaps(bitmaps: Option<(Layout, u64)>, touched: Touched, takes: u64, logged: Logged) -> u64 {
    let Some((layout, blocks)) = bitmaps else { return 0 };
    let units = [takes, logged.pointers, logged.freed, logged.bytes / BLOCK as u64, logged.zeros];
    // However many blocks they are.
    let of_blocks = units.into_iter().fold(touched.blocks, u64::saturating_add).min(layout.count(blocks, 0));
    (of_blocks + touched.inodes).min(layout.count(blocks, layout.most_inodes(blocks)))
}

/// A call's changes: a group of its own, or a part of an explicit group. Without a commit it is dropped; after its
/// first operation that poisons the volume, because memory has what the call was to change, and an engine may have
/// stored it. What is read for the call is read through it: it has what the engine has not stored yet.
pub struct Group<'c> {
    core: &'c Core,
    body: Whose<'c>,
    is_recorded: bool,
    is_committed: bool,
    _admitted: Option<RwLockReadGuard<'c, ()>>,
}

/// Whose changes they are.
#[allow(clippy::large_enum_variant, reason = "a group of one call is not worth an allocation")]
enum Whose<'c> {
    Own(Body),
    Explicit(MutexGuard<'c, Body>),
}

impl Deref for Whose<'_> {
    type Target = Body;

    fn deref(&self) -> &Body {
        match self {
            Whose::Own(body) => body,
            Whose::Explicit(body) => body,
        }
    }
}

impl DerefMut for Whose<'_> {
    fn deref_mut(&mut self) -> &mut Body {
        match self {
            Whose::Own(body) => body,
            Whose::Explicit(body) => body,
        }
    }
}

/// What a group has besides its inodes.
pub struct Body {
    id: GroupId,
    space: Reserved,
    draft: Draft,
    /// Inodes that it has changed, with an engine that orders.
    changed: Vec<u64>,
    /// Of an explicit group: blocks that earlier calls took.
    own: Runs,
    /// Of an explicit group: what is recorded in its commit.
    later: Later,
    /// Of an explicit group: whether the call that runs has changed something.
    pub is_changed: bool,
}

#[derive(Default)]
struct Reserved {
    /// Those of content that has no place yet among them.
    blocks: u64,
    /// By the call that runs.
    taken: Vec<Run>,
    freed: Vec<Run>,
    freed_inodes: Vec<u64>,
    /// What few groups have, or those on a volume with bitmaps.
    noted: Option<Box<Noted>>,
}

impl Reserved {
    fn noted(&mut self) -> &mut Noted {
        self.noted.get_or_insert_default()
    }

    /// The most bitmap blocks that have changed so far.
    fn touched(&self) -> Touched {
        self.noted.as_ref().map_or(Touched::default(), |noted| noted.touched())
    }

    /// Blocks that are kept for content without a place.
    fn late_blocks(&self) -> u64 {
        self.noted.as_ref().map_or(0, |noted| noted.late_blocks)
    }
}

/// The space of a group, while a call takes some of it.
struct Spending<'s> {
    core: &'s Core,
    space: &'s mut Reserved,
}

impl Spending<'_> {
    fn touch(&mut self, run: Run) {
        if self.core.storage.bitmaps.is_some() && run.count > 0 {
            self.space.noted().touch(run);
        }
    }
}

impl Allocate for Spending<'_> {
    fn take(&mut self, count: u64) -> Run {
        assert!(self.space.blocks > 0, "a group takes more blocks than it has reserved");
        let (start, count) = self.core.blocks.take(count.min(self.space.blocks));
        self.space.blocks -= count;
        let run = Run { start: Lba(start), count };
        self.touch(run);
        self.space.taken.push(run);
        run
    }

    fn take_late(&mut self, count: u64) -> Run {
        // They come round after petabytes.
        let next = self.core.next_late.fetch_add(count, Ordering::Relaxed) % (MAX_VOLUME_BLOCKS / 2);
        let run = Run { start: Lba(MAX_VOLUME_BLOCKS + next), count };
        self.space.noted().take_late(run);
        run
    }

    fn release(&mut self, run: Run) {
        if is_late(run.start) {
            return self.space.noted().give_late(run);
        }
        self.touch(run);
        match self.space.freed.last_mut() {
            Some(last) if last.start.0 + last.count == run.start.0 => last.count += run.count,
            _ => self.space.freed.push(run),
        }
    }
}

impl Body {
    fn new(id: GroupId, draft: Draft) -> Body {
        Body {
            id,
            space: Reserved::default(),
            draft,
            changed: Vec::new(),
            own: Runs::default(),
            later: Later::default(),
            is_changed: false,
        }
    }

    /// That of an explicit group.
    pub fn explicit(core: &Core) -> Body {
        let id = core.engine.begin(Kind::Explicit);
        Body::new(id, Draft::of_group(id))
    }

    /// See [`Engine::fills_log`].
    pub fn fills_log(&mut self, core: &Core, parts: u64) -> bool {
        core.engine.fills_log(&mut self.draft, parts)
    }

    /// Whether content that has no place yet is to get it now.
    pub fn is_crowded(&self, core: &Core) -> bool {
        self.space.late_blocks() > 0 && core.engine.is_crowded(&self.draft)
    }

    /// Files that may have content without a place, and blocks of them between which it is.
    pub fn take_late(&mut self) -> BTreeMap<u64, Range<u64>> {
        self.space.noted.as_mut().map(|noted| std::mem::take(&mut noted.late_files)).unwrap_or_default()
    }

    /// More names and directories change with the commit.
    pub fn record_later(&mut self, names: u64, dirs: u64) {
        self.later.names += names;
        self.later.dirs += dirs;
    }

    fn part<T>(&mut self, core: &Core, call: impl FnOnce(&dyn Engine, &mut Part<'_>) -> Result<T>) -> Result<T> {
        let space = &mut Spending { core, space: &mut self.space };
        call(&*core.engine, &mut Part { group: self.id, space, draft: &mut self.draft })
    }

    /// What nobody else can reach goes to the medium before the locks are taken for the commit.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn prepare(&mut self, core: &Core) -> Result<()> {
        core.check_usable()?;
        self.part(core, |engine, part| engine.prepare(part)).inspect_err(|error| core.fail(error))
    }

    /// Keeps as much of the reservation as the commit needs.
    fn trim(&mut self, core: &Core) {
        let bitmaps = most_bitmaps(core.bitmaps_of(), self.space.touched(), 0, Logged::default());
        let needed = core.engine.blocks_for_commit(&self.draft, Later { bitmaps, ..self.later });
        let needed = needed.saturating_add(self.space.late_blocks());
        let spare = self.space.blocks.checked_sub(needed).expect("a call reserves what the commit needs for it");
        self.space.blocks = needed;
        core.blocks.unreserve(spare);
    }

    /// What the group freed can be given out when it is durable, and what it has reserved is not needed.
    fn settle(&mut self, core: &Core, by: CommitSequence) {
        let (freed, inodes) = (std::mem::take(&mut self.space.freed), std::mem::take(&mut self.space.freed_inodes));
        core.is_ordered(by, &self.changed, freed, inodes);
        // It is others' from here on.
        self.own = Runs::default();
        self.space.taken.clear();
        core.blocks.unreserve(std::mem::take(&mut self.space.blocks));
    }

    /// Nothing of the group is left.
    pub fn abort(&mut self, core: &Core) {
        let _ = self.part(core, |engine, part| {
            engine.abort(part);
            Ok(())
        });
        // After a failure nobody knows what is in use.
        if core.check_usable().is_ok() {
            let (own, taken) = (std::mem::take(&mut self.own), std::mem::take(&mut self.space.taken));
            own.iter().chain(taken).for_each(|run| core.blocks.give(run.start.0, run.count));
        }
        self.space.freed.clear();
        self.space.noted = None;
        self.draft = Draft::default();
        core.blocks.unreserve(std::mem::take(&mut self.space.blocks));
    }
}

/// What one call of an explicit group changes, at most, of inodes and names.
const BY_CALL: Later = Later { names: 2, dirs: 2, inodes: 7, pointers: 0, bitmaps: 0 };

impl<'c> Group<'c> {
    /// Begins a group that takes at most `blocks` blocks.
    ///
    /// # Errors
    /// `ENOSPC`; if the volume has failed, or is being unmounted.
    pub fn begin(core: &'c Core, kind: Kind, blocks: u64, need: Need) -> Result<Group<'c>> {
        Self::begin_logging(core, kind, blocks, need, Logged::default())
    }

    /// [`begin`](Self::begin) for a group that changes more than a few inodes, names and the pointers of what it takes.
    ///
    /// # Errors
    /// As `begin`.
    pub fn begin_logging(core: &'c Core, kind: Kind, blocks: u64, need: Need, logged: Logged) -> Result<Group<'c>> {
        Self::begin_by(core, kind, blocks, need, logged, Core::set_aside)
    }

    /// The same for a structure change of the inode file: it does not ask that for blocks.
    ///
    /// # Errors
    /// As `begin`.
    pub fn begin_of_free(core: &'c Core, kind: Kind, blocks: u64, need: Need, logged: Logged) -> Result<Group<'c>> {
        Self::begin_by(core, kind, blocks, need, logged, Core::set_aside_of_free)
    }

    fn begin_by(
        core: &'c Core,
        kind: Kind,
        blocks: u64,
        need: Need,
        logged: Logged,
        set_aside: impl FnOnce(&Core, u64, u64) -> bool,
    ) -> Result<Group<'c>> {
        let admitted = match need {
            Need::Ordinary | Need::Vital => Some(core.admit()?),
            Need::Admitted => core.check_usable().map(|()| None)?,
        };
        // Pointers of what it takes may be far from each other: each is logged by itself.
        let pointers = logged.pointers.saturating_add(blocks.saturating_mul(4));
        let logged =
            Logged { pointers, bitmaps: most_bitmaps(core.bitmaps_of(), Touched::FEW, blocks, logged), ..logged };
        let blocks = blocks.saturating_add(core.engine.log_blocks(logged));
        if !set_aside(core, blocks, if need == Need::Ordinary { core.kept } else { 0 }) {
            // What was to become free may have met an error of the medium.
            core.check_usable()?;
            return Err(Error::NoSpace(format!("{blocks} blocks")));
        }
        let mut body = Body::new(core.engine.begin(kind), Draft::default());
        body.space.blocks = blocks;
        Ok(Group::of(core, Whose::Own(body), admitted))
    }

    fn of(core: &'c Core, body: Whose<'c>, _admitted: Option<RwLockReadGuard<'c, ()>>) -> Group<'c> {
        Group { core, body, is_recorded: false, is_committed: false, _admitted }
    }

    /// Begins a call of an explicit group, which was admitted.
    ///
    /// # Errors
    /// `ENOSPC`; if the volume has failed.
    pub fn call(core: &'c Core, explicit: &'c Explicit, blocks: u64, need: Need, logged: Logged) -> Result<Group<'c>> {
        core.check_usable()?;
        let mut body = explicit.body();
        let later = Later {
            names: body.later.names + BY_CALL.names,
            dirs: body.later.dirs + BY_CALL.dirs,
            inodes: BY_CALL.inodes,
            pointers: logged.pointers.saturating_add(blocks.saturating_mul(4)),
            bitmaps: most_bitmaps(core.bitmaps_of(), body.space.touched().and(Touched::FEW), blocks, logged),
        };
        let blocks = blocks.saturating_add(core.engine.blocks_for_call(logged));
        let blocks = blocks.saturating_add(core.engine.blocks_for_commit(&body.draft, later));
        let blocks = blocks.saturating_add(body.space.late_blocks());
        let more = blocks.saturating_sub(body.space.blocks);
        // What it logs takes space until the group ends.
        let is_ordinary = need == Need::Ordinary || logged.bytes > 0;
        if !core.set_aside(more, if is_ordinary { core.kept } else { 0 }) {
            core.check_usable()?;
            return Err(Error::NoSpace(format!("{more} blocks")));
        }
        body.space.blocks += more;
        Ok(Group::of(core, Whose::Explicit(body), None))
    }

    /// Begins what an explicit group changes with the space that it has, as in its commit.
    pub fn within(core: &'c Core, explicit: &'c Explicit) -> Result<Group<'c>> {
        core.check_usable()?;
        Ok(Group::of(core, Whose::Explicit(explicit.body()), None))
    }

    /// Takes up to `count` consecutive blocks of the reservation.
    pub fn take(&mut self, count: u64) -> Run {
        Spending { core: self.core, space: &mut self.body.space }.take(count)
    }

    /// Whether an earlier call of the same explicit group took a block, and for how many of the `count` blocks from it
    /// on that is the same.
    pub fn owns(&self, at: Lba, count: u64) -> (bool, u64) {
        match &self.body.space.noted {
            Some(noted) if is_late(at) => noted.late.has(at, count),
            _ => self.body.own.has(at, count),
        }
    }

    /// Content that has had late numbers is in these blocks from here on.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn place(&mut self, late: Lba, at: Run) -> Result<()> {
        let core = self.core;
        self.is_recorded = true;
        let placed = self.body.part(core, |engine, part| engine.place(part, late, at));
        placed.inspect_err(|error| core.fail(error))
    }

    /// Gives an inode number back at the end.
    pub fn release_inode(&mut self, ino: u64) {
        self.body.space.freed_inodes.push(ino);
    }

    /// More names and directories change with the commit of the explicit group.
    pub fn record_later(&mut self, names: u64, dirs: u64) {
        self.is_recorded = true;
        self.body.record_later(names, dirs);
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn record(&mut self, operation: &Operation<'_>) -> Result<()> {
        let core = self.core;
        self.is_recorded = true;
        core.ordered.note(operation.changes(), &mut self.body.changed);
        if core.storage.bitmaps.is_some() {
            self.note_life(operation)?;
        }
        if let Some(noted) = &mut self.body.space.noted {
            noted.note_late(operation);
        }
        let recorded = self.body.part(core, |engine, part| engine.record(part, operation, &core.storage));
        recorded.inspect_err(|error| core.fail(error))
    }

    /// Notes what an operation does to an inode, before it is recorded.
    fn note_life(&mut self, operation: &Operation<'_>) -> Result<()> {
        let (on, change) = match operation {
            // Without a number of names it has none.
            Operation::Assign { on, fields } if fields.born => (on, Some((true, fields.links.unwrap_or(0) == 0))),
            Operation::Assign { on, fields } => (on, fields.links.map(|links| (true, links == 0))),
            Operation::Free { what } => (what, Some((false, false))),
            Operation::Structure(Structure::GrowInodes { first, blocks }) => {
                self.body.space.noted().note_place(*first, *blocks, true);
                return Ok(());
            }
            Operation::GiveBack { blocks, .. } => {
                let noted = self.body.space.noted();
                blocks.iter().for_each(|(first, count)| noted.note_place(*first, *count, false));
                return Ok(());
            }
            _ => return Ok(()),
        };
        let is_born = matches!(operation, Operation::Assign { fields, .. } if fields.born);
        let Some(now) = change else { return Ok(()) };
        let life = self.body.space.noted.as_ref().and_then(|noted| noted.before(on.ino));
        let before = match life {
            Some(before) => before,
            None if is_born => (false, false),
            None => (true, self.core.storage.links(self, *on)? == 0),
        };
        self.body.space.noted().note_life(on.ino, before, now);
        Ok(())
    }

    /// Records what changes of the bitmaps: what the group has taken and freed, on the whole.
    fn toggle(&mut self, layout: Layout) -> Result<()> {
        let body = &mut *self.body;
        let (mut taken, mut freed) = (std::mem::take(&mut body.own), Runs::default());
        body.space.taken.iter().for_each(|run| taken.add(*run));
        for run in &body.space.freed {
            taken.cut(*run).into_iter().for_each(|run| freed.add(run));
        }
        let changes = body.space.noted().toggles(layout, &taken, &freed);
        for (at, (bitmap, bits)) in changes {
            self.record(&Operation::Toggle { bitmap, at, bits: &bits })?;
        }
        Ok(())
    }

    /// Writes data.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn write(&mut self, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        let core = self.core;
        self.is_recorded |= matches!(self.body, Whose::Explicit(_));
        core.ordered.note([Some(at.file.ino)], &mut self.body.changed);
        let written = self.body.part(core, |engine, part| engine.write(part, at, offset, data));
        written.inspect_err(|error| core.fail(error))
    }

    /// Zeros a part of a block.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn zero(&mut self, at: &DataAt, offset: usize, len: usize) -> Result<Placed> {
        let core = self.core;
        self.is_recorded |= matches!(self.body, Whose::Explicit(_));
        core.ordered.note([Some(at.file.ino)], &mut self.body.changed);
        let zeroed = self.body.part(core, |engine, part| engine.zero(part, at, offset, len));
        zeroed.inspect_err(|error| core.fail(error))
    }

    /// What the commit does with the times of a file, if the group has changed them. With `keeps_back` it leaves them
    /// out, where nothing else of the inode has changed.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn times_of(&mut self, on: InoGen, keeps_back: bool) -> Result<Option<Times>> {
        let (lba, at) = self.core.storage.place(self, on.ino).inspect_err(|error| self.core.fail(error))?;
        let record = lba.byte() + at as u64;
        let draft = &self.body.draft;
        if !draft.changes_line(record + TIMES) {
            return Ok(None);
        }
        let is_alone = OTHERS.iter().all(|line| !draft.changes_line(record + line));
        if keeps_back && is_alone {
            let stored =
                self.core.storage.read(&*self.core.engine, on.ino).inspect_err(|error| self.core.fail(error))?;
            let fields = Fields { times: Some(stored.times), ..Fields::default() };
            self.record(&Operation::Assign { on, fields: &fields })?;
            return Ok(Some(Times::KeptBack));
        }
        Ok(Some(Times::Stored))
    }

    /// Commits. A call of an explicit group ends instead.
    ///
    /// # Errors
    /// The volume has failed then, or had before.
    pub fn commit(mut self) -> Result<()> {
        let core = self.core;
        if matches!(self.body, Whose::Own(_)) {
            return self.commit_all();
        }
        let ended = self.body.part(core, |engine, part| engine.end_call(part));
        ended.inspect_err(|error| core.fail(error))?;
        let Body { space, own, .. } = &mut *self.body;
        space.taken.drain(..).for_each(|run| own.add(run));
        self.body.trim(core);
        self.body.is_changed = true;
        self.is_committed = true;
        Ok(())
    }

    /// Commits the whole group. What it freed can be given out when it is durable.
    ///
    /// # Errors
    /// The volume has failed then, or had before.
    pub fn commit_all(mut self) -> Result<()> {
        let core = self.core;
        core.check_usable()?;
        assert_eq!(self.body.space.late_blocks(), 0, "a group is committed with content that has no place");
        self.body.draft.after = core.ordered.after(&mut self.body.changed);
        if let Some(layout) = core.bitmaps() {
            self.toggle(layout)?;
        }
        let how = if matches!(self.body, Whose::Own(_)) { Durability::Atomic } else { Durability::Durable };
        let committed = self.body.part(core, |engine, part| {
            let part = Part { group: part.group, space: &mut *part.space, draft: &mut *part.draft };
            engine.commit(&mut [part], how, &core.storage)
        });
        let mut by = committed.inspect_err(|error| core.fail(error))?;
        if by == NOTHING {
            // All is as this group would have it, by others that may not be durable.
            by = self.body.draft.after.last().copied().unwrap_or(by);
        }
        self.is_committed = true;
        self.body.settle(core, by);
        Ok(())
    }
}

impl Load for Group<'_> {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.core.engine.load(at, offset, buf)?;
        self.body.draft.overlay(at.byte() + offset as u64, buf);
        Ok(())
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        let core = self.core;
        if self.is_recorded {
            core.end();
        }
        match &mut self.body {
            Whose::Own(body) => body.abort(core),
            // The call has changed nothing: the group is as before.
            Whose::Explicit(body) if core.check_usable().is_ok() => {
                let taken = std::mem::take(&mut body.space.taken);
                taken.into_iter().for_each(|run| core.blocks.give(run.start.0, run.count));
                body.trim(core);
            }
            Whose::Explicit(_) => {}
        }
    }
}

/// The storage version, as the users of an inode see it.
pub struct Sight<'c> {
    core: &'c Core,
    body: Option<MutexGuard<'c, Body>>,
}

impl<'c> Sight<'c> {
    /// Nothing of an explicit group may be begun while there is one.
    #[inline]
    pub fn new(core: &'c Core, explicit: Option<&'c Explicit>) -> Sight<'c> {
        Sight { core, body: explicit.map(Explicit::body) }
    }

    /// For data.
    #[inline]
    pub fn view(&self) -> View<'_> {
        self.body.as_ref().map_or(View::Committed, |body| View::Group(&body.draft))
    }
}

impl Load for Sight<'_> {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.core.engine.load(at, offset, buf)?;
        if let Some(body) = &self.body {
            body.draft.overlay(at.byte() + offset as u64, buf);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use wholly_sim::{SimConfig, World};
    use wholly_vfs::{Context, Groups, Ino, Mode, OFlags, Vfs};

    use super::*;
    use crate::engine::Trial;
    use crate::format::inode::ROOT;
    use crate::{EngineKind, Volume, VolumeOptions, VolumeVfs};

    /// A group ends without a commit: nothing has happened, or the volume is poisoned.
    #[test]
    fn operations_that_are_not_committed_poison_the_volume() {
        for engine in EngineKind::ALL.iter().copied() {
            let world = World::new(Arc::new(SimConfig { log_len: 128 * 4096, ..SimConfig::pmem() }));
            let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
            Volume::format_region(&*world.log(), &options).expect("make a volume");
            let volume = Volume::open_region(world.log(), &options).expect("open it");
            let core = &volume.inner().core;
            let free = core.blocks.free();
            let mut group = Group::begin(core, Kind::Implicit, 2, Need::Ordinary).expect("begin");
            group.take(1);
            drop(group);
            assert_eq!(core.blocks.free(), free, "all of it is free again");
            core.check_usable().expect("nothing was recorded");

            let mut group = Group::begin(core, Kind::Implicit, 0, Need::Ordinary).expect("begin");
            let root = core.named(ROOT).expect("the root");
            let fields = Fields { uid: Some(7), ..Fields::default() };
            group.record(&Operation::Assign { on: root.id, fields: &fields }).expect("record");
            drop(group);
            core.check_usable().expect_err("it is not known what is there");
        }
    }

    /// Lines and lists of operations beside each other: the memory of a running group, and the time of its calls and of
    /// its commit. No verdict: both give the same bytes, which the engine compares at each commit.
    #[test]
    fn lines_beside_lists() {
        const FILES: usize = 2000;
        for replays in [false, true] {
            let world = World::new(Arc::new(SimConfig { log_len: 16_384 * 4096, ..SimConfig::disk() }));
            let trial = Trial { replays, ..Trial::default() };
            let options = VolumeOptions { engine: Some(EngineKind::OpLog), trial, ..VolumeOptions::default() };
            Volume::format_region(&*world.log(), &options).expect("make a volume");
            let volume = Volume::open_region(world.log(), &options).expect("open it");
            let (vfs, core) = (VolumeVfs::new(&volume), &volume.inner().core);
            volume.create_file("old", 0o644).expect("create");
            let group = vfs.begin().expect("begin");
            let ctx = Context { group: Some(group), ..Context::superuser() };
            let begun = Instant::now();
            for i in 0..FILES {
                let name = format!("file {i}");
                let (made, file) =
                    vfs.create(&ctx, Ino::ROOT, name.as_bytes(), OFlags::RDWR, Mode::RUSR).expect("create");
                assert_eq!(vfs.write(&ctx, &file, 0, &[1; 100]), Ok(100));
                vfs.release(&ctx, file).expect("release");
                vfs.forget(made.ino, 1);
            }
            let called = begun.elapsed();
            let (lines, list) = core.explicit(group).expect("it runs").body().draft.sizes();
            assert_eq!(list.is_some(), replays);
            let begun = Instant::now();
            vfs.commit(group).expect("commit");
            let commit = begun.elapsed();
            println!("{FILES} files: {lines} bytes of lines, list {list:?}; {called:?} of calls, {commit:?} of commit");
            drop(vfs);
            volume.close().expect("close");
            assert_eq!(Volume::check_region(&*world.log()).expect("check").findings, []);
        }
    }
}
