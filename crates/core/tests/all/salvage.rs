//! What `salvage` gets out of damaged stores: all groups that can be proven, none by halves, and nothing of the
//! original changed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use wholly::log::checksum::{record_seed, segment_seed};
use wholly::log::layout::{
    ENTRY, HEAD, LINE, RawSegmentHeader, RawSuperblock, SEGMENTS_START, SegmentHeader, Superblock, seal,
};
use wholly::log::scan::{Record, SegmentReader, record_at};
use wholly::log::volume_seed;
use wholly::{Error, Fate, FindingKind, Options, Rename, Salvaged, Store};
use wholly_host::{HostMedium, HostOptions};
use wholly_sim::{SimConfig, World};
use zerocopy::FromBytes;

use crate::common::Dir;

const SEGMENT: u64 = 16 << 10;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT,
        log_min_bytes: 4 * SEGMENT,
        log_max_bytes: 1 << 20,
        background: false,
        gather_bytes: 8 << 10,
        ..Options::default()
    }
}

fn try_open(dir: &Path, medium: HostMedium) -> wholly::Result<Store> {
    Store::open_with(dir, options(), HostOptions { medium, ..HostOptions::default() })
}

fn init(dir: &Path, medium: HostMedium) -> Store {
    Store::init_with(dir, &options(), HostOptions { medium, ..HostOptions::default() }).unwrap();
    try_open(dir, medium).unwrap()
}

/// A copy that is removed with the value.
struct Out(PathBuf);

impl Drop for Out {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Out {
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).symlink_metadata().is_ok()
    }
}

/// Salvages a store, of which nothing changes.
fn salvage(dir: &Path) -> (Salvaged, Out) {
    salvage_with(dir, &Options::default())
}

fn salvage_with(dir: &Path, options: &Options) -> (Salvaged, Out) {
    let out = Out(dir.with_extension("out"));
    let _ = fs::remove_dir_all(&out.0);
    let before = (fs::read(dir.join(".wholly/log")).ok(), fs::metadata(dir.join(".wholly")).unwrap().mtime_nsec());
    let salvaged = wholly::salvage(dir, &out.0, options, &mut |_, _| ()).unwrap();
    let after = (fs::read(dir.join(".wholly/log")).ok(), fs::metadata(dir.join(".wholly")).unwrap().mtime_nsec());
    assert!(before == after, "the original has changed");
    assert!(!out.has(".wholly"), "an ordinary directory");
    (salvaged, out)
}

/// The fates of groups in commit order: written, torn, left out.
fn fates(salvaged: &Salvaged) -> String {
    let word = |fate: &Fate| match fate {
        Fate::Written => 'w',
        Fate::Torn => 't',
        Fate::LeftOut(_) => '-',
    };
    salvaged.groups.iter().map(|group| word(&group.fate)).collect()
}

fn superblock(log: &[u8]) -> Superblock {
    let slot = |slot: usize| Superblock::checked(&RawSuperblock::read_from_prefix(&log[slot * 4096..]).unwrap().0);
    [slot(0), slot(1)].into_iter().flatten().max_by_key(|superblock| superblock.generation).unwrap()
}

/// Records of the last life, in the order of the log.
fn records(log: &[u8]) -> Vec<Record> {
    let superblock = superblock(log);
    let config = SimConfig { log_len: log.len() as u64, ..SimConfig::pmem() };
    let region = World::new(config).log();
    region.write(wholly_media::Site("test"), 0, log).unwrap();
    let mut all = Vec::new();
    for start in (SEGMENTS_START..log.len() as u64).step_by(SEGMENT as usize) {
        let raw = RawSegmentHeader::read_from_bytes(&log[start as usize..][..LINE as usize]).unwrap();
        let header = SegmentHeader::checked(&raw, volume_seed(&superblock.volume_id), start);
        let Some(header) = header.filter(|header| header.incarnation == superblock.incarnation) else { continue };
        let seed = segment_seed(&superblock.volume_id, header.incarnation, header.sequence);
        let mut reader = SegmentReader::new(&*region, start, SEGMENT);
        let mut at = start + u64::from(superblock.block);
        while let Some(record) = record_at(&mut reader, seed, at).unwrap() {
            at = record.end();
            all.push(record);
        }
    }
    all
}

