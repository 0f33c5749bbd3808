//! That `docs/volume-format.md` suffices to read a volume. `reader/reader.py` was written from that page: it finds in
//! volumes of all engines, unmounted and after crashes, what our own code finds, and verifies each check.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use twox_hash::XxHash3_64;
use wholly_media::{PersistenceDomain, Region, Site};
use wholly_posix::Tree;
use wholly_sim::{EventKind, Medium, Mutation, MutationKind, PmemMode, SimConfig, World};
use wholly_vfs::{Fallocate, Groups, Ino, OFlags, Result};
use wholly_volume::format::log::{self, LogSeed};
use wholly_volume::format::pointer::{self, Pointer};
use wholly_volume::format::superblock::Superblock;
use wholly_volume::format::{Lba, Seed, Stream, dir};
use wholly_volume::{EngineKind, Object, Repair, Volume, VolumeVfs};

use super::groups::within;
use super::place::{Place, populate};
use super::repair::{Snapshot, options};

const BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;
const TEST: Site = Site("test");
const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/volume/reader");
const PAGE: &str = include_str!("../../../../../docs/volume-format.md");

/// All that can be verified in a volume, but for logs.
const KINDS: &[&str] = &[
    "superblock",
    "pointer",
    "line 0 of an inode",
    "line 1 of an inode",
    "line 2 of an inode",
    "line 3 of an inode",
    "directory entry",
    "name",
    "hash of a name",
    "extended attributes",
    "long target",
    "table of saved allocators",
    "saved allocators",
    "table of a repair",
    "copy of a repair",
    "bitmap block",
];

/// The same of the logs.
const OF_ENGINES: &[(EngineKind, &[&str])] = {
    const REDO: &[&str] = &[
        "undo",
        "data",
        "payload of data",
        "zero",
        "link",
        "commit",
        "chain",
        "settled word",
        "sum of a group",
        "sum of a chain",
    ];
    const RING: &[&str] =
        &["header of the ring", "head of a record", "image in a record", "image in a free block", "void blocks"];
    &[
        (EngineKind::FineGrainedWal, REDO),
        (EngineKind::ShortcutJfs, REDO),
        (EngineKind::Undo, &["undo", "old", "payload of old", "old zeros", "link", "commit"]),
        (
            EngineKind::HybridLog,
            &[
                "undo",
                "link",
                "commit",
                "settled word",
                "sum of a group",
                "head, here",
                "head, kept",
                "head, next",
                "lines",
            ],
        ),
        (EngineKind::Shadow, &["root"]),
        (EngineKind::PageCacheWal, RING),
        (EngineKind::OpLog, RING),
        (EngineKind::MultiQueue, &["header of the journal", "description", "image in the journal", "direct block"]),
    ]
};

/// Runs the reader's language. `None`, with the reason said, where it is missing.
fn python(arguments: &[&str], files: &[PathBuf]) -> Option<Output> {
    match Command::new("python3").arg("-B").args(arguments).args(files).current_dir(READER).output() {
        Ok(output) => Some(output),
        Err(error) => {
            let why = format!("python3: {error}; scripts/setup installs it");
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("skipped: {why}");
            None
        }
    }
}

/// What the reader says of a volume.
#[derive(Debug, Default)]
struct Read {
    /// By kind: how many checks are right, and a byte that one of them covers.
    checks: BTreeMap<String, (u64, usize)>,
    entries: BTreeSet<String>,
    faults: Vec<String>,
}

/// Has the reader read images.
fn read(images: &[Vec<u8>]) -> Vec<Read> {
    let dir = std::env::temp_dir().join(format!("wholly-reader-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("make a directory");
    let paths: Vec<PathBuf> = (0..images.len()).map(|i| dir.join(format!("{i}.img"))).collect();
    paths.iter().zip(images).for_each(|(path, image)| std::fs::write(path, image).expect("write an image"));
    let output = python(&["reader.py"], &paths).expect("it was there before");
    std::fs::remove_dir_all(&dir).expect("remove it");
    let said = String::from_utf8(output.stdout).expect("text");
    let mut all: Vec<Read> = Vec::new();
    for line in said.lines() {
        let (word, rest) = line.split_once(' ').expect("two words");
        if word == "volume" {
            all.push(Read::default());
            continue;
        }
        let read = all.last_mut().expect("a volume");
        match word {
            "check" => {
                let (kind, numbers) = rest.rsplit_once(": ").expect("a kind");
                let (count, at) = numbers.split_once(", ").expect("two numbers");
                read.checks.insert(kind.into(), (count.parse().expect("a count"), at.parse().expect("a byte")));
            }
            "entry" => assert!(read.entries.insert(rest.into()), "{rest}"),
            "fault" => read.faults.push(rest.into()),
            _ => panic!("{line}"),
        }
    }
    let is_sound = all.iter().all(|read| read.faults.is_empty());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((all.len(), output.status.code()), (images.len(), Some(i32::from(!is_sound))), "{errors}");
    all
}

/// CRC-32, as of gzip.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let table: [u32; 256] = std::array::from_fn(|byte| (0..8).fold(byte as u32, step));
    !bytes.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ table[(crc as u8 ^ byte) as usize])
}

