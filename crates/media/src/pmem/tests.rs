//! Regions of emulated persistent memory against plain buffers and plain files.

use super::*;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wholly_scratch::TestDir;

const SITE: Site = Site("test");

fn options() -> PmemOptions {
    PmemOptions { name: "test".into(), reserve: 64 << 20, ..PmemOptions::default() }
}

fn open(dir: &TestDir) -> PmemRegion {
    PmemRegion::open(dir.file("region"), options()).expect("open a region")
}

fn read(region: &dyn Region, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xaa; len];
    region.read(offset, &mut buf).expect("read");
    buf
}

#[test]
fn says_that_it_is_emulated() {
    let Some(dir) = TestDir::on_tmpfs() else { return };
    let region = open(&dir);
    let guarantees = region.guarantees();
    assert_eq!(guarantees.description, "persistent memory, emulated on tmpfs");
    assert!(guarantees.is_pmem() && guarantees.emulated);
    assert_eq!((guarantees.atomic_unit, guarantees.block), (8, 1));
    assert_eq!(guarantees.domain, PersistenceDomain::MemoryController);
    assert!(!region.instructions().is_empty());

    let eadr = PmemRegion::open(dir.file("region"), PmemOptions { caches_persist: true, ..options() }).expect("open");
    assert_eq!(eadr.guarantees().domain, PersistenceDomain::CpuCaches);
}

#[test]
fn an_ordinary_file_serves_too() {
    let dir = TestDir::on_disk();
    let region = open(&dir);
    region.set_len(SITE, 10_000).expect("grow");
    region.write_through(SITE, 9_990, b"0123456789").expect("write");
    assert!(region.guarantees().emulated);
    assert_eq!(&dir.content("region")[9_990..], b"0123456789");
}

#[test]
fn grows_and_shrinks_in_place() {
    let Some(dir) = TestDir::on_tmpfs() else { return };
    let region = open(&dir);
    let base = region.as_ptr();
    assert!(region.is_empty());
    region.set_len(SITE, 5_000).expect("grow");
    region.write_through(SITE, 0, &[1; 5_000]).expect("write");
    region.set_len(SITE, 3 << 20).expect("grow");
    assert_eq!(read(&region, 0, 5_000), [1; 5_000]);
    assert!(read(&region, 5_000, (3 << 20) - 5_000).iter().all(|&byte| byte == 0));
    assert_eq!(region.as_ptr(), base);

    region.write_through(SITE, 0, &vec![2; 3 << 20]).expect("write");
    region.set_len(SITE, 4_100).expect("shrink");
    assert_eq!(region.len(), 4_100);
    assert_eq!(dir.content("region"), [2; 4_100]);
    // What was cut off is zero when it comes back, in the page that stayed too.
    region.set_len(SITE, 1 << 20).expect("grow");
    assert_eq!(read(&region, 4_000, 100), [2; 100]);
    assert!(read(&region, 4_100, (1 << 20) - 4_100).iter().all(|&byte| byte == 0));
    region.set_len(SITE, 0).expect("empty");
    assert!(region.is_empty());
    region.set_len(SITE, 8).expect("grow");
    assert_eq!(read(&region, 0, 8), [0; 8]);
    assert_eq!(region.as_ptr(), base);
}

#[test]
fn growth_is_allocated() {
    use std::os::unix::fs::MetadataExt;
    let Some(dir) = TestDir::on_tmpfs() else { return };
    let region = open(&dir);
    region.set_len(SITE, 1 << 20).expect("grow");
    let metadata = std::fs::metadata(dir.path().join("region")).expect("stat");
    assert_eq!(metadata.blocks() * 512, 1 << 20);
}

#[test]
fn growth_beyond_the_reservation_is_refused() {
    let Some(dir) = TestDir::on_tmpfs() else { return };
    let region = open(&dir);
    region.set_len(SITE, 4096).expect("grow");
    let error = region.set_len(SITE, 1 << 30).expect_err("too long");
    assert_eq!(error.errno, Errno::FBIG);
    assert_eq!(region.len(), 4096);
    assert_eq!(dir.content("region").len(), 4096);

    let error = PmemRegion::open(dir.file("region"), PmemOptions { reserve: 4095, ..options() }).expect_err("too long");
    assert_eq!(error.errno, Errno::FBIG);
}

