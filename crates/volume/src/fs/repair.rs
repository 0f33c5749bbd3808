//! Repair of a volume that is not mounted. See [`repair`].
//!
//! A repair works on an [`Overlay`]: it checks, carries out the remedies of the lowest [rank](Remedy::rank), and checks
//! again, until nothing is wrong. Then all blocks that have changed are stored at once, in four steps with a fence
//! behind each. Nothing is changed if a fault remains that is not known how to put right.
//!
//! 1. Copies of the changed blocks, and the tables that name them, go to blocks that are free before and after the
//!    repair, or beyond the end of the volume.
//! 2. A superblock that names the first table: from here on, the repair is to be finished.
//! 3. The copies go to where they belong.
//! 4. A superblock without tables, and of a new incarnation: what the log has is void. Twice, so that both slots and
//!    the copy at the end have it.
//!
//! A remedy for which there is no space is left, and the rest stored: the volume is no worse then, and its user can
//! make space.
//!
//! A crash before step 2 leaves what was there. A crash after it leaves what the next opener finishes, or the next
//! repair or check, by the steps 3 and 4 ([`finish`]). So a repair can be interrupted anywhere, and repeated.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use wholly::vfs::{Context, Errno};
use wholly::{Error, Result};
use wholly_media::{Region, Site};

use super::check::{Examined, Finding, Watch, examine};
use super::group::{Group, Need};
use super::map;
use super::mount::{self, Marks, Plain, ensure_slot, read_superblock, store_moved};
use super::names::Birth;
use super::overlay::{Overlay, is_lost};
use super::remedy::{MapOf, Remedy};
use super::storage::{ENTRY_CLEAR, INODE_BLOCK, INODE_LINE, LEAF, Storage, write_superblock};
use super::{DIRECTORY, REGULAR, TYPE};
use crate::engine::{Engine, Kind, Load, Moved, StorageView, corrupt};
use crate::format::dir::{MAX_TRIE_DEPTH, NAME_MAX, SLOT, leaf_depth};
use crate::format::inode::{INODE, INODE_FILE, LINE, Line, More, Owned, PER_BLOCK, ROOT, Target, Time, Times, Tree};
use crate::format::pointer::{Pointer, depth_for, nodes_for};
use crate::format::repair::{Move, PER_TABLE, Table, copy_sum};
use crate::format::superblock::{Superblock, copies};
use crate::format::xattr::{self, TOTAL_MAX};
use crate::format::{BLOCK, Fault, Lba, Seed, Stream, mix};

const COPY: Site = Site("repair.copy");
const TABLE: Site = Site("repair.table");
const COPY_FENCE: Site = Site("repair.copy.fence");
const COMMIT_FENCE: Site = Site("repair.commit.fence");
const HOME: Site = Site("repair.home");
const HOME_FENCE: Site = Site("repair.home.fence");
const END_FENCE: Site = Site("repair.end.fence");
const LENGTH: Site = Site("repair.length");
/// Where a repair stores, besides superblocks and what a mount and an unmount store.
pub const SITES: &[Site] = &[COPY, TABLE, COPY_FENCE, COMMIT_FENCE, HOME, HOME_FENCE, END_FENCE, LENGTH];

/// The most checks of one repair: each remedy may uncover what it hid, and no fault hides many.
const MOST_ROUNDS: usize = 64;
/// Bytes of memory for the mount that names inodes anew.
const CACHE: usize = 1 << 20;

/// Which faults are put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Those whose remedy loses nothing. If there are others, nothing is changed.
    Safe,
    /// All.
    All,
}

/// A fault, and what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    /// What was wrong.
    pub finding: Finding,
    /// What became of it.
    pub done: String,
}

/// Makes an engine that stores in place, for the mount inside of a repair.
pub type InPlace<'e> = dyn Fn(&Arc<dyn Region>) -> Box<dyn Engine> + 'e;

/// Makes a log void whose patches are stored, and that names what may have moved. A crash repeats that.
///
/// # Errors
/// Those of the medium.
pub fn end_log(region: &dyn Region, moved: &[Moved]) -> Result<()> {
    // The newest may have been one that was undone.
    let mut superblock = read_superblock(region)?;
    ensure_slot(region, &superblock)?;
    store_moved(region, &Storage::new(superblock.clone()), moved)?;
    (superblock.saved, superblock.is_clean) = (None, false);
    superblock.incarnation += 1;
    write_superblock(&mut Plain { region, next: 0 }, &mut superblock)?;
    Ok(region.fence(COMMIT_FENCE)?)
}

