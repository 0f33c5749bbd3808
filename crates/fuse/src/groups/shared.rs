//! A mount that programs share: which group runs, and which calls belong to it.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use fuser::{INodeNo, Notifier, ReplyIoctl, ReplyWrite};
use wholly_host::mount::Holder;
use wholly_vfs::{Context, Errno, GroupId, Groups, Handle, Ino, Pending, Result};

use super::caller::Caller;
use super::changes::{Changes, Touches};
use super::dropped::Dropped;
use super::keeper::{Command, Keeper};
use super::process::Process;
use super::{Asker, Call};
use crate::convert::errno;
use crate::options::Clock;

/// Bytes of a page of the kernel.
const PAGE: u64 = 4096;

/// The group that runs.
pub(super) struct Group {
    pub id: GroupId,
    /// The open file by which it was begun.
    pub handle: u64,
    pub process: Arc<Process>,
    pub added: Mutex<HashSet<u64>>,
    pub changes: Mutex<Changes>,
    /// The user who began it.
    user: u32,
    began: Duration,
    /// When a call of it was last seen, in nanoseconds of the clock.
    active_ns: AtomicU64,
}

impl Group {
    pub fn new(id: GroupId, handle: u64, process: Arc<Process>, user: u32, now: Duration) -> Group {
        let (added, changes, active_ns) = (Mutex::default(), Mutex::default(), AtomicU64::new(nanoseconds(now)));
        Group { id, handle, process, added, changes, user, began: now, active_ns }
    }

    fn has(&self, thread: u32, handle: Option<u64>) -> bool {
        handle.is_some_and(|handle| lock(&self.added).contains(&handle)) || self.process.has(thread)
    }

    pub fn is_active(&self, now: Duration) {
        self.active_ns.fetch_max(nanoseconds(now), Ordering::Relaxed);
    }

    /// For how long it has made no calls.
    pub fn idle(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_nanos(self.active_ns.load(Ordering::Relaxed)))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A group that was aborted because it made no calls. Its process does not know yet: what it goes on changing would be
/// half of a group.
pub(super) struct Lapsed {
    pub handle: u64,
    pub process: Arc<Process>,
    pub added: HashSet<u64>,
}

impl Lapsed {
    fn has(&self, thread: u32, handle: Option<u64>) -> bool {
        handle.is_some_and(|handle| self.added.contains(&handle)) || self.process.has(thread)
    }
}

/// See the head of the module above.
#[derive(Default)]
pub(super) enum State {
    #[default]
    None,
    Running(Box<Group>),
    Ending(Changes),
}

/// What server threads and the keeper share.
pub(super) struct Inner {
    pub vfs: Arc<dyn Groups>,
    pub state: RwLock<State>,
    /// Whether a group was undone, so that the kernel may take the end of a file to be elsewhere.
    pub ends_may_be_stale: AtomicBool,
    pub notifier: OnceLock<Notifier>,
    pub dropped: Dropped,
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

fn in_group(ctx: Context, group: &Group) -> Context {
    Context { group: Some(group.id), ..ctx }
}

impl Shared {
    pub fn new(vfs: Arc<dyn Groups>, timeout: Duration, clock: Clock) -> Shared {
        let (ends_may_be_stale, notifier, dropped) = (AtomicBool::new(false), OnceLock::new(), Dropped::default());
        let (state, lapsed, is_read_only) = (RwLock::default(), Mutex::default(), OnceLock::new());
        let inner = Inner { vfs, state, ends_may_be_stale, notifier, dropped, lapsed, timeout, clock, is_read_only };
        Shared { inner: Arc::new(inner), keeper: Mutex::default() }
    }

    pub fn mounted(&self, notifier: Notifier, is_read_only: Box<dyn Fn() -> bool + Send + Sync>) {
        let _ = self.inner.notifier.set(notifier);
        let _ = self.inner.is_read_only.set(is_read_only);
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.inner.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn look(&self, thread: u32, ctx: Context) -> Call<'_> {
        let state = self.state();
        let ctx = match &*state {
            State::Running(group) => {
                self.note_call(group, thread);
                in_group(ctx, group)
            }
            State::None | State::Ending(_) => ctx,
        };
        Call { ctx, members: None, state: Some(state) }
    }

    /// A call that is in no group may be of the process of one, and shows that it is at work.
    pub fn note_outside(&self, thread: u32) {
        if let State::Running(group) = &*self.state() {
            self.note_call(group, thread);
        }
    }

