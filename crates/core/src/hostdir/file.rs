//! One regular file of the store: its home, its index, who uses it, and how its committed bytes are read.

use std::sync::Arc;

use wholly_changes::records::Baseline;
use wholly_host::HostFile;
use wholly_media::Region;
use wholly_vfs::Stat;

use super::StoreInner;
use super::clock::AT_HOME;
use super::implicit::Epoch;
use super::mapped_reads::Cuts;
use super::memory::HOLE;
use super::published::{Published, Stock, Written};
use super::space::{FileSpace, Wishes};
use crate::error::{Error, Result};
use epochs::Mark;
use index::{BLOCK, Clean, FileIndex, NO_VERSION, Pending, RunVersion, pieces};
use sync::{AtomicU8, AtomicU64, Backoff, Mutex, OnceLock, Ordering, RwLock};

/// Set in [`File::owner`] when an explicit group owns the file; the rest is the group's id. Otherwise the number of
/// implicit calls.
const OWNED: u64 = 1 << 63;
/// In [`File::owner`] beside the id: the group holds calls outside of explicit groups.
pub(super) const IMPLICIT: u64 = 1 << 62;
/// [`File::owner`] while a call looks at the home file again: no group has the id 0.
const REFRESHING: u64 = OWNED;

/// A regular file below the store's directory. One value per inode, whatever names it was opened by.
///
/// What every group looks at comes first, so that it lies in two or three lines.
#[repr(C)]
pub(crate) struct File {
    owner: AtomicU64,
    /// Committed size in bytes.
    pub size: AtomicU64,
    /// Blocks that have versions, and one more if the size is not home: nothing else needs a checkpoint.
    pub pending: Pending,
    /// The sequence of the last group that identified the file in the log; 0 if none.
    pub identified: AtomicU64,
    /// The highest sequence of a group that was published for it.
    pub last_sequence: AtomicU64,
    /// When its content changed, in ns, or [`AT_HOME`].
    mtime_ns: AtomicU64,
    /// The sequence of the group that told that, or of a later one.
    mtime_sequence: AtomicU64,
    /// When its content was last changed, in ns, as the clock was, or [`AT_HOME`].
    ctime_ns: AtomicU64,
    /// Its place in the store's table, below 2^24.
    pub number: u32,
    /// 1 if the host file is open, and nobody may write to it.
    read_only: AtomicU8,
    /// 1 if not all of its blocks may be allocated at home.
    sparse: AtomicU8,
    /// How many threads of a checkpoint may be changing its lists of versions: invariant 5 of the index.
    pub visited: AtomicU8,
    /// 1 while the size, or a cut, is not home.
    pub resized: AtomicU8,
    /// Whether it may have set-id bits or capabilities, which go when its content changes: see
    /// [`may_have_privileges`](Self::may_have_privileges).
    privileges: AtomicU8,
    /// Names the file in the log; never used again.
    pub id: u64,
    pub index: FileIndex,
    /// Home bytes from here on do not count: they read as zero.
    pub home_limit: AtomicU64,
    /// What is wished of its blocks.
    pub space: FileSpace,
    /// The path that it was opened by, for messages.
    pub path: Vec<u8>,
    /// The host file, while the store has it open.
    home: RwLock<Option<Open>>,
    /// Sequence of the newest group of which bytes are in a [shadow](super::shadow).
    pub shadowed: AtomicU64,
    /// Open handles.
    pub handles: AtomicU64,
    /// Whether calls outside of explicit groups have changed it that are not committed.
    pub mark: Mark<Epoch>,
    /// Held by calls that change the size, from reading it until it is published.
    pub append: Mutex<()>,
    /// How it lies at home.
    pub home_state: Mutex<HomeState>,
    cuts: Cuts,
    /// 1 if the file cannot be mapped: the medium is a disk.
    is_never_mapped: AtomicU8,
    /// Made with the first mapping: most files have none.
    mappings: OnceLock<Box<Mappings>>,
}

/// Mapping `k` covers at least `1 << k` times the first one's bytes.
type Mappings = [OnceLock<Option<Arc<dyn Region>>>; 44];

