//! The names of a store: what is committed and not home, who is changing what, and where each object is on the host.
//!
//! # Terms
//!
//! - *object*: a file, directory, symbolic link or special file that a name of the store has, with an id that the log
//!   knows it by. The store's directory is [`ROOT`].
//! - *name*: a directory object and one part of a path. Its *register* holds the committed values that are not home, in
//!   commit order; a value is an object's id, or 0 for nothing.
//! - *home* of a name: the object that the host has there; of an object: one place where the host has it. *Virtual*: an
//!   object that the host has not made yet.
//! - *claim*: what a running group has of names and objects until it ends.
//!
//! # Invariants
//!
//! 1. A register's values are in commit order: a group that changes a name has claimed it, and takes a sequence above
//!    its last value.
//! 2. All names of a group are published under one lock, after its commit record is durable.
//! 3. Homes change by passes of the checkpoint only, each with the call on the host that changed it.
//! 4. Objects that a register, a claim, a place of another object, or a group at or above the tail speaks of stay in
//!    the table, and so does what a call has found, until it ends.
//!
//! | file | idea |
//! |---|---|
//! | `object.rs` | what is known of an object |
//! | `objects.rs` | the table of objects |
//! | `packed.rs` | tables that are small for very many entries |
//! | `attributes.rs` | what groups have set of its attributes |
//! | `claims.rs` | who may change what |
//! | `forget.rs` | what is forgotten when a pass has ended |
//! | `register.rs` | the committed values of a name |
//! | `private.rs` | what a running group has changed |
//! | `walk.rs` | from a path to what it names, as a group sees it |
//! | `replay.rs` | from the log's records to all this, at open |

mod attributes;
mod claims;
mod forget;
mod object;
mod objects;
mod packed;
mod private;
mod register;
mod replay;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use wholly_changes::records::{Baseline, Birth, Identity};
use wholly_changes::{Ids, Kind, Name, NameBytes, ROOT, Set, id_name, join};
use wholly_host::At;
use wholly_vfs::{Inode, Stat};

use super::file::File;
use crate::log::checksum::checksum;
use claims::Claims;
pub(super) use claims::{Held, Wanted};
use forget::Callers;
pub(super) use object::{Home, Moment, Object, Place};
use objects::Objects;
pub(super) use packed::Packed;
pub(super) use private::Change;
pub(super) use private::Private;
pub(super) use register::Register;
pub(super) use replay::{FoundObject, NameReplay, is_blank, names_in};
use sync::{AtomicU64, Mutex, Ordering, RwLock};
pub(super) use walk::{Entry, Found, Last, Walk, show};
pub(super) use wholly_vfs::rules::{DIRECTORY, PERMISSIONS, REGULAR, SYMLINK, TYPE};

/// In the place of a directory: the folder of objects whose names are changing, each named by its id.
pub(super) const ANCHORS: u64 = 2;
/// In the place of a directory: the folder of objects that were made and have no name yet.
pub(super) const BLANKS: u64 = 3;
/// In the place of a directory: the folder of undo that is kept, with what it [holds](super::undo_store).
pub(super) const HELD: u64 = 4;

/// The folder that belongs to the store itself.
pub(super) const OWN_FOLDER: &[u8] = b".wholly";
/// The host path of [`ANCHORS`].
pub(super) const ANCHOR_FOLDER: &[u8] = b".wholly/anchor";
/// The host path of [`BLANKS`].
pub(super) const BLANK_FOLDER: &[u8] = b".wholly/blank";
/// The host path of [`HELD`].
pub(super) const UNDO_FOLDER: &[u8] = b".wholly/undo";

/// Whether this is one of the store's own folders, in which nothing has a name that anybody sees.
pub(super) fn is_own(dir: u64) -> bool {
    matches!(dir, ANCHORS | BLANKS | HELD)
}

/// Set in the inode numbers of objects that the host has not made.
pub(super) const UNMADE: u64 = 1 << 63;
/// How many numbers are remembered that programs may have seen.
const SHOWN: usize = 65536;

/// Times that a call looks again because others changed, or took away, what it had found.
pub(super) const TRIES: usize = 100;

/// See the head of this module.
pub(crate) struct Names {
    state: Mutex<State>,
    /// Registers, and objects with attributes, that are not home.
    waiting: AtomicU64,
    /// Held for writing by a pass while it changes a name of the host and tells the table of it; for reading by who
    /// asks the host for what the table says is there. Taken before the table's own lock.
    homes: RwLock<()>,
}

