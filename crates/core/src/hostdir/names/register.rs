//! The committed values of one name. Most names have one: it takes no memory besides.

/// In the place of what the host has: see [`Register::is_stray`].
const STRAY: u64 = u64::MAX;

/// See the head of this file. The values are objects, by sequence; 0 is nothing.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    home: u64,
    /// The latest value; with the sequence 0 there is none.
    last: (u64, u64),
    earlier: Option<Box<Earlier>>,
}

/// All values but the latest, in commit order.
#[derive(Clone, Debug, Default)]
struct Earlier(Vec<(u64, u64)>);

impl Register {
    /// Of a name where the host has this object, or nothing.
    pub fn new(home: u64) -> Self {
        Register { home, last: (0, 0), earlier: None }
    }

    /// What the host has there, as the store left it.
    pub fn home(&self) -> u64 {
        if self.is_stray() { 0 } else { self.home }
    }

    /// Whether the host has something there that a pass made for a virtual object before a crash, and nobody knows for
    /// which.
    pub fn is_stray(&self) -> bool {
        self.home == STRAY
    }

    /// The host has this object there now, or nothing. Gives what it had.
    pub fn set_home(&mut self, object: u64) -> u64 {
        let before = self.home();
        self.home = object;
        before
    }

    /// The host has something there of which nobody knows for which object a pass made it. Gives what it had.
    pub fn set_stray(&mut self) -> u64 {
        self.set_home(STRAY)
    }

    /// A group at `sequence` has set it.
    pub fn set(&mut self, sequence: u64, object: u64) {
        debug_assert!(self.last() <= sequence, "a name is set in commit order");
        let before = std::mem::replace(&mut self.last, (sequence, object));
        if before.0 != 0 && before.0 != sequence {
            self.earlier.get_or_insert_default().0.push(before);
        }
    }

    /// All values with their sequences, the latest first.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let earlier = self.earlier.iter().flat_map(|earlier| earlier.0.iter().rev()).copied();
        Some(self.last).filter(|last| last.0 != 0).into_iter().chain(earlier)
    }

    /// The latest committed value.
    pub fn newest(&self) -> u64 {
        if self.last.0 == 0 { self.home() } else { self.last.1 }
    }

    /// The value as of the sequence `target`.
    pub fn as_of(&self, target: u64) -> u64 {
        self.values().find(|&(stamp, _)| stamp < target).map_or_else(|| self.home(), |(_, object)| object)
    }

    /// The sequence of the last group that set it.
    pub fn last(&self) -> u64 {
        self.last.0
    }

    /// Forgets values below `tail`. Whether anything is left to know.
    pub fn forget(&mut self, tail: u64) -> bool {
        if let Some(earlier) = &mut self.earlier {
            earlier.0.retain(|&(stamp, _)| stamp >= tail);
            if earlier.0.is_empty() {
                self.earlier = None;
            }
        }
        if self.last.0 < tail {
            self.last = (0, 0);
        }
        self.last.0 != 0 || self.is_stray()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(register: &Register) -> Vec<(u64, u64)> {
        register.values().collect()
    }

    #[test]
    fn values_are_known_by_their_sequences() {
        let mut register = Register::new(7);
        assert_eq!((register.newest(), register.as_of(9), register.last()), (7, 7, 0));
        register.set(3, 8);
        register.set(3, 9);
        register.set(5, 0);
        register.set(8, 4);
        assert_eq!(values(&register), [(8, 4), (5, 0), (3, 9)]);
        let as_of: Vec<u64> = [3, 4, 5, 6, 8, 9].into_iter().map(|target| register.as_of(target)).collect();
        assert_eq!(as_of, [7, 9, 9, 0, 0, 4]);
        assert_eq!((register.newest(), register.last()), (4, 8));
        assert!(register.forget(5));
        assert_eq!((values(&register), register.as_of(5)), (vec![(8, 4), (5, 0)], 7));
        assert!(register.forget(6) && register.earlier.is_none());
        assert_eq!(values(&register), [(8, 4)]);
        assert!(!register.forget(9));
        assert_eq!((values(&register), register.newest(), register.last()), (vec![], 7, 0));
    }

    #[test]
    fn what_is_stray_is_no_object() {
        let mut register = Register::new(7);
        register.set(3, 8);
        assert_eq!(register.set_stray(), 7);
        assert_eq!((register.home(), register.as_of(2), register.newest()), (0, 0, 8));
        assert!(register.forget(4) && register.is_stray(), "it is to be removed");
        assert_eq!(register.newest(), 0);
        assert_eq!(register.set_home(8), 0);
        assert!(!register.is_stray() && !register.forget(4));
    }
}
