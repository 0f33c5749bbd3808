//! QEMU's controller, driven from this process without a guest: registers by the protocol of QEMU's own tests, memory
//! and region as mapped files.
//!
//! It is a real controller in all but speed: its code is not ours, it fetches entries by itself, completes them out of
//! order and coalesces interrupts. It bypasses the mapping of the region into a processor's address space, so it shows
//! nothing of write combining; the model does.
//!
//! QEMU 7.2 says of each controller that it has a volatile write cache.

mod mapping;
mod process;
mod trace;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sync::Mutex;
use wholly_blocks::BLOCK;
use wholly_error::{Error, Result};
use wholly_media::Site;

use crate::model::{DeviceFile, FILES};
use crate::spec::{PmrStatus, ReadBarrier, register};
use crate::transport::{Counts, Memory, PersistentRegion, Transport};
use mapping::Mapping;
pub use process::PROGRAM;
use process::{Process, RAM, failed, in_std};
use trace::Trace;

/// Where the BARs are put.
const BAR0: u64 = 0xe000_0000;
const BAR4: u64 = 0xf000_0000;

/// The address of the region for the controller. Not that of its BAR: with that one a missing CMSE would not show.
const REGION_ADDRESS: u64 = 0x10_0000_0000;

/// Where interrupts are stored to, and memory for transfers begins, in the guest's memory.
const INTERRUPTS: usize = 0x10_0000;
const MEMORY: usize = 0x20_0000;

/// I/O queue pairs, and interrupts.
const QUEUES: u16 = 8;
const VECTORS: u16 = QUEUES + 1;

/// What QEMU's controller keeps its blocks in.
#[derive(Clone, Debug, Default)]
pub enum Disk {
    /// The file.
    #[default]
    File,
    /// The file, but writes of this sector of 512 bytes fail.
    BadSector(u64),
    /// Nothing is kept, and each command takes its time: at most so many writes a second.
    Slow(u32),
}

/// How QEMU is started.
#[derive(Clone, Debug)]
pub struct QemuOptions {
    /// The most pages of a command, as a logarithm.
    pub most_pages_log2: u8,
    /// Bytes of a logical block.
    pub lba_bytes: u32,
    /// What the blocks are kept in.
    pub disk: Disk,
}

impl Default for QemuOptions {
    fn default() -> Self {
        QemuOptions { most_pages_log2: 7, lba_bytes: 512, disk: Disk::File }
    }
}

/// QEMU's controller over the files `image` and `pmr` of a directory. QEMU is killed when this is dropped.
pub struct Qemu {
    name: String,
    process: Process,
    memories: Arc<Memories>,
    region: Mapping,
    _lock: DeviceFile,
    state: Mutex<State>,
    begun: Instant,
}

/// What the host has counted.
#[derive(Default)]
struct State {
    counts: Counts,
    last_store: Option<u64>,
}

/// The guest's memory, and which part of it is in use.
struct Memories {
    ram: Mapping,
    free: Mutex<Free>,
}

struct Free {
    end: usize,
    /// Address and pages of what was given back.
    pieces: Vec<(usize, usize)>,
}

struct Piece {
    memories: Arc<Memories>,
    at: usize,
    pages: usize,
}

impl Memory for Piece {
    fn address(&self) -> u64 {
        self.at as u64
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.pages * BLOCK);
        self.memories.ram.read(self.at + offset, bytes);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.pages * BLOCK);
        self.memories.ram.write(self.at + offset, bytes);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.memories.free.lock().unwrap().pieces.push((self.at, self.pages));
    }
}

/// In QEMU's option lists a comma is doubled.
fn escaped(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| Error::Invalid(format!("{}: QEMU takes UTF-8 names", path.display())))?;
    Ok(text.replace(',', ",,"))
}

impl Qemu {
    /// Starts QEMU over the files of a directory.
    ///
    /// # Errors
    /// `Unsupported` if QEMU is not installed or refuses, in its words; `NotFound` without the files; `Invalid` if the
    /// region's length is no power of two; `Busy` if another process has the device.
    pub fn start(directory: &Path, options: &QemuOptions) -> Result<Arc<Qemu>> {
        Self::start_over(directory, options, DeviceFile::open(directory, FILES[1], true)?.lock()?)
    }

