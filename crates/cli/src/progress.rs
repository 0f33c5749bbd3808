//! What a terminal shows of verbs that take long: how far they are, in counts. Nothing without a terminal.

use crate::output::{Ui, count, size};
use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use wholly::{Store, StoreStat};

/// How often the counts are renewed.
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

/// How far commits of stores are: what was written back since the first look.
pub fn written_back<'s>(stores: Vec<&'s Store>) -> impl Fn() -> String + Send + use<'s> {
    let so_far = since_first(stores, |stat| [stat.home_names_changed, stat.home_bytes_written]);
    move || {
        let [names, bytes] = so_far();
        format!("{}, {} written back", count(names, "name"), size(bytes))
    }
}

/// How far groups of stores are, in bytes of the log.
pub fn logged<'s>(stores: Vec<&'s Store>) -> impl Fn() -> String + Send + use<'s> {
    let so_far = since_first(stores, |stat| [stat.log_bytes_written]);
    move || format!("{} in the log", size(so_far()[0]))
}

/// Sums of figures of stores, less what they were at the first look: without a terminal there is none.
fn since_first<const N: usize>(
    stores: Vec<&Store>,
    of: fn(&StoreStat) -> [u64; N],
) -> impl Fn() -> [u64; N] + Send + use<'_, N> {
    let first = OnceCell::new();
    move || {
        let mut now = [0; N];
        for figures in stores.iter().map(|store| of(&store.stat())) {
            now.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        }
        let first = first.get_or_init(|| now);
        std::array::from_fn(|i| now[i].saturating_sub(first[i]))
    }
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
