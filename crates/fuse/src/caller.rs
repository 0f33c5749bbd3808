//! On whose behalf a request is made.
//!
//! The kernel has checked permissions before it asks (the mount has `default_permissions` and access lists), it takes capabilities away by requests
//! of their own, and it says, or lets know by what it asks for, when set-id bits are to go. So what is left of a caller is whose new files are.

use fuser::Request;
use wholly::vfs::{Context, Mode};

use crate::adapter::Adapter;

impl Adapter {
    /// The caller, whom the kernel permits the call.
    pub fn permitted(&self, req: &Request) -> Context {
        Context { is_permitted: true, ..self.as_they_are(req) }
    }

    /// The same, who makes something.
    pub fn with_umask(&self, req: &Request, umask: u32) -> Context {
        Context { umask: Mode::from_raw_mode(umask & 0o777), ..self.permitted(req) }
    }

    /// The caller, who sees what he may.
    pub fn as_they_are(&self, req: &Request) -> Context {
        Context { group: self.group, groups: self.identity.groups(), ..Context::of(req.uid(), req.gid()) }
    }
}
