//! What is on flash: spare bytes, roots, pages of chains.

use std::fmt;

use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::flash::{Geometry, PAGE, Ppn, SPARE};
use super::profile::{Config, Times};
use crate::Page;

/// Of roots, spare bytes and chains.
pub(super) const VERSION: u32 = 1;

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Root,
    Directory,
    Table,
    Chain,
    /// Written by no transaction.
    Plain,
    /// Written by a transaction.
    Written,
    /// Moved by collection.
    Moved,
    /// A mark by collection: the page could not be read when it was to be moved. To programs that do not know this kind
    /// it is a page that has rotted.
    Lost,
}

const KINDS: [Kind; 8] =
    [Kind::Root, Kind::Directory, Kind::Table, Kind::Chain, Kind::Plain, Kind::Written, Kind::Moved, Kind::Lost];

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawSpare {
    kind: u8,
    tag: u8,
    reserved: U16,
    incarnation: U32,
    sequence: U64,
    number: U64,
    index: U32,
    erases: U32,
    durable: U64,
    chains: U64,
    root: U64,
    origin: U64,
}
const _: () = assert!(size_of::<RawSpare>() == SPARE);

/// The spare bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spare {
    pub kind: Kind,
    /// The writer's tag, by its place in [`Tag::ALL`](crate::Tag::ALL).
    pub tag: u8,
    pub incarnation: u32,
    /// Of this program.
    pub sequence: u64,
    /// The transaction, or 0; of a chain, its number.
    pub number: u64,
    /// The logical page; of tables, directories and chains, which one it is.
    pub index: u32,
    /// Of the block.
    pub erases: u32,
    /// Programs up to this one were durable.
    pub durable: u64,
    /// The last chain that was durable.
    pub chains: u64,
    /// The sequence of the last root that was durable.
    pub root: u64,
    /// Of a page that was moved, or lost: the sequence under which the host's page was programmed. Of a chain: how many
    /// runs its page discards. Else 0.
    pub origin: u64,
}

impl Spare {
    pub fn encode(&self) -> [u8; SPARE] {
        let raw = RawSpare {
            kind: KINDS.iter().position(|kind| *kind == self.kind).expect("all kinds are listed") as u8 + 1,
            tag: self.tag,
            reserved: U16::ZERO,
            incarnation: self.incarnation.into(),
            sequence: self.sequence.into(),
            number: self.number.into(),
            index: self.index.into(),
            erases: self.erases.into(),
            durable: self.durable.into(),
            chains: self.chains.into(),
            root: self.root.into(),
            origin: self.origin.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// `None` for spare bytes that no program wrote.
    pub fn decode(bytes: &[u8; SPARE]) -> Option<Spare> {
        let raw: RawSpare = zerocopy::transmute!(*bytes);
        Some(Spare {
            kind: *KINDS.get(usize::from(raw.kind).checked_sub(1)?)?,
            tag: raw.tag.min(4),
            incarnation: raw.incarnation.get(),
            sequence: raw.sequence.get(),
            number: raw.number.get(),
            index: raw.index.get(),
            erases: raw.erases.get(),
            durable: raw.durable.get(),
            chains: raw.chains.get(),
            root: raw.root.get(),
            origin: raw.origin.get(),
        })
    }

    /// Whether it is content of a logical page.
    pub fn is_content(&self) -> bool {
        matches!(self.kind, Kind::Plain | Kind::Written | Kind::Moved)
    }
}

/// Why a page is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It holds something else.
    Other,
    Erased,
    Damaged,
    Unreadable,
}

const FAULTS: [Fault; 4] = [Fault::Other, Fault::Erased, Fault::Damaged, Fault::Unreadable];

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Other => "it holds something else",
            Fault::Erased => "it is erased",
            Fault::Damaged => "it reads otherwise than it was programmed",
            Fault::Unreadable => "neither it nor its spare bytes can be read",
        })
    }
}

/// What is in a mark that a page is lost: where the page was, and why it was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub at: Ppn,
    pub fault: Fault,
}

