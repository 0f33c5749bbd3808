//! What all queues of a controller share: the transport, its time limits, and whether it has failed.

use std::sync::Arc;
use std::time::Duration;

use sync::{Condvar, Mutex};
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Site};

use super::Mistake;
use crate::site;
use crate::spec::{PmrCapabilities, PmrStatus, csts, register};
use crate::transport::Transport;

/// A waiting thread looks at the controller's status so often, and at its queue even if no interrupt came.
const SLICE: Duration = Duration::from_millis(10);

pub(super) struct Link {
    pub transport: Arc<dyn Transport>,
    /// Bytes from one doorbell to the next.
    pub stride: u32,
    /// How long a command may take.
    pub timeout: Duration,
    pub mistake: Option<Mistake>,
    failed: Mutex<Failed>,
    /// Which queues are leased.
    pub leased: Mutex<Vec<bool>>,
    /// A lease was given back, or nothing goes on any more.
    pub returned: Condvar,
}

#[derive(Default)]
struct Failed {
    /// Why no transaction completes any more.
    why: Option<Error>,
    /// Whether the controller was disabled, and not enabled again.
    is_off: bool,
    /// Whether its owner has ended it.
    has_ended: bool,
    /// Whether it goes on when nobody has it any more: as when the process dies.
    is_abandoned: bool,
}

/// An error of a command, as `EIO`.
pub(super) fn media(transport: &dyn Transport, queue: u16, what: &str, why: &str) -> Error {
    let place = format!("{}, queue {queue}, {what}: {why}", transport.name());
    Error::Media(MediaError::new("command to", place, rustix::io::Errno::IO))
}

impl Link {
    pub fn new(transport: Arc<dyn Transport>, stride: u32, timeout: Duration, mistake: Option<Mistake>) -> Link {
        Link {
            transport,
            stride,
            timeout,
            mistake,
            failed: Mutex::default(),
            leased: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub fn error(&self, queue: u16, what: &str, why: &str) -> Error {
        media(&*self.transport, queue, what, why)
    }

    /// # Errors
    /// Why no transaction completes any more, if that is so.
    pub fn check(&self) -> Result<()> {
        self.failed.lock().unwrap().why.clone().map_or(Ok(()), Err)
    }

    /// No transaction completes from now on; the first reason counts. Returns it.
    pub fn fail(&self, why: Error) -> Error {
        let why = self.failed.lock().unwrap().why.get_or_insert(why).clone();
        // Taking the lock once makes sure that a thread in `lease` either sees the failure, or is notified.
        drop(self.leased.lock().unwrap());
        self.returned.notify_all();
        why
    }

    /// Whether the controller was disabled because it did not answer.
    pub fn is_off(&self) -> bool {
        self.failed.lock().unwrap().is_off
    }

    pub fn is_on_again(&self) {
        self.failed.lock().unwrap().is_off = false;
    }

    /// Nothing goes on from now on: queues that callers still have say so.
    pub fn end(&self) {
        let failed = &mut *self.failed.lock().unwrap();
        failed.why.get_or_insert_with(|| media(&*self.transport, 0, "the controller", "it was closed"));
        (failed.is_off, failed.has_ended) = (true, true);
    }

    pub fn has_ended(&self) -> bool {
        self.failed.lock().unwrap().has_ended
    }

    pub fn abandon(&self) {
        self.failed.lock().unwrap().is_abandoned = true;
    }

    pub fn is_abandoned(&self) -> bool {
        self.failed.lock().unwrap().is_abandoned
    }

    /// The controller does not answer, or says that it is broken. It is disabled, so that nothing which it was told
    /// lands later.
    fn give_up(&self, why: String) -> Error {
        let error = self.fail(media(&*self.transport, 0, "the controller", &why));
        let failed = &mut *self.failed.lock().unwrap();
        if !failed.is_off {
            // If even that fails there is nothing more to do; the next open resets it before it reads. The lock is
            // held, so that nobody enables it in between.
            let _ = self.transport.write32(site::RESET, register::CC, 0);
            failed.is_off = true;
        }
        error
    }

    /// Calls `look` until it finds something, and waits in between. `since` says when the time of what is in flight on
    /// the queue began.
    ///
    /// # Errors
    /// `look`'s. `Media` (`EIO`) if the controller reports a fatal error, or if the time of a command has passed since
    /// both then and the beginning of the wait; it is disabled then.
    pub fn wait_for<T>(
        &self,
        interrupt: u16,
        since: impl Fn() -> Option<Duration>,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let begun = self.transport.now();
        let (mut deadline, mut looked) = (begun + self.timeout, begun);
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.is_off() {
                return Err(self.check().expect_err("it was given up for a reason"));
            }
            let now = self.transport.now();
            if now >= deadline {
                deadline = since().unwrap_or(begun).max(begun) + self.timeout;
            }
            if now >= deadline {
                return Err(self.give_up(format!("no answer in {} s", self.timeout.as_secs_f32())));
            }
            if now >= looked + SLICE {
                looked = now;
                let status = self.transport.read32(register::CSTS)?;
                // A device that is gone reads as ones.
                if status & csts::CFS != 0 {
                    return Err(self.give_up(format!("it reports a fatal error (CSTS {status:#x})")));
                }
            }
            self.transport.pause(interrupt, deadline.min(now + SLICE))?;
        }
    }

    /// Makes durable what has been ordered in the region. A region whose barrier does not tell how it is, is asked.
    ///
    /// # Errors
    /// `Media` (`EIO`) for a region that cannot be relied on.
    pub fn barrier(&self, queue: u16, region: PmrCapabilities, site: Site) -> Result<()> {
        let by = region.barrier().expect("a region without one is refused at the start");
        let status = match self.transport.region().barrier(site, by)? {
            Some(status) => status,
            None => PmrStatus(self.transport.read32(register::PMRSTS)?),
        };
        match status.fault() {
            Some(fault) => Err(self.error(queue, "the persistent memory region", fault)),
            None => Ok(()),
        }
    }

    /// Waits until bits of a register have a value.
    ///
    /// # Errors
    /// `Media` (`EIO`) if they do not in time, or the controller reports a fatal error.
    pub fn wait_register(&self, register: u32, mask: u32, value: u32, limit: Duration) -> Result<()> {
        let deadline = self.transport.now() + limit;
        loop {
            let read = self.transport.read32(register)?;
            if read & mask == value {
                return Ok(());
            }
            let now = self.transport.now();
            // A controller that is to become ready may fail to; one that is reset may have been broken before.
            let is_broken = register == crate::spec::register::CSTS && value & csts::RDY != 0 && read & csts::CFS != 0;
            if now >= deadline || is_broken {
                let why = format!("register {register:#x} has {read:#x} after {} ms", limit.as_millis());
                return Err(media(&*self.transport, 0, "the controller", &why));
            }
            self.transport.pause(0, deadline.min(now + SLICE / 10))?;
        }
    }
}
