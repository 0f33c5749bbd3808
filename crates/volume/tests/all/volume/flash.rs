//! A volume on a simulated flash disk whose medium fails, or loses power.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::io::Errno;
use wholly_blocks::batch::Batch;
use wholly_blocks::xftl::{Config, Device, Flash, Geometry, OverRegion, Profile, SLOT, Times, site};
use wholly_blocks::{TxBlocks, TxDevice};
use wholly_media::Region;
use wholly_sim::{Choice, ExploreLimits, Explorer, Image, Medium, Mutation, MutationKind, Place, SimConfig, World};
use wholly_vfs::Timestamp;
use wholly_volume::{EngineKind, Volume, VolumeGroup, VolumeOptions};

use super::place::is_long;

/// The flash disk of a world, opened.
fn disk(world: &Arc<World>) -> wholly::Result<Arc<dyn Region>> {
    let device: Arc<dyn TxDevice> = Arc::new(Device::open(OverRegion::open(world.log())?)?);
    Ok(Batch::new(device, 1).plain())
}

/// A flush that the medium refuses poisons the flash disk until it is opened again, and with it the volume. What had
/// returned before is there then.
#[test]
fn a_flush_that_is_refused_poisons_until_it_is_opened_again() {
    let (geometry, config) = Profile::OpenSsd.plan(4 << 20).expect("sizes");
    let made = World::new(SimConfig { log_len: OverRegion::bytes(&geometry), ..SimConfig::disk() });
    let chip: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, [9; 16]).expect("a chip");
    Device::format(&chip, &config, [9; 16]).expect("a flash disk");
    let options = VolumeOptions { engine: Some(EngineKind::PageCacheWal), ..VolumeOptions::default() };
    Volume::format_region(&*disk(&made).expect("open it"), &options).expect("make a volume");
    let image = made.latest();
    let mut failed_in_calls = 0;
    for nth in 0..12 {
        let refusal = Mutation { site: site::FLUSH_WAIT, kind: MutationKind::Fail(Errno::IO), nth: Some(nth) };
        let world = World::from_image(&image, SimConfig { mutations: vec![refusal], ..SimConfig::disk() });
        let mut done = 0;
        if let Ok(volume) = Volume::open_region(disk(&world).expect("open it"), &options) {
            let make = |n: u32| volume.create_file(format!("{n}"), 0o644).and_then(|file| file.write_at(0, b"content"));
            while done < 20 && make(done).is_ok() {
                done += 1;
            }
            if done < 20 {
                failed_in_calls += 1;
                assert!(make(100).is_err() && make(101).is_err(), "it goes on, after flush {nth} was refused");
                assert!(volume.close().is_err());
            }
        }
        let healed = World::from_image(&world.latest(), SimConfig::disk());
        let region = disk(&healed).expect("open it again");
        let volume = Volume::open_region(region.clone(), &options).expect("open it again");
        (0..done).for_each(|n| assert_eq!(volume.read_file(format!("{n}")).expect("it had returned"), b"content"));
        volume.close().expect("close it");
        assert_eq!(Volume::check_region(&*region).expect("check it").findings, []);
    }
    assert!(failed_in_calls > 2, "{failed_in_calls}");
}

