//! The table of objects, by id: a tree, which grows and shrinks with what is in it. Each object has memory of its own,
//! so that what is free in the nodes of the tree is small.

use std::collections::BTreeMap;
use std::ops::Index;

use super::Object;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Objects(BTreeMap<u64, Box<Object>>);

impl Objects {
    pub fn get(&self, id: &u64) -> Option<&Object> {
        self.0.get(id).map(|object| &**object)
    }

    pub fn get_mut(&mut self, id: &u64) -> Option<&mut Object> {
        self.0.get_mut(id).map(|object| &mut **object)
    }

    pub fn contains_key(&self, id: &u64) -> bool {
        self.0.contains_key(id)
    }

    pub fn insert(&mut self, id: u64, object: Object) {
        self.0.insert(id, Box::new(object));
    }

    /// The object, which is made where it is not there.
    pub fn get_or_insert_with(&mut self, id: u64, make: impl FnOnce() -> Object) -> &mut Object {
        self.0.entry(id).or_insert_with(|| Box::new(make()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&u64, &Object)> {
        self.0.iter().map(|(id, object)| (id, &**object))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&u64, &mut Object)> {
        self.0.iter_mut().map(|(id, object)| (id, &mut **object))
    }

    pub fn values(&self) -> impl Iterator<Item = &Object> {
        self.0.values().map(|object| &**object)
    }

    /// Forgets all others.
    pub fn retain(&mut self, mut stays: impl FnMut(&u64, &mut Object) -> bool) {
        self.0.retain(|id, object| stays(id, object));
    }
}

impl Index<&u64> for Objects {
    type Output = Object;

    fn index(&self, id: &u64) -> &Object {
        &self.0[id]
    }
}
