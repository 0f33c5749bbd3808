//! What a running group has done to names: only it sees that until it commits.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ops::Bound;

use super::{Name, Set, Wanted};
use crate::hostdir::clock::Mtime;
use crate::rules::acl::Acl;

/// What a name was and is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The committed value when the group claimed the name, which nobody has changed since.
    pub committed: u64,
    /// The value for the group.
    pub after: u64,
}

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Private {
    changes: BTreeMap<Name, Change>,
    /// The last name that the group gave an object, if it has that still.
    places: HashMap<u64, Name>,
    /// How many names more than all others see an object has for the group.
    links: HashMap<u64, i64>,
    /// How many directories more than all others see a directory has for the group.
    directories: HashMap<u64, i64>,
    /// Objects that the group made.
    born: Vec<u64>,
    /// Attributes that it set; also of objects of which it only told the time.
    sets: BTreeMap<u64, Set>,
    /// Default lists of directories in which it makes objects, as it saw them first.
    pub defaults: HashMap<u64, Option<Acl>>,
    /// Of directories, when it changed what is in them; of all but regular files, the time that it told.
    mtimes: BTreeMap<u64, Mtime>,
    /// When it changed anything of an object.
    ctimes: BTreeMap<u64, i64>,
    /// Objects that its records speak of, and the announced tail for which they were identified in them; 0 if they were
    /// not.
    spoken_of: HashMap<u64, u64>,
    /// Objects that it identified.
    logged: Vec<u64>,
    /// Objects that it made with all their bytes, of which it told the log.
    staged: Vec<u64>,
    /// Objects that it has adopted.
    pub adopted: Vec<u64>,
    /// The groups that it is, of those that are set aside.
    pub applied: Vec<u64>,
    /// Its id, where it is provisional, and whether it waits for the decision of a joint commit.
    pub provisional: Option<(u64, bool)>,
    /// What it has claimed.
    pub held: Wanted,
    /// The highest sequence of a group that had changed what it changes.
    pub after: u64,
}

impl Private {
    /// The value of a name, if the group has changed it.
    pub fn get(&self, dir: u64, name: &[u8]) -> Option<u64> {
        if self.changes.is_empty() {
            return None;
        }
        self.changes.get(&(dir, name.to_vec())).map(|change| change.after)
    }

    /// Sets a name that has been `before`, for the group.
    pub fn set(&mut self, dir: u64, name: &[u8], before: u64, after: u64) {
        let change = self.changes.entry((dir, name.to_vec())).or_insert(Change { committed: before, after });
        change.after = after;
        if self.places.get(&before).is_some_and(|place| place.0 == dir && place.1 == name) {
            self.places.remove(&before);
        }
        self.places.insert(after, (dir, name.to_vec()));
        *self.links.entry(before).or_default() -= 1;
        *self.links.entry(after).or_default() += 1;
        for id in [dir, before, after] {
            self.speak_of(id);
        }
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
        self.ctimes.insert(id, now);
    }

    /// When the group has changed something of an object.
    pub fn ctime_of(&self, id: u64) -> Option<i64> {
        self.ctimes.get(&id).copied()
    }

    pub fn ctimes(&self) -> impl Iterator<Item = (&u64, &i64)> {
        self.ctimes.iter()
    }

    pub fn mtime_of(&self, id: u64) -> Mtime {
        self.mtimes.get(&id).copied().unwrap_or_default()
    }

    pub fn mtimes(&self) -> impl Iterator<Item = (&u64, &Mtime)> {
        self.mtimes.iter()
    }

    /// The group made an object.
    pub fn add_born(&mut self, id: u64) {
        self.born.push(id);
    }

    pub fn born(&self) -> &[u64] {
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
        if id != 0 {
            self.spoken_of.entry(id).or_insert(0);
        }
    }

    /// All names that it has changed.
    pub fn changes(&self) -> impl Iterator<Item = (&Name, &Change)> + Clone {
        self.changes.iter()
    }

    /// Those in one directory.
    pub fn changes_in(&self, dir: u64) -> impl Iterator<Item = (&[u8], &Change)> {
        let from = Bound::Included((dir, Vec::new()));
        let names = self.changes.range((from, Bound::Unbounded));
        names.take_while(move |(name, _)| name.0 == dir).map(|(name, change)| (name.1.as_slice(), change))
    }

    /// Where the group sees a directory, if it has named it.
    pub fn place(&self, id: u64) -> Option<&Name> {
        self.places.get(&id)
    }

    /// How many names more than all others see the object has for the group.
    pub fn links(&self, id: u64) -> i64 {
        self.links.get(&id).copied().unwrap_or(0)
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
    pub fn unidentified(&self, announced: u64) -> Vec<u64> {
        let mut all: Vec<u64> =
            self.spoken_of.iter().filter(|&(_, &known)| known != announced).map(|(id, _)| *id).collect();
        all.sort_unstable();
        all
    }

    /// The log knows an object for `announced`: because the group has told it so (`logged`), or else.
    pub fn identified(&mut self, id: u64, announced: u64, logged: bool) {
        self.spoken_of.insert(id, announced);
        if logged {
            self.logged.push(id);
        }
    }

    /// The objects that the group identified.
    pub fn logged(&self) -> &[u64] {
        &self.logged
    }
}
