//! A mount that programs share: which group runs, and which calls belong to it.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use fuser::{INodeNo, Notifier, ReplyIoctl, ReplyWrite};
use wholly_host::mount::Holder;
use wholly_vfs::{Committed, Context, Errno, Groups, Handle, Ino, Pending, Result};

use super::caller::Caller;
use super::changes::{Look, Touches};
use super::dropped::Dropped;
use super::keeper::{Command, Keeper};
use super::latch::Latch;
use super::process::Process;
use super::state::{Ending, Group, Lapsed, Member, State};
use super::{Asker, Call};
use crate::convert::errno;
use crate::options::Clock;

/// Bytes of a page of the kernel.
const PAGE: u64 = 4096;

/// What server threads and the keeper share.
pub(super) struct Inner {
    pub vfs: Arc<dyn Groups>,
    /// Not held during calls of the file system below.
    pub state: RwLock<State>,
    /// Whether a group was undone, so that the kernel may take the end of a file to be elsewhere.
    pub ends_may_be_stale: AtomicBool,
    pub notifier: OnceLock<Notifier>,
    pub dropped: Dropped,
    /// How many times the keeper has to tell the kernel yet to forget pages.
    pub to_forget: AtomicU64,
    /// Taken after the state.
    pub lapsed: Mutex<Vec<Lapsed>>,
    /// How long a group may make no calls.
    pub timeout: Duration,
    pub clock: Clock,
    /// Whether nothing can be changed on the mount now.
    pub is_read_only: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

pub(crate) struct Shared {
    inner: Arc<Inner>,
    keeper: Mutex<Option<Keeper>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the file system below makes of the end of a group. A panic is an error: else who waits for that end would wait
/// for ever.
pub(super) fn or_panic<T>(end: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(end)).unwrap_or(Err(Errno::IO))
}

impl Inner {
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn change_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group that runs begins to end, if it is the one that is meant (invariant 1): no call enters it from here on.
    /// What ended already comes second.
    pub fn take(&self, is_meant: impl FnOnce(&Group) -> bool, lapses: bool) -> Result<(Arc<Ending>, Vec<Arc<Ending>>)> {
        let mut state = self.change_state();
        let group = state.running.clone().filter(|group| is_meant(group)).ok_or(Errno::INVAL)?;
        if lapses {
            // Invariant 6: not later, or a call between would be in no group.
            let (handle, process, added) = (group.handle, group.process.clone(), group.added.clone());
            lock(&self.lapsed).push(Lapsed { handle, process, added });
        }
        let earlier = state.ending.clone();
        Ok((state.end(group), earlier))
    }

    /// Commits the group of an open file. What was committed is as the kernel has it.
    ///
    /// # Errors
    /// `EINVAL` alone where that is not the group that runs. Else the group was undone, and is to be forgotten.
    fn commit(&self, handle: u64, how: Committed) -> std::result::Result<(), (Option<Arc<Ending>>, Errno)> {
        let taken = self.take(|group| group.handle == handle, false);
        let (ending, earlier) = taken.map_err(|error| (None, error))?;
        let group = &ending.group;
        group.calls.drain();
        // Invariant 8.
        earlier.iter().for_each(|earlier| earlier.settled.wait());
        let ended = or_panic(|| {
            if group.is_doomed.load(Ordering::Acquire) {
                self.vfs.abort(group.id)?;
                return Err(Errno::AGAIN);
            }
            let ticket = self.vfs.commit_all(&[group.id], how)?;
            self.change_state().is_committed(&ending, (self.clock)());
            ending.settled.open();
            match how {
                Committed::Durable => Ok(self.vfs.wait(ticket)?),
                Committed::Ordered => Ok(()),
            }
        });
        ended.map_err(|error| {
            self.undone(&ending, true);
            (Some(ending), error)
        })
    }