/// Gives up what is left of a repair whose copies are damaged: what it would have put right is damaged still.
///
/// # Errors
/// Those of the medium.
pub fn give_up(region: &dyn Region) -> Result<()> {
    let mut superblock = read_superblock(region)?;
    ensure_slot(region, &superblock)?;
    (superblock.repair, superblock.saved, superblock.is_clean) = (None, None, false);
    superblock.incarnation += 1;
    write_superblock(&mut Plain { region, next: 0 }, &mut superblock)?;
    Ok(region.fence(COMMIT_FENCE)?)
}

/// What a repair over an overlay has come to.
#[derive(Default)]
pub struct Outcome {
    pub done: Vec<Mended>,
    /// What could not be put right.
    pub left: Vec<Finding>,
    /// Whether what is left is only for want of space: the rest is worth storing.
    pub is_full: bool,
}

/// Makes all metadata sound over an overlay.
///
/// # Errors
/// Those of a check.
pub fn mend(
    over: &Arc<Overlay<'static>>,
    extent: Repair,
    in_place: &InPlace<'_>,
    watch: &mut Watch<'_>,
) -> Result<Outcome> {
    let region: Arc<dyn Region> = over.clone();
    // Saved allocators do not hold for what is going to be changed.
    let mut superblock = read_superblock(&*region)?;
    (superblock.saved, superblock.is_clean) = (None, false);
    write_superblock(&mut Plain { region: &*region, next: 0 }, &mut superblock)?;
    let (mut outcome, mut refused) = (Outcome::default(), HashSet::new());
    let mut rounds = 0;
    loop {
        let superblock = read_superblock(&*region)?;
        let examined = examine(&*region, &superblock, &mut |progress| watch(progress))?;
        let Examined { checked, remedies, marks, is_complete } = examined;
        let is_safe = is_complete && remedies.iter().all(Remedy::is_safe);
        let open = || remedies.iter().filter(|remedy| **remedy != Remedy::Other && !refused.contains(*remedy));
        let rank = open().map(Remedy::rank).min();
        // A check that did not list all is no round: what it lists goes, and the medium has only so much.
        rounds += usize::from(is_complete);
        let Some(rank) = rank.filter(|_| (extent == Repair::All || is_safe) && rounds <= MOST_ROUNDS) else {
            let is_only_full = rank.is_none() && !refused.is_empty();
            (outcome.left, outcome.is_full) = (checked.findings, is_only_full);
            return Ok(outcome);
        };
        let mut surgeon = Surgeon::new(&region, superblock, &marks);
        let mut nameless = Vec::new();
        for (finding, remedy) in checked.findings.into_iter().zip(&remedies) {
            if remedy.rank() != rank || refused.contains(remedy) {
                continue;
            }
            if let Remedy::Attach { ino, kind } = *remedy {
                nameless.push((ino, u32::from(kind) << 12));
            }
            match surgeon.apply(remedy) {
                Ok(more) => outcome.done.push(Mended { finding, done: remedy.done() + more }),
                Err(Error::NoSpace(_)) => _ = refused.insert(remedy.clone()),
                Err(error) => return Err(error),
            }
        }
        if !nameless.is_empty() {
            let unattached = attach(&region, in_place, &nameless)?;
            outcome.done.retain(|it| !unattached.iter().any(|(ino, _)| it.finding.place == format!("inode {ino}")));
            refused.extend(unattached.iter().map(|(ino, kind)| Remedy::Attach { ino: *ino, kind: (kind >> 12) as u8 }));
        }
    }
}

/// What a mount and an unmount put in order: it frees what was removed, saves the allocators, and writes all copies of
/// the superblock. What the log had is stored or void.
///
/// # Errors
/// Those of a mount.
pub fn tidy(region: &Arc<dyn Region>, in_place: &InPlace<'_>) -> Result<()> {
    let core = mount::mount(region, in_place(region), CACHE, super::clock)?;
    let _shut = core.shut();
    let unmounted = mount::unmount(&core, &**region);
    core.end();
    unmounted
}

