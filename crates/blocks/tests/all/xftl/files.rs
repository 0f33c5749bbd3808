//! A flash file on the file system of this machine.

use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::*;
use wholly_blocks::xftl::{OverRegion, Profile, check, stat};
use wholly_media::Region;
use wholly_media::disk::DiskRegion;

/// Removed on drop.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_flash_file_outlives_its_process() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("flash-{}", std::process::id()));
    let scratch = Scratch(path.clone());
    let (geometry, config) = Profile::OpenSsd.plan(1 << 20).unwrap();
    let file = |flags: OFlags| {
        rustix::fs::open(path.as_os_str().as_encoded_bytes(), flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).unwrap()
    };
    let region: Arc<dyn Region> = Arc::new(DiskRegion::open(file(OFlags::RDWR | OFlags::CREATE), "flash").unwrap());
    region.extend(SITE, OverRegion::bytes(&geometry)).unwrap();
    let flash: Arc<dyn Flash> = OverRegion::create(region, geometry, ID).unwrap();
    Device::format(&flash, &config, ID).unwrap();
    drop(flash);
    let open = || {
        let region = DiskRegion::open(file(OFlags::RDWR), "flash").unwrap();
        Device::open(OverRegion::open(Arc::new(region)).unwrap()).unwrap()
    };
    for life in 1..4 {
        let device = open();
        let (kept, lost) = (device.begin().unwrap(), device.begin().unwrap());
        (0..100).for_each(|lpn| write(&device, kept, lpn, life * 1000 + u64::from(lpn)).unwrap());
        (0..60).for_each(|lpn| write(&device, lost, lpn, 9).unwrap());
        device.commit(SITE, &[kept]).unwrap();
        plain(&device, 255, life).unwrap();
        device.flush(SITE).unwrap();
        // The process goes, and closes nothing.
        drop(device);
        let device = open();
        (0..100).for_each(|lpn| assert_eq!(value(&device, None, lpn).unwrap(), life * 1000 + u64::from(lpn)));
        assert_eq!((value(&device, None, 100).unwrap(), value(&device, None, 255).unwrap()), (0, life));
    }
    let before = std::fs::read(&path).unwrap();
    let look = || -> Arc<dyn Flash> {
        let region = DiskRegion::open_read_only(file(OFlags::RDONLY), "flash").unwrap();
        OverRegion::open(Arc::new(region)).unwrap()
    };
    let found = stat(look()).unwrap();
    assert_eq!((found.incarnation, found.mapped, found.programs.data >= 300), (6, 101, true));
    let report = check(look()).unwrap();
    assert_eq!((report.right, report.faults), (101, Vec::new()));
    let device = Device::open_to_read(look()).unwrap();
    assert_eq!((value(&device, None, 99).unwrap(), value(&device, None, 255).unwrap()), (3099, 3));
    for refused in [device.begin().map(drop), plain(&device, 1, 1), device.flush(SITE), device.checkpoint()] {
        assert!(matches!(refused, Err(wholly_error::Error::Refused(_, Errno::ROFS))), "{refused:?}");
    }
    assert!(std::fs::read(&path).unwrap() == before, "looking has changed a byte");
    drop(scratch);
}
