//! The tests of `run.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "run.rs"]
mod run;
