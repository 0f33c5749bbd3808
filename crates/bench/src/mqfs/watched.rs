//! Queues of a journal, watched: what goes home, what is read, and how long handing over and waiting take.

use std::sync::Arc;
use std::time::Duration;

use blocks_events::multi_queue::{Life, QueueGuarantees, Queues, Unfinished, Write};
use blocks_events::{Lba, Page, Txid};
use sync_events::{AtomicU64, Ordering, now};
use wholly_media::Site;

type Done<T> = wholly::Result<T>;

/// Where the journal writes what goes home, and that it has.
const HOME: [&str; 2] = ["mq.home", "mq.header"];

/// See the module.
pub(super) struct Watched {
    inner: Arc<dyn Queues>,
    read: AtomicU64,
    home: AtomicU64,
    commit_ns: AtomicU64,
    wait_ns: AtomicU64,
}

/// What was seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// Blocks that were read.
    pub read: u64,
    /// Writes home, and of headers.
    pub home: u64,
    /// Time of handing over.
    pub commit: Duration,
    /// Time of waiting.
    pub wait: Duration,
}

impl Watched {
    pub fn new(inner: Arc<dyn Queues>) -> Arc<Watched> {
        let zero = || AtomicU64::new(0);
        let (read, home, commit_ns, wait_ns) = (zero(), zero(), zero(), zero());
        Arc::new(Watched { inner, read, home, commit_ns, wait_ns })
    }

    pub fn seen(&self) -> Watch {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Watch {
            read: get(&self.read),
            home: get(&self.home),
            commit: Duration::from_nanos(get(&self.commit_ns)),
            wait: Duration::from_nanos(get(&self.wait_ns)),
        }
    }
}

fn timed<T>(counter: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let begun = now();
    let done = work();
    counter.fetch_add((now() - begun).as_nanos() as u64, Ordering::Relaxed);
    done
}

impl Queues for Watched {
    fn guarantees(&self) -> &QueueGuarantees {
        self.inner.guarantees()
    }

    fn unfinished(&self) -> Unfinished {
        self.inner.unfinished()
    }

    fn start(&self, site: Site, life: Life) -> Done<()> {
        self.inner.start(site, life)
    }

    fn commit(&self, site: Site, queue: u16, tx: Txid, writes: Vec<Write>) -> Done<u64> {
        timed(&self.commit_ns, || self.inner.commit(site, queue, tx, writes))
    }

    fn wait(&self, site: Site, queue: u16, place: u64) -> Done<()> {
        timed(&self.wait_ns, || self.inner.wait(site, queue, place))
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Done<()> {
        self.read.fetch_add(bytes.len() as u64 / 4096, Ordering::Relaxed);
        self.inner.read_run(at, bytes)
    }

    fn write(&self, site: Site, at: Lba, pages: &[Page]) -> Done<()> {
        self.home.fetch_add(u64::from(HOME.contains(&site.0)), Ordering::Relaxed);
        self.inner.write(site, at, pages)
    }

    fn flush(&self, site: Site) -> Done<()> {
        self.inner.flush(site)
    }

    fn close(&self, site: Site) -> Done<()> {
        self.inner.close(site)
    }
}
