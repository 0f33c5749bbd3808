//! The table of objects, by id.

use std::ops::Index;

use super::Object;
use super::packed::Packed;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Objects(Packed<u64, Object>);

impl Objects {
    pub fn get(&self, id: &u64) -> Option<&Object> {
        self.0.get(id)
    }

    pub fn get_mut(&mut self, id: &u64) -> Option<&mut Object> {
        self.0.get_mut(id)
    }

    pub fn contains_key(&self, id: &u64) -> bool {
        self.0.contains_key(id)
    }

    pub fn insert(&mut self, id: u64, object: Object) {
        self.0.insert(id, object);
    }

    /// The object, which is made where it is not there.
    pub fn get_or_insert_with(&mut self, id: u64, make: impl FnOnce() -> Object) -> &mut Object {
        self.0.get_or_insert_with(id, make)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&u64, &Object)> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&u64, &mut Object)> {
        self.0.iter_mut()
    }

    pub fn values(&self) -> impl Iterator<Item = &Object> {
        self.0.values()
    }

    /// Forgets all others.
    pub fn retain(&mut self, stays: impl FnMut(&u64, &mut Object) -> bool) {
        self.0.retain(stays);
    }
}

impl Index<&u64> for Objects {
    type Output = Object;

    fn index(&self, id: &u64) -> &Object {
        self.get(id).expect("it is in the table")
    }
}