/// What is known of all names.
#[derive(Default)]
pub(crate) struct State {
    pub objects: Objects,
    pub by_inode: Packed<(u64, i64), u64>,
    pub registers: HashMap<u64, Packed<NameBytes, Register>>,
    claims: Claims,
    /// How many registers there are.
    pub count: u64,
    /// How many objects [wait](Self::waits_for).
    waiting_objects: u64,
    /// What an object was last born as; see [`Object::born`].
    last_birth: Option<Arc<Birth>>,
    /// By inode numbers of the host: time of birth, and the number that the object showed before it was there.
    shown: HashMap<u64, (i64, u64)>,
    callers: Callers,
    /// By inode numbers of the host, what programs go on seeing of objects that checkpoints have changed.
    ctimes: HashMap<u64, Ctime>,
    /// Objects of other programs in the store's own folders.
    pub strange: Vec<Strange>,
    /// Where objects lie in those folders that were on their way out when a crash came, and which they are.
    pub spent: Vec<(Name, u64)>,
    /// What a provisional group removes, and what it is undone with.
    pub kept: Ids,
    /// What the [undo that is kept](super::undo_store) holds.
    pub held: Ids,
    /// Directories that committed groups take away with everything in them; see `running/remove_tree.rs`.
    pub whole: BTreeMap<u64, Whole>,
    /// The next id of an object.
    next: u64,
}

/// A directory that goes with everything in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// Everything in it was last changed before this time.
    pub since_ns: i64,
    /// Bytes of disk space that it takes, once that is known.
    pub bytes: Option<u64>,
}

impl From<i64> for Whole {
    fn from(since_ns: i64) -> Self {
        Whole { since_ns, bytes: None }
    }
}

/// A checkpoint sets the host's time of change of what it writes back. Programs see the time of their own change.
#[derive(Clone, Copy, Debug)]
struct Ctime {
    /// With the inode number, which object it is.
    btime_ns: i64,
    /// The host's time of change after the checkpoint. If it is another one, another program has changed the object.
    host_ns: i64,
    /// What programs see.
    seen_ns: i64,
}

/// The number of objects whose time of change is kept for programs.
const CTIMES: usize = 1 << 18;

/// An object of another program that lies in a folder of the store: it was exchanged for ours at the moment of a call.
#[derive(Clone, Debug)]
pub(crate) struct Strange {
    /// The folder, and its name there.
    pub place: Name,
    /// Which object it is, if it is one of the store's after all, that has to go back; 0 for one of another program.
    pub object: u64,
    /// The name that it was taken from, if that is known.
    pub from: Option<Name>,
    /// What has that name now; 0 for nothing.
    pub instead: u64,
}

impl State {
    pub fn register(&self, dir: u64, name: &[u8]) -> Option<&Register> {
        self.registers.get(&dir)?.get(name)
    }

    /// The object with this inode, entered into the table where it is not there yet. `place` is where it was just seen.
    pub fn object_of(&mut self, stat: &Stat, place: Place) -> u64 {
        let inode = (stat.ino, stat.btime_ns);
        if let Some(&id) = self.by_inode.get(&inode) {
            let known = |place: Option<&Name>| place.is_some_and(|(dir, name)| self.register(*dir, name).is_some());
            let ends = |place: Option<&Name>| {
                let register = place.and_then(|(dir, name)| self.register(*dir, name));
                register.is_some_and(|register| register.newest() != id)
            };
            let object = self.objects.get(&id).expect("an inode in the table has an object");
            let (named, home_name) = (known(object.place()), object.home().and_then(Home::name));
            // Where the log says nothing of its names, a bystander may have moved it. What a pass is about to take
            // away, without giving it another name, is no home for long.
            let home = known(home_name) && (named || !ends(home_name));
            self.see(id);
            let object = self.objects.get_mut(&id).expect("it was just there");
            object.is_fixed_as(stat);
            if !home && object.home().is_none_or(|home| !matches!(home.dir(), ANCHORS | HELD)) {
                object.set_home(place.clone());
            }
            if !named {
                object.set_place(place);
            }
            return id;
        }
        let id = self.take_id();
        let mut object = Object::settled(Kind::of(stat.mode), inode, place);
        object.is_fixed_as(stat);
        self.objects.insert(id, object);
        self.see(id);
        self.by_inode.insert(inode, id);
        id
    }

