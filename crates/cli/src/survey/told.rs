//! What entries tell in their payloads, and which paths follow from it.

use std::collections::HashMap;
use wholly::log::layout::EntryKind;
use wholly_changes::records::{Attributes, Birth, Identity, Shadow, Space, Value, Xattr};

/// The object that is the store's directory.
const ROOT: u64 = 1;

/// A payload that was read, of a kind that has one with fields.
pub enum Told {
    Identity(Identity),
    Birth(Birth),
    Value(Value),
    Attributes(Attributes),
    Xattr(Xattr),
    Space(Space),
    Shadow(Shadow),
    /// Its checksum holds, and no program writes such a thing.
    Impossible,
}

impl Told {
    /// Reads the payload of an entry.
    pub fn of(kind: EntryKind, payload: &[u8]) -> Option<Box<Told>> {
        let told = match kind {
            EntryKind::Write | EntryKind::Truncate => return None,
            EntryKind::Parts | EntryKind::Clock | EntryKind::Applied | EntryKind::Provisional | EntryKind::Staged => {
                return None;
            }
            EntryKind::Identify => Identity::checked(payload).map(Told::Identity),
            EntryKind::Create => Birth::checked(payload).map(Told::Birth),
            EntryKind::Name => Value::checked(payload).map(Told::Value),
            EntryKind::Attributes => Attributes::checked(payload).map(Told::Attributes),
            EntryKind::Xattr => Xattr::checked(payload).map(Told::Xattr),
            EntryKind::Space => Space::checked(payload).map(Told::Space),
            EntryKind::Shadow => Shadow::checked(payload).map(Told::Shadow),
        };
        Some(Box::new(told.unwrap_or(Told::Impossible)))
    }
}

/// Where objects hang, as far as the log tells.
#[derive(Default)]
pub struct Places {
    /// The directory and the name, of an object that had one at some time: what is removed is still spoken of.
    names: HashMap<u64, (u64, Vec<u8>)>,
}

impl Places {
    /// Learns from an entry of the object, or in the directory, `file`. What is told later counts.
    pub fn learn(&mut self, file: u64, told: &Told) {
        match told {
            Told::Identity(identity) if identity.parent != 0 => {
                self.names.insert(file, (identity.parent, identity.name.clone()));
            }
            Told::Value(value) if value.after != 0 => {
                self.names.insert(value.after, (file, value.name.clone()));
            }
            _ => {}
        }
    }

    /// The paths of all of them.
    pub fn into_paths(self) -> HashMap<u64, Vec<u8>> {
        let mut paths = HashMap::from([(ROOT, b".".to_vec())]);
        for &object in self.names.keys() {
            // From the object upwards, until a directory whose path is known.
            let (mut way, mut at) = (Vec::new(), object);
            while !paths.contains_key(&at)
                && let Some((parent, _)) = self.names.get(&at)
                // What was read while it was written may go in circles.
                && way.len() <= self.names.len()
            {
                way.push(at);
                at = *parent;
            }
            for object in way.into_iter().rev() {
                let (parent, name) = &self.names[&object];
                let Some(directory) = paths.get(parent) else { break };
                let path = below(directory, name);
                paths.insert(object, path);
            }
        }
        paths
    }
}

/// The path of a name in a directory.
pub fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory == b"." { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parent: u64, name: &str, object: u64) -> (u64, Told) {
        (parent, Told::Value(Value { before: 0, after: object, name: name.into() }))
    }

    #[test]
    fn paths_follow_from_names_in_any_order_of_objects() {
        let mut places = Places::default();
        let told = [
            name(7, "c", 9),
            name(5, "b", 7),
            name(ROOT, "old", 5),
            name(ROOT, "a", 5),
            // Two that name each other, and one whose directory nobody speaks of.
            name(20, "x", 21),
            name(21, "y", 20),
            name(30, "z", 31),
        ];
        for (file, told) in &told {
            places.learn(*file, told);
        }
        let removed = Told::Value(Value { before: 9, after: 0, name: b"c".to_vec() });
        places.learn(7, &removed);
        let paths = places.into_paths();
        let path = |object| paths.get(&object).map(|path| std::str::from_utf8(path).unwrap());
        assert_eq!([1, 5, 7, 9].map(path), [Some("."), Some("a"), Some("a/b"), Some("a/b/c")]);
        assert_eq!([20, 21, 30, 31].map(path), [None; 4]);
    }
}