/// Gives inodes names in a directory of the root that nobody but the superuser can enter. Returns those for which there
/// is no space.
fn attach(region: &Arc<dyn Region>, in_place: &InPlace<'_>, nameless: &[(u64, u32)]) -> Result<Vec<(u64, u32)>> {
    let mut core = mount::mount(region, in_place(region), CACHE, super::clock)?;
    // The blocks that are kept are for this.
    core.kept = 0;
    let core = core;
    let root = core.named(ROOT)?;
    let name_of = |number: u32, name: &str| match number {
        0 => name.to_owned(),
        number => format!("{name}-{number}"),
    };
    let mut number = 0;
    let dir = loop {
        let name = name_of(number, "lost+found");
        let found = core.find(&root, &root.state.read().unwrap(), name.as_bytes())?.and_then(|place| place.found);
        match found.map(|found| found.head) {
            None => {
                let birth = Birth { mode: DIRECTORY | 0o700, rdev: 0, target: b"" };
                match core.make(&Context::superuser(), ROOT, name.as_bytes(), &birth) {
                    Ok(dir) => break dir,
                    Err(Errno::NOSPC) => {
                        drop(root);
                        core.engine.sync()?;
                        return Ok(nameless.to_vec());
                    }
                    Err(errno) => return Err(Error::Refused(name, errno)),
                }
            }
            Some(head) if u32::from(head.kind) << 12 == DIRECTORY => {
                let dir = core.named(head.ino)?;
                let owned = dir.state.read().unwrap().record.owned;
                if owned.uid == 0 && owned.mode & 0o077 == 0 {
                    break dir;
                }
                number += 1;
            }
            Some(_) => number += 1,
        }
    };
    let mut state = dir.state.write().unwrap();
    let mut left = Vec::new();
    for &(ino, kind) in nameless {
        let (mut number, mut name, mut place) = (0, String::new(), None);
        while name.is_empty() {
            let tried = name_of(number, &format!("#{ino}"));
            place = core.find(&dir, &state, tried.as_bytes())?;
            match &place {
                Some(it) if it.found.is_some() => number += 1,
                _ => name = tried,
            }
        }
        debug_assert!(name.len() <= NAME_MAX);
        let place = match core.make_room(&dir, &mut state, name.as_bytes(), place) {
            Err(Error::NoSpace(_)) => {
                left.push((ino, kind));
                continue;
            }
            place => place?,
        };
        let mut group = Group::begin(&core, Kind::Implicit, 0, Need::Vital)?;
        core.insert(&mut group, &dir, &place, name.as_bytes(), (ino, kind))?;
        group.commit()?;
    }
    drop(state);
    drop((dir, root));
    core.engine.sync()?;
    Ok(left)
}

/// Carries out remedies.
struct Surgeon<'r> {
    region: &'r dyn Region,
    marks: &'r Marks,
    storage: Storage,
    seed: Seed,
    blocks: u64,
    now: Time,
    /// Free blocks that were found, and where to look on.
    free: VecDeque<Lba>,
    next: u64,
}

impl Load for Surgeon<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        Plain { region: self.region, next: 0 }.load(at, offset, buf)
    }
}

impl StorageView for Surgeon<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.region.write(site, at.byte() + offset as u64, bytes)?)
    }

    fn fresh(&mut self) -> Lba {
        self.free.pop_front().expect("what is taken was found before")
    }

    fn release(&mut self, _at: Lba) {
        // The next round finds it free.
    }
}

