//! Disk regions against plain buffers, on whatever holds temporary files and on tmpfs.

use super::*;
use proptest::prelude::*;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wholly_scratch::TestDir;

const SITE: Site = Site("test");

/// The directories to try, and whether their files shall be written through the page cache.
fn media() -> Vec<(TestDir, bool)> {
    let tmpfs = TestDir::on_tmpfs().into_iter().map(|dir| (dir, false));
    tmpfs.chain([(TestDir::on_disk(), false), (TestDir::on_disk(), true)]).collect()
}

fn open(dir: &TestDir, cached: bool) -> DiskRegion {
    let mut region = DiskRegion::open(dir.file("region"), "test").expect("open a region");
    if cached {
        region.direct = None;
        region.way = Way::CachedThenSync;
    }
    region
}

fn read(region: &dyn Region, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xaa; len];
    region.read(offset, &mut buf).expect("read");
    let mut uncached = vec![0xbb; len];
    region.read_uncached(offset, &mut uncached).expect("read uncached");
    assert!(buf == uncached, "{len} bytes at {offset}");
    buf
}

#[test]
fn tells_what_it_is() {
    let dir = TestDir::on_disk();
    let region = open(&dir, false);
    let guarantees = region.guarantees();
    assert_eq!((guarantees.kind, guarantees.domain), (Kind::Disk, PersistenceDomain::Device));
    assert_eq!(guarantees.atomic_unit, 512);
    assert!(guarantees.block.is_power_of_two() && guarantees.block >= 512);
    assert!(guarantees.description.contains("disk"), "{}", guarantees.description);
    assert!(region.is_direct() == guarantees.description.contains("direct synchronous"));
    // Finding out leaves nothing behind.
    assert!(region.is_empty() && dir.content("region").is_empty());
}

/// Blocks are those that later opens take, and what was filled in they find, synced or not.
#[test]
fn what_is_filled_is_opened_as_any_other() {
    let dirs = TestDir::on_tmpfs().into_iter().chain([TestDir::on_disk()]);
    for dir in dirs {
        let filled = DiskRegion::fill(dir.file("region"), "test").expect("a new file");
        assert!(filled.guarantees().description.contains("its maker syncs") && !filled.is_direct());
        let block = filled.guarantees().block as usize;
        filled.set_len(SITE, 8 * block as u64).expect("grow");
        filled.write(SITE, 3, &[1; 5]).expect("write");
        filled.fence(SITE).expect("fence");
        filled.write_through(SITE, 7 * block as u64, &vec![2; block]).expect("write through");
        let region = open(&dir, false);
        assert_eq!((region.len(), region.guarantees().block as usize), (8 * block as u64, block));
        assert_eq!(read(&region, 2, 7), [0, 1, 1, 1, 1, 1, 0]);
        assert_eq!(read(&region, 7 * block as u64, block), vec![2; block]);
    }
}

#[test]
fn opening_changes_no_byte() {
    for (dir, cached) in media() {
        let content: Vec<u8> = (0..10_000).map(|byte| byte as u8).collect();
        std::fs::write(dir.path().join("region"), &content).expect("write");
        let region = open(&dir, cached);
        let block = u64::from(region.guarantees().block);
        assert_eq!(region.len(), 10_000 - 10_000 % block);
        assert!(read(&region, 0, region.len() as usize) == content[..region.len() as usize]);
        assert!(dir.content("region") == content);
    }
}

