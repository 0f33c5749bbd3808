//! Images that are damaged at random, by bytes, by blocks, and behind the checksums: whatever is in them, to check, to
//! mount, to read and change, and to repair them ends, without a panic, and what a repair calls sound is.
//!
//! `WHOLLY_FUZZ=1000-2000` tries the images with these seeds, `WHOLLY_FUZZ_ENGINE=shadow` those of an engine.
//! `scripts/volume-soak fuzz` goes on for long.

use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use wholly_error::Error;
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_media::{Region, Site};
use wholly_posix::Tree;
use wholly_vfs::{Context, Fallocate, FileType, Ino, OFlags, Vfs};
use wholly_volume::format::dir::{self, Head, SLOT};
use wholly_volume::format::head::{self, HeadSeed, PendingHead};
use wholly_volume::format::inode::{INODE, INODE_FILE, LINE, Line, More, Owned, PER_BLOCK, Target, Times};
use wholly_volume::format::log::{self, Entry, LogArea, LogSeed};
use wholly_volume::format::pointer::{self, Pointer};
use wholly_volume::format::repair::{Move, Table, copy_sum};
use wholly_volume::format::superblock::Superblock;
use wholly_volume::format::{Lba, Run, Seed, Stream};
use wholly_volume::{DumpedInode, EngineKind, Object, Repair, Volume, VolumeOptions, VolumeVfs};

use super::place::{Place, Random, is_long, populate};

const BYTES: usize = 2 << 20;
const BLOCK: usize = 4096;
const TEST: Site = Site("test");
/// Bytes of a file that are read.
const MOST_READ: usize = 1 << 16;
/// Objects that are looked at.
const MOST_OBJECTS: usize = 3000;

fn options() -> VolumeOptions {
    VolumeOptions { cache_bytes: 1 << 20, ..VolumeOptions::default() }
}

/// An image, and what is known of it.
struct Base {
    image: Vec<u8>,
    superblock: Superblock,
    seed: Seed,
    inodes: Vec<DumpedInode>,
    inode_file: DumpedInode,
}

impl Base {
    fn new(engine: EngineKind, dies: bool) -> Base {
        let place = Place::of_zeros(BYTES as u64, engine);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        populate(&vfs).expect("make things");
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.open("file", OFlags::RDWR).expect("open").write(100, &[1; 9000]).expect("write over content");
        std::mem::forget(tree.file("open", 0o600, &[1; 5000]).expect("make a file"));
        tree.unlink("open").expect("remove it");
        drop(tree);
        match dies {
            true => std::mem::forget((vfs, volume)),
            false => {
                drop(vfs);
                volume.close().expect("close it");
            }
        }
        let mut image = vec![0; BYTES];
        place.region.read(0, &mut image).expect("read");
        let superblocks = Volume::dump_region(&*place.region, None).expect("dump it").superblocks;
        let superblock = superblocks.iter().filter_map(|copy| copy.decoded.clone().ok()).max_by_key(|it| it.generation);
        let superblock = superblock.expect("a superblock");
        let inode = |ino| Volume::dump_region(&*place.region, Some(Object::Inode(ino))).ok()?.inode;
        let inodes = (1..superblock.inodes).filter_map(inode).filter(|it| it.owned.is_some_and(|it| it.mode != 0));
        let inode_file = inode(INODE_FILE).expect("the inode file");
        Base { image, seed: Seed::of(&superblock.volume_id), inodes: inodes.collect(), inode_file, superblock }
    }

    fn inode(&self, random: &mut Random) -> &DumpedInode {
        &self.inodes[random.below(self.inodes.len())]
    }
}

/// A number that is small, large, one of the volume's, or any.
fn number(random: &mut Random) -> u64 {
    let any = (random.below(1 << 31) as u64) << 31 | random.below(1 << 31) as u64;
    match random.below(6) {
        0 => random.below(4) as u64,
        1 => random.below(600) as u64,
        2 => u64::MAX - random.below(3) as u64,
        3 => 1 << random.below(64),
        4 => any % (1 << random.below(63).max(1)),
        _ => any,
    }
}

fn changed<T: Copy>(field: &mut T, to: T, random: &mut Random) {
    if random.below(6) == 0 {
        *field = to;
    }
}

fn forge_line<L: Line>(image: &mut [u8], base: &Base, at: usize, ino: u64, change: impl FnOnce(&mut L)) {
    let raw: &[u8; LINE] = image[at + L::NUMBER * LINE..][..LINE].try_into().expect("a line");
    if let Ok(mut line) = L::decode(base.seed, ino, raw) {
        change(&mut line);
        image[at + L::NUMBER * LINE..][..LINE].copy_from_slice(&line.encode(base.seed, ino));
    }
}

