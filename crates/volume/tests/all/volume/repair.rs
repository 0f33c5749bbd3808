//! Repair: after it nothing is wrong, and what the damage has not hit is there. It can be interrupted at any store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use wholly_media::{PersistenceDomain, Region, Site};
use wholly_posix::Tree;
use wholly_sim::{ExploreLimits, Explorer, Image, Medium, Mutation, MutationKind, PmemMode, SimConfig, World};
use wholly_vfs::{FileType, Ino};
use wholly_volume::format::inode::{LINE, Line, Owned, PER_BLOCK};
use wholly_volume::format::pointer::{self, FANOUT, Pointer};
use wholly_volume::format::{Lba, Seed, Stream};
use wholly_volume::{
    Checked, DumpedMap, EngineKind, Object, Repair, Repaired, Volume, VolumeOptions, VolumeVfs, repair_sites,
};

use super::place::{CONTENT, Place, Random, is_long, populate};

const BYTES: u64 = 2 << 20;
const BLOCK: usize = 4096;
const TEST: Site = Site("test");

pub fn options() -> VolumeOptions {
    VolumeOptions { cache_bytes: 1 << 20, ..VolumeOptions::default() }
}

pub fn repair(region: &Arc<dyn Region>, how: Repair) -> wholly::Result<Repaired> {
    Volume::repair_region(region, &options(), (how, true), &mut |_| ControlFlow::Continue(()))
}

/// Whether nothing is wrong, not even with a copy of the superblock.
pub fn is_sound(checked: &Checked) -> bool {
    checked.findings.is_empty() && checked.lost_copies.is_empty() && checked.is_clean && checked.orphans == 0
}

/// What a program sees of an object, but for names and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: FileType,
    pub mode: u32,
    pub owner: (u32, u32),
    pub rdev: u64,
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// All that is in a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub paths: BTreeMap<String, u64>,
    pub inodes: BTreeMap<u64, Seen>,
}

impl Snapshot {
    pub fn of(region: &Arc<dyn Region>) -> Snapshot {
        let volume = Volume::open_region(region.clone(), &options()).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let mut snapshot = Snapshot::default();
        snapshot.add(&Tree::new(&vfs, Ino::ROOT), String::new()).expect("read all");
        drop(vfs);
        volume.close().expect("close it");
        snapshot
    }

    fn add(&mut self, tree: &Tree<'_>, path: String) -> wholly_vfs::Result<()> {
        let at = if path.is_empty() { "/" } else { &path };
        let attr = tree.stat(at)?;
        let mut xattrs = BTreeMap::new();
        for name in tree.xattrs(at)? {
            let value = tree.xattr(at, &name)?;
            xattrs.insert(name, value);
        }
        let content = match attr.kind {
            FileType::RegularFile => tree.content(at)?,
            FileType::Symlink => tree.readlink(at)?,
            _ => Vec::new(),
        };
        self.paths.insert(path.clone(), attr.ino.0);
        let owner = (attr.uid, attr.gid);
        let seen = Seen { kind: attr.kind, mode: attr.mode.as_raw_mode(), owner, rdev: attr.rdev, content, xattrs };
        self.inodes.insert(attr.ino.0, seen);
        if attr.kind == FileType::Directory {
            for name in tree.names(at)? {
                let name = String::from_utf8(name.name).expect("names of the test are text");
                self.add(tree, format!("{path}/{name}"))?;
            }
        }
        Ok(())
    }

    /// That all is in `after` which does not hang on the inodes `hit`.
    pub fn expect_rest(&self, after: &Snapshot, hit: &BTreeSet<u64>, what: &str) {
        for (ino, seen) in self.inodes.iter().filter(|(ino, _)| !hit.contains(ino)) {
            assert_eq!(after.inodes.get(ino), Some(seen), "{what}: inode {ino}, which was not hit");
        }
        for (path, ino) in &self.paths {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            let is_hit = above.chain([&path[..]]).any(|above| hit.contains(&self.paths[above]));
            assert!(is_hit || after.paths.get(path) == Some(ino), "{what}: {path:?} is inode {ino}, and was not hit");
        }
    }
}

