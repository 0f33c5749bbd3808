//! What stays bounded, however much is written.

use wholly::{Options, Store, site};
use wholly_host::HostOptions;
use wholly_sim::{EventKind, SimConfig, World};

use crate::common::Dir;

const SEGMENT: u64 = 64 << 10;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT,
        log_min_bytes: 1 << 20,
        log_max_bytes: 32 << 20,
        background: false,
        ..Options::default()
    }
}

/// No write covers the one before it, and all but two of them do not show.
#[test]
fn a_block_that_is_written_over_and_over_has_few_versions() {
    for (dir, medium) in Dir::on_media("hot-block") {
        let host = HostOptions { medium, ..HostOptions::default() };
        std::fs::write(dir.join("file"), [0; 4096]).unwrap();
        Store::init_with(&*dir, &options(), host.clone()).unwrap();
        let mut expected = [0; 4096];
        for life in 0..2u8 {
            let store = Store::open_with(&*dir, options(), host.clone()).unwrap();
            let file = store.open_file("file").unwrap();
            for round in 0..1200u32 {
                let (start, byte) = (round as usize % 2 * 50, round as u8 ^ life);
                expected[start..start + 100].fill(byte);
                if round % 3 == 0 {
                    file.write_at(start as u64, &[byte; 100]).unwrap();
                } else {
                    let mut group = store.begin();
                    group.write_at(&file, start as u64, &[byte; 100]).unwrap();
                    group.commit().unwrap();
                }
            }
            let mut content = [1; 4096];
            file.read_at(0, &mut content).unwrap();
            assert_eq!(content, expected);
            let versions = store.stat().versions;
            assert!(versions < 1000, "{versions} versions of two runs of bytes on {}", store.stat().medium);
            // The process dies with all of it in the log.
        }
        let store = Store::open_with(&*dir, options(), host).unwrap();
        let versions = store.stat().versions;
        assert!(versions < 1000, "{versions} versions after recovery");
        store.close().unwrap();
        assert_eq!(std::fs::read(dir.join("file")).unwrap(), expected);
    }
}

#[test]
fn a_log_that_has_grown_is_small_again_after_a_checkpoint() {
    for (dir, medium) in Dir::on_media("grown-log") {
        let host = HostOptions { medium, ..HostOptions::default() };
        std::fs::write(dir.join("file"), vec![0; 1 << 20]).unwrap();
        Store::init_with(&*dir, &options(), host.clone()).unwrap();
        let store = Store::open_with(&*dir, options(), host).unwrap();
        let file = store.open_file("file").unwrap();
        let least = store.stat().segments;
        let write = |bytes: u64| {
            for offset in (0..bytes).step_by(16 << 10) {
                file.write_at(offset % (1 << 20), &[offset as u8; 16 << 10]).unwrap();
            }
        };
        write(8 << 20);
        assert!(store.stat().segments > 4 * least, "{:?}", store.stat());
        store.checkpoint().unwrap();
        // Whoever appends has a segment at the end, and goes on in a low one.
        write(2 * SEGMENT);
        store.checkpoint().unwrap();
        let segments = store.stat().segments;
        assert!(segments <= least + 2, "{segments} segments, of {least} at first");
        store.close().unwrap();
    }
}

/// Each call costs as much as a block that is read, or a sync.
#[test]
fn a_group_that_outgrows_memory_makes_few_calls_on_a_disk() {
    const WRITES: u64 = 10_000;
    let world = World::new(SimConfig { log_len: 0, ..SimConfig::disk() });
    world.add_file("file", b"");
    let options = Options {
        segment_bytes: 4096,
        log_min_bytes: 16 << 10,
        log_max_bytes: 16 << 10,
        background: false,
        ..Options::default()
    };
    Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
    let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
    let file = store.open_file("file").unwrap();
    let mut group = store.begin();
    let mut expected = Vec::new();
    for n in 0..WRITES {
        group.write_at(&file, n * 100, &[n as u8; 100]).unwrap();
        expected.extend_from_slice(&[n as u8; 100]);
        // What is held is there for the group.
        if n % 1000 < 30 {
            let mut bytes = [0; 250];
            let from = expected.len().saturating_sub(250);
            group.read_at(&file, from as u64, &mut bytes[..expected.len() - from]).unwrap();
            assert_eq!(bytes[..expected.len() - from], expected[from..]);
        }
    }
    group.commit().unwrap();
    let segments = u64::from(store.stat().segments);
    assert!(segments > 400, "{segments} segments");

    let events = world.trace().events;
    let at = |site| events.iter().filter(move |event| event.site == Some(site));
    let writes = at(site::SPILL_WRITE).count() as u64;
    assert!(writes <= segments, "{writes} writes for {segments} segments");
    for event in at(site::SPILL_WRITE) {
        let EventKind::Store { offset, data, .. } = &event.kind else { panic!("{event:?}") };
        assert!(offset % 512 == 0 && data.len() % 512 == 0, "{} bytes at {offset} are parts of blocks", data.len());
    }
    let grown = at(site::LOG_GROW).filter(|event| matches!(event.kind, EventKind::LogLen { .. })).count();
    assert!(grown < 60, "the log was made longer {grown} times");
    let passes = at(site::CHECKPOINT_BEGIN).count();
    assert_eq!(passes, 0, "there is nothing that a checkpoint could take home");

    store.checkpoint().unwrap();
    let mut bytes = vec![0; expected.len()];
    file.read_at(0, &mut bytes).unwrap();
    assert!(bytes == expected);
}