fn edit_log(dir: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let path = dir.join(".wholly/log");
    let mut log = fs::read(&path).unwrap();
    edit(&mut log);
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&log, 0).unwrap();
}

/// Gives a record another sequence and another group before it, as if it had been written so.
fn reseal(log: &mut [u8], record: &Record, sequence: u64, after: u64) {
    let at = record.position as usize;
    log[at + 8..at + 16].copy_from_slice(&sequence.to_le_bytes());
    log[at + 16..at + 24].copy_from_slice(&after.to_le_bytes());
    let line: [u8; LINE as usize] = log[at..at + LINE as usize].try_into().unwrap();
    let tail = at + record.head.tail_offset() as usize;
    let tail = log[tail..tail + record.head.tail_lines() as usize * LINE as usize].to_vec();
    let sum = seal(record_seed(record.segment_seed, record.position), &line, &tail);
    log[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(HEAD + ENTRY, LINE as usize);
}

/// A place where a payload of `byte`s stands.
fn payload(log: &[u8], byte: u8) -> usize {
    log.windows(700).position(|bytes| bytes == [byte; 700]).expect("the payload")
}

/// Files `a`, `b`, `c` of 5000 zeros. Groups that are not home: 1 to `a`, 2 to `a` and `b`, 3 to `c`, 4 to `b`, and one
/// that makes `new`.
fn fill(dir: &Path, medium: HostMedium) {
    for name in ["a", "b", "c"] {
        fs::write(dir.join(name), [0; 5000]).unwrap();
    }
    let store = init(dir, medium);
    for (byte, names) in [(1u8, "a"), (2, "ab"), (3, "c"), (4, "b")] {
        let mut group = store.begin();
        for name in names.chars() {
            let file = store.open_file(name.to_string()).unwrap();
            group.write_at(&file, 100 * u64::from(byte), &[byte; 700]).unwrap();
        }
        group.commit().unwrap();
    }
    store.create_file("new", 0o600).unwrap();
}

/// What `a`, `b` or `c` hold after these groups.
fn written(groups: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 5000];
    for byte in groups {
        bytes[100 * usize::from(*byte)..][..700].fill(*byte);
    }
    bytes
}

#[test]
fn a_sound_store_is_copied_wholly() {
    for (dir, medium) in Dir::on_media("salvage-sound") {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/x"), "x").unwrap();
        fs::set_permissions(dir.join("d/x"), fs::Permissions::from_mode(0o4711)).unwrap();
        fs::hard_link(dir.join("d/x"), dir.join("linked")).unwrap();
        symlink("d/nowhere", dir.join("link")).unwrap();
        fs::File::create(dir.join("holes")).unwrap().set_len(8 << 20).unwrap();
        fill(&dir, medium);
        let store = try_open(&dir, medium).unwrap();
        let mut group = store.begin();
        group.rename("c", "d/moved", Rename::NoReplace).unwrap();
        group.mkdir("made", 0o750).unwrap();
        group.symlink("target", "made/link").unwrap();
        group.unlink("linked").unwrap();
        group.commit().unwrap();
        let large = store.create_file("large", 0o640).unwrap();
        let mut group = store.begin();
        for piece in 0..20 {
            group.write_at(&large, piece * 4000, &[9; 4000]).unwrap();
        }
        group.commit().unwrap();
        drop((large, store));
        let (salvaged, out) = salvage(&dir);
        assert!(salvaged.is_whole(), "{salvaged:#?}");
        assert!(salvaged.groups.len() >= 8);
        // The same as recovery makes of it.
        try_open(&dir, medium).unwrap().close().unwrap();
        for name in ["a", "b", "d/moved", "new", "large", "d/x", "holes"] {
            assert!(fs::read(dir.join(name)).unwrap() == out.read(name), "{name}");
        }
        for name in ["", "a", "b", "d", "d/x", "d/moved", "new", "made", "large", "holes", "link", "made/link"] {
            let stat = |dir: &Path| dir.join(name).symlink_metadata().unwrap();
            let (was, is) = (stat(&dir), stat(&out.0));
            let facts = |stat: &fs::Metadata| (stat.mode(), stat.uid(), stat.gid(), stat.mtime(), stat.mtime_nsec());
            if name.is_empty() {
                assert_eq!(was.mode(), is.mode());
            } else {
                assert_eq!(facts(&was), facts(&is), "{name}");
            }
            assert!(was.is_dir() || was.nlink() == is.nlink(), "{name}");
        }
        assert_eq!(fs::read_link(out.0.join("made/link")).unwrap(), Path::new("target"));
        assert!(fs::metadata(out.0.join("holes")).unwrap().blocks() < 1000);
        for name in ["c", "linked"] {
            assert!(!out.has(name) && !dir.join(name).exists(), "{name}");
        }
    }
}

