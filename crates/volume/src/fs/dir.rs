//! Finding, entering and removing names in the leaves of one directory. Callers hold the directory's lock.

use sync::Ordering;
use wholly_error::{Error, Result};

use super::group::{Group, Need};
use super::known::{self, KnownLeaf};
use super::table::{Inode, State};
use super::{Core, DIRECTORY, map};
use crate::engine::{EntryAt, Kind, Load, Operation, Structure, corrupt};
use crate::format::dir::{self, Found, HASH_BITS, Head, Leaf, MAX_TRIE_DEPTH, NAME_MAX, SLOT, SLOTS, TWIN_BITS};
use crate::format::inode::Tree;
use crate::format::pointer::{depth_for, nodes_for, reach};
use crate::format::{BLOCK, Fault, Lba};

/// What a leaf says of a name.
pub struct Place {
    /// The number of the leaf.
    pub leaf: u64,
    pub lba: Lba,
    /// The entry, if there is one.
    pub found: Option<Found>,
    /// A slot for an entry with this name.
    room: Option<usize>,
    /// The key that it would have.
    key: Option<u64>,
    /// Entries of the leaf.
    entries: usize,
}

impl Place {
    /// The key and the slots that an entry with this name gets.
    pub fn kept(&self, name: &[u8]) -> (u64, (usize, usize)) {
        let (Some(slot), Some(key)) = (self.room, self.key) else { unreachable!("there is room") };
        (key, (slot, dir::slots_for(name.len())))
    }

    /// The same leaf, with a slot and a key that are kept for a name.
    pub fn at(self, slot: usize, key: u64) -> Place {
        Place { room: Some(slot), key: Some(key), ..self }
    }

    /// A slot of the leaf, for an operation.
    fn slot(&self, slot: usize) -> EntryAt {
        EntryAt { leaf: self.leaf, lba: self.lba, slot }
    }

    /// What a group has made of a name.
    fn changed(name: &[u8], key: u64, to: Option<(u64, u32)>) -> Place {
        let head = |(ino, kind)| Head { ino, kind: (kind >> 12) as u8, name_len: name.len() as u8, key };
        let found = to.map(|to| Found { head: head(to), slot: 0 });
        Place { leaf: 0, lba: Lba(0), found, room: None, key: Some(key), entries: usize::MAX }
    }
}

/// One name of a listing.
pub struct Listed {
    pub key: u64,
    pub ino: u64,
    pub kind: u32,
    pub name: Vec<u8>,
}

/// The entries of one hash, among them the one that is looked for.
#[derive(Default)]
struct Twins {
    found: Option<Found>,
    taken: u128,
}

impl Twins {
    fn add(&mut self, leaf: &Leaf<'_>, entry: Found, hash: u64, name: &[u8]) -> std::result::Result<(), Fault> {
        if entry.head.key >> TWIN_BITS != hash {
            return Ok(());
        }
        self.taken |= 1 << (entry.head.key & ((1 << TWIN_BITS) - 1));
        let mut buf = [0; NAME_MAX];
        let is = leaf.name(entry, &mut buf);
        if is == name {
            self.found = Some(entry);
            return Ok(());
        }
        leaf.check_name(entry, is)
    }

    /// A key that is kept for a name to come.
    fn keep(&mut self, key: u64, hash: u64) {
        if key >> TWIN_BITS == hash {
            self.taken |= 1 << (key & ((1 << TWIN_BITS) - 1));
        }
    }

    /// A key that is not taken.
    fn key(&self, hash: u64) -> Option<u64> {
        let twin = (!self.taken).trailing_zeros();
        (twin < 1 << TWIN_BITS).then(|| hash << TWIN_BITS | u64::from(twin))
    }
}

