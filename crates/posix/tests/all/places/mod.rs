//! File systems of the host to run on.
//!
//! Each is mounted, opened and detached at once: it lives as long as its descriptor, and goes with it, the loop device
//! too, whatever becomes of the process.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mount::{MountFlags, UnmountFlags};
use wholly_host::{HostMedium, HostOptions};
use wholly_posix::HostVfs;

/// A new directory, removed with what is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn below(parent: &Path) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("wholly-posix-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("make a directory");
        Scratch(path)
    }

    fn new() -> Scratch {
        Scratch::below(&std::env::temp_dir())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file system, or a directory of one, that nobody else uses.
pub struct Place {
    /// It.
    pub vfs: HostVfs,
    /// Whether calls can be made as any user.
    pub users: bool,
    /// Where it is an ordinary directory.
    _scratch: Option<Scratch>,
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Opens what `mount` mounts, and detaches it.
fn mounted(mount: impl FnOnce(&Path) -> Result<(), String>) -> Result<Place, String> {
    let point = Scratch::new();
    mount(&point.0)?;
    let vfs = HostVfs::open(&point.0);
    rustix::mount::unmount(&point.0, UnmountFlags::DETACH).map_err(|errno| format!("umount: {errno}"))?;
    Ok(Place { vfs: vfs.map_err(|errno| format!("open: {errno}"))?, users: true, _scratch: None })
}

/// A tmpfs of its own. It takes the superuser.
pub fn own_tmpfs() -> Result<Place, String> {
    mounted(|point| {
        rustix::mount::mount("wholly-posix", point, "tmpfs", MountFlags::empty(), c"size=256m,mode=755")
            .map_err(|errno| format!("mount a tmpfs: {errno}"))
    })
}

/// A file system on a loop device. It takes the superuser, the device, and the program that makes the file system.
pub fn on_loop(make: &str, args: &[&str], bytes: u64) -> Result<Place, String> {
    let scratch = Scratch::new();
    let image = scratch.0.join("image");
    let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
    file.set_len(bytes).map_err(|error| error.to_string())?;
    let image = image.to_str().expect("a path of letters");
    run(make, &[args, &[image]].concat())?;
    mounted(|point| run("mount", &["-o", "loop", image, point.to_str().expect("a path of letters")]))
}

/// ext4 with the blocks and inodes that it has on all but the smallest disks.
pub fn ext4() -> Result<Place, String> {
    on_loop("mkfs.ext4", &["-q", "-F", "-b", "4096", "-I", "256"], 128 << 20)
}

/// XFS as `mkfs.xfs` makes it.
pub fn xfs() -> Result<Place, String> {
    on_loop("mkfs.xfs", &["-q"], 320 << 20)
}

/// A directory of the tmpfs that everybody has. Takes no superuser.
pub fn directory() -> Result<Place, String> {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return Err("there is no /dev/shm".into());
    }
    let scratch = Scratch::below(shm);
    let vfs = HostVfs::open(&scratch.0).map_err(|errno| format!("open: {errno}"))?;
    Ok(Place { vfs, users: rustix::process::geteuid().is_root(), _scratch: Some(scratch) })
}

/// What is there; else a line that says why not, which under `CI=true` is a failure.
pub fn or_skip<T>(place: Result<T, String>) -> Option<T> {
    match place {
        Ok(place) => Some(place),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("skipped: {why}");
            None
        }
    }
}

/// A store in a directory of the tmpfs that everybody has.
pub struct Stored {
    store: wholly::Store,
    options: (wholly::Options, HostOptions),
    /// Whether calls can be made as any user.
    pub users: bool,
    scratch: Scratch,
}

impl Stored {
    /// A new one, on persistent memory as that stands in for it.
    pub fn new(options: wholly::Options) -> Result<Stored, String> {
        Stored::on(HostMedium::Auto, options)
    }

    /// A new one, which takes its directory for this.
    pub fn on(medium: HostMedium, options: wholly::Options) -> Result<Stored, String> {
        let shm = Path::new("/dev/shm");
        if !shm.is_dir() {
            return Err("there is no /dev/shm".into());
        }
        let scratch = Scratch::below(shm);
        let host = HostOptions { medium, ..HostOptions::default() };
        wholly::Store::init_with(&scratch.0, &options, host.clone()).map_err(|error| error.to_string())?;
        Stored::open(scratch, (options, host))
    }

    fn open(scratch: Scratch, options: (wholly::Options, HostOptions)) -> Result<Stored, String> {
        let store = wholly::Store::open_with(&scratch.0, options.0.clone(), options.1.clone());
        let store = store.map_err(|error| error.to_string())?;
        Ok(Stored { store, options, users: rustix::process::geteuid().is_root(), scratch })
    }

    /// The same, opened again: it recovers what is not home.
    pub fn again(self) -> Result<Stored, String> {
        let Stored { store, options, scratch, .. } = self;
        drop(store);
        Stored::open(scratch, options)
    }

    /// It.
    pub fn store(&self) -> &wholly::Store {
        &self.store
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.scratch.0
    }

    /// It, by inode and handle.
    pub fn vfs(&self) -> wholly::StoreVfs {
        wholly::StoreVfs::new(&self.store)
    }
}
