//! All that a process has started, and what that has started: whatever loses its parent becomes a child of the process,
//! so that none is missed.

use crate::error::Failure;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, set_child_subreaper, waitid, waitpid,
};
use std::collections::HashSet;
use std::io::Read;
use std::os::fd::OwnedFd;

/// The children of this process from some moment on.
pub struct Family {
    /// Open, so that it can be read whatever is mounted over `/proc` meanwhile.
    proc: OwnedFd,
    /// Those that it had before it was what it is: a shell may have left it some.
    others: HashSet<Pid>,
}

impl Family {
    /// From now on.
    pub fn begin() -> Result<Family, Failure> {
        let me = getpid().as_raw_nonzero().get();
        let as_proc_has_it = std::fs::read_link("/proc/self").ok().and_then(|me| me.to_str()?.parse().ok());
        if as_proc_has_it != Some(me) {
            return Err(Failure::new("run", "/proc does not show this process")
                .advice("mount /proc: the command's children are found there"));
        }
        let failed = |errno: Errno| Failure::new("run", format!("/proc: {errno}"));
        let proc = openat(CWD, "/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let proc = proc.map_err(failed)?;
        let others = if has_children().map_err(failed)? { children(&proc).map_err(failed)? } else { Vec::new() };
        let others = others.into_iter().collect();
        set_child_subreaper(Some(getpid())).map_err(failed)?;
        Ok(Family { proc, others })
    }

    /// Ends all of them, and what becomes a child by that.
    pub fn end(&self) -> Result<(), Failure> {
        self.end_all()
            .map_err(|errno| Failure::new("run", format!("processes that it has started cannot be ended: {errno}")))
    }

    fn end_all(&self) -> rustix::io::Result<()> {
        // Mostly there are none, which the kernel says at once, where its list would have to be read to the end.
        while has_children()? {
            let mine: Vec<Pid> =
                children(&self.proc)?.into_iter().filter(|child| !self.others.contains(child)).collect();
            if mine.is_empty() {
                return Ok(());
            }
            for child in &mine {
                match kill_process(*child, Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(errno) => return Err(errno),
                }
            }
            for child in mine {
                loop {
                    match waitpid(Some(child), WaitOptions::empty()) {
                        Err(Errno::INTR) => {}
                        Ok(_) | Err(Errno::CHILD) => break,
                        Err(errno) => return Err(errno),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether this process has any children, ended ones included.
fn has_children() -> rustix::io::Result<bool> {
    let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::io::retry_on_intr(|| waitid(WaitId::All, looks)) {
        Err(Errno::CHILD) => Ok(false),
        looked => looked.map(|_| true),
    }
}

/// The children of this process, as `/proc` has them.
fn children(proc: &OwnedFd) -> rustix::io::Result<Vec<Pid>> {
    let me = getpid();
    let parent = |pid: &str| {
        // It may have ended.
        let stat = openat(proc, format!("{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = String::new();
        std::fs::File::from(stat).read_to_string(&mut text).ok()?;
        // Behind the name, which may hold anything: state, parent.
        Pid::from_raw(text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?)
    };
    let mut mine = Vec::new();
    for entry in Dir::read_from(proc)? {
        let entry = entry?;
        let pid = entry.file_name().to_str().ok().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        if let Some(pid) = pid.filter(|pid| parent(pid) == Some(me)) {
            mine.extend(pid.parse().ok().and_then(Pid::from_raw));
        }
    }
    Ok(mine)
}
