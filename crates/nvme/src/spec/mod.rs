//! What NVM Express prescribes: registers, entries of queues, identify data, status. NVM Express base specification
//! 1.4c, of which this driver uses nothing that 2.0 has changed.
//!
//! | module | contents |
//! |---|---|
//! | `registers` | offsets, and what their bits mean |
//! | `entry` | entries of submission and completion queues |
//! | `identify` | what a controller and a namespace say of themselves |
//! | `status` | how a command ended |

mod entry;
mod identify;
mod registers;
mod status;

pub use entry::{Command, Completion, IO_READ, IO_WRITE, admin, io};
pub use identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, LbaFormat};
pub use registers::{Capabilities, PmrCapabilities, PmrStatus, ReadBarrier, cc, csts, doorbell, pmr, register};
pub use status::Status;