impl Core {
    /// The number and block of the leaf that covers a hash; `None` in a directory without leaves.
    fn leaf_of(&self, dir: &Inode, tree: &Tree, hash: u64) -> Result<Option<(u64, Lba)>> {
        let (seed, sight) = (self.storage.data_seed(dir.id), self.sight(dir));
        // Deeper leaves are beyond the map.
        let deepest = reach(tree.depth).ilog2().min(MAX_TRIE_DEPTH);
        let hint = dir.trie_depth.load(Ordering::Relaxed).min(deepest);
        for step in 0..=deepest {
            for depth in [hint.checked_sub(step), Some(hint + step).filter(|_| step > 0)] {
                let Some(depth) = depth.filter(|depth| *depth <= deepest) else { continue };
                let number = dir::leaf_number(depth, hash);
                if let Some(pointer) = map::get(&sight, seed, tree, number)? {
                    if depth != hint {
                        dir.trie_depth.store(depth, Ordering::Relaxed);
                    }
                    return Ok(Some((number, pointer.block)));
                }
            }
        }
        Ok(None)
    }

    fn load_leaf(&self, dir: &Inode, lba: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.sight(dir).load(lba, 0, &mut bytes[..])
    }

    fn damaged(dir: &Inode, lba: Lba, fault: crate::format::Fault) -> Error {
        corrupt(format!("directory {}, leaf in block {}", dir.id.ino, lba.0), fault)
    }

    /// What is known of the leaf that covers a hash.
    fn known_leaf(dir: &Inode, tree: &Tree, hash: u64) -> Option<(u64, KnownLeaf)> {
        const NEAR: u32 = 3;
        let deepest = reach(tree.depth).ilog2().min(MAX_TRIE_DEPTH);
        let hint = dir.trie_depth.load(Ordering::Relaxed).min(deepest);
        (0..=NEAR)
            .flat_map(|step| [hint.checked_sub(step), Some(hint + step).filter(|_| step > 0)])
            .flatten()
            .filter(|depth| *depth <= deepest)
            .map(|depth| dir::leaf_number(depth, hash))
            .find_map(|number| Some((number, dir.leaves.get(number)?)))
    }

    /// The entries of a known leaf that may have this hash are read, nothing else.
    fn find_known(
        &self,
        (dir, state): (&Inode, &State),
        (number, leaf): (u64, KnownLeaf),
        hash: u64,
        name: &[u8],
    ) -> Result<Place> {
        let KnownLeaf { lba, mut prints } = leaf;
        let damaged = |fault| Self::damaged(dir, lba, fault);
        let seed = self.storage.data_seed(dir.id);
        let mut all = Twins::default();
        if let Some(claims) = &state.claims {
            let keys = dir::leaf_keys(number);
            for (key, (slot, count)) in claims.rooms.range(keys.0..keys.1) {
                prints[*slot..slot + count].fill(known::KEPT);
                all.keep(*key, hash);
            }
        }
        let sight = self.sight(dir);
        for slot in (0..SLOTS).filter(|slot| prints[*slot] == known::print(hash)) {
            let count = 1 + prints[slot + 1..].iter().take_while(|print| **print == known::MORE).count();
            let mut bytes = [0; dir::LARGEST];
            let bytes = &mut bytes[..count * SLOT];
            sight.load(lba, slot * SLOT, bytes)?;
            let leaf = Leaf::part(seed, bytes, slot);
            let entry = leaf.at(slot).map_err(damaged)?;
            let is_it = |entry: &Found| dir::slots_for(entry.head.name_len.into()) == count;
            let entry = entry.filter(is_it).ok_or_else(|| damaged(Fault("an entry is not where it was")))?;
            all.add(&leaf, entry, hash, name).map_err(damaged)?;
        }
        let (wanted, mut free) = (dir::slots_for(name.len()), 0);
        let room = prints.iter().position(|print| {
            free = if *print == known::FREE { free + 1 } else { 0 };
            free == wanted
        });
        let room = room.map(|last| last + 1 - wanted);
        let entries = prints.iter().filter(|print| **print > known::KEPT).count();
        Ok(Place { leaf: number, lba, found: all.found, room, key: all.key(hash), entries })
    }

