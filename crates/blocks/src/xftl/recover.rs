//! What an open finds. [`Ftl::load`] reads only; [`Ftl::start`] makes a life of it.
//!
//! The newest root names the tables. What came after it is found by the spare bytes: of blocks that the root names,
//! of those whose first page is younger, and of those whose first page is not there. Plain writes and chains count if
//! they have the root's incarnation and a higher sequence (X4, X5).
//!
//! # Rot, or a crash?
//!
//! A page that cannot be read may have been programmed when the power failed; then nobody relied on it. It has rotted
//! if a later program says that it was durable: all spare bytes tell up to which sequence, chain and root everything
//! was on flash. Without such a witness the two cannot be told apart.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use wholly_error::{Error, Result};

use super::device::{Ftl, Mistake, Trial, WHAT_TO_DO};
use super::flash::{Flash, Ppn, Read};
use super::layout::{BadRoot, ChainPlace, Entry, Kind, Root, Spare, decode_chain};
use super::space::{Owner, RING, Use};
use crate::{Page, Tag};

/// What is damaged of the tables and chains of a flash disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    what: String,
    doubt: Arc<Doubt>,
}

/// Logical pages of which it is not known which version was committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Doubt {
    /// All but these, instead of these.
    is_all_but: bool,
    pages: BTreeSet<u32>,
}

impl Damage {
    fn new(what: String) -> Damage {
        Damage { what, doubt: Arc::default() }
    }

    /// Whether it is not known what this logical page holds.
    pub(super) fn hides(&self, lpn: u32) -> bool {
        self.doubt.is_all_but != self.doubt.pages.contains(&lpn)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {WHAT_TO_DO}", self.what)
    }
}

/// The newest root, and where the next one goes.
fn newest_root(flash: &dyn Flash) -> Result<(Root, (u32, u32))> {
    let geometry = flash.geometry();
    let (mut newest, mut is_empty): (Option<(Root, u32)>, bool) = (None, true);
    for block in 0..RING {
        for at in geometry.pages_of(block) {
            let read = flash.read(at)?;
            is_empty &= matches!(read, Read::Erased);
            let Read::Programmed(_, page) = read else { continue };
            match Root::decode(&page) {
                Ok(root) if newest.as_ref().is_none_or(|(old, _)| old.sequence < root.sequence) => {
                    newest = Some((root, block));
                }
                Err(BadRoot::Version(version)) => {
                    let why = format!(
                        "the flash disk has version {version}, this program knows {}: open it with the program that made it",
                        super::layout::VERSION
                    );
                    return Err(Error::Unsupported(why));
                }
                _ => {}
            }
        }
    }
    let Some((root, block)) = newest else {
        if is_empty {
            return Err(Error::Invalid("this is an erased chip, no flash disk: `wholly flash init` makes one".into()));
        }
        let place = format!("the roots of the flash disk, {}", geometry.name(Ppn(0)));
        return Err(Error::corrupt(place, "none can be read: restore the flash file from a copy"));
    };
    if root.geometry != geometry || root.config.check(&geometry).is_err() {
        let fault =
            format!("it says {:?}, the chip has {geometry:?}: restore the flash file from a copy", root.geometry);
        return Err(Error::corrupt("the root of the flash disk", fault));
    }
    let mut next = geometry.pages;
    while next > 0 && matches!(flash.look(geometry.page(block, next - 1))?, Read::Erased) {
        next -= 1;
    }
    Ok((root, (block, next)))
}

/// A page that was found by its spare bytes.
struct Found {
    at: Ppn,
    spare: Spare,
}

/// What the scan has found.
#[derive(Default)]
struct Scan {
    /// Of the root's incarnation.
    found: Vec<Found>,
    /// Blocks with nothing in them.
    erased: Vec<u32>,
    /// Neither erased nor readable, and the sequence of the next page of the block that is.
    unreadable: Vec<(Ppn, u64)>,
    /// The highest sequence of all.
    sequence: u64,
    /// Witnesses: up to where everything was durable.
    durable: u64,
    chains: u64,
    root: u64,
    erases: BTreeMap<u32, u32>,
}

