//! Times of a device and of the way to it. They are parameters: a figure that rests on them alone says so.

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What it is called.
    pub name: &'static str,
    /// From the doorbell to the completion of a write of 4 KiB, in ns.
    pub latency_ns: u64,
    /// Writes, in bytes a second.
    pub bytes_per_s: u64,
    /// Writes of 4 KiB a second.
    pub writes_per_s: u64,
    /// A store of up to 64 bytes to the region, or of a doorbell, in ns.
    pub posted_ns: u64,
    /// A read over PCIe, in ns.
    pub read_ns: u64,
    /// What an interrupt costs the processor, in ns.
    pub interrupt_ns: u64,
}

impl Profile {
    /// The paper's three SSDs (table 3), and its measurements of MMIO (figure 5).
    pub const ALL: [Profile; 3] = [
        Profile {
            name: "p5800x",
            latency_ns: 5_000,
            bytes_per_s: 3_300_000_000,
            writes_per_s: 820_000,
            posted_ns: 100,
            read_ns: 900,
            interrupt_ns: 1_500,
        },
        Profile {
            name: "905p",
            latency_ns: 10_000,
            bytes_per_s: 2_200_000_000,
            writes_per_s: 550_000,
            posted_ns: 100,
            read_ns: 900,
            interrupt_ns: 1_500,
        },
        Profile {
            name: "750",
            latency_ns: 20_000,
            bytes_per_s: 950_000_000,
            writes_per_s: 230_000,
            posted_ns: 100,
            read_ns: 900,
            interrupt_ns: 1_500,
        },
    ];

    /// The one with this name.
    pub fn named(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// How long a command of so many bytes keeps others from being served, in ns.
    pub fn service_ns(&self, bytes: u64) -> u64 {
        (bytes * 1_000_000_000 / self.bytes_per_s).max(1_000_000_000 / self.writes_per_s)
    }
}
