//! Calls on a host directory, counted: what a store asks of it costs the same on any machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wholly_host::HostFs;

/// A host directory that counts the calls that go by a path. Calls that failed count.
pub struct CountingHost {
    inner: Arc<dyn HostFs>,
    calls: AtomicU64,
}

impl CountingHost {
    /// Nothing was asked of `inner` yet.
    pub fn new(inner: Arc<dyn HostFs>) -> Arc<CountingHost> {
        Arc::new(CountingHost { inner, calls: AtomicU64::new(0) })
    }

    /// How many calls were made since this was called last.
    pub fn take(&self) -> u64 {
        self.calls.swap(0, Ordering::Relaxed)
    }
}

wholly_host::pass_on! {
    CountingHost;
    ask |this| &*this.inner;
    call |this, _name| {
        this.calls.fetch_add(1, Ordering::Relaxed);
        &*this.inner
    };
    HostFs {
        // Where inodes last there is nothing to do.
        fn settle(&self, at: At<'_>) -> Result<Option<Stat>> {
            self.inner.settle(at)
        }
    }
    HostNames {}
}