/// Changes a field of an inode, with a check that says it is right.
fn forge_inode(image: &mut [u8], base: &Base, random: &mut Random) {
    let inode = base.inode(random);
    let Some((block, offset)) = inode.at else { return };
    let (at, ino) = (block as usize * BLOCK + offset, inode.ino);
    let other = *base.inode(random).owned.as_ref().expect("it is in use");
    match random.below(8) {
        0 => forge_line::<More>(image, base, at, ino, |more| {
            changed(&mut more.parent, number(random), random);
            changed(&mut more.xattrs, other.tree, random);
            changed(&mut more.xattr_bytes, number(random) as u32, random);
            changed(&mut more.xattr_sum, number(random) as u32, random);
            changed(&mut more.xattrs.depth, number(random) as u8, random);
            changed(&mut more.xattrs.blocks, number(random), random);
        }),
        1 => forge_line::<Target>(image, base, at, ino, |target| {
            changed(&mut target.short, [number(random) as u8; 56], random);
            changed(&mut target.sum, number(random) as u32, random);
        }),
        2 => forge_line::<Times>(image, base, at, ino, |times| {
            times.mtime.sec = number(random) as i64;
            times.atime.nsec = number(random) as u32;
        }),
        _ => forge_line::<Owned>(image, base, at, ino, |owned| {
            changed(&mut owned.mode, number(random) as u32, random);
            changed(&mut owned.mode, other.mode, random);
            changed(&mut owned.links, number(random) as u32, random);
            changed(&mut owned.generation, number(random) as u32, random);
            changed(&mut owned.size, number(random), random);
            changed(&mut owned.tree, other.tree, random);
            changed(&mut owned.tree.depth, number(random) as u8, random);
            changed(&mut owned.tree.blocks, number(random), random);
            changed(&mut owned.tree.root, 0, random);
        }),
    }
}

