//! Stores of ordinary users: what the superuser's capabilities do for his, the store does for itself where it may, and
//! where it may not it says so. Where the tests run as the superuser, a thread becomes such a user, and what it starts
//! with it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

use crate::common::{self, Dir};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use wholly::{Store, StoreVfs};
use wholly_host::{HostMedium, HostOptions};
use wholly_vfs::{Context, Errno, Groups, Ino, Mode, OFlags, Paths, Rename, SetAttr, Vfs};

const USER: u32 = 1000;
const OTHER_GROUP: u32 = 27;

const MODES: [u32; 8] = [0, 0o200, 0o400, 0o444, 0o600, 0o640, 0o4711, 0o2755];

/// Bytes of a file that a group stages.
const LARGE: usize = 700_000;

fn is_root() -> bool {
    geteuid().is_root()
}

/// Runs `test` as an ordinary user, in a directory that is his.
pub fn as_user(dir: &Path, test: impl FnOnce() + Send) {
    if !is_root() {
        return test();
    }
    chown(dir, Some(USER), Some(USER)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_groups(&[gid, Gid::from_raw(OTHER_GROUP)]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            test();
        });
    });
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Files and directories that their owner may not use.
fn prepare(dir: &Path) {
    for name in ["closed/deep", "list", "moves"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    for mode in MODES {
        let path = dir.join(format!("old{mode:o}"));
        fs::write(&path, b"old").unwrap();
        set_mode(&path, mode);
    }
    fs::write(dir.join("closed/deep/file"), b"deep").unwrap();
    fs::write(dir.join("list/file"), b"gone").unwrap();
    for (name, mode) in
        [("closed/deep/file", 0o400), ("closed/deep", 0o500), ("closed", 0o100), ("list", 0o444), ("moves", 0o555)]
    {
        set_mode(&dir.join(name), mode);
    }
}

/// A user's calls, as a mount makes them: the kernel has permitted them.
struct Calls<'v> {
    vfs: &'v StoreVfs,
    ctx: Context,
}

impl Calls<'_> {
    fn paths(&self) -> Paths<'_, StoreVfs> {
        Paths(self.vfs)
    }

    fn chmod(&self, path: &str, mode: u32) {
        let found = self.paths().resolve(&self.ctx, Ino::ROOT, path.as_bytes(), false).unwrap();
        let change = SetAttr { mode: Some(Mode::from_raw_mode(mode)), ..SetAttr::default() };
        self.vfs.setattr(&self.ctx, found.ino(), None, &change).unwrap();
    }

    /// Appends to a file, which is made where it is not there.
    fn append(&self, path: &str, mode: u32, pieces: &[&[u8]]) {
        let mode = Mode::from_raw_mode(mode);
        let flags = OFlags::RDWR | OFlags::CREATE;
        let (_, handle) = self.paths().open(&self.ctx, Ino::ROOT, path.as_bytes(), flags, mode).unwrap();
        for piece in pieces {
            self.vfs.append(&self.ctx, &handle, piece).unwrap();
        }
        self.vfs.release(&self.ctx, handle).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let flags = Rename::Replace;
        self.paths().rename(&self.ctx, Ino::ROOT, from.as_bytes(), to.as_bytes(), flags).unwrap();
    }
}

/// One group, in which bits are given and taken: at its end most of them are as before.
fn change(store: &Store) {
    let vfs = StoreVfs::new(store);
    let group = vfs.begin().unwrap();
    let ctx = Context { is_permitted: true, umask: Mode::empty(), group: Some(group), ..Context::of(USER, USER) };
    let calls = Calls { vfs: &vfs, ctx };
    let large = vec![7; LARGE];
    let pieces: Vec<&[u8]> = large.chunks(100_000).collect();
    for mode in MODES {
        let old = format!("old{mode:o}");
        calls.chmod(&old, 0o600);
        calls.append(&old, 0, &[b" and new"]);
        calls.chmod(&old, mode);
        // A write takes set-id bits.
        for (name, pieces) in [(format!("new{mode:o}"), &[&b"new"[..]][..]), (format!("large{mode:o}"), &pieces)] {
            calls.append(&name, mode & 0o777, pieces);
            if mode > 0o777 {
                calls.chmod(&name, mode);
            }
        }
    }
    calls.chmod("closed", 0o700);
    calls.chmod("closed/deep", 0o700);
    calls.append("closed/deep/made", 0o444, &[]);
    calls.rename("closed/deep/file", "closed/moved");
    calls.chmod("closed/deep", 0);
    calls.chmod("closed", 0);
    calls.chmod("list", 0o700);
    calls.paths().unlink(&calls.ctx, Ino::ROOT, b"list/file").unwrap();
    calls.chmod("list", 0o444);
    calls.paths().mkdir(&calls.ctx, Ino::ROOT, b"sealed", Mode::RWXU).unwrap();
    calls.append("sealed/inside", 0o400, &[b"inside"]);
    calls.chmod("moves", 0o755);
    calls.rename("moves", "sealed/moves");
    calls.chmod("sealed/moves", 0o555);
    calls.chmod("sealed", 0);
    vfs.commit(group).unwrap();
}

