//! Which lists wait to be written back, and which versions are covered.
//!
//! Threads that commit to different blocks meet in none of it, but where a list is long or had a rank.

use std::collections::BTreeSet;

use index::{LinesVersion, NO_VERSION, Version, VersionArena};
use sync::{AtomicU64, Mutex, MutexGuard, Ordering};

use crate::format::by_number::ByNumber;

/// The rank of a list that is long.
pub const DUE: u64 = 0;
/// The rank of the others begins here: the lines that are copied for each block that becomes free, in 64ths, are added.
pub const CHEAPEST: u64 = 1;
/// The rank of a list whose pointer could not be swapped, because its file was in use.
pub const REFUSED: u64 = CHEAPEST + 64 * 64 + 1;
const RANK_SHIFT: u32 = 48;

/// Lists whose files were in use, and that a thread asks for again.
const ASKED_AT_ONCE: usize = 16;

/// Homes that follow each other are in different shards.
const SHARDS: u64 = 16;

/// A list in the queue: its rank, and its home below that. The cheapest comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked(u64);

impl Ranked {
    pub fn new(rank: u64, home: u64) -> Ranked {
        Ranked(rank << RANK_SHIFT | home)
    }

    pub fn rank(self) -> u64 {
        self.0 >> RANK_SHIFT
    }

    pub fn home(self) -> u64 {
        self.0 & ((1 << RANK_SHIFT) - 1)
    }
}

/// See the module.
#[derive(Default)]
pub struct Queue {
    lists: Mutex<Lists>,
    /// How many of them have a rank, and how many are long. They change under the claim of the list.
    ranked: AtomicU64,
    due: AtomicU64,
    shards: [Mutex<Shard>; SHARDS as usize],
}

/// The lists that nobody is writing back, by their ranks. Who has a list's claim may wait for this lock; who has this
/// lock waits for no claim.
#[derive(Default)]
pub struct Lists {
    ranked: BTreeSet<Ranked>,
    /// The variant [`WriteBack::CommitOrder`](super::WriteBack): all versions, by place in commit order, and their
    /// homes.
    pub in_order: BTreeSet<(u64, u64)>,
}

/// What a commit notes of some homes. Its lock is the last one that is taken.
#[derive(Default)]
struct Shard {
    /// By home: its covered versions. They stay in the arena, each before the next.
    covered: ByNumber<Covered>,
    /// Homes with lists that have no rank: they have got a version since somebody wrote back, recovery has found them,
    /// or their files were in use. Some have no list any more.
    found: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
struct Covered {
    newest: u32,
    count: u32,
}

impl Queue {
    pub fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap()
    }

