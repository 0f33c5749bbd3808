//! X-L2P: what running transactions have written, and where it is.

use std::collections::{BTreeMap, HashMap};

use super::flash::Ppn;
use super::layout::{CHAIN_ENTRIES, Entry};
use crate::{Lba, Page, Run, Tag};

/// Where a page of a running transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the volatile buffer, under this number.
    Held(u64),
    /// On flash.
    At(Ppn),
}

/// What a running transaction makes of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Zeros,
    Page(Place),
}

/// A set of logical pages, as runs that do not touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// By the first page, the one after the last.
    runs: BTreeMap<u32, u32>,
    pages: u64,
}

impl Runs {
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    pub fn pages(&self) -> u64 {
        self.pages
    }

    pub fn clear(&mut self) {
        *self = Runs::default();
    }

    /// Each as its first page, and how many there are.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.runs.iter().map(|(from, to)| (*from, to - from))
    }

    pub fn contains(&self, page: u32) -> bool {
        self.runs.range(..=page).next_back().is_some_and(|(_, to)| page < *to)
    }

    /// Takes pages out.
    pub fn remove(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        let before = self.runs.range(..from).next_back().map(|(at, end)| (*at, *end));
        if let Some((at, end)) = before
            && end > from
        {
            self.runs.insert(at, from);
            self.pages -= u64::from(end.min(to) - from);
            if end > to {
                self.runs.insert(to, end);
            }
        }
        while let Some((at, end)) = self.runs.range(from..to).next().map(|(at, end)| (*at, *end)) {
            self.runs.remove(&at);
            self.pages -= u64::from(end.min(to) - at);
            if end > to {
                self.runs.insert(to, end);
            }
        }
    }

    pub fn insert(&mut self, mut from: u32, mut to: u32) {
        if from == to {
            return;
        }
        self.remove(from, to);
        self.pages += u64::from(to - from);
        if let Some((at, end)) = self.runs.range(..from).next_back().map(|(at, end)| (*at, *end))
            && end == from
        {
            self.runs.remove(&at);
            from = at;
        }
        if let Some(end) = self.runs.remove(&to) {
            to = end;
        }
        self.runs.insert(from, to);
    }
}

/// A running transaction.
#[derive(Default)]
pub(super) struct Running {
    pub tx: u64,
    pub pages: BTreeMap<u32, Place>,
    pub zeros: Runs,
}

impl Running {
    /// What it has made of a logical page; `None`: nothing.
    pub fn version(&self, lpn: u32) -> Option<Version> {
        match self.pages.get(&lpn) {
            Some(place) => Some(Version::Page(*place)),
            None => self.zeros.contains(lpn).then_some(Version::Zeros),
        }
    }

    /// Logical pages that it has written or discarded.
    pub fn size(&self) -> u64 {
        self.pages.len() as u64 + self.zeros.pages()
    }

    /// Entries that its chain needs.
    pub fn entries(&self) -> u64 {
        (self.pages.len() + self.zeros.runs()) as u64
    }

    /// Pages of a chain of its own.
    pub fn chain(&self) -> u64 {
        self.entries().div_ceil(CHAIN_ENTRIES as u64)
    }

    /// Whether it has written or discarded one of these.
    pub fn touches(&self, from: u32, to: u32) -> bool {
        self.pages.range(from..to).next().is_some()
            || self.zeros.contains(from)
            || self.zeros.runs.range(from..to).next().is_some()
    }

    /// The entries of its chain after this one, or from the first on: zeros, then pages, each in order. Its pages are
    /// all on flash.
    pub fn list_after(&self, last: Option<Entry>) -> impl Iterator<Item = Entry> {
        let tx = self.tx;
        let (zeros_from, pages_from) = match last {
            None => (0, 0),
            Some(Entry::Zeros { lpn, .. }) => (lpn + 1, 0),
            Some(Entry::Page { lpn, .. }) => (u32::MAX, lpn + 1),
        };
        let zeros = self.zeros.runs.range(zeros_from..);
        let zeros = zeros.map(move |(lpn, to)| Entry::Zeros { tx, lpn: *lpn, count: to - lpn });
        zeros.chain(self.pages.range(pages_from..).map(move |(lpn, place)| match place {
            Place::At(at) => Entry::Page { tx, lpn: *lpn, at: *at },
            Place::Held(_) => unreachable!("the buffer was programmed before the chain"),
        }))
    }
}

/// Running transactions, by their numbers and by short ones.
#[derive(Default)]
pub(super) struct Transactions {
    slots: Vec<Option<Running>>,
    by_number: HashMap<u64, u32>,
    free: Vec<u32>,
}

