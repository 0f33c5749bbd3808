//! A volume on a simulated flash disk whose medium fails, or loses power.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_blocks::batch::Batch;
use wholly_blocks::xftl::{Config, Device, Flash, Geometry, OverRegion, Profile, SLOT, Times, site};
use wholly_blocks::{TxBlocks, TxDevice};
use wholly_media::Region;
use wholly_sim::{Choice, ExploreLimits, Explorer, Image, Medium, Mutation, MutationKind, Place, SimConfig, World};
use wholly_volume::{EngineKind, Volume, VolumeOptions};

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
