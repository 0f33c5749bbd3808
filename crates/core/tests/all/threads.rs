//! Threads on one store, with the checkpoint in the background and a log so small that it is always full.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wholly::{Error, Options, Store};
use wholly_host::{HostMedium, HostOptions};
use wholly_sim::{EventKind, ExploreLimits, Explorer, Random, SimConfig, World};
use wholly_vfs::{Rename, SetXattr};

use crate::common::Dir;

const THREADS: u64 = 4;

struct Rig {
    dir: Dir,
    host: HostOptions,
}

impl Rig {
    fn new(dir: Dir, medium: HostMedium) -> Self {
        let host = HostOptions { medium, ..HostOptions::default() };
        Store::init_with(&*dir, &Self::options(), host.clone()).unwrap();
        Rig { dir, host }
    }

    fn options() -> Options {
        Options {
            segment_bytes: 64 << 10,
            log_min_bytes: 256 << 10,
            log_max_bytes: 512 << 10,
            // So that groups without a lane outgrow memory.
            gather_bytes: 8 << 10,
            ..Options::default()
        }
    }

    fn open(&self) -> Store {
        Store::open_with(&*self.dir, Self::options(), self.host.clone()).unwrap()
    }
}

fn on_media(name: &str, rounds: (u64, u64), test: impl Fn(&Rig, u64)) {
    for ((dir, medium), rounds) in Dir::on_media(name).into_iter().zip([rounds.0, rounds.1]) {
        test(&Rig::new(dir, medium), rounds);
    }
}

