//! The tests of `undo.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "undo.rs"]
mod undo;
