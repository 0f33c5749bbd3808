//! What `scripts/install` asks for, refuses and says: it takes no compiler, and the loader must learn of the library.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::installed::Installed;

/// Programs in place of the system's: compilers, which must not be called, and a loader's cache of our own.
struct Rig {
    dir: PathBuf,
}

impl Rig {
    fn new(name: &str) -> Option<Rig> {
        let installed = Installed::get()?;
        let dir = installed.scratch(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(dir.join("bin")).unwrap();
        let rig = Rig { dir };
        for compiler in ["cargo", "rustc", "cc", "gcc", "ld"] {
            rig.program(compiler, "echo compiled >> \"${0%/bin/*}/calls\"; exit 1");
        }
        rig.program(
            "ldconfig",
            "cd \"${0%/bin/*}\"; if [ \"$1\" = -p ]; then cat cache; else echo renewed >> calls; fi",
        );
        rig.file("cache", "1 libs found in cache\n");
        Some(rig)
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.join(name), text).unwrap();
    }

    fn program(&self, name: &str, script: &str) {
        self.file(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.dir.join("bin").join(name), mode).unwrap();
    }

    /// What the programs were called for.
    fn calls(&self) -> String {
        std::fs::read_to_string(self.dir.join("calls")).unwrap_or_default()
    }

    fn install(&self, built: &Path, destination: &str) -> Output {
        let path = format!("{}:{}", self.dir.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install"));
        command.arg("library").env("PATH", path).env("PROFILE", "dev").env("CARGO_TARGET_DIR", built);
        command.env("PREFIX", self.dir.join("prefix")).env("DESTDIR", destination).env_remove("LIBDIR");
        command.output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

#[test]
fn it_takes_no_compiler_and_tells_the_loader() {
    let Some(rig) = Rig::new("loader") else { return };
    let root = rig.dir.join("root");
    let output = rig.install(&Installed::built(), root.to_str().unwrap());
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(rig.calls(), "", "what is packed is not the loader's yet");
    assert!(!said(&output).contains("LD_LIBRARY_PATH"), "{}", said(&output));

    let output = rig.install(&Installed::built(), "");
    assert!(output.status.success(), "{}", said(&output));
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    assert_eq!(rig.calls(), if is_root { "renewed\n" } else { "" });
    let libraries = rig.dir.join("prefix/lib");
    assert!(said(&output).contains(&format!("LD_LIBRARY_PATH={}", libraries.display())), "{}", said(&output));

    rig.file("cache", &format!("\tlibwholly.so.0 (libc6,x86-64) => {}/libwholly.so.0\n", libraries.display()));
    let output = rig.install(&Installed::built(), "");
    assert!(!said(&output).contains("LD_LIBRARY_PATH"), "{}", said(&output));
}

#[test]
fn it_refuses_what_is_not_built_or_is_of_before() {
    let Some(rig) = Rig::new("refused") else { return };
    let refused = |why: &str| {
        let output = rig.install(&rig.dir, "");
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(why) && said(&output).contains("`make build`"), "{}", said(&output));
        assert!(!rig.dir.join("prefix").exists() && rig.calls().is_empty());
    };
    refused("there is no ");
    std::fs::create_dir(rig.dir.join("debug")).unwrap();
    let files = ["libwholly_capi.so", "libwholly_capi.a"].map(|name| format!("debug/{name}"));
    for file in &files {
        rig.file(file, "");
    }
    rig.file("source.rs", "");
    let (source, list) = (rig.dir.join("source.rs"), "debug/libwholly_capi.d");
    rig.file(list, &format!("{}: {} {}\n", rig.dir.join(&files[0]).display(), "/nowhere.rs", source.display()));
    let built = std::fs::metadata(rig.dir.join(&files[1])).unwrap().modified().unwrap();
    let changed = |time| std::fs::File::options().write(true).open(&source).unwrap().set_modified(time).unwrap();
    changed(built + Duration::from_secs(2));
    refused("source.rs has changed after ");
    changed(built - Duration::from_secs(2));
    assert!(rig.install(&rig.dir, "").status.success());
}