/// Each thread has a file and a copy of it in memory, and now and then a group over its own and its neighbour's file,
/// which may be busy.
#[test]
fn groups_on_files_of_their_own() {
    const BYTES: u64 = 100_000;
    on_media("own", (3000, 150), |rig, rounds| {
        for n in 0..THREADS {
            std::fs::write(rig.dir.join(n.to_string()), vec![0; BYTES as usize]).unwrap();
        }
        let store = rig.open();
        let contents: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|n| {
                    let store = store.clone();
                    scope.spawn(move || {
                        let mut random = Random(n);
                        let file = store.open_file(n.to_string()).unwrap();
                        let mut content = vec![0u8; BYTES as usize];
                        for round in 0..rounds {
                            let mut group = store.begin();
                            let mut next = content.clone();
                            for _ in 0..1 + random.below(4) {
                                let offset = random.below(BYTES - 20_000) as usize;
                                let length = 1 + random.below(if round % 64 == 0 { 20_000 } else { 300 }) as usize;
                                let byte = round as u8 ^ n as u8;
                                group.write_at(&file, offset as u64, &vec![byte; length]).unwrap();
                                next[offset..offset + length].fill(byte);
                            }
                            if random.below(4) > 0 {
                                group.commit().unwrap();
                                content = next;
                            } else {
                                group.abort();
                            }
                            let offset = random.below(BYTES - 5000) as usize;
                            let mut read = vec![0; 5000];
                            file.read_at(offset as u64, &mut read).unwrap();
                            assert!(read == content[offset..offset + 5000], "thread {n}, round {round}");
                        }
                        content
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        drop(store);
        let store = rig.open();
        for (n, content) in contents.iter().enumerate() {
            let mut read = vec![0; BYTES as usize];
            store.open_file(n.to_string()).unwrap().read_at(0, &mut read).unwrap();
            assert!(&read == content, "thread {n}, after recovery");
        }
        store.close().unwrap();
        for (n, content) in contents.iter().enumerate() {
            assert!(&std::fs::read(rig.dir.join(n.to_string())).unwrap() == content, "thread {n}, at home");
        }
    });
}

/// Implicit calls of all threads append to one file and overwrite one block: no record is lost or torn, and none lies
/// over another.
#[test]
fn calls_on_one_file() {
    const RECORD: usize = 100;
    on_media("one", (2000, 100), |rig, rounds| {
        std::fs::write(rig.dir.join("block"), [0; 4096]).unwrap();
        let store = rig.open();
        let list = store.create_file("list", 0o600).unwrap();
        let block = store.open_file("block").unwrap();
        let places: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|n| {
                    let (list, block) = (list.clone(), block.clone());
                    scope.spawn(move || {
                        (0..rounds)
                            .map(|round| {
                                block.write_at(0, &[n as u8 + 1; 4096]).unwrap();
                                let mut read = [0; 4096];
                                block.read_at(0, &mut read).unwrap();
                                assert!(read.iter().all(|&byte| byte == read[0]), "a torn block");
                                list.append(&record(n, round)).unwrap()
                            })
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(list.len(), THREADS * rounds * RECORD as u64);
        drop((list, block, store));
        let store = rig.open();
        let list = store.open_file("list").unwrap();
        for (n, places) in places.iter().enumerate() {
            assert!(places.is_sorted());
            for (round, &place) in places.iter().enumerate() {
                let mut read = [0; RECORD];
                list.read_at(place, &mut read).unwrap();
                assert!(read == record(n as u64, round as u64), "thread {n}, round {round}");
            }
        }
    });

    fn record(n: u64, round: u64) -> [u8; RECORD] {
        let mut record = [n as u8; RECORD];
        record[..8].copy_from_slice(&round.to_le_bytes());
        record
    }
}

/// More running groups than there are lanes, all on one thread, begun and ended in different orders.
#[test]
fn many_running_groups() {
    on_media("many", (20, 5), |rig, rounds| {
        const GROUPS: usize = 40;
        for n in 0..GROUPS {
            std::fs::write(rig.dir.join(n.to_string()), [0; 5000]).unwrap();
        }
        let store = rig.open();
        let files: Vec<_> = (0..GROUPS).map(|n| store.open_file(n.to_string()).unwrap()).collect();
        let mut random = Random(7);
        let mut values = [0u8; GROUPS];
        for round in 0..rounds {
            let mut groups: Vec<_> = (0..GROUPS).map(|n| Some((n, store.begin()))).collect();
            for _ in 0..GROUPS * 4 {
                let n = random.below(GROUPS as u64) as usize;
                let (_, group) = groups[n].as_mut().unwrap();
                group.write_at(&files[n], 0, &[round as u8 + 1; 5000]).unwrap();
                let other = (n + 1) % GROUPS;
                if group.len(&files[other]) != 5000 {
                    panic!("sizes do not change");
                }
            }
            while let Some(left) = (!groups.is_empty()).then_some(groups.len()) {
                let (n, group) = groups.swap_remove(random.below(left as u64) as usize).unwrap();
                let mut byte = [0];
                group.read_at(&files[n], 4999, &mut byte).unwrap();
                if random.below(3) > 0 {
                    group.commit().unwrap();
                    values[n] = byte[0];
                }
                files[n].read_at(4999, &mut byte).unwrap();
                assert_eq!(byte[0], values[n]);
            }
        }
        drop((files, store));
        let store = rig.open();
        for (n, value) in values.iter().enumerate() {
            let mut bytes = [0; 5000];
            store.open_file(n.to_string()).unwrap().read_at(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| byte == value), "file {n}");
        }
    });
}

/// Two groups want the same two files: one gets `Busy`, and nothing hangs.
#[test]
fn groups_that_want_the_same_files() {
    on_media("same", (2000, 100), |rig, rounds| {
        for name in ["a", "b"] {
            std::fs::write(rig.dir.join(name), 0u64.to_le_bytes()).unwrap();
        }
        let store = rig.open();
        let done: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|n| {
                    let store = store.clone();
                    scope.spawn(move || {
                        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
                        let mut done = 0;
                        for _ in 0..rounds {
                            let mut group = store.begin();
                            let order = if n % 2 == 0 { [&a, &b] } else { [&b, &a] };
                            let added = order.into_iter().try_for_each(|file| group.add(file));
                            match added {
                                Ok(()) => {}
                                Err(Error::Busy(..)) => continue,
                                Err(error) => panic!("{error}"),
                            }
                            let mut value = [0; 8];
                            group.read_at(&a, 0, &mut value).unwrap();
                            let next = (u64::from_le_bytes(value) + 1).to_le_bytes();
                            group.write_at(&a, 0, &next).unwrap();
                            group.write_at(&b, 0, &next).unwrap();
                            group.commit().unwrap();
                            done += 1;
                        }
                        done
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        drop(store);
        let store = rig.open();
        for name in ["a", "b"] {
            let mut value = [0; 8];
            store.open_file(name).unwrap().read_at(0, &mut value).unwrap();
            assert_eq!(u64::from_le_bytes(value), done);
        }
    });
}

/// A checkpoint so large that threads share it, over files that writers go on changing and readers go on reading: what
/// a reader sees of a block never grows older, and home is as it was written last.
#[test]
fn a_large_amount_goes_home_by_several_threads() {
    const BLOCKS: u64 = 6000;
    const ROUNDS: u64 = 4;
    let options = || Options { log_min_bytes: 8 << 20, log_max_bytes: 16 << 20, ..Rig::options() };
    on_media("shared", (ROUNDS, 1), |rig, rounds| {
        for n in 0..2 {
            std::fs::write(rig.dir.join(n.to_string()), vec![0; (BLOCKS * 4096) as usize]).unwrap();
        }
        let store = Store::open_with(&*rig.dir, options(), rig.host.clone()).unwrap();
        let files: Vec<_> = (0..2).map(|n| store.open_file(n.to_string()).unwrap()).collect();
        // On a disk a group of many writes stands for many groups.
        let per_group = if store.stat().fences > 0 { 1 } else { 200 };
        std::thread::scope(|scope| {
            let writing: Vec<_> = files
                .iter()
                .map(|file| {
                    let store = &store;
                    scope.spawn(move || {
                        let mut writer = store.writer();
                        for round in 1..=rounds {
                            for blocks in (0..BLOCKS).collect::<Vec<_>>().chunks(per_group) {
                                let mut group = writer.begin();
                                for block in blocks {
                                    group.write_at(file, block * 4096 + round % 7, &round.to_le_bytes()).unwrap();
                                }
                                group.commit().unwrap();
                            }
                        }
                    })
                })
                .collect();
            let mut random = Random(1);
            let mut last = vec![0u64; 2 * BLOCKS as usize];
            while !writing.iter().all(|thread| thread.is_finished()) {
                let report = store.checkpoint().unwrap();
                assert!(report.blocks <= 2 * BLOCKS);
                for _ in 0..1000 {
                    let (n, block) = (random.below(2) as usize, random.below(BLOCKS));
                    let mut bytes = [0; 4096];
                    files[n].read_at(block * 4096, &mut bytes).unwrap();
                    // Rounds stand at places of their own, and a round's number is its lowest byte.
                    let seen =
                        (1..=rounds).rev().find(|round| bytes[(round % 7) as usize] == *round as u8).unwrap_or(0);
                    let place = &mut last[n * BLOCKS as usize + block as usize];
                    assert!(seen >= *place, "file {n}, block {block}: round {seen} after round {place}");
                    *place = seen;
                }
            }
        });
        drop(files);
        store.close().unwrap();
        for n in 0..2 {
            let bytes = std::fs::read(rig.dir.join(n.to_string())).unwrap();
            for block in bytes.chunks(4096) {
                assert_eq!(block[(rounds % 7) as usize], rounds as u8);
            }
        }
    });
}

/// A group that takes a file commits its epoch first. That another call begins the next one meanwhile is not the
/// group's concern: epochs end by themselves, and only other groups are in its way.
#[test]
fn epochs_are_in_no_groups_way() {
    on_media("epochs", (1, 1), |rig, _| {
        std::fs::write(rig.dir.join("shared"), [0; 4096]).unwrap();
        let options = Options { policy: wholly::Policy::PerSync, ..Rig::options() };
        let store = Store::open_with(&*rig.dir, options, rig.host.clone()).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = store.open_file("shared").unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // A group is in a call's way.
                    assert!(matches!(file.write_at(0, &[1; 8]), Ok(()) | Err(Error::Busy(..))));
                }
            });
            let file = store.open_file("shared").unwrap();
            let joined = (0..60_000).map(|_| store.begin().add(&file)).find(|joined| joined.is_err());
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(joined.is_none(), "{joined:?}");
        });
    });
}

/// Two groups want the same file and the same name: who waits gets them when the other one has ended, whichever way.
#[test]
fn a_group_waits_as_long_as_it_is_told() {
    on_media("waits", (20, 20), |rig, rounds| {
        std::fs::write(rig.dir.join("file"), [0; 8]).unwrap();
        let store = rig.open();
        let file = store.open_file("file").unwrap();
        for round in 0..rounds {
            let mut first = store.begin();
            first.write_at(&file, 0, &round.to_le_bytes()).unwrap();
            first.create(format!("name{round}"), 0o600).unwrap();
            let mut second = store.begin();
            second.set_busy_timeout(Duration::from_millis(1));
            assert!(matches!(second.write_at(&file, 0, b"2"), Err(Error::Busy(..))));
            assert!(matches!(second.create(format!("name{round}"), 0o600), Err(Error::Busy(..))));
            second.set_busy_timeout(Duration::MAX);
            let (tries, ends_well) = (AtomicBool::new(false), round % 2 == 0);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    tries.store(true, Ordering::Release);
                    if ends_well {
                        second.write_at(&file, 0, &[7; 8]).map(drop)
                    } else {
                        second.create(format!("name{round}"), 0o600).map(drop)
                    }
                });
                while !tries.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(2));
                assert!(!waiter.is_finished(), "the first group has not ended");
                if ends_well {
                    first.commit().unwrap();
                } else {
                    first.abort();
                }
                waiter.join().unwrap().unwrap();
            });
            second.commit().unwrap();
            let mut bytes = [0; 8];
            file.read_at(0, &mut bytes).unwrap();
            assert!(!ends_well || bytes == [7; 8]);
        }
        drop(file);
        store.close().unwrap();
    });
}