impl Scan {
    fn of(flash: &dyn Flash, root: &Root) -> Result<Scan> {
        let geometry = flash.geometry();
        let mut scan = Scan { sequence: root.sequence, durable: root.sequence, chains: root.chains, ..Scan::default() };
        let named: Option<BTreeSet<u32>> = root.scan.as_ref().map(|blocks| blocks.iter().copied().collect());
        for block in RING..geometry.blocks {
            let first = flash.look(geometry.page(block, 0))?;
            let is_younger = match &first {
                Read::Programmed(spare, ()) | Read::Damaged(spare) => {
                    let spare = Spare::decode(spare);
                    spare.iter().for_each(|spare| scan.note(block, spare));
                    spare.is_none_or(|spare| spare.sequence > root.sequence)
                }
                Read::Erased | Read::Unreadable => true,
            };
            if is_younger || named.as_ref().is_none_or(|named| named.contains(&block)) {
                scan.block(flash, root, block)?;
            }
        }
        Ok(scan)
    }

    fn note(&mut self, block: u32, spare: &Spare) {
        self.sequence = self.sequence.max(spare.sequence);
        let erases = self.erases.entry(block).or_default();
        *erases = (*erases).max(spare.erases);
    }

    fn block(&mut self, flash: &dyn Flash, root: &Root, block: u32) -> Result<()> {
        let (mut is_erased, mut is_old, mut unreadable) = (true, false, Vec::new());
        let first = self.unreadable.len();
        for at in flash.geometry().pages_of(block) {
            let look = flash.look(at)?;
            is_erased &= matches!(look, Read::Erased);
            let spare = match look {
                Read::Erased => continue,
                Read::Programmed(spare, ()) | Read::Damaged(spare) => Spare::decode(&spare),
                Read::Unreadable => None,
            };
            let Some(spare) = spare else {
                unreadable.push(at);
                continue;
            };
            self.note(block, &spare);
            is_old |= spare.incarnation != root.incarnation;
            self.unreadable.extend(unreadable.drain(..).map(|at| (at, spare.sequence)));
            // An open that a crash has caught has found that chain, too.
            if spare.incarnation >= root.incarnation {
                self.chains = self.chains.max(spare.chains);
                self.root = self.root.max(spare.root);
            }
            if spare.incarnation == root.incarnation {
                self.durable = self.durable.max(spare.durable);
                self.found.push(Found { at, spare });
            }
        }
        if is_old {
            // Pages of two lives are never in one block: what cannot be read is of the earlier one, and was settled.
            self.unreadable.truncate(first);
        }
        if is_erased {
            self.erased.push(block);
        }
        Ok(())
    }
}

/// What came after the root, to be applied in the order of the sequences.
enum Event {
    Plain(Ppn, Spare),
    Chain(u64, Vec<Entry>),
}

/// A chain as it was found.
enum Chain {
    Whole { sequence: u64, entries: Vec<Entry> },
    Broken { page: Option<Ppn>, entries: Vec<Entry>, has_zeros: bool },
}

