//! What a model's blocks and its region stand on.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

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

    /// The controller was reset: no write of a command that was rung before comes any more.
    fn reset(&self, _site: Site) {}
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

/// In two files of a directory.
pub struct InFiles {
    blocks: File,
    region: File,
    lens: [u64; 2],
}

impl InFiles {
    /// Opens both; nobody else may have them open so.
    ///
    /// # Errors
    /// `Media` for a file that cannot be opened; `Invalid` for one without content, with what to do; `Busy` if another
    /// process has them.
    pub fn open(directory: &Path) -> Result<InFiles> {
        let mut files = FILES.iter().map(|name| open(directory, name));
        let [blocks, region] = [files.next().expect("two")?, files.next().expect("two")?];
        let len = |file: &File| file.metadata().map(|found| found.len()).map_err(|e| media("stat", directory, &e));
        let lens = [len(&blocks)?, len(&region)?];
        for (len, name) in lens.iter().zip(FILES) {
            if *len == 0 {
                let text =
                    format!("{}/{name} is empty: `truncate --size 64M` makes it long enough", directory.display());
                return Err(Error::Invalid(text));
            }
        }
        Ok(InFiles { blocks, region, lens })
    }
}

fn media(operation: &'static str, place: &Path, error: &std::io::Error) -> Error {
    let errno = error.raw_os_error().map_or(rustix::io::Errno::IO, rustix::io::Errno::from_raw_os_error);
    Error::Media(MediaError::new(operation, place.display().to_string(), errno))
}

/// Opens a file of a device. Whoever owns the directory must not lead us elsewhere.
fn open_as(path: &Path, options: &mut std::fs::OpenOptions) -> Result<File> {
    let no_links = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    options.custom_flags(no_links).open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound(format!(
            "{}; a device is a directory with the files `image` (its blocks) and `pmr` (its persistent memory region): \
             make them with `truncate --size`",
            path.display()
        )),
        _ => media("open", path, &error),
    })
}

fn open(directory: &Path, name: &str) -> Result<File> {
    let path = directory.join(name);
    let file = open_as(&path, File::options().read(true).write(true))?;
    match wholly_media::lock_file(file.as_fd(), &path.display().to_string())? {
        true => Ok(file),
        false => Err(Error::Busy(path.display().to_string(), "another process has the device".into())),
    }
}

impl Medium for InFiles {
    fn len(&self) -> u64 {
        self.lens[0]
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.blocks.read_exact_at(bytes, offset).map_err(|error| media("read", Path::new(FILES[0]), &error))
    }

    fn write(&self, _command: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.blocks.write_all_at(bytes, offset).map_err(|error| media("write", Path::new(FILES[0]), &error))
    }

    fn region_len(&self) -> u64 {
        self.lens[1]
    }

    fn region_read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.region.read_exact_at(bytes, offset).map_err(|error| media("read", Path::new(FILES[1]), &error))
    }

    fn region_store(&self, _site: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        self.region.write_all_at(bytes, offset).map_err(|error| media("write", Path::new(FILES[1]), &error))
    }
}

/// The region of a device in files, to be looked at: it can be read while the device is in use.
pub struct RegionFile {
    file: File,
    len: u64,
    path: std::path::PathBuf,
}

impl RegionFile {
    /// Opens the file `pmr` of a directory, for reading only.
    ///
    /// # Errors
    /// `NotFound`, with what to do; `Media`.
    pub fn open(directory: &Path) -> Result<RegionFile> {
        let path = directory.join(FILES[1]);
        let file = open_as(&path, File::options().read(true))?;
        let len = file.metadata().map_err(|error| media("stat", &path, &error))?.len();
        Ok(RegionFile { file, len, path })
    }
}

impl PersistentRegion for RegionFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn address(&self) -> u64 {
        0
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, offset).map_err(|error| media("read", &self.path, &error))
    }

    fn store(&self, _site: Site, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(Error::Invalid("the region is open for reading only".into()))
    }

    fn order(&self, _site: Site) {}

    fn barrier(&self, _site: Site, _by: ReadBarrier) -> Result<Option<PmrStatus>> {
        Ok(None)
    }
}
