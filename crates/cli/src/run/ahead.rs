//! Whether the system's clock has been set back, by which times of change are.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Two clocks are not read at the same moment. Who sets one back by less than that hides what is done in the first
/// moments only.
const UNSURE_NS: i64 = 10_000_000;

/// How far the system's clock is ahead of the one that nobody sets, in ns. It stays what it is where the clock is only
/// made slower or faster, and where the system sleeps.
#[derive(Clone, Copy)]
pub struct Ahead(i64);

impl Ahead {
    pub fn now() -> Ahead {
        let ns = |time: Timespec| time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
        Ahead(ns(clock_gettime(ClockId::Realtime)).saturating_sub(ns(clock_gettime(ClockId::Boottime))))
    }

    /// By how many ns it has been set back since, as far as the first and the last moment tell.
    pub fn set_back_since(self, before: Ahead) -> i64 {
        let back = before.0.saturating_sub(self.0);
        if back < UNSURE_NS { 0 } else { back.saturating_add(UNSURE_NS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_is_noticed() {
        let hour = 3_600_000_000_000;
        assert_eq!(Ahead(5).set_back_since(Ahead(5 + hour)), hour + UNSURE_NS);
        assert_eq!(Ahead(-hour).set_back_since(Ahead(hour)), 2 * hour + UNSURE_NS);
        // Set forward, or not at all.
        assert_eq!(Ahead(hour).set_back_since(Ahead(0)), 0);
        assert_eq!(Ahead(0).set_back_since(Ahead(UNSURE_NS - 1)), 0);
    }
}
