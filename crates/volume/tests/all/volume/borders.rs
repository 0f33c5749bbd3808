//! Invariant 10: who imports what.

use std::path::{Path, PathBuf};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// The lines of a source, or of a folder's sources, in which one of the words stands.
fn lines_with(folder: &str, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    if at.is_dir() {
        sources(&at, &mut found)
    } else {
        found.push(at)
    }
    assert!(!found.is_empty(), "{folder} has no sources");
    let mut lines = Vec::new();
    for path in found {
        let text = std::fs::read_to_string(&path).expect("a source");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let with = code.filter(|line| words.iter().any(|word| line.contains(word)));
        lines.extend(with.map(|line| format!("{}: {line}", path.display())));
    }
    lines
}

#[test]
fn engines_know_nothing_of_the_core() {
    let none: [String; 0] = [];
    assert_eq!(lines_with("engine", &["crate::fs", "crate::vfs", "crate::open", "super::super::fs"]), none);
    assert_eq!(lines_with("format", &["crate::fs", "crate::engine", "crate::vfs", "crate::open"]), none);
}

#[test]
fn the_core_knows_engines_by_the_trait_only() {
    let none: [String; 0] = [];
    assert_eq!(
        lines_with(
            "fs",
            &[
                "engine::none",
                "engine::fine_grained",
                "engine::hybrid",
                "engine::undo",
                "engine::shadow",
                "engine::page_cache",
                "NoneEngine",
                "FineGrained",
                "HybridLog",
                "UndoLog",
                "PageCacheWal"
            ]
        ),
        none
    );
    assert_eq!(lines_with("fs", &["crate::vfs", "crate::open"]), none);
    assert_eq!(lines_with("", &["std::fs", "libc::"]), none);
}

/// Each place that stores has a name of its own.
#[test]
fn sites_are_distinct() {
    let sites = [wholly_volume::sites(), wholly_volume::repair_sites()].concat();
    let names: std::collections::BTreeSet<_> = sites.iter().map(|site| site.0).collect();
    assert_eq!(names.len(), sites.len());
    let defined = lines_with("", &["= Site(\""]).len();
    let elsewhere = wholly_blocks::multi_queue::SITES.len();
    assert_eq!(defined + elsewhere, sites.len() + 1, "all that is defined is listed, but for the length of a file");
}
