//! One test for each rule of the crash model: each fails if its rule is broken.

mod as_real;
mod device;
mod disk;
mod explore;
mod host;
mod kill;
mod machine;
mod names;
mod pmem;
mod protocol;
mod random;

use super::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use wholly_media::Site;

const W: Site = Site("test.write");
const F: Site = Site("test.fence");

thread_local!(static LOGICAL: Cell<u64> = const { Cell::new(0) });

/// Logical threads on one thread of the operating system, as under a scheduler of a model checker.
fn logical() -> u64 {
    LOGICAL.get()
}

fn on_thread<R>(n: u64, f: impl FnOnce() -> R) -> R {
    let before = LOGICAL.replace(n);
    let result = f();
    LOGICAL.set(before);
    result
}

fn pmem() -> SimConfig {
    SimConfig { log_len: 4096, thread: logical, times: false, ..SimConfig::pmem() }
}

fn disk() -> SimConfig {
    SimConfig { log_len: 8192, thread: logical, times: false, ..SimConfig::disk() }
}

fn world(config: SimConfig) -> Arc<World> {
    World::new(config)
}

/// Every image at a point, all combinations.
fn images_at(trace: &Trace, point: u64) -> Vec<Image> {
    let mut images = Vec::new();
    let done = trace.point(point).for_each_image(&ExploreLimits::default(), |_, image| {
        images.push(image.clone());
        ControlFlow::Continue(())
    });
    assert!(done.exhaustive, "the test's point is small");
    images
}

/// What `f` sees in the images at a point.
fn seen_at<T: Ord>(world: &World, point: u64, f: impl Fn(&Image) -> T) -> BTreeSet<T> {
    images_at(&world.trace(), point).iter().map(f).collect()
}

/// What `f` sees in the images that a crash now allows.
fn seen<T: Ord>(world: &World, f: impl Fn(&Image) -> T) -> BTreeSet<T> {
    seen_at(world, world.now(), f)
}

fn log_byte(image: &Image, at: usize) -> u8 {
    image.read(&Place::Log).expect("the log")[at]
}

fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    items.into_iter().collect()
}

fn broken(config: SimConfig, site: Site, kind: MutationKind) -> SimConfig {
    SimConfig { mutations: vec![Mutation::new(site, kind)], ..config }
}
