//! Space for a command that writes past the store: in an overlay the kernel answers its calls, and knows nothing of
//! undo that is kept. So this process looks how much is free, and kept undo gives way before the command meets the end.

use super::place::Place;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How often it looks: a disk takes less meanwhile than [`LEAST`].
const EVERY: Duration = Duration::from_millis(5);

/// Undo goes while fewer bytes are free, or fewer than half of what was free before the command.
const LEAST: u64 = 32 << 20;

/// Does something, and has undo that is kept in these directories give way meanwhile, the oldest first.
pub fn giving_way<T>(places: &[&Place], work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let mut watchers = Vec::new();
        for place in places.iter().copied().filter(|place| place.keeps_undo()) {
            let (end, ended) = channel::<()>();
            let Some(least) = place.free_bytes().map(|free| LEAST.min(free / 2)) else { continue };
            watchers.push(end);
            scope.spawn(move || {
                while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    while place.free_bytes().is_some_and(|free| free < least) {
                        // A failure shows when the group ends.
                        if !place.store().drop_oldest_undo().unwrap_or(false) {
                            return;
                        }
                    }
                }
            });
        }
        let done = work();
        drop(watchers);
        done
    })
}
