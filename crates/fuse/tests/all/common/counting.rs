//! A `Vfs` that counts requests for content.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wholly_error::Result;
use wholly_vfs::{Committed, GroupId, Groups, Handle, Seen, Ticket};

/// Passes all calls on.
pub struct Counting {
    inner: Arc<dyn Groups>,
    reads: Arc<AtomicU64>,
}

impl Counting {
    /// The second is how many reads there were.
    pub fn over(inner: Arc<dyn Groups>) -> (Arc<dyn Groups>, Arc<AtomicU64>) {
        let reads = Arc::new(AtomicU64::new(0));
        (Arc::new(Counting { inner, reads: reads.clone() }), reads)
    }
}

wholly_vfs::pass_on! {
    impl [] Counting;
    call |this, ctx, pass| pass(&*this.inner, ctx);
    bare |this, pass| pass(&*this.inner);
    {
        fn read(&self, ctx: &Context, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.inner.read(ctx, handle, offset, buf)
        }
    }
}

impl Groups for Counting {
    fn begin_as(&self, seen: Seen) -> Result<GroupId> {
        self.inner.begin_as(seen)
    }

    fn add(&self, group: GroupId, handle: &Handle) -> Result<()> {
        self.inner.add(group, handle)
    }

    fn commit_all(&self, groups: &[GroupId], how: Committed) -> Result<Ticket> {
        self.inner.commit_all(groups, how)
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.inner.wait(ticket)
    }

    fn abort(&self, group: GroupId) -> Result<()> {
        self.inner.abort(group)
    }
}