#[test]
fn grows_by_written_zeros_and_shrinks() {
    for (dir, cached) in media() {
        let region = open(&dir, cached);
        let block = u64::from(region.guarantees().block);
        region.set_len(SITE, 5 * block).expect("grow");
        region.write(SITE, 0, &vec![1; 5 * block as usize]).expect("write");
        region.fence(SITE).expect("fence");
        let long = (3 << 20) + block;
        region.set_len(SITE, long).expect("grow");
        assert!(read(&region, 0, 5 * block as usize).iter().all(|&byte| byte == 1));
        assert!(read(&region, 5 * block, (long - 5 * block) as usize).iter().all(|&byte| byte == 0));
        assert_eq!(dir.content("region").len() as u64, long);

        region.set_len(SITE, 2 * block).expect("shrink");
        assert!(dir.content("region") == vec![1; 2 * block as usize]);
        region.set_len(SITE, 4 * block).expect("grow");
        assert!(read(&region, 2 * block, 2 * block as usize).iter().all(|&byte| byte == 0));
        assert_eq!(region.set_len(SITE, 4 * block + 1).expect_err("no block").errno, Errno::INVAL);
        assert_eq!(region.len(), 4 * block);
    }
}

#[test]
fn extends_by_zeros_that_have_their_space() {
    for (dir, cached) in media() {
        std::fs::write(dir.path().join("region"), [1; 10_000]).expect("write");
        let region = open(&dir, cached);
        let (old, long) = (region.len(), 3 << 20);
        region.extend(SITE, long).expect("extend");
        assert!(read(&region, 0, old as usize).iter().all(|&byte| byte == 1));
        assert!(
            read(&region, old, (long - old) as usize).iter().all(|&byte| byte == 0),
            "also what was part of a block"
        );
        let stat = std::fs::metadata(dir.path().join("region")).expect("stat");
        assert_eq!(stat.len(), long);
        assert!(stat.blocks() * 512 >= long, "{} blocks", stat.blocks());
        let block = region.guarantees().block as usize;
        region.write_through(SITE, long - block as u64, &vec![2; block]).expect("write");
        assert!(read(&region, long - block as u64, block).iter().all(|&byte| byte == 2));
        region.extend(SITE, old).expect("shorten");
        assert_eq!(region.len(), old);
    }
}

#[test]
fn write_through_takes_aligned_and_unaligned_memory() {
    for (dir, cached) in media() {
        let region = open(&dir, cached);
        region.set_len(SITE, 4 << 20).expect("grow");
        let mut buf = AlignedBuf::zeroed(3 << 20);
        buf.fill(7);
        region.write_through(SITE, 0, &buf).expect("aligned");
        assert!(read(&region, 0, 3 << 20).iter().all(|&byte| byte == 7));
        let plain = vec![8; (2 << 20) + 1];
        region.write_through(SITE, 1 << 20, &plain[1..]).expect("unaligned");
        assert!(read(&region, 1 << 20, 2 << 20).iter().all(|&byte| byte == 8));
        assert!(read(&region, 0, 1 << 20).iter().all(|&byte| byte == 7));
        assert!(catch_unwind(AssertUnwindSafe(|| region.write_through(SITE, 1, &plain[..512]))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| region.write_through(SITE, 0, &plain[..511]))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| region.write_through(SITE, 4 << 20, &plain[..4096]))).is_err());
    }
}

#[test]
fn threads_may_share_a_block() {
    for (dir, cached) in media() {
        let region = open(&dir, cached);
        region.set_len(SITE, u64::from(region.guarantees().block)).expect("grow");
        // All four parts lie in the first block.
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let region = &region;
                scope.spawn(move || {
                    let offset = u64::from(thread) * 101 + 3;
                    for round in 0..400u32 {
                        let data = [round as u8 ^ thread; 101];
                        region.write(SITE, offset, &data).expect("write");
                        // A neighbour that wrote back what it had read before would have undone it.
                        let mut buf = [0; 101];
                        region.read(offset, &mut buf).expect("read");
                        assert_eq!(buf, data, "round {round} of thread {thread}");
                    }
                });
            }
        });
        assert_eq!(read(&region, 3 + 4 * 101, 10), [0; 10]);
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").expect("open");
    let fd = {
        use std::os::fd::AsRawFd;
        // SAFETY: `null` is open until the end of the test.
        let borrowed = unsafe { BorrowedFd::borrow_raw(null.as_raw_fd()) };
        rustix::io::fcntl_dupfd_cloexec(borrowed, 0).expect("dup")
    };
    assert_eq!(DiskRegion::open(fd, "null").expect_err("a character device").errno, Errno::INVAL);
}