    /// A group was undone. `was_to_stay`: it is one whose commit has failed.
    pub fn undone(&self, ending: &Arc<Ending>, was_to_stay: bool) {
        self.ends_may_be_stale.store(true, Ordering::Release);
        let mut state = self.change_state();
        state.is_undone(ending, (self.clock)());
        if was_to_stay {
            // Invariant 8.
            let later = state.ending.iter().map(|ending| &ending.group).chain(&state.running);
            later.for_each(|group| group.is_doomed.store(true, Ordering::Release));
        }
        drop(state);
        ending.settled.open();
    }
}

impl Shared {
    pub fn new(vfs: Arc<dyn Groups>, timeout: Duration, clock: Clock) -> Shared {
        let (ends_may_be_stale, notifier, dropped) = (AtomicBool::new(false), OnceLock::new(), Dropped::default());
        let (state, lapsed, is_read_only) = (RwLock::default(), Mutex::default(), OnceLock::new());
        let to_forget = AtomicU64::new(0);
        let inner =
            Inner { vfs, state, ends_may_be_stale, notifier, dropped, to_forget, lapsed, timeout, clock, is_read_only };
        Shared { inner: Arc::new(inner), keeper: Mutex::default() }
    }

    pub fn mounted(&self, notifier: Notifier, is_read_only: Box<dyn Fn() -> bool + Send + Sync>) {
        let _ = self.inner.notifier.set(notifier);
        let _ = self.inner.is_read_only.set(is_read_only);
    }

    fn running(&self) -> Option<Arc<Group>> {
        self.inner.state().running.clone()
    }

    /// Decides to which group a call belongs: calls `decide` with the state, and again after each wait for an ending
    /// group that `meets` what the call is about. The file system does not work meanwhile (invariant 1).
    fn settled<T>(&self, meets: impl Fn(&Ending) -> bool, decide: impl FnOnce(&State) -> T) -> T {
        loop {
            let state = self.inner.state();
            let Some(met) = state.ending.iter().find(|ending| meets(ending)).cloned() else { return decide(&state) };
            drop(state);
            met.settled.wait();
        }
    }

    /// A look, and what it has found before, if it is made again ([`Call::is_to_be_repeated`]).
    pub fn look(&self, thread: u32, ctx: Context, look: Look<'_>, found: Option<u64>) -> Call {
        let shows = |group: &Group| {
            let changes = lock(&group.changes);
            changes.shows_in(look) || found.is_some_and(|found| changes.has(found))
        };
        let decide = |state: &State| {
            let member = state.running.as_ref().filter(|group| shows(group)).map(Member::new);
            (state.running.clone(), member, state.ending.clone())
        };
        let (running, mut member, pending) = self.settled(|ending| shows(&ending.group), decide);
        if running.as_ref().is_some_and(|group| self.note_call(group, thread)) {
            member.iter_mut().for_each(Member::is_own);
        }
        let (ctx, beside) = match &member {
            Some(member) => (member.group().context(ctx), None),
            None => (ctx, running),
        };
        Call { ctx, clock: None, member, beside, pending }
    }

    /// A call that is in no group may be of the process of one, and shows that it is at work.
    pub fn note_outside(&self, thread: u32) {
        if let Some(group) = self.running() {
            self.note_call(&group, thread);
        }
    }

    /// Whose call it is costs a look into `/proc`: it is not asked for again where the group was active a moment ago.
    /// Whether it may be one of its process.
    fn note_call(&self, group: &Group, thread: u32) -> bool {
        let now = (self.inner.clock)();
        if group.idle(now) < self.inner.timeout / 16 {
            return true;
        }
        let is_own = group.process.has(thread);
        if is_own {
            group.is_active(now);
        }
        is_own
    }

    /// Whether calls are those of a group that was aborted meanwhile, without its process. To be asked once it is
    /// decided that a call is not in that group.
    fn check_lapsed(&self, thread: u32, handle: Option<u64>) -> Result<()> {
        match lock(&self.inner.lapsed).iter().any(|lapsed| lapsed.has(thread, handle)) {
            true => Err(Errno::CANCELED),
            false => Ok(()),
        }
    }

