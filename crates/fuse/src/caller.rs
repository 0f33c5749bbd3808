//! On whose behalf a request is made.
//!
//! The kernel has checked permissions before it asks (the mount has `default_permissions` and access lists), and it takes set-id bits and
//! capabilities away by requests of their own. So what is left of a caller is whose new files are.

use fuser::Request;
use wholly::vfs::{Context, Mode};

/// The caller, whom the kernel permits the call.
pub(crate) fn permitted(req: &Request) -> Context {
    Context { is_permitted: true, ..Context::of(req.uid(), req.gid()) }
}

/// The same, who makes something.
pub(crate) fn with_umask(req: &Request, umask: u32) -> Context {
    Context { umask: Mode::from_raw_mode(umask & 0o777), ..permitted(req) }
}

/// The caller, who sees what he may.
pub(crate) fn as_they_are(req: &Request) -> Context {
    Context::of(req.uid(), req.gid())
}
