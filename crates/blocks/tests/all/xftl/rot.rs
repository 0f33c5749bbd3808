//! Bad input: flipped bits in every part of every slot, cut files, other versions, other files; and looking, which
//! changes no byte.

use super::*;
use wholly_blocks::xftl::{OverRegion, Ppn, Report, SLOT, check, stat};
use wholly_error::Error;
use wholly_sim::{Image, Place, SimConfig, World};

const LOGICAL: u32 = 12;

fn world(image: &Image) -> Arc<World> {
    World::from_image(image, SimConfig::disk())
}

fn open(image: &Image) -> Result<Device> {
    Device::open(OverRegion::open(world(image).log())?)
}

/// A device with content, what it holds, and what it may hold if a bit turns over. `is_settled`: its last act was a
/// checkpoint. Else the last plain write has no witness: no later program says that it was durable.
fn written(is_settled: bool) -> (Geometry, Image, Vec<u64>, Vec<u64>) {
    let (geometry, config) = sizes(2, 4, LOGICAL, 9);
    let made = World::new(SimConfig { log_len: OverRegion::bytes(&geometry), ..SimConfig::disk() });
    let flash: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, ID).unwrap();
    Device::format(&flash, &config, ID).unwrap();
    let device = Device::open(flash).unwrap();
    let mut now = vec![0; LOGICAL as usize];
    for round in 1..9 {
        let (a, b) = (device.begin().unwrap(), device.begin().unwrap());
        for lpn in [round % 12, (round * 5) % 12, (round * 7 + 1) % 12] {
            write(&device, a, lpn, u64::from(round * 100 + lpn)).unwrap();
            now[lpn as usize] = u64::from(round * 100 + lpn);
        }
        write(&device, b, 3, 9999).unwrap();
        if round % 2 == 0 {
            device.discard(SITE, a, run(11, 1)).unwrap();
            now[11] = 0;
        }
        device.commit(SITE, &[a]).unwrap();
        device.abort(SITE, b).unwrap();
    }
    let mut before = now.clone();
    plain(&device, 4, 4444).unwrap();
    now[4] = 4444;
    device.flush(SITE).unwrap();
    if is_settled {
        device.checkpoint().unwrap();
        before = now.clone();
    }
    (geometry, made.latest(), now, before)
}

