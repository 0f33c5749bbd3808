//! On whose behalf a request is made.
//!
//! The kernel has checked permissions before it asks (the mount has `default_permissions` and access lists), it takes
//! capabilities away by requests of their own, and it says, or lets know by what it asks for, when set-id bits are to
//! go. So what is left of a caller is whose new files are.

use fuser::Request;
use wholly_vfs::{Context, Mode, Result};

use crate::adapter::Adapter;
use crate::groups::{Call, Look, Touches};

impl Adapter {
    /// A call that changes nothing, of who is permitted it.
    pub fn look(&self, req: &Request, look: Look<'_>) -> Call {
        self.groups.look(req, self.permitted(req), look, None)
    }

    /// The same, which is made again after it has found an inode, if it has.
    pub fn look_again(&self, req: &Request, look: Look<'_>, found: Option<u64>) -> Call {
        self.groups.look(req, self.permitted(req), look, found)
    }

    /// A call that changes what it touches, of who is permitted it.
    pub fn change(&self, req: &Request, touches: &Touches<'_>) -> Result<Call> {
        self.groups.change(req, self.permitted(req), touches)
    }

    /// The same, of who makes something.
    pub fn make(&self, req: &Request, umask: u32, touches: &Touches<'_>) -> Result<Call> {
        let umask = Mode::from_raw_mode(umask & 0o777);
        self.groups.change(req, Context { umask, ..self.permitted(req) }, touches)
    }

    /// A call that makes durable what is in no group, of who is permitted it.
    pub fn outside(&self, req: &Request) -> Call {
        self.groups.outside(req, self.permitted(req))
    }

    /// A call that the kernel makes some time after a process has closed a file.
    pub fn late(&self, req: &Request) -> Call {
        self.groups.late(self.permitted(req))
    }

    /// The caller, whom the kernel permits the call.
    pub fn permitted(&self, req: &Request) -> Context {
        Context { is_permitted: true, ..self.as_they_are(req) }
    }

    /// The caller, who sees what he may.
    pub fn as_they_are(&self, req: &Request) -> Context {
        Context { groups: self.identity.groups(), thread: req.pid(), ..Context::of(req.uid(), req.gid()) }
    }
}
