//! Which process makes a request.
//!
//! A request names the thread that makes it. That thread waits for the answer, and cannot end before: the kernel waits
//! for it even where the process is being killed. So as long as a request is not answered its number is nobody else's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use wholly_vfs::{Errno, Result};

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    /// Readable when it has ended.
    descriptor: OwnedFd,
}

impl Process {
    /// The process of a thread that waits for an answer.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the kernel does not say which thread that is (it is in a namespace of processes that the
    /// server does not see), or has no descriptors of processes (before Linux 5.3).
    pub fn of(thread: u32) -> Result<Process> {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).map_err(|_| Errno::OPNOTSUPP)?;
        let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|pid| pid.trim().parse().ok());
        let pid = pid.and_then(Pid::from_raw).ok_or(Errno::OPNOTSUPP)?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
            Errno::NOSYS => Errno::OPNOTSUPP,
            errno => errno,
        })?;
        Ok(Process { pid, descriptor })
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let mut asked = [PollFd::new(&self.descriptor, PollFlags::IN)];
        // An error says nothing of it: then it is as it was.
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Whether a thread that waits for an answer is one of its own.
    pub fn has(&self, thread: u32) -> bool {
        let is_there = thread == self.number() as u32
            || thread != 0 && Path::new(&format!("/proc/{}/task/{thread}", self.number())).exists();
        // The last question: only of a process that has not ended is the number its own.
        is_there && !self.has_ended()
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_known_and_ends_are() {
        let me = Process::of(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        assert_eq!(me.number() as u32, std::process::id());
        std::thread::scope(|scope| {
            let one = scope.spawn(|| me.has(rustix::thread::gettid().as_raw_nonzero().get() as u32));
            assert!(one.join().unwrap(), "a thread that runs");
        });
        assert!(!me.has(1) && !me.has(0));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let other = Process::of(child.id()).unwrap();
        assert!(other.has(child.id()) && !me.has(child.id()) && !other.has(std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.has_ended() && !other.has(child.id()));
        assert!(matches!(Process::of(0), Err(Errno::OPNOTSUPP)));
    }
}
