//! Size, space and failure: T5, T7, T8, T10 to T12.

use std::sync::Mutex;

use super::*;
use wholly_blocks::BLOCK;
use wholly_blocks::xftl::{PAGE, Ppn, Profile, Read, SPARE, check, stat};
use wholly_error::Error;

/// A chip that keeps the spare bytes, and pages of the map and of chains; content only as long as the device does.
struct Forgetful {
    geometry: Geometry,
    cells: Mutex<Vec<Cell>>,
}

/// Spare bytes, and the page if it is kept.
type Cell = Option<(Option<Page>, [u8; SPARE])>;

impl Flash for Forgetful {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Ppn) -> Result<Read<Page>> {
        Ok(match &self.cells.lock().unwrap()[at.0 as usize] {
            Some((page, spare)) => Read::Programmed(*spare, page.clone().unwrap_or_else(Page::zeros)),
            None => Read::Erased,
        })
    }

    fn look(&self, at: Ppn) -> Result<Read<()>> {
        Ok(match &self.cells.lock().unwrap()[at.0 as usize] {
            Some((_, spare)) => Read::Programmed(*spare, ()),
            None => Read::Erased,
        })
    }

    fn program(&self, site: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()> {
        let is_content = site == wholly_blocks::xftl::site::WRITE;
        self.cells.lock().unwrap()[at.0 as usize] = Some(((!is_content).then(|| page.clone()), *spare));
        Ok(())
    }

    fn erase(&self, _: Site, block: u32) -> Result<()> {
        let mut cells = self.cells.lock().unwrap();
        self.geometry.pages_of(block).for_each(|at| cells[at.0 as usize] = None);
        Ok(())
    }

    fn wait(&self, _: Site) -> Result<()> {
        Ok(())
    }

    fn description(&self) -> String {
        "a chip for a test".into()
    }
}

/// T10: a transaction of 4 GiB holds no more pages in memory than the volatile buffer has: 32 MiB. (1 GiB without
/// `WHOLLY_LONG=1`.) Beside it there are the tables, of which the formula tells the bytes, and what X-L2P has for each
/// page.
#[test]
fn a_large_transaction_holds_no_more_than_the_buffer() {
    let n: u32 = if std::env::var_os("WHOLLY_LONG").is_some() { 1 << 20 } else { 1 << 18 };
    let (_, config) = sizes(4, 128, n, n / 128 + 100);
    let config = Config { buffer: 8192, ..config };
    let geometry = Geometry { channels: 4, blocks: config.blocks(4, 128), pages: 128 };
    let cells = Mutex::new(vec![None; geometry.all() as usize]);
    let flash: Arc<dyn Flash> = Arc::new(Forgetful { geometry, cells });
    Device::format(&flash, &config, ID).unwrap();
    let device = Device::open(flash.clone()).unwrap();
    let tx = device.begin().unwrap();
    let content = Arc::new([7; BLOCK]);
    let mut most = 0;
    for lpn in 0..n {
        let page = Page::from(content.clone());
        device.write(SITE, tx, Lba(lpn.into()), &page, Placement::Fresh, Tag::Data).unwrap();
        most = most.max(Arc::strong_count(&content) - 2);
    }
    assert!(most <= 8192, "{most} pages are held");
    assert_eq!(8192 * PAGE, 32 << 20);
    let before = device.programs();
    device.commit(SITE, &[tx]).unwrap();
    assert_eq!(Arc::strong_count(&content), 1, "nothing is held once it is committed");
    let done = device.programs();
    assert_eq!(done.chain - before.chain, u64::from(n).div_ceil(168));
    assert_eq!((done.data, done.collection), (n.into(), 0));
    // The map, and who names each flash page.
    assert!(Device::table_bytes(&config, &geometry) < 16 * u64::from(n));
    drop(device);
    assert_eq!(stat(flash).unwrap().mapped, n.into());
}