/// A sealed file refuses each change, whoever asks for it.
#[test]
fn what_is_only_read_is_not_changed() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let file = memfd_create("sealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    let bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
    sys::write_all_at(&file, &bytes, 0).expect("write");
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK).expect("seal it");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let only = rustix::fs::openat(rustix::fs::CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let region = DiskRegion::open_read_only(only.expect("open it to read"), "sealed").expect("a region");
    let whole = region.len() as usize;
    assert!(whole > 8000, "{whole}");
    assert!(read(&region, 3, whole - 3) == bytes[3..whole]);
    assert!(!region.is_direct() && region.guarantees().description.contains("read only"));
    assert_eq!(region.write(SITE, 0, &[1]).expect_err("it is only read").errno, Errno::BADF);
    region.set_len(SITE, 1 << 20).expect_err("it is only read");
    region.fence(SITE).expect("there is nothing to order");
}

/// A first block that cannot be read keeps nobody from the rest. Nothing is written to find out what the disk takes.
#[test]
fn a_first_block_that_is_lost_is_not_written() {
    assert_eq!(way_of(Err(Errno::IO), |_| unreachable!("it is not written")), Ok(Way::DirectThenSync));
    assert_eq!(way_of(Err(Errno::INVAL), |_| unreachable!("it is not written")), Ok(Way::CachedThenSync));
    assert_eq!(way_of(Ok(()), |_| Ok(())), Ok(Way::DirectDsync));
    let no_dsync = |flags| if flags == ReadWriteFlags::DSYNC { Err(Errno::OPNOTSUPP) } else { Ok(()) };
    assert_eq!(way_of(Ok(()), no_dsync), Ok(Way::DirectThenSync));
    assert_eq!(way_of(Ok(()), |_| Err(Errno::INVAL)), Ok(Way::CachedThenSync));
    assert_eq!(way_of(Ok(()), |_| Err(Errno::IO)), Err(Errno::IO));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any writes leave what they leave in a plain buffer, for both ways to read and in the file.
    #[test]
    fn behaves_as_a_plain_buffer(
        writes in proptest::collection::vec(
            (0u64..60_000, proptest::collection::vec(any::<u8>(), 0..9000), any::<bool>()), 1..8),
        way in 0usize..3,
    ) {
        let Some((dir, cached)) = media().into_iter().nth(way) else { return Ok(()) };
        let region = open(&dir, cached);
        let block = u64::from(region.guarantees().block);
        let len = 70_000u64.next_multiple_of(block);
        region.set_len(SITE, len).expect("grow");
        let mut model = vec![0; len as usize];
        for (offset, data, through) in &writes {
            let (mut offset, mut data) = (*offset, &data[..]);
            if *through {
                offset -= offset % block;
                data = &data[..data.len() - data.len() % block as usize];
                region.write_through(SITE, offset, data).expect("write through");
            } else {
                region.write(SITE, offset, data).expect("write");
            }
            model[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            prop_assert!(read(&region, offset, data.len()) == data);
        }
        region.fence(SITE).expect("fence");
        prop_assert!(read(&region, 0, model.len()) == model);
        prop_assert!(dir.content("region") == model);
    }
}

/// Linux reports a failed write-back once: the next `fdatasync` succeeds, and what was to be written is gone.
#[test]
fn a_sync_that_failed_is_never_followed_by_one_that_succeeds() {
    let dir = TestDir::on_disk();
    let region = DiskRegion::open(dir.file("log"), "log").expect("open");
    region.set_len(SITE, 64 << 10).expect("grow");
    assert_eq!(region.sync_by(|_| Err(Errno::IO)), Err(Errno::IO));
    assert_eq!(region.fence(SITE).expect_err("it is final").errno, Errno::IO);
    assert_eq!(region.set_len(SITE, 128 << 10).expect_err("a growth is synced too").errno, Errno::IO);
}