impl Ftl {
    /// Finds the committed state of a flash disk. Changes no byte.
    ///
    /// # Errors
    /// As [`Device::open`](super::Device::open).
    pub fn load(flash: Arc<dyn Flash>, trial: Trial) -> Result<Ftl> {
        let (root, ring) = newest_root(&*flash)?;
        let mut ftl = Ftl::new(flash.clone(), root.config, root.id, trial);
        ftl.incarnation = root.incarnation;
        (ftl.root, ftl.ring, ftl.chains) = (root.sequence, ring, root.chains);
        (ftl.programs, ftl.last_dropped) = (root.programs, root.dropped);
        ftl.load_tables(&root)?;
        let scan = Scan::of(&*flash, &root)?;
        if scan.root > root.sequence {
            let place = format!("the newest root of the flash disk, in erase block {}", ring.0);
            let fault = format!(
                "a page of sequence {} names a root of sequence {}, and the newest that can be read has {}: restore the \
                 flash file from a copy",
                scan.sequence, scan.root, root.sequence
            );
            return Err(Error::corrupt(place, fault));
        }
        let is_there = |at: &Ppn| u64::from(at.0) < ftl.geometry.all();
        let mut named: BTreeSet<u32> =
            ftl.map.mapped().map(|(_, at)| at).filter(is_there).map(|at| ftl.geometry.block_of(at)).collect();
        // Of what the tables of the root name, they tell which logical page it is: reading that one is an error.
        let known: HashSet<Ppn> = match scan.unreadable.is_empty() {
            true => HashSet::new(),
            false => ftl.map.mapped().map(|(_, at)| at).collect(),
        };
        let committed = ftl.apply(&root, &scan, &mut named)?;
        for (at, sequence) in scan.unreadable.iter().filter(|(at, _)| !known.contains(at)) {
            // Of a block in which nothing is named, a crash may have caught the erase.
            if *sequence <= scan.durable && named.contains(&ftl.geometry.block_of(*at)) {
                let what = format!("{} cannot be read, nor its spare bytes; it was durable", ftl.geometry.name(*at));
                ftl.damage.push(Damage::new(what));
            }
        }
        ftl.count_dropped(&root, &scan, &committed);
        ftl.count_programs(&root, &scan);
        (ftl.sequence, ftl.durable) = (scan.sequence, scan.sequence);
        for (block, erases) in &scan.erases {
            if *erases > ftl.map.erases(*block) {
                ftl.map.set_erases(*block, *erases);
            }
        }
        ftl.settle_blocks(&scan, &named);
        Ok(ftl)
    }

    /// A page of a table or a directory.
    fn system_page(&self, at: Ppn, kind: Kind, index: usize) -> Result<Option<Page>> {
        if u64::from(at.0) >= self.geometry.all() {
            return Ok(None);
        }
        Ok(match self.flash.read(at)? {
            Read::Programmed(spare, page) => {
                let is_it = |spare: Spare| spare.kind == kind && spare.index as usize == index;
                Spare::decode(&spare).is_some_and(is_it).then_some(page)
            }
            _ => None,
        })
    }

    fn load_tables(&mut self, root: &Root) -> Result<()> {
        let mut tables = Vec::new();
        for (directory, at) in root.directories.iter().take(self.map.directories()).enumerate() {
            if at.0 == u32::MAX {
                continue;
            }
            let page = self.system_page(*at, Kind::Directory, directory)?;
            if page.is_none() {
                let what = format!("directory page {directory} of the map is lost: {}", self.geometry.name(*at));
                self.damage.push(Damage::new(what));
            } else {
                self.space.set_owner(*at, Owner::Directory(directory as u32));
            }
            tables.extend(self.map.load_directory(directory, *at, page.as_ref()));
        }
        for (table, at) in tables {
            match self.system_page(at, Kind::Table, table)? {
                Some(page) => {
                    self.map.load_table(table, at, &page);
                    self.space.set_owner(at, Owner::Table(table as u32));
                }
                None => {
                    self.map.lose_table(table, at);
                    let what = format!("table page {table} of the map is lost: {}", self.geometry.name(at));
                    self.damage.push(Damage::new(what));
                }
            }
        }
        Ok(())
    }