    fn shard(&self, home: u64) -> MutexGuard<'_, Shard> {
        self.shards[(home % SHARDS) as usize].lock().unwrap()
    }

    pub fn has_ranked(&self) -> bool {
        self.ranked.load(Ordering::Relaxed) > 0
    }

    pub fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed) > 0
    }

    fn count(&self, list: Ranked, changed: impl Fn(&AtomicU64)) {
        changed(&self.ranked);
        if list.rank() == DUE {
            changed(&self.due);
        }
    }

    pub fn enter(&self, lists: &mut Lists, list: Ranked) {
        if lists.ranked.insert(list) {
            self.count(list, |count| _ = count.fetch_add(1, Ordering::Relaxed));
        }
    }

    pub fn remove(&self, lists: &mut Lists, list: Ranked) -> bool {
        let was_there = lists.ranked.remove(&list);
        if was_there {
            self.count(list, |count| _ = count.fetch_sub(1, Ordering::Relaxed));
        }
        was_there
    }

    /// Takes a list out that has this rank, or none. Returns whether it had one.
    pub fn leave(&self, lists: &mut Lists, rank: u64, home: u64) -> bool {
        self.remove(lists, Ranked::new(rank, home)) || self.remove(lists, Ranked::new(REFUSED, home))
    }

    /// Some lists whose files were in use get a rank again.
    pub fn ask_again(&self) {
        let mut lists = self.lists();
        let refused = lists.ranked.range(Ranked::new(REFUSED, 0)..).take(ASKED_AT_ONCE);
        for list in refused.copied().collect::<Vec<_>>() {
            self.remove(&mut lists, list);
            self.shard(list.home()).found.push(list.home());
        }
    }

    /// Its list has no rank, and had none; `has_list`: of another home, whether there is a list.
    pub fn found(&self, home: u64, has_list: impl Fn(u64) -> bool) {
        let found = &mut self.shard(home).found;
        if found.len() == found.capacity() {
            // Some may have no list any more, or be there twice.
            found.sort_unstable();
            found.dedup();
            found.retain(|home| has_list(*home));
        }
        found.push(home);
    }

    /// One of the homes whose lists have no rank: of the first shard from this one on that has any.
    pub fn pop_found(&self, shard: &mut u64) -> Option<u64> {
        for _ in 0..SHARDS {
            if let Some(home) = self.shard(*shard).found.pop() {
                return Some(home);
            }
            *shard += 1;
        }
        None
    }

    /// All homes whose lists have a rank, and those that may have one without; the latter are taken out.
    pub fn take_all(&self) -> Vec<u64> {
        let lists = self.lists();
        let mut homes: Vec<u64> = lists.ranked.iter().map(|list| list.home()).collect();
        self.shards.iter().for_each(|shard| homes.append(&mut shard.lock().unwrap().found));
        homes
    }

    /// How many versions of a home are covered.
    pub fn covered(&self, home: u64) -> usize {
        self.shard(home).covered.get(&home).map_or(0, |covered| covered.count as usize)
    }

    /// More versions of a home are covered. Returns how many were before. The caller has the claim of the list.
    pub fn cover(&self, arena: &VersionArena<LinesVersion>, home: u64, more: &[u32]) -> usize {
        let mut shard = self.shard(home);
        if more.is_empty() {
            return shard.covered.get(&home).map_or(0, |covered| covered.count as usize);
        }
        let covered = shard.covered.entry(home).or_default();
        let before = covered.count as usize;
        for number in more {
            arena.set(*number, arena.get(*number).before(covered.newest));
            *covered = Covered { newest: *number, count: covered.count + 1 };
        }
        before
    }

    /// The covered versions of a home.
    pub fn covered_versions(&self, arena: &VersionArena<LinesVersion>, home: u64) -> Vec<LinesVersion> {
        let newest = self.shard(home).covered.get(&home).map_or(NO_VERSION, |covered| covered.newest);
        arena.list(newest).collect()
    }

    /// Forgets the covered versions of a home up to a place in commit order. Their numbers are put into `freed`.
    pub fn uncover(&self, arena: &VersionArena<LinesVersion>, home: u64, upto: u64, freed: &mut Vec<u32>) {
        let Some(covered) = self.shard(home).covered.remove(&home) else { return };
        let (mut number, mut kept) = (covered.newest, Vec::new());
        while number != NO_VERSION {
            let version = arena.get(number);
            if version.stamp <= upto {
                freed.push(number)
            } else {
                kept.push(number)
            }
            number = version.next();
        }
        if !kept.is_empty() {
            self.cover(arena, home, &kept);
        }
    }

    /// Bytes of memory, about: a set is three quarters full.
    pub fn memory_bytes(&self) -> u64 {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap();
            shard.found.capacity() * size_of::<u64>() + shard.covered.capacity() * size_of::<(u64, Covered)>()
        };
        let shards: usize = self.shards.iter().map(of_shard).sum();
        (self.lists().ranked.len() * 4 / 3 * size_of::<u64>() + shards) as u64
    }
}

impl Lists {
    pub fn ranked(&self) -> impl ExactSizeIterator<Item = Ranked> {
        self.ranked.iter().copied()
    }
}
