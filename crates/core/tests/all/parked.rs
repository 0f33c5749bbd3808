//! Groups that are parked: what they would change, that they survive by themselves, and when they can be applied.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use crate::common::{open_on, stores_of_files};
use rustix::fs::Mode;
use wholly::{Change, Error, Fallocate, ParkedId, Rename, Review, SetXattr, Side, Store, StoreVfs, What};
use wholly_vfs::{Context, Groups, Ino, Vfs};

/// All that is in a file on one side of a change.
fn content(review: &Review<'_>, path: &str, side: Side) -> Vec<u8> {
    let change = change(review, path);
    let (mut all, mut buf) = (Vec::new(), [0; 1000]);
    loop {
        match review.read(change, side, all.len() as u64, &mut buf).unwrap() {
            0 => return all,
            read => all.extend_from_slice(&buf[..read]),
        }
    }
}

fn change<'r>(review: &'r Review<'_>, path: &str) -> &'r Change {
    review
        .changes()
        .iter()
        .find(|change| change.path == Path::new(path))
        .unwrap_or_else(|| panic!("{path}: {review:?}"))
}

/// Each change in a few words.
fn told(review: &Review<'_>) -> Vec<String> {
    let one = |change: &Change| {
        let size = |stat: &Option<wholly::Stat>| stat.map_or("-".into(), |stat| stat.size.to_string());
        let from = change.from.as_ref().map_or(String::new(), |from| format!("{}>", from.display()));
        let is_dir = change.before.or(change.after).is_some_and(|stat| stat.mode & 0o170_000 == 0o040_000);
        let sizes = if is_dir { String::new() } else { format!(" {}:{}", size(&change.before), size(&change.after)) };
        let content = if change.content { " content" } else { "" };
        format!("{:?} {from}{}{sizes}{content}", change.what, change.path.display())
    };
    review.changes().iter().map(one).collect()
}

/// A group that does something of each kind.
fn do_all(store: &Store) -> wholly::Group<'static> {
    let mut group = store.begin();
    let a = group.open_file("a").unwrap();
    group.write_at(&a, 1, b"E").unwrap();
    group.append(&a, b" world").unwrap();
    group.mkdir("n", 0o750).unwrap();
    let c = group.create("n/c", 0o640).unwrap();
    group.append(&c, b"new").unwrap();
    group.symlink("c", "n/l").unwrap();
    group.rename("d/b", "e/b", Rename::Replace).unwrap();
    group.rmdir("d").unwrap();
    group.set_mode("e/b", 0o600).unwrap();
    group.set_xattr("e/b", "user.tag", b"t", SetXattr::Create).unwrap();
    group.set_times("n/c", None, Some(1_000_000_007)).unwrap();
    let gone = group.create("gone", 0o600).unwrap();
    group.append(&gone, b"never seen").unwrap();
    group.unlink("gone").unwrap();
    group
}

const ALL: [&str; 6] = [
    "Changed a 5:11 content",
    "Removed d",
    "Renamed d/b>e/b 12000:12000",
    "Created n",
    "Created n/c -:3 content",
    "Created n/l -:1",
];

