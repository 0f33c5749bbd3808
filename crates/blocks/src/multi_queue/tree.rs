//! The index (5.2): as many trees as queues, from blocks to their versions. A tree has the blocks of each so many-th
//! group of 64, so that runs stand in few trees.

use std::collections::HashMap;
use std::ops::Range;

use sync::{Backoff, Mutex, MutexGuard};

use crate::runs::Runs;
use crate::{Lba, Page, Txid};

/// Blocks of a group.
const GROUP: u64 = 64;

/// A transaction's place: in a queue, and among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub queue: u16,
    /// In the queue, from 1 on.
    pub place: u64,
    /// In the order.
    pub sequence: u64,
}

/// What an ordered transaction has made of a block.
#[derive(Clone)]
pub enum Content {
    /// In the journal.
    Journaled(Page),
    /// In a lent block.
    Spilled(Lba),
    /// On its way home, past the journal.
    Direct(Page),
    /// Nothing: it was discarded.
    Zeros,
}

#[derive(Clone)]
pub struct Version {
    pub place: Place,
    pub content: Content,
}

/// What is known of a block.
pub struct Entry {
    /// The newest last. All are older than the newest settled one but that.
    pub versions: Vec<Version>,
    /// The last transaction that has written or discarded it.
    pub last: Place,
    /// A version is being written home: the paper's `chp`.
    pub is_going: bool,
    /// The last transaction that has written it directly, until that is proven.
    pub direct: Option<Place>,
}

/// How far the queues are, as trees ask it.
pub trait Progress {
    /// Whether a transaction and all that it depends on are durable.
    fn is_settled(&self, place: Place) -> bool;
    /// Whether recovery believes it without a look at what it wrote.
    fn is_proven(&self, place: Place) -> bool;
}

impl Entry {
    fn new(last: Place) -> Entry {
        Entry { versions: Vec::new(), last, is_going: false, direct: None }
    }

    /// The newest version that is settled.
    pub fn newest_settled(&self, progress: &dyn Progress) -> Option<usize> {
        self.versions.iter().rposition(|version| progress.is_settled(version.place))
    }

    /// Whether somebody may be reading a lent block.
    fn is_spilled(&self) -> bool {
        self.versions.iter().any(|version| matches!(version.content, Content::Spilled(_)))
    }

    /// Forgets what nobody needs. Returns whether that is all.
    fn prune(&mut self, progress: &dyn Progress) -> bool {
        if let Some(at) = self.newest_settled(progress) {
            // What was written directly, or is free, is not read from here any more.
            let is_home = matches!(self.versions[at].content, Content::Direct(_) | Content::Zeros);
            self.versions.drain(..at + usize::from(is_home));
        }
        self.direct.take_if(|direct| progress.is_proven(*direct));
        let is_known = !self.versions.is_empty() || self.is_going || self.direct.is_some();
        !is_known && progress.is_settled(self.last)
    }
}

/// One of the trees.
#[derive(Default)]
pub struct Tree {
    pub entries: HashMap<u64, Entry>,
    /// Discarded blocks without an entry.
    pub zeros: Runs<Place>,
    /// Which running transaction has written a block; 0: somebody does, plainly.
    pub running: Runs<u64>,
    /// Rises when a block begins to go home, when it is home, and when a lent block may be used again. A reader of the
    /// medium that finds it risen reads again.
    pub homes: u64,
}

/// The writer of blocks that are written plainly.
pub const PLAIN: u64 = 0;

impl Tree {
    /// The entry of a block that this transaction writes now.
    pub fn written(&mut self, block: u64, by: Place) -> &mut Entry {
        self.zeros.clear(block..block + 1);
        let entry = self.entries.entry(block).or_insert_with(|| Entry::new(by));
        entry.last = by;
        entry
    }

    /// The last transaction that has written or discarded a block, as far as that is known.
    pub fn last(&self, block: u64) -> Option<Place> {
        self.entries.get(&block).map(|entry| entry.last).or_else(|| self.zeros.get(block))
    }