    /// The same for a caller that has opened `pmr`, and keeps others from it.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_owned(pmr: OwnedFd, directory: &Path, options: &QemuOptions) -> Result<Arc<Qemu>> {
        Self::start_over(directory, options, DeviceFile::given(pmr, directory.join(FILES[1]))?)
    }

    fn start_over(directory: &Path, options: &QemuOptions, region: DeviceFile) -> Result<Arc<Qemu>> {
        let name = format!("qemu:{}", directory.display());
        // QEMU locks the image itself.
        let image = DeviceFile::open(directory, FILES[0], true)?;
        let region_len = region.len;
        if !region_len.is_power_of_two() || region_len < BLOCK as u64 {
            let text =
                format!("{} has {region_len} bytes: QEMU takes a power of two from 4096 on", region.path().display());
            return Err(Error::Invalid(text));
        }
        let image = escaped(image.path())?;
        let disk = match options.disk {
            Disk::File => vec![format!("driver=raw,node-name=nvm,file.driver=file,file.filename={image}")],
            Disk::BadSector(sector) => vec![format!(
                "driver=blkdebug,node-name=nvm,image.driver=file,image.filename={image},inject-error.0.event=none,\
                 inject-error.0.iotype=write,inject-error.0.sector={sector},inject-error.0.errno=5,\
                 inject-error.0.once=off"
            )],
            Disk::Slow(_) => vec![
                "driver=throttle,node-name=nvm,throttle-group=slow,file.driver=null-co,file.size=67108864,\
                 file.latency-ns=2000000"
                    .into(),
            ],
        };
        let mut arguments: Vec<String> = Vec::new();
        if let Disk::Slow(iops) = options.disk {
            arguments.extend(["-object".into(), format!("throttle-group,id=slow,x-iops-write={iops}")]);
        }
        disk.into_iter().for_each(|node| arguments.extend(["-blockdev".into(), node]));
        let region_file = escaped(region.path())?;
        let backend = format!("memory-backend-file,id=pmr,share=on,mem-path={region_file},size={region_len}");
        arguments.extend(["-object".into(), backend]);
        let QemuOptions { most_pages_log2, lba_bytes, .. } = options;
        arguments.extend([
            "-device".into(),
            format!(
                "nvme,drive=nvm,serial=x,pmrdev=pmr,max_ioqpairs={QUEUES},msix_qsize={VECTORS},mdts={most_pages_log2},\
                 logical_block_size={lba_bytes},physical_block_size={lba_bytes}"
            ),
        ]);
        let process = Process::start(&arguments)?;
        let map = |file: BorrowedFd<'_>, len: u64| {
            Mapping::new(file, len as usize).map_err(|errno| failed("memory", &in_std(errno)))
        };
        let ram = map(process.ram.as_fd(), RAM as u64)?;
        let free = Mutex::new(Free { end: MEMORY, pieces: Vec::new() });
        let qemu = Qemu {
            name,
            memories: Arc::new(Memories { ram, free }),
            region: map(region.fd(), region_len)?,
            _lock: region,
            state: Mutex::default(),
            begun: Instant::now(),
            process,
        };
        match qemu.configure() {
            Ok(()) => Ok(Arc::new(qemu)),
            Err(error) => Err(qemu.process.why(error)),
        }
    }

    fn config_write(&self, offset: u32, value: u32) -> Result<()> {
        self.process.ask(&format!("outl 0xcf8 {:#x}", 0x8000_0800 | offset))?;
        self.process.ask(&format!("outl 0xcfc {value:#x}")).map(|_| ())
    }

    fn config_read(&self, offset: u32) -> Result<u32> {
        self.process.ask(&format!("outl 0xcf8 {:#x}", 0x8000_0800 | offset))?;
        number(&self.process.ask("inl 0xcfc")?)
    }

    /// What firmware would do: addresses of BARs, and interrupts as stores to memory.
    fn configure(&self) -> Result<()> {
        let found = self.config_read(0)?;
        if found != 0x0010_1b36 {
            return Err(Error::Unsupported(format!("{}: the device at 00:01.0 is {found:#x}", self.name)));
        }
        for (offset, address) in [(0x10, BAR0), (0x20, BAR4)] {
            self.config_write(offset, address as u32)?;
            self.config_write(offset + 4, (address >> 32) as u32)?;
        }
        // Memory, and bus master.
        self.config_write(4, 6)?;
        let mut at = self.config_read(0x34)? & 0xff;
        while at != 0 {
            let header = self.config_read(at)?;
            if header & 0xff == 0x11 {
                for vector in 0..u64::from(VECTORS) {
                    let entry = BAR0 + 0x2000 + 16 * vector;
                    for (word, value) in [INTERRUPTS as u64 + 4 * vector, 0, 1, 0].into_iter().enumerate() {
                        self.process.ask(&format!("writel {:#x} {value:#x}", entry + 4 * word as u64))?;
                    }
                }
                return self.config_write(at, header | 1 << 31);
            }
            at = header >> 8 & 0xff;
        }
        Err(Error::Unsupported(format!("{}: no MSI-X", self.name)))
    }

    /// What QEMU has written down of its controller, a line for each event.
    pub fn trace(&self) -> String {
        self.process.trace()
    }

    /// The number of QEMU's process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }
}

