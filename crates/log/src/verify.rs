//! Payloads of earlier lives are verified at their first read, a segment at a time.

use std::ops::Range;

use super::checksum::payload_checksum;
use super::layout::{Entry, LINE};
use super::read::{Records, SegmentReader};
use super::{Client, Log};
use sync::{AtomicU8, Mutex, Ordering};
use wholly_error::{Error, Result};

/// Ranges of the log that are rotten.
#[derive(Default)]
pub(super) struct Rot {
    any: AtomicU8,
    ranges: Mutex<Vec<Range<u64>>>,
}

impl<C: Client> Log<C> {
    /// Copies payload bytes from the log.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes belong to a payload whose checksum does not hold.
    #[inline]
    pub fn read_payload(&self, position: u64, buf: &mut [u8]) -> Result<()> {
        self.check_payload(position, buf.len())?;
        self.region().read(position, buf)?;
        Ok(())
    }

    /// Checks that payload bytes can be copied from the log by other means.
    ///
    /// # Errors
    /// As [`read_payload`](Self::read_payload).
    #[inline]
    pub fn check_payload(&self, position: u64, len: usize) -> Result<()> {
        let index = self.segment_of(position);
        if !self.segment(index).is_verified() {
            self.verify_segment(index)?;
        }
        if self.rot.any.load(Ordering::Relaxed) != 0 {
            self.check_rot(position..position + len as u64)?;
        }
        Ok(())
    }

    /// Verifies all payloads of earlier lives now. Returns how many are rotten.
    ///
    /// # Errors
    /// Of the medium.
    pub fn verify_all(&self) -> Result<usize> {
        (0..self.segment_count())
            .filter(|&index| !self.segment(index).is_verified())
            .try_for_each(|i| self.verify_segment(i))?;
        Ok(self.rot.ranges.lock().unwrap().len())
    }

    /// A segment is opened again: nothing of what was in it counts.
    pub(super) fn forget_rot(&self, index: u32) {
        if self.rot.any.load(Ordering::Relaxed) == 0 {
            return;
        }
        let segment = self.segment_start(index)..self.segment_start(index) + self.segment_bytes();
        let mut ranges = self.rot.ranges.lock().unwrap();
        ranges.retain(|rot| !segment.contains(&rot.start));
        self.rot.any.store(u8::from(!ranges.is_empty()), Ordering::Relaxed);
    }

    #[cold]
    fn verify_segment(&self, index: u32) -> Result<()> {
        let segment = self.segment(index);
        // Held throughout, so that nobody serves what is still being verified.
        let mut rot = self.rot.ranges.lock().unwrap();
        if segment.is_verified() {
            return Ok(());
        }
        let mut reader = SegmentReader::new(self.region(), self.segment_start(index), self.segment_bytes());
        let mut payload = Vec::new();
        let mut records = Records::<C::Kind>::default();
        records.read(&mut reader, segment.seed(), self.records_start(index), segment.end())?;
        for record in records.iter(0) {
            for entry in record.entries {
                if !holds(&mut reader, segment.seed(), record.position, entry, &mut payload)? {
                    let start = record.position + u64::from(entry.line) * LINE;
                    rot.push(start..start + u64::from(entry.length));
                    self.rot.any.store(1, Ordering::Relaxed);
                }
            }
        }
        segment.set_verified();
        Ok(())
    }

    #[cold]
    fn check_rot(&self, range: Range<u64>) -> Result<()> {
        let ranges = self.rot.ranges.lock().unwrap();
        match ranges.iter().find(|rot| rot.start < range.end && range.start < rot.end) {
            None => Ok(()),
            Some(rot) => Err(Error::corrupt(
                format!("log, bytes {} to {}", rot.start, rot.end),
                "the payload of a committed group does not match its checksum",
            )),
        }
    }
}

/// Whether an entry's payload matches its checksum.
pub fn holds<K>(
    reader: &mut SegmentReader<'_>,
    segment_seed: u64,
    record: u64,
    entry: &Entry<K>,
    scratch: &mut Vec<u8>,
) -> Result<bool> {
    let position = record + u64::from(entry.line) * LINE;
    scratch.resize(entry.length as usize, 0);
    if entry.length > 0 {
        reader.read(position, scratch)?;
    }
    // An entry without payload was checksummed where its payload would have begun, which nobody knows any more.
    Ok(entry.length == 0 || entry.payload_checksum == payload_checksum(segment_seed, position, scratch))
}