/// What each block is for, and so which inodes its damage hits.
#[derive(Clone, Copy, Debug)]
pub enum Use {
    /// The inodes of a block of the inode file.
    Inodes(u64),
    /// The pointers of a node of the inode file's map, of level 1.
    InodeNode(u64),
    /// A node, a leaf, attributes or a target of an inode.
    Of(u64),
}

impl Use {
    fn hit(self, byte: usize) -> BTreeSet<u64> {
        match self {
            Use::Inodes(index) => [index * PER_BLOCK + byte as u64 / 256].into(),
            Use::InodeNode(index) => {
                let first = (index * FANOUT + byte as u64 / 8) * PER_BLOCK;
                (first..first + PER_BLOCK).collect()
            }
            Use::Of(ino) => [ino].into(),
        }
    }

    pub fn hit_all(self) -> BTreeSet<u64> {
        (0..BLOCK).step_by(8).flat_map(|byte| self.hit(byte)).collect()
    }
}

fn uses(region: &dyn Region, inodes: impl Iterator<Item = u64>) -> BTreeMap<u64, Use> {
    let dumped = |ino| {
        let dumped = Volume::dump_region(region, Some(Object::Inode(ino))).expect("dump it").inode.expect("an inode");
        assert!(dumped.faults.is_empty(), "inode {ino}: {:?}", dumped.faults);
        dumped
    };
    let mut uses = BTreeMap::new();
    let mut of_map = |map: &DumpedMap, node: &dyn Fn(u64) -> Use, block: &dyn Fn(u64) -> Use| {
        uses.extend(map.nodes.iter().map(|it| (it.block, node(it.index))));
        for extent in &map.extents {
            uses.extend((0..extent.count).map(|i| (extent.block + i, block(extent.first + i))));
        }
    };
    of_map(&dumped(2).content, &Use::InodeNode, &Use::Inodes);
    for ino in inodes {
        let dumped = dumped(ino);
        of_map(&dumped.content, &|_| Use::Of(ino), &|_| Use::Of(ino));
        of_map(&dumped.xattr_map, &|_| Use::Of(ino), &|_| Use::Of(ino));
    }
    uses
}

/// A volume with one of everything, and what is known of it.
pub struct Filled {
    pub place: Place,
    pub image: Vec<u8>,
    pub before: Snapshot,
    pub uses: BTreeMap<u64, Use>,
}

impl Filled {
    pub fn new(engine: EngineKind) -> Filled {
        let place = Place::of_zeros(BYTES, engine);
        let volume = place.open();
        populate(&VolumeVfs::new(&volume)).expect("make things");
        volume.close().expect("close it");
        let before = Snapshot::of(&place.region);
        let uses = uses(&*place.region, before.inodes.keys().copied());
        let mut image = vec![0; BYTES as usize];
        place.region.read(0, &mut image).expect("read");
        Filled { place, image, before, uses }
    }

    /// Damages it, repairs it, and looks. Returns what was repaired.
    fn try_damage(&self, at: usize, bytes: &[u8], hit: &BTreeSet<u64>, what: &str) -> Repaired {
        self.place.region.write(TEST, 0, &self.image).expect("restore it");
        self.place.region.write(TEST, at as u64, bytes).expect("damage it");
        let found = self.place.check();
        let repaired = repair(&self.place.region, Repair::All).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(repaired.left, [], "{what}");
        assert!(is_sound(&self.place.check()), "{what}: {:?}", self.place.check());
        let is_named = !found.findings.is_empty() || !found.lost_copies.is_empty();
        assert_eq!(is_named, !repaired.done.is_empty(), "{what}: {:?} and {:?}", found.findings, repaired.done);
        let after = Snapshot::of(&self.place.region);
        match is_named {
            true => self.before.expect_rest(&after, hit, what),
            false => assert_eq!(after, self.before, "{what}"),
        }
        repaired
    }

    fn block(&self, block: u64) -> &[u8] {
        &self.image[block as usize * BLOCK..][..BLOCK]
    }

