//! # Wholly: file updates that happen wholly or not at all
//!
//! Open an ordinary directory as a [`Store`] and update any number of its files in a [`Group`]. After a crash of the
//! process or a power failure, the group is there with everything in it, or nothing of it is.
//!
//! ```
//! # fn main() -> wholly::Result<()> {
//! # let dir = std::env::temp_dir().join(format!("wholly-doc-lib-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir).unwrap();
//! # std::fs::write(dir.join("a"), "old").unwrap();
//! # std::fs::write(dir.join("b"), "old").unwrap();
//! # wholly::Store::init(&dir, &wholly::Options::default())?;
//! let store = wholly::Store::open(&dir)?;
//! let (a, b) = (store.open_file("a")?, store.open_file("b")?);
//!
//! let mut group = store.begin();
//! group.write_at(&a, 0, b"new")?;
//! group.write_at(&b, 0, b"new")?;
//! group.commit()?; // both survive from here on; a crash before it leaves both as they were
//! # store.close()?;
//! # assert_eq!(std::fs::read(dir.join("b")).unwrap(), b"new");
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! What is promised, and what is not, is described in `docs/store.md`.
//!
//! # Layers
//!
//! | module | contents |
//! |---|---|
//! | [`hostdir`] | the store: files, groups, checkpoint, recovery |
//! | [`vfs`] | the trait through which mounts and other interfaces use a store or a volume; paths above it |
//!
//! Below these are the crates `wholly-changes`, `wholly-log`, `wholly-epochs`, `wholly-index`, `wholly-error`,
//! `wholly-sync`, `wholly-host` and `wholly-media`. `docs/architecture.md` describes how they work together,
//! `docs/format.md` the bytes on media.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
pub mod hostdir;
#[doc(hidden)]
pub mod log;
mod mount;
mod open;
mod salvage;
pub mod site;

pub use check::{check, clear_unfinished, parked, parts, tidy, undos};
pub use hostdir::{
    CheckpointReport, Decided, Fate, File, Finding, FindingKind, Group, IfChanged, KeepUndo, KeptUndo, LAYER, Options,
    Part, PartState, RecoveryReport, Released, Report, Review, Salvaged, SalvagedGroup, Store, StoreStat, StoreVfs,
    UndoFate, Undoing, Undone, Writer,
};
#[doc(hidden)]
pub use hostdir::{Neighbours, check_region};
pub use mount::{Holder, MountGroup, fatomic, fdataatomic};
pub use salvage::salvage;
#[doc(inline)]
pub use wholly_changes::{Change, LONGEST_NOTE, Parked, Side, What, XattrChange};
use wholly_error as error;
#[doc(inline)]
pub use wholly_error::{Error, Mismatch, ParkedId, Result};
#[doc(inline)]
pub use wholly_vfs::{self as vfs, DirEntry, Fallocate, Policy, Rename, SetXattr, Stat};
