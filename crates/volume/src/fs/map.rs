//! Maps: from a block of a file to a block of the volume. Functions that change one are mutators (invariant 1).

use wholly_error::Result;
use wholly_media::Site;

use crate::engine::{Load, StorageView, corrupt};
use crate::format::inode::Tree;
use crate::format::pointer::{self, FANOUT, FANOUT_BITS, MAX_DEPTH, Pointer, RawNode, depth_for, reach};
use crate::format::{BLOCK, Fault, Lba};

const NODE: Site = Site("volume.map.node");
pub const POINTER: Site = Site("volume.map.pointer");
pub const SITES: &[Site] = &[NODE, POINTER];

/// Words that one look at a node reads.
const AHEAD: usize = 32;

fn at(index: u64, level: u8) -> u64 {
    index >> (FANOUT_BITS * u32::from(level))
}

/// The place of a pointer in its node.
fn slot(index: u64) -> usize {
    (index % FANOUT) as usize * 8
}

#[cold]
fn damaged(seed: u64, level: u8, index: u64, fault: Fault) -> wholly_error::Error {
    corrupt(format!("map of stream {seed:#x}, level {level}, index {index}"), fault)
}

fn decode(seed: u64, level: u8, index: u64, raw: u64) -> Result<Option<Pointer>> {
    pointer::decode(seed, level, index, raw).map_err(|fault| damaged(seed, level, index, fault))
}

fn word(load: &(impl Load + ?Sized), node: Lba, offset: usize) -> Result<u64> {
    let mut raw = [0; 8];
    load.load(node, offset, &mut raw)?;
    Ok(u64::from_le_bytes(raw))
}

/// The pointer of a block.
#[inline]
pub fn get(load: &(impl Load + ?Sized), seed: u64, tree: &Tree, block: u64) -> Result<Option<Pointer>> {
    Ok(find(load, seed, tree, block)?.0)
}

/// The pointer of a block; for a hole, how many blocks from it on are holes at least.
fn find(load: &(impl Load + ?Sized), seed: u64, tree: &Tree, block: u64) -> Result<(Option<Pointer>, u64)> {
    if block >= reach(tree.depth) {
        return Ok((None, u64::MAX));
    }
    let (mut raw, mut level) = (tree.root, tree.depth);
    loop {
        let Some(pointer) = decode(seed, level, at(block, level), raw)? else {
            return Ok((None, reach(level) - block % reach(level)));
        };
        if level == 0 {
            return Ok((Some(pointer), 1));
        }
        level -= 1;
        raw = word(load, pointer.block, slot(at(block, level)))?;
    }
}

/// What is at a block, and for how many of up to `most` blocks it goes on: a hole, or consecutive blocks of the volume.
pub fn run(
    load: &(impl Load + ?Sized),
    seed: u64,
    tree: &Tree,
    block: u64,
    most: u64,
) -> Result<(Option<Pointer>, u64)> {
    let (first, mut count) = find(load, seed, tree, block)?;
    count = count.min(most);
    // Further pointers are in the same node, mostly. Each round reads some of them.
    while count < most {
        let next = block + count;
        if next >= reach(tree.depth) {
            return Ok((first, if first.is_none() { most } else { count }));
        }
        let (found, holes) = find(load, seed, tree, next)?;
        if !continues(first, found, count) {
            break;
        }
        count += holes;
        if tree.depth == 0 || count >= most {
            continue;
        }
        let Some(node) = node_of(load, seed, tree, next)? else { continue };
        let from = slot(next + 1);
        if from == 0 {
            continue;
        }
        let mut raw = [0; AHEAD * 8];
        let len = raw.len().min(BLOCK - from);
        load.load(node, from, &mut raw[..len])?;
        for (i, raw) in raw[..len].chunks_exact(8).enumerate() {
            let index = next + 1 + i as u64;
            let raw = u64::from_le_bytes(raw.try_into().expect("eight bytes"));
            let found = decode(seed, 0, index, raw)?;
            if count >= most || !continues(first, found, index - block) {
                return Ok((first, count.min(most)));
            }
            count += 1;
        }
    }
    Ok((first, count.min(most)))
}

fn continues(first: Option<Pointer>, found: Option<Pointer>, count: u64) -> bool {
    match (first, found) {
        (None, None) => true,
        (Some(first), Some(found)) => found.block.0 == first.block.0 + count && found.reserved == first.reserved,
        _ => false,
    }
}

