//! Files without a name, and renames that leave a whiteout, on mounts.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::common::or_skip;
use crate::common::served::Served;
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;
use wholly::MountGroup;
use wholly_vfs::Policy;
use wholly_volume::EngineKind;

/// All mounts that there are.
fn each(work: impl Fn(&Served)) {
    let volume = |engine, policy| Served::volume(engine, policy);
    let mounts = [
        volume(EngineKind::HybridLog, None),
        volume(EngineKind::PageCacheWal, Some(Policy::PerSync)),
        volume(EngineKind::FineGrainedWal, Some(Policy::PerOp)),
        Served::store(Policy::PerSync),
        Served::store(Policy::PerOp),
    ];
    for mounted in mounts {
        let Some(mounted) = or_skip(mounted) else { return };
        work(&mounted);
        mounted.end();
    }
}

fn nameless(dir: &Path, more: OFlags) -> std::io::Result<File> {
    let flags = (OFlags::TMPFILE | more).bits() as i32;
    OpenOptions::new().read(true).write(true).custom_flags(flags).mode(0o640).open(dir)
}

fn link(file: &File, to: &Path) -> Result<(), Errno> {
    linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, to, AtFlags::SYMLINK_FOLLOW)
}

fn names(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("list").map(|entry| entry.expect("list").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn files_without_a_name_are_written_linked_and_dropped() {
    each(|mounted| {
        let at = |name: &str| mounted.at(name);
        let mut file = nameless(mounted.point(), OFlags::empty()).expect("make a file");
        file.write_all(b"abc").expect("write");
        let stat = file.metadata().expect("stat");
        assert_eq!((stat.nlink(), stat.len(), stat.mode() & 0o7777), (0, 3, 0o640));
        let mut bytes = [0; 3];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes, b"abc");
        assert_eq!(names(mounted.point()), [""; 0]);
        // Where a name is taken, the file stays without one.
        std::fs::write(at("taken"), b"taken").expect("write");
        assert_eq!(link(&file, &at("taken")), Err(Errno::EXIST));
        link(&file, &at("linked")).expect("link");
        link(&file, &at("again")).expect("link");
        assert_eq!(file.metadata().expect("stat").nlink(), 2);
        file.write_all(b"def").expect("write");
        assert_eq!(std::fs::read(at("linked")).expect("read"), b"abcdef");
        drop(file);
        assert_eq!(std::fs::read(at("again")).expect("read"), b"abcdef");
        // Nobody can name this one, and nothing is left of it.
        let file = nameless(mounted.point(), OFlags::EXCL).expect("make a file");
        file.write_all_at(&[7; 10_000], 5).expect("write");
        assert_eq!(link(&file, &at("excluded")), Err(Errno::NOENT));
        drop(file);
        let read_only = OpenOptions::new().read(true).custom_flags(OFlags::TMPFILE.bits() as i32).open(mounted.point());
        assert!(read_only.is_err());
        assert_eq!(nameless(&at("taken"), OFlags::empty()).unwrap_err().raw_os_error(), Some(20));
        assert_eq!(names(mounted.point()), ["again", "linked", "taken"]);
    });
}

fn leave_whiteout(from: &Path, to: &Path) -> Result<(), Errno> {
    renameat_with(CWD, from, CWD, to, RenameFlags::WHITEOUT)
}

fn is_whiteout(path: &Path) -> bool {
    let found = path.symlink_metadata().expect("stat");
    found.file_type().is_char_device() && found.rdev() == 0 && found.mode() & 0o7777 == 0
}

#[test]
fn a_rename_leaves_a_whiteout() {
    each(|mounted| {
        let at = |name: &str| mounted.at(name);
        std::fs::write(at("file"), b"abc").expect("write");
        std::fs::create_dir_all(at("dir/below")).expect("mkdir");
        leave_whiteout(&at("file"), &at("dir/moved")).expect("rename");
        leave_whiteout(&at("dir/below"), &at("below")).expect("rename");
        assert!(is_whiteout(&at("file")) && is_whiteout(&at("dir/below")));
        assert_eq!(std::fs::read(at("dir/moved")).expect("read"), b"abc");
        assert_eq!(names(mounted.point()), ["below", "dir", "file"]);
        // What replaces it takes the name.
        leave_whiteout(&at("dir/moved"), &at("file")).expect("rename");
        assert!(is_whiteout(&at("dir/moved")));
        assert_eq!(std::fs::read(at("file")).expect("read"), b"abc");
    });
}

#[test]
fn groups_have_them_too() {
    each(|mounted| {
        let at = |name: &str| mounted.at(name);
        for name in ["one", "other"] {
            std::fs::write(at(name), name).expect("write");
        }
        let before = names(mounted.point());
        for commits in [false, true] {
            let group = MountGroup::begin(File::open(mounted.point()).expect("open")).expect("nobody has one");
            let mut file = nameless(mounted.point(), OFlags::empty()).expect("make a file");
            let unlinked = nameless(mounted.point(), OFlags::empty()).expect("make a file");
            file.write_all(b"in the group").expect("write");
            unlinked.write_all_at(b"in the group", 5000).expect("write");
            link(&file, &at("linked")).expect("link");
            leave_whiteout(&at("one"), &at("moved")).expect("rename");
            leave_whiteout(&at("other"), &at("moved")).expect("rename");
            assert!(is_whiteout(&at("one")) && is_whiteout(&at("other")));
            assert_eq!(std::fs::read(at("moved")).expect("read"), b"other");
            assert_eq!(std::fs::read(at("linked")).expect("read"), b"in the group");
            match commits {
                true => group.commit().expect("commit"),
                false => group.abort().expect("abort"),
            }
            drop((file, unlinked));
            if !commits {
                assert_eq!(names(mounted.point()), before);
                assert_eq!(std::fs::read(at("one")).expect("read"), b"one");
                assert_eq!(std::fs::read(at("other")).expect("read"), b"other");
            }
        }
        assert!(is_whiteout(&at("one")) && is_whiteout(&at("other")));
        assert_eq!(names(mounted.point()), ["linked", "moved", "one", "other"]);
        assert_eq!(std::fs::read(at("linked")).expect("read"), b"in the group");
    });
}
