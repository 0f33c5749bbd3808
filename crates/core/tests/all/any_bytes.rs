//! Whatever bytes a store's log has, looking at the store, opening it and salvaging it ends with a result or an error,
//! and never with a panic: from nothing to two blocks of anything, and logs that are cut off or have superblocks with
//! right checksums and wrong numbers. `fuzz_recovery` damages whole logs.
//!
//! `WHOLLY_ANY=1000-2000` tries the logs with these seeds.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use wholly::log::checksum::{checksum, record_seed};
use wholly::log::volume_seed;
use wholly::{Options, Store};
use wholly_host::HostOptions;

/// The seed of superblocks, and the bytes that their checksum is of.
const SEED: u64 = 0x5355_5045_5242_4c4b;
const SUMMED: Range<usize> = 8..128;

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

/// A directory in memory, removed with what is in it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> Options {
    Options { background: false, segment_bytes: 4096, log_min_bytes: 32 << 10, ..Options::default() }
}

/// A store that was not closed, and the bytes of its log.
fn killed(dir: &Path) -> Vec<u8> {
    std::fs::create_dir(dir).expect("mkdir");
    Store::init(dir, &options()).expect("make a store");
    let store = Store::open_with(dir, options(), HostOptions::default()).expect("open it");
    for name in ["a", "b", "c"] {
        let mut group = store.begin();
        let file = group.create(name, 0o644).expect("make a file");
        group.write_at(&file, 0, &[7; 3000]).expect("write");
        group.commit().expect("commit");
    }
    let log = std::fs::read(dir.join(".wholly/log")).expect("read it");
    drop(store);
    log
}

/// The places of superblocks in a log.
fn slots(log: &[u8]) -> Vec<usize> {
    (0..log.len().min(16 << 10)).step_by(64).filter(|at| log[at + 8..].starts_with(b"WHOLLYSB")).collect()
}

fn summed(log: &mut [u8], slots: &[usize]) {
    for slot in slots {
        if let Some(raw) = log.get_mut(*slot..).and_then(|rest| rest.get_mut(..SUMMED.end)) {
            let sum = checksum(SEED, &raw[SUMMED]);
            raw[..8].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// The sum of the header of a segment that begins there.
fn sum_of_segment(log: &[u8], at: usize) -> u64 {
    let volume: [u8; 16] = log[32..48].try_into().expect("the id of the store");
    checksum(record_seed(volume_seed(&volume), at as u64), &log[at + 8..at + 64])
}

/// The places of headers of segments.
fn segments(log: &[u8]) -> Vec<usize> {
    let is_header = |at: &usize| log[*at..].starts_with(&sum_of_segment(log, *at).to_le_bytes());
    (8192..log.len()).step_by(4096).filter(is_header).collect()
}

/// Gives the header of a segment other numbers, and the right checksum.
fn forge_segment(log: &mut [u8], at: usize, random: &mut Random) {
    let field = at + 12 + random.below(13) * 4;
    let bytes = match random.below(3) {
        0 => random.bytes(1),
        1 => vec![[0, 0xff][random.below(2)]; [4, 8][random.below(2)]],
        _ => (random.below(1 << 17) as u32).to_le_bytes().to_vec(),
    };
    let end = (field + bytes.len()).min(at + 64);
    log[field..end].copy_from_slice(&bytes[..end - field]);
    let sum = sum_of_segment(log, at);
    log[at..at + 8].copy_from_slice(&sum.to_le_bytes());
}

fn log_of(real: &[u8], random: &mut Random) -> Vec<u8> {
    let lengths = [0, 1, 8, 25, 100, 127, 128, 511, 512, 4095, 4096, 4097, 8191, 8192];
    let length = if random.below(2) == 0 { lengths[random.below(lengths.len())] } else { random.below(8193) };
    match random.below(7) {
        0 => vec![[0, 0xff, 0x55][random.below(3)]; length],
        1 => random.bytes(length),
        2 => real[..length].to_vec(),
        3 => {
            let (mut log, all) = (real.to_vec(), segments(real));
            for _ in 0..1 + random.below(3) {
                forge_segment(&mut log, all[random.below(all.len())], random);
            }
            log
        }
        _ => {
            let length = [real.len(), random.below(real.len() + 1)][random.below(2)];
            let (mut log, slots) = (real[..length].to_vec(), slots(real));
            for _ in 0..1 + random.below(3) {
                let field = SUMMED.start + random.below(SUMMED.len() / 4 - 1) * 4;
                let bytes = match random.below(3) {
                    0 => random.bytes(1),
                    1 => vec![[0, 0xff][random.below(2)]; [4, 8][random.below(2)]],
                    _ => (random.below(1 << 17) as u32).to_le_bytes().to_vec(),
                };
                for slot in &slots {
                    if let Some(place) = log.get_mut(slot + field..).and_then(|rest| rest.get_mut(..bytes.len())) {
                        place.copy_from_slice(&bytes);
                    }
                }
            }
            summed(&mut log, &slots);
            log
        }
    }
}

/// Whatever comes of it.
fn try_all(dir: &Path, out: &Path, log: &[u8]) {
    let with = |act: &dyn Fn()| {
        std::fs::write(dir.join(".wholly/log"), log).expect("write");
        act();
    };
    with(&|| _ = wholly::check(dir));
    with(&|| _ = (wholly::parked(dir), wholly::undos(dir)));
    with(&|| _ = wholly::salvage(dir, out, &Options::default(), &mut |_, _| ()));
    let _ = std::fs::remove_dir_all(out);
    with(&|| {
        let Ok(store) = Store::open_with(dir, options(), HostOptions::default()) else { return };
        let mut group = store.begin();
        let _ =
            group.create("new", 0o600).and_then(|file| group.append(&file, &[1; 5000])).and_then(|_| group.commit());
        let _ = store.close();
    });
}

fn seeds() -> Range<u64> {
    let text = std::env::var("WHOLLY_ANY").unwrap_or_default();
    let parsed = text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parsed.unwrap_or(0..if std::env::var_os("WHOLLY_LONG").is_some() { 10_000 } else { 400 })
}

#[test]
fn no_bytes_make_a_call_panic() {
    let scratch = Scratch(Path::new("/dev/shm").join(format!("wholly-any-{}", std::process::id())));
    std::fs::create_dir(&scratch.0).expect("mkdir");
    let (dir, out) = (scratch.0.join("store"), scratch.0.join("out"));
    let real = killed(&dir);
    let (mut forged, slots) = (real.clone(), slots(&real));
    summed(&mut forged, &slots);
    assert!(!slots.is_empty() && forged == real, "the checksums are those of superblocks: {slots:?}");
    assert!(!segments(&real).is_empty(), "segments are known by their checksums");
    for seed in seeds() {
        let log = log_of(&real, &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let tried = catch_unwind(AssertUnwindSafe(|| try_all(&dir, &out, &log)));
        assert!(tried.is_ok(), "a panic: WHOLLY_ANY={seed}-{} with {} bytes", seed + 1, log.len());
    }
}
