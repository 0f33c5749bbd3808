//! What a flash chip does: pages that are programmed once and in order, blocks that are erased as a whole.

use std::sync::Arc;

use sync::Mutex;
use twox_hash::XxHash3_64;
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::site;
use crate::{BLOCK, Page};

/// Bytes of a flash page, without its spare bytes.
pub const PAGE: usize = BLOCK;
/// Spare bytes of a flash page.
pub const SPARE: usize = 64;
/// Bytes of a flash page with its spare bytes and checksums on a region.
pub const SLOT: usize = 8192;

/// The number of a flash page: its erase block times the pages of one, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ppn(pub u32);

/// How many of everything there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Channels, which program and erase at the same time. Erase block `n` is on channel `n` modulo this.
    pub channels: u32,
    /// Erase blocks.
    pub blocks: u32,
    /// Flash pages of an erase block.
    pub pages: u32,
}

impl Geometry {
    /// All flash pages.
    pub fn all(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.pages)
    }

    /// The block of a page.
    pub fn block_of(&self, at: Ppn) -> u32 {
        at.0 / self.pages
    }

    /// The channel of a block.
    pub fn channel_of(&self, block: u32) -> usize {
        (block % self.channels) as usize
    }

    /// A page by its block and its place there.
    pub fn page(&self, block: u32, index: u32) -> Ppn {
        Ppn(block * self.pages + index)
    }

    /// The pages of a block.
    pub fn pages_of(&self, block: u32) -> impl Iterator<Item = Ppn> + use<> {
        (block * self.pages..(block + 1) * self.pages).map(Ppn)
    }

    /// Whether there can be such a chip. Numbers of pages are below the two that the map uses for itself.
    pub fn is_sound(&self) -> bool {
        let Geometry { channels, blocks, pages } = *self;
        (1..=256).contains(&channels) && pages >= 2 && blocks >= 3 && self.all() < u64::from(u32::MAX) - 1
    }

    /// A page in words.
    pub fn name(&self, at: Ppn) -> String {
        format!("flash page {} (erase block {}, page {})", at.0, at.0 / self.pages, at.0 % self.pages)
    }
}

/// What a page holds.
#[derive(Clone, Debug)]
pub enum Read<D> {
    /// Nothing since it was erased.
    Erased,
    /// What was programmed.
    Programmed([u8; SPARE], D),
    /// The spare bytes tell what it was; the rest is torn or has rotted.
    Damaged([u8; SPARE]),
    /// Neither erased nor readable.
    Unreadable,
}

/// A flash chip. Programs and erases are on flash once [`wait`](Self::wait) has returned; until then a crash keeps any
/// subset of them, each whole, torn or absent.
///
/// A page is programmed only if it is erased, and after all pages of its block that are before it. Calls are made one
/// after the other.
pub trait Flash: Send + Sync {
    /// How many of everything there are.
    fn geometry(&self) -> Geometry;

    /// The page and its spare bytes. An erased page is not read: it has no content that the chip could prove.
    ///
    /// # Errors
    /// The medium's. A page that is damaged is no error here.
    fn read(&self, at: Ppn) -> Result<Read<Page>>;

    /// What the page is, by its spare bytes alone. `Programmed` does not say that the page itself is readable.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn look(&self, at: Ppn) -> Result<Read<()>>;

    /// Whether spare bytes of the page have rotted, and the chip knows them all the same.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn is_mended(&self, at: Ppn) -> Result<bool> {
        let _ = at;
        Ok(false)
    }

    /// Programs a page with its spare bytes.
    ///
    /// # Errors
    /// The medium's, after which nothing is known of the page.
    fn program(&self, site: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()>;

    /// Erases a block.
    ///
    /// # Errors
    /// The medium's, after which nothing is known of the block.
    fn erase(&self, site: Site, block: u32) -> Result<()>;

    /// Waits for all programs and erases before, on all channels.
    ///
    /// # Errors
    /// The medium's, after which nothing is known of what was waited for.
    fn wait(&self, site: Site) -> Result<()>;

    /// A line for people and reports.
    fn description(&self) -> String;
}

