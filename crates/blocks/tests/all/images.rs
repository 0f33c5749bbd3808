//! What a crash may leave, for tests of the contract in the simulator.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use wholly_sim::{ExploreLimits, Image, World};

/// Images of each point from a time on: all if no more units are pending than `bits`, else one unit each, and samples.
pub fn images(world: &World, from: u64, bits: u32) -> Vec<Image> {
    let (trace, mut seen, mut images) = (world.trace(), BTreeSet::new(), Vec::new());
    let limits = ExploreLimits {
        exhaustive_bits: bits,
        single_units: 64,
        pair_units: 0,
        samples: 8,
        ..ExploreLimits::default()
    };
    for point in from..=world.now() {
        trace.point(point).for_each_image(&limits, |_, image| {
            if seen.insert(image.hash()) {
                images.push(image.clone());
            }
            ControlFlow::Continue(())
        });
    }
    images
}
