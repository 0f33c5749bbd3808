//! Entries of queues: 64 bytes of a submission queue, 16 of a completion queue.

use wholly_blocks::Txid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Status;

/// Opcodes of admin commands.
pub mod admin {
    /// Delete an I/O submission queue.
    pub const DELETE_SQ: u8 = 0x00;
    /// Create an I/O submission queue.
    pub const CREATE_SQ: u8 = 0x01;
    /// Delete an I/O completion queue.
    pub const DELETE_CQ: u8 = 0x04;
    /// Create an I/O completion queue.
    pub const CREATE_CQ: u8 = 0x05;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Set features.
    pub const SET_FEATURES: u8 = 0x09;
    /// The feature: number of queues.
    pub const FEATURE_QUEUES: u32 = 7;
}

/// Opcodes of I/O commands.
pub mod io {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
}

/// [`io::WRITE`].
pub const IO_WRITE: u8 = io::WRITE;
/// [`io::READ`].
pub const IO_READ: u8 = io::READ;

/// Bits of dword 12 of a write.
const REQ_TX: u32 = 1 << 16;
const REQ_TX_COMMIT: u32 = 1 << 17;
const FUA: u32 = 1 << 30;

/// An entry of a submission queue.
///
/// Dwords 2 and 3, which are reserved in commands of I/O, have the transaction; bits 16 and 17 of dword 12, reserved
/// too, tell its part in it (ccNVMe, section 4.2, table 2). A commit has bit 17 alone. The paper names these values
/// and leaves the bits open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Command {
    /// What to do.
    pub opcode: u8,
    /// Fused commands and scatter-gather lists: none.
    pub flags: u8,
    /// Names the command among those of its queue that are not completed.
    pub id: U16,
    /// The namespace.
    pub namespace: U32,
    /// The transaction; 0: none.
    pub txid: U64,
    /// Metadata: none.
    pub metadata: U64,
    /// The address of the first page.
    pub prp1: U64,
    /// The address of the second page, or of a list of pages from the second on.
    pub prp2: U64,
    /// By command.
    pub dword10: U32,
    /// By command.
    pub dword11: U32,
    /// By command.
    pub dword12: U32,
    /// By command.
    pub dword13: U32,
    /// By command.
    pub dword14: U32,
    /// By command.
    pub dword15: U32,
}

const _: () = assert!(size_of::<Command>() == 64);

impl Command {
    /// Bytes.
    pub const BYTES: usize = 64;

    /// With an opcode, and all else 0.
    pub fn new(opcode: u8, namespace: u32) -> Command {
        let zeros = [0u8; Command::BYTES];
        Command { opcode, namespace: namespace.into(), ..zerocopy::transmute!(zeros) }
    }

    /// A read or a write of logical blocks, from 1 to 65,536 of them.
    pub fn transfer(opcode: u8, namespace: u32, start: u64, count: u32) -> Command {
        debug_assert!((1..=1 << 16).contains(&count), "{count} blocks in one command");
        Command {
            dword10: (start as u32).into(),
            dword11: ((start >> 32) as u32).into(),
            dword12: (count - 1).into(),
            ..Command::new(opcode, namespace)
        }
    }

    /// As a part of a transaction: its commit, or another.
    pub fn of_transaction(mut self, txid: Txid, is_commit: bool) -> Command {
        self.txid = txid.0.into();
        self.dword12 |= if is_commit { REQ_TX_COMMIT } else { REQ_TX };
        self
    }

    /// A write that is on the medium when it completes.
    pub fn forced(mut self) -> Command {
        self.dword12 |= FUA;
        self
    }

    /// Whether it asks for that.
    pub fn is_forced(&self) -> bool {
        self.dword12.get() & FUA != 0
    }

    /// Whether it is a part of a transaction.
    pub fn is_of_transaction(&self) -> bool {
        self.dword12.get() & (REQ_TX | REQ_TX_COMMIT) != 0
    }

    /// Whether it is the commit of a transaction.
    pub fn is_commit(&self) -> bool {
        self.dword12.get() & REQ_TX_COMMIT != 0
    }

    /// The first logical block.
    pub fn start(&self) -> u64 {
        u64::from(self.dword11.get()) << 32 | u64::from(self.dword10.get())
    }

    /// How many logical blocks.
    pub fn count(&self) -> u32 {
        (self.dword12.get() & 0xffff) + 1
    }
}

/// An entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Completion {
    /// By command.
    pub result: U32,
    /// Reserved.
    pub reserved: U32,
    /// How far the controller has taken entries out of the submission queue.
    pub sq_head: U16,
    /// The submission queue.
    pub sq: U16,
    /// The command.
    pub id: U16,
    /// The phase in bit 0, the [`Status`] above.
    pub status: U16,
}

const _: () = assert!(size_of::<Completion>() == 16);

impl Completion {
    /// Bytes.
    pub const BYTES: usize = 16;

    /// Whether the controller has written it in a round with this phase.
    pub fn has_phase(&self, phase: bool) -> bool {
        (self.status.get() & 1 == 1) == phase
    }

    /// How the command ended.
    pub fn status(&self) -> Status {
        Status(self.status.get() >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a write of 8 logical blocks from 0x1_0000_0008 on, as the commit of a transaction.
    #[test]
    fn a_commit_in_bytes() {
        let mut command = Command::transfer(io::WRITE, 1, 0x1_0000_0008, 8);
        command = command.of_transaction(Txid::new(3, 0x0001_0203_0405), true).forced();
        command.id = 0xbeef.into();
        command.prp1 = 0x1122_3344_5566_7000.into();
        command.prp2 = 0x8899_aabb_ccdd_e000.into();
        #[rustfmt::skip]
        let golden: [u8; 64] = [
            0x01, 0x00, 0xef, 0xbe,  0x01, 0x00, 0x00, 0x00,
            0x05, 0x04, 0x03, 0x02,  0x01, 0x03, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00,  0x00, 0x00, 0x00, 0x00,
            0x00, 0x70, 0x66, 0x55,  0x44, 0x33, 0x22, 0x11,
            0x00, 0xe0, 0xdd, 0xcc,  0xbb, 0xaa, 0x99, 0x88,
            0x08, 0x00, 0x00, 0x00,  0x01, 0x00, 0x00, 0x00,
            0x07, 0x00, 0x02, 0x40,  0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00,  0x00, 0x00, 0x00, 0x00,
        ];
        assert_eq!(command.as_bytes(), golden);
        assert!(command.is_commit() && command.is_of_transaction() && command.is_forced());
        assert_eq!((command.start(), command.count()), (0x1_0000_0008, 8));
    }

    #[test]
    fn another_part_in_bytes() {
        let command = Command::transfer(io::WRITE, 1, 5, 1).of_transaction(Txid(7), false);
        assert_eq!(command.as_bytes()[48..52], [0, 0, 1, 0]);
        assert!(!command.is_commit() && command.is_of_transaction() && !command.is_forced());
    }

    #[test]
    fn a_completion_in_bytes() {
        let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0x34, 0x12, 3, 0, 0xef, 0xbe, 0x01, 0x81];
        let completion = Completion::read_from_bytes(&bytes).unwrap();
        assert_eq!((completion.sq_head.get(), completion.sq.get(), completion.id.get()), (0x1234, 3, 0xbeef));
        assert!(completion.has_phase(true) && !completion.has_phase(false));
        assert_eq!(completion.status(), Status(0x4080));
    }
}
