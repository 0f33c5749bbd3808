//! A volume seen from outside: it may be mounted, nothing is changed, and no right to write is needed.

use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::fcntl_dupfd_cloexec;
use wholly_error::{Error, Result};
use wholly_media::{
    Region,
    pmem::{PmemOptions, PmemRegion},
};

use crate::format::BLOCK;
use crate::format::inode::PER_BLOCK;
use crate::format::superblock::Superblock;
use crate::fs::bitmaps::{self, Spaces};
use crate::fs::mount::{self, Saved};
use crate::fs::space::Space;
use crate::medium::{Kind, Location, in_memory, region_to_read};
use crate::open::{failed, open_file};
use crate::{DataMode, EngineKind, Volume, VolumeOptions, owner};

/// What [`Volume::look`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The UUID of the volume.
    pub volume_id: [u8; 16],
    /// Its name.
    pub label: String,
    /// The version of its format.
    pub version: u32,
    /// The engine.
    pub engine: EngineKind,
    /// What that does with content, if it has several ways.
    pub data: Option<DataMode>,
    /// The medium, in words.
    pub medium: String,
    /// Whether persistence is only emulated.
    pub emulated: bool,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// How often it was opened.
    pub opens: u64,
    /// Whether it was unmounted: else it is in use, or the next open recovers it.
    pub is_clean: bool,
    /// Which process has it open.
    pub in_use_by: Option<String>,
    /// What is free. `None` where it was not unmounted: only the process that has it open knows, or the next one.
    pub free: Option<Free>,
}

/// What is free in a volume that was unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Free blocks.
    pub blocks: u64,
    /// Inodes that there is room for.
    pub inodes: u64,
    /// Free ones.
    pub free_inodes: u64,
}

impl Volume {
    /// Looks at a volume in a file or on a device, which may be mounted.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is no volume, its engine is not known, or a later version of Wholly wrote it;
    /// [`Error::Corrupt`] if no copy of its superblock can be read.
    ///
    /// # Example
    /// ```
    /// # fn main() -> wholly_error::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("wholly-doc-look-{}", std::process::id()));
    /// use wholly_volume::{Volume, VolumeOptions};
    ///
    /// Volume::format(&path, 1 << 20, &VolumeOptions { label: "data".into(), ..VolumeOptions::default() })?;
    /// let volume = Volume::open(&path, &VolumeOptions::default())?;
    /// let info = Volume::look(&path)?;
    /// assert_eq!((info.label.as_str(), info.is_clean, info.opens), ("data", false, 1));
    /// volume.close()?;
    /// assert!(Volume::look(&path)?.free.is_some());
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn look(path: &Path) -> Result<VolumeInfo> {
        /// A mount may write its superblock meanwhile.
        const TRIES: u32 = 5;
        let mut tries = 1..TRIES;
        loop {
            match look(path) {
                Err(Error::Corrupt { .. }) if tries.next().is_some() => {}
                // The map of a flash disk that is in use changes while it is read.
                Err(error @ Error::Corrupt { .. }) => {
                    return Err(match user_of_flash(path)? {
                        Some(user) => Error::Busy(path.display().to_string(), format!("{user} changes it: look again")),
                        None => error,
                    });
                }
                looked => return looked,
            }
        }
    }

    /// Opens a volume, or makes an empty one of `bytes` bytes where there is no file.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`format`](Self::format).
    ///
    /// # Example
    /// ```
    /// # fn main() -> wholly_error::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("wholly-doc-open-or-create-{}", std::process::id()));
    /// use wholly_volume::{Volume, VolumeOptions};
    ///
    /// let volume = Volume::open_or_create(&path, 1 << 20, &VolumeOptions::default())?;
    /// volume.mkdir("accounts", 0o755)?; // durable
    /// volume.close()?;
    /// let volume = Volume::open_or_create(&path, 1 << 20, &VolumeOptions::default())?;
    /// assert!(volume.metadata("accounts").is_ok());
    /// # volume.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_or_create(path: &Path, bytes: u64, options: &VolumeOptions) -> Result<Volume> {
        /// Others may make and remove it at the same time.
        const TRIES: u32 = 20;
        let mut tries = 1..TRIES;
        loop {
            match Self::open(path, options) {
                Err(Error::NotFound(_)) => {}
                opened => return opened,
            }
            match Self::format(path, bytes, options) {
                Err(Error::Exists(_) | Error::Busy(..)) if tries.next().is_some() => {}
                made => made?,
            }
        }
    }
}

