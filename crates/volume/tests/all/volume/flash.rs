//! A volume on a simulated flash disk whose medium fails.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_blocks::batch::Batch;
use wholly_blocks::xftl::{Device, Flash, OverRegion, Profile, site};
use wholly_blocks::{TxBlocks, TxDevice};
use wholly_media::Region;
use wholly_sim::{Mutation, MutationKind, SimConfig, World};
use wholly_volume::{EngineKind, Volume, VolumeOptions};

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
