//! Changes as a patch: what `git apply` and GNU `patch` read.

use super::{State, Told};
use crate::output::{Name, Paint};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use wholly::Mismatch;

/// The changes of text files, as a patch. Others are named on stderr, and so are those of files that have been changed
/// since.
pub fn of(changes: &[Told], changed: &[Mismatch]) -> String {
    let (mut text, mut is_whole) = (String::new(), true);
    for change in changes {
        let is_it = |path: &Name| changed.iter().any(|it| it.path.as_os_str().as_bytes() == path.bytes());
        let is_changed = is_it(&change.path) || change.from.as_ref().is_some_and(is_it);
        match one(change).filter(|_| !is_changed) {
            Some(patch) => text += &patch,
            None => {
                is_whole = false;
                eprint!("wholly: diff: not in the patch: {}", super::one_line(change, Paint::none()));
            }
        }
    }
    if !is_whole {
        eprintln!(
            "wholly: diff: a patch has text files of up to 1 MiB that have not been changed since, none in `.git`; it \
             has no owners, times or extended attributes"
        );
    }
    text
}

/// `None` where a patch has no words for it.
fn one(change: &Told) -> Option<String> {
    let is_dir = |state: &Option<State>| state.as_ref().is_none_or(|state| state.kind == "directory");
    if is_dir(&change.before) && is_dir(&change.after) && change.what != "renamed" {
        // Directories come and go with what is in them.
        return Some(String::new());
    }
    let is_file = |state: &Option<State>| state.as_ref().is_none_or(|state| state.kind == "file");
    let is_fit = is_file(&change.before) && is_file(&change.after) && change.replaced.is_none();
    let has_lines = change.diff.is_some() || !(change.content || change.what == "removed");
    // `git apply` takes nothing in a repository's own folder.
    let is_gits = |path: &Name| path.as_path().components().any(|part| part.as_os_str() == ".git");
    if is_gits(&change.path) || change.from.as_ref().is_some_and(is_gits) {
        return None;
    }
    if !is_fit || !has_lines || change.what == "linked" {
        return None;
    }
    let (old, new) = (change.from.as_ref().unwrap_or(&change.path), &change.path);
    let (a, b) = (quoted("a/", old), quoted("b/", new));
    let mut text = format!("diff --git {a} {b}\n");
    let (mut from, mut to) = (a, b);
    match (&change.before, &change.after) {
        (None, Some(after)) => {
            _ = writeln!(text, "new file mode {}", mode(after));
            from = "/dev/null".into();
        }
        (Some(before), None) => {
            _ = writeln!(text, "deleted file mode {}", mode(before));
            to = "/dev/null".into();
        }
        (Some(before), Some(after)) if mode(before) != mode(after) => {
            _ = write!(text, "old mode {}\nnew mode {}\n", mode(before), mode(after));
        }
        _ => {}
    }
    if change.from.is_some() {
        _ = write!(text, "rename from {}\nrename to {}\n", quoted("", old), quoted("", new));
    }
    match change.diff.as_deref().unwrap_or_default().splitn(3, '\n').nth(2) {
        Some(hunks) => _ = write!(text, "--- {}\n+++ {}\n{hunks}", ended(&from), ended(&to)),
        // Nothing but owners, times or attributes.
        None if text.lines().count() == 1 => return None,
        None => {}
    }
    Some(text)
}

/// The end of a path with blanks is marked, as git does.
fn ended(path: &str) -> String {
    let end = if path.contains(' ') { "\t" } else { "" };
    format!("{path}{end}")
}

/// As git knows modes.
fn mode(state: &State) -> &'static str {
    if state.mode & 0o100 != 0 { "100755" } else { "100644" }
}

/// A path as git writes it.
fn quoted(prefix: &str, path: &Name) -> String {
    let is_plain = |byte: &u8| (b' '..0x7f).contains(byte) && !b"\"\\".contains(byte);
    if path.bytes().iter().all(is_plain) {
        return format!("{prefix}{path}");
    }
    let one = |byte: &u8| match byte {
        b'"' | b'\\' => format!("\\{}", *byte as char),
        byte if is_plain(byte) => (*byte as char).to_string(),
        byte => format!("\\{byte:03o}"),
    };
    format!("\"{prefix}{}\"", path.bytes().iter().map(one).collect::<String>())
}
