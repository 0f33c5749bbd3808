//! What the kernel adds to the calls of the suite: mappings, caches, locks, long listings, and files whose daemon is
//! gone.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::Duration;

use crate::common::{Mounted, or_skip};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use wholly::Options;
use wholly_fuse::MountOptions;
use wholly_vfs::Policy;

fn per_sync() -> Option<Mounted> {
    let store = Options { policy: Policy::PerSync, ..Options::default() };
    or_skip(Mounted::new(store, &MountOptions { syncs_on_close: true, ..MountOptions::default() }))
}

/// A list has all names, also of what cannot be looked at.
#[test]
fn what_is_covered_is_listed() {
    // The kernel asks each time.
    let options = MountOptions { valid: Duration::ZERO, ..MountOptions::default() };
    let Some(mounted) = or_skip(Mounted::new(Options::default(), &options)) else { return };
    let point = mounted.point().to_path_buf();
    for name in ["a", "covered"] {
        std::fs::create_dir(point.join(name)).unwrap();
    }
    std::fs::write(point.join("z"), "").unwrap();
    mounted.store().checkpoint().unwrap();
    let covered = mounted.home().join("covered");
    rustix::mount::mount("none", &covered, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    let list = || {
        let listed = std::fs::read_dir(&point).unwrap().map(|entry| entry.unwrap());
        let mut listed: Vec<_> = listed.map(|entry| (entry.file_name(), entry.file_type().unwrap().is_dir())).collect();
        listed.sort();
        listed
    };
    let wanted = [("a", true), ("covered", true), ("z", false)].map(|(name, is)| (name.into(), is));
    let lists = [list(), list()];
    let looked = std::fs::metadata(point.join("covered")).map_err(|error| error.raw_os_error());
    rustix::mount::unmount(&covered, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(lists, [wanted.to_vec(), wanted.to_vec()]);
    assert_eq!(looked.err(), Some(Some(Errno::XDEV.raw_os_error())));
    std::fs::write(point.join("covered/file"), "it is there again").unwrap();
    mounted.end();
}

#[test]
fn what_is_written_is_at_home_in_the_end() {
    let Some(mounted) = per_sync() else { return };
    let point = mounted.point().to_path_buf();
    std::fs::create_dir_all(point.join("a/b")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(point.join("a/b/large"), &bytes).unwrap();
    std::fs::write(point.join("a/small"), b"small").unwrap();
    std::fs::rename(point.join("a/small"), point.join("a/b/small")).unwrap();
    assert_eq!(std::fs::read(point.join("a/b/large")).unwrap(), bytes);
    let home = mounted.end();
    assert_eq!(std::fs::read(home.path().join("a/b/large")).unwrap(), bytes);
    assert_eq!(std::fs::read(home.path().join("a/b/small")).unwrap(), b"small");
    assert!(!home.path().join("a/small").exists());
}

#[test]
fn direct_and_buffered_calls_see_each_other() {
    let Some(mounted) = per_sync() else { return };
    let path = mounted.point().join("file");
    let buffered = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let direct = OpenOptions::new().read(true).write(true).custom_flags(0o40000).open(&path).unwrap();
    let (mut ones, mut seen) = (vec![1u8; 8192], vec![0u8; 8192]);
    buffered.write_all_at(&ones, 0).unwrap();
    assert_eq!(direct.read_at(&mut seen, 0).unwrap(), 8192);
    assert_eq!(seen, ones);
    ones[..4096].fill(2);
    direct.write_all_at(&ones[..4096], 0).unwrap();
    assert_eq!(buffered.read_at(&mut seen, 0).unwrap(), 8192);
    assert_eq!(seen, ones);
    drop((buffered, direct));
    mounted.end();
}

#[test]
fn appends_of_several_openers_do_not_overwrite_each_other() {
    let Some(mounted) = per_sync() else { return };
    let path = mounted.point().join("log");
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for _ in 0..50 {
                    file.write_all(&[b'a' + n; 10]).unwrap();
                }
            });
        }
    });
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(whole.len(), 2000);
    assert!(whole.chunks(10).all(|line| line.iter().all(|byte| *byte == line[0])), "no line is torn");
    mounted.end();
}

/// Where each call is to survive by itself, what it writes comes in one request, wherever its pages begin.
#[test]
fn a_write_is_one_group() {
    let options = MountOptions { whole_writes: true, ..MountOptions::default() };
    let Some(mounted) = or_skip(Mounted::new(Options::default(), &options)) else { return };
    let mut file = OpenOptions::new().append(true).create(true).open(mounted.point().join("file")).unwrap();
    file.write_all(&[1; 6000]).unwrap();
    for length in [6000, 100_000, 500_000] {
        let before = mounted.store().log().highest_sequence();
        assert_eq!(file.write(&vec![2; length]).unwrap(), length);
        assert_eq!(mounted.store().log().highest_sequence(), before + 1, "{length} bytes");
    }
    drop(file);
    mounted.end();
}

