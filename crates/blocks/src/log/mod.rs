//! The log of whole blocks, for any [`Region`](wholly_media::Region): its bytes, which records count, who writes them,
//! and what a crash leaves. The engine `page_cache_wal` of volumes runs over it.
//!
//! # Terms
//!
//! - *record*: a head with entries, and images. *Image*: a whole block as it is to be at home. *Ring*, *header*: see
//!   `ring.rs`. *Live*: a record that recovery would read. *Tail*: the first of them, which the newest header names. A
//!   block is *void* in a record: images of earlier records do not count for it.
//!
//! # Invariants
//!
//! 1. Records have sequences from 1 on in each incarnation, each begun after the one before is durable. So the last one
//!    alone can be torn; if a record after one that is damaged is valid, that is damage.
//! 2. A header names a record only after all that older ones have images of is at home, durably. Blocks of the ring are
//!    used again only after the header is durable ([`Records::release`]).
//! 3. A block with a live image that is freed, or that gets content past the log, is void in the record of whoever does
//!    so ([`Records::imaged`]). So recovery never puts an old image over what a later owner has stored.
//! 4. Recovery reads, makes durable what it believes, stores the last image of each block that is not void, and fences.
//!    Only then is the incarnation raised.
//! 5. One thread at a time writes a record; after one that has failed, nobody does.
//!
//! | file | idea |
//! |---|---|
//! | `ring.rs` | the bytes on media |
//! | `records.rs` | which records are live, and where the next one goes |
//! | `recover.rs` | what a crash has left |
//! | `device.rs` | the commands of a device with transactions, and their commit |
//! | `state.rs` | what it has in memory |
//! | `spill.rs` | pages that leave memory before the commit |
//! | `home.rs` | writing back |
//! | `spare.rs` | a buffer that is kept |

mod device;
mod home;
mod records;
mod recover;
mod ring;
mod spare;
mod spill;
mod state;

pub use device::{LogDevice, LogFault, LogOptions, LogSites, SITES, left, recover};
use records::Records;
pub use recover::{Recovered, read};
pub use ring::{Ring, RingSeed, mix};
use ring::{head_blocks, image_sum};
