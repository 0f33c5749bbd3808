//! What the fuzz targets do with their input. The same is done with the files in `corpus` by the test `fuzz_corpus`, on
//! any compiler.
//!
//! Random bytes do not get past a checksum, so both targets mend the checksums behind what they changed: what is tried
//! is what code does that trusts a checksum more than it should.

#[path = "filled.rs"]
pub mod filled;

use std::sync::{Arc, OnceLock};

use wholly::log::checksum::{checksum, payload_checksum, record_seed, segment_seed};
use wholly::log::layout::{ENTRY, HEAD, LINE, SEGMENTS_START, SUPERBLOCK_SLOT, seal};
use wholly::log::scan::{SegmentReader, record_at};
use wholly::log::verify::holds;
use wholly::log::volume_seed;
use wholly::{Error, Store};
use wholly_media::{Region, Site};
use wholly_sim::{Image, SimConfig, World};
use zerocopy::IntoBytes;

use filled::{LENGTH, SEGMENT, VOLUME, filled, options};

const SCRIBBLE: Site = Site("fuzz.scribble");
/// Longer files do not go home: the simulator keeps a list of all their pages, holes too.
const LONGEST: u64 = 64 << 20;
/// The seed of superblocks: `docs/format.md`.
const SUPERBLOCK_SEED: u64 = 0x5355_5045_5242_4c4b;

/// The input is the records of a segment; its first byte tells whether their checksums are mended.
pub fn record(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let seed = segment_seed(&VOLUME, 1, 1);
    let start = SEGMENTS_START;
    let mut log = vec![0u8; start as usize + SEGMENT];
    let taken = bytes.len().min(SEGMENT - LINE as usize);
    let first = start as usize + LINE as usize;
    log[first..first + taken].copy_from_slice(&bytes[..taken]);
    let end = log.len();
    if mode & 1 == 0 {
        let mut at = first;
        while let Some(next) = mend_record(&mut log, at, end, seed) {
            at = next;
        }
    }
    let config = if mode & 2 == 0 { SimConfig::pmem() } else { SimConfig::disk() };
    let world = World::new(SimConfig { log_len: end as u64, ..config });
    let region = world.log();
    region.write(SCRIBBLE, 0, &log).unwrap();
    region.fence(SCRIBBLE).unwrap();
    let mut reader = SegmentReader::new(&*region, start, SEGMENT as u64);
    let mut at = first as u64;
    let mut scratch = Vec::new();
    while let Ok(Some(record)) = record_at(&mut reader, seed, at) {
        assert_eq!(record.position, at);
        assert!(record.end() > at && record.end() <= end as u64, "a record that ends outside of its segment");
        assert_eq!(record.entries.len(), usize::from(record.head.entries));
        let bytes = &log[at as usize..record.end() as usize];
        assert_eq!(record.head.to_words().as_bytes()[8..], bytes[8..HEAD], "a head that is not what stands there");
        for (i, entry) in record.entries.iter().enumerate() {
            let place = if i == 0 { HEAD } else { record.head.tail_offset() as usize + (i - 1) * ENTRY };
            assert_eq!(
                entry.to_words().as_bytes(),
                &bytes[place..place + ENTRY],
                "an entry that is not what stands there"
            );
            holds(&mut reader, seed, at, entry, &mut scratch).unwrap();
        }
        at = record.end();
    }
}

