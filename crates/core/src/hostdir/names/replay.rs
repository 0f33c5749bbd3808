//! From the records of the log to the names of a store: what they are, and where the host has what they name.
//!
//! The log says what every name is. Where an object is on the host it says only up to a crash inside of a pass: so each
//! object is looked for at every place that a record names it at, and in the store's own folders. Nowhere else can it
//! be, for only passes change the host's names, and a pass goes from values of the log to values of the log.

use std::collections::{BTreeSet, HashMap, VecDeque};

use rustix::io::Errno;
use wholly_changes::records::{Birth, Identity, Value};
use wholly_changes::{Kind, Name, NameBytes, ROOT, Set, id_name, id_of, join};
use wholly_host::HostFs;
use wholly_vfs::Stat;

use super::TYPE;
use super::{ANCHOR_FOLDER, ANCHORS, BLANK_FOLDER, BLANKS, Change, Object, Register, State, Strange, mark_of};
use crate::error::{Error, Result};
use crate::log::checksum::checksum;

/// See the head of this file.
pub(crate) struct NameReplay {
    pub state: State,
    /// Which object an inode is, as records say.
    inodes: HashMap<(u64, i64), u64>,
    /// The inode number of each object, where that is all there is to know it by.
    numbers: HashMap<u64, u64>,
    /// Whether objects are what stands at their places: the store is a copy, in which they are other inodes.
    by_place: bool,
    /// The object that was at a name before the first group that is not home; only where a copy may be adopted.
    first: Option<HashMap<Name, u64>>,
    /// Names at which records say that there is something, by directory.
    candidates: HashMap<u64, BTreeSet<NameBytes>>,
    /// Objects whose place a Name entry has told: later identities tell what their group saw, which may be older.
    moved: BTreeSet<u64>,
    /// What the host has at the names that were looked at.
    looked: HashMap<Name, Option<Stat>>,
    /// Directories that were on their way out, by their place in a folder of the store, and are not empty.
    held: Vec<(u64, Vec<u8>, u64)>,
    conflicts: Vec<(u64, Vec<u8>, String)>,
}

/// Where an object was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundObject {
    /// At this path of the host.
    At(Vec<u8>),
    /// Nowhere, because the host has not made it, or because it has no name any more.
    Nowhere,
    /// A bystander has taken it away, or put something else in its place.
    Lost(String),
}