/// Host files that are open and lie in a directory.
fn open_below(dir: &std::path::Path) -> usize {
    let dir = dir.canonicalize().unwrap();
    let all = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    all.filter(|path| path.starts_with(&dir)).count()
}

/// A group changes and removes more files than a process may have open.
#[test]
fn a_group_of_many_files_keeps_few_open() {
    const FILES: usize = 600;
    for (dir, medium) in Dir::on_media("many-files") {
        let host = HostOptions { medium, ..HostOptions::default() };
        let options = Options { open_files: 8, ..options() };
        for number in 0..FILES {
            std::fs::write(dir.join(number.to_string()), [1; 10]).unwrap();
        }
        Store::init_with(&*dir, &options, host.clone()).unwrap();
        let store = Store::open_with(&*dir, options.clone(), host.clone()).unwrap();
        let (before, mut most) = (open_below(&dir), 0);
        let mut group = store.begin();
        for number in 0..FILES {
            let file = group.open_file(number.to_string()).unwrap();
            group.append(&file, &[2; 10]).unwrap();
            most = most.max(open_below(&dir));
        }
        group.commit().unwrap();
        most = most.max(open_below(&dir));
        store.checkpoint().unwrap();
        most = most.max(open_below(&dir));
        let mut group = store.begin();
        for number in 0..FILES / 2 {
            group.unlink(number.to_string()).unwrap();
            most = most.max(open_below(&dir));
        }
        group.commit().unwrap();
        store.checkpoint().unwrap();
        // One is open for each that is kept, and one that is just being opened.
        assert!(most <= before + 8 + 1, "{most} are open, {before} before the group, on {}", store.stat().medium);
        store.close().unwrap();
        for number in 0..FILES {
            let content = std::fs::read(dir.join(number.to_string())).ok();
            let expected = (number >= FILES / 2).then(|| [[1; 10], [2; 10]].concat());
            assert_eq!(content, expected, "{number}");
        }
    }
}

/// What another program does to a file is found out also where the store has closed it.
#[test]
fn a_change_of_a_file_that_is_closed_is_a_conflict() {
    for (dir, medium) in Dir::on_media("closed-files") {
        let host = HostOptions { medium, ..HostOptions::default() };
        let options = Options { open_files: 0, ..options() };
        for name in ["a", "b", "c"] {
            std::fs::write(dir.join(name), [1; 10]).unwrap();
        }
        Store::init_with(&*dir, &options, host.clone()).unwrap();
        let store = Store::open_with(&*dir, options.clone(), host.clone()).unwrap();
        for name in ["a", "b", "c"] {
            let mut group = store.begin();
            let file = group.open_file(name).unwrap();
            group.append(&file, &[2; 10]).unwrap();
            drop(file);
            group.commit().unwrap();
        }
        std::fs::write(dir.join("a"), "somebody else's").unwrap();
        let error = store.checkpoint().unwrap_err();
        assert!(matches!(&error, wholly::Error::Conflict { path, .. } if path == "a"), "{error}");
        assert_eq!(std::fs::read(dir.join("a")).unwrap(), b"somebody else's");
    }
}

/// A checkpoint exchanges the names of two files that are closed, while later groups wait that change them: that was no
/// other program.
#[test]
fn a_file_that_is_closed_and_loses_a_name_is_no_conflict() {
    for (dir, medium) in Dir::on_media("displaced-files") {
        let host = HostOptions { medium, ..HostOptions::default() };
        let options = Options { open_files: 0, ..options() };
        std::fs::write(dir.join("a"), [1; 10]).unwrap();
        std::fs::write(dir.join("b"), [2; 10]).unwrap();
        Store::init_with(&*dir, &options, host.clone()).unwrap();
        let store = Store::open_with(&*dir, options.clone(), host.clone()).unwrap();
        let append = |name: &str| {
            let mut group = store.begin();
            let file = group.open_file(name).unwrap();
            group.append(&file, &[3; 10]).unwrap();
            drop(file);
            group.commit().unwrap();
        };
        for how in [wholly::Rename::Exchange, wholly::Rename::Replace] {
            append("a");
            append("b");
            store.checkpoint().unwrap();
            store.rename("a", "b", how).unwrap();
            store.announce_lot().unwrap();
            append("b");
            if how == wholly::Rename::Exchange {
                append("a");
            }
            // The clock of the host is coarse: the time of change is to become another one.
            std::thread::sleep(std::time::Duration::from_millis(20));
            store.take_lot_home().unwrap();
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
        assert_eq!(std::fs::read(dir.join("b")).unwrap()[..10], [2; 10]);
    }
}