/// Its times are set by path, while others open it, write to it and close it, and passes run: none of that is a
/// bystander's doing.
#[test]
fn times_and_bytes_of_one_file() {
    on_media("times", (3000, 300), |rig, rounds| {
        std::fs::write(rig.dir.join("file"), [0; 8]).unwrap();
        let store = rig.open();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    store.set_times("file", None, Some(round as i64 * 1_000_000_000)).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    store.checkpoint().expect("there is no bystander");
                }
            });
            while !done.load(Ordering::Acquire) {
                match store.open_file("file").unwrap().write_at(0, &[1; 8]) {
                    Err(Error::Busy(..)) | Ok(()) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        store.close().expect("there is no bystander");
    });
}

/// What a call has found on its way stays known to it, however many passes end meanwhile.
#[test]
fn passes_go_by_while_a_call_looks() {
    on_media("look", (1500, 150), |rig, rounds| {
        let store = rig.open();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    store.checkpoint().expect("there is no bystander");
                }
            });
            let _ends = Ends(&done);
            for _ in 0..rounds {
                store.mkdir("dir", 0o755).unwrap();
                store.set_xattr("dir", "user.color", b"red", SetXattr::Create).unwrap();
                store.create_file("dir/file", 0o600).unwrap();
                store.link("dir/file", "dir/other").unwrap();
                assert_eq!(store.xattrs("dir").unwrap(), [b"user.color"]);
                assert_eq!(store.xattr("dir", "user.color").unwrap().unwrap(), b"red");
                assert_eq!(store.metadata("dir/other").unwrap().nlink, 2);
                assert!(store.read_dir("dir").unwrap().iter().all(|entry| entry.ino != 0 && entry.kind != 0));
                store.unlink("dir/file").unwrap();
                assert_eq!(store.metadata("dir/other").unwrap().nlink, 1);
                store.rename("dir/other", "dir/file", Rename::NoReplace).unwrap();
                store.unlink("dir/file").unwrap();
                store.rmdir("dir").unwrap();
            }
        });
        store.close().expect("there is no bystander");
    });
}

