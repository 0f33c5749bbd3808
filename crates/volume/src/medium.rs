//! What a path names as the medium of a volume: a file, a block device, or `flash:FILE`, a simulated flash disk in a
//! file ([`wholly_blocks::xftl`]). Here, and nowhere else, such a path becomes a region.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, fstat};
use rustix::io::fcntl_dupfd_cloexec;
use wholly_blocks::batch::Batch;
use wholly_blocks::xftl::{Device, Flash, OverRegion};
use wholly_blocks::{TxBlocks, TxDevice};
use wholly_error::{Error, Result};
use wholly_media::{
    FileSystem, Guarantees, Region, Site,
    disk::DiskRegion,
    pmem::{PmemOptions, PmemRegion},
};

use crate::engine::page_engine::ROOM;
use crate::fs::mount;
use crate::open::{Access, VolumeOptions, failed, own};
use crate::{EngineKind, owner};

/// How a file or device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Medium {
    /// As persistent memory if it is a file in memory or on DAX, or a volume whose engine needs that; else as a disk.
    /// A flash disk is a disk.
    #[default]
    Auto,
    /// As persistent memory, emulated if it is none.
    Pmem,
    /// As a disk.
    Disk,
}

/// Where a volume is, as users write it.
///
/// `flash:FILE` is the simulated flash disk in a file, which `wholly flash init` has made; anything else is the file or
/// block device itself. A file whose name begins with `flash:` is named with its directory: `./flash:a`.
///
/// # Example
/// ```
/// use std::path::Path;
/// use wholly_volume::Location;
///
/// let location = Location::of(Path::new("flash:disks/a.img"));
/// assert_eq!((location.file, location.is_flash), (Path::new("disks/a.img"), true));
/// let location = Location::of(Path::new("./flash:a.img"));
/// assert_eq!((location.file, location.is_flash), (Path::new("./flash:a.img"), false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'p> {
    /// The file or block device.
    pub file: &'p Path,
    /// Whether it holds a flash disk, and that holds the volume.
    pub is_flash: bool,
}

const FLASH: &[u8] = b"flash:";

impl<'p> Location<'p> {
    /// What a path says.
    pub fn of(path: &'p Path) -> Location<'p> {
        match path.as_os_str().as_bytes().strip_prefix(FLASH) {
            Some(file) => Location { file: Path::new(OsStr::from_bytes(file)), is_flash: true },
            None => Location { file: path, is_flash: false },
        }
    }

    /// The same with another name of the file, as users write it.
    pub fn written(&self, file: &Path) -> PathBuf {
        let mut written = OsString::from(if self.is_flash { OsStr::from_bytes(FLASH) } else { OsStr::new("") });
        written.push(file);
        written.into()
    }
}

/// A medium that is opened.
#[derive(Clone)]
pub(crate) struct Opened {
    pub region: Arc<dyn Region>,
    /// Its own transactions, if it has some. The region is their plain view.
    pub transactions: Option<Arc<dyn TxBlocks>>,
}

impl From<Arc<dyn Region>> for Opened {
    fn from(region: Arc<dyn Region>) -> Opened {
        Opened { region, transactions: None }
    }
}

/// The medium of a volume that is there: as persistent memory, emulated if it is none, where its engine needs that.
pub(crate) fn opened_volume(file: OwnedFd, path: &Path, options: &VolumeOptions) -> Result<Opened> {
    let copy = || fcntl_dupfd_cloexec(&file, 0).map_err(|errno| failed("dup", path, errno));
    if Location::of(path).is_flash {
        return opened(file, path, options.medium);
    }
    let found = DiskRegion::open_read_only(copy()?, path.display().to_string())?;
    refuse_flash(&found, path)?;
    let medium = match options.medium {
        // What cannot be told, the open tells.
        Medium::Auto => {
            let engine = mount::read_superblock(&found).and_then(|superblock| EngineKind::of(&superblock));
            if engine.is_ok_and(|engine| !engine.takes_disks()) { Medium::Pmem } else { Medium::Auto }
        }
        medium => medium,
    };
    drop(found);
    opened(file, path, medium)
}

/// The region of such a medium.
pub(crate) fn region_of_volume(file: OwnedFd, path: &Path, options: &VolumeOptions) -> Result<Arc<dyn Region>> {
    Ok(opened_volume(file, path, options)?.region)
}

/// The engine of a volume.
pub(crate) fn engine_in(file: OwnedFd, path: &Path) -> Result<EngineKind> {
    EngineKind::of(&mount::read_superblock(&*region_to_read(file, path)?)?)
}

/// The medium, to be used.
pub(crate) fn opened(file: OwnedFd, path: &Path, medium: Medium) -> Result<Opened> {
    let name = path.display().to_string();
    if Location::of(path).is_flash {
        if medium == Medium::Pmem {
            return Err(Error::Invalid("a flash disk is a disk: it cannot be used as persistent memory".into()));
        }
        return FlashDisk::open(DiskRegion::open(file, name)?, |file| {
            let chip = OverRegion::open(file.clone())?;
            take_space(&*file)?;
            Device::open(chip)
        });
    }
    let region: Arc<dyn Region> = match medium == Medium::Pmem || medium == Medium::Auto && in_memory(&file, path)? {
        true => Arc::new(PmemRegion::open(file, PmemOptions { name, sparse: true, ..PmemOptions::default() })?),
        false => Arc::new(DiskRegion::open(file, name)?),
    };
    Ok(region.into())
}

/// The medium, to be looked at: no byte of it changes, and no right to write is needed. Also persistent memory is read
/// by calls: a mapping would take memory for holes.
pub(crate) fn region_to_read(file: OwnedFd, path: &Path) -> Result<Arc<dyn Region>> {
    let region = DiskRegion::open_read_only(file, path.display().to_string())?;
    if Location::of(path).is_flash {
        return Ok(FlashDisk::open(region, |file| Device::open_to_read(OverRegion::open(file)?))?.region);
    }
    refuse_flash(&region, path)?;
    Ok(Arc::new(region))
}

fn begins_as_flash(region: &dyn Region) -> bool {
    let mut begin = [0; 8];
    // What cannot be read there is a superblock's, of which there are copies.
    region.len() >= begin.len() as u64 && region.read(0, &mut begin).is_ok() && OverRegion::begins(&begin)
}

/// A flash file is no volume, and may have one.
fn refuse_flash(region: &dyn Region, path: &Path) -> Result<()> {
    match begins_as_flash(region) {
        true => Err(Error::Unsupported(format!("it holds a flash disk: name it flash:{}", path.display()))),
        false => Ok(()),
    }
}

/// Has the host set space aside for all of a flash file. `wholly flash init` has done so, but a copy may have holes: a
/// page that is programmed there must not fail, as what was promised of it could not be kept.
///
/// # Errors
/// [`Error::NoSpace`] if the host has too little. Nothing in the file has changed then.
fn take_space(file: &dyn Region) -> Result<()> {
    let holes = file.hand_over_holes();
    match holes.iter().all(|hole| file.allocate(hole.start, hole.end - hole.start)) {
        true => Ok(()),
        false => Err(Error::NoSpace(format!(
            "{} bytes of the flash file that are holes, on the file system that it is on: make room there, or copy the \
             file to where there is room",
            holes.iter().map(|hole| hole.end - hole.start).sum::<u64>()
        ))),
    }
}

/// A flash file that is looked at, for the verbs of flash disks. Nobody uses it meanwhile; any number may look at it.
#[doc(hidden)]
pub struct FlashFile {
    chip: Arc<dyn Flash>,
    _lock: owner::Lock,
}

impl FlashFile {
    /// Opens the file or block device itself. Changes no byte.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process has it open, or has mounted the device; those of [`OverRegion::open`].
    pub fn open(file: &Path) -> Result<FlashFile> {
        let (opened, lock) = own(file, Access::Read)?;
        let region = DiskRegion::open_read_only(opened, file.display().to_string())?;
        Ok(FlashFile { chip: OverRegion::open(Arc::new(region))?, _lock: lock })
    }

