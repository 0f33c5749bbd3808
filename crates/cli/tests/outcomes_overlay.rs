//! The tests of `outcomes.rs` where views are overlays.

#[path = "outcomes.rs"]
mod outcomes;
