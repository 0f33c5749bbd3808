//! A store is damaged in each of its structures, and the check says where; it says nothing of stores that are sound,
//! and changes none.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use wholly::log::checksum::{record_seed, segment_seed};
use wholly::log::layout::{EntryKind, HEAD, LINE, RawSegmentHeader, RecordKind, SEGMENTS_START, seal};
use wholly::log::layout::{RawSuperblock, SegmentHeader, Superblock};
use wholly::log::volume_seed;
use wholly::{Error, Finding, FindingKind, Options, Report, Store};
use wholly_host::{HostMedium, HostOptions};
use zerocopy::FromBytes;

use crate::common::Dir;

const SEGMENT: u64 = 16 << 10;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT,
        log_min_bytes: 8 * SEGMENT,
        log_max_bytes: 1 << 20,
        background: false,
        gather_bytes: 8 << 10,
        ..Options::default()
    }
}

fn open(dir: &Path, medium: HostMedium) -> Store {
    Store::open_with(dir, options(), HostOptions { medium, ..HostOptions::default() }).unwrap()
}

/// A store with small groups, one of several segments, and a small one again, in two lives; nothing of it is home.
fn fill(dir: &Path, medium: HostMedium) {
    for name in ["a", "b"] {
        fs::write(dir.join(name), [0; 5000]).unwrap();
    }
    Store::init_with(dir, &options(), HostOptions { medium, ..HostOptions::default() }).unwrap();
    for life in 0..2u8 {
        let store = open(dir, medium);
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        let small = |byte: u8| {
            let mut group = store.begin();
            group.write_at(&a, 100, &[byte; 700]).unwrap();
            group.commit().unwrap();
        };
        (1..5).for_each(|byte| small(life * 10 + byte));
        let mut group = store.begin();
        for piece in 0..12 {
            group.write_at(&b, piece * 4000, &[life * 10 + 5; 4000]).unwrap();
        }
        let new = group.create(format!("new-{life}"), 0o600).unwrap();
        group.append(&new, b"new").unwrap();
        group.commit().unwrap();
        small(life * 10 + 6);
    }
}

/// What the check says after `damage`, on each medium.
fn found(name: &str, damage: impl Fn(&Path)) -> Vec<Report> {
    let check = |(dir, medium): (Dir, HostMedium)| {
        fill(&dir, medium);
        damage(&dir);
        let log = fs::read(dir.join(".wholly/log")).ok();
        let report = wholly::check(&*dir).unwrap();
        assert!(log == fs::read(dir.join(".wholly/log")).ok(), "the check has changed the log");
        report
    };
    Dir::on_media(name).into_iter().map(check).collect()
}

fn has(report: &Report, kind: FindingKind, place: &str, what: &str) -> bool {
    let fits = |f: &&Finding| f.kind == kind && f.place.to_string_lossy().contains(place) && f.what.contains(what);
    report.findings.iter().any(|finding| fits(&finding))
}

fn assert_found(reports: &[Report], kind: FindingKind, place: &str, what: &str) {
    for report in reports {
        assert!(has(report, kind, place, what), "{kind:?} at {place:?}: {what:?} is not among {:#?}", report.findings);
        assert!(!report.is_sound());
    }
}

/// The log of a store, for damaging it.
struct Log {
    bytes: Vec<u8>,
    superblock: Superblock,
}

/// A record: where it stands, under which seed, and what it is.
struct Place {
    at: u64,
    seed: u64,
    kind: RecordKind,
    entries: Vec<wholly::log::layout::Entry>,
}

impl Log {
    fn of(dir: &Path) -> Log {
        let bytes = fs::read(dir.join(".wholly/log")).unwrap();
        let slot =
            |slot: usize| Superblock::checked(&RawSuperblock::read_from_prefix(&bytes[slot * 4096..]).unwrap().0);
        let superblock = [slot(0), slot(1)].into_iter().flatten().max_by_key(|s| s.generation).unwrap();
        Log { bytes, superblock }
    }

    fn edit(dir: &Path, edit: impl FnOnce(&mut Log)) {
        let mut log = Log::of(dir);
        edit(&mut log);
        let file = OpenOptions::new().write(true).open(dir.join(".wholly/log")).unwrap();
        file.write_all_at(&log.bytes, 0).unwrap();
    }

    fn headers(&self) -> Vec<(u64, SegmentHeader)> {
        let seed = volume_seed(&self.superblock.volume_id);
        let header = |start: usize| {
            let raw = RawSegmentHeader::read_from_bytes(&self.bytes[start..][..LINE as usize]).unwrap();
            SegmentHeader::checked(&raw, seed, start as u64).map(|header| (start as u64, header))
        };
        (SEGMENTS_START as usize..self.bytes.len()).step_by(SEGMENT as usize).filter_map(header).collect()
    }

