//! A medium as it would be: what is written stays in memory, over a region that is only read.

use std::collections::BTreeMap;
use std::sync::Arc;

use wholly::sync::Mutex;
use wholly_media::{Guarantees, Region, Result, Site};

use crate::format::BLOCK;

/// The region below.
enum Below<'r> {
    Borrowed(&'r dyn Region),
    Shared(Arc<dyn Region>),
}

/// See the module.
pub struct Overlay<'r> {
    below: Below<'r>,
    blocks: Mutex<BTreeMap<u64, Box<[u8; BLOCK]>>>,
}

impl<'r> Overlay<'r> {
    pub fn over(region: &'r dyn Region) -> Overlay<'r> {
        Overlay { below: Below::Borrowed(region), blocks: Mutex::default() }
    }

    pub fn shared(region: Arc<dyn Region>) -> Overlay<'static> {
        Overlay { below: Below::Shared(region), blocks: Mutex::default() }
    }

    fn below(&self) -> &dyn Region {
        match &self.below {
            Below::Borrowed(region) => *region,
            Below::Shared(region) => &**region,
        }
    }

    /// Changes bytes.
    ///
    /// # Errors
    /// If what is below cannot be read.
    pub fn put(&self, at: u64, data: &[u8]) -> Result<()> {
        let mut blocks = self.blocks.lock().unwrap();
        let mut done = 0;
        while done < data.len() {
            let at = at + done as u64;
            let (block, from) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let part = (BLOCK - from).min(data.len() - done);
            let bytes = match blocks.entry(block) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    let mut bytes = Box::new([0; BLOCK]);
                    self.below().read(block * BLOCK as u64, &mut bytes[..])?;
                    entry.insert(bytes)
                }
            };
            bytes[from..from + part].copy_from_slice(&data[done..done + part]);
            done += part;
        }
        Ok(())
    }

    /// Blocks that differ from what is below.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn changes(&self) -> Result<Vec<(u64, Box<[u8; BLOCK]>)>> {
        let mut changes = Vec::new();
        for (block, bytes) in &*self.blocks.lock().unwrap() {
            let mut before = [0; BLOCK];
            self.below().read(block * BLOCK as u64, &mut before)?;
            if before != **bytes {
                changes.push((*block, bytes.clone()));
            }
        }
        Ok(changes)
    }
}

impl Region for Overlay<'_> {
    fn guarantees(&self) -> &Guarantees {
        self.below().guarantees()
    }

    fn len(&self) -> u64 {
        self.below().len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below().read(offset, buf)?;
        let (block, end) = (BLOCK as u64, offset + buf.len() as u64);
        for (number, bytes) in self.blocks.lock().unwrap().range(offset / block..end.div_ceil(block)) {
            let (from, to) = ((number * block).max(offset), ((number + 1) * block).min(end));
            let inside = (from - number * block) as usize..(to - number * block) as usize;
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(&bytes[inside]);
        }
        Ok(())
    }

    fn write(&self, _site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.put(offset, data)
    }

    fn fence(&self, _site: Site) -> Result<()> {
        Ok(())
    }

    fn write_through(&self, _site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.put(offset, data)
    }

    fn set_len(&self, _site: Site, _len: u64) -> Result<()> {
        unreachable!("a medium that is looked at keeps its length")
    }
}

#[cfg(test)]
mod tests {
    use wholly_media::pmem::{PmemOptions, PmemRegion};

    use super::*;

    #[test]
    fn what_is_written_is_read_and_stays_above() {
        let file = rustix::fs::memfd_create("below", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&file, 4 * BLOCK as u64).expect("its length");
        let below = PmemRegion::open(file, PmemOptions::default()).expect("a region");
        below.write(Site("test"), 0, &[7; 4 * BLOCK]).expect("write");
        let over = Overlay::over(&below);
        over.put(BLOCK as u64 - 3, &[9; 6]).expect("write");
        over.put(3 * BLOCK as u64, &[7; 50]).expect("write what is there");
        let read = |region: &dyn Region, at: usize, len: usize| {
            let mut bytes = vec![0; len];
            region.read(at as u64, &mut bytes).expect("read");
            bytes
        };
        let mut wanted = vec![7; 4 * BLOCK];
        assert_eq!(read(&below, 0, 4 * BLOCK), wanted);
        wanted[BLOCK - 3..BLOCK + 3].fill(9);
        assert_eq!(read(&over, 0, 4 * BLOCK), wanted);
        assert_eq!(read(&over, BLOCK - 4, 5), wanted[BLOCK - 4..BLOCK + 1]);
        assert_eq!(over.changes().expect("read").iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1]);
    }
}
