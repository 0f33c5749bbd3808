//! See `harness.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| wholly_fuzz::recovery(input));