    /// Blocks with structure: content has no check.
    pub fn structures(&self) -> Vec<u64> {
        let is_content = |block: u64| self.block(block).iter().filter(|byte| **byte == CONTENT).count() > 1000;
        let all = (0..BYTES / BLOCK as u64).filter(|block| self.block(*block).iter().any(|byte| *byte != 0));
        all.filter(|block| !is_content(*block)).collect()
    }
}

const ENGINES: [EngineKind; 2] = [EngineKind::None, EngineKind::FineGrainedWal];

#[test]
fn a_flipped_bit_in_any_structure_is_repaired() {
    let mut done = BTreeSet::new();
    for engine in ENGINES {
        let filled = Filled::new(engine);
        let mut random = Random(1);
        for block in filled.structures() {
            let bytes = filled.block(block);
            let used: Vec<usize> = (0..BLOCK).filter(|at| bytes[*at] != 0).collect();
            for round in 0..if is_long() { 100 } else { 6 } {
                let byte = if round % 3 > 0 { used[random.below(used.len())] } else { random.below(BLOCK) };
                let (at, bit) = (block as usize * BLOCK + byte, random.below(8));
                let hit = filled.uses.get(&block).map(|it| it.hit(byte)).unwrap_or_default();
                let what = format!("{engine:?}, block {block}, byte {byte}, bit {bit}");
                let repaired = filled.try_damage(at, &[filled.image[at] ^ 1 << bit], &hit, &what);
                done.extend(repaired.done.into_iter().map(|it| it.done.split([' ', '"']).next().unwrap().to_owned()));
            }
        }
    }
    println!("{done:?}");
    assert!(done.len() > 5, "only {done:?} was done");
}

#[test]
fn any_block_with_other_bytes_is_repaired() {
    for engine in ENGINES {
        let filled = Filled::new(engine);
        let structures = filled.structures();
        let mut random = Random(3);
        for &block in &structures {
            let other = structures[random.below(structures.len())];
            let noise: Vec<u8> = (0..BLOCK).map(|_| random.below(256) as u8).collect();
            for (bytes, with) in
                [(vec![0; BLOCK], "zeros"), (noise, "noise"), (filled.block(other).to_vec(), "another")]
            {
                let hit = filled.uses.get(&block).map(|it| it.hit_all()).unwrap_or_default();
                let what = format!("{engine:?}, block {block} with {with} ({other})");
                filled.try_damage(block as usize * BLOCK, &bytes, &hit, &what);
            }
        }
    }
}

/// The record of an inode, and where its line 0 is.
pub fn record(place: &Place, path: &str) -> (u64, u64, Owned, Vec<u64>) {
    let dumped = Volume::dump_region(&*place.region, Some(Object::Path(path.as_bytes()))).expect("dump it");
    let inode = dumped.inode.expect("an inode");
    let (block, offset) = inode.at.expect("it has a record");
    let blocks = inode.content.extents.iter().flat_map(|it| it.block..it.block + it.count).collect();
    (inode.ino, block * BLOCK as u64 + offset as u64, inode.owned.expect("line 0"), blocks)
}

pub fn put(place: &Place, at: u64, ino: u64, owned: &Owned) {
    let raw: [u8; LINE] = owned.encode(seed(place), ino);
    place.region.write(TEST, at, &raw).expect("write a line");
}

pub fn seed(place: &Place) -> Seed {
    let copies = Volume::dump_region(&*place.region, None).expect("dump it").superblocks;
    Seed::of(&copies[0].decoded.as_ref().expect("a superblock").volume_id)
}