/// Who looks at names that are replaced again and again sees the one or the other, whole.
#[test]
fn what_is_replaced_is_always_there() {
    /// How a file looks that is replaced for the so-manieth time.
    fn content(n: u64) -> Vec<u8> {
        vec![n as u8; 1 + (n * 977 % 20_000) as usize]
    }
    on_media("replace", (1500, 150), |rig, rounds| {
        let store = rig.open();
        let put = |n: u64| {
            let mut group = store.begin();
            let file = group.create("new", 0o644)?;
            group.write_at(&file, 0, &content(n))?;
            group.set_xattr("new", "user.n", &n.to_le_bytes(), SetXattr::Create)?;
            group.rename("new", "file", Rename::Replace)?;
            group.symlink(n.to_string(), "new")?;
            group.rename("new", "link", Rename::Replace)?;
            group.commit()
        };
        put(0).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    store.checkpoint().expect("there is no bystander");
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let file = store.open_file("file").unwrap();
                    let mut bytes = vec![0; 20_001];
                    let length = file.read_at(0, &mut bytes).unwrap();
                    let stat = store.metadata("file").unwrap();
                    let n = store.xattr("file", "user.n").unwrap().expect("every one of them has it");
                    let n = u64::from_le_bytes(n.try_into().unwrap());
                    assert!(n >= last, "{n} after {last}");
                    let is_one = |length: usize, byte: Option<u8>| {
                        (last..=n).any(|n| content(n).len() == length && byte.is_none_or(|byte| byte == n as u8))
                    };
                    assert!(bytes[..length].iter().all(|byte| *byte == bytes[0]), "a mixture after {last}");
                    assert!(is_one(length, Some(bytes[0])), "{length} bytes between {last} and {n}");
                    assert!(is_one(stat.size as usize, None), "a size of {} between {last} and {n}", stat.size);
                    assert_eq!(store.xattrs("file").unwrap(), [b"user.n"]);
                    last = n;
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let n = String::from_utf8(store.read_link("link").unwrap()).unwrap().parse().unwrap();
                    assert!(n >= last, "{n} after {last}");
                    last = n;
                }
            });
            let _ends = Ends(&done);
            for n in 1..rounds {
                loop {
                    match put(n) {
                        // Somebody has just opened it.
                        Err(Error::Busy(..)) => {}
                        done => break done.unwrap(),
                    }
                }
            }
        });
        store.close().expect("there is no bystander");
    });
}

