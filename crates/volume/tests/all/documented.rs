//! The example in Rust of `docs/volume.md`, as it stands there, on a new volume and once more on the same one.

use std::path::Path;
use std::process::Command;

use wholly_volume::{EngineKind, Volume, VolumeOptions};

#[test]
fn the_example_of_fatomic_runs_twice() {
    let (page, source) = (include_str!("../../../../docs/volume.md"), include_str!("../../examples/fatomic.rs"));
    let text = page.split("```rust\n").nth(1).expect("the page has Rust").split("```").next().expect("it ends");
    assert_eq!(text, source.split_once("\n\n").expect("a head").1, "the example is the page's");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fatomic-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let image = dir.join("v.img");
    let options = VolumeOptions { engine: Some(EngineKind::PageCacheWal), ..VolumeOptions::default() };
    Volume::format(&image, 1 << 20, &options).unwrap();
    // Cargo builds examples beside the tests.
    let example = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/fatomic");
    for count in 1..=2 {
        assert!(Command::new(&example).current_dir(&dir).status().unwrap().success());
        let volume = Volume::open(&image, &options).unwrap();
        assert_eq!(volume.read_file("name").unwrap(), b"Hello SOSP");
        assert_eq!(volume.read_file("log").unwrap(), b"name has changed\n".repeat(count));
        assert!(volume.metadata("name.new").is_err());
        volume.close().unwrap();
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
