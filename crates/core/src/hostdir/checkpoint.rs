//! Taking committed data home.
//!
//! A pass announces its target, waits until every group below it is published, and then visits the blocks that have versions. It
//! writes home the fewest bytes: of each block only the latest committed ones, and nothing twice. When all of it is durable the tail
//! moves to the target, in one write (FCFS III-E; a store cannot choose another permanent block, so home is always the one).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use wholly_media::HostFs;

use super::StoreInner;
use super::dirty::DirtyBlock;
use super::file::File;
use super::identity::Baseline;
use super::table::{host_error, parent};
use crate::error::{Error, Result};
use crate::index::{BLOCK, Slot, pieces};
use crate::site;
use crate::sync::{AtomicU8, AtomicU64, Condvar, Mutex, Ordering, thread};

/// Above as many files, a pass on a disk syncs the whole file system rather than each file.
const SYNC_EACH: usize = 16;

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Files that were touched.
    pub files: u64,
    /// Blocks that were taken home.
    pub blocks: u64,
    /// Bytes written home.
    pub bytes: u64,
    /// Log segments that became free.
    pub segments_freed: u64,
}

/// A file that a committed group created, until its name is durable.
struct Created {
    file: Arc<File>,
    sequence: u64,
    linked: bool,
}

impl Created {
    fn link(&mut self, host: &dyn HostFs) -> Result<()> {
        host.link(site::CREATE_LINK, &*self.file.home, &self.file.path).map_err(|error| {
            if error.errno == rustix::io::Errno::EXIST {
                Error::Conflict { path: self.file.name(), change: "another file has taken its name".into() }
            } else {
                host_error(error, &self.file.path)
            }
        })?;
        self.linked = true;
        // The name was one more change of the file by us.
        self.file.home_state.lock().unwrap().baseline = Some(Baseline::of(&self.file.home.stat()?));
        Ok(())
    }
}

/// The state of checkpointing.
pub(crate) struct Checkpointer {
    /// One pass at a time.
    pass: Mutex<()>,
    running: AtomicU8,
    created: Mutex<Vec<Created>>,
    /// Names that running groups are creating, and by whom.
    names: Mutex<HashMap<Vec<u8>, u64>>,
    /// Why nothing more can be taken home, after recovery found that a bystander was there.
    blocked: Mutex<Option<Error>>,
    /// 1 while no pass may run, and the log grows instead.
    held: AtomicU8,
    home_bytes: AtomicU64,
    worker: Arc<Worker>,
}

/// What the background thread and the store share. The thread holds the store only while it works, so that it is not what keeps it open.
#[derive(Default)]
struct Worker {
    orders: Mutex<Orders>,
    wake: Condvar,
}

#[derive(Default)]
struct Orders {
    checkpoint: bool,
    stop: bool,
    thread: Option<thread::JoinHandle<()>>,
}

impl Checkpointer {
    pub fn new() -> Self {
        Checkpointer {
            pass: Mutex::new(()),
            running: AtomicU8::new(0),
            created: Mutex::new(Vec::new()),
            names: Mutex::new(HashMap::new()),
            blocked: Mutex::new(None),
            held: AtomicU8::new(0),
            home_bytes: AtomicU64::new(0),
            worker: Arc::default(),
        }
    }

