//! Programs on names, written in one line, which is also what they are called:
//!
//! ```text
//! bare,link-A/foo-foo+unlink-A/foo,home,write-foo,kill,home
//! ```
//!
//! First what is there before ([`Start`]), with `.tight` for a log of two segments that may not grow, and `.staged`
//! where files are staged, or have shadows, to which a group writes 50 bytes, and `.closed` where the store keeps no
//! host file open that no program has open; then one step after the other:
//!
//! | step | what it is |
//! |---|---|
//! | `OP+OP` | a group that commits |
//! | `order.OP+OP` | a group whose commit returns at the order |
//! | `abort.OP+OP` | a group that aborts |
//! | `OP+OP%OP+OP` | two groups at once: the first begins first and commits last |
//! | `call.OP` | a call outside of groups |
//! | `park.OP+OP` | a group that is parked, under the next number from 1 on |
//! | `fade.OP+OP` | the same, which expires at once |
//! | `apply.N`, `clash.N`, `discard.N` | the parked group N is applied, cannot be applied, is discarded |
//! | `theirs.N` | it is applied over what is otherwise |
//! | `keep` | a guest becomes a store for good |
//! | `full.F` | a file gets space until there is none |
//! | `home` | a checkpoint |
//! | `lot`, `pass` | what is committed is a lot for the background; the oldest lot goes home, or a block of a volume |
//! | `kill`, `close` | the process ends, without a checkpoint or with one, and the next one opens the store |
//!
//! | op | what it is |
//! |---|---|
//! | `create-P`, `mkdir-P`, `fifo-P`, `symlink-TARGET-P` | something new at the path `P` |
//! | `adopt-P`, `take-P`, `import-P` | a directory with `foo`, `C` and `C/bar` in it is adopted, a file, the bytes of one |
//! | `link-P-Q`, `unlink-P`, `rmdir-P` | as the system calls |
//! | `clear-P` | a directory is removed with everything in it |
//! | `rename-P-Q`, `noreplace-P-Q`, `exchange-P-Q` | renames |
//! | `chmod-P`, `shut-P`, `chown-P` | permission bits, none of them, owner and group |
//! | `times-P`, `atime-P`, `mtime-P` | both times, or one |
//! | `tag-P`, `newtag-P`, `retag-P`, `untag-P`, `note-P`, `unnote-P` | a small extended attribute is set, set where there is none or where there is one, removed; a large one |
//! | `write-F`, `fill-F`, `more-F`, `append-F`, `cut-F`, `grow-F`, `bulk-F`, `huge-F` | bytes of the file at the path `F`, or of that opened by the path behind `@`: a \
//!   few, many, more behind those, 10 blocks, 27 |
//! | `punch-F`, `nick-F`, `zero-F`, `blank-F` | whole blocks of it become a hole, some bytes; zeros to behind its end, up to its end |
//! | `alloc-F`, `reserve-F` | it gets space, and grows; behind its end |

use std::sync::LazyLock;

use wholly::Fallocate;
use wholly_vfs::{Policy, Rename, SetXattr};

use crate::workload::{Adopted, Op, Start, Step, Workload};

/// The paths that scripts speak of, directories before what is in them.
pub const PATHS: &[&str] = &[
    "foo", "bar", "baz", "A", "A/foo", "A/bar", "A/C", "A/C/foo", "A/C/bar", "B", "B/foo", "B/bar", "B/C", "B/C/foo",
    "B/C/bar", "C",
];

/// Targets of symbolic links, besides paths.
const TARGETS: &[&str] = &["../foo", "nowhere"];

/// Names of extended attributes: a small one and a large one.
pub(crate) const XATTRS: [&str; 2] = ["user.tag", "user.note"];

/// How many [`MANY`] are.
pub(crate) const MOST: usize = 40;

/// Many names for one group: `n00`, `n01` and so on.
static MANY: LazyLock<Vec<String>> = LazyLock::new(|| (0..MOST).map(|n| format!("n{n:02}")).collect());

/// More of them, which only what is written by hand speaks of: what is adopted has something in it.
const MORE: &[&str] = &[
    "C/foo",
    "C/C",
    "C/C/bar",
    "baz/foo",
    "baz/C",
    "baz/C/bar",
    "foo/C",
    "B/C/C",
    "A/C/C",
    "crowd/00",
    "crowd/01",
    "crowd/02",
    "baz/C/foo",
    "baz/C/foo/bar",
    "baz/C/foo/bar/C",
    "B/bar/C",
    "B/bar/C/C",
];

/// Names of the greatest length but a few bytes, which scripts call by a short one.
static LONG: LazyLock<[(&str, String); 2]> = LazyLock::new(|| [("long", "l".repeat(250)), ("longer", "L".repeat(252))]);

