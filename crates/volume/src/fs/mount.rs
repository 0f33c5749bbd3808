//! Making a volume, rebuilding and saving its allocators.
//!
//! What is written here bypasses the engine: there is none yet, or it has nothing left to do.

use std::collections::BTreeSet;
use std::sync::Arc;

use sync::{AtomicUsize, Mutex, Ordering, thread};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};
use wholly_vfs::Timestamp;

use super::backing::Backing;
use super::bitmaps::{self, Spaces, Truth};
use super::overlay::is_lost;
use super::space::Space;
use super::storage::{Storage, slot_of, write_slot, write_superblock};
use super::{Core, DIRECTORY, map};
use crate::engine::marks::Marks;
use crate::engine::{Engine, Fields, InoGen, InodeFile, Load, Moved, Operation, Replay};
use crate::engine::{StorageView, Structure, Waiting};
use crate::engine::{corrupt, read_within};
use crate::format::bitmap::{self, Layout};
use crate::format::head::HeadTable;
use crate::format::inode::{self, FIRST, INODE, LINE, Line, More, Owned, PER_BLOCK, ROOT, Time, Times, Tree};
use crate::format::log::{ForLog, LogArea, MakeLog};
use crate::format::pointer::Pointer;
use crate::format::saved::{MAX_RUNS, Table};
use crate::format::superblock::{COMPATIBLE_JOURNALED, LATER, Later, MIN_BLOCKS, Superblock, VERSION, copies};
use crate::format::{BLOCK, Fault, Lba, Run, Seed, Stream};

const WIPE: Site = Site("volume.wipe");
const SAVE: Site = Site("volume.save");
const FENCE: Site = Site("volume.fence");
pub const SITES: &[Site] = &[WIPE, SAVE, FENCE];

/// The fewest blocks of a volume with a log.
const MIN_BLOCKS_WITH_LOG: u64 = 64;
/// Blocks of the inode file of a new volume. They stay.
pub const FIRST_INODE_BLOCKS: u64 = 4;
/// Blocks of the inode file that a thread of a rebuild takes at a time.
const LOT: usize = 64;
const MAX_THREADS: usize = 8;

/// A region without an engine.
pub struct Plain<'r> {
    pub region: &'r dyn Region,
    /// The next block that is given out.
    pub next: u64,
}

impl Load for Plain<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        read_within(self.region, at.byte().saturating_add(offset as u64), buf)
    }
}

impl StorageView for Plain<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.region.write(site, at.byte() + offset as u64, bytes)?)
    }

    fn fresh(&mut self) -> Lba {
        self.next += 1;
        Lba(self.next - 1)
    }

    fn release(&mut self, _at: Lba) {
        unreachable!("nothing is given up while a volume is made");
    }
}

/// A volume of so many blocks that is being made: it has no superblock before all else is durable.
struct Unnamed<'r>(Plain<'r>, u64);

impl Load for Unnamed<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.0.load(at, offset, buf)
    }
}

impl StorageView for Unnamed<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        let is_copy = copies(self.1).contains(&at);
        if is_copy { Ok(()) } else { self.0.update(site, at, offset, bytes) }
    }

    fn fresh(&mut self) -> Lba {
        self.0.fresh()
    }

    fn release(&mut self, at: Lba) {
        self.0.release(at);
    }
}

/// What a new volume is made with.
pub struct Making<'m> {
    pub volume_id: [u8; 16],
    pub label: &'m str,
    /// User and group of the root directory.
    pub owner: (u32, u32),
    pub now: Time,
    /// The engine, by its number.
    pub engine: u32,
    /// The log of the engine, given where it begins and what it is made for.
    pub log: Option<fn(Lba, ForLog) -> LogArea>,
    /// Queues of the log, if somebody has chosen.
    pub queues: Option<u16>,
    /// Whether new content is journaled, too.
    pub journals_content: bool,
    /// Whether the log is written over with zeros: writing to space that was only allocated is slow on a disk.
    pub zeroes_log: bool,
    /// What else the log needs.
    pub make_log: Option<MakeLog>,
    /// Whether the engine has pending blocks.
    pub has_heads: bool,
    /// Whether the volume has bitmaps.
    pub has_bitmaps: bool,
    /// Told how many bytes of the log are zeroed, of how many.
    pub watch: &'m dyn Fn(u64, u64),
}

