//! What a terminal shows of verbs that take long: how far they are, in counts. Nothing without a terminal.

use crate::output::{Ui, count, size};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use wholly::{Store, StoreStat};

/// How often it is looked how far something is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Ui {
    /// Does something that takes long. A terminal shows `message` meanwhile, and what `look` tells of how far it is.
    pub fn telling<T>(&self, message: &str, look: impl Fn() -> String + Send, work: impl FnOnce() -> T) -> T {
        let spinner = self.spinner("");
        if spinner.is_hidden() {
            return work();
        }
        let shown = spinner.clone();
        let show = move || shown.set_message(format!("{message}: {}", look()));
        show();
        spinner.tick();
        let done = beside(show, work);
        spinner.finish_and_clear();
        done
    }
}

/// Calls `show` every so often while `work` is done.
pub fn beside<T>(show: impl Fn() + Send, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                show();
            }
        });
        let done = work();
        drop(end);
        done
    })
}

/// How far commits of stores are: what was written back since now.
pub fn written_back<'s>(stores: Vec<&'s Store>) -> impl Fn() -> String + Send + use<'s> {
    let before: Vec<StoreStat> = stores.iter().map(|store| store.stat()).collect();
    move || {
        let (mut names, mut bytes) = (0, 0);
        for (store, before) in stores.iter().zip(&before) {
            let now = store.stat();
            names += now.home_names_changed.saturating_sub(before.home_names_changed);
            bytes += now.home_bytes_written.saturating_sub(before.home_bytes_written);
        }
        format!("{}, {} written back", count(names, "name"), size(bytes))
    }
}

/// How far groups of stores are, in bytes of the log since now.
pub fn logged<'s>(stores: Vec<&'s Store>) -> impl Fn() -> String + Send + use<'s> {
    let logged = move || stores.iter().map(|store| store.stat().log_bytes_written).sum::<u64>();
    let before = logged();
    move || format!("{} in the log", size(logged().saturating_sub(before)))
}

/// What was copied so far.
#[derive(Default)]
pub struct SoFar {
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl SoFar {
    /// One object more is there.
    pub fn object(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes of content more are there.
    pub fn bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many objects.
    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// In words.
    pub fn text(&self) -> String {
        format!("{}, {}", count(self.objects(), "object"), size(self.bytes.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However long the work takes, and however short.
    #[test]
    fn it_is_looked_while_the_work_is_done() {
        let copied = SoFar::default();
        let (looked, looks) = channel();
        let show = || _ = looked.send(copied.text());
        let done = beside(show, || {
            let first = looks.recv().expect("a look");
            copied.object();
            copied.bytes(3 << 20);
            let told = looks.iter().find(|text| *text != first).expect("another look");
            (first, told)
        });
        assert_eq!(done, ("0 objects, 0 B".into(), "1 object, 3.0 MiB".into()));
        assert_eq!(beside(|| (), || 7), 7);
    }
}
