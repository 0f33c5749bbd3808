//! The thread that begins and ends groups, one thing after the other. It waits for what it is told, for the end of the
//! process whose group runs, and until that group has made no calls for too long.
//!
//! It is none of those that answer the kernel's requests, since the kernel, told to forget something, may wait for
//! their answers.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use fuser::{INodeNo, ReplyIoctl};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use wholly_vfs::{Errno, Result};

use super::changes::Changes;
use super::process::Process;
use super::shared::{Group, Inner, Lapsed, State, lock};
use crate::convert::errno;

/// Groups that were aborted for want of calls, of processes that have not heard of it yet: each has a descriptor here.
const LAPSED: usize = 256;

/// How a group ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
    /// Aborted for want of calls: its process is told at its next one.
    Lapse,
}

/// What the keeper is to do.
pub(super) enum Command {
    Begin {
        process: Arc<Process>,
        user: u32,
        handle: u64,
        reply: ReplyIoctl,
    },
    End {
        handle: u64,
        commits: bool,
        reply: ReplyIoctl,
    },
    Released {
        handle: u64,
    },
    /// The kernel has bytes in these pages of a file that the file does not have.
    Forget {
        node: INodeNo,
        pages: Range<u64>,
    },
    Stop,
}

impl Command {
    /// It is not done.
    pub fn refuse(self, error: Errno) {
        match self {
            Command::Begin { reply, .. } | Command::End { reply, .. } => reply.error(errno(error)),
            Command::Released { .. } | Command::Forget { .. } | Command::Stop => {}
        }
    }
}

/// See the head of the module. Dropped, it undoes the group that runs.
pub(super) struct Keeper {
    commands: Sender<Command>,
    /// Readable once there are commands.
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub fn start(inner: Arc<Inner>) -> Result<Keeper> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (commands, told) = channel();
        let its = wake.clone();
        let thread = std::thread::Builder::new().name("wholly-groups".into());
        let thread = thread.spawn(move || inner.keep(&told, &its)).map_err(|_| Errno::AGAIN)?;
        Ok(Keeper { commands, wake, thread: Some(thread) })
    }

    pub fn tell(&self, command: Command) {
        // It hears until it is dropped.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(reply: ReplyIoctl, result: Result<()>) {
    match result {
        Ok(()) => reply.ioctl(0, &[]),
        Err(error) => reply.error(errno(error)),
    }
}