/// The same files as they were opened.
static OPENED: LazyLock<Vec<String>> = LazyLock::new(|| PATHS.iter().map(|path| format!("@{path}")).collect());

fn path(text: &str) -> Option<&'static str> {
    let many = || MANY.iter().map(String::as_str).find(|path| *path == text);
    let long = || LONG.iter().find(|(short, _)| *short == text).map(|(_, path)| path.as_str());
    PATHS.iter().chain(MORE).copied().find(|path| *path == text).or_else(many).or_else(long)
}

fn file(text: &str) -> Option<&'static str> {
    path(text).or_else(|| OPENED.iter().map(String::as_str).find(|file| *file == text))
}

fn target(text: &str) -> Option<&'static str> {
    path(text).or_else(|| TARGETS.iter().copied().find(|target| *target == text))
}

/// The op that is written so.
pub fn op(text: &str) -> Option<Op> {
    let mut words = text.split('-');
    let word = words.next()?;
    let (first, second) = (words.next()?, words.next());
    if words.next().is_some() {
        return None;
    }
    let tag = |how| Some(Op::SetXattr { path: path(first)?, name: XATTRS[0], length: 20, how });
    let space = |how, offset, length| Some(Op::Fallocate { file: file(first)?, how, offset, length });
    let adopt = |what| Some(Op::Adopt { path: path(first)?, what });
    let rename = |how| Some(Op::Rename { from: path(first)?, to: path(second?)?, how });
    match (word, second) {
        ("create", None) => path(first).map(Op::Create),
        ("mkdir", None) => path(first).map(Op::Mkdir),
        ("adopt", None) => adopt(Adopted::Whole),
        ("take", None) => adopt(Adopted::File),
        ("import", None) => adopt(Adopted::Content),
        ("fifo", None) => path(first).map(Op::Mknod),
        ("symlink", Some(second)) => Some(Op::Symlink { target: target(first)?, path: path(second)? }),
        ("link", Some(second)) => Some(Op::Link { from: path(first)?, to: path(second)? }),
        ("unlink", None) => path(first).map(Op::Unlink),
        ("rmdir", None) => path(first).map(Op::Rmdir),
        ("clear", None) => path(first).map(Op::RemoveTree),
        ("rename", _) => rename(Rename::Replace),
        ("noreplace", _) => rename(Rename::NoReplace),
        ("exchange", _) => rename(Rename::Exchange),
        ("chmod", None) => Some(Op::SetMode { path: path(first)?, mode: 0o705 }),
        ("shut", None) => Some(Op::SetMode { path: path(first)?, mode: 0 }),
        ("chown", None) => path(first).map(Op::SetOwner),
        ("times", None) => Some(Op::SetTimes { path: path(first)?, atime: true, mtime: true }),
        ("atime", None) => Some(Op::SetTimes { path: path(first)?, atime: true, mtime: false }),
        ("mtime", None) => Some(Op::SetTimes { path: path(first)?, atime: false, mtime: true }),
        ("tag", None) => tag(SetXattr::Any),
        ("newtag", None) => tag(SetXattr::Create),
        ("retag", None) => tag(SetXattr::Replace),
        ("untag", None) => Some(Op::RemoveXattr { path: path(first)?, name: XATTRS[0] }),
        ("note", None) => Some(Op::SetXattr { path: path(first)?, name: XATTRS[1], length: 1500, how: SetXattr::Any }),
        ("unnote", None) => Some(Op::RemoveXattr { path: path(first)?, name: XATTRS[1] }),
        ("write", None) => Some(Op::Write { file: file(first)?, offset: 100, length: 24 }),
        ("fill", None) => Some(Op::Write { file: file(first)?, offset: 0, length: 1700 }),
        ("more", None) => Some(Op::Write { file: file(first)?, offset: 1700, length: 3000 }),
        ("bulk", None) => Some(Op::Write { file: file(first)?, offset: 0, length: 40_000 }),
        ("huge", None) => Some(Op::Write { file: file(first)?, offset: 0, length: 110_000 }),
        ("append", None) => Some(Op::Append { file: file(first)?, length: 30 }),
        ("cut", None) => Some(Op::SetLen { file: file(first)?, length: 40 }),
        ("grow", None) => Some(Op::SetLen { file: file(first)?, length: 5000 }),
        ("punch", None) => space(Fallocate::Punch, 0, 8192),
        ("nick", None) => space(Fallocate::Punch, 60, 50),
        ("zero", None) => space(Fallocate::ZeroExtend, 50, 4300),
        ("blank", None) => space(Fallocate::Zero, 0, 4096),
        ("alloc", None) => space(Fallocate::Extend, 200, 4800),
        ("reserve", None) => space(Fallocate::Keep, 4096, 5000),
        _ => None,
    }
}