fn assert_all_done(dir: &Path) {
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"hEllo world");
    assert_eq!(fs::read(dir.join("n/c")).unwrap(), b"new");
    assert_eq!(fs::metadata(dir.join("n/c")).unwrap().mtime_nsec(), 7);
    assert_eq!(fs::metadata(dir.join("n")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_link(dir.join("n/l")).unwrap(), Path::new("c"));
    assert_eq!(fs::read(dir.join("e/b")).unwrap(), [7; 12_000]);
    assert_eq!(fs::metadata(dir.join("e/b")).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(!dir.join("d").exists() && !dir.join("gone").exists());
    assert_eq!(fs::read_dir(dir.join(".wholly/parked")).unwrap().count(), 0);
}

#[test]
fn what_would_change_is_the_same_while_it_runs_and_when_it_is_parked() {
    for (dir, medium) in stores_of_files("parked-same") {
        let store = open_on(&dir, medium);
        let mut group = do_all(&store);
        let running = group.review().unwrap();
        assert_eq!(told(&running), ALL);
        let of_a = |review: &Review<'_>| (content(review, "a", Side::Before), content(review, "a", Side::After));
        assert_eq!(of_a(&running), (b"hello".to_vec(), b"hEllo world".to_vec()));
        let changes: Vec<_> = running.changes().to_vec();
        drop(running);
        let id = group.park("a note", None).unwrap();

        let parked = &store.parked().unwrap()[..];
        let [parked] = parked else { panic!("{parked:?}") };
        assert_eq!((parked.id, &*parked.note, parked.files, parked.bytes), (id, "a note", 2, 1 + 6 + 3));
        assert_eq!((parked.expires_ns, &parked.unreadable), (None, &None));
        assert!(parked.parked_ns > 0 && parked.space > 4096);
        assert_eq!((store.stat().parked_groups, store.stat().parked_bytes), (1, parked.space));
        let look = |store: &Store| {
            let review = store.review(id).unwrap();
            assert_eq!(told(&review), ALL);
            assert_eq!(of_a(&review), (b"hello".to_vec(), b"hEllo world".to_vec()));
            assert_eq!(content(&review, "n/c", Side::After), b"new");
            assert_eq!(content(&review, "n/l", Side::After), b"c");
            assert_eq!(content(&review, "e/b", Side::After), [7; 12_000]);
            for (now, then) in review.changes().iter().zip(&changes) {
                let modes =
                    |change: &Change| [change.before, change.after].map(|stat| stat.map(|stat| (stat.mode, stat.size)));
                assert_eq!((modes(now), &now.xattrs), (modes(then), &then.xattrs), "{:?}", now.path);
            }
        };
        look(&store);
        store.close().unwrap();
        look(&open_on(&dir, medium));
    }
}

#[test]
fn it_survives_its_process_and_is_applied_at_once() {
    for (dir, medium) in stores_of_files("parked-applied") {
        let store = open_on(&dir, medium);
        let id = do_all(&store).park("", None).unwrap();
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"hello");
        drop(store);
        let store = open_on(&dir, medium);
        assert!(wholly::parked(&*dir).unwrap().iter().any(|parked| parked.id == id));
        store.apply(id).unwrap();
        assert!(store.parked().unwrap().is_empty());
        assert!(matches!(store.apply(id), Err(Error::NotFound(_))));
        assert!(matches!(store.discard(id), Err(Error::NotFound(_))));
        store.checkpoint().unwrap();
        assert_all_done(&dir);
        drop(store);
        assert!(open_on(&dir, medium).parked().unwrap().is_empty());
        assert!(wholly::check(&*dir).unwrap().is_sound());
    }
}

#[test]
fn what_it_builds_on_need_not_be_home() {
    for (dir, medium) in stores_of_files("parked-builds") {
        let store = open_on(&dir, medium);
        let mut group = store.begin();
        group.mkdir("new", 0o755).unwrap();
        let file = group.create("new/file", 0o644).unwrap();
        group.append(&file, b"first ").unwrap();
        group.commit().unwrap();
        let mut group = store.begin();
        group.append(&file, b"second").unwrap();
        let id = group.park("", None).unwrap();
        drop((file, store));
        // Of another life, in which nobody knows by which number the log knew the file.
        open_on(&dir, medium).close().unwrap();
        let store = open_on(&dir, medium);
        store.apply(id).unwrap();
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("new/file")).unwrap(), b"first second");
    }
}

