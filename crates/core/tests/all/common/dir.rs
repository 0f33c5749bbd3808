//! Directories to test in.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use wholly_host::HostMedium;

/// A directory that is removed with the value.
pub struct Dir(PathBuf);

impl Dir {
    /// A new one. Its path has `name` in it.
    pub fn new(parent: &Path, name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("wholly-test-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }

    /// One on emulated persistent memory, and one on the disk that temporary files are on.
    pub fn on_media(name: &str) -> [(Dir, HostMedium); 2] {
        [
            (Dir::new(Path::new("/dev/shm"), name), HostMedium::Pmem),
            (Dir::new(&std::env::temp_dir(), name), HostMedium::Disk),
        ]
    }
}

impl Deref for Dir {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