impl<'r> Surgeon<'r> {
    fn new(region: &'r Arc<dyn Region>, superblock: Superblock, marks: &'r Marks) -> Surgeon<'r> {
        let now = clock_gettime(ClockId::Realtime);
        Surgeon {
            region: &**region,
            marks,
            seed: Seed::of(&superblock.volume_id),
            blocks: superblock.blocks,
            storage: Storage::new(superblock),
            now: Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 },
            free: VecDeque::new(),
            next: 2,
        }
    }

    /// Finds free blocks.
    fn need(&mut self, count: u64) -> Result<()> {
        while (self.free.len() as u64) < count {
            if self.next >= self.blocks - 1 {
                return Err(Error::NoSpace(format!("a repair: it takes {count} more blocks")));
            }
            if !self.marks.is_marked(Lba(self.next)) {
                self.free.push_back(Lba(self.next));
            }
            self.next += 1;
        }
        Ok(())
    }

    /// A line of an inode; `None` if it is damaged.
    fn line<L: Line>(&self, ino: u64) -> Result<Option<L>> {
        let (lba, at) = self.storage.place(self, ino)?;
        let mut raw = [0; LINE];
        self.load(lba, at + L::NUMBER * LINE, &mut raw)?;
        Ok(L::decode(self.seed, ino, &raw).ok())
    }

    fn put<L: Line>(&mut self, ino: u64, line: &L) -> Result<()> {
        let (lba, at) = self.storage.place(self, ino)?;
        self.update(INODE_LINE, lba, at + L::NUMBER * LINE, &line.encode(self.seed, ino))
    }

    /// Line 0 of an inode in use.
    fn owned(&self, ino: u64) -> Result<Option<Owned>> {
        Ok(self.line::<Owned>(ino)?.filter(|owned| owned.mode != 0))
    }

    fn tree(&self, of: MapOf) -> Result<Option<(u64, Tree)>> {
        let ino = match of {
            MapOf::InodeFile => {
                let seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
                return Ok(Some((seed, self.storage.inode_tree())));
            }
            MapOf::Content(ino) | MapOf::Xattrs(ino) => ino,
        };
        let Some(owned) = self.owned(ino)? else { return Ok(None) };
        Ok(match of {
            MapOf::Xattrs(_) => {
                let more: Option<More> = self.line(ino)?;
                more.map(|more| (self.seed.stream(ino, owned.generation, Stream::Xattr), more.xattrs))
            }
            _ => Some((self.seed.stream(ino, owned.generation, Stream::Data), owned.tree)),
        })
    }

    fn set_tree(&mut self, of: MapOf, tree: Tree) -> Result<()> {
        match of {
            MapOf::InodeFile => self.set_inode_file(tree, None),
            MapOf::Content(ino) => match self.owned(ino)? {
                Some(owned) => self.put(ino, &Owned { tree, ..owned }),
                None => Ok(()),
            },
            MapOf::Xattrs(ino) => match self.line::<More>(ino)? {
                Some(more) => self.put(ino, &More { xattrs: tree, ..more }),
                None => Ok(()),
            },
        }
    }

    fn set_inode_file(&mut self, tree: Tree, inodes: Option<u64>) -> Result<()> {
        let mut superblock = self.storage.superblock.lock().unwrap().clone();
        superblock.inode_tree = tree;
        superblock.inodes = inodes.unwrap_or(superblock.inodes);
        write_superblock(self, &mut superblock)?;
        self.storage = Storage::new(superblock);
        Ok(())
    }

    fn with_tree(&mut self, of: MapOf, change: impl FnOnce(&mut Self, u64, &mut Tree) -> Result<()>) -> Result<()> {
        let Some((seed, mut tree)) = self.tree(of)? else { return Ok(()) };
        let changed = change(self, seed, &mut tree);
        match changed {
            Ok(()) | Err(Error::NoSpace(_)) => self.set_tree(of, tree).and(changed),
            Err(error) => Err(error),
        }
    }

    fn cut(&mut self, of: MapOf, level: u8, index: u64) -> Result<()> {
        self.with_tree(of, |it, seed, tree| map::cut(it, seed, tree, (level, index)))
    }

    /// The same of an inode, whose content is not that which it had. A program then runs with its user's rights only.
    fn cut_content(&mut self, of: MapOf, level: u8, index: u64) -> Result<&'static str> {
        self.cut(of, level, index)?;
        match of {
            MapOf::Content(ino) => self.distrust(ino),
            _ => Ok(""),
        }
    }

    /// Takes the set-ID bits and the capabilities from a file. Returns what is to be said of that.
    fn distrust(&mut self, ino: u64) -> Result<&'static str> {
        const SET_IDS: u32 = 0o6000;
        let Some(owned) = self.owned(ino)?.filter(|owned| owned.mode & TYPE == REGULAR) else { return Ok("") };
        if owned.mode & SET_IDS != 0 {
            self.put(ino, &Owned { mode: owned.mode & !SET_IDS, ..owned })?;
        }
        let had_capability = match self.drop_capability(ino) {
            // The attributes are damaged, and go.
            Err(Error::Corrupt { .. }) => false,
            dropped => dropped?,
        };
        let is_changed = owned.mode & SET_IDS != 0 || had_capability;
        Ok(if is_changed { "; its set-ID bits and capabilities are lost" } else { "" })
    }

    fn drop_capability(&mut self, ino: u64) -> Result<bool> {
        let Some((seed, mut tree)) = self.tree(MapOf::Xattrs(ino))? else { return Ok(false) };
        let (Some(owned), Some(more)) = (self.owned(ino)?, self.line::<More>(ino)?) else { return Ok(false) };
        let len = more.xattr_bytes as usize;
        if len > TOTAL_MAX {
            return Ok(false);
        }
        let (mut bytes, mut blocks) = (vec![0; len], Vec::new());
        for (part, index) in bytes.chunks_mut(BLOCK).zip(0..) {
            let Some(pointer) = map::get(self, seed, &tree, index)? else { return Ok(false) };
            self.load(pointer.block, 0, part)?;
            blocks.push(pointer.block);
        }
        if self.seed.xattr_sum(ino, owned.generation, &bytes) != more.xattr_sum {
            return Ok(false);
        }
        let Ok(mut xattrs) = xattr::decode(&bytes) else { return Ok(false) };
        let before = xattrs.len();
        xattrs.retain(|(name, _)| name != b"security.capability");
        if xattrs.len() == before {
            return Ok(false);
        }
        let bytes = xattr::encode(&xattrs);
        for (part, block) in bytes.chunks(BLOCK).zip(&blocks) {
            self.update(LEAF, *block, 0, part)?;
        }
        match bytes.len().div_ceil(BLOCK) {
            0 => tree = Tree::default(),
            count => map::clear(self, seed, &mut tree, count as u64, u64::MAX)?,
        }
        let sum = if bytes.is_empty() { 0 } else { self.seed.xattr_sum(ino, owned.generation, &bytes) };
        self.put(ino, &More { xattrs: tree, xattr_bytes: bytes.len() as u32, xattr_sum: sum, ..more })?;
        Ok(true)
    }

    /// A generation that no life of an inode had, as nearly as can be: what hung on the last one is not valid.
    fn new_generation(&self, ino: u64) -> u32 {
        let superblock = self.storage.superblock.lock().unwrap();
        mix(ino, superblock.generation) as u32 | 1 << 31
    }

    /// Others than the owner lose their permissions, as lists of what they may do are lost.
    fn close_to_others(&mut self, ino: u64) -> Result<()> {
        match self.owned(ino)? {
            Some(owned) => self.put(ino, &Owned { mode: owned.mode & !0o077, ..owned }),
            None => Ok(()),
        }
    }

    /// Returns what is to be said besides.
    fn apply(&mut self, remedy: &Remedy) -> Result<&'static str> {
        match *remedy {
            Remedy::Other | Remedy::Attach { .. } => {}
            Remedy::Superblocks => {
                // One after the other.
                let mut superblock = self.storage.superblock.lock().unwrap().clone();
                (0..2).try_for_each(|_| write_superblock(self, &mut superblock))?;
                self.storage = Storage::new(superblock);
            }
            Remedy::Inode(ino) => {
                let generation = self.line::<Owned>(ino)?.map(|owned| owned.generation);
                let generation = generation.unwrap_or_else(|| self.new_generation(ino));
                let (lba, at) = self.storage.place(self, ino)?;
                self.update(INODE_LINE, lba, at, &[0; INODE])?;
                self.put(ino, &Owned { generation, ..Owned::default() })?;
            }
            Remedy::Times(ino) => {
                let now = self.now;
                self.put(ino, &Times { atime: now, mtime: now, ctime: now, btime: now })?;
            }
            Remedy::More(ino) => {
                self.put(ino, &More::default())?;
                self.close_to_others(ino)?;
            }
            Remedy::Target(ino) => self.put(ino, &Target::default())?,
            Remedy::Xattrs(ino) => {
                let more = self.line::<More>(ino)?.unwrap_or_default();
                self.put(ino, &More { xattrs: Tree::default(), xattr_bytes: 0, xattr_sum: 0, ..more })?;
                self.close_to_others(ino)?;
            }
            Remedy::Cut { of, level, index } | Remedy::Twice { of, level, index } => {
                return self.cut_content(of, level, index);
            }
            Remedy::Unowned { ino, index } => return self.cut_content(MapOf::Content(ino), 0, index),
            Remedy::Copy { ino, index } => {
                if self.need(1).is_err() {
                    self.cut_content(MapOf::Content(ino), 0, index)?;
                    return Ok(", but for this file there is no space: they are lost in it");
                }
                self.copy(ino, index)?;
                return self.distrust(ino);
            }
            Remedy::Keep { ino, index } => {
                let of = self.tree(MapOf::Content(ino))?;
                if let (Some((seed, tree)), Some(owned)) = (of, self.owned(ino)?)
                    && let Some(pointer) = map::get(self, seed, &tree, index)?
                    && let Some(rest) = beyond_end(&owned, index)
                {
                    self.update(LEAF, pointer.block, rest, &[0; BLOCK][rest..])?;
                }
                return self.distrust(ino);
            }
            Remedy::Blocks { of, count } => self.with_tree(of, |_, _, tree| {
                tree.blocks = count;
                Ok(())
            })?,
            Remedy::InodeFile => self.fill_inode_file()?,
            Remedy::Entry { at: (lba, slot) }
            | Remedy::Slot { at: (lba, slot) }
            | Remedy::Stray { at: (lba, slot) }
            | Remedy::Name { at: (lba, slot) } => self.update(ENTRY_CLEAR, lba, slot * SLOT, &[0; 8])?,
            Remedy::Root => self.make_root()?,
            Remedy::Leaves(ino) => self.fill_leaves(ino)?,
            Remedy::Links { ino, names } => {
                if let Some(owned) = self.owned(ino)? {
                    self.put(ino, &Owned { links: names, ..owned })?;
                }
            }
            Remedy::Parent { ino, parent } => {
                if let Some(more) = self.line::<More>(ino)? {
                    self.put(ino, &More { parent, ..more })?;
                }
            }
        }
        Ok("")
    }

    /// Gives a block of a file a copy of its own. The block for it was found.
    fn copy(&mut self, ino: u64, index: u64) -> Result<()> {
        let Some(owned) = self.owned(ino)? else { return Ok(()) };
        self.with_tree(MapOf::Content(ino), |it, seed, tree| {
            let Some(pointer) = map::get(it, seed, tree, index)? else { return Ok(()) };
            let (mut bytes, block) = ([0; BLOCK], it.fresh());
            it.load(pointer.block, 0, &mut bytes)?;
            if let Some(rest) = beyond_end(&owned, index) {
                bytes[rest..].fill(0);
            }
            it.update(LEAF, block, 0, &bytes)?;
            map::assign(it, seed, tree, (index, 1), |_| Pointer { block, ..pointer })
        })
    }

    fn level_0(&self, seed: u64, tree: &Tree) -> Result<BTreeSet<u64>> {
        let mut found = BTreeSet::new();
        let end = self.blocks - 1;
        let mut each = |level, index, pointer: Pointer| {
            if level == 0 {
                found.insert(index);
            }
            pointer.block.0 < end
        };
        map::walk(self, seed, tree, &mut each, &mut |_, _, _| ())?;
        Ok(found)
    }

    /// Blocks of inodes that are not in use, up to the last one that is there.
    fn fill_inode_file(&mut self) -> Result<()> {
        let Some((seed, mut tree)) = self.tree(MapOf::InodeFile)? else { return Ok(()) };
        let found = self.level_0(seed, &tree)?;
        let count = found.last().map_or(1, |last| last + 1);
        if count > self.blocks {
            return Err(corrupt("inode file", Fault("it is larger than the volume")));
        }
        let mut filled = Ok(());
        for index in (0..count).filter(|index| !found.contains(index)) {
            filled = self.need(1 + nodes_for(tree.depth, depth_for(index).max(tree.depth), index, index));
            if filled.is_err() {
                break;
            }
            let (block, mut bytes) = (self.fresh(), [0; BLOCK]);
            for (raw, ino) in bytes.chunks_exact_mut(INODE).zip(index * PER_BLOCK..) {
                let owned = Owned { generation: self.new_generation(ino), ..Owned::default() };
                raw[..LINE].copy_from_slice(&owned.encode(self.seed, ino));
            }
            self.update(INODE_BLOCK, block, 0, &bytes)?;
            map::assign(self, seed, &mut tree, (index, 1), |_| Pointer::to(block))?;
        }
        self.set_inode_file(tree, Some(count * PER_BLOCK)).and(filled)
    }

    fn make_root(&mut self) -> Result<()> {
        let generation = match self.line::<Owned>(ROOT)? {
            Some(owned) => owned.generation.wrapping_add(1).max(1),
            None => self.new_generation(ROOT),
        };
        self.apply(&Remedy::Times(ROOT))?;
        self.put(ROOT, &More { parent: ROOT, ..More::default() })?;
        self.put(ROOT, &Target::default())?;
        self.put(ROOT, &Owned { mode: DIRECTORY | 0o755, links: 1, generation, ..Owned::default() })
    }

    /// Makes the leaves of a directory cover each hash once. Of leaves that cover the same, those stay that cover all.
    fn fill_leaves(&mut self, ino: u64) -> Result<()> {
        self.with_tree(MapOf::Content(ino), |it, seed, tree| {
            let mut leaves = it.level_0(seed, tree)?;
            let mut leaving = Vec::new();
            for leaf in leaves.iter().copied().collect::<Vec<_>>() {
                if !leaves.contains(&leaf) {
                    continue;
                }
                let below: Vec<u64> = descendants(&leaves, leaf).collect();
                if below.is_empty() {
                    continue;
                }
                let part = |leaf: u64| 1u64 << (MAX_TRIE_DEPTH - leaf_depth(leaf));
                let covered: u64 = below.iter().map(|leaf| part(*leaf)).sum();
                let goes: BTreeSet<u64> =
                    if covered >= part(leaf) { [leaf].into() } else { below.into_iter().collect() };
                leaves.retain(|leaf| !goes.contains(leaf));
                leaving.extend(goes);
            }
            for leaf in leaving {
                map::clear(it, seed, tree, leaf, leaf + 1)?;
            }
            let mut missing = Vec::new();
            if !leaves.is_empty() {
                gaps(&leaves, 1, &mut missing);
            }
            for leaf in missing {
                it.need(1 + nodes_for(tree.depth, depth_for(leaf).max(tree.depth), leaf, leaf))?;
                let block = it.fresh();
                it.update(LEAF, block, 0, &[0; BLOCK])?;
                map::assign(it, seed, tree, (leaf, 1), |_| Pointer::to(block))?;
            }
            Ok(())
        })
    }
}