/// Claims are given up, and the log is used again.
#[test]
fn nothing_waits_for_it() {
    for (dir, medium) in stores_of_files("parked-waits") {
        let store = open_on(&dir, medium);
        let ids: Vec<ParkedId> = (0..2)
            .map(|n| {
                let mut group = store.begin();
                let file = group.open_file("d/b").unwrap();
                group.write_at(&file, n * 100, &[9; 50]).unwrap();
                group.park(&format!("{n}"), None).unwrap()
            })
            .collect();
        let mut group = store.begin();
        group.rename("a", "e/a", Rename::NoReplace).unwrap();
        group.commit().unwrap();
        store.checkpoint().unwrap();
        let stat = store.stat();
        assert!(u64::from(stat.segments - stat.free_segments) <= 2, "{stat:?}");
        store.apply(ids[1]).unwrap();
        let overtaken = store.apply(ids[0]);
        let Err(Error::ChangedMeanwhile(id, what)) = &overtaken else { panic!("{overtaken:?}") };
        assert_eq!((*id, what.len(), what[0].path.to_str().unwrap()), (ids[0], 1, "d/b"));
        assert_eq!(overtaken.unwrap_err().errno(), rustix::io::Errno::STALE.raw_os_error());
        assert_eq!(store.parked().unwrap().len(), 1, "it is still there");
        assert!(matches!(store.remove(), Err(Error::Refused(_, rustix::io::Errno::NOTEMPTY))));
        let store = open_on(&dir, medium);
        store.discard(ids[0]).unwrap();
        assert!(store.parked().unwrap().is_empty());
        store.remove().unwrap();
        assert!(!dir.join(".wholly").exists());
        let b = fs::read(dir.join("d/b")).unwrap();
        assert_eq!((b[0], b[100], b[149], b[150]), (7, 9, 9, 7));
    }
}

/// What has become otherwise is told, all of it, and nothing is done.
#[test]
fn all_that_is_otherwise_is_told() {
    for (dir, medium) in stores_of_files("parked-otherwise") {
        let store = open_on(&dir, medium);
        let id = do_all(&store).park("", None).unwrap();
        let mut group = store.begin();
        group.mkdir("n", 0o700).unwrap();
        group.set_mode("d/b", 0o640).unwrap();
        group.create("d/late", 0o600).unwrap();
        group.commit().unwrap();
        // A bystander, while the log has nothing of the file.
        fs::write(dir.join("a"), "hollo").unwrap();
        let before = store.stat().log_bytes_written;
        let overtaken = store.apply(id).unwrap_err();
        let Error::ChangedMeanwhile(_, what) = &overtaken else { panic!("{overtaken}") };
        let what: Vec<String> = what.iter().map(ToString::to_string).collect();
        assert_eq!(
            what,
            [
                "a: its content has been changed",
                "d/b: its mode has been changed",
                "d/late: it has been put into a directory that the group removes",
                "n: something has been made there",
            ]
        );
        assert!(store.stat().log_bytes_written - before < 4096, "nothing is copied that is not applied");
        store.checkpoint().unwrap();
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"hollo");
        assert!(dir.join("d/b").exists() && store.review(id).is_ok());
        // Once all is as it was, it can be applied.
        fs::write(dir.join("a"), "hello").unwrap();
        let mut group = store.begin();
        group.rmdir("n").unwrap();
        group.set_mode("d/b", 0o644).unwrap();
        group.unlink("d/late").unwrap();
        group.commit().unwrap();
        store.apply(id).unwrap();
        store.close().unwrap();
        assert_all_done(&dir);
    }
}

/// Objects go by their inodes.
#[test]
fn what_has_moved_is_found() {
    for (dir, medium) in stores_of_files("parked-moved") {
        let store = open_on(&dir, medium);
        let mut group = store.begin();
        let file = group.open_file("d/b").unwrap();
        group.write_at(&file, 0, b"changed").unwrap();
        group.create("e/c", 0o600).unwrap();
        let id = group.park("", None).unwrap();
        let mut group = store.begin();
        group.rename("d/b", "moved", Rename::NoReplace).unwrap();
        group.rename("e", "d/f", Rename::NoReplace).unwrap();
        group.set_mode("moved", 0o600).unwrap();
        group.commit().unwrap();
        drop((file, store));
        let store = open_on(&dir, medium);
        assert_eq!(content(&store.review(id).unwrap(), "d/b", Side::After)[..8], *b"changed\x07");
        store.apply(id).unwrap();
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("moved")).unwrap()[..8], *b"changed\x07");
        assert!(dir.join("d/f/c").exists());
    }
}

