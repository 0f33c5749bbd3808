//! What a directory holds: the model that a store is compared with.
//!
//! # Terms
//!
//! - *object*: a file, a directory, a symbolic link or a FIFO. Several names of one file are one object, by its number
//!   here; which numbers two states use does not matter when they are compared.
//! - *opened*: by which path the process has opened which file. Whatever becomes of the name, `@` and that path mean
//!   this file. A file without a name lives as long as it is opened, and nobody else sees it.

mod attributes;
mod compare;
mod host;
mod merge;
mod parked;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rustix::io::Errno;
use wholly_sim::World;
use wholly_vfs::Rename;
use wholly_vfs::Stat;

use crate::workload::{ADOPTED, Adopted, Op};
pub use attributes::Time;
pub(crate) use attributes::{OWNER, times};
pub(crate) use compare::looks_as;
pub(crate) use host::{SITE, in_layer, make_in_layer, on_host};
use parked::ParkedGroup;

/// The number of an object of a state.
pub type Number = u32;

const ROOT: Number = 0;

/// Symbolic links on the way of one path.
const MOST_LINKS: usize = 40;

/// Permission bits of files that ops make. Each kind has other bits, so that none passes for another.
pub const FILE_MODE: u32 = 0o644;
/// The same of directories.
pub const DIR_MODE: u32 = 0o750;
pub(crate) const FIFO_MODE: u32 = 0o620;
/// Those that the system gives to every symbolic link.
const LINK_MODE: u32 = 0o777;

/// What an object is, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file and its bytes.
    File(Arc<[u8]>),
    /// A directory and its names.
    Dir(BTreeMap<String, Number>),
    /// A symbolic link and its target.
    Symlink(String),
    /// A FIFO.
    Fifo,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Its permission bits.
    pub mode: u32,
    /// Owner and group, where a call has set them.
    pub owner: Option<(u32, u32)>,
    /// The time of its last access.
    pub atime: Time,
    /// The time of its last change.
    pub mtime: Time,
    /// Its extended attributes.
    pub xattrs: BTreeMap<String, Arc<[u8]>>,
    /// All that `lstat` says, where somebody has looked who asks for that: two are compared where both have it. The
    /// model foretells none. The time of the last access is left out, and the size of a directory.
    pub exact: Option<Stat>,
}

impl Object {
    pub(crate) fn new(kind: Kind, mode: u32) -> Object {
        let (atime, mtime) = (Time::Clock, Time::Clock);
        Object { kind, mode, owner: None, atime, mtime, xattrs: BTreeMap::new(), exact: None }
    }

    /// The directory of a store, or another one that was there before it.
    pub(crate) fn dir(mode: u32) -> Object {
        Object::new(Kind::Dir(BTreeMap::new()), mode)
    }

    /// A regular file.
    pub fn file(content: impl Into<Arc<[u8]>>, mode: u32) -> Object {
        Object::new(Kind::File(content.into()), mode)
    }

    /// A symbolic link.
    pub(crate) fn symlink(target: impl Into<String>) -> Object {
        Object::new(Kind::Symlink(target.into()), LINK_MODE)
    }

    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Dir(_))
    }

    pub(crate) fn describe(&self) -> String {
        let kind = match &self.kind {
            Kind::File(content) => format!("a file of {} bytes", content.len()),
            Kind::Dir(_) => "a directory".into(),
            Kind::Symlink(target) => format!("a link to {target:?}"),
            Kind::Fifo => "a FIFO".into(),
        };
        format!("{kind}, mode {:o}", self.mode)
    }
}

/// All that is in a directory, and the files that are open. Equal for who can only look, whatever is open.
#[derive(Clone, Debug)]
pub struct State {
    objects: BTreeMap<Number, Object>,
    opened: BTreeMap<String, Number>,
    next: Number,
    /// Groups that are parked, by their notes; nothing where only that is known.
    parked: BTreeMap<u32, Option<Arc<ParkedGroup>>>,
    /// How many groups were parked so far.
    parks: u32,
    /// Whether it is a store only for as long as something runs.
    guest: bool,
}

impl Default for State {
    /// An empty directory.
    fn default() -> Self {
        let objects = BTreeMap::from([(ROOT, Object::dir(0o755))]);
        State { objects, opened: BTreeMap::new(), next: ROOT + 1, parked: BTreeMap::new(), parks: 0, guest: false }
    }
}

impl State {
    /// Puts an object at a path, whose directory is there; a name that an object got by an earlier call gets it too.
    ///
    /// # Panics
    /// If there is no such directory.
    pub fn put(&mut self, path: &str, object: Object) -> Number {
        let number = self.add(object);
        self.name(path, number);
        number
    }

