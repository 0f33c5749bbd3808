//! What is to be done: what the upper layer says, told of the directory below it, before anything is done.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use wholly::Mismatch;

use crate::deep;
use crate::error::Result;
use crate::host::{Path, Stat, depth, join};
use crate::marks::{Marks, Origin};
use crate::paths::{Names, Paths};

/// A name in a directory of the layer.
pub(crate) struct Entry {
    pub name: Vec<u8>,
    pub node: Node,
}

/// What a name of the layer names.
pub(crate) enum Node {
    Dir(Box<Dir>),
    /// Something new that is no directory and has no other name, and on which overlayfs has written this.
    Marked(Box<Marks>),
    /// What is no directory and was there before, or has several names: its number in [`Plan::files`]. `stays`: it has
    /// this name below, too.
    File {
        file: usize,
        stays: bool,
    },
}

/// Where a directory of the layer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// It is merged with the one below of the same place.
    Below,
    /// It is merged with one below that has another place: the number of what is set aside.
    Aside(usize),
    /// It is new.
    Nowhere,
}

/// A directory of the layer.
pub(crate) struct Dir {
    /// Its path in the layer.
    pub upper: Path,
    /// The path of the directory below that it is merged with.
    pub lower: Option<Path>,
    pub from: From,
    pub stat: Stat,
    /// The one below.
    pub before: Option<Stat>,
    pub marks: Marks,
    /// How many names the layer has in it, whiteouts too.
    pub count: usize,
    /// What in it is new and no directory, has no other name, and is as the command has made it: very much, maybe.
    pub plain: Names,
    /// All else.
    pub entries: Vec<Entry>,
    /// Whether it and all in it is new, and nothing in it has names elsewhere.
    pub is_whole: bool,
}

impl Drop for Dir {
    /// Not one in the other.
    fn drop(&mut self) {
        let mut todo = std::mem::take(&mut self.entries);
        while let Some(entry) = todo.pop() {
            if let Node::Dir(mut dir) = entry.node {
                todo.append(&mut dir.entries);
            }
        }
    }
}

/// Where what is no directory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// It is new.
    Nowhere,
    /// It is somewhere below.
    Sought(Origin, Option<Path>),
    /// It has this path below, and keeps it.
    Below(Path),
    /// It loses this path below, and gets another: the number of what is set aside.
    Aside(Path, usize),
}

/// An inode of the layer that is no directory.
pub(crate) struct File {
    /// The paths in the layer, in the order in which they were found; of the index of overlayfs none.
    pub upper: Vec<Path>,
    /// Its name in the index, where it is reached by that alone.
    pub index: Option<Vec<u8>>,
    pub stat: Stat,
    pub marks: Marks,
    pub source: Source,
    /// Whether it keeps a name that it has below.
    pub stays: bool,
}

/// What becomes of a name below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// What it names gets another place: its number.
    Aside(usize),
    /// What it names goes, a directory with all that is in it.
    Gone,
}

/// All of it.
pub(crate) struct Plan {
    pub root: Dir,
    pub files: Vec<File>,
    /// The names below that the layer hides.
    pub hidden: Paths,
    /// Those of them that are of directories.
    pub hidden_dirs: Paths,
    /// The names below of what has another place in the layer, with its number.
    pub asides: BTreeMap<Path, usize>,
    /// What was changed by others.
    pub wrong: BTreeSet<(Path, String)>,
    /// Whether there is something new by the name of the store's own folder.
    pub has_own_folder: bool,
}

impl Plan {
    pub fn wrong(&mut self, path: &[u8], what: impl Into<String>) {
        self.wrong.insert((path.to_vec(), what.into()));
    }

    /// The layer hides a name below, of what is so.
    pub fn hide(&mut self, path: &[u8], stat: &Stat) {
        self.hidden.insert(path);
        if stat.is_dir() {
            self.hidden_dirs.insert(path);
        }
    }

    pub fn mismatch((path, what): &(Path, String)) -> Mismatch {
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        Mismatch { path: OsStr::from_bytes(path).into(), what: what.clone() }
    }

