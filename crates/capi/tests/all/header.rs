//! `include/wholly.h` is what the sources say. It is in the repository so that an installation needs no cbindgen, and
//! readers find it.

use std::path::Path;

#[test]
fn the_header_is_what_the_sources_say() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(package.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut made = Vec::new();
    cbindgen::generate_with_config(package, config).expect("make the header").write(&mut made);
    let made = String::from_utf8(made).expect("a text");
    let path = package.join("include/wholly.h");
    if std::env::var_os("WHOLLY_BLESS").is_some() {
        std::fs::write(&path, &made).expect("write the header");
    }
    let header = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        header == made,
        "include/wholly.h is out of date: WHOLLY_BLESS=1 cargo test -p wholly-capi --test all header"
    );
}
