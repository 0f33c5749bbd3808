//! The border between the driver and a controller: registers, the persistent memory region, memory for transfers.
//! Nothing above it knows whether the controller is a model, QEMU's, or hardware.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use wholly_error::Result;
use wholly_media::Site;

use crate::spec::{PmrStatus, ReadBarrier};

/// A controller as its driver reaches it. Several threads call it.
pub trait Transport: Send + Sync {
    /// The device, for errors and reports.
    fn name(&self) -> &str;

    /// Reads a register.
    ///
    /// # Errors
    /// If the controller cannot be reached.
    fn read32(&self, register: u32) -> Result<u32>;

    /// Writes a register. The write is posted: it has arrived once a read of any register has returned.
    ///
    /// # Errors
    /// If the controller cannot be reached.
    fn write32(&self, site: Site, register: u32, value: u32) -> Result<()>;

    /// The persistent memory region. Valid once the controller says that it has one, and it is enabled.
    fn region(&self) -> &dyn PersistentRegion;

    /// Pages of memory that the controller reads and writes, next to each other for it. They hold zeros.
    ///
    /// # Errors
    /// `NoSpace` if there is no more of it.
    fn memory(&self, pages: usize) -> Result<Arc<dyn Memory>>;

    /// How many interrupts it can deliver. 0: none, completion queues are polled.
    fn interrupts(&self) -> u16;

    /// Waits until an interrupt of this number, or until it is so late ([`now`](Self::now)). May return earlier: the
    /// caller looks at its queue in any case.
    ///
    /// # Errors
    /// If the controller cannot be reached.
    fn pause(&self, interrupt: u16, until: Duration) -> Result<()>;

    /// The time since some moment: it never goes back.
    fn now(&self) -> Duration;

    /// What has been done since the transport was made.
    fn counts(&self) -> Counts;
}

/// The persistent memory region of a controller, mapped write-combined.
pub trait PersistentRegion: Send + Sync {
    /// Bytes.
    fn len(&self) -> u64;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the region for the controller, to be given in PMRMSC: one that no memory has.
    fn address(&self) -> u64;

    /// Reads bytes, as they have arrived.
    ///
    /// # Errors
    /// If the controller cannot be reached.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Stores bytes. They arrive at any time, word by word, in any order, until [`order`](Self::order).
    ///
    /// # Errors
    /// If the controller cannot be reached.
    fn store(&self, site: Site, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Orders the thread's stores: those before arrive before those after, and before what is written to a register
    /// after. `sfence` on x86-64.
    fn order(&self, site: Site);

    /// Reads, so that all that any thread has ordered before has arrived when this returns: it survives a loss of power
    /// from then on. Returns the region's status, if that is what is read.
    ///
    /// # Errors
    /// If the controller cannot be reached.
    fn barrier(&self, site: Site, by: ReadBarrier) -> Result<Option<PmrStatus>>;
}

/// Memory that the controller reads and writes. It is given back when it is dropped.
pub trait Memory: Send + Sync {
    /// Its address for the controller, a multiple of 4096.
    fn address(&self) -> u64;

    /// Copies bytes out of it. An aligned word of 4 bytes is read at once.
    fn read(&self, offset: usize, bytes: &mut [u8]);

    /// Copies bytes into it.
    fn write(&self, offset: usize, bytes: &[u8]);
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a transport has counted. The host's side is what was issued; the device's side is what a device was
        /// seen to do, by the model or by QEMU's trace, and is 0 where nobody can see it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// All of them by name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }

        impl Sub for Counts {
            type Output = Counts;
            fn sub(self, before: Counts) -> Counts {
                Counts { $($name: self.$name - before.$name),* }
            }
        }

        impl Add for Counts {
            type Output = Counts;
            fn add(self, other: Counts) -> Counts {
                Counts { $($name: self.$name + other.$name),* }
            }
        }
    };
}

counts! {
    /// Host: writes of doorbells of submission queues.
    sq_doorbells,
    /// Host: writes of doorbells of completion queues.
    cq_doorbells,
    /// Host: runs of stores to the region that lie behind each other, between two orders: what write combining makes
    /// one transfer of, for each 64 bytes.
    region_runs,
    /// Host: bytes stored to the region.
    region_bytes,
    /// Host: orders of stores.
    orders,
    /// Host: reads that make stores arrive.
    barriers,
    /// Device: entries fetched from host memory.
    fetched_from_memory,
    /// Device: entries fetched from the region.
    fetched_from_region,
    /// Device: completions written to host memory.
    completions,
    /// Device: commands that read or write blocks.
    block_ios,
    /// Device: logical blocks that they read or wrote.
    blocks,
    /// Device: flushes.
    flushes,
    /// Device: interrupts.
    interrupts,
}

impl Counts {
    /// Stores and writes that the host makes over PCIe: runs of stores to the region, and doorbells.
    pub fn mmio_raw(&self) -> u64 {
        self.region_runs + self.sq_doorbells + self.cq_doorbells
    }

    /// Entries of queues that go over PCIe by DMA.
    pub fn dma_queue(&self) -> u64 {
        self.fetched_from_memory + self.completions
    }
}
