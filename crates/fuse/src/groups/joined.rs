//! Groups of programs that join a group which somebody else ends. They have no end of their own, so that one which is
//! undone dooms all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use wholly_vfs::{Errno, Result};

use super::process::Process;

/// Why the group that a view shows is not to be committed, if it is not. Clones are of the same view.
#[derive(Clone, Debug, Default)]
pub struct Doom(Arc<OnceLock<String>>);

impl Doom {
    /// What has happened, in words, once it has.
    pub fn why(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Who asks, about which open file.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The thread, which waits for the answer.
    pub thread: u32,
    /// By which the open file is known until its last close.
    pub handle: u64,
}

/// The groups that have joined a view. Each is that of a process, and of what that has begun it by: an open file of the
/// view, or a connection.
#[derive(Debug, Default)]
pub struct Joined {
    /// By their open files.
    joined: Mutex<HashMap<u64, Process>>,
    doom: Doom,
}

impl Joined {
    /// Whether one of them was undone.
    pub fn doom(&self) -> Doom {
        self.doom.clone()
    }

    fn joined(&self) -> MutexGuard<'_, HashMap<u64, Process>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One joins.
    ///
    /// # Errors
    /// `EBUSY` where the process or the open file has one, since groups do not nest; `EOPNOTSUPP` where it is not known
    /// which process asks.
    pub fn begin(&self, asker: Asker) -> Result<i32> {
        let process = Process::of(asker.thread)?;
        let mut joined = self.joined();
        if joined.contains_key(&asker.handle) || joined.values().any(|process| process.has(asker.thread)) {
            return Err(Errno::BUSY);
        }
        joined.insert(asker.handle, process);
        Ok(0)
    }

    /// An open file is to be one of the asker's group. All calls belong to the one group already.
    ///
    /// # Errors
    /// `EINVAL` where there is no group, `EPERM` where only others have some.
    pub fn add(&self, asker: Asker) -> Result<i32> {
        let joined = self.joined();
        match joined.values().any(|process| process.has(asker.thread)) {
            true => Ok(0),
            false if joined.is_empty() => Err(Errno::INVAL),
            false => Err(Errno::PERM),
        }
    }

    /// Its commit is left to the end of all.
    ///
    /// # Errors
    /// `EINVAL` where it has ended, `EPERM` for another process.
    pub fn commit(&self, asker: Asker) -> Result<i32> {
        self.leave(asker).map(|_| 0)
    }

    /// It is undone, and all with it.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn abort(&self, asker: Asker) -> Result<i32> {
        let process = self.leave(asker)?;
        self.doom_by(&process, "has aborted its group");
        Ok(0)
    }

    fn leave(&self, asker: Asker) -> Result<Process> {
        let mut joined = self.joined();
        match joined.get(&asker.handle) {
            None => Err(Errno::INVAL),
            Some(process) if !process.has(asker.thread) => Err(Errno::PERM),
            Some(_) => joined.remove(&asker.handle).ok_or(Errno::INVAL),
        }
    }

    /// The last close of an open file.
    pub fn release(&self, handle: u64) {
        if let Some(process) = self.joined().remove(&handle) {
            self.doom_by(&process, "has not committed its group");
        }
    }

    /// The first one counts.
    fn doom_by(&self, process: &Process, what: &str) {
        let number = process.number();
        let name = std::fs::read_to_string(format!("/proc/{number}/comm"));
        // It may have ended; then its number may be another one's.
        let name = name.ok().filter(|_| !process.has_ended()).map(|name| format!(" ({})", name.trim_end()));
        let _ = self.doom.0.set(format!("process {number}{} {what}", name.unwrap_or_default()));
    }
}
