//! The tests of `packages.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "packages.rs"]
mod packages;
