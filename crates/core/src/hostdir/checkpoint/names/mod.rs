//! How a pass takes names home.
//!
//! A pass compares what each name is on the host with what it is to be as of the pass's target, and brings one to the
//! other; which operations led there does not matter. No object that has a name as of the target is ever without a
//! durable one on the way:
//!
//! ```text
//!  plan      what differs; whether the host has what the store believes
//!  make      virtual objects are created empty: where they belong, if nothing is there, or in `.wholly/blank`
//!            what is to have none of its names any more, but others, is linked to `.wholly/anchor` (directories are
//!            moved there)
//!  know      the log learns which inodes were made
//!  barrier   where something hangs on an anchor: it is durable before a name of it goes
//!  (bytes go home; where they have no space, names end before that)
//!  set       owner, extended attributes, mode
//!  place     names that end are removed, deepest first; then every object gets the names that it lacks
//!  times     of all that changed
//!  barrier   the tail moves behind it
//! ```
//!
//! # Others
//!
//! Whoever may write to a directory can exchange what is in it while the pass is at work. So
//!
//! 1. names change in directories, and attributes of objects, that are the inodes which the store knows
//!    (`State::name_at`, `object_at`): else it is a conflict;
//! 2. what is given another name is linked as the inode that it is, or, where it is moved by its name, first to
//!    `.wholly`, where nobody else comes, and compared there: what is another one goes back, and is a conflict. So does
//!    what is removed or replaced (`aside.rs`);
//! 3. what is made, and is no regular file, is made in `.wholly` where others may write to its directory: by its name
//!    it could be found as another one. (A file is found by the descriptor that made it.)
//!
//! What a crash leaves at any point, recovery finds: an object is at a name of the log, or in one of the two folders;
//! what was made and is not known to the log is empty, and made again.

mod aside;
mod attributes;
mod clean;
mod make;
mod place;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::{Ids, Kind, Name, ROOT, id_name, join};
use wholly_host::host_error;

use super::StoreInner;
use crate::error::{Error, Result};
use crate::hostdir::file::File;
use crate::hostdir::names::{ANCHORS, BLANKS, Home, Object, Register, State, is_own};

/// A name that is to be another object's, or nobody's.
#[derive(Clone, Debug)]
struct Change {
    name: Name,
    /// What the host has there.
    home: u64,
    /// What it is to have; 0 for nothing.
    want: u64,
}

/// What a pass is to do with names.
pub(super) struct NamePlan<'a> {
    store: &'a StoreInner,
    target: u64,
    /// In the order of names.
    changes: Vec<Change>,
    /// Where in it each object is first wanted, in the order of objects.
    wanted: Vec<u32>,
    /// Where in it the host has what a pass before a crash made, which is removed first; in order.
    stray: Vec<usize>,
    /// Virtual objects that are to have a name, directories before what is in them; and what was made before and the
    /// log does not know.
    make: Vec<u64>,
    /// Decided objects that lose all the names that they have at home, and are to have others.
    move_: Ids,
    /// What loses all the names that the log knows, has others on the host, and is still needed.
    keep: Vec<u64>,
    /// Whose anchors nobody needs any more.
    idle: Vec<u64>,
    /// What groups have staged or adopted, and has lost all its names since.
    spent: Vec<u64>,
    /// Objects that the host has, or may have, made without their attributes.
    mend: Vec<u64>,
    /// Objects whose attributes groups have set.
    set: Vec<u64>,
    /// Objects with times that are to go home, regular files excepted.
    timed: Ids,
    /// Regular files of which more is to go home than bytes, with their times.
    timed_files: Vec<Arc<File>>,
    /// Whether something hangs on an anchor that it may keep after the pass.
    hung: bool,
    /// Files without a name that somebody has open: they live on without one.
    nameless: Vec<u64>,
    /// Directories, and whether the host has a default list of theirs.
    default_acls: HashMap<u64, bool>,
    /// Directories, and whether others may change names in them.
    shared: HashMap<u64, bool>,
    /// All objects whose names or attributes the pass changes, in order.
    touched: Ids,
    /// Whether something was done, that has to be made durable.
    begun: bool,
}