    /// Enters an object that a group has found outside of the store's directory; `None` where it is known already.
    pub fn bring(&mut self, stat: &Stat) -> Option<u64> {
        let inode = (stat.ino, stat.btime_ns);
        if self.by_inode.contains_key(&inode) {
            return None;
        }
        let id = self.take_id();
        self.objects.insert(id, Object::settled(Kind::of(stat.mode), inode, None));
        self.see(id);
        self.by_inode.insert(inode, id);
        Some(id)
    }

    /// Enters an object that is held in `folder` as `id`. Gives the id that it has.
    pub fn bring_held(&mut self, id: u64, folder: u64, stat: &Stat) -> u64 {
        let id = self.by_inode.get(&stat.inode()).copied().unwrap_or(id);
        if self.objects.get(&id).is_none() {
            let mut object = Object::settled(Kind::of(stat.mode), stat.inode(), None);
            object.is_fixed_as(stat);
            self.objects.insert(id, object);
            match folder {
                ANCHORS => self.hang(id, ANCHORS),
                _ => self.put_away(id),
            }
        }
        self.see(id);
        id
    }

    /// An object that is held lies with the undo that holds it from now on.
    pub fn put_away(&mut self, id: u64) {
        self.tell_home(id, |object| object.set_hanging(HELD));
    }

    /// Whether what is held on an anchor may leave it: no pass needs it there, and the log says nothing of it at or
    /// above `below`.
    pub fn may_be_put_away(&self, id: u64, below: u64) -> bool {
        let object = self.objects.get(&id);
        object.is_none_or(|object| object.place().is_none() && !object.is_used(below)) && !self.is_claimed(id)
    }

    /// Enters an object that a group makes.
    pub fn bear(&mut self, birth: &Birth) -> u64 {
        let id = self.take_id();
        self.objects.insert(id, Object::born(birth, &mut self.last_birth));
        self.see(id);
        id
    }

    /// The time of change that an object was born with; `None` where no group has made it.
    pub fn born_at(&self, id: u64) -> Option<i64> {
        Some(self.objects.get(&id)?.birth()?.mtime_ns)
    }

    /// An object, in whatever place, has attributes or times that are to go home.
    pub fn waits_for(&mut self, id: u64) {
        if let Some(object) = self.objects.get_mut(&id) {
            self.waiting_objects += u64::from(!std::mem::replace(&mut object.waits, true));
        }
    }

    /// Drops the [`File`] of an object of which a running group has changed only names or attributes. The group's claim
    /// on the object remains: a `File` that is entered again is [owned](File::try_own) by the group and has the
    /// baseline `left`. `forget` removes the `File` from the table and says whether it could. The caller reads the
    /// baseline before it takes the lock of names, because a thread that holds the lock of the baseline may wait for
    /// that one.
    pub fn retire(
        &mut self,
        owner: u64,
        (file, left): (&File, Baseline),
        (held, tail): (&mut Held, u64),
        forget: impl Fn() -> bool,
    ) -> bool {
        let Some(object) = self.objects.get(&file.id) else { return false };
        // A pass changes at home only what the log speaks of.
        if object.last.max(file.last_sequence.load(Ordering::Acquire)) >= tail || file.mtime().is_some() {
            return false;
        }
        let is_home = object.sets.is_empty() && object.mtime.ns().is_none();
        let wanted = Wanted { alone: vec![file.id], ..Wanted::default() };
        if !is_home || self.claim(owner, wanted, held).is_err() || !forget() {
            return false;
        }
        self.takes_over(file);
        if let Some(object) = self.objects.get_mut(&file.id) {
            object.left = Some(Box::new(left));
        }
        true
    }

    /// How a file lay at home that a running group does not keep.
    pub fn left(&self, id: u64) -> Option<Baseline> {
        self.objects.get(&id)?.left.as_deref().copied()
    }

    /// A group claims all that it wants, and adds to `held` what of that is new to it; or nothing, where another group,
    /// which is the error, has some of it.
    pub fn claim(&mut self, owner: u64, wanted: Wanted, held: &mut Held) -> Result<(), u64> {
        self.claims.take(&mut self.objects, owner, wanted, held)
    }

