//! A mount that programs share: which group runs, and which calls belong to it.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use fuser::{INodeNo, Notifier, ReplyIoctl};
use wholly::vfs::{Context, Errno, GroupId, Handle, Ino, Result, Vfs};

use super::changes::{Changes, Touches};
use super::keeper::{Command, Keeper};
use super::process::Process;
use super::{Asker, Call};
use crate::convert::errno;

/// The group that runs.
pub(super) struct Group {
    pub id: GroupId,
    /// The open file by which it was begun.
    pub handle: u64,
    pub process: Arc<Process>,
    added: Mutex<HashSet<u64>>,
    pub changes: Mutex<Changes>,
}

impl Group {
    pub fn new(id: GroupId, handle: u64, process: Arc<Process>) -> Group {
        Group { id, handle, process, added: Mutex::default(), changes: Mutex::default() }
    }

    fn has(&self, thread: u32, handle: Option<u64>) -> bool {
        handle.is_some_and(|handle| lock(&self.added).contains(&handle)) || self.process.has(thread)
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
    pub vfs: Arc<dyn Vfs>,
    pub state: RwLock<State>,
    /// Whether a group was undone, so that the kernel may take the end of a file to be elsewhere.
    pub ends_may_be_stale: AtomicBool,
    pub notifier: OnceLock<Notifier>,
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
    pub fn new(vfs: Arc<dyn Vfs>) -> Shared {
        let (ends_may_be_stale, notifier) = (AtomicBool::new(false), OnceLock::new());
        let inner = Inner { vfs, state: RwLock::default(), ends_may_be_stale, notifier };
        Shared { inner: Arc::new(inner), keeper: Mutex::default() }
    }

    pub fn notify_by(&self, notifier: Notifier) {
        let _ = self.inner.notifier.set(notifier);
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.inner.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn look(&self, ctx: Context) -> Call<'_> {
        let state = self.state();
        let ctx = match &*state {
            State::Running(group) => in_group(ctx, group),
            State::None | State::Ending(_) => ctx,
        };
        Call { ctx, is_members: false, state: Some(state) }
    }

    pub fn change(&self, thread: u32, ctx: Context, touches: &Touches<'_>) -> Result<Call<'_>> {
        let state = self.state();
        let State::Running(group) = &*state else {
            return Ok(Call { ctx, is_members: false, state: Some(state) });
        };
        if !group.has(thread, touches.handle.map(|handle| handle.0)) {
            let hidden = lock(&group.changes).hides(touches);
            return if hidden { Err(Errno::BUSY) } else { Ok(Call { ctx, is_members: false, state: Some(state) }) };
        }
        let ctx = in_group(ctx, group);
        lock(&group.changes).note(touches);
        for (parent, name) in touches.names {
            // What has the name so far may lose it.
            if let Ok(found) = self.inner.vfs.lookup(&ctx, Ino(parent.0), name.as_bytes()) {
                lock(&group.changes).note_node(found.ino.0);
                self.inner.vfs.forget(found.ino, 1);
            }
        }
        Ok(Call { ctx, is_members: true, state: Some(state) })
    }

    pub fn page_write(&self, ctx: Context, node: INodeNo) -> Option<Call<'_>> {
        let state = self.state();
        let ctx = match &*state {
            // What the group has changed anything of is its own, and not to be had outside of it.
            State::Running(group) if lock(&group.changes).takes_pages_of(node.0) => in_group(ctx, group),
            // Invariant 2.
            State::Ending(changes) if changes.has_content(node.0) => return None,
            _ => ctx,
        };
        Some(Call { ctx, is_members: false, state: Some(state) })
    }

    /// Whether the kernel may write at another place than the end of a file where it means the end: it asks for a size
    /// again before it reads or tells it, but not before it writes at the end, and a group that was undone may have
    /// ended the file elsewhere.
    pub fn ends_may_be_stale(&self) -> bool {
        self.inner.ends_may_be_stale.load(Ordering::Acquire)
    }

    pub fn release(&self, handle: u64) {
        let state = self.state();
        if let State::Running(group) = &*state {
            lock(&group.added).remove(&handle);
            if group.handle == handle {
                // It began the group, and so it is there.
                let _ = self.tell(Command::Released { handle });
            }
        }
    }

    pub fn begin(&self, asker: Asker, reply: ReplyIoctl) {
        let process = match Process::of(asker.thread) {
            Ok(process) => Arc::new(process),
            Err(error) => return reply.error(errno(error)),
        };
        if let Err((command, error)) = self.tell(Command::Begin { process, handle: asker.handle, reply }) {
            command.refuse(error);
        }
    }

    /// The caller's end of its group: it commits it, or undoes it.
    pub fn end(&self, asker: Asker, commits: bool, reply: ReplyIoctl) {
        let runs = match &*self.state() {
            State::Running(group) if group.handle == asker.handle => match group.process.has(asker.thread) {
                true => Ok(()),
                false => Err(Errno::PERM),
            },
            _ => Err(Errno::INVAL),
        };
        if let Err(error) = runs {
            return reply.error(errno(error));
        }
        if let Err((command, error)) = self.tell(Command::End { handle: asker.handle, commits, reply }) {
            command.refuse(error);
        }
    }

    pub fn add(&self, asker: Asker, node: INodeNo) -> Result<i32> {
        match &*self.state() {
            State::Running(group) if group.process.has(asker.thread) => {
                // Invariant 5. Its pages are the group's when its content is, neither sooner nor later.
                let mut changes = lock(&group.changes);
                self.inner.vfs.add_to_group(group.id, Handle(asker.handle))?;
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
