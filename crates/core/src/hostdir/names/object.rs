//! What is known of one object.

use std::sync::{Arc, Weak};

use super::attributes::Sets;
use super::{ANCHORS, BLANKS, HELD};
use crate::hostdir::file::File;
use wholly_changes::records::{Baseline, Birth};
use wholly_changes::{Kind, Name};
use wholly_vfs::{Inode, Stat};

/// A time in ns, if there is one. Any time is later than none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(i64);

impl Default for Moment {
    fn default() -> Self {
        Moment(i64::MIN)
    }
}

impl From<Option<i64>> for Moment {
    fn from(ns: Option<i64>) -> Self {
        ns.map_or(Moment::default(), Moment)
    }
}

impl Moment {
    pub fn ns(self) -> Option<i64> {
        (self != Moment::default()).then_some(self.0)
    }
}

/// Where an object is, if it has a name.
pub(crate) type Place = Option<Name>;

/// A place where the host has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home<'o> {
    /// A name of the store; or one in a folder of the store's own that is not the object's.
    Name(&'o Name),
    /// In this folder of the store's own, under the object's [`id_name`](super::id_name).
    Folder(u64),
}

impl<'o> Home<'o> {
    /// The directory that it is in.
    pub fn dir(self) -> u64 {
        match self {
            Home::Name((dir, _)) => *dir,
            Home::Folder(folder) => folder,
        }
    }

    pub fn name(self) -> Option<&'o Name> {
        match self {
            Home::Name(name) => Some(name),
            Home::Folder(_) => None,
        }
    }
}

/// Where [`Object::home`] is told. What hangs in a folder of the store's own has no bytes of a name for that: a group
/// may adopt, or remove, a million files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    /// At its [name](Object::name).
    Name,
    /// At the [other](Object::other) place, or nowhere.
    Other,
    Anchored,
    Blank,
    Held,
}

/// The same, with all times so much later.
fn moved(birth: &Birth, by: i64) -> Birth {
    let moved = |ns: i64| ns.wrapping_add(by);
    Birth {
        btime_ns: moved(birth.btime_ns),
        atime_ns: moved(birth.atime_ns),
        mtime_ns: moved(birth.mtime_ns),
        ..birth.clone()
    }
}

/// See the head of [`names`](super). A group may make, or find, a million of them.
pub(crate) struct Object {
    pub kind: Kind,
    /// Inode number, 0 while it is virtual, and time of birth.
    pub(super) inode: Inode,
    /// Whether the log durably knows the inode, or need not.
    pub known: bool,
    /// A committed name of it, a place where the host has it, or both.
    name: Place,
    /// Whether that is its committed name.
    is_placed: bool,
    /// Where the host has it.
    lies: Lies,
    /// A name by which the host has it, if that is not its committed name.
    other: Option<Box<Name>>,
    /// What a group made it as, with all times after `born_ns`: so it is shared by many.
    birth: Option<Arc<Birth>>,
    born_ns: i64,
    /// How many names more than at home it has; of a directory, how many directories more are in it.
    pub links: i32,
    /// How many names more than at home it has, directories too.
    pub named: i32,
    /// Whether one of the names that the host counts is in the store's folder for anchors, and one in that for blanks.
    pub hangs: [bool; 2],
    /// Whether the host may not have made it with the attributes that it was born with: a crash came.
    pub unsure: bool,
    /// What groups have set of its attributes.
    pub sets: Sets,
    /// Whether [something of it](super::State::waits_for) waits for a pass.
    pub(super) waits: bool,
    /// When its content changed, where that is not home; of a regular file, its [`File`] knows.
    pub mtime: Moment,
    /// The sequence of the group that told that.
    pub mtime_sequence: u64,
    /// When somebody last changed anything of it, as far as that is known; at home it is when a pass did.
    pub ctime: Moment,
    /// Whether no checkpoint has seen that time yet.
    pub ctime_is_new: bool,
    /// When somebody last read it, where that is later than all else that tells so. Nothing of this goes home.
    pub read: Moment,
    /// The sequence of the last group that told the log what and where it is.
    pub identified: u64,
    /// The highest sequence of a group that speaks of it.
    pub last: u64,
    /// When somebody last came by, and when somebody last began to open it, by the clock of [`forget`](super::forget).
    pub seen: u64,
    pub opened: u64,
    /// The sequence of the group that made it; 0 where that is long ago, or not committed.
    pub made: u64,
    /// Whether it was made without a name, and may still get one.
    pub nameable: bool,
    /// See [`Stat::is_immutable`], when the host was last asked.
    pub is_immutable: bool,
    /// See [`Stat::is_append_only`], when the host was last asked.
    pub is_append_only: bool,
    /// The group that has claimed it alone; 0 for none. See [`Claims`](super::Claims).
    pub(super) owner: u64,
    /// How many keep it in the table, whether or not it has a name.
    pub pins: u32,
    /// Of a regular file, the file, while somebody uses it.
    pub file: Weak<File>,
    /// How a file lay at home when the running group that has claimed it joined it, if that group
    /// [does not keep it](super::State::retire).
    pub left: Option<Box<Baseline>>,
}

