//! Threads that write back in the background what the engine `hybrid_log` keeps elsewhere: when they work, and that no
//! call waits for more than a share of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use wholly_media::Region;
use wholly_posix::Tree;
use wholly_sim::CountingRegion;
use wholly_vfs::{Ino, OFlags, Result};
use wholly_volume::{Volume, VolumeOptions, VolumeVfs};

use super::place::{Place, Random};

/// Milliseconds of a clock, and how often it was looked at.
struct Held(AtomicU64, AtomicU64);

impl Held {
    const fn new() -> Held {
        Held(AtomicU64::new(0), AtomicU64::new(0))
    }

    fn now(&self) -> Duration {
        self.1.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn is_at(&self, milliseconds: u64) -> bool {
        self.0.load(Ordering::Relaxed) == milliseconds
    }

    /// Waits until somebody has looked at it so often.
    fn is_looked_at(&self, times: u64) {
        let enough = self.1.load(Ordering::Relaxed) + times;
        until(|| self.1.load(Ordering::Relaxed) >= enough);
    }
}

/// Waits for what must come. How long that takes, is not what is tried here.
fn until(is: impl Fn() -> bool) {
    const FOR_EVER: u32 = 100_000;
    for _ in 0..FOR_EVER {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}

fn open(region: &Arc<dyn Region>, checkpointers: usize, idle_clock: fn() -> Duration) -> Volume {
    let checkpointers = Some(checkpointers);
    let options = VolumeOptions { checkpointers, idle_clock, cache_bytes: 1 << 20, ..VolumeOptions::default() };
    Volume::open_region(region.clone(), &options).expect("open it")
}

/// A place whose volume has a file that takes so many percent of it.
fn filled(bytes: u64, percents: u64) -> Result<(Place, usize)> {
    let place = Place::pending(bytes);
    let volume = place.open();
    let blocks = volume.stat().free_blocks * percents / 100;
    Tree::new(&VolumeVfs::new(&volume), Ino::ROOT).file("file", 0o644, &vec![1; blocks as usize * 4096])?;
    volume.close().expect("close it");
    Ok((place, blocks as usize * 4096))
}

/// While the clock stands still nothing is written back, since space is not short. Two seconds later nothing waits any
/// more, and so it is each time.
#[test]
fn nothing_waits_once_a_volume_was_idle() -> Result<()> {
    static CLOCK: Held = Held::new();
    let (place, len) = filled(4 << 20, 30)?;
    let volume = open(&place.region, 2, || CLOCK.now());
    let vfs = VolumeVfs::new(&volume);
    let file = Tree::new(&vfs, Ino::ROOT).open("file", OFlags::RDWR)?;
    let mut random = Random(11);
    for round in 0..3u8 {
        for _ in 0..100 {
            file.write_all(random.below(len - 1500) as u64, &[round; 1500])?;
        }
        let pending = volume.stat().pending_blocks;
        assert!(pending > 50, "{pending} blocks wait");
        CLOCK.is_looked_at(6);
        assert_eq!(volume.stat().pending_blocks, pending, "the volume was not idle");
        CLOCK.0.fetch_add(2000, Ordering::Relaxed);
        until(|| volume.stat().pending_blocks == 0);
    }
    drop(file);
    drop(vfs);
    volume.close().expect("close it");
    place.expect_sound();
    Ok(())
}

/// The volume is never idle, and has less space than what is written takes until it is home: the threads keep some
/// free, and content is what was written.
#[test]
fn space_is_made_while_calls_go_on() -> Result<()> {
    static CLOCK: Held = Held::new();
    let (place, len) = filled(4 << 20, 50)?;
    let volume = open(&place.region, 2, || CLOCK.now());
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.open("file", OFlags::RDWR)?;
    let (mut random, mut content) = (Random(5), vec![1; len]);
    for round in 0..3000 {
        let at = random.below(len - 5000);
        file.write_all(at as u64, &[round as u8; 5000])?;
        content[at..at + 5000].fill(round as u8);
    }
    // What waits counts as free, and space is not short without it.
    until(|| {
        let stat = volume.stat();
        stat.free_blocks - stat.pending_blocks >= stat.blocks * 10 / 100
    });
    assert!(tree.content("file")? == content);
    drop((file, tree));
    drop(vfs);
    volume.close().expect("close it");
    place.expect_sound();
    Ok(())
}

/// Without such threads calls do it: each stores for others twice its own lines, and a block more, however many lists
/// wait.
#[test]
fn a_call_writes_back_no_more_than_its_share() -> Result<()> {
    for (percents, most) in [(50, 64), (50, 1500), (50, 16 << 10), (90, 64), (90, 4096)] {
        let (place, len) = filled(4 << 20, percents)?;
        let counting = CountingRegion::new(place.region.clone());
        let region: Arc<dyn Region> = counting.clone();
        let volume = open(&region, 0, || Duration::ZERO);
        let vfs = VolumeVfs::new(&volume);
        let file = Tree::new(&vfs, Ino::ROOT).open("file", OFlags::RDWR)?;
        let (mut random, mut copied) = (Random(3), 0);
        for round in 0..3000 {
            let size = 1 + random.below(most);
            counting.take();
            file.write_all(random.below(len - size) as u64, &vec![round as u8; size])?;
            let (mut own, mut others) = (0, 0);
            for (site, count) in counting.take() {
                let is_for_others = ["hybrid.home", "hybrid.swap", "hybrid.wipe"].contains(&site.0);
                *if is_for_others { &mut others } else { &mut own } += count.lines;
            }
            copied += others;
            assert!(others <= 2 * own + 64, "{percents} %, {size} bytes: {others} lines for others, {own} of its own");
        }
        assert!(copied > 1000, "{percents} %, {most} bytes: {copied} lines were written back");
        drop(file);
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
    }
    Ok(())
}

/// Nobody has the medium any more once a volume was closed or given up, whatever the threads were at: here it is slow
/// for them.
#[test]
fn threads_end_with_the_volume() -> Result<()> {
    let (place, len) = filled(4 << 20, 30)?;
    for round in 0..6u8 {
        let me = std::thread::current().id();
        let region: Arc<dyn Region> = CountingRegion::watched(place.region.clone(), move |site, _, _| {
            if site.0 == "hybrid.home" && std::thread::current().id() != me {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        // Each look at the clock is a second later: it is always idle.
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        let volume = open(&region, 2, || Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed)));
        {
            let vfs = VolumeVfs::new(&volume);
            let file = Tree::new(&vfs, Ino::ROOT).open("file", OFlags::RDWR)?;
            (0..60).try_for_each(|i| file.write_all(i * 7 * 4096 % len as u64, &[round; 2000]))?;
            until(|| volume.stat().pending_blocks < 60);
        }
        match round % 3 {
            0 => volume.abandon(),
            1 => volume.close().expect("close it"),
            _ => drop(volume),
        }
        assert_eq!(Arc::strong_count(&region), 1, "round {round}: a thread goes on");
        place.expect_sound();
    }
    Ok(())
}

/// Two threads write different blocks back at the same time: neither copies a line before both are about to
/// (FCFS, III-E).
#[test]
fn blocks_are_written_back_side_by_side() -> Result<()> {
    static CLOCK: Held = Held::new();
    static THERE: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
    let (place, _) = filled(4 << 20, 30)?;
    let region: Arc<dyn Region> = CountingRegion::watched(place.region.clone(), |site, _, _| {
        let is_checkpointer = !CLOCK.is_at(0) && site.0 == "hybrid.home";
        if is_checkpointer {
            let me = std::thread::current().id();
            let mut there = THERE.lock().unwrap();
            if !there.contains(&me) {
                there.push(me);
            }
            drop(there);
            until(|| THERE.lock().unwrap().len() > 1);
        }
    });
    let volume = open(&region, 2, || CLOCK.now());
    let vfs = VolumeVfs::new(&volume);
    let file = Tree::new(&vfs, Ino::ROOT).open("file", OFlags::RDWR)?;
    // Each costs so many lines that a thread takes a few at a time.
    (0..100u64).try_for_each(|i| file.write_all(i * 4096, &[2; 2048]))?;
    until(|| {
        CLOCK.0.fetch_add(2000, Ordering::Relaxed);
        volume.stat().pending_blocks == 0
    });
    drop(file);
    drop(vfs);
    volume.close().expect("close it");
    place.expect_sound();
    Ok(())
}

/// A block with more than five versions is written back by the next call that writes, also where space is not short.
#[test]
fn a_block_has_few_versions() -> Result<()> {
    let (place, _) = filled(4 << 20, 30)?;
    let volume = open(&place.region, 0, || Duration::ZERO);
    let vfs = VolumeVfs::new(&volume);
    let file = Tree::new(&vfs, Ino::ROOT).open("file", OFlags::RDWR)?;
    let mut most = 0;
    for i in 0..100 {
        file.write_all(i % 20 * 64, &[2; 64])?;
        most = most.max(volume.stat().pending_blocks);
    }
    assert_eq!(most, 6, "that many versions wait at most");
    Ok(())
}

/// Old bytes of metadata go to the log; content goes to whichever blocks are free, and what says where to the lines of
/// these blocks in the table. Free blocks are known in memory alone: 1,000 calls that take some store nothing but what
/// they change, and what an unmount saves is stored by that.
#[test]
fn metadata_and_content_are_logged_apart() -> Result<()> {
    type Stored = BTreeMap<&'static str, BTreeSet<u64>>;
    static STORED: Mutex<Stored> = Mutex::new(BTreeMap::new());
    let (place, len) = filled(8 << 20, 30)?;
    let superblocks = Volume::dump_region(&*place.region, None).expect("dump it").superblocks;
    let superblock = superblocks[0].decoded.clone().expect("a superblock");
    let (log, heads) = (superblock.log.expect("a log"), superblock.heads.expect("a table of heads").0);
    let log = log.start.0..log.start.0 + u64::from(log.lanes) * 2 * u64::from(log.half_blocks);
    let heads = heads.start.0..heads.start.0 + heads.count;
    let region: Arc<dyn Region> = CountingRegion::watched(place.region.clone(), |site, offset, bytes| {
        if bytes > 0 {
            STORED.lock().unwrap().entry(site.0).or_default().insert(offset / 4096);
        }
    });
    let volume = open(&region, 0, || Duration::ZERO);
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.open("file", OFlags::RDWR)?;
    STORED.lock().unwrap().clear();
    let mut random = Random(5);
    for i in 0..1000 {
        match i % 4 {
            0 => file.write_all(random.below(len - 4096) as u64, &[1; 4096])?,
            1 => drop(tree.file(format!("{}", i / 4), 0o644, &[2; 6000])?),
            2 => file.append(&[3; 500]).map(drop)?,
            _ if i > 300 => tree.unlink(format!("{}", i / 4 - 70))?,
            _ => {}
        }
    }
    let stored = std::mem::take(&mut *STORED.lock().unwrap());
    assert!(stored["hybrid.undo"].iter().all(|block| log.contains(block)), "old bytes are in the log");
    assert!(stored["hybrid.head"].iter().all(|block| heads.contains(block)), "heads are in their table");
    let pending = &stored["hybrid.pending"];
    assert!(pending.iter().all(|block| !log.contains(block) && !heads.contains(block)), "content is elsewhere");
    let (first, last) = (pending.first().expect("some"), pending.last().expect("some"));
    assert!(pending.len() > 200 && last - first > 600, "{} blocks from {first} to {last}", pending.len());
    assert!(!stored.contains_key("volume.save"), "{:?}", stored.keys());
    let known = ["hybrid.", "volume.inode", "volume.map", "volume.entry", "volume.leaf", "volume.superblock"];
    assert!(stored.keys().all(|site| known.iter().any(|known| site.starts_with(known))), "{:?}", stored.keys());
    drop((file, tree));
    drop(vfs);
    volume.close().expect("close it");
    assert!(STORED.lock().unwrap().contains_key("volume.save"), "the unmount saves them");
    place.expect_sound();
    Ok(())
}
