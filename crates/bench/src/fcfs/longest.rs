//! The longest call of `hybrid_log` in virtual time, as a thread waits for it: for its own lines, for those that it
//! writes back for others, and for locks of the threads that write back.
//!
//! `WHOLLY_LONG=1 cargo test --release -p wholly-bench --lib longest -- --nocapture` runs the large volumes, too, and
//! prints what it finds.

use super::counts::ticking;
use super::timed::TimedRegion;
use std::sync::Arc;
use std::time::Duration;
use sync_events::now;
use volume_events::{EngineKind, Volume, VolumeOptions, VolumeVfs};
use wholly_media::Region;
use wholly_media::pmem::{Emulation, PmemOptions, PmemRegion};
use wholly_vfs::{Context, Ino, Mode, OFlags, Vfs};

const MIB: u64 = 1 << 20;
/// Lines whose time no call exceeds.
const MOST: f64 = 2000.0;

struct Longest {
    ns: u64,
    of: u64,
    mean_ns: f64,
}

/// Writes 64 B to `most` bytes at random places of a file that takes so many percent of a volume: until space is short
/// for the first time, and then so many calls more, which count.
fn longest_call((bytes, percent): (u64, u64), most: u64, checkpointers: usize, calls: u64) -> Longest {
    let Emulation::Paper { latency_ns, bandwidth } = Emulation::PAPER else { unreachable!("it is the paper's") };
    let memory = rustix::fs::memfd_create("volume", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::fs::ftruncate(&memory, bytes).expect("its length");
    let region: Arc<dyn Region> = Arc::new(PmemRegion::open(memory, PmemOptions::default()).expect("a region"));
    let options = VolumeOptions {
        engine: EngineKind::named("hybrid_log"),
        checkpointers: Some(checkpointers),
        clock: ticking,
        ..VolumeOptions::default()
    };
    Volume::format_region(&*region, &options).expect("make a volume");
    sync_events::run(move || {
        let region = TimedRegion::new(region, latency_ns as f64, bandwidth);
        let volume = Volume::open_region(region.clone(), &options).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let (ctx, mode) = (Context::superuser(), Mode::from_raw_mode(0o600));
        let (made, file) = vfs.create(&ctx, Ino::ROOT, b"file", OFlags::RDWR, mode).expect("make a file");
        let of = volume.stat();
        let len = (of.blocks * percent / 100 - (of.blocks - of.free_blocks)) * 4096;
        let content = vec![7; MIB as usize];
        for at in (0..len).step_by(content.len()) {
            let part = content.len().min((len - at) as usize);
            vfs.write(&ctx, &file, at, &content[..part]).expect("fill it");
        }
        let mut seed = 3u64;
        let mut random = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        let mut call = || {
            let size = 64 + random(most - 63);
            let at = random(len / 64 - size / 64 - 1) * 64 + random(64);
            let begun = now();
            vfs.write(&ctx, &file, at, &content[..size as usize]).expect("write");
            region.pay();
            ((now() - begun).as_nanos() as u64, size)
        };
        let mut pending = 0;
        loop {
            (0..1000).for_each(|_| _ = call());
            let before = std::mem::replace(&mut pending, volume.stat().pending_blocks);
            if pending <= before {
                break;
            }
        }
        let (mut longest, mut all) = ((0, 0), Duration::ZERO);
        for _ in 0..calls {
            let (ns, size) = call();
            longest = longest.max((ns, size));
            all += Duration::from_nanos(ns);
        }
        vfs.release(&ctx, file).expect("close it");
        vfs.forget(made.ino, 1);
        drop(vfs);
        volume.close().expect("close the volume");
        Longest { ns: longest.0, of: longest.1, mean_ns: all.as_nanos() as f64 / calls as f64 }
    })
}

/// No call takes longer than 2,000 lines take, however large and full the volume is.
#[test]
fn no_call_is_long() {
    let Emulation::Paper { latency_ns, .. } = Emulation::PAPER else { unreachable!("it is the paper's") };
    let (sizes, calls): (&[u64], u64) = match std::env::var_os("WHOLLY_LONG") {
        Some(_) => (&[16, 256, 1024, 4096], 20_000),
        None => (&[16], 2000),
    };
    for (size, percent) in sizes.iter().flat_map(|size| [(*size, 50), (*size, 95)]) {
        for (most, checkpointers) in [256, 2 << 10, 16 << 10].into_iter().flat_map(|most| [(most, 0), (most, 2)]) {
            let found = longest_call((size * MIB, percent), most, checkpointers, calls);
            let [longest, mean] = [found.ns as f64, found.mean_ns].map(|ns| ns / latency_ns as f64);
            let of = format!("{size} MiB, {percent} % full, {most} bytes, {checkpointers} checkpointers");
            println!("{of}: {longest:.0} lines ({} bytes), {mean:.1} on average", found.of);
            assert!(longest <= MOST, "{of}: {longest} lines");
        }
    }
}