    /// Whose call it is costs a look into `/proc`: it is not asked for again where the group was active a moment ago.
    fn note_call(&self, group: &Group, thread: u32) {
        let now = (self.inner.clock)();
        if group.idle(now) >= self.inner.timeout / 16 && group.process.has(thread) {
            group.is_active(now);
        }
    }

    /// Whether calls are those of a group that was aborted meanwhile, without its process.
    fn check_lapsed(&self, thread: u32, handle: Option<u64>) -> Result<()> {
        match lock(&self.inner.lapsed).iter().any(|lapsed| lapsed.has(thread, handle)) {
            true => Err(Errno::CANCELED),
            false => Ok(()),
        }
    }

    pub fn change(&self, thread: u32, ctx: Context, touches: &Touches<'_>) -> Result<Call<'_>> {
        let state = self.state();
        let handle = touches.handle.map(|handle| handle.0);
        self.check_lapsed(thread, handle)?;
        let State::Running(group) = &*state else {
            return Ok(Call { ctx, members: None, state: Some(state) });
        };
        if !group.has(thread, handle) {
            let hidden = lock(&group.changes).hides(touches);
            return if hidden { Err(Errno::BUSY) } else { Ok(Call { ctx, members: None, state: Some(state) }) };
        }
        let ctx = in_group(ctx, group);
        group.is_active((self.inner.clock)());
        lock(&group.changes).note(touches);
        for (parent, name) in touches.names {
            // What has the name so far may lose it.
            if let Ok(found) = self.inner.vfs.lookup(&ctx, Ino(parent.0), name.as_bytes()) {
                lock(&group.changes).note_node(found.ino.0);
                self.inner.vfs.forget(found.ino, 1);
            }
        }
        Ok(Call { ctx, members: Some(self.inner.clock), state: Some(state) })
    }

    pub fn page_write(&self, ctx: Context, node: INodeNo) -> Option<Call<'_>> {
        let state = self.state();
        let ctx = match &*state {
            // What the group has changed anything of is its own, and not to be had outside of it.
            State::Running(group) if lock(&group.changes).takes_pages_of(node.0) => {
                group.is_active((self.inner.clock)());
                in_group(ctx, group)
            }
            // Invariant 2.
            State::Ending(changes) if changes.has_content(node.0) => return None,
            _ => ctx,
        };
        Some(Call { ctx, members: None, state: Some(state) })
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
            // Without the keeper no group began, and the kernel drops such pages when they are read by a call.
            let _ = self.tell(Command::Forget { node, pages });
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
            let _ = self.tell(Command::Forget { node, pages });
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
        let state = self.state();
        let mut lapsed = lock(&self.inner.lapsed);
        lapsed.retain(|lapsed| lapsed.handle != handle);
        lapsed.iter_mut().for_each(|lapsed| _ = lapsed.added.remove(&handle));
        drop(lapsed);
        if let State::Running(group) = &*state {
            lock(&group.added).remove(&handle);
            if group.handle == handle {
                // It began the group, and so it is there.
                let _ = self.tell(Command::Released { handle });
            }
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
        let state = self.state();
        let State::Running(group) = &*state else { return None };
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
    pub fn end(&self, asker: Asker, commits: bool, reply: ReplyIoctl) {
        if let Err(error) = self.check_end(asker) {
            return reply.error(errno(error));
        }
        if let Err((command, error)) = self.tell(Command::End { handle: asker.handle, commits, reply }) {
            command.refuse(error);
        }
    }

    fn check_end(&self, asker: Asker) -> Result<()> {
        let state = self.state();
        let lapsed = lock(&self.inner.lapsed);
        let of_lapsed = lapsed.iter().find(|lapsed| lapsed.handle == asker.handle).map(|lapsed| &lapsed.process);
        let process = match &*state {
            State::Running(group) if group.handle == asker.handle => &group.process,
            _ => of_lapsed.ok_or(Errno::INVAL)?,
        };
        if process.has(asker.thread) { Ok(()) } else { Err(Errno::PERM) }
    }

    pub fn add(&self, asker: Asker, node: INodeNo, open: &Handle) -> Result<i32> {
        let state = self.state();
        self.check_lapsed(asker.thread, Some(asker.handle))?;
        match &*state {
            State::Running(group) if group.process.has(asker.thread) => {
                // Invariant 5. Its pages are the group's when its content is, neither sooner nor later.
                let mut changes = lock(&group.changes);
                self.inner.vfs.add(group.id, open)?;
                group.is_active((self.inner.clock)());
                changes.note_content(node.0);
                lock(&group.added).insert(asker.handle);
                Ok(0)
            }
            State::Running(_) => Err(Errno::PERM),
            State::None | State::Ending(_) => Err(Errno::INVAL),
        }
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
