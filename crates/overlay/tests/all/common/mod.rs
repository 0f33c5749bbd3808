//! Stores with an overlay over them.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod objects;
pub mod script;
#[path = "../../../../cli/tests/all/common/tree.rs"]
pub mod tree;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, chownat, mknodat, open, utimensat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use wholly::{Options, Store, StoreVfs};
use wholly_overlay::{How, Layers, Result, Taken, take_up};
use wholly_vfs::{GroupId, Groups};

/// How the caller mounts.
pub const OPTIONS: &str = "volatile,redirect_dir=on,index=on,metacopy=on,xino=auto";

/// Says why a test is skipped, or fails under `CI=true`.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("skipped: {why}");
}

/// Whether this process may mount overlays; where not, the test is [skipped].
pub fn may_mount() -> bool {
    let systems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let may = rustix::process::geteuid().is_root() && systems.contains("overlay");
    if !may {
        skipped("it takes the superuser and overlayfs");
    }
    may
}

/// What is in a directory, but for a store in it, and for the time that changes where one is made.
pub fn tree_of(dir: &Path) -> tree::Tree {
    tree::Tree::of(dir).but_for_a_store().but_for_its_time()
}

/// Where tests have their directories: on a disk and in memory.
pub fn parents() -> [&'static Path; 2] {
    [Path::new(env!("CARGO_TARGET_TMPDIR")), Path::new("/dev/shm")]
}

/// A directory that is a store, with a view of it, and one to run the same script in plainly. All of it goes on drop.
pub struct World {
    base: PathBuf,
    /// The store's directory.
    pub dir: PathBuf,
    /// The other one.
    pub plain: PathBuf,
    /// Where the view is mounted.
    pub view: PathBuf,
    pub store: Option<Store>,
    pub since_ns: i64,
    /// Where overlayfs keeps its attributes.
    pub namespace: &'static str,
    fd: Option<OwnedFd>,
    layer: Option<OwnedFd>,
    is_mounted: bool,
}

impl World {
    /// Both directories after a script has run in them, and the view mounted with options.
    pub fn with_options(parent: &Path, setup: &str, options: &str) -> World {
        let mut world = World::unmounted(parent, setup);
        world.mount(options);
        world
    }