    pub fn change(&self, thread: u32, ctx: &Context, touches: &Touches<'_>) -> Result<Call> {
        let handle = touches.handle.map(|handle| handle.0);
        let meets = |ending: &Ending| lock(&ending.group.changes).meets(touches);
        'again: loop {
            let decide = |state: &State| (state.running.as_ref().map(Member::new), state.ending.clone());
            let (mut member, pending) = self.settled(meets, decide);
            self.check_lapsed(thread, handle)?;
            let mut call = match member.take() {
                Some(mut member) if member.group().has(thread, handle) => {
                    member.is_own();
                    let group = member.group();
                    group.is_active((self.inner.clock)());
                    lock(&group.changes).note(touches);
                    let ctx = group.context(ctx.clone());
                    Call { ctx, clock: Some(self.inner.clock), member: Some(member), beside: None, pending }
                }
                Some(other) if lock(&other.group().changes).hides(touches) => return Err(Errno::BUSY),
                _ => Call { ctx: ctx.clone(), clock: None, member: None, beside: None, pending },
            };
            if call.member.is_none() && call.pending.is_empty() {
                return Ok(call);
            }
            for (parent, name) in touches.names {
                // What has the name so far may lose it.
                let Ok(found) = self.inner.vfs.lookup(&call.ctx, Ino(parent.0), name.as_bytes()) else { continue };
                if let Some(member) = &call.member {
                    lock(&member.group().changes).note_node(found.ino.0);
                }
                self.inner.vfs.forget(found.ino, 1);
                if call.waits_for(found.ino.0) {
                    continue 'again;
                }
            }
            return Ok(call);
        }
    }

    pub fn page_write(&self, ctx: Context, node: INodeNo) -> Option<Call> {
        loop {
            let page = self.settled(|ending| ending.has(node.0), |state| Page::of(state, node.0));
            let member = match page {
                Page::Dropped => return None,
                Page::Outside => None,
                Page::Member(member) => Some(member),
                Page::Waits(added) => {
                    added.wait();
                    continue;
                }
            };
            let ctx = match &member {
                Some(member) => {
                    member.group().is_active((self.inner.clock)());
                    member.group().context(ctx)
                }
                None => ctx,
            };
            return Some(Call { ctx, clock: None, member, beside: None, pending: Vec::new() });
        }
    }

    /// Whether the kernel may write at another place than the end of a file where it means the end: it asks for a size
    /// again before it reads or tells it, but not before it writes at the end, and a group that was undone may have
    /// ended the file elsewhere.
    pub fn ends_may_be_stale(&self) -> bool {
        self.inner.ends_may_be_stale.load(Ordering::Acquire)
    }

    /// A read is made.
    pub fn note_read(&self, node: INodeNo) {
        self.inner.dropped.note_read(node.0);
    }

    /// A write from the kernel's pages was made, of `written` bytes. What else the kernel has copied to its pages is
    /// not the file's: mapped memory would show it.
    pub fn note_write(&self, node: INodeNo, offset: u64, length: usize, written: usize) {
        let from = if self.inner.dropped.lacks_write(node.0) { offset } else { offset + written as u64 };
        let pages = from..offset + length as u64;
        if !pages.is_empty() {
            self.forget_later(node, pages);
        }
    }