/// A race once numbered a group before the one that it builds on by a name. Nothing else is wrong with its log.
#[test]
fn groups_in_a_false_order() {
    for (dir, medium) in Dir::on_media("salvage-order") {
        fs::write(dir.join("foo"), [0; 5000]).unwrap();
        fs::write(dir.join("bar"), [0; 5000]).unwrap();
        let store = init(&dir, medium);
        let write = |name: &str, byte: u8| {
            let mut group = store.begin();
            group.write_at(&store.open_file(name).unwrap(), 0, &[byte; 700]).unwrap();
            group.commit().unwrap();
        };
        write("foo", 1);
        let mut group = store.begin();
        group.rename("foo", "moved", Rename::NoReplace).unwrap();
        group.commit().unwrap();
        write("bar", 3);
        write("moved", 4);
        drop(store);
        edit_log(&dir, |log| {
            let all = records(log);
            let (first, second) = (&all[0], &all[1]);
            let (low, high) = (first.head.sequence, second.head.sequence);
            assert_eq!(second.head.after, low, "it builds on the first");
            reseal(log, first, high, first.head.after);
            reseal(log, second, low, high);
        });
        assert!(matches!(try_open(&dir, medium), Err(Error::Corrupt { .. })));
        let report = wholly::check(&*dir).unwrap();
        assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::Log), "{:#?}", report.findings);
        let (salvaged, out) = salvage(&dir);
        assert!(salvaged.is_whole(), "{salvaged:#?}");
        assert!(!out.has("foo"));
        assert_eq!((out.read("moved")[..700].to_vec(), out.read("bar")[..700].to_vec()), (vec![4; 700], vec![3; 700]));
    }
}

#[test]
fn a_payload_that_rotted_costs_its_group_and_what_builds_on_it() {
    for (dir, medium) in Dir::on_media("salvage-rot") {
        fill(&dir, medium);
        edit_log(&dir, |log| {
            let at = payload(log, 2);
            log[at + 300] ^= 4;
        });
        let (salvaged, out) = salvage(&dir);
        assert_eq!(fates(&salvaged), "w-w-w", "{salvaged:#?}");
        assert!(!salvaged.is_whole());
        assert_eq!(salvaged.groups[1].paths, ["a", "b"]);
        assert_eq!(out.read("a"), written(&[1]));
        assert_eq!(out.read("b"), written(&[]), "4 builds on 2");
        assert_eq!(out.read("c"), written(&[3]));
        assert!(out.has("new"));
    }
}

#[test]
fn a_head_that_rotted_hides_no_later_group() {
    for (dir, medium) in Dir::on_media("salvage-head") {
        fill(&dir, medium);
        edit_log(&dir, |log| {
            let at = records(log)[1].position as usize;
            log[at + 12] ^= 4;
        });
        assert!(matches!(try_open(&dir, medium), Err(Error::Corrupt { .. })));
        let (salvaged, out) = salvage(&dir);
        // Who has 2 in its record has gone; what is left of the groups is 1, 3, 4 and the last.
        assert_eq!(fates(&salvaged), "ww-w", "{salvaged:#?}");
        assert!(salvaged.findings.iter().any(|finding| finding.kind == FindingKind::Log));
        assert_eq!((out.read("a"), out.read("b")), (written(&[1]), written(&[])));
        assert_eq!(out.read("c"), written(&[3]));
    }
}