/// Tells the other threads that it is over, also where this one fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Threads take turns in one group, as those do that serve a mount, and another one commits it. Its fence drains its
/// own stores only, so it stores again what they have stored: once. It was once for each turn, all that the group had
/// by then.
#[test]
fn a_group_goes_from_thread_to_thread() {
    const TURNS: u64 = 24;
    const PIECE: u64 = 1024;
    let world = World::new(SimConfig { log_len: 0, ..SimConfig::pmem() });
    world.add_file("file", &vec![0; (TURNS * PIECE) as usize]);
    let options = Options { background: false, ..Rig::options() };
    Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
    let store = Store::open_on(world.log(), world.host(), options.clone(), None).unwrap();
    let file = store.open_file("file").unwrap();
    let bytes = Random(1).bytes(TURNS * PIECE);
    let mut group = store.begin();
    for (turn, piece) in bytes.chunks(PIECE as usize).enumerate() {
        let (group, file) = (&mut group, &file);
        let written = std::thread::scope(|scope| {
            scope.spawn(move || group.write_at(file, turn as u64 * PIECE, piece)).join().unwrap()
        });
        written.unwrap();
    }
    group.commit().unwrap();
    let trace = world.trace();
    let stored: u64 = trace
        .events
        .iter()
        .filter(|event| event.site.is_some_and(|site| site.0 == "lane.payload"))
        .map(|event| if let EventKind::Store { data, .. } = &event.kind { data.len() as u64 } else { 0 })
        .sum();
    assert!((TURNS * PIECE..=2 * TURNS * PIECE + 4096).contains(&stored), "{stored} bytes were stored");
    let mut explorer = Explorer::new(&trace);
    explorer.seek(trace.events.len() as u64);
    let limits = ExploreLimits { exhaustive_bits: 4, samples: 50, ..ExploreLimits::default() };
    explorer.for_each_image(&limits, |choice, image| {
        let world = World::from_image(image, SimConfig { log_len: 0, ..SimConfig::pmem() });
        let store = Store::open_on(world.log(), world.host(), options.clone(), None).unwrap();
        let mut now = vec![0; bytes.len()];
        store.open_file("file").unwrap().read_at(0, &mut now).unwrap();
        assert!(now == bytes, "{choice}");
        std::ops::ControlFlow::Continue(())
    });
}
