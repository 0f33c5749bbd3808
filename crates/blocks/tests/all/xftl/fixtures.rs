//! A flash file of each version, and a damaged twin, as they were made once: bytes on flash mean what they meant. Each
//! is compressed by gzip. Its maker has died: of what it holds some is in tables, some in chains after the last root,
//! one page was written plainly, and a transaction is unfinished. In the twin, a bit of logical page 7 is turned over,
//! and one of the spare bytes of logical page 9.
//!
//! A new version adds files (`cargo test -p wholly-blocks --test all fixtures::make -- --ignored`), and keeps these as
//! long as it reads them.

use std::io::Write;
use std::process::{Command, Stdio};

use super::*;
use wholly_blocks::xftl::{OverRegion, Ppn, Read, Report, check};
use wholly_error::Error;
use wholly_sim::{SimConfig, World};

const FILE: &[u8] = include_bytes!("fixtures/flash-1.img.gz");
const TWIN: &[u8] = include_bytes!("fixtures/flash-1-damaged.img.gz");
/// A file in which collection has marked logical page 3 as lost. Programs that know no marks take it for rotten.
const MARKED: &[u8] = include_bytes!("fixtures/flash-1-marked.img.gz");
const LOGICAL: u32 = 40;

fn gzip(option: &str, bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip");
    let mut child = gzip.args(["-n", "-c", option]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gzip");
    let mut to = child.stdin.take().expect("it was piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || to.write_all(bytes).expect("write to gzip"));
        child.wait_with_output().expect("gzip")
    });
    assert!(output.status.success());
    output.stdout
}

/// A region of its own with these bytes.
fn world(bytes: &[u8]) -> Arc<World> {
    let world = World::new(SimConfig { log_len: bytes.len() as u64, ..SimConfig::disk() });
    world.log().write(SITE, 0, bytes).unwrap();
    world.log().fence(SITE).unwrap();
    world
}

fn bytes_of(world: &Arc<World>) -> Vec<u8> {
    let mut bytes = vec![0; world.log().len() as usize];
    world.log().read(0, &mut bytes).unwrap();
    bytes
}

/// What was committed.
fn expected(lpn: u32) -> u64 {
    match lpn {
        20..25 => 0,
        30..35 => 3000 + u64::from(lpn),
        12 => 4444,
        0..20 | 25..30 => 1000 + u64::from(lpn),
        _ => 0,
    }
}

