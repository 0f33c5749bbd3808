//! Repair where it is tempted: stale pointers that are valid, blocks of several owners, sectors that cannot be read,
//! copies of another volume, full volumes, and images that somebody has made on purpose.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use wholly_error::Error;
use wholly_media::disk::DiskRegion;
use wholly_media::{PersistenceDomain, Region, Site};
use wholly_posix::Tree;
use wholly_sim::{Image, Medium, Mutation, MutationKind, PmemMode, SimConfig, World};
use wholly_vfs::Ino;
use wholly_volume::format::dir::{self, Head};
use wholly_volume::format::inode::{INODE_FILE, LINE, Line, More, Owned, PER_BLOCK};
use wholly_volume::format::pointer::{self, Pointer};
use wholly_volume::format::repair::{Move, Table, copy_sum};
use wholly_volume::format::superblock::{Later, Superblock};
use wholly_volume::format::{Lba, Seed, Stream};
use wholly_volume::{EngineKind, Object, Progress, Repair, Volume, VolumeVfs};

use super::place::{Place, is_long};
use super::repair::{Filled, Snapshot, is_sound, options, put, record, repair, seed};

const BYTES: u64 = 2 << 20;
const BLOCK: usize = 4096;
const TEST: Site = Site("test");

/// A volume with what `fill` makes, unmounted.
fn filled(engine: EngineKind, fill: impl FnOnce(&Tree<'_>)) -> Place {
    let place = Place::of_zeros(BYTES, engine);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    fill(&Tree::new(&vfs, Ino::ROOT));
    drop(vfs);
    volume.close().expect("close it");
    place
}

fn bytes_of(region: &dyn Region) -> Vec<u8> {
    let mut image = vec![0; region.len() as usize];
    region.read(0, &mut image).expect("read");
    image
}

fn superblock(place: &Place) -> Superblock {
    let copies = Volume::dump_region(&*place.region, None).expect("dump it").superblocks;
    let all = copies.into_iter().filter_map(|copy| copy.decoded.ok());
    all.max_by_key(|superblock| superblock.generation).expect("a superblock")
}

/// Lets the first block of a file of one block be another one.
fn point(place: &Place, path: &str, to: u64) -> u64 {
    let (ino, at, mut owned, _) = record(place, path);
    let stream = seed(place).stream(ino, owned.generation, Stream::Data);
    owned.tree.root = pointer::encode(stream, 0, 0, Pointer::to(Lba(to)));
    put(place, at, ino, &owned);
    ino
}

fn repaired(place: &Place, what: &str) -> Snapshot {
    let repaired = repair(&place.region, Repair::All).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(repaired.left, [], "{what}");
    assert!(is_sound(&place.check()), "{what}: {:?}", place.check());
    Snapshot::of(&place.region)
}

/// One copy of the superblock is another volume's, and newer than all: the two others count.
#[test]
fn a_superblock_of_another_volume_is_outvoted() {
    let filled = Filled::new(EngineKind::None);
    let own = superblock(&filled.place);
    let last = own.blocks - 1;
    for (at, blocks) in [0, 1, last].into_iter().flat_map(|at| [own.blocks, 64, 4096].map(|blocks| (at, blocks))) {
        let what = format!("block {at} from a volume of {blocks} blocks");
        let other = Superblock { volume_id: [9; 16], blocks, generation: own.generation + 100, ..own.clone() };
        let damage = || {
            filled.place.region.write(TEST, 0, &filled.image).expect("restore it");
            filled.place.region.write(TEST, at * BLOCK as u64, &other.encode(Lba(at))).expect("damage it");
        };
        damage();
        let found = filled.place.check();
        assert_eq!((found.findings.len(), found.lost_copies.len()), (1, 0), "{what}: {found:?}");
        assert_eq!(Snapshot::of(&filled.place.region), filled.before, "{what}: mounted");
        assert!(is_sound(&filled.place.check()), "{what}: after a mount");
        damage();
        let how = (Repair::Safe, false);
        let safe = Volume::repair_region(&filled.place.region, &options(), how, &mut |_| ControlFlow::Continue(()));
        assert_eq!(safe.expect("repair it").done.len(), 1, "{what}");
        assert_eq!(Snapshot::of(&filled.place.region), filled.before, "{what}: with -p");
        damage();
        assert_eq!(repaired(&filled.place, &what), filled.before, "{what}: with -y");
    }
    // Nothing says which volume it is.
    filled.place.region.write(TEST, 0, &filled.image).expect("restore it");
    let other = Superblock { volume_id: [9; 16], generation: own.generation + 100, ..own };
    filled.place.region.write(TEST, 0, &other.encode(Lba(0))).expect("damage it");
    filled.place.region.write(TEST, BLOCK as u64, &[0; BLOCK]).expect("damage it");
    let before = bytes_of(&*filled.place.region);
    let refused = repair(&filled.place.region, Repair::All);
    assert!(matches!(&refused, Err(Error::Corrupt { .. })) || refused.is_ok_and(|it| !it.left.is_empty()));
    assert!(bytes_of(&*filled.place.region) == before, "nothing is written");
}

/// A stale pointer of a file, valid still, leads to each structure of others in turn: they lose nothing, and the file
/// does not have their bytes.
#[test]
fn a_stale_pointer_of_a_file_takes_nothing_from_a_structure() {
    let place = filled(EngineKind::None, |tree| {
        tree.file("stale", 0o644, &[1; BLOCK]).expect("make a file");
        tree.mkdir("dir", 0o700).expect("make a directory");
        for i in 0..100 {
            tree.file(format!("dir/{i}"), 0o600, b"").expect("make a file");
        }
        let sparse = tree.file("sparse", 0o600, &[7; 100]).expect("make a file");
        sparse.write(600 * BLOCK as u64, &[8; 100]).expect("write");
        tree.symlink("long", "x/".repeat(500)).expect("make a link");
        tree.set_xattr("sparse", "user.secret", &[5; 3000]).expect("set an attribute");
    });
    let (before, image) = (Snapshot::of(&place.region), bytes_of(&*place.region));
    let (stale, _, _, own) = record(&place, "stale");
    let mut structures: BTreeSet<u64> = BTreeSet::new();
    for path in ["dir", "sparse", "long"] {
        let inode = Volume::dump_region(&*place.region, Some(Object::Path(path.as_bytes()))).expect("dump it").inode;
        let inode = inode.expect("an inode");
        structures.extend(inode.content.nodes.iter().map(|node| node.block));
        structures.extend(inode.xattr_map.extents.iter().map(|extent| extent.block));
        if path != "sparse" {
            structures.extend(inode.content.extents.iter().flat_map(|it| it.block..it.block + it.count));
        }
    }
    let inodes = Volume::dump_region(&*place.region, Some(Object::Inode(INODE_FILE))).expect("dump it").inode;
    structures.extend(inodes.expect("the inode file").content.extents.iter().map(|extent| extent.block));
    assert!(structures.len() >= 7, "{structures:?}");
    for block in structures {
        place.region.write(TEST, 0, &image).expect("restore it");
        point(&place, "stale", block);
        let what = format!("block {block} and not {own:?}");
        let after = repaired(&place, &what);
        before.expect_rest(&after, &[stale].into(), &what);
        assert_eq!(after.inodes[&stale].content, [0; BLOCK], "{what}");
    }
}

/// Content of a file that two users' files have: neither gets the other's bytes.
#[test]
fn a_block_of_two_users_is_nobodys() {
    for (owner, mode, shared) in [(1000, 0o644, false), (0, 0o600, false), (0, 0o644, true)] {
        let place = filled(EngineKind::None, |tree| {
            // The stale one is first, and shorter: its tail is not its own either.
            tree.file("stale", 0o644, &[1; 100]).expect("make a file");
            tree.file("owner", 0o644, &[2; BLOCK]).expect("make a file");
            tree.chmod("owner", mode).expect("change the mode");
            tree.chown("owner", Some(owner), Some(owner)).expect("change the owner");
            tree.file("bystander", 0o644, &[3; BLOCK]).expect("make a file");
        });
        let what = format!("user {owner}, mode {mode:o}");
        let secret = record(&place, "owner").3[0];
        point(&place, "stale", secret);
        let after = repaired(&place, &what);
        let content = |path: &str| after.inodes[&after.paths[path]].content.clone();
        match shared {
            true => assert_eq!((content("/stale"), content("/owner")), (vec![2; 100], vec![2; BLOCK]), "{what}"),
            false => assert_eq!((content("/stale"), content("/owner")), (vec![0; 100], vec![0; BLOCK]), "{what}"),
        }
        assert_eq!(content("/bystander"), [3; BLOCK]);
        // What is beyond the end of a file is zeros, when it grows.
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.truncate("stale", BLOCK as u64).expect("make it longer");
        let longer = tree.content("stale").expect("read");
        assert_eq!(longer[100..], [0; BLOCK - 100], "{what}");
    }
}

/// A program whose content may be another's has no rights but its user's.
#[test]
fn a_program_with_doubtful_content_is_not_trusted() {
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let place = filled(EngineKind::None, |tree| {
        for (name, content) in [("program", [1; BLOCK]), ("other", [2; BLOCK]), ("sound", [3; BLOCK])] {
            tree.file(name, 0o755, &content).expect("make a file");
            tree.set_xattr(name, "user.kept", b"value").expect("set an attribute");
            tree.set_xattr(name, "security.capability", &capability).expect("set a capability");
            tree.chmod(name, 0o6755).expect("set its bits");
        }
    });
    let other = record(&place, "other").3[0];
    point(&place, "program", other);
    let after = repaired(&place, "a program");
    let seen = |path: &str| &after.inodes[&after.paths[path]];
    for path in ["/program", "/other"] {
        assert_eq!(seen(path).mode & 0o7777, 0o755, "{path}");
        assert_eq!(seen(path).xattrs.keys().collect::<Vec<_>>(), ["user.kept"], "{path}");
    }
    assert_eq!((seen("/sound").mode & 0o7777, seen("/sound").xattrs.len()), (0o6755, 2));
}

fn world(image: &[u8]) -> Image {
    let world = World::new(sim());
    world.log().write(TEST, 0, image).expect("write");
    world.log().fence(TEST).expect("fence");
    world.latest()
}

fn sim() -> Arc<SimConfig> {
    Arc::new(SimConfig {
        log: Medium::Pmem { domain: PersistenceDomain::MemoryController, mode: PmemMode::Adversarial },
        log_len: BYTES,
        ..SimConfig::pmem()
    })
}

/// One block of the medium cannot be read: what it had is lost, and nothing else.
#[test]
fn a_block_that_cannot_be_read_is_damage_of_that_block() {
    let filled = Filled::new(EngineKind::None);
    let image = world(&filled.image);
    let last = BYTES / BLOCK as u64 - 1;
    let every = if is_long() { 1 } else { 3 };
    let structures = filled.structures().into_iter().step_by(every).chain([0, 1, last]);
    for block in structures {
        let mut damaged = image.clone();
        let at = block * BLOCK as u64;
        damaged.fail_reads(&wholly_sim::Place::Log, at + 512..at + 1024);
        let what = format!("block {block}");
        let world = World::from_image(&damaged, sim());
        let found = Volume::check_region(&*world.log()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let is_copy = [0, 1, last].contains(&block);
        if is_copy {
            assert_eq!((found.findings.len(), found.lost_copies.len()), (0, 1), "{what}: {found:?}");
            let opened = World::from_image(&damaged, sim());
            assert_eq!(Snapshot::of(&opened.log()), filled.before, "{what}: mounted");
            assert!(is_sound(&Volume::check_region(&*opened.log()).expect("check it")), "{what}: after a mount");
        }
        let repaired = repair(&world.log(), Repair::All).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(repaired.left, [], "{what}");
        let checked = Volume::check_region(&*world.log()).expect("check it");
        assert!(is_sound(&checked), "{what}: {checked:?}");
        let hit = filled.uses.get(&block).map(|it| it.hit_all()).unwrap_or_default();
        filled.before.expect_rest(&Snapshot::of(&world.log()), &hit, &what);
        if !found.findings.is_empty() || is_copy {
            world.log().read(at, &mut [0; BLOCK]).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

/// Fills a volume to the blocks that are kept.
fn fill(tree: &Tree<'_>) {
    let all = tree.file("all", 0o644, b"").expect("make a file");
    let mut at = 0;
    for part in [BLOCK, 1] {
        while all.write(at, &vec![3; part]).is_ok_and(|written| written == part) {
            at += part as u64;
        }
    }
}

/// There is no space for what an ordinary call would take: a lost name is found again all the same, and of doubles that
/// are more than there are free blocks the rest is given up.
#[test]
fn a_full_volume_is_repaired_as_far_as_it_can_be() {
    let place = filled(EngineKind::None, |tree| {
        for i in 0..40 {
            tree.file(format!("{i}"), 0o644, &[i as u8; BLOCK]).expect("make a file");
        }
        tree.mkdir("dir", 0o755).expect("make a directory");
        tree.file("dir/in it", 0o644, &[9; 100]).expect("make a file");
        fill(tree);
    });
    let before = Snapshot::of(&place.region);
    let shared = record(&place, "0").3[0];
    let doubles: BTreeSet<u64> = (1..40).map(|i| point(&place, &format!("{i}"), shared)).collect();
    let root = Volume::dump_region(&*place.region, Some(Object::Inode(1))).expect("dump it").inode.expect("the root");
    let entry = root.entries.iter().find(|entry| entry.name == b"dir").expect("a name");
    place.region.write(TEST, entry.block * 4096 + entry.slot as u64 * 64, &[0; 8]).expect("damage it");
    let after = repaired(&place, "a full volume");
    assert_eq!(place.region.len(), BYTES);
    let hit: BTreeSet<u64> = doubles.into_iter().chain([1, entry.ino, before.paths["/0"]]).collect();
    before.expect_rest(&after, &hit, "a full volume");
    assert!(after.paths.contains_key(&format!("/lost+found/#{}/in it", entry.ino)), "{:?}", after.paths.keys());
}

/// A block of the inode file beyond its end: no mount gives these inodes out.
#[test]
fn a_block_of_inodes_beyond_the_end_is_seen() {
    let place = filled(EngineKind::None, |tree| drop(tree.file("file", 0o644, &[1; 100]).expect("make a file")));
    let before = Snapshot::of(&place.region);
    let mut own = superblock(&place);
    let dumped = Volume::dump_region(&*place.region, Some(Object::Inode(INODE_FILE))).expect("dump it");
    let content = dumped.inode.expect("the inode file").content;
    let blocks: Vec<u64> = content.extents.iter().flat_map(|it| it.block..it.block + it.count).collect();
    assert_eq!(blocks.len() as u64 * PER_BLOCK, own.inodes);
    let stream = seed(&place).stream(INODE_FILE, 0, Stream::Data);
    let node = content.nodes[0].block * BLOCK as u64;
    let (last, beyond) = (blocks.len() as u64 - 1, 300);
    let word = pointer::encode(stream, 0, beyond, Pointer::to(Lba(blocks[last as usize])));
    place.region.write(TEST, node + last * 8, &[0; 8]).expect("damage it");
    place.region.write(TEST, node + beyond * 8, &word.to_le_bytes()).expect("damage it");
    (own.is_clean, own.saved) = (false, None);
    for at in [0, 1, own.blocks - 1] {
        place.region.write(TEST, at * BLOCK as u64, &own.encode(Lba(at))).expect("damage it");
    }
    assert!(!place.check().findings.is_empty());
    assert!(matches!(place.try_open(), Err(Error::Corrupt { .. })));
    let after = repaired(&place, "blocks beyond the end");
    before.expect_rest(&after, &BTreeSet::new(), "blocks beyond the end");
}

/// Tables of an unfinished repair that somebody has made: no block is named twice.
#[test]
fn tables_that_name_a_block_twice_are_refused() {
    let place = filled(EngineKind::None, |tree| drop(tree.file("file", 0o644, &[1; 100]).expect("make a file")));
    let before = Snapshot::of(&place.region);
    let own = superblock(&place);
    let volume = Seed::of(&own.volume_id);
    let (table_at, copy, home) = (Lba(400), Lba(401), Lba(402));
    let sum = copy_sum(volume, copy, &[5; BLOCK]);
    let image = bytes_of(&*place.region);
    let one = Move { home, copy, sum };
    for (what, moves) in [
        ("a copy", vec![one, Move { home: Lba(403), ..one }]),
        ("a home", vec![one, one]),
        ("a superblock", vec![Move { home: Lba(own.blocks - 1), ..one }]),
        ("its table", vec![Move { home: table_at, ..one }]),
    ] {
        place.region.write(TEST, 0, &image).expect("restore it");
        let (table, check) = Table { next: None, moves }.encode(volume, table_at);
        place.region.write(TEST, table_at.byte(), &table).expect("write a table");
        place.region.write(TEST, copy.byte(), &[5; BLOCK]).expect("write a copy");
        let unfinished = Superblock { repair: Some((table_at, check)), is_clean: false, saved: None, ..own.clone() };
        for at in [0, 1, own.blocks - 1] {
            place.region.write(TEST, at * BLOCK as u64, &unfinished.encode(Lba(at))).expect("damage it");
        }
        let findings = place.check().findings;
        assert!(findings.iter().any(|it| it.place == "an unfinished repair"), "{what}: {findings:?}");
        assert!(matches!(place.try_open(), Err(Error::Corrupt { .. })), "{what}");
        assert_eq!(repaired(&place, what), before, "{what}");
    }
}

/// The slots of a stale entry have another one by now: that stays.
#[test]
fn a_stale_entry_takes_no_other_with_it() {
    let place = filled(EngineKind::None, |tree| {
        tree.mkdir("dir", 0o755).expect("make a directory");
        tree.file(format!("dir/{}", "long".repeat(25)), 0o644, b"").expect("make a file");
        tree.file("dir/b", 0o644, b"sound").expect("make a file");
    });
    let dir = Volume::dump_region(&*place.region, Some(Object::Path(b"dir"))).expect("dump it").inode.expect("it");
    let slot = |name: &[u8]| dir.entries.iter().find(|it| it.name.starts_with(name)).expect("a name");
    let (long, sound) = (slot(b"long"), slot(b"b"));
    let at = |slot: usize| long.block * BLOCK as u64 + slot as u64 * 64;
    let mut raw = [0; 64];
    place.region.read(at(sound.slot), &mut raw).expect("read");
    place.region.write(TEST, at(sound.slot), &[0; 64]).expect("move it");
    place.region.write(TEST, at(long.slot + 2), &raw).expect("move it");
    let after = repaired(&place, "a stale entry");
    assert_eq!(after.paths.get("/dir/b"), Some(&sound.ino), "{:?}", after.paths);
    assert!(after.paths.contains_key(&format!("/lost+found/#{}", long.ino)), "{:?}", after.paths);
}

/// A directory `lost+found` of somebody else is not used, nor one that others can enter.
#[test]
fn what_is_found_is_not_shown_to_others() {
    for (owner, mode) in [(1000, 0o700), (0, 0o755)] {
        let place = filled(EngineKind::None, |tree| {
            tree.mkdir("lost+found", mode).expect("make a directory");
            tree.chown("lost+found", Some(owner), None).expect("change its owner");
            tree.file("secret", 0o644, &[1; 100]).expect("make a file");
        });
        let root = Volume::dump_region(&*place.region, Some(Object::Inode(1))).expect("dump it").inode;
        let entry = root.expect("the root").entries.into_iter().find(|entry| entry.name == b"secret").expect("a name");
        place.region.write(TEST, entry.block * 4096 + entry.slot as u64 * 64, &[0; 8]).expect("damage it");
        let after = repaired(&place, "a lost name");
        assert_eq!(after.paths.get(&format!("/lost+found-1/#{}", entry.ino)), Some(&entry.ino), "{:?}", after.paths);
    }
}

/// A directory that is removed, by its link count, and has a name: the names in it stay.
#[test]
fn a_directory_with_a_wrong_count_keeps_its_names() {
    let place = filled(EngineKind::None, |tree| {
        tree.mkdir("dir", 0o755).expect("make a directory");
        tree.file("dir/in it", 0o644, &[1; 100]).expect("make a file");
    });
    let before = Snapshot::of(&place.region);
    let (ino, at, owned, _) = record(&place, "dir");
    put(&place, at, ino, &Owned { links: 0, ..owned });
    assert_eq!(repaired(&place, "a wrong count"), before);
}

/// The image of a volume whose engine needs persistent memory, on a disk: it is repaired there.
#[test]
fn a_repair_needs_no_medium_for_the_engine() {
    let place = filled(EngineKind::FineGrainedWal, |tree| {
        tree.file("hit", 0o644, &[1; 100]).expect("make a file");
        tree.file("other", 0o644, &[2; 100]).expect("make a file");
    });
    let (_, at, ..) = record(&place, "hit");
    let mut image = bytes_of(&*place.region);
    image[at as usize + 5] ^= 0x55;
    let file = rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, BYTES).expect("its length");
    let disk: Arc<dyn Region> = Arc::new(DiskRegion::open(file, "disk").expect("a region"));
    disk.write(TEST, 0, &image).expect("write");
    let done = repair(&disk, Repair::All).expect("repair it");
    assert!(done.left.is_empty() && !done.done.is_empty(), "{done:?}");
    assert!(is_sound(&Volume::check_region(&*disk).expect("check it")));
    place.region.write(TEST, 0, &bytes_of(&*disk)).expect("copy it back");
    let after = Snapshot::of(&place.region);
    assert_eq!(after.paths.keys().collect::<Vec<_>>(), ["", "/other"]);
}

/// Whenever somebody ends a repair: nothing has changed, or it is told what was done.
#[test]
fn a_repair_that_is_ended_tells_what_it_has_done() {
    let place = filled(EngineKind::None, |tree| {
        for i in 0..5 {
            tree.file(format!("{i}"), 0o644, &[i; 100]).expect("make a file");
        }
    });
    let (_, at, ..) = record(&place, "3");
    place.region.write(TEST, at + 5, &[0x55]).expect("damage it");
    let image = bytes_of(&*place.region);
    let (mut ended, mut told) = (0, 0);
    for most in 0.. {
        place.region.write(TEST, 0, &image).expect("restore it");
        let mut calls = 0;
        let done = Volume::repair_region(&place.region, &options(), (Repair::All, true), &mut |_| {
            calls += 1;
            if calls > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match done {
            Err(error) => {
                assert!(matches!(error, Error::Refused(_, rustix::io::Errno::INTR)), "{error}");
                // The log was made void before: that is no repair.
                let checked = place.check();
                assert!(
                    checked.findings.iter().any(|it| it.fault.contains("line 0")),
                    "after {most} looks: {checked:?}"
                );
                ended += 1;
            }
            Ok(done) => {
                assert!(!done.done.is_empty() && is_sound(&place.check()), "after {most} looks: {done:?}");
                told += 1;
            }
        }
        if calls <= most {
            break;
        }
    }
    assert!(ended > 3 && told > 1, "{ended} {told}");
}

/// Whoever wants to end a check is heard inside of a large map, of a large directory, and while names are counted.
#[test]
fn a_check_can_be_ended_in_what_takes_long() {
    let place = Place::of_zeros(24 << 20, EngineKind::None);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let large = tree.file("large", 0o644, b"").expect("make a file");
    large.allocate(wholly_vfs::Fallocate::Extend, 0, 2500 * BLOCK as u64).expect("make a map");
    tree.mkdir("dir", 0o755).expect("make a directory");
    let names = "n".repeat(240);
    for i in 0..15_000 {
        tree.link("large", format!("dir/{i}-{names}")).expect("make a name");
    }
    for i in 0..2500 {
        tree.mkdir(format!("dir/{i}"), 0o755).expect("make a directory");
    }
    drop((large, tree));
    drop(vfs);
    volume.close().expect("close it");
    let check = |watch: &mut dyn FnMut(Progress) -> ControlFlow<()>| {
        Volume::repair_region(&place.region, &options(), (Repair::Safe, true), watch)
    };
    let mut looks: Vec<Progress> = Vec::new();
    let checked = check(&mut |progress| {
        looks.push(progress);
        ControlFlow::Continue(())
    });
    assert_eq!(checked.expect("check it").left, []);
    for pass in [1, 2, 3] {
        // Nothing was done with since the last look.
        let within = (1..looks.len()).find(|i| looks[*i].pass == pass && looks[*i] == looks[*i - 1]);
        let within = within.unwrap_or_else(|| panic!("nobody looked within pass {pass}"));
        let mut count = 0;
        let ended = check(&mut |_| {
            count += 1;
            if count > within { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let ended = ended.expect_err("it was ended");
        assert!(matches!(ended, Error::Refused(_, rustix::io::Errno::INTR)), "pass {pass}: {ended}");
    }
}

/// The medium fails when all is repaired: what was lost is told, and that it failed.
#[test]
fn what_was_done_is_told_also_after_an_error() {
    let place = filled(EngineKind::None, |tree| {
        for i in 0..5 {
            tree.file(format!("{i}"), 0o644, &[i; 100]).expect("make a file");
        }
    });
    let (ino, at, ..) = record(&place, "3");
    place.region.write(TEST, at + 5, &[0x55]).expect("damage it");
    let mutations = vec![Mutation::new(Site("volume.save"), MutationKind::Fail(rustix::io::Errno::IO))];
    let failing = Arc::new(SimConfig { mutations, ..(*sim()).clone() });
    let world = World::from_image(&world(&bytes_of(&*place.region)), failing);
    let repaired = repair(&world.log(), Repair::All).expect("what was done is told");
    let lost = format!("inode {ino} and its content are lost");
    assert!(repaired.done.iter().any(|it| it.done == lost), "{repaired:?}");
    assert!(matches!(repaired.ended, Some(Error::Media(_))), "{repaired:?}");
}

/// What a later version has put into the superblock, and need not be known, stays there.
#[test]
fn what_a_later_version_has_added_stays() {
    let place = filled(EngineKind::None, |tree| drop(tree.file("file", 0o644, &[1; 100]).expect("make a file")));
    let later = Later { compatible: 1 << 60, more: [0x5a; 248] };
    let own = Superblock { later, ..superblock(&place) };
    for at in [0, 1, own.blocks - 1] {
        place.region.write(TEST, at * BLOCK as u64, &own.encode(Lba(at))).expect("write it");
    }
    let expect = |what: &str| {
        let copies = Volume::dump_region(&*place.region, None).expect("dump it").superblocks;
        assert!(
            copies.iter().all(|copy| copy.decoded.as_ref().is_ok_and(|it| it.later == later)),
            "{what}: {copies:?}"
        );
    };
    place.open().close().expect("close it");
    expect("a mount");
    let (_, at, ..) = record(&place, "file");
    place.region.write(TEST, at + 5, &[0x55]).expect("damage it");
    repaired(&place, "a repair");
    expect("a repair");
    Volume::resize_region(&*place.region, BYTES / 2).expect("make it smaller");
    let end = BYTES / 2 / BLOCK as u64 - 1;
    let mut copy = [0; BLOCK];
    place.region.read(end * BLOCK as u64, &mut copy).expect("read");
    assert_eq!(Superblock::decode(&copy, Lba(end)).expect("a superblock").later, later);
}

/// Directories in a circle, with others below: one name goes, and all are found.
#[test]
fn a_circle_of_directories_is_opened() {
    let place = filled(EngineKind::None, |tree| {
        tree.mkdir("a", 0o755).expect("make a directory");
        let mut path = String::from("a");
        for _ in 0..30 {
            path += "/b";
            tree.mkdir(&path, 0o755).expect("make a directory");
        }
        for i in 0..30 {
            tree.mkdir(format!("{path}/{i}"), 0o755).expect("make a directory");
        }
    });
    let before = Snapshot::of(&place.region);
    // The name of `a` goes from the root, and comes into the lowest.
    let dumped = |path: &str| {
        let dumped = Volume::dump_region(&*place.region, Some(Object::Path(path.as_bytes()))).expect("dump it");
        dumped.inode.expect("an inode")
    };
    let lowest = format!("a{}", "/b".repeat(30));
    let (root, low) = (dumped(""), dumped(&lowest));
    let entry = root.entries.iter().find(|entry| entry.name == b"a").expect("a name").clone();
    let generation = low.owned.expect("line 0").generation;
    let stream = seed(&place).stream(low.ino, generation, Stream::Data);
    let head = Head { ino: entry.ino, kind: entry.kind, name_len: 1, key: entry.key };
    let (live, mut raw) = dir::encode(stream, head, b"a");
    raw[..8].copy_from_slice(&live.to_le_bytes());
    let leaf = low.entries.first().expect("an entry").block;
    let free = (0..64).rev().find(|slot| low.entries.iter().all(|entry| entry.slot + 1 < *slot)).expect("a free slot");
    place.region.write(TEST, leaf * 4096 + free as u64 * 64, &raw[..64]).expect("enter it");
    place.region.write(TEST, entry.block * 4096 + entry.slot as u64 * 64, &[0; 8]).expect("remove it");
    let (ino, at) = (entry.ino, dumped_at(&place, entry.ino));
    let more = More { parent: low.ino, ..dumped_more(&place, ino) };
    let line = more.encode(seed(&place), ino);
    place.region.write(TEST, at + (More::NUMBER * LINE) as u64, &line).expect("write a line");
    let found = place.check().findings;
    assert!(found.len() >= 61 && found.iter().all(|it| it.fault == "it is not below the root"), "{found:?}");
    let after = repaired(&place, "a circle");
    assert_eq!(after.inodes.len(), before.inodes.len() + 1);
}

fn dumped_at(place: &Place, ino: u64) -> u64 {
    let dumped = Volume::dump_region(&*place.region, Some(Object::Inode(ino))).expect("dump it").inode.expect("it");
    let (block, offset) = dumped.at.expect("its record");
    block * BLOCK as u64 + offset as u64
}

fn dumped_more(place: &Place, ino: u64) -> More {
    let dumped = Volume::dump_region(&*place.region, Some(Object::Inode(ino))).expect("dump it").inode.expect("it");
    dumped.more.expect("line 2")
}
