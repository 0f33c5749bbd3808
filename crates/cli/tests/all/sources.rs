//! The command reaches users' files through `wholly-host` alone, which resolves a path once and goes on by descriptors.
//! A path that is looked at by one call and used by another may be something else by then.

use std::path::Path;

/// Calls that take a path.
const CALLS: [&str; 18] = [
    "std::fs",
    " fs::",
    "=fs::",
    "(fs::",
    "File::open",
    "File::create",
    "File::options",
    "OpenOptions",
    "CWD",
    ".canonicalize()",
    ".exists()",
    ".is_dir()",
    ".is_file()",
    ".is_symlink()",
    "metadata(",
    "read_link(",
    "HostDir::open(",
    ".read_dir()",
];

/// Files that only measure or explore: they work on directories that they make.
const NOT_LOOKED_AT: [&str; 2] = ["bench.rs", "crash.rs"];

/// A file, what is in the line, and why that is safe.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("apply.rs", "dir.canonicalize()", "shortens paths that were typed; the store resolves what is left"),
    ("deinit.rs", "args.dir.canonicalize()", "a name: of the store in messages, and of its entry in the registry"),
    ("error.rs", "HostDir::open(dir", "chooses the words of an error"),
    (
        "init.rs",
        "HostDir::open(&args.dir",
        "looks at the file system for the report; making the store checks by itself",
    ),
    ("init.rs", "dir.canonicalize()", "a place in the registry: a store is recovered there only if it has the id"),
    ("limits.rs", "/proc/self/status", "the kernel's"),
    ("log.rs", "args.dir.is_dir()", "chooses between no lines and an error"),
    ("mount.rs", "/dev/null", "the system's"),
    ("mounted.rs", "use rustix::fs::{CWD", "for the one below"),
    ("mounted.rs", "canonicalize()", "compared with the kernel's list of mounts"),
    ("mounted.rs", "openat(CWD, mount,", "a place of the kernel's list of mounts; only looks"),
    ("mounted.rs", "/proc/{}/comm", "the kernel's"),
    ("mounted.rs", "HostDir::open(&mount.at,", "a place of the kernel's list of mounts; only looks"),
    ("mounts.rs", "std::fs::File;", "of the lists below /proc"),
    ("mounts.rs", "use rustix::fs::{AtFlags, CWD", "for the two below"),
    ("mounts.rs", "statx(CWD, dir,", "the number of the mount, compared with the kernel's list"),
    ("mounts.rs", "statx(CWD, &at,", "whether a mount of the kernel's list is a directory: for the report"),
    ("mounts.rs", "/proc/{pid}/mountinfo", "the kernel's"),
    ("mounts.rs", "/proc/self/mountinfo", "the kernel's"),
    ("named.rs", "std::fs::read_link(Named(", "in /proc, of a descriptor"),
    ("opening.rs", "HostDir::open(dir", "who has the store open, for an error"),
    ("opening.rs", "HostDir::open(itself", "whose directory it is, for a message"),
    ("opening.rs", "/proc/{server}/comm", "the kernel's"),
    ("opening.rs", "dir.join(HOME).symlink_metadata()", "which store is meant; opening it checks by itself"),
    ("opening.rs", "dir.canonicalize()", "compared with the kernel's list of mounts"),
    ("output.rs", "dir.canonicalize()", "a name for the output"),
    ("diff.rs", "dir.canonicalize()", "compared with the targets of links, for a mark"),
    ("run/uncovered.rs", "canonicalize()", "says what is not covered, and decides nothing"),
    ("run/uncovered.rs", "symlink_metadata()", "the same"),
    ("run/uncovered.rs", "read_to_string(&file)", "the same"),
    ("papers.rs", "OpenOptions", "pages that it has just written, for packagers"),
    ("parts.rs", "dir.canonicalize()", "finds a group that was named twice; each store proves which it is by its id"),
    ("recover/all.rs", "HostDir::open(&entry.dir", "chooses the words; the open that follows checks by itself"),
    ("registry.rs", "", "the registry's own folder"),
    ("run/family.rs", "use rustix::fs::{CWD", "for the one below"),
    ("run/family.rs", "\"/proc", "the kernel's"),
    ("run/family.rs", "std::fs::File::from(", "a descriptor"),
    ("run/joining.rs", "use rustix::fs::{AtFlags, CWD", "for the one below"),
    ("run/joining.rs", "statx(CWD, path,", "in /proc"),
    ("run/large.rs", "CWD", "which view is faster; both are safe"),
    ("run/namespace.rs", "use rustix::fs::{AtFlags, CWD", "for the one below"),
    (
        "run/namespace.rs",
        "statx(CWD, path,",
        "refuses the root directory in words; what is mounted over is found by a descriptor",
    ),
    ("run/overlay.rs", "std::fs::read_link(&itself)", "in /proc, of a descriptor"),
    ("run/overlay.rs", "statx(rustix::fs::CWD, point,", "what was mounted there, compared with the kernel's list"),
    ("run/overlay.rs", "/sys/module/overlay", "the kernel's"),
    ("run/pager.rs", "std::fs::File;", "of the terminal"),
    ("run/pager.rs", "/dev/tty", "the terminal"),
    ("run/place.rs", "use rustix::fs::{AtFlags, CWD", "for those below"),
    ("run/place.rs", "statx(CWD, dir,", "the number of the mount, compared with the kernel's list"),
    ("run/place.rs", "openat(CWD, dir,", "refuses in words what cannot carry a store; opening it checks by itself"),
    ("run/place.rs", "HostDir::open(dir,", "the same"),
    ("run/place.rs", "HostDir::open(&itself,", "a descriptor"),
    ("run/user.rs", "std::fs::metadata(dir)", "refuses in words what the kernel refuses"),
    ("run/user.rs", "/proc/", "the kernel's"),
    ("run/user.rs", "/dev/fuse", "the kernel's"),
    ("run/views.rs", "use rustix::fs::{CWD", "for the one below"),
    ("run/views.rs", "openat(CWD, at,", "a place of the kernel's list of mounts, in a namespace of our own"),
    ("run/views.rs", "std::fs::File;", "for the one below"),
    (
        "run/views.rs",
        "HostDir::open(&at,",
        "a view of ours in a namespace of our own; opening the store checks by itself",
    ),
    ("run/views.rs", "File::open(place(", "a view of ours in a namespace of our own, after it was found to be there"),
    ("salvage.rs", ".canonicalize()", "names for the output"),
    ("stat.rs", "HostDir::open(&args.dir", "only looks"),
    ("survey.rs", "HostDir::open(dir", "only looks"),
    ("survey/medium.rs", "HostDir::open(dir", "only looks"),
    ("list.rs", "dir.symlink_metadata()", "whether a word of the command line is a directory or a group"),
    ("undo.rs", "std::fs::read_dir(dir)", "only looks, for the words of an error"),
    ("volume/fsck.rs", "std::fs::File;", "of a descriptor"),
    ("volume/fsck.rs", "File::options()", "a descriptor of the caller's, in /dev/fd"),
    ("volume/make.rs", "!file.exists()", "chooses the words of an error; making the volume checks by itself"),
    ("volume/mod.rs", "std::fs::metadata(file)", "whether it is meant as a volume; opening either checks by itself"),
    ("diff.rs", "stat.is_file()", "a stat"),
    ("flash.rs", "symlink_metadata(&args.file)", "chooses the words of an error"),
    ("flash.rs", "FlashFile::open(path)", "opened once, and used by its descriptor"),
    ("nvme.rs", "RegionFile::open(", "opened once, without following a link, and only read"),
    ("new_file.rs", "use std::fs::File;", "of a descriptor"),
    ("new_file.rs", "use rustix::fs::{AtFlags", "for those below"),
    ("new_file.rs", "openat(CWD, above", "the directory, opened once; what is in it goes by its descriptor"),
];