#[test]
fn a_flash_file_of_this_version_is_opened_and_its_twin_names_what_is_damaged() {
    let made = gzip("-d", FILE);
    let sound = world(&made);
    let open = |world: &Arc<World>| OverRegion::open(world.log()).unwrap();
    let report: Report = check(open(&sound)).unwrap();
    assert_eq!((report.right, &report.faults[..]), (30, &[][..]));
    assert_eq!((report.stat.incarnation, report.stat.unfinished), (2, [3, 0, 0, 0, 0]));
    assert!(bytes_of(&sound) == made, "looking has changed a byte");
    let device = Device::open(open(&sound)).unwrap();
    (0..LOGICAL).for_each(|lpn| assert_eq!(value(&device, None, lpn).unwrap(), expected(lpn), "{lpn}"));
    assert_eq!(device.counters().dropped, [3, 0, 0, 0, 0]);
    drop(device);
    assert_eq!(check(open(&sound)).unwrap().stat.incarnation, 3);

    let damaged = world(&gzip("-d", TWIN));
    let report = check(open(&damaged)).unwrap();
    assert_eq!((report.right, report.faults.len()), (29, 2), "{:?}", report.faults);
    assert!(report.faults[0].contains("logical page 7 of the flash disk, flash page "), "{}", report.faults[0]);
    assert!(report.faults[1].contains("logical page 9 of the flash disk, flash page "), "{}", report.faults[1]);
    let device = Device::open(open(&damaged)).unwrap();
    for lpn in (0..LOGICAL).filter(|lpn| *lpn != 7) {
        assert_eq!(value(&device, None, lpn).unwrap(), expected(lpn));
    }
    let refused = value(&device, None, 7).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt { place, .. } if place.contains("logical page 7")), "{refused}");
    for lpn in [7, 9] {
        plain(&device, lpn, 1).unwrap();
    }
    device.flush(SITE).unwrap();
    assert_eq!(check(open(&damaged)).unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_mark_of_this_version_is_known() {
    let world = world(&gzip("-d", MARKED));
    let open = || OverRegion::open(world.log()).unwrap();
    let report: Report = check(open()).unwrap();
    assert_eq!((report.right, report.faults.len()), (11, 1), "{:?}", report.faults);
    let says = ["logical page 3 of the flash disk, flash page ", "it was lost in flash page ", "write the block anew"];
    assert!(says.iter().all(|says| report.faults[0].contains(says)), "{}", report.faults[0]);
    let device = Device::open(open()).unwrap();
    for lpn in (0..12).filter(|lpn| *lpn != 3) {
        assert_eq!(value(&device, None, lpn).unwrap(), 20_000 + u64::from(lpn));
    }
    assert!(matches!(value(&device, None, 3), Err(Error::Corrupt { .. })));
    plain(&device, 3, 5).unwrap();
    device.flush(SITE).unwrap();
    assert_eq!(check(open()).unwrap().faults, Vec::<String>::new());
}

/// Where a committed page is, by its spare bytes: the last program of it counts.
fn find(flash: &OverRegion, lpn: u32) -> Ppn {
    let is_it = |at: &Ppn| match flash.read(*at).unwrap() {
        Read::Programmed(_, found) => found[..] == page(expected(lpn))[..],
        _ => false,
    };
    (0..flash.geometry().all() as u32).map(Ppn).rfind(is_it).expect("it was programmed")
}

#[test]
#[ignore = "it makes the files, once for each version"]
fn make() {
    let (geometry, config) = sizes(2, 8, LOGICAL, 9);
    let config = Config { buffer: 2, ..config };
    let made = World::new(SimConfig { log_len: OverRegion::bytes(&geometry), ..SimConfig::disk() });
    let flash: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, ID).unwrap();
    Device::format(&flash, &config, ID).unwrap();
    drop(flash);
    let open = || Device::open(OverRegion::open(made.log()).unwrap()).unwrap();
    let device = open();
    let tx = device.begin().unwrap();
    (0..30).for_each(|lpn| write(&device, tx, lpn, 1000 + u64::from(lpn)).unwrap());
    device.commit(SITE, &[tx]).unwrap();
    drop(device);
    let device = open();
    let (kept, lost) = (device.begin().unwrap(), device.begin().unwrap());
    (30..35).for_each(|lpn| write(&device, kept, lpn, 3000 + u64::from(lpn)).unwrap());
    device.discard(SITE, kept, run(20, 5)).unwrap();
    device.commit(SITE, &[kept]).unwrap();
    plain(&device, 12, 4444).unwrap();
    device.flush(SITE).unwrap();
    // Two pages more than that are in the buffer.
    (0..5).for_each(|lpn| write(&device, lost, lpn, 9999).unwrap());
    drop(device);
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/xftl/fixtures/");
    let mut bytes = bytes_of(&made);
    std::fs::write(format!("{dir}flash-1.img.gz"), gzip("-9", &bytes)).unwrap();
    let flash = OverRegion::open(made.log()).unwrap();
    bytes[OverRegion::offset(find(&flash, 7)) as usize + 5000] ^= 4;
    bytes[OverRegion::offset(find(&flash, 9)) as usize + 70] ^= 4;
    std::fs::write(format!("{dir}flash-1-damaged.img.gz"), gzip("-9", &bytes)).unwrap();
}

#[test]
#[ignore = "it makes the file, once for each version"]
fn make_marked() {
    let (geometry, mut image, now) = super::rot::nearly_full();
    let made = World::from_image(&image, SimConfig::disk());
    let flash = OverRegion::open(made.log()).unwrap();
    for at in (0..geometry.all() as u32).map(Ppn) {
        if matches!(flash.read(at).unwrap(), Read::Programmed(_, found) if found == page(now[3])) {
            image.flip_bit(&wholly_sim::Place::Log, OverRegion::offset(at) + 5000, 1);
        }
    }
    let made = World::from_image(&image, SimConfig::disk());
    let device = Device::open(OverRegion::open(made.log()).unwrap()).unwrap();
    let mut random = Random(3);
    for n in 0..200 {
        let lpn = if n < 180 { random.below(12) as u32 } else { n % 12 };
        if lpn != 3 {
            plain(&device, lpn, 20_000 + u64::from(lpn)).unwrap();
        }
    }
    device.flush(SITE).unwrap();
    drop(device);
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/xftl/fixtures/");
    std::fs::write(format!("{dir}flash-1-marked.img.gz"), gzip("-9", &bytes_of(&made))).unwrap();
}