impl Lost {
    pub fn encode(&self) -> Page {
        let mut page = Page::zeros();
        let fault = FAULTS.iter().position(|fault| *fault == self.fault).expect("all faults are listed") as u32;
        page.put(0, &self.at.0.to_le_bytes());
        page.put(4, &fault.to_le_bytes());
        page
    }

    pub fn decode(page: &Page) -> Lost {
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
        Lost { at: Ppn(word(0)), fault: FAULTS.get(word(4) as usize).copied().unwrap_or(Fault::Unreadable) }
    }
}

/// Entries of a page of a chain.
pub const CHAIN_ENTRIES: usize = 168;
const ENTRY: usize = 24;
const CHAIN_HEAD: usize = PAGE - CHAIN_ENTRIES * ENTRY;
const CHAIN_MAGIC: u32 = 0x4e48_4358;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawChain {
    magic: U32,
    version: U32,
    id: [u8; 16],
    incarnation: U32,
    index: U32,
    number: U64,
    pages: U32,
    entries: U32,
    /// Of all entries up to the end of this page.
    sum: U64,
    reserved: U64,
}
const _: () = assert!(size_of::<RawChain>() == CHAIN_HEAD);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    tx: U64,
    lpn: U64,
    ppn: U32,
    count: U32,
}
const _: () = assert!(size_of::<RawEntry>() == ENTRY);

/// What a chain says of logical pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// This logical page is there from now on.
    Page { tx: u64, lpn: u32, at: Ppn },
    /// These read as zeros.
    Zeros { tx: u64, lpn: u32, count: u32 },
}

/// For `Entry::Zeros` on flash.
const NOWHERE: u32 = u32::MAX;

/// Which page of which chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainPlace {
    pub incarnation: u32,
    pub number: u64,
    pub index: u32,
    /// Pages of the chain.
    pub pages: u32,
}

/// A page of a chain, with at most [`CHAIN_ENTRIES`] entries. `sum` covers the entries of the pages before it, and is
/// carried on.
pub(super) fn encode_chain(id: &[u8; 16], place: ChainPlace, entries: &[Entry], sum: &mut u64) -> Page {
    let mut page = [0; PAGE];
    for (entry, bytes) in entries.iter().zip(page[CHAIN_HEAD..].chunks_exact_mut(ENTRY)) {
        let raw = match *entry {
            Entry::Page { tx, lpn, at } => {
                RawEntry { tx: tx.into(), lpn: u64::from(lpn).into(), ppn: at.0.into(), count: 1.into() }
            }
            Entry::Zeros { tx, lpn, count } => {
                RawEntry { tx: tx.into(), lpn: u64::from(lpn).into(), ppn: NOWHERE.into(), count: count.into() }
            }
        };
        bytes.copy_from_slice(raw.as_bytes());
    }
    *sum = XxHash3_64::oneshot_with_seed(*sum, &page[CHAIN_HEAD..CHAIN_HEAD + entries.len() * ENTRY]);
    let raw = RawChain {
        magic: CHAIN_MAGIC.into(),
        version: VERSION.into(),
        id: *id,
        incarnation: place.incarnation.into(),
        index: place.index.into(),
        number: place.number.into(),
        pages: place.pages.into(),
        entries: (entries.len() as u32).into(),
        sum: (*sum).into(),
        reserved: U64::ZERO,
    };
    page[..CHAIN_HEAD].copy_from_slice(raw.as_bytes());
    Page::new(&page)
}