/// Two moves that are harmless each would put a directory into itself.
#[test]
fn no_directory_comes_to_lie_in_itself() {
    for (dir, medium) in stores_of_files("parked-circle") {
        let store = open_on(&dir, medium);
        let mut group = store.begin();
        group.rename("d", "e/d", Rename::NoReplace).unwrap();
        let id = group.park("", None).unwrap();
        store.rename("e", "d/e", Rename::NoReplace).unwrap();
        let overtaken = store.apply(id).unwrap_err();
        let Error::ChangedMeanwhile(_, what) = &overtaken else { panic!("{overtaken}") };
        assert_eq!(what.len(), 1, "{overtaken}");
        store.rename("d/e", "e", Rename::NoReplace).unwrap();
        store.apply(id).unwrap();
        store.close().unwrap();
        assert!(dir.join("e/d/b").exists());
    }
}

#[test]
fn it_expires() {
    for (dir, medium) in stores_of_files("parked-expires") {
        let store = open_on(&dir, medium);
        let park = |keep| {
            let mut group = store.begin();
            group.create("new", 0o600).unwrap();
            group.park("", Some(keep)).unwrap()
        };
        let (long, short) = (park(Duration::from_secs(1000)), park(Duration::ZERO));
        assert!(matches!(store.apply(short), Err(Error::NotFound(_))));
        let parked = store.parked().unwrap();
        assert_eq!(parked.iter().map(|parked| parked.id).collect::<Vec<_>>(), [long]);
        assert_eq!(parked[0].expires_ns.unwrap() - parked[0].parked_ns, 1_000_000_000_000);
        park(Duration::ZERO);
        assert_eq!(wholly::parked(&*dir).unwrap().len(), 2, "who only looks removes nothing");
        drop(store);
        let store = open_on(&dir, medium);
        assert_eq!(wholly::parked(&*dir).unwrap().len(), 1, "an open does");
        store.apply(long).unwrap();
        store.close().unwrap();
        assert!(dir.join("new").exists());
    }
}

#[test]
fn damage_is_told_and_can_be_discarded() {
    for (dir, medium) in stores_of_files("parked-damage") {
        let store = open_on(&dir, medium);
        let id = do_all(&store).park("", None).unwrap();
        let path = dir.join(format!(".wholly/parked/{:x}", id.0));
        let whole = fs::read(&path).unwrap();
        let bytes_at = 4096;
        for (at, listed, what) in [
            (0, false, "its head does not match its checksum"),
            (200, false, "its head does not match its checksum"),
            (bytes_at, true, "do not match their checksum"),
            (whole.len() - 1, true, "its catalogue does not match its checksum"),
            (whole.len(), false, "it is not as long as it was written"),
        ] {
            let mut foul = whole.clone();
            match foul.get_mut(at) {
                Some(byte) => *byte ^= 4,
                None => foul.truncate(at - 8),
            }
            fs::write(&path, &foul).unwrap();
            let error = store.apply(id).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }) && error.to_string().contains(what), "byte {at}: {error}");
            let parked = &store.parked().unwrap()[0];
            assert_eq!((parked.id, parked.unreadable.is_none()), (id, listed), "byte {at}: {parked:?}");
            let error = wholly::check(&*dir);
            assert!(matches!(error, Err(Error::Busy(..))), "{error:?}");
        }
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"hello");
        drop(store);
        let report = wholly::check(&*dir).unwrap();
        let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [wholly::FindingKind::Parked], "{report:?}");
        let store = open_on(&dir, medium);
        store.discard(id).unwrap();
        store.close().unwrap();
        assert!(wholly::check(&*dir).unwrap().is_sound());
    }
}