impl<F: Flash + ?Sized> Flash for Arc<F> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn read(&self, at: Ppn) -> Result<Read<Page>> {
        (**self).read(at)
    }

    fn look(&self, at: Ppn) -> Result<Read<()>> {
        (**self).look(at)
    }

    fn is_mended(&self, at: Ppn) -> Result<bool> {
        (**self).is_mended(at)
    }

    fn program(&self, site: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()> {
        (**self).program(site, at, page, spare)
    }

    fn erase(&self, site: Site, block: u32) -> Result<()> {
        (**self).erase(site, block)
    }

    fn wait(&self, site: Site) -> Result<()> {
        (**self).wait(site)
    }

    fn description(&self) -> String {
        (**self).description()
    }
}

/// A page in memory, with its spare bytes, once it is programmed.
type Cell = Option<(Page, [u8; SPARE])>;

/// A chip in memory, which keeps the pages that it is given without a copy.
pub struct Ram {
    geometry: Geometry,
    cells: Mutex<Vec<Cell>>,
}

impl Ram {
    /// With every block erased.
    pub fn new(geometry: Geometry) -> Arc<Ram> {
        Arc::new(Ram { geometry, cells: Mutex::new(vec![None; geometry.all() as usize]) })
    }

    fn cells(&self) -> sync::MutexGuard<'_, Vec<Cell>> {
        self.cells.lock().expect("no holder of this lock panics")
    }
}

impl Flash for Ram {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Ppn) -> Result<Read<Page>> {
        Ok(match &self.cells()[at.0 as usize] {
            Some((page, spare)) => Read::Programmed(*spare, page.clone()),
            None => Read::Erased,
        })
    }

    fn look(&self, at: Ppn) -> Result<Read<()>> {
        Ok(match &self.cells()[at.0 as usize] {
            Some((_, spare)) => Read::Programmed(*spare, ()),
            None => Read::Erased,
        })
    }

    fn program(&self, _: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()> {
        self.cells()[at.0 as usize] = Some((page.clone(), *spare));
        Ok(())
    }

    fn erase(&self, _: Site, block: u32) -> Result<()> {
        let mut cells = self.cells();
        self.geometry.pages_of(block).for_each(|at| cells[at.0 as usize] = None);
        Ok(())
    }

    fn wait(&self, _: Site) -> Result<()> {
        Ok(())
    }

    fn description(&self) -> String {
        "flash in memory (model)".into()
    }
}

/// Says that a region is a flash file.
const MAGIC: [u8; 8] = *b"WHOLLYFL";
/// Of this layout of slots.
const VERSION: u32 = 1;
/// Where the second copy of head and spare bytes stands in a slot.
const COPY: usize = 2048;
/// Bytes of a head with its spare bytes.
const HEAD: usize = 128;

/// The first slot of a flash file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawFile {
    magic: [u8; 8],
    version: U32,
    channels: U32,
    blocks: U32,
    pages: U32,
    id: [u8; 16],
    reserved: [u8; 16],
    check: U64,
}
const _: () = assert!(size_of::<RawFile>() == 64);

/// The head of a slot, with the spare bytes behind it. It stands in the slot twice: one that has rotted is mended by
/// the other, which also tells which logical page is lost if the page has rotted.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawSlot {
    magic: U32,
    ppn: U32,
    /// Of the page.
    sum: U64,
    reserved: [u8; 40],
    spare: [u8; SPARE],
    check: U64,
}
const _: () = assert!(size_of::<RawSlot>() == HEAD);

/// The magic of a slot that is programmed. No byte of it is zero.
const PROGRAMMED: u32 = 0x5146_4c50;

/// A chip on a region: the head of the file, then one slot of 8 KiB for each page. Zeros are erased.
pub struct OverRegion {
    region: Arc<dyn Region>,
    geometry: Geometry,
    seed: u64,
}

/// The seed of all checksums of a file.
fn seed_of(id: &[u8; 16]) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(VERSION), id)
}