const _: () = assert!(size_of::<Object>() <= 184);

impl Object {
    fn new(kind: Kind, inode: Option<Inode>, home: Place) -> Self {
        Object {
            kind,
            inode: inode.unwrap_or_default(),
            known: true,
            is_placed: home.is_some(),
            lies: if home.is_some() { Lies::Name } else { Lies::Other },
            name: home,
            other: None,
            birth: None,
            born_ns: 0,
            links: 0,
            named: 0,
            hangs: [false; 2],
            unsure: false,
            sets: Sets::default(),
            waits: false,
            mtime: Moment::default(),
            ctime: Moment::default(),
            ctime_is_new: false,
            read: Moment::default(),
            mtime_sequence: 0,
            identified: 0,
            last: 0,
            seen: 0,
            opened: 0,
            made: 0,
            nameable: false,
            is_immutable: false,
            is_append_only: false,
            owner: 0,
            pins: 0,
            file: Weak::new(),
            left: None,
        }
    }

    /// The store's directory.
    pub fn root() -> Self {
        Self::new(Kind::Directory, None, None)
    }

    /// What the host has at `place`.
    pub fn settled(kind: Kind, inode: Inode, place: Place) -> Self {
        Self::new(kind, Some(inode), place)
    }

    /// The host has it so.
    pub fn is_fixed_as(&mut self, stat: &Stat) {
        (self.is_immutable, self.is_append_only) = (stat.is_immutable, stat.is_append_only);
    }

    /// What a group makes. `last` is what it made before, which shares with it what both have.
    pub fn born(birth: &Birth, last: &mut Option<Arc<Birth>>) -> Self {
        let kind = Kind::of(birth.mode);
        let mtime = (kind != Kind::Regular).then_some(birth.mtime_ns).into();
        let all_but_when = moved(birth, birth.btime_ns.wrapping_neg());
        let shared = last.take().filter(|last| **last == all_but_when).unwrap_or_else(|| Arc::new(all_but_when));
        *last = Some(shared.clone());
        let born_ns = birth.btime_ns;
        Object { known: false, mtime, birth: Some(shared), born_ns, ..Self::new(kind, None, None) }
    }

    /// What a group made it as, while it is virtual, and after that for as long as it is in the table.
    pub fn birth(&self) -> Option<Birth> {
        self.birth.as_ref().map(|birth| moved(birth, self.born_ns))
    }

    /// Whether a group made it, as far as that is known.
    pub fn is_born(&self) -> bool {
        self.birth.is_some()
    }

    /// A committed name of it.
    pub fn place(&self) -> Option<&Name> {
        self.name.as_ref().filter(|_| self.is_placed)
    }

    /// It has this committed name from now on. Where the host has it stays the same.
    pub fn set_place(&mut self, place: Place) {
        let (lies, home) = (self.lies, self.home().and_then(Home::name).cloned());
        self.set_both(place, home);
        if matches!(lies, Lies::Anchored | Lies::Blank | Lies::Held) {
            self.lies = lies;
        }
    }

