//! The index's sources under a memory model.
//!
//! [`models`] are small programs of two or three threads over the index of `wholly`. Each is run in every order, and
//! with every value that a load may yield, that the language's memory model allows within a bound of preemptions.
//! [`sync`] takes the place of the module of that name in the core.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[path = "../../core/src/index/mod.rs"]
pub mod index;
pub mod models;

pub use sync;
