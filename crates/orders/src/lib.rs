//! The index, and the multi-queue journal, under a memory model.
//!
//! [`models`] are small programs of two or three threads over the sources of `wholly-index`, and [`journal`] over those
//! of `wholly-blocks`. Each is run in every order, and with every value that a load may yield, that the language's
//! memory model allows within a bound of preemptions. `wholly-index-loom` and `wholly-blocks-loom` compile those
//! sources over the model's [`sync`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod journal;
pub mod models;

pub use {index, sync};
