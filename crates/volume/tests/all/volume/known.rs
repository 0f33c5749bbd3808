//! What memory knows of maps and leaves agrees with them, whatever has changed them.

use wholly_posix::Tree;
use wholly_vfs::{Errno, Fallocate, Ino, OFlags};
use wholly_volume::VolumeVfs;

use super::place::Place;

const B: usize = 4096;

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Content is what was written, after many looks at a map that does not change, and after each kind of change. What a
/// change frees another file takes at once, so that who still looks there sees other content.
#[test]
fn content_follows_the_map() {
    for place in [Place::pmem(16 << 20), Place::disk(16 << 20)] {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let file = tree.file("file", 0o644, b"").expect("make a file");
        let mut random = Random(7);
        let mut model: Vec<u8> = Vec::new();
        for round in 0..70 {
            let blocks = model.len() / B;
            let (first, count) = (random.below(blocks.max(1)), 1 + random.below(90));
            let end = (first + count).min(blocks);
            let range = first * B..end * B;
            let (at, len) = (range.start as u64, range.len() as u64);
            match round % 7 {
                _ if blocks < 200 => {
                    let new = vec![round as u8 + 1; 300 * B];
                    file.write_all(model.len() as u64, &new).expect("append");
                    model.extend(new);
                }
                0 => {
                    file.allocate(Fallocate::Punch, at, len).expect("punch");
                    model[range].fill(0);
                }
                1 if end < blocks => {
                    file.allocate(Fallocate::Collapse, at, len).expect("collapse");
                    model.drain(range);
                }
                2 => {
                    file.allocate(Fallocate::Insert, at, len).expect("insert");
                    model.splice(range.start..range.start, vec![0; range.len()]);
                }
                3 => {
                    file.truncate(at).expect("cut");
                    file.truncate(model.len() as u64).expect("lengthen");
                    model[range.start..].fill(0);
                }
                4 => {
                    file.allocate(Fallocate::ZeroExtend, at, len).expect("zero");
                    model[range].fill(0);
                }
                5 => {
                    let new = vec![round as u8 + 100; range.len()];
                    file.write_all(at, &new).expect("write");
                    model[range].copy_from_slice(&new);
                }
                _ => {}
            }
            let other = tree.open_with("other", OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC, 0o600);
            other.and_then(|other| other.write_all(0, &vec![0xee; 100 * B])).expect("take what is free");
            for look in 0..400 {
                let at = random.below(model.len() - 3 * B);
                let len = 1 + random.below(3 * B);
                if look % 5 == 0 {
                    let new = vec![look as u8; len];
                    file.write_all(at as u64, &new).expect("overwrite");
                    model[at..at + len].copy_from_slice(&new);
                } else {
                    let read = file.read(at as u64, len).expect("read");
                    assert!(read == model[at..at + len], "round {round}: {len} bytes at {at}");
                }
            }
            assert!(tree.content("file").expect("read") == model, "round {round}");
        }
        drop(file);
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
    }
}

/// Names that are made, moved and removed at random, of all lengths: each is found, or is not, as it should be, also by
/// a volume that knows nothing yet.
#[test]
fn names_follow_the_leaves() {
    let place = Place::pmem(16 << 20);
    let mut random = Random(3);
    let mut model = std::collections::BTreeMap::new();
    let name = |i: usize| format!("{i}-{}", "n".repeat(i * 37 % 240));
    for round in 0..6 {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        for step in 0..3000 {
            // More in some rounds, fewer in others.
            let (i, to) = (random.below(2500), random.below(2500));
            let fills = random.below(4) > round % 3;
            let is_there = model.contains_key(&i);
            match random.below(5) {
                0 if is_there && i != to => {
                    tree.rename(name(i), name(to)).expect("rename");
                    let size = model.remove(&i).expect("it is there");
                    model.insert(to, size);
                }
                1 | 2 if fills => {
                    let made = tree.open_with(name(i), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o600);
                    assert_eq!(made.as_ref().err(), is_there.then_some(&Errno::EXIST), "step {step}");
                    if let Ok(made) = made {
                        made.truncate(step).expect("give it a size");
                        model.insert(i, step);
                    }
                }
                1..=3 if is_there => {
                    tree.unlink(name(i)).expect("remove");
                    model.remove(&i);
                }
                _ => {
                    let found = tree.stat(name(i)).map(|found| found.size);
                    assert_eq!(found, model.get(&i).copied().ok_or(Errno::NOENT), "step {step}");
                }
            }
        }
        assert_eq!(tree.names("/").expect("list").len(), model.len());
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
    }
    assert!(model.len() > 100, "only {} names", model.len());
}