impl<'a> NamePlan<'a> {
    /// Finds out what is to be done, and whether the host is as the store believes: nothing is changed yet.
    ///
    /// # Errors
    /// [`Error::Conflict`] where a bystander has changed a name that is to be changed.
    pub fn new(store: &'a StoreInner, target: u64) -> Result<Self> {
        store.return_strange()?;
        let mut plan = NamePlan {
            store,
            target,
            changes: Vec::new(),
            wanted: Vec::new(),
            stray: Vec::new(),
            make: Vec::new(),
            move_: Ids::default(),
            keep: Vec::new(),
            idle: Vec::new(),
            spent: Vec::new(),
            mend: Vec::new(),
            set: Vec::new(),
            timed: Ids::default(),
            timed_files: Vec::new(),
            hung: false,
            nameless: Vec::new(),
            default_acls: HashMap::new(),
            shared: HashMap::new(),
            touched: Ids::default(),
            begun: false,
        };
        store.names.with(|state| {
            plan.find_changes(state, target);
            plan.idle = state.idle_on_anchors(store.log.tail());
            // Before the plan has files open.
            plan.spent = state.spent_blanks(target).into_iter().filter(|id| !plan.wants(*id)).collect();
            plan.find_attributes(state);
        });
        plan.look_for_bystanders()?;
        plan.look_at_objects()?;
        plan.find_kept()?;
        let named = plan.changes.iter().flat_map(|change| [change.home, change.want]);
        let lists = [&plan.make, &plan.keep, &plan.idle, &plan.spent, &plan.mend, &plan.set, &plan.nameless];
        let listed = lists.into_iter().flatten().copied();
        plan.touched = named.chain(listed).chain(plan.move_.iter()).filter(|id| *id != 0).collect();
        Ok(plan)
    }

    /// Whether the pass changes names or attributes of an object, and with them its time of change on the host.
    pub fn touches(&self, id: u64) -> bool {
        self.touched.contains(id)
    }

