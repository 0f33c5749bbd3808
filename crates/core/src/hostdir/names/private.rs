//! What a running group has done to names: only it sees that until it commits.

use std::collections::{BTreeMap, HashMap};

use super::packed::Packed;
use super::{Held, Whole};
use crate::hostdir::clock::{AT_HOME, Mtime};
use wholly_changes::{Ids, Name, Set};
use wholly_vfs::rules::acl::Acl;

/// What a name was and is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The committed value when the group claimed the name, which nobody has changed since.
    pub committed: u64,
    /// The value for the group.
    pub after: u64,
}

/// What a group has done to an object's names, and what its records say of it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Trace {
    /// When the group last changed anything of it, or [`AT_HOME`] for never.
    ctime_ns: i64,
    /// How many names more than all others see it has for the group, what it has made being seen with one. So what it
    /// made with one name, as is usual, has no trace.
    links: i32,
    /// The [round](Private::round) in which the group's records identify it, counted from [`FIRST`]; [`NEVER`] if they
    /// speak of it and do not; [`NOT_SPOKEN_OF`] if they do not speak of it.
    told: u32,
}

const NOT_SPOKEN_OF: u32 = 0;
const NEVER: u32 = 1;
const FIRST: u32 = 2;

impl Default for Trace {
    fn default() -> Self {
        Trace { ctime_ns: AT_HOME as i64, links: 0, told: NOT_SPOKEN_OF }
    }
}

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Private {
    changes: Packed<Name, Change>,
    /// The last name that the group gave an object, if it has that still; of directories, and of what it has neither
    /// made nor adopted.
    places: HashMap<u64, Name>,
    traces: Packed<u64, Trace>,
    /// The announced tail for which the group identifies what it speaks of, and how many there were before that.
    round: (u64, u32),
    /// How many directories more than all others see a directory has for the group.
    directories: HashMap<u64, i64>,
    /// Objects that the group made.
    born: Ids,
    /// Files without a name to which it gave their first one: there is no other first one, whatever becomes of that.
    pub first_named: Ids,
    /// Attributes that it set; also of objects of which it only told the time.
    sets: BTreeMap<u64, Set>,
    /// Default lists of directories in which it makes objects, as it saw them first.
    pub defaults: HashMap<u64, Option<Acl>>,
    /// Of directories, when it changed what is in them; of all but regular files, the time that it told.
    mtimes: BTreeMap<u64, Mtime>,
    /// Objects that it identified.
    logged: Ids,
    /// Objects that it made with all their bytes, of which it told the log.
    staged: Vec<u64>,
    /// Objects that it has adopted.
    pub adopted: Ids,
    /// Directories that it gives a name with everything in them.
    pub given_whole: Vec<u64>,
    /// Directories that it takes the name with everything in them, as in [`State::whole`](super::State).
    pub taken_whole: BTreeMap<u64, Whole>,
    /// The groups that it is, of those that are set aside.
    pub applied: Vec<u64>,
    /// Its id, where it is provisional, and whether it waits for the decision of a joint commit.
    pub provisional: Option<(u64, bool)>,
    /// What it has claimed, except for the names that it has [set](Self::set) and the objects that it made.
    pub held: Held,
    /// The highest sequence of a group that had changed what it changes.
    pub after: u64,
}

impl Private {
    /// The value of a name, if the group has changed it.
    pub fn get(&self, dir: u64, name: &[u8]) -> Option<u64> {
        if self.changes.is_empty() {
            return None;
        }
        self.changes.get(&(dir, name.into())).map(|change| change.after)
    }

    /// Sets a name that has been `before`, for the group, which has claimed it. `is_dir` says whether `after` is a
    /// directory.
    pub fn set(&mut self, name: Name, before: u64, (after, is_dir): (u64, bool)) {
        let new = || Change { committed: before, after };
        let change = self.changes.get_or_insert_with(name.clone(), new);
        change.after = after;
        // A call claims few names.
        let held = self.held.names.iter().rev().take(8).position(|held| *held == name);
        if let Some(behind) = held {
            self.held.names.swap_remove(self.held.names.len() - 1 - behind);
        }
        let dir = name.0;
        if self.places.get(&before) == Some(&name) {
            self.places.remove(&before);
        }
        // What is the group's own, and no directory, has a name as long as it has links.
        if after != 0 && (is_dir || !(self.is_born(after) || self.adopted.contains(after))) {
            self.places.insert(after, name);
        }
        for (id, more) in [(before, -1), (after, 1)] {
            if id != 0 {
                self.count(id, more);
            }
        }
        for id in [dir, before, after] {
            self.speak_of(id);
        }
    }

    fn count(&mut self, id: u64, more: i32) {
        let trace = self.traces.get_or_insert_with(id, Trace::default);
        trace.links += more;
        if *trace == Trace::default() {
            self.traces.remove(&id);
        }
    }

    /// Gives up all names that it has changed: they are everybody's.
    pub(super) fn take_changes(&mut self) -> Packed<Name, Change> {
        std::mem::take(&mut self.changes)
    }

    /// All names that it has claimed, except for those that were [taken](Self::take_changes).
    pub fn claimed(&self) -> impl Iterator<Item = &Name> {
        self.held.names.iter().chain(self.changes.keys())
    }

    /// All objects that it has claimed alone.
    pub fn owned(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        self.held.alone.iter().chain(self.born.iter())
    }