    /// Takes a name away, if it is there.
    pub(crate) fn lose(&mut self, path: &str) {
        if let Ok((dir, name)) = self.parent(path) {
            self.set(dir, name, None);
        }
    }

    /// Gives an object one more name.
    ///
    /// # Panics
    /// If the name's directory is not there.
    pub fn name(&mut self, path: &str, number: Number) {
        let (dir, name) = self.parent(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        self.set(dir, name, Some(number));
    }

    /// Makes all of it in a world in which nothing has happened yet: directories and files with their usual permission
    /// bits.
    pub fn put_into(&self, world: &World) {
        if self.guest {
            world.add_dir(".wholly");
            world.add_file(".wholly/guest", b"");
        }
        for (path, number) in self.paths() {
            match &self.objects[&number].kind {
                Kind::Dir(_) => world.add_dir(path),
                Kind::File(content) => world.add_file(path, content),
                kind => panic!("{path} cannot be there at first: {kind:?}"),
            }
        }
    }

    /// Whether it is a guest, or a store for good.
    pub fn is_temporary(&self) -> bool {
        self.guest
    }

    /// It is one, or the other.
    pub fn set_temporary(&mut self, guest: bool) {
        self.guest = guest;
    }

    /// What `lstat` says of the directory itself.
    pub(crate) fn root_is(&mut self, exact: Stat) {
        self.objects.get_mut(&ROOT).expect("the root stays").exact = Some(exact);
    }

    fn add(&mut self, object: Object) -> Number {
        let number = self.next;
        self.next += 1;
        self.objects.insert(number, object);
        number
    }

    /// The process that had files open is gone; another one opens every regular file by each of its names.
    pub fn reopen(&mut self) {
        let files = |(path, number): (String, Number)| {
            matches!(self.objects[&number].kind, Kind::File(_)).then_some((path, number))
        };
        self.opened = self.paths().into_iter().filter_map(files).collect();
        self.forget();
    }

    /// Whether it is equal for who has files open, too.
    pub(crate) fn is_same(&self, other: &State) -> bool {
        self == other && self.objects == other.objects
    }

    /// The paths by which files were opened.
    pub fn opened(&self) -> impl Iterator<Item = &str> {
        self.opened.keys().map(String::as_str)
    }

    /// A path by which the file that `file` means was opened.
    pub fn handle(&self, file: &str) -> Option<&str> {
        let number = self.file(file).ok()?;
        self.opened.iter().find(|(_, opened)| **opened == number).map(|(path, _)| path.as_str())
    }

    /// What has the name `path`, a symbolic link itself.
    ///
    /// # Errors
    /// Those of `lstat`.
    pub fn find(&self, path: &str) -> Result<Number, Errno> {
        self.walk(path, false)
    }

    /// The same, if there is such a thing.
    pub fn at(&self, path: &str) -> Option<&Object> {
        self.walk(path, false).ok().map(|number| &self.objects[&number])
    }

    /// What can be seen by this name: the object, less what is in a directory, and the first of its names.
    pub fn shows(&self, path: &str) -> Option<(Object, String)> {
        let number = self.walk(path, false).ok()?;
        let mut object = self.objects[&number].clone();
        if object.is_dir() {
            object.kind = Kind::Dir(BTreeMap::new());
        }
        let first = self.paths().into_iter().find(|(_, of)| *of == number).map_or_else(String::new, |(path, _)| path);
        Some((object, first))
    }

    /// The bytes of the file that `file` means: a path, or `@` and a path by which it was opened.
    pub fn content(&self, file: &str) -> Option<&Arc<[u8]>> {
        match &self.objects[&self.file(file).ok()?].kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }

    /// Gives a file the bytes that it has in `other`, where it was opened by the same path.
    pub fn take_content(&mut self, file: &str, other: &State) {
        let (Ok(number), Some(content)) = (self.file(file), other.content(file)) else { return };
        self.set_content(number, content.clone());
    }

    /// Every path and what has it, in order.
    pub fn paths(&self) -> Vec<(String, Number)> {
        let mut found = BTreeMap::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((prefix, dir)) = todo.pop() {
            let Kind::Dir(names) = &self.objects[&dir].kind else { continue };
            for (name, number) in names {
                let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
                todo.push((path.clone(), *number));
                found.insert(path, *number);
            }
        }
        found.into_iter().collect()
    }

    /// The object with this number.
    pub fn object(&self, number: Number) -> &Object {
        &self.objects[&number]
    }

    /// Whether there is an object with this number.
    pub(crate) fn has(&self, number: Number) -> bool {
        self.objects.contains_key(&number)
    }

    /// How many names an object has.
    pub fn names_of(&self, number: Number) -> usize {
        self.paths().iter().filter(|(_, of)| *of == number).count()
    }

    /// Changes the state as `op` does with these [bytes](Op::bytes).
    ///
    /// # Errors
    /// That of the system call, where it refuses. Then nothing has changed.
    pub fn apply(&mut self, op: &Op, bytes: &[u8]) -> Result<(), Errno> {
        self.objects.values_mut().for_each(|object| object.exact = None);
        match op {
            Op::Create(path) => {
                let number = self.make(path, Object::file([], FILE_MODE))?;
                self.opened.insert((*path).into(), number);
            }
            Op::Mkdir(path) => drop(self.make(path, Object::dir(DIR_MODE))?),
            Op::Adopt { path, what: Adopted::File | Adopted::Content } => {
                self.make(path, Object::file(bytes, FILE_MODE))?;
            }
            Op::Adopt { path, what: Adopted::Whole } => {
                self.make(path, Object::dir(DIR_MODE))?;
                for (below, content) in ADOPTED {
                    let object = match content {
                        Some(range) => Object::file(&bytes[range.clone()], FILE_MODE),
                        None => Object::dir(DIR_MODE),
                    };
                    self.make(&format!("{path}/{below}"), object)?;
                }
            }
            Op::Mknod(path) => drop(self.make(path, Object::new(Kind::Fifo, FIFO_MODE))?),
            Op::Symlink { target, path } => drop(self.make(path, Object::symlink(*target))?),
            Op::Link { from, to } => {
                let (old_dir, old_name) = self.parent(from)?;
                let (dir, name) = self.parent(to)?;
                let number = self.entry(old_dir, old_name)?;
                if self.entry(dir, name).is_ok() {
                    return Err(Errno::EXIST);
                }
                if self.objects[&number].is_dir() {
                    return Err(Errno::PERM);
                }
                self.change(dir, name, Some(number));
            }
            Op::Unlink(path) => {
                let (dir, name) = self.parent(path)?;
                if self.objects[&self.entry(dir, name)?].is_dir() {
                    return Err(Errno::ISDIR);
                }
                self.change(dir, name, None);
            }
            Op::Rmdir(path) => {
                let (dir, name) = self.parent(path)?;
                match &self.objects[&self.entry(dir, name)?].kind {
                    Kind::Dir(names) if names.is_empty() => self.change(dir, name, None),
                    Kind::Dir(_) => return Err(Errno::NOTEMPTY),
                    _ => return Err(Errno::NOTDIR),
                }
            }
            Op::RemoveTree(path) => {
                let (dir, name) = self.parent(path)?;
                if !self.objects[&self.entry(dir, name)?].is_dir() {
                    return Err(Errno::NOTDIR);
                }
                self.change(dir, name, None);
            }
            Op::Rename { from, to, how } => self.rename(from, to, *how)?,
            Op::Write { file, offset, .. } => self.paint(file, Some(*offset), bytes)?,
            Op::Append { file, .. } => self.paint(file, None, bytes)?,
            Op::SetLen { file, length } => {
                let number = self.file(file)?;
                let mut content = self.content(file).expect("it is a file").to_vec();
                content.resize(*length as usize, 0);
                self.set_content(number, content);
            }
            Op::Fallocate { file, how, offset, length } => {
                let number = self.file(file)?;
                let mut content = self.content(file).expect("it is a file").to_vec();
                let end = (offset + length) as usize;
                if how.extends() && end > content.len() {
                    content.resize(end, 0);
                }
                if how.zeroes() {
                    let (from, to) = ((*offset as usize).min(content.len()), end.min(content.len()));
                    content[from..to].fill(0);
                }
                self.set_content(number, content);
            }
            Op::SetMode { .. }
            | Op::SetOwner(_)
            | Op::SetTimes { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. } => self.set_attributes(op, bytes)?,
        }
        self.forget();
        Ok(())
    }

    fn make(&mut self, path: &str, object: Object) -> Result<Number, Errno> {
        let (dir, name) = self.free(path)?;
        let number = self.add(object);
        self.change(dir, name, Some(number));
        Ok(number)
    }

    /// In the order in which Linux finds what forbids it.
    fn rename(&mut self, from: &str, to: &str, how: Rename) -> Result<(), Errno> {
        let (old_dir, old_name) = self.parent(from)?;
        let (new_dir, new_name) = self.parent(to)?;
        let moved = self.entry(old_dir, old_name)?;
        let replaced = self.entry(new_dir, new_name).ok();
        match (how, replaced) {
            (Rename::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (Rename::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        if self.is_in(moved, new_dir) {
            return Err(Errno::INVAL);
        }
        if let Some(replaced) = replaced {
            if self.is_in(replaced, old_dir) {
                return Err(if how == Rename::Exchange { Errno::INVAL } else { Errno::NOTEMPTY });
            }
            if replaced == moved {
                return Ok(());
            }
            if how != Rename::Exchange {
                match (self.objects[&moved].is_dir(), &self.objects[&replaced].kind) {
                    (true, Kind::Dir(names)) if !names.is_empty() => return Err(Errno::NOTEMPTY),
                    (true, Kind::Dir(_)) => {}
                    (true, _) => return Err(Errno::NOTDIR),
                    (false, Kind::Dir(_)) => return Err(Errno::ISDIR),
                    (false, _) => {}
                }
            }
        }
        self.change(old_dir, old_name, if how == Rename::Exchange { replaced } else { None });
        self.change(new_dir, new_name, Some(moved));
        Ok(())
    }

    fn paint(&mut self, file: &str, offset: Option<u64>, bytes: &[u8]) -> Result<(), Errno> {
        let number = self.file(file)?;
        let mut content = self.content(file).expect("it is a file").to_vec();
        let offset = offset.map_or(content.len(), |offset| offset as usize);
        if !bytes.is_empty() {
            if content.len() < offset + bytes.len() {
                content.resize(offset + bytes.len(), 0);
            }
            content[offset..offset + bytes.len()].copy_from_slice(bytes);
            self.set_content(number, content);
        }
        Ok(())
    }

    fn set_content(&mut self, number: Number, content: impl Into<Arc<[u8]>>) {
        self.objects.get_mut(&number).expect("it is there").kind = Kind::File(content.into());
        self.changes(number);
    }

    /// Sets a name, whose directory notes the time.
    fn change(&mut self, dir: Number, name: &str, value: Option<Number>) {
        self.set(dir, name, value);
        self.changes(dir);
    }

    fn set(&mut self, dir: Number, name: &str, value: Option<Number>) {
        let Some(Object { kind: Kind::Dir(names), .. }) = self.objects.get_mut(&dir) else {
            panic!("a name of what is no directory")
        };
        match value {
            Some(number) => names.insert(name.into(), number),
            None => names.remove(name),
        };
    }

    /// Gives up what neither a name nor an open file leads to.
    fn forget(&mut self) {
        let named = self.paths().into_iter().map(|(_, number)| number);
        let kept: BTreeSet<Number> = named.chain(self.opened.values().copied()).chain([ROOT]).collect();
        self.objects.retain(|number, _| kept.contains(number));
    }

    /// The regular file that `file` means.
    pub(crate) fn file(&self, file: &str) -> Result<Number, Errno> {
        if let Some(path) = file.strip_prefix('@') {
            return self.opened.get(path).copied().ok_or(Errno::BADF);
        }
        let number = self.walk(file, true)?;
        match self.objects[&number].kind {
            Kind::File(_) => Ok(number),
            _ => Err(Errno::INVAL),
        }
    }

    fn entry(&self, dir: Number, name: &str) -> Result<Number, Errno> {
        match &self.objects[&dir].kind {
            Kind::Dir(names) => names.get(name).copied().ok_or(Errno::NOENT),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The directory of `path`, and its last part.
    pub(crate) fn parent<'p>(&self, path: &'p str) -> Result<(Number, &'p str), Errno> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.walk(parent, true)?;
        if self.objects[&dir].is_dir() { Ok((dir, name)) } else { Err(Errno::NOTDIR) }
    }

    /// The same, of a name that nobody has.
    fn free<'p>(&self, path: &'p str) -> Result<(Number, &'p str), Errno> {
        let (dir, name) = self.parent(path)?;
        if self.entry(dir, name).is_ok() { Err(Errno::EXIST) } else { Ok((dir, name)) }
    }

    fn walk(&self, path: &str, follow_last: bool) -> Result<Number, Errno> {
        let mut way = vec![ROOT];
        let mut todo: VecDeque<&str> = path.split('/').collect();
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            let at = *way.last().expect("the root stays");
            if !self.objects[&at].is_dir() {
                return Err(Errno::NOTDIR);
            }
            match part {
                "" | "." => continue,
                ".." => {
                    way.pop();
                    if way.is_empty() {
                        return Err(Errno::XDEV);
                    }
                    continue;
                }
                _ => {}
            }
            let number = self.entry(at, part)?;
            match &self.objects[&number].kind {
                Kind::Symlink(target) if follow_last || !todo.is_empty() => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP);
                    }
                    target.split('/').rev().for_each(|part| todo.push_front(part));
                }
                _ => way.push(number),
            }
        }
        Ok(*way.last().expect("the root stays"))
    }

    /// Whether `below` is `above` or lies in it.
    fn is_in(&self, above: Number, below: Number) -> bool {
        above == below
            || match &self.objects[&above].kind {
                Kind::Dir(names) => names.values().any(|number| self.is_in(*number, below)),
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests;
