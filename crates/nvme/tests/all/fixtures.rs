//! A journal on a controller of each version, and a damaged twin, as they were made once: bytes on the medium and in
//! the region mean what they meant. Each is compressed by gzip. Its maker has died with both queues full: four
//! transactions were waited for; six are in the window, all but the second of these on the medium. In the twin a bit of
//! a description is turned over.
//!
//! A new version adds files (`cargo test -p wholly-nvme --test all fixtures::make -- --ignored`), and keeps these as
//! long as it reads them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wholly_blocks::multi_queue::{DiskQueues, MultiQueue, Options, Proof};
use wholly_blocks::{BLOCK, Lba, Page, Placement, Run, Tag, TxBlocks};
use wholly_error::{Error, Result};
use wholly_media::disk::DiskRegion;
use wholly_media::{Guarantees, Region, Site};
use wholly_nvme::model::{Config, FILES, Faults, InMemory, Medium, Model, RegionFile};
use wholly_nvme::{Acknowledge, Controller, DeviceQueues, Options as DriverOptions, Transport, Window};
use wholly_scratch::TestDir;

const S: Site = Site("test");
const VOLUME: [u8; 16] = *b"a volume of test";
const BLOCKS: u64 = 64;
const LOG: Run = Run { start: Lba(BLOCKS), count: 2 + 2 * 32 };
const BYTES: u64 = (LOG.start.0 + LOG.count) * BLOCK as u64;
const REGION: u64 = 16 << 10;
/// What all transactions write.
const SHARED: u64 = 40;

macro_rules! files {
    ($($name:literal),*) => {
        [$((include_bytes!(concat!("fixtures/", $name, ".image.gz")) as &[u8],
            include_bytes!(concat!("fixtures/", $name, ".pmr.gz")) as &[u8])),*]
    };
}

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

fn model(medium: &Arc<InMemory>) -> Arc<Model> {
    let config = Config { has_write_cache: false, lba_bytes: 4096, queues: 3, ..Config::default() };
    Model::new("model", medium.clone(), config).unwrap()
}

fn open(model: &Arc<Model>, proof: Proof, is_new: bool) -> Result<MultiQueue> {
    let acknowledge = match proof {
        Proof::Checksum => Acknowledge::Finished,
        Proof::Window => Acknowledge::HeadDurable,
    };
    let options = DriverOptions { queues: 2, depth: 4, acknowledge, ..DriverOptions::default() };
    let queues = Arc::new(DeviceQueues::new(Controller::open(model.clone(), options)?)?);
    let options = Options { proof, in_turn: true, ..Options::default() };
    if is_new {
        MultiQueue::format(&*queues, LOG, VOLUME, &options)?;
    }
    MultiQueue::open(queues, (BLOCKS, LOG), VOLUME, options)
}

