//! The tests of `programs.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "programs.rs"]
mod programs;