/// What it has left. The bits are lifted on the way, to see what is below.
fn verify(dir: &Path) {
    assert!(!dir.join(".wholly/lent").exists());
    let is = |name: &str, mode: u32, wanted: &str| {
        let path = dir.join(name);
        assert_eq!(mode_of(&path), mode, "{name}");
        set_mode(&path, 0o700);
        if !path.is_dir() {
            assert_eq!(fs::read_to_string(&path).unwrap(), wanted, "{name}");
        }
    };
    for mode in MODES {
        is(&format!("old{mode:o}"), mode, "old and new");
        is(&format!("new{mode:o}"), mode, "new");
        let large = dir.join(format!("large{mode:o}"));
        assert_eq!(mode_of(&large), mode);
        set_mode(&large, 0o600);
        assert_eq!(fs::read(&large).unwrap(), vec![7; LARGE]);
    }
    is("closed", 0, "");
    is("closed/deep", 0, "");
    is("closed/deep/made", 0o444, "");
    is("closed/moved", 0o400, "deep");
    is("list", 0o444, "");
    is("sealed", 0, "");
    is("sealed/inside", 0o400, "inside");
    is("sealed/moves", 0o555, "");
    assert!(!dir.join("list/file").exists() && !dir.join("moves").exists());
}

#[test]
fn what_its_owner_may_not_use_goes_home() {
    for (dir, medium) in Dir::on_media("ordinary-home") {
        as_user(&dir, || {
            prepare(&dir);
            let open = common::made_in(&dir, medium);
            let store = open();
            change(&store);
            store.close().unwrap();
            Store::open(&*dir).unwrap().close().unwrap();
        });
        verify(&dir);
    }
}

/// The process ends after the commit, and the next one finds only what the log has.
#[test]
fn what_its_owner_may_not_use_is_recovered() {
    for (dir, medium) in Dir::on_media("ordinary-recovered") {
        as_user(&dir, || {
            prepare(&dir);
            let open = common::made_in(&dir, medium);
            let store = open();
            change(&store);
            drop(store);
            drop(open());
            open().close().unwrap();
        });
        verify(&dir);
    }
}

/// Again and again, while groups come and go: nothing stays lent.
#[test]
fn what_goes_home_often_keeps_its_bits() {
    let dir = Dir::new(&std::env::temp_dir(), "ordinary-often");
    as_user(&dir, || {
        fs::create_dir(dir.join("closed")).unwrap();
        let open = common::made_in(&dir, HostMedium::Disk);
        let store = open();
        for round in 0..40 {
            let vfs = StoreVfs::new(&store);
            let group = vfs.begin().unwrap();
            let ctx = Context { is_permitted: true, group: Some(group), ..Context::of(USER, USER) };
            let calls = Calls { vfs: &vfs, ctx };
            calls.chmod("closed", 0o700);
            calls.append(&format!("closed/{round}"), 0o400, &[round.to_string().as_bytes()]);
            calls.chmod("closed", 0o500);
            vfs.commit(group).unwrap();
            if round % 3 == 0 {
                store.checkpoint().unwrap();
                assert_eq!(mode_of(&dir.join("closed")), 0o500);
            }
        }
        store.close().unwrap();
    });
    set_mode(&dir.join("closed"), 0o700);
    for round in 0..40 {
        assert_eq!(mode_of(&dir.join(format!("closed/{round}"))), 0o400);
        set_mode(&dir.join(format!("closed/{round}")), 0o600);
        assert_eq!(fs::read_to_string(dir.join(format!("closed/{round}"))).unwrap(), round.to_string());
    }
}

