//! What stands in the persistent memory region.
//!
//! ```text
//! 0          head line: magic, version, queues, depth, volume, incarnation, checksum
//! 64         for each queue a line with its tail (P-SQDB), and one with its head (P-SQ-head)
//! next page  for each queue its ring: `depth` entries of 64 bytes
//! ```
//!
//! Tails and heads count entries from the start of a life on, modulo 2^32; an entry stands in the slot that its count
//! modulo `depth` names. So a window whose head has passed its tail, or that is longer than the ring, is known to be
//! none. Each word stands alone in its line, so that no store of one can take the other along (ccNVMe, section 4.1).

use twox_hash::XxHash3_64;
use wholly_blocks::BLOCK;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::spec::Command;

/// Bytes of a line.
pub(super) const LINE: u64 = 64;

const MAGIC: [u8; 8] = *b"WhollyPM";
const VERSION: u32 = 1;

/// The fewest entries of a ring. One slot stays empty.
pub(super) const LEAST_DEPTH: u32 = 4;

/// What the queues in a region belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The volume.
    pub volume: [u8; 16],
    /// How often it has been opened.
    pub incarnation: u64,
}

/// The head line as it is stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct HeadLine {
    magic: [u8; 8],
    version: U32,
    queues: U16,
    /// The depth's logarithm.
    depth_log2: u8,
    /// The logarithm of the bytes of a logical block.
    lba_log2: u8,
    volume: [u8; 16],
    incarnation: U64,
    reserved2: [u8; 16],
    checksum: U64,
}

const _: () = assert!(size_of::<HeadLine>() == LINE as usize);

/// Where queues stand in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub queues: u16,
    /// Entries of a ring, a power of two.
    pub depth: u32,
    /// Bytes of the logical blocks that entries name, a power of two.
    pub lba_bytes: u32,
}

impl Layout {
    /// As many queues as fit into a region, up to `queues`, of up to `depth` entries each; none if not even one of the
    /// least depth fits. Rather fewer queues than less depth.
    pub fn fitting(len: u64, queues: u16, depth: u32, lba_bytes: u32) -> Option<Layout> {
        let depth = 1 << depth.checked_ilog2()?;
        let mut layout = Layout { queues, depth, lba_bytes };
        while layout.end() > len {
            if layout.queues > 1 {
                layout.queues -= 1;
            } else if layout.depth > LEAST_DEPTH {
                layout.depth /= 2;
            } else {
                return None;
            }
        }
        (layout.queues > 0 && layout.depth >= LEAST_DEPTH).then_some(layout)
    }

    /// Where the tail of a queue stands.
    pub fn tail(self, queue: u16) -> u64 {
        LINE * (1 + 2 * u64::from(queue))
    }

    /// Where its head stands.
    pub fn head(self, queue: u16) -> u64 {
        self.tail(queue) + LINE
    }

    fn rings(self) -> u64 {
        (LINE * (1 + 2 * u64::from(self.queues))).next_multiple_of(BLOCK as u64)
    }

    fn ring_bytes(self) -> u64 {
        (u64::from(self.depth) * Command::BYTES as u64).next_multiple_of(BLOCK as u64)
    }

    /// Where its ring begins.
    pub fn ring(self, queue: u16) -> u64 {
        self.rings() + u64::from(queue) * self.ring_bytes()
    }

    /// Where the entry with this count stands.
    pub fn entry(self, queue: u16, count: u32) -> u64 {
        self.ring(queue) + u64::from(count & (self.depth - 1)) * Command::BYTES as u64
    }

    /// Where all of it ends.
    pub fn end(self) -> u64 {
        self.ring(self.queues)
    }

    /// What queues use behind the head line, each as its place and its bytes: words, and rings.
    pub fn used(self) -> impl Iterator<Item = (u64, usize)> {
        let words = (LINE, (2 * LINE * u64::from(self.queues)) as usize);
        let ring = move |queue| (self.ring(queue), self.depth as usize * Command::BYTES);
        std::iter::once(words).chain((0..self.queues).map(ring))
    }