    /// A group has ended: its claims are gone.
    pub fn release(&mut self, owner: u64, private: &Private) {
        self.claims.release(&mut self.objects, owner, private.claimed(), private.owned(), &private.held);
        for id in private.owned() {
            if let Some(object) = self.objects.get_mut(&id) {
                object.left = None;
                object.file.upgrade().into_iter().for_each(|file| file.disown_if(owner));
            }
        }
    }

    /// A file leaves the table: what it knows, its object has to know.
    pub fn takes_over(&mut self, file: &File) {
        let Some(object) = self.objects.get_mut(&file.id) else { return };
        object.last = object.last.max(file.last_sequence.load(Ordering::Acquire));
        object.identified = object.identified.max(file.identified.load(Ordering::Acquire));
        object.ctime = object.ctime.max(file.ctime().into());
        if let Some(ns) = file.mtime() {
            (object.mtime, object.mtime_sequence) = (Some(ns).into(), file.mtime_sequence());
            self.waiting_objects += u64::from(!std::mem::replace(&mut object.waits, true));
        }
        object.file = Weak::new();
    }

    /// Whether somebody has a claim on an object, or on a name in it.
    pub fn is_claimed(&self, id: u64) -> bool {
        self.objects.get(&id).is_some_and(|object| self.claims.has(id, object))
    }

    /// Keeps an object in the table. Whether it is there.
    pub fn pin(&mut self, id: u64) -> bool {
        self.objects.get_mut(&id).map(|object| object.pins += 1).is_some()
    }

