//! Groups that programs begin and end by `ioctl`, on any descriptor of the mount (the numbers: `wholly_host::mount`).
//!
//! # Terms
//!
//! - *member*: the process that began the group, with all its threads. *Added*: an open file whose calls belong to the
//!   group, whoever makes them.
//! - *look*, *change*: a call that changes nothing, and one that does.
//! - *page write*: what the kernel writes of mapped memory, on nobody's behalf.
//! - *keeper*: the thread that begins and undoes groups.
//! - *lapsed*: aborted because the group has made no calls for the mount's timeout; its process does not know yet.
//!
//! # Which calls belong to the group
//!
//! | | |
//! |---|---|
//! | a look, of anybody | sees what the group has done: the kernel keeps names, attributes and pages once for all programs. A look at something else is made without the group, whose calls the file system may make one at a time |
//! | a change by the member, or by an added file | belongs to it |
//! | a change by others | does not; what the group has changed it gets `EBUSY` for, from the store or, where the store does not show it that, from here |
//! | a page write | belongs to it where the file's content is the group's, else not |
//! | `fsync`, `close` | do not: they make durable what is outside of it |
//!
//! # States
//!
//! One group *runs* at a time. Any number *end*: each is being committed or aborted, in the order in which that began.
//!
//! ```text
//!  keeper: BEGIN ──► running ── COMMIT, by the thread that serves it ──► ending ── done ──► gone
//!                       │                                                  │
//!                       │                                                  └── it failed ──► undone ── keeper ──► gone
//!                       └── keeper: ABORT, the last close, the member's end,
//!                                   no calls for too long ──► ending ── keeper ──► undone ── keeper ──► gone
//! ```
//!
//! | | ending | undone |
//! |---|---|---|
//! | a look at what the group has changed | waits until the group is undone or gone | sees what there was before |
//! | a change that meets one of the group | waits as well | is made |
//! | a page write to its files | waits as well | is dropped |
//! | all other calls | are made | are made |
//! | `COMMIT`, `ABORT` by its open file | `EINVAL` at once: its end has begun. The keeper says so to who asked while the group ran, after what it is doing: the other end, with its wait for calls | the same |
//! | `BEGIN` | succeeds during a commit, waits for an abort | waits |
//!
//! `COMMIT_ATOMIC` is a `COMMIT` that does not wait for the medium once the group is committed.
//!
//! A group that does not run has no timeout, and neither the last close nor the end of its process does anything to
//! it: it ends once. (A process that is killed waits in the kernel for the answer to its `COMMIT`.) The kernel freezes
//! no file system of this kind (`FIFREEZE`: `EOPNOTSUPP`). After a `fork` of the serving process, the threads that end
//! groups are the parent's alone.
//!
//! # Invariants
//!
//! 1. Which group a call belongs to is decided once, with the state locked. No lock of a mount is held while the file
//!    system below works, and it may wait for its medium. A call in a group is counted ([`Calls`](latch::Calls)) until
//!    it is answered, since the kernel keeps the answer: a group leaves *running* first, so that no call enters it,
//!    then its calls are waited for, and only then it is committed or aborted.
//! 2. The kernel may keep something of a group that was undone only while that is in `undone`. Page writes to its files
//!    are dropped then: those pages may have the group's bytes.
//! 3. The kernel is told to forget by the keeper alone, which holds nothing and answers nobody meanwhile: the kernel
//!    may wait for answers itself: to forget a name it waits for whoever changes names in that directory, and that call
//!    may wait for the end of another group, but never for the keeper (7). Of a group that was committed it is told
//!    nothing: what it has is right. So a call that sees the time before the group, and whose answer the kernel keeps,
//!    must not begin once the kernel knows of the change and end after the commit: looks wait while the group ends.
//!    What a name stands for is known only once it was looked up: then the look waits, and is made again
//!    ([`Call::is_to_be_repeated`]).
//! 4. `ABORT`, and a `COMMIT` that fails, are answered when the kernel has forgotten the group; a `COMMIT` that
//!    succeeds, when it has forgotten what writes that were refused before have left.
//! 5. Of what a group has touched nothing is missing in its [`Changes`](changes::Changes): each is noted before the
//!    call is made. What a call in the group still notes after the group has left *running* overlaps with it, so that
//!    the kernel does not rely on a look that overlaps with it too.
//! 6. A member of a lapsed group changes nothing (`ECANCELED`) until it has asked for the end of that group, or its
//!    open file was closed for the last time: else the second half of what it wanted to be one group would stay. A
//!    group lapses in the same step in which it leaves *running*. None of its own calls runs then, or may be waiting
//!    for the end of another group; looks of others at what it has changed do not keep it.
//! 7. Who waits for an ending group is counted in no group and holds nothing: an end waits for calls that are counted,
//!    for ends that began before, and for the file system, and never for the kernel or for the keeper.
//! 8. A group may have seen what one that ends has done. So it is committed after that, and if that fails, it fails too
//!    (`EAGAIN`). None begins while the kernel may keep something of an undone one.
//! 9. The end of the mount comes after the end of all calls, `COMMIT` included: then the keeper aborts what runs.
//!
//! | file | idea |
//! |---|---|
//! | `shared.rs` | a mount that programs share: to whom a call belongs, and commits |
//! | `state.rs` | the group that runs, and those that end |
//! | `caller.rs` | who may begin a group |
//! | `changes.rs` | what a group has touched |
//! | `dropped.rs` | files of which pages were dropped while a write may have been under way |
//! | `keeper.rs` | the thread that begins and undoes groups |
//! | `latch.rs` | what calls wait for |
//! | `process.rs` | which process makes a request |
//! | `view.rs` | a mount all of which is one group |
//! | `joined.rs` | groups that join such a one |