    /// The head line of a life with such queues.
    pub fn head_line(self, life: Life) -> [u8; LINE as usize] {
        let mut line = HeadLine {
            magic: MAGIC,
            version: VERSION.into(),
            queues: self.queues.into(),
            depth_log2: self.depth.ilog2() as u8,
            lba_log2: self.lba_bytes.ilog2() as u8,
            volume: life.volume,
            incarnation: life.incarnation.into(),
            reserved2: [0; 16],
            checksum: 0.into(),
        };
        line.checksum = checksum(&line).into();
        zerocopy::transmute!(line)
    }

    /// What a head line says.
    ///
    /// # Errors
    /// Why it is none, in words.
    pub fn read(line: &[u8; LINE as usize], len: u64) -> Result<(Layout, Life), String> {
        let line: HeadLine = zerocopy::transmute!(*line);
        if line.magic != MAGIC {
            return Err("the region has no head line".into());
        }
        if line.checksum.get() != checksum(&line) {
            return Err("the head line of the region is torn".into());
        }
        if line.version.get() != VERSION {
            return Err(format!("the head line of the region has version {}", line.version));
        }
        let depth = 1u32.checked_shl(line.depth_log2.into()).unwrap_or(0);
        let lba_bytes = 1u32.checked_shl(line.lba_log2.into()).unwrap_or(0);
        let layout = Layout { queues: line.queues.get(), depth, lba_bytes };
        let can_be = (LEAST_DEPTH..=1 << 16).contains(&depth) && (512..=BLOCK as u32).contains(&lba_bytes);
        if layout.queues == 0 || !can_be || layout.end() > len {
            return Err(format!(
                "the head line names {} queues of {depth} entries in a region of {len} bytes",
                layout.queues
            ));
        }
        Ok((layout, Life { volume: line.volume, incarnation: line.incarnation.get() }))
    }
}

/// Of all but the checksum itself.
fn checksum(line: &HeadLine) -> u64 {
    XxHash3_64::oneshot(&line.as_bytes()[..56])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Life = Life { volume: *b"sixteen bytes ..", incarnation: 7 };

    #[test]
    fn words_stand_alone_in_their_lines() {
        let layout = Layout { queues: 40, depth: 16, lba_bytes: 512 };
        let mut places: Vec<u64> =
            (0..40).flat_map(|queue| [layout.tail(queue), layout.head(queue)]).chain([0]).collect();
        places.sort_unstable();
        assert!(places.iter().all(|place| place.is_multiple_of(LINE)));
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= LINE), "two words share a line");
        assert!(layout.ring(0) >= places[80] + LINE && layout.ring(0).is_multiple_of(BLOCK as u64));
    }

    #[test]
    fn rings_do_not_overlap() {
        let layout = Layout { queues: 3, depth: 256, lba_bytes: 512 };
        assert_eq!(layout.ring(1) - layout.ring(0), 256 * 64);
        assert_eq!(layout.entry(1, 256 + 3), layout.ring(1) + 3 * 64);
        assert_eq!(layout.end(), layout.ring(2) + 256 * 64);
    }

    #[test]
    fn a_small_region_has_fewer_queues_and_then_shorter_ones() {
        let fitting = |len, depth| Layout::fitting(len, 8, depth, 4096).map(|layout| (layout.queues, layout.depth));
        assert_eq!(fitting(2 << 20, 1024), Some((8, 1024)));
        assert_eq!(fitting(256 << 10, 1024), Some((3, 1024)));
        assert_eq!(fitting(16 << 10, 1024), Some((1, 128)));
        assert_eq!(fitting(8 << 10, 1000), Some((1, 64)));
        assert_eq!(fitting(4 << 10, 1024), None);
    }

    #[test]
    fn a_head_line_is_read_again_or_known_to_be_none() {
        let layout = Layout { queues: 2, depth: 64, lba_bytes: 512 };
        let line = layout.head_line(LIFE);
        assert_eq!(Layout::read(&line, 1 << 20), Ok((layout, LIFE)));
        assert!(Layout::read(&line, 8 << 10).unwrap_err().contains("2 queues"));
        assert!(Layout::read(&[0; 64], 1 << 20).unwrap_err().contains("no head line"));
        for word in (8..64).step_by(8) {
            let mut torn = line;
            torn[word] ^= 1;
            assert!(Layout::read(&torn, 1 << 20).unwrap_err().contains("torn"), "word {word}");
        }
    }
}
