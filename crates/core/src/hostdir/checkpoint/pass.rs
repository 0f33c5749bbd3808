//! One pass: a lot goes home.
//!
//! Large lots are taken home by several threads: they share the work as long as there is some, each with [`Hands`] of
//! its own.

use std::collections::HashSet;
use std::sync::Arc;

use wholly_changes::ROOT;
use wholly_changes::records::Baseline;
use wholly_host::host_error;
use wholly_vfs::Stat;

use super::copy_back::{Hands, Touched};
use super::names::NamePlan;
use super::{CheckpointReport, Lot, Queue, StoreInner};
use crate::error::{Error, Result};
use crate::hostdir::dirty::DirtyBlock;
use crate::hostdir::file::File;
use crate::hostdir::names::State;
use crate::hostdir::table::is_taken_away;
use crate::site;
use sync::{BLOCKS_AT_A_TIME, Mutex, thread};

/// Files that are visited at a time: to begin costs an interrupt of the other processors, and meanwhile their owners
/// publish by claims.
const FILES: usize = 64;

/// A thread more for each so many blocks: to start one costs as much as some hundred blocks.
const BLOCKS_A_THREAD: usize = 2 * BLOCKS_AT_A_TIME;

/// Above as many files to be synced, a pass syncs the whole file system rather than each file.
const SYNC_EACH: usize = 16;

/// See the head of this module.
pub(super) struct Pass<'a> {
    store: &'a StoreInner,
    queue: &'a mut Queue,
    target: u64,
    hands: Hands<'a>,
}

impl<'a> Pass<'a> {
    pub fn new(store: &'a StoreInner, queue: &'a mut Queue, target: u64) -> Self {
        Pass { store, queue, target, hands: Hands::new(store, target) }
    }

    /// Takes the lot home. On return all of it is durable there, or it is in the queue again. `announced` is the target
    /// that this pass announced.
    pub fn run(&mut self, mut lot: Lot, announced: u64) -> Result<()> {
        let store = self.store;
        lot.blocks.sort_unstable();
        lot.blocks.dedup();
        let result = self.plan_and_take_home(&lot.blocks, announced);
        if result.is_ok() {
            store.index.free_garbage_below(self.target, &mut self.hands.freed);
        }
        if result.is_err() {
            // Nothing is forgotten: the next pass begins with it.
            lot.blocks.append(&mut self.hands.again);
            self.queue.lots.push_front(lot);
        }
        result
    }

    /// Gives back what the pass has in hands, and says what it did.
    pub fn end(self) -> CheckpointReport {
        let (store, mut hands) = (self.store, self.hands);
        // To whoever comes next: what a block keeps may be below the next lot's target.
        match self.queue.lots.front_mut() {
            Some(next) => next.blocks.append(&mut hands.again),
            None => store.index.dirty.append(&mut hands.again),
        }
        store.index.arena.give_back(&mut hands.freed);
        hands.report
    }

    /// Ends the pass before the superblock tells of it where a bystander has changed a file of the lot: recovery
    /// believes what the log says of files as long as no pass may have changed them, and so finds the bystander too.
    fn look_for_bystanders(&self, blocks: &[DirtyBlock]) -> Result<()> {
        blocks
            .chunk_by(|a, b| a.file() == b.file())
            .filter_map(|blocks| self.store.files.get(blocks[0].file()))
            .filter(|file| file.has_something())
            .try_for_each(|file| {
                let look = || self.store.stat_at_home(&file);
                file.look_for_bystanders(&mut file.home_state.lock().unwrap(), look).map(drop)
            })
    }

    fn plan_and_take_home(&mut self, blocks: &[DirtyBlock], announced: u64) -> Result<()> {
        let store = self.store;
        let mut names = NamePlan::new(store, self.target)?;
        self.look_for_bystanders(blocks)?;
        store.log.begin_checkpoint(announced).map_err(|error| store.poison(&error))?;
        let made = names.make();
        let home = made.and_then(|()| self.make_space_and_take_home(blocks, &mut names));
        let result = home.and_then(|()| self.take_attributes_home(&mut names));
        // Also after a failure: what went home is in the index no more, so that no later pass would know to make it
        // durable.
        let durable = self.make_durable(&names);
        self.keep_ctimes();
        result.and(durable)
    }

