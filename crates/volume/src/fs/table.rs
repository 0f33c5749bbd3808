//! Inodes in memory: those that somebody refers to, and some that nobody does, up to a number.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use epochs::Mark;
use sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, RwLock};
use wholly_error::Result;
use wholly_vfs::{Context, Errno, GroupId};

use super::Core;
use super::explicit::{Claims, Twin};
use super::known::{Leaves, Pieces};
use super::storage::Record;
use crate::engine::InoGen;

const SHARDS: u64 = 64;

/// By numbers that we give out: nobody can choose them so that they collide.
pub type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// One multiplication.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = crate::format::mix(number, 0);
    }
}
/// What an inode takes in memory, about.
pub const INODE_BYTES: usize = 512;

/// What locks protect of an inode.
#[derive(Debug, Default)]
pub struct State {
    pub record: Record,
    /// Of a directory: how many directories are in it, once they were counted.
    pub subdirs: Option<u64>,
    /// Of a file without a name: whether it may get one.
    pub nameable: bool,
    /// Of a file: what is known of its map.
    pub pieces: Pieces,
    /// What running groups keep others from.
    pub claims: Option<Box<Claims>>,
}

/// One inode.
pub struct Inode {
    pub id: InoGen,
    /// The type bits of the mode.
    pub kind: u32,
    pub state: RwLock<State>,
    /// Of a directory: the depth at which the last leaf was found.
    pub trie_depth: AtomicU32,
    /// Of a directory: what is known of its leaves.
    pub leaves: Leaves,
    /// References. Changed under the lock of the shard where it is or becomes 0.
    pub(super) refs: AtomicU64,
    /// How often it had no references.
    pub(super) idled: AtomicU32,
    /// Whether a group that has made it has not committed: the storage version has nothing of it.
    pub unborn: AtomicBool,
    /// Of the inode as an explicit group sees it.
    pub twin: Option<Twin>,
    /// For a policy, from the first time that it asks.
    pub mark: OnceLock<Arc<Mark<GroupId>>>,
}

impl Inode {
    /// What a policy keeps here.
    pub fn mark(&self) -> &Arc<Mark<GroupId>> {
        self.mark.get_or_init(|| Arc::new(Mark::new(self.id.ino)))
    }
}

#[derive(Default)]
struct Shard {
    inodes: ByNumber<Arc<Inode>>,
    /// Those that had no references at some time, oldest first, and which time of theirs that was.
    idle: VecDeque<(u64, u32)>,
}

/// See the module.
pub struct Table {
    shards: Vec<Mutex<Shard>>,
    most_idle: usize,
}

impl Table {
    pub fn new(bytes: usize) -> Table {
        let most_idle = (bytes / INODE_BYTES / SHARDS as usize).max(1);
        Table { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), most_idle }
    }

    fn shard(&self, ino: u64) -> &Mutex<Shard> {
        // Numbers that are given out together go to different shards.
        &self.shards[(ino % SHARDS) as usize]
    }

    /// The number of references, but for the root's own.
    pub fn references(&self) -> u64 {
        let of = |shard: &Mutex<Shard>| -> u64 {
            shard.lock().unwrap().inodes.values().map(|inode| inode.refs.load(Ordering::Relaxed)).sum()
        };
        self.shards.iter().map(of).sum::<u64>() - 1
    }
}

/// A reference to an inode, given back when it is dropped. It is the inode as its call sees it.
pub struct Held<'c> {
    core: &'c Core,
    inode: Arc<Inode>,
    /// The twin of the call's group.
    pub(super) twin: Option<Arc<Inode>>,
    is_kept: bool,
}

impl std::ops::Deref for Held<'_> {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        self.twin.as_ref().unwrap_or(&self.inode)
    }
}

impl<'c> Held<'c> {
    fn new(core: &'c Core, inode: Arc<Inode>) -> Held<'c> {
        Held { core, inode, twin: None, is_kept: false }
    }

    /// As those see it who are in no group.
    pub fn shared(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Keeps the reference: it is given back by [`Core::forget`].
    pub fn keep(mut self) -> Arc<Inode> {
        self.is_kept = true;
        self.inode.clone()
    }

    fn seen_by(mut self, ctx: &Context, is_first: bool) -> std::result::Result<Held<'c>, Errno> {
        self.twin = self.core.twin(ctx, &self.inode, is_first)?;
        Ok(self)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.core.forget(&self.inode, 1);
        }
    }
}