/// T7, T10: writes are refused at the bound, not the commit; the transaction can be aborted or go on elsewhere.
#[test]
fn the_papers_limit_is_an_option() {
    let (geometry, config) = sizes(2, 8, 40, 12);
    let config = Config { most_pages: Some(5), ..config };
    let (_, device) = device(geometry, config);
    assert_eq!(device.guarantees().most_pages, Some(5));
    let tx = device.begin().unwrap();
    (0..4).for_each(|lpn| write(&device, tx, lpn, 1).unwrap());
    device.discard(SITE, tx, run(9, 1)).unwrap();
    assert!(matches!(write(&device, tx, 4, 1), Err(Error::NoSpace(_))));
    assert!(matches!(device.discard(SITE, tx, run(4, 1)), Err(Error::NoSpace(_))));
    write(&device, tx, 0, 2).unwrap();
    write(&device, tx, 9, 2).unwrap();
    device.discard(SITE, tx, run(1, 3)).unwrap();
    device.commit(SITE, &[tx]).unwrap();
    let seen: Vec<u64> = (0..5).map(|lpn| value(&device, None, lpn).unwrap()).collect();
    assert_eq!((seen, value(&device, None, 9).unwrap()), (vec![2, 0, 0, 0, 0], 2));
}

/// T7: a full device refuses writes; an abort, a discard and a trim make room; a commit never fails for space.
#[test]
fn a_full_device_refuses_writes_and_nothing_else() {
    for pages in [4, 8, 16] {
        let (geometry, config) = sizes(2, pages, 60, 60 / pages + 5);
        let (flash, device) = device(geometry, Config { buffer: 3, ..config });
        let sure = device.guarantees().sure_overwrites;
        let first = device.begin().unwrap();
        (0..60).for_each(|lpn| write(&device, first, lpn, 1).unwrap());
        device.commit(SITE, &[first]).unwrap();
        for round in 2..30 {
            let (a, b) = (device.begin().unwrap(), device.begin().unwrap());
            let mut taken = 0;
            let mut fill = |tx, from: u32| {
                (from..60).step_by(2).find(|lpn| {
                    let done = write(&device, tx, *lpn, round);
                    taken += u64::from(done.is_ok());
                    done.inspect_err(|error| assert!(matches!(error, Error::NoSpace(_)), "{error}")).is_err()
                })
            };
            let (stopped, other) = (fill(a, 0), fill(b, 1));
            assert!(stopped.or(other).is_some(), "there is no room for all of it twice");
            assert!(taken >= sure, "{taken} versions were taken; {sure} are promised");
            match round % 3 {
                0 => {
                    device.abort(SITE, a).unwrap();
                    (0..4).for_each(|lpn| write(&device, b, lpn * 2, round).unwrap());
                    device.commit(SITE, &[b]).unwrap();
                }
                1 => device.commit(SITE, &[b, a]).unwrap(),
                _ => {
                    device.discard(SITE, a, run(0, 30)).unwrap();
                    device.commit(SITE, &[a]).unwrap();
                    device.abort(SITE, b).unwrap();
                    device.trim(SITE, run(40, 5)).unwrap();
                }
            }
            plain(&device, 59, round).unwrap();
        }
        drop(device);
        assert!(check(flash).unwrap().faults.is_empty());
    }
}

/// `sure_overwrites` holds for single pages of many transactions, too: each needs a chain of its own.
#[test]
fn what_is_promised_is_there_for_many_transactions() {
    for (channels, pages) in [(1, 4), (2, 8), (4, 16)] {
        let (geometry, config) = sizes(channels, pages, 100, 100 / pages + 30);
        let (_, device) = device(geometry, Config { buffer: 2, ..config });
        let first = device.begin().unwrap();
        (0..100).for_each(|lpn| write(&device, first, lpn, 1).unwrap());
        device.commit(SITE, &[first]).unwrap();
        let sure = device.guarantees().sure_overwrites;
        assert!(sure > 10, "{sure}");
        for _ in 0..5 {
            let txs: Vec<Txid> = (0..sure).map(|_| device.begin().unwrap()).collect();
            for (n, tx) in (0..).zip(&txs) {
                write(&device, *tx, n * 7 % 100, 2).unwrap_or_else(|error| panic!("{n} of {sure}: {error}"));
            }
            txs.iter().for_each(|tx| device.commit(SITE, &[*tx]).unwrap());
        }
    }
}

