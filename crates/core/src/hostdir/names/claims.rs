//! Who may change what, until the group ends.
//!
//! A call takes all its claims at once or none, so that calls which wait for each other do not wait in a circle.
//!
//! A name is known here by a hash of it, which takes less memory than the name. Two names with the same hash are one
//! claim. So a group may wait for another one without need, but no name has two owners, and none is given up too early:
//! a group gives up all names that it changes at once.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;

use wholly_changes::{Ids, Name};

use super::Object;
use super::objects::Objects;

/// What a call wants to claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Names that it changes.
    pub names: Vec<Name>,
    /// Objects that nobody else may change, or, of directories, have names changed in.
    pub alone: Vec<u64>,
    /// Directories in which it changes names, or on whose places it relies.
    pub shared: Vec<u64>,
    /// Objects whose attributes it sets: that is in nobody's way who changes names. (Of regular files everything is its
    /// owner's.)
    pub attributes: Vec<u64>,
}

impl Wanted {
    /// The objects that it speaks of.
    pub fn objects(&self) -> impl Iterator<Item = u64> {
        let lists = [&self.alone, &self.shared, &self.attributes].into_iter().flatten().copied();
        self.names.iter().map(|name| name.0).chain(lists)
    }
}

/// What a group has claimed, each once.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub names: Vec<Name>,
    pub alone: Ids,
    pub shared: Vec<u64>,
    pub attributes: Vec<u64>,
}

/// The claims of all running groups (see the head of this file). `S` hashes names with a secret key, so that nobody can
/// choose names with equal hashes.
#[derive(Default)]
pub(crate) struct Claims<S = RandomState> {
    hasher: S,
    /// By the hashes of names. These are trees, which grow and shrink with what is in them.
    names: BTreeMap<u64, u64>,
    attributes: BTreeMap<u64, u64>,
    /// By directory, each owner once. Who has claimed an object alone is [in the table](Object::owner) of objects.
    shared: HashMap<u64, Vec<u64>>,
}

impl<S: BuildHasher> Claims<S> {
    /// The group that has a claim against what `owner` wants; 0 if an object is not in the table.
    fn against(&self, objects: &Objects, owner: u64, wanted: &Wanted) -> Option<u64> {
        let other = |by: Option<&u64>| by.copied().filter(|&by| by != owner);
        let owned = |id: &u64| objects.get(id)?.owner().filter(|&by| by != owner);
        let names = wanted.names.iter().find_map(|name| other(self.names.get(&self.hasher.hash_one(name))));
        let alone = || {
            wanted.alone.iter().find_map(|id| {
                let sharer = || self.shared.get(id)?.iter().copied().find(|&by| by != owner);
                owned(id).or_else(sharer)
            })
        };
        let shared = || wanted.shared.iter().find_map(owned);
        let attributes = || wanted.attributes.iter().find_map(|id| other(self.attributes.get(id)));
        let missing = || wanted.alone.iter().any(|id| !objects.contains_key(id)).then_some(0);
        names.or_else(alone).or_else(shared).or_else(attributes).or_else(missing)
    }

    /// Gives `owner` all that it wants, and adds to `held` what of that is new to it; or tells who has some of it. The
    /// directories of names are shared with them.
    pub fn take(&mut self, objects: &mut Objects, owner: u64, mut wanted: Wanted, held: &mut Held) -> Result<(), u64> {
        wanted.shared.extend(wanted.names.iter().map(|name| name.0));
        if let Some(other) = self.against(objects, owner, &wanted) {
            return Err(other);
        }
        for name in wanted.names {
            if self.names.insert(self.hasher.hash_one(&name), owner).is_none() {
                held.names.push(name);
            }
        }
        for id in wanted.alone {
            if objects.get_mut(&id).is_some_and(|object| object.own(owner)) {
                held.alone.insert(id);
            }
        }
        for id in wanted.attributes {
            if self.attributes.insert(id, owner).is_none() {
                held.attributes.push(id);
            }
        }
        for id in wanted.shared {
            let owners = self.shared.entry(id).or_default();
            if !owners.contains(&owner) {
                owners.push(owner);
                held.shared.push(id);
            }
        }
        Ok(())
    }

