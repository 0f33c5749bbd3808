//! The files that are open or have pending blocks, by number.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::Kind;
use wholly_host::{HostFile, host_error};
use wholly_vfs::{Inode, Stat};

use super::StoreInner;
use super::clock::Mtime;
use super::file::File;
use super::names::{Found, Held, OWN_FOLDER, Object, TRIES, Walk, show};
use super::recover::is_in_the_way;
use crate::error::{Error, Result};
use sync::{Mutex, Ordering, RwLock};
use wholly_vfs::rules::permit::{self, Who};

#[derive(Default)]
struct Table {
    by_number: Vec<Option<Arc<File>>>,
    unused: Vec<u32>,
}

#[derive(Default)]
pub(crate) struct FileTable {
    table: RwLock<Table>,
    /// Files whose host files are open, by number and id: what was opened first comes first. Some may be closed by now.
    open: Mutex<VecDeque<(u32, u64)>>,
}

impl FileTable {
    pub fn get(&self, number: u32) -> Option<Arc<File>> {
        self.table.read().unwrap().by_number.get(number as usize)?.clone()
    }

    /// Adds the file that `make` makes with its number.
    pub fn add(&self, make: impl FnOnce(u32) -> File) -> Result<Arc<File>> {
        let mut table = self.table.write().unwrap();
        let number = table.unused.pop().unwrap_or(table.by_number.len() as u32);
        if number >= 1 << 24 {
            return Err(Error::NoSpace("more than 16 million open files".into()));
        }
        let file = Arc::new(make(number));
        if number as usize == table.by_number.len() {
            table.by_number.push(None);
        }
        table.by_number[number as usize] = Some(file.clone());
        Ok(file)
    }

    /// Forgets files that nobody uses, that have nothing pending, and of which no group at or above `tail` speaks: a
    /// later group must take a higher sequence than those. The caller keeps others from getting files but by number.
    pub fn sweep(&self, tail: u64) {
        let mut table = self.table.write().unwrap();
        let Table { by_number, unused } = &mut *table;
        for (number, place) in by_number.iter_mut().enumerate() {
            let idle = place.as_ref().is_some_and(|file| {
                Arc::strong_count(file) == 1 && file.is_clean() && file.last_sequence.load(Ordering::Acquire) < tail
            });
            if idle {
                *place = None;
                unused.push(number as u32);
            }
        }
        // What a large group has needed is given back.
        let used = by_number.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if used < by_number.capacity() / 8 {
            by_number.truncate(used);
            by_number.shrink_to(2 * used);
            unused.retain(|number| (*number as usize) < used);
            unused.shrink_to(2 * used);
        }
    }

    /// Removes a file from the table if nothing of it is pending and only the table and the caller refer to it. Returns
    /// whether it was removed. The caller holds the lock of names, so that others find files by number only.
    fn forget(&self, file: &Arc<File>) -> bool {
        let mut table = self.table.write().unwrap();
        let is_used = Arc::strong_count(file) > 2 || file.handles.load(Ordering::Acquire) > 0;
        // No other thread refers to the file, so this lock is free.
        let is_in_conflict = || file.home_state.lock().unwrap().conflict.is_some();
        if is_used || !file.is_clean() || is_in_conflict() || (file.has_home() && !file.detach()) {
            return false;
        }
        table.by_number[file.number as usize] = None;
        table.unused.push(file.number);
        true
    }

    /// The host file of a file was opened.
    pub fn opened(&self, file: &File) {
        self.open.lock().unwrap().push_back((file.number, file.id));
    }

    /// Of more than `most` files whose host files are open, the one that was opened first. It counts no more.
    fn take_oldest_beyond(&self, most: usize) -> Option<Arc<File>> {
        let mut open = self.open.lock().unwrap();
        while open.len() > most {
            let (number, id) = open.pop_front()?;
            if let Some(file) = self.get(number).filter(|file| file.id == id && file.has_home()) {
                return Some(file);
            }
        }
        None
    }

    /// All files.
    pub fn all(&self) -> Vec<Arc<File>> {
        self.table.read().unwrap().by_number.iter().flatten().cloned().collect()
    }

