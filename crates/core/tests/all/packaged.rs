//! The crates that programs depend on, as `cargo publish` would upload them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crates that have `publish = false` are not here: most serve the tests, some cannot be published.
const PUBLISHED: [&str; 13] = [
    "wholly",
    "wholly-blocks",
    "wholly-changes",
    "wholly-epochs",
    "wholly-error",
    "wholly-host",
    "wholly-index",
    "wholly-log",
    "wholly-media",
    "wholly-nvme",
    "wholly-sync",
    "wholly-vfs",
    "wholly-volume",
];

/// What a package holds beside its sources.
const BESIDE: [&str; 7] = [
    ".cargo_vcs_info.json",
    "Cargo.lock",
    "Cargo.toml",
    "Cargo.toml.orig",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A command in the workspace whose build folder is one of the tests'.
fn command(program: &str, folder: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).env("CARGO", env!("CARGO")).env_remove("MAKEFLAGS");
    command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder));
    command
}

fn output(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The manifests of the workspace.
fn manifests() -> Vec<Value> {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version=1"];
    let all: Value = serde_json::from_slice(&output(command(env!("CARGO"), "packages").args(arguments))).unwrap();
    all["packages"].as_array().unwrap().clone()
}

fn is_published(manifest: &Value) -> bool {
    manifest["publish"].is_null()
}

/// What is wrong with how a published crate names a crate of the workspace: cargo leaves out dependencies of tests that
/// have no version, and it looks for all others where it publishes.
fn fault(manifest: &Value, import: &Value, published: &BTreeSet<&str>) -> Option<String> {
    let (name, version) = (import["name"].as_str().unwrap(), manifest["version"].as_str().unwrap());
    let is_right = match (published.contains(name), import["kind"] == "dev") {
        (true, false) => import["req"] == format!("={version}"),
        (true, true) => import["req"] == "*" || import["req"] == format!("={version}"),
        (false, is_dev) => is_dev && import["req"] == "*",
    };
    (!is_right).then(|| format!("{}: {name} = {}", manifest["name"], import["req"]))
}

#[test]
fn manifests_say_what_a_registry_asks() {
    let all = manifests();
    let published: Vec<&Value> = all.iter().filter(|manifest| is_published(manifest)).collect();
    let names: BTreeSet<&str> = published.iter().map(|manifest| manifest["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(PUBLISHED));
    for manifest in published {
        let name = &manifest["name"];
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(manifest[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            assert!(manifest[field].as_array().is_some_and(|words| !words.is_empty()), "{name} has no {field}");
        }
        // It is built for Linux alone, where it runs.
        assert_eq!(manifest["metadata"]["docs"]["rs"]["targets"][0], "x86_64-unknown-linux-gnu", "{name}");
        let imports = manifest["dependencies"].as_array().unwrap().iter().filter(|import| !import["path"].is_null());
        let faults: Vec<_> = imports.filter_map(|import| fault(manifest, import, &names)).collect();
        assert!(faults.is_empty(), "{faults:?}");
    }
}

#[test]
fn packages_hold_sources_licences_and_a_readme() {
    let mut package = command("make", "packages");
    output(package.args(["package", "ARGS=--offline --allow-dirty --no-verify"]));
    let version = env!("CARGO_PKG_VERSION");
    let mut total = 0;
    for name in PUBLISHED {
        let archive = format!("packages/package/{name}-{version}.crate");
        let archive = Path::new(env!("CARGO_TARGET_TMPDIR")).join(archive);
        let listed = output(command("tar", "packages").args(["--list", "--verbose", "--file"]).arg(archive));
        let (mut beside, mut sources) = (BTreeSet::new(), 0);
        for line in String::from_utf8(listed).unwrap().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (size, path): (u64, _) = (words[2].parse().unwrap(), words[5]);
            let path = path.strip_prefix(&format!("{name}-{version}/")).expect("a folder of that name");
            assert!(line.starts_with('-'), "{name}: {path} is not an ordinary file");
            assert!(size < 100 << 10, "{name}: {path} has {size} bytes");
            total += size;
            match path.starts_with("src/") && path.ends_with(".rs") {
                true => sources += 1,
                false => _ = beside.insert(path.to_owned()),
            }
        }
        // A tree without a repository has no version to note.
        beside.insert(BESIDE[0].into());
        assert_eq!(beside.iter().map(String::as_str).collect::<Vec<_>>(), BESIDE, "{name}");
        assert!(sources > 0, "{name}");
    }
    println!("{total} bytes");
}

/// As those who take them from a registry compile them: without the workspace and what it patches.
#[test]
fn packages_compile_by_themselves() {
    if std::env::var_os("WHOLLY_LONG").is_none() {
        return println!("skipped: it takes minutes; WHOLLY_LONG=1 runs it");
    }
    output(command("make", "packages-compiled").args(["package", "ARGS=--offline --allow-dirty"]));
}
