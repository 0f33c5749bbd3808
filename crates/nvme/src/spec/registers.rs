//! Registers of a controller (base specification 1.4c, section 3.1).

use std::time::Duration;

/// Offsets in BAR0. A register of 64 bits is read as two of 32, the low half first.
pub mod register {
    /// Controller capabilities, 64 bits.
    pub const CAP: u32 = 0x00;
    /// Version.
    pub const VS: u32 = 0x08;
    /// Controller configuration.
    pub const CC: u32 = 0x14;
    /// Controller status.
    pub const CSTS: u32 = 0x1c;
    /// Admin queue attributes.
    pub const AQA: u32 = 0x24;
    /// Admin submission queue, 64 bits.
    pub const ASQ: u32 = 0x28;
    /// Admin completion queue, 64 bits.
    pub const ACQ: u32 = 0x30;
    /// Capabilities of the persistent memory region.
    pub const PMRCAP: u32 = 0xe00;
    /// Its control.
    pub const PMRCTL: u32 = 0xe04;
    /// Its status.
    pub const PMRSTS: u32 = 0xe08;
    /// The address of the region for the controller itself, low half.
    pub const PMRMSCL: u32 = 0xe14;
    /// The high half.
    pub const PMRMSCU: u32 = 0xe18;
    /// The first doorbell.
    pub const DOORBELLS: u32 = 0x1000;
}

/// Bits of [`CC`](register::CC).
pub mod cc {
    /// Enable.
    pub const EN: u32 = 1;
    /// Shutdown notification: a normal one.
    pub const SHN_NORMAL: u32 = 1 << 14;
    /// Entries of 64 and of 16 bytes; pages of 4 KiB; round robin; the NVM command set.
    pub const ENTRIES: u32 = 6 << 16 | 4 << 20;
}

/// Bits of [`CSTS`](register::CSTS).
pub mod csts {
    /// Ready.
    pub const RDY: u32 = 1;
    /// Controller fatal status.
    pub const CFS: u32 = 1 << 1;
    /// Shutdown status.
    pub const SHST: u32 = 3 << 2;
    /// Shutdown is complete.
    pub const SHST_COMPLETE: u32 = 2 << 2;
}

/// Bits of the registers of the persistent memory region.
pub mod pmr {
    /// [`PMRCTL`](super::register::PMRCTL): enable.
    pub const EN: u32 = 1;
    /// [`PMRMSCL`](super::register::PMRMSCL): the controller takes addresses in the region.
    pub const CMSE: u32 = 1 << 1;
}

/// [`CAP`](register::CAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// The most entries of a queue.
    pub fn most_entries(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// How long the controller may take to become ready, or not ready.
    pub fn timeout(self) -> Duration {
        Duration::from_millis(500 * (self.0 >> 24 & 0xff).max(1))
    }

    /// Bytes from one doorbell to the next.
    pub fn doorbell_stride(self) -> u32 {
        4 << (self.0 >> 32 & 0xf)
    }

    /// Bytes of the smallest page that it takes.
    pub fn smallest_page(self) -> u64 {
        4096 << (self.0 >> 48 & 0xf)
    }

    /// Whether it has a persistent memory region.
    pub fn has_pmr(self) -> bool {
        self.0 >> 56 & 1 == 1
    }
}

/// How the driver makes sure that its stores have arrived in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBarrier {
    /// By a read of the region itself.
    OfRegion,
    /// By a read of [`PMRSTS`](register::PMRSTS).
    OfStatus,
}

/// [`PMRCAP`](register::PMRCAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmrCapabilities(pub u32);

impl PmrCapabilities {
    /// The BAR that has the region.
    pub fn bar(self) -> u32 {
        self.0 >> 5 & 7
    }

    /// What makes stores arrive. `None`: the region offers nothing that does, so nothing in it can be relied on.
    pub fn barrier(self) -> Option<ReadBarrier> {
        match self.0 >> 10 & 0xf {
            ways if ways & 2 != 0 => Some(ReadBarrier::OfStatus),
            ways if ways & 1 != 0 => Some(ReadBarrier::OfRegion),
            _ => None,
        }
    }

    /// How long the region may take to become ready.
    pub fn timeout(self) -> Duration {
        let unit = if self.0 >> 8 & 3 == 1 { 60_000 } else { 500 };
        Duration::from_millis(unit * u64::from(self.0 >> 16 & 0xff).max(1))
    }

    /// Whether queues can stand in the region.
    pub fn holds_queues(self) -> bool {
        self.0 >> 24 & 1 == 1
    }
}

/// [`PMRSTS`](register::PMRSTS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmrStatus(pub u32);

impl PmrStatus {
    /// Whether the region is not ready yet.
    pub fn is_busy(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// Whether its content was lost: it could not be restored after a loss of power. It can be used again.
    pub fn is_lost(self) -> bool {
        self.0 >> 9 & 7 == 1
    }

    /// Whether the controller does not take the address that PMRMSC gives its region.
    pub fn refuses_address(self) -> bool {
        self.0 >> 12 & 1 == 1
    }

    /// Why the region cannot be used, in words.
    pub fn fault(self) -> Option<&'static str> {
        match (self.0 >> 9 & 7, self.0 & 0xff) {
            (0 | 1, 0) => None,
            (0 | 1, _) => Some("it reports an error of its own"),
            (2, _) => Some("it is read only"),
            _ => Some("it is unreliable"),
        }
    }
}

/// The offset of a doorbell: of a submission queue its tail, of a completion queue its head.
pub fn doorbell(queue: u16, is_completion: bool, stride: u32) -> u32 {
    register::DOORBELLS + (2 * u32::from(queue) + u32::from(is_completion)) * stride
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What QEMU 7.2's controller says of itself.
    #[test]
    fn registers_of_a_real_controller() {
        let cap = Capabilities(0x0140_1820_0f01_07ff);
        assert_eq!((cap.most_entries(), cap.doorbell_stride(), cap.smallest_page()), (2048, 4, 4096));
        assert!(cap.has_pmr());
        assert_eq!(cap.timeout(), Duration::from_millis(7500));
        let region = PmrCapabilities(0x0100_0898);
        assert_eq!((region.bar(), region.barrier()), (4, Some(ReadBarrier::OfStatus)));
        assert!(region.holds_queues());
        assert_eq!(PmrCapabilities(0x0100_0498).barrier(), Some(ReadBarrier::OfRegion));
        assert_eq!(PmrCapabilities(0x0100_0098).barrier(), None);
    }

    #[test]
    fn doorbells_stand_in_pairs() {
        assert_eq!(doorbell(0, false, 4), 0x1000);
        assert_eq!(doorbell(0, true, 4), 0x1004);
        assert_eq!(doorbell(3, false, 4), 0x1018);
        assert_eq!(doorbell(3, true, 64), 0x1000 + 7 * 64);
    }

    #[test]
    fn a_region_tells_its_faults() {
        assert_eq!(PmrStatus(0).fault(), None);
        assert!(PmrStatus(0x100).is_busy());
        let words = [0x600, 0x400, 1].map(|status| PmrStatus(status).fault());
        assert!(words.iter().all(Option::is_some) && words[0] != words[1], "{words:?}");
        assert!(PmrStatus(0x200).is_lost() && PmrStatus(0x200).fault().is_none());
    }
}