    /// Undoes one [`pin`](Self::pin).
    pub fn unpin(&mut self, id: u64) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.pins = object.pins.saturating_sub(1);
        }
    }

    fn take_id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The inode number that programs see of what the host knows by this one.
    pub fn shown_number(&self, ino: u64) -> u64 {
        self.shown.get(&ino).map_or(ino, |shown| shown.1)
    }

    /// The same of an object.
    pub fn shown(&mut self, id: u64) -> u64 {
        let Some(object) = self.objects.get(&id) else { return 0 };
        match object.inode() {
            None => UNMADE | id,
            Some((ino, btime_ns)) => match self.shown.get(&ino) {
                Some(&(then, number)) if then == btime_ns => number,
                _ => ino,
            },
        }
    }

    /// The host has made an object that was virtual: who saw its number goes on seeing the same.
    pub fn made_as(&mut self, id: u64, (ino, btime_ns): (u64, i64)) {
        if self.shown.len() >= SHOWN {
            self.shown.clear();
        }
        self.shown.insert(ino, (btime_ns, UNMADE | id));
        self.by_inode.insert((ino, btime_ns), id);
        if let Some(object) = self.objects.get_mut(&id) {
            object.set_inode(Some((ino, btime_ns)));
        }
    }

    /// A virtual object is this inode from now on, in the folder of blanks, with attributes that a pass is to set.
    pub fn stage(&mut self, id: u64, inode: (u64, i64)) {
        self.made_as(id, inode);
        self.hang(id, BLANKS);
        if let Some(object) = self.objects.get_mut(&id) {
            object.unsure = true;
        }
    }

    /// What the host had made of an object, in the folder of blanks, is gone: it is virtual again.
    pub fn unmake(&mut self, id: u64) {
        self.unhang(id, BLANKS);
        if let Some(object) = self.objects.get_mut(&id) {
            object.set_home(None);
            object.unsure = false;
            if let Some(inode) = object.set_inode(None)
                && self.by_inode.get(&inode) == Some(&id)
            {
                self.by_inode.remove(&inode);
            }
        }
    }

    /// Whether any object is this inode.
    pub fn knows_inode(&self, inode: (u64, i64)) -> bool {
        self.by_inode.contains_key(&inode)
    }

    /// Whether an object is this inode.
    pub fn is_inode(&self, id: u64, inode: (u64, i64)) -> bool {
        self.by_inode.get(&inode) == Some(&id)
    }

    /// An object of which the log says nothing is another inode now, unless that is another object. Whether it is.
    pub fn becomes(&mut self, id: u64, inode: (u64, i64)) -> bool {
        let free = !self.by_inode.contains_key(&inode);
        if free && let Some(object) = self.objects.get_mut(&id) {
            if let Some(before) = object.set_inode(Some(inode)) {
                self.by_inode.remove(&before);
            }
            self.by_inode.insert(inode, id);
        }
        free
    }

    /// Where the host has an object; `None` while it is virtual.
    pub fn host_path(&self, id: u64) -> Option<Vec<u8>> {
        match id {
            ROOT => return Some(Vec::new()),
            ANCHORS => return Some(ANCHOR_FOLDER.to_vec()),
            BLANKS => return Some(BLANK_FOLDER.to_vec()),
            HELD => return Some(UNDO_FOLDER.to_vec()),
            _ => {}
        }
        match self.objects.get(&id)?.home()? {
            Home::Name((dir, name)) => Some(join(&self.host_path(*dir)?, name)),
            Home::Folder(folder) => Some(join(&self.host_path(folder)?, &id_name(id))),
        }
    }

    /// The same; `None` also for what a running group has staged, which is its own.
    pub fn public_path(&self, id: u64) -> Option<Vec<u8>> {
        let is_staged = |object: &Object| object.hangs[1] && object.made == 0 && object.is_born();
        let is_private = self.objects.get(&id).is_some_and(is_staged);
        if is_private { None } else { self.host_path(id) }
    }

    /// Where the host has, or would have, a name; `None` where its directory is virtual.
    pub fn host_path_of(&self, dir: u64, name: &[u8]) -> Option<Vec<u8>> {
        Some(join(&self.host_path(dir)?, name))
    }

    /// Which inode an object is; that of the store's directory, and of its own folders, nobody asks.
    pub fn inode_of(&self, id: u64) -> Option<Inode> {
        self.objects.get(&id)?.inode()
    }

    /// For calls that change a name, which lies at `path`: in the directory that the store knows, whatever has taken
    /// its place.
    pub fn name_at<'p>(&self, dir: u64, path: &'p [u8]) -> At<'p> {
        At { path, dir: self.inode_of(dir), inode: None }
    }

    /// For calls on the object that lies at `path`, its home, whatever has taken its place.
    pub fn object_at<'p>(&self, id: u64, path: &'p [u8]) -> At<'p> {
        let home = self.objects.get(&id).and_then(Object::home);
        At { path, dir: home.and_then(|home| self.inode_of(home.dir())), inode: self.inode_of(id) }
    }

    /// A path for messages: as everybody sees the object.
    pub fn path(&self, id: u64) -> String {
        String::from_utf8_lossy(&self.path_bytes(id)).into_owned()
    }

    /// The same, exactly.
    pub fn path_bytes(&self, id: u64) -> Vec<u8> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut at = id;
        while let Some((dir, name)) = self.objects.get(&at).and_then(Object::place) {
            parts.push(name);
            at = *dir;
        }
        parts.reverse();
        match parts.is_empty() {
            true if at != ROOT => format!("object {id:#x}").into_bytes(),
            true => b".".to_vec(),
            false => parts.join(&b'/'),
        }
    }

    /// A path for messages: of a name.
    pub fn path_of(&self, dir: u64, name: &[u8]) -> String {
        String::from_utf8_lossy(&self.path_bytes_of(dir, name)).into_owned()
    }

    /// The same, exactly.
    pub fn path_bytes_of(&self, dir: u64, name: &[u8]) -> Vec<u8> {
        if dir == ROOT { name.to_vec() } else { join(&self.path_bytes(dir), name) }
    }

    /// Counts one name of `object` in `dir` more or less than the host does.
    fn count_link(&mut self, dir: u64, object: u64, by: i32) {
        if object == 0 {
            return;
        }
        let is_dir = self.objects.get(&object).is_some_and(|object| object.kind == Kind::Directory);
        if let Some(counted) = self.objects.get_mut(if is_dir { &dir } else { &object }) {
            counted.links += by;
        }
        if let Some(itself) = self.objects.get_mut(&object) {
            itself.named += by;
        }
    }

    /// The host has `object` at a name now, which a pass has just put there, or nothing (0).
    pub fn set_home(&mut self, dir: u64, name: &[u8], object: u64) {
        let Some(names) = self.registers.get_mut(&dir) else { return };
        let Some(shared) = names.get_key_value(name).map(|(name, _)| name.clone()) else { return };
        let before = names.get_mut(name).expect("it was just there").set_home(object);
        self.count_link(dir, before, 1);
        self.count_link(dir, object, -1);
        if object != 0 {
            self.lie(object, (dir, shared));
        }
        if before != 0
            && before != object
            && let Some(lost) = self.objects.get(&before)
            && lost.home().and_then(Home::name).is_some_and(|home| home.0 == dir && *home.1 == *name)
        {
            // A name of which no group says anything is at home.
            let other = lost.place().cloned().filter(|place| self.register(place.0, &place.1).is_none());
            let lost = self.objects.get_mut(&before).expect("it was just there");
            lost.set_home(other);
            // Where there are no times of birth, the host may give the number to another file. (While somebody has this
            // one open, it cannot.)
            if lost.home().is_none()
                && lost.file.strong_count() == 0
                && let Some(inode) = lost.inode()
            {
                self.by_inode.remove(&inode);
            }
        }
    }

    /// The host has `object` at this place, among others perhaps.
    pub fn lie(&mut self, object: u64, place: Name) {
        self.tell_home(object, |lies| lies.set_home(Some(place)));
    }

    /// The host has `object` where `tell` says.
    fn tell_home(&mut self, object: u64, tell: impl FnOnce(&mut Object)) {
        if let Some(lies) = self.objects.get_mut(&object) {
            tell(lies);
            if let Some(inode) = lies.inode() {
                self.by_inode.insert(inode, object);
            }
        }
    }

    /// The host has `object` in one of the store's own folders, which is no name that anybody sees.
    pub fn hang(&mut self, id: u64, folder: u64) {
        self.tell_home(id, |object| {
            object.set_hanging(folder);
            object.count_hanging(folder, true);
        });
    }

    /// It hangs there no more.
    pub fn unhang(&mut self, id: u64, folder: u64) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.count_hanging(folder, false);
        }
    }

    /// An object has lost its anchor, which it needed no more.
    pub fn fall(&mut self, id: u64) {
        self.unhang(id, ANCHORS);
        if let Some(object) = self.objects.get_mut(&id)
            && object.home().is_some_and(|home| matches!(home.dir(), ANCHORS | HELD))
        {
            // It has another one, which nobody has told the store.
            object.set_home(None);
        }
    }

    /// A committed group set this name.
    fn publish(&mut self, sequence: u64, (dir, name): Name, before: u64, after: u64) {
        let count = &mut self.count;
        let register = self.registers.entry(dir).or_default().get_or_insert_with(name, || {
            *count += 1;
            Register::new(before)
        });
        register.set(sequence, after);
        self.count_link(dir, before, -1);
        self.count_link(dir, after, 1);
        if let Some(named) = self.objects.get_mut(&after) {
            named.nameable = false;
        }
    }

    /// A committed group set attributes of an object, or tells its time.
    fn set_attributes(&mut self, id: u64, sequence: u64, set: &Set) {
        if let Some(object) = self.objects.get_mut(&id) {
            if !set.is_empty() {
                object.sets.publish(sequence, set);
            }
            object.last = object.last.max(sequence);
            self.waits_for(id);
        }
    }

    /// A committed group changed what is in a directory, or told the time at which that, or the content of something
    /// else, changed.
    fn set_mtime(&mut self, id: u64, sequence: u64, mtime_ns: Option<i64>) {
        if let Some(object) = self.objects.get_mut(&id).filter(|_| mtime_ns.is_some()) {
            // Who names something in a directory and who sets its times do not wait for each other, and replay goes by
            // sequences.
            if sequence >= object.mtime_sequence {
                (object.mtime, object.mtime_sequence) = (mtime_ns.into(), sequence);
            }
            object.last = object.last.max(sequence);
            self.waits_for(id);
        }
    }

    /// Something of an object has changed.
    pub fn changed_at(&mut self, id: u64, ns: i64) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.ctime = object.ctime.max(Some(ns).into());
            object.ctime_is_new = true;
        }
    }

    /// Objects that groups below `target` have changed since this was last asked.
    pub fn take_changed(&mut self, target: u64) -> Vec<u64> {
        let changed = self.objects.iter_mut().filter(|(_, object)| object.ctime_is_new && object.last < target);
        changed.map(|(id, object)| (*id, object.ctime_is_new = false).0).collect()
    }

    /// When a program last changed an object, if that is known.
    pub fn ctime_of(&self, id: u64) -> Option<i64> {
        let object = self.objects.get(&id)?;
        object.ctime.ns().max(object.file.upgrade().and_then(|file| file.ctime()))
    }

    /// A checkpoint has left an object so. Programs go on seeing this time of change.
    pub fn keep_ctime(&mut self, left: &Stat, seen_ns: i64) {
        if self.ctimes.len() >= CTIMES {
            self.ctimes.clear();
        }
        // Of a file that is closed by now the content's time is known from an earlier checkpoint only.
        let before = self.ctimes.get(&left.ino).filter(|before| before.btime_ns == left.btime_ns);
        let seen_ns = before.map_or(seen_ns, |before| before.seen_ns.max(seen_ns));
        self.ctimes.insert(left.ino, Ctime { btime_ns: left.btime_ns, host_ns: left.ctime_ns, seen_ns });
    }

    /// The time of change that programs see of an object of the host, if a checkpoint was the last to change it.
    pub fn kept_ctime(&self, now: &Stat) -> Option<i64> {
        let kept = self.ctimes.get(&now.ino)?;
        ((kept.btime_ns, kept.host_ns) == (now.btime_ns, now.ctime_ns)).then_some(kept.seen_ns)
    }

    fn waiting(&self) -> u64 {
        self.count + self.waiting_objects
    }

    /// A committed group set these names: they have other values now, and objects other places.
    fn set_names(&mut self, sequence: u64, names: impl IntoIterator<Item = (Name, Change)>, lost: &Ids) {
        for (name, Change { committed, after }) in names {
            self.put(&name, after);
            self.publish(sequence, name, committed, after);
        }
        let mut nowhere = Ids::default();
        for id in lost.iter() {
            if self.objects[&id].place().is_some() {
                continue;
            }
            match self.name_at_home(id) {
                None if self.objects[&id].named > 0 => _ = nowhere.insert(id),
                place => self.objects.get_mut(&id).expect("it was just there").set_place(place),
            }
        }
        self.find_names(&nowhere);
    }

    /// Gives objects that have no known place any name that they have by a register: however many there are, all
    /// registers are looked through once.
    fn find_names(&mut self, nowhere: &Ids) {
        if nowhere.is_empty() {
            return;
        }
        let State { registers, objects, .. } = self;
        for (dir, names) in registers {
            for (name, register) in names.iter().filter(|(_, register)| nowhere.contains(register.newest())) {
                let object = objects.get_mut(&register.newest()).expect("it has a name");
                if object.place().is_none() {
                    object.set_place(Some((*dir, name.clone())));
                }
            }
        }
    }

    /// An object has this name.
    fn put(&mut self, name: &Name, object: u64) {
        if let Some(object) = self.objects.get_mut(&object) {
            object.set_place(Some(name.clone()));
        }
    }

    /// Objects lose the places at which these names had them. Gives those.
    fn lose_places<'n>(&mut self, names: impl Iterator<Item = (&'n Name, u64)>) -> Ids {
        let mut lost = Ids::default();
        for (name, before) in names {
            if let Some(object) = self.objects.get_mut(&before)
                && object.place() == Some(name)
            {
                object.set_place(None);
                lost.insert(before);
            }
        }
        lost
    }

    /// The name by which the host has an object, where groups have left it that.
    fn name_at_home(&self, id: u64) -> Option<Name> {
        let (dir, name) = self.objects.get(&id)?.home()?.name()?;
        let stays = self.register(*dir, name).is_none_or(|register| register.newest() == id);
        (stays && !is_own(*dir)).then(|| (*dir, name.clone()))
    }
}