mod caller;
mod changes;
mod dropped;
mod joined;
mod keeper;
mod latch;
mod process;
mod shared;
mod state;
mod view;

use std::sync::Arc;

use fuser::{FileHandle, INodeNo, Notifier, ReplyIoctl, ReplyWrite, Request};
use wholly_host::mount::{ABORT, ADD, BEGIN, COMMIT, COMMIT_ATOMIC, HOLDER, Holder, PENDING, Served, WHAT};
use wholly_vfs::{Attr, Committed, Context, Errno, Groups, Handle, Result};

use crate::convert::errno;
use crate::options::{Clock, MountOptions};
pub(crate) use changes::{Look, Touches};
pub use joined::{Asker, Doom, Joined};
use shared::{Shared, lock};
use state::{Ending, Group, Member};
use view::View;

/// To which groups the calls of a mount belong.
pub(crate) enum Belonging {
    Shared(Shared),
    View(View),
}

/// A call, until it is answered (invariant 1).
pub(crate) struct Call {
    pub ctx: Context,
    /// Of a change of the group that runs: the clock that tells when it was made.
    clock: Option<Clock>,
    /// In which group it is.
    member: Option<Member>,
    /// Of a look: the group that runs, if it has changed nothing of what the look is known to be about.
    beside: Option<Arc<Group>>,
    /// Groups that were ending when it began.
    pending: Vec<Arc<Ending>>,
}

impl Call {
    /// One in no group of `ioctl`'s.
    fn outside(ctx: Context) -> Call {
        Call { ctx, clock: None, member: None, beside: None, pending: Vec::new() }
    }

    /// The call has made an inode.
    pub fn made(&self, made: &Attr) {
        if let (Some(_), Some(member)) = (self.clock, &self.member) {
            lock(&member.group().changes).note_born(made.ino.0);
        }
    }

    /// Whether a look has found an inode that a group has changed, without that group: what it has found is not to be
    /// used, and it is to be made again ([`Belonging::look`]).
    pub fn is_to_be_repeated(&self, found: u64) -> bool {
        self.beside.as_ref().is_some_and(|group| lock(&group.changes).has(found))
            || self.pending.iter().any(|ending| ending.has(found))
    }

    /// The same of a change, which waits until it is known what has become of the group, and is in no group any more
    /// (invariant 7).
    fn waits_for(&mut self, found: u64) -> bool {
        let Some(ending) = self.pending.iter().find(|ending| ending.has(found)) else { return false };
        self.member = None;
        ending.settled.wait();
        true
    }
}

impl Drop for Call {
    /// A call that takes long is one until it has ended.
    fn drop(&mut self) {
        if let (Some(clock), Some(member)) = (self.clock, &self.member) {
            member.group().is_active(clock());
        }
    }
}

impl Belonging {
    pub fn new(vfs: &Arc<dyn Groups>, options: &MountOptions) -> Belonging {
        match options.group {
            Some(group) => Belonging::View(View::new(group)),
            None => Belonging::Shared(Shared::new(vfs.clone(), options.group_timeout, options.clock)),
        }
    }

    /// It is mounted: by what the kernel is told to forget, and whether nothing can be changed there at a moment.
    pub fn mounted(&self, notifier: Notifier, is_read_only: Box<dyn Fn() -> bool + Send + Sync>) {
        if let Belonging::Shared(shared) = self {
            shared.mounted(notifier, is_read_only);
        }
    }

    /// Why what the mount shows is not to be committed, where it is a view.
    pub fn doom(&self) -> Doom {
        match self {
            Belonging::View(view) => view.joined.doom(),
            Belonging::Shared(_) => Doom::default(),
        }
    }

    /// A call that is in no group of `ioctl`'s.
    pub fn outside(&self, req: &Request, ctx: Context) -> Call {
        match self {
            Belonging::View(view) => view.call(ctx),
            Belonging::Shared(shared) => {
                shared.note_outside(req.pid());
                Call::outside(ctx)
            }
        }
    }

