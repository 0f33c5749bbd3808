//! What a medium may do at a crash.

/// Which kind of access a medium offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loads and stores; ordered by fences.
    Pmem,
    /// Reads and writes of blocks; ordered by syncs.
    Disk,
}

/// From where on bytes survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistenceDomain {
    /// Once a flushed or non-temporal store has been fenced (ADR).
    MemoryController,
    /// Once an ordinary store is visible; non-temporal stores still need their fence (eADR).
    CpuCaches,
    /// Once a sync or a synchronous write has returned.
    Device,
}

/// What a medium may do at a crash, and what it asks of its callers.
///
/// The engines read it to choose a protocol; the simulator is limited by the same values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantees {
    /// Loads and stores, or blocks.
    pub kind: Kind,
    /// What a crash keeps wholly or not at all: 8 bytes on persistent memory, a sector on a disk.
    pub atomic_unit: u32,
    /// Offsets and lengths of [`write_through`](crate::Region::write_through) are multiples of this.
    pub block: u32,
    /// From where on bytes survive.
    pub domain: PersistenceDomain,
    /// Whether this only stands in for the medium: nothing survives a real power failure, and figures must say so.
    pub emulated: bool,
    /// A line for people and reports: `"persistent memory, emulated on tmpfs"`.
    pub description: String,
}

impl Guarantees {
    /// Whether bytes are stored rather than written in blocks.
    pub fn is_pmem(&self) -> bool {
        self.kind == Kind::Pmem
    }
}