#[test]
fn an_existing_file_is_opened_with_its_bytes_and_its_holes_allocated() {
    use std::os::unix::fs::MetadataExt;
    let Some(dir) = TestDir::on_tmpfs() else { return };
    rustix::fs::ftruncate(dir.file("region"), 100_000).expect("make a hole");
    sys::write_all_at(dir.file("region"), b"here", 50_000).expect("write");
    let region = PmemRegion::open(dir.file("region"), PmemOptions { prefault: true, ..options() }).expect("open");
    assert_eq!(region.len(), 100_000);
    assert_eq!(read(&region, 49_999, 6), b"\0here\0");
    let metadata = std::fs::metadata(dir.path().join("region")).expect("stat");
    assert!(metadata.blocks() * 512 >= 100_000);
}

/// Bytes that the file takes.
fn taken(dir: &TestDir) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(dir.path().join("region")).expect("stat").blocks() * 512
}

#[test]
fn a_sparse_region_takes_what_is_written_or_asked_for() {
    const LEN: u64 = 32 << 20;
    let Some(dir) = TestDir::on_tmpfs() else { return };
    let open = || PmemRegion::open(dir.file("region"), PmemOptions { sparse: true, ..options() }).expect("open");
    let region = open();
    region.extend(SITE, LEN).expect("grow");
    assert!(read(&region, 0, LEN as usize) == vec![0; LEN as usize]);
    assert!(region.address(0, 10).is_none() && taken(&dir) == 0);
    region.write_through(SITE, 4096 * 3 - 1, &[1; 2]).expect("write");
    assert_eq!(taken(&dir), 2 * 4096);
    drop(region);

    let region = open();
    assert!(region.address(4096 * 2, 8192).is_some() && region.address(4096 * 2, 8193).is_none());
    region.write(SITE, 4096 * 3, &[2; 4097]).expect("write");
    assert_eq!((read(&region, 4096 * 3 - 2, 3), taken(&dir)), (vec![0, 1, 2], 3 * 4096));
    region.set_len(SITE, LEN / 2).expect("shrink");
    region.set_len(SITE, LEN / 2 + 4096).expect("grow, with space");
    assert_eq!(taken(&dir), 4 * 4096);

    assert_eq!(region.hand_over_holes(), [0..4096 * 2, 4096 * 4..LEN / 2]);
    assert!(region.address(0, LEN as usize / 2).is_some() && region.hand_over_holes().is_empty());
    assert!(region.allocate(LEN / 4, 1 << 20));
    assert_eq!(taken(&dir), 4 * 4096 + (1 << 20));
    region.write(SITE, LEN / 4, &[3; 1 << 20]).expect("write");
    assert_eq!(taken(&dir), 4 * 4096 + (1 << 20));
}

#[test]
fn a_sparse_region_on_a_disk_has_its_space() {
    let dir = TestDir::on_disk();
    let region = PmemRegion::open(dir.file("region"), PmemOptions { sparse: true, ..options() }).expect("open");
    region.extend(SITE, 1 << 20).expect("grow");
    assert!(region.address(0, 1 << 20).is_some() && taken(&dir) >= 1 << 20);
}

#[test]
fn ranges_outside_are_our_bugs() {
    let Some(dir) = TestDir::on_tmpfs() else { return };
    outside(&open(&dir));
    outside(&PmemRegion::open(dir.file("sparse"), PmemOptions { sparse: true, ..options() }).expect("open"));
}

fn outside(region: &PmemRegion) {
    region.extend(SITE, 100).expect("grow");
    for (offset, len) in [(100, 1), (0, 101), (u64::MAX, 1), (u64::MAX - 50, 100), (101, 0)] {
        let mut buf = vec![0; len];
        assert!(catch_unwind(AssertUnwindSafe(|| region.read(offset, &mut buf))).is_err(), "read {len} at {offset}");
        assert!(
            catch_unwind(AssertUnwindSafe(|| region.write(SITE, offset, &buf))).is_err(),
            "write {len} at {offset}"
        );
    }
    region.write(SITE, 100, &[]).expect("nothing at the end");
    region.read(100, &mut []).expect("nothing at the end");
    // A prefetch is only advice.
    region.prefetch(u64::MAX);
    region.prefetch(50);
}

