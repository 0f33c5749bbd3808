//! Whose stores open: whoever opens one does what is written in its folder, with his own rights.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use crate::common::{self, Dir};
use rustix::process::geteuid;
use wholly::{Error, Options, Store};

/// Somebody else, who is not the superuser.
const OTHER: u32 = 12_345;

/// A store whose log has a group that is not home.
fn fill(dir: &Path) {
    let options = Options { background: false, ..Options::default() };
    Store::init(dir, &options).unwrap();
    let store = Store::open_with(dir, options, Default::default()).unwrap();
    store.mkdir("made", 0o700).unwrap();
}

fn options(trust_owner: bool) -> Options {
    Options { background: false, trust_owner, ..Options::default() }
}

/// It does not open, nothing has come home, and it does once its owner is trusted.
fn is_refused(dir: &Path, why: &str) {
    let log = || fs::read(dir.join(".wholly/log")).unwrap();
    let before = log();
    let opened = Store::open_with(dir, options(false), Default::default());
    assert!(matches!(&opened, Err(Error::Untrusted { why: said, .. }) if said.contains(why)), "{why}: {opened:?}");
    assert!(log() == before && !dir.join("made").exists());
    Store::open_with(dir, options(true), Default::default()).unwrap().close().unwrap();
    assert!(dir.join("made").exists());
}

#[test]
fn what_somebody_else_owns_is_not_believed() {
    if !geteuid().is_root() {
        return println!("skipped: it takes the superuser");
    }
    for name in ["", "log", "lock"] {
        for (dir, _) in Dir::on_media("trust-owner") {
            fill(&dir);
            chown(dir.join(".wholly").join(name), Some(OTHER), None).unwrap();
            is_refused(&dir, "belongs to user 12345");
        }
    }
    // Whose the directory is, is another question: in his own directory the superuser need not be alone.
    for (dir, _) in Dir::on_media("trust-directory") {
        fill(&dir);
        chown(&*dir, Some(OTHER), None).unwrap();
        Store::open_with(&*dir, options(false), Default::default()).unwrap().close().unwrap();
        assert!(dir.join("made").exists());
    }
}

#[test]
fn what_others_may_write_to_is_not_believed() {
    for (name, mode) in [("", 0o720), ("", 0o702), ("log", 0o620), ("log", 0o602)] {
        for (dir, _) in Dir::on_media("trust-mode") {
            fill(&dir);
            fs::set_permissions(dir.join(".wholly").join(name), PermissionsExt::from_mode(mode)).unwrap();
            is_refused(&dir, "others may write to");
        }
    }
    // To look is something else.
    for (dir, _) in Dir::on_media("trust-look") {
        fill(&dir);
        fs::set_permissions(dir.join(".wholly"), PermissionsExt::from_mode(0o755)).unwrap();
        Store::open_with(&*dir, options(false), Default::default()).unwrap().close().unwrap();
    }
}

#[test]
fn a_folder_elsewhere_is_none() {
    for (dir, _) in Dir::on_media("trust-link") {
        fs::create_dir(dir.join("below")).unwrap();
        fill(&dir.join("below"));
        for target in ["below/.wholly", "nowhere"] {
            symlink(target, dir.join(".wholly")).unwrap();
            for trust_owner in [false, true] {
                let opened = Store::open_with(&*dir, options(trust_owner), Default::default());
                assert!(matches!(opened, Err(Error::Media(_))), "{opened:?}");
            }
            assert!(matches!(Store::init(&*dir, &options(false)), Err(Error::AlreadyAStore(_))));
            fs::remove_file(dir.join(".wholly")).unwrap();
        }
        Store::open_with(dir.join("below"), options(false), Default::default()).unwrap().close().unwrap();
        assert!(dir.join("below/made").exists() && !dir.join("made").exists());
    }
}

/// Somebody may leave a folder that looks half made in a directory where the superuser makes a store, and move into it
/// what he could not remove.
#[test]
fn what_somebody_else_has_half_made_stays() {
    if !geteuid().is_root() {
        return println!("skipped: it takes the superuser");
    }
    for (dir, medium) in Dir::on_media("trust-unfinished") {
        for (name, owner) in [("1", OTHER), ("2", 0)] {
            let folder = dir.join(format!(".wholly.unfinished-{name}"));
            fs::create_dir_all(folder.join("moved")).unwrap();
            fs::write(folder.join("lock"), "").unwrap();
            fs::write(folder.join("moved/file"), "the superuser's").unwrap();
            chown(&folder, Some(owner), None).unwrap();
        }
        let _ = common::made_in(&dir, medium);
        assert!(dir.join(".wholly.unfinished-1/moved/file").exists());
        assert!(!dir.join(".wholly.unfinished-2").exists());
    }
}