/// What the reader is to list of a volume, as our own code sees it.
fn expected(image: &[u8]) -> BTreeSet<String> {
    let place = Place::blank(image.len() as u64);
    place.region.write(TEST, 0, image).expect("copy it");
    let snapshot = Snapshot::of(&place.region);
    let entry = |(path, ino): (&String, &u64)| {
        let seen = &snapshot.inodes[ino];
        let attributes = seen.xattrs.iter().flat_map(|(name, value)| [name.as_bytes(), b"\0", value, b"\0"].concat());
        let (mode, (uid, gid)) = (seen.kind.as_raw_mode() | seen.mode, seen.owner);
        let crcs = format!("{:08x} {:08x}", crc(&seen.content), crc(&attributes.collect::<Vec<_>>()));
        let shown = |byte: u8| match byte {
            b'!'..=b'~' if byte != b'\\' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        let path: String = if path.is_empty() { "/".into() } else { path.bytes().map(shown).collect() };
        format!("{ino} {mode:o} {uid}:{gid} {} {} {crcs} {path}", seen.rdev, seen.content.len())
    };
    snapshot.paths.iter().map(entry).collect()
}

/// The nth call at a place fails, or all.
type Failing = (&'static str, Option<u64>);

fn config(failing: Option<Failing>) -> Arc<SimConfig> {
    let fail = |(site, nth)| Mutation { site: Site(site), kind: MutationKind::Fail(rustix::io::Errno::IO), nth };
    Arc::new(SimConfig {
        log: Medium::Pmem { domain: PersistenceDomain::MemoryController, mode: PmemMode::Adversarial },
        log_len: BYTES,
        mutations: failing.map(fail).into_iter().collect(),
        ..SimConfig::pmem()
    })
}

fn image_of(world: &Arc<World>) -> Vec<u8> {
    let mut image = vec![0; BYTES as usize];
    world.log().read(0, &mut image).expect("read");
    image
}

type Work<'w> = &'w dyn Fn(&VolumeVfs, &Tree<'_>) -> Result<()>;

/// The process that has the volume dies after this, or where its medium fails.
fn dies(world: &Arc<World>, failing: Option<Failing>, work: Work<'_>) -> Arc<World> {
    let world = World::from_image(&world.latest(), config(failing));
    if let Ok(volume) = Volume::open_region(world.log(), &options()) {
        let vfs = VolumeVfs::new(&volume);
        let worked = work(&vfs, &Tree::new(&vfs, Ino::ROOT));
        assert_eq!(worked.is_err(), failing.is_some(), "{failing:?}: {worked:?}");
        std::mem::forget((vfs, volume));
    } else {
        assert!(failing.is_some());
    }
    world
}

/// The process dies after this, and where the last call at a place would fail.
fn dies_twice(world: &Arc<World>, site: &'static str, work: Work<'_>) -> [Vec<u8>; 2] {
    let whole = dies(world, None, work);
    let trace = whole.trace();
    let events = trace.events.iter().filter(|event| event.site == Some(Site(site)));
    // One that stores and fences is one call.
    let (fences, stores): (Vec<_>, Vec<_>) = events.partition(|event| matches!(event.kind, EventKind::Fence { .. }));
    let last = fences.len().max(stores.len()) as u64 - 1;
    [image_of(&whole), image_of(&dies(world, Some((site, Some(last))), work))]
}

/// A volume that was unmounted, with all that there can be.
fn unmounted(engine: EngineKind) -> Arc<World> {
    let world = World::new(config(None));
    let options = wholly_volume::VolumeOptions { engine: Some(engine), ..options() };
    Volume::format_region(&*world.log(), &options).expect("make a volume");
    let volume = Volume::open_region(world.log(), &options).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    populate(&vfs).expect("fill it");
    let tree = Tree::new(&vfs, Ino::ROOT);
    for len in [1, 2, 8, 16, 17, 128, 129, 240, 241, 255] {
        tree.file(format!("dir/{}", "m".repeat(len)), 0o600, &[len as u8; 9]).expect("make a file");
    }
    tree.file("dir/ \\\u{fc}\n", 0o600, b"").expect("make a file");
    tree.file("zeros", 0o600, &[0; 8192]).expect("make a file");
    tree.symlink("just short", "y".repeat(56)).expect("make a link");
    tree.symlink("just long", "y".repeat(57)).expect("make a link");
    drop(vfs);
    volume.close().expect("close it");
    world
}

/// Calls, each of which is a group.
fn calls(_: &VolumeVfs, tree: &Tree<'_>) -> Result<()> {
    let file = tree.open("file", OFlags::RDWR)?;
    for i in 0..6 {
        file.write_all(1000 + 4000 * i, &[i as u8; 1700])?;
    }
    tree.file("brief", 0o600, &[8; 5000])?;
    tree.unlink("brief")?;
    tree.unlink("dir/10-nnnnnnnnnn")?;
    tree.mkdir("dir/new", 0o755).map(drop)
}

/// An explicit group.
fn group(vfs: &VolumeVfs, tree: &Tree<'_>) -> Result<()> {
    let group = vfs.begin()?;
    let tree = within(tree, group);
    let file = tree.open("file", OFlags::RDWR)?;
    file.write_all(0, &[1; 9000])?;
    file.write_all(20_001, &[2; 700])?;
    file.allocate(Fallocate::ZeroExtend, 30_000, 500)?;
    tree.open("zeros", OFlags::RDWR)?.write_all(100, &[3; 700])?;
    tree.mkdir("made", 0o755)?;
    for i in 20..80 {
        tree.file(format!("made/{i}"), 0o644, &[7; 100])?;
        tree.chmod(format!("dir/{i}-{}", "n".repeat(i)), 0o600)?;
    }
    tree.rename("moved", "made/moved")?;
    Ok(vfs.commit(group)?)
}

/// Writes the settled word of the last group of the first lane, as a group of another lane does that builds on it.
fn settled(mut image: Vec<u8>) -> Vec<u8> {
    let all = [0, BLOCK].map(|at| Superblock::decode(&image[at..], Lba((at / BLOCK) as u64)).expect("a superblock"));
    let superblock = all.into_iter().max_by_key(|copy| copy.generation).expect("two");
    let (area, id) = (superblock.log.expect("a log"), Seed::of(&superblock.volume_id));
    let lane = LogSeed::of(id, superblock.incarnation).lane(0);
    let commits = [0, 1].map(|half| {
        let at = area.half(0, half).start.byte();
        let line = image[at as usize..][..log::LINE].try_into().expect("a line");
        (log::decode(lane, at, line).expect("a commit entry"), at + log::SETTLED)
    });
    let (read, at) = commits.into_iter().max_by_key(|(read, _)| read.sequence).expect("two");
    image[at as usize..][..8].copy_from_slice(&read.check.to_le_bytes());
    image
}

/// Volumes of an engine, by what has happened to them.
fn volumes(engine: EngineKind) -> Vec<(&'static str, Vec<u8>)> {
    let unmounted = unmounted(engine);
    let mut all = vec![("unmounted", image_of(&unmounted))];
    let called = dies(&unmounted, None, &calls);
    all.push(("calls", image_of(&called)));
    let commit = match engine {
        EngineKind::None => return all,
        EngineKind::FineGrainedWal | EngineKind::ShortcutJfs => "wal.commit",
        EngineKind::HybridLog => "hybrid.commit",
        EngineKind::Undo => "undo.commit",
        EngineKind::Shadow => "paging.shadow.fence",
        EngineKind::PageCacheWal | EngineKind::OpLog | EngineKind::MultiQueue => "pages.commit",
        _ => unreachable!("{engine:?}"),
    };
    let both = |vfs: &VolumeVfs, tree: &Tree<'_>| calls(vfs, tree).and_then(|()| group(vfs, tree));
    let [committed, running] = dies_twice(&unmounted, commit, &both);
    all.extend([("a group", committed), ("a group before its commit", running)]);
    match engine {
        EngineKind::FineGrainedWal | EngineKind::ShortcutJfs => {
            let home = Some(("wal.home", None));
            all.push(("a group after its commit", image_of(&dies(&unmounted, home, &group))));
            all.push(("a call after its commit", image_of(&dies(&unmounted, home, &calls))));
        }
        EngineKind::HybridLog => {
            let again = dies(&called, None, &|_, tree| tree.open("file", OFlags::RDWR)?.write_all(300, &[9; 70]));
            all.push(("mounted again", image_of(&again)));
            // The first store of a superblock is that of the one that is there.
            let superblock = Some(("volume.superblock", Some(1)));
            all.push(("an interrupted mount", image_of(&dies(&again, superblock, &|_, _| Ok(())))));
            all.push(("a settled group", settled(image_of(&called))));
            // The second call stores where the first one has: the sum of that is not right any more.
            let modes = |_: &VolumeVfs, tree: &Tree<'_>| {
                tree.chmod("dir", 0o711)?;
                tree.chmod("dir", 0o750).map(drop)
            };
            let [_, running] = dies_twice(&unmounted, commit, &modes);
            all.push(("a call on top of another", running));
        }
        EngineKind::PageCacheWal | EngineKind::OpLog | EngineKind::MultiQueue => {
            let long = |vfs: &VolumeVfs, tree: &Tree<'_>| {
                let file = tree.open("file", OFlags::RDWR)?;
                (0..40).try_for_each(|i| file.write_all(4096 * (i % 9), &[i as u8; 4096]))?;
                calls(vfs, tree)
            };
            all.push(("many calls", image_of(&dies(&unmounted, None, &long))));
            let files = |_: &VolumeVfs, tree: &Tree<'_>| {
                (0..700).try_for_each(|i| tree.file(format!("moved/{i}"), 0o600, b"").map(drop))
            };
            // Of more blocks than the ring has.
            let large = |vfs: &VolumeVfs, tree: &Tree<'_>| {
                let group = vfs.begin()?;
                let tree = within(tree, group);
                (0..700).try_for_each(|i| tree.chmod(format!("moved/{i}"), 0o640).map(drop))?;
                Ok(vfs.commit(group)?)
            };
            let home = Some((if engine == EngineKind::MultiQueue { "mq.home" } else { "pages.home" }, None));
            // The last group has content that was written straight home.
            let last = |_: &VolumeVfs, tree: &Tree<'_>| tree.file("last", 0o600, &[7; 4096]).map(drop);
            all.push(("fresh content", image_of(&dies(&unmounted, None, &last))));
            all.push(("a large group", image_of(&dies(&dies(&unmounted, None, &files), home, &large))));
        }
        _ => {}
    }
    all
}

