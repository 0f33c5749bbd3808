//! `docs/reproduction.md` names tests, programs of the explorer and places where mistakes are planted: each is there.

use std::path::Path;

use wholly_volume::EngineKind;

use super::contract::{has_test, root};

/// All sources below a folder.
fn sources(dir: &Path, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

/// A word of the page between backquotes, and what stands before it.
fn quoted(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts: Vec<&str> = page.split('`').collect();
    let pairs: Vec<_> = parts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter()
}

/// The names on a page that nothing in the sources has.
fn missing(page: &str, sources: &[String]) -> Vec<String> {
    let is_engine = |word: &str| EngineKind::named(word).is_some();
    let is_name =
        |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let is_there = |text: &str| sources.iter().any(|source| source.contains(text));
    let mut kind = "";
    let mut missing = Vec::new();
    for (before, word) in quoted(page) {
        // What a list begins with holds for the whole cell.
        let begun = ["script ", "stories ", "planted "].into_iter().find(|kind| before.ends_with(kind));
        kind = match begun {
            Some(begun) => begun,
            None if before.trim_matches([',', ';', ' ']).is_empty() => kind,
            None => "",
        };
        let is_right = match kind {
            // Some names go on.
            "script " | "stories " => is_there(&format!("\"{word}")),
            "planted " if word.contains('.') => is_there(&format!("Site(\"{word}\")")),
            "planted " => is_there(&format!("    {word},")),
            _ if is_name(word) && word.matches('_').count() > 1 && !is_engine(word) => {
                sources.iter().any(|source| has_test(source, word) == Some(true))
            }
            _ => true,
        };
        if !is_right {
            missing.push(format!("{kind}{word}"));
        }
    }
    missing
}

#[test]
fn what_the_page_names_is_there() {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let dir = entry.unwrap().path();
        for folder in ["src", "tests"].map(|folder| dir.join(folder)).iter().filter(|folder| folder.is_dir()) {
            sources(folder, &mut all);
        }
    }
    let page = std::fs::read_to_string(root().join("docs/reproduction.md")).unwrap();
    assert_eq!(missing(&page, &all), [""; 0]);
    let wrong = "`no_test_of_this`, script `zzz`, planted `no.site`, `NoMistake`; also `undo` and `fine_grained_wal`";
    assert_eq!(missing(wrong, &all), ["no_test_of_this", "script zzz", "planted no.site", "planted NoMistake"]);
}