impl Names {
    /// Of a store whose log was replayed. New objects have ids from `first` on.
    pub fn recovered(mut state: State, first: u64) -> Self {
        state.next = first;
        let waiting = AtomicU64::new(state.waiting());
        Names { waiting, state: Mutex::new(state), homes: RwLock::default() }
    }

    /// Looks at, or changes, all of it. The host is not asked under this lock.
    pub fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap())
    }

    /// Keeps passes from changing the host's names, as long as the result lives.
    pub fn keep_homes(&self) -> impl Sized + '_ {
        self.homes.read().unwrap()
    }

    /// Changes a name of the host by `call`, and then the table by `tell`, while nobody looks.
    pub fn change_home<T, E>(
        &self,
        call: impl FnOnce() -> Result<T, E>,
        tell: impl FnOnce(&mut State, &T),
    ) -> Result<T, E> {
        let _alone = self.homes.write().unwrap();
        let value = call()?;
        tell(&mut self.state.lock().unwrap(), &value);
        Ok(value)
    }

    /// Whether names or attributes wait to be taken home.
    pub fn is_pending(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Makes a group's names and attributes everybody's (invariant 2). `time` is that of its clock. An explicit group
    /// gives up its claims of the names that it has changed, so that of very many there are not two lists. (Calls that
    /// wait for each other wait until the one before has given up its files, too.)
    pub fn publish(&self, sequence: u64, private: &mut Private, claimer: u64, time: i64) {
        let mut state = self.state.lock().unwrap();
        let changes = private.take_changes();
        match File::is_implicit(claimer) {
            true => private.held.names.extend(changes.keys().cloned()),
            false => state.claims.release_names(claimer, changes.keys()),
        }
        for (name, change) in changes.iter() {
            for id in [name.0, change.committed, change.after] {
                state.spoken_of(id, sequence);
            }
        }
        for (_, change) in changes.iter() {
            state.whole.remove(&change.after);
        }
        state.whole.append(&mut private.taken_whole);
        let lost = state.lose_places(changes.iter().map(|(name, change)| (name, change.committed)));
        state.set_names(sequence, changes, &lost);
        for id in private.born().iter() {
            state.waits_for(id);
            if let Some(object) = state.objects.get_mut(&id) {
                object.made = sequence;
                // What the group has told of a file that it has joined, that knows.
                let born_ns = object.birth().map(|birth| birth.mtime_ns);
                match (object.kind, object.file.upgrade(), born_ns) {
                    (Kind::Regular, None, _) => {
                        (object.mtime, object.mtime_sequence) = (born_ns.into(), sequence);
                    }
                    (Kind::Regular, Some(file), Some(ns)) if file.last_sequence.load(Ordering::Acquire) < sequence => {
                        file.set_mtime(ns, sequence);
                    }
                    _ => {}
                }
            }
        }
        for id in private.born().iter().chain(private.logged().iter()) {
            state.spoken_of(id, sequence);
            if let Some(object) = state.objects.get_mut(&id) {
                object.identified = sequence;
                if let Some(file) = object.file.upgrade() {
                    file.identified.fetch_max(sequence, Ordering::AcqRel);
                }
            }
        }
        for id in private.adopted.iter() {
            state.spoken_of(id, sequence);
        }
        for id in private.staged() {
            if let Some(object) = state.objects.get_mut(id) {
                object.known = true;
            }
        }
        for (id, set) in private.sets() {
            state.set_attributes(*id, sequence, set);
            state.spoken_of(*id, sequence);
        }
        for (id, mtime) in private.mtimes() {
            state.set_mtime(*id, sequence, mtime.committed(time));
        }
        for id in private.born().iter() {
            let born_ns = state.objects.get(&id).and_then(Object::birth).map(|birth| birth.btime_ns);
            born_ns.into_iter().for_each(|ns| state.changed_at(id, ns));
        }
        for (id, ns) in private.ctimes() {
            state.changed_at(id, ns);
        }
        self.waiting.store(state.waiting(), Ordering::Release);
    }
}