/// A repair that was interrupted: what it stores is not in its place yet.
fn half_repaired() -> Vec<u8> {
    let world = unmounted(EngineKind::None);
    let dumped = Volume::dump_region(&*world.log(), Some(Object::Path(b"zeros"))).expect("dump it");
    let (block, offset) = dumped.inode.and_then(|it| it.at).expect("a record");
    let at = block * BLOCK as u64 + offset as u64 + 4;
    let world = World::from_image(&world.latest(), config(Some(("repair.home", None))));
    let region: Arc<dyn Region> = world.log();
    region.write(TEST, at, &[0xff]).and_then(|()| region.fence(TEST)).expect("damage it");
    let how = (Repair::All, false);
    Volume::repair_region(&region, &options(), how, &mut |_| ControlFlow::Continue(())).expect_err("it is interrupted");
    image_of(&world)
}

#[test]
fn the_page_suffices_to_read_a_volume() {
    if python(&["-c", ""], &[]).is_none() {
        return;
    }
    let of_engines = EngineKind::ALL.iter().flat_map(|engine| {
        volumes(*engine).into_iter().map(|(what, image)| (format!("{}: {what}", engine.name()), image))
    });
    let (mut names, mut images): (Vec<String>, Vec<Vec<u8>>) = of_engines.unzip();
    names.push("a repair".into());
    images.push(half_repaired());
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/volume/fixtures");
    for entry in std::fs::read_dir(fixtures).expect("list the fixtures") {
        let path = entry.expect("a fixture").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !name.contains("damaged") {
            images.push(super::fixtures::gzip("-d", &std::fs::read(&path).expect("read it")));
            names.push(name);
        }
    }
    let all = read(&images);
    let mut first: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (i, (name, read)) in names.iter().zip(&all).enumerate() {
        assert_eq!(read.faults, [""; 0], "{name}");
        assert_eq!(read.entries, expected(&images[i]), "{name}");
        assert!(read.entries.len() > 1, "{name}");
        for (kind, (_, at)) in &read.checks {
            let seen = first.entry(kind.clone()).or_insert((i, *at));
            if images[i].len() < images[seen.0].len() {
                *seen = (i, *at);
            }
        }
    }
    let of_logs = OF_ENGINES
        .iter()
        .flat_map(|(engine, kinds)| kinds.iter().map(move |kind| format!("{}: {kind}", engine.name())));
    let kinds: BTreeSet<String> = KINDS.iter().map(|kind| kind.to_string()).chain(of_logs).collect();
    assert_eq!(first.keys().cloned().collect::<BTreeSet<_>>(), kinds);

    // A byte of each is another. What ends at an entry that is not valid, as a log does, has fewer valid checks.
    let flip = |(i, at): &(usize, usize)| {
        let mut image = images[*i].clone();
        image[*at] ^= 0x10;
        image
    };
    let flipped: Vec<Vec<u8>> = first.values().map(flip).collect();
    for ((kind, (i, at)), read) in first.iter().zip(read(&flipped)) {
        let is_less =
            |(kind, (count, _)): (&String, &(u64, usize))| read.checks.get(kind).is_none_or(|(left, _)| left < count);
        let is_found = !read.faults.is_empty() || all[*i].checks.iter().any(is_less);
        assert!(is_found, "{}: byte {at}, of a check of kind {kind:?}, has changed: {:?}", names[*i], read.checks);
    }
}