/// So many blocks, as a size that can be typed.
pub fn exact(blocks: u64) -> String {
    let kib = blocks * (BLOCK as u64 >> 10);
    match kib.trailing_zeros() {
        0..10 => format!("{kib}K"),
        10..20 => format!("{}M", kib >> 10),
        _ => format!("{}G", kib >> 20),
    }
}

/// A label as it stands in a superblock.
///
/// # Errors
/// [`Error::Invalid`] if it is too long, or has a NUL in it.
pub fn encode_label(label: &str) -> Result<[u8; 64]> {
    let mut encoded = [0; 64];
    if label.len() > encoded.len() || label.contains('\0') {
        return Err(Error::Invalid(format!("a label has at most {} bytes, and no NUL", encoded.len())));
    }
    encoded[..label.len()].copy_from_slice(label.as_bytes());
    Ok(encoded)
}

/// Behind the superblocks, and behind the bitmap blocks of the first section.
fn behind_bitmaps(bitmaps: Option<Layout>, blocks: u64) -> u64 {
    bitmaps.and_then(|layout| layout.runs(blocks).next()).map_or(2, |run| run.start.0 + run.count)
}

/// The log of a new volume of so many blocks, of an engine that has one.
///
/// # Errors
/// [`Error::NoSpace`] if the volume is too small.
pub fn log_area(
    place: Option<fn(Lba, ForLog) -> LogArea>,
    bitmaps: Option<Layout>,
    wanted: ForLog,
) -> Result<Option<LogArea>> {
    let blocks = wanted.blocks;
    let log = place.map(|place| place(Lba(behind_bitmaps(bitmaps, blocks)), wanted));
    // Half of the smallest volume is for its user.
    let least = log.map_or(MIN_BLOCKS, |log| MIN_BLOCKS_WITH_LOG.max(2 * log.run().count));
    match blocks < least {
        true => Err(Error::NoSpace(format!("a volume: it takes {} at least", exact(least)))),
        false => Ok(log),
    }
}

/// Makes an empty volume.
pub fn format(region: &dyn Region, making: &Making<'_>) -> Result<()> {
    let Making { label, owner, now, .. } = *making;
    let blocks = region.len() / BLOCK as u64;
    let blocks = if making.has_bitmaps { bitmap::fitting(blocks) } else { blocks };
    let bitmaps = making.has_bitmaps.then(|| Layout::of_new(blocks));
    let log = log_area(making.log, bitmaps, ForLog { blocks, queues: making.queues })?;
    let label = encode_label(label)?;
    // What is in the log's blocks is not valid there: the seed of entries is another one.
    let after_log = behind_bitmaps(bitmaps, blocks) + log.map_or(0, |log| log.run().count);
    let heads = making.has_heads.then(|| HeadTable::for_volume(Lba(after_log), blocks));
    let superblock = Superblock {
        version: VERSION,
        volume_id: making.volume_id,
        blocks,
        generation: 0,
        incarnation: 0,
        engine: making.engine,
        is_clean: false,
        inode_tree: Tree::default(),
        inodes: 0,
        // The inode file of a volume with bitmaps may have holes.
        generation_floor: u32::from(making.has_bitmaps),
        saved: None,
        label,
        log,
        heads,
        bitmaps,
        doubts_bitmaps: false,
        repair: None,
        later: Later::with(if making.journals_content { COMPATIBLE_JOURNALED } else { 0 }),
    };
    // What was there is not found any more: it is overwritten now.
    // A volume that was made before may end where the medium does.
    for at in copies(blocks).into_iter().chain([Lba(region.len() / BLOCK as u64 - 1)]) {
        region.write(WIPE, at.byte(), &[0; BLOCK])?;
    }
    if let Some(run) = log.filter(|_| making.zeroes_log).map(|log| log.run()) {
        for i in 0..run.count {
            region.write(WIPE, Lba(run.start.0 + i).byte(), &[0; BLOCK])?;
            (making.watch)((i + 1) * BLOCK as u64, run.count * BLOCK as u64);
        }
    }
    region.fence(FENCE)?;
    if let (Some(make), Some(log)) = (making.make_log, &log) {
        make(region, log, making.volume_id)?;
    }
    let next = after_log + heads.map_or(0, |heads| heads.0.count);
    let mut view = Unnamed(Plain { region, next }, blocks);
    let storage = Storage::new(superblock);
    storage.redo(&Operation::Structure(Structure::GrowInodes { first: 0, blocks: FIRST_INODE_BLOCKS }), &mut view)?;
    let times = Some(Times { atime: now, mtime: now, ctime: now, btime: now });
    let fields = Fields {
        born: true,
        mode: Some(DIRECTORY | 0o755),
        uid: Some(owner.0),
        gid: Some(owner.1),
        links: Some(1),
        parent: Some(ROOT),
        times,
        ..Fields::default()
    };
    storage.redo(&Operation::Assign { on: InoGen { ino: ROOT, generation: 1 }, fields: &fields }, &mut view)?;
    let mut superblock = storage.superblock.lock().unwrap();
    let is_used = |block| block < view.0.next || bitmaps::is_fixed(&superblock, block);
    let life = |ino| (ino < FIRST, false);
    bitmaps::write_all(region, &superblock, &Truth { is_used: &is_used, life: &life })?;
    region.fence(FENCE)?;
    // Both slots, so that one that rots is no loss.
    superblock.is_clean = true;
    for _ in 0..2 {
        write_superblock(&mut view.0, &mut superblock)?;
        region.fence(FENCE)?;
    }
    Ok(())
}

