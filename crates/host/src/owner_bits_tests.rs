//! What an ordinary user's store does with files whose owner has taken permissions from himself. The tests become such
//! a user, a thread each.

use super::*;
use crate::{HostFs, HostNames};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wholly_media::Site;
use wholly_vfs::{Rename, SetXattr};

const SITE: Site = Site("test");
const USER: u32 = 1000;

/// A directory, removed on drop.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `test` as an ordinary user in an empty directory of his that has a store's folder.
fn as_user(name: &str, test: impl FnOnce(&Path) + Send + 'static) {
    let dir = Dir(std::env::temp_dir().join(format!("wholly-owner-bits-{name}-{}", std::process::id())));
    std::fs::create_dir_all(dir.0.join(".wholly")).unwrap();
    let path = dir.0.clone();
    if !geteuid().is_root() {
        return test(&path);
    }
    for path in [&dir.0, &dir.0.join(".wholly")] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let thread = std::thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
        set_thread_groups(&[gid]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        test(&path);
    });
    thread.join().unwrap();
}

fn open(dir: &Path) -> OwnerBits {
    OwnerBits::open(Arc::new(HostDir::open(dir, HostOptions::default()).unwrap())).unwrap()
}

fn bits(dir: &Path, name: &str) -> u32 {
    std::fs::symlink_metadata(dir.join(name)).unwrap().mode() & 0o7777
}

fn set_bits(dir: &Path, name: &str, bits: u32) {
    std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(bits)).unwrap();
}

/// All calls work in directories that let nobody in, on files that nobody may open; and all have their bits again.
#[test]
fn what_the_owner_took_from_himself_is_no_obstacle() {
    as_user("calls", |dir| {
        std::fs::create_dir_all(dir.join("closed/deep/moves")).unwrap();
        std::fs::create_dir(dir.join("other")).unwrap();
        std::fs::write(dir.join("closed/deep/file"), b"text").unwrap();
        set_bits(dir, "closed/deep/file", 0);
        set_bits(dir, "closed/deep/moves", 0o555);
        set_bits(dir, "closed/deep", 0);
        set_bits(dir, "closed", 0o400);
        set_bits(dir, "other", 0o555);
        let host = open(dir);
        let plain = HostDir::open(dir, HostOptions::default()).unwrap();
        assert_eq!(plain.stat(b"closed/deep/file").unwrap_err().errno, Errno::ACCESS, "it is an ordinary user's");

        assert_eq!(HostFs::stat(&host, b"closed/deep/file").unwrap().mode & 0o7777, 0);
        assert_eq!(HostFs::open(&host, b"closed/deep/file", true).err().map(|error| error.errno), Some(Errno::ACCESS));
        let file = host.open_own(b"closed/deep/file").unwrap();
        file.write_at(SITE, 0, b"TEXT").unwrap();
        assert_eq!(host.read_dir(b"closed/deep").unwrap().len(), 2);
        host.create(SITE, b"closed/deep/new", 0o200).unwrap();
        host.mkdir(SITE, b"closed/deep/dir", 0o500).unwrap();
        host.symlink(SITE, b"target", b"closed/deep/link").unwrap();
        assert_eq!(host.read_link(b"closed/deep/link").unwrap(), b"target");
        host.hard_link(SITE, b"closed/deep/file", b"other/linked").unwrap();
        host.rename(SITE, b"closed/deep/moves", b"other/moved", Rename::NoReplace).unwrap();
        host.rename(SITE, b"closed/deep/dir", b"other/moved", Rename::Exchange).unwrap();
        host.unlink(SITE, b"closed/deep/link").unwrap();
        host.rmdir(SITE, b"other/moved").unwrap();
        host.set_mode(SITE, b"closed/deep/new", 0o100).unwrap();
        HostNames::set_times(&host, SITE, b"closed/deep/new", Some(1), Some(2)).unwrap();
        if host.set_xattr(SITE, b"closed/deep/file", b"user.a", b"v", SetXattr::Any).is_ok() {
            assert_eq!(host.get_xattr(b"closed/deep/file", b"user.a").unwrap(), Some(b"v".to_vec()));
            host.remove_xattr(SITE, b"closed/deep/file", b"user.a").unwrap();
        }
        host.sync_dir(SITE, b"closed/deep").unwrap();
        host.sync_all(SITE).unwrap();
        assert!(!dir.join(".wholly").join(SLIP).exists());

        let found = |path: &[u8]| HostFs::stat(&host, path).unwrap().mode & 0o7777;
        assert_eq!((bits(dir, "closed"), bits(dir, "other"), found(b"closed/deep")), (0o400, 0o555, 0));
        assert_eq!((found(b"closed/deep/new"), found(b"closed/deep/dir"), found(b"other/linked")), (0o100, 0o555, 0));
        // What the test goes on with, and takes away.
        for name in ["closed", "closed/deep", "closed/deep/dir", "other", "other/linked"] {
            set_bits(dir, name, 0o700);
        }
        assert_eq!(std::fs::read(dir.join("other/linked")).unwrap(), b"TEXT");
    });
}