    /// What is no directory and gets another place.
    pub fn set_aside(&mut self, path: &[u8]) -> Option<usize> {
        let number = self.asides.len();
        if self.asides.contains_key(path) {
            return None;
        }
        self.asides.insert(path.to_vec(), number);
        Some(number)
    }

    /// What becomes of names below: deeper ones first, so that each has its place until it is its turn, and a directory
    /// that goes has lost what is taken out of it.
    pub fn fates(&self) -> impl Iterator<Item = (Path, Fate)> {
        let asides = &self.asides;
        let hidden = self.hidden.by_directory().map(|(dir, names)| (depth(dir) + 1, dir, Some(names)));
        let moved = asides.keys().map(|path| (depth(path), path, None));
        let mut all: Vec<(usize, &Path, Option<&Names>)> = hidden.chain(moved).collect();
        all.sort_by_key(|(depth, ..)| Reverse(*depth));
        all.into_iter().flat_map(move |(_, path, names)| {
            let hidden = names.into_iter().flat_map(move |names| names.iter().map(move |name| join(path, name)));
            let gone = hidden.filter(move |path| !asides.contains_key(path)).map(|path| (path, Fate::Gone));
            gone.chain(names.is_none().then(|| (path.clone(), Fate::Aside(asides[path]))))
        })
    }

    /// Whether a name below is gone at the end, itself or with a directory that it is in.
    pub fn is_gone(&self, path: &[u8]) -> bool {
        let mut at = path;
        while !at.is_empty() {
            if self.asides.contains_key(at) {
                // A file that is set aside loses its name; of a directory what is in it goes with it.
                return at.len() == path.len();
            }
            if self.hidden.contains(at) {
                return true;
            }
            at = crate::host::split(at).0;
        }
        false
    }

    /// Whether a hidden name is of a directory, and nothing in that gets another place.
    pub fn may_go_whole(&self, dir: &[u8]) -> bool {
        let inside = [dir, b"/"].concat();
        let is_inside = |(path, _): (&Path, &usize)| path.starts_with(&inside);
        self.hidden_dirs.contains(dir) && !self.asides.range(inside.clone()..).next().is_some_and(is_inside)
    }

    /// Marks the directories that are wholly new.
    pub fn mark_whole(&mut self) -> Result<()> {
        mark(&mut self.root, &self.files).map(drop)
    }
}

