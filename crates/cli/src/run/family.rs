//! All that a process has started, and what that has started: whatever loses its parent becomes a child of the process, so that none is missed.

use crate::error::Failure;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use std::collections::HashSet;

/// The children of this process from some moment on.
pub struct Family {
    /// Those that it had before it was what it is: a shell may have left it some.
    others: HashSet<Pid>,
}

impl Family {
    /// From now on.
    pub fn begin() -> Result<Family, Failure> {
        let me = getpid().as_raw_nonzero().get();
        let as_proc_has_it = std::fs::read_link("/proc/self").ok().and_then(|me| me.to_str()?.parse().ok());
        if as_proc_has_it != Some(me) {
            return Err(Failure::new("run", "/proc is not that of this process")
                .advice("mount it: the command's children are found there"));
        }
        let others = children().into_iter().collect();
        set_child_subreaper(Some(getpid())).map_err(|errno| Failure::new("run", errno))?;
        Ok(Family { others })
    }

    /// Ends all of them, and what becomes a child by that.
    pub fn end(&self) -> Result<(), Failure> {
        self.end_all().map_err(|errno| Failure::new("run", format!("what it has started does not end: {errno}")))
    }

    fn end_all(&self) -> rustix::io::Result<()> {
        loop {
            let mine: Vec<Pid> = children().into_iter().filter(|child| !self.others.contains(child)).collect();
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
    }
}

/// The children of this process, as `/proc` has them.
fn children() -> Vec<Pid> {
    let me = getpid();
    let parent = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the name, which may hold anything: state, parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Pid::from_raw(parent)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid) == Some(me)).filter_map(Pid::from_raw).collect()
}
