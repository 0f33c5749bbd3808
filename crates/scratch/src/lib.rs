//! Directories for tests, removed with what is in them.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new directory.
pub struct TestDir(PathBuf);

impl TestDir {
    fn below(parent: &Path) -> TestDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("wholly-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("make a directory for a test");
        TestDir(path)
    }

    /// On tmpfs. `None`, and a line that says so, where there is none; under `CI=true` that is a failure.
    pub fn on_tmpfs() -> Option<TestDir> {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() {
            return Some(Self::below(shm));
        }
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no /dev/shm");
        eprintln!("skipped: there is no /dev/shm");
        None
    }

    /// On whatever holds temporary files; mostly a disk.
    pub fn on_disk() -> TestDir {
        Self::below(&std::env::temp_dir())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens or creates a file for reading and writing.
    pub fn file(&self, name: &str) -> OwnedFd {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        openat(CWD, self.0.join(name).as_os_str().as_bytes(), flags, Mode::RUSR | Mode::WUSR).expect("open a test file")
    }

    /// The content of a file.
    pub fn content(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).expect("read a test file")
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