    /// The chip.
    pub fn chip(&self) -> Arc<dyn Flash> {
        self.chip.clone()
    }
}

/// The plain commands of a flash disk.
struct FlashDisk {
    plain: Arc<dyn Region>,
    guarantees: Guarantees,
}

impl FlashDisk {
    fn open(file: DiskRegion, open: fn(Arc<dyn Region>) -> Result<Device>) -> Result<Opened> {
        let of_file = file.guarantees().clone();
        if !begins_as_flash(&file) && mount::read_superblock(&file).is_ok() {
            return Err(Error::Unsupported("it holds a volume and no flash disk: name it without flash:".into()));
        }
        let device = open(Arc::new(file))?;
        let description =
            format!("flash disk (a model of X-FTL, {}) on {}", device.config().name(), of_file.description);
        let device: Arc<dyn TxDevice> = Arc::new(device);
        let transactions = Arc::new(Batch::new(device, ROOM));
        let plain = transactions.plain();
        // What it has made durable, the file has.
        let guarantees = Guarantees { emulated: of_file.emulated, description, ..plain.guarantees().clone() };
        Ok(Opened { region: Arc::new(FlashDisk { plain, guarantees }), transactions: Some(transactions) })
    }
}

impl Region for FlashDisk {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.plain.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.plain.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.plain.write(site, offset, data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.plain.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.plain.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.plain.set_len(site, len)
    }
}

/// Whether it is a file in memory or on DAX, and is used as such.
pub(crate) fn in_memory(file: &OwnedFd, path: &Path) -> Result<bool> {
    let stat = fstat(file).map_err(|errno| failed("fstat", path, errno))?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && !Location::of(path).is_flash;
    Ok(is_file && (FileSystem::of(file)?.is_memory() || wholly_media::pmem::is_dax(file.as_fd())))
}

/// Whether it is given as a whole, with its length: a block device or a flash disk.
pub(crate) fn is_whole(file: &OwnedFd, path: &Path) -> Result<bool> {
    let stat = fstat(file).map_err(|errno| failed("fstat", path, errno))?;
    Ok(Location::of(path).is_flash || FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice)
}
