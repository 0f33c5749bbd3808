//! The groups of a mount: the one that runs, and those that end. See the head of the module above.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wholly_vfs::{Context, GroupId};

use super::changes::Changes;
use super::latch::{Calls, Latch};
use super::process::Process;
use super::shared::lock;

/// A group of a program.
pub(super) struct Group {
    pub id: GroupId,
    /// The open file by which it was begun.
    pub handle: u64,
    pub process: Arc<Process>,
    /// Calls in it may still add some when it lapses.
    pub added: Arc<Mutex<HashSet<u64>>>,
    pub changes: Mutex<Changes>,
    /// Files that are being added: page writes to them wait. By the number of the inode.
    pub adding: Mutex<Vec<(u64, Arc<Latch>)>>,
    /// Calls in it. One enters with the state locked, while the group runs.
    pub calls: Calls,
    /// Those of them that its process or an added file makes, as far as that is known.
    pub own: Calls,
    /// Whether a group has failed to commit that this one may have seen.
    pub is_doomed: AtomicBool,
    /// The user who began it.
    pub user: u32,
    pub began: Duration,
    /// When a call of it was last seen, in nanoseconds of the clock.
    active_ns: AtomicU64,
}

impl Group {
    pub fn new(id: GroupId, handle: u64, process: Arc<Process>, user: u32, now: Duration) -> Group {
        Group {
            id,
            handle,
            process,
            added: Arc::default(),
            changes: Mutex::default(),
            adding: Mutex::default(),
            calls: Calls::default(),
            own: Calls::default(),
            is_doomed: AtomicBool::new(false),
            user,
            began: now,
            active_ns: AtomicU64::new(nanoseconds(now)),
        }
    }

    pub fn has(&self, thread: u32, handle: Option<u64>) -> bool {
        handle.is_some_and(|handle| lock(&self.added).contains(&handle)) || self.process.has(thread)
    }

    /// What opens once a file was added, while that is done.
    pub fn adds(&self, node: u64) -> Option<Arc<Latch>> {
        lock(&self.adding).iter().find(|(added, _)| *added == node).map(|(_, added)| added.clone())
    }

    pub fn is_active(&self, now: Duration) {
        self.active_ns.fetch_max(nanoseconds(now), Ordering::Relaxed);
    }

    /// For how long it has made no calls.
    pub fn idle(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_nanos(self.active_ns.load(Ordering::Relaxed)))
    }

    pub fn context(&self, ctx: Context) -> Context {
        Context { group: Some(self.id), ..ctx }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A call in a group, which is not committed or aborted before the call returns (invariant 1).
pub(super) struct Member {
    group: Arc<Group>,
    is_own: bool,
}

impl Member {
    /// The caller has the state locked, and the group runs.
    pub fn new(group: &Arc<Group>) -> Member {
        group.calls.enter();
        Member { group: group.clone(), is_own: false }
    }

    /// The group does not lapse before it returns.
    pub fn is_own(&mut self) {
        if !std::mem::replace(&mut self.is_own, true) {
            self.group.own.enter();
        }
    }

    pub fn group(&self) -> &Group {
        &self.group
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.is_own {
            self.group.own.leave();
        }
        self.group.calls.leave();
    }
}

/// A group that is being committed or aborted.
pub(super) struct Ending {
    pub group: Arc<Group>,
    /// Opens once others see what has become of it.
    pub settled: Latch,
}

impl Ending {
    /// Whether the group has changed anything of an inode.
    pub fn has(&self, node: u64) -> bool {
        lock(&self.group.changes).has(node)
    }
}

/// A group that was aborted because it made no calls. Its process does not know yet: what it goes on changing would be
/// half of a group.
pub(super) struct Lapsed {
    pub handle: u64,
    pub process: Arc<Process>,
    pub added: Arc<Mutex<HashSet<u64>>>,
}

impl Lapsed {
    pub fn has(&self, thread: u32, handle: Option<u64>) -> bool {
        handle.is_some_and(|handle| lock(&self.added).contains(&handle)) || self.process.has(thread)
    }
}

/// See the head of the module above.
#[derive(Default)]
pub(super) struct State {
    pub running: Option<Arc<Group>>,
    /// In the order in which their ends began.
    pub ending: Vec<Arc<Ending>>,
    /// Groups that were undone. The kernel may still have something of them in its caches.
    pub undone: Vec<Arc<Ending>>,
}

impl State {
    /// The group that runs begins to end.
    pub fn end(&mut self, group: Arc<Group>) -> Arc<Ending> {
        let ending = Arc::new(Ending { group, settled: Latch::default() });
        self.running = None;
        self.ending.push(ending.clone());
        ending
    }

    /// A group has ended: its changes are everybody's.
    pub fn is_committed(&mut self, ended: &Arc<Ending>, now: Duration) {
        self.ending.retain(|ending| !Arc::ptr_eq(ending, ended));
        // Its calls may have waited for that.
        self.running.iter().for_each(|group| group.is_active(now));
    }

    /// A group was undone.
    pub fn is_undone(&mut self, ended: &Arc<Ending>, now: Duration) {
        self.is_committed(ended, now);
        self.undone.push(ended.clone());
    }

    /// The kernel has nothing of it any more.
    pub fn is_forgotten(&mut self, ended: &Arc<Ending>) {
        self.undone.retain(|undone| !Arc::ptr_eq(undone, ended));
    }
}