    /// The same without the view.
    pub fn unmounted(parent: &Path, setup: &str) -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = parent.join(format!("wholly-overlay-{}-{number}", std::process::id()));
        let [dir, plain, view] = ["dir", "plain", "view"].map(|name| base.join(name));
        for dir in [&base, &dir, &plain, &view] {
            std::fs::create_dir(dir).expect("mkdir");
        }
        script::run(&dir, setup);
        script::run(&plain, setup);
        let (store, fd, layer) = (None, None, None);
        World { base, dir, plain, view, store, since_ns: 0, namespace: "trusted", fd, layer, is_mounted: false }
    }

    /// Makes the directory a store, and mounts the view of it.
    pub fn mount(&mut self, options: &str) {
        Store::init(&self.dir, &Options::default()).expect("init");
        let options_of_store = Options { background: false, ..Options::default() };
        let store = Store::open_with(&self.dir, options_of_store, Default::default()).expect("open");
        store.make_layer().expect("layer");
        self.layer = Some(store.open_layer().expect("layer"));
        self.store = Some(store);
        let [upper, work] = [wholly_overlay::UPPER, wholly_overlay::WORK].map(|path| self.dir.join(path));
        std::fs::create_dir(&upper).expect("mkdir");
        std::fs::create_dir(&work).expect("mkdir");
        mknodat(CWD, upper.join(".wholly"), FileType::CharacterDevice, Mode::empty(), 0).expect("mknod");
        look_like(&upper, &self.dir);
        let stat = std::fs::metadata(&upper).expect("stat");
        self.since_ns = stat.ctime() * 1_000_000_000 + stat.ctime_nsec();
        // Longer than a tick of any kernel.
        std::thread::sleep(Duration::from_millis(11));

        let path = |path: &Path| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("open");
        let fds = [&self.dir, &upper, &work].map(|dir| path(dir));
        let [lower, upper, work] = fds.each_ref().map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let data = format!("lowerdir={lower},upperdir={upper},workdir={work},{options}");
        let data = std::ffi::CString::new(data).unwrap();
        mount("overlay", &self.view, "overlay", MountFlags::empty(), Some(data.as_c_str())).expect("mount");
        self.is_mounted = true;
        let [lower, ..] = fds;
        self.fd = Some(lower);
    }

    /// Runs a script in the view.
    pub fn run(&self, script: &str) {
        script::run(&self.view, script);
    }

    /// Takes the view away. Another test of this process may just be starting a program, which has all that is open
    /// here until it is executed.
    pub fn unmount(&mut self) {
        for _ in 0..1_000 {
            if unmount(&self.view, UnmountFlags::empty()).is_ok() {
                self.is_mounted = false;
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} is in use", self.view.display());
    }

    /// Makes what was done in the view calls on a group.
    pub fn take_up(&self, vfs: &StoreVfs, group: GroupId, how: How) -> Result<Taken> {
        take_up(&self.layers(vfs, group), how)
    }

    pub fn layers<'a>(&'a self, vfs: &'a StoreVfs, group: GroupId) -> Layers<'a> {
        let dir = self.fd.as_ref().expect("mounted").as_fd();
        let layer = self.layer.as_ref().expect("made").as_fd();
        Layers { vfs, group, dir, layer, since_ns: self.since_ns, namespace: self.namespace }
    }

    pub fn vfs(&self) -> StoreVfs {
        StoreVfs::new(self.store.as_ref().expect("open"))
    }

    /// The directory is no store any more.
    pub fn remove_store(&mut self) {
        self.store.take().expect("open").remove().expect("remove");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = unmount(&self.view, UnmountFlags::DETACH);
        }
        drop(self.store.take());
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

/// Gives a directory the attributes of another one.
fn look_like(dir: &Path, other: &Path) {
    let stat = std::fs::metadata(other).expect("stat");
    let (uid, gid) = (rustix::fs::Uid::from_raw(stat.uid()), rustix::fs::Gid::from_raw(stat.gid()));
    chownat(CWD, dir, Some(uid), Some(gid), AtFlags::empty()).expect("chown");
    std::fs::set_permissions(dir, stat.permissions()).expect("chmod");
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(other, &mut names[..]).expect("listxattr");
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 4096];
        let length = rustix::fs::getxattr(other, name, &mut value[..]).expect("getxattr");
        rustix::fs::setxattr(dir, name, &value[..length], rustix::fs::XattrFlags::empty()).expect("setxattr");
    }
    let time = |sec: i64, nsec: i64| Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps {
        last_access: time(stat.atime(), stat.atime_nsec()),
        last_modification: time(stat.mtime(), stat.mtime_nsec()),
    };
    utimensat(CWD, dir, &times, AtFlags::empty()).expect("utimensat");
}

/// Runs a script in the view of a store and plainly, and asserts that both come to the same: see the head of
/// `scripts.rs`.
pub fn same_as_plain(parent: &Path, setup: &str, script: &str, how: How) -> Taken {
    let mut world = World::with_options(parent, setup, OPTIONS);
    let [objects, plain_objects] = [&world.dir, &world.plain].map(|dir| objects::Objects::of(dir));
    world.run(script);
    let seen = tree_of(&world.view);
    world.unmount();
    let vfs = world.vfs();
    let group = vfs.begin().expect("begin");
    let held = vfs.held();
    let taken = world.take_up(&vfs, group, how).unwrap_or_else(|error| panic!("{script}\n{error}"));
    assert_eq!(taken.overtaken, [], "{script}");
    assert_eq!(vfs.held(), held, "references are given back: {script}");
    vfs.commit(group).unwrap_or_else(|error| panic!("{script}\n{error}"));
    drop(vfs);
    world.remove_store();

    script::run(&world.plain, script);
    let (is, wanted) = (tree_of(&world.dir), tree_of(&world.plain));
    let differs = is.of_any_run(&[]).difference(&wanted.of_any_run(&[]));
    assert!(differs.is_empty(), "{how:?} below {}, not as plainly:\n{script}\n{differs}", parent.display());
    let differs = is.difference(&seen);
    assert!(differs.is_empty(), "{how:?} below {}, not as it was seen:\n{script}\n{differs}", parent.display());
    let (kept, wanted) = (objects.kept(&world.dir), plain_objects.kept(&world.plain));
    assert_eq!(kept, wanted, "{how:?} below {}, what each was before:\n{script}", parent.display());
    taken
}