    /// Whether home files may be changing.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst) != 0
    }

    pub fn home_bytes(&self) -> u64 {
        self.home_bytes.load(Ordering::Relaxed)
    }

    /// Whether the log grows where it is full, rather than wait for a pass.
    pub fn hold(&self, held: bool) {
        self.held.store(u8::from(held), Ordering::Relaxed);
    }

    /// From now on every pass fails with `error`.
    pub fn block(&self, error: Error) {
        self.blocked.lock().unwrap().get_or_insert(error);
    }

    /// A group is going to create `path`.
    pub fn claim_name(&self, path: &[u8], group: u64) -> Result<()> {
        let mut names = self.names.lock().unwrap();
        if let Some(owner) = names.get(path) {
            let owner = owner & 0xff_ffff_ffff;
            return Err(Error::Busy(
                String::from_utf8_lossy(path).into_owned(),
                format!("group {owner} has not ended"),
            ));
        }
        names.insert(path.to_vec(), group);
        Ok(())
    }

    pub fn release_name(&self, path: &[u8]) {
        self.names.lock().unwrap().remove(path);
    }

    /// A committed group created `file`: it gets its name now, and keeps it durably at the next checkpoint.
    pub fn add_created(&self, host: &Arc<dyn HostFs>, file: Arc<File>, sequence: u64) {
        let mut created = Created { file, sequence, linked: false };
        // The group is committed: where this fails, the next checkpoint tries again and reports it.
        let _ = created.link(&**host);
        self.release_name(&created.file.path);
        self.created.lock().unwrap().push(created);
    }

    /// Recovery found that a committed group created `file`.
    pub fn recover_created(&self, file: Arc<File>, sequence: u64, linked: bool) {
        self.created.lock().unwrap().push(Created { file, sequence, linked });
    }

    /// Created files that have no name yet.
    pub fn unlinked(&self) -> Vec<Arc<File>> {
        self.created
            .lock()
            .unwrap()
            .iter()
            .filter(|created| !created.linked)
            .map(|created| created.file.clone())
            .collect()
    }

    /// Gives created files that have no name yet their names.
    pub fn link_all(&self, host: &dyn HostFs) -> Result<()> {
        for created in self.created.lock().unwrap().iter_mut().filter(|created| !created.linked) {
            created.link(host)?;
        }
        Ok(())
    }

    /// Asks the background thread for a pass.
    pub fn want(&self) {
        self.worker.orders.lock().unwrap().checkpoint = true;
        self.worker.wake.notify_all();
    }

    /// Ends the background thread.
    pub fn stop(&self) {
        let thread = {
            let mut orders = self.worker.orders.lock().unwrap();
            orders.stop = true;
            orders.thread.take()
        };
        self.worker.wake.notify_all();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Starts the background thread. It ends when the store is closed or its last handle dropped.
pub(super) fn start_worker(store: &Arc<StoreInner>) {
    let waker = Arc::downgrade(store);
    store.log.on_low_water(Box::new(move || {
        if let Some(store) = waker.upgrade() {
            store.checkpointer.want();
        }
    }));
    let worker = store.checkpointer.worker.clone();
    let weak = Arc::downgrade(store);
    let thread = thread::spawn(move || work(&worker, &weak));
    store.checkpointer.worker.orders.lock().unwrap().thread = Some(thread);
}

/// How often the background thread looks whether a shared group has grown old.
const TICK: std::time::Duration = std::time::Duration::from_millis(100);

fn work(worker: &Worker, store: &Weak<StoreInner>) {
    loop {
        let checkpoint = {
            let mut orders = worker.orders.lock().unwrap();
            if !orders.checkpoint && !orders.stop {
                orders = worker.wake.wait_timeout(orders, TICK).unwrap().0;
            }
            if orders.stop {
                return;
            }
            std::mem::take(&mut orders.checkpoint)
        };
        let Some(store) = store.upgrade() else { return };
        store.commit_old_epoch();
        if checkpoint && store.check_usable().is_ok() {
            // An error shows again in the call that needs the room.
            let _ = store.checkpoint();
        }
    }
}

/// One pass over the dirty blocks.
struct Pass<'a> {
    store: &'a StoreInner,
    target: u64,
    report: CheckpointReport,
    touched: Vec<Arc<File>>,
    freed: Vec<u32>,
    /// Blocks that keep versions, or could not be written.
    again: Vec<DirtyBlock>,
    buffer: Box<[u8; BLOCK as usize]>,
}