/// Makes the checksums of a record, and of its payloads, fit. Returns where the next one is; none where there can be
/// none.
fn mend_record(log: &mut [u8], at: usize, end: usize, seed: u64) -> Option<usize> {
    let line = LINE as usize;
    if at + line > end {
        return None;
    }
    let number = |log: &[u8], at: usize, length: usize| {
        log[at..at + length].iter().rev().fold(0usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let (lines, entries) = (number(log, at + 24, 2), number(log, at + 26, 2));
    let tail = (entries.saturating_sub(1) * ENTRY).div_ceil(line) * line;
    let after = at + lines * line;
    if lines == 0 || after > end || tail >= lines * line {
        return None;
    }
    for i in 0..entries {
        let place = if i == 0 { at + HEAD } else { after - tail + (i - 1) * ENTRY };
        let (length, first) = (number(log, place + 24, 4), number(log, place + 28, 2));
        let payload = at + first * line;
        if length > 0 && first > 0 && payload + length <= after {
            let mended = payload_checksum(seed, payload as u64, &log[payload..payload + length]);
            log[place..place + 8].copy_from_slice(&mended.to_le_bytes());
        }
    }
    let head: [u8; LINE as usize] = log[at..at + line].try_into().unwrap();
    let mended = seal(record_seed(seed, at as u64), &head, &log[after - tail..after]);
    log[at..at + 8].copy_from_slice(&mended.to_le_bytes());
    Some(after)
}

/// A store that was killed, and where its valid records stand.
struct Template {
    config: SimConfig,
    image: Image,
    log: Vec<u8>,
    records: Vec<usize>,
}

fn template(config: SimConfig) -> Template {
    let config = SimConfig { log_len: 0, ..config };
    let world = filled(config.clone());
    let region = world.log();
    let mut log = vec![0; region.len() as usize];
    region.read(0, &mut log).unwrap();
    let mut records = Vec::new();
    for start in (SEGMENTS_START as usize..log.len()).step_by(SEGMENT) {
        let seed = seed_of(&log, start);
        let block = u32::from_le_bytes(log[28..32].try_into().unwrap()) as usize;
        let mut at = start + block.max(LINE as usize);
        loop {
            let mut mended = log.clone();
            let Some(next) = mend_record(&mut mended, at, start + SEGMENT, seed) else { break };
            if mended != log {
                break;
            }
            records.push(at);
            at = next;
        }
    }
    assert!(records.len() > 8, "the template has {} records", records.len());
    Template { config, image: world.latest(), log, records }
}

/// The seed of the records of the segment that starts at `start`, by its header.
fn seed_of(log: &[u8], start: usize) -> u64 {
    let word = |at: usize| u64::from_le_bytes(log[start + at..start + at + 8].try_into().unwrap());
    let volume: [u8; 16] = log[32..48].try_into().unwrap();
    segment_seed(&volume, word(16), word(24))
}

/// The input says what is changed in a valid log, in steps of eight bytes: where (three), how (one), and to what
/// (four).
pub fn recovery(input: &[u8]) {
    static TEMPLATES: OnceLock<[Template; 2]> = OnceLock::new();
    let Some((mode, steps)) = input.split_first() else { return };
    let templates = TEMPLATES.get_or_init(|| [template(SimConfig::pmem()), template(SimConfig::disk())]);
    let template = &templates[usize::from(mode & 1)];
    let mut log = template.log.clone();
    for step in steps.chunks_exact(8).take(16) {
        change(&mut log, template, step);
    }
    if mode & 2 == 0 {
        mend(&mut log, template);
    }
    let world = World::from_image(&template.image, template.config.clone());
    write_differences(&*world.log(), &template.log, &log);
    live(&world);
}

fn change(log: &mut [u8], template: &Template, step: &[u8]) {
    let number = usize::from(step[0]) | usize::from(step[1]) << 8;
    let byte = usize::from(step[2]) % (2 * LINE as usize);
    let at = match step[3] >> 6 {
        // Heads and entries are what means something.
        0 | 1 => template.records[number % template.records.len()] + byte,
        2 => SEGMENTS_START as usize + number % 8 * SEGMENT + byte % LINE as usize,
        _ => number % 2 * SUPERBLOCK_SLOT as usize + byte,
    } % (log.len() - 8);
    match step[3] & 7 {
        0 => log[at] ^= 1 << (step[4] & 7),
        1 => log[at] = step[4],
        2 => log[at..at + 2].copy_from_slice(&step[4..6]),
        3 => log[at..at + 4].copy_from_slice(&step[4..8]),
        4 => {
            // Large numbers, and those around powers of two.
            let number = (1u64 << (step[4] & 63)).wrapping_add(u64::from(step[5])).wrapping_sub(u64::from(step[6]));
            log[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        5 => log[at..at + 8].fill(step[4]),
        6 => {
            let from = usize::from(step[4]) * LINE as usize % (log.len() - 64);
            let to = at / 64 * 64;
            let line = log[from..from + 64].to_vec();
            log[to..(to + 64).min(from.max(to) + 64)].copy_from_slice(&line);
        }
        _ => {
            let to = at / 64 * 64;
            log[to..to + 64].fill(0);
        }
    }
}

fn mend(log: &mut [u8], template: &Template) {
    for slot in [0, SUPERBLOCK_SLOT as usize] {
        let mended = checksum(SUPERBLOCK_SEED, &log[slot + 8..slot + 128]);
        log[slot..slot + 8].copy_from_slice(&mended.to_le_bytes());
    }
    let volume = volume_seed(&log[32..48].try_into().unwrap());
    for start in (SEGMENTS_START as usize..log.len()).step_by(SEGMENT) {
        if template.log[start + 8..start + 12] == *b"WSEG" {
            let mended = checksum(record_seed(volume, start as u64), &log[start + 8..start + LINE as usize]);
            log[start..start + 8].copy_from_slice(&mended.to_le_bytes());
        }
    }
    for at in &template.records {
        let start = SEGMENTS_START as usize + (at - SEGMENTS_START as usize) / SEGMENT * SEGMENT;
        let seed = seed_of(log, start);
        mend_record(log, *at, start + SEGMENT, seed);
    }
}

fn write_differences(region: &dyn Region, before: &[u8], after: &[u8]) {
    for (i, (old, new)) in before.chunks(512).zip(after.chunks(512)).enumerate() {
        if old != new {
            region.write(SCRIBBLE, i as u64 * 512, new).unwrap();
        }
    }
    region.fence(SCRIBBLE).unwrap();
}

/// Whatever the log says: an error with a place, or a store that works.
fn live(world: &Arc<World>) {
    let open = || Store::open_on(world.log(), world.host(), options(), None);
    let store = match open() {
        Ok(store) => store,
        Err(Error::Corrupt { place, .. }) => return assert!(!place.is_empty()),
        Err(_) => return,
    };
    let mut too_long = false;
    for name in ["a", "c0", "c1"] {
        let Ok(file) = store.open_file(name) else { continue };
        let mut bytes = [0; LENGTH];
        let _ = file.read_at(0, &mut bytes);
        let _ = file.read_at(file.len().saturating_sub(LENGTH as u64), &mut bytes);
        let _ = file.write_at(100, b"new");
        let _ = file.append(b"new");
        too_long |= file.len() > LONGEST;
    }
    if !too_long {
        let _ = store.checkpoint();
    }
    drop(store);
    let _ = open();
}