/// Pages that have rotted take no room, however many erase blocks have one. What they held is an error until it is
/// written anew.
#[test]
fn a_volume_with_rotten_pages_stays_writable() {
    const OLD: usize = 60;
    let (geometry, config) = Profile::OpenSsd.plan(4 << 20).expect("sizes");
    let made = World::new(SimConfig { log_len: OverRegion::bytes(&geometry), ..SimConfig::disk() });
    let chip: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, [9; 16]).expect("a chip");
    Device::format(&chip, &config, [9; 16]).expect("a flash disk");
    let options = VolumeOptions { engine: Some(EngineKind::PageCacheWal), ..VolumeOptions::default() };
    let region = disk(&made).expect("open it");
    Volume::format_region(&*region, &options).expect("make a volume");
    let volume = Volume::open_region(region, &options).expect("open it");
    let (old, churn) = (volume.create_file("old", 0o644).expect("create"), volume.create_file("churn", 0o644));
    let churn = churn.expect("create");
    // A page that stays, in every erase block.
    for i in 0..OLD {
        old.write_at(i as u64 * 4096, &[0xab; 4096]).expect("write");
        old.sync().expect("sync");
        churn.write_at(0, &[i as u8; 20 * 4096]).expect("write");
        churn.sync().expect("sync");
    }
    drop((old, churn));
    volume.close().expect("close it");
    let mut image = made.latest();
    let bytes = image.read(&Place::Log).expect("the flash file");
    let is_old = |slot: &&[u8]| slot[4096..] == [0xab; 4096];
    let rotten: Vec<u64> = (0..).zip(bytes.chunks(SLOT)).filter(|(_, slot)| is_old(slot)).map(|(at, _)| at).collect();
    assert!(rotten.len() >= OLD, "{}", rotten.len());
    rotten.iter().for_each(|at| image.flip_bit(&Place::Log, at * SLOT as u64 + 5000, 1));

    let world = World::from_image(&image, SimConfig::disk());
    let volume = Volume::open_region(disk(&world).expect("open it"), &options).expect("open it");
    let churn = volume.create_file("other", 0o644).expect("create");
    for i in 0..300 {
        churn.write_at(0, &[i as u8; 20 * 4096]).expect("the disk is not full");
        churn.sync().expect("sync");
    }
    drop(churn);
    assert!(volume.read_file("old").is_err(), "what has rotted is not served");
    let old = volume.open_file("old").expect("open");
    old.write_at(0, &[7; OLD * 4096]).expect("write it anew");
    drop(old);
    volume.close().expect("close it");
    let device = Device::open(OverRegion::open(world.log()).expect("the chip")).expect("open it");
    assert!(device.programs().collection > 20, "{:?}", device.programs());
    drop(device);
    let volume = Volume::open_region(disk(&world).expect("open it"), &options).expect("open it");
    assert_eq!(volume.read_file("old").expect("read"), [7; OLD * 4096]);
    volume.close().expect("close it");
}

const GROUPS: u8 = 8;

/// What a crash has left: how many groups are there, each of which is there wholly.
fn groups_in(image: &Image, setting: &Arc<SimConfig>, options: &VolumeOptions) -> u8 {
    let region = disk(&World::from_image(image, setting.clone())).expect("open the flash disk");
    assert_eq!(Volume::check_region(&*region).expect("check it").findings, []);
    let volume = Volume::open_region(region.clone(), options).expect("open it");
    let groups = (volume.read_dir("").expect("list").len() - 1) as u8;
    let all = volume.read_file("all").expect("read");
    assert_eq!(all, vec![groups; usize::from(groups) * 700], "it is the last group's");
    for group in 1..=groups {
        assert_eq!(volume.read_file(format!("{group}")).expect("read"), [group; 6000]);
    }
    volume.close().expect("close it");
    assert_eq!(Volume::check_region(&*region).expect("check it").findings, []);
    groups
}

/// Power fails at every program, erase and wait of a volume at work, and slots tear: what had returned is there, and
/// the group in flight wholly or not at all.
#[test]
fn a_power_failure_leaves_groups_wholly_or_not_at_all() {
    let states = power_fails(&[]);
    assert!(states[0] > 1000 && states[1] > 5, "{states:?}");
}

/// The test above sees a flush that orders nothing.
#[test]
fn a_flush_that_orders_nothing_is_seen() {
    let planted = Mutation { site: site::FLUSH_WAIT, kind: MutationKind::DropOrder, nth: None };
    assert!(catch_unwind(|| power_fails(&[planted])).is_err());
}