fn look(path: &Path) -> Result<VolumeInfo> {
    let file = open_file(path, OFlags::RDONLY)?;
    let copy = fcntl_dupfd_cloexec(&file, 0).map_err(|errno| failed("dup", path, errno))?;
    let region = region_to_read(copy, path)?;
    let superblock = mount::read_superblock(&*region)?;
    let engine = EngineKind::of(&superblock)?;
    let other = Location::of(path).other();
    let in_use_by = match (user(&file, path)?, other) {
        (None, Some(other)) => user(&other, path)?,
        (user, _) => user,
    };
    let (medium, emulated) = medium(file, path, &*region, engine)?;
    let label = superblock.label.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(VolumeInfo {
        volume_id: superblock.volume_id,
        label: String::from_utf8_lossy(label).into_owned(),
        version: superblock.version,
        engine,
        data: (engine == EngineKind::MultiQueue).then(|| DataMode::of(&superblock)),
        medium,
        emulated,
        block_bytes: BLOCK as u64,
        blocks: superblock.blocks,
        opens: superblock.incarnation,
        is_clean: superblock.is_clean,
        in_use_by,
        free: free(&superblock, &*region),
    })
}

/// The process that has it open, if it is on a flash disk.
fn user_of_flash(path: &Path) -> Result<Option<String>> {
    match Location::of(path).kind == Kind::Flash {
        true => user(&open_file(path, OFlags::RDONLY)?, path),
        false => Ok(None),
    }
}

/// The process that has it open.
fn user(file: &OwnedFd, path: &Path) -> Result<Option<String>> {
    let stat = fstat(file).map_err(|errno| failed("fstat", path, errno))?;
    let is_locked = wholly_media::is_locked(file.as_fd()).map_err(|errno| failed("lock", path, errno))?;
    // The lock of another node of the device says nothing here.
    let may_be = is_locked || FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    Ok(may_be.then(|| owner::found(file)).flatten().or_else(|| is_locked.then(|| "another process".into())))
}

/// What an open would take it for, without asking for a right to write.
fn medium(file: OwnedFd, path: &Path, disk: &dyn Region, engine: EngineKind) -> Result<(String, bool)> {
    match Location::of(path).kind {
        Kind::NvmeModel => return Ok(("a model of an NVMe controller over files".into(), true)),
        Kind::Qemu => return Ok(("QEMU's NVMe controller over files".into(), true)),
        Kind::File | Kind::Flash => {}
    }
    if in_memory(&file, path)? || !engine.takes_disks() {
        let options = PmemOptions { writable: false, name: path.display().to_string(), ..PmemOptions::default() };
        let pmem = PmemRegion::window(file.as_fd(), BLOCK as u64, options)?;
        return Ok((pmem.guarantees().description.clone(), pmem.guarantees().emulated));
    }
    let guarantees = disk.guarantees();
    let (medium, _read_only) = guarantees.description.rsplit_once(", ").unwrap_or((&guarantees.description, ""));
    Ok((medium.into(), guarantees.emulated))
}

/// What the bitmaps tell, or the saved allocators. They are not believed if a mount has begun meanwhile, and has used
/// their space.
fn free(superblock: &Superblock, region: &dyn Region) -> Option<Free> {
    let free = |blocks: u64, inodes: u64, holes: u64| {
        // Free blocks have room for inodes, too, as `statfs` counts.
        let room = blocks * PER_BLOCK;
        Free { blocks, inodes: superblock.inodes - holes * PER_BLOCK + room, free_inodes: inodes + room }
    };
    if superblock.bitmaps.is_some() && superblock.is_clean {
        let [blocks, inodes, holes] =
            [superblock.blocks, superblock.inodes, superblock.inodes / PER_BLOCK].map(Space::all_used);
        bitmaps::read(region, superblock, &Spaces { blocks: &blocks, inodes: &inodes, holes: &holes }).ok()?;
        return Some(free(blocks.free(), inodes.free(), holes.free()));
    }
    let at = superblock.saved.filter(|_| superblock.is_clean)?;
    let Saved { blocks, inodes, holes } = mount::read_saved(region, superblock, at).ok()?;
    let zeros = |bits: &[u8]| bits.iter().map(|byte| u64::from(byte.count_zeros())).sum::<u64>();
    Some(free(zeros(&blocks), zeros(&inodes), zeros(&holes)))
}