    /// Programs of a mount do not see that a checkpoint has changed times of change.
    fn keep_ctimes(&self) {
        let store = self.store;
        if !store.checkpointer.keeps_ctimes() {
            return;
        }
        let mut ids = store.names.with(|state| state.take_changed(self.target));
        ids.extend(self.hands.touched.iter().map(|touched| touched.file.id));
        for id in ids {
            let known = |state: &mut State| Some((state.host_path(id)?, state.inode_of(id), state.ctime_of(id)?));
            let Some((path, inode, seen)) = store.names.with(known) else { continue };
            // What is not there, or is another object, has no time to keep.
            let is_it = |stat: &Stat| id == ROOT || Some(stat.inode()) == inode;
            if let Some(stat) = store.host.stat(&path).ok().filter(is_it) {
                store.names.with(|state| state.keep_ctime(&stat, seen));
            }
        }
    }

    /// Where there is no space for the bytes, names that end do so first: who removes files to make space does not wait
    /// for it.
    fn make_space_and_take_home(&mut self, blocks: &[DirtyBlock], names: &mut NamePlan<'_>) -> Result<()> {
        match self.take_home(blocks) {
            Err(Error::NoSpace(_)) if names.make_space()? => self.take_home(blocks),
            taken => taken,
        }
    }

    /// What is not bytes, in the order that keeps each from undoing the other.
    fn take_attributes_home(&mut self, names: &mut NamePlan<'_>) -> Result<()> {
        names.set_attributes()?;
        names.place()?;
        let known: HashSet<u32> = self.hands.touched.iter().map(|touched| touched.file.number).collect();
        let more = names.files().into_iter().filter(|file| !known.contains(&file.number));
        self.hands.touched.extend(more.map(|file| Touched { file, before: None, needs_sync: true }));
        names.set_times(self.hands.touched.iter().map(|touched| &touched.file))
    }

    fn take_home(&mut self, blocks: &[DirtyBlock]) -> Result<()> {
        let Pass { store, queue, target, hands } = self;
        let mut announce_when_due = || {
            if store.is_announcement_due(queue) {
                store.announce(queue);
            }
        };
        let work = Work { blocks: Mutex::new(blocks) };
        let helpers = (blocks.len() / BLOCKS_A_THREAD).min(store.options.checkpoint_threads.saturating_sub(1));
        if helpers == 0 {
            return work.share(hands, &mut announce_when_due);
        }
        thread::scope(|scope| {
            let helpers: Vec<_> = (0..helpers)
                .map(|_| {
                    let (store, target, work) = (*store, *target, &work);
                    scope.spawn(move || {
                        let mut hands = Hands::new(store, target);
                        let result = work.share(&mut hands, &mut || {});
                        (result.and(fence(store)), hands)
                    })
                })
                .collect();
            let mut result = work.share(hands, &mut announce_when_due);
            for helper in helpers {
                let (helped, mut other) = helper.join().expect("a thread of the checkpoint does not panic");
                result = result.and(helped);
                hands.take_over(&mut other);
            }
            result
        })
    }