/// The last block that is no hole.
pub fn last(load: &(impl Load + ?Sized), seed: u64, tree: &Tree) -> Result<Option<u64>> {
    let (mut raw, mut index) = (tree.root, 0);
    for level in (0..=tree.depth).rev() {
        let Some(pointer) = decode(seed, level, index, raw)? else { return Ok(None) };
        if level == 0 {
            break;
        }
        let mut node = Box::new([0; BLOCK]);
        load.load(pointer.block, 0, &mut node[..])?;
        let words = node.as_chunks::<8>().0;
        // A node without pointers is given up by what clears the last of them.
        let Some(slot) = words.iter().rposition(|raw| *raw != [0; 8]) else { return Ok(None) };
        (raw, index) = (u64::from_le_bytes(words[slot]), index * FANOUT + slot as u64);
    }
    Ok(Some(index))
}

/// The node with the pointer of a block; not at depth 0.
fn node_of(load: &(impl Load + ?Sized), seed: u64, tree: &Tree, block: u64) -> Result<Option<Lba>> {
    let mut raw = tree.root;
    for level in (1..=tree.depth).rev() {
        let Some(pointer) = decode(seed, level, at(block, level), raw)? else { return Ok(None) };
        if level == 1 {
            return Ok(Some(pointer.block));
        }
        raw = word(load, pointer.block, slot(at(block, level - 1)))?;
    }
    Ok(None)
}

/// A node with its pointers of `block` there, ready to be changed: made, where there is none.
fn make_node(view: &mut dyn StorageView, seed: u64, tree: &mut Tree, block: u64) -> Result<Lba> {
    let mut raw = tree.root;
    let mut parent: Option<(Lba, usize)> = None;
    for level in (1..=tree.depth).rev() {
        let index = at(block, level);
        let old = decode(seed, level, index, raw)?.map(|pointer| pointer.block);
        let node = match old {
            Some(old) => view.shadow(old)?,
            None => {
                let node = view.fresh();
                view.update(NODE, node, 0, &[0; BLOCK])?;
                tree.blocks += 1;
                node
            }
        };
        if old != Some(node) {
            let new = pointer::encode(seed, level, index, Pointer::to(node));
            match parent {
                None => tree.root = new,
                Some((parent, slot)) => view.update(POINTER, parent, slot, &new.to_le_bytes())?,
            }
            old.into_iter().for_each(|old| view.release(old));
        }
        if level == 1 {
            return Ok(node);
        }
        let slot = slot(at(block, level - 1));
        raw = word(view, node, slot)?;
        parent = Some((node, slot));
    }
    unreachable!("a map with nodes has a lowest level")
}

/// Makes the map reach `block`.
fn deepen(view: &mut dyn StorageView, seed: u64, tree: &mut Tree, block: u64) -> Result<()> {
    let depth = depth_for(block);
    while tree.depth < depth {
        let above = tree.depth + 1;
        if tree.root != 0 {
            let node = view.fresh();
            let mut raw: RawNode = [0; BLOCK];
            raw[..8].copy_from_slice(&tree.root.to_le_bytes());
            view.update(NODE, node, 0, &raw)?;
            tree.root = pointer::encode(seed, above, 0, Pointer::to(node));
            tree.blocks += 1;
        }
        tree.depth = above;
    }
    Ok(())
}

/// Sets the pointers of `count` blocks from `first` on: `to` is called with the number of each. A block that was there,
/// and is another, is released.
pub fn assign(
    view: &mut dyn StorageView,
    seed: u64,
    tree: &mut Tree,
    (first, count): (u64, u64),
    to: impl Fn(u64) -> Pointer,
) -> Result<()> {
    deepen(view, seed, tree, first + count - 1)?;
    if tree.depth == 0 {
        let old = decode(seed, 0, 0, tree.root)?;
        tree.root = pointer::encode(seed, 0, 0, to(0));
        return exchange(view, tree, old, to(0));
    }
    let (mut block, end) = (first, first + count);
    let mut raw = vec![0; count.min(FANOUT) as usize * 8];
    while block < end {
        let node = make_node(view, seed, tree, block)?;
        let from = slot(block);
        let part = (end - block).min(FANOUT - block % FANOUT);
        let raw = &mut raw[..part as usize * 8];
        view.load(node, from, raw)?;
        for (i, raw) in raw.chunks_exact_mut(8).enumerate() {
            let index = block + i as u64;
            let old = decode(seed, 0, index, u64::from_le_bytes((&*raw).try_into().expect("eight bytes")))?;
            let new = to(index - first);
            raw.copy_from_slice(&pointer::encode(seed, 0, index, new).to_le_bytes());
            exchange(view, tree, old, new)?;
        }
        view.update(POINTER, node, from, raw)?;
        block += part;
    }
    Ok(())
}