/// What stands in the place of one copy of the superblock. That it cannot be read is damage of this copy.
pub fn read_copy(region: &dyn Region, at: Lba) -> Result<std::result::Result<Superblock, Fault>> {
    let mut bytes = [0; BLOCK];
    match region.read(at.byte(), &mut bytes) {
        Ok(()) => Ok(Superblock::decode(&bytes, at)),
        Err(error) if is_lost(&error) => Ok(Err(Fault("a superblock cannot be read"))),
        Err(error) => Err(error.into()),
    }
}

/// The blocks of a region that may have a volume.
///
/// # Errors
/// [`Error::Unsupported`] if it is shorter than any.
pub fn blocks_of(region: &dyn Region) -> Result<u64> {
    match region.len() / BLOCK as u64 {
        0..MIN_BLOCKS => Err(Error::Unsupported("it is too small for a volume".into())),
        blocks => Ok(blocks),
    }
}

/// The current superblock of a region: the one with the highest generation, of the volume that has the most copies. The
/// copy at the end is as new as the slots: without it, the loss of one slot would bring back what was before the mount,
/// with allocators that no longer hold and an incarnation that was used. One slot may be another volume's, by a write
/// that went to a wrong place: the two other copies say so.
///
/// # Errors
/// [`Error::Unsupported`] if there is none, or a later version of Wholly wrote one; [`Error::Corrupt`] if all copies
/// are damaged, or no volume has more of them than others.
pub fn read_superblock(region: &dyn Region) -> Result<Superblock> {
    let blocks = blocks_of(region)?;
    let slots = [read_copy(region, Lba(0))?, read_copy(region, Lba(1))?];
    // The volume may end before its medium. A copy for another size is no copy.
    let ends = slots.iter().flatten().map(|slot| slot.blocks).chain([blocks]).filter(|end| *end <= blocks);
    let ends: BTreeSet<u64> = ends.collect();
    let mut found: Vec<Superblock> = slots.iter().flatten().cloned().collect();
    let mut is_later = slots.contains(&Err(LATER));
    for end in ends {
        let copy = read_copy(region, copies(end)[2])?;
        is_later |= copy == Err(LATER);
        found.extend(copy.ok().filter(|copy| copy.blocks == end));
    }
    if is_later {
        let why = "a later version of Wholly has made this volume, or used it: open it with that version";
        return Err(Error::Unsupported(why.into()));
    }
    let of = |id: [u8; 16]| found.iter().filter(|copy| copy.volume_id == id).count();
    let most = found.iter().map(|copy| of(copy.volume_id)).max().unwrap_or(0);
    let mut volumes = found.iter().filter(|copy| of(copy.volume_id) == most);
    let Some(volume_id) = volumes.next().map(|copy| copy.volume_id) else {
        let mut faults = slots.into_iter().filter_map(std::result::Result::err);
        return Err(match faults.find(|fault| *fault != Fault("not a superblock")) {
            Some(fault) => corrupt("superblock", fault),
            None => Error::Unsupported("it is not a volume: name the file or device of one".into()),
        });
    };
    if volumes.any(|copy| copy.volume_id != volume_id) {
        return Err(corrupt("superblock", Fault("its copies are of several volumes")));
    }
    let newest = |one: Superblock, other: Superblock| if other.generation > one.generation { other } else { one };
    let fitting = found.into_iter().filter(|copy| copy.volume_id == volume_id && copy.blocks <= blocks);
    let too_short = || corrupt("superblock", Fault("the medium is shorter than the volume"));
    fitting.reduce(newest).ok_or_else(too_short)
}