/// Crashes a volume at work everywhere. Returns how many states had the groups that had returned alone, and how many
/// the one in flight besides.
fn power_fails(planted: &[Mutation]) -> [u64; 2] {
    let config = Config {
        logical: 128,
        data_blocks: 13,
        reserve: 1,
        chain_blocks: 1,
        buffer: 8,
        interval: 200,
        most_pages: None,
        times: Times { program_ns: 1, read_ns: 1, erase_ns: 1 },
        name: *b"test\0\0\0\0\0\0\0\0\0\0\0\0",
    };
    let geometry = Geometry { channels: 2, blocks: config.blocks(2, 16), pages: 16 };
    let (log, log_len) = (Medium::Disk { sector: SLOT as u32 }, OverRegion::bytes(&geometry));
    let setting = Arc::new(SimConfig { log, home: log, log_len, tearing: true, ..SimConfig::disk() });
    let made = World::new(setting.clone());
    let chip: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, [9; 16]).expect("a chip");
    Device::format(&chip, &config, [9; 16]).expect("a flash disk");
    let options = VolumeOptions { engine: Some(EngineKind::PageCacheWal), ..VolumeOptions::default() };
    let region = disk(&made).expect("open it");
    Volume::format_region(&*region, &options).expect("make a volume");
    let volume = Volume::open_region(region, &options).expect("open it");
    volume.create_file("all", 0o644).expect("create");
    volume.close().expect("close it");

    let broken = SimConfig { mutations: planted.to_vec(), ..(*setting).clone() };
    let world = World::from_image(&made.latest(), broken);
    let volume = Volume::open_region(disk(&world).expect("open it"), &options).expect("open it");
    let all = volume.open_file("all").expect("open it");
    let mut returned = Vec::new();
    for number in 1..=GROUPS {
        let mut group = volume.begin();
        let file = group.create(format!("{number}"), 0o644).expect("create");
        group.write_at(&file, 0, &[number; 6000]).expect("write");
        group.write_at(&all, 0, &vec![number; usize::from(number) * 700]).expect("write");
        group.commit().expect("commit");
        returned.push(world.now());
    }
    drop(all);
    volume.close().expect("close it");

    let trace = world.trace();
    let (mut explorer, mut seen, mut states) = (Explorer::new(&trace), HashSet::new(), [0; 2]);
    let samples = if is_long() { 60 } else { 6 };
    loop {
        let point = explorer.index();
        let done = returned.iter().filter(|at| **at <= point).count() as u8;
        let limits = ExploreLimits {
            exhaustive_bits: 3,
            single_units: 8,
            pair_units: 0,
            samples,
            seed: point,
            ..ExploreLimits::default()
        };
        explorer.for_each_image(&limits, |choice: &Choice, image| {
            if seen.insert((point, image.hash())) {
                let there = groups_in(image, &setting, &options);
                assert!(there == done || there == done + 1, "{choice}: {there} groups, {done} had returned");
                states[usize::from(there - done)] += 1;
            }
            ControlFlow::Continue(())
        });
        if !explorer.advance() {
            break;
        }
    }
    println!("{} points, {states:?} states", trace.events.len());
    states
}

/// A flash disk of so many bytes, and its transactions.
fn transactions(bytes: u64) -> (Arc<Device>, Arc<dyn TxBlocks>) {
    let (geometry, config) = Profile::OpenSsd.plan(bytes).expect("sizes");
    let made = World::new(SimConfig { log_len: OverRegion::bytes(&geometry), ..SimConfig::disk() });
    let chip: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, [9; 16]).expect("a chip");
    Device::format(&chip, &config, [9; 16]).expect("a flash disk");
    let device = Arc::new(Device::open(chip).expect("open it"));
    (device.clone(), Arc::new(Batch::new(device, 512)))
}

/// Each time a later one, so that each group changes the times of its files.
pub fn ticking() -> Timestamp {
    static TICKS: AtomicI64 = AtomicI64::new(1_000_000_000);
    Timestamp { sec: TICKS.fetch_add(1, Ordering::Relaxed), nsec: 0 }
}