impl OverRegion {
    /// Whether bytes are the beginning of a flash file, of whatever version.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Bytes of a region for so many pages.
    pub fn bytes(geometry: &Geometry) -> u64 {
        (1 + geometry.all()) * SLOT as u64
    }

    /// Makes a chip on a region of zeros, which is as long as [`bytes`](Self::bytes) says. Durable on return.
    ///
    /// # Errors
    /// `Invalid` if the region has another length, or there can be no such chip; the medium's.
    pub fn create(region: Arc<dyn Region>, geometry: Geometry, id: [u8; 16]) -> Result<Arc<OverRegion>> {
        if !geometry.is_sound() || region.len() != Self::bytes(&geometry) {
            return Err(Error::Invalid(format!("{geometry:?} asks for {} bytes", Self::bytes(&geometry))));
        }
        let mut raw = RawFile {
            magic: MAGIC,
            version: VERSION.into(),
            channels: geometry.channels.into(),
            blocks: geometry.blocks.into(),
            pages: geometry.pages.into(),
            id,
            reserved: [0; 16],
            check: U64::ZERO,
        };
        raw.check = file_check(&raw).into();
        let mut slot = [0; SLOT];
        slot[..64].copy_from_slice(raw.as_bytes());
        region.write(site::FORMAT, 0, &slot)?;
        region.fence(site::FORMAT_WAIT)?;
        Ok(Arc::new(OverRegion { region, geometry, seed: seed_of(&id) }))
    }

    /// The chip that was made on a region. Changes no byte.
    ///
    /// # Errors
    /// `Invalid` if the region holds no flash file; `Unsupported` for another version; `Corrupt` if the head has
    /// rotted, or the file was cut.
    pub fn open(region: Arc<dyn Region>) -> Result<Arc<OverRegion>> {
        let mut bytes = [0; 64];
        if region.len() < SLOT as u64 {
            return Err(Error::Invalid(format!(
                "{} bytes are no flash file: `wholly flash init` makes one",
                region.len()
            )));
        }
        region.read(0, &mut bytes)?;
        let raw = RawFile::read_from_bytes(&bytes).expect("64 bytes");
        if raw.magic != MAGIC {
            return Err(Error::Invalid("this is no flash file: `wholly flash init` makes one".into()));
        }
        if raw.version.get() != VERSION {
            let (has, knows) = (raw.version.get(), VERSION);
            let why = format!(
                "the flash file has version {has}, this program knows {knows}: open it with the program that made it"
            );
            return Err(Error::Unsupported(why));
        }
        let geometry = Geometry { channels: raw.channels.get(), blocks: raw.blocks.get(), pages: raw.pages.get() };
        if raw.check.get() != file_check(&raw) || !geometry.is_sound() {
            return Err(Error::corrupt(
                "the head of the flash file",
                "its checksum is wrong: restore the file from a copy",
            ));
        }
        let bytes = Self::bytes(&geometry);
        if region.len() < bytes {
            let first = (region.len() / SLOT as u64).saturating_sub(1);
            let place = format!("the flash file, from {} on", geometry.name(Ppn(first as u32)));
            let fault = format!("it is cut: {} of {bytes} bytes are there; restore it from a copy", region.len());
            return Err(Error::corrupt(place, fault));
        }
        Ok(Arc::new(OverRegion { region, geometry, seed: seed_of(&raw.id) }))
    }

    /// Where the slot of a page begins.
    pub fn offset(at: Ppn) -> u64 {
        (1 + u64::from(at.0)) * SLOT as u64
    }

