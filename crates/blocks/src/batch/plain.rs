//! The committed content as a region (T12).

use std::sync::Arc;

use rustix::io::Errno;
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Guarantees, Kind, PersistenceDomain, Region, Site};

use super::state::PLAIN;
use super::{Batch, ROOM, Shared, busy};
use crate::{BLOCK, Lba, Page, TxBlocks};

/// See the module.
pub(super) struct Plain {
    shared: Arc<Shared>,
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

impl Plain {
    pub fn new(shared: Arc<Shared>) -> Plain {
        let of = &shared.guarantees;
        let guarantees = Guarantees {
            kind: Kind::Disk,
            atomic_unit: shared.device.guarantees().plain_unit,
            block: BLOCK as u32,
            domain: PersistenceDomain::Device,
            emulated: of.emulated,
            description: of.description.clone(),
        };
        Plain { shared, guarantees }
    }

    /// # Panics
    /// If the range is not inside of the region.
    fn check(&self, offset: u64, len: usize) {
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len());
        assert!(is_inside, "{len} bytes at {offset} of a medium of {}", self.len());
    }

    /// Writes a part of a block. A live version comes home first; a running one is in the way.
    fn write_part(&self, site: Site, at: u64, offset: usize, bytes: &[u8]) -> Result<()> {
        let mut state = self.shared.lock()?;
        loop {
            match state.writers.get(at) {
                Some(PLAIN) => state = self.shared.wait(state)?,
                Some(_) => return Err(busy(at)),
                None if state.live.get(at).is_some() => state = self.shared.commit_or_wait(ROOM, state)?,
                None => break,
            }
        }
        state.writers.set(at..at + 1, PLAIN);
        drop(state);
        let done = self.write_claimed(site, Lba(at), offset, bytes);
        let mut state = self.shared.state.lock().unwrap();
        state.writers.clear(at..at + 1);
        state.counters.plain_writes += u64::from(done.is_ok());
        self.shared.tell(&state);
        done
    }

    fn write_claimed(&self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        let mut page = Page::zeros();
        if bytes.len() < BLOCK {
            let mut old = [0; BLOCK];
            self.shared.device.read(None, at, &mut old)?;
            page = Page::new(&old);
        }
        page.put(offset, bytes);
        self.shared.device.plain_write(site, at, &page)
    }

    fn flush(&self, site: Site) -> Result<()> {
        drop(self.shared.lock()?);
        self.shared.failing(self.shared.device.flush(site))?;
        self.shared.state.lock().unwrap().counters.plain_flushes += 1;
        Ok(())
    }
}

/// A region has the media's errors.
fn in_media(operation: &'static str, error: Error, place: impl FnOnce() -> String) -> MediaError {
    match error {
        Error::Media(error) => error,
        error => MediaError::new(operation, format!("{}: {error}", place()), Errno::from(error)),
    }
}

impl Region for Plain {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.shared.guarantees.blocks * BLOCK as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.check(offset, buf.len());
        if offset.is_multiple_of(BLOCK as u64) && buf.len().is_multiple_of(BLOCK) {
            let read = Batch(self.shared.clone()).read_run(None, Lba(offset / BLOCK as u64), buf);
            return read.map_err(|error| in_media("read", error, || format!("block {}", offset / BLOCK as u64)));
        }
        let mut page = [0; BLOCK];
        for (at, inside, here) in parts(offset, buf.len()) {
            let state = self.shared.lock();
            let read = state.and_then(|state| self.shared.read_committed(state, Lba(at), &mut page));
            read.map_err(|error| in_media("read", error, || format!("block {at}")))?;
            buf[here].copy_from_slice(&page[inside]);
        }
        Ok(())
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.check(offset, data.len());
        for (at, inside, here) in parts(offset, data.len()) {
            let written = self.write_part(site, at, inside.start, &data[here]);
            written.map_err(|error| in_media("write", error, || format!("block {at}")))?;
        }
        Ok(())
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.flush(site).map_err(|error| in_media("flush", error, || self.guarantees.description.clone()))
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
