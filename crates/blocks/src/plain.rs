//! The committed content as a region (T12), of any implementation.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Guarantees, Kind, PersistenceDomain, Region, Site};

use crate::{BLOCK, BlockGuarantees, Lba};

/// What an implementation does for its plain view.
pub(crate) trait PlainBlocks: Send + Sync {
    /// Copies the committed version of a block.
    fn read(&self, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()>;
    /// The same of consecutive blocks.
    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()>;
    /// Writes a part of a block. A version that is not home comes home first; a running one is in the way.
    fn write_part(&self, site: Site, at: u64, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Makes what was written so durable.
    fn flush(&self, site: Site) -> Result<()>;
}

/// See the module.
pub(crate) struct Plain<B> {
    of: Arc<B>,
    blocks: u64,
    guarantees: Guarantees,
}

/// The parts of a range: of each block, its number, and the bytes of it and of the range.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (block, end) = (BLOCK as u64, offset + len as u64);
    (offset / block..end.div_ceil(block)).map(move |at| {
        let (from, to) = (offset.max(at * block), end.min((at + 1) * block));
        let (inside, here) = ((from - at * block) as usize, (from - offset) as usize);
        let len = (to - from) as usize;
        (at, inside..inside + len, here..here + len)
    })
}

impl<B: PlainBlocks> Plain<B> {
    pub fn new(of: Arc<B>, guarantees: &BlockGuarantees, unit: u32) -> Plain<B> {
        let BlockGuarantees { blocks, emulated, description, .. } = guarantees;
        Self::over(of, *blocks, unit, (*emulated, description.clone()))
    }

    pub fn over(of: Arc<B>, blocks: u64, unit: u32, (emulated, description): (bool, String)) -> Plain<B> {
        let guarantees = Guarantees {
            kind: Kind::Disk,
            atomic_unit: unit,
            block: BLOCK as u32,
            domain: PersistenceDomain::Device,
            emulated,
            description,
        };
        Plain { of, blocks, guarantees }
    }

    /// # Panics
    /// If the range is not inside of the region.
    fn check(&self, offset: u64, len: usize) {
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len());
        assert!(is_inside, "{len} bytes at {offset} of a medium of {}", self.len());
    }
}

/// A region has the media's errors.
fn in_media(operation: &'static str, error: Error, place: impl FnOnce() -> String) -> MediaError {
    match error {
        Error::Media(error) => error,
        error => MediaError::new(operation, format!("{}: {error}", place()), Errno::from(error)),
    }
}

impl<B: PlainBlocks> Region for Plain<B> {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.blocks * BLOCK as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.check(offset, buf.len());
        if offset.is_multiple_of(BLOCK as u64) && buf.len().is_multiple_of(BLOCK) {
            let read = self.of.read_run(Lba(offset / BLOCK as u64), buf);
            return read.map_err(|error| in_media("read", error, || format!("block {}", offset / BLOCK as u64)));
        }
        let mut page = [0; BLOCK];
        for (at, inside, here) in parts(offset, buf.len()) {
            let read = self.of.read(Lba(at), &mut page);
            read.map_err(|error| in_media("read", error, || format!("block {at}")))?;
            buf[here].copy_from_slice(&page[inside]);
        }
        Ok(())
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.check(offset, data.len());
        for (at, inside, here) in parts(offset, data.len()) {
            let written = self.of.write_part(site, at, inside.start, &data[here]);
            written.map_err(|error| in_media("write", error, || format!("block {at}")))?;
        }
        Ok(())
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.of.flush(site).map_err(|error| in_media("flush", error, || self.guarantees.description.clone()))
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.write(site, offset, data)?;
        self.fence(site)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        match len == self.len() {
            true => self.fence(site),
            false => {
                Err(MediaError::new("set_len", format!("{len} bytes: the device has another size"), Errno::OPNOTSUPP))
            }
        }
    }
}