    /// Looks for a name. `None` in a directory without leaves.
    pub fn find(&self, dir: &Inode, state: &State, name: &[u8]) -> Result<Option<Place>> {
        let hash = dir::hash(self.storage.seed, name);
        if let Some((shared, changes)) = dir.changes() {
            if let Some((key, to)) = changes.get(hash, name) {
                return Ok(Some(Place::changed(name, key, to)));
            }
            return self.find(shared, &shared.state.read().unwrap(), name);
        }
        let tree = &state.record.owned.tree;
        if let Some(leaf) = Self::known_leaf(dir, tree, hash) {
            return self.find_known((dir, state), leaf, hash, name).map(Some);
        }
        let Some((number, lba)) = self.leaf_of(dir, tree, hash)? else { return Ok(None) };
        let leaf = self.look_at(dir, (number, lba))?;
        self.find_known((dir, state), (number, leaf), hash, name).map(Some)
    }

    /// Reads a leaf, and keeps what is to be known of it.
    fn look_at(&self, dir: &Inode, (number, lba): (u64, Lba)) -> Result<KnownLeaf> {
        let mut bytes = [0; BLOCK];
        self.load_leaf(dir, lba, &mut bytes)?;
        let mut prints = [known::FREE; SLOTS];
        let scanned = Leaf::new(self.storage.data_seed(dir.id), &bytes).scan(|entry| {
            let count = dir::slots_for(entry.head.name_len.into());
            prints[entry.slot..entry.slot + count].fill(known::MORE);
            prints[entry.slot] = known::print(entry.head.key >> TWIN_BITS);
            true
        });
        scanned.map_err(|fault| Self::damaged(dir, lba, fault))?;
        let leaf = KnownLeaf { lba, prints };
        dir.leaves.add(number, leaf);
        Ok(leaf)
    }

    /// After a split: places the rooms of the names to come in a leaf anew. Its entries are together at its beginning.
    fn place_rooms(&self, dir: &Inode, state: &mut State, number: u64) -> Result<()> {
        let keys = dir::leaf_keys(number);
        let Some(claims) = &mut state.claims else { return Ok(()) };
        if claims.rooms.range(keys.0..keys.1).next().is_none() {
            return Ok(());
        }
        let pointer = map::get(&*self.engine, self.storage.data_seed(dir.id), &state.record.owned.tree, number)?;
        let Some(pointer) = pointer else { return Err(corrupt("a directory", Fault("a leaf is not there"))) };
        let leaf = self.look_at(dir, (number, pointer.block))?;
        let mut next = leaf.prints.iter().rposition(|print| *print != known::FREE).map_or(0, |last| last + 1);
        for (_, (slot, count)) in claims.rooms.range_mut(keys.0..keys.1) {
            *slot = next;
            next += *count;
        }
        assert!(next <= SLOTS, "a half has room for what the whole had");
        Ok(())
    }

