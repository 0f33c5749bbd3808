//! A controller as a model: it executes commands from rings, and counts. Not a real device: its times are those of a
//! [`Profile`], or none.
//!
//! It is passive: it has no thread, and does something only when its host waits ([`Transport::pause`]). So the host can
//! see what it has caused before the device answers.
//!
//! # What it does as a device may
//!
//! - It fetches what stands in a slot *when it fetches*. Commands complete in an order drawn from a seed, or by their
//!   times.
//! - Stores to the region that no order covers are in the host's write-combining buffers: the device may not see them
//!   yet when it is rung, and sees them later, one by one.
//! - With a volatile write cache, a write is on the medium once a flush that was rung after its completion has
//!   completed, or if it was forced. The cache is lost with the power.
//! - A reset ends everything that is in flight: of each command any part reaches the medium, or its cache, which stays.
//!
//! # What it reports
//!
//! What no driver may do: a page that changes while a command transfers it, a transfer from memory that the host has
//! given back, a doorbell of a queue that is not there or with a value beyond its ring.
//!
//! | file | contents |
//! |---|---|
//! | `medium` | what blocks and region stand on |
//! | `device` | registers, rings, the order of completions |
//! | `execute` | commands |
//! | `profile` | times |

mod device;
mod execute;
mod medium;
mod profile;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::fd::OwnedFd;
use sync::{Mutex, thread_token};
use wholly_blocks::BLOCK;
use wholly_error::{Error, Result};
use wholly_media::Site;

use crate::spec::{PmrStatus, ReadBarrier, Status};
use crate::transport::{Counts, Memory, PersistentRegion, Transport};
use device::Device;
pub(crate) use medium::DeviceFile;
pub use medium::{FILES, InFiles, InMemory, Medium, RegionFile, Rung, WANTED};
pub use profile::Profile;

/// The address of the region for the controller: beyond all memory.
const REGION_ADDRESS: u64 = 1 << 40;

/// Where memory for transfers begins.
const MEMORY_ADDRESS: u64 = 1 << 20;

/// What a controller is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of a logical block: 512 or 4096.
    pub lba_bytes: u32,
    /// The most pages of 4 KiB that a command transfers, as a logarithm (MDTS); 0: any number.
    pub most_pages_log2: u8,
    /// Whether it has a volatile write cache. If not, its buffers survive a loss of power.
    pub has_write_cache: bool,
    /// I/O queue pairs.
    pub queues: u16,
    /// The most entries of a queue.
    pub most_entries: u32,
    /// The distance of doorbells: 4 bytes, shifted by so much.
    pub doorbell_shift: u8,
    /// Whether it has a persistent memory region, and queues can stand in it.
    pub region: Option<bool>,
    /// The ways of reads that make stores arrive: bit 0 of the region, bit 1 of its status.
    pub barriers: u8,
    /// Interrupts; 0: none.
    pub interrupts: u16,
    /// Bytes of metadata beside each logical block.
    pub metadata: u16,
    /// Whether its namespace is read only.
    pub is_read_only: bool,
    /// What the order of completions is drawn from.
    pub seed: u64,
    /// How long things take; none: no time passes but in waits.
    pub profile: Option<Profile>,
    /// Time passes by [`Model::advance`] alone, and who calls that pays what the host's accesses take.
    pub is_driven: bool,
}

impl Default for Config {
    /// What QEMU's controller is: a write cache, transfers of up to 512 KiB, queues of up to 2048 entries.
    fn default() -> Self {
        Config {
            lba_bytes: 512,
            most_pages_log2: 7,
            has_write_cache: true,
            queues: 8,
            most_entries: 2048,
            doorbell_shift: 0,
            region: Some(true),
            barriers: 2,
            interrupts: 9,
            metadata: 0,
            is_read_only: false,
            seed: 0,
            profile: None,
            is_driven: false,
        }
    }
}

/// What goes wrong. I/O commands are counted from 0 on, as they are fetched, since
/// [`set_faults`](Model::set_faults).
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// This command fails with this status, and transfers nothing.
    pub fail: Option<(u64, Status)>,
    /// This write stops half-way, and fails.
    pub torn: Option<u64>,
    /// This command never completes.
    pub stuck: Option<u64>,
    /// No interrupt tells of this command.
    pub silent: Option<u64>,
    /// Instead of this command the controller reports a fatal error.
    pub fatal: Option<u64>,
    /// What is wrong with the region, as PMRSTS says it: 1: its content was lost, 2: it is read only, 3: unreliable.
    pub region: u8,
}

/// A controller in this process.
pub struct Model {
    name: String,
    config: Config,
    medium: Arc<dyn Medium>,
    memories: Arc<Memories>,
    device: Mutex<Device>,
}

/// Memory that the host has taken for transfers, by address.
#[derive(Default)]
pub(crate) struct Memories {
    all: Mutex<BTreeMap<u64, Weak<ModelMemory>>>,
}

/// A piece of it.
pub(crate) struct ModelMemory {
    address: u64,
    bytes: Mutex<Box<[u8]>>,
}

impl Memory for ModelMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes.lock().unwrap()[offset..offset + bytes.len()]);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.bytes.lock().unwrap()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

impl Memories {
    fn find(&self, address: u64, len: usize) -> Option<(Arc<ModelMemory>, usize)> {
        let all = self.all.lock().unwrap();
        let memory = all.range(..=address).next_back()?.1.upgrade()?;
        let at = (address - memory.address) as usize;
        let fits = at + len <= memory.bytes.lock().unwrap().len();
        fits.then_some((memory, at))
    }

