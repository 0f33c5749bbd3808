//! Pages for transfers: counted, taken from a pool and given back to it.

use std::sync::{Arc, Weak};

use sync::Mutex;
use wholly_blocks::BLOCK;
use wholly_error::Result;

use crate::spec::Command;
use crate::transport::{Memory, Transport};

/// Pages that the pool takes from the transport at a time.
const CHUNK: usize = 16;

/// Pages that nobody uses.
pub(super) struct PagePool {
    transport: Arc<dyn Transport>,
    free: Mutex<Vec<(Arc<dyn Memory>, usize)>>,
}

/// A page of 4 KiB that the controller reads and writes. Clones are the same page; it goes back to its pool with the
/// last of them. A command holds the pages that it transfers until it completes: they must not be changed before.
#[derive(Clone)]
pub struct DmaPage(Arc<Frame>);

struct Frame {
    memory: Arc<dyn Memory>,
    index: usize,
    pool: Weak<PagePool>,
}

impl PagePool {
    pub fn new(transport: Arc<dyn Transport>) -> PagePool {
        PagePool { transport, free: Mutex::new(Vec::new()) }
    }

    /// # Errors
    /// `NoSpace` if the transport has no more memory.
    pub fn take(self: &Arc<Self>) -> Result<DmaPage> {
        let mut free = self.free.lock().unwrap();
        if free.is_empty() {
            let memory = self.transport.memory(CHUNK)?;
            free.extend((0..CHUNK).rev().map(|index| (memory.clone(), index)));
        }
        let (memory, index) = free.pop().expect("there are some now");
        Ok(DmaPage(Arc::new(Frame { memory, index, pool: Arc::downgrade(self) })))
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.free.lock().unwrap().push((self.memory.clone(), self.index));
        }
    }
}

impl DmaPage {
    /// Its address for the controller.
    pub fn address(&self) -> u64 {
        self.0.memory.address() + (self.0.index * BLOCK) as u64
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If they lie beyond the page.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= BLOCK, "{offset}+{} lies beyond a page", bytes.len());
        self.0.memory.write(self.0.index * BLOCK + offset, bytes);
    }

    /// Copies bytes out of it.
    ///
    /// # Panics
    /// If they lie beyond the page.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= BLOCK, "{offset}+{} lies beyond a page", bytes.len());
        self.0.memory.read(self.0.index * BLOCK + offset, bytes);
    }
}

/// Addresses in a page of a list.
const LISTED: usize = BLOCK / 8;

/// Writes where the pages of a transfer are into a command (base specification 1.4c, section 4.3): one or two pages in
/// the command itself; more in lists, of which each full one ends with the address of the next. Adds the pages of lists
/// to `pages`, as the command needs them as long. Without pages the command stays as it is.
///
/// # Errors
/// `NoSpace`.
pub(super) fn describe(command: &mut Command, pages: &mut Vec<DmaPage>, pool: &Arc<PagePool>) -> Result<()> {
    let addresses: Vec<u64> = pages.iter().map(DmaPage::address).collect();
    let Some(first) = addresses.first() else { return Ok(()) };
    command.prp1 = (*first).into();
    let mut rest = &addresses[1..];
    if rest.len() <= 1 {
        command.prp2 = rest.first().copied().unwrap_or(0).into();
        return Ok(());
    }
    let first = pool.take()?;
    command.prp2 = first.address().into();
    pages.push(first.clone());
    let mut list = first;
    while !rest.is_empty() {
        // The last place is the next list's, unless this one holds all that are left.
        let here = if rest.len() <= LISTED { rest.len() } else { LISTED - 1 };
        for (i, address) in rest[..here].iter().enumerate() {
            list.write(8 * i, &address.to_le_bytes());
        }
        rest = &rest[here..];
        if !rest.is_empty() {
            let next = pool.take()?;
            list.write(8 * (LISTED - 1), &next.address().to_le_bytes());
            pages.push(next.clone());
            list = next;
        }
    }
    Ok(())
}