/// The byte of a block of a file from which on it is beyond the end of the file.
fn beyond_end(owned: &Owned, index: u64) -> Option<usize> {
    let rest = owned.size.saturating_sub(index.saturating_mul(BLOCK as u64));
    (rest < BLOCK as u64).then_some(rest as usize)
}

/// Leaves that cover a part of what a leaf covers.
fn descendants(leaves: &BTreeSet<u64>, leaf: u64) -> impl Iterator<Item = u64> {
    (1..=MAX_TRIE_DEPTH - leaf_depth(leaf))
        .flat_map(move |depth| leaves.range(leaf << depth..(leaf + 1) << depth).copied())
}

/// The largest leaves that are missing below a place of the trie.
fn gaps(leaves: &BTreeSet<u64>, at: u64, missing: &mut Vec<u64>) {
    if leaves.contains(&at) {
        return;
    }
    if descendants(leaves, at).next().is_none() {
        missing.push(at);
        return;
    }
    gaps(leaves, 2 * at, missing);
    gaps(leaves, 2 * at + 1, missing);
}

/// Stores what a repair has changed: all of it or nothing. `before` are the blocks in use without the repair.
///
/// # Errors
/// If there is no room for copies of what has changed; those of the medium.
pub fn store(region: &dyn Region, over: &Overlay<'_>, before: &Marks) -> Result<()> {
    over.confirm()?;
    let mut after = read_superblock(over)?;
    let marks = examine(over, &after, &mut |_| std::ops::ControlFlow::Continue(()))?.marks;
    // A block that could not be read and is free now is written, so that it can be read.
    let lost: HashSet<u64> = over.unreadable().into_iter().map(|(block, _)| block).collect();
    for block in lost.iter().filter(|block| **block < after.blocks && !marks.is_marked(Lba(**block))) {
        over.put(Lba(*block).byte(), &[0; BLOCK])?;
    }
    // What was taken and given up again is free, and may have a copy.
    let superblocks = copies(after.blocks);
    let stays = |block: u64| {
        let is_used = lost.contains(&block) || block < after.blocks && marks.is_marked(Lba(block));
        is_used && !superblocks.contains(&Lba(block))
    };
    let mut count = 0;
    over.changes(|block, _| {
        count += usize::from(stays(block));
        Ok(())
    })?;
    let tables = count.div_ceil(PER_TABLE);
    let wanted = count + tables;
    let is_free = |block: &u64| {
        let is_inside = *block < after.blocks;
        let is_used = is_inside && (marks.is_marked(Lba(*block)) || before.is_marked(Lba(*block)));
        !is_used && !lost.contains(block) && !superblocks.contains(&Lba(*block))
    };
    let (len, end) = (region.len(), region.len() / BLOCK as u64);
    let mut room: Vec<Lba> = (2..end).filter(is_free).take(wanted).map(Lba).collect();
    let missing = (wanted - room.len()) as u64;
    room.extend((end..end + missing).map(Lba));
    let shorten = || if region.len() > len { region.set_len(LENGTH, len) } else { Ok(()) };
    let prepare = || {
        if missing > 0 {
            region.extend(LENGTH, (end + missing) * BLOCK as u64)?;
        }
        store_copies(region, over, &stays, room.split_at(tables))
    };
    let next = match prepare() {
        Ok(next) => next,
        Err(error) => {
            shorten()?;
            return Err(error);
        }
    };
    let current = read_superblock(region)?;
    ensure_slot(region, &current)?;
    after.generation = current.generation;
    after.incarnation = after.incarnation.max(current.incarnation);
    (after.repair, after.saved, after.is_clean) = (next, None, false);
    if next.is_none() {
        // Superblocks alone.
        return end_with(region, after);
    }
    write_superblock(&mut Plain { region, next: 0 }, &mut after)?;
    region.fence(COMMIT_FENCE)?;
    finish(region)?;
    Ok(shorten()?)
}

