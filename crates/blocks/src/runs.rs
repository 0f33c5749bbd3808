//! A map from blocks to values that keeps runs of equal values as one entry.

use std::collections::BTreeMap;
use std::ops::Range;

/// Runs are apart or have different values: what is written in a row takes one entry.
#[derive(Clone, Debug)]
pub struct Runs<T>(BTreeMap<u64, (u64, T)>);

impl<T> Runs<T> {
    /// None.
    pub const fn new() -> Self {
        Runs(BTreeMap::new())
    }
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Runs::new()
    }
}

impl<T: Copy + PartialEq> Runs<T> {
    /// The value of a block, if it has one.
    pub fn get(&self, at: u64) -> Option<T> {
        let (_, (end, value)) = self.0.range(..=at).next_back()?;
        (at < *end).then_some(*value)
    }

    /// Gives blocks a value.
    pub fn set(&mut self, blocks: Range<u64>, value: T) {
        if blocks.is_empty() {
            return;
        }
        self.clear(blocks.clone());
        let Range { mut start, mut end } = blocks;
        if let Some((first, (_, before))) = self.0.range(..start).next_back().filter(|(_, (end, _))| *end == start)
            && *before == value
        {
            start = *first;
        }
        if let Some((after, of)) = self.0.get(&end)
            && *of == value
        {
            let after = *after;
            self.0.remove(&end);
            end = after;
        }
        self.0.insert(start, (end, value));
    }

    /// Takes the values of blocks.
    pub fn clear(&mut self, blocks: Range<u64>) {
        let Range { start, end } = blocks;
        if start >= end {
            return;
        }
        if let Some((first, (last, value))) = self.0.range(..start).next_back().map(|(first, of)| (*first, *of))
            && last > start
        {
            self.0.insert(first, (start, value));
            if last > end {
                self.0.insert(end, (last, value));
            }
        }
        while let Some((first, (last, value))) = self.0.range(start..end).next().map(|(first, of)| (*first, *of)) {
            self.0.remove(&first);
            if last > end {
                self.0.insert(end, (last, value));
            }
        }
    }

    /// The runs in some blocks, cut to these.
    pub fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = (Range<u64>, T)> + '_ {
        let first = self.0.range(..=blocks.start).next_back().map_or(blocks.start, |(first, _)| *first);
        self.0.range(first..blocks.end.max(first)).filter_map(move |(first, (last, value))| {
            let run = (*first).max(blocks.start)..(*last).min(blocks.end);
            (run.start < run.end).then_some((run, *value))
        })
    }

    /// Whether no block has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All runs.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, T)> + '_ {
        self.0.iter().map(|(first, (last, value))| (*first..*last, *value))
    }

    /// How many runs there are.
    #[cfg(test)]
    fn runs(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against an array, by all calls.
    #[test]
    fn it_is_as_an_array() {
        let (mut runs, mut array) = (Runs::default(), [None::<u8>; 64]);
        let mut seed = 1u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let start = draw(64);
            let blocks = start..start + draw(65 - start);
            let value = (draw(4) > 0).then_some(draw(3) as u8);
            match value {
                Some(value) => runs.set(blocks.clone(), value),
                None => runs.clear(blocks.clone()),
            }
            array[blocks.start as usize..blocks.end as usize].fill(value);
            assert!((0..64).all(|at| runs.get(at) == array[at as usize]));
            let from = draw(64);
            let part = from..from + draw(65 - from);
            let mut seen = [None; 64];
            for (run, value) in runs.within(part.clone()) {
                seen[run.start as usize..run.end as usize].fill(Some(value));
            }
            let same = |at: &usize| seen[*at] == array[*at].filter(|_| part.contains(&(*at as u64)));
            assert!((0..64).all(|at| same(&at)));
            let borders = (1..64).filter(|at| array[*at].is_some() && array[*at] != array[*at - 1]).count();
            assert_eq!(runs.runs(), borders + usize::from(array[0].is_some()));
        }
    }
}
