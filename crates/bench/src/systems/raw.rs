//! `raw`: the bound. The same bytes reach the same medium with nothing around them: no atomicity, no log, no metadata.
//!
//! - On persistent memory: non-temporal stores into the mapped files at the places asked for, and one fence per group.
//! - On disks: one synchronous direct overwrite (`O_DIRECT` with `RWF_DSYNC`) of as many bytes, rounded up to what
//!   direct writes need, going round a file that was written with zeros before. No commit that waits for the device can
//!   take less, unless several share it.

use crate::place::Place;
use crate::system::{Counters, Prepared, Ready, System, Turn, run_alone};
use crate::workload::{Case, Payload, Update};
use crate::{Error, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::{IoSlice, ReadWriteFlags, pwritev2};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use wholly_media::{
    Region, Site,
    pmem::{PmemOptions, PmemRegion},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const STORE: Site = Site("bench.raw.store");
const FENCE: Site = Site("bench.raw.fence");

/// Bytes of the file that disks are overwritten in.
const DISK_FILE_BYTES: u64 = 64 << 20;

/// The bound of a medium.
pub struct Raw {
    threads: u32,
    target: Option<Target>,
    counters: Totals,
}

impl Raw {
    /// More than one thread: on persistent memory, where they show how much more two cores can store than one.
    pub fn new(threads: u32) -> Self {
        Raw { threads, target: None, counters: Totals::default() }
    }
}

#[derive(Clone, Copy, Default)]
struct Totals {
    bytes: u64,
    orders: u64,
}

enum Target {
    Pmem(Vec<Arc<dyn Region>>),
    Disk(DiskFile),
}

/// A preallocated file, overwritten round and round.
struct DiskFile {
    file: OwnedFd,
    buffer: Vec<Page>,
    /// What offsets and lengths are multiples of.
    unit: usize,
    next: u64,
}

/// Memory aligned as direct writes need it.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl System for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn prepare(&mut self, case: &Case, place: &Place) -> Result<Prepared> {
        if self.threads > 1 && (!place.medium.is_pmem() || case.files < self.threads * 2) {
            return Ok(Prepared::Inapplicable);
        }
        self.counters = Totals::default();
        self.target = Some(if place.medium.is_pmem() {
            let files = (0..case.files).map(|n| mapped_file(place, n, case.file_bytes));
            Target::Pmem(files.collect::<Result<_>>()?)
        } else {
            Target::Disk(DiskFile::new(&place.dir.join("file"), case)?)
        });
        Ok(Prepared::Ready(Ready::default()))
    }

    fn run_group(&mut self, group: &[Update], payload: &Payload) -> Result<()> {
        match self.target.as_mut().expect("prepared") {
            Target::Pmem(files) => self.counters.bytes += store_to_files(files, group, payload)?,
            Target::Disk(file) => self.counters.bytes += file.overwrite(group, payload)?,
        }
        self.counters.orders += 1;
        Ok(())
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn run_turn(&mut self, turn: &mut Turn<'_>) -> Result<()> {
        let Some(Target::Pmem(files)) = self.target.as_ref().filter(|_| self.threads > 1) else {
            return run_alone(self, turn);
        };
        let (turn, threads) = (&*turn, self.threads);
        let bytes = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut bytes = 0;
                        turn.run_share(files.len() as u32, thread, threads, |group| {
                            bytes += store_to_files(files, group, turn.payload)?;
                            Ok(())
                        })?;
                        Ok(bytes)
                    })
                })
                .collect();
            running.into_iter().map(|thread| thread.join().expect("a thread of the benchmark")).sum::<Result<u64>>()
        })?;
        self.counters.bytes += bytes;
        self.counters.orders += turn.groups as u64;
        Ok(())
    }

    fn counters(&self) -> Counters {
        let Totals { bytes, orders } = self.counters;
        let (fences, syncs) = match self.target {
            Some(Target::Pmem(_)) => (Some(orders), Some(0)),
            Some(Target::Disk(_)) => (None, Some(orders)),
            None => (None, None),
        };
        Counters { bytes_written: Some(bytes), fences, syncs }
    }

    fn finish(&mut self) -> Result<()> {
        self.target = None;
        Ok(())
    }
}

/// Stores one group to mapped files. Returns how many bytes that took.
#[inline]
fn store_to_files(files: &[Arc<dyn Region>], group: &[Update], payload: &Payload) -> Result<u64> {
    let mut bytes = 0;
    let mut last = None;
    for update in group {
        let file = &files[update.file as usize];
        file.write(STORE, update.offset, payload.of(update))?;
        bytes += u64::from(update.len);
        last = Some(file);
    }
    // One fence covers what this thread stored to any of the files.
    if let Some(file) = last {
        file.fence(FENCE)?;
    }
    Ok(bytes)
}

/// A mapped file of zeros, all of it present.
fn mapped_file(place: &Place, n: u32, bytes: u64) -> Result<Arc<dyn Region>> {
    let path = place.dir.join(n.to_string());
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    file.set_len(bytes)?;
    let name = path.display().to_string();
    let options = PmemOptions { name, reserve: bytes, prefault: true, ..PmemOptions::default() };
    let region = place.slow_down(PmemRegion::open(file.into(), options)?);
    let zeros = vec![0; 1 << 20];
    for offset in (0..bytes).step_by(zeros.len()) {
        let len = (bytes - offset).min(zeros.len() as u64) as usize;
        region.write(STORE, offset, &zeros[..len])?;
    }
    region.fence(FENCE)?;
    Ok(region)
}

impl DiskFile {
    fn new(path: &Path, case: &Case) -> Result<DiskFile> {
        // Unwritten extents cost two to three times as much to overwrite: zeros first.
        let zeros = File::create_new(path)?;
        for n in 0..DISK_FILE_BYTES >> 20 {
            std::os::unix::fs::FileExt::write_all_at(&zeros, &[0; 1 << 20], n << 20)?;
        }
        zeros.sync_all()?;
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| format!("O_DIRECT: {e}"))?;
        let largest = case.size.max_bytes() as usize * case.updates;
        let unit = direct_unit(&file);
        let pages = largest.next_multiple_of(unit).div_ceil(4096);
        let buffer = vec![Page([0; 4096]); pages];
        Ok(DiskFile { file, buffer, unit, next: 0 })
    }

    /// Writes the bytes of `group` one after the other. Returns how many bytes that took.
    fn overwrite(&mut self, group: &[Update], payload: &Payload) -> Result<u64> {
        let buffer = self.buffer.as_mut_bytes();
        let mut used = 0;
        for update in group {
            let bytes = payload.of(update);
            buffer[used..used + bytes.len()].copy_from_slice(bytes);
            used += bytes.len();
        }
        let len = used.next_multiple_of(self.unit);
        if self.next + len as u64 > DISK_FILE_BYTES {
            self.next = 0;
        }
        let written = pwritev2(&self.file, &[IoSlice::new(&buffer[..len])], self.next, ReadWriteFlags::DSYNC)?;
        if written != len {
            return Err(Error::from(format!("short write: {written} of {len} bytes")));
        }
        self.next += len as u64;
        Ok(len as u64)
    }
}

/// What offsets and lengths of direct writes to `file` must be multiples of.
fn direct_unit(file: &OwnedFd) -> usize {
    /// `STATX_DIOALIGN`
    const DIO_ALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);
    match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, DIO_ALIGN) {
        Ok(stat) if stat.stx_dio_offset_align > 0 => stat.stx_dio_offset_align as usize,
        _ => 4096,
    }
}