/// Counts are put right without a question, what loses something is not.
#[test]
fn what_is_safe_is_apart_from_what_is_not() {
    let place = Place::of_zeros(BYTES, EngineKind::None);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.file("a", 0o644, &[1; 5000]).expect("make a file");
    tree.file("b", 0o644, &[2; 5000]).expect("make a file");
    drop(tree);
    drop(vfs);
    volume.close().expect("close it");
    let (ino, at, owned, _) = record(&place, "a");
    put(&place, at, ino, &Owned { links: 7, ..owned });
    let findings = place.check().findings;
    assert!(matches!(&findings[..], [only] if only.fault == "it has 1 names, and says 7"), "{findings:?}");
    let passed = Volume::repair_region(&place.region, &options(), (Repair::Safe, false), &mut |_| {
        unreachable!("it was unmounted: nothing is looked at")
    });
    assert_eq!(passed.expect("look").done, []);
    let repaired = repair(&place.region, Repair::Safe).expect("repair it");
    assert_eq!((repaired.done.len(), &repaired.left[..]), (1, &[][..]), "{:?}", repaired.done);
    assert!(is_sound(&place.check()));

    // One fault of each kind: none is touched.
    let (ino, at, owned, _) = record(&place, "a");
    put(&place, at, ino, &Owned { links: 7, ..owned });
    let (_, at, ..) = record(&place, "b");
    place.region.write(TEST, at + 5, &[0x55]).expect("damage it");
    let before = place.check();
    let repaired = repair(&place.region, Repair::Safe).expect("look");
    assert_eq!((&repaired.done[..], &repaired.left), (&[][..], &before.findings));
    assert_eq!(place.check().findings, before.findings);
    let repaired = repair(&place.region, Repair::All).expect("repair it");
    assert!(repaired.left.is_empty() && is_sound(&place.check()));
    let after = Snapshot::of(&place.region);
    assert_eq!(after.paths.keys().collect::<Vec<_>>(), ["", "/a"]);
    assert_eq!(after.inodes[&ino].content, [1; 5000]);
}

/// A block that two files have: each has one of its own then.
#[test]
fn a_block_of_two_files_is_copied() {
    let place = Place::of_zeros(BYTES, EngineKind::None);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.file("a", 0o644, &[1; BLOCK]).expect("make a file");
    tree.file("b", 0o644, &[2; BLOCK]).expect("make a file");
    drop(tree);
    drop(vfs);
    volume.close().expect("close it");
    let (a, (ino, at, mut owned, _)) = (record(&place, "a"), record(&place, "b"));
    let stream = seed(&place).stream(ino, owned.generation, Stream::Data);
    owned.tree.root = pointer::encode(stream, 0, 0, Pointer::to(Lba(a.3[0])));
    put(&place, at, ino, &owned);
    assert!(place.check().findings.iter().any(|finding| finding.fault.contains("used twice")));
    let repaired = repair(&place.region, Repair::All).expect("repair it");
    assert!(repaired.left.is_empty() && is_sound(&place.check()), "{repaired:?}");
    let after = Snapshot::of(&place.region);
    let content = |path: &str| after.inodes[&after.paths[path]].content.clone();
    assert_eq!((content("/a"), content("/b")), (vec![1; BLOCK], vec![1; BLOCK]));
    assert_ne!(record(&place, "a").3, record(&place, "b").3);
}

/// A name is lost: its directory is found with all that is in it.
#[test]
fn what_has_lost_its_name_gets_another() {
    let filled = Filled::new(EngineKind::FineGrainedWal);
    let root = Volume::dump_region(&*filled.place.region, Some(Object::Inode(1))).expect("dump it");
    let root = root.inode.expect("the root");
    let entry = root.entries.iter().find(|entry| entry.name == b"dir").expect("a name");
    let at = entry.block as usize * BLOCK + entry.slot * 64;
    let repaired = filled.try_damage(at, &[0; 8], &[1, entry.ino].into(), "the name of a directory");
    assert!(repaired.done.iter().any(|it| it.done.contains("lost+found")), "{repaired:?}");
    let after = Snapshot::of(&filled.place.region);
    let inside = |dir: &str, all: &Snapshot| -> BTreeMap<String, u64> {
        let below = all.paths.iter().filter_map(|(path, ino)| Some((path.strip_prefix(dir)?.to_owned(), *ino)));
        below.filter(|(path, _)| path.starts_with('/')).collect()
    };
    let found = format!("/lost+found/#{}", entry.ino);
    assert_eq!(inside(&found, &after), inside("/dir", &filled.before));
    assert!(inside("/dir", &filled.before).len() > 100);
}