fn value(blocks: &dyn TxBlocks, at: u64) -> u64 {
    let mut bytes = [0; BLOCK];
    blocks.read(None, Lba(at), &mut bytes).unwrap();
    u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

fn medium_of((image, pmr): (&[u8], &[u8])) -> Arc<InMemory> {
    let medium = Arc::new(InMemory::new(BYTES, REGION));
    medium.write(0, 0, &gzip("-d", image)).unwrap();
    medium.region_store(S, 0, &gzip("-d", pmr)).unwrap();
    medium
}

#[test]
fn a_journal_of_this_version_is_recovered_and_its_twin_names_what_is_damaged() {
    // Of the window's transactions, those whose checksums hold count, or none.
    for ((file, proof), newest) in
        files!["journal-1-checksum", "journal-1-window"].into_iter().zip([Proof::Checksum, Proof::Window]).zip([5, 4])
    {
        let blocks = open(&model(&medium_of(file)), proof, false).unwrap();
        assert_eq!(value(&blocks, SHARED), newest, "{proof:?}");
        assert!(
            (1..=10).all(|number| value(&blocks, number) == if number <= newest { number } else { 0 }),
            "{proof:?}"
        );
    }
    for (file, proof) in files!["journal-1-checksum-damaged", "journal-1-window-damaged"]
        .into_iter()
        .zip([Proof::Checksum, Proof::Window])
    {
        match open(&model(&medium_of(file)), proof, false).map(|_| ()) {
            Err(Error::Corrupt { place, .. }) => assert_eq!(place, "the journal, queue 0, transaction 1", "{proof:?}"),
            opened => panic!("{proof:?}: {opened:?}"),
        }
    }
}

/// Blocks of a file that can only be read. What is written stays in memory.
struct Look {
    below: DiskRegion,
    above: Mutex<Vec<u8>>,
}

impl Region for Look {
    fn guarantees(&self) -> &Guarantees {
        self.below.guarantees()
    }
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> wholly_media::Result<()> {
        bytes.copy_from_slice(&self.above.lock().unwrap()[offset as usize..][..bytes.len()]);
        Ok(())
    }
    fn write(&self, _: Site, offset: u64, bytes: &[u8]) -> wholly_media::Result<()> {
        self.above.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn fence(&self, _: Site) -> wholly_media::Result<()> {
        Ok(())
    }
    fn write_through(&self, site: Site, offset: u64, bytes: &[u8]) -> wholly_media::Result<()> {
        self.write(site, offset, bytes)
    }
    fn set_len(&self, _: Site, _: u64) -> wholly_media::Result<()> {
        unreachable!("it keeps its length")
    }
}

/// Somebody who may only read the files of a device sees what an open would: nothing is reset, and nothing is written.
#[test]
fn somebody_looks() {
    for ((file, proof), newest) in
        files!["journal-1-checksum", "journal-1-window"].into_iter().zip([Proof::Checksum, Proof::Window]).zip([5, 4])
    {
        let directory = TestDir::on_disk();
        let bytes = [gzip("-d", file.0), gzip("-d", file.1)];
        for (name, bytes) in FILES.iter().zip(&bytes) {
            std::fs::write(directory.path().join(name), bytes).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o400);
            std::fs::set_permissions(directory.path().join(name), mode).unwrap();
        }
        let image = std::fs::File::open(directory.path().join(FILES[0])).unwrap();
        let below = DiskRegion::open_read_only(image.into(), "image").unwrap();
        let region = Arc::new(Look { below, above: Mutex::new(bytes[0].clone()) });
        let window = Window::read(&RegionFile::open(directory.path()).unwrap()).unwrap();
        let queues = DiskQueues::new(region, 2).telling((&window).into());
        let options = Options { proof, ..Options::default() };
        let blocks = MultiQueue::open(Arc::new(queues), (BLOCKS, LOG), VOLUME, options).unwrap();
        assert_eq!(value(&blocks, SHARED), newest, "{proof:?}");
        assert!((1..=10).all(|at| value(&blocks, at) == if at <= newest { at } else { 0 }), "{proof:?}");
        drop(blocks);
        for (name, bytes) in FILES.iter().zip(&bytes) {
            assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), *bytes);
        }
    }
}

#[test]
#[ignore = "makes files of this version"]
fn make() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/fixtures");
    for (name, proof) in [("checksum", Proof::Checksum), ("window", Proof::Window)] {
        let medium = Arc::new(InMemory::new(BYTES, REGION));
        let model = model(&medium);
        let blocks = open(&model, proof, true).unwrap();
        for number in 1..=10 {
            model.hold(number > 4);
            let tx = blocks.begin().unwrap();
            for at in [number, SHARED] {
                let mut page = Page::zeros();
                page.put(0, &number.to_le_bytes());
                blocks.write(S, tx, Lba(at), page, Placement::Overwrite, Tag::Data).unwrap();
            }
            let sequence = blocks.order(S, &[tx], &[]).unwrap();
            match number {
                1..=4 => blocks.wait(S, sequence).unwrap(),
                _ => blocks.send(S, sequence).unwrap(),
            }
        }
        // The device does all but one of it, and nobody looks.
        model.set_faults(Faults { stuck: Some(3), ..Faults::default() });
        model.hold(false);
        model.pause(9, model.now() + Duration::from_millis(1)).unwrap();
        let write = |name: &str, damaged: Option<usize>| {
            let mut image = vec![0; BYTES as usize];
            let mut region = vec![0; REGION as usize];
            medium.read(0, &mut image).unwrap();
            medium.region_read(0, &mut region).unwrap();
            damaged.into_iter().for_each(|at| image[at] ^= 1);
            for (kind, bytes) in [("image", &image), ("pmr", &region)] {
                std::fs::write(directory.join(format!("journal-1-{name}.{kind}.gz")), gzip("-9", bytes)).unwrap();
            }
        };
        write(name, None);
        // The first description of the first queue.
        write(&format!("{name}-damaged"), Some((LOG.start.0 as usize + 2) * BLOCK + 200));
    }
}
