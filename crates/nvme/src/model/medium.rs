//! What a model's blocks and its region stand on.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::{Pid, getpid};
use sync::Mutex;
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Site};

use crate::spec::{PmrStatus, ReadBarrier};
use crate::transport::PersistentRegion;

/// A write that a doorbell has told the device of. From then on, any part of it may be on the medium.
#[derive(Clone, Debug)]
pub struct Rung {
    /// Names the command.
    pub command: u64,
    /// The first byte on the medium.
    pub offset: u64,
    /// What it writes.
    pub bytes: Arc<[u8]>,
}

/// Blocks and a region that survive. A simulator records what happens to them.
pub trait Medium: Send + Sync {
    /// Bytes of all blocks.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads what is on the medium.
    ///
    /// # Errors
    /// The medium's.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Writes; on return it survives a loss of power. It comes from a command that was rung, perhaps some time ago.
    ///
    /// # Errors
    /// The medium's.
    fn write(&self, command: u64, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Bytes of the region.
    fn region_len(&self) -> u64;

    /// Reads the region.
    ///
    /// # Errors
    /// The medium's.
    fn region_read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// The host has stored to the region; the store may not have arrived.
    ///
    /// # Errors
    /// The medium's.
    fn region_store(&self, site: Site, offset: u64, bytes: &[u8]) -> Result<()>;

    /// The host orders its stores.
    fn region_order(&self, _site: Site) {}

    /// What was ordered has arrived, and survives.
    fn region_barrier(&self, _site: Site) {}

    /// A doorbell was rung.
    fn rung(&self, _site: Site, _commands: &[Rung]) {}

    /// A flush has completed: what an earlier process has left in the write cache is on the medium, too.
    fn flushed(&self) {}

    /// The controller was reset: no write of a command that was rung before comes any more, but of those that the write
    /// cache has.
    fn reset(&self, _site: Site, _cached: &BTreeSet<u64>) {}
}

/// In memory.
pub struct InMemory {
    blocks: Mutex<Vec<u8>>,
    region: Mutex<Vec<u8>>,
}

impl InMemory {
    /// All zeros.
    pub fn new(bytes: u64, region_bytes: u64) -> InMemory {
        let zeros = |bytes: u64| Mutex::new(vec![0; bytes as usize]);
        InMemory { blocks: zeros(bytes), region: zeros(region_bytes) }
    }
}

impl Medium for InMemory {
    fn len(&self) -> u64 {
        self.blocks.lock().unwrap().len() as u64
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&self.blocks.lock().unwrap()[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn write(&self, _command: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.blocks.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn region_len(&self) -> u64 {
        self.region.lock().unwrap().len() as u64
    }

    fn region_read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&self.region.lock().unwrap()[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn region_store(&self, _site: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        self.region.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// Names of the files of a device in a directory: its blocks, its region.
pub const FILES: [&str; 2] = ["image", "pmr"];

/// What to do where one is missing.
pub const WANTED: &str = "a device is a directory with the files `image` (its blocks) and `pmr` (its persistent memory \
                          region): make them with `truncate --size`";

/// In two files of a directory.
pub struct InFiles {
    blocks: DeviceFile,
    region: DeviceFile,
}

/// A file of a device.
pub(crate) struct DeviceFile {
    fd: OwnedFd,
    path: PathBuf,
    pub len: u64,
    /// The process that has locked it by this value.
    owner: Option<Pid>,
}

impl DeviceFile {
    /// Opens one of the [`FILES`] of a directory. Whoever owns the directory must not lead us elsewhere: a link is not
    /// followed.
    ///
    /// # Errors
    /// `NotFound` and `Invalid`, with what to do; `Media`.
    pub fn open(directory: &Path, name: &str, is_written: bool) -> Result<DeviceFile> {
        let path = directory.join(name);
        let access = if is_written { OFlags::RDWR } else { OFlags::RDONLY };
        let opened =
            openat(CWD, path.as_os_str().as_bytes(), access | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let fd = opened.map_err(|errno| match errno {
            Errno::NOENT => Error::NotFound(format!("{}; {WANTED}", path.display())),
            errno => media("open", &path, errno),
        })?;
        let len = fstat(&fd).map_err(|errno| media("stat", &path, errno))?.st_size as u64;
        if len == 0 {
            let text = format!("{} is empty: `truncate --size 64M` makes it long enough", path.display());
            return Err(Error::Invalid(text));
        }
        Ok(DeviceFile { fd, path, len, owner: None })
    }

    /// The file that somebody has opened, and keeps others from.
    ///
    /// # Errors
    /// `Media`.
    pub fn given(fd: OwnedFd, path: PathBuf) -> Result<DeviceFile> {
        let len = fstat(&fd).map_err(|errno| media("stat", &path, errno))?.st_size as u64;
        Ok(DeviceFile { fd, path, len, owner: None })
    }

    /// Takes its lock, until this is dropped.
    ///
    /// # Errors
    /// `Busy` if another process has it.
    pub fn lock(mut self) -> Result<DeviceFile> {
        match wholly_media::lock_file(self.fd.as_fd(), &self.path.display().to_string())? {
            true => {
                self.owner = Some(getpid());
                Ok(self)
            }
            false => Err(Error::Busy(self.path.display().to_string(), "another process has the device".into())),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, mut offset: u64, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            match pread(&self.fd, &mut *bytes, offset) {
                Ok(0) => return Err(media("read", &self.path, Errno::IO)),
                Ok(read) => {
                    bytes = &mut bytes[read..];
                    offset += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(media("read", &self.path, errno)),
            }
        }
        Ok(())
    }

    fn write(&self, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match pwrite(&self.fd, bytes, offset) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(media("write", &self.path, errno)),
            }
        }
        Ok(())
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        // A child process has a copy of the descriptor from its fork to its exec, and the lock lasts as long as any
        // copy. So it is released here. A child does not release the lock of its parent.
        if self.owner == Some(getpid()) {
            let _ = wholly_media::unlock(self.fd.as_fd());
        }
    }
}

fn media(operation: &'static str, place: &Path, errno: Errno) -> Error {
    Error::Media(MediaError::new(operation, place.display().to_string(), errno))
}

impl InFiles {
    /// Opens both; nobody else may have them open so.
    ///
    /// # Errors
    /// `NotFound` without the files, `Invalid` for one without content, with what to do; `Busy` if another process has
    /// them; `Media`.
    pub fn open(directory: &Path) -> Result<InFiles> {
        let open = |name| DeviceFile::open(directory, name, true).and_then(DeviceFile::lock);
        Ok(InFiles { blocks: open(FILES[0])?, region: open(FILES[1])? })
    }

    /// The same for a caller that has opened `image`, and keeps others from it.
    ///
    /// # Errors
    /// `NotFound` and `Invalid` for `pmr`; `Media`.
    pub fn owned(image: OwnedFd, directory: &Path) -> Result<InFiles> {
        let blocks = DeviceFile::given(image, directory.join(FILES[0]))?;
        Ok(InFiles { blocks, region: DeviceFile::open(directory, FILES[1], true)? })
    }
}

impl Medium for InFiles {
    fn len(&self) -> u64 {
        self.blocks.len
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.blocks.read(offset, bytes)
    }

    fn write(&self, _command: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.blocks.write(offset, bytes)
    }

    fn region_len(&self) -> u64 {
        self.region.len
    }

    fn region_read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.region.read(offset, bytes)
    }

    fn region_store(&self, _site: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        self.region.write(offset, bytes)
    }
}

/// The region of a device in files, to be looked at: it can be read while the device is in use.
pub struct RegionFile(DeviceFile);

impl RegionFile {
    /// Opens the file `pmr` of a directory, for reading only.
    ///
    /// # Errors
    /// `NotFound` and `Invalid`, with what to do; `Media`.
    pub fn open(directory: &Path) -> Result<RegionFile> {
        Ok(RegionFile(DeviceFile::open(directory, FILES[1], false)?))
    }
}

impl PersistentRegion for RegionFile {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn address(&self) -> u64 {
        0
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.0.read(offset, bytes)
    }

    fn store(&self, _site: Site, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(Error::Invalid("the region is open for reading only".into()))
    }

    fn order(&self, _site: Site) {}

    fn barrier(&self, _site: Site, _by: ReadBarrier) -> Result<Option<PmrStatus>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use wholly_scratch::TestDir;

    use super::*;

    /// A child process has a copy of each descriptor from its fork to its exec: the lock of a device that is dropped
    /// does not wait for it.
    #[test]
    fn the_lock_ends_with_its_owner() {
        let directory = TestDir::on_disk();
        for name in FILES {
            std::fs::write(directory.path().join(name), [0; 4096]).unwrap();
        }
        let files = InFiles::open(directory.path()).unwrap();
        assert!(matches!(InFiles::open(directory.path()), Err(Error::Busy(..))));
        let _copies = [&files.blocks, &files.region].map(|file| file.fd.try_clone().unwrap());
        drop(files);
        InFiles::open(directory.path()).unwrap();
    }
}