/// Writes the current superblock to its slot, if only the copy has it: the next generation goes to the other slot and
/// to the copy, and a crash may leave neither whole.
pub fn ensure_slot(region: &dyn Region, superblock: &Superblock) -> Result<()> {
    if read_copy(region, slot_of(superblock))?.as_ref() != Ok(superblock) {
        write_slot(&mut Plain { region, next: 0 }, superblock)?;
        region.fence(FENCE)?;
    }
    Ok(())
}

/// Stores the pointers of blocks that have moved once more. They are durable on return. Without that, the places where
/// the blocks were before would count as free, and a power failure in a later life could bring the old pointers back.
pub fn store_moved(region: &dyn Region, storage: &Storage, moved: &[Moved]) -> Result<()> {
    let view = Plain { region, next: 0 };
    let pointer = |Moved { block: (file, block), to }: Moved| {
        let (at, offset) = storage.place(&view, file.ino)?;
        let mut line = [0; LINE];
        view.load(at, offset, &mut line)?;
        let damaged = |fault| corrupt(format!("inode {}", file.ino), fault);
        let tree = Owned::decode(storage.seed, file.ino, &line).map_err(damaged)?.tree;
        // That it is another life's inode, or another block by now, its check tells.
        map::swapped(&view, storage.data_seed(file), &tree, block, (to, to))
    };
    let mut has_stored = false;
    for moved in moved {
        let found = match pointer(*moved) {
            // It leads nowhere then. Who reads all maps next says what is damaged.
            Err(Error::Corrupt { .. }) => None,
            Err(Error::Media(error)) if is_lost(&error) => None,
            found => found?,
        };
        if let Some((at, word)) = found {
            region.write(map::POINTER, at, &word.to_le_bytes())?;
            has_stored = true;
        }
    }
    if has_stored { Ok(region.fence(FENCE)?) } else { Ok(()) }
}

/// Opens a volume, and marks it as mounted.
pub fn mount(
    region: &Arc<dyn Region>,
    engine: Box<dyn Engine>,
    cache_bytes: usize,
    clock: fn() -> Timestamp,
) -> Result<Core> {
    let waiting = if read_superblock(&**region)?.is_clean { None } else { engine.recover()? };
    // The newest may have been one that recovery has undone.
    let mut superblock = read_superblock(&**region)?;
    // It is durable in its slot only now, if only the copy had it, or if the process that wrote it died before its
    // fence. The next generation goes to the other slot and to the copy, and a crash may leave neither whole.
    write_slot(&mut Plain { region: &**region, next: 0 }, &superblock)?;
    region.fence(FENCE)?;
    if let Some(map) = if superblock.is_clean { None } else { engine.inode_map()? } {
        // Durable with the new incarnation, which makes void what the engine has of it.
        superblock.set_inode_file(map);
    }
    let (is_clean, saved, heads) = (superblock.is_clean, superblock.saved, superblock.heads);
    let doubts_bitmaps = superblock.doubts_bitmaps;
    let mut core = Core::new(engine, Storage::new(superblock), cache_bytes, clock);
    let restored = is_clean && saved.is_some_and(|saved| restore(&core, &**region, saved).is_ok());
    let orphans = match core.bitmaps() {
        Some(_) if !doubts_bitmaps => read_bitmaps(&core, &**region)?,
        Some(_) => {
            let orphans = rebuild(&core, &**region, None)?;
            write_bitmaps(&core, &**region, &orphans)?;
            orphans
        }
        None if restored => Vec::new(),
        None => rebuild(&core, &**region, waiting.as_ref())?,
    };
    core.backing = Backing::find(region, &core.blocks, heads)?;
    {
        let mut superblock = core.storage.superblock.lock().unwrap();
        superblock.is_clean = false;
        superblock.doubts_bitmaps = false;
        superblock.saved = None;
        superblock.incarnation += 1;
        write_superblock(&mut Plain { region: &**region, next: 0 }, &mut superblock)?;
        region.fence(FENCE)?;
        core.engine.start(superblock.incarnation)?;
    }
    if core.engine.moves_blocks() {
        core.engine.set_inode_file(core.storage.map(), inode_blocks(&core, &**region)?);
    }
    free_orphans(&core, orphans)?;
    core.named(ROOT)?.keep();
    Ok(core)
}

