//! What a path names as the medium of a volume: a file, a block device, a simulated flash disk in a file
//! ([`wholly_blocks::xftl`]), or an NVMe controller over a directory ([`wholly_nvme`]). Here, and nowhere else, such a
//! path becomes a region.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::fcntl_dupfd_cloexec;
use wholly_blocks::batch::Batch;
use wholly_blocks::multi_queue::{Queues, region_of};
use wholly_blocks::xftl::{Device, Flash, OverRegion};
use wholly_blocks::{TxBlocks, TxDevice};
use wholly_error::{Error, Result};
use wholly_media::{
    FileSystem, Guarantees, Region, Site,
    disk::DiskRegion,
    pmem::{PmemOptions, PmemRegion},
};

use wholly_nvme::model::{FILES, Model};
use wholly_nvme::qtest::{Qemu, QemuOptions};
use wholly_nvme::{Disk, Transport};

use crate::engine::kind::Has;
use crate::engine::multi_queue;
use crate::engine::page_engine::ROOM;
use crate::fs::mount;
use crate::open::{Access, VolumeOptions, failed, open_named, own};
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

/// What a volume is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The file or block device itself.
    File,
    /// The simulated flash disk in it, which `wholly flash init` has made.
    Flash,
    /// A model of an NVMe controller, over the files `image` (its blocks) and `pmr` (its persistent memory region) of
    /// the directory.
    NvmeModel,
    /// QEMU's NVMe controller over the same files.
    Qemu,
}

/// How each begins.
const PREFIXES: [(&str, Kind); 3] = [("flash:", Kind::Flash), ("nvme-model:", Kind::NvmeModel), ("qemu:", Kind::Qemu)];

/// Where a volume is, as users write it: `flash:FILE`, `nvme-model:DIRECTORY` and `qemu:DIRECTORY` name a [`Kind`]
/// first; anything else is a file or block device. A file whose name begins so is named with its directory:
/// `./flash:a`.
///
/// # Example
/// ```
/// use std::path::Path;
/// use wholly_volume::{Kind, Location};
///
/// let location = Location::of(Path::new("flash:disks/a.img"));
/// assert_eq!((location.file, location.kind), (Path::new("disks/a.img"), Kind::Flash));
/// let location = Location::of(Path::new("nvme-model:devices/a"));
/// assert_eq!((location.file, location.kind), (Path::new("devices/a"), Kind::NvmeModel));
/// let location = Location::of(Path::new("./flash:a.img"));
/// assert_eq!((location.file, location.kind), (Path::new("./flash:a.img"), Kind::File));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'p> {
    /// The file, the block device or the directory.
    pub file: &'p Path,
    /// What it holds.
    pub kind: Kind,
}

impl<'p> Location<'p> {
    /// What a path says.
    pub fn of(path: &'p Path) -> Location<'p> {
        let bytes = path.as_os_str().as_bytes();
        let named = PREFIXES.iter().find_map(|(prefix, kind)| Some((bytes.strip_prefix(prefix.as_bytes())?, *kind)));
        match named {
            Some((file, kind)) => Location { file: Path::new(OsStr::from_bytes(file)), kind },
            None => Location { file: path, kind: Kind::File },
        }
    }

    /// The same with another name of the file, as users write it.
    pub fn written(&self, file: &Path) -> PathBuf {
        let prefix = PREFIXES.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(prefix, _)| prefix);
        let mut written = OsString::from(prefix);
        written.push(file);
        written.into()
    }

    /// Whether it is a controller, over the files of a directory.
    pub fn is_nvme(&self) -> bool {
        matches!(self.kind, Kind::NvmeModel | Kind::Qemu)
    }

    /// The file that whoever uses the volume has locked. QEMU locks its `image` by itself.
    pub(crate) fn locked(&self) -> Cow<'p, Path> {
        match self.kind {
            Kind::File | Kind::Flash => self.file.into(),
            Kind::NvmeModel => self.file.join(FILES[0]).into(),
            Kind::Qemu => self.file.join(FILES[1]).into(),
        }
    }

    /// The other file of a device, if there is one: whoever uses the device as another kind has locked that.
    pub(crate) fn other(&self) -> Option<OwnedFd> {
        let name = match self.kind {
            Kind::File | Kind::Flash => return None,
            Kind::NvmeModel => FILES[1],
            Kind::Qemu => FILES[0],
        };
        // Without one, nobody uses the device.
        open_named(&self.file.join(name), OFlags::RDONLY | OFlags::NOFOLLOW).ok()
    }
}