    /// Number of files, and bytes of memory of their indexes.
    pub fn count(&self) -> (u64, u64) {
        let table = self.table.read().unwrap();
        let files = table.by_number.iter().flatten();
        (files.clone().count() as u64, files.map(|file| file.index.memory_bytes()).sum())
    }

    /// Blocks that have versions, in all files.
    pub fn pending(&self) -> u64 {
        self.table.read().unwrap().by_number.iter().flatten().map(|file| file.pending.count()).sum()
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

/// As [`store_path`], but `.` is the store's directory, which has the empty path.
///
/// # Errors
/// Those of [`store_path`].
pub(crate) fn store_path_or_root(path: &Path) -> Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let refuse = |why: &str| Err(Error::invalid(format!("path {path:?}: {why}")));
    if path.as_os_str().is_empty() {
        return refuse("it is empty; the store's directory itself is `.`");
    }
    let mut parts = Vec::new();
    for part in path.as_os_str().as_bytes().split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return refuse("`..` is not allowed in paths of a store"),
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

/// Whether a call failed because of what a bystander has made of the path: what was there is not, or not to be had
/// there.
pub(crate) fn is_taken_away(error: &Error) -> bool {
    match error {
        Error::NotFound(_) => true,
        Error::Refused(_, errno) | Error::Media(wholly_media::Error { errno, .. }) => is_in_the_way(*errno),
        _ => false,
    }
}

/// Looks until no bystander changes what is looked at meanwhile. What he has changed before, `look` copes with.
///
/// # Errors
/// [`Error::Busy`] where he goes on and on; those of `look`.
pub(crate) fn look_steadily<T>(look: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        match look() {
            Err(error) if is_taken_away(&error) => {}
            seen => return seen,
        }
    }
    Err(Error::Busy("what the group builds on".into(), "another program changes it again and again".into()))
}

impl StoreInner {
    /// The file that was found at `path`, opened for reading and writing.
    pub fn open_found(&self, path: &[u8], found: &Found) -> Result<Arc<File>> {
        let file = self.file_of(path, found)?;
        let _still = self.names.keep_homes();
        let (place, birth) = self.names.with(|state| {
            state.begin_open(found.id);
            let object = state.objects.get(&found.id);
            let place = state.public_path(found.id);
            // The host, which has not made it, or made it otherwise, cannot say so.
            let is_born = |object: &&Object| place.is_none() || object.unsure;
            (place.clone(), object.filter(is_born).and_then(Object::birth))
        });
        let stat = birth.map(|birth| Stat { mode: birth.mode, uid: birth.uid, gid: birth.gid, ..Stat::default() });
        if !stat.is_none_or(|stat| Who::Process.may(&stat, permit::READ | permit::WRITE)) {
            return Err(Error::Refused(show(path), Errno::ACCESS));
        }
        let Some(place) = place.filter(|_| file.full_home().is_none()) else { return Ok(file) };
        self.open_at(&file, &place, path, true)?;
        Ok(file)
    }

    /// Opens the host file of a file, which may have been virtual, or was closed since. `None` where the host has none.
    #[cold]
    pub fn open_home(&self, file: &File, writes: bool) -> Result<Option<Arc<dyn HostFile>>> {
        let _still = self.names.keep_homes();
        match self.names.with(|state| state.public_path(file.id)) {
            Some(place) => self.open_at(file, &place, &file.path, writes).map(Some),
            None => Ok(file.home()),
        }
    }

    /// The host file of a file, to be read; opened for that where it is not open.
    pub fn home_to_read(&self, file: &File) -> Result<Option<Arc<dyn HostFile>>> {
        file.home().map_or_else(|| self.open_home(file, false), |home| Ok(Some(home)))
    }

    /// Opens the host file at `place`. The caller keeps passes from changing names.
    fn open_at(&self, file: &File, place: &[u8], path: &[u8], writes: bool) -> Result<Arc<dyn HostFile>> {
        let home = self.host.open(place, writes).map_err(|error| host_error(error, path))?;
        if !self.is_home_of(file, home.stat()?.inode()) {
            return Err(Error::NotFound(show(path)));
        }
        self.attach(file, home.clone(), writes, false);
        // It may have changed since the walk came by.
        file.refresh_if_unused(self, Some(&*home))?;
        Ok(home)
    }

