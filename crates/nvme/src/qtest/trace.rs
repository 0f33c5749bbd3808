//! What QEMU writes down of its controller, counted.

use crate::transport::Counts;

pub(super) struct Trace {
    pub counts: Counts,
}

/// The number behind a word in a line, decimal or hexadecimal.
fn field(line: &str, name: &str) -> Option<u64> {
    let at = line.find(name)? + name.len();
    let text = line[at..].trim_start_matches([' ', '=']);
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    match text[..end].strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text[..end].parse().ok(),
    }
}

impl Trace {
    /// Of its lines; queues at or beyond an address are in the region.
    pub fn read(text: &str, region: u64) -> Trace {
        let mut counts = Counts::default();
        let mut in_region = std::collections::BTreeSet::new();
        for line in text.lines() {
            let event = line.split_whitespace().find(|word| word.starts_with("pci_nvme_")).unwrap_or_default();
            match event {
                "pci_nvme_create_sq" => {
                    let queue = field(line, "sqid");
                    match field(line, "addr").is_some_and(|address| address >= region) {
                        true => _ = in_region.insert(queue),
                        false => _ = in_region.remove(&queue),
                    }
                }
                "pci_nvme_mmio_doorbell_sq" => counts.sq_doorbells += 1,
                "pci_nvme_mmio_doorbell_cq" => counts.cq_doorbells += 1,
                "pci_nvme_io_cmd" if in_region.contains(&field(line, "sqid")) => counts.fetched_from_region += 1,
                "pci_nvme_io_cmd" => counts.fetched_from_memory += 1,
                "pci_nvme_write" | "pci_nvme_read" => {
                    counts.block_ios += 1;
                    counts.blocks += field(line, "nlb").unwrap_or(0);
                }
                "pci_nvme_flush_ns" => counts.flushes += 1,
                "pci_nvme_enqueue_req_completion" => counts.completions += 1,
                "pci_nvme_irq_msix" => counts.interrupts += 1,
                _ => {}
            }
        }
        Trace { counts }
    }
}
