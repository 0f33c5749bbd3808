//! Cases, and the random sequence that all systems of a case are given.

use wholly_sim::Random;

/// Sizes of updates in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All of one size, at multiples of it.
    Aligned(u32),
    /// Uniformly distributed, both ends included, at any byte.
    Uniform(u32, u32),
}

impl Size {
    /// The mean in bytes.
    pub fn mean_bytes(self) -> u64 {
        match self {
            Size::Aligned(bytes) => u64::from(bytes),
            Size::Uniform(min, max) => (u64::from(min) + u64::from(max)) / 2,
        }
    }

    /// The largest in bytes.
    pub fn max_bytes(self) -> u64 {
        match self {
            Size::Aligned(bytes) => u64::from(bytes),
            Size::Uniform(_, max) => u64::from(max),
        }
    }
}

/// One case of a suite: groups of overwrites in a set of files that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The suite it belongs to.
    pub suite: &'static str,
    /// Its name in that suite.
    pub name: &'static str,
    /// Number of files.
    pub files: u32,
    /// Size of each file in bytes.
    pub file_bytes: u64,
    /// Updates in a group, each in another file.
    pub updates: usize,
    /// Size and place of an update.
    pub size: Size,
    /// Whether it is run on disks too.
    pub on_disk: bool,
}

impl Case {
    /// Mean bytes of user data in a group.
    pub fn group_bytes(&self) -> u64 {
        self.size.mean_bytes() * self.updates as u64
    }

    /// Bytes of all files.
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.files) * self.file_bytes
    }
}

/// One overwrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// Offset in the file.
    pub offset: u64,
    /// Number of the file.
    pub file: u32,
    /// Number of bytes.
    pub len: u32,
    /// Where in [`Payload`] the new bytes are.
    source: u32,
}

impl Update {
    /// An overwrite whose bytes are not those of a [`Payload`].
    pub(crate) fn at(file: u32, offset: u64, len: u32) -> Update {
        Update { offset, file, len, source: 0 }
    }

    /// The next update of a case.
    fn draw(random: &mut Random, case: &Case) -> Update {
        let file = random.below(u64::from(case.files)) as u32;
        let (offset, len) = match case.size {
            Size::Aligned(len) => (random.below(case.file_bytes / u64::from(len)) * u64::from(len), len),
            Size::Uniform(min, max) => {
                let len = min + random.below(u64::from(max - min) + 1) as u32;
                (random.below(case.file_bytes - u64::from(len) + 1), len)
            }
        };
        let source = random.below(u64::from((PAYLOAD_BYTES - len) / 64) + 1) as u32 * 64;
        Update { offset, file, len, source }
    }

    /// The same overwrite in another file.
    pub fn in_file(self, file: u32) -> Update {
        Update { file, ..self }
    }
}

/// The bytes that updates write: random, and in the second-level cache, as data would be that a program just made.
#[derive(Debug)]
pub struct Payload(Vec<u8>);

/// Bytes of a [`Payload`].
const PAYLOAD_BYTES: u32 = 64 << 10;

impl Payload {
    /// The same bytes for the same `seed`.
    pub fn new(seed: u64) -> Payload {
        let mut random = Random(seed);
        Payload((0..PAYLOAD_BYTES / 8).flat_map(|_| random.draw().to_le_bytes()).collect())
    }

    /// The new bytes of `update`.
    #[inline(always)]
    pub fn of(&self, update: &Update) -> &[u8] {
        &self.0[update.source as usize..][..update.len as usize]
    }
}

/// The groups of one turn, in order.
#[derive(Debug)]
pub struct Sequence {
    updates: Vec<Update>,
    per_group: usize,
}

impl Sequence {
    /// At most this many groups are held; longer turns repeat them.
    pub const MAX_GROUPS: usize = 1 << 20;

    /// The first `groups` groups of turn `turn`. For the same seed, case and turn a shorter sequence is a prefix of a
    /// longer one.
    pub fn new(case: &Case, seed: u64, turn: u64, groups: usize) -> Sequence {
        let mut random = Random(seed ^ Random(turn).draw());
        let groups = groups.min(Self::MAX_GROUPS);
        let mut updates = Vec::with_capacity(groups * case.updates);
        for _ in 0..groups {
            let first = updates.len();
            while updates.len() < first + case.updates {
                let update = Update::draw(&mut random, case);
                // Files of a group differ. Few are drawn twice: bounded by there being more files than updates.
                assert!(case.files as usize >= case.updates, "a case needs as many files as updates in a group");
                if updates[first..].iter().all(|other: &Update| other.file != update.file) {
                    updates.push(update);
                }
            }
        }
        Sequence { updates, per_group: case.updates }
    }

    /// The first `count` groups, repeated where the sequence is shorter.
    pub fn groups(&self, count: usize) -> impl Iterator<Item = &[Update]> {
        self.updates.chunks_exact(self.per_group).cycle().take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(size: Size) -> Case {
        Case { suite: "s", name: "c", files: 3, file_bytes: 1 << 16, updates: 2, size, on_disk: false }
    }

    #[test]
    fn updates_lie_inside_their_files_and_files_of_a_group_differ() {
        for size in [Size::Aligned(64), Size::Aligned(4096), Size::Uniform(1024, 16384)] {
            let payload = Payload::new(1);
            let mut seen = (u32::MAX, 0);
            for group in Sequence::new(&case(size), 7, 3, 10_000).groups(10_000) {
                assert_ne!(group[0].file, group[1].file);
                for update in group {
                    assert!(update.file < 3);
                    assert!(update.offset + u64::from(update.len) <= 1 << 16);
                    assert_eq!(payload.of(update).len(), update.len as usize);
                    if let Size::Aligned(unit) = size {
                        assert_eq!(update.offset % u64::from(unit), 0);
                    }
                    seen = (seen.0.min(update.len), seen.1.max(update.len));
                }
            }
            match size {
                Size::Aligned(unit) => assert_eq!(seen, (unit, unit)),
                // 20,000 draws of 15,361 lengths: near both ends, if uniform.
                Size::Uniform(min, max) => assert!(seen.0 < min + 10 && seen.1 > max - 10, "{seen:?}"),
            }
        }
    }

    #[test]
    fn sequences_are_prefixes_of_each_other_and_turns_differ() {
        let case = case(Size::Uniform(1024, 16384));
        let short = Sequence::new(&case, 7, 3, 10);
        let long = Sequence::new(&case, 7, 3, 100);
        assert!(short.groups(10).eq(long.groups(10)));
        assert!(!long.groups(10).eq(Sequence::new(&case, 7, 4, 10).groups(10)));
        assert!(!long.groups(10).eq(Sequence::new(&case, 8, 3, 10).groups(10)));
        assert_eq!(short.groups(25).count(), 25);
    }
}
