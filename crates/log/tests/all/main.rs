//! Tests of the log, apart from any store.

mod client;