fn number(answer: &str) -> Result<u32> {
    let digits = answer.trim_start_matches("0x");
    let parsed = u64::from_str_radix(digits, 16);
    parsed.map(|value| value as u32).map_err(|_| failed(answer, &std::io::Error::other("no number")))
}

impl Transport for Qemu {
    fn name(&self) -> &str {
        &self.name
    }

    fn read32(&self, register: u32) -> Result<u32> {
        number(&self.process.ask(&format!("readl {:#x}", BAR0 + u64::from(register)))?)
    }

    fn write32(&self, _site: Site, register: u32, value: u32) -> Result<()> {
        self.process.ask(&format!("writel {:#x} {value:#x}", BAR0 + u64::from(register))).map(|_| ())
    }

    fn region(&self) -> &dyn PersistentRegion {
        self
    }

    fn memory(&self, pages: usize) -> Result<Arc<dyn Memory>> {
        let free = &mut *self.memories.free.lock().unwrap();
        let at = match free.pieces.iter().position(|(_, has)| *has == pages) {
            Some(piece) => free.pieces.swap_remove(piece).0,
            None if free.end + pages * BLOCK <= RAM => {
                free.end += pages * BLOCK;
                free.end - pages * BLOCK
            }
            None => return Err(Error::NoSpace(format!("{}: {pages} pages of memory for transfers", self.name))),
        };
        self.memories.ram.write(at, &vec![0; pages * BLOCK]);
        Ok(Arc::new(Piece { memories: self.memories.clone(), at, pages }))
    }

    fn interrupts(&self) -> u16 {
        VECTORS
    }

    fn pause(&self, interrupt: u16, until: Duration) -> Result<()> {
        let is_raised = self.memories.ram.take(INTERRUPTS + 4 * usize::from(interrupt)) != 0;
        if !is_raised && until > self.now() {
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn counts(&self) -> Counts {
        let host = self.state.lock().unwrap().counts;
        Trace::read(&self.process.trace(), REGION_ADDRESS).counts + host
    }
}

impl PersistentRegion for Qemu {
    fn len(&self) -> u64 {
        self.region.len() as u64
    }

    fn address(&self) -> u64 {
        REGION_ADDRESS
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.region.read(offset as usize, bytes);
        Ok(())
    }

    fn store(&self, _site: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        self.region.write(offset as usize, bytes);
        let state = &mut *self.state.lock().unwrap();
        state.counts.region_runs += u64::from(state.last_store != Some(offset));
        state.counts.region_bytes += bytes.len() as u64;
        state.last_store = Some(offset + bytes.len() as u64);
        Ok(())
    }

    fn order(&self, _site: Site) {
        // The mapping is ordinary memory, whose stores the processor keeps in order.
        let state = &mut *self.state.lock().unwrap();
        state.counts.orders += 1;
        state.last_store = None;
    }

    fn barrier(&self, _site: Site, by: ReadBarrier) -> Result<Option<PmrStatus>> {
        self.state.lock().unwrap().counts.barriers += 1;
        match by {
            ReadBarrier::OfStatus => Ok(Some(PmrStatus(self.read32(register::PMRSTS)?))),
            ReadBarrier::OfRegion => self.process.ask(&format!("readl {BAR4:#x}")).map(|_| None),
        }
    }
}