/// The lines of a file that take a path, with their numbers: without comments, and up to its tests.
fn calls(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    lines
        .map(|(number, line)| (number + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//") && CALLS.iter().any(|call| line.contains(call)))
        .filter(|(_, line)| !line.contains("std::os::unix::fs::MetadataExt"))
}

#[test]
fn paths_of_users_are_not_used_twice() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut todo, mut found, mut used) = (vec![src.clone()], Vec::new(), vec![false; EXCEPTIONS.len()]);
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                todo.push(path);
            } else if !NOT_LOOKED_AT.contains(&&*name) {
                let text = std::fs::read_to_string(&path).unwrap();
                for (number, line) in calls(&text) {
                    let is_it = |(file, part, _): &(&str, &str, &str)| *file == name && line.contains(part);
                    match EXCEPTIONS.iter().position(is_it) {
                        Some(exception) => used[exception] = true,
                        None => found.push(format!("crates/cli/src/{name}:{number}: {}", line.trim())),
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "use wholly-host, or say why not in this test:\n{}", found.join("\n"));
    let unused: Vec<_> = EXCEPTIONS.iter().zip(used).filter(|(_, used)| !used).collect();
    assert!(unused.is_empty(), "there is no such line any more: {unused:?}");
}

#[test]
fn a_call_with_a_path_is_seen() {
    let text = "use std::fs::File;\nlet a = dir.join(x).exists();\n// CWD\n#[cfg(test)]\nlet b = std::fs::read(x);\n";
    assert_eq!(calls(text).map(|(number, _)| number).collect::<Vec<_>>(), [1, 2]);
}
