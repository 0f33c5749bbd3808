//! A [`Vfs`] that counts requests for content.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wholly_vfs::Vfs;

/// Passes all calls on.
pub struct Counting {
    inner: Arc<dyn Vfs>,
    reads: Arc<AtomicU64>,
}

impl Counting {
    /// The second is how many reads there were.
    pub fn over(inner: Arc<dyn Vfs>) -> (Arc<dyn Vfs>, Arc<AtomicU64>) {
        let reads = Arc::new(AtomicU64::new(0));
        (Arc::new(Counting { inner, reads: reads.clone() }), reads)
    }
}

wholly_vfs::pass_on! {
    impl [] Counting;
    call |this, ctx, pass| pass(&*this.inner, ctx);
    bare |this, pass| pass(&*this.inner);
    {
        fn read(&self, ctx: &Context, handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.inner.read(ctx, handle, offset, buf)
        }
    }
}