    /// A place where the host has it.
    pub fn home(&self) -> Option<Home<'_>> {
        match self.lies {
            Lies::Name => self.name.as_ref().map(Home::Name),
            Lies::Other => self.other.as_deref().map(Home::Name),
            Lies::Anchored => Some(Home::Folder(ANCHORS)),
            Lies::Blank => Some(Home::Folder(BLANKS)),
            Lies::Held => Some(Home::Folder(HELD)),
        }
    }

    /// The host has it here from now on.
    pub fn set_home(&mut self, home: Place) {
        let place = self.place().cloned();
        self.set_both(place, home);
    }

    /// The host has it in this folder of the store's own from now on.
    pub(super) fn set_hanging(&mut self, folder: u64) {
        self.set_home(None);
        self.lies = match folder {
            BLANKS => Lies::Blank,
            HELD => Lies::Held,
            _ => Lies::Anchored,
        };
    }

    /// One of very many has one name, or two that are the same.
    fn set_both(&mut self, place: Place, home: Place) {
        self.is_placed = place.is_some();
        (self.lies, self.name, self.other) = match home.is_some() && (home == place || place.is_none()) {
            true => (Lies::Name, home, None),
            false => (Lies::Other, place, home.map(Box::new)),
        };
    }

    /// Whether attributes or times of it are to go home, in whatever place it is.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Inode number and time of birth; `None` while it is virtual.
    pub fn inode(&self) -> Option<Inode> {
        (self.inode.0 != 0).then_some(self.inode)
    }

    /// It is this inode from now on, or virtual. Gives what it was.
    pub fn set_inode(&mut self, inode: Option<Inode>) -> Option<Inode> {
        let before = self.inode();
        self.inode = inode.unwrap_or_default();
        before
    }

    /// The group that has claimed it alone.
    pub fn owner(&self) -> Option<u64> {
        (self.owner != 0).then_some(self.owner)
    }

    /// Claims the object for a group. No other group may have it. Returns whether the claim is new.
    pub(super) fn own(&mut self, group: u64) -> bool {
        std::mem::replace(&mut self.owner, group) == 0
    }

    /// A group claims it no more.
    pub(super) fn disown(&mut self, group: u64) {
        if self.owner == group {
            self.owner = 0;
        }
    }

    /// See [`State::hang`](super::State::hang).
    pub(super) fn count_hanging(&mut self, folder: u64, hangs: bool) {
        let known = &mut self.hangs[usize::from(folder == BLANKS)];
        if hangs != *known && self.kind != Kind::Directory {
            self.links += if hangs { -1 } else { 1 };
        }
        *known = hangs;
    }

    /// Its type bits, with permission bits where they are known.
    pub fn mode(&self) -> u32 {
        self.birth.as_ref().map_or(self.kind.bits(), |birth| birth.mode)
    }

    /// Whether somebody has it but names, claims and calls.
    pub fn is_used(&self, tail: u64) -> bool {
        self.last >= tail || self.identified >= tail || self.pins > 0 || self.file.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wholly_vfs::rules::{REGULAR, SYMLINK};

    #[test]
    fn a_name_and_a_home_are_told_apart() {
        let name = |dir: u64, name: &str| Some((dir, name.as_bytes().into()));
        let mut object = Object::settled(Kind::Regular, (7, 8), name(1, "a"));
        let both = |object: &Object| {
            let home = object.home().map(|home| home.name().cloned().unwrap_or((home.dir(), [].into())));
            (object.place().cloned(), home)
        };
        assert_eq!(both(&object), (name(1, "a"), name(1, "a")));
        object.set_place(name(1, "b"));
        assert_eq!(both(&object), (name(1, "b"), name(1, "a")));
        object.set_home(name(1, "b"));
        assert!(object.other.is_none(), "it is told once");
        object.set_place(None);
        assert_eq!(both(&object), (None, name(1, "b")));
        assert!(object.other.is_none(), "what loses its name takes no more memory");
        object.set_place(name(1, "d"));
        assert_eq!(both(&object), (name(1, "d"), name(1, "b")));
        object.set_place(None);
        object.set_home(None);
        assert_eq!(both(&object), (None, None));
        object.set_place(name(1, "c"));
        assert_eq!(both(&object), (name(1, "c"), None));
        for folder in [ANCHORS, BLANKS, HELD] {
            object.set_hanging(folder);
            assert_eq!(both(&object), (name(1, "c"), name(folder, "")));
            object.set_place(None);
            assert_eq!(both(&object), (None, name(folder, "")));
            object.set_place(name(1, "e"));
            assert_eq!(both(&object), (name(1, "e"), name(folder, "")));
            assert!(object.other.is_none(), "what hangs has no name for that");
            object.set_home(name(1, "e"));
            assert_eq!(both(&object), (name(1, "e"), name(1, "e")));
            object.set_hanging(folder);
            object.set_home(None);
            assert_eq!(both(&object), (name(1, "e"), None));
            object.set_place(name(1, "c"));
        }
    }

    #[test]
    fn births_that_differ_in_when_only_are_shared() {
        let birth = |mode: u32, ns: i64| Birth {
            mode,
            uid: 1,
            gid: 2,
            rdev: 0,
            btime_ns: ns,
            atime_ns: ns.wrapping_add(5),
            mtime_ns: -7,
            target: b"t".to_vec(),
        };
        let mut last = None;
        for born in [birth(REGULAR | 0o644, 9), birth(REGULAR | 0o600, i64::MIN), birth(SYMLINK, i64::MAX)] {
            assert_eq!(Object::born(&born, &mut last).birth(), Some(born));
        }
        let later = |ns: i64| Birth { mtime_ns: ns, ..birth(REGULAR, ns) };
        let [first, second] = [7, 8].map(|ns| Object::born(&later(ns), &mut last));
        assert_eq!((first.birth(), second.birth()), (Some(later(7)), Some(later(8))));
        assert!(first.birth.zip(second.birth).is_some_and(|(first, second)| Arc::ptr_eq(&first, &second)));
    }

    #[test]
    fn a_time_is_later_than_none() {
        let moment = |ns: Option<i64>| Moment::from(ns);
        assert_eq!((Moment::default().ns(), moment(Some(-5)).ns()), (None, Some(-5)));
        assert_eq!(moment(None).max(moment(Some(-5))), moment(Some(-5)));
    }
}