/// A damaged volume in simulated memory: an inode, the name of a directory and a node of a map are hit. With a log that
/// is to be recovered first, if its process has died.
struct Damaged {
    image: Image,
}

const BLOCKS: u64 = 128;

fn config(mutations: &[Mutation]) -> Arc<SimConfig> {
    Arc::new(SimConfig {
        log: Medium::Pmem { domain: PersistenceDomain::MemoryController, mode: PmemMode::Adversarial },
        log_len: BLOCKS * BLOCK as u64,
        mutations: mutations.to_vec(),
        ..SimConfig::pmem()
    })
}

impl Damaged {
    fn new(engine: EngineKind, dies: bool) -> Damaged {
        let world = World::new(config(&[]));
        Volume::format_region(&*world.log(), &VolumeOptions { engine: Some(engine), ..options() })
            .expect("make a volume");
        let volume = Volume::open_region(world.log(), &options()).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.mkdir("dir", 0o755).expect("make a directory");
        for i in 0..20u8 {
            tree.file(format!("dir/{i}"), 0o644, &[i; 100]).expect("make a file");
        }
        let large = tree.file("large", 0o644, &[7; 3 * BLOCK]).expect("make a file");
        large.write(600 * BLOCK as u64, &[8; 100]).expect("write");
        drop(large);
        drop(tree);
        drop(vfs);
        match dies {
            true => std::mem::forget(volume),
            false => volume.close().expect("close it"),
        }
        let region = world.log();
        let dumped = |path: &str| {
            let dumped = Volume::dump_region(&*region, Some(Object::Path(path.as_bytes()))).expect("dump it");
            dumped.inode.expect("an inode")
        };
        let flip = |at: u64| {
            let mut byte = [0];
            region.read(at, &mut byte).expect("read");
            region.write(TEST, at, &[byte[0] ^ 4]).expect("damage it");
        };
        let (block, offset) = dumped("dir/7").at.expect("its record");
        let root = dumped("");
        let name = root.entries.iter().find(|entry| entry.name == b"dir").expect("its name");
        let node = dumped("large").content.nodes.iter().find(|node| node.level == 1).expect("a node").block;
        flip(block * 4096 + offset as u64 + 8);
        flip(name.block * 4096 + name.slot as u64 * 64 + 24);
        flip(node * 4096 + 3);
        region.fence(TEST).expect("fence");
        Damaged { image: world.latest() }
    }

    /// Repairs an image, which must be sound then.
    fn repair(image: &Image, mutations: &[Mutation]) -> Result<(Arc<World>, Repaired), String> {
        let world = World::from_image(image, config(mutations));
        let repaired = repair(&world.log(), Repair::All).map_err(|error| error.to_string())?;
        let checked = Volume::check_region(&*world.log()).map_err(|error| error.to_string())?;
        match is_sound(&checked) {
            true => Ok((world, repaired)),
            false => Err(format!("{checked:?}")),
        }
    }

    /// Goes through the states that a crash of the repair may leave: each is repaired, to the same. Returns how many
    /// there were.
    fn explore(
        &self,
        mutations: &[Mutation],
        limits: &ExploreLimits,
        crashed_at: &mut BTreeSet<&'static str>,
    ) -> Result<u64, String> {
        let (world, repaired) = Self::repair(&self.image, mutations)?;
        assert!(repaired.done.len() >= 4, "{repaired:?}");
        let trace = world.trace();
        let after = Snapshot::of(&World::from_image(&world.latest(), config(&[])).log());
        assert!(after.paths.keys().any(|path| path.starts_with("/lost+found/#")), "{:?}", after.paths.keys());
        let (mut explorer, mut states) = (Explorer::new(&trace), 0);
        let mut tried = BTreeSet::new();
        loop {
            crashed_at.extend(explorer.event().and_then(|event| event.site).map(|site| site.0));
            let mut images = vec![explorer.kill_image()];
            explorer.for_each_image(limits, |_, image| {
                images.push(image.clone());
                ControlFlow::Continue(())
            });
            for image in images.iter().filter(|image| tried.insert(image.hash())) {
                states += 1;
                let at = |what: String| format!("crash at point {}: {what}", explorer.index());
                let (world, repaired) = Self::repair(image, &[]).map_err(at)?;
                if let Some(it) = repaired.done.iter().find(|it| it.done.starts_with("given up")) {
                    return Err(at(it.finding.to_string()));
                }
                if Snapshot::of(&world.log()) != after {
                    return Err(at("another repair than without it".into()));
                }
            }
            if !explorer.advance() {
                return Ok(states);
            }
        }
    }
}

