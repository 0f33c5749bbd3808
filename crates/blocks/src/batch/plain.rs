//! The plain view of a batch.

use wholly_error::Result;
use wholly_media::Site;

use super::state::PLAIN;
use super::{Batch, ROOM, Shared, busy};
use crate::plain::PlainBlocks;
use crate::{BLOCK, Lba, Page, TxBlocks};

impl PlainBlocks for Batch {
    fn read(&self, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.0.read_committed(self.0.lock()?, at, bytes)
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        TxBlocks::read_run(self, None, at, bytes)
    }

    fn write_part(&self, site: Site, at: u64, offset: usize, bytes: &[u8]) -> Result<()> {
        let shared = &*self.0;
        let mut state = shared.lock()?;
        loop {
            match state.writers.get(at) {
                Some(PLAIN) => state = shared.wait(state)?,
                Some(_) => return Err(busy(at)),
                None if state.live.get(at).is_some() => state = shared.commit_or_wait(ROOM, state)?,
                None => break,
            }
        }
        state.writers.set(at..at + 1, PLAIN);
        drop(state);
        let done = write_claimed(shared, site, Lba(at), offset, bytes);
        let mut state = shared.state.lock().unwrap();
        state.writers.clear(at..at + 1);
        state.counters.plain_writes += u64::from(done.is_ok());
        shared.tell(&state);
        done
    }

    fn flush(&self, site: Site) -> Result<()> {
        drop(self.0.lock()?);
        self.0.failing(self.0.device.flush(site))?;
        self.0.state.lock().unwrap().counters.plain_flushes += 1;
        Ok(())
    }
}

fn write_claimed(shared: &Shared, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
    let mut page = Page::zeros();
    if bytes.len() < BLOCK {
        let mut old = [0; BLOCK];
        shared.device.read(None, at, &mut old)?;
        page = Page::new(&old);
    }
    page.put(offset, bytes);
    shared.device.plain_write(site, at, &page)
}