    /// From now on this is the open host file of a file, `full` or for reading alone. Where its permission bits
    /// `forbid` to open it, it stays open.
    pub fn attach(&self, file: &File, home: Arc<dyn HostFile>, full: bool, forbidden: bool) {
        if file.attach(home, full, forbidden) {
            self.files.opened(file);
            self.close_oldest();
        }
    }

    /// Closes host files that no program has open, the longest open first, where more are open than a store keeps. For
    /// each that was opened two are looked at, so that those which stay open hold nobody up.
    fn close_oldest(&self) {
        for _ in 0..2 {
            let Some(file) = self.files.take_oldest_beyond(self.options.open_files) else { return };
            // What a call is just opening may be closed too: one call opens many, and a read opens it again.
            let is_in_use =
                file.handles.load(Ordering::Relaxed) > 0 || self.names.with(|state| state.host_path(file.id).is_none());
            if is_in_use || !file.detach() {
                self.files.opened(&file);
            }
        }
    }

    /// A group has ended that had a file joined. If nobody else has it, and nothing of it is pending, its object knows
    /// all that is to be known of it.
    #[cold]
    pub fn retire(&self, file: &Arc<File>) {
        self.names.with(|state| {
            if state.objects.contains_key(&file.id) && self.files.forget(file) {
                state.takes_over(file);
            }
        });
    }

    /// A running group need not keep a file that it has made, and to which it has given no other time of change than
    /// that of its birth, unless somebody else has it. Whether it is gone.
    pub fn retire_born(&self, file: &Arc<File>, mtime: Mtime) -> bool {
        self.names.with(|state| {
            let is_born_so = state.born_at(file.id).map(Mtime::Told) == Some(mtime);
            let goes = is_born_so && self.files.forget(file);
            if goes {
                state.takes_over(file);
            }
            goes
        })
    }

    /// The same of a file that it has found, and of which it has changed only names or attributes.
    pub fn retire_found(&self, owner: u64, file: &Arc<File>, held: &mut Held) -> bool {
        let (tail, left) = (self.log.tail(), file.baseline());
        let forget = || self.files.forget(file);
        left.is_some_and(|left| self.names.with(|state| state.retire(owner, (file, left), (held, tail), forget)))
    }

    /// Whether what was opened for a file is its home. Some file systems give a file another number when it is opened
    /// for writing (overlay: it is copied then). Else a bystander was faster; either is all right while the log says
    /// nothing of the file.
    pub fn is_home_of(&self, file: &File, inode: Inode) -> bool {
        let unknown = file.is_clean() && file.last_sequence.load(Ordering::Acquire) < self.log.tail();
        self.names.with(|state| state.is_inode(file.id, inode) || (unknown && state.becomes(file.id, inode)))
    }

    /// How a file lies at home; `None` where it is not at its place, or on its way.
    pub fn stat_at_home(&self, file: &File) -> Result<Option<Stat>> {
        if let Some(home) = file.home() {
            return Ok(Some(home.stat()?));
        }
        let Some(place) = self.names.with(|state| state.host_path(file.id)) else { return Ok(None) };
        match self.host.stat(&place) {
            Ok(stat) => {
                Ok(Some(stat)
                    .filter(|stat| self.names.with(|state| state.is_inode(file.id, (stat.ino, stat.btime_ns)))))
            }
            Err(error) if matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(host_error(error, &place)),
        }
    }

    /// Looks again at a file that the caller owns and of which nothing is pending: bystanders may have changed it.
    pub fn refresh_named(&self, file: &File) -> Result<()> {
        if let Some(home) = file.home() {
            return file.refresh_by(|| Ok(Some(home.stat()?)));
        }
        let _still = self.names.keep_homes();
        let whole = self.names.with(|state| Some((state.public_path(file.id)?, state.objects.get(&file.id)?.inode())));
        let Some((place, inode)) = whole else { return Ok(()) };
        // What is there may be another one: that comes out where names are compared.
        let is_it = |stat: &Stat| inode == Some((stat.ino, stat.btime_ns));
        file.refresh_by(|| Ok(self.host.stat(&place).ok().filter(is_it)))
    }

