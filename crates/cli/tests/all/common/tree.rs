//! What a directory holds, to compare it with another one and with itself at another time.

use rustix::fs::{lgetxattr, llistxattr};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Times before this one, in 2020, are taken for such as somebody has set; others are when something happened.
const SET_BEFORE: i64 = 1_577_836_800;

/// All that is below a directory, and the directory itself by the empty path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<PathBuf, Entry>);

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type and permissions.
    mode: u32,
    owner: (u32, u32),
    device: u64,
    /// Length and hash of the content, or of where a link leads.
    content: (u64, u64),
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first of all names of this file, and how many there are.
    links: (PathBuf, u64),
    /// The time of change, in seconds and nanoseconds.
    mtime: (i64, i64),
}

/// The paths of all that is in a directory, itself included, in order.
pub fn paths(dir: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::new()];
    let mut todo = paths.clone();
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(dir.join(&at)).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                todo.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

/// Joined with nothing a path would end with a slash, which is looked through.
pub fn at(dir: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { dir.to_path_buf() } else { dir.join(path) }
}

impl Tree {
    /// Looks at all of it.
    pub fn of(dir: &Path) -> Tree {
        let mut files = BTreeMap::new();
        let mut all = BTreeMap::new();
        for path in paths(dir) {
            let at = at(dir, &path);
            let stat = std::fs::symlink_metadata(&at).unwrap();
            let first = files.entry(stat.ino()).or_insert_with(|| path.clone()).clone();
            all.insert(path, Entry::of(&at, &stat, first));
        }
        Tree(all)
    }

    /// What another run of the same program leaves, too: times only where it sets them, and nothing of the content of
    /// files whose paths end with one of these.
    pub fn of_any_run(&self, varies: &[&str]) -> Tree {
        let mut tree = self.clone();
        for (path, entry) in &mut tree.0 {
            if entry.mtime.0 >= SET_BEFORE {
                entry.mtime = (0, 0);
            }
            if varies.iter().any(|end| path.as_os_str().as_bytes().ends_with(end.as_bytes())) {
                entry.content = (0, 0);
            }
        }
        tree
    }

    /// The same without the folder of a store, and all that is in it.
    pub fn but_for_a_store(&self) -> Tree {
        let mut tree = self.clone();
        tree.0.retain(|path, _| !path.starts_with(".wholly"));
        tree
    }

    /// The same, with no more names of a file counted than are there: the store may keep one.
    pub fn but_for_kept_names(&self) -> Tree {
        let mut tree = self.but_for_a_store();
        let mut names: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for (path, entry) in tree.0.iter().filter(|(_, entry)| entry.links.1 > 0) {
            names.entry(entry.links.0.clone()).or_default().push(path.clone());
        }
        for names in names.values() {
            for path in names {
                let entry = tree.0.get_mut(path).expect("it was just listed");
                entry.links = (names[0].clone(), names.len() as u64);
            }
        }
        tree
    }

    /// The same without the time of the directory itself, which changes when a store is made in it.
    pub fn but_for_its_time(&self) -> Tree {
        let mut tree = self.clone();
        tree.0.get_mut(Path::new("")).expect("the directory").mtime = (0, 0);
        tree
    }

    /// What is otherwise than in `wanted`, for people; nothing where all is the same.
    pub fn difference(&self, wanted: &Tree) -> String {
        let paths = self.0.keys().chain(wanted.0.keys().filter(|path| !self.0.contains_key(*path)));
        let differ = paths.filter(|path| self.0.get(*path) != wanted.0.get(*path));
        let told = differ
            .take(10)
            .map(|path| format!("  {path:?}: is {:?}\n    instead of {:?}\n", self.0.get(path), wanted.0.get(path)));
        told.collect()
    }
}

impl Entry {
    fn of(at: &Path, stat: &std::fs::Metadata, first: PathBuf) -> Entry {
        let kind = stat.file_type();
        let content = match () {
            () if kind.is_file() => std::fs::read(at).unwrap(),
            () if kind.is_symlink() => std::fs::read_link(at).unwrap().into_os_string().into_encoded_bytes(),
            () => Vec::new(),
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(&content);
        let has_number = kind.is_char_device() || kind.is_block_device();
        Entry {
            mode: stat.mode(),
            owner: (stat.uid(), stat.gid()),
            device: if has_number { stat.rdev() } else { 0 },
            content: (content.len() as u64, hasher.finish()),
            xattrs: xattrs(at),
            links: (first, if kind.is_dir() { 0 } else { stat.nlink() }),
            mtime: (stat.mtime(), stat.mtime_nsec()),
        }
    }
}

fn xattrs(at: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let length = llistxattr(at, &mut names[..]).unwrap_or(0);
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let length = lgetxattr(at, name, &mut value[..]).unwrap();
        value[..length].to_vec()
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}
