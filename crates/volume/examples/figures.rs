//! Two figures of the engine `none`, beside their bounds, in one run and in turns:
//!
//! - random reads and overwrites of 4 KiB over a file of 1 GiB in process, beside the raw copy from and to the same
//!   persistent memory (emulated: a file in /dev/shm);
//! - making and removing a file in a directory of 100,000, in process, beside a tmpfs through system calls.
//!
//! `cargo run --release --package wholly-volume --example figures [-- MIB NAMES]`

use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use wholly::vfs::{Context, FileType, Handle, Ino, Vfs};
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_media::{Region, Site};
use wholly_volume::{Volume, VolumeOptions, VolumeVfs};

const TURNS: usize = 5;
const CALLS: u64 = 200_000;
const RAW: Site = Site("raw");
const BLOCK: usize = 4096;

/// ns a call.
fn time(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(&mut call);
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn pmem(bytes: u64) -> Arc<dyn Region> {
    let file = rustix::fs::memfd_create("figures", MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::fs::ftruncate(&file, bytes).expect("its length");
    Arc::new(PmemRegion::open(file, PmemOptions { prefault: true, ..PmemOptions::default() }).expect("a region"))
}

/// A block that looks random.
fn block(i: u64, blocks: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks
}

fn compare(what: &str, turns: usize, mut ours: impl FnMut() -> f64, bound: &str, mut theirs: impl FnMut() -> f64) {
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        one.push(ours());
        other.push(theirs());
    }
    let (one, other) = (median(one), median(other));
    println!("{what}: {one:.0} ns, {bound}: {other:.0} ns, ratio {:.2}", one / other);
}

fn data(mib: u64) {
    let bytes = mib << 20;
    let region = pmem(bytes + bytes / 64 + (64 << 20));
    Volume::format_region(&*region, &VolumeOptions::default()).expect("make a volume");
    let volume = Volume::open_region(region, &VolumeOptions::default()).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let ctx = Context::superuser();
    let raw = pmem(bytes);
    let (_, file) = vfs.create(&ctx, Ino::ROOT, b"file", OFlags::RDWR, Mode::RUSR).expect("make a file");
    let zeros = vec![1; 1 << 20];
    for i in 0..mib {
        vfs.write(&ctx, file, i << 20, &zeros).expect("write");
        raw.write(RAW, i << 20, &zeros).expect("write");
    }
    let blocks = bytes / BLOCK as u64;
    let at = |i| block(i, blocks) * BLOCK as u64;
    let mut buf = [0; BLOCK];
    let mut other = [0; BLOCK];
    let read = |file: Handle, buf: &mut [u8], i| {
        vfs.read(&ctx, file, at(i), buf).expect("read");
    };
    compare(
        &format!("read 4 KiB of {mib} MiB"),
        TURNS,
        || time(CALLS, |i| read(file, &mut buf, i)),
        "raw copy",
        || time(CALLS, |i| raw.read(at(i), &mut other).expect("read")),
    );
    let content = [7; BLOCK];
    compare(
        &format!("overwrite 4 KiB of {mib} MiB"),
        TURNS,
        || {
            time(CALLS, |i| {
                vfs.write(&ctx, file, at(i), &content).expect("write");
            })
        },
        "raw copy and fence",
        || {
            time(CALLS, |i| {
                raw.write(RAW, at(i), &content).expect("write");
                raw.fence(RAW).expect("fence");
            })
        },
    );
    vfs.release(&ctx, file).expect("close it");
}

fn names(count: u64) {
    let region = pmem(512 << 20);
    Volume::format_region(&*region, &VolumeOptions::default()).expect("make a volume");
    let volume = Volume::open_region(region, &VolumeOptions::default()).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let ctx = Context::superuser();
    let dir = vfs.mkdir(&ctx, Ino::ROOT, b"dir", Mode::RWXU).expect("make it").ino;
    let name = |i: u64| format!("name-{i}");
    let make = |i: u64| {
        let made = vfs.mknod(&ctx, dir, name(i).as_bytes(), FileType::RegularFile, Mode::RUSR, 0).expect("make");
        vfs.forget(made.ino, 1);
    };
    (0..count).for_each(make);
    let path = format!("/dev/shm/wholly-figures-{}", std::process::id());
    std::fs::create_dir(&path).expect("make a directory");
    let host = rustix::fs::open(&*path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).expect("open it");
    let host_make = |i: u64| {
        rustix::fs::mknodat(&host, name(i), FileType::RegularFile, Mode::RUSR, 0).expect("make");
    };
    (0..count).for_each(host_make);
    let calls = 50_000;
    for (what, remove) in [("make", false), ("remove", true)] {
        // Each turn makes what the next removes, outside of the clock.
        compare(
            &format!("{what} a file in a directory of {count}"),
            TURNS,
            || {
                let ns = time(calls, |i| {
                    if !remove { make(count + i) } else { vfs.unlink(&ctx, dir, name(i).as_bytes()).expect("remove") }
                });
                (0..calls).for_each(|i| {
                    if remove { make(i) } else { vfs.unlink(&ctx, dir, name(count + i).as_bytes()).expect("remove") }
                });
                ns
            },
            "tmpfs",
            || {
                let gone = |i: u64| rustix::fs::unlinkat(&host, name(i), rustix::fs::AtFlags::empty()).expect("remove");
                let ns = time(calls, |i| if remove { gone(i) } else { host_make(count + i) });
                (0..calls).for_each(|i| if remove { host_make(i) } else { gone(count + i) });
                ns
            },
        );
    }
    std::fs::remove_dir_all(&path).expect("remove it");
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    data(numbers.first().copied().unwrap_or(1024));
    names(numbers.get(1).copied().unwrap_or(100_000));
}
