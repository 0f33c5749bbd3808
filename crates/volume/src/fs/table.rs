//! Inodes in memory: those that somebody refers to, and some that nobody does, up to a number.

use std::collections::VecDeque;
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
use crate::format::by_number::ByNumber;

const SHARDS: u64 = 64;

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
    /// The running group that has it alone.
    pub alone: Option<GroupId>,
    /// What running groups keep others from else.
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
    /// Open handles.
    pub opens: AtomicU64,
    /// Whether times are in memory alone ([`Core::store_times`]). Changed with the state locked.
    pub keeps_times: AtomicBool,
    /// Whether a group that has made it has not committed: the storage version has nothing of it.
    pub unborn: AtomicBool,
    /// Of the inode as an explicit group sees it.
    pub twin: Option<Twin>,
    /// For a policy, from the first time that it asks.
    pub mark: OnceLock<Arc<Mark<GroupId>>>,
}

impl Inode {
    /// Takes references off. Returns whether these were the last ones. The shard is locked.
    fn lose(&self, references: u64) -> bool {
        let before = self.refs.load(Ordering::Relaxed);
        let left = before.saturating_sub(references);
        self.refs.store(left, Ordering::Relaxed);
        left == 0 && before > 0
    }

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
    /// Those that are being freed: the storage version may have them still.
    leaving: ByNumber<()>,
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

    /// One more reference to an inode whose number the engine has noted. `None` if there is none, or it is being freed.
    pub fn noted(&self, ino: u64) -> Option<Held<'_>> {
        let mut shard = self.table.shard(ino).lock().unwrap();
        if let Some(inode) = shard.inodes.get(&ino) {
            inode.refs.fetch_add(1, Ordering::Relaxed);
            return Some(Held::new(self, inode.clone()));
        }
        if shard.leaving.contains_key(&ino) {
            return None;
        }
        // Damage is told to those who name it.
        let record = self.storage.read(&*self.engine, ino).ok().filter(|record| record.owned.links > 0)?;
        Some(self.add(&mut shard, ino, record, (true, false)))
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
            opens: AtomicU64::new(0),
            keeps_times: AtomicBool::new(false),
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
        if !inode.lose(references) {
            return;
        }
        // Nobody has a lock of it: each who had held a reference.
        if inode.state.read().unwrap().record.owned.links == 0 {
            // An unmount frees what is in the table, and has perhaps.
            let Ok(_admitted) = self.admit() else { return };
            shard.inodes.remove(&ino);
            if inode.unborn.load(Ordering::Acquire) {
                drop(shard);
                self.inodes.give(ino, 1);
                return;
            }
            shard.leaving.insert(ino, ());
            drop(shard);
            // An error poisons the volume; the next mount frees the inode.
            let _ = self.free_inode(inode);
            return;
        }
        self.note_idle(&mut shard, inode);
    }

    /// Gives a reference back. One that would free the inode is returned, for a time when that is possible.
    pub fn let_go<'c>(&self, mut held: Held<'c>) -> Option<Held<'c>> {
        let mut shard = self.table.shard(held.inode.id.ino).lock().unwrap();
        let is_last = held.inode.refs.load(Ordering::Relaxed) == 1;
        if is_last && held.inode.state.read().unwrap().record.owned.links == 0 {
            return Some(held);
        }
        held.is_kept = true;
        if held.inode.lose(1) {
            self.note_idle(&mut shard, &held.inode);
        }
        None
    }

    /// Notes that an inode has no references. Of such inodes the oldest leave memory when there are too many.
    fn note_idle(&self, shard: &mut Shard, inode: &Inode) {
        let ino = inode.id.ino;
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
            shard.leaving.insert(held.id.ino, ());
            held.refs.store(0, Ordering::Relaxed);
        }
        is_last
    }

    /// An inode is freed, and its number about to be given out.
    pub(super) fn has_left(&self, ino: u64) {
        self.table.shard(ino).lock().unwrap().leaving.remove(&ino);
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

#[cfg(test)]
mod tests {
    use wholly_sim::{SimConfig, World};
    use wholly_vfs::{Ino, Mode, OFlags, Vfs};

    use super::*;
    use crate::{Volume, VolumeOptions, VolumeVfs};

    /// An inode that is being freed is on the medium until the group is committed: who has its number from the engine
    /// does not get it.
    #[test]
    fn an_inode_that_is_being_freed_is_not_read_again() {
        let world = World::new(Arc::new(SimConfig { log_len: 128 * 4096, ..SimConfig::pmem() }));
        let options = VolumeOptions::default();
        Volume::format_region(&*world.log(), &options).expect("make a volume");
        let volume = Volume::open_region(world.log(), &options).expect("open it");
        let (vfs, ctx) = (VolumeVfs::new(&volume), Context::superuser());
        let make = || {
            let (made, file) = vfs.create(&ctx, Ino::ROOT, b"a", OFlags::RDWR, Mode::RUSR).expect("create");
            vfs.release(&ctx, file).expect("release");
            vfs.forget(made.ino, 1);
            made.ino.0
        };
        let ino = make();
        let core = &volume.inner().core;
        core.table.shard(ino).lock().unwrap().inodes.clear();
        assert!(core.noted(ino).is_some(), "it is read from the medium");
        let held = core.named(ino).expect("it has a name");
        assert!(core.take_last(&held), "nobody else has it");
        assert!(core.noted(ino).is_none() && core.storage.read(&*core.engine, ino).is_ok(), "the medium has it still");
        // As if it had not been taken.
        let mut shard = core.table.shard(ino).lock().unwrap();
        held.refs.store(1, Ordering::Relaxed);
        shard.leaving.clear();
        shard.inodes.insert(ino, held.shared().clone());
        drop(shard);
        drop(held);
        vfs.unlink(&ctx, Ino::ROOT, b"a").expect("unlink");
        assert!(core.noted(ino).is_none(), "it is free");
        assert_eq!(make(), ino);
        assert!(core.noted(ino).is_some_and(|held| held.id.ino == ino), "its number has another file");
        assert!(core.table.shard(ino).lock().unwrap().leaving.is_empty());
    }
}
