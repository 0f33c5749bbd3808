//! Our systems and the bounds. Peers live in the crate `wholly-bench-peers`, the only one that links competitors.

mod raw;
mod store;

pub use raw::Raw;
pub use store::StoreSystem;

use crate::system::System;

/// The systems that every run has, in the order of their rows: bounds first, then ours.
pub fn all() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Raw::new(1)),
        Box::new(Raw::new(2)),
        Box::new(StoreSystem::new(true, 1)),
        Box::new(StoreSystem::new(false, 1)),
        Box::new(StoreSystem::new(true, 2)),
        Box::new(StoreSystem::new(false, 8)),
    ]
}
