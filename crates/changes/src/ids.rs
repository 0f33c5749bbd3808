//! Sets of ids.

use std::collections::BTreeMap;

/// A set of ids, with a bit for each id. It is small where ids lie close together.
#[derive(Clone, Debug, Default)]
pub struct Ids(BTreeMap<u64, u64>);

impl Ids {
    /// Whether it is new.
    pub fn insert(&mut self, id: u64) -> bool {
        let bits = self.0.entry(id / 64).or_default();
        let is_new = *bits & bit(id) == 0;
        *bits |= bit(id);
        is_new
    }

    /// Whether it was there.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(bits) = self.0.get_mut(&(id / 64)) else { return false };
        let was_there = *bits & bit(id) != 0;
        *bits &= !bit(id);
        if *bits == 0 {
            self.0.remove(&(id / 64));
        }
        was_there
    }

    /// Whether it is there.
    #[inline]
    pub fn contains(&self, id: u64) -> bool {
        self.0.get(&(id / 64)).is_some_and(|bits| bits & bit(id) != 0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        self.0.iter().flat_map(|(high, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let low = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(high * 64 + u64::from(low))
            })
        })
    }
}

fn bit(id: u64) -> u64 {
    1 << (id % 64)
}

impl Extend<u64> for Ids {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| _ = self.insert(id));
    }
}

impl FromIterator<u64> for Ids {
    fn from_iter<I: IntoIterator<Item = u64>>(ids: I) -> Self {
        let mut all = Ids::default();
        all.extend(ids);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn ids_are_a_set(steps in prop::collection::vec((any::<bool>(), 0..300u64), 0..600)) {
            let (mut ids, mut model) = (Ids::default(), BTreeSet::new());
            for (add, id) in steps {
                match add {
                    true => prop_assert_eq!(ids.insert(id), model.insert(id)),
                    false => prop_assert_eq!(ids.remove(id), model.remove(&id)),
                }
            }
            prop_assert!(ids.iter().eq(model.iter().copied()) && ids.is_empty() == model.is_empty());
            prop_assert!((0..300).all(|id| ids.contains(id) == model.contains(&id)));
        }
    }
}