    /// A transaction discards blocks of this tree.
    pub fn discard(&mut self, blocks: Range<u64>, by: Place) {
        let with_entry = self.known(blocks.clone());
        self.zeros.set(blocks, by);
        for block in with_entry {
            let entry = self.written(block, by);
            entry.versions.push(Version { place: by, content: Content::Zeros });
        }
    }

    /// The blocks of a range that have an entry, in their order.
    pub fn known(&self, blocks: Range<u64>) -> Vec<u64> {
        let mut known: Vec<u64> = match (self.entries.len() as u64) < blocks.end - blocks.start {
            true => self.entries.keys().copied().filter(|block| blocks.contains(block)).collect(),
            false => blocks.filter(|block| self.entries.contains_key(block)).collect(),
        };
        known.sort_unstable();
        known
    }

    /// Forgets of a block what nobody needs.
    pub fn prune(&mut self, block: u64, progress: &dyn Progress) {
        let Some(entry) = self.entries.get_mut(&block) else { return };
        self.homes += u64::from(entry.is_spilled());
        if entry.prune(progress) {
            self.entries.remove(&block);
        }
    }

    /// The same of all blocks.
    pub fn prune_all(&mut self, progress: &dyn Progress) {
        self.homes += u64::from(self.entries.values().any(Entry::is_spilled));
        self.entries.retain(|_, entry| !entry.prune(progress));
    }

    /// Whether no block of a range has a version.
    pub fn is_home(&self, blocks: Range<u64>) -> bool {
        let is_home = |block| self.entries.get(&block).is_none_or(|entry: &Entry| entry.versions.is_empty());
        self.zeros.within(blocks.clone()).next().is_none() && self.known(blocks).into_iter().all(is_home)
    }
}

/// All of them.
pub struct Trees(Vec<Mutex<Tree>>);

impl Trees {
    pub fn new(queues: u16) -> Trees {
        Trees((0..queues).map(|_| Mutex::default()).collect())
    }

    /// The tree of a block, locked.
    pub fn of(&self, block: u64) -> MutexGuard<'_, Tree> {
        self.0[(block / GROUP % self.0.len() as u64) as usize].lock().unwrap()
    }

    pub fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Tree>> {
        self.0.iter().map(|tree| tree.lock().unwrap())
    }

    /// The parts of a range, each with its tree.
    pub fn parts(&self, blocks: Range<u64>) -> impl Iterator<Item = (Range<u64>, MutexGuard<'_, Tree>)> {
        let mut at = blocks.start;
        std::iter::from_fn(move || {
            let from = at;
            at = blocks.end.min((from / GROUP + 1) * GROUP);
            (from < blocks.end).then(|| (from..at, self.of(from)))
        })
    }

    /// A running transaction has written blocks, unless another one has: its block.
    ///
    /// # Errors
    /// The first block that is another's. Nothing has changed then.
    pub fn claim(&self, tx: Txid, blocks: Range<u64>) -> Result<(), u64> {
        let mut backoff = Backoff::new();
        // A plain write ends.
        let is_plain = |tree: &Tree, part: Range<u64>| tree.running.within(part).any(|(_, by)| by == PLAIN);
        while self.parts(blocks.clone()).any(|(part, tree)| is_plain(&tree, part)) {
            backoff.wait();
        }
        let mut new = Vec::new();
        for (part, mut tree) in self.parts(blocks) {
            let others = tree.running.within(part.clone()).find(|(_, by)| *by != tx.0);
            if let Some((taken, _)) = others {
                drop(tree);
                new.into_iter().for_each(|blocks| self.unclaim(blocks));
                return Err(taken.start);
            }
            let mut at = part.start;
            for (own, _) in tree.running.within(part.clone()) {
                new.push(at..own.start);
                at = own.end;
            }
            new.push(at..part.end);
            tree.running.set(part, tx.0);
        }
        Ok(())
    }

    pub fn unclaim(&self, blocks: Range<u64>) {
        self.parts(blocks).for_each(|(part, mut tree)| tree.running.clear(part));
    }
}
