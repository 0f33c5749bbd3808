//! Looking at times before an operation and after it.
//!
//! Clocks of file systems tick slowly, and a verdict must not depend on how fast anything is. So access and content
//! times are set to the past before, and a change counts where they have left it. `ctime` cannot be set; [`Before`]
//! lets a tick pass on another file, however long it takes, and then what changes is later, strictly.

use wholly_vfs::{Attr, Errno, SetAttr, SetTime, Timestamp};

use crate::check::{Failure, Outcome, holds};
use crate::tree::{Tree, at};

pub(super) const PAST: i64 = 1_000_000;

/// Things in a known state, and a clock that has ticked since.
pub(super) struct Before<'a, 'v> {
    t: &'a Tree<'v>,
    stats: Vec<(String, Attr)>,
}

impl<'a, 'v> Before<'a, 'v> {
    /// Sets `atime` and `mtime` of these to the past, and waits until what happens from now on is later than their
    /// `ctime`.
    pub fn of(t: &'a Tree<'v>, names: &[&str]) -> Result<Self, Errno> {
        let mut stats = Vec::new();
        for name in names {
            t.utimes(name, at(PAST), at(PAST))?;
            stats.push((name.to_string(), t.stat(name)?));
        }
        let latest = stats.iter().map(|(_, stat)| stat.ctime).max().unwrap_or_default();
        let clock = t.find("/")?;
        // A tick is some milliseconds, or as fine as one looks (Linux 6.13); a clock that stands still for a minute is
        // worth a failure.
        for round in 0..60_000 {
            t.vfs.setattr(&t.ctx, clock.ino(), None, &SetAttr { mtime: SetTime::Now, ..SetAttr::default() })?;
            // Not its `ctime`: what a pass of a store does to the directory at home, beside us, is told by a finer
            // clock than the store's.
            if t.vfs.getattr(&t.ctx, clock.ino())?.mtime > latest {
                return Ok(Before { t, stats });
            }
            if round > 2 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        panic!("the clock of the file system does not go on");
    }

    pub fn stat(&self, name: &str) -> Result<Attr, Failure> {
        let known = self.stats.iter().find(|(known, _)| known == name);
        known.map(|(_, stat)| *stat).ok_or_else(|| Failure::new(format!("{name} was not looked at before")))
    }

    /// Which of `a`, `m` and `c` have changed of `name`, which was called `old`.
    fn changed(&self, old: &str, now: Attr) -> Result<String, Failure> {
        let before = self.stat(old)?;
        let changed = |then: Timestamp, now: Timestamp, letter| if then == now { "" } else { letter };
        holds(now.ctime >= before.ctime, "ctime does not go back")?;
        let (a, m) = (changed(before.atime, now.atime, "a"), changed(before.mtime, now.mtime, "m"));
        Ok([a, m, changed(before.ctime, now.ctime, "c")].concat())
    }

    #[track_caller]
    pub fn expect(&self, name: &str, wanted: &str) -> Outcome {
        self.expect_as(name, name, wanted)
    }

    /// Of what has another name by now.
    #[track_caller]
    pub fn expect_as(&self, old: &str, name: &str, wanted: &str) -> Outcome {
        let got = self.changed(old, self.t.stat(name)?)?;
        if got == wanted { Ok(()) } else { Err(Failure::new(format!("{name}: changed {got:?}, not {wanted:?}"))) }
    }
}
