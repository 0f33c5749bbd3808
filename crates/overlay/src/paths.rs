//! Sets of names and of paths that are small for very many names in one directory.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::host::{Path, join, split};

/// Names in the longest run.
const LONGEST: usize = 64;

/// Names of up to 255 bytes, in order. They stand in runs, of which none is empty, and each is under a name at or below
/// its first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(BTreeMap<Box<[u8]>, Run>);

/// One name behind the other, each after its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Run(Box<[u8]>);

impl Run {
    fn of(names: &[&[u8]]) -> Run {
        let mut bytes = Vec::with_capacity(names.iter().map(|name| 1 + name.len()).sum());
        for name in names {
            bytes.push(u8::try_from(name.len()).expect("no name is longer"));
            bytes.extend_from_slice(name);
        }
        Run(bytes.into())
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (&length, behind) = rest.split_first()?;
            let (name, behind) = behind.split_at(length.into());
            rest = behind;
            Some(name)
        })
    }
}

impl Names {
    pub fn insert(&mut self, name: &[u8]) {
        if self.0.first_key_value().is_none_or(|(first, _)| **first > *name) {
            let first = self.0.pop_first().map(|(_, run)| run);
            self.0.insert(name.into(), first.unwrap_or_default());
        }
        let up_to = (Bound::Unbounded, Bound::Included(name));
        let (_, run) = self.0.range_mut::<[u8], _>(up_to).next_back().expect("there is one at or below every name");
        let mut names: Vec<&[u8]> = run.iter().collect();
        let Err(place) = names.binary_search(&name) else { return };
        if place == LONGEST {
            // Names come in order: the run stays full.
            self.0.insert(name.into(), Run::of(&[name]));
            return;
        }
        names.insert(place, name);
        let upper = names.split_off(if names.len() > LONGEST { LONGEST / 2 } else { names.len() });
        let (lower, upper) = (Run::of(&names), upper.first().map(|first| (Box::from(*first), Run::of(&upper))));
        *run = lower;
        self.0.extend(upper);
    }

    pub fn contains(&self, name: &[u8]) -> bool {
        let up_to = (Bound::Unbounded, Bound::Included(name));
        let run = self.0.range::<[u8], _>(up_to).next_back();
        run.is_some_and(|(_, run)| run.iter().any(|known| known == name))
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.values().flat_map(Run::iter)
    }
}

/// Paths that have a name at least, by the directories that they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paths(BTreeMap<Path, Names>);

impl Paths {
    pub fn insert(&mut self, path: &[u8]) {
        let (dir, name) = split(path);
        match self.0.get_mut(dir) {
            Some(names) => names.insert(name),
            None => self.0.entry(dir.to_vec()).or_default().insert(name),
        }
    }

    pub fn contains(&self, path: &[u8]) -> bool {
        let (dir, name) = split(path);
        self.0.get(dir).is_some_and(|names| names.contains(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = Path> {
        self.by_directory().flat_map(|(dir, names)| names.iter().map(move |name| join(dir, name)))
    }

    pub fn by_directory(&self) -> impl Iterator<Item = (&Path, &Names)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// In order, backwards, and each number in its turn.
    #[test]
    fn names_are_a_set_in_order() {
        const COUNT: usize = 1009;
        let orders: [fn(usize) -> usize; 3] = [|n| n, |n| COUNT - n, |n| n * 389 % COUNT];
        for order in orders {
            let (mut names, mut model) = (Names::default(), BTreeSet::new());
            for n in (0..COUNT).map(order).flat_map(|n| [n, n / 2]) {
                let name = vec![b'0' + (n % 10) as u8; n % 256];
                assert_eq!(names.contains(&name), model.contains(&name));
                names.insert(&name);
                model.insert(name.clone());
                assert!(names.contains(&name));
                names.insert(format!("{n}").as_bytes());
                model.insert(format!("{n}").into_bytes());
            }
            assert!(names.iter().eq(model.iter().map(|name| &name[..])));
            assert!(names.0.values().all(|run| (1..=LONGEST).contains(&run.iter().count())));
        }
    }

    #[test]
    fn runs_are_full_where_names_come_in_order() {
        let mut names = Names::default();
        (0..64 * 100).for_each(|n| names.insert(format!("{n:07}").as_bytes()));
        let bytes: usize = names.0.values().map(|run| run.0.len()).sum();
        assert_eq!((names.0.len(), bytes), (100, 64 * 100 * 8));
    }

    #[test]
    fn paths_are_known_by_their_directories() {
        let all: [&[u8]; 5] = [b"a", b"b", b"a/b", b"a/c", b"a/b/c"];
        let mut paths = Paths::default();
        all.iter().rev().chain(&all).for_each(|path| paths.insert(path));
        assert!(paths.iter().eq(all.map(<[u8]>::to_vec)));
        assert!(all.iter().all(|path| paths.contains(path)) && !paths.contains(b"c") && !paths.contains(b"b/c"));
    }
}
