//! What was judged and counted before, by hash. Workers share it, and so may several calls, for one count.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use wholly_sim::Hashed;

const SHARDS: usize = 64;

type Set = Mutex<HashSet<u64, Hashed>>;

/// Sets of hashes.
///
/// A state is *nested* if only a crash inside of a recovery led to it, whatever came first.
pub struct Seen {
    images: Vec<Set>,
    /// The last bit of a hash tells whether it was seen inside of a recovery.
    states: Vec<Set>,
    distinct: AtomicU64,
    nested: AtomicU64,
}

impl Default for Seen {
    fn default() -> Self {
        let sets = || (0..SHARDS).map(|_| Mutex::default()).collect();
        Seen { images: sets(), states: sets(), distinct: AtomicU64::new(0), nested: AtomicU64::new(0) }
    }
}

fn shard(sets: &[Set], hash: u64) -> &Set {
    &sets[(hash >> 58) as usize % SHARDS]
}

impl Seen {
    /// Notes an image; `false` if it was there.
    pub(crate) fn image(&self, hash: u64) -> bool {
        shard(&self.images, hash).lock().expect("no panic under this lock").insert(hash)
    }

    /// Counts a state.
    pub(crate) fn state(&self, hash: u64, inside: bool) {
        let (here, there) = (hash & !1 | u64::from(inside), hash & !1 | u64::from(!inside));
        let mut set = shard(&self.states, hash).lock().expect("no panic under this lock");
        if !set.insert(here) {
            return;
        }
        match (set.contains(&there), inside) {
            (false, false) => _ = self.distinct.fetch_add(1, Ordering::Relaxed),
            (false, true) => {
                self.distinct.fetch_add(1, Ordering::Relaxed);
                self.nested.fetch_add(1, Ordering::Relaxed);
            }
            (true, false) => _ = self.nested.fetch_sub(1, Ordering::Relaxed),
            (true, true) => {}
        }
    }

    /// States that differ in what recovery looked at.
    pub fn distinct(&self) -> u64 {
        self.distinct.load(Ordering::Relaxed)
    }

    /// Those that only a crash inside of a recovery led to.
    pub fn nested(&self) -> u64 {
        self.nested.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_in_which_states_are_found_changes_no_count() {
        for order in [[(2, false), (2, true), (8, true)], [(8, true), (2, true), (2, false)]] {
            let seen = Seen::default();
            for (hash, inside) in order.into_iter().chain(order) {
                seen.state(hash, inside);
            }
            assert_eq!((seen.distinct(), seen.nested()), (2, 1));
        }
    }
}
