//! Waiting for what another group has.

use std::time::{Duration, Instant};

use sync::thread;

const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// How long a call has waited, and may wait.
pub(super) struct Patience {
    timeout: Duration,
    until: Option<Instant>,
    pause: Duration,
}

impl Patience {
    pub fn new(timeout: Duration) -> Self {
        Patience { timeout, until: None, pause: FIRST_PAUSE }
    }

    /// Something is another group's. Waits a while; returns whether to try again.
    #[cold]
    pub fn wait(&mut self) -> bool {
        if self.timeout.is_zero() {
            return false;
        }
        let now = Instant::now();
        // What is too long for a clock is for ever.
        let until = *self.until.get_or_insert_with(|| now.checked_add(self.timeout).unwrap_or(now + FOR_EVER));
        if now >= until {
            return false;
        }
        thread::sleep(self.pause.min(until - now));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// A hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