#[test]
fn a_log_that_was_cut_off() {
    for (dir, medium) in Dir::on_media("salvage-cut") {
        fill(&dir, medium);
        let log = OpenOptions::new().write(true).open(dir.join(".wholly/log")).unwrap();
        log.set_len(SEGMENTS_START + SEGMENT - 1).unwrap();
        let (salvaged, out) = salvage(&dir);
        assert!(salvaged.findings.iter().any(|f| f.what.contains("cut off")), "{salvaged:#?}");
        assert!(!salvaged.is_whole());
        // One file each: what they come after says that nothing is missing between.
        assert_eq!(out.read("c"), written(&[3]));
        log.set_len(SEGMENTS_START).unwrap();
        let (salvaged, out) = salvage(&dir);
        assert!(salvaged.groups.is_empty() && !salvaged.is_whole());
        assert_eq!(out.read("a"), written(&[]));
    }
}

fn accepting() -> Options {
    Options { accept_copy: true, ..Options::default() }
}

#[test]
fn superblocks_that_are_gone() {
    for zeros in [true, false] {
        for (dir, medium) in Dir::on_media("salvage-superblocks") {
            fill(&dir, medium);
            edit_log(&dir, |log| match zeros {
                true => log[..SEGMENTS_START as usize].fill(0),
                false => [80, 4096 + 80].into_iter().for_each(|at| log[at] ^= 4),
            });
            assert!(matches!(try_open(&dir, medium), Err(Error::Corrupt { .. })));
            // Nothing tells any more that it was written there.
            let refused = wholly::salvage(&*dir, dir.with_extension("out"), &Options::default(), &mut |_, _| ());
            assert!(matches!(refused, Err(Error::Copied(_))), "{refused:?}");
            let (salvaged, out) = salvage_with(&dir, &accepting());
            assert_eq!(fates(&salvaged), "wwwww", "{salvaged:#?}");
            assert!(salvaged.findings.iter().any(|finding| finding.kind == FindingKind::Superblock));
            assert_eq!((out.read("a"), out.read("b")), (written(&[1, 2]), written(&[2, 4])));
            assert_eq!(out.read("c"), written(&[3]));
            assert!(out.has("new"));
        }
        // What is home, and was changed since, is not written once more.
        for (dir, medium) in Dir::on_media("salvage-superblocks-home") {
            fill(&dir, medium);
            let store = try_open(&dir, medium).unwrap();
            store.checkpoint().unwrap();
            drop(store);
            fs::write(dir.join("c"), "by an editor").unwrap();
            edit_log(&dir, |log| log[..SEGMENTS_START as usize].fill(0));
            let (salvaged, out) = salvage_with(&dir, &accepting());
            assert!(!salvaged.is_whole());
            assert_eq!(out.read("c"), b"by an editor");
            assert_eq!((out.read("a"), out.read("b")), (written(&[1, 2]), written(&[2, 4])));
        }
    }
}

#[test]
fn a_log_that_is_gone() {
    for (dir, medium) in Dir::on_media("salvage-gone") {
        fill(&dir, medium);
        fs::remove_file(dir.join(".wholly/log")).unwrap();
        assert!(matches!(try_open(&dir, medium), Err(Error::Corrupt { .. })));
        let (salvaged, out) = salvage(&dir);
        assert!(salvaged.findings.iter().any(|finding| finding.kind == FindingKind::Missing));
        assert_eq!(out.read("a"), written(&[]));
    }
}

#[test]
fn what_another_program_changed_stays_as_it_is() {
    for (dir, medium) in Dir::on_media("salvage-conflict") {
        fill(&dir, medium);
        fs::write(dir.join("b"), "by an editor").unwrap();
        let (salvaged, out) = salvage(&dir);
        assert_eq!(fates(&salvaged), "w-w-w", "{salvaged:#?}");
        assert_eq!((out.read("a"), out.read("b")), (written(&[1]), b"by an editor".to_vec()));
        assert_eq!(out.read("c"), written(&[3]));
    }
}

