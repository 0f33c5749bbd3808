//! Looking at all that is there: as a store or a group serves it, and at home.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use wholly::{DirEntry, Error, File, Group, Side, Store};
use wholly_sim::{Image, Place, World};
use wholly_vfs::Stat;

use crate::script::{PATHS, XATTRS};
use crate::tree::{Kind, Number, OWNER, Object, State, Time};
use crate::workload::{FRESH, Start, Workload};

/// The folder that belongs to the store itself.
pub(crate) const OWN: &str = ".wholly";
/// In it, what is parked.
const PARKED: &str = ".wholly/parked/";
/// In it, what is kept of objects without a name.
const ANCHORS: &str = ".wholly/anchor/";
/// Undo that is kept, with what it holds.
const UNDO: &str = ".wholly/undo/";
/// What may be left of it.
const UNDO_TAG: &str = ".wholly/undo/CACHEDIR.TAG";
/// The file that says that the store is a guest.
const GUEST: &str = ".wholly/guest";

const TYPE: u32 = 0o170_000;
const DIR: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
pub(crate) const FIFO: u32 = 0o010_000;

/// What serves names: a store, or a group of it.
pub trait Names {
    /// Whether looking at an object may change the time of its last access.
    const NOTES_LOOKS: bool;
    /// Whether a crash leaves all that `lstat` says as it is, inode numbers and times too.
    const IS_EXACT: bool = false;
    /// The entries of a directory.
    fn read_dir(&mut self, path: &str) -> wholly::Result<Vec<DirEntry>>;
    /// What lstat(2) says.
    fn metadata(&mut self, path: &str) -> wholly::Result<Stat>;
    /// The target of a symbolic link.
    fn read_link(&mut self, path: &str) -> wholly::Result<Vec<u8>>;
    /// The names of all extended attributes.
    fn xattrs(&mut self, path: &str) -> wholly::Result<Vec<Vec<u8>>>;
    /// The value of an extended attribute.
    fn xattr(&mut self, path: &str, name: &[u8]) -> wholly::Result<Option<Vec<u8>>>;
    /// The bytes of a regular file.
    fn content(&mut self, path: &str) -> wholly::Result<Vec<u8>>;

    /// Whether undo of groups is kept, which may hold objects by a link.
    fn may_hold(&self) -> bool {
        false
    }
}

impl Names for &Store {
    const NOTES_LOOKS: bool = true;

    fn read_dir(&mut self, path: &str) -> wholly::Result<Vec<DirEntry>> {
        Store::read_dir(self, path)
    }

    fn metadata(&mut self, path: &str) -> wholly::Result<Stat> {
        Store::metadata(self, path)
    }

    fn read_link(&mut self, path: &str) -> wholly::Result<Vec<u8>> {
        Store::read_link(self, path)
    }

    fn xattrs(&mut self, path: &str) -> wholly::Result<Vec<Vec<u8>>> {
        Store::xattrs(self, path)
    }

    fn xattr(&mut self, path: &str, name: &[u8]) -> wholly::Result<Option<Vec<u8>>> {
        Store::xattr(self, path, OsStr::from_bytes(name))
    }

    fn content(&mut self, path: &str) -> wholly::Result<Vec<u8>> {
        content(&self.open_file(path)?)
    }

    fn may_hold(&self) -> bool {
        self.undos().is_ok_and(|all| !all.is_empty())
    }
}

impl Names for Group<'_> {
    const NOTES_LOOKS: bool = true;

    fn read_dir(&mut self, path: &str) -> wholly::Result<Vec<DirEntry>> {
        Group::read_dir(self, path)
    }

    fn metadata(&mut self, path: &str) -> wholly::Result<Stat> {
        Group::metadata(self, path)
    }

    fn read_link(&mut self, path: &str) -> wholly::Result<Vec<u8>> {
        Group::read_link(self, path)
    }

    fn xattrs(&mut self, path: &str) -> wholly::Result<Vec<Vec<u8>>> {
        Group::xattrs(self, path)
    }

    fn xattr(&mut self, path: &str, name: &[u8]) -> wholly::Result<Option<Vec<u8>>> {
        Group::xattr(self, path, OsStr::from_bytes(name))
    }

    fn content(&mut self, path: &str) -> wholly::Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let mut content = vec![0; self.len(&file) as usize];
        let read = self.read_at(&file, 0, &mut content)?;
        content.truncate(read);
        Ok(content)
    }
}