/// T9, for a bit of each part of each slot: of the spare bytes and their copy, of the page, of what is not used.
/// Nothing but what was committed is served; what cannot be is an error that names the page; other pages are read.
#[test]
fn a_bit_turned_over_anywhere_is_an_error_or_nothing() {
    for is_settled in [true, false] {
        let (geometry, image, now, before) = written(is_settled);
        let (mut damaged, mut refused, mut errors, mut mended, mut harmless) = (0, 0, 0, 0, 0);
        for ppn in 0..geometry.all() as u32 {
            for at in [3, 9, 65, 80, 130, 2050, 2115, 3000, 4100, 8191] {
                let mut image = image.clone();
                image.flip_bit(&Place::Log, OverRegion::offset(Ppn(ppn)) + at, ppn % 8);
                let report = check(OverRegion::open(world(&image).log()).unwrap());
                let device = match open(&image) {
                    Ok(device) => device,
                    Err(error) => {
                        assert!(matches!(&error, Error::Corrupt { .. }), "{error}");
                        assert!(error.to_string().contains("restore"), "{error}");
                        assert!(report.is_err(), "check says the same");
                        refused += 1;
                        continue;
                    }
                };
                let report: Report = report.unwrap();
                let damage = device.damage();
                let mut lost = 0;
                for lpn in 0..LOGICAL {
                    match value(&device, None, lpn) {
                        Ok(value) => {
                            let is_right = value == now[lpn as usize] || value == before[lpn as usize];
                            assert!(is_right, "page {ppn}+{at}: {lpn} is {value}, {:?}", report.faults);
                        }
                        Err(Error::Corrupt { place, fault }) => {
                            assert!(place.contains(&format!("logical page {lpn} ")), "{place}");
                            let names = |text: &str| text.contains("flash page") || text.contains("its pages");
                            assert!(names(&fault) || names(&place), "{place}: {fault}");
                            lost += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                let is_intact = damage.is_empty() && lost == 0;
                assert!(is_intact || !report.faults.is_empty(), "a check says nothing of page {ppn}+{at}");
                let names = |fault: &String| fault.contains("flash page");
                assert!(report.faults.is_empty() || report.faults.iter().any(names), "{:?}", report.faults);
                match (damage.is_empty(), lost) {
                    (false, _) => {
                        damaged += 1;
                        assert!(damage[0].to_string().contains("wholly flash init"), "{}", damage[0]);
                        assert!(damage[0].to_string().contains("flash page"), "{}", damage[0]);
                        assert!(matches!(device.begin(), Err(Error::Corrupt { .. })), "a damaged map is not written");
                    }
                    (true, 0) if !report.faults.is_empty() => mended += 1,
                    (true, 0) => harmless += 1,
                    (true, _) => {
                        errors += 1;
                        assert_eq!(lost, 1, "one page has rotted");
                        // It is written anew, and is right.
                        let tx = device.begin().unwrap();
                        (0..LOGICAL).for_each(|lpn| write(&device, tx, lpn, 5).unwrap());
                        device.commit(SITE, &[tx]).unwrap();
                        (0..LOGICAL).for_each(|lpn| assert_eq!(value(&device, None, lpn).unwrap(), 5));
                    }
                }
            }
        }
        println!(
            "settled {is_settled}: {damaged} damaged, {refused} refused, {errors} lost a page, {mended} mended, \
             {harmless} harmless"
        );
        assert!(damaged > 3 && errors > 15 && mended > 15, "{damaged} {errors} {mended}");
    }
}

#[test]
fn what_is_no_flash_file_says_so() {
    let (geometry, image, ..) = written(true);
    let open_cut = |bytes: u64| {
        let world = world(&image);
        world.log().set_len(SITE, bytes).unwrap();
        OverRegion::open(world.log()).map(drop).unwrap_err()
    };
    let cut = open_cut(OverRegion::bytes(&geometry) - 1);
    assert!(matches!(&cut, Error::Corrupt { place, .. } if place.contains("flash page 9")), "{cut}");
    assert!(matches!(open_cut(SLOT as u64 * 3), Error::Corrupt { .. }));
    assert!(matches!(open_cut(100), Error::Invalid(_)));
    let with = |at: u64, bit| {
        let mut image = image.clone();
        image.flip_bit(&Place::Log, at, bit);
        OverRegion::open(world(&image).log()).map(drop).unwrap_err()
    };
    let other = with(0, 3);
    assert!(matches!(&other, Error::Invalid(why) if why.contains("wholly flash init")), "{other}");
    let version = with(8, 1);
    assert!(matches!(&version, Error::Unsupported(why) if why.contains("version 3")), "{version}");
    assert!(matches!(with(12, 1), Error::Corrupt { .. }), "the channels");
    assert!(matches!(with(30, 1), Error::Corrupt { .. }), "the id");
    // An erased chip.
    let empty = World::new(SimConfig { log_len: OverRegion::bytes(&geometry), ..SimConfig::disk() });
    let flash: Arc<dyn Flash> = OverRegion::create(empty.log(), geometry, ID).unwrap();
    let error = Device::open(flash).map(drop).unwrap_err();
    assert!(matches!(&error, Error::Invalid(why) if why.contains("wholly flash init")), "{error}");
}

/// Collection leaves a page that has rotted where it is, so that whoever reads it is told; its block comes back once
/// the logical page is written anew.
#[test]
fn collection_leaves_what_has_rotted() {
    let (geometry, image, now, _) = written(true);
    let lost = |image: &Image| {
        let device = open(image).unwrap();
        (0..LOGICAL).find(|lpn| value(&device, None, *lpn).is_err())
    };
    let rotten = (8..geometry.all() as u32).filter_map(|ppn| {
        let mut image = image.clone();
        image.flip_bit(&Place::Log, OverRegion::offset(Ppn(ppn)) + 5000, 1);
        open(&image).is_ok_and(|device| device.damage().is_empty()).then(|| (lost(&image), image))
    });
    let rotten: Vec<(u32, Image)> = rotten.filter_map(|(lpn, image)| Some((lpn?, image))).collect();
    assert!(rotten.len() > 5, "{}", rotten.len());
    for (lpn, image) in rotten {
        let device = open(&image).unwrap();
        let mut random = Random(u64::from(lpn));
        let mut expected = now.clone();
        let mut churn = |device: &Device, expected: &mut Vec<u64>, without: Option<u32>| {
            for n in 1..400 {
                let at = random.below(LOGICAL.into()) as u32;
                if Some(at) != without {
                    plain(device, at, 10_000 + n).unwrap();
                    expected[at as usize] = 10_000 + n;
                }
            }
        };
        churn(&device, &mut expected, Some(lpn));
        for at in 0..LOGICAL {
            match value(&device, None, at) {
                Ok(value) => assert_eq!((value, at != lpn), (expected[at as usize], true)),
                Err(error) => assert!(matches!(error, Error::Corrupt { .. }) && at == lpn, "{error}"),
            }
        }
        plain(&device, lpn, 5).unwrap();
        expected[lpn as usize] = 5;
        churn(&device, &mut expected, None);
        (0..LOGICAL).for_each(|at| assert_eq!(value(&device, None, at).unwrap(), expected[at as usize]));
    }
}

/// Bytes that were exchanged, or written elsewhere, prove themselves at their own places only.
#[test]
fn misdirected_slots_are_not_believed() {
    let (geometry, image, now, _) = written(true);
    for ppn in 8..geometry.all() as u32 - 1 {
        let mut image = image.clone();
        let slot = |ppn: u32| OverRegion::offset(Ppn(ppn));
        image.misdirect((&Place::Log, slot(ppn)), (&Place::Log, slot(ppn + 1)), SLOT as u64);
        let Ok(device) = open(&image) else { continue };
        for lpn in 0..LOGICAL {
            if let Ok(value) = value(&device, None, lpn) {
                assert_eq!(value, now[lpn as usize], "{ppn}");
            }
        }
    }
}

/// A medium that fails: the page is an error; a program or a wait that fails poisons the device (T8).
#[test]
fn errors_of_the_medium() {
    use wholly_blocks::xftl::site;
    use wholly_sim::{Mutation, MutationKind};
    let (geometry, image, now, _) = written(true);
    for ppn in 0..geometry.all() as u32 {
        let mut failing = image.clone();
        failing.fail_reads(&Place::Log, OverRegion::offset(Ppn(ppn))..OverRegion::offset(Ppn(ppn + 1)));
        // What every open reads is asked for by the open.
        let Ok(device) = open(&failing) else { continue };
        let served = (0..LOGICAL).map(|lpn| value(&device, None, lpn));
        let wrong = served.zip(&now).filter(|(served, now)| match served {
            Ok(served) => served != *now,
            Err(error) => !matches!(error, Error::Media(_)),
        });
        assert_eq!(wrong.count(), 0, "page {ppn}");
    }
    let fail = MutationKind::Fail(rustix::io::Errno::IO);
    for site in [site::WRITE, site::WRITE_WAIT, site::CHAIN, site::CHAIN_WAIT] {
        let config = SimConfig { mutations: vec![Mutation::new(site, fail)], ..SimConfig::disk() };
        let world = World::from_image(&image, config);
        let device = Device::open(OverRegion::open(world.log()).unwrap()).unwrap();
        let tx = device.begin().unwrap();
        write(&device, tx, 1, 77).unwrap();
        assert!(matches!(device.commit(SITE, &[tx]), Err(Error::Media(_))), "{site:?}");
        assert!(matches!(device.begin(), Err(Error::Poisoned(_))));
        assert!(matches!(value(&device, None, 1), Err(Error::Poisoned(_))));
        assert!(matches!(device.commit(SITE, &[tx]), Err(Error::Poisoned(_))));
        drop(device);
        let device = open(&world.latest()).unwrap();
        assert!([now[1], 77].contains(&value(&device, None, 1).unwrap()));
    }
}

/// `check` and `stat` change no byte, not even the incarnation, of what a crash has left.
#[test]
fn looking_changes_nothing() {
    for is_settled in [true, false] {
        let (_, image, now, _) = written(is_settled);
        let world = world(&image);
        let before = world.latest().hash();
        let flash: Arc<dyn Flash> = OverRegion::open(world.log()).unwrap();
        let (first, report) = (stat(flash.clone()).unwrap(), check(flash.clone()).unwrap());
        assert_eq!((&first, world.latest().hash(), world.now()), (&report.stat, before, 0));
        assert_eq!(report.right, now.iter().filter(|value| **value != 0).count() as u64);
        assert_eq!((first.incarnation, report.faults.len()), (1, 0));
        let device = Device::open(flash.clone()).unwrap();
        let after = stat(flash).unwrap();
        assert_eq!((after.incarnation, after.dropped), (2, first.unfinished));
        assert_eq!(device.counters().dropped, first.unfinished);
        drop(device);
    }
}