/// The process dies while bits are lent, at a path and, of a directory that moves, before and after that.
#[test]
fn what_a_crash_leaves_lent_is_taken_back() {
    as_user("crash", |dir| {
        std::fs::create_dir_all(dir.join("closed/moves")).unwrap();
        set_bits(dir, "closed/moves", 0o555);
        set_bits(dir, "closed", 0o050);
        let host = open(dir);
        host.die_in_move(b"closed/moves", b"moved", || {
            assert_eq!((bits(dir, "closed"), bits(dir, "closed/moves")), (0o350, 0o755));
        });
        assert_eq!(bits(dir, "closed"), 0o350, "it died with bits lent");
        open(dir);
        assert_eq!(bits(dir, "closed"), 0o050);
        assert!(!dir.join(".wholly").join(SLIP).exists());
        set_bits(dir, "closed", 0o700);
        assert_eq!(bits(dir, "closed/moves"), 0o555);

        set_bits(dir, "closed", 0o500);
        let host = open(dir);
        host.die_in_move(b"closed/moves", b"moved", || {
            std::fs::rename(dir.join("closed/moves"), dir.join("moved")).unwrap();
        });
        open(dir);
        assert_eq!((bits(dir, "closed"), bits(dir, "moved")), (0o500, 0o555));

        // What has got other bits since is not the store's business.
        set_bits(dir, "closed", 0o500);
        let host = open(dir);
        host.die_in_move(b"closed/none", b"moved/none", || {});
        set_bits(dir, "closed", 0o711);
        open(dir);
        assert_eq!((bits(dir, "closed"), bits(dir, "moved")), (0o711, 0o555));
        set_bits(dir, "moved", 0o700);
    });
}

/// What somebody has written down is believed of what is his, and of permission bits: the superuser, who opens his
/// store, changes nothing else.
#[test]
fn a_slip_is_believed_of_its_owners_files() {
    if !geteuid().is_root() {
        return println!("skipped: it takes the superuser");
    }
    let dir = Dir(std::env::temp_dir().join(format!("wholly-owner-bits-slip-{}", std::process::id())));
    let host = || open(&dir.0);
    std::fs::create_dir_all(dir.0.join(".wholly")).unwrap();
    for (name, mode) in [("theirs", 0o500), ("more", 0o4700), ("ours", 0o500)] {
        std::fs::create_dir(dir.0.join(name)).unwrap();
        set_bits(&dir.0, name, 0o700);
        host().claim_lent(name.as_bytes(), mode);
        let slip = dir.0.join(".wholly").join(SLIP);
        chown(&slip, Some(USER), None).unwrap();
        if name != "ours" {
            chown(dir.0.join(name), Some(USER), None).unwrap();
        }
        host();
        assert!(!slip.exists());
    }
    assert_eq!((bits(&dir.0, "theirs"), bits(&dir.0, "more"), bits(&dir.0, "ours")), (0o500, 0o700, 0o700));
}

/// A slip that a crash has torn lends nothing, and its whole lines are believed.
#[test]
fn torn_slips() {
    as_user("torn", |dir| {
        std::fs::create_dir(dir.join("a")).unwrap();
        std::fs::create_dir(dir.join("b")).unwrap();
        set_bits(dir, "a", 0o500);
        set_bits(dir, "b", 0o500);
        let host = open(dir);
        host.die_in_move(b"a/x", b"b/x", || {});
        assert_eq!((bits(dir, "a"), bits(dir, "b")), (0o700, 0o700));
        let slip = dir.join(".wholly").join(SLIP);
        let mut text = std::fs::read(&slip).unwrap();
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 2);
        text.truncate(text.len() - 2);
        std::fs::write(&slip, &text).unwrap();
        open(dir);
        assert_eq!((bits(dir, "a"), bits(dir, "b")), (0o500, 0o700));
        assert!(!slip.exists());
    });
}

/// Set-group-id stays with a directory of a group that the user is in; one of another group is not touched, since he
/// could not give it back.
#[test]
fn set_group_id_stays() {
    as_user("groups", |dir| {
        std::fs::create_dir(dir.join("mine")).unwrap();
        set_bits(dir, "mine", 0o2000);
        let host = open(dir);
        host.create(SITE, b"mine/file", 0o600).unwrap();
        assert_eq!(bits(dir, "mine"), 0o2000);
        set_bits(dir, "mine", 0o700);
    });
}
