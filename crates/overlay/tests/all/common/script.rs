//! Scripts: lines of the shell, and lines of our own for what it takes other programs to do.
//!
//! | line | does |
//! |---|---|
//! | `@data PATH OFFSET LENGTH SEED` | writes bytes that depend on the seed alone |
//! | `@hole PATH OFFSET LENGTH` | punches a hole |
//! | `@xattr PATH NAME VALUE`, `@noxattr PATH NAME` | sets and removes an extended attribute |
//! | `@acl PATH access MODE UID`, `@acl PATH default MODE UID` | a list that lets one more user read and write |
//! | `@socket PATH` | makes a socket |
//! | `@exchange PATH PATH` | `renameat2` with `RENAME_EXCHANGE` |
//! | `@mapped PATH OFFSET TEXT` | as the shell's `dd` with `conv=notrunc` |

use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{
    CWD, FallocateFlags, FileType, Mode, RenameFlags, XattrFlags, fallocate, lremovexattr, lsetxattr, mknodat,
    renameat_with,
};
use wholly_sim::Random;

/// Runs a script in a directory.
pub fn run(dir: &Path, script: &str) {
    let mut shell = String::new();
    for line in script.lines().map(str::trim) {
        match line.strip_prefix('@') {
            Some(call) => {
                run_shell(dir, &std::mem::take(&mut shell));
                run_call(dir, &call.split(' ').collect::<Vec<_>>());
            }
            None => shell.extend([line, "\n"]),
        }
    }
    run_shell(dir, &shell);
}

fn run_shell(dir: &Path, lines: &str) {
    if lines.trim().is_empty() {
        return;
    }
    let ran = Command::new("sh").args(["-euc", &format!("umask 022\n{lines}")]).current_dir(dir).output().expect("sh");
    assert!(ran.status.success(), "{lines}\n{}", String::from_utf8_lossy(&ran.stderr));
}

fn run_call(dir: &Path, call: &[&str]) {
    let at = |path: &str| dir.join(path);
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let open = |path: &str| {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o644).open(at(path)).expect("open")
    };
    match call {
        ["data", path, offset, length, seed] => {
            let bytes = Random(number(seed)).bytes(number(length));
            open(path).write_all_at(&bytes, number(offset)).expect("write");
        }
        ["mapped", path, offset, text] => open(path).write_all_at(text.as_bytes(), number(offset)).expect("write"),
        ["hole", path, offset, length] => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(open(path), mode, number(offset), number(length)).expect("fallocate");
        }
        ["xattr", path, name, value] => {
            lsetxattr(at(path), *name, value.as_bytes(), XattrFlags::empty()).expect("setxattr");
        }
        ["noxattr", path, name] => lremovexattr(at(path), *name).expect("removexattr"),
        ["acl", path, which, mode, uid] => {
            let mode = u32::from_str_radix(mode, 8).expect("octal");
            let entry = |tag: u16, bits: u32, id: u32| {
                [&tag.to_le_bytes()[..], &(bits as u16 & 7).to_le_bytes(), &id.to_le_bytes()].concat()
            };
            let uid = uid.parse().expect("a number");
            let none = u32::MAX;
            let list = [
                2u32.to_le_bytes().to_vec(),
                entry(1, mode >> 6, none),
                entry(2, 6, uid),
                entry(4, mode >> 3, none),
                entry(0x10, 7, none),
                entry(0x20, mode, none),
            ];
            let name = format!("system.posix_acl_{which}");
            lsetxattr(at(path), name, &list.concat(), XattrFlags::empty()).expect("setxattr");
        }
        ["socket", path] => {
            mknodat(CWD, at(path), FileType::Socket, Mode::from_raw_mode(0o755), 0).expect("mknod");
        }
        ["exchange", one, other] => {
            renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE).expect("renameat2");
        }
        other => panic!("no such line: {other:?}"),
    }
}
