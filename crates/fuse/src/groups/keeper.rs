//! The thread that begins and ends groups, one thing after the other. It waits for what it is told, for the end of the
//! process whose group runs, and until that group has made no calls for too long.
//!
//! It is none of those that answer the kernel's requests, since the kernel, told to forget something, may wait for
//! their answers.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use fuser::{INodeNo, ReplyIoctl};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use wholly_vfs::{Errno, Result};

use super::process::Process;
use super::shared::{Inner, lock, or_panic};
use super::state::{Ending, Group};
use crate::convert::errno;

/// Groups that were aborted for want of calls, of processes that have not heard of it yet: each has a descriptor here.
const LAPSED: usize = 256;

/// What the keeper is to do.
pub(super) enum Command {
    Begin {
        process: Arc<Process>,
        user: u32,
        handle: u64,
        reply: ReplyIoctl,
    },
    /// The group's own process undoes it.
    Abort {
        handle: u64,
        reply: ReplyIoctl,
    },
    /// A commit has failed: the kernel is to forget the group, and its process to hear why.
    Undone {
        undone: Arc<Ending>,
        error: Errno,
        reply: ReplyIoctl,
    },
    /// A commit of no group that runs.
    Late {
        handle: u64,
        reply: ReplyIoctl,
    },
    Released {
        handle: u64,
    },
    /// A commit has succeeded, and its process is to hear that once the kernel has forgotten what it was to forget.
    Committed {
        reply: ReplyIoctl,
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
            Command::Begin { reply, .. }
            | Command::Abort { reply, .. }
            | Command::Undone { reply, .. }
            | Command::Late { reply, .. } => reply.error(errno(error)),
            Command::Committed { reply } => reply.ioctl(0, &[]),
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
                    Command::Abort { handle, reply } => answer(reply, self.abort(handle)),
                    Command::Undone { undone, error, reply } => {
                        self.have_forgotten(&undone);
                        reply.error(errno(error));
                    }
                    Command::Late { handle, reply } => {
                        reply.error(errno(if self.has_heard(handle) { Errno::CANCELED } else { Errno::INVAL }));
                    }
                    Command::Released { handle } => _ = self.undo(|group| group.handle == handle, false),
                    Command::Committed { reply } => reply.ioctl(0, &[]),
                    Command::Forget { node, pages } => {
                        self.forget_range(node, &pages);
                        self.to_forget.fetch_sub(1, Ordering::AcqRel);
                    }
                    Command::Stop => {
                        // The kernel is gone.
                        if let Ok((ending, _)) = self.take(|_| true, false) {
                            let _ = self.vfs.abort(ending.group.id);
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
        let running = self.state().running.clone();
        running.map(|group| look(&group))
    }

    /// Undoes the group that runs if the process that began it has ended, whoever has its open file still.
    fn end_with_process(&self) {
        let _ = self.undo(|group| group.process.has_ended(), false);
    }

    /// Aborts the group that runs if it has made no calls for too long, and none of them runs, or may wait for the end
    /// of another group.
    fn end_idle(&self) {
        // Of those none is added meanwhile: the group that runs is the last.
        let others_end = !self.state().ending.is_empty();
        let lapses = |group: &Group| {
            let now = (self.clock)();
            let is_idle = group.idle(now) >= self.timeout;
            let is_busy = group.own.run() || others_end;
            if is_idle && is_busy {
                group.is_active(now);
            }
            is_idle && !is_busy
        };
        let _ = self.undo(lapses, true);
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
        if self.running(|_| ()).is_some() {
            return Err(Errno::BUSY);
        }
        // The keeper alone begins groups.
        loop {
            // Invariant 8: of groups whose commits have failed, and whose commands are still to come.
            let undone = self.state().undone.clone();
            undone.iter().for_each(|undone| self.have_forgotten(undone));
            let id = self.vfs.begin()?;
            let mut state = self.change_state();
            if state.undone.is_empty() {
                state.running = Some(Arc::new(Group::new(id, handle, process, user, (self.clock)())));
                return Ok(());
            }
            drop(state);
            // A commit has failed meanwhile. The new group may have seen its changes: it is given up for another one.
            self.vfs.abort(id)?;
        }
    }

    /// Aborts the group of an open file, or takes note that its process knows of an earlier end.
    fn abort(&self, handle: u64) -> Result<()> {
        match self.undo(|group| group.handle == handle, false) {
            Err(Errno::INVAL) if self.has_heard(handle) => Ok(()),
            aborted => aborted,
        }
    }

    /// The process of a lapsed group asks for its end, and so knows. Whether there is such a group.
    fn has_heard(&self, handle: u64) -> bool {
        let mut lapsed = lock(&self.lapsed);
        let at = lapsed.iter().position(|lapsed| lapsed.handle == handle);
        at.map(|at| lapsed.swap_remove(at)).is_some()
    }

    /// Aborts the group that runs if it is the one that is meant.
    fn undo(&self, is_meant: impl FnOnce(&Group) -> bool, lapses: bool) -> Result<()> {
        let (ending, _) = self.take(is_meant, lapses)?;
        ending.group.calls.drain();
        let aborted = or_panic(|| self.vfs.abort(ending.group.id).map_err(Errno::from));
        self.undone(&ending, false);
        self.have_forgotten(&ending);
        aborted
    }

    /// Has the kernel forget all that it may have of a group that was undone, if that is not done yet. An error says
    /// that the kernel has no such thing, or that the mount is gone.
    fn have_forgotten(&self, undone: &Arc<Ending>) {
        if !self.state().undone.iter().any(|other| Arc::ptr_eq(other, undone)) {
            return;
        }
        let changes = lock(&undone.group.changes);
        let nodes: Vec<_> = changes.nodes().map(INodeNo).collect();
        let names: Vec<_> = changes.names().map(|(parent, name)| (parent, name.to_owned())).collect();
        // Invariant 3.
        drop(changes);
        if let Some(notifier) = self.notifier.get() {
            for (parent, name) in names {
                let _ = notifier.inval_entry(parent, &name);
            }
        }
        nodes.iter().for_each(|node| self.forget_pages(*node, 0, 0));
        // No page has anything of the group any more. One that was read anew, and whose write was dropped, nobody is to
        // see.
        self.change_state().is_forgotten(undone);
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
