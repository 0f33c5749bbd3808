//! Which lanes are free. A group holds one while it runs; when there is none it is gathered in memory until it commits.

use crossbeam_utils::CachePadded;

use crate::log::Log;
use crate::log::lane::Lane;
use crate::sync::{AtomicU32, Mutex, Ordering, thread_token};

/// Running groups that have a lane of their own.
const POOL: usize = 8;

pub(crate) struct LanePool {
    /// Each thread begins to look at its own place.
    places: [CachePadded<Mutex<Place>>; POOL],
    /// Lanes beyond the pool, between uses.
    others: Mutex<Vec<Box<Lane>>>,
    next_number: AtomicU32,
}

enum Place {
    Unused,
    Taken,
    Free(Box<Lane>),
}

impl LanePool {
    pub fn new() -> Self {
        LanePool {
            places: [const { CachePadded::new(Mutex::new(Place::Unused)) }; POOL],
            others: Mutex::new(Vec::new()),
            // Lane 0 is the one that committers on a disk share.
            next_number: AtomicU32::new(1),
        }
    }

    /// A lane for as long as a group runs, if one of the pool is free.
    #[inline]
    pub fn take(&self) -> Option<Box<Lane>> {
        let start = thread_token() as usize;
        for i in 0..POOL {
            let Ok(mut place) = self.places[(start + i) % POOL].try_lock() else { continue };
            match std::mem::replace(&mut *place, Place::Taken) {
                Place::Free(lane) => return Some(lane),
                Place::Unused => return Some(self.make()),
                Place::Taken => {}
            }
        }
        None
    }

    /// A lane in any case: for a commit, or for a group that outgrew memory.
    pub fn take_any(&self) -> Box<Lane> {
        self.take().or_else(|| self.others.lock().unwrap().pop()).unwrap_or_else(|| self.make())
    }

    /// A lane for one large group on a disk, whose parts it carries. It is not given back.
    pub fn spill_lane(&self) -> Box<Lane> {
        self.make()
    }

    fn make(&self) -> Box<Lane> {
        Box::new(Lane::new(self.next_number.fetch_add(1, Ordering::Relaxed)))
    }

    /// Gives a lane back between groups.
    #[inline]
    pub fn give_back(&self, lane: Box<Lane>) {
        debug_assert!(lane.is_clean());
        let start = thread_token() as usize;
        for i in 0..POOL {
            let Ok(mut place) = self.places[(start + i) % POOL].try_lock() else { continue };
            if matches!(*place, Place::Taken) {
                *place = Place::Free(lane);
                return;
            }
        }
        self.others.lock().unwrap().push(lane);
    }

    /// Makes all free lanes leave their segments.
    pub fn leave(&self, log: &Log) {
        for place in &self.places {
            if let Place::Free(lane) = &mut *place.lock().unwrap() {
                lane.leave(log);
            }
        }
        for lane in self.others.lock().unwrap().iter_mut() {
            lane.leave(log);
        }
    }
}
