//! Ordered tables that are small for very many entries.
//!
//! A node of the standard library's tree is half full where keys are added in order, as the names and the objects of
//! one group mostly are, and a hash table is there twice while it grows. Here the entries stand in *runs*, which stay
//! full if keys come in order, and only the first keys of the runs are in a tree.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Entries of the longest run.
const LONGEST: usize = 64;
/// Entries by which a run grows.
const STEP: usize = 16;

/// A map in the order of its keys. Each run is under a key at or below its first one, and none is empty.
#[derive(Debug)]
pub(crate) struct Packed<K, V>(BTreeMap<K, Vec<(K, V)>>);

impl<K, V> Default for Packed<K, V> {
    fn default() -> Self {
        Packed(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V> Packed<K, V> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let (_, run) = self.0.range((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let at = run.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        Some((&run[at].0, &run[at].1))
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (_, run) = self.0.range_mut((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let at = run.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        Some(&mut run[at].1)
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The value, which is made where there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if self.0.first_key_value().is_none_or(|(first, _)| *first > key) {
            let first = self.0.pop_first().map(|(_, run)| run);
            self.0.insert(key.clone(), first.unwrap_or_default());
        }
        let (_, run) = self.0.range_mut(..=&key).next_back().expect("there is one at or below every key");
        let place = run.binary_search_by(|(known, _)| known.cmp(&key));
        if place == Err(LONGEST) {
            // Keys come in order: the run stays full.
            return &mut self.0.entry(key.clone()).or_insert(vec![(key, make())])[0].1;
        }
        if place.is_err() && run.len() == LONGEST {
            let upper = run.split_off(LONGEST / 2);
            run.shrink_to_fit();
            self.0.insert(upper[0].0.clone(), upper);
            return self.get_or_insert_with(key, make);
        }
        let (_, run) = self.0.range_mut(..=&key).next_back().expect("it was just there");
        let at = place.unwrap_or_else(|at| {
            if run.len() == run.capacity() {
                // Not twice as much: most runs have a length between half of the longest and that.
                run.reserve_exact(STEP.min(LONGEST - run.len()));
            }
            run.insert(at, (key, make()));
            at
        });
        &mut run[at].1
    }

    /// Sets a value. Gives the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let mut new = Some(value);
        let known = self.get_or_insert_with(key, || new.take().expect("it is made once"));
        new.map(|new| std::mem::replace(known, new))
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let range = (Bound::Unbounded, Bound::Included(key));
        let (_, run) = self.0.range_mut::<Q, _>(range).next_back()?;
        let at = run.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        let (_, value) = run.remove(at);
        if run.len() * 4 <= run.capacity() {
            run.shrink_to(run.len() * 2);
        }
        if run.is_empty() {
            let (first, _) = self.0.range::<Q, _>(range).next_back().expect("it was just there");
            let first = first.clone();
            self.0.remove(first.borrow());
        }
        Some(value)
    }

    /// Forgets all others.
    pub fn retain(&mut self, mut stays: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain(|_, run| {
            run.retain_mut(|(key, value)| stays(key, value));
            if run.len() * 2 <= run.capacity() {
                run.shrink_to_fit();
            }
            !run.is_empty()
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> + Clone {
        self.0.values().flatten().map(|(key, value)| (key, value))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.values_mut().flatten().map(|(key, value)| (&*key, value))
    }

    /// The entries from `key` on.
    pub fn from(&self, key: K) -> impl Iterator<Item = (&K, &V)> {
        let first = self.0.range(..=&key).next_back().map_or_else(|| key.clone(), |(first, _)| first.clone());
        let runs = self.0.range(first..).flat_map(|(_, run)| run);
        runs.skip_while(move |(known, _)| *known < key).map(|(key, value)| (key, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K, V> IntoIterator for Packed<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Flatten<std::collections::btree_map::IntoValues<K, Vec<(K, V)>>>;

    /// Frees each run when it is behind it.
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capacity(packed: &Packed<u64, u64>) -> usize {
        packed.0.values().map(Vec::capacity).sum()
    }

    #[test]
    fn runs_are_full_where_keys_come_in_order() {
        let mut packed = Packed::default();
        (0..64 * 100).for_each(|key| _ = packed.insert(key, key));
        assert_eq!((packed.0.len(), packed.len(), capacity(&packed)), (100, 6400, 6400));
        packed.retain(|key, _| key % 64 == 7);
        assert_eq!((packed.len(), capacity(&packed)), (100, 100), "what is left takes no more than itself");
        packed.retain(|_, _| false);
        assert!(packed.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Keys in clusters: before, between and behind others.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..8u8, 0..600u64), 1..2000)) {
            let (mut packed, mut model) = (Packed::default(), BTreeMap::new());
            for (step, &(what, key)) in steps.iter().enumerate() {
                let value = step as u64;
                match what {
                    0 => prop_assert_eq!(packed.remove(&key), model.remove(&key)),
                    1 => {
                        packed.get_mut(&key).into_iter().for_each(|old| *old += 1);
                        model.get_mut(&key).into_iter().for_each(|old| *old += 1);
                    }
                    2 => prop_assert_eq!(*packed.get_or_insert_with(key, || value), *model.entry(key).or_insert(value)),
                    3 if key < 4 => {
                        packed.retain(|known, _| known % 3 != key);
                        model.retain(|known, _| known % 3 != key);
                    }
                    _ => prop_assert_eq!(packed.insert(key, value), model.insert(key, value)),
                }
                prop_assert_eq!(packed.get(&key), model.get(&key));
            }
            prop_assert!(packed.iter().eq(model.iter()) && packed.len() == model.len());
            prop_assert!([0, 17, 300, 700].into_iter().all(|from| packed.from(from).eq(model.range(from..))));
            prop_assert!(packed.0.values().all(|run| !run.is_empty() && run.len() <= LONGEST));
            prop_assert!(packed.iter_mut().map(|(key, value)| (*key, *value)).eq(model.clone()));
            prop_assert!(packed.into_iter().eq(model));
        }
    }
}
