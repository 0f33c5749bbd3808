//! Threads that write back in the background what the engine `hybrid_log` keeps elsewhere: when they work, and that no
//! call waits for more than a share of that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

    /// Waits until somebody has looked at it so often.
    fn is_looked_at(&self, times: u64) {
        let enough = self.1.load(Ordering::Relaxed) + times;
        until(|| self.1.load(Ordering::Relaxed) >= enough);
    }
}

/// Waits, however long it takes.
fn until(is: impl Fn() -> bool) {
    while !is() {
        std::thread::sleep(Duration::from_millis(1));
    }
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
        (stat.free_blocks - stat.pending_blocks) * 100 >= stat.blocks * 10
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

/// Nothing is stored any more once a volume was closed or given up, whatever the threads were at.
#[test]
fn threads_end_with_the_volume() -> Result<()> {
    let (place, len) = filled(4 << 20, 30)?;
    let counting = CountingRegion::new(place.region.clone());
    let region: Arc<dyn Region> = counting.clone();
    for round in 0..40u8 {
        // Each look at the clock is a second later: it is always idle.
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        let volume = open(&region, 2, || Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed)));
        {
            let vfs = VolumeVfs::new(&volume);
            let file = Tree::new(&vfs, Ino::ROOT).open("file", OFlags::RDWR)?;
            (0..60).try_for_each(|i| file.write_all(i * 7 * 4096 % len as u64, &[round; 3000]))?;
        }
        match round % 3 {
            0 => volume.abandon(),
            1 => volume.close().expect("close it"),
            _ => drop(volume),
        }
        counting.take();
        std::thread::yield_now();
        place.expect_sound();
        assert!(counting.take().is_empty(), "round {round}: something was stored afterwards");
    }
    Ok(())
}
