//! What calls wait for: something that happens once, and calls that return.

use std::sync::{Condvar, Mutex, PoisonError};

use super::shared::lock;

/// Something that happens once.
#[derive(Debug, Default)]
pub(super) struct Latch {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    pub fn open(&self) {
        *lock(&self.is_open) = true;
        self.opened.notify_all();
    }

    /// Returns once it is open.
    pub fn wait(&self) {
        let mut is_open = lock(&self.is_open);
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// How many calls run.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: Mutex<u64>,
    returned: Condvar,
}

impl Calls {
    pub fn enter(&self) {
        *lock(&self.running) += 1;
    }

    pub fn leave(&self) {
        let mut running = lock(&self.running);
        *running -= 1;
        if *running == 0 {
            self.returned.notify_all();
        }
    }

    pub fn run(&self) -> bool {
        *lock(&self.running) > 0
    }

    /// Waits until no call runs. No new one begins: that is up to the caller.
    pub fn drain(&self) {
        let mut running = lock(&self.running);
        while *running > 0 {
            running = self.returned.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_waits_for_every_call_and_a_latch_lets_all_pass() {
        let (calls, latch) = (Calls::default(), Latch::default());
        calls.drain();
        assert!(!calls.run());
        calls.enter();
        calls.enter();
        assert!(calls.run());
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    latch.wait();
                    lock(&order).push("call");
                    calls.leave();
                });
            }
            scope.spawn(|| {
                calls.drain();
                lock(&order).push("drained");
            });
            latch.open();
        });
        latch.wait();
        assert_eq!(order.into_inner().unwrap(), ["call", "call", "drained"]);
    }
}
