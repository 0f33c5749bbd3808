//! Volumes of each version of the format, and damaged twins, as they were made once: bytes on media mean what they
//! meant. Each is an image, compressed by gzip. Those with a log were not unmounted: in those of `fine_grained_wal` and
//! `shortcut_jfs` is a group that is committed and not settled; with `hybrid_log`, `page_cache_wal` and `op_log`,
//! content waits to be written back; in that of `undo` is a group that is in place and not committed; with `shadow`,
//! the root record of the log leads to what the superblock does not.
//!
//! A new version of the format adds images (`cargo test -p wholly-volume --test all fixtures::make -- --ignored`),
//! and keeps these as long as it reads them.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use wholly_media::{PersistenceDomain, Region, Site};
use wholly_posix::Tree;
use wholly_sim::{Medium, Mutation, MutationKind, PmemMode, SimConfig, World};
use wholly_vfs::{Errno, Ino, OFlags, SetXattr};
use wholly_volume::format::Lba;
use wholly_volume::format::head::HeadTable;
use wholly_volume::format::superblock::{Superblock, VERSION};
use wholly_volume::{DataMode, EngineKind, Repair, Volume, VolumeOptions, VolumeVfs};

const BYTES: u64 = 512 << 10;
const BLOCK: usize = 4096;
const TEST: Site = Site("test");

/// There is no version 3.
const VERSIONS: [u32; 3] = [1, 2, 4];

struct Fixture {
    engine: EngineKind,
    /// The mode that it was made with, where that is not the default.
    data: Option<DataMode>,
    /// In each version of the format, from the first one on that has the engine.
    images: &'static [&'static [u8]],
    twins: &'static [&'static [u8]],
    /// What is in the middle of the file.
    byte: u8,
    /// What is wrong with the twin.
    wrong: &'static [&'static str],
    /// What is in the middle of the file once the twin is repaired, if there still is a file that says something.
    repaired: Option<u8>,
}

macro_rules! versions {
    ($name:literal) => {
        [
            include_bytes!(concat!("fixtures/volume-1-", $name, ".img.gz")),
            include_bytes!(concat!("fixtures/volume-2-", $name, ".img.gz")),
            include_bytes!(concat!("fixtures/volume-4-", $name, ".img.gz")),
        ]
    };
}

