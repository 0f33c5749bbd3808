//! The list of operations, as CFS has it (section 4.2): what a group has recorded is kept, and done once more at the
//! commit, on the newest pages. The engine has no need of it: what a group alone changes is in its draft as lines. The
//! variant `op_log:replay` ([`Trial::replays`](crate::engine::Trial)) is there to be compared, and compares itself: at
//! each commit both ways must give the same bytes. Changes of the inode file are not kept: they are groups of their
//! own, and their mutators change what memory has of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wholly_blocks::Page;
use wholly_error::Result;
use wholly_media::Site;

use super::{PageEngine, Toggle};
use crate::engine::{EntryAt, Fields, InoGen, Load, Mapped, Operation, Replay, StorageView, Structure, corrupt};
use crate::format::dir::Head;
use crate::format::{BLOCK, Fault, Lba, Run};

/// What a group has recorded, in order, and the blocks that its mutators took.
#[derive(Debug, Default)]
pub struct List {
    operations: Vec<Kept>,
    taken: VecDeque<Lba>,
}

/// An [`Operation`] that is kept.
#[derive(Debug)]
enum Kept {
    Assign(InoGen, Box<Fields>),
    Map(InoGen, u64, u64, Mapped),
    Shift(InoGen, u64, i64),
    Insert(InoGen, Head, Box<[u8]>, EntryAt),
    Remove(InoGen, u64, EntryAt),
    Free(InoGen),
    Xattrs(InoGen, Box<[Run]>, u32, u32),
    Structure(Structure),
}

impl Kept {
    /// `None` for bits: they are kept by block.
    fn of(operation: &Operation<'_>) -> Option<Kept> {
        Some(match *operation {
            Operation::Assign { on, fields } => Kept::Assign(on, fields.clone().into()),
            Operation::Map { on, first, count, to } => Kept::Map(on, first, count, to),
            Operation::Shift { on, from, by } => Kept::Shift(on, from, by),
            Operation::Insert { dir, head, name, at } => Kept::Insert(dir, head, name.into(), at),
            Operation::Remove { dir, key, at } => Kept::Remove(dir, key, at),
            Operation::Free { what } => Kept::Free(what),
            Operation::Xattrs { on, runs, bytes, sum } => Kept::Xattrs(on, runs.into(), bytes, sum),
            Operation::Structure(structure) => Kept::Structure(structure),
            Operation::GiveBack { .. } | Operation::Toggle { .. } => return None,
        })
    }

    fn operation(&self) -> Operation<'_> {
        match self {
            Kept::Assign(on, fields) => Operation::Assign { on: *on, fields },
            &Kept::Map(on, first, count, to) => Operation::Map { on, first, count, to },
            &Kept::Shift(on, from, by) => Operation::Shift { on, from, by },
            Kept::Insert(dir, head, name, at) => Operation::Insert { dir: *dir, head: *head, name, at: *at },
            &Kept::Remove(dir, key, at) => Operation::Remove { dir, key, at },
            &Kept::Free(what) => Operation::Free { what },
            Kept::Xattrs(on, runs, bytes, sum) => Operation::Xattrs { on: *on, runs, bytes: *bytes, sum: *sum },
            &Kept::Structure(structure) => Operation::Structure(structure),
        }
    }

    /// Bytes of memory.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let behind = match self {
            Kept::Assign(_, fields) => size_of::<Fields>() + fields.target.as_ref().map_or(0, Vec::len),
            Kept::Insert(_, _, name, _) => name.len(),
            Kept::Xattrs(_, runs, ..) => size_of_val(&**runs),
            _ => 0,
        };
        size_of::<Kept>() + behind
    }
}

impl List {
    /// Adds an operation.
    pub fn keep(&mut self, operation: &Operation<'_>) {
        self.operations.extend(Kept::of(operation));
    }

    /// The mutator of the last operation took a block.
    pub fn took(&mut self, at: Lba) {
        self.taken.push_back(at);
    }

    /// Forgets the last operation: a mistake.
    pub fn forget_last(&mut self) {
        self.operations.pop();
    }

    /// How many operations there are, and bytes of memory that they take.
    #[cfg(test)]
    pub fn size(&self) -> (usize, usize) {
        let bytes = self.operations.iter().map(Kept::bytes).sum::<usize>();
        (self.operations.len(), bytes + self.taken.len() * size_of::<Lba>())
    }
}

/// The view of mutators that change copies of the newest pages.
struct OnCopies<'v> {
    engine: &'v PageEngine,
    /// Blocks that the group took: they have nothing before their mutator.
    own: &'v BTreeSet<Lba>,
    taken: VecDeque<Lba>,
    copies: BTreeMap<u64, Page>,
}

impl OnCopies<'_> {
    fn copy(&mut self, at: Lba) -> Result<&mut Page> {
        if !self.copies.contains_key(&at.0) {
            let page = if self.own.contains(&at) { Page::zeros() } else { self.engine.pages.get(at.0)? };
            self.copies.insert(at.0, page);
        }
        Ok(self.copies.get_mut(&at.0).expect("it is there now"))
    }
}

impl Load for OnCopies<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut offset, mut buf) = (at.0, offset, buf);
        while !buf.is_empty() {
            (at, offset) = (at + (offset / BLOCK) as u64, offset % BLOCK);
            let (part, rest) = buf.split_at_mut(buf.len().min(BLOCK - offset));
            match self.copies.get(&at) {
                Some(page) => part.copy_from_slice(&page[offset..offset + part.len()]),
                None => self.engine.load(Lba(at), offset, part)?,
            }
            (offset, buf) = (offset + part.len(), rest);
        }
        Ok(())
    }
}

impl StorageView for OnCopies<'_> {
    fn update(&mut self, _site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        self.copy(at)?.put(offset, bytes);
        Ok(())
    }

    fn fresh(&mut self) -> Lba {
        self.taken.pop_front().expect("operations take as many blocks as they took at the call")
    }

    fn release(&mut self, at: Lba) {
        self.copies.remove(&at.0);
    }
}

impl PageEngine {
    /// Does all operations of a list on copies of the newest pages. Returns the copies, but those of the blocks that
    /// the group took.
    pub(super) fn replayed(
        &self,
        list: &List,
        own: &BTreeSet<Lba>,
        toggles: &[Toggle],
        replay: &dyn Replay,
    ) -> Result<BTreeMap<u64, Page>> {
        let mut view = OnCopies { engine: self, own, taken: list.taken.clone(), copies: BTreeMap::new() };
        for operation in &list.operations {
            replay.redo(&operation.operation(), &mut view)?;
        }
        for Toggle { bitmap, at, bits } in toggles {
            replay.redo(&Operation::Toggle { bitmap: *bitmap, at: *at, bits }, &mut view)?;
        }
        for at in own {
            let Some(copy) = view.copies.remove(&at.0) else { continue };
            check_same(*at, &copy, &self.pages.get(at.0)?)?;
        }
        Ok(view.copies)
    }
}

/// That both ways have come to the same page.
pub fn check_same(at: Lba, by_list: &Page, by_lines: &Page) -> Result<()> {
    match by_list[..] == by_lines[..] {
        true => Ok(()),
        false => Err(corrupt(format!("block {}", at.0), Fault("the list of operations gives other bytes than lines"))),
    }
}