impl Transactions {
    pub fn begin(&mut self, tx: u64) {
        let running = Some(Running { tx, ..Running::default() });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = running;
                slot
            }
            None => {
                self.slots.push(running);
                self.slots.len() as u32 - 1
            }
        };
        self.by_number.insert(tx, slot);
    }

    pub fn slot(&self, tx: u64) -> Option<u32> {
        self.by_number.get(&tx).copied()
    }

    pub fn at(&self, slot: u32) -> &Running {
        self.slots[slot as usize].as_ref().expect("a slot in use")
    }

    pub fn at_mut(&mut self, slot: u32) -> &mut Running {
        self.slots[slot as usize].as_mut().expect("a slot in use")
    }

    /// What a transaction has written, for a while.
    pub fn take_content(&mut self, slot: u32) -> (BTreeMap<u32, Place>, Runs) {
        let running = self.at_mut(slot);
        (std::mem::take(&mut running.pages), std::mem::take(&mut running.zeros))
    }

    pub fn put_content(&mut self, slot: u32, pages: BTreeMap<u32, Place>, zeros: Runs) {
        let running = self.at_mut(slot);
        (running.pages, running.zeros) = (pages, zeros);
    }

    pub fn end(&mut self, slot: u32) -> Running {
        let running = self.slots[slot as usize].take().expect("a slot in use");
        self.by_number.remove(&running.tx);
        self.free.push(slot);
        running
    }

    pub fn all(&self) -> impl Iterator<Item = &Running> {
        self.slots.iter().flatten()
    }
}

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    Plain,
    /// A running transaction, by its slot.
    Tx(u32),
}

/// A page in the volatile buffer.
#[derive(Clone)]
pub(super) struct Held {
    pub of: Writer,
    pub lpn: u32,
    pub page: Page,
    pub tag: Tag,
}

/// The volatile write buffer. Pages leave it in the order in which they came.
#[derive(Default)]
pub(super) struct Buffer {
    held: BTreeMap<u64, Held>,
    /// Those that were written plainly.
    plain: HashMap<u32, u64>,
    next: u64,
}

impl Buffer {
    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn get(&self, number: u64) -> &Page {
        &self.held[&number].page
    }

    pub fn put(&mut self, held: Held) -> u64 {
        let number = self.next;
        self.next += 1;
        if held.of == Writer::Plain {
            self.plain.insert(held.lpn, number);
        }
        self.held.insert(number, held);
        number
    }

    pub fn replace(&mut self, number: u64, page: Page, tag: Tag) {
        let held = self.held.get_mut(&number).expect("a number that was given out");
        (held.page, held.tag) = (page, tag);
    }

    pub fn take(&mut self, number: u64) -> Held {
        let held = self.held.remove(&number).expect("a number that was given out");
        if held.of == Writer::Plain {
            self.plain.remove(&held.lpn);
        }
        held
    }

    pub fn oldest(&self) -> Option<u64> {
        self.held.keys().next().copied()
    }

    pub fn plain(&self, lpn: u32) -> Option<u64> {
        self.plain.get(&lpn).copied()
    }

    /// What these have in it, oldest first.
    pub fn of(&self, is: impl Fn(Writer) -> bool) -> Vec<u64> {
        self.held.iter().filter(|(_, held)| is(held.of)).map(|(number, _)| *number).collect()
    }
}

/// A run of blocks as logical pages. `None` if it is not inside of the device.
pub(super) fn pages_of(run: Run, logical: u32) -> Option<(u32, u32)> {
    let Lba(start) = run.start;
    let end = start.checked_add(run.count)?;
    (end <= u64::from(logical)).then_some((start as u32, end as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_are_a_set_of_pages() {
        let (mut runs, mut model, mut random) = (Runs::default(), BTreeSet::new(), 1u64);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (from, count) = ((random >> 33) as u32 % 40, (random >> 50) as u32 % 9);
            if random >> 62 & 1 == 0 {
                runs.insert(from, from + count);
                model.extend(from..from + count);
            } else {
                runs.remove(from, from + count);
                (from..from + count).for_each(|page| _ = model.remove(&page));
            }
            assert_eq!(runs.pages(), model.len() as u64);
            assert!((0..50).all(|page| runs.contains(page) == model.contains(&page)));
            let starts = model.iter().filter(|page| **page == 0 || !model.contains(&(*page - 1))).count();
            assert_eq!(runs.runs(), starts, "runs that touch are one");
        }
    }
}