/// The allocators, by the bitmaps. Returns inodes without names. No map is read but that of the inode file, for these.
fn read_bitmaps(core: &Core, region: &dyn Region) -> Result<Vec<InoGen>> {
    let superblock = core.storage.superblock.lock().unwrap().clone();
    let spaces = Spaces { blocks: &core.blocks, inodes: &core.inodes, holes: &core.holes };
    let view = Plain { region, next: 0 };
    let id = |ino| {
        let owned = core.storage.read(&view, ino)?.owned;
        match owned.links {
            0 => Ok(InoGen { ino, generation: owned.generation }),
            _ => {
                Err(corrupt(format!("inode {ino}"), Fault("it has names, and the bitmap of orphans says it has none")))
            }
        }
    };
    bitmaps::read(region, &superblock, &spaces)?.into_iter().map(id).collect()
}

/// Writes the bitmaps anew, by the allocators. They are durable on return.
fn write_bitmaps(core: &Core, region: &dyn Region, orphans: &[InoGen]) -> Result<()> {
    let superblock = core.storage.superblock.lock().unwrap().clone();
    let nameless: BTreeSet<u64> = orphans.iter().map(|id| id.ino).collect();
    let is_used = |block| core.blocks.is_used(block);
    let life = |ino| match core.holes.is_used(ino / PER_BLOCK) {
        true => (core.inodes.is_used(ino), nameless.contains(&ino)),
        false => (false, true),
    };
    bitmaps::write_all(region, &superblock, &Truth { is_used: &is_used, life: &life })?;
    Ok(region.fence(FENCE)?)
}

/// The blocks of the inode file, in their order.
fn inode_blocks(core: &Core, region: &dyn Region) -> Result<Vec<Option<Lba>>> {
    let (seed, map) = (core.storage.inode_seed(), core.storage.map());
    let view = Plain { region, next: 0 };
    let block = |index| Ok(map::get(&view, seed, &map.tree, index)?.map(|pointer| pointer.block));
    (0..map.inodes / PER_BLOCK).map(block).collect()
}

/// Frees what a mount has no use for any more: running groups, inodes without names, blocks of the inode file without
/// inodes. The caller has shut the gate.
pub fn let_go(core: &Core) -> Result<()> {
    core.check_usable()?;
    core.abort_groups();
    for inode in core.nameless() {
        match inode.unborn.load(Ordering::Acquire) {
            true => core.inodes.give(inode.id.ino, 1),
            false => core.free_inode(&inode)?,
        }
    }
    // Numbers that were freed are used until that is durable.
    core.sync()?;
    core.give_back_all()
}

/// Ends a mount: everything is durable, and the allocators are saved if there is space for that. The caller has shut
/// the gate, and ends the core before it is opened.
pub fn unmount(core: &Core, region: &dyn Region) -> Result<()> {
    core.sync()?;
    core.checkpoint(&|| u64::MAX, u64::MAX)?;
    let saved = save(core, region)?;
    region.fence(FENCE)?;
    let mut superblock = core.storage.superblock.lock().unwrap();
    superblock.saved = saved;
    superblock.is_clean = true;
    write_superblock(&mut Plain { region, next: 0 }, &mut superblock)?;
    region.fence(FENCE)?;
    core.engine.close()
}

fn save(core: &Core, region: &dyn Region) -> Result<Option<(Lba, u64)>> {
    if core.storage.bitmaps.is_some() {
        // They say it all.
        return Ok(None);
    }
    let seed = core.storage.seed;
    let holes = if core.storage.map().generation_floor > 0 { core.holes.save() } else { Vec::new() };
    let mut blocks = core.blocks.save();
    core.backing.save(&mut blocks);
    let bytes = [blocks, core.inodes.save(), holes].concat();
    let mut left = bytes.len().div_ceil(BLOCK) as u64;
    if !core.set_aside_of_free(left + 1, 0) {
        return Ok(None);
    }
    let (table_at, _) = core.blocks.take(1);
    let mut runs = Vec::new();
    while left > 0 {
        let (start, count) = core.blocks.take(left);
        runs.push(Run { start: Lba(start), count });
        left -= count;
    }
    if runs.len() > MAX_RUNS {
        return Ok(None);
    }
    let mut rest = &bytes[..];
    for run in &runs {
        let (part, after) = rest.split_at(rest.len().min(run.count as usize * BLOCK));
        region.write(SAVE, run.start.byte(), part)?;
        rest = after;
    }
    let table = Table { bytes: bytes.len() as u64, sum: seed.sum(0, 2 << 32, &bytes), runs };
    let (block, sum) = table.encode(seed, Lba(table_at));
    region.write(SAVE, Lba(table_at).byte(), &block)?;
    Ok(Some((Lba(table_at), sum)))
}

