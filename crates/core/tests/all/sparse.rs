//! What a group does to a sparse file costs by what it changes, not by the file's size: holes are not read. An undo
//! gives holes and reserved space back as they were.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use wholly::{Fallocate, Group, KeepUndo, Options, ParkedId, Store, UndoFate};
use wholly_host::HostOptions;

use crate::common::{Dir, small};

const SIZE: u64 = 1 << 40;
const AT: [u64; 3] = [0, SIZE / 2, SIZE - 4096];

/// Bytes that this thread has read so far.
fn read_so_far() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// Commits a group that keeps its undo, and takes it back. Gives how many bytes were read.
fn there_and_back(dir: &Path, change: impl FnOnce(&mut Group<'_>, &wholly::File)) -> u64 {
    let options = Options { at_once: true, ..small() };
    let store = Store::open_or_create_with(dir, options, HostOptions::default()).unwrap();
    let keep = KeepUndo { note: "sparse".into(), expires: Duration::from_secs(1000), most_bytes: 1 << 30 };
    let before = read_so_far();
    let mut group = store.begin();
    let file = group.open_file("f").unwrap();
    change(&mut group, &file);
    drop(file);
    group.keep_undo(&keep).unwrap();
    group.commit().unwrap();
    let Some(UndoFate::Kept(ParkedId(id))) = store.undo_fate() else { panic!("{:?}", store.undo_fate()) };
    assert!(store.undo(ParkedId(id), &keep, |_| true).unwrap());
    let read = read_so_far() - before;
    store.close().unwrap();
    read
}

#[test]
fn holes_are_not_read_and_come_back() {
    let dir = Dir::new(Path::new("/var/tmp"), "core-sparse");
    let file = File::create_new(dir.join("f")).unwrap();
    if let Err(error) = file.set_len(SIZE) {
        println!("no files of a TiB here: {error}");
        return;
    }
    AT.iter().for_each(|at| file.write_all_at(b"data", *at).unwrap());
    file.sync_all().unwrap();
    let blocks = || fs::metadata(dir.join("f")).unwrap().blocks();
    let before = blocks();
    type Act = fn(&mut Group<'_>, &wholly::File);
    let changes: [(&str, Act); 5] = [
        ("cut", |group, file| group.set_len(file, 1 << 20).unwrap()),
        ("written", |group, file| group.write_at(file, SIZE / 4, &[7; 8192]).unwrap()),
        ("zeroed", |group, file| group.fallocate(file, Fallocate::Punch, 0, SIZE).unwrap()),
        // So few that what is left is known by its bytes.
        ("zeroed in part", |group, file| group.fallocate(file, Fallocate::Punch, 0, 1 << 29).unwrap()),
        ("grown", |group, file| group.set_len(file, SIZE + 1).unwrap()),
    ];
    for (what, change) in changes {
        let read = there_and_back(&dir, change);
        assert!(read < 8 << 20, "{what}: {read} bytes were read");
        assert_eq!((fs::metadata(dir.join("f")).unwrap().len(), blocks()), (SIZE, before), "{what}");
        for at in AT {
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, at).unwrap();
            assert_eq!(&bytes, b"data", "{what}");
        }
    }
}

#[test]
fn reserved_space_comes_back() {
    let dir = Dir::new(Path::new("/var/tmp"), "core-reserved");
    let file = File::create_new(dir.join("f")).unwrap();
    file.write_all_at(&[7; 8192], 0).unwrap();
    let mut reserve = std::process::Command::new("fallocate");
    if !reserve.args(["-n", "-l", "8M"]).arg(dir.join("f")).status().unwrap().success() {
        println!("nothing is reserved here");
        return;
    }
    file.sync_all().unwrap();
    let blocks = || fs::metadata(dir.join("f")).unwrap().blocks();
    let before = blocks();
    let told = wholly_host::reserved_extents(std::os::fd::AsFd::as_fd(&file)).is_ok_and(|all| !all.is_empty());
    there_and_back(&dir, |group, file| group.set_len(file, 0).unwrap());
    assert_eq!(fs::read(dir.join("f")).unwrap(), [7; 8192]);
    assert!(!told || blocks() >= before, "{} blocks, and {before} before", blocks());
}
