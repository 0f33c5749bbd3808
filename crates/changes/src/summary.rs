//! What a group would change, net: the same for a group that runs and for one that is parked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use wholly_vfs::rules::{DIRECTORY, TYPE};
use wholly_vfs::{Fallocate, Stat};

use crate::records::{Baseline, Birth};
use crate::{Kind, Name, Neighbour, ROOT, Set, join};

/// Bytes of the largest file that is known by a checksum of all that is in it; a larger one by size and times.
pub const LARGEST_SUM: u64 = 16 << 20;

/// See the head of this file. Ids of objects are those that the running group knew them by.
#[derive(Default)]
pub struct Summary {
    /// All that it speaks of, with the directories that they are in; the store's directory only where its attributes
    /// are set.
    pub objects: BTreeMap<u64, Known>,
    /// The values before and after of each name that is otherwise.
    names: BTreeMap<Name, (u64, u64)>,
    /// Of each object, the names that it loses, and those that it gets.
    moves: BTreeMap<u64, Moves>,
    /// Regular files whose bytes are otherwise.
    pub contents: BTreeMap<u64, Content>,
    /// Attributes that it sets, and the time of the last change where it sets that.
    pub sets: BTreeMap<u64, (Set, Option<i64>)>,
    /// Whom to ask whether it is committed, where a joint commit has prepared it.
    pub coordinator: Option<Neighbour>,
    /// The parked group that it applies, where a joint commit has prepared it.
    pub applies: Option<u64>,
    /// The other parts of what was parked together, in other stores.
    pub parts: Vec<Neighbour>,
    /// In an undo, what the group leaves of objects, and of what is in directories that it has adopted: by the object,
    /// and the path in it.
    pub left: BTreeMap<(u64, Vec<u8>), Left>,
}

/// What a group leaves of something, as the group itself knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device its number, else 0.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// The bytes that it has written, in order: all of them of a file that it has made.
    pub ranges: Vec<(u64, u64)>,
    /// What those bytes are.
    pub content: LeftContent,
    /// The checksum of the extended attributes that it has set: all of them of what it has made.
    pub xattrs: u64,
}

/// What a group leaves of the bytes that it has written to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftContent {
    /// It has written nothing.
    #[default]
    Untouched,
    /// This is their checksum, or that of the target of a symbolic link that it has made.
    Sum(u128),
    /// They were too much to read.
    Unread,
}

/// The names that an object loses, and those that it gets, in order.
#[derive(Debug, Default)]
pub struct Moves {
    /// Those that it loses.
    pub lost: Vec<Name>,
    /// Those that it gets.
    pub gained: Vec<Name>,
}

/// What a group knows of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// It made it.
    Born(Arc<Birth>),
    /// It was there.
    Settled(Box<Settled>),
}

/// An object that a group has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// As everybody else saw it; without an inode where the host has not made it.
    pub stat: Stat,
    /// Its directory, and its name there.
    pub place: Name,
    /// Of a regular file, what its bytes were, where that counts.
    pub base: Option<Base>,
}

/// By what the bytes of a file are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The checksum of all of them.
    Sum(u64),
    /// How it lies at home.
    Stat(Baseline),
    /// Nobody knows them: a bystander has changed them while the group was running.
    Lost,
}

/// What becomes of the bytes of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// Of the bytes that were there, those from here on are gone.
    pub limit: u64,
    /// How long it is in the end.
    pub size: u64,
    /// What becomes of the space of its blocks before the bytes are written: ranges of whole blocks, in order and
    /// without overlaps, each a hole (`Punch`), zeros with space (`Zero`) or space (`Keep`).
    pub space: Vec<(Range<u64>, Fallocate)>,
    /// What is written, in the order of offsets and without overlaps.
    pub pieces: Vec<Piece>,
    /// Set if the bytes of the pieces are in a content file.
    pub file: Option<ContentFile>,
}