    /// `owner` gives up these names, as far as it has them: one that it gave up before may be another's by now.
    pub fn release_names<'n>(&mut self, owner: u64, names: impl Iterator<Item = &'n Name>) {
        for name in names {
            let hash = self.hasher.hash_one(name);
            if self.names.get(&hash) == Some(&owner) {
                self.names.remove(&hash);
            }
        }
    }

    /// `owner` gives up what it holds: these names, these objects, which it has claimed alone, and of `held` all else.
    pub fn release<'n>(
        &mut self,
        objects: &mut Objects,
        owner: u64,
        names: impl Iterator<Item = &'n Name>,
        alone: impl Iterator<Item = u64>,
        held: &Held,
    ) {
        self.release_names(owner, names);
        for id in alone {
            objects.get_mut(&id).into_iter().for_each(|object| object.disown(owner));
        }
        for id in &held.attributes {
            self.attributes.remove(id);
        }
        for id in &held.shared {
            if let Some(owners) = self.shared.get_mut(id) {
                owners.retain(|&by| by != owner);
                if owners.is_empty() {
                    self.shared.remove(id);
                }
            }
        }
    }

    /// Whether somebody has a claim on an object, or on a name in it.
    pub fn has(&self, id: u64, object: &Object) -> bool {
        object.owner().is_some() || self.attributes.contains_key(&id) || self.shared.contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, Hasher};

    use super::*;

    /// Claims, and the objects 5 and 6.
    #[derive(Default)]
    struct Table<S = RandomState> {
        claims: Claims<S>,
        objects: Objects,
    }

    impl<S: BuildHasher + Default> Table<S> {
        fn new() -> Self {
            let mut table = Self::default();
            [5, 6].into_iter().for_each(|id| table.objects.insert(id, Object::root()));
            table
        }

        fn take(&mut self, owner: u64, wanted: Wanted, held: &mut Held) -> Result<(), u64> {
            self.claims.take(&mut self.objects, owner, wanted, held)
        }

        fn release(&mut self, owner: u64, held: &Held) {
            self.claims.release(&mut self.objects, owner, held.names.iter(), held.alone.iter(), held);
        }

        fn has(&self, id: u64) -> bool {
            self.claims.has(id, &self.objects[&id])
        }
    }

    fn name(dir: u64, name: &str) -> Wanted {
        Wanted { names: vec![(dir, name.as_bytes().into())], ..Wanted::default() }
    }

    fn alone(id: u64) -> Wanted {
        Wanted { alone: vec![id], ..Wanted::default() }
    }

    #[test]
    fn names_are_taken_once_and_directories_shared_or_alone() {
        let mut table = <Table>::new();
        let (mut first, mut second) = (Held::default(), Held::default());
        table.take(1, name(5, "a"), &mut first).unwrap();
        table.take(1, name(5, "a"), &mut first).unwrap();
        assert_eq!(table.take(2, name(5, "a"), &mut second), Err(1));
        table.take(2, name(5, "b"), &mut second).unwrap();
        assert_eq!(table.take(2, alone(5), &mut second), Err(1), "somebody has a name in it");
        table.release(1, &first);
        table.take(2, alone(5), &mut second).unwrap();
        table.take(2, alone(5), &mut second).unwrap();
        assert!(second.alone.iter().eq([5]));
        assert_eq!(table.take(1, name(5, "c"), &mut Held::default()), Err(2), "it is about to go");
        assert_eq!(table.take(1, alone(5), &mut Held::default()), Err(2));
        assert!(table.has(5) && !table.has(6));
        table.release(2, &second);
        assert!(!table.has(5));

        let attributes = || Wanted { attributes: vec![5], ..Wanted::default() };
        let (mut first, mut second) = (Held::default(), Held::default());
        table.take(1, name(5, "a"), &mut first).unwrap();
        assert!(table.has(5), "somebody has a name in it");
        table.take(2, attributes(), &mut second).unwrap();
        assert_eq!(table.take(1, attributes(), &mut first), Err(2));
        table.release(2, &second);
        table.take(1, attributes(), &mut first).unwrap();
        table.release(1, &first);
        assert!(!table.has(5));
    }

    /// Gives all names the same hash.
    #[derive(Default)]
    struct Same;

    impl Hasher for Same {
        fn write(&mut self, _: &[u8]) {}

        fn finish(&self) -> u64 {
            7
        }
    }

    #[test]
    fn names_of_one_hash_are_one_claim() {
        let mut table = Table::<BuildHasherDefault<Same>>::new();
        let (mut first, mut second) = (Held::default(), Held::default());
        table.take(1, name(5, "a"), &mut first).unwrap();
        table.take(1, name(5, "b"), &mut first).unwrap();
        assert_eq!(table.take(2, name(5, "c"), &mut second), Err(1), "the other group waits without need");
        table.release(1, &first);
        table.take(2, name(5, "b"), &mut second).unwrap();
        table.release(1, &Held { names: name(5, "a").names, ..Held::default() });
        assert_eq!(table.take(1, name(5, "a"), &mut first), Err(2), "a group gives up what is its own");
    }

    #[test]
    fn what_is_not_in_the_table_is_nobodys() {
        let mut table = <Table>::new();
        let mut held = Held::default();
        assert_eq!(table.take(1, Wanted { alone: vec![5, 7], ..Wanted::default() }, &mut held), Err(0));
        assert!(held.alone.is_empty() && !table.has(5));
        table.take(1, alone(5), &mut held).unwrap();
        table.release(2, &held);
        assert!(table.has(5), "a group gives up what is its own");
    }

    /// Nothing is left of a call that got a part only.
    #[test]
    fn all_or_nothing() {
        let mut table = <Table>::new();
        table.take(1, name(5, "b"), &mut Held::default()).unwrap();
        let wanted = Wanted { names: vec![(5, b"a"[..].into()), (5, b"b"[..].into())], ..Wanted::default() };
        assert_eq!(table.take(2, wanted, &mut Held::default()), Err(1));
        table.take(3, name(5, "a"), &mut Held::default()).unwrap();
    }
}
