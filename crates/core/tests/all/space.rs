//! Holes, zeros and reserved space: what they cost, and how home has them.

use std::sync::Arc;

use crate::common::small;
use rustix::io::Errno;
use wholly::{Error, Fallocate, File, Store, site};
use wholly_host::HostFile;
use wholly_media::Site;
use wholly_sim::{EventKind, Mutation, MutationKind, SimConfig, World};

const BLOCK: u64 = 4096;

struct Rig {
    world: Arc<World>,
    store: Store,
    file: File,
}

impl Rig {
    /// A store with a file `a`.
    fn new(config: SimConfig, content: &[u8]) -> Rig {
        let world = World::new(SimConfig { log_len: 0, ..config });
        world.add_file("a", content);
        Store::format_on(&*world.log(), &small(), [7; 16]).unwrap();
        Self::open(world)
    }

    fn open(world: Arc<World>) -> Rig {
        let store = Store::open_on(world.log(), world.host(), small(), None).unwrap();
        assert!(store.recovery().conflicts.is_empty());
        let file = store.open_file("a").unwrap();
        Rig { world, store, file }
    }

    /// The process dies, and another one opens the store.
    fn reopened(self) -> Rig {
        let Rig { world, store, file } = self;
        drop((store, file));
        Self::open(world)
    }

    fn home(&self) -> Arc<dyn HostFile> {
        self.world.host().open(b"a", false).unwrap()
    }

    /// Blocks that the file has at home.
    fn blocks(&self) -> u64 {
        self.home().stat().unwrap().allocated / BLOCK
    }

    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; length];
        let read = self.file.read_at(offset, &mut bytes).unwrap();
        bytes.truncate(read);
        bytes
    }

    /// How many calls so far were made at a site.
    fn calls_at(&self, wanted: Site) -> usize {
        let calls = self.world.trace().events;
        calls.iter().filter(|event| event.site == Some(wanted) && !matches!(event.kind, EventKind::Done { .. })).count()
    }
}

fn media() -> [SimConfig; 2] {
    [SimConfig::pmem(), SimConfig::disk()]
}

/// A hole of a terabyte is one small record, one entry in memory and one call at home; besides, it costs a version for
/// each block of it that has one.
#[test]
fn a_hole_costs_what_is_there_and_not_what_is_not() {
    const TERABYTE: u64 = 1 << 40;
    for config in media() {
        let rig = Rig::new(config, &[1; 20_000]);
        rig.file.set_len(TERABYTE).unwrap();
        rig.store.checkpoint().unwrap();
        for (written, block) in [0u64, 9, 1 << 20, (TERABYTE / BLOCK) - 1].into_iter().enumerate() {
            rig.file.write_at(block * BLOCK, &[2; 4096]).unwrap();
            assert_eq!(rig.store.stat().pending_blocks, written as u64 + 1);
        }
        let before = rig.store.stat();
        rig.file.fallocate(Fallocate::Punch, 0, TERABYTE).unwrap();
        let after = rig.store.stat();
        // On a disk a record is whole blocks.
        let record = after.log_bytes_written - before.log_bytes_written;
        assert!(record <= 4096, "{record} bytes of log");
        assert_eq!(after.index_bytes, before.index_bytes, "no more memory");
        // And one for the size.
        assert_eq!(after.pending_blocks, before.pending_blocks + 1);
        for offset in [0, 9 * BLOCK, 9 << 20, TERABYTE - 100] {
            assert_eq!(rig.read(offset, 100), [0; 100]);
        }
        let calls = rig.calls_at(site::CHECKPOINT_PUNCH);
        rig.store.checkpoint().unwrap();
        assert_eq!(rig.store.stat().home_bytes_written, after.home_bytes_written, "no bytes go home");
        // The simulator records one event for each block that has bytes, and one for the call.
        assert_eq!(rig.calls_at(site::CHECKPOINT_PUNCH) - calls, 5 + 1);
        assert_eq!((rig.blocks(), rig.home().stat().unwrap().size), (0, TERABYTE));
    }
}

/// Holes that touch each other are one.
#[test]
fn holes_grow_together() {
    for config in media() {
        let rig = Rig::new(config, &[]);
        rig.file.set_len(1 << 30).unwrap();
        rig.store.checkpoint().unwrap();
        for hole in 0..200 {
            rig.file.fallocate(Fallocate::Punch, hole * 2 * BLOCK, 2 * BLOCK).unwrap();
        }
        let versions = rig.store.stat().versions;
        rig.store.checkpoint().unwrap();
        assert_eq!(rig.calls_at(site::CHECKPOINT_PUNCH), 1);
        assert_eq!(rig.store.stat().versions, versions);
    }
}

/// Bytes that a group writes, a hole over all of them but a few, and bytes in the hole.
#[test]
fn what_is_over_and_below_a_hole_in_one_group() {
    for config in media() {
        for home_first in [false, true] {
            let rig = Rig::new(config.clone(), &[1; 30_000]);
            let mut group = rig.store.begin();
            group.write_at(&rig.file, 5000, &[2; 10_000]).unwrap();
            group.fallocate(&rig.file, Fallocate::Punch, 5100, 20_000).unwrap();
            group.write_at(&rig.file, 9000, &[3; 10]).unwrap();
            let mut expected = [vec![1; 5000], vec![2; 100], vec![0; 20_000], vec![1; 4900]].concat();
            expected[9000..9010].fill(3);
            let mut seen = vec![0; 30_000];
            assert_eq!(group.read_at(&rig.file, 0, &mut seen).unwrap(), 30_000);
            assert!(seen == expected, "in the group");
            assert!(rig.read(0, 40_000) == vec![1; 30_000], "nobody else sees it");
            group.commit().unwrap();
            assert!(rig.read(0, 40_000) == expected, "committed");
            if home_first {
                rig.store.checkpoint().unwrap();
                // Blocks 3, 4 and 5 are holes; 2 has the ten bytes.
                assert_eq!(rig.blocks(), 5);
            }
            let rig = rig.reopened();
            assert!(rig.read(0, 40_000) == expected, "after a death");
            rig.store.close().unwrap();
        }
    }
}