fn exchange(view: &mut dyn StorageView, tree: &mut Tree, old: Option<Pointer>, new: Pointer) -> Result<()> {
    match old {
        None => tree.blocks += 1,
        Some(old) if old.block != new.block => view.release(old.block),
        Some(_) => {}
    }
    Ok(())
}

/// What happens to blocks of which the pointer goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Released,
    Kept,
}

/// Makes holes of the blocks `first..end`, and releases them and the nodes that are not needed any more.
pub fn clear(view: &mut dyn StorageView, seed: u64, tree: &mut Tree, first: u64, end: u64) -> Result<()> {
    clear_by(view, seed, tree, (first, end), Leaving::Released)
}

fn clear_by(view: &mut dyn StorageView, seed: u64, tree: &mut Tree, range: (u64, u64), leaving: Leaving) -> Result<()> {
    let range = (range.0, range.1.min(reach(tree.depth)));
    if tree.root == 0 || range.0 >= range.1 {
        return Ok(());
    }
    let mut cleared = 0;
    tree.root = clear_below(view, seed, (tree.depth, 0, tree.root), range, leaving, &mut cleared)?;
    if tree.root == 0 {
        tree.depth = 0;
    }
    tree.blocks = tree.blocks.saturating_sub(cleared);
    Ok(())
}

/// Clears a part of what a pointer reaches. Returns the pointer to what is left of it: 0 for nothing.
fn clear_below(
    view: &mut dyn StorageView,
    seed: u64,
    (level, index, raw): (u8, u64, u64),
    (first, end): (u64, u64),
    leaving: Leaving,
    cleared: &mut u64,
) -> Result<u64> {
    let Some(pointer) = decode(seed, level, index, raw)? else { return Ok(0) };
    if level == 0 {
        *cleared += 1;
        if leaving == Leaving::Released {
            view.release(pointer.block);
        }
        return Ok(0);
    }
    let mut node = Box::new([0; BLOCK]);
    view.load(pointer.block, 0, &mut node[..])?;
    let below = reach(level - 1);
    let base = index * FANOUT;
    let from = (first / below).max(base) - base;
    let to = (end - 1).div_euclid(below).min(base + FANOUT - 1) - base;
    let mut changed = None;
    for slot in from..=to {
        let raw = &mut node[slot as usize * 8..][..8];
        let old = u64::from_le_bytes((&*raw).try_into().expect("eight bytes"));
        if old == 0 {
            continue;
        }
        let new = clear_below(view, seed, (level - 1, base + slot, old), (first, end), leaving, cleared)?;
        if new != old {
            raw.copy_from_slice(&new.to_le_bytes());
            changed = Some((changed.map_or(slot, |(first, _)| first), slot));
        }
    }
    if node.iter().all(|byte| *byte == 0) {
        *cleared += 1;
        view.release(pointer.block);
        return Ok(0);
    }
    let Some((from, to)) = changed else { return Ok(raw) };
    let range = from as usize * 8..to as usize * 8 + 8;
    let at = view.shadow(pointer.block)?;
    view.update(POINTER, at, range.start, &node[range])?;
    if at == pointer.block {
        return Ok(raw);
    }
    view.release(pointer.block);
    Ok(pointer::encode(seed, level, index, Pointer::to(at)))
}

/// Gives up nodes at the top of a map that lead to its first blocks only.
pub fn flatten(view: &mut dyn StorageView, seed: u64, tree: &mut Tree) -> Result<()> {
    while tree.depth > 0
        && let Some(pointer) = decode(seed, tree.depth, 0, tree.root)?
    {
        let mut node = Box::new([0; BLOCK]);
        view.load(pointer.block, 0, &mut node[..])?;
        let (first, rest) = node.split_at(8);
        if rest.iter().any(|byte| *byte != 0) {
            return Ok(());
        }
        view.release(pointer.block);
        tree.root = u64::from_le_bytes(first.try_into().expect("eight bytes"));
        tree.depth -= 1;
        tree.blocks -= 1;
    }
    Ok(())
}

/// The byte of the volume at which the pointer of a block stands, and the word that leads to `to` instead: if it leads
/// to `from` and content is there. `None` too if it does not stand in a node.
pub fn swapped(
    load: &(impl Load + ?Sized),
    seed: u64,
    tree: &Tree,
    block: u64,
    (from, to): (Lba, Lba),
) -> Result<Option<(u64, u64)>> {
    if get(load, seed, tree, block)? != Some(Pointer::to(from)) {
        return Ok(None);
    }
    let Some(node) = node_of(load, seed, tree, block)? else { return Ok(None) };
    Ok(Some((node.byte() + slot(block) as u64, pointer::encode(seed, 0, block, Pointer::to(to)))))
}