    /// Makes what went home survive (invariant 6 of the store). A failure here is final: what the host dropped is in
    /// the log still, and only recovery knows to take it home again.
    fn make_durable(&mut self, names: &NamePlan<'_>) -> Result<()> {
        let store = self.store;
        let fail = |error: wholly_media::Error| store.poison(&Error::Media(error));
        let pmem = has_mappings(store);
        fence(store)?;
        let touched_by_hands = self.hands.touched.len();
        if names.has_begun() {
            // Links and renames are changes by us of the files, too.
            let known: HashSet<u32> = self.hands.touched.iter().map(|touched| touched.file.number).collect();
            let is_changed = |file: &Arc<File>| file.has_home() || names.touches(file.id);
            let all = store.files.all().into_iter().filter(|file| is_changed(file) && !known.contains(&file.number));
            self.hands.touched.extend(all.map(|file| Touched { file, before: None, needs_sync: false }));
        }
        let (mut closed, mut taken, mut changed, mut open) = (false, Ok(()), 0, Vec::new());
        for (i, touched) in self.hands.touched.iter_mut().enumerate() {
            // Who looks beside us does not see it otherwise meanwhile.
            let mut state = touched.file.home_state.lock().unwrap();
            let home = touched.file.home();
            let stat = match &home {
                Some(home) => home.stat().map_err(fail)?,
                None => {
                    closed |= touched.needs_sync;
                    match store.left_at_home(&touched.file) {
                        Ok(Some(stat)) => stat,
                        Ok(None) => continue,
                        // A bystander has come after we have closed it: what went there is in the index no more, and
                        // stays in the log.
                        Err(Error::Conflict { path, change }) => {
                            state.conflict = Some(change.clone());
                            taken = Err(Error::Conflict { path, change });
                            continue;
                        }
                        Err(error) => return Err(store.poison(&error)),
                    }
                }
            };
            touched.file.has_space_as(&stat);
            let after = Baseline::of(&stat);
            touched.needs_sync |= !pmem || Some(after) != touched.before;
            let left = if i < touched_by_hands { after } else { touched.file.relinked(state.baseline, after) };
            state.baseline = Some(left);
            if touched.needs_sync {
                changed += 1;
                // It may be closed at any time.
                open.extend(home.filter(|_| changed <= SYNC_EACH));
            }
        }
        if changed > SYNC_EACH || names.has_begun() || closed {
            store.host.sync_all(site::CHECKPOINT_SYNC).map_err(fail)?;
            store.log.count_barrier();
            return taken;
        }
        for home in open {
            home.sync(site::CHECKPOINT_SYNC).map_err(fail)?;
            store.log.count_barrier();
        }
        taken
    }
}

impl StoreInner {
    /// How a file lies at home that the pass has changed and nobody has open; `None` where it has no name by now.
    ///
    /// # Errors
    /// [`Error::Conflict`] where a bystander has taken it away; of the host.
    fn left_at_home(&self, file: &File) -> Result<Option<Stat>> {
        let Some(path) = self.names.with(|state| state.host_path(file.id)) else { return Ok(None) };
        let conflict = |change: &str| Err(Error::Conflict { path: file.name(), change: change.into() });
        match self.host.stat(&path).map_err(|error| host_error(error, &path)) {
            Ok(stat) if self.names.with(|state| state.is_inode(file.id, (stat.ino, stat.btime_ns))) => Ok(Some(stat)),
            Ok(_) => conflict("something else has its name"),
            Err(error) if is_taken_away(&error) => conflict("it is gone"),
            Err(error) => Err(error),
        }
    }
}

/// What is left of a lot, for the threads that share it.
struct Work<'b> {
    blocks: Mutex<&'b [DirtyBlock]>,
}

impl<'b> Work<'b> {
    /// Takes home what nobody else does, until nothing is left. After an error nobody takes anything any more.
    fn share(&self, hands: &mut Hands<'_>, between: &mut dyn FnMut()) -> Result<()> {
        while let Some(blocks) = self.next() {
            hands.visit(blocks, between).inspect_err(|_| *self.blocks.lock().unwrap() = &[])?;
        }
        Ok(())
    }

    fn next(&self) -> Option<&'b [DirtyBlock]> {
        let mut blocks = self.blocks.lock().unwrap();
        let mut count = 0;
        for file in blocks.chunk_by(|a, b| a.file() == b.file()).take(FILES) {
            count += file.len();
            if count >= BLOCKS_AT_A_TIME {
                count = BLOCKS_AT_A_TIME;
                break;
            }
        }
        let (now, later) = blocks.split_at(count);
        *blocks = later;
        (!now.is_empty()).then_some(now)
    }
}

/// One fence for this thread's stores into all mappings. It covers bytes in blocks that were there; a size, an
/// allocation, or times, which tell a bystander's change from ours after a crash, are the host's to sync.
fn fence(store: &StoreInner) -> Result<()> {
    if has_mappings(store) {
        store.log.region().fence(site::CHECKPOINT_FENCE).map_err(|error| store.poison(&Error::Media(error)))?;
    }
    Ok(())
}

/// Whether the log's fence is one for mappings too: only where it is a fence of the processor's. A log on a disk syncs
/// its own file.
fn has_mappings(store: &StoreInner) -> bool {
    store.host.guarantees().is_pmem() && store.log.is_pmem()
}