/// Stores the copies, and the tables that name them. Returns the first table.
fn store_copies(
    region: &dyn Region,
    over: &Overlay<'_>,
    stays: &dyn Fn(u64) -> bool,
    (of_tables, of_copies): (&[Lba], &[Lba]),
) -> Result<Option<(Lba, u64)>> {
    let seed = Seed::of(&read_superblock(over)?.volume_id);
    let (mut moves, mut room) = (Vec::new(), of_copies.iter());
    over.changes(|block, bytes| {
        if stays(block) {
            let copy = *room.next().expect("they were counted");
            region.write(COPY, copy.byte(), bytes)?;
            moves.push(Move { home: Lba(block), copy, sum: copy_sum(seed, copy, bytes) });
        }
        Ok(())
    })?;
    let mut next = None;
    for (at, moves) in of_tables.iter().zip(moves.chunks(PER_TABLE)).rev() {
        let (block, sum) = Table { next, moves: moves.to_vec() }.encode(seed, *at);
        region.write(TABLE, at.byte(), &block)?;
        next = Some((*at, sum));
    }
    region.fence(COPY_FENCE)?;
    Ok(next)
}

/// What an unfinished repair has to store yet: blocks, and where their bytes are.
///
/// # Errors
/// [`Error::Corrupt`] if it is damaged; those of the medium.
pub fn unfinished(region: &dyn Region, superblock: &Superblock) -> Result<Vec<(Lba, Lba)>> {
    let (view, seed) = (Plain { region, next: 0 }, Seed::of(&superblock.volume_id));
    let damaged = |fault| corrupt("an unfinished repair", fault);
    let load = |at: Lba| {
        let mut block = [0; BLOCK];
        match view.load(at, 0, &mut block) {
            Err(Error::Media(error)) if is_lost(&error) => Err(damaged(Fault("a block of it cannot be read"))),
            loaded => loaded.map(|()| block),
        }
    };
    // Each block is named once: so there is an end.
    let named = Marks::new(region.len() / BLOCK as u64);
    copies(superblock.blocks).into_iter().for_each(|at| _ = named.mark(at));
    let once = |at: Lba| match named.mark(at) {
        false => Ok(()),
        true => Err(damaged(Fault("it names a block twice"))),
    };
    let mut all = Vec::new();
    let mut next = superblock.repair;
    while let Some((at, sum)) = next {
        once(at)?;
        let table = Table::decode(seed, at, &load(at)?, sum).map_err(damaged)?;
        for Move { home, copy, sum } in table.moves {
            once(home)?;
            once(copy)?;
            if home.0 >= superblock.blocks || copy_sum(seed, copy, &load(copy)?) != sum {
                return Err(damaged(Fault("the copy of a block has a wrong checksum")));
            }
            all.push((home, copy));
        }
        next = table.next;
    }
    Ok(all)
}

/// Finishes a repair that was interrupted. Returns whether there was one.
///
/// # Errors
/// As [`unfinished`].
pub fn finish(region: &dyn Region) -> Result<bool> {
    let superblock = read_superblock(region)?;
    if superblock.repair.is_none() {
        return Ok(false);
    }
    let all = unfinished(region, &superblock)?;
    ensure_slot(region, &superblock)?;
    for (home, copy) in all {
        let mut bytes = [0; BLOCK];
        region.read(copy.byte(), &mut bytes)?;
        region.write(HOME, home.byte(), &bytes)?;
    }
    region.fence(HOME_FENCE)?;
    end_with(region, superblock)?;
    Ok(true)
}

/// A superblock without tables, in both slots and at the end. The next mount finds out what is free.
fn end_with(region: &dyn Region, mut superblock: Superblock) -> Result<()> {
    (superblock.repair, superblock.saved, superblock.is_clean) = (None, None, false);
    superblock.incarnation += 1;
    for _ in 0..2 {
        write_superblock(&mut Plain { region, next: 0 }, &mut superblock)?;
        region.fence(END_FENCE)?;
    }
    Ok(())
}
