//! Names the shared library in itself, so that programs ask the loader for the interface that they were linked with.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number is the interface's: it changes when a program that was linked before would not run any more.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libwholly.so.0");
}