    /// Reads memory by its address; `false` if the host has none there.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.find(address, bytes.len()).map(|(memory, at)| memory.read(at, bytes)).is_some()
    }

    /// Writes it.
    pub fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.find(address, bytes.len()).map(|(memory, at)| memory.write(at, bytes)).is_some()
    }
}

impl Model {
    /// A controller over a medium.
    ///
    /// # Errors
    /// The medium's.
    pub fn new(name: impl Into<String>, medium: Arc<dyn Medium>, config: Config) -> Result<Arc<Model>> {
        let memories = Arc::<Memories>::default();
        let device = Mutex::new(Device::new(&config, medium.clone(), memories.clone())?);
        Ok(Arc::new(Model { name: name.into(), config, medium, memories, device }))
    }

    /// A controller as QEMU's is, over zeros in memory.
    pub fn in_memory(bytes: u64, region_bytes: u64) -> Arc<Model> {
        let medium = Arc::new(InMemory::new(bytes, region_bytes));
        Model::new("nvme-model", medium, Config::default()).expect("memory has no errors")
    }

    /// A controller over the files `image` and `pmr` of a directory. Its write cache is lost when the process ends.
    ///
    /// # Errors
    /// As [`InFiles::open`].
    pub fn in_directory(directory: &Path) -> Result<Arc<Model>> {
        Self::in_files(InFiles::open(directory)?, directory)
    }

    /// The same for a caller that has opened `image`, and keeps others from it.
    ///
    /// # Errors
    /// As [`InFiles::owned`].
    pub fn in_owned_directory(image: OwnedFd, directory: &Path) -> Result<Arc<Model>> {
        Self::in_files(InFiles::owned(image, directory)?, directory)
    }

    fn in_files(files: InFiles, directory: &Path) -> Result<Arc<Model>> {
        Model::new(format!("nvme-model:{}", directory.display()), Arc::new(files), Config::default())
    }

    /// What it is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it stands on.
    pub fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    /// From now on these things go wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.device.lock().unwrap().set_faults(faults);
    }

    /// What a driver has done that none may do.
    pub fn reports(&self) -> Vec<String> {
        self.device.lock().unwrap().reports.clone()
    }

    /// The region loses its content, and nothing says so.
    pub fn lose_region(&self) {
        self.device.lock().unwrap().arrived.fill(0);
    }

    /// It is so late now, by the clock of a caller who drives it ([`Config::is_driven`]): what is due is done. The
    /// interrupts that have come since the last call, and when the next command is due.
    pub fn advance(&self, now: Duration) -> (Vec<u16>, Option<Duration>) {
        self.device.lock().unwrap().advance(now)
    }

    /// As long as it is held, no command completes.
    pub fn hold(&self, is_held: bool) {
        self.device.lock().unwrap().is_held = is_held;
    }
}

impl Transport for Model {
    fn name(&self) -> &str {
        &self.name
    }

    fn read32(&self, register: u32) -> Result<u32> {
        Ok(self.device.lock().unwrap().read_register(register))
    }

    fn write32(&self, site: Site, register: u32, value: u32) -> Result<()> {
        self.device.lock().unwrap().write_register(site, register, value)
    }

    fn region(&self) -> &dyn PersistentRegion {
        self
    }

    fn memory(&self, pages: usize) -> Result<Arc<dyn Memory>> {
        let mut all = self.memories.all.lock().unwrap();
        all.retain(|_, memory| memory.strong_count() > 0);
        let end = |(address, memory): (&u64, &Weak<ModelMemory>)| {
            memory.upgrade().map_or(*address, |memory| address + memory.bytes.lock().unwrap().len() as u64)
        };
        let address = all.last_key_value().map_or(MEMORY_ADDRESS, end);
        let bytes = Mutex::new(vec![0; pages * BLOCK].into_boxed_slice());
        if address + (pages * BLOCK) as u64 > REGION_ADDRESS {
            return Err(Error::NoSpace("memory for transfers".into()));
        }
        let memory = Arc::new(ModelMemory { address, bytes });
        all.insert(address, Arc::downgrade(&memory));
        Ok(memory)
    }

    fn interrupts(&self) -> u16 {
        self.config.interrupts
    }

    fn pause(&self, interrupt: u16, until: Duration) -> Result<()> {
        self.device.lock().unwrap().pause(interrupt, until)
    }

    fn now(&self) -> Duration {
        self.device.lock().unwrap().now()
    }

    fn counts(&self) -> Counts {
        self.device.lock().unwrap().counts
    }
}

impl PersistentRegion for Model {
    fn len(&self) -> u64 {
        self.config.region.map_or(0, |_| self.medium.region_len())
    }

    fn address(&self) -> u64 {
        REGION_ADDRESS
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.device.lock().unwrap().region_read(offset, bytes)
    }

    fn store(&self, site: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.lock().unwrap().region_store(thread_token(), site, offset, bytes)
    }

    fn order(&self, site: Site) {
        self.device.lock().unwrap().region_order(thread_token(), site);
    }

    fn barrier(&self, site: Site, by: ReadBarrier) -> Result<Option<PmrStatus>> {
        self.device.lock().unwrap().region_barrier(site, by)
    }
}