/// The entries of a page of a chain. `None` if it is no page of such a chain, or not all entries up to it are right.
pub(super) fn decode_chain(id: &[u8; 16], page: &Page, sum: &mut u64) -> Option<(ChainPlace, Vec<Entry>)> {
    let (raw, _) = RawChain::read_from_prefix(&page[..]).ok()?;
    let count = raw.entries.get() as usize;
    if raw.magic.get() != CHAIN_MAGIC || raw.version.get() != VERSION || raw.id != *id || count > CHAIN_ENTRIES {
        return None;
    }
    *sum = XxHash3_64::oneshot_with_seed(*sum, &page[CHAIN_HEAD..CHAIN_HEAD + count * ENTRY]);
    if *sum != raw.sum.get() {
        return None;
    }
    let entry = |bytes: &[u8]| {
        let raw = RawEntry::read_from_bytes(bytes).ok()?;
        let lpn = u32::try_from(raw.lpn.get()).ok()?;
        Some(match raw.ppn.get() {
            NOWHERE => Entry::Zeros { tx: raw.tx.get(), lpn, count: raw.count.get() },
            ppn => Entry::Page { tx: raw.tx.get(), lpn, at: Ppn(ppn) },
        })
    };
    let entries: Option<Vec<Entry>> = page[CHAIN_HEAD..].chunks_exact(ENTRY).take(count).map(entry).collect();
    let place = ChainPlace {
        incarnation: raw.incarnation.get(),
        number: raw.number.get(),
        index: raw.index.get(),
        pages: raw.pages.get(),
    };
    Some((place, entries?))
}

/// Programs by cause, and erases, over all lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// Pages of transactions.
    pub data: u64,
    /// Pages that were written plainly.
    pub plain: u64,
    /// Table and directory pages, and roots.
    pub map: u64,
    /// Pages of chains.
    pub chain: u64,
    /// Pages that collection has moved.
    pub collection: u64,
    /// Erases of blocks; no programs.
    pub erases: u64,
}

impl Programs {
    /// Of all causes.
    pub fn all(&self) -> u64 {
        self.data + self.plain + self.map + self.chain + self.collection
    }
}

/// Directory pages that a root has room for.
pub(super) const DIRECTORIES: usize = 496;
/// Running transactions that it names.
const RUNNING: usize = 64;
/// Blocks that it names.
const SCAN: usize = 256;
/// In the place of the number of blocks: all of them.
const ALL_BLOCKS: u32 = u32::MAX;
const ROOT_MAGIC: [u8; 8] = *b"XFTLROOT";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawRoot {
    magic: [u8; 8],
    version: U32,
    features: U32,
    id: [u8; 16],
    incarnation: U32,
    channels: U32,
    blocks: U32,
    pages: U32,
    sequence: U64,
    chains: U64,
    logical: U32,
    data_blocks: U32,
    reserve: U32,
    chain_blocks: U32,
    buffer: U32,
    interval: U32,
    most_pages: U64,
    program_ns: U32,
    read_ns: U32,
    erase_ns: U32,
    directories: U32,
    name: [u8; 16],
    programs: [U64; 6],
    dropped: [U64; 5],
    running: U32,
    scanned: U32,
    running_of: [U64; RUNNING],
    scan_of: [U32; SCAN],
    directory_of: [U32; DIRECTORIES],
    reserved: [u8; 344],
    check: U64,
}
const _: () = assert!(size_of::<RawRoot>() == PAGE);

/// A root: where everything is, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub id: [u8; 16],
    pub incarnation: u32,
    pub geometry: Geometry,
    pub config: Config,
    /// Of its own program. What has a higher one is not in the map.
    pub sequence: u64,
    /// Chains up to this number are in the map.
    pub chains: u64,
    pub directories: Vec<Ppn>,
    pub programs: Programs,
    /// What the last open has dropped, by tag.
    pub dropped: [u64; 5],
    /// Transactions that ran; not all, if there were many.
    pub running: Vec<u64>,
    /// Blocks that pages of later programs, or of running transactions, may be in, beside blocks that were opened
    /// later. `None`: any.
    pub scan: Option<Vec<u32>>,
}

