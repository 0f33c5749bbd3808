//! Tests of the C library.

mod c_programs;
mod header;
mod installed;
mod installing;