/// Files of others are read where they let the user read them; nothing of them is changed, and who tries is told so at
/// once.
#[test]
fn files_of_others() {
    let dir = Dir::new(&std::env::temp_dir(), "ordinary-others");
    if !is_root() {
        println!("skipped: it takes the superuser to make files of others");
        return;
    }
    for (name, mode, gid) in [("theirs", 0o644, 0), ("shared", 0o660, OTHER_GROUP), ("secret", 0o600, 0)] {
        fs::write(dir.join(name), name).unwrap();
        chown(dir.join(name), None, Some(gid)).unwrap();
        set_mode(&dir.join(name), mode);
    }
    as_user(&dir, || {
        let open = common::made_in(&dir, HostMedium::Disk);
        let store = open();
        let vfs = Arc::new(StoreVfs::new(&store));
        let me = Context { groups: vec![OTHER_GROUP], ..Context::of(USER, USER) };
        let permitted = Context { is_permitted: true, ..me.clone() };
        let find = |name: &str| vfs.lookup(&me, Ino::ROOT, name.as_bytes()).unwrap().ino;
        let read = |name: &str| {
            let handle = vfs.open(&me, find(name), OFlags::RDONLY)?;
            let mut bytes = [0; 64];
            let length = vfs.read(&me, &handle, 0, &mut bytes)?;
            vfs.release(&me, handle)?;
            Ok(String::from_utf8(bytes[..length].to_vec()).unwrap())
        };
        assert_eq!(read("theirs").as_deref(), Ok("theirs"));
        assert_eq!(read("shared").as_deref(), Ok("shared"));
        assert_eq!(read("secret"), Err(Errno::ACCESS));
        assert_eq!(vfs.open(&me, find("theirs"), OFlags::RDWR), Err(Errno::ACCESS));
        let handle = vfs.open(&me, find("shared"), OFlags::RDWR).unwrap();
        assert_eq!(vfs.write(&me, &handle, 0, b"SHARED"), Ok(6));
        vfs.release(&me, handle).unwrap();
        // Also where somebody before the call has thought that it may be.
        let handle = vfs.open(&permitted, find("theirs"), OFlags::RDWR).unwrap();
        assert_eq!(vfs.write(&permitted, &handle, 0, b"THEIRS"), Err(Errno::ACCESS));
        vfs.release(&permitted, handle).unwrap();
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        assert_eq!(vfs.setattr(&permitted, find("theirs"), None, &cut).err(), Some(Errno::ACCESS));
        drop(vfs);
        store.close().unwrap();
    });
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!((text("theirs"), text("shared")), ("theirs".into(), "SHARED".into()));
}

/// A file that its owner may not write to is taken out of the layer all the same, and nothing of it is lost.
#[test]
fn the_bytes_of_a_closed_file_are_taken() {
    for (dir, medium) in Dir::on_media("user-import") {
        as_user(&dir, || {
            let host = || HostOptions { medium, ..HostOptions::default() };
            Store::init_with(&*dir, &common::quiet(), host()).unwrap();
            let store = Store::open_with(&*dir, common::quiet(), host()).unwrap();
            for mode in [0o400, 0] {
                let name = format!("new{mode:o}");
                store.make_layer().unwrap();
                let at = Path::new(wholly::LAYER).join("file");
                fs::write(dir.join(&at), vec![7; LARGE]).unwrap();
                set_mode(&dir.join(&at), mode);
                let mut group = store.begin();
                let file = group.create(&name, mode).unwrap();
                assert!(group.import_content(&at, &file).unwrap());
                let id = group.park("", None).unwrap();
                store.apply(id).unwrap();
                store.checkpoint().unwrap();
                assert_eq!(mode_of(&dir.join(&name)), mode);
                set_mode(&dir.join(&name), 0o600);
                assert_eq!(fs::read(dir.join(&name)).unwrap(), vec![7; LARGE]);
            }
            store.close().unwrap();
        });
    }
}