    /// Reads the chains after the root, by their numbers. The first that is not whole is the last that a crash can have
    /// caught.
    fn chains(&self, root: &Root, scan: &Scan) -> Result<BTreeMap<u64, Chain>> {
        let mut pages: BTreeMap<u64, BTreeMap<u32, Vec<&Found>>> = BTreeMap::new();
        for found in &scan.found {
            let Spare { kind, number, index, sequence, .. } = found.spare;
            if kind == Kind::Chain && sequence > root.sequence && number > root.chains {
                pages.entry(number).or_default().entry(index).or_default().push(found);
            }
        }
        let last = pages.keys().last().copied().unwrap_or(0).max(scan.chains);
        let mut chains = BTreeMap::new();
        for number in root.chains + 1..=last {
            chains.insert(number, self.chain(root, number, pages.get(&number))?);
        }
        Ok(chains)
    }

    fn chain(&self, root: &Root, number: u64, pages: Option<&BTreeMap<u32, Vec<&Found>>>) -> Result<Chain> {
        let (mut all, mut sum, mut sequence) = (Vec::new(), 0, 0);
        // Spare bytes of a chain tell how many runs are discarded by its page.
        let mut spares = pages.into_iter().flat_map(BTreeMap::values).flatten().map(|found| found.spare);
        let has_zeros = pages.is_none() || spares.any(|spare| spare.origin > 0);
        for index in 0.. {
            let found = pages.and_then(|pages| pages.get(&index));
            let broken = |page, entries| Ok(Chain::Broken { page, entries, has_zeros });
            let Some([found]) = found.map(Vec::as_slice) else {
                return broken(found.and_then(|found| found.last()).map(|found| found.at), all);
            };
            let Read::Programmed(_, page) = self.flash.read(found.at)? else { return broken(Some(found.at), all) };
            let decoded = decode_chain(&self.id, &page, &mut sum);
            let Some((place, entries)) = decoded else { return broken(Some(found.at), all) };
            let expected = ChainPlace { incarnation: root.incarnation, number, index, pages: place.pages };
            if place != expected || index >= place.pages {
                return broken(Some(found.at), all);
            }
            all.extend(entries);
            sequence = sequence.max(found.spare.sequence);
            if index + 1 == place.pages {
                break;
            }
        }
        Ok(Chain::Whole { sequence, entries: all })
    }

    /// Brings the map up to date. Returns the transactions whose chains were found.
    fn apply(&mut self, root: &Root, scan: &Scan, named: &mut BTreeSet<u32>) -> Result<HashSet<u64>> {
        let mut events: BTreeMap<u64, Event> = BTreeMap::new();
        for Found { at, spare } in &scan.found {
            let is_plain =
                spare.kind == Kind::Plain || spare.kind == Kind::Written && self.makes(Mistake::RunningAdopted);
            if is_plain && spare.sequence > root.sequence && spare.index < self.map.logical() {
                let is_readable = matches!(self.flash.read(*at)?, Read::Programmed(..));
                // One that has rotted is named all the same: whoever reads the logical page is told.
                if is_readable || spare.sequence <= scan.durable {
                    let late = if self.makes(Mistake::PlainLast) { 1 << 60 } else { 0 };
                    events.insert(spare.sequence + late, Event::Plain(*at, *spare));
                }
            }
        }
        let (mut committed, mut broken) = (HashSet::new(), Vec::new());
        let chains = self.chains(root, scan)?;
        let last_whole = chains.iter().rev().find(|(_, chain)| matches!(chain, Chain::Whole { .. }));
        let witnessed = last_whole.map_or(0, |(number, _)| *number).max(scan.chains);
        for (number, chain) in chains {
            match chain {
                Chain::Whole { sequence, entries } => {
                    self.chains = number;
                    committed.extend(entries.iter().map(|entry| match entry {
                        Entry::Page { tx, .. } | Entry::Zeros { tx, .. } => *tx,
                    }));
                    events.insert(sequence, Event::Chain(number, entries));
                }
                Chain::Broken { entries, .. } if self.makes(Mistake::HalfChain) => {
                    self.chains = number;
                    events.insert(scan.sequence + 1, Event::Chain(number, entries));
                }
                Chain::Broken { page, entries, has_zeros } if number <= witnessed => {
                    broken.push((number, page, entries, has_zeros));
                }
                // A crash has caught it: it never was (X2).
                Chain::Broken { .. } => {}
            }
        }
        // After which number of chains a logical page was last written.
        let mut last = BTreeMap::new();
        for event in events.into_values() {
            match event {
                Event::Plain(at, spare) => {
                    self.map.set(spare.index, Some(at));
                    named.insert(self.geometry.block_of(at));
                    last.insert(spare.index, spare.chains + 1);
                }
                Event::Chain(number, entries) => {
                    for entry in entries {
                        self.apply_entry(entry, named, |lpn| _ = last.insert(lpn, number));
                    }
                }
            }
        }
        // Chains after the root are named themselves, until the next one.
        let is_named =
            |spare: &Spare| spare.kind == Kind::Chain && spare.sequence > root.sequence && spare.number > root.chains;
        let chains = scan.found.iter().filter(|found| is_named(&found.spare));
        named.extend(chains.map(|found| self.geometry.block_of(found.at)));
        for (number, page, entries, has_zeros) in broken {
            self.doubt(number, page, &entries, has_zeros, &last, &committed)?;
        }
        Ok(committed)
    }