    fn find_changes(&mut self, state: &mut State, target: u64) {
        self.changes.reserve_exact(state.count as usize);
        for (dir, names) in &state.registers {
            for (name, register) in names.iter() {
                let want = register.as_of(target);
                if want != register.home() || register.is_stray() {
                    self.changes.push(Change { name: (*dir, name.clone()), home: register.home(), want });
                }
            }
        }
        self.changes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let changes = &self.changes;
        let is_stray = |change: &Change| state.register(change.name.0, &change.name.1).is_some_and(Register::is_stray);
        self.stray = (0..changes.len()).filter(|i| is_stray(&changes[*i])).collect();
        let want = |i: u32| changes[i as usize].want;
        self.wanted.reserve_exact(changes.len());
        self.wanted.extend((0..changes.len() as u32).filter(|i| want(*i) != 0));
        self.wanted.sort_unstable_by_key(|i| (want(*i), *i));
        self.wanted.dedup_by_key(|i| want(*i));
        // Names that stay are enough for an object not to need an anchor.
        let mut stays: HashMap<u64, Name> = HashMap::new();
        for (dir, names) in &state.registers {
            let same =
                names.iter().filter(|(_, register)| register.home() != 0 && register.as_of(target) == register.home());
            stays.extend(same.map(|(name, register)| (register.home(), (*dir, name.clone()))));
        }
        for (id, name) in &stays {
            // Rather a home that no group says anything of: a later one may have ended this name.
            let home = state.objects.get(id).and_then(Object::home).and_then(Home::name);
            let is_free = home.is_some_and(|(dir, name)| !is_own(*dir) && state.register(*dir, name).is_none());
            if !is_free {
                state.lie(*id, name.clone());
            }
        }
        self.make.reserve_exact(self.wanted.iter().filter(|i| !is_made(state, want(**i))).count());
        let mut made = HashSet::new();
        for i in 0..self.changes.len() {
            let want = self.changes[i].want;
            if self.first_wanted(want) == Some(i) {
                self.plan_to_make(state, want, &mut made);
            }
        }
        let mut lost: Ids = self.changes.iter().map(|change| change.home).filter(|&id| id != 0).collect();
        lost.extend(self.changes.iter().map(|change| change.want).filter(|id| hangs_in(state, *id, ANCHORS)));
        for id in lost.iter() {
            match (self.wants(id), stays.contains_key(&id)) {
                (true, false) => _ = self.move_.insert(id),
                (false, false) if state.kept.contains(id) || state.held.contains(id) => _ = self.move_.insert(id),
                (false, false) if is_needed(state, id) => self.keep.push(id),
                _ => {}
            }
        }
        // What a running group has made, it may remove; and of who came later a later pass takes the attributes home.
        let is_due =
            |object: &Object| object.unsure && object.home().is_some() && object.made != 0 && object.made < target;
        self.mend = state.objects.iter().filter(|(_, object)| is_due(object)).map(|(id, _)| *id).collect();
        for (id, object) in state.objects.iter() {
            if object.kind != Kind::Regular || object.inode().is_some() || self.wants(*id) {
                continue;
            }
            let file = object.file.upgrade();
            // One of these references is the table's, the other this one.
            let open = file.as_ref().is_some_and(|file| Arc::strong_count(file) > 2) || object.pins > 0;
            let made = object.made != 0 && object.made < self.target;
            if made && ((open && object.nameable) || object.place().is_some()) {
                // It may have a name in the log before the next pass, which must find its inode then.
                self.make.push(*id);
            } else if made && open && object.place().is_none() && file.is_some_and(|file| !file.is_clean()) {
                // What has not been made yet has its bytes published before its names.
                self.nameless.push(*id);
            }
        }
    }

    /// `id` is made, if it is virtual, after the directories that it is in. What is no directory comes here once.
    fn plan_to_make(&mut self, state: &State, id: u64, made: &mut HashSet<u64>) {
        let Some(object) = state.objects.get(&id) else { return };
        if is_made(state, id) || id == ROOT || (object.kind == Kind::Directory && !made.insert(id)) {
            return;
        }
        if let Some(i) = self.first_wanted(id) {
            self.plan_to_make(state, self.changes[i].name.0, made);
        }
        self.make.push(id);
    }

    /// Compares what the host has at each name with what it should have.
    fn look_for_bystanders(&self) -> Result<()> {
        let store = self.store;
        for (i, change) in self.changes.iter().enumerate() {
            let (dir, name) = &change.name;
            let (path, shown, inode) = store.names.with(|state| {
                let inode = state.objects.get(&change.home).and_then(|object| object.inode());
                (state.host_path_of(*dir, name), state.path_of(*dir, name), inode)
            });
            let Some(path) = path else { continue };
            let now = match store.host.stat(&path) {
                Ok(stat) => Some((stat.ino, stat.btime_ns)),
                Err(error) if matches!(error.errno, Errno::NOENT | Errno::NOTDIR) => None,
                Err(error) => return Err(host_error(error, &path)),
            };
            if now == inode || self.stray.binary_search(&i).is_ok() {
                continue;
            }
            let change = match (now, inode) {
                (Some(_), None) => "another program has made something there",
                (None, _) => "it is gone",
                _ => "another file has taken its name",
            };
            return Err(Error::Conflict { path: shown, change: change.into() });
        }
        self.look_into_dying_directories()
    }

    /// What is in a directory that goes must go or move, too.
    fn look_into_dying_directories(&self) -> Result<()> {
        let store = self.store;
        for id in self.changes.iter().map(|change| change.home).filter(|&id| id != 0 && !self.wants(id)) {
            let (path, is_dir) = store.names.with(|state| {
                let is_dir = state.objects.get(&id).is_some_and(|object| object.kind == Kind::Directory);
                (state.host_path(id), is_dir && !state.whole.contains_key(&id))
            });
            let Some(path) = path.filter(|_| is_dir) else { continue };
            for entry in store.host.read_dir(&path).map_err(|error| host_error(error, &path))? {
                self.must_go(id, &path, &entry.name)?;
            }
        }
        Ok(())
    }

