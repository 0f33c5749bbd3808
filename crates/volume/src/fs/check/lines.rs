//! Which directories are below the root: lines of parents. All of them take as many steps as there are directories,
//! however many are below one that has lost its name.

use std::collections::{HashMap, HashSet};

use crate::format::inode::ROOT;

/// What a directory is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    Root,
    /// Itself: a circle, of which no other one was seen.
    ItselfFirst,
    /// One that has lost its name, or a circle that was seen.
    Nothing,
}

/// What is known of the directories that were passed.
pub struct Lines {
    sound: HashSet<u64>,
    unsound: HashSet<u64>,
    /// Those of a circle, by the one that was met twice.
    circles: HashMap<u64, u64>,
    /// Circles that were seen.
    seen: HashSet<u64>,
}

impl Lines {
    pub fn new() -> Lines {
        Lines { sound: HashSet::from([ROOT]), unsound: HashSet::new(), circles: HashMap::new(), seen: HashSet::new() }
    }

    /// Follows the parents of a directory to one of which it is known, or round in circles.
    pub fn place_of(&mut self, dir: u64, mut parent: impl FnMut(u64) -> u64) -> Below {
        let (mut line, mut on_line, mut at) = (Vec::new(), HashSet::new(), dir);
        while !self.sound.contains(&at) && !self.unsound.contains(&at) && on_line.insert(at) {
            line.push(at);
            at = parent(at);
        }
        if self.sound.contains(&at) {
            self.sound.extend(line);
            return Below::Root;
        }
        let circle = line.iter().skip_while(|other| **other != at);
        self.circles.extend(circle.map(|other| (*other, at)));
        self.unsound.extend(line);
        match self.circles.get(&dir).is_some_and(|circle| self.seen.insert(*circle)) {
            true => Below::ItselfFirst,
            false => Below::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_is_passed_once() {
        // A long line from the root; one whose top has no name; and a circle. Below the lowest of each, many.
        let (long, many) = (300, 300);
        let tops = [(1_000, ROOT, Below::Root), (2_000, 0, Below::Nothing), (3_000, 3_000 + long - 1, Below::Nothing)];
        let mut lines = Lines::new();
        let mut steps = 0;
        for (first, top, wanted) in tops {
            let parent = |dir: u64| match dir.checked_sub(first) {
                None => 0,
                Some(0) => top,
                Some(i) if i < long => dir - 1,
                Some(_) => first + long - 1,
            };
            let mut firsts = 0;
            // The deepest first, as nothing is known then.
            for dir in (first..first + long + many).rev() {
                let found = lines.place_of(dir, |dir| {
                    steps += 1;
                    parent(dir)
                });
                match found {
                    Below::ItselfFirst => firsts += 1,
                    found => assert_eq!(found, wanted, "{dir}"),
                }
            }
            assert_eq!(firsts, u64::from(first == 3_000));
        }
        assert_eq!(steps, 3 * (long + many) + 1, "one to where there is nothing");
    }
}