const FIXTURES: [Fixture; 10] = [
    Fixture {
        engine: EngineKind::None,
        data: None,
        images: &versions!("none"),
        twins: &versions!("none-damaged"),
        byte: 5,
        wrong: &[
            "inode 17: line 0 of an inode has a wrong check",
            "directory 1: \"file\" names inode 17, which is not in use",
        ],
        repaired: None,
    },
    Fixture {
        engine: EngineKind::FineGrainedWal,
        data: None,
        images: &versions!("fine_grained_wal"),
        twins: &versions!("fine_grained_wal-damaged"),
        byte: 9,
        wrong: &["the log: a committed group is damaged"],
        repaired: None,
    },
    Fixture {
        engine: EngineKind::HybridLog,
        data: None,
        images: &versions!("hybrid_log"),
        twins: &versions!("hybrid_log-damaged"),
        byte: 9,
        wrong: &["block 0 of inode 17: pending block 27: its lines have a wrong checksum"],
        repaired: Some(5),
    },
    Fixture {
        engine: EngineKind::Undo,
        data: None,
        images: &versions!("undo"),
        twins: &versions!("undo-damaged"),
        byte: 5,
        wrong: &[
            "inode 17: line 0 of an inode has a wrong check",
            "directory 1: \"file\" names inode 17, which is not in use",
        ],
        repaired: None,
    },
    Fixture {
        engine: EngineKind::Shadow,
        data: None,
        images: &versions!("shadow"),
        twins: &versions!("shadow-damaged"),
        byte: 9,
        wrong: &[
            "inode 17: line 0 of an inode has a wrong check",
            "directory 1: \"file\" names inode 17, which is not in use",
        ],
        repaired: None,
    },
    Fixture {
        engine: EngineKind::PageCacheWal,
        data: None,
        images: &versions!("page_cache_wal"),
        twins: &versions!("page_cache_wal-damaged"),
        byte: 9,
        wrong: &["extended attributes of inode 17: they have a wrong checksum"],
        repaired: None,
    },
    Fixture {
        engine: EngineKind::OpLog,
        data: None,
        images: &[include_bytes!("fixtures/volume-4-op_log.img.gz")],
        twins: &[include_bytes!("fixtures/volume-4-op_log-damaged.img.gz")],
        byte: 9,
        wrong: &["bitmap block 0 of blocks: a bitmap block has a wrong checksum"],
        repaired: Some(9),
    },
    Fixture {
        engine: EngineKind::MultiQueue,
        data: None,
        images: &[include_bytes!("fixtures/volume-4-multi_queue.img.gz")],
        twins: &[include_bytes!("fixtures/volume-4-multi_queue-damaged.img.gz")],
        byte: 9,
        wrong: &["bitmap block 0 of blocks: a bitmap block has a wrong checksum"],
        repaired: Some(9),
    },
    Fixture {
        engine: EngineKind::MultiQueue,
        data: Some(DataMode::Journal),
        images: &[include_bytes!("fixtures/volume-4-multi_queue-journal.img.gz")],
        twins: &[include_bytes!("fixtures/volume-4-multi_queue-journal-damaged.img.gz")],
        byte: 9,
        wrong: &["bitmap block 0 of blocks: a bitmap block has a wrong checksum"],
        repaired: Some(9),
    },
    Fixture {
        engine: EngineKind::ShortcutJfs,
        data: None,
        images: &versions!("shortcut_jfs"),
        twins: &versions!("shortcut_jfs-damaged"),
        byte: 9,
        wrong: &["the log: a committed group is damaged"],
        repaired: None,
    },
];

fn config(mutations: Vec<Mutation>) -> Arc<SimConfig> {
    Arc::new(SimConfig {
        log: Medium::Pmem { domain: PersistenceDomain::MemoryController, mode: PmemMode::Adversarial },
        log_len: BYTES,
        mutations,
        ..SimConfig::pmem()
    })
}

fn options(engine: EngineKind) -> VolumeOptions {
    VolumeOptions { engine: Some(engine), cache_bytes: 1 << 20, label: "fixture".into(), ..VolumeOptions::default() }
}

/// What an image is called.
fn named(engine: EngineKind, data: Option<DataMode>) -> String {
    data.map_or(engine.name().into(), |data| format!("{}-{}", engine.name(), data.name()))
}