impl Inner {
    fn keep(&self, told: &Receiver<Command>, wake: &OwnedFd) {
        loop {
            let process = self.running(|group| group.process.clone());
            let mut awaited = vec![PollFd::new(wake, PollFlags::IN)];
            awaited.extend(process.iter().map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)));
            let left = self.running(|group| self.timeout.saturating_sub(group.idle((self.clock)())));
            // What is too long for the kernel is for ever.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let _ = poll(&mut awaited, left.as_ref());
            if !awaited[0].revents().is_empty() {
                let _ = rustix::io::read(wake, &mut [0u8; 8]);
            }
            // What its process has told before it ended comes first.
            for command in told.try_iter() {
                match command {
                    Command::Begin { process, user, handle, reply } => {
                        answer(reply, self.begin(process, user, handle));
                    }
                    Command::End { handle, commits, reply } => answer(reply, self.end(handle, commits)),
                    Command::Released { handle } => _ = self.end(handle, false),
                    Command::Forget { node, pages } => self.forget_range(node, &pages),
                    Command::Stop => {
                        if let Some(group) = self.running(|group| group.id) {
                            let _ = self.vfs.abort(group);
                        }
                        return;
                    }
                }
            }
            self.end_with_process();
            self.end_idle();
        }
    }

    fn running<T>(&self, look: impl FnOnce(&Group) -> T) -> Option<T> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Running(group) => Some(look(group)),
            State::None | State::Ending(_) => None,
        }
    }

    /// Undoes the group that runs if the process that began it has ended, whoever has its open file still.
    fn end_with_process(&self) {
        if let Some(handle) = self.running(|group| group.process.has_ended().then_some(group.handle)).flatten() {
            let _ = self.end(handle, false);
        }
    }

    /// Aborts the group that runs if it has made no calls for too long.
    fn end_idle(&self) {
        let _ = self.end_if(|group| group.idle((self.clock)()) >= self.timeout, End::Lapse);
    }

    fn begin(&self, process: Arc<Process>, user: u32, handle: u64) -> Result<()> {
        self.end_with_process();
        self.end_idle();
        let mut lapsed = lock(&self.lapsed);
        lapsed.retain(|lapsed| !lapsed.process.has_ended());
        if lapsed.iter().any(|lapsed| lapsed.process.number() == process.number()) {
            return Err(Errno::CANCELED);
        }
        if lapsed.len() >= LAPSED {
            return Err(Errno::BUSY);
        }
        drop(lapsed);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, State::None) {
            return Err(Errno::BUSY);
        }
        let group = self.vfs.begin()?;
        *state = State::Running(Box::new(Group::new(group, handle, process, user, (self.clock)())));
        Ok(())
    }

    /// Ends the group of an open file, or takes note that its process knows of an earlier end.
    fn end(&self, handle: u64, commits: bool) -> Result<()> {
        let how = if commits { End::Commit } else { End::Abort };
        let ended = self.end_if(|group| group.handle == handle, how);
        if ended != Err(Errno::INVAL) {
            return ended;
        }
        let mut lapsed = lock(&self.lapsed);
        match lapsed.iter().position(|lapsed| lapsed.handle == handle) {
            None => Err(Errno::INVAL),
            Some(at) => {
                lapsed.swap_remove(at);
                if commits { Err(Errno::CANCELED) } else { Ok(()) }
            }
        }
    }

    /// Ends the group that runs if it is the one that is meant. What was committed is as the kernel has it.
    fn end_if(&self, is_meant: impl FnOnce(&Group) -> bool, how: End) -> Result<()> {
        // No call is being made from here on.
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let group = match std::mem::take(&mut *state) {
            State::Running(group) if is_meant(&group) => group,
            other => {
                *state = other;
                return Err(Errno::INVAL);
            }
        };
        let Group { id, changes, handle, process, added, .. } = *group;
        let changes = changes.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ended = match how {
            End::Commit => self.vfs.commit(id),
            End::Abort | End::Lapse => self.vfs.abort(id),
        };
        let ended = ended.map_err(Errno::from);
        if how == End::Commit && ended.is_ok() {
            return ended;
        }
        if how == End::Lapse {
            // Invariant 6.
            let added = added.into_inner().unwrap_or_else(PoisonError::into_inner);
            lock(&self.lapsed).push(Lapsed { handle, process, added });
        }
        self.ends_may_be_stale.store(true, Ordering::Release);
        *state = State::Ending(changes);
        drop(state);
        self.have_forgotten();
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State::None;
        ended
    }

    /// Has the kernel forget all that it may have of the group that was undone. An error says that the kernel has no
    /// such thing, or that the mount is gone.
    fn have_forgotten(&self) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let (State::Ending(changes), Some(notifier)) = (&*state, self.notifier.get()) else { return };
        let nodes: Vec<_> = changes.nodes().map(INodeNo).collect();
        let names: Vec<_> = changes.names().map(|(parent, name)| (parent, name.to_owned())).collect();
        // Invariant 3.
        drop(state);
        for (parent, name) in names {
            let _ = notifier.inval_entry(parent, &name);
        }
        nodes.iter().for_each(|node| self.forget_pages(*node, 0, 0));
        // No page has anything of the group any more. One that was read anew, and whose write was dropped, nobody is to
        // see.
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State::Ending(Changes::default());
        nodes.iter().for_each(|node| self.forget_pages(*node, 0, 0));
    }

    pub fn forget_range(&self, node: INodeNo, pages: &Range<u64>) {
        if !pages.is_empty() {
            self.forget_pages(node, pages.start as i64, (pages.end - pages.start) as i64);
        }
    }

    /// Has the kernel forget a file's attributes, and the pages of a range: 0 and 0 are all of them.
    fn forget_pages(&self, node: INodeNo, offset: i64, length: i64) {
        let Some(notifier) = self.notifier.get() else { return };
        self.dropped.note(node.0);
        if notifier.inval_inode(node, offset, length).is_err() {
            self.dropped.forget(node.0);
        }
    }
}