/// A content file: a file beside the parked group that holds all bytes of a file that the group makes, each at its
/// offset. It is known again by its size, which is that of the file, and by its time of modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentFile {
    /// Time of the last change of content in ns.
    pub mtime_ns: i64,
    /// Bytes of disk space that it takes.
    pub allocated: u64,
}

impl Content {
    /// The pieces that have something of `from..to`.
    pub fn in_range(&self, from: u64, to: u64) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.partition_point(|piece| piece.end() <= from);
        self.pieces[first..].iter().take_while(move |piece| piece.offset < to)
    }
}

/// A run of bytes that a group writes to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// Where they stand in the file of a parked group; 0 if they are in a content file.
    pub position: u64,
    /// Their checksum there; 0 if they are in a content file.
    pub checksum: u64,
}

impl Piece {
    /// The byte after the last one in the file.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// Bytes of the longest piece.
pub const LONGEST_PIECE: u64 = 1 << 20;

/// The runs that ranges come to, however they lie over each other, in pieces.
pub fn runs(ranges: Vec<(u64, u64)>) -> Vec<Piece> {
    let pieces = |(from, to): (u64, u64)| {
        let piece =
            move |offset: u64| Piece { offset, length: (to - offset).min(LONGEST_PIECE) as u32, ..Piece::default() };
        (from..to).step_by(LONGEST_PIECE as usize).map(piece)
    };
    merged(ranges).into_iter().flat_map(pieces).collect()
}

/// The same bytes as ranges in order, none of which touches the next.
pub fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut whole: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges {
        match whole.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => whole.push((from, to)),
        }
    }
    whole
}