    /// Those of the life `incarnation`, in the order of the log.
    fn records(&self, incarnation: u64) -> Vec<Place> {
        let mut all = Vec::new();
        let region = wholly_sim::World::new(wholly_sim::SimConfig {
            log_len: self.bytes.len() as u64,
            ..wholly_sim::SimConfig::pmem()
        })
        .log();
        region.write(wholly_media::Site("test"), 0, &self.bytes).unwrap();
        for (start, header) in self.headers().into_iter().filter(|(_, header)| header.incarnation == incarnation) {
            let seed = segment_seed(&self.superblock.volume_id, incarnation, header.sequence);
            let mut reader = wholly::log::scan::SegmentReader::new(&*region, start, SEGMENT);
            let mut at = start + u64::from(self.superblock.block);
            while let Some(record) = wholly::log::scan::record_at(&mut reader, seed, at).unwrap() {
                let kind = record.head.kind;
                at = record.end();
                all.push(Place { at: record.position, seed, kind, entries: record.entries });
            }
        }
        all
    }

    fn flip(&mut self, at: u64) {
        self.bytes[at as usize] ^= 4;
    }

    /// Where the 700 bytes are that a small group wrote.
    fn small(&self, byte: u8) -> u64 {
        self.bytes.windows(700).position(|bytes| bytes == [byte; 700]).unwrap() as u64
    }
}

#[test]
fn sound_stores_have_no_findings() {
    for (dir, medium) in Dir::on_media("check-sound") {
        let sound = |when: &str| {
            let report = wholly::check(&*dir).unwrap();
            assert!(report.findings.is_empty(), "{when}: {:#?}", report.findings);
            report
        };
        Store::init_with(&*dir, &options(), HostOptions { medium, ..HostOptions::default() }).unwrap();
        assert_eq!(sound("fresh").segments, 0);
        fs::remove_dir_all(dir.join(".wholly")).unwrap();
        fill(&dir, medium);
        let report = sound("full");
        assert_eq!(report.groups, 12);
        assert!(report.payload_bytes > 2 * 48_000);
        // Recovery gives the new files their names, and then takes all home.
        drop(open(&dir, medium));
        sound("opened again");
        let store = open(&dir, medium);
        store.checkpoint().unwrap();
        sound_but_busy(&dir);
        let file = store.open_file("a").unwrap();
        file.write_at(0, b"later").unwrap();
        drop((file, store));
        sound("checkpointed, and written to again");
        open(&dir, medium).close().unwrap();
        assert_eq!(sound("closed").groups, 0);
    }
}

fn sound_but_busy(dir: &Path) {
    let Err(Error::Busy(_, who)) = wholly::check(dir) else { panic!("it judges a log that is written to") };
    assert!(who.contains(&std::process::id().to_string()), "{who}");
}

#[test]
fn what_is_no_store_is_an_error() {
    for (dir, _) in Dir::on_media("check-none") {
        assert!(matches!(wholly::check(&*dir), Err(Error::NotAStore(_))));
        assert!(matches!(wholly::tidy(&*dir), Err(Error::NotAStore(_))));
    }
}

#[test]
fn a_superblock_slot() {
    let mut newer = 0;
    for slot in 0..2 {
        let reports = found(&format!("check-slot-{slot}"), |dir| Log::edit(dir, |log| log.flip(slot * 4096 + 80)));
        for report in &reports {
            assert!(has(report, FindingKind::Torn, &format!("superblock {slot}"), "checksum"), "{report:?}");
            // A crash may have left the older one so; the newer one is missed.
            let is_newer = has(report, FindingKind::Log, "superblock", "is gone");
            assert!(report.is_sound() != is_newer && (is_newer || report.findings.len() == 1), "{report:?}");
            newer += usize::from(is_newer);
        }
    }
    assert_eq!(newer, Dir::on_media("check-slots-media").len(), "one of both");
    let both = found("check-slots", |dir| {
        Log::edit(dir, |log| [40, 4136].into_iter().for_each(|at| log.flip(at)));
    });
    assert!(both.iter().all(|report| report.findings.len() == 2 && !report.is_sound()));
}

#[test]
fn a_segment_header() {
    let reports = found("check-header", |dir| Log::edit(dir, |log| log.flip(SEGMENTS_START + 20)));
    assert_found(&reports, FindingKind::Log, "log, ", "");
}

#[test]
fn a_head_and_an_entry() {
    for (name, byte) in [("head", 12), ("entry", HEAD as u64 + 12)] {
        // Of the life before the last one, and of the last one: in the midst of it, as the end of that may be torn.
        for life in 1..3 {
            let reports = found(&format!("check-{name}-{life}"), |dir| {
                Log::edit(dir, |log| {
                    let at = log.records(life)[2].at;
                    log.flip(at + byte);
                });
            });
            assert_found(&reports, FindingKind::Log, "log, ", "");
        }
    }
}

#[test]
fn a_payload() {
    let reports = found("check-payload", |dir| {
        Log::edit(dir, |log| [2, 4, 13].into_iter().for_each(|byte| log.flip(log.small(byte) + 500)));
    });
    assert_found(&reports, FindingKind::Payload, "log, byte ", "700 bytes for byte 100 of a of group");
    for report in reports {
        assert_eq!(report.findings.len(), 3, "each of them: {:#?}", report.findings);
        assert_eq!(report.groups, 12);
    }
}