fn content(file: &File) -> wholly::Result<Vec<u8>> {
    let mut content = vec![0; file.len() as usize];
    let read = file.read_at(0, &mut content)?;
    content.truncate(read);
    Ok(content)
}

/// What could not be looked at: its path and why. Who goes on does so without it.
pub type Trouble<'t> = &'t mut dyn FnMut(&str, Error) -> Result<(), String>;

/// What a store serves.
///
/// # Errors
/// What the store reports, or contradicts itself in.
pub fn served(world: &Arc<World>, store: &Store, workload: &Workload) -> Result<State, String> {
    served_but(world, store, workload, &mut |path, error| Err(format!("{path}: {error}")))
}

/// The same, where some of it may not be readable.
pub(crate) fn served_but(
    world: &Arc<World>,
    mut store: &Store,
    workload: &Workload,
    trouble: Trouble<'_>,
) -> Result<State, String> {
    let mut state = match workload.start {
        Start::Files => files(world, store, workload, trouble),
        Start::Bare | Start::Dirs | Start::Guest | Start::Crowd => tree(&mut store, trouble),
    }?;
    parked(store, &mut state)?;
    if workload.start == Start::Guest {
        state.set_temporary(store.is_temporary().map_err(|error| format!("whether it is a guest: {error}"))?);
    }
    Ok(state)
}

/// What is parked, each by its note. All that it would write is read.
fn parked(store: &Store, state: &mut State) -> Result<(), String> {
    for parked in store.parked().map_err(|error| format!("what is parked: {error}"))? {
        let failed = |error| format!("parked group {}: {error}", parked.id);
        let review = store.review(parked.id).map_err(failed)?;
        for change in review.changes().iter().filter(|change| change.content) {
            let mut content = vec![0; change.after.map_or(0, |stat| stat.size as usize)];
            match review.read(change, Side::After, 0, &mut content) {
                Ok(read) if read == content.len() => {}
                // What was there is gone.
                Err(Error::NotFound(_)) => {}
                other => return Err(format!("parked group {}: {}: {other:?}", parked.id, change.path.display())),
            }
        }
        state.has_parked(parked.note.parse().map_err(|_| format!("a parked group has the note {:?}", parked.note))?);
    }
    Ok(())
}

/// Of a workload in which nothing but files changes: those that it speaks of.
fn files(world: &Arc<World>, store: &Store, workload: &Workload, trouble: Trouble<'_>) -> Result<State, String> {
    workload.shown(|path| {
        match store.open_file(path).and_then(|file| content(&file)) {
            Ok(content) => return Ok(Some(content)),
            Err(Error::NotFound(_)) if world.host().stat(path.as_bytes()).is_ok() => {
                return Err(format!("{path} is not found, although the directory holds it"));
            }
            Err(Error::NotFound(_)) => {}
            Err(error) => trouble(path, error)?,
        }
        Ok(None)
    })
}

