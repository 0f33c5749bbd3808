//! A medium as it would be: what is written stays in memory, over a region that is only read.
//!
//! A block below that cannot be read is damage of that block: until it is written, its bytes are such that no structure
//! has. Once it is stored, it can be read again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use rustix::io::Errno;
use sync::Mutex;
use wholly_media::{Error, Guarantees, Region, Result, Site};

use crate::format::BLOCK;

/// The most changed blocks: 1 GiB.
const MOST_CHANGED: usize = 1 << 18;
/// The most blocks that cannot be read. With more of them it is the medium that fails, and a repair would empty it.
const MOST_UNREADABLE: usize = 1 << 10;
/// The bytes of a block that cannot be read.
pub const NOTHING: u8 = 0xff;

/// Whether an error of a read says that the medium has lost what was there, and not that it cannot be reached.
pub fn is_lost(error: &Error) -> bool {
    matches!(error.errno, Errno::IO | Errno::NODATA | Errno::BADMSG | Errno::ILSEQ | Errno::UCLEAN)
}

/// The region below.
enum Below<'r> {
    Borrowed(&'r dyn Region),
    Shared(Arc<dyn Region>),
}

#[derive(Default)]
struct Above {
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
    unreadable: BTreeMap<u64, Error>,
}

/// See the module.
pub struct Overlay<'r> {
    below: Below<'r>,
    above: Mutex<Above>,
    most_changed: usize,
}

impl<'r> Overlay<'r> {
    pub fn over(region: &'r dyn Region) -> Overlay<'r> {
        Overlay { below: Below::Borrowed(region), above: Mutex::default(), most_changed: MOST_CHANGED }
    }

    pub fn shared(region: Arc<dyn Region>) -> Overlay<'static> {
        Overlay { below: Below::Shared(region), above: Mutex::default(), most_changed: MOST_CHANGED }
    }

    fn below(&self) -> &dyn Region {
        match &self.below {
            Below::Borrowed(region) => *region,
            Below::Shared(region) => &**region,
        }
    }

    /// Reads bytes of one block that has not changed.
    fn read_below(&self, above: &mut Above, block: u64, from: usize, buf: &mut [u8]) -> Result<()> {
        if !above.unreadable.contains_key(&block) {
            match self.below().read(block * BLOCK as u64 + from as u64, buf) {
                Err(error) if is_lost(&error) && above.unreadable.len() < MOST_UNREADABLE => {
                    above.unreadable.insert(block, error);
                }
                read => return read,
            }
        }
        buf.fill(NOTHING);
        Ok(())
    }

    /// Changes bytes.
    ///
    /// # Errors
    /// If what is below cannot be read; `ENOMEM` if too much has changed.
    pub fn put(&self, at: u64, data: &[u8]) -> Result<()> {
        let mut above = self.above.lock().unwrap();
        let mut done = 0;
        while done < data.len() {
            let at = at + done as u64;
            let (block, from) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let part = (BLOCK - from).min(data.len() - done);
            if !above.blocks.contains_key(&block) {
                if above.blocks.len() >= self.most_changed {
                    let what = format!("more than {} changed blocks", self.most_changed);
                    return Err(Error::new("keep in memory", what, Errno::NOMEM));
                }
                let mut bytes = Box::new([0; BLOCK]);
                if part < BLOCK {
                    self.read_below(&mut above, block, 0, &mut bytes[..])?;
                }
                above.blocks.insert(block, bytes);
            }
            if let Entry::Occupied(mut entry) = above.blocks.entry(block) {
                entry.get_mut()[from..from + part].copy_from_slice(&data[done..done + part]);
            }
            done += part;
        }
        Ok(())
    }

    /// Calls `each` with the blocks that differ from what is below, in order.
    ///
    /// # Errors
    /// If that cannot be read; those of `each`.
    pub fn changes(&self, mut each: impl FnMut(u64, &[u8; BLOCK]) -> Result<()>) -> Result<()> {
        let above = self.above.lock().unwrap();
        for (block, bytes) in &above.blocks {
            let mut before = [0; BLOCK];
            if !above.unreadable.contains_key(block) {
                match self.below().read(block * BLOCK as u64, &mut before) {
                    Err(error) if is_lost(&error) => before.fill(!bytes[0]),
                    read => read?,
                }
            }
            if above.unreadable.contains_key(block) || before != **bytes {
                each(*block, bytes)?;
            }
        }
        Ok(())
    }

    /// The blocks that could not be read, with what the medium said.
    pub fn unreadable(&self) -> Vec<(u64, Error)> {
        self.above.lock().unwrap().unreadable.iter().map(|(block, error)| (*block, error.clone())).collect()
    }

    /// That no block can be read after all which could not be: the medium is not to be relied on then.
    ///
    /// # Errors
    /// What the medium said before.
    pub fn confirm(&self) -> Result<()> {
        for (block, error) in self.unreadable() {
            let mut bytes = [0; BLOCK];
            if self.below().read(block * BLOCK as u64, &mut bytes).is_ok() {
                return Err(error);
            }
        }
        Ok(())
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
        let (block, end) = (BLOCK as u64, offset + buf.len() as u64);
        let range = offset / block..end.div_ceil(block);
        let mut above = self.above.lock().unwrap();
        let is_plain = above.blocks.range(range.clone()).next().is_none()
            && above.unreadable.range(range.clone()).next().is_none();
        if is_plain {
            drop(above);
            match self.below().read(offset, buf) {
                Err(error) if is_lost(&error) => {}
                read => return read,
            }
            above = self.above.lock().unwrap();
        }
        for number in range {
            let (from, to) = ((number * block).max(offset), ((number + 1) * block).min(end));
            let inside = (from - number * block) as usize..(to - number * block) as usize;
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            match above.blocks.get(&number) {
                Some(bytes) => part.copy_from_slice(&bytes[inside]),
                None => self.read_below(&mut above, number, inside.start, part)?,
            }
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

    fn of_sevens() -> PmemRegion {
        let file = rustix::fs::memfd_create("below", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&file, 4 * BLOCK as u64).expect("its length");
        let below = PmemRegion::open(file, PmemOptions::default()).expect("a region");
        below.write(Site("test"), 0, &[7; 4 * BLOCK]).expect("write");
        below
    }

    /// However much is written, memory is bounded. What has changed can go on changing.
    #[test]
    fn more_changes_than_there_may_be_are_refused() {
        let below = of_sevens();
        let over = Overlay { most_changed: 2, ..Overlay::over(&below) };
        over.put(BLOCK as u64 - 1, &[9; 2]).expect("write to two blocks");
        over.put(0, &[8; 2 * BLOCK]).expect("write to the same");
        assert_eq!(over.put(3 * BLOCK as u64, &[9]).expect_err("it is a third one").errno, Errno::NOMEM);
        let mut bytes = [0; 3];
        over.read(3 * BLOCK as u64 - 1, &mut bytes).expect("read");
        assert_eq!(bytes, [7; 3], "nothing of it is there");
    }

    #[test]
    fn what_is_written_is_read_and_stays_above() {
        let below = of_sevens();
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
        let mut changed = Vec::new();
        let each = |at, _: &[u8; BLOCK]| {
            changed.push(at);
            Ok(())
        };
        over.changes(each).expect("read");
        assert_eq!(changed, [0, 1]);
    }
}