/// The values that the page gives to try a reader by are those of the reader and of our own code.
#[test]
fn the_page_has_values_to_try() {
    let program = "import sys\n\
        from image import Seeds, mix\n\
        from xxh3 import xxh3\n\
        seeds = Seeds(bytes(range(16)), 5)\n\
        stream = seeds.stream(17, 3, 0)\n\
        print(f'V = {seeds.volume:#x}')\n\
        print(f'S = {stream:#x}')\n\
        print(f'L = {seeds.log:#x}')\n\
        print(f'A = {seeds.lane(2):#x}')\n\
        print(f'pointer = {mix(mix(stream, 7 << 3 | 0), 100) >> 40 << 40 | 100:#x}')\n\
        print(f'hash = {xxh3(seeds.volume, b\"name\") >> 9:#x}')\n\
        data = bytes(i * i * 7 >> 3 & 255 for i in range(5000))\n\
        for size in [*range(300), 1023, 1024, 1025, 2048, 2049, 4096, 5000]:\n\
        \x20   print(xxh3(seeds.log + size & (1 << 64) - 1, data[:size]))\n";
    let Some(output) = python(&["-c", program], &[]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).expect("text");
    let (values, hashes): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.contains('='));
    let value = |name: &str| {
        let line = values.iter().find(|line| line.starts_with(&format!("{name} = 0x"))).expect("it was said");
        u64::from_str_radix(&line[name.len() + 5..], 16).expect("a number")
    };
    let seed = Seed::of(&std::array::from_fn(|i| i as u8));
    let stream = seed.stream(17, 3, Stream::Data);
    assert_eq!(value("S"), stream);
    assert_eq!(value("pointer"), pointer::encode(stream, 0, 7, Pointer::to(Lba(100))));
    assert_eq!(value("hash"), dir::hash(seed, b"name"));
    let data: Vec<u8> = (0..5000u32).map(|i| ((i * i * 7) >> 3) as u8).collect();
    let sizes = (0..300).chain([1023, 1024, 1025, 2048, 2049, 4096, 5000]);
    assert_eq!(hashes.len(), sizes.clone().count());
    for (size, hash) in sizes.zip(hashes) {
        let expected = XxHash3_64::oneshot_with_seed(value("L").wrapping_add(size as u64), &data[..size]);
        assert_eq!(hash.parse(), Ok(expected), "{size} bytes");
    }
    for line in values {
        assert!(PAGE.contains(line), "the page has not: {line}");
    }
}