    /// A call that the kernel makes some time after a process has closed a file: it does not show that it is at work.
    pub fn late(&self, ctx: Context) -> Call {
        match self {
            Belonging::View(view) => view.call(ctx),
            Belonging::Shared(_) => Call::outside(ctx),
        }
    }

    /// A call that changes nothing, and the inode that it has found before, if it is made again.
    pub fn look(&self, req: &Request, ctx: Context, look: Look<'_>, found: Option<u64>) -> Call {
        match self {
            Belonging::View(view) => view.call(ctx),
            Belonging::Shared(shared) => shared.look(req.pid(), ctx, look, found),
        }
    }

    /// A call that changes what it `touches`.
    ///
    /// # Errors
    /// `EBUSY` where that is a group's of which the call is not.
    pub fn change(&self, req: &Request, ctx: Context, touches: &Touches<'_>) -> Result<Call> {
        match self {
            Belonging::View(view) => Ok(view.call(ctx)),
            Belonging::Shared(shared) => shared.change(req.pid(), &ctx, touches),
        }
    }

    /// A page write; `None` where it is to be dropped.
    pub fn page_write(&self, ctx: Context, node: INodeNo) -> Option<Call> {
        match self {
            Belonging::View(view) => Some(view.call(ctx)),
            Belonging::Shared(shared) => shared.page_write(ctx, node),
        }
    }

    /// See [`Shared::ends_may_be_stale`].
    pub fn ends_may_be_stale(&self) -> bool {
        match self {
            Belonging::View(_) => false,
            Belonging::Shared(shared) => shared.ends_may_be_stale(),
        }
    }

    /// A read is made.
    pub fn note_read(&self, node: INodeNo) {
        if let Belonging::Shared(shared) = self {
            shared.note_read(node);
        }
    }

    /// See [`Shared::note_write`]. A view has no other groups in the way of its writes.
    pub fn note_write(&self, node: INodeNo, offset: u64, length: usize, written: usize) {
        if let Belonging::Shared(shared) = self {
            shared.note_write(node, offset, length, written);
        }
    }

    /// See [`Shared::appended`].
    pub fn appended(&self, node: INodeNo, offset: u64, length: usize, to: (u64, usize), reply: ReplyWrite) {
        match self {
            Belonging::View(_) => reply.written(to.1 as u32),
            Belonging::Shared(shared) => shared.appended(node, offset, length, to, reply),
        }
    }

    /// The kernel forgets an inode.
    pub fn forget(&self, node: INodeNo) {
        if let Belonging::Shared(shared) = self {
            shared.forget(node);
        }
    }

    /// The last close of an open file.
    pub fn release(&self, handle: FileHandle) {
        match self {
            Belonging::View(view) => view.joined.release(handle.0),
            Belonging::Shared(shared) => shared.release(handle.0),
        }
    }

    /// Which process has the mount's only group. A view has none that others would have to wait for.
    fn holder(&self) -> Option<Holder> {
        match self {
            Belonging::View(_) => None,
            Belonging::Shared(shared) => shared.holder(),
        }
    }

    /// A request of `ioctl`.
    pub fn request(
        &self,
        req: &Request,
        node: INodeNo,
        (handle, open): (FileHandle, Result<Handle>),
        what: u32,
        reply: ReplyIoctl,
    ) {
        let asker = Asker { thread: req.pid(), handle: handle.0 };
        if let Belonging::Shared(shared) = self {
            shared.note_outside(asker.thread);
        }
        let answer = match (what, self) {
            (HOLDER, _) => return reply.ioctl(0, &Holder::to_bytes(self.holder().as_ref())),
            (PENDING, Belonging::Shared(shared)) => match shared.pending() {
                Ok(bytes) => return reply.ioctl(0, &bytes),
                Err(error) => Err(error),
            },
            (WHAT, Belonging::Shared(_)) => Ok(Served::Mount as i32),
            (WHAT, Belonging::View(_)) => Ok(Served::View as i32),
            (BEGIN, Belonging::View(view)) => view.joined.begin(asker),
            (ADD, Belonging::View(view)) => view.joined.add(asker),
            (COMMIT | COMMIT_ATOMIC, Belonging::View(view)) => view.joined.commit(asker),
            (ABORT, Belonging::View(view)) => view.joined.abort(asker),
            (BEGIN, Belonging::Shared(shared)) => return shared.begin(asker, (req.uid(), req.gid()), reply),
            (ADD, Belonging::Shared(shared)) => open.and_then(|open| shared.add(asker, node, &open)),
            (COMMIT, Belonging::Shared(shared)) => return shared.end(asker, Some(Committed::Durable), reply),
            (COMMIT_ATOMIC, Belonging::Shared(shared)) => {
                return shared.end(asker, Some(Committed::Ordered), reply);
            }
            (ABORT, Belonging::Shared(shared)) => return shared.end(asker, None, reply),
            _ => Err(Errno::NOTTY),
        };
        match answer {
            Ok(value) => reply.ioctl(value, &[]),
            Err(error) => reply.error(errno(error)),
        }
    }
}