#[test]
fn a_part_that_is_missing() {
    let reports = found("check-part", |dir| {
        Log::edit(dir, |log| {
            let records = log.records(2);
            let part = records.iter().filter(|record| record.kind == RecordKind::Part).nth(1).expect("parts").at;
            log.bytes[part as usize..][..LINE as usize].fill(0);
        });
    });
    assert_found(&reports, FindingKind::Log, "log, byte", "parts and");
}

#[test]
fn an_entry_for_a_file_that_was_never_named() {
    let reports = found("check-unknown", |dir| {
        Log::edit(dir, |log| {
            let records = log.records(2);
            let only_write = |record: &&Place| matches!(record.entries[..], [entry] if entry.kind == EntryKind::Write);
            let record = records.iter().filter(only_write).nth(1).expect("a group of one write");
            let at = record.at as usize;

            log.bytes[at + HEAD + 16] ^= 0x40;
            let line: [u8; LINE as usize] = log.bytes[at..][..LINE as usize].try_into().unwrap();
            let mended = seal(record_seed(record.seed, record.at), &line, &[]);
            log.bytes[at..at + 8].copy_from_slice(&mended.to_le_bytes());
        });
    });
    assert_found(&reports, FindingKind::Log, "log, byte", "never identified");
}

#[test]
fn a_log_that_was_cut_off() {
    let cut = |len: u64| {
        move |dir: &Path| OpenOptions::new().write(true).open(dir.join(".wholly/log")).unwrap().set_len(len).unwrap()
    };
    let reports = found("check-cut", cut(SEGMENTS_START + 2 * SEGMENT));
    assert_found(&reports, FindingKind::Log, "log", "cut off");
    let reports = found("check-cut-short", cut(4096));
    assert_found(&reports, FindingKind::Superblock, "superblock", "4096 bytes");
}

#[test]
fn home_files() {
    let reports = found("check-gone", |dir| fs::remove_file(dir.join("b")).unwrap());
    assert_found(&reports, FindingKind::File, "b", "gone");
    let reports = found("check-changed", |dir| fs::write(dir.join("b"), "by an editor").unwrap());
    assert_found(&reports, FindingKind::File, "b", "size");
    let reports = found("check-replaced", |dir| {
        fs::write(dir.join("c"), [0; 5000]).unwrap();
        fs::rename(dir.join("c"), dir.join("b")).unwrap();
    });
    assert_found(&reports, FindingKind::File, "b", "another file");
    let reports = found("check-directory", |dir| {
        fs::remove_file(dir.join("b")).unwrap();
        fs::create_dir(dir.join("b")).unwrap();
    });
    assert_found(&reports, FindingKind::File, "b", "");
    assert!(reports.iter().all(|report| report.findings.len() == 1));
}

#[test]
fn the_folder() {
    let reports = found("check-folder", |dir| {
        let home = dir.join(".wholly");
        fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
        fs::write(home.join("notes"), "mine").unwrap();
        fs::create_dir(dir.join(".wholly.unfinished-1")).unwrap();
        fs::write(dir.join(".wholly.unfinished-1/lock"), "").unwrap();
        let tidied = |when| wholly::check(dir).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(tidied("before").findings.len(), 3);
        wholly::tidy(dir).unwrap();
        assert!(!dir.join(".wholly.unfinished-1").exists() && home.join("notes").exists());
        assert_eq!(tidied("after").findings.len(), 1);
        fs::set_permissions(&home, Permissions::from_mode(0o750)).unwrap();
    });
    assert_found(&reports, FindingKind::Mode, ".wholly", "0750");
    assert_found(&reports, FindingKind::Stranger, ".wholly/notes", "");
    for name in ["log", "lock"] {
        let reports =
            found(&format!("check-no-{name}"), |dir| fs::remove_file(dir.join(".wholly").join(name)).unwrap());
        assert_found(&reports, FindingKind::Missing, name, "missing");
    }
}

#[test]
fn a_log_that_cannot_be_read() {
    for (dir, medium) in Dir::on_media("check-unreadable") {
        fill(&dir, medium);
        fs::remove_file(dir.join(".wholly/log")).unwrap();
        fs::create_dir(dir.join(".wholly/log")).unwrap();
        assert!(matches!(wholly::check(&*dir), Err(Error::Media(_))));
    }
}

/// What stands in the way of one finding keeps no other one back.
#[test]
fn all_at_once() {
    let reports = found("check-all", |dir| {
        Log::edit(dir, |log| {
            let at = log.records(2)[3].at;
            log.flip(at + 12);
            log.flip(log.small(2) + 500);
            log.flip(4096 * ((log.superblock.generation + 1) % 2) + 80);
        });
        fs::remove_file(dir.join("b")).unwrap();
        fs::set_permissions(dir.join(".wholly"), Permissions::from_mode(0o700 | 0o077)).unwrap();
    });
    for kind in [FindingKind::Torn, FindingKind::Log, FindingKind::Payload, FindingKind::File, FindingKind::Mode] {
        assert_found(&reports, kind, "", "");
    }
}