/// Far more than is gathered in memory or fits into a segment.
#[test]
fn a_large_group_is_copied_in_pieces() {
    for (dir, medium) in stores_of_files("parked-large") {
        let store = open_on(&dir, medium);
        let mut group = store.begin();
        let large = group.create("large", 0o600).unwrap();
        let block: Vec<u8> = (0..100_003u32).map(|i| (i * 7 % 251) as u8).collect();
        for _ in 0..80 {
            group.append(&large, &block).unwrap();
        }
        group.set_len(&large, 9_000_000).unwrap();
        group.write_at(&large, 5, b"over").unwrap();
        let id = group.park("", None).unwrap();
        drop(large);
        store.apply(id).unwrap();
        store.close().unwrap();
        let mut expected = block.repeat(80);
        expected.resize(9_000_000, 0);
        expected[5..9].copy_from_slice(b"over");
        assert!(fs::read(dir.join("large")).unwrap() == expected);
    }
}

/// Where the host has data in a file, and how many blocks it has for it.
fn space_of(path: &Path) -> (Vec<(u64, u64)>, u64) {
    use rustix::fs::{OFlags, SeekFrom, seek};
    let file = rustix::fs::open(path.as_os_str().as_encoded_bytes(), OFlags::RDONLY, Mode::empty()).unwrap();
    let (mut data, mut at) = (Vec::new(), 0);
    while let Ok(from) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(from)).unwrap();
        data.push((from, at));
    }
    (data, fs::metadata(path).unwrap().blocks())
}

/// A group that gives space back and reserves it, in files that are there, in a small new one and in one that is
/// staged.
fn change_space(store: &Store) -> wholly::Group<'static> {
    let mut group = store.begin();
    let b = group.open_file("d/b").unwrap();
    group.fallocate(&b, Fallocate::Punch, 100, 8300).unwrap();
    group.fallocate(&b, Fallocate::Keep, 40_960, 50_000).unwrap();
    let wide = group.open_file("wide").unwrap();
    group.write_at(&wide, 30_000, &[3; 5000]).unwrap();
    group.fallocate(&wide, Fallocate::Zero, 4096, 40_000).unwrap();
    group.write_at(&wide, 12_288, &[4; 100]).unwrap();
    group.fallocate(&wide, Fallocate::Punch, 60_000, 80_000).unwrap();
    group.set_len(&wide, 90_000).unwrap();
    group.fallocate(&wide, Fallocate::ZeroExtend, 88_000, 20_000).unwrap();
    let small = group.create("small", 0o644).unwrap();
    group.fallocate(&small, Fallocate::Keep, 0, 300_000).unwrap();
    group.append(&small, b"few bytes, much space").unwrap();
    let nothing = group.create("nothing", 0o644).unwrap();
    group.fallocate(&nothing, Fallocate::Keep, 8192, 8192).unwrap();
    let large = group.create("large", 0o644).unwrap();
    group.fallocate(&large, Fallocate::Keep, 4096, 8192).unwrap();
    group.write_at(&large, 16_384, &[5; 1_000_000]).unwrap();
    group.fallocate(&large, Fallocate::Punch, 100_000, 200_000).unwrap();
    group.fallocate(&large, Fallocate::Keep, 900_000, 1_000_000).unwrap();
    group.set_len(&large, 950_000).unwrap();
    group.fallocate(&large, Fallocate::Zero, 500_000, 100_000).unwrap();
    group.fallocate(&large, Fallocate::Extend, 1_100_000, 100_000).unwrap();
    group
}

