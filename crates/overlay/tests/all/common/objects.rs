//! Which objects there are in a directory, whatever they are called.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::tree::{at, paths};

/// Which objects there are, each by what nothing else ever has, and the first of its names.
pub struct Objects(HashMap<(u64, Option<SystemTime>), PathBuf>);

impl Objects {
    pub fn of(dir: &Path) -> Objects {
        let mut objects = HashMap::new();
        for path in named(dir) {
            let stat = std::fs::symlink_metadata(at(dir, &path)).unwrap();
            objects.entry((stat.ino(), stat.created().ok())).or_insert(path);
        }
        Objects(objects)
    }

    /// For each name in a directory, what it named when `self` was looked at: nothing, for what is new.
    pub fn kept(&self, dir: &Path) -> BTreeMap<PathBuf, Option<PathBuf>> {
        let was = |path: &PathBuf| {
            let stat = std::fs::symlink_metadata(at(dir, path)).unwrap();
            self.0.get(&(stat.ino(), stat.created().ok())).cloned()
        };
        named(dir).map(|path| (path.clone(), was(&path))).collect()
    }
}

/// The paths of all but a store's folder.
pub fn named(dir: &Path) -> impl Iterator<Item = PathBuf> {
    paths(dir).into_iter().filter(|path| !path.starts_with(".wholly"))
}