impl StoreInner {
    /// See [`Store::checkpoint`](super::Store::checkpoint).
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        let _pass = self.checkpointer.pass.lock().unwrap();
        self.checkpointer.running.store(1, Ordering::SeqCst);
        let result = self.checkpoint_pass();
        self.checkpointer.running.store(0, Ordering::SeqCst);
        let report = result?;
        self.files.sweep();
        Ok(report)
    }

    fn checkpoint_pass(&self) -> Result<CheckpointReport> {
        self.check_usable()?;
        if let Some(error) = &*self.checkpointer.blocked.lock().unwrap() {
            return Err(error.clone());
        }
        let target = self.log.announce_tail();
        let dirty = self.index.dirty.take();
        let created: Vec<Created> =
            self.checkpointer.created.lock().unwrap().extract_if(.., |c| c.sequence < target).collect();
        if dirty.is_empty() && created.is_empty() && self.log.highest_sequence() < self.log.tail() {
            return Ok(CheckpointReport::default());
        }
        let mut pass = Pass {
            store: self,
            target,
            report: CheckpointReport::default(),
            touched: Vec::new(),
            freed: Vec::new(),
            again: Vec::new(),
            buffer: Box::new([0; BLOCK as usize]),
        };
        let result = pass.run(dirty, created);
        self.index.dirty.append(&mut pass.again);
        self.index.arena.give_back(&mut pass.freed);
        self.checkpointer.home_bytes.fetch_add(pass.report.bytes, Ordering::Relaxed);
        result?;
        pass.report.segments_freed = self.log.release_below(target).map_err(|error| self.poison(&error))? as u64;
        self.memory.release_below(target);
        for file in &pass.touched {
            let stat = file.home.stat()?;
            file.home_state.lock().unwrap().baseline = Some(Baseline::of(&stat));
        }
        Ok(pass.report)
    }

    /// Frees segments, or adds some: called by who found none free, and is in no commit.
    pub fn make_room(&self) -> Result<()> {
        loop {
            self.check_usable()?;
            if self.log.segments().1 > 0 {
                return Ok(());
            }
            if self.log.may_grow() || self.checkpointer.held.load(Ordering::Relaxed) != 0 {
                let more = (self.log.segments().0 / 2).max(1);
                return self.log.grow(more).map_err(no_space);
            }
            self.checkpoint()?;
            if self.log.segments().1 == 0 {
                // Running groups hold all of it. Their size is bounded by free space only.
                return self.log.grow(1).map_err(no_space);
            }
        }
    }
}

fn no_space(error: Error) -> Error {
    match error {
        Error::Media(error) => host_error(error, b"the log"),
        error => error,
    }
}