pub fn gzip(option: &str, bytes: &[u8]) -> Vec<u8> {
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

fn region(image: &[u8]) -> Arc<dyn Region> {
    let world = World::new(config(Vec::new()));
    let region = world.log();
    region.write(TEST, 0, image).expect("write");
    region.fence(TEST).expect("fence");
    region
}

/// Of the file, if a byte is given for its middle.
fn expect_content(region: &Arc<dyn Region>, engine: EngineKind, byte: Option<u8>) {
    let volume = Volume::open_region(region.clone(), &options(engine)).expect("open it");
    let stat = volume.stat();
    assert_eq!((&stat.label[..], &stat.engine[..], stat.blocks), ("fixture", engine.name(), BYTES / 4096));
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    if let Some(byte) = byte {
        let content = [vec![5; 1000], vec![byte; 3000], vec![5; 6000]].concat();
        assert_eq!(tree.content("file").expect("read"), content);
        assert_eq!(tree.xattr("file", "user.name").expect("an attribute"), b"value");
    }
    assert_eq!(tree.content("dir/sparse").expect("read").len(), 3 << 20);
    assert_eq!(tree.readlink("link").expect("a link"), b"dir/sparse");
    assert_eq!(tree.names("dir").expect("list").len(), 41);
    drop(tree);
    drop(vfs);
    volume.close().expect("close it");
}

#[test]
fn volumes_of_each_version_are_opened_and_their_twins_refused() {
    let both = |Fixture { engine, data, images, twins, byte, wrong, repaired }| {
        let versions = images.iter().zip(twins).zip(&VERSIONS[VERSIONS.len() - images.len()..]);
        let of = (engine, data);
        versions.map(move |((image, twin), version)| (of, *image, *twin, byte, wrong, repaired, *version))
    };
    for ((engine, data), image, twin, byte, wrong, left, version) in FIXTURES.into_iter().flat_map(both) {
        let name = format!("{} in version {version}", named(engine, data));
        let sound = region(&gzip("-d", image));
        let checked = Volume::check_region(&*sound).expect("check it");
        assert_eq!((checked.findings, checked.is_clean), (vec![], engine == EngineKind::None), "{name}");
        let volume = Volume::open_region(sound.clone(), &VolumeOptions { data, ..options(engine) });
        volume.expect("it has this mode").close().expect("close it");
        expect_content(&sound, engine, Some(byte));
        assert_eq!(Volume::check_region(&*sound).expect("check it").findings, [], "{name}");
        assert_eq!(current(&*sound).version, version, "what has made it opens it still");

        let damaged = region(&gzip("-d", twin));
        let findings = Volume::check_region(&*damaged).expect("check it").findings;
        let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(findings, wrong, "{name}");
        match (engine, Volume::open_region(damaged.clone(), &options(engine))) {
            // Its allocators were saved, or only a block that waits is damaged: it is read where it is not damaged.
            (EngineKind::None | EngineKind::HybridLog, Ok(volume)) => {
                let vfs = VolumeVfs::new(&volume);
                let refused = Tree::new(&vfs, Ino::ROOT).content("file").expect_err("it is damaged");
                assert_eq!(refused, Errno::UCLEAN);
                assert_eq!(volume.close().is_ok(), engine == EngineKind::None, "{name}");
            }
            (EngineKind::PageCacheWal, Ok(volume)) => {
                let vfs = VolumeVfs::new(&volume);
                let refused = Tree::new(&vfs, Ino::ROOT).xattr("file", "user.name").expect_err("it is damaged");
                assert_eq!(refused, Errno::UCLEAN);
                volume.close().expect("close it");
            }
            (EngineKind::None | EngineKind::HybridLog, opened) => panic!("{name}: {opened:?}"),
            (_, Err(wholly::Error::Corrupt { .. })) => {}
            (_, opened) => panic!("{name}: {opened:?}"),
        }
        let how = (Repair::All, false);
        let repaired = Volume::repair_region(&damaged, &options(engine), how, &mut |_| ControlFlow::Continue(()));
        assert_eq!(repaired.expect("repair it").left, [], "{name}");
        assert_eq!(Volume::check_region(&*damaged).expect("check it").findings, [], "{name}");
        expect_content(&damaged, engine, left);
    }
}

const GIVEN_BACK: [&[u8]; 3] = versions!("given-back");
const GIVEN_BACK_DAMAGED: [&[u8]; 3] = versions!("given-back-damaged");

/// The inode file has holes, before and behind the block of the only file, which was made as number 173. Its generation
/// is 3, and so is that of all that were there. In the twin, the record is damaged.
#[test]
fn a_volume_that_has_given_back_blocks_is_opened() {
    GIVEN_BACK.into_iter().zip(GIVEN_BACK_DAMAGED).for_each(|(image, twin)| expect_given_back(image, twin));
}

fn expect_given_back(image: &[u8], twin: &[u8]) {
    let engine = EngineKind::PageCacheWal;
    let sound = region(&gzip("-d", image));
    let mut features = [0; 8];
    sound.read(24, &mut features).expect("read");
    assert_eq!(u64::from_le_bytes(features), 4, "other versions refuse it");
    let checked = Volume::check_region(&*sound).expect("check it");
    assert_eq!((checked.findings, checked.is_clean, checked.files), (vec![], true, 1));
    let generation = |ino| {
        let dumped = Volume::dump_region(&*sound, Some(wholly_volume::Object::Inode(ino)));
        dumped.expect("dump it").inode.and_then(|it| it.owned).expect("a record").generation
    };
    assert_eq!(generation(173), 3);
    let volume = Volume::open_region(sound.clone(), &options(engine)).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    assert_eq!(tree.content("kept").expect("read"), b"content");
    assert_eq!((volume.stat().inodes, volume.stat().idle_blocks), (5 * 16, 0));
    let made: Vec<u64> = (0..80)
        .map(|i| tree.file(format!("{i}"), 0o644, b"").and_then(|file| file.stat()))
        .map(|attr| attr.expect("make a file").ino.0)
        .collect();
    drop(tree);
    drop(vfs);
    volume.close().expect("close it");
    let (again, new): (Vec<u64>, Vec<u64>) = made.into_iter().partition(|ino| *ino < 64 || ino / 16 == 173 / 16);
    assert!(!new.is_empty() && again.len() > 50);
    new.into_iter().for_each(|ino| assert_eq!(generation(ino), 4, "inode {ino}"));

    let damaged = region(&gzip("-d", twin));
    let findings = Volume::check_region(&*damaged).expect("check it").findings;
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let wrong = "inode 173: line 0 of an inode has a wrong check";
    assert_eq!(findings, [wrong, "directory 1: \"kept\" names inode 173, which is not in use"]);
    let how = (Repair::All, false);
    let repaired = Volume::repair_region(&damaged, &options(engine), how, &mut |_| ControlFlow::Continue(()));
    assert_eq!(repaired.expect("repair it").left, []);
    assert_eq!(Volume::check_region(&*damaged).expect("check it").findings, []);
}

/// Three times, all numbers up to 215 are used and given up; at last one file stays.
fn with_holes() -> Arc<World> {
    let engine = EngineKind::PageCacheWal;
    let world = World::new(config(Vec::new()));
    Volume::format_region(&*world.log(), &options(engine)).expect("make a volume");
    for round in 0..3 {
        let volume = Volume::open_region(world.log(), &options(engine)).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        (16..216).for_each(|i| _ = tree.file(format!("{i}"), 0o644, b"").expect("make a file"));
        let kept = (16..216).find(|i| tree.stat(format!("{i}")).expect("it is there").ino.0 == 173);
        if round == 2 {
            tree.rename(format!("{}", kept.expect("it is one")), "kept").expect("rename it");
            tree.open("kept", OFlags::RDWR).and_then(|it| it.write_all(0, b"content")).expect("write");
        }
        let names = tree.names("/").expect("list");
        names.iter().filter(|name| name.name != b"kept").for_each(|it| tree.unlink(&it.name).expect("remove it"));
        drop(tree);
        drop(vfs);
        volume.close().expect("close it");
    }
    world
}

/// The superblock that counts.
fn current(region: &dyn Region) -> Superblock {
    let copies = Volume::dump_region(region, None).expect("dump it").superblocks;
    let all = copies.into_iter().filter_map(|copy| copy.decoded.ok());
    all.max_by_key(|superblock| superblock.generation).expect("a superblock")
}

/// A version or a feature that is not known is no damage: nothing is repaired, whichever copy has it.
#[test]
fn a_volume_of_a_later_version_is_refused_and_left_as_it_is() {
    let engine = EngineKind::FineGrainedWal;
    for (version, features, at) in
        [0, 1, BYTES / 4096 - 1].into_iter().flat_map(|at| [(VERSION + 1, 0, at), (VERSION, 64, at)])
    {
        let region = region(&gzip("-d", FIXTURES[1].images[2]));
        let mut block = Superblock { version, ..current(&*region) }.encode(Lba(at));
        block[24..32].copy_from_slice(&u64::to_le_bytes(features));
        Superblock::seal(&mut block, Lba(at));
        region.write(TEST, at * BLOCK as u64, &block).expect("write it");
        region.fence(TEST).expect("fence");
        let image = |region: &dyn Region| {
            let mut image = vec![0; BYTES as usize];
            region.read(0, &mut image).expect("read");
            image
        };
        let before = image(&*region);
        let is_refused = |error| {
            let wholly::Error::Unsupported(why) = error else { panic!("{error:?}") };
            assert!(why.contains("later version of Wholly"), "{why}");
        };
        is_refused(Volume::open_region(region.clone(), &options(engine)).expect_err("open it"));
        is_refused(Volume::check_region(&*region).expect_err("check it"));
        let how = (Repair::All, true);
        let repaired = Volume::repair_region(&region, &options(engine), how, &mut |_| ControlFlow::Continue(()));
        is_refused(repaired.expect_err("repair it"));
        is_refused(Volume::resize_region(&*region, BYTES / 2).expect_err("resize it"));
        assert!(image(&*region) == before, "block {at}");
    }
}

/// Which log a volume has its engine says, and not what the superblock names besides. Without the log that the engine
/// must have, something is wrong.
#[test]
fn the_engine_says_which_log_there_is() {
    let Fixture { images: [.., image], twins: [.., twin], wrong, .. } = &FIXTURES[1] else {
        unreachable!("it has images")
    };
    let changed = |image: &[u8], change: &dyn Fn(&mut Superblock)| {
        let region = region(&gzip("-d", image));
        let mut superblock = current(&*region);
        change(&mut superblock);
        for at in [0, 1, superblock.blocks - 1] {
            region.write(TEST, at * BLOCK as u64, &superblock.encode(Lba(at))).expect("write it");
        }
        let findings = Volume::check_region(&*region).expect("check it").findings;
        findings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let free = Volume::check_region(&*region(&gzip("-d", image))).expect("check it").last_used_block + 1;
    let name_heads = |it: &mut Superblock| it.heads = Some(HeadTable::for_volume(Lba(free), it.blocks));
    assert_eq!(changed(image, &name_heads), [""; 0]);
    assert_eq!(changed(twin, &name_heads), *wrong);
    assert_eq!(changed(image, &|it| it.log = None), ["superblock: the engine has no log"]);
}

/// Makes the images that are not there.
#[test]
#[ignore = "the images of a version are made once"]
fn make() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/volume/fixtures");
    let save = |name: &str, image: &[u8]| {
        let path: PathBuf = folder.join(format!("volume-{VERSION}-{name}.img.gz"));
        if !path.exists() {
            std::fs::write(path, gzip("-9", image)).expect("save it");
        }
    };
    let world = with_holes();
    let mut image = vec![0; BYTES as usize];
    world.log().read(0, &mut image).expect("read");
    save("given-back", &image);
    let dumped = Volume::dump_region(&*world.log(), Some(wholly_volume::Object::Path(b"kept")));
    let (block, offset) = dumped.expect("dump it").inode.and_then(|it| it.at).expect("a record");
    image[block as usize * BLOCK + offset + 4] ^= 1;
    save("given-back-damaged", &image);
    let all = EngineKind::ALL.iter().map(|engine| (*engine, None));
    for (engine, data) in all.chain([(EngineKind::MultiQueue, Some(DataMode::Journal))]) {
        let world = World::new(config(Vec::new()));
        let options = VolumeOptions { data, ..options(engine) };
        Volume::format_region(&*world.log(), &options).expect("make a volume");
        let volume = Volume::open_region(world.log(), &options).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.mkdir("dir", 0o755).expect("make a directory");
        tree.file("file", 0o640, &[5; 10_000]).expect("make a file");
        tree.set_xattr_with("file", "user.name", b"value", SetXattr::Create).expect("set an attribute");
        let sparse = tree.file("dir/sparse", 0o600, &[6; 100]).expect("make a file");
        sparse.truncate(3 << 20).expect("make it longer");
        drop(sparse);
        for i in 0..40 {
            tree.file(format!("dir/name-{i}"), 0o644, b"").expect("make a file");
        }
        tree.symlink("link", "dir/sparse").expect("make a link");
        drop(tree);
        drop(vfs);
        volume.close().expect("close it");
        let world = match engine {
            EngineKind::None => world,
            _ => in_flight(&world, engine),
        };
        let mut image = vec![0; BYTES as usize];
        world.log().read(0, &mut image).expect("read");
        save(&named(engine, data), &image);
        match engine {
            EngineKind::None | EngineKind::Undo | EngineKind::Shadow => {
                // Line 0 of the file.
                let dumped = Volume::dump_region(&*world.log(), Some(wholly_volume::Object::Path(b"file")));
                let (block, offset) = dumped.expect("dump it").inode.and_then(|it| it.at).expect("a record");
                image[block as usize * BLOCK + offset + 4] ^= 1;
            }
            // The bitmap of blocks.
            EngineKind::OpLog | EngineKind::MultiQueue => image[2 * BLOCK + 100] ^= 1,
            EngineKind::PageCacheWal => {
                // Damage of the only group in the log would be a crash in its commit: an attribute, at home.
                let value = (0..image.len()).rfind(|at| image[*at..].starts_with(b"value"));
                image[value.expect("it is stored")] ^= 1;
            }
            _ => {
                // What the group has written, in the log or where it waits.
                let logged = |from: usize| (from..image.len()).find(|at| image[*at..].starts_with(&[9; 64]));
                let mut payload = logged(2 * BLOCK).expect("it is logged");
                if engine == EngineKind::ShortcutJfs {
                    // That of the second write: the first one is settled.
                    payload = logged((payload / BLOCK + 1) * BLOCK).expect("it is logged");
                }
                image[payload + 5] ^= 1;
            }
        }
        save(&format!("{}-damaged", named(engine, data)), &image);
    }
}

/// The process dies while it writes, or after that.
fn in_flight(world: &Arc<World>, engine: EngineKind) -> Arc<World> {
    // The medium fails when data goes home, or when the group would be committed: from then on nothing is stored. The
    // engine that undoes moves one of the two blocks that are written to, and logs the old content of the other.
    let (site, len) = match engine {
        EngineKind::FineGrainedWal => (Some("wal.home"), 3000),
        EngineKind::ShortcutJfs => (Some("wal.home"), 1500),
        EngineKind::Undo => (Some("undo.commit"), 4700),
        _ => (None, 3000),
    };
    // The engine that moves blocks makes two writes, each of less than half of a block. The second one fails.
    let nth = (engine == EngineKind::ShortcutJfs).then_some(1);
    let fails = |site| Mutation { site: Site(site), kind: MutationKind::Fail(rustix::io::Errno::IO), nth };
    let world = World::from_image(&world.latest(), config(site.map(fails).into_iter().collect()));
    let volume = Volume::open_region(world.log(), &options(engine)).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.open("file", OFlags::RDWR).expect("open");
    let mut written = file.write(1000, &vec![9; len]);
    if nth.is_some() {
        written = written.and_then(|_| file.write(2500, &vec![9; len]));
    }
    assert_eq!(written.is_err(), site.is_some(), "{written:?}");
    if engine == EngineKind::HybridLog {
        // Of the last group of a lane, damage counts as a crash in its commit: there are others after this one.
        let sparse = tree.open("dir/sparse", OFlags::RDWR).expect("open");
        (0..40).for_each(|_| sparse.write_all(0, &[6; 100]).expect("write"));
    }
    drop((file, tree));
    std::mem::forget((vfs, volume));
    world
}