    /// Sets attributes of an object.
    pub fn put(&mut self, id: u64, set: &Set) {
        self.sets.entry(id).or_default().put(set);
    }

    /// What the group set of an object's attributes.
    pub fn set_of(&self, id: u64) -> Option<&Set> {
        self.sets.get(&id)
    }

    pub fn sets(&self) -> impl Iterator<Item = (&u64, &Set)> {
        self.sets.iter()
    }

    /// The content of an object, which is no regular file, has changed.
    pub fn set_mtime(&mut self, id: u64, mtime: Mtime) {
        self.mtimes.insert(id, mtime);
    }

    /// The group has changed something of an object.
    pub fn set_ctime(&mut self, id: u64, now: i64) {
        if id != 0 {
            self.traces.get_or_insert_with(id, Trace::default).ctime_ns = now;
        }
    }

    /// When the group has changed something of an object.
    pub fn ctime_of(&self, id: u64) -> Option<i64> {
        self.traces.get(&id).map(|trace| trace.ctime_ns).filter(|&ns| ns != AT_HOME as i64)
    }

    pub fn ctimes(&self) -> impl Iterator<Item = (u64, i64)> {
        let all = self.traces.iter().map(|(id, trace)| (*id, trace.ctime_ns));
        all.filter(|(_, ns)| *ns != AT_HOME as i64)
    }

    pub fn mtime_of(&self, id: u64) -> Mtime {
        self.mtimes.get(&id).copied().unwrap_or_default()
    }

    pub fn mtimes(&self) -> impl Iterator<Item = (&u64, &Mtime)> {
        self.mtimes.iter()
    }

    /// The group made an object, which it has just claimed.
    pub fn add_born(&mut self, id: u64) {
        let claimed = self.held.alone.remove(id);
        debug_assert!(claimed, "what is made is claimed");
        self.born.insert(id);
        self.count(id, -1);
    }

    /// Whether the group made an object.
    #[inline]
    pub fn is_born(&self, id: u64) -> bool {
        self.born.contains(id)
    }

    pub fn born(&self) -> &Ids {
        &self.born
    }

    /// The log knows where the host has what the group made, with its bytes.
    pub fn add_staged(&mut self, id: u64) {
        self.staged.push(id);
    }

    pub fn staged(&self) -> &[u64] {
        &self.staged
    }

    /// The log will have to know the object.
    pub fn speak_of(&mut self, id: u64) {
        // What it makes itself its records tell in full.
        if id != 0 && !self.is_born(id) {
            let trace = self.traces.get_or_insert_with(id, Trace::default);
            if trace.told == NOT_SPOKEN_OF {
                trace.told = NEVER;
            }
        }
    }

    /// Whether it has changed nothing, and only speaks of objects.
    pub fn only_speaks(&self) -> bool {
        let is_unchanged = self.changes.iter().next().is_none() && self.sets.is_empty() && self.mtimes.is_empty();
        is_unchanged && self.born.is_empty() && self.staged.is_empty() && self.ctimes().next().is_none()
    }

    /// Whether it has changed anything of an object.
    pub fn has_changed(&self, id: u64) -> bool {
        self.traces.get(&id).is_some() || self.sets.contains_key(&id) || self.mtimes.contains_key(&id)
    }

    /// All names that it has changed.
    pub fn changes(&self) -> impl Iterator<Item = (&Name, &Change)> + Clone {
        self.changes.iter()
    }

    /// Those in one directory.
    pub fn changes_in(&self, dir: u64) -> impl Iterator<Item = (&[u8], &Change)> {
        let names = self.changes.from((dir, [].into()));
        names.take_while(move |(name, _)| name.0 == dir).map(|(name, change)| (&*name.1, change))
    }

    /// Where the group sees a directory, if it has named it.
    pub fn place(&self, id: u64) -> Option<&Name> {
        self.places.get(&id)
    }

    /// How many names more than all others see the object has for the group.
    pub fn links(&self, id: u64) -> i64 {
        i64::from(self.is_born(id)) + self.traces.get(&id).map_or(0, |trace| trace.links.into())
    }

    /// A name was set, by which there are so many directories more in this one.
    pub fn count_directories(&mut self, dir: u64, more: i64) {
        if more != 0 {
            *self.directories.entry(dir).or_default() += more;
        }
    }

    /// How many directories more than all others see the directory has for the group.
    pub fn directories(&self, dir: u64) -> i64 {
        self.directories.get(&dir).copied().unwrap_or(0)
    }

    /// Objects that are to be identified for `announced`, and were not by the group itself.
    pub fn unidentified(&self, announced: u64) -> Ids {
        let done = if self.round.0 == announced { FIRST + self.round.1 } else { NOT_SPOKEN_OF };
        let is_due = |trace: &Trace| trace.told != NOT_SPOKEN_OF && trace.told != done;
        self.traces.iter().filter(|(_, trace)| is_due(trace)).map(|(id, _)| *id).collect()
    }

    /// The log knows an object for `announced`, which never is lower than before: because the group has told it so
    /// (`logged`), or else.
    pub fn identified(&mut self, id: u64, announced: u64, logged: bool) {
        if self.round.0 != announced {
            self.round = (announced, self.round.1 + 1);
        }
        self.traces.get_or_insert_with(id, Trace::default).told = FIRST + self.round.1;
        if logged {
            self.logged.insert(id);
        }
    }

    /// The objects that the group identified.
    pub fn logged(&self) -> &Ids {
        &self.logged
    }
}
