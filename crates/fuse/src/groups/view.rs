//! A mount all of which is one group, which whoever mounted it ends: groups of programs join it. They have no end of their own, so that one which
//! is undone dooms all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wholly::vfs::{Context, Errno, GroupId, Result};

use super::process::Process;
use super::{Asker, Call};

/// Why the group that a mount shows is not to be committed, if it is not. Clones are of the same mount.
#[derive(Clone, Debug, Default)]
pub struct Doom(Arc<OnceLock<String>>);

impl Doom {
    /// What has happened, in words, once it has.
    pub fn why(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

pub(crate) struct View {
    group: GroupId,
    /// Groups that have joined, by their open files.
    joined: Mutex<HashMap<u64, Process>>,
    doom: Doom,
}

impl View {
    pub fn new(group: GroupId) -> View {
        View { group, joined: Mutex::default(), doom: Doom::default() }
    }

    pub fn doom(&self) -> Doom {
        self.doom.clone()
    }

    pub fn call(&self, ctx: Context) -> Call<'_> {
        Call { ctx: Context { group: Some(self.group), ..ctx }, is_members: false, state: None }
    }

    fn joined(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Process>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self, asker: Asker) -> Result<i32> {
        let process = Process::of(asker.thread)?;
        let mut joined = self.joined();
        // Groups do not nest.
        if joined.contains_key(&asker.handle) || joined.values().any(|process| process.has(asker.thread)) {
            return Err(Errno::BUSY);
        }
        joined.insert(asker.handle, process);
        Ok(0)
    }

    /// All calls belong to the one group already.
    pub fn add(&self, asker: Asker) -> Result<i32> {
        let joined = self.joined();
        match joined.values().any(|process| process.has(asker.thread)) {
            true => Ok(0),
            false if joined.is_empty() => Err(Errno::INVAL),
            false => Err(Errno::PERM),
        }
    }

    /// It is left to the end of all.
    pub fn commit(&self, asker: Asker) -> Result<i32> {
        self.leave(asker).map(|_| 0)
    }

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
