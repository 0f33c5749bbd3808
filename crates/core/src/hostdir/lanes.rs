//! Where running groups sit: each has a seat, with a lane to append to and lists that keep their memory from group to
//! group.

use std::collections::{BTreeMap, VecDeque};

use crossbeam_utils::CachePadded;

use super::overlay::Overlay;
use super::published::{Published, Stock};
use super::running::Joined;
use super::swap::Swapped;
use crate::log::{Gathered, Lane, Log, OWN_SLOTS};
use sync::{AtomicCell, AtomicU32, Mutex, Ordering, thread_token};

/// Seats whose lane a group may append to while it runs. Groups beyond are gathered in memory, so that the number of
/// segments that running groups hold is bounded.
const SEATS: usize = OWN_SLOTS;

/// The number of lanes that nothing is put into.
const NO_LANE: u32 = u32::MAX;

/// Lists up to this keep their memory from group to group.
const LONG: usize = 4096;

/// What a running group works with. Between groups all lists are empty.
pub(crate) struct Seat {
    pub lane: Lane,
    /// Its place in the pool, if it belongs there; also its slot among the commits in flight.
    pub place: Option<usize>,
    /// Whether `lane` was borrowed, because the group outgrew memory or commits.
    pub lane_is_borrowed: bool,
    /// What the group has not put into the lane.
    pub gathered: Vec<Gathered>,
    pub gathered_bytes: u64,
    /// Entries of it whose bytes are in the [swap file](super::swap), and how many bytes that are.
    pub swapped: BTreeMap<usize, Swapped>,
    pub swapped_bytes: u64,
    /// Entries from here on may go there.
    pub looked_at: usize,
    /// The files that the group changes.
    pub files: Vec<Joined>,
    /// Those of them that are staged and open, by number; the one that was written to last comes last.
    pub open_stages: VecDeque<usize>,
    /// What it wrote to them.
    pub writes: Overlay,
    /// What it publishes with.
    pub stock: Stock,
}

impl Seat {
    fn new(log: &Log, number: u32, place: Option<usize>) -> Box<Self> {
        Box::new(Seat {
            lane: Lane::new(log, number),
            place,
            lane_is_borrowed: false,
            gathered: Vec::new(),
            gathered_bytes: 0,
            swapped: BTreeMap::new(),
            swapped_bytes: 0,
            looked_at: 0,
            files: Vec::new(),
            open_stages: VecDeque::new(),
            writes: Overlay::default(),
            stock: Stock::new(place),
        })
    }

    /// The group that sat here has ended. Lists that a large one has made long give their memory back.
    #[inline]
    pub fn clear(&mut self) {
        self.writes.clear();
        self.gathered.clear();
        self.gathered_bytes = 0;
        self.open_stages.clear();
        if self.files.capacity() > LONG || self.gathered.capacity() > LONG {
            (self.files, self.gathered) = (Vec::new(), Vec::new());
        }
    }
}

/// The seats of a store.
pub(crate) struct Seats {
    /// Each thread begins to look at its own place. A seat is taken and given back by one swap.
    places: [CachePadded<AtomicCell<Option<Box<Seat>>>>; SEATS],
    /// Places whose seat was made.
    made: AtomicU32,
    /// Lanes for commits of groups that have no seat of the pool, between uses.
    lanes: Mutex<Vec<Lane>>,
    next_number: AtomicU32,
}

impl Seats {
    pub fn new() -> Self {
        Seats {
            places: [const { CachePadded::new(AtomicCell::new(None)) }; SEATS],
            made: AtomicU32::new(0),
            lanes: Mutex::new(Vec::new()),
            // Lane 0 is the one that committers on a disk share.
            next_number: AtomicU32::new(1),
        }
    }

    /// A seat, and whether its lane is the group's to append to while it runs.
    #[inline]
    pub fn take(&self, log: &Log) -> (Box<Seat>, bool) {
        let start = thread_token() as usize;
        for i in 0..SEATS {
            if let Some(seat) = self.places[(start + i) % SEATS].take() {
                return (seat, true);
            }
        }
        self.make(log)
    }

    #[cold]
    fn make(&self, log: &Log) -> (Box<Seat>, bool) {
        if self.made.load(Ordering::Relaxed) < SEATS as u32 {
            let place = self.made.fetch_add(1, Ordering::Relaxed) as usize;
            if place < SEATS {
                return (Seat::new(log, self.number(), Some(place)), true);
            }
        }
        // Nothing is ever put into its lane: a group that outgrows memory, or commits on persistent memory, borrows
        // one.
        (Seat::new(log, NO_LANE, None), false)
    }

    fn number(&self) -> u32 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A lane for the time of a commit.
    pub fn borrow_lane(&self, log: &Log) -> Lane {
        self.lanes.lock().unwrap().pop().unwrap_or_else(|| Lane::new(log, self.number()))
    }

    /// Gives a seat back between groups.
    #[inline]
    pub fn give_back(&self, seat: Box<Seat>, index: &Published) {
        debug_assert!(
            seat.lane.is_clean() && seat.files.is_empty() && seat.writes.is_empty() && seat.gathered.is_empty()
        );
        match seat.place {
            Some(place) => self.places[place].store(Some(seat)),
            None => self.take_apart(seat, index),
        }
    }

    /// Keeps what a seat that is none of the pool leaves.
    #[cold]
    fn take_apart(&self, seat: Box<Seat>, index: &Published) {
        index.take_back(seat.stock);
        if seat.lane_is_borrowed {
            self.lanes.lock().unwrap().push(seat.lane);
        }
    }

    /// Makes all lanes that nobody uses leave their segments.
    pub fn leave(&self, log: &Log) {
        for place in &self.places {
            if let Some(mut seat) = place.take() {
                seat.lane.leave(log);
                place.store(Some(seat));
            }
        }
        for lane in self.lanes.lock().unwrap().iter_mut() {
            lane.leave(log);
        }
    }
}

#[cfg(test)]
mod tests {
    use wholly_sim::{SimConfig, World};

    use crate::{Options, Store};
    use sync::Ordering;

    /// Lanes are told apart by numbers of 32 bits, which groups beyond the pool used up, one each.
    #[test]
    fn groups_beyond_the_pool_use_up_no_numbers() {
        for config in [SimConfig::pmem(), SimConfig::disk()] {
            let world = World::new(SimConfig { log_len: 0, ..config });
            world.add_file("a", &[0; 64]);
            let options = Options { background: false, gather_bytes: 512, ..Options::default() };
            Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
            let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
            let file = store.open_file("a").unwrap();
            let _seated: Vec<_> = (0..super::SEATS).map(|_| store.begin()).collect();
            let before = store.inner.seats.next_number.load(Ordering::Relaxed);
            for _ in 0..50 {
                let mut group = store.begin();
                // More than is gathered in memory.
                group.write_at(&file, 0, &[1; 400]).unwrap();
                group.write_at(&file, 0, &[1; 400]).unwrap();
                group.commit().unwrap();
            }
            let after = store.inner.seats.next_number.load(Ordering::Relaxed);
            assert!(after <= before + 1, "{before} to {after}");
        }
    }
}