#[test]
fn a_window_shows_a_file_that_others_look_after() {
    let Some(dir) = TestDir::on_tmpfs() else { return };
    let file = dir.file("home");
    sys::write_all_at(&file, &[3; 100], 0).expect("write");
    let window = PmemRegion::window(file.as_fd(), 1 << 20, options()).expect("map");
    assert_eq!(window.len(), 1 << 20);
    window.write_through(SITE, 90, &[4; 10]).expect("write inside the file");
    assert_eq!(dir.content("home")[88..], [3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
    // The file may grow under the window.
    sys::write_all_at(&file, &[5; 10], 20_000).expect("write");
    assert_eq!(read(&window, 19_999, 3), [0, 5, 5]);
    assert_eq!(window.set_len(SITE, 10).expect_err("not ours").errno, Errno::OPNOTSUPP);

    let empty = PmemRegion::window(file.as_fd(), 0, options()).expect("map nothing");
    assert!(empty.is_empty());
}

#[test]
fn a_read_only_window_refuses_stores() {
    let Some(dir) = TestDir::on_tmpfs() else { return };
    let file = dir.file("home");
    sys::write_all_at(&file, &[3; 100], 0).expect("write");
    let window = PmemRegion::window(file.as_fd(), 100, PmemOptions { writable: false, ..options() }).expect("map");
    assert_eq!(window.write(SITE, 0, &[1]).expect_err("read-only").errno, Errno::BADF);
    assert_eq!(window.write_through(SITE, 0, &[1]).expect_err("read-only").errno, Errno::BADF);
    assert_eq!(read(&window, 99, 1), [3]);
}

#[test]
fn an_emulated_region_tells_its_settings_and_keeps_bytes() {
    let Some(dir) = TestDir::on_tmpfs() else { return };
    for (emulation, words) in [
        (Emulation::None, "persistent memory, emulated on tmpfs"),
        (Emulation::Bandwidth { bytes_per_s: 4e9 }, "slowed to 4 GB/s shared by all threads"),
        (Emulation::PAPER, "slowed by 150 ns after each line, at most 9 threads writing at once (4 GB/s)"),
    ] {
        let region = EmulatedRegion::new(open(&dir), Emulator::new(emulation));
        assert!(region.guarantees().description.ends_with(words), "{}", region.guarantees().description);
        assert!(region.guarantees().emulated);
        region.set_len(SITE, 4096).expect("grow");
        region.write(SITE, 1, &[9; 300]).expect("write");
        region.fence(SITE).expect("fence");
        region.write_through(SITE, 400, &[8; 3]).expect("write");
        region.prefetch(0);
        assert_eq!(read(&region, 0, 302), [&[0][..], &[9; 300], &[0]].concat());
        assert_eq!(read(&region, 400, 4), [8, 8, 8, 0]);
        region.set_len(SITE, 0).expect("empty");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any writes at any offsets leave what they leave in a plain buffer, in the mapping and in the file.
    #[test]
    fn behaves_as_a_plain_buffer(
        sparse in any::<bool>(),
        writes in proptest::collection::vec((0u64..20_000, proptest::collection::vec(any::<u8>(), 0..3000)), 1..20),
    ) {
        let Some(dir) = TestDir::on_tmpfs() else { return Ok(()) };
        let region = PmemRegion::open(dir.file("region"), PmemOptions { sparse, ..options() }).expect("open");
        region.extend(SITE, 23_000).expect("grow");
        let mut model = vec![0; 23_000];
        for (offset, data) in &writes {
            region.write(SITE, *offset, data).expect("write");
            model[*offset as usize..*offset as usize + data.len()].copy_from_slice(data);
        }
        region.fence(SITE).expect("fence");
        prop_assert!(read(&region, 0, model.len()) == model);
        drop(region);
        prop_assert!(dir.content("region") == model);
    }
}