/// A conflict is of the object that had the name first: what came to it later from elsewhere is no worse for it.
#[test]
fn what_lost_only_its_place_to_another_program_is_proven() {
    for (dir, medium) in Dir::on_media("salvage-values") {
        let store = init(&dir, medium);
        for name in ["m", "f"] {
            let mut group = store.begin();
            let file = group.create(name, 0o644).unwrap();
            group.write_at(&file, 0, &[7; 700]).unwrap();
            group.commit().unwrap();
        }
        let mut group = store.begin();
        group.rename("m", "f", Rename::Replace).unwrap();
        group.commit().unwrap();
        drop(store);
        fs::write(dir.join("f"), "by an editor").unwrap();
        let (salvaged, out) = salvage(&dir);
        assert_eq!(fates(&salvaged), "w--", "{salvaged:#?}");
        assert_eq!((out.read("m"), out.read("f")), (vec![7; 700], b"by an editor".to_vec()));
    }
}

#[test]
fn what_cannot_be_salvaged_is_an_error() {
    for (dir, medium) in Dir::on_media("salvage-refused") {
        let out = Out(dir.with_extension("out"));
        let _ = fs::remove_dir_all(&out.0);
        let to = |out: &Path| wholly::salvage(&*dir, out, &Options::default(), &mut |_, _| ());
        assert!(matches!(to(&out.0), Err(Error::NotAStore(_))));
        let store = init(&dir, medium);
        let Err(Error::Busy(_, who)) = to(&out.0) else { panic!("it reads a log that is written to") };
        assert!(who.contains(&std::process::id().to_string()), "{who}");
        assert!(!out.0.exists());
        drop(store);
        fs::create_dir(&out.0).unwrap();
        fs::write(out.0.join("mine"), "").unwrap();
        assert!(matches!(to(&out.0), Err(Error::Exists(_))));
        assert!(matches!(to(&dir.join("in-it")), Err(Error::Invalid(_))) && !dir.join("in-it").exists());
        fs::set_permissions(dir.join(".wholly"), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(to(&out.0), Err(Error::Untrusted { .. })), "others may have written to it");
    }
}

/// Groups that write 700 bytes to these files, one letter each. Nothing of them is home.
fn groups(dir: &Path, medium: HostMedium, all: &[(u8, &str)]) {
    for name in ["a", "b", "c"] {
        fs::write(dir.join(name), [0; 5000]).unwrap();
    }
    let store = init(dir, medium);
    for (byte, names) in all {
        let mut group = store.begin();
        for name in names.chars() {
            let file = store.open_file(name.to_string()).unwrap();
            group.write_at(&file, 100 * u64::from(*byte), &[*byte; 700]).unwrap();
        }
        group.commit().unwrap();
    }
}

/// The file was identified by a group that holds: nothing but what it builds on tells that the last group must not be
/// there.
#[test]
fn what_builds_on_a_group_that_rotted_is_left_out() {
    for (dir, medium) in Dir::on_media("salvage-builds") {
        groups(&dir, medium, &[(1, "a"), (2, "a"), (3, "a")]);
        edit_log(&dir, |log| {
            let at = payload(log, 2);
            log[at + 300] ^= 4;
        });
        let (salvaged, out) = salvage(&dir);
        assert_eq!(fates(&salvaged), "w--", "{salvaged:#?}");
        assert_eq!(out.read("a"), written(&[1]));
    }
}

/// The last group says that it comes after the third, which is there. That the second one has changed `a` as well
/// nobody knows any more, only that a group may be lost there.
#[test]
fn what_may_build_on_a_group_that_is_lost_is_left_out() {
    for (dir, medium) in Dir::on_media("salvage-masked") {
        groups(&dir, medium, &[(1, "a"), (2, "a"), (3, "c"), (4, "ac")]);
        edit_log(&dir, |log| {
            let at = records(log)[1].position as usize;
            log[at + 12] ^= 4;
        });
        let (salvaged, out) = salvage(&dir);
        assert_eq!(fates(&salvaged), "ww-", "{salvaged:#?}");
        assert_eq!((out.read("a"), out.read("c")), (written(&[1]), written(&[3])));
    }
}