/// Everything, from the store's directory on.
///
/// # Errors
/// What `trouble` makes of an error, and where what is served contradicts itself.
pub fn tree<N: Names>(names: &mut N, trouble: Trouble<'_>) -> Result<State, String> {
    let mut found = Found { may_hold: names.may_hold(), ..Found::default() };
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        let mut entries = match names.read_dir(if dir.is_empty() { "." } else { &dir }) {
            Ok(entries) => entries,
            Err(error) => {
                trouble(&dir, error)?;
                continue;
            }
        };
        entries.sort();
        for pair in entries.windows(2) {
            if pair[0].name == pair[1].name {
                return Err(format!("{dir} has {} twice", String::from_utf8_lossy(&pair[0].name)));
            }
        }
        for entry in entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            if path == OWN {
                continue;
            }
            let looked = names.metadata(&path).and_then(|stat| {
                let object = match stat.mode & TYPE {
                    FILE => Some(Kind::File(names.content(&path)?.into())),
                    SYMLINK => Some(Kind::Symlink(String::from_utf8_lossy(&names.read_link(&path)?).into_owned())),
                    DIR => Some(Kind::Dir(BTreeMap::new())),
                    FIFO => Some(Kind::Fifo),
                    _ => None,
                };
                Ok((stat, object, xattrs(names, &path)?))
            });
            let (stat, kind, (listed, xattrs)) = match looked {
                Ok(looked) => looked,
                Err(error) => {
                    trouble(&path, error)?;
                    continue;
                }
            };
            if entry.ino != stat.ino || entry.kind != 0 && entry.kind != stat.mode & TYPE {
                return Err(format!("{path} is {entry:?} in its directory, and by itself {stat:?}"));
            }
            let bytes = match &kind {
                Some(Kind::File(content)) => content.len(),
                Some(Kind::Symlink(target)) => target.len(),
                Some(Kind::Dir(_)) => {
                    todo.push(path.clone());
                    stat.size as usize
                }
                _ => 0,
            };
            if stat.size != bytes as u64 {
                return Err(format!("{path} has {bytes} bytes and says {}", stat.size));
            }
            let Some(kind) = kind else { return Err(format!("{path} has mode {:o}", stat.mode)) };
            if !listed.iter().eq(xattrs.keys()) {
                return Err(format!("{path} lists {listed:02x?} and has {:02x?}", xattrs.keys()));
            }
            let mut shown = shown(kind, stat.mode, (stat.uid, stat.gid), (stat.atime_ns, stat.mtime_ns), xattrs);
            if N::NOTES_LOOKS && shown.atime == Time::Clock {
                shown.atime = Time::Either;
            }
            shown.exact = N::IS_EXACT.then(|| exact(stat));
            found.add(&path, stat.ino, stat.nlink, shown)?;
        }
    }
    let mut state = found.state()?;
    absent(names, &state, trouble)?;
    if N::IS_EXACT {
        match names.metadata(".") {
            Ok(stat) => state.root_is(exact(stat)),
            Err(error) => trouble(".", error)?,
        }
    }
    Ok(state)
}

/// What is the same for all who look.
pub(crate) fn exact(stat: Stat) -> Stat {
    // Looking renews the time of access, and blocks of directories come and go without anybody's change.
    let (size, allocated) = if stat.mode & TYPE == DIR { (0, 0) } else { (stat.size, stat.allocated) };
    Stat { atime_ns: 0, size, allocated, ..stat }
}

/// Names of extended attributes, and values by name.
type Xattrs = (Vec<Vec<u8>>, BTreeMap<Vec<u8>, Vec<u8>>);

/// Not those that a security module of the host gives to every file.
fn is_compared(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.")
}

/// The extended attributes that the object at `path` lists, and those that it has, of all that it may have.
fn xattrs(names: &mut impl Names, path: &str) -> wholly::Result<Xattrs> {
    let mut listed: Vec<_> = names.xattrs(path)?.into_iter().filter(|name| is_compared(name)).collect();
    listed.sort();
    let mut values = BTreeMap::new();
    for name in listed.iter().cloned().chain(XATTRS.map(|name| name.as_bytes().to_vec())) {
        let value = names.xattr(path, &name)?;
        values.extend(value.map(|value| (name, value)));
    }
    Ok((listed, values))
}

/// An object as it shows.
fn shown(
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    (atime_ns, mtime_ns): (i64, i64),
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
) -> Object {
    let named = |(name, value): (Vec<u8>, Vec<u8>)| (String::from_utf8_lossy(&name).into_owned(), Arc::from(value));
    Object {
        kind,
        mode: mode & !TYPE,
        owner: (owner.0 == OWNER.0 || owner.1 == OWNER.1).then_some(owner),
        atime: Time::shown(atime_ns),
        mtime: Time::shown(mtime_ns),
        xattrs: xattrs.into_iter().map(named).collect(),
        exact: None,
    }
}

/// What no directory lists is not there by its path either; and what a symbolic link leads to is.
fn absent(names: &mut impl Names, state: &State, trouble: Trouble<'_>) -> Result<(), String> {
    for path in PATHS.iter().chain(&[FRESH]) {
        let expected = state.find(path).map(|number| state.object(number).mode);
        let found = names.metadata(path).map(|stat| stat.mode & !TYPE).map_err(|error| (error.errno(), error));
        match (expected, found) {
            (Ok(expected), Ok(found)) if expected == found => {}
            (Err(expected), Err((found, _))) if expected.raw_os_error() == found => {}
            (_, Err((_, error))) => trouble(path, error)?,
            (expected, Ok(found)) => return Err(format!("{path} has mode {found:o}, where {expected:?} was listed")),
        }
    }
    Ok(())
}

/// The note in the file of a parked group, as the format has it.
fn note_of(content: &[u8]) -> Option<u32> {
    let length = u32::from_le_bytes(content.get(20..24)?.try_into().ok()?);
    std::str::from_utf8(content.get(128..128 + length as usize)?).ok()?.parse().ok()
}