    fn apply_entry(&mut self, entry: Entry, named: &mut BTreeSet<u32>, mut note: impl FnMut(u32)) {
        let logical = self.map.logical();
        match entry {
            Entry::Page { lpn, at, .. } if lpn < logical && u64::from(at.0) < self.geometry.all() => {
                self.map.set(lpn, Some(at));
                named.insert(self.geometry.block_of(at));
                note(lpn);
            }
            Entry::Zeros { lpn, count, .. } if count <= logical && lpn <= logical - count => {
                (lpn..lpn + count).for_each(|lpn| {
                    self.map.set(lpn, None);
                    note(lpn);
                });
            }
            _ => self.damage.push(Damage::new(format!("a chain says what cannot be: {entry:?}"))),
        }
    }

    /// A chain that was durable cannot be read as a whole. Which pages it has written is told by what is left of it,
    /// and by pages of transactions that no chain names. Which ones it has discarded, nothing else tells: if it has,
    /// all are in doubt that were not written after it.
    fn doubt(
        &mut self,
        number: u64,
        page: Option<Ppn>,
        entries: &[Entry],
        has_zeros: bool,
        last: &BTreeMap<u32, u64>,
        committed: &HashSet<u64>,
    ) -> Result<()> {
        let mut doubtful = BTreeSet::new();
        for entry in entries {
            match *entry {
                Entry::Page { lpn, .. } => _ = doubtful.insert(lpn),
                Entry::Zeros { lpn, count, .. } => doubtful.extend(lpn..lpn.saturating_add(count)),
            }
        }
        for at in (RING..self.geometry.blocks).flat_map(|block| self.geometry.pages_of(block)) {
            let (Read::Programmed(spare, ()) | Read::Damaged(spare)) = self.flash.look(at)? else { continue };
            let Some(spare) = Spare::decode(&spare) else { continue };
            let is_of_transaction = matches!(spare.kind, Kind::Written | Kind::Moved | Kind::Lost) && spare.number != 0;
            if is_of_transaction && spare.incarnation == self.incarnation && !committed.contains(&spare.number) {
                doubtful.insert(spare.index);
            }
        }
        // What was written after it is not in doubt.
        let is_sure = |lpn: &u32| last.get(lpn).is_some_and(|after| *after > number);
        let doubt = if has_zeros {
            Doubt { is_all_but: true, pages: last.keys().copied().filter(is_sure).collect() }
        } else {
            doubtful.retain(|lpn| !is_sure(lpn));
            Doubt { is_all_but: false, pages: doubtful }
        };
        let at = page.map_or_else(|| "one of its pages".into(), |at| self.geometry.name(at));
        let what = format!("commit {number} was durable and its chain cannot be read: {at}");
        self.damage.push(Damage { what, doubt: Arc::new(doubt) });
        Ok(())
    }