fn ops(text: &str) -> Option<Vec<Op>> {
    text.split('+').map(op).collect()
}

fn step(text: &str) -> Option<Step> {
    match text {
        "keep" => return Some(Step::Keep),
        "home" => return Some(Step::Checkpoint),
        "lot" => return Some(Step::Announce),
        "pass" => return Some(Step::Pass),
        "kill" => return Some(Step::Reopen { close: false }),
        "close" => return Some(Step::Reopen { close: true }),
        _ => {}
    }
    if let Some(text) = text.strip_prefix("abort.") {
        return Some(Step::Group { ops: ops(text)?, commit: false });
    }
    if let Some(text) = text.strip_prefix("order.") {
        return ops(text).map(Step::Order);
    }
    if let Some(text) = text.strip_prefix("call.") {
        return op(text).map(Step::Call);
    }
    if let Some(text) = text.strip_prefix("full.") {
        return file(text).map(Step::Full);
    }
    for (word, stays) in [("park.", true), ("fade.", false)] {
        if let Some(text) = text.strip_prefix(word) {
            return Some(Step::Park { ops: ops(text)?, stays });
        }
    }
    if let Some((word @ ("apply" | "clash" | "theirs" | "discard"), number)) = text.split_once('.') {
        let number = number.parse().ok()?;
        return Some(match word {
            "discard" => Step::Discard { number },
            "theirs" => Step::ApplyOver { number },
            word => Step::Apply { number, clash: word == "clash" },
        });
    }
    match text.split_once('%') {
        Some((first, second)) => Some(Step::Across { first: ops(first)?, second: ops(second)? }),
        None => Some(Step::Group { ops: ops(text)?, commit: true }),
    }
}

/// The workload that is written so; none where it makes no sense.
pub fn workload(script: &str) -> Option<Workload> {
    let (start, steps) = script.split_once(',')?;
    let mut words = start.split('.');
    let start = words.next()?;
    let (mut segments, mut stage_bytes, mut open_files) = ((4, 8), u64::MAX, 256);
    for word in words {
        match word {
            "tight" => segments = (2, 2),
            "staged" => stage_bytes = 50,
            "closed" => open_files = 0,
            _ => return None,
        }
    }
    let start = match start {
        "bare" => Start::Bare,
        "dirs" => Start::Dirs,
        "guest" => Start::Guest,
        "crowd" => Start::Crowd,
        _ => return None,
    };
    Some(Workload {
        name: script.into(),
        about: "names",
        start,
        min_segments: segments.0,
        max_segments: segments.1,
        gather_bytes: 6000,
        stage_bytes,
        open_files,
        policy: Policy::PerOp,
        steps: steps.split(',').map(step).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_what_is_done() {
        let script = "dirs,link-A/foo-foo+unlink-A/foo,abort.rmdir-B,home,write-@A/foo%mkdir-B/C,call.fifo-bar,order.rmdir-B,kill,\
                      park.unlink-A/foo,fade.unlink-A/foo,apply.1,clash.1,theirs.1,discard.2";
        let workload = workload(script).expect("it makes sense");
        assert_eq!((workload.start, &*workload.name), (Start::Dirs, script));
        let link = Op::Link { from: "A/foo", to: "foo" };
        assert_eq!(
            workload.steps,
            [
                Step::Group { ops: vec![link, Op::Unlink("A/foo")], commit: true },
                Step::Group { ops: vec![Op::Rmdir("B")], commit: false },
                Step::Checkpoint,
                Step::Across {
                    first: vec![Op::Write { file: "@A/foo", offset: 100, length: 24 }],
                    second: vec![Op::Mkdir("B/C")],
                },
                Step::Call(Op::Mknod("bar")),
                Step::Order(vec![Op::Rmdir("B")]),
                Step::Reopen { close: false },
                Step::Park { ops: vec![Op::Unlink("A/foo")], stays: true },
                Step::Park { ops: vec![Op::Unlink("A/foo")], stays: false },
                Step::Apply { number: 1, clash: false },
                Step::Apply { number: 1, clash: true },
                Step::ApplyOver { number: 1 },
                Step::Discard { number: 2 },
            ]
        );
        assert_eq!(op("symlink-../foo-A/bar"), Some(Op::Symlink { target: "../foo", path: "A/bar" }));
        assert_eq!(op("create-n39"), Some(Op::Create("n39")));
        assert_eq!(op("unlink-longer").map(|op| op.file().len()), Some(252));
        for wrong in ["unlink", "unlink-A-B", "rename-A", "link-A/foo", "mkdir-D", "write-../foo", "symlink-A-B-C"] {
            assert_eq!(op(wrong), None, "{wrong}");
        }
    }
}