    /// The file that was found at `path`, in the table from now on; its host file need not be open.
    pub fn file_of(&self, path: &[u8], found: &Found) -> Result<Arc<File>> {
        if found.kind == Kind::Directory {
            return Err(Error::Refused(show(path), Errno::ISDIR));
        }
        if found.kind != Kind::Regular {
            return Err(Error::invalid(format!("{} is not a regular file", show(path))));
        }
        if let Some(file) = self.names.with(|state| state.file(found.id)) {
            return Ok(file);
        }
        for _ in 0..TRIES {
            let (stat, passes) = match found.stat {
                // As long as no pass has ended since, nobody can have changed it and gone without a trace.
                Some((stat, passes)) if self.names.with(|state| state.passes()) == passes => (Some(stat), passes),
                _ => {
                    let _still = self.names.keep_homes();
                    let (place, passes) = self.names.with(|state| (state.host_path(found.id), state.passes()));
                    let stat = place.map(|place| self.host.stat(&place)).transpose();
                    (stat.map_err(|error| host_error(error, path))?, passes)
                }
            };
            if let Some(file) = self.enter_file(path, found.id, stat, passes)? {
                // Where the log speaks of it, a pass may have changed it since it was looked at.
                if file.last_sequence.load(Ordering::Acquire) >= self.log.tail() {
                    file.refresh_if_unused(self, None)?;
                }
                return Ok(file);
            }
        }
        Err(Error::Busy(show(path), "one checkpoint follows the other".into()))
    }

    /// Enters a file that looks so, as it did when so many passes had ended; `None` where another one has ended since.
    fn enter_file(&self, path: &[u8], id: u64, stat: Option<Stat>, passes: u64) -> Result<Option<Arc<File>>> {
        if let Some(stat) = &stat
            && self.own_inodes.contains(&(stat.ino, stat.btime_ns))
        {
            return Err(Error::invalid(format!("{} leads into .wholly, which belongs to the store", show(path))));
        }
        self.names.with(|state| {
            if let Some(file) = state.file(id) {
                return Ok(Some(file));
            }
            if state.passes() != passes {
                return Ok(None);
            }
            let Some(object) = state.objects.get_mut(&id) else {
                return Err(Error::NotFound(show(path)));
            };
            let owner = object.owner().filter(|owner| !File::is_implicit(*owner));
            let left = object.left.as_deref().copied();
            let file = self.files.add(|number| {
                let file = File::new(id, number, path.to_vec(), stat.as_ref());
                match owner {
                    Some(owner) => file.owned_by(owner, left),
                    None => file,
                }
            })?;
            file.identified.store(object.identified, Ordering::Release);
            file.last_sequence.store(object.last, Ordering::Release);
            if let Some(ns) = std::mem::take(&mut object.mtime).ns() {
                file.set_mtime(ns, object.mtime_sequence);
            }
            object.file = Arc::downgrade(&file);
            Ok(Some(file))
        })
    }

    /// The file at `path`, opened for reading and writing, as everybody sees the directory.
    pub fn open_path(&self, path: &[u8]) -> Result<Arc<File>> {
        let walk = Walk { names: &self.names, host: &*self.host, private: None };
        self.open_target(&walk, path)
    }

    /// The same, as somebody sees the directory.
    pub fn open_target(&self, walk: &Walk<'_>, path: &[u8]) -> Result<Arc<File>> {
        for _ in 0..TRIES {
            let found = walk.target(path)?;
            match self.open_found(path, &found) {
                Err(Error::NotFound(_)) => {}
                // The bytes of what has lost its name may have gone with it.
                Ok(_) if !walk.is_named(found.id) => {}
                opened => return opened,
            }
        }
        Err(Error::NotFound(show(path)))
    }
}
