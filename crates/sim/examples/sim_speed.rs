//! How many crash images the simulator makes in a second: 64 KiB of log and three files of 8 KiB.
//! `cargo run --release -p wholly-sim --example sim_speed`

use std::ops::ControlFlow;
use std::time::Instant;
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Explorer, SimConfig, World};

fn main() {
    for (name, config) in [("pmem", SimConfig::pmem()), ("disk", SimConfig::disk())] {
        for (what, words) in [("exhaustive, 16 units", 5), ("sampled, 61 units", 20)] {
            let world = World::new(config.clone());
            for file in ["a", "b", "c"] {
                world.add_file(file, &[1; 8192]);
            }
            let (log, host) = (world.log(), world.host());
            let unit = u64::from(log.guarantees().atomic_unit);
            let spread = (64 << 10) / (3 * words) / unit * unit;
            for n in 0..3 * words {
                log.write(Site("log"), n * spread, &vec![7; unit as usize]).expect("a simulated write");
            }
            host.open(b"a", true).expect("a file").write_at(Site("home"), 0, &[9; 8]).expect("a simulated write");
            let trace = world.trace();
            let mut explorer = Explorer::new(&trace);
            explorer.seek(trace.events.len() as u64);
            let limits = ExploreLimits { samples: 50_000, exhaustive_bits: 20, ..ExploreLimits::default() };
            let point = explorer.point();
            for recovered in [false, true] {
                let (start, mut sum) = (Instant::now(), 0);
                let done = point.for_each_image(&limits, |_, image| {
                    sum ^= image.hash();
                    if recovered {
                        sum ^= World::from_image(image, trace.config.clone()).now();
                    }
                    ControlFlow::Continue(())
                });
                let ns = start.elapsed().as_nanos() as f64 / done.images as f64;
                let with = if recovered { " and a world of each" } else { "" };
                println!(
                    "{name}, {what}: {} units, {} images{with}, {ns:.0} ns each, {:.0} per second ({sum:x})",
                    done.units,
                    done.images,
                    1e9 / ns
                );
            }
        }
    }
}