/// A medium that is opened.
#[derive(Clone)]
pub(crate) struct Opened {
    pub region: Arc<dyn Region>,
    /// Its own transactions, if it has some. The region is their plain view.
    pub transactions: Option<Arc<dyn TxBlocks>>,
    /// Its queues, if it has some. The region is what is at home.
    pub queues: Option<Arc<dyn Queues>>,
}

impl Opened {
    pub fn has(&self) -> Has {
        let queues = self.queues.as_ref().map(|queues| queues.guarantees().queues);
        Has { transactions: self.transactions.is_some(), queues }
    }
}

impl From<Arc<dyn Region>> for Opened {
    fn from(region: Arc<dyn Region>) -> Opened {
        Opened { region, transactions: None, queues: None }
    }
}

/// The medium of a volume that is there: as persistent memory, emulated if it is none, where its engine needs that.
pub(crate) fn opened_volume(file: OwnedFd, path: &Path, options: &VolumeOptions) -> Result<Opened> {
    let copy = || fcntl_dupfd_cloexec(&file, 0).map_err(|errno| failed("dup", path, errno));
    let location = Location::of(path);
    if location.is_nvme() {
        let superblock = mount::read_superblock(&*region_to_read(copy()?, path)?)?;
        return opened(file, path, (options.medium, multi_queue::queues_of(&superblock)));
    }
    if location.kind == Kind::Flash {
        return opened(file, path, (options.medium, None));
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
    opened(file, path, (medium, None))
}

/// The region of such a medium.
pub(crate) fn region_of_volume(file: OwnedFd, path: &Path, options: &VolumeOptions) -> Result<Arc<dyn Region>> {
    Ok(opened_volume(file, path, options)?.region)
}

/// The engine of a volume.
pub(crate) fn engine_in(file: OwnedFd, path: &Path) -> Result<EngineKind> {
    EngineKind::of(&mount::read_superblock(&*region_to_read(file, path)?)?)
}

/// The medium, to be used, with so many queues.
pub(crate) fn opened(file: OwnedFd, path: &Path, (medium, queues): (Medium, Option<u16>)) -> Result<Opened> {
    let name = path.display().to_string();
    let location = Location::of(path);
    if location.kind != Kind::File && medium == Medium::Pmem {
        let what = if location.is_nvme() { "an NVMe controller" } else { "a flash disk" };
        return Err(Error::Invalid(format!("{what} is a disk: it cannot be used as persistent memory")));
    }
    if location.is_nvme() {
        return controller(file, location, queues);
    }
    if location.kind == Kind::Flash {
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

/// A controller, of which the file that keeps others out is open.
fn controller(locked: OwnedFd, location: Location<'_>, queues: Option<u16>) -> Result<Opened> {
    let directory = location.file;
    let transport: Arc<dyn Transport> = match location.kind {
        Kind::Qemu => Qemu::start_owned(locked, directory, &QemuOptions::default())?,
        _ => Model::in_owned_directory(locked, directory)?,
    };
    let options = wholly_nvme::Options { queues: queues.unwrap_or(multi_queue::QUEUES), ..Default::default() };
    let disk: Arc<dyn Queues> = Arc::new(Disk::new(transport, options)?);
    let has_queues = disk.guarantees().queues > 0;
    Ok(Opened { region: region_of(disk.clone()), transactions: None, queues: has_queues.then_some(disk) })
}

/// The medium, to be looked at: no byte of it changes, and no right to write is needed. Also persistent memory is read
/// by calls: a mapping would take memory for holes. Of a controller it is the file of its blocks.
pub(crate) fn region_to_read(file: OwnedFd, path: &Path) -> Result<Arc<dyn Region>> {
    let location = Location::of(path);
    let file = match location.kind {
        Kind::Qemu => open_named(&location.file.join(FILES[0]), OFlags::RDONLY | OFlags::NOFOLLOW)?,
        _ => file,
    };
    let region = DiskRegion::open_read_only(file, path.display().to_string())?;
    if location.kind == Kind::Flash {
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
        let region = Arc::new(FlashDisk { plain, guarantees });
        Ok(Opened { region, transactions: Some(transactions), queues: None })
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
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_file = is_regular && Location::of(path).kind == Kind::File;
    Ok(is_file && (FileSystem::of(file)?.is_memory() || wholly_media::pmem::is_dax(file.as_fd())))
}

/// Whether it is given as a whole, with its length: anything but a file.
pub(crate) fn is_whole(file: &OwnedFd, path: &Path) -> Result<bool> {
    let stat = fstat(file).map_err(|errno| failed("fstat", path, errno))?;
    Ok(Location::of(path).kind != Kind::File || FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice)
}
