//! The tests of `links.rs` where views are overlays. What differs: `common/views.rs`.

#[path = "links.rs"]
mod links;
