//! Volumes that run the groups of a case.

use crate::place::Place;
use crate::workload::{Case, Payload, Update};
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::sync::Arc;
use wholly_media::{
    Region,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_vfs::{Context, Errno, Groups, Handle, Ino, Vfs};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs, WriteBack};

/// A system of the suite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub name: &'static str,
    pub engine: EngineKind,
    /// How content is written back. Variants are measured in the case `two_files` only.
    pub write_back: WriteBack,
    /// Whether checkpoints can wait for times without load.
    pub defers: bool,
}

/// All of them: one for each engine, and the variants of `hybrid_log` that the paper measures.
pub(crate) fn all() -> impl Iterator<Item = Subject> {
    let engines = EngineKind::ALL.iter().map(|engine| Subject {
        name: engine.name(),
        engine: *engine,
        write_back: WriteBack::default(),
        defers: *engine == EngineKind::HybridLog,
    });
    let variant = |(name, write_back)| Subject { name, engine: EngineKind::HybridLog, write_back, defers: true };
    engines.chain([(SOC, WriteBack::CommitOrder), (SYNC, WriteBack::AtOnce)].map(variant))
}

/// The variant with strict commit order.
pub(crate) const SOC: &str = "hybrid_log:soc";
/// The variant that writes back at once.
pub(crate) const SYNC: &str = "hybrid_log:sync";

/// All volumes have the same: places of entries depend on it, so that runs can be compared.
const VOLUME_ID: [u8; 16] = *b"wholly-bench-fcf";
/// Bytes that a call writes when files are made.
const PIECE: usize = 1 << 20;

impl Subject {
    /// Whether its groups survive wholly or not at all: else it runs plain calls.
    pub fn promises_groups(&self) -> bool {
        self.engine != EngineKind::None
    }

    pub fn options(&self) -> VolumeOptions {
        // Room to keep in memory where the blocks of all files are.
        let Subject { engine, write_back, .. } = *self;
        VolumeOptions { engine: Some(engine), write_back, cache_bytes: 256 << 20, ..VolumeOptions::default() }
    }

    /// Whether it is measured in a case.
    pub fn runs(&self, case: &Case) -> bool {
        self.write_back == WriteBack::default() || case.name == "two_files"
    }

    /// A region for the volume of a case, in a file of the place. Its size is the paper's: 6 GB for 4 GB of files.
    pub fn region(case: &Case, place: &Place, prefault: bool) -> Result<PmemRegion> {
        // The engine's own space beside: in a small volume it is a larger part.
        Self::region_of(place, case.data_bytes() / 2 * 3 + (1 << 20), prefault)
    }

    /// A region of so many bytes.
    pub fn region_of(place: &Place, bytes: u64, prefault: bool) -> Result<PmemRegion> {
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(place.dir.join("volume.img"), how, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&file, bytes / 4096 * 4096)?;
        Ok(PmemRegion::open(file, PmemOptions { prefault, ..PmemOptions::default() })?)
    }

    /// Makes the volume with the files of a case. It is unmounted then.
    ///
    /// All names come first: directories give up blocks as they grow, and content fills them. So free space is in one
    /// piece.
    pub fn make(&self, region: &Arc<dyn Region>, case: &Case) -> Result<()> {
        Volume::format_region_as(&**region, &self.options(), VOLUME_ID).map_err(failed)?;
        let volume = Volume::open_region(region.clone(), &self.options()).map_err(failed)?;
        let vfs = VolumeVfs::new(&volume);
        let ctx = Context::superuser();
        let make = |n: u32| vfs.create(&ctx, Ino::ROOT, name(n).as_bytes(), OFlags::RDWR, Mode::RUSR | Mode::WUSR);
        let files = (0..case.files).map(make).collect::<Result<Vec<_>, Errno>>()?;
        let zeros = vec![0; PIECE];
        for (attr, file) in files {
            for at in (0..case.file_bytes).step_by(PIECE) {
                vfs.write(&ctx, &file, at, &zeros[..PIECE.min((case.file_bytes - at) as usize)])?;
            }
            vfs.release(&ctx, file)?;
            vfs.forget(attr.ino, 1);
        }
        drop(vfs);
        volume.close().map_err(failed)
    }
}

pub(crate) fn name(file: u32) -> String {
    file.to_string()
}

pub(crate) fn failed(error: wholly::Error) -> Error {
    error.to_string().into()
}

/// The files of a case, open in a volume of either kind: of threads as they are, or of threads in virtual time.
pub(crate) struct Files<V> {
    vfs: V,
    handles: Vec<Handle>,
    pub has_groups: bool,
}

impl<V: Vfs + Groups> Files<V> {
    pub fn open(vfs: V, case: &Case) -> Result<Files<V>> {
        let ctx = Context::superuser();
        let open = |n: u32| {
            let found = vfs.lookup(&ctx, Ino::ROOT, name(n).as_bytes())?;
            let file = vfs.open(&ctx, found.ino, OFlags::RDWR);
            vfs.forget(found.ino, 1);
            file
        };
        let handles = (0..case.files).map(open).collect::<Result<Vec<_>, Errno>>()?;
        let has_groups = match vfs.begin() {
            Ok(group) => vfs.abort(group).map(|()| true)?,
            Err(wholly::Error::Unsupported(_)) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(Files { vfs, handles, has_groups })
    }

    /// The program of the paper's figure 1: begin with the descriptors, writes, commit. `called` is called between the
    /// last write and the commit. Without groups, the writes alone.
    #[inline]
    pub fn run_group(&self, group: &[Update], payload: &Payload, called: impl FnOnce()) -> Result<()> {
        let id = if self.has_groups { Some(self.vfs.begin()?) } else { None };
        let ctx = Context { group: id, ..Context::superuser() };
        if let Some(id) = id {
            group.iter().try_for_each(|update| self.vfs.add(id, &self.handles[update.file as usize]))?;
        }
        for update in group {
            let written =
                self.vfs.write(&ctx, &self.handles[update.file as usize], update.offset, payload.of(update))?;
            if written != update.len as usize {
                return Err(format!("{written} bytes of {} were written", update.len).into());
            }
        }
        called();
        match id {
            Some(id) => Ok(self.vfs.commit(id)?),
            None => Ok(()),
        }
    }

    pub fn close(self) -> Result<()> {
        let ctx = Context::superuser();
        self.handles.into_iter().try_for_each(|file| self.vfs.release(&ctx, file))?;
        Ok(())
    }
}

/// An open volume.
pub(crate) struct Open {
    // Before the volume: they keep it open.
    pub files: Files<VolumeVfs>,
    volume: Volume,
}

impl Open {
    /// Opens the volume of a case.
    pub fn new(region: Arc<dyn Region>, options: &VolumeOptions, case: &Case) -> Result<Open> {
        let volume = Volume::open_region(region, options).map_err(failed)?;
        Ok(Open { files: Files::open(VolumeVfs::new(&volume), case)?, volume })
    }

    /// Blocks that are free, or can be.
    pub fn free_blocks(&self) -> u64 {
        self.volume.stat().free_blocks
    }

    /// Blocks of content that is not at home.
    pub fn pending_blocks(&self) -> u64 {
        self.volume.stat().pending_blocks
    }

    /// Writes all content back.
    pub fn write_back(&self) -> Result<()> {
        self.volume.checkpoint().map_err(failed)
    }

    /// Unmounts the volume: all content is at home then.
    pub fn close(self) -> Result<()> {
        self.files.close()?;
        self.volume.close().map_err(failed)
    }

    /// Ends as by the death of the process.
    pub fn abandon(self) {
        self.volume.abandon();
    }
}