/// Somebody else takes the mount away, and mounts something there: that stays.
#[test]
fn what_is_mounted_there_later_stays() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let Some(mounted) = per_sync() else { return };
    let point = mounted.point().to_path_buf();
    mount("wholly-fuse", &point, "tmpfs", MountFlags::empty(), Some(c"size=64k")).unwrap();
    File::create(point.join("other")).unwrap();
    assert!(mounted.unmounter().unmount().is_err(), "it is covered");
    assert!(point.join("other").exists());
    unmount(&point, UnmountFlags::empty()).unwrap();
    unmount(&point, UnmountFlags::empty()).unwrap();
    mount("wholly-fuse", &point, "tmpfs", MountFlags::empty(), Some(c"size=64k")).unwrap();
    mounted.end();
    unmount(&point, UnmountFlags::empty()).expect("it is there still");
    std::fs::remove_dir(&point).unwrap();
}

#[test]
fn locks_are_the_kernels() {
    let Some(mounted) = per_sync() else { return };
    let path = mounted.point().join("lock");
    let (one, other) = (File::create(&path).unwrap(), File::open(&path).unwrap());
    flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    drop((one, other));
    mounted.end();
}

#[test]
fn long_listings_are_whole() {
    let Some(mounted) = per_sync() else { return };
    let dir = mounted.point().join("many");
    std::fs::create_dir(&dir).unwrap();
    let names: Vec<String> = (0..3000).map(|n| format!("a-name-that-takes-some-room-{n:05}")).collect();
    for name in &names {
        File::create(dir.join(name)).unwrap();
    }
    let mut listed: Vec<String> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    listed.sort();
    assert_eq!(listed, names);
    // What the listing has brought along is what each of them is.
    for entry in std::fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().ino(), std::fs::symlink_metadata(entry.path()).unwrap().ino());
    }
    mounted.end();
}

#[test]
fn removed_files_live_as_long_as_they_are_open() {
    let Some(mounted) = per_sync() else { return };
    let path = mounted.point().join("gone");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"before").unwrap();
    std::fs::remove_file(&path).unwrap();
    mounted.store().checkpoint().unwrap();
    file.write_all(b" and after").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("before and after", 0));
    drop(file);
    mounted.end();
}

#[test]
fn a_bystander_is_seen_when_the_kernel_asks_again() {
    let store = Options { policy: Policy::PerSync, ..Options::default() };
    let options = MountOptions { valid: std::time::Duration::ZERO, ..MountOptions::default() };
    let Some(mounted) = or_skip(Mounted::new(store, &options)) else { return };
    std::fs::write(mounted.home().join("file"), b"one").unwrap();
    assert_eq!(std::fs::read(mounted.point().join("file")).unwrap(), b"one");
    std::fs::write(mounted.home().join("file"), b"three").unwrap();
    assert_eq!(std::fs::read(mounted.point().join("file")).unwrap(), b"three");
    // The time of change alone tells.
    let file = OpenOptions::new().write(true).open(mounted.home().join("file")).unwrap();
    file.write_all_at(b"seven", 0).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(std::fs::read(mounted.point().join("file")).unwrap(), b"seven");
    mounted.end();
}

/// What programs of the mount have written is kept, and so is what a bystander has written to the same file meanwhile.
#[test]
fn a_bystanders_change_is_not_overwritten() {
    let Some(mounted) = per_sync() else { return };
    let (home, point) = (mounted.home().join("file"), mounted.point().join("file"));
    std::fs::write(&home, b"original").unwrap();
    std::fs::write(&point, b"ours").unwrap();
    std::fs::write(&home, b"theirs, and longer").unwrap();
    let Err(wholly::Error::Conflict { path, .. }) = mounted.store().checkpoint() else { panic!("overwritten") };
    assert_eq!(path, "file");
    assert_eq!(std::fs::read(&home).unwrap(), b"theirs, and longer");
    assert_eq!(std::fs::read(&point).unwrap(), b"ours");
}

/// The kernel keeps that there is no such name: it is as long blind to what a bystander makes. What programs of the
/// mount make is there at once.
#[test]
fn a_name_that_was_not_there_is_seen_when_it_is_made() {
    let store = Options { policy: Policy::PerOp, ..Options::default() };
    let options = MountOptions { valid: std::time::Duration::from_secs(3600), ..MountOptions::default() };
    let Some(mounted) = or_skip(Mounted::new(store, &options)) else { return };
    let at = |name: &str| mounted.point().join(name);
    let is_there = |name: &str| at(name).symlink_metadata().is_ok();
    let names = ["made", "renamed", "linked", "symlink", "directory", "bystander"];
    assert!(!names.iter().any(|name| is_there(name)));
    std::fs::write(mounted.home().join("bystander"), b"").unwrap();
    std::fs::write(at("made"), b"one").unwrap();
    std::fs::hard_link(at("made"), at("linked")).unwrap();
    std::os::unix::fs::symlink("made", at("symlink")).unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    std::fs::rename(at("made"), at("renamed")).unwrap();
    assert!(!is_there("made") && !is_there("bystander"));
    assert!(["renamed", "linked", "symlink", "directory"].into_iter().all(is_there));
    std::fs::remove_file(at("linked")).unwrap();
    assert!(!is_there("linked"));
    std::fs::write(at("linked"), b"two").unwrap();
    assert_eq!(std::fs::read(at("linked")).unwrap(), b"two");
    mounted.end();
}
