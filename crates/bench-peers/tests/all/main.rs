//! Tests of the comparisons: they run, and `demo` shows what it is to show.

mod demo;
mod tiny;
