//! Images with holes in memory: a load or store in a hole would be a `SIGBUS` once the host is full. Here it is a
//! panic.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_media::{Error, Guarantees, Region, Site};
use wholly_posix::Tree;
use wholly_vfs::{Errno, Fallocate, Ino, OFlags, Result, Vfs};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

const BLOCK: u64 = 4096;
/// Blocks of the image, and those that the host has at first.
const BLOCKS: usize = 16 << 10;
const HOST: usize = 2 << 10;
/// Blocks that it gets later.
const MORE: usize = 1 << 10;
/// Bytes of a file.
const FILE: usize = 100_000;

/// A file on a host with little memory.
struct Sparse {
    memory: PmemRegion,
    host: Mutex<Host>,
}

struct Host {
    /// Blocks of the file that have memory.
    taken: Vec<bool>,
    left: usize,
    /// Whether the volume answers for the holes.
    are_handed_over: bool,
}

impl Host {
    fn take(&mut self, blocks: Range<usize>) -> bool {
        let wanted = blocks.clone().filter(|block| !self.taken[*block]).count();
        let takes = wanted <= self.left;
        if takes {
            self.left -= wanted;
            self.taken[blocks].fill(true);
        }
        takes
    }
}

fn blocks(offset: u64, len: u64) -> Range<usize> {
    (offset / BLOCK) as usize..(offset + len).div_ceil(BLOCK) as usize
}

impl Sparse {
    fn new() -> Arc<Sparse> {
        let file = memfd_create("image", MemfdFlags::CLOEXEC).expect("a file in memory");
        ftruncate(&file, BLOCKS as u64 * BLOCK).expect("its length");
        let memory = PmemRegion::open(file, PmemOptions::default()).expect("a region");
        let host = Host { taken: vec![false; BLOCKS], left: HOST, are_handed_over: false };
        Arc::new(Sparse { memory, host: Mutex::new(host) })
    }

    /// As another process finds the file: where only zeros are, there may be holes, as after `cp --sparse`.
    fn opened_again(&self) {
        let mut host = self.host.lock().unwrap();
        host.are_handed_over = false;
        for block in 0..BLOCKS {
            let mut bytes = [0; BLOCK as usize];
            self.memory.read(block as u64 * BLOCK, &mut bytes).expect("read");
            if host.taken[block] && bytes == [0; BLOCK as usize] {
                host.taken[block] = false;
                host.left += 1;
            }
        }
    }

    fn check(&self, offset: u64, len: usize) {
        let host = self.host.lock().unwrap();
        let is_hole = |block: &usize| !host.taken[*block];
        let hole = blocks(offset, len as u64).find(is_hole).filter(|_| host.are_handed_over);
        assert!(hole.is_none(), "SIGBUS: {len} bytes at {offset}");
    }
}

impl Region for Sparse {
    fn guarantees(&self) -> &Guarantees {
        self.memory.guarantees()
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.check(offset, buf.len());
        self.memory.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.check(offset, data.len());
        match self.host.lock().unwrap().take(blocks(offset, data.len() as u64)) {
            true => self.memory.write(site, offset, data),
            false => Err(Error::new("write", "image", Errno::NOSPC)),
        }
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.memory.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.write(site, offset, data)?;
        self.fence(site)
    }

    fn set_len(&self, _site: Site, _len: u64) -> wholly_media::Result<()> {
        unreachable!("it keeps its length")
    }

    fn hand_over_holes(&self) -> Vec<Range<u64>> {
        let mut host = self.host.lock().unwrap();
        host.are_handed_over = true;
        let free = (0..BLOCKS as u64).filter(|block| !host.taken[*block as usize]).collect::<Vec<_>>();
        let runs = free.chunk_by(|one, next| one + 1 == *next);
        runs.map(|run| run[0] * BLOCK..(run[run.len() - 1] + 1) * BLOCK).collect()
    }

    fn allocate(&self, offset: u64, len: u64) -> bool {
        self.host.lock().unwrap().take(blocks(offset, len))
    }
}

fn write(tree: &Tree<'_>, number: usize) -> Result<()> {
    let name = format!("file{number}");
    tree.file(&name, 0o644, b"")?;
    match tree.open(&name, OFlags::RDWR)?.write(0, &[number as u8; FILE])? {
        FILE => Ok(()),
        _ => Err(Errno::NOSPC),
    }
}