impl Summary {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.contents.is_empty() && self.sets.is_empty()
    }

    /// All of it but the names that are otherwise.
    pub fn without_names(&self) -> Summary {
        Summary {
            objects: self.objects.clone(),
            names: BTreeMap::new(),
            moves: BTreeMap::new(),
            contents: self.contents.clone(),
            sets: self.sets.clone(),
            coordinator: self.coordinator.clone(),
            applies: self.applies,
            parts: self.parts.clone(),
            left: self.left.clone(),
        }
    }

    /// An object that the group has found; `None` for one that it made, or does not know.
    pub fn settled(&self, id: u64) -> Option<&Settled> {
        match self.objects.get(&id) {
            Some(Known::Settled(settled)) => Some(settled),
            _ => None,
        }
    }

    /// What an object is; what the summary does not know is a directory above.
    pub fn kind(&self, id: u64) -> Kind {
        match self.objects.get(&id) {
            Some(Known::Born(birth)) => Kind::of(birth.mode),
            Some(Known::Settled(settled)) => Kind::of(settled.stat.mode),
            None => Kind::Directory,
        }
    }

    /// Adds a name that a new object gets, without telling what has moved.
    pub fn add_new(&mut self, name: Name, after: u64) {
        self.names.insert(name, (0, after));
    }

    /// Adds a name that is otherwise. Names come in order.
    pub fn add_name(&mut self, name: Name, before: u64, after: u64) {
        if before != 0 {
            add_one(&mut self.moves.entry(before).or_default().lost, &name);
        }
        if after != 0 {
            add_one(&mut self.moves.entry(after).or_default().gained, &name);
        }
        self.names.insert(name, (before, after));
    }

    /// The names that are otherwise, each with its objects before and after, 0 for none.
    pub fn names(&self) -> &BTreeMap<Name, (u64, u64)> {
        &self.names
    }

    /// The objects whose names are otherwise, each with these.
    pub fn moved(&self) -> &BTreeMap<u64, Moves> {
        &self.moves
    }

    /// How an object was before; `None` where it was not there.
    pub fn before(&self, id: u64) -> Option<Stat> {
        self.settled(id).map(|settled| settled.stat)
    }

    /// How an object is to be. Times that the group has not set are those of before.
    pub fn after(&self, id: u64) -> Option<Stat> {
        let mut stat = match self.objects.get(&id)? {
            Known::Settled(settled) => settled.stat,
            Known::Born(birth) => Stat {
                mode: birth.mode,
                uid: birth.uid,
                gid: birth.gid,
                rdev: birth.rdev,
                size: birth.target.len() as u64,
                btime_ns: birth.btime_ns,
                atime_ns: birth.atime_ns,
                mtime_ns: birth.mtime_ns,
                ctime_ns: birth.btime_ns,
                nlink: if Kind::of(birth.mode) == Kind::Directory { 2 } else { 0 },
                ..Stat::default()
            },
        };
        if let Some(content) = self.contents.get(&id) {
            stat.size = content.size;
        }
        if let Some((set, mtime_ns)) = self.sets.get(&id) {
            set.show(&mut stat);
            stat.mtime_ns = mtime_ns.unwrap_or(stat.mtime_ns);
        }
        if stat.mode & TYPE != DIRECTORY {
            let moves = self.moves.get(&id).map_or((0, 0), |moves| (moves.lost.len(), moves.gained.len()));
            stat.nlink = (stat.nlink + moves.1 as u32).saturating_sub(moves.0 as u32);
        }
        Some(stat)
    }

    /// The path of an object before; nothing for what the group made.
    pub fn path_before(&self, id: u64) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        let mut at = id;
        while at != ROOT {
            let (dir, name) = &self.settled(at)?.place;
            parts.push(&**name);
            at = *dir;
        }
        Some(joined(parts))
    }

    /// The path of a name before.
    pub fn name_before(&self, (dir, name): &Name) -> Option<Vec<u8>> {
        let above = self.path_before(*dir)?;
        Some(join(&above, name))
    }

    /// The path of a name as it is to be; nothing where its directory is to have none.
    pub fn name_after(&self, name: &Name) -> Option<Vec<u8>> {
        let mut parts = vec![&*name.1];
        let (mut at, mut seen) = (name.0, BTreeSet::new());
        while at != ROOT {
            if !seen.insert(at) {
                return None;
            }
            let (dir, name) = self.place_after(at)?;
            parts.push(name);
            at = dir;
        }
        Some(joined(parts))
    }

    /// The path of an object as it is to be; nothing for what is to have no name.
    pub fn path_after(&self, id: u64) -> Option<Vec<u8>> {
        let (dir, name) = self.place_after(id)?;
        self.name_after(&(dir, name.into()))
    }

    fn place_after(&self, id: u64) -> Option<(u64, &[u8])> {
        let moves = self.moves.get(&id);
        if let Some((dir, name)) = moves.and_then(|moves| moves.gained.first()) {
            return Some((*dir, name));
        }
        let place = &self.settled(id)?.place;
        let is_lost = moves.is_some_and(|moves| moves.lost.contains(place));
        (!is_lost).then_some((place.0, &place.1))
    }
}

/// Most objects move by one name.
fn add_one(names: &mut Vec<Name>, name: &Name) {
    if names.is_empty() {
        names.reserve_exact(1);
    }
    names.push(name.clone());
}

fn joined(mut parts: Vec<&[u8]>) -> Vec<u8> {
    parts.reverse();
    parts.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_ranges_cover() {
        let covered = |ranges: &[(u64, u64)]| {
            runs(ranges.to_vec()).iter().map(|piece| (piece.offset, piece.end())).collect::<Vec<_>>()
        };
        assert_eq!(covered(&[(5, 9), (0, 2), (8, 12), (2, 3)]), [(0, 3), (5, 12)]);
        assert_eq!(
            covered(&[(7, LONGEST_PIECE + 8)]),
            [(7, LONGEST_PIECE + 7), (LONGEST_PIECE + 7, LONGEST_PIECE + 8)]
        );
        let content = Content { pieces: runs(vec![(0, 3), (5, 12)]), ..Content::default() };
        let offsets = |from, to| content.in_range(from, to).map(|piece| piece.offset).collect::<Vec<_>>();
        assert_eq!(
            (offsets(0, 3), offsets(3, 5), offsets(2, 6), offsets(12, 99)),
            (vec![0], vec![], vec![0, 5], vec![])
        );
    }
}
