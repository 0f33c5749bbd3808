//! The tests of `directories.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "directories.rs"]
mod directories;