/// Writes files until there is no space, and removes the one that did not fit. Returns how many there are then.
fn fill(tree: &Tree<'_>, from: usize) -> usize {
    let end = (from..).find(|number| match write(tree, *number) {
        Ok(()) => false,
        Err(errno) => {
            assert_eq!(errno, Errno::NOSPC);
            true
        }
    });
    let end = end.expect("the host is full in the end");
    let removed = tree.unlink(format!("file{end}"));
    assert!(matches!(removed, Ok(()) | Err(Errno::NOENT)), "{removed:?}");
    end
}

/// Writes over a part of a file that is there: as it may need a block, it may fail.
fn write_over(tree: &Tree<'_>, number: usize) -> Result<()> {
    let file = tree.open(format!("file{number}"), OFlags::RDWR)?;
    (0..FILE as u64).step_by(8192).try_for_each(|at| file.write(at + 100, &[number as u8; 200]).map(drop))
}

/// Opens the volume for some calls, and ends the mount by an unmount or by death.
fn mounted<T>(image: &Arc<Sparse>, engine: EngineKind, dies: bool, calls: impl FnOnce(&Tree<'_>) -> T) -> T {
    image.opened_again();
    let options = VolumeOptions { engine: Some(engine), cache_bytes: 1 << 20, ..VolumeOptions::default() };
    let volume = Volume::open_region(image.clone(), &options).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let done = calls(&tree);
    vfs.sync(&tree.ctx).expect("sync");
    drop(vfs);
    if dies {
        volume.abandon()
    } else {
        volume.close().expect("close it")
    }
    image.opened_again();
    let checked = Volume::check_region(&**image).expect("check it");
    assert_eq!((checked.findings, checked.lost_copies), (vec![], vec![]), "{}", engine.name());
    done
}

fn expect(tree: &Tree<'_>, there: Range<usize>) {
    for number in there {
        let (found, wanted) = (tree.content(format!("file{number}")).expect("read"), vec![number as u8; FILE]);
        assert!(found == wanted, "{number}");
    }
}

#[test]
fn a_full_host_is_met_at_the_call() {
    for engine in EngineKind::ALL.iter().copied() {
        let image = Sparse::new();
        let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
        Volume::format_region(&*image, &options).expect("make a volume");
        let made = HOST - image.host.lock().unwrap().left;
        assert!(made < HOST / 4, "{}: a new volume takes {made} blocks", engine.name());
        for (dies, host) in [(false, HOST), (true, HOST + MORE)] {
            let end = mounted(&image, engine, dies, |tree| fill(tree, 0));
            let per_file = FILE.div_ceil(BLOCK as usize);
            assert!((host / per_file / 2..host / per_file).contains(&end), "{}: {end} files", engine.name());
            // What was removed has its space, and is there for others.
            let end = mounted(&image, engine, dies, |tree| {
                expect(tree, 0..end);
                let over: Vec<_> = (0..end).map(|number| write_over(tree, number)).collect();
                assert!(over.iter().all(|done| matches!(done, Ok(()) | Err(Errno::NOSPC))), "{over:?}");
                (0..end / 2).for_each(|number| tree.unlink(format!("file{number}")).expect("remove"));
                (end / 2..end).for_each(|number| write_over(tree, number).expect("there is space now"));
                expect(tree, end / 2..end);
                fill(tree, end)
            });
            // The host has some more.
            image.host.lock().unwrap().left += MORE;
            mounted(&image, engine, dies, |tree| {
                expect(tree, end / 2 + 1..end);
                let more = fill(tree, end);
                assert!(more > end, "{}", engine.name());
                expect(tree, end..more);
                let all = (0..more).map(|number| tree.unlink(format!("file{number}")));
                assert!(all.filter(|removed| removed.is_ok()).count() > 0);
            });
        }
    }
}

/// What the volume has no room for, whatever the host gives, takes no space of the host.
#[test]
fn what_is_refused_takes_no_space() {
    let region = Sparse::new();
    let options = VolumeOptions { engine: Some(EngineKind::HybridLog), ..VolumeOptions::default() };
    Volume::format_region(&*region, &options).expect("make a volume");
    let volume = Volume::open_region(region.clone(), &options).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let file = Tree::new(&vfs, Ino::ROOT).file("file", 0o600, b"content").expect("make a file");
    let before = region.host.lock().unwrap().left;
    let refused = file.allocate(Fallocate::Extend, 0, 2 * BLOCKS as u64 * BLOCK).expect_err("it is too large");
    assert_eq!((refused, region.host.lock().unwrap().left), (Errno::NOSPC, before));
    drop(file);
    drop(vfs);
    volume.close().expect("close it");
}
