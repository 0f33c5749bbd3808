//! What is known of one object.

use std::sync::{Arc, Weak};

use super::{BLANKS, Name};
use crate::hostdir::file::File;
use crate::hostdir::records::Birth;

/// What an object is. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Regular,
    Directory,
    Symlink,
    /// A FIFO, a socket or a device.
    Special,
}

/// The type bits of a mode.
pub(crate) const TYPE: u32 = 0o170_000;
pub(crate) const REGULAR: u32 = 0o100_000;
pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const SYMLINK: u32 = 0o120_000;

impl Kind {
    /// By the type bits of a mode.
    pub fn of(mode: u32) -> Kind {
        match mode & TYPE {
            REGULAR => Kind::Regular,
            DIRECTORY => Kind::Directory,
            SYMLINK => Kind::Symlink,
            _ => Kind::Special,
        }
    }

    /// The type bits; of special files only that they are none of the others.
    fn bits(self) -> u32 {
        match self {
            Kind::Regular => REGULAR,
            Kind::Directory => DIRECTORY,
            Kind::Symlink => SYMLINK,
            Kind::Special => 0o010_000,
        }
    }
}

/// Where an object is, if it has a name.
pub(crate) type Place = Option<Name>;

/// See the head of [`names`](super).
pub(crate) struct Object {
    pub kind: Kind,
    /// Inode number and time of birth; `None` while it is virtual.
    pub inode: Option<(u64, i64)>,
    /// Whether the log durably knows the inode, or need not.
    pub known: bool,
    /// A place where the host has it.
    pub home: Place,
    /// A committed name of it.
    pub place: Place,
    /// What a group made it as, while it is virtual, and after that for as long as it is in the table.
    pub birth: Option<Arc<Birth>>,
    /// How many names more than at home it has; of a directory, how many directories more are in it.
    pub links: i64,
    /// How many names more than at home it has, directories too.
    pub named: i64,
    /// Whether one of the names that the host counts is in the store's folder for anchors, and one in that for blanks.
    pub hangs: [bool; 2],
    /// Whether the host may not have made it with the attributes that it was born with: a crash came.
    pub unsure: bool,
    /// The sequence of the last group that told the log what and where it is.
    pub identified: u64,
    /// The highest sequence of a group that speaks of it.
    pub last: u64,
    /// The pass during which a walk came by: who has its id and has not claimed it yet keeps it so for a pass.
    pub seen: u64,
    /// Of a regular file, the file, while somebody uses it.
    pub file: Weak<File>,
}

impl Object {
    fn new(kind: Kind, inode: Option<(u64, i64)>, home: Place) -> Self {
        Object {
            kind,
            inode,
            known: true,
            place: home.clone(),
            home,
            birth: None,
            links: 0,
            named: 0,
            hangs: [false; 2],
            unsure: false,
            identified: 0,
            last: 0,
            seen: 0,
            file: Weak::new(),
        }
    }

    /// The store's directory.
    pub fn root() -> Self {
        Self::new(Kind::Directory, None, None)
    }

    /// What the host has at `place`.
    pub fn settled(kind: Kind, inode: (u64, i64), place: Place) -> Self {
        Self::new(kind, Some(inode), place)
    }

    /// What a group makes.
    pub fn born(birth: Arc<Birth>) -> Self {
        Object { known: false, birth: Some(birth.clone()), ..Self::new(Kind::of(birth.mode), None, None) }
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

    /// Whether somebody has it but names and claims.
    pub fn is_used(&self, tail: u64, passes: u64) -> bool {
        self.last >= tail || self.identified >= tail || self.seen + 1 >= passes || self.file.strong_count() > 0
    }
}