/// Marks directories; gives of a new one which inodes with several names it holds, and how many names of each.
fn mark(dir: &mut Dir, files: &[File]) -> Result<Option<HashMap<usize, u32>>> {
    let mut is_new = dir.from == From::Nowhere && dir.marks.origin.is_none() && dir.marks.redirect.is_none();
    let mut names = HashMap::new();
    for entry in &mut dir.entries {
        match &mut entry.node {
            Node::Marked(_) => {}
            Node::File { file, .. } => {
                let found = &files[*file];
                is_new &= found.source == Source::Nowhere && found.marks.origin.is_none();
                *names.entry(*file).or_insert(0) += 1;
            }
            Node::Dir(inner) => match deep(|| mark(inner, files))? {
                Some(inside) => inside.into_iter().for_each(|(file, count)| *names.entry(file).or_insert(0) += count),
                None => is_new = false,
            },
        }
    }
    dir.is_whole = is_new && names.iter().all(|(file, count)| files[*file].stat.nlink == *count);
    Ok(is_new.then_some(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, Mode};

    fn stat(kind: FileType, nlink: u32) -> Stat {
        let time = Default::default();
        let mode = Mode::empty();
        Stat {
            kind,
            mode,
            uid: 0,
            gid: 0,
            rdev: 0,
            ino: 1,
            nlink,
            size: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    fn dir(from: From, entries: Vec<Entry>) -> Dir {
        let (upper, marks) = (Path::new(), Marks::default());
        let stat = stat(FileType::Directory, 1);
        let plain = Names::default();
        Dir { upper, lower: None, from, stat, before: None, marks, count: 0, plain, entries, is_whole: false }
    }

    fn named(name: &str, node: Node) -> Entry {
        Entry { name: name.into(), node }
    }

    fn plan(root: Dir, files: Vec<File>) -> Plan {
        let (hidden, hidden_dirs, asides, wrong) = Default::default();
        Plan { root, files, hidden, hidden_dirs, asides, wrong, has_own_folder: false }
    }

    fn linked(nlink: u32) -> File {
        let stat = stat(FileType::RegularFile, nlink);
        let (upper, marks, source) = (Vec::new(), Marks::default(), Source::Nowhere);
        File { upper, index: None, stat, marks, source, stays: false }
    }

    #[test]
    fn deeper_names_come_first() {
        let mut plan = plan(dir(From::Below, Vec::new()), Vec::new());
        [&b"a"[..], b"a/b/c", b"d/e"].iter().for_each(|path| plan.hidden.insert(path));
        assert_eq!(plan.set_aside(b"a/b"), Some(0));
        assert_eq!(plan.set_aside(b"a/b"), None);
        assert_eq!(plan.set_aside(b"d/e"), Some(1));
        let depths: Vec<usize> = plan.fates().map(|(path, _)| depth(&path)).collect();
        assert_eq!(depths, [3, 2, 2, 1]);
        assert!(plan.fates().any(|fate| fate == (b"d/e".to_vec(), Fate::Aside(1))));
    }

    #[test]
    fn what_is_in_a_directory_that_is_set_aside_stays() {
        let mut plan = plan(dir(From::Below, Vec::new()), Vec::new());
        [&b"a"[..], b"a/b/c"].iter().for_each(|path| plan.hidden.insert(path));
        plan.set_aside(b"a/b");
        assert!(plan.is_gone(b"a") && plan.is_gone(b"a/x") && plan.is_gone(b"a/b/c") && plan.is_gone(b"a/b"));
        assert!(!plan.is_gone(b"a/b/x") && !plan.is_gone(b"x") && !plan.is_gone(b""));
    }

    /// A directory is taken over by one rename if all names of what is in it are in it.
    #[test]
    fn links_out_of_a_new_directory_keep_it_from_being_whole() {
        for (nlink, outside, whole) in [(2, 0, true), (3, 0, false), (3, 1, false)] {
            let file = |_| Node::File { file: 0, stays: false };
            let inner = dir(From::Nowhere, vec![named("x", file(0)), named("y", file(0))]);
            let mut entries = vec![named("d", Node::Dir(Box::new(inner)))];
            entries.extend((0..outside).map(|_| named("z", file(0))));
            let mut plan = plan(dir(From::Below, entries), vec![linked(nlink)]);
            plan.mark_whole().expect("it is not deep");
            let Node::Dir(inner) = &plan.root.entries[0].node else { unreachable!() };
            assert_eq!(inner.is_whole, whole, "{nlink} names");
            assert!(!plan.root.is_whole);
        }
    }

    #[test]
    fn links_between_directories_in_a_new_one_go_with_it() {
        let file = || vec![named("x", Node::File { file: 0, stays: false })];
        let halves = ["a", "b"].map(|name| named(name, Node::Dir(Box::new(dir(From::Nowhere, file())))));
        let outer = dir(From::Nowhere, halves.into_iter().collect());
        let mut plan = plan(dir(From::Below, vec![named("d", Node::Dir(Box::new(outer)))]), vec![linked(2)]);
        plan.mark_whole().expect("it is not deep");
        let Node::Dir(outer) = &plan.root.entries[0].node else { unreachable!() };
        assert!(outer.is_whole);
        assert!(outer.entries.iter().all(|entry| matches!(&entry.node, Node::Dir(half) if !half.is_whole)));
    }

    #[test]
    fn something_old_keeps_all_above_it_from_being_whole() {
        let moved = dir(From::Aside(0), Vec::new());
        let inner = dir(From::Nowhere, vec![named("m", Node::Dir(Box::new(moved)))]);
        let outer = dir(From::Nowhere, vec![named("i", Node::Dir(Box::new(inner)))]);
        let mut plan = plan(dir(From::Below, vec![named("o", Node::Dir(Box::new(outer)))]), Vec::new());
        plan.mark_whole().expect("it is not deep");
        let Node::Dir(outer) = &plan.root.entries[0].node else { unreachable!() };
        assert!(!outer.is_whole);
    }
}