    /// Has the keeper tell the kernel to forget pages. Without the keeper no group began, and the kernel drops such
    /// pages when they are read by a call.
    fn forget_later(&self, node: INodeNo, pages: Range<u64>) {
        self.inner.to_forget.fetch_add(1, Ordering::AcqRel);
        if self.tell(Command::Forget { node, pages }).is_err() {
            self.inner.to_forget.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Answers an append that the kernel has in its pages at `offset`, and that went to the file's end at `at`.
    pub fn appended(&self, node: INodeNo, offset: u64, length: usize, (at, written): (u64, usize), reply: ReplyWrite) {
        if at == offset {
            self.note_write(node, offset, length, written);
            return reply.written(written as u32);
        }
        self.inner.dropped.lacks_write(node.0);
        let pages = offset..offset + length as u64;
        // Whole pages count as read already, and must go before the program goes on. The kernel has none of them locked
        // as long as it waits for the answer, but it may wait for reads of others. So neither a thread that answers
        // requests drops them, nor the keeper, which may be waiting for a page of the next write.
        let whole = pages.start.next_multiple_of(PAGE)..pages.end / PAGE * PAGE;
        // Of other pages the kernel keeps nothing, but if they were read since the abort: beyond the file's end such a
        // read has told it where that is.
        if offset < at {
            self.forget_later(node, pages);
        }
        if whole.is_empty() {
            return reply.written(written as u32);
        }
        let (inner, reply) = (self.inner.clone(), Arc::new(Mutex::new(Some(reply))));
        let answer = move || lock(&reply).take().into_iter().for_each(|reply| reply.written(written as u32));
        let otherwise = answer.clone();
        let dropping = std::thread::Builder::new().name("wholly-append".into()).spawn(move || {
            inner.forget_range(node, &whole);
            answer();
        });
        if dropping.is_err() {
            otherwise();
        }
    }

    pub fn forget(&self, node: INodeNo) {
        self.inner.dropped.forget(node.0);
    }

    pub fn release(&self, handle: u64) {
        // With the state locked: else a group that lapses meanwhile might keep the handle.
        let state = self.inner.state();
        let mut lapsed = lock(&self.inner.lapsed);
        lapsed.retain(|lapsed| lapsed.handle != handle);
        lapsed.iter().for_each(|lapsed| _ = lock(&lapsed.added).remove(&handle));
        drop(lapsed);
        let began_by_it = state.running.as_ref().is_some_and(|group| {
            lock(&group.added).remove(&handle);
            group.handle == handle
        });
        drop(state);
        if began_by_it {
            // The keeper has begun the group, and so it is there.
            let _ = self.tell(Command::Released { handle });
        }
    }

    /// Whoever may not change the root directory has nothing to do here that others would have to wait for.
    fn check_begin(&self, caller: &Caller) -> Result<()> {
        if self.inner.is_read_only.get().is_some_and(|is_read_only| is_read_only()) {
            return Err(Errno::ROFS);
        }
        caller.check_write(&*self.inner.vfs, Ino::ROOT)
    }

    pub fn begin(&self, asker: Asker, (user, group): (u32, u32), reply: ReplyIoctl) {
        let caller = Caller::of(asker.thread, user, group);
        let process = caller.and_then(|caller| self.check_begin(&caller)).and_then(|()| Process::of(asker.thread));
        let process = match process {
            Ok(process) => Arc::new(process),
            Err(error) => return reply.error(errno(error)),
        };
        if let Err((command, error)) = self.tell(Command::Begin { process, user, handle: asker.handle, reply }) {
            command.refuse(error);
        }
    }

    /// What [`PENDING`](wholly_host::mount::PENDING) asks for.
    pub fn pending(&self) -> Result<[u8; 16]> {
        let Pending { files, early_commits } = self.inner.vfs.pending()?;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&files.to_ne_bytes());
        bytes[8..].copy_from_slice(&early_commits.to_ne_bytes());
        Ok(bytes)
    }

    /// Which process has a group, if one does.
    pub fn holder(&self) -> Option<Holder> {
        let group = self.running()?;
        let now = (self.inner.clock)();
        Some(Holder {
            process: group.process.number() as u32,
            user: group.user,
            held: now.saturating_sub(group.began),
            idle: group.idle(now),
            timeout: self.inner.timeout,
        })
    }

    /// The caller's end of its group: it commits it, or undoes it.
    pub fn end(&self, asker: Asker, commits: Option<Committed>, reply: ReplyIoctl) {
        if let Err(error) = self.check_end(asker) {
            return reply.error(errno(error));
        }
        let handle = asker.handle;
        let command = match commits.map(|how| self.inner.commit(handle, how)) {
            Some(Ok(())) if self.inner.to_forget.load(Ordering::Acquire) == 0 => return reply.ioctl(0, &[]),
            // The keeper answers once the kernel has forgotten what refused writes have left in its pages.
            Some(Ok(())) => Command::Committed { reply },
            Some(Err((Some(undone), error))) => Command::Undone { undone, error, reply },
            Some(Err((None, _))) => Command::Late { handle, reply },
            None => Command::Abort { handle, reply },
        };
        if let Err((command, error)) = self.tell(command) {
            command.refuse(error);
        }
    }

    fn check_end(&self, asker: Asker) -> Result<()> {
        let running = self.running().filter(|group| group.handle == asker.handle).map(|group| group.process.clone());
        let of_lapsed = || {
            let lapsed = lock(&self.inner.lapsed);
            lapsed.iter().find(|lapsed| lapsed.handle == asker.handle).map(|lapsed| lapsed.process.clone())
        };
        let process = running.or_else(of_lapsed).ok_or(Errno::INVAL)?;
        if process.has(asker.thread) { Ok(()) } else { Err(Errno::PERM) }
    }

    pub fn add(&self, asker: Asker, node: INodeNo, open: &Handle) -> Result<i32> {
        let decide = |state: &State| state.running.as_ref().map(|group| Adding::new(group, node.0));
        let adding = self.settled(|ending| ending.has(node.0), decide);
        self.check_lapsed(asker.thread, Some(asker.handle))?;
        let mut adding = adding.ok_or(Errno::INVAL)?;
        if !adding.member.group().process.has(asker.thread) {
            return Err(Errno::PERM);
        }
        adding.member.is_own();
        let group = adding.member.group();
        self.inner.vfs.add(group.id, open)?;
        group.is_active((self.inner.clock)());
        lock(&group.changes).note_content(node.0);
        lock(&group.added).insert(asker.handle);
        Ok(0)
    }

    fn tell(&self, command: Command) -> std::result::Result<(), (Command, Errno)> {
        let mut keeper = lock(&self.keeper);
        if keeper.is_none() {
            match Keeper::start(self.inner.clone()) {
                Ok(started) => *keeper = Some(started),
                Err(error) => return Err((command, error)),
            }
        }
        keeper.as_ref().expect("it was started").tell(command);
        Ok(())
    }
}

/// To which group a page write belongs.
enum Page {
    /// Invariant 2.
    Dropped,
    Outside,
    Member(Member),
    /// That is known once a file has been added.
    Waits(Arc<Latch>),
}

impl Page {
    fn of(state: &State, node: u64) -> Page {
        if state.undone.iter().any(|undone| lock(&undone.group.changes).has_content(node)) {
            return Page::Dropped;
        }
        // What the group has changed anything of is its own, and not to be had outside of it.
        if let Some(group) = state.running.as_ref().filter(|group| lock(&group.changes).takes_pages_of(node)) {
            return Page::Member(Member::new(group));
        }
        let ending = state.ending.iter().map(|ending| &ending.group);
        ending.chain(&state.running).find_map(|group| group.adds(node)).map_or(Page::Outside, Page::Waits)
    }
}

/// A file that is being added to a group. Its pages are the group's when its content is, neither sooner nor later:
/// until then page writes wait.
struct Adding {
    member: Member,
    added: Arc<Latch>,
}

impl Adding {
    fn new(group: &Arc<Group>, node: u64) -> Adding {
        let added = Arc::new(Latch::default());
        lock(&group.adding).push((node, added.clone()));
        Adding { member: Member::new(group), added }
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        lock(&self.member.group().adding).retain(|(_, added)| !Arc::ptr_eq(added, &self.added));
        self.added.open();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Arc<Group> {
        let process = Process::of(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        Arc::new(Group::new(wholly_vfs::GroupId(1), 1, Arc::new(process), 0, Duration::ZERO))
    }

    #[test]
    fn page_writes_wait_for_an_add_also_once_the_group_ends() {
        let (mut state, group) = (State::default(), group());
        state.running = Some(group.clone());
        let adding = Adding::new(&group, 7);
        assert!(matches!(Page::of(&state, 7), Page::Waits(_)) && matches!(Page::of(&state, 8), Page::Outside));
        state.end(group.clone());
        assert!(matches!(Page::of(&state, 7), Page::Waits(_)) && matches!(Page::of(&state, 8), Page::Outside));
        drop(adding);
        assert!(matches!(Page::of(&state, 7), Page::Outside), "it has failed");
    }
}