impl Pass<'_> {
    fn run(&mut self, dirty: Vec<DirtyBlock>, mut created: Vec<Created>) -> Result<()> {
        let result = self.take_home(&dirty, &mut created);
        if result.is_err() {
            // Nothing is forgotten: the next pass begins with it.
            self.again.extend(dirty);
            self.store.checkpointer.created.lock().unwrap().extend(created);
        }
        result
    }

    fn take_home(&mut self, dirty: &[DirtyBlock], created: &mut [Created]) -> Result<()> {
        let store = self.store;
        store.log.begin_checkpoint(self.target).map_err(|error| store.poison(&error))?;
        for created in created.iter_mut().filter(|created| !created.linked) {
            created.link(&*store.host)?;
        }
        for blocks in dirty.chunk_by(|a, b| a.file() == b.file()) {
            let Some(file) = store.files.get(blocks[0].file()) else { continue };
            self.take_file_home(&file, blocks)?;
        }
        self.make_durable(created)
    }

    fn take_file_home(&mut self, file: &Arc<File>, blocks: &[DirtyBlock]) -> Result<()> {
        self.check_bystanders(file)?;
        self.touched.push(file.clone());
        self.report.files += 1;
        self.bring_size_home(file, 0)?;
        for block in blocks.iter().filter_map(|dirty| dirty.block()) {
            let Some(slot) = file.index.get(block) else { continue };
            self.take_block_home(file, block, slot)?;
        }
        Ok(())
    }

    /// Invariant 7.
    fn check_bystanders(&self, file: &File) -> Result<()> {
        let now = Baseline::of(&file.home.stat()?);
        let mut state = file.home_state.lock().unwrap();
        if state.conflict.is_none() {
            state.conflict = state.baseline.and_then(|baseline| baseline.difference(&now));
        }
        match &state.conflict {
            None => {
                // From here on it is us who change it.
                state.baseline = None;
                Ok(())
            }
            Some(change) => Err(Error::Conflict { path: file.name(), change: change.clone() }),
        }
    }

    /// Makes the home file as long as it is to be, and at least `end` bytes; cut first, where it was cut (invariant 5).
    fn bring_size_home(&self, file: &File, end: u64) -> Result<()> {
        let mut state = file.home_state.lock().unwrap();
        if file.resized.swap(0, Ordering::AcqRel) != 0 {
            file.pending.fetch_sub(1, Ordering::AcqRel);
        }
        let failed = |error| {
            if file.resized.swap(1, Ordering::AcqRel) == 0 {
                file.pending.fetch_add(1, Ordering::AcqRel);
            }
            host_error(error, &file.path)
        };
        let limit = file.home_limit.load(Ordering::Acquire);
        if limit < state.size {
            file.without_mapped_reads(|| file.home.set_len(site::CHECKPOINT_SIZE, limit)).map_err(failed)?;
            state.size = limit;
        }
        let size = file.size.load(Ordering::Acquire).max(end);
        if size > state.size {
            file.home.set_len(site::CHECKPOINT_SIZE, size).map_err(failed)?;
            state.size = size;
            state.dense = false;
            // If a group cut the file meanwhile, its limit stays.
            let _ = file.home_limit.compare_exchange(limit, size, Ordering::AcqRel, Ordering::Acquire);
        }
        Ok(())
    }

    fn take_block_home(&mut self, file: &File, block: u64, slot: &Slot) -> Result<()> {
        let claim = slot.claim();
        let target = self.target;
        let arena = &self.store.index.arena;
        let goes_home = |version: &crate::index::Version| version.stamp < target;
        let latest = pieces(arena.list(claim.newest()).filter(goes_home), 0, BLOCK as u16);
        let mut ranges: Vec<_> =
            latest.iter().filter_map(|piece| Some((piece.start, piece.end, piece.position?))).collect();
        if ranges.is_empty() {
            if !slot.is_empty() {
                self.again.push(DirtyBlock::new(file.number, block));
            }
            return Ok(());
        }
        ranges.sort_unstable();
        let first = block * BLOCK;
        let end = first + u64::from(ranges.last().expect("there are some").1);
        if end > file.home_state.lock().unwrap().size {
            self.bring_size_home(file, end)?;
        }
        let mapping = file.mapping(end)?;
        if mapping.is_some() && !file.home_state.lock().unwrap().dense {
            let whole = BLOCK.min(file.home_state.lock().unwrap().size - first);
            file.home
                .allocate(site::CHECKPOINT_ALLOCATE, first, whole)
                .map_err(|error| host_error(error, &file.path))?;
        }
        // Who sees the list as it was before may be reading home bytes that are about to change.
        claim.drain_readers();
        for (start, end, position) in ranges {
            let bytes = &mut self.buffer[..usize::from(end - start)];
            self.store.read_position(position, bytes)?;
            let offset = first + u64::from(start);
            match mapping {
                Some(mapping) => mapping.write(site::CHECKPOINT_DATA, offset, bytes),
                None => file.home.write_at(site::CHECKPOINT_DATA, offset, bytes),
            }
            .map_err(|error| host_error(error, &file.path))?;
            self.report.bytes += bytes.len() as u64;
        }
        claim.change(|newest| arena.drop_tail(newest, goes_home, &mut self.freed));
        self.report.blocks += 1;
        if claim.newest() == crate::index::NO_VERSION {
            file.pending.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.again.push(DirtyBlock::new(file.number, block));
        }
        Ok(())
    }

    /// Invariant 6. A failure here is final: what the host dropped is in the log still, and only recovery knows to take it home again.
    fn make_durable(&mut self, created: &[Created]) -> Result<()> {
        let store = self.store;
        let fail = |error: wholly_media::Error| store.poison(&Error::Media(error));
        if store.host.guarantees().is_pmem() {
            // One fence for the stores into all mappings. Sizes and allocations are still to follow.
            store.log.region().fence(site::CHECKPOINT_FENCE).map_err(fail)?;
        }
        let mut files: Vec<&Arc<File>> = self.touched.iter().collect();
        for created in created {
            if !self.touched.iter().any(|file| Arc::ptr_eq(file, &created.file)) {
                files.push(&created.file);
            }
        }
        if files.len() > SYNC_EACH {
            store.host.sync_all(site::CHECKPOINT_SYNC).map_err(fail)?;
            store.log.count_barrier();
            return Ok(());
        }
        for file in files {
            file.home.sync(site::CHECKPOINT_SYNC).map_err(fail)?;
            store.log.count_barrier();
        }
        let mut parents: Vec<&[u8]> = created.iter().map(|created| parent(&created.file.path)).collect();
        parents.sort_unstable();
        parents.dedup();
        for parent in parents {
            store.host.sync_dir(site::CHECKPOINT_SYNC_DIR, parent).map_err(fail)?;
            store.log.count_barrier();
        }
        Ok(())
    }
}