/// With `op_log`, a group is one transaction of the device: each block that it changes is written once, one page of the
/// chain names them, and nothing is flushed. Programs of the map come when the device wants them.
#[test]
fn a_group_is_one_transaction_of_the_device() {
    let (device, blocks) = transactions(64 << 20);
    let options = VolumeOptions { engine: Some(EngineKind::OpLog), clock: ticking, ..VolumeOptions::default() };
    Volume::format_blocks_as(&*blocks, &options, [7; 16]).expect("make a volume");
    let volume = Volume::open_blocks(blocks, &options).expect("open it");
    let [one, two] = ["one", "two"].map(|name| {
        let file = volume.create_file(name, 0o644).expect("create");
        file.write_at(0, &[1; 1 << 20]).expect("write");
        file
    });
    volume.mkdir("dir", 0o755).expect("make a directory");
    volume.create_file("dir/first", 0o644).expect("its first leaf");
    let groups = if is_long() { 100_000 } else { 200 };
    // How many groups, and how many blocks each writes.
    type Change<'c> = (&'c str, u64, u64, &'c dyn Fn(&mut VolumeGroup, u64));
    let cases: [Change<'_>; 6] = [
        ("over 4 KiB of each of two files", groups, 3, &|group, i| {
            group.write_at(&one, i % 256 * 4096, &[2; 4096]).expect("write");
            group.write_at(&two, i * 7 % 256 * 4096, &[2; 4096]).expect("write");
        }),
        ("over 100 B of a file", groups, 2, &|group, i| {
            group.write_at(&one, i % 256 * 4096 + 50, &[3; 100]).expect("write")
        }),
        // Content, the node of the map, the inode, the bitmap.
        ("4 KiB behind the end", 40, 4, &|group, i| {
            group.write_at(&two, (256 + i) * 4096, &[4; 4096]).expect("write");
        }),
        // The leaf, the inodes of the file and of the directory, in one block or in two, the bitmap.
        ("a new file", 40, 3, &|group, i| _ = group.create(format!("dir/{i}"), 0o644).expect("create")),
        ("attributes", groups, 1, &|group, i| group.set_mode("dir", 0o700 + i as u32 % 8).expect("chmod")),
        // The same, and the bitmap of orphans: that the inode is freed rides in the same commit.
        ("a name less", 40, 4, &|group, i| group.unlink(format!("dir/{i}")).expect("remove")),
    ];
    for (what, groups, writes, change) in cases {
        for i in 0..groups {
            let (before, programs) = (device.counters(), device.programs());
            let block_of = |path: &str| volume.metadata(path).map(|of| of.ino / 16).ok();
            let had = block_of(&format!("dir/{i}"));
            let mut group = volume.begin();
            change(&mut group, i);
            group.commit().expect("commit");
            let (after, now) = (device.counters(), device.programs());
            let has = block_of(&format!("dir/{i}"));
            let is_apart = has != had && has.or(had) != block_of("dir");
            let writes = writes + u64::from(is_apart);
            let done = (after.writes - before.writes, after.discards - before.discards, after.commits - before.commits);
            let flushes = after.plain_flushes + after.plain_writes - before.plain_flushes - before.plain_writes;
            assert_eq!((done, flushes), ((writes, 0, 1), 0), "{what}, group {i}");
            let of_group = now.data + now.plain + now.chain - programs.data - programs.plain - programs.chain;
            assert_eq!(of_group, writes + 1, "{what}, group {i}");
        }
    }
    drop((one, two));
    volume.close().expect("close it");
}

/// A volume of a disk that was not unmounted is copied to a flash disk: its log is applied there, and then it uses the
/// device's transactions. One that was made there has no log, and opens nowhere else.
#[test]
fn a_volume_moves_to_a_flash_disk_and_not_back() {
    let (device, blocks) = transactions(8 << 20);
    let options = VolumeOptions { engine: Some(EngineKind::OpLog), ..VolumeOptions::default() };
    let world = World::new(SimConfig { log_len: 4 << 20, ..SimConfig::disk() });
    Volume::format_region(&*world.log(), &options).expect("make a volume");
    let volume = Volume::open_region(world.log(), &options).expect("open it");
    for i in 0..40 {
        let file = volume.create_file(format!("{i}"), 0o644).expect("create");
        file.write_at(0, &[i; 5000]).expect("write");
    }
    std::mem::forget(volume);
    let copy = |from: &dyn Region, to: &dyn Region| {
        let mut piece = [0; 4096];
        for at in (0..4 << 20).step_by(4096) {
            from.read(at, &mut piece).expect("read");
            to.write(wholly_media::Site("test"), at, &piece).expect("write");
        }
    };
    copy(&*world.log(), &*blocks.plain());
    let before = device.counters().committed;
    let volume = Volume::open_blocks(blocks.clone(), &options).expect("open it there");
    (0..40).for_each(|i| assert_eq!(volume.read_file(format!("{i}")).expect("read"), [i; 5000]));
    volume.create_file("more", 0o644).and_then(|file| file.write_at(0, &[9; 5000])).expect("write");
    assert!(device.counters().committed > before, "by transactions");
    volume.close().expect("close it");
    assert_eq!(Volume::check_region(&*blocks.plain()).expect("check it").findings, []);

    Volume::format_blocks_as(&*blocks, &options, [7; 16]).expect("make a volume there");
    Volume::resize_region(&*blocks.plain(), 4 << 20).expect("as large as the other medium");
    copy(&*blocks.plain(), &*world.log());
    let refused = Volume::open_region(world.log(), &options).expect_err("it has no log");
    assert!(refused.to_string().contains("it was made on a flash disk"), "{refused}");
}