    /// A name in a directory that goes, with this path, goes or moves itself.
    fn must_go(&self, dir: u64, path: &[u8], name: &[u8]) -> Result<()> {
        if self.place_in_changes(dir, name).is_some() {
            return Ok(());
        }
        let path = String::from_utf8_lossy(&join(path, name)).into_owned();
        let change = "another program has put it into a directory that was removed".into();
        Err(Error::Conflict { path, change })
    }

    /// Of the objects that lose all names that the store knows, those that have others.
    fn find_kept(&mut self) -> Result<()> {
        let keep = std::mem::take(&mut self.keep);
        let mut lost: HashMap<u64, u32> = keep.iter().map(|id| (*id, 0)).collect();
        for change in &self.changes {
            lost.entry(change.home).and_modify(|lost| *lost += 1);
        }
        let store = self.store;
        for id in keep {
            let Some(path) = store.names.with(|state| state.host_path(id)) else { continue };
            let at = store.names.with(|state| state.object_at(id, &path));
            let stat = match store.host.stat_at(at) {
                Err(error) if error.errno == Errno::NOENT => continue,
                stat => stat.map_err(|error| host_error(error, &path))?,
            };
            if Kind::of(stat.mode) != Kind::Directory && stat.nlink > lost.get(&id).copied().unwrap_or(0) {
                self.keep.push(id);
            }
        }
        Ok(())
    }

    /// Where a name is among the changes.
    fn place_in_changes(&self, dir: u64, name: &[u8]) -> Option<usize> {
        self.changes.binary_search_by(|change| (change.name.0, &*change.name.1).cmp(&(dir, name))).ok()
    }

    /// Where among the changes an object is first wanted.
    fn first_wanted(&self, id: u64) -> Option<usize> {
        let at = self.wanted.binary_search_by_key(&id, |i| self.changes[*i as usize].want).ok()?;
        Some(self.wanted[at] as usize)
    }

    fn wants(&self, id: u64) -> bool {
        self.first_wanted(id).is_some()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.make, &self.idle, &self.spent, &self.nameless, &self.mend, &self.set];
        self.changes.is_empty() && self.timed.is_empty() && lists.into_iter().all(Vec::is_empty)
    }

    /// Whether something was done that has to be made durable.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    fn path_of(&self, (dir, name): &Name) -> Result<Vec<u8>> {
        self.store.names.with(|state| state.host_path_of(*dir, name)).ok_or_else(|| {
            // Its directory is made before it, so this is our own fault.
            Error::corrupt("the names of the store", "a directory that was to be made is not there")
        })
    }
}

/// Whether the host has an object, and the log knows which inode it is.
fn is_made(state: &State, id: u64) -> bool {
    state.objects.get(&id).is_some_and(|object| object.inode().is_some() && object.known)
}

/// Whether somebody goes on using what is no directory, or the log has bytes, attributes or times for it, when its
/// names are gone that the log knows.
fn is_needed(state: &State, id: u64) -> bool {
    let Some(object) = state.objects.get(&id).filter(|object| object.kind != Kind::Directory) else { return false };
    // One of these references is the table's, the other this one.
    let is_used = |file: Arc<File>| !file.is_clean() || file.mtime().is_some() || Arc::strong_count(&file) > 2;
    let is_set = !object.sets.is_empty() || object.mtime.ns().is_some();
    is_set || object.pins > 0 || object.file.upgrade().is_some_and(is_used)
}

/// Whether an object hangs in one of the store's own folders.
fn hangs_in(state: &State, id: u64, folder: u64) -> bool {
    state.objects.get(&id).and_then(Object::home).is_some_and(|home| home.dir() == folder)
}