    fn sum(&self, at: Ppn, page: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed ^ u64::from(at.0).rotate_left(32), page)
    }

    fn check(&self, at: Ppn, raw: &RawSlot) -> u64 {
        self.sum(at, &raw.as_bytes()[..HEAD - 8]).max(1)
    }

    /// A head of a slot, if it proves itself.
    fn head(&self, at: Ppn, bytes: &[u8]) -> Option<RawSlot> {
        let (raw, _) = RawSlot::read_from_prefix(bytes).expect("a head");
        let is_right = raw.magic.get() == PROGRAMMED && raw.ppn.get() == at.0;
        (is_right && raw.check.get() == self.check(at, &raw)).then_some(raw)
    }

    /// The spare bytes of a slot and the checksum of its page, and whether both copies of these are right.
    fn heads(&self, at: Ppn, bytes: &[u8]) -> Read<(u64, bool)> {
        match (self.head(at, bytes), self.head(at, &bytes[COPY..])) {
            (Some(raw), Some(copy)) if raw.as_bytes() == copy.as_bytes() => {
                Read::Programmed(raw.spare, (raw.sum.get(), true))
            }
            (Some(raw), None) | (None, Some(raw)) => Read::Programmed(raw.spare, (raw.sum.get(), false)),
            (Some(_), Some(_)) => Read::Unreadable,
            (None, None) => {
                let is_zero = |from: usize| bytes[from..from + HEAD].iter().all(|byte| *byte == 0);
                if is_zero(0) && is_zero(COPY) { Read::Erased } else { Read::Unreadable }
            }
        }
    }

    fn heads_at(&self, at: Ppn) -> Result<Read<(u64, bool)>> {
        let mut heads = [0; COPY + HEAD];
        self.region.read(Self::offset(at), &mut heads)?;
        Ok(self.heads(at, &heads))
    }
}

fn file_check(raw: &RawFile) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(VERSION), &raw.as_bytes()[..56])
}

impl Flash for OverRegion {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Ppn) -> Result<Read<Page>> {
        let mut slot = [0; SLOT];
        self.region.read(Self::offset(at), &mut slot)?;
        Ok(match self.heads(at, &slot) {
            Read::Programmed(spare, (sum, _)) => {
                let bytes: &[u8; PAGE] = slot[SLOT - PAGE..].try_into().expect("the rest of a slot is a page");
                if self.sum(at, bytes) == sum {
                    Read::Programmed(spare, Page::new(bytes))
                } else {
                    Read::Damaged(spare)
                }
            }
            Read::Erased => Read::Erased,
            Read::Damaged(spare) => Read::Damaged(spare),
            Read::Unreadable => Read::Unreadable,
        })
    }

    fn look(&self, at: Ppn) -> Result<Read<()>> {
        Ok(match self.heads_at(at)? {
            Read::Programmed(spare, _) => Read::Programmed(spare, ()),
            Read::Erased => Read::Erased,
            Read::Damaged(spare) => Read::Damaged(spare),
            Read::Unreadable => Read::Unreadable,
        })
    }

    fn is_mended(&self, at: Ppn) -> Result<bool> {
        Ok(matches!(self.heads_at(at)?, Read::Programmed(_, (_, false))))
    }

    fn program(&self, site: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()> {
        let mut raw = RawSlot {
            magic: PROGRAMMED.into(),
            ppn: at.0.into(),
            sum: self.sum(at, &page[..]).into(),
            reserved: [0; 40],
            spare: *spare,
            check: U64::ZERO,
        };
        raw.check = self.check(at, &raw).into();
        let mut slot = [0; SLOT];
        slot[..HEAD].copy_from_slice(raw.as_bytes());
        slot[COPY..COPY + HEAD].copy_from_slice(raw.as_bytes());
        slot[SLOT - PAGE..].copy_from_slice(&page[..]);
        Ok(self.region.write(site, Self::offset(at), &slot)?)
    }

    fn erase(&self, site: Site, block: u32) -> Result<()> {
        const AT_ONCE: u32 = 32;
        let zeros = vec![0; AT_ONCE.min(self.geometry.pages) as usize * SLOT];
        for first in (0..self.geometry.pages).step_by(AT_ONCE as usize) {
            let count = AT_ONCE.min(self.geometry.pages - first) as usize;
            self.region.write(site, Self::offset(self.geometry.page(block, first)), &zeros[..count * SLOT])?;
        }
        Ok(())
    }

    fn wait(&self, site: Site) -> Result<()> {
        Ok(self.region.fence(site)?)
    }

    fn description(&self) -> String {
        format!("flash on {} (model)", self.region.guarantees().description)
    }
}