/// Makes a hole of a block that is mapped elsewhere by now.
pub fn forget(view: &mut dyn StorageView, seed: u64, tree: &mut Tree, block: u64) -> Result<()> {
    clear_by(view, seed, tree, (block, block + 1), Leaving::Kept)
}

/// Moves the pointers of all blocks from `from` on by `by` blocks. Nothing is mapped where they go.
pub fn shift(view: &mut dyn StorageView, seed: u64, tree: &mut Tree, from: u64, by: i64) -> Result<()> {
    let mut runs = Vec::new();
    let mut block = from;
    while block < reach(tree.depth) {
        let (found, count) = run(view, seed, tree, block, reach(tree.depth) - block)?;
        if let Some(pointer) = found {
            runs.push((block, count, pointer));
        }
        block += count;
    }
    clear_by(view, seed, tree, (from, u64::MAX), Leaving::Kept)?;
    for (block, count, pointer) in runs {
        let to = |i: u64| Pointer { block: Lba(pointer.block.0 + i), ..pointer };
        assign(view, seed, tree, (block.wrapping_add_signed(by), count), to)?;
    }
    Ok(())
}

/// Whether a block may be the node that a pointer at `index` of `level` leads to: one of its pointers is that map's. A
/// node without pointers is given up by what clears the last of them.
pub fn is_node(load: &(impl Load + ?Sized), seed: u64, (level, index): (u8, u64), at: Lba) -> Result<bool> {
    let mut node = Box::new([0; BLOCK]);
    load.load(at, 0, &mut node[..])?;
    let words = node.chunks_exact(8).map(|raw| u64::from_le_bytes(raw.try_into().expect("eight bytes")));
    let proves = |(raw, slot)| raw != 0 && pointer::decode(seed, level - 1, index * FANOUT + slot, raw).is_ok();
    Ok(words.zip(0..).any(proves))
}

/// Makes a hole of what the pointer at `index` of `level` leads to. Nothing is released, and the count of blocks stays.
pub fn cut(view: &mut dyn StorageView, seed: u64, tree: &mut Tree, (level, index): (u8, u64)) -> Result<()> {
    if level >= tree.depth {
        *tree = Tree::default();
        return Ok(());
    }
    let mut raw = tree.root;
    for above in (level + 1..=tree.depth).rev() {
        let distance = FANOUT_BITS * u32::from(above - level);
        let Some(pointer) = decode(seed, above, index >> distance, raw)? else { return Ok(()) };
        let slot = slot(index >> (distance - FANOUT_BITS));
        if above == level + 1 {
            return view.update(POINTER, pointer.block, slot, &[0; 8]);
        }
        raw = word(view, pointer.block, slot)?;
    }
    Ok(())
}

/// Calls `each` with the level, index and pointer of all that a map has, nodes before what they reach. Where a pointer
/// is wrong, `fault` is called with its level and index instead, and what it would reach is passed over.
pub fn walk(
    load: &(impl Load + ?Sized),
    seed: u64,
    tree: &Tree,
    each: &mut dyn FnMut(u8, u64, Pointer) -> bool,
    fault: &mut dyn FnMut(u8, u64, wholly_error::Error),
) -> Result<()> {
    if tree.depth > MAX_DEPTH {
        fault(tree.depth, 0, damaged(seed, tree.depth, 0, Fault("a map is too deep")));
        return Ok(());
    }
    walk_below(load, seed, (tree.depth, 0, tree.root), each, fault)
}

fn walk_below(
    load: &(impl Load + ?Sized),
    seed: u64,
    (level, index, raw): (u8, u64, u64),
    each: &mut dyn FnMut(u8, u64, Pointer) -> bool,
    fault: &mut dyn FnMut(u8, u64, wholly_error::Error),
) -> Result<()> {
    let pointer = match decode(seed, level, index, raw) {
        Ok(None) => return Ok(()),
        Ok(Some(pointer)) => pointer,
        Err(error) => {
            fault(level, index, error);
            return Ok(());
        }
    };
    if !each(level, index, pointer) || level == 0 {
        return Ok(());
    }
    let mut node = Box::new([0; BLOCK]);
    load.load(pointer.block, 0, &mut node[..])?;
    for (slot, raw) in node.chunks_exact(8).enumerate() {
        let raw = u64::from_le_bytes(raw.try_into().expect("eight bytes"));
        if raw != 0 {
            walk_below(load, seed, (level - 1, index * FANOUT + slot as u64, raw), each, fault)?;
        }
    }
    Ok(())
}