/// The bits of saved allocators.
pub struct Saved {
    pub blocks: Vec<u8>,
    pub inodes: Vec<u8>,
    /// Empty if the inode file has no holes.
    pub holes: Vec<u8>,
}

/// Reads the allocators of a volume that was unmounted.
pub fn read_saved(region: &dyn Region, superblock: &Superblock, (at, sum): (Lba, u64)) -> Result<Saved> {
    let seed = Seed::of(&superblock.volume_id);
    let view = Plain { region, next: 0 };
    let damaged = |fault| corrupt("saved allocators", fault);
    let mut block = [0; BLOCK];
    view.load(at, 0, &mut block)?;
    let table = Table::decode(seed, at, &block, sum).map_err(damaged)?;
    let [of_blocks, of_inodes, of_holes] =
        [superblock.blocks, superblock.inodes, superblock.inodes / PER_BLOCK].map(Space::saved_bytes);
    let of_holes = if superblock.generation_floor > 0 { of_holes } else { 0 };
    if table.bytes as usize != of_blocks + of_inodes + of_holes {
        return Err(damaged(Fault("they are of another length")));
    }
    let mut bytes = vec![0; table.bytes as usize];
    let mut rest = &mut bytes[..];
    for run in &table.runs {
        let len = rest.len().min((run.count as usize).saturating_mul(BLOCK));
        let (part, after) = rest.split_at_mut(len);
        view.load(run.start, 0, part)?;
        rest = after;
    }
    if !rest.is_empty() || seed.sum(0, 2 << 32, &bytes) != table.sum {
        return Err(damaged(Fault("they have a wrong checksum")));
    }
    let holes = bytes.split_off(of_blocks + of_inodes);
    let inodes = bytes.split_off(of_blocks);
    Ok(Saved { blocks: bytes, inodes, holes })
}

fn restore(core: &Core, region: &dyn Region, at: (Lba, u64)) -> Result<()> {
    let superblock = core.storage.superblock.lock().unwrap().clone();
    let Saved { blocks, inodes, holes } = read_saved(region, &superblock, at)?;
    core.blocks.restore(&blocks);
    core.inodes.restore(&inodes);
    core.holes.restore(&holes);
    Ok(())
}

/// The lines of an inode that say what it has.
pub fn decode_inode(seed: Seed, ino: u64, raw: &[u8]) -> Result<Option<(Owned, More)>> {
    let damaged = |fault| corrupt(format!("inode {ino}"), fault);
    let line = |number: usize| raw[number * LINE..][..LINE].try_into().expect("a line");
    let owned = Owned::decode(seed, ino, line(0)).map_err(damaged)?;
    if owned.mode == 0 {
        return Ok(None);
    }
    Ok(Some((owned, More::decode(seed, ino, line(2)).map_err(damaged)?)))
}