/// Puts a pointer to any block into a map.
fn forge_pointer(image: &mut [u8], base: &Base, random: &mut Random) {
    let inode = base.inode(random);
    let owned = inode.owned.expect("it is in use");
    let to =
        Pointer { block: Lba(number(random) % (BYTES / BLOCK) as u64 * 9 / 8 + 2), reserved: random.below(4) == 0 };
    if random.below(6) == 0 {
        // The map of the inode file, also beyond its end.
        let stream = base.seed.stream(INODE_FILE, 0, Stream::Data);
        let Some(node) = base.inode_file.content.nodes.last() else { return };
        let most = if random.below(2) == 0 { 8 } else { 512 };
        let slot = random.below(most);
        let to = match base.inode_file.content.extents.first() {
            Some(extent) if random.below(2) == 0 => Pointer::to(Lba(extent.block + random.below(4) as u64)),
            _ => Pointer { reserved: false, ..to },
        };
        let word = pointer::encode(stream, node.level - 1, node.index * 512 + slot as u64, to);
        image[node.block as usize * BLOCK + slot * 8..][..8].copy_from_slice(&word.to_le_bytes());
        return;
    }
    let (maps, streams) = ([&inode.content, &inode.xattr_map], [Stream::Data, Stream::Xattr]);
    let which = random.below(2);
    let seed = base.seed.stream(inode.ino, owned.generation, streams[which]);
    match maps[which].nodes.get(random.below(4)) {
        Some(node) => {
            let slot = random.below(512);
            let word = pointer::encode(seed, node.level - 1, node.index * 512 + slot as u64, to);
            image[node.block as usize * BLOCK + slot * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        None if which == 0 => {
            let Some((block, offset)) = inode.at else { return };
            forge_line::<Owned>(image, base, block as usize * BLOCK + offset, inode.ino, |owned| {
                owned.tree.root = pointer::encode(seed, owned.tree.depth, 0, to);
            });
        }
        None => {}
    }
}

/// Enters a name of anything anywhere.
fn forge_entry(image: &mut [u8], base: &Base, random: &mut Random) {
    let inode = base.inode(random);
    let Some(entry) = inode.entries.get(random.below(inode.entries.len().max(1))) else { return };
    let owned = inode.owned.expect("it is in use");
    let seed = base.seed.stream(inode.ino, owned.generation, Stream::Data);
    let target = base.inode(random);
    let mut name = entry.name.clone();
    if random.below(3) == 0 {
        let at = random.below(name.len());
        name[at] = number(random) as u8;
    }
    let mut head = Head { ino: entry.ino, kind: entry.kind, name_len: name.len() as u8, key: entry.key };
    changed(&mut head.ino, target.ino, random);
    changed(&mut head.ino, number(random) % (1 << 48), random);
    changed(&mut head.kind, number(random) as u8 % 16, random);
    changed(&mut head.key, number(random), random);
    changed(&mut head.name_len, number(random) as u8, random);
    if random.below(2) == 0 {
        (head.ino, head.kind) = (target.ino, (target.owned.expect("it is in use").mode >> 12) as u8);
    }
    let (live, mut raw) = dir::encode(seed, head, &name);
    raw[..8].copy_from_slice(&live.to_le_bytes());
    let slots = dir::slots_for(name.len());
    let slot = if random.below(2) == 0 { entry.slot } else { random.below(64 - slots) };
    image[entry.block as usize * BLOCK + slot * SLOT..][..slots * SLOT].copy_from_slice(&raw[..slots * SLOT]);
}

fn forge_superblock(image: &mut [u8], base: &Base, random: &mut Random) {
    let mut superblock = base.superblock.clone();
    superblock.generation += 2 * random.below(3) as u64;
    let tree = base.inode(random).owned.expect("it is in use").tree;
    changed(&mut superblock.blocks, number(random), random);
    changed(&mut superblock.inodes, number(random), random);
    changed(&mut superblock.inodes, number(random) % 1000 * PER_BLOCK, random);
    changed(&mut superblock.inode_tree, tree, random);
    changed(&mut superblock.inode_tree.depth, number(random) as u8, random);
    changed(&mut superblock.inode_tree.blocks, number(random), random);
    changed(&mut superblock.is_clean, random.below(2) == 0, random);
    changed(&mut superblock.saved, Some((Lba(number(random)), number(random))), random);
    changed(&mut superblock.repair, Some((Lba(number(random) % 600), number(random))), random);
    changed(&mut superblock.engine, number(random) as u32, random);
    changed(&mut superblock.incarnation, number(random), random);
    let (half_blocks, lanes) = (number(random) as u32, number(random) as u32);
    changed(&mut superblock.log, Some(LogArea { start: Lba(number(random)), half_blocks, lanes }), random);
    let last = (BYTES / BLOCK - 1) as u64;
    if random.below(4) == 0 {
        // One copy of another volume.
        superblock.volume_id[0] ^= 1;
        superblock.generation += random.below(50) as u64;
        let at = [0, 1, last][random.below(3)];
        image[at as usize * BLOCK..][..BLOCK].copy_from_slice(&superblock.encode(Lba(at)));
        return;
    }
    let all = random.below(2) == 0;
    for at in [0, 1, last].into_iter().filter(|_| all || random.below(2) == 0) {
        image[at as usize * BLOCK..][..BLOCK].copy_from_slice(&superblock.encode(Lba(at)));
    }
}

/// Tables of a repair that nobody has begun, with checksums that say they are right.
fn forge_tables(image: &mut [u8], base: &Base, random: &mut Random) {
    let blocks = (BYTES / BLOCK) as u64;
    let any = |random: &mut Random| Lba(2 + random.below(blocks as usize - 2) as u64);
    let mut next = None;
    for _ in 0..1 + random.below(3) {
        let mut moves: Vec<Move> = Vec::new();
        for _ in 0..random.below(6) {
            let mut copy = any(random);
            if let Some(before) = moves.first().filter(|_| random.below(5) == 0) {
                copy = before.copy;
            }
            let bytes = image[copy.byte() as usize..][..BLOCK].try_into().expect("a block");
            let sum = if random.below(8) == 0 { number(random) } else { copy_sum(base.seed, copy, bytes) };
            let home = if random.below(8) == 0 { Lba(number(random)) } else { any(random) };
            moves.push(Move { home, copy, sum });
        }
        let at = any(random);
        let (table, sum) = Table { next, moves }.encode(base.seed, at);
        image[at.byte() as usize..][..BLOCK].copy_from_slice(&table);
        next = Some((at, sum));
    }
    let mut superblock = base.superblock.clone();
    (superblock.repair, superblock.saved, superblock.is_clean) = (next, None, false);
    for at in [0, 1, blocks - 1] {
        image[at as usize * BLOCK..][..BLOCK].copy_from_slice(&superblock.encode(Lba(at)));
    }
}

/// Entries of a log that was never written so.
fn forge_log(image: &mut [u8], base: &Base, random: &mut Random) {
    let Some(area) = base.superblock.log else { return };
    let lane = random.below(area.lanes as usize) as u32;
    let seed = LogSeed::of(base.seed, base.superblock.incarnation).lane(lane);
    let sequence = random.below(40) as u64;
    let half = area.half(lane, sequence);
    let (mut sum, count) = (0u64, random.below(6));
    let mut at = half.start.byte() + log::ENTRIES;
    for entry in 0..count {
        let to = number(random) % (BYTES as u64 * 9 / 8);
        let entry = (
            entry as u32,
            match random.below(5) {
                4 => {
                    let (group, start) = (number(random), Lba(number(random) % (BYTES / BLOCK) as u64));
                    Entry::Chain { group, start, entries: random.below(9) as u32, sum: number(random) }
                }
                0 => Entry::Undo { at: to, len: 1 + random.below(32) as u8, old: [number(random) as u8; 32] },
                1 => Entry::Data { at: to, len: number(random), sum: number(random) },
                2 => Entry::Zero { at: to, len: number(random) },
                _ => Entry::Link(Run { start: Lba(number(random)), count: number(random) }),
            },
        );
        let (line, check) = log::encode(seed, at, (sequence, entry.0), &entry.1);
        image[at as usize..][..LINE].copy_from_slice(&line);
        (sum, at) = (sum.wrapping_add(check), at + LINE as u64);
    }
    if random.below(2) == 0 {
        let entry = Entry::Commit { entries: count as u32, sum, redo: true, order: 9 };
        let (line, _) = log::encode(seed, half.start.byte(), (sequence, 0), &entry);
        image[half.start.byte() as usize..][..LINE].copy_from_slice(&line);
    }
}

/// A head of a pending block that was never written so: changed from one that is there, if there is one.
fn forge_head(image: &mut [u8], base: &Base, random: &mut Random) {
    let Some(table) = base.superblock.heads else { return };
    let blocks = (BYTES / BLOCK) as u64;
    let seed = HeadSeed::of(base.seed, base.superblock.incarnation);
    let line =
        |block: u64| -> &[u8; LINE] { image[table.at(Lba(block)) as usize..][..LINE].try_into().expect("a line") };
    let there: Vec<(u64, PendingHead)> =
        (0..blocks).filter_map(|block| Some((block, head::decode(seed, Lba(block), line(block))?.head))).collect();
    let Some((block, mut head)) = there.get(random.below(there.len().max(1))).copied() else { return };
    let (other, any) = (base.inode(random).ino, number(random));
    changed(&mut head.ino, other, random);
    changed(&mut head.ino, any % (1 << 48), random);
    changed(&mut head.generation, any as u32, random);
    changed(&mut head.block, any, random);
    changed(&mut head.block, any % 16, random);
    changed(&mut head.home, Lba(any), random);
    changed(&mut head.home, Lba(any % blocks), random);
    changed(&mut head.lines, any, random);
    changed(&mut head.order, any, random);
    changed(&mut head.sequence, any, random);
    changed(&mut head.lane, any as u32 % (1 << 16), random);
    changed(&mut head.sum, any as u32, random);
    // Also of a block that is in use, or of another free one.
    let at = if random.below(3) == 0 { number(random) % blocks } else { block };
    let (line, _) = head::encode(seed, Lba(at), &head);
    image[table.at(Lba(at)) as usize..][..LINE].copy_from_slice(&line);
}

fn used(image: &[u8], random: &mut Random) -> usize {
    let blocks: Vec<usize> =
        (0..BYTES / BLOCK).filter(|block| image[block * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0)).collect();
    blocks[random.below(blocks.len())]
}

/// One damage.
fn mutate(image: &mut [u8], base: &Base, random: &mut Random) {
    let block = used(image, random) * BLOCK;
    match random.below(15) {
        14 => forge_tables(image, base, random),
        0 => image[block + random.below(BLOCK)] ^= 1 << random.below(8),
        1 => {
            let at = block + random.below(BLOCK - 64);
            image[at..at + 1 + random.below(64)].fill(number(random) as u8);
        }
        2 => image[block..][..BLOCK].fill(if random.below(2) == 0 { 0 } else { 0xff }),
        3 => {
            let other = used(image, random) * BLOCK;
            image.copy_within(other..other + BLOCK, block);
        }
        4 => {
            let other = used(image, random) * BLOCK;
            let (one, two) = (image[block..][..BLOCK].to_vec(), image[other..][..BLOCK].to_vec());
            image[block..][..BLOCK].copy_from_slice(&two);
            image[other..][..BLOCK].copy_from_slice(&one);
        }
        5 => {
            let inode = base.inode(random);
            if let Some((block, offset)) = inode.at {
                image[block as usize * BLOCK + offset..][..INODE].fill(0);
            }
        }
        6..=8 => forge_inode(image, base, random),
        9 | 10 => forge_pointer(image, base, random),
        11 | 12 => forge_entry(image, base, random),
        _ if random.below(2) == 0 && base.superblock.heads.is_some() => forge_head(image, base, random),
        _ if random.below(2) == 0 => forge_log(image, base, random),
        _ => forge_superblock(image, base, random),
    }
}

/// Looks at everything, and changes much. Whatever comes of it.
fn use_it(volume: &Volume) {
    let vfs = VolumeVfs::new(volume);
    let ctx = Context::superuser();
    let tree = Tree::new(&vfs, Ino::ROOT);
    let (mut paths, mut next) = (vec![String::new()], 0);
    while next < paths.len() && paths.len() < MOST_OBJECTS {
        let path = paths[next].clone();
        next += 1;
        let at = if path.is_empty() { "/" } else { &path };
        let Ok(attr) = tree.stat(at) else { continue };
        for name in tree.xattrs(at).unwrap_or_default() {
            let _ = tree.xattr(at, &name);
        }
        match attr.kind {
            FileType::Directory => {
                let names = tree.names(at).unwrap_or_default();
                let deep = path.matches('/').count() > 20;
                let names = names.into_iter().filter(|_| !deep).map(|name| name.name);
                paths.extend(names.map(|name| format!("{path}/{}", String::from_utf8_lossy(&name))));
            }
            FileType::Symlink => drop(tree.readlink(at)),
            FileType::RegularFile => {
                let Ok(handle) = vfs.open(&ctx, attr.ino, OFlags::RDWR) else { continue };
                let mut buf = vec![0; MOST_READ];
                for from in [0, attr.size / 2, attr.size.saturating_sub(100)] {
                    let _ = vfs.read(&ctx, &handle, from, &mut buf);
                }
                let _ = vfs.seek(&ctx, &handle, wholly_vfs::Seek::Data(0));
                let _ = vfs.seek(&ctx, &handle, wholly_vfs::Seek::Hole(0));
                let _ = vfs.write(&ctx, &handle, 5000, &[1; 5000]);
                let _ = vfs.release(&ctx, handle);
            }
            _ => {}
        }
    }
    let _ = tree.file("new", 0o600, &[2; 20_000]);
    let _ = tree.mkdir("more", 0o700);
    for (number, path) in paths.iter().enumerate().skip(1).rev() {
        let _ = match number % 8 {
            0 => tree.truncate(path, 10).map(drop),
            1 => tree.rename(path, format!("more/{number}")),
            2 => tree.set_xattr(path, "user.fuzz", &[3; 300]),
            3 => tree.link(path, format!("link-{number}")).map(drop),
            4 => tree.open(path, OFlags::RDWR).and_then(|file| file.allocate(Fallocate::Punch, 100, 10_000)),
            5 => tree.rmdir(path),
            _ => tree.unlink(path),
        };
    }
}

fn region(image: &[u8]) -> Arc<dyn Region> {
    let file = rustix::fs::memfd_create("fuzzed", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::fs::ftruncate(&file, image.len() as u64).expect("its length");
    let region = PmemRegion::open(file, PmemOptions::default()).expect("a region");
    region.write(TEST, 0, image).expect("write");
    Arc::new(region)
}

/// Whether an error is one that damage may be told by.
fn is_told(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt { .. } | Error::Unsupported(_) | Error::NoSpace(_) | Error::Poisoned(_) | Error::Refused(..)
    )
}

/// What came of an image.
#[derive(Default, Debug)]
struct Outcomes {
    sound: u64,
    opened: u64,
    repaired: u64,
    hopeless: u64,
    /// Images in which a repair has kept nearly all inodes.
    kept: u64,
}

fn try_image(image: &[u8], base: &Base, outcomes: &mut Outcomes) -> Result<(), String> {
    let told = |what: &str, error: Error| if is_told(&error) { Ok(()) } else { Err(format!("{what}: {error}")) };
    let used = region(image);
    let is_sound = match Volume::check_region(&*used) {
        Ok(checked) => checked.findings.is_empty(),
        Err(error) => told("check", error).map(|()| false)?,
    };
    match Volume::open_region(used.clone(), &options()) {
        Ok(volume) => {
            outcomes.opened += 1;
            use_it(&volume);
            if let Err(error) = volume.close() {
                told("close", error)?;
            }
        }
        Err(error) if is_sound => return Err(format!("it is sound, and does not open: {error}")),
        Err(error) => told("open", error)?,
    }
    if is_sound {
        outcomes.sound += 1;
        let checked = Volume::check_region(&*used).map_err(|error| error.to_string())?;
        if let Some(finding) = checked.findings.first() {
            return Err(format!("it was sound, and after its use: {finding}"));
        }
    }
    let repaired = region(image);
    let done = Volume::repair_region(&repaired, &options(), (Repair::All, true), &mut |_| ControlFlow::Continue(()));
    match done {
        Ok(done) if done.ended.is_none() && done.left.is_empty() => {
            outcomes.repaired += 1;
            let checked = Volume::check_region(&*repaired).map_err(|error| error.to_string())?;
            if let Some(finding) = checked.findings.first() {
                return Err(format!("it was repaired, and {finding}"));
            }
            let left = checked.files + checked.directories + checked.others;
            outcomes.kept += u64::from(left + 40 >= base.inodes.len() as u64);
            let volume = Volume::open_region(repaired.clone(), &options()).map_err(|error| error.to_string())?;
            use_it(&volume);
            volume.close().map_err(|error| format!("it was repaired, and after its use: {error}"))?;
            let checked = Volume::check_region(&*repaired).map_err(|error| error.to_string())?;
            match checked.findings.first() {
                None => Ok(()),
                Some(finding) => Err(format!("it was repaired, and after its use: {finding}")),
            }
        }
        Ok(done) => {
            outcomes.hopeless += 1;
            done.ended.map_or(Ok(()), |error| told("repair", error))
        }
        Err(error) => {
            outcomes.hopeless += 1;
            told("repair", error)
        }
    }
}

/// Seeds beyond those of a short run that have found something.
const FOUND: [u64; 1] = [1718];

/// The seeds of `WHOLLY_FUZZ`.
fn seeds() -> Range<u64> {
    let text = std::env::var("WHOLLY_FUZZ").unwrap_or_default();
    let parsed = text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parsed.unwrap_or(0..if is_long() { 10_000 } else { 300 })
}

#[test]
fn damaged_images_are_told_from_sound_ones_and_repaired() {
    let bases = [
        Base::new(EngineKind::None, false),
        Base::new(EngineKind::FineGrainedWal, false),
        Base::new(EngineKind::None, true),
        Base::new(EngineKind::FineGrainedWal, true),
        Base::new(EngineKind::HybridLog, false),
        Base::new(EngineKind::HybridLog, true),
    ];
    // Those of one engine, if that is wanted.
    let chosen = std::env::var("WHOLLY_FUZZ_ENGINE").ok().map(|name| {
        let engine = EngineKind::named(&name).unwrap_or_else(|| panic!("no engine {name}"));
        [false, true].map(|dies| Base::new(engine, dies))
    });
    let undone = [false, true].map(|dies| Base::new(EngineKind::Undo, dies));
    let mut outcomes = Outcomes::default();
    let seeds = seeds();
    for seed in seeds.clone().chain(FOUND) {
        // What a seed has found stays what it was.
        let base = match (&chosen, seed / bases.len() as u64 % 4) {
            (Some(chosen), _) => &chosen[seed as usize % chosen.len()],
            (None, 3) => &undone[seed as usize % undone.len()],
            (None, _) => &bases[seed as usize % bases.len()],
        };
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut image = base.image.clone();
        for _ in 0..1 + random.below(4) {
            mutate(&mut image, base, &mut random);
        }
        let what = match catch_unwind(AssertUnwindSafe(|| try_image(&image, base, &mut outcomes))) {
            Ok(Ok(())) => continue,
            Ok(Err(what)) => what,
            Err(_) => "a panic".into(),
        };
        panic!("WHOLLY_FUZZ={seed}-{}: {what}", seed + 1);
    }
    println!("{} images: {outcomes:?}", seeds.count() + FOUND.len());
    assert!(outcomes.repaired > outcomes.hopeless && outcomes.repaired > 0 && outcomes.opened > 0, "{outcomes:?}");
    // A repair that throws everything away would be sound, too.
    assert!(outcomes.kept * 10 >= outcomes.repaired * 7, "{outcomes:?}");
}
