//! What a controller and a namespace say of themselves: 4096 bytes each, of which the driver reads a few.

use super::entry::Command;

/// Bytes of identify data.
pub const IDENTIFY_BYTES: usize = 4096;

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(['\0', ' ']).to_string()
}

/// Of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifyController {
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// The most bytes of a command; none: any number.
    pub most_transfer: Option<u64>,
    /// How many namespaces there may be.
    pub namespaces: u32,
    /// Whether it has a volatile write cache.
    pub has_write_cache: bool,
    /// How many logical blocks survive a loss of power wholly or not at all.
    pub atomic_blocks: u32,
}

impl IdentifyController {
    /// From identify data.
    pub fn new(bytes: &[u8; IDENTIFY_BYTES]) -> IdentifyController {
        IdentifyController {
            serial: text(&bytes[4..24]),
            model: text(&bytes[24..64]),
            // Of pages of 4 KiB, which is what the driver asks for.
            most_transfer: (bytes[77] != 0).then(|| 4096u64.checked_shl(bytes[77].into()).unwrap_or(u64::MAX)),
            namespaces: le32(bytes, 516),
            has_write_cache: bytes[525] & 1 == 1,
            atomic_blocks: u32::from(le16(bytes, 528)) + 1,
        }
    }

    /// The command that asks for it.
    pub fn command() -> Command {
        Command { dword10: 1.into(), ..Command::new(super::admin::IDENTIFY, 0) }
    }
}

/// A format of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaFormat {
    /// Bytes of a logical block.
    pub bytes: u32,
    /// Bytes of metadata beside each.
    pub metadata: u16,
}

/// Of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifyNamespace {
    /// Logical blocks.
    pub size: u64,
    /// Its format.
    pub format: LbaFormat,
    /// Whether it cannot be written.
    pub is_read_only: bool,
}

impl IdentifyNamespace {
    /// From identify data; none if its format is none that can be.
    pub fn new(bytes: &[u8; IDENTIFY_BYTES]) -> Option<IdentifyNamespace> {
        let at = 128 + 4 * usize::from(bytes[26] & 0xf);
        let shift = bytes[at + 2];
        (9..=16).contains(&shift).then(|| IdentifyNamespace {
            size: le64(bytes, 0),
            format: LbaFormat { bytes: 1 << shift, metadata: le16(bytes, at) },
            is_read_only: bytes[99] & 1 == 1,
        })
    }

    /// The command that asks for it.
    pub fn command(namespace: u32) -> Command {
        Command::new(super::admin::IDENTIFY, namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identify_data_is_read() {
        let mut bytes = [0u8; IDENTIFY_BYTES];
        bytes[4..10].copy_from_slice(b"serial");
        bytes[24..40].copy_from_slice(b"QEMU NVMe Ctrl  ");
        (bytes[77], bytes[525], bytes[516]) = (7, 7, 1);
        let controller = IdentifyController::new(&bytes);
        assert_eq!((&*controller.serial, &*controller.model), ("serial", "QEMU NVMe Ctrl"));
        assert_eq!(controller.most_transfer, Some(512 << 10));
        assert!(controller.has_write_cache);

        let mut bytes = [0u8; IDENTIFY_BYTES];
        bytes[..8].copy_from_slice(&8192u64.to_le_bytes());
        bytes[26] = 1;
        bytes[132..136].copy_from_slice(&[8, 0, 9, 0]);
        let namespace = IdentifyNamespace::new(&bytes).unwrap();
        assert_eq!((namespace.size, namespace.format), (8192, LbaFormat { bytes: 512, metadata: 8 }));
        bytes[134] = 0;
        assert_eq!(IdentifyNamespace::new(&bytes), None);
    }
}
