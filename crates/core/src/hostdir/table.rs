//! The files that are open or have pending blocks, by number and by inode.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_media::HostFile;

use super::StoreInner;
use super::file::File;
use crate::error::{Error, Result};
use crate::sync::{Ordering, RwLock};

/// The folder that belongs to the store itself.
const OWN_FOLDER: &[u8] = b".wholly";

#[derive(Default)]
struct Tables {
    by_number: Vec<Option<Arc<File>>>,
    unused: Vec<u32>,
    by_inode: HashMap<(u64, i64), u32>,
}

#[derive(Default)]
pub(crate) struct FileTable {
    tables: RwLock<Tables>,
}

impl FileTable {
    pub fn get(&self, number: u32) -> Option<Arc<File>> {
        self.tables.read().unwrap().by_number.get(number as usize)?.clone()
    }

    fn find(&self, inode: (u64, i64)) -> Option<Arc<File>> {
        let tables = self.tables.read().unwrap();
        tables.by_number[*tables.by_inode.get(&inode)? as usize].clone()
    }

    /// The file with this inode, made by `make` with its number if it is not there yet.
    pub fn find_or_add(&self, inode: (u64, i64), make: impl FnOnce(u32) -> Result<File>) -> Result<Arc<File>> {
        if let Some(file) = self.find(inode) {
            return Ok(file);
        }
        let mut tables = self.tables.write().unwrap();
        if let Some(&number) = tables.by_inode.get(&inode)
            && let Some(file) = &tables.by_number[number as usize]
        {
            return Ok(file.clone());
        }
        let number = tables.unused.pop().unwrap_or(tables.by_number.len() as u32);
        if number >= 1 << 24 {
            return Err(Error::NoSpace("more than 16 million open files".into()));
        }
        let file = Arc::new(make(number)?);
        if number as usize == tables.by_number.len() {
            tables.by_number.push(None);
        }
        tables.by_number[number as usize] = Some(file.clone());
        tables.by_inode.insert(inode, number);
        Ok(file)
    }

    /// Forgets files that nobody uses, that have nothing pending, and of which no group at or above `tail` speaks: a later group must take
    /// a higher sequence than those.
    pub fn sweep(&self, tail: u64) {
        let mut tables = self.tables.write().unwrap();
        let Tables { by_number, unused, by_inode } = &mut *tables;
        by_inode.retain(|_, number| {
            let place = &mut by_number[*number as usize];
            let used = place.as_ref().is_some_and(|file| {
                Arc::strong_count(file) > 1 || !file.is_clean() || file.last_sequence.load(Ordering::Acquire) >= tail
            });
            if !used {
                *place = None;
                unused.push(*number);
            }
            used
        });
    }

    /// All files.
    pub fn all(&self) -> Vec<Arc<File>> {
        self.tables.read().unwrap().by_number.iter().flatten().cloned().collect()
    }

    /// Number of files, and bytes of memory of their indexes.
    pub fn count(&self) -> (u64, u64) {
        let tables = self.tables.read().unwrap();
        let files = tables.by_number.iter().flatten();
        (files.clone().count() as u64, files.map(|file| file.index.memory_bytes()).sum())
    }

    /// Blocks that have versions, in all files.
    pub fn pending(&self) -> u64 {
        self.tables.read().unwrap().by_number.iter().flatten().map(|file| file.pending.load(Ordering::Acquire)).sum()
    }
}

/// A path below the store's directory, as the host is asked for it.
///
/// # Errors
/// [`Error::Invalid`] for an empty or absolute path, for `..` and for the store's own folder.
pub(crate) fn store_path(path: &Path) -> Result<Vec<u8>> {
    let parts = store_path_or_root(path)?;
    if parts.is_empty() {
        return Err(Error::invalid(format!("path {path:?}: it names the store's directory itself")));
    }
    Ok(parts)
}

/// As [`store_path`], but the store's directory has the empty path.
///
/// # Errors
/// Those of [`store_path`].
pub(crate) fn store_path_or_root(path: &Path) -> Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let refuse = |why: &str| Err(Error::invalid(format!("path {path:?}: {why}")));
    let mut parts = Vec::new();
    for part in path.as_os_str().as_bytes().split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return refuse("`..` does not lead anywhere in a store"),
            part if part.contains(&0) => return refuse("a name cannot hold a zero byte"),
            part => parts.push(part),
        }
    }
    if path.is_absolute() {
        return refuse("paths are relative to the store's directory");
    }
    if parts.first() == Some(&OWN_FOLDER) {
        return refuse("the folder .wholly belongs to the store");
    }
    Ok(parts.join(&b'/'))
}

/// The directory that `path` lies in.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(b"", |slash| &path[..slash])
}

/// Errors of the host in terms of the store.
pub(crate) fn host_error(error: wholly_media::Error, path: &[u8]) -> Error {
    let name = String::from_utf8_lossy(path).into_owned();
    match error.errno {
        Errno::NOENT => Error::NotFound(name),
        Errno::EXIST => Error::Exists(name),
        Errno::NOSPC | Errno::DQUOT => Error::NoSpace(name),
        _ => Error::Media(error),
    }
}

impl StoreInner {
    /// The file at `path`, opened for reading and writing.
    pub fn open_path(&self, path: &[u8]) -> Result<Arc<File>> {
        let home = self.host.open(path, true).map_err(|error| host_error(error, path))?;
        self.add_home(path, home)
    }

    /// The file that `home` is open on.
    pub fn add_home(&self, path: &[u8], home: Arc<dyn HostFile>) -> Result<Arc<File>> {
        let stat = home.stat()?;
        if !stat.is_file() {
            return Err(Error::invalid(format!("{} is not a regular file", String::from_utf8_lossy(path))));
        }
        if self.own_inodes.contains(&(stat.ino, stat.btime_ns)) {
            return Err(Error::invalid(format!(
                "{} leads into .wholly, which belongs to the store",
                String::from_utf8_lossy(path)
            )));
        }
        let id = self.next_file.fetch_add(1, Ordering::Relaxed);
        self.files.find_or_add((stat.ino, stat.btime_ns), |number| File::new(id, number, path.to_vec(), home))
    }
}
