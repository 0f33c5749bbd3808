//! The tests of `groups.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "groups.rs"]
mod groups;
