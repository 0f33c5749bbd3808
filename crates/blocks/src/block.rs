//! Numbers of blocks, and their content.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// The number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lba(pub u64);

impl Lba {
    /// The byte of the region at which the block begins; for a number that no block has, one that no region has.
    pub fn byte(self) -> u64 {
        self.0.saturating_mul(BLOCK as u64)
    }
}

/// Consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub start: Lba,
    /// How many there are.
    pub count: u64,
}

impl Run {
    /// Its blocks.
    pub fn blocks(self) -> impl DoubleEndedIterator<Item = Lba> + use<> {
        (self.start.0..self.start.0.saturating_add(self.count)).map(Lba)
    }
}

/// The content of a block: counted, so that a cache, a transaction and the medium have it without a copy, and
/// immutable, so that none of them needs a lock to read it.
#[derive(Clone, PartialEq, Eq)]
pub struct Page(Arc<[u8; BLOCK]>);

impl Page {
    /// With these bytes.
    pub fn new(bytes: &[u8; BLOCK]) -> Page {
        // As a slice they go straight to their place, as an array by way of the stack.
        Page(Arc::<[u8]>::from(&bytes[..]).try_into().expect("as many"))
    }

    /// Zeros: one page for all.
    pub fn zeros() -> Page {
        static ZEROS: LazyLock<Page> = LazyLock::new(|| Page::new(&[0; BLOCK]));
        ZEROS.clone()
    }

    /// Whether both are one page in memory.
    pub(crate) fn is_same(&self, other: &Page) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// With some bytes at an offset changed. Copies the others if somebody else has the page.
    ///
    /// # Panics
    /// If the range is not inside of a block.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        if let Ok(all) = bytes.try_into() {
            assert_eq!(offset, 0, "a block is {BLOCK} bytes");
            return *self = Page::new(all);
        }
        Arc::make_mut(&mut self.0)[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

impl From<Arc<[u8; BLOCK]>> for Page {
    fn from(bytes: Arc<[u8; BLOCK]>) -> Page {
        Page(bytes)
    }
}

impl Deref for Page {
    type Target = [u8; BLOCK];

    fn deref(&self) -> &[u8; BLOCK] {
        &self.0
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({:02x?}..)", &self.0[..8])
    }
}
