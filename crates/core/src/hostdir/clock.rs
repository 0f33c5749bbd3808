//! When content changed: the time that a group gives what it changes.
//!
//! A group looks at the clock with each change, and the log tells the time only now and then: a *Clock* entry holds for
//! its group and for all later ones, up to the next. What changed within [`GRAIN_NS`] of it has its time; of what did
//! not, the group's record tells the time itself. So small groups pay nothing for times, and these are the same after a
//! crash. Groups whose users look at the times of the host too, and compare, ask for less than that grain.

use sync::{AtomicU64, Ordering};

/// How exact times of changes are, in ns.
pub(crate) const GRAIN_NS: i64 = 10_000_000;

/// How exact they are where they are to be as the host gives them, in ns.
pub(crate) const EXACT_NS: i64 = 1;

/// In the place of a time: as it is at home.
pub(crate) const AT_HOME: u64 = i64::MIN as u64;

/// The time of the last change of content that a group has given an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mtime {
    /// None.
    #[default]
    Kept,
    /// By a change, in ns.
    Changed(i64),
    /// A time that an entry of its own tells, in ns.
    Told(i64),
}

impl Mtime {
    /// What the group sees.
    pub fn seen(self) -> Option<i64> {
        match self {
            Mtime::Kept => None,
            Mtime::Changed(ns) | Mtime::Told(ns) => Some(ns),
        }
    }

    /// What everybody sees once the group has committed, `time` being its clock's.
    pub fn committed(self, time: i64) -> Option<i64> {
        match self {
            Mtime::Kept => None,
            Mtime::Changed(_) => Some(time),
            Mtime::Told(ns) => Some(ns),
        }
    }

    /// The time of a change that `time` is not the time of.
    pub fn far_from(self, time: i64, grain_ns: i64) -> Option<i64> {
        match self {
            Mtime::Changed(ns) if !is_near(ns, time, grain_ns) => Some(ns),
            _ => None,
        }
    }
}

/// Whether a change at `ns` has the time `time`.
pub(crate) fn is_near(ns: i64, time: i64, grain_ns: i64) -> bool {
    ns.abs_diff(time) < grain_ns as u64
}

/// The last Clock entry that is published.
pub(crate) struct Clock {
    time: AtomicU64,
    sequence: AtomicU64,
}

impl Clock {
    /// What recovery found: a group at `sequence` told `time`; 0 for none.
    pub fn new(time: i64, sequence: u64) -> Self {
        Clock { time: AtomicU64::new(time as u64), sequence: AtomicU64::new(sequence) }
    }

    /// The time that the log gives a group at `sequence`, if a group below it and not below `announced` tells it.
    #[inline]
    pub fn at(&self, announced: u64, sequence: u64) -> Option<i64> {
        let told = self.sequence.load(Ordering::Acquire);
        (announced <= told && told < sequence && told != 0).then(|| self.time.load(Ordering::Relaxed) as i64)
    }

    /// A group at `sequence` has told the time.
    pub fn publish(&self, time: i64, sequence: u64) {
        self.time.store(time as u64, Ordering::Relaxed);
        self.sequence.fetch_max(sequence, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_a_group_before_which_the_log_has() {
        let clock = Clock::new(0, 0);
        assert_eq!(clock.at(0, 9), None);
        clock.publish(77, 5);
        assert_eq!((clock.at(0, 6), clock.at(5, 6)), (Some(77), Some(77)));
        assert_eq!((clock.at(6, 9), clock.at(0, 5)), (None, None), "gone with the tail; not told yet");
    }

    #[test]
    fn a_change_is_told_by_itself_where_the_clock_is_far_from_it() {
        let changed = Mtime::Changed(5 * GRAIN_NS);
        assert_eq!(changed.far_from(5 * GRAIN_NS + 1, GRAIN_NS), None);
        assert_eq!(changed.far_from(6 * GRAIN_NS, GRAIN_NS), Some(5 * GRAIN_NS));
        assert_eq!(changed.far_from(4 * GRAIN_NS, GRAIN_NS), Some(5 * GRAIN_NS), "clocks go back, too");
        assert_eq!(changed.far_from(5 * GRAIN_NS + 1, EXACT_NS), Some(5 * GRAIN_NS));
        assert_eq!(Mtime::Told(1).far_from(9 * GRAIN_NS, GRAIN_NS), None);
        assert_eq!((changed.committed(3), Mtime::Told(1).committed(3)), (Some(3), Some(1)));
    }
}
