//! A log that lost its end. What stood there was durable; that it is gone is told by the number of segments in the
//! superblock, and no call takes what is left for all there was. The first of these once opened as an empty store: one
//! byte cut off the only segment with groups made a log without segments.

use std::fs::{self, OpenOptions};
use std::path::Path;

use wholly::log::layout::{RawSuperblock, SEGMENTS_START, Superblock};
use wholly::{Error, FindingKind, Options, Store};
use wholly_host::{HostMedium, HostOptions};
use zerocopy::FromBytes;

use crate::common::Dir;

const SEGMENT: u64 = 16 << 10;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT,
        log_min_bytes: 2 * SEGMENT,
        log_max_bytes: 16 * SEGMENT,
        background: false,
        gather_bytes: 8 << 10,
        ..Options::default()
    }
}

fn try_open(dir: &Path, medium: HostMedium) -> wholly::Result<Store> {
    Store::open_with(dir, options(), HostOptions { medium, ..HostOptions::default() })
}

/// A store with `bytes` bytes in groups that are not home.
fn filled(dir: &Path, medium: HostMedium, bytes: usize) -> Store {
    Store::init_with(dir, &options(), HostOptions { medium, ..HostOptions::default() }).unwrap();
    let store = try_open(dir, medium).unwrap();
    let file = store.create_file("a", 0o644).unwrap();
    for offset in (0..bytes).step_by(4000) {
        file.write_at(offset as u64, &[7; 4000]).unwrap();
    }
    store
}

fn superblock(dir: &Path) -> Superblock {
    let log = fs::read(dir.join(".wholly/log")).unwrap();
    let slot = |slot: usize| Superblock::checked(&RawSuperblock::read_from_prefix(&log[slot * 4096..]).unwrap().0);
    [slot(0), slot(1)].into_iter().flatten().max_by_key(|superblock| superblock.generation).unwrap()
}

fn segments_on_medium(dir: &Path) -> u32 {
    ((fs::metadata(dir.join(".wholly/log")).unwrap().len() - SEGMENTS_START) / SEGMENT) as u32
}

#[test]
fn it_is_refused() {
    // Where the log ends: within the first segment, between segments, within the grown ones and a byte before the end.
    let ends: [fn(u64) -> u64; 5] = [
        |_| SEGMENTS_START + SEGMENT - 1,
        |_| SEGMENTS_START,
        |_| SEGMENTS_START + 2 * SEGMENT,
        |len| len - SEGMENT,
        |len| len - 1,
    ];
    for (i, end) in ends.into_iter().enumerate() {
        for (dir, medium) in Dir::on_media(&format!("cut-{i}")) {
            drop(filled(&dir, medium, 60_000));
            let path = dir.join(".wholly/log");
            let len = fs::metadata(&path).unwrap().len();
            assert!(len > SEGMENTS_START + 3 * SEGMENT, "it has grown: {len}");
            OpenOptions::new().write(true).open(&path).unwrap().set_len(end(len)).unwrap();
            let before = fs::read(&path).unwrap();
            let refused = try_open(&dir, medium).unwrap_err();
            assert!(matches!(&refused, Error::Corrupt { fault, .. } if fault.contains("cut off")), "{i}: {refused}");
            let report = wholly::check(&*dir).unwrap();
            let cut = |f: &&wholly::Finding| f.kind == FindingKind::Log && f.what.contains("cut off");
            assert!(report.findings.iter().any(|finding| cut(&finding)), "{i}: {:#?}", report.findings);
            assert_eq!(fs::read(&path).unwrap(), before, "{i}: a log that is refused stays as it is");
        }
    }
}

#[test]
fn the_superblock_counts_as_the_log_grows_and_shrinks() {
    for (dir, medium) in Dir::on_media("cut-counted") {
        let store = filled(&dir, medium, 60_000);
        let grown = superblock(&dir).segments;
        assert_eq!(grown, Some(segments_on_medium(&dir)));
        assert!(grown > Some(2));
        store.close().unwrap();
        assert_eq!((superblock(&dir).segments, segments_on_medium(&dir)), (Some(2), 2));
        assert!(wholly::check(&*dir).unwrap().is_sound());
    }
}

/// A crash between the medium's growth and the count's, or between the count's shrinking and the medium's.
#[test]
fn what_is_longer_than_it_says_opens() {
    for (dir, medium) in Dir::on_media("cut-longer") {
        drop(filled(&dir, medium, 4000));
        let longer = SEGMENTS_START + 3 * SEGMENT + 100;
        OpenOptions::new().write(true).open(dir.join(".wholly/log")).unwrap().set_len(longer).unwrap();
        assert!(wholly::check(&*dir).unwrap().is_sound());
        let store = try_open(&dir, medium).unwrap();
        assert_eq!(superblock(&dir).segments, Some(3));
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("a")).unwrap(), [7; 4000]);
        assert_eq!((superblock(&dir).segments, segments_on_medium(&dir)), (Some(2), 2));
    }
}

/// A log of two segments that a program wrote which did not count them, with one group that is not home. The file is
/// such a program's.
#[test]
fn a_log_without_a_count_opens_and_is_counted() {
    let log = include_bytes!("../fixtures/log-4-uncounted");
    let store_of = |log: &[u8], name: &str| {
        let dir = Dir::new(Path::new("/dev/shm"), name);
        fs::create_dir(dir.join(".wholly")).unwrap();
        fs::write(dir.join(".wholly/log"), log).unwrap();
        fs::write(dir.join(".wholly/lock"), "").unwrap();
        dir
    };
    let open = |dir: &Path| {
        let host = HostOptions { medium: HostMedium::Pmem, ..HostOptions::default() };
        Store::open_with(dir, Options { accept_copy: true, background: false, ..Options::default() }, host)
    };
    let dir = store_of(log, "cut-uncounted");
    assert_eq!(superblock(&dir).segments, None);
    let store = open(&dir).unwrap();
    assert_eq!(superblock(&dir).segments, Some(2));
    store.close().unwrap();
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"of a log without a count");

    // It was made with two segments.
    let cut = store_of(&log[..log.len() - 1], "cut-uncounted-cut");
    let refused = open(&cut).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt { fault, .. } if fault.contains("cut off")), "{refused}");
}
