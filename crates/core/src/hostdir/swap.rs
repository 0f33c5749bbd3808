//! Bytes that groups have gathered and that are too many for memory: in a file without a name, which ends with the
//! process. They come back before a group commits, so none of it is ever made durable, and nobody looks for it after a
//! crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::site;
use sync::{AtomicU64, Mutex, Ordering};
use wholly_host::{HostFile, HostFs, host_error};

/// Places are multiples of this long.
const LEAST: u64 = 64;

#[derive(Default)]
pub(crate) struct Swap {
    /// Gathered bytes that are in memory, of groups that last.
    in_memory: AtomicU64,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Made when it is first needed.
    file: Option<Arc<dyn HostFile>>,
    end: u64,
    /// The number of places in use.
    used: u64,
    /// Places that nobody uses, by their lengths: powers of two.
    free: BTreeMap<u64, Vec<u64>>,
}

/// Where swapped bytes are.
#[derive(Clone, Copy)]
pub(crate) struct Swapped {
    at: u64,
    length: u32,
}

impl Swapped {
    /// How long its place is.
    fn place(self) -> u64 {
        u64::from(self.length).next_power_of_two().max(LEAST)
    }
}

impl Swap {
    /// A group that had `before` bytes in memory has `now`.
    pub fn count(&self, before: u64, now: u64) {
        self.in_memory.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Bytes that groups have in memory.
    pub fn in_memory(&self) -> u64 {
        self.in_memory.load(Ordering::Relaxed)
    }

    fn file(&self, host: &dyn HostFs) -> Result<Arc<dyn HostFile>> {
        let mut places = self.places.lock().unwrap();
        if let Some(file) = &places.file {
            return Ok(file.clone());
        }
        let file = host.create_unnamed(site::SWAP_MAKE, b"", 0o600).map_err(|error| host_error(error, b""))?;
        Ok(places.file.insert(file).clone())
    }

    /// Stores bytes in a place of their own.
    pub fn put(&self, host: &dyn HostFs, bytes: &[u8]) -> Result<Swapped> {
        let file = self.file(host)?;
        let mut swapped = Swapped { at: 0, length: bytes.len() as u32 };
        let mut places = self.places.lock().unwrap();
        places.used += 1;
        swapped.at = match places.free.get_mut(&swapped.place()).and_then(Vec::pop) {
            Some(at) => at,
            None => {
                places.end += swapped.place();
                places.end - swapped.place()
            }
        };
        drop(places);
        let written = file.write_at(site::SWAP_WRITE, swapped.at, bytes);
        written.inspect_err(|_| self.free(swapped)).map_err(|error| host_error(error, b""))?;
        Ok(swapped)
    }

    /// Stores bytes over those from `from` on.
    pub fn write(&self, host: &dyn HostFs, swapped: Swapped, from: u32, bytes: &[u8]) -> Result<()> {
        let at = swapped.at + u64::from(from);
        self.file(host)?.write_at(site::SWAP_WRITE, at, bytes).map_err(|error| host_error(error, b""))
    }

    /// Reads the bytes from `from` on.
    pub fn read(&self, host: &dyn HostFs, swapped: Swapped, from: u32, bytes: &mut [u8]) -> Result<()> {
        let at = swapped.at + u64::from(from);
        let read = self.file(host)?.read_at(at, bytes).map_err(|error| host_error(error, b""))?;
        match read == bytes.len() {
            true => Ok(()),
            false => Err(Error::corrupt("a file without a name", "it ends too soon")),
        }
    }

    /// All that it reads of a place.
    pub fn take(&self, host: &dyn HostFs, swapped: Swapped) -> Result<Arc<[u8]>> {
        let mut bytes = vec![0; swapped.length as usize];
        self.read(host, swapped, 0, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Nobody needs these bytes any more.
    pub fn free(&self, swapped: Swapped) {
        let mut places = self.places.lock().unwrap();
        places.used -= 1;
        if places.used > 0 {
            return places.free.entry(swapped.place()).or_default().push(swapped.at);
        }
        (places.end, places.free) = (0, BTreeMap::new());
        if let Some(file) = &places.file {
            // Where it fails, the file keeps its space until it is written again.
            let _ = file.set_len(site::SWAP_WRITE, 0);
        }
    }
}
