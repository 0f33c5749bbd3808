//! A directory in which another user has one of his own, and exchanges what is in it while a group goes home.
//!
//! ```text
//! etc/       the superuser's: nobody else may change anything in it
//! A/         user 1000's
//!   r/       what the group changes, moves to `etc`, and gets from there
//!   evil/    other things by the same names: links to what is in `etc`, files of his own
//!   roots/   the superuser's, in A: its name can be exchanged, what is in it cannot
//!   link     to `etc`
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use wholly::{Group, Rename, SetXattr};

const EVE: Option<u32> = Some(1000);

/// What is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The directory, for a link to one of the superuser's.
    Link,
    /// The directory, for another one.
    Evil,
    /// The directory, for one of the superuser's.
    Roots,
    /// What is in the directory.
    Objects,
}

pub const SWAPS: [Swap; 4] = [Swap::Link, Swap::Evil, Swap::Roots, Swap::Objects];

/// Names of things that are there before the group.
const NAMES: [&str; 7] = ["f", "g", "k", "x", "y", "d", "z"];

/// Of an object that is not the other user's: inode, mode, owner, content.
type Seen = (u64, u32, u32, Vec<u8>);

/// Makes all of it. The caller is root.
pub fn furnish(dir: &Path) {
    for (name, owner) in [("etc", None), ("A", EVE), ("A/r", EVE), ("A/evil", EVE), ("A/roots", None)] {
        fs::create_dir(dir.join(name)).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        chown(dir.join(name), owner, owner).unwrap();
    }
    let file = |path: &str, mode: u32, owner: Option<u32>| {
        fs::write(dir.join(path), path).unwrap();
        fs::set_permissions(dir.join(path), fs::Permissions::from_mode(mode)).unwrap();
        chown(dir.join(path), owner, owner).unwrap();
    };
    for name in ["shadow", "h", "h3"] {
        file(&format!("etc/{name}"), 0o600, None);
    }
    for name in NAMES {
        for (place, owner) in [("etc", None), ("A/r", EVE), ("A/roots", None)] {
            let path = format!("{place}/{name}");
            if matches!(name, "d" | "z") {
                fs::create_dir(dir.join(&path)).unwrap();
                chown(dir.join(&path), owner, owner).unwrap();
            } else {
                file(&path, 0o640, owner);
            }
        }
    }
    file("A/r/f2", 0o640, EVE);
    file("A/r/d/inner", 0o640, EVE);
    file("etc/d/inner", 0o600, None);
    for name in ["f", "y"] {
        fs::hard_link(dir.join("etc/shadow"), dir.join("A/evil").join(name)).unwrap();
    }
    for name in ["g", "k", "d"] {
        symlink(format!("../../etc/{name}"), dir.join("A/evil").join(name)).unwrap();
    }
    file("A/evil/x", 0o4755, EVE);
    fs::create_dir(dir.join("A/evil/z")).unwrap();
    symlink("../etc", dir.join("A/link")).unwrap();
}

/// A group that changes something of each kind.
pub fn change_all(group: &mut Group<'static>) {
    let f = group.open_file("A/r/f").unwrap();
    group.write_at(&f, 0, b"written").unwrap();
    group.set_mode("A/r/g", 0o666).unwrap();
    group.set_owner("A/r/g", Some(1001), Some(1001)).unwrap();
    group.set_times("A/r/g", Some(5), Some(5)).unwrap();
    group.set_xattr("A/r/k", "trusted.x", b"1", SetXattr::Any).unwrap();
    group.link("A/r/k", "etc/k2").unwrap();
    group.rename("A/r/x", "etc/x2", Rename::NoReplace).unwrap();
    group.rename("A/r/d", "etc/d2", Rename::NoReplace).unwrap();
    group.unlink("A/r/y").unwrap();
    group.rmdir("A/r/z").unwrap();
    group.rename("etc/h", "A/r/h2", Rename::NoReplace).unwrap();
    group.rename("etc/h3", "A/r/f2", Rename::Replace).unwrap();
    make_new(group);
}

/// What such a group makes.
pub fn make_new(group: &mut Group<'static>) {
    let new = group.create("A/r/new", 0o666).unwrap();
    group.append(&new, b"new").unwrap();
    group.mkdir("A/r/newdir", 0o777).unwrap();
    group.create("A/r/newdir/inner", 0o666).unwrap();
    group.symlink("target", "A/r/newlink").unwrap();
    group.mknod("A/r/newfifo", 0o010_666, 0).unwrap();
}