/// A block that is written as fresh gives its page up.
#[test]
fn a_fresh_write_needs_no_room_beside_the_old_version() {
    let (geometry, config) = sizes(1, 8, 60, 11);
    let (_, device) = device(geometry, config);
    (0..60).for_each(|lpn| plain(&device, lpn, 1).unwrap());
    for round in 2..9 {
        let tx = device.begin().unwrap();
        let fresh = |lpn: u32| device.write(SITE, tx, Lba(lpn.into()), &page(round), Placement::Fresh, Tag::Data);
        (0..60).for_each(|lpn| fresh(lpn).unwrap());
        device.commit(SITE, &[tx]).unwrap();
        (0..60).for_each(|lpn| assert_eq!(value(&device, None, lpn).unwrap(), round));
    }
}

/// Wrong calls are refused, and change nothing.
#[test]
fn wrong_calls_are_invalid() {
    let (geometry, config) = sizes(1, 8, 20, 8);
    let (_, device) = device(geometry, config);
    let (tx, other) = (device.begin().unwrap(), device.begin().unwrap());
    write(&device, tx, 3, 1).unwrap();
    device.abort(SITE, other).unwrap();
    let invalid = |done: Result<()>| assert!(matches!(done, Err(Error::Invalid(_))), "{done:?}");
    invalid(write(&device, tx, 20, 1));
    invalid(write(&device, other, 1, 1));
    invalid(device.discard(SITE, tx, run(19, 2)));
    invalid(device.abort(SITE, other));
    invalid(device.commit(SITE, &[tx, other]));
    invalid(device.commit(SITE, &[tx, tx]));
    invalid(device.commit(SITE, &[Txid(0)]));
    invalid(plain(&device, 20, 1));
    invalid(device.trim(SITE, run(0, 21)));
    assert!(matches!(plain(&device, 3, 1), Err(Error::Busy(..))), "T12");
    assert!(matches!(device.trim(SITE, run(0, 20)), Err(Error::Busy(..))), "T12");
    assert_eq!(value(&device, None, 3).unwrap(), 0);
    device.commit(SITE, &[]).unwrap();
    device.commit(SITE, &[tx]).unwrap();
    assert_eq!(value(&device, None, 3).unwrap(), 1);
}

/// Profiles are devices that can be made, of any size.
#[test]
fn profiles_have_room_for_what_they_say() {
    for profile in Profile::ALL {
        assert_eq!(Profile::by_name(profile.name()), Some(profile));
        for bytes in [1 << 20, 64 << 20, 2 << 30, 1 << 40_u64] {
            let (geometry, config) = profile.plan(bytes).unwrap();
            assert_eq!(u64::from(config.logical) * PAGE as u64, bytes);
            assert_eq!(config.name(), profile.name());
            assert!(u64::from(config.logical) <= config.most_logical(geometry.channels, geometry.pages));
        }
        assert!(profile.plan(4095).is_err() && profile.plan(0).is_err() && profile.plan(1 << 60).is_err());
    }
    let (geometry, config) = Profile::OpenSsd.plan(64 << 20).unwrap();
    let (_, device) = device(geometry, config);
    assert!(device.guarantees().sure_overwrites > 1000);
    plain(&device, 16383, 4).unwrap();
    assert_eq!(value(&device, None, 16383).unwrap(), 4);
}

/// Erases are counted, over lives, and blocks are worn evenly by overwrites that are spread evenly.
#[test]
fn wear_is_counted() {
    let (geometry, config) = sizes(2, 8, 100, 20);
    let (flash, device) = device(geometry, Config { buffer: 1, ..config });
    let mut random = Random(3);
    (0..20_000).for_each(|n| plain(&device, random.below(100) as u32, n).unwrap());
    device.checkpoint().unwrap();
    device.checkpoint().unwrap();
    let erases = device.programs().erases;
    drop(device);
    let found = stat(flash.clone()).unwrap();
    let (fewest, most, all) = found.wear;
    // The ring has the rest.
    assert_eq!(found.programs.erases, erases);
    assert!(all <= erases && all > erases / 2, "{all} of {erases}");
    assert!(fewest * 3 > most, "{fewest} to {most}");
    let _next_life = Device::open(flash.clone()).unwrap();
    assert!(stat(flash).unwrap().wear.2 >= all);
}