/// Whether some blocks of a file are certain not to be allocated.
fn is_sparse(stat: &Stat) -> bool {
    stat.allocated < stat.size
}

/// Whether every block of a file is allocated, as far as its looks tell.
fn may_be_dense(stat: &Stat) -> Option<bool> {
    if is_sparse(stat) { Some(false) } else { None }
}

/// An open host file.
struct Open {
    host: Arc<dyn HostFile>,
    /// Not for reading alone, where more could be had. What is open for writing nobody can execute, and what somebody
    /// executes cannot be opened so (`ETXTBSY`): programs that are only read are to be programs for everybody.
    full: bool,
    /// Whether the permission bits forbid it, so that it cannot be opened again just so.
    forbidden: bool,
}

/// How a file lies at home. Only checkpoints change it.
pub(crate) struct HomeState {
    /// Size at home in bytes.
    pub size: u64,
    /// Whether every block of it is allocated; not known where there are as many as it would take, but perhaps behind
    /// its end.
    pub dense: Option<bool>,
    /// As a bystander must have left it.
    pub baseline: Option<Baseline>,
    /// What a bystander did; the file is not taken home any more.
    pub conflict: Option<String>,
}

/// The level of the mapping that covers `end`, where that is not 0.
#[inline]
fn level_of(end: u64) -> u32 {
    const BELOW_FIRST: u64 = FIRST_MAPPING - 1;
    (end.wrapping_sub(1) | BELOW_FIRST).ilog2() - BELOW_FIRST.ilog2()
}

/// Values of [`File::privileges`].
const MAYBE: u8 = 0;
const NONE: u8 = 1;

/// The first mapping covers as much.
const FIRST_MAPPING: u64 = 1 << 20;

impl File {
    /// A file that the host has as `stat` tells, or that it has not made yet.
    pub fn new(id: u64, number: u32, path: Vec<u8>, stat: Option<&Stat>) -> Self {
        let size = stat.map_or(0, |stat| stat.size);
        File {
            id,
            number,
            read_only: AtomicU8::new(0),
            sparse: AtomicU8::new(u8::from(stat.is_some_and(is_sparse))),
            path,
            index: FileIndex::default(),
            size: AtomicU64::new(size),
            home_limit: AtomicU64::new(size),
            space: FileSpace::default(),
            pending: Pending::new(),
            visited: AtomicU8::new(0),
            resized: AtomicU8::new(0),
            privileges: AtomicU8::new(MAYBE),
            identified: AtomicU64::new(0),
            last_sequence: AtomicU64::new(0),
            shadowed: AtomicU64::new(0),
            mtime_ns: AtomicU64::new(AT_HOME),
            ctime_ns: AtomicU64::new(AT_HOME),
            mtime_sequence: AtomicU64::new(0),
            handles: AtomicU64::new(0),
            mark: Mark::new(id),
            append: Mutex::new(()),
            home_state: Mutex::new(HomeState {
                size,
                dense: stat.map_or(Some(true), may_be_dense),
                baseline: stat.map(Baseline::of),
                conflict: None,
            }),
            owner: AtomicU64::new(0),
            cuts: Cuts::new(),
            is_never_mapped: AtomicU8::new(0),
            mappings: OnceLock::new(),
            home: RwLock::new(None),
        }
    }

    /// The host file, if it is open.
    pub fn home(&self) -> Option<Arc<dyn HostFile>> {
        self.home.read().unwrap().as_ref().map(|open| open.host.clone())
    }

    /// The host file, if it is open as far as the process may open it.
    pub fn full_home(&self) -> Option<Arc<dyn HostFile>> {
        self.home.read().unwrap().as_ref().filter(|open| open.full).map(|open| open.host.clone())
    }

