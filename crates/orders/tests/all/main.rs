//! Tests of the index under a memory model.

mod models;