impl NameReplay {
    pub fn new() -> Self {
        let mut state = State::default();
        state.objects.insert(ROOT, Object::root());
        NameReplay {
            state,
            inodes: HashMap::new(),
            numbers: HashMap::new(),
            by_place: false,
            first: None,
            candidates: HashMap::new(),
            moved: BTreeSet::new(),
            looked: HashMap::new(),
            held: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    /// The store may be a copy that is to be [adopted](Self::adopt). To be called before the first group.
    pub fn may_adopt(&mut self) {
        self.first = Some(HashMap::new());
    }

    /// The store is a copy: objects are what stands at their places, whatever inodes those are.
    pub fn adopt(&mut self) {
        self.by_place = true;
    }

    /// Whether the store is a copy that was adopted.
    pub fn is_adopted(&self) -> bool {
        self.by_place
    }

    /// A group made an object.
    pub fn create(&mut self, id: u64, birth: Birth, sequence: u64) {
        let mut object = Object::born(&birth, &mut self.state.last_birth);
        (object.identified, object.made) = (sequence, sequence);
        self.state.objects.insert(id, object);
        self.state.waits_for(id);
    }

    /// A group told what and where an object is.
    pub fn identify(&mut self, id: u64, identity: &Identity, sequence: u64) {
        let moved = self.moved.contains(&id);
        let object = self.state.objects.get_or_insert_with(id, || {
            let mut object = Object::settled(Kind::of(identity.mode), (0, 0), None);
            object.known = identity.ino != 0;
            object
        });
        object.identified = sequence;
        object.set_inode(None);
        if identity.ino != 0 {
            let inode = (identity.ino, identity.btime_ns);
            // A number alone, which it had before its store was copied, may be another object's in the copy.
            if identity.btime_ns == 0
                && let Some(before) = self.numbers.insert(id, inode.0)
                && before != inode.0
                && self.inodes.get(&(before, 0)) == Some(&id)
            {
                self.inodes.remove(&(before, 0));
            }
            self.inodes.insert(inode, id);
        }
        if identity.parent != 0 {
            let place: Name = (identity.parent, identity.name[..].into());
            self.candidates.entry(place.0).or_default().insert(place.1.clone());
            if !moved {
                if let Some(first) = &mut self.first {
                    first.insert(place.clone(), id);
                }
                object.set_place(Some(place));
            }
        }
    }

    /// A group set attributes of an object, or told when its content changed.
    pub fn set_attributes(&mut self, id: u64, sequence: u64, set: &Set, mtime_ns: Option<i64>) {
        self.state.set_attributes(id, sequence, set);
        if self.state.objects.get(&id).is_some_and(|object| object.kind != Kind::Regular) {
            self.state.set_mtime(id, sequence, mtime_ns);
        }
    }

    /// A group set a name, at a time that is known.
    pub fn set(&mut self, dir: u64, value: &Value, sequence: u64, time: Option<i64>) {
        self.state.set_mtime(dir, sequence, time);
        let Value { before, after, name } = value;
        let name: Name = (dir, name[..].into());
        self.candidates.entry(dir).or_default().insert(name.1.clone());
        self.moved.extend([*before, *after]);
        let lost = self.state.lose_places([(&name, *before)].into_iter());
        self.state.set_names(sequence, [(name, Change { committed: *before, after: *after })], &lost);
    }

    /// Whether some record told what this object is.
    pub fn knows(&self, id: u64) -> bool {
        self.state.objects.contains_key(&id)
    }

    /// Whether an object has a name, as far as the log tells.
    pub fn has_place(&self, id: u64) -> bool {
        self.state.objects.get(&id).is_some_and(|object| object.place().is_some())
    }

    /// The last group that spoke of an object.
    pub fn last(&self, id: u64) -> u64 {
        self.state.objects.get(&id).map_or(0, |object| object.last)
    }

    /// A group at `sequence` speaks of an object.
    pub fn spoken_of(&mut self, id: u64, sequence: u64) {
        if let Some(object) = self.state.objects.get_mut(&id) {
            object.last = object.last.max(sequence);
        }
    }

    /// Looks for all objects on the host, directories before what is in them. To be called once, after the last group.
    pub fn search(&mut self, host: &dyn HostFs) -> Result<()> {
        if self.by_place {
            self.find_anchors(host)?;
        }
        let mut todo = VecDeque::from([ROOT]);
        let mut folders = [(ANCHORS, ANCHOR_FOLDER), (BLANKS, BLANK_FOLDER)].into_iter();
        loop {
            let Some(dir) = todo.pop_front() else {
                let Some((folder, path)) = folders.next() else { break };
                self.candidates.insert(folder, names_in(host, path)?.into_iter().map(NameBytes::from).collect());
                todo.push_back(folder);
                continue;
            };
            let Some(path) = self.state.host_path(dir) else { continue };
            for name in self.candidates.get(&dir).cloned().unwrap_or_default() {
                let path = join(&path, &name);
                let stat = match host.stat_at(self.state.name_at(dir, &path)) {
                    Ok(stat) => Some(stat),
                    Err(error) if error.errno == Errno::NOENT => None,
                    // It was there when it was looked at: what its names have is not known.
                    Err(error) if error.errno == Errno::STALE => {
                        let change = "another program has exchanged it, or its directory".into();
                        self.conflicts.push((dir, self.state.path_bytes(dir), change));
                        None
                    }
                    Err(error) => return Err(Error::Media(error)),
                };
                let known = stat.as_ref().and_then(|stat| self.object_at(dir, &name, stat));
                if let Some(stat) = stat.as_ref().filter(|_| dir == ANCHORS || dir == BLANKS) {
                    if !self.is_at_its_place(host, (dir, &name), stat, known)? {
                        continue;
                    }
                    if let Some(object) = known.and_then(|id| self.state.objects.get_mut(&id)) {
                        object.count_hanging(dir, true);
                    }
                }
                if let Some(stat) = &stat
                    && let Some(id) = known
                    && let Some(object) = self.state.objects.get_mut(&id)
                    && object.home().is_none()
                    && object.kind == Kind::of(stat.mode)
                {
                    match matches!(dir, ANCHORS | BLANKS) && *name == *id_name(id) {
                        true => object.set_hanging(dir),
                        false => object.set_home(Some((dir, name.clone()))),
                    }
                    object.set_inode(Some(stat.inode()));
                    object.known = true;
                    object.unsure = object.is_born();
                    self.state.by_inode.insert((stat.ino, stat.btime_ns), id);
                    if object.kind == Kind::Directory {
                        todo.push_back(id);
                    }
                }
                self.looked.insert((dir, name), stat);
            }
        }
        self.find_held(host)?;
        self.find_out_whence();
        self.settle_registers(host)
    }

    /// Whether what lies in a folder of the store is the object that it is named after; if not, it was on its way out,
    /// or it is strange.
    fn is_at_its_place(
        &mut self,
        host: &dyn HostFs,
        (folder, entry): (u64, &[u8]),
        stat: &Stat,
        known: Option<u64>,
    ) -> Result<bool> {
        let is_aside = mark_of(entry).is_some();
        let id = id_of(entry);
        let path = join(&self.state.host_path(folder).expect("a folder has a path"), entry);
        let is_blank = || match self.state.objects.get(&id).and_then(Object::birth) {
            Some(birth) => is_blank(host, &path, stat, &birth),
            None => Ok(false),
        };
        let object = known.unwrap_or(0);
        match object {
            _ if object == id && !is_aside => return Ok(true),
            // In a copy nobody can tell.
            0 if is_aside && self.by_place => return Ok(false),
            // Nothing is exchanged for what the log does not know by its inode yet.
            0 if !is_aside && (!self.inodes.values().any(|of| *of == id) || is_blank()?) => return Ok(true),
            0 if self.knows(id) && !is_blank()? => {}
            // What the log knows no more was on its way out when the tail passed it.
            _ if Kind::of(stat.mode) != Kind::Directory || names_in(host, &path)?.is_empty() => {
                self.state.spent.push(((folder, entry.into()), object));
                return Ok(false);
            }
            // A crash may have kept what was in it.
            0 if self.knows(id) && self.holds_only_blanks(host, &path, id)? => {
                self.state.spent.push(((folder, entry.into()), object));
                return Ok(false);
            }
            0 => {}
            _ => {
                self.held.push((folder, entry.to_vec(), object));
                return Ok(true);
            }
        }
        self.state.strange.push(Strange { place: (folder, entry.into()), object: 0, from: None, instead: 0 });
        Ok(false)
    }

    /// Whether all that is in a directory, which a pass made for an object, is what a pass made for objects in it.
    fn holds_only_blanks(&self, host: &dyn HostFs, path: &[u8], dir: u64) -> Result<bool> {
        for name in names_in(host, path)? {
            let at = join(path, &name);
            let Some(stat) = stat_or_nothing(host, &at)? else { continue };
            let register = self.state.register(dir, &name);
            let mut made = None;
            for (_, id) in register.into_iter().flat_map(Register::values) {
                let birth = self.state.objects.get(&id).and_then(Object::birth);
                if let Some(birth) = birth
                    && is_blank(host, &at, &stat, &birth)?
                {
                    made = Some(id);
                    break;
                }
            }
            let Some(id) = made else { return Ok(false) };
            if Kind::of(stat.mode) == Kind::Directory && !self.holds_only_blanks(host, &at, id)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Another program may have put something into directories that were about to be removed: they go back with it.
    fn find_held(&mut self, host: &dyn HostFs) -> Result<()> {
        for (folder, entry, object) in std::mem::take(&mut self.held) {
            let path = join(&self.state.host_path(folder).expect("a folder has a path"), &entry);
            let is_ours =
                |name: &Vec<u8>| self.candidates.get(&object).is_some_and(|names| names.contains(name.as_slice()));
            if !names_in(host, &path)?.iter().all(is_ours) {
                self.state.strange.push(Strange { place: (folder, entry.into()), object, from: None, instead: 0 });
            }
        }
        Ok(())
    }

    /// Finds the names that strange objects were taken from.
    fn find_out_whence(&mut self) {
        let mut strange = std::mem::take(&mut self.state.strange);
        for one in &mut strange {
            let (id, mark) = (id_of(&one.place.1), mark_of(&one.place.1));
            let names = || self.state.registers.iter().flat_map(|(dir, names)| names.iter().map(move |of| (dir, of)));
            let of = |(dir, (name, _)): (&u64, (&NameBytes, &Register))| (*dir, name.clone());
            if let Some(mark) = mark {
                one.from = names().map(of).find(|(dir, name)| checksum(*dir, name) == mark);
                continue;
            }
            let home = self.state.objects.get(&id).and_then(|object| object.home()?.name().cloned());
            if let Some(home) = home.filter(|home| home.0 != ANCHORS && home.0 != BLANKS) {
                (one.from, one.instead) = (Some(home), id);
                continue;
            }
            let had = |(dir, (name, register)): &(&u64, (&NameBytes, &Register))| {
                let is_free = self.looked.get(&(**dir, (*name).clone())).is_some_and(Option::is_none);
                is_free && (register.home() == id || register.values().any(|value| value.1 == id))
            };
            one.from = names().find(had).map(of);
        }
        self.state.strange = strange;
    }

    /// In a copy: the objects that hang in the folder of anchors, by the inodes that they are here.
    fn find_anchors(&mut self, host: &dyn HostFs) -> Result<()> {
        // An adoption that a crash ended may have identified them by their inodes here; without a time of birth a
        // number proves nothing.
        self.inodes.retain(|(_, btime_ns), _| *btime_ns != 0);
        for name in names_in(host, ANCHOR_FOLDER)? {
            if let Some(id) = self.hanging(&name)
                && let Some(stat) = stat_or_nothing(host, &join(ANCHOR_FOLDER, &name))?
            {
                self.inodes.insert((stat.ino, stat.btime_ns), id);
                // What stands at its place by now is another one.
                self.first.iter_mut().for_each(|first| first.retain(|_, at| *at != id));
            }
        }
        Ok(())
    }

    /// The object that hangs under this name in one of the store's own folders.
    fn hanging(&self, name: &[u8]) -> Option<u64> {
        Some(id_of(name)).filter(|id| self.state.objects.contains_key(id))
    }

    /// Which object the host has at a name.
    fn object_at(&self, dir: u64, name: &[u8], stat: &Stat) -> Option<u64> {
        let inode = (stat.ino, stat.btime_ns);
        if let Some(&id) = self.inodes.get(&inode).or_else(|| self.state.by_inode.get(&inode)) {
            return Some(id);
        }
        match dir {
            _ if !self.by_place => None,
            ANCHORS | BLANKS => self.hanging(name),
            _ => self.first.as_ref()?.get(&(dir, name.into())).copied(),
        }
    }

    /// Finds out what the host has at each name that groups have set.
    fn settle_registers(&mut self, host: &dyn HostFs) -> Result<()> {
        let names: Vec<Name> = self
            .state
            .registers
            .iter()
            .flat_map(|(dir, names)| names.keys().map(|name| (*dir, name.clone())))
            .collect();
        for (dir, name) in names {
            let stat = self.looked.get(&(dir, name.clone())).copied().flatten();
            let register = self.state.register(dir, &name).expect("it was just listed");
            // The earliest first: of that a conflict is.
            let mut could_be: Vec<u64> = register.values().map(|value| value.1).collect();
            could_be.reverse();
            could_be.push(register.home());
            let is = stat.and_then(|stat| self.state.by_inode.get(&(stat.ino, stat.btime_ns)).copied());
            let (home, stray) = match (&stat, is) {
                (None, _) => (0, false),
                (Some(_), Some(id)) if could_be.contains(&id) => (id, false),
                (Some(stat), None) if self.is_stray(host, dir, &name, stat, &could_be)? => (0, true),
                (Some(_), _) => {
                    let path = self.state.path_bytes_of(dir, &name);
                    let id = could_be.iter().copied().find(|&id| id != 0).unwrap_or(0);
                    self.conflicts.push((id, path, "another file has taken its name".into()));
                    (0, false)
                }
            };
            let register = self.state.registers.get_mut(&dir).and_then(|names| names.get_mut(&name));
            let register = register.expect("it was just there");
            let expected = if stray { register.set_stray() } else { register.set_home(home) };
            self.state.count_link(dir, expected, 1);
            self.state.count_link(dir, home, -1);
        }
        Ok(())
    }

    /// Whether what is there is what a pass made, before a crash, for an object that could be there, and wrote nothing
    /// to.
    fn is_stray(&self, host: &dyn HostFs, dir: u64, name: &[u8], stat: &Stat, could_be: &[u64]) -> Result<bool> {
        let Some(path) = self.state.host_path_of(dir, name) else { return Ok(false) };
        for id in could_be {
            let Some(object) = self.state.objects.get(id) else { continue };
            // Also of what is elsewhere by now: a crash may have brought an earlier blank back.
            if let Some(birth) = object.birth()
                && is_blank(host, &path, stat, &birth)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where an object was found.
    pub fn found(&self, id: u64) -> FoundObject {
        let Some(object) = self.state.objects.get(&id) else { return FoundObject::Nowhere };
        if let Some(path) = self.state.host_path(id).filter(|_| object.home().is_some()) {
            return FoundObject::At(path);
        }
        match object.place() {
            Some(place) if !object.is_born() => match self.looked.get(place) {
                Some(Some(_)) => FoundObject::Lost("another file has taken its name".into()),
                _ => FoundObject::Lost("it is gone".into()),
            },
            _ => FoundObject::Nowhere,
        }
    }

    /// What bystanders did to names: the object, a path, and what, in words.
    pub fn conflicts(&self) -> Vec<(u64, Vec<u8>, String)> {
        let mut conflicts = self.conflicts.clone();
        for (id, object) in self.state.objects.iter() {
            let named = object.named != 0 || self.state.registers.contains_key(id) || !object.sets.is_empty();
            if *id != ROOT
                && named
                && let FoundObject::Lost(change) = self.found(*id)
            {
                conflicts.push((*id, self.state.path_bytes(*id), change));
            }
        }
        conflicts
    }
}

/// Whether what lies at `path` is as a pass makes it for an object that was born so, and nobody has touched it.
pub(crate) fn is_blank(host: &dyn HostFs, path: &[u8], stat: &Stat, birth: &Birth) -> wholly_media::Result<bool> {
    let same = stat.mode & TYPE == birth.mode & TYPE && stat.uid == rustix::process::geteuid().as_raw();
    Ok(same
        && match Kind::of(stat.mode) {
            Kind::Regular => stat.size == 0 && stat.nlink == 1,
            Kind::Directory => true,
            Kind::Symlink => host.read_link(path)? == birth.target,
            Kind::Special => stat.rdev == birth.rdev,
        })
}

fn stat_or_nothing(host: &dyn HostFs, path: &[u8]) -> Result<Option<Stat>> {
    match host.stat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(Error::Media(error)),
    }
}

/// The names in a folder of the store's own, which need not be there.
pub(crate) fn names_in(host: &dyn HostFs, folder: &[u8]) -> Result<Vec<Vec<u8>>> {
    match host.read_dir(folder) {
        Ok(entries) => Ok(entries.into_iter().map(|entry| entry.name).collect()),
        Err(error) if error.errno == Errno::NOENT => Ok(Vec::new()),
        Err(error) => Err(Error::Media(error)),
    }
}