    /// Whether the host file is open as far as the process may open it, and that is for reading alone.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed) != 0
    }

    /// Whether the host file is open.
    pub fn has_home(&self) -> bool {
        self.home.read().unwrap().is_some()
    }

    /// From now on this is the open host file, unless it is open as far: see [`StoreInner::attach`].
    pub(super) fn attach(&self, host: Arc<dyn HostFile>, full: bool, forbidden: bool) -> bool {
        let mut home = self.home.write().unwrap();
        let was_open = home.is_some();
        if home.as_ref().is_none_or(|open| full && !open.full) {
            self.read_only.store(u8::from(full && !host.is_writable()), Ordering::Relaxed);
            *home = Some(Open { host, full, forbidden });
        }
        !was_open
    }

    /// Closes the host file, where it can be opened again. Whether it is closed.
    pub(super) fn detach(&self) -> bool {
        let mut home = self.home.write().unwrap();
        if home.as_ref().is_some_and(|open| !open.forbidden) {
            *home = None;
        }
        home.is_none()
    }

    /// When its committed content changed, where that is not home.
    #[inline]
    pub fn mtime(&self) -> Option<i64> {
        Some(self.mtime_ns.load(Ordering::Acquire)).filter(|&ns| ns != AT_HOME).map(|ns| ns as i64)
    }

    /// The same, if groups below `target` have told it: of others the log goes on telling.
    pub fn mtime_as_of(&self, target: u64) -> Option<i64> {
        // In this order: see `set_mtime`.
        let mtime = self.mtime();
        mtime.filter(|_| self.mtime_sequence() < target)
    }

    /// A committed group at `sequence` changed its content, or told when it changed.
    #[inline]
    pub fn set_mtime(&self, ns: i64, sequence: u64) {
        // First: who sees the time sees that it is not of before.
        // (Of calls beside each other the lower may come last: then a pass sets the time sooner.)
        if self.mtime_sequence.load(Ordering::Relaxed) < sequence {
            self.mtime_sequence.store(sequence, Ordering::Release);
        }
        self.mtime_ns.store(ns as u64, Ordering::Release);
    }

    /// The sequence of the group that told its time of change, or of a later one.
    pub fn mtime_sequence(&self) -> u64 {
        self.mtime_sequence.load(Ordering::Acquire)
    }

    /// A committed group changed its content at this time of the clock.
    #[inline]
    pub fn set_ctime(&self, ns: i64) {
        self.ctime_ns.store(ns as u64, Ordering::Relaxed);
    }

    /// When its committed content was last changed, as the clock was, where that is known.
    pub fn ctime(&self) -> Option<i64> {
        Some(self.ctime_ns.load(Ordering::Relaxed)).filter(|&ns| ns != AT_HOME).map(|ns| ns as i64)
    }

    /// Home has this time.
    pub fn mtime_is_home(&self, ns: i64) {
        // Unless there is another one meanwhile.
        let _ = self.mtime_ns.compare_exchange(ns as u64, AT_HOME, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether a write within the file may take blocks of the host that it has not.
    #[inline]
    pub fn is_sparse(&self) -> bool {
        self.sparse.load(Ordering::Relaxed) != 0
    }

    /// Blocks of it are, or are to be, holes.
    pub fn set_sparse(&self) {
        self.sparse.store(1, Ordering::Relaxed);
    }

    /// It lies at home so.
    fn lies(&self, state: &mut HomeState, stat: &Stat) {
        (state.size, state.dense) = (stat.size, may_be_dense(stat));
        state.baseline = Some(Baseline::of(stat));
        self.has_space_as(stat);
    }

    /// Home has so many of its blocks.
    pub fn has_space_as(&self, stat: &Stat) {
        if is_sparse(stat) || self.is_clean() {
            self.sparse.store(u8::from(is_sparse(stat)), Ordering::Relaxed);
        }
    }

    /// Whether nobody has looked yet, or somebody has found or given it privileges.
    #[inline]
    pub fn may_have_privileges(&self) -> bool {
        self.privileges.load(Ordering::Relaxed) == MAYBE
    }

    /// Somebody has looked at its mode and capabilities, or sets them.
    pub fn set_privileges(&self, any: bool) {
        self.privileges.store(if any { MAYBE } else { NONE }, Ordering::Relaxed);
    }

    /// Its path for messages.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// A group becomes the file's only writer, unless anybody uses the file.
    #[inline]
    pub fn try_own_at_once(&self, group: u64) -> bool {
        self.owner.compare_exchange(0, OWNED | group, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A group becomes the file's only writer, until [`disown`](Self::disown), or gets the group that is.
    pub fn try_own(&self, group: u64) -> Result<(), u64> {
        let mut backoff = Backoff::new();
        loop {
            match self.owner.compare_exchange(0, OWNED | group, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(owner) if owner & OWNED != 0 && owner != REFRESHING => return Err(owner),
                // Implicit calls end by themselves.
                Err(_) => backoff.wait(),
            }
        }
    }

    /// Whether a group that [owns](Self::try_own) a file holds calls outside of explicit groups.
    pub fn is_implicit(owner: u64) -> bool {
        owner & IMPLICIT != 0
    }

    #[inline]
    pub fn disown(&self, group: u64) {
        debug_assert_eq!(self.owner.load(Ordering::Relaxed), OWNED | group, "only the owner gives a file up");
        self.owner.store(0, Ordering::Release);
    }

    /// A file that is just being entered is owned by a group, which [does not keep it](super::names::State::retire),
    /// and lies as that group has found it.
    pub fn owned_by(self, group: u64, left: Option<Baseline>) -> Self {
        self.owner.store(OWNED | group, Ordering::Relaxed);
        if left.is_some() {
            self.home_state.lock().unwrap().baseline = left;
        }
        self
    }

    /// The group that owned it, if it is this one, has ended.
    pub fn disown_if(&self, group: u64) {
        let _ = self.owner.compare_exchange(OWNED | group, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// Whether this group owns it.
    pub fn is_owned_by(owner: u64, group: u64) -> bool {
        owner == OWNED | group
    }

    /// An implicit call begins to write beside others of its kind.
    pub fn share(&self) -> Result<()> {
        let mut backoff = Backoff::new();
        let mut owner = self.owner.load(Ordering::Relaxed);
        loop {
            // A call that changes the size ends by itself, too.
            if owner == REFRESHING || owner & (OWNED | IMPLICIT) == OWNED | IMPLICIT {
                backoff.wait();
                owner = self.owner.load(Ordering::Relaxed);
                continue;
            }
            if owner & OWNED != 0 {
                return Err(self.busy(owner));
            }
            match self.owner.compare_exchange_weak(owner, owner + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => owner = now,
            }
        }
    }

    pub fn unshare(&self) {
        self.owner.fetch_sub(1, Ordering::Release);
    }

    pub fn busy(&self, owner: u64) -> Error {
        Error::Busy(self.name(), format!("group {} has not ended", owner & !OWNED & 0xff_ffff_ffff))
    }

    /// Recovery has found the host file of what the log speaks of, and perhaps `cut`.
    pub fn recovered_as(&self, stat: &Stat, cut: bool) {
        let mut state = self.home_state.lock().unwrap();
        self.lies(&mut state, stat);
        self.home_limit.fetch_min(stat.size, Ordering::AcqRel);
        if !cut {
            self.size.fetch_max(stat.size, Ordering::AcqRel);
        }
    }

    /// The group that made it has committed: its bytes are those at home, which lies as `stat` tells.
    pub fn staged_as(&self, stat: &Stat) {
        let mut state = self.home_state.lock().unwrap();
        self.lies(&mut state, stat);
        self.home_limit.store(stat.size, Ordering::Release);
    }

    /// How it lies at home, as the log is to remember it while no checkpoint may be changing that.
    pub fn baseline(&self) -> Option<Baseline> {
        self.home_state.lock().unwrap().baseline
    }

    /// Looks whether a bystander has changed the home file, which stays a conflict then. Returns how it lies.
    pub fn look_for_bystanders(
        &self,
        state: &mut HomeState,
        look: impl FnOnce() -> Result<Option<Stat>>,
    ) -> Result<Option<Baseline>> {
        let now = if state.baseline.is_some() { look()?.map(|stat| Baseline::of(&stat)) } else { None };
        if state.conflict.is_none() {
            state.conflict = state.baseline.zip(now).and_then(|(baseline, now)| baseline.difference(&now));
        }
        match &state.conflict {
            None => Ok(now),
            Some(change) => Err(Error::Conflict { path: self.name(), change: change.clone() }),
        }
    }

    /// How it lies at home, where that was changed by nothing but its links: only its time of change is another by
    /// that. What else is otherwise a bystander did, and who owns the file, or takes what the log has of it home, is to
    /// find it.
    pub fn relinked(&self, then: Option<Baseline>, now: Baseline) -> Baseline {
        match then {
            Some(then) if self.is_relied_on() => Baseline { ctime_ns: now.ctime_ns, ..then },
            _ => now,
        }
    }

    /// A pass has just changed the names of it at home: that was no bystander.
    pub fn relinked_by_pass(&self, store: &StoreInner) -> Result<()> {
        let mut state = self.home_state.lock().unwrap();
        if state.baseline.is_some() {
            state.baseline = match store.stat_at_home(self)? {
                Some(stat) => Some(self.relinked(state.baseline, Baseline::of(&stat))),
                // Whoever goes where it was finds that it is not there.
                None if self.is_relied_on() => return Ok(()),
                None => None,
            };
        }
        Ok(())
    }

    /// Whether a group owns it, or the log has something of it.
    fn is_relied_on(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        (owner & OWNED != 0 && owner != REFRESHING) || !self.is_clean()
    }

    /// A pass has just changed its attributes at home: that was no bystander.
    pub fn changed_by_pass(&self, store: &StoreInner) -> Result<()> {
        let mut state = self.home_state.lock().unwrap();
        if state.baseline.is_some() {
            state.baseline = store.stat_at_home(self)?.as_ref().map(Baseline::of);
        }
        Ok(())
    }

    /// The host has given it the inode that it keeps, which looks so.
    pub fn settled_as(&self, stat: &Stat) {
        let mut state = self.home_state.lock().unwrap();
        if state.baseline.is_some() {
            state.baseline = Some(Baseline::of(stat));
        }
    }

    /// Whether nothing of it waits to be taken home.
    pub fn is_clean(&self) -> bool {
        self.pending.count() == 0
    }

    /// Whether a pass has anything to do with it. Of a lot that failed half-way, what went home may be forgotten since,
    /// and its number another file's.
    pub fn has_something(&self) -> bool {
        !self.is_clean() || self.mtime().is_some()
    }

    /// Looks at the home file again while nothing is pending: other programs may have changed it. `look` finds `None`
    /// where it is not at its place. It is called under the lock, so that no checkpoint changes the file meanwhile.
    pub fn refresh_by(&self, look: impl FnOnce() -> Result<Option<Stat>>) -> Result<()> {
        let mut state = self.home_state.lock().unwrap();
        if self.is_clean()
            && let Some(stat) = look()?
        {
            self.lies(&mut state, &stat);
            self.size.store(stat.size, Ordering::Release);
            self.home_limit.store(stat.size, Ordering::Release);
        }
        Ok(())
    }

    /// [Refreshes](Self::refresh_by) if nobody uses the file at this moment. Else only how it lies is seen again: a
    /// pass may have changed that since somebody looked.
    pub fn refresh_if_unused(&self, store: &StoreInner, home: Option<&dyn HostFile>) -> Result<()> {
        if !self.is_clean() {
            return Ok(());
        }
        if self.owner.compare_exchange(0, REFRESHING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return self.relinked_by_pass(store);
        }
        let result = match home {
            // The caller has just opened it, and keeps passes from changing names: the lock is not taken twice.
            Some(home) => self.refresh_by(|| Ok(Some(home.stat()?))),
            None => store.refresh_named(self),
        };
        self.owner.store(0, Ordering::Release);
        result
    }

    /// The mapping of this level, if one was asked for: `None` there if the file had none.
    #[inline]
    fn mapped(&self, level: u32) -> Option<&Option<Arc<dyn Region>>> {
        self.mappings.get()?.get(level as usize)?.get()
    }

    /// The mapping of the home file that covers `end`, on persistent memory, where that is open for writing: a pass
    /// writes through it.
    pub fn mapping(&self, end: u64) -> Result<Option<&Arc<dyn Region>>> {
        let level = level_of(end.max(1));
        if let Some(mapping) = self.mapped(level) {
            return Ok(mapping.as_ref());
        }
        if self.is_never_mapped.load(Ordering::Relaxed) != 0 {
            return Ok(None);
        }
        let Some(home) = self.full_home() else { return Ok(None) };
        let mapping = home.map(FIRST_MAPPING << level)?;
        if mapping.is_none() && level == 0 {
            self.is_never_mapped.store(1, Ordering::Relaxed);
            return Ok(None);
        }
        let all = self.mappings.get_or_init(|| Box::new([const { OnceLock::new() }; 44]));
        Ok(all[level as usize].get_or_init(|| mapping).as_ref())
    }

    /// Reads committed bytes and what this policy lets everybody see. Returns how many bytes lie before the end of the
    /// file.
    #[inline]
    pub fn read(&self, store: &StoreInner, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.read_at_once(store, offset, buf) {
            Some(length) => Ok(length),
            None => self.read_otherwise(store, offset, buf),
        }
    }

    /// Reads a [clean](Self::clean) file through a mapping that there is. `None` if anything is otherwise, or was
    /// changed meanwhile: `buf` then holds nothing of use.
    #[inline]
    pub fn read_at_once(&self, store: &StoreInner, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let clean = self.clean()?;
        let left = self.size.load(Ordering::Acquire).checked_sub(offset)?;
        let length = left.min(buf.len() as u64) as usize;
        let end = offset + length as u64;
        let mapping = self.mapped(level_of(end))?.as_deref()?;
        let reading = store.mapped_reads.begin(self.number, &self.cuts)?;
        // Looked at now that a cut would wait: a cut that is over has lowered it.
        if self.home_limit.load(Ordering::Acquire) < end || mapping.read(offset, &mut buf[..length]).is_err() {
            return None;
        }
        drop(reading);
        self.is_still(clean).then_some(length)
    }

    /// Reads any file.
    #[inline(never)]
    pub fn read_otherwise(&self, store: &StoreInner, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let clean = self.clean();
        let size = self.size.load(Ordering::Acquire);
        let length = buf.len().min(size.saturating_sub(offset) as usize);
        let buf = &mut buf[..length];
        if let Some(clean) = clean {
            self.read_counted(store, offset, buf)?;
            if self.is_still(clean) {
                return Ok(length);
            }
        }
        self.read_within(store, offset, buf, u64::MAX)?;
        Ok(length)
    }

    /// The file as it is while all its committed bytes are home, and are to stay as they are there: then they are read
    /// without a look at the index, and [looked at again](Self::is_still) after that.
    ///
    /// Two looks decide. At the first, no version shows and nothing is wished; at the second, `pending` has not been
    /// raised since (see [`Pending`] for why that is enough, and for the memory orders), and no wish has come or come
    /// true. Sizes, looked at in between, need no second look. A size that grew by bytes was published after them, so
    /// that the second look sees their raise; one that grew without has zeros at the end, as `home_limit` says. A cut
    /// lowers that first, and who reads through a mapping looks at it again where cuts wait
    /// ([`without_mapped_reads`](Self::without_mapped_reads)).
    #[inline]
    fn clean(&self) -> Option<(Clean, u64)> {
        let clean = self.pending.clean()?;
        let space = self.space.state();
        (!FileSpace::is_any(space)).then_some((clean, space))
    }

    /// The second look.
    #[inline]
    fn is_still(&self, (clean, space): (Clean, u64)) -> bool {
        // In this order: the first one has the fence.
        self.pending.is_still(clean) && self.space.state() == space
    }

    /// Reads `buf.len()` bytes wherever the file ends; what lies at `limit` or beyond, or beyond the file, is zero.
    pub fn read_within(&self, store: &StoreInner, offset: u64, buf: &mut [u8], limit: u64) -> Result<()> {
        let counted = limit.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (mut rest, beyond) = buf.split_at_mut(counted);
        beyond.fill(0);
        let mut at = offset;
        while !rest.is_empty() {
            let in_block = (BLOCK - at % BLOCK).min(rest.len() as u64) as usize;
            let space = self.space.state();
            let mut done = if rest.len() > in_block { self.read_run(store, at, rest)? } else { 0 };
            if done == 0 {
                self.read_block(store, at / BLOCK, (at % BLOCK) as u16, &mut rest[..in_block])?;
                done = in_block;
            }
            if self.space.state() != space {
                // Home bytes of before may have been made zeros meanwhile, in part.
                continue;
            }
            at += done as u64;
            rest = &mut rest[done..];
        }
        Ok(())
    }

    /// Reads blocks without versions from home by one call, as far as they follow each other. Returns how many bytes; 0
    /// where that is less than two blocks, or not known to be so.
    fn read_run(&self, store: &StoreInner, offset: u64, buf: &mut [u8]) -> Result<usize> {
        const MOST: usize = 64;
        let (first, end) = (offset / BLOCK, offset + buf.len() as u64);
        let mut guards = [const { None }; MOST];
        let mut count = 0;
        for (guard, block) in guards.iter_mut().zip(first..end.div_ceil(BLOCK)) {
            if let Some(slot) = self.index.get(block) {
                // Nobody is waited for while others may wait for this.
                let read = if slot.is_empty() { slot.try_read() } else { None };
                *guard = read.filter(|guard| guard.newest() == NO_VERSION);
                if guard.is_none() {
                    break;
                }
            }
            count += 1;
        }
        if count < 2 {
            return Ok(0);
        }
        let length = (((first + count) * BLOCK).min(end) - offset) as usize;
        self.read_home(store, offset, &mut buf[..length])?;
        // As in `read_block`.
        let no_slot = |block: u64| guards[(block - first) as usize].is_some() || self.index.get(block).is_none();
        Ok(if (first..first + count).all(no_slot) { length } else { 0 })
    }

    fn read_block(&self, store: &StoreInner, block: u64, start: u16, buf: &mut [u8]) -> Result<()> {
        loop {
            if let Some(slot) = self.index.get(block) {
                let guard = slot.read();
                let versions = store.index.arena.list(guard.newest());
                return self.read_pieces(store, block, versions, start, buf);
            }
            // Nobody can be waited for without a slot, so a checkpoint may have written home meanwhile: then there is a
            // slot now.
            self.read_home(store, block * BLOCK + u64::from(start), buf)?;
            if self.index.get(block).is_none() {
                return Ok(());
            }
        }
    }

    fn read_pieces(
        &self,
        store: &StoreInner,
        block: u64,
        versions: impl Iterator<Item = RunVersion>,
        start: u16,
        buf: &mut [u8],
    ) -> Result<()> {
        let end = start + buf.len() as u16;
        let mut versions = versions.peekable();
        match versions.peek() {
            None => return self.read_home(store, block * BLOCK + u64::from(start), buf),
            Some(newest) if newest.start <= start && end <= newest.end() => {
                return store.read_position(newest.position + u64::from(start - newest.start), buf);
            }
            _ => {}
        }
        for piece in pieces(versions, start, end) {
            let part = &mut buf[usize::from(piece.start - start)..usize::from(piece.end - start)];
            match piece.position {
                Some(position) => store.read_position(position, part)?,
                None => self.read_home(store, block * BLOCK + u64::from(piece.start), part)?,
            }
        }
        Ok(())
    }

    /// Home bytes, zero where they do not count.
    fn read_home(&self, store: &StoreInner, offset: u64, buf: &mut [u8]) -> Result<()> {
        if !self.space.any() {
            return self.read_counted(store, offset, buf);
        }
        let (mut at, end) = (offset, offset + buf.len() as u64);
        while at < end {
            let zeroed = self.space.with(|wishes| wishes.next_zeroed(at / BLOCK));
            let from = zeroed.as_ref().map_or(end, |blocks| (blocks.start * BLOCK).clamp(at, end));
            let to = zeroed.map_or(end, |blocks| blocks.end.saturating_mul(BLOCK).min(end));
            self.read_counted(store, at, &mut buf[(at - offset) as usize..(from - offset) as usize])?;
            buf[(from - offset) as usize..(to - offset) as usize].fill(0);
            at = to;
        }
        Ok(())
    }

    /// The same, where no block is wished to be zeros.
    fn read_counted(&self, store: &StoreInner, offset: u64, buf: &mut [u8]) -> Result<()> {
        let limit = self.home_limit.load(Ordering::Acquire);
        let counted = limit.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (counted, beyond) = buf.split_at_mut(counted);
        if !beyond.is_empty() {
            beyond.fill(0);
        }
        if counted.is_empty() {
            return Ok(());
        }
        if let Some(mapping) = self.mapping(offset + counted.len() as u64)? {
            let result = store.mapped_reads.read(self.number, &self.cuts, || {
                // Looked at again now that a cut would wait: a cut that is over has lowered it.
                let whole = self.home_limit.load(Ordering::Acquire) >= offset + counted.len() as u64;
                whole.then(|| mapping.read(offset, counted))
            });
            if let Some(Some(result)) = result {
                return Ok(result?);
            }
        }
        let read = match store.home_to_read(self)? {
            Some(home) => home.read_at(offset, counted)?,
            None => 0,
        };
        counted[read..].fill(0);
        Ok(())
    }

    /// Runs `cut`, which makes the home file shorter, while nobody reads it through a mapping.
    pub fn without_mapped_reads<T>(&self, store: &StoreInner, cut: impl FnOnce() -> T) -> T {
        store.mapped_reads.without(self.number, &self.cuts, cut)
    }

    /// Publishes that the file was cut to `length` bytes: what lay beyond is gone, and reads as zero if the file grows
    /// again. The caller owns the file, or recovers.
    pub fn publish_truncate(&self, index: &Published, length: u64, freed: &mut Vec<u32>) {
        self.home_limit.fetch_min(length, Ordering::AcqRel);
        if self.space.any() {
            self.space.change(|wishes| wishes.cut(length.div_ceil(BLOCK)));
        }
        self.index.for_each_from(length / BLOCK, &mut |block, slot| {
            if slot.is_empty() {
                return;
            }
            let keep = length.saturating_sub(block * BLOCK).min(BLOCK) as u16;
            let claim = slot.claim();
            // Looked at under the claim: a checkpoint may have emptied the list meanwhile, and counted that.
            let had = claim.newest() != NO_VERSION;
            claim.change(|newest| index.arena.cut_list(newest, keep, freed));
            if had && claim.newest() == NO_VERSION {
                self.pending.lower(1);
            }
        });
        // A checkpoint that did not see the new size may have made home as long as it was, and put bytes there that are
        // cut by now.
        let _home = self.home_state.lock().unwrap();
        self.home_limit.fetch_min(length, Ordering::AcqRel);
        self.publish_size(index, |_| length);
    }

    /// Publishes what a group at `sequence` wishes of the file's blocks. The caller owns the file.
    pub fn publish_wishes(&self, index: &Published, wishes: &Wishes, sequence: u64, stock: &mut Stock) {
        // First, so that who sees home bytes of a block not count sees none of its older versions either.
        for (blocks, _) in wishes.in_range(0..u64::MAX).filter(|(_, wish)| wish.zeroes()) {
            self.index.for_each_in(blocks, &mut |block, slot| {
                if !slot.is_empty() {
                    index.publish(self, hole(block, sequence), true, stock);
                }
            });
        }
        self.space.change(|all| all.take_in(wishes, sequence));
        self.bring_home(index);
    }

    /// Publishes a new size, and sees to it that a checkpoint brings it home.
    #[inline]
    pub fn publish_size(&self, index: &Published, change: impl Fn(u64) -> u64) {
        let mut size = self.size.load(Ordering::Acquire);
        loop {
            let new = change(size);
            if new == size {
                return;
            }
            match self.size.compare_exchange(size, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => size = now,
            }
        }
        self.bring_home(index);
    }

    /// Sees to it that the next checkpoint brings the size home, and syncs the file in any case.
    pub fn bring_home(&self, index: &Published) {
        if self.resized.swap(1, Ordering::AcqRel) == 0 {
            self.pending.raise(1);
            index.dirty.push_resize(self.number);
        }
    }
}

/// A block that became a hole.
pub(super) fn hole(block: u64, stamp: u64) -> Written {
    Written { offset: block * BLOCK, length: BLOCK, position: HOLE, stamp }
}