/// What one pass leaves to the next: a hole of a group that commits after the pass has begun is not made by it, nor
/// forgotten.
#[test]
fn what_was_reserved_is_there_after_a_death() {
    for config in media() {
        let rig = Rig::new(config, &[1; 100]);
        rig.file.fallocate(Fallocate::Keep, 0, 10 * BLOCK).unwrap();
        rig.file.fallocate(Fallocate::Punch, 2 * BLOCK, 20 * BLOCK).unwrap();
        rig.file.fallocate(Fallocate::Extend, 30 * BLOCK, 2 * BLOCK).unwrap();
        // Behind the end of the file nothing is to be punched, and space stays reserved there.
        let rig = rig.reopened();
        assert_eq!(rig.file.len(), 32 * BLOCK);
        rig.store.checkpoint().unwrap();
        assert_eq!(rig.blocks(), 10 + 2);
        // Where the file is not cut, nothing of it goes.
        rig.file.fallocate(Fallocate::Zero, 0, 5 * BLOCK).unwrap();
        rig.store.checkpoint().unwrap();
        assert_eq!((rig.blocks(), rig.read(0, 100)), (10 + 2, vec![0; 100]));
        rig.file.fallocate(Fallocate::Keep, 40 * BLOCK, 8 * BLOCK).unwrap();
        rig.file.set_len(BLOCK).unwrap();
        rig.store.checkpoint().unwrap();
        assert_eq!(rig.blocks(), 1);
    }
}

/// What nobody wrote is a hole at home.
#[test]
fn gaps_stay_holes() {
    for config in media() {
        let rig = Rig::new(config, &[]);
        rig.file.set_len(1 << 30).unwrap();
        rig.file.write_at((1 << 28) + 5, &[1; 10]).unwrap();
        let mut group = rig.store.begin();
        let other = group.create("b", 0o644).unwrap();
        group.write_at(&other, 1 << 30, &[1]).unwrap();
        group.commit().unwrap();
        rig.store.checkpoint().unwrap();
        assert_eq!(rig.blocks(), 1);
        assert_eq!(rig.world.host().stat(b"b").unwrap().allocated, BLOCK);
    }
}

/// A file system without holes: zeros are written, where it has bytes; space is reserved, or is not.
#[test]
fn where_the_host_has_no_holes_zeros_are_written() {
    for config in media() {
        let fails = |site| Mutation::new(site, MutationKind::Fail(Errno::OPNOTSUPP));
        let mutations = [site::CHECKPOINT_PUNCH, site::CHECKPOINT_RESERVE].map(fails).to_vec();
        let rig = Rig::new(SimConfig { mutations, ..config }, &[1; 50_000]);
        rig.file.set_len(1 << 30).unwrap();
        rig.file.fallocate(Fallocate::Punch, 100, 1 << 29).unwrap();
        rig.file.fallocate(Fallocate::ZeroExtend, 1 << 29, 1 << 30).unwrap();
        rig.file.fallocate(Fallocate::Keep, 0, 1 << 20).unwrap();
        let expected = [vec![1; 100], vec![0; 60_000]].concat();
        assert!(rig.read(0, 60_100) == expected);
        rig.store.checkpoint().unwrap();
        assert!(rig.read(0, 60_100) == expected);
        assert_eq!((rig.blocks(), rig.file.len()), (50_000u64.div_ceil(BLOCK), (1 << 29) + (1 << 30)));
    }
}

#[test]
fn calls_that_make_no_sense_are_refused() {
    let rig = Rig::new(SimConfig::disk(), &[1; 100]);
    for (offset, length, errno) in [
        (0, 0, Errno::INVAL),
        (1 << 63, 1, Errno::INVAL),
        (1, 1 << 63, Errno::INVAL),
        (1 << 52, 1, Errno::FBIG),
        ((1 << 63) - 1, (1 << 63) - 1, Errno::FBIG),
    ] {
        for how in [Fallocate::Punch, Fallocate::Zero, Fallocate::Extend] {
            let mut group = rig.store.begin();
            let refused = group.fallocate(&rig.file, how, offset, length).unwrap_err();
            assert_eq!(refused.errno(), errno.raw_os_error(), "{how:?} {offset} {length}");
            // The group goes on.
            group.write_at(&rig.file, 0, b"1").unwrap();
            group.abort();
            assert_eq!(rig.file.fallocate(how, offset, length).unwrap_err().errno(), errno.raw_os_error());
        }
    }
    // The simulated host has four tebibytes.
    assert!(matches!(rig.file.fallocate(Fallocate::Keep, 0, 5 << 40), Err(Error::NoSpace(_))));
    let group_has_it = rig.store.begin().fallocate(&rig.file, Fallocate::Punch, 0, 10);
    assert!(group_has_it.is_ok());
    let mut one = rig.store.begin();
    one.fallocate(&rig.file, Fallocate::Keep, 0, 10).unwrap();
    assert!(matches!(rig.file.fallocate(Fallocate::Punch, 0, 1), Err(Error::Busy(..))));
    one.abort();
    rig.store.checkpoint().unwrap();
    assert_eq!((rig.file.len(), rig.read(0, 200)), (100, vec![1; 100]));
}
