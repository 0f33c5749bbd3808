//! Bad input: flipped bits in every part of every slot, cut files, other versions, other files; and looking, which
//! changes no byte.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use super::*;
use wholly_blocks::xftl::{OverRegion, Ppn, Read, Report, SLOT, SPARE, check, stat};
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

/// A device that is nearly full of content, which was written in random order.
pub fn nearly_full() -> (Geometry, Image, Vec<u64>) {
    let (geometry, config) = sizes(1, 4, LOGICAL, 6);
    let made = World::new(SimConfig { log_len: OverRegion::bytes(&geometry), ..SimConfig::disk() });
    let flash: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, ID).unwrap();
    Device::format(&flash, &Config { buffer: 1, ..config }, ID).unwrap();
    let device = Device::open(flash).unwrap();
    let (mut now, mut random) = (vec![0; LOGICAL as usize], Random(7));
    for n in 1..200 {
        let lpn = if n <= LOGICAL { n - 1 } else { random.below(LOGICAL.into()) as u32 };
        plain(&device, lpn, n.into()).unwrap();
        now[lpn as usize] = n.into();
    }
    device.checkpoint().unwrap();
    (geometry, made.latest(), now)
}

/// X8: collection keeps what has rotted known as lost, so that whoever reads it is told, and comes by with all the room
/// that there was, however many erase blocks have something rotten. What is written anew is right.
#[test]
fn rotten_pages_take_no_room() {
    let (geometry, image, now) = nearly_full();
    let lost = |image: &Image| -> Vec<u32> {
        let device = open(image).unwrap();
        (0..LOGICAL).filter(|lpn| value(&device, None, *lpn).is_err()).collect()
    };
    // What holds content: it rots alone, and together with others, from the last on.
    let with = |image: &Image, ppn: u32| {
        let mut image = image.clone();
        image.flip_bit(&Place::Log, OverRegion::offset(Ppn(ppn)) + 5000, 1);
        open(&image).is_ok_and(|device| device.damage().is_empty()).then_some(image)
    };
    let (mut rotten, mut all) = (Vec::new(), image.clone());
    for ppn in (8..geometry.all() as u32).rev() {
        let Some(alone) = with(&image, ppn).filter(|image| lost(image).len() == 1) else { continue };
        rotten.push(alone);
        all = with(&all, ppn).unwrap();
        if lost(&all).len() < 10 {
            rotten.push(all.clone());
        }
    }
    assert!(rotten.len() > 10, "{}", rotten.len());
    for image in rotten {
        let lost = lost(&image);
        let world = world(&image);
        let open = || Device::open(OverRegion::open(world.log()).unwrap()).unwrap();
        let mut random = Random(u64::from(lost[0]));
        let mut expected = now.clone();
        let mut churn = |device: &Device, expected: &mut Vec<u64>, without: &[u32]| {
            for n in 1..400 {
                let at = random.below(LOGICAL.into()) as u32;
                if !without.contains(&at) {
                    plain(device, at, 10_000 + n).unwrap();
                    expected[at as usize] = 10_000 + n;
                }
            }
            device.flush(SITE).unwrap();
        };
        let compare = |device: &Device, expected: &[u64], lost: &[u32]| {
            for at in 0..LOGICAL {
                match value(device, None, at) {
                    Ok(value) => assert_eq!((value, lost.contains(&at)), (expected[at as usize], false)),
                    Err(Error::Corrupt { place, .. }) => {
                        assert!(lost.contains(&at), "{place}");
                        assert!(
                            place.contains(&format!("logical page {at} of the flash disk, flash page ")),
                            "{place}"
                        );
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        for _ in 0..2 {
            let device = open();
            churn(&device, &mut expected, &lost);
            compare(&device, &expected, &lost);
            drop(device);
            let report = check(OverRegion::open(world.log()).unwrap()).unwrap();
            assert_eq!(report.faults.len(), lost.len(), "{:?}", report.faults);
        }
        let device = open();
        lost.iter().for_each(|lpn| plain(&device, *lpn, 5).unwrap());
        lost.iter().for_each(|lpn| expected[*lpn as usize] = 5);
        churn(&device, &mut expected, &[]);
        compare(&device, &expected, &[]);
        assert_eq!(check(OverRegion::open(world.log()).unwrap()).unwrap().faults, Vec::<String>::new());
    }
}

/// A chip of which pages with some values have rotted, wherever they are; with their spare bytes, or without.
struct Rotting {
    flash: Arc<dyn Flash>,
    values: Mutex<HashSet<u64>>,
    with_spare: bool,
}

impl Rotting {
    fn has_rotted(&self, page: &Page) -> bool {
        let value = u64::from_le_bytes(page[..8].try_into().unwrap());
        self.values.lock().unwrap().contains(&value) && *page == super::page(value)
    }
}

impl Flash for Rotting {
    fn geometry(&self) -> Geometry {
        self.flash.geometry()
    }

    fn read(&self, at: Ppn) -> Result<Read<Page>> {
        Ok(match self.flash.read(at)? {
            Read::Programmed(_, page) if self.has_rotted(&page) && self.with_spare => Read::Unreadable,
            Read::Programmed(spare, page) if self.has_rotted(&page) => Read::Damaged(spare),
            read => read,
        })
    }

    fn look(&self, at: Ppn) -> Result<Read<()>> {
        Ok(match self.read(at)? {
            Read::Erased => Read::Erased,
            Read::Programmed(spare, _) | Read::Damaged(spare) => Read::Programmed(spare, ()),
            Read::Unreadable => Read::Unreadable,
        })
    }

    fn program(&self, site: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()> {
        self.flash.program(site, at, page, spare)
    }

    fn erase(&self, site: Site, block: u32) -> Result<()> {
        self.flash.erase(site, block)
    }

    fn wait(&self, site: Site) -> Result<()> {
        self.flash.wait(site)
    }

    fn description(&self) -> String {
        self.flash.description()
    }
}

/// Random histories in which pages rot, committed ones and those of running transactions, on devices that collect (X8).
/// If spare bytes rot as well, there is one life: the next one can only read (`docs/flash-model.md`).
#[test]
fn histories_with_rot() {
    let (mut rotted, mut moved, mut lives) = (0, 0, 0);
    for seed in 0..300 {
        let mut random = Random(seed);
        let (geometry, config) = sizes(1 + (seed % 2) as u32, 4, 40, 17);
        let config = Config { buffer: 1, ..config };
        let rotting =
            Arc::new(Rotting { flash: Ram::new(geometry), values: Mutex::default(), with_spare: seed % 3 == 0 });
        let flash: Arc<dyn Flash> = Rules::new(rotting.clone()).unwrap();
        Device::format(&flash, &config, ID).unwrap();
        let mut device = Device::open(flash.clone()).unwrap();
        let is_on_flash = |value: u64| {
            let all = (0..geometry.all() as u32).map(Ppn);
            let programmed = all.filter(|at| !matches!(rotting.flash.look(*at), Ok(Read::Erased)));
            let mut pages = programmed.map(|at| rotting.flash.read(at).unwrap());
            pages.any(|read| matches!(read, Read::Programmed(_, found) if found == page(value)))
        };
        let mut committed = [0; 40];
        let mut running: Option<(Txid, HashMap<u32, u64>)> = None;
        let compare = |device: &Device, tx: Option<Txid>, lpn: u32, expected: u64| match value(device, tx, lpn) {
            Ok(value) => assert_eq!((value, rotting.values.lock().unwrap().contains(&value)), (expected, false)),
            Err(Error::Corrupt { place, .. }) => {
                assert!(rotting.values.lock().unwrap().contains(&expected), "{place}");
                assert!(place.contains(&format!("logical page {lpn} of the flash disk, flash page ")), "{place}");
            }
            Err(error) => panic!("{error}"),
        };
        for next in 1..600 {
            let lpn = random.below(40) as u32;
            match (random.below(100), &mut running) {
                (0..40, running) if running.as_ref().is_none_or(|(_, own)| !own.contains_key(&lpn)) => {
                    plain(&device, lpn, next).unwrap();
                    committed[lpn as usize] = next;
                }
                (40..80, Some((tx, own))) if own.len() < 8 => {
                    write(&device, *tx, lpn, next).unwrap();
                    own.insert(lpn, next);
                }
                (40..80, running @ None) => *running = Some((device.begin().unwrap(), HashMap::new())),
                (80..84, Some((tx, own))) => {
                    device.commit(SITE, &[*tx]).unwrap();
                    own.iter().for_each(|(lpn, value)| committed[*lpn as usize] = *value);
                    running = None;
                }
                (84..86, Some((tx, _))) => {
                    device.abort(SITE, *tx).unwrap();
                    running = None;
                }
                (86..90, running) => {
                    let own = running.iter().flat_map(|(_, own)| own.values());
                    let values: Vec<u64> = own.copied().chain([committed[lpn as usize]]).collect();
                    let value = values[random.below(values.len() as u64) as usize];
                    device.flush(SITE).unwrap();
                    if value != 0 && is_on_flash(value) && rotting.values.lock().unwrap().insert(value) {
                        rotted += 1;
                    }
                }
                (90..92, running) if !rotting.with_spare => {
                    // The plain writes before it have a witness.
                    device.checkpoint().unwrap();
                    drop(device);
                    device = Device::open(flash.clone()).unwrap();
                    *running = None;
                    lives += 1;
                }
                _ => {}
            }
            for (lpn, value) in (0..).zip(committed) {
                compare(&device, None, lpn, value);
            }
            if let Some((tx, own)) = &running {
                own.iter().for_each(|(lpn, value)| compare(&device, Some(*tx), *lpn, *value));
            }
        }
        moved += device.programs().collection;
    }
    println!("{rotted} pages rotted, {moved} moved, {lives} lives");
    assert!(rotted > 3000 && moved > 5000 && lives > 500);
}

/// Content whose spare bytes have rotted as well is lost, and no more: also for the next life, once a root names the
/// mark in its place.
#[test]
fn unreadable_spare_bytes_of_collected_pages() {
    let (geometry, config) = sizes(1, 4, 12, 6);
    let rotting = Arc::new(Rotting { flash: Ram::new(geometry), values: Mutex::default(), with_spare: true });
    let flash: Arc<dyn Flash> = Rules::new(rotting.clone()).unwrap();
    Device::format(&flash, &Config { buffer: 1, ..config }, ID).unwrap();
    let device = Device::open(flash.clone()).unwrap();
    (0..12).for_each(|lpn| plain(&device, lpn, 1 + u64::from(lpn)).unwrap());
    device.flush(SITE).unwrap();
    rotting.values.lock().unwrap().insert(3);
    let mut random = Random(1);
    for n in 100..400 {
        let lpn = random.below(12) as u32;
        if lpn != 2 {
            plain(&device, lpn, n).unwrap();
        }
    }
    let is_lost = |device: &Device, lpn| matches!(value(device, None, lpn), Err(Error::Corrupt { .. }));
    assert!((0..12).all(|lpn| is_lost(&device, lpn) == (lpn == 2)));
    device.checkpoint().unwrap();
    drop(device);
    assert!(rotting.values.lock().unwrap().drain().count() > 0, "its block was erased");
    let device = Device::open(flash).unwrap();
    assert_eq!(device.damage(), []);
    assert!((0..12).all(|lpn| is_lost(&device, lpn) == (lpn == 2)), "it was lost, and stays so");
    plain(&device, 2, 9).unwrap();
    assert_eq!(value(&device, None, 2).unwrap(), 9);
}

/// A page that the medium fails to read is not marked as lost: it may be there another time. Collection goes around its
/// block, and a device that has no room for that reason says so.
#[test]
fn collection_goes_around_what_the_medium_does_not_read() {
    let (geometry, image, now) = nearly_full();
    let world_of = |ppns: &[u32]| {
        let mut failing = image.clone();
        for ppn in ppns {
            failing.fail_reads(&Place::Log, OverRegion::offset(Ppn(*ppn))..OverRegion::offset(Ppn(ppn + 1)));
        }
        world(&failing)
    };
    let open = |world: &Arc<World>| OverRegion::open(world.log()).and_then(|flash| Device::open(flash));
    let lost = |device: &Device| (0..LOGICAL).filter(|lpn| value(device, None, *lpn).is_err()).collect::<Vec<u32>>();
    let content: Vec<u32> = (8..geometry.all() as u32)
        .filter(|ppn| open(&world_of(&[*ppn])).is_ok_and(|device| lost(&device).len() == 1))
        .collect();
    assert!(content.len() >= 8, "{content:?}");
    let mut full = 0;
    for ppns in content.chunks(1).chain([&content[..3], &content[2..6], &content[..8]]) {
        let world = world_of(ppns);
        let device = open(&world).unwrap();
        let lost = lost(&device);
        for n in 0..400 {
            let at = (n * 7 + n / 5) % LOGICAL;
            if lost.contains(&at) {
                continue;
            }
            if let Err(error) = plain(&device, at, u64::from(n)) {
                full += 1;
                assert!(matches!(error, Error::NoSpace(_)) && ppns.len() > 1, "{error}");
                let text = error.to_string();
                assert!(text.contains("wholly flash salvage") && text.contains("flash page"), "{text}");
            }
        }
        for lpn in &lost {
            assert!(matches!(value(&device, None, *lpn), Err(Error::Media(_))), "it is asked for again");
        }
        device.flush(SITE).unwrap();
        drop(device);
        let bytes = world.latest().read(&Place::Log).unwrap();
        let mended = World::new(SimConfig { log_len: bytes.len() as u64, ..SimConfig::disk() });
        mended.log().write(SITE, 0, &bytes).unwrap();
        let device = open(&mended).unwrap();
        lost.iter().for_each(|lpn| assert_eq!(value(&device, None, *lpn).unwrap(), now[*lpn as usize], "it was there"));
    }
    assert!(full > 0, "blocks that cannot be collected take room");
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