/// Exchanges it; once more, and it is as before.
pub fn exchange(dir: &Path, swap: Swap) {
    let exchange = |a: &str, b: &str| {
        let [a, b] = [a, b].map(|name| dir.join("A").join(name).into_os_string().into_vec());
        let _ = renameat_with(CWD, &a[..], CWD, &b[..], RenameFlags::EXCHANGE);
    };
    match swap {
        Swap::Link => exchange("r", "link"),
        Swap::Evil => exchange("r", "evil"),
        Swap::Roots => exchange("r", "roots"),
        Swap::Objects => NAMES.iter().for_each(|name| exchange(&format!("r/{name}"), &format!("evil/{name}"))),
    }
}

/// What is the superuser's and no business of the other user's, with what has come to it.
pub struct Outside {
    seen: BTreeMap<String, Seen>,
    /// By the names that the group gives them there, the inodes of what it moves and links.
    given: BTreeMap<String, u64>,
}

/// Looks at it while nothing is exchanged, and before the group.
pub fn look_before(dir: &Path) -> Outside {
    let given = [("x", "etc/x2"), ("d", "etc/d2"), ("k", "etc/k2")];
    let given =
        given.map(|(from, to)| (to.to_owned(), fs::symlink_metadata(dir.join("A/r").join(from)).unwrap().ino()));
    Outside { seen: look(dir), given: given.into() }
}

fn look(dir: &Path) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    let mut todo = vec!["etc".to_owned(), "A/roots".to_owned()];
    while let Some(path) = todo.pop() {
        let Ok(stat) = fs::symlink_metadata(dir.join(&path)) else { continue };
        let mut content = Vec::new();
        if stat.is_dir() {
            let names = fs::read_dir(dir.join(&path)).unwrap();
            todo.extend(names.map(|entry| format!("{path}/{}", entry.unwrap().file_name().to_str().unwrap())));
        } else if stat.is_file() {
            content = fs::read(dir.join(&path)).unwrap();
        }
        seen.insert(path, (stat.ino(), stat.mode(), stat.uid(), content));
    }
    seen
}

impl Outside {
    /// That only what the group does has come of it. Nothing is exchanged.
    pub fn check(&self, dir: &Path, what: &str) {
        let now = look(dir);
        let is_moved = |path: &str| path == "etc/h" || path == "etc/h3";
        for (path, seen) in &self.seen {
            match now.get(path) {
                Some(now) => assert_eq!(now, seen, "{what}: {path}"),
                None => assert!(is_moved(path), "{what}: {path} is gone"),
            }
        }
        for (path, (ino, ..)) in &now {
            let given = self.given.iter().find(|(given, _)| path == *given);
            let is_below = path.starts_with("etc/d2/");
            assert!(
                self.seen.contains_key(path) || is_below || given.is_some_and(|given| given.1 == ino),
                "{what}: {path} has come there"
            );
        }
    }

    /// That the group is home.
    pub fn check_home(&self, dir: &Path, what: &str) {
        self.check(dir, what);
        let stat = |path: &str| fs::symlink_metadata(dir.join(path)).unwrap_or_else(|_| panic!("{what}: no {path}"));
        let is_gone = |path: &str| fs::symlink_metadata(dir.join(path)).is_err();
        for (path, ino) in &self.given {
            assert_eq!(stat(path).ino(), *ino, "{what}: {path}");
        }
        for path in ["etc/h", "etc/h3", "A/r/x", "A/r/d", "A/r/y", "A/r/z"] {
            assert!(is_gone(path), "{what}: {path} is there");
        }
        assert_eq!(fs::read(dir.join("A/r/f")).unwrap()[..7], *b"written", "{what}");
        assert_eq!(fs::read(dir.join("A/r/new")).unwrap(), b"new", "{what}");
        assert_eq!(fs::read(dir.join("A/r/h2")).unwrap(), b"etc/h", "{what}");
        assert_eq!(fs::read(dir.join("A/r/f2")).unwrap(), b"etc/h3", "{what}");
        let bits =
            [("A/r/g", 0o100_666), ("A/r/newdir", 0o040_777), ("A/r/newfifo", 0o010_666), ("A/r/new", 0o100_666)];
        for (path, mode) in bits {
            assert_eq!(stat(path).mode(), mode, "{what}: {path}");
        }
        assert_eq!((stat("A/r/g").uid(), stat("A/r/g").mtime_nsec()), (1001, 5), "{what}");
        assert_eq!(fs::read_link(dir.join("A/r/newlink")).unwrap(), Path::new("target"), "{what}");
        assert!(stat("A/r/newdir/inner").is_file(), "{what}");
    }
}
