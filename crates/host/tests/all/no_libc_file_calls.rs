//! The real media reach the kernel without libc, since the preload library carries them.

#[path = "../no_libc/harness.rs"]
mod harness;

#[test]
fn real_media_make_no_file_call_through_libc() {
    harness::run("wholly-host", "raw_media_calls", env!("CARGO_TARGET_TMPDIR"));
}
