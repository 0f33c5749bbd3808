//! How a command ended (base specification 1.4c, section 4.6.1).

use std::fmt;

/// The status field of a completion, without the phase: code in bits 7:0, type in 10:8, "do not retry" in bit 14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    /// It did what it should.
    pub const SUCCESS: Status = Status(0);
    /// The opcode is unknown.
    pub const INVALID_OPCODE: Status = Status(0x4001);
    /// A field of the command is wrong.
    pub const INVALID_FIELD: Status = Status(0x4002);
    /// There is no such namespace.
    pub const INVALID_NAMESPACE: Status = Status(0x400b);
    /// Blocks beyond the end.
    pub const LBA_OUT_OF_RANGE: Status = Status(0x4080);
    /// There is no completion queue with this number.
    pub const INVALID_CQ: Status = Status(0x4100);
    /// No queue can have this number, or one has it.
    pub const INVALID_QUEUE: Status = Status(0x4101);
    /// No queue can have so many entries.
    pub const INVALID_QUEUE_SIZE: Status = Status(0x4102);
    /// There is no such interrupt.
    pub const INVALID_VECTOR: Status = Status(0x4108);
    /// A submission queue uses it.
    pub const INVALID_DELETION: Status = Status(0x10c);
    /// The namespace is read only.
    pub const READ_ONLY: Status = Status(0x4020);
    /// The medium could not be written.
    pub const WRITE_FAULT: Status = Status(0x280);
    /// The medium could not be read.
    pub const READ_FAULT: Status = Status(0x281);

    /// Whether the command did what it should.
    pub fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 & 0x7ff {
            0x000 => "success",
            0x001 => "unknown opcode",
            0x002 => "invalid field",
            0x00b => "invalid namespace",
            0x020 => "the namespace is read only",
            0x080 => "blocks beyond the end",
            0x100 => "no such completion queue",
            0x101 => "invalid queue number",
            0x102 => "invalid queue size",
            0x108 => "invalid interrupt vector",
            0x10c => "a submission queue uses the completion queue",
            0x280 => "write fault",
            0x281 => "read error",
            0x285 => "the blocks compare unequal",
            _ => "see the NVM Express specification",
        };
        write!(f, "status {:#x} ({words})", self.0)
    }
}