/// The parked group that a content file is of, by the path of either.
fn group_of_content(path: &str) -> Option<&str> {
    let (group, object) = path.strip_prefix(PARKED)?.split_once('.')?;
    u64::from_str_radix(object, 16).is_ok().then(|| &path[..PARKED.len() + group.len()])
}

/// All that is at home. In the store's own folder there may be empty folders, what is parked, and the mark of a guest.
pub(crate) fn at_home(image: &Image) -> Result<State, String> {
    let (mut found, mut parked, mut guest) = (Found::default(), Vec::new(), false);
    let names = image.names();
    let of_kept = |path: &[u8]| path.starts_with(UNDO.as_bytes()) && path.ends_with(b".kept");
    let has_kept = names.iter().any(|it| of_kept(&it.path));
    for it in &names {
        let path = String::from_utf8_lossy(&it.path).into_owned();
        // An undo that is kept, and what it holds.
        let is_line = || path.starts_with(PARKED) && path.ends_with(".line");
        let is_of_undo = |path: &str| path.starts_with(UNDO) && !path.ends_with(".new");
        if has_kept && (is_line() || is_of_undo(&path) || path.starts_with(ANCHORS)) || path == UNDO_TAG {
            continue;
        }
        if path == GUEST {
            guest = true;
            continue;
        }
        if let Some(group) = group_of_content(&path) {
            if !names.iter().any(|it| it.path == group.as_bytes()) {
                return Err(format!("{path} is left of no parked group"));
            }
            continue;
        }
        if path.starts_with(PARKED) && !path.ends_with(".new") {
            let content = image.read(&Place::File(it.path.clone())).unwrap_or_default();
            parked.push(note_of(&content).ok_or_else(|| format!("{path} is no parked group"))?);
            continue;
        }
        if path.split('/').next() == Some(OWN) {
            if it.mode & TYPE != DIR || path.split('/').count() > 2 {
                return Err(format!("{path} is left"));
            }
            continue;
        }
        let kind = match it.mode & TYPE {
            FILE => image.read(&Place::File(it.path.clone())).map(Arc::from).map(Kind::File),
            SYMLINK => Some(Kind::Symlink(String::from_utf8_lossy(&it.target).into_owned())),
            DIR => Some(Kind::Dir(BTreeMap::new())),
            FIFO => Some(Kind::Fifo),
            _ => None,
        };
        let Some(kind) = kind else { return Err(format!("{path} has mode {:o}", it.mode)) };
        found.add(&path, it.ino, it.nlink, shown(kind, it.mode, it.owner, it.times_ns, it.xattrs.clone()))?;
    }
    let mut state = found.state()?;
    parked.into_iter().for_each(|number| state.has_parked(number));
    state.set_temporary(guest);
    Ok(state)
}

/// A state in the making, its objects known by their inode numbers. Directories come before what is in them.
#[derive(Default)]
struct Found {
    state: State,
    numbers: BTreeMap<u64, Number>,
    /// The links that an object says it has.
    links: BTreeMap<Number, u32>,
    /// Whether one of them may be that by which an undo holds it.
    may_hold: bool,
}

impl Found {
    fn add(&mut self, path: &str, ino: u64, nlink: u32, object: Object) -> Result<(), String> {
        let is_dir = object.is_dir();
        match self.numbers.get(&ino) {
            // Between looks at its two names, looking may have changed the time of its last access.
            Some(number)
                if *self.state.object(*number)
                    == Object { atime: self.state.object(*number).atime, ..object.clone() }
                    && !is_dir =>
            {
                self.state.name(path, *number);
            }
            Some(_) => {
                return Err(format!("{path} has the inode number of something else, or shows another state of it"));
            }
            None => {
                let number = self.state.put(path, object);
                self.numbers.insert(ino, number);
                if !is_dir {
                    self.links.insert(number, nlink);
                }
            }
        }
        Ok(())
    }

    fn state(self) -> Result<State, String> {
        for (path, number) in self.state.paths() {
            let names = self.state.names_of(number);
            if let Some(links) = self.links.get(&number)
                && *links as usize != names
                && !(self.may_hold && *links as usize == names + 1)
            {
                return Err(format!("{path} has {links} links and {names} names"));
            }
        }
        Ok(self.state)
    }
}