/// A repair may be interrupted at any store: it is repeated, or finished by who opens the volume next, and comes to the
/// same. With and without a log that is to be recovered first.
#[test]
fn a_repair_can_be_interrupted_anywhere() {
    let limits = ExploreLimits {
        exhaustive_bits: if is_long() { 6 } else { 2 },
        single_units: if is_long() { 24 } else { 1 },
        pair_units: 0,
        samples: if is_long() { 20 } else { 2 },
        ..ExploreLimits::default()
    };
    let mut crashed_at = BTreeSet::new();
    for (engine, dies) in [(EngineKind::None, false), (EngineKind::FineGrainedWal, true)] {
        let explored = Damaged::new(engine, dies).explore(&[], &limits, &mut crashed_at);
        let states = explored.unwrap_or_else(|what| panic!("{engine:?}: {what}"));
        println!("{engine:?}: {states} states");
        assert!(states > 50, "only {states} states");
    }
    let missing: Vec<_> = repair_sites().iter().map(|site| site.0).filter(|site| !crashed_at.contains(site)).collect();
    // Only a full volume becomes longer for a time.
    assert_eq!(missing, ["repair.length"], "these were no crash points");
}

/// Mistakes that are planted: a fence of the commit that orders nothing.
#[test]
fn a_fence_of_a_repair_that_orders_nothing_is_seen() {
    let limits =
        ExploreLimits { exhaustive_bits: 2, single_units: 8, pair_units: 0, samples: 12, ..ExploreLimits::default() };
    let damaged = Damaged::new(EngineKind::None, false);
    for site in ["repair.copy.fence", "repair.commit.fence", "repair.home.fence"] {
        let mutation = Mutation::new(Site(site), MutationKind::DropOrder);
        let explored = damaged.explore(&[mutation], &limits, &mut BTreeSet::new());
        println!("{site}: {explored:?}");
        assert!(explored.is_err(), "{site} was not missed");
    }
}

/// No block is free for what a repair stores: the file becomes longer for a time.
#[test]
fn a_full_volume_is_repaired() {
    let place = Place::of_zeros(BYTES, EngineKind::None);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    for i in 0..100 {
        tree.file(format!("{i}"), 0o644, b"").expect("make a file");
    }
    let all = tree.file("all", 0o644, b"").expect("make a file");
    let mut at = 0;
    for part in [BLOCK, 1] {
        while all.write(at, &vec![3; part]).is_ok_and(|written| written == part) {
            at += part as u64;
        }
    }
    drop(all);
    for i in 0..100 {
        let _ = tree.open(format!("{i}"), wholly_vfs::OFlags::RDWR).and_then(|file| file.write(0, &[4]).map(drop));
    }
    let free = volume.stat().free_blocks;
    drop(tree);
    drop(vfs);
    volume.close().expect("close it");
    assert!(free < 16, "{free} blocks are free");
    // More inodes are hit than blocks are free.
    let mut hit = BTreeSet::new();
    for i in (0..100).step_by(3) {
        let (ino, at, ..) = record(&place, &format!("{i}"));
        place.region.write(TEST, at + 9, &[0xee]).expect("damage it");
        hit.insert(ino);
    }
    let repaired = repair(&place.region, Repair::All).expect("repair it");
    assert_eq!(repaired.left, []);
    assert!(is_sound(&place.check()) && place.region.len() == BYTES);
    let after = Snapshot::of(&place.region);
    assert!(after.paths.contains_key("/1") && !after.paths.contains_key("/3") && after.paths.contains_key("/all"));
}
