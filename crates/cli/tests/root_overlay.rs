//! The tests of `root.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "root.rs"]
mod root;