impl Root {
    pub fn encode(&self) -> Page {
        let mut raw = RawRoot::new_zeroed();
        raw.magic = ROOT_MAGIC;
        raw.version = VERSION.into();
        raw.id = self.id;
        raw.incarnation = self.incarnation.into();
        raw.channels = self.geometry.channels.into();
        raw.blocks = self.geometry.blocks.into();
        raw.pages = self.geometry.pages.into();
        raw.sequence = self.sequence.into();
        raw.chains = self.chains.into();
        let config = &self.config;
        raw.logical = config.logical.into();
        raw.data_blocks = config.data_blocks.into();
        raw.reserve = config.reserve.into();
        raw.chain_blocks = config.chain_blocks.into();
        raw.buffer = config.buffer.into();
        raw.interval = config.interval.into();
        raw.most_pages = config.most_pages.unwrap_or(u64::MAX).into();
        raw.program_ns = config.times.program_ns.into();
        raw.read_ns = config.times.read_ns.into();
        raw.erase_ns = config.times.erase_ns.into();
        raw.name = config.name;
        let Programs { data, plain, map, chain, collection, erases } = self.programs;
        raw.programs = [data, plain, map, chain, collection, erases].map(U64::new);
        raw.dropped = self.dropped.map(U64::new);
        raw.running = (self.running.len().min(RUNNING) as u32).into();
        raw.running_of.iter_mut().zip(&self.running).for_each(|(raw, tx)| *raw = (*tx).into());
        match &self.scan {
            Some(blocks) if blocks.len() <= SCAN => {
                raw.scanned = (blocks.len() as u32).into();
                raw.scan_of.iter_mut().zip(blocks).for_each(|(raw, block)| *raw = (*block).into());
            }
            _ => raw.scanned = ALL_BLOCKS.into(),
        }
        raw.directories = (self.directories.len() as u32).into();
        raw.directory_of.iter_mut().zip(&self.directories).for_each(|(raw, at)| *raw = at.0.into());
        raw.check = root_check(&raw).into();
        let mut page = [0; PAGE];
        page.copy_from_slice(raw.as_bytes());
        Page::new(&page)
    }

    /// # Errors
    /// What is wrong with it; of another version, its number.
    pub fn decode(page: &Page) -> Result<Root, BadRoot> {
        let (raw, _) = RawRoot::read_from_prefix(&page[..]).expect("a page");
        if raw.magic != ROOT_MAGIC {
            return Err(BadRoot::Other);
        }
        if raw.version.get() != VERSION || raw.features.get() != 0 {
            return Err(BadRoot::Version(raw.version.get()));
        }
        let geometry = Geometry { channels: raw.channels.get(), blocks: raw.blocks.get(), pages: raw.pages.get() };
        let (running, scanned, directories) = (raw.running.get(), raw.scanned.get(), raw.directories.get() as usize);
        let is_sound = raw.check.get() == root_check(&raw)
            && running as usize <= RUNNING
            && (scanned == ALL_BLOCKS || scanned as usize <= SCAN)
            && directories <= DIRECTORIES;
        if !is_sound {
            return Err(BadRoot::Other);
        }
        let [data, plain, map, chain, collection, erases] = raw.programs.map(U64::get);
        let config = Config {
            logical: raw.logical.get(),
            data_blocks: raw.data_blocks.get(),
            reserve: raw.reserve.get(),
            chain_blocks: raw.chain_blocks.get(),
            buffer: raw.buffer.get(),
            interval: raw.interval.get(),
            most_pages: Some(raw.most_pages.get()).filter(|most| *most != u64::MAX),
            times: Times { program_ns: raw.program_ns.get(), read_ns: raw.read_ns.get(), erase_ns: raw.erase_ns.get() },
            name: raw.name,
        };
        Ok(Root {
            id: raw.id,
            incarnation: raw.incarnation.get(),
            geometry,
            config,
            sequence: raw.sequence.get(),
            chains: raw.chains.get(),
            directories: raw.directory_of[..directories].iter().map(|at| Ppn(at.get())).collect(),
            programs: Programs { data, plain, map, chain, collection, erases },
            dropped: raw.dropped.map(U64::get),
            running: raw.running_of[..running as usize].iter().map(|tx| tx.get()).collect(),
            scan: (scanned != ALL_BLOCKS)
                .then(|| raw.scan_of[..scanned as usize].iter().map(|block| block.get()).collect()),
        })
    }
}

fn root_check(raw: &RawRoot) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(VERSION), &raw.as_bytes()[..PAGE - 8])
}

/// Why a page is no root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadRoot {
    /// It was written by another program.
    Version(u32),
    /// It is none, or has rotted.
    Other,
}
