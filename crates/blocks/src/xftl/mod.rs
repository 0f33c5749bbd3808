//! A simulated flash disk with X-FTL: the paper's transactional device, as a model that can be executed.
//!
//! Mechanisms: "CFS", USENIX ATC 2015, sections 2.3 and 5, which rests on X-FTL (SIGMOD 2013). No device on sale has
//! these commands. Every figure that comes from here says `model`; `docs/flash-model.md` tells what is modelled.
//!
//! # Terms
//!
//! - *flash page*: 4 KiB and 64 *spare bytes*, named by a [`Ppn`]. It is *programmed* once, then reads, until its
//!   *erase block* is erased as a whole. The flash pages of an erase block are programmed in order.
//! - *logical page*: what the host calls a block, named by an [`Lba`](crate::Lba).
//! - *map*: for each logical page the flash page with its committed version (L2P). It is in memory; *table pages* hold
//!   it on flash, *directory pages* name the table pages, a *root* names the directory pages. Roots go around in a
//!   *ring* of two erase blocks.
//! - *X-L2P*: for each running transaction the pages that it has written, and where they are.
//! - *chain*: the pages by which a commit tells which logical pages it changes; 168 entries of 24 bytes each. Its last
//!   page is the commit point.
//! - *checkpoint*: table and directory pages that have changed are programmed, then a root.
//! - *collection*: valid pages of an erase block are programmed elsewhere, so that it can be erased.
//! - *mark*: a page that collection programs in place of one that has rotted. Its spare bytes say that the logical page
//!   is lost; the page itself, where it was, and what was wrong with it.
//! - *wait*: what was programmed and erased before is on flash. Until then a crash keeps any subset, each whole, torn
//!   or absent.
//! - *life*: from an open to the next. Each has an *incarnation*, a number that its pages carry.
//! - *sequence*: the number of a program, from 1 on, over all lives.
//!
//! # Invariants
//!
//! - **X1** A flash page is valid if and only if the map, a running transaction, the last root or a chain after it
//!   names it. Collection moves pages that the map or a running transaction names, and no others.
//! - **X2** A chain is believed only as a whole: all pages are there, of one incarnation and number, and the checksum
//!   of the last one covers all entries.
//! - **X3** An erase block is erased only if the last durable root, with all that it names, and the chains after it
//!   name nothing in it. So a block that was collected *waits* for the next root.
//! - **X4** Chains, and plain writes between them, are applied in the order of their sequences, from that of the root
//!   on.
//! - **X5** An open raises the incarnation durably, by a root, before it serves. Chains and plain writes count only if
//!   they have the incarnation of the last root. A page that a running transaction had written is never adopted.
//! - **X6** An abort programs nothing. What a running transaction has written costs its own programs, and no others.
//! - **X7** Collection keeps a page's logical number, transaction and tag in the spare bytes, and changes the table
//!   that named it: the map, or the transaction's.
//! - **X8** What has rotted is never served, and never zeros. Where collection finds a page that is not the content
//!   which names it, a mark takes the page's place in all respects: it is named, moved, committed and dropped as the
//!   page would have been, and takes as much room. Reading it is an error that names it. It goes with the next version
//!   of the logical page. A page that the medium fails to read may be there another time: it is not marked, and its
//!   block is not collected in this life.
//!
//! # Steps of a commit
//!
//! 1. What the volatile buffer has of these transactions, and all plain writes in it, are programmed; wait.
//! 2. The chain is programmed, on all channels at once; wait. From here on the transactions survive.
//! 3. The map is changed in memory. A later checkpoint stores it.
//!
//! # Steps of a checkpoint
//!
//! 1. Table pages that have changed, and the directory pages above, are programmed; wait, for what they name as well.
//! 2. The root is programmed; wait. Chains before it count no more.
//! 3. Erase blocks that waited, and those in which nothing is valid now, are erased; wait.
//!
//! # Space
//!
//! Erase blocks are divided by number, not by place: the ring; *data*; *system* (table, directory and chain pages); a
//! reserve. At most `data` blocks hold content of logical pages; to open another one, the fullest of invalid pages is
//! collected first. What a checkpoint and all commits of running transactions need is kept free, so that neither fails
//! for want of space (T7); a write that would break this is refused.
//!
//! | module | contents |
//! |---|---|
//! | `flash` | what a flash chip does; in memory, and on a region |
//! | `rules` | a chip that panics where a rule of flash, or X3, is broken |
//! | `layout` | spare bytes, roots, chain pages |
//! | `profile` | sizes and times of two devices; the clock of the model |
//! | `map` | the map and its table pages |
//! | `xl2p` | running transactions |
//! | `space` | erase blocks, what is valid in them, where the next page goes |
//! | `gc` | collection |
//! | `checkpoint` | table pages, the root, erases |
//! | `commit` | chains |
//! | `device` | the commands |
//! | `recover` | what an open finds, without changing a byte |
//! | `check` | `check` and `stat`, which change none either |

mod check;
mod checkpoint;
mod commit;
mod device;
mod flash;
mod gc;
mod layout;
mod map;
mod profile;
mod recover;
mod rules;
pub mod site;
mod space;
mod xl2p;

#[doc(hidden)]
pub use check::check_trial;
pub use check::{Report, Stat, check, stat};
pub use device::{Device, Mistake, Trial};
pub use flash::{Flash, Geometry, OverRegion, PAGE, Ppn, Ram, Read, SLOT, SPARE};
pub use layout::{CHAIN_ENTRIES, Programs};
pub use profile::{Config, Profile, Times};
pub use recover::Damage;
pub use rules::Rules;
