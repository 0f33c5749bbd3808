//! A [`Vfs`] whose calls are made with another context, and something done before each of them.

use wholly_vfs::{Context, Vfs};

/// Calls go through to another implementation, with the context that `before` makes of theirs.
pub struct Through<'v, F> {
    inner: &'v dyn Vfs,
    before: F,
}

impl<'v, F: Fn(&Context) -> Context + Send + Sync> Through<'v, F> {
    /// Calls `before` before each call but `forget`.
    pub fn new(inner: &'v dyn Vfs, before: F) -> Self {
        Through { inner, before }
    }
}

impl<F> std::fmt::Debug for Through<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Through").finish_non_exhaustive()
    }
}

wholly_vfs::pass_on! {
    impl [F: Fn(&Context) -> Context + Send + Sync] Through<'_, F>;
    call |this, ctx, pass| pass(this.inner, &(this.before)(ctx));
    bare |this, pass| pass(this.inner);
    {}
}