/// What the log is to know of an object, but for what only its file knows.
impl State {
    /// A group at `sequence` has told the log of an object. Its file, which the group need not have joined, knows that
    /// too: who writes to it next takes a higher sequence.
    fn spoken_of(&mut self, id: u64, sequence: u64) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.last = object.last.max(sequence);
            if let Some(file) = object.file.upgrade() {
                file.last_sequence.fetch_max(sequence, Ordering::AcqRel);
            }
        }
    }

    pub fn identity(&self, id: u64) -> Option<Identity> {
        let object = self.objects.get(&id)?;
        let (parent, name) = object.place().map_or((0, Vec::new()), |(dir, name)| (*dir, name.to_vec()));
        let (ino, btime_ns) = object.inode().unwrap_or_default();
        Some(Identity { ino, btime_ns, parent, name, ..Identity::of_nothing(object.mode()) })
    }

    /// The open file that an object is, if it is one.
    pub fn file(&self, id: u64) -> Option<Arc<File>> {
        self.objects.get(&id)?.file.upgrade()
    }
}

/// Where an object lies among the anchors whose name ends, until it is removed.
pub(super) fn aside_name(id: u64, (dir, name): &Name) -> Vec<u8> {
    format!("{id:x}.{:x}", checksum(*dir, name)).into_bytes()
}

/// What an [`aside_name`] says of the name that ended.
pub(super) fn mark_of(entry: &[u8]) -> Option<u64> {
    let (_, mark) = std::str::from_utf8(entry).ok()?.split_once('.')?;
    u64::from_str_radix(mark, 16).ok()
}