#[test]
fn holes_and_reserved_space_are_kept() {
    const FILES: [&str; 5] = ["d/b", "wide", "small", "nothing", "large"];
    let committed = stores_of_files("parked-space-plain");
    for ((dir, medium), (plain, _)) in stores_of_files("parked-space").iter().zip(&committed) {
        for dir in [dir, plain] {
            fs::write(dir.join("wide"), [2; 100_000]).unwrap();
        }
        let store = open_on(plain, *medium);
        change_space(&store).commit().unwrap();
        store.close().unwrap();

        let store = open_on(dir, *medium);
        let id = change_space(&store).park("", None).unwrap();
        drop(store);
        let store = open_on(dir, *medium);
        {
            let review = store.review(id).unwrap();
            for file in FILES {
                assert!(content(&review, file, Side::After) == fs::read(plain.join(file)).unwrap(), "{file}");
            }
            assert_eq!(content(&review, "d/b", Side::Before), [7; 12_000]);
        }
        store.apply(id).unwrap();
        store.close().unwrap();
        for file in FILES {
            assert!(fs::read(dir.join(file)).unwrap() == fs::read(plain.join(file)).unwrap(), "{file}");
            assert_eq!(space_of(&dir.join(file)), space_of(&plain.join(file)), "{medium:?}: {file}");
        }
        assert!(wholly::check(&**dir).unwrap().is_sound());
    }
}

#[test]
fn what_cannot_be_parked_is_refused() {
    for (dir, medium) in stores_of_files("parked-refused") {
        let store = open_on(&dir, medium);
        assert!(matches!(store.begin().park("", None), Err(Error::Invalid(_))));
        let mut group = store.begin();
        group.create("x", 0o600).unwrap();
        assert!(matches!(group.park(&"x".repeat(1025), None), Err(Error::Invalid(_))));
        assert!(matches!(store.metadata("x"), Err(Error::NotFound(_))));
        // What has come and gone is no change.
        let mut group = store.begin();
        group.create("x", 0o600).unwrap();
        group.unlink("x").unwrap();
        assert!(matches!(group.park("", None), Err(Error::Invalid(_))));
        assert!(matches!(store.apply(ParkedId(77)), Err(Error::NotFound(_))));
        assert!(!dir.join(".wholly/parked").exists());
        let review = store.review(ParkedId(77));
        assert!(matches!(review, Err(Error::NotFound(_))), "{review:?}");
        assert_eq!(What::Created as u8, 0);
    }
}

/// What runs behind a mount is a group whose calls name it.
#[test]
fn a_group_of_a_view_is_parked_too() {
    for (dir, medium) in stores_of_files("parked-view") {
        let store = open_on(&dir, medium);
        let view = StoreVfs::new(&store);
        let group = view.begin().unwrap();
        let ctx = Context {
            group: Some(group),
            ..Context::of(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        let made = view.mkdir(&ctx, Ino::ROOT, b"new", Mode::RWXU).unwrap();
        view.forget(made.ino, 1);
        assert_eq!(view.review(group, told).unwrap(), ["Created new"]);
        let id = view.park(group, "of a view", None).unwrap();
        assert!(view.park(group, "", None).is_err() && view.review(group, |_| ()).is_err(), "it has ended");
        assert!(matches!(store.metadata("new"), Err(Error::NotFound(_))));
        store.apply(id).unwrap();
        assert!(store.metadata("new").is_ok());
    }
}

/// Of a file that is too large to be summed up, size and times tell.
#[test]
fn a_large_file_is_known_by_its_times() {
    for (dir, medium) in stores_of_files("parked-times") {
        fs::File::create(dir.join("huge")).unwrap().set_len(17 << 20).unwrap();
        let store = open_on(&dir, medium);
        let huge = store.open_file("huge").unwrap();
        huge.write_at(5, b"not home yet").unwrap();
        let park = || {
            let mut group = store.begin();
            group.write_at(&huge, 16 << 20, b"parked").unwrap();
            group.park("", None).unwrap()
        };
        let id = park();
        store.mkdir("other", 0o700).unwrap();
        store.checkpoint().unwrap();
        store.apply(id).unwrap();
        let id = park();
        store.set_mode("huge", 0o600).unwrap();
        store.checkpoint().unwrap();
        assert!(matches!(store.apply(id), Err(Error::ChangedMeanwhile(..))), "it has another time of change");
        drop(huge);
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("huge")).unwrap()[16 << 20..][..6], *b"parked");
    }
}
