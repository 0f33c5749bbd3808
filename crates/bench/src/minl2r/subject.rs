//! Who writes: a volume in process, or a file of ext4 by system calls.

use super::Pattern;
use crate::fcfs::subject::failed;
use crate::place::Place;
use crate::workload::Case;
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use wholly_media::Region;
use wholly_sim::Random;
use wholly_vfs::Policy;
use wholly_vfs::{Context, Handle, Ino, Timestamp, Vfs};
use wholly_volume::{EngineKind, PolicyVfs, Volume, VolumeOptions, VolumeVfs};

/// All volumes have the same: places of blocks depend on it.
const VOLUME_ID: [u8; 16] = *b"wholly-minl2r-v1";
const NAME: &str = "0";
/// Bytes that are drawn, and by how many the source of a write can be shifted. No record is longer.
const DRAWN: usize = 2 << 20;
const SHIFT: usize = 1 << 20;

/// A system of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub name: &'static str,
    pub engine: EngineKind,
    /// Under the policy `shared`: writes are durable together, at a sync.
    pub is_shared: bool,
    /// Of how many bytes on a block moves, if that is the case's matter.
    pub move_from: Option<usize>,
}

/// MinL2R as the paper has it: nothing is durable before a checkpoint.
pub(super) const SHARED: &str = "undo:shared";

/// The volumes that are compared.
pub(super) fn all() -> [Subject; 5] {
    let subject = |name, engine| Subject { name, engine, is_shared: false, move_from: None };
    [
        subject("none", EngineKind::None),
        subject("undo", EngineKind::Undo),
        subject("shadow", EngineKind::Shadow),
        subject("shortcut_jfs", EngineKind::ShortcutJfs),
        Subject { is_shared: true, ..subject(SHARED, EngineKind::Undo) },
    ]
}

/// Bytes to write, never zeros, other ones with each write: equal bytes would hide what is stored, zeros what is
/// copied.
pub(super) struct Bytes(Vec<u8>);

impl Bytes {
    pub fn new(seed: u64) -> Bytes {
        let mut random = Random(seed);
        Bytes((0..DRAWN / 8).flat_map(|_| (random.draw() | 0x0101_0101_0101_0101).to_le_bytes()).collect())
    }

    /// Those of a write. Triangular numbers are all different up to the number of places, and do not grow evenly: a
    /// later write so many lines further on would have the same bytes.
    pub fn of(&self, number: u64, len: usize) -> &[u8] {
        &self.0[(number * (number + 1) / 2) as usize * 64 % SHIFT..][..len]
    }
}

/// Something that is written to.
pub(super) trait Writer {
    /// Overwrites bytes, durably if the system promises that.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes durable what is not.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl Subject {
    fn options(&self, clock: Option<fn() -> Timestamp>) -> VolumeOptions {
        let options =
            VolumeOptions { engine: Some(self.engine), move_from: self.move_from, ..VolumeOptions::default() };
        VolumeOptions { clock: clock.unwrap_or(options.clock), cache_bytes: 256 << 20, ..options }
    }

    /// Makes a volume with the file of a case. It is unmounted then.
    pub fn make(&self, region: &Arc<dyn Region>, case: &Case) -> Result<()> {
        Volume::format_region_as(&**region, &self.options(None), VOLUME_ID).map_err(failed)?;
        let volume = Volume::open_region(region.clone(), &self.options(None)).map_err(failed)?;
        let (vfs, ctx) = (VolumeVfs::new(&volume), Context::superuser());
        let (attr, file) = vfs.create(&ctx, Ino::ROOT, NAME.as_bytes(), OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
        first_content(case, |at, bytes| Ok(vfs.write(&ctx, &file, at, bytes).map(drop)?))?;
        vfs.release(&ctx, file)?;
        vfs.forget(attr.ino, 1);
        drop(vfs);
        volume.close().map_err(failed)
    }

    /// Opens it.
    pub fn open(&self, region: Arc<dyn Region>, clock: Option<fn() -> Timestamp>) -> Result<OnVolume> {
        let volume = Volume::open_region(region, &self.options(clock)).map_err(failed)?;
        let vfs = VolumeVfs::new(&volume);
        let vfs: Box<dyn Vfs> = match self.is_shared {
            // The timer has nothing to do while it is measured: the sync at the end does it.
            true => Box::new(PolicyVfs::new(&volume, Policy::Shared { interval: Duration::from_secs(3600) })?),
            false => Box::new(vfs),
        };
        let ctx = Context::superuser();
        let found = vfs.lookup(&ctx, Ino::ROOT, NAME.as_bytes())?;
        let file = vfs.open(&ctx, found.ino, OFlags::RDWR)?;
        vfs.forget(found.ino, 1);
        Ok(OnVolume { vfs, file, volume })
    }
}

/// Content that no write leaves as it is.
fn first_content(case: &Case, mut write: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let bytes = Bytes::new(u64::MAX);
    (0..case.file_bytes).step_by(SHIFT).try_for_each(|at| {
        let len = SHIFT.min((case.file_bytes - at) as usize);
        write(at, bytes.of(at / 4096, len))
    })
}

/// An open volume, and its file.
pub(super) struct OnVolume {
    // Before the volume: it keeps it open.
    vfs: Box<dyn Vfs>,
    file: Handle,
    volume: Volume,
}

impl OnVolume {
    pub fn close(self) -> Result<()> {
        let OnVolume { vfs, file, volume } = self;
        vfs.release(&Context::superuser(), file)?;
        drop(vfs);
        volume.close().map_err(failed)
    }
}

impl Writer for OnVolume {
    #[inline]
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.vfs.write(&Context::superuser(), &self.file, offset, bytes)? {
            written if written == bytes.len() => Ok(()),
            written => Err(Error::from(format!("{written} bytes of {} were written", bytes.len()))),
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.vfs.sync(&Context::superuser())?)
    }
}

/// A file of an ext4. Each write is followed by an `fsync`: before that it promises less than a volume's call.
pub(super) struct OnExt4 {
    pub place: Place,
    file: File,
}

impl OnExt4 {
    /// A new file system, on a loop device over a file in `scratch`.
    pub fn new(scratch: &Place, case: &Case, data: &str) -> Result<OnExt4> {
        let place = Place::ext4(&scratch.dir, case.file_bytes + (64 << 20), data)?;
        let file = File::options().read(true).write(true).create_new(true).open(place.dir.join(NAME))?;
        first_content(case, |at, bytes| Ok(file.write_all_at(bytes, at)?))?;
        file.sync_all()?;
        Ok(OnExt4 { place, file })
    }
}

impl Writer for OnExt4 {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset)?;
        Ok(self.file.sync_all()?)
    }
}

impl Pattern {
    /// Makes so many records of it from the `first` one on.
    pub fn run(&self, case: &Case, writer: &dyn Writer, bytes: &Bytes, first: u64, count: u64) -> Result<()> {
        (first..first + count).try_for_each(|number| match self.write(case, number) {
            Some((offset, len)) => writer.write(offset, bytes.of(number, len as usize)),
            None => Ok(()),
        })
    }
}
