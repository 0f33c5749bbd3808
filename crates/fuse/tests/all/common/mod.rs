//! A store that is mounted.

#![allow(dead_code, reason = "each test takes what it needs")]

pub mod counting;
pub mod gate;
pub mod served;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use wholly::{Options, Store, StoreVfs};
use wholly_fuse::{Mount, MountOptions, Unmounter};

/// A new directory of the tmpfs that everybody has, removed with what is in it.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new("/dev/shm").join(format!("wholly-fuse-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("make a directory");
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is there; else a line that says why not, which under `CI=true` is a failure.
pub fn or_skip<T>(there: Result<T, String>) -> Option<T> {
    match there {
        Ok(there) => Some(there),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("skipped: {why}");
            None
        }
    }
}

/// A store, and its mount on another directory.
pub struct Mounted {
    store: Option<Store>,
    server: Option<JoinHandle<std::io::Result<()>>>,
    unmounter: Unmounter,
    point: Scratch,
    home: Scratch,
}

impl Mounted {
    pub fn new(store: Options, options: &MountOptions) -> Result<Mounted, String> {
        Mounted::of(Scratch::new(), store, options)
    }

    /// The same of a new store in a directory that is there.
    pub fn of(home: Scratch, store: Options, options: &MountOptions) -> Result<Mounted, String> {
        let point = Scratch::new();
        Store::init(home.path(), &store).expect("make a store");
        let store = Store::open_with(home.path(), store, Default::default()).expect("open a store");
        let view = Arc::new(StoreVfs::new(&store));
        let mount = Mount::new(view, point.path(), options).map_err(|error| format!("mount: {error}"))?;
        let unmounter = mount.unmounter();
        let server = std::thread::spawn(move || mount.serve());
        Ok(Mounted { store: Some(store), server: Some(server), unmounter, point, home })
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        self.point.path()
    }

    /// The store's own directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn unmounter(&self) -> &Unmounter {
        &self.unmounter
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("it is there until the end")
    }

    /// Unmounts it and closes the store. Gives its directory.
    pub fn end(mut self) -> Scratch {
        // Another test of this process may just be starting a program, which has all that is open here until it is
        // executed.
        let mut tries = 0..12_000;
        while let Err(error) = self.unmounter.unmount() {
            assert!(error.raw_os_error() == Some(16) && tries.next().is_some(), "nobody uses it: {error}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.server.take().unwrap().join().unwrap().expect("the kernel was answered to the end");
        self.store.take().unwrap().close().expect("nothing stands against it");
        std::mem::replace(&mut self.home, Scratch::new())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // A test has failed: whoever waits for it is not to wait for ever.
            let _ = rustix::mount::unmount(self.point.path(), rustix::mount::UnmountFlags::DETACH);
            if !std::thread::panicking() {
                let _ = server.join();
            }
        }
    }
}