/// Finds out, from the maps of all inodes, which blocks and inodes are used. Lets the engine keep what waits in others.
/// Returns inodes without names.
fn rebuild(core: &Core, region: &dyn Region, waiting: Option<&Waiting>) -> Result<Vec<InoGen>> {
    let view = Plain { region, next: 0 };
    let (blocks, inodes, seed) = (core.blocks.units(), core.inodes.units(), core.storage.seed);
    let marks = Marks::new(blocks);
    for at in copies(blocks) {
        marks.mark(at);
    }
    core.storage.superblock.lock().unwrap().fixed().for_each(|run| marks.mark_run(run));
    let mut leaves = Vec::new();
    let first_fault = Mutex::new(None);
    let fault = |error: Error| {
        first_fault.lock().unwrap().get_or_insert(error);
    };
    let mark = |pointer: Pointer, whose: u64| {
        let outside = pointer.block.0 >= blocks - 1;
        if outside || marks.mark(pointer.block) {
            let what = if outside { "it is beyond the end of the volume" } else { "it is used twice" };
            fault(corrupt(format!("block {} of inode {whose}", pointer.block.0), Fault(what)));
        }
        !outside
    };
    // Of content that waits: homes that have content, and pointers that have replaced a home.
    let (live, moved) = (Marks::new(waiting.map_or(0, |_| blocks)), Mutex::new(Vec::new()));
    let note = |pointer: Pointer, id: InoGen, index: u64| {
        let Some(waiting) = waiting else { return };
        if waiting.homes.is_marked(pointer.block) && !pointer.reserved {
            live.mark(pointer.block);
        }
        if waiting.blocks.is_marked(pointer.block) {
            moved.lock().unwrap().push(Moved { block: (id, index), to: pointer.block });
        }
    };
    let tree = core.storage.inode_tree();
    map::walk(
        &view,
        core.storage.inode_seed(),
        &tree,
        &mut |level, index, pointer| {
            if level == 0 && index >= inodes / PER_BLOCK {
                fault(corrupt("inode file", Fault("it has a block beyond its end")));
                return false;
            }
            if level == 0 {
                leaves.push((index, pointer.block));
            }
            mark(pointer, inode::INODE_FILE)
        },
        &mut |_, _, error| fault(error),
    )?;
    let (next, orphans) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let used = Mutex::new(Vec::new());
    let work = || {
        let view = Plain { region, next: 0 };
        loop {
            let from = next.fetch_add(LOT, Ordering::Relaxed);
            let Some(lot) = leaves.get(from..leaves.len().min(from + LOT)).filter(|lot| !lot.is_empty()) else {
                return Ok::<(), Error>(());
            };
            for (index, lba) in lot {
                let mut bytes = [0; BLOCK];
                view.load(*lba, 0, &mut bytes)?;
                let mut bits = 0u16;
                for (slot, raw) in bytes.chunks_exact(INODE).enumerate() {
                    let ino = index * PER_BLOCK + slot as u64;
                    let Some((owned, more)) = decode_inode(seed, ino, raw)? else { continue };
                    bits |= 1 << slot;
                    let id = InoGen { ino, generation: owned.generation };
                    if owned.links == 0 {
                        orphans.lock().unwrap().push(id);
                    }
                    for (stream, tree) in [(Stream::Data, owned.tree), (Stream::Xattr, more.xattrs)] {
                        let seed = seed.stream(ino, owned.generation, stream);
                        let mut each = |level, index, pointer| {
                            let is_inside = mark(pointer, ino);
                            if is_inside && level == 0 && stream == Stream::Data {
                                note(pointer, id, index);
                            }
                            is_inside
                        };
                        map::walk(&view, seed, &tree, &mut each, &mut |_, _, error| fault(error))?;
                    }
                }
                used.lock().unwrap().push((*index, bits));
            }
        }
    };
    let is_much = leaves.len() > LOT;
    let threads = if is_much { thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS) } else { 1 };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        others.into_iter().map(|other| other.join().expect("a thread of the rebuild")).fold(mine, Result::and)
    })?;
    if let Some(error) = first_fault.into_inner().unwrap() {
        return Err(error);
    }
    if waiting.is_some() {
        store_moved(region, &core.storage, &moved.into_inner().unwrap())?;
        core.engine.keep(&live, &marks)?;
    }
    for block in (0..blocks).filter(|block| !marks.is_marked(Lba(*block))) {
        core.blocks.set(block, false);
    }
    core.blocks.count();
    for (index, bits) in used.into_inner().unwrap() {
        for slot in (0..PER_BLOCK).filter(|slot| bits >> slot & 1 == 0 && index * PER_BLOCK + slot >= FIRST) {
            core.inodes.set(index * PER_BLOCK + slot, false);
        }
    }
    core.inodes.count();
    // Without a floor, one that is missing was lost.
    if core.storage.map().generation_floor > 0 {
        let present: BTreeSet<u64> = leaves.iter().map(|(index, _)| *index).collect();
        for hole in (0..core.holes.units()).filter(|index| !present.contains(index)) {
            core.holes.set(hole, false);
        }
        core.holes.count();
    }
    Ok(orphans.into_inner().unwrap())
}

fn free_orphans(core: &Core, orphans: Vec<InoGen>) -> Result<()> {
    for id in orphans {
        let record = core.storage.read(&*core.engine, id.ino)?;
        match core.unawaited(|| core.free(id, &record)) {
            // It stays for the next mount.
            Err(Error::NoSpace(_)) => {}
            freed => freed?,
        }
    }
    Ok(())
}
