//! Tests of the index, and of the multi-queue journal, under a memory model.

mod journal;
mod models;