    /// Counts pages of transactions that were not ended, or were aborted after the root.
    fn count_dropped(&mut self, root: &Root, scan: &Scan, committed: &HashSet<u64>) {
        let mut dropped: BTreeMap<(u64, u32), u8> = BTreeMap::new();
        for Found { spare, .. } in &scan.found {
            let born = if matches!(spare.kind, Kind::Moved | Kind::Lost) { spare.origin } else { spare.sequence };
            let is_written = matches!(spare.kind, Kind::Written | Kind::Moved | Kind::Lost) && spare.number != 0;
            let was_running = born > root.sequence || root.running.contains(&spare.number);
            if is_written && was_running && !committed.contains(&spare.number) {
                dropped.insert((spare.number, spare.index), spare.tag);
            }
        }
        self.counters.dropped = [0; 5];
        for tag in dropped.into_values() {
            self.counters.dropped[usize::from(tag).min(Tag::ALL.len() - 1)] += 1;
        }
    }

    /// Counts what was programmed after the root, which has the counts up to there.
    fn count_programs(&mut self, root: &Root, scan: &Scan) {
        for found in scan.found.iter().filter(|found| found.spare.sequence > root.sequence) {
            let count = match found.spare.kind {
                Kind::Written => &mut self.programs.data,
                Kind::Plain => &mut self.programs.plain,
                Kind::Chain => &mut self.programs.chain,
                Kind::Moved | Kind::Lost => &mut self.programs.collection,
                Kind::Table | Kind::Directory | Kind::Root => &mut self.programs.map,
            };
            *count += 1;
        }
    }

    /// Says what each block is for. What nothing durable names is erased at the start.
    fn settle_blocks(&mut self, scan: &Scan, named: &BTreeSet<u32>) {
        let mapped: Vec<(u32, Ppn)> = self.map.mapped().collect();
        for (lpn, at) in mapped {
            if u64::from(at.0) >= self.geometry.all() || self.space.owner(at) != Owner::Nobody {
                let what = format!("the map says that logical page {lpn} is in page {}, which it cannot be", at.0);
                let doubt = Doubt { is_all_but: false, pages: BTreeSet::from([lpn]) };
                self.damage.push(Damage { what, doubt: Arc::new(doubt) });
                continue;
            }
            self.space.set_owner(at, Owner::Map(lpn));
            self.live += 1;
        }
        let erased: BTreeSet<u32> = scan.erased.iter().copied().collect();
        for block in RING..self.geometry.blocks {
            if erased.contains(&block) && self.space.valid(block) == 0 {
                self.space.release(block, self.map.erases(block));
            } else if self.space.valid(block) > 0 {
                let is_system = |at: Ppn| matches!(self.space.owner(at), Owner::Table(_) | Owner::Directory(_));
                let is_system = self.geometry.pages_of(block).any(is_system);
                self.space.set_use(block, if is_system { Use::System } else { Use::Data });
            } else if !named.contains(&block) {
                self.unnamed.push(block);
            }
        }
    }

    /// Begins a life: makes what was found durable, with a higher incarnation (X5).
    ///
    /// # Errors
    /// The medium's.
    pub fn start(&mut self) -> Result<()> {
        self.last_dropped = self.counters.dropped;
        let unnamed = std::mem::take(&mut self.unnamed);
        if self.makes(Mistake::IncarnationKept) {
            return self.erase(&unnamed);
        }
        self.incarnation += 1;
        if self.incarnation >= 1 << 24 {
            return Err(Error::Unsupported("the flash disk was opened 16 million times: make it anew".into()));
        }
        self.erase(&unnamed)?;
        self.checkpoint()
    }
}
