//! The store reaches the kernel without libc's file functions, since the preload library, which replaces them, carries
//! it.

#[path = "../../../host/tests/no_libc/harness.rs"]
mod harness;

#[test]
fn a_store_makes_no_file_call_through_libc() {
    harness::run("wholly", "raw_calls", env!("CARGO_TARGET_TMPDIR"));
}