impl Core {
    /// One more reference to an inode that has some.
    pub fn held(&self, ino: u64) -> std::result::Result<Held<'_>, Errno> {
        let shard = self.table.shard(ino).lock().unwrap();
        let inode = shard.inodes.get(&ino).filter(|inode| inode.refs.load(Ordering::Relaxed) > 0);
        let inode = inode.ok_or(Errno::STALE)?.clone();
        inode.refs.fetch_add(1, Ordering::Relaxed);
        Ok(Held::new(self, inode))
    }

    /// The same, as a call that has no lock yet sees it.
    pub fn held_by(&self, ctx: &Context, ino: u64) -> std::result::Result<Held<'_>, Errno> {
        self.held(ino)?.seen_by(ctx, true)
    }

    /// As [`named`](Self::named), as a call sees it.
    pub fn named_by(&self, ctx: &Context, ino: u64) -> std::result::Result<Held<'_>, Errno> {
        self.named(ino)?.seen_by(ctx, false)
    }

    /// One more reference to an inode that is in memory: one that is being freed is not any more.
    pub fn in_memory(&self, ino: u64) -> Option<Held<'_>> {
        let shard = self.table.shard(ino).lock().unwrap();
        let inode = shard.inodes.get(&ino)?.clone();
        inode.refs.fetch_add(1, Ordering::Relaxed);
        Some(Held::new(self, inode))
    }

    /// One more reference to an inode that an entry names. The directory is locked meanwhile.
    pub fn named(&self, ino: u64) -> Result<Held<'_>> {
        let mut shard = self.table.shard(ino).lock().unwrap();
        if let Some(inode) = shard.inodes.get(&ino) {
            inode.refs.fetch_add(1, Ordering::Relaxed);
            return Ok(Held::new(self, inode.clone()));
        }
        // Read under the lock: another thread could enter the inode, change it and let it go meanwhile.
        let record = self.storage.read(&*self.engine, ino)?;
        Ok(self.add(&mut shard, ino, record, (true, false)))
    }

    /// Enters an inode that was just made, with one reference.
    pub fn born(&self, ino: u64, record: Record, nameable: bool, unborn: bool) -> Held<'_> {
        let mut shard = self.table.shard(ino).lock().unwrap();
        self.add(&mut shard, ino, record, (nameable, unborn))
    }

    fn add(&self, shard: &mut Shard, ino: u64, record: Record, (nameable, unborn): (bool, bool)) -> Held<'_> {
        let inode = Arc::new(Inode {
            id: InoGen { ino, generation: record.owned.generation },
            kind: record.owned.mode & super::TYPE,
            state: RwLock::new(State { record, nameable, ..State::default() }),
            trie_depth: AtomicU32::new(0),
            leaves: Leaves::new(self.known.clone()),
            refs: AtomicU64::new(1),
            idled: AtomicU32::new(0),
            unborn: AtomicBool::new(unborn),
            twin: None,
            mark: OnceLock::new(),
        });
        shard.inodes.insert(ino, inode.clone());
        Held::new(self, inode)
    }

    /// Gives references back. Frees the inode if it has no name and nobody refers to it any more (invariant 6).
    pub fn forget(&self, inode: &Arc<Inode>, references: u64) {
        let ino = inode.id.ino;
        let mut shard = self.table.shard(ino).lock().unwrap();
        let before = inode.refs.load(Ordering::Relaxed);
        let left = before.saturating_sub(references);
        inode.refs.store(left, Ordering::Relaxed);
        if left > 0 || before == 0 {
            return;
        }
        // Nobody has a lock of it: each who had held a reference.
        if inode.state.read().unwrap().record.owned.links == 0 {
            // An unmount frees what is in the table, and has perhaps.
            let Ok(_admitted) = self.admit() else { return };
            shard.inodes.remove(&ino);
            drop(shard);
            if inode.unborn.load(Ordering::Acquire) {
                self.inodes.give(ino, 1);
                return;
            }
            // An error poisons the volume; the next mount frees the inode.
            let _ = self.free_inode(inode);
            return;
        }
        let time = inode.idled.fetch_add(1, Ordering::Relaxed) + 1;
        shard.idle.push_back((ino, time));
        while shard.idle.len() > self.table.most_idle {
            let Some((oldest, time)) = shard.idle.pop_front() else { break };
            let is_idle = |inode: &Arc<Inode>| {
                inode.refs.load(Ordering::Relaxed) == 0 && inode.idled.load(Ordering::Relaxed) == time
            };
            if shard.inodes.get(&oldest).is_some_and(is_idle) {
                shard.inodes.remove(&oldest);
            }
        }
    }

    /// Takes an inode out of the table whose only reference is the caller's, and whose only name it is about to remove:
    /// nobody can come to it any more. The caller frees it in the group that removes the name.
    pub fn take_last(&self, held: &Held<'_>) -> bool {
        let mut shard = self.table.shard(held.id.ino).lock().unwrap();
        let is_last = held.refs.load(Ordering::Relaxed) == 1;
        if is_last {
            shard.inodes.remove(&held.id.ino);
            held.refs.store(0, Ordering::Relaxed);
        }
        is_last
    }

    /// An inode that somebody refers to, without one more reference.
    pub fn known(&self, ino: u64) -> Option<Arc<Inode>> {
        self.table.shard(ino).lock().unwrap().inodes.get(&ino).cloned()
    }

    /// Inodes without names that somebody refers to still: at an unmount they are freed.
    pub fn nameless(&self) -> Vec<Arc<Inode>> {
        let mut all = Vec::new();
        for shard in &self.table.shards {
            // A call that holds an inode's lock may want that of the shard: here it is given back first.
            let inodes: Vec<_> = shard.lock().unwrap().inodes.values().cloned().collect();
            all.extend(inodes.into_iter().filter(|i| i.state.read().unwrap().record.owned.links == 0));
        }
        all
    }
}