    /// Makes room for a name that is not there: structure changes, as many as it takes. Returns where.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn make_room(&self, dir: &Inode, state: &mut State, name: &[u8], place: Option<Place>) -> Result<Place> {
        if let Some(shared) = dir.changed() {
            return match place {
                // One that the group has changed before: it has a room, or the entry's own.
                Some(Place { leaf: 0, .. }) => Ok(place.expect("it is one")),
                _ => self.keep_room(shared, name).map(|key| Place::changed(name, key, None)),
            };
        }
        let mut place = place;
        loop {
            let tree = state.record.owned.tree;
            let (change, first) = match &place {
                Some(Place { room: Some(_), key: Some(_), .. }) => break,
                Some(Place { key: None, .. }) => return Err(Error::NoSpace("names of one hash".into())),
                Some(place) if dir::leaf_depth(place.leaf) >= MAX_TRIE_DEPTH.min(HASH_BITS) => {
                    return Err(Error::NoSpace(format!("leaf {:#x} of a directory", place.leaf)));
                }
                Some(place) => (Structure::Split { dir: dir.id, leaf: place.leaf }, 2 * place.leaf),
                None => (Structure::FirstLeaf { dir: dir.id }, 1),
            };
            let nodes = nodes_for(tree.depth, depth_for(first + 1).max(tree.depth), first, first + 1);
            dir.leaves.forget(first / 2);
            let mut group = self.begin(dir, Kind::Structure, 2 + nodes, Need::Ordinary)?;
            group.record(&Operation::Structure(change))?;
            self.unawaited(|| group.commit())?;
            self.reload(&self.sight(dir), dir, state)?;
            if let Structure::Split { leaf, .. } = change {
                [2 * leaf, 2 * leaf + 1].into_iter().try_for_each(|half| self.place_rooms(dir, state, half))?;
            }
            place = self.find(dir, state, name)?;
        }
        Ok(place.expect("there is a leaf with room"))
    }

    /// Enters a name at a place with room.
    pub fn insert(
        &self,
        group: &mut Group<'_>,
        dir: &Inode,
        place: &Place,
        name: &[u8],
        (ino, kind): (u64, u32),
    ) -> Result<()> {
        if let Some((_, mut changes)) = dir.changes() {
            changes.set(group, place.key.expect("a name has a key"), name, Some((ino, kind)));
            return Ok(());
        }
        let (Some(slot), Some(key)) = (place.room, place.key) else { unreachable!("there is room") };
        let head = Head { ino, kind: (kind >> 12) as u8, name_len: name.len() as u8, key };
        group.record(&Operation::Insert { dir: dir.id, head, name, at: place.slot(slot) })?;
        dir.leaves.set(place.leaf, slot, dir::slots_for(name.len()), known::print(key >> TWIN_BITS));
        self.leaf_changed(dir, place);
        Ok(())
    }

    /// Enters a name in the place of one that is removed by the same group: the new entry may need another slot.
    pub fn replace(
        &self,
        group: &mut Group<'_>,
        dir: &Inode,
        place: &Place,
        (ino, kind): (u64, u32),
        name: &[u8],
    ) -> Result<()> {
        let found = place.found.expect("a name that is replaced");
        if let Some((_, mut changes)) = dir.changes() {
            changes.set(group, found.head.key, name, Some((ino, kind)));
            return Ok(());
        }
        let head = Head { ino, kind: (kind >> 12) as u8, name_len: name.len() as u8, key: found.head.key };
        group.record(&Operation::Remove { dir: dir.id, key: found.head.key, at: place.slot(found.slot) })?;
        group.record(&Operation::Insert { dir: dir.id, head, name, at: place.slot(found.slot) })?;
        self.leaf_changed(dir, place);
        Ok(())
    }

    /// Removes a name.
    pub fn remove(&self, group: &mut Group<'_>, dir: &Inode, place: &Place, name: &[u8]) -> Result<()> {
        let found = place.found.expect("a name that is removed");
        if let Some((_, mut changes)) = dir.changes() {
            changes.set(group, found.head.key, name, None);
            return Ok(());
        }
        group.record(&Operation::Remove { dir: dir.id, key: found.head.key, at: place.slot(found.slot) })?;
        dir.leaves.set(place.leaf, found.slot, dir::slots_for(found.head.name_len.into()), known::FREE);
        self.leaf_changed(dir, place);
        Ok(())
    }

    /// A leaf may be in another block from here on.
    fn leaf_changed(&self, dir: &Inode, place: &Place) {
        if self.engine.moves_blocks() {
            dir.leaves.forget(place.leaf);
        }
    }

    /// After a removal: gives up leaves that are empty, where that can be done without taking space that is not there.
    pub fn tidy(&self, dir: &Inode, state: &mut State, place: &Place) -> Result<()> {
        if place.entries > 1 || dir.changed().is_some() {
            return Ok(());
        }
        let mut leaf = place.leaf;
        while leaf > 1 {
            let keys = dir::leaf_keys(leaf / 2);
            if state.claims.as_ref().is_some_and(|claims| claims.rooms.range(keys.0..keys.1).next().is_some()) {
                return Ok(());
            }
            let tree = state.record.owned.tree;
            let seed = self.storage.data_seed(dir.id);
            let mut empty = true;
            for number in [leaf, leaf ^ 1] {
                let pointer = map::get(&self.sight(dir), seed, &tree, number)?;
                let Some(pointer) = pointer else { return Ok(()) };
                let mut bytes = [0; BLOCK];
                self.load_leaf(dir, pointer.block, &mut bytes)?;
                let scanned = Leaf::new(seed, &bytes).scan(|_| {
                    empty = false;
                    false
                });
                scanned.map_err(|fault| Self::damaged(dir, pointer.block, fault))?;
            }
            if !empty {
                return Ok(());
            }
            let nodes = nodes_for(tree.depth, tree.depth, leaf / 2, leaf / 2);
            let Ok(mut group) = self.begin(dir, Kind::Structure, nodes, Need::Vital) else { return Ok(()) };
            [leaf, leaf ^ 1, leaf / 2].into_iter().for_each(|number| dir.leaves.forget(number));
            group.record(&Operation::Structure(Structure::Merge { dir: dir.id, leaf }))?;
            self.unawaited(|| group.commit())?;
            self.reload(&self.sight(dir), dir, state)?;
            leaf /= 2;
        }
        Ok(())
    }

    /// The entries of the leaf that covers `key`, from that key on, in order; and the first key beyond the leaf.
    pub fn list(&self, dir: &Inode, state: &State, key: u64) -> Result<(Vec<Listed>, u64)> {
        const END: u64 = 1 << (HASH_BITS + TWIN_BITS);
        if key >= END {
            return Ok((Vec::new(), END));
        }
        if let Some((shared, changes)) = dir.changes() {
            let (mut listed, next) = self.list(shared, &shared.state.read().unwrap(), key)?;
            listed.retain(|entry| !changes.has(entry.key));
            let entered = changes.entered(key, next);
            listed.extend(entered.map(|(key, name, (ino, kind))| Listed { key, ino, kind, name: name.to_vec() }));
            listed.sort_unstable_by_key(|entry| entry.key);
            return Ok((listed, next));
        }
        let Some((number, lba)) = self.leaf_of(dir, &state.record.owned.tree, key >> TWIN_BITS)? else {
            return Ok((Vec::new(), END));
        };
        let mut bytes = [0; BLOCK];
        self.load_leaf(dir, lba, &mut bytes)?;
        let leaf = Leaf::new(self.storage.data_seed(dir.id), &bytes);
        let (first, end) = dir::leaf_keys(number);
        let mut listed = Vec::new();
        let mut fault = Ok(());
        leaf.scan(|entry| {
            if !(first..end).contains(&entry.head.key) {
                fault = fault.and(Err(Fault("a directory entry is in the wrong leaf")));
            } else if entry.head.key >= key {
                let mut buf = [0; NAME_MAX];
                let name = leaf.name(entry, &mut buf);
                fault = fault.and(leaf.check_name(entry, name));
                let kind = u32::from(entry.head.kind) << 12;
                listed.push(Listed { key: entry.head.key, ino: entry.head.ino, kind, name: name.to_vec() });
            }
            true
        })
        .and(fault)
        .map_err(|fault| Self::damaged(dir, lba, fault))?;
        listed.sort_unstable_by_key(|entry| entry.key);
        Ok((listed, end))
    }

    /// Calls `each` with all entries, until it returns `false`.
    pub fn list_all(&self, dir: &Inode, state: &State, mut each: impl FnMut(&Listed) -> bool) -> Result<()> {
        let mut key = 0;
        while key < 1 << (HASH_BITS + TWIN_BITS) {
            let (listed, next) = self.list(dir, state, key)?;
            if !listed.iter().all(&mut each) {
                return Ok(());
            }
            key = next;
        }
        Ok(())
    }

    pub fn is_empty(&self, dir: &Inode, state: &State) -> Result<bool> {
        let mut empty = true;
        self.list_all(dir, state, |_| {
            empty = false;
            false
        })?;
        Ok(empty)
    }

    /// How many directories are in a directory: counted once.
    pub fn subdirs(&self, dir: &Inode, state: &mut State) -> Result<u64> {
        if let Some(count) = state.subdirs {
            return Ok(count);
        }
        let mut count = 0;
        self.list_all(dir, state, |entry| {
            count += u64::from(entry.kind == DIRECTORY);
            true
        })?;
        state.subdirs = Some(count);
        Ok(count)
    }
}
