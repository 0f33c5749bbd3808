//! Directories to test in.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use wholly_media::host::HostMedium;

/// A directory that is removed with the value.
pub struct Dir(PathBuf);

impl Dir {
    /// No two tests of a program have the same `name`.
    pub fn new(parent: &Path, name: &str) -> Self {
        let path = parent.join(format!("wholly-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
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
