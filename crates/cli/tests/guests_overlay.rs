//! The tests of `guests.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "guests.rs"]
mod guests;
